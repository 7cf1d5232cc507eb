"""The openai package's client, one for each endpoint and event loop, read down to the last byte and named fault.

The package is imported on first use. Its own retries are switched off, and no exception of it leaves this module: they
hold the request, with its key.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
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

IDLE_S = 2.0
"""Seconds that an unused connection is kept: less than servers do, since a request on one that the server is just
closing is dropped, and nobody can tell whether it was read before."""

NO_KEY = "no-key"
"""Sent to endpoints that need none: the client wants to send something."""


@dataclass(frozen=True, repr=False)
class Key:
    """A key whose repr does not show it, as tools that report errors print the variables of each frame."""

    value: str

    @cached_property
    def _forms(self) -> re.Pattern[str] | None:
        """The key as it is, or escaped as in JSON (also in JSON within JSON) or in an address; None: no secret."""
        if self.value == NO_KEY or (len(self.value) < 8 and self.value.isalnum()):   # words such as "ollama"
            return None
        signs = ((re.escape(sign) if sign.isalnum() else r"\\{0,3}" + re.escape(sign), f"{ord(sign):02x}")
                 for sign in self.value)
        return re.compile("".join(rf"(?:%{code}|\\{{1,3}}u00{code}|{sign})" for sign, code in signs), re.IGNORECASE)

    def hide(self, text: str) -> str:
        """`text`, should the server echo the key."""
        return text if self._forms is None else self._forms.sub("***", text)


class Endpoint:
    """An endpoint, as one event loop sees it."""

    def __init__(self, base_url: str, key: Key) -> None:
        self.without_key = key.hide
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
        except BaseException as error:   # the task is canceled: without the client's frames, which hold the request
            raise error.with_traceback(None) from None
        headers = {name: self.without_key(value) for name, value in response.extensions["headers"].items()}
        return Answer(response.status_code, headers, response.content, response.extensions["broken"], self.without_key)


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
            # Headers hold any bytes: the packages that read this further do not see them.
            headers = {name: value.decode("utf-8", "replace") for key, value in response.headers.raw
                       if (name := key.decode("latin-1").lower().removeprefix(_HELD)) in _KEPT_HEADERS}
            return http.Response(response.status_code, content=bytes(body), request=request,
                                 extensions={"broken": broken, "headers": headers})

    async def hold(response: Any) -> None:
        """Put a redirect's address out of sight: the client would read it, although it is not to follow."""
        response.headers = http.Headers([(_HELD.encode() + name if name.lower() == b"location" else name, value)
                                         for name, value in response.headers.raw])

    class Quiet(openai.AsyncOpenAI):
        """Sends the same headers whatever OPENAI_CUSTOM_HEADERS, OPENAI_ORG_ID, OPENAI_PROJECT_ID and OPENAI_ADMIN_KEY
        hold: they are meant for one provider, and no other must learn them."""

        @property
        def default_headers(self) -> dict[str, Any]:
            return {"Accept": "application/json", "Content-Type": "application/json", "User-Agent": self.user_agent,
                    **self.auth_headers}

    def client(base_url: str, key: Key) -> Any:
        """A client without limits of its own: the gates and `attempt` have them."""
        timeout = http.Timeout(None, connect=CONNECT_S)
        limits = http.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=IDLE_S)
        return Quiet(api_key=key.value, base_url=base_url, max_retries=0, timeout=timeout, http_client=Client(
            timeout=timeout, limits=limits, follow_redirects=False, trust_env=not _is_loopback(base_url),
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())), event_hooks={"response": [hold]}))

    return SimpleNamespace(client=client, Response=http.Response, StatusError=openai.APIStatusError,
                           ConnectionError=openai.APIConnectionError,
                           unreachable=(http.ConnectError, http.ConnectTimeout, http.UnsupportedProtocol,
                                        http.ProxyError))


_KEPT_HEADERS = ("content-type", "retry-after", "retry-after-ms", "location")
_HELD = "held-"


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
