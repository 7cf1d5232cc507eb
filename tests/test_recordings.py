"""Recordings: what is asked again, what it costs, what a replay answers."""

import asyncio
import hashlib
import json
import math
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from fractions import Fraction
from multiprocessing import get_context
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from recorded_backend import LLM, POOL, Episodes, Live, asking, digest, lines, note

from bamas_lite import CallError, Reply, SimulatedLLM, Usage, load_tasks
from bamas_lite.episode import is_instant
from bamas_lite.llm import RunStopped
from bamas_lite.paths import DATA
from bamas_lite.pool import ATOMS
from bamas_lite.provisioning import provision
from bamas_lite.recordings import (
    CachedChat,
    RecordingError,
    RecordingMiss,
    SpendCapReached,
    export_ledger,
    export_recording,
    load_ledger,
    owners,
)
from bamas_lite.recordings.store import connect, key_of, request_text
from bamas_lite.topologies import TOPOLOGIES, run_task, run_task_sync
from bamas_lite.wire import ATTEMPTS, request_body

COST = float(Fraction(LLM.cost_atoms(20, 30), ATOMS * 10**6))
"""USD for one call of `Live`."""


def ask(chat, *texts, max_tokens=64, **options):
    """The replies to some texts, asked at the same time in one event loop."""
    async def all_of_them():
        return await asyncio.gather(*(chat.complete(LLM, asking(text), max_tokens=max_tokens, **options)
                                      for text in texts))
    return asyncio.run(all_of_them())


@pytest.fixture
def path(tmp_path):
    return tmp_path / "calls.sqlite"


def rows(path, query):
    connection = connect(path, write=False)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


# --- once, and the same again ------------------------------------------------------------------------------------


def test_a_repeated_call_is_answered_from_the_file_and_billed_once(path):
    chat = CachedChat(Live(), path)
    first = ask(chat, "1 + 1", "1 + 2")
    assert ask(chat, "1 + 1", "1 + 2") == first and chat.inner.calls == 2
    again = CachedChat(Live(), path)
    assert ask(again, "1 + 2", "1 + 1") == first[::-1] and again.inner.calls == 0
    assert again.spent_usd() == chat.spent_usd() == pytest.approx(2 * COST, rel=1e-12)
    assert again.paid_calls() == 2


@pytest.mark.parametrize("change", [{"max_tokens": 65}, {"temperature": 0.5}, {"llm": POOL.llms[1]}, {"seed": 1},
                                    {"llm": LLM.model_copy(update={"extra_body": {"top_p": 0.5}})},
                                    {"llm": LLM.model_copy(update={"name": "another"})}])
def test_the_key_is_the_whole_request_with_llm_and_seed(path, change):
    change = dict(change)
    live = Live()
    ask(CachedChat(live, path), "1 + 1")
    chat = CachedChat(live, path, seed=change.pop("seed", 0))
    arguments = {"llm": LLM, "messages": asking("1 + 1"), "max_tokens": 64, **change}
    asyncio.run(chat.complete(**arguments))
    assert live.calls == 2
    asyncio.run(chat.complete(**arguments))
    assert live.calls == 2


def test_the_address_role_and_task_are_no_part_of_the_key(path):
    live = Live()
    ask(CachedChat(live, path), "1 + 1")
    moved = LLM.model_copy(update={"base_url": "http://127.0.0.1:1/v1", "api_key_env": "SOME_KEY"})
    asyncio.run(CachedChat(live, path).complete(moved, asking("1 + 1"), max_tokens=64, role="critic",
                                                task=load_tasks("word_problems", limit=1)[0]))
    assert live.calls == 1


def test_equal_calls_in_flight_are_made_once_in_a_loop_in_threads_and_for_several_objects(path):
    live = Live(latency_s=0.05)
    chats = [CachedChat(live, path) for _ in range(3)]
    replies = ask(chats[0], *["1 + 1"] * 20)
    assert live.calls == 1 and len(set(replies)) == 1
    found = []
    threads = [threading.Thread(target=lambda c=c: found.extend(ask(c, "1 + 2", "1 + 3"))) for c in chats]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert live.calls == 3 and len(found) == 6 and len(set(found)) == 2


@pytest.mark.parametrize("text", ["", "two\nlines\r\n", "nul \0 inside", "é ü 漢字 🙂", "half \ud800 pair", None, " "])
def test_texts_come_back_as_an_episode_would_read_them(path, text, tmp_path):
    class Says(Live):
        def answer(self, llm, messages, max_tokens):
            return Reply(text, Usage(5, 6, 1, 2), 0.5, "length")

    expected = Reply((text or "").replace("\ud800", "?"), Usage(5, 6, 1, 2), 0.5, "length")
    assert ask(CachedChat(Says(), path), "q \ud800") == [expected]
    assert ask(CachedChat(Says(), path), "q \ud800") == [expected]
    exported = export_recording(path, tmp_path / "calls.parquet")
    assert ask(CachedChat(None, exported), "q \ud800") == [expected]


@pytest.mark.parametrize(("usage", "kept"), [
    (None, None), (Usage(-1, 2), None), (Usage("5", 2), None), (Usage(10**12, 2), None), (object(), None),
    (Usage(5, 2, 9, 9), Usage(5, 2)), (Usage(5, 2, 5, 2), Usage(5, 2, 5, 2))])
def test_unreadable_usage_is_kept_as_none_and_counted_at_its_worst_case(path, usage, kept):
    chat = CachedChat(Live(usage=usage), path)
    (reply,) = ask(chat, "1 + 1")
    assert reply.usage == kept and ask(chat, "1 + 1") == [reply]
    bound = chat.bound_prompt_tokens(LLM, asking("1 + 1"))
    worst = LLM.cost_atoms(bound, 64) if kept is None else LLM.cost_atoms(5, 2, kept.cached_tokens)
    assert chat.spent_usd() == float(Fraction(worst, ATOMS * 10**6)) and chat.paid_calls() == 1


