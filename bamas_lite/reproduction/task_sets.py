"""The tasks of the reproduction: as many as in the paper, real ones where their files are given, else our own."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from bamas_lite import generators, mutants
from bamas_lite.generators import SEED, SIZES, dump, generate
from bamas_lite.inputs import in_folder, shown, whole
from bamas_lite.paths import BUILD
from bamas_lite.reproduction.published import DATASETS, Dataset, dataset
from bamas_lite.tasks import Task, TaskFileError, load_tasks

CACHE = BUILD / "cache" / "tasks"


def chosen_datasets(names: Iterable[str]) -> list[Dataset]:
    """The data sets of these names.

    Raises:
        ValueError: no list, none, an unknown one, or one given twice.
    """
    chosen = [dataset(name) for name in names] if isinstance(names, Iterable) and not isinstance(names, str) else []
    if not chosen or len(set(chosen)) < len(chosen):
        raise ValueError(f"datasets = {shown(names)}: expected some of {', '.join(DATASETS)}, each once")
    return chosen


def reproduction_tasks(name: str, benchmarks: str | Path | None = None, limit: int | None = None
                       ) -> tuple[list[Task], list[Task]]:
    """Training and test tasks of GSM8K, MBPP or MATH.

    Args:
        name: one of `published.DATASETS`.
        benchmarks: a folder with the real files (see `load_tasks`). None: our own tasks of the same kind, as many as
            the paper uses; they are made once and then kept under build/.
        limit: at most so many tasks of each split, the first ones, at least 1; None takes all.

    From the real files come the first 1000 training tasks of GSM8K and the official splits of MBPP. From the MATH
    release, 1000 tasks a split are taken evenly over levels and subjects. MATH-500 alone holds test tasks only: within
    each level every other one is used for training, so both sets are far smaller than the paper's.

    Raises:
        ValueError: no such data set, or a limit that is none.
        TaskFileError: a file is missing or broken, or no folder.
    """
    data = dataset(name)
    limit = None if limit is None else whole(limit, "limit", 1)
    n_train, n_test = (n if limit is None else min(n, limit) for n in (data.n_train, data.n_test))
    if benchmarks is None:
        return _own(data.own_tasks, n_train, "train"), _own(data.own_tasks, n_test, "test")
    tasks = load_tasks(data.real_tasks, path=in_folder(benchmarks, "benchmarks", TaskFileError))
    train, test = ([task for task in tasks if task.split == split] for split in ("train", "test"))
    if data.name == "MATH":
        if not train:
            ordered = sorted(test, key=lambda task: task.level)  # stable: within a level in the order of the file
            train, test = ordered[::2], ordered[1::2]
        train, test = _evenly(train, n_train), _evenly(test, n_test)
    if not train or not test:
        raise TaskFileError(f"{benchmarks}: {data.real_tasks} has {len(train)} training and {len(test)} test tasks "
                            "here; expected some of both")
    return train[:n_train], test[:n_test]


def about_tasks(name: str, train: list[Task], test: list[Task]) -> str:
    """Which tasks are used, how many, and how many the paper uses."""
    data = dataset(name)
    kinds = sorted({task.source for task in train + test})
    same = (len(train), len(test)) == (data.n_train, data.n_test)
    paper = "as in the paper" if same else f"the paper: {data.n_train} and {data.n_test}"
    return f"{name}: {', '.join(kinds)}, {len(train)} training and {len(test)} test tasks ({paper})"


def _evenly(tasks: list[Task], n: int) -> list[Task]:
    """At most `n` tasks, spread evenly over levels and, as ids begin with the subject, over subjects."""
    if len(tasks) <= n:
        return tasks
    ordered = sorted(tasks, key=lambda task: (task.level, task.task_id))
    return [ordered[i * len(tasks) // n] for i in range(n)]


def _own(name: str, n: int, split: str) -> list[Task]:
    """Our own tasks: the committed ones, which are the first, if they are enough; else from build/, or made now."""
    if n <= SIZES[name]:
        return load_tasks(name, split, limit=n)
    path = CACHE / f"{name}-{split}-{n}-{_fingerprint()}.jsonl"
    if path.is_file():
        return load_tasks(name, path=path)
    tasks = generate(name, n, SEED, split)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}.part")
    partial.write_text(dump(tasks), encoding="utf-8", newline="\n")
    partial.replace(path)
    return tasks


def _fingerprint() -> str:
    """Of all that decides the tasks: the generators' source, and their seed."""
    folder = Path(generators.__file__).parent
    files = sorted(file for file in folder.rglob("*") if file.suffix in (".py", ".txt"))
    content = b"\0".join(file.read_bytes() for file in [*files, Path(mutants.__file__)])
    return hashlib.sha256(content + str(SEED).encode()).hexdigest()[:12]
