"""The closed form against the engine, and the fit of the simulator to the baseline rows."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import quad
from scipy.stats import lognorm, norm

from bamas_lite.paths import BUILD, DATA
from bamas_lite.pool import load_pool
from bamas_lite.reproduction import calibration, calibration_files
from bamas_lite.reproduction.calibration import baseline_rows, fit, second_fit
from bamas_lite.reproduction.calibration_files import file_texts
from bamas_lite.reproduction.expected import expected, expected_topology
from bamas_lite.reproduction.fit_problem import ACCURACY_SD, COST_SD, Problem, completion_limit
from bamas_lite.reproduction.published import BASELINES, DATASETS, load_published
from bamas_lite.simulation import SimulatedLLM, load_parameters
from bamas_lite.tasks import load_tasks
from bamas_lite.topologies import run_task_sync
from bamas_lite.trajectories import paper_pool, team_of
from bamas_lite.workflows import WORKFLOWS, Step, Workflow, naive, run_workflow_sync

DEEPSEEK, NANO = load_pool("paper").llms
DOMAINS = {data.domain: data.own_tasks for data in DATASETS.values()}
SYSTEMS = {"base": "assumed",
           "system_tokens": {"value": {d: {"autogen": 1.3, "metagpt": 1.5, "chatdev": 0.8} for d in DOMAINS}},
           "system_shift": {"value": {d: {"autogen": 0.1, "metagpt": -0.2, "chatdev": 0.05} for d in DOMAINS}}}
ONE_CALL = Workflow("one call", "bamas", "one call", (Step("executor", "answer"),))


def some_tasks(domain, n, copies=1):
    """n tasks of our own sets, spread over the levels; the copies have noise of their own, but the same texts."""
    tasks = load_tasks(DOMAINS[domain])
    tasks = [tasks[len(tasks) * i // n] for i in range(n)]
    return tasks, [replace(task, task_id=f"{task.task_id}/{k}") for k in range(copies) for task in tasks]


def assert_agree(found, episodes):
    """Closed form and engine within 3.5 standard errors of the engine's mean (and half a percent of the cost)."""
    right = np.array([episode.correct for episode in episodes], float)
    cost = np.array([episode.cost for episode in episodes])
    se = [values.std(ddof=1) / len(values)**0.5 for values in (right, cost)]
    assert abs(right.mean() - found.accuracy) < 3.5 * se[0] < 0.1
    assert abs(cost.mean() - found.cost) < 3.5 * se[1] + 0.005 * found.cost < 0.08 * found.cost


@pytest.mark.parametrize("workflow", [naive(1), naive(2), *WORKFLOWS.values()], ids=lambda w: w.name)
def test_workflows_as_the_engine(workflow):
    p = load_parameters(SYSTEMS)
    tasks, copies = some_tasks("arithmetic", 96, 16)
    backend = SimulatedLLM(3, p, workflow.system)
    assert_agree(expected(workflow, tasks, NANO, p), [run_workflow_sync(t, NANO, workflow, backend) for t in copies])


@pytest.mark.parametrize("domain, workflow, limit, copies", [("code", "chatdev", 260, 8),
                                                             ("mathematics", "autogen", 400, 24)])
def test_domains_and_cut_replies_as_the_engine(domain, workflow, limit, copies):
    p, workflow = load_parameters(SYSTEMS), WORKFLOWS[workflow]
    tasks, copies = some_tasks(domain, 30, copies)
    backend = SimulatedLLM(5, p, workflow.system)
    episodes = [run_workflow_sync(t, DEEPSEEK, workflow, backend, max_tokens=limit) for t in copies]
    assert 0.02 < np.mean([c.reply.finish_reason == "length" for e in episodes for c in e.calls]) < 0.5
    assert_agree(expected(workflow, tasks, DEEPSEEK, p, max_tokens=limit), episodes)


