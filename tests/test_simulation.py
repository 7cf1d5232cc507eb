"""The simulated LLM against closed forms of its stated model."""

import math
import os
import pickle
import random
import subprocess
import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from statistics import NormalDist, fmean, stdev

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from bamas_lite.grading import extract_answer, grade
from bamas_lite.llm import bound_prompt_tokens
from bamas_lite.pool import LLM, load_pool
from bamas_lite.prompts import (
    PlanError,
    accepts,
    approach_of,
    critic_messages,
    executor_messages,
    parse_plan,
    planner_messages,
    step_messages,
)
from bamas_lite.simulation import SimulatedLLM, _facts_of, count_tokens
from bamas_lite.simulation_parameters import SYSTEMS, SimulationError, load_parameters, numbers
from bamas_lite.tasks import DOMAINS, Task, load_tasks
from bamas_lite.wrong_answers import as_reply, wrong_answers

STRONG, WEAK = load_pool("paper").llms
PHI = NormalDist().cdf
PROGRAM = "import math\n\n\ndef area(r):\n    return math.pi * r * r"
N = 2400
NUMBERS = [Task(f"t/{i}", "arithmetic", 1 + i % 8, f"Ann has {i} nuts and finds 3. How many?", str(i + 3),
                wrong=(str(i + 4), str(i + 30), str(2 * i + 5), str(-i - 1))) for i in range(N)]
ONE = {
    "arithmetic": NUMBERS[7],
    "mathematics": Task("m/1", "mathematics", 3, "What is half of one?", "\\frac{1}{2}", wrong=("\\frac{1}{3}", "2")),
    "code": Task("c/1", "code", 2, "Write area(r), the area of a circle, e.g. area(1).", PROGRAM,
                 tests=("assert round(area(2), 2) == 12.57",), entry_point="area",
                 wrong=(PROGRAM.replace("r * r", "r + r + 1"), PROGRAM.replace("r * r", "2 * r * r"))),
}


def ask(sim, llm, messages, task, **options):
    """One call, without an event loop: the simulator never waits."""
    call = sim.complete(llm, messages, **{"max_tokens": 10_000, "task": task, **options})
    try:
        call.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("the simulator waited")


def near(share, expected, n=N, slack=0.0):
    """Within four standard errors (chance of a false alarm 6e-5 each; draws are fixed, so it never flickers)."""
    return abs(share - expected) <= 4 * math.sqrt(max(expected * (1 - expected), 1e-4) / n) + slack


def single_right(p, llm, task, shift=0.0):
    skill = p.skill.value[task.domain][llm.name]
    return PHI(skill + shift - p.level_slope.value[task.domain] * (task.level - 1))


# ---- the model: accuracy, correlation, lengths ----

@pytest.mark.parametrize("llm", [STRONG, WEAK], ids=["strong", "weak"])
def test_single_calls_are_right_as_often_as_the_closed_form_says(llm):
    sim = SimulatedLLM(3)
    right = [grade(t, ask(sim, llm, executor_messages(t), t).text).correct for t in NUMBERS]
    for level in (1, 4, 8):
        mine = [r for r, t in zip(right, NUMBERS, strict=True) if t.level == level]
        assert near(fmean(mine), single_right(sim.parameters, llm, replace(NUMBERS[0], level=level)), len(mine))
    planned = [grade(t, ask(sim, llm, executor_messages(t, instruction="Do it."), t).text).correct for t in NUMBERS]
    shift = sim.parameters.step_shift.value.arithmetic
    assert near(fmean(planned), fmean(single_right(sim.parameters, llm, t, shift) for t in NUMBERS))


@pytest.mark.parametrize("pair", ["two LLMs", "one LLM", "two seeds"])
def test_errors_correlate_as_stated(pair):
    shares = {"task_share": {"value": {"arithmetic": 0.5}}, "llm_share": {"value": {"arithmetic": 0.3}}}
    sim = SimulatedLLM(1, {"base": "assumed", **shares})
    p, tasks = sim.parameters, [replace(t, level=4) for t in NUMBERS]
    other = SimulatedLLM(2, p) if pair == "two seeds" else sim
    second_llm, correlation = (WEAK, 0.5) if pair == "two LLMs" else (STRONG, 0.8 if pair == "one LLM" else 0.5)
    approach = approach_of("arithmetic", 0)
    both = fmean(grade(t, ask(sim, STRONG, executor_messages(t), t).text).correct
                 and grade(t, ask(other, second_llm, executor_messages(t, approach=approach), t).text).correct
                 for t in tasks)
    z = [p.skill.value.arithmetic[m.name] - 3 * p.level_slope.value.arithmetic for m in (STRONG, second_llm)]
    assert near(both, multivariate_normal.cdf(z, cov=[[1, correlation], [correlation, 1]]))


