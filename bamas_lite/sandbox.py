"""Running untrusted Python: its own process computes values, and the verdict is reached outside it.

A program never meets the expected values of its tests. Each assert is split: what the program has to compute (`f(2)` in
`assert f(2) == 4`) is evaluated in its process and comes back as plain data; what remains (`V0 == 4`) is evaluated
without the program. So a program that exits early, prints a verdict, patches the interpreter, searches the memory or
returns an object that equals everything gains nothing. How the process is kept away from files, network and keys:
`isolation.py`.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from bamas_lite.asserts import Plan, Test, split_tests
from bamas_lite.isolation import run_job
from bamas_lite.jail.values import decode

COMPARED_HERE = 1 << 16
"""Bytes of results up to which plain comparisons are made here; more are compared in the sandbox, under its limits."""

FEW_ITEMS, MANY_ITEMS = 100, 100_000
"""Items read of an iterator at first, and if that is not enough for the tests."""

LONGEST_REASON, LONGEST_OUTPUT = 500, 2000
"""Characters."""


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
    processes: int = 16
    output_bytes: int = 4 << 20


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a program did.

    Attributes:
        passed: there are tests and each of them holds.
        loaded: the program itself ran to its end, so that its functions exist.
        outputs: for each of the inputs the value as text (equal data, equal text; the rest of a long one as its
            SHA-256; of an iterator the first items), or "raises <type>".
        reason: why it did not pass; empty if it did, or if there was nothing to pass.
        protection: how it was isolated (`isolation.WAYS`), and as which user if root started it.
        inside_tests: tests that had to be decided in the program's own process, where it could interfere: statements
            with the program other than asserts and assignments, functions or classes of the program as arguments,
            values of the program's own classes.
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
    if kind in ("dict", "Counter"):
        return "{" + ", ".join(sorted(f"{_text(key)}: {_text(value)}" for key, value in form[1])) + "}"
    if kind in ("object", "member"):
        return f"{form[1]}({_text(form[2])})"
    if kind in ("list", "tuple", "set", "frozenset", "deque", "iterator", "prefix"):
        items = [_text(item) for item in form[1]] + (["..."] if kind == "prefix" else [])
        kind = "iterator" if kind == "prefix" else kind
        inner = ", ".join(sorted(items) if "set" in kind else items)
        return f"[{inner}]" if kind == "list" else f"{'' if kind == 'tuple' else kind}({inner})"
    return form[1] if kind == "int" and len(form[1]) > 1000 else repr(decode(form))


def _bounded(text: str, longest: int) -> str:
    """A text that can be printed and kept: no lone surrogates, and not too long."""
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= longest else f"{text[:longest]}... {hashlib.sha256(text.encode()).hexdigest()}"


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
    partial: bool


def _run(program: str, prelude: str, steps: list[tuple[str, str, dict[str, Any]]], plan: Plan, items: int,
         limits: Limits, isolation: str | None) -> _Run:
    nonce = secrets.token_hex(8)
    rlimits = [("RLIMIT_AS", limits.memory_bytes), ("RLIMIT_CPU", limits.cpu_seconds), ("RLIMIT_CORE", 0),
               ("RLIMIT_FSIZE", limits.file_bytes), ("RLIMIT_NOFILE", 64), ("RLIMIT_NPROC", limits.processes),
               ("RLIMIT_MSGQUEUE", 0)]
    job = {"program": program, "prelude": prelude, "own": plan.own, "classes": plan.classes, "items": items,
           "steps": steps, "nonce": nonce, "limits": rlimits}
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
    loaded = bool(frames) and frames[0] == ["loaded"]
    reason = f"the program {stopped}"
    if frames and frames[0][0] == "load":
        reason = _shown(["error", *frames[0][1:], ""], message=True).removeprefix("raises ")
    return _Run(loaded, frames[1:] if loaded else [], reason, protection, len(output), b'["prefix"' in output)


def _verdicts(plan: Plan, run: _Run, limits: Limits, isolation: str | None) -> list[str | None]:
    """For each test "" if it holds, why it does not, or None if its values cannot leave the process."""
    verdicts: list[str | None] = []
    steps: list[tuple[str, str, dict[str, Any]]] = []
    pending: dict[int, int] = {}
    results = iter(run.results)
    for number, test in enumerate(plan.tests):
        got = [next(results, None) for _ in test.steps]
        verdict: str | None = ""
        if test.trusted:
            steps.append(("exec", test.statement, {}))
        if None in got:
            verdict = run.stopped
        elif errors := [index for index, result in enumerate(got) if result[0] != "value"]:
            error, source = got[errors[0]], test.steps[errors[0]][1]
            verdict = None if error[0] == "opaque" and test.mixed else (
                f"{source[:120]} -> {_shown(error, message=True)}")
        elif test.check is not None:
            verdict = f"not true: {test.statement[:200]}"
            try:
                if test.expected and run.size <= COMPARED_HERE:
                    verdict = "" if decode(got[0][1]) == test.expected[0] else verdict
                else:
                    pending[number] = len(steps)
                    steps.append(("truth", test.check, {f"V{index}": result[1] for index, result in enumerate(got)}))
            except Exception:  # the program may have sent anything
                verdict = "the program sent something unreadable"
        verdicts.append(verdict)
    if pending:
        checked = _run("", f"{plan.imports}\n{plan.prelude}", steps, plan, 0, limits, isolation)
        for number, step in pending.items():
            result = checked.results[step] if step < len(checked.results) else ["value", False]
            if result == ["value", True]:
                verdicts[number] = ""
            elif result[0] != "value":
                verdicts[number] += f" -> {_shown(result, message=True)}"
    return verdicts


def run_python(program: str, *, tests: Sequence[str] = (), setup: str = "", inputs: Sequence[str] = (),
               entry_point: str = "", limits: Limits | None = None, isolation: str | None = None) -> Outcome:
    """Run a program on tests and on inputs, isolated as well as the system allows.

    Args:
        program: untrusted Python source.
        tests: assert statements (trusted), each with what it needs; hidden from the program.
        setup: statements (trusted) that the tests need. The program may use its imports and classes, nothing else of
            it; what needs a class of the program runs after it.
        inputs: call expressions whose values are wanted.
        entry_point: the function that the program has to define (needed where it has the name of a builtin).
        limits: what it may use.
        isolation: one of `isolation.WAYS`; None takes the first that works here.

    Raises:
        ValueError: a test or the set-up is no Python.
        IsolationError: the sandbox cannot be started.
    """
    limits = limits or Limits()
    plan = split_tests(tuple(tests), setup, entry_point, tuple(inputs))
    first = run = _run_all(program, plan, inputs, FEW_ITEMS, limits, isolation)
    if not run.loaded:
        return Outcome(False, False, (), _bounded(run.stopped, LONGEST_REASON), run.protection)
    verdicts = _verdicts(plan, run, limits, isolation)
    if run.partial and any(verdicts):
        run = _run_all(program, plan, (), MANY_ITEMS, limits, isolation)
        verdicts = _verdicts(plan, run, limits, isolation)
    if None in verdicts:  # asserts about objects of the program's own classes: only its own process can decide them
        plan = replace(plan, tests=tuple(Test(f"assert {test.statement}", decides=True, inside=True)
                                         if verdict is None else test
                                         for test, verdict in zip(plan.tests, verdicts, strict=True)))
        run = _run_all(program, plan, (), FEW_ITEMS, limits, isolation)
        verdicts = _verdicts(plan, run, limits, isolation)
    reason = _bounded(next((verdict for verdict in verdicts if verdict), ""), LONGEST_REASON)
    outputs = first.results[len(first.results) - len(inputs):] if inputs else []
    passed = any(test.decides for test in plan.tests) and not any(verdicts)
    return Outcome(passed, True, tuple(_bounded(_shown(output), LONGEST_OUTPUT) for output in outputs), reason,
                   run.protection, sum(test.inside for test in plan.tests))


def _run_all(program: str, plan: Plan, inputs: Sequence[str], items: int, limits: Limits, isolation: str | None
             ) -> _Run:
    steps = [step for test in plan.tests for step in test.steps] + [("eval", call) for call in inputs]
    return _run(program, plan.prelude, [(*step, {}) for step in steps], plan, items, limits, isolation)
