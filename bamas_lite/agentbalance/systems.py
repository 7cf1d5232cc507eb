"""AgentBalance, as reconstructed, and all that it is compared with: one row for each system, seed, pair of budgets and
task, always with the guard on.

All systems see the same LLMs, tasks, budgets and simulated replies, and keep to their budgets in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from bamas_lite.agentbalance.budgets import Budgets, InfeasibleBudgetsError, check_budgets
from bamas_lite.agentbalance.designer import Designer
from bamas_lite.agentbalance.designs import Design, Query
from bamas_lite.agentbalance.execution import run_graph_sync
from bamas_lite.agentbalance.graded import run_graded
from bamas_lite.agentbalance.graphs import AgentGraph, GraphAgent
from bamas_lite.agentbalance.profiles import Profile
from bamas_lite.agentbalance.roles import Role
from bamas_lite.encoder import encode
from bamas_lite.episode import Episode
from bamas_lite.llm import ChatModel
from bamas_lite.pool import Pool
from bamas_lite.provisioning import TOKEN_LIMITS, InfeasibleBudgetError
from bamas_lite.tasks import Task
from bamas_lite.team import Slot
from bamas_lite.timed_provisioning import provision_in_time
from bamas_lite.timed_team import TimedTeam
from bamas_lite.topologies import TOPOLOGIES, run_task_sync

Row = dict[str, Any]

ALONE = Role("solver", "answer", "Solve the task.", 1.0)


def designed(name: str, designer: Designer, tasks: Sequence[Task], cells: Iterable[Budgets], backend: ChatModel
             ) -> list[Row]:
    """Run what a designer designs."""
    rows = []
    for budgets in cells:
        for task, design in zip(tasks, _designs(designer, tasks, budgets), strict=True):
            graph = design and design.graph
            episode = graph and _run(task, graph, budgets, backend)
            rows.append(_row(name, backend, budgets, task, episode, graph))
    return rows


def _designs(designer: Designer, tasks: Sequence[Task], budgets: Budgets) -> list[Design | None]:
    """A design for each task; None where the budgets allow none."""
    fits = {}
    for domain in dict.fromkeys(task.domain for task in tasks):
        try:
            check_budgets(designer.profiles, budgets, domain)
            designer.check_team(budgets, domain)
            fits[domain] = True
        except (InfeasibleBudgetsError, InfeasibleBudgetError):
            fits[domain] = False
    asked = [task for task in tasks if fits[task.domain]]
    if not asked:
        return [None] * len(tasks)
    x = encode([task.question for task in asked])
    found = iter(designer.designs([Query(x[i], task.domain, budgets) for i, task in enumerate(asked)]))
    return [next(found) if fits[task.domain] else None for task in tasks]


def best_single(profiles: Sequence[Profile], train: Sequence[Task], tasks: Sequence[Task], cells: Iterable[Budgets],
                backend: ChatModel) -> list[Row]:
    """One LLM alone: for each pair of budgets and each domain the one that is right most often on the training tasks
    when it has to keep to these budgets; of equals the cheapest.

    Raises:
        RuntimeError: a call failed on a training task: which LLM is best is then not known.
    """
    rows = []
    for budgets in cells:
        graphs = {domain: _best_alone(profiles, [t for t in train if t.domain == domain], domain, budgets, backend)
                  for domain in dict.fromkeys(task.domain for task in tasks)}
        for task in tasks:
            graph = graphs[task.domain]
            rows.append(_row("best single LLM", backend, budgets, task, _run(task, graph, budgets, backend), graph))
    return rows


def _best_alone(profiles: Sequence[Profile], train: Sequence[Task], domain: str, budgets: Budgets,
                backend: ChatModel) -> AgentGraph:
    graphs = [AgentGraph((GraphAgent(ALONE.name, ALONE, p.llm, p.cost(domain), p.message_cost(domain),
                                     p.latency_s(domain)),)) for p in profiles]

    def right(graph: AgentGraph) -> int:
        return sum(run_graded(task, graph, backend, budgets.cost, _seconds(budgets)).correct for task in train)

    return max(graphs, key=lambda graph: (right(graph), -graph.cost))


def topologies(pool: Pool, tasks: Sequence[Task], cells: Iterable[Budgets], backend: ChatModel) -> list[Row]:
    """BAMAS's team in each of its four topologies; the team meets the latency budget too, as planned for the topology.

    The rows' system is the topology: a policy that chooses one picks among them.
    """
    rows = []
    for budgets in cells:
        for topology in TOPOLOGIES:
            domains = dict.fromkeys(task.domain for task in tasks)
            teams = {domain: _team(pool, budgets, topology, domain) for domain in domains}
            for task in tasks:
                team = teams[task.domain]
                episode = None if team is None else run_task_sync(
                    task, team, topology, backend, budgets.cost, latency_budget=_seconds(budgets))
                rows.append(_row(topology, backend, budgets, task, episode))
    return rows


def _team(pool: Pool, budgets: Budgets, topology: str, domain: str) -> TimedTeam | None:
    """BAMAS's team, planned with the longest completion that the domain allows; None if none meets the budgets."""
    longest = TOKEN_LIMITS[domain]["executor"]
    try:
        return provision_in_time(pool, budgets.cost, budgets.latency_s, topology, t_out=longest, method="lexicographic")
    except InfeasibleBudgetError:
        return None