@pytest.mark.parametrize("odd", [{"text": 5}, {"latency_s": math.nan}, {"latency_s": "1"}, {"finish_reason": None}])
def test_odd_replies_are_booked_as_an_episode_would(path, odd):
    class Odd(Live):
        def answer(self, llm, messages, max_tokens):
            return Reply(**{"text": "x", "usage": Usage(5, 6), "latency_s": 0.5, **odd})

    task = load_tasks("word_problems", limit=1)[0]
    team = provision(POOL, 2000)
    plain = run_task_sync(task, team, "linear", Odd(), 2000).row()
    chat = CachedChat(Odd(), path)
    for _ in range(2):
        row = run_task_sync(task, team, "linear", chat, 2000).row()
        assert {**row, "reason": ""} == {**plain, "reason": ""}
        assert row["reason"].replace("CallError: ", "") == plain["reason"]


# --- failures ----------------------------------------------------------------------------------------------------


def test_a_billed_failure_is_never_asked_again_an_unbilled_one_is(path):
    class Fails(Live):
        def answer(self, llm, messages, max_tokens):
            if messages[-1]["content"] == "refuse":
                raise CallError("refused", Usage(10, 5), 0.7)
            if self.calls <= 2:
                raise CallError("503")
            return super().answer(llm, messages, max_tokens)

    chat = CachedChat(Fails(), path)
    for _ in range(2):
        with pytest.raises(CallError) as failed:
            ask(chat, "refuse")
        assert (failed.value.usage, failed.value.latency_s, str(failed.value)) == (Usage(10, 5), 0.7, "refused")
    assert chat.inner.calls == 1 and chat.paid_calls() == 1
    with pytest.raises(CallError, match="503"):
        ask(chat, "1 + 1")
    with pytest.raises(CallError, match="503"):   # a replay knows how the call ended
        ask(CachedChat(None, path), "1 + 1")
    assert chat.paid_calls() == 1
    (reply,) = ask(chat, "1 + 1")
    assert chat.inner.calls == 3 and ask(CachedChat(None, path), "1 + 1") == [reply]
    assert rows(path, "SELECT count(*) FROM claims") == [(0,)]


def test_what_stops_the_run_is_not_recorded_and_leaves_no_claim(path):
    class NoKey(Live):
        def answer(self, llm, messages, max_tokens):
            raise RunStopped("no key")

    chat = CachedChat(NoKey(), path)
    with pytest.raises(RunStopped, match="no key"):
        ask(chat, "1 + 1")
    (reply,) = ask(CachedChat(Live(), path), "1 + 1")
    assert reply.text.startswith("1 + 1 of") and chat.spent_usd() == pytest.approx(COST)
    assert rows(path, "SELECT value FROM meta WHERE name = 'unconfirmed'") == [("0",)]


def test_the_address_of_an_endpoint_is_in_no_message(path):
    class Down(Live):
        def answer(self, llm, messages, max_tokens):
            raise CallError(f"503 at {llm.base_url}")

    here = LLM.model_copy(update={"base_url": "http://10.1.2.3:8080/v1"})
    with pytest.raises(CallError, match="503 at its base_url"):
        asyncio.run(CachedChat(Down(), path).complete(here, asking("1 + 1"), max_tokens=64))


# --- canceled calls ----------------------------------------------------------------------------------------------


def test_the_answer_of_a_canceled_call_is_kept_if_it_comes_soon(path):
    chat = CachedChat(Live(latency_s=0.2), path)

    async def canceled():
        call = asyncio.create_task(chat.complete(LLM, asking("1 + 1"), max_tokens=64))
        await asyncio.sleep(0.05)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(canceled())
    assert len(ask(chat, "1 + 1")) == 1 and chat.inner.calls == 1
    assert rows(path, "SELECT status FROM ledger") == [("ok",)]


def test_a_call_that_takes_longer_than_the_grace_counts_against_the_cap_only_and_blocks_nobody(path, monkeypatch):
    monkeypatch.setattr("bamas_lite.recordings.chat.GRACE_S", 0.05)
    chat = CachedChat(Live(latency_s=60), path)

    async def canceled():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await chat.complete(LLM, asking("1 + 1"), max_tokens=64)

    asyncio.run(canceled())
    quick = CachedChat(Live(), path)
    assert len(ask(quick, "1 + 1")) == 1 and quick.inner.calls == 1
    worst = LLM.cost_atoms(chat.bound_prompt_tokens(LLM, asking("1 + 1")), 64)
    assert rows(path, "SELECT cost, unconfirmed, status FROM ledger") == [
        ("0", str(worst), "unconfirmed"), (str(LLM.cost_atoms(20, 30)), "0", "ok")]
    assert quick.spent_usd() == pytest.approx(COST)


def test_who_waits_beside_a_canceled_caller_still_gets_the_answer(path, monkeypatch):
    monkeypatch.setattr("bamas_lite.recordings.chat.GRACE_S", 0.0)
    chat = CachedChat(Live(latency_s=0.2), path)

    async def two():
        first, second = (asyncio.create_task(chat.complete(LLM, asking("1 + 1"), max_tokens=64)) for _ in range(2))
        await asyncio.sleep(0.05)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        return await second

    assert asyncio.run(two()).text.startswith("1 + 1") and chat.inner.calls == 1


