"""Curves, areas and intervals against closed forms, pandas and a naive bootstrap."""

import itertools
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from bamas_lite.agentbalance.outcomes import COLUMNS, auc, auc_table, best_within, curves, without_errors


def frame(correct, cost=None, budgets=(100, 200, 400), by="cost_budget", methods=None):
    """Outcomes from an array correct (methods, seeds, budgets, tasks)."""
    correct = np.asarray(correct)
    methods = methods or [f"method {m}" for m in range(len(correct))]
    rows = [{"method": methods[m], "seed": s + 40, "cost_budget": 1000.0, "latency_budget": math.inf,
             "task_id": f"task {t}", "domain": "code", "correct": bool(correct[m, s, b, t]), "status": "ok",
             "cost": 10.0 * (b + 1) if cost is None else cost[m, s, b, t], "latency_s": 2.0 + b, "n_agents": 2,
             "n_edges": 1} | {by: budgets[b]}
            for m, s, b, t in itertools.product(*map(range, correct.shape))]
    return pd.DataFrame(rows)[list(COLUMNS)]


@pytest.fixture(scope="module")
def noise():
    rng = np.random.default_rng(3)
    shape = (3, 4, 3, 25)
    skill, ease = rng.normal(0, 0.5, (3, 4, 1, 1)), rng.normal(size=(1, 1, 1, 25))
    correct = skill + ease + np.arange(3)[:, None] / 2 + rng.normal(size=shape) > 0
    cost = rng.uniform(20, 100, shape) * np.array([1, 2, 4])[:, None]
    return correct, cost, frame(correct, cost)


@given(st.lists(st.floats(0.1, 1e4), min_size=2, max_size=8, unique=True).map(sorted), st.integers(0, 99))
def test_auc_is_the_trapezoid_over_the_width(x, seed):
    y = np.random.default_rng(seed).uniform(size=(2, len(x)))
    for scale, at in (("linear", np.array(x)), ("log", np.log(x))):
        if (np.diff(at) <= 0).any():
            continue
        expected = integrate.trapezoid(y, at, axis=1) / (at[-1] - at[0])
        np.testing.assert_allclose(auc(x, y, scale), expected, rtol=1e-9, atol=1e-12)
        assert auc(x, y[0], scale) == pytest.approx(expected[0])
        assert auc(x, np.full(len(x), 0.7), scale) == pytest.approx(0.7)


def test_auc_closed_forms():
    x = np.linspace(1, 3, 9)
    assert auc(x, 5 * x) == pytest.approx(10)  # mean of a line: its middle
    assert auc([1, 10, 100], [0, 1, 0], "log") == pytest.approx(0.5)  # decades count the same
    assert auc([1, 10, 100], [0, 1, 1]) == pytest.approx((4.5 + 90) / 99)
    assert isinstance(auc([1, 2], [0, 1]), float)


@given(st.integers(0, 10**6))
def test_best_within_is_the_best_affordable_point(seed):
    rng = np.random.default_rng(seed)
    n, shape = rng.integers(1, 6), (2, 3)
    spend, accuracy = rng.integers(0, 6, (*shape, n)), rng.uniform(-0.2, 1, (*shape, n))
    grid = rng.integers(-1, 7, 4)
    found = best_within(spend, accuracy, grid)
    assert found.shape == (*shape, 4)
    for i in np.ndindex(shape):
        for g, b in enumerate(grid):
            affordable = [a for s, a in zip(spend[i], accuracy[i], strict=True) if s <= b]
            assert found[(*i, g)] == max(affordable, default=0)


