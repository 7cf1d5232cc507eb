"""The simulator fitted to half of a recording: known parameters come back, and predictions cover what was recorded."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom, norm

from bamas_lite.llm import Reply, Usage
from bamas_lite.local_study import LOG, local_pool, local_tasks
from bamas_lite.pool import Pool
from bamas_lite.prompts import critic_messages, executor_messages, planner_messages
from bamas_lite.simulation import SimulatedLLM, count_tokens
from bamas_lite.simulator_check import estimates as est
from bamas_lite.simulator_check.calls import calls_of, kind_of
from bamas_lite.simulator_check.fit import fit_calls
from bamas_lite.simulator_check.fitted import FittedLLM
from bamas_lite.simulator_check.halves import (
    SPLITS,
    check,
    compare,
    episodes_of,
    fit_simulator,
    log_of,
    predict,
    rankings,
    recorded_episodes,
    resampled_fits,
    split_halves,
    summary,
)
from bamas_lite.tasks import DOMAINS, load_tasks
from bamas_lite.topologies import TOPOLOGIES
from bamas_lite.trajectories import load_trajectories

POOL = Pool(name="two", llms=[
    {"name": "big", "tier": 1, "price_in": 0.27, "price_out": 1.1, "max_tokens": 384},
    {"name": "small", "tier": 2, "price_in": 0.1, "price_out": 0.4, "max_tokens": 384}])
BIG, SMALL = POOL.llms
BUDGETS = (500.0, 875.0, 1250.0)
PREFIX, FACTOR = 210, 1.3
"""Tokens of few-shot examples before each prompt of the stand-in, and its tokens for one of the simulator's."""


def entry(value):
    return {"value": value, "range": [-5, 5000], "status": "fitted", "source": "test"}


def by_domain(value):
    return entry(dict.fromkeys(DOMAINS, value))


def view(right, wrong):
    return {"view_right": right, "view_wrong": wrong}


def truth(name, skill, tokens, repair, hit, valid):
    return {"base": "assumed", "skill": by_domain({name: skill}), "level_slope": by_domain(0.25),
            "improve": by_domain({"keep": view(0.95, 0.6), "repair": view(repair, 0.05)}),
            "critic": by_domain({"hit": view(hit, 0.4), "false_alarm": view(0.1, 0.5)}),
            "plan_validity": entry({"default": valid}), "completion_tokens": by_domain({"default": tokens}),
            "tokens_spread": by_domain(0.5)}


TRUTH = {"big": truth("big", 0.6, 150.0, 0.5, 0.8, 0.8), "small": truth("small", -0.3, 60.0, 0.2, 0.6, 0.3)}


class StandIn:
    """Two LLMs that differ in what the simulator has one value for, behind a few-shot prompt: a stand-in recording."""

    name = "recorded stand-in"

    def __init__(self, seed):
        self.llms = {name: SimulatedLLM(seed, parameters) for name, parameters in TRUTH.items()}

    def tokens(self, llm, messages):
        return round(PREFIX + FACTOR * self.llms[llm.name].bound_prompt_tokens(llm, messages))

    def bound_prompt_tokens(self, llm, messages):
        return 100 + self.tokens(llm, messages)

    async def complete(self, llm, messages, **options):
        reply = await self.llms[llm.name].complete(llm, messages, **options)
        return Reply(reply.text, Usage(self.tokens(llm, messages), reply.usage.completion_tokens), reply.latency_s,
                     reply.finish_reason)

    complete.instant = True


@pytest.fixture(scope="module")
def tasks():
    return load_tasks("word_problems", limit=500)


@pytest.fixture(scope="module")
def episodes(tasks):
    return episodes_of(tasks, BUDGETS, POOL, StandIn(5))


@pytest.fixture(scope="module")
def fit(episodes, tasks):
    return fit_simulator(episodes, tasks, POOL)


@pytest.fixture(scope="module")
def checked(episodes, tasks):
    some = tasks[:40]
    names = {task.task_id for task in some}
    return check([e for e in episodes if e.task_id in names], some, BUDGETS, POOL, n_seeds=8)


