"""Whatever the reader sets as an answer, each check says one thing about it and raises nothing."""

import importlib

import numpy as np
import pandas as pd
import pytest


class Raises:
    """An object of which every use raises."""

    def _refuse(self, *arguments, **named):
        raise RuntimeError("odd")

    __repr__ = __eq__ = __ne__ = __iter__ = __len__ = __bool__ = __float__ = __int__ = __getitem__ = __call__ = _refuse
    __lt__ = __gt__ = __sub__ = __hash__ = _refuse


class RaisingText(Exception):
    def __str__(self):
        raise RuntimeError("odd")


def raises_oddly(*arguments):
    raise RaisingText


ODD = {
    "huge": 10**400, "nan": float("nan"), "complex": 1j, "text": "abc", "nothing": [], "set": {1, 2},
    "dict": {"a": 1}, "dict of lists": {"star": [Raises()], "linear": 3}, "dict of rows": {"rows": Raises(), "saved": 1,
    "twice": 1}, "table": pd.DataFrame({"a": [1, 2, 3]}), "array": np.ones((3, 3)), "arrays": [np.ones(2), np.ones(2)],
    "three arrays": [np.ones(2)] * 3, "raises": Raises(), "holds what raises": [Raises(), Raises()],
    "of an array": lambda *arguments: np.ones(3), "of what raises": lambda *arguments: Raises(),
    "of nothing": lambda *arguments: None, "raises oddly": raises_oddly, "a class": int,
    "of entries that raise": lambda *arguments: [Raises()] * 60,
}
CHECKS = [(module, number) for module in ("n00", "n01", "n02", "n03", "n04", "n05", "n06", "n07", "n08", "n09")
          for number in (1, 2, 3)]


@pytest.mark.parametrize("module, number", CHECKS)
def test_no_answer_makes_a_check_raise(module, number, capsys):
    check = getattr(importlib.import_module(f"bamas_lite.exercises.{module}"), f"check_{number}")
    for name, answer in ODD.items():
        check(answer)
        said = capsys.readouterr().out
        assert said.startswith(f"Exercise {number}: ") and said.count("\n") == 1 and "right.\n" not in said.replace(
            "not right.", ""), (name, said)


@pytest.mark.parametrize("module, number", [("n01", 3), ("n02", 2), ("n03", 2), ("n04", 2), ("n05", 2)])
def test_an_interrupt_passes(module, number):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    check = getattr(importlib.import_module(f"bamas_lite.exercises.{module}"), f"check_{number}")
    with pytest.raises(KeyboardInterrupt):
        check(interrupted)


def test_numbers_of_other_libraries_are_numbers(capsys):
    from bamas_lite.exercises.n00 import check_1
    check_1(np.int64(3))
    assert "not yet" in capsys.readouterr().out
