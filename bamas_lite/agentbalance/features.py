"""What the design network sees of LLMs, roles, questions and budgets: features only, no names.

Because no LLM has an identity of its own here, one that was never trained on is just another row of numbers. The
choice of features is our reconstruction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bamas_lite.agentbalance.budgets import Budgets
from bamas_lite.agentbalance.profiles import Profile
from bamas_lite.agentbalance.roles import Role
from bamas_lite.encoder import encode

KINDS = ("document", "answer", "review")
LLM_FEATURES = 4
ROLE_FEATURES = 384 + len(KINDS) + 1
ANSWER = 384 + KINDS.index("answer")
"""The feature of a role that says whether it answers, 0 or 1."""
BUDGET_FEATURES = 2
_MOST_SECONDS = 60.0
"""A latency budget above this is no limit to any call here; it is shown to the network as this."""


@dataclass(frozen=True)
class Quality:
    """Mean and spread of the quality that the training LLMs have in each domain: the scale of the quality feature."""

    mean: dict[str, float]
    spread: dict[str, float]

    @classmethod
    def of(cls, profiles: Sequence[Profile]) -> Quality:
        """The scale that these LLMs set."""
        q = {domain: np.array([p.quality[domain] for p in profiles]) for domain in profiles[0].quality}
        return cls({d: float(v.mean()) for d, v in q.items()}, {d: float(max(v.std(), 1e-3)) for d, v in q.items()})

    def scaled(self, profiles: Sequence[Profile], domain: str) -> np.ndarray:
        """Quality in spreads above the mean, (M,)."""
        return np.array([(p.quality[domain] - self.mean[domain]) / self.spread[domain] for p in profiles])


def llm_features(quality: np.ndarray, costs: np.ndarray, latencies: np.ndarray, budgets: Budgets) -> np.ndarray:
    """z (M, 4): 1, scaled quality, and the logs of the shares of each budget that one planned call takes."""
    cost_share = np.log(costs / budgets.cost)
    latency_share = np.log(latencies / min(budgets.latency_s, _MOST_SECONDS))
    return np.stack((np.ones_like(quality), quality / 2, cost_share.clip(-4, 1) / 2, latency_share.clip(-4, 1) / 2), 1)


def role_features(roles: Sequence[Role]) -> np.ndarray:
    """e (R, 388): embedding of the role's prompt, kind, criticality."""
    text = encode([role_text(role) for role in roles])
    kinds = np.array([[role.kind == kind for kind in KINDS] for role in roles], float)
    return np.concatenate((text, kinds, np.array([[role.criticality] for role in roles])), axis=1)


def role_text(role: Role) -> str:
    """What is encoded of a role."""
    return f"{role.name}: {role.instruction}"


def budget_features(budgets: Budgets) -> np.ndarray:
    """b (2,): logs of both budgets, about 0 in the middle of what is usual here."""
    return np.array([np.log10(budgets.cost) - 3, np.log10(min(budgets.latency_s, _MOST_SECONDS)) - 0.7])
