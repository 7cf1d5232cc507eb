"""Two summaries of outcomes in arrays: the area under an accuracy-cost frontier, and which stage a gain comes from.

Arrays start with the axes (n_seeds, n_tasks). Intervals are percentile bootstrap intervals over tasks and, where there
are several, seeds; whatever is compared is compared on the same resamples.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from bamas_lite.inputs import exact, shown, whole
from bamas_lite.reproduction.checks import numbers

Points = tuple[Any, Any]
"""Accuracy and cost (u$ a task) of the same points."""


def resampled_means(values: Any, *, resamples: int = 2000, seed: int = 0) -> np.ndarray:
    """Means over resampled seeds and tasks: (n_seeds, n_tasks, ...) -> (resamples, ...).

    The resamples depend on `seed` and the two sizes only, so that two arrays of one shape stay paired.

    Raises:
        ValueError: fewer than two axes, an empty one, values that are not finite, or a seed or a number of resamples
            that is none.
    """
    y = numbers(values, "values")
    if y.ndim < 2 or not y.size:
        raise ValueError(f"values: shape {y.shape}; expected (n_seeds, n_tasks, ...), at least 1 of each")
    resamples, seed = whole(resamples, "resamples", 1), whole(seed, "seed")
    n_seeds, n_tasks = y.shape[:2]
    task_rng, seed_rng = np.random.default_rng(seed).spawn(2)
    tasks = task_rng.multinomial(n_tasks, np.full(n_tasks, 1 / n_tasks), size=resamples) / n_tasks
    seeds = seed_rng.multinomial(n_seeds, np.full(n_seeds, 1 / n_seeds), size=resamples) / n_seeds
    means = sum(seeds[:, s, None] * (tasks @ y[s].reshape(n_tasks, -1)) for s in range(n_seeds))
    return means.reshape(resamples, *y.shape[2:])


def interval(samples: np.ndarray, level: float = 0.95) -> tuple[float, float]:
    """The percentile interval of resampled values (resamples,).

    Raises:
        ValueError: a level that is no number between 0 and 1.
    """
    if not 0 < exact(level, "level") < 1:
        raise ValueError(f"level = {shown(level)}: expected a number between 0 and 1")
    level = float(level)
    low, high = np.quantile(samples, ((1 - level) / 2, (1 + level) / 2))
    return float(low), float(high)


def step_area(accuracy: Any, cost: Any, low: Any, high: Any) -> np.ndarray:
    """Area under the frontier between two spends, divided by its width: the mean over B of the best accuracy for <= B.

    The frontier is a step function: f(B) = the best accuracy of all points that cost at most B, and 0 where B pays for
    none of them. No point is interpolated: between two budgets nothing was run.

    Args:
        accuracy, cost: of the points, (..., n_points); cost in u$ a task.
        low, high: the window, u$ a task; numbers or arrays (...).

    Raises:
        ValueError: shapes that do not match, values that are not finite, or a window without width.
    """
    a, c, low, high = (numbers(values, what) for values, what in (
        (accuracy, "accuracy"), (cost, "cost"), (low, "low"), (high, "high")))
    if a.shape != c.shape or not a.ndim or not a.size:
        raise ValueError(f"accuracy and cost: shapes {a.shape} and {c.shape}; expected the same, (..., n_points)")
    for end, name in ((low, "low"), (high, "high")):
        if end.shape not in ((), a.shape[:-1]):
            raise ValueError(f"{name}: shape {end.shape}; expected a number or {a.shape[:-1]}")
    low, high = np.broadcast_to(low, a.shape[:-1])[..., None], np.broadcast_to(high, a.shape[:-1])[..., None]
    empty = low >= high
    if empty.any():
        raise ValueError(f"low = {low[empty][0].item()!r}, high = {high[empty][0].item()!r}: expected low < high, the "
                         "window of spends")
    order = np.argsort(c, axis=-1, kind="stable")
    best = np.maximum.accumulate(np.take_along_axis(a, order, -1), axis=-1)
    from_cost = np.clip(np.take_along_axis(c, order, -1), low, high)
    to_cost = np.concatenate([from_cost[..., 1:], high], axis=-1)
    return (best * (to_cost - from_cost)).sum(axis=-1) / (high - low)[..., 0]


def frontier_area(systems: Mapping[str, Points], *, against: str | None = None,
                  fixed: Mapping[str, Points] | None = None, window: tuple[float, float] | None = None,
                  resamples: int = 2000, seed: int = 0, level: float = 0.95) -> pd.DataFrame:
    """The area under the accuracy-cost frontier of each system (`step_area`), with bootstrap intervals.

    The best of several noisy points looks better than it is; that holds for every system here, and more for one with
    more points.

    Args:
        systems: name -> (correct, cost), each (n_seeds, n_tasks, n_points): one point a budget, say.
        against: report also each system's difference from this one, on the same resamples.
        fixed: name -> (accuracy, cost), each (n_points,): published points; no interval and, as they are of other
            tasks, no difference.
        window: spends (low, high) in u$ a task; None: from where every system can afford its cheapest point to the
            dearest point of any, found anew in every resample.
        resamples, seed, level: of the bootstrap.

    Returns:
        Columns system, area, area_low, area_high, difference, difference_low, difference_high, window_low, window_high
        (of the full sample), n_points.

    Raises:
        ValueError: no system, an unknown `against`, shapes that do not match, values that are not finite, a window
            without width, an option that makes no sense.
    """
    if not isinstance(systems, Mapping) or not systems:
        raise ValueError(f"systems = {shown(systems)}: expected name -> (correct, cost), at least one")
    if window is not None:
        ends = numbers(window, "window")
        if ends.shape != (2,) or not ends[0] < ends[1]:
            raise ValueError(f"window = {shown(window)}: expected (low, high) in u$ a task, low < high")
    if against is not None and against not in systems:
        raise ValueError(f"against = {shown(against)}: expected one of {', '.join(systems)}")
    points = {}
    sizes = {}
    for name, pair in systems.items():
        y = _points(pair, f"systems[{name!r}]", ("n_seeds", "n_tasks", "n_points"))
        sizes[name] = y[0].shape[:2]
        # Index 0 is the full sample, the resamples follow.
        points[name] = [np.concatenate([v.mean(axis=(0, 1))[None], resampled_means(v, resamples=resamples, seed=seed)])
                        for v in y]
    if len(set(sizes.values())) > 1:
        raise ValueError(f"systems: numbers of seeds and tasks differ: {sizes}; they are compared on the same ones")
    for name, pair in (fixed or {}).items():
        points[name] = [np.broadcast_to(v, (resamples + 1, len(v)))
                        for v in _points(pair, f"fixed[{name!r}]", ("n_points",))]
    if window is None:
        low = np.max([cost.min(axis=1) for _, cost in points.values()], axis=0)
        high = np.max([cost.max(axis=1) for _, cost in points.values()], axis=0)
        if (low >= high).any():
            raise ValueError("window = None: the points cost too much the same to leave a window of spends; give more "
                             "of them (budgets, say), or window = (low, high)")
    else:
        low, high = (np.full(resamples + 1, end) for end in ends)
    areas = {name: step_area(accuracy, cost, low, high) for name, (accuracy, cost) in points.items()}
    rows = []
    for name, area in areas.items():
        row = {"system": name, "area": area[0], **dict.fromkeys(
            ("area_low", "area_high", "difference", "difference_low", "difference_high"), np.nan)}
        if name in systems:
            row["area_low"], row["area_high"] = interval(area[1:], level)
            if against is not None:
                difference = area - areas[against]
                row["difference"] = difference[0]
                row["difference_low"], row["difference_high"] = interval(difference[1:], level)
        rows.append(row | {"window_low": low[0], "window_high": high[0], "n_points": points[name][0].shape[1]})
    return pd.DataFrame(rows)


def _points(pair: Any, what: str, axes: tuple[str, ...]) -> list[np.ndarray]:
    """Accuracy and cost of the same points, checked."""
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise ValueError(f"{what} = {shown(pair)}: expected the pair (accuracy, cost)")
    accuracy, cost = (numbers(values, f"{what}: {name}")
                      for values, name in zip(pair, ("accuracy", "cost"), strict=True))
    if accuracy.shape != cost.shape or accuracy.ndim != len(axes) or not accuracy.size:
        raise ValueError(f"{what}: shapes {accuracy.shape} and {cost.shape}; expected twice the same "
                         f"({', '.join(axes)})")
    return [accuracy, cost]


def decompose(outcomes: Any, *, resamples: int = 2000, seed: int = 0, level: float = 0.95) -> pd.DataFrame:
    """How much of a gain comes from the team and how much from the topology: both orders, their mean, the interaction.

    The mean of both orders is the Shapley value of each stage; the two add up to the total.

    Args:
        outcomes: (2, 2, n_seeds, n_tasks), right or not, or any other outcome: first axis reference and provisioned
            team, second axis reference and chosen topology.

    Returns:
        Columns part, value, low, high; parts: reference, total, provisioning, topology (Shapley values), provisioning
        first, topology second, topology first, provisioning second, interaction.

    Raises:
        ValueError: another shape, values that are not finite, or an option that makes no sense.
    """
    y = numbers(outcomes, "outcomes")
    if y.ndim != 4 or y.shape[:2] != (2, 2):
        raise ValueError(f"outcomes: shape {y.shape}; expected (2 teams, 2 topologies, n_seeds, n_tasks)")
    cells = np.moveaxis(y, (0, 1), (2, 3))
    both = np.concatenate([cells.mean(axis=(0, 1))[None], resampled_means(cells, resamples=resamples, seed=seed)])
    a00, a01, a10, a11 = both[:, 0, 0], both[:, 0, 1], both[:, 1, 0], both[:, 1, 1]
    parts = {"reference": a00, "total": a11 - a00,
             "provisioning": (a10 - a00 + a11 - a01) / 2, "topology": (a01 - a00 + a11 - a10) / 2,
             "provisioning first": a10 - a00, "topology second": a11 - a10,
             "topology first": a01 - a00, "provisioning second": a11 - a01,
             "interaction": a11 - a10 - a01 + a00}
    rows = [{"part": name, "value": v[0], **dict(zip(("low", "high"), interval(v[1:], level), strict=True))}
            for name, v in parts.items()]
    return pd.DataFrame(rows)
