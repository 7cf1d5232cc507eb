"""The experiments of notebook 09: their committed files, the file of a designer, the command, what is compared."""

import json

import numpy as np
import pandas as pd
import pytest

from bamas_lite import SimulatedLLM, load_tasks
from bamas_lite import encoder as encoder_module
from bamas_lite.agentbalance import Budgets, load_designer, save_designer, studies, summary, systems
from bamas_lite.agentbalance import __main__ as command
from bamas_lite.agentbalance.features import role_text
from bamas_lite.agentbalance.roles import load_roles
from bamas_lite.agentbalance.store import COMMITTED, COMMITTED_TALK, DesignerFileError
from bamas_lite.paths import DATA
from bamas_lite.topologies import TOPOLOGIES

REMAKE = "`make artifacts` rebuilds it"
DOMAINS = ("arithmetic", "mathematics", "code")


@pytest.fixture(scope="module")
def outcomes() -> pd.DataFrame:
    return pd.read_parquet(summary.OUTCOMES)


@pytest.fixture(scope="module")
def designer():
    return load_designer()


def test_readme_comes_from_the_committed_outcomes():
    readme = (DATA.parent / "README.md").read_text(encoding="utf-8")
    block = readme.partition(summary.BEGIN)[2].partition(summary.END)[0]
    assert block.strip() == summary.results_table(), REMAKE


def test_outcomes_are_a_full_factorial(outcomes):
    methods, seeds = outcomes.method.unique(), outcomes.seed.unique()
    assert set(seeds) == set(studies.SEEDS) and {v.name for v in studies.VARIANTS} <= set(methods)
    assert len(outcomes) == len(methods) * len(seeds) * len(studies.cells()) * 3 * studies.TEST_TASKS
    key = ["method", "seed", "cost_budget", "latency_budget", "task_id"]
    assert not outcomes.duplicated(key).any()
    test = {task.task_id for name in studies.TRAIN for task in load_tasks(name, "test", limit=studies.TEST_TASKS)}
    assert set(outcomes.task_id) == test


def test_no_outcome_is_over_a_budget(outcomes):
    assert (outcomes.cost <= outcomes.cost_budget + 0.05).all()   # stored to a tenth of a u$
    assert (outcomes.latency_s <= outcomes.latency_budget + 0.005).all()
    assert (outcomes.status != "error").all()
    assert not outcomes[outcomes.status == "infeasible"].correct.any()


def test_the_committed_designer_made_the_committed_outcomes(outcomes, designer):
    tasks = [task for name in studies.TRAIN for task in load_tasks(name, "test", limit=2)]
    cells = [Budgets(600, 60), Budgets(4800, 4)]
    rows = systems.as_frame(systems.designed("AgentBalance", designer, tasks, cells, SimulatedLLM(0)))
    key = ["cost_budget", "latency_budget", "task_id"]
    known = outcomes[(outcomes.method == "AgentBalance") & (outcomes.seed == 0)].astype({"task_id": str})
    both = rows.astype({"task_id": str}).merge(known, on=key)
    assert len(both) == len(rows) == 12
    assert (both.correct_x == both.correct_y).all(), REMAKE
    assert np.allclose(both.cost_x, both.cost_y, atol=0.06) and np.allclose(both.latency_s_x, both.latency_s_y,
                                                                           atol=0.006)


def test_bamas_takes_the_outcome_of_one_of_its_topologies(outcomes):
    key = ["seed", "cost_budget", "latency_budget", "task_id"]
    table = outcomes.astype({"task_id": str, "method": str}).pivot_table(index=key, columns="method",
                                                                        values="cost", aggfunc="first")
    equal = (table[list(TOPOLOGIES)].sub(table["BAMAS"], axis=0).abs() < 0.051).any(axis=1)
    assert equal.all()


def test_every_role_has_its_committed_embedding():
    vectors = encoder_module._committed(encoder_module.COMMITTED_ROLES)
    texts = [role_text(role) for roles in load_roles().values() for role in roles]
    assert {encoder_module._key(text) for text in texts} == set(vectors), REMAKE


# --- the file of a designer ---

