"""Few-shot prompts: examples that our readers can read and that are right, and nothing of a request lost."""

import os.path
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bamas_lite import prompts
from bamas_lite.few_shot import render
from bamas_lite.grading import extract_answer, grade
from bamas_lite.pool import LLM
from bamas_lite.tasks import Task, load_tasks

FIELDS = {"price_in": 0.1, "price_out": 0.4, "max_tokens": 64, "tier": 1}
BASE, CHAT = (LLM(name="a", api=api, few_shot=True, **FIELDS) for api in ("completion", "chat"))

NUMBER = Task("t/1", "arithmetic", 1, "Ann has 2 hats and buys 5 more. How many hats has she?", "7")
OPTIONS = Task("t/2", "arithmetic", 1, "Which of these barks: dog (1), cup (2) or sun (3)? Give the number.", "1")
FORMULA = Task("t/3", "mathematics", 1, "Solve $x^2 = 9$ with $x > 0$.", "3")
PROGRAM = Task("t/4", "code", 1, "Write a Python function half(n) that returns n divided by 2. For example, half(4) "
               "returns 2.0.", "def half(n):\n    return n / 2", tests=("assert half(5) == 2.5",), entry_point="half")
STEPS = Task("t/5", "arithmetic", 2, "Ann has 2 hats, buys 5 more and loses 1. How many hats has she?", "6")
TASKS = {"arithmetic": NUMBER, "several steps": STEPS, "choice": OPTIONS, "mathematics": FORMULA, "code": PROGRAM}

# Questions of the examples that have another answer than the number in their last equation, checked by hand.
CHOSEN = {"Which of these is a drink": "milk", "Which of these can swim": "fish", "Which of these is the largest": "68"}
FORMULAS = {"derivative of $x^3$ at $x = 2$": "12", "$2x + 1 = 2$": "\\frac{1}{2}"}
PROGRAMS = {"twice(n)": ("twice", ("assert twice(3) == 6", "assert twice(0) == 0")),
            "last(items)": ("last", ("assert last([1, 5]) == 5", "assert last([7]) == 7"))}
STORIES = {"Tim has 6 pens, gets 2 more and then gives 3 away": 6 + 2 - 3, "3 red shirts and 5 blue shirts": 3 + 5,
           "4 bags with 3 rolls in each.": 4 * 3, "4 bags with 3 rolls in each and 2 more": 4 * 3 + 2,
           "has 5 cups, finds 1 more and buys 3 more": 5 + 1 + 3}


def asked(task, kind):
    if kind == "review":
        return prompts.critic_messages(task, "It is 8.")
    if kind in ("plan", "team plan"):
        return prompts.planner_messages(task, ["executor 1", "executor 2"][:1 + (kind == "team plan")])
    return prompts.executor_messages(task, **{
        "answer": {}, "approach": {"approach": "Start at the end."}, "step": {"instruction": "Start at the end."},
        "improve": {"earlier": "It is 8."}, "revise": {"earlier": "It is 8.", "critique": "It is not."}}[kind])


KINDS = ("answer", "approach", "step", "improve", "revise", "review", "plan", "team plan")
each = pytest.mark.parametrize(("domain", "kind"), [(d, k) for d in TASKS for k in KINDS])


