"""Recorded answers: on a small file of our own making; the real one only from the folder BENCHMARKS."""

import csv
import hashlib
import json
import os
from fractions import Fraction
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bamas_lite.answers import find_number
from bamas_lite.grading import Grade, grade
from bamas_lite.llm import RunStopped
from bamas_lite.prompts import critic_messages, executor_messages
from bamas_lite.recorded_answers import answers as ra
from bamas_lite.recorded_answers import cascades as rc
from bamas_lite.recorded_answers import readings as rr
from bamas_lite.recorded_answers import summary as rs
from bamas_lite.recorded_answers.answers import LLMS, STRONG, WEAK, RecordedAnswersError, load_recorded_answers
from bamas_lite.recorded_answers.readings import READINGS, careful_reading, recorded_rule
from bamas_lite.recorded_answers.replay import EXAMPLES, RecordedReplies, prompt_tokens, recorded_pool
from bamas_lite.recorded_answers.signals import SIGNALS, annotations, equations, holds, signals, value
from bamas_lite.tasks import Task, TaskFileError
from bamas_lite.topologies import run_task_sync

BENCHMARKS = Path(os.environ.get("BENCHMARKS") or "BENCHMARKS-is-not-set")
COLUMNS = ["prompt", WEAK, STRONG, f"{WEAK}_response", f"{STRONG}_response"]

# question, reference, weak verdict and reply, strong verdict and reply
ROWS = [
    ("Pens cost $4. What do 5 pens cost?", "20", False, "5 x $4.00 = $<<5*4=20>>20.00\n#### 20.00", True, "It is $20."),
    ("Zoe owes $9 and has $5. What lacks?", "4", True, "5 - 9 = -<<9-5=4>>4\n#### -4", True, "9 - 5 = 4"),
    ("What do 8 of 16 cards cost at $3 each?", "24", True, "8 * 3 = 24\n#### 24", False, "It is $24 for the 8 cards."),
    ("7 m are cut in 2. How long is each?", "5", True, "7 / 2 = 3.5 m", False, "It is 3.5 m. So 3 1/2 m."),
    ("Boxes hold pens. How many boxes?", "1", True, "#### 1", True, "Since a box holds 30, buy 1 or 40 / 40 = 40."),
    ("Ben has 3 cats. He gets 3 more. How many?", "6", False, "3 + 3 = <<3+", True, "3 + 3 = 6\n#### 6"),
    ("Ann reads 10 pages a day for 6 days. How many?", "60", True, "10 * 6 = 60\n#### 60", False, "#### 61"),
    ("Tim buys 2 bags of 11 nuts. How many nuts?", "22", False, "2 * 11 = <<2*11=23>>23\n#### 23", True, "2 * 11 = 22"),
    ("What is 1/3 pound at $9 a pound?", "3", True, "9 / 3 = 3\n#### 3", True, "It costs $3 for 1/3 pound."),
    ("3 get 1 pen each. How many packs?", "1", True, "#### 1", True, "They need 3 of the 8 pens in 1 pack."),
    ("What does 1/3 m cost at $36 a m?", "12", True, "36 / 3 = 12\n#### 12", False, "It costs $12 for 1/3 m."),
]


def write(folder, rows=ROWS, name="gsm8k_responses.csv", columns=COLUMNS, tasks=None):
    with (folder / "gsm8k_test.jsonl").open("w", encoding="utf-8") as file:
        for question, reference, *_ in tasks or rows:
            file.write(json.dumps({"question": question, "answer": f"We think.\n#### {reference}"}) + "\n")
    with (folder / name).open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows([q, w, s, wr, sr] for q, _, w, wr, s, sr in rows)
    return folder