def test_a_saved_designer_designs_the_same(designer, tmp_path):
    save_designer(designer, tmp_path / "a.npz")
    again = load_designer(tmp_path / "a.npz")
    task = load_tasks("algebra_calculus", "test", limit=1)[0]
    for budgets in (Budgets(300), Budgets(4800, 4)):
        one, two = (d.design(task.question, task.domain, budgets).graph for d in (designer, again))
        assert one == two
    save_designer(again, tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    assert again.pools[0].names == designer.pools[0].names and again.about == designer.about


def test_the_second_committed_designer_is_of_another_world():
    assert load_designer(COMMITTED_TALK).profiles[0].quality != load_designer(COMMITTED).profiles[0].quality


@pytest.mark.parametrize("content, words", [
    (None, "no such file"), (b"text", "not a designer"), (b"", "not a designer"),
], ids=["absent", "text", "empty"])
def test_files_that_are_no_designer(content, words, tmp_path):
    path = tmp_path / "d.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DesignerFileError, match=words) as caught:
        load_designer(path)
    assert str(path) in str(caught.value)


def test_a_designer_of_another_version(designer, tmp_path):
    path = tmp_path / "d.npz"
    save_designer(designer, path)
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    about = json.loads(str(arrays["about"])) | {"version": 99}
    np.savez(path, **arrays | {"about": np.array(json.dumps(about))})
    with pytest.raises(DesignerFileError, match="version 99: expected"):
        load_designer(path)
    np.savez(path, **{name: value for name, value in arrays.items() if not name.endswith("V.weight")})
    with pytest.raises(DesignerFileError, match="not a designer"):
        load_designer(path)


# --- what is compared ---

def test_best_single_is_the_best_on_the_training_tasks(designer):
    train, test = (load_tasks("word_problems", split, limit=12) for split in ("train", "test"))
    backend, budgets = SimulatedLLM(0), Budgets(130, 2.0)
    chosen = systems._best_alone(designer.profiles, train, "arithmetic", budgets, backend)
    right = {}
    for p in designer.profiles:
        graph = systems.AgentGraph((systems.GraphAgent("solver", systems.ALONE, p.llm, p.cost("arithmetic"), 0.0,
                                                       p.latency_s("arithmetic")),))
        right[p.llm.name] = sum(systems._run(task, graph, budgets, backend).correct for task in train)
    assert right[chosen.agents[0].llm.name] == max(right.values()) > min(right.values())
    rows = systems.best_single(designer.profiles, train, test, [budgets], backend)
    assert [row["task_id"] for row in rows] == [task.task_id for task in test]


def test_infeasible_budgets_are_rows_that_count_as_wrong(designer):
    tasks, budgets = load_tasks("algebra_calculus", "test", limit=2), [Budgets(1, 60), Budgets(4800, 0.01)]
    rows = systems.designed("x", designer, tasks, budgets, SimulatedLLM(0))
    rows += systems.topologies(studies.llms(), tasks, budgets, SimulatedLLM(0))
    rows += systems.plugged_in(designer, tasks, budgets, SimulatedLLM(0))
    assert len(rows) == 2 * 2 * 9
    assert all(row["status"] == "infeasible" and row["correct"] is False and row["cost"] == 0 for row in rows)


def test_plugged_in_teams_are_the_matched_llms(designer):
    task = load_tasks("python_functions", "test", limit=1)[0]
    design = designer.design(task.question, task.domain, Budgets(1200))
    names = [slot.llm.name for slot in systems.Backbones.of(design, designer).slots]
    matched = [designer.profiles[m].llm.name for m in design.matching.llms if m >= 0]
    assert names == matched
    assert len({slot.name for slot in systems.Backbones.of(design, designer).slots}) == len(names)


@pytest.mark.parametrize("name", studies.WORLDS)
def test_worlds_are_valid_and_stay_in_the_stated_ranges(name):
    backend = SimulatedLLM(0, studies.parameters(name))
    p = backend.parameters
    for domain in DOMAINS:
        assert p.task_share.value[domain] + p.llm_share.value[domain] <= 1
    for parameter in studies.WORLDS[name]:
        entry = getattr(p, parameter)
        assert entry.status == "assumed"
    assert (backend.identity == SimulatedLLM(0).identity) == (name == "assumed")


def test_the_held_out_llms_are_the_medoids(designer):
    assert set(studies.held_out(designer.profiles)) == {pool.medoid for pool in designer.pools}


def test_slices_hold_the_other_budget(outcomes):
    by_cost, by_time = (studies.slice_of(outcomes, by) for by in ("cost_budget", "latency_budget"))
    assert set(by_cost.latency_budget) == {max(studies.LATENCY_BUDGETS)}
    assert set(by_cost.cost_budget) == set(studies.COST_BUDGETS)
    assert set(by_time.cost_budget) == {max(studies.COST_BUDGETS)}
    assert set(by_time.latency_budget) == set(studies.LATENCY_BUDGETS)


@pytest.mark.parametrize("arguments", [["--seeds", "0"], ["--workers", "0"]])
def test_the_command_refuses_wrong_numbers(arguments, capsys):
    assert command.main(arguments) == 2
    assert "expected at least 1" in capsys.readouterr().err
