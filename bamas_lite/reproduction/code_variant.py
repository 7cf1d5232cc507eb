"""Provisioning as the public program of BAMAS does it: topology first, then one integer program for each topology.

Beside ROLE_LIMITS it differs from the paper in the numbers of its program. The cost of a tier is the average over the
tier's agents, for the weights and for the budget; weights are computed in floats; an agent's coefficient is its weight
times a hand-set performance factor times a factor of its role. All of it (facts of github.com/chunfenri/BAMAS, no code
of it) can be turned on alone. The program's solver is replaced by an exact search over the very same coefficients.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

from bamas_lite.casting import TOPOLOGIES
from bamas_lite.inputs import exact as exact_number
from bamas_lite.inputs import shown
from bamas_lite.pool import LLM, Pool, call_cost
from bamas_lite.provisioning import ROLE_LIMITS, InfeasibleBudgetError, RoleLimits, provision, recursive_weights
from bamas_lite.search import Hires, Problem, Split, State
from bamas_lite.team import Team, money
from bamas_lite.trajectories import team_of

FIRST_TIER_FACTORS = {"executor": "1.01", "critic": "1.005"}
OTHER_TIERS_FACTORS = {"executor": "1.00", "critic": "1.005"}
PLANNER_FACTORS = {"planner": "1.001"}
"""Factor of a role in the objective: Linear, Star and Feedback for tier 1 and for all others; Planner-Driven."""

CODE_PERFORMANCE = {
    "arithmetic": {"GPT-4.1 nano": {"planner": "0.95", "executor": "0.5", "critic": "0.5"}},
    "mathematics": {"GPT-4.1 nano": {"planner": "0.95", "executor": "0.5", "critic": "0.5"}},
    "code": {"GPT-4.1 nano": {"planner": "0.9", "executor": "0.8", "critic": "0.8"}},
}
"""Hand-set performance factors by domain, LLM and role (agent libraries of the public code); DeepSeek-V3 has 1."""

Performance = Mapping[str, Any]
"""LLM name -> factor, or LLM name -> {role: factor}; whatever is not named has 1."""

Point = tuple[int, int, tuple[Split, ...]]
"""A partial team: cost in units, minus its scaled value, minus how many agents of each tier play each role."""

PROVISIONING = {
    "paper": "one team for a budget, at least two agents",
    "one agent": "as the paper, but one agent is enough",
    "average weights": "as the paper, but c_j of a tier is the average over its LLMs",
    "roles": "one integer program for each topology, with ROLE_LIMITS; weights as in the paper",
    "code": "as the public program, every performance factor 1",
    **{f"code, factors of {domain}": f"as the public program, with its performance factors for {domain}"
       for domain in CODE_PERFORMANCE},
}
"""Ways to provision: name -> what it does."""


@lru_cache(maxsize=1024)
def teams_by(provisioning: str, pool: Pool, budget: float) -> dict[str, Team | InfeasibleBudgetError]:
    """The team that plays each topology under one of PROVISIONING, or why there is none. Not to be changed."""
    if provisioning == "paper":
        return dict.fromkeys(TOPOLOGIES, team_of(pool, budget))
    if provisioning == "code":
        return dict(teams_as_code(pool, budget))
    if provisioning.startswith("code, "):
        return dict(teams_as_code(pool, budget, performance=CODE_PERFORMANCE[provisioning.split()[-1]]))
    if provisioning == "roles":
        return {topology: _or_error(pool, budget, roles=ROLE_LIMITS[topology]) for topology in TOPOLOGIES}
    if provisioning == "one agent":
        return dict.fromkeys(TOPOLOGIES, _or_error(pool, budget, min_agents=1))
    if provisioning == "average weights":
        weights = code_weights(pool, budget, exact=True)
        scores = {m.name: weights[m.tier - 1] for m in pool.llms}
        return dict.fromkeys(TOPOLOGIES, _or_error(pool, budget, objective=scores))
    raise ValueError(f"provisioning = {shown(provisioning)}: expected one of {', '.join(map(repr, PROVISIONING))}")


def _or_error(pool: Pool, budget: float, **options: Any) -> Team | InfeasibleBudgetError:
    try:
        return provision(pool, budget, method="lexicographic", **options)
    except InfeasibleBudgetError as error:
        return error


@dataclass(frozen=True)
class CodeTeam(Team):
    """A team of the public program.

    `exact_cost` is the cost that the program plans: each agent at the average of its tier. Which budget buys a better
    team is not known: the weights change with the budget.

    Attributes:
        objective: the sum of the agents' coefficients.
        coefficients: (tier from 1, role) -> what an agent adds to the objective.
    """

    objective: float = 0.0
    coefficients: Mapping[tuple[int, str], float] | None = None

    @property
    def next_budget(self) -> float | None:
        """Not defined here.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("next_budget of a team of the code variant: its weights change with the budget")

    def explain(self) -> str:
        """The audit trail: coefficients, costs and numbers of agents, and the sum that was maximized."""
        p = self.request.problem
        hired = {(m.tier, role): n for m, split in self.hires for role, n in zip(p.names, split, strict=True)}
        lines = [f"Team: {self}",
                 f"Budget: {money(p.budget)} u$ a task; planned cost {money(self.exact_cost)} u$ (tier averages)",
                 f"Objective: {self.objective:.6g}"]
        lines += [f"  tier {tier} as {role}: coefficient {value:.6g}, {money(p.costs[p.order[tier - 1][0].name])} u$, "
                  f"{hired.get((tier, role), 0)} hired" for (tier, role), value in (self.coefficients or {}).items()]
        return "\n".join([*lines, f"Method: {self.note}"])