@pytest.fixture()
def answers(tmp_path):
    return load_recorded_answers(write(tmp_path))


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """40 questions: the weak LLM is right on 2 of 3, breaks off now and then; the strong one is right on 9 of 10."""
    rows = []
    for n in range(40):
        a, b = n + 3, 2 * n + 5
        good, pad = f"{a} + {b} = <<{a}+{b}={a + b}>>{a + b}\n#### {a + b}", "So we add them all. " * (n % 7)
        weak = good if n % 3 else (f"{a} + {b} = <<{a}+" if n % 2 else f"{a} + {b} = {a + b + 1}\n#### {a + b + 1}")
        strong = f"{a} + {b} = {a + b + (n % 10 == 4)}\n\n#### {a + b + (n % 10 == 4)}"
        rows.append((f"No. {n}: add {a} to {b}. What is it?", str(a + b), n % 3 > 0, pad + weak, n % 10 != 4, strong))
    return load_recorded_answers(write(tmp_path_factory.mktemp("many"), rows))


# --- reading replies

@pytest.mark.parametrize("reply, question, number", [
    ("The lamps cost $35 for all 7 rooms.", "What do lamps cost at $5 a room in 7 rooms?", 35),
    ("The lamps cost $35 for all 7 rooms.", "", 7),
    ("They paint 24 + 12 = 36 doors in 9 days.", "How many doors in 9 days?", 36),
    ("They paint 24 + 12 = 36 doors in 9 days.", "", 9),
    ("She sells 8 of the 12 cakes, so 12 - 8 = 4 cakes.", "Of 12 cakes 8 are sold, and 4 a day. What is left?", 4),
    ("The 2/3 liter can lasts 8 days more than the 1/4 liter can.", "Compare cans of 2/3 and of 1/4 liter.", 8),
    ("They have 5 and 7.", "5 or 7?", 7), ("At 6 it is 21 degrees.", "How warm is it at 6?", 21),
    ("He is 13.\nThat is all.", "", 13), ("#### 16", "Of 16 lamps?", 16), ("The answer is 16.", "Of 16?", 16),
    ("I cannot tell.", "", None)])
def test_the_careful_reading_takes_no_number_that_the_question_gives(reply, question, number):
    assert careful_reading(reply, question) == number
    task = Task("t/q", "arithmetic", 1, question or "?", str(number or 0))
    assert rr.right(task, reply, "careful") is (number is not None)
    assert not rr.right(Task("t/r", "arithmetic", 1, question or "?", "1000"), reply, "careful")


def test_our_grader_stays_the_usual_rule():
    """It takes the last number of a reply that marks no answer, whatever the question gives."""
    task, reply = Task("t/7", "arithmetic", 1, "What do lamps cost at $5 a room in 7 rooms?", "35"), (
        "The lamps cost $35 for all 7 rooms.")
    assert grade(task, reply).answer == "7" == str(find_number(reply))
    assert [rr.right(task, reply, reading) for reading in READINGS] == [False, False, True]
    assert [rr.right(task, "#### 35.00", reading) for reading in READINGS] == [False, True, True]
    assert not any(rr.right(task, None, reading) for reading in READINGS)
    with pytest.raises(ValueError, match="reading = 'mine': expected one of recorded, ours, careful"):
        rr.right(task, reply, "mine")


@given(st.text(alphabet="0123456789 ,.-/()*x=<>$#\nan", max_size=80), st.text(alphabet="0123456789 ./", max_size=30))
@settings(max_examples=200)
def test_the_careful_reading_finds_a_number_where_our_grader_does(reply, question):
    found, ours = careful_reading(reply, question), find_number(reply)
    assert (found is None) is (ours is None) and (found == ours or not rr.marked_number(reply)[0])
    assert question.strip() or "\n" in reply or "=" in reply or "." in reply or found == ours


@pytest.mark.parametrize("text, number", [
    ("#### 1,234", 1234), ("-15", 15), ("$20.00", 0), ("0.5", 5), ("1/3", 3), ("no", None), ("5 or 6", 6), ("x007", 7)])
def test_the_recorded_rule_reads_the_last_run_of_digits(text, number):
    assert recorded_rule(text) == number


# --- loading

