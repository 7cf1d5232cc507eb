"""The checks of notebook 03: hints for what is wrong, never the answer (its solutions notebook has what is right)."""

import numpy as np
import pytest

from bamas_lite.exercises.n03 import check_1, check_2, check_3


def binomial(p, rho):
    return p**3 + 3 * p**2 * (1 - p)


@pytest.mark.parametrize(("check", "answer", "words"), [
    (check_1, None, "set answer_1"), (check_1, 3, "expected a dict"),
    (check_1, {"rows": 1, "saved": 1, "twice": 1}, "rows is not right"),
    (check_1, {"rows": 90 * 12 * 2, "saved": 7 * 240, "twice": 100}, "saved is not right"),
    (check_1, {"rows": 90 * 12 * 2, "saved": 240 * 6 + 120, "twice": 0}, "twice is not right"),
    (check_2, None, "set answer_2"), (check_2, lambda r, mu, pi: 1 / 0, "raised ZeroDivisionError"),
    (check_2, lambda r, mu, pi: (pi / mu * r).sum(), "not a sum"),
    (check_2, lambda r, mu, pi: r.mean(), "where does pi come in"),
    (check_2, lambda r, mu, pi: (pi * r).mean(), "seen often"),
    (check_2, lambda r, mu, pi: (pi * 4 * r).mean(), "a skewed mu"),
    (check_3, None, "set answer_3"), (check_3, lambda p, rho: p, "binomial"), (check_3, binomial, "become one"),
    (check_3, lambda p, rho: p if rho > 0.99 else binomial(p, rho), "average a majority's chance"),
    (check_3, lambda p: p, "raised TypeError"),
])
def test_what_is_wrong_gets_a_hint(check, answer, words, capsys):
    check(answer)
    said = capsys.readouterr().out
    assert words in said and said.startswith("Exercise") and "right." not in said.replace("not right.", "")
    assert str(240 * 6 + 120) not in said
    assert not said.endswith(("?.\n", "..\n"))


def test_the_majority_by_simulation(capsys):
    rng, n = np.random.default_rng(0), 200_000
    shared, own = rng.standard_normal(n), rng.standard_normal((3, n))

    def drawn(p, rho):
        threshold = np.quantile(rng.standard_normal(n * 10), 1 - p)
        views = np.sqrt(rho) * shared + np.sqrt(1 - rho) * own
        return ((views > threshold).sum(axis=0) >= 2).mean()

    from bamas_lite.exercises import n03
    for p in (0.2, 0.6, 0.9):
        for rho in (0.0, 0.5, 0.8):
            assert n03._majority(p, rho) == pytest.approx(drawn(p, rho), abs=0.006)
