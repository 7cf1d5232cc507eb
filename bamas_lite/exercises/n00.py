"""Exercises of notebook 00: each check says right, or gives a hint, and never the answer."""

from __future__ import annotations

from numbers import Real
from typing import Any

from bamas_lite.exercises import expects
from bamas_lite.pool import load_pool
from bamas_lite.provisioning import InfeasibleBudgetError, provision

exercise_1 = """\
Exercise 1: a price.
DeepSeek-V3 costs 0.27 u$ per prompt token and 1.10 u$ per completion token. What does one call with 640 prompt tokens
and 210 completion tokens cost, in u$?
answer_1 = a number"""

exercise_2 = """\
Exercise 2: the cheapest team.
Which is the smallest budget (u$ for one task) at which the paper's pool still gives a team? Ask `provision` for less
than it can do and read what it says, or work it out from the prices.
answer_2 = a number"""

exercise_3 = """\
Exercise 3: a price change.
Suppose that the price of DeepSeek-V3 falls by half, for prompts and for completions. How many agents of each tier does
a budget of 1250 u$ buy then? Build the pool with `Pool` and `LLM`, or change a copy of the file and load it.
answer_3 = (agents of tier 1, agents of tier 2)"""


@expects("a number of u$")
def check_1(answer: Any) -> None:
    """Check the cost of exercise 1."""
    llm = load_pool("paper")["DeepSeek-V3"]
    right = float(llm.call_cost(640, 210))
    if answer is None:
        print("Exercise 1: set answer_1 to a number of u$.")
    elif not _is_number(answer):
        print("Exercise 1: expected a number.")
    elif abs(answer - right) < 0.01:
        print("Exercise 1: right.")
    elif abs(answer - float(llm.call_cost(210, 640))) < 0.01:
        print("Exercise 1: not yet. Hint: which of the two prices belongs to the prompt?")
    else:
        print("Exercise 1: not yet. Hint: each kind of token has a price of its own; add the two products.")


@expects("a number of u$")
def check_2(answer: Any) -> None:
    """Check the least budget of exercise 2."""
    try:
        provision(load_pool("paper"), 0)
    except InfeasibleBudgetError as error:
        right = error.least_budget
    if answer is None:
        print("Exercise 2: set answer_2 to a number of u$.")
    elif not _is_number(answer):
        print("Exercise 2: expected a number.")
    elif abs(answer - right) < 0.01:
        print("Exercise 2: right.")
    elif abs(2 * answer - right) < 0.01:
        print("Exercise 2: not yet. Hint: a multi-agent system has at least two agents.")
    else:
        print("Exercise 2: not yet. Hint: the error of a budget that is too small has an attribute least_budget.")


@expects("two whole numbers, tier 1 first")
def check_3(answer: Any) -> None:
    """Check the team of exercise 3."""
    pool = load_pool("paper")
    cheaper = [{**dict(m), "price_in": m.price_in / 2, "price_out": m.price_out / 2} if m.tier == 1 else dict(m)
               for m in pool.llms]
    right = provision(type(pool)(name="cheaper", llms=cheaper), 1250).tier_counts
    if answer is None:
        print("Exercise 3: set answer_3 to two whole numbers, tier 1 first.")
    elif not isinstance(answer, (list, tuple)) or len(answer) != 2:
        print("Exercise 3: expected two whole numbers, tier 1 first.")
    elif tuple(answer) == tuple(right):
        print("Exercise 3: right.")
    elif answer[0] != right[0]:
        print("Exercise 3: not yet. Hint: how often does the new cost of a tier-1 call fit into the budget?")
    else:
        print("Exercise 3: not yet. Hint: what is left when tier 1 is bought, and what does an agent of tier 2 cost?")


def _is_number(answer: Any) -> bool:
    return isinstance(answer, Real) and not isinstance(answer, bool)
