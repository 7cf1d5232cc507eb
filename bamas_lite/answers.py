"""Finding the answer in a reply: a number, LaTeX, or a program.

Replies are untrusted: of a long one only the end is read, every pattern works in linear time, and nothing here raises.
"""

from __future__ import annotations

import re
from fractions import Fraction

TAIL = 50_000
"""Characters that are read, from the end: the answer stands last."""
MAX_DIGITS = 400
"""A longer number, or a power of ten beyond it, is no answer (and would only cost time)."""

_PLAIN = str.maketrans({"\u2212": "-", "\u2013": "-", "\u2012": "-", "\ufe63": "-", "\uff0d": "-", "\u2014": " ",
                        "\u00a0": "\u2009", "\u202f": "\u2009", "\u2044": "/", "\u00d7": "*", "\u00b7": "*",
                        "\u00bd": " 1/2", "\u00bc": " 1/4", "\u00be": " 3/4", "\u2153": " 1/3", "\u2154": " 2/3"}
                       | {0xFF10 + d: str(d) for d in range(10)})
_LATEX = ((re.compile(r"\\[dt]?frac\s{0,3}\{([^{}]{1,60})\}\s{0,3}\{([^{}]{1,60})\}"), r" \1/\2"),
          (re.compile(r"\\[dt]?frac\s{0,3}([0-9])\s{0,3}([0-9])"), r" \1/\2"),
          (re.compile(r"\\(?:times|cdot)\b"), "*"),
          (re.compile(r"\\[,;:! ]|\{,\}"), "\u2009"),
          (re.compile(r"\\(?:text|mathrm|textbf|mathbf|boldsymbol|mbox)\b"), " "),
          (re.compile(r"\\(?=[$%])"), ""))
_MONEY = "$\u20ac\u00a3\u00a5\u20b9"

