"""Draws of what no published row identifies, and prediction intervals from them."""

import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2, norm

from bamas_lite.casting import TOPOLOGIES
from bamas_lite.paths import DATA
from bamas_lite.reproduction import draws as draws_module
from bamas_lite.reproduction.calibration import Fit, baseline_rows, fit
from bamas_lite.reproduction.draws import DRAWN, Plan, draw_parameters, one_draw, recorded, representative, run_draws
from bamas_lite.reproduction.outcomes import Variant, play
from bamas_lite.reproduction.predicates import CHOOSERS, OURS, PUBLISHED, DrawsError, chosen, findings_in_draws
from bamas_lite.reproduction.prediction import HELD_OUT, IN_SAMPLE, KINDS, coverage, prediction_intervals
from bamas_lite.reproduction.published import DATASETS, load_published
from bamas_lite.simulation import load_parameters, task_noise
from bamas_lite.simulation_parameters import ByDomain, numbers
from bamas_lite.tasks import load_tasks
from bamas_lite.trajectories import paper_pool

SMALL = Plan(n_train=16, n_test=32, datasets=("MATH",))


@pytest.fixture(scope="module")
def small():
    """The second and third draw of a small plan."""
    return [one_draw(number, SMALL) for number in (1, 2)]


# ---------------------------------------------------------------- parameters

def test_draws_keep_to_the_ranges_and_fill_them():
    base = load_parameters("assumed")
    drawn = [draw_parameters(np.random.default_rng(seed)) for seed in range(300)]
    assert set(drawn[0]) == set(DRAWN)
    free = [entry for entry in DRAWN if entry not in ("task_share", "llm_share")]  # these two depend on each other
    n_numbers = 0
    for entry in DRAWN:
        places = [dict(numbers(one[entry]["value"])) for one in drawn]
        assert set(places[0]) == {place for place, _ in numbers(getattr(base, entry).value)}
        for place in places[0]:
            low, high = getattr(base, entry).range_at(place)
            found = np.array([values[place] for values in places])
            assert ((low <= found) & (found <= high)).all(), (entry, place)
            if (entry, place) == ("tokens_style", "solve"):
                assert (found == base.tokens_style.value.solve).all()
            elif entry in free:  # mean and spread of a uniform distribution: 5 standard errors
                unit = (found - low) / (high - low)
                assert abs(unit.mean() - 0.5) < 5 * math.sqrt(1 / 12 / 300)
                assert abs(unit.var() - 1 / 12) < 5 * math.sqrt(1 / 180 / 300)
                n_numbers += 1
    assert n_numbers > 60  # each domain and LLM has its own
    for one in drawn:
        load_parameters({"base": "assumed", **one})  # what the simulator would refuse raises


def test_shares_are_uniform_where_their_sum_is_at_most_one():
    drawn = [draw_parameters(np.random.default_rng(seed)) for seed in range(600)]
    both = np.array([[one[name]["value"]["code"] for name in ("task_share", "llm_share")] for one in drawn])
    assert both.sum(axis=1).max() <= 1
    low, high = load_parameters("assumed").task_share.range_at("code")
    assert low + high < 1 < 2 * high  # the corner that is cut off
    # The two are uniform on what is left of the square, so the corner at (high, 1 - high) has its share of the area.
    side, cut = high - low, 2 * high - 1
    area = side**2 - cut**2 / 2
    inside = (both[:, 0] > high - side / 3) & (both[:, 1] < low + side / 3)
    assert abs(inside.mean() - side**2 / 9 / area) < 5 * math.sqrt(side**2 / 9 / area / 600)


def test_the_same_generator_state_gives_the_same_draw():
    assert draw_parameters(np.random.default_rng(5)) == draw_parameters(np.random.default_rng(5))
    assert draw_parameters(np.random.default_rng(5)) != draw_parameters(np.random.default_rng(6))


