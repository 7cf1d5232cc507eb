"""Generators of our own task sets: `generate` makes task sets of any size, `write` makes the committed files."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

from bamas_lite.generators.common import SPLITS
from bamas_lite.paths import DATA
from bamas_lite.tasks import Task

SEED = 2025
"""Seed of the committed task sets."""

SIZES = {"word_problems": 400, "algebra_calculus": 200, "python_functions": 240, "small_tasks": 96}
"""Tasks per split in the committed files."""


def generate(name: str, n: int, seed: int, split: str = "test") -> list[Task]:
    """Make `n` tasks of the task set `name` (a key of SIZES); the same for the same arguments.

    Raises:
        ValueError: unknown task set or split, negative n or seed.
    """
    if name not in SIZES:
        raise ValueError(f"task set = {name!r}: there are generators for {', '.join(SIZES)}")
    return import_module(f"bamas_lite.generators.{name}").generate(n, seed, split)


def committed(name: str) -> str:
    """The content of data/tasks/<name>.jsonl as the generator makes it: both splits, one task a line."""
    return dump(task for split in SPLITS for task in generate(name, SIZES[name], SEED, split))


def dump(tasks: Iterable[Task]) -> str:
    """Tasks as the content of a file that `load_tasks` reads: one JSON object a line."""
    return "".join(json.dumps(_row(task), ensure_ascii=False) + "\n" for task in tasks)


def _row(task: Task) -> dict[str, object]:
    """The fields of a task that are not empty, in the order of the class; load_tasks fills in the source."""
    return {name: value for name, value in asdict(task).items() if value not in ("", ()) and name != "source"}


def write(folder: str | Path = DATA / "tasks") -> list[Path]:
    """Write the committed task sets into `folder`; returns the files."""
    paths = []
    for name in SIZES:
        path = Path(folder) / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(committed(name), encoding="utf-8", newline="\n")
        paths.append(path)
    return paths