def test_curves_are_means(noise):
    correct, cost, outcomes = noise
    shuffled = outcomes.sample(frac=1, random_state=1)
    found = curves(shuffled, resamples=50)
    assert found.columns.tolist() == ["method", "budget", "accuracy", "low", "high", "cost", "latency_s", "infeasible",
                                      "n_tasks", "n_seeds"]
    assert found.method.unique().tolist() == shuffled.method.unique().tolist()
    expected = outcomes.groupby(["method", "cost_budget"])[["correct", "cost", "latency_s"]].mean()
    found = found.set_index(["method", "budget"]).sort_index()
    np.testing.assert_allclose(found[["accuracy", "cost", "latency_s"]].to_numpy(float), expected.to_numpy(float))
    assert (found.infeasible == 0).all() and (found.n_tasks == 25).all() and (found.n_seeds == 4).all()
    assert ((found.low <= found.accuracy) & (found.accuracy <= found.high) & (found.low < found.high)).all()


def test_infeasible_counts_as_wrong(noise):
    outcomes = noise[2].assign(correct=True)
    outcomes.loc[(outcomes.cost_budget == 100) & (outcomes.task_id < "task 2"), "status"] = "infeasible"
    share = outcomes[outcomes.cost_budget == 100].status.eq("infeasible").mean()
    assert 0 < share < 1
    found = curves(outcomes, resamples=20)
    at_least = found[found.budget == 100]
    np.testing.assert_allclose(at_least.infeasible, share)
    np.testing.assert_allclose(at_least.accuracy, 1 - share)
    assert (found[found.budget > 100].accuracy == 1).all()
    unknown = outcomes.assign(correct=outcomes.correct.astype(object).where(outcomes.status == "ok", None))
    pd.testing.assert_frame_equal(curves(unknown, resamples=20), found)


def test_tasks_are_resampled():
    # one seed: the number of right answers of a resample is binomial
    correct = np.arange(60) < 21
    found = curves(frame(correct[None, None, None], budgets=(100,)), resamples=20000, level=0.9)
    expected = stats.binom.ppf([0.05, 0.95], 60, 21 / 60) / 60
    np.testing.assert_allclose(found.loc[0, ["low", "high"]].to_numpy(float), expected, atol=1.01 / 60)


def test_seeds_are_resampled_too():
    # two seeds that disagree on everything: both seeds are the same one in half of the resamples
    correct = np.stack([np.zeros((1, 30)), np.ones((1, 30))])[None]
    found = curves(frame(correct, budgets=(100,)), resamples=400)
    assert found.loc[0, ["low", "accuracy", "high"]].tolist() == [0, 0.5, 1]


def test_intervals_are_those_of_a_naive_crossed_bootstrap(noise):
    correct, _, outcomes = noise
    rng = np.random.default_rng(8)
    n_seeds, n_tasks = correct.shape[1], correct.shape[3]
    areas = []
    for _ in range(8000):
        seeds, tasks = rng.integers(n_seeds, size=n_seeds), rng.integers(n_tasks, size=n_tasks)
        accuracy = correct[:, seeds][..., tasks].mean(axis=(1, 3))
        areas.append(integrate.trapezoid(accuracy, [100, 200, 400], axis=1) / 300)
    areas = np.array(areas)
    table = auc_table(outcomes, "cost_budget", "method 0", resamples=8000)
    ends = np.quantile(areas, [0.025, 0.975], axis=0).T
    np.testing.assert_allclose(table[["low", "high"]], ends, atol=0.015)
    ends = np.quantile(areas - areas[:, :1], [0.025, 0.975], axis=0).T
    np.testing.assert_allclose(table[["difference_low", "difference_high"]], ends, atol=0.015)


def test_differences_are_paired():
    # the second method is right wherever the first is, and on four tasks more: tasks vary, the difference less
    easy = np.tile(np.arange(40) < 20, (3, 2, 1))
    better = np.tile(np.arange(40) < 24, (3, 2, 1))
    table = auc_table(frame([easy, better], budgets=(100, 300)), "cost_budget", "method 0", resamples=3000)
    assert table.loc[0, ["difference", "difference_low", "difference_high"]].tolist() == [0, 0, 0]
    assert table.difference[1] == pytest.approx(0.1)
    expected = stats.binom.ppf([0.025, 0.975], 40, 0.1) / 40
    found = table.loc[1, ["difference_low", "difference_high"]].to_numpy(float)
    np.testing.assert_allclose(found, expected, atol=1.01 / 40)
    assert table.high[1] - table.low[1] > 1.4 * np.ptp(found)