@pytest.mark.parametrize("joins_s", [0.1, 0.21])   # within the grace, and when the call has just been canceled
def test_who_joins_a_call_after_its_caller_was_canceled_gets_an_answer(path, monkeypatch, joins_s):
    monkeypatch.setattr("bamas_lite.recordings.chat.GRACE_S", 0.15)

    class Slow(Live):
        async def complete(self, *arguments, **options):
            try:
                return await super().complete(*arguments, **options)
            except asyncio.CancelledError:
                await asyncio.sleep(0.1)   # its connection is being closed
                raise

    chat = CachedChat(Slow(latency_s=0.5), path)

    async def two():
        first = asyncio.create_task(chat.complete(LLM, asking("1 + 1"), max_tokens=64))
        await asyncio.sleep(0.05)
        first.cancel()
        await asyncio.sleep(joins_s - 0.05)
        second = asyncio.create_task(chat.complete(LLM, asking("1 + 1"), max_tokens=64))
        with pytest.raises(asyncio.CancelledError):
            await first
        return await second

    assert asyncio.run(two()).text.startswith("1 + 1")
    assert rows(path, "SELECT count(*) FROM claims") == [(0,)]


def test_a_loop_that_ends_with_calls_in_flight_leaves_no_claim(path):
    chat = CachedChat(Live(latency_s=60), path)

    async def forget():
        asyncio.get_running_loop().create_task(chat.complete(LLM, asking("1 + 1"), max_tokens=64))
        await asyncio.sleep(0.1)

    asyncio.run(forget())
    quick = CachedChat(Live(), path)
    assert len(ask(quick, "1 + 1")) == 1 and quick.inner.calls == 1


# --- the cap -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cap", [-1, math.nan, math.inf, "much", True, -1e-9, [1]])
def test_a_doubtful_cap_is_refused(path, cap):
    with pytest.raises(ValueError, match="spend_cap_usd"):
        CachedChat(Live(), path, spend_cap_usd=cap)
    assert not path.exists()


@pytest.mark.parametrize("seed", [1.0, True, "0", 2**63, None])
def test_a_doubtful_seed_is_refused(path, seed):
    with pytest.raises(ValueError, match="seed"):
        CachedChat(Live(), path, seed=seed)


def test_a_cap_of_zero_makes_no_call_but_answers_what_is_there(path):
    first = ask(CachedChat(Live(), path), "1 + 1")
    chat = CachedChat(Live(), path, spend_cap_usd=0)
    assert ask(chat, "1 + 1") == first
    with pytest.raises(SpendCapReached, match="cap is 0 USD.*higher spend_cap_usd"):
        ask(chat, "1 + 2")
    assert chat.inner.calls == 0


def test_the_cap_bounds_all_sittings_with_their_worst_cases(path):
    bound = Live().bound_prompt_tokens(LLM, asking("1 + 1"))
    worst = Fraction(LLM.cost_atoms(bound, 64), ATOMS * 10**6)
    spent = Fraction(LLM.cost_atoms(20, 30), ATOMS * 10**6)
    cap = 3 * spent + worst   # the fourth call just fits, the fifth does not
    for number in range(4):
        ask(CachedChat(Live(), path, spend_cap_usd=cap), f"1 + {number}")
    with pytest.raises(SpendCapReached):
        ask(CachedChat(Live(), path, spend_cap_usd=cap), "1 + 5")
    assert CachedChat(Live(), path).paid_calls() == 4
    ask(CachedChat(Live(), path, spend_cap_usd=cap + spent), "1 + 5")
    assert rows(path, "SELECT count(*) FROM claims") == [(0,)]


def test_calls_that_fit_only_one_after_another_wait_for_each_other(path):
    live = Live(latency_s=0.05)
    worst = Fraction(LLM.cost_atoms(live.bound_prompt_tokens(LLM, asking("1 + 1")), 64), ATOMS * 10**6)
    spent = Fraction(LLM.cost_atoms(20, 30), ATOMS * 10**6)
    chat = CachedChat(live, path, spend_cap_usd=4 * spent + worst)
    assert worst + 4 * spent < 5 * worst   # so not all five may be in flight at once
    assert len(ask(chat, *(f"1 + {number}" for number in range(5)))) == 5


def test_what_may_have_been_billed_counts_against_the_cap_but_not_as_cost(path):
    class Doubtful(Live):
        def take_doubtful_atoms(self):
            return 10**6 * ATOMS   # one USD

    chat = CachedChat(Doubtful(), path, spend_cap_usd=1.5)
    ask(chat, "1 + 1")
    assert chat.spent_usd() == pytest.approx(COST)
    ask(chat, "1 + 2")
    with pytest.raises(SpendCapReached, match="may have cost up to 2 USD more"):
        ask(chat, "1 + 3")


WORST = LLM.cost_atoms(Live().bound_prompt_tokens(LLM, asking("1 + 1")), 64)


def in_usd(atoms):
    return Fraction(atoms, ATOMS * 10**6)


class Breaks(Live):
    """Attempts that break off and are repeated `again` times, as OpenAIChat does it; then an answer."""

    def __init__(self, again, **options):
        super().__init__(**options)
        self.again, self.attempts = again, 0

    async def complete(self, *arguments, **options):
        attempts = ATTEMPTS.get()
        for _ in range(self.again):
            self.attempts += 1
            attempts.doubtful += WORST
            await attempts.hold(WORST)
        self.attempts += 1
        return await super().complete(*arguments, **options)


