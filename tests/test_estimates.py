"""Estimates: the worst case is never passed, and can be reached; the expectation is that of the simulation."""

from __future__ import annotations

import inspect
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bamas_lite import (
    LLM,
    TOPOLOGIES,
    Pool,
    Reply,
    SimulatedLLM,
    Usage,
    estimates,
    load_pool,
    load_tasks,
    run_task_sync,
)
from bamas_lite.estimates import estimate_cost
from bamas_lite.prompts import CRITIC_SYSTEM, MAX_PLAN_STEPS, PLANNER_SYSTEM, section
from bamas_lite.recordings import CachedChat
from bamas_lite.topologies import run_task
from bamas_lite.trajectories import generate_trajectories, paper_pool, team_of
from bamas_lite.wire import bound_tokens
from bamas_lite.worst_case import QUOTED_BYTES, REPLANS, ROUNDS

TASKS = load_tasks("word_problems", "train", 12)
PAPER = load_pool("paper")
BUDGETS = (500, 1250, 2000)


def llm(name, price_in=0.1, price_out=0.4, **fields):
    return LLM(**{"name": name, "tier": 1, "price_in": price_in, "price_out": price_out, "max_tokens": 384} | fields)


class Greedy:
    """Bills what it may, and makes a topology go on as long as it can; `choose` decides otherwise where it is given.

    Its replies are as long as `bytes_per_token` says, so that prompts that quote them are long too.
    """

    name = "greedy"

    def __init__(self, bytes_per_token=1, choose=lambda what, options: options[0]):
        self.calls, self.bytes_per_token, self.choose = 0, bytes_per_token, choose

    def bound_prompt_tokens(self, llm, messages):
        return bound_tokens(llm, messages, strict=True)

    async def complete(self, llm, messages, *, max_tokens, temperature=0.0, role="executor", task=None):
        self.calls += 1
        if messages[0]["content"].endswith(PLANNER_SYSTEM):
            agents = section(messages[-1]["content"], "agents").splitlines()
            n = self.choose("steps", [MAX_PLAN_STEPS, 1, 3, 0])
            text = json.dumps({"steps": [{"agent": agents[i % len(agents)], "instruction": "i" * 2000}
                                         for i in range(n)]})
        elif messages[0]["content"].endswith(CRITIC_SYSTEM):
            text = "CONCLUSION: " + self.choose("verdict", ["REVISE", "ACCEPT"])
        else:
            text = "#### 1"
        text = "a" * max(0, self.bytes_per_token * max_tokens - len(text) - 1) + "\n" + text
        return Reply(text, Usage(self.bound_prompt_tokens(llm, messages), max_tokens), 1.0)

    complete.instant = True


def played(tasks, budgets, topologies, pool, backend, **options):
    """Cost (u$) and calls of all episodes that can be played, and how many cannot."""
    cost = calls = infeasible = 0
    for task in tasks:
        for budget in budgets:
            for topology in topologies:
                team = team_of(pool, float(budget))
                if isinstance(team, Exception):
                    infeasible += 1
                    continue
                episode = run_task_sync(task, team, topology, backend, budget, **options)
                cost, calls = cost + episode.cost, calls + episode.n_calls
    return cost, calls, infeasible


def test_the_rules_are_those_that_episodes_are_played_by():
    defaults = inspect.signature(run_task).parameters
    assert (defaults["rounds"].default, defaults["replans"].default) == (ROUNDS, REPLANS)


@pytest.mark.parametrize("casting", ["paper", "code"])
@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("max_copies", [1, 3])
def test_a_backend_that_never_ends_reaches_the_most_calls(topology, casting, max_copies):
    pool = Pool(name="p", llms=[llm("a"), llm("b", 0.2)])
    budget = 10**9
    estimate = estimate_cost(TASKS[:2], [budget], [topology], pool, casting=casting)
    backend = Greedy()
    cost, calls, _ = played(TASKS[:2], [budget], [topology], pool, backend, casting=casting)
    assert calls == backend.calls == estimate.worst_calls
    assert 0 < cost <= estimate.worst_usd * 1e6 * (1 + 1e-12)
    pool = Pool(name="p", llms=[llm("a", 1, 1e-6)])   # prompts alone cost something, and they quote long replies
    cost, _, _ = played(TASKS[:2], [budget], [topology], pool, Greedy(QUOTED_BYTES), casting=casting)
    assert cost <= estimate_cost(TASKS[:2], [budget], [topology], pool, casting=casting).worst_usd * 1e6 * (1 + 1e-12)


