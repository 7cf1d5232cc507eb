"""Parts of a run - one seed, a few tasks, all budgets and topologies - and how one process computes them.

A backend that never waits needs no event loop: its episodes run one after another. With any other backend one event
loop runs the episodes of all parts, so many in flight at once. Whatever ends a run early - no key, no host, no disk,
the spend cap, Ctrl-C - ends it the same way: no episode and no call is started any more, the calls in flight are waited
for (they are paid for), and what is whole is saved.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import pyarrow as pa

from bamas_lite.episode import Episode, is_instant
from bamas_lite.llm import LLM, ChatModel, Enforcement, Message, Reply, RunStopped
from bamas_lite.pool import Pool
from bamas_lite.provisioning import InfeasibleBudgetError, Team, provision
from bamas_lite.tasks import Task
from bamas_lite.topologies import infeasible_episode, run_task, run_task_sync
from bamas_lite.trajectory_log import MOST_COUNT, SCHEMA

Backend = ChatModel | Callable[[int], ChatModel]
"""A backend, or a function (or class) that makes the backend of a seed."""

Save = Callable[["Part", pa.Table], None]

_T = TypeVar("_T")


def backend_of(backend: Backend, seed: int) -> ChatModel:
    """The backend of a seed."""
    return backend if hasattr(backend, "complete") and not isinstance(backend, type) else backend(seed)


class Stopped(RunStopped):
    """What ends the calls and episodes that are open when something else has ended the run."""

    def __init__(self, message: str = "the run was stopped") -> None:
        super().__init__(message)


@dataclass(frozen=True, eq=False)
class Part:
    """All that decides some rows of a run, which are saved together; it can travel to another process.

    `first` is the number of its first task in the run, `first_row` that of its first row.
    """

    seed: int
    first: int
    first_row: int
    tasks: tuple[Task, ...]
    budgets: tuple[float, ...]
    topologies: tuple[str, ...]
    pool: Pool
    backend: Backend
    enforcement: Enforcement
    casting: str

    @property
    def n_rows(self) -> int:
        return len(self.tasks) * len(self.budgets) * len(self.topologies)

    def factors(self, number: int) -> tuple[Task, float, str]:
        """Task, budget and topology of a row, counted from 0."""
        number, topology = divmod(number, len(self.topologies))
        task, budget = divmod(number, len(self.budgets))
        return self.tasks[task], self.budgets[budget], self.topologies[topology]

    def row(self, number: int, episode: Episode) -> dict[str, Any]:
        row = episode.row()
        for name in ("prompt_tokens", "completion_tokens"):
            row[name] = min(row[name], MOST_COUNT)
        if not row["reason"].isascii():   # words of some exception; half a surrogate pair could not be written
            row["reason"] = row["reason"].encode("utf-8", "replace").decode("utf-8")
        return row | {"run_id": f"{self.first_row + number:07d}", "behaviour_prob": 1 / len(self.topologies),
                                "seed": self.seed}

    def infeasible(self, number: int, reason: str, backend: ChatModel) -> Episode:
        task, budget, topology = self.factors(number)
        return infeasible_episode(task, topology, budget, reason, backend=backend.name, enforcement=self.enforcement)


@lru_cache(maxsize=1024)
def team_of(pool: Pool, budget: float) -> Team | InfeasibleBudgetError:
    """The team of a budget, provisioned once in a process."""
    try:
        return provision(pool, budget)
    except InfeasibleBudgetError as error:
        return error


def compute(parts: Sequence[Part], concurrency: int, save: Save, tick: Callable[[], None],
            stopped: Callable[[], bool] = lambda: False) -> None:
    """Compute parts in this process.

    Args:
        concurrency: the most episodes in flight at once.
        save: gets a part and its rows as soon as it is whole.
        tick: called after each episode.
        stopped: asked before each episode and call: whether something outside has ended the run.

    Raises:
        RunStopped: a call or `stopped` ended the run; whatever else a backend or `save` raises ends it the same way.
    """
    backends = {seed: backend_of(backend, seed) for seed, backend in {p.seed: p.backend for p in parts}.items()}
    if not all(map(is_instant, backends.values())):
        run_coroutine(_compute(parts, backends, concurrency, save, tick, _Stop(stopped)))
        return
    for part in parts:
        if stopped():
            raise Stopped
        backend, rows = backends[part.seed], []
        for number in range(part.n_rows):
            task, budget, topology = part.factors(number)
            team = team_of(part.pool, budget)
            if isinstance(team, InfeasibleBudgetError):
                episode = part.infeasible(number, str(team), backend)
            else:
                episode = run_task_sync(task, team, topology, backend, budget, enforcement=part.enforcement,
                                        casting=part.casting)
            rows.append(part.row(number, episode))
            tick()
        save(part, pa.Table.from_pylist(rows, schema=SCHEMA))


class _Stop:
    """Whether a run ends early, and why: the first error counts."""

    def __init__(self, outside: Callable[[], bool]) -> None:
        self._outside = outside
        self.error: BaseException | None = None

    def because(self, error: BaseException) -> None:
        self.error = self.error or error

    def now(self) -> bool:
        if self.error is None and self._outside():
            self.error = Stopped()
        return self.error is not None


class _Gated:
    """A backend that makes no more calls once the run has stopped, and stops it itself where one of them must."""

    def __init__(self, backend: ChatModel, stop: _Stop) -> None:
        self._backend, self._stop = backend, stop
        self.bound_prompt_tokens = backend.bound_prompt_tokens

    @property
    def name(self) -> str:
        return self._backend.name

    async def complete(self, llm: LLM, messages: list[Message], **options: Any) -> Reply:
        if self._stop.now():
            raise Stopped
        try:
            return await self._backend.complete(llm, messages, **options)
        except RunStopped as error:
            self._stop.because(error)  # at once: the calls beside this one may take a while
            raise


async def _compute(parts: Sequence[Part], backends: dict[int, ChatModel], concurrency: int, save: Save,
                   tick: Callable[[], None], stop: _Stop) -> None:
    gated = {seed: _Gated(backend, stop) for seed, backend in backends.items()}
    rows: dict[Part, list[dict[str, Any] | None]] = {}
    missing: dict[Part, int] = {}
    episodes = ((part, number) for part in parts for number in range(part.n_rows))

    async def episode_of(part: Part, number: int) -> Episode:
        task, budget, topology = part.factors(number)
        team = team_of(part.pool, budget)
        if isinstance(team, InfeasibleBudgetError):
            return part.infeasible(number, str(team), gated[part.seed])
        return await run_task(task, team, topology, gated[part.seed], budget, enforcement=part.enforcement,
                              casting=part.casting)

    async def one_after_another() -> None:
        while not stop.now() and (following := next(episodes, None)):
            part, number = following
            if part not in rows:
                rows[part], missing[part] = [None] * part.n_rows, part.n_rows
            try:
                rows[part][number] = part.row(number, await episode_of(part, number))
                missing[part] -= 1
                tick()
                if not missing[part]:
                    save(part, pa.Table.from_pylist(rows.pop(part), schema=SCHEMA))
            except BaseException as error:  # of any kind: the episodes beside it are waited for all the same
                stop.because(error)

    total = sum(part.n_rows for part in parts)
    try:
        await _all_of([asyncio.ensure_future(one_after_another()) for _ in range(min(concurrency, total))], stop)
    finally:
        # Connections belong to the event loop, which ends here.
        for backend in {id(backend): backend for backend in backends.values()}.values():
            if hasattr(backend, "aclose"):
                try:
                    await backend.aclose()
                except Exception as error:
                    stop.because(error)
    if stop.error is not None:
        raise stop.error


async def _all_of(tasks: Iterable[asyncio.Task[None]], stop: _Stop) -> None:
    """Wait until all are done. The first cancellation (Ctrl-C) only ends the run; a second one does not wait."""
    pending, leaving = set(tasks), False
    while pending:
        try:
            _, pending = await asyncio.wait(pending)
        except asyncio.CancelledError as error:
            if leaving:
                raise  # asyncio.run cancels what is left
            leaving, stop.error = True, error  # it goes before an error of the run: the user wants to leave


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def run_coroutine(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine to its end, also where an event loop is running already (as in Jupyter): then in a thread.

    Ctrl-C cancels the coroutine and waits for what it does about that; a second one does not wait.
    """
    if not _loop_runs():
        return asyncio.run(coroutine)
    outcome: list[Any] = []
    running: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[_T]]] = []
    done = threading.Event()

    async def noted() -> _T:
        running.append((asyncio.get_running_loop(), asyncio.current_task()))
        return await coroutine

    def target() -> None:
        try:
            outcome.extend((True, asyncio.run(noted())))
        except BaseException as error:  # handed on to the calling thread, KeyboardInterrupt included
            outcome.extend((False, error))
        done.set()

    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    try:
        _wait(done)
    except KeyboardInterrupt:
        while not running and not done.wait(0.01):
            pass
        for loop, task in running:
            with contextlib.suppress(RuntimeError):  # it has just ended
                loop.call_soon_threadsafe(task.cancel)
        _wait(done)
        raise
    thread.join()
    if not outcome[0]:
        raise outcome[1]
    return outcome[1]


def _wait(done: threading.Event) -> None:
    while not done.wait(0.2):  # not for ever in one piece: on Windows that could not be interrupted
        pass
