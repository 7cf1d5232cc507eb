"""Exercises of notebook 08: each check says right, or gives a hint, and never the answer."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pandas as pd

from bamas_lite.exercises import expects

NEW_BUDGET = 5000
"""u$; large enough that the topologies' rules, not the budget, limit what an episode can cost."""

exercise_1 = f"""\
Exercise 1: one more budget, before it is run.
You want to add the budget of {NEW_BUDGET} u$ to this notebook's recording: all its tasks, the four topologies, into the
same file. Which spend_cap_usd is the least of which you can be sure beforehand that the run comes to its end,
whatever the LLMs reply?
answer_1 = a number, in USD"""

exercise_2 = """\
Exercise 2: a longer chain.
In Linear let every agent after the first keep a right answer with chance k and repair a wrong one with chance g,
as in equation (2). Write a function of p1, k, g and n which returns the share of right answers after n agents: p1
for n = 1, p2 for n = 2, and so on, for any chances from 0 to 1. Where does a long chain end, and when is that
above p1?
answer_2 = your function"""

exercise_3 = """\
Exercise 3: what is left under a cap.
Write a function of a ledger (a table as load_ledger returns it) and a cap in USD that returns how many USD further
calls of its recording may cost. No call is in flight. `unconfirmed` is what a call that broke off may have cost at
most, in u$ as `cost` is: nobody knows, so it is no cost, but the cap must hold whatever comes out.
answer_3 = your function"""


@cache
def _bounds() -> tuple[float, float, float]:
    """USD: what the recording has cost, the worst case of the new episodes, and what their budgets allow."""
    from bamas_lite.estimates import estimate_cost
    from bamas_lite.local_study import RECORDING, local_pool, local_tasks
    from bamas_lite.pool import ATOMS
    from bamas_lite.topologies import TOPOLOGIES
    pool, tasks = local_pool(), local_tasks()
    calls = pd.read_parquet(RECORDING, columns=["llm", "prompt_tokens", "completion_tokens"])
    atoms = sum(pool[row.llm].cost_atoms(row.prompt_tokens, row.completion_tokens) for row in calls.itertuples())
    worst = estimate_cost(tasks, [NEW_BUDGET], TOPOLOGIES, pool, sample=1).worst_usd
    return atoms / ATOMS / 1e6, worst, len(tasks) * len(TOPOLOGIES) * NEW_BUDGET / 1e6


@expects("a number, in USD")
def check_1(cap: float | None) -> None:
    """Check the cap of exercise 1."""
    if cap is None:
        print("Exercise 1: set answer_1 to a number of USD.")
        return
    if isinstance(cap, bool) or not isinstance(cap, (int, float, np.number)) or not np.isfinite(cap):
        print("Exercise 1: expected a number, in USD.")
        return
    paid, worst, allowed = _bounds()
    if abs(cap / 1e6 / (paid + worst) - 1) < 0.01:
        print("Exercise 1: the right amount in u$; a cap is in USD.")
    elif abs(cap / worst - 1) < 0.01:
        print("Exercise 1: this is the worst case of the new episodes. Hint: a cap counts what all calls of the\n"
              "recording cost together, over all sittings.")
    elif abs(cap / allowed - 1) < 0.01 or abs(cap / (allowed + paid) - 1) < 0.01:
        print("Exercise 1: enough, as no episode passes its budget. Hint: but a topology makes only so many calls,\n"
              "and estimate_cost counts them.")
    elif cap < 0.999 * (paid + worst):
        print("Exercise 1: with your cap the run might be stopped. Hint: an expectation is no bound; and what has the\n"
              "recording cost so far (part 3)?")
    elif cap > 1.01 * (paid + worst):
        print("Exercise 1: enough, but less is too. Hint: which row of the estimate is a bound?")
    else:
        print("Exercise 1: right.")


_CHAINS = ((0.5, 0.7, 0.2, 1), (0.5, 0.7, 0.2, 2), (0.5, 0.7, 0.2, 3), (0.9, 0.95, 0.3, 7), (0.3, 0.2, 0.8, 4),
           (0.3, 1.0, 0.0, 5), (0.3, 0.0, 1.0, 6), (0.2, 0.99, 0.001, 300))
"""p1, k, g, n."""


