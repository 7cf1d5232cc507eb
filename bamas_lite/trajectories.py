"""The offline log: every task with every budget, topology and seed, one row an episode (BAMAS, offline training data).

A run is cut into parts (one seed, a few tasks, all budgets and topologies). A part is written under another name and
renamed when it is complete, so that a killed run leaves whole parts only, and the same call started again computes just
the parts that are missing: no row is lost and none is there twice.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import pickle
import shutil
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from tqdm.auto import tqdm

from bamas_lite.inputs import shown, whole
from bamas_lite.llm import ChatModel, Enforcement
from bamas_lite.pool import Pool, exact, load_pool
from bamas_lite.provisioning import TOKEN_LIMITS, InfeasibleBudgetError, Team, provision
from bamas_lite.tasks import Task
from bamas_lite.topologies import TOPOLOGIES, infeasible_episode, run_task
from bamas_lite.trajectory_log import (
    MANIFEST,
    SCHEMA,
    TrajectoryError,
    checked_path,
    frame,
    load_manifest,
    load_trajectories,
    manifest_of,
    read_log,
    require_same_run,
    write_whole,
)

__all__ = ["PAPER_BUDGETS", "SCHEMA", "TrajectoryError", "checked_factors", "generate_trajectories", "load_manifest",
           "load_trajectories", "paper_pool", "run_coroutine", "team_of", "worker_processes"]

Backend = ChatModel | Callable[[int], ChatModel]
"""A backend, or a function (or class) that makes the backend of a seed."""

PAPER_BUDGETS = {"arithmetic": (500, 875, 1250, 1625, 2000), "mathematics": (1000, 2000, 3000),
                 "code": (500, 875, 1250, 1625, 2000)}
"""u$ for one task: the paper's budgets on GSM8K, MATH and MBPP, used for our own tasks of the same kind."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class _Run:
    """All that decides the rows of a run."""

    tasks: tuple[Task, ...]
    budgets: tuple[float, ...]
    topologies: tuple[str, ...]
    seeds: tuple[int, ...]
    pool: Pool
    backend: Backend
    enforcement: Enforcement
    casting: str
    tasks_per_part: int
    concurrency: int

    def backend_of(self, seed: int) -> ChatModel:
        return self.backend if hasattr(self.backend, "complete") and not isinstance(self.backend, type) \
            else self.backend(seed)

    def parts(self) -> list[tuple[int, int]]:
        """(seed, first task) of each part, in the order of the rows."""
        return [(seed, first) for seed in self.seeds for first in range(0, len(self.tasks), self.tasks_per_part)]

    def manifest(self) -> dict[str, Any]:
        """What a resumed run must share with the one it resumes."""
        backends = [self.backend_of(seed) for seed in self.seeds]
        return {
            "tasks": hashlib.sha256(repr(self.tasks).encode("utf-8")).hexdigest()[:16], "n_tasks": len(self.tasks),
            "budgets": list(self.budgets), "topologies": list(self.topologies), "seeds": list(self.seeds),
            "pool": self.pool.name, "prices": self.pool.checksum,
            "backend": [getattr(b, "identity", b.name) for b in backends], "enforcement": self.enforcement,
            "casting": self.casting, "tasks_per_part": self.tasks_per_part,
        }


def generate_trajectories(tasks: Iterable[Task], budgets: Iterable[Any], *, pool: Pool, backend: Backend,
                          topologies: Sequence[str] = TOPOLOGIES, seeds: Sequence[int] = (0,),
                          path: str | Path | None = None, enforcement: Enforcement = "reserve", casting: str = "paper",
                          workers: int = 1, concurrency: int = 1, tasks_per_part: int = 25,
                          progress: bool = True) -> pd.DataFrame:
    """Run the full factorial tasks x budgets x topologies x seeds and return its log.

    Args:
        tasks: the tasks.
        budgets: u$ for one task each.
        pool: the LLMs; the team of each budget is provisioned once.
        backend: a backend, or a function of the seed that makes one (`SimulatedLLM` itself is such a function).
        topologies: the logged actions; each is run, so the behaviour policy is uniform over them.
        seeds: one repetition of everything for each seed.
        path: a .parquet file to write and to resume; None keeps the log in memory only.
        workers: processes that share the parts; rows are the same for any number of them.
        concurrency: episodes in flight at once in each process, for backends that wait for a network.
        tasks_per_part: tasks that are run before their rows are saved.
        progress: show a bar when the run takes more than two seconds.

    Returns:
        One row an episode with the columns of SCHEMA, ordered by seed, task, budget and topology. Episodes that could
        not be run are rows too: `infeasible` (no team for the budget) or `error` (a call failed), each with a reason.

    Raises:
        ValueError: an empty or doubtful argument.
        TrajectoryError: `path` holds another run, or is not a log.
    """
    run = _checked_run(tasks, budgets, topologies, seeds, pool, backend, enforcement, casting, tasks_per_part,
                       concurrency, workers)
    if path is None:
        with tempfile.TemporaryDirectory() as folder:
            return frame(_generate(run, Path(folder), workers, progress))
    path = checked_path(path)
    if path.suffix != ".parquet":
        raise ValueError(f"path = {str(path)!r}: expected a file name that ends in .parquet")
    manifest = run.manifest()
    parts = path.with_suffix(".parts")
    if not path.exists():
        _claim(parts, manifest)
        try:
            table = _generate(run, parts, workers, progress).replace_schema_metadata({MANIFEST: json.dumps(manifest)})
            write_whole(path, lambda temporary: pq.write_table(table, temporary, compression="zstd"), parts)
        except OSError:
            if not path.exists():  # else the same run in another process was done first and took the parts away
                raise
    table = read_log(path)
    require_same_run(path, manifest_of(table), manifest)
    shutil.rmtree(parts, ignore_errors=True)
    return frame(table)


