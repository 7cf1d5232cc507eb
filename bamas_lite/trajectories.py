"""The offline log: every task with every budget, topology and seed, one row an episode (BAMAS, offline training data).

A run is cut into parts (one seed, a few tasks, all budgets and topologies). A part is written under another name and
renamed when it is complete, so that a killed run leaves whole parts only, and the same call started again computes just
the parts that are missing: no row is lost and none is there twice.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bamas_lite.inputs import exact, shown, whole
from bamas_lite.llm import Enforcement, RunStopped
from bamas_lite.parts import Backend, Part, backend_of, compute, run_coroutine, team_of
from bamas_lite.pool import Pool, load_pool
from bamas_lite.provisioning import TOKEN_LIMITS
from bamas_lite.schedulers import check_scheduler, in_processes, on_cluster, other_hosts, worker_processes
from bamas_lite.spending import PAID_CONCURRENCY, Bar, is_paid, is_recording, recorded, say_what_is_saved
from bamas_lite.tasks import Task, check_task
from bamas_lite.topologies import TOPOLOGIES
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

PAPER_BUDGETS = {"arithmetic": (500, 875, 1250, 1625, 2000), "mathematics": (1000, 2000, 3000),
                 "code": (500, 875, 1250, 1625, 2000)}
"""u$ for one task: the paper's budgets on GSM8K, MATH and MBPP, used for our own tasks of the same kind."""

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

    def parts(self) -> list[Part]:
        """In the order of the rows."""
        per_task = len(self.budgets) * len(self.topologies)
        return [Part(seed, first, (number * len(self.tasks) + first) * per_task,
                     self.tasks[first:first + self.tasks_per_part], self.budgets, self.topologies, self.pool,
                     self.backend, self.enforcement, self.casting)
                for number, seed in enumerate(self.seeds) for first in range(0, len(self.tasks), self.tasks_per_part)]

    def manifest(self) -> dict[str, Any]:
        """What a resumed run must share with the one it resumes."""
        backends = [backend_of(self.backend, seed) for seed in self.seeds]
        return {
            "tasks": hashlib.sha256(repr(self.tasks).encode("utf-8")).hexdigest()[:16], "n_tasks": len(self.tasks),
            "budgets": list(self.budgets), "topologies": list(self.topologies), "seeds": list(self.seeds),
            "pool": self.pool.name, "prices": self.pool.checksum,
            "backend": [getattr(b, "identity", b.name) for b in backends], "enforcement": self.enforcement,
            "casting": self.casting, "tasks_per_part": self.tasks_per_part,
        }


@dataclass(frozen=True)
class _How:
    """How a run is computed; its rows do not depend on it. `backend` is that of the first seed."""

    workers: int
    concurrency: int
    scheduler: Any
    retry_errors: bool
    progress: bool
    backend: Any

    @property
    def recording(self) -> Path | None:
        return Path(self.backend.path) if is_recording(self.backend) else None


