"""Difficulty of a question, d(x) = sigmoid(MLP(embedding)): the expected share of LLMs that get it wrong.

One summary of AgentBalance names difficulty estimation; the formula is our reconstruction.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from bamas_lite.encoder import DIMENSION

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
        wrong: 1 - mean correctness of the LLMs on each task, (n,).
    """
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
