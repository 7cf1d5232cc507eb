"""The exact search for a team under two budgets, money and time, in whole numbers (our extension of BAMAS).

With one budget the cheapest agents of a tier are always the right ones. With two there is a choice between cheap and
quick ones; so partial teams are kept as labels (cost, latency) as long as no other one is as cheap and as quick.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from bamas_lite.pool import LLM
from bamas_lite.search import Hires, Problem

Label = tuple[int, int, tuple[int, ...]]
"""A partial team: cost and latency in whole units, and minus the copies of each LLM so far, in the order of `order`;
so the least of several labels is the cheapest, then the fastest, then the one with more agents of the first LLM."""

Front = list[Label]
"""Labels by rising cost and falling latency: none is as cheap and as quick as another one."""

Bounds = tuple[float, float]
"""The most cost and latency, in units; infinite where there is no limit."""

FREE = (math.inf, math.inf)
NOBODY: Label = (0, 0, ())


@dataclass(frozen=True)
class TimedProblem:
    """A provisioning problem (without roles) under a latency budget.

    Attributes:
        problem: tiers, costs, budget, fewest agents, most copies.
        seconds: planned latency of one call per LLM name.
        latency_budget: seconds; None: no limit.
        at_once: whether all agents work at the same time (Star: the slowest one counts) or one after another (the sum).
    """

    problem: Problem
    seconds: dict[str, Fraction]
    latency_budget: Fraction | None
    at_once: bool

    @cached_property
    def scale(self) -> int:
        """Whole units in one second: with it every latency is a whole number."""
        return math.lcm(*(s.denominator for s in self.seconds.values()))

    @cached_property
    def units(self) -> dict[str, tuple[int, int]]:
        """Cost and latency of one agent per LLM name, in units."""
        return {name: (cost, int(self.seconds[name] * self.scale)) for name, cost in self.problem.units.items()}

    @cached_property
    def bounds(self) -> Bounds:
        """Both budgets in units, rounded down: no team takes a part of a unit."""
        limit = math.inf if self.latency_budget is None else math.floor(self.latency_budget * self.scale)
        return self.problem.budget_units, limit

    @cached_property
    def order(self) -> tuple[tuple[LLM, ...], ...]:
        """LLMs per tier as ties prefer them: the quicker one first, then by name."""
        return tuple(tuple(sorted(t, key=lambda m: (self.seconds[m.name], m.name))) for t in self.problem.tiers)

    def join(self, a: Label, b: Label) -> Label:
        """Two parts of a team as one."""
        return a[0] + b[0], max(a[1], b[1]) if self.at_once else a[1] + b[1], a[2] + b[2]

    def joined(self, first: Iterable[Label], second: Sequence[Label], bounds: Bounds = FREE) -> list[Label]:
        """Every way to join one of `first` with one of `second` within the bounds."""
        every = (self.join(a, b) for a in first for b in second)
        return [label for label in every if fits(label, bounds)]

    def tier(self, t: int, most: float, bounds: Bounds = FREE) -> list[Front]:
        """The best ways to hire n agents of tier t, for n = 0, 1, ... up to `most`, within the bounds."""
        fronts: dict[int, Front] = {0: [NOBODY]}
        for m in self.order[t]:
            cost, latency = self.units[m.name]
            grown: dict[int, list[Label]] = defaultdict(list)
            for n, front in fronts.items():
                for label in front:
                    for k in range(int(min(self.problem.max_copies, most - n)) + 1):
                        agents = (k * cost, latency * (k > 0 if self.at_once else k), (-k,))
                        longer = self.join(label, agents)
                        if not fits(longer, bounds):
                            break
                        grown[n + k].append(longer)
            fronts = {n: undominated(labels) for n, labels in grown.items()}
        return [fronts[n] for n in range(len(fronts))]

    def completions(self, bounds: Bounds = FREE) -> list[list[Front]]:
        """completions[t][k]: the best ways to hire k agents from tiers t, t+1, ...; k = 0 ... fewest agents of a team.

        Empty where copies or bounds allow no such way. The labels do not say whom.
        """
        fewest = self.problem.min_agents
        tables: list[list[Front]] = [[[NOBODY], *([] for _ in range(fewest))]]
        for t in reversed(range(len(self.order))):
            tier = [[(*label[:2], ()) for label in front] for front in self.tier(t, fewest, bounds)]
            after = tables[-1]
            tables.append([undominated(label for n in range(min(k + 1, len(tier)))
                                       for label in self.joined(tier[n], after[k - n], bounds))
                           for k in range(fewest + 1)])
        return tables[::-1]

    def best(self) -> Label | None:
        """The team whose vector of agents per tier, strongest first, is the largest one within both budgets.

        Tier by tier: as many agents as possible, while some label still leaves enough of both budgets for whatever the
        team still needs. Among equal teams the least label. None: no team fits.
        """
        bounds, fewest, hired = self.bounds, self.problem.min_agents, 0
        completions = self.completions(bounds)
        if not completions[0][fewest]:
            return None
        labels = [NOBODY]
        for t in range(len(self.order)):
            tier = self.tier(t, math.inf, bounds)
            for n in reversed(range(len(tier))):
                rest = completions[t + 1][max(0, fewest - hired - n)]
                longer = [label for label in self.joined(labels, tier[n], bounds)
                          if any(fits(self.join(label, other), bounds) for other in rest)]
                if longer:
                    break
            labels, hired = undominated(longer), hired + n
        return min(labels)

    def improvements(self, counts: Sequence[int]) -> list[Front]:
        """Per tier: the least (cost, latency) of teams with more agents of it than `counts`, and as many of stronger.

        The budgets of the problem play no part: other budgets allow a better team than `counts` if and only if one of
        these labels fits them.
        """
        completions, fewest, hired = self.completions(), self.problem.min_agents, 0
        labels, found = [NOBODY], []
        for t, count in enumerate(counts):
            # more agents than these are never needed: one of them could be left out
            most = max(count + 1, fewest - hired)
            tier = [[(*label[:2], ()) for label in front] for front in self.tier(t, most)]
            found.append(undominated(
                label for n in range(count + 1, len(tier))
                for label in self.joined(undominated(self.joined(labels, tier[n])),
                                         completions[t + 1][max(0, fewest - hired - n)])))
            labels, hired = undominated(self.joined(labels, tier[count])), hired + count
        return found

    def hires(self, label: Label) -> Hires:
        """The team of a label of all tiers."""
        llms = [m for tier in self.order for m in tier]
        return tuple((m, (-k,)) for m, k in zip(llms, label[2], strict=True) if k)


def fits(label: Label, bounds: Bounds) -> bool:
    """Whether a partial team is within the bounds."""
    return label[0] <= bounds[0] and label[1] <= bounds[1]


def undominated(labels: Iterable[Label]) -> Front:
    """The labels that are quicker than all cheaper ones; of those with equal cost and latency the least."""
    kept: Front = []
    for label in sorted(labels):
        if not kept or label[1] < kept[-1][1]:
            kept.append(label)
    return kept
