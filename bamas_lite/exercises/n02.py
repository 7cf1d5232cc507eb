"""Exercises of notebook 02: each check says right, or gives a hint, and never the answer."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from bamas_lite.exercises import expects
from bamas_lite.pool import Pool, exact, load_pool
from bamas_lite.provisioning import ROLE_LIMITS, InfeasibleBudgetError, provision

exercise_1 = """\
Exercise 1: how expensive may it get?
The paper's pool, 500 tokens in, 384 out, budget 1250 u$. Up to which completion price of DeepSeek-V3 (u$ per token, all
other prices unchanged) does the team have two agents of it? Give it to three decimals, rounded down.
answer_1 = the price"""

exercise_2 = """\
Exercise 2: in time.
A Linear team runs its agents one after the other, so its time is the sum of theirs. Write a function that returns the
largest vector (agents per tier, strongest first, as a tuple; one LLM per tier) within the budget and within `limit`
seconds, with at least 2 agents in all and at most 5 copies of an LLM - or None if there is no such team. All numbers
are whole. An integer program or enumeration: as you like.
answer_2 = your function(costs, seconds, budget, limit) -> tuple or None"""

exercise_3 = """\
Exercise 3: a team for Feedback.
From which budget on (u$) does the paper's pool, provisioned with ROLE_LIMITS["feedback"], have two executors of the
stronger LLM?
answer_3 = the least budget"""


def _pool(price_out: Fraction) -> Pool:
    """The paper's pool with another completion price of its stronger LLM."""
    data = load_pool("paper").model_dump()
    data["llms"][0]["price_out"] = price_out
    return Pool(**data)


@expects("a price in u$ per token")
def check_1(price: Any) -> None:
    """Check the largest price at which two agents of the stronger LLM are hired."""
    if price is None:
        print("Exercise 1: set answer_1 to a price in u$ per token.")
        return
    try:
        given = exact(price, "answer_1")
        strong = [provision(_pool(p), 1250, method="lexicographic").tier_counts[0]
                  for p in (given, given + Fraction(1, 1000))]
    except ValueError as error:
        print(f"Exercise 1: not a price that works here: {str(error).splitlines()[0]}")
        return
    if strong[0] < 2:
        print("Exercise 1: at that price the team has no two of them. Hint: what may one call cost at the most?")
    elif strong[1] >= 2:
        print("Exercise 1: it may cost even more. Hint: take the prompt's cost from the most that a call may cost.")
    else:
        print("Exercise 1: right.")


@expects("a function of costs, seconds, budget and limit that returns a tuple or None")
def check_2(team_in_time: Callable[[list[int], list[int], int, int], Sequence[int] | None] | None) -> None:
    """Check teams under a time limit against enumeration."""
    if team_in_time is None:
        print("Exercise 2: set answer_2 to a function of costs, seconds, budget and limit.")
        return
    rng = random.Random(2)
    for _ in range(40):
        tiers = rng.randint(2, 3)
        costs, seconds = ([rng.randint(1, 12) for _ in range(tiers)] for _ in range(2))
        budget, limit = rng.randint(5, 40), rng.randint(5, 40)
        teams = [n for n in itertools.product(range(6), repeat=tiers) if sum(n) >= 2
                 and sum(k * c for k, c in zip(n, costs, strict=True)) <= budget]
        right = max((n for n in teams if sum(k * s for k, s in zip(n, seconds, strict=True)) <= limit), default=None)
        case = f"costs {costs}, seconds {seconds}, budget {budget}, limit {limit}"
        try:
            given = team_in_time(list(costs), list(seconds), budget, limit)
            given = None if given is None else tuple(int(k) for k in given)
        except Exception as error:  # the reader's code may raise anything
            print(f"Exercise 2: for {case} your function raised {type(error).__name__}: {error}")
            return
        if given != right:
            hint = ("no team keeps both limits" if right is None else "there is a team that keeps both limits"
                    if given is None else "that team breaks a rule" if given not in teams or given > right
                    else "a larger vector keeps all rules")
            print(f"Exercise 2: for {case} your function returns {given}. Hint: {hint}.")
            return
    print("Exercise 2: right.")


@expects("a budget in u$")
def check_3(budget: Any) -> None:
    """Check the least budget at which Feedback has two strong executors."""
    if budget is None:
        print("Exercise 3: set answer_3 to a budget in u$.")
        return
    try:
        given = exact(budget, "answer_3")
        strong = [_strong_executors(b) for b in (given, given - Fraction(1, 1000))]
    except ValueError as error:
        print(f"Exercise 3: not a budget that works here: {' '.join(str(error).split())}")
        return
    if strong[0] < 2:
        print(f"Exercise 3: it pays for {strong[0]} of them, not for 2. Hint: who else must be paid, at the least?")
    elif strong[1] >= 2:
        print("Exercise 3: a smaller budget will do. Hint: follow team.next_budget from the least budget upwards.")
    else:
        print("Exercise 3: right.")


def _strong_executors(budget: Fraction) -> int:
    """Executors of tier 1 in the Feedback team of a budget; 0 where there is no team."""
    try:
        team = provision(load_pool("paper"), budget, roles=ROLE_LIMITS["feedback"], method="lexicographic")
    except InfeasibleBudgetError:
        return 0
    return sum(slot.role == "executor" and slot.llm.tier == 1 for slot in team.slots)
