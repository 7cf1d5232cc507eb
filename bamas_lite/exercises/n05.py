"""Exercises of notebook 05: each check says right, or gives a hint, and never the answer."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from typing import Any

from bamas_lite.casting import Agent
from bamas_lite.exercises import expects
from bamas_lite.llm import BudgetMeter, Reply, Usage
from bamas_lite.pool import LLM
from bamas_lite.prompts import section
from bamas_lite.tasks import Task

exercise_1 = """\
Exercise 1: what the guard lets through.
Three agents share one LLM (0.27 u$ per prompt token, 1.10 u$ per completion token, at most 384 completion tokens).
Every prompt is bounded by 200 tokens and has 200; every reply uses 100. The budget is 700 u$, an executor's useful
minimum is 128 tokens. Which max_tokens does each call get that is made, in Star and in Linear, when the guard reserves?
answer_1 = {"star": [...], "linear": [...]}, one number for each call that is made."""

exercise_2 = """\
Exercise 2: the vote.
Write a function that takes the votes of a Star in slot order, as pairs (tier, answer), tier 1 being the strongest, and
returns the answer that wins: most votes; then more votes of the stronger tier; then the earliest slot.
answer_2 = your function"""

exercise_3 = """\
Exercise 3: a topology of your own.
Write `async def relay(task, agents, call)`, which returns (answer, stop_reason) as the four topologies do. The weakest
agent answers first (agents come strongest first); each next agent sees the answer before its own
(`executor_messages(task, earlier=call.answer)`). As soon as two answers in a row agree (`extract_answer`; what cannot
be read agrees with nothing), it stops: the stronger agents that are left are not paid for. The stop reason is
"finished". `await call(agent, messages)` makes a call and returns its reply; `call.answer` is the last complete answer.
answer_3 = relay"""

_LLM = LLM(name="LLM", price_in=0.27, price_out=1.10, max_tokens=384, tier=1)
_WEAK = LLM(name="weaker LLM", price_in=0.10, price_out=0.40, max_tokens=384, tier=2)
_TASK = Task("exercise/1", "arithmetic", 1, "Three apples and four apples: how many are there?", "7")


@expects("a dict with the keys star and linear, and a list of numbers for each")
def check_1(answer: dict[str, list[int]] | None) -> None:
    """Check the limits of exercise 1."""
    if answer is None:
        print("Exercise 1: set answer_1 to a dict with two lists, for star and for linear.")
        return
    if not (isinstance(answer, dict) and set(answer) == {"star", "linear"}
            and all(isinstance(limits, (list, tuple)) for limits in answer.values())):
        print("Exercise 1: expected a dict with the keys star and linear, and a list for each.")
        return
    right = {"star": _limits(settle_at_once=False), "linear": _limits(settle_at_once=True)}
    hints = {"star": "all calls are reserved before any is made: what a reply leaves unused comes back too late",
             "linear": "when a call is settled, what it did not use is free again for the next one"}
    for name in ("star", "linear"):
        given = list(answer[name])
        if given != right[name]:
            what = "the number of calls" if len(given) != len(right[name]) else "a limit"
            print(f"Exercise 1: {what} of {name} is not right. Hint: {hints[name]}.")
            return
    print("Exercise 1: right.")


def _limits(settle_at_once: bool) -> list[int]:
    meter, limits = BudgetMeter(700), []
    for _ in range(3):
        reservation = meter.reserve(_LLM, 200, 384)
        if reservation is None:
            break
        limits.append(reservation.max_tokens)
        if settle_at_once:
            meter.settle(reservation, Usage(200, 100))
    return limits


@expects("a function of a list of pairs (tier, answer) that returns an answer")
def check_2(winner: Callable[[list[tuple[int, str]]], str] | None) -> None:
    """Check a vote against all votes of up to four agents."""
    if winner is None:
        print("Exercise 2: set answer_2 to a function of a list of pairs (tier, answer).")
        return
    if not callable(winner):
        print("Exercise 2: expected a function of a list of pairs (tier, answer).")
        return
    for n in (1, 2, 3, 4):
        for tiers in itertools.combinations_with_replacement((1, 2, 3), n):
            for answers in itertools.product("abc", repeat=n):
                votes = list(zip(tiers, answers, strict=True))
                try:
                    given = winner(list(votes))
                except Exception as error:  # the reader's code may raise anything
                    print(f"Exercise 2: on {votes} your function raised {type(error).__name__}: {error}")
                    return
                right, rule = _winner(votes)
                if given != right:
                    print(f"Exercise 2: on {votes} your function returns {given!r}. Hint: here {rule} decides.")
                    return
    print("Exercise 2: right.")


def _winner(votes: list[tuple[int, str]]) -> tuple[str, str]:
    """The winner and the rule that decided."""
    left = list(dict.fromkeys(answer for _, answer in votes))
    rule = "unanimity"
    for tier in (None, 1, 2, 3):
        counts = {a: sum(answer == a and tier in (None, t) for t, answer in votes) for a in left}
        best = [a for a in left if counts[a] == max(counts.values())]
        if len(best) < len(left):
            rule = "the number of votes" if tier is None else f"the number of votes of tier {tier}"
        left = best
    return left[0], rule if len(left) == 1 else "the earliest slot"


@expects("a coroutine function relay(task, agents, call) that returns (answer, stop_reason)")
def check_3(relay: Callable[..., Any] | None) -> None:
    """Check a relay on scripted replies."""
    if relay is None:
        print("Exercise 3: set answer_3 to your coroutine function relay(task, agents, call).")
        return
    if not callable(relay):
        print("Exercise 3: expected a function, relay(task, agents, call), not the result of calling it.")
        return
    agents = [Agent(f"executor {i}", "executor", llm, None) for i, llm in enumerate((_LLM, _LLM, _WEAK), 1)]
    for replies, n_calls, what in ((["#### 5", "#### 6", "#### 7"], 3, "when no two answers in a row agree"),
                                   (["#### 7", "#### 7", "#### 8"], 2, "when the first two answers agree"),
                                   (["So it is 7.\n#### 7", "#### 7.0", "#### 8"], 2,
                                    "when two answers agree that are worded differently"),
                                   (["I do not know.", "Nor do I.", "#### 7"], 3,
                                    "when there is no answer to agree on")):
        call = _Script(replies)
        try:
            coroutine = relay(_TASK, agents, call)
            if not inspect.iscoroutine(coroutine):
                print("Exercise 3: expected a coroutine function: write it with async def.")
                return
            coroutine.send(None)
            print("Exercise 3: your coroutine waits for something else than call(...).")
            coroutine.close()
            return
        except StopIteration as done:
            outcome = done.value
        except Exception as error:  # the reader's code may raise anything
            print(f"Exercise 3: {what} your function raised {type(error).__name__}: {error}")
            return
        problem = _problem(call, outcome, replies, n_calls)
        if problem:
            print(f"Exercise 3: {what}: {problem}")
            return
    print("Exercise 3: right.")


def _problem(call: _Script, outcome: Any, replies: list[str], n_calls: int) -> str | None:
    """What is wrong with a relay's calls and outcome; None if nothing is."""
    order = [agent.name for agent, _ in call.made]
    if order != [f"executor {i}" for i in (3, 2, 1)][:len(order)]:
        return f"the agents called were {', '.join(order)}. Hint: the weakest comes first."
    if len(order) != n_calls:
        return f"{len(order)} calls were made. Hint: compare what extract_answer finds in neighboring answers."
    for k, (_, messages) in enumerate(call.made):
        if section(messages[-1]["content"], "earlier_answer") != (replies[k - 1] if k else None):
            return f"the prompt of call {k + 1} does not carry the answer before it (the first carries none)."
    if outcome != (replies[n_calls - 1], "finished"):
        return "the outcome is not the last answer with the stop reason 'finished'."
    return None


class _Script:
    """Stands in for a Caller: gives its replies in order and notes the calls."""

    def __init__(self, replies: list[str]) -> None:
        self.replies, self.made, self.answer = replies, [], None

    async def __call__(self, agent: Agent, messages: list[dict[str, str]]) -> Reply:
        self.made.append((agent, messages))
        self.answer = self.replies[len(self.made) - 1]
        return Reply(self.answer, Usage(10, 10), 0.0)