# --- halves

def test_halves_are_a_partition_with_half_of_every_domain_and_level():
    tasks = load_tasks("word_problems", limit=101) + load_tasks("python_functions", limit=50)
    a, b = split_halves(tasks, 3)
    assert sorted(task.task_id for task in a + b) == sorted(task.task_id for task in tasks)
    count = [pd.Series([(t.domain, t.level) for t in half]).value_counts() for half in (a, b)]
    assert (count[0].sub(count[1], fill_value=0).abs() <= 1).all()
    assert abs(len(a) - len(b)) <= 1
    assert split_halves(tasks, 3) == (a, b)
    assert split_halves(tasks, 4) != (a, b)


def test_one_task_has_no_halves():
    with pytest.raises(ValueError, match="at least 2"):
        split_halves(load_tasks("word_problems", limit=1))


# --- estimators against closed forms

def test_views_come_back_from_counts():
    rng = np.random.default_rng(0)
    above = np.repeat([0.0, 1.0, 2.0], 1500)
    z = 0.4 - 0.5 * above + np.sqrt(0.6) * rng.standard_normal(len(above))
    n = np.full(len(above), 3.0)
    k = rng.binomial(3, norm.cdf(z / np.sqrt(0.4))).astype(float)
    assert est.views(k, n, above, np.ones(len(k)), 2.0, 0.1) == pytest.approx((0.4, 0.5, 0.6), abs=0.08)


def test_beliefs_are_bayes_rule():
    k, n, above = np.array([0.0, 3.0, 0.0]), np.array([3.0, 3.0, 0.0]), np.zeros(3)
    chance = est.view_chance(est.beliefs(k, n, above, 0.3, 0.2, 0.5), above, 0.3, 0.2, 0.5)
    u = np.linspace(-8, 8, 20001)
    p = norm.cdf((0.3 + np.sqrt(0.5) * u) / np.sqrt(0.5))
    expected = [np.sum(norm.pdf(u) * binom.pmf(a, b, p) * p) / np.sum(norm.pdf(u) * binom.pmf(a, b, p))
                for a, b in zip(k, n, strict=True)]
    assert chance == pytest.approx(expected, abs=2e-3)
    assert chance[2] == pytest.approx(norm.cdf(0.3), abs=1e-6)   # nothing known: a single call


def test_chances_by_view_come_back_though_the_view_is_hidden():
    rng = np.random.default_rng(1)
    belief = rng.uniform(0.02, 0.98, 20_000)
    right = rng.random(20_000) < belief
    hit = rng.random(20_000) < np.where(right, 0.7, 0.15)
    assert est.by_view(hit.astype(float), belief, np.ones(20_000), (0.5, 0.5)) == pytest.approx((0.7, 0.15), abs=0.02)
    nothing = est.by_view(np.zeros(0), np.zeros(0), np.zeros(0), (0.9, 0.2))
    assert nothing == pytest.approx((0.9, 0.2))   # what was assumed stays


def test_lengths_come_back_though_a_third_of_the_replies_is_cut():
    rng = np.random.default_rng(2)
    style, above = rng.integers(0, 2, 6000), rng.integers(0, 3, 6000).astype(float)
    y = np.exp(np.array([4.0, 4.6])[style] + 0.2 * above + 0.5 * rng.standard_normal(6000))
    limit = np.full(6000, 110.0)
    cut = y > limit
    assert cut.mean() > 0.3
    means, growth, spread = est.lengths(np.minimum(y, limit), cut, limit, style, 2, above, np.ones(6000), 0.3)
    assert means == pytest.approx([4.0, 4.6], abs=0.04)
    assert (growth, spread) == pytest.approx((0.2, 0.5), abs=0.03)
    assert np.log(np.minimum(y, limit))[style == 1].mean() < 4.6 - 0.1 + 0.2   # the plain mean is not enough


