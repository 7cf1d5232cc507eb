"""Profiles: quality, cost and latency against scripted backends and closed forms."""

import asyncio
import dataclasses
import pickle
from statistics import fmean

import pytest

from bamas_lite.agentbalance.profiles import Profile, ProfileError, profile_llms, profile_llms_sync
from bamas_lite.grading import grade
from bamas_lite.llm import CallError, Reply, RunStopped, Usage
from bamas_lite.pool import LLM, Pool, load_pool
from bamas_lite.prompts import executor_messages
from bamas_lite.simulation import SimulatedLLM
from bamas_lite.spending import PAID_CONCURRENCY
from bamas_lite.tasks import Task, load_tasks

CHEAP = LLM(name="Cheap", price_in=0.1, price_out=0.4, max_tokens=384, tier=2, first_token_s=0.5, tokens_per_s=100)
DEAR = LLM(name="Dear", price_in=2.0, price_out=8.0, max_tokens=384, tier=1, first_token_s=1.0, tokens_per_s=50)
POOL = Pool(name="two", llms=(CHEAP, DEAR))
SUMS = [Task(f"sum/{i}", "arithmetic", 1, f"How many are {i} and 4?", str(i + 4)) for i in range(4)]
POWERS = [Task(f"power/{i}", "mathematics", 1, f"Compute ${i}^2$.", str(i * i)) for i in range(2)]
TASKS = [SUMS[0], POWERS[0], *SUMS[1:], POWERS[1]]


class Scripted:
    """`reply(llm, task)` says what comes: a Reply, an exception, or a text with fixed usage and latency."""

    name = "scripted"

    def __init__(self, reply):
        self.reply, self.asked = reply, []

    def bound_prompt_tokens(self, llm, messages):
        return 500

    async def complete(self, llm, messages, *, max_tokens, temperature=0.0, role="executor", task=None):
        self.asked.append((llm.name, task.task_id, messages, max_tokens, temperature, role))
        reply = self.reply(llm, task)
        if isinstance(reply, Exception):
            raise reply
        return reply if isinstance(reply, Reply) else Reply(reply, Usage(60, 20), 2.0)

    complete.instant = True


class Waiting(Scripted):
    """The same, but it waits for other calls."""

    in_flight = most_in_flight = 0

    async def complete(self, llm, messages, **options):
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await asyncio.sleep(0.001)
            return await super().complete(llm, messages, **options)
        finally:
            self.in_flight -= 1


def right(llm, task):
    return f"#### {task.reference}" if task.domain == "arithmetic" else f"\\boxed{{{task.reference}}}"


def known(llm, task):
    """Cheap knows two of four sums and no power; lengths and latencies differ by LLM and task."""
    number = int(task.task_id.split("/")[1])
    knows = llm == DEAR or (task.domain == "arithmetic" and number < 2)
    text = right(llm, task) if knows else "#### 999" if task.domain == "arithmetic" else "\\boxed{999}"
    usage = Usage(50 + number, 100 + 10 * number) if llm == CHEAP else Usage(60 + number, 200)
    return Reply(text, usage, 1.5 + number if llm == CHEAP else 4.0)


