"""Performance-versus-budget curves of systems and the area under them, with intervals from a crossed bootstrap.

The abstract names the area under performance-versus-budget curves (AUC), and token-cost and latency budgets; the
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
from decimal import Decimal
from numbers import Real
from typing import Any, Literal

import numpy as np
import pandas as pd

from bamas_lite.agentbalance.arrays import real_numbers
from bamas_lite.inputs import exact, shown, whole

COLUMNS = ("method", "seed", "cost_budget", "latency_budget", "task_id", "domain", "correct", "status", "cost",
           "latency_s", "n_agents", "n_edges")
"""Budgets in u$ and seconds a task, correct true or false, cost in u$, agents and edges of the executed graph."""

SPEND = {"cost_budget": "cost", "latency_budget": "latency_s"}
"""What a budget limits."""

STATUSES = ("ok", "infeasible", "error")

MOST = 1e100
"""The largest number of a curve, up and down: sums and areas then fit a float."""

By = Literal["cost_budget", "latency_budget"]
Scale = Literal["linear", "log"]


def auc(x: Any, y: Any, scale: Scale = "linear") -> Any:
    """Area under y(x) by the trapezoid rule, divided by the width: the mean of y over x.

    Args:
        x: (n,) rising, at least 2, -MOST to MOST; budgets, say.
        y: (..., n), -MOST to MOST, for example accuracies.
        scale: "linear": over x; "log": over log x, where every doubling of a budget counts the same.

    Returns:
        A float, or (...) where y has more axes.

    Raises:
        ValueError: x does not rise or is not positive on the log scale; shapes that do not match; no numbers.
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
        ValueError: shapes that do not match; no numbers, or some that are not from -MOST to MOST.
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


def curves(outcomes: pd.DataFrame, by: By = "cost_budget", reference: str | None = None, *, resamples: int = 2000,
           seed: int = 0, level: float = 0.95) -> pd.DataFrame:
    """Accuracy of each method at each budget, with bootstrap intervals over tasks and seeds.

    Args:
        outcomes: see the module; all methods on the same seeds, budgets and tasks.
        by: the budget that varies; the other one must have one value.
        reference: the method that others are compared with; None: no differences.
        resamples, seed, level: of the bootstrap and its percentile intervals.

    Returns:
        Columns method, budget, accuracy, low, high, cost (mean u$ a task), latency_s (mean seconds a task), infeasible
        (share of the rows), n_tasks, n_seeds; with a reference also difference, difference_low, difference_high (0 in
        its own rows). Methods in the order of `outcomes`, budgets rising. Infeasible rows count as wrong, and with the
        cost and latency that they have in the frame (0 where nothing was run).

    Raises:
        ValueError: a column is missing or holds what it should not; rows are missing, doubled or have status "error";
            the other budget has several values; an unknown reference.
    """
    cube = _cube(outcomes, by)
    means = cube.means(("correct", "cost", "latency_s", "infeasible"))
    samples = cube.resampled(("correct",), resamples, seed)[0]
    low, high = _interval(samples, level)
    rows = [{"method": method, "budget": budget, "accuracy": means[0, m, b], "low": low[m, b], "high": high[m, b],
             "cost": means[1, m, b], "latency_s": means[2, m, b], "infeasible": means[3, m, b],
             "n_tasks": cube.values["cost"].shape[1], "n_seeds": cube.values["cost"].shape[0]}
            for m, method in enumerate(cube.methods) for b, budget in enumerate(cube.budgets.tolist())]
    table = pd.DataFrame(rows)
    if reference is not None:
        r = cube.place(reference)
        low, high = _interval(samples - samples[:, [r]], level)
        table = table.assign(difference=(means[0] - means[0, r]).ravel(), difference_low=low.ravel(),
                             difference_high=high.ravel())
    return table


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
    if not isinstance(against, str) or against not in ("budget", "spend"):
        raise ValueError(f"against = {shown(against)}: expected 'budget' or 'spend'")
    r = None if reference is None else cube.place(reference)
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
    if r is not None:
        low, high = _interval(samples - samples[:, [r]], level)
        table = table.assign(difference=value - value[r], difference_low=low, difference_high=high)
    return table


