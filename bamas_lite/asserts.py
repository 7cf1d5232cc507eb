"""Splitting tests into what an untrusted program has to compute and what can be decided without it."""

from __future__ import annotations

import ast
import builtins
import sys
import threading
import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

_warnings_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Test:
    """One statement of a test.

    Attributes:
        statement: its text; of an assert the expression that must be true.
        calls: for an assert: expressions that the program has to compute; their values are V0, V1, ...
        check: for an assert: what must then be true of V0, V1, ...; None for any other statement, which has to run.
        expected: (v,) if the check is just V0 == v with a literal v.
        inside: whether the program's own process decides it, wholly or in part.
    """

    statement: str
    calls: tuple[str, ...] = ()
    check: str | None = None
    expected: tuple[Any, ...] = ()
    inside: bool = False

    @property
    def steps(self) -> list[tuple[str, str]]:
        """What to run in the program's process: (kind, source)."""
        return [("exec", self.statement)] if self.check is None else [("eval", call) for call in self.calls]


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
def split_tests(tests: tuple[str, ...], setup: str, entry_point: str) -> tuple[tuple[Test, ...], str]:
    """The statements of the tests, and what of the set-up holds without the program (imports and definitions)."""
    kept = [node for node in _parse(setup, "setup").body
            if isinstance(node, (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef))]
    names = {name for node in kept for name in ([node.name] if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else [
        (alias.asname or alias.name).partition(".")[0] for alias in node.names])}
    trusted = frozenset(names | sys.stdlib_module_names)
    found: list[Test] = []
    modules: set[str] = set()
    for number, test in enumerate(tests):
        for node in _parse(test, f"tests[{number}]").body:
            if not isinstance(node, ast.Assert):
                found.append(Test(ast.unparse(node), inside=True))
                continue
            statement = ast.unparse(node.test)
            split = _Split(entry_point, trusted)
            check = split.visit(node.test)
            modules |= {n.id for n in ast.walk(check) if isinstance(n, ast.Name)} & sys.stdlib_module_names - names
            found.append(Test(statement, tuple(split.calls), ast.unparse(check), _literal(check), split.inside))
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


def renamed(check: str, number: int) -> str:
    """A check of the values V0, V1, ... as one of V<number>_0, V<number>_1, ..."""
    tree = ast.parse(check, mode="eval")
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id[0] == "V" and node.id[1:].isdigit():
            node.id = f"V{number}_{node.id[1:]}"
    return ast.unparse(tree)
