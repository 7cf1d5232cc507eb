"""What an episode was worth, and the log as a table: one row a state (task, budget), one column a topology."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from bamas_lite.casting import TOPOLOGIES
from bamas_lite.inputs import exact, shown


class LogError(ValueError):
    """A log that cannot be used for training or evaluation; the message names the column and the value."""


@dataclass(frozen=True)
class Rewards:
    """Constants of R = w_perf * R_perf + w_cost * R_cost (BAMAS, reward).

    Attributes:
        success: C_succ, for a right answer.
        failure: C_fail, subtracted for a wrong one.
        overflow: C_overflow, subtracted when cost > B.
        saving: g, the bonus for a right answer that costs nothing; g * (1 - cost / B) in general.
        infeasible: reward of an episode for which no team was affordable; None leaves such rows out.
        w_perf: weight of the performance part.
        w_cost: weight of the cost part.
        source: where the constants come from.

    Raises:
        ValueError: a constant that is no finite number.
    """

    success: float
    failure: float
    overflow: float
    saving: float
    infeasible: float | None
    w_perf: float = 1.0
    w_cost: float = 1.0
    source: str = "ours"

    def __post_init__(self) -> None:
        for name in ("success", "failure", "overflow", "saving", "w_perf", "w_cost"):
            exact(getattr(self, name), name)
        if self.infeasible is not None:
            exact(self.infeasible, "infeasible")


_CODE = "from the code (the paper gives no constants)"
CODE_REWARDS = {
    "gsm8k": Rewards(1000, 1000, 1000, 1e-4, -120, source=_CODE),
    "math": Rewards(1000, 1000, 1500, 1e-4, -120, source=_CODE),
    "mbpp": Rewards(1500, 1500, 2000, 1e-4, -150, source=_CODE),
}
"""The constants of the public code. A saving bonus of at most 0.0001 beside 1000 decides nothing but exact ties."""

OUR_REWARDS = Rewards(success=1.0, failure=0.0, overflow=1.0, saving=0.1, infeasible=0.0)
"""A scale on which saving matters: the policy gives up at most one point of accuracy for a tenth of the budget.

