"""Grading on real benchmarks, read from the folder BENCHMARKS; nothing of them is in this project."""

import csv
import os
from collections import Counter
from pathlib import Path

import pytest

from bamas_lite.grading import extract_answer, grade, grade_many, vote_key
from bamas_lite.sandbox import run_python
from bamas_lite.tasks import load_tasks

FOLDER = Path(os.environ.get("BENCHMARKS") or "BENCHMARKS-is-not-set")


def _tasks(name, file, split=None):
    if not (FOLDER / file).is_file():
        pytest.skip(f"BENCHMARKS = {os.environ.get('BENCHMARKS')!r}: no folder with {file}")
    return load_tasks(name, split, path=FOLDER)


def _neighbours(tasks):
    return zip(tasks, [*tasks[1:], tasks[0]], strict=True)


@pytest.mark.parametrize("split, count", [("train", 7473), ("test", 1319)])
def test_gsm8k_references(split, count):
    tasks = _tasks("gsm8k", f"gsm8k_{split}.jsonl", split)
    assert len(tasks) == count
    for task, neighbour in _neighbours(tasks):
        assert grade(task, f"Some work with 1, 2 and 3.\n#### {task.reference}").correct, task.task_id
        other = grade(task, f"#### {neighbour.reference}")
        assert other.correct is (float(task.reference) == float(neighbour.reference)), task.task_id


def test_gsm8k_recorded_replies():
    """Two real LLMs on the test split. The recorded verdicts compare last runs of digits: there "7.00" is not 7."""
    tasks = {task.question: task for task in _tasks("gsm8k", "recorded_gsm8k_answers.csv", "test")}
    agreement = Counter()
    with (FOLDER / "recorded_gsm8k_answers.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for model in ("mistralai/Mixtral-8x7B-Instruct-v0.1", "gpt-4-1106-preview"):
        for row in rows:
            verdict = grade(tasks[row["prompt"]], row[f"{model}_response"]).correct
            agreement[row[model] == "True", verdict] += 1
    assert agreement.total() == 2 * 1319
    assert agreement[True, False] <= 6
    assert agreement[False, True] <= 50


def test_math_references():
    """The exceptions are neighbours with equal answers."""
    tasks = _tasks("math", "math500.jsonl")
    assert len(tasks) == 500
    own = grade_many([(task, rf"Thus $x$ and so \boxed{{{task.reference}}}.") for task in tasks])
    assert [task.task_id for task, found in zip(tasks, own, strict=True) if not found.correct] == []
    others = grade_many([(task, rf"\boxed{{{neighbour.reference}}}") for task, neighbour in _neighbours(tasks)])
    equal = [(task.reference, neighbour.reference)
             for (task, neighbour), found in zip(_neighbours(tasks), others, strict=True) if found.correct]
    assert equal == [("5", "x=5"), ("7", "7"), ("3", "3")]


def test_mbpp_references():
    """Each of the 974 reference programs passes its tests, decided outside its process; one that does nothing fails."""
    tasks = _tasks("mbpp", "mbpp.jsonl")
    assert len(tasks) == 974
    replies = [f"Here it is:\n```python\n{task.reference}\n```\n" for task in tasks]
    grades = grade_many(list(zip(tasks, replies, strict=True)))
    assert [(task.task_id, found.reason) for task, found in zip(tasks, grades, strict=True) if not found.correct] == []
    idle = grade_many([(task, f"def {task.entry_point}(*arguments):\n    pass\n") for task in tasks])
    assert [task.task_id for task, found in zip(tasks, idle, strict=True) if found.correct] == []


def test_mbpp_tests_are_decided_outside_and_programs_vote():
    for task in _tasks("mbpp", "mbpp.jsonl", "test")[::10]:
        assert run_python(task.reference, tests=task.tests, setup=task.setup, entry_point=task.entry_point
                          ).inside_tests == 0, task.task_id
        reply = f"```python\n{task.reference}\n```"
        assert extract_answer("code", reply) is not None
        assert vote_key(task, reply) is not None, task.task_id
