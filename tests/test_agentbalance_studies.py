"""The experiments of notebook 09: their committed files, the file of a designer, the command, what is compared."""

import copy
import io
import json
import math
import pickle
import random
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from bamas_lite import SimulatedLLM, load_tasks
from bamas_lite import encoder as encoder_module
from bamas_lite.agentbalance import Budgets, load_designer, save_designer, studies, summary, systems
from bamas_lite.agentbalance import __main__ as command
from bamas_lite.agentbalance.features import role_text
from bamas_lite.agentbalance.roles import load_roles
from bamas_lite.agentbalance.store import COMMITTED, COMMITTED_TALK, DesignerFileError
from bamas_lite.llm import CallError
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
    assert set(seeds) == set(studies.SEEDS)
    assert {v.name for v in (*studies.VARIANTS, *studies.NOT_TRAINED)} <= set(methods)
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


def npy(array) -> bytes:
    np.save(file := io.BytesIO(), array)
    return file.getvalue()


def npz(arrays, header) -> bytes:
    """A file of a designer, not compressed, so that damage reaches the heads of its arrays."""
    np.savez(file := io.BytesIO(), about=np.array(json.dumps(header)), **arrays)
    return file.getvalue()


@pytest.fixture(scope="module")
def parts():
    """Arrays and header of the committed designer."""
    with np.load(COMMITTED) as file:
        return {name: file[name] for name in file.files if name != "about"}, json.loads(str(file["about"]))


