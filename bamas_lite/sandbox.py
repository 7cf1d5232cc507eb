"""Running untrusted Python: its own process computes values, and the verdict is reached outside it.

A program never meets the expected values of its tests. Each assert is split: what the program has to compute (`f(2)` in
`assert f(2) == 4`) is evaluated in its process and comes back as plain data; what remains (`V0 == 4`) is evaluated
without the program. So a program that exits early, prints a verdict, patches the interpreter, searches the memory or
returns an object that equals everything gains nothing. How the process is kept away from files, network and keys:
`isolation.py`.
"""

from __future__ import annotations

import ast
import builtins
import json
import secrets
import sys
import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from bamas_lite.isolation import run_job
from bamas_lite.jail.values import decode

COMPARED_HERE = 1 << 16
"""Bytes of results up to which plain comparisons are made here; more are compared in the sandbox, under its limits."""

_warnings_lock = threading.Lock()


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


@dataclass(frozen=True, slots=True)
class _Test:
    """One statement of a test; an assert is `calls` for the program and a `check` of their values V0, V1, ..."""

    statement: str
    calls: tuple[str, ...] = ()
    check: str | None = None
    expected: tuple[Any, ...] = ()  # the value v if the check is V0 == v, so that it can be made here
    inside: bool = False


class _Split(ast.NodeTransformer):
    """Takes out of an expression what the program has to compute."""

    def __init__(self, entry_point: str, trusted: frozenset[str]) -> None:
        self.entry_point, self.trusted = entry_point, trusted
        self.calls: list[str] = []
        self.inside = False

    def _of_program(self, name: str) -> bool:
        return name == self.entry_point or not (name in self.trusted or hasattr(builtins, name))

    def _take(self, node: ast.expr) -> ast.expr:
        self.calls.append(ast.unparse(node))
        return ast.Name(f"V{len(self.calls) - 1}", ast.Load())

    def visit(self, node: ast.AST) -> Any:
        """Take the longest chain f(...).a[...] that starts at a name of the program, or a comprehension with one."""
        root = node
        while isinstance(root, (ast.Call, ast.Attribute, ast.Subscript)):
            root = root.func if isinstance(root, ast.Call) else root.value
        if isinstance(root, ast.Name) and self._of_program(root.id):
            return self._take(node)
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)):
            names = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
            bound = {n.id for n in names if isinstance(n.ctx, ast.Store)} | {n.arg for n in ast.walk(node)
                                                                            if isinstance(n, ast.arg)}
            if any(self._of_program(n.id) for n in names if n.id not in bound):
                self.inside = True
                return self._take(node)
            return node
        return self.generic_visit(node)


@lru_cache(maxsize=4096)
def _split(tests: tuple[str, ...], setup: str, entry_point: str) -> tuple[tuple[_Test, ...], str]:
    """The statements of the tests, and what of the set-up holds without the program (imports and definitions)."""
    kept = [node for node in _parse(setup, "setup").body
            if isinstance(node, (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef))]
    names = {name for node in kept for name in ([node.name] if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else [
        (alias.asname or alias.name).partition(".")[0] for alias in node.names])}
    trusted = frozenset(names | sys.stdlib_module_names)
    found: list[_Test] = []
    modules: set[str] = set()
    for number, test in enumerate(tests):
        for node in _parse(test, f"tests[{number}]").body:
            statement = ast.unparse(node)
            if not isinstance(node, ast.Assert):
                found.append(_Test(statement, inside=True))
                continue
            split = _Split(entry_point, trusted)
            check = split.visit(node.test)
            modules |= {n.id for n in ast.walk(check) if isinstance(n, ast.Name)} & sys.stdlib_module_names - names
            found.append(_Test(ast.unparse(ast.parse(statement).body[0].test), tuple(split.calls), ast.unparse(check),
                               _literal(check), split.inside))
    imports = [ast.Import([ast.alias(name)]) for name in sorted(modules)]
    return tuple(found), ast.unparse(ast.Module([*imports, *kept], []))


