"""The checks of notebook 09: hints for what is wrong, never the answer (its solutions notebook has what is right)."""

import itertools

import networkx as nx
import numpy as np
import pytest
from test_exercises_odd_answers import ODD

from bamas_lite.exercises import n09
from bamas_lite.exercises.n09 import check_1, check_2, check_3, greedy_match


def said_by(check, answer, capsys):
    check(answer)
    said = capsys.readouterr().out
    assert said.startswith("Exercise") and max(map(len, said.splitlines())) <= 115
    return " ".join(said.split()) + "\n"


def finish_times(latencies, edges):
    """Longest ways that end at each agent, by networkx: a node before all turns times into lengths of edges."""
    graph = nx.DiGraph()
    for j, seconds in enumerate(latencies):
        graph.add_edge("start", j, weight=seconds)
    graph.add_weighted_edges_from((i, j, latencies[j]) for i, j in edges)
    return [nx.dag_longest_path_length(graph.subgraph(nx.ancestors(graph, j) | {j})) for j in range(len(latencies))]


def before(edges, j):
    return [i for i, k in edges if k == j]


def test_longest_ways_of_networkx_are_right(capsys):
    assert said_by(check_1, finish_times, capsys) == "Exercise 1: right.\n"
    assert said_by(check_1, lambda x, e: tuple(finish_times(x, e)), capsys) == "Exercise 1: right.\n"
    assert said_by(check_1, lambda x, e: np.array(finish_times(x, e)), capsys) == "Exercise 1: right.\n"


def by_number(latencies, edges):
    times = []
    for j, seconds in enumerate(latencies):
        times.append(seconds + max((times[i] for i in before(edges, j) if i < j), default=0))
    return times


def in_order_of_edges(latencies, edges):
    """One pass over the edges as they come: right only when they come in topological order."""
    times = list(latencies)
    for i, j in edges:
        times[j] = max(times[j], times[i] + latencies[j])
    return times


def summed(latencies, edges):
    def time(j):
        return latencies[j] + sum(time(i) for i in before(edges, j))
    return [time(j) for j in range(len(latencies))]


def endless(latencies, edges):
    return endless(latencies, edges)


@pytest.mark.parametrize(("answer", "words"), [
    (None, "set answer_1"), (3, "expected a function"), (lambda x, e: max(finish_times(x, e)), "expected a list of 1"),
    (lambda x, e: dict(enumerate(finish_times(x, e))), "returned dict"), (lambda x, e: x[99], "raised IndexError"),
    (lambda x, e: [True] * len(x), "returned list"), (lambda x, e: [float("nan")] * len(x), "agent 0 is nan"),
    (lambda x, e: [None] * len(x), "returned list"), (endless, "without an end"),
    (lambda x, e: list(np.cumsum(x)), "run at the same time"), (summed, "not for one after the other"),
    (lambda x, e: [b - a for a, b in zip(x, finish_times(x, e), strict=True)], "at which the agents start"),
    (lambda x, e: [x[j] + max((x[i] for i in before(e, j)), default=0) for j in range(len(x))], "may have had to wait"),
    (lambda x, e: finish_times(x, [(j, i) for i, j in e]), "makes j wait for i"),
    (by_number, "Exercise 1: for a chain whose numbers fall"), (in_order_of_edges, "may have had to wait"),
    (lambda x, e: [0.0] * len(x), "Hint"),
])
def test_wrong_finish_times_get_a_hint(answer, words, capsys):
    said = said_by(check_1, answer, capsys)
    assert words in said and "right.\n" not in said


def test_an_answer_cannot_change_what_is_asked(capsys):
    def spoils(latencies, edges):
        times = finish_times(latencies, edges)
        latencies.clear()
        edges.clear()
        return times

    def zeroes(scores, costs, budget):
        found = by_enumeration(scores, costs, budget)
        scores *= 0
        costs *= 0
        return found

    assert said_by(check_1, spoils, capsys) == said_by(check_1, finish_times, capsys) == "Exercise 1: right.\n"
    assert said_by(check_2, zeroes, capsys) == said_by(check_2, zeroes, capsys) == "Exercise 2: right.\n"


