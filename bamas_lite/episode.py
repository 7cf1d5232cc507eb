"""One episode: the calls that a topology makes, metered and traced, and what came of them.

A topology sees only a `Caller`: `await call(agent, messages)` and `await call.together(requests)`. Budget, bookkeeping,
virtual time and faults of the backend are handled here, once for all topologies.
"""

from __future__ import annotations

import asyncio
import math
import operator
from collections.abc import Awaitable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any

from bamas_lite.casting import Agent
from bamas_lite.grading import grade
from bamas_lite.inputs import shown
from bamas_lite.llm import BudgetMeter, CallError, ChatModel, Message, Reply, Reservation, RunStopped, Usage, billable
from bamas_lite.pool import ATOMS, LLM, MOST_TOKENS
from bamas_lite.tasks import Task

MOST_SECONDS = 1e6
"""A latency above this counts as this: it is kept finite, and no answer passes for one that came at once."""


class BudgetExhausted(Exception):
    """The budget does not allow the next call: the topology answers with what it has."""


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One call of an episode. Cost in u$; `start_s` and `end_s` are seconds of virtual time since the episode began.

    `max_tokens` is the limit that the call was given, `reserved` what was held back for it (u$; 0 with
    enforcement="paper"). `usage_reported` is False where the backend named no usable token counts and the worst case
    was booked instead. `fault` says why the text of a reply that was billed could not be used (empty: it could).
    """

    agent: str
    role: str
    llm: LLM
    messages: tuple[Message, ...]
    reply: Reply
    max_tokens: int
    usage: Usage
    cost: float
    reserved: float
    start_s: float
    end_s: float
    usage_reported: bool = True
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Episode:
    """What running one team on one task gave.

    Attributes:
        status: "ok", "infeasible" (the team cannot play the topology) or "error" (a call failed for good, or a bill
            without token counts used up the budget): these two are never graded.
        reason: why the status is not "ok", or why the answer is wrong; else empty.
        correct: the verdict of grading; None unless the status is "ok".
        answer: what grading found in `answer_text`, the last complete executor answer (Star: the vote's winner).
        stop_reason: "finished", "budget", "rounds" or "error"; an infeasible episode counts as stopped by its budget.
        cost: u$, the sum over calls, accumulated exactly; `budget` in u$.
        latency_s: end of the last call in seconds of virtual time.
        provider_overrun: calls that were billed more tokens than they were allowed.
        agents: who played what, in the order of their slots; also those whose turn never came.
        calls: the trace, in the order in which the calls were started.
        latency_budget: seconds; infinite without one.
    """

    task_id: str
    domain: str
    level: int
    topology: str
    team: Any
    budget: float
    status: str
    reason: str
    correct: bool | None
    answer: str | None
    answer_text: str | None
    stop_reason: str
    cost: float
    over_budget: bool
    n_calls: int
    prompt_tokens: int
    completion_tokens: int
    latency_s: float
    provider_overrun: int
    enforcement: str
    backend: str
    agents: tuple[Agent, ...] = ()
    calls: tuple[CallRecord, ...] = ()
    latency_budget: float = math.inf

    @property
    def over_latency(self) -> bool:
        """Whether it took longer than its latency budget, which only an LLM slower than its profile can cause."""
        return self.latency_s > self.latency_budget

    def row(self) -> dict[str, Any]:
        """The columns of a trajectory log that an episode knows (not run_id, behaviour_prob and seed)."""
        names = ("task_id", "domain", "level", "budget", "topology", "status", "reason", "correct", "stop_reason",
                 "cost", "over_budget", "n_calls", "prompt_tokens", "completion_tokens", "latency_s",
                 "provider_overrun", "answer", "enforcement", "backend")
        return {"team": str(self.team), **{name: getattr(self, name) for name in names}}


class Caller:
    """Makes the calls of one episode.

    Attributes:
        answer: text of the last complete executor answer so far; while there is none, the last partial one; else None.
        meter: what the calls may spend and have spent.
        records: the trace.
        now: virtual time in seconds.
        shortened: whether a reply was cut because the budgets left its call fewer tokens than its limit.
    """

    __slots__ = ("answer", "meter", "now", "records", "shortened", "_backend", "_complete", "_limits", "_task",
                 "_temperature")

    def __init__(self, task: Task, backend: ChatModel, meter: BudgetMeter, limits: dict[str, int],
                 temperature: float) -> None:
        self.answer: str | None = None
        self.now = 0.0
        self.records: list[CallRecord] = []
        self.shortened = False
        self._complete = False
        self._task, self._backend, self.meter = task, backend, meter
        self._limits, self._temperature = limits, temperature

    async def __call__(self, agent: Agent, messages: list[Message]) -> Reply:
        """Make one call after the calls before it.

        Raises:
            BudgetExhausted: the budget does not allow it.
            CallError: it failed for good.
        """
        reservation = self._reserve(agent, messages, self.now)
        if reservation is None:
            raise BudgetExhausted
        record = await self._make(agent, messages, reservation, self.now)
        self.note(record)
        self.now = record.end_s
        if record.fault:
            raise CallError(record.fault)
        return record.reply

    async def together(self, requests: list[tuple[Agent, list[Message]]]) -> list[Reply]:
        """Make independent calls at the same time: in their order, up to the first that the budget does not allow.

        All are reserved before any is started. With enforcement="paper" they are made one after another, as there the
        cost of one call decides about the next.

        Returns:
            The replies of the first calls that fitted the budget, at least one.

        Raises:
            BudgetExhausted: not even the first call fits.
            CallError: a call failed for good (the others are waited for: they are paid for).
        """
        if self.meter.enforcement == "paper":
            replies: list[Reply] = []
            try:
                for agent, messages in requests:
                    replies.append(await self(agent, messages))
            except BudgetExhausted:
                if not replies:
                    raise
            return replies
        pending = []
        for agent, messages in requests:
            reservation = self._reserve(agent, messages, self.now)
            if reservation is None:
                break
            pending.append((agent, messages, reservation))
        if not pending:
            raise BudgetExhausted
        if len(pending) == 1 or is_instant(self._backend):
            outcomes = [await self._attempt(*one) for one in pending]
        else:
            outcomes = await all_of(self._attempt(*one) for one in pending)
        records = [outcome for outcome in outcomes if isinstance(outcome, CallRecord)]
        for record in records:
            self.note(record)
        for outcome in sorted(outcomes, key=lambda outcome: not isinstance(outcome, RunStopped)):
            if isinstance(outcome, (CallError, RunStopped)):
                raise outcome
            if outcome.fault:
                raise CallError(outcome.fault)
        self.now = max(record.end_s for record in records)
        return [record.reply for record in records]

    async def at(self, start_s: float, agent: Agent, messages: list[Message], *, deadline_s: float | None = None,
                 purse: int | None = None) -> CallRecord | None:
        """Make one call that begins at `start_s`, beside whatever else is going on; `now` and the trace do not change.

        Args:
            deadline_s, purse: see BudgetMeter.reserve.

        Returns:
            The record, for the caller to `note` in its turn, also of a call with a fault; None: the budgets do not
            allow it.

        Raises:
            CallError: it failed for good and was not billed.
        """
        reservation = self._reserve(agent, messages, start_s, deadline_s, purse)
        return None if reservation is None else await self._make(agent, messages, reservation, start_s)

    def _reserve(self, agent: Agent, messages: list[Message], start_s: float,
                 deadline_s: float | None = None, purse: int | None = None) -> Reservation | None:
        try:
            bound = operator.index(self._backend.bound_prompt_tokens(agent.llm, messages))
        except Exception as error:
            raise CallError(f"{agent.name} ({agent.llm.name}): no bound on the prompt: {_words(error)}") from error
        limit = min(agent.llm.max_tokens, self._limits[agent.role])
        return self.meter.reserve(agent.llm, min(max(bound, 0), MOST_TOKENS), limit, agent.role,
                                  start_s=start_s, deadline_s=deadline_s, purse=purse)

    async def _attempt(self, agent: Agent, messages: list[Message],
                       reservation: Reservation) -> CallRecord | CallError | RunStopped:
        """The record of a call, or its failure as a value: the calls beside it are waited for, they are paid for."""
        try:
            return await self._make(agent, messages, reservation, self.now)
        except (CallError, RunStopped) as error:
            return error

    async def _make(self, agent: Agent, messages: list[Message], reservation: Reservation, start: float) -> CallRecord:
        usage, fault = None, ""
        text, latency, finish = "", 0.0, "stop"
        try:
            reply = await self._backend.complete(agent.llm, messages, max_tokens=reservation.max_tokens,
                                                 temperature=self._temperature, role=agent.role, task=self._task)
            usage = reply.usage
            text, latency, finish = _text(reply.text), reply.latency_s, reply.finish_reason
        except RunStopped:
            self.meter.release(reservation)
            raise
        except Exception as error:
            fault = f"{agent.name} ({agent.llm.name}): {_words(error)}"
            if isinstance(error, CallError) and error.usage is not None:
                usage, latency = error.usage, error.latency_s
            if billable(usage) is None:
                self.meter.release(reservation)
                raise CallError(fault) from error
        usage = billable(usage)
        reported = usage is not None
        if usage is None:
            # Unknown is booked as the worst case: a meter that guesses low would let the episode overspend.
            usage = Usage(reservation.prompt_bound, reservation.max_tokens)
        latency = _seconds(latency)
        if fault or text is not reply.text or usage is not reply.usage or latency is not reply.latency_s:
            reply = Reply(text, usage, latency, finish if isinstance(finish, str) else "stop")
        cost = self.meter.settle(reservation, usage)
        return CallRecord(agent.name, agent.role, agent.llm, tuple(messages), reply, reservation.max_tokens, usage,
                          cost, reservation.amount / ATOMS, start, start + latency, reported, fault)

    def note(self, record: CallRecord) -> None:
        """Add a call to the trace."""
        self.records.append(record)
        if record.reply.finish_reason == "length" and record.max_tokens < min(record.llm.max_tokens,
                                                                             self._limits[record.role]):
            self.shortened = True
        text = record.reply.text
        if record.role == "executor" and text and not text.isspace():
            complete = record.reply.finish_reason != "length"
            if complete or not self._complete:
                self.answer, self._complete = text, complete


async def play(moves: Awaitable[tuple[str | None, str]], call: Caller, *, task: Task, topology: str, team: Any,
               budget: float, backend: ChatModel, agents: Sequence[Agent]) -> Episode:
    """Let `moves` make its calls with `call`, then grade what it answers.

    Args:
        moves: a coroutine that returns the answer to grade (None: there is none) and the reason to stop. When the
            budget refuses it a call, `call.answer` is graded; when a call fails, nothing is.
        budget: u$, for the record: the meter in `call` enforces it.
    """
    status, reason, correct, answer, text = "ok", "", None, None, None
    try:
        text, stop = await moves
    except BudgetExhausted:
        text, stop = call.answer, "budget"
    except CallError as error:
        status, reason, stop = "error", str(error), "error"
    if (status == "ok" and (stop == "budget" or call.shortened) and budget < math.inf
            and not all(r.usage_reported for r in call.records)):
        # What ended or shortened it is a bill that nobody knows: no fault may pass for a wrong answer.
        status, stop = "error", "error"
        reason = "a reply without token counts was booked at its worst case, which left too little of the budget"
    if status == "ok":
        if text is None:
            correct, reason = False, "no answer"
        else:
            # A program takes a while, and other calls' replies must not wait for it.
            slow = task.domain == "code" and not is_instant(backend)
            verdict = await asyncio.to_thread(grade, task, text) if slow else grade(task, text)
            correct, answer, reason = verdict.correct, verdict.answer, verdict.reason
    records, meter = tuple(call.records), call.meter
    return Episode(
        task.task_id, task.domain, task.level, topology, team, budget, status, reason, correct, answer, text, stop,
        meter.spent, meter.over_budget, len(records), sum(r.usage.prompt_tokens for r in records),
        sum(r.usage.completion_tokens for r in records), max((r.end_s for r in records), default=0.0),
        meter.provider_overrun, meter.enforcement, backend.name, tuple(agents), records, meter.latency_budget)


def run_now(episode: Coroutine[Any, Any, Episode], backend: ChatModel, name: str) -> Episode:
    """Run the coroutine `name` to its end: without an event loop if the backend never waits, else in a new one.

    Raises:
        RuntimeError: called where an event loop runs already (a notebook), with a backend that waits.
    """
    if is_instant(backend):
        try:
            episode.send(None)
        except StopIteration as done:
            return done.value
        episode.close()
        raise RuntimeError(f"backend {backend.name!r}: complete is marked instant, but it waits")
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_alone(episode, backend))
    episode.close()
    raise RuntimeError(f"an event loop runs already: use `await {name}(...)` here")


async def _alone(episode: Coroutine[Any, Any, Episode], backend: ChatModel) -> Episode:
    """The only episode of an event loop, whose connections end with it."""
    try:
        return await episode
    finally:
        if hasattr(backend, "aclose"):
            await backend.aclose()


async def all_of(coroutines: Iterable[Coroutine[Any, Any, Any]]) -> list[Any]:
    """The results of coroutines that run at the same time, in their order; none runs on when this ends.

    After a failure or a cancellation the others are cancelled, and waited for, before it passes.
    """
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        return await asyncio.gather(*tasks)
    except (Exception, asyncio.CancelledError):
        for task in tasks:
            if not task.cancelling():   # a second time would interrupt what it does about the first
                task.cancel()
        await _ended(tasks)
        raise


async def _ended(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Wait until all have ended; a cancellation meanwhile passes only then."""
    cancelled = None
    while running := [task for task in tasks if not task.done()]:
        try:
            await asyncio.wait(running)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


def check_backend(backend: Any) -> None:
    """Make sure that `backend` is one, before anything is asked.

    Raises:
        ValueError: it is a class, or lacks name, complete or bound_prompt_tokens.
    """
    works = callable(getattr(backend, "complete", None)) and callable(getattr(backend, "bound_prompt_tokens", None))
    if isinstance(backend, type) or not works or not isinstance(getattr(backend, "name", None), str):
        raise ValueError(f"backend = {shown(backend)}: expected an object with name, complete and bound_prompt_tokens, "
                         "such as SimulatedLLM()")


def check_temperature(temperature: Any) -> None:
    """Raise ValueError unless `temperature` is a finite number of at least 0."""
    number = isinstance(temperature, (float, int, Real)) and not isinstance(temperature, bool)
    if not number or not 0 <= temperature < math.inf:
        raise ValueError(f"temperature = {shown(temperature)}: expected a number of at least 0")


def is_instant(backend: ChatModel) -> bool:
    """Whether `backend.complete` is marked (`complete.instant = True`) as a coroutine that never waits.

    The mark sits on the method, so that a subclass which overrides it does not inherit it.
    """
    return getattr(getattr(backend, "complete", None), "instant", False) is True


def _text(text: Any) -> str:
    """The text of a reply; None (a provider that sends no content) is empty; lone surrogates become "?"."""
    if text is None:
        return ""
    if not isinstance(text, str):
        raise TypeError(f"the reply's text is {type(text).__name__}, expected str")
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            return text.encode("utf-8", "replace").decode("utf-8")
    return text


def _seconds(latency: Any) -> float:
    """The latency of a reply, at most MOST_SECONDS; 0 for what is no time: NaN, negative, no number."""
    if not isinstance(latency, (float, int, Real, Decimal)) or isinstance(latency, bool):
        return 0.0
    if type(latency) not in (float, int):
        try:
            latency = float(latency)
        except OverflowError:   # a Fraction that is too large for a float
            return MOST_SECONDS if latency > 0 else 0.0
        except ValueError:   # a signaling NaN of decimal
            return 0.0
    return min(latency, MOST_SECONDS) if latency >= 0 else 0.0


def _words(error: Exception) -> str:
    """Type and text of an exception, on one line of readable length."""
    text = " ".join(str(error).split())[:300]
    name = type(error).__name__
    return f"{name}: {text}" if text else name
