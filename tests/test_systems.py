"""The full run at small size: its rows against episodes that are played, trained on and averaged here once more."""

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bamas_lite import SimulatedLLM, generate_trajectories, load_tasks, run_task_sync, train_policy
from bamas_lite.experiments import choose
from bamas_lite.generators import SEED, generate
from bamas_lite.paths import BUILD, DATA
from bamas_lite.policy import OURS, PAPER_SETTINGS
from bamas_lite.reproduction import systems, task_sets
from bamas_lite.reproduction.outcomes import Outcomes, run_factorial
from bamas_lite.reproduction.published import DATASETS, load_published
from bamas_lite.reproduction.system_rows import Measured, paired_table, rows_table
from bamas_lite.reproduction.systems import PUBLISHED, SHOULD_BE, VARIANTS, Played, Results, reproduce
from bamas_lite.reproduction.task_sets import about_tasks, reproduction_tasks
from bamas_lite.rewards import LogTable
from bamas_lite.simulation import load_parameters
from bamas_lite.tasks import TaskFileError
from bamas_lite.topologies import TOPOLOGIES
from bamas_lite.trajectories import paper_pool, team_of
from bamas_lite.workflows import WORKFLOWS, run_workflow_sync
from tests.synthetic import pseudo_encode

N_TASKS, N_SEEDS = 22, 2
BENCHMARKS = Path(os.environ.get("BENCHMARKS") or "BENCHMARKS-is-not-set")
COLUMNS = ("dataset system setting n_tasks n_seeds accuracy accuracy_low accuracy_high cost cost_low cost_high "
           "over_budget over_low over_high share_linear share_star share_feedback share_planner_driven "
           "episodes label").split()