@pytest.mark.parametrize("entry", DRAWN)
def test_each_drawn_parameter_moves_outcomes(entry):
    base = load_parameters("assumed")
    data = DATASETS["MATH"]
    tasks = load_tasks(data.own_tasks, "test", limit=40)

    def outcomes(end):
        value = draws_module._mapped(getattr(base, entry).value, lambda place, number: (
            number if place == draws_module.REFERENCE.get(entry) else getattr(base, entry).range_at(place)[end]))
        if entry in ("task_share", "llm_share"):  # their sum
            other = {"task_share": "llm_share", "llm_share": "task_share"}[entry]
            low = {domain: getattr(base, other).range_at(domain)[0] for domain in ByDomain.model_fields}
            changes = {entry: {"value": value}, other: {"value": low}}
        else:
            changes = {entry: {"value": value}}
        variant = Variant(parameters=load_parameters({"base": "assumed", **changes}))
        return play(tasks, (3000.0,), paper_pool(data.domain), variant, (0,), TOPOLOGIES)

    one, other = outcomes(0), outcomes(1)
    assert (one.cost != other.cost).any() or (one.correct != other.correct).any()


def test_recorded_names_have_no_domain_and_hold_what_was_drawn():
    drawn = draw_parameters(np.random.default_rng(1))
    p = load_parameters({"base": "assumed", **drawn})
    found = recorded(p, "code")
    assert found["critic.hit.view_right"] == drawn["critic"]["value"]["code"]["hit"]["view_right"]
    assert found["plan_validity.GPT-4.1 nano"] == drawn["plan_validity"]["value"]["GPT-4.1 nano"]
    assert found["plan_more"] == drawn["plan_more"]["value"]
    assert found["task_share"] == drawn["task_share"]["value"]["code"]
    assert found["skill.DeepSeek-V3"] == p.skill.value.code["DeepSeek-V3"]
    assert not any("/" in name or "arithmetic" in name or "code" in name for name in found)
    assert "tokens_style.solve" not in found and "tokens_style.improve" in found
    assert recorded(p, "arithmetic")["critic.hit.view_right"] != found["critic.hit.view_right"]


# ---------------------------------------------------------------- tasks

@pytest.mark.parametrize("name", DATASETS)
def test_representative_tasks_stand_for_all(name):
    tasks = load_tasks(DATASETS[name].own_tasks, "test")
    some = representative(tasks, 96)
    assert len({task.task_id for task in some}) == len(some) and abs(len(some) - 96) <= 16
    levels = [task.level for task in some]
    assert levels[::2] == levels[1::2]
    for level in set(levels):
        share = sum(task.level == level for task in tasks) / len(tasks)
        assert abs(levels.count(level) - share * 96) <= 2
    noise = np.array([task_noise(task.task_id) for task in some])
    # Of 96 drawn at random the mean would have a standard deviation of 0.10 and the spread one of 0.07.
    assert abs(noise.mean()) < 0.03 and abs(noise.std() - 1) < 0.08
    assert np.abs(noise[::2] - noise[1::2]).mean() < 0.35  # two at random differ by 1.13
    assert noise.tolist() != sorted(noise)


def test_representative_needs_pairs():
    tasks = load_tasks("algebra_calculus", "test")
    assert len(representative(tasks, 2)) == 2 * len({task.level for task in tasks})
    with pytest.raises(ValueError, match="1 of level 1; expected at least 2"):
        representative(tasks[:3], 2)
    for n in (0, True, [], 1.5):
        with pytest.raises(ValueError, match="n = .*: expected a whole number of at least 1"):
            representative(tasks, n)
    with pytest.raises(ValueError, match="tasks: empty"):
        representative([], 2)


def test_the_error_is_that_of_chance_given_the_tasks():
    rng = np.random.default_rng(0)
    p = np.repeat(rng.uniform(0.3, 1, 100), 2)  # pairs of like tasks
    values = (rng.uniform(size=(4000, 200)) < p).astype(float)
    errors = np.array([draws_module._error(row) for row in values])
    assert math.sqrt((errors**2).mean()) == pytest.approx(values.mean(axis=1).std(), rel=0.05)
    assert math.sqrt((errors**2).mean()) < 0.95 * math.sqrt(p.mean() * (1 - p.mean()) / 200)  # not of new tasks


# ---------------------------------------------------------------- draws

