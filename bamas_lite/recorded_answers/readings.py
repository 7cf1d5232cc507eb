"""Three readings of the recorded GSM8K replies, and where they differ.

"recorded": the verdicts that came with the replies. They compare the last run of digits of reply and reference, commas
taken out (`recorded_rule`): no sign, no decimals.
"ours": `grading.grade`, the usual rule for GSM8K: the answer that a reply marks, else its last number, exactly.
"careful": `careful_reading`. It differs only for a reply that marks no answer, where both other rules take the last
number, even of "The lamps cost $35 for all 7 rooms". It was made by looking at replies of this very file, so it
adjudicates here, grades nothing elsewhere, and the accuracy that it gives is no independent measurement.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING

import pandas as pd

from bamas_lite.answers import TAIL, marked_number, prepared, read_number, stated_numbers
from bamas_lite.grading import Grade, grade
from bamas_lite.inputs import shown
from bamas_lite.tasks import Task

if TYPE_CHECKING:
    from bamas_lite.recorded_answers.answers import RecordedAnswers

READINGS = ("recorded", "ours", "careful")

KINDS = {
    "decimals": ("recorded", "the recorded rule takes the digits after the decimal point for the number: "
                             "$20.00 is 00, 0.5 is 5"),
    "sign": ("recorded", "the recorded rule has no minus sign: -15 passes for 15"),
    "our reading": ("ours", "our grader takes another number of the last sentence for the answer"),
    "undecided": ("ours", "the code cannot tell which verdict is right: counted against our grader"),
    "given number": ("both", "the reply names its answer and then a number that the question gives; both rules take "
                             "the latter"),
    "careful reading": ("careful", "the careful reading takes another number of the last sentence for the answer"),
    "unexplained": ("careful", "both rules say wrong and the careful reading right, but they take no number that the "
                               "question gives: counted against the careful reading"),
}
"""Kind of difference -> (which reading is wrong, why). The first four: our grader and the recorded verdict differ."""

COLUMNS = ("row", "llm", *READINGS, "reference", "read", "answer", "careful_answer", "kind", "wrong", "explanation")

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")
_LAST_NUMBER = re.compile(r"(?P<sign>-\s?\$?)?(?P<whole>[0-9]*\.)?(?P<digits>[0-9]+)[^0-9]*$")


def recorded_rule(text: str) -> int | None:
    """The number that the recorded verdicts compare: the last run of digits, commas taken out; None: no digits."""
    digits = re.findall("[0-9]+", text.replace(",", ""))
    return int(digits[-1]) if digits else None


def careful_reading(reply: str, question: str) -> Fraction | None:
    """The number that a reply marks as its answer, else the one that its last sentence with a number comes to.

    Of several numbers in that sentence it is one after the last equals sign, and none that the question gives (asked
    about 7 rooms, "The lamps cost $35 for all 7 rooms" says 35): the last that is left.
    """
    marked, number = marked_number(reply)
    if marked:
        return number
    given = stated_numbers(question)
    for sentence in reversed(_SENTENCE_END.split(prepared(reply[-TAIL:]))):
        found = stated_numbers(sentence)
        if not found:
            continue
        result = stated_numbers(sentence.rpartition("=")[2])
        new = [number for number in result or found if number not in given]
        return new[-1] if new else result[0] if "=" in sentence and result else found[-1]
    return None


def right(task: Task, text: str | None, reading: str = "ours") -> bool:
    """Whether a reply to one of the questions is right, by a reading; None, no complete answer, is wrong.

    Raises:
        ValueError: an unknown reading.
    """
    if reading not in READINGS:
        raise ValueError(f"reading = {shown(reading)}: expected one of {', '.join(READINGS)}")
    if text is None:
        return False
    if reading == "recorded":
        return recorded_rule(text) == recorded_rule(task.reference)
    return grade(task, text).correct if reading == "ours" else _careful(task, text)[1]


def _careful(task: Task, reply: str) -> tuple[Fraction | None, bool]:
    number = careful_reading(reply, task.question)
    return number, number is not None and number == read_number(task.reference)


def compare(answers: RecordedAnswers) -> pd.DataFrame:
    """Every reply on which not all three verdicts are the same, with its kind; no text of the benchmark.

    Columns (COLUMNS): row (of the file, from 0), llm; recorded, ours, careful (verdicts); reference; read, answer,
    careful_answer (the number that each of the three takes, in this order); kind (a key of KINDS), wrong ("recorded",
    "ours", "both" of these, or "careful"), explanation.
    """
    rows = []
    for llm, replies in answers.replies.items():
        verdicts = zip(answers.tasks, replies, answers.recorded[llm], answers.grades[llm], strict=True)
        for row, (task, reply, recorded, ours) in enumerate(verdicts):
            number, careful = _careful(task, reply)
            if recorded == ours.correct == careful:
                continue
            kind = _kind(task, reply, recorded, ours, number, careful)
            rows.append((row, llm, recorded, ours.correct, careful, task.reference, recorded_rule(reply), ours.answer,
                         None if number is None else str(number), kind, *KINDS[kind]))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _kind(task: Task, reply: str, recorded: bool, ours: Grade, number: Fraction | None, careful: bool) -> str:
    """Why the verdicts on a reply differ: a key of KINDS."""
    last, answer = _LAST_NUMBER.search(reply.replace(",", "")), None if ours.answer is None else Fraction(ours.answer)
    size = None if last is None else Fraction("0" + (last["whole"] or "") + last["digits"])
    if recorded != ours.correct:
        if answer == number and answer is not None and size is not None:   # the careful reading supports ours
            if last["whole"] and abs(answer) == size:
                return "decimals"
            if last["sign"] and answer == -size:
                return "sign"
        return "our reading" if careful == recorded else "undecided"
    if ours.correct:
        return "careful reading"
    return "given number" if answer == size and answer in stated_numbers(task.question) else "unexplained"


def agreement(answers: RecordedAnswers, differences: pd.DataFrame | None = None) -> pd.DataFrame:
    """Our grader beside the recorded verdicts and the careful reading: a line for each LLM and one for both.

    Args:
        answers: the recorded answers.
        differences: `compare(answers)`, if it is there already.

    Columns, shares of the replies unless a count is said:
      replies (count); by_rule (count): recorded verdicts that `recorded_rule` gives as well.
      same (count), agree: our grader and the recorded verdict are the same. recorded_wrong, ours_wrong (counts): the
      others, by which side is wrong. adjudicated: agreement after this, 1 - ours_wrong / replies.
      both_misread (count): both say wrong, because both take a number of the question for the answer; no part of
      `adjudicated`. careful_wrong (count): both agree, and the careful reading is the one in error.
      recorded_right, ours_right, careful_right: accuracy of the LLM under each reading.
    """
    found, lines = compare(answers) if differences is None else differences, {}
    for name, llms in (*((llm, (llm,)) for llm in answers.replies), ("both", tuple(answers.replies))):
        n, mine = len(answers) * len(llms), found[found.llm.isin(llms)]
        wrong = mine.wrong.value_counts()
        counts = {side: int(wrong.get(side, 0)) for side in ("recorded", "ours", "both", "careful")}
        recorded_right = sum(sum(answers.recorded[llm]) for llm in llms)
        by_rule = sum(right(task, reply, "recorded") == verdict for llm in llms for task, reply, verdict in
                      zip(answers.tasks, answers.replies[llm], answers.recorded[llm], strict=True))
        same = n - int((mine.recorded != mine.ours).sum())
        lines[name] = dict(
            replies=n, by_rule=by_rule, same=same, agree=same / n, recorded_wrong=counts["recorded"],
            ours_wrong=counts["ours"], adjudicated=1 - counts["ours"] / n, both_misread=counts["both"],
            careful_wrong=counts["careful"], recorded_right=recorded_right / n,
            **{f"{reading}_right": (recorded_right + int(mine[reading].sum()) - int(mine.recorded.sum())) / n
               for reading in ("ours", "careful")})
    return pd.DataFrame.from_dict(lines, orient="index")


def by_kind(differences: pd.DataFrame) -> pd.DataFrame:
    """How many replies of each LLM differ for each reason: kind, wrong, llm, replies."""
    counts = differences.groupby(["kind", "wrong", "llm"]).size().rename("replies").reset_index()
    return counts.sort_values(["replies", "kind"], ascending=[False, True], ignore_index=True)
