"""What the BAMAS paper publishes as numbers (arXiv 2511.21572v1): result rows, out-of-budget counts, topology shares.

The figures are typed into three small files under data/; each line names its table. The paper gives single points: no
interval, no repeated seed. Reading is strict: a typing slip in a file is one message with file, row and value.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from bamas_lite.casting import TOPOLOGIES
from bamas_lite.inputs import exact, file_path, shown
from bamas_lite.paths import DATA

SYSTEMS = ("AutoGen", "MetaGPT", "ChatDev", "Naive-CostAware", "BAMAS")
BASELINES = SYSTEMS[:-1]
"""The systems whose rows may enter a fit; the rows of BAMAS are held out."""
LLMS = ("DeepSeek-V3", "GPT-4.1 nano")
"""The two LLMs of every experiment, strongest first."""
LEVELS = range(1, 6)
"""Li of Naive-CostAware: i + 1 agents of one LLM in a chain."""


class PublishedFileError(ValueError):
    """Published figures that cannot be used; the message names the file or table, the row and the value."""


@dataclass(frozen=True)
class Dataset:
    """What the paper says about one of its data sets.

    Attributes:
        name: as in the paper.
        domain: one of `tasks.DOMAINS`.
        own_tasks: our own task set of that domain (`load_tasks`, `bamas_lite.generators`).
        real_tasks: what `load_tasks` calls the real benchmark.
        budgets: u$ a task, rising.
        n_train, n_test: how many tasks the paper trains and tests on.
        llms: the pool of BAMAS, strongest first.
        baseline_llms: those with which baselines are published: no published row tells a fit about any other.
    """

    name: str
    domain: str
    own_tasks: str
    real_tasks: str
    budgets: tuple[int, ...]
    n_train: int
    n_test: int
    llms: tuple[str, ...] = LLMS
    baseline_llms: tuple[str, ...] = LLMS


DATASETS = {d.name: d for d in (
    Dataset("GSM8K", "arithmetic", "word_problems", "gsm8k", (500, 875, 1250, 1625, 2000), 1000, 1319),
    Dataset("MBPP", "code", "python_functions", "mbpp", (500, 875, 1250, 1625, 2000), 374, 500),
    Dataset("MATH", "mathematics", "algebra_calculus", "math", (1000, 2000, 3000), 1000, 1000,
            baseline_llms=LLMS[1:]))}
"""The paper's three data sets. One sentence of the paper says 1650 where its tables say 1625."""


def dataset(name: str) -> Dataset:
    """The data set of that name.

    Raises:
        ValueError: no such data set.
    """
    if not isinstance(name, str) or name not in DATASETS:
        raise ValueError(f"dataset = {shown(name)}: expected one of {', '.join(DATASETS)}")
    return DATASETS[name]


def load_published(path: str | Path | None = None) -> pd.DataFrame:
    """The paper's result rows (Tables 1, 2 and 4), in the order of the file.

    Args:
        path: a CSV file with the columns of data/paper_results.csv, for example a copy with another figure; None: that.

    Returns:
        Columns dataset, system, setting, avg_cost_microusd (u$ a task), accuracy_percent, source; beside those of the
        file `budget` (u$; only where the setting is one) and `llm` (only where the setting names one).

    Raises:
        PublishedFileError: a missing column, an empty file, an unknown data set, system or setting, a cost that is not
            positive, a percentage outside 0 to 100, a row given twice.
    """
    table = _read(path, "paper_results.csv", _PUBLISHED)
    budgets = table.setting.str.extract(r"^budget (\d+)$")[0].astype(float)
    table["budget"] = budgets
    table["llm"] = [None if is_budget else re.sub(r"^L\d ", "", setting)
                    for is_budget, setting in zip(budgets.notna(), table.setting, strict=True)]
    return table


def load_counts(path: str | Path | None = None) -> pd.DataFrame:
    """How many test runs of BAMAS cost more than their budget: dataset, budget, out_of_budget, n_tasks, source.

    Raises:
        PublishedFileError: as `load_published`; also a budget that the data set does not have, a count that is not a
            whole number from 0 to n_tasks.
    """
    return _read(path, "paper_counts.csv", _COUNTS).astype({"out_of_budget": int, "n_tasks": int})


def load_shares(path: str | Path | None = None) -> pd.DataFrame:
    """The topology shares that the paper gives as numbers: dataset, topology, share_percent, source.

    Its Figure 3 shows more, but only as a picture. We read each as the share over all test tasks and budgets.

    Raises:
        PublishedFileError: as `load_published`.
    """
    return _read(path, "paper_shares.csv", _SHARES)


def check_published(table: Any) -> None:
    """Check rows that are handed in as `load_published` returns them, changed or not.

    Raises:
        PublishedFileError: as `load_published`, or something else than such a table.
    """
    _check(table, "published", _PUBLISHED, load_published, derived=("budget", "llm"))


def check_counts(table: Any) -> None:
    """Check counts as `load_counts` returns them; raises as `check_published`."""
    _check(table, "counts", _COUNTS, load_counts)


def check_shares(table: Any) -> None:
    """Check shares as `load_shares` returns them; raises as `check_published`."""
    _check(table, "shares", _SHARES, load_shares)


def _check(table: Any, name: str, kind: _Kind, load: Callable[..., pd.DataFrame], derived: Sequence[str] = ()) -> None:
    how = f"; use {load.__name__}(path) to read a file"
    if not isinstance(table, pd.DataFrame):
        raise PublishedFileError(f"{name} = {' '.join(shown(table).split())}: expected a DataFrame{how}")
    _require(list(table.columns), (*kind.columns, *derived), name, how)
    if table.empty:
        raise PublishedFileError(f"{name}: empty; expected at least one row")
    kind.read((f"{name}, row {place}", row) for place, row in enumerate(table.to_dict("records")))