def test_areas_by_budget_and_by_spend(noise):
    correct, cost, outcomes = noise
    accuracy, spend = correct.mean(axis=(1, 3)), cost.mean(axis=(1, 3))
    budgets = np.array([100, 200, 400])
    table = auc_table(outcomes, "cost_budget", resamples=20)
    assert table.columns.tolist() == ["method", "auc", "low", "high"]
    np.testing.assert_allclose(table.auc, integrate.trapezoid(accuracy, budgets, axis=1) / 300)
    table = auc_table(outcomes, "cost_budget", scale="log", resamples=20)
    np.testing.assert_allclose(table.auc, integrate.trapezoid(accuracy, np.log(budgets), axis=1) / np.log(4))
    for grid in (None, [50, 80, 130, 250, 300]):
        at = budgets if grid is None else np.array(grid)
        best = [[max([a for s, a in zip(spend[m], accuracy[m], strict=True) if s <= b], default=0) for b in at]
                for m in range(3)]
        table = auc_table(outcomes, "cost_budget", against="spend", grid=grid, resamples=20)
        np.testing.assert_allclose(table.auc, integrate.trapezoid(best, at, axis=1) / np.ptp(at))


def test_latency_budgets_use_latency():
    correct = np.random.default_rng(0).random((2, 2, 3, 10)) < 0.5
    outcomes = frame(correct, by="latency_budget", budgets=(1.0, 3.0, 9.0))
    assert curves(outcomes, "latency_budget", resamples=10).budget.tolist() == [1, 3, 9] * 2
    # seconds spent are 2, 3 and 4: at 1 nothing is affordable, at 3 the first two points, at 9 all
    table = auc_table(outcomes, "latency_budget", against="spend", resamples=10)
    a = correct.mean(axis=(1, 3))
    best = np.stack([np.zeros(2), a[:, :2].max(axis=1), a.max(axis=1)], axis=1)
    np.testing.assert_allclose(table.auc, integrate.trapezoid(best, [1, 3, 9], axis=1) / 8)
    assert (auc_table(outcomes, "latency_budget", against="spend", resamples=10).auc
            != auc_table(outcomes, "latency_budget", resamples=10).auc).any()


def test_the_same_every_time(noise):
    outcomes = noise[2]
    one, other = (auc_table(outcomes, "cost_budget", "method 1", resamples=100) for _ in range(2))
    pd.testing.assert_frame_equal(one, other)
    assert not one.equals(auc_table(outcomes, "cost_budget", "method 1", resamples=100, seed=1))


def test_without_errors_leaves_a_task_out_for_all(noise):
    outcomes = noise[2].copy()
    outcomes.loc[[5, 100], ["status", "correct", "cost"]] = ["error", False, np.nan]
    failed = set(outcomes.task_id[[5, 100]])
    with pytest.raises(ValueError, match=r"2 rows with status 'error', first method 'method 0', seed 40, "
                                         r"cost_budget 100(\.0)?, task_id 'task 5'; .*without_errors\(outcomes\)"):
        curves(outcomes)
    kept = without_errors(outcomes)
    assert set(kept.task_id) == set(outcomes.task_id) - failed
    assert (curves(kept, resamples=10).n_tasks == 25 - len(failed)).all()


def changed(outcomes, row, column, value):
    outcomes = outcomes.astype({column: object})
    outcomes.loc[row, column] = value
    return outcomes


