"""Splitting tests into what an untrusted program has to compute and what can be decided without it.

What set-up and tests import, define or assign without the program is trusted: it is evaluated where the program is not.
The program's process gets of it only what calls of the program need, after the program was loaded.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import symtable
import sys
import threading
import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

_warnings_lock = threading.Lock()
_Imports = (ast.Import, ast.ImportFrom)
_Definitions = (*_Imports, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_Comprehensions = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True, slots=True)
class Test:
    """One statement of the set-up or of a test.

    Attributes:
        statement: its text; of an assert the expression that must be true.
        calls: for an assert: expressions that the program has to compute; their values are V0, V1, ...
        check: for an assert: what must then be true of V0, V1, ...; None for any other statement.
        expected: (v,) if the check is just V0 == v with a literal v.
        trusted: whether it runs (also) without the program.
        needed: whether it runs (also) in the program's process.
        decides: whether it is a test.
        inside: whether the program's own process decides it, wholly or in part.
        mixed: whether its values may be objects of the program's own classes, so that only that process can decide.
    """

    statement: str
    calls: tuple[str, ...] = ()
    check: str | None = None
    expected: tuple[Any, ...] = ()
    trusted: bool = False
    needed: bool = True
    decides: bool = False
    inside: bool = False
    mixed: bool = False

    @property
    def steps(self) -> list[tuple[str, str]]:
        """What to run in the program's process: (kind, source)."""
        if self.check is None:
            return [("exec", self.statement)] if self.needed else []
        return [("eval", call) for call in self.calls]


@dataclass(frozen=True, slots=True)
class Plan:
    """How to run tests.

    Attributes:
        prelude: imports and classes of the set-up, which the program may use, with what they need.
        imports: modules of the standard library that checks use without importing them.
        own: names that set-up and tests bind: the program cannot rebind them for the tests.
        classes: trusted classes, whose objects may leave the program's process.
        tests: the other statements in their order.
    """

    prelude: str
    imports: str
    own: tuple[str, ...]
    classes: tuple[str, ...]
    tests: tuple[Test, ...]


class _Split(ast.NodeTransformer):
    """Takes out of an expression what the program has to compute."""

    def __init__(self, of_program: Callable[[str], bool], prefix: str = "V") -> None:
        self.of_program, self.prefix = of_program, prefix
        self.calls: list[str] = []
        self.roots: set[str] = set()
        self.inside = False

    @property
    def mixed(self) -> bool:
        """Whether the values may be objects of the program's own classes."""
        return self.inside or len(self.roots) > 1

    def _take(self, source: str) -> ast.expr:
        self.calls.append(source)
        return ast.Name(f"{self.prefix}{len(self.calls) - 1}", ast.Load())

    def _mentions(self, node: ast.AST, targets: Collection[str] = ()) -> bool:
        names = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
        bound = {n.id for n in names if isinstance(n.ctx, ast.Store)} | {n.arg for n in ast.walk(node)
                                                                        if isinstance(n, ast.arg)}
        return any(self.of_program(n.id) for n in names if n.id not in bound and n.id not in targets)

    def visit(self, node: ast.AST) -> Any:
        """Take the longest chain f(...).a[...] that starts at a name of the program."""
        root = node
        while isinstance(root, (ast.Call, ast.Attribute, ast.Subscript)):
            root = root.func if isinstance(root, ast.Call) else root.value
        if isinstance(root, ast.Name) and self.of_program(root.id):
            self.roots.add(root.id)
            return self._take(ast.unparse(node))
        if isinstance(node, ast.Call) and any(
                isinstance(value, (ast.Name, ast.Lambda)) and self._mentions(value)
                for value in [*node.args, *(keyword.value for keyword in node.keywords)]):
            self.inside |= not (isinstance(node.func, ast.Name) and node.func.id in ("map", "filter", "sorted"))
            return self._take(ast.unparse(node))  # functions and classes cannot leave the process
        if isinstance(node, (*_Comprehensions, ast.Lambda)) and self._mentions(node):
            return self._unroll(node)
        return self.generic_visit(node)

    def _unroll(self, node: Any) -> ast.expr:
        """Let the program compute the calls in a comprehension, for each turn; what is made of them stays outside."""
        source = ast.unparse(node)
        generators = [] if isinstance(node, ast.Lambda) else node.generators
        targets = sorted({n.id for generator in generators for n in ast.walk(generator.target)
                          if isinstance(n, ast.Name)})
        own_items = len(generators) == 1 and self._mentions(generators[0].iter)
        if not generators or any(isinstance(n, (ast.NamedExpr, ast.Lambda, ast.Await)) for n in ast.walk(node)) or (
                not own_items and any(self._mentions(generator.iter, targets) for generator in generators)):
            self.inside = True
            return self._take(source)
        split = _Split(lambda name: own_items if name in targets else self.of_program(name),
                       f"{self.prefix}{len(self.calls)}_")
        conditions = [condition for generator in generators for condition in generator.ifs]
        late = [c for c in conditions if own_items or self._mentions(c, targets)]
        for generator in generators:
            generator.ifs = [c for c in generator.ifs if c not in late]
        turns = "".join(map(ast.unparse, generators))
        late = [split.visit(c) for c in late]
        for field in ("elt", "key", "value"):
            if hasattr(node, field):
                setattr(node, field, split.visit(getattr(node, field)))
        self.inside |= split.inside
        self.roots |= split.roots - set(targets)
        values = self._take(f"[{_tuple(split.calls)}{turns}]").id
        got = _tuple([f"{split.prefix}{number}" for number in range(len(split.calls))])
        over = f"for {got} in {values}" if own_items else (
            f"for {_tuple(targets)}, {got} in zip([{_tuple(targets)}{turns}], {values}, strict=True)")
        node.generators = ast.parse(f"[0 {over}]", mode="eval").body.generators
        node.generators[0].ifs = late
        return node


