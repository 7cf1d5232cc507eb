"""Who is better at matched budgets: differences at each budget and verdicts by area, against plain computations."""

import numpy as np
import pandas as pd
import pytest

from bamas_lite.agentbalance.comparisons import AREAS, SAYS, budgets_in_words, by_budget, compare, in_words, says
from bamas_lite.agentbalance.outcomes import auc_table, curves

BUDGETS = (100, 200, 400, 800)


def outcomes(shares, n_tasks=60, n_seeds=3, spend=1.0, seed=0):
    """Right answers with the given share (method -> one for each budget); spends all of the budget, times `spend`."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame([
        {"method": method, "seed": s, "cost_budget": budget, "latency_budget": 10, "task_id": f"t{t}", "domain": "code",
         "correct": bool(rng.random() < share), "status": "ok", "cost": budget * spend, "latency_s": 1.0, "n_agents": 1,
         "n_edges": 0}
        for method, by_budget in shares.items() for s in range(n_seeds)
        for budget, share in zip(BUDGETS, by_budget, strict=True) for t in range(n_tasks)])


@pytest.mark.parametrize(("low", "high", "what"), [
    (0.01, 0.2, "better"), (-0.2, -0.01, "worse"), (-0.1, 0.1, "not shown"), (0.0, 0.1, "not shown"),
    (-0.1, 0.0, "not shown"), (1e-12, 0.1, "not shown"),
])
def test_an_interval_says_what_its_side_of_zero_says(low, high, what):
    assert says(low, high) == what and what in SAYS


def test_differences_at_a_budget_are_those_of_the_means():
    rows = outcomes({"ours": (0.5, 0.6, 0.7, 0.8), "other": (0.5, 0.6, 0.9, 0.4)})
    table = by_budget(rows, "cost_budget", "ours", resamples=400)
    mean = rows.groupby(["method", "cost_budget"]).correct.mean()
    for row in table.itertuples():
        assert row.difference == pytest.approx(mean[row.method, row.budget] - mean["ours", row.budget])
        assert row.difference_low <= row.difference <= row.difference_high
        assert row.says == says(row.difference_low, row.difference_high)
    other = table[table.method == "other"].set_index("budget").says
    assert other[400] == "better" and other[800] == "worse"
    assert (table[table.method == "ours"][["difference", "difference_low", "difference_high"]] == 0).all(axis=None)
    words = budgets_in_words(table, "other")
    assert "better at 400" in words and "worse at 800" in words and "not shown at 100" in words
    assert budgets_in_words(table, "ours") == "not shown at 100, 200, 400, 800"


def test_a_paired_difference_is_narrower_than_unpaired_ones():
    """A task that both get wrong makes no difference between them."""
    rows = outcomes({"ours": (0.5,) * 4})
    same = pd.concat([rows, rows.assign(method="twin")])
    table = by_budget(same, "cost_budget", "ours", resamples=200)
    assert (table.low < table.high).all() and (table.difference_low == table.difference_high).all()


def test_curves_without_a_reference_are_the_same_and_have_no_differences():
    rows = outcomes({"ours": (0.5, 0.6, 0.7, 0.8), "other": (0.4, 0.6, 0.9, 0.4)})
    plain, paired = curves(rows, resamples=100), curves(rows, reference="ours", resamples=100)
    pd.testing.assert_frame_equal(plain, paired[plain.columns])
    assert "difference" not in plain


@pytest.mark.parametrize("reference", ["nobody", [1], 3])
def test_an_unknown_reference_is_named(reference):
    rows = outcomes({"ours": (0.5, 0.6, 0.7, 0.8), "other": (0.4, 0.6, 0.9, 0.4)})
    for function in (by_budget, compare):
        with pytest.raises(ValueError, match=r"reference = .*expected one of ours, other"):
            function(rows, "cost_budget", reference, resamples=10)


def test_each_kind_of_area_has_its_say():
    """Worse where budgets are small, better where they are large: doublings and budgets disagree."""
    rows = outcomes({"ours": (0.9, 0.9, 0.5, 0.5), "other": (0.3, 0.5, 0.6, 0.8)}, n_tasks=200)
    table = compare(rows, "cost_budget", "ours", resamples=400)
    assert list(table.auc) == sorted(table.auc, reverse=True) and list(table.index) == list(table.method)
    for name, options in AREAS.items():
        expected = auc_table(rows, "cost_budget", "ours", resamples=400, **options).set_index("method").loc["other"]
        column = "says" if name == "log" else name
        assert table.loc["other", column] == says(expected.difference_low, expected.difference_high)
    assert table.loc["other", "says"] == "worse" and table.loc["other", "linear"] == "not shown"
    assert in_words(table, "other").startswith("worse (linear: not shown")
    assert in_words(table, "ours") == "not shown"
    linear = compare(rows, "cost_budget", "ours", scale="linear", resamples=400)
    assert linear.loc["other", "says"] == "not shown" and linear.loc["other", "log"] == "worse"
    assert "linear" not in linear and in_words(linear, "other").startswith("not shown (log: worse")


def test_money_that_is_left_counts_for_the_area_by_spend_only():
    thrifty = outcomes({"ours": (0.6, 0.7, 0.8, 0.9)}, n_tasks=300)
    rows = pd.concat([thrifty, thrifty.assign(method="thrifty", cost=thrifty.cost / 2)])
    table = compare(rows, "cost_budget", "ours", resamples=200)
    assert table.loc["thrifty", "says"] == "not shown" and table.loc["thrifty", "spend"] == "better"


@pytest.mark.parametrize("scale", ["spend", "sqrt", None])
def test_an_unknown_scale_is_named(scale):
    rows = outcomes({"ours": (0.5, 0.6, 0.7, 0.8), "other": (0.4, 0.6, 0.9, 0.4)})
    with pytest.raises(ValueError, match="scale = .*expected 'linear' or 'log'"):
        compare(rows, "cost_budget", "ours", scale=scale, resamples=10)