def test_two_agents_reach_it_by_bad_plans():
    """Without a critic the most calls are: every plan bad but the last, then all its steps."""
    pool = Pool(name="p", llms=[llm("a")])
    plans = iter([0, 0, MAX_PLAN_STEPS])
    team_budget = 2.1 * (500 * 0.1 + 384 * 0.4)   # two agents, not three
    free = Pool(name="p", llms=[llm("a", 0.1, 0.4)])
    estimate = estimate_cost(TASKS[:1], [team_budget], ["planner_driven"], free)
    team = team_of(pool, team_budget)
    assert len(team.slots) == 2
    backend = Greedy(choose=lambda what, options: next(plans))
    episode = run_task_sync(TASKS[0], team, "planner_driven", backend, 10**9)
    assert episode.n_calls == estimate.worst_calls == 8


@st.composite
def cases(draw):
    prices = st.sampled_from(["0", "0.01", "0.1", "1.1", "3"])
    llms = [llm(f"m{i}", draw(prices), draw(prices.filter(lambda p: p != "0")), tier=i + 1,
                max_tokens=draw(st.sampled_from([40, 200, 384, 2000])), few_shot=draw(st.booleans()),
                api=draw(st.sampled_from(["chat", "completion"]))) for i in range(draw(st.integers(1, 3)))]
    return Pool(name="p", llms=llms), draw(st.lists(st.sampled_from([1, 60, 300, 900, 5000, 10**5, 10**7]), min_size=1,
                                                    max_size=3, unique=True))


@settings(max_examples=30, deadline=None)
@given(cases(), st.sampled_from(["reserve", "paper"]), st.sampled_from(["paper", "code"]), st.data())
def test_the_worst_case_is_never_passed(case, enforcement, casting, data):
    pool, budgets = case
    estimate = estimate_cost(TASKS[:2], budgets, TOPOLOGIES, pool, enforcement=enforcement, casting=casting, sample=1)
    options = {"enforcement": enforcement, "casting": casting}
    simulated = SimulatedLLM(data.draw(st.integers(0, 9)))
    wild = Greedy(data.draw(st.sampled_from([0, 4, QUOTED_BYTES])),
                  lambda what, choices: data.draw(st.sampled_from(choices)))
    for backend in (Greedy(), Greedy(QUOTED_BYTES), wild, simulated):
        cost, calls, infeasible = played(TASKS[:2], budgets, TOPOLOGIES, pool, backend, **options)
        assert cost <= estimate.worst_usd * 1e6 * (1 + 1e-12)
        assert calls <= estimate.worst_calls
        assert infeasible == estimate.n_infeasible


def test_star_is_bounded_by_its_calls_where_the_budget_is_larger():
    """Its prompts are known, so a backend that bills all it may gets there to the cent."""
    pool = Pool(name="p", llms=[llm("a")])
    estimate = estimate_cost(TASKS, [10_000], ["star"], pool)
    cost, _, _ = played(TASKS, [10_000], ["star"], pool, Greedy())
    assert estimate.worst_usd * 1e6 == pytest.approx(cost, rel=1e-12) and cost < 0.2 * 10_000 * len(TASKS)


def test_with_reserve_the_worst_case_is_the_budgets():
    estimate = estimate_cost(TASKS, BUDGETS, ["linear", "feedback"], PAPER, seeds=(0, 1))
    assert estimate.worst_usd == pytest.approx(2 * 2 * len(TASKS) * sum(BUDGETS) / 1e6, rel=1e-12)
    over = estimate_cost(TASKS, BUDGETS, ["linear", "feedback"], PAPER, enforcement="paper")
    assert over.worst_usd > estimate.worst_usd / 2


