"""Outcomes in arrays: the same episodes as the log, on any number of workers; wrong use gets one clear message."""

import re
from dataclasses import replace

import numpy as np
import pytest

from bamas_lite import SimulatedLLM, generate_trajectories, load_tasks
from bamas_lite.casting import TOPOLOGIES
from bamas_lite.policy import CODE_REWARDS, OUR_REWARDS, OURS, train_policy
from bamas_lite.reproduction.outcomes import Outcomes, Variant, joined, run_factorial, spread
from bamas_lite.rewards import LogError, LogTable
from bamas_lite.trajectories import paper_pool

ASSUMED = Variant(parameters="assumed")
PUBLISHED = replace(ASSUMED, enforcement="paper", casting="code")
CASES = {"arithmetic": ("word_problems", (1250, 500, 100)), "mathematics": ("algebra_calculus", (1000, 2000)),
         "code": ("python_functions", (500, 875))}
"""Domain -> task set and budgets: one is below the least feasible, and they are not in order."""


@pytest.fixture(scope="module")
def case():
    tasks = load_tasks("word_problems", "test", limit=7)
    return {"tasks": tasks, "budgets": CASES["arithmetic"][1], "pool": paper_pool("arithmetic"), "seeds": (0, 3)}


@pytest.fixture(scope="module")
def outcomes(case) -> Outcomes:
    return run_factorial(**case, variant=ASSUMED)


def same(one: Outcomes, other: Outcomes) -> bool:
    arrays = ("correct", "cost", "over", "status")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in arrays)


def test_shape_and_infeasible_rows(case, outcomes):
    assert outcomes.correct.shape == (2, 7, 3, 4)
    assert (outcomes.status[:, :, 2] == 1).all() and (outcomes.status[:, :, :2] == 0).all()
    assert not outcomes.cost[:, :, 2].any() and (outcomes.cost[:, :, :2] > 0).all()
    assert 0 < outcomes.correct[:, :, :2].mean() < 1 and not outcomes.over.any()


@pytest.mark.parametrize("domain", CASES)
@pytest.mark.parametrize("variant", [ASSUMED, PUBLISHED], ids=["ours", "published"])
def test_same_rows_as_the_log(domain, variant):
    name, budgets = CASES[domain]
    tasks, seeds, pool = load_tasks(name, "test", limit=4), (0, 1), paper_pool(domain)
    outcomes = run_factorial(tasks, budgets, pool=pool, variant=variant, seeds=seeds)
    log = generate_trajectories(tasks, budgets, pool=pool, backend=lambda seed: SimulatedLLM(seed, "assumed"),
                                seeds=seeds, enforcement=variant.enforcement, casting=variant.casting, progress=False)
    shape = outcomes.correct.shape
    assert np.array_equal(log.correct.fillna(False).to_numpy(bool).reshape(shape), outcomes.correct)
    assert np.array_equal(log.cost.to_numpy().reshape(shape), outcomes.cost)
    assert np.array_equal(log.over_budget.to_numpy().reshape(shape), outcomes.over)
    assert (log.status.to_numpy(str).reshape(shape) == np.array(["ok", "infeasible", "error"])[outcomes.status]).all()
    for rewards in (OUR_REWARDS, CODE_REWARDS["gsm8k"], replace(OUR_REWARDS, infeasible=None)):
        same_table(outcomes.table(rewards), LogTable.from_log(log, rewards))
        same_table(outcomes.table(rewards, seeds=[1]), LogTable.from_log(log[log.seed == 1], rewards))


def same_table(one: LogTable, other: LogTable) -> None:
    assert one.excluded == other.excluded and one.backend == other.backend
    for name, value in vars(other).items():
        if isinstance(value, np.ndarray):
            kind = np.testing.assert_allclose if value.dtype.kind == "f" else np.testing.assert_array_equal
            kind(getattr(one, name), value, err_msg=name)


def test_same_on_two_workers(case, outcomes):
    tasks = [replace(task, task_id=f"{task.task_id}/{i}") for i in range(4) for task in case["tasks"]]
    case = {**case, "tasks": tasks, "budgets": [500], "variant": ASSUMED}
    one, two = run_factorial(**case), run_factorial(**case, workers=2)
    assert len(tasks) > 20 and [t.task_id for t in two.tasks] == [t.task_id for t in tasks] and same(one, two)


def test_parts_of_a_run_are_the_same_as_the_whole(case, outcomes):
    one = run_factorial(case["tasks"][3:], case["budgets"][:1], pool=case["pool"], seeds=(3,), variant=ASSUMED,
                        topologies=("feedback", "linear"))
    whole = replace(outcomes, **{name: getattr(outcomes, name)[1:, 3:, :1][..., [2, 0]]
                                 for name in ("correct", "cost", "over", "status")})
    assert same(one, whole)
    again = joined([run_factorial(part, case["budgets"], pool=case["pool"], seeds=case["seeds"], variant=ASSUMED)
                    for part in (case["tasks"][:3], case["tasks"][3:])])
    assert same(again, outcomes) and again.tasks == outcomes.tasks


