"""What a log would cost, before anything is asked: the worst case, the expectation, and what a recording saves.

The worst case is a bound, not a guess: with enforcement "reserve" no episode passes its budget, and no topology makes
more calls than its rules allow. The expectation comes from the simulated LLM, which plays a sample of the tasks with
the requests that would really be sent.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from bamas_lite.casting import Agent, Casting, CastingError, cast_roles
from bamas_lite.inputs import exact, shown, whole
from bamas_lite.llm import Enforcement, Message, Reply, Usage
from bamas_lite.pool import ATOMS, LLM, Pool
from bamas_lite.provisioning import InfeasibleBudgetError
from bamas_lite.simulation import SimulatedLLM, count_tokens
from bamas_lite.spending import PAID_CONCURRENCY
from bamas_lite.tasks import Task
from bamas_lite.topologies import run_task_sync
from bamas_lite.trajectories import checked_factors, team_of
from bamas_lite.wire import bound_tokens, request_body
from bamas_lite.worst_case import Dearest, worst_case

_TO_USD = 1 / (ATOMS * 1_000_000)


@dataclass(frozen=True)
class Estimate:
    """What a log costs. USD, not u$. `print` shows it as a table.

    Attributes:
        n_tasks, n_episodes: how much is to be run.
        n_infeasible: episodes that nobody can play, as no team fits the budget or the topology: they cost nothing.
        infeasible_budgets: the budgets (u$) without a team.
        worst_usd, worst_calls: no run of these episodes costs or makes more. Not counted: retries (a provider may bill
            an attempt whose answer got lost) and tokens that a provider bills beyond what it was allowed.
        expected_usd, expected_calls: what the episodes are billed together (simulated).
        paid_usd, paid_calls: what is paid if identical requests are paid once, as with a recording (simulated).
        paid_by_llm: name -> (calls, USD) of these.
        n_sampled: tasks that the simulated LLM played for that; the figures are scaled up to all tasks.
        seconds: until all is done, with `concurrency` episodes in flight; None unless the pool states first_token_s and
            tokens_per_s of every LLM.
        enforcement: as for `generate_trajectories`.
    """

    n_tasks: int
    n_episodes: int
    n_infeasible: int
    infeasible_budgets: tuple[float, ...]
    worst_usd: float
    worst_calls: int
    expected_usd: float
    expected_calls: float
    paid_usd: float
    paid_calls: float
    paid_by_llm: dict[str, tuple[float, float]]
    n_sampled: int
    seconds: float | None
    concurrency: int
    enforcement: Enforcement

    def __str__(self) -> str:
        sample = "all tasks" if self.n_sampled == self.n_tasks else f"{self.n_sampled} of {self.n_tasks:,} tasks"
        bound = "no episode passes its budget" if self.enforcement == "reserve" else "each passes its budget by a call"
        rows = [("worst case", self.worst_calls, self.worst_usd, bound),
                ("expected", self.expected_calls, self.expected_usd, f"simulated on {sample}"),
                ("paid", self.paid_calls, self.paid_usd, "simulated; a recording pays identical requests once")]
        rows += [(f"  {name}", calls, usd, "") for name, (calls, usd) in self.paid_by_llm.items()]
        width = max(len(name) for name, *_ in rows)
        lines = [f"{self.n_episodes:,} episodes of {self.n_tasks:,} tasks"]
        if self.n_infeasible:
            budgets = ", ".join(f"{b:g}" for b in self.infeasible_budgets)
            lines[0] += f"; {self.n_infeasible:,} of them cannot be played" + (
                f": no team for {budgets} u$" if budgets else "")
        lines.append(f"{'':{width}}  {'calls':>10}  {'USD':>12}")
        lines += [f"{name:{width}}  {math.ceil(calls):>10,}  {_money(usd):>12}  {note}".rstrip()
                  for name, calls, usd, note in rows]
        if self.seconds is not None:
            lines.append(f"about {_duration(self.seconds)} at concurrency {self.concurrency}, by the pool's "
                         "latencies")
        lines.append("Not counted: retries, and tokens billed beyond what was allowed.")
        return "\n".join(lines)


def estimate_cost(tasks: Iterable[Task], budgets: Iterable[Any], topologies: Sequence[str], pool: Pool, *,
                  seeds: Sequence[int] = (0,), enforcement: Enforcement = "reserve", casting: Casting = "paper",
                  sample: int = 50, concurrency: int = PAID_CONCURRENCY, parameters: Any = "assumed",
                  one_topology: bool = False) -> Estimate:
    """What `generate_trajectories` with the same arguments would cost.

    Args:
        tasks, budgets, topologies, pool, seeds, enforcement, casting, concurrency: as for `generate_trajectories`.
        sample: tasks (drawn at random, always the same) that the simulated LLM plays for the expectation.
        parameters: of the simulated LLM: how long replies are, and how often they are right.
        one_topology: each task and budget is run with one of the topologies only, as a policy chooses them: the worst
            case is that of the dearest one, the expectation is the mean over them.

    Raises:
        ValueError: as `generate_trajectories`; an episode that the simulated LLM cannot play.
    """
    if not isinstance(one_topology, bool):
        raise ValueError(f"one_topology = {shown(one_topology)}: expected True or False")
    tasks, budgets, topologies, seeds = checked_factors(tasks, budgets, topologies, seeds, pool)
    for name, value, kind in (("enforcement", enforcement, Enforcement), ("casting", casting, Casting)):
        if value not in get_args(kind):
            raise ValueError(f"{name} = {shown(value)}: expected {' or '.join(map(repr, get_args(kind)))}")
    sample, concurrency = whole(sample, "sample", 1), whole(concurrency, "concurrency", 1)
    teams = {budget: team_of(pool, budget) for budget in budgets}
    infeasible = tuple(b for b, team in teams.items() if isinstance(team, InfeasibleBudgetError))
    casts = {budget: [(topology, agents) for topology in topologies if (agents := _cast(team, topology, casting))]
             for budget, team in teams.items() if budget not in infeasible}
    worst_atoms = worst_calls = 0
    for task in tasks:
        dearest = Dearest(task)
        for budget, cast in casts.items():
            atoms, calls = zip(*(worst_case(dearest, math.floor(exact(budget) * ATOMS), topology, agents, enforcement)
                                 for topology, agents in cast), strict=True)
            worst_atoms += max(atoms) if one_topology else sum(atoms)
            worst_calls += max(calls) if one_topology else sum(calls)
    n = min(sample, len(tasks))
    chosen = sorted(np.random.default_rng(0).choice(len(tasks), n, replace=False).tolist())
    bill, latency = _Bill(), 0.0
    for seed in seeds:
        backend = _Rehearsal(SimulatedLLM(seed, parameters), bill)
        for number in chosen:
            for budget, cast in casts.items():
                for topology, _ in cast:
                    backend.scope = (seed, topology if one_topology else None)
                    episode = run_task_sync(tasks[number], teams[budget], topology, backend, budget,
                                            enforcement=enforcement, casting=casting)
                    if episode.status == "error":   # a live run would fail there, too
                        raise ValueError(f"task {shown(tasks[number].task_id)}, budget {budget:g} u$, topology "
                                         f"{topology!r} cannot be estimated: {episode.reason}")
                    latency += episode.latency_s
    scale = len(tasks) / n / (len(topologies) if one_topology else 1)
    by_llm = {m.name: (scale * calls, scale * atoms * _TO_USD)
              for m in pool.llms for calls, atoms in [bill.paid.get(m.name, (0, 0))] if calls}
    known = all(m.first_token_s is not None and m.tokens_per_s is not None for m in pool.llms)
    waits = [by_llm[m.name][0] * 60 / m.requests_per_minute for m in pool.llms
             if m.requests_per_minute and m.name in by_llm]
    runs = len(seeds) * len(tasks)
    missing = len(budgets) * len(topologies) - sum(map(len, casts.values()))
    return Estimate(
        n_tasks=len(tasks), n_episodes=runs * len(budgets) * (1 if one_topology else len(topologies)),
        n_infeasible=runs * missing // (len(topologies) if one_topology else 1), infeasible_budgets=infeasible,
        worst_usd=_usd_up(worst_atoms * len(seeds)), worst_calls=worst_calls * len(seeds),
        expected_usd=scale * bill.atoms * _TO_USD, expected_calls=scale * bill.calls,
        paid_usd=sum(usd for _, usd in by_llm.values()), paid_calls=sum(calls for calls, _ in by_llm.values()),
        paid_by_llm=by_llm, n_sampled=n, seconds=max(scale * latency / concurrency, *waits, 0.0) if known else None,
        concurrency=concurrency, enforcement=enforcement)


def _cast(team: Any, topology: str, casting: Casting) -> list[Agent]:
    try:
        return cast_roles(team, topology, casting)
    except CastingError:
        return []


class _Bill:
    """Sums of calls and atoms: of all calls, and by LLM of those that a recording does not hold yet."""

    def __init__(self) -> None:
        self.calls = self.atoms = 0
        self.paid: dict[str, tuple[int, int]] = {}
        self.recorded: set[tuple[Any, ...]] = set()

    def add(self, llm: LLM, usage: Usage, request: tuple[Any, ...]) -> bool:
        """Book a call; whether it had to be paid."""
        atoms = llm.cost_atoms(usage.prompt_tokens, usage.completion_tokens)
        self.calls, self.atoms = self.calls + 1, self.atoms + atoms
        if request in self.recorded:
            return False
        self.recorded.add(request)
        calls, paid = self.paid.get(llm.name, (0, 0))
        self.paid[llm.name] = calls + 1, paid + atoms
        return True


class _Rehearsal:
    """The simulated LLM behind the requests that would really be sent, with their lengths.

    The simulator's texts are shorter than the completions it bills; here they are filled up, so that the prompts which
    quote them are as long as real ones.
    """

    name = "simulated"

    def __init__(self, simulated: SimulatedLLM, bill: _Bill) -> None:
        self._simulated, self._bill = simulated, bill
        self.scope: Any = None   # what shares one recording

    def bound_prompt_tokens(self, llm: LLM, messages: list[Message]) -> int:
        return bound_tokens(llm, messages)

    async def complete(self, llm: LLM, messages: list[Message], *, max_tokens: int, temperature: float = 0.0,
                       role: str = "executor", task: Task | None = None) -> Reply:
        reply = await self._simulated.complete(llm, messages, max_tokens=max_tokens, temperature=temperature, role=role,
                                               task=task)
        body = request_body(llm, messages, max_tokens, temperature)
        sent = body.get("messages") or [{"content": body["prompt"]}]
        usage = Usage(sum(count_tokens(m["content"]) + 4 for m in sent), reply.usage.completion_tokens)
        is_new = self._bill.add(llm, usage, (self.scope, llm.name, json.dumps(body, sort_keys=True)))
        missing = 0 if llm.reasoning else usage.completion_tokens - count_tokens(reply.text)
        filler = "." * (4 * missing - 1) + "\n" if missing > 0 else ""
        return Reply(filler + reply.text, usage, reply.latency_s if is_new else 0.0, reply.finish_reason)

    complete.instant = True


def _usd_up(atoms: int) -> float:
    """Atoms in USD as a float that is not below them."""
    usd = float(exact(atoms) / (ATOMS * 1_000_000))
    return usd if exact(usd) * ATOMS * 1_000_000 >= atoms else math.nextafter(usd, math.inf)


def _money(usd: float) -> str:
    """USD with as many decimals as small amounts need, rounded up."""
    decimals = 2 if usd >= 100 else 4 if usd >= 0.01 or usd == 0 else 6
    return f"{math.ceil(round(usd * 10**decimals, 6)) / 10**decimals:,.{decimals}f}"


def _duration(seconds: float) -> str:
    for name, length in (("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {name}"
    return f"{math.ceil(seconds)} s"


