"""The checks of notebook 08: hints for what is wrong, never the answer (its solutions notebook has what is right)."""

import asyncio
import json

import pytest
from test_exercises_odd_answers import ODD

from bamas_lite import (
    TOPOLOGIES,
    CachedChat,
    Reply,
    RunStopped,
    Usage,
    estimate_cost,
    export_ledger,
    load_ledger,
    local_study,
)
from bamas_lite.exercises import n08
from bamas_lite.exercises.n08 import NEW_BUDGET, check_1, check_2, check_3
from bamas_lite.pool import ATOMS
from bamas_lite.simulator_check.halves import episodes_of
from bamas_lite.wire import request_body


@pytest.fixture(scope="module")
def costs():
    """What the recording has cost, call by call as the episodes made them, and the worst case of one more budget."""
    tasks, pool = local_study.local_tasks(), local_study.local_pool()
    episodes = episodes_of(tasks, local_study.LOCAL_BUDGETS, pool, local_study.replay_backend())
    paid = {(c.llm.name, json.dumps(request_body(c.llm, list(c.messages), c.max_tokens))): c.cost
            for e in episodes for c in e.calls}
    return sum(paid.values()) / 1e6, estimate_cost(tasks, [NEW_BUDGET], TOPOLOGIES, pool, sample=1)


def chain(p1, k, g, n):
    """Closed form: the share goes to g / (1 - k + g) by a factor k - g an agent."""
    if k == 1 and g == 0:
        return p1
    end = g / (1 - k + g)
    return end + (p1 - end) * (k - g) ** (n - 1)


def said_by(check, answer, capsys):
    check(answer)
    said = capsys.readouterr().out
    assert said.startswith("Exercise")
    return said


def test_the_cap_is_what_was_paid_and_the_worst_case(costs, capsys):
    paid, estimate = costs
    allowed = estimate.n_episodes * NEW_BUDGET / 1e6
    assert estimate.worst_usd < 0.9 * allowed, "else the exercise would not need the estimate"
    assert "right.\n" in said_by(check_1, paid + estimate.worst_usd, capsys)
    for answer, words in ((None, "set answer_1"), ("1", "expected a number"), (estimate.worst_usd, "all calls of the"),
                          (1e6 * (paid + estimate.worst_usd), "a cap is in USD"), (allowed, "so many calls"),
                          (paid + allowed, "so many calls"), (estimate.expected_usd, "might be stopped"),
                          (estimate.paid_usd + paid, "might be stopped"), (-1, "might be stopped"),
                          (2 * (paid + estimate.worst_usd) + 0.1, "less is too")):
        said = said_by(check_1, answer, capsys)
        assert words in said and "right.\n" not in said, (answer, said)
        assert f"{paid + estimate.worst_usd:.2f}" not in said


def test_a_chain_in_closed_form_is_right(capsys):
    assert said_by(check_2, chain, capsys) == "Exercise 2: right.\n"


@pytest.mark.parametrize(("answer", "words"), [
    (None, "set answer_2"), (0.5, "expected a function"), (lambda p1, k, g, n: "p", "returned str"),
    (lambda p1, k, g, n: 1 / 0, "divides by zero"), (lambda p1, k, g, n: p1[0], "raised TypeError"),
    (lambda p1, k, g, n: p1 * k + (1 - p1) * g, "the first agent sees no answer"),
    (lambda p1, k, g, n: p1 * k ** (n - 1), "kept ones and repaired ones"),
    (lambda p1, k, g, n: chain(p1, k, g, min(n, 2)), "one agent too few"),
    (lambda p1, k, g, n: chain(p1, k, g, n + (n > 1)), "one agent too many"),
    (lambda p1, k, g, n: chain(p1, k, g, n) if n < 3 else 1 - (1 - p1) * (1 - g) ** (n - 1), "can be spoiled again"),
    (lambda p1, k, g, n: g / (1 - k + g) + (p1 - g / (1 - k + g)) * (k - g) ** (n - 1), "divides by zero"),
    (lambda p1, k, g, n: float("nan"), "returns nan"),
])
def test_a_wrong_chain_gets_a_hint(answer, words, capsys):
    said = said_by(check_2, answer, capsys)
    assert words in said and "right.\n" not in said


def left(ledger, cap):
    return max(0.0, cap - (ledger.cost + ledger.unconfirmed).sum() / 1e6)


@pytest.mark.parametrize(("answer", "words"), [
    (None, "set answer_3"), (0.5, "expected a function"), (lambda ledger, cap: ledger.price, "raised AttributeError"),
    (lambda ledger, cap: "much", "returned str"), (lambda ledger, cap: True, "returned bool"),
    (lambda ledger, cap: float("nan"), "returned float"),
    (lambda ledger, cap: cap - (ledger.cost + ledger.unconfirmed).sum(), "a cap is in USD"),
    (lambda ledger, cap: cap - (ledger.cost + ledger.unconfirmed).sum() / 1e6, "the same as a debt"),
    (lambda ledger, cap: max(0, cap - ledger.cost.sum() / 1e6), "broke off may have been billed"),
    (lambda ledger, cap: max(0, cap - ledger[ledger.status == "ok"].cost.sum() / 1e6), "of use or not"),
])
def test_what_is_left_wrongly_gets_a_hint(answer, words, capsys):
    said = said_by(check_3, answer, capsys)
    assert words in said and "right.\n" not in said


def test_what_is_left_under_a_cap(capsys):
    assert said_by(check_3, left, capsys) == "Exercise 3: right.\n"


def test_what_is_left_is_what_a_recording_still_grants(tmp_path):
    """The exercise tells the recording's own rule: a call whose worst case is what is left is made, a dearer not."""
    class Provider:
        name, strict_bound = "live test", False

        def bound_prompt_tokens(self, llm, messages):
            return 100

        async def complete(self, llm, messages, **options):
            if "break" in messages[-1]["content"]:
                raise RuntimeError("dropped")     # perhaps billed: nobody knows
            return Reply("#### 1", Usage(80, 10), 0.0)

    llm = local_study.local_pool().llms[0]
    cap, path = 0.001, tmp_path / "calls.sqlite"
    chat = CachedChat(Provider(), path, spend_cap_usd=cap)

    async def ask(text, max_tokens):
        return await chat.complete(llm, [{"role": "user", "content": text}], max_tokens=max_tokens)

    asyncio.run(ask("one", 100))
    with pytest.raises(Exception, match="dropped"):
        asyncio.run(ask("break", 200))
    ledger = load_ledger(export_ledger(path, tmp_path / "ledger.parquet"))
    assert (ledger.unconfirmed > 0).any()
    fits = int((left(ledger, cap) * 1e6 - llm.cost_atoms(100, 0) / ATOMS) / llm.price_out)
    with pytest.raises(RunStopped, match="cap"):
        asyncio.run(ask("two", fits + 1))
    assert asyncio.run(ask("two", fits)).text == "#### 1"


@pytest.mark.parametrize("number", [1, 2, 3])
def test_no_answer_makes_a_check_raise(number, capsys):
    for name, answer in ODD.items():
        getattr(n08, f"check_{number}")(answer)
        said = capsys.readouterr().out
        assert said.startswith(f"Exercise {number}: ") and "right.\n" not in said, (name, said)
        assert said.count("\n") == 1, (name, said)
