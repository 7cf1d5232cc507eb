"""Grading: is a reply right?

Numbers are compared exactly, LaTeX by math-verify in a process of its own, programs by what they return in the sandbox.
"""

from __future__ import annotations

import atexit
import json
import re
import subprocess
import sys
import threading
from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache
from queue import Empty, Queue

from bamas_lite.answers import find_latex, find_number, find_program, read_number
from bamas_lite.sandbox import run_python
from bamas_lite.tasks import DOMAINS, Task

LATEX_SECONDS = 5.0
"""Time for one comparison of LaTeX answers."""
LATEX_LENGTH = 1_000
"""A longer answer is compared as text only."""


@dataclass(frozen=True, slots=True)
class Grade:
    """The verdict on one reply: `answer` is what was found in it (None: nothing), `reason` says why it is wrong."""

    correct: bool
    answer: str | None
    reason: str = ""


def extract_answer(domain: str, reply_text: str) -> str | None:
    """The answer in a reply, in one form per value: a number ("18", "3/4"), LaTeX, or a program; None if there is none.

    Raises:
        ValueError: an unknown domain.
    """
    if domain == "arithmetic":
        number = find_number(reply_text)
        return None if number is None else str(number)
    if domain == "mathematics":
        return find_latex(reply_text)
    if domain == "code":
        return find_program(reply_text)
    raise ValueError(f"domain = {domain!r}: expected one of {', '.join(DOMAINS)}")


def grade(task: Task, reply_text: str) -> Grade:
    """Grade a reply. The same answer to the same task is verified once in a process."""
    answer = extract_answer(task.domain, reply_text)
    if answer is None:
        return Grade(False, None, "no answer found")
    return _verify(task, answer)


@lru_cache(maxsize=1 << 16)
def _verify(task: Task, answer: str) -> Grade:
    if task.domain == "arithmetic":
        reference = read_number(task.reference)
        correct = reference is not None and str(reference) == answer
        return Grade(correct, answer, "" if correct else f"not {task.reference}")
    if task.domain == "mathematics":
        correct = same_latex(task.reference, answer)
        return Grade(correct, answer, "" if correct else f"not equal to {task.reference}")
    outcome = run_python(answer, tests=task.tests, setup=task.setup, entry_point=task.entry_point)
    return Grade(outcome.passed, answer, outcome.reason)


def vote_key(task: Task, reply_text: str) -> Hashable | None:
    """What Star counts as one vote: the number, the class of equal LaTeX, a program's outputs on inputs of the question.

    Hidden tests and the reference take no part. None (no vote) if there is no answer, or the program does not run.
    """
    answer = extract_answer(task.domain, reply_text)
    if answer is None:
        return None
    if task.domain == "arithmetic":
        return answer
    return _latex_class(answer) if task.domain == "mathematics" else _outputs(task, answer)


@lru_cache(maxsize=1 << 16)
def _outputs(task: Task, program: str) -> tuple[str, ...] | None:
    outcome = run_python(program, setup=task.setup, inputs=task.vote_inputs, entry_point=task.entry_point)
    return outcome.outputs if outcome.loaded else None


@lru_cache(maxsize=1 << 16)
def _latex_class(answer: str) -> str:
    number = read_number(answer) if re.fullmatch(r"[-0-9.,/ ]+", answer) else None
    return _squeeze(answer) if number is None else str(number)


def _squeeze(latex: str) -> str:
    """LaTeX without what does not change its meaning."""
    latex = re.sub(r"\\left(?![a-z])|\\right(?![a-z])|\\[,;:!]|\s", "", latex)
    return re.sub(r"\\[dt]frac", r"\\frac", latex).strip("$.")


def same_latex(reference: str, answer: str) -> bool:
    """Whether two LaTeX answers are equal. What cannot be decided in LATEX_SECONDS is not equal."""
    if _squeeze(reference) == _squeeze(answer):
        return True
    if len(answer) > LATEX_LENGTH or len(reference) > LATEX_LENGTH:
        return False
    return _latex_pool.ask([reference, answer])


class _LatexPool:
    """Workers that compare LaTeX; one for each thread that asks at the same time."""

    def __init__(self) -> None:
        self._idle: Queue[subprocess.Popen[str]] = Queue()

    def ask(self, request: list[str]) -> bool:
        """Ask a worker, and end it if it is late."""
        try:
            worker = self._idle.get_nowait()
        except Empty:
            worker = subprocess.Popen([sys.executable, "-m", "bamas_lite.latex_worker"], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, encoding="utf-8")
            worker.stdout.readline()
        timer = threading.Timer(LATEX_SECONDS, worker.kill)
        timer.start()
        try:
            worker.stdin.write(json.dumps(request) + "\n")
            worker.stdin.flush()
            line = worker.stdout.readline()
        except OSError:
            line = ""
        timer.cancel()
        if not line:
            worker.kill()
            worker.communicate()
            return False
        self._idle.put(worker)
        return bool(json.loads(line))

    def close(self) -> None:
        """End the workers."""
        while not self._idle.empty():
            worker = self._idle.get_nowait()
            worker.kill()
            worker.communicate()


_latex_pool = _LatexPool()
atexit.register(_latex_pool.close)