def test_each_attempt_after_a_doubtful_one_is_held_back_against_the_cap(path):
    chat = CachedChat(Breaks(9), path, spend_cap_usd=in_usd(3 * WORST + WORST // 2))
    with pytest.raises(SpendCapReached, match="attempts of which broke off, could cost up to .* once more"):
        ask(chat, "1 + 1")
    assert chat.inner.attempts == 3   # which is what the cap pays for, if all of them were billed
    assert rows(path, "SELECT unconfirmed, status FROM ledger") == [(str(3 * WORST), "unconfirmed")]
    assert rows(path, "SELECT count(*) FROM claims") == [(0,)]
    chat = CachedChat(Breaks(2), path, spend_cap_usd=in_usd(6 * WORST))
    assert len(ask(chat, "1 + 1")) == 1 and chat.inner.attempts == 3
    assert rows(path, "SELECT unconfirmed FROM ledger WHERE status = 'ok'") == [(str(2 * WORST),)]


def test_an_attempt_waits_for_room_that_calls_in_flight_hold(path, monkeypatch):
    class Mixed(Breaks):
        async def complete(self, llm, messages, **options):
            if messages[-1]["content"] == "1 + 1":
                return await super().complete(llm, messages, **options)
            return await Live.complete(self, llm, messages, **options)

    chat = CachedChat(Mixed(1, latency_s=0.1), path, spend_cap_usd=in_usd(2 * WORST + WORST // 2))
    assert len(ask(chat, "1 + 2", "1 + 1")) == 2   # when 1 + 2 is answered, there is room to repeat 1 + 1
    monkeypatch.setattr("bamas_lite.recordings.chat.HOLD_S", 0.05)
    chat = CachedChat(Mixed(1, latency_s=30), path, spend_cap_usd=in_usd(5 * WORST))

    async def beside_a_long_call():
        long = asyncio.create_task(chat.complete(LLM, asking("1 + 3"), max_tokens=64 * 2))
        await asyncio.sleep(0.1)
        with pytest.raises(SpendCapReached, match="calls in flight may cost up to"):   # and not for ever
            await chat.complete(LLM, asking("1 + 1"), max_tokens=64, temperature=0.5)
        long.cancel()

    monkeypatch.setattr("bamas_lite.recordings.chat.GRACE_S", 0.0)
    asyncio.run(beside_a_long_call())


def test_doubts_are_those_of_one_call(path, tmp_path):
    """One client for two recordings, whose calls are in flight at the same time: each counts its own."""
    class Some(Breaks):
        async def complete(self, llm, messages, **options):
            return await (super() if messages[-1]["content"] == "1 + 1" else Live).complete(
                *(() if messages[-1]["content"] == "1 + 1" else (self,)), llm, messages, **options)

    live, other = Some(2, latency_s=0.05), tmp_path / "other.sqlite"

    async def both():
        await asyncio.gather(CachedChat(live, path).complete(LLM, asking("1 + 1"), max_tokens=64),
                             CachedChat(live, other).complete(LLM, asking("1 + 2"), max_tokens=64))

    asyncio.run(both())
    assert [rows(file, "SELECT unconfirmed FROM ledger") for file in (path, other)] == [[(str(2 * WORST),)], [("0",)]]


def test_money_is_exact_and_has_no_upper_end(path):
    dear = LLM.model_copy(update={"price_in": 999_999.123456789, "price_out": 0.000000000000000001})
    chat = CachedChat(Live(usage=Usage(10**8, 10**8)), path)
    for number in range(3):
        asyncio.run(chat.complete(dear, asking(str(number)), max_tokens=64))
    assert rows(path, "SELECT value FROM meta WHERE name = 'spent'") == [(str(3 * dear.cost_atoms(10**8, 10**8)),)]


# --- several processes -------------------------------------------------------------------------------------------


def work(path, log, prefix, n, latency_s, cap):
    """Ask n calls, eight at a time, and note what is handed out."""
    chat = CachedChat(Live(latency_s, log), path, spend_cap_usd=cap)

    async def all_of_them():
        gate = asyncio.Semaphore(8)

        async def one(number):
            async with gate:
                messages = asking(f"{prefix} + {number}")
                reply = await chat.complete(LLM, messages, max_tokens=64)
                note(log, "got", digest(LLM, messages, 64), reply.text.replace(" ", "_"))

        await asyncio.gather(*map(one, range(n)))

    try:
        asyncio.run(all_of_them())
    except SpendCapReached:
        note(log, "stopped")


FORK = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def start(path, log, prefix, n, latency_s=0.01, cap=None):
    process = get_context("fork" if hasattr(os, "fork") else "spawn").Process(
        target=work, args=(path, log, prefix, n, latency_s, cap))
    process.start()
    return process


def ended(process):
    process.join()
    return process.exitcode


@FORK
def test_processes_make_each_call_once(path, tmp_path):
    log = tmp_path / "log"
    running = [start(path, log, "1", 60) for _ in range(3)]
    assert [ended(process) for process in running] == [0, 0, 0]
    started = [words[1] for words in lines(log) if words[0] == "start"]
    got = [tuple(words[1:]) for words in lines(log) if words[0] == "got"]
    assert len(started) == len(set(started)) == 60
    assert len(got) == 180 and len(set(got)) == 60   # all processes got the same replies
    assert CachedChat(Live(), path).paid_calls() == 60


@FORK
def test_processes_keep_one_cap(path, tmp_path):
    log = tmp_path / "log"
    worst = float(Fraction(LLM.cost_atoms(Live().bound_prompt_tokens(LLM, asking("0 + 00")), 64), ATOMS * 10**6))
    cap = 30.5 * COST + worst
    running = [start(path, log, str(number), 40, cap=cap) for number in range(3)]
    assert [ended(process) for process in running] == [0, 0, 0]
    chat = CachedChat(Live(), path)
    started = [words[1] for words in lines(log) if words[0] == "start"]
    assert len(started) == chat.paid_calls() == 31 and cap - worst < chat.spent_usd() <= cap
    assert sum(words[0] == "stopped" for words in lines(log)) == 3


@FORK
def test_killed_at_ten_moments_nothing_that_was_answered_is_lost_or_paid_again(path, tmp_path):
    log, n, kills = tmp_path / "log", 400, 0
    for number in range(10):
        process = start(path, log, "1", n)
        before, after = len(lines(log)), int(hashlib.sha256(bytes([number])).hexdigest()[:2], 16) // 4
        while process.is_alive() and len(lines(log)) < before + after:
            time.sleep(0.001)
        kills += process.is_alive()
        process.kill()
        process.join()
    assert ended(start(path, log, "1", n)) == 0
    assert kills == 10
    got = {}
    for word, request, *reply in lines(log):
        if word == "start":
            assert request not in got, "asked again although it was answered"
        else:
            assert got.setdefault(request, reply) == reply
    assert len(got) == n
    started = sum(words[0] == "start" for words in lines(log))
    chat = CachedChat(Live(), path)
    lost = rows(path, "SELECT count(*) FROM ledger WHERE status = 'unconfirmed'")[0][0]
    assert chat.paid_calls() == n and chat.spent_usd() == pytest.approx(n * COST)
    assert 0 < started - n <= lost <= 10 * 8   # each call that was cut off is in the ledger, and no claim is left
    assert rows(path, "SELECT count(*) FROM claims") == [(0,)]
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]


def test_a_claim_of_another_machine_ends_with_its_lease(path):
    chat = CachedChat(Live(), path)
    ask(chat, "1 + 0")
    (key,) = rows(path, "SELECT key FROM calls")[0]
    connection = connect(path, write=True)
    connection.execute("DELETE FROM calls")
    connection.execute("INSERT INTO owners VALUES ('other', 'elsewhere', 1, ?)", (time.time() + 0.5,))
    connection.execute("INSERT INTO claims VALUES (?, 'other', 0, '12345', 'x', 'x', 'executor', NULL)", (key,))
    connection.close()

    async def waits_for_the_lease():
        call = asyncio.create_task(chat.complete(LLM, asking("1 + 0"), max_tokens=64))
        await asyncio.sleep(0.1)
        waited = chat.inner.calls == 1
        await call
        return waited

    assert asyncio.run(waits_for_the_lease()) and chat.inner.calls == 2
    assert rows(path, "SELECT unconfirmed FROM ledger WHERE status = 'unconfirmed'") == [("12345",)]


def _repeat_for_ever(path, log):
    class Hangs(Breaks):
        async def complete(self, *arguments, **options):
            await super().complete(*arguments, **options)
            note(log, "attempts", str(self.attempts))
            await asyncio.sleep(60)

    ask(CachedChat(Hangs(3), path), "1 + 1")


FORKED = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


@FORKED
@FORK
def test_killed_while_it_repeats_a_call_all_attempts_count(path, tmp_path):
    log = tmp_path / "log"
    process = get_context("fork").Process(target=_repeat_for_ever, args=(path, log))
    process.start()
    while not lines(log):
        time.sleep(0.005)
    process.kill()
    process.join()
    ask(CachedChat(Live(), path), "1 + 2")
    assert rows(path, "SELECT unconfirmed FROM ledger WHERE status = 'unconfirmed'") == [(str(4 * WORST),)]


@pytest.fixture
def sleeper():
    """Another process of this machine, which does nothing."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait()


def _is_taken(path, name, pid, late_s, machine=None):
    """Whether a call is taken from an owner that has not renewed its lease for `late_s`."""
    chat = CachedChat(Live(), path)
    connection = connect(path, write=True)
    connection.execute("INSERT INTO owners VALUES (?, ?, ?, ?)", (name, machine or owners._machine(), pid,
                                                                  time.time() - late_s))
    key = key_of(LLM.name, 0, request_text(request_body(LLM, asking("1 + 1"), 64)))
    connection.execute("INSERT INTO claims VALUES (?, ?, 0, '7', 'x', 'x', 'executor', NULL)", (key, name))
    connection.close()

    async def call():
        with suppress(TimeoutError):
            await asyncio.wait_for(chat.complete(LLM, asking("1 + 1"), max_tokens=64), 0.3)

    asyncio.run(call())
    return chat.inner.calls == 1


@pytest.mark.skipif(os.name != "posix", reason="only there can a process be asked whether it lives")
@pytest.mark.parametrize(("late_s", "taken"), [(100, False), (owners.SILENT_S + 100, True)])
def test_a_process_that_stands_still_keeps_its_calls(path, sleeper, late_s, taken):
    sleeper.send_signal(signal.SIGSTOP)
    assert _is_taken(path, f"other.{owners._process(sleeper.pid)[1]}", sleeper.pid, late_s) == taken
    assert _is_taken(path.with_name("2.sqlite"), "other.", sleeper.pid, late_s) == taken   # its start is not known


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_process_with_the_number_of_a_dead_one_keeps_nothing(path, sleeper):
    assert _is_taken(path, "other.12345", sleeper.pid, -10)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_dead_process_that_nobody_has_buried_keeps_nothing(path, sleeper):
    sleeper.kill()
    while owners._process(sleeper.pid)[0] != "Z":
        time.sleep(0.01)
    assert _is_taken(path, "other.", sleeper.pid, -10)


def test_a_writer_of_this_process_that_has_ended_keeps_nothing(path):
    assert _is_taken(path, "other.", os.getpid(), -10)
    assert not _is_taken(path.with_name("2.sqlite"), "other.", os.getpid(), -10, machine="elsewhere")


def test_a_lease_is_renewed_while_a_call_is_in_flight(path, monkeypatch):
    from bamas_lite.recordings import writer
    from bamas_lite.recordings.jobs import Call, Claim
    from bamas_lite.recordings.writer import Writer

    monkeypatch.setattr(writer, "RENEW_S", 0.05)
    monkeypatch.setattr(owners, "LEASE_S", 0.4)
    chat, other = CachedChat(Live(latency_s=1.2), path), Writer(path)
    machine = owners._machine()
    monkeypatch.setattr(owners, "_machine", lambda: next(machines))
    machines = iter([machine, "elsewhere"])   # the rival sees the lease only

    async def call_and_rival():
        call = asyncio.create_task(chat.complete(LLM, asking("1 + 1"), max_tokens=64))
        await asyncio.sleep(0.1)
        (key,) = rows(path, "SELECT key FROM claims")[0]
        rival = Claim(Call(key, LLM.name, "x", 0, "{}", "executor", None, 1), None)
        outcomes = []
        while not call.done():
            outcomes.append(await other.write(rival))
            await asyncio.sleep(0.05)
        return outcomes, await other.write(rival)

    outcomes, last = asyncio.run(call_and_rival())
    other.close()
    assert len(outcomes) > 5 and set(outcomes[:-1]) == {False} and last.text.startswith("1 + 1")
    assert chat.inner.calls == 1


def _in_a_child(chat, text):
    before = chat.inner.calls
    ask(chat, text)
    assert chat.inner.calls == before + 1
    chat.close()


def test_it_can_be_pickled_and_works_in_spawned_processes(path, tmp_path):
    chat = CachedChat(Live(log=tmp_path / "log"), path, spend_cap_usd=1, seed=4)
    ask(chat, "1 + 1")
    copy = pickle.loads(pickle.dumps(chat))
    assert (copy.seed, copy.spend_cap_usd, copy.path, copy.name) == (4, 1, chat.path, chat.name)
    child = get_context("spawn").Process(target=_in_a_child, args=(chat, "1 + 2"))
    child.start()
    child.join()
    assert child.exitcode == 0
    ask(chat, "1 + 2")
    assert len(lines(tmp_path / "log")) == 2 and chat.paid_calls() == 2
    replay = pickle.loads(pickle.dumps(CachedChat(None, path, seed=4)))
    assert is_instant(replay) and ask(replay, "1 + 2") == ask(chat, "1 + 2")


@FORKED
@FORK
def test_a_forked_child_opens_the_file_anew(path, tmp_path):
    chat = CachedChat(Live(log=tmp_path / "log"), path)
    replies = ask(chat, "1 + 1")
    child = os.fork()
    if child == 0:
        good = False
        try:
            good = ask(chat, "1 + 1") == replies and len(ask(chat, "1 + 2")) == 1
        finally:
            os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    ask(chat, "1 + 2", "1 + 3")
    chat.close()
    assert len(lines(tmp_path / "log")) == 3
    assert rows(path, "PRAGMA integrity_check") == [("ok",)] and rows(path, "SELECT count(*) FROM calls") == [(3,)]


# --- replay ------------------------------------------------------------------------------------------------------

TASKS = load_tasks("word_problems", limit=5)


def episodes(backend, tasks=TASKS, budgets=(500, 1500)):
    """The rows of a small factorial run; one event loop, four episodes at a time."""
    async def all_of_them():
        gate = asyncio.Semaphore(4)

        async def one(task, budget, topology):
            async with gate:
                return (await run_task(task, provision(POOL, budget), topology, backend, budget)).row()

        return await asyncio.gather(*(one(t, b, topology) for t in tasks for b in budgets for topology in TOPOLOGIES))
    return asyncio.run(all_of_them())


def without_label(some_rows):
    return [{**row, "backend": ""} for row in some_rows]


def test_episodes_are_the_same_unrecorded_recorded_resumed_and_replayed(path, tmp_path):
    live = Episodes()
    plain, recorded = episodes(live), episodes(CachedChat(Episodes(), path))
    assert {row["status"] for row in recorded} == {"ok", "error"}
    assert recorded == plain
    assert all(row["backend"] == "live toy" for row in recorded)
    resumed = tmp_path / "resumed.sqlite"
    episodes(CachedChat(Episodes(), resumed), TASKS[:2])
    assert episodes(CachedChat(Episodes(), resumed)) == recorded   # partly from the file, the rest live
    exported = export_recording(path, tmp_path / "calls.parquet")
    for file in (path, exported):
        replay = CachedChat(None, file)
        assert is_instant(replay) and not is_instant(CachedChat(live, path))
        assert without_label(episodes(replay)) == without_label(recorded)
        assert {row["backend"] for row in episodes(replay)} == {"recorded DeepSeek-V3, GPT-4.1 nano"}


def test_a_replay_needs_no_event_loop(path):
    ask(CachedChat(Live(), path), "1 + 1")
    call = CachedChat(None, path).complete(LLM, asking("1 + 1"), max_tokens=64)
    with pytest.raises(StopIteration) as end:
        call.send(None)
    assert end.value.value.text.startswith("1 + 1")


def test_a_replay_needs_no_client_no_key_and_no_network(path, tmp_path):
    chat = CachedChat(Live(), path)
    ask(chat, "1 + 1")
    chat.close()
    exported = export_recording(path, tmp_path / "calls.parquet")
    script = ("import socket, sys\n"
              "def refuse(*_): raise OSError('no network here')\n"
              "socket.socket.connect = socket.create_connection = refuse\n"
              "sys.modules['openai'] = sys.modules['httpx2'] = None\n"
              "import asyncio\nfrom recorded_backend import LLM, asking\n"
              "from bamas_lite.recordings import CachedChat\n"
              "for path in sys.argv[1:]:\n"
              "    print(asyncio.run(CachedChat(None, path).complete(LLM, asking('1 + 1'), max_tokens=64)).text)\n")
    environment = {"PYTHONPATH": str(Path(__file__).parent), "SYSTEMROOT": os.environ.get("SYSTEMROOT", "")}
    done = subprocess.run([sys.executable, "-c", script, path, exported], env=environment, capture_output=True,
                          text=True, check=True)
    assert done.stdout.splitlines() == [f"1 + 1 of {LLM.name}: 1"] * 2


@pytest.mark.parametrize(("change", "reason"), [
    ({"max_tokens": 65}, "with max_tokens = 64: budgets, prices or token limits differ"),
    ({"temperature": 0.5}, "with temperature = 0.0: .*the temperature"),
    ({"llm": LLM.model_copy(update={"extra_body": {"top_p": 0.5}})}, "with top_p = null: the pool's options"),
    ({"llm": POOL.llms[1]}, f"this request for {LLM.name}: the team"),
    ({"llm": POOL.llms[1], "messages": asking("5 + 5")}, "no call of this LLM"),
    ({"seed": 7}, "with seed = 0"),
    ({"messages": asking("<task>\n1 + 1\n</task>\nHurry.")}, "1 calls about this task, none with this prompt"),
    ({"messages": asking("2 + 2")}, "no call about this task: other tasks"),
])
@pytest.mark.parametrize("suffix", [".sqlite", ".parquet"])
def test_a_miss_names_the_call_and_the_nearest_that_is_recorded(path, change, reason, suffix):
    change = dict(change)
    ask(CachedChat(Live(), path), "1 + 1")
    file = export_recording(path, path.with_suffix(".parquet")) if suffix == ".parquet" else path
    replay = CachedChat(None, file, seed=change.pop("seed", 0))
    arguments = {"llm": LLM, "messages": asking("1 + 1"), "max_tokens": 64, **change}
    with pytest.raises(RecordingMiss, match=reason) as miss:
        asyncio.run(replay.complete(**arguments, role="critic"))
    message = str(miss.value)
    for part in (arguments["llm"].name, "critic", f"max_tokens {arguments['max_tokens']}", "has 1 calls", file.name):
        assert part in message
    assert isinstance(pickle.loads(pickle.dumps(miss.value)), RecordingMiss)


def test_an_empty_recording_can_be_opened_and_says_so(path, tmp_path):
    CachedChat(Live(), path)
    for file in (path, export_recording(path, tmp_path / "empty.parquet")):
        with pytest.raises(RecordingMiss, match="has 0 calls. Nothing was recorded"):
            ask(CachedChat(None, file), "1 + 1")


def test_replays_reserve_as_the_recording_did(path):
    live = Live()
    live.strict_bound = True
    chat = CachedChat(live, path)
    ask(chat, "1 + 1")
    replay = CachedChat(None, path)
    assert replay.bound_prompt_tokens(LLM, asking("9" * 500)) == chat.bound_prompt_tokens(LLM, asking("9" * 500)) > 500
    with pytest.raises(RecordingError, match="bound = 'strict', this backend has 'plain'"):
        CachedChat(Live(), path)


def test_a_backend_with_bounds_of_its_own_can_record_but_not_be_replayed(path):
    task = TASKS[0]
    chat = CachedChat(SimulatedLLM(), path)
    plain = run_task_sync(task, provision(POOL, 900), "feedback", SimulatedLLM(), 900).row()
    assert run_task_sync(task, provision(POOL, 900), "feedback", chat, 900).row() == plain
    with pytest.raises(RecordingError, match="bounds prompts in a way of its own"):
        CachedChat(None, path)
    with pytest.raises(RecordingError, match="kind = 'simulated', this backend has 'live'"):
        CachedChat(Live(), path)


def test_seeds_give_other_samples_and_the_same_again(path):
    live = Live()
    chat = CachedChat(live, path)
    texts = [ask(chat.with_seed(seed), "1 + 1", temperature=1.0)[0].text for seed in (0, 1, 0, 1)]
    assert texts[:2] == texts[2:] and texts[0] != texts[1] and live.calls == 2
    assert chat.with_seed(1).identity != chat.identity == CachedChat(live, path).identity


COMMITTED = DATA / "recorded" / "local_calls.parquet"


def test_the_committed_recording_is_what_an_export_writes(path, tmp_path):
    file = pq.ParquetFile(COMMITTED)
    replay = CachedChat(None, COMMITTED)
    chat = CachedChat(Live(), path)
    assert replay._recording.calls.meta == {"kind": "live", "bound": "plain"}
    columns = file.read().to_pylist()
    connection = connect(path, write=True)
    connection.execute("BEGIN")
    connection.executemany(f"INSERT INTO calls VALUES (?{', ?' * 11})", [
        (key_of(row["llm"], row["seed"], row["request"]), *row.values()) for row in columns[::-1]])
    connection.execute("COMMIT")
    connection.close()
    chat.close()
    exported = export_recording(path, tmp_path / "calls.parquet")
    assert len(columns) > 1000 and pq.read_table(exported).equals(pq.read_table(COMMITTED))
    if pq.ParquetFile(exported).metadata.created_by == file.metadata.created_by:   # the same release of pyarrow
        assert exported.read_bytes() == COMMITTED.read_bytes()


# --- files -------------------------------------------------------------------------------------------------------


def test_equal_calls_give_an_equal_file_whatever_their_order(tmp_path):
    class Plain(Live):
        def answer(self, llm, messages, max_tokens):
            return Reply(messages[-1]["content"], Usage(5, 6), 0.5)

    texts = [f"1 + {number}" for number in range(30)]
    files = []
    for number, order in enumerate((texts, texts[::-1])):
        path = tmp_path / f"{number}.sqlite"
        for text in order:
            ask(CachedChat(Plain(), path), text)
        files.append(export_recording(path, tmp_path / f"{number}.parquet").read_bytes())
    assert files[0] == files[1]


def test_ledger(path, tmp_path):
    class Fails(Live):
        def answer(self, llm, messages, max_tokens):
            if messages[-1]["content"] == "refuse":
                raise CallError("refused", Usage(10, 5, 2, 1), 0.7)
            return super().answer(llm, messages, max_tokens)

    began = time.time()
    chat = CachedChat(Fails(usage=Usage(100, 50, 20, 30)), path)
    task = TASKS[0]
    asyncio.run(chat.complete(LLM, asking("1 + 1"), max_tokens=64, role="critic", task=task))
    with pytest.raises(CallError):
        ask(chat, "refuse")
    chat.inner.usage = None
    ask(chat, "1 + 3")
    ledger = load_ledger(export_ledger(path, tmp_path / "ledger.parquet"))
    assert list(ledger.status) == ["ok", "failed", "usage missing"]
    assert list(ledger.role) == ["critic", "executor", "executor"] and ledger.task_id[0] == task.task_id
    first = ledger.iloc[0]
    assert (first.prompt_tokens, first.completion_tokens, first.cached_tokens, first.reasoning_tokens) == (
        100, 50, 20, 30)
    assert first.cost == LLM.cost_atoms(100, 50, 20) / ATOMS and (first.llm, first.model) == (LLM.name, LLM.model)
    assert ledger.cost.sum() == pytest.approx(chat.spent_usd() * 1e6, rel=1e-12)
    assert ledger.latency_s[1] == 0.7 and first.finish_reason == "stop"
    assert began - 1 <= ledger.time[0].timestamp() <= time.time()
    assert ledger.prompt_tokens.isna().tolist() == [False, False, True]


def test_the_ledger_and_the_episodes_agree(path, tmp_path):
    chat = CachedChat(Episodes(), path)
    episodes(chat)
    ledger = load_ledger(export_ledger(path, tmp_path / "ledger.parquet"))
    paid = ledger[ledger.status != "unconfirmed"]
    assert len(paid) == chat.paid_calls() and set(paid.status) == {"ok", "failed", "usage missing"}
    assert len(paid) < len(ledger) and ledger.cost[ledger.status == "unconfirmed"].sum() == 0
    assert ledger.cost.sum() == pytest.approx(chat.spent_usd() * 1e6)
    task_ids = {task.task_id for task in TASKS}
    assert set(ledger.task_id) <= task_ids and {"executor", "critic", "planner"} <= set(ledger.role)


def test_files_are_written_a_few_rows_at_a_time(path, tmp_path):
    """20,000 calls: the memory of export, ledger and replay stays far below that of all rows at once."""
    pytest.importorskip("resource")
    script = tmp_path / "rows.py"
    script.write_text(
        "import json, resource, sys, time\nfrom pathlib import Path\n"
        "from recorded_backend import LLM, Live, asking\n"
        "import pandas, pyarrow.parquet\nfrom bamas_lite.recordings import files\n"
        "from bamas_lite.recordings.store import connect, key_of, request_text\n"
        "from bamas_lite.recordings import CachedChat, export_ledger, export_recording, load_ledger\n"
        "from bamas_lite.wire import request_body\n"
        "folder, n = Path(sys.argv[1]), int(sys.argv[2])\n"
        "path = folder / 'many.sqlite'\nCachedChat(Live(), path).close()\n"
        "c = connect(path, write=True)\nc.execute('BEGIN')\n"
        "for i in range(n):\n"
        "    request = request_text(request_body(LLM, asking(f'{i} ' + 'words ' * 300), 64, 0.0))\n"
        "    c.execute('INSERT INTO calls VALUES (?, ?, 0, ?, ?, 1, 2, 0, 0, 0.5, ?, NULL)',\n"
        "              (key_of(LLM.name, 0, request), LLM.name, request, 'reply ' * 50, 'stop'))\n"
        "    c.execute('INSERT INTO ledger VALUES (?, ?, ?, ?, ?, 1, 2, 0, 0, ?, ?, 0.5, ?, ?)',\n"
        "              (time.time(), LLM.name, 'm', 'executor', 'task', '1000', '0', 'stop', 'ok'))\n"
        "c.execute('COMMIT')\nc.close()\n"
        "files.ROWS_AT_ONCE = 512\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "export_ledger(path, folder / 'ledger.parquet')\nexported = export_recording(path, folder / 'many.parquet')\n"
        "replay = CachedChat(None, exported)\nassert len(load_ledger(folder / 'ledger.parquet')) == n\n"
        "unit = 1 if sys.platform == 'darwin' else 1024\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * unit, path.stat().st_size)\n",
        encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run([sys.executable, script, tmp_path, "20000"], env=environment, capture_output=True, text=True,
                          check=True)
    grown, size = map(int, done.stdout.split())
    assert size > 60e6 and grown < size / 2


def test_notes_of_helpers(tmp_path):
    """The log that these tests count calls with loses no line and knows requests apart."""
    note(tmp_path / "log", "start", digest(LLM, asking("1"), 64))
    note(tmp_path / "log", "start", digest(LLM, asking("2"), 64))
    assert len({words[1] for words in lines(tmp_path / "log")}) == 2
    assert json.dumps(asking("1")) != json.dumps(asking("2"))


def test_a_recording_is_no_ledger(path):
    ask(CachedChat(Live(), path), "one")
    with pytest.raises(RecordingError, match=r"expected a \.parquet file, as export_ledger"):
        load_ledger(path)
