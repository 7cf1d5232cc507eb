"""Grade-school word problems of 1 to 8 operations, told as stories (the stories are in stories.txt).

An operation is one +, -, x, / or percentage; the number of operations that lead to the answer is the level.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from bamas_lite.generators.common import in_split, split_generator
from bamas_lite.tasks import Task

NAME = "word_problems"
LEVELS = 8
LARGEST = 6000
"""No quantity on the way is larger: the numbers stay those of a grade-school story."""

_NAMES = {
    "she": "Ada Bella Carmen Dana Elif Fatima Greta Hana Ines Jolie Keiko Lena Mira Nadia Olga Priya Rosa Sofia Zoe",
    "he": "Adam Bruno Carlos David Emil Farid Goran Hugo Ivan Jonas Karim Leo Marco Nils Omar Pavel Ravi Samir Theo",
}
_HER = {"she": ("her", "her"), "he": ("his", "him")}
_TH = {2: "half", 3: "third", 4: "quarter", 5: "fifth"}
_TIMES = {2: "twice", 3: "three times", 4: "four times", 5: "five times"}


@dataclass(frozen=True)
class _Line:
    """One parsed line of a story: see stories.txt. `before` is "" in an opening, `after` is "" in a question."""

    before: str
    after: str
    text: str
    value: ast.expr | None = None
    operands: tuple[tuple[str, tuple[Fraction, ...]], ...] = ()

    @property
    def operations(self) -> int:
        return len(_operations(self.value))


def _operations(expression: ast.expr) -> list[ast.expr]:
    return [node for node in ast.walk(expression) if isinstance(node, (ast.BinOp, ast.Call))]


def _parse_line(line: str) -> _Line:
    states, text, *rest = (part.strip() for part in line.split("|"))
    if states.endswith("?"):
        return _Line(states[:-1], "", text)
    before, _, after = states.rpartition(">")
    value, operands = rest
    return _Line(before, after, text, ast.parse(value, mode="eval").body,
                 tuple((o.partition("=")[0], _choices(o.partition("=")[2])) for o in operands.split()))


def _choices(spec: str) -> tuple[Fraction, ...]:
    """Operand values: "2,3.50", "2..9" or "10..90/5"."""
    if ".." not in spec:
        return tuple(Fraction(s) for s in spec.split(","))
    ends, _, step = spec.partition("/")
    low, high = ends.split("..")
    return tuple(Fraction(value) for value in range(int(low), int(high) + 1, int(step or 1)))


def _read_stories(path: Path) -> list[tuple[dict[str, str], list[_Line]]]:
    """The nouns and the lines (openings, then steps) of every story in the file."""
    groups: dict[str, list[_Line]] = {}
    stories: list[tuple[dict[str, str], list[_Line]]] = []
    for block in path.read_text(encoding="utf-8").split("\n== ")[1:]:
        head, *body = block.strip().splitlines()
        lines = [_parse_line(line) for line in body]
        name, *rest = (part.strip() for part in head.split("|"))
        if not rest:
            groups[name] = lines
            continue
        nouns = dict(pair.split("=") for pair in rest[1].split(", ") if pair)
        stories.append((nouns, lines + [line for group in rest[0].split() for line in groups[group]]))
    return stories


_STORIES = _read_stories(Path(__file__).with_name("stories.txt"))


class _NotClean(Exception):
    """A value that does not belong into a story: negative, too large, not whole where things are counted."""


_SWAP: dict[type, type] = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult}
"""What a hasty solver does instead."""


def _evaluate(node: ast.expr, names: dict[str, Fraction], swapped: ast.expr | None = None) -> Fraction:
    """The exact value of an expression; the operation `swapped` is replaced by a wrong one."""
    if isinstance(node, ast.Constant):
        return Fraction(node.value)
    if isinstance(node, ast.Name):
        return names[node.id]
    if isinstance(node, ast.Call):
        value, percent = (_evaluate(part, names, swapped) for part in node.args)
        return value * percent / 100 if node is not swapped else percent
    left, right = _evaluate(node.left, names, swapped), _evaluate(node.right, names, swapped)
    operation = type(node.op) if node is not swapped else _SWAP[type(node.op)]
    if operation is ast.Add:
        return left + right
    if operation is ast.Sub:
        return left - right
    if operation is ast.Mult:
        return left * right
    if right == 0:
        raise _NotClean
    return left / right


@dataclass(frozen=True)
class _Step:
    """A line with its operands drawn."""

    line: _Line
    names: dict[str, Fraction]

    def run(self, v: Fraction, swapped: ast.expr | None = None) -> Fraction:
        return _evaluate(self.line.value, {**self.names, "v": v}, swapped)


def _run(steps: list[_Step], dropped: int = -1, swapped: ast.expr | None = None) -> Fraction:
    value = Fraction(0)
    for position, step in enumerate(steps):
        if position != dropped:
            value = step.run(value, swapped)
    return value


def _draw_step(line: _Line, v: Fraction, rng: np.random.Generator) -> _Step | None:
    """Draw operands for which the step makes sense; None when there are none to be found."""
    money = "m" in (line.before, line.after)
    for _ in range(40):
        step = _Step(line, {name: values[rng.integers(len(values))] for name, values in line.operands})
        names = {**step.names, "v": v}
        values = [_evaluate(node, names) for node in _operations(line.value)] or [step.run(v)]
        whole = line.before != "m" or line.after == "end" and isinstance(line.value, ast.BinOp) \
            and isinstance(line.value.op, ast.Div)
        if all(0 < value <= LARGEST and (value.denominator == 1 or money and not whole and 20 % value.denominator == 0)
               for value in values) and step.run(v) != v and step.run(v) >= (1 if line.after == "end" else 4):
            return step
    return None


def _draw_chain(lines: list[_Line], level: int, rng: np.random.Generator) -> list[_Step] | None:
    """An opening and steps with `level` operations in all, no line twice; None after a dead end."""
    steps: list[_Step] = []
    value, state, left = Fraction(0), "", level
    while left or not steps:
        usable = [line for line in lines if line.value and line.before == state and line.operations <= left
                  and all(line is not s.line for s in steps)
                  and (line.after != "end" or line.operations == left)]
        if not usable:
            return None
        step = _draw_step(usable[rng.integers(len(usable))], value, rng)
        if step is None:
            return None
        steps.append(step)
        value, state, left = step.run(value), step.line.after, left - step.line.operations
    return steps


def _number(value: Fraction) -> str | None:
    """"12" or "12.5"; None for a number that needs more than two decimals."""
    if 100 % value.denominator:
        return None
    return str(value.numerator) if value.denominator == 1 else f"{float(value):.2f}".rstrip("0")


def _wrong_answers(steps: list[_Step], rng: np.random.Generator) -> tuple[str, ...]:
    """Five plausible wrong numbers: a step dropped, an operation swapped, one step too few; then slips of the pen."""
    right = _run(steps)
    mistakes: list[Fraction] = []
    for position, step in enumerate(steps):
        if position:
            mistakes.append(_run(steps, dropped=position))
        for node in _operations(step.line.value):
            try:
                mistakes.append(_run(steps, swapped=node))
            except _NotClean:
                continue
    mistakes = [mistakes[i] for i in rng.permutation(len(mistakes))]
    if len(steps) > 1:
        mistakes.insert(0, _run(steps[:-1]))
    slips = [right + 1, right + 10, right - 1, right * 2, right - 10, right * 10, right + 2, right + 100]
    found: dict[Fraction, str] = {}
    for value in mistakes[:8] + [slips[i] for i in rng.permutation(len(slips))]:
        text = _number(value)
        fits = value > 0 and (value.denominator == 1 or right.denominator > 1)
        if text is not None and fits and value != right and len(found) < 5:
            found.setdefault(value, text)
    return tuple(found.values())


def _operand_words(step: _Step) -> dict[str, str]:
    """How the operands are written: "3", "2.50", "three times", "third"."""
    words = {}
    for name, value in step.names.items():
        words[name] = str(value) if value.denominator == 1 else f"{float(value):.2f}"
        words[f"{name}_times"] = _TIMES.get(value, "")
        words[f"{name}_th"] = _TH.get(value, "")
    return words


def _tell(nouns: dict[str, str], lines: list[_Line], steps: list[_Step], rng: np.random.Generator) -> str:
    """The text of the story with its question."""
    she = ("she", "he")[rng.integers(2)]
    name, friend = (str(rng.choice(_NAMES[who].split())) for who in (she, "he" if she == "she" else "she"))
    everyone = " ".join(_NAMES.values()).split()
    rival = str(rng.choice([other for other in everyone if other not in (name, friend)]))
    her, them = _HER[she]
    words = {**nouns, "name": name, "Name": name, "friend": friend, "rival": rival, "she": she, "She": she.capitalize(),
             "her": her, "Her": her.capitalize(), "them": them}
    sentences = [step.line.text.format(**words, **_operand_words(step)) for step in steps]
    state = steps[-1].line.after
    if state != "end":
        question = next(line for line in lines if line.value is None and line.before == state)
        sentences.append(question.text.format(**words))
    return " ".join(sentences)


def generate(n: int, seed: int, split: str = "test") -> list[Task]:
    """Make `n` word problems: levels 1, 2, ..., 8, 1, 2, ... in turn, the same for the same arguments.

    A question belongs to a split by a hash of its text, so train and test never share one, whatever the seeds.

    Raises:
        ValueError: n is negative, or split is neither "train" nor "test".
    """
    rng = split_generator(NAME, n, seed, split)
    tasks: list[Task] = []
    seen: set[str] = set()
    while len(tasks) < n:
        level = 1 + len(tasks) % LEVELS
        nouns, lines = _STORIES[rng.integers(len(_STORIES))]
        steps = _draw_chain(lines, level, rng)
        if steps is None:
            continue
        question = _tell(nouns, lines, steps, rng)
        reference = _number(_run(steps))
        if reference is None or question in seen or not in_split(question, split):
            continue
        seen.add(question)
        tasks.append(Task(task_id=f"{NAME}/{split}/{len(tasks):04d}", domain="arithmetic", level=level,
                          question=question, reference=reference, split=split,
                          wrong=_wrong_answers(steps, rng), source=NAME))
    return tasks