def examples(domain, kind):
    """(question, reply) of the examples, as a chat LLM sees them."""
    turns = render(CHAT, asked(TASKS[domain], kind)).messages[1:-1]
    assert [turn["role"] for turn in turns] == ["user", "assistant"] * (len(turns) // 2) and len(turns) >= 4
    return [(a["content"], b["content"]) for a, b in zip(turns[::2], turns[1::2], strict=True)]


def is_right(question, answer):
    """Whether an answer to an example's question is right, by knowledge that only this test has."""
    for words, number in STORIES.items():
        if words in question:
            equations = re.findall(r"(\d+) ([-+x]) (\d+) = (\d+)", answer)
            assert all(eval(f"{a} {'*' if op == 'x' else op} {b}") == int(c) for a, op, b, c in equations) or \
                extract_answer("arithmetic", answer) != str(number)
            return extract_answer("arithmetic", answer) == str(number)
    for words, chosen in CHOSEN.items():
        if words in question:
            number = re.search(rf"{chosen} \((\d)\)", question)[1]
            assert re.fullmatch(r"\w+ \((\d)\)\n#### \1", answer)
            return extract_answer("arithmetic", answer) == number
    for words, latex in FORMULAS.items():
        if words in question:
            return extract_answer("mathematics", answer) == latex
    name, tests = next(value for words, value in PROGRAMS.items() if words in question)
    return grade(Task("t", "code", 1, "?", "", tests=tests, entry_point=name), answer).correct


def part(text, label):
    """The text after a label, up to the next one."""
    found = re.search(rf"^{label}:\s(.*?)(?=\n[A-Z][a-z ]+:(?:\s|$)|\Z)", text, re.DOTALL | re.MULTILINE)
    return found and found[1]


@each
def test_examples_are_right_and_readable(domain, kind):
    for question, reply in examples(domain, kind):
        earlier = part(question, "Earlier answer")
        if kind in ("plan", "team plan"):
            agents = part(question, "Agents").split(", ")
            assert prompts.parse_plan(reply, agents)
        elif kind == "review":
            assert prompts.accepts(reply) == is_right(question, earlier)
            assert ("CONCLUSION: REVISE" in reply) != prompts.accepts(reply)
        else:
            assert is_right(question, reply), (question, reply)
        if kind == "revise":
            assert not is_right(question, earlier)


@each
def test_examples_show_both_outcomes(domain, kind):
    shown = examples(domain, kind)
    if kind == "review":
        assert {prompts.accepts(reply) for _, reply in shown} == {True, False}
    if kind == "improve":
        assert {is_right(question, part(question, "Earlier answer")) for question, _ in shown} == {True, False}
    if kind.endswith("plan"):
        steps = {len(prompts.parse_plan(reply, ["executor 1", "executor 2"])) for _, reply in shown}
        assert steps == ({1} if kind == "plan" else {1, 2})


@each
def test_a_reply_ends_where_the_next_question_would_begin(domain, kind):
    sent = render(BASE, asked(TASKS[domain], kind))
    assert sent.messages is None and sent.prompt.endswith(":") and not sent.prompt.endswith("\n")
    position = 0
    for question, reply in examples(domain, kind):
        start = sent.prompt.index(reply, sent.prompt.index(question, position) + len(question))
        position = start + len(reply)
        continued = sent.prompt[start:] + "\n\nQuestion:"
        cut = min(continued.index(stop) for stop in sent.stop if stop in continued)
        assert continued[:cut].rstrip("\n") == reply, "a stop sequence cuts the reply, or does not end it"


@each
def test_the_examples_of_a_kind_never_change(domain, kind):
    other = {"arithmetic": "What is 1 + 1?", "several steps": "What is 1 + 1 + 1?",
             "choice": "Which is red: a (1), b (2) or c (3)?",
             "mathematics": "Simplify $\\frac{2}{4}$.", "code": "Write a Python function g()."}[domain]
    task = Task("t/9", TASKS[domain].domain, 2, other, "2", tests=PROGRAM.tests, entry_point="half")
    one, two = (render(BASE, asked(t, kind)).prompt for t in (TASKS[domain], task))
    shared = os.path.commonprefix([one, two])
    for question, reply in examples(domain, kind):
        assert question in shared and reply in shared
    assert render(CHAT, asked(task, kind)).messages[:-1] == render(CHAT, asked(TASKS[domain], kind)).messages[:-1]


@each
def test_the_request_itself_is_all_there_and_last(domain, kind):
    messages = asked(TASKS[domain], kind)
    prompt, turns = render(BASE, messages).prompt, render(CHAT, messages).messages
    last = prompt[prompt.rindex("Question:"):]
    assert last == turns[-1]["content"] and turns[0] == messages[0]
    assert TASKS[domain].question in last
    for name in ("earlier_answer", "critique", "approach", "instruction"):
        text = prompts.section(messages[-1]["content"], name)
        assert text is None or text in last
    assert ("Agents: executor 1" in last) == kind.endswith("plan")


def test_every_kind_has_its_own_heading():
    headings = {kind: render(BASE, asked(NUMBER, kind)).prompt.rpartition("\n")[2] for kind in KINDS}
    assert headings == {"answer": "Answer:", "approach": "Answer:", "step": "Answer:", "improve": "Checked answer:",
                        "revise": "New answer:", "review": "Check:", "plan": "Plan:", "team plan": "Plan:"}


@pytest.mark.parametrize(("name", "sign"), [("word_problems", "#### "), ("small_tasks", "#### "),
                                            ("python_functions", "def twice"), ("algebra_calculus", "frac{1}{2}")])
def test_examples_fit_the_domain_of_our_tasks(name, sign):
    for task in load_tasks(name)[::40]:
        sign_here = "def twice" if task.domain == "code" else sign
        for kind in ("answer", "approach", "revise", "review"):
            messages = asked(task, kind)
            if kind == "review" and task.domain == "mathematics":   # only the answer may tell the domain
                messages = prompts.critic_messages(task, "The answer is \\boxed{3}.")
            assert sign_here in render(BASE, messages).prompt, (task, kind)


def test_examples_are_like_the_question():
    several = render(BASE, asked(STEPS, "answer")).prompt
    assert "12 + 2 = 14" in several and "12 + 2 = 14" not in render(BASE, asked(NUMBER, "answer")).prompt
    assert "milk (2)" in render(BASE, asked(OPTIONS, "answer")).prompt
    assert "milk (2)" not in render(BASE, asked(NUMBER, "answer")).prompt


def test_results_and_criticism_of_a_failed_plan_are_sent():
    messages = prompts.planner_messages(NUMBER, ["executor 1"], results="executor 1: 8", critique="Eight is wrong.")
    last = render(BASE, messages).prompt.rpartition("Question:")[2]
    assert "Results: executor 1: 8" in last and "Criticism: Eight is wrong." in last


def test_without_few_shot_the_messages_are_sent_as_they_are():
    messages = asked(NUMBER, "revise")
    sent = render(LLM(name="a", **FIELDS), messages)
    assert sent.messages is messages and sent.prompt is None and sent.stop == ()
    sent = render(LLM(name="a", api="completion", **FIELDS), messages)
    assert sent.messages is None and all(message["content"] in sent.prompt for message in messages)


def test_steps_of_a_workflow_bring_their_instruction_and_not_our_formats():
    for kind, words in (("answer", "Add\nall hats."), ("review", "Look at the hats."), ("document", "List the hats.")):
        messages = prompts.step_messages(NUMBER, "hatter", kind, words, documents="She likes hats.", earlier="8")
        last = render(BASE, messages).prompt.rpartition("Question:")[2]
        assert words in last and "Notes: She likes hats." in last and "Earlier answer: 8" in last
        assert "End with one line" not in last and "few sentences" not in last
        assert render(CHAT, messages).messages[0]["content"].startswith("You are the hatter.")


def test_any_other_request_is_a_question():
    messages = [{"role": "user", "content": "Say hello."}]
    assert render(BASE, messages).prompt.endswith("Question: Say hello.\nAnswer:")
    assert render(CHAT, messages).messages[-1]["content"] == "Question: Say hello.\nAnswer:"


@given(st.text(max_size=80), st.text(max_size=80))
def test_no_text_breaks_a_prompt(earlier, critique):
    for task in (NUMBER, PROGRAM):
        sent = render(BASE, prompts.executor_messages(task, earlier=earlier, critique=critique))
        last = sent.prompt[sent.prompt.rindex(f"Question: {task.question}"):]
        assert last.endswith("New answer:") and "Earlier answer:" in last
        assert "\n\n" not in last, "an empty line would end the reply of a base model at once"
