"""What the generators share: the random stream of a split, which question belongs to which split, drawing numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np

SPLITS = ("train", "test")


def split_generator(name: str, n: int, seed: int, split: str) -> np.random.Generator:
    """Check the arguments of `generate` and return the random stream of that task set, seed and split.

    Raises:
        ValueError: n or seed is negative, or split is neither "train" nor "test".
    """
    if split not in SPLITS:
        raise ValueError(f"split = {split!r}: expected 'train' or 'test'")
    for what, value in (("n", n), ("seed", seed)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0:
            raise ValueError(f"{what} = {value!r}: expected a whole number, at least 0")
    return np.random.default_rng([int(seed), crc32(name.encode("utf-8")), SPLITS.index(split)])


def in_split(question: str, split: str) -> bool:
    """Whether a question belongs to `split`: decided by its text alone, so that no two splits share a question."""
    return SPLITS[crc32(question.encode("utf-8")) % 2] == split


@dataclass(frozen=True)
class Problem:
    """A drawn problem: its text, its answer and answers that typical mistakes give (sympy objects or numbers)."""

    question: str
    answer: Any
    mistakes: tuple[Any, ...] = ()


class Draw:
    """Draws the parameters of a template, as Python integers."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def __call__(self, low: int, high: int, *, without: tuple[int, ...] = (0,)) -> int:
        """A whole number from low to high, both included, but none of `without`."""
        while True:
            value = int(self._rng.integers(low, high + 1))
            if value not in without:
                return value

    def choice(self, values: Sequence[Any]) -> Any:
        """One of the values."""
        return values[int(self._rng.integers(len(values)))]