def test_the_expectation_is_that_of_the_full_simulation():
    tasks = load_tasks("word_problems", "train", 90)
    log = generate_trajectories(tasks, BUDGETS, pool=PAPER, backend=SimulatedLLM, progress=False)
    estimate = estimate_cost(tasks, BUDGETS, TOPOLOGIES, PAPER, sample=90)
    few = estimate_cost(tasks, BUDGETS, TOPOLOGIES, PAPER)
    # Prompts that quote replies are longer than in the plain simulation: replies are as long as they are billed.
    assert log.cost.sum() < estimate.expected_usd * 1e6 < 1.15 * log.cost.sum()
    assert estimate.expected_calls == pytest.approx(log.n_calls.sum(), rel=0.03)
    assert (few.n_sampled, few.expected_usd) == (50, pytest.approx(estimate.expected_usd, rel=0.05))
    assert estimate.paid_usd < estimate.expected_usd < estimate.worst_usd
    assert estimate.paid_calls == sum(calls for calls, _ in estimate.paid_by_llm.values())
    assert estimate.paid_usd == pytest.approx(sum(usd for _, usd in estimate.paid_by_llm.values()))


def test_what_is_paid_is_what_a_recording_asks(tmp_path):
    """Star quotes no replies, so that the plain simulation makes the same calls; budgets leave room for all."""
    budgets, topologies = (5_000, 6_000), ["star"]
    recording = CachedChat(SimulatedLLM(), tmp_path / "calls.sqlite")
    log = generate_trajectories(TASKS, budgets, pool=PAPER, backend=recording, topologies=topologies, progress=False)
    estimate = estimate_cost(TASKS, budgets, topologies, PAPER)
    assert estimate.paid_calls == recording.paid_calls() < log.n_calls.sum() == estimate.expected_calls
    assert estimate.paid_usd == pytest.approx(recording.spent_usd())
    assert estimate.expected_usd * 1e6 == pytest.approx(log.cost.sum())
    twice = estimate_cost(TASKS, budgets, topologies, PAPER, seeds=(0, 1))
    assert twice.paid_calls == 2 * estimate.paid_calls   # a recording keeps seeds apart


def test_few_shot_examples_are_paid_for():
    plain, shown = (Pool(name="p", llms=[llm("a", few_shot=few_shot)]) for few_shot in (False, True))
    a, b = (estimate_cost(TASKS, [900], ["star"], pool) for pool in (plain, shown))
    assert b.expected_usd > 1.05 * a.expected_usd and b.expected_calls <= a.expected_calls


def test_one_topology_a_task_is_between_the_cheapest_and_the_dearest():
    single = [estimate_cost(TASKS, [b], [t], PAPER) for b in BUDGETS for t in TOPOLOGIES]
    chosen = estimate_cost(TASKS, BUDGETS, TOPOLOGIES, PAPER, one_topology=True)
    assert chosen.n_episodes == len(TASKS) * len(BUDGETS)
    assert chosen.expected_usd == pytest.approx(sum(e.expected_usd for e in single) / len(TOPOLOGIES))
    by_budget = [single[i:i + len(TOPOLOGIES)] for i in range(0, len(single), len(TOPOLOGIES))]
    assert chosen.worst_usd >= sum(max(e.worst_usd for e in part) for part in by_budget) * (1 - 1e-12)
    assert chosen.worst_calls >= sum(max(e.worst_calls for e in part) for part in by_budget)
    assert chosen.worst_usd <= len(TASKS) * sum(BUDGETS) / 1e6
    assert chosen.paid_usd <= chosen.expected_usd


def test_budgets_without_a_team_are_counted_and_cost_nothing():
    estimate = estimate_cost(TASKS, [1, 2, 500], TOPOLOGIES, PAPER, seeds=(0, 1))
    assert (estimate.n_episodes, estimate.n_infeasible, estimate.infeasible_budgets) == (
        2 * 12 * 3 * 4, 2 * 12 * 2 * 4, (1.0, 2.0))
    alone = estimate_cost(TASKS, [500], TOPOLOGIES, PAPER, seeds=(0, 1))
    assert (estimate.worst_usd, estimate.expected_usd, estimate.paid_calls) == (
        alone.worst_usd, alone.expected_usd, alone.paid_calls)
    nothing = estimate_cost(TASKS, [1], TOPOLOGIES, PAPER, one_topology=True)
    assert (nothing.worst_usd, nothing.worst_calls, nothing.paid_usd, nothing.n_infeasible) == (0, 0, 0, 12)
    assert "no team for 1, 2 u$" in str(estimate) and "no team for 1 u$" in str(nothing)