@pytest.mark.parametrize("topology", ["linear", "star", "feedback"])
def test_topologies_of_two_copies_as_the_engine(topology):
    team = team_of(paper_pool("arithmetic"), 500.0)
    tasks, copies = some_tasks("arithmetic", 96, 16)
    backend = SimulatedLLM(7)
    episodes = [run_task_sync(t, team, topology, backend, 500, enforcement="paper") for t in copies]
    assert_agree(expected_topology(topology, tasks, team, "assumed"), episodes)


def test_one_call_by_hand():
    """Accuracy as the simulator's text says, Phi(skill - a (l - 1)); tokens as an integral over the log-normal."""
    p = load_parameters("assumed")
    tasks, _ = some_tasks("arithmetic", 80)
    limit, spread = 300, p.tokens_spread.value["arithmetic"]
    levels = np.array([task.level for task in tasks])
    mean = p.completion_tokens.value["arithmetic"][NANO.name] * np.exp(
        p.tokens_per_level.value["arithmetic"] * (levels - 1))
    draws = [lognorm(spread, scale=m * np.exp(-spread**2 / 2)) for m in mean]
    whole = np.array([d.cdf(limit + 0.5) for d in draws])
    right = norm.cdf(p.skill.value["arithmetic"][NANO.name] - p.level_slope.value["arithmetic"] * (levels - 1))
    found = expected(ONE_CALL, tasks, NANO, p, max_tokens=limit)
    assert found.accuracy == pytest.approx((right * whole).mean(), abs=1e-4)
    tokens = [quad(lambda x, d=d: x * d.pdf(x), 0, limit)[0] + limit * d.sf(limit) for d in draws]
    prompts = [run_workflow_sync(t, NANO, ONE_CALL, SimulatedLLM(0)).prompt_tokens for t in tasks]
    assert found.cost == pytest.approx(NANO.price_in * np.mean(prompts) + NANO.price_out * np.mean(tokens), rel=1e-4)


def test_no_reply_is_billed_less_than_its_text():
    p = {"base": "assumed", "completion_tokens": {"value": {"code": {NANO.name: 5}}, "range": [1, 999]}}
    tasks, _ = some_tasks("code", 12)
    episodes = [run_workflow_sync(t, NANO, ONE_CALL, SimulatedLLM(seed, p)) for seed in range(8) for t in tasks]
    assert expected(ONE_CALL, tasks, NANO, p).cost == pytest.approx(np.mean([e.cost for e in episodes]), rel=0.02)


def test_no_noise_left_for_the_call():
    p = {"base": "assumed", "llm_share": {"value": {"arithmetic": 0.5}, "range": [0, 1]},
         "task_share": {"value": {"arithmetic": 0.5}}}
    keep = load_parameters("assumed").improve.value["arithmetic"]
    tasks = [t for t in load_tasks("word_problems") if t.level == 1]
    view = norm.cdf(load_parameters("assumed").skill.value["arithmetic"][NANO.name])
    by_hand = view * keep.keep.view_right + (1 - view) * keep.repair.view_wrong
    assert expected(naive(1), tasks, NANO, p).accuracy == pytest.approx(by_hand, abs=0.02)  # a step, in Gauss-Hermite


def test_expected_refuses():
    tasks, _ = some_tasks("arithmetic", 8)
    with pytest.raises(ValueError, match="tasks: expected tasks of one domain, found no tasks"):
        expected(naive(1), [], NANO, "assumed")
    with pytest.raises(ValueError, match="tasks: expected tasks of one domain, found arithmetic, code"):
        expected(naive(1), tasks + some_tasks("code", 3)[0], NANO, "assumed")
    with pytest.raises(ValueError, match="llm = 'mine': has no skill of its own"):
        expected(naive(1), tasks, NANO.model_copy(update={"name": "mine"}), "assumed")
    pool = paper_pool("arithmetic")
    with pytest.raises(ValueError, match="needs copies of one LLM"):
        expected_topology("linear", tasks, team_of(pool, 875.0), "assumed")
    for topology in ("planner_driven", "ring", ["linear"]):
        with pytest.raises(ValueError, match="topology = .*: the closed form knows"):
            expected_topology(topology, tasks, team_of(pool, 500.0), "assumed")
    with pytest.raises(ValueError, match="team = 'pair': expected an object of class Team"):
        expected_topology("linear", tasks, "pair", "assumed")


