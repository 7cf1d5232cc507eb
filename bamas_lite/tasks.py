"""Tasks: our own task sets, yours, and real benchmarks (whose formats are in benchmarks.py)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields
from itertools import islice
from keyword import iskeyword
from numbers import Integral
from pathlib import Path
from typing import Any

from bamas_lite.benchmarks import (
    BENCHMARKS,
    TaskFileError,
    benchmark_fields,
    field,
    is_number,
    python_tree,
    read_lines,
)
from bamas_lite.inputs import file_path, shown, whole
from bamas_lite.paths import DATA

DOMAINS = ("arithmetic", "mathematics", "code")
"""Word problems with a number (as GSM8K), problems with a LaTeX answer (as MATH), Python functions (as MBPP)."""


@dataclass(frozen=True, slots=True)
class Task:
    """One task and its reference answer.

    Attributes:
        task_id: unique, for example "word_problems/train/0007" or "gsm8k/test/12".
        domain: one of DOMAINS.
        level: difficulty, from 1: number of steps (arithmetic), level 1-5 (mathematics), 1-3 (code).
        question: the text that agents see; for code it names the function and shows example calls.
        reference: the right answer: a number, LaTeX, or a program that passes the tests.
        split: "train" or "test" (MBPP also has "validation" and "prompt").
        tests: for code: assert statements, run after the program and then `setup`; most are hidden from the question.
        setup: for code: statements that the tests need; they may use what the program defines.
        entry_point: for code: the name of the function to write.
        vote_inputs: for code: call expressions on inputs that the question shows; Star compares their outputs.
        wrong: wrong answers (or programs) that are verified to fail grading; read by the simulator only.
        source: the task set it is from, for labels.
    """

    task_id: str
    domain: str
    level: int
    question: str
    reference: str
    split: str = "test"
    tests: tuple[str, ...] = ()
    setup: str = ""
    entry_point: str = ""
    vote_inputs: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    source: str = "own"

    def __post_init__(self) -> None:
        for name in ("tests", "vote_inputs", "wrong"):
            value = getattr(self, name)
            if not isinstance(value, (tuple, list)):
                raise TypeError(f"{name} = {shown(value)}: expected a tuple of texts")
            object.__setattr__(self, name, tuple(value))  # a list would have no hash


OWN_SETS = ("word_problems", "algebra_calculus", "python_functions")
"""Our own committed task sets: data/tasks/<name>.jsonl."""

COMMITTED_SETS = (*OWN_SETS, "small_tasks")
"""With the small tasks of the local LLMs (notebook 08), which are too easy for the others."""

MOST_LEVEL = 32_767
"""The level is a 16-bit column of a log."""

_FIELD_KINDS = {"level": int, "tests": list, "vote_inputs": list, "wrong": list}


def load_tasks(name: str, split: str | None = None, limit: int | None = None,
               path: str | Path | None = None) -> list[Task]:
    """Load tasks.

    Args:
        name: one of COMMITTED_SETS; or "gsm8k", "mbpp", "math"; or any name of your own together with `path`.
        split: "train", "test", ...; None takes all.
        limit: at most so many tasks, the first ones; None takes all.
        path: a file, or a folder that holds the file(s): gsm8k_train.jsonl, gsm8k_test.jsonl; mbpp.jsonl;
            math500.jsonl, math*.jsonl or the MATH release's <split>/<subject>/<n>.json; <name>.jsonl for your own.
            Without it, own sets are read from the committed data and real benchmarks are downloaded once.

    Your own tasks: a UTF-8 file with one JSON object a line, whose keys are the fields of Task. `task_id`, `domain`,
    `question` and `reference` are needed (for code also `tests` and `entry_point`); `level` is 1, `split` is "test" and
    `source` is `name` unless given. The committed files have the same format. For example (one line):

        {"task_id": "mine/1", "domain": "arithmetic", "level": 2, "split": "test",
         "question": "A box holds 6 eggs. How many eggs are in 4 boxes?", "reference": "24"}

    Raises:
        TaskFileError: unknown task set, split without tasks, negative limit, or a file that is missing, empty or
            broken; the message names the file, the line and what was expected.
    """
    try:
        limit = None if limit is None else min(whole(limit, "limit"), sys.maxsize)
    except ValueError as error:
        raise TaskFileError(f"{error}, or None") from None
    own = isinstance(name, str) and name not in BENCHMARKS
    if not isinstance(name, str) or (path is None and own and name not in COMMITTED_SETS):
        raise TaskFileError(f"task set = {shown(name)}: unknown; known are "
                            f"{', '.join((*COMMITTED_SETS, *BENCHMARKS))}; for tasks of your own give path=")
    path = None if path is None else file_path(path, "path", TaskFileError)
    if own:
        path = path or DATA / "tasks"
        records = _own_fields(path / f"{name}.jsonl" if path.is_dir() else path)
    else:
        if split is not None and split not in BENCHMARKS[name]:
            raise TaskFileError(f"split = {shown(split)}: {name} has {', '.join(BENCHMARKS[name])}")
        records = benchmark_fields(name, split, path)
    splits: dict[str, None] = {}
    checked = (task for task in _checked(records, name) if splits.setdefault(task.split) or split in (task.split, None))
    tasks = list(islice(checked, limit))
    if not tasks and limit != 0:
        raise TaskFileError(f"split = {shown(split)}: {name} has no such tasks here; it has "
                            f"{', '.join(splits) or 'none'}")
    return tasks


def _checked(records: Iterator[tuple[str, dict[str, Any]]], name: str) -> Iterator[Task]:
    """The tasks of (place, fields) pairs; TaskFileError names the place of one that cannot be graded or told apart."""
    seen: set[str] = set()
    for place, record in records:
        task = Task(**{"source": name, **record})
        if problem := _problem(task):
            raise TaskFileError(f"{place}: {problem}")
        if task.task_id in seen:
            raise TaskFileError(f"{place}: task_id = {task.task_id!r}: is used twice")
        seen.add(task.task_id)
        yield task


def check_task(task: Any) -> None:
    """Make sure that a task can be asked and graded, before anything is paid for. A task is looked at once.

    Raises:
        ValueError: no Task, a field of another type, an unknown domain, a level outside 1 to MOST_LEVEL, text that is
            empty or no UTF-8, a reference that cannot be read, a program, test or set-up that is not Python.
    """
    if id(task) in _sound:
        return
    if not isinstance(task, Task):
        raise ValueError(f"task = {shown(task)}: expected a Task")
    if problem := _problem(task):
        raise ValueError(f"task {shown(task.task_id)}: {problem}")
    if len(_sound) >= _MOST_KEPT:
        _sound.clear()
    _sound[id(task)] = task


_MOST_KEPT = 1 << 14
_sound: dict[int, Task] = {}
"""Tasks that passed, by identity: they cannot change, and while one is kept no other object has its id."""


def _problem(task: Task) -> str | None:
    """What is wrong with a task; None if nothing is."""
    for name, kind in _KINDS:
        value = getattr(task, name)
        if kind is tuple:
            if not isinstance(value, tuple) or not all(isinstance(item, str) for item in value):
                return f"{name} = {shown(value)}: expected a tuple of texts"
        elif not isinstance(value, kind) or isinstance(value, bool):
            return f"{name} = {shown(value)}: expected {'a text' if kind is str else 'a whole number'}"
    return _problem_of_content(task)


_KINDS = tuple((f.name, {"level": Integral}.get(f.name, tuple if f.default == () else str)) for f in fields(Task))


def _problem_of_content(task: Task) -> str | None:
    """`_problem` of a task whose fields have the right types."""
    for name, kind in _KINDS:
        value = getattr(task, name)
        for text in (value,) if kind is str else value if kind is tuple else ():
            if not text.strip() and name in ("task_id", "domain", "question", "reference", "split"):
                return f"{name} = {shown(text)}: must not be empty"
            if not text.isascii() and text.encode("utf-8", "replace").decode("utf-8") != text:
                return f"{name} = {shown(text)}: holds half a surrogate pair, which is no text"
    if task.domain not in DOMAINS:
        return f"domain = {shown(task.domain)}: expected one of {', '.join(DOMAINS)}"
    if not 1 <= task.level <= MOST_LEVEL:
        return f"level = {shown(task.level)}: expected at least 1, at most {MOST_LEVEL:,}"
    if task.domain == "arithmetic" and not is_number(task.reference):
        return f"reference = {shown(task.reference)}: expected a number such as 24, -3.5, 1,234 or 3/4"
    return _problem_of_code(task) if task.domain == "code" else None


def _problem_of_code(task: Task) -> str | None:
    if not task.tests or not task.entry_point:
        return "a task of the domain code needs the fields 'tests' and 'entry_point'"
    if not task.entry_point.isidentifier() or iskeyword(task.entry_point):
        return f"entry_point = {shown(task.entry_point)}: expected the name of a function"
    sources = [("reference", task.reference, "exec"), ("setup", task.setup, "exec"),
               *((f"tests[{i}]", test, "exec") for i, test in enumerate(task.tests)),
               *((f"vote_inputs[{i}]", call.strip(), "eval") for i, call in enumerate(task.vote_inputs))]
    for name, source, mode in sources:
        tree = python_tree(source, mode)
        if isinstance(tree, str):
            return f"{name} = {shown(source)}: expected Python ({tree})"
    return None


def _own_fields(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Place and fields of each line of a file in our own format."""
    known = {f.name: f.default is MISSING and f.name != "level" for f in fields(Task)}
    for place, record in read_lines(path):
        if unknown := [key for key in record if key not in known]:
            raise TaskFileError(f"{place}: unknown field {unknown[0]!r}; known are {', '.join(known)}")
        for key, needed in known.items():
            if needed or key in record:
                field(record, key, _FIELD_KINDS.get(key, str), place)
        yield place, {"level": 1, "split": "test",
                      **{key: tuple(value) if isinstance(value, list) else value for key, value in record.items()}}
