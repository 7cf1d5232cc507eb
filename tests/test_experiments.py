"""Values against direct computation, baselines, intervals."""

import numpy as np
import pandas as pd
import pytest
from synthetic import synthetic_log

from bamas_lite.casting import TOPOLOGIES
from bamas_lite.experiments import as_text, baselines, bootstrap_interval, choose, differences, evaluate
from bamas_lite.policy import OUR_REWARDS, LogTable, TopologyPolicy, reward


@pytest.fixture(scope="module")
def data():
    return synthetic_log(n_tasks=40, budgets=(500, 2000), seeds=(0, 1, 2))


@pytest.fixture(scope="module")
def table(data):
    return LogTable.from_log(data[1], complete=True)


@pytest.fixture(scope="module")
def train():
    return LogTable.from_log(synthetic_log(n_tasks=60, budgets=(500, 2000), seed=5)[1], complete=True)


def direct(log, chosen):
    """Accuracy, cost and reward of a choice {(task, budget): topology}, row by row."""
    rows = log[[chosen[key] == t for *key, t in zip(log.task_id, log.budget, log.topology, strict=True)
                for key in [tuple(key)]]]
    R = reward(rows.correct, rows.cost, rows.budget, OUR_REWARDS, rows.status)
    return rows.correct.mean(), rows.cost.mean(), R.mean()


def test_values_against_the_rows(data, table):
    _, log = data
    rng = np.random.default_rng(0)
    chosen = rng.integers(4, size=len(table))
    values = evaluate({"mine": np.eye(4)[chosen]}, table, resamples=50)
    key = {(i, b): TOPOLOGIES[t] for i, b, t in zip(table.task_id, table.budget, chosen, strict=True)}
    np.testing.assert_allclose(values[["correct", "cost", "reward"]].to_numpy()[0], direct(log, key))
    np.testing.assert_allclose(values[[f"share_{t}" for t in TOPOLOGIES]].to_numpy()[0],
                               np.bincount(chosen, minlength=4) / len(table))
    assert values.n_tasks.item() == 40 and values.n_seeds.item() == 1
    by_budget = evaluate({"mine": np.eye(4)[chosen]}, table, by="budget", resamples=50)
    assert by_budget.budget.tolist() == [500, 2000]
    for _, row in by_budget.iterrows():
        here = log[log.budget == row.budget]
        np.testing.assert_allclose(row[["correct", "cost", "reward"]].to_numpy(float), direct(here, key))


def test_a_sampled_choice_is_the_expectation(data, table):
    pi = np.random.default_rng(1).dirichlet(np.ones(4), size=len(table))
    values = evaluate({"mine": pi}, table, resamples=50)
    assert values.correct.item() == pytest.approx((pi * table.correct).sum(1).mean())
    assert values.cost.item() == pytest.approx((pi * table.cost).sum(1).mean())


def test_baselines(table, train):
    choices = baselines(table, train)
    means = train.R.mean(axis=0)
    assert (choices["best fixed"].argmax(1) == means.argmax()).all()
    for budget in (500, 2000):
        best = train.R[train.budget == budget].mean(axis=0).argmax()
        assert (choices["best per budget"][table.budget == budget].argmax(1) == best).all()
    value = evaluate(choices, table, resamples=50).set_index("choice").reward
    assert value["oracle"] == pytest.approx(table.R.max(axis=1).mean())
    assert value["random"] == pytest.approx(table.R.mean())
    assert value["oracle"] >= value.max()
    assert value[[f"always {t}" for t in TOPOLOGIES]].to_numpy() == pytest.approx(table.R.mean(axis=0))
    with pytest.raises(ValueError, match="budget 2000 is not in the training log; it has 500"):
        baselines(table, train.select(train.budget == 500))


def test_choose(data, table, monkeypatch):
    tasks, _ = data
    question = {t.task_id: t.question for t in tasks}
    seen = []

    class Fake(TopologyPolicy):
        def __init__(self):
            pass

        def probabilities(self, questions, budgets, *, allowed=TOPOLOGIES):
            seen.append((questions, budgets, allowed))
            return np.tile([0.1, 0.2, 0.3, 0.4], (len(questions), 1))

    assert (choose(Fake(), table, tasks=tasks).argmax(1) == 3).all()
    assert choose(Fake(), table, tasks=tasks, mode="sample", allowed=["star"])[0].tolist() == [0.1, 0.2, 0.3, 0.4]
    assert seen[1] == ([question[i] for i in table.task_id], seen[1][1], ["star"])
    assert (seen[1][1] == table.budget).all()
    with pytest.raises(ValueError, match="mode = 'best'"):
        choose(Fake(), table, tasks=tasks, mode="best")