def test_weights_are_repetitions():
    rng = np.random.default_rng(3)
    y, style, above = rng.uniform(20, 90, 40), rng.integers(0, 2, 40), rng.integers(0, 3, 40).astype(float)
    cut, weight = rng.random(40) < 0.2, rng.integers(0, 4, 40)
    arguments = np.column_stack([y, cut, np.full(40, 100.0), style, above])

    def run(rows, weights):
        y, cut, limit, style, above = rows.T
        means, *rest = est.lengths(y, cut.astype(bool), limit, style.astype(int), 2, above, weights, 0.3)
        return *means, *rest

    assert run(arguments, weight.astype(float)) == pytest.approx(run(np.repeat(arguments, weight, axis=0),
                                                                     np.ones(weight.sum())))


def test_wrong_answers_and_plans_come_back():
    p = 0.6 ** np.arange(5) / sum(0.6**k for k in range(5))
    own = [0.3 * p + 0.7 * np.roll(p, k) for k in range(5)]
    within, between = np.mean([q @ q for q in own]), np.mean([q @ r for q in own for r in own])
    found = est.coincidences((1e5 * within, 1e5), (1e5 * between, 1e5), 5, (0.5, 0.5))
    assert found == pytest.approx((0.6, 0.3), abs=0.06)
    steps = np.repeat([1.0, 2.0, 3.0, 4.0, 5.0], 2000)
    more = est.repeat_chance(steps, np.ones(len(steps)), 0.5, 5)
    assert 1 + more + more**2 + more**3 + more**4 == pytest.approx(3.0, abs=0.01)


def test_lines_are_least_squares():
    x, group = np.arange(30.0), np.arange(30) % 3
    offsets, slope = est.line(x, np.array([5.0, -1.0, 40.0])[group] + 1.4 * x, group, 3, np.ones(30))
    assert slope == pytest.approx(1.4, abs=1e-3)
    assert offsets == pytest.approx([5, -1, 40], abs=0.05)


# --- calls

def test_a_prompt_counts_once_with_its_largest_limit(episodes, tasks):
    calls = calls_of(episodes[:12], tasks)
    prompts = {(r.llm.name, *(m["content"] for m in r.messages)): r.max_tokens
               for e in episodes[:12] for r in sorted(e.calls, key=lambda r: r.max_tokens)}
    assert sum(e.n_calls for e in episodes[:12]) > len(prompts) == len(calls)
    assert sorted(call.limit for call in calls) == sorted(prompts.values())


def test_calls_say_what_their_prompts_hold(episodes, tasks):
    calls = pd.DataFrame(calls_of(episodes[:240], tasks))
    assert set(calls.loc[calls["style"] == "revise", "earlier"]) <= {"right", "wrong", "none"}
    assert calls.loc[calls["style"].isin(("solve", "approach", "planner")), "earlier"].isna().all()
    assert (calls.bound - calls.prompt).eq(100).all()          # found in what was reserved
    assert (calls.prompt - PREFIX - FACTOR * calls.plain).abs().max() <= 0.5
    assert set(calls.role) == {"executor", "critic", "planner", "replanner"}


def test_kinds_are_read_from_our_own_prompts():
    task = load_tasks("word_problems", limit=1)[0]
    assert kind_of(critic_messages(task, "#### 1")) == ("critic", "critic earlier_answer")
    assert kind_of(planner_messages(task, ["executor 1"])) == ("planner", "planner")
    assert kind_of(planner_messages(task, ["executor 1"], critique="No."))[0] == "replanner"
    assert kind_of(executor_messages(task, earlier="#### 1", critique="CONCLUSION: REVISE")) == (
        "executor", "executor earlier_answer critique")


def test_strangers_are_named(episodes, tasks, fit):
    with pytest.raises(ValueError, match="is not one of the 10 tasks"):
        calls_of(episodes[-1:], tasks[:10])
    with pytest.raises(ValueError, match="no call"):
        calls_of([], tasks)
    with pytest.raises(ValueError, match="no LLM 'small'|no LLM 'big'"):
        fit_simulator(episodes[:12], tasks, Pool(name="other", llms=[replace_name(BIG, "other")]))
    code = load_tasks("python_functions", limit=1)
    with pytest.raises(ValueError, match="domain = 'code'.*arithmetic"):
        FittedLLM(fit, code)


