"""Our result rows: which interval a published figure should lie in, and which fresh rows leave what was committed."""

from __future__ import annotations

import re
from math import sqrt
from pathlib import Path
from typing import Any

import pandas as pd
from pyarrow import ArrowException
from scipy.stats import beta, norm

from bamas_lite.inputs import in_folder, shown
from bamas_lite.paths import DATA
from bamas_lite.reproduction.predicates import PUBLISHED, team
from bamas_lite.reproduction.published import BASELINES, DATASETS
from bamas_lite.reproduction.tables import Number, check_table

KEY = ("dataset", "system", "setting")
Interval = tuple[float, float]

_N_TASKS, _PERCENT, _COST = Number(1, whole=True), Number(0, 100), Number(0, above=True)
_COUNT = Number(0, optional=True)
_ROW = {"n_tasks": _N_TASKS, **{f"accuracy{end}": _PERCENT for end in ("", "_low", "_high")},
        **{f"cost{end}": _COST for end in ("", "_low", "_high")}}
_RISING = [("accuracy_low", "accuracy", "accuracy_high"), ("cost_low", "cost", "cost_high"),
           ("over_low", "over_budget", "over_high", "n_tasks")]


def check_results(rows: Any, name: str = "rows", over: Number = _COUNT) -> None:
    """Check our rows: columns, numbers, intervals that hold their value, each (dataset, system, setting) once.

    Args:
        rows: what was handed in.
        name: for the message.
        over: which numbers over_budget, over_low and over_high may be; by default they may be missing.

    Raises:
        ValueError: a table that cannot be used; the message names row, column and value.
    """
    check_table(rows, name, texts=KEY, key=KEY, known={"dataset": DATASETS}, rising=_RISING,
                numbers=_ROW | dict.fromkeys(("over_budget", "over_low", "over_high"), over))


def check_prediction(prediction: Any) -> None:
    """Check prediction intervals; the point estimates and n_tasks may be left out. Raises as `check_results`.

    A point estimate may lie outside its interval: the mean of counts that are 0 in all but a few draws does.
    """
    ends = {f"{metric}_{end}": number for metric, number in (("accuracy", _PERCENT), ("cost", _COST), ("over", _COUNT))
            for end in ("low", "high")}
    points = {"accuracy": Number(0, 100, optional=True), "cost": Number(0, above=True, optional=True), "over": _COUNT,
              "n_tasks": Number(1, whole=True, optional=True)}
    check_table(prediction, "prediction", texts=KEY, key=KEY, known={"dataset": DATASETS}, numbers=ends | points,
                rising=[("accuracy_low", "accuracy_high"), ("cost_low", "cost_high"),
                        ("over_low", "over_high", "n_tasks"), ("over", "n_tasks")])


_PAIR = ("dataset", "setting", "system", "against")


def check_paired(paired: Any) -> None:
    """Check differences of systems, accuracies in points. Raises as `check_results`."""
    check_table(paired, "paired", texts=_PAIR, key=_PAIR, known={"dataset": DATASETS}, rising=_RISING[:1],
                numbers=dict.fromkeys(_RISING[0], Number(-100, 100)))


def load_results(name: str, folder: str | Path | None = None) -> pd.DataFrame:
    """A result file by its name without the ending, such as "rows" or "draws".

    Args:
        name: of the file.
        folder: where a run of your own wrote it; None: the committed results in data/reproduction.

    Raises:
        ValueError: no such folder or file, or a file that cannot be read as a table with rows.
    """
    if not isinstance(name, str) or not re.fullmatch(r"\w[\w-]*", name):
        raise ValueError(f"name = {shown(name)}: expected the name of a result without its ending, such as 'rows'")
    folder = DATA / "reproduction" if folder is None else in_folder(folder, "folder")
    for ending, read in ((".csv", pd.read_csv), (".parquet", pd.read_parquet)):
        path = folder / f"{name}{ending}"
        if path.is_file():
            try:
                table = read(path)
            except (ValueError, OSError, ArrowException) as problem:
                fault = " ".join(str(problem).split())[:120]
                raise ValueError(f"{path}: cannot be read as a table ({fault})") from None
            if table.empty:
                raise ValueError(f"{path}: the table has no rows")
            return table
    there = sorted(path.stem for path in folder.glob("*.*"))
    raise ValueError(f"name = {name!r}: no such result in {folder}; there are {', '.join(there) or 'none'}")


def widened(value: float, low: float, high: float, n_ours: float, n_published: float) -> Interval:
    """Our interval of a mean over n_ours tasks as an interval for a mean over n_published other ones.

    Both means scatter: the error of their difference is sqrt(1 + n_ours / n_published) times that of ours.
    """
    factor = sqrt(1 + n_ours / n_published)
    return value - factor * (value - low), value + factor * (high - value)


_COMPARED = (("accuracy", "accuracy", "%"), ("cost", "cost", " u$"), ("over_budget", "over", "%"))


