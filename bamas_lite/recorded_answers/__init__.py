"""Real answers of two large LLMs to GSM8K, recorded by others: their verdicts against our grader's, and cascades."""

from bamas_lite.recorded_answers.answers import LLMS, RecordedAnswers, RecordedAnswersError, load_recorded_answers
from bamas_lite.recorded_answers.cascades import cascade_table
from bamas_lite.recorded_answers.readings import KINDS
from bamas_lite.recorded_answers.summary import load_summary, summarize

__all__ = ["KINDS", "LLMS", "RecordedAnswers", "RecordedAnswersError", "cascade_table", "load_recorded_answers",
           "load_summary", "summarize"]
