"""The checks of notebook 06: hints for what is wrong, never the answer (its solutions notebook has what is right)."""

from math import sqrt

import numpy as np
import pytest

from bamas_lite.exercises.n06 import check_1, check_2, check_3
from bamas_lite.reproduction.results import widened
from bamas_lite.reproduction.streams import spend_stream


def half_width(h, m, n):
    low, high = widened(0.0, -h, h, m, n)
    return (high - low) / 2


def status(holds, parameters, least=200, enough=0.95, few=0.05, ties=0.5, sided=False):
    holds = np.array(holds)
    if len(holds) < least:
        return "not testable here"
    if holds.mean() >= enough:
        return "reproduced"
    if holds.mean() <= few:
        return "differs"
    best = {}
    for name, values in parameters.items():
        yes, no = np.array(values)[holds][:, None], np.array(values)[~holds][None]
        auc = (yes > no).mean() + ties * (yes == no).mean()
        best[name] = auc if sided else abs(auc - 0.5)
    return "depends on " + max(best, key=best.get)


def exact(values, costs, total):
    return spend_stream(values, costs, total).option.tolist()


def cheapest(values, costs, total):
    return [int(np.argmin(c)) for c in costs]


def greedy(values, costs, total):
    picks = cheapest(values, costs, total)
    for i, (v, c) in enumerate(zip(values, costs, strict=True)):
        left = total - sum(costs[j][p] for j, p in enumerate(picks)) + c[picks[i]]
        picks[i] = max((j for j in range(len(c)) if c[j] <= left), key=lambda j: v[j])
    return picks


@pytest.mark.parametrize(("check", "answer"), [(check_1, half_width), (check_1, lambda h, m, n: h * sqrt(1 + m / n)),
                                               (check_2, status), (check_3, exact)])
def test_what_is_right_is_right(check, answer, capsys):
    check(answer)
    assert capsys.readouterr().out.endswith(": right.\n")


@pytest.mark.parametrize(("check", "answer", "words"), [
    (check_1, None, "set answer_1"), (check_1, 2.0, "expected a function"), (check_1, lambda h: h, "raised TypeError"),
    (check_1, lambda h, m, n: h, "published figure scatters too"), (check_1, lambda h, m, n: h * sqrt(2), "with h = 2"),
    (check_1, lambda h, m, n: h * (1 + sqrt(m / n)), "squares do"), (check_1, lambda *a: "2", "finite number"),
    (check_1, lambda h, m, n: h * sqrt(1 + n / m), "wrong way round"), (check_1, lambda *a: 0.0, "variance of a mean"),
    (check_1, lambda h, m, n: h * sqrt(m / n), "ours does too"),
    (check_2, None, "set answer_2"), (check_2, lambda *a: 1, "returns a text"), (check_2, 3, "expected a function"),
    (check_2, lambda *a: "reproduced", "so few draws"), (check_2, lambda *a: 1 / 0, "raised ZeroDivisionError"),
    (check_2, lambda h, p: status(h, p, enough=0.9501), "includes 95%"),
    (check_2, lambda h, p: status(h, p, few=0.0499), "includes 5%"),
    (check_2, lambda h, p: status(h, p, sided=True), "always smaller"),
    (check_2, lambda h, p: status(h, p, ties=0), "ties count half"),
    (check_3, None, "set answer_3"), (check_3, cheapest, "a better choice"), (check_3, greedy, "a better choice"),
    (check_3, lambda v, c, t: [int(np.argmax(row)) for row in v], "more than the total"),
    (check_3, lambda *a: [0], "one option for each task"), (check_3, len, "raised TypeError"),
    (check_3, lambda v, c, t: [9] * len(v), "numbers of columns"), (check_3, 3, "expected a function"),
])
def test_what_is_wrong_gets_a_hint(check, answer, words, capsys):
    check(answer)
    said = capsys.readouterr().out
    assert words in said and said.startswith("Exercise") and "right.\n" not in said.replace("not right.", "")