def test_lengths_are_log_normal_and_cut_at_max_tokens():
    sim, p = SimulatedLLM(0), load_parameters()
    tasks = [replace(t, level=5) for t in NUMBERS]
    logs = [math.log(ask(sim, WEAK, executor_messages(t), t).usage.completion_tokens) for t in tasks]
    spread = p.tokens_spread.value.arithmetic
    mu = (math.log(p.completion_tokens.value.arithmetic[WEAK.name]) - spread**2 / 2
          + 4 * p.tokens_per_level.value.arithmetic)
    assert abs(fmean(logs) - mu) < 4 * spread / math.sqrt(N)
    assert abs(stdev(logs) - spread) < 4 * spread / math.sqrt(2 * N)
    cut = [ask(sim, WEAK, executor_messages(t), t, max_tokens=300).finish_reason == "length" for t in tasks]
    assert near(fmean(cut), 1 - PHI((math.log(300.5) - mu) / spread))
    for style, messages in (("improve", executor_messages(tasks[0], earlier="#### 1")),
                            ("critic", critic_messages(tasks[0], "#### 1"))):
        role = "critic" if style == "critic" else "executor"
        sample = [math.log(ask(SimulatedLLM(seed), WEAK, messages, tasks[0], role=role).usage.completion_tokens)
                  for seed in range(800)]
        assert abs(fmean(sample) - mu - math.log(getattr(p.tokens_style.value, style))) < 4 * spread / math.sqrt(800)


@pytest.mark.parametrize("critique", [None, "Step 2 is wrong.\nCONCLUSION: REVISE"], ids=["improve", "revise"])
def test_right_answers_are_kept_and_wrong_ones_repaired_as_stated(critique):
    sim = SimulatedLLM(4)
    p = sim.parameters
    table = (p.improve if critique is None else p.revise).value.arithmetic
    for chances, answer in ((table.keep, lambda t: t.reference), (table.repair, lambda t: t.wrong[1])):
        replies = [ask(sim, WEAK, executor_messages(t, earlier=f"So.\n#### {answer(t)}", critique=critique), t)
                   for t in NUMBERS]
        view = fmean(single_right(p, WEAK, t) for t in NUMBERS)
        share = fmean(grade(t, r.text).correct for t, r in zip(NUMBERS, replies, strict=True))
        assert near(share, view * chances.view_right + (1 - view) * chances.view_wrong)
    same = [extract_answer("arithmetic", r.text) == t.wrong[1] for t, r in zip(NUMBERS, replies, strict=True)
            if not grade(t, r.text).correct]
    stick = p.stick.value.arithmetic
    assert near(fmean(same), stick + (1 - stick) / 4, len(same), slack=0.05)


def test_an_accepting_critique_and_an_empty_earlier_answer_ask_for_no_revision():
    sim, p = SimulatedLLM(4), load_parameters()
    praised = [executor_messages(t, earlier=f"#### {t.wrong[0]}", critique="CONCLUSION: ACCEPT") for t in NUMBERS]
    accepted = [grade(t, ask(sim, WEAK, m, t).text).correct for t, m in zip(NUMBERS, praised, strict=True)]
    view, chances = fmean(single_right(p, WEAK, t) for t in NUMBERS), p.improve.value.arithmetic.repair
    assert near(fmean(accepted), view * chances.view_right + (1 - view) * chances.view_wrong)
    afresh = [grade(t, ask(sim, WEAK, executor_messages(t, earlier="I did not come to an end."), t).text).correct
              for t in NUMBERS]
    assert near(fmean(afresh), view)


@pytest.mark.parametrize("llm", [STRONG, WEAK], ids=["strong", "weak"])
def test_critics_hit_and_misfire_as_stated(llm):
    sim = SimulatedLLM(5)
    rates = sim.parameters.critic.value.arithmetic
    for chances, answer in ((rates.hit, lambda t: t.wrong[0]), (rates.false_alarm, lambda t: t.reference)):
        asked = [not accepts(ask(sim, llm, critic_messages(t, f"#### {answer(t)}"), t, role="critic").text)
                 for t in NUMBERS]
        view = fmean(single_right(sim.parameters, llm, t) for t in NUMBERS)
        assert near(fmean(asked), view * chances.view_right + (1 - view) * chances.view_wrong)
    unfinished = critic_messages(NUMBERS[0], "I did not come to an end")
    assert not any(accepts(ask(SimulatedLLM(s), llm, unfinished, NUMBERS[0], role="critic").text) for s in range(50))


