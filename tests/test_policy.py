"""Reward by hand, losses against finite differences and closed forms, training, asking, saving."""

import json
import math
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from synthetic import pseudo_encode, synthetic_log

from bamas_lite.casting import TOPOLOGIES
from bamas_lite.losses import expectation_loss, importance_loss, published_loss, regression_loss
from bamas_lite.network import Examples, PolicyNetwork, hold_out, matched_reward
from bamas_lite.policy import (
    CODE_REWARDS,
    OUR_REWARDS,
    OURS,
    PAPER_SETTINGS,
    LogError,
    LogTable,
    PolicyFileError,
    Rewards,
    TopologyPolicy,
    questions_of,
    reward,
    train_policy,
)

QUICK = {"epochs": 3, "batch": 200}


@pytest.fixture(scope="module")
def data():
    return synthetic_log(n_tasks=30, budgets=(500, 1250, 2000), seeds=(0, 1))


@pytest.fixture(autouse=True)
def made_up_encoder(monkeypatch):
    """The real encoder has tests of its own."""
    monkeypatch.setattr("bamas_lite.policy.encode", pseudo_encode)


# --- reward

def test_reward_by_hand():
    constants = Rewards(success=10, failure=4, overflow=7, saving=2, infeasible=-3, w_perf=0.5, w_cost=3)
    R = reward([True, True, False, False, True, True, False],
               [100, 250, 100, 250, 200, 0, 0], 200, constants,
               ["ok", "ok", "ok", "ok", "ok", "error", "infeasible"])
    by_hand = [0.5 * 10 + 3 * 2 * (1 - 100 / 200),  # right and half the budget saved
               0.5 * 10 - 3 * 7,                    # right, but over the budget
               -0.5 * 4,                            # wrong: nothing for saving
               -0.5 * 4 - 3 * 7,                    # wrong and over the budget
               0.5 * 10,                            # right, budget used up exactly: no overflow
               np.nan, -3]
    np.testing.assert_array_equal(R, by_hand)


def test_infeasible_without_a_constant_is_left_out():
    assert np.isnan(reward(False, 0, 100, Rewards(1, 1, 1, 0.1, None), "infeasible"))


def test_code_constants_make_saving_count_for_nothing():
    for constants in CODE_REWARDS.values():
        assert constants.saving / constants.success < 1e-6
        cheap, dear = reward([True, True], [1, 499], 500, constants)
        assert 0 < cheap - dear <= constants.saving
        assert reward(False, 0, 1, constants, "infeasible") > reward(False, 0, 1, constants)  # dearer to be wrong
    assert np.ptp(reward([True, True], [0, 500], 500, OUR_REWARDS)) == pytest.approx(0.1)


# --- table of a log

def test_table_against_groupby(data):
    _, log = data
    log = log.copy()
    log.loc[log.index[5], "status"] = "error"
    constants = CODE_REWARDS["gsm8k"]
    table = LogTable.from_log(log, constants)
    log["R"] = reward(log.correct, log.cost, log.budget, constants, log.status)
    cells = log.dropna(subset="R").groupby(["task_id", "budget", "topology"])
    for s in range(len(table)):
        for t, name in enumerate(TOPOLOGIES):
            rows = cells.get_group((table.task_id[s], table.budget[s], name))
            assert table.count[s, t] == len(rows)
            assert table.R[s, t] == pytest.approx(rows.R.mean())
            assert table.R_over_b[s, t] == pytest.approx((rows.R / rows.behaviour_prob).mean())
            assert table.correct[s, t] == rows.correct.mean()
            assert table.cost[s, t] == pytest.approx(rows.cost.mean())
    assert table.excluded == {"error": 1}


def test_states_that_lost_a_cell_are_dropped_only_where_a_full_factorial_is_needed(data):
    _, log = data
    log = log.copy()
    one = (log.task_id == log.task_id[0]) & (log.budget == 500) & (log.topology == "star")
    log.loc[one, "status"] = "error"
    assert len(LogTable.from_log(log)) == 90
    assert len(LogTable.from_log(log, complete=True)) == 89