@pytest.fixture(scope="module", autouse=True)
def made_up_encoder():
    """The real encoder has tests of its own."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("policy", "reproduction.systems"):
            patch.setattr(f"bamas_lite.{module}.encode", pseudo_encode)
        yield


@pytest.fixture(scope="module")
def results(made_up_encoder):
    return reproduce(["GSM8K"], n_tasks=N_TASKS, n_seeds=N_SEEDS, parameters="assumed")


@pytest.fixture(scope="module")
def rows(results):
    return results.rows.set_index(["system", "setting"])


@pytest.fixture(scope="module")
def tasks():
    return reproduction_tasks("GSM8K", limit=N_TASKS)


def test_every_published_row_has_one_of_ours_and_the_columns_are_those_agreed(results):
    assert results.rows.columns.tolist() == COLUMNS
    published = load_published()
    published = published[published.dataset == "GSM8K"]
    wanted = {(s, t) for s, t in zip(published.system, published.setting, strict=True) if s != "BAMAS"}
    for system in (PUBLISHED, SHOULD_BE, *(f"always {t}" for t in TOPOLOGIES), "best fixed", "random", "oracle"):
        wanted |= {(system, f"budget {budget}") for budget in DATASETS["GSM8K"].budgets}
    ours = list(zip(results.rows.system, results.rows.setting, strict=True))
    assert wanted <= set(ours) and len(ours) == len(set(ours))
    assert set(results.rows.n_tasks) == {N_TASKS} and set(results.rows.n_seeds) == {N_SEEDS}
    assert set(results.rows.label) == {"simulated, assumed"} and set(results.rows.episodes) == {N_TASKS * N_SEEDS}


def test_values_lie_in_their_intervals_and_shares_sum_to_1(results):
    for name, short in (("accuracy", "accuracy"), ("cost", "cost"), ("over_budget", "over")):
        low, value, high = (results.rows[column] for column in (f"{short}_low", name, f"{short}_high"))
        assert (low <= value).all() and (value <= high).all()
    shares = results.rows.filter(like="share_")
    chooses = results.rows.setting.str.startswith("budget ")
    assert shares[~chooses].isna().all().all()
    np.testing.assert_allclose(shares[chooses].sum(axis=1), 1, atol=3e-4)
    assert (results.rows.over_budget[results.rows.system != PUBLISHED] == 0).all()


def test_published_row_from_the_log_of_its_episodes(rows, tasks):
    """Independent of the arrays: log, table, training and choice of the kit, for each seed."""
    train, test = tasks
    data = DATASETS["GSM8K"]
    value = {budget: [] for budget in data.budgets}
    for seed in (42, 43):
        logs = [generate_trajectories(part, data.budgets, pool=paper_pool("arithmetic"), seeds=[seed], progress=False,
                                      backend=lambda s: SimulatedLLM(s, "assumed"), enforcement="paper")
                for part in tasks]
        settings = replace(PAPER_SETTINGS["gsm8k"], seed=seed)
        policy = train_policy(logs[0], settings=settings, tasks=train).policy
        table = LogTable.from_log(logs[1], settings.rewards)
        right = (choose(policy, table, tasks=test) * table.correct).sum(axis=1)
        for budget in data.budgets:
            value[budget].append(100 * right[table.budget == budget].mean())
    for budget in data.budgets:
        assert rows.accuracy[PUBLISHED, f"budget {budget}"] == pytest.approx(np.mean(value[budget]), abs=0.006)


def test_fixed_topologies_random_and_oracle(rows, tasks):
    test = run_factorial(tasks[1], DATASETS["GSM8K"].budgets, pool=paper_pool("arithmetic"), seeds=(42, 43),
                         variant=replace(VARIANTS["paper roles"], parameters="assumed"))
    for b, budget in enumerate(test.budgets):
        setting = f"budget {budget:g}"
        fixed = [rows.accuracy[f"always {t}", setting] for t in TOPOLOGIES]
        # The code's roles do not differ for Planner-Driven, so this one is sure to have been played like this.
        assert fixed[3] == pytest.approx(100 * test.correct[:, :, b, 3].mean(), abs=0.006)
        assert rows.cost["always planner_driven", setting] == pytest.approx(test.cost[:, :, b, 3].mean(), abs=0.006)
        assert rows.accuracy["random", setting] == pytest.approx(np.mean(fixed), abs=0.02)
        assert rows.accuracy["oracle", setting] >= max(fixed)
        shares = rows.loc["best fixed", setting].filter(like="share_").to_numpy(float)
        assert set(shares) <= {0.0, 0.5, 1.0} and (shares == rows.loc["best fixed", "budget 500"][
            [f"share_{t}" for t in TOPOLOGIES]].to_numpy(float)).all()  # one for each seed, whatever the budget


def test_baselines(rows, tasks):
    llm = paper_pool("arithmetic").llms[1]
    episodes = [run_workflow_sync(task, llm, WORKFLOWS["metagpt"], SimulatedLLM(seed, "assumed", "metagpt"))
                for seed in (42, 43) for task in tasks[1]]
    row = rows.loc["MetaGPT", llm.name]
    assert row.accuracy == pytest.approx(100 * np.mean([e.correct for e in episodes]), abs=0.006)
    assert row.cost == pytest.approx(np.mean([e.cost for e in episodes]), abs=0.006)
    chains = [rows.loc["Naive-CostAware", f"L{level} {llm.name}"].cost for level in range(1, 6)]
    assert chains[0] < chains[1] == chains[2] == chains[4]  # at most three agents run


def test_paired_differences(results, rows):
    paired = results.paired
    assert not paired.duplicated(["setting", "system", "against"]).any()
    by_name = {" ".join(key): value for key, value in rows.accuracy.items()}
    for row in paired.itertuples():
        expected = rows.accuracy[row.system, row.setting] - by_name[row.against]
        assert row.accuracy == pytest.approx(expected, abs=0.011)
        assert row.accuracy_low <= row.accuracy <= row.accuracy_high
        if row.accuracy_low > 0 or row.accuracy_high < 0:
            assert row.p_accuracy < 0.06
    assert f"{PUBLISHED} budget 500" in set(paired.against) and "AutoGen DeepSeek-V3" in set(paired.against)


def test_p_values_by_a_world_that_is_known():
    rng = np.random.default_rng(0)
    base = rng.random((4, 300)) < 0.6
    better = base | (rng.random((4, 300)) < 0.3)
    measured = {(PUBLISHED, "budget 1"): Measured(base, base * 1.0, base, np.full(4, 0.25)),
                (SHOULD_BE, "budget 1"): Measured(better, better * 1.0, better, np.full(4, 0.25))}
    table = paired_table("GSM8K", measured)
    assert len(table) == 1 and table.p_accuracy[0] == pytest.approx(2 / 2001, abs=1e-4) and table.accuracy_low[0] > 0
    same = paired_table("GSM8K", {**measured, (SHOULD_BE, "budget 1"): measured[PUBLISHED, "budget 1"]})
    assert same.p_accuracy[0] == 1 and same.accuracy[0] == same.accuracy_low[0] == 0
    rows = rows_table("GSM8K", measured, "made up", 1)
    assert rows.over_budget[0] == pytest.approx(300 * base.mean(), abs=0.006)


def test_roles_that_did_better_in_training_are_taken():
    def outcomes(correct):
        shape = 2, 1, 1, 4
        return Outcomes(tuple(load_tasks("word_problems", "train", limit=1)), (500.0,), TOPOLOGIES, (0, 1),
                        np.reshape(correct, shape).astype(np.uint8), np.full(shape, 100.0), np.zeros(shape, bool),
                        np.zeros(shape, np.uint8))

    paper, code = [[1, 0, 1, 0], [0, 0, 0, 0]], [[0, 1, 1, 1], [0, 0, 1, 0]]
    played = Played({"paper roles": outcomes(paper), "code roles": outcomes(code)}, (), np.zeros(0), np.zeros(0))
    chosen = systems.better_roles(played)
    assert chosen.tolist() == [[False, True, False, True], [False, False, True, False]]
    assert systems.with_roles(played, chosen).correct[:, 0, 0].tolist() == [[1, 1, 1, 1], [0, 0, 1, 0]]


@pytest.mark.parametrize("name", DATASETS)
def test_only_what_other_roles_change_is_played_again(name):
    data = DATASETS[name]
    some = load_tasks(data.own_tasks, "train", limit=3)
    played = systems.play_all(some, data, load_parameters("assumed").model_dump(), (5,), with_baselines=False)
    whole = run_factorial(some, data.budgets, pool=paper_pool(data.domain), seeds=(5,),
                          variant=replace(VARIANTS["code roles"], parameters="assumed"))
    for field in ("correct", "cost", "over", "status"):
        assert np.array_equal(getattr(played.outcomes["code roles"], field), getattr(whole, field))


def test_two_workers_write_the_same_files(results, tmp_path):
    two = reproduce(["GSM8K"], n_tasks=N_TASKS, n_seeds=N_SEEDS, parameters="assumed", workers=2)
    for one, other in zip(results.write(tmp_path / "1"), two.write(tmp_path / "2"), strict=True):
        assert one.read_bytes() == other.read_bytes()
    assert pd.read_csv(tmp_path / "1" / "rows.csv").columns.tolist() == COLUMNS


def test_the_committed_slice_is_what_is_played_now():
    """Raw outcomes of the full run, of the tasks that it begins with."""
    committed = pd.read_csv(systems.RESULTS / "slice.csv", keep_default_na=False)
    assert set(committed.dataset) == set(DATASETS)
    for data in DATASETS.values():
        test = load_tasks(data.own_tasks, "test", limit=systems.SLICE_TASKS)
        played = systems.play_all(test, data, load_parameters("fitted").model_dump(), systems.seeds_of(data, 1), True)
        stated = committed[committed.dataset == data.name].reset_index(drop=True)
        pd.testing.assert_frame_equal(systems.slice_table(data.name, played), stated, check_exact=True)
        first = next(stated[(stated.played == "published") & (stated.topology == "star")].itertuples())
        team = team_of(paper_pool(data.domain), float(data.budgets[0]))
        episode = run_task_sync(test[0], team, "star", SimulatedLLM(first.seed, "fitted"), data.budgets[0],
                                enforcement="paper")
        assert (round(episode.cost, 4), int(episode.correct)) == (first.cost, first.correct)


@pytest.mark.parametrize(("change", "message"), [
    ({"datasets": []}, "datasets = []"), ({"datasets": "GSM8K"}, "datasets = 'GSM8K'"),
    ({"datasets": ["GSM8K", "GSM8K"]}, "each once"),
    ({"datasets": ["GSM"]}, "dataset = 'GSM': expected one of GSM8K, MBPP, MATH"), ({"n_seeds": 0}, "n_seeds = 0"),
    ({"datasets": 3}, "datasets = 3"), ({"n_tasks": 1}, "n_tasks = 1: expected a whole number of at least 2"),
    ({"workers": 1.5}, "workers = 1.5"),
    ({"parameters": "none"}, "no parameter file none"), ({"benchmarks": "/no/such"}, "no such folder"),
    ({"benchmarks": ""}, "benchmarks = '': empty"), ({"benchmarks": 3}, "benchmarks = 3")])
def test_wrong_use(change, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        reproduce(**{"datasets": ["GSM8K"], "n_tasks": 2, "n_seeds": 1, "parameters": "assumed", **change})


@pytest.mark.parametrize(("arguments", "words"), [
    (["--benchmarks", "/no/such"], "no such folder"), (["--benchmarks", ""], "benchmarks = '': empty"),
    (["--tasks", "1"], "--tasks = 1: expected a whole number of at least 2"), (["--seeds", "0"], "--seeds = 0"),
    (["--workers", "-1"], "--workers = -1"), (["--parameters", "none"], "no parameter file none"),
    (["--out", ""], "--out = '': empty"), (["--out", __file__], "is a file; expected a folder to write to")])
def test_the_command_says_what_is_wrong(arguments, words, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(systems, "spread", None)  # nothing is played
    assert systems.main(["--out", str(tmp_path), *arguments]) == 2
    assert words in capsys.readouterr().err and not list(tmp_path.iterdir())


@pytest.mark.parametrize(("arguments", "folder"), [
    ([], DATA), (["--workers", "1"], DATA), (["--seeds", "10"], DATA), (["--seeds", "9"], BUILD),
    (["--parameters", "assumed"], BUILD), (["--tasks", "5"], BUILD), (["--benchmarks", "real"], BUILD)])
def test_only_the_full_run_writes_the_committed_files(arguments, folder, monkeypatch):
    asked = []
    monkeypatch.setattr(systems, "out_folder", lambda path, what: asked.append(path) or path)
    nothing = pd.DataFrame()
    monkeypatch.setattr(systems, "reproduce", lambda **options: Results(nothing, nothing, nothing))
    monkeypatch.setattr(Results, "write", lambda self, path: [])
    assert systems.main(arguments) == 0 and asked == [folder / "reproduction"]


def test_a_work_process_that_ends_early_is_a_message(monkeypatch, capsys, tmp_path):
    def ended(**options):
        raise RuntimeError("a worker process ended early")

    monkeypatch.setattr(systems, "reproduce", ended)
    assert systems.main(["--out", str(tmp_path)]) == 2 and "ended early" in capsys.readouterr().err


def test_results_are_not_written_to_a_file(results, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="folder = .*is a file"):
        results.write(tmp_path / "file")


@pytest.mark.parametrize("fault", ["missing", "broken", "one training task"])
def test_a_faulty_benchmark_file_is_found_before_anything_is_played(tmp_path, monkeypatch, fault):
    for split in ("train", "test"):
        lines = [json.dumps({"question": f"{split} {i}?", "answer": "Count.\n#### 1"}) for i in range(3)]
        (tmp_path / f"gsm8k_{split}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    for split, n in (("train", 1 if fault == "one training task" else 3), ("test", 3)):
        if fault != "missing":
            (tmp_path / split / "algebra").mkdir(parents=True)
        for i in range(n if fault != "missing" else 0):
            write_problem(tmp_path / split / "algebra" / f"{i}.json", f"{split} {i}?", 1)
    if fault == "broken":
        (tmp_path / "test" / "algebra" / "2.json").write_text("{", encoding="utf-8")
    monkeypatch.setattr(systems, "play_tasks", lambda *arguments: pytest.fail("played"))
    with pytest.raises(TaskFileError, match={"missing": "in this folder", "broken": "2.json",
                                             "one training task": "MATH has 1 training task"}[fault]):
        reproduce(["GSM8K", "MATH"], benchmarks=tmp_path, n_seeds=1, parameters="assumed")


# ---- tasks ----

@pytest.mark.parametrize(("change", "words"), [
    ({"name": "AIME"}, "dataset = 'AIME'"), ({"benchmarks": 3}, "benchmarks = 3: expected the name of a folder"),
    ({"benchmarks": ""}, "benchmarks = '': empty"), ({"limit": "x"}, "limit = 'x'"), ({"limit": 0}, "limit = 0"),
    ({"limit": True}, "limit = True")])
def test_wrong_arguments_of_tasks_are_named(change, words):
    with pytest.raises(ValueError, match=words):
        reproduction_tasks(**{"name": "MATH", **change})


@pytest.mark.parametrize("name", ["word_problems", "algebra_calculus"])
def test_own_tasks_are_kept_until_the_generators_change(name, tmp_path, monkeypatch):
    monkeypatch.setattr(task_sets, "CACHE", tmp_path)
    monkeypatch.setattr(task_sets, "SIZES", {name: 3})
    made = task_sets._own(name, 5, "test")
    assert made == generate(name, 5, SEED, "test")
    [file] = tmp_path.iterdir()
    file.write_text("".join(file.read_text(encoding="utf-8").splitlines(keepends=True)[:4]), encoding="utf-8")
    assert task_sets._own(name, 5, "test") == made[:4]  # read, not made
    monkeypatch.setattr(task_sets, "SEED", SEED + 1)
    assert task_sets._own(name, 5, "test") != made[:4] and len(list(tmp_path.iterdir())) == 2
    assert task_sets._own(name, 3, "test") == made[:3] == load_tasks(name, "test", limit=3)  # the committed file's


def test_a_limit_takes_the_first_tasks():
    train, test = reproduction_tasks("MBPP", limit=4)
    assert [len(train), len(test)] == [4, 4] and train == load_tasks("python_functions", "train", limit=4)
    assert "4 training and 4 test tasks (the paper: 374 and 500)" in about_tasks("MBPP", train, test)


@pytest.mark.skipif(not (BENCHMARKS / "math500.jsonl").is_file(), reason="BENCHMARKS names no folder of real files")
@pytest.mark.parametrize(("name", "sizes", "said"), [
    ("GSM8K", (1000, 1319), "as in the paper"), ("MBPP", (374, 500), "as in the paper"),
    ("MATH", (250, 250), "the paper: 1000 and 1000")])
def test_real_tasks(name, sizes, said):
    train, test = reproduction_tasks(name, BENCHMARKS)
    assert (len(train), len(test)) == sizes and said in about_tasks(name, train, test)
    assert len({task.task_id for task in train + test}) == sum(sizes)
    if name == "MATH":
        levels = [np.bincount([task.level for task in part], minlength=6) for part in (train, test)]
        assert abs(levels[0] - levels[1]).max() <= 1
    some = reproduction_tasks(name, BENCHMARKS, limit=10)
    assert [len(part) for part in some] == [10, 10]


def write_problem(path, problem, level):
    record = {"problem": problem, "level": f"Level {level}", "solution": "\\boxed{1}"}
    path.write_text(json.dumps(record), encoding="utf-8")


def test_a_folder_of_the_math_release_is_sampled_evenly(tmp_path):
    for split in ("train", "test"):
        for subject in ("algebra", "geometry"):
            folder = tmp_path / split / subject
            folder.mkdir(parents=True)
            for i in range(20):
                write_problem(folder / f"{i}.json", f"{split} {subject} {i}?", 1 + i % 5)
    train, test = reproduction_tasks("MATH", tmp_path, limit=20)
    for part, split in ((train, "train"), (test, "test")):
        assert {task.split for task in part} == {split} and len(part) == 20
        assert np.bincount([task.level for task in part])[1:].tolist() == [4] * 5
        assert sum("geometry" in task.task_id for task in part) == 10


def test_a_folder_with_one_split_only(tmp_path):
    folder = tmp_path / "train" / "algebra"
    folder.mkdir(parents=True)
    write_problem(folder / "1.json", "One?", 1)
    with pytest.raises(TaskFileError, match="1 training and 0 test tasks"):
        reproduction_tasks("MATH", tmp_path)


def test_our_settings_are_used_with_their_rewards():
    assert OURS.rewards != PAPER_SETTINGS["gsm8k"].rewards  # else the tables could be mixed up unseen