def test_loading_joins_file_and_questions(tmp_path):
    spaced = [(f"  {q.replace(' ', '  ')}\n", *rest) for q, *rest in ROWS]
    write(tmp_path, spaced[::-1], "recorded_gsm8k_answers.csv", tasks=ROWS)
    loaded = load_recorded_answers(tmp_path)
    assert [task.reference for task in loaded.tasks] == [row[1] for row in ROWS[::-1]] and len(loaded) == len(ROWS)
    assert loaded.replies[WEAK] == tuple(row[3] for row in ROWS[::-1])
    assert loaded.recorded[STRONG] == tuple(row[4] for row in ROWS[::-1])
    content = (tmp_path / "recorded_gsm8k_answers.csv").read_bytes()
    assert loaded.sha256 == hashlib.sha256(content).hexdigest() and not loaded.known
    assert load_recorded_answers(str(tmp_path / "recorded_gsm8k_answers.csv")) == loaded


@pytest.mark.parametrize("change, message", [
    (lambda rows: dict(columns=[*COLUMNS[:4], "reply"]), "columns = .*expected prompt, gpt-4"),
    (lambda rows: dict(rows=[(*rows[0][:2], "yes", *rows[0][3:]), *rows[1:]]), "row 0: mistralai.* = 'yes': expected"),
    (lambda rows: dict(rows=[*rows[:1], ("Who?", *rows[1][1:]), *rows[2:]], tasks=rows), "row 1: prompt = 'Who.'"),
    (lambda rows: dict(rows=[*rows, rows[2]], tasks=rows), f"row {len(ROWS)}: prompt = .*earlier row"),
    (lambda rows: dict(rows=rows[:-1], tasks=rows), f"has {len(ROWS) - 1} questions: expected all {len(ROWS)}"),
    (lambda rows: dict(rows=[(*rows[0][:3], " ", *rows[0][4:]), *rows[1:]]), "row 0: mistralai.*_response is empty"),
    (lambda rows: dict(tasks=[*rows, rows[0]]), "two questions")])
def test_a_wrong_file_is_named(tmp_path, change, message):
    write(tmp_path, **{"rows": ROWS, **change(ROWS)})
    with pytest.raises(RecordedAnswersError, match=message):
        load_recorded_answers(tmp_path)


def test_a_missing_or_broken_file_says_what_to_do(tmp_path):
    with pytest.raises(RecordedAnswersError, match="github.com/lm-sys/RouteLLM.*gsm8k_responses.csv; put it"):
        load_recorded_answers(tmp_path)
    with pytest.raises(RecordedAnswersError, match="path = 3"):
        load_recorded_answers(3)
    file = tmp_path / "gsm8k_responses.csv"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(RecordedAnswersError, match="not UTF-8"):
        load_recorded_answers(tmp_path)
    file.write_text(",".join(COLUMNS) + "\nWhat?,True\n", encoding="utf-8")
    with pytest.raises(TaskFileError, match="no gsm8k_test.jsonl in this folder"):
        load_recorded_answers(tmp_path)
    write(tmp_path, name="other.csv")
    with pytest.raises(RecordedAnswersError, match="row 0: expected 5 fields"):
        load_recorded_answers(tmp_path)
    file.write_text('prompt,"a\n', encoding="utf-8")
    with pytest.raises(RecordedAnswersError, match="not readable as CSV"):
        load_recorded_answers(tmp_path)


# --- our grader and the recorded verdicts

def test_every_disagreement_has_its_kind(answers):
    found, misread = answers.disagreements(), answers.misread()
    names = ["row", "llm", *READINGS, "read", "answer", "careful_answer", "kind", "wrong"]
    assert [tuple(row) for row in found[names].values] == [
        (4, STRONG, True, False, False, 40, "40", "40", "undecided", "ours"),
        (8, STRONG, True, False, True, 3, "1/3", "3", "our reading", "ours"),
        (0, WEAK, False, True, True, 0, "20", "20", "decimals", "recorded"),
        (1, WEAK, True, False, False, 4, "-4", "-4", "sign", "recorded"),
        (3, WEAK, True, False, False, 5, "7/2", "7/2", "decimals", "recorded")]
    assert [tuple(row) for row in misread[names].values] == [
        (2, STRONG, False, False, True, 8, "8", "24", "given number", "both"),
        (9, STRONG, True, True, False, 1, "1", "8", "careful reading", "careful"),
        (10, STRONG, False, False, True, 3, "1/3", "12", "unexplained", "careful")]
    both = pd.concat([found, misread])
    assert set(both.kind) == set(rr.KINDS) and list(both.columns) == list(rr.COLUMNS)
    assert all(rr.KINDS[kind] == (wrong, why) for kind, wrong, why in both[["kind", "wrong", "explanation"]].values)
    assert not any(row[0] in both.to_string() or row[3] in both.to_string() for row in ROWS)