def teams_as_code(pool: Pool, budget: Any, *, performance: Performance | None = None, exact: bool = False,
                  role_factors: bool = True, t_in: Any = 500, t_out: Any = None,
                  topologies: Sequence[str] = TOPOLOGIES,
                  limits: Mapping[str, RoleLimits] = ROLE_LIMITS) -> dict[str, CodeTeam | InfeasibleBudgetError]:
    """The team of each topology as the public program chooses it, or why there is none.

    Args:
        pool: the LLMs; a tier of several is one kind of agent, which costs their average and is played by the first by
            name.
        budget: B in u$ for one task.
        performance: factors of the objective, such as CODE_PERFORMANCE["code"]; None: 1 for all.
        exact: compute the weights in whole numbers; False: in floats, as the code, where floor(B / c) can be off.
        role_factors: whether the roles' factors enter the objective.
        t_in: planned prompt tokens of a call.
        t_out: planned completion tokens of a call; None: each LLM's max_tokens.
        topologies: those to provision for.
        limits: topology -> limits per role.

    Returns:
        By topology the team with the largest objective; among equal ones the cheapest, then the one whose earlier roles
        get more of the stronger tiers.

    Raises:
        ValueError: an argument that makes no sense; the message names it.
    """
    unknown = [name for name in topologies if name not in TOPOLOGIES]
    if unknown:
        raise ValueError(f"topologies: unknown {shown(unknown[0])}; known are {', '.join(TOPOLOGIES)}")
    _check_pool(pool)
    factors = _checked(pool, performance)
    means = _tier_means(pool, t_in, t_out)
    teams: dict[str, CodeTeam | InfeasibleBudgetError] = {}
    for topology in topologies:
        try:  # the checks, the limits and the audit of `provision`; its choice is replaced below
            start = provision(pool, budget, t_in=t_in, t_out=t_out, method="lexicographic",
                              roles=limits[topology], cost_model=lambda llm, *_: means[llm.tier - 1])
        except InfeasibleBudgetError as error:
            teams[topology] = error
            continue
        request = start.request
        p = request.problem
        weights = code_weights(pool, budget, exact=exact, t_in=t_in, t_out=t_out)
        value = _coefficients(p, topology, weights, factors, role_factors, exact)
        objective, hires = _largest(p, value)
        note = ("exact search over the coefficients of the public program; weights in "
                + ("whole numbers" if exact else "floats"))
        teams[topology] = CodeTeam(request.slots(hires), pool, start.budget, request.cost(hires), "lexicographic", note,
                                   request, hires, float(objective), {key: float(v) for key, v in value.items()})
    return teams


def code_weights(pool: Pool, budget: Any, *, exact: bool = False, t_in: Any = 500,
                 t_out: Any = None) -> list[float] | list[int]:
    """W_i per tier, strongest first, from the average cost of each tier's LLMs.

    In floats floor(B / c) is int(B / c): 1114.8 / (0.27 * 500 + 1.10 * 384) gives 1 where the exact quotient is 2.

    Raises:
        ValueError: no Pool, or a budget or numbers of tokens that make no sense; the message names them.
    """
    _check_pool(pool)
    weights_exact = recursive_weights([[call_cost(m, t_in, m.max_tokens if t_out is None else t_out) for m in tier]
                                       for tier in pool.tiers], budget, tier_cost="average")
    if exact:
        return weights_exact
    b, t = float(exact_number(budget, "budget")), float(exact_number(t_in, "t_in"))
    weights: list[float] = []
    total = 0.0
    for tier in reversed(pool.tiers):
        costs = [m.price_in * t + m.price_out * float(m.max_tokens if t_out is None else t_out) for m in tier]
        weights.append(1.0 + total)
        total += weights[-1] * int(b / (sum(costs) / len(costs)))
    return weights[::-1]


