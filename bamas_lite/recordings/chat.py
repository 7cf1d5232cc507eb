"""The backend that records and replays.

`CachedChat` stands between the episodes and a backend. It answers from its file what the file holds; everything else it
asks the backend, once, and hands a reply out only after it is on the disk.
"""

from __future__ import annotations

import asyncio
import json
import operator
import os
import threading
import weakref
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from math import floor
from pathlib import Path
from typing import Any

from bamas_lite.episode import check_backend
from bamas_lite.inputs import exact, shown
from bamas_lite.llm import CallError, ChatModel, Message, Reply, RunStopped, billable
from bamas_lite.pool import ATOMS, LLM, MOST_TOKENS
from bamas_lite.recordings.files import ExportedCalls
from bamas_lite.recordings.jobs import Call, Claim, Hold, Settle
from bamas_lite.recordings.miss import RecordingMiss, explain
from bamas_lite.recordings.store import (
    Answer,
    Calls,
    RecordingError,
    create,
    file_identity,
    key_of,
    plain_text,
    recording_path,
    request_text,
    seconds,
)
from bamas_lite.recordings.writer import Writer
from bamas_lite.tasks import Task
from bamas_lite.wire import ATTEMPTS, Attempts, bound_tokens, request_body

GRACE_S = 5.0
"""How long a call in flight is waited for after Ctrl-C: it is paid for, so its answer should be kept."""

HOLD_S = 30.0
"""How long a call, an attempt of which may have been billed, waits for room under the cap to be attempted again."""

_ATOMS_PER_USD = 10**6 * ATOMS
_BOUNDS = {None: "own", False: "plain", True: "strict"}


