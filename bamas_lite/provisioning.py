"""Stage 1 of BAMAS: which LLMs to hire, and how many of each, under a hard budget.

The integer program with tiered recursive weights is the paper's. Weights grow so fast that a solver which computes in
floats can return a wrong team and call it optimal; so every answer of a solver is compared with an exact search.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from decimal import ROUND_FLOOR
from fractions import Fraction
from numbers import Integral
from typing import Any, Literal

from bamas_lite.ilp import SolverError, choose_solver, solve
from bamas_lite.inputs import exact, shown, whole
from bamas_lite.pool import LLM, Pool, call_cost
from bamas_lite.search import Hires, Problem
from bamas_lite.team import Request, Slot, Team, money, needed, round_up
from bamas_lite.weights import (
    COUPLINGS,
    ROLE_LIMITS,
    TOKEN_LIMITS,
    RoleLimits,
    estimate_t_out,
    positive,
    recursive_weights,
)

__all__ = ["ROLE_LIMITS", "TOKEN_LIMITS", "InfeasibleBudgetError", "RoleLimits", "Slot", "SolverError", "Team",
           "budget_frontier", "estimate_t_out", "provision", "recursive_weights"]

Method = Literal["auto", "ilp", "lexicographic"]
ROLES = ("planner", "executor", "critic")

MOST_AGENTS = 100
"""The most agents that a team can be asked to have at least; the exact search counts up to it."""


class InfeasibleBudgetError(ValueError):
    """No team fits the budget. `least_budget` (u$) is the least one with which the same call succeeds."""

    def __init__(self, message: str, least_budget: float) -> None:
        super().__init__(message)
        self.least_budget = least_budget

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args[0], self.least_budget)


def provision(pool: Pool, budget: Any, *, t_in: Any = 500, t_out: Any = None, method: Method = "auto",
              objective: str | Mapping[str, Any] | Callable[[LLM], Any] = "lexicographic",
              roles: Mapping[str, tuple[int, float]] | None = None, min_agents: int | None = None, max_copies: int = 5,
              solver: Any = None, cost_model: Callable[[LLM, Any, Any], Any] = call_cost) -> Team:
    """The best team that the budget pays for (BAMAS, budget-constrained LLM provisioning).

    Args:
        pool: the LLMs to choose from.
        budget: B in u$ for one task.
        t_in: planned prompt tokens of a call.
        t_out: planned completion tokens of a call; None: each LLM's max_tokens.
        method: "ilp": the paper's integer program, checked exactly; "lexicographic": the exact search alone, without a
            solver; "auto": the integer program, replaced by the exact search where its answer fails the check or floats
            cannot hold its weights.
        objective: "lexicographic" (paper): the vector of agents per tier, strongest first, is the largest affordable
            one; "score_sum": the largest sum of the LLMs' ratings; or scores as {name: score} or a function of the LLM.
        roles: limits per role such as ROLE_LIMITS["feedback"] (as in the public code); None: roles are cast later.
        min_agents: the fewest agents, at most MOST_AGENTS; None: 2, or 1 with roles.
        max_copies: the most copies of one LLM; with roles, of one tier in one role.
        solver: PuLP solver object or name; None: HiGHS, else CBC.
        cost_model: (llm, t_in, t_out) -> planned cost of one call in u$, above 0.

    Returns:
        The team; among equal ones the cheapest, then by name.

    Raises:
        InfeasibleBudgetError: no team fits; `least_budget` says which budget would do.
        SolverError: method="ilp" and the solver failed or its team is not the best one.
        ValueError: an argument that makes no sense; the message names it.
    """
    if method not in ("auto", "ilp", "lexicographic"):
        raise ValueError(f"method = {method!r}: expected 'auto', 'ilp' or 'lexicographic'")
    request = checked_request(pool, budget, t_in, t_out, objective, roles, min_agents, max_copies, cost_model)
    p = request.problem
    if p.least_cost > p.budget:
        least = round_up(p.least_cost)
        raise InfeasibleBudgetError(
            f"budget = {money(p.budget, ROUND_FLOOR)} u$: the cheapest team within the limits costs "
            f"{needed(p.least_cost)} u$; "
            f"provision succeeds from least_budget = {least!r} u$ on", least)
    best = request.best()
    how = "tier by tier in whole numbers" if request.scores is None else "dynamic program over exact scores"
    used, note = answered(request, best, how, method, solver)
    return Team(request.slots(best), pool, float(p.budget), request.cost(best), used, note, request, best)


def budget_frontier(pool: Pool, budgets: Iterable[Any], **options: Any) -> list[Team | None]:
    """The staircase of teams: the team of each budget, in the order given; None where the budget is infeasible.

    Args:
        options: as for `provision`.

    Raises:
        ValueError: `budgets` is no list, or as `provision`.
    """
    if isinstance(budgets, (str, bytes)) or not isinstance(budgets, Iterable):
        raise ValueError(f"budgets = {shown(budgets)}: expected a list")
    teams: list[Team | None] = []
    for budget in budgets:
        try:
            teams.append(provision(pool, budget, **options))
        except InfeasibleBudgetError:
            teams.append(None)
    return teams


def answered(r: Request, best: Hires, how: str, method: Method, solver: Any) -> tuple[str, str]:
    """Whose answer `best`, found by exact search, is after the integer program was asked: "ilp" or "lexicographic".

    Args:
        how: how the exact search works, for the note.

    Returns:
        That, and how the answer was found and checked, one sentence.

    Raises:
        SolverError: method="ilp" and the solver failed or its team is not the best one.
    """
    if method == "lexicographic":
        return method, f"exact search ({how}); no solver was used"
    solver = choose_solver(solver) if solver is not None else None
    try:
        name = _solved(r, best, solver)
        return "ilp", f"integer program by {name}; its answer was verified by exact search ({how})"
    except SolverError as error:
        if method == "ilp":
            raise
        return "lexicographic", f"exact search ({how}); it replaces the integer program: {error}"


def _solved(r: Request, best: Hires, solver: Any) -> str:
    """Solve the integer program and compare its answer with the exact one; returns the solver's name.

    Raises:
        SolverError: there is no answer, it breaks a rule, or it is not as good.
    """
    p = r.problem
    scale = math.lcm(*(Fraction(v).denominator for v in r.values.values()))
    found, name = solve(p, {llm: int(v * scale) for llm, v in r.values.items()}, solver, r.further_limits)
    hires = tuple((m, tuple(found[m.name, role] for role in p.names)) for tier in p.tiers for m in tier)
    wrong = f"{name} called {r.label(hires)} optimal, but "
    if r.fault(hires):
        raise SolverError(wrong + r.fault(hires))
    if r.score(hires) != r.score(best):
        raise SolverError(f"{wrong}{r.label(best)} is better (agents per tier {r.tier_counts(best)} "
                          f"against {r.tier_counts(hires)})")
    return name


def checked_request(pool: Pool, budget: Any, t_in: Any = 500, t_out: Any = None, objective: Any = "lexicographic",
                    roles: Any = None, min_agents: Any = None, max_copies: Any = 5,
                    cost_model: Callable[[LLM, Any, Any], Any] = call_cost) -> Request:
    """Check the arguments of `provision`."""
    if not isinstance(pool, Pool):
        raise ValueError(f"pool = {shown(pool)}: expected a Pool; load_pool(name or path) makes one")
    b = exact(budget, "budget")
    if b < 0:
        raise ValueError(f"budget = {shown(budget)}: expected at least 0 u$")
    for what, tokens in (("t_in", t_in), ("t_out", t_out)):
        if (tokens is not None or what == "t_in") and exact(tokens, what) < 0:
            raise ValueError(f"{what} = {shown(tokens)}: expected at least 0 tokens")
    limits = None if roles is None else _checked_roles(roles)
    min_agents = (1 if roles is not None else 2) if min_agents is None else min_agents
    min_agents, max_copies = whole(min_agents, "min_agents", 1, MOST_AGENTS), whole(max_copies, "max_copies", 1)
    if not callable(cost_model):
        raise ValueError(f"cost_model = {shown(cost_model)}: expected a function (llm, t_in, t_out) -> u$")
    out = {m.name: m.max_tokens if t_out is None else t_out for m in pool.llms}
    costs = {m.name: positive(cost_model(m, t_in, out[m.name]), f"LLM {m.name!r}: planned cost") for m in pool.llms}
    couplings = tuple(getattr(roles, "couplings", ()))
    p = Problem(pool.tiers, costs, b, min_agents, max_copies, limits, couplings)
    if p.least_cost is None:
        where = f"roles = {dict(limits)!r}" if limits else f"{len(pool)} LLM{'s' * (len(pool) > 1)} in the pool"
        raise ValueError(f"min_agents = {min_agents!r}: no team can have so many agents with "
                         f"max_copies = {shown(max_copies)} and {where}")
    return Request(p, _scores(pool, objective), t_in, out)


def _checked_roles(roles: Any) -> dict[str, tuple[int, float]]:
    """Role limits as (low, high), high possibly infinite."""
    if not isinstance(roles, Mapping) or not roles:
        raise ValueError(f"roles = {roles!r}: expected role -> (fewest, most), such as ROLE_LIMITS['feedback']")
    limits = {}
    for role, pair in roles.items():
        if role not in ROLES:
            raise ValueError(f"roles: unknown role {role!r}; known are {', '.join(ROLES)}")
        low, high = pair if isinstance(pair, (tuple, list)) and len(pair) == 2 else (None, None)
        high = math.inf if pair is not None and high is None and low is not None else high
        numbers = [isinstance(n, Integral) and not isinstance(n, bool) for n in (low, high)]
        if not numbers[0] or not (numbers[1] or high == math.inf) or not 0 <= low <= min(high, MOST_AGENTS):
            raise ValueError(f"roles[{role!r}] = {shown(pair)}: expected whole numbers (fewest, most), "
                             f"0 <= fewest <= most, fewest at most {MOST_AGENTS}")
        limits[role] = (int(low), high)
    for coupling in getattr(roles, "couplings", ()):
        if coupling not in COUPLINGS:
            raise ValueError(f"roles: unknown coupling {coupling!r}; known are {COUPLINGS}")
    return limits


def _scores(pool: Pool, objective: Any) -> dict[str, Fraction] | None:
    """Score per LLM name; None for the lexicographic objective."""
    if isinstance(objective, str):
        if objective == "lexicographic":
            return None
        if objective != "score_sum":
            raise ValueError(f"objective = {objective!r}: expected 'lexicographic', 'score_sum', scores per LLM name "
                             "or a function of the LLM")
        objective = {m.name: m.rating for m in pool.llms}
        missing = [name for name, rating in objective.items() if rating is None]
        if missing:
            raise ValueError(f"objective = 'score_sum': LLM {missing[0]!r} has no rating; give scores per LLM name")
    elif callable(objective):
        objective = {m.name: objective(m) for m in pool.llms}
    elif not isinstance(objective, Mapping) or set(objective) != {m.name for m in pool.llms}:
        names = ", ".join(m.name for m in pool.llms)
        raise ValueError(f"objective = {objective!r}: expected one score for each of {names}")
    return {m.name: exact(objective[m.name], f"LLM {m.name!r}: score") for m in pool.llms}
