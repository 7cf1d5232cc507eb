"""A team under a cost and a latency budget (our extension of BAMAS), and its audit trail."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from decimal import ROUND_FLOOR
from fractions import Fraction
from functools import cached_property
from typing import Any

from bamas_lite.inputs import exact
from bamas_lite.search import Hires, Limit
from bamas_lite.team import Request, Team, money, needed, round_up, table, weight_text
from bamas_lite.timed_search import Front, Label, TimedProblem

AT_ONCE = ("star",)
"""Topologies whose agents all work at the same time; in the others each waits for the one before it."""


def together(each: Sequence[Fraction], topology: str) -> Fraction:
    """The latency of agents that take `each` seconds."""
    return max(each) if topology in AT_ONCE else sum(each, Fraction(0))


_BINDS = {(True, True): "both budgets: a little more of either buys a better team",
          (True, False): "the cost budget: more money buys a better team, more time alone does not",
          (False, True): "the latency budget: more time buys a better team, more money alone does not",
          (False, False): "both budgets together: only more money and more time buy a better team"}
"""Whether more money alone, and more time alone, buys a better team -> what binds."""


@dataclass(frozen=True)
class TimedRequest(Request):
    """What was asked of `provision_in_time`, checked."""

    topology: str
    timed: TimedProblem

    @property
    def further_limits(self) -> tuple[Limit, ...]:
        """The latency budget as a linear limit: on the sum of seconds or, at once, on agents that are too slow (0)."""
        timed, most = self.timed, self.timed.bounds[1]
        if most == math.inf:
            return ()
        seconds = {name: latency for name, (_, latency) in timed.units.items()}
        if timed.at_once:
            return (("too_slow", {name: int(latency > most) for name, latency in seconds.items()}, 0),)
        return (("latency", seconds, int(most)),)

    def fault(self, hires: Hires) -> str:
        """Which rule a team breaks; empty if none."""
        limit, latency = self.timed.latency_budget, self.latency(hires)
        late = limit is not None and latency > limit
        return super().fault(hires) or (f"it takes {money(latency)} s" if late else "")

    def latency(self, hires: Hires) -> Fraction:
        """The planned latency of a team in seconds."""
        each = [self.timed.seconds[m.name] for m, split in hires for _ in range(sum(split))]
        return together(each, self.topology)

    def best(self, budget: Any = None, latency_budget: Any = None) -> Hires:
        """The exact answer, also with one budget or both changed; some team must fit them."""
        timed = self.timed
        if budget is not None:
            timed = replace(timed, problem=replace(timed.problem, budget=exact(budget)))
        if latency_budget is not None:
            timed = replace(timed, latency_budget=exact(latency_budget))
        label = timed.best()
        assert label is not None, "the budgets are feasible"
        return timed.hires(label)

    def improvements(self, hires: Hires) -> list[Front]:
        """Per tier: the least (cost, latency), in units, of teams with more agents of it and as many of stronger."""
        return self.timed.improvements(self.tier_counts(hires))

    def next_budget(self, hires: Hires) -> Fraction | None:
        """The least budget (u$) that buys a better team in the same time."""
        return self.least_cost(label for front in self.improvements(hires) for label in front)

    def next_latency(self, hires: Hires) -> Fraction | None:
        """The least latency budget (s) that allows a better team for the same money."""
        return self.least_latency(label for front in self.improvements(hires) for label in front)

    def least_cost(self, labels: Iterable[Label]) -> Fraction | None:
        """The least cost (u$) among labels within the latency budget."""
        costs = [cost for cost, latency, _ in labels if latency <= self.timed.bounds[1]]
        return Fraction(min(costs), self.problem.scale) if costs else None

    def least_latency(self, labels: Iterable[Label]) -> Fraction | None:
        """The least latency (s) among labels within the budget."""
        latencies = [latency for cost, latency, _ in labels if cost <= self.timed.bounds[0]]
        return Fraction(min(latencies), self.timed.scale) if latencies else None


@dataclass(frozen=True)
class TimedTeam(Team):
    """A team that fits a budget and, in one topology, a latency budget.

    Attributes:
        topology: the one it was planned for.
        latency_budget: seconds for one task; infinity: no limit.
        exact_latency: planned latency in seconds, without rounding.
    """

    request: TimedRequest = field(repr=False, compare=False)
    topology: str
    latency_budget: float
    exact_latency: Fraction

    @property
    def latency_s(self) -> float:
        """Planned latency in seconds: every agent called once, each writing its planned tokens."""
        return float(self.exact_latency)

    @cached_property
    def next_latency_s(self) -> float | None:
        """The least latency budget that allows a better team for the same money; None if time alone does not help."""
        latency = self.request.next_latency(self.hires)
        return None if latency is None else round_up(latency)

    def explain(self) -> str:
        """The audit trail: what was bought, which budget binds, and what a little more of either would buy."""
        r, p = self.request, self.request.problem
        fronts = r.improvements(self.hires)
        labels = [label for front in fronts for label in front]
        cost, latency = r.least_cost(labels), r.least_latency(labels)
        binds = _BINDS[cost is not None, latency is not None] if labels else "neither budget: no team is better"
        how = "all agents at once, the slowest counts" if r.timed.at_once else "one after the other: seconds add up"
        lines = [f"Team: {self}", f"Topology: {self.topology} ({how})", self.budget_line(), _latency_line(self),
                 r.tokens_line(), "Rule: as many agents of tier 1 as both budgets allow, then of tier 2, and so on",
                 f"Limits: at least {p.min_agents} agent{'s' * (p.min_agents > 1)}, at most {p.max_copies} copies of "
                 "an LLM", "", table(_rows(self)), "",
                 "Seconds are rounded up to milliseconds.",
                 "Weight: what one agent counts in the sum that is maximized, more than all weaker ones that the "
                 "budget buys.",
                 f"What binds: {binds}.",
                 "One agent more in a tier, as many in stronger ones, as few in weaker ones as the limits need:",
                 *(f"  tier {t}: {_need(r, front)}" for t, front in enumerate(fronts, 1))]
        if cost is not None:
            typed = _typed(needed(cost))
            lines.append(f"Next step: at a budget of {needed(cost)} u$ ({needed(typed - p.budget)} more) the team "
                         f"becomes {r.label(r.best(budget=typed))}")
        if latency is not None:
            typed = _typed(seconds(latency))
            lines.append(f"Next step: at a latency budget of {seconds(latency)} s "
                         f"({needed(typed - r.timed.latency_budget)} more) the team becomes "
                         f"{r.label(r.best(latency_budget=typed))}")
        return "\n".join([*lines, f"Method: {self.note}"])


def seconds(latency: Fraction) -> str:
    """Seconds that a latency budget must reach: rounded up to a millisecond, so the printed budget is enough."""
    return needed(Fraction(math.ceil(latency * 1000), 1000))


def _typed(printed: str) -> Fraction:
    """A printed amount, as a reader types it."""
    return Fraction(printed.replace(",", ""))


def _latency_line(team: TimedTeam) -> str:
    planned, limit = seconds(team.exact_latency), team.request.timed.latency_budget
    if limit is None:
        return f"Latency budget: none; planned latency {planned} s"
    left = max(Fraction(0), limit - _typed(planned))
    return f"Latency budget: {needed(limit)} s a task; planned latency {planned} s; left {money(left, ROUND_FLOOR)} s"


def _rows(team: TimedTeam) -> list[list[str]]:
    """One line per LLM: tier, name, weight, cost and seconds of one agent, agents hired, what is to be said."""
    r, most = team.request, team.request.timed.bounds
    hired = {m.name: sum(split) for m, split in team.hires}
    rows = [["tier", "LLM", "weight", "cost of one", "seconds of one", "hired", ""]]
    for t, tier in enumerate(r.timed.order, 1):
        for m in tier:
            cost, latency = r.timed.units[m.name]
            over = {"budget": cost > most[0], "latency budget": latency > most[1]}
            passed = [budget for budget, is_over in over.items() if is_over]
            note = f"one alone passes the {' and the '.join(passed)}" if passed else ""
            if hired.get(m.name, 0) == r.problem.max_copies:
                note = "all copies are hired"
            rows.append([str(t), m.name, weight_text(r.values[m.name]), money(r.problem.costs[m.name]),
                         seconds(r.timed.seconds[m.name]), str(hired.get(m.name, 0)), note])
    return rows


def _need(r: TimedRequest, front: Front) -> str:
    """What one more agent of a tier needs."""
    if not front:
        return "the limits allow no more, whatever the budgets"
    cost, latency = r.least_cost(front), r.least_latency(front)
    if cost is None and latency is None:
        both = Fraction(front[0][0], r.problem.scale), Fraction(front[0][1], r.timed.scale)
        return f"needs more of both, such as {needed(both[0])} u$ and {seconds(both[1])} s"
    needs = [f"a budget of {needed(cost)} u$"] if cost is not None else []
    needs += [f"a latency budget of {seconds(latency)} s"] if latency is not None else []
    return f"needs {' or '.join(needs)}"
