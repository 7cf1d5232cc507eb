"""The most that an episode can cost and the most calls that it can make, before anything is asked.

With enforcement "reserve" no episode passes its budget. A large budget may not even be reached: a topology makes so
many calls at the most, and a call has a longest prompt and a longest completion.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bamas_lite.casting import Agent
from bamas_lite.llm import Enforcement, Message
from bamas_lite.prompts import (
    MAX_PLAN_STEPS,
    MOST_INSTRUCTION_CHARS,
    approach_of,
    critic_messages,
    executor_messages,
    planner_messages,
)
from bamas_lite.provisioning import TOKEN_LIMITS
from bamas_lite.tasks import Task
from bamas_lite.wire import bound_tokens

ROUNDS, REPLANS = 3, 2
"""What `generate_trajectories` plays: the defaults of `run_task`."""

QUOTED_BYTES = 300
"""The most bytes by which one token of a reply makes a later prompt longer (assumed; today's vocabularies have runs of
some hundred spaces as one token). It matters only for budgets that are far above what calls cost."""


def most_calls(topology: str, agents: list[Agent]) -> list[tuple[list[Agent], tuple[str, ...], int]]:
    """The most calls that an episode can make: groups of (agents, kinds of prompt, calls).

    Each call of a group is made by one of its agents with a prompt of one of its kinds (see `_prompts`). Fewer are
    made when a critic accepts, a plan is shorter or the budget ends.
    """
    critics = [agent for agent in agents if agent.role == "critic"]
    executors = [agent for agent in agents if agent.role == "executor"]
    if topology == "linear":
        return [([agent], ("solve", "improve"), 1) for agent in agents]
    if topology == "star":
        return [([agent], (f"approach {i}",), 1) for i, agent in enumerate(agents)]
    if topology == "feedback":
        answers = [([executors[r % len(executors)]], ("solve", "revise"), 1) for r in range(ROUNDS)]
        return answers + [([critics[r % len(critics)]], ("review",), 1) for r in range(ROUNDS - 1)]
    # Without a critic the first plan that can be used ends the work; after the last plan nobody criticizes.
    plans = REPLANS + 1
    steps = MAX_PLAN_STEPS * (plans if critics else 1)
    planner = [agent for agent in agents if agent.role == "planner"][:1]
    return [(planner, (f"plan {len(executors)}",), plans), (executors, ("solve", "step", "revise"), steps),
            *([(critics, ("review",), REPLANS)] if critics else [])]


class Dearest:
    """The most that a call can cost on one task, by LLM, role and kind of prompt."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self._known: dict[tuple[Any, ...], int] = {}

    def call(self, agent: Agent, kind: str, longest_reply: int) -> int:
        """Atoms of a call at its token limit, if quoted replies have `longest_reply` tokens."""
        key = agent.llm.name, agent.role, kind, longest_reply
        if key not in self._known:
            llm, limit = agent.llm, min(agent.llm.max_tokens, TOKEN_LIMITS[self.task.domain][agent.role])
            tokens = max(bound_tokens(llm, messages, strict=True) + quoted * QUOTED_BYTES * longest_reply + more
                         for messages, quoted, more in _prompts(self.task, kind, llm.few_shot))
            self._known[key] = llm.cost_atoms(tokens, limit)
        return self._known[key]


def _prompts(task: Task, kind: str, few_shot: bool) -> Iterator[tuple[list[Message], int, int]]:
    """Prompts of a kind with next to nothing quoted, how many replies they quote, and the bytes of what else varies.

    Which examples a few-shot prompt shows depends on what is quoted, so there is one prompt for each.
    """
    what, _, number = kind.partition(" ")
    for quoted in ("x", "```", "\\boxed") if few_shot else ("x",):
        if what == "approach":
            yield executor_messages(task, approach=approach_of(task.domain, int(number))), 0, 0
        elif what == "plan":
            names = [f"executor {i + 1}" for i in range(int(number))]
            more = (1 + MAX_PLAN_STEPS) * (50 + sum(map(len, names)))   # who said what; why a plan cannot be used
            yield planner_messages(task, names, results=quoted, critique=quoted), MAX_PLAN_STEPS + 1, more + 1000
        elif what == "review":
            yield critic_messages(task, quoted), 1, 50
        elif what == "step":
            yield executor_messages(task, earlier=quoted, instruction=quoted), 1, 4 * MOST_INSTRUCTION_CHARS
        else:
            parts = {"solve": {}, "improve": {"earlier": quoted}, "revise": {"earlier": quoted, "critique": quoted}}
            yield executor_messages(task, **parts[what]), len(parts[what]), 0


def worst_case(dearest: Dearest, budget: int, topology: str, agents: list[Agent],
               enforcement: Enforcement) -> tuple[int, int]:
    """The most that an episode can cost, and the most calls that it can make; budget and cost in atoms."""
    groups = most_calls(topology, agents)
    calls = sum(times for *_, times in groups)
    limits = TOKEN_LIMITS[dearest.task.domain]
    longest = max(min(agent.llm.max_tokens, limits[agent.role]) for agent in agents)
    # Completions alone fill most budgets: then no prompt needs to be written.
    completions = sum(times * max(agent.llm.cost_atoms(0, min(agent.llm.max_tokens, limits[agent.role]))
                                  for agent in group) for group, _, times in groups)
    if enforcement == "reserve" and completions >= budget:
        return budget, calls
    costs = [(times, max(dearest.call(agent, kind, longest) for agent in group for kind in kinds))
             for group, kinds, times in groups]
    total = sum(times * cost for times, cost in costs)
    most = budget if enforcement == "reserve" else budget + max(cost for _, cost in costs)
    return min(total, most), calls
