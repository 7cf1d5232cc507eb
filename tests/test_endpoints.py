"""Live endpoints against a loopback server: what is sent, how replies are read, limits, keys and wrong use."""

import asyncio
import email.utils
import json
import os
import pickle
import socket
import time
import traceback
from urllib.parse import quote

import pytest
from fault_server import FaultServer
from hypothesis import given, settings
from hypothesis import strategies as st

from bamas_lite.endpoints import EndpointError, OpenAIChat, clients
from bamas_lite.endpoints.reader import Answer, Fault, Text, read_answer, read_usage, retry_after
from bamas_lite.llm import CallError, RunStopped, Usage
from bamas_lite.pool import ATOMS, LLM, Pool
from bamas_lite.prompts import executor_messages
from bamas_lite.tasks import Task

KEY = "a-key-for-tests-only"
TASK = Task("t/1", "arithmetic", 1, "Ann has 2 pens and buys 3. How many pens has she?", "5")
MESSAGES = executor_messages(TASK)
BASE = {"name": "small", "price_in": 1, "price_out": 2, "price_cached_in": 0.5, "max_tokens": 200, "tier": 1}


def llm(server=None, **fields) -> LLM:
    return LLM(**{**BASE, "base_url": server.base_url if server else None, **fields})


def ask(backend, model, *, times=1, tokens=100, messages=MESSAGES):
    """The outcomes of calls made at the same time, replies or exceptions; only one: itself."""
    async def calls():
        try:
            return await asyncio.gather(*(backend.complete(model, messages, max_tokens=tokens, temperature=0.25)
                                          for _ in range(times)), return_exceptions=True)
        finally:
            await backend.aclose()

    outcomes = asyncio.run(calls())
    return outcomes if times > 1 else outcomes[0]


def ask_twice(backend, model, pause_s=0.0):
    """The replies to two calls, the second after the first."""
    async def calls():
        try:
            first = await backend.complete(model, MESSAGES, max_tokens=100)
            await asyncio.sleep(pause_s)
            return first, await backend.complete(model, MESSAGES, max_tokens=100)
        finally:
            await backend.aclose()

    return asyncio.run(calls())


def stopped(backend, model) -> str:
    """The message of the EndpointError of a call; it can be pickled and names LLM, model and address."""
    error = ask(backend, model)
    assert isinstance(error, EndpointError) and isinstance(error, RunStopped)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert "'small'" in str(error) and "model" in str(error) and "\n" not in str(error)
    assert error.__cause__ is error.__context__ is None
    return str(error)


@pytest.mark.parametrize("fields, path", [
    ({"model": "small-1"}, "/v1/chat/completions"), ({"few_shot": True}, "/v1/chat/completions"),
    ({"reasoning": True, "extra_body": {"effort": "low"}}, "/v1/chat/completions"),
    ({"api": "completion", "few_shot": True}, "/v1/completions")])
def test_what_is_sent_is_the_request(fields, path, monkeypatch):
    monkeypatch.setenv("SMALL_KEY", f" {KEY}\n")   # as `export SMALL_KEY=$(cat file)` may leave it
    with FaultServer() as server:
        backend, model = OpenAIChat(), llm(server, api_key_env="SMALL_KEY", **fields)
        reply = ask(backend, model)
        (request,) = server.requests
    assert request.path == path and request.key == KEY
    assert request.body == backend.request(model, MESSAGES, 100, 0.25)
    assert reply.text.startswith("#### ") and reply.usage == request.usage and reply.finish_reason == "stop"
    assert reply.latency_s > 0


