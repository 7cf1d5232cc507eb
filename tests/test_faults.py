"""Faults of endpoints: nothing crashes, nothing is lost, nothing is paid twice, and the account is the server's."""

import asyncio
import json
from collections import Counter
from dataclasses import replace

import pytest
from fault_server import BILLED, FINAL, KINDS, ODD, UNBILLED, FaultServer, answer

from bamas_lite.endpoints import EndpointError, OpenAIChat
from bamas_lite.llm import CallError, Reply
from bamas_lite.pool import ATOMS, LLM, Pool
from bamas_lite.prompts import REVIEW_FORMAT, executor_messages
from bamas_lite.provisioning import provision
from bamas_lite.tasks import load_tasks
from bamas_lite.topologies import TOPOLOGIES, run_task, run_task_sync
from bamas_lite.wire import bound_tokens, request_body

BUDGET = 2600
TASKS = [replace(task, task_id=f"{task.task_id}/{topology}", question=f"{task.question} (Asked for {topology}.)")
         for task in load_tasks("word_problems", limit=110) for topology in TOPOLOGIES]
"""Each episode has a question of its own."""

ANSWERS = {task.question: task.reference if i % 3 else "-7" for i, task in enumerate(TASKS)}


def judged(body):
    """Replies that decide about verdicts and about the course of an episode: wrong answers, and critics who object."""
    content = body["messages"][-1]["content"]
    if REVIEW_FORMAT in content and len(content) % 3 == 0 and "round" not in content:
        return "The second step is wrong.\nCONCLUSION: REVISE"
    return answer(body, ANSWERS)


def pool(server) -> Pool:
    common = {"base_url": server.base_url, "max_tokens": 300}
    return Pool(name="loopback", llms=(
        LLM(name="strong", tier=1, price_in=0.27, price_out=1.1, price_cached_in=0.07, **common),
        LLM(name="weak", tier=2, price_in=0.1, price_out=0.4, model="weak-1", **common)))


def play(server, backend):
    """An episode for each of TASKS; at most 40 at a time."""
    team = provision(pool(server), BUDGET)

    async def one(task, turns):
        async with turns:
            return await run_task(task, team, task.task_id.rpartition("/")[2], backend, BUDGET)

    async def everything():
        turns = asyncio.Semaphore(40)
        try:
            return await asyncio.gather(*(one(task, turns) for task in TASKS))
        finally:
            await backend.aclose()

    return asyncio.run(everything())


def text_of(body) -> str:
    return json.dumps(body, sort_keys=True)


class Direct:
    """The server's answers without a network."""

    name = "direct"

    def __init__(self):
        self.server = FaultServer(reply=judged)

    def bound_prompt_tokens(self, llm, messages):
        return bound_tokens(llm, messages)

    async def complete(self, llm, messages, *, max_tokens, temperature=0.0, role="executor", task=None):
        body = request_body(llm, messages, max_tokens, temperature)
        data, _ = self.server.take("/v1/chat/completions", {}, json.dumps(body).encode())
        choice = json.loads(data.partition(b"\r\n\r\n")[2])["choices"][0]
        return Reply(choice["message"]["content"], self.server.billed[-1].usage, 0.0, choice["finish_reason"])

    async def aclose(self):
        pass


@pytest.fixture(scope="module")
def unharmed():
    """The same episodes without client, network and faults."""
    backend = Direct()
    backend.server.port = 1
    episodes = play(backend.server, backend)
    assert all(episode.status == "ok" for episode in episodes)
    assert {episode.correct for episode in episodes} == {True, False}
    return episodes


