"""Results of systems as tables: means with intervals over tasks and seeds, and paired differences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from bamas_lite.casting import TOPOLOGIES
from bamas_lite.reproduction.frontier import resampled_means
from bamas_lite.reproduction.predicates import OURS, PUBLISHED

LEVEL = 0.95
RESAMPLES = 2000

Key = tuple[str, str]
"""System and setting."""


@dataclass(frozen=True)
class Measured:
    """What a system did on each test task under each seed; where a choice is random, its expectation.

    Attributes:
        correct: right answers, (n_seeds, n_tasks).
        cost: u$, the same shape.
        over: runs that cost more than the budget, the same shape; None: there is no budget.
        shares: how often each topology was chosen, (4,); None: there is no choice.
    """

    correct: np.ndarray
    cost: np.ndarray
    over: np.ndarray | None = field(default=None)
    shares: np.ndarray | None = field(default=None)

    def stacked(self) -> np.ndarray:
        """Percent right, u$ and runs over the budget of all tasks together: (n_seeds, n_tasks, 3)."""
        over = np.zeros(self.cost.shape) if self.over is None else self.over
        return np.stack([100.0 * self.correct, self.cost, over.shape[1] * over], axis=-1)


def rows_table(dataset: str, measured: Mapping[Key, Measured], label: str, episodes: int) -> pd.DataFrame:
    """One row a system and setting: accuracy (percent), cost (u$ a task), runs over the budget, topology shares.

    Intervals: tasks and, where there are several, seeds are resampled. `episodes` is how many a row rests on.
    """
    rows = []
    for (system, setting), value, resampled in zip(measured, measured.values(), _resampled(measured), strict=True):
        row: dict[str, object] = {"dataset": dataset, "system": system, "setting": setting,
                                  "n_tasks": value.cost.shape[1], "n_seeds": value.cost.shape[0]}
        names = ("accuracy", "accuracy"), ("cost", "cost"), ("over_budget", "over")
        for i, (name, short) in enumerate(names):
            low, high = np.quantile(resampled[:, i], ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
            row |= {name: _rounded(value.stacked()[..., i].mean()), f"{short}_low": _rounded(low),
                    f"{short}_high": _rounded(high)}
        shares = [None] * len(TOPOLOGIES) if value.shares is None else [_rounded(share, 4) for share in value.shares]
        row |= {f"share_{name}": share for name, share in zip(TOPOLOGIES, shares, strict=True)}
        rows.append(row | {"episodes": episodes, "label": label})
    return pd.DataFrame(rows)


def paired_table(dataset: str, measured: Mapping[Key, Measured]) -> pd.DataFrame:
    """Differences on the same tasks and seeds: accuracy (points) and cost (u$) of `system` minus `against`.

    Both BAMAS are compared with every baseline; ours also, under each budget, with the published one and with what
    needs no learning. `against` is "<system> <setting>". `p_accuracy` is the two-sided share of resamples (tasks and
    seeds) on the other side of no difference.
    """
    resampled = dict(zip(measured, _resampled(measured), strict=True))
    rows = []
    for key, other in _pairs(measured):
        row = {"dataset": dataset, "setting": key[1], "system": key[0], "against": " ".join(other)}
        values = (measured[key].stacked() - measured[other].stacked()).mean(axis=(0, 1))
        samples = resampled[key] - resampled[other]
        for i, name in enumerate(("accuracy", "cost")):
            low, high = np.quantile(samples[:, i], ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
            row |= {name: _rounded(values[i]), f"{name}_low": _rounded(low), f"{name}_high": _rounded(high)}
        beyond = min((samples[:, 0] <= 1e-9).sum(), (samples[:, 0] >= -1e-9).sum())
        rows.append(row | {"p_accuracy": _rounded(min(1.0, 2 * (beyond + 1) / (RESAMPLES + 1)), 4)})
    return pd.DataFrame(rows)


def _pairs(measured: Mapping[Key, Measured]) -> Iterator[tuple[Key, Key]]:
    for system in (PUBLISHED, OURS):
        for key in measured:
            if key[0] == system:
                yield from ((key, other) for other, value in measured.items() if value.over is None)
                if system == OURS:
                    yield from ((key, other) for other in measured if other[0] != OURS and other[1] == key[1])


def _resampled(measured: Mapping[Key, Measured]) -> np.ndarray:
    """Means of every system over the same resamples: (n_systems, RESAMPLES, 3)."""
    values = np.concatenate([value.stacked() for value in measured.values()], axis=-1)
    means = resampled_means(values, resamples=RESAMPLES)
    return means.reshape(RESAMPLES, len(measured), -1).transpose(1, 0, 2)


def _rounded(value: float, digits: int = 2) -> float:
    return round(float(value), digits) + 0.0  # no -0.0