def test_plans_are_valid_as_often_as_stated_and_fail_in_every_way():
    sim, agents, problems, steps = SimulatedLLM(6), ["executor 1", "executor 2"], [], []
    for t in NUMBERS:
        reply = ask(sim, WEAK, planner_messages(t, agents), t, role="planner")
        try:
            steps.append(len(parse_plan(reply.text, agents)))
        except PlanError as error:
            problems.append(str(error))
    p = sim.parameters
    assert near(len(steps) / N, p.plan_validity.value[WEAK.name])
    kinds = [sum(p.startswith(words) for p in problems) / len(problems)
             for words in ("no JSON", "not valid JSON", "expected", "step 2: agent 'the strongest expert'")]
    assert math.isclose(sum(kinds), 1)
    assert all(near(share, each, len(problems)) for share, each in zip(kinds, (0.2, 0.2, 0.4, 0.2), strict=True))
    assert near(fmean(n > 1 for n in steps), p.plan_more.value, len(steps))
    assert set(steps) == {1, 2, 3, 4, 5}


def test_wrong_answers_coincide_as_stated():
    changes = {"wrong_decay": {"value": {"arithmetic": 0.5}},
               "wrong_shared": {"value": {"arithmetic": 1.0}, "range": [0, 1]},
               "skill": {"value": {"arithmetic": {STRONG.name: -9.0, WEAK.name: -9.0}}, "range": [-9, 9]}}
    sim = SimulatedLLM(7, {"base": "assumed", **changes})
    weights = [1, 0.5, 0.25, 0.125]
    first, second = ([extract_answer("arithmetic", ask(sim, m, executor_messages(t), t).text) for t in NUMBERS]
                     for m in (STRONG, WEAK))
    for k, weight in enumerate(weights):
        assert near(fmean(a == t.wrong[k] for a, t in zip(first, NUMBERS, strict=True)), weight / 1.875)
    assert near(fmean(a == b for a, b in zip(first, second, strict=True)), sum(w * w for w in weights) / 1.875**2)
    changes["wrong_shared"]["value"] = {"arithmetic": 0.0}
    own = SimulatedLLM(7, {"base": "assumed", **changes})
    second = [extract_answer("arithmetic", ask(own, WEAK, executor_messages(t), t).text) for t in NUMBERS]
    assert near(fmean(a == b for a, b in zip(first, second, strict=True)), 1 / 4)


# ---- systems of agents, and documents ----

def of_system(entry, system, value, domain="arithmetic"):
    """`base: assumed` with the value of one system changed."""
    return {"base": "assumed", entry: {"value": {domain: {system: value}}}}


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_system_at_factor_1_and_shift_0_replies_as_bamas_does(system):
    assert transcript(SimulatedLLM(11, system=system)) == transcript()


def test_a_system_scales_the_tokens_of_all_its_replies_and_of_no_others():
    mine = of_system("system_tokens", "metagpt", 1.7)
    plain, longer, other = SimulatedLLM(9), SimulatedLLM(9, mine, "metagpt"), SimulatedLLM(9, mine, "chatdev")
    calls, seen = [(role, messages, t) for t in NUMBERS[:150] for role, messages in dialogue(t)], set()
    for role, messages, t in calls:
        before, after = (ask(sim, WEAK, messages, t, role=role) for sim in (plain, longer))
        drawn = before.usage.completion_tokens
        if drawn > count_tokens(before.text):  # else the text was longer than the draw: plans can be
            # Both round one draw: 1.7 (x +- 1/2) +- 1/2.
            assert abs(after.usage.completion_tokens - 1.7 * drawn) <= 0.5 + 1.7 * 0.5
            seen.add(role)
        assert after.text == before.text and ask(other, WEAK, messages, t, role=role) == before
    assert seen == {"executor", "critic", "planner", "writer"}
    code = dialogue(ONE["code"])
    assert all(ask(plain, WEAK, m, ONE["code"], role=r) == ask(longer, WEAK, m, ONE["code"], role=r) for r, m in code)


