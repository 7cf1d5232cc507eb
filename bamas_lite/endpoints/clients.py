"""The openai package's client, one for each endpoint and event loop, read down to the last byte and named fault.

The package is imported on first use. Its own retries are switched off, and no exception of it leaves this module: they
hold the request, with its key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import lru_cache
from ipaddress import ip_address
from time import perf_counter
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

from bamas_lite.endpoints.reader import Answer, Fault
from bamas_lite.pool import LLM

MOST_BYTES = 32 * 2**20
"""Of one answer, unpacked; whatever is longer is no reply."""

CONNECT_S = 10.0
"""Seconds for a connection to come about."""

NO_KEY = "no-key"
"""Sent to endpoints that need none: the client wants to send something."""


class Endpoint:
    """An endpoint, as one event loop sees it."""

    def __init__(self, base_url: str, key: str) -> None:
        self.key = key
        self._secret = key != NO_KEY and (len(key) >= 8 or not key.isalnum())   # words such as "ollama" are none
        urlsplit(base_url).port   # noqa: B018 - raises for a number that is no port
        self.client = _sdk().client(base_url, key)
        self.gates: dict[tuple[Any, ...], Gate] = {}

    def gate(self, llm: LLM, concurrency: int) -> Gate:
        limits = llm.model or llm.name, llm.concurrency or concurrency, llm.requests_per_minute
        if limits not in self.gates:
            self.gates[limits] = Gate(*limits[1:])
        return self.gates[limits]

    async def attempt(self, body: dict[str, Any], timeout_s: float) -> Answer | Fault:
        """One request. No exception leaves this, and no key: those of the client hold the request."""
        sdk = _sdk()
        path = "/completions" if "prompt" in body else "/chat/completions"
        try:
            async with asyncio.timeout(timeout_s):
                response = await self.client.post(path, cast_to=sdk.Response, body=body)
        except TimeoutError:
            return Fault("attempt", f"no answer within {timeout_s:g} s", doubtful=True)
        except sdk.StatusError as error:
            response = error.response
        except sdk.ConnectionError as error:
            cause = error.__cause__ or error
            words = in_words(cause, self.without_key)
            if isinstance(cause, sdk.unreachable):
                return Fault("attempt", words, unreachable=True)
            return Fault("attempt", f"the connection was dropped ({words})", doubtful=True)
        except Exception as error:
            return Fault("call", in_words(error, self.without_key), doubtful=True)
        # Now, before anything is shortened, which could cut the key in two.
        content = response.content.replace(self.key.encode(), b"***") if self._secret else response.content
        headers = {name: self.without_key(value) for name, value in response.headers.items()}
        return Answer(response.status_code, headers, content, response.extensions.get("broken", ""))

    def without_key(self, text: str) -> str:
        """`text`, should the server echo the key."""
        return text.replace(self.key, "***") if self._secret else text


class Gate:
    """Bounds the calls in flight and their rate, for one model of an endpoint."""

    def __init__(self, concurrency: int, requests_per_minute: float | None) -> None:
        self.turns = asyncio.Semaphore(concurrency)
        self._interval = 60.0 / requests_per_minute if requests_per_minute else 0.0
        self._next = 0.0

    async def pace(self) -> None:
        """Wait until the next request may start; evenly spaced, as limits are often enforced by the second."""
        if self._interval:
            now = perf_counter()
            start = max(now, self._next)
            self._next = start + self._interval
            await asyncio.sleep(start - now)


@lru_cache(maxsize=1)
def _sdk() -> SimpleNamespace:
    """What is needed of the openai package, imported on first use."""
    from importlib import import_module

    import openai

    # httpx2, or httpx in older releases
    http = import_module(openai.DefaultAsyncHttpxClient.__base__.__module__.partition(".")[0])

    class Client(openai.DefaultAsyncHttpxClient):
        """Reads answers itself: an endless body ends, and of a broken one we keep what came."""

        async def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
            response = await super().send(request, stream=True, **options)
            body, broken = bytearray(), ""
            try:
                async for part in response.aiter_bytes():
                    body += part
                    if len(body) > MOST_BYTES:
                        broken = f"it is longer than {MOST_BYTES:,} bytes"
                        break
            except http.HTTPError as error:
                broken = f"{type(error).__name__} after {len(body)} bytes"
            finally:
                await response.aclose()
            headers = {name: response.headers[name] for name in _KEPT_HEADERS if name in response.headers}
            return http.Response(response.status_code, headers=headers, content=bytes(body), request=request,
                                 extensions={"broken": broken})

    def client(base_url: str, key: str) -> Any:
        """A client without limits of its own: the gates and `attempt` have them."""
        timeout = http.Timeout(None, connect=CONNECT_S)
        made = openai.AsyncOpenAI(api_key=key, base_url=base_url, max_retries=0, timeout=timeout, http_client=Client(
            timeout=timeout, follow_redirects=False, trust_env=not _is_loopback(base_url),
            limits=http.Limits(max_connections=None, max_keepalive_connections=None)))
        made.organization = made.project = None   # from OPENAI_* variables; no other provider must learn them
        return made

    return SimpleNamespace(client=client, Response=http.Response, StatusError=openai.APIStatusError,
                           ConnectionError=openai.APIConnectionError,
                           unreachable=(http.ConnectError, http.ConnectTimeout, http.UnsupportedProtocol,
                                        http.ProxyError))


_KEPT_HEADERS = ("content-type", "retry-after", "retry-after-ms", "location")


def _is_loopback(base_url: str) -> bool:
    host = urlsplit(base_url).hostname or ""
    try:
        return ip_address(host).is_loopback or ip_address(host).is_unspecified
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def in_words(error: BaseException, hidden: Callable[[str], str] = str) -> str:
    """Type and text of an exception on one line, after `hidden` has seen it; of a group, of its first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = hidden(" ".join(str(error).split()))[:200]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