def test_what_cannot_be_decided_is_counted_against_us(tmp_path):
    rows = [("How many?", "12", True, "#### 12", True, "Twelve."), ("And now?", "12", True, "#### 12", True, "12.")]
    found = load_recorded_answers(write(tmp_path, rows))
    assert found.disagreements()[["row", "kind", "wrong"]].values.tolist() == [[0, "undecided", "ours"]]
    assert found.agreement().loc["both", ["agree", "adjudicated"]].tolist() == [0.75, 0.75]


@pytest.mark.parametrize("question, reply, ours, number, careful, kind", [
    ("What do 8 cards cost?", "It is $24 for the 8 cards.", Grade(False, "8"), 24, True, "given number"),
    ("What do cards cost?", "It is $24 for the 8 cards.", Grade(False, "8"), 24, True, "unexplained"),
    ("What do cards cost?", "#### 24.00", Grade(True, "24"), 24, True, "decimals"),
    ("What do cards cost?", "#### 24.00", Grade(True, "24"), 20, False, "our reading"),
    ("What do cards cost?", "#### 24.00 or 8", Grade(True, "24"), 24, True, "undecided")])
def test_a_kind_needs_its_evidence(question, reply, ours, number, careful, kind):
    """The recorded verdict (False) is only called wrong where the careful reading takes the number that we take."""
    assert rr._kind(Task("t/k", "arithmetic", 1, question, "24"), reply, False, ours, Fraction(number), careful) == kind


def test_agreement_counts(answers):
    table = answers.agreement()
    assert table.index.tolist() == [STRONG, WEAK, "both"]
    counts = ["replies", "same", "recorded_wrong", "ours_wrong", "both_misread", "careful_wrong"]
    assert table[counts].values.tolist() == [[11, 9, 0, 2, 1, 2], [11, 8, 3, 0, 0, 0], [22, 17, 3, 2, 1, 2]]
    assert table.agree.tolist() == [9 / 11, 8 / 11, 17 / 22]
    assert table.adjudicated.tolist() == pytest.approx([9 / 11, 1, 20 / 22], rel=1e-12)
    for reading in READINGS[1:]:
        right = [sum(rr.right(task, reply, reading) for task, reply in zip(answers.tasks, answers.replies[llm],
                                                                           strict=True)) for llm in LLMS]
        assert table[f"{reading}_right"].tolist() == [right[0] / 11, right[1] / 11, sum(right) / 22]
    assert table.recorded_right.tolist() == [7 / 11, 8 / 11, 15 / 22]
    assert table.ours_right.tolist() == [5 / 11, 7 / 11, 12 / 22]
    assert table.careful_right.tolist() == [7 / 11, 7 / 11, 14 / 22]
    rule = [(recorded_rule(reply) == int(row[1])) == verdict for row in ROWS
            for reply, verdict in ((row[5], row[4]), (row[3], row[2]))]
    assert table.by_rule.tolist() == [sum(rule[::2]), sum(rule[1::2]), sum(rule)] and not all(rule)
    kinds = rr.by_kind(answers.differences)
    assert kinds.iloc[0].tolist() == ["decimals", "recorded", WEAK, 2] and kinds.replies.sum() == 8


# --- signals

@pytest.mark.parametrize("text, number", [
    ("3 * ($4.50 + 1)", Fraction("16.5")), ("1,200/3", 400), ("2 x 3 \u00d7 4", 24), ("-2 + 5", 3), ("2 - -3", 5),
    (".5*4", 2), ("8/4/2", 1), ("1/0", None), ("", None), ("2 *", None), ("(2", None), ("2 3", None), ("2)", None),
    ("x", None), ("3 apples", None), ("2^3", None), ("+3", None),
    ("(" * 50 + "1" + ")" * 50, None), ("-" * 3000 + "1", None)])
def test_calculations_are_exact(text, number):
    assert value(text) == number


