"""Frontier, decomposition, and studies on a bench: against numbers worked out by hand, and on a few tasks."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from bamas_lite.pool import load_pool
from bamas_lite.provisioning import provision
from bamas_lite.reproduction import studies
from bamas_lite.reproduction.assumptions import noisy_tiers, plays_of, rated, repriced, swapped_tiers, teams_of
from bamas_lite.reproduction.bench import Play, as_in, make_bench
from bamas_lite.reproduction.frontier import decompose, frontier_area, resampled_means, step_area
from bamas_lite.reproduction.outcomes import run_factorial
from bamas_lite.reproduction.published import BASELINES, DATASETS, load_published
from bamas_lite.reproduction.streams import StreamBudgetError
from bamas_lite.reproduction.tornado import BARS, moved, tornado
from bamas_lite.simulation_parameters import load_parameters, numbers


@pytest.fixture(scope="module")
def bench():
    return make_bench("GSM8K", n_train=12, n_test=10, train_seeds=1, parameters="assumed")


# Arrays

def test_step_area_by_hand():
    """Points (100, 0.5), (200, 0.4), (300, 0.8): 0 up to 100, 0.5 up to 300, 0.8 beyond; the second is dominated."""
    accuracy, cost = [0.8, 0.5, 0.4], [300, 100, 200]
    assert step_area(accuracy, cost, 0, 400) == pytest.approx((100 * 0 + 200 * 0.5 + 100 * 0.8) / 400)
    assert step_area(accuracy, cost, 150, 250) == pytest.approx(0.5)
    assert step_area(accuracy, cost, 350, 400) == pytest.approx(0.8)
    assert step_area(accuracy, cost, 0, 50) == 0
    assert step_area([accuracy, [1, 1, 1]], [cost, cost], [0, 0], [400, 400]) == pytest.approx([0.45, 0.75])


def test_step_area_against_a_fine_grid():
    rng = np.random.default_rng(0)
    accuracy, cost = rng.random(6), rng.uniform(0, 100, 6)
    grid = np.linspace(10, 90, 200_001)
    best = [max((a for a, c in zip(accuracy, cost, strict=True) if c <= b), default=0) for b in grid[::100]]
    assert step_area(accuracy, cost, 10, 90) == pytest.approx(np.mean(best), abs=0.002)


def test_frontier_area_of_constant_outcomes_and_its_differences():
    """Without any spread the intervals are points; the window runs from the dearest cheapest point to the dearest."""
    def constant(correct, cost):
        return np.broadcast_to(correct, (2, 5, 2)), np.broadcast_to(cost, (2, 5, 2))
    table = frontier_area({"a": constant([0.5, 0.7], [100, 200]), "b": constant([0.6, 0.6], [120, 300])}, against="a",
                          fixed={"c": ([0.9], [110])}, resamples=20).set_index("system")
    assert (table.window_low == 120).all() and (table.window_high == 300).all()
    assert table.area["a"] == pytest.approx((80 * 0.5 + 100 * 0.7) / 180)
    assert table.area["b"] == pytest.approx(0.6) and table.area["c"] == pytest.approx(0.9)
    assert table.difference["b"] == pytest.approx(0.6 - table.area["a"])
    assert table.area_low["a"] == pytest.approx(table.area_high["a"]) and table.difference_high["a"] == 0
    assert table.loc["c", ["area_low", "difference"]].isna().all()


def test_frontier_area_pairs_resamples():
    """Two systems that differ by a constant: the difference has no width, the areas have some."""
    rng = np.random.default_rng(0)
    correct, cost = rng.random((3, 40, 2)), np.broadcast_to([100.0, 200.0], (3, 40, 2))
    table = frontier_area({"a": (correct, cost), "b": (correct + 0.1, cost)}, against="a", resamples=200)
    b = table.set_index("system").loc["b"]
    assert b.difference_low == pytest.approx(0.1) and b.difference_high == pytest.approx(0.1)
    assert b.area_high - b.area_low > 0.02 and b.area_low < b.area < b.area_high


def test_resampled_means_have_the_spread_of_the_mean():
    y = np.random.default_rng(0).normal(size=(1, 400, 2))
    samples = resampled_means(y, resamples=4000)
    assert samples.std(axis=0) == pytest.approx(y.std(axis=(0, 1)) / 20, rel=0.05)
    assert samples.mean(axis=0) == pytest.approx(y.mean(axis=(0, 1)), abs=0.01)
    assert resampled_means(y[:, :, 0], resamples=4000) == pytest.approx(samples[:, 0])


def test_decomposition_by_hand():
    """Mean accuracies 0.5, 0.6 (topology alone), 0.7 (team alone), 0.9 (both)."""
    y = np.array([[0.5, 0.6], [0.7, 0.9]])[:, :, None, None] * np.ones((2, 2, 2, 6))
    part = decompose(y, resamples=20).set_index("part")
    assert part.value[["reference", "total"]].tolist() == pytest.approx([0.5, 0.4])
    assert part.value["provisioning"] == pytest.approx((0.2 + 0.3) / 2)
    assert part.value["topology"] == pytest.approx((0.1 + 0.2) / 2)
    assert part.value["interaction"] == pytest.approx(0.1)
    assert part.low.tolist() == pytest.approx(part.value.tolist())
    assert part.high.tolist() == pytest.approx(part.value.tolist())


def test_shapley_values_add_up_and_orders_meet():
    rng = np.random.default_rng(1)
    part = decompose(rng.integers(0, 2, (2, 2, 3, 30)), resamples=100).set_index("part")
    assert part.value["provisioning"] + part.value["topology"] == pytest.approx(part.value["total"])
    assert part.value["provisioning first"] + part.value["topology second"] == pytest.approx(part.value["total"])
    assert part.value["topology first"] + part.value["provisioning second"] == pytest.approx(part.value["total"])
    assert ((part.low <= part.value) & (part.value <= part.high)).all()


POINTS = np.ones((1, 2, 2)), np.array([[[1.0, 2.0], [1.0, 2.0]]])


@pytest.mark.parametrize(("call", "words"), [
    (lambda: decompose(np.ones((2, 2, 5))), r"outcomes: shape \(2, 2, 5\)"),
    (lambda: decompose(np.full((2, 2, 1, 5), np.nan)), r"outcomes\[0, 0, 0, 0\] = nan: expected a finite number"),
    (lambda: decompose("x"), "outcomes = 'x': expected an array of numbers"),
    (lambda: decompose(np.ones((2, 2, 1, 5)), level=-1), "level = -1: expected a number between 0 and 1"),
    (lambda: resampled_means(np.ones((1, 2)), seed=-1), "seed = -1: expected a whole number"),
    (lambda: resampled_means(np.ones((1, 2)), resamples=0), "resamples = 0: expected a whole number"),
    (lambda: step_area([1, np.nan], [1, 2], 0, 1), r"accuracy\[1\] = nan"),
    (lambda: step_area([1, 1], [1, 2], np.nan, 1), "low = nan: expected a finite number"),
    (lambda: step_area([1, 1], [1, 2], 0, [1, 2]), r"high: shape \(2,\); expected a number"),
    (lambda: frontier_area({"a": POINTS}, level=2), "level = 2: expected a number between 0 and 1"),
    (lambda: frontier_area({"a": POINTS}, level="x"), "level = 'x': expected a finite decimal number"),
    (lambda: frontier_area({"a": POINTS}, window=5), r"window = 5: expected \(low, high\)"),
    (lambda: frontier_area({"a": POINTS}, window=(5, 5)), r"window = \(5, 5\): expected \(low, high\)"),
    (lambda: frontier_area({"a": POINTS}, window=(5, np.nan)), r"window\[1\] = nan"),
    (lambda: frontier_area({"a": (POINTS[0], np.ones((1, 2, 2)))}), "window = None: .* give more of them"),
    (lambda: frontier_area({"a": POINTS}, fixed={"b": ([1], [1, 2])}), r"fixed\['b'\]: shapes \(1,\) and \(2,\)"),
    (lambda: frontier_area({"a": 5}), r"systems\['a'\] = 5: expected the pair"),
    (lambda: frontier_area([1]), r"systems = \[1\]: expected name ->"),
    (lambda: step_area([1, 2], [1], 0, 1), r"shapes \(2,\) and \(1,\)"),
    (lambda: step_area([1], [1], 2, 2), "expected low < high"),
    (lambda: frontier_area({}), "systems = {}: expected name ->"),
    (lambda: frontier_area({"a": (np.ones((1, 2, 1)), np.ones((1, 2, 1)))}, against="b"), "against = 'b'"),
    (lambda: frontier_area({"a": (np.ones((1, 2)), np.ones((1, 2)))}), r"systems\['a'\]: shapes"),
    (lambda: frontier_area({n: (np.ones((1, k, 1)), np.ones((1, k, 1))) for n, k in (("a", 2), ("b", 3))}),
     "numbers of seeds and tasks differ"),
    (lambda: make_bench("GSM9K"), "dataset = 'GSM9K'"),
    (lambda: make_bench("GSM8K", n_test=10**6), "n_test = 1000000"),
    (lambda: repriced(load_pool("paper"), 2), "changes = 2: expected LLM -> factor"),
    (lambda: swapped_tiers(load_pool("fourteen")), "pool 'fourteen' has 6 tiers: expected 2"),
    (lambda: rated(unrated_pool()), "pool 'paper': 'GPT-0' has no rating"),
    (lambda: studies.solvers(n_grid=0), "n_grid = 0: expected a whole number of at least 1"),
    (lambda: studies.solvers(names="HiGHS"), "names = 'HiGHS': expected a list"),
    (lambda: studies.solvers(names=[]), "names is empty"),
    (lambda: studies.solvers(most=1), "budgets up to 1 u.: no team of pool 'paper'; expected at least 408 u"),
    (lambda: tornado("GSM8K", bars=[]), "bars is empty: expected at least one"),
    (lambda: tornado("GSM8K", bars="plan_more"), "bars = 'plan_more': expected a list"),
    (lambda: tornado("GSM8K", bars=5), "bars = 5: expected a list"),
    (lambda: tornado("GSM8K", bars=[["plan_more"]]), r"bars: \['plan_more'\] is none"),
    (lambda: repriced(load_pool("paper"), {"GPT-5": 2}), "'GPT-5' is not in the pool"),
    (lambda: repriced(load_pool("paper"), {"DeepSeek-V3": 0}), r"changes\['DeepSeek-V3'\] = 0"),
    (lambda: tornado("GSM8K", bars=["luck"]), "bars: 'luck' is none")])
def test_wrong_input_is_one_clear_message(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def unrated_pool():
    pool = load_pool("paper")
    return pool.model_copy(update={"llms": [m.model_copy(update={"name": "GPT-0"}) for m in pool.llms]})


@pytest.mark.parametrize(("study", "options", "words"), [
    (studies.objectives, {"n_grid": 0}, "n_grid = 0: expected a whole number"),
    (studies.objectives, {"n_grid": -1}, "n_grid = -1"), (studies.objectives, {"n_grid": 1.5}, "n_grid = 1.5"),
    (studies.planned_against_actual, {"factors": ()}, "factors is empty: expected at least one"),
    (studies.planned_against_actual, {"factors": (1, 0)}, "factors = 0: expected a number above 0"),
    (studies.planned_against_actual, {"factors": (1, 1.0)}, "factors holds 1 more than once"),
    (studies.reprice, {"changes": {}}, "changes = {}: expected name ->"),
    (studies.reprice, {"changes": {"DeepSeek-V3": 2}}, "changes = 2: expected LLM -> factor"),
    (studies.wrong_ranking, {"sds": (-1,)}, "sds = -1: expected a number of at least 0"),
    (studies.wrong_ranking, {"sds": (math.nan,)}, "sds = nan"),
    (studies.wrong_ranking, {"sds": 5}, "sds = 5: expected"),
    (studies.wrong_ranking, {"seed": -1}, "seed = -1: expected a whole number"),
    (studies.wrong_ranking, {"draws": 0}, "draws = 0: expected a whole number"),
    (studies.streams, {"eaches": []}, "eaches is empty"), (studies.streams, {"eaches": [-5]}, "eaches = -5"),
    (studies.streams, {"eaches": "56"}, "eaches = '56': expected a list"),
    (studies.streams, {"eaches": [1e-6]}, r"eaches = \[1e-06\]: total = .*: the cheapest option of every task")])
def test_wrong_options_of_a_study_are_one_clear_message(bench, study, options, words):
    with pytest.raises(ValueError, match=words):
        study(bench, **options)


# The bench

@pytest.mark.parametrize(("options", "words"), [
    ({"budgets": "500"}, "budgets = '500': expected a list"), ({"budgets": 5}, "budgets = 5: expected a list"),
    ({"budgets": []}, "budgets is empty"), ({"budgets": [math.nan]}, "budget = nan"),
    ({"budgets": [-1]}, "budget = -1.0: expected at least 0"), ({"budgets": [True]}, "budget = True"),
    ({"budgets": [500, 500.0]}, "budgets holds 500.0 more than once"),
    ({"pool": "paper"}, "pool = 'paper': expected a Pool"), ({"workers": 0}, "workers = 0: expected a whole number"),
    ({"workers": "2"}, "workers = '2': expected a whole number"),
    ({"n_train": 1}, "n_train = 1: expected .* from 2 to"),
    ({"n_test": 0}, "n_test = 0"), ({"test_seeds": 1.5}, "test_seeds = 1.5")])
def test_a_bench_refuses_what_it_cannot_play(options, words):
    with pytest.raises(ValueError, match=words):
        make_bench("GSM8K", **options)


@pytest.mark.parametrize("study", [studies.streams, studies.frontier, studies.decomposition, studies.learners])
@pytest.mark.parametrize("budgets", [[5.0], [5.0, 3000]])
def test_studies_of_policies_need_a_team_under_every_budget(study, budgets):
    poor = make_bench("MATH", budgets=budgets, n_train=2, n_test=1)
    with pytest.raises(ValueError, match=r"budgets = \[5.0\]: no team below 919.2 u\$"):
        study(poor)
    assert provision(poor.pool, 919.2) and teams_of(poor)[0] is None


def test_budgets_given_in_any_order_match_the_table_of_the_outcomes():
    """A policy chooses for the rows of the table, which sorts budgets; its choices meet the arrays of the outcomes."""
    falling = make_bench("GSM8K", budgets=[2000, 500], n_train=2, n_test=3, parameters="assumed")
    outcomes = falling.outcomes(plays_of(falling, teams_of(falling), falling.variant()))
    cost = outcomes.cost.mean(axis=0)
    assert (cost[:, 0] != cost[:, 1]).any() and outcomes.table().cost.reshape(cost.shape) == pytest.approx(cost)


def test_streams_of_one_budget():
    one = make_bench("GSM8K", budgets=[875], n_train=6, n_test=5, train_seeds=1, parameters="assumed")
    table = studies.streams(one)
    assert set(table.each) == {525, 700, 875} and set(table[table.plan == "flat"].each) == {875}
    with pytest.raises(StreamBudgetError) as caught:
        studies.streams(one, eaches=[1])
    assert len(studies.streams(one, eaches=[caught.value.least_total / 5]))


def test_bench_plays_what_the_factorial_plays(bench):
    plays = plays_of(bench, teams_of(bench), bench.variant("paper"))
    outcomes = bench.outcomes(plays)
    expected = run_factorial(bench.tasks["test"], bench.budgets, pool=bench.pool, variant=bench.variant("paper"),
                             seeds=bench.seeds["test"])
    for name in ("correct", "cost", "over", "status"):
        assert (getattr(outcomes, name) == getattr(expected, name)).all(), name
    assert outcomes.cost.max() > 0 and 0 < outcomes.correct.mean() < 1


def test_bench_plays_nothing_twice(bench, monkeypatch):
    play = Play(875.0, provision(bench.pool, 500), bench.variant())
    first = bench.played(play)
    monkeypatch.setattr("bamas_lite.reproduction.bench.spread", None)
    assert bench.played(replace(play, team=provision(bench.pool, 500.1))) is first  # the same agents
    with pytest.raises(TypeError):
        bench.played(replace(play, budget=876.0))


def test_a_team_pays_the_prices_of_its_pool(bench):
    cheap = repriced(bench.pool, {"DeepSeek-V3": 0.5, "GPT-4.1 nano": 0.5})
    team = provision(bench.pool, 875)
    before, after = (bench.played(Play(875.0, t, bench.variant("paper"))).cost[:, :, 0]
                     for t in (team, as_in(team, cheap)))
    assert after == pytest.approx(before / 2)  # Linear: nothing is stopped


# Pools

def test_pools_of_the_assumptions():
    pool, fourteen = load_pool("paper"), load_pool("fourteen")
    assert [m.name for tier in swapped_tiers(pool).tiers for m in tier] == ["GPT-4.1 nano", "DeepSeek-V3"]
    assert swapped_tiers(swapped_tiers(pool)) == pool
    exact = noisy_tiers(fourteen, 0, np.random.default_rng(0))
    assert [m.tier for m in exact.llms] == [m.tier for m in fourteen.llms]  # BANDS are those of the file
    noisy = noisy_tiers(fourteen, 80, np.random.default_rng(0))
    assert [m.tier for m in noisy.llms] != [m.tier for m in fourteen.llms]
    assert [m.rating for m in noisy.llms] == [m.rating for m in fourteen.llms]
    assert rated(pool)["DeepSeek-V3"] > rated(pool)["GPT-4.1 nano"]
    assert repriced(pool, {"GPT-4.1 nano": 2})["GPT-4.1 nano"].price_out == 0.8


# Studies, on a few tasks

def test_wrong_ranking(bench):
    table = studies.wrong_ranking(bench, sds=(0.0, 80.0), draws=1)
    swapped = table[table.variant == "tiers swapped"].set_index(["budget", "metric"])
    assert swapped.loc[("500", "accuracy"), "difference"] == 0  # two nanos either way
    assert swapped.note[("875", "cost")].startswith("4x GPT-4.1 nano, ")  # 875 = 4 x 203.6 + 60.6
    none = table[table.variant == "ratings with noise, sd 0"].set_index("metric")
    assert none.value["teams_differ"] == 0 and (none.difference.dropna() == 0).all()
    assert table[table.variant == "ratings with noise, sd 80"].set_index("metric").value["teams_differ"] > 0


def test_planned_against_actual(bench):
    table = studies.planned_against_actual(bench, factors=(1, 1.5))
    same = table[table.variant.str.contains("x 1,")]
    assert (same[same.metric == "teams_differ"].value == [0] * 6).all()  # three plans, two ways of enforcement
    assert (same.difference.dropna() == 0).all()
    dear = table[(table.variant == "T_in and T_out x 1.5, enforcement paper") & (table.budget == "500")]
    assert (dear.note == "no team").all() and (dear.value == 0).all()  # two nanos need 610.8 u$
    overall = table[(table.variant == "T_in and T_out x 1.5, enforcement paper") & (table.budget == "all")]
    assert overall.note.str.startswith("no team, so no answer, at 500 u$").any()
    reserve = table[table.variant.str.contains("reserve") & (table.metric == "over_budget")]
    assert len(reserve) and (reserve.value == 0).all()


def test_objectives(bench):
    table = studies.objectives(bench, n_grid=5)
    notes = table[(table.pool == "paper") & (table.metric == "cost")].set_index("budget").note
    assert notes["875"].startswith("4x GPT-4.1 nano, ")  # four ratings add up to more than two
    grid = table[table.metric == "teams_differ_on_grid"].set_index("pool")
    assert grid.value["paper"] > 0 and grid.note["paper"] == "of 5 budgets from 408 to 2000 u$"


def test_solvers():
    table = studies.solvers(n_grid=3)
    assert (table.metric == "same_team").all() and sorted(set(table.variant)) == ["HiGHS", "PULP_CBC_CMD"]
    assert (table[table.pool == "paper"].value == 100).all()
    failed = table[table.value < 100]
    assert failed.note.str.contains(r"u\$: ").all()  # says why


def test_reprice(bench):
    half = studies.reprice(bench, {"half": {"DeepSeek-V3": 0.5}}).set_index(["budget", "metric"])
    assert half.note[("875", "cost")].startswith(
        "kept 1x DeepSeek-V3 + 1x GPT-4.1 nano; anew 3x DeepSeek-V3, ")  # 278.7 u$ each
    same = studies.reprice(bench, {"same": {"DeepSeek-V3": 1}}).set_index(["budget", "metric"])
    assert same.value[("all", "teams_differ")] == 0 and (same.difference.dropna() == 0).all()


def test_learners(bench):
    table = studies.learners(bench).set_index(["variant", "metric"])
    assert len(table) == 4 * 2 * 3
    assert table.loc[("exact expectation, greedy", "accuracy"), "difference"] == 0
    assert (table.low <= table.difference + 1e-12).all() and (table.difference <= table.high + 1e-12).all()


def test_frontier_study(bench):
    table = studies.frontier(bench).set_index("system")
    assert table.area["oracle"] >= table.area[["best fixed", "random", "BAMAS as it should be"]].max()
    assert table.label["paper's figures"] == "paper" and (table.label.drop("paper's figures") == "simulated").all()
    assert table.difference["BAMAS as published"] == 0 and table.n_points["paper's figures"] == 5


def test_decomposition_study(bench):
    table = studies.decomposition(bench).set_index(["reference", "budget", "part"]).value.sort_index()
    for reference in ("2x GPT-4.1 nano, random", "2x GPT-4.1 nano, linear"):
        assert table[reference, "500", "provisioning"] == 0  # the cheapest team is the provisioned one
        assert table[reference, "500", "topology"] == pytest.approx(table[reference, "500", "total"])
        at = table[reference, "all"]
        assert at["provisioning"] + at["topology"] == pytest.approx(at["total"])
        budgets = [table[reference, f"{b:g}", "total"] for b in bench.budgets]
        assert at["total"] == pytest.approx(np.mean(budgets))


def test_streams_study(bench):
    table = studies.streams(bench)
    assert table.proved.all() and set(table.predictor) == {"level", "mean", "outcomes known"}
    guaranteed = table[table.plan.isin(["flat", "stream guaranteed"])]
    assert (guaranteed.over_total == 0).all()
    oracle = table[table.plan == "oracle stream"].set_index("each").correct
    others = table[table.plan.isin(["flat", "stream guaranteed"])]
    assert (others.correct <= oracle[others.each].to_numpy() + 1e-12).all()


def test_predictions_use_training_outcomes_only():
    train = np.array([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]])
    by_level = studies.predicted(train, [1, 1, 2], [2, 1, 3])
    overall = train.mean(axis=0)
    assert by_level[0] == pytest.approx((train[2] + studies.PRIOR * overall) / (1 + studies.PRIOR))
    assert by_level[1] == pytest.approx((train[:2].sum(axis=0) + studies.PRIOR * overall) / (2 + studies.PRIOR))
    assert by_level[2] == pytest.approx(overall)
    assert studies.predicted(train, [1, 1, 2], None) == pytest.approx(overall[None])


def test_summaries_are_data():
    table = studies.summaries_versus_paper()
    assert list(table) == ["topic", "some summaries", "paper", "kit"] and not (table == "").any(axis=None)
    assert table.topic.is_unique and "DeepSeek-V3 and GPT-4.1 nano" in set(table.paper)


# Tornado

def test_bars_move_their_numbers_and_no_other():
    base = load_parameters("assumed")
    names = {bar[0] for bar in BARS.values()}
    before = {(name, place): value for name in names for place, value in numbers(getattr(base, name).value)}
    for bar, (name, *_) in BARS.items():
        for end in (0, 1):
            data, limit = moved(base, "mathematics", bar, end)
            after = load_parameters(data)  # checks every rule
            now = {(n, place): value for n in names for place, value in numbers(getattr(after, n).value)}
            changed = {key: value for key, value in now.items() if value != before[key]}
            assert set(changed.values()) == {limit} or bar.startswith("tokens_style") or not changed, bar
            assert all(n == name and not place.startswith(("arithmetic", "code")) for n, place in changed), bar
    assert moved(base, "arithmetic", "task_share", 1)[1] == 0.55  # 0.6 would pass 1 together with llm_share = 0.45
    assert set(moved(base, "code", "plan_validity (all LLMs)", 0)[0]["plan_validity"]["value"].values()) == {0.7}


def test_tornado_on_a_few_tasks():
    bars = ("improve.keep.view_right", "plan_more")
    table = tornado("GSM8K", n_train=8, n_test=12, test_seeds=1, parameters="assumed", bars=bars)
    assert len(table) == 4 * len(bars) and table.groupby("headline").base.nunique().eq(1).all()
    plan = table[table.parameter == "plan_more"].set_index("headline")
    assert plan.loc["Feedback against Linear", ["at_low", "at_high"]].eq(plan.base["Feedback against Linear"]).all()
    keep = table[table.parameter == "improve.keep.view_right"].set_index("headline")
    assert keep.low_end.eq(0.9).all() and keep.high_end.eq(1).all()
    assert keep.at_low["Feedback against Linear"] > keep.at_high["Feedback against Linear"]  # chains lose right answers


# The files

def test_a_wrong_command_is_one_message_and_writes_nothing(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(studies, "FOLDER", tmp_path / "out")
    assert studies.main(["--workers", "0"]) == 2 and not (tmp_path / "out").exists()
    assert capsys.readouterr().err == "workers = 0: expected a whole number of at least 1\n"
    (tmp_path / "out").write_text("")
    assert studies.main([]) == 2 and "is a file" in capsys.readouterr().err


@pytest.mark.parametrize("name", studies.FILES)
def test_marks_name_the_llms_that_no_baseline_row_of_the_paper_runs(name):
    table = studies.marked(pd.read_csv(studies.FOLDER / f"{name}.csv").drop(columns="mark", errors="ignore"))
    published = load_published()
    seen = published[published.system.isin(BASELINES)].groupby("dataset").llm.agg(set)
    llms = {pool: {m.name for m in load_pool(pool).llms} for pool in ("paper", "fourteen")}
    for row in table.to_dict("records"):
        rests = row.get("label") != "paper" and not str(row.get("metric")).startswith("teams_")
        pool = llms[row.get("pool", "paper")]
        unseen = pool - seen.get(row["dataset"], pool)
        assert bool(row["mark"]) == bool(rests and unseen), row
        assert len(unseen) != 1 or not rests or row["mark"] == (
            f"skill of {unseen.pop()} not fitted: no baseline row of {row['dataset']}")
    assert set(table.dataset[table.mark != ""]) >= {"MATH"} and set(DATASETS) <= set(table.dataset)


def test_rounding_hides_last_bits_and_minus_zero():
    table = studies.rounded(pd.DataFrame({"a": [0.1 + 0.2, -1e-9], "b": ["x", "y"]}))
    assert table.a.tolist() == [0.3, 0.0] and not np.signbit(table.a[1])


def test_the_committed_tables_come_from_this_code_and_these_parameters():
    """A slice of two tables, computed anew; `python -m bamas_lite.reproduction.studies` rebuilds all."""
    committed = {name: pd.read_csv(studies.FOLDER / f"{name}.csv") for name in studies.FILES}
    for name, fresh in (("assumptions", studies.solvers()), ("tornado", tornado("GSM8K", bars=["plan_more"]))):
        table = committed[name]
        keys = [column for column in ("study", "dataset", "parameter") if column in table]
        same = table.merge(fresh[keys].drop_duplicates(), on=keys).sort_values(list(table)[:3], ignore_index=True)
        fresh = studies.rounded(fresh).sort_values(list(table)[:3], ignore_index=True)
        pd.testing.assert_frame_equal(same[list(fresh)], fresh, check_dtype=False, atol=0.0011)
    for name in ("assumptions", "frontier", "decomposition", "reprice", "streams", "tornado"):
        assert set(committed[name].dataset) >= {"GSM8K", "MBPP", "MATH"}, name
