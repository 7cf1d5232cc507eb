"""Live LLMs: any endpoint that speaks OpenAI's protocol, by the openai package's client.

Nothing is made, and no key is read, before the first call. The client's own retries are switched off: here each attempt
is read by `reader`, so that what was billed is never asked for again and each fault has a name.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
from collections import Counter
from math import inf
from numbers import Real
from time import perf_counter
from typing import Any
from weakref import WeakKeyDictionary

from bamas_lite.endpoints.clients import NO_KEY, Endpoint, Key, in_words
from bamas_lite.endpoints.reader import Answer, Fault, Text, read_answer
from bamas_lite.inputs import shown, whole
from bamas_lite.llm import CallError, Message, Reply, RunStopped, Usage
from bamas_lite.pool import LLM, Pool
from bamas_lite.tasks import Task
from bamas_lite.wire import ATTEMPTS, bound_tokens, request_body

LONGEST_PAUSE_S = 20.0
"""Of the pauses of our own choice between two attempts."""


class EndpointError(RunStopped):
    """An endpoint that answers no call: no or a wrong key, an unknown model, no host, no credit. Ends the run."""


class OpenAIChat:
    """A backend for live LLMs. `base_url`, key variable, limits and style of each stand in its entry of the pool file.

    Attempts that were not billed are repeated: no answer in time, a dropped connection, 408, 409, 429, 5xx, and answers
    that cannot be read. Refusals, replies without text and replies that the provider cut are billed: they end the
    call with CallError.usage. Backends can be pickled; each process and event loop makes clients of its own.

    Args:
        pool: whose LLMs will be called; for the label of the results only.
        max_retries: repetitions of one call.
        timeout_s: seconds for one attempt, from the request to the last byte; ten times as long for reasoning LLMs
            (LLM.timeout_s overrides it).
        concurrency: calls in flight for one LLM (LLM.concurrency overrides it), in each process.
        strict_bound: reserve one prompt token for each byte; see llm.bound_prompt_tokens.
        backoff_s: seconds before the first repetition; then twice as long each time. Retry-After overrides it.
        max_wait_s: the most that one call waits between its attempts in all.

    Attributes:
        name: label of the results: "live", with the models of the pool.
        identity: what decides the rows of a log, for its manifest.
        faults: how often each kind of fault was met, also in calls that succeeded later.

    Raises:
        ValueError: an argument is wrong.
    """

    paid = True

    def __init__(self, pool: Pool | None = None, *, max_retries: int = 5, timeout_s: float = 60.0,
                 concurrency: int = 32, strict_bound: bool = False, backoff_s: float = 0.5,
                 max_wait_s: float = 120.0) -> None:
        if pool is not None and not isinstance(pool, Pool):
            raise ValueError(f"pool = {shown(pool)}: expected a Pool, such as load_pool('my_pool.yaml'), or None")
        self.max_retries = whole(max_retries, "max_retries", 0, 100)
        self.concurrency = whole(concurrency, "concurrency", 1, 10_000)
        self.timeout_s = _seconds(timeout_s, "timeout_s")
        self.backoff_s, self.max_wait_s = _seconds(backoff_s, "backoff_s", 0), _seconds(max_wait_s, "max_wait_s", 0)
        if not isinstance(strict_bound, bool):
            raise ValueError(f"strict_bound = {shown(strict_bound)}: expected True or False")
        self.strict_bound = strict_bound
        models = dict.fromkeys(llm.model or llm.name for llm in pool.llms) if pool is not None else ()
        self.name = " ".join(["live", ", ".join(models)]).strip()
        self.identity = f"{self.name}, strict bound" if strict_bound else self.name
        self.faults: Counter[str] = Counter()
        self.key_variables = tuple({llm.api_key_env: 0 for llm in pool.llms if llm.api_key_env}) if pool else ()
        self._doubtful = 0
        self._endpoints: WeakKeyDictionary[Any, dict[tuple[str, Key], Endpoint]] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"OpenAIChat({self.name!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "faults": Counter(), "_doubtful": 0, "_endpoints": None}   # clients and keys stay here

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _endpoints=WeakKeyDictionary())

    def request(self, llm: LLM, messages: list[Message], max_tokens: int, temperature: float = 0.0) -> dict[str, Any]:
        """The JSON body that `complete` sends."""
        return request_body(llm, messages, max_tokens, temperature)

    def bound_prompt_tokens(self, llm: LLM, messages: list[Message]) -> int:
        """The most prompt tokens that the provider can bill for what is sent (see llm.bound_prompt_tokens)."""
        return bound_tokens(llm, messages, self.strict_bound)

    def take_doubtful_atoms(self) -> int:
        """The most that attempts since the last call of this may have cost without telling us, in atoms.

        Of an attempt without a readable answer nobody knows whether it was billed; it is not part of any cost. Who
        keeps a spend cap learns it call by call, before it is repeated: see wire.Attempts.
        """
        atoms, self._doubtful = self._doubtful, 0
        return atoms

    async def complete(self, llm: LLM, messages: list[Message], *, max_tokens: int, temperature: float = 0.0,
                       role: str = "executor", task: Task | None = None) -> Reply:
        """One reply. `latency_s` is that of the attempt that succeeded, without waiting for a turn.

        Raises:
            CallError: the call failed for good; `usage` says what was billed for it.
            EndpointError: no call to this endpoint can succeed.
        """
        endpoint = self._endpoint(llm)
        body = self.request(llm, messages, max_tokens, temperature)
        gate = endpoint.gate(llm, self.concurrency)
        limit_s = llm.timeout_s or self.timeout_s * (10 if llm.reasoning else 1)
        async with gate.turns:
            met: list[str] = []
            attempts = ATTEMPTS.get()
            waited = 0.0
            while True:
                await gate.pace()
                started = perf_counter()
                answer = await endpoint.attempt(body, limit_s)
                latency = perf_counter() - started
                read = read_answer(answer, llm, max_tokens) if isinstance(answer, Answer) else answer
                if isinstance(read, Text):
                    # Without usage the episode books the worst case.
                    return Reply(endpoint.without_key(read.text), read.usage, latency, read.finish_reason)  # type: ignore
                met.append(endpoint.without_key(read.words))
                self.faults[_KIND.match(met[-1])[0].strip()] += 1
                if read.doubtful or read.generated:
                    most = Usage(self.bound_prompt_tokens(llm, messages), max_tokens)
                    atoms = llm.cost_atoms(most.prompt_tokens, most.completion_tokens)
                    if read.generated:
                        read = Fault("call", read.words, most)
                    elif attempts is None:
                        self._doubtful += atoms
                    else:
                        attempts.doubtful += atoms
                pause = self._pause(read, len(met), waited)
                if pause is None:
                    break
                if read.doubtful and attempts is not None:
                    await attempts.hold(atoms)
                waited += pause
                await asyncio.sleep(pause)
        raise self._final(llm, read, met, latency)

    def _pause(self, fault: Fault, attempts: int, waited: float) -> float | None:
        """Seconds until the next attempt; None: there is none."""
        if fault.ends != "attempt" or attempts > self.max_retries:
            return None
        own = min(self.backoff_s * 2 ** (attempts - 1), LONGEST_PAUSE_S) * (0.5 + random.random() / 2)
        pause = own if fault.retry_after is None else fault.retry_after + own / 4
        return pause if waited + pause <= self.max_wait_s else None

    def _final(self, llm: LLM, fault: Fault, met: list[str], latency: float) -> CallError | EndpointError:
        where = _where(llm)
        words = met[-1] if len(met) == 1 else f"{len(met)} attempts failed: {_counted(met)}"
        key = f"; its key is read from the environment variable {llm.api_key_env}" if llm.api_key_env else ""
        if fault.unreachable:
            return EndpointError(f"{where}: no connection: {words}; check base_url in the pool file and the network, "
                                 "and whether the server runs")
        if fault.ends == "run":
            return EndpointError(f"{where}: {words}{key}")
        if fault.ends == "attempt" and (fault.retry_after or 0) > self.max_wait_s:
            return EndpointError(f"{where}: {words}; it asks to wait {fault.retry_after:.0f} s, more than max_wait_s = "
                                 f"{self.max_wait_s:g}; go on later")
        # Such words stand in the rows of logs, which may be shared: they do not name the address.
        return CallError(f"LLM {llm.name!r}: {words}", fault.usage, latency if fault.usage is not None else 0.0)

    def _endpoint(self, llm: LLM) -> Endpoint:
        """The endpoint of an LLM with the client of the running event loop."""
        if llm.base_url is None:
            raise EndpointError(f"{_where(llm)}: it has no base_url; put the address of its endpoint into the pool "
                                "file, such as base_url: https://api.openai.com/v1")
        key = _key(llm)
        loop = asyncio.get_running_loop()
        endpoints = self._endpoints.get(loop)
        if endpoints is None:
            endpoints = self._endpoints[loop] = {}
        place = llm.base_url, key
        if place not in endpoints:   # also when the reader has just set another key
            fault = ""
            try:
                endpoints[place] = Endpoint(llm.base_url, key)
            except Exception as error:   # a port that is none, a proxy or a certificate file that cannot be used
                fault = in_words(error)
            if fault:
                raise EndpointError(f"{_where(llm)}: no client can be made ({fault}); check base_url in the pool file, "
                                    "and the proxy settings of the environment")
        return endpoints[place]

    async def aclose(self) -> None:
        """Close the connections of the running event loop; the next call makes new ones."""
        for endpoint in self._endpoints.pop(asyncio.get_running_loop(), {}).values():
            await endpoint.client.close()


_KIND = re.compile(r"[^:(]*")
"""The words of a fault without what differs from one to the next."""


def _where(llm: LLM) -> str:
    at = f" at {llm.base_url}" if llm.base_url else ""
    return f"LLM {llm.name!r} (model {llm.model or llm.name!r}{at})"


def _key(llm: LLM) -> Key:
    """The key of an LLM, from the environment."""
    if llm.api_key_env is None:
        return Key(NO_KEY)
    key = Key(os.environ.get(llm.api_key_env, "").strip())
    where = f"{_where(llm)}: the environment variable {llm.api_key_env}"
    if not key.value:
        raise EndpointError(f"{where} is not set; put the key into it (not into the pool file), or remove api_key_env "
                            "from the pool file if the endpoint needs no key")
    if not re.fullmatch(r"[!-~]+", key.value):
        raise EndpointError(f"{where} holds spaces or signs that no key has; set it to the key alone")
    return key


def _counted(words: list[str]) -> str:
    return "; ".join(f"{text} ({times} times)" if times > 1 else text for text, times in Counter(words).items())


def _seconds(value: Any, what: str, least: float | None = None) -> float:
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not (value > 0 if least is None else value >= least) or not value < inf:
        raise ValueError(f"{what} = {shown(value)}: expected a number of seconds of "
                         + ("more than 0" if least is None else f"at least {least}"))
    return float(value)
