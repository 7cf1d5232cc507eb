"""Prediction intervals for published figures from draws of the simulator, and how many of the figures they hold.

A published figure is a mean over n tasks of its own. What the draws predict for it is spread by

- the parameters, BAMAS's own factor and shift, and the seed: the spread between draws. The draws are means over few
  tasks; the part of their spread that comes from that is known (`accuracy_error`, `cost_error`) and taken out: draws
  are moved toward their mean until their variance is that of the quantity itself;
- what the fit leaves of a row, `fit/row_sd_...`: no parameters of the simulator fit the rows better;
- the sampling of n tasks: binomial for accuracy, the spread of costs between tasks for cost.

The three are independent. Each draw gives a normal distribution with the last two (cost: of its logarithm), and the
prediction is the mixture of all draws. Baseline rows have entered the fit, so their intervals are in-sample; BAMAS's
rows have not. All that is the same for both; the baselines come from the closed form, without a sampling error of
ours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.stats import binom, norm

from bamas_lite.inputs import exact, shown
from bamas_lite.reproduction.predicates import PUBLISHED, DrawsError
from bamas_lite.reproduction.published import BASELINES, DATASETS, dataset

IN_SAMPLE, HELD_OUT = "in-sample", "held out"
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
        dataset, system, setting, kind ("held out" or "in-sample"), n_draws, n_tasks; accuracy (percent), its standard
        deviations draws_sd, row_sd and sampling_sd, accuracy_low and accuracy_high; cost (u$, the median), the same of
        its logarithm, cost_low and cost_high; for BAMAS over (mean count over n_tasks), over_low and over_high.

    Raises:
        DrawsError: no draws, a column is missing, or a value is not finite.
        ValueError: a level or a number of tasks that is none.
    """
    if not 0 < exact(level, "level") < 1:
        raise ValueError(f"level = {shown(level)}: expected a share between 0 and 1")
    if not len(draws) or "dataset" not in draws:
        raise DrawsError("draws: expected one row a draw and data set")
    rows = []
    for name in dict.fromkeys(draws["dataset"]):
        mine = draws[draws["dataset"] == dataset(name).name]
        n = DATASETS[name].n_test if published_n is None else published_n[name]
        if n < 1:
            raise ValueError(f"published_n[{name!r}] = {n}: expected at least 1")
        for system, setting in _settings(mine):
            held_out = system == PUBLISHED
            row = {"dataset": name, "system": system, "setting": f"budget {setting}" if held_out else setting,
                   "kind": HELD_OUT if held_out else IN_SAMPLE, "n_draws": len(mine), "n_tasks": n}
            rows.append(row | _predicted(mine, f"{system}/{setting}", n, held_out, level))
    return pd.DataFrame(rows)


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


def _predicted(draws: pd.DataFrame, place: str, n: int, held_out: bool, level: float) -> dict[str, float]:
    right = _numbers(draws, f"{place}/accuracy")
    cost = _numbers(draws, f"{place}/cost")
    errors = (0.0, 0.0)
    between = 0.0  # of costs between tasks, relative to the mean: the closed form does not say
    if held_out:
        errors = _numbers(draws, f"{place}/accuracy_error"), _numbers(draws, f"{place}/cost_error") / cost
        between = _numbers(draws, f"{place}/cost_sd") / cost
    centers, draws_sd = _without_error(right, errors[0])
    row_sd = float(_numbers(draws, "fit/row_sd_accuracy").mean())
    share = np.clip(centers / 100, 0, 1)
    sampling = 100 * np.sqrt(share * (1 - share) / n)
    low, high = (float(np.clip(end, 0, 100)) for end in _ends(centers, np.hypot(row_sd, sampling), level))
    found = {"accuracy": float(centers.mean()), "accuracy_draws_sd": draws_sd, "accuracy_row_sd": row_sd,
             "accuracy_sampling_sd": float(np.sqrt((sampling**2).mean())), "accuracy_low": low, "accuracy_high": high}
    centers, draws_sd = _without_error(np.log(cost), errors[1])
    row_sd = float(_numbers(draws, "fit/row_sd_cost").mean())
    sampling = np.full(len(cost), between / np.sqrt(n))
    low, high = _ends(centers, np.hypot(row_sd, sampling), level)
    found |= {"cost": float(np.exp(np.median(centers))), "cost_draws_sd": draws_sd, "cost_row_sd": row_sd,
              "cost_sampling_sd": float(np.sqrt((sampling**2).mean())), "cost_low": float(np.exp(low)),
              "cost_high": float(np.exp(high))}
    if held_out:
        rate = np.clip(_numbers(draws, f"{place}/over") / 100, 0, 1)
        counts = np.arange(n + 1)
        below = np.mean([binom.cdf(counts, n, r) for r in rate], axis=0)
        found |= {"over": float(n * rate.mean()),
                  **{f"over_{end}": float(counts[np.searchsorted(below, q)])
                     for end, q in (("low", (1 - level) / 2), ("high", (1 + level) / 2))}}
    return found


def _numbers(draws: pd.DataFrame, column: str) -> np.ndarray:
    if column not in draws:
        raise DrawsError(f"draws: column {column} is missing")
    values = draws[column].to_numpy(float)
    if not np.isfinite(values).all():
        raise DrawsError(f"draws: {column} = {values[~np.isfinite(values)][0]}: expected a number")
    return values


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
    """
    key = ["dataset", "system", "setting"]
    theirs = published.replace({"system": {"BAMAS": PUBLISHED}})[[*key, "accuracy_percent", "avg_cost_microusd"]]
    both = prediction.merge(theirs, on=key)
    rows = []
    for kind in (IN_SAMPLE, HELD_OUT):
        for metric, column in (("accuracy", "accuracy_percent"), ("cost", "avg_cost_microusd")):
            columns = [metric, column, f"{metric}_low", f"{metric}_high"]
            ours, published_value, low, high = both.loc[both["kind"] == kind, columns].to_numpy(float).T
            if metric == "cost":
                ours, published_value, low, high = np.log([ours, published_value, low, high])
            row = {"kind": kind, "metric": metric, "rows": len(ours)}
            if len(ours):
                inside = (low <= published_value) & (published_value <= high)
                off, width = ours - published_value, (high - low).mean()
                row |= {"covered": int(inside.sum()), "share": inside.mean(), "error": np.sqrt((off**2).mean()),
                        "bias": off.mean(), "width": np.exp(width) if metric == "cost" else width}
            rows.append(row)
    return pd.DataFrame(rows)