def replace_name(llm, name):
    return llm.model_dump() | {"name": name}


# --- the fit recovers what made the data

def estimate(fit, llm, parameter):
    rows = fit.estimates[(fit.estimates.llm == llm) & (fit.estimates.parameter == parameter)]
    assert len(rows) == 1 and rows["status"].item() == "fitted", parameter
    return rows.value.item()


@pytest.mark.parametrize(("parameter", "big", "small", "within"), [
    ("skill", 0.6, -0.3, 0.15), ("level_slope", 0.25, 0.25, 0.08), ("persistent_share", 0.75, 0.75, 0.12),
    ("improve.keep.view_right", 0.95, 0.95, 0.08), ("improve.repair.view_right", 0.5, 0.2, 0.22),
    ("critic.hit.view_right", 0.8, 0.6, 0.15), ("critic.hit.view_wrong", 0.4, 0.4, 0.07),
    ("critic.false_alarm.view_right", 0.1, 0.1, 0.22),
    ("plan_validity.planner", 0.8, 0.3, 0.05), ("tokens.solve", 150, 60, 12), ("tokens.critic", 82.5, 33, 8),
    ("tokens_spread.executor", 0.5, 0.5, 0.03)])
def test_known_parameters_come_back(fit, parameter, big, small, within):
    assert estimate(fit, "big", parameter) == pytest.approx(big, abs=within)
    assert estimate(fit, "small", parameter) == pytest.approx(small, abs=within)


def test_what_all_llms_share_comes_back(fit):
    assert estimate(fit, "all", "task_share") == pytest.approx(0.30, abs=0.1)
    assert estimate(fit, "all", "wrong_decay") == pytest.approx(0.5, abs=0.1)


def test_what_never_occurred_stays_assumed(episodes, tasks):
    linear = fit_simulator([e for e in episodes[:240] if e.topology == "linear"], tasks, POOL)
    critic = linear.estimates[linear.estimates.parameter.str.startswith("critic")]
    assert len(critic) == 8
    assert (critic["status"] == "assumed").all() and critic.value.tolist() == pytest.approx(critic.assumed.tolist())
    messages = planner_messages(tasks[0], ["executor 1"])
    backend = FittedLLM(linear, tasks)
    factor = linear.prompts["big", "", ""][1]
    plain = SimulatedLLM().bound_prompt_tokens(BIG, messages)
    assert linear.prompts["big", "", ""][0] == 0 and FACTOR < factor
    assert backend.bound_prompt_tokens(BIG, messages) >= round(factor * plain)


def test_a_critic_who_is_cut_asks_for_a_revision(episodes, tasks):
    """The chance to accept is (1 - asked) * (1 - cut) in the simulator; it must come out as it was seen."""
    calls = calls_of(episodes[:2400], tasks)
    for i, call in enumerate(calls):
        if call.role == "critic" and (call.earlier == "wrong" or i % 3 == 0):
            calls[i] = call._replace(cut=i % 3 == 0, right=True)
    fitted = fit_calls(calls, POOL)
    for llm in ("big", "small"):
        mine = pd.DataFrame([call for call in calls if call.role == "critic" and call.llm == llm])
        right = mine[mine.earlier == "right"]
        assert estimate(fitted, llm, "critic.hit.view_right") > 0.9 < estimate(fitted, llm, "critic.hit.view_wrong")
        false_alarm = [estimate(fitted, llm, f"critic.false_alarm.view_{view}") for view in ("right", "wrong")]
        low, high = sorted((1 - chance) * (1 - mine.cut.mean()) for chance in false_alarm)
        assert low - 0.05 < 1 - right.right.mean() < high + 0.05


def test_every_mapping_is_one_that_the_simulator_accepts(fit):
    assert set(fit.parameters) == {(llm, "arithmetic", role) for llm in ("big", "small")
                                   for role in ("executor", "critic", "planner", "replanner")}
    for (llm, _, _), mapping in fit.parameters.items():
        known = SimulatedLLM(0, mapping).parameters
        assert known.skill.value["arithmetic"][llm] == estimate(fit, llm, "skill")
        assert known.skill.status == "fitted" and known.stick.status == "assumed"