@pytest.mark.parametrize("shift", [-0.7, 0.4])
def test_a_system_shifts_the_views_of_its_answers_and_reviews(shift):
    changes = of_system("system_shift", "autogen", shift)
    sim, other = SimulatedLLM(10, changes, "autogen"), SimulatedLLM(10, changes, "naive")
    p = sim.parameters
    for backend, by in ((sim, shift), (other, 0)):
        right = [grade(t, ask(backend, STRONG, executor_messages(t), t).text).correct for t in NUMBERS]
        for level in (1, 4, 8):
            mine = [r for r, t in zip(right, NUMBERS, strict=True) if t.level == level]
            assert near(fmean(mine), single_right(p, STRONG, replace(NUMBERS[0], level=level), by), len(mine))
    planned = [grade(t, ask(sim, STRONG, executor_messages(t, instruction="Do it."), t).text).correct for t in NUMBERS]
    both = shift + p.step_shift.value.arithmetic
    assert near(fmean(planned), fmean(single_right(p, STRONG, t, both) for t in NUMBERS))
    asked = [not accepts(ask(sim, STRONG, critic_messages(t, f"#### {t.wrong[0]}"), t, role="critic").text)
             for t in NUMBERS]
    view, hit = fmean(single_right(p, STRONG, t, shift) for t in NUMBERS), p.critic.value.arithmetic.hit
    assert near(fmean(asked), view * hit.view_right + (1 - view) * hit.view_wrong)


def test_a_persona_and_documents_leave_the_style_of_an_answer_alone():
    def tokens(messages):
        return [math.log(ask(SimulatedLLM(seed), WEAK, messages, t).usage.completion_tokens)
                for seed in range(4) for t in NUMBERS[:300]]
    p, spread = load_parameters().tokens_style.value, load_parameters().tokens_spread.value.arithmetic
    plain, t = fmean(tokens(executor_messages(NUMBERS[0]))), NUMBERS[0]
    for parts, style in (({}, "solve"), ({"earlier": "#### 1"}, "improve"),
                         ({"earlier": "#### 1", "critique": "CONCLUSION: REVISE"}, "revise")):
        messages = step_messages(t, "engineer", "answer", "Carry it out.", documents="A design.", **parts)
        assert abs(fmean(tokens(messages)) - plain - math.log(getattr(p, style))) < 4 * spread * math.sqrt(2 / 1200)


@pytest.mark.parametrize("domain", DOMAINS)
def test_a_document_is_as_long_as_its_style_says_and_holds_no_answer(domain):
    task = ONE[domain]
    short = SimulatedLLM(0, {"base": "assumed", "tokens_style": {"value": {"document": 0.5}}})
    p, messages = short.parameters, step_messages(task, "architect", "document", "Design it.")
    mu = (math.log(p.completion_tokens.value[domain][WEAK.name]) - p.tokens_spread.value[domain]**2 / 2
          + p.tokens_per_level.value[domain] * (task.level - 1) + math.log(0.5))
    logs = []
    for seed in range(600):
        reply = ask(SimulatedLLM(seed, p), WEAK, messages, task, role="writer")
        assert extract_answer(domain, reply.text) is None and not grade(task, reply.text).correct
        assert reply.finish_reason == "stop" and count_tokens(reply.text) <= reply.usage.completion_tokens
        logs.append(math.log(reply.usage.completion_tokens))
        cut = ask(SimulatedLLM(seed, p), WEAK, messages, task, role="writer", max_tokens=20)
        assert cut.finish_reason == "length" and reply.text.startswith(cut.text) and count_tokens(cut.text) == 20
    assert abs(fmean(logs) - mu) < 4 * p.tokens_spread.value[domain] / math.sqrt(600)


def test_a_system_that_nobody_knows_is_refused():
    for system in ("metagtp", "", None, 3):
        with pytest.raises(SimulationError, match=f"^system = {system!r}: expected one of bamas, naive, autogen, "):
            SimulatedLLM(0, system=system)


@pytest.mark.parametrize("seed", [None, "x", math.nan, [1], 1.5, True, np.True_, 2**63, 10**5000],
                         ids=lambda seed: type(seed).__name__)
def test_a_seed_that_is_none_is_refused(seed):
    with pytest.raises(SimulationError, match="^seed = .*: expected a whole number of at most 64 bits$"):
        SimulatedLLM(seed)


@pytest.mark.parametrize("seed", [-3, 0, 2**63 - 1])
def test_numpy_seeds_are_whole_numbers_like_others(seed):
    plain, numpys = SimulatedLLM(seed), SimulatedLLM(np.int64(seed))
    assert type(numpys.seed) is int and numpys.identity == plain.identity
    assert transcript(numpys) == transcript(plain) != transcript(SimulatedLLM(seed - 1))


# ---- formats, tokens, cuts ----

def dialogue(task):
    """Prompts of every style with their roles."""
    right, wrong = as_reply(task.domain, task.reference), as_reply(task.domain, task.wrong[0])
    yield "executor", executor_messages(task)
    yield "executor", executor_messages(task, approach=approach_of(task.domain, 1))
    for earlier in (right, wrong, "no answer"):
        yield "executor", executor_messages(task, earlier=earlier)
        yield "executor", executor_messages(task, earlier=earlier, critique="CONCLUSION: REVISE")
        yield "executor", executor_messages(task, earlier=earlier, instruction="Check it.")
        yield "critic", critic_messages(task, earlier)
    yield "planner", planner_messages(task, ["executor 1", "executor 2"])
    yield "writer", step_messages(task, "architect", "document", "Design it.")


