"""The policy's network and its learners. (The only module of the core that imports torch when it is loaded.)"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from bamas_lite.casting import TOPOLOGIES
from bamas_lite.encoder import DIMENSION
from bamas_lite.losses import expectation_loss, importance_loss, mean_entropy, published_loss, regression_loss
from bamas_lite.rewards import LogTable

if TYPE_CHECKING:
    from bamas_lite.policy import Settings

Features = Literal["concatenate", "add"]


class PolicyNetwork(nn.Module):
    """pi_theta(t | T, B): logits of the topologies from a question's embedding and a budget (BAMAS, policy network).

    Embedding (384) -> 64 and budget (1) -> 64, both ReLU; concatenated (128) -> 128, ReLU -> 4 logits. The public code
    adds the two instead (`features="add"`, 64 -> 128). Parameters are float64: a greedy choice between two nearly equal
    topologies then comes out the same on every processor.

    Args:
        features: how question and budget are joined.
        generator: source of the initial weights, U(-1/sqrt(fan_in), 1/sqrt(fan_in)) as torch's own; None leaves them
            unset, for loading.
    """

    def __init__(self, features: Features = "concatenate", generator: torch.Generator | None = None) -> None:
        super().__init__()
        if features not in ("concatenate", "add"):
            raise ValueError(f"features = {features!r}: expected 'concatenate' or 'add'")
        self.features = features

        def layer(n_in: int, n_out: int) -> nn.Linear:
            # skip_init: no draw from torch's global generator
            return nn.utils.skip_init(nn.Linear, n_in, n_out, dtype=torch.float64)

        self.question = layer(DIMENSION, 64)
        self.budget = layer(1, 64)
        self.hidden = layer(128 if features == "concatenate" else 64, 128)
        self.output = layer(128, len(TOPOLOGIES))
        if generator is not None:
            for module in (self.question, self.budget, self.hidden, self.output):
                for parameter in (module.weight, module.bias):
                    bound = 1 / math.sqrt(module.in_features)
                    nn.init.uniform_(parameter, -bound, bound, generator=generator)

    def forward(self, embedding: Tensor, budget: Tensor) -> Tensor:
        """Logits (n, 4) from embeddings (n, 384) and budgets (n,) divided by the largest training budget."""
        e = self.question(embedding).relu()
        b = self.budget(budget[:, None]).relu()
        joined = torch.cat((e, b), dim=1) if self.features == "concatenate" else e + b
        return self.output(self.hidden(joined).relu())


@dataclass(frozen=True)
class Examples:
    """A LogTable as tensors, float64: n states x 4 topologies; cells without rows have count 0 and reward 0.

    `task` numbers the task of each state.
    """

    task: Tensor
    embedding: Tensor
    budget: Tensor
    count: Tensor
    R: Tensor
    R_over_b: Tensor

    @classmethod
    def from_table(cls, table: LogTable, embedding: np.ndarray, budget_scale: float) -> Examples:
        """`embedding` is that of each state's question, (n, 384)."""
        task = torch.tensor(np.unique(table.task_id, return_inverse=True)[1])
        budget, count, R, R_over_b = (torch.tensor(x, dtype=torch.float64) for x in
                                      (table.budget / budget_scale, table.count, table.R, table.R_over_b))
        return cls(task, torch.tensor(embedding, dtype=torch.float64), budget, count, R.nan_to_num(),
                   R_over_b.nan_to_num())

    def select(self, states: Tensor) -> Examples:
        """Some states, by index."""
        return Examples(*(tensor[states] for tensor in vars(self).values()))

    def __len__(self) -> int:
        return len(self.budget)


History = list[dict[str, float]]
Learner = Callable[[PolicyNetwork, Examples, "Settings", torch.Generator], History]
"""Trains the network in place, to give good topologies the largest logits; returns one entry an epoch."""

_LOSSES: dict[str, Callable[[Tensor, Examples, float], Tensor]] = {
    "published": lambda logits, e, beta: published_loss(logits, e.R, e.count, beta),
    "importance": lambda logits, e, beta: importance_loss(logits, e.R_over_b, e.count, beta),
    "expectation": lambda logits, e, beta: expectation_loss(logits, e.R, e.count, beta),
}


def reinforce(network: PolicyNetwork, examples: Examples, settings: Settings, generator: torch.Generator) -> History:
    """Gradient of the objective that the settings name: the paper's learner."""
    return _adam(network, examples, settings, generator, _LOSSES[settings.objective])