def test_bad_logs_are_named(data):
    _, log = data
    broken = [
        (log.iloc[:0], "empty"),
        (log.drop(columns=["cost", "topology"]), "columns missing: topology, cost"),
        (pd.DataFrame({"question": ["?"], "answer": ["!"]}), "columns missing: task_id"),
        (log.assign(topology="chain"), "topology = 'chain' in row 0"),
        (log.assign(status="fine"), "status = 'fine'"),
        (log.assign(budget=0.0), "budget = "),
        (log.assign(behaviour_prob=0.0), "behaviour_prob = "),
        (log.assign(cost=np.nan), "cost = nan"),
        (log.assign(status="error"), "no row left"),
        ({"task_id": []}, "expected a DataFrame"),
    ]
    for bad, message in broken:
        with pytest.raises(LogError, match=message):
            LogTable.from_log(bad)
    with pytest.raises(LogError, match="budgets: 600 is not in the log; it has 500, 1250, 2000"):
        LogTable.from_log(log, budgets=[500, 600])
    with pytest.raises(LogError, match="not full-factorial: task .*0007.* budget 500 has no row for topology 'star'"):
        LogTable.from_log(log[~((log.topology == "star") & log.task_id.str.endswith("7") & (log.budget == 500))],
                          complete=True)


# --- losses

def rows_of(log, constants, tasks):
    """The log row by row, straight from the definition: embedding, budget, action, R, b."""
    R = reward(log.correct, log.cost, log.budget, constants, log.status)
    action = torch.tensor([TOPOLOGIES.index(t) for t in log.topology])
    return (torch.tensor(pseudo_encode(questions_of(log.task_id, tasks)), dtype=torch.float64),
            torch.tensor(log.budget.to_numpy() / log.budget.max()), action, torch.tensor(R),
            torch.tensor(log.behaviour_prob.to_numpy(float)))


