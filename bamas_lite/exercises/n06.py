"""Exercises of notebook 06: each check says right, or gives a hint, and never the answer."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any

import numpy as np

from bamas_lite.exercises import expects

exercise_1 = """\
Exercise 1: an interval for somebody else's number.
Our accuracy is a mean over m tasks and has the 95% interval accuracy +- h. The paper's is a mean over n other
tasks of the same kind. If both methods are equally good, within which half width around our accuracy does the
published figure lie with 95% probability? (Normal approximation; the same spread of single tasks in both.)
answer_1 = a function of h, m and n"""

exercise_2 = """\
Exercise 2: a finding and the assumption behind it.
Some draws of assumed parameters were run; `holds` says in which of them a finding holds, `parameters` maps the
name of each parameter to its values, one a draw. Write `status(holds, parameters)` by the rules of part 8, but
without the package's test for chance (so never "several parameters or the seed"): "not testable here" with fewer
than 200 draws; "reproduced" if it holds in at least 95% of them; "differs" if in at most 5%; else "depends on
<name>" with the parameter that separates the draws best. Separation: the chance that the parameter is larger in a
draw where the finding holds than in one where it does not, ties counting half (the AUC); the one farthest from
0.5 is best.
answer_2 = status"""

exercise_3 = """\
Exercise 3: one budget for a stream, exactly.
Write `spend(values, costs, total)`: values[i][j] is the value of option j for task i, costs[i][j] its cost in
whole u$. Return one option for each task (a list of column numbers): those with the largest sum of values that
the total pays for. The total always pays for the cheapest options. Trying all combinations is too slow for the
longest stream: k options and n tasks make k ** n of them.
answer_3 = spend"""


@expects("a function of h, m and n that returns a number")
def check_1(half_width: Callable[..., Any] | None) -> None:
    """Check the half width of exercise 1."""
    if half_width is None:
        print("Exercise 1: set answer_1 to a function of h, m and n.")
        return
    if not callable(half_width):
        print("Exercise 1: expected a function of h, m and n.")
        return
    for h, m, n in ((2.0, 500, 300), (1.0, 1319, 300), (0.7, 100, 1000)):
        try:
            given = half_width(h, m, n)
        except Exception as error:  # the reader's code may raise anything
            print(f"Exercise 1: your function raised {type(error).__name__}: {error}")
            return
        if isinstance(given, bool) or not isinstance(given, Real) or not math.isfinite(given):
            print("Exercise 1: expected a function that returns a finite number.")
            return
        ratio = m / n
        wrong = {h: "this is the interval of our own mean. Hint: the published figure scatters too",
                 h * math.sqrt(ratio): "this is how far a published mean scatters about the truth. Hint: ours does too",
                 h * (1 + math.sqrt(ratio)): "errors of independent means do not add up. Hint: their squares do",
                 h * math.sqrt(1 + 1 / ratio): "m and n are the wrong way round. Hint: a mean over few tasks scatters "
                                               "more, and h is of the mean over m"}
        if not math.isclose(given, h * math.sqrt(1 + ratio), rel_tol=1e-6):
            hint = next((text for value, text in wrong.items() if math.isclose(given, value, rel_tol=1e-6)),
                        "not the half width of the difference of the two means. Hint: how does the variance of a mean "
                        "depend on the number of tasks?")
            print(f"Exercise 1: with h = {h:g}, m = {m}, n = {n}: {hint}.")
            return
    print("Exercise 1: right.")


@expects("a function of holds and parameters that returns a status")
def check_2(status: Callable[..., Any] | None) -> None:
    """Check the rule of exercise 2 on made-up draws."""
    if status is None:
        print("Exercise 2: set answer_2 to a function of holds and parameters.")
        return
    if not callable(status):
        print("Exercise 2: expected a function of holds and parameters.")
        return
    for holds, parameters, right, hint in _draws():
        try:
            given = status(list(holds), {name: list(values) for name, values in parameters.items()})
        except Exception as error:  # the reader's code may raise anything
            print(f"Exercise 2: your function raised {type(error).__name__}: {error}")
            return
        if not isinstance(given, str):
            print("Exercise 2: expected a function that returns a text.")
            return
        if given != right:
            print(f"Exercise 2: for {sum(holds)} of {len(holds)} draws the status is not right. Hint: {hint}.")
            return
    print("Exercise 2: right.")


def _draws() -> list[tuple[list[bool], dict[str, list[float]], str, str]]:
    """Draws with their status and a hint."""
    rng = np.random.default_rng(0)
    cases = []
    for true, n, right, hint in ((199, 199, "not testable here", "so few draws decide nothing, whatever they say"),
                                 (200, 200, "reproduced", "it holds in every draw"),
                                 (190, 200, "reproduced", "'at least 95%' includes 95%"),
                                 (12, 240, "differs", "'at most 5%' includes 5%")):
        cases.append(([k < true for k in range(n)], {"critic.hit": rng.uniform(size=n).tolist()}, right, hint))
    # One parameter separates well, but where it is SMALL the finding holds; the other hardly does.
    n = 220
    small, noise = np.arange(n) / n, rng.uniform(size=n)
    holds = small < 0.6
    best = {"step_shift": (noise + 0.3 * holds).tolist(), "plan_more": small.tolist()}
    cases.append((holds.tolist(), best, "depends on plan_more",
                  "a parameter that is always smaller where the finding holds separates perfectly, too"))
    # Many ties: "larger" alone would call the coarse parameter worse than it is.
    coarse = np.where(holds, 2.0, np.where(np.arange(n) % 4 == 0, 2.0, 0.0))
    worse = np.where(np.arange(n) % 10 < 8, holds, ~holds) + 0.001 * noise
    cases.append((holds.tolist(), {"worse": worse.tolist(), "coarse": coarse.tolist()}, "depends on coarse",
                  "ties count half"))
    return cases


@expects("a function of values, costs and total that returns one option for each task")
def check_3(spend: Callable[..., Any] | None) -> None:
    """Check choices for a stream against all combinations, and against the exact search for a longer one."""
    if spend is None:
        print("Exercise 3: set answer_3 to a function of values, costs and total.")
        return
    if not callable(spend):
        print("Exercise 3: expected a function of values, costs and total.")
        return
    from bamas_lite.reproduction.streams import spend_stream
    rng = np.random.default_rng(1)
    for n, k in ((1, 3), (3, 3), (4, 4), (5, 3), (5, 3), (60, 4)):
        costs = rng.integers(1, 12, size=(n, k))
        values = rng.integers(0, 100, size=(n, k)) / 100
        total = int(costs.min(axis=1).sum() + rng.integers(0, 3 * n))
        try:
            picks = spend(values.tolist(), costs.tolist(), total)
        except Exception as error:  # the reader's code may raise anything
            print(f"Exercise 3: your function raised {type(error).__name__}: {error}")
            return
        problem = _problem(picks, n, k)
        if problem:
            print(f"Exercise 3: {problem}")
            return
        at = np.arange(n), np.array([int(j) for j in picks])
        if costs[at].sum() > total:
            print(f"Exercise 3: for {n} tasks your choice costs more than the total.\nHint: the sum of all costs.")
            return
        best = spend_stream(values, costs, total).value if n > 5 else _best(values, costs, total)
        if values[at].sum() < best - 1e-9:
            print(f"Exercise 3: for {n} tasks there is a better choice. Hint: task by task, keep for each amount\n"
                  "spent so far the largest value that it can buy; a greedy choice may leave money unused.")
            return
    print("Exercise 3: right.")


def _problem(picks: Any, n: int, k: int) -> str | None:
    """What is wrong with the form of a choice; None if nothing is."""
    if not isinstance(picks, (Sequence, np.ndarray)) or isinstance(picks, str) or len(picks) != n:
        return "expected a list with one option for each task."
    if any(isinstance(j, bool) or int(j) != j or not 0 <= j < k for j in picks):
        return f"expected numbers of columns, from 0 to {k - 1} where there are {k} options."
    return None


def _best(values: np.ndarray, costs: np.ndarray, total: int) -> float:
    n, k = values.shape
    at = np.arange(n)
    return max(float(values[at, list(picks)].sum()) for picks in itertools.product(range(k), repeat=n)
               if costs[at, list(picks)].sum() <= total)
