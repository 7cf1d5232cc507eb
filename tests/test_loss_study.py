"""The published loss: formulas against an independent projection, autograd, torch's optimizers and training itself."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize
from synthetic import pseudo_encode, synthetic_log

from bamas_lite.losses import expectation_loss, importance_loss, published_loss
from bamas_lite.policy import CODE_REWARDS, OUR_REWARDS, LogTable, train_policy
from bamas_lite.reproduction.loss_study import (
    REGIMES,
    SCALINGS,
    average_by_budget,
    choice_values,
    direction,
    fixed_point,
    follow,
    kept_steps,
    regime_shares,
    settled_from,
    steps_study,
    threshold,
    train_logits,
)

NEGATIVE = np.array([-100.0, -300.0, -500.0, -900.0])
rewards = st.lists(st.integers(-9, 9), min_size=2, max_size=5)


def projection(y):
    """The point of the simplex nearest to y, by bisection on the shift."""
    shift = brentq(lambda t: np.maximum(y - t, 0).sum() - 1, y.min() - 2, y.max())
    return np.maximum(y - shift, 0)


def end(R, optimizer="flow", start=None, steps=2000, rate=1.0, **options):
    return train_logits(np.asarray(R, float), "published", optimizer, steps, start, learning_rate=rate, **options)[-1]


# --- the formula

@given(rewards)
@settings(max_examples=200)
def test_positive_sum_ends_at_the_nearest_point_of_the_simplex(R):
    assume(sum(R) > 0)
    point = fixed_point(R)
    np.testing.assert_allclose(point.pi, projection(np.array(R) / sum(R)), atol=1e-9)
    assert point.regime == ("interior" if min(R) > 0 else "boundary")
    assert np.maximum(np.array(R) - point.lambda_, 0).sum() == pytest.approx(sum(R))
    assert (point.lambda_ == 0) == (min(R) >= 0)


@given(rewards, st.randoms())
@settings(max_examples=15)
def test_positive_sum_is_where_descent_ends_from_every_start(R, random):
    assume(sum(R) > 0)
    lam = fixed_point(R).lambda_
    assume(all(abs(r - lam) > 0.2 for r in R))           # a tie with the threshold falls like 1 / time
    start = np.array([random.uniform(0.02, 1) for _ in R])
    for optimizer, rate in (("flow", 2.0), ("gradient", 0.1)):
        found = end(R, optimizer, start / start.sum(), rate=rate, steps=300 if optimizer == "flow" else 4000)
        np.testing.assert_allclose(found, fixed_point(R).pi, atol=2e-3)


def test_regimes_by_hand():
    cases = {(1, 3, 5, 2): "interior", (3, 1, -1, 0.5): "boundary", (2, 0, 0, 1): "boundary", (1, 0, 0, -1): "linear",
             (5, -1, -2, -3): "one end", (-100, -300, -500, -900): "start decides", (2, 1, -1, -6): "start decides",
             (0, 0, 0, 0): "linear", (0.1, 0.2, -0.3): "linear"}          # the last in exact arithmetic only
    assert {R: fixed_point(R).regime for R in cases} == cases
    assert set(cases.values()) == set(REGIMES)
    mixed = fixed_point([3, 1, -1, 0.5])
    assert mixed.lambda_ == pytest.approx(1 / 3)                           # (3 + 1 + 0.5 - 3.5) / 3
    np.testing.assert_allclose(mixed.pi, [16 / 21, 4 / 21, 0, 1 / 21])
    assert fixed_point([1, 0, 0, -1]).pi.tolist() == [1, 0, 0, 0] and fixed_point([2, 2, -4]).pi is None
    assert fixed_point([5, -1, -2, -3]).pi.tolist() == [1, 0, 0, 0]
    assert fixed_point(NEGATIVE).pi is None and fixed_point(NEGATIVE).ends == (0, 1, 2, 3)
    assert fixed_point([2, 1, -1, -6]).ends == (0, 1, 2)                  # -6 + 4 is not above 2
    assert fixed_point([2, 1, -2, -6]).ends == (0, 1, 2)                  # |S| is 5: -2 + 5 is above 2
    assert fixed_point([2, 1, -2, -4]).ends == (0, 1)                     # |S| is 3: -2 + 3 is not


@given(rewards)
@settings(max_examples=30)
def test_negative_sum_ends_at_the_corners_that_hold(R):
    assume(sum(R) < 0)
    ends, k = fixed_point(R).ends, len(R)
    assert int(np.argmax(R)) in ends
    for corner in range(k):
        gap = R[corner] - sum(R) - max(r for i, r in enumerate(R) if i != corner)
        assume(abs(gap) > 0.5)
        start = np.full(k, 1e-4 / (k - 1))
        start[corner] = 1 - 1e-4
        assert (end(R, start=start, steps=200).argmax() == corner) == (corner in ends)


def test_negative_sum_from_many_starts():
    starts = np.maximum(np.random.default_rng(0).dirichlet(np.ones(4), 200), 1e-3)
    for R in (NEGATIVE / 900, np.array([5, -1, -2, -3]) / 5, np.array([2, 1, -1, -6]) / 6):
        found = end(np.tile(R, (200, 1)), "gradient", starts, rate=0.5)
        assert found.max(axis=1).min() > 0.99
        assert set(found.argmax(axis=1)) == set(fixed_point(R).ends)
    ratio = NEGATIVE / NEGATIVE.sum()
    np.testing.assert_allclose(train_logits(NEGATIVE / 900, "published", "gradient", 50, ratio)[-1], ratio, atol=1e-6)


def test_adam_goes_elsewhere():
    assert end(NEGATIVE, "gradient", rate=1e-3, steps=1000)[0] > 0.99
    for rate in (0.01, 0.1):
        assert end(NEGATIVE, "adam", rate=rate, steps=2000)[1] > 0.99
    assert end(NEGATIVE, "adam", rate=0.5, steps=2000)[0] > 0.99              # so the step length decides, too
    np.testing.assert_allclose(end([1, 3, 5, 2], "adam", rate=0.01, steps=2000), np.array([1, 3, 5, 2]) / 11, atol=0.01)
    mixed = end([3, 1, -1, 0.5], "adam", rate=0.01, steps=2000)
    assert np.abs(mixed - fixed_point([3, 1, -1, 0.5]).pi).max() > 0.1


def test_expectation_and_importance_weights_end_at_the_best():
    rng = np.random.default_rng(0)
    mu = np.array([0.1, 0.2, 0.3, 0.4])
    rows = np.bincount(rng.choice(4, 500, p=mu), minlength=4) / 500
    worlds = np.array([NEGATIVE / 900, [1, 3, 5, 2], [3, 1, -1, 0.5], [5, -1, -2, -3]])
    for optimizer, steps, rate in (("adam", 4000, 0.01), ("gradient", 4000, 0.5), ("flow", 10, 1000.0)):
        for objective, log in (("expectation", {}), ("importance", {"mu": mu, "share": rows})):
            found = train_logits(worlds, objective, optimizer, steps, learning_rate=rate, **log)[-1]
            assert found[np.arange(4), worlds.argmax(axis=1)].min() > 0.98, (optimizer, objective)
    R = np.array([1, 3, 5, 2.0])
    np.testing.assert_allclose(end(R, mu=mu, steps=500), mu * R / (mu * R).sum(), atol=1e-6)   # the log's habits stay


@pytest.mark.parametrize("R, beta", [([1, 3, 5, 2], 0.1), ([1, 3, 5, 2], 2.0), ([0.9, 0.94, 0.91, 0.8], 0.01)])
def test_entropy_against_a_minimizer(R, beta):
    """For positive rewards the loss is convex in pi too."""
    R = np.array(R)

    def loss(z):
        log_pi = z - np.log(np.exp(z).sum())
        return -(R * log_pi).mean() + beta * (np.exp(log_pi) * log_pi).sum()

    z = minimize(loss, np.zeros(4), tol=1e-12, method="BFGS", options={"gtol": 1e-9}).x
    point = fixed_point(R, beta)
    np.testing.assert_allclose(point.pi, np.exp(z) / np.exp(z).sum(), atol=1e-5)
    assert np.abs(point.pi - R / R.sum()).max() > 1e-4                        # the entropy does move it
    np.testing.assert_allclose(fixed_point(R, 1e-9).pi, R / R.sum(), atol=1e-6)


def test_entropy_cannot_hold_a_large_negative_sum_but_a_small_one():
    assert fixed_point([-1, -1.01, -1.02, -1.03], 0.001).pi.max() > 0.99
    assert fixed_point([-1, -1.01, -1.02, -1.03], 2.0).pi.max() < 0.3
    assert fixed_point([0, 0, 0, 0], 0.1).pi.tolist() == [0.25] * 4


# --- training of logits

def test_directions_are_the_gradients_of_the_package():
    rng = np.random.default_rng(1)
    z = torch.tensor(rng.normal(size=(1, 4)), requires_grad=True)
    R, mu, count = rng.normal(size=(1, 4)), np.array([0.1, 0.2, 0.3, 0.4]), np.array([[3.0, 1.0, 4.0, 2.0]])
    log = {"beta": 0.3, "mu": mu, "share": count[0] / 10}
    R_t, count_t = torch.tensor(R), torch.tensor(count)
    for objective, loss in (("published", published_loss(z, R_t, count_t, 0.3)),
                            ("importance", importance_loss(z, R_t / torch.tensor(mu), count_t, 0.3)),
                            ("expectation", expectation_loss(z, R_t, count_t, 0.3))):
        wanted, = torch.autograd.grad(loss, z)
        np.testing.assert_allclose(direction(z.detach().softmax(1).numpy(), R, objective, **log), -wanted, atol=1e-12)
    pi = z.detach().softmax(1).numpy()
    np.testing.assert_allclose(4 * direction(pi, R), R - pi * R.sum(), atol=1e-12)


@pytest.mark.parametrize("optimizer, torchs", [("adam", torch.optim.Adam), ("gradient", torch.optim.SGD)])
def test_optimizers_are_torchs(optimizer, torchs):
    R, start = [3, 1, -1, 0.5], np.array([0.4, 0.3, 0.2, 0.1])
    path = train_logits(R, "published", optimizer, 50, start, learning_rate=0.05, beta=0.01)
    z = torch.tensor(np.log(start)[None], requires_grad=True)
    follows = torchs([z], lr=0.05)
    for step in range(51):
        np.testing.assert_allclose(path[step], z.detach().softmax(1).numpy()[0], atol=1e-9)
        follows.zero_grad()
        published_loss(z, torch.tensor([R]), torch.ones(1, 4), 0.01).backward()
        follows.step()


def test_flow_is_the_limit_of_small_steps_and_states_are_separate():
    worlds = np.array([[3, 1, -1, 0.5], [1, 3, 5, 2], [-1, -3, -5, -9]])
    flow = train_logits(worlds, "published", "flow", 20, learning_rate=0.1)
    assert flow.shape == (21, 3, 4)
    gaps = []
    for fine in (10, 100):
        small = train_logits(worlds, "published", "gradient", 20 * fine, learning_rate=0.1 / fine)[::fine]
        gaps.append(np.abs(small - flow).max())
    assert gaps[1] < gaps[0] / 8 < 1e-2
    for n, R in enumerate(worlds):
        np.testing.assert_allclose(train_logits(R, "published", "flow", 20, learning_rate=0.1), flow[:, n], atol=1e-6)


def test_values_of_choices_by_hand():
    values = choice_values(np.array([0.1, 0.2, 0.4, 0.3]), np.array([1, 2, 4, 3]))
    assert values == pytest.approx({"greedy": 4, "sampled": 3, "random": 2.5, "best": 4, "gain": 1 / 3})
    two = choice_values([[1, 0], [0.4, 0.6]], np.array([[1, 2], [5, 3]]))
    assert two == pytest.approx({"greedy": 2, "sampled": (1 + 3.8) / 2, "random": 2.75, "best": 3.5,
                                 "gain": (2.4 - 2.75) / 0.75})


def test_regime_shares_count_states():
    R = np.array([[1, 1, 1, 1], [2, 3, 1, 1], [1, -1, 1, 1], [-1, -1, -1, -1]])
    shares = regime_shares(R)
    assert shares.to_dict() == {"interior": 0.5, "boundary": 0.25, "linear": 0, "one end": 0, "start decides": 0.25}


@pytest.mark.parametrize("call, words", [
    (lambda: fixed_point([1]), "at least two"), (lambda: fixed_point("12"), "at least two"),
    (lambda: fixed_point([1, float("nan")]), "R = nan"), (lambda: fixed_point([1, 2], -1), "beta = -1"),
    (lambda: train_logits([1, 2], "best"), "objective = 'best'"),
    (lambda: train_logits([1, 2], optimizer="sgd"), "optimizer = 'sgd'"),
    (lambda: train_logits([1, 2], steps=0), "steps = 0"), (lambda: train_logits([1, 2], start=[0, 1]), "start = "),
    (lambda: train_logits([1, 2], learning_rate=-1), "learning_rate = -1"),
    (lambda: train_logits([1, 2], learning_rate=0), "learning_rate = 0: expected a number above 0"),
    (lambda: train_logits([1, np.nan]), r"R\[1\] = nan"), (lambda: train_logits([1, np.inf]), r"R\[1\] = inf"),
    (lambda: train_logits([]), r"R: shape \(0,\); expected"), (lambda: train_logits(5), r"R: shape \(\); expected"),
    (lambda: train_logits("x"), "R = 'x': expected an array of numbers"),
    (lambda: train_logits([1, 2], beta=np.nan), "beta = nan"), (lambda: train_logits([1, 2], beta=-1), "beta = -1"),
    (lambda: train_logits([1, 2], mu=[0, 1]), r"mu = \[0, 1\]: expected positive probabilities"),
    (lambda: train_logits([1, 2], mu=[0.2, 0.2, 0.6]), r"mu: shape \(3,\); expected \(2,\)"),
    (lambda: train_logits([1, 2], mu=[1, 2]), r"mu = .*: expected a sum of 1"),
    (lambda: train_logits([1, 2], share=[-0.5, 1.5]), r"share = .*: expected probabilities"),
    (lambda: train_logits([[1, 2]] * 3, start=[0.2, 0.2, 0.6]), r"start: shape \(3,\); expected \(2,\) or \(3, 2\)"),
    (lambda: train_logits([1, 2], start=0.5), r"start: shape \(\); expected \(2,\)"),
    (lambda: direction([0.5, 0.5], [1, np.nan]), r"R\[1\] = nan"),
    (lambda: direction([0.5, 0.5], [1, 2, 3]), r"pi and R: shapes \(2,\) and \(3,\)"),
    (lambda: direction([0.5, 0.5], [1, 2], mu=[0, 1]), "mu = "),
    (lambda: choice_values([0.5, 0.5], [1, 2, 3]), r"pi and R: shapes \(1, 2\) and \(1, 3\)"),
    (lambda: threshold([-1, -2]), "R = .*: expected rewards with a sum above 0"),
    (lambda: threshold([1, -1]), "R = .*: expected rewards with a sum above 0"),
    (lambda: threshold(3), "at least two"),
    (lambda: fixed_point([1, 2], np.nan), "beta = nan"),
])
def test_wrong_arguments_are_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


# --- the network

@pytest.fixture(scope="module")
def data():
    tasks, log = synthetic_log(n_tasks=20, budgets=(500, 1250, 2000), seeds=(0, 1))
    table = LogTable.from_log(log, CODE_REWARDS["gsm8k"], complete=True)
    question = {t.task_id: t.question for t in tasks}
    return tasks, log, table, pseudo_encode([question[i] for i in table.task_id])


def test_follow_is_the_training_of_the_package(data, monkeypatch):
    tasks, log, table, vectors = data
    monkeypatch.setattr("bamas_lite.policy.encode", pseudo_encode)
    history = train_policy(log, tasks=tasks, rewards=CODE_REWARDS["gsm8k"], objective="published", learning_rate=3e-3,
                           epochs=6, batch=20_000, beta=0.001, holdout=0.0, seed=4).history
    mine = follow(table, vectors, learning_rate=3e-3, seed=4, steps=6)
    np.testing.assert_allclose(mine.drawn, history.reward, rtol=1e-9)
    np.testing.assert_allclose(mine.greedy, history.reward_greedy, rtol=1e-9)
    np.testing.assert_allclose(mine.entropy, history.entropy, rtol=1e-9)


def test_scalings_enter_the_network(data):
    _, _, table, vectors = data
    assert {name: np.round([(B - shift) / scale for B in (500, 1250, 2000)], 3).tolist()
            for name, of in SCALINGS.items() for shift, scale in [of(np.array([500.0, 1250, 2000]))]} == {
        "B / B_max": [0.25, 0.625, 1.0], "B in u$": [500, 1250, 2000], "standardized": [-1.225, 0, 1.225]}
    divided = follow(replace(table, budget=table.budget / table.budget.max()), vectors, scaling="B in u$", steps=3)
    pd.testing.assert_frame_equal(divided, follow(table, vectors, steps=3))
    first = {name: follow(table, vectors, scaling=name, steps=1).entropy[0] for name in SCALINGS}
    assert first["B in u$"] < 0.5 < 1.3 < min(first["B / B_max"], first["standardized"])
    with pytest.raises(ValueError, match="scaling = 'log'"):
        follow(table, vectors, scaling="log")
    with pytest.raises(ValueError, match="objective = 'best'"):
        follow(table, vectors, objective="best")
    for option, value in (("learning_rate", 0), ("beta", np.nan), ("seed", -1), ("record", [11])):
        with pytest.raises(ValueError, match=option):
            follow(table, vectors, **{option: value})
    with pytest.raises(ValueError, match="complete"):
        follow(replace(table, count=table.count * (np.arange(4) > 0)), vectors)


def test_study_has_one_row_a_step_and_keeps_the_best(data):
    _, _, table, vectors = data
    study = steps_study(table, vectors, steps=4, learning_rates=(3e-4, 3e-3), scalings=("B / B_max", "B in u$"),
                        seeds=(0, 1, 2))
    runs = study.groupby(["scaling", "learning_rate", "seed"])
    assert len(runs) == 12 and all(run.step.tolist() == [0, 1, 2, 3, 4] for _, run in runs)
    untrained = study[study.step == 0]
    assert (untrained.total_variation == 0).all() and (untrained.changed == 0).all()
    shares = study[[name for name in study if name.startswith("share_")]].sum(axis=1)
    np.testing.assert_allclose(shares, 1)
    kept = kept_steps(study)
    assert len(kept) == 12 and kept.step.min() >= 1
    for row in kept.itertuples():
        run = runs.get_group((row.scaling, row.learning_rate, row.seed))
        assert row.drawn == run.drawn[run.step > 0].max()
    pd.testing.assert_frame_equal(study, steps_study(table, vectors, steps=4, learning_rates=(3e-4, 3e-3),
                                                     scalings=("B / B_max", "B in u$"), seeds=(0, 1, 2)))


def test_agreement_leaves_ties_out():
    R = np.array([[1, 1, 1, 1], [0, 1, 0, 0], [0, 0, 1, 0.0]])
    table = LogTable(np.array(["a", "b", "c"]), np.array(["code"] * 3), np.ones(3, int), np.full(3, 500.0),
                     np.ones((3, 4), int), R, R, R, 4 * R, {}, "made up", OUR_REWARDS)
    vectors = pseudo_encode(["a", "b", "c"])
    trained = follow(table, vectors, objective="expectation", learning_rate=0.01, steps=300, record=[0, 300])
    assert trained.step.tolist() == [0, 300] and trained.agree.iloc[1] == 1
    assert trained.agree.iloc[0] in (0, 0.5) and trained.drawn.iloc[1] == pytest.approx(1, abs=0.02)
    assert np.isnan(follow(table.select(np.array([0])), vectors[:1], steps=1).agree).all()


def test_average_by_budget(data):
    _, log, table, _ = data
    mean = average_by_budget(table)
    for B in (500, 1250, 2000):
        np.testing.assert_allclose(mean.R[mean.budget == B], np.tile(table.R[table.budget == B].mean(axis=0), (20, 1)))
    np.testing.assert_allclose(mean.R_over_b, 4 * mean.R)


def test_settled_means_for_good():
    def settled(*values):
        return settled_from(pd.DataFrame({"step": range(0, 10 * len(values), 10), "agree": values}))
    assert settled(0.1, 1, 0.5, 0.95, 1) == 30
    assert settled(1, 1) == 0 and settled(1, 0.9) is None
