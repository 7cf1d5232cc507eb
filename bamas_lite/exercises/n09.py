"""Exercises of notebook 09: each check says right, or gives a hint, and never the answer.

AgentBalance names latency-aware graphs, role-backbone matching and AUC; the formulas asked for are our reconstruction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from textwrap import fill
from typing import Any

import numpy as np

from bamas_lite.exercises import expects

exercise_1 = """\
Exercise 1: when is each agent done?
Agent j takes latencies[j] seconds and starts when all agents with an edge (i, j) to it are done; who has no edge to it
starts at 0. Write a function of latencies (a list) and edges (a list of pairs) that returns the list of finish times.
Agents are numbered in any order, and there is no cycle.
answer_1 = your function"""

exercise_2 = """\
Exercise 2: better than greedy.
A greedy matching takes the pair of role and LLM with the highest score that it can still pay, and again, as long as a
pair with a positive score is left. Write a function of scores (an array: a row a role, a column an LLM), costs (u$, one
an LLM) and budget (u$) that returns for each role the index of its LLM, or -1 for a role left empty: no sum of scores
within the budget may be higher. An LLM may take several roles and is paid for each. There are at most four roles and
four LLMs. (This is simpler than equation (3): an LLM may take any number of roles, and all roles may stay empty.)
answer_2 = your function"""

exercise_3 = """\
Exercise 3: the area under a curve.
A system was run at several settings: setting k spends spend[k] (mean u$ a task) and reaches accuracy[k]. At a budget B
you would take the best setting whose mean spend is at most B; where none is, no task is answered. Write a function of
spend, accuracy and grid (budgets, rising, not always evenly spaced) that returns the area under this curve by
trapezoids between the budgets of the grid, divided by the grid's width.
answer_3 = your function"""

Edges = list[tuple[int, int]]


def _say(text: str) -> None:
    print(fill(text, 115))


@cache
def _graphs() -> tuple[tuple[str, tuple[float, ...], tuple[tuple[int, int], ...]], ...]:
    """(what is special, latencies, edges); twelve random graphs at the end, of up to 12 agents."""
    rng = np.random.default_rng(9)
    cases = [("one agent", (2.5,), ()), ("two agents without an edge", (1.0, 4.0), ()),
             ("a chain", (1.0, 2.0, 4.0), ((0, 1), (1, 2))), ("two agents that hand on to a third", (1.0, 4.0, 2.0),
                                                            ((0, 2), (1, 2))),
             ("a chain whose numbers fall", (1.0, 2.0, 4.0), ((1, 0), (2, 1)))]
    for n in range(1, 13):
        place = rng.permutation(n)
        edges = [(int(place[i]), int(place[j])) for j in range(n) for i in range(j) if rng.random() < 0.35]
        rng.shuffle(edges)
        latencies = tuple(round(float(x), 2) for x in rng.uniform(0.2, 9, n))
        cases.append((f"a random graph of {n} agent{'s' * (n > 1)}", latencies, tuple((i, j) for i, j in edges)))
    return tuple(cases)


def _finish(latencies: Sequence[float], edges: Sequence[tuple[int, int]]) -> list[float]:
    import networkx as nx
    graph = nx.DiGraph(edges)
    graph.add_nodes_from(range(len(latencies)))
    done: dict[int, float] = {}
    for j in nx.topological_sort(graph):
        done[j] = latencies[j] + max((done[i] for i in graph.predecessors(j)), default=0.0)
    return [done[j] for j in range(len(latencies))]


def _wrong_finishes(latencies: Sequence[float], edges: Sequence[tuple[int, int]]) -> dict[str, list[float]]:
    """Hint -> the times that somebody finds who needs it."""
    n, right = len(latencies), _finish(latencies, edges)
    before = [[i for i, k in edges if k == j] for j in range(n)]
    summed: list[float | None] = [None] * n

    def total(j: int) -> float:
        if summed[j] is None:
            summed[j] = latencies[j] + sum(total(i) for i in before[j])
        return summed[j]

    by_number = [0.0] * n
    for j in range(n):
        by_number[j] = latencies[j] + max((by_number[i] for i in before[j]), default=0.0)
    return {
        "these are the times at which the agents start": [t - x for t, x in zip(right, latencies, strict=True)],
        "agents run at the same time wherever no edge makes one wait": list(np.cumsum(latencies)),
        "whoever has an edge to an agent may have had to wait too":
            [latencies[j] + max((latencies[i] for i in before[j]), default=0.0) for j in range(n)],
        "an agent waits for the last of those before it, not for one after the other": [total(j) for j in range(n)],
        "a lower number need not come before a higher one": by_number,
        "an edge (i, j) makes j wait for i": _finish(latencies, [(j, i) for i, j in edges]),
    }


def _row(given: Any, n: int) -> np.ndarray | None:
    """n numbers as an array, None if it is something else."""
    if isinstance(given, (str, bytes, dict, set)) or not hasattr(given, "__len__") or len(given) != n:
        return None
    if not all(isinstance(x, (int, float, np.number)) and not isinstance(x, bool) for x in given):
        return None
    return np.array([float(x) for x in given])


@expects("a function of latencies and edges that returns a list of finish times")
def check_1(finish_times: Callable[[list[float], Edges], Sequence[float]] | None) -> None:
    """Check finish times on chains, forks and random graphs."""
    if finish_times is None:
        _say("Exercise 1: set answer_1 to a function of latencies and edges.")
        return
    if not callable(finish_times):
        _say("Exercise 1: expected a function of latencies and edges that returns a list of finish times.")
        return
    for what, latencies, edges in _graphs():
        try:
            given = finish_times(list(latencies), list(edges))
        except RecursionError:
            _say(f"Exercise 1: for {what} your function calls itself without an end. Hint: who waits for nobody?")
            return
        except Exception as error:  # the reader's code may raise anything
            print(f"Exercise 1: for {what} your function raised {type(error).__name__}: {error}")
            return
        times, right = _row(given, len(latencies)), _finish(latencies, edges)
        if times is None:
            _say(f"Exercise 1: for {what} your function returned {type(given).__name__}; expected a list of "
                 f"{len(latencies)} number{'s' * (len(latencies) > 1)}.")
            return
        if not np.allclose(times, right, rtol=0, atol=1e-9):
            hint = next((hint for hint, wrong in _wrong_finishes(latencies, edges).items()
                         if np.allclose(times, wrong, rtol=0, atol=1e-9)),
                        "an agent's own time comes after the last finish time of all that have an edge to it")
            j = int(np.flatnonzero(~(np.abs(times - right) <= 1e-9))[0])
            case = f" (latencies {list(latencies)}, edges {list(edges)})" if len(latencies) <= 4 else ""
            _say(f"Exercise 1: for {what}{case} your time of agent {j} is {times[j]:g}. Hint: {hint}.")
            return
    _say("Exercise 1: right.")


@cache
def _matchings() -> tuple[tuple[str, np.ndarray, np.ndarray, float], ...]:
    """(what is special, scores, costs, budget); costs and budgets are quarters, so that sums of them are exact."""
    cases = [("one role and one LLM", [[2.0]], [3.0], 3.0),
             ("a budget that pays for nobody", [[2.0], [1.0]], [3.0], 2.0),
             ("one role to fill and two LLMs", [[5.0, 3.0]], [4.0, 2.0], 3.0),
             ("one role and a budget for the dearer LLM", [[5.0, 3.0]], [4.0, 2.0], 4.0),
             ("a role that is better left empty", [[2.0, 1.0], [-1.0, -0.5]], [1.0, 1.0], 4.0),
             ("an LLM that suits two roles", [[3.0, 1.0], [4.0, 1.0]], [2.0, 1.0], 4.0),
             ("one dear pair or two cheap ones", [[5.0, 4.0], [1.0, 4.0]], [4.0, 2.0], 4.0)]
    rng = np.random.default_rng(90)
    for _ in range(20):     # dearer LLMs are better, and the budget is short: there is something to weigh
        n_roles, n_llms = rng.integers((2, 3), 5)
        costs = np.sort(rng.integers(4, 25, n_llms)) / 4
        scores = np.round(8 * np.sqrt(costs) + rng.normal(-3, 3, (n_roles, n_llms))) / 4
        cases.append((f"{n_roles} roles and {n_llms} LLMs", scores, costs, n_roles * rng.integers(6, 16) / 4))
    return tuple((what, np.array(s, float), np.array(c, float), float(b)) for what, s, c, b in cases)


def greedy_match(scores: np.ndarray, costs: np.ndarray, budget: float) -> list[int]:
    """The greedy matching of exercise 2: index of each role's LLM, -1 where it stays empty."""
    scores, costs = np.array(scores, float), np.asarray(costs, float)
    match, left = [-1] * len(scores), float(budget)
    while True:
        open_to = np.where(costs <= left, scores, -np.inf)
        r, m = np.unravel_index(int(open_to.argmax()), scores.shape)
        if not open_to[r, m] > 0:
            return match
        match[r], left = int(m), left - costs[m]
        scores[r] = -np.inf