@pytest.mark.parametrize("kind", ["published", "importance", "expectation"])
def test_gradient_on_rows_is_the_gradient_on_the_table(data, kind):
    tasks, log = data
    if kind != "expectation":  # an uneven log: some rows are gone, the rest were logged with different probabilities
        log = log.sample(frac=0.7, random_state=1)
        log = log.assign(behaviour_prob=np.where(log.seed == 0, 0.4, 0.1))
    constants, beta = CODE_REWARDS["gsm8k"], 0.3
    E, b, action, R, prob = rows_of(log, constants, tasks)
    network = PolicyNetwork(generator=torch.Generator().manual_seed(0))
    log_pi = network(E, b).log_softmax(-1)
    log_pi_t = log_pi.gather(1, action[:, None])[:, 0]
    # With every topology logged equally often, the mean of pi * R over rows is a quarter of the expectation.
    on_rows = {"published": -(log_pi_t * R).mean(), "importance": -(log_pi_t.exp() / prob * R).mean(),
               "expectation": -4 * (log_pi_t.exp() * R).mean()}[kind] + beta * (log_pi.exp() * log_pi).sum(1).mean()
    rows_gradient = torch.autograd.grad(on_rows, list(network.parameters()))

    table = LogTable.from_log(log, constants)
    e = Examples.from_table(table, pseudo_encode(questions_of(table.task_id, tasks)), float(table.budget.max()))
    logits = network(e.embedding, e.budget)
    on_table = {"published": lambda: published_loss(logits, e.R, e.count, beta),
                "importance": lambda: importance_loss(logits, e.R_over_b, e.count, beta),
                "expectation": lambda: expectation_loss(logits, e.R, e.count, beta)}[kind]()
    table_gradient = torch.autograd.grad(on_table, list(network.parameters()))
    assert on_table.item() == pytest.approx(on_rows.item(), rel=1e-9)
    for a, c in zip(rows_gradient, table_gradient, strict=True):
        torch.testing.assert_close(a, c, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("loss", [published_loss, importance_loss, expectation_loss,
                                  lambda z, R, n, beta: regression_loss(z, R, n)])
def test_gradients_by_finite_differences(loss):
    rng = np.random.default_rng(3)
    z = torch.tensor(rng.normal(size=(5, 4)), requires_grad=True)
    R, n = torch.tensor(rng.normal(size=(5, 4)) * 3), torch.tensor(rng.integers(1, 4, size=(5, 4))).double()
    gradient, = torch.autograd.grad(loss(z, R, n, 0.2), z)
    h = 1e-6
    for i, j in np.ndindex(5, 4):
        step = torch.zeros(5, 4, dtype=torch.float64)
        step[i, j] = h
        slope = (loss(z + step, R, n, 0.2) - loss(z - step, R, n, 0.2)) / (2 * h)
        assert gradient[i, j].item() == pytest.approx(slope.item(), rel=1e-5, abs=1e-8)


def minimise(loss, R, start=None, steps=2000, beta=0.0, optimizer=torch.optim.Adam, lr=0.05):
    """pi after training a table of logits: a policy without a network."""
    z = torch.zeros(1, 4, dtype=torch.float64) if start is None else torch.tensor([start], dtype=torch.float64)
    z.requires_grad_()
    R = torch.tensor(np.array([R], float))
    steps_of = optimizer([z], lr=lr)
    for _ in range(steps):
        steps_of.zero_grad()
        loss(z, R, torch.ones_like(R), beta).backward()
        steps_of.step()
    return z.softmax(-1).detach().numpy()[0]


def test_published_loss_all_rewards_positive_ends_at_their_proportions():
    R = np.array([1.0, 3.0, 5.0, 2.0])
    np.testing.assert_allclose(minimise(published_loss, R), R / R.sum(), atol=1e-4)
    np.testing.assert_allclose(minimise(published_loss, R, start=[3, 0, -2, 1]), R / R.sum(), atol=1e-4)


def test_published_loss_all_rewards_negative_takes_the_second_action():
    pi = minimise(published_loss, [-100, -300, -500, -900])
    assert pi.argmax() == 1 and pi[1] > 0.99


def test_published_loss_mixed_signs_gradient_flow_ends_at_the_thresholded_proportions():
    R = np.array([3.0, 1.0, -1.0, 0.5])
    S = R.sum()
    levels = np.linspace(-1, 3, 400_001)  # lambda by search: (R - lambda)+ / S sums to 1
    lam = levels[np.abs(np.maximum(R[:, None] - levels, 0).sum(0) / S - 1).argmin()]
    pi = minimise(published_loss, R, steps=6_000, optimizer=torch.optim.SGD, lr=2.0)
    np.testing.assert_allclose(pi, np.maximum(R - lam, 0) / S, atol=5e-3)


@pytest.mark.parametrize("loss", [importance_loss, expectation_loss])
@pytest.mark.parametrize("R", [[1, 3, 5, 2], [-100, -300, -500, -900], [3, 1, -1, 0.5]])
def test_the_other_losses_end_at_the_best_action(loss, R):
    R = np.array(R) / np.abs(R).max()
    pi = minimise(loss, R)
    assert pi.argmax() == R.argmax() and pi.max() > 0.98


# --- network and training

def test_network_against_numpy():
    for features in ("concatenate", "add"):
        network = PolicyNetwork(features, torch.Generator().manual_seed(1))
        W = {k: v.numpy() for k, v in network.state_dict().items()}
        rng = np.random.default_rng(0)
        E, b = rng.normal(size=(3, 384)), rng.uniform(size=3)
        e = np.maximum(E @ W["question.weight"].T + W["question.bias"], 0)
        c = np.maximum(b[:, None] * W["budget.weight"][:, 0] + W["budget.bias"], 0)
        x = np.hstack([e, c]) if features == "concatenate" else e + c
        hidden = np.maximum(x @ W["hidden.weight"].T + W["hidden.bias"], 0)
        with torch.no_grad():
            logits = network(torch.tensor(E), torch.tensor(b)).numpy()
        np.testing.assert_allclose(logits, hidden @ W["output.weight"].T + W["output.bias"], atol=1e-12)
    with pytest.raises(ValueError, match="features = 'multiply': expected 'concatenate' or 'add'"):
        PolicyNetwork("multiply")


def test_training_is_deterministic_and_leaves_global_generators_alone(data):
    tasks, log = data
    before_torch, before_numpy = torch.get_rng_state(), np.random.get_state()[1].copy()
    first, again, other = (train_policy(log, tasks=tasks, seed=seed, **QUICK) for seed in (1, 1, 2))
    assert torch.equal(before_torch, torch.get_rng_state())
    assert (before_numpy == np.random.get_state()[1]).all()
    pd.testing.assert_frame_equal(first.history, again.history)
    weights = [r.policy.network.state_dict()["output.weight"] for r in (first, again, other)]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])