def test_a_draw_is_reproducible_and_does_not_depend_on_others(small):
    again = one_draw(2, SMALL)
    pd.testing.assert_frame_equal(again, small[1])
    assert all(small[0][column][0] != again[column][0] for column in ("seed", "critic.hit.view_right"))
    other = one_draw(2, replace(SMALL, seed=1))
    assert other.seed[0] != again.seed[0]


def test_a_draw_holds_every_system_budget_and_topology(small):
    row = small[0].iloc[0]
    n = int(row.n_tasks)
    assert n == len(representative(load_tasks("algebra_calculus", "test"), 32))
    for budget in DATASETS["MATH"].budgets:
        for system in (PUBLISHED, OURS, "best fixed", "best per budget", "oracle"):
            shares = [row[f"{system}/{budget}/share_{t}"] for t in TOPOLOGIES]
            assert sum(shares) == pytest.approx(1, abs=1e-3) and min(shares) >= 0
            assert row[f"{system}/{budget}/accuracy"] * n / 100 == pytest.approx(
                round(row[f"{system}/{budget}/accuracy"] * n / 100), abs=1e-3)
        fixed = {t: [row[f"always {t}/{budget}/{m}"] for m in ("accuracy", "cost", "over", "reward", "train_reward")]
                 for t in TOPOLOGIES}
        assert all(over == 0 for _, _, over, _, _ in fixed.values())  # ours never passes a budget
        assert row[f"random/{budget}/cost"] == pytest.approx(np.mean([f[1] for f in fixed.values()]), abs=1e-3)
        best = max(TOPOLOGIES, key=lambda t: fixed[t][4])
        assert row[f"best per budget/{budget}/share_{best}"] == 1
        assert row[f"best per budget/{budget}/accuracy"] == pytest.approx(fixed[best][0], abs=1e-3)
        assert all(f"always {t} as published/{budget}/{m}" in row for t in TOPOLOGIES for m in ("accuracy", "over"))
        assert row[f"{PUBLISHED}/{budget}/accuracy_error"] >= 0 and row[f"{PUBLISHED}/{budget}/cost_sd"] > 0
    rows = load_published()
    for baseline in rows[(rows.dataset == "MATH") & (rows.system != "BAMAS")].itertuples():
        assert 0 < row[f"{baseline.system}/{baseline.setting}/accuracy"] < 100
        assert row[f"{baseline.system}/{baseline.setting}/cost"] > 0


def test_findings_can_be_read_from_draws(small):
    table = pd.concat(small, ignore_index=True)
    for chooser in CHOOSERS:
        shares = chosen(table, "MATH", chooser)
        assert shares.shape == (2, len(DATASETS["MATH"].budgets), 4)
    found = findings_in_draws(table)
    assert found[found.dataset == "MATH"].holds.notna().all()


def test_rows_that_cannot_be_fitted_are_drawn_anew_and_counted(monkeypatch):
    right, calls = Fit.draw, []

    def first_two_fail(self, rng, **options):
        calls.append(options["fixed"]["plan_more"])
        if len(calls) <= 2:
            raise ValueError("rows: do not identify skill")
        return right(self, rng, **options)

    monkeypatch.setattr(Fit, "draw", first_two_fail)
    monkeypatch.setattr(Fit, "misfit", (1.0, 33))
    row = one_draw(0, SMALL).iloc[0]
    assert row["fit/rejected"] == 2 and len(set(map(str, calls))) == 3
    assert row.plan_more == np.float32(calls[2]["value"])
    monkeypatch.setattr(draws_module, "_MOST_REJECTED", 5)
    monkeypatch.setattr(Fit, "draw", lambda self, rng, **options: (_ for _ in ()).throw(ValueError("no fit")))
    with pytest.raises(RuntimeError, match="draw 0: none of 5 can be fitted to the baseline rows; the last: no fit"):
        one_draw(0, SMALL)
    monkeypatch.setattr(Fit, "misfit", (60.0, 33))
    with pytest.raises(RuntimeError, match="the last: chi-squared = 60.0 with 33 degrees of freedom"):
        one_draw(0, SMALL)


