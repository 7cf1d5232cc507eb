"""The other objective: the largest sum of scores that the budget allows, exactly, by dynamic programming."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from bamas_lite.pool import LLM
from bamas_lite.search import Hires, Problem, Split, State, lexicographic

Point = tuple[int, int, tuple[Split, ...]]
"""A partial team: cost in units, minus its score, and how each LLM so far is used."""


def best_score(p: Problem, scores: dict[str, Fraction], floor: Fraction | None = None) -> tuple[Fraction, Hires] | None:
    """The team with the largest sum of scores within the budget, by dynamic programming; None if there is none.

    LLM by LLM, partial teams (cost, score) are kept per state while no other one is cheaper and at least as good, and
    while the best that the rest of the budget could add reaches the score of a team already known. Exact; among equal
    teams the cheapest, then by name (more copies of the name that comes first).

    Args:
        floor: ask instead for the cheapest team (within p.budget) whose score is above `floor`.
    """
    scale = math.lcm(*(s.denominator for s in scores.values()))
    value = {name: int(s * scale) for name, s in scores.items()}
    llms = [(t, m) for t, tier in enumerate(p.tiers) for m in tier]
    if not p.roles:  # tiers do not matter then, and this order finds good teams first
        llms.sort(key=lambda tm: Fraction(-value[tm[1].name], p.units[tm[1].name]))
    known = _known_score(p, llms, value) if floor is None else math.floor(floor * scale) + 1
    if known is None:
        return None

    def tie(point: Point) -> tuple[Any, ...]:
        by_name = sorted((m.name, -sum(split)) for (_, m), split in zip(llms, point[2], strict=False))
        return by_name, [[-k for k in split] for split in point[2]]

    none = p.start
    points: dict[tuple[State, State], list[Point]] = {(none, none): [(0, 0, ())]}
    for i, (t, m) in enumerate(llms):
        cost_1, value_1, reach = p.units[m.name], value[m.name], _reach(p, llms[i + 1:], value)
        tier_ends = i + 1 == len(llms) or llms[i + 1][0] != t
        copies = min(p.max_copies, p.budget_units // cost_1)
        grown = defaultdict(list)
        for (state, in_tier), partial in points.items():
            for split in itertools.product(*(range(min(copies, p.max_copies - k), -1, -1) for k in in_tier)):
                after, now = p.add(state, split), tuple(map(sum, zip(in_tier, split, strict=True)))
                if after is None or (p.roles and tier_ends and not p.tier_allows(t, now)):
                    continue
                key, n = (after, now if p.roles and not tier_ends else none), sum(split)
                for cost, minus_score, path in partial:
                    total, score = cost + n * cost_1, n * value_1 - minus_score
                    if total > p.budget_units:
                        break
                    if score + reach(p.budget_units - total) >= known:
                        grown[key].append((total, -score, (*path, split)))
        points = {key: _undominated(found, tie) for key, found in grown.items()}
    teams = [q for (state, _), found in points.items() if p.is_team(state) for q in found if -q[1] >= known]
    if not teams:
        return None
    best = min(teams, key=lambda q: (q[1], q[0], tie(q)) if floor is None else (q[0], q[1], tie(q)))
    return Fraction(-best[1], scale), tuple((m, s) for (_, m), s in zip(llms, best[2], strict=True) if any(s))


def _known_score(p: Problem, llms: list[tuple[int, LLM]], value: dict[str, int]) -> int | None:
    """The score of some team within the budget, as good as is quickly found; None if no team fits."""
    if p.least_cost is None or p.least_cost > p.budget:
        return None
    known, left, score, agents = sum(value[m.name] * sum(split) for m, split in lexicographic(p)), p.budget_units, 0, 0
    if not p.roles:
        for _, m in llms:
            n = min(p.max_copies, left // p.units[m.name])
            left, score, agents = left - n * p.units[m.name], score + n * value[m.name], agents + n
    return max(known, score) if agents >= p.min_agents else known


def _undominated(points: list[Point], tie: Callable[[Point], Any]) -> list[Point]:
    """Points by rising cost, each with a better score than all cheaper ones; of equal ones the first by `tie`."""
    kept: list[Point] = []
    for q in sorted(points, key=lambda q: q[:2]):
        if kept and q[:2] == kept[-1][:2]:
            kept[-1] = min(kept[-1], q, key=tie)
        elif not kept or q[1] < kept[-1][1]:
            kept.append(q)
    return kept


def _reach(p: Problem, llms: list[tuple[int, LLM]], value: dict[str, int]) -> Callable[[int], int]:
    """A function: budget left (units) -> upper bound on the score that `llms` can add, best score per cost first."""
    copies = p.max_copies * len(p.names)
    rows = sorted(((Fraction(value[m.name], p.units[m.name]), value[m.name], p.units[m.name]) for _, m in llms
                   if value[m.name] > 0), reverse=True)
    costs = [0, *itertools.accumulate(c * copies for _, _, c in rows)]
    gains = [0, *itertools.accumulate(v * copies for _, v, _ in rows)]

    def bound(left: int) -> int:
        i = bisect_right(costs, left) - 1
        return gains[i] if i == len(rows) else gains[i] + (left - costs[i]) * rows[i][1] // rows[i][2]

    return bound
