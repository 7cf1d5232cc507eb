"""What the paper says about topologies, as tests of topology shares, and in how many draws each holds.

No published row identifies what a critic, a repair or a planner does in the simulator. These parameters are drawn from
ranges; a finding that holds only in some of the draws says something about them, not about BAMAS. The draws table has
one row a draw and data set: `dataset`, the parameters by name, and `<system>/<budget or setting>/<metric>` with metric
accuracy (percent), cost (u$ a task), over (runs above the budget) or share_<topology> (0 to 1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd
from scipy.stats import mannwhitneyu

from bamas_lite.casting import TOPOLOGIES
from bamas_lite.provisioning import Team, provision
from bamas_lite.reproduction.published import DATASETS, dataset
from bamas_lite.reproduction.tables import Number, check_table
from bamas_lite.trajectories import paper_pool

PUBLISHED, OURS = "BAMAS as published", "BAMAS as it should be"
BEST_FIXED = "best fixed topology per budget"
CHOOSERS = (PUBLISHED, OURS, BEST_FIXED)
"""Who chooses topologies: the published policy, ours, and the topology that is right most often at each budget (the
cheaper one of two equals), on the test tasks of the draw themselves: so in part by luck."""

LEAST_DRAWS = 200
ENOUGH = 0.95
"""A finding is reproduced if it holds in at least this share of at least so many draws."""

NOT_PARAMETERS = ("dataset", "draw", "seed", "n_tasks", "n_seeds")
FITTED = ("skill", "completion_tokens", "system_tokens", "system_shift")
"""Parameters that are fitted again in each draw. They follow from those that are drawn, so none of them is named as the
cause, except BAMAS's own shift, which is drawn too."""
_LINEAR, _STAR, _FEEDBACK, _PLANNER = range(len(TOPOLOGIES))

Shares = np.ndarray
"""Shares of the four topologies by draw and budget, budgets rising: (n_draws, n_budgets, 4), each row sums to 1."""


class DrawsError(ValueError):
    """A draws table that cannot be used; the message names the column and the value."""


_PERCENT, _COST, _AT_LEAST_0 = Number(0, 100), Number(0, above=True), Number(0)
LIMITS = {"accuracy": _PERCENT, "over": _PERCENT, "cost": _COST, "accuracy_error": _AT_LEAST_0,
          "cost_error": _AT_LEAST_0, "cost_sd": _AT_LEAST_0, "row_sd_accuracy": _AT_LEAST_0, "row_sd_cost": _AT_LEAST_0}
"""What a quantity may be, by the last part of its column's name; others are finite."""


@lru_cache
def team(name: str, budget: float) -> Team:
    """The paper's team for a data set and a budget (u$): provisioned at 500 prompt and max_tokens completion tokens."""
    return provision(paper_pool(dataset(name).domain), budget, method="lexicographic")


def feedback_leads(shares: Shares) -> np.ndarray:
    """Over all budgets together, Feedback is chosen more often than any other topology."""
    overall = shares.mean(axis=1)
    return overall[:, _FEEDBACK] > np.delete(overall, _FEEDBACK, axis=1).max(axis=1)


def mostly_linear(shares: Shares) -> np.ndarray:
    """Over all budgets together, Linear is chosen for more than half of the tasks."""
    return shares.mean(axis=1)[:, _LINEAR] > 0.5


def simple_when_poor(shares: Shares) -> np.ndarray:
    """At the smallest budget Linear and Star together are chosen for more than half of the tasks, and more often than
    at the largest budget."""
    simple = shares[:, :, [_LINEAR, _STAR]].sum(axis=2)
    return (simple[:, 0] > 0.5) & (simple[:, 0] > simple[:, -1] + 1e-9)


def planner_never(shares: Shares) -> np.ndarray:
    """At every budget the share of Planner-Driven prints as 0.0%: below one task in 2,000."""
    return (shares[:, :, _PLANNER] < 0.0005).all(axis=1)


def near_uniform(shares: Shares) -> np.ndarray:
    """Over all budgets together, no topology is chosen for more than half of the tasks, and Linear, Star and Feedback
    are each chosen for at least a sixth, half of an even third. (Planner-Driven is left out: the paper never
    chooses it.)"""
    overall = shares.mean(axis=1)
    return (overall.max(axis=1) <= 0.5) & (np.delete(overall, _PLANNER, axis=1).min(axis=1) >= 1 / 6)


