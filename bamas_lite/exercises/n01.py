"""Exercises of notebook 01: each check says right, or gives a hint, and never the answer."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any

from bamas_lite.exercises import expects
from bamas_lite.weights import recursive_weights

exercise_1 = """\
Exercise 1: weights by hand.
Three tiers, strongest first. A call costs 9 u$ in tier 1; tier 2 has two LLMs, at 4 and at 6 u$; tier 3 costs 2 u$. The
budget is 20 u$. What are the recursive weights?
answer_1 = [W_1, W_2, W_3]"""

exercise_2 = """\
Exercise 2: break the average.
Find three tiers, strongest first, each with one or two LLMs whose calls cost whole u$, and a budget of at most 40 u$,
for which weights from the average costs choose a team that is not the largest vector (at least 2 agents, at most 5
copies of an LLM; a tie in weight does not count as wrong).
answer_2 = (tiers, budget), such as ([[9], [4, 6], [2]], 20)"""

exercise_3 = """\
Exercise 3: smaller weights.
An LLM has at most max_copies copies, but equation (2) does not use that. Write a function of the costs (one LLM per
tier, strongest first), the budget and max_copies, which returns weights that still dominate - the heaviest affordable
team is the largest vector - and are as small as they can be made by counting the agents of each tier correctly.
answer_3 = your function(costs, budget, max_copies) -> list of weights"""


@expects("three whole numbers")
def check_1(answer: Sequence[int] | None) -> None:
    """Check the weights of exercise 1."""
    if answer is None:
        print("Exercise 1: set answer_1 to a list of three whole numbers, strongest tier first.")
        return
    right = recursive_weights([9, [4, 6], 2], 20)
    try:
        given = [int(w) for w in answer]
    except (TypeError, ValueError):
        given = []
    if len(given) != len(right):
        print("Exercise 1: expected three whole numbers.")
        return
    hints = {2: "the weakest tier has nothing below it", 1: "count the agents of tier 3 that the whole budget buys",
             0: "tier 2 counts with its cheapest LLM, and tiers 2 and 3 both count with the whole budget"}
    for i, hint in hints.items():
        if given[i] != right[i]:
            print(f"Exercise 1: W_{i + 1} is not right. Hint: {hint}.")
            return
    print("Exercise 1: right.")


def _vectors(tiers: Sequence[Sequence[int]], budget: int) -> list[tuple[int, ...]]:
    """Agents per tier of all affordable teams of at least 2 agents and at most 5 copies of an LLM."""
    llms = [(t, c) for t, costs in enumerate(tiers) for c in costs]
    found = set()
    for copies in itertools.product(range(6), repeat=len(llms)):
        if sum(copies) >= 2 and sum(n * c for n, (_, c) in zip(copies, llms, strict=True)) <= budget:
            found.add(tuple(sum(n for n, (tier, _) in zip(copies, llms, strict=True) if tier == t)
                            for t in range(len(tiers))))
    return sorted(found)


def _weigh(vector: Sequence[int], weights: Sequence[Any]) -> Any:
    return sum(n * w for n, w in zip(vector, weights, strict=True))


@expects("three tiers of one or two whole costs, and a whole budget of at most 40")
def check_2(answer: tuple[Sequence[Sequence[int]], int] | None) -> None:
    """Check a counterexample to weights from average costs."""
    if answer is None:
        print("Exercise 2: set answer_2 to a pair (tiers, budget).")
        return
    try:
        tiers, budget = [list(costs) for costs in answer[0]], answer[1]
        whole = all(isinstance(c, int) and c >= 1 for c in [budget, *itertools.chain(*tiers)])
    except (TypeError, ValueError, IndexError):
        whole = False
    if not whole or len(tiers) != 3 or not all(1 <= len(costs) <= 2 for costs in tiers) or budget > 40:
        print("Exercise 2: expected three tiers of one or two whole costs, and a whole budget of at most 40.")
        return
    vectors = _vectors(tiers, budget)
    if not vectors:
        print("Exercise 2: this budget pays for no team of two.")
        return
    weights = recursive_weights(tiers, budget, tier_cost="average")
    heaviest = max(_weigh(v, weights) for v in vectors)
    if _weigh(vectors[-1], weights) < heaviest:
        print("Exercise 2: right.")
        return
    print(f"Exercise 2: not yet: with weights {weights} the largest vector, {vectors[-1]}, is heaviest. Hint: a weak "
          "tier must be able to hold more agents than budget / average cost; how cheap must its cheap LLM be then?")


@expects("a function of costs, budget and max_copies that returns one whole weight a tier")
def check_3(weights_of: Callable[[list[int], int, int], Sequence[int]] | None) -> None:
    """Check that smaller weights still dominate, and how small they are."""
    if weights_of is None:
        print("Exercise 3: set answer_3 to a function of costs, budget and max_copies.")
        return
    rng = random.Random(1)
    for _ in range(60):
        costs, max_copies = [rng.randint(1, 9) for _ in range(rng.randint(2, 4))], rng.randint(1, 4)
        budget = rng.randint(5, 30)
        case = f"costs {costs}, budget {budget}, max_copies {max_copies}"
        try:
            weights = [int(w) for w in weights_of(list(costs), budget, max_copies)]
        except Exception as error:  # the reader's code may raise anything
            print(f"Exercise 3: for {case} your function raised {type(error).__name__}: {error}")
            return
        if len(weights) != len(costs):
            print(f"Exercise 3: for {case} expected {len(costs)} weights, got {len(weights)}.")
            return
        teams = [n for n in itertools.product(range(max_copies + 1), repeat=len(costs)) if _weigh(n, costs) <= budget]
        largest = max(teams)
        if any(_weigh(n, weights) >= _weigh(largest, weights) for n in teams if n != largest):
            print(f"Exercise 3: for {case} weights {weights} do not make {largest} the heaviest. Hint: how many agents "
                  "of a tier can a team hold at the most? The smaller of two numbers.")
            return
        largest_needed = [1]
        for c in reversed(costs[1:]):
            largest_needed.insert(0, largest_needed[0] * (1 + min(budget // c, max_copies)))
        if any(w > needed for w, needed in zip(weights, largest_needed, strict=True)):
            print(f"Exercise 3: for {case} weights {weights} dominate, but can be smaller. Hint: floor(B / c_j) counts "
                  "agents that max_copies forbids.")
            return
    print("Exercise 3: right.")