@pytest.mark.parametrize("domain", DOMAINS)
def test_replies_have_the_formats_and_a_cut_reply_has_no_answer(domain):
    task = ONE[domain]
    known = {extract_answer(domain, as_reply(domain, answer)) for answer in (task.reference, *task.wrong)}
    for seed in range(15):
        sim = SimulatedLLM(seed)
        for role, messages in dialogue(task):
            for room in (10_000, 250, 128, 32, 5, 1):
                reply = ask(sim, WEAK, messages, task, role=role, max_tokens=room)
                usage, cut = reply.usage, reply.finish_reason == "length"
                assert usage.prompt_tokens == sim.bound_prompt_tokens(WEAK, messages)
                assert 1 <= usage.completion_tokens <= room and cut <= (usage.completion_tokens == room)
                assert count_tokens(reply.text) <= usage.completion_tokens
                if role == "executor":
                    if room >= 5:  # (a single word, as what one token holds, parses as a program)
                        assert extract_answer(domain, reply.text) in ({None} if cut else known)
                    assert not (cut and grade(task, reply.text).correct)
                elif role == "critic":
                    assert ("CONCLUSION: " in reply.text) != cut
                elif cut:
                    with pytest.raises(PlanError):
                        parse_plan(reply.text, ["executor 1", "executor 2"])


def test_less_room_cuts_the_same_reply():
    sim, task, messages = SimulatedLLM(0), NUMBERS[5], executor_messages(NUMBERS[5])
    full = ask(sim, WEAK, messages, task)
    needed = full.usage.completion_tokens
    assert ask(sim, WEAK, messages, task, max_tokens=needed) == full
    less = ask(sim, WEAK, messages, task, max_tokens=needed - 1)
    assert (less.finish_reason, less.usage.completion_tokens) == ("length", needed - 1)
    assert full.text.startswith(less.text)


def test_latency_and_skill_come_from_the_llm_itself_where_it_states_them():
    p, task = load_parameters(), NUMBERS[2]
    stated = LLM(name="Mine", price_in=1, price_out=1, max_tokens=384, tier=1, first_token_s=2.0, tokens_per_s=10)
    reply = ask(SimulatedLLM(), stated, executor_messages(task), task)
    assert reply.latency_s == pytest.approx(2 + reply.usage.completion_tokens / 10)
    reply = ask(SimulatedLLM(), WEAK, executor_messages(task), task)
    assert reply.latency_s == pytest.approx(p.first_token_s.value[WEAK.name]
                                            + reply.usage.completion_tokens / p.tokens_per_s.value[WEAK.name])
    tasks, sim = [replace(t, level=1) for t in NUMBERS], SimulatedLLM(8)
    for llm, skill in ((stated.model_copy(update={"rating": 1200.0}), p.skill_by_rating.value.arithmetic.at_1300
                        - p.skill_by_rating.value.arithmetic.per_100),
                       (stated.model_copy(update={"tier": 4}), p.skill_by_tier.value.arithmetic.tier_1
                        + 3 * p.skill_by_tier.value.arithmetic.per_tier)):
        right = fmean(grade(t, ask(sim, llm, executor_messages(t), t).text).correct for t in tasks)
        assert near(right, PHI(skill))


@pytest.mark.parametrize("name,llm,published", [  # BAMAS: Table 4, L1 and Table 1, AutoGen; Table 2, budgets 1000, 2000
    ("word_problems", STRONG, 0.951), ("word_problems", WEAK, 0.897), ("python_functions", STRONG, 0.808),
    ("python_functions", WEAK, 0.730), ("algebra_calculus", STRONG, 0.812), ("algebra_calculus", WEAK, 0.721)])
def test_assumed_levels_on_our_own_tasks_are_near_the_published_ones(name, llm, published):
    p = load_parameters("assumed")
    assert abs(fmean(single_right(p, llm, t) for t in load_tasks(name)) - published) < 0.06


# ---- determinism ----

SCRIPT = """
import sys; sys.path.insert(0, {tests!r})
from test_simulation import transcript
print(transcript())
"""


def transcript(sim=None):
    """A digest of many replies of all kinds."""
    sim, seen = sim or SimulatedLLM(11), []
    for task in (*NUMBERS[:40], *ONE.values()):
        for role, messages in dialogue(task):
            seen += [repr(ask(sim, m, messages, task, role=role, max_tokens=300)) for m in (STRONG, WEAK)]
    return sha256("".join(seen).encode()).hexdigest()