class CachedChat:
    """A backend that records what another backend answers, or replays a recording.

    Args:
        inner: the backend to ask, such as OpenAIChat(); None replays only: no key, no network, no client is needed.
        path: the recording, a .sqlite file; it is made if it is not there. To replay, also an exported .parquet file.
        spend_cap_usd: what all calls of this recording together may cost, over all sittings and processes. The worst
            case of each call is held back before it is made, that of each repetition too where an attempt broke off
            and was perhaps billed. 0 makes no new calls; None sets no bound.
        seed: part of the key. A request with a temperature above 0 is asked once for each seed and then repeated from
            the recording: for samples that differ, use other seeds, as `generate_trajectories(..., seeds=(0, 1, 2),
            backend=chat.with_seed)` does.

    Keyed by the whole request, the LLM's name and the seed, not by the address of the endpoint. Any number of tasks,
    threads, event loops and processes may share a file (on one machine: SQLite's write-ahead log does not work on
    network drives); equal calls in flight are made once. A reply is handed out after it is on the disk, so a process
    that is killed loses only calls in flight. One that stands still (Ctrl-Z) keeps its calls in flight for an hour,
    where the others can see that it lives; they wait for these calls. What was billed is kept and not asked again,
    failures too; a failure that was not billed is kept for replays and tried again by a live run. A canceled call in
    flight is waited for a few seconds, so that its answer is kept. With little room on the disk no call is made; a paid
    answer for which there is no room after all is kept in a folder beside, <path>-unsaved, and saved when the recording
    is used next.

    The recording holds requests, replies and a ledger; no key, no header, no path. A request that itself contains the
    key of its endpoint, or another key of the backend's pool, is refused.

    Attributes:
        name: the backend's own label while recording, also for what the file answers, so that a resumed run has the
            rows of an unbroken one; in a replay "recorded" and the LLMs that the recording holds.
        identity: for the manifest of a log; the same for each sitting.
        paid: whether new calls cost money.

    Raises:
        ValueError: a doubtful argument.
        RecordingError: the file cannot be used: no recording, another version or kind, not readable or writable.
    """

    def __new__(cls, inner: ChatModel | None, *_: Any, **__: Any) -> CachedChat:
        return super().__new__(_Replay if inner is None and cls is CachedChat else cls)

    def __init__(self, inner: ChatModel | None, path: str | Path, *, spend_cap_usd: Any = None, seed: int = 0) -> None:
        if not isinstance(seed, int) or isinstance(seed, bool) or not -(2**63) <= seed < 2**63:
            raise ValueError(f"seed = {shown(seed)}: expected a whole number of at most 64 bits")
        self._cap = None
        if spend_cap_usd is not None:
            cap = exact(spend_cap_usd, "spend_cap_usd")
            if cap < 0:
                raise ValueError(f"spend_cap_usd = {shown(spend_cap_usd)}: expected at least 0 USD, or None for no cap")
            self._cap = floor(cap * _ATOMS_PER_USD)
        if inner is not None:
            check_backend(inner)
        self.inner, self.seed, self.spend_cap_usd = inner, seed, spend_cap_usd
        self.path = recording_path(path, new=inner is not None)
        if inner is not None and self.path.suffix == ".parquet":
            raise ValueError(f"path = {shown(str(path))}: an exported recording can only be replayed (inner=None); "
                             "record into a .sqlite file")
        self._recording = _recording(self.path, self._made_with())

    def _made_with(self) -> dict[str, str] | None:
        """What a recording says about its backend; None to replay it."""
        strict = getattr(self.inner, "strict_bound", None)
        return {"kind": self.inner.name.split(" ")[0], "bound": _BOUNDS[strict if strict is None else bool(strict)]}

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def identity(self) -> str:
        return f"{getattr(self.inner, 'identity', self.inner.name)}, recorded with seed {self.seed}"

    @property
    def paid(self) -> bool:
        return bool(getattr(self.inner, "paid", False))

    def __reduce__(self) -> Any:
        options = {"spend_cap_usd": self.spend_cap_usd, "seed": self.seed}
        return partial(CachedChat if type(self) is _Replay else type(self), **options), (self.inner, str(self.path))

    def with_seed(self, seed: int) -> CachedChat:
        """The same backend and recording with another seed."""
        return CachedChat(self.inner, self.path, spend_cap_usd=self.spend_cap_usd, seed=seed)

    def spent_usd(self) -> float:
        """What the calls of this recording have cost in all, in USD; 0 for an exported one, which has no ledger."""
        return self._open().calls.totals()[0] / _ATOMS_PER_USD

    def paid_calls(self) -> int:
        """Calls of this recording that were billed."""
        return self._open().calls.totals()[2]

    async def aclose(self) -> None:
        """Close the backend's connections of the running event loop."""
        if hasattr(self.inner, "aclose"):
            await self.inner.aclose()

    def close(self) -> None:
        """Close the file, which is opened again when it is needed; without it, that happens at the end of Python."""
        self._recording.close()

    def bound_prompt_tokens(self, llm: LLM, messages: list[Message]) -> int:
        """The most prompt tokens that these messages can have: as the backend says."""
        return self.inner.bound_prompt_tokens(llm, messages)

    def _request(self, llm: LLM, messages: list[Message], max_tokens: int, temperature: float) -> dict[str, Any]:
        request = getattr(self.inner, "request", request_body)
        return request(llm, messages, max_tokens, temperature)

    def _open(self) -> _Recording:
        """The open file: another one after a fork, whose child must not use the connections of its parent."""
        if self._recording.closed or self._recording.pid != os.getpid():
            self._recording = _recording(self.path, self._made_with())
        return self._recording

    async def complete(self, llm: LLM, messages: list[Message], *, max_tokens: int, temperature: float = 0.0,
                       role: str = "executor", task: Task | None = None) -> Reply:
        """The recorded reply, or the backend's, which is recorded first.

        Raises:
            CallError: the call failed for good, now or when it was recorded.
            SpendCapReached: it could cost more than the spend cap leaves.
            RecordingError: the file cannot be read or written.
        """
        recording = self._open()
        request = request_text(self._request(llm, messages, max_tokens, temperature))
        key = key_of(llm.name, self.seed, request)
        answer = recording.calls.find(key)
        if answer is not None and answer.final:
            return answer.reply()
        options = {"max_tokens": max_tokens, "temperature": temperature, "role": role, "task": task}
        loop = asyncio.get_running_loop()
        flight = recording.flights.get((id(loop), key))
        if flight is None or flight.task.get_loop() is not loop or flight.task.done() or flight.task.cancelling():
            bound = min(max(operator.index(self.bound_prompt_tokens(llm, messages)), 0), MOST_TOKENS)
            _refuse_keys(llm, request, getattr(self.inner, "key_variables", ()))
            call = Call(key, llm.name, plain_text(llm.model or llm.name), self.seed, request, plain_text(str(role)),
                        None if task is None else plain_text(str(task.task_id)), llm.cost_atoms(bound, max_tokens))
            flight = _Flight()
            flight.task = loop.create_task(self._fly(flight, recording.writer, call, llm, messages, options))
            recording.flights[id(loop), key] = flight
            flight.task.add_done_callback(partial(_landed, recording.flights, (id(loop), key), flight))
        return (await flight.join()).reply()

    async def _fly(self, flight: _Flight, writer: Writer, call: Call, llm: LLM, messages: list[Message],
                   options: dict[str, Any]) -> Answer:
        """Make a call, unless somebody else does: claim it, ask the backend, record the answer."""
        wait_s = 0.005
        while True:
            try:
                outcome = await writer.write(Claim(call, self._cap))
            except (asyncio.CancelledError, GeneratorExit):
                writer.submit(Settle(call, None), _ignore)   # the claim may be granted after this
                raise
            if isinstance(outcome, Answer):
                return outcome
            if outcome:
                break
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, 0.25)
        flight.calling = True
        attempts = Attempts(partial(self._hold, writer, call))
        ATTEMPTS.set(attempts)   # for this task
        # a backend that does not count what attempts without an answer may have cost leaves us the worst case
        take = getattr(self.inner, "take_doubtful_atoms", None)

        def doubtful() -> int:
            return attempts.doubtful + (take() if take else 0)

        try:
            answer = _answer(await self.inner.complete(llm, messages, **options), llm)
        except RunStopped:
            with suppress(RunStopped):   # why the run ends is said by the first of them
                await writer.write(Settle(call, None, unconfirmed=doubtful()))
            raise
        except Exception as error:
            answer = _failure(error, getattr(error, "usage", None), getattr(error, "latency_s", 0.0), llm)
        except BaseException:   # canceled: it may be billed without our knowledge
            writer.submit(Settle(call, None, unconfirmed=call.worst + doubtful()), _ignore)
            raise
        unconfirmed = doubtful() or (0 if take or answer.final else call.worst)
        cost = None
        if answer.usage is not None:
            usage = answer.usage
            cost = llm.cost_atoms(usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens)
        elif answer.error is None:
            cost = call.worst   # as an episode books a reply without usage
        return await writer.write(Settle(call, answer, cost, unconfirmed))

    async def _hold(self, writer: Writer, call: Call, atoms: int) -> None:
        """Hold back so much more for a call. Raises SpendCapReached if the cap does not allow it, now or soon."""
        loop = asyncio.get_running_loop()
        end, wait_s = loop.time() + HOLD_S, 0.005
        while not await writer.write(Hold(call, atoms, self._cap, last=loop.time() >= end)):
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, 0.25)


