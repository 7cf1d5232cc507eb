"""What provisioning returns: a team, and its audit trail for people who sign budgets."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal, localcontext
from fractions import Fraction
from functools import cached_property
from typing import Any

from bamas_lite.pool import LLM, Pool, exact, rank
from bamas_lite.score_sum import best_score
from bamas_lite.search import Hires, Limit, Problem, lexicographic, one_more
from bamas_lite.weights import recursive_weights

DIGITS = 15
"""Most digits of a printed amount: a float holds so many, so the text can be typed back as a budget."""


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
class Request:
    """What was asked of `provision`, checked: the problem, scores (None: lexicographic) and the planned tokens."""

    problem: Problem
    scores: dict[str, Fraction] | None
    t_in: Any
    t_out: dict[str, Any]

    def best(self, budget: Any = None) -> Hires:
        """The exact answer, at the requested budget or at another one (u$); the budget must be feasible."""
        p = self.problem if budget is None else replace(self.problem, budget=exact(budget))
        if self.scores is None:
            return lexicographic(p)
        found = best_score(p, self.scores)
        assert found is not None, "the budget is feasible"
        return found[1]

    @cached_property
    def values(self) -> dict[str, Any]:
        """What one agent of each LLM adds to the objective: W_i, or its score."""
        if self.scores is not None:
            return self.scores
        p = self.problem
        weights = recursive_weights([[p.costs[m.name] for m in tier] for tier in p.tiers], p.budget)
        return {m.name: w for tier, w in zip(p.tiers, weights, strict=True) for m in tier}

    def score(self, hires: Hires) -> Fraction | int:
        """The objective of a team: the sum of `values`."""
        return sum(self.values[m.name] * sum(split) for m, split in hires)

    def cost(self, hires: Hires) -> Fraction:
        """The planned cost of a team in u$."""
        return sum((self.problem.costs[m.name] * sum(split) for m, split in hires), Fraction(0))

    @property
    def further_limits(self) -> tuple[Limit, ...]:
        """What the integer program must keep to beside the rules of `problem`; here nothing."""
        return ()

    def fault(self, hires: Hires) -> str:
        """Which rule a team breaks; empty if none."""
        if self.cost(hires) > self.problem.budget:
            return f"it costs {money(self.cost(hires))} u$"
        return "" if self.problem.allows(hires) else "it breaks a limit on agents"

    def tier_counts(self, hires: Hires) -> tuple[int, ...]:
        """Agents per tier, strongest first."""
        return tuple(sum(sum(split) for m, split in hires if m.tier == t)
                     for t in range(1, len(self.problem.tiers) + 1))

    def label(self, hires: Hires) -> str:
        """A team in words."""
        parts = [f"{n}x {m.name}" + (f" ({role})" if role else "")
                 for m, split in sorted(hires, key=lambda hire: rank(hire[0]))
                 for role, n in zip(self.problem.names, split, strict=True) if n]
        return " + ".join(parts) or "nobody"

    def slots(self, hires: Hires) -> tuple[Slot, ...]:
        """Agents by tier, rating, name, copy; copies of an LLM are numbered through its roles."""
        slots: list[Slot] = []
        for m, split in sorted(hires, key=lambda hire: rank(hire[0])):
            played = [role or None for role, n in zip(self.problem.names, split, strict=True) for _ in range(n)]
            slots += [Slot(m, copy, role) for copy, role in enumerate(played, 1)]
        return tuple(slots)

    def tokens_line(self) -> str:
        """The planned tokens, for `Team.explain`."""
        tokens = sorted(set(self.t_out.values()))
        out = str(tokens[0]) if len(tokens) == 1 else f"{tokens[0]} to {tokens[-1]} (each LLM's own limit)"
        return f"Planned tokens of a call: {self.t_in} in, {out} out"

    def next_budget(self, hires: Hires) -> Fraction | None:
        """The least budget (u$) that buys a better team than `hires`, the best one of this budget."""
        p = self.problem
        if self.scores is None:
            costs = [c for c in one_more(p, self.tier_counts(hires)) if c is not None]
            return Fraction(min(costs), p.scale) if costs else None
        budget, everyone = p.budget, sum(p.costs.values()) * p.max_copies * len(p.names)
        while budget < everyone:
            budget = min(2 * budget, everyone)
            found = best_score(replace(p, budget=budget), self.scores, floor=Fraction(self.score(hires)))
            if found is not None:
                return self.cost(found[1])
        return None


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
    request: Request = field(repr=False, compare=False)
    hires: Hires = field(repr=False, compare=False)

    @property
    def cost(self) -> float:
        """Planned cost in u$: every agent called once with the planned tokens."""
        return float(self.exact_cost)

    @property
    def tier_counts(self) -> tuple[int, ...]:
        """Agents per tier, strongest first."""
        return self.request.tier_counts(self.hires)

    def __str__(self) -> str:
        """Short label such as "1x DeepSeek-V3 + 1x GPT-4.1 nano"; with roles "1x DeepSeek-V3 (executor) + ..."."""
        return self._label

    @cached_property
    def _label(self) -> str:
        return self.request.label(self.hires)

    @cached_property
    def exact_next_budget(self) -> Fraction | None:
        """The least budget (u$) that buys a better team, without rounding; None if no budget does."""
        return self.request.next_budget(self.hires)

    @property
    def next_budget(self) -> float | None:
        """The least budget (u$) that buys a better team, as a float that is enough; None if no budget does."""
        return None if self.exact_next_budget is None else round_up(self.exact_next_budget)

    def explain(self) -> str:
        """The audit trail: what was bought and why, what was not, and what the next budget step would buy."""
        r, p = self.request, self.request.problem
        what = ("as many agents of tier 1 as the budget allows, then of tier 2, and so on" if r.scores is None
                else "the largest sum of scores that the budget allows")
        roles = [f"{role} {low} to {'any number' if high == math.inf else high}"
                 for role, (low, high) in (p.roles or {}).items()]
        rules = [f"at least {p.min_agents} agent{'s' * (p.min_agents > 1)}",
                 f"at most {p.max_copies} copies of " + ("a tier in one role" if p.roles else "an LLM"),
                 *roles, *p.couplings]
        left = p.budget - self.exact_cost
        lines = [f"Team: {self}", self.budget_line(), r.tokens_line(), f"Rule: {what}",
                 f"Limits: {', '.join(rules)}", "", table(_audit_rows(r, self.hires)), ""]
        if r.scores is None:
            lines += ["Weight: what one agent counts in the sum that is maximized, more than all weaker ones that the "
                      "budget buys.",
                      "One more: stronger tiers stay as they are, weaker ones shrink to what the limits need."]
        else:
            lines += ["Score: what one agent counts in the sum that is maximized.",
                      "One more: an agent is added, all others stay. The next step may also exchange agents, so it can "
                      "need less."]
        if any(exact(money(a).replace(",", "")) != a for a in (p.budget, left, *p.costs.values())):
            lines += [f"Amounts are rounded to {DIGITS} digits, those that a budget must reach upwards."]
        return "\n".join([*lines, f"Next step: {self._next_step()}", f"Method: {self.note}"])

    def budget_line(self) -> str:
        """Budget, planned cost and what is left, for `explain`."""
        budget = self.request.problem.budget
        return (f"Budget: {needed(budget)} u$ a task (= {needed(budget)} USD per million tasks); planned cost "
                f"{needed(self.exact_cost)} u$; left {money(budget - self.exact_cost, ROUND_FLOOR)} u$")

    def _next_step(self) -> str:
        r, budget = self.request, self.exact_next_budget
        if budget is None:
            return "none; no budget buys a better team within these limits"
        printed = needed(budget)
        return (f"at a budget of {printed} u$ ({needed(budget - r.problem.budget)} more) the team becomes "
                f"{r.label(r.best(printed.replace(',', '')))}")


def money(amount: Fraction, rounding: str = ROUND_HALF_EVEN) -> str:
    """An amount in u$: all its decimals, or DIGITS digits where it has more."""
    with localcontext() as context:
        context.prec, context.rounding = DIGITS, rounding
        return f"{Decimal(amount.numerator) / amount.denominator:,f}"


def needed(amount: Fraction) -> str:
    """An amount that a budget must reach: never rounded down, so the printed budget buys what it promises."""
    return money(amount, ROUND_CEILING)


def round_up(amount: Fraction) -> float:
    """The least float whose decimal text is at least `amount`: as a budget it never falls short of a cost."""
    number = float(amount)
    return number if exact(number) >= amount else math.nextafter(number, math.inf)


def _audit_rows(r: Request, hires: Hires) -> list[list[str]]:
    """One line per LLM: tier, name, weight (or score), cost of an agent, agents hired, their cost, why not one more."""
    p, hired = r.problem, {m.name: sum(split) for m, split in hires}
    needs = one_more(p, r.tier_counts(hires)) if r.scores is None else [None] * len(p.tiers)
    left = p.budget - r.cost(hires)
    rows = [["tier", "LLM", "score" if r.scores else "weight", "cost of one", "hired", "cost", "one more"]]
    for t, tier in enumerate(p.order):
        # who would be hired next: without roles LLMs run out of copies, with roles the cheapest fills the tier
        coming = next((m for m in tier if p.roles or hired.get(m.name, 0) < p.max_copies), None)
        for m in tier:
            n, value = hired.get(m.name, 0), r.values[m.name]
            if not p.roles and n >= p.max_copies:
                why = f"no: all {n} copies are hired"
            elif r.scores is None:
                why = _why_not_tier(p, m, coming, needs[t])
            else:
                why = _why_not_score(p.costs[m.name], value, left)
            text = weight_text(value) if r.scores is None else f"{float(value):,.6g}"
            rows.append([str(t + 1), m.name, text, money(p.costs[m.name]), str(n), money(n * p.costs[m.name]), why])
    return rows


def _why_not_tier(p: Problem, m: LLM, coming: LLM | None, need: int | None) -> str:
    """Why the team has not one more agent of a tier, said beside the LLM that would be hired next."""
    if coming is not None and m is not coming:
        cheaper = p.costs[coming.name] < p.costs[m.name]
        return f"no: {coming.name} comes first, it is " + ("cheaper" if cheaper else "as cheap and first by name")
    if need is None:
        return f"no: the {'role' if p.roles else 'copies'} limits allow no more of this tier"
    budget = Fraction(need, p.scale)
    return f"needs a budget of {needed(budget)}, {needed(budget - p.budget)} is missing"


def _why_not_score(cost: Fraction, score: Fraction, left: Fraction) -> str:
    """Why one more agent was not added to the team as it is."""
    if score <= 0:
        return "no: it adds nothing to the score"
    if cost > left:
        return f"costs {money(cost)}, {needed(cost - left)} is missing"
    return "no: the role limits allow no more"


def weight_text(number: int) -> str:
    """A weight: all digits while they are readable."""
    return f"{number:,}" if number < 10**12 else f"{Decimal(number):.3e}"


def table(rows: list[list[str]]) -> str:
    """Rows of text in columns: the LLM and the last column aligned left, the others right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(w) if i in (1, len(widths) - 1) else cell.rjust(w)
                               for i, (cell, w) in enumerate(zip(row, widths, strict=True))).rstrip() for row in rows)