def generate_trajectories(tasks: Iterable[Task], budgets: Iterable[Any], *, pool: Pool, backend: Backend,
                          topologies: Sequence[str] = TOPOLOGIES, seeds: Sequence[int] = (0,),
                          path: str | Path | None = None, enforcement: Enforcement = "reserve", casting: str = "paper",
                          workers: int = 1, concurrency: int | None = None, tasks_per_part: int = 25,
                          progress: bool = True, scheduler: Any = None, spend_cap_usd: float | None = None,
                          retry_errors: bool = False) -> pd.DataFrame:
    """Run the full factorial tasks x budgets x topologies x seeds and return its log.

    A run can be killed at any moment and started again by the same call: parts that were saved are kept, and of the
    others no call that was answered is paid again, as a paid backend is wrapped in a `CachedChat` whose recording
    stands beside the log (`log.parquet` -> `log.calls.sqlite`).

    Args:
        tasks: the tasks.
        budgets: u$ for one task each.
        pool: the LLMs; the team of each budget is provisioned once.
        backend: a backend, or a function of the seed that makes one (`SimulatedLLM` itself is such a function).
        topologies: the logged actions; each is run, so the behaviour policy is uniform over them.
        seeds: one repetition of everything for each seed.
        path: a .parquet file to write and to resume; None keeps the log in memory only.
        workers: processes that share the parts; rows are the same for any number of them.
        concurrency: episodes in flight at once in each process; None: 16 with a backend that costs money, else 1.
        tasks_per_part: tasks that are run before their rows are saved.
        progress: show a bar when the run takes more than two seconds; with what the recording has cost so far.
        scheduler: None for this machine, or a `distributed.Client` (extra `[cluster]`): its workers compute the parts,
            survive the loss of workers, and send the rows back, so that they need no disk in common with the caller.
            A recording does need one: SQLite's locks hold on one machine's own disk only. Paid calls are therefore
            refused where workers run on other machines, since neither the cap nor "never twice" would hold there.
            The calls of servers of your own cost nothing: set `backend.paid = False`. Then nothing is recorded, no cap
            is held, and each machine's workers ask the pool's addresses themselves.
        spend_cap_usd: USD that the recording may cost in all, over all sittings; with a CachedChat its cap is set.
        retry_errors: compute parts again that hold episodes of status `error`, also those of a finished log; what was
            answered or billed comes from the recording.

    Returns:
        One row an episode with the columns of SCHEMA, ordered by seed, task, budget and topology. Episodes that could
        not be run are rows too: `infeasible` (no team for the budget) or `error` (a call failed), each with a reason.

    Raises:
        ValueError: an empty or doubtful argument.
        TrajectoryError: `path` holds another run, or is not a log.
        RunStopped: no key, no host, no disk, the cap, ... No episode was started any more, calls in flight were waited
            for; the message says what is saved. Ctrl-C ends a run in the same way.
    """
    run, how = _checked_run(tasks, budgets, topologies, seeds, pool, backend, enforcement, casting, tasks_per_part,
                            concurrency, workers, path, scheduler, spend_cap_usd, retry_errors, progress)
    if path is None:
        with tempfile.TemporaryDirectory() as folder:
            return frame(_generate(run, Path(folder), how, None))
    path = Path(path)
    manifest = run.manifest()
    parts = path.with_suffix(".parts")
    if not path.exists() or (retry_errors and _reopened(path, parts, run, manifest)):
        existed = path.exists()
        try:
            with _written(path):
                _claim(parts, manifest)
            table = _generate(run, parts, how, path).replace_schema_metadata({MANIFEST: json.dumps(manifest)})
            with _written(path):
                write_whole(path, lambda temporary: pq.write_table(table, temporary, compression="zstd"), parts)
        except (OSError, RunStopped) as error:
            # The same run in another process may have been done first and have taken the parts away.
            if existed or not path.exists() or not isinstance(error.__cause__ or error, OSError):
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
                 workers, path, scheduler, spend_cap_usd, retry_errors, progress) -> tuple[_Run, _How]:
    factors = checked_factors(tasks, budgets, topologies, seeds, pool)
    if not callable(backend) and not hasattr(backend, "complete"):
        raise ValueError(f"backend = {backend!r}: expected a backend, or a function of the seed that makes one")
    for name, value in (("workers", workers), ("tasks_per_part", tasks_per_part),
                        ("concurrency", 1 if concurrency is None else concurrency)):
        whole(value, name, 1)
    for name, value in (("retry_errors", retry_errors), ("progress", progress)):
        if not isinstance(value, bool):
            raise ValueError(f"{name} = {shown(value)}: expected True or False")
    if path is not None and checked_path(path).suffix != ".parquet":
        raise ValueError(f"path = {str(path)!r}: expected a file name that ends in .parquet")
    if scheduler is not None:
        check_scheduler(scheduler)
        if workers > 1:
            raise ValueError(f"workers = {workers} with a scheduler, whose own workers share the parts; expected 1")
    seeds = factors[3]
    backend = recorded(backend, seeds, None if path is None else Path(path), spend_cap_usd)
    first = backend_of(backend, seeds[0])
    if workers > 1:
        try:
            pickle.dumps(backend)
        except Exception as error:  # pickle raises many types for objects that cannot travel
            raise ValueError("workers > 1 needs a backend that other processes can rebuild (a class such as "
                             f"SimulatedLLM, or a function of a module): {error}") from None
    if scheduler is not None and is_paid(first) and (others := other_hosts(scheduler)):
        raise ValueError(f"scheduler: has workers on {', '.join(others)}; calls of {first.name!r} cost money, and "
                         "their recording and cap hold on one machine only: expected workers on this machine (or, for "
                         "servers of your own that cost nothing, a backend whose attribute `paid` is False: then "
                         "nothing is recorded)")
    concurrency = concurrency or (PAID_CONCURRENCY if is_paid(first) else 1)
    return (_Run(*factors, pool, backend, enforcement, casting, tasks_per_part),
            _How(workers, concurrency, scheduler, retry_errors, progress, first))


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
        check_task(task)   # before the first call, not before the one that cannot be made
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


