"""Latency-aware topology synthesis: which agent hands its text to which, within both budgets.

The abstract names this stage; the rule is our reconstruction. Pairs are looked at from the highest score down, and

    logit(i -> j) = score(i, j) - alpha * (L(G + ij) - L(G)) / B_latency

decides about each: the more an edge lengthens the critical path, the better it has to be. An edge that would close a
cycle or break a budget is not looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import networkx as nx
import numpy as np


@dataclass(frozen=True)
class Edges:
    """What was decided about the pairs of n agents.

    Attributes:
        chosen: the edges (i, j), in the order in which they were added.
        asked: (n, n) bool: pairs that were decided about.
        stretch: (n, n): (L(G + ij) - L(G)) / B_latency when the pair was decided about, else 0.
    """

    chosen: tuple[tuple[int, int], ...]
    asked: np.ndarray
    stretch: np.ndarray


def synthesize(scores: np.ndarray, candidates: np.ndarray, latencies: np.ndarray, message_costs: np.ndarray,
               cost_left: float, latency_budget: float, alpha: float,
               decide: Callable[[float], bool]) -> Edges:
    """Add edges one by one.

    Args:
        scores: (n, n), of the edge i -> j.
        candidates: (n, n) bool, the pairs that may be joined.
        latencies: planned seconds of each agent's call, (n,).
        message_costs: planned u$ for each text handed to agent j, (n,).
        cost_left: u$ of the budget that the agents' own calls leave.
        latency_budget: seconds; infinite: latency does not matter.
        alpha: weight of the latency term.
        decide: of the logit; greedily `lambda logit: logit > 0`, in training a draw.
    """
    n = len(scores)
    asked, stretch = np.zeros((n, n), bool), np.zeros((n, n))
    graph = nx.empty_graph(n, create_using=nx.DiGraph)
    finish, tails, longest = latencies.copy(), latencies.copy(), float(max(latencies, default=0.0))
    chosen = []
    pairs = np.argwhere(candidates)
    for i, j in pairs[np.argsort(-scores[tuple(pairs.T)], kind="stable")].tolist():
        longer = max(longest, float(finish[i] + tails[j]))
        if message_costs[j] > cost_left or longer > latency_budget or nx.has_path(graph, j, i):
            continue
        asked[i, j], stretch[i, j] = True, (longer - longest) / latency_budget
        if not decide(scores[i, j] - alpha * stretch[i, j]):
            continue
        graph.add_edge(i, j)
        chosen.append((i, j))
        cost_left -= message_costs[j]
        finish, tails = path_times(graph, latencies)
        longest = longer
    return Edges(tuple(chosen), asked, stretch)


def path_times(graph: nx.DiGraph, latencies: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The critical-path method: for each agent the planned end of its call, T_j = l_j + max of T_i over predecessors,
    and the longest planned time from its start to the end of everything that waits for it."""
    order = list(nx.topological_sort(graph))
    finish, tails = latencies.astype(float), latencies.astype(float)
    for j in order:
        finish[j] += max((finish[i] for i in graph.pred[j]), default=0.0)
    for i in reversed(order):
        tails[i] += max((tails[j] for j in graph.succ[i]), default=0.0)
    return finish, tails
