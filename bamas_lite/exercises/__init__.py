"""Self-checks of the notebooks' exercises: each says right, or gives a hint, and never the answer."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any


def expects(what: str) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Decorator of each `check_<k>`: any exception that an odd answer causes becomes "Exercise k: expected <what>."

    An answer is any object of the reader's: its repr, its comparison or its iterator may raise. Ctrl-C passes.
    """
    def decorate(check: Callable[[Any], None]) -> Callable[[Any], None]:
        @wraps(check)
        def checked(answer: Any) -> None:
            try:
                check(answer)
            except Exception:
                print(f"Exercise {check.__name__.removeprefix('check_')}: expected {what}.")
        return checked
    return decorate