def _parse(source: str, field: str) -> ast.Module:
    try:
        with _warnings_lock, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a published test may hold an odd escape such as "\\d"
            return ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"{field} = {source[:80]!r}: expected Python statements ({error})") from None


def _literal(check: ast.expr) -> tuple[Any, ...]:
    if isinstance(check, ast.Compare) and isinstance(check.left, ast.Name) and len(check.ops) == 1 and (
            check.left.id == "V0" and isinstance(check.ops[0], ast.Eq)):
        try:
            return (ast.literal_eval(check.comparators[0]),)
        except (ValueError, TypeError):
            pass
    return ()


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


def _verdicts(tests: Sequence[_Test], run: _Run, trusted_setup: str, limits: Limits, isolation: str | None
              ) -> list[str | None]:
    """For each test "" if it holds, why it does not, or None if its values cannot leave the process."""
    verdicts: list[str | None] = []
    pending: list[tuple[int, str]] = []
    values: dict[str, Any] = {}
    results = iter(run.results)
    for number, test in enumerate(tests):
        got = [next(results, None) for _ in (test.calls if test.check is not None else (test.statement,))]
        verdict: str | None = ""
        if None in got:
            verdict = run.stopped
        elif errors := [index for index, result in enumerate(got) if result[0] != "value"]:
            first = got[errors[0]]
            source = test.calls[errors[0]] if test.check is not None else test.statement
            opaque = first[0] == "opaque" and len(test.calls) > 1
            verdict = None if opaque else f"{source[:120]} -> {_shown(first, message=True)}"
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
        steps = [("truth", _renamed(check, number)) for number, check in pending]
        checked = _run("", trusted_setup, steps, limits, isolation, values)
        for index, (number, _) in enumerate(pending):
            holds = index < len(checked.results) and checked.results[index] == ["value", True]
            verdicts[number] = "" if holds else f"not true: {tests[number].statement[:200]}"
    return verdicts


def _renamed(check: str, number: int) -> str:
    tree = ast.parse(check, mode="eval")
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id[0] == "V" and node.id[1:].isdigit():
            node.id = f"V{number}_{node.id[1:]}"
    return ast.unparse(tree)


def run_python(program: str, *, tests: Sequence[str] = (), setup: str = "", inputs: Sequence[str] = (),
               entry_point: str = "", limits: Limits | None = None, isolation: str | None = None) -> Outcome:
    """Run a program on tests and on inputs, isolated as well as the system allows.

    Args:
        program: untrusted Python source.
        tests: assert statements (trusted), each with what it needs; hidden from the program.
        setup: statements (trusted) that the tests need; they run before the program, or after it if they need it.
        inputs: call expressions whose values are wanted.
        entry_point: the function that the program has to define.
        limits: what it may use.
        isolation: one of `isolation.WAYS`; None takes the first that works here.

    Raises:
        ValueError: a test or the set-up is no Python.
        IsolationError: the sandbox cannot be started.
    """
    limits = limits or Limits()
    split, trusted_setup = _split(tuple(tests), setup, entry_point)
    steps = [step for test in split for step in ([("eval", call) for call in test.calls] if test.check is not None else
                                                 [("exec", test.statement)])]
    run = _run(program, setup, [*steps, *(("eval", call) for call in inputs)], limits, isolation)
    outputs = tuple(map(_shown, run.results[len(steps):]))
    if not run.loaded:
        return Outcome(False, False, (), run.stopped, run.protection)
    verdicts = _verdicts(split, run, trusted_setup, limits, isolation)
    inside = sum(test.inside for test in split)
    if None in verdicts:  # asserts about objects of the program's own classes: only its own process can decide them
        again = [_Test(test.statement, (test.statement,), "V0", inside=True) if verdict is None else test
                 for test, verdict in zip(split, verdicts, strict=True)]
        inside += verdicts.count(None)
        steps = [(("truth" if test.check == "V0" else "eval"), call) for test in again for call in test.calls]
        verdicts = _verdicts(again, _run(program, setup, steps, limits, isolation), trusted_setup, limits, isolation)
    reason = next((verdict for verdict in verdicts if verdict), "")
    return Outcome(bool(split) and not reason, True, outputs, reason, run.protection, inside)
