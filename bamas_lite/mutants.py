"""Wrong programs by small edits of a right one: the slips that programmers (and LLMs) make.

Only the syntax tree is edited here, nothing is run: whether a mutant is wrong - some are equivalent to the program,
some never end - is for the caller to find out, by running it against the tests.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from typing import Any

import numpy as np

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt), ast.LtE: (ast.Lt, ast.GtE), ast.Gt: (ast.GtE, ast.Lt), ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.FloorDiv, ast.FloorDiv: ast.Mod,
    ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult,
}
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list", "set": "list"}
_METHODS = {"lower": "upper", "upper": "lower", "startswith": "endswith", "endswith": "startswith", "find": "rfind",
            "rfind": "find", "lstrip": "rstrip", "rstrip": "lstrip", "isalpha": "isalnum", "isdigit": "isalnum",
            "isalnum": "isalpha", "append": "extend"}

_Edit = tuple[str, ast.AST, str, Any]
"""(kind of slip, node, field of the node, new value of the field)"""


def mutants(program: str, rng: np.random.Generator) -> Iterator[str]:
    """Different programs, each one edit away from `program`, in random order with the kinds of slips taking turns.

    Comments and layout are those of `ast.unparse`. The same generator state gives the same mutants.

    Raises:
        SyntaxError: `program` is no valid Python.
    """
    tree = ast.parse(program)
    kinds: dict[str, list[_Edit]] = {}
    for edit in _edits(tree):
        kinds.setdefault(edit[0], []).append(edit)
    queues = [[edits[i] for i in rng.permutation(len(edits))] for edits in kinds.values()]
    queues = [queues[i] for i in rng.permutation(len(queues))]
    seen = {ast.unparse(tree)}
    while any(queues):
        for queue in filter(None, queues):
            _, node, field, value = queue.pop()
            right = getattr(node, field)
            setattr(node, field, value)
            try:
                mutant = ast.unparse(tree)
            finally:
                setattr(node, field, right)
            if mutant not in seen:
                seen.add(mutant)
                yield mutant


def _edits(tree: ast.AST) -> Iterator[_Edit]:
    for node in ast.walk(tree):
        yield from _expression_edits(node)
        for field, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                yield from _statement_edits(node, field, value)
            elif isinstance(value, ast.expr) and (shorter := _dropped_step(value)) is not None:
                yield "forgotten step", node, field, shorter


def _expression_edits(node: ast.AST) -> Iterator[_Edit]:
    match node:
        case ast.Compare(ops=ops):
            for i, op in enumerate(ops):
                for other in _COMPARISONS[type(op)]:
                    yield "comparison", node, "ops", [*ops[:i], other(), *ops[i + 1:]]
        case ast.Constant(value=bool() as value):
            yield "constant", node, "value", not value
        case ast.Constant(value=int() as value):
            yield "constant", node, "value", value + 1
            yield "constant", node, "value", value - 1
        case (ast.BinOp(op=op) | ast.AugAssign(op=op)) if type(op) in _OPERATORS:
            yield "operator", node, "op", _OPERATORS[type(op)]()
        case ast.BoolOp(op=op):
            yield "and/or", node, "op", ast.Or() if isinstance(op, ast.And) else ast.And()
        case ast.IfExp(body=body, orelse=orelse):
            yield "branch", node, "test", ast.UnaryOp(ast.Not(), node.test)
            yield "branch", node, "body", orelse
            yield "branch", node, "orelse", body
        case ast.comprehension(ifs=[_, *_]):
            yield "branch", node, "ifs", []
        case ast.Name(id=name, ctx=ast.Load()) if name in _NAMES:
            yield "function", node, "id", _NAMES[name]
        case ast.Attribute(attr=name) if name in _METHODS:
            yield "function", node, "attr", _METHODS[name]
        case ast.Slice():
            for field in ("lower", "upper", "step"):
                if (bound := getattr(node, field)) is not None:
                    yield "bounds", node, field, None
                    if field != "step" and not isinstance(bound, ast.Constant):
                        yield "bounds", node, field, _plus(bound, 1)
                        yield "bounds", node, field, _plus(bound, -1)
        case ast.Call(func=ast.Name(id="range"), args=[*first, stop]) if len(first) < 2:
            yield "bounds", node, "args", [*first, _plus(stop, -1)]
            yield "bounds", node, "args", [*first, _plus(stop, 1)]
            yield "bounds", node, "args", [_plus(first[0], 1) if first else ast.Constant(1), stop]
        case ast.Call(args=args, keywords=keywords):
            for i in range(len(keywords)):
                yield "order", node, "keywords", keywords[:i] + keywords[i + 1:]
            if len(args) == 2 and not any(isinstance(arg, ast.Starred) for arg in args):
                yield "order", node, "args", args[::-1]
        case ast.Return(value=ast.expr()):
            yield "return", node, "value", None


def _statement_edits(node: ast.AST, field: str, body: list[ast.stmt]) -> Iterator[_Edit]:
    for i, statement in enumerate(body):
        before, after = body[:i], body[i + 1:]
        match statement:
            case ast.If(body=then, orelse=otherwise):
                yield "branch", node, field, [*before, *otherwise, *after] or [ast.Pass()]
                yield "branch", node, field, [*before, *then, *after]
            case ast.AugAssign() | ast.Expr(value=ast.Call()):
                yield "forgotten step", node, field, [*before, *after] or [ast.Pass()]
            case ast.Return() if before and isinstance(before[-1], ast.For | ast.While):
                loop = copy.copy(before[-1])
                loop.body = [*loop.body, statement]
                yield "return", node, field, [*before[:-1], loop, statement, *after]
            case ast.Break():
                yield "branch", node, field, [*before, ast.Continue(), *after]
            case ast.Continue():
                yield "branch", node, field, [*before, ast.Break(), *after]


def _dropped_step(value: ast.expr) -> ast.expr | None:
    """`not x` without its not, `-x` without its sign, `x.lower()` without the call; else None."""
    match value:
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            return operand
        case ast.Call(func=ast.Attribute(value=text), args=[], keywords=[]):
            return text
    return None


def _plus(node: ast.expr, amount: int) -> ast.expr:
    """`node` + amount, as a programmer would write it: `n + 1` becomes `n` or `n + 2`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub) and isinstance(node.right, ast.Constant):
        amount += node.right.value if isinstance(node.op, ast.Add) else -node.right.value
        node = node.left
    if amount == 0:
        return node
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return ast.Constant(node.value + amount)
    return ast.BinOp(node, ast.Add() if amount > 0 else ast.Sub(), ast.Constant(abs(amount)))