def test_closed_form():
    backend = Scripted(known)
    cheap, dear = profile_llms_sync(POOL, TASKS, backend, quantile=None)
    assert (cheap.llm, dear.llm) == (CHEAP, DEAR)
    assert cheap.quality == {"arithmetic": 0.5, "mathematics": 0.0}
    assert dear.quality == {"arithmetic": 1.0, "mathematics": 1.0}
    assert (cheap.n_tasks, cheap.n_failed, cheap.source) == (6, 0, "scripted")
    # means over LLMs of means over tasks
    for profile in (cheap, dear):
        assert profile.t_in == pytest.approx({"arithmetic": (51.5 + 61.5) / 2, "mathematics": (50.5 + 60.5) / 2})
        assert profile.t_out == pytest.approx({"arithmetic": (115 + 200) / 2, "mathematics": (105 + 200) / 2})
    spent = sum(0.1 * (50 + i) + 0.4 * (100 + 10 * i) for i in (0, 1, 2, 3, 0, 1))
    sheet = 4 * (0.1 * 56.5 + 0.4 * 157.5) + 2 * (0.1 * 55.5 + 0.4 * 152.5)
    assert cheap.cost_factor == pytest.approx(spent / sheet)
    assert cheap.cost("arithmetic") == pytest.approx(spent / sheet * (0.1 * 56.5 + 0.4 * 157.5))
    took = sum(1.5 + i for i in (0, 1, 2, 3, 0, 1))
    sheet = 4 * (0.5 + 157.5 / 100) + 2 * (0.5 + 152.5 / 100)
    assert cheap.latency_factor == pytest.approx(took / sheet)
    assert cheap.latency_s("mathematics") == pytest.approx(took / sheet * (0.5 + 152.5 / 100))
    assert cheap.message_cost("arithmetic") == pytest.approx(cheap.cost_factor * 0.1 * cheap.handed["arithmetic"])


@pytest.mark.parametrize("quantile, arithmetic", [(0.0, 100), (0.5, 165), (1.0, 200)])
def test_planned_lengths_are_a_quantile_of_all_calls(quantile, arithmetic):
    """In arithmetic the cheap LLM writes 100, 110, 120, 130 tokens, the dear one 200 each time."""
    mean = profile_llms_sync(POOL, TASKS, Scripted(known), quantile=None)
    for profile, other in zip(profile_llms_sync(POOL, TASKS, Scripted(known), quantile=quantile), mean, strict=True):
        assert profile.t_out["arithmetic"] == pytest.approx(arithmetic)
        assert (profile.cost_factor, profile.latency_factor) == (other.cost_factor, other.latency_factor)


@pytest.mark.parametrize("quantile", [-0.1, 1.1, "high", float("nan"), True])
def test_a_quantile_is_a_share(quantile):
    with pytest.raises(ProfileError, match="quantile = .*: expected a number from 0 to 1, or None for the mean"):
        profile_llms_sync(POOL, TASKS, Scripted(known), quantile=quantile)


def test_each_task_is_asked_once_alone_as_a_plain_executor():
    backend = Scripted(known)
    profile_llms_sync(POOL, TASKS, backend)
    assert sorted((llm, task) for llm, task, *_ in backend.asked) == sorted(
        (llm.name, task.task_id) for llm in POOL.llms for task in TASKS)
    by_id = {task.task_id: task for task in TASKS}
    for _, task_id, messages, max_tokens, temperature, role in backend.asked:
        assert messages == executor_messages(by_id[task_id])
        assert (max_tokens, temperature, role) == (384, 0.0, "executor")   # no budget shortens a call


def test_the_most_expensive_llm_is_not_shortened_either():
    dearest = LLM(name="Dearest", price_in=1e6, price_out=1e6, max_tokens=384, tier=1, first_token_s=1, tokens_per_s=50)
    backend = Scripted(right)
    backend.bound_prompt_tokens = lambda llm, messages: 10**8
    assert profile_llms_sync(Pool(name="one", llms=(dearest,)), SUMS, backend)[0].quality == {"arithmetic": 1.0}
    assert {asked[3] for asked in backend.asked} == {384}


@pytest.fixture(scope="module")
def simulated():
    tasks = [task for name in ("word_problems", "algebra_calculus", "python_functions")
             for task in load_tasks(name, "train")[:6]]
    pool = load_pool("fourteen")
    pool = Pool(name="four", llms=tuple(m.model_copy(update={"tier": 1}) for m in pool.llms[::4]))
    return pool, tasks, profile_llms_sync(pool, tasks, SimulatedLLM(seed=3), quantile=None)


