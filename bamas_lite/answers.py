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

FULL_WIDTH = {0xFF01 + offset: 0x21 + offset for offset in range(94)}
"""For str.translate: the full-width forms of the ASCII signs as those signs."""
_PLAIN = str.maketrans(
    FULL_WIDTH | {dash: "-" for dash in "\u2212\u2013\u2012\u2011\ufe63"}
    | {space: "\u2009" for space in "\u00a0\u202f\u2007"}
    | {"\u2014": " ", "\u2044": "/", "\u00d7": "*", "\u00b7": "*", "\u00bd": " 1/2", "\u00bc": " 1/4",
       "\u00be": " 3/4", "\u2153": " 1/3", "\u2154": " 2/3", "\u2019": "'", "\u2192": "=", "\u21d2": "="})
_MARKUP = tuple((re.compile(pattern, re.IGNORECASE), replacement) for pattern, replacement in (
    (r"~~[^~\n]{1,200}~~|<(s|del|strike)>[^<\n]{0,200}</\1>|<<[^<>\n]{0,100}>>", " "),  # struck out; GSM8K's calculator
    (r"</?[a-z][^<>\n]{0,40}>", " "),
    (r"[=-]>|\\(?:to|implies|rightarrow)\b", "="),
    (r"<=|\\leq?\b", "\u2264"),
    (r">=|\\geq?\b", "\u2265"),
    (r"\bnot\s[^.\n]{1,40}?\bbut\b", " "),
    (r"(?<![0-9]\s)\b(?:minus|negative)\s(?=[$\u20ac\u00a3]?\s?[0-9])", "-"),
    (r"(\$\s?[0-9,]{1,20}|\b[0-9,]{1,20}(?= dollars?))(?: dollars?)?,?(?: and)? ([0-9]{1,2}) cents?\b",
     lambda sum_: f"{sum_[1]}.{int(sum_[2]):02}"),
    (r"(?<=[0-9])\s{0,3}(?=\\[dtc]?frac)", " "),
    (r"\\[dtc]?frac\s{0,3}\{([^{}]{1,60})\}\s{0,3}\{([^{}]{1,60})\}", r"\1/\2"),
    (r"\\[dtc]?frac\s{0,3}([0-9])\s{0,3}([0-9])", r"\1/\2"),
    (r"\\(?:times|cdot)\b", "*"),
    (r"\\!", ""),
    (r"\\[,;: ]|\{,\}", "\u2009"),
    (r"\\(?:text|mathrm|textbf|mathbf|boldsymbol|mbox)\b", " "),
    (r"\\(?=[$%])", ""),
    (r"\b(?-i:USD|EUR|GBP|US|CAD|AUD|INR|Rs\.?)(?=\s?[$0-9])", " ")))

_WHOLE = r"[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]{1,3}(?:[ \u2009'][0-9]{3})+(?![0-9])|[0-9]+"
_SCALES = {"k": 10**3, "dozen": 12, "hundred": 100, "thousand": 10**3, "million": 10**6, "mn": 10**6,
           "billion": 10**9, "bn": 10**9, "trillion": 10**12}
_TOKEN = re.compile(rf"""
    (?P<sign>[-+]?) (?:[$\u20ac\u00a3\u00a5\u20b9]\s?)? (?P<sign2>-?) (?P<number>(?:{_WHOLE})(?:\.[0-9]+)?|\.[0-9]+)
    (?: [eE](?P<exponent>[-+]?[0-9]+)(?![0-9A-Za-z])
      | [ ]?[*x][ ]?10[ ]?(?:\^|\*\*)[ ]?[({{]?(?P<power>[-+]?[0-9]+)[)}}]?
      | (?:\^|\*\*)[({{]?(?P<raised>[-+]?[0-9]+)[)}}]?
      | [ ]?/[ ]?(?P<below>[0-9]+(?:\.[0-9]+)?)
      | [ \u2009]?(?:and[ ])?(?P<top>[0-9]+)/(?P<under>[0-9]+) )?
    (?: (?P<scale>[kK]|[ -]?(?i:mn|bn|dozen|hundred|thousand|million|billion|trillion))\b )?""", re.VERBOSE)
# What makes a number part of something else: a name, a bound, a range, a date, a time, a list, a root, millions.
_NAME = re.compile(r"[A-Za-z_^]\{?$")
_BEFORE = re.compile(r"[A-Za-z_0-9^]$|\^\{$|[0-9)][.,:/']$|[0-9)%]\s?-$|[0-9]\s?(?:-|to)\s$|(?:sqrt\{?|\u221a)$"
                     r"|[<>\u2264\u2265]\s?$|\b[Nn]ot\s$")
_AFTER = re.compile(r"\s?[-/:^]\$?[0-9]|[,._'][0-9]|[MBT]\b|\s?%?\s(?:-|to)\s[$0-9]|[\u00b2\u00b3\u2070-\u2079\u221a]"
                    r"|\s?(?:\\pi|\\sqrt|\u03c0)|\s?[-+]\s?(?!a\b)[a-z]\b(?!\.\w)")

_ANSWER_LINE = re.compile(r"^[ \t>*_]{0,8}####(?!#)([^\n]*)$", re.MULTILINE)
_ANSWER_IS = re.compile(r"\banswer[ \t*_]{0,4}(?:is|are|:|=)[\s:*_]{0,8}", re.IGNORECASE)
# What a further number may follow on an answer line: it tells about the answer, and is no second one.
_ASIDE = re.compile(r"""(?![^(\[]*\bor\b) (?:(?!\b(?:and|plus)\b)[^+*:/(\[;.])*?
    (?: [(\[](?!\s*or\b) | \.\s | \b(?:per|every|each|in|within|at|on|over|under|for|of|from|with|than|after|before
      |until|when|while|as|if|because|since|which|that|where)\b )""", re.VERBOSE | re.IGNORECASE)
