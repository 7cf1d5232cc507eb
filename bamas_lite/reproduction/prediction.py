"""Prediction intervals for published figures from draws of the simulator, and how many of the figures they hold.

A published figure is a mean over n tasks of its own. What the draws predict for it is spread by

- the parameters, BAMAS's own shift, and the seed: the spread between draws. The draws are means over few
  tasks; the part of their spread that comes from that is known (`accuracy_error`, `cost_error`) and taken out: draws
  are moved toward their mean until their variance is that of the quantity itself;
- what the fit leaves of a row, `fit/row_sd_...`: no parameters of the simulator fit the rows better;
- the sampling of n tasks: binomial for accuracy, the spread of costs between tasks for cost (left out for baselines,
  about a hundredth).

The three are independent. Each draw gives a normal distribution with the last two (cost: of its logarithm), and the
prediction is the mixture of all draws. Baseline rows have entered the fit, so their intervals are in-sample; BAMAS's
rows have not. All that is the same for both; the baselines come from the closed form, without a sampling error of
ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.stats import betabinom, norm

from bamas_lite.inputs import exact, shown, whole
from bamas_lite.reproduction.predicates import LIMITS, PUBLISHED, DrawsError, check_draws, numbers, of_dataset, team
from bamas_lite.reproduction.published import BASELINES, DATASETS, check_published
from bamas_lite.reproduction.tables import check_table

IN_SAMPLE, HELD_OUT, NOT_IDENTIFIED = "in-sample", "held out", "held out, not identified"
"""Kinds of rows; the last: of a team with an LLM that no baseline row of the data set uses."""
KINDS = (IN_SAMPLE, HELD_OUT, NOT_IDENTIFIED)
LEVEL = 0.95

_COLUMN = re.compile(r"(?P<system>[^/]+)/(?P<setting>[^/]+)/accuracy")


def prediction_intervals(draws: pd.DataFrame, published_n: Mapping[str, int] | None = None, *,
                         level: float = LEVEL) -> pd.DataFrame:
    """Where each published row should lie: the 13 of BAMAS and, in-sample, those of the baselines.

    Args:
        draws: from `draws.run_draws`.
        published_n: data set -> tasks behind a published figure; None: the paper's test sizes.
        level: of the intervals.

    Returns:
        dataset, system, setting, kind (in-sample: the fit has seen the row), n_draws, n_tasks; accuracy (percent), its
        standard deviations draws_sd, row_sd and sampling_sd, accuracy_low and accuracy_high; cost (u$, the median), the
        same of its logarithm, cost_low and cost_high; for BAMAS over (mean count over n_tasks), over_low and over_high.

    Raises:
        DrawsError: no draws, one draw twice, a column is missing, or a value is none.
        ValueError: a level that is none, or a data set without a whole number of tasks.
    """
    if not 0 < exact(level, "level") < 1:
        raise ValueError(f"level = {shown(level)}: expected a share between 0 and 1")
    check_draws(draws)
    rows = []
    for name in dict.fromkeys(draws["dataset"]):
        mine, n = of_dataset(draws, name), _n_tasks(published_n, name)
        for system, setting in _settings(mine):
            ours = system == PUBLISHED
            row = {"dataset": name, "system": system, "setting": f"budget {setting}" if ours else setting,
                   "kind": _kind(mine, name, setting) if ours else IN_SAMPLE, "n_draws": len(mine), "n_tasks": n}
            rows.append(row | _predicted(mine, f"{system}/{setting}", n, ours, level))
    return pd.DataFrame(rows)


def _kind(draws: pd.DataFrame, name: str, budget: str) -> str:
    """Of a row of BAMAS: draws of `second_fit` hold what it fitted."""
    if f"BAMAS/budget {budget}/accuracy" in draws.columns[draws.notna().any()]:
        return IN_SAMPLE
    known = DATASETS[name].baseline_llms
    return HELD_OUT if all(slot.llm.name in known for slot in team(name, float(budget)).slots) else NOT_IDENTIFIED


def _n_tasks(published_n: Any, name: str) -> int:
    if published_n is None:
        return DATASETS[name].n_test
    if not isinstance(published_n, Mapping) or name not in published_n:
        raise ValueError(f"published_n = {shown(published_n)}: expected a number of tasks for {name}")
    return whole(published_n[name], f"published_n[{name!r}]", 1)


def _settings(draws: pd.DataFrame) -> list[tuple[str, str]]:
    """(system, setting) of the published rows that these draws hold."""
    found = []
    for column in draws.columns[draws.notna().any()]:
        match = _COLUMN.fullmatch(column)
        if match and match["system"] in (*BASELINES, PUBLISHED):
            found.append((match["system"], match["setting"]))
    if not found:
        raise DrawsError(f"draws: have no column of {PUBLISHED} or a baseline")
    return found


def _predicted(draws: pd.DataFrame, place: str, n: int, simulated: bool, level: float) -> dict[str, float]:
    found: dict[str, float] = {}
    for metric in ("accuracy", "cost"):
        c = _centers(draws, place, metric, n, simulated)
        ends = _ends(c.values, np.hypot(c.row_sd, c.sampling), level)
        if metric == "accuracy":
            values = np.clip([c.values.mean(), *ends], 0, 100)
        else:
            values = np.exp([np.median(c.values), *ends])
        found |= dict(zip((metric, f"{metric}_low", f"{metric}_high"), values.tolist(), strict=True))
        found |= {f"{metric}_draws_sd": c.draws_sd, f"{metric}_row_sd": c.row_sd,
                  f"{metric}_sampling_sd": float(np.sqrt((c.sampling**2).mean()))}
    return found | (_predicted_counts(draws, place, n, level) if simulated else {})


@dataclass(frozen=True)
class _Centers:
    """What each draw predicts (accuracy in percent, log of cost), and the standard deviations around it."""

    values: np.ndarray
    draws_sd: float
    row_sd: float
    sampling: np.ndarray


def _centers(draws: pd.DataFrame, place: str, metric: str, n: int, simulated: bool) -> _Centers:
    """Of a row that was simulated on a part of the tasks, or that the closed form gives."""
    values, error, between = _numbers(draws, f"{place}/{metric}"), np.zeros(len(draws)), np.zeros(len(draws))
    row_sd = float(_numbers(draws, f"fit/row_sd_{metric}").mean())
    if simulated:
        error = _numbers(draws, f"{place}/{metric}_error")
    if metric == "accuracy":
        moved, draws_sd = _without_error(values, error)
        share = np.clip(moved / 100, 0, 1)
        return _Centers(moved, draws_sd, row_sd, 100 * np.sqrt(share * (1 - share) / n))
    if simulated:
        between = _numbers(draws, f"{place}/cost_sd") / values  # the closed form does not say: left out there
    moved, draws_sd = _without_error(np.log(values), error / values)
    return _Centers(moved, draws_sd, row_sd, between / np.sqrt(n))


def _predicted_counts(draws: pd.DataFrame, place: str, n: int, level: float) -> dict[str, float]:
    """Runs above the budget among n: the rate of a draw is known from its own few tasks only (Jeffreys' prior)."""
    m = _numbers(draws, "n_tasks")
    above = np.rint(m * np.clip(_numbers(draws, f"{place}/over") / 100, 0, 1))
    counts = np.arange(n + 1)
    chances = np.mean([betabinom.pmf(counts, n, k + 0.5, of - k + 0.5) for k, of in zip(above, m, strict=True)], axis=0)
    below = chances.cumsum()  # betabinom.cdf would add up anew for each count
    return {"over": float(n * ((above + 0.5) / (m + 1)).mean()),
            **{f"over_{end}": float(counts[np.searchsorted(below, q)])
               for end, q in (("low", (1 - level) / 2), ("high", (1 + level) / 2))}}


def headline_intervals(draws: pd.DataFrame, pairs: Iterable[tuple[str, str, str, str, str]], *,
                       level: float = LEVEL) -> pd.DataFrame:
    """Where a published difference of accuracy and a published saving should lie, BAMAS against a baseline.

    Difference and ratio are taken in each draw, which both share; the errors of both rows and the sampling of both are
    added as if independent.

    Args:
        draws: from `draws.run_draws`.
        pairs: data set, system and setting, and the baseline's system and setting.
        level: of the intervals.

    Returns:
        dataset, system, setting, against; gain (points), gain_low, gain_high; saving (percent of the baseline's cost),
        saving_low, saving_high.

    Raises:
        DrawsError: a column is missing, or a value is none.
    """
    check_draws(draws)
    rows = []
    for name, system, setting, other, other_setting in pairs:
        mine, n = of_dataset(draws, name), DATASETS[name].n_test
        place = f"{system}/{setting.removeprefix('budget ')}"
        row: dict[str, Any] = {"dataset": name, "system": system, "setting": setting,
                               "against": f"{other} {other_setting}"}
        for metric, title in (("accuracy", "gain"), ("cost", "saving")):
            a, b = _centers(mine, place, metric, n, True), _centers(mine, f"{other}/{other_setting}", metric, n, False)
            centers = a.values - b.values
            sd = np.sqrt(a.row_sd**2 + b.row_sd**2 + a.sampling**2 + b.sampling**2)
            found = [float(np.median(centers)), *_ends(centers, sd, level)]
            if title == "saving":
                middle, low, high = (100 * (1 - float(np.exp(log))) for log in found)
                found = [middle, high, low]
            row |= dict(zip((title, f"{title}_low", f"{title}_high"), found, strict=True))
        rows.append(row)
    return pd.DataFrame(rows)


def _numbers(draws: pd.DataFrame, column: str) -> np.ndarray:
    if column not in draws:
        raise DrawsError(f"draws: column {column} is missing")
    return numbers(draws, column)


def _without_error(values: np.ndarray, errors: np.ndarray | float) -> tuple[np.ndarray, float]:
    """The values moved toward their mean, so that their variance is without that of their errors; and its root."""
    if len(values) < 2:
        return values, 0.0
    variance = float(values.var(ddof=1))
    kept = max(0.0, variance - float(np.mean(np.square(errors))))
    scale = np.sqrt(kept / variance) if variance > 0 else 0.0
    return values.mean() + scale * (values - values.mean()), float(np.sqrt(kept))


def _ends(centers: np.ndarray, sds: np.ndarray, level: float) -> tuple[float, float]:
    """The ends of the interval of a mixture of normal distributions, all as likely, with these centers and sds."""
    sds = np.maximum(sds, 1e-12)
    far = norm.isf((1 - level) / 4) * sds.max() + 1e-9

    def at(q: float) -> float:
        return float(brentq(lambda x: norm.cdf(x, centers, sds).mean() - q, centers.min() - far, centers.max() + far))

    return at((1 - level) / 2), at((1 + level) / 2)


def coverage(prediction: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
    """How many published figures lie in their intervals, in-sample and held out side by side.

    Args:
        prediction: from `prediction_intervals`.
        published: from `published.load_published`.

    Returns:
        One row a kind and metric ("accuracy", "cost"): rows, covered, share; error: root mean square of the point
        errors (points; log of the cost ratio); bias: their mean, predicted minus published; width: mean width of the
        intervals (points; ratio of the ends, geometric mean).

    Raises:
        ValueError: a table that cannot be used, or no row of one in the other.
    """
    key = ["dataset", "system", "setting"]
    kinds = {"dataset": DATASETS, "kind": KINDS}
    check_table(prediction, "prediction", texts=(*key, "kind"), key=key, known=kinds,
                numbers={f"{metric}{end}": LIMITS[metric] for metric in ("accuracy", "cost")
                         for end in ("", "_low", "_high")},
                rising=[(f"{metric}_low", f"{metric}_high") for metric in ("accuracy", "cost")])
    check_published(published)
    theirs = published.replace({"system": {"BAMAS": PUBLISHED}})[[*key, "accuracy_percent", "avg_cost_microusd"]]
    both = prediction.merge(theirs, on=key)
    if both.empty:
        raise ValueError("prediction: no row of it is among the published ones (dataset, system, setting)")
    rows = []
    for kind in (kind for kind in KINDS if (both["kind"] == kind).any()):
        for metric, column in (("accuracy", "accuracy_percent"), ("cost", "avg_cost_microusd")):
            columns = [metric, column, f"{metric}_low", f"{metric}_high"]
            ours, published_value, low, high = both.loc[both["kind"] == kind, columns].to_numpy(float).T
            if metric == "cost":
                ours, published_value, low, high = np.log([ours, published_value, low, high])
            inside = (low <= published_value) & (published_value <= high)
            off, width = ours - published_value, (high - low).mean()
            rows.append({"kind": kind, "metric": metric, "rows": len(ours), "covered": int(inside.sum()),
                         "share": inside.mean(), "error": np.sqrt((off**2).mean()), "bias": off.mean(),
                         "width": np.exp(width) if metric == "cost" else width})
    return pd.DataFrame(rows)