def _value(match: Sequence[int], scores: np.ndarray) -> float:
    return float(sum(scores[r, m] for r, m in enumerate(match) if m >= 0))


@expects("a function of scores, costs and a budget that returns a list of indices")
def check_2(match: Callable[[np.ndarray, np.ndarray, float], Sequence[int]] | None) -> None:
    """Check matchings by their sum of scores, against the integer program's."""
    if match is None:
        _say("Exercise 2: set answer_2 to a function of scores, costs and budget.")
        return
    if not callable(match):
        _say("Exercise 2: expected a function of scores, costs and a budget that returns a list of indices.")
        return
    from bamas_lite.agentbalance.matching import match_roles
    for what, scores, costs, budget in _matchings():
        n_roles, n_llms = scores.shape
        try:
            given = match(scores.copy(), costs.copy(), budget)
        except Exception as error:  # the reader's code may raise anything
            print(f"Exercise 2: for {what} your function raised {type(error).__name__}: {error}")
            return
        row = _row(given, n_roles)
        if row is None or not all(x in range(-1, n_llms) for x in row):
            got = type(given).__name__ if row is None else ", ".join(f"{x:g}" for x in row)
            _say(f"Exercise 2: for {what} your function returned {got}; expected {n_roles} of the numbers -1 "
                 f"to {n_llms - 1}.")
            return
        found = [int(x) for x in row]
        spent = sum(costs[m] for m in found if m >= 0)
        best = _value(match_roles(scores, costs, budget), scores)
        if spent > budget:
            _say(f"Exercise 2: for {what} your matching costs {spent:g} u$, over the budget of {budget:g} u$. "
                 "Hint: each filled role is paid for.")
            return
        if _value(found, scores) < best - 1e-9:
            hint = ("that is what greedy finds, and there are combinations at which it never looks" if
                    _value(found, scores) == _value(greedy_match(scores, costs, budget), scores) else
                    "nobody has to fill a role" if any(m >= 0 > scores[r, m] for r, m in enumerate(found)) else
                    "an LLM may take several roles" if _value(found, scores) == _value(match_roles(
                        scores, costs, budget, max_copies=1), scores) else
                    "so few roles and LLMs can be tried in all combinations, empty roles among them")
            _say(f"Exercise 2: for {what} your matching has {_value(found, scores):g}, and more is possible. "
                 f"Hint: {hint}.")
            return
    _say("Exercise 2: right.")


