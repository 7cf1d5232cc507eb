"""What provisioning returns: a team, and its audit trail for people who sign budgets."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any

from bamas_lite.pool import LLM, Pool, exact, rank
from bamas_lite.score_sum import best_score
from bamas_lite.search import Hires, Problem, lexicographic, one_more
from bamas_lite.weights import recursive_weights


@dataclass(frozen=True)
class Slot:
    """One agent of a team: copy number `copy` of an LLM; `role` is set when the team was provisioned with roles."""

    llm: LLM
    copy: int
    role: str | None = None

    @property
    def name(self) -> str:
        """Unique in the team, such as "DeepSeek-V3 #1"."""
        return f"{self.llm.name} #{self.copy}"


@dataclass(frozen=True)
class Team:
    """A team that fits the budget.

    Attributes:
        slots: agents by tier, rating, name, copy.
        pool: the LLMs that it was chosen from.
        budget: B in u$.
        exact_cost: planned cost in u$, without rounding.
        method: "ilp" or "lexicographic": whose answer it is.
        note: how that answer was found and checked, one sentence.
    """

    slots: tuple[Slot, ...]
    pool: Pool
    budget: float
    exact_cost: Fraction
    method: str
    note: str = field(compare=False)
    _request: _Request = field(repr=False, compare=False)
    _hires: Hires = field(repr=False, compare=False)

    @property
    def cost(self) -> float:
        """Planned cost in u$: every agent called once with the planned tokens."""
        return float(self.exact_cost)

    @property
    def tier_counts(self) -> tuple[int, ...]:
        """Agents per tier, strongest first."""
        return _tier_counts(self._request.problem, self._hires)

    def __str__(self) -> str:
        """Short label such as "1x DeepSeek-V3 + 1x GPT-4.1 nano"; with roles "... (executor)"."""
        return _label(self._request.problem, self._hires)

    @cached_property
    def next_budget(self) -> float | None:
        """The least budget (u$) that buys a better team; None if there is no better team at any budget."""
        r = self._request
        if r.scores is None:
            costs = [c for c in one_more(r.problem, self.tier_counts) if c is not None]
            return _round_up(Fraction(min(costs), r.problem.scale)) if costs else None
        return _next_score_budget(r, sum(r.scores[m.name] * sum(split) for m, split in self._hires))

    def explain(self) -> str:
        """The audit trail: what was bought and why, what was not, and what the next budget step would buy."""
        r, p = self._request, self._request.problem
        what = ("as many agents of tier 1 as the budget allows, then of tier 2, and so on" if r.scores is None
                else "the largest sum of scores that the budget allows")
        limits = [f"{name} {low} to {'any number' if high == math.inf else high}" for name, (low, high) in
                  (p.roles or {}).items()]
        rules = [f"at least {p.min_agents} agent{'s' * (p.min_agents > 1)}",
                 f"at most {p.max_copies} copies " + ("per role and tier" if p.roles else "of an LLM"),
                 *limits, *p.couplings]
        lines = [f"Team: {self}",
                 f"Budget: {money(p.budget)} u$ a task (= {money(p.budget)} USD per million tasks); planned cost "
                 f"{money(self.exact_cost)} u$; left {money(p.budget - self.exact_cost)} u$",
                 f"Planned tokens of a call: {r.t_in} in; {_tokens_out(r)} out",
                 f"Rule: {what}; {', '.join(rules)}", "",
                 audit_rows(p, self._hires, r.values, lexicographic=r.scores is None), "",
                 f"Next step: {self._next_step()}",
                 f"Method: {self.note}"]
        if r.scores is None:
            lines.insert(6, "(one more: stronger tiers stay as they are, weaker ones shrink to what the rules need)")
        return "\n".join(lines)

    def _next_step(self) -> str:
        if self.next_budget is None:
            return "none, no budget buys a better team under these rules"
        r = self._request
        better = _best(r.at(exact(self.next_budget)))
        more = exact(self.next_budget) - r.problem.budget
        return (f"at a budget of {money(exact(self.next_budget))} u$ ({money(more)} more) the team becomes "
                f"{_label(r.problem, better)}")


@dataclass(frozen=True)
class _Request:
    """A checked call of `provision`: the problem, scores (None: lexicographic) and what `explain` says about them."""

    problem: Problem
    scores: dict[str, Fraction] | None
    t_in: Any
    t_out: dict[str, Any]

    def at(self, budget: Fraction) -> _Request:
        """The same request with another budget."""
        return replace(self, problem=replace(self.problem, budget=budget))

    @cached_property
    def values(self) -> dict[str, Any]:
        """What one agent of each LLM adds to the objective: W_i, or its score."""
        if self.scores is not None:
            return self.scores
        p = self.problem
        weights = recursive_weights([[p.costs[m.name] for m in tier] for tier in p.tiers], p.budget)
        return {m.name: w for tier, w in zip(p.tiers, weights, strict=True) for m in tier}


def _next_score_budget(r: _Request, score: Fraction) -> float | None:
    """The least budget with a score above `score`: search budgets that double until one has such a team."""
    p = r.problem
    budget = p.budget
    everyone = sum(p.costs.values()) * p.max_copies * len(p.names)
    while budget < everyone:
        budget = min(2 * budget, everyone)
        found = best_score(r.at(budget).problem, r.scores, floor=score)
        if found is not None:
            return _round_up(sum(p.costs[m.name] * sum(split) for m, split in found[1]))
    return None


def _slots(p: Problem, hires: Hires) -> tuple[Slot, ...]:
    """Agents by tier, rating, name, copy; copies of an LLM are numbered through its roles."""
    slots = []
    for m, split in sorted(hires, key=lambda h: rank(h[0])):
        played = [role or None for role, n in zip(p.names, split, strict=True) for _ in range(n)]
        slots += [Slot(m, copy, role) for copy, role in enumerate(played, 1)]
    return tuple(slots)


def _label(p: Problem, hires: Hires) -> str:
    """A team in words."""
    parts = [f"{n}x {m.name}" + (f" ({role})" if role else "") for m, split in sorted(hires, key=lambda h: rank(h[0]))
             for role, n in zip(p.names, split, strict=True) if n]
    return " + ".join(parts) or "nobody"


def _tier_counts(p: Problem, hires: Hires) -> tuple[int, ...]:
    """Agents per tier, strongest first."""
    return tuple(sum(sum(split) for m, split in hires if m.tier == t) for t in range(1, len(p.tiers) + 1))


def _tokens_out(r: _Request) -> str:
    """The planned completion tokens in words."""
    limits = sorted(set(r.t_out.values()))
    return str(limits[0]) if len(limits) == 1 else f"{limits[0]} to {limits[-1]} (each LLM's own limit)"


def _round_up(amount: Fraction) -> float:
    """The least float whose decimal text is at least `amount`."""
    number = float(amount)
    return number if exact(number) >= amount else math.nextafter(number, math.inf)


def money(amount: Fraction) -> str:
    """An amount in u$, at most ten digits."""
    return f"{float(amount):,.10g}"


def whole(number: int) -> str:
    """A weight: all digits while they are readable."""
    return f"{number:,}" if number < 10**12 else f"{Decimal(number):.3e}"


def table(rows: list[list[str]], left: tuple[int, ...]) -> str:
    """Rows of text in columns; columns in `left` are aligned left, the others right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(w) if i in left else cell.rjust(w)
                               for i, (cell, w) in enumerate(zip(row, widths, strict=True))).rstrip() for row in rows)