@pytest.mark.parametrize(("change", "words"), [
    ({"workflow": "autogen"}, "workflow = 'autogen': expected an object of class Workflow"),
    ({"llm": "GPT-4.1 nano"}, "llm = 'GPT-4.1 nano': expected an object of class LLM"),
    ({"tasks": ["a"]}, "tasks holds 'a': expected Task"), ({"tasks": 3}, "tasks = 3"),
    ({"max_tokens": 0}, "max_tokens = 0"), ({"max_tokens": [9]}, r"max_tokens = \[9\]")])
def test_wrong_arguments_of_expected_are_named(change, words):
    right = {"workflow": naive(1), "tasks": some_tasks("arithmetic", 2)[0], "llm": NANO, "parameters": "assumed"}
    with pytest.raises(ValueError, match=words):
        expected(**{**right, **change})


@pytest.fixture(scope="module")
def published():
    return load_published()


@pytest.fixture(scope="module")
def fitted(published):
    return fit(baseline_rows(published))


@pytest.fixture(scope="module")
def second(published):
    return second_fit(published)


def made_rows(published, shifts):
    """The baseline rows with the numbers that known parameters give, and these parameters."""
    truth = {"skill": {"DeepSeek-V3": 1.6, "GPT-4.1 nano": 1.1},
             "completion_tokens": {"DeepSeek-V3": 190.0, "GPT-4.1 nano": 160.0},
             "system_tokens": {"autogen": 1.7, "metagpt": 1.2, "chatdev": 0.7}, "system_shift": shifts}
    p = {"base": "assumed", **{entry: {"value": {d: values for d in DOMAINS}, "range": [-9, 999]}
                               for entry, values in truth.items()}}
    rows, llms = baseline_rows(published).copy(), {m.name: m for m in (DEEPSEEK, NANO)}
    tasks = {domain: load_tasks(name) for domain, name in DOMAINS.items()}
    for i, row in rows.iterrows():
        level, _, llm = row.setting.partition(" ") if row.system == "Naive-CostAware" else ("", "", row.setting)
        workflow = naive(int(level[1:])) if level else WORKFLOWS[row.system.lower()]
        domain = DATASETS[row.dataset].domain
        found = expected(workflow, tasks[domain], llms[llm], p, **completion_limit(workflow.system, domain))
        rows.loc[i, ["avg_cost_microusd", "accuracy_percent"]] = found.cost, 100 * found.accuracy
    return rows, truth


def test_known_parameters_are_recovered(published):
    rows, truth = made_rows(published, {"autogen": 0.0, "metagpt": 0.0, "chatdev": 0.0})
    f = fit(rows)
    for name in f.names:
        assert f.value(*name) == pytest.approx(truth[name.entry][name.who], rel=1e-4, abs=1e-4), name
    assert f.spread.accuracy_row == 0 and f.spread.cost_row < 1e-4


def test_ridge_draws_shifts_toward_zero_but_not_far(published):
    rows, truth = made_rows(published, {"autogen": 0.1, "metagpt": -0.15, "chatdev": 0.0})
    f = fit(rows)
    for data in ("GSM8K", "MBPP"):  # MATH has three rows for a skill and three shifts
        for system, shift in truth["system_shift"].items():
            found = f.value("system_shift", data, system)
            assert found == pytest.approx(shift, abs=0.05) and abs(found) <= abs(shift) + 0.02
    math_shifts = [f.value("system_shift", "MATH", system) for system in truth["system_shift"]]
    assert sum(math_shifts) == pytest.approx(0, abs=0.01)  # the ridge decides what rows cannot
    assert math_shifts[0] - math_shifts[1] > 0.12