def test_two_thousand_calls_with_a_fault_in_five(unharmed):
    rare = {"timeout": 0.002, "429 date": 0.002}   # they cost seconds
    kinds = [kind for kind in UNBILLED + BILLED if kind not in rare]
    faults = rare | dict.fromkeys(kinds, (0.2 - sum(rare.values())) / len(kinds))
    with FaultServer(faults=faults, seed=4, reply=judged) as server:
        backend = OpenAIChat(backoff_s=0.01, timeout_s=5.0)
        episodes = play(server, backend)
    assert len(server.requests) > 2000 and set(server.counts) == {"ok", *faults}
    assert 0.17 < 1 - server.counts["ok"] / len(server.requests) < 0.23

    # No episode is lost, and each has a row.
    assert [episode.row()["task_id"] for episode in episodes] == [task.task_id for task in TASKS]
    assert {episode.status for episode in episodes} == {"ok", "error"}
    # None is graded wrong because of a fault: verdicts are those of a run without faults, or none.
    for episode, before in zip(episodes, unharmed, strict=True):
        if episode.status == "ok":
            assert (episode.correct, episode.answer, episode.stop_reason, episode.n_calls) == (
                before.correct, before.answer, before.stop_reason, before.n_calls)
        else:
            assert episode.correct is None and "LLM '" in episode.reason and server.base_url not in episode.reason
    # Whatever was billed is booked once, and asked for once: the two accounts list the same requests.
    records = [record for episode in episodes for record in episode.calls]
    booked = Counter(text_of(request_body(r.llm, list(r.messages), r.max_tokens)) for r in records)
    assert booked == Counter(text_of(request.body) for request in server.billed)
    # Equal costs, to the atom, where the server tells its usage; at least its costs where it does not.
    llms = {llm.model or llm.name: llm for llm in pool(server).llms}
    silent = Counter(text_of(r.body) for r in server.billed if r.fault == "missing usage")
    guessed = [r for r in records if not r.usage_reported]
    assert silent == Counter(text_of(request_body(r.llm, list(r.messages), r.max_tokens)) for r in guessed) and silent
    told = sum(cost_atoms(r.llm, r.usage) for r in records if r.usage_reported)
    assert told == sum(cost_atoms(llms[r.body["model"]], r.usage) for r in server.billed if r.fault != "missing usage")
    assert sum(cost_atoms(r.llm, r.usage) for r in guessed) > sum(
        cost_atoms(llms[r.body["model"]], r.usage) for r in server.billed if r.fault == "missing usage") > 0
    assert sum(r.cost for r in records) == pytest.approx(sum(episode.cost for episode in episodes), rel=1e-12)
    assert all(r.cost == pytest.approx(cost_atoms(r.llm, r.usage) / ATOMS, rel=1e-12) for r in records)
    # Replies that break max_tokens are counted.
    assert sum(episode.provider_overrun for episode in episodes) == server.counts["overrun"] > 0
    met = backend.faults
    assert met["HTTP 429"] == sum(server.counts[kind] for kind in ("429", "429 date", "429 odd headers")) > 0
    assert met["HTTP 500"] == server.counts["500"] > 0 and met["no answer within 5 s"] == server.counts["timeout"]
    assert met["the LLM refuses"] == server.counts["refusal"] > 0
    odd_but_good = sum(server.counts[kind] for kind in GOOD)
    assert sum(met.values()) == len(server.requests) - server.counts["ok"] - odd_but_good


def cost_atoms(llm, usage) -> int:
    return llm.cost_atoms(usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens)


def once(kind, *, episode=False, **options):
    """The outcome of a call (or an episode) where each answer has the fault `kind`, and the server."""
    fast = {"max_retries": 2, "backoff_s": 0.001, "timeout_s": 0.3, **options}
    task = load_tasks("word_problems", limit=1)[0]
    with FaultServer(faults={kind: 1.0}) as server:
        model, backend = pool(server).llms[0], OpenAIChat(**fast)
        if episode:
            return run_task_sync(task, provision(pool(server), BUDGET), "star", backend, BUDGET), server, backend

        async def call():
            try:
                return await backend.complete(model, executor_messages(task), max_tokens=60)
            except (CallError, EndpointError) as error:   # all others are crashes
                return error
            finally:
                await backend.aclose()

        return asyncio.run(call()), server, backend


AGAIN = {"429": "429: Rate limit reached", "429 date": "429", "429 odd headers": "429: Rate limit reached",
         "500": "500: The server had an error",
         "timeout": "no answer within 0.3 s", "dropped": "dropped (RemoteProtocolError", "malformed json": "malformed",
         "html": "text/html instead of JSON: 502 Bad Gateway", "empty choices": "without choices",
         "cut body": "broke off (RemoteProtocolError after 46 bytes)", "error object": "502: Provider returned error"}
AGAIN_ODD = {"trickle": "no answer within 0.3 s", "huge body": "longer than 33,554,432 bytes",
             "bomb": "longer than 33,554,432 bytes", "no object": "malformed JSON", "deep json": "malformed",
             "nan": "", "bad utf-8": "malformed", "bad gzip": "DecodingError", "no http": "dropped",
             "strange shapes": "an error in a reply 500: 7"}


def test_every_fault_has_its_test():
    assert set(AGAIN) == set(UNBILLED) and set(AGAIN_ODD) == set(ODD) - {"garbage usage"}
    assert set(BOOKED) | GOOD == set(BILLED) and set(ENDS) == set(FINAL)
    assert len(KINDS) == len(set(KINDS))


@pytest.mark.parametrize("kind", [*AGAIN, *(kind for kind in AGAIN_ODD if kind != "nan")])
def test_what_was_not_billed_is_asked_for_again_and_then_given_up(kind):
    slow = {"timeout_s": 20.0} if kind in ("huge body", "bomb") else {}
    retries = 1 if kind in ("huge body", "bomb", "429 date") else 2
    error, server, backend = once(kind, max_retries=retries, **slow)
    assert isinstance(error, CallError) and error.usage is None
    assert {**AGAIN, **AGAIN_ODD}[kind] in str(error)
    assert f"{retries + 1} attempts failed" in str(error) and f"({retries + 1} times)" in str(error)
    assert len(server.requests) == retries + 1 and not server.billed
    assert sum(backend.faults.values()) == retries + 1
    known = kind in ("429", "429 date", "429 odd headers", "500", "error object", "strange shapes")   # it tells us
    most = server.requests[0].body["max_tokens"] * int(1.1 * ATOMS)
    doubtful = backend.take_doubtful_atoms()
    assert doubtful == 0 if known else doubtful > (retries + 1) * most
    assert backend.take_doubtful_atoms() == 0