# --- playing with it

def test_prompts_cost_what_they_cost_in_the_recording(fit, tasks):
    backend = FittedLLM(fit, tasks)
    for task in tasks[:20]:
        messages = executor_messages(task)
        real = StandIn(0).tokens(BIG, messages)
        episode = episodes_of([task], [1250], POOL, backend, ["linear"])[0]
        assert abs(episode.calls[0].usage.prompt_tokens - real) <= 25
        assert abs(backend.bound_prompt_tokens(BIG, messages) - real - 100) <= 25


def test_replies_can_be_shorter_than_the_stand_in_text(fit, tasks):
    short = {key: mapping | {"completion_tokens": entry({"arithmetic": {"big": 16.0 * 6, "small": 16.0 * 6}})}
             for key, mapping in fit.parameters.items()}
    episodes = episodes_of(tasks[:30], [1250], POOL, FittedLLM(replace(fit, parameters=short), tasks[:30]), ["linear"])
    calls = [call for episode in episodes for call in episode.calls]
    assert np.mean([call.usage.completion_tokens for call in calls]) < 12
    assert min(count_tokens(call.reply.text) for call in calls) > 12
    assert all(call.reply.finish_reason == "stop" for call in calls)


def test_seeds_draw_anew_what_llms_share_on_a_task(fit, tasks):
    """Averaged over seeds no task is harder than another of its level; in the simulator itself some stay so."""
    some = [task for task in tasks if task.level == 3][:40]

    def spread(backends):
        logs = [log_of(episodes_of(some, [875], POOL, backend, ["linear"])) for backend in backends]
        right = pd.concat(logs).assign(correct=lambda log: log.correct.astype(float)).groupby("task_id").correct.mean()
        return right.var() * len(logs) / (right.mean() * (1 - right.mean()))

    assert spread([FittedLLM(fit, some, seed) for seed in range(30)]) < 2.0
    assert spread([StandIn(seed) for seed in range(30)]) > 3.0


def test_predictions_repeat(fit, tasks):
    logs = [predict(fit, tasks[:6], BUDGETS, POOL, n_seeds=2) for _ in range(2)]
    pd.testing.assert_frame_equal(*logs)
    assert set(logs[0].seed) == {0, 1} and set(logs[0].backend) == {"simulated"}
    one = logs[0][logs[0].seed == 0].drop(columns=["seed", "run_id"]).reset_index(drop=True)
    two = logs[0][logs[0].seed == 1].drop(columns=["seed", "run_id"]).reset_index(drop=True)
    assert not one.equals(two)


def test_each_seed_plays_with_a_fit_of_its_own(episodes, tasks):
    fits = resampled_fits(episodes[:480], tasks[:40], POOL, n=3, seed=1)
    skills = [estimate(fit, "big", "skill") for fit in fits]
    assert len(set(skills)) == 3
    again = resampled_fits(episodes[:480], tasks[:40], POOL, n=3, seed=1)
    assert [estimate(fit, "big", "skill") for fit in again] == skills
    whole = estimate(fit_calls(calls_of(episodes[:480], tasks[:40]), POOL, {t.task_id: 1.0 for t in tasks}), "big",
                     "skill")
    assert whole == estimate(fit_simulator(episodes[:480], tasks[:40], POOL), "big", "skill")


# --- the check as a whole, where the model is true

def test_predicted_intervals_cover_what_was_recorded(checked):
    assert len(checked) == 2 * 2 * len(BUDGETS) * len(TOPOLOGIES) and (checked.n_tasks == 20).all()
    assert checked.groupby("predicted_half").size().to_dict() == {"A": 24, "B": 24}
    assert checked.covered.mean() >= 0.85
    errors = summary(checked).set_index("quantity")
    assert (errors.predicted < errors.unfitted / 3).all()


