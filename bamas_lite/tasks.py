"""Tasks: our own task sets, yours, and real benchmarks (whose formats are in benchmarks.py)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields
from itertools import islice
from pathlib import Path
from typing import Any

from bamas_lite.benchmarks import BENCHMARKS, TaskFileError, benchmark_fields, field, read_lines
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


OWN_SETS = ("word_problems", "algebra_calculus", "python_functions")
"""Our own committed task sets: data/tasks/<name>.jsonl."""

_FIELD_KINDS = {"level": int, "tests": list, "vote_inputs": list, "wrong": list}


def load_tasks(name: str, split: str | None = None, limit: int | None = None,
               path: str | Path | None = None) -> list[Task]:
    """Load tasks.

    Args:
        name: one of OWN_SETS; or "gsm8k", "mbpp", "math"; or any name of your own together with `path`.
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
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
        raise TaskFileError(f"limit = {limit!r}: expected a whole number, at least 0, or None")
    if path is None and name not in (*OWN_SETS, *BENCHMARKS):
        raise TaskFileError(f"task set = {name!r}: unknown; known are {', '.join((*OWN_SETS, *BENCHMARKS))}; "
                            "for tasks of your own give path=")
    if name in BENCHMARKS:
        if split is not None and split not in BENCHMARKS[name]:
            raise TaskFileError(f"split = {split!r}: {name} has {', '.join(BENCHMARKS[name])}")
        records = benchmark_fields(name, split, None if path is None else Path(path))
    else:
        path = DATA / "tasks" if path is None else Path(path)
        records = _own_fields(name, path / f"{name}.jsonl" if path.is_dir() else path)
    seen: dict[str, None] = {}
    found = (record for record in records if seen.setdefault(record["split"]) or split in (record["split"], None))
    tasks = [Task(**{"source": name, **record}) for record in islice(found, limit)]
    if not tasks and limit != 0:
        raise TaskFileError(f"split = {split!r}: {name} has no such tasks here; it has {', '.join(seen) or 'none'}")
    return tasks


def _own_fields(name: str, path: Path) -> Iterator[dict[str, Any]]:
    """The checked fields of each line of a file in our own format."""
    known = {f.name: f.default is MISSING and f.name != "level" for f in fields(Task)}
    seen: set[str] = set()
    for place, record in read_lines(path):
        if unknown := [key for key in record if key not in known]:
            raise TaskFileError(f"{place}: unknown field {unknown[0]!r}; known are {', '.join(known)}")
        for key, needed in known.items():
            if needed or key in record:
                value = field(record, key, _FIELD_KINDS.get(key, str), place)
                if (needed or key == "split") and not value.strip():
                    raise TaskFileError(f"{place}: {key} = {value!r}: must not be empty")
        if record["domain"] not in DOMAINS:
            raise TaskFileError(f"{place}: domain = {record['domain']!r}: expected one of {', '.join(DOMAINS)}")
        if record["domain"] == "code" and not (record.get("tests") and record.get("entry_point")):
            raise TaskFileError(f"{place}: a task of the domain code needs the fields 'tests' and 'entry_point'")
        if record.get("level", 1) < 1:
            raise TaskFileError(f"{place}: level = {record['level']}: expected at least 1")
        if record["task_id"] in seen:
            raise TaskFileError(f"{place}: task_id = {record['task_id']!r}: is used twice in this file")
        seen.add(record["task_id"])
        yield {"level": 1, "split": "test",
               **{key: tuple(value) if isinstance(value, list) else value for key, value in record.items()}}