BOOKED = {"empty choices billed": "without choices that was billed", "refusal": "refuses: I cannot help with that.",
          "content filter": "content_filter", "cut reply": "cut the reply (after", "null content": "without text",
          "tool calls": "tool", "billed error": "The provider broke off.", "choice error": ": The upstream has failed.",
          "no resources": "broke off the reply (insufficient_system_resource)", "SAFETY": "(SAFETY)",
          "unknown word": '(["new", "word"])', "MAX_TOKENS": "cut the reply (after", "empty text": "without text",
          "blank text": "without text"}


@pytest.mark.parametrize("kind", BOOKED)
def test_what_was_billed_is_booked_and_not_asked_for_again(kind):
    error, server, _ = once(kind)
    assert isinstance(error, CallError) and BOOKED[kind] in str(error)
    assert len(server.requests) == len(server.billed) == 1
    assert error.usage == server.requests[0].usage and error.latency_s > 0


@pytest.mark.parametrize("kind", BOOKED)
def test_an_episode_books_what_was_billed_for_nothing(kind):
    episode, server, _ = once(kind, episode=True)
    assert episode.status == "error" and episode.correct is None and BOOKED[kind] in episode.reason
    assert episode.n_calls == len(server.billed) == len(server.requests) >= 2
    assert episode.cost == pytest.approx(server.cost(pool(server)), rel=1e-12) and episode.cost > 0


GOOD = {"missing usage", "overrun", "several choices", "text/plain", "gzip", "odd headers", "no word", "END_TURN"}


@pytest.mark.parametrize("kind", [*sorted(GOOD), "garbage usage"])
def test_replies_that_are_odd_but_good(kind):
    reply, server, _ = once(kind)
    assert isinstance(reply, Reply) and reply.text.startswith("#### ") and reply.finish_reason == "stop"
    assert len(server.requests) == len(server.billed) == 1
    assert reply.usage == (None if "usage" in kind else server.requests[0].usage)
    episode, server, _ = once(kind, episode=True)
    assert episode.status == "ok" and episode.n_calls == len(server.billed)
    assert episode.provider_overrun == (episode.n_calls if kind == "overrun" else 0)
    if "usage" in kind:
        assert episode.cost > server.cost(pool(server)) and not any(call.usage_reported for call in episode.calls)
    else:
        assert episode.cost == pytest.approx(server.cost(pool(server)), rel=1e-12)


ENDS = {"400": "does not support 0.0", "401": "the key is not accepted", "402": "nothing left to spend",
        "403": "the key may not do this", "404": "does not know the model", "quota": "nothing left to spend",
        "long wait": "asks to wait 40000 s", "redirect": "/else", "odd redirect": "http://.xn--a/",
        "escaped echo": "the key is not accepted", "echo of headers": "Not accepted: {"}


@pytest.mark.parametrize("kind", ENDS)
def test_what_no_attempt_mends_ends_the_run(kind):
    error, server, _ = once(kind)
    assert isinstance(error, EndpointError) and ENDS[kind] in str(error)
    assert len(server.requests) == 1 and not server.billed
    with pytest.raises(EndpointError, match="LLM 'strong'|LLM 'weak'"):
        once(kind, episode=True)


def test_not_a_number_in_json():
    error, server, _ = once("nan")
    assert isinstance(error, CallError) and "without text" in str(error) and len(server.requests) == 1


def test_a_call_succeeds_after_faults():
    """The pauses are those that the server asks for."""
    pauses = []

    async def call():
        sleep = asyncio.sleep

        async def noted(seconds, *args):
            pauses.append(seconds)
            await sleep(0 if seconds > 0.01 else seconds, *args)

        asyncio.sleep = noted
        try:
            return await backend.complete(pool(server).llms[0], executor_messages(TASKS[0]), max_tokens=60)
        finally:
            asyncio.sleep = sleep
            await backend.aclose()

    kinds = ["429", "500", "dropped", "html", "empty choices"]
    with FaultServer(plan=lambda body, attempt: kinds[attempt] if attempt < 5 else None, retry_after="17") as server:
        backend = OpenAIChat(backoff_s=0.5)
        reply = asyncio.run(call())
    assert reply.usage == server.billed[0].usage and [r.fault for r in server.requests] == [*kinds, None]
    waits = [pause for pause in pauses if pause > 0.01]
    assert len(waits) == 5 and 17 <= waits[0] <= 17.2
    for wait, most in zip(waits[1:], (1, 2, 4, 8), strict=True):
        assert most / 2 <= wait <= most


def test_a_server_that_goes_away_ends_the_run():
    task = load_tasks("word_problems", limit=1)[0]
    with FaultServer() as server:
        team, backend = provision(pool(server), BUDGET), OpenAIChat(max_retries=1, backoff_s=0.001)
        assert run_task_sync(task, team, "star", backend, BUDGET).status == "ok"
    with pytest.raises(EndpointError, match="no connection: 2 attempts failed: .*base_url"):
        run_task_sync(task, team, "star", backend, BUDGET)