def refusal(path, content):
    """The message that a file gets."""
    path.write_bytes(content)
    with pytest.raises(DesignerFileError) as caught:
        load_designer(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ") and "\n" not in message
    return message


@pytest.mark.parametrize("content, words", [
    (None, "no such file"), (b"text", "not a designer"), (b"", "not a designer"), (b"PK\x03\x04", "not a designer"),
    (b"PK\x05\x06" + bytes(18), "not a designer"), (npy(np.ones(3)), "one array, not an archive"),
    (pickle.dumps({"about": 1}), "not a designer"),
    *((npz({}, header), "header = .*: expected a mapping") for header in (None, [1], "text", 1.5)),
    (npz({}, {}), "format None, version None: expected 'bamas_lite designer', version 1"),
    (npz({}, {"format": "bamas_lite designer", "version": 1}), "header: variant is missing"),
], ids=["absent", "text", "empty", "beginning", "no members", "one array", "pickle", "null", "list", "words", "number",
        "no header", "header of one line"])
def test_files_that_are_no_designer(content, words, tmp_path):
    path = tmp_path / "d.npz"
    if content is not None:
        assert re.search(words, refusal(path, content))
    else:
        with pytest.raises(DesignerFileError, match=words) as caught:
            load_designer(path)
        assert str(path) in str(caught.value)


@pytest.mark.parametrize("compressed", [True, False])
def test_a_damaged_file_is_refused_or_gives_the_same_designer(compressed, designer, parts, tmp_path):
    """Cut, or a byte changed: in the data, in the heads of arrays, in the directory at the end."""
    path, rng = tmp_path / "d.npz", random.Random(0)
    whole = COMMITTED.read_bytes() if compressed else npz(*parts)
    heads = [found.start() for found in re.finditer(rb"\x93NUMPY|PK[\x01-\x06]{2}", whole)]
    cuts = [whole[:at] for at in (1, 4, 29, 30, 60, len(whole) - 1, len(whole) - 22, len(whole) - 60,
                                  *rng.sample(range(len(whole)), 15))]
    places = [rng.choice(heads) + rng.randrange(130) for _ in range(250)] + rng.sample(range(len(whole)), 60)
    changed = [whole[:at] + bytes([whole[at] ^ rng.randrange(1, 256)]) + whole[at + 1:]
               for at in places if at < len(whole)]
    types, same = set(), 0
    for content in cuts + changed:
        path.write_bytes(content)
        try:
            again = load_designer(path)
        except DesignerFileError as error:
            assert str(error).startswith(f"{path}: ") and "\n" not in str(error)
            types.add(re.search(r"\((\w+): |$", str(error))[1])
            continue
        same += 1
        assert again.profiles == designer.profiles
        for one, other in ((designer.network, again.network), (designer.difficulty, again.difficulty)):
            assert all(map(torch.equal, one.state_dict().values(), other.state_dict().values()))
    assert len(types) >= 4 and 0 < same < len(changed)   # many kinds of damage, and some that no reader looks at


WRONG = {
    "variant": [None, [], {}, {"name": "x"}], "variant.pools": [0, 1.5, True, None], "variant.name": ["", None, 3],
    "variant.backbones": ["best", None, ["learned"]], "variant.gate": [1, None, "yes"], "variant.latency_term": [0],
    "variant.reads_question": ["no"], "variant.keep_agents": [1.5, -0.1, math.nan, "half", True],
    "variant.keep_edges": [math.inf, [0.5]], "variant.more": [1],
    "alpha": [-1.0, math.nan, math.inf, "much", None, True, 10**400, [1.0]],
    "most_copies": [-1, 0, 1.5, True, None, "2"], "about": [None, [], "text"],
    "quality": [None, {}, {"mean": {}}, {"mean": {"code": 0.5}, "spread": {"code": 0.1}}],
    "quality.mean.code": [math.nan, 1.5, -1, None, "1"],
    "quality.spread.code": [0.0, -1.0, 1e-320, math.nan, 10**400], "quality.mean.poetry": [0.5],
    "profiles": [None, [], {}, "all"], "profiles.0": [None, {}, 1], "profiles.0.llm": [None, "GPT", [], {}],
    "profiles.0.llm.price_in": [-1, math.nan, "free"], "profiles.0.llm.tokens_per_s": [None, 0, "fast"],
    "profiles.0.quality": [None, {}, {"code": 0.5}], "profiles.0.quality.code": [math.nan, 2, "0.5"],
    "profiles.0.t_out.code": [-1, 10**400, None], "profiles.0.handed.code": [1e9],
    "profiles.0.cost_factor": [0, 10**400], "profiles.0.latency_factor": [math.inf, 1e9, None],
    "profiles.0.n_tasks": [-1, 0.5, None],
    "profiles.0.source": [None, 3], "profiles.0.right": [{}], "profiles.0.llm.name": ["Llama 3.1 8B", "", None],
    "roles": [None, {}, []], "roles.code": [None, [], {}, ["solver"]], "roles.poetry": [[]],
    "roles.code.0": [None, {}, "x"], "roles.code.0.kind": ["vote", None, []], "roles.code.0.criticality": [math.nan, 2],
    "roles.code.0.name": ["", "Plain  Programmer", 3], "more": [1],
}


NAMED = {"quality.mean.poetry": "mean", "profiles.0": "profile 1", "roles.code.0": "role 1",
         "profiles.0.latency_factor": "latency", "profiles.0.llm.name": "name"}
"""How a message names a field, where not by its own name."""


@pytest.mark.parametrize("field", WRONG)
def test_values_that_no_designer_has(field, parts, tmp_path):
    *way, last = (int(key) if key.isdigit() else key for key in field.split("."))
    for value in WRONG[field]:
        place = header = copy.deepcopy(parts[1])
        for key in way:
            place = place[key]
        place[last] = value
        message = refusal(tmp_path / "d.npz", npz(parts[0], header)).removeprefix(f"{tmp_path / 'd.npz'}: ")
        assert message.startswith("not a designer of this kit (")
        assert NAMED.get(field, str(last)) in message


@pytest.mark.parametrize("name", ["network.beta", "network.V.weight", "difficulty.output.bias"])
def test_weights_that_no_designer_has(name, parts, tmp_path):
    arrays, header = parts
    good = arrays[name]
    for wrong in (good * np.nan, good + np.inf, good[None], good[..., None].repeat(2, -1), good.astype(int), good + 1j,
                  good.astype(str), good.astype(bool), np.zeros(0)):
        message = refusal(tmp_path / "d.npz", npz(arrays | {name: wrong}, header))
        assert f"weights: {name}: " in message and "expected finite floats of shape" in message
    message = refusal(tmp_path / "d.npz", npz({other: a for other, a in arrays.items() if other != name}, header))
    assert f"weights: {name} is missing" in message
    message = refusal(tmp_path / "d.npz", npz(arrays | {f"{name}.more": good}, header))
    assert f"weights: '{name}.more': unknown" in message


def test_a_designer_is_saved_whole_or_not_at_all(designer, tmp_path):
    path = tmp_path / "d.npz"
    save_designer(designer, path)
    before = path.read_bytes()
    with pytest.raises(DesignerFileError, match="about = .*cannot be written as JSON"):
        save_designer(replace(designer, about={"made by": object()}), path)
    assert path.read_bytes() == before and [file.name for file in tmp_path.iterdir()] == ["d.npz"]
    with pytest.raises(DesignerFileError, match="path = None: expected the name of a file"):
        save_designer(designer, None)


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


class Broken(SimulatedLLM):
    """The calls of one LLM fail."""

    async def complete(self, llm, messages, **options):
        if llm.name == "GPT-4.1 mini":
            raise CallError("503 no server")
        return await super().complete(llm, messages, **options)

    complete.instant = True


def test_an_llm_whose_calls_fail_is_not_taken_for_one_that_errs(designer):
    train, budgets = load_tasks("word_problems", "train", limit=3), [Budgets(600, 60)]
    words = (r"task 'word_problems/train/0000', graph 1x GPT-4.1 mini, 0 edges: no answer that could be graded: "
             r"solver \(GPT-4.1 mini\): CallError: 503 no server")
    with pytest.raises(RuntimeError, match=words):
        systems.best_single(designer.profiles, train, train, budgets, Broken(0))


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
