"""BAMAS under a latency budget as well: the team that two budgets pay for, money and time.

BAMAS has no latency budget: the second constraint, the planned latency of a topology and what ties prefer are our
extension, made so that BAMAS and AgentBalance can be compared under the same two budgets.

The weights stay the paper's, W_i = 1 + sum_{j>i} W_j * floor(B / c_j). Their sum still ranks teams lexicographically:
one agent of tier i weighs more than every set of weaker agents that the cost budget pays for, and a second constraint
only takes some of these sets away. What changes is the exact search that verifies a solver's answer: see timed_search.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

from bamas_lite.casting import TOPOLOGIES
from bamas_lite.inputs import exact, shown, whole
from bamas_lite.llm import check_latency_fields
from bamas_lite.pool import LLM, Pool
from bamas_lite.provisioning import InfeasibleBudgetError, Method, answered, checked_request
from bamas_lite.team import Slot, money, needed, round_up
from bamas_lite.timed_search import TimedProblem
from bamas_lite.timed_team import AT_ONCE, TimedRequest, TimedTeam, seconds, together

MOST_COPIES = 100
"""The most copies of one LLM that can be asked for; the search keeps labels for each number of them."""

PAIRS = ("feedback", "planner_driven")
"""Topologies that one agent alone cannot play."""


class InfeasibleTeamError(InfeasibleBudgetError):
    """No team meets both budgets.

    Attributes:
        binding: which budgets are too small: ("cost",), ("latency",) or both.
        least_budget: the least budget in u$ with which the same call succeeds; None where money alone does not help.
        least_latency_s: the least latency budget, s, with which it succeeds; None where time alone does not help.

    Two budgets bind in two ways. Where each could be met, but by different teams, raising either to its least value is
    enough. Where each is too small for every team, both must be raised: to the cost of the cheapest team, and to the
    latency of the fastest one at that cost.
    """

    def __init__(self, message: str, binding: tuple[str, ...], least_budget: float | None,
                 least_latency_s: float | None) -> None:
        super().__init__(message, least_budget)
        self.binding, self.least_latency_s = binding, least_latency_s

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args[0], self.binding, self.least_budget, self.least_latency_s)


def team_latency(slots: Sequence[Slot], topology: str, t_out: Any = None) -> float:
    """The planned latency of a team in seconds: every agent is called once.

    An agent takes first_token_s + t_out / tokens_per_s. In Linear, Feedback and Planner-Driven agents wait for each
    other, so their latencies add up; in Star the slowest one counts. Feedback and Planner-Driven can go on for more
    rounds than that: `run_task(..., latency_budget=...)` then ends them in time.

    Args:
        slots: the agents, such as `Team.slots`.
        topology: one of TOPOLOGIES.
        t_out: planned completion tokens of a call; None: each LLM's max_tokens.

    Raises:
        ValueError: no slots, an unknown topology, tokens below 0, an LLM without first_token_s or tokens_per_s.
    """
    _check_topology(topology)
    if isinstance(slots, (str, bytes)) or not isinstance(slots, Iterable):
        raise ValueError(f"slots = {shown(slots)}: expected the slots of a team, such as team.slots")
    llms = [getattr(slot, "llm", slot) for slot in slots]
    if not llms or not all(isinstance(m, LLM) for m in llms):
        raise ValueError(f"slots = {shown(slots)}: expected at least one slot, each with an LLM, such as team.slots")
    return float(together([_seconds(m, t_out) for m in llms], topology))


def provision_in_time(pool: Pool, budget: Any, latency_budget: Any, topology: str, *, t_in: Any = 500,
                      t_out: Any = None, min_agents: int | None = None, max_copies: int = 5, method: Method = "auto",
                      solver: Any = None) -> TimedTeam:
    """The best team that both budgets allow: as many agents of tier 1 as possible, then of tier 2, and so on.

    The paper's integer program with the latency budget as one more constraint (the sum of the agents' seconds or, in
    Star, no agent that is too slow by itself), its answer verified by an exact search.

    Args:
        pool: the LLMs to choose from, all with first_token_s and tokens_per_s.
        budget: B in u$ for one task.
        latency_budget: seconds for one task; None or infinity: no limit.
        topology: one of TOPOLOGIES; decides what a team's planned latency is (`team_latency`).
        t_in: planned prompt tokens of a call.
        t_out: planned completion tokens of a call; None: each LLM's max_tokens.
        min_agents: the fewest agents; None: 2.
        max_copies: the most copies of one LLM, at most MOST_COPIES.
        method, solver: as for `provision`.

    Returns:
        The team; among equal ones the cheapest, then the fastest, then (tier by tier) the one with more agents of the
        quickest LLM, then by name.

    Raises:
        InfeasibleTeamError: no team meets both budgets; it says which one binds and the least value that would do.
        SolverError: method="ilp" and the solver failed or its team is not the best one.
        ValueError: an argument that makes no sense; the message names it.
    """
    if method not in ("auto", "ilp", "lexicographic"):
        raise ValueError(f"method = {method!r}: expected 'auto', 'ilp' or 'lexicographic'")
    _check_topology(topology)
    limit = _latency_limit(latency_budget)
    plain = checked_request(pool, budget, t_in, t_out, min_agents=min_agents,
                            max_copies=whole(max_copies, "max_copies", 1, MOST_COPIES))
    if topology in PAIRS and plain.problem.min_agents < 2:
        raise ValueError(f"min_agents = {shown(min_agents)}: {topology} needs at least two agents")
    seconds = {m.name: _seconds(m, plain.t_out[m.name]) for m in pool.llms}
    timed = TimedProblem(plain.problem, seconds, limit, topology in AT_ONCE)
    r = TimedRequest(plain.problem, None, plain.t_in, plain.t_out, topology, timed)
    label = timed.best()
    if label is None:
        raise _infeasible(r)
    best = timed.hires(label)
    used, note = answered(r, best, "tier by tier with all pairs of cost and latency worth keeping, in whole numbers",
                          method, solver)
    return TimedTeam(r.slots(best), pool, float(r.problem.budget), r.cost(best), used, note, r, best, topology,
                     math.inf if limit is None else float(limit), r.latency(best))


def _infeasible(r: TimedRequest) -> InfeasibleTeamError:
    """Which budget rules every team out, and the least value of it that would do."""
    timed, fewest = r.timed, r.problem.min_agents
    teams = timed.completions()[0][fewest]  # by rising cost and falling latency
    limit = "" if timed.latency_budget is None else money(timed.latency_budget)
    cost, latency = r.least_cost(teams), r.least_latency(teams)
    what_cost, what_latency = f"budget = {money(r.problem.budget)} u$", f"latency_budget = {limit} s"
    who = f"team of {fewest}" if fewest > 1 else "agent"
    if cost is not None and latency is not None:
        text = (f"{what_cost}, {what_latency}: each alone could be met, but no {who} meets both in {r.topology}; "
                f"{_from(cost, None)}, or {_from(None, latency)}")
        binding = ("cost", "latency")
    elif latency is not None:
        text = (f"{what_latency}: the fastest {who} that {what_cost} pays for takes {seconds(latency)} s in "
                f"{r.topology}; {_from(None, latency)}")
        binding = ("latency",)
    elif cost is not None:
        within = f" within {what_latency}" if limit else ""
        text = f"{what_cost}: the cheapest {who}{within} costs {needed(cost)} u$ in {r.topology}; {_from(cost, None)}"
        binding = ("cost",)
    else:
        cost, latency = Fraction(teams[0][0], r.problem.scale), Fraction(teams[0][1], timed.scale)
        text = (f"{what_cost}, {what_latency}: each is too small for every {who} in {r.topology}; the cheapest one "
                f"costs {needed(cost)} u$ and takes {seconds(latency)} s; {_from(cost, latency)}")
        binding = ("cost", "latency")
    return InfeasibleTeamError(text, binding, *(None if x is None else round_up(x) for x in (cost, latency)))


def _from(cost: Fraction | None, latency: Fraction | None) -> str:
    values = [f"least_budget = {round_up(cost)!r} u$"] if cost is not None else []
    values += [f"least_latency_s = {round_up(latency)!r} s"] if latency is not None else []
    return f"provision_in_time succeeds from {' and '.join(values)} on"


def _seconds(llm: LLM, t_out: Any) -> Fraction:
    """Planned seconds of one call, without rounding."""
    check_latency_fields((llm,))
    tokens = exact(llm.max_tokens if t_out is None else t_out, "t_out")
    if tokens < 0:
        raise ValueError(f"t_out = {shown(t_out)}: expected at least 0 tokens")
    return exact(llm.first_token_s) + tokens / exact(llm.tokens_per_s)


def _latency_limit(latency_budget: Any) -> Fraction | None:
    """A latency budget as an exact number of seconds; None: no limit."""
    if latency_budget is None or isinstance(latency_budget, float) and latency_budget == math.inf:
        return None
    limit = exact(latency_budget, "latency_budget")
    if limit < 0:
        raise ValueError(f"latency_budget = {shown(latency_budget)}: expected at least 0 seconds")
    return limit


def _check_topology(topology: Any) -> None:
    if topology not in TOPOLOGIES:
        raise ValueError(f"topology = {shown(topology)}: expected one of {', '.join(TOPOLOGIES)}")