def test_simulated_quality_cost_and_latency_are_those_of_the_calls_themselves(simulated):
    pool, tasks, profiles = simulated
    backend = SimulatedLLM(seed=3)
    for llm, profile in zip(pool.llms, profiles, strict=True):
        replies = {task: asyncio.run(backend.complete(llm, executor_messages(task), max_tokens=384, task=task))
                   for task in tasks}
        for domain in profile.domains:
            own = [task for task in tasks if task.domain == domain]
            assert profile.quality[domain] == fmean(grade(task, replies[task].text).correct for task in own)
        cost = sum(llm.price_in * r.usage.prompt_tokens + llm.price_out * r.usage.completion_tokens
                   for r in replies.values())
        # calibrated: what is planned for the calibration set is what it cost and took
        assert sum(profile.cost(task.domain) for task in tasks) == pytest.approx(cost)
        assert sum(profile.latency_s(task.domain) for task in tasks) == pytest.approx(
            sum(r.latency_s for r in replies.values()))
        assert profile.source == "simulated"


def test_means_are_over_the_domains_and_tokens_are_common(simulated):
    _, _, profiles = simulated
    for p in profiles:
        assert p.domains == ("arithmetic", "mathematics", "code")
        assert p.mean_quality == pytest.approx(sum(p.quality.values()) / 3)
        assert p.mean_cost == pytest.approx(sum(p.cost(d) for d in p.domains) / 3)
        assert p.mean_latency_s == pytest.approx(sum(p.latency_s(d) for d in p.domains) / 3)
        assert (p.t_in, p.t_out, p.handed) == (profiles[0].t_in, profiles[0].t_out, profiles[0].handed)


def test_handed_tokens_are_what_a_text_adds_to_a_prompt(simulated):
    pool, tasks, profiles = simulated
    backend = SimulatedLLM(seed=3)
    for domain, planned in profiles[0].handed.items():
        added = []
        for task in (task for task in tasks if task.domain == domain):
            for llm in pool.llms:
                text = asyncio.run(backend.complete(llm, executor_messages(task), max_tokens=llm.max_tokens,
                                                    task=task)).text
                plain, handed = (executor_messages(task), executor_messages(task, earlier=text))
                # the sentence about an earlier answer is no part of the text
                sentence = "\nCheck the earlier answer, keep it if it is right, and correct it if it is not."
                handed[1]["content"] = handed[1]["content"].replace(sentence, "")
                added.append(backend.bound_prompt_tokens(llm, handed) - backend.bound_prompt_tokens(llm, plain))
        assert planned == pytest.approx(fmean(added), rel=0.15)


def test_failed_calls_are_left_out_and_counted():
    def failing(llm, task):
        return CallError("refused") if llm == CHEAP and task.task_id in ("sum/0", "power/1") else known(llm, task)

    cheap, dear = profile_llms_sync(POOL, TASKS, Scripted(failing))
    assert (cheap.n_tasks, cheap.n_failed) == (4, 2) and (dear.n_tasks, dear.n_failed) == (6, 0)
    assert cheap.quality == {"arithmetic": pytest.approx(1 / 3), "mathematics": 0.0}
    assert cheap.t_in["mathematics"] == pytest.approx((50 + 60.5) / 2)


def test_an_llm_without_a_graded_task_in_a_domain_is_named():
    def failing(llm, task):
        return CallError("no such model") if llm == DEAR and task.domain == "mathematics" else known(llm, task)

    with pytest.raises(ProfileError, match="LLM 'Dear': no graded task in mathematics: all calls failed; the first: .*"
                                           "no such model"):
        profile_llms_sync(POOL, TASKS, Scripted(failing))