def test_the_fit_plays_as_its_own_recording(fit, episodes, tasks):
    some = tasks[::3]
    played = pd.concat([log_of(episodes_of(some, [500, 1250], POOL, FittedLLM(fit, some, seed))) for seed in range(3)])
    means = [log.groupby(["budget", "topology"])[["correct", "cost"]].mean().astype(float)
             for log in (played, log_of([e for e in episodes if e.budget != 875]))]
    assert (means[0].correct - means[1].correct).abs().max() < 0.07
    assert (means[0].cost / means[1].cost - 1).abs().max() < 0.06


def test_intervals_are_narrow_enough_to_say_something(checked):
    accuracy = checked[checked.quantity == "accuracy"]
    width = accuracy.predicted_high - accuracy.predicted_low
    assert width.mean() < 0.5
    assert not ((accuracy.predicted_low <= accuracy.unfitted) & (accuracy.unfitted <= accuracy.predicted_high)).any()


# --- comparing, by hand

def log(rows, seed=0):
    """(task, budget, topology, correct, cost) of each episode."""
    frame = pd.DataFrame(rows, columns=["task_id", "budget", "topology", "correct", "cost"])
    return frame.assign(domain="arithmetic", level=1, status="ok", seed=seed)


def test_compare_by_hand():
    recorded = log([("a", 9.0, "linear", True, 4.0), ("b", 9.0, "linear", False, 8.0)])
    predicted = pd.concat([log([("a", 9.0, "linear", right, cost), ("b", 9.0, "linear", True, cost)], seed)
                           for seed, right, cost in ((0, True, 5.0), (1, False, 7.0))])
    plain_average = log([("c", 9.0, "linear", True, 1.0)])
    recorded = pd.concat([recorded, log([("a", 9.0, "star", True, 1.0)]).assign(status="infeasible")])
    table = compare(recorded, predicted, plain_average, plain_average).set_index("quantity")
    assert table.topology.tolist() == ["linear", "linear"]   # what could not be played is not compared
    accuracy, cost = table.loc["accuracy"], table.loc["cost"]
    assert (accuracy.recorded, accuracy.predicted, accuracy.plain_average) == (0.5, 0.75, 1.0)
    assert (accuracy.recorded_low, accuracy.recorded_high) == (0, 1) and accuracy.n_tasks == 2
    assert (cost.recorded, cost.predicted, cost.recorded_se) == (6.0, 6.0, pytest.approx(2 / np.sqrt(2)))
    half = 12.7062 * np.sqrt(2) * np.sqrt(1.5)   # Student's t with one degree of freedom
    assert cost.predicted_high == pytest.approx(6 + half, abs=1e-3) and cost.predicted_low == 0   # no cost below 0
    assert cost.covered and accuracy.covered


def table_of(rows):
    """(topology, recorded, predicted) -> a comparison of accuracy, and a cost that falls from row to row."""
    frame = pd.DataFrame([(t, r, p) for t, r, p in rows], columns=["topology", "recorded", "predicted"])
    frame = frame.assign(domain="code", budget=5.0, plain_average=0.5, unfitted=frame.recorded, recorded_se=0.1,
                         predicted_low=frame.predicted - 0.1, predicted_high=frame.predicted + 0.2, covered=True)
    cost = frame.assign(quantity="cost", recorded=[float(len(rows) - i) for i in range(len(rows))], predicted=1.0)
    cost["unfitted"] = cost["plain_average"] = cost.recorded
    return pd.concat([frame.assign(quantity="accuracy"), cost], ignore_index=True)


def test_summary_by_hand():
    errors = summary(table_of([("linear", 0.5, 0.6), ("star", 0.4, 0.1)])).set_index("quantity")
    accuracy = errors.loc["accuracy"]
    assert (accuracy.cells, accuracy.covered, accuracy.unfitted) == (2, 1.0, 0.0)
    assert accuracy.predicted == pytest.approx(20) and accuracy.bias == pytest.approx(-10)
    assert accuracy.plain_average == accuracy.domain_mean == pytest.approx(5) and accuracy.width == pytest.approx(30)
    assert accuracy.perfect == pytest.approx(100 * np.sqrt(2 / np.pi) * 0.1)
    assert errors.loc["cost"].predicted == pytest.approx(25)   # 1 for 2 and 1 for 1, in percent of the recorded


