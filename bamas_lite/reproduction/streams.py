"""One budget for a whole stream of tasks, instead of the same budget for each.

The paper gives every task the same budget B. Whoever pays for N tasks may care for the total only. Then each task has
options (a budget and a topology, say), each with an expected value, such as the predicted chance of a right answer, and
a cost, and exactly one option a task is taken: a multiple-choice knapsack,

    maximize  sum_i sum_j v_ij y_ij   subject to   sum_i sum_j c_ij y_ij <= total,   sum_j y_ij = 1,   y_ij in {0, 1}.

HiGHS (scipy.optimize.milp) solves it. Floats cannot break the budget: money is counted in whole units, and the answer
is added up exactly. Nor can they hide a better answer: the Lagrangian bound leaves so few choices to look at that an
exact search through them proves the optimum, or finds it where the solver missed it.

Values must be predicted (from training tasks), never the outcomes of the very tasks that are paid for - unless the
result is called an oracle.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from bamas_lite.inputs import exact, shown
from bamas_lite.reproduction.checks import amounts, numbers
from bamas_lite.reproduction.frontier import interval, resampled_means
from bamas_lite.team import money, needed, round_up

MOST_STATES = 200_000
"""Partial choices that the exact search keeps at the most; beyond, the answer is not called proved."""

TIME_LIMIT_S = 20.0


class StreamBudgetError(ValueError):
    """The total does not pay for the cheapest option of every task. `least_total` (u$) is the least one that does."""

    def __init__(self, message: str, least_total: float) -> None:
        super().__init__(message)
        self.least_total = least_total

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args[0], self.least_total)


@dataclass(frozen=True)
class StreamChoice:
    """One option for each task of a stream.

    Attributes:
        option: the column taken for each task, (n,).
        value: sum of the values taken, for example the expected number of right answers.
        exact_cost: sum of the costs taken, u$; never above the total.
        bound: no choice within the total has a larger value (Lagrangian bound = the linear relaxation's optimum).
        price: the multiplier: value that one more u$ buys, at the margin; 0 when money is left for every best option.
        proved: whether `value` is certainly the largest possible one; if not, it is within `bound`.
        note: how the choice was found and checked.
    """

    option: np.ndarray
    value: float
    exact_cost: Fraction
    bound: float
    price: float
    proved: bool
    note: str

    @property
    def cost(self) -> float:
        """Sum of the costs taken, u$."""
        return float(self.exact_cost)


@dataclass(frozen=True)
class _Stream:
    """The knapsack in whole numbers; tasks with the same options are one kind."""

    kinds: list[tuple[tuple[int, ...], tuple[int, ...]]]  # values and costs of the options of a kind
    members: list[list[int]]
    total: int
    value_unit: int
    cost_unit: int

    def add_up(self, picks: list[list[int]]) -> tuple[int, int]:
        """Value and cost of a choice: for each kind the options of its tasks."""
        pairs = [(kind, j) for kind, chosen in zip(self.kinds, picks, strict=True) for j in chosen]
        return sum(kind[0][j] for kind, j in pairs), sum(kind[1][j] for kind, j in pairs)


def spend_stream(values: Any, costs: Any, total: Any) -> StreamChoice:
    """Spend one total over N tasks so that the sum of values is the largest possible (multiple-choice knapsack).

    Args:
        values: (n, k) expected value of each option of each task: predicted, or the result is an oracle's.
        costs: (n, k) its cost, u$, at least 0; or (k,) where the options cost the same for every task. A float means
            its decimal text, as everywhere in this kit.
        total: u$ for all tasks together.

    Returns:
        The choice. Among equally good ones it is not said which.

    Raises:
        StreamBudgetError: the cheapest options cost more than the total; `least_total` says what would do.
        ValueError: arrays of other shapes, or with NaN, infinity or a negative cost.
    """
    stream = _stream(values, costs, total)
    picks, bound, price = _greedy(stream)
    how = "greedy by value per u$"
    found = _solve(stream)
    if found is not None and stream.add_up(found)[1] <= stream.total \
            and stream.add_up(found)[0] >= stream.add_up(picks)[0]:
        picks, how = found, "HiGHS"
    known = stream.add_up(picks)[0]
    better, proved = _exact_search(stream, bound, price, known)
    if better is not None:
        picks, how = better, f"exact search, after {how} had missed it"
    value, cost = stream.add_up(picks)
    option = np.empty(sum(map(len, stream.members)), int)
    for members, chosen in zip(stream.members, picks, strict=True):
        option[members] = chosen
    note = f"found by {how}; " + ("an exact search found no better one" if proved else
                                  f"not proved: the exact search was cut off at {MOST_STATES:,} partial choices")
    return StreamChoice(option, value / stream.value_unit, Fraction(cost, stream.cost_unit),
                        float(bound / stream.value_unit), float(price * stream.cost_unit / stream.value_unit), proved,
                        note)


def flat_choice(values: Any, costs: Any, each: Any) -> np.ndarray:
    """The option of each task under a budget of `each` u$ for every task, as in the paper: the best it pays for, (n,).

    Among equal values the cheaper option.

    Raises:
        StreamBudgetError: some task has no option that cheap; `least_total` is the least budget for each task.
        ValueError: as `spend_stream`.
    """
    stream = _stream(values, costs, None)
    limit = exact(each, "each") * stream.cost_unit
    option = np.empty(sum(map(len, stream.members)), int)
    least = Fraction(max(min(c) for _, c in stream.kinds), stream.cost_unit)
    if limit < least * stream.cost_unit:
        raise StreamBudgetError(f"each = {shown(each)}: the cheapest option of some task costs {needed(least)} u$",
                                round_up(least))
    for (v, c), members in zip(stream.kinds, stream.members, strict=True):
        option[members] = max((j for j in range(len(v)) if c[j] <= limit), key=lambda j: (v[j], -c[j], -j))
    return option


def stream_curve(values: Any, costs: Any, totals: Iterable[Any], *, caps: Any = None,
                 outcomes: Mapping[str, Any] | None = None, resamples: int = 2000, seed: int = 0) -> pd.DataFrame:
    """What a total buys, for several totals: split evenly over the tasks, or shared over the stream.

    Plans: "flat": total / n for each task, as in the paper; "stream guaranteed": what the options may cost at the most
    adds up to the total; "stream expected": what they are expected to cost does, so the spend can come out above it.
    With outcomes also "oracle stream": the best choice for somebody who knew every outcome; it bounds all others.

    Args:
        values, costs: as for `spend_stream`, predicted.
        totals: u$ for all tasks together.
        caps: (n, k) or (k,): the most that an option can cost, such as the budget that its episode must keep; None: as
            `costs`, and then there is no plan "stream guaranteed".
        outcomes: what the options really did, {"correct": (n_seeds, n, k), "cost": (n_seeds, n, k)}.
        resamples, seed: of the bootstrap over tasks and seeds.

    Returns:
        One row for each total and plan that it pays for; columns total, each (total / n), plan, expected (mean value a
        task, as planned), planned_cost (u$ a task), bound (the most that `expected` could be), proved. With outcomes
        also correct, cost (u$ a task), their _low and _high ends, against_flat (difference in correct, with ends; only
        where the flat plan is payable), over_total (share of the seeds with a spend above the total).

    Raises:
        StreamBudgetError: none of the totals pays for the cheapest option of every task, under any plan.
        ValueError: as `spend_stream`; totals that are no list of different numbers; outcomes of another shape.
    """
    values, costs = _arrays(values, costs)
    hard = costs if caps is None else _arrays(values, caps, "caps")[1]
    real = None if outcomes is None else _real(outcomes, values)
    rows, refusal = [], None
    for total in amounts(totals, "totals"):
        n = len(values)
        each = exact(total, "total") / n
        plans: list[tuple[str, Any, StreamChoice | np.ndarray]] = []
        for name, price, plan, money_for in (("flat", hard, flat_choice, each),
                                             ("stream guaranteed", hard, spend_stream, total),
                                             ("stream expected", costs, spend_stream, total)):
            if name == "stream guaranteed" and caps is None:
                continue
            try:
                plans.append((name, price, plan(values, price, money_for)))
            except StreamBudgetError as error:
                refusal = error  # in the end that of the last plan, which asks for the least
                continue
        measured = {}
        for name, price, choice in plans:
            option = choice.option if isinstance(choice, StreamChoice) else choice
            at = np.arange(n), option
            row = {"total": float(total), "each": float(each), "plan": name, "expected": values[at].mean(),
                   "planned_cost": np.broadcast_to(price, values.shape)[at].mean(),
                   "bound": choice.bound / n if isinstance(choice, StreamChoice) else values[at].mean(),
                   "proved": not isinstance(choice, StreamChoice) or choice.proved}
            if real is not None:
                measured[name] = np.stack([real[m][:, at[0], option] for m in ("correct", "cost")], axis=2)
            rows.append(row)
        if real is None:
            continue
        try:
            best = [spend_stream(y, c, total) for y, c in zip(real["correct"], real["cost"], strict=True)]
        except StreamBudgetError:
            best = []
        if best:
            measured["oracle stream"] = np.stack([
                np.stack([y[np.arange(n), b.option], c[np.arange(n), b.option]], axis=1)
                for b, y, c in zip(best, real["correct"], real["cost"], strict=True)])
            rows.append({"total": float(total), "each": float(each), "plan": "oracle stream",
                         "expected": np.mean([b.value for b in best]) / n,
                         "planned_cost": np.mean([b.cost for b in best]) / n,
                         "bound": np.mean([b.bound for b in best]) / n, "proved": all(b.proved for b in best)})
        for row in rows[-len(measured):] if measured else []:
            row |= _measures(measured[row["plan"]], measured.get("flat"), row["plan"], float(each), resamples, seed)
    if not rows:
        raise refusal
    return pd.DataFrame(rows)


def _real(outcomes: Mapping[str, Any], values: np.ndarray) -> dict[str, np.ndarray]:
    """Outcomes as arrays, checked."""
    if not isinstance(outcomes, Mapping):
        raise ValueError(f"outcomes = {shown(outcomes)}: expected {{'correct': array, 'cost': array}}")
    real = {}
    for name in ("correct", "cost"):
        if name not in outcomes:
            raise ValueError(f"outcomes: has no {name!r}; expected 'correct' and 'cost'")
        real[name] = numbers(outcomes[name], f"outcomes[{name!r}]")
        if real[name].ndim != 3 or real[name].shape[1:] != values.shape:
            raise ValueError(f"outcomes[{name!r}]: shape {real[name].shape}; expected (n_seeds, "
                             f"{', '.join(map(str, values.shape))})")
    return real


def _measures(y: np.ndarray, flat: np.ndarray | None, plan: str, each: float, resamples: int,
              seed: int) -> dict[str, float]:
    """What a plan really did, y (n_seeds, n, 2): right and u$, with intervals."""
    samples = resampled_means(y, resamples=resamples, seed=seed)
    row: dict[str, float] = {}
    for m, name in enumerate(("correct", "cost")):
        low, high = interval(samples[:, m])
        row |= {name: y[..., m].mean(), f"{name}_low": low, f"{name}_high": high}
    low = high = apart = np.nan
    if flat is not None and plan != "flat":
        apart = (y - flat)[..., 0].mean()
        low, high = interval(samples[:, 0] - resampled_means(flat, resamples=resamples, seed=seed)[:, 0])
    return row | {"against_flat": apart, "against_flat_low": low, "against_flat_high": high,
                  "over_total": float((y[..., 1].mean(axis=1) > each).mean())}


def _arrays(values: Any, costs: Any, what: str = "costs") -> tuple[np.ndarray, np.ndarray]:
    """Values and costs as arrays, checked; `what` names the costs."""
    v, c = numbers(values, "values"), numbers(costs, what)
    if v.ndim != 2 or not v.size:
        raise ValueError(f"values: shape {v.shape}; expected (n tasks, k options), at least 1 of each")
    if c.shape not in (v.shape, v.shape[1:]):
        raise ValueError(f"{what}: shape {c.shape}; expected {v.shape}, as values, or {v.shape[1:]}, the same for all")
    if (c < 0).any():
        place = ", ".join(map(str, np.argwhere(c < 0)[0]))
        raise ValueError(f"{what}[{place}] = {float(c[c < 0][0])!r}: expected a finite number of at least 0 u$")
    return v, c


def _stream(values: Any, costs: Any, total: Any) -> _Stream:
    """Check the arguments and count in whole units; `total` None: without a limit."""
    v, c = _arrays(values, costs)
    fractions = {x: exact(x) for x in {*v.ravel().tolist(), *c.ravel().tolist()}}
    value_unit = math.lcm(*(fractions[x].denominator for x in v.ravel().tolist()))
    cost_unit = math.lcm(*(fractions[x].denominator for x in c.ravel().tolist()))
    members: dict[tuple[tuple[int, ...], tuple[int, ...]], list[int]] = {}
    for i, (v_i, c_i) in enumerate(zip(v.tolist(), np.broadcast_to(c, v.shape).tolist(), strict=True)):
        kind = (tuple(int(fractions[x] * value_unit) for x in v_i), tuple(int(fractions[x] * cost_unit) for x in c_i))
        members.setdefault(kind, []).append(i)
    limit = 0 if total is None else exact(total, "total")
    least = Fraction(sum(min(kind[1]) * len(who) for kind, who in members.items()), cost_unit)
    if total is not None and limit < least:
        raise StreamBudgetError(f"total = {money(limit)} u$: the cheapest option of every task together cost "
                                f"{needed(least)} u$; spend_stream succeeds from least_total = {round_up(least)!r} "
                                "u$ on", round_up(least))
    return _Stream(list(members), list(members.values()), math.floor(limit * cost_unit), value_unit, cost_unit)


def _hull(values: tuple[int, ...], costs: tuple[int, ...]) -> list[int]:
    """Options on the upper concave hull of (cost, value), cheapest first; all others are never in a greedy choice."""
    hull: list[int] = []
    for j in sorted(range(len(values)), key=lambda j: (costs[j], -values[j], j)):
        if hull and values[j] <= values[hull[-1]]:
            continue
        while len(hull) > 1 and (values[hull[-1]] - values[hull[-2]]) * (costs[j] - costs[hull[-1]]) \
                <= (values[j] - values[hull[-1]]) * (costs[hull[-1]] - costs[hull[-2]]):
            hull.pop()
        hull.append(j)
    return hull


def _greedy(stream: _Stream) -> tuple[list[list[int]], Fraction, Fraction]:
    """Upgrades by value per cost, best first, as far as money goes: a choice, the bound and the multiplier (exact)."""
    steps = []
    place = []
    cost = value = 0
    for s, ((v, c), members) in enumerate(zip(stream.kinds, stream.members, strict=True)):
        hull = _hull(v, c)
        place.append([hull[0]] * len(members))
        cost, value = cost + c[hull[0]] * len(members), value + v[hull[0]] * len(members)
        steps += [(Fraction(v[b] - v[a], c[b] - c[a]), s, a, b) for a, b in zip(hull, hull[1:], strict=False)]
    steps.sort(key=lambda step: (-step[0], step[1], stream.kinds[step[1]][1][step[3]]))
    left, bound, price = stream.total - cost, None, Fraction(0)
    for ratio, s, a, b in steps:
        v, c = stream.kinds[s]
        dearer, movable = c[b] - c[a], [i for i, j in enumerate(place[s]) if j == a]
        many = min(len(movable), left // dearer)
        if bound is None and many < len(movable):  # the money ends within this step: the relaxation's optimum
            bound, price = value + ratio * left, ratio
        for i in movable[:many]:
            place[s][i] = b
        left, value = left - many * dearer, value + many * (v[b] - v[a])
    return place, Fraction(value) if bound is None else bound, price


def _solve(stream: _Stream) -> list[list[int]] | None:
    """HiGHS: how many tasks of each kind take each option. None if it fails; its answer is not trusted."""
    k = len(stream.kinds[0][0])
    counts = np.array([len(m) for m in stream.members], float)
    n = len(counts)
    largest = max(stream.total, 1)
    unit = stream.cost_unit if largest >= 2**40 else 1  # whole units as long as they are small, else u$
    v = np.array([[x / stream.value_unit for x in kind[0]] for kind in stream.kinds])
    c = np.array([[x / unit for x in kind[1]] for kind in stream.kinds])
    budget = LinearConstraint(c.reshape(1, -1), -np.inf, stream.total / unit)
    one_each = csr_array((np.ones(n * k), (np.repeat(np.arange(n), k), np.arange(n * k))), shape=(n, n * k))
    result = milp(-v.ravel(), integrality=np.ones(n * k), bounds=Bounds(0, np.repeat(counts, k)),
                  constraints=[budget, LinearConstraint(one_each, counts, counts)],
                  options={"mip_rel_gap": 0.0, "time_limit": TIME_LIMIT_S})
    if result.x is None:
        return None
    many = np.rint(result.x).astype(int).reshape(n, k)
    if (many < 0).any() or (many.sum(axis=1) != counts).any():
        return None
    return [np.repeat(np.arange(k), row).tolist() for row in many]


def _exact_search(stream: _Stream, bound: Fraction, price: Fraction,
                  known: int) -> tuple[list[list[int]] | None, bool]:
    """A choice better than `known`, if there is one, and whether the search was complete.

    By the Lagrangian, a choice falls short of `bound` by at least the sum over its tasks of the option's loss, the
    distance of v - price * c from the task's best. So partial choices are dropped whose losses leave no room for a
    value of known + 1 (values are whole), and those for which a cheaper one is as good. All numbers are exact.
    """
    p, q = price.numerator, price.denominator
    slack = int((bound - known - 1) * q) + 1 if bound >= known + 1 else 0
    losses = []
    for v, c in stream.kinds:
        margin = [q * v_j - p * c_j for v_j, c_j in zip(v, c, strict=True)]
        losses.append([max(margin) - m for m in margin])
    if slack <= 0:
        return None, True
    order = sorted(range(len(losses)), key=lambda s: sum(loss < slack for loss in losses[s]))
    rest = [0] * (len(order) + 1)  # least cost of the kinds still to come
    for at in range(len(order) - 1, -1, -1):
        rest[at] = rest[at + 1] + min(stream.kinds[order[at]][1]) * len(stream.members[order[at]])
    states: list[tuple[int, int, int, Any]] = [(0, 0, 0, None)]  # cost, -value, loss, path
    for at, s in enumerate(order):
        v, c = stream.kinds[s]
        open_options = [j for j, loss in enumerate(losses[s]) if loss < slack]
        cheapest = min(c)
        for done in range(len(stream.members[s])):
            to_come = rest[at + 1] + cheapest * (len(stream.members[s]) - done - 1)
            grown = [(cost + c[j], minus - v[j], loss + losses[s][j], (path, j))
                     for cost, minus, loss, path in states for j in open_options
                     if loss + losses[s][j] < slack and cost + c[j] + to_come <= stream.total]
            grown.sort(key=lambda state: state[:2])
            states = []
            for state in grown:
                if not states or state[1] < states[-1][1]:
                    states.append(state)
            if len(states) * len(losses[0]) > MOST_STATES:
                return None, False
    found = min(states, key=lambda state: (state[1], state[0]), default=None)
    if found is None or -found[1] <= known:
        return None, True
    picks: list[list[int]] = [[] for _ in stream.kinds]
    path = found[3]
    for s in reversed(order):
        for _ in stream.members[s]:
            path, j = path
            picks[s].append(j)
    return picks, True