@given(st.recursive(st.integers(0, 99).map(str), lambda inner: st.tuples(inner, st.sampled_from("+-*/"), inner).map(
    lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"), max_leaves=8))
@settings(max_examples=100)
def test_calculations_agree_with_python(text):
    exact = "".join(f"Fraction({part})" if part.isdigit() else part for part in text.replace("(", "( ").replace(
        ")", " )").split(" "))
    try:
        expected = Fraction(eval(exact, {"Fraction": Fraction}))
    except ZeroDivisionError:
        expected = None
    assert value(text) == expected


def test_equalities_hold_exactly_or_as_rounded():
    assert holds("1/3", "0.33") and holds("2/3", "0.67") and holds("3*4", "12.00") and holds("2/3", "4/6")
    assert not holds("1/3", "0.34") and not holds("7/2", "3") and not holds("7/2", "4") and not holds("2/3", "0.66")
    assert holds("a", "1") is None and holds("1/0", "1") is None


def test_annotations_and_equations():
    assert annotations("<<3*4=12>>12, <<5+5=11>>, <<2/3=0.67>>, <<x=3>>, <<1+") == [True, False, True]
    assert equations("So 3 * 4 = 12, $2.50 + $2.50 = $5 and 4 + 4 = 9.") == [True, True, False]
    assert equations("6 * 50/100 = <<6*50/100=3>>3 \n 1,000 \\* 2 = 2,000.") == [True, True]
    assert equations("12 hours * 3 * 4 = 60; x = 3; 5 = 5; 20% + 3 = 4; 3 + 4 = 7 + 1; 2 * 3 = 2 x 3") == []


@pytest.mark.parametrize("reply, found", [
    ("3 + 4 = <<3+4=7>>7\n#### 7", ()), ("3 + 4 = <<3+", ("broken off", "no answer line")),
    ("#### 3 or 4", ("no answer",)),
    ("3 + 4 = <<3+4=8>>7\n#### 7", ("annotation",)), ("3 + 4 = 8\n#### 8", ("arithmetic",)),
    ("It is 7.", ("no answer line",)), ("I cannot tell.", ("no answer", "no answer line")),
    ("It costs 80,00", ("broken off", "no answer", "no answer line"))])
def test_signals(reply, found):
    assert signals(reply) == found and set(found) <= set(SIGNALS)


@given(st.text(alphabet="0123456789 ,.-/()*x=<>$#\n", max_size=120))
@settings(max_examples=200)
def test_no_reply_breaks_the_signals(reply):
    assert set(signals(reply)) <= set(SIGNALS)


# --- replay

def test_star_of_two_is_the_stronger_one(answers):
    assert [llm.name for llm in recorded_pool().llms] == list(LLMS) and recorded_pool().date == "2024-07-01"
    both, strong = (rc.star_episodes(answers, llms=llms) for llms in (LLMS, (STRONG,)))
    weak = rc.star_episodes(answers, llms=(WEAK,))
    for row, (pair, one, other) in enumerate(zip(both, strong, weak, strict=True)):
        assert pair.answer_text == one.answer_text == answers.replies[STRONG][row] and pair.backend == ra.LABEL
        assert pair.cost == pytest.approx(one.cost + other.cost) and pair.n_calls == 2
        gpt = recorded_pool()[STRONG]
        tokens = prompt_tokens(answers.tasks[row].question), -(-len(answers.replies[STRONG][row]) // 4)
        assert one.cost == float(gpt.call_cost(*tokens)) and (one.prompt_tokens, one.completion_tokens) == tokens
    assert [e.correct for e in both] == [g.correct for g in answers.grades[STRONG]]


def test_star_takes_the_weaker_one_where_the_stronger_has_no_answer(tmp_path):
    rows = [("How many?", "7", True, "#### 7", False, "I cannot tell.")]
    episode, = rc.star_episodes(load_recorded_answers(write(tmp_path, rows)))
    assert episode.correct and episode.answer == "7"


def test_a_budget_hires_and_limits(answers):
    dear, cheap = rc.star_episodes(answers, 50_000), rc.star_episodes(answers, 5_000)
    assert {len(e.calls) for e in dear} == {2} and {e.calls[0].llm.name for e in cheap} == {WEAK}
    assert all(e.cost <= 5_000 for e in cheap)
    cut = rc.star_episodes(answers, llms=(STRONG,), rows=[4], t_out=3)[0].calls[0].reply
    assert (cut.text, cut.finish_reason, cut.usage.completion_tokens) == (answers.replies[STRONG][4][:12], "length", 3)


@pytest.mark.parametrize("options, message", [
    (dict(role="critic"), "role 'critic' is not recorded"), (dict(temperature=0.5), "temperature = 0.5"),
    (dict(question="Unknown?"), "no reply to this question"), (dict(llm="DeepSeek-V3"), "has no recorded replies"),
    (dict(earlier="#### 3"), "with <earlier_answer>")])
def test_what_was_not_recorded_stops_the_run(answers, options, message):
    task = answers.tasks[0]
    asked = Task("t/1", "arithmetic", 1, options.get("question", task.question), "1")
    llm = recorded_pool()[STRONG].model_copy(update={"name": options.get("llm", STRONG)})
    messages = executor_messages(asked, earlier=options.get("earlier"))
    if options.get("role"):
        messages = critic_messages(asked, "#### 3")
    call = RecordedReplies(answers).complete(llm, messages, max_tokens=100, temperature=options.get("temperature", 0.0),
                                             role=options.get("role", "executor"), task=asked)
    with pytest.raises(RunStopped, match=message):
        call.send(None)


def test_a_dialogue_is_refused(answers):
    from bamas_lite.provisioning import provision

    team = provision(recorded_pool(), 10**6)
    with pytest.raises(RunStopped, match="is not recorded"):
        run_task_sync(answers.tasks[0], team, "linear", answers.backend(), 10**6)


# --- cascades

@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 9)), min_size=1, max_size=8), st.integers(0, 60))
@settings(max_examples=150)
def test_the_threshold_is_the_least_that_keeps_the_budget(replies, budget):
    score, dear = (np.array(x, float) for x in zip(*replies, strict=True))
    weak = np.ones(len(score))
    least = rc.threshold(score, weak, dear, budget)
    means = {t: (weak + dear * (score >= t)).mean() for t in [*score, np.inf]}
    fit = [t for t, mean in means.items() if mean <= budget]
    assert least == (min(fit) if fit else np.inf)


