"""Grading: is a reply right?"""

from __future__ import annotations

from dataclasses import dataclass

from bamas_lite.tasks import Task


@dataclass(frozen=True, slots=True)
class Grade:
    """The verdict on one reply: `answer` is what was found in it (None: nothing), `reason` says why it is wrong."""

    correct: bool
    answer: str | None
    reason: str = ""
