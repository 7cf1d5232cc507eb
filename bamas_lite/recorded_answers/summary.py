"""The aggregate figures of the recorded GSM8K answers, committed for readers without the file, and the command for it.

`python -m bamas_lite.recorded_answers --benchmarks FOLDER` computes them; no text of the benchmark is in them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from bamas_lite.inputs import command, file_path, in_folder
from bamas_lite.paths import BUILD, DATA
from bamas_lite.recorded_answers.answers import (
    FILES,
    LABEL,
    SOURCE,
    RecordedAnswers,
    RecordedAnswersError,
    load_recorded_answers,
)
from bamas_lite.recorded_answers.cascades import cascade_table
from bamas_lite.recorded_answers.readings import KINDS, READINGS, by_kind
from bamas_lite.recorded_answers.replay import price_note

SUMMARY_LABEL = f"{LABEL}, summary computed on the full file"
SUMMARY = DATA / "recorded" / "gsm8k_answers_summary.json"
_TABLES = ("agreement", "kinds", "table")


def load_summary(path: str | Path = SUMMARY) -> dict[str, Any]:
    """The aggregate figures of the full file: label, source, sha256, questions, prices, and three DataFrames.

    `agreement`: `RecordedAnswers.agreement()`; `kinds`: replies by kind of difference and LLM
    (`readings.by_kind`); `table`: `cascade_table` under each reading, which its first column names.

    Raises:
        RecordedAnswersError: no such file, or no summary.
    """
    file = file_path(path, "path", RecordedAnswersError)
    try:
        summary = json.loads(file.read_text(encoding="utf-8"))
        tables = {name: pd.DataFrame(summary[name]) for name in _TABLES}
        tables["agreement"] = tables["agreement"].set_index("llm").rename_axis(None)
        return {**summary, **tables}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecordedAnswersError(f"{file}: is no summary of recorded answers ({error})") from None


def summarize(answers: RecordedAnswers) -> dict[str, Any]:
    """What `load_summary` returns, computed from the file."""
    tables = []
    for reading in READINGS:
        table = cascade_table(answers, reading=reading)
        table.insert(0, "reading", reading)
        tables.append(table)
    return {"label": SUMMARY_LABEL, "source": SOURCE, "sha256": answers.sha256, "questions": len(answers),
            "prices": price_note(), "agreement": answers.agreement(), "kinds": by_kind(answers.differences),
            "table": pd.concat(tables, ignore_index=True)}


def write_summary(summary: dict[str, Any], path: Path) -> None:
    """Write what `load_summary` reads, a line for each row: shares and intervals with six decimals, costs with one."""
    rest = {name: value for name, value in summary.items() if name not in _TABLES}
    tables = {**{name: summary[name] for name in _TABLES},
              "agreement": summary["agreement"].rename_axis("llm").reset_index()}
    rows = {name: ",\n  ".join(json.dumps(_rounded(row)) for row in table.to_dict("records"))
            for name, table in tables.items()}
    lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in rest.items()]
    lines += [f"{json.dumps(name)}: [\n  {text}\n ]" for name, text in rows.items()]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{\n " + ",\n ".join(lines) + "\n}\n", encoding="utf-8")


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    return {name: (None if value != value else round(value, 1 if name == "cost" else 6))
            if isinstance(value, float) else value for name, value in row.items()}


@command
def main(arguments: Sequence[str] | None = None) -> int:
    """Recorded GSM8K answers of GPT-4 and Mixtral: our grader against their verdicts, and what a cascade makes of them.
    """
    parser = argparse.ArgumentParser(prog="python -m bamas_lite.recorded_answers", description=main.__doc__)
    parser.add_argument("--benchmarks", required=True, help=f"folder with {FILES[0]} (from {SOURCE}) and "
                        "gsm8k_test.jsonl")
    parser.add_argument("--summary", default=BUILD / SUMMARY.name, type=Path,
                        help="file for the aggregate figures (default %(default)s)")
    options = parser.parse_args(arguments)
    answers = load_recorded_answers(in_folder(options.benchmarks, "--benchmarks"))
    summary = summarize(answers)
    write_summary(summary, options.summary)
    print(f"{LABEL}: {len(answers):,} questions; sha256 {answers.sha256[:16]}..., "
          f"{'the' if answers.known else 'NOT the'} file of the committed summary")
    print(f"\nRecorded verdicts, our grader and the careful reading\n{_text(summary['agreement'].T)}")
    print(f"\nOur grader and a recorded verdict disagree: every one\n{_text(answers.disagreements(), 'explanation')}")
    print(f"\nThese two agree, the careful reading does not\n{_text(answers.misread(), 'explanation')}")
    print("\n".join(["", *(f"{kind}: {why}" for kind, (_, why) in KINDS.items()), ""]))
    print(f"Accuracy and cost (u$ per question) on the held-out half; {summary['prices']}\n{_text(summary['table'])}")
    print(f"\nwritten: {options.summary}")
    return 0


def _text(table: pd.DataFrame, without: str = "") -> str:
    shown = table.drop(columns=[without] if without else []).round(6)
    return shown.to_string(index=not isinstance(shown.index, pd.RangeIndex), na_rep="", float_format=lambda number: (
        f"{number:,.1f}" if abs(number) > 1 and number % 1 else f"{number:.4f}" if number % 1 else f"{number:,.0f}"))