@pytest.mark.parametrize(("change", "message"), [
    (lambda o: o.iloc[:0], "expected a DataFrame with at least one row"),
    (lambda o: None, "outcomes = None: expected a DataFrame"),
    (lambda o: o.drop(columns=["cost", "seed"]), "outcomes: no column seed, cost; expected method, seed"),
    (lambda o: o.drop(index=7), r"no row for seed 40, task_id 'task 7', method 'method 0', cost_budget 100 "
                                r"\(1 of 900 rows are missing\)"),
    (lambda o: o[(o.method != "method 1") | (o.seed < 43)], r"no row for seed 43, .*\(75 of 900 rows are missing\)"),
    (lambda o: pd.concat([o, o.iloc[[3]]]), "more than one row for method 'method 0', seed 40, cost_budget 100, task_id"
                                            " 'task 3'"),
    (lambda o: o.assign(latency_budget=np.arange(len(o)) % 2 + 1.0),
     r"by = 'cost_budget': outcomes hold several values of latency_budget \(1, 2\); expected the rows of one"),
    (lambda o: changed(o, 4, "status", "fine"), "row 4: status = 'fine': expected ok or infeasible or error"),
    (lambda o: changed(o, 4, "correct", None), "row 4: correct = None: expected true or false"),
    (lambda o: changed(o, 4, "correct", 0.5), "row 4: correct = 0.5: expected true or false"),
    (lambda o: changed(o, 4, "cost", -1.0), "row 4: cost = -1.0: expected a finite number of at least 0"),
    (lambda o: changed(o, 4, "latency_s", math.inf), "row 4: latency_s = inf: expected a finite number"),
    (lambda o: changed(o, 4, "cost", "free"), "row 4: cost = 'free': expected a finite number"),
    (lambda o: changed(o, 4, "cost_budget", 0), "row 4: cost_budget = 0: expected a positive number"),
    (lambda o: changed(o, 4, "task_id", None), "row 4: task_id = None: expected a value"),
    (lambda o: o.astype({"cost_budget": str}), "row 0: cost_budget = '100': expected a positive number"),
    (lambda o: changed(o, 4, "cost", "1.5"), "row 4: cost = '1.5': expected a finite number"),
    (lambda o: changed(o, 4, "cost", True), "row 4: cost = True: expected a finite number"),
    (lambda o: changed(o, 4, "cost", 1e308), r"row 4: cost = 1e\+308: expected a finite number"),
    (lambda o: changed(o, 4, "latency_s", 10**400), r"row 4: latency_s = 1000.*\.\.\.: expected a finite number"),
    (lambda o: changed(o, 4, "latency_budget", 1j), "row 4: latency_budget = 1j: expected a positive number"),
    (lambda o: changed(o, 4, "cost", pd.NA), "row 4: cost = <NA>: expected a finite number"),
    *((lambda o, name=name: o.assign(**{name: [[1]] * len(o)}), rf"row 0: {name} = \[1\]: expected")
      for name in ("method", "seed", "task_id", "status", "correct", "cost_budget")),
    (lambda o: pd.concat([o, o[["cost"]]], axis=1), "outcomes: more than one column cost; expected one of each"),
])
def test_outcomes_that_cannot_be_used(noise, change, message):
    for function in (curves, auc_table):
        with pytest.raises(ValueError, match=message):
            function(change(noise[2]))


@pytest.mark.parametrize(("function", "options", "message"), [
    (curves, {"by": "budget"}, "by = 'budget': expected 'cost_budget' or 'latency_budget'"),
    (curves, {"by": "latency_budget"}, "outcomes hold several values of cost_budget"),
    (curves, {"resamples": 0}, "resamples = 0: expected a whole number of at least 1"),
    (curves, {"seed": -1}, "seed = -1: expected a whole number"),
    (curves, {"level": 1}, "level = 1: expected a number between 0 and 1"),
    (auc_table, {"reference": "BAMAS"}, "reference = 'BAMAS': expected one of method 0, method 1, method 2"),
    (auc_table, {"reference": np.array([1, 2])}, "reference = array.*: expected one of method 0"),
    (auc_table, {"scale": np.array(["log", "linear"])}, "scale = array.*: expected 'linear' or 'log'"),
    (auc_table, {"against": np.array([1, 2])}, "against = array.*: expected 'budget' or 'spend'"),
    (curves, {"by": ["cost_budget"]}, r"by = \['cost_budget'\]: expected 'cost_budget'"),
    (auc_table, {"grid": [True, False], "against": "spend"}, "grid = .*: expected an array of numbers"),
    (auc_table, {"scale": "cubic"}, "scale = 'cubic': expected 'linear' or 'log'"),
    (auc_table, {"against": "time"}, "against = 'time': expected 'budget' or 'spend'"),
    (auc_table, {"grid": [1, 2]}, "grid: only with against = 'spend'"),
    (auc_table, {"grid": [2, 1], "against": "spend"}, r"grid = \[2.0, 1.0\]: expected at least two rising values"),
    (auc_table, {"grid": [0, 1], "against": "spend", "scale": "log"}, "expected positive values, as scale = 'log'"),
])
def test_wrong_options(noise, function, options, message):
    with pytest.raises(ValueError, match=message):
        function(noise[2], **options)


