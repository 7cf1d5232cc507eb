"""The four topologies: who is asked in which order, and whose answer counts.

A topology is a coroutine `(task, agents, call, ...) -> (answer, stop_reason)`. It makes its calls with
`await call(agent, messages)`; `call.answer` is the last complete executor answer so far. When the budget does not
allow a call, `call` raises BudgetExhausted and `run_task` answers with `call.answer`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from bamas_lite.casting import TOPOLOGIES, Agent, Casting, CastingError, cast_roles
from bamas_lite.episode import (
    BudgetExhausted,
    Caller,
    CallRecord,
    Episode,
    check_backend,
    check_temperature,
    play,
    run_now,
)
from bamas_lite.grading import vote_key
from bamas_lite.inputs import shown, whole
from bamas_lite.llm import BudgetMeter, ChatModel, Enforcement, Reply, check_latency_fields, token_counts
from bamas_lite.prompts import (
    PlanError,
    accepts,
    approach_of,
    critic_messages,
    executor_messages,
    parse_plan,
    planner_messages,
)
from bamas_lite.provisioning import TOKEN_LIMITS, Team
from bamas_lite.tasks import Task, check_task

__all__ = ["TOPOLOGIES", "Agent", "BudgetExhausted", "CallRecord", "Caller", "CastingError", "Episode", "cast_roles",
           "feedback", "infeasible_episode", "linear", "planner_driven", "run_task", "run_task_sync", "star", "vote"]

Outcome = tuple[str | None, str]
"""The answer to grade (None: there is none) and the reason to stop: "finished", "budget" or "rounds"."""

StarPrompts = Literal["different", "same"]


async def linear(task: Task, agents: list[Agent], call: Caller) -> Outcome:
    """One after the other; each agent sees the answer before its own and improves on it (BAMAS, Linear)."""
    for agent in agents:
        await call(agent, executor_messages(task, earlier=call.answer))
    return call.answer, "finished"


async def star(task: Task, agents: list[Agent], call: Caller, prompts: StarPrompts = "different") -> Outcome:
    """All at once, unseen by each other; the majority wins (BAMAS, Star).

    Each gets an approach of its own. With `prompts="same"` (as in the public code) all get the plain prompt; at
    temperature 0 the copies of an LLM then say the same.
    """
    approaches = [approach_of(task.domain, i) if prompts == "different" else None for i in range(len(agents))]
    requests = [(agent, executor_messages(task, approach=approach))
                for agent, approach in zip(agents, approaches, strict=True)]
    replies = await call.together(requests)
    return vote(task, agents, replies), "finished" if len(replies) == len(agents) else "budget"


async def feedback(task: Task, agents: list[Agent], call: Caller, rounds: int = 3,
                   critic_heard: bool = True) -> Outcome:
    """Answer, criticize, revise, until the critic accepts; round r is executor r mod n's (BAMAS, Feedback).

    The answer of the last round is not criticized: nobody could act on what the critic says. With `critic_heard=False`
    an ACCEPT is not recognized, so that all rounds are played.
    """
    critics, executors = _playing("critic", agents), _playing("executor", agents)
    critique = None
    for r in range(rounds):
        await call(executors[r % len(executors)], executor_messages(task, earlier=call.answer, critique=critique))
        if r < rounds - 1 and call.answer is not None:
            verdict = await call(critics[r % len(critics)], critic_messages(task, call.answer))
            if critic_heard and accepts(verdict.text):
                return call.answer, "finished"
            critique = verdict.text
    return call.answer, "rounds"


async def planner_driven(task: Task, agents: list[Agent], call: Caller, replans: int = 2) -> Outcome:
    """A planner splits the work into steps for the executors; a critic may send it back (BAMAS, Planner-Driven).

    A plan that cannot be used costs one of the `replans`, as a rejected answer does. When they are used up and the
    last plan was no good either, the strongest executor is asked directly.
    """
    planner, executors = _playing("planner", agents)[0], _playing("executor", agents)
    critics, names = _playing("critic", agents), [agent.name for agent in executors]
    results = critique = problem = None
    for attempt in range(replans + 1):
        reply = await call(planner, planner_messages(task, names, results=results, critique=problem or critique))
        try:
            plan, problem = parse_plan(reply.text, names), None
        except PlanError as error:
            problem = f"The plan cannot be used: {error}"
            continue
        done = []
        for step in plan:
            executor = executors[names.index(step.agent)]
            await call(executor, executor_messages(task, earlier=call.answer, instruction=step.instruction))
            done.append(f"{step.agent}: {call.answer or 'no answer'}")
        if not critics:
            return call.answer, "finished"
        if attempt == replans:
            return call.answer, "rounds"
        verdict = await call(critics[attempt % len(critics)], critic_messages(task, call.answer or "(no answer)"))
        if accepts(verdict.text):
            return call.answer, "finished"
        results, critique = "\n".join(done), verdict.text
    await call(executors[0], executor_messages(task, earlier=call.answer, critique=call.answer and critique))
    return call.answer, "rounds"


def vote(task: Task, agents: list[Agent], replies: list[Reply]) -> str | None:
    """The text that wins: most votes, then more of the stronger tier, then the earliest slot.

    Replies agree when `grading.vote_key` says so. A reply that was cut off votes only if all were; one without a
    readable answer never does.
    """
    given = [(agent, reply) for agent, reply in zip(agents, replies, strict=False) if reply.text.strip()]
    given = [pair for pair in given if pair[1].finish_reason != "length"] or given
    if len(given) < 2:
        return given[0][1].text if given else None
    ballots: dict[Any, tuple[list[int], str]] = {}
    for agent, reply in given:
        key = vote_key(task, reply.text)
        if key is not None:
            ballots.setdefault(key, ([], reply.text))[0].append(agent.llm.tier or 0)  # as pool.rank has it
    # Insertion order is slot order and min() keeps the first of equals, so the earliest slot wins the last tie.
    return min(ballots.values(), key=lambda b: (-len(b[0]), sorted(b[0])), default=(None, given[0][1].text))[1]


def _playing(role: str, agents: list[Agent]) -> list[Agent]:
    return [agent for agent in agents if agent.role == role]


async def run_task(task: Task, team: Any, topology: str, backend: ChatModel, budget: Any, *,
                   enforcement: Enforcement = "reserve", temperature: float = 0.0, casting: Casting = "paper",
                   rounds: int = 3, replans: int = 2, star_prompts: StarPrompts = "different",
                   critic_heard: bool = True, token_limits: Mapping[str, Mapping[str, int]] = TOKEN_LIMITS,
                   minimum_tokens: dict[str, int] | None = None, latency_budget: float | None = None) -> Episode:
    """Run one team on one task under a budget.

    Args:
        task: the task; its reference is read by grading (and the simulator) only.
        team: what `provision` returned.
        topology: one of TOPOLOGIES.
        backend: answers the calls.
        budget: u$ for the whole episode.
        enforcement: "reserve" never passes the budget; "paper" stops after it was passed.
        temperature: of every call.
        casting: "paper" or "code", see `cast_roles`.
        rounds: the most answers that Feedback writes.
        replans: the most new plans in Planner-Driven, after a bad plan or a rejected answer.
        star_prompts: "different": each agent of Star gets an approach of its own; "same" (public code): all get the
            plain prompt, so that at temperature 0 the copies of an LLM give the same answer.
        critic_heard: whether Feedback's critic can accept; False: its verdict is never recognized (public code on
            MBPP), so all rounds are played. Planner-Driven, where the public code has no critic, does not change.
        token_limits: domain -> role -> most completion tokens of a call (the LLM's own max_tokens bounds it too).
        minimum_tokens: role -> fewest completion tokens worth paying for (see BudgetMeter).
        latency_budget: seconds of virtual time for the whole episode (see BudgetMeter); None: no limit. A call for
            which it leaves no useful time is refused as one is that the budget does not allow.

    Returns:
        The episode. A team that cannot play the topology gives status "infeasible", a call that failed for good
        "error"; both carry their reason and are not graded.

    Raises:
        ValueError: an argument is wrong; the message names it, its value and what would be valid.
    """
    check_task(task)
    check_backend(backend)
    limits = _checked_limits(task, token_limits, temperature, rounds, replans)
    if star_prompts not in ("different", "same"):
        raise ValueError(f"star_prompts = {shown(star_prompts)}: expected 'different' or 'same'")
    if not isinstance(critic_heard, bool):
        raise ValueError(f"critic_heard = {shown(critic_heard)}: expected True or False")
    meter = BudgetMeter(budget, enforcement, minimum_tokens=minimum_tokens, latency_budget=latency_budget)
    try:
        agents = _cast(team, topology, casting)
    except CastingError as error:
        episode = infeasible_episode(task, topology, budget, str(error), team=team, backend=backend.name,
                                     enforcement=enforcement)
        return episode if latency_budget is None else replace(episode, latency_budget=meter.latency_budget)
    if meter.latency_budget < math.inf:
        check_latency_fields(agent.llm for agent in agents)
    for agent in agents:
        if agent.role not in limits:
            raise ValueError(f"token_limits[{task.domain!r}]: has no {agent.role}, a role of {topology}")
    call = Caller(task, backend, meter, limits, temperature)
    if topology == "linear":
        moves = linear(task, agents, call)
    elif topology == "star":
        moves = star(task, agents, call, star_prompts)
    elif topology == "feedback":
        moves = feedback(task, agents, call, rounds, critic_heard)
    else:
        moves = planner_driven(task, agents, call, replans)
    return await play(moves, call, task=task, topology=topology, team=team, budget=float(budget), backend=backend,
                      agents=agents)


_casts: dict[tuple[int, str, str], tuple[Team, list[Agent]]] = {}
"""Agents by identity of a team, which cannot change; while it is kept, no other object has its id."""


def _cast(team: Any, topology: str, casting: Casting) -> list[Agent]:
    """`cast_roles`, once for the many episodes of a team."""
    if not isinstance(team, Team):
        return cast_roles(team, topology, casting)
    key = id(team), topology, casting
    if key not in _casts:
        if len(_casts) >= 1024:
            _casts.clear()
        _casts[key] = team, cast_roles(team, topology, casting)
    return _casts[key][1]


def run_task_sync(task: Task, team: Any, topology: str, backend: ChatModel, budget: Any, **options: Any) -> Episode:
    """`run_task` for scripts: no `await`, and no event loop for a backend that never waits (see `is_instant`).

    Raises:
        ValueError: as `run_task`.
        RuntimeError: called where an event loop runs already (a notebook), with a backend that waits.
    """
    check_backend(backend)
    return run_now(run_task(task, team, topology, backend, budget, **options), backend, "run_task")


def infeasible_episode(task: Task, topology: str, budget: Any, reason: str, *, team: Any = "", backend: str = "",
                       enforcement: Enforcement = "reserve") -> Episode:
    """The episode of a (task, budget, topology) without a team: a full-factorial log has a row for it too."""
    return Episode(task.task_id, task.domain, task.level, topology, team, float(budget), "infeasible", reason, None,
                   None, None, "budget", 0.0, False, 0, 0, 0, 0.0, 0, enforcement, backend)


def _checked_limits(task: Task, token_limits: Mapping[str, Mapping[str, int]], temperature: float, rounds: int,
                    replans: int) -> dict[str, int]:
    """The token limits of the task's domain, after a check of the plain arguments."""
    if not isinstance(token_limits, Mapping) or task.domain not in token_limits:
        raise ValueError(f"token_limits = {shown(token_limits)}: expected domain -> role -> tokens, with the domain "
                         f"{task.domain!r}")
    check_temperature(temperature)
    whole(rounds, "rounds", 1)
    whole(replans, "replans")
    if token_limits is TOKEN_LIMITS:
        return token_limits[task.domain]
    return token_counts(token_limits[task.domain], f"token_limits[{task.domain!r}]", 1)