def test_differences_are_paired(table):
    better = np.zeros((len(table), 4))
    better[:, 1] = 1
    worse = 0.5 * better
    worse[:, 0] = 0.5
    d = differences({"a": better, "b": worse}, table, "b", resamples=500)
    assert d.choice.tolist() == ["a"]
    expected = 0.5 * (table.correct[:, 1] - table.correct[:, 0])
    assert d.correct.item() == pytest.approx(expected.mean())
    per_task = [expected[table.task_id == i].mean() for i in np.unique(table.task_id)]
    low, high = bootstrap_interval(np.array(per_task), resamples=500)
    assert (d.correct_low.item(), d.correct_high.item()) == pytest.approx((low, high))
    # The same choice twice, with other training seeds: the draws of tasks cancel, nothing is left.
    none = differences({"a": [better, better], "b": better}, table, "b", resamples=100)
    assert none[["correct", "correct_low", "correct_high"]].to_numpy().ravel() == pytest.approx([0, 0, 0])
    with pytest.raises(ValueError, match="against = 'c': expected one of a, b"):
        differences({"a": better, "b": worse}, table, "c")


def test_intervals_cover_the_truth():
    """Of 95% intervals about 95% hold the true mean: tasks alone, and tasks with training seeds."""
    rng = np.random.default_rng(0)
    hits = [low <= 0.3 <= high for low, high in
            (bootstrap_interval((rng.random(60) < 0.3).astype(float), resamples=400, seed=i) for i in range(300))]
    assert 0.90 < np.mean(hits) < 0.99
    both = []
    for i in range(300):  # an effect of the seed, of the task, and noise
        y = rng.normal(size=(12, 1)) + 3 * rng.normal(size=60) + rng.normal(size=(12, 60))
        low, high = bootstrap_interval(y, resamples=400, seed=i)
        both.append(low <= 0 <= high)
    assert 0.88 < np.mean(both) < 0.99


def test_interval_against_the_normal_theory():
    y = np.random.default_rng(2).normal(size=400)
    low, high = bootstrap_interval(y, resamples=4000)
    half = 1.96 * y.std() / 20
    assert (low, high) == pytest.approx((y.mean() - half, y.mean() + half), abs=0.1 * half)


def test_wrong_input(data, table):
    _, log = data
    with pytest.raises(ValueError, match=r"choice 'x': shape \(3, 4\); expected \(80, 4\)"):
        evaluate({"x": np.zeros((3, 4))}, table)
    with pytest.raises(ValueError, match="by = 'team'"):
        evaluate({"x": np.zeros((80, 4))}, table, by="team")
    holes = LogTable.from_log(log[log.topology != "star"])
    with pytest.raises(ValueError, match="lack a topology"):
        evaluate({"x": np.zeros((80, 4))}, holes)


def test_as_text_rounds_the_same_everywhere(table):
    halves = pd.DataFrame({"choice": ["a", "b"], "correct": [0.12345, -0.0001], "correct_low": [0.1, -0.2],
                           "correct_high": [0.2, 0.3], "reward": [0.0125, -0.0125], "reward_low": [-0.0004, -1],
                           "reward_high": [1, 1]})
    last_bit = halves.select_dtypes("number").map(lambda v: np.nextafter(v, -np.inf))
    text = as_text(halves, ("correct", "reward"))
    assert text == as_text(halves.assign(**last_bit), ("correct", "reward"))
    assert "12.3 [10.0, 20.0]" in text and " 0.0 [-20.0, 30.0]" in text and "0.013 [0.000, 1.000]" in text
    assert "-0.012 [-1.000, 1.000]" in text
    values = evaluate({"mine": np.full((len(table), 4), 0.25)}, table, by="budget", resamples=50)
    assert [line.split()[:2] for line in as_text(values).splitlines()[1:]] == [["mine", "500.0"], ["mine", "2000.0"]]