class _Replay(CachedChat):
    """A CachedChat without a backend: it answers from the file only, and so never waits."""

    def _made_with(self) -> None:
        return None

    @property
    def name(self) -> str:
        return self._recording.name

    @property
    def identity(self) -> str:
        return f"{self.name}, seed {self.seed}"

    def bound_prompt_tokens(self, llm: LLM, messages: list[Message]) -> int:
        """The most prompt tokens that these messages can have: as the backend of the recording said."""
        return bound_tokens(llm, messages, self._recording.strict)

    async def complete(self, llm: LLM, messages: list[Message], *, max_tokens: int, temperature: float = 0.0,
                       role: str = "executor", task: Task | None = None) -> Reply:
        """The recorded reply.

        Raises:
            CallError: the call failed for good when it was recorded.
            RecordingMiss: the call is not in the recording.
        """
        body = request_body(llm, messages, max_tokens, temperature)
        answer = self._open().calls.find(key_of(llm.name, self.seed, request_text(body)))
        if answer is None:
            raise RecordingMiss(explain(self._recording.calls, self.path, llm, self.seed, body, messages, role))
        return answer.reply()

    complete.instant = True


def _answer(reply: Reply, llm: LLM) -> Answer:
    try:
        return Answer.of(reply)
    except TypeError as error:   # billed, but its text is none
        return _failure(error, reply.usage, 0.0, llm)


def _failure(error: Exception, usage: Any, latency_s: Any, llm: LLM) -> Answer:
    message = str(error) if isinstance(error, CallError) else f"{type(error).__name__}: {error}"
    if llm.base_url is not None:   # whose address is nobody's business, and a local one changes from run to run
        message = message.replace(llm.base_url, "its base_url")
    return Answer("", billable(usage), seconds(latency_s), "stop", plain_text(message))