With failure = 0 no reward is negative unless the budget was exceeded, where the published loss has a well-behaved
fixed point. Overflow cancels a success; no team counts as no answer.
"""


def reward(correct: Any, cost: Any, budget: Any, rewards: Rewards = OUR_REWARDS, status: Any = "ok") -> np.ndarray:
    """R = w_perf * R_perf + w_cost * R_cost (BAMAS, reward), elementwise.

    Args:
        correct: whether the answer was right.
        cost: of the episode, u$.
        budget: B, u$.
        rewards: the constants.
        status: "ok", "infeasible" or "error".

    Returns:
        float64, NaN where an episode must not be learned from: it failed for a technical reason (`error`), or it was
        infeasible and `rewards.infeasible` is None.
    """
    correct, cost, budget, status = np.broadcast_arrays(correct, cost, budget, status)
    right = correct.astype(bool)
    cost, budget = cost.astype(float), budget.astype(float)
    R_perf = np.where(right, rewards.success, -rewards.failure)
    R_cost = np.where(cost > budget, -rewards.overflow, np.where(right, rewards.saving * (1 - cost / budget), 0.0))
    R = rewards.w_perf * R_perf + rewards.w_cost * R_cost
    infeasible = np.nan if rewards.infeasible is None else rewards.infeasible
    return np.where(status == "ok", R, np.where(status == "infeasible", infeasible, np.nan))


_NEEDED = ("task_id", "domain", "level", "budget", "topology", "status", "correct", "cost", "behaviour_prob")


@dataclass(frozen=True)
class LogTable:
    """A log as a table: n states (task, budget) x 4 topologies, each cell the mean over the log's seeds.

    Attributes:
        task_id, domain, level: of each state, (n,).
        budget: B of each state, u$, (n,).
        count: rows in each cell that may be learned from, (n, 4).
        correct: share of right answers, (n, 4); NaN in cells without rows, as in the next three.
        cost: mean cost, u$, (n, 4).
        R: mean reward, (n, 4).
        R_over_b: mean of reward / behaviour_prob, (n, 4).
        excluded: rows left out, by status.
        backend: what answered, for labels.
        rewards: the constants of R.
    """

    task_id: np.ndarray
    domain: np.ndarray
    level: np.ndarray
    budget: np.ndarray
    count: np.ndarray
    correct: np.ndarray
    cost: np.ndarray
    R: np.ndarray
    R_over_b: np.ndarray
    excluded: dict[str, int]
    backend: str
    rewards: Rewards

    @classmethod
    def from_log(cls, log: pd.DataFrame, rewards: Rewards = OUR_REWARDS, *, budgets: Iterable[float] | None = None,
                 complete: bool = False) -> LogTable:
        """Collect a log.

        Args:
            log: one row an episode.
            rewards: the constants of R.
            budgets: keep these budgets only, u$.
            complete: ask for a full factorial: every state with every topology. States that lost a cell to excluded
                rows are then left out.

        Raises:
            LogError: empty, a column missing, a value outside its range, a budget that is not in the log, or
                `complete` and a topology was never logged in some state.
        """
        check_log(log)
        if budgets is not None:
            log = log[log.budget.isin(_known_budgets(log, budgets))]
        R = reward(log.correct.fillna(False).to_numpy(bool), log.cost.to_numpy(float), log.budget.to_numpy(float),
                   rewards, log.status.to_numpy(str))
        state, first = _number_states(log)
        n, k = len(first), len(TOPOLOGIES)
        cell = state * k + log.topology.map({name: i for i, name in enumerate(TOPOLOGIES)}).to_numpy()
        logged = np.bincount(cell, minlength=n * k).reshape(n, k)
        used = np.isfinite(R)
        excluded = {str(s): int(c) for s, c in log.status[~used].value_counts().items()}
        if not used.any():
            raise LogError(f"log: no row left to use; all were excluded by status: {excluded}")
        count = np.bincount(cell[used], minlength=n * k).reshape(n, k)

        def mean(values: np.ndarray) -> np.ndarray:
            total = np.bincount(cell[used], values[used], minlength=n * k).reshape(n, k)
            return np.divide(total, count, out=np.full((n, k), np.nan), where=count > 0)

        head = log.iloc[first]
        table = cls(head.task_id.to_numpy(str), head.domain.to_numpy(str), head.level.to_numpy(int),
                    head.budget.to_numpy(float), count, mean(log.correct.fillna(False).to_numpy(float)),
                    mean(log.cost.to_numpy(float)), mean(R), mean(R / log.behaviour_prob.to_numpy(float)), excluded,
                    ", ".join(sorted(log.backend.astype(str).unique())) if "backend" in log else "unknown", rewards)
        if complete and (logged == 0).any():
            s, t = np.argwhere(logged == 0)[0]
            raise LogError(f"log: not full-factorial: task {str(table.task_id[s])!r}, budget {table.budget[s]:g} has "
                           f"no row for topology {TOPOLOGIES[t]!r}; this needs every topology in every state")
        keep = (count > 0).all(axis=1) if complete else (count > 0).any(axis=1)
        if not keep.any():
            raise LogError(f"log: no state has a usable row for every topology; excluded by status: {excluded}")
        return table.select(keep)

    def select(self, keep: np.ndarray) -> LogTable:
        """The table of some states: a mask or indices, (n,)."""
        arrays = {name: value[keep] for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        return replace(self, **arrays)

    def __len__(self) -> int:
        return len(self.budget)


def check_log(log: pd.DataFrame) -> None:
    """Raise LogError unless `log` has the columns and values that training and evaluation need."""
    if not isinstance(log, pd.DataFrame):
        raise LogError(f"log: expected a DataFrame, one row an episode; found {type(log).__name__}")
    missing = [name for name in _NEEDED if name not in log.columns]
    if missing:
        raise LogError(f"log: columns missing: {', '.join(missing)}; expected {', '.join(_NEEDED)}")
    if log.empty:
        raise LogError("log: is empty; expected at least one row")
    for name in ("level", "budget", "cost", "behaviour_prob"):
        if not pd.api.types.is_numeric_dtype(log[name]):
            raise LogError(f"log: {name} is a column of type {log[name].dtype}: expected numbers")
    ok = log.status == "ok"
    for name, valid, expected in (
            ("level", np.isfinite(log.level), "a number"),
            ("topology", log.topology.isin(TOPOLOGIES), f"one of {', '.join(TOPOLOGIES)}"),
            ("status", log.status.isin(("ok", "infeasible", "error")), "ok, infeasible or error"),
            ("budget", np.isfinite(log.budget) & (log.budget > 0), "more than 0 u$"),
            ("behaviour_prob", (log.behaviour_prob > 0) & (log.behaviour_prob <= 1), "more than 0, at most 1"),
            ("cost", ~ok | (np.isfinite(log.cost) & (log.cost >= 0)), "at least 0 u$"),
            ("correct", ~ok | log.correct.isin((True, False)), "true or false")):
        bad = log.index[~np.asarray(valid, bool)]
        if len(bad):
            value = log.loc[bad[:1], name].tolist()[0]
            raise LogError(f"log: {name} = {shown(value)} in row {bad[0]}: expected {expected}")


def _known_budgets(log: pd.DataFrame, budgets: Iterable[float]) -> list[float]:
    known = sorted(log.budget.unique())
    budgets = [float(b) for b in budgets]
    for budget in budgets:
        if budget not in known:
            raise LogError(f"budgets: {budget:g} is not in the log; it has {', '.join(f'{b:g}' for b in known)}")
    return budgets


def _number_states(log: pd.DataFrame) -> tuple[np.ndarray, Sequence[int]]:
    """Number of each row's state, and the first row of each state; states in the order of task, then budget."""
    tasks, _ = pd.factorize(log.task_id)
    values, budgets = np.unique(log.budget.to_numpy(float), return_inverse=True)
    _, first, state = np.unique(tasks * len(values) + budgets, return_index=True, return_inverse=True)
    return state, first
