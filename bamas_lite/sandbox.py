"""Running untrusted Python: its own process computes values, and the verdict is reached outside it.

A program never meets the expected values of its tests. Each assert is split: what the program has to compute (`f(2)` in
`assert f(2) == 4`) is evaluated in its process and comes back as plain data; what remains (`V0 == 4`) is evaluated
without the program. So a program that exits early, prints a verdict, patches the interpreter, searches the memory or
returns an object that equals everything gains nothing. How the process is kept away from files, network and keys:
`isolation.py`.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bamas_lite.asserts import Test, renamed, split_tests
from bamas_lite.isolation import run_job
from bamas_lite.jail.values import decode

COMPARED_HERE = 1 << 16
"""Bytes of results up to which plain comparisons are made here; more are compared in the sandbox, under its limits."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one program may use.

    Attributes:
        seconds: wall-clock time of a run.
        cpu_seconds: processor time of a process; it does not depend on how busy the machine is.
        memory_bytes: address space of a process.
        file_bytes: size of a file.
        processes: processes and threads at a time, the first included.
        output_bytes: size of all values that it sends back; what it prints is thrown away.
    """

    seconds: float = 20.0
    cpu_seconds: int = 8
    memory_bytes: int = 512 << 20
    file_bytes: int = 8 << 20
    processes: int = 8
    output_bytes: int = 1 << 20


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a program did.

    Attributes:
        passed: there are tests and each of them holds.
        loaded: the program itself ran to its end, so that its functions exist.
        outputs: for each of the inputs the value as text (equal data, equal text), or "raises <type>".
        reason: why it did not pass; empty if it did, or if there was nothing to pass.
        protection: how it was isolated (`isolation.WAYS`), and as which user if root started it.
        inside_tests: tests that had to be decided in the program's own process, where it could interfere: statements
            other than asserts, comprehensions over the program's results, values of the program's own classes.
    """

    passed: bool
    loaded: bool
    outputs: tuple[str, ...]
    reason: str
    protection: str
    inside_tests: int = 0


def _text(form: Any) -> str:
    """An encoded value as text: like repr, but sets and dictionaries in sorted order."""
    kind = form[0] if isinstance(form, list) else None
    if kind == "dict":
        return "{" + ", ".join(sorted(f"{_text(key)}: {_text(value)}" for key, value in form[1])) + "}"
    if kind in ("list", "tuple", "set", "frozenset", "deque", "iterator"):
        items = [_text(item) for item in form[1]]
        inner = ", ".join(sorted(items) if "set" in kind else items)
        return f"[{inner}]" if kind == "list" else f"{'' if kind == 'tuple' else kind}({inner})"
    return form[1] if kind == "int" and len(form[1]) > 1000 else repr(decode(form))


def _shown(result: list[Any], message: bool = False) -> str:
    """One result as text; of an exception the type, and its message if asked for."""
    try:
        if result[0] == "value":
            return _text(result[1])
        if result[0] == "opaque":
            return f"a value of type {result[1]}"
        return f"raises {result[1]}" + (f": {result[2]}" if message and result[2] else "")
    except Exception:  # the program may have sent anything
        return "something unreadable"


@dataclass(frozen=True, slots=True)
class _Run:
    """What came back from one process: results in the order of the steps, and why there are no more."""

    loaded: bool
    results: list[list[Any]]
    stopped: str
    protection: str
    size: int


def _run(program: str, setup: str, steps: list[tuple[str, str]], limits: Limits, isolation: str | None,
         values: dict[str, Any] | None = None) -> _Run:
    nonce = secrets.token_hex(8)
    rlimits = [("RLIMIT_AS", limits.memory_bytes), ("RLIMIT_CPU", limits.cpu_seconds), ("RLIMIT_CORE", 0),
               ("RLIMIT_FSIZE", limits.file_bytes), ("RLIMIT_NOFILE", 64), ("RLIMIT_NPROC", limits.processes)]
    job = {"program": program, "setup": setup, "steps": steps, "values": values or {}, "nonce": nonce,
           "limits": rlimits}
    end, output, protection = run_job(json.dumps(job).encode(), limits.seconds, limits.output_bytes, isolation)
    frames = []
    for line in output.splitlines():
        try:
            frame = json.loads(line)
        except (ValueError, RecursionError):
            break
        if not isinstance(frame, list) or len(frame) < 2 or frame[0] != nonce:
            break
        frames.append(frame[1:])
    stopped = {"late": f"took more than {limits.seconds:g} s", "output": f"sent more than {limits.output_bytes} bytes",
               "busy": f"took more than {limits.cpu_seconds} s of processor time"
               }.get(end, "ended before it had answered")
    if frames and frames[0][0] == "load":
        return _Run(False, [], ": ".join(map(str, frames[0][1:])), protection, len(output))
    return _Run(bool(frames) and frames[0] == ["loaded"], frames[1:], f"the program {stopped}", protection, len(output))


