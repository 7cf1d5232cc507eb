"""Finding the answer in a reply: a number, LaTeX, or a program.

Replies are untrusted: of a long one only the end is read, every pattern takes linear time, and nothing here raises.
"""

from __future__ import annotations

import re
import textwrap
from fractions import Fraction
from functools import lru_cache

TAIL = 20_000
"""Characters that are read, from the end: the answer stands last."""
MAX_DIGITS = 400
"""A longer number, or a power of ten beyond it, is no answer (and would only cost time)."""

_PLAIN = str.maketrans(
    {dash: "-" for dash in "\u2212\u2013\u2012\u2011\ufe63\uff0d"} | {space: "\u2009" for space in "\u00a0\u202f\u2007"}
    | {"\u2014": " ", "\u2044": "/", "\u00d7": "*", "\u00b7": "*", "\uff05": "%", "\u00bd": " 1/2", "\u00bc": " 1/4",
       "\u00be": " 3/4", "\u2153": " 1/3", "\u2154": " 2/3"} | {chr(0xFF10 + digit): str(digit) for digit in range(10)})
_MARKUP = tuple((re.compile(pattern), replacement) for pattern, replacement in (
    (r"(?<=[0-9])\s{0,3}(?=\\[dtc]?frac)", " "),
    (r"\\[dtc]?frac\s{0,3}\{([^{}]{1,60})\}\s{0,3}\{([^{}]{1,60})\}", r"\1/\2"),
    (r"\\[dtc]?frac\s{0,3}([0-9])\s{0,3}([0-9])", r"\1/\2"),
    (r"\\(?:times|cdot)\b", "*"),
    (r"\\[,;:! ]|\{,\}", "\u2009"),
    (r"\\(?:text|mathrm|textbf|mathbf|boldsymbol|mbox)\b", " "),
    (r"\\(?=[$%])", ""),
    (r"\b(?:USD|EUR|GBP|US|CAD|AUD|INR|Rs\.?)(?=\s?[$0-9])", " ")))

_WHOLE = r"[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]{1,3}(?:[ \u2009][0-9]{3})+(?![0-9])|[0-9]+"
_TOKEN = re.compile(rf"""
    (?P<sign>[-+]?) (?:[$\u20ac\u00a3\u00a5\u20b9]\s?)? (?P<sign2>-?) (?P<number>(?:{_WHOLE})(?:\.[0-9]+)?|\.[0-9]+)
    (?: [eE](?P<exponent>[-+]?[0-9]+)(?![0-9A-Za-z])
      | [ ]?[*x][ ]?10[ ]?(?:\^|\*\*)[ ]?[({{]?(?P<power>[-+]?[0-9]+)[)}}]?
      | (?:\^|\*\*)[({{]?(?P<raised>[-+]?[0-9]+)[)}}]?
      | [ ]?/[ ]?(?P<below>[0-9]+(?:\.[0-9]+)?)
      | [ \u2009]?(?:and[ ])?(?P<top>[0-9]+)/(?P<under>[0-9]+) )?""", re.VERBOSE)
# What makes a number part of something else: a name, a range, a date, a time, a list, a root.
_BEFORE = re.compile(r"[A-Za-z_0-9^]$|[0-9)][.,:/]$|[0-9)%]\s?-$|[0-9]\s?(?:-|to)\s$|(?:sqrt\{?|\u221a)$")
_AFTER = re.compile(r"\s?[-/:^]\$?[0-9]|[,.][0-9]|\s?%?\s(?:-|to)\s[$0-9]|[\u00b2\u00b3\u2070-\u2079\u221a]"
                    r"|\s?(?:\\pi|\\sqrt|\u03c0)")

_ANSWER_LINE = re.compile(r"^[ \t>*_]{0,8}####(?!#)([^\n]*)$", re.MULTILINE)
_ANSWER_IS = re.compile(r"\banswer[ \t*_]{0,4}(?:is|are|:|=)[\s:*_]{0,8}", re.IGNORECASE)
_HEADING = re.compile(r"[^0-9$\\]{0,20}[A-Za-z]{4}")
_BOX = re.compile(r"\\(?:boxed|fbox)\s{0,3}(\{|[0-9A-Za-z])")
_DOLLARS = re.compile(r"\$([^$\n]{1,300})\$")
_FENCE = re.compile(r"^[ \t]{0,12}```[ \t]*([A-Za-z0-9_+-]*)[^\n`]*$", re.MULTILINE)
_PROGRAM = re.compile(r"\s*(?:@\w|#|(?:async )?def \w+\(|class \w+[(:]|import \w|from [\w.]+ import |\w+ = )")
_DEFINES = re.compile(r"^[ \t]*(?:def|class) |^\w+ = lambda", re.MULTILINE)


def read_number(text: str) -> Fraction | None:
    """The number that a text states, with or without its unit or currency ("$1,234.50", "2 1/2 cups"), or None.

    After an equals sign it is the right-hand side, else the first number. `50%` is 50, as in GSM8K: the percent sign is
    a unit, which the question fixes. The value is exact; no rounding is forgiven, because no task asks for any.
    """
    numbers = _numbers(text[-TAIL:])
    right = _numbers(text[-TAIL:].rpartition("=")[2])
    return right[0] if len(right) == 1 else numbers[0] if numbers else None


