"""The self-checks of notebooks 01 and 02: right about right ones, a hint for each wrong one."""

import pytest

from bamas_lite.exercises import n01, n02


def said(capsys, check, answer):
    check(answer)
    text = capsys.readouterr().out
    assert len(text.splitlines()) == 1
    return text


@pytest.mark.parametrize("module", [n01, n02])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_an_open_exercise_says_what_to_do(module, number, capsys):
    text = said(capsys, getattr(module, f"check_{number}"), None)
    assert f"Exercise {number}: set answer_{number} to" in text and "right" not in text
    assert f"answer_{number} = " in getattr(module, f"exercise_{number}")


@pytest.mark.parametrize("answer, words", [
    ([66, 11, 1], "right."), ((66, 11, 1), "right."), ([66, 11, 2], "W_3 is not right"),
    ([66, 10, 1], "W_2 is not right"), ([55, 11, 1], "W_1 is not right"),
    ([66, 11], "expected three"), ("abc", "expected three"), (7, "expected three")])
def test_weights_by_hand(answer, words, capsys):
    assert words in said(capsys, n01.check_1, answer)


@pytest.mark.parametrize("answer, words", [
    (([[9], [8], [1, 9]], 9), "right."), (([[9], [4, 6], [2]], 20), "not yet"),
    (([[9], [8]], 9), "expected three tiers"), (([[9], [8], [1, 9]], 41), "at most 40"),
    (([[9], [8], [1, 9]], 1), "no team of two"), (5, "expected three tiers"),
    (([[9], [8], [0, 9]], 9), "expected three tiers")])
def test_a_counterexample_to_the_average(answer, words, capsys):
    assert words in said(capsys, n01.check_2, answer)


def tight(costs, budget, max_copies):
    weights = [1]
    for c in reversed(costs[1:]):
        weights.insert(0, weights[0] * (1 + min(budget // c, max_copies)))
    return weights


@pytest.mark.parametrize("answer, words", [
    (tight, "right."), (lambda c, b, m: n01.recursive_weights(c, b), "can be smaller"),
    (lambda c, b, m: [1] * len(c), "do not make"), (lambda c, b, m: [1], "weights, got 1"),
    (lambda c, b, m: 1 / 0, "ZeroDivisionError")])
def test_smaller_weights(answer, words, capsys):
    assert words in said(capsys, n01.check_3, answer)


@pytest.mark.parametrize("answer, words", [
    (1.276, "right."), ("1.276", "right."), (1.277, "no two of them"), (1.2, "may cost even more"), (-1, "not a price"),
    ("x", "not a price"), (0, "may cost even more")])
def test_the_highest_price(answer, words, capsys):
    assert words in said(capsys, n02.check_1, answer)


def in_time(costs, seconds, budget, limit):
    teams = [(a, b, c) for a in range(6) for b in range(6) for c in range(6 if len(costs) == 3 else 1)]
    costs, seconds = [*costs, 0], [*seconds, 0]
    fits = [n for n in teams if sum(n) >= 2 and sum(k * c for k, c in zip(n, costs, strict=False)) <= budget
            and sum(k * s for k, s in zip(n, seconds, strict=False)) <= limit]
    return max(fits)[:len(costs) - 1] if fits else None


@pytest.mark.parametrize("answer, words", [
    (in_time, "right."), (lambda c, s, b, t: None, "there is a team"), (lambda c, s, b, t: in_time(c, c, b, b), "Hint"),
    (lambda c, s, b, t: 1 / 0, "ZeroDivisionError"), (lambda c, s, b, t: (9,) * len(c), "breaks a rule")])
def test_teams_in_time(answer, words, capsys):
    assert words in said(capsys, n02.check_2, answer)


@pytest.mark.parametrize("answer, words", [
    (1318.4, "right."), ("1318.4", "right."), (1318.3, "1 of them"), (1400, "smaller budget"), (1, "0 of them"),
    ("x", "not a budget"), (-5, "not a budget")])
def test_the_feedback_budget(answer, words, capsys):
    assert words in said(capsys, n02.check_3, answer)
