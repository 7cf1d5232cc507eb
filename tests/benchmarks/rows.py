"""Lines of the table that `make bench` prints, and the clock."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class Row:
    """One line of the table: what was measured, its value, what it should reach, whether it does (None: no target)."""

    what: str
    value: str
    target: str = ""
    met: bool | None = None

    def __str__(self) -> str:
        verdict = "" if self.met is None else "met" if self.met else "NOT MET"
        return f"{self.what:<66} {self.value:>16}  {self.target:<14} {verdict}"


def seconds(action: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def median_ms(actions: list[Callable[[], object]]) -> float:
    """Median wall time of the calls, after one that does not count."""
    actions[0]()
    return 1000 * statistics.median(seconds(action) for action in actions)


def at_most(what: str, value: float, target: float, unit: str, digits: int = 2) -> Row:
    return Row(what, f"{value:,.{digits}f} {unit}", f"< {target:g} {unit}", value < target)
