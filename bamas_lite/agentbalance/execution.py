"""Run an agent graph on one task, on any backend of the kit, under a cost and a latency budget.

The abstract has explicit token-cost and latency budgets; how AgentBalance executes a topology under them is not known
to us: purses, deadlines and what is handed on are our reconstruction.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bamas_lite.agentbalance.graphs import AgentGraph
from bamas_lite.agentbalance.shares import deadlines, divide
from bamas_lite.casting import Agent
from bamas_lite.episode import (
    Caller,
    CallRecord,
    Episode,
    all_of,
    check_backend,
    check_temperature,
    is_instant,
    play,
    run_now,
)
from bamas_lite.grading import vote_key
from bamas_lite.inputs import shown
from bamas_lite.llm import (
    BudgetMeter,
    CallError,
    ChatModel,
    Enforcement,
    Message,
    check_latency_fields,
    token_counts,
)
from bamas_lite.prompts import accepts, step_messages
from bamas_lite.provisioning import TOKEN_LIMITS
from bamas_lite.tasks import Task, check_task
from bamas_lite.topologies import vote
from bamas_lite.workflows import ROLES


async def run_graph(task: Task, graph: AgentGraph, backend: ChatModel, budget: Any = None,
                    latency_budget: float | None = None, *, enforcement: Enforcement = "reserve",
                    temperature: float = 0.0, token_limits: Mapping[str, Mapping[str, int]] = TOKEN_LIMITS,
                    minimum_tokens: dict[str, int] | None = None) -> Episode:
    """Ask every agent of a graph once, each as soon as all are done who hand it something; let the answers vote.

    An agent is shown the task and then, each part only if there is one: <documents>, what documents it is handed say,
    and answers that lost the vote; <earlier_answer>, the winner of `topologies.vote` among the answers it is handed,
    and those that the reviews it is handed were about; <critique>, the reviews of that answer, those that ask for a
    revision last. A review is skipped if it is handed no answer. An empty reply is not handed on.
    The graph's answer is the vote of all answers that no other complete answer was built on, directly or by a review.

    Args:
        task: the task; its reference is read by grading (and the simulator) only.
        graph: who is asked, and who hands what to whom.
        backend: answers the calls; a live one answers at the same time what does not wait for each other.
        budget: u$ for the whole episode; None: no limit.
        latency_budget: seconds of virtual time for the whole episode; None: no limit.
        enforcement: "reserve" never passes the cost budget; "paper" stops after it was passed, and asks the agents one
            after another, as there the cost of one call decides about the next. The latency budget is kept by both.
        temperature: of every call.
        token_limits: domain -> role -> most completion tokens of a call (the LLM's own max_tokens bounds it too); an
            answer is an "executor", a review a "critic", a document a "writer" (without an entry: as the executor).
        minimum_tokens: role -> fewest completion tokens worth paying for (see BudgetMeter).

    Returns:
        The episode; its `topology` is "graph", its `team` the graph's label, its `calls` are in the graph's order.
        `stop_reason` is "budget" if a budget (of cost or time) refused a call. A call that failed for good gives status
        "error"; what does not wait for it is asked all the same, so that a replay has the same calls.

    Raises:
        ValueError: an argument is wrong, an LLM lacks the fields that a latency budget needs, or a cost budget is to be
            divided among agents of which some have no planned cost.
        RunStopped: no call can be answered any more; calls in flight were waited for.
    """
    check_task(task)
    check_backend(backend)
    check_temperature(temperature)
    if not isinstance(graph, AgentGraph):
        raise ValueError(f"graph = {shown(graph)}: expected an AgentGraph")
    limits = _limits(task, token_limits)
    options: dict[str, Any] = {"minimum_tokens": minimum_tokens, "latency_budget": latency_budget}
    if budget is None:
        meter, limit, purses = BudgetMeter.unlimited(enforcement, **options), math.inf, None
    else:
        meter = BudgetMeter(budget, enforcement, **options)
        limit = float(budget)
        purses = _purses(graph, meter.budget_atoms) if enforcement == "reserve" else None
    if meter.latency_budget < math.inf:
        check_latency_fields(agent.llm for agent in graph.agents)
    agents = tuple(Agent(agent.name, ROLES[agent.role.kind], agent.llm, agent) for agent in graph.agents)
    call = Caller(task, backend, meter, limits, temperature)
    run = _Run(task, graph, agents, call, purses, deadlines(graph, meter.latency_budget),
               slow=task.domain == "code" and not is_instant(backend))
    moves = run.in_turn() if enforcement == "paper" or is_instant(backend) else run.at_once()
    return await play(moves, call, task=task, topology="graph", team=str(graph), budget=limit, backend=backend,
                      agents=agents)


def run_graph_sync(task: Task, graph: AgentGraph, backend: ChatModel, budget: Any = None,
                   latency_budget: float | None = None, **options: Any) -> Episode:
    """`run_graph` for scripts: no `await`, and no event loop for a backend that never waits (see `is_instant`).

    Raises:
        ValueError, RunStopped: as `run_graph`.
        RuntimeError: called where an event loop runs already (a notebook), with a backend that waits.
    """
    check_backend(backend)
    return run_now(run_graph(task, graph, backend, budget, latency_budget, **options), backend, "run_graph")


@dataclass(slots=True)
class _Said:
    """What an agent wrote: the answers that it was `built_on`; of a review the answer `about` which it is."""

    record: CallRecord
    built_on: set[int]
    about: int | None


class _Run:
    """The calls of one graph: who has said what, and what they have left of their purses."""

    def __init__(self, task: Task, graph: AgentGraph, agents: Sequence[Agent], call: Caller, purses: list[int] | None,
                 deadlines: list[float], slow: bool) -> None:
        self.task, self.graph, self.agents, self.call, self.slow = task, graph, agents, call, slow
        self.purses, self.deadlines = purses, deadlines
        self.ends = [0.0] * len(agents)
        self.said: dict[int, _Said] = {}
        self.records: dict[int, CallRecord] = {}
        self.failed: dict[int, Exception] = {}
        self.refused = False
        self.stopped = False
        self.place = {j: n for n, j in enumerate(graph.order)}

    async def in_turn(self) -> tuple[str | None, str]:
        """All in the graph's order, one after another; with enforcement="paper" also in virtual time."""
        paper, now = self.call.meter.enforcement == "paper", 0.0
        for j in self.graph.order:
            await self.step(j, now)
            if paper:
                now = max(now, self.ends[j])
        return await self.outcome()

    async def at_once(self) -> tuple[str | None, str]:
        """Each as soon as its predecessors are done."""
        done = [asyncio.Event() for _ in self.agents]

        async def after_others(j: int) -> None:
            for i in self.graph.before[j]:
                await done[i].wait()
            await self.step(j)
            done[j].set()

        await all_of(after_others(j) for j in self.graph.order)
        return await self.outcome()

    async def step(self, j: int, now: float = 0.0) -> None:
        """The turn of agent j, whose predecessors have had theirs."""
        before = self.graph.before[j]
        start = max([now, *(self.ends[i] for i in before)])
        self.ends[j] = start
        cause = next((i for i in before if i in self.failed), None)
        if cause is not None:
            self.failed[j] = self.failed[cause]
        if cause is not None or self.stopped:
            return
        try:
            await self.ask(j, start)
        except Exception as error:   # the others are waited for before it passes, see `outcome`
            self.failed[j] = error
            self.stopped = self.stopped or not isinstance(error, CallError)
        self.hand_on_purse(j)

    async def ask(self, j: int, start: float) -> None:
        """The call of agent j, unless it is skipped."""
        asked = await self.prompt(j)
        if asked is None:
            return
        messages, built_on, about = asked
        record = await self.call.at(start, self.agents[j], messages, deadline_s=self.deadlines[j],
                                    purse=None if self.purses is None else self.purses[j])
        if record is None:
            self.refused = True
            return
        self.records[j] = record
        self.ends[j] = record.end_s
        if record.fault:
            raise CallError(record.fault)
        if record.reply.text.strip():
            self.said[j] = _Said(record, built_on, about)

    def hand_on_purse(self, j: int) -> None:
        """Give what agent j leaves of its purse to the first of its successors."""
        after = self.graph.after[j]
        if self.purses is None or not after:
            return
        left = self.purses[j]
        if j in self.records:
            record, usage = self.records[j], self.records[j].usage
            left -= record.llm.cost_atoms(usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens)
        self.purses[min(after, key=self.place.__getitem__)] += left

    async def prompt(self, j: int) -> tuple[list[Message], set[int], int | None] | None:
        """What agent j is asked, the answers that it builds on, and the earlier one among them; None: to be skipped.

        It builds on the answers that it is shown, and on those that its reviews were.
        """
        role = self.graph.agents[j].role
        before = sorted((i for i in self.graph.before[j] if i in self.said), key=self.place.__getitem__)
        kinds = {i: self.graph.agents[i].role.kind for i in before}
        reviews = [i for i in before if kinds[i] == "review"]
        answers = {i for i in before if kinds[i] == "answer"} | {self.said[i].about for i in reviews}
        candidates = sorted(answers, key=self.place.__getitem__)
        if role.kind == "review" and not candidates:
            return None
        winner = await self.elected(candidates)
        best = None if winner is None else self.text(winner)
        heard, aside = [], []
        for i in reviews:
            (heard if await self.same(self.said[i].about, winner) else aside).append(i)
        heard.sort(key=lambda i: not accepts(self.text(i)))
        papers = [i for i in before if kinds[i] == "document" or i in aside] + [i for i in candidates if i != winner]
        papers.sort(key=self.place.__getitem__)
        documents = "\n".join(f"{self.agents[i].name}:\n{self.text(i)}" for i in papers)
        messages = step_messages(self.task, role.name, role.kind, role.instruction, documents=documents or None,
                                 earlier=best, critique="\n".join(map(self.text, heard)) or None)
        read = {i for review in reviews for i in self.said[review].built_on}
        return messages, read.union(candidates), winner

    async def elected(self, answers: list[int]) -> int | None:
        """The answer that wins the vote; None: there is none."""
        if len(answers) < 2:
            return answers[0] if answers else None
        replies = [self.said[i].record.reply for i in answers]
        text = await self._aside(vote, self.task, [self.agents[i] for i in answers], replies)
        return next(i for i in answers if self.text(i) == text)

    async def same(self, one: int | None, other: int | None) -> bool:
        """Whether two answers are one vote."""
        if one is None or other is None or self.text(one) == self.text(other):
            return True
        keys = [await self._aside(vote_key, self.task, self.text(i)) for i in (one, other)]
        return keys[0] is not None and keys[0] == keys[1]

    async def _aside(self, function: Any, *arguments: Any) -> Any:
        """`function`, which runs programs for code: other calls' replies must not wait for it."""
        return await asyncio.to_thread(function, *arguments) if self.slow else function(*arguments)

    def text(self, i: int) -> str:
        return self.said[i].record.reply.text

    async def outcome(self) -> tuple[str | None, str]:
        """The answer to grade and the reason to stop; raises what failed, the graph's first call first."""
        order = self.graph.order
        for j in order:
            if j in self.records:
                self.call.note(self.records[j])
        failures = [self.failed[j] for j in order if j in self.failed]
        if failures:
            raise min(failures, key=lambda failure: isinstance(failure, CallError))   # what stops the run before others
        answers = [j for j in order if j in self.said and self.agents[j].role == "executor"]
        complete = {j for j in answers if self.said[j].record.reply.finish_reason != "length"}
        used = {i for j in answers for i in self.said[j].built_on if j in complete or i not in complete}
        winner = await self.elected([j for j in answers if j not in used])
        return None if winner is None else self.text(winner), "budget" if self.refused else "finished"


def _purses(graph: AgentGraph, budget_atoms: int) -> list[int]:
    """The part of the budget that each agent has, in atoms; every one needs a planned cost, as no LLM is free."""
    free = [agent.name for agent, cost in zip(graph.agents, graph.costs, strict=True) if not cost]
    if 0 < len(free) < len(graph.agents):
        raise ValueError(f"agent {free[0]!r}: cost = 0.0, while others have a planned cost: it would have no part of "
                         "the budget and never be asked; expected the planned u$ of its call, or 0 for all agents, "
                         "which then have equal parts")
    return divide(budget_atoms, graph.costs)


def _limits(task: Task, token_limits: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """The token limits of the task's domain for the roles of a graph."""
    if not isinstance(token_limits, Mapping) or task.domain not in token_limits:
        raise ValueError(f"token_limits = {shown(token_limits)}: expected domain -> role -> tokens, with the domain "
                         f"{task.domain!r}")
    limits = token_counts(token_limits[task.domain], f"token_limits[{task.domain!r}]", 1)
    if "executor" not in limits:
        raise ValueError(f"token_limits[{task.domain!r}]: has no executor, a role of every graph")
    return {role: limits.get(role, limits["executor"]) for role in ROLES.values()}
