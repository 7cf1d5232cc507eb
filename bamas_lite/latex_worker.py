"""The process in which LaTeX answers are compared: `python -m bamas_lite.latex_worker` reads and writes JSON lines.

math-verify protects itself against endless input (9^9^9^9) with signals, which work in no thread and not inside a
running event loop. Here it runs without them in a process of its own, which ends itself when a comparison takes more
CPU time than allowed, and which `bamas_lite.latex` ends when it takes too long by the clock.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
from typing import Any

MEMORY_BYTES = 2 << 30
PARSED = 1 << 10
"""Parsed answers that are kept: reading one takes longer than comparing two, and each is compared several times."""


def _limit_memory() -> None:
    try:
        import resource
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    except (ImportError, OSError, ValueError):
        pass  # Windows and macOS: only the time is bounded


def _limit_time(seconds: float) -> None:
    """After so much CPU time the system ends this process by SIGPROF, also inside C code. 0 lifts the limit."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, seconds)


_parsed: dict[str, list[Any]] = {}


def _parse(answer: str) -> list[Any]:
    """What math-verify reads in a LaTeX answer."""
    if answer in _parsed:
        return _parsed[answer]
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse
    kinds = [LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig()]
    read = parse(f"$\\boxed{{{answer}}}$", kinds, parsing_timeout=None)
    if len(_parsed) >= PARSED:
        _parsed.clear()
    if read:  # nothing read may be for want of memory: then it is read again
        _parsed[answer] = read
    return read


def same(reference: str, answer: str) -> bool:
    """Whether math-verify takes two LaTeX answers for equal."""
    from math_verify import verify
    gold, found = _parse(reference), _parse(answer)
    return bool(gold) and bool(found) and verify(gold, found, allow_set_relation_comp=True,
                                                  timeout_seconds=None)


def main() -> None:
    """Answer requests, [reference, answer, seconds of CPU time] a line, until standard input ends."""
    _limit_memory()
    logging.disable(logging.CRITICAL)
    import math_verify  # noqa: F401  # the slow part, before the clock of the first request starts
    print("ready", flush=True)
    for line in sys.stdin:
        reference, answer, seconds = json.loads(line)
        _limit_time(seconds)
        try:
            verdict = same(reference, answer)
        except MemoryError:
            raise  # whatever fills the memory, this process is of no more use
        except Exception:
            verdict = False
        _limit_time(0)
        print(json.dumps(verdict), flush=True)


if __name__ == "__main__":
    main()