def check_rows(fresh: pd.DataFrame, committed: pd.DataFrame, *, complete: bool = True) -> list[str]:
    """Which rows of a fresh, small run leave the interval that the committed rows state: one line each, [] if none.

    A fresh run has a sampling error of its own: its 95% interval, widened so that a false alarm among all comparisons
    stays at 5% (Bonferroni). It must reach the committed interval. Accuracy and out-of-budget counts are compared as
    percent of the tasks; where resampling gives them no width (0 or all of the tasks), the exact binomial interval is
    taken.

    Args:
        fresh: the rows of a run.
        committed: those they are compared with, such as `load_results("rows")`.
        complete: the fresh run has all rows of its data sets: a committed one that it lacks is reported.

    Raises:
        ValueError: a table that cannot be used.
    """
    for name, table in (("fresh", fresh), ("committed", committed)):
        check_results(table, name, over=Number(0))
    both = fresh.merge(committed, on=list(KEY), how="left", suffixes=("", "_stated"), indicator="found")
    tail = 0.025 / (len(_COMPARED) * len(both))
    wider = norm.isf(tail) / norm.isf(0.025)
    faults = []
    for row in both.to_dict("records"):
        who = ", ".join(str(row[column]) for column in KEY)
        if row["found"] != "both":
            faults.append(f"{who}: not among the committed rows")
            continue
        for metric, ends, unit in _COMPARED:
            n = row["n_tasks"]
            per, per_stated = (n / 100, row["n_tasks_stated"] / 100) if ends == "over" else (1, 1)
            value, low, high = (row[column] / per for column in (metric, f"{ends}_low", f"{ends}_high"))
            stated_low, stated_high = (row[f"{ends}_{end}_stated"] / per_stated for end in ("low", "high"))
            low, high = value - wider * (value - low), value + wider * (high - value)
            if unit == "%" and low == high:
                k = value * n / 100
                low = min(low, 100 * beta.ppf(tail, k, n - k + 1) if k > 0 else 0)
                high = max(high, 100 * beta.isf(tail, k + 1, n - k) if k < n else 100)
            if not low <= stated_high or not high >= stated_low:
                faults.append(f"{who}: {metric} {value:.4g}{unit}, with its error {low:.4g} to {high:.4g}, leaves the "
                              f"stated {stated_low:.4g} to {stated_high:.4g}")
    if complete:
        there = set(fresh[list(KEY)].itertuples(index=False, name=None))
        wanted = committed.loc[committed["dataset"].isin(fresh["dataset"]), list(KEY)]
        faults += [f"{', '.join(key)}: not among the fresh rows" for key in wanted.itertuples(index=False, name=None)
                   if key not in there]
    return faults


class Results:
    """Our rows, with the prediction intervals, by (dataset, system, setting)."""

    def __init__(self, rows: pd.DataFrame, published: pd.DataFrame, paired: pd.DataFrame | None,
                 prediction: pd.DataFrame | None, headlines: pd.DataFrame | None, draws: pd.DataFrame | None,
                 cited: frozenset[tuple[str, str]]) -> None:
        check_results(rows)
        self.rows = _by_key(rows)
        self.prediction: dict[tuple[str, ...], dict] = {}
        if prediction is not None:
            if isinstance(prediction, pd.DataFrame):
                prediction = prediction.replace({"system": {"BAMAS": PUBLISHED}})
            check_prediction(prediction)
            self.prediction = _by_key(prediction)
        if paired is not None:
            check_paired(paired)
        self.headlines: dict[tuple[str, ...], dict] = {}
        if headlines is not None:
            check_table(headlines, "headlines", texts=(*KEY, "against"), key=(*KEY, "against"),
                        numbers={f"{what}_{end}": Number() for what in ("gain", "saving") for end in ("low", "high")},
                        rising=[(f"{what}_low", f"{what}_high") for what in ("gain", "saving")])
            self.headlines = {tuple(row[c] for c in (*KEY, "against")): row for row in headlines.to_dict("records")}
        self.published, self.paired, self.draws, self.cited = published, paired, draws, cited
        baselines = published[published["system"].isin(BASELINES)]
        self._seen = set(zip(baselines["dataset"], baselines["llm"], strict=True))

    def interval(self, key: tuple[str, ...], metric: str) -> Interval:
        """Where a published mean over the data set's n_test tasks should lie."""
        if key in self.prediction:
            return tuple(self.prediction[key][f"{metric}_{end}"] for end in ("low", "high"))
        row, n_test = self.rows[key], DATASETS[key[0]].n_test
        return widened(row[metric], row[f"{metric}_low"], row[f"{metric}_high"], row["n_tasks"], n_test)

    def headline(self, key: tuple[str, ...], other: tuple[str, ...], what: str) -> Interval | None:
        """Where a published "gain" (points) or "saving" (percent) of a row against another should lie, if predicted."""
        found = self.headlines.get((*key, f"{other[1]} {other[2]}"))
        return None if found is None else (found[f"{what}_low"], found[f"{what}_high"])

    def unidentified(self, dataset: str, setting: str) -> list[str]:
        """The LLMs that run at this setting of the data set and that no baseline row of it uses."""
        if not setting.startswith("budget "):
            return []  # a baseline: its row is the one that fixes its LLM
        llms = {slot.llm.name: None for slot in team(dataset, float(setting.removeprefix("budget "))).slots}
        return [llm for llm in llms if (dataset, llm) not in self._seen]

    def paired_accuracy(self, key: tuple[str, ...], against: str) -> tuple[float, float, float] | None:
        if self.paired is None:
            return None
        dataset, system, setting = key
        found = self.paired[(self.paired["dataset"] == dataset) & (self.paired["system"] == system)
                            & (self.paired["setting"] == setting) & (self.paired["against"] == against)]
        return tuple(found.iloc[0][["accuracy", "accuracy_low", "accuracy_high"]]) if len(found) else None


def _by_key(table: pd.DataFrame) -> dict[tuple[str, ...], dict]:
    return {tuple(row[column] for column in KEY): row for row in table.to_dict("records")}