def test_parameters_that_the_baseline_rows_contradict_fit_badly():
    """Agents that spoil a tenth of the right answers: no skill reaches the published accuracy of chains."""
    fitted = fit(baseline_rows(load_published()))
    spoil = {"improve": {"value": {"arithmetic": {"keep": {"view_right": 0.9, "view_wrong": 0.6}}}}}
    (good, degrees), (bad, _) = fitted.misfit, fitted.refit(spoil).misfit
    assert good < chi2.ppf(0.95, degrees) < bad
    assert degrees == 2 * 23 + 9 - fitted.n_free


def test_a_run_goes_on_where_it_was_stopped(small, tmp_path, monkeypatch):
    made = []

    def counted(number, plan):
        made.append(number)
        return small[number - 1] if number else small[0].assign(draw=0)

    monkeypatch.setattr(draws_module, "one_draw", counted)
    first = run_draws(3, SMALL, folder=tmp_path)
    assert made == [0, 1, 2] and first.draw.tolist() == [0, 1, 2]
    pd.testing.assert_frame_equal(first[first.draw == 2].reset_index(drop=True), small[1])
    (tmp_path / "draw_00001.parquet").unlink()
    said = []
    pd.testing.assert_frame_equal(run_draws(3, SMALL, folder=tmp_path, say=said.append), first)
    assert made == [0, 1, 2, 1] and said[0] == "2 of 3 draws are there already" and said[-1].endswith("3 of 3 draws")
    assert run_draws(2, SMALL, folder=tmp_path).draw.tolist() == [0, 1] and len(made) == 4


@pytest.fixture
def quick(small, monkeypatch):
    """`one_draw` in no time; the numbers of the draws that were made."""
    made = []

    def one(number, plan):
        made.append(number)
        return small[0].assign(draw=number)

    monkeypatch.setattr(draws_module, "one_draw", one)
    return made


def test_a_folder_holds_the_draws_of_one_plan(quick, tmp_path):
    first = run_draws(2, SMALL, folder=tmp_path)
    with pytest.raises(ValueError, match=f"{re.escape(str(tmp_path))}: holds draws of another plan or"):
        run_draws(2, replace(SMALL, n_test=34), folder=tmp_path)
    pd.testing.assert_frame_equal(run_draws(2, replace(SMALL), folder=tmp_path), first)
    assert quick == [0, 1]
    (tmp_path / "plan.txt").unlink()
    with pytest.raises(ValueError, match="holds draws of another plan or"):
        run_draws(2, SMALL, folder=tmp_path)


@pytest.mark.parametrize("damage", [
    lambda path: path.write_bytes(b""), lambda path: path.write_bytes(b"garbage"),
    lambda path: path.write_bytes(path.read_bytes()[:-100]),
    lambda path: path.write_bytes(path.with_name("draw_00000.parquet").read_bytes()),
    lambda path: pd.DataFrame({"a": [1]}).to_parquet(path),
    lambda path: pd.read_parquet(path).assign(seed=1).to_parquet(path),
    lambda path: pd.read_parquet(path).iloc[:0].to_parquet(path)],
    ids=["empty", "garbage", "truncated", "another draw", "other columns", "another value", "no rows"])
def test_a_damaged_draw_is_made_anew(quick, tmp_path, damage):
    first = run_draws(3, SMALL, folder=tmp_path)
    damage(tmp_path / "draw_00001.parquet")
    pd.testing.assert_frame_equal(run_draws(3, SMALL, folder=tmp_path), first)
    assert quick == [0, 1, 2, 1]


def test_what_cannot_be_a_folder_of_draws(quick, tmp_path):
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(ValueError, match="folder = .*is a file"):
        run_draws(1, SMALL, folder=tmp_path / "file")
    (tmp_path / "draw_00000.parquet").mkdir()
    (tmp_path / "plan.txt").write_text(SMALL.fingerprint, encoding="utf-8")
    with pytest.raises(ValueError, match=r"draw_00000\.parquet: a folder, where the file of a draw belongs; remove it"):
        run_draws(1, SMALL, folder=tmp_path)
    assert quick == []