@pytest.mark.parametrize("own", [None, KEY])
def test_what_is_meant_for_one_provider_reaches_no_other(own, monkeypatch):
    """The headers are the same whatever variables the openai package reads, also where no key is needed."""
    monkeypatch.setenv("SMALL_KEY", KEY)
    options = {"api_key_env": own and "SMALL_KEY"}
    for name in [name for name in os.environ if name.startswith("OPENAI_")]:
        monkeypatch.delenv(name)
    with FaultServer(plan=lambda body, attempt: "echo of headers" if attempt == 2 else None) as server:
        assert ask(OpenAIChat(), llm(server, **options)).text
        secret = "another-key-for-another-provider"
        for name in ("API_KEY", "ADMIN_KEY", "ORG_ID", "PROJECT_ID", "WEBHOOK_SECRET"):
            monkeypatch.setenv(f"OPENAI_{name}", secret)
        monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/never")
        monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", f"Authorization: Bearer {secret}\nX-Team: {secret}\n"
                           f"Host: {secret}\nUser-Agent: {secret}\nContent-Type: {secret}\nX-Odd: \u00e9\nno header")
        assert ask(OpenAIChat(), llm(server, **options)).text
        assert secret not in str(ask(OpenAIChat(), llm(server, **options)))
    first, *others = (request.headers for request in server.requests)
    assert others == [first, first] and first["authorization"] == f"Bearer {own or clients.NO_KEY}"
    assert set(first) == {"host", "accept", "accept-encoding", "connection", "content-type", "content-length",
                          "user-agent", "authorization", "x-stainless-retry-count"}


def test_no_cookie_is_kept():
    with FaultServer(plan=lambda body, attempt: None if attempt else "odd headers") as server:
        assert all(reply.text for reply in ask_twice(OpenAIChat(), llm(server)))
    assert len(server.requests) == 2 and "cookie" not in server.requests[1].headers


@pytest.mark.parametrize("idle_s, connections", [(30.0, 1), (0.01, 2)])
def test_connections_that_a_server_may_be_closing_are_not_used(idle_s, connections, monkeypatch):
    assert clients.IDLE_S < 5   # what common servers keep theirs for
    monkeypatch.setattr(clients, "IDLE_S", idle_s)
    with FaultServer() as server:
        assert all(reply.text for reply in ask_twice(OpenAIChat(), llm(server), pause_s=0.1))
    assert server.connections == connections