def test_calls_without_token_counts_are_graded_but_do_not_calibrate():
    def silent(llm, task):
        reply = known(llm, task)
        return dataclasses.replace(reply, usage=None) if llm == CHEAP and task.task_id == "sum/3" else reply

    cheap, _ = profile_llms_sync(POOL, TASKS, Scripted(silent), quantile=None)
    assert cheap.n_tasks == 6 and cheap.quality["arithmetic"] == 0.5
    assert cheap.t_out["arithmetic"] == pytest.approx((110 + 200) / 2)
    spent = sum(0.1 * (50 + i) + 0.4 * (100 + 10 * i) for i in (0, 1, 2, 0, 1))
    assert 3 * cheap.cost("arithmetic") + 2 * cheap.cost("mathematics") == pytest.approx(spent)

    with pytest.raises(ProfileError, match="LLM 'Cheap': no call in arithmetic came with token counts"):
        profile_llms_sync(POOL, SUMS, Scripted(lambda llm, task: Reply("#### 1", None, 1.0)))


def test_a_backend_without_latencies_cannot_calibrate_them():
    with pytest.raises(ProfileError, match="LLM 'Cheap': latency of its calls = 0, by its sheet .*: expected both abo"):
        profile_llms_sync(POOL, SUMS, Scripted(lambda llm, task: Reply("#### 1", Usage(50, 20), 0.0)))


@pytest.mark.parametrize("field", ["first_token_s", "tokens_per_s"])
def test_a_missing_latency_field_is_named_before_anything_is_asked(field):
    backend, slow = Scripted(known), DEAR.model_copy(update={field: None})
    with pytest.raises(ProfileError, match=f"LLM 'Dear': {field} is missing: a profile needs it"):
        profile_llms_sync(Pool(name="two", llms=(CHEAP, slow)), TASKS, backend)
    assert not backend.asked
    with pytest.raises(ProfileError, match=f"LLM 'Dear': {field} is missing"):
        Profile(slow, {"code": 1.0}, {"code": 9.0}, {"code": 9.0}, {"code": 9.0}, 1.0, 1.0, 1, "mine")


BAD = Task("bad/1", "poetry", 1, "Rhyme.", "no")


@pytest.mark.parametrize("pool, tasks, backend, message", [
    (POOL.llms, TASKS, Scripted(known), "pool = .*: expected a Pool"),
    (POOL, [], Scripted(known), r"tasks = \[\]: expected at least one Task"),
    (POOL, "sums", Scripted(known), "tasks = 'sums': expected at least one Task"),
    (POOL, [*TASKS, SUMS[0]], Scripted(known), "tasks holds 'sum/0' more than once"),
    (POOL, ["a task"], Scripted(known), "task = 'a task': expected a Task"),
    (POOL, [BAD], Scripted(known), "task 'bad/1': domain = 'poetry'"),
    (POOL, TASKS, SimulatedLLM, "backend = .*: expected an object with name, complete"),
    (POOL, TASKS, None, "backend = None: expected an object"),
])
def test_wrong_arguments(pool, tasks, backend, message):
    with pytest.raises(ProfileError, match=message):
        profile_llms_sync(pool, tasks, backend)
    with pytest.raises(ProfileError, match=message):
        asyncio.run(profile_llms(pool, tasks, backend))


def test_a_backend_that_waits_gives_the_same_profiles_many_calls_at_a_time():
    many = [Task(f"sum/{i}", "arithmetic", 1, f"How many are {i} and 4?", str(i + 4)) for i in range(20)]
    waiting = Waiting(known)
    expected = [dataclasses.replace(p) for p in profile_llms_sync(POOL, many, Scripted(known))]
    assert profile_llms_sync(POOL, (task for task in many), waiting) == expected
    assert asyncio.run(profile_llms(POOL, many, Waiting(known))) == expected
    assert 1 < waiting.most_in_flight <= PAID_CONCURRENCY


def test_a_run_that_is_stopped_starts_no_more_calls_and_waits_for_those_in_flight():
    many = [Task(f"sum/{i}", "arithmetic", 1, f"How many are {i} and 4?", str(i + 4)) for i in range(200)]
    backend = Waiting(lambda llm, task: RunStopped("no key") if task.task_id == "sum/3" else known(llm, task))
    with pytest.raises(RunStopped, match="no key"):
        profile_llms_sync(POOL, many, backend)
    assert len(backend.asked) < 2 * PAID_CONCURRENCY and backend.in_flight == 0
    instant = Scripted(backend.reply)
    with pytest.raises(RunStopped, match="no key"):
        profile_llms_sync(POOL, many, instant)
    assert len(instant.asked) == 4


