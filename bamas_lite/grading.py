"""Grading: is a reply right?

Numbers are compared exactly, LaTeX by math-verify in a process of its own, programs by what they return in the sandbox.
No reply, however odd, raises: it is right or wrong. One that is no string (None, bytes) holds no answer.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache

from bamas_lite.answers import find_latex, find_number, find_program, read_number
from bamas_lite.latex import UndecidedError, same_latex
from bamas_lite.sandbox import run_python
from bamas_lite.tasks import DOMAINS, Task

REMEMBERED = 1 << 14
"""Verdicts that a process keeps; the oldest are dropped, so that memory stays flat."""


@dataclass(frozen=True, slots=True)
class Grade:
    """The verdict on one reply: `answer` is what was found in it (None: nothing), `reason` says why it is wrong."""

    correct: bool
    answer: str | None
    reason: str = ""


def extract_answer(domain: str, reply_text: str) -> str | None:
    """The answer in a reply: a number in lowest terms ("18", "3/4"), LaTeX, or a program; None if there is none.

    Raises:
        ValueError: an unknown domain.
    """
    if domain not in DOMAINS:
        raise ValueError(f"domain = {domain!r}: expected one of {', '.join(DOMAINS)}")
    return _extract(domain, reply_text) if isinstance(reply_text, str) else None


@lru_cache(maxsize=1 << 12)
def _extract(domain: str, reply_text: str) -> str | None:
    if domain == "arithmetic":
        number = find_number(reply_text)
        return None if number is None else str(number)
    if domain == "mathematics":
        return find_latex(reply_text)
    return find_program(reply_text)


def grade(task: Task, reply_text: str) -> Grade:
    """Grade a reply. The same answer to the same task is verified once in a process.

    LaTeX that cannot be compared with the reference, in time or at all, is wrong; that verdict is not remembered.

    Raises:
        ValueError: the task is broken: an unknown domain, a reference that is no number, a test that is no Python.
    """
    answer = extract_answer(task.domain, reply_text)
    if answer is None:
        return Grade(False, None, "no answer found")
    try:
        return _verify(task, answer)
    except UndecidedError as error:  # lru_cache keeps no exceptions
        return Grade(False, answer, f"could not be compared with {task.reference}: {error}")


def grade_many(pairs: Iterable[tuple[Task, str]], workers: int = 2) -> list[Grade]:
    """Grade (task, reply text) pairs with so many threads; LaTeX and programs run in processes beside them."""
    with ThreadPoolExecutor(workers) as threads:
        return list(threads.map(lambda pair: grade(*pair), pairs))


@lru_cache(maxsize=REMEMBERED)
def _verify(task: Task, answer: str) -> Grade:
    if task.domain == "arithmetic":
        reference = read_number(task.reference)
        if reference is None:
            raise ValueError(f"{task.task_id}: reference = {task.reference!r}: expected a number")
        correct = str(reference) == answer
        return Grade(correct, answer, "" if correct else f"the answer is {reference}")
    if task.domain == "mathematics":
        correct = same_latex(task.reference, answer)
        return Grade(correct, answer, "" if correct else f"not equal to {task.reference}")
    outcome = run_python(answer, tests=task.tests, setup=task.setup, entry_point=task.entry_point)
    return Grade(outcome.passed, answer, outcome.reason)


def vote_key(task: Task, reply_text: str) -> Hashable | None:
    """What Star counts as one vote: the number, the class of equal LaTeX, a program's outputs on the question's inputs.

    Hidden tests and the reference take no part. None is no vote: there is no answer, or a program that fails on every
    input. The key of a class of LaTeX answers is the member that came first in this process: keys are for comparing.
    """
    answer = extract_answer(task.domain, reply_text)
    if answer is None or task.domain == "arithmetic":
        return answer
    if task.domain == "code":
        return _outputs(task, answer)
    try:
        return _latex_class(task.task_id, answer)
    except UndecidedError:
        return answer  # a class of its own, this time


@lru_cache(maxsize=REMEMBERED)
def _outputs(task: Task, program: str) -> tuple[str, ...] | None:
    outcome = run_python(program, setup=task.setup, inputs=task.vote_inputs, entry_point=task.entry_point)
    works = any(not output.startswith("raises") for output in outcome.outputs)
    return outcome.outputs if works and len(outcome.outputs) == len(task.vote_inputs) else None


_classes: dict[str, list[str]] = {}
_classes_lock = threading.Lock()


@lru_cache(maxsize=REMEMBERED)
def _latex_class(task_id: str, answer: str) -> str:
    with _classes_lock:
        known = _classes.setdefault(task_id, [])
        found = next((member for member in known if same_latex(member, answer)), None)
        if found is None:
            known.append(answer)
        return found or answer