def value(match, scores):
    return sum(scores[r, m] for r, m in enumerate(match) if m >= 0)


def by_enumeration(scores, costs, budget, choices=None):
    n_roles, n_llms = scores.shape
    fits = [match for match in itertools.product(choices or range(-1, n_llms), repeat=n_roles)
            if sum(costs[m] for m in match if m >= 0) <= budget]
    return max(fits, key=lambda match: value(match, scores))


def never_empty(scores, costs, budget):
    try:
        return by_enumeration(scores, costs, budget, range(len(costs)))
    except ValueError:
        return [-1] * len(scores)


def by_score_per_cost(scores, costs, budget):
    match, left = [-1] * len(scores), budget
    for r, m in sorted(np.ndindex(scores.shape), key=lambda pair: -scores[pair] / costs[pair[1]]):
        if match[r] < 0 < scores[r, m] and costs[m] <= left:
            match[r], left = m, left - costs[m]
    return match


def role_by_role(scores, costs, budget):
    match, left = [], budget
    for row in scores:
        best = max((m for m in range(len(costs)) if costs[m] <= left and row[m] > 0), key=lambda m: row[m], default=-1)
        match.append(best)
        left -= costs[best] if best >= 0 else 0
    return match


def each_llm_once(scores, costs, budget):
    choices = [m for m in itertools.product(range(-1, len(costs)), repeat=len(scores))
               if sum(costs[list(m)][np.array(m) >= 0]) <= budget
               and all(m.count(k) <= 1 for k in range(len(costs)))]
    return max(choices, key=lambda match: value(match, scores))


def test_a_full_enumeration_is_right(capsys):
    assert said_by(check_2, by_enumeration, capsys) == "Exercise 2: right.\n"
    assert said_by(check_2, lambda *a: np.array(by_enumeration(*a)), capsys) == "Exercise 2: right.\n"


@pytest.mark.parametrize(("answer", "words"), [
    (None, "set answer_2"), ([0], "expected a function"), (lambda s, c, b: value, "returned function"),
    (lambda s, c, b: [0.5] * len(s), "returned 0.5; expected"),
    (lambda s, c, b: [len(c)] * len(s), "1 of the numbers -1 to 0"),
    (lambda s, c, b: [None] * len(s), "returned list"), (lambda s, c, b: 1 / 0, "raised ZeroDivisionError"),
    (lambda s, c, b: by_enumeration(s, c, b)[:-1], "returned tuple"),
    (lambda s, c, b: s.argmax(1), "over the budget of 2 u$"), (lambda s, c, b: [-1] * len(s), "tried in all"),
    (greedy_match, "what greedy finds"), (by_score_per_cost, "more is possible"), (role_by_role, "more is possible"),
    (never_empty, "nobody has to fill a role"), (each_llm_once, "an LLM may take several roles"),
])
def test_a_wrong_matching_gets_a_hint(answer, words, capsys):
    said = said_by(check_2, answer, capsys)
    assert words in said and "right.\n" not in said


@pytest.mark.parametrize("heuristic", [greedy_match, by_score_per_cost, role_by_role])
def test_a_heuristic_loses_in_several_cases(heuristic):
    """So that a heuristic that happens to be lucky once does not pass."""
    cases = n09._matchings()
    assert all(float(4 * x).is_integer() for _, _, costs, budget in cases for x in (*costs, budget)), "sums are exact"
    lost = [what for what, *case in cases if value(heuristic(*case), case[0]) < value(by_enumeration(*case), case[0])]
    assert len(lost) >= 4, lost
    for _, scores, costs, budget in cases:
        match = heuristic(scores, costs, budget)
        assert sum(costs[m] for m in match if m >= 0) <= budget, "it keeps to the budget: only its value is lower"


def test_greedy_takes_the_highest_score_it_can_pay():
    scores, costs = np.array([[5.0, 4.0], [1.0, 4.5]]), np.array([4.0, 2.0])
    assert greedy_match(scores, costs, 4.0) == [0, -1]
    assert greedy_match(scores, costs, 6.0) == [0, 1]
    assert greedy_match(scores, costs, 1.0) == [-1, -1]
    assert greedy_match(-scores, costs, 9.0) == [-1, -1]


