"""A loopback server that speaks /v1/chat/completions and /v1/completions, goes wrong on demand and keeps the account.

    with FaultServer(faults={"429": 0.05, "dropped": 0.05}, seed=1) as server:
        ... base_url=server.base_url ...
    server.requests, server.billed, server.counts

What happens to a request depends on the seed, its body and how often that body was sent before, not on the order in
which requests arrive: runs with any concurrency meet the same faults. `python tests/fault_server.py 0.05` serves
without faults and with 50 ms latency until its standard input ends; its first line of output is the base_url.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import math
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from time import time
from typing import Any

from bamas_lite.llm import Usage
from bamas_lite.pool import ATOMS, Pool
from bamas_lite.prompts import PLANNER_SYSTEM, REVIEW_FORMAT, section

UNBILLED = ("429", "429 date", "429 odd headers", "500", "timeout", "dropped", "malformed json", "html",
            "empty choices", "cut body", "error object")
"""Faults for which nothing is billed: the client may ask again."""
BILLED = ("empty choices billed", "missing usage", "refusal", "content filter", "cut reply", "overrun", "null content",
          "tool calls", "several choices", "text/plain", "billed error", "gzip", "no resources", "SAFETY",
          "unknown word", "no word", "END_TURN", "MAX_TOKENS", "empty text", "blank text", "choice error",
          "odd headers")
"""Faults of a reply that is billed: asking again would pay twice."""
FINAL = ("400", "401", "402", "403", "404", "quota", "long wait", "redirect", "odd redirect",
         "escaped echo", "echo of headers")
"""Faults that no second attempt mends."""
ODD = ("trickle", "huge body", "bomb", "no object", "deep json", "nan", "bad utf-8", "bad gzip", "no http",
       "garbage usage", "strange shapes")
"""Faults for tests of their own; "garbage usage" is billed."""
KINDS = UNBILLED + BILLED + FINAL + ODD


@dataclass
class Request:
    """One request that arrived. `usage` is what was billed for it (None: nothing), `attempt` counts equal bodies."""

    path: str
    body: dict[str, Any]
    key: str | None
    attempt: int
    fault: str | None
    usage: Usage | None = None
    finish_reason: str | None = None
    headers: dict[str, str] = field(default_factory=dict)


def answer(body: dict[str, Any], answers: Mapping[str, str] | None = None) -> str:
    """The default replies: executors answer from `answers` (else a number of the question's own), critics accept,
    planners plan one step each for up to two executors."""
    if "prompt" in body:
        content, system = body["prompt"], ""
    else:
        content, system = body["messages"][-1]["content"], body["messages"][0]["content"]
    if PLANNER_SYSTEM in system:
        agents = (section(content, "agents") or "").splitlines()[:2]
        return json.dumps({"steps": [{"agent": agent, "instruction": "Solve the task."} for agent in agents]})
    if REVIEW_FORMAT in content:
        return "Every step is right.\nCONCLUSION: ACCEPT"
    question = (section(content, "task") or content).strip()
    if answers is not None:
        return f"The answer of {question[:40]!r} is known.\n#### {answers[question]}"
    return f"#### {int(hashlib.sha256(question.encode()).hexdigest()[:6], 16)}"


class FaultServer:
    """See the module.

    Args:
        latency_s: seconds until an answer.
        faults: kind (see KINDS) -> probability.
        seed: of the faults.
        reply: body -> text, or (text, usage as in JSON, which replaces the default's counts).
        plan: (body, attempt from 0) -> kind or None, instead of drawn faults.
        keys: the keys that are known; None: any, also none.
        models: the models that are known; None: any.
        retry_after: what "429" says, seconds as text; None: no such header.
    """

    def __init__(self, latency_s: float = 0.0, faults: Mapping[str, float] | None = None, seed: int = 0,
                 reply: Callable[[dict[str, Any]], Any] = answer, *,
                 plan: Callable[[dict[str, Any], int], str | None] | None = None, keys: set[str] | None = None,
                 models: set[str] | None = None, retry_after: str | None = "0.01") -> None:
        self.latency_s, self.faults, self.seed, self.reply = latency_s, dict(faults or {}), seed, reply
        self.plan, self.keys, self.models, self.retry_after = plan, keys, models, retry_after
        unknown = set(self.faults) - set(KINDS)
        if unknown or sum(self.faults.values()) > 1 + 1e-9:
            raise ValueError(f"faults = {self.faults}: expected kinds of {KINDS}, at most 1 in all")
        self.requests: list[Request] = []
        self.counts: Counter[str] = Counter()
        self.in_flight = self.most_in_flight = self.connections = 0
        self._seen: Counter[bytes] = Counter()
        self._open: set[_Connection] = set()
        self._ready = threading.Event()

    def __enter__(self) -> FaultServer:
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        if not self._ready.wait(10):
            raise RuntimeError("the server did not start")
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = await self._loop.create_server(lambda: _Connection(self), "127.0.0.1", 0, backlog=1024)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        for connection in list(self._open):
            connection.transport.abort()
        await asyncio.sleep(0)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def billed(self) -> list[Request]:
        """The requests that were billed."""
        return [request for request in self.requests if request.usage is not None]

    def cost(self, pool: Pool) -> float:
        """u$ of all that was billed, at the pool's prices (models are the LLMs' `model`, or else their names)."""
        llms = {llm.model or llm.name: llm for llm in pool.llms}
        return self.cost_atoms(llms) / ATOMS

    def cost_atoms(self, llms: Mapping[str, Any]) -> int:
        return sum(llms[r.body["model"]].cost_atoms(r.usage.prompt_tokens, r.usage.completion_tokens,
                                                    r.usage.cached_tokens) for r in self.billed)

    def _draw(self, raw: bytes, body: dict[str, Any], attempt: int) -> str | None:
        if self.plan is not None:
            return self.plan(body, attempt)
        if not self.faults:
            return None
        digest = hashlib.sha256(b"%d %d " % (self.seed, attempt) + raw).digest()
        point, reached = int.from_bytes(digest[:8], "big") / 2**64, 0.0
        for kind, probability in self.faults.items():
            reached += probability
            if point < reached:
                return kind
        return None

    def take(self, path: str, headers: dict[str, str], raw: bytes) -> tuple[bytes, str]:
        """The bytes of the answer and how to go on: "keep", "close" or "abort" the connection, "hang" or "trickle"."""
        try:
            body = json.loads(raw)
        except ValueError:
            return _http(400, _error("the body is no JSON")), "close"
        attempt = self._seen[raw]
        self._seen[raw] += 1
        words = headers.get("authorization", "").split()
        key = words[1] if len(words) == 2 else None
        fault = self._draw(raw, body, attempt)
        request = Request(path, body, key, attempt, fault, headers=headers)
        self.requests.append(request)
        if path not in ("/v1/chat/completions", "/v1/completions"):
            return _http(404, _error(f"Unknown request URL: {path}")), "keep"
        if self.keys is not None and key not in self.keys:
            request.fault = fault = "401"
        elif self.models is not None and body["model"] not in self.models:
            request.fault = fault = "404"
        self.counts[fault or "ok"] += 1
        return self._answer(request, fault)

    def _answer(self, request: Request, fault: str | None) -> tuple[bytes, str]:
        if fault in _PLAIN:
            return _PLAIN[fault](self, request)
        reply = self.reply(request.body)
        text, told = reply if isinstance(reply, tuple) else (reply, {})
        limit = request.body.get("max_completion_tokens", request.body.get("max_tokens", 10**6))
        sent = [request.body["prompt"]] if "prompt" in request.body else [
            m["content"] for m in request.body["messages"]]
        prompt, completion = sum(len(s) // 4 + 3 for s in sent), max(1, math.ceil(len(text) / 4))
        finish = "stop"
        if completion > limit:
            completion, text, finish = limit, text[:4 * limit], "length"
        if fault in _REASONS:
            finish = _REASONS[fault]
        if fault in ("cut reply", "MAX_TOKENS"):
            completion = max(1, min(completion, limit) // 2)
            text, finish = text[:2 * completion], "MAX_TOKENS" if fault == "MAX_TOKENS" else "length"
        elif fault == "overrun":
            completion = limit + 7
        elif fault == "empty choices billed":
            completion = 0
        usage = {"prompt_tokens": prompt, "completion_tokens": completion, **told}
        usage.setdefault("total_tokens", usage["prompt_tokens"] + usage["completion_tokens"])
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
        if fault == "refusal":
            message |= {"content": None, "refusal": "I cannot help with that."}
        elif fault == "content filter":
            finish, message["content"] = "content_filter", text[:5]
        elif fault == "empty text":
            message["content"] = ""
        elif fault == "blank text":
            message["content"] = " \n" if "prompt" in request.body else [{"type": "text", "text": " \n"}]
        elif fault == "null content":
            message["content"] = None
        elif fault == "tool calls":
            finish = "tool_calls"
            message |= {"content": None, "tool_calls": [{"id": "1", "type": "function",
                                                         "function": {"name": "f", "arguments": "{}"}}]}
        choice: dict[str, Any] = {"index": 0, "finish_reason": finish, "logprobs": None}
        if "prompt" in request.body:
            choice["text"] = message["content"]
        else:
            choice["message"] = message
        data: dict[str, Any] = {"id": f"reply-{len(self.requests)}", "object": "chat.completion", "created": 0,
                                "model": request.body["model"], "choices": [choice], "usage": usage}
        if fault == "choice error":
            choice |= {"finish_reason": "error", "error": {"code": 502, "message": "The upstream has failed."}}
        if fault == "empty choices billed":
            data["choices"] = []
        elif fault == "missing usage":
            del data["usage"]
        elif fault == "garbage usage":
            data["usage"] = {"prompt_tokens": -3, "completion_tokens": "many", "total_tokens": None}
        elif fault == "several choices":
            data["choices"] = [choice, {**choice, "index": 1}]
        elif fault == "billed error":
            data |= {"choices": [], "error": {"code": 502, "message": "The provider broke off."}}
        request.usage, request.finish_reason = usage_of(usage), finish
        body = json.dumps(data).encode()
        if fault == "odd headers":
            return _http(200, body, "application/json; charset=\u00e9", _ODD), "keep"
        if fault == "gzip":
            return _http(200, gzip.compress(body), extra="Content-Encoding: gzip\r\n"), "keep"
        return _http(200, body, "text/plain" if fault == "text/plain" else "application/json"), "keep"


def usage_of(usage: Mapping[str, Any]) -> Usage:
    """What a usage object bills: OpenAI's details, or DeepSeek's cache counts."""
    details = usage.get("prompt_tokens_details") or {}
    cached = details.get("cached_tokens", usage.get("prompt_cache_hit_tokens", 0))
    reasoning = (usage.get("completion_tokens_details") or {}).get("reasoning_tokens", 0)
    return Usage(usage["prompt_tokens"], usage["completion_tokens"], cached, reasoning)


def _error(message: str, **fields: Any) -> bytes:
    return json.dumps({"error": {"message": message, "type": "server", "param": None, "code": None, **fields}}).encode()


def _http(status: int, body: bytes, kind: str = "application/json", extra: str = "",
          length: int | None = None) -> bytes:
    head = (f"HTTP/1.1 {status} Whatever\r\nContent-Type: {kind}\r\n{extra}"
            f"Content-Length: {len(body) if length is None else length}\r\n\r\n")
    return head.encode("latin-1") + body


def _rate_limit(server: FaultServer, request: Request) -> tuple[bytes, str]:
    extra = "" if server.retry_after is None else f"Retry-After: {server.retry_after}\r\n"
    return _http(429, _error("Rate limit reached", code="rate_limit_exceeded"), extra=extra), "keep"


def _echo(server: FaultServer, request: Request) -> tuple[bytes, str]:
    """The key in JSON's escapes, at the end of what is shown of a message, and again in JSON within JSON."""
    key = "".join(f"\\u{ord(sign):04X}" for sign in request.key or "")
    slashes = (request.key or "").replace("/", "\\/")
    inner = json.dumps({"slashes": slashes, "again": key})
    message = json.dumps(f"{'x' * 150} {inner} and ")[1:-1] + key
    return _http(401, f'{{"error": {{"message": "{message}"}}}}'.encode()), "keep"


def _constant(body: bytes, then: str = "keep") -> Callable[..., tuple[bytes, str]]:
    return lambda server, request: (body, then)


_ODD = "X-Odd: \u00e9\u00ff\r\nSet-Cookie: a=\u00e9\r\n"
_REASONS = {"no resources": "insufficient_system_resource", "SAFETY": "SAFETY", "unknown word": ["new", "word"],
            "no word": None, "END_TURN": "END_TURN"}
_HTML = b"<!DOCTYPE html><html><body><h1>502 Bad Gateway</h1></body></html>"
_PLAIN: dict[str | None, Callable[[FaultServer, Request], tuple[bytes, str]]] = {
    "429": _rate_limit,
    "429 date": lambda server, request: (_http(429, _error("Rate limit reached"), extra="Retry-After: " + formatdate(
        time() + 1, usegmt=True) + "\r\n"), "keep"),
    "429 odd headers": _constant(_http(429, _error("Rate limit reached"), extra=_ODD + "Retry-After: \u00e9\r\n")),
    "odd redirect": _constant(_http(307, b"", extra="Location: http://.xn--a/\u00e9\u00ff/else\r\n")),
    "escaped echo": _echo,
    "echo of headers": lambda server, request: (
        _http(401, _error("Not accepted: " + json.dumps(request.headers))), "keep"),
    "500": _constant(_http(500, _error("The server had an error"))),
    "timeout": _constant(b"", "hang"),
    "dropped": _constant(b"", "abort"),
    "malformed json": _constant(_http(200, b'{"id": "reply", "choices": [{"index": 0, "message": {"content": "####')),
    "html": _constant(_http(200, _HTML, "text/html")),
    "empty choices": _constant(_http(200, b'{"id": "reply", "object": "chat.completion", "choices": []}')),
    "cut body": _constant(_http(200, b'{"id": "reply", "choices": [{"index": 0, "mess', length=500), "close"),
    "error object": _constant(_http(200, _error("Provider returned error", code=502))),
    "400": _constant(_http(400, _error("Unsupported value: 'temperature' does not support 0.0 with this model.",
                                       param="temperature", code="unsupported_value"))),
    "401": lambda server, request: (_http(401, _error(f"Incorrect API key provided: {request.key}",
                                                      code="invalid_api_key")), "keep"),
    "402": _constant(_http(402, _error("Insufficient Balance"))),
    "403": _constant(_http(403, _error("Country not supported"))),
    "404": lambda server, request: (_http(404, _error(f"The model {request.body['model']!r} does not exist",
                                                      code="model_not_found")), "keep"),
    "quota": _constant(_http(429, _error("You exceeded your current quota", code="insufficient_quota"))),
    "long wait": _constant(_http(429, _error("Daily limit reached"), extra="Retry-After: 40000\r\n")),
    "redirect": lambda server, request: (_http(308, b"", extra=f"Location: http://127.0.0.1:{server.port}/else\r\n"),
                                         "keep"),
    "trickle": _constant(_http(200, b"", length=10**6), "trickle"),
    "huge body": _constant(_http(200, b'{"choices": "', length=10**11), "flood"),
    "bomb": lambda server, request: (_http(200, _bomb(), extra="Content-Encoding: gzip\r\n"), "keep"),
    "no object": _constant(_http(200, b"[1, 2, 3]")),
    "deep json": _constant(_http(200, b'{"choices": ' + b"[" * 200_000)),
    "nan": _constant(_http(200, b'{"choices": [{"message": {"content": NaN}}], "usage": {"prompt_tokens": Infinity}}')),
    "bad utf-8": _constant(_http(200, b'{"choices": [{"message": {"content": "\xff\xfe"}}]}')),
    "bad gzip": _constant(_http(200, b"this is no gzip", extra="Content-Encoding: gzip\r\n")),
    "no http": _constant(b"220 mail.example ESMTP\r\n", "close"),
    "strange shapes": _constant(_http(200, b'{"choices": {"0": "x"}, "usage": [], "error": 7}')),
}


def _bomb() -> bytes:
    return gzip.compress(b'{"choices": "' + bytes(100_000_000), 1)


class _Connection(asyncio.Protocol):
    """HTTP/1.1 with keep-alive, one request after another: just what the client sends."""

    def __init__(self, server: FaultServer) -> None:
        self.server, self.buffer, self.busy, self.full = server, b"", False, False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.server._open.add(self)
        self.server.connections += 1

    def connection_lost(self, error: Exception | None) -> None:
        self.server._open.discard(self)
        self._done()

    def pause_writing(self) -> None:
        self.full = True

    def resume_writing(self) -> None:
        self.full = False

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        end = self.buffer.find(b"\r\n\r\n")
        if self.busy or end < 0:
            return
        first, *lines = self.buffer[:end].decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        size = end + 4 + int(headers.get("content-length", 0))
        if len(self.buffer) < size:
            return
        raw, self.buffer, self.busy = self.buffer[end + 4:size], self.buffer[size:], True
        server = self.server
        server.in_flight += 1
        server.most_in_flight = max(server.most_in_flight, server.in_flight)
        arrived = first.split(" ")[1], headers, raw
        if server.latency_s:
            server._loop.call_later(server.latency_s, self._answer, *arrived)
        else:
            self._answer(*arrived)

    def _answer(self, path: str, headers: dict[str, str], raw: bytes) -> None:
        data, then = self.server.take(path, headers, raw)
        if self.transport.is_closing():
            return
        if data:
            self.transport.write(data)
        if then == "hang":
            return
        if then in ("trickle", "flood"):
            self._more(then)
            return
        self._done()
        if then == "abort":
            self.transport.abort()
        elif then == "close":
            self.transport.close()

    def _done(self) -> None:
        if self.busy:
            self.busy = False
            self.server.in_flight -= 1

    def _more(self, then: str) -> None:
        if self.transport.is_closing():
            return
        if not self.full:
            self.transport.write(b" " if then == "trickle" else bytes(1 << 20))
        self.server._loop.call_later(0.02 if then == "trickle" else 0.001, self._more, then)


if __name__ == "__main__":
    with FaultServer(float(sys.argv[1]) if len(sys.argv) > 1 else 0.0) as running:
        print(running.base_url, flush=True)
        sys.stdin.read()
