"""Signs of trouble in a reply to a word problem that need neither the reference nor another reply.

A reply that breaks off, holds no answer, or states arithmetic that does not hold is worth a second opinion. Arithmetic
is checked exactly: `3 * 4 = 12`, and GSM8K's calculator annotations `<<3*4=12>>`, of which only the sides matter.
"""

from __future__ import annotations

import re
from fractions import Fraction

from bamas_lite.answers import find_number

SIGNALS = ("broken off", "no answer", "annotation", "arithmetic", "no answer line")
"""Names of the signals, in the order in which `signals` looks for them."""

_NUMBER = r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)?(?:\.[0-9]+)?"
_TOKEN = re.compile(rf"\s*(?:\$?(?P<number>(?=[.0-9]){_NUMBER})|(?P<sign>[-+*/x\u00d7()]))")
_ANNOTATION = re.compile(r"<<([^<>\n=]{1,120})=([^<>\n=]{1,60})>>")
_EQUATION = re.compile(r"(?<![0-9.,$])(\(?\$?[0-9.](?:[-0-9$()+*/x\u00d7 ]|[.,](?=[0-9])){0,120}?)\s?=\s?"
                       r"(?=(\$?-?\$?[0-9][0-9,]*(?:\.[0-9]+)?))")
_CALCULATION = re.compile(r"[0-9)]\s?[-+*/x\u00d7]")
_PARTS = frozenset("+-*/x\u00d7(%^=")
_ANSWER_LINE = re.compile(r"^\s{0,3}####\s?[^\n]*[0-9]", re.MULTILINE)
_CLOSED = (".", "!", "?", ")", "*", "\"")
MOST_DEPTH = 20


def value(expression: str) -> Fraction | None:
    """The exact value of a plain calculation such as "3 * ($4.50 + 1)"; None if it is none, or divides by zero."""
    tokens: list[str] = []
    position, text = 0, expression.strip()
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None or token.end() == position:
            return None
        tokens.append(token["number"] or token["sign"])
        position = token.end()
    try:
        result, rest = _sum(tokens, 0)
    except (_NoCalculationError, ZeroDivisionError):
        return None
    return result if rest == len(tokens) else None


class _NoCalculationError(Exception):
    pass


def _sum(tokens: list[str], at: int, depth: int = 0) -> tuple[Fraction, int]:
    total, at = _product(tokens, at, depth)
    while at < len(tokens) and tokens[at] in "+-":
        sign = tokens[at]
        term, at = _product(tokens, at + 1, depth)
        total = total + term if sign == "+" else total - term
    return total, at


def _product(tokens: list[str], at: int, depth: int) -> tuple[Fraction, int]:
    result, at = _factor(tokens, at, depth)
    while at < len(tokens) and tokens[at] in "*x\u00d7/":
        sign = tokens[at]
        factor, at = _factor(tokens, at + 1, depth)
        result = result / factor if sign == "/" else result * factor
    return result, at


def _factor(tokens: list[str], at: int, depth: int) -> tuple[Fraction, int]:
    if at >= len(tokens) or depth > MOST_DEPTH:
        raise _NoCalculationError
    if tokens[at] == "-":
        number, at = _factor(tokens, at + 1, depth + 1)
        return -number, at
    if tokens[at] == "(":
        number, at = _sum(tokens, at + 1, depth + 1)
        if at >= len(tokens) or tokens[at] != ")":
            raise _NoCalculationError
        return number, at + 1
    if tokens[at] in "+*x\u00d7/)":
        raise _NoCalculationError
    return Fraction(tokens[at].replace(",", "")), at + 1


def holds(left: str, right: str) -> bool | None:
    """Whether the calculations are equal, the right one perhaps rounded to the decimals it shows; None: unreadable.

    1/3 = 0.33 holds; 7/2 = 3 does not: a whole number shows no decimals to which it could have been rounded.
    """
    one, other = value(left), value(right)
    if one is None or other is None:
        return None
    decimals = len(right.strip().partition(".")[2]) if re.fullmatch(r"\s*\$?-?[0-9,]*\.[0-9]+\s*", right) else 0
    return one == other or (decimals > 0 and abs(one - other) <= Fraction(1, 2 * 10**decimals))


def annotations(reply: str) -> list[bool]:
    """Whether each calculator annotation that can be read holds."""
    return [found for left, right in _ANNOTATION.findall(reply) if (found := holds(left, right)) is not None]


def equations(reply: str) -> list[bool]:
    """Whether each equation `calculation = number` in the text holds; those with units or names are passed over."""
    text = re.sub(r"<<[^<>\n]*>>", "", reply).replace("\\*", "*")
    found = []
    for equation in _EQUATION.finditer(text):
        left, right = equation[1], equation[2].rstrip(",")
        before, after = text[:equation.start()].rstrip()[-1:], text[equation.end() + len(right):].lstrip()[:1]
        if before in _PARTS or after in _PARTS - {"="} or not _CALCULATION.search(left):
            continue   # only a part of a longer calculation, or none
        if (verdict := holds(left, right)) is not None:
            found.append(verdict)
    return found


def signals(reply: str) -> tuple[str, ...]:
    """The signals of SIGNALS that a reply gives; none for a reply in good order."""
    ended = bool(_ANSWER_LINE.search(reply)) or reply.rstrip().endswith(_CLOSED)
    found = (reply.rfind("<<") > reply.rfind(">>") or not ended,
             find_number(reply) is None,
             not all(annotations(reply)),
             not all(equations(reply)),
             not _ANSWER_LINE.search(reply))
    return tuple(name for name, given in zip(SIGNALS, found, strict=True) if given)