def best_at(spend, accuracy, B):
    return max((a for s, a in zip(spend, accuracy, strict=True) if s <= B), default=0)


def area(spend, accuracy, grid, best=best_at):
    y = [best(spend, accuracy, B) for B in grid]
    return np.trapezoid(y, grid) / (grid[-1] - grid[0])


def interpolated(spend, accuracy, grid):
    order = np.argsort(spend)
    y = np.interp(grid, np.array(spend)[order], np.maximum.accumulate(np.array(accuracy)[order]), left=0)
    return np.trapezoid(y, grid) / (grid[-1] - grid[0])


def steps(spend, accuracy, grid, at):
    """The best accuracy at one end of each piece of the grid, times its width."""
    return sum(w * best_at(spend, accuracy, B) for w, B in zip(np.diff(grid), at, strict=True)) / (grid[-1] - grid[0])


def from_the_cheapest(spend, accuracy, grid):
    paid = [B for B in grid if B >= min(spend)]
    return area(spend, accuracy, paid) if len(paid) > 1 else 0.0


def cheapest_below(spend, accuracy, B):
    return best_at(spend, accuracy, max(B, min(spend)))


def dearest(spend, accuracy, B):
    return max(((s, a) for s, a in zip(spend, accuracy, strict=True) if s <= B), default=(0, 0))[1]


def last_listed(spend, accuracy, B):
    return [0, *(a for s, a in zip(spend, accuracy, strict=True) if s <= B)][-1]


def test_trapezoids_below_the_best_are_right(capsys):
    assert said_by(check_3, area, capsys) == "Exercise 3: right.\n"


@pytest.mark.parametrize(("answer", "words"), [
    (None, "set answer_3"), (0.5, "expected a function"), (lambda s, a, g: "much", "returned str"),
    (lambda s, a, g: True, "returned bool"), (lambda s, a, g: s[5], "raised IndexError"),
    (lambda s, a, g: float("nan"), "returns nan"), (lambda s, a, g: np.zeros(2), "returned ndarray"),
    (lambda s, a, g: area(s, a, g) * (g[-1] - g[0]), "divided by the width"),
    (lambda s, a, g: area(s, a, g) * (g[-1] - g[0]) / g[-1], "not by its end"),
    (lambda s, a, g: area(s, a, g, cheapest_below), "nothing is answered"),
    (lambda s, a, g: 100 * area(s, a, g), "write down the best accuracy"),
    (lambda s, a, g: steps(s, a, g, g[:-1]), "not the height at its left end"),
    (lambda s, a, g: steps(s, a, g, g[1:]), "not the height at its right end"),
    (lambda s, a, g: steps(s, a, np.arange(g[0], g[-1] + 1), np.arange(g[0], g[-1])), "join the budgets of the grid"),
    (from_the_cheapest, "that pay for no setting count too"),
    (lambda s, a, g: float(np.mean([best_at(s, a, B) for B in g])), "counts for more"),
    (lambda s, a, g: area(s, a, g, dearest), "the dearest setting"),
    (lambda s, a, g: area(s, a, g, last_listed), "settings in any order"),
    (lambda s, a, g: area(s, a, g, lambda s, a, B: max((y for x, y in zip(s, a, strict=True) if x < B), default=0)),
     "can be paid"),
    (interpolated, "nothing between two of them"), (lambda s, a, g: 0.1, "write down the best accuracy"),
])
def test_a_wrong_area_gets_a_hint(answer, words, capsys):
    said = said_by(check_3, answer, capsys)
    assert words in said and "right.\n" not in said


@pytest.mark.parametrize("number", [1, 2, 3])
def test_no_answer_makes_a_check_raise(number, capsys):
    for name, answer in ODD.items():
        said = said_by(getattr(n09, f"check_{number}"), answer, capsys)
        assert said.startswith(f"Exercise {number}: ") and "right.\n" not in said, name
