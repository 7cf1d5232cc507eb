"""A few wrong answers per task for the simulated LLM, each verified to fail grading."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from hashlib import blake2b
from itertools import islice

import numpy as np

from bamas_lite.grading import grade
from bamas_lite.mutants import mutants
from bamas_lite.sandbox import Limits, run_python
from bamas_lite.tasks import Task

WANTED = 4
"""Wrong answers per task."""

_INTEGER = re.compile(r"\d+")


def as_reply(domain: str, answer: str) -> str:
    """`answer` in the format that the domain's prompt asks for."""
    if domain == "arithmetic":
        return f"#### {answer}"
    if domain == "mathematics":
        return f"The answer is $\\boxed{{{answer}}}$"
    return f"```python\n{answer.rstrip()}\n```"


@lru_cache(maxsize=1 << 14)
def wrong_answers(task: Task) -> tuple[str, ...]:
    """Answers that fail grading, most tempting first: `task.wrong`, else made from the reference and verified.

    Memoised: for a task without `wrong` this may run several programs in the sandbox.
    """
    if task.wrong:
        return task.wrong
    found: list[str] = []
    for candidate in _CANDIDATES[task.domain](task):
        if candidate not in found and _fails(task, candidate):
            found.append(candidate)
            if len(found) == WANTED:
                break
    return tuple(found)


def _fails(task: Task, candidate: str) -> bool:
    """Whether grading rejects it. A program that is only too slow is no good here: each later run would wait for it."""
    if task.domain != "code":
        return not grade(task, as_reply(task.domain, candidate)).correct
    outcome = run_python(candidate, tests=task.tests, setup=task.setup, entry_point=task.entry_point,
                         limits=Limits(cpu_seconds=1))
    return not outcome.passed and "took more than" not in outcome.reason


def _numbers(task: Task) -> Iterator[str]:
    """Slips of arithmetic: off by one, a factor two, a lost or added zero, a number of the question."""
    try:
        value = Fraction(task.reference.replace(",", "").strip())
    except (ValueError, ZeroDivisionError):
        value = Fraction(0)
    for candidate in (value + 1, value * 2, value / 2, value - 1, value + 10, value * 10, -value, value + 7):
        whole = candidate.denominator == 1
        yield str(candidate.numerator) if whole else f"{float(candidate):.12g}"


def _latex(task: Task) -> Iterator[str]:
    """Slips of algebra: one integer of the answer changed, a sign lost, a term added."""
    reference = task.reference
    for step in (1, 2, -1):
        for place in _INTEGER.finditer(reference):
            changed = int(place.group()) + step
            if changed >= 0:
                yield f"{reference[:place.start()]}{changed}{reference[place.end():]}"
    yield reference[1:] if reference.startswith("-") else f"-{reference}"
    yield from (f"{reference} + 1", f"2 {reference}", "0", "1", "2", "-1", "7", "12")


def _programs(task: Task) -> Iterator[str]:
    """Mutants of the reference, at most 30; at the very end a stub."""
    seed = int.from_bytes(blake2b(task.task_id.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
    try:
        yield from islice(mutants(task.reference, np.random.default_rng(seed)), 30)
    except SyntaxError:
        pass  # no Python of this version: the stub remains
    yield f"def {task.entry_point or 'solution'}(*args, **kwargs):\n    raise NotImplementedError"


_CANDIDATES = {"arithmetic": _numbers, "mathematics": _latex, "code": _programs}