def _chain(p1: float, k: float, g: float, n: int) -> float:
    p = p1
    for _ in range(n - 1):
        p = p * k + (1 - p) * g
    return p


@expects("a function of p1, k, g and n that returns a number")
def check_2(chain: Callable[[float, float, float, int], float] | None) -> None:
    """Check the share of right answers after n agents."""
    if chain is None:
        print("Exercise 2: set answer_2 to a function of p1, k, g and n.")
        return
    if not callable(chain):
        print("Exercise 2: expected a function of p1, k, g and n that returns a number.")
        return
    for case in _CHAINS:
        what = "for p1 = {}, k = {}, g = {}, n = {}".format(*case)
        try:
            given = chain(*case)
        except ZeroDivisionError:
            print(f"Exercise 2: {what} your function divides by zero. Hint: who keeps everything and repairs nothing?")
            return
        except Exception as error:  # the reader's code may raise anything
            print(f"Exercise 2: {what} your function raised {type(error).__name__}: {error}")
            return
        if isinstance(given, bool) or not isinstance(given, (int, float, np.number)):
            print(f"Exercise 2: {what} your function returned {type(given).__name__}; expected a number.")
            return
        p1, k, g, n = case
        if not abs(given - _chain(*case)) < 1e-9:
            hint = ("the first agent sees no answer" if n == 1 else
                    "that is one agent too many" if abs(given - _chain(p1, k, g, n + 1)) < 1e-9 else
                    "that is one agent too few" if abs(given - _chain(p1, k, g, n - 1)) < 1e-9 else
                    "what was repaired before can be spoiled again" if n > 2 else
                    "right answers come from two sources: kept ones and repaired ones")
            print(f"Exercise 2: {what} your function returns {given:.4f}. Hint: {hint}.")
            return
    print("Exercise 2: right.")


def _ledgers() -> list[tuple[str, pd.DataFrame, float, float]]:
    """(what is special, ledger, cap, right answer in USD)."""
    def ledger(*rows: tuple[float, float, str]) -> pd.DataFrame:
        columns = ["cost", "unconfirmed", "status"]
        return pd.DataFrame(rows, columns=columns).astype({"cost": float, "unconfirmed": float, "status": object})

    plain = ledger((100.0, 0.0, "ok"), (250.0, 0.0, "ok"))
    failed = ledger((100.0, 0.0, "ok"), (40.0, 0.0, "failed"), (60.0, 0.0, "usage missing"))
    broken = ledger((100.0, 0.0, "ok"), (0.0, 400.0, "unconfirmed"), (80.0, 120.0, "ok"))
    return [("calls that went well", plain, 0.001, 0.00065), ("billed calls that failed", failed, 0.001, 0.0008),
            ("calls that broke off", broken, 0.001, 0.0003), ("a cap that was lowered later", plain, 0.0002, 0.0),
            ("an empty ledger", plain.iloc[:0], 0.5, 0.5)]


@expects("a function of a ledger and a cap that returns a number of USD")
def check_3(left: Callable[[pd.DataFrame, float], float] | None) -> None:
    """Check what is left under a cap, on small ledgers."""
    if left is None:
        print("Exercise 3: set answer_3 to a function of a ledger and a cap.")
        return
    if not callable(left):
        print("Exercise 3: expected a function of a ledger and a cap that returns a number of USD.")
        return
    for what, ledger, cap, right in _ledgers():
        try:
            given = left(ledger.copy(), cap)
        except Exception as error:  # the reader's code may raise anything
            print(f"Exercise 3: for {what} your function raised {type(error).__name__}: {error}")
            return
        if isinstance(given, bool) or not isinstance(given, (int, float, np.number)) or not np.isfinite(given):
            print(f"Exercise 3: for {what} your function returned {type(given).__name__}; expected a number of USD.")
            return
        if abs(given - right) > 1e-9:
            hint = ("a cap is in USD, a ledger in u$" if abs(given) > 10 * cap else
                    "nothing is left, which is not the same as a debt" if given < 0 else
                    "a call that broke off may have been billed, at its worst case" if "broke off" in what else
                    "whatever was billed counts, whether it was of use or not")
            print(f"Exercise 3: for {what} your function returns {given:.6f} USD. Hint: {hint}.")
            return
    print("Exercise 3: right.")
