"""Telling plain LaTeX answers apart by their values: far cheaper than reading them with math-verify.

Two expressions that differ at a point are not equal, and math-verify, which simplifies their difference, comes to the
same verdict. Only what has one meaning is read: numbers, the variables x, y and z, e and pi, signs, powers, fractions,
square roots, products, ln, sin, cos and tan of something in brackets; and sets or tuples of these. All else is left to
math-verify, which has rules of its own (units, percent, mixed numbers, intervals, words, other letters).
"""

from __future__ import annotations

import math
import re
from functools import lru_cache

_TOKEN = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)|\\(?P<name>frac|sqrt|cdot|times|pi|ln|sin|cos|tan)(?![a-zA-Z])"
                    r"|(?:\\left\s*|\\right\s*)?(?P<bracket>[()]|\\[{}])|(?P<sign>[-+^{},xyze])|\s+")
_POINTS = ({"x": 0.7310585786, "y": 1.2490457724, "z": 0.4812118251, "e": math.e},
           {"x": 1.6180339887, "y": 0.5671432904, "z": 1.1447298858, "e": math.e})
_FUNCTIONS = {"ln": math.log, "sin": math.sin, "cos": math.cos, "tan": math.tan}
_LONGEST, _LARGEST = 200, 1e9
_CLOSE = 1e-4
"""Relative; math-verify takes decimal numbers for equal when they agree to six places."""

Values = tuple[float, float]
"""Of an expression, at the two points."""


class _OtherError(Exception):
    """Not what is read here."""


def surely_differ(one: str, other: str) -> bool:
    """Whether both answers are read here, are of one kind, and have different values; False says nothing."""
    a, b = _read(one), _read(other)
    if a is None or b is None or a[0] != b[0]:
        return False
    if a[0] == "set":
        return any(all(_apart(x, y) for y in b[1]) for x in a[1])
    return len(a[1]) == len(b[1]) and any(map(_apart, a[1], b[1]))


def _apart(a: Values, b: Values) -> bool:
    return all(abs(x - y) > _CLOSE * max(1.0, abs(x), abs(y)) for x, y in zip(a, b, strict=True))


@lru_cache(maxsize=1 << 12)
def _read(latex: str) -> tuple[str, list[Values]] | None:
    """The kind of an answer ("one", "set" or "tuple") and the values of its members; None if it is not read here."""
    try:
        kind, parts = _members(_tokens(latex))
        values = [tuple(_Reader(part, point).all() for point in _POINTS) for part in parts]
    except (_OtherError, ArithmeticError, ValueError):
        return None
    return (kind, values) if all(abs(x) < _LARGEST for pair in values for x in pair) else None


def _tokens(latex: str) -> list[str]:
    if len(latex) > _LONGEST:
        raise _OtherError
    tokens, place = [], 0
    while place < len(latex):
        found = _TOKEN.match(latex, place)
        if not found:
            raise _OtherError
        place = found.end()
        if found.lastgroup:
            tokens.append(found[found.lastgroup])
    return tokens


def _members(tokens: list[str]) -> tuple[str, list[list[str]]]:
    """The kind of an answer, and the tokens of each member. A pair in parentheses may be an interval: not read."""
    if "," not in tokens and "\\{" not in tokens:
        return "one", [tokens]
    ends = tokens[0], tokens[-1]
    kind = "set" if ends == ("\\{", "\\}") else "tuple" if ends == ("(", ")") else ""
    parts, depth = [[]], 0
    for token in tokens[1:-1]:
        depth += (token in "({") - (token in ")}")
        if token == "," and not depth:
            parts.append([])
        else:
            parts[-1].append(token)
    if not kind or depth or (kind == "tuple" and len(parts) < 3):
        raise _OtherError
    return kind, parts


class _Reader:
    """Evaluates tokens at a point, by recursive descent."""

    def __init__(self, tokens: list[str], point: dict[str, float]) -> None:
        self.tokens, self.point, self.place = [*tokens, ""], point, 0

    @property
    def next(self) -> str:
        return self.tokens[self.place]

    def take(self, *allowed: str) -> str:
        token = self.next
        if allowed and token not in allowed:
            raise _OtherError
        self.place += 1
        return token

    def all(self) -> float:
        value = self.sum()
        self.take("")
        return value

    def sum(self) -> float:
        sign = self.take() if self.next in ("-", "+") else "+"
        value = 0.0
        while True:
            value += self.product() if sign == "+" else -self.product()
            if self.next not in ("-", "+"):
                return value
            sign = self.take()

    def product(self) -> float:
        value, start = 1.0, self.place
        while True:
            place, first = self.place, self.next
            value *= self.power()
            token = self.next
            last = token in ("", "-", "+", ")", "}")
            a_number = first == "(" and self.tokens[place + 2] == ")" and self.tokens[place + 1][0].isdigit()
            alone = last and place == start
            if (a_number and not alone) or (first == "e" and not last and self.place == place + 1):
                raise _OtherError  # math-verify reads 10(2) as 12, and "e x" as a unit
            if last:
                return value
            if first in _FUNCTIONS:
                raise _OtherError  # math-verify takes what follows into the argument
            if token in ("cdot", "times"):
                self.take()
            elif (token[0].isdigit() or (token == "frac" and first[0].isdigit())
                  or (token == "(" and first in ("x", "y", "z", "e", "pi"))):
                raise _OtherError  # x2, a mixed number, or a function x

    def power(self) -> float:
        first, base = self.next, self.atom()
        if self.next != "^":
            return base
        if first in _FUNCTIONS:
            raise _OtherError
        self.take()
        exponent = self.group("{", "}") if self.next == "{" else self.atom(single=True)
        if self.next == "^" or (base < 0 and exponent != round(exponent)):
            raise _OtherError
        return base**exponent

    def atom(self, single: bool = False) -> float:
        """A number, name, group or function; `single`: one sign only, as behind ^ without braces."""
        token = self.take()
        if token and token[0].isdigit() and not (single and len(token) > 1):
            return float(token)
        if token in self.point and not (single and token == "e"):
            return self.point[token]
        if token == "pi":
            return math.pi
        self.place -= 1
        if single:
            raise _OtherError
        if token == "(":
            return self.group("(", ")")
        self.take("frac", "sqrt", *_FUNCTIONS)
        if token == "frac":
            above = self.group("{", "}")
            return above / self.group("{", "}")
        if token == "sqrt":
            return math.sqrt(self.group("{", "}"))
        return _FUNCTIONS[token](self.group("{", "}") if self.next == "{" else self.group("(", ")"))

    def group(self, opens: str, closes: str) -> float:
        self.take(opens)
        value = self.sum()
        self.take(closes)
        return value
