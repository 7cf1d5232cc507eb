"""Switches between the paper and its public code: each changes what it says and nothing else."""

from dataclasses import fields, replace

import numpy as np
import pytest

from bamas_lite import load_tasks
from bamas_lite.casting import TOPOLOGIES
from bamas_lite.policy import PAPER_SETTINGS
from bamas_lite.reproduction import switches as module
from bamas_lite.reproduction.outcomes import Variant, run_factorial
from bamas_lite.reproduction.published import DATASETS
from bamas_lite.reproduction.switches import (
    ALL,
    ALL_AGAINST_OURS,
    BASE,
    METRICS,
    SWITCHES,
    Side,
    Switch,
    all_together,
    measure_switches,
    paper_together,
)
from bamas_lite.rewards import OUR_REWARDS
from bamas_lite.trajectories import paper_pool
from tests.synthetic import pseudo_encode

BY_NAME = {switch.name: switch for switch in SWITCHES}
MATH, MBPP, GSM8K = (DATASETS[name] for name in ("MATH", "MBPP", "GSM8K"))
SMALL = {"seeds": (0, 1), "n_train": 8, "n_test": 6, "starts": 2, "parameters": "assumed", "resamples": 200}


@pytest.fixture(scope="module", autouse=True)
def made_up_encoder():
    """The real encoder has tests of its own."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("policy", "reproduction.switches"):
            patch.setattr(f"bamas_lite.{name}.encode", pseudo_encode)
        yield


@pytest.fixture(scope="module")
def small(made_up_encoder):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "N_BUDGETS", 16)
        # what trains long is cut short; the committed file shows the whole length
        quick = [replace(switch, paper_side={"settings": {"epochs": 40}}) if switch.name == "ten steps" else switch
                 for switch in SWITCHES]
        return measure_switches(["GSM8K"], **SMALL, switches=quick)


def of(table, name, dataset="GSM8K"):
    return table[(table.switch == name) & (table.dataset == dataset)].set_index("metric")


# ---------------------------------------------------------------------------------------------- what a switch says

def test_every_switch_changes_one_thing_and_names_real_fields():
    assert len(BY_NAME) == len(SWITCHES)
    known = {field.name for field in fields(Variant)}
    for switch in SWITCHES:
        assert switch.topic and switch.paper and switch.code and switch.how
        assert set(switch.datasets) <= set(DATASETS)
        for name in switch.datasets:
            data = DATASETS[name]
            paper, code = switch.sides(data)
            assert paper != code
            different = [f.name for f in fields(Side) if getattr(paper, f.name) != getattr(code, f.name)]
            assert len(set(different) - {"topologies"}) == 1  # the topologies say where a variant applies
            for side in (paper, code):
                assert {n for n, _ in side.variant} <= known
                replace(PAPER_SETTINGS[data.domain], **dict(side.settings))
                replace(BASE, **dict(side.variant))


def test_the_base_is_bamas_as_published():
    assert Variant(enforcement="paper") == BASE
    for data in DATASETS.values():
        sides = [side for switch in SWITCHES for side in switch.sides(data)]
        assert Side() in sides and all(side.failures in (0, module.FAILURES) for side in sides)


@pytest.mark.parametrize(("data", "variant", "settings"), [
    (MBPP, {"casting": "code", "star_prompts": "same", "rounds": 2, "critic_heard": False,
            "provisioning": "code, factors of code"},
     {"features": "add", "learning_rate": 3e-3, "model_choice": "matched"}),
    (MATH, {"casting": "code", "star_prompts": "same", "rounds": 2,
            "provisioning": "code, factors of mathematics"},
     {"features": "add", "learning_rate": 3e-3, "model_choice": "matched"}),
])
def test_all_together_is_the_code(data, variant, settings):
    side = all_together(SWITCHES, data)
    assert (dict(side.variant), dict(side.settings)) == (variant, settings)
    assert side.failures == module.FAILURES and not side.half_of_the_tasks and side.topologies == TOPOLOGIES
    assert all_together(SWITCHES, GSM8K).half_of_the_tasks


# --------------------------------------------------------------------------------------------- what a switch does

def changed_columns(name, data):
    """Topologies whose episodes differ between the two sides of a switch, as found by playing everything."""
    tasks = load_tasks(data.own_tasks, "test", limit=12)
    outcomes = []
    for side in BY_NAME[name].sides(data):
        variant = replace(BASE, parameters="assumed", **dict(side.variant))
        outcomes.append(run_factorial(tasks, data.budgets, pool=paper_pool(data.domain), variant=variant))
    one, other = outcomes
    differ = (one.cost != other.cost) | (one.correct != other.correct)
    return {topology for topology, d in zip(TOPOLOGIES, differ.any(axis=(0, 1, 2)), strict=True) if d}


@pytest.mark.parametrize(("name", "wanted"), [
    ("one agent", set()), ("average weights", set()), ("objective factors", {"feedback", "planner_driven"}),
    ("topology first", {"feedback", "planner_driven"}), ("two rounds", {"feedback"}),
    ("late stop", set(TOPOLOGIES)),
])
def test_episodes_change_where_the_switch_says(name, wanted):
    changed = changed_columns(name, GSM8K)
    assert changed <= wanted and bool(changed) == bool(wanted)


@pytest.mark.parametrize("data", [GSM8K, MATH], ids=["GSM8K", "MATH"])
def test_sides_are_played_as_run_factorial_plays_them(data):
    """What is shared among sides, and what is put together of two runs, is what a whole run gives."""
    tasks, seeds = load_tasks(data.own_tasks, "test", limit=3), (0, 4)
    sides = [side for switch in SWITCHES if data.name in switch.datasets for side in switch.sides(data)]
    sides = [*dict.fromkeys(replace(side, settings=()) for side in sides), all_together(SWITCHES, data)]
    played = module._play_sides(data, sides, replace(BASE, parameters="assumed"), seeds, tasks, 1)
    options = {"pool": paper_pool(data.domain), "seeds": seeds}
    base = run_factorial(tasks, data.budgets, variant=replace(BASE, parameters="assumed"), **options)
    for side in sides:
        variant = replace(BASE, parameters="assumed", **dict(side.variant))
        whole = run_factorial(tasks, data.budgets, variant=variant, **options)
        failed = np.random.default_rng(0).random(base.cost.shape) < side.failures
        for name in ("correct", "cost", "over", "status"):
            wanted = np.where([t in side.topologies for t in TOPOLOGIES], getattr(whole, name), getattr(base, name))
            if name != "status":
                wanted = np.where(failed, 0, wanted)
            assert np.array_equal(getattr(played[side], name), wanted), (side, name)


def test_failures_become_wrong_answers_of_cost_0():
    tasks = load_tasks("word_problems", "test", limit=40)
    base = run_factorial(tasks, [100, 1250], pool=paper_pool("arithmetic"),
                         variant=replace(BASE, parameters="assumed"))
    failed = module._with_failures(base, 0.3)
    hit = (failed.cost == 0) & (base.cost > 0)
    assert 0.2 < hit[:, :, 1].mean() < 0.4 and not hit[:, :, 0].any()
    assert not failed.correct[hit].any() and not failed.over[hit].any()
    for name in ("correct", "cost", "over", "status"):
        assert np.array_equal(getattr(failed, name)[~hit], getattr(base, name)[~hit])
    assert np.array_equal(failed.status, base.status)  # they count as answers


def test_measured_values_are_those_of_the_log(small):
    """The base row by row: every policy trained by the package itself and asked on the test tasks."""
    from bamas_lite.policy import train_policy
    tasks, test = load_tasks("word_problems", "train", limit=8), load_tasks("word_problems", "test", limit=6)
    options = {"pool": paper_pool("arithmetic"), "variant": replace(BASE, parameters="assumed"), "seeds": (0, 1)}
    budgets = GSM8K.budgets
    train, held_out = (run_factorial(t, budgets, **options) for t in (tasks, test))
    values = {"accuracy": [], "cost": [], "over_budget": [], "linear": []}
    for s in (0, 1):
        for start in (0, 1):
            settings = replace(PAPER_SETTINGS["gsm8k"], seed=42 + 2 * s + start)
            policy = train_policy(as_log(train, s), settings=settings, tasks=tasks).policy
            for j, task in enumerate(test):
                for b, budget in enumerate(budgets):
                    t = TOPOLOGIES.index(policy.select(task.question, budget))
                    values["accuracy"].append(100 * held_out.correct[s, j, b, t])
                    values["cost"].append(held_out.cost[s, j, b, t])
                    values["over_budget"].append(1000 * held_out.over[s, j, b, t])
                    values["linear"].append(100 * (t == 0))
    base = of(small, "learning rate").base
    assert base.accuracy == pytest.approx(np.mean(values["accuracy"]))
    assert base.cost == pytest.approx(np.mean(values["cost"]))
    assert base.over_budget == pytest.approx(np.mean(values["over_budget"]))
    assert base.share_linear == pytest.approx(np.mean(values["linear"]))


def as_log(outcomes, s):
    """One seed of outcomes as a log, row by row."""
    import pandas as pd
    return pd.DataFrame([
        {"task_id": task.task_id, "domain": task.domain, "level": task.level, "budget": budget, "topology": topology,
         "status": "ok", "correct": bool(outcomes.correct[s, j, b, t]), "cost": float(outcomes.cost[s, j, b, t]),
         "behaviour_prob": 0.25}
        for j, task in enumerate(outcomes.tasks) for b, budget in enumerate(outcomes.budgets)
        for t, topology in enumerate(outcomes.topologies)])


def test_the_table(small):
    names = [switch.name for switch in SWITCHES if "GSM8K" in switch.datasets]
    measured = small[small.metric.isin(METRICS)]
    assert list(dict.fromkeys(measured.switch)) == [*names, ALL, ALL_AGAINST_OURS]
    assert set(measured.dataset) == {"GSM8K"}
    assert list(small.columns) == ["switch", "dataset", "metric", "effect", "low", "high", "base", "with_switch"]
    assert not small.duplicated(["switch", "dataset", "metric"]).any() and small.notna().all().all()
    np.testing.assert_allclose(small.effect, small.with_switch - small.base, atol=1e-9)
    assert (small.low <= small.effect + 1e-9).all() and (small.effect <= small.high + 1e-9).all()
    for name in names:
        shares = of(small, name).loc[list(METRICS[3:])]
        assert shares.with_switch.sum() == pytest.approx(100) and shares.base.sum() == pytest.approx(100)
    for name in ("one agent", "average weights", "infeasible reward"):  # by computation
        assert (of(small, name).loc[list(METRICS), ["effect", "low", "high"]] == 0).all().all()
    for name in ("topology first", "star of three", "failures are wrong answers", "ten steps", ALL):
        assert (of(small, name).effect != 0).any()


def test_training_switches_leave_the_episodes_alone(small):
    """Their base is that of the others, and only the choices can change what they do."""
    base = of(small, "learning rate").base
    for name in ("features added", "matched rows", "two rounds", ALL):
        assert (of(small, name).base[list(METRICS)] == base[list(METRICS)]).all()


def test_teams_that_differ(small):
    own = {name: of(small, name).effect.teams_differ for name in BY_NAME if BY_NAME[name].planned}
    assert own["average weights"] == 0 and own["topology first"] > own["objective factors"] > 0
    # a single agent where one DeepSeek-V3 but no pair with it is affordable: from 557.4 to 761 of 500 to 2000
    assert own["one agent"] == pytest.approx(100 * (761 - 557.4) / 1500, abs=100 / 16)
    larger = {name: of(small, name, "pool of fourteen").effect.teams_differ for name in own}
    assert larger["average weights"] > 10 and larger["topology first"] > 50


def test_same_numbers_on_two_workers():
    few = [BY_NAME["learning rate"], BY_NAME["two rounds"]]
    arguments = {**SMALL, "n_test": 14, "switches": few}  # 22 tasks: two parts
    one, two = (measure_switches(["GSM8K"], workers=workers, **arguments) for workers in (1, 2))
    assert one.equals(two)


@pytest.mark.parametrize(("change", "words"), [
    ({"datasets": ["gsm8k"]}, "dataset = 'gsm8k': expected one of GSM8K"),
    ({"datasets": "GSM8K"}, "datasets = 'GSM8K'"),
    ({"datasets": []}, r"datasets = \[\]"), ({"datasets": ["MATH", "MATH"]}, "datasets = .*each once"),
    ({"datasets": 3}, "datasets = 3"), ({"resamples": 0}, "resamples = 0"), ({"seeds": 3}, "seeds = 3: expected"),
    ({"switches": ["late stop"]}, "switches holds 'late stop': expected Switch"), ({"switches": "x"}, "switches = 'x'"),
    ({"switches": [BY_NAME["two rounds"]] * 2}, "switches holds 'two rounds' twice"),
    ({"n_train": 1}, "n_train = 1"), ({"n_test": 0}, "n_test = 0"),
    ({"starts": 0}, "starts = 0"), ({"n_test": 10**6}, "n_test = 1000000: word_problems has 400 tasks"),
    ({"workers": 0}, "workers = 0"), ({"seeds": ()}, "seeds is empty"), ({"seeds": (0, 0)}, "seeds holds 0 more"),
])
def test_wrong_arguments_are_named(change, words, monkeypatch):
    monkeypatch.setattr(module, "play", None)  # found before anything is played
    with pytest.raises(ValueError, match=words):
        measure_switches(**{"datasets": ["GSM8K"], **SMALL, "switches": [BY_NAME["two rounds"]], **change})


def test_the_command_writes_the_file(tmp_path, monkeypatch, capsys):
    few = (BY_NAME["two rounds"], Switch("none", "t", "p", "c", "h", {"settings": {"seed": 7}}))
    measured = {}

    def measure(**options):
        measured.update(options)
        return measure_switches(["GSM8K"], **SMALL, switches=few)

    monkeypatch.setattr(module, "measure_switches", measure)
    assert module.main(["--out", str(tmp_path / "new"), "--workers", "1"]) == 0
    assert measured == {"workers": 1} and "4 switches" in capsys.readouterr().out
    lines = (tmp_path / "new" / "switches.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "switch,dataset,metric,effect,low,high,base,with_switch" and len(lines) == 1 + 4 * len(METRICS)


def test_the_open_points_of_the_paper_are_ours_together():
    """Each paper side is in it, but that of provisioning; our rewards come before the changed rewards of the code."""
    side = paper_together(SWITCHES, DATASETS["MBPP"])
    assert dict(side.variant) == {"enforcement": "reserve"}
    assert dict(side.settings) == {"rewards": OUR_REWARDS, "epochs": 300}


@pytest.mark.parametrize(("arguments", "words"), [
    (["--workers", "0"], "--workers = 0"), (["--out", ""], "--out = '': empty"),
    (["--out", __file__], "is a file; expected a folder to write to")])
def test_the_command_says_what_is_wrong(arguments, words, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(module, "measure_switches", None)
    assert module.main(["--out", str(tmp_path), *arguments]) == 2 and words in capsys.readouterr().err


def test_sizes_are_checked_for_all_data_sets_before_anything_is_played(monkeypatch):
    monkeypatch.setattr(module, "play", None)
    with pytest.raises(ValueError, match="n_train = 300: algebra_calculus has 200 tasks"):
        measure_switches(["GSM8K", "MATH"], **{**SMALL, "n_train": 300})
