"""What a designer is asked for and what it answers: queries and designs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bamas_lite.agentbalance.arrays import real_numbers
from bamas_lite.agentbalance.backbones import Matching
from bamas_lite.agentbalance.budgets import Budgets, check_asked
from bamas_lite.agentbalance.graphs import AgentGraph
from bamas_lite.agentbalance.roles import Role
from bamas_lite.agentbalance.synthesis import Edges
from bamas_lite.encoder import DIMENSION
from bamas_lite.inputs import shown, whole


@dataclass(frozen=True)
class Query:
    """A question to design for.

    Attributes:
        x: its embedding, (384,), finite.
        domain: "arithmetic", "mathematics" or "code".
        budgets: of one task.
        pool: index of a candidate pool, which is then taken without being selected; None: select one.

    Raises:
        ValueError: a field does not fit; the message names it.
    """

    x: np.ndarray
    domain: str
    budgets: Budgets
    pool: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "x", embedding(self.x, "x", "an embedding"))
        check_asked(self.budgets, self.domain)
        if self.pool is not None:
            object.__setattr__(self, "pool", whole(self.pool, "pool"))


@dataclass(frozen=True)
class Design:
    """What was designed for one query, with every decision that led to it.

    Attributes:
        graph: the agents and who hands on to whom; planned cost and latency are its properties.
        query: what it was designed for.
        difficulty: d(x).
        pool: index of the selected candidate pool; None where the variant selects none.
        feasible: which pools could meet the budgets, (K,).
        roles: the role of each place, R.
        matching: the LLM of each place, as an index among the designer's profiles.
        scores: matching scores (R, M).
        gates: which filled places the gate kept, (R,) bool; where no answering one is among them, the one with the
            largest logit stays too.
        gate_logits: (R,).
        edges: decisions about the pairs of places, (R, R).
    """

    graph: AgentGraph
    query: Query
    difficulty: float
    pool: int | None
    feasible: np.ndarray
    roles: tuple[Role, ...]
    matching: Matching
    scores: np.ndarray
    gates: np.ndarray
    gate_logits: np.ndarray
    edges: Edges


def embedding(values: Any, what: str, expected: str) -> np.ndarray:
    """`values` as the vector (384,) of finite numbers that it must be; `expected` begins to say so in the message."""
    try:
        x = real_numbers(values, what)
    except ValueError:
        x = None
    if x is None or x.shape != (DIMENSION,) or not np.isfinite(x).all():
        given = f"= {shown(values)}" if x is None or not x.ndim else f"is an array of shape {x.shape}"
        raise ValueError(f"{what} {given}: expected {expected} of {DIMENSION} finite numbers")
    return x


def check_queries(queries: Any) -> None:
    """Raise ValueError unless `queries` is a list of Query; it may be empty."""
    wrong = [queries] if not isinstance(queries, Sequence) else [q for q in queries if not isinstance(q, Query)]
    if wrong:
        raise ValueError(f"queries holds {shown(wrong[0])}: expected a list of Query(x, domain, "
                         "budgets)")