@pytest.mark.parametrize("start", [{"skill": 2.0, "completion_tokens": 80.0},
                                   {"skill": 0.2, "completion_tokens": 400.0, "system_tokens": 0.5},
                                   {"skill": 0.5, "system_tokens": 2.0, "system_shift": 0.3}])
def test_any_start_ends_at_the_same_point(published, fitted, start):
    assert np.abs(fit(baseline_rows(published), start=start).theta - fitted.theta).max() < 1e-4


def test_start_does_not_come_from_the_assumed_values():
    assert calibration.NEUTRAL == {"skill": 1.0, "completion_tokens": 200.0, "system_tokens": 1.0, "system_shift": 0.0}


def test_no_row_of_bamas_reaches_the_fit(published, fitted, monkeypatch):
    changed = published.copy()
    ours = changed.system == "BAMAS"
    assert ours.sum() == 13
    changed.loc[ours, ["avg_cost_microusd", "accuracy_percent"]] = 1.0, 1.0
    seen = []

    class Watched(Problem):
        def __init__(self, rows, *others):
            seen.append(rows.copy())
            super().__init__(rows, *others)

    monkeypatch.setattr(calibration, "Problem", Watched)
    again = fit(baseline_rows(changed))
    assert np.array_equal(again.theta, fitted.theta)
    assert len(seen) == 1 and set(seen[0].system) == set(BASELINES) and len(seen[0]) == 35
    moved = published.copy()
    moved.loc[~ours, "avg_cost_microusd"] *= 1.1  # the check can fail: the other rows do matter
    assert np.abs(fit(baseline_rows(moved)).theta - fitted.theta).max() > 0.05


def test_second_fit_sees_one_row_of_bamas_a_data_set(published, second):
    f = second
    own = f.rows[f.rows.system == "BAMAS"]
    assert sorted(own.setting) == ["budget 1000", "budget 500", "budget 500"] and f.n_rows == 38
    changed = published.copy()
    changed.loc[changed.budget > changed.groupby("dataset").budget.transform("min"), "avg_cost_microusd"] = 1.0
    assert np.array_equal(second_fit(changed).theta, f.theta)
    changed.loc[changed.budget == 500, "avg_cost_microusd"] *= 2
    factor = f.value("system_tokens", "GSM8K", "bamas")
    assert second_fit(changed, start=f).value("system_tokens", "GSM8K", "bamas") > 1.2 * factor
    assert f.parameters()["system_tokens"]["value"]["code"]["bamas"] == factor != 1


def test_counts_and_errors_that_the_fit_assumes_are_those_it_finds(fitted):
    assert (fitted.n_rows, fitted.n_free) == (35, 22)
    assert 0.5 < fitted.spread.cost_row / COST_SD < 1.5
    assert 0.5 < fitted.spread.accuracy_row / ACCURACY_SD < 1.5
    assert fitted.rows.weight.sum() == pytest.approx(23)  # L2 to L5 count once for each data set and LLM


def test_parameters_play_as_the_fit_says(fitted):
    p = load_parameters(fitted.parameters())
    row = fitted.rows.query("dataset == 'MBPP' and system == 'ChatDev' and setting == 'DeepSeek-V3'").iloc[0]
    found = expected(WORKFLOWS["chatdev"], load_tasks("python_functions"), DEEPSEEK, p)
    assert (found.accuracy, found.cost) == pytest.approx((row.accuracy_fit, row.cost_fit))
    values = p.system_tokens.value["code"], p.system_shift.value["code"]
    assert [value[system] for system in ("bamas", "naive") for value in values] == [1, 0, 1, 0]
    untouched = load_parameters("assumed")
    assert p.critic == untouched.critic and p.skill.status == "fitted"