def test_the_table(many):
    table = rc.cascade_table(many, (800, 3_000, 6_000, 40_000), resamples=200)
    pd.testing.assert_frame_equal(table, rc.cascade_table(many, (800, 3_000, 6_000, 40_000), resamples=200))
    train, test = rc.halves(len(many))
    assert sorted([*train, *test]) == list(range(40)) and len(train) == 20
    alone = rc.outcomes(many)
    by = table.set_index(["policy", "budget"])
    weak, strong = alone.weak_right[test].mean(), alone.strong_right[test].mean()
    first = table[table.budget.isna()].set_index("policy")
    assert first.accuracy[WEAK] == pytest.approx(weak) and first.accuracy[STRONG] == pytest.approx(strong)
    assert first.cost["star of both"] == pytest.approx(first.cost[WEAK] + first.cost[STRONG])
    for budget in (3_000, 6_000, 40_000):
        cascade, random, oracle = (by.loc[(name, budget)] for name in ("cascade", "random", "oracle"))
        assert random.cost == pytest.approx(cascade.cost) and oracle.cost <= cascade.cost + 1e-6
        assert oracle.accuracy >= cascade.accuracy - 1e-9
        share = (cascade.cost - first.cost[WEAK]) / first.cost[STRONG]
        assert random.escalated == pytest.approx(share)
        assert random.accuracy == pytest.approx(weak + share * (strong - weak))
        assert cascade.gain == pytest.approx(cascade.accuracy - random.accuracy) and abs(random.gain) < 1e-12
        assert cascade.accuracy_low <= cascade.accuracy <= cascade.accuracy_high
        assert cascade.gain_low <= cascade.gain <= cascade.gain_high
    assert by.gain_low[("cascade", 3_000)] > 0          # the signals of this made-up file tell wrong replies
    assert by.escalated[("cascade", 40_000)] == 1 and by.accuracy[("cascade", 40_000)] == pytest.approx(strong)
    assert ("cascade", 800) in by.index and by.escalated[("cascade", 800)] == 0
    assert by.accuracy[("star", 6_000)] == pytest.approx(weak)
    assert by.accuracy[("star", 40_000)] == pytest.approx(strong)


