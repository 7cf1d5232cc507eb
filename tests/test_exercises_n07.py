"""The checks of notebook 07: hints for what is wrong, never the answer (its solutions notebook has what is right)."""

import numpy as np
import pytest
from test_exercises_odd_answers import ODD

from bamas_lite.exercises import n07
from bamas_lite.exercises.n07 import check_1, check_2, check_3

RATIO = np.array([1, 3, 5, 9]) / 18


@pytest.mark.parametrize(("check", "answer", "words"), [
    (check_1, None, "set answer_1"), (check_1, lambda R, mu: 1 / 0, "raised ZeroDivisionError"),
    (check_1, lambda R, mu: R[:2], "expected 4 probabilities"), (check_1, lambda R, mu: R / R.sum(), "uniform log"),
    (check_1, lambda R, mu: R, "do not sum to 1"), (check_1, lambda R, mu: R / mu / (R / mu).sum(), "other way round"),
    (check_1, lambda R, mu: np.eye(4)[R.argmax()], "single topology"), (check_1, lambda R, mu: mu, "ends elsewhere"),
    (check_1, lambda R, mu: np.array([4, 9, 10, 2]) / 25, "With three: expected 3 probabilities"),
    (check_1, lambda R, mu: mu * R / 2.5, "With three: training ends elsewhere"),
    (check_2, None, "set answer_2"), (check_2, "0", "expected a finite number"), (check_2, -1, "not positive any more"),
    (check_2, 0, "ends at 0.762"), (check_2, 5, "ends at 0.340"),
    (check_3, None, "set answer_3"), (check_3, [0.5, 0.5], "four positive probabilities"),
    (check_3, [0.5, 0.5, 0, 0], "four positive probabilities"), (check_3, [0.25] * 4, "ends at topology no. 1"),
    (check_3, RATIO, "stands still"), (check_3, [0.1, 0.1, 0.1, 0.7], "0.55 or more"),
])
def test_what_is_wrong_gets_a_hint(check, answer, words, capsys):
    check(answer)
    said = capsys.readouterr().out
    assert words in said and said.startswith("Exercise") and "right.\n" not in said
    assert "0.25" not in said


def test_what_is_right_is_right(capsys):
    check_1(lambda R, mu: mu * R / (mu * R).sum())
    check_2(-0.25)
    check_3(0.96 * RATIO + 0.04 * np.eye(4)[3])
    assert capsys.readouterr().out.count("right.\n") == 3


@pytest.mark.parametrize("number", [1, 2, 3])
def test_no_answer_makes_a_check_raise(number, capsys):
    for name, answer in ODD.items():
        getattr(n07, f"check_{number}")(answer)
        said = capsys.readouterr().out
        assert said.startswith(f"Exercise {number}: ") and "right.\n" not in said, (name, said)
        assert said.count("\n") == 1, (name, said)