@lru_cache(maxsize=1 << 12)  # the same line is read several times, and the same reply graded under many budgets
def _numbers(text: str) -> tuple[Fraction | None, ...]:
    """Every number of a text in order; None stands for what only looks like one: part of a range, a date, a time."""
    text = text.translate(_PLAIN)
    for pattern, replacement in _MARKUP:
        text = pattern.sub(replacement, text)
    found: list[Fraction | None] = []
    for token in _TOKEN.finditer(text):
        before, after = text[max(0, token.start() - 8):token.start()], text[token.end():token.end() + 8]
        found.append(None if _BEFORE.search(before) or _AFTER.match(after) else _value(token))
    return tuple(found)


def _value(token: re.Match[str]) -> Fraction | None:
    number, below, top, under = token["number"], token["below"], token["top"], token["under"]
    exponent = token["exponent"] or token["power"] or token["raised"] or "0"
    if len(token[0]) > MAX_DIGITS or len(exponent) > 4 or abs(int(exponent)) > MAX_DIGITS:
        return None
    value = Fraction(re.sub(r"[, \u2009]", "", number))
    if token["raised"]:
        value = Fraction(1) if value == 10 else None
        if value is None:
            return None
    divisor = Fraction(below or under or 1)
    if not divisor:
        return None
    value = value / divisor if below else value * Fraction(10) ** int(exponent) + int(top or 0) / divisor
    return -value if (token["sign"] == "-") != (token["sign2"] == "-") else value


def find_number(reply: str) -> Fraction | None:
    r"""The number a reply ends in: the last `#### n` line, else \boxed{n}, else "answer is n", else the last number."""
    text = reply[-TAIL:]
    lines = [line for line in _ANSWER_LINE.findall(text) if _numbers(line) and not _is_heading(line)]
    if lines:
        return read_number(lines[-1])
    if _BOX.search(text):
        return read_number(find_box(text) or "")
    stated = _stated(text)
    if stated and _numbers(stated):
        return read_number(stated.partition(". ")[0])
    readable = [number for number in _numbers(text) if number is not None]
    return readable[-1] if readable else None


def _is_heading(line: str) -> bool:
    """Whether a `####` line is a Markdown heading ("#### Step 3") and no answer ("#### Answer: 3")."""
    return _HEADING.match(line) is not None and "answer" not in line.lower() and "=" not in line


def _stated(text: str) -> str | None:
    """What follows the last "answer is", to the end of its line."""
    ends = [match.end() for match in _ANSWER_IS.finditer(text)]
    return text[ends[-1]:ends[-1] + 300].partition("\n")[0].strip() if ends else None


def find_box(text: str) -> str | None:
    r"""What stands in the last \boxed{...}; None if there is none, or if it was cut off."""
    boxes = list(_BOX.finditer(text))
    if not boxes:
        return None
    start = boxes[-1].end()
    if boxes[-1][1] != "{":
        return boxes[-1][1]
    depth, index = 1, start
    while index < len(text):
        if text[index] == "\\":
            index += 1  # \{ and \} are signs of the answer
        elif text[index] in "{}":
            depth += 1 if text[index] == "{" else -1
            if not depth:
                return text[start:index].strip() or None
        index += 1
    return None


def find_latex(reply: str) -> str | None:
    r"""The LaTeX answer of a reply: the last \boxed{...}, else "answer is ...", else the last $...$ or number."""
    text = reply[-TAIL:]
    if _BOX.search(text):
        return find_box(text)
    stated = _stated(text) or next(iter(_ANSWER_LINE.findall(text)[-1:] or _DOLLARS.findall(text)[-1:]), "")
    if stated.strip(" \t.*$:"):
        inner = _DOLLARS.search(stated)
        return (inner[1] if inner else stated).strip(" \t.*$:") or None
    number = find_number(text)
    return None if number is None else str(number)


def find_program(reply: str) -> str | None:
    """The program of a reply: the last ```python block that defines something, else the last one, else the bare text.

    A block without a language counts if none has one. If the last block was cut off, by max_tokens, there is no answer.
    """
    text = reply[-TAIL:]
    blocks: list[tuple[str, str]] = []
    opened: re.Match[str] | None = None
    for fence in _FENCE.finditer(text):
        if opened is None:
            opened = fence
        elif not fence[1]:
            blocks.append((opened[1].lower(), textwrap.dedent(text[opened.end() + 1:fence.start()])))
            opened = None
    if opened is not None:
        return None
    if not blocks:
        return text if _PROGRAM.match(text) else None
    programs = ([body for language, body in blocks if language in ("python", "py", "python3")]
                or [body for language, body in blocks if not language] or [""])
    program = next((body for body in reversed(programs) if _DEFINES.search(body)), programs[-1])
    return program if program.strip() else None