@pytest.mark.parametrize("values", [
    ["1", "2"], [None, 1.0], [False, True], [False, 2.0], np.array([1, 2j]), np.array([1, 2], "M8[D]"), [[1], [1, 2]],
    {}, np.array([object(), 1]), [1, 10**400], np.ma.array([1.0, 2.0], mask=[0, 1]), None, {1.0, 2.0}, "12",
])
def test_what_numpy_would_take_for_numbers(values):
    good, message = [1.0, 2.0], ": expected an array of numbers$"
    for what, call in (("x", lambda: auc(values, good)), ("y", lambda: auc(good, values)),
                       ("spend", lambda: best_within(values, good, good)),
                       ("accuracy", lambda: best_within(good, values, good)),
                       ("grid", lambda: best_within(good, good, values))):
        with pytest.raises(ValueError, match=f"^{what} = .*{message}"):
            call()


@pytest.mark.parametrize("values", [[0, 1e308], [-1e308, 1.0], [0, math.nan], [0, math.inf],
                                    np.array([0, np.longdouble("1e4000")]), pd.array([1, None], dtype="Int64")])
def test_numbers_whose_sums_fit_no_float(values):
    for call in (lambda: auc(values, [1, 2]), lambda: auc([1, 2], values), lambda: best_within(values, [1, 2], [1])):
        with pytest.raises(ValueError, match=r"expected finite numbers, -1e\+100 to 1e\+100$"):
            call()
    assert auc([-1e100, 1e100], [1e100, 1e100]) == 1e100


def test_numbers_of_any_kind_are_the_same_numbers(noise):
    outcomes = noise[2]
    expected = curves(outcomes, resamples=5)
    for kind in (Fraction, Decimal, np.float32):
        other = outcomes.assign(cost_budget=[kind(int(b)) for b in outcomes.cost_budget])
        pd.testing.assert_frame_equal(curves(other.astype({"cost_budget": object}), resamples=5), expected)


def test_wrong_numbers():
    one_budget = frame(np.ones((1, 1, 1, 2)), budgets=(100,))
    with pytest.raises(ValueError, match=r"cost_budget = \[100.0\]: expected at least two rising values"):
        auc_table(one_budget)
    unlimited = frame(np.ones((1, 1, 2, 2)), by="latency_budget", budgets=(5.0, math.inf))
    with pytest.raises(ValueError, match=r"latency_budget = .*inf.*: expected finite numbers"):
        auc_table(unlimited, "latency_budget")
    assert curves(unlimited, "latency_budget", resamples=5).budget.tolist() == [5, math.inf]
    with pytest.raises(ValueError, match=r"y: shape \(3,\); expected \(..., 2\)"):
        auc([1, 2], [1, 2, 3])
    with pytest.raises(ValueError, match=r"x = \[1.0, 1.0\]: expected at least two rising values"):
        auc([1, 1], [1, 2])
    with pytest.raises(ValueError, match="x = .*expected an array of numbers"):
        auc(["a", "b"], [1, 2])
    with pytest.raises(ValueError, match="spend and accuracy: shapes"):
        best_within([1, 2], [1], [3])
    with pytest.raises(ValueError, match=r"grid: shape \(0,\)"):
        best_within([1, 2], [1, 1], [])