@dataclass(frozen=True)
class Finding:
    """One statement of the paper about topologies.

    Attributes:
        name: short, for figures.
        claim: in words, as the paper states it.
        datasets: on which it is stated.
        holds: the test, (n_draws, n_budgets, 4) -> (n_draws,); its docstring says in words what is tested.
        quantity: what `measure` measures.
        measure: shares -> the number to show, (n_draws,), 0 to 1.
        pairs_may_plan: False: Planner-Driven is not offered to teams of two, which have no executor for it if the role
            rule is read literally.
    """

    name: str
    claim: str
    datasets: tuple[str, ...]
    holds: Callable[[Shares], np.ndarray]
    quantity: str
    measure: Callable[[Shares], np.ndarray]
    pairs_may_plan: bool = True


def _overall(topology: int) -> Callable[[Shares], np.ndarray]:
    return lambda shares: shares.mean(axis=1)[:, topology]


_NEVER = "Planner-Driven is never chosen"
_EVERYWHERE = ("GSM8K", "MBPP", "MATH")
FINDINGS = (
    Finding("Feedback leads", "Feedback is preferred on mathematical tasks", ("GSM8K", "MATH"), feedback_leads,
            "Feedback, all budgets", _overall(_FEEDBACK)),
    Finding("mostly Linear", "Linear is chosen mostly on code", ("MBPP",), mostly_linear,
            "Linear, all budgets", _overall(_LINEAR)),
    Finding("simple when poor", "tight budgets favor Linear and Star", _EVERYWHERE, simple_when_poor,
            "Linear and Star, smallest minus largest budget",
            lambda shares: shares[:, 0, [_LINEAR, _STAR]].sum(axis=1) - shares[:, -1, [_LINEAR, _STAR]].sum(axis=1)),
    Finding("Planner never", _NEVER, _EVERYWHERE, planner_never,
            "Planner-Driven, all budgets", _overall(_PLANNER)),
    Finding("Planner never, teams of 3 or more", f"{_NEVER} (not offered to teams of two)", _EVERYWHERE, planner_never,
            "Planner-Driven, all budgets", _overall(_PLANNER), pairs_may_plan=False),
    Finding("near-uniform", "the choice among Linear, Star and Feedback is near-uniform", ("GSM8K",), near_uniform,
            "largest share, all budgets", lambda shares: shares.mean(axis=1).max(axis=1)))
"""The statements of the paper about topologies. Numbers that it gives with them (two shares) are claims of their own:
`findings.reproduction_table`."""


def check_draws(draws: pd.DataFrame) -> None:
    """Check that a table has one row a draw and data set, so that no draw counts twice.

    Raises:
        DrawsError: it has not.
    """
    check_table(draws, "draws", texts=("dataset",), numbers={"draw": Number(0, whole=True)}, key=("dataset", "draw"),
                known={"dataset": DATASETS}, error=DrawsError)


def of_dataset(draws: pd.DataFrame, name: str) -> pd.DataFrame:
    """The draws of one data set.

    Raises:
        DrawsError: no table with one row a draw and data set: `dataset` or `draw` is missing, or one is there twice.
        ValueError: no such data set.
    """
    check_draws(draws)
    return draws[draws["dataset"] == dataset(name).name]


def values(draws: pd.DataFrame, system: str, setting: str | float, metric: str) -> np.ndarray:
    """One quantity in each draw, from the column `<system>/<setting>/<metric>`; a budget is written "500".

    Raises:
        KeyError: no such column.
        DrawsError: a value in it is missing or outside `LIMITS`.
    """
    setting = setting.removeprefix("budget ") if isinstance(setting, str) else f"{setting:g}"
    return numbers(draws, f"{system}/{setting}/{metric}")


def numbers(draws: pd.DataFrame, column: str) -> np.ndarray:
    """The numbers of a column, as `values`."""
    try:
        found = draws[column].to_numpy(float)
    except (TypeError, ValueError):
        raise DrawsError(f"draws: {column}: expected a column of numbers") from None
    limits = LIMITS.get(column.rpartition("/")[2], Number())
    if len(wrong := np.flatnonzero(~limits.holds(found))):
        raise DrawsError(f"draws: {column} = {found[wrong[0]]} in row {draws.index[wrong[0]]}: expected {limits}")
    return found