def test_what_no_row_identifies(published, fitted):
    skill = fitted.value("skill", "MATH", "DeepSeek-V3")
    slope = load_parameters("assumed").level_slope.value["mathematics"]
    levels = np.array([t.level for t in load_tasks("algebra_calculus")])
    assert norm.cdf(skill - slope * (levels - 1)).mean() == pytest.approx(0.902)
    assert "arXiv 2412.19437" in fitted.parameters()["skill"]["source"]
    tokens = {(d, m.name): fitted.value("completion_tokens", d, m.name) for d in DATASETS for m in (DEEPSEEK, NANO)}
    ratio = [tokens[d, DEEPSEEK.name] / tokens[d, NANO.name] for d in DATASETS]
    assert ratio[2] == pytest.approx((ratio[0] * ratio[1])**0.5)
    alone = fit(baseline_rows(published).query("dataset == 'GSM8K'"))
    with pytest.raises(KeyError, match="not identified"):
        alone.value("skill", "MBPP", "DeepSeek-V3")


def test_fixed_values_change_the_fit_and_are_kept(published, fitted):
    fixed = {"improve": {"value": {"arithmetic": {"repair": {"view_right": 0.8}}}}}
    f = fit(baseline_rows(published), fixed=fixed, start=fitted)
    assert f.value("skill", "GSM8K", NANO.name) < fitted.value("skill", "GSM8K", NANO.name) - 0.005
    assert load_parameters(f.parameters()).improve.value["arithmetic"].repair.view_right == 0.8


def test_draws(fitted):
    draws = [fitted.draw(np.random.default_rng(seed), tokens_sd=fitted.spread.tokens_system) for seed in range(10)]
    again = fitted.draw(np.random.default_rng(3))
    assert np.array_equal(draws[3].theta, again.theta)
    ratio = np.std([d.theta for d in draws], axis=0, ddof=1) / np.sqrt(np.diag(fitted.covariance))
    assert 0.6 < np.median(ratio) < 1.4
    assert again.value("system_tokens", "GSM8K", "bamas") == 1
    factors = np.array([d.value("system_tokens", "GSM8K", "bamas") for d in draws])
    assert np.std(np.log(factors)) == pytest.approx(fitted.spread.tokens_system, rel=0.6)
    assert all(d.value("system_tokens", "GSM8K", "naive") == 1 for d in draws)
    assert len({d.value("skill", "MATH", DEEPSEEK.name) for d in draws}) == len(draws)
    point = fitted.draw(np.random.default_rng(0), shift_sd=0)
    assert point.value("system_tokens", "MBPP", "bamas") == 1 and point.value("system_shift", "MBPP", "bamas") == 0
    load_parameters(draws[0].parameters())
    other = {"critic": {"value": {"code": {"hit": {"view_right": 0.9}}}}}
    assert load_parameters(fitted.draw(np.random.default_rng(0), fixed=other).parameters()
                           ).critic.value["code"].hit.view_right == 0.9


@pytest.mark.parametrize("change, message", [
    (lambda rows: rows.head(3), "rows: 3 rows for 8 free parameters"),
    (lambda rows: rows.head(0), "rows: empty"),
    (lambda rows: rows.drop(columns="setting"), "rows: column setting is missing"),
    (lambda rows: rows.replace({"dataset": {"MATH": "AIME"}}), "dataset = 'AIME': expected one of GSM8K, MBPP, MATH"),
    (lambda rows: rows.replace({"system": {"AutoGen": "CrewAI"}}), "system = 'CrewAI': expected one of"),
    (lambda rows: rows.replace({"setting": {"L2 GPT-4.1 nano": "L9 GPT-4.1 nano"}}), "setting = 'L9 GPT-4.1 nano'"),
    (lambda rows: rows.assign(accuracy_percent=0.0), "rows: do not identify"),
    (lambda rows: rows.assign(avg_cost_microusd=1e-300), "rows: do not identify"),
    (lambda rows: pd.concat([rows, rows.tail(1)]), "rows: MATH, ChatDev, GPT-4.1 nano is there twice"),
    (lambda rows: pd.concat([rows, rows.tail(1).assign(accuracy_percent=1.0)]),
     "rows: MATH, ChatDev, GPT-4.1 nano is there twice"),
    (lambda rows: rows.assign(system=7), "system = 7"),
    (lambda rows: 3, "rows = 3: expected a DataFrame"),
])
def test_rows_that_cannot_be_fitted(published, change, message):
    with pytest.raises(ValueError, match=message):
        fit(change(baseline_rows(published)))