def _require(header: list[Any], columns: Iterable[str], where: str, hint: str) -> None:
    for column in columns:
        if header.count(column) != 1:
            fault = "there twice" if column in header else "missing"
            raise PublishedFileError(f"{where}: column {column} is {fault}{hint}")


Reader = Callable[[Mapping[str, Any], str], Any]
"""Reads one field of a row: (row, column) -> value. ValueError says what would be valid."""


@dataclass(frozen=True)
class _Kind:
    """One of the three kinds of tables: how each column is read, in this order, and which columns name a row."""

    columns: Mapping[str, Reader]
    key: tuple[str, ...]

    def read(self, rows: Iterable[tuple[str, Mapping[str, Any]]]) -> list[dict[str, Any]]:
        """The values of (where, fields) rows; one `PublishedFileError` for the first fault."""
        found: dict[tuple[Any, ...], dict[str, Any]] = {}
        for where, row in rows:
            values = {}
            for column, read in self.columns.items():
                try:
                    values[column] = read(row, column)
                except ValueError as problem:
                    raise PublishedFileError(f"{where}: {column} = {shown(row[column])}: expected {problem}") from None
            name = tuple(values[column] for column in self.key)
            if name in found:
                raise PublishedFileError(f"{where}: {', '.join(f'{c} = {values[c]}' for c in self.key)} is given twice")
            found[name] = values
        return list(found.values())


def _read(path: str | Path | None, standard: str, kind: _Kind) -> pd.DataFrame:
    """The file as a table of the given columns, every field checked; one `PublishedFileError` for the first fault."""
    file = DATA / standard if path is None else file_path(path, "path", PublishedFileError)
    try:
        lines = list(csv.reader(file.read_text(encoding="utf-8-sig").splitlines(), strict=True))
    except OSError as problem:
        raise PublishedFileError(f"{file}: cannot be read ({problem.strerror})") from None
    except (UnicodeDecodeError, csv.Error) as problem:
        raise PublishedFileError(f"{file}: not readable as CSV in UTF-8 ({problem})") from None
    header, body = (lines[0], lines[1:]) if lines else ([], [])
    if not any(body):
        raise PublishedFileError(f"{file}: empty; expected a header and at least one row of {', '.join(kind.columns)}")
    _require(header, kind.columns, str(file), f"; the file has {', '.join(header)}")

    def rows() -> Iterator[tuple[str, dict[str, str]]]:
        for number, fields in enumerate(body, 2):
            if fields and len(fields) != len(header):
                raise PublishedFileError(f"{file}, row {number}: {len(fields)} fields {shown(fields)}; "
                                         f"expected {len(header)}")
            if fields:
                yield f"{file}, row {number}", dict(zip(header, fields, strict=True))

    table = pd.DataFrame(kind.read(rows()))
    return table[[column for column in header if column in kind.columns]]


def _one_of(names: Any) -> Reader:
    def read(row: Mapping[str, Any], column: str) -> str:
        if not isinstance(row[column], str) or row[column] not in names:
            raise ValueError("one of " + ", ".join(names))
        return row[column]
    return read


def _number(valid: str, holds: Callable[[float], bool]) -> Reader:
    def read(row: Mapping[str, Any], column: str) -> float:
        try:
            value = float(exact(row[column]))
        except ValueError:
            raise ValueError(valid) from None
        if not holds(value):
            raise ValueError(valid)
        return value
    return read


def _whole(least: float, most: float = float("inf")) -> Callable[[float], bool]:
    return lambda value: value.is_integer() and least <= value <= most


_percent = _number("a percentage from 0 to 100", lambda value: 0 <= value <= 100)


def _count(row: Mapping[str, Any], column: str) -> float:
    most = row["n_tasks"]
    return _number(f"a whole number from 0 to n_tasks = {most}", _whole(0, float(most)))(row, column)


def _budget(row: Mapping[str, Any], column: str) -> float:
    budgets = DATASETS[row["dataset"]].budgets
    return _number("a budget of the data set: " + ", ".join(map(str, budgets)), budgets.__contains__)(row, column)


def _setting(row: Mapping[str, Any], column: str) -> str:
    """What the data set and the system of the row allow; these two have been read before."""
    data, system = DATASETS[row["dataset"]], row["system"]
    if system == "BAMAS":
        return _one_of([f"budget {budget}" for budget in data.budgets])(row, column)
    if system == "Naive-CostAware":
        return _one_of([f"L{i} {llm}" for llm in LLMS for i in LEVELS])(row, column)
    return _one_of(LLMS)(row, column)


def _text(row: Mapping[str, Any], column: str) -> str:
    if not isinstance(row[column], str) or not row[column].strip():
        raise ValueError("the table that the figures come from")
    return row[column]


_PUBLISHED = _Kind(key=("dataset", "system", "setting"), columns={
    "dataset": _one_of(DATASETS), "system": _one_of(SYSTEMS), "setting": _setting,
    "avg_cost_microusd": _number("a cost above 0 u$", lambda v: v > 0), "accuracy_percent": _percent,
    "source": _text})
_COUNTS = _Kind(key=("dataset", "budget"), columns={
    "dataset": _one_of(DATASETS), "budget": _budget, "n_tasks": _number("a whole number from 1", _whole(1)),
    "out_of_budget": _count, "source": _text})
_SHARES = _Kind(key=("dataset", "topology"), columns={
    "dataset": _one_of(DATASETS), "topology": _one_of(TOPOLOGIES), "share_percent": _percent, "source": _text})