def chosen(draws: pd.DataFrame, name: str, chooser: str, *, pairs_may_plan: bool = True) -> Shares:
    """How often `chooser` takes each topology, by draw and budget.

    Without Planner-Driven for teams of two, a policy's share of it there is dropped and the others are scaled up (which
    of them it would take instead is not known); the best fixed topology is the best of the other three.

    Raises:
        KeyError: a column is missing.
        DrawsError: shares outside 0 to 1, or that do not sum to 1.
    """
    mine, budgets = of_dataset(draws, name), dataset(name).budgets
    pairs = np.array([len(team(name, budget).slots) == 2 for budget in budgets])
    if chooser == BEST_FIXED:
        right, cost = (np.stack([[values(mine, f"always {t}", budget, metric) for t in TOPOLOGIES]
                                 for budget in budgets]).transpose(2, 0, 1) for metric in ("accuracy", "cost"))
        if not pairs_may_plan:
            right[:, pairs, _PLANNER] = -np.inf
        best = np.where(right == right.max(axis=2, keepdims=True), cost, np.inf).argmin(axis=2)
        return np.eye(len(TOPOLOGIES))[best]
    shares = np.stack([[values(mine, chooser, budget, f"share_{t}") for t in TOPOLOGIES]
                       for budget in budgets]).transpose(2, 0, 1)
    wrong = (shares < -1e-9) | (np.abs(shares.sum(axis=2, keepdims=True) - 1) > 1e-3)
    if wrong.any():
        draw, k, t = np.argwhere(wrong)[0]
        raise DrawsError(f"draws: {chooser}/{budgets[k]}/share_{TOPOLOGIES[t]} = {shares[draw, k, t]:g} in row "
                         f"{mine.index[draw]} and the four sum to {shares[draw, k].sum():g}: expected shares that "
                         "sum to 1")
    if not pairs_may_plan:
        shares[:, pairs, _PLANNER] = 0
        total = shares.sum(axis=2, keepdims=True)
        shares = np.divide(shares, total, out=np.zeros_like(shares), where=total > 0)
    return shares


def separating_parameter(draws: pd.DataFrame, holds: Sequence[bool]) -> tuple[str, float] | None:
    """The drawn parameter that tells the draws in which something holds from those in which it does not, and its AUC.

    AUC: the chance that the parameter is larger in a draw in which it holds than in one in which it does not, ties
    counting half; 0.5 separates nothing. The parameter with the AUC farthest from 0.5 is taken, unless chance alone
    would take one as far (two-sided rank test at 5%, divided by the number of parameters): then None.
    """
    holds = np.asarray(holds, bool)
    candidates = []
    for name in draws.columns:
        fitted = name.split(".")[0] in FITTED and name != "system_shift.bamas"
        if name in NOT_PARAMETERS or fitted or "/" in name or not pd.api.types.is_numeric_dtype(draws[name]):
            continue
        values = draws[name].to_numpy(float)
        if np.isfinite(values).all() and np.ptp(values) > 0:
            test = mannwhitneyu(values[holds], values[~holds])
            candidates.append((test.statistic / (holds.sum() * (~holds).sum()), test.pvalue, name))
    if not candidates:
        return None
    auc, p, name = max(candidates, key=lambda candidate: abs(candidate[0] - 0.5))
    return (name, float(auc)) if p * len(candidates) < 0.05 else None


def findings_in_draws(draws: pd.DataFrame) -> pd.DataFrame:
    """In which share of the draws each finding holds: finding, dataset, system, holds, n_draws, and what is measured.

    `measured`, `low` and `high` are the median and the 95% range over draws of `quantity` (0 to 1); `parameter` and
    `auc` come from `separating_parameter`, empty where everything or nothing holds. Where the table lacks the columns
    or has fewer than two draws, `holds` is NaN.
    """
    rows = []
    for finding in FINDINGS:
        for name in finding.datasets:
            for chooser in CHOOSERS:
                mine = of_dataset(draws, name)
                row = {"finding": finding.name, "dataset": name, "system": chooser, "n_draws": len(mine),
                       "quantity": finding.quantity}
                try:
                    shares = chosen(draws, name, chooser, pairs_may_plan=finding.pairs_may_plan)
                except KeyError:
                    shares = np.empty((0, 1, len(TOPOLOGIES)))
                rows.append(row | in_draws(mine, finding.holds(shares), finding.measure(shares))
                            if len(shares) > 1 else row)
    columns = ["finding", "dataset", "system", "holds", "n_draws", "quantity", "measured", "low", "high", "parameter",
               "auc"]
    return pd.DataFrame(rows).reindex(columns=columns)


def in_draws(draws: pd.DataFrame, holds: np.ndarray, measured: np.ndarray) -> dict[str, object]:
    """Summary over draws of a test and a measured number: holds, measured, low, high, parameter, auc."""
    low, middle, high = np.quantile(measured, (0.025, 0.5, 0.975))
    row = {"holds": holds.mean(), "measured": middle, "low": low, "high": high}
    if 0 < holds.mean() < 1 and (found := separating_parameter(draws, holds)):
        row |= {"parameter": found[0], "auc": found[1]}
    return row