def test_two_processes_reply_alike():
    script = SCRIPT.format(tests=str(Path(__file__).parent))
    there = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True,
                           env={**os.environ, "PYTHONHASHSEED": "12345"})
    assert there.stdout.strip() == transcript()


def test_replies_depend_on_the_prompt_only_not_on_order_or_history():
    calls = [(m, role, messages, t) for t in (*NUMBERS[:30], *ONE.values()) for role, messages in dialogue(t)
             for m in (STRONG, WEAK)]
    sim = SimulatedLLM(2)
    first = [ask(sim, m, messages, t, role=role) for m, role, messages, t in calls]
    shuffled = list(enumerate(calls))
    random.Random(0).shuffle(shuffled)
    copy = pickle.loads(pickle.dumps(sim))
    for i, (m, role, messages, t) in shuffled:
        assert ask(copy, m, messages, t, role=role) == first[i] == ask(sim, m, messages, t, role=role)


def test_seed_temperature_and_prompt_change_the_draw():
    def lengths(seed=0, temperature=0.0, **parts):
        sim = SimulatedLLM(seed)
        return [ask(sim, WEAK, executor_messages(t, **parts), t, temperature=temperature).usage.completion_tokens
                for t in NUMBERS[:50]]
    plain = lengths()
    for other in (lengths(seed=1), lengths(temperature=0.7), lengths(approach="Work backward.")):
        assert fmean(a == b for a, b in zip(plain, other, strict=True)) < 0.2
    assert lengths(temperature=0.7) == lengths(temperature=0.7)


def test_a_changed_task_or_llm_under_the_same_name_is_not_mistaken_for_the_old_one():
    sim, old = SimulatedLLM(0), NUMBERS[3]
    new = replace(old, reference="777", wrong=("778",))
    for task in (old, new, old):
        assert extract_answer("arithmetic", ask(sim, STRONG, executor_messages(task), task).text) in (
            task.reference, *task.wrong)
    slow = WEAK.model_copy(update={"tokens_per_s": 1.0})
    assert ask(sim, WEAK, executor_messages(old), old).latency_s < ask(sim, slow, executor_messages(old), old).latency_s


def test_identity_tells_what_decides_the_replies():
    wording = {"description": "another value", "stick": {"meaning": "the chance that a wrong answer is repeated"}}
    base = SimulatedLLM(1).identity
    assert base == SimulatedLLM(1, {"base": "assumed", **wording}).identity
    others = {SimulatedLLM(2).identity, SimulatedLLM(1, changed("stick/value/code", 0.5)).identity,
              SimulatedLLM(1, {"base": "assumed", "name": "mine"}).identity}
    assert len(others | {base}) == 4


def test_identity_tells_the_system_and_leaves_out_what_changes_no_reply():
    base = SimulatedLLM(1).identity
    assert base.endswith(", seed 1") and SimulatedLLM(1, system="naive").identity == f"{base}, system naive"
    for entry, value in (("system_tokens", 1.5), ("system_shift", 0.2)):
        changes = of_system(entry, "naive", value)
        assert SimulatedLLM(1, changes).identity == base
        assert SimulatedLLM(1, changes, "chatdev").identity == f"{base}, system chatdev"
        assert SimulatedLLM(1, changes, "naive").identity != f"{base}, system naive"
        assert SimulatedLLM(1, of_system(entry, "bamas", value)).identity != base
    assert len({SimulatedLLM(1, of_system("system_tokens", "naive", value, domain), "naive").identity
                for value in (1, 1.5, 2) for domain in ("arithmetic", "code")}) == 5
    assert SimulatedLLM(1, changed("tokens_style/value/document", 0.9)).identity != base
    copy = pickle.loads(pickle.dumps(SimulatedLLM(1, of_system("system_shift", "naive", 0.2), "naive")))
    assert (copy.system, copy.identity) == ("naive", SimulatedLLM(1, copy.parameters, "naive").identity)


def test_memory_is_bounded(monkeypatch):
    for name in ("_PAIRS", "_DRAWN"):
        monkeypatch.setattr(f"bamas_lite.simulation.{name}", 100)
    sim = SimulatedLLM(0)
    replies = [ask(sim, WEAK, executor_messages(t), t) for t in NUMBERS[:300]]
    assert len(sim._pairs) <= 100 and len(sim._drawn) <= 100 and _facts_of.cache_info().maxsize <= 1024
    assert replies == [ask(sim, WEAK, executor_messages(t), t) for t in NUMBERS[:300]]


