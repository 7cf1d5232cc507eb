"""Running small programs of our own, and their mutants, with a limit on steps.

The limit counts executed lines, not seconds, so that what is found never depends on the machine. This is no sandbox:
it is for programs that this package wrote itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

MAX_STEPS = 20_000
"""Executed lines a call; the references need a few hundred."""

_FILE = "<program>"


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
    namespace: dict[str, Any] = {}
    exec(compile(program, _FILE, "exec"), namespace)
    try:
        return [_limited(lambda call=call: eval(call, namespace)) for call in calls]
    except _TooManySteps:
        return None


def _limited(run: Callable[[], Any]) -> Outcome:
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
        value = run()
        return Outcome(repr(value), value)
    except Exception as error:
        return Outcome(type(error).__name__, ok=False)
    finally:
        sys.settrace(before)