def test_a_table_of_some_topologies_leaves_the_others_empty(case):
    table = run_factorial(case["tasks"], [500], pool=case["pool"], variant=ASSUMED, seeds=(0, 1),
                          topologies=("star", "planner_driven")).table()
    played = [name in ("star", "planner_driven") for name in TOPOLOGIES]
    assert (table.count == np.where(played, 2, 0)).all()
    assert (np.isfinite(table.R) == played).all()
    np.testing.assert_allclose(table.R_over_b[:, played], 2 * table.R[:, played])


def test_every_field_of_a_variant_changes_the_episodes(case):
    tasks, pool = load_tasks("word_problems", "test", limit=60), case["pool"]
    base = run_factorial(tasks, [875, 2000], pool=pool, variant=ASSUMED)
    wordy = {"base": "assumed", "tokens_style": {"value": {"critic": 1.2}}}
    for change in ({"enforcement": "paper"}, {"casting": "code"}, {"rounds": 1}, {"replans": 0},
                   {"star_prompts": "same"}, {"critic_heard": False}, {"parameters": wordy}):
        other = run_factorial(tasks, [875, 2000], pool=pool, variant=replace(ASSUMED, **change))
        assert not same(base, other), change


def test_progress_counts_tasks():
    told = []
    assert list(spread(len, list(range(50)), workers=1, progress=told.append)) == [20, 20, 10]
    assert told == [20, 40, 50]


@pytest.mark.parametrize(("change", "message"), [
    ({"tasks": []}, "tasks is empty"), ({"tasks": ["a"]}, "expected Task objects"),
    ({"budgets": []}, "budgets is empty"), ({"budgets": [-5]}, "budget = -5"), ({"budgets": ["x"]}, "budget = 'x'"),
    ({"seeds": []}, "seeds is empty"),
    ({"seeds": [0, 0]}, "seeds holds 0 more than once"), ({"topologies": ["ring"]}, "unknown 'ring'"),
    ({"pool": "paper"}, "pool = 'paper'"), ({"workers": 0}, "workers = 0"), ({"variant": "ours"}, "variant = 'ours'"),
])
def test_wrong_use(case, change, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        run_factorial(**{"variant": ASSUMED, **case, **change})


@pytest.mark.parametrize(("field", "value"), [
    ("enforcement", "hard"), ("casting", "none"), ("rounds", 0), ("replans", -1), ("star_prompts", "odd"),
    ("critic_heard", "no"), ("provisioning", None)])
def test_wrong_variants(field, value):
    with pytest.raises(ValueError, match=f"^{field} = "):
        Variant(**{field: value})


def test_wrong_tables(case, outcomes):
    with pytest.raises(ValueError, match="seed = 5: was not run; there are 0, 3"):
        outcomes.table(seeds=[5])
    with pytest.raises(ValueError, match="seeds = 3: expected a list of 0, 3"):
        outcomes.table(seeds=3)
    nothing = run_factorial(case["tasks"], [100], pool=case["pool"], variant=ASSUMED)
    with pytest.raises(LogError, match="infeasible"):
        nothing.table(replace(OUR_REWARDS, infeasible=None))


def test_a_policy_learns_the_same_from_the_arrays_and_from_their_log(case, outcomes):
    log = generate_trajectories(case["tasks"], case["budgets"], pool=case["pool"], seeds=case["seeds"], progress=False,
                                backend=lambda seed: SimulatedLLM(seed, "assumed"))
    for change in ({}, {"objective": "published", "rewards": CODE_REWARDS["gsm8k"]}):
        settings = replace(OURS, epochs=2, **change)
        table = outcomes.table(settings.rewards)
        one, other = (train_policy(data, settings=settings, tasks=case["tasks"]) for data in (table, log))
        np.testing.assert_allclose(one.history.to_numpy(), other.history.to_numpy(), rtol=1e-6)
        assert one.policy.about == other.policy.about


def test_tables_that_cannot_be_trained_on(case, outcomes):
    with pytest.raises(LogError, match="a table with Rewards.*expected one with the rewards of the settings"):
        train_policy(outcomes.table(CODE_REWARDS["gsm8k"]), tasks=case["tasks"])
    some = run_factorial(case["tasks"], [500], pool=case["pool"], variant=ASSUMED, topologies=("star", "linear"))
    with pytest.raises(LogError, match="no state has a usable row for every topology"):
        train_policy(some.table(), tasks=case["tasks"])
