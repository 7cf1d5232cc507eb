"""Running small programs of our own, and their mutants, with a limit on steps.

The limit counts executed lines, not seconds, so that what is found never depends on the machine. Counting lines is
slow; so loops and function calls are counted first: as long as they are few, the lines cannot be too many. This is no
sandbox: it is for programs that this package wrote itself.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import repeat
from types import CodeType, FrameType
from typing import Any

MAX_STEPS = 20_000
"""Executed lines a call; the references need a few hundred."""

_FILE = "<program>"
_ROUNDS = "_rounds"
_HEADER = re.compile(r"( *)(?:for(?!.* for )|while(?!.* for )|def)\b(?!.*\blambda\b).*:$")
_HIDDEN_LOOP = re.compile(r"\b(?:for|while|def|lambda|try)\b")


class _TooManySteps(BaseException):
    """Not an Exception, so that no program catches it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call did: `text` is the repr of its value or the name of the error that it raised (then not `ok`)."""

    text: str
    value: Any = None
    ok: bool = True

    def equals(self, other: Outcome) -> bool:
        """As an assert sees it."""
        return self.ok and other.ok and self.value == other.value


def observe(program: str, calls: Sequence[str]) -> list[Outcome] | None:
    """Run the program, then each call expression by itself. None if a call takes more than MAX_STEPS."""
    ticking = _ticking(program)
    counted = _run(ticking) if ticking else None
    most = MAX_STEPS // (program.count("\n") + 1) - 1
    plain = None
    outcomes = []
    try:
        for call in calls:
            outcome = _few_rounds(call, counted, most) if counted else None
            if outcome is None:
                plain = plain or _run(program)
                outcome = _limited(call, plain)
            outcomes.append(outcome)
    except _TooManySteps:
        return None
    return outcomes


def _run(program: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(program, _FILE, "exec"), names)
    return names


def _ticking(program: str) -> str | None:
    """The program with a tick at the start of each function and of each round of a loop; None where loops may hide.

    Between two ticks of a function no line of it is executed twice.
    """
    lines = []
    for line in program.splitlines():
        lines.append(line)
        if header := _HEADER.match(line):
            lines.append(f"{header[1]}    next({_ROUNDS})")
        elif _HIDDEN_LOOP.search(line):
            return None
    return "\n".join(lines)


def _few_rounds(call: str, names: dict[str, Any], most: int) -> Outcome | None:
    """The outcome of a call that takes at most `most` ticks, else None."""
    names[_ROUNDS] = repeat(None, most)
    try:
        value = eval(_compiled(call), names)
    except StopIteration:
        return None
    except Exception as error:
        return Outcome(type(error).__name__, ok=False)
    return Outcome(repr(value), value)


@lru_cache(maxsize=1 << 10)
def _compiled(call: str) -> CodeType:
    return compile(call, "<call>", "eval")


def _limited(call: str, names: dict[str, Any]) -> Outcome:
    steps = 0

    def trace(frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        nonlocal steps
        if frame.f_code.co_filename != _FILE:
            return None
        if event == "line":
            steps += 1
            if steps > MAX_STEPS:
                raise _TooManySteps
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        value = eval(_compiled(call), names)
        return Outcome(repr(value), value)
    except Exception as error:
        return Outcome(type(error).__name__, ok=False)
    finally:
        sys.settrace(before)