# ---- wrong answers ----

@pytest.mark.parametrize("task", [
    replace(ONE["arithmetic"], wrong=()), replace(ONE["arithmetic"], reference="0", wrong=()),
    replace(ONE["arithmetic"], reference="12.5", wrong=()), replace(ONE["arithmetic"], reference="1,250", wrong=()),
    replace(ONE["mathematics"], wrong=()), replace(ONE["mathematics"], reference="-x^2 + 3", wrong=()),
    replace(ONE["mathematics"], reference="(2, \\infty)", wrong=()),
    replace(ONE["mathematics"], reference="\\text{even}", wrong=()), replace(ONE["code"], wrong=()),
], ids=lambda t: t.reference[:12])
def test_wrong_answers_are_made_and_fail_grading(task):
    found = wrong_answers(task)
    assert len(found) == len(set(found)) >= 1 and (task.domain == "code" or len(found) == 4)
    assert not any(grade(task, as_reply(task.domain, answer)).correct for answer in found)
    assert grade(task, as_reply(task.domain, task.reference)).correct
    assert wrong_answers(replace(task)) == found


def test_programs_that_never_end_are_no_wrong_answers():
    loop = "def count(n):\n    i = 0\n    while i < n:\n        i += 1\n    return i"
    task = Task("c/2", "code", 1, "Write count(n).", loop, tests=("assert count(3) == 3",), entry_point="count")
    found = wrong_answers(task)
    assert found and not [program for program in found if "i -= 1" in program or "pass" in program]


@pytest.mark.parametrize("name", ["word_problems", "algebra_calculus", "python_functions"])
def test_wrong_answers_of_our_own_sets_fail_grading(name):
    for task in load_tasks(name)[:: 40 if name == "word_problems" else 60]:
        assert grade(task, as_reply(task.domain, task.reference)).correct, task.task_id
        for answer in wrong_answers(task):
            assert not grade(task, as_reply(task.domain, answer)).correct, (task.task_id, answer)


@pytest.mark.skipif(not Path(os.environ.get("BENCHMARKS") or "/nonexistent").is_dir(),
                    reason="BENCHMARKS is not set to the folder of the real benchmark files")
@pytest.mark.parametrize("name,step", [("gsm8k", 60), ("math", 25), ("mbpp", 60)])
def test_real_benchmark_tasks_get_wrong_answers_and_replies(name, step):
    sim, empty = SimulatedLLM(0), 0
    for task in load_tasks(name, split="test", path=os.environ["BENCHMARKS"])[::step]:
        found = wrong_answers(task)
        empty += not found
        assert not any(grade(task, as_reply(task.domain, answer)).correct for answer in found)
        reply = ask(sim, WEAK, executor_messages(task), task)
        answers = {extract_answer(task.domain, as_reply(task.domain, a)) for a in (task.reference, *found)}
        assert extract_answer(task.domain, reply.text) in answers
    assert not empty


# ---- garbage in the prompt ----

TAGS = ("task", "documents", "earlier_answer", "critique", "approach", "instruction", "agents", "results")
PIECE = st.one_of(st.text(st.characters(exclude_categories=()), max_size=30), st.sampled_from(
    [f"<{t}>\n" for t in TAGS] + [f"\n</{t}>" for t in TAGS]
    + ["#### 1e999", "```", "\\boxed{", "CONCLUSION: REVISE", "\ud800"]))


@settings(max_examples=150, deadline=None)
@given(pieces=st.lists(PIECE, max_size=12), role=st.sampled_from(["executor", "critic", "planner", "writer"]),
       room=st.integers(1, 500), seed=st.integers(0, 10**9))
def test_garbage_never_crashes_and_is_billed_within_bounds(pieces, role, room, seed):
    sim, content = SimulatedLLM(seed), "".join(pieces)
    for messages in ([], [{"role": "user", "content": content}],
                     [{"role": "system", "content": content}, {"role": "user", "content": content[::-1]}]):
        for task in (ONE["arithmetic"], ONE["mathematics"]):
            reply = ask(sim, WEAK, messages, task, role=role, max_tokens=room)
            assert count_tokens(reply.text) <= reply.usage.completion_tokens <= room
            assert reply.usage.prompt_tokens == sim.bound_prompt_tokens(WEAK, messages)
            assert sim.bound_prompt_tokens(WEAK, messages) <= bound_prompt_tokens(messages, strict=True)


