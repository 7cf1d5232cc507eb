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
from collections.abc import Iterable

from bamas_lite.agentbalance.graphs import AgentGraph


def divide(atoms: int, costs: Iterable[float]) -> list[int]:
    """Divide a budget in proportion to planned costs, exactly: whole atoms whose sum is at most the budget.

    Without any planned cost all get the same.
    """
    ratios = [float(cost).as_integer_ratio() for cost in costs]
    scale = max(denominator for _, denominator in ratios)   # all are powers of 2
    weights = [numerator * (scale // denominator) for numerator, denominator in ratios]
    if not any(weights):
        weights = [1] * len(weights)
    return [atoms * weight // sum(weights) for weight in weights]


def deadlines(graph: AgentGraph, latency_budget: float) -> list[float]:
    """When each agent must have ended: D_j = (L(G) - R_j) * B_latency / L(G), seconds; at most the latency budget."""
    planned = graph.latency_s
    if latency_budget == math.inf or not planned:
        return [latency_budget] * len(graph.agents)
    return [min((planned - float(tail) + agent.latency_s) / planned * latency_budget, latency_budget)
            for agent, tail in zip(graph.agents, graph.tails, strict=True)]
