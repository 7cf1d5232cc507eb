"""A stand-in for a live backend, for tests of recordings: what it does is a function of the request, and counted."""

import asyncio
import hashlib
import json
import os
from pathlib import Path

from bamas_lite import CallError, Reply, SimulatedLLM, Usage, load_pool
from bamas_lite.wire import bound_tokens, request_body

POOL = load_pool("paper")
LLM = POOL.llms[0]
USAGE = Usage(20, 30)


def asking(text: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": "You add numbers."}, {"role": "user", "content": text}]


def digest(llm, messages, max_tokens, temperature=0.0) -> str:
    request = json.dumps(request_body(llm, messages, max_tokens, temperature))
    return hashlib.sha256(f"{llm.name}{request}".encode()).hexdigest()


class Live:
    """Answers after `latency_s`. `log` is a file with a line "start <request>" for each call: processes share it."""

    name, paid, strict_bound = "live toy", True, False

    def __init__(self, latency_s: float = 0.0, log: Path | None = None, usage: Usage | None = USAGE) -> None:
        self.latency_s, self.log, self.usage, self.calls = latency_s, log, usage, 0

    def bound_prompt_tokens(self, llm, messages):
        return bound_tokens(llm, messages, self.strict_bound)

    async def complete(self, llm, messages, *, max_tokens, temperature=0.0, role="executor", task=None):
        self.calls += 1
        note(self.log, "start", digest(llm, messages, max_tokens, temperature))
        if self.latency_s:
            await asyncio.sleep(self.latency_s)
        return self.answer(llm, messages, max_tokens)

    def answer(self, llm, messages, max_tokens):
        return Reply(f"{messages[-1]['content']} of {llm.name}: {self.calls}", self.usage, 0.1 + self.calls / 7)


class Episodes(Live):
    """Replies that topologies can work with, from the simulator; some calls fail, billed or not, or lack their usage.

    `flaky`: a failure that was not billed is gone at the next try.
    """

    def __init__(self, flaky: bool = False, **options) -> None:
        super().__init__(**options)
        self._simulated, self._flaky, self._failed = SimulatedLLM(seed=3), flaky, set()

    async def complete(self, llm, messages, *, max_tokens, temperature=0.0, role="executor", task=None):
        await super().complete(llm, messages, max_tokens=max_tokens)
        reply = await self._simulated.complete(llm, messages, max_tokens=max_tokens, role=role, task=task)
        of = digest(llm, messages, max_tokens)
        chance = int(of[:4], 16) / 0x10000
        if chance < 0.04:
            raise CallError("the provider refused", Usage(reply.usage.prompt_tokens, 3), 0.25)
        if chance < 0.08 and of not in self._failed:
            if self._flaky:
                self._failed.add(of)
            raise CallError("503")
        return Reply(reply.text, None if chance < 0.12 else reply.usage, 0.1 + chance / 3, reply.finish_reason)


def note(log: Path | None, *words: str) -> None:
    """Add a line to a log that several processes may write to."""
    if log is not None:
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(file, (" ".join(words) + "\n").encode())
        os.close(file)


def lines(log: Path) -> list[list[str]]:
    return [line.split() for line in log.read_text().splitlines()] if log.exists() else []