@pytest.mark.parametrize("reading", READINGS)
def test_a_reading_decides_what_is_right(answers, reading):
    expected = {llm: [rr.right(*pair, reading) for pair in zip(answers.tasks, answers.replies[llm], strict=True)]
                for llm in LLMS}
    found = rc.outcomes(answers, reading)
    assert found.strong_right.tolist() == expected[STRONG] and found.weak_right.tolist() == expected[WEAK]
    first = rc.cascade_table(answers, (40_000,), reading=reading, resamples=10).set_index("policy")
    test = rc.halves(len(answers))[1]
    strong = np.mean([expected[STRONG][row] for row in test])
    for policy in (STRONG, "star of both", "star", "cascade"):
        assert first.accuracy[policy] == pytest.approx(strong)
    assert first.accuracy[WEAK] == pytest.approx(np.mean([expected[WEAK][row] for row in test]))


def test_readings_differ_on_this_file(answers):
    rates = [rc.outcomes(answers, reading).strong_right.tolist() for reading in READINGS]
    assert rates[0] != rates[1] != rates[2] != rates[0] and rc.outcomes(answers).strong_right.tolist() == rates[1]


def test_the_threshold_and_the_ranks_come_from_the_training_half(many):
    train, test = rc.halves(len(many))
    right = rc.outcomes(many).weak_right
    other = right.copy()
    other[test] = 1 - other[test]
    assert (rc.suspicion(many, train, right) == rc.suspicion(many, train, other)).all()
    score = rc.suspicion(many, train, right)
    broken = np.array(["<<" in reply and ">>" not in reply for reply in many.replies[WEAK]])
    assert score[broken].min() > score[right == 1].max()


def test_the_oracle_is_the_best_choice_of_whom_to_ask():
    rng = np.random.default_rng(9)
    weak, strong = rng.integers(0, 2, 8).astype(float), rng.integers(0, 2, 8).astype(float)
    weak_cost, strong_cost = np.ones(8), rng.integers(2, 9, 8).astype(float)
    table = rc._Table(np.full((1, 8), 1 / 8), (weak, weak_cost), (strong, strong_cost))
    helps = np.flatnonzero(strong > weak)
    assert len(helps) >= 3
    for size in range(len(helps) + 1):
        chosen = min((strong_cost[list(c)].sum() for c in combinations(helps, size)), default=0)
        accuracy, cost, share = table.oracle(np.array([1 + chosen / 8]))
        assert accuracy[0] == pytest.approx((weak.sum() + size) / 8) and share[0] == pytest.approx(size / 8)
        assert cost[0] == pytest.approx(1 + chosen / 8)


@pytest.mark.parametrize("options, message", [
    (dict(budgets=(0,)), "budgets = 0: expected more"), (dict(budgets=("many",)), "budgets = 'many'"),
    (dict(reading="mine"), "reading = 'mine': expected one of"),
    (dict(seed=-1), "seed = -1"), (dict(resamples=0), "resamples = 0")])
def test_a_wrong_argument_is_named(many, options, message):
    with pytest.raises(ValueError, match=message):
        rc.cascade_table(many, **options)


def test_too_few_questions_are_named(tmp_path):
    with pytest.raises(ValueError, match="3 questions: expected at least 4"):
        rc.cascade_table(load_recorded_answers(write(tmp_path, ROWS[:3])))


# --- summary and command

