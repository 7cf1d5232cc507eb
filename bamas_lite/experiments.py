"""What a policy is worth on a held-out log: value, baselines and intervals.

A choice is an array pi (n, 4): for each state (task, budget) of a full-factorial log the probabilities of the
topologies. Its value needs no new run: the log holds the outcome of every topology in every state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import numpy as np
import pandas as pd

from bamas_lite.casting import TOPOLOGIES
from bamas_lite.policy import TopologyPolicy, questions_of
from bamas_lite.rewards import LogTable
from bamas_lite.tasks import Task

Choice = np.ndarray | Sequence[np.ndarray]
"""pi (n, 4), or several of them: the same method trained with several seeds."""

METRICS = ("correct", "cost", "reward")
"""Share of right answers, u$ a task, reward a task."""


def choose(policy: TopologyPolicy, table: LogTable, *, mode: Literal["greedy", "sample"] = "greedy",
           tasks: Iterable[Task] | None = None, allowed: Sequence[str] = TOPOLOGIES) -> np.ndarray:
    """What a policy chooses in each state of a table: one-hot (greedy) or pi itself (sample), (n, 4).

    With "sample" the value is the exact expectation over the draws: nothing is drawn.
    """
    if mode not in ("greedy", "sample"):
        raise ValueError(f"mode = {mode!r}: expected 'greedy' or 'sample'")
    pi = policy.probabilities(questions_of(table.task_id, tasks), table.budget, allowed=allowed)
    return pi if mode == "sample" else _one_hot(pi.argmax(axis=1))


def baselines(table: LogTable, train: LogTable) -> dict[str, np.ndarray]:
    """What to compare a policy with.

    - `always <topology>`: each fixed topology.
    - `best fixed`: the one with the best mean reward on the training log.
    - `best per budget`: for each budget, the best one on the training log: a policy that does not read the question.
    - `random`: each topology with the same probability.
    - `oracle`: for each state the topology with the best reward in `table` itself, outcomes known: nobody can choose
      so; it bounds every policy from above.

    Raises:
        ValueError: `train` lacks a budget of `table`.
    """
    n, k = len(table), len(TOPOLOGIES)
    choices = {f"always {name}": _one_hot(np.full(n, t)) for t, name in enumerate(TOPOLOGIES)}
    choices["best fixed"] = _one_hot(np.full(n, _best_on_average(train.R)))
    best = {budget: _best_on_average(train.R[train.budget == budget]) for budget in np.unique(train.budget)}
    absent = [budget for budget in np.unique(table.budget) if budget not in best]
    if absent:
        raise ValueError(f"budget {absent[0]:g} is not in the training log; it has {', '.join(f'{b:g}' for b in best)}")
    choices["best per budget"] = _one_hot(np.array([best[budget] for budget in table.budget]))
    choices["random"] = np.full((n, k), 1 / k)
    choices["oracle"] = _one_hot(table.R.argmax(axis=1))
    return choices


def evaluate(choices: Mapping[str, Choice], table: LogTable, *, by: str | None = None, resamples: int = 2000,
             seed: int = 0, level: float = 0.95) -> pd.DataFrame:
    """Mean correct, cost (u$) and reward of each choice with bootstrap intervals, and how often each topology is taken.

    Tasks are resampled, each with all its budgets and log seeds (which are draws of that task); where a choice comes
    from several training seeds, these are resampled too.

    Args:
        choices: name -> pi, or name -> one pi for each training seed.
        table: a complete table of the held-out log (`LogTable.from_log(log, complete=True)`).
        by: one row for each value of this field of the table too, "budget" or "level", instead of one over all.
        resamples: bootstrap samples.
        seed: of the bootstrap.
        level: of the percentile intervals.

    Returns:
        Columns choice, (by), correct, correct_low, correct_high, the same for cost and reward, share_<topology>,
        n_tasks and n_seeds.
    """
    groups = [(None, table, slice(None))] if by is None else _groups(table, by)
    rows = []
    for value, part, states in groups:
        for name, choice in choices.items():
            pis = _stack(name, choice, table)[:, states]
            row = {"choice": name} | ({} if by is None else {by: value})
            outcomes = _per_task(pis, part)
            for metric, y in zip(METRICS, outcomes, strict=True):
                low, high = np.quantile(_bootstrap(y, resamples, seed), ((1 - level) / 2, (1 + level) / 2))
                row |= {metric: y.mean(), f"{metric}_low": low, f"{metric}_high": high}
            row |= {f"share_{t}": share for t, share in zip(TOPOLOGIES, pis.mean(axis=(0, 1)), strict=True)}
            rows.append(row | {"n_tasks": outcomes.shape[2], "n_seeds": len(pis)})
    return pd.DataFrame(rows)


def differences(choices: Mapping[str, Choice], table: LogTable, against: str, *, resamples: int = 2000, seed: int = 0,
                level: float = 0.95) -> pd.DataFrame:
    """Each choice minus the choice `against`, on the same tasks: paired differences with bootstrap intervals.

    Columns choice, then for each metric the difference, its _low and _high end.
    """
    if against not in choices:
        raise ValueError(f"against = {against!r}: expected one of {', '.join(choices)}")
    base = _per_task(_stack(against, choices[against], table), table)
    rows = []
    for name, choice in choices.items():
        if name == against:
            continue
        outcomes, row = _per_task(_stack(name, choice, table), table), {"choice": name}
        for metric, y, z in zip(METRICS, outcomes, base, strict=True):
            # The same draws of tasks for both; training seeds of two methods have nothing to do with each other.
            if len(y) == len(z) == 1:
                samples = _bootstrap(y - z, resamples, seed)
            else:
                samples = _bootstrap(y, resamples, seed) - _bootstrap(z, resamples, seed)
            low, high = np.quantile(samples, ((1 - level) / 2, (1 + level) / 2))
            row |= {metric: y.mean() - z.mean(), f"{metric}_low": low, f"{metric}_high": high}
        rows.append(row)
    return pd.DataFrame(rows)


def as_text(values: pd.DataFrame, metrics: Sequence[str] = METRICS) -> str:
    """A table from `evaluate` or `differences` to print: value [interval], answers in percent.

    Rounded so that the last bits of a float never show: a value halfway between two roundings always goes up.
    """
    scale = {"correct": (100, 1, "right (%)"), "cost": (1, 0, "cost (u$)"), "reward": (1, 3, "reward")}
    columns = [name for name in ("choice", "budget", "level", "domain") if name in values]
    text = values[columns].copy()
    for metric in metrics:
        factor, digits, title = scale[metric]
        numbers = [[f"{round(factor * v + 1e-7, digits) + 0.0:.{digits}f}" for v in values[metric + end]]  # no -0.0
                   for end in ("", "_low", "_high")]
        text[title] = [f"{value} [{low}, {high}]" for value, low, high in zip(*numbers, strict=True)]
    return text.to_string(index=False)


def bootstrap_interval(values: np.ndarray, *, resamples: int = 2000, seed: int = 0,
                       level: float = 0.95) -> tuple[float, float]:
    """Percentile interval of a mean: `values` is (n_tasks,), or (n_seeds, n_tasks) to resample both."""
    low, high = np.quantile(_bootstrap(np.atleast_2d(values), resamples, seed), ((1 - level) / 2, (1 + level) / 2))
    return float(low), float(high)


def _bootstrap(y: np.ndarray, resamples: int, seed: int) -> np.ndarray:
    """Means of `y` (k seeds, n tasks) over resampled tasks and, where k > 1, resampled seeds: (resamples,).

    The tasks drawn depend on `seed` and n only, so that two choices are compared on the same resamples.
    """
    k, n = y.shape
    task_rng, seed_rng = np.random.default_rng(seed).spawn(2)
    tasks = task_rng.multinomial(n, np.full(n, 1 / n), size=resamples) / n
    seeds = seed_rng.multinomial(k, np.full(k, 1 / k), size=resamples) / k
    return np.einsum("rk,rk->r", seeds, tasks @ y.T)


def _per_task(pis: np.ndarray, table: LogTable) -> np.ndarray:
    """Outcome of each training seed on each task, averaged over its budgets: (3 metrics, k, n_tasks)."""
    tasks, number = np.unique(table.task_id, return_inverse=True)
    states = np.bincount(number)
    outcomes = np.stack([(pis * cells).sum(axis=2) for cells in (table.correct, table.cost, table.R)])
    sums = np.stack([[np.bincount(number, y, len(tasks)) for y in metric] for metric in outcomes])
    return sums / states


def _groups(table: LogTable, by: str) -> list[tuple[object, LogTable, np.ndarray]]:
    if by not in ("budget", "level", "domain"):
        raise ValueError(f"by = {by!r}: expected 'budget', 'level' or 'domain'")
    column = getattr(table, by)
    return [(value.item(), table.select(column == value), column == value) for value in np.unique(column)]


def _stack(name: str, choice: Choice, table: LogTable) -> np.ndarray:
    """The choice as (k, n, 4), checked."""
    pis = np.asarray(choice, float)
    pis = pis[None] if pis.ndim == 2 else pis
    if pis.ndim != 3 or pis.shape[1:] != (len(table), len(TOPOLOGIES)):
        raise ValueError(f"choice {name!r}: shape {np.shape(choice)}; expected ({len(table)}, {len(TOPOLOGIES)}): one "
                         "row for each state of the table")
    if (table.count == 0).any():
        raise ValueError("table: some states lack a topology; build it with LogTable.from_log(log, complete=True)")
    return pis


def _best_on_average(R: np.ndarray) -> int:
    return int(np.nanmean(R, axis=0).argmax())


def _one_hot(topology: np.ndarray) -> np.ndarray:
    return np.eye(len(TOPOLOGIES))[topology]