@pytest.mark.parametrize("learner", ["reinforce", "supervised"])
def test_training_finds_a_topology_that_depends_on_the_budget(data, learner):
    tasks, log = data
    best = {500.0: "star", 1250.0: "linear", 2000.0: "feedback"}
    log = log.assign(correct=log.topology == log.budget.map(best), cost=100.0)
    policy = train_policy(log, tasks=tasks, learner=learner, epochs=100, batch=200, learning_rate=3e-3).policy
    for task in tasks[:5]:
        for budget, topology in best.items():
            assert policy.select(task.question, budget) == topology


def test_the_best_epoch_is_kept(data):
    tasks, log = data
    # so fast that it jumps about
    result = train_policy(log, tasks=tasks, learning_rate=0.02, epochs=8, batch=20, holdout=0.0)
    table = LogTable.from_log(log)
    pi = result.policy.probabilities(questions_of(table.task_id, tasks), table.budget)
    assert result.history.reward[1:].max() > result.history.reward.iloc[-1]
    assert (pi * table.R).sum(1).mean() == pytest.approx(result.history.reward[1:].max(), abs=1e-6)


def test_the_epoch_that_does_best_on_the_tasks_aside_is_kept(data):
    tasks, log = data
    options = {"tasks": tasks, "learning_rate": 3e-3, "batch": 100, "holdout": 0.3, "seed": 1}
    long = train_policy(log, epochs=15, **options)
    best = int(long.history.reward_aside[1:].idxmax())
    assert best < 15
    short = train_policy(log, epochs=best, **options)  # the same way, up to there
    assert torch.equal(long.policy.network.output.weight, short.policy.network.output.weight)


def test_the_epoch_can_be_judged_by_the_rows_that_draws_match(data):
    tasks, log = data
    options = {"tasks": tasks, "learning_rate": 0.02, "epochs": 8, "batch": 20, "holdout": 0.0}
    plain, matched = train_policy(log, **options), train_policy(log, model_choice="matched", **options)
    names = [name for name in plain.history.columns]
    assert plain.history[names].equals(matched.history[names])  # training itself does not differ
    best = int(matched.history.reward_matched[1:].idxmax())
    short = train_policy(log, **{**options, "epochs": best}, model_choice="matched")
    assert torch.equal(matched.policy.network.output.weight, short.policy.network.output.weight)
    again = train_policy(log, model_choice="matched", **options)
    assert again.history.equals(matched.history)