def without_errors(outcomes: pd.DataFrame) -> pd.DataFrame:
    """The outcomes of the tasks on which no run of any method failed for a technical reason."""
    _checked(outcomes)
    failed = outcomes.loc[outcomes.status == "error", "task_id"].unique()
    return outcomes[~outcomes.task_id.isin(failed)].reset_index(drop=True)


@dataclass(frozen=True)
class _Cube:
    """A complete factorial as arrays (seeds, tasks, methods, budgets), one for each measure."""

    methods: list[Any]
    budgets: np.ndarray
    values: dict[str, np.ndarray]

    def place(self, method: str) -> int:
        """Index of a method."""
        if not (_is_key(method) and method in self.methods):
            raise ValueError(f"reference = {shown(method)}: expected one of {', '.join(map(str, self.methods))}")
        return self.methods.index(method)

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
    if not isinstance(by, str) or by not in SPEND:
        raise ValueError(f"by = {shown(by)}: expected {' or '.join(map(repr, SPEND))}")
    outcomes = _checked(outcomes)
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


def _checked(outcomes: Any) -> pd.DataFrame:
    """The outcomes with costs, latencies and budgets as numbers; columns that are there and hold what they should."""
    if not isinstance(outcomes, pd.DataFrame) or not len(outcomes):
        raise ValueError(f"outcomes = {shown(outcomes)}: expected a DataFrame with at least one row")
    absent = [name for name in COLUMNS if name not in outcomes]
    if absent:
        raise ValueError(f"outcomes: no column {', '.join(absent)}; expected {', '.join(COLUMNS)}")
    twice = [name for name in COLUMNS if list(outcomes.columns).count(name) > 1]
    if twice:
        raise ValueError(f"outcomes: more than one column {', '.join(twice)}; expected one of each")
    numbers = {name: _column(outcomes[name]) for name in ("cost", "latency_s", *SPEND)}
    keys = {name: outcomes[name].map(_is_key).to_numpy(bool) for name in ("method", "seed", "task_id")}
    status = outcomes.status.where(outcomes.status.map(_is_key).to_numpy(bool), None)
    correct = outcomes.correct.where(outcomes.correct.map(_is_key).to_numpy(bool), None)
    faults = {"status": (~status.isin(STATUSES), " or ".join(STATUSES)),
              "correct": ((status == "ok") & ~correct.isin((True, False)), "true or false"),
              **{name: (~(numbers[name] > 0), "a positive number") for name in SPEND},
              **{name: ((status != "error") & ~((numbers[name] >= 0) & (numbers[name] <= MOST)),
                        "a finite number of at least 0") for name in SPEND.values()},
              **{name: (~right, "a value") for name, right in keys.items()}}
    for name, (wrong, expected) in faults.items():
        if wrong.any():
            i = int(np.flatnonzero(wrong)[0])
            raise ValueError(f"outcomes: row {i}: {name} = {_plain(outcomes[name].iloc[i])}: expected {expected}")
    return outcomes.assign(**numbers)


def _column(column: pd.Series) -> np.ndarray:
    """A column as numbers: NaN where none stands, or one that is too large for a float."""
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "iuf":
        return column.to_numpy(float if column.dtype.kind == "f" else None)
    return np.array([_number(value) for value in column])


def _number(value: Any) -> float:
    if not isinstance(value, (Real, Decimal)) or isinstance(value, bool):
        return np.nan
    try:
        return float(value)
    except (OverflowError, ValueError):   # ValueError: a signaling NaN of decimal
        return np.nan


def _is_key(value: Any) -> bool:
    """Whether rows can be grouped by `value`: it is there, and hashable."""
    try:
        hash(value)
    except TypeError:
        return False
    return value is not None and value is not pd.NA and value == value


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
    if not isinstance(scale, str) or scale not in ("linear", "log"):
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
    """`values` as an array of floats from -MOST to MOST."""
    array = real_numbers(values, what)
    if not (np.abs(array) <= MOST).all():
        raise ValueError(f"{what} = {shown(values)}: expected finite numbers, {-MOST:g} to {MOST:g}")
    return array