def _verdicts(tests: Sequence[Test], run: _Run, trusted_setup: str, limits: Limits, isolation: str | None
              ) -> list[str | None]:
    """For each test "" if it holds, why it does not, or None if its values cannot leave the process."""
    verdicts: list[str | None] = []
    pending: list[tuple[int, str]] = []
    values: dict[str, Any] = {}
    results = iter(run.results)
    for number, test in enumerate(tests):
        got = [next(results, None) for _ in test.steps]
        verdict: str | None = ""
        if None in got:
            verdict = run.stopped
        elif errors := [index for index, result in enumerate(got) if result[0] != "value"]:
            error, source = got[errors[0]], test.steps[errors[0]][1]
            opaque = error[0] == "opaque" and len(test.calls) > 1
            verdict = None if opaque else f"{source[:120]} -> {_shown(error, message=True)}"
        elif test.check is not None:
            try:
                if test.expected and run.size <= COMPARED_HERE:
                    verdict = "" if decode(got[0][1]) == test.expected[0] else f"not true: {test.statement[:200]}"
                else:
                    pending.append((number, test.check))
                    values |= {f"V{number}_{i}": result[1] for i, result in enumerate(got)}
            except Exception:  # the program may have sent anything
                verdict = "the program sent something unreadable"
        verdicts.append(verdict)
    if pending:
        steps = [("truth", renamed(check, number)) for number, check in pending]
        checked = _run("", trusted_setup, steps, limits, isolation, values)
        for index, (number, _) in enumerate(pending):
            holds = index < len(checked.results) and checked.results[index] == ["value", True]
            verdicts[number] = "" if holds else f"not true: {tests[number].statement[:200]}"
    return verdicts


def run_python(program: str, *, tests: Sequence[str] = (), setup: str = "", inputs: Sequence[str] = (),
               entry_point: str = "", limits: Limits | None = None, isolation: str | None = None) -> Outcome:
    """Run a program on tests and on inputs, isolated as well as the system allows.

    Args:
        program: untrusted Python source.
        tests: assert statements (trusted), each with what it needs; hidden from the program.
        setup: statements (trusted) that the tests need; they run before the program, or after it if they need it.
        inputs: call expressions whose values are wanted.
        entry_point: the function that the program has to define (needed where it has the name of a builtin).
        limits: what it may use.
        isolation: one of `isolation.WAYS`; None takes the first that works here.

    Raises:
        ValueError: a test or the set-up is no Python.
        IsolationError: the sandbox cannot be started.
    """
    limits = limits or Limits()
    split, trusted_setup = split_tests(tuple(tests), setup, entry_point)
    steps = [step for test in split for step in test.steps]
    run = _run(program, setup, [*steps, *(("eval", call) for call in inputs)], limits, isolation)
    outputs = tuple(map(_shown, run.results[len(steps):]))
    if not run.loaded:
        return Outcome(False, False, (), run.stopped, run.protection)
    verdicts = _verdicts(split, run, trusted_setup, limits, isolation)
    inside = sum(test.inside for test in split)
    if None in verdicts:  # asserts about objects of the program's own classes: only its own process can decide them
        inside += verdicts.count(None)
        again = [Test(f"assert {test.statement}") if verdict is None else test
                 for test, verdict in zip(split, verdicts, strict=True)]
        run = _run(program, setup, [step for test in again for step in test.steps], limits, isolation)
        verdicts = _verdicts(again, run, trusted_setup, limits, isolation)
    reason = next((verdict for verdict in verdicts if verdict), "")
    return Outcome(bool(split) and not reason, True, outputs, reason, run.protection, inside)