def test_matched_reward_is_the_reward_of_the_policy_with_noise(data):
    tasks, log = data
    table = LogTable.from_log(log)
    examples = Examples.from_table(table, pseudo_encode(questions_of(table.task_id, tasks)), 2000.0)
    network = PolicyNetwork(generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        network.output.bias += torch.tensor([0.0, 2.0, 0.0, -1.0])  # far from uniform
        pi = network(examples.embedding, examples.budget).softmax(-1)
    draws = torch.Generator().manual_seed(3)
    values = [matched_reward(network, examples, draws) for _ in range(400)]
    error = np.std(values) / 20
    assert error > 0 and abs(np.mean(values) - (pi * examples.R).sum(1).mean().item()) < 4 * error + 1e-3
    empty = Examples(*(tensor * 0 if name == "count" else tensor for name, tensor in vars(examples).items()))
    assert matched_reward(network, empty, draws) == -math.inf


def test_whole_tasks_are_kept_aside(data):
    tasks, log = data
    table = LogTable.from_log(log)
    examples = Examples.from_table(table, pseudo_encode(questions_of(table.task_id, tasks)), 2000.0)
    train, aside = hold_out(examples, 0.3, torch.Generator().manual_seed(0))
    assert len(aside.task.unique()) == 9 and len(train.task.unique()) == 21
    assert not set(aside.task.tolist()) & set(train.task.tolist())
    assert len(train) + len(aside) == len(examples)
    for part in (train, aside):
        for task in part.task.unique():
            assert torch.equal(part.R[part.task == task], examples.R[examples.task == task])
    with pytest.raises(ValueError, match="holdout = 0.9: leaves no task to train on; the log has 2"):
        hold_out(examples.select(torch.arange(6)), 0.9, torch.Generator())


def test_error_rows_change_nothing(data):
    tasks, log = data
    failed = log.assign(status="error", correct=None, cost=1e9, run_id="failed")
    a = train_policy(log, tasks=tasks, **QUICK)
    b = train_policy(pd.concat([log, failed], ignore_index=True), tasks=tasks, **QUICK)
    assert torch.equal(a.policy.network.output.weight, b.policy.network.output.weight)
    assert b.policy.about["excluded"] == {"error": len(failed)}


def test_own_learner_and_settings(data):
    tasks, log = data

    def always_star(network, examples, settings, generator):
        with torch.no_grad():
            network.output.weight.zero_()
            network.output.bias.copy_(torch.tensor([0.0, 5.0, 0.0, 0.0]))
        return [{"epoch": 1, "seed": settings.seed}]

    result = train_policy(log, tasks=tasks, learner=always_star, seed=7)
    assert result.policy.select("Anything?", 700) == "star"
    assert result.history.seed.item() == 7 and result.policy.about["learner"] == "always_star"
    for wrong, message in (({"objective": "best"}, "objective = 'best': expected 'published'"),
                           ({"epochs": 0}, "epochs = 0"), ({"learning_rate": -1.0}, "learning_rate = -1.0"),
                           ({"holdout": 1.0}, "holdout = 1.0"),
                           ({"model_choice": "last"}, "model_choice = 'last': expected 'reward' or 'matched'"),
                           ({"momentum": 1}, "momentum is no setting; known are rewards, objective"),
                           ({"learner": "magic"}, "learner = 'magic': expected reinforce, supervised"),
                           ({"learner": 5}, "learner = 5: expected"), ({"settings": None}, "settings = None: expected"),
                           ({"learner": lambda *_: None}, "learner = .*: returned None: expected the history"),
                           ({"rewards": None}, "rewards = None: expected Rewards"), ({"tasks": "x"}, "task = 'x'"),
                           ({"tasks": [tasks[0], None]}, "task = None: expected a Task"), ({"tasks": 5}, "task = 5"),
                           *(({"seed": seed}, "seed = .*whole number from 0")
                             for seed in (1.5, None, True, -1, 10**400)),
                           *(({name: value}, f"{name} = ") for value in ("x", None, np.nan, -1)
                             for name in ("learning_rate", "beta", "holdout"))):
        with pytest.raises(ValueError, match=message):
            train_policy(log, **{"tasks": tasks, **QUICK, **wrong})

    def broken(network, examples, settings, generator):
        with torch.no_grad():
            network.output.bias[2] = np.nan
        return []

    with pytest.raises(ValueError, match="network: output.bias holds NaN or infinity"):
        train_policy(log, tasks=tasks, learner=broken)
    with pytest.raises(LogError, match="log: level is a column of type object: expected numbers"):
        train_policy(log.astype(object), tasks=tasks)
    with pytest.raises(LogError, match="not full-factorial: task 'synthetic/train/0000', budget 500 has"):
        train_policy(log[(log.topology != "star") | (log.budget > 500)], tasks=tasks)
    for change in ({"success": "x"}, {"infeasible": np.nan}, {"w_cost": None}):
        with pytest.raises(ValueError, match=f"{next(iter(change))} = .*: expected a finite"):
            replace(OUR_REWARDS, **change)


def test_paper_settings():
    assert [(s.learning_rate, s.seed, s.epochs, s.batch, s.beta, s.objective) for s in
            map(PAPER_SETTINGS.get, ("gsm8k", "math", "mbpp"))] == [
        (3e-4, 42, 10, 20_000, 0.001, "published"), (1.5e-3, 42, 10, 20_000, 0.001, "published"),
        (1.5e-3, 123, 10, 20_000, 0.001, "published")]
    assert PAPER_SETTINGS["arithmetic"] is PAPER_SETTINGS["gsm8k"]
    assert OURS.objective == "expectation"


def test_tasks_of_the_log_must_be_known(data):
    tasks, log = data
    with pytest.raises(LogError, match="task_id = 'synthetic/train/0029' is not among the tasks"):
        train_policy(log, tasks=tasks[:-1])
    with pytest.raises(LogError, match="'synthetic', which is no committed task set; pass tasks="):
        train_policy(log)


# --- asking, saving

@pytest.fixture(scope="module")
def policy(data):
    return TopologyPolicy(PolicyNetwork("add", torch.Generator().manual_seed(0)), 2000.0, {"learner": "none"})


def test_probabilities(policy):
    one = policy.probabilities("How many?", 500)
    assert one.shape == (4,) and one.sum() == pytest.approx(1)
    with torch.no_grad():
        E, b = torch.tensor(pseudo_encode(["How many?"])).double(), torch.tensor([0.25]).double()  # 500 / 2000
        logits = policy.network(E, b).numpy()
    np.testing.assert_allclose(one, (np.exp(logits) / np.exp(logits).sum())[0], atol=1e-12)
    both = policy.probabilities(["How many?", "How long?"], [500, 1000])
    np.testing.assert_allclose(both[0], one, atol=1e-12)
    np.testing.assert_allclose(policy.probabilities("How long?", [800, 1000])[1], both[1], atol=1e-12)
    np.testing.assert_allclose(policy.probabilities(["How long?"] * 3, 1000), both[[1, 1, 1]], atol=1e-12)
    masked = policy.probabilities("How many?", 500, allowed=TOPOLOGIES[:3])
    np.testing.assert_allclose(masked, np.append(one[:3] / one[:3].sum(), 0), atol=1e-12)
    for budgets in (0, -5, np.nan, [500, 600, 700]):
        with pytest.raises(ValueError, match="budgets"):
            policy.probabilities(["How many?", "How long?"], budgets)


def test_select(policy):
    pi = policy.probabilities("How many?", 500)
    assert policy.select("How many?", 500) == TOPOLOGIES[pi.argmax()]
    assert policy.select("How many?", 500, allowed=["planner_driven"]) == "planner_driven"
    rng = np.random.default_rng(0)
    draws = [policy.select("How many?", 500, "sample", rng=rng) for _ in range(2000)]
    np.testing.assert_allclose([draws.count(t) / 2000 for t in TOPOLOGIES], pi, atol=0.04)
    for arguments, message in ((("best",), "mode = 'best'"), (("sample",), "needs a generator")):
        with pytest.raises(ValueError, match=message):
            policy.select("How many?", 500, *arguments)
    for allowed in ([], ["chain"], "star"):
        with pytest.raises(ValueError, match="allowed = "):
            policy.select("How many?", 500, allowed=allowed)
    for allowed in (None, 5, [["star"]]):
        with pytest.raises(ValueError, match="allowed = "):
            policy.select("How many?", 500, allowed=allowed)
    with pytest.raises(ValueError, match="rng = 5: mode 'sample' needs"):
        policy.select("How many?", 500, "sample", rng=5)


def test_select_takes_one_question_and_one_budget(policy):
    for question in (["a", "b"], ["a"], None, 5, b"a"):
        with pytest.raises(ValueError, match="question = .*: expected one text"):
            policy.select(question, 1000)
    for budget in ([500, 1000], [500], None, "much", 10**400, 10**5000, 0, -5, np.nan, np.inf, True):
        with pytest.raises(ValueError, match="budget = "):
            policy.select("q", budget)
    for budgets in (10**400, None, "much", [500, None]):
        with pytest.raises(ValueError, match="budgets = .*: expected more than 0"):
            policy.probabilities("q", budgets)
    for questions in (5, None, ["a", 5]):
        with pytest.raises(ValueError, match="questions = .*: expected a text"):
            policy.probabilities(questions, 500)
    assert policy.select("q", np.float32(500)) == policy.select("q", "500") == policy.select("q", 500)


@pytest.mark.parametrize("scale", [0, np.nan, np.inf, -1, None, "x", 10**400, True])
def test_a_policy_has_finite_weights_and_a_positive_scale(scale, policy):
    with pytest.raises(ValueError, match="budget_scale = "):
        TopologyPolicy(policy.network, scale)
    for value in (np.nan, np.inf):
        network = PolicyNetwork("add", torch.Generator().manual_seed(0))
        with torch.no_grad():
            network.hidden.weight[3, 1] = value
        with pytest.raises(ValueError, match="network: hidden.weight holds NaN or infinity"):
            TopologyPolicy(network, 2000.0)


def test_a_policy_that_cannot_be_saved_leaves_the_older_one(policy, tmp_path):
    path = tmp_path / "policy.npz"
    policy.save(path)
    before = path.read_bytes()
    looped = {}
    looped["self"] = looped
    for about in ({"a": object()}, looped):
        with pytest.raises(ValueError, match="about = .*cannot be written as JSON"):
            TopologyPolicy(policy.network, 1000.0, about).save(path)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]
    for wrong in (None, 5, b"x"):
        with pytest.raises(ValueError, match="path = .*expected the name of a file"):
            policy.save(wrong)
        with pytest.raises(PolicyFileError, match="path = .*expected the name of a file"):
            TopologyPolicy.load(wrong)


