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
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from tqdm.auto import tqdm

from bamas_lite.llm import ChatModel, Enforcement
from bamas_lite.pool import Pool, exact, load_pool
from bamas_lite.provisioning import TOKEN_LIMITS, InfeasibleBudgetError, Team, provision
from bamas_lite.tasks import Task
from bamas_lite.topologies import TOPOLOGIES, infeasible_episode, run_task

Backend = ChatModel | Callable[[int], ChatModel]
"""A backend, or a function (or class) that makes the backend of a seed."""

SCHEMA = pa.schema([
    ("run_id", pa.string()), ("task_id", pa.string()), ("domain", pa.string()), ("level", pa.int16()),
    ("budget", pa.float64()), ("topology", pa.string()), ("team", pa.string()), ("status", pa.string()),
    ("reason", pa.string()), ("correct", pa.bool_()), ("stop_reason", pa.string()), ("cost", pa.float64()),
    ("over_budget", pa.bool_()), ("n_calls", pa.int16()), ("prompt_tokens", pa.int32()),
    ("completion_tokens", pa.int32()), ("latency_s", pa.float32()), ("behaviour_prob", pa.float32()),
    ("answer", pa.string()), ("provider_overrun", pa.int16()), ("enforcement", pa.string()), ("backend", pa.string()),
    ("seed", pa.int64()),
])
"""One row an episode: `budget` and `cost` in u$, `latency_s` in seconds, `status` ok, infeasible or error.

`correct` is missing unless the status is ok: what was not run to its end is not graded.
"""

PAPER_BUDGETS = {"arithmetic": (500, 875, 1250, 1625, 2000), "mathematics": (1000, 2000, 3000),
                 "code": (500, 875, 1250, 1625, 2000)}
"""u$ for one task: the paper's budgets on GSM8K, MATH and MBPP, used for our own tasks of the same kind."""

_MANIFEST = b"bamas_lite"
_T = TypeVar("_T")


class TrajectoryError(ValueError):
    """A log that cannot be used; the message names the file and what is wrong with it."""


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
            "pool": self.pool.name, "prices": hashlib.sha256(self.pool.model_dump_json().encode()).hexdigest()[:16],
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
            return _frame(_generate(run, Path(folder), workers, progress))
    path = Path(path)
    if path.suffix != ".parquet":
        raise ValueError(f"path = {str(path)!r}: expected a file name that ends in .parquet")
    manifest = run.manifest()
    parts = path.with_suffix(".parts")
    if path.exists():
        table = _read(path)
        _same_run(path, _manifest_of(table), manifest)
        shutil.rmtree(parts, ignore_errors=True)
        return _frame(table)
    parts.mkdir(parents=True, exist_ok=True)
    note = parts / "manifest.json"
    if note.exists():
        _same_run(parts, json.loads(note.read_text(encoding="utf-8")), manifest)
    else:
        _write_whole(note, lambda temporary: temporary.write_text(json.dumps(manifest), encoding="utf-8"))
    table = _generate(run, parts, workers, progress).replace_schema_metadata({_MANIFEST: json.dumps(manifest)})
    _write_whole(path, lambda temporary: pq.write_table(table, temporary, compression="zstd"), parts)
    shutil.rmtree(parts, ignore_errors=True)
    return _frame(table)


def paper_pool(domain: str) -> Pool:
    """The paper's two LLMs with the completion limit that its executors have in this domain (384, on MATH 1024)."""
    return load_pool("paper").with_max_tokens(TOKEN_LIMITS[domain]["executor"])


def load_trajectories(path: str | Path) -> pd.DataFrame:
    """Read a log.

    Raises:
        TrajectoryError: no such file, an unfinished run, not parquet, or columns missing or of another type.
    """
    return _frame(_read(path))


def load_manifest(path: str | Path) -> dict[str, Any]:
    """How a log was made, as its file says: checksums of tasks and prices, budgets, topologies, seeds, backends, ...

    Raises:
        TrajectoryError: as `load_trajectories`, or something else than `generate_trajectories` wrote the file.
    """
    manifest = _manifest_of(_read(path))
    if not manifest:
        raise TrajectoryError(f"{path}: does not say how it was made; generate_trajectories did not write it")
    return manifest