def _claim(parts: Path, manifest: dict[str, Any]) -> None:
    """Make the folder of a run's parts, or check that the one that is there belongs to the same run.

    The folder appears with its manifest in one step, so two processes that start at once cannot both believe that it is
    theirs.
    """
    parts.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=f"{parts.name}.", dir=parts.parent))
    (new / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    try:
        new.rename(parts)
    except OSError:  # it is there already
        shutil.rmtree(new)
        try:
            found = json.loads((parts / "manifest.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            found = None
        if not isinstance(found, dict):
            raise TrajectoryError(f"{parts} is not the folder of an unfinished run; delete it, or give another path"
                                  ) from None
        require_same_run(parts, found, manifest)


def paper_pool(domain: str) -> Pool:
    """The paper's two LLMs with the completion limit that its executors have in this domain (384, on MATH 1024)."""
    return load_pool("paper").with_max_tokens(TOKEN_LIMITS[domain]["executor"])


def _checked_run(tasks, budgets, topologies, seeds, pool, backend, enforcement, casting, tasks_per_part, concurrency,
                 workers) -> _Run:
    factors = checked_factors(tasks, budgets, topologies, seeds, pool)
    if not callable(backend) and not hasattr(backend, "complete"):
        raise ValueError(f"backend = {backend!r}: expected a backend, or a function of the seed that makes one")
    for name, value in (("workers", workers), ("concurrency", concurrency), ("tasks_per_part", tasks_per_part)):
        whole(value, name, 1)
    if workers > 1:
        try:
            pickle.dumps(backend)
        except Exception as error:  # pickle raises many types for objects that cannot travel
            raise ValueError("workers > 1 needs a backend that other processes can rebuild (a class such as "
                             f"SimulatedLLM, or a function of a module): {error}") from None
    return _Run(*factors, pool, backend, enforcement, casting, tasks_per_part, concurrency)


def checked_factors(tasks: Iterable[Task], budgets: Iterable[Any], topologies: Sequence[str], seeds: Sequence[int],
                    pool: Pool) -> tuple[tuple[Task, ...], tuple[float, ...], tuple[str, ...], tuple[int, ...]]:
    """The factors of a run as tuples, budgets in u$.

    Raises:
        ValueError: one is empty, no list, holds a value twice or one that is none of its kind; or `pool` is no Pool.
    """
    for name, value in (("tasks", tasks), ("budgets", budgets), ("topologies", topologies), ("seeds", seeds)):
        if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
            raise ValueError(f"{name} = {shown(value)}: expected a list")
    if not isinstance(pool, Pool):
        raise ValueError(f"pool = {shown(pool)}: expected a Pool, as load_pool returns it")
    tasks, topologies, seeds = tuple(tasks), tuple(topologies), tuple(seeds)
    budgets = tuple(float(exact(b, "budget")) for b in budgets)
    for task in tasks:
        if not isinstance(task, Task):
            raise ValueError(f"tasks holds {shown(task)}: expected Task objects, as load_tasks returns them")
    for seed in seeds:
        if not isinstance(seed, int) or isinstance(seed, bool) or not -(2**63) <= seed < 2**63:
            raise ValueError(f"seeds holds {shown(seed)}: expected whole numbers of at most 64 bits")
    unknown = [t for t in topologies if t not in TOPOLOGIES]
    if unknown:
        raise ValueError(f"topologies: unknown {shown(unknown[0])}; known are {', '.join(TOPOLOGIES)}")
    for name, values in (("tasks", tuple(t.task_id for t in tasks)), ("budgets", budgets), ("topologies", topologies),
                         ("seeds", seeds)):
        if not values:
            raise ValueError(f"{name} is empty: expected at least one")
        twice = next((v for v in values if values.count(v) > 1), None) if len(values) != len(set(values)) else None
        if twice is not None:
            raise ValueError(f"{name} holds {shown(twice)} more than once: its rows could not be told apart")
    if any(b < 0 for b in budgets):
        raise ValueError(f"budget = {min(budgets)}: expected at least 0 u$")
    return tasks, budgets, topologies, seeds


def _generate(run: _Run, folder: Path, workers: int, progress: bool) -> pa.Table:
    """Compute the parts that are missing in `folder`; return all of them as one table."""
    episodes_per_task = len(run.budgets) * len(run.topologies)
    todo = [(seed, first) for seed, first in run.parts() if not _is_whole(
        _part_file(folder, seed, first), len(run.tasks[first:first + run.tasks_per_part]) * episodes_per_task)]
    with tqdm(total=len(run.tasks) * len(run.seeds) * episodes_per_task, unit="episode", delay=2, leave=False,
              disable=not progress) as bar:
        bar.update(bar.total - sum(len(run.tasks[f:f + run.tasks_per_part]) for _, f in todo) * episodes_per_task)
        if workers == 1 or len(todo) <= 1:
            for part in todo:
                bar.update(_run_part(run, folder, *part))
        else:
            with worker_processes(min(workers, len(todo))) as processes:
                for done in as_completed([processes.submit(_run_part, run, folder, *part) for part in todo]):
                    bar.update(done.result())
    return pa.concat_tables(pq.read_table(_part_file(folder, *part), schema=SCHEMA) for part in run.parts())


@contextmanager
def worker_processes(n: int) -> Iterator[ProcessPoolExecutor]:
    """`n` processes that end with this one; what waits is not run any more when the block is left by an exception.

    Raises:
        RuntimeError: a process ended early.
    """
    # Threads of the parent (BLAS, Jupyter) do not survive a fork; a spawned process starts clean everywhere.
    with ProcessPoolExecutor(n, mp_context=get_context("spawn"), initializer=_end_with_parent) as processes:
        try:
            yield processes
        except BrokenProcessPool:
            raise RuntimeError("a worker process ended early; a script that uses workers > 1 must start its work below "
                               "`if __name__ == '__main__':`, and it must be a file") from None
        except BaseException:  # Ctrl-C too: without this, leaving the block would first run all parts that wait
            processes.shutdown(wait=False, cancel_futures=True)
            raise


def _end_with_parent() -> None:
    """Make this worker end when its parent is killed: it would wait for work for ever."""
    def wait() -> None:
        parent_process().join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _run_part(run: _Run, folder: Path, seed: int, first: int) -> int:
    """Run one part and save its rows; returns their number."""
    backend = run.backend_of(seed)
    teams = {budget: team_of(run.pool, budget) for budget in run.budgets}
    jobs = [(task, budget, topology) for task in run.tasks[first:first + run.tasks_per_part]
            for budget in run.budgets for topology in run.topologies]
    n_rows_before = (run.seeds.index(seed) * len(run.tasks) + first) * len(run.budgets) * len(run.topologies)

    async def one(number: int) -> dict[str, Any]:
        task, budget, topology = jobs[number]
        team = teams[budget]
        if isinstance(team, InfeasibleBudgetError):
            episode = infeasible_episode(task, topology, budget, str(team), backend=backend.name,
                                         enforcement=run.enforcement)
        else:
            episode = await run_task(task, team, topology, backend, budget, enforcement=run.enforcement,
                                     casting=run.casting)
        return episode.row() | {"run_id": f"{n_rows_before + number:07d}",
                                "behaviour_prob": 1 / len(run.topologies), "seed": seed}

    async def all_jobs() -> list[dict[str, Any]]:
        if run.concurrency == 1:
            return [await one(number) for number in range(len(jobs))]
        gate = asyncio.Semaphore(run.concurrency)

        async def gated(number: int) -> dict[str, Any]:
            async with gate:
                return await one(number)

        return await asyncio.gather(*map(gated, range(len(jobs))))

    table = pa.Table.from_pylist(run_coroutine(all_jobs()), schema=SCHEMA)
    write_whole(_part_file(folder, seed, first), lambda temporary: pq.write_table(table, temporary))
    return len(table)


@lru_cache(maxsize=1024)
def team_of(pool: Pool, budget: float) -> Team | InfeasibleBudgetError:
    """The team of a budget, provisioned once in a process."""
    try:
        return provision(pool, budget)
    except InfeasibleBudgetError as error:
        return error


def run_coroutine(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine to its end, also where an event loop is running already (as in Jupyter): then in a thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    outcome: list[Any] = []

    def target() -> None:
        try:
            outcome.extend((True, asyncio.run(coroutine)))
        except BaseException as error:  # handed on to the calling thread, KeyboardInterrupt included
            outcome.extend((False, error))

    thread = threading.Thread(target=target)
    thread.start()
    thread.join()
    if not outcome[0]:
        raise outcome[1]
    return outcome[1]


def _is_whole(part: Path, n_rows: int) -> bool:
    """Whether a part is there, readable and complete; one that a power cut left broken is computed again."""
    try:
        file = pq.ParquetFile(part)
        return file.metadata.num_rows == n_rows and file.schema_arrow.equals(SCHEMA)
    except (OSError, pa.ArrowInvalid):
        return False


def _part_file(folder: Path, seed: int, first: int) -> Path:
    return folder / f"seed{seed}-task{first:06d}.parquet"