def test_save_and_load(policy, tmp_path):
    path = tmp_path / "deep" / "policy.npz"
    policy.save(path)
    again = TopologyPolicy.load(path)
    questions = [f"Question {i}?" for i in range(20)]
    assert (again.probabilities(questions, 700) == policy.probabilities(questions, 700)).all()
    assert again.about == policy.about and again.budget_scale == 2000 and again.network.features == "add"
    again.save(tmp_path / "second.npz")
    assert path.read_bytes() == (tmp_path / "second.npz").read_bytes()


def test_wrong_files_are_named(policy, tmp_path):
    path = tmp_path / "policy.npz"
    policy.save(path)
    with np.load(path) as file:
        arrays = dict(file)
    header = json.loads(str(arrays["header"]))

    def write(**changes):
        np.savez(path, **(arrays | changes))

    def write_header(**changes):
        write(header=np.array(json.dumps(header | changes)))

    with pytest.raises(PolicyFileError, match="no policy file"):
        TopologyPolicy.load(tmp_path / "absent.npz")
    cases = [(lambda: path.write_text("hello"), "not a policy file"),
             (lambda: path.write_bytes(b""), "not a policy file"),
             (lambda: np.savez(path, weights=np.zeros(3)), "not a policy file"),
             (lambda: (np.save(tmp_path / "x.npy", [1.0]), (tmp_path / "x.npy").replace(path)), "not a policy file"),
             (lambda: np.savez(path, header=np.array([{"a": 1}], dtype=object)), "not a policy file"),
             (lambda: write_header(version=99), "version = 99: expected 1"),
             (lambda: write_header(format="something"), "format = 'something'"),
             (lambda: write_header(topologies=["star"]), "topologies = "),
             (lambda: write_header(encoder="other"), "encoder = 'other'"),
             (lambda: write(header=np.array("[" * 100_000)), "not a policy file"),
             *((lambda scale=scale: write_header(budget_scale=scale), "not a whole policy: budget_scale = ")
               for scale in (0, -1, np.nan, np.inf, None)),
             (lambda: write(**{"output.bias": np.full(4, np.nan)}), "not a whole policy: network: output.bias"),
             (lambda: write_header(features="multiply"), "not a whole policy: features = 'multiply'"),
             (lambda: write(**{"output.bias": np.zeros(5)}), "not a whole policy"),
             (lambda: np.savez(path, header=arrays["header"]), "not a whole policy")]
    for damage, message in cases:
        damage()
        with pytest.raises(PolicyFileError, match=message):
            TopologyPolicy.load(path)