def test_seconds_need_latencies_and_keep_to_limits():
    assert estimate_cost(TASKS, [500], ["star"], PAPER).seconds is None
    fast = {"first_token_s": 1.0, "tokens_per_s": 50.0}
    pool = Pool(name="p", llms=[llm("a", **fast)])
    budget = 5_000
    slow, quick = (estimate_cost(TASKS, [budget], ["star"], pool, concurrency=n).seconds for n in (1, 4))
    log = generate_trajectories(TASKS, [budget], pool=pool, backend=SimulatedLLM, topologies=["star"], progress=False)
    assert slow == pytest.approx(log.latency_s.sum(), rel=1e-6) and quick == pytest.approx(slow / 4)
    limited = Pool(name="p", llms=[llm("a", **fast, requests_per_minute=6)])
    estimate = estimate_cost(TASKS, [budget], ["star"], limited, concurrency=100)
    assert estimate.seconds == pytest.approx(10 * estimate.paid_calls)
    assert "at concurrency 100" in str(estimate)


def test_the_table_shows_the_numbers():
    estimate = estimate_cost(TASKS, BUDGETS, TOPOLOGIES, PAPER)
    lines = str(estimate).splitlines()
    assert lines[0] == "144 episodes of 12 tasks" and max(map(len, lines)) <= 100
    shown = {line.split("  ")[0].strip(): line for line in lines[2:]}
    for name, calls, usd in (("worst case", estimate.worst_calls, estimate.worst_usd),
                             ("expected", estimate.expected_calls, estimate.expected_usd),
                             ("paid", estimate.paid_calls, estimate.paid_usd)):
        numbers = [float(n.replace(",", "")) for n in re.findall(r"(?<=\s)[\d,]+(?:\.\d+)?(?=\s)", shown[name])]
        assert numbers[0] == pytest.approx(calls) and usd <= numbers[1] <= usd + 1e-4   # rounded up
    assert all("simulated" in shown[name] for name in ("expected", "paid")) and "retries" in lines[-1]
    assert any(line.startswith("  DeepSeek-V3 ") for line in lines)


def test_the_sample_is_drawn_once_and_for_all():
    a, b = (estimate_cost(TASKS, [500], TOPOLOGIES, PAPER, sample=5) for _ in range(2))
    assert a == b and a.n_sampled == 5
    assert a != estimate_cost(TASKS, [500], TOPOLOGIES, PAPER, sample=6)


def test_other_domains_and_parameters():
    for name, domain in (("algebra_calculus", "mathematics"), ("python_functions", "code")):
        tasks = load_tasks(name, "train", 3)
        short, long = (estimate_cost(tasks, [2000], TOPOLOGIES, paper_pool(domain), parameters=parameters)
                       for parameters in ("assumed", "fitted"))
        assert 0 < short.expected_usd <= short.worst_usd == long.worst_usd
        assert short.expected_usd != long.expected_usd


@pytest.mark.parametrize(("change", "words"), [
    ({"tasks": []}, "tasks is empty"), ({"budgets": [-1]}, "budget = -1"), ({"topologies": ["ring"]}, "unknown 'ring'"),
    ({"pool": "paper"}, "pool = 'paper': expected a Pool"), ({"sample": 0}, "sample = 0: expected a whole number"),
    ({"concurrency": 0}, "concurrency = 0"), ({"enforcement": "strict"}, "enforcement = 'strict': expected 'reserve'"),
    ({"casting": None}, "casting = None: expected 'paper' or 'code'"), ({"seeds": []}, "seeds is empty"),
    ({"one_topology": 1}, "one_topology = 1: expected True or False"),
    ({"one_topology": "no"}, "one_topology = 'no': expected True or False")])
def test_wrong_arguments(change, words):
    given_ = {"tasks": TASKS, "budgets": BUDGETS, "topologies": TOPOLOGIES, "pool": PAPER} | change
    with pytest.raises(ValueError) as caught:
        estimate_cost(**given_)
    assert words in str(caught.value)


def test_an_episode_that_cannot_be_played_is_no_estimate(monkeypatch):
    """It would make the estimate too small, without a word."""
    def body(llm, messages, *rest):
        raise TypeError("no such style")

    monkeypatch.setattr(estimates, "request_body", body)
    with pytest.raises(ValueError, match=r"budget 500 u\$, topology 'star' cannot be estimated: .*no such style"):
        estimate_cost(TASKS[:2], [500], ["star"], PAPER)
