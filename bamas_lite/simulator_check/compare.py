"""What was recorded beside what was predicted: a table of cells, its errors, and the order of the topologies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import kendalltau, t

from bamas_lite.casting import TOPOLOGIES
from bamas_lite.episode import Episode

QUANTITIES = {"accuracy": "correct", "cost": "cost"}
CELL = ["domain", "budget", "topology"]
PREDICTORS = ("predicted", "plain_average", "unfitted")


def compare(recorded: pd.DataFrame, predicted: pd.DataFrame, plain_average: pd.DataFrame, unfitted: pd.DataFrame, *,
            level: float = 0.95, resamples: int = 2000, seed: int = 0) -> pd.DataFrame:
    """What was recorded in a half beside what was predicted for it.

    Args:
        recorded: the log of the half.
        predicted, unfitted: logs of the simulator on its tasks (`predict`), with a fit and without.
        plain_average: the log of the other half.
        level: of both intervals.
        resamples: bootstrap samples of the half's tasks.
        seed: of the bootstrap.

    Returns:
        A row for each domain, budget (u$), topology and quantity ("accuracy": share of right answers, "cost": u$ a
        task): recorded with a bootstrap interval over its tasks and its standard error; predicted with the interval in
        which the mean of such a half falls (mean of the seeds, their spread, Student's t), `covered`: whether the
        recorded mean does; plain_average and unfitted: the means of the two other logs; n_tasks. Cells where no episode
        could be played are left out.
    """
    logs = {"recorded": recorded, "predicted": predicted, "plain_average": plain_average, "unfitted": unfitted}
    groups = {name: dict(list(log[log.status == "ok"].groupby(CELL))) for name, log in logs.items()}
    rows: list[dict[str, Any]] = []
    for cell, rows_b in groups["recorded"].items():
        parts = {name: groups[name].get(cell) for name in PREDICTORS}
        for quantity, column in QUANTITIES.items():
            values = rows_b.groupby("task_id")[column].mean().to_numpy(float)
            draws = np.random.default_rng(seed).multinomial(
                len(values), np.full(len(values), 1 / len(values)), resamples) @ values / len(values)
            low, high = np.quantile(draws, ((1 - level) / 2, (1 + level) / 2))
            row = dict(zip(CELL, cell, strict=True)) | {
                "quantity": quantity, "n_tasks": len(values), "recorded": values.mean(), "recorded_low": low,
                "recorded_high": high, "recorded_se": values.std() / np.sqrt(len(values))}
            row |= {name: np.nan if part is None else float(part[column].astype(float).mean())
                    for name, part in parts.items()}
            most = 1.0 if quantity == "accuracy" else np.inf
            low, high = np.clip(_interval(parts["predicted"], column, level), 0.0, most)
            row |= {"predicted_low": low, "predicted_high": high,
                    "covered": bool(low - 1e-9 <= row["recorded"] <= high + 1e-9)}
            rows.append(row)
    table = pd.DataFrame(rows)
    table["topology"] = pd.Categorical(table.topology, TOPOLOGIES)
    table = table.sort_values(["quantity", *CELL], ignore_index=True).astype({"topology": str})
    columns = ["quantity", *CELL, "n_tasks", "recorded", "recorded_low", "recorded_high", "recorded_se", "predicted",
               "predicted_low", "predicted_high", "covered", "plain_average", "unfitted"]
    return table[columns]


def _interval(part: pd.DataFrame | None, column: str, level: float) -> tuple[float, float]:
    """Where the mean of one more repetition falls."""
    if part is None:
        return np.nan, np.nan
    means = part.astype({column: float}).groupby("seed")[column].mean().to_numpy()
    half = t.ppf((1 + level) / 2, len(means) - 1) * means.std(ddof=1) * np.sqrt(1 + 1 / len(means))
    return means.mean() - half, means.mean() + half


def summary(table: pd.DataFrame, by: Sequence[str] = ()) -> pd.DataFrame:
    """The errors of a comparison: one row for each quantity (and value of the columns `by`).

    Columns: cells; covered, the share of predicted intervals that hold the recorded mean; the mean absolute error of
    each prediction (accuracy: in points of 100; cost: in percent of the recorded cost), and of one number for a whole
    domain, the mean of its plain averages (`domain_mean`); `perfect`: what the error of the true mean would be on
    average, from the half's sampling alone; `bias`: mean of predicted minus recorded; `width` of predicted intervals.
    """
    rows = []
    known = [name for name in (*PREDICTORS, "domain_mean") if name in table or name == "domain_mean"]
    one = [name for name in ("split", "predicted_half", "quantity", "domain") if name in table]
    table = table.assign(domain_mean=table.groupby(one).plain_average.transform("mean"))
    for key, part in table.groupby(["quantity", *by]):
        quantity = key[0]
        scale = 100 / (1 if quantity == "accuracy" else part.recorded)
        row = dict(zip(["quantity", *by], key, strict=True)) | {"cells": len(part), "covered": part.covered.mean()}
        row |= {name: ((part[name] - part.recorded).abs() * scale).mean() for name in known}
        row["perfect"] = (np.sqrt(2 / np.pi) * part.recorded_se * scale).mean()
        row["bias"] = ((part.predicted - part.recorded) * scale).mean()
        row["width"] = ((part.predicted_high - part.predicted_low) * scale).mean()
        rows.append(row)
    return pd.DataFrame(rows)


def rankings(table: pd.DataFrame) -> pd.DataFrame:
    """The order of topologies by accuracy in one comparison, for each domain and budget with at least two of them.

    Columns: best, the recorded best topology (of equals the cheapest); for each prediction its best topology, the share
    of right answers lost by choosing it (`_lost`, in recorded accuracy) and Kendall's tau with the recorded order
    (`_tau`; missing where one of them ranks all alike). Without a prediction: what choosing at random loses on average
    (`random_lost`), and what each fixed topology does (`always_<topology>_lost`).
    """
    accuracy = table[table.quantity == "accuracy"].set_index([*CELL])
    costs = table[table.quantity == "cost"].set_index([*CELL])
    rows = []
    for (domain, budget), part in accuracy.groupby(["domain", "budget"]):
        if len(part) < 2:
            continue
        part, cost = part.loc[(domain, budget)], costs.loc[(domain, budget)]
        chosen = {name: min(part.index, key=lambda place, n=name: (-part[n][place], cost[n][place]))
                  for name in ("recorded", *PREDICTORS)}
        row: dict[str, Any] = {"domain": domain, "budget": budget, "best": chosen["recorded"]}
        for name in PREDICTORS:
            varied = part[name].nunique() > 1 and part.recorded.nunique() > 1
            row |= {name: chosen[name], f"{name}_lost": part.recorded.max() - part.recorded[chosen[name]],
                    f"{name}_tau": kendalltau(part[name], part.recorded).statistic if varied else np.nan}
        row["random_lost"] = part.recorded.max() - part.recorded.mean()
        row |= {f"always_{place}_lost": part.recorded.max() - part.recorded[place] for place in part.index}
        rows.append(row)
    return pd.DataFrame(rows)


def log_of(episodes: Iterable[Episode], seed: int = 0) -> pd.DataFrame:
    """The rows of episodes, as far as `compare` reads them."""
    log = pd.DataFrame([episode.row() for episode in episodes])
    return log.assign(correct=log.correct.astype("boolean"), seed=seed)
