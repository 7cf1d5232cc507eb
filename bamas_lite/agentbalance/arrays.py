"""Arrays of numbers that users hand in, read strictly."""

from __future__ import annotations

from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

from bamas_lite.inputs import shown


def real_numbers(values: Any, what: str) -> np.ndarray:
    """`values` as an array of floats, of any shape; NaN and infinity may be among them.

    Args:
        values: a number, nested lists of them, or an array: whole numbers, floats, Fractions, Decimals.
        what: name of the quantity, for the error message.

    Raises:
        ValueError: no numbers, which numpy would take for some: text, None, true and false, dates, complex or masked
            ones; rows of different length; or too large for a float.
    """
    try:
        array = np.asarray(values, None if hasattr(values, "dtype") else object)
        plain = array.dtype.kind in "iuf" or array.dtype.kind == "O" and all(
            isinstance(value, (Real, Decimal)) and not isinstance(value, bool) for value in array.flat)
        if plain and not isinstance(values, np.ma.MaskedArray):
            with np.errstate(over="ignore"):   # of longer floats; they become infinite
                return np.asarray(array, float)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # RuntimeError: a tensor that has a gradient
        pass
    raise ValueError(f"{what} = {shown(values)}: expected an array of numbers")
