"""How a designer is trained: numbers that can be changed. All of them are ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bamas_lite.agentbalance.budgets import Budgets
from bamas_lite.agentbalance.checks import number, random_seed
from bamas_lite.inputs import shown, whole

_LEAST = {"epochs": 1, "batch": 1, "designs": 2, "pool_steps": 0}
"""Whole numbers."""

_MOST = {"learning_rate": 1, "pool_learning_rate": 1, "entropy": 1e6, "pool_entropy": 1e6, "saving": 1e6,
         "tolerance": 1e6, "dual_rate": 1e6}
"""Numbers of at least 0."""


@dataclass(frozen=True)
class Settings:
    """How a designer is trained. All values are ours.

    Attributes:
        epochs: passes over the tasks.
        batch: tasks in a batch.
        designs: designs drawn for each task and pool, at least 2 (the baseline).
        learning_rate: of Adam; falls to a tenth in equal steps.
        pool_learning_rate: the same for pool selection, whose gradient is exact and can be followed in larger steps.
        entropy: weight of the mean entropy of the decisions about agents and edges.
        pool_entropy: the same of pool selection.
        pool_steps: steps of the last fit of pool selection.
        saving: weight of the unspent share of the cost budget of a right answer, as in BAMAS's reward.
        cost_budgets, latency_budgets: u$ and seconds; one of each is drawn for each task in each epoch.
        tolerance: mean overshoot, as a share of the budget, that the multipliers allow.
        dual_rate: step of the multipliers.
        seed: of weights, draws and the order of the tasks.

    Raises:
        ValueError: a field does not fit; the message names it.
    """

    epochs: int = 6
    batch: int = 50
    designs: int = 3
    learning_rate: float = 1e-2
    pool_learning_rate: float = 5e-2
    entropy: float = 0.003
    pool_entropy: float = 0.05
    pool_steps: int = 200
    saving: float = 0.02
    cost_budgets: tuple[float, ...] = (200, 400, 800, 1600, 3200, 6400)
    latency_budgets: tuple[float, ...] = (2.5, 4, 6.5, 10, 16, 60)
    tolerance: float = 0.005
    dual_rate: float = 5.0
    seed: int = 0

    def __post_init__(self) -> None:
        checked: dict[str, Any] = {name: whole(getattr(self, name), name, least) for name, least in _LEAST.items()}
        checked |= {name: number(getattr(self, name), name, most) for name, most in _MOST.items()}
        for name, value in (checked | {"seed": random_seed(self.seed)}).items():
            object.__setattr__(self, name, value)
        for name, budgets in (("cost_budgets", lambda value: Budgets(value)),
                              ("latency_budgets", lambda value: Budgets(1, value))):
            if not isinstance(given := getattr(self, name), (tuple, list)) or not given:
                raise ValueError(f"{name} = {shown(given)}: expected a tuple of at least one budget")
            for value in given:
                try:
                    budgets(value)
                except ValueError as error:
                    raise ValueError(f"{name} = {shown(given)}: {error}") from None
