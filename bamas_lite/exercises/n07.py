"""Exercises of notebook 07: each check says right, or gives a hint, and never the answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bamas_lite.exercises import expects
from bamas_lite.inputs import exact

exercise_1 = """\
Exercise 1: what the log's habits do.
A log took topology t with probability mu(t), not uniformly. All rewards are positive. Where does the published
loss, without importance weights, end for one state along the gradient flow? Write a function of R and mu, numpy
arrays of length k (any k), that returns pi, an array of length k.
answer_1 = your function"""

exercise_2 = """\
Exercise 2: a constant that should not matter.
Adding the same c to all rewards changes neither which topology is best nor where the exact expectation ends. It
does move the end of the published loss. For which c do the rewards (3, 1, -1, 0.5) + c end, by gradient flow on
a uniform log, with probability 0.9 on the best topology?
answer_2 = a number"""

exercise_3 = """\
Exercise 3: a start that ends at the worst.
With the rewards (-100, -300, -500, -900) the published loss can end at any topology. Give probabilities of the
four topologies, all positive, from which gradient flow ends at the last one, the worst - with less than 0.55 on
it.
answer_3 = four probabilities"""


@expects("a function of the numpy arrays R and mu that returns pi")
def check_1(end: Callable[..., Any] | None) -> None:
    """Check the end of exercise 1 against training."""
    if end is None:
        print("Exercise 1: set answer_1 to a function of R and mu.")
        return
    R, mu = np.array([1.0, 3.0, 5.0, 2.0]), np.array([0.4, 0.3, 0.2, 0.1])
    given, fault = _called(end, R, mu)
    if fault:
        print(f"Exercise 1: {fault}")
        return
    trained = _trained(R, mu)
    if np.allclose(given, trained, atol=1e-6):
        R, mu = np.array([4.0, 1.0, 2.0]), np.array([0.2, 0.5, 0.3])
        given, fault = _called(end, R, mu)
        if fault is None and not np.allclose(given, _trained(R, mu), atol=1e-6):
            fault = "training ends elsewhere."
        print(f"Exercise 1: right for four topologies. With three: {fault}" if fault else "Exercise 1: right.")
    elif np.allclose(given, R / R.sum()):
        print("Exercise 1: this is the end on a uniform log. Hint: how many rows of the loss does each topology get?")
    elif abs(given.sum() - 1) > 1e-6:
        print("Exercise 1: your probabilities do not sum to 1.")
    elif np.allclose(given, (R / mu) / (R / mu).sum()):
        print("Exercise 1: the other way round. Hint: a topology that is logged twice as often is pulled up twice.")
    elif given.max() > 1 - 1e-6:
        print("Exercise 1: only importance weights or the exact expectation end at a single topology here.")
    else:
        print("Exercise 1: training ends elsewhere. Hint: set the mean direction of the logits to zero; the mean is\n"
              "over rows, and rows are drawn with mu.")


def _trained(R: np.ndarray, mu: np.ndarray) -> np.ndarray:
    """Where the flow ends on a log drawn with mu."""
    from bamas_lite.reproduction.loss_study import train_logits
    return train_logits(R, "published", "flow", steps=1, learning_rate=1000.0, mu=mu)[-1]


def _called(end: Callable[..., Any], R: np.ndarray, mu: np.ndarray) -> tuple[np.ndarray, str | None]:
    """What the reader's function gives, and what is wrong with its shape or None."""
    try:
        given = np.asarray(end(R.copy(), mu.copy()), float)
    except Exception as error:  # the reader's code may raise anything
        return R, f"your function raised {type(error).__name__}: {error}"
    if given.shape != R.shape or not np.isfinite(given).all():
        return R, f"expected {len(R)} probabilities for {len(R)} rewards."
    return given, None


@expects("a finite number")
def check_2(c: float | None) -> None:
    """Check the constant of exercise 2."""
    if c is None:
        print("Exercise 2: set answer_2 to a number.")
        return
    if isinstance(c, bool) or not isinstance(c, (int, float, np.number)) or not np.isfinite(c):
        print("Exercise 2: expected a finite number.")
        return
    from bamas_lite.reproduction.loss_study import fixed_point
    point = fixed_point([exact(r) + exact(c) for r in (3, 1, -1, 0.5)])
    p = 1.0 if point.pi is None else float(point.pi[0])
    if point.regime not in ("interior", "boundary"):
        print("Exercise 2: with your c the sum of the rewards is not positive any more. Hint: less far.")
    elif abs(p - 0.9) < 1e-3:
        print("Exercise 2: right.")
    else:
        print(f"Exercise 2: with your c the best topology ends at {p:.3f}.\nHint: the largest rewards alone are above "
              "lambda; write pi of the best with S, and ask how S depends on c.")


@expects("four positive probabilities that sum to 1")
def check_3(start: Any) -> None:
    """Check the start of exercise 3 by following the flow."""
    if start is None:
        print("Exercise 3: set answer_3 to four probabilities.")
        return
    pi = np.asarray(start, float)
    if pi.shape != (4,) or not (pi > 0).all() or not abs(pi.sum() - 1) < 1e-6:
        print("Exercise 3: expected four positive probabilities that sum to 1.")
        return
    from bamas_lite.reproduction.loss_study import train_logits
    R = np.array([-100.0, -300.0, -500.0, -900.0])
    found = train_logits(R, "published", "flow", steps=1, start=pi, learning_rate=1.0)[-1]
    if np.allclose(pi, R / R.sum(), atol=1e-6):
        print("Exercise 3: here the flow stands still, and a rounding decides where it ends. Hint: lean a little.")
    elif found.argmax() != 3:
        print(f"Exercise 3: the flow ends at topology no. {found.argmax() + 1}.\nHint: which point repels the flow, "
              "and what does each side of it lead to?")
    elif pi[3] >= 0.55:
        print("Exercise 3: it ends at the worst, but starts with 0.55 or more on it.\nHint: how should the rest be "
              "shared so that none of the others gains on the last?")
    else:
        print("Exercise 3: right.")