def test_parts_of_another_run_are_not_taken_up(tmp_path):
    def published(system, column="accuracy_percent"):
        table = load_published().drop(columns=["budget", "llm"])
        table.loc[table.system == system, column] -= 1
        table.to_csv(tmp_path / f"{system}.csv", index=False)
        return str(tmp_path / f"{system}.csv")

    mark = SMALL.fingerprint
    assert replace(SMALL, published=published("BAMAS")).fingerprint == mark  # held-out rows decide nothing
    assert replace(SMALL, published=published("MetaGPT")).fingerprint != mark
    assert replace(SMALL, n_test=34).fingerprint != mark and replace(SMALL, seed=3).fingerprint != mark


@pytest.mark.parametrize(("changes", "message"), [
    ({"datasets": ("AIME",)}, r"datasets = .*AIME.*: expected some of GSM8K, MBPP, MATH"),
    ({"datasets": ()}, "datasets = "), ({"n_test": 0}, "n_test = 0"), ({"seed": -1}, "seed = -1"),
    ({"datasets": "MATH"}, "datasets = 'MATH'"), ({"datasets": ("MATH", "MATH")}, "datasets = .*each once"),
    ({"datasets": [["MATH"]]}, "datasets = "), ({"seed": 1.5}, "seed = 1.5: expected a whole"),
    ({"seed": True}, "seed = True"), ({"base": "nowhere"}, "no parameter file nowhere"),
    ({"base": {}}, "base = {}: expected the name")])
def test_wrong_plans(changes, message):
    with pytest.raises(ValueError, match=message):
        Plan(**changes)


def test_a_plan_does_not_depend_on_how_it_is_written():
    same = Plan(seed=np.int64(2025), datasets=list(DATASETS))
    assert same == Plan() and hash(same) == hash(Plan()) and same.fingerprint == Plan().fingerprint


@pytest.mark.parametrize("number", [-1, "x", True, 0.5])
def test_wrong_numbers_of_a_draw(number):
    with pytest.raises(ValueError, match="number = .*: expected a whole number of at least 0"):
        one_draw(number, SMALL)


def test_wrong_numbers_of_draws_and_workers(tmp_path):
    with pytest.raises(ValueError, match="n = 0"):
        run_draws(0, SMALL, folder=tmp_path)
    with pytest.raises(ValueError, match="workers = 0"):
        run_draws(1, SMALL, workers=0, folder=tmp_path)