def test_wrong_arguments_are_named():
    sim, messages = SimulatedLLM(0), executor_messages(NUMBERS[0])
    with pytest.raises(ValueError, match="task = None"):
        ask(sim, WEAK, messages, None)
    with pytest.raises(ValueError, match="max_tokens = 0"):
        ask(sim, WEAK, messages, NUMBERS[0], max_tokens=0)
    with pytest.raises(ValueError, match="domain = 'poetry'"):
        ask(sim, WEAK, messages, replace(NUMBERS[0], domain="poetry"))


# ---- parameters ----

def changed(path, value):
    """`base: assumed` with one value changed."""
    data = value
    for key in reversed(path.split("/")):
        data = {key: data}
    return {"base": "assumed", **data}


@pytest.mark.parametrize("path,value,words", [
    ("critic/value/code/hit/view_right", 1.5, "critic.value.code.hit.view_right = 1.5"),
    ("skill/value/code/DeepSeek-V3", 99.0, r"code.DeepSeek-V3 = 99.0: outside its range \[0.5, 1.5\]"),
    ("stick/range", {"code": [0, 1]}, "range = code: has no pair for arithmetic"),
    ("skill/range", {"arithmetic": [0, 3, 4]}, "skill.range.arithmetic"),
    ("skill/value/code/DeepSeek-V3", math.nan, "skill.value.code.DeepSeek-V3 = nan: expected a finite number"),
    ("skill/value/code/DeepSeek-V3", "1.2", "skill.value.code.DeepSeek-V3 = '1.2'"),
    ("plan_more/value", True, "plan_more.value = True"),
    ("level_slope/value/poetry", 0.1, "level_slope.value.poetry = 0.1: unknown key"),
    ("sklil", {"value": 1}, "sklil = .*: unknown key"),
    ("stick/status", "guessed", "stick.status = 'guessed'"),
    ("stick/status", "fitted", "stick: status = 'fitted': needs a source"),
    ("stick/range", [1, 0], r"stick: range = \[1, 0\]"),
    ("tokens_spread/value/code", 0.0, "tokens_spread.value.code = 0.0"),
    ("task_share", {"value": {"code": 0.9}, "range": [0, 1]}, r"task_share \+ llm_share = 1.3 in code"),
    ("system_tokens/value/code/naive", 9.0, r"code.naive = 9.0: outside its range \[0.4, 3\]"),
    ("system_tokens/value/code/naive", 0, "system_tokens.value.code.naive = 0"),
    ("system_shift/value/code/crew", 0.1, "system_shift.value.code.crew = 0.1: unknown key"),
    ("tokens_style/value/document", 2.5, r"document = 2.5: outside its range \[0.3, 2\]"),
    ("tokens_style/value/solve", 1.5, r"solve = 1.5: outside its range \[0.3, 1.3\]"),
    ("base", "nowhere", "no parameter file nowhere; .*assumed"),
])
def test_wrong_parameters_are_named(path, value, words):
    with pytest.raises(SimulationError, match=words):
        SimulatedLLM(0, changed(path, value))


def test_missing_parameters_are_named(tmp_path):
    whole = load_parameters().model_dump()
    del whole["system_shift"]["value"]["code"]["naive"]
    del whole["skill"]["value"]["code"], whole["stick"], whole["plan_validity"]["value"]["default"]
    with pytest.raises(SimulationError) as caught:
        load_parameters(whole)
    text = str(caught.value)
    assert "system_shift.value.code.naive: is missing" in text
    assert "skill.value.code: is missing" in text and "stick: is missing" in text and "default" in text
    file = tmp_path / "mine.yaml"
    for content, words in (("stick: {value: 1}\nstick: {value: 2}", "given twice"), ("- 1", "expected a mapping"),
                           ("name: [", "not readable"), ("base: " + file.as_posix(), "its own base"),
                           ("", "expected a mapping")):
        file.write_text(content, encoding="utf-8")
        with pytest.raises(SimulationError, match=words):
            load_parameters(file)


def test_a_file_can_state_only_what_differs(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("base: assumed\nname: mine\nstick: {value: {code: 0.5}, status: fitted, source: my rows}\n",
                    encoding="utf-8")
    mine, base = load_parameters(file), load_parameters("assumed")
    assert (mine.name, mine.stick.value.code, mine.stick.status) == ("mine", 0.5, "fitted")
    assert mine.stick.value.arithmetic == base.stick.value.arithmetic and mine.skill == base.skill
    assert load_parameters(base.model_dump()) == base and SimulatedLLM(0, mine).parameters is mine


def test_every_committed_parameter_says_what_it_is():
    for name, entry in load_parameters("assumed"):
        if name not in ("name", "description"):
            assert entry.status in ("assumed", "cited", "fitted") and len(entry.meaning) > 20
            for place, value in numbers(entry.value):
                low, high = entry.range_at(place)
                assert low < high and low <= value <= high
