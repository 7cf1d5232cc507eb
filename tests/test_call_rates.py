"""Rates of recorded calls against plain counts and a bootstrap written out."""

import numpy as np
import pandas as pd
import pytest

from bamas_lite.simulator_check.rates import KEPT, REPAIRED, call_rates, critic_rates, rate

COLUMNS = ["task_id", "llm", "role", "style", "earlier", "right", "steps"]


def table(*rows):
    return pd.DataFrame(rows, columns=COLUMNS)


@pytest.fixture(scope="module")
def calls():
    rng, rows = np.random.default_rng(5), []
    for task in range(40):
        for llm in ("A", "B"):
            rows += [(f"t{task}", llm, "critic", "critic", state, bool(rng.random() < p), 0)
                     for state, p in (("wrong", 0.6), ("right", 0.3), ("wrong", 0.6), ("none", 0.9))]
            rows += [(f"t{task}", llm, "executor", "improve", state, bool(rng.random() < p), 0)
                     for state, p in (("wrong", 0.2), ("right", 0.8))]
            rows += [(f"t{task}", llm, "executor", style, None, bool(rng.random() < 0.5), 0)
                     for style in ("solve", "approach", "approach")]
            rows.append((f"t{task}", llm, "planner", "planner", None, False, int(rng.integers(0, 3))))
    return table(*rows)


def test_rates_are_counts_by_kind(calls):
    rates = call_rates(calls, ["A", "B"]).set_index(["what", "llm"])
    mine = calls[calls.llm == "B"]
    for what, part in {
        "plan can be used": (mine[mine.role == "planner"].steps > 0),
        "critic rejects a wrong answer": mine[(mine.role == "critic") & (mine.earlier == "wrong")].right,
        "critic rejects a right answer": mine[(mine.role == "critic") & (mine.earlier == "right")].right,
        KEPT: mine[(mine["style"] == "improve") & (mine.earlier == "right")].right,
        REPAIRED: mine[(mine["style"] == "improve") & (mine.earlier == "wrong")].right,
        "first answer right": mine[mine["style"] == "solve"].right,
        "first answer right, with an approach": mine[mine["style"] == "approach"].right,
    }.items():
        found = rates.loc[(what, "B")]
        assert found.share == pytest.approx(part.mean()) and found.n == len(part), what
        assert found.low < found.share < found.high, what
    never = rates.loc[("first answer right, after a plan", "A")]
    assert never.n == 0 and np.isnan(never.share)


def test_the_interval_resamples_tasks_not_calls():
    many = table(*((f"t{task}", "A", "executor", "solve", None, task % 2 == 0, 0) for task in range(30)
                   for _ in range(20)))    # all calls of a task agree
    share, low, high, n = rate(many)
    assert share == 0.5 and n == 600
    spread = 1.96 * (0.25 / 30) ** 0.5
    assert high - low == pytest.approx(2 * spread, rel=0.15), "as of 30 observations"
    assert high - low > 3 * 2 * 1.96 * (0.25 / 600) ** 0.5


def test_critics_are_judged_by_hits_minus_false_alarms(calls):
    found = critic_rates(calls, ["A", "B"]).set_index("llm")
    critics = calls[(calls.role == "critic") & (calls.llm == "A")]
    by_task = critics.groupby("task_id")
    rng, draws = np.random.default_rng(99), []
    parts = {task: (part[part.earlier == "wrong"].right.to_numpy(), part[part.earlier == "right"].right.to_numpy())
             for task, part in by_task}
    for _ in range(2000):
        chosen = rng.choice(list(parts), len(parts))
        draws.append(np.concatenate([parts[t][0] for t in chosen]).mean()
                     - np.concatenate([parts[t][1] for t in chosen]).mean())
    row = found.loc["A"]
    assert row.hit == pytest.approx(critics[critics.earlier == "wrong"].right.mean())
    assert row.difference == pytest.approx(row.hit - row.false_alarm)
    np.testing.assert_allclose([row.difference_low, row.difference_high], np.quantile(draws, (0.025, 0.975)), atol=0.03)
    assert critic_rates(calls[calls.earlier != "right"], ["A", "B"]).empty


def test_another_seed_moves_the_interval_a_little_and_the_share_not_at_all(calls):
    a, b = call_rates(calls, ["A"], seed=0), call_rates(calls, ["A"], seed=1)
    pd.testing.assert_series_equal(a.share, b.share)
    assert not a.low.equals(b.low) and np.allclose(a.low.dropna(), b.low.dropna(), atol=0.05)


def test_a_critic_that_only_looks_at_the_kind_has_no_difference_within_kinds():
    rng, rows = np.random.default_rng(3), []
    for task in range(200):     # kind "easy": right 8 of 10 times, always rejected; kind "hard": the reverse
        easy = task % 2 == 0
        for _ in range(3):
            state = "right" if rng.random() < (0.8 if easy else 0.2) else "wrong"
            rows.append((f"t{task}", "A", "critic", "critic", state, easy, 0, "easy" if easy else "hard"))
    found = critic_rates(pd.DataFrame(rows, columns=[*COLUMNS, "kind"]), ["A"], within="kind").iloc[0]
    assert found.difference_high < -0.4, "taken together it seems to prefer wrong answers"
    assert found.within == found.within_low == found.within_high == 0


def test_differences_within_kinds_are_weighted_by_their_calls():
    kinds = {"a": (30, 0.9, 0.1), "b": (10, 0.2, 0.6)}
    rows = [(f"{kind}{i}", "A", "critic", "critic", state, i < n * p, 0, kind)
            for kind, (n, hit, alarm) in kinds.items() for state, p in (("wrong", hit), ("right", alarm))
            for i in range(n)]
    rows += [(f"c{i}", "A", "critic", "critic", "wrong", True, 0, "c") for i in range(50)]    # never a right answer
    found = critic_rates(pd.DataFrame(rows, columns=[*COLUMNS, "kind"]), ["A"], within="kind").iloc[0]
    assert found.within == pytest.approx((60 * 0.8 + 20 * -0.4) / 80)
    assert found.within_low < found.within < found.within_high
