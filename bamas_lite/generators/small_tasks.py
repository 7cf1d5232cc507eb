"""Small tasks for tiny LLMs: problems of one and two steps, choices with numbered options, functions of one line.

Kinds, their wording and the few-shot examples were chosen by trials of the two local LLMs on tasks of other seeds than
the committed ones (they share some functions), so that each kind is sometimes, but not always, right;
`python -m bamas_lite.local_study trial` repeats the last one. Tried and given up: options as a numbered list (both LLMs
then name the number of another option; a number right behind its word is copied more often), and the same examples for
all arithmetic questions (with one of two steps last, problems of one step got a second step; with one of one step last,
those of two steps got one). The last change, own examples for questions with three numbers or more, was made after a
first recording had shown hardly any right answer to the committed problems of two steps; its examples were chosen on
other seeds again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bamas_lite.generators.common import Draw, in_split, split_generator
from bamas_lite.tasks import Task

NAME = "small_tasks"

_NAMES = "Ada Ben Cleo Dan Emma Finn Gina Hugo Ida Jon Kim Leo Mona Nina Otto Pia Rosa Sam Tina Uwe".split()
_THINGS = "apples pens books coins stamps eggs cards balls cups shells stones roses".split()
_BOXES = "boxes bags baskets jars".split()


@dataclass(frozen=True)
class _Drawn:
    """A task before it has a number: `program` tasks also have tests, the entry point and the shown call."""

    question: str
    reference: str
    wrong: tuple[str, ...]
    level: int
    tests: tuple[str, ...] = ()
    entry_point: str = ""
    shown: str = ""


def _story(question: str, answer: int, mistakes: tuple[int, ...], level: int) -> _Drawn:
    slips = (*mistakes, answer + 1, answer - 1, answer + 10, 2 * answer)
    wrong = dict.fromkeys(str(value) for value in slips if value != answer and value >= 0)
    return _Drawn(question, str(answer), tuple(wrong)[:4], level)


def _one_step(draw: Draw) -> _Drawn:
    who, what, box = draw.choice(_NAMES), draw.choice(_THINGS), draw.choice(_BOXES)
    a, b = draw(4, 20), draw(2, 9)
    kind = draw(0, 3, without=())
    if kind == 0:
        return _story(f"{who} has {a} {what} and gets {b} more. How many {what} does {who} have now?", a + b,
                      (a - b, a, b), 1)
    if kind == 1:
        return _story(f"{who} has {a + b} {what} and gives {b} away. How many {what} are left?", a, (a + 2 * b, a + b),
                      1)
    if kind == 2:
        a = draw(2, 9)
        return _story(f"{who} has {a} {box} with {b} {what} in each. How many {what} does {who} have?", a * b,
                      (a + b, a), 1)
    a = draw(2, 9)
    return _story(f"{who} puts {a * b} {what} into {b} {box}, the same number in each. How many {what} are in one of "
                  f"the {box}?", a, (a * b - b, a * b * b, b), 1)


def _two_steps(draw: Draw) -> _Drawn:
    who, what, box = draw.choice(_NAMES), draw.choice(_THINGS), draw.choice(_BOXES)
    a, b, c = draw(3, 9), draw(2, 5), draw(1, 3)
    kind = draw(0, 3, without=())
    if kind == 0:
        return _story(f"{who} has {a} {what}, gets {b} more and then gives {c} away. How many {what} does {who} have "
                      "now?", a + b - c, (a + b, a + b + c, a - c), 2)
    if kind == 1:
        return _story(f"{who} has {a} {what}, finds {b} more and buys {c} more. How many {what} does {who} have now?",
                      a + b + c, (a + b, a + c, b + c), 2)
    if kind == 2:
        return _story(f"{who} has {b} {box} with {a} {what} in each and {c} more {what}. How many {what} does {who} "
                      "have in all?", a * b + c, (a * b, a + b + c, b * (a + c)), 2)
    return _story(f"{who} has {b} {box} with {a} {what} in each and gives {c} {what} away. How many {what} are left?",
                  a * b - c, (a * b, a * b + c, a - c), 2)


_GROUPS = {
    "an animal": "dog cat horse cow sheep lion duck rabbit",
    "a color": "red blue green yellow black white pink brown",
    "a fruit": "apple banana cherry grape lemon peach plum orange",
    "a day of the week": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    "a piece of furniture": "table chair sofa desk bed bench shelf stool",
    "a part of the body": "hand foot nose ear knee arm finger elbow",
    "a musical instrument": "piano violin drum flute guitar trumpet harp cello",
    "a thing to wear": "shirt hat coat sock shoe glove scarf dress",
}


_ALSO_COLORS = {"orange", "peach", "plum"}


def _options(draw: Draw, right: str, others: list[str]) -> tuple[str, int]:
    at = draw(0, len(others), without=())
    shown = [*others[:at], right, *others[at:]]
    *most, last = (f"{word} ({i})" for i, word in enumerate(shown, 1))
    return f"{', '.join(most)} or {last}", at + 1


def _choice(draw: Draw) -> _Drawn | None:
    kind = draw(0, 3, without=())
    if kind < 2:
        group = draw.choice(list(_GROUPS))
        left = [name for name in _GROUPS if name != group]
        first = draw.choice(left)
        second = draw.choice([name for name in left if name != first])
        asked = f"Which of these is {group}"
        right, others = draw.choice(_GROUPS[group].split()), [draw.choice(_GROUPS[g].split()) for g in (first, second)]
    else:
        numbers: list[int] = []
        while len(numbers) < 3:
            numbers.append(draw(10, 99, without=tuple(numbers)))
        largest = kind == 2
        asked = f"Which of these is the {'largest' if largest else 'smallest'} number"
        numbers.sort(reverse=largest)
        right, others = str(numbers[0]), [str(n) for n in numbers[1:]]
    shown, answer = _options(draw, right, others)
    if "a color" in asked and _ALSO_COLORS & {*others}:
        return None
    return _Drawn(f"{asked}: {shown}? Answer with the number.", str(answer),
                  tuple(str(i) for i in (1, 2, 3) if i != answer), 1)


@dataclass(frozen=True)
class _Function:
    """A function of one line; {k} in its texts is drawn from `k`."""

    name: str
    argument: str
    does: str
    right: str
    wrong: tuple[str, ...]
    inputs: tuple[Any, ...]
    k: tuple[int, int] = (0, 0)


_NUMBERS = (5, 12, 0, -4, 7)
_LISTS = ([4, 1, 8], [3, 9], [7], [2, 2, 5, 1], [10, 6, 3, 9, 4])
_WORDS = ("house", "tree", "banana", "window", "ocean")
_FUNCTIONS = (
    _Function("add", "n", "returns n plus {k}", "n + {k}", ("n", "n - {k}", "n * {k}", "{k}"), _NUMBERS, (2, 9)),
    _Function("minus", "n", "returns n minus {k}", "n - {k}", ("n", "n + {k}", "{k} - n"), _NUMBERS, (2, 9)),
    _Function("times", "n", "returns n times {k}", "n * {k}", ("n", "n + {k}", "n ** {k}"), _NUMBERS, (3, 9)),
    _Function("rest", "n", "returns the remainder of n divided by {k}", "n % {k}", ("n // {k}", "n / {k}", "n"),
              _NUMBERS, (3, 9)),
    _Function("is_multiple", "n", "returns True if n can be divided by {k} and False if not", "n % {k} == 0",
              ("n % {k}", "n % {k} != 0", "n / {k} == 0"), (8, 9, 10, 12, 15, 21, 28, 30), (2, 9)),
    _Function("is_above", "n", "returns True if n is larger than {k} and False if not", "n > {k}",
              ("n < {k}", "n >= {k}", "True"), (2, 11, 3, 4, 5, 6, 7, 8, 9, 1), (3, 9)),
    _Function("power", "n", "returns n to the power of {k}", "n ** {k}", ("n * {k}", "n ^ {k}", "{k} ** n"),
              (3, 5, 1, 2, 4), (2, 4)),
    _Function("item", "items", "returns the item with index {k} of a list", "items[{k}]",
              ("items[{k} + 1]", "items[-1]", "items[0]"), ([4, 1, 8, 5, 7], [3, 9, 6, 2, 8], [0, 5, 1, 9, 2, 6]),
              (1, 3)),
    _Function("first", "items", "returns the first {k} items of a list", "items[:{k}]",
              ("items[{k}:]", "items[{k}]", "items[:{k} + 1]"), ([4, 1, 8, 5, 7], [3, 9, 6, 2], [0, 5, 1, 9, 2]),
              (2, 3)),
    _Function("last", "items", "returns the last {k} items of a list", "items[-{k}:]",
              ("items[:-{k}]", "items[-{k}]", "items[{k}:]"), ([4, 1, 8, 5, 7], [3, 9, 6, 2, 0], [0, 5, 1, 9, 2, 6, 3]),
              (2, 3)),
    _Function("total", "items", "returns the sum of a list of numbers plus {k}", "sum(items) + {k}",
              ("sum(items)", "len(items) + {k}", "sum(items) * {k}"), _LISTS, (1, 9)),
    _Function("largest", "items", "returns the largest number of a list times {k}", "max(items) * {k}",
              ("max(items)", "min(items) * {k}", "max(items) + {k}"), _LISTS, (2, 9)),
    _Function("count", "items", "counts how often {k} is in a list", "items.count({k})",
              ("len(items)", "items.index({k})", "{k} in items"), ([1, 2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 5, 6, 7, 8, 9],
                                                                   [0], [2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 9] * 2),
              (2, 9)),
    _Function("has", "items", "returns True if {k} is in a list and False if not", "{k} in items",
              ("{k} not in items", "True", "items[0] == {k}"), ([1, 2, 3, 4, 5], [6, 7, 8, 9], [5, 4, 3, 2], [1, 0],
                                                                [9, 8, 7, 6]), (2, 9)),
    _Function("repeat", "word", "returns the word {k} times in a row", "word * {k}",
              ("word", "word + word", "[word] * {k}"), _WORDS, (3, 9)),
    _Function("start", "word", "returns the first {k} letters of a word", "word[:{k}]",
              ("word[{k}]", "word[{k}:]", "word[0]"), _WORDS, (2, 3)),
    _Function("is_long", "word", "returns True if a word has more than {k} letters and False if not",
              "len(word) > {k}", ("len(word) < {k}", "word > '{k}'", "len(word)"),
              ("a", "abcdefghij", "tree", "house", "banana", "balloon", "ox", "sky"), (3, 8)),
)


def _call(name: str, value: Any) -> str:
    return f"{name}({value!r})"


def _program(draw: Draw) -> _Drawn:
    f = draw.choice(_FUNCTIONS)
    k = draw(*f.k, without=())
    name = f"{f.name}_{k}"

    def source(body: str) -> str:
        return f"def {name}({f.argument}):\n    return {body.format(k=k)}"

    def values(body: str) -> list[Any]:
        function = _compiled(source(body), name)
        return [_outcome(function, value) for value in f.inputs]

    expected = values(f.right)
    shown, *hidden = range(len(f.inputs))
    tests = tuple(f"assert {_call(name, f.inputs[i])} == {expected[i]!r}" for i in hidden)
    wrong = tuple(source(body) for body in f.wrong if values(body)[1:] != expected[1:])
    example = f"{_call(name, f.inputs[shown])} returns {expected[shown]!r}"
    question = f"Write a Python function {name}({f.argument}) that {f.does.format(k=k)}. For example, {example}."
    return _Drawn(question, source(f.right), wrong, 1, tests, name, _call(name, f.inputs[shown]))


def _compiled(source: str, name: str) -> Callable[[Any], Any]:
    names: dict[str, Any] = {}
    exec(source, names)   # our own one-line templates
    return names[name]


def _outcome(function: Callable[[Any], Any], value: Any) -> Any:
    try:
        return function(value)
    except Exception as error:   # a wrong variant may fail: that is an outcome too
        return error


KINDS: dict[str, Callable[[Draw], _Drawn | None]] = {"one_step": _one_step, "two_steps": _two_steps, "choice": _choice,
                                              "function": _program}
"""What a task asks for; tasks take turns in this order, so task number i is of kind i % 4."""


_MOST_TRIES = 3000
"""In a row without a new task, before it is clear that there is none."""


def kind_of(task_id: str) -> str:
    """The kind of one of these tasks, from the number in its id."""
    return tuple(KINDS)[int(task_id.rsplit("/", 1)[1]) % len(KINDS)]


def generate(n: int, seed: int, split: str = "test") -> list[Task]:
    """Make `n` small tasks, the kinds in turn; the same for the same arguments.

    A question belongs to a split by a hash of its text, so train and test never share one, whatever the seeds.

    Raises:
        ValueError: n or seed is negative, the split is neither "train" nor "test", or n is more than there are.
    """
    rng: np.random.Generator = split_generator(NAME, n, seed, split)
    draw, tasks, seen = Draw(rng), [], set()
    makers = list(KINDS.values())
    tries = 0
    while len(tasks) < n:
        tries += 1
        if tries > _MOST_TRIES:
            raise ValueError(f"n = {n}: there are not so many different tasks of each kind")
        drawn = makers[len(tasks) % len(makers)](draw)
        if drawn is None or drawn.question in seen or not in_split(drawn.question, split):
            continue
        seen.add(drawn.question)
        tries = 0
        tasks.append(Task(task_id=f"{NAME}/{split}/{len(tasks):04d}",
                          domain="code" if drawn.entry_point else "arithmetic", level=drawn.level,
                          question=drawn.question, reference=drawn.reference, split=split, tests=drawn.tests,
                          entry_point=drawn.entry_point, vote_inputs=(drawn.shown,) if drawn.shown else (),
                          wrong=drawn.wrong, source=NAME))
    return tasks