def _generate(run: _Run, folder: Path, how: _How, path: Path | None) -> pa.Table:
    """Compute the parts that are missing in `folder`; return all of them as one table."""
    todo = [part for part in run.parts() if not _is_whole(_part_file(folder, part), part.n_rows, how.retry_errors)]
    total = len(run.seeds) * len(run.tasks) * len(run.budgets) * len(run.topologies)
    saved = total - sum(part.n_rows for part in todo)
    with closing(Bar(total, saved, how.progress, getattr(how.backend, "spent_usd", None))) as bar:

        def save(part: Part, table: pa.Table) -> None:
            nonlocal saved
            file = _part_file(folder, part)
            with _written(file):
                write_whole(file, lambda temporary: pq.write_table(table, temporary))
            saved += len(table)
            bar.at_least(saved)

        try:
            if how.scheduler is not None:
                on_cluster(how.scheduler, todo, how.concurrency, save)
            elif how.workers == 1 or len(todo) <= 1:
                compute(todo, how.concurrency, save, bar.tick)
            else:
                in_processes(todo, how.workers, how.concurrency, save)
        except BaseException as error:
            rows = "no episode is saved, as path is None" if path is None else \
                f"{saved:,} of {total:,} episodes are saved in {folder}"
            say_what_is_saved(error, rows, how.recording)
            raise
    return pa.concat_tables(pq.read_table(_part_file(folder, part), schema=SCHEMA) for part in run.parts())


@contextmanager
def _written(path: Path) -> Iterator[None]:
    """What cannot be written ends the run: a full disk, a folder without permission."""
    try:
        yield
    except OSError as error:
        raise RunStopped(f"{path} cannot be written: {error}") from error


def _reopened(path: Path, parts: Path, run: _Run, manifest: dict[str, Any]) -> bool:
    """Whether a finished log has episodes that failed; then its other parts are put back into the folder of parts."""
    table = read_log(path)
    require_same_run(path, manifest_of(table), manifest)
    if not _failures(table):
        return False
    with _written(parts):
        _claim(parts, manifest)
        for part in run.parts():
            rows, file = table.slice(part.first_row, part.n_rows).replace_schema_metadata(), _part_file(parts, part)
            if not _failures(rows) and not _is_whole(file, part.n_rows):
                write_whole(file, lambda temporary, rows=rows: pq.write_table(rows, temporary))
    return True


def _failures(table: pa.Table) -> int:
    return pc.sum(pc.equal(table["status"], "error")).as_py() or 0


def _is_whole(file: Path, n_rows: int, without_errors: bool = False) -> bool:
    """Whether a part is there, readable and complete; one that a power cut left broken is computed again."""
    try:
        with pq.ParquetFile(file) as part:
            complete = part.metadata.num_rows == n_rows and part.schema_arrow.equals(SCHEMA)
            return complete and not (without_errors and _failures(part.read(["status"])))
    except (OSError, pa.ArrowInvalid):
        return False


def _part_file(folder: Path, part: Part) -> Path:
    return folder / f"seed{part.seed}-task{part.first:06d}.parquet"
