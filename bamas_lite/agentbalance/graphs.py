"""A team as a graph: who hands what to whom, what that costs, and how long the slowest way through it takes.

AgentBalance names latency-aware topology synthesis; its edge rule and formulas are not known to us, so what stands here
is our reconstruction: the latency of a graph is its critical path, T_j = l_j + max over predecessors T_i.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Real
from typing import Any

import networkx as nx
import numpy as np

from bamas_lite.agentbalance.profiles import MOST_COST
from bamas_lite.agentbalance.roles import Role
from bamas_lite.episode import MOST_SECONDS
from bamas_lite.inputs import shown, whole
from bamas_lite.pool import LLM, rank

MOST_AGENTS = 12
"""The most agents of a graph (ours)."""

HANDS = frozenset({("document", "document"), ("document", "answer"), ("document", "review"), ("answer", "answer"),
                   ("answer", "review"), ("review", "answer")})
"""Kinds (from, to) that an edge may join: a text is of use only to someone who is shown it."""


class GraphError(ValueError):
    """A graph that no team can play; the message names the agents and what would be valid."""


@dataclass(frozen=True, slots=True)
class GraphAgent:
    """One agent of a graph: a role, the LLM that plays it, and what is planned for its one call.

    Attributes:
        name: label in messages and traces, on one line; unique in a graph.
        cost: planned cost of its call without what others hand it, u$, at most MOST_COST.
        message_cost: planned cost of each text that it is handed, u$, at most MOST_COST.
        latency_s: planned seconds of its call, at most MOST_SECONDS.

    Raises:
        GraphError: a field that does not fit; the message names it, its value and what would be valid.
    """

    name: str
    role: Role
    llm: LLM
    cost: float
    message_cost: float
    latency_s: float

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip() or self.name.splitlines() != [self.name]:
            raise GraphError(f"name = {shown(self.name)}: expected text on one line")
        for field, kind, example in (("role", Role, "roles_of('code')[0]"), ("llm", LLM, "load_pool('paper').llms[0]")):
            if not isinstance(getattr(self, field), kind):
                raise GraphError(f"agent {self.name!r}: {field} = {shown(getattr(self, field))}: expected "
                                 f"{kind.__name__} objects, such as {example}")
        for field, unit, most in (("cost", "u$", MOST_COST), ("message_cost", "u$", MOST_COST),
                                  ("latency_s", "seconds", MOST_SECONDS)):
            value = getattr(self, field)
            number = value
            if type(value) is not float:
                if not isinstance(value, Real) or isinstance(value, bool):
                    raise GraphError(f"agent {self.name!r}: {field} = {shown(value)}: expected a number of {unit}")
                try:
                    number = float(value)
                except OverflowError:   # a whole number that is too large for a float
                    number = np.inf
                object.__setattr__(self, field, number)
            if not 0 <= number <= most:
                raise GraphError(f"agent {self.name!r}: {field} = {shown(value)}: expected a finite number of at least "
                                 f"0 {unit}, at most {most:g}")


@dataclass(frozen=True)
class AgentGraph:
    """Agents and who hands his text to whom; without a cycle, so that each is asked once, after all who hand him one.

    Attributes:
        agents: at most MOST_AGENTS, at least one of kind "answer".
        edges: (i, j): agent i hands what it writes to agent j; places in `agents`, kept in ascending order.

    Raises:
        GraphError: a cycle (the message names the agents on it), or another part that does not fit.
    """

    agents: tuple[GraphAgent, ...]
    edges: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        agents = _tuple(self.agents, "agents", "GraphAgent objects")
        for agent in agents:
            if not isinstance(agent, GraphAgent):
                raise GraphError(f"agents: {shown(agent)}: expected GraphAgent objects")
        if not 1 <= len(agents) <= MOST_AGENTS:
            raise GraphError(f"agents: {len(agents)} of them: expected 1 to {MOST_AGENTS}")
        for name, times in Counter(agent.name for agent in agents).items():
            if times > 1:
                raise GraphError(f"agents: the name {name!r} is used {times} times; names differ")
        if not any(agent.role.kind == "answer" for agent in agents):
            raise GraphError("agents: none of kind 'answer'; nothing could be graded")
        object.__setattr__(self, "agents", agents)
        edges = sorted(self._edge(edge) for edge in _tuple(self.edges, "edges", "pairs (i, j)"))
        for edge, again in zip(edges, edges[1:], strict=False):
            if edge == again:
                raise GraphError(f"edges: {edge} is there twice; expected each edge once")
        object.__setattr__(self, "edges", tuple(edges))
        try:
            self.order  # noqa: B018
        except nx.NetworkXUnfeasible:
            cycle = [i for i, _ in nx.find_cycle(self.digraph)]
            raise GraphError("edges: a cycle " + " -> ".join(agents[i].name for i in [*cycle, cycle[0]])
                             + "; each would wait for the other: leave out one of its edges") from None

    def _edge(self, edge: Any) -> tuple[int, int]:
        try:
            i, j = edge
        except (TypeError, ValueError):
            raise GraphError(f"edges: {shown(edge)}: expected a pair (i, j) of places in agents") from None
        try:
            i, j = (whole(place, "place", 0, len(self.agents) - 1) for place in (i, j))
        except ValueError:
            raise GraphError(f"edges: {shown(edge)}: expected two places in agents, whole numbers from 0 to "
                             f"{len(self.agents) - 1}") from None
        first, second = self.agents[i], self.agents[j]
        if i == j:
            raise GraphError(f"edges: {(i, j)}: {first.name!r} would hand its text to itself")
        if (first.role.kind, second.role.kind) not in HANDS:
            raise GraphError(f"edges: {(i, j)}: {first.name!r} ({first.role.kind}) has nothing to hand to "
                             f"{second.name!r} ({second.role.kind}); valid are "
                             + ", ".join(f"{a} -> {b}" for a, b in sorted(HANDS)))
        return i, j

    @cached_property
    def digraph(self) -> nx.DiGraph:
        """The graph for networkx: nodes 0 to n - 1 with the agents' fields `name`, `cost` and `latency_s`."""
        graph = nx.DiGraph()
        for i, agent in enumerate(self.agents):
            graph.add_node(i, name=agent.name, cost=agent.cost, latency_s=agent.latency_s)
        graph.add_edges_from(self.edges)
        return graph

    @cached_property
    def before(self) -> tuple[tuple[int, ...], ...]:
        """Predecessors of each agent, in ascending order."""
        return tuple(tuple(i for i, k in self.edges if k == j) for j in range(len(self.agents)))

    @cached_property
    def after(self) -> tuple[tuple[int, ...], ...]:
        """Successors of each agent, in ascending order."""
        return tuple(tuple(k for i, k in self.edges if i == j) for j in range(len(self.agents)))

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Places of the agents, each behind all its predecessors; where several may come next, the lowest first."""
        return tuple(nx.lexicographical_topological_sort(self.digraph))

    @cached_property
    def costs(self) -> np.ndarray:
        """Planned cost of each agent's call with all that it is handed, u$, shape (n,)."""
        return np.array([agent.cost + agent.message_cost * len(before)
                         for agent, before in zip(self.agents, self.before, strict=True)])

    @property
    def cost(self) -> float:
        """Planned cost, u$."""
        return float(self.costs.sum())

    @cached_property
    def finish_times(self) -> np.ndarray:
        """Planned end of each call, T_j = l_j + max over predecessors T_i, seconds, shape (n,)."""
        ends = np.zeros(len(self.agents))
        for j in self.order:
            ends[j] = self.agents[j].latency_s + max((ends[i] for i in self.before[j]), default=0.0)
        return ends

    @cached_property
    def tails(self) -> np.ndarray:
        """Longest planned time from the start of each call to the end of the last that waits for it, shape (n,)."""
        tails = np.zeros(len(self.agents))
        for j in reversed(self.order):
            tails[j] = self.agents[j].latency_s + max((tails[k] for k in self.after[j]), default=0.0)
        return tails

    @property
    def latency_s(self) -> float:
        """Planned latency: L(G) = max T_j, seconds."""
        return float(self.finish_times.max())

    @cached_property
    def critical_path(self) -> tuple[int, ...]:
        """Places of the agents on a slowest way through the graph, in the order in which they are asked."""
        timed = nx.DiGraph()
        for j, agent in enumerate(self.agents):   # a start before all of them turns their times into lengths of edges
            timed.add_weighted_edges_from((i, j, agent.latency_s) for i in (-1, *self.before[j]))
        return tuple(nx.dag_longest_path(timed)[1:]) or self.order[:1]   # empty where nothing takes any time

    def heard(self) -> AgentGraph:
        """The graph without agents whose text would reach no answering agent; the others are numbered anew.

        Left out are reviews that review no answer or that no answering agent is shown, and then documents from which no
        way leads to an answering agent.
        """
        kinds = [agent.role.kind for agent in self.agents]
        kept = {j for j, kind in enumerate(kinds) if kind == "answer" or (
            kind == "review" and any(kinds[i] == "answer" for i in self.before[j]) and self.after[j])}
        for j in reversed(self.order):
            if kinds[j] == "document" and kept.intersection(self.after[j]):
                kept.add(j)
        if len(kept) == len(self.agents):
            return self
        places = {old: new for new, old in enumerate(sorted(kept))}
        return replace(self, agents=tuple(self.agents[j] for j in places),
                       edges=tuple((places[i], places[j]) for i, j in self.edges if i in places and j in places))

    def __str__(self) -> str:
        llms = Counter(agent.llm.name for agent in sorted(self.agents, key=lambda agent: rank(agent.llm)))
        edges = f"{len(self.edges)} edge{'' if len(self.edges) == 1 else 's'}"
        return f"{' + '.join(f'{times}x {name}' for name, times in llms.items())}, {edges}"


def _tuple(values: Any, field: str, what: str) -> tuple[Any, ...]:
    if not isinstance(values, Iterable) or isinstance(values, (str, bytes)):
        raise GraphError(f"{field} = {shown(values)}: expected a tuple of {what}")
    return tuple(values)