def _check_pool(pool: Any) -> None:
    if not isinstance(pool, Pool):
        raise ValueError(f"pool = {shown(pool)}: expected a Pool; load_pool(name or path) makes one")


def _tier_means(pool: Pool, t_in: Any, t_out: Any) -> list[Fraction]:
    """The average planned cost of each tier's LLMs, u$."""
    costs = [[call_cost(m, t_in, m.max_tokens if t_out is None else t_out) for m in tier] for tier in pool.tiers]
    return [sum(tier, Fraction(0)) / len(tier) for tier in costs]


def _checked(pool: Pool, performance: Performance | None) -> dict[tuple[str, str], Fraction]:
    """(LLM name, role) -> performance factor, where one is given."""
    if performance is None:
        return {}
    names = {m.name for m in pool.llms}
    if not isinstance(performance, Mapping) or not set(performance) <= names:
        raise ValueError(f"performance = {shown(performance)}: expected factors by LLM name; the pool has "
                         f"{', '.join(sorted(names))}")
    factors = {}
    for name, given in performance.items():
        by_role = given if isinstance(given, Mapping) else dict.fromkeys(("planner", "executor", "critic"), given)
        for role, factor in by_role.items():
            what = f"performance[{name!r}][{role!r}]"
            if role not in ("planner", "executor", "critic"):
                raise ValueError(f"{what}: unknown role; known are planner, executor, critic")
            factors[name, role] = exact_number(factor, what)
            if factors[name, role] <= 0:
                raise ValueError(f"{what} = {shown(factor)}: expected a number above 0")
    return factors


def _coefficients(p: Problem, topology: str, weights: Sequence[Any], factors: Mapping[tuple[str, str], Fraction],
                  role_factors: bool, exact: bool) -> dict[tuple[int, str], Fraction]:
    """(tier from 1, role) -> W x mean performance x factor of the role; in floats unless `exact`."""
    value = {}
    for t, tier in enumerate(p.order, 1):
        of_role = (PLANNER_FACTORS if topology == "planner_driven" else
                   FIRST_TIER_FACTORS if t == 1 else OTHER_TIERS_FACTORS) if role_factors else {}
        for role in p.names:
            mean = sum((factors.get((m.name, role), Fraction(1)) for m in tier), Fraction(0)) / len(tier)
            factor, weight = Fraction(of_role.get(role, "1")), weights[t - 1]
            value[t, role] = mean * weight * factor if exact else Fraction(float(mean) * (weight * float(factor)))
    return value


def _largest(p: Problem, value: Mapping[tuple[int, str], Fraction]) -> tuple[Fraction, Hires]:
    """The team with the largest sum of coefficients, tier by tier over (cost, value) of what no other one beats.

    The budget must be feasible.
    """
    scale = math.lcm(*(v.denominator for v in value.values()))
    whole = {key: int(v * scale) for key, v in value.items()}
    points: dict[State, list[Point]] = {p.start: [(0, 0, ())]}
    ranges = [range(int(min(p.max_copies, high)) + 1) for _, high in p.limits]
    for t, tier in enumerate(p.order):
        unit = p.units[tier[0].name]
        splits = [split for split in itertools.product(*ranges) if p.tier_allows(t, split)]
        gains = [sum(n * whole[t + 1, role] for role, n in zip(p.names, split, strict=True)) for split in splits]
        grown: dict[State, list[Point]] = {}
        for state, partial in points.items():
            for split, gain in zip(splits, gains, strict=True):
                after = p.add(state, split)
                if after is None:
                    continue
                found, price, step = grown.setdefault(after, []), unit * sum(split), tuple(-n for n in split)
                for cost, minus, path in partial:
                    if cost + price > p.budget_units:
                        break
                    found.append((cost + price, minus - gain, (*path, step)))
        points = {state: _unbeaten(found) for state, found in grown.items()}
    teams = [(minus, cost, path) for state, found in points.items() if p.is_team(state) for cost, minus, path in found]
    minus, _, path = min(teams)
    hired: list[tuple[LLM, Split]] = [(tier[0], tuple(-n for n in split)) for tier, split
                                      in zip(p.order, path, strict=True)]
    return Fraction(-minus, scale), tuple(h for h in hired if any(h[1]))


def _unbeaten(points: list[Point]) -> list[Point]:
    """Points by rising cost, each with a larger value than all cheaper ones; of equal ones the first path."""
    kept: list[Point] = []
    for point in sorted(points):
        if not kept or point[1] < kept[-1][1]:
            kept.append(point)
    return kept
