"""The three objectives, on the table of a log: n states x k topologies.

A log row is a state with one logged topology (`count` one-hot), so each function takes rows as well as whole tables: a
table has the same loss and the same gradient as the rows it was made of, and is far smaller. Cells without rows have
count 0 and R 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def published_loss(logits: Tensor, R: Tensor, count: Tensor, beta: float) -> Tensor:
    """-mean(log pi(t | T, B) * R) - beta * entropy (BAMAS, policy training), the mean over log rows.

    Args:
        logits: (n, k).
        R: mean reward of each cell, (n, k).
        count: log rows in each cell, (n, k).
        beta: weight of the entropy.
    """
    log_pi = logits.log_softmax(-1)
    return -(count * log_pi * R).sum() / count.sum() - beta * mean_entropy(log_pi, count)


def importance_loss(logits: Tensor, R_over_b: Tensor, count: Tensor, beta: float) -> Tensor:
    """-mean(pi(t | T, B) / b * R) - beta * entropy: off-policy REINFORCE.

    Its gradient is mean(pi / b * R * grad log pi). `R_over_b` is the mean of R / b in each cell, b the probability with
    which the log took its topology.
    """
    log_pi = logits.log_softmax(-1)
    return -(count * log_pi.exp() * R_over_b).sum() / count.sum() - beta * mean_entropy(log_pi, count)


def expectation_loss(logits: Tensor, R: Tensor, count: Tensor, beta: float) -> Tensor:
    """-mean over states of sum_t pi(t | T, B) * R(t) - beta * entropy: exact where every topology was logged."""
    log_pi = logits.log_softmax(-1)
    return -(log_pi.exp() * R).sum(-1).mean() - beta * mean_entropy(log_pi, count)


def mean_entropy(log_pi: Tensor, count: Tensor) -> Tensor:
    """Entropy of pi in nats, averaged over log rows."""
    return -(count.sum(-1) * (log_pi.exp() * log_pi).sum(-1)).sum() / count.sum()


def regression_loss(logits: Tensor, R: Tensor, count: Tensor) -> Tensor:
    """mean((logits_t - R_t)^2) over log rows, up to a constant: the logits then predict rewards (supervised)."""
    return (count * (logits - R) ** 2).sum() / count.sum()