_AREAS: tuple[tuple[str, list[float], list[float], list[float]], ...] = (
    ("a single setting", [50.0], [0.6], [100.0, 250.0]),
    ("settings in any order", [300.0, 80.0, 150.0], [0.9, 0.4, 0.7], [100.0, 200.0, 300.0, 400.0]),
    ("a dear setting that is worse", [80.0, 150.0, 250.0], [0.4, 0.8, 0.5], [100.0, 200.0, 300.0]),
    ("a grid that is not even", [80.0, 400.0], [0.4, 0.9], [100.0, 200.0, 800.0]),
    ("a setting that spends exactly a budget", [100.0, 200.0], [0.5, 0.8], [100.0, 200.0, 300.0]),
    ("a grid that starts below the cheapest setting", [150.0, 320.0], [0.5, 0.8], [100.0, 200.0, 300.0, 400.0]),
    ("a grid that pays for no setting", [900.0], [0.9], [100.0, 200.0]),
)
"""What is special, spend, accuracy, grid."""


def _wrong_areas(spend: list[float], accuracy: list[float], grid: list[float]) -> dict[str, float]:
    """Hint -> the area that somebody finds who needs it."""
    from bamas_lite.agentbalance.outcomes import auc, best_within
    best = np.array(best_within(spend, accuracy, grid))
    x, width = np.array(grid), grid[-1] - grid[0]
    paid = np.array([min(spend) <= B for B in grid])
    cheapest = accuracy[int(np.argmin(spend))]
    last = [max(((s, a) for s, a in zip(spend, accuracy, strict=True) if s <= B), default=(0, 0))[1] for B in grid]
    below = [max((a for s, a in zip(spend, accuracy, strict=True) if s < B), default=0) for B in grid]
    order = np.argsort(spend)
    steps = np.array(sorted({*grid, *(s for s in spend if grid[0] < s < grid[-1])}))
    return {
        "an area has to be divided by the width": auc(grid, best) * width,
        "divide by the width of the grid, not by its end": auc(grid, best) * width / grid[-1],
        "below the cheapest setting nothing is answered": auc(grid, np.where(paid, best, cheapest)),
        "the budgets that pay for no setting count too": auc(x[paid], best[paid]) if paid.sum() > 1 else np.nan,
        "between two budgets lies a trapezoid, and a wide one counts for more": float(best.mean()),
        "between two budgets lies a trapezoid, not the height at its left end": float(np.diff(x) @ best[:-1] / width),
        "between two budgets lies a trapezoid, not the height at its right end": float(np.diff(x) @ best[1:] / width),
        "trapezoids join the budgets of the grid, and only those":
            float(np.diff(steps) @ best_within(spend, accuracy, steps)[:-1] / width),
        "nobody has to take the dearest setting": auc(grid, last),
        "a setting that spends all of the budget can be paid": auc(grid, below),
        "a setting is run or not: there is nothing between two of them":
            auc(grid, np.interp(grid, np.array(spend)[order], np.array(accuracy)[order])),
    }