@pytest.mark.parametrize(("column", "values", "valid"), [
    ("avg_cost_microusd", (0.0, -1.0, np.nan, np.inf, None, "90", True, 10**400), "a finite number above 0"),
    ("accuracy_percent", (-0.1, 100.1, np.nan, np.inf, None, "90", False), "a finite number from 0 to 100")])
def test_numbers_that_a_row_cannot_have(published, column, values, valid):
    rows = baseline_rows(published).astype({column: object})
    for value in values:
        rows.iat[4, rows.columns.get_loc(column)] = value
        who = ", ".join(rows.iloc[4][["dataset", "system", "setting"]])
        for use in (fit, second_fit):
            with pytest.raises(ValueError, match=f"rows: {who}: {column} = .*: expected {valid}$|published: {who}"):
                use(rows)


def test_rows_that_contradict_each_other(published):
    rows = baseline_rows(published).query("dataset == 'MBPP'")
    with pytest.raises(RuntimeError, match="the fit did not converge: the rows contradict each other"):
        fit(rows.assign(accuracy_percent=[100.0, 0.0] * 8))


@pytest.mark.parametrize(("change", "words"), [
    ({"start": {"skil": 1.0}}, "start holds 'skil': expected some of skill, completion_tokens"),
    ({"start": {"skill": np.nan}}, r"start\['skill'\] = nan: expected a finite number$"),
    ({"start": {"skill": "1"}}, r"start\['skill'\] = '1'"), ({"start": {"system_shift": True}}, "= True"),
    ({"start": {"system_tokens": 0}}, r"start\['system_tokens'\] = 0: expected a finite number above 0"),
    ({"start": {"completion_tokens": -5.0}}, "= -5.0: expected a finite number above 0"),
    ({"start": "fitted"}, "start = 'fitted': expected values by entry, or a Fit"),
    ({"fixed": "plan_more"}, "fixed = 'plan_more': expected values by entry"),
    ({"fixed": {"plan_moer": {"value": 1}}}, "plan_moer"), ({"base": None}, "None"),
    ({"tasks_by_dataset": [1]}, r"tasks_by_dataset = \[1\]: expected lists of tasks by data set"),
    ({"tasks_by_dataset": {"GSM8K": ["a"]}}, r"tasks_by_dataset\['GSM8K'\] holds 'a': expected Task"),
    ({"tasks_by_dataset": {"GSM8K": 3}}, r"tasks_by_dataset\['GSM8K'\] holds 3: expected Task")])
def test_wrong_arguments_of_fit_are_named(published, change, words):
    with pytest.raises(ValueError, match=words):
        fit(baseline_rows(published), **change)


@pytest.mark.parametrize(("use", "words"), [
    (lambda f: f.draw(3), "rng = 3: expected a Generator"),
    (lambda f: f.draw(np.random.default_rng(0), tokens_sd=-0.1), "tokens_sd = -0.1: expected a finite number"),
    (lambda f: f.draw(np.random.default_rng(0), shift_sd=np.nan), "shift_sd = nan: expected a finite number"),
    (lambda f: f.draw(np.random.default_rng(0), shift_sd="1"), "shift_sd = '1'"),
    (lambda f: f.draw(np.random.default_rng(0), fixed="plan_more"), "fixed = 'plan_more'"),
    (lambda f: f.refit("plan_more"), "fixed = 'plan_more'"), (lambda f: f.refit(None), "fixed = None"),
    (lambda f: f.value("skil", "GSM8K", "DeepSeek-V3"), "entry = 'skil': expected one of skill, completion_tokens"),
    (lambda f: f.value("skill", "AIME", "DeepSeek-V3"), "dataset_name = 'AIME': expected one of GSM8K"),
    (lambda f: f.value("skill", "GSM8K", "autogen"), "who = 'autogen': expected one of DeepSeek-V3"),
    (lambda f: f.value("system_tokens", "GSM8K", "DeepSeek-V3"), "who = 'DeepSeek-V3': expected one of bamas")])