def _tuple(parts: list[str]) -> str:
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def _names(node: ast.stmt) -> tuple[set[str], set[str]]:
    """The names of the module that a statement reads, and those that it binds or may change."""
    read: set[str] = set()
    bound: set[str] = set()

    def look(scope: symtable.SymbolTable, top: bool) -> None:
        for symbol in scope.get_symbols():
            if top or symbol.is_global():
                read.update([symbol.get_name()] if symbol.is_referenced() else [])
                bound.update([symbol.get_name()] if symbol.is_assigned() or symbol.is_imported() else [])
        for child in scope.get_children():
            look(child, False)

    look(symtable.symtable(ast.unparse(node), "<test>", "exec"), True)
    if isinstance(node, ast.ImportFrom) and node.names[0].name == "*" and node.module in sys.stdlib_module_names:
        bound |= {name for name in dir(importlib.import_module(node.module)) if name[0] != "_"}
    if isinstance(node, ast.AugAssign):
        read |= bound
    if isinstance(node, _Definitions):
        read -= bound
    return read, bound


def _changed(node: ast.stmt) -> set[str]:
    """Names of objects that a statement may change without binding them: `data.append(1)`, `data[0] = 1`."""
    parts = [n for n in ast.walk(node) if n is node and isinstance(n, ast.Expr)
             or isinstance(n, (ast.Attribute, ast.Subscript)) and isinstance(n.ctx, ast.Store)]
    return {n.id for part in parts
            for n in ast.walk(part) if isinstance(n, ast.Name)}


@lru_cache(maxsize=4096)
def split_tests(tests: tuple[str, ...], setup: str, entry_point: str, inputs: tuple[str, ...] = ()) -> Plan:
    """Plan the tests of a program, and the evaluation of inputs (call expressions) after the same set-up.

    Raises:
        ValueError: a test or the set-up is no Python.
    """
    nodes = [(node, False) for node in _parse(setup, "setup").body] + [
        (node, True) for number, test in enumerate(tests) for node in _parse(test, f"tests[{number}]").body]
    names = [_names(node) for node, _ in nodes]
    statements = [(node, read, bound) for (node, _), (read, bound) in zip(nodes, names, strict=True)
                  if not isinstance(node, ast.Assert)]
    trusted = {name for _, _, bound in statements for name in bound}
    variables = {name for node, _, bound in statements if not isinstance(node, _Definitions) for name in bound}

    def of_program(name: str) -> bool:
        return name == entry_point or not (name in trusted or name in sys.stdlib_module_names
                                           or hasattr(builtins, name))

    before = None
    while before != (before := frozenset(trusted)):  # what uses the program is the program's, and so is what uses that
        for node, read, bound in statements:
            if any(map(of_program, read)):  # `f(data)` as a statement is there to change data
                trusted -= bound | (read & variables if isinstance(node, ast.Expr) else set())
    found: list[Test] = []
    used = {name for call in inputs for name in _read(call)}
    modules: set[str] = set()
    for (node, is_test), (read, _) in zip(nodes, names, strict=True):
        if is_test and isinstance(node, ast.Assert):
            statement = ast.unparse(node.test)
            split = _Split(of_program)
            check = split.visit(node.test)
            modules |= {n.id for n in ast.walk(check) if isinstance(n, ast.Name)} & sys.stdlib_module_names - trusted
            used |= {name for call in (*split.calls, *([statement] if split.mixed else [])) for name in _read(call)}
            found.append(Test(statement, tuple(split.calls), ast.unparse(check), _literal(check), decides=True,
                              inside=split.inside, mixed=split.mixed))
            continue
        free = not any(map(of_program, read))
        used |= set() if free else read
        simple = isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, *_Definitions))
        found.append(Test(ast.unparse(node), trusted=free, needed=not free, decides=is_test and not free,
                          inside=is_test and not (free or simple)))
    own = {name for _, _, bound in statements for name in bound} - {entry_point}
    touches = [(number, read, bound | _changed(node)) for number, ((node, _), (read, bound))
               in enumerate(zip(nodes, names, strict=True)) if found[number].trusted]
    shown = {number for number, _, _ in touches if not nodes[number][1]
             and isinstance(nodes[number][0], (*_Imports, ast.ClassDef))}
    shown |= _needed(touches, {name for number in shown for name in names[number][0]})
    needed = _needed(touches, used)
    return Plan("\n".join(found[number].statement for number in sorted(shown)),
                "\n".join(f"import {name}" for name in sorted(modules)), tuple(sorted(own)),
                tuple(node.name for (node, _), test in zip(nodes, found, strict=True)
                      if test.trusted and isinstance(node, ast.ClassDef)),
                tuple(replace(test, needed=test.needed or number in needed) for number, test in enumerate(found)
                      if number not in shown))


def _needed(touches: list[tuple[int, set[str], set[str]]], used: set[str]) -> set[int]:
    """The numbers of the statements that give the names in `used` their values."""
    numbers: set[int] = set()
    while more := {number for number, _, bound in touches if not used.isdisjoint(bound)} - numbers:
        numbers |= more
        used = used.union(*(read for number, read, _ in touches if number in more))
    return numbers


def _read(expression: str) -> set[str]:
    """Names in an expression; one that is broken fails when it runs."""
    try:
        return {n.id for n in ast.walk(ast.parse(expression, mode="eval")) if isinstance(n, ast.Name)}
    except (SyntaxError, ValueError):
        return set()


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
