"""The committed logs, embeddings and policies are what the package makes today, on slices."""

import numpy as np
import pandas as pd
import pytest

from bamas_lite import SimulatedLLM, TopologyPolicy, artifacts, encoder, load_tasks, load_trajectories, train_policy
from bamas_lite.artifacts import OWN_SETS, SEEDS, log_path, logged_tasks, make_log, policy_path, split_log
from bamas_lite.paths import DATA
from bamas_lite.policy import questions_of
from bamas_lite.rewards import LogTable
from bamas_lite.topologies import TOPOLOGIES
from bamas_lite.trajectories import PAPER_BUDGETS, load_manifest

each_set = pytest.mark.parametrize("task_set", OWN_SETS)
REMAKE = "; `make artifacts` remakes the committed files"


@pytest.fixture(scope="module")
def logs():
    return {task_set: load_trajectories(log_path(task_set)) for task_set in OWN_SETS}


@each_set
def test_a_slice_of_the_log_made_anew_is_equal(task_set, logs):
    tasks = logged_tasks(task_set)
    some = [tasks[i] for i in (0, 57, len(tasks) // 2, len(tasks) - 1)]
    committed = logs[task_set][logs[task_set].task_id.isin([task.task_id for task in some])]
    pd.testing.assert_frame_equal(make_log(some).drop(columns="run_id"),
                                  committed.drop(columns="run_id").reset_index(drop=True), obj=f"{task_set}{REMAKE}")


@each_set
def test_the_log_is_a_full_factorial_of_tasks_that_are_still_there(task_set, logs):
    tasks, log = logged_tasks(task_set), logs[task_set]
    budgets = PAPER_BUDGETS[tasks[0].domain]
    wanted = [(s, t.task_id, float(b), k) for s in SEEDS for t in tasks for b in budgets for k in TOPOLOGIES]
    assert list(log[["seed", "task_id", "budget", "topology"]].itertuples(index=False, name=None)) == wanted
    assert log.run_id.is_unique and (log.backend == "simulated").all()
    assert (log.cost <= log.budget).all()


@each_set
def test_the_log_says_which_simulator_made_it(task_set):
    manifest = load_manifest(log_path(task_set))
    assert manifest["backend"] == [SimulatedLLM(seed).identity for seed in SEEDS], REMAKE
    assert manifest["seeds"] == list(SEEDS) and manifest["n_tasks"] == len(logged_tasks(task_set))


def test_train_and_test_tasks_are_the_splits(logs):
    for task_set, log in logs.items():
        for part, split in zip(split_log(log), ("train", "test"), strict=True):
            known = [task.task_id for task in load_tasks(task_set, split=split)]
            assert list(part.task_id.unique()) == known[:artifacts.TASKS_PER_SPLIT]


@pytest.fixture(scope="module")
def vectors():
    return encoder._committed(encoder.COMMITTED)


@each_set
def test_every_task_has_its_committed_embedding(task_set, vectors):
    assert all(encoder._key(task.question) in vectors for task in load_tasks(task_set)), REMAKE


def test_the_committed_embeddings_belong_to_our_tasks_only(vectors):
    assert len(vectors) == len({task.question for task_set in OWN_SETS for task in load_tasks(task_set)}), REMAKE


def test_committed_embeddings_are_close_to_fresh_ones(vectors):
    questions = [load_tasks(task_set)[i].question for task_set in OWN_SETS for i in (0, 100, -1)]
    fresh = encoder._run_encoder(questions)
    committed = np.stack([vectors[encoder._key(question)] for question in questions])
    cosines = (fresh * committed).sum(axis=1) / np.linalg.norm(fresh, axis=1)
    assert (cosines > 0.999).all()
    others = fresh @ np.roll(committed, 1, axis=0).T
    assert np.diag(others).max() < 0.999, "different questions must not share a vector"


@each_set
def test_a_policy_trained_anew_chooses_as_the_committed_one(task_set, logs):
    train, _ = split_log(logs[task_set])
    committed, fresh = TopologyPolicy.load(policy_path(task_set)), train_policy(train).policy
    assert committed.about == fresh.about, REMAKE
    table = LogTable.from_log(logs[task_set])
    questions = questions_of(table.task_id)
    choices = [policy.probabilities(questions, table.budget).argmax(axis=1) for policy in (committed, fresh)]
    assert (choices[0] == choices[1]).mean() > 0.98


def test_results_in_the_readme_come_from_the_committed_files():
    readme = (DATA.parent / "README.md").read_text(encoding="utf-8")
    block = readme.partition(artifacts.RESULTS_BEGIN)[2].partition(artifacts.RESULTS_END)[0]
    assert block.strip() == artifacts.results_table()