def supervised(network: PolicyNetwork, examples: Examples, settings: Settings, generator: torch.Generator) -> History:
    """Regress the reward of each topology on question and budget; the largest prediction is chosen.

    Rewards are standardised first, so that the learning rate means the same for each scale of rewards.
    """
    n_rows = examples.count.sum()
    mean = (examples.count * examples.R).sum() / n_rows
    spread = ((examples.count * (examples.R - mean) ** 2).sum() / n_rows).sqrt().clamp_min(1e-12)
    return _adam(network, examples, settings, generator,
                 lambda logits, e, beta: regression_loss(logits, (e.R - mean) / spread, e.count))


LEARNERS: dict[str, Learner] = {"reinforce": reinforce, "supervised": supervised}


def _adam(network: PolicyNetwork, examples: Examples, settings: Settings, generator: torch.Generator,
          loss_of: Callable[[Tensor, Examples, float], Tensor]) -> History:
    """Adam over shuffled batches; ends with the parameters of the best epoch.

    A batch holds whole states, as many as make up `settings.batch` log rows. The best epoch has the largest mean
    reward, drawn from the policy, on all data (paper) or, with `settings.holdout`, on the tasks kept aside; with
    model_choice "matched" (code) it is the mean over rows that a draw matches.
    """
    draws = torch.Generator().manual_seed(settings.seed)  # of its own: the order of the batches does not depend on it
    optimizer = torch.optim.Adam(network.parameters(), lr=settings.learning_rate)
    train, aside = hold_out(examples, settings.holdout, generator)
    states_per_batch = max(1, round(settings.batch * len(train) / float(train.count.sum())))
    history, best = [_entry(0, network, examples, aside, settings, loss_of)], None
    for epoch in range(1, settings.epochs + 1):
        for states in torch.randperm(len(train), generator=generator).split(states_per_batch):
            batch = train.select(states)
            optimizer.zero_grad()
            loss_of(network(batch.embedding, batch.budget), batch, settings.beta).backward()
            optimizer.step()
        history.append(_entry(epoch, network, examples, aside, settings, loss_of))
        value = history[-1]["reward_aside" if aside else "reward"]
        if settings.model_choice == "matched":
            value = history[-1]["reward_matched"] = matched_reward(network, aside or examples, draws)
        if best is None or value > best[0]:
            best = value, {name: tensor.clone() for name, tensor in network.state_dict().items()}
    network.load_state_dict(best[1])
    return history


def hold_out(examples: Examples, share: float, generator: torch.Generator) -> tuple[Examples, Examples | None]:
    """Keep a share of the tasks aside, with all their states: (the others, those aside); none are aside for share 0."""
    if share == 0:
        return examples, None
    tasks = examples.task.unique()
    n_aside = max(1, round(share * len(tasks)))
    if n_aside == len(tasks):
        raise ValueError(f"holdout = {share}: leaves no task to train on; the log has {len(tasks)}")
    is_aside = torch.isin(examples.task, tasks[torch.randperm(len(tasks), generator=generator)[:n_aside]])
    return examples.select((~is_aside).nonzero()[:, 0]), examples.select(is_aside.nonzero()[:, 0])


@torch.no_grad()
def _entry(epoch: int, network: PolicyNetwork, examples: Examples, aside: Examples | None, settings: Settings,
           loss_of: Callable[[Tensor, Examples, float], Tensor]) -> dict[str, Any]:
    """The state of training after an epoch: on all data, and on the tasks aside."""
    logits = network(examples.embedding, examples.budget)
    entry = {"epoch": epoch, "loss": loss_of(logits, examples, settings.beta).item(),
             "reward": _mean_reward(logits.softmax(-1), examples),
             "reward_greedy": _mean_reward(nn.functional.one_hot(logits.argmax(-1), logits.shape[-1]), examples),
             "entropy": mean_entropy(logits.log_softmax(-1), examples.count).item()}
    if aside:
        entry["reward_aside"] = _mean_reward(network(aside.embedding, aside.budget).softmax(-1), aside)
    return entry


@torch.no_grad()
def matched_reward(network: PolicyNetwork, e: Examples, draws: torch.Generator) -> float:
    """Mean reward of the log rows whose topology a draw from the policy equals; -infinity if there is none.

    On a full factorial it is the mean reward of the policy with noise added; elsewhere states with more logged
    topologies match more often and weigh more.
    """
    matched = torch.binomial(e.count, network(e.embedding, e.budget).softmax(-1), generator=draws)
    return ((matched * e.R).sum() / matched.sum()).item() if matched.any() else -math.inf


def _mean_reward(pi: Tensor, e: Examples) -> float:
    """Mean over log rows of pi / b * R: the mean reward of pi, exact for a full factorial."""
    return ((e.count * pi * e.R_over_b).sum() / e.count.sum()).item()

