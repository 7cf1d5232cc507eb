"""What users hand to the studies - arrays, lists, amounts - read strictly: each fault is one clear message."""

from __future__ import annotations

from typing import Any

import numpy as np

from bamas_lite.inputs import exact, shown


def numbers(values: Any, what: str) -> np.ndarray:
    """`values` as an array of finite floats.

    Raises:
        ValueError: no numbers, or NaN or infinity among them.
    """
    try:
        array = np.asarray(values, float)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{what} = {shown(values)}: expected an array of numbers") from None
    wrong = ~np.isfinite(array)
    if wrong.any():
        place = f"[{', '.join(map(str, np.argwhere(wrong)[0]))}]" if array.ndim else ""
        raise ValueError(f"{what}{place} = {float(array[wrong][0])!r}: expected a finite number")
    return array


def number(value: Any, what: str, *, positive: bool = False) -> float:
    """`value` as a float of at least 0, or above 0.

    Raises:
        ValueError: it is none.
    """
    amount = exact(value, what)
    if amount < 0 or (positive and not amount):
        raise ValueError(f"{what} = {shown(value)}: expected a number {'above' if positive else 'of at least'} 0")
    return float(value)


def listed(values: Any, what: str) -> list[Any]:
    """`values` as a list of at least one.

    Raises:
        ValueError: it is empty, a text, or nothing that can be listed.
    """
    try:
        items = None if isinstance(values, (str, bytes)) else list(values)
    except TypeError:
        items = None
    if items is None:
        raise ValueError(f"{what} = {shown(values)}: expected a list")
    if not items:
        raise ValueError(f"{what} is empty: expected at least one")
    return items


def amounts(values: Any, what: str, *, positive: bool = False) -> list[float]:
    """`values` as a list of different numbers (`number`), at least one.

    Raises:
        ValueError: as `listed` and `number`; or one is given twice.
    """
    items = [number(item, what, positive=positive) for item in listed(values, what)]
    for item in items:
        if items.count(item) > 1:
            raise ValueError(f"{what} holds {item:g} more than once: its rows could not be told apart")
    return items