def test_a_proxy_of_the_environment_is_not_used_for_loopback(monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with FaultServer() as server:
        assert ask(OpenAIChat(), llm(server)).text
        localhost = server.base_url.replace("127.0.0.1", "localhost")
        assert ask(OpenAIChat(), llm(base_url=localhost)).text
    away = OpenAIChat(max_retries=0)
    # by the proxy, which is not there
    assert "no connection" in stopped(away, llm(base_url="http://example.invalid/v1"))


@pytest.mark.parametrize("told, usage", [
    ({}, Usage(10, 4)),
    ({"prompt_tokens_details": {"cached_tokens": 8}}, Usage(10, 4, 8)),
    ({"prompt_cache_hit_tokens": 7, "prompt_cache_miss_tokens": 3}, Usage(10, 4, 7)),
    ({"prompt_tokens_details": None, "completion_tokens_details": {"reasoning_tokens": 3}}, Usage(10, 4, 0, 3)),
    ({"completion_tokens_details": {"reasoning_tokens": 3}, "total_tokens": 17}, Usage(10, 7, 0, 3)),   # on top
    ({"prompt_tokens_details": {"cached_tokens": 11}}, Usage(10, 4)),   # a part larger than the whole
    ({"prompt_tokens_details": {"cached_tokens": -1}, "completion_tokens_details": "none"}, Usage(10, 4)),
    ({"completion_tokens": 4.0}, Usage(10, 4)),
    ({"completion_tokens": 4.5}, None), ({"completion_tokens": True}, None), ({"prompt_tokens": None}, None),
    ({"prompt_tokens": "10"}, None), ({"prompt_tokens": -1}, None), ({"prompt_tokens": float("inf")}, None),
    ({"prompt_tokens": 10**12}, None)])
def test_what_a_usage_bills(told, usage):
    assert read_usage({"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14, **told}) == usage


def test_cached_and_reasoning_tokens_reach_the_reply():
    told = {"prompt_tokens": 50, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 40},
            "completion_tokens_details": {"reasoning_tokens": 15}}
    with FaultServer(reply=lambda body: ("#### 5", told)) as server:
        model = llm(server, reasoning=True)
        reply = ask(OpenAIChat(), model)
    assert reply.usage == Usage(50, 20, 40, 15)
    assert model.cost_atoms(50, 20, 40) == server.cost_atoms({"small": model}) == (10 + 20 + 40) * ATOMS


def body(choice=None, **data) -> bytes:
    choices = [] if choice is None else [{"index": 0, "finish_reason": "stop", **choice}]
    return json.dumps({"choices": choices, "usage": {"prompt_tokens": 9, "completion_tokens": 90}, **data}).encode()


def message(content, **more):
    return {"message": {"role": "assistant", "content": content, **more}}


@pytest.mark.parametrize("data, read", [
    (body(message("hi")), Text("hi", Usage(9, 90), "stop")),
    (body({"text": "hi"}), Text("hi", Usage(9, 90), "stop")),
    (body(message("hi") | {"finish_reason": None}), Text("hi", Usage(9, 90), "stop")),
    (body(message("hi") | {"finish_reason": "length"}), Text("hi", Usage(9, 90), "length")),
    (body(message(None) | {"finish_reason": "length"}), Text("", Usage(9, 90), "length")),   # all spent on thoughts
    (body(message("") | {"finish_reason": "MAX_TOKENS"}), Text("", Usage(9, 90), "length")),
    *((body(message("hi") | {"finish_reason": reason}), Text("hi", Usage(9, 90), "stop")) for reason in (
        "eos", "eos_token", "end_turn", "stop_sequence", "completed", "COMPLETE", "STOP", "")),
    *((body(message("hi") | {"finish_reason": reason}), Text("hi", Usage(9, 90), "length")) for reason in (
        "max_tokens", "model_length", "max_output_tokens", "Length")),
    (body(message("hi", tool_calls=[], refusal="")), Text("hi", Usage(9, 90), "stop")),
    (body(message([{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}])),
     Text("ab", Usage(9, 90), "stop")),
    (body(message("half \ud800")), Text("half ?", Usage(9, 90), "stop")),
    (body(message("hi"), usage=None), Text("hi", None, "stop")),
    (body(message("hi"), error=None), Text("hi", Usage(9, 90), "stop"))])
def test_replies_that_can_be_used(data, read):
    assert read_answer(Answer(200, {}, data), llm(), 100) == read
    assert read_answer(Answer(200, {}, data, "ReadError"), llm(), 100) == read   # it broke off after the last brace


@pytest.mark.parametrize("data, words", [
    (body(message(None)), "without text"), (body(message(7)), "without text"), (body({}), "without text"),
    (body(message("")), "without text"), (body({"text": " \n"}), "without text"),
    (body(message("") | {"finish_reason": None}), "without text"), (body(message([])), "without text"),
    (body(message([{"type": "text", "text": ""}, {"type": "image"}])), "without text"),
    *((body(message("#### 5") | {"finish_reason": reason}), f"broke off the reply ({reason})") for reason in (
        "insufficient_system_resource", "SAFETY", "RECITATION", "abort", "network_error", "a new word", 5)),
    (body(message("#### 5") | {"finish_reason": {"a": 1}}), 'broke off the reply ({"a": 1})'),
    (body(message("No", refusal="I will not.")), "refuses: I will not."),
    (body(message("hal") | {"finish_reason": "content_filter"}), "content_filter"),
    (body(message(None, tool_calls=[{"id": "1"}])), "tool"),
    (body(message("hal") | {"finish_reason": "length"}, usage={"prompt_tokens": 9, "completion_tokens": 79}),
     "79 of 100"),
    (body(), "without choices"), (body(choices=None), "without choices"), (body(choices=[None]), "without choices"),
    (body(error={"code": 429, "message": "busy"}), "busy"),
    (body(message("hal") | {"error": {"code": 502, "message": "broke off"}}), "that was billed: broke off"),
    (b'{"usage": {"prompt_tokens": 9, "completion_tokens": 90}, "choices": [{"mess', "malformed JSON")])
def test_faults_that_were_billed_end_the_call(data, words):
    fault = read_answer(Answer(200, {}, data), llm(), 100)
    assert isinstance(fault, Fault) and fault.ends == "call" and words in fault.words
    assert fault.usage == Usage(9, 79 if "79" in words else 90)


def test_a_refusal_without_token_counts_is_booked_at_the_most():
    with FaultServer(plan=lambda body, attempt: "refusal") as server:
        server._answer = lambda request, fault, plain=server._answer: (
            plain(request, fault)[0].replace(b'"usage"', b'"usagE"'), "keep")
        backend, model = OpenAIChat(), llm(server)
        error = ask(backend, model)
    assert isinstance(error, CallError) and len(server.requests) == 1
    assert error.usage == Usage(backend.bound_prompt_tokens(model, MESSAGES), 100)


def test_a_reply_cut_without_token_counts():
    cut = message("x" * 79) | {"finish_reason": "length"}
    assert read_answer(Answer(200, {}, body(cut, usage=None)), llm(), 100).generated
    assert read_answer(Answer(200, {}, body(cut, usage=None)), llm(), 90) == Text("x" * 79, None, "length")
    assert read_answer(Answer(200, {}, body(cut, usage=None)), llm(reasoning=True), 100).finish_reason == "length"


STATUSES = [
    (400, {"message": "This model's maximum context length is 4096 tokens."}, "call"),
    (400, {"message": "Unknown parameter: 'top_k'."}, "run"),
    (400, {"message": "some/llm is not a valid model ID"}, "run"), (400, {"message": "API key not valid."}, "run"),
    (401, {"message": "No auth"}, "run"), (402, {"message": "Insufficient Balance"}, "run"),
    (403, {"message": "not allowed"}, "run"), (403, {"message": "flagged", "metadata": {"reasons": ["x"]}}, "call"),
    (404, {"message": "no such model"}, "run"), (405, {}, "run"), (422, {"detail": []}, "call"),
    *((status, {"message": "busy"}, "attempt") for status in (408, 409, 425, 429, 500, 502, 503, 504, 529, 599))]


@pytest.mark.parametrize("status, error, ends, inside", [
    *((*case, False) for case in STATUSES), *((*case, True) for case in STATUSES if case[1]),
    (400, {"message": "x", "code": "unsupported_parameter"}, "run", False), (413, "too large", "call", False),
    (429, {"message": "no credit", "code": "insufficient_quota"}, "run", False)])
def test_statuses(status, error, ends, inside):
    """Also as OpenRouter tells them: HTTP 200 with an error object."""
    data = json.dumps({"error": {**error, "code": status} if inside else error}).encode()
    fault = read_answer(Answer(200 if inside else status, {"retry-after": "7"}, data), llm(), 100)
    assert fault.ends == ends and fault.usage is None and str(status) in fault.words
    assert fault.retry_after == (7 if ends == "attempt" else None)
    if isinstance(error, dict) and "message" in error:
        assert error["message"] in fault.words


@pytest.mark.parametrize("answer", [
    Answer(500, {}, b""), Answer(500, {}, b"\xff<html>"), Answer(500, {}, b"[1]"), Answer(500, {}, b"null"),
    Answer(200, {}, b""), Answer(204, {}, b""), Answer(200, {}, b"null"), Answer(200, {}, b"[" * 10**5),
    Answer(200, {}, b'{"choices": {}}'), Answer(200, {}, b"1" * 5000), Answer(200, {}, b'{"error": "busy"}'),
    Answer(200, {}, b'{"error": {"code": {}, "metadata": 1}}'), Answer(200, {}, b'{"usage": {"prompt_tokens": 0, '
                                                                             b'"completion_tokens": 0}}'),
    Answer(200, {"content-type": "text/html"}, b"<h1>Hi</h1>"), Answer(200, {}, b'{"choices": [', "ReadError")])
def test_what_cannot_be_read_is_asked_for_again(answer):
    fault = read_answer(answer, llm(), 100)
    assert fault.ends == "attempt" and fault.usage is None and fault.words.isprintable()


def test_words_of_any_depth():
    """Reading JSON, and writing it again, fail at different depths."""
    for depth in range(300, 1100):
        deep = b"[" * depth + b"]" * depth
        for data in (b'{"error": {"message": %s}}', b'{"choices": [{"message": {"refusal": %s}}]}',
                     b'{"choices": [{"finish_reason": %s}]}'):
            assert read_answer(Answer(200, {}, data % deep), llm(), 100).words.isprintable()


def test_a_key_where_a_page_is_shortened():
    for start in range(1970, 2001):
        page = b"<p>".ljust(start, b"x").replace(b"x", b"<p></p>", 280)[:start] + b">" + KEY.encode() + b" was your key"
        fault = read_answer(Answer(500, {}, page, hidden=clients.Key(KEY).hide), llm(), 100)
        assert KEY[:4] not in fault.words and "500" in fault.words


_JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
                     lambda part: st.lists(part, max_size=2) | st.dictionaries(st.sampled_from(
                         ["choices", "message", "content", "text", "finish_reason", "usage", "error", "code", "refusal",
                          "prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details", "metadata",
                          "cached_tokens", "type", "tool_calls"]), part, max_size=4), max_leaves=12)


@settings(max_examples=300)
@given(st.sampled_from([200, 201, 307, 400, 401, 403, 404, 429, 500]),
       st.fixed_dictionaries({}, optional={name: _JSON for name in ("choices", "usage", "error", "message")}) | _JSON,
       st.dictionaries(st.sampled_from(["retry-after", "content-type", "location"]), st.text(max_size=5)),
       st.integers(0, 3))
def test_no_answer_is_a_crash(status, data, headers, cut):
    text = json.dumps(data).encode()
    read = read_answer(Answer(status, headers, text[:len(text) - cut]), llm(), 100)
    assert isinstance(read, Fault if status > 201 else (Fault, Text))
    if isinstance(read, Text):
        assert isinstance(read.text, str) and read.finish_reason in ("stop", "length")
    else:
        assert read.ends in ("attempt", "call", "run") and read.words and "\n" not in read.words
    assert read.usage is None or min(read.usage.prompt_tokens, read.usage.completion_tokens) >= 0
    if isinstance(read, Fault) and read.ends == "attempt":
        assert read.usage is None


def test_when_to_try_again():
    later = email.utils.formatdate(time.time() + 100, usegmt=True)
    assert 90 < retry_after({"retry-after": later}) <= 100
    for text, seconds in (("3", 3), (" 2.5 ", 2.5), ("0", None), ("-1", None), ("nan", None), ("inf", None), ("", None),
                          ("soon", None), ("Wed, 21 Oct 2015 07:28:00 GMT", None), ("Wed, 99 Oct 2015", None)):
        assert retry_after({"retry-after": text}) == seconds
    assert retry_after({"retry-after-ms": "40", "retry-after": "3"}) == 0.04
    assert retry_after({}) is None


def test_pauses_grow_heed_the_server_and_are_bounded():
    backend = OpenAIChat(max_retries=8, backoff_s=1, max_wait_s=100)
    pauses = [backend._pause(Fault("attempt", ""), attempts, 0.0) for attempts in range(1, 9)]
    for pause, most in zip(pauses, (1, 2, 4, 8, 16, 20, 20, 20), strict=True):
        assert most / 2 <= pause <= most
    assert backend._pause(Fault("attempt", ""), 9, 0.0) is None
    assert 30 <= backend._pause(Fault("attempt", "", retry_after=30), 1, 0.0) <= 30.25
    assert backend._pause(Fault("attempt", "", retry_after=30), 1, 75.0) is None
    assert backend._pause(Fault("call", ""), 1, 0.0) is backend._pause(Fault("run", ""), 1, 0.0) is None


def test_a_rate_is_kept_by_even_spacing(monkeypatch):
    now, slept = [100.0], []

    async def sleep(seconds):
        slept.append(seconds)

    monkeypatch.setattr(clients, "perf_counter", lambda: now[0])
    monkeypatch.setattr(clients.asyncio, "sleep", sleep)

    async def run():
        gate = clients.Gate(8, 120)
        for _ in range(3):
            await gate.pace()
        now[0] = 110.0
        await gate.pace()
        await clients.Gate(8, None).pace()

    asyncio.run(run())
    assert slept == [0, 0.5, 1.0, 0]


@pytest.mark.parametrize("concurrency, own, most", [(5, None, 5), (5, 3, 3), (2, 7, 7)])
def test_calls_in_flight_are_bounded_and_the_bound_is_used(concurrency, own, most):
    with FaultServer(latency_s=0.02) as server:
        replies = ask(OpenAIChat(concurrency=concurrency), llm(server, concurrency=own), times=40)
    assert len(server.billed) == len({id(reply) for reply in replies}) == 40
    assert server.most_in_flight == most and server.connections == most


def test_a_backend_works_in_one_event_loop_after_another_and_after_pickling():
    with FaultServer() as server:
        backend, model = OpenAIChat(Pool(name="p", llms=(llm(server),))), llm(server)
        for _ in range(3):
            assert all(reply.text for reply in ask(backend, model, times=4))
            backend = pickle.loads(pickle.dumps(backend))
        assert backend.name == backend.identity == "live small" and len(server.billed) == 12
        assert OpenAIChat(strict_bound=True).identity == "live, strict bound"


def test_a_key_that_is_mended_is_used_at_once(monkeypatch):
    monkeypatch.setenv("SMALL_KEY", "a-wrong-key")

    async def run():
        backend, model = OpenAIChat(), llm(server, api_key_env="SMALL_KEY")
        with pytest.raises(EndpointError, match="401.*the key is not accepted.*SMALL_KEY"):
            await backend.complete(model, MESSAGES, max_tokens=50)
        monkeypatch.setenv("SMALL_KEY", KEY)
        reply = await backend.complete(model, MESSAGES, max_tokens=50)
        await backend.aclose()
        return reply

    with FaultServer(keys={KEY}) as server:
        assert asyncio.run(run()).text


def everything_about(error: BaseException, backend: OpenAIChat) -> str:
    return "".join([str(error), repr(error), str(vars(error)), str(pickle.dumps(error)), repr(backend), str(
        pickle.dumps(backend)), *traceback.format_exception(error),
                    *traceback.TracebackException.from_exception(error, capture_locals=True).format()])


@pytest.mark.parametrize("kind", ["401", "echo", "escaped echo", "echo of headers", "no http", "dropped", "html",
                                  "timeout", "unreachable", "echo in address", "no client"])
def test_the_key_is_in_no_message(kind, monkeypatch):
    """Nor in the variables of the frames of a traceback."""
    KEY = "a/key+for/tests-only"   # noqa: N806 - with signs that are escaped
    monkeypatch.setenv("SMALL_KEY", KEY)
    with FaultServer(plan=lambda body, attempt: kind) as server:
        model = llm(server, api_key_env="SMALL_KEY")
        if kind == "echo":
            server._answer = lambda request, fault: (
                b"HTTP/1.1 400 Bad\r\nContent-Length: 900\r\n\r\n" + (f"{KEY} " * 20).encode().ljust(900), "keep")
        elif kind == "echo in address":
            server._answer = lambda request, fault: (
                f"HTTP/1.1 307 Go\r\nLocation: /?key={quote(KEY, '')}\r\nContent-Length: 0\r\n\r\n".encode(), "keep")
        elif kind == "no client":
            monkeypatch.setenv("HTTP_PROXY", "no-protocol://127.0.0.1")
            model = llm(api_key_env="SMALL_KEY", base_url="http://example.invalid/v1")
        elif kind == "unreachable":
            model = llm(api_key_env="SMALL_KEY", base_url=f"http://127.0.0.1:{free_port()}/v1")
        backend = OpenAIChat(max_retries=1, backoff_s=0.001, timeout_s=0.1)
        error = ask(backend, model)
        assert all(request.key == KEY for request in server.requests) and (
            server.requests or kind in ("unreachable", "no client"))
    assert isinstance(error, (CallError, EndpointError)) and error.__context__ is error.__cause__ is None
    everything = everything_about(error, backend)
    # nor a part of it, where a text is shortened
    assert KEY[:8] not in everything and KEY[-8:] not in everything and quote(KEY, "")[:8] not in everything
    assert "u0061" not in everything.lower()
    assert "***" in str(error) or not any(word in kind for word in ("401", "echo"))
    with FaultServer(reply=lambda body: f"Your key is {KEY}\n#### 5") as server:
        assert ask(OpenAIChat(), llm(server, api_key_env="SMALL_KEY")).text == "Your key is ***\n#### 5"


def test_the_key_is_in_no_frame_of_a_call_that_is_canceled_or_has_no_key(monkeypatch):
    async def canceled():
        backend = OpenAIChat()
        call = asyncio.ensure_future(backend.complete(llm(server, api_key_env="SMALL_KEY"), MESSAGES, max_tokens=100))
        while not server.requests:
            await asyncio.sleep(0.01)
        call.cancel()
        try:
            await call
        except asyncio.CancelledError as error:
            return error, backend
        finally:
            await backend.aclose()

    monkeypatch.setenv("SMALL_KEY", KEY)
    with FaultServer(plan=lambda body, attempt: "timeout") as server:
        error, backend = asyncio.run(canceled())
    everything = everything_about(error, backend)
    assert isinstance(error, asyncio.CancelledError) and "in complete" in everything and KEY not in everything
    # None of the client's frames, whose variables are beyond us.
    assert traceback.extract_tb(error.__traceback__)[-1].name == "attempt"
    monkeypatch.setenv("SMALL_KEY", f"{KEY} and a word")
    error = ask(backend, llm(base_url="http://127.0.0.1:1/v1", api_key_env="SMALL_KEY"))
    assert "holds spaces" in str(error) and KEY not in everything_about(error, backend)


@pytest.mark.parametrize("form", [
    lambda key: key, str.upper, lambda key: quote(key, ""), lambda key: json.dumps(key).replace("/", "\\/"),
    lambda key: json.dumps(json.dumps(key)), lambda key: "".join(f"\\u{ord(sign):04x}" for sign in key),
    lambda key: key.replace("a", "\\\\u0061")])
def test_a_key_is_hidden_in_any_form(form):
    key = clients.Key("s\"a\\cr/e+t%")
    assert key.hide(f"The key <{form(key.value)}>") in ("The key <***>", 'The key <"***">', 'The key <"\\"***\\"">')
    assert key.hide("secret") == "secret" and key == clients.Key(key.value) and key.value not in repr(key)


def test_a_word_instead_of_a_key_is_no_secret(monkeypatch):
    monkeypatch.setenv("SMALL_KEY", "ollama")
    with FaultServer(reply=lambda body: "ollama says\n#### 5", keys={"ollama"}) as server:
        assert ask(OpenAIChat(), llm(server, api_key_env="SMALL_KEY")).text == "ollama says\n#### 5"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def test_wrong_use_is_told_in_one_line(monkeypatch):
    backend = OpenAIChat(max_retries=1, backoff_s=0.001)
    assert "no base_url" in stopped(backend, llm())
    monkeypatch.delenv("SMALL_KEY", raising=False)
    with FaultServer(models={"large"}, keys={KEY}) as server:
        words = stopped(backend, llm(server, api_key_env="SMALL_KEY"))
        assert "SMALL_KEY is not set" in words and server.base_url in words
        monkeypatch.setenv("SMALL_KEY", "\u20ac with spaces")
        words = stopped(backend, llm(server, api_key_env="SMALL_KEY"))
        assert "SMALL_KEY" in words and "with spaces" not in words
        assert not server.requests
        monkeypatch.setenv("SMALL_KEY", "a-wrong-key")
        words = stopped(backend, llm(server, api_key_env="SMALL_KEY"))
        assert "401" in words and "not accepted" in words and "SMALL_KEY" in words and "a-wrong-key" not in words
        monkeypatch.setenv("SMALL_KEY", KEY)
        words = stopped(backend, llm(server, api_key_env="SMALL_KEY"))
        assert "does not know the model" in words and "'small' does not exist" in words
        short = server.base_url.removesuffix("/v1")
        assert "base_url" in stopped(backend, llm(base_url=short, api_key_env="SMALL_KEY"))
        assert len(server.requests) == 3
    with monkeypatch.context() as patch:
        patch.setenv("HTTP_PROXY", "no-protocol://127.0.0.1")
        assert "no client can be made" in stopped(backend, llm(base_url="http://example.invalid/v1"))
    words = stopped(backend, llm(base_url=f"http://127.0.0.1:{free_port()}/v1"))
    assert "no connection: 2 attempts failed" in words and "base_url" in words


@pytest.mark.parametrize("name, value", [
    ("max_retries", -1), ("max_retries", 1.5), ("timeout_s", 0), ("timeout_s", float("inf")), ("timeout_s", "60"),
    ("timeout_s", float("nan")), ("concurrency", 0), ("concurrency", True), ("strict_bound", 1), ("backoff_s", -1),
    ("max_wait_s", None), ("pool", "paper")])
def test_arguments_are_checked(name, value):
    with pytest.raises(ValueError, match=f"{name} = .*expected"):
        OpenAIChat(**{name: value})


def test_the_strict_bound_is_that_of_bytes():
    size = sum(len(m["content"].encode()) for m in MESSAGES)
    assert OpenAIChat(strict_bound=True).bound_prompt_tokens(llm(), MESSAGES) == size + 16
    assert OpenAIChat().bound_prompt_tokens(llm(), MESSAGES) < size
