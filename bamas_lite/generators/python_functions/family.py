"""What a family of function tasks is, and how its random inputs are drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product
from string import Template
from typing import Any

import numpy as np

Parameters = dict[str, Any]
"""One setting of a family: what `$name` stands for in its statement and its program."""

Arguments = tuple[Any, ...]
"""The arguments of one call."""


@dataclass(frozen=True, slots=True)
class Family:
    """Tasks that differ in their parameters only.

    Attributes:
        name: the function to write.
        arguments: its arguments, as in the def line.
        level: difficulty, 1 to 3.
        grid: the parameter settings.
        statement: what the function does; continues "Write a Python function `name(arguments)` that ...".
        code: the reference program.
        edges: parameters -> arguments of calls at the edges of the behaviour; all of them become hidden asserts.
        draw: (generator, parameters) -> arguments of one ordinary call.
    """

    name: str
    arguments: str
    level: int
    grid: tuple[Parameters, ...]
    statement: str
    code: str
    edges: Callable[[Parameters], list[Arguments]]
    draw: Callable[[np.random.Generator, Parameters], Arguments]

    def describe(self, parameters: Parameters) -> str:
        """The statement with its parameters written in."""
        statement = Template(self.statement).substitute(parameters)
        return f"Write a Python function `{self.name}({self.arguments})` that {' '.join(statement.split())}"

    def program(self, parameters: Parameters) -> str:
        """The reference program with its parameters written in."""
        return Template(self.code).substitute(parameters).strip() + "\n"

    def call(self, arguments: Arguments) -> str:
        """The call expression."""
        return f"{self.name}({', '.join(map(repr, arguments))})"


def grid(**axes: Iterable[Any]) -> tuple[Parameters, ...]:
    """All combinations of the axes. An axis of dicts stands for parameters that change together.
    A text may use the other parameters as `$name`."""
    settings = []
    for values in product(*axes.values()):
        setting: Parameters = {}
        for name, value in zip(axes, values, strict=True):
            setting |= value if isinstance(value, dict) else {name: value}
        settings.append({name: Template(value).substitute(setting) if isinstance(value, str) else value
                         for name, value in setting.items()})
    return tuple(settings)


def choices(names: str, *rows: tuple[Any, ...]) -> list[Parameters]:
    """One axis of parameters that change together: the names, then a row for each setting."""
    return [dict(zip(names.split(), row, strict=True)) for row in rows]


def integer(rng: np.random.Generator, low: int, high: int) -> int:
    """A whole number from low to high, both included."""
    return int(rng.integers(low, high + 1))


def integers(rng: np.random.Generator, low: int, high: int, least: int, most: int) -> list[int]:
    """A list of `least` to `most` whole numbers from low to high."""
    return [integer(rng, low, high) for _ in range(integer(rng, least, most))]


def pick(rng: np.random.Generator, options: Iterable[Any]) -> Any:
    """One of the options."""
    options = list(options)
    return options[integer(rng, 0, len(options) - 1)]


def letters(rng: np.random.Generator, alphabet: str, least: int, most: int) -> str:
    """A string of `least` to `most` characters of the alphabet."""
    return "".join(pick(rng, alphabet) for _ in range(integer(rng, least, most)))


def phrase(rng: np.random.Generator, least: int, most: int, longest: int = 8) -> str:
    """A string of `least` to `most` made-up words of 1 to `longest` lower-case letters."""
    return " ".join(letters(rng, "aeioubdklmnrst", 1, longest) for _ in range(integer(rng, least, most)))