def test_the_command_prints_and_writes_aggregates_only(tmp_path, many, capsys):
    folder = tmp_path / "files"
    folder.mkdir()
    rows = [(t.question, t.reference, w, wr, s, sr) for t, w, wr, s, sr in zip(
        many.tasks, many.recorded[WEAK], many.replies[WEAK], many.recorded[STRONG], many.replies[STRONG], strict=True)]
    write(folder, rows)
    assert rs.main(["--benchmarks", str(folder), "--summary", str(tmp_path / "out" / "summary.json")]) == 0
    out = capsys.readouterr().out
    assert ra.LABEL in out and "NOT the file" in out and "every one" in out and "cascade" in out
    text = (tmp_path / "out" / "summary.json").read_text(encoding="utf-8")
    assert not any(question in text + out or reply in text + out for question, _, _, reply, *_ in rows)
    summary = rs.load_summary(tmp_path / "out" / "summary.json")
    assert summary["label"] == rs.SUMMARY_LABEL and summary["questions"] == 40 and summary["sha256"] == many.sha256
    computed = rs.summarize(many)
    pd.testing.assert_frame_equal(summary["table"], computed["table"], rtol=1e-3, atol=1e-6)
    pd.testing.assert_frame_equal(summary["agreement"], computed["agreement"], atol=1e-6)
    assert rs.main(["--benchmarks", str(tmp_path / "nowhere")]) == 2
    assert "--benchmarks = " in capsys.readouterr().err
    assert rs.main(["--benchmarks", str(tmp_path)]) == 2
    assert "RouteLLM" in capsys.readouterr().err


def test_no_summary_is_named(tmp_path):
    (tmp_path / "s.json").write_text("{}", encoding="utf-8")
    for name in ("s.json", "none.json"):
        with pytest.raises(RecordedAnswersError, match="is no summary"):
            rs.load_summary(tmp_path / name)


def test_the_committed_summary_is_of_the_full_file():
    summary = rs.load_summary()
    assert summary["sha256"] == ra.SHA256 and summary["label"] == rs.SUMMARY_LABEL and summary["questions"] == 1319
    both, kinds, table = summary["agreement"].loc["both"], summary["kinds"], summary["table"]
    assert both.by_rule == both.replies == 2638 and both.adjudicated >= 0.99 and both.same == round(both.agree * 2638)
    count = kinds.groupby("wrong").replies.sum()
    assert count["recorded"] + count["ours"] == both.replies - both.same == both.recorded_wrong + both.ours_wrong
    assert count["both"] == both.both_misread and count["careful"] == both.careful_wrong
    assert set(table.reading) == set(READINGS) and all(
        set(part.policy) == {WEAK, STRONG, "star of both", "star", "cascade", "random", "oracle"}
        for _, part in table.groupby("reading"))


# --- the real file

def _real():
    if not any((BENCHMARKS / name).is_file() for name in ra.FILES):
        pytest.skip(f"BENCHMARKS = {os.environ.get('BENCHMARKS')!r}: no folder with {' or '.join(ra.FILES)}")
    return load_recorded_answers(BENCHMARKS)


def test_the_real_verdicts_follow_the_recorded_rule_and_ours_stand():
    real = _real()
    if not real.known:
        pytest.skip(f"sha256 {real.sha256}: another version of the file")
    table = real.agreement()
    assert (table.by_rule == table.replies).all() and len(real) == 1319
    assert table.agree["both"] >= 0.98 and (table.adjudicated >= 0.99).all()
    assert not {"undecided", "unexplained"} & set(real.differences.kind)


def test_the_committed_summary_is_what_the_file_gives():
    real = _real()
    if not real.known:
        pytest.skip(f"sha256 {real.sha256}: another version of the file")
    committed, computed = rs.load_summary(), rs.summarize(real)
    for name in ("agreement", "kinds", "table"):
        pd.testing.assert_frame_equal(committed[name], computed[name], rtol=1e-3, atol=1e-6)
    assert committed["prices"] == computed["prices"]


def test_the_worked_examples_have_as_many_characters_as_stated():
    file = BENCHMARKS / "gsm8k_train.jsonl"
    if not file.is_file():
        pytest.skip(f"BENCHMARKS = {os.environ.get('BENCHMARKS')!r}: no folder with gsm8k_train.jsonl")
    with file.open(encoding="utf-8") as lines:
        first = [json.loads(next(lines)) for _ in range(8)]
    assert EXAMPLES == len("".join(f"Question: {e['question']}\nAnswer: {e['answer']}\n\n" for e in first))