def _ignore(_: Any) -> None:
    """Nobody waits for the outcome."""


def _refuse_keys(llm: LLM, request: str, variables: Iterable[str]) -> None:
    """Raise RecordingError where a request holds the key of its endpoint or another one of the backend: it would be
    recorded, and shared."""
    for variable in {llm.api_key_env or "": 0, **dict.fromkeys(variables)}:
        secret = os.environ.get(variable, "").strip()
        # as it is, as it stands in a text of the request, and in JSON within such a text
        forms = secret, _escaped(secret), _escaped(_escaped(secret))
        if len(secret) >= 8 and any(form in request for form in forms):
            raise RecordingError(f"{llm.name}: the request itself contains the value of {variable}; keys do not "
                                 "belong into tasks, prompts or extra_body, and a recording would keep it")


def _escaped(text: str) -> str:
    return json.dumps(text)[1:-1]


class _Flight:
    """A call in flight in one event loop, and how many wait for it."""

    def __init__(self) -> None:
        self.task: asyncio.Task[Answer]
        self.waiting, self.calling = 0, False

    async def join(self) -> Answer:
        """Its outcome. The last who is canceled gives it a short grace, then cancels it if nobody has joined."""
        self.waiting += 1
        try:
            return await asyncio.shield(self.task)
        except asyncio.CancelledError:
            if self.waiting == 1 and not self.task.done():
                try:
                    if self.calling:
                        await asyncio.wait({self.task}, timeout=GRACE_S)
                finally:
                    if self.waiting == 1:
                        self.task.cancel()
            raise
        finally:
            self.waiting -= 1


def _landed(flights: dict[Any, _Flight], place: Any, flight: _Flight, task: asyncio.Task[Answer]) -> None:
    if flights.get(place) is flight:
        del flights[place]
    if not task.cancelled():
        task.exception()   # seen, also where everybody who waited was canceled


class _Recording:
    """An open file, shared by all CachedChat of a process that use it."""

    def __init__(self, path: Path, replay: bool) -> None:
        self.pid = os.getpid()
        self.flights: dict[tuple[int, bytes], _Flight] = {}
        self.calls: Calls | ExportedCalls = ExportedCalls(path) if path.suffix == ".parquet" else Calls(path)
        self.writer = None if replay else Writer(path)
        if replay:
            if self.calls.meta["bound"] == "own":
                self.calls.close()
                raise RecordingError(
                    f"recording {path}: was made with a backend that bounds prompts in a way of its own, so a replay "
                    "could not reserve alike; use that backend as inner. (A backend whose bound is wire.bound_tokens "
                    "says so by an attribute strict_bound = False or True.)")
            self.strict = self.calls.meta["bound"] == "strict"
            kind, llms = self.calls.meta["kind"], ", ".join(self.calls.llms())
            self.name = f"recorded {llms}" if kind in ("live", "recorded") else f"recorded {kind}"

        # also at the end of Python, so that no -wal file is left behind with half of the recording in it
        self.close = weakref.finalize(self, _close, self.calls, self.writer, self.pid)

    @property
    def closed(self) -> bool:
        return not self.close.alive


def _close(calls: Calls | ExportedCalls, writer: Writer | None, pid: int) -> None:
    if pid == os.getpid():   # not in a forked child: they are its parent's
        calls.close()
        if writer is not None:
            writer.close()


_open_files: weakref.WeakValueDictionary[Any, _Recording] = weakref.WeakValueDictionary()
_opening = threading.RLock()
_inherited: list[_Recording] = []


def _recording(path: Path, made_with: dict[str, str] | None) -> _Recording:
    """The open recording at `path`, made if need be; `made_with` None: to replay."""
    with _opening:
        if made_with is not None:
            create(path, made_with)
        place = made_with is None, path, file_identity(path)
        found = _open_files.get(place)
        if found is None or found.closed:
            found = _open_files[place] = _Recording(path, made_with is None)
        return found


def _after_fork() -> None:
    """In a forked child: leave the parent's files alone; closing them there could damage them."""
    global _opening
    _opening = threading.RLock()
    _inherited.extend(_open_files.values())
    _open_files.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