def audit_rows(p: Problem, hires: Hires, values: dict[str, Any], *, lexicographic: bool) -> str:
    """One line per LLM: tier, name, weight (or score), cost of an agent, agents hired, their cost, why not one more."""
    hired = {m.name: sum(split) for m, split in hires}
    left = p.budget - sum(p.costs[name] * n for name, n in hired.items())
    counts = tuple(sum(hired.get(m.name, 0) for m in tier) for tier in p.tiers)
    needs = one_more(p, counts) if lexicographic else [None] * len(counts)
    rows = [["tier", "LLM", "weight" if lexicographic else "score", "cost of one", "hired", "cost", "one more"]]
    for t, tier in enumerate(p.order):
        upcoming = next((m for m in tier if p.roles or hired.get(m.name, 0) < p.max_copies), None)
        for m in tier:
            n = hired.get(m.name, 0)
            if lexicographic:
                why = _why_not_tier(p, t, m, upcoming, n, needs[t])
                value = whole(values[m.name])
            else:
                why = _why_not_score(p, m, n, values[m.name], left)
                value = f"{float(values[m.name]):,.6g}"
            rows.append([str(t + 1), m.name, value, money(p.costs[m.name]), str(n), money(n * p.costs[m.name]), why])
    return table(rows, left=(1, 6))


def _why_not_tier(p: Problem, t: int, m: LLM, upcoming: LLM | None, n: int, need: int | None) -> str:
    """Why the team has not one more agent of this tier, said beside the LLM that would be next."""
    if not p.roles and n >= p.max_copies:
        return f"no: all {n} copies are hired"
    if m is not upcoming:
        return f"no: {upcoming.name} comes first, it is " + (
            "cheaper" if p.costs[upcoming.name] < p.costs[m.name] else "as cheap and first by name")
    if need is None:
        return "no: the role limits allow no more of this tier" if p.roles else "no: the copies limit allows no more"
    budget = Fraction(need, p.scale)
    return f"needs a budget of {money(budget)}, {money(budget - p.budget)} is missing"


def _why_not_score(p: Problem, m: LLM, n: int, score: Fraction, left: Fraction) -> str:
    """Why one more agent of this LLM was not added to the team as it is."""
    if not p.roles and n >= p.max_copies:
        return f"no: all {n} copies are hired"
    if score <= 0:
        return "no: it adds nothing to the score"
    if p.costs[m.name] > left:
        return f"costs {money(p.costs[m.name])}, {money(p.costs[m.name] - left)} is missing"
    return "no: the role limits allow no more"