_HEADING = re.compile(r"[^0-9$\\]{0,20}[A-Za-z]{4}")
_BOX = re.compile(r"\\(?:boxed|fbox)\s{0,3}(\{|[0-9A-Za-z])")
_DOLLARS = re.compile(r"\$([^$\n]{1,300})\$")
_FENCE = re.compile(r"^[ \t]{0,12}```[ \t]*([A-Za-z0-9_+-]*)[^\n`]*$", re.MULTILINE)
_PROGRAM = re.compile(r"\s*(?:@\w|#|(?:async )?def \w+\(|class \w+[(:]|import \w|from [\w.]+ import |\w+ = )")
_DEFINES = re.compile(r"^[ \t]*(?:def|class) |^\w+ = lambda", re.MULTILINE)


def read_number(text: str) -> Fraction | None:
    """The number that a text states, with or without its unit or currency ("$1,234.50", "2 1/2 cups"), or None.

    After an equals sign it is the right-hand side. Scale words belong to the number ("1.5 million", "18k", "2 dozen"),
    their plurals are units ("2 dozens"), for questions that ask for dozens.
    Further numbers must be asides ("18 dollars per 2 hours"): "18 or 20", "3 + 6", "18 apples and 3 pears" and
    "7 hours 30 minutes" state no one number. `50%` is 50, as in GSM8K: the percent sign is a unit, which the question
    fixes. The value is exact; no rounding is forgiven, because no task asks for any.
    """
    sides = [side for side in prepared(text[-TAIL:]).split("=") if _numbers(side)]
    if not sides:
        return None
    right = _quantity(sides[-1])
    return _quantity(sides[0]) if right is None else right  # 12 = 3 * 4


def plain_number(text: str) -> Fraction | None:
    """The exact value of a text that is one number and nothing else (LaTeX fractions too), or None."""
    token = _TOKEN.fullmatch(prepared(text[-TAIL:]).strip())
    return None if token is None else _value(token)


def _quantity(text: str) -> Fraction | None:
    """The first number of a prepared text, unless another one beside it makes it no answer."""
    found = _numbers(text)
    for value, start, _ in found[1:]:
        between = text[found[0][2]:start]
        if _ASIDE.match(between):
            break
        if value != found[0][0] and not _NAME.search(text[max(0, start - 2):start]):
            return None
    return found[0][0]


@lru_cache(maxsize=1 << 12)  # the same line is read several times, and the same reply graded under many budgets
def prepared(text: str) -> str:
    """A text without typography and markup: dashes, arrows, LaTeX and struck-out parts made plain."""
    text = text.translate(_PLAIN)
    for pattern, replacement in _MARKUP:
        text = pattern.sub(replacement, text)
    return text


@lru_cache(maxsize=1 << 12)
def _numbers(text: str) -> tuple[tuple[Fraction | None, int, int], ...]:
    """Every number of a prepared text with its start and end; None stands for what only looks like a number."""
    found: list[tuple[Fraction | None, int, int]] = []
    for token in _TOKEN.finditer(text):
        before, after = text[max(0, token.start() - 8):token.start()], text[token.end():token.end() + 8]
        part = _BEFORE.search(before) or _AFTER.match(after)
        found.append((None if part else _value(token), token.start(), token.end()))
    return tuple(found)


def _value(token: re.Match[str]) -> Fraction | None:
    number, below, top, under = token["number"], token["below"], token["top"], token["under"]
    exponent = token["exponent"] or token["power"] or token["raised"] or "0"
    if len(token[0]) > MAX_DIGITS or len(exponent) > 4 or abs(int(exponent)) > MAX_DIGITS:
        return None
    value = Fraction(re.sub(r"[, \u2009']", "", number))
    if token["raised"]:
        value = Fraction(1) if value == 10 else None
        if value is None:
            return None
    divisor = Fraction(below or under or 1)
    if not divisor:
        return None
    value = value / divisor if below else value * Fraction(10) ** int(exponent) + int(top or 0) / divisor
    value *= _SCALES[token["scale"].strip(" -").lower()] if token["scale"] else 1
    return -value if (token["sign"] == "-") != (token["sign2"] == "-") else value


def find_number(reply: str) -> Fraction | None:
    r"""The number a reply ends in: the last `#### n` line, else \boxed{n}, else "answer is n", else the last number."""
    marked, number = marked_number(reply)
    if marked:
        return number
    numbers = stated_numbers(reply)
    return numbers[-1] if numbers else None


def marked_number(reply: str) -> tuple[bool, Fraction | None]:
    r"""Whether a reply marks its answer, by `####`, \boxed or "answer is", and the one number that is marked."""
    text = reply[-TAIL:]
    lines = [line for line in _ANSWER_LINE.findall(text) if _numbers(prepared(line)) and not _is_heading(line)]
    if lines:
        return True, read_number(lines[-1])
    if _BOX.search(text):
        return True, read_number(find_box(text) or "")
    stated = _stated(text)
    if stated and _numbers(prepared(stated)):
        return True, read_number(stated.partition(". ")[0])
    return False, None


def stated_numbers(text: str) -> list[Fraction]:
    """Every number that a text states, in order."""
    return [number for number, _, _ in _numbers(prepared(text[-TAIL:])) if number is not None]


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
