"""Equality of LaTeX answers, decided by math-verify in a process of its own (`latex_worker.py`)."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from functools import lru_cache

from bamas_lite.answers import FULL_WIDTH, plain_number
from bamas_lite.latex_values import surely_differ

SECONDS = 5.0
"""CPU time for one comparison, so that a busy machine does not change verdicts; wall time on Windows."""
PATIENCE = 12 if hasattr(signal, "setitimer") else 1
"""A comparison is also ended after PATIENCE * SECONDS of wall time."""
LENGTH = 1_000
"""Characters of an answer; a longer one is compared as text only."""

_GAP = r"(?:\s|~|\\[,;:! ])"
_GROUPS = re.compile(rf"(?<![0-9.])[0-9]{{1,3}}(?:{_GAP}{{1,3}}[0-9]{{3}})+(?![0-9])")
_SPACED = re.compile(rf"[0-9]{_GAP}{{1,9}}[0-9]")
_BASE = re.compile(r"(?<![A-Za-z0-9_])[0-9][0-9A-F]*_\{?([0-9]{1,3})\}?$")
_EQUALS = re.compile(r"(?<![<>!:=])=(?!=)")
_BRACKETED = re.compile(r"\{[^{}]*\}|\([^()]*\)|\[[^\[\]]*\]")
_ARITHMETIC = re.compile(r"\\(?:text|mathrm|textbf|mathbf|mbox)\s?\{[^{}]*\}|\\[,;:! %$]"
                         r"|\\(?:[dtc]?frac|sqrt|times|cdot|div|left|right|circ|pi)(?![a-zA-Z])")
_TRAILING = re.compile(r"(?:\\[,;:! ]|[\s.,;:]){1,20}$")


class UndecidedError(RuntimeError):
    """Two answers could not be compared: it took too long, or it ended the comparing process twice."""


def same_latex(reference: str, answer: str) -> bool:
    """Whether two LaTeX answers are equal: as text up to spacing, as plain numbers (exactly), or for math-verify.

    math-verify alone is too kind: it takes the last side of an equation, the members of a list as a set, and a base
    for an index. So an answer is no equal one if its sides are different numbers (3 = 4); if one of the two is a number
    and the other a list (5 and 5,5); if the bases differ or the answer alone has one other than 10 (the reference's may
    be left out, because the question asked for it); or if it has digits with a space between them that groups no
    thousands (1 1).

    Raises:
        UndecidedError: it took more than SECONDS, or the process that compares died, and its successor too. (Death by
            the memory limit repeats itself, and so is told from a signal from outside, which does not.)
    """
    reference, answer = _clean(reference), _clean(answer)
    if reference == answer:
        return True
    numbers = plain_number(reference), plain_number(answer)
    if None not in numbers:
        return numbers[0] == numbers[1]
    if _SPACED.search(answer) or (numbers != (None, None) and (_is_list(reference) or _is_list(answer))):
        return False
    one, other = _squeezed(reference), _squeezed(answer)
    if one == other:
        return True
    base, own_base = _BASE.search(one), _BASE.search(other)
    if own_base and own_base[1] != (base[1] if base else "10"):
        return False
    if max(len(reference), len(answer)) > LENGTH:
        return False
    sides = [side for side in _EQUALS.split(answer) if _is_numeric(side)]
    if len(sides) > 1 and not all(same_latex(sides[-1], side) for side in sides[:-1]):
        return False
    return not surely_differ(reference, answer) and _verified(reference, answer)


@lru_cache(maxsize=1 << 14)  # a member of a vote's class is often the reference of grading
def _verified(reference: str, answer: str) -> bool:
    return _pool.ask([reference, answer, SECONDS])


@lru_cache(maxsize=1 << 14)
def _clean(latex: str) -> str:
    r"""LaTeX in plain signs, with \\frac12 written out and thousands together, without punctuation at its end."""
    latex = latex[:10 * LENGTH].translate(FULL_WIDTH | {0x2212: "-"}).strip()
    latex = _TRAILING.sub("", latex)
    latex = re.sub(r"\\[dtc]?frac\s{0,3}([0-9])\s{0,3}([0-9])", r"\\frac{\1}{\2}", latex)
    return _GROUPS.sub(lambda group: re.sub("[^0-9]", "", group[0]), latex)


def _squeezed(latex: str) -> str:
    """LaTeX without what does not change its meaning."""
    latex = re.sub(r"\\left(?![a-zA-Z])|\\right(?![a-zA-Z])|\\[,;:! ]|\s|\$", "", latex)
    return re.sub(r"\\[dt]frac", r"\\frac", latex)


def _is_list(latex: str) -> bool:
    return re.search("[,;]", re.sub(r"\{,\}|\\[,;:! ]", "", _BRACKETED.sub("", latex))) is not None


def _is_numeric(latex: str) -> bool:
    """Whether LaTeX is made of digits, arithmetic and units: no variables and no names."""
    rest = _ARITHMETIC.sub("", latex)
    return re.search("[0-9]", rest) is not None and re.search(r"[A-Za-z\\_]", rest) is None


class _Pool:
    """Workers, one for each thread that asks at the same time; they stay for the next question."""

    def __init__(self) -> None:
        self._idle: list[subprocess.Popen[str]] = []

    def ask(self, request: list[str | float]) -> bool:
        """Ask a worker. One that died without being late is replaced, once, by a fresh one that is asked again."""
        try:
            worker = self._idle.pop()
        except IndexError:
            worker = self._start()
        line, late = _exchange(worker, request)
        if not line and not late:
            worker = self._start()
            line, late = _exchange(worker, request)
        if not line:
            raise UndecidedError("it took too long" if late else "it ended the process that compares, twice")
        self._idle.append(worker)
        return json.loads(line) is True

    def _start(self) -> subprocess.Popen[str]:
        environment = {key: os.environ[key] for key in ("SYSTEMROOT",) if key in os.environ}
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        # A group of its own: Ctrl-C in the terminal is for us, not for the workers.
        worker = subprocess.Popen([sys.executable, "-m", "bamas_lite.latex_worker"], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8", env=environment,
                                  start_new_session=True,
                                  creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0))
        if worker.stdout.readline() != "ready\n":
            _end(worker)
            raise RuntimeError("math-verify cannot be loaded: python -m bamas_lite.latex_worker shows why")
        return worker

    def close(self) -> None:
        """End the workers."""
        while self._idle:
            _end(self._idle.pop())

    def forget(self) -> None:
        """In a forked process: the workers are the parent's."""
        for worker in self._idle:
            worker.stdin.close()
            worker.stdout.close()
            worker.returncode = 0
        self._idle = []


def _exchange(worker: subprocess.Popen[str], request: list[str | float]) -> tuple[str, bool]:
    """A worker's line, or "" and whether it was late. Without a line, and on Ctrl-C, the worker is ended."""
    late = threading.Event()
    timer = threading.Timer(PATIENCE * SECONDS, lambda: (late.set(), worker.kill()))
    timer.daemon = True
    timer.start()
    line = ""
    try:
        worker.stdin.write(json.dumps(request) + "\n")
        worker.stdin.flush()
        line = worker.stdout.readline()
    except OSError:
        pass  # it is dead
    finally:
        timer.cancel()
        if not line.endswith("\n"):
            line = ""
            _end(worker)
    return line, late.is_set() or -(worker.returncode or 0) == getattr(signal, "SIGPROF", None)


def _end(worker: subprocess.Popen[str]) -> None:
    worker.kill()
    with contextlib.suppress(OSError):  # what we wrote and it did not read
        worker.stdin.close()
    worker.stdout.close()
    worker.wait()


_pool = _Pool()
close = _pool.close
atexit.register(close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.forget)
