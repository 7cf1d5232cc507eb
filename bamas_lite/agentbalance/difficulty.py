"""Difficulty of a question, d(x) = sigmoid(MLP(embedding)): the expected share of LLMs that get it wrong.

One summary of AgentBalance names difficulty estimation; the formula is our reconstruction.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from bamas_lite.agentbalance.arrays import real_numbers
from bamas_lite.agentbalance.checks import check_profiles, check_tasks, number, random_seed
from bamas_lite.agentbalance.profiles import Profile
from bamas_lite.encoder import DIMENSION, encode
from bamas_lite.inputs import whole
from bamas_lite.tasks import Task

_HIDDEN = 16


class Difficulty(nn.Module):
    """d(x) for embeddings (n, 384), in (0, 1), (n,)."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.utils.skip_init(nn.Linear, DIMENSION, _HIDDEN, dtype=torch.float64)
        self.output = nn.utils.skip_init(nn.Linear, _HIDDEN, 1, dtype=torch.float64)

    def logits(self, x: Tensor) -> Tensor:
        """Of d, (n,)."""
        return self.output(self.hidden(x).relu())[:, 0]

    def forward(self, x: Tensor) -> Tensor:
        return self.logits(x).sigmoid()


def train_difficulty(x: np.ndarray, wrong: np.ndarray, *, seed: int = 0, epochs: int = 150,
                     weight_decay: float = 0.03) -> Difficulty:
    """Fit d(x) to the share of wrong answers by cross-entropy (Adam with weight decay, all tasks in each step).

    Args:
        x: embeddings (n, 384).
        wrong: 1 - mean correctness of the LLMs on each task, (n,), 0 to 1.

    Raises:
        ValueError: an argument does not fit; the message names it.
    """
    x, wrong = real_numbers(x, "x"), real_numbers(wrong, "wrong")
    if x.ndim != 2 or x.shape[1] != DIMENSION or not len(x) or not np.isfinite(x).all():
        raise ValueError(f"x is an array of shape {x.shape}: expected (n, {DIMENSION}), n at least 1, of finite "
                         "numbers")
    if wrong.shape != x.shape[:1] or not ((wrong >= 0) & (wrong <= 1)).all():
        raise ValueError(f"wrong is an array of shape {wrong.shape}: expected {x.shape[:1]}, one for each row of x, of "
                         "numbers from 0 to 1")
    seed, epochs = random_seed(seed), whole(epochs, "epochs", 1)
    weight_decay = number(weight_decay, "weight_decay", 1)
    generator = torch.Generator().manual_seed(seed)
    model = Difficulty()
    for module in (model.hidden, model.output):
        for parameter in module.parameters():
            nn.init.uniform_(parameter, -module.in_features**-0.5, module.in_features**-0.5, generator=generator)
    x, wrong = torch.tensor(x, dtype=torch.float64), torch.tensor(wrong, dtype=torch.float64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=weight_decay)
    for _ in range(epochs):
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(model.logits(x), wrong).backward()
        optimizer.step()
    return model.requires_grad_(False)


def fit_difficulty(tasks: Sequence[Task], profiles: Sequence[Profile], seed: int = 0) -> Difficulty:
    """d(x) from what the profiled LLMs got wrong; the tasks must be among those that they were profiled on.

    Raises:
        ProfileError: `profiles` is no list of at least one Profile.
        ValueError: `tasks` is no list of at least one Task, or no LLM was profiled on one of them.
    """
    check_tasks(tasks)
    check_profiles(profiles)
    for task in tasks:
        if not any(task.task_id in p.right for p in profiles):
            raise ValueError(f"task {task.task_id!r}: no LLM was profiled on it; expected tasks of the profiling, or a "
                             "`difficulty`")
    wrong = [1 - np.mean([p.right[task.task_id] for p in profiles if task.task_id in p.right]) for task in tasks]
    return train_difficulty(encode([task.question for task in tasks]), np.array(wrong), seed=seed)
