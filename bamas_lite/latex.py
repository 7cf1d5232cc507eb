"""Equality of LaTeX answers, decided by math-verify in a process of its own (`latex_worker.py`)."""

from __future__ import annotations

import atexit
import json
import os
import re
import subprocess
import sys
import threading
from fractions import Fraction
from functools import lru_cache

SECONDS = 5.0
"""Time for one comparison; what cannot be decided in it is not equal."""
LENGTH = 1_000
"""Characters of an answer; a longer one is compared as text only."""

_RATIONAL = re.compile(r"(-?)(?:([0-9]{1,50})|\\frac\{([0-9]{1,50})\}\{([0-9]{1,50})\}|([0-9]{1,50})/([0-9]{1,50}))")

_BASE = re.compile(r"[0-9]_\{?([0-9]{1,3})\}?$")


def same_latex(reference: str, answer: str) -> bool:
    """Whether two LaTeX answers are equal: as text up to spacing, as exact fractions, or for math-verify."""
    one, other = _squeezed(reference), _squeezed(answer)
    if one == other:
        return True
    numbers = _rational(one), _rational(other)
    if None not in numbers:
        return numbers[0] == numbers[1]
    bases = _BASE.search(one), _BASE.search(other)
    if None not in bases and bases[0][1] != bases[1][1]:
        return False  # 10_2 and 10_3: math-verify passes over what it takes for an index
    if max(len(reference), len(answer)) > LENGTH:
        return False
    return _pool.ask([reference, answer])


@lru_cache(maxsize=1 << 14)
def _squeezed(latex: str) -> str:
    """LaTeX without what does not change its meaning."""
    latex = re.sub(r"\\left(?![a-zA-Z])|\\right(?![a-zA-Z])|\\[,;:! ]|\s|\$", "", latex[:10 * LENGTH])
    return re.sub(r"\\[dt]frac", r"\\frac", latex).rstrip(".")


def _rational(squeezed: str) -> Fraction | None:
    """The value of a whole number or a simple fraction; decimals are math-verify's, which allows for rounding."""
    match = _RATIONAL.fullmatch(squeezed)
    if match is None:
        return None
    above, below = match[2] or match[3] or match[5], match[4] or match[6] or "1"
    return None if int(below) == 0 else Fraction(int(match[1] + above), int(below))


class _Pool:
    """Workers, one for each thread that asks at the same time; they stay for the next question."""

    def __init__(self) -> None:
        self._idle: list[subprocess.Popen[str]] = []

    def ask(self, request: list[str]) -> bool:
        """Ask a worker; one that is late is ended, and its answer is no."""
        try:
            worker = self._idle.pop()
        except IndexError:
            worker = self._start()
        timer = threading.Timer(SECONDS, worker.kill)
        timer.daemon = True
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
        self._idle.append(worker)
        return json.loads(line) is True

    def _start(self) -> subprocess.Popen[str]:
        environment = {key: os.environ[key] for key in ("SYSTEMROOT",) if key in os.environ}
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        worker = subprocess.Popen([sys.executable, "-m", "bamas_lite.latex_worker"], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8", env=environment)
        if worker.stdout.readline() != "ready\n":
            worker.kill()
            worker.communicate()
            raise RuntimeError("math-verify cannot be loaded: python -m bamas_lite.latex_worker shows why")
        return worker

    def close(self) -> None:
        """End the workers."""
        while self._idle:
            worker = self._idle.pop()
            worker.kill()
            worker.communicate()

    def forget(self) -> None:
        """In a forked process: the workers are the parent's."""
        for worker in self._idle:
            worker.stdin.close()
            worker.stdout.close()
            worker.returncode = 0
        self._idle = []


_pool = _Pool()
close = _pool.close
atexit.register(close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.forget)