_UNSIGNED = (r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]{1,3}(?:[ \u2009][0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?"
             r"|\.[0-9]+")
_TOKEN = re.compile(
    rf"(?P<sign>[-+]?)[{_MONEY}]?\s?(?P<sign2>-?)(?P<number>{_UNSIGNED})"
    rf"(?:(?P<e>[eE][-+]?[0-9]+)(?![0-9A-Za-z])|\s?(?:\*|x)\s?10\s?(?:\^|\*\*)\s?[({{]?\s?(?P<power>[-+]?[0-9]+)\s?[)}}]?"
    rf"|\s?/\s?(?P<below>[0-9]+(?:\.[0-9]+)?)|[ \u2009]?(?:and )?(?P<top>[0-9]+)/(?P<under>[0-9]+))?")
_NOT_BEFORE = re.compile(r"[A-Za-z0-9_.,:/^]$|[0-9)]\s?-$|[0-9]\s?(?:-|to)\s$")
_NOT_AFTER = re.compile(r"\s?[-/:][0-9]|,[0-9]|\.[0-9]|\s(?:-|to)\s[0-9$]|(?:st|nd|rd|th)\b")

_ANSWER_LINE = re.compile(r"^[ \t>*_]{0,8}####(?!#)[ \t]*([^\n]*)$", re.MULTILINE)
_ANSWER_IS = re.compile(r"answer\b[ \t*_]{0,4}(?:is|are|:|=)([^\n]{1,300})", re.IGNORECASE)
_BOX = re.compile(r"\\f?boxed\s{0,3}(\{|[0-9A-Za-z])")
_PROGRAM = re.compile(r"\s*(?:@\w|#|(?:async )?def \w+\(|class \w+[(:]|import \w|from [\w.]+ import |\w+ = )")
_FENCE = re.compile(r"^[ \t]{0,3}```[ \t]*([A-Za-z0-9_+-]*)[^\n`]*$", re.MULTILINE)


def _value(token: re.Match[str]) -> Fraction | None:
    parts = token.groupdict()
    if len(token[0]) > MAX_DIGITS:
        return None
    value = Fraction(re.sub(r"[, \u2009]", "", parts["number"]))
    exponent = parts["e"][1:] if parts["e"] else parts["power"]
    if exponent:
        if len(exponent) > 4 or abs(int(exponent)) > MAX_DIGITS:
            return None
        value *= Fraction(10) ** int(exponent)
    below, top, under = parts["below"], parts["top"], parts["under"]
    if below or under:
        divisor = Fraction(below or under)
        if not divisor:
            return None
        value = value / divisor if below else value + int(top) / divisor
    return -value if (parts["sign"] == "-") != (parts["sign2"] == "-") else value


def _numbers(text: str) -> list[Fraction | None]:
    """Every number of `text` in order; None stands for what only looks like one (a range, a date, a time)."""
    text = text.translate(_PLAIN)
    for pattern, replacement in _LATEX:
        text = pattern.sub(replacement, text)
    found: list[Fraction | None] = []
    for token in _TOKEN.finditer(text):
        before, after = text[max(0, token.start() - 8):token.start()], text[token.end():token.end() + 8]
        misread = _NOT_BEFORE.search(before) or _NOT_AFTER.match(after)
        found.append(None if misread else _value(token))
    return found


def _stated_number(text: str) -> Fraction | None:
    """The number that an answer states: the first, after the last equals sign if there is one."""
    numbers = _numbers(text.rpartition("=")[2])
    return numbers[0] if numbers else None


def read_number(text: str) -> Fraction | None:
    """The number that the whole text stands for, with its unit or currency ("$1,234.50", "3/4 cup"), or None.

    `50%` is 50, as in GSM8K: the unit is part of the question. Comparisons are exact, so no rounding is forgiven.
    """
    return _stated_number(text[-TAIL:])


def find_number(reply: str) -> Fraction | None:
    r"""The number a reply ends in: the last `#### n` line, else the last \boxed{n}, else "answer is n", else the last number."""
    text = reply[-TAIL:]
    lines = [line for line in _ANSWER_LINE.findall(text) if _numbers(line) and not _is_heading(line)]
    if lines:
        return _stated_number(lines[-1])
    box = find_box(text)
    if box is not None and _numbers(box):
        return _stated_number(box)
    stated = [part for part in _ANSWER_IS.findall(text) if _numbers(part)]
    if stated:
        return _stated_number(stated[-1].partition(". ")[0])
    readable = [number for number in _numbers(text) if number is not None]
    return readable[-1] if readable else None


def _is_heading(line: str) -> bool:
    """Whether a `####` line is a Markdown heading ("#### Step 3") and no answer ("#### Answer: 3")."""
    return re.match(r"[^0-9]{0,20}[A-Za-z]{4}", line) is not None and re.search(r"answer|=", line, re.I) is None


def find_box(text: str) -> str | None:
    r"""The content of the last complete \boxed{...}, or None."""
    for match in reversed(list(_BOX.finditer(text))):
        if match[1] != "{":
            return match[1]
        depth, escaped = 1, False
        for index in range(match.end(), min(len(text), match.end() + 5_000)):
            character = text[index]
            if escaped:
                escaped = False
            elif character == "\\":
                escaped = True
            elif character in "{}":
                depth += 1 if character == "{" else -1
                if not depth:
                    return text[match.end():index].strip()
    return None


def find_latex(reply: str) -> str | None:
    r"""The LaTeX answer of a reply: the last \boxed{...}, else "answer is ...", else the last $...$, else the last number."""
    text = reply[-TAIL:]
    box = find_box(text)
    if box is not None:
        return box or None
    stated = _ANSWER_IS.findall(text) or _ANSWER_LINE.findall(text) or re.findall(r"\$([^$\n]{1,300})\$", text)
    if stated:
        return stated[-1].strip(" \t.*$:") or None
    number = find_number(text)
    return None if number is None else str(number)


def find_program(reply: str) -> str | None:
    """The program of a reply: its last complete ```python block, else its last block, else the bare text if it begins as one.

    A block that max_tokens cut off is no answer, not even if its first half happens to parse.
    """
    text = reply[-TAIL:] if len(reply) > TAIL else reply
    blocks: list[tuple[str, str]] = []
    opened: re.Match[str] | None = None
    for fence in _FENCE.finditer(text):
        if opened is None:
            opened = fence
        elif not fence[1]:
            blocks.append((opened[1].lower(), text[opened.end() + 1:fence.start()]))
            opened = None
    if opened is not None:
        return None
    python = [body for language, body in blocks if language in ("python", "py", "python3")]
    plain = [body for language, body in blocks if not language]
    program = (python or plain or ([text] if not blocks and _PROGRAM.match(text) else [""]))[-1]
    return program if program.strip() else None
