"""The networks of the design: pool selection, matching scores, agent representation, gates and edge scores.

The abstract names pool selection, role-backbone matching, agent-representation learning, gating and latency-aware
topology synthesis; which networks these are, with which inputs, sizes and formulas, is our reconstruction. All take a
batch of n designs at once, with R role places (padded) and M LLMs. (Imports torch when it is loaded.)
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from bamas_lite.agentbalance.features import ANSWER, BUDGET_FEATURES, LLM_FEATURES, ROLE_FEATURES
from bamas_lite.encoder import DIMENSION

HIDDEN = 32
QUESTION = 16


class DesignNetwork(nn.Module):
    """All learned parts but the difficulty.

    Args:
        generator: source of the initial weights, U(-1/sqrt(fan_in), 1/sqrt(fan_in)); None leaves them unset, for
            loading.
    """

    def __init__(self, generator: torch.Generator | None = None) -> None:
        super().__init__()

        def layer(n_in: int, n_out: int, bias: bool = True) -> nn.Linear:
            return nn.utils.skip_init(nn.Linear, n_in, n_out, bias=bias, dtype=torch.float64)

        def number(value: float) -> nn.Parameter:
            return nn.Parameter(torch.tensor(value, dtype=torch.float64))

        context = QUESTION + 1 + BUDGET_FEATURES
        self.question = layer(DIMENSION, QUESTION)
        self.pool_hidden, self.pool = layer(context + LLM_FEATURES, HIDDEN), layer(HIDDEN, 1)
        self.U, self.V = layer(ROLE_FEATURES, HIDDEN), layer(LLM_FEATURES, HIDDEN, False)
        self.agent = layer(ROLE_FEATURES + LLM_FEATURES + context, HIDDEN)
        self.own = nn.ModuleList(layer(HIDDEN, HIDDEN) for _ in range(2))
        self.others = nn.ModuleList(layer(HIDDEN, HIDDEN, False) for _ in range(2))
        self.gate = layer(HIDDEN, 1)
        self.Q, self.K = layer(HIDDEN, HIDDEN), layer(HIDDEN, HIDDEN)
        self.beta, self.open, self.join = number(30.0), number(3.0), number(-2.5)
        # Documents and reviews start out seldom wanted: while no edge carries them, they would only take others' money.
        self.fill, self.fill_others = number(3.0), number(-1.0)
        if generator is not None:
            for module in self.modules():
                if isinstance(module, nn.Linear):
                    bound = 1 / math.sqrt(module.in_features)
                    for parameter in module.parameters():
                        nn.init.uniform_(parameter, -bound, bound, generator=generator)
            # what all roles ask of an LLM: large from the start, or V would hardly move
            nn.init.uniform_(self.U.bias, -1.0, 1.0, generator=generator)

    def pool_parameters(self) -> Iterator[nn.Parameter]:
        """What only pool selection uses."""
        return (p for name, p in self.named_parameters() if name.startswith("pool"))

    def other_parameters(self) -> Iterator[nn.Parameter]:
        """All others."""
        return (p for name, p in self.named_parameters() if not name.startswith("pool"))

    def context(self, x: Tensor, d: Tensor, b: Tensor) -> Tensor:
        """(n, 19) from embeddings (n, 384), difficulties (n,) and budget features (n, 2)."""
        return torch.cat((self.question(x).relu(), d[:, None], b), 1)

    def pool_logits(self, context: Tensor, z: Tensor) -> Tensor:
        """(n, K) from the context (n, 19) and the mean features of the LLMs of each pool that fit, (n, K, 4)."""
        context = context[:, None, :].expand(*z.shape[:2], -1)
        return self.pool(self.pool_hidden(torch.cat((context, z), 2)).relu())[..., 0]

    def match_scores(self, e: Tensor, z: Tensor, d: Tensor) -> Tensor:
        """score(r, m) = <U e_r, V z_m> / sqrt(h) + beta d q_m criticality_r + constant, (n, R, M).

        e (n, R, 388), z (n, M, 4), d (n,). U is affine; q_m is the quality as scaled in z. There is one constant for
        roles that answer and one for the others. A role that stays empty scores 0.
        """
        product = self.U(e) @ self.V(z).transpose(1, 2) / math.sqrt(HIDDEN)
        critical, quality, answers = e[..., -1], z[..., 1], e[..., ANSWER]
        constant = answers * self.fill + (1 - answers) * self.fill_others
        return (product + self.beta * d[:, None, None] * critical[..., None] * quality[:, None, :]
                + constant[..., None])

    def represent(self, e: Tensor, z: Tensor, context: Tensor, there: Tensor) -> Tensor:
        """h (n, R, 32): two graph convolutions over the agents that are there (n, R), each joined to all others."""
        n, R, _ = e.shape
        h = self.agent(torch.cat((e, z, context[:, None, :].expand(n, R, -1)), 2)).relu()
        there = there.to(h.dtype)[..., None]
        number = (there.sum(1, keepdim=True) - 1).clamp(min=1)
        for own, others in zip(self.own, self.others, strict=True):
            h = h * there
            h = (own(h) + others((h.sum(1, keepdim=True) - h) / number)).relu()
        return h

    def gate_logits(self, h: Tensor) -> Tensor:
        """(n, R): of keeping each agent."""
        return self.gate(h)[..., 0] + self.open

    def edge_scores(self, h: Tensor) -> Tensor:
        """<Q h_i, K h_j> / sqrt(h) + constant, (n, R, R): of agent i handing its text to agent j."""
        return self.Q(h) @ self.K(h).transpose(1, 2) / math.sqrt(HIDDEN) + self.join