def test_rankings_by_hand():
    row = rankings(table_of([("linear", 0.5, 0.1), ("star", 0.4, 0.6), ("feedback", 0.5, 0.3)])).iloc[0]
    assert row.best == "feedback"   # as good as linear, and cheaper
    assert row.predicted == "star" and row.predicted_lost == pytest.approx(0.1)
    assert row.unfitted == "feedback" and row.unfitted_lost == 0 and row.unfitted_tau == pytest.approx(1)
    assert row.plain_average == "feedback" and np.isnan(row.plain_average_tau)   # plain_average ranks all alike
    assert row.random_lost == pytest.approx(0.1 / 3) and row.always_star_lost == pytest.approx(0.1)
    assert row.predicted_tau == pytest.approx(-2 / np.sqrt(6))     # two of three pairs, one tie in one order


def test_one_mean_for_a_domain_is_that_of_its_plain_averages():
    table = table_of([("linear", 0.5, 0.5), ("star", 0.5, 0.5)]).drop(columns="unfitted")
    table.loc[table.quantity == "accuracy", "plain_average"] = [0.3, 0.9]
    accuracy = summary(table).set_index("quantity").loc["accuracy"]
    assert accuracy.domain_mean == pytest.approx(10) and accuracy.plain_average == pytest.approx(30)


# --- the committed check of the recording of two small LLMs

def test_the_committed_table_compares_with_the_committed_log():
    table, log = pd.read_csv(LOG.with_name("simulator_check.csv")), load_trajectories(LOG)
    assert sorted(set(table.split)) == list(SPLITS)
    split = SPLITS[-1]
    halves = dict(zip("AB", ({task.task_id for task in half} for half in split_halves(local_tasks(), split)),
                      strict=True))
    for name, other in (("A", "B"), ("B", "A")):
        part = table[(table.split == split) & (table.predicted_half == name)]
        for column, half in (("recorded", name), ("plain_average", other)):
            rows = log[log.task_id.isin(halves[half])].groupby(["domain", "budget", "topology"])
            for quantity, values in (("accuracy", rows.correct.mean()), ("cost", rows.cost.mean())):
                shown = part[part.quantity == quantity].set_index(["domain", "budget", "topology"])[column]
                assert len(shown) == len(values)
                assert shown.to_numpy() == pytest.approx(values.loc[shown.index].to_numpy(float), abs=1e-4)
    new = pd.read_csv(LOG.with_name("simulator_new_budgets.csv"))
    part = new[(new.split == 0) & (new.predicted_half == "A") & (new.quantity == "cost")]
    known = {task.task_id for task in split_halves(local_tasks(), 0)[1]}
    for row in part.itertuples():
        rows = log[(log.domain == row.domain) & (log.topology == row.topology)]
        others = rows[rows.task_id.isin(known) & (rows.budget != row.budget)]
        assert row.plain_average == pytest.approx(others.cost.mean(), abs=1e-4)
        asked = rows[~rows.task_id.isin(known) & (rows.budget == row.budget)]
        assert row.recorded == pytest.approx(asked.cost.mean(), abs=1e-4)
    assert len(part) == 2 * 3 * len(TOPOLOGIES)
    inside = (table.predicted_low - 2e-4 <= table.recorded) & (table.recorded <= table.predicted_high + 2e-4)
    assert (inside == table.covered).mean() > 0.99


def test_the_committed_fit_is_that_of_the_committed_recording():
    episodes, tasks = recorded_episodes()
    found = fit_simulator(episodes, tasks, local_pool()).estimates
    stated = pd.read_csv(LOG.with_name("simulator_fit.csv"))
    assert found[["llm", "domain", "parameter", "n", "status"]].equals(stated[["llm", "domain", "parameter", "n",
                                                                              "status"]])
    assert found.value.to_numpy() == pytest.approx(stated.value.to_numpy(), rel=0.02, abs=0.02)