def test_wrong_use_of_a_fit_is_named(fitted, use, words):
    with pytest.raises(ValueError, match=words):
        use(fitted)


@pytest.fixture
def no_fit(monkeypatch):
    """The command without its work; what it would fit."""
    calls = []
    monkeypatch.setattr(calibration_files, "both_fits", lambda *inputs: calls.append(inputs) or {})
    monkeypatch.setattr(calibration_files, "file_texts", lambda fits: {})
    for name in ("summary_table", "parameters_table", "rows_table"):
        monkeypatch.setattr(calibration_files, name, lambda fits: pd.DataFrame({"note": []}))
    return calls


@pytest.mark.parametrize(("arguments", "folder"), [
    ([], DATA), (["--published", str(DATA / "paper_results.csv")], BUILD), (["--benchmarks", "."], BUILD)])
def test_only_the_plain_command_writes_the_committed_files(no_fit, monkeypatch, arguments, folder):
    asked = []
    monkeypatch.setattr(calibration_files, "out_folder", lambda path, what: asked.append(path) or path)
    monkeypatch.setattr(calibration_files, "real_tasks", lambda path: {})
    assert calibration_files.main(arguments) == 0 and asked == [folder / "simulation"] and len(no_fit) == 1


@pytest.mark.parametrize(("arguments", "words"), [
    (["--out", ""], "--out = '': empty"), (["--out", __file__], "is a file; expected a folder to write to"),
    (["--benchmarks", ""], "benchmarks = '': empty"), (["--benchmarks", "/no/such"], "no such folder"),
    (["--published", "/no/such.csv"], "cannot be read")])
def test_the_command_says_what_is_wrong(no_fit, monkeypatch, capsys, tmp_path, arguments, words):
    arguments = arguments if "--out" in arguments else [*arguments, "--out", str(tmp_path)]
    assert calibration_files.main(arguments) == 2 and words in capsys.readouterr().err and not no_fit




def test_wrong_use(published):
    rows = baseline_rows(published)
    with pytest.raises(ValueError, match=r"rows hold BAMAS: it is held out; give baseline_rows"):
        fit(published)
    with pytest.raises(ValueError, match="published: has no row of AutoGen"):
        baseline_rows(published[published.system == "BAMAS"])
    for none in (None, "rows", published.drop(columns="system")):
        with pytest.raises(ValueError, match="published.*(expected a DataFrame|column system is missing)"):
            baseline_rows(none)
    with pytest.raises(ValueError, match="has no row of BAMAS on GSM8K with budget 500"):
        second_fit(rows)
    with pytest.raises(ValueError, match="fixed holds skill, which is fitted"):
        fit(rows, fixed={"skill": {"value": {}}})
    tasks = {name: load_tasks(data.own_tasks, limit=20) for name, data in DATASETS.items()}
    with pytest.raises(ValueError, match="tasks_by_dataset: has no tasks for MATH"):
        fit(rows, {**tasks, "MATH": []})
    with pytest.raises(ValueError, match=r"tasks_by_dataset\['MATH'\]: word_problems/.* expected mathematics"):
        fit(rows, {**tasks, "MATH": tasks["GSM8K"]})


def test_committed_files(fitted, second):
    for name, text in file_texts({"fitted": fitted, "fitted_one_bamas_row": second}).items():
        assert (DATA / "simulation" / name).read_text(encoding="utf-8") == text, f"run `make calibrate` ({name})"
    assert load_parameters("fitted").name == "fitted"
    assert load_parameters("fitted_one_bamas_row").system_tokens.value["code"]["bamas"] != 1
