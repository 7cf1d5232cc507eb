"""How a cost and a latency budget are shared among the agents of a graph before the first call.

AgentBalance has both budgets; that each agent has a purse and a deadline of its own is our reconstruction.

**Purses.** The cost budget is divided in proportion to the planned costs; what an agent leaves of its purse goes to the
first of its successors. So what a call may cost depends only on the calls before it, and a replay makes identical
requests in whatever order live calls ended. What a provider bills beyond its limits is missing in the same place.
**Deadlines.** The latest end that leaves those behind it their planned times, all stretched by B_latency / L(G): with
R_j the longest planned way behind agent j, D_j = (L(G) - R_j) * B_latency / L(G), which is T_j * B_latency / L(G) on
the critical path and later elsewhere. A call gets no more tokens than its LLM writes by then. As each begins when its
predecessors are done, at their deadlines at the latest, it has at least its own planned time, stretched; and none ends
too late while every LLM keeps its first_token_s and tokens_per_s.
"""

from __future__ import annotations

import math
from itertools import accumulate, pairwise
from typing import Any

from bamas_lite.agentbalance.arrays import real_numbers
from bamas_lite.agentbalance.graphs import AgentGraph
from bamas_lite.inputs import shown, whole


def divide(atoms: int, costs: Any) -> list[int]:
    """Divide a budget in proportion to planned costs: whole atoms, each within one of its exact share, whose sum is the
    budget.

    Without any planned cost all get the same.

    Args:
        atoms: the budget, at least 0.
        costs: planned u$ of each agent, (n,), finite, at least 0; at least one agent.

    Raises:
        ValueError: an argument does not fit.
    """
    atoms, costs = whole(atoms, "atoms"), real_numbers(costs, "costs")
    if costs.ndim != 1 or not len(costs) or not ((costs >= 0) & (costs < math.inf)).all():
        raise ValueError(f"costs = {shown(costs.tolist())}: expected a finite number of at least 0 u$ for each of one "
                         "or more agents")
    ratios = [cost.as_integer_ratio() for cost in costs.tolist()]
    scale = max(denominator for _, denominator in ratios)   # all are powers of 2
    weights = [numerator * (scale // denominator) for numerator, denominator in ratios]
    if not any(weights):
        weights = [1] * len(weights)
    total = sum(weights)
    ends = [atoms * so_far // total for so_far in accumulate(weights)]   # each agent's part begins where the last ends
    return [end - start for start, end in pairwise([0, *ends])]


def deadlines(graph: AgentGraph, latency_budget: float) -> list[float]:
    """When each agent must have ended: D_j = (L(G) - R_j) * B_latency / L(G), seconds; at most the latency budget."""
    planned = graph.latency_s
    if latency_budget == math.inf or not planned:
        return [latency_budget] * len(graph.agents)
    return [min((planned - float(tail) + agent.latency_s) / planned * latency_budget, latency_budget)
            for agent, tail in zip(graph.agents, graph.tails, strict=True)]