def _checked_run(tasks, budgets, topologies, seeds, pool, backend, enforcement, casting, tasks_per_part, concurrency,
                 workers) -> _Run:
    run = _Run(tuple(tasks), tuple(float(exact(b, "budget")) for b in budgets), tuple(topologies), tuple(seeds), pool,
               backend, enforcement, casting, tasks_per_part, concurrency)
    for name in ("tasks", "budgets", "topologies", "seeds"):
        values = [t.task_id for t in run.tasks] if name == "tasks" else list(getattr(run, name))
        if not values:
            raise ValueError(f"{name} is empty: expected at least one")
        twice = next((v for v in values if values.count(v) > 1), None) if len(values) != len(set(values)) else None
        if twice is not None:
            raise ValueError(f"{name} holds {twice!r} more than once: its rows could not be told apart")
    for name, value in (("workers", workers), ("concurrency", concurrency), ("tasks_per_part", tasks_per_part)):
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} = {value!r}: expected a whole number of at least 1")
    unknown = [t for t in run.topologies if t not in TOPOLOGIES]
    if unknown:
        raise ValueError(f"topologies: unknown {unknown[0]!r}; known are {', '.join(TOPOLOGIES)}")
    if any(b < 0 for b in run.budgets):
        raise ValueError(f"budget = {min(run.budgets)}: expected at least 0 u$")
    if workers > 1:
        try:
            pickle.dumps(backend)
        except Exception as error:  # pickle raises many types for objects that cannot travel
            raise ValueError("workers > 1 needs a backend that other processes can rebuild (a class such as "
                             f"SimulatedLLM, or a function of a module): {error}") from None
    return run


def _generate(run: _Run, folder: Path, workers: int, progress: bool) -> pa.Table:
    """Compute the parts that are missing in `folder`; return all of them as one table."""
    todo = [part for part in run.parts() if not _part_file(folder, *part).exists()]
    episodes_per_task = len(run.budgets) * len(run.topologies)
    with tqdm(total=len(run.tasks) * len(run.seeds) * episodes_per_task, unit="episode", delay=2, leave=False,
              disable=not progress) as bar:
        bar.update(bar.total - sum(len(run.tasks[f:f + run.tasks_per_part]) for _, f in todo) * episodes_per_task)
        if workers == 1 or len(todo) <= 1:
            for part in todo:
                bar.update(_run_part(run, folder, *part))
        else:
            # Threads of the parent (BLAS, Jupyter) do not survive a fork; a spawned process starts clean everywhere.
            with ProcessPoolExecutor(min(workers, len(todo)), mp_context=get_context("spawn")) as processes:
                try:
                    for done in as_completed([processes.submit(_run_part, run, folder, *part) for part in todo]):
                        bar.update(done.result())
                except BaseException:  # Ctrl-C too: without this, leaving the block would first run all parts that wait
                    processes.shutdown(wait=False, cancel_futures=True)
                    raise
    return pa.concat_tables(pq.read_table(_part_file(folder, *part), schema=SCHEMA) for part in run.parts())


def _run_part(run: _Run, folder: Path, seed: int, first: int) -> int:
    """Run one part and save its rows; returns their number."""
    backend = run.backend_of(seed)
    teams = {budget: _team(run.pool, budget) for budget in run.budgets}
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
    _write_whole(_part_file(folder, seed, first), lambda temporary: pq.write_table(table, temporary))
    return len(table)


def _team(pool: Pool, budget: float) -> Team | InfeasibleBudgetError:
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


def _frame(table: pa.Table) -> pd.DataFrame:
    """The log in pandas; `correct` is pandas' boolean, which can be missing and is left out of a mean."""
    return table.to_pandas(types_mapper={pa.bool_(): pd.BooleanDtype()}.get).astype({"over_budget": bool})


def _part_file(folder: Path, seed: int, first: int) -> Path:
    return folder / f"seed{seed}-task{first:06d}.parquet"


def _write_whole(path: Path, write: Callable[[Path], Any], folder: Path | None = None) -> None:
    """Write under another name (in `folder`, by default beside the file), then rename: readers see all or nothing."""
    temporary = (folder or path.parent) / f"{path.name}.{os.getpid()}.tmp"
    write(temporary)
    os.replace(temporary, path)


def _manifest_of(table: pa.Table) -> dict[str, Any]:
    return json.loads((table.schema.metadata or {}).get(_MANIFEST, b"{}"))


def _read(path: str | Path) -> pa.Table:
    path = Path(path)
    if not path.is_file():
        hint = "; the run is unfinished: call generate_trajectories again with the same arguments" \
            if path.with_suffix(".parts").is_dir() else ""
        raise TrajectoryError(f"no log {path}{hint}")
    try:
        table = pq.read_table(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise TrajectoryError(f"{path}: not a parquet log: {error}") from None
    missing = [name for name in SCHEMA.names if name not in table.schema.names]
    if missing:
        raise TrajectoryError(f"{path}: columns missing: {', '.join(missing)}")
    if table.num_rows == 0:
        raise TrajectoryError(f"{path}: the log is empty")
    try:
        return table.select(SCHEMA.names).cast(SCHEMA.with_metadata(table.schema.metadata))
    except pa.ArrowInvalid as error:
        raise TrajectoryError(f"{path}: a column has another type: {error}") from None


def _same_run(path: Path, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    wanted = json.loads(json.dumps(wanted))
    for key in wanted:
        if found.get(key) != wanted[key]:
            raise TrajectoryError(f"{path} holds another run: its {key} is {found.get(key)!r}, this call's is "
                                  f"{wanted[key]!r}; give another path, or delete it")