def test_the_command_writes_its_files(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(draws_module, "BUILD", tmp_path / "build")
    options = ["--draws", "2", "--workers", "1", "--train", "16", "--test", "16", "--out", str(tmp_path / "out")]
    assert draws_module.main(options) == 0
    table = pd.read_parquet(tmp_path / "out" / "draws.parquet")
    assert table.groupby("dataset").size().to_dict() == dict.fromkeys(DATASETS, 2)
    prediction = pd.read_csv(tmp_path / "out" / "prediction.csv")
    assert prediction.groupby("given").size().to_dict() == dict.fromkeys(draws_module.GIVEN, len(load_published()))
    unseen = prediction[prediction.kind != IN_SAMPLE].groupby("given").size().to_dict()
    assert unseen == {given: 10 if given == draws_module.OWN_ROW else 13 for given in draws_module.GIVEN}
    assert set(pd.read_csv(tmp_path / "out" / "coverage.csv").kind) == set(KINDS)
    assert "held out" in capsys.readouterr().out


@pytest.mark.parametrize(("options", "folder"), [
    ([], "data"), (["--workers", "1"], "data"), (["--draws", "200"], "data"), (["--draws", "3"], "build"),
    (["--seed", "1"], "build"), (["--train", "16"], "build"), (["--test", "16"], "build"),
    (["--published", str(DATA / "paper_results.csv")], "build"), (["--draws", "3", "--out", "mine"], "mine")])
def test_only_the_default_draws_are_written_to_the_committed_files(tmp_path, monkeypatch, options, folder):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(draws_module, "DATA", tmp_path / "data")
    monkeypatch.setattr(draws_module, "BUILD", tmp_path / "build")
    monkeypatch.setattr(draws_module, "run_draws", lambda n, *_, **__: made_up(np.random.default_rng(0), n))
    monkeypatch.setattr(draws_module, "result_tables", lambda *_: {"coverage": pd.DataFrame({"kind": [HELD_OUT]})})
    assert draws_module.main(options) == 0
    written = tmp_path / folder / ("" if folder == "mine" else "reproduction")
    assert [path.parent for path in tmp_path.rglob("draws.parquet")] == [written]


def test_the_command_answers_what_it_cannot_do_with_one_message(tmp_path, monkeypatch, capsys):
    def fails(*_, **__):
        raise RuntimeError("draw 0: none of 100 can be fitted")

    monkeypatch.setattr(draws_module, "run_draws", fails)
    (tmp_path / "file").write_text("x", encoding="utf-8")
    out, file = str(tmp_path / "out"), str(tmp_path / "file")
    for options, message in ((["--draws", "0"], "draws = 0"), (["--out", file], "is a file"),
                             (["--out", out], "draw 0: none of 100"), (["--published", "no"], "no: cannot be read")):
        assert draws_module.main(options) == 2
        said = capsys.readouterr().err
        assert message in said and said.count("\n") == 1


# ---------------------------------------------------------------- prediction

MEAN, SPREAD, ROW, N_SUBSET, N_PUBLISHED = 80.0, 3.0, 1.0, 160, 500
LOG_COST, LOG_SPREAD, LOG_ROW = math.log(400.0), 0.3, 0.2
SYSTEM = f"{PUBLISHED}/500"


def made_up(rng, n_draws=200, spread=SPREAD, n_subset=N_SUBSET):
    """Draws of a quantity with a known distribution, each seen on a subset of tasks."""
    mu = rng.normal(MEAN, spread, n_draws)
    error = np.sqrt(mu * (100 - mu) / n_subset)
    log_cost = rng.normal(LOG_COST, LOG_SPREAD, n_draws)
    log_error = np.full(n_draws, 0.5 / math.sqrt(n_subset))
    return pd.DataFrame({
        "dataset": "MBPP", "draw": range(n_draws), "n_tasks": n_subset, "fit/row_sd_accuracy": ROW,
        "fit/row_sd_cost": LOG_ROW,
        f"{SYSTEM}/accuracy": rng.normal(mu, error), f"{SYSTEM}/accuracy_error": error,
        f"{SYSTEM}/cost": np.exp(rng.normal(log_cost, log_error)),
        f"{SYSTEM}/cost_error": log_error * np.exp(log_cost), f"{SYSTEM}/cost_sd": 0.5 * np.exp(log_cost),
        f"{SYSTEM}/over": 100 * rng.binomial(n_subset, 0.01, n_draws) / n_subset})


def publish(rng, n):
    """What would be published: another mu, the row's own error, a sample of tasks."""
    accuracy = rng.normal(rng.normal(MEAN, SPREAD, n), ROW)
    accuracy = 100 * rng.binomial(N_PUBLISHED, np.clip(accuracy / 100, 0, 1)) / N_PUBLISHED
    return accuracy, np.exp(rng.normal(LOG_COST, math.hypot(LOG_SPREAD, LOG_ROW, 0.5 / math.sqrt(N_PUBLISHED)), n))


def test_intervals_cover_what_is_published_at_their_nominal_rate():
    rng = np.random.default_rng(1)
    inside = np.zeros((60, 2))
    for k in range(len(inside)):
        row = prediction_intervals(made_up(rng)).iloc[0]
        values = publish(rng, 200)
        for i, metric in enumerate(("accuracy", "cost")):
            inside[k, i] = ((row[f"{metric}_low"] <= values[i]) & (values[i] <= row[f"{metric}_high"])).mean()
    assert inside.mean(axis=0) == pytest.approx([0.95, 0.95], abs=0.01)


def test_the_width_is_that_of_the_parts_of_the_error():
    rng = np.random.default_rng(2)
    table = pd.concat([prediction_intervals(made_up(rng)) for _ in range(20)])
    sampling = 100 * math.sqrt(0.8 * 0.2 / N_PUBLISHED)
    assert table.accuracy_draws_sd.mean() == pytest.approx(SPREAD, rel=0.05)
    assert table.accuracy_sampling_sd.mean() == pytest.approx(sampling, rel=0.05)
    width = 2 * norm.isf(0.025) * math.hypot(SPREAD, ROW, sampling)
    assert (table.accuracy_high - table.accuracy_low).mean() == pytest.approx(width, rel=0.05)
    width = 2 * norm.isf(0.025) * math.hypot(LOG_SPREAD, LOG_ROW, 0.5 / math.sqrt(N_PUBLISHED))
    assert np.log(table.cost_high / table.cost_low).mean() == pytest.approx(width, rel=0.05)
    assert table.cost.mean() == pytest.approx(400, rel=0.05) and table.accuracy.mean() == pytest.approx(80, abs=0.5)


def test_the_small_sample_of_tasks_does_not_widen_the_interval():
    rng = np.random.default_rng(3)
    still = prediction_intervals(made_up(rng, 2000, spread=0.0)).iloc[0]
    assert still.accuracy_draws_sd < 1 < made_up(rng, 2000, spread=0.0)[f"{SYSTEM}/accuracy"].std()
    wide, narrow = (prediction_intervals(made_up(rng, 2000), {"MBPP": n}).iloc[0] for n in (50, 5000))
    assert wide.accuracy_high - wide.accuracy_low > 1.5 * (narrow.accuracy_high - narrow.accuracy_low)


def test_a_lower_level_and_more_draws():
    rng = np.random.default_rng(4)
    table = made_up(rng)
    wide, narrow = (prediction_intervals(table, level=level).iloc[0] for level in (0.95, 0.5))
    assert wide.accuracy_low < narrow.accuracy_low < narrow.accuracy_high < wide.accuracy_high
    one = prediction_intervals(table.iloc[:1]).iloc[0]  # no spread to be seen in one draw
    assert one.accuracy_draws_sd == 0 and one.accuracy_low < one.accuracy < one.accuracy_high


def test_counts_are_a_mixture_of_binomials():
    table = made_up(np.random.default_rng(5))
    row = prediction_intervals(table).iloc[0]
    rng = np.random.default_rng(6)
    above = rng.choice(table[f"{SYSTEM}/over"].to_numpy() / 100 * N_SUBSET, 100_000)
    counts = rng.binomial(500, rng.beta(above + 0.5, N_SUBSET - above + 0.5))  # a rate that the subset leaves open
    assert row.over == pytest.approx(counts.mean(), rel=0.02)
    assert [row.over_low, row.over_high] == pytest.approx(np.quantile(counts, (0.025, 0.975)), abs=1)


def test_baselines_are_predicted_in_sample_without_an_error_of_ours():
    table = made_up(np.random.default_rng(7))
    place = "MetaGPT/DeepSeek-V3"
    table[f"{place}/accuracy"], table[f"{place}/cost"] = 82.0, 3000.0
    row = prediction_intervals(table).set_index("kind").loc[IN_SAMPLE]
    assert row.accuracy_draws_sd == 0 and math.isnan(row.over)
    half = norm.isf(0.025) * math.hypot(ROW, 100 * math.sqrt(0.82 * 0.18 / 500))
    assert [row.accuracy_low, row.accuracy_high] == pytest.approx([82 - half, 82 + half], abs=1e-6)
    half = norm.isf(0.025) * LOG_ROW
    assert np.log([row.cost_low, row.cost_high]) == pytest.approx([math.log(3000) - half, math.log(3000) + half])


def test_coverage_counts_what_lies_inside():
    published = load_published()
    held = (published.system == "BAMAS").to_numpy()
    table = published.rename(columns={"accuracy_percent": "accuracy", "avg_cost_microusd": "cost"})
    table = table.replace({"system": {"BAMAS": PUBLISHED}}).assign(kind=np.where(held, HELD_OUT, IN_SAMPLE))
    table["accuracy_low"], table["accuracy_high"] = table.accuracy - 2, table.accuracy + 2
    table["cost_low"], table["cost_high"] = table.cost / 2, table.cost * 2
    found = coverage(table, published).set_index(["kind", "metric"])
    assert (found.share == 1).all() and (found.error < 1e-9).all()
    assert found.width.tolist() == pytest.approx([4, 4, 4, 4]) and found.rows.sum() == 2 * len(published)
    first = table.index[held][0]
    table.loc[first, ["accuracy", "accuracy_low", "accuracy_high"]] += 5
    table.loc[~held, ["cost", "cost_low", "cost_high"]] *= math.e
    found = coverage(table, published).set_index(["kind", "metric"])
    assert found.covered[HELD_OUT, "accuracy"] == 12 and found.covered[HELD_OUT, "cost"] == 13
    assert found.covered[IN_SAMPLE, "cost"] == 0 and found.bias[IN_SAMPLE, "cost"] == pytest.approx(1)
    assert found.error[HELD_OUT, "accuracy"] == pytest.approx(5 / math.sqrt(13))


@pytest.mark.parametrize(("change", "error", "message"), [
    (lambda t: t.iloc[:0], DrawsError, "draws: empty"),
    (lambda t: pd.concat([t.iloc[:1]] * 200), DrawsError, "draws: MBPP, 0 is there twice"),
    (lambda t: t.drop(columns="draw"), DrawsError, "draws: column draw is missing"),
    (lambda t: t.assign(**{f"{SYSTEM}/cost": 0.0}), DrawsError, "cost = 0.0 in row 0: .* above 0"),
    (lambda t: t.assign(**{f"{SYSTEM}/accuracy": 101.0}), DrawsError, "accuracy = 101.0 in row 0: .* from 0 to 100"),
    (lambda t: t.assign(**{f"{SYSTEM}/over": -1.0}), DrawsError, "over = -1.0"),
    (lambda t: t.assign(**{f"{SYSTEM}/cost_sd": -1.0}), DrawsError, "cost_sd = -1.0 in row 0: .* from 0"),
    (lambda t: t.assign(**{"fit/row_sd_cost": -1.0}), DrawsError, "fit/row_sd_cost = -1.0"),
    (lambda t: t.assign(**{f"{SYSTEM}/cost": "dear"}), DrawsError, "cost: expected a column of numbers"),
    (lambda t: [t], DrawsError, "draws = .*: expected a DataFrame"),
    (lambda t: t.drop(columns=f"{SYSTEM}/accuracy_error"), DrawsError, "accuracy_error is missing"),
    (lambda t: t.drop(columns=f"{SYSTEM}/accuracy"), DrawsError, "no column of BAMAS as published or a baseline"),
    (lambda t: t.assign(**{f"{SYSTEM}/cost": [np.nan, *t[f"{SYSTEM}/cost"][1:]]}), DrawsError, "cost = nan"),
    (lambda t: t.assign(dataset="AIME"), ValueError, "dataset = 'AIME'")])
def test_wrong_draws(change, error, message):
    with pytest.raises(error, match=message):
        prediction_intervals(change(made_up(np.random.default_rng(8), 20)))


def test_wrong_arguments_of_prediction():
    table = made_up(np.random.default_rng(9), 20)
    with pytest.raises(ValueError, match="level = 95"):
        prediction_intervals(table, level=95)
    for n in (0, 1.5, True):
        with pytest.raises(ValueError, match=rf"published_n\['MBPP'\] = {n}: expected a whole number"):
            prediction_intervals(table, {"MBPP": n})
    for n in ({"MATH": 10}, 10):
        with pytest.raises(ValueError, match="published_n = .*: expected a number of tasks for MBPP"):
            prediction_intervals(table, n)


@pytest.mark.parametrize(("change", "message"), [
    (lambda t: t.drop(columns="cost_low"), "prediction: column cost_low is missing"),
    (lambda t: t.assign(kind="fitted"), "prediction: kind = 'fitted': expected one of in-sample, held out"),
    (lambda t: t.assign(cost=0.0), "cost = 0.0: expected a finite number above 0"),
    (lambda t: t.assign(accuracy_low=100.0), "accuracy_low = 100 and accuracy_high = "),
    (lambda t: pd.concat([t, t]), "is there twice"), (lambda t: None, "prediction = None: expected a DataFrame"),
    (lambda t: t.assign(setting="budget 501"), "prediction: no row of it is among the published ones")])
def test_coverage_of_a_wrong_table(change, message):
    table = prediction_intervals(made_up(np.random.default_rng(9), 20))
    assert coverage(table, load_published()).rows.sum() == 2
    with pytest.raises(ValueError, match=message):
        coverage(change(table), load_published())
    with pytest.raises(ValueError, match="published: column budget is missing; use load_published"):
        coverage(table, load_published().drop(columns="budget"))
