"""The process in which LaTeX answers are compared: `python -m bamas_lite.latex_worker` reads and writes JSON lines.

math-verify protects itself against endless input (9^9^9^9) with signals, which work in no thread and not inside a
running event loop. Here it runs without them in a process of its own, which `bamas_lite.grading` ends when it is late.
"""

from __future__ import annotations

import json
import logging
import sys

MEMORY_BYTES = 2 << 30


def _limit_memory() -> None:
    try:
        import resource
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    except (ImportError, OSError, ValueError):
        pass  # Windows and macOS: only the time is bounded


def same(reference: str, answer: str) -> bool:
    """Whether math-verify takes two LaTeX answers for equal."""
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify
    kinds = [LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig()]
    gold, found = (parse(f"$\\boxed{{{text}}}$", kinds, parsing_timeout=None) for text in (reference, answer))
    return bool(gold) and bool(found) and verify(gold, found, allow_set_relation_comp=True,
                                                  timeout_seconds=None)


def main() -> None:
    """Answer requests until standard input ends."""
    _limit_memory()
    logging.disable(logging.CRITICAL)
    import math_verify  # noqa: F401  # the slow part, before the clock of the first request starts
    print("ready", flush=True)
    for line in sys.stdin:
        try:
            verdict = same(*json.loads(line))
        except (Exception, RecursionError):
            verdict = False
        print(json.dumps(verdict), flush=True)


if __name__ == "__main__":
    main()
