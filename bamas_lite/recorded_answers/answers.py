"""Real answers of two large LLMs to GSM8K: loading them, and our grader beside the verdicts that came with them.

The file is `routellm/evals/gsm8k/gsm8k_responses.csv` of the RouteLLM project (see SOURCE; Apache 2.0): one reply of
gpt-4-1106-preview and one of Mixtral-8x7B-Instruct to each of the 1,319 test questions, each with a verdict. It is not
part of this project; only aggregate figures are (`summary.load_summary`).

How they were made is published beside the file (generate_responses.py): eight worked training problems before the
question, temperature 0, at most 1,024 tokens. How the verdicts were made, and what else the replies can be read as, is
in readings.py.
"""

from __future__ import annotations

import csv
import hashlib
import io
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from bamas_lite.grading import Grade, grade
from bamas_lite.inputs import file_path, shown
from bamas_lite.recorded_answers import readings
from bamas_lite.tasks import Task, load_tasks

STRONG, WEAK = "gpt-4-1106-preview", "mistralai/Mixtral-8x7B-Instruct-v0.1"
LLMS = (STRONG, WEAK)
"""The two LLMs as the file names them, the stronger one first."""

LABEL = "recorded gpt-4-1106-preview, Mixtral-8x7B"
"""Goes with every number that is made from the replies."""

SOURCE = "https://github.com/lm-sys/RouteLLM/blob/main/routellm/evals/gsm8k/gsm8k_responses.csv"
FILES = ("gsm8k_responses.csv", "recorded_gsm8k_answers.csv")
"""Names under which the file is looked for in a folder."""
SHA256 = "1f38ed03db354a020f71e92022383dc3cf37bbf2694dea4daaeea7b6c43fe57b"
"""Of the file that the committed summary was computed from."""

_COLUMNS = ("prompt", *LLMS, *(f"{llm}_response" for llm in LLMS))
_VERDICTS = {"True": True, "False": False}
_LARGEST = 1 << 26


class RecordedAnswersError(ValueError):
    """A file of recorded answers that cannot be used; says what was found and what is expected."""


@dataclass(frozen=True)
class RecordedAnswers:
    """Questions with the replies of two LLMs and the verdicts that were recorded with them.

    Attributes:
        tasks: the questions in the order of the file, with reference answers.
        replies: LLM -> its reply to each question.
        recorded: LLM -> the recorded verdict on each reply.
        sha256: checksum of the file.
    """

    tasks: tuple[Task, ...]
    replies: dict[str, tuple[str, ...]]
    recorded: dict[str, tuple[bool, ...]]
    sha256: str

    def __len__(self) -> int:
        return len(self.tasks)

    @property
    def known(self) -> bool:
        """Whether this is the file, bit for bit, that the committed summary was computed from."""
        return self.sha256 == SHA256

    @cached_property
    def grades(self) -> dict[str, tuple[Grade, ...]]:
        """LLM -> our grade of each reply."""
        return {llm: tuple(map(grade, self.tasks, self.replies[llm])) for llm in LLMS}

    @cached_property
    def differences(self) -> pd.DataFrame:
        """Every reply on which not all three verdicts are the same (`readings.compare`)."""
        return readings.compare(self)

    def disagreements(self) -> pd.DataFrame:
        """Every reply on which our grader and the recorded verdict differ: the lines of `differences` with that."""
        return self.differences.query("recorded != ours").reset_index(drop=True)

    def misread(self) -> pd.DataFrame:
        """Every reply on which these two agree and the careful reading does not: the other lines of `differences`."""
        return self.differences.query("recorded == ours").reset_index(drop=True)

    def agreement(self) -> pd.DataFrame:
        """Our grader beside the recorded verdicts and the careful reading (`readings.agreement`)."""
        return readings.agreement(self, self.differences)

    def backend(self) -> Any:
        """A backend that answers a call with the recorded reply to its question (`replay.RecordedReplies`)."""
        from bamas_lite.recorded_answers.replay import RecordedReplies

        return RecordedReplies(self)


def load_recorded_answers(path: str | Path) -> RecordedAnswers:
    """Load the recorded replies of gpt-4-1106-preview and Mixtral-8x7B to the test questions of GSM8K.

    Args:
        path: the folder with the file (either name of FILES) and GSM8K's gsm8k_test.jsonl, or the file in that folder.

    Raises:
        RecordedAnswersError: no such file (the message says where to get it), other columns, a verdict that is neither
            True nor False, an empty reply, or questions that are not those of GSM8K's test split, each once.
        TaskFileError: gsm8k_test.jsonl is missing or broken.
    """
    file = _find(path)
    try:
        content = file.read_bytes()
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RecordedAnswersError(f"{file}: not UTF-8 text ({error.reason})") from None
    except OSError as error:
        raise RecordedAnswersError(f"{file}: cannot be read ({error.strerror})") from None
    before = csv.field_size_limit(_LARGEST)
    try:
        reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        header, rows = reader.fieldnames or [], list(reader)
    except csv.Error as error:
        raise RecordedAnswersError(f"{file}: not readable as CSV ({error})") from None
    finally:
        csv.field_size_limit(before)
    if sorted(header) != sorted(_COLUMNS):
        raise RecordedAnswersError(f"{file}: columns = {shown(header)}: expected {', '.join(_COLUMNS)}")
    questions = _by_question(load_tasks("gsm8k", split="test", path=file.parent), file)
    tasks: dict[str, Task] = {}
    for number, row in enumerate(rows):
        place = f"{file}, row {number}"
        if None in row or None in row.values():
            raise RecordedAnswersError(f"{place}: expected {len(_COLUMNS)} fields")
        task = questions.get(_normal(row["prompt"]))
        if task is None:
            raise RecordedAnswersError(f"{place}: prompt = {shown(row['prompt'], 40)}: is no question of GSM8K's test "
                                       "split")
        if task.task_id in tasks:
            raise RecordedAnswersError(f"{place}: prompt = {shown(row['prompt'], 40)}: stands in an earlier row too")
        for llm in LLMS:
            if row[llm] not in _VERDICTS:
                raise RecordedAnswersError(f"{place}: {llm} = {shown(row[llm])}: expected True or False")
            if not row[f"{llm}_response"].strip():
                raise RecordedAnswersError(f"{place}: {llm}_response is empty: expected a reply")
        tasks[task.task_id] = task
    if len(tasks) != len(questions):
        raise RecordedAnswersError(f"{file}: has {len(tasks):,} questions: expected all {len(questions):,} of GSM8K's "
                                   "test split")
    return RecordedAnswers(tuple(tasks.values()), {llm: tuple(row[f"{llm}_response"] for row in rows) for llm in LLMS},
                           {llm: tuple(_VERDICTS[row[llm]] for row in rows) for llm in LLMS},
                           hashlib.sha256(content).hexdigest())


def _find(path: str | Path) -> Path:
    file = file_path(path, "path", RecordedAnswersError)
    if file.is_file():
        return file
    found = next((file / name for name in FILES if (file / name).is_file()), None)
    if found is None:
        raise RecordedAnswersError(f"path = {shown(str(path))}: no {' or '.join(FILES)} there; it is the file "
                                   f"{SOURCE}; put it into one folder with GSM8K's gsm8k_test.jsonl")
    return found


def _by_question(tasks: list[Task], file: Path) -> dict[str, Task]:
    questions = {_normal(task.question): task for task in tasks}
    if len(questions) != len(tasks):
        raise RecordedAnswersError(f"{file.parent}: two questions of gsm8k_test.jsonl are the same")
    return questions


def _normal(question: str) -> str:
    return " ".join(question.split())