def test_where_an_event_loop_runs():
    async def notebook():
        assert profile_llms_sync(POOL, SUMS, Scripted(known))[1].quality == {"arithmetic": 1.0}
        with pytest.raises(RuntimeError, match=r"use `await profile_llms\(...\)` here"):
            profile_llms_sync(POOL, SUMS, Waiting(known))
        return await profile_llms(POOL, SUMS, Waiting(known))

    assert asyncio.run(notebook())[0].quality == {"arithmetic": 0.5}


GOOD = {"llm": CHEAP, "quality": {"code": 0.5}, "t_in": {"code": 100.0}, "t_out": {"code": 200.0},
        "handed": {"code": 50.0}, "cost_factor": 1.0, "latency_factor": 2.0, "n_tasks": 4, "source": "mine"}


def test_a_profile_by_hand():
    profile = Profile(**GOOD)
    assert profile.cost("code") == pytest.approx(0.1 * 100 + 0.4 * 200)
    assert profile.latency_s("code") == pytest.approx(2 * (0.5 + 200 / 100))
    assert profile.message_cost("code") == pytest.approx(0.1 * 50)
    assert pickle.loads(pickle.dumps(profile)) == profile
    for plan in (profile.cost, profile.latency_s, profile.message_cost):
        with pytest.raises(ProfileError, match="domain = 'arithmetic': Cheap was profiled on code"):
            plan("arithmetic")


@pytest.mark.parametrize("change, message", [
    ({"llm": "Cheap"}, "llm = 'Cheap': expected an LLM"),
    ({"quality": {}}, "profile of Cheap: quality = {}: expected domain -> number"),
    ({"quality": {"poetry": 0.5}}, "quality = .*: expected domain -> number for one or more of arithmetic"),
    ({"quality": {"code": 1.2}}, r"quality\['code'\] = 1.2: expected a number from 0 to 1"),
    ({"quality": {"code": float("nan")}}, r"quality\['code'\] = nan: expected a number"),
    ({"t_in": {"arithmetic": 1.0}}, "t_in = .*: expected the domains of quality, code"),
    ({"t_out": {"code": -1.0}}, r"t_out\['code'\] = -1.0: expected a number from 0 to 100,000,000"),
    ({"handed": {"code": "many"}}, r"handed\['code'\] = 'many': expected a number"),
    ({"cost_factor": 0.0}, "cost_factor = 0.0: expected a finite number above 0"),
    ({"latency_factor": float("inf")}, "latency_factor = inf: expected a finite number above 0"),
    ({"t_in": {"code": 0.0}, "t_out": {"code": 0.0}}, "planned cost in code = 0: expected a finite number above 0"),
    ({"cost_factor": 10**400}, r"cost_factor = 1000.*\.\.\.: expected a finite number above 0"),
    ({"cost_factor": 1e308}, r"planned cost in code = inf: expected .* at most 2e\+14"),
    ({"latency_factor": 1e7}, r"planned latency in code = 2.5e\+07: expected a finite number above 0, at most 1e\+06"),
    ({"cost_factor": 1e11, "handed": {"code": 1e8}}, r"planned cost of a text in code = 1e\+18: expected at most"),
    ({"n_tasks": -1}, "profile of Cheap: n_tasks = -1: expected a whole number"),
    ({"n_failed": 0.5}, "n_failed = 0.5: expected a whole number"),
    ({"source": None}, "source = None: expected the name"),
])
def test_a_wrong_profile_names_the_field(change, message):
    with pytest.raises(ProfileError, match=message):
        Profile(**{**GOOD, **change})