@expects("a function of spend, accuracy and grid that returns a number")
def check_3(area: Callable[[list[float], list[float], list[float]], float] | None) -> None:
    """Check the area under the best accuracy within each budget."""
    if area is None:
        _say("Exercise 3: set answer_3 to a function of spend, accuracy and grid.")
        return
    if not callable(area):
        _say("Exercise 3: expected a function of spend, accuracy and grid that returns a number.")
        return
    from bamas_lite.agentbalance.outcomes import auc, best_within
    for what, spend, accuracy, grid in _AREAS:
        try:
            given = area(list(spend), list(accuracy), list(grid))
        except Exception as error:  # the reader's code may raise anything
            print(f"Exercise 3: for {what} your function raised {type(error).__name__}: {error}")
            return
        if isinstance(given, bool) or not isinstance(given, (int, float, np.number)):
            _say(f"Exercise 3: for {what} your function returned {type(given).__name__}; expected a number.")
            return
        if not abs(given - auc(grid, best_within(spend, accuracy, grid))) < 1e-9:
            hint = next((hint for hint, wrong in _wrong_areas(spend, accuracy, grid).items() if
                         abs(given - wrong) < 1e-9), "write down the best accuracy at each budget of the grid first")
            _say(f"Exercise 3: for {what} your function returns {given:.4f}. Hint: {hint}.")
            return
    _say("Exercise 3: right.")
