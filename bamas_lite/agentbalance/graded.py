"""Runs of which only the grade is of use: a failed call must not pass for a wrong answer."""

from __future__ import annotations

from typing import Any

from bamas_lite.agentbalance.execution import run_graph_sync
from bamas_lite.agentbalance.graphs import AgentGraph
from bamas_lite.episode import Episode
from bamas_lite.inputs import shown
from bamas_lite.llm import ChatModel
from bamas_lite.tasks import Task


def run_graded(task: Task, graph: AgentGraph, backend: ChatModel, budget: Any = None,
               latency_budget: float | None = None) -> Episode:
    """`run_graph_sync` for training and for comparing on training tasks.

    Raises:
        RuntimeError: the episode has status "error"; the message names task, graph and fault.
        ValueError, RunStopped: as `run_graph`.
    """
    episode = run_graph_sync(task, graph, backend, budget, latency_budget)
    if episode.status != "ok":
        raise RuntimeError(f"task {shown(task.task_id)}, graph {graph}: no answer that could be graded: "
                           f"{episode.reason}; this is no wrong answer, so nothing can be learned from it")
    return episode
