"""Tables that are handed in, checked once: each fault is one message with the table, the row and the column."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from bamas_lite.inputs import shown


@dataclass(frozen=True)
class Number:
    """Which numbers a column may hold: finite ones from `least` to `most`.

    Attributes:
        above: `least` itself is none of them.
        whole: only whole numbers.
        optional: single values may be missing, and so may the column.
    """

    least: float = -math.inf
    most: float = math.inf
    above: bool = False
    whole: bool = False
    optional: bool = False

    def holds(self, values: np.ndarray) -> np.ndarray:
        """Which of these floats are allowed."""
        fine = np.isfinite(values) & (values <= self.most)
        fine &= values > self.least if self.above else values >= self.least
        if self.whole:
            fine &= values == np.round(values)
        return fine | (np.isnan(values) & self.optional)

    def __str__(self) -> str:
        ends = [f"{'above' if self.above else 'from'} {self.least:g}"] if self.least > -math.inf else []
        ends += [f"to {self.most:g}"] if self.most < math.inf else []
        return " ".join(["a whole number" if self.whole else "a finite number", *ends])


def check_table(table: Any, name: str, *, texts: Sequence[str] = (), numbers: Mapping[str, Number] | None = None,
                key: Sequence[str] = (), known: Mapping[str, Collection[str]] | None = None,
                rising: Sequence[Sequence[str]] = (), error: type[ValueError] = ValueError) -> None:
    """Check what is handed in as the table `name`.

    Args:
        table: what was given.
        name: for the message.
        texts: columns of text, without a missing value.
        numbers: column -> which numbers it may hold; a bool is none.
        key: columns that together name a row, each row once.
        known: column -> its possible texts.
        rising: columns that rise from left to right within a row, as far as they are there; equal is allowed.
        error: which exception.

    Raises:
        error: no DataFrame, a column is missing or there twice, no rows, or a value is not allowed.
    """
    numbers = numbers or {}
    if not isinstance(table, pd.DataFrame):
        raise error(f"{name} = {' '.join(shown(table).split())}: expected a DataFrame")
    columns = list(table.columns)
    for column in dict.fromkeys((*texts, *numbers, *key)):
        n = columns.count(column)
        if n > 1 or (n == 0 and not (column in numbers and numbers[column].optional)):
            raise error(f"{name}: column {column} is {'there twice' if n else 'missing'}; the table has "
                        f"{', '.join(map(str, columns))[:400]}")
    if table.empty:
        raise error(f"{name}: empty; expected at least one row")
    for column in texts:
        valid = (known or {}).get(column)
        for value in table[column]:
            if not isinstance(value, str) or (valid is not None and value not in valid):
                raise error(f"{name}: {column} = {shown(value)}: expected "
                            + (f"one of {', '.join(valid)}" if valid else "text"))

    def who(place: int) -> str:
        row = table.iloc[place]
        return f"{name}: " + (", ".join(str(row[column]) for column in key) or f"row {place}")

    found: dict[str, np.ndarray] = {}
    for column, number in numbers.items():
        if column in table:
            found[column] = _floats(table[column])
            if len(wrong := np.flatnonzero(~number.holds(found[column]))):
                value = table[column].iloc[wrong[0]]
                value = value.item() if isinstance(value, np.generic) else value
                raise error(f"{who(wrong[0])}: {column} = {shown(value)}: expected {number}")
    if key and (twice := table[list(key)].duplicated().to_numpy()).any():
        raise error(f"{who(int(twice.argmax()))} is there twice")
    for chain in rising:
        for low, high in combinations([column for column in chain if column in found], 2):
            falls = found[low] > found[high] + 1e-9 * np.maximum(1, np.abs(found[high]))
            if falls.any():
                place = int(falls.argmax())
                raise error(f"{who(place)}: {low} = {found[low][place]:g} and {high} = {found[high][place]:g}: "
                            f"expected {' <= '.join(column for column in chain if column in found)}")


def _floats(column: pd.Series) -> np.ndarray:
    """The column as floats: NaN where a value is missing, infinite where it is no number."""
    if pd.api.types.is_any_real_numeric_dtype(column):
        return column.to_numpy(float, na_value=math.nan)
    return np.array([_float(value) for value in column])


def _float(value: Any) -> float:
    if value is None or value is pd.NA:
        return math.nan
    if not isinstance(value, (int, float, np.integer, np.floating)) or isinstance(value, bool):
        return math.inf
    try:
        return float(value)
    except OverflowError:
        return math.inf