def test_a_damaged_file_is_a_policy_file_error_or_the_same_policy(policy, tmp_path):
    """A byte changed in the data, the heads of arrays, the directory at the end; or cut."""
    path, rng, refused = tmp_path / "policy.npz", np.random.default_rng(0), 0
    policy.save(path)
    whole = path.read_bytes()
    heads = [found.start() for found in re.finditer(rb"\x93NUMPY|PK[\x01-\x06]{2}", whole)]
    places = [int(at) for at in rng.choice(heads, 400) + rng.integers(0, 130, 400) if at < len(whole)]
    damaged = [whole[:at] + bytes([whole[at] ^ int(rng.integers(1, 256))]) + whole[at + 1:] for at in places]
    for content in [whole[:at] for at in (0, 4, 29, 60, len(whole) - 22, len(whole) - 1)] + damaged:
        path.write_bytes(content)
        try:
            again = TopologyPolicy.load(path)
        except PolicyFileError as error:
            assert str(path) in str(error) and "\n" not in str(error)
            refused += 1
        else:
            assert (again.probabilities(["Why?"], 700) == policy.probabilities(["Why?"], 700)).all()
    assert refused > 100


def test_no_torch_until_a_policy_is_used():
    code = "import sys, bamas_lite.policy, bamas_lite.experiments; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
