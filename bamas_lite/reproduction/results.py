"""Our result rows: which interval a published figure should lie in, and which fresh rows leave what was committed."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from pathlib import Path

import pandas as pd
from scipy.stats import beta, norm

from bamas_lite.paths import DATA
from bamas_lite.reproduction.predicates import PUBLISHED, team
from bamas_lite.reproduction.published import BASELINES, DATASETS

KEY = ("dataset", "system", "setting")
MEASURED = tuple(f"{metric}{end}" for metric in ("accuracy", "cost") for end in ("", "_low", "_high"))
Interval = tuple[float, float]


def load_results(name: str, folder: str | Path | None = None) -> pd.DataFrame:
    """A result file by its name without the ending, such as "rows" or "draws".

    Args:
        name: of the file.
        folder: where a run of your own wrote it; None: the committed results in data/reproduction.

    Raises:
        ValueError: there is no such file.
    """
    folder = DATA / "reproduction" if folder is None else Path(folder)
    for ending, read in ((".csv", pd.read_csv), (".parquet", pd.read_parquet)):
        if (folder / f"{name}{ending}").is_file():
            return read(folder / f"{name}{ending}")
    there = sorted(path.stem for path in folder.glob("*.*")) if folder.is_dir() else []
    raise ValueError(f"name = {name!r}: no such result in {folder}; there are {', '.join(there) or 'none'}")


def widened(value: float, low: float, high: float, n_ours: float, n_published: float) -> Interval:
    """Our interval of a mean over n_ours tasks as an interval for a mean over n_published other ones.

    Both means scatter: the error of their difference is sqrt(1 + n_ours / n_published) times that of ours.
    """
    factor = sqrt(1 + n_ours / n_published)
    return value - factor * (value - low), value + factor * (high - value)


_COMPARED = (("accuracy", "accuracy", "%"), ("cost", "cost", " u$"), ("over_budget", "over", "%"))


def check_rows(fresh: pd.DataFrame, committed: pd.DataFrame) -> list[str]:
    """Which rows of a fresh, small run leave the interval that the committed rows state: one line each, [] if none.

    A fresh run has a sampling error of its own: its 95% interval, widened so that a false alarm among all comparisons
    stays at 5% (Bonferroni). It must reach the committed interval. Accuracy and out-of-budget counts are compared as
    percent of the tasks; where resampling gives them no width (0 or all of the tasks), the exact binomial interval is
    taken.

    Raises:
        ValueError: a table lacks a column or is empty.
    """
    for name, table in (("fresh", fresh), ("committed", committed)):
        require(table, (*KEY, *MEASURED, "n_tasks", "over_budget", "over_low", "over_high"), name)
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
    return faults


def require(table: pd.DataFrame, columns: Sequence[str], name: str) -> None:
    absent = [column for column in columns if column not in table]
    if absent:
        raise ValueError(f"{name}: column {absent[0]} is missing; the table has {', '.join(map(str, table.columns))}")
    if table.empty:
        raise ValueError(f"{name}: empty; expected at least one row")


class Results:
    """Our rows, with the prediction intervals, by (dataset, system, setting)."""

    def __init__(self, rows: pd.DataFrame, published: pd.DataFrame, paired: pd.DataFrame | None,
                 prediction: pd.DataFrame | None, draws: pd.DataFrame | None,
                 cited: frozenset[tuple[str, str]]) -> None:
        require(rows, (*KEY, *MEASURED, "n_tasks"), "rows")
        self.rows = _by_key(rows, "rows")
        self.prediction: dict[tuple[str, ...], dict] = {}
        if prediction is not None:
            require(prediction, (*KEY, "accuracy_low", "accuracy_high", "cost_low", "cost_high"), "prediction")
            self.prediction = _by_key(prediction.replace({"system": {"BAMAS": PUBLISHED}}), "prediction")
        if paired is not None:
            require(paired, ("dataset", "setting", "system", "against", "accuracy", "accuracy_low", "accuracy_high"),
                     "paired")
        self.published, self.paired, self.draws, self.cited = published, paired, draws, cited
        baselines = published[published["system"].isin(BASELINES)]
        self._seen = set(zip(baselines["dataset"], baselines["llm"], strict=True))

    def interval(self, key: tuple[str, ...], metric: str) -> Interval:
        """Where a published mean over the data set's n_test tasks should lie."""
        if key in self.prediction:
            return tuple(self.prediction[key][f"{metric}_{end}"] for end in ("low", "high"))
        row, n_test = self.rows[key], DATASETS[key[0]].n_test
        return widened(row[metric], row[f"{metric}_low"], row[f"{metric}_high"], row["n_tasks"], n_test)

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


def _by_key(table: pd.DataFrame, name: str) -> dict[tuple[str, ...], dict]:
    twice = table[table.duplicated(list(KEY))]
    for unknown in set(table["dataset"]) - set(DATASETS):
        raise ValueError(f"{name}: dataset = {unknown!r}: expected one of {', '.join(DATASETS)}")
    if len(twice):
        raise ValueError(f"{name}: {', '.join(twice.iloc[0][list(KEY)])} is there twice")
    return {tuple(row[column] for column in KEY): row for row in table.to_dict("records")}
