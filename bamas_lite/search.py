"""The provisioning problem in whole numbers, and its exact lexicographic answer, tier by tier.

Nothing here is rounded, so this answer decides whether a solver that computes in floats is right.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from bamas_lite.pool import LLM
from bamas_lite.weights import CRITICS, STRONG_CRITICS

State = tuple[int, ...]
"""Agents hired so far per role; beyond what any rule still asks for, counting stops."""

Split = tuple[int, ...]
"""How many of some agents play each role."""

Hires = tuple[tuple[LLM, Split], ...]
"""A team: LLM and its number of copies per role, strongest tier first."""

Limit = tuple[str, dict[str, int], int]
"""A linear limit beside the budget: its name, what an agent of each LLM counts, the most that a team may count."""


@dataclass(frozen=True)
class Problem:
    """One provisioning problem.

    Attributes:
        tiers: LLMs per tier, strongest first.
        costs: c_i per LLM name, u$.
        budget: B in u$.
        min_agents: the fewest agents of a team.
        max_copies: the most copies: of one LLM or, with roles, of all LLMs of a tier in one role.
        roles: role -> (fewest, most); None: every agent is alike.
        couplings: names of the rules that tie critics to executors.
    """

    tiers: tuple[tuple[LLM, ...], ...]
    costs: dict[str, Fraction]
    budget: Fraction
    min_agents: int
    max_copies: int
    roles: dict[str, tuple[int, float]] | None = None
    couplings: tuple[str, ...] = ()

    @cached_property
    def scale(self) -> int:
        """Whole units in one u$: with it every cost is a whole number."""
        return math.lcm(*(c.denominator for c in self.costs.values()))

    @cached_property
    def units(self) -> dict[str, int]:
        """c_i in whole units."""
        return {name: int(c * self.scale) for name, c in self.costs.items()}

    @cached_property
    def budget_units(self) -> int:
        """B in whole units, rounded down: no team costs a part of a unit."""
        return math.floor(self.budget * self.scale)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The roles in order of preference; one nameless role without roles."""
        return tuple(self.roles) if self.roles else ("",)

    @cached_property
    def limits(self) -> tuple[tuple[int, float], ...]:
        """Fewest and most agents per role."""
        return tuple(self.roles.values()) if self.roles else ((self.min_agents, math.inf),)

    @cached_property
    def order(self) -> tuple[tuple[LLM, ...], ...]:
        """LLMs per tier in the order in which they are hired: cheapest first, then by name."""
        return tuple(tuple(sorted(t, key=lambda m: (self.units[m.name], m.name))) for t in self.tiers)

    @cached_property
    def most(self) -> State:
        """Where the count of a role stops: at its limit, or where one agent more changes no rule."""
        top = self.max_copies * len(self.tiers)
        bound = dict(zip(self.names, (min(high, top) for _, high in self.limits), strict=True))
        open_roles = {name for name, (_, high) in zip(self.names, self.limits, strict=True) if high == math.inf}
        for name, (low, _) in zip(self.names, self.limits, strict=True):
            if name in open_roles and not (name == "critic" and self.couplings):
                critics = bound.get("critic", 0) if name == "executor" and self.couplings else 0
                bound[name] = max(low, self.min_agents, critics)
        return tuple(int(bound[name]) for name in self.names)

    @cached_property
    def prices(self) -> tuple[tuple[int, ...], ...]:
        """prices[t][n]: the least cost of n agents of tier t, in units, for every n that copies allow."""
        needed = self.min_agents + 2 * sum(low for low, _ in self.limits) + 1
        tables = []
        for tier in self.order:
            table = [0]
            for m in tier:
                cost = self.units[m.name]
                copies = min(self.max_copies, self.budget_units // cost + needed) * len(self.names)
                table += [table[-1] + cost * n for n in range(1, copies + 1)]
                if self.roles:  # the limit is one of the tier, so the cheapest LLM fills it alone
                    break
            tables.append(tuple(table))
        return tuple(tables)

    @cached_property
    def completion(self) -> tuple[dict[State, float], ...]:
        """completion[t][state]: the least cost, in units, of tiers t, t+1, ... that turn `state` into a valid team."""
        states = list(itertools.product(*(range(m + 1) for m in self.most)))
        table = {s: 0 if self.is_team(s) else math.inf for s in states}
        tables = [table]
        for t in reversed(range(len(self.tiers))):
            table = {s: min(self.prices[t][sum(split)] + table[after]
                            for split, after in self._moves(t, s) if sum(split) < len(self.prices[t])) for s in states}
            tables.append(table)
        return tuple(tables[::-1])

    def _moves(self, t: int, state: State) -> list[tuple[Split, State]]:
        """Ways to use tier t that a completion can need, and the states they lead to."""
        ranges = [range(min(self._copies(t), m - s) + 1) for m, s in zip(self.most, state, strict=True)]
        return [(split, tuple(map(sum, zip(state, split, strict=True))))
                for split in itertools.product(*ranges) if self.tier_allows(t, split)]

    def _copies(self, t: int) -> int:
        """The most agents of tier t in one role."""
        return self.max_copies if self.roles else len(self.prices[t]) - 1

    def tier_allows(self, t: int, split: Split) -> bool:
        """Whether the agents of tier t may be split so: the rule on strong critics."""
        if t > 0 or STRONG_CRITICS not in self.couplings:
            return True
        by_role = dict(zip(self.names, split, strict=True))
        return by_role.get("critic", 0) <= by_role.get("executor", 0)

    def splits(self, t: int, n: int) -> list[Split]:
        """Ways to give n agents of tier t a role, best first: earlier roles get more."""
        if not self.roles:
            return [(n,)]
        caps = [int(min(self.max_copies, high, n)) for _, high in self.limits]
        every = itertools.product(*(range(c, -1, -1) for c in caps))
        return [split for split in every if sum(split) == n and self.tier_allows(t, split)]

    def add(self, state: State, split: Split) -> State | None:
        """The state after hiring `split`; None if a role then has too many agents."""
        after = [s + k for s, k in zip(state, split, strict=True)]
        if any(a > high for a, (_, high) in zip(after, self.limits, strict=True)):
            return None
        return tuple(map(min, after, self.most))

    def is_team(self, state: State) -> bool:
        """Whether `state` meets every rule on the whole team."""
        by_role = dict(zip(self.names, state, strict=True))
        return (sum(state) >= self.min_agents
                and all(low <= s <= high for s, (low, high) in zip(state, self.limits, strict=True))
                and (CRITICS not in self.couplings or by_role.get("critic", 0) <= by_role.get("executor", 0)))

    def allows(self, hires: Hires) -> bool:
        """Whether a team meets every limit on agents, whatever it costs."""
        def total(splits: list[Split]) -> Split:
            return tuple(map(sum, zip(self.start, *splits, strict=True)))

        per_tier = [total([split for m, split in hires if m in tier]) for tier in self.tiers]
        limited = per_tier if self.roles else [split for _, split in hires]
        return (self.is_team(total([split for _, split in hires]))
                and all(k <= self.max_copies for split in limited for k in split)
                and all(self.tier_allows(t, split) for t, split in enumerate(per_tier)))

    @property
    def start(self) -> State:
        """Nobody hired."""
        return (0,) * len(self.names)

    @property
    def least_cost(self) -> Fraction | None:
        """The cost of the cheapest team, u$; None if no budget allows a team."""
        least = self.completion[0][self.start]
        return None if least == math.inf else Fraction(int(least), self.scale)


def lexicographic(p: Problem) -> Hires:
    """The team whose vector of agents per tier, strongest first, is the largest affordable one.

    Tier by tier: as many agents as possible, keeping back the least cost of whatever the team still needs. The result
    is exact, and among equal teams the cheapest, then by name. The budget must be feasible (`least_cost`).
    """
    left, paths = p.budget_units, {p.start: ()}
    for t, prices in enumerate(p.prices):
        for n in range(bisect_right(prices, left) - 1, -1, -1):
            longer: dict[State, tuple[Split, ...]] = {}
            for (state, path), split in itertools.product(paths.items(), p.splits(t, n)):
                after = p.add(state, split)
                if after is not None and prices[n] + p.completion[t + 1][after] <= left:
                    longer[after] = max(longer.get(after, ()), (*path, split))
            if longer:
                break
        left, paths = left - prices[n], longer
    return _hires(p, max(paths.values()))


def _hires(p: Problem, path: tuple[Split, ...]) -> Hires:
    """Fill the numbers per tier with LLMs, cheapest first, then by name."""
    hires = []
    for tier, split in zip(p.order, path, strict=True):
        if p.roles:
            hires.append((tier[0], split))
            continue
        n = split[0]
        for m in tier:
            k = min(n, p.max_copies)
            hires.append((m, (k,)))
            n -= k
    return tuple(h for h in hires if any(h[1]))


def one_more(p: Problem, counts: tuple[int, ...]) -> list[int | None]:
    """Per tier: the least cost, in units, of a team that keeps the stronger tiers of `counts` and has more of this one.

    None: copies or role limits allow no such team at any budget. The least of all these costs is the budget at which
    the lexicographic team improves.
    """
    spent, states, costs = 0, {p.start}, []
    for t, (prices, n) in enumerate(zip(p.prices, counts, strict=True)):
        reached: dict[int, set[State]] = {}
        for k in range(n, len(prices)):
            reached[k] = {after for s, split in itertools.product(states, p.splits(t, k))
                          if (after := p.add(s, split)) is not None}
            if k > n and any(p.completion[t + 1][s] < math.inf for s in reached[k]):
                break
        least = min((spent + prices[k] + p.completion[t + 1][s]
                     for k, found in reached.items() if k > n for s in found), default=math.inf)
        costs.append(None if least == math.inf else int(least))
        spent, states = spent + prices[n], reached[n]
    return costs
