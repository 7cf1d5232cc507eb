"""Performance-versus-budget curves of systems and the area under them, with intervals from a crossed bootstrap.

AgentBalance reports the area under performance-versus-budget curves (AUC) for token-cost and for latency budgets; the
formulas and the intervals are our reconstruction.

Outcomes are a frame with one row per (method, seed, cost_budget, latency_budget, task_id): the columns COLUMNS. Status
"infeasible" (no system within the budgets, nothing was run) counts as wrong. Status "error" (a technical failure) says
nothing about the method: such tasks are run again, or left out for all methods (`without_errors`).

Seeds are those of training and simulation. Tasks and seeds are resampled independently, the same ones for all methods,
so that differences are paired. With k seeds a percentile interval is narrower than it should be by about
sqrt((k - 1) / k) in what the seeds contribute: a tenth for five.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from bamas_lite.inputs import exact, shown, whole

COLUMNS = ("method", "seed", "cost_budget", "latency_budget", "task_id", "domain", "correct", "status", "cost",
           "latency_s", "n_agents", "n_edges")
"""Budgets in u$ and seconds a task, correct true or false, cost in u$, agents and edges of the executed graph."""

SPEND = {"cost_budget": "cost", "latency_budget": "latency_s"}
"""What a budget limits."""

STATUSES = ("ok", "infeasible", "error")

By = Literal["cost_budget", "latency_budget"]
Scale = Literal["linear", "log"]


def auc(x: Any, y: Any, scale: Scale = "linear") -> Any:
    """Area under y(x) by the trapezoid rule, divided by the width: the mean of y over x.

    Args:
        x: (n,) rising, at least 2; budgets, say.
        y: (..., n) finite, for example accuracies.
        scale: "linear": over x; "log": over log x, where every doubling of a budget counts the same.

    Returns:
        A float, or (...) where y has more axes.

    Raises:
        ValueError: x does not rise or is not positive on the log scale; shapes that do not match.
    """
    return _auc(_rising(x, "x", scale), _numbers(y, "y"))


def best_within(spend: Any, accuracy: Any, grid: Any) -> np.ndarray:
    """The best accuracy at a mean spend of at most B, for each B of a grid; 0 where B pays for no point.

    A step function: nothing was run between two points, so none is interpolated.

    Args:
        spend, accuracy: (..., n) mean spend and accuracy of the same n points (one a budget, say), in any order.
        grid: (k,) spends B.

    Returns:
        (..., k).

    Raises:
        ValueError: shapes that do not match, numbers that are not finite.
    """
    s, a, b = _numbers(spend, "spend"), _numbers(accuracy, "accuracy"), _numbers(grid, "grid")
    if s.shape != a.shape or not s.ndim or not s.size:
        raise ValueError(f"spend and accuracy: shapes {s.shape} and {a.shape}; expected the same, (..., points)")
    if b.ndim != 1 or not b.size:
        raise ValueError(f"grid: shape {b.shape}; expected (k,), at least 1")
    best = np.full((*s.shape[:-1], len(b)), -np.inf)
    for p in range(s.shape[-1]):  # a loop over points keeps the arrays small
        np.maximum(best, np.where(s[..., p, None] <= b, a[..., p, None], -np.inf), out=best)
    return np.where(np.isneginf(best), 0.0, best)


def curves(outcomes: pd.DataFrame, by: By = "cost_budget", *, resamples: int = 2000, seed: int = 0,
           level: float = 0.95) -> pd.DataFrame:
    """Accuracy of each method at each budget, with bootstrap intervals over tasks and seeds.

    Args:
        outcomes: see the module; all methods on the same seeds, budgets and tasks.
        by: the budget that varies; the other one must have one value.
        resamples, seed, level: of the bootstrap and its percentile intervals.

    Returns:
        Columns method, budget, accuracy, low, high, cost (mean u$ a task), latency_s (mean seconds a task), infeasible
        (share of the rows), n_tasks, n_seeds; methods in the order of `outcomes`, budgets rising. Infeasible rows count
        as wrong, and with the cost and latency that they have in the frame (0 where nothing was run).

    Raises:
        ValueError: a column is missing or holds what it should not; rows are missing, doubled or have status "error";
            the other budget has several values.
    """
    cube = _cube(outcomes, by)
    means = cube.means(("correct", "cost", "latency_s", "infeasible"))
    low, high = _interval(cube.resampled(("correct",), resamples, seed)[0], level)
    rows = [{"method": method, "budget": budget, "accuracy": means[0, m, b], "low": low[m, b], "high": high[m, b],
             "cost": means[1, m, b], "latency_s": means[2, m, b], "infeasible": means[3, m, b],
             "n_tasks": cube.values["cost"].shape[1], "n_seeds": cube.values["cost"].shape[0]}
            for m, method in enumerate(cube.methods) for b, budget in enumerate(cube.budgets.tolist())]
    return pd.DataFrame(rows)


def auc_table(outcomes: pd.DataFrame, by: By = "cost_budget", reference: str | None = None, *, scale: Scale = "linear",
              against: Literal["budget", "spend"] = "budget", grid: Any = None, resamples: int = 2000, seed: int = 0,
              level: float = 0.95) -> pd.DataFrame:
    """The area under each method's performance-versus-budget curve, and its difference from a reference, paired.

    Args:
        outcomes, by: as for `curves`; at least two budgets, all finite.
        reference: the method that others are compared with; None: no differences.
        scale: see `auc`.
        against: "budget": accuracy at each budget, whatever was spent of it; "spend": the best accuracy at a mean spend
            of at most B (`best_within`), which credits a method that leaves money or time; found anew in each resample.
        grid: the B of "spend"; None: the budgets.
        resamples, seed, level: of the bootstrap and its percentile intervals.

    Returns:
        Columns method, auc, low, high, and with a reference difference, difference_low, difference_high (0 in its own
        row).

    Raises:
        ValueError: as `curves` and `auc`; an unknown reference or option.
    """
    cube = _cube(outcomes, by)
    if against not in ("budget", "spend"):
        raise ValueError(f"against = {shown(against)}: expected 'budget' or 'spend'")
    if reference is not None and reference not in cube.methods:
        raise ValueError(f"reference = {shown(reference)}: expected one of {', '.join(map(str, cube.methods))}")
    if grid is not None and against == "budget":
        raise ValueError("grid: only with against = 'spend'; curves against the budget are known at the budgets only")
    points = cube.budgets if grid is None else _numbers(grid, "grid")
    x = _rising(points, by if grid is None else "grid", scale)

    def areas(means: np.ndarray) -> np.ndarray:
        return _auc(x, means[0] if against == "budget" else best_within(means[1], means[0], points))

    measures = ("correct", SPEND[by])
    value = areas(cube.means(measures))
    samples = areas(cube.resampled(measures, resamples, seed))
    low, high = _interval(samples, level)
    table = pd.DataFrame({"method": cube.methods, "auc": value, "low": low, "high": high})
    if reference is not None:
        r = cube.methods.index(reference)
        low, high = _interval(samples - samples[:, [r]], level)
        table = table.assign(difference=value - value[r], difference_low=low, difference_high=high)
    return table


def without_errors(outcomes: pd.DataFrame) -> pd.DataFrame:
    """The outcomes of the tasks on which no run of any method failed for a technical reason."""
    _check(outcomes)
    failed = outcomes.loc[outcomes.status == "error", "task_id"].unique()
    return outcomes[~outcomes.task_id.isin(failed)].reset_index(drop=True)


@dataclass(frozen=True)
class _Cube:
    """A complete factorial as arrays (seeds, tasks, methods, budgets), one for each measure."""

    methods: list[Any]
    budgets: np.ndarray
    values: dict[str, np.ndarray]

    def means(self, measures: tuple[str, ...]) -> np.ndarray:
        """(measures, methods, budgets)."""
        return np.stack([self.values[name].mean(axis=(0, 1)) for name in measures])

    def resampled(self, measures: tuple[str, ...], resamples: int, seed: int) -> np.ndarray:
        """`means` of each resample of seeds and tasks: (measures, resamples, methods, budgets).

        A task keeps all its outcomes, and so does a seed.
        """
        y = np.stack([self.values[name] for name in measures], axis=2)
        n_seeds, n_tasks = y.shape[:2]
        n = whole(resamples, "resamples", 1)
        task_rng, seed_rng = np.random.default_rng(whole(seed, "seed")).spawn(2)
        tasks = task_rng.multinomial(n_tasks, np.full(n_tasks, 1 / n_tasks), size=n) / n_tasks
        seeds = seed_rng.multinomial(n_seeds, np.full(n_seeds, 1 / n_seeds), size=n) / n_seeds
        means = sum(seeds[:, s, None] * (tasks @ y[s].reshape(n_tasks, -1)) for s in range(n_seeds))
        return np.moveaxis(means.reshape(n, *y.shape[2:]), 1, 0)


def _cube(outcomes: pd.DataFrame, by: str) -> _Cube:
    """The outcomes in arrays, checked to be one complete factorial."""
    if by not in SPEND:
        raise ValueError(f"by = {shown(by)}: expected {' or '.join(map(repr, SPEND))}")
    _check(outcomes)
    failed = outcomes[outcomes.status == "error"]
    if len(failed):
        raise ValueError(f"outcomes: {len(failed)} rows with status 'error', first {_cell(failed.iloc[0], by)}; "
                         "run these tasks again, or leave them out for all methods: without_errors(outcomes)")
    other = next(name for name in SPEND if name != by)
    if outcomes[other].nunique() > 1:
        values = ", ".join(f"{v:g}" for v in np.unique(outcomes[other]))
        raise ValueError(f"by = {by!r}: outcomes hold several values of {other} ({values}); expected the rows of one")
    keys = ("seed", "task_id", "method", by)
    codes, levels = zip(*(pd.factorize(outcomes[key], sort=key == by) for key in keys), strict=True)
    shape = tuple(map(len, levels))
    place = np.ravel_multi_index(codes, shape)
    count = np.bincount(place, minlength=int(np.prod(shape)))
    if (count > 1).any():
        twice = outcomes.iloc[np.flatnonzero(count[place] > 1)[0]]
        raise ValueError(f"outcomes: more than one row for {_cell(twice, by)}")
    if (count == 0).any():
        first = np.unravel_index(np.flatnonzero(count == 0)[0], shape)
        what = ", ".join(f"{key} {_plain(level[i])}" for key, level, i in zip(keys, levels, first, strict=True))
        raise ValueError(f"outcomes: no row for {what} ({(count == 0).sum():,} of {count.size:,} rows are missing); "
                         "expected every method on the same seeds, budgets and tasks (one domain, if budgets differ)")
    order = np.argsort(place)
    columns = {name: outcomes[name].to_numpy(float) for name in ("cost", "latency_s")}
    ok = (outcomes.status == "ok").to_numpy()
    columns |= {"infeasible": (~ok).astype(float), "correct": (ok & outcomes.correct.eq(True)).to_numpy(float)}
    return _Cube(levels[2].tolist(), levels[3].to_numpy(float),
                 {name: column[order].reshape(shape) for name, column in columns.items()})


def _check(outcomes: Any) -> None:
    """Columns that are there and hold what they should."""
    if not isinstance(outcomes, pd.DataFrame) or not len(outcomes):
        raise ValueError(f"outcomes = {shown(outcomes)}: expected a DataFrame with at least one row")
    absent = [name for name in COLUMNS if name not in outcomes]
    if absent:
        raise ValueError(f"outcomes: no column {', '.join(absent)}; expected {', '.join(COLUMNS)}")
    ok = outcomes.status == "ok"
    finite = {name: pd.to_numeric(outcomes[name], errors="coerce") for name in ("cost", "latency_s", *SPEND)}
    faults = {"status": (~outcomes.status.isin(STATUSES), " or ".join(STATUSES)),
              "correct": (ok & ~outcomes.correct.isin((True, False)), "true or false"),
              **{name: (~(finite[name] > 0), "a positive number") for name in SPEND},
              **{name: ((outcomes.status != "error") & ~((finite[name] >= 0) & np.isfinite(finite[name])),
                        "a finite number of at least 0") for name in SPEND.values()},
              **{name: (outcomes[name].isna(), "a value") for name in ("method", "seed", "task_id")}}
    for name, (wrong, expected) in faults.items():
        if wrong.any():
            i = int(np.flatnonzero(wrong)[0])
            raise ValueError(f"outcomes: row {i}: {name} = {_plain(outcomes[name].iloc[i])}: expected {expected}")


def _cell(row: pd.Series, by: str) -> str:
    return ", ".join(f"{key} {_plain(row[key])}" for key in ("method", "seed", by, "task_id"))


def _plain(value: Any) -> str:
    return shown(value.item() if isinstance(value, np.generic) else value)


def _auc(x: np.ndarray, y: np.ndarray) -> Any:
    if y.shape[-1:] != x.shape:
        raise ValueError(f"y: shape {y.shape}; expected (..., {len(x)}), one value for each x")
    area = np.trapezoid(y, x, axis=-1) / (x[-1] - x[0])
    return area if y.ndim > 1 else float(area)


def _rising(x: Any, what: str, scale: str) -> np.ndarray:
    """The x of an area, as logarithms on the log scale."""
    if scale not in ("linear", "log"):
        raise ValueError(f"scale = {shown(scale)}: expected 'linear' or 'log'")
    points = _numbers(x, what)
    if points.ndim != 1 or len(points) < 2 or not (np.diff(points) > 0).all():
        raise ValueError(f"{what} = {shown(points.tolist())}: expected at least two rising values, the ends of the "
                         "area")
    if scale == "log" and points[0] <= 0:
        raise ValueError(f"{what} = {shown(points.tolist())}: expected positive values, as scale = 'log'")
    return np.log(points) if scale == "log" else points


def _interval(samples: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
    if not 0 < exact(level, "level") < 1:
        raise ValueError(f"level = {shown(level)}: expected a number between 0 and 1")
    low, high = np.quantile(samples, ((1 - float(level)) / 2, (1 + float(level)) / 2), axis=0)
    return low, high


def _numbers(values: Any, what: str) -> np.ndarray:
    """`values` as an array of finite floats."""
    try:
        array = np.asarray(values, float)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{what} = {shown(values)}: expected an array of numbers") from None
    if not np.isfinite(array).all():
        raise ValueError(f"{what} = {shown(values)}: expected finite numbers")
    return array