def plugged_in(designer: Designer, tasks: Sequence[Task], cells: Iterable[Budgets], backend: ChatModel) -> list[Row]:
    """Our backbone stage inside each of BAMAS's topologies: its matched LLMs are the team (system "<topology> + ours").

    A team of one is doubled, as two of the topologies need two agents.
    """
    rows = []
    for budgets in cells:
        for task, design in zip(tasks, _designs(designer, tasks, budgets), strict=True):
            team = design and Backbones.of(design, designer)
            for topology in TOPOLOGIES:
                episode = None if team is None else run_task_sync(
                    task, team, topology, backend, budgets.cost, latency_budget=_seconds(budgets))
                rows.append(_row(f"{topology} + ours", backend, budgets, task, episode))
    return rows


class Backbones:
    """The matched LLMs of a design as a team that `cast_roles` can cast; before the gate."""

    def __init__(self, slots: tuple[Slot, ...]) -> None:
        self.slots = slots

    @classmethod
    def of(cls, design: Design, designer: Designer) -> Backbones:
        """One slot for each role that was filled, at least two."""
        copies: dict[str, int] = {}
        slots, matched = [], design.matching.llms[design.matching.llms >= 0].tolist()
        for m in matched * 2 if len(matched) == 1 else matched:
            llm = designer.profiles[m].llm
            copies[llm.name] = copies.get(llm.name, 0) + 1
            slots.append(Slot(llm, copies[llm.name]))
        return cls(tuple(slots))

    def __str__(self) -> str:
        return " + ".join(slot.name for slot in self.slots)


def _seconds(budgets: Budgets) -> float | None:
    return None if np.isinf(budgets.latency_s) else budgets.latency_s


def _run(task: Task, graph: AgentGraph, budgets: Budgets, backend: ChatModel) -> Episode:
    return run_graph_sync(task, graph, backend, budgets.cost, _seconds(budgets))


def _row(name: str, backend: ChatModel, budgets: Budgets, task: Task, episode: Episode | None,
         graph: AgentGraph | None = None) -> Row:
    known = {"method": name, "seed": backend.seed, "cost_budget": budgets.cost, "latency_budget": budgets.latency_s,
             "task_id": task.task_id, "domain": task.domain}
    if episode is None or episode.status == "infeasible":
        return known | {"correct": False, "status": "infeasible", "cost": 0.0, "latency_s": 0.0, "n_agents": 0,
                        "n_edges": 0}
    return known | {"correct": bool(episode.correct), "status": episode.status, "cost": episode.cost,
                    "latency_s": episode.latency_s, "n_agents": len(graph.agents) if graph else len(episode.agents),
                    "n_edges": len(graph.edges) if graph else 0}


def as_frame(rows: Iterable[Row]) -> pd.DataFrame:
    """Rows as a table of small columns."""
    table = pd.DataFrame(rows)
    small = {"correct": bool, "cost": np.float32, "latency_s": np.float32, "n_agents": np.int8, "n_edges": np.int8}
    return table.astype(small).astype(dict.fromkeys(("method", "task_id", "domain", "status"), "category"))
