"""Outcomes of the full factorial in arrays: the same episodes as `generate_trajectories`, without their traces.

A run is cut into parts of a few tasks. Everything about a task - all its seeds, budgets and topologies - happens in one
process, so that each of its answers is graded once; parts are shared among processes, and outcomes do not depend on
how many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from bamas_lite.casting import TOPOLOGIES, Casting
from bamas_lite.inputs import shown, whole
from bamas_lite.llm import Enforcement
from bamas_lite.pool import Pool
from bamas_lite.provisioning import InfeasibleBudgetError, Team
from bamas_lite.reproduction.code_variant import PROVISIONING, teams_by
from bamas_lite.rewards import OUR_REWARDS, LogError, LogTable, Rewards, reward
from bamas_lite.simulation import SimulatedLLM, load_parameters
from bamas_lite.simulation_parameters import Parameters
from bamas_lite.tasks import Task
from bamas_lite.topologies import run_task_sync
from bamas_lite.trajectories import checked_factors, worker_processes
from bamas_lite.trajectory_log import STATUSES

TASKS_PER_PART = 20
"""Tasks that a process runs before it takes the next ones."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class Variant:
    """What decides an episode beside its task, budget, topology and seed.

    Attributes:
        enforcement: of the budget, "reserve" (ours) or "paper".
        casting: "paper" or "code" (`cast_roles`).
        rounds: the most answers that Feedback writes.
        replans: the most new plans in Planner-Driven.
        star_prompts: whether Star's executors get "different" approaches or the "same" prompt.
        critic_heard: False: a critic's verdict is never recognized, so it never accepts.
        provisioning: "paper": one team for a budget; "code": one for each topology; or another one of
            `code_variant.PROVISIONING`.
        parameters: of the simulated LLM: a name, a path or a dict.

    Raises:
        ValueError: a value that the field does not have.
    """

    enforcement: Enforcement = "reserve"
    casting: Casting = "paper"
    rounds: int = 3
    replans: int = 2
    star_prompts: Literal["different", "same"] = "different"
    critic_heard: bool = True
    provisioning: str = "paper"
    parameters: str | Path | dict[str, Any] | Parameters = "fitted"

    def __post_init__(self) -> None:
        for name, known in (("enforcement", ("reserve", "paper")), ("casting", ("paper", "code")),
                            ("star_prompts", ("different", "same")), ("critic_heard", (True, False)),
                            ("provisioning", tuple(PROVISIONING))):
            value = getattr(self, name)
            if not any(value is k or (isinstance(value, str) and value == k) for k in known):
                raise ValueError(f"{name} = {shown(value)}: expected {' or '.join(map(repr, known))}")
        whole(self.rounds, "rounds", 1)
        whole(self.replans, "replans")

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of `run_task` that it sets."""
        names = ("enforcement", "casting", "rounds", "replans", "star_prompts", "critic_heard")
        return {name: getattr(self, name) for name in names}

    def teams(self, pool: Pool, budget: float) -> dict[str, Team | InfeasibleBudgetError]:
        """The team that plays each topology under a budget (u$), or why there is none."""
        return teams_by(self.provisioning, pool, budget)


@dataclass(frozen=True)
class Outcomes:
    """Outcomes of episodes, in arrays (n_seeds, n_tasks, n_budgets, n_topologies).

    Attributes:
        tasks, budgets, topologies, seeds: what the axes stand for; budgets in u$.
        correct: 1 for a right answer, uint8; 0 also where the status is not ok.
        cost: u$, float64.
        over: whether the cost exceeds the budget, bool.
        status: index in STATUSES (ok, infeasible, error), uint8.
        backend: what answered, for labels.
    """

    tasks: tuple[Task, ...]
    budgets: tuple[float, ...]
    topologies: tuple[str, ...]
    seeds: tuple[int, ...]
    correct: np.ndarray
    cost: np.ndarray
    over: np.ndarray
    status: np.ndarray
    backend: str = SimulatedLLM.name

    def table(self, rewards: Rewards = OUR_REWARDS, seeds: Sequence[int] | None = None) -> LogTable:
        """The table that `LogTable.from_log` makes of the same episodes: task by task, budgets rising.

        Args:
            rewards: the constants of R.
            seeds: the mean over these; None takes all.

        Raises:
            ValueError: a seed that was not run, or no list of them.
            LogError: no episode may be learned from.
        """
        if seeds is not None and not isinstance(seeds, Iterable):
            raise ValueError(f"seeds = {shown(seeds)}: expected a list of {', '.join(map(str, self.seeds))}")
        index = slice(None) if seeds is None else [self._seed_index(seed) for seed in seeds]
        order = np.argsort(self.budgets)
        n, k = len(self.tasks) * len(self.budgets), len(TOPOLOGIES)
        columns = [TOPOLOGIES.index(name) for name in self.topologies]
        correct, cost, status = (values[index][:, :, order].reshape(-1, n, len(columns))
                                 for values in (self.correct, self.cost, self.status))
        budget = np.tile(np.asarray(self.budgets)[order], len(self.tasks))
        R = reward(correct, cost, budget[None, :, None], rewards, np.asarray(STATUSES)[status])
        used = np.isfinite(R)
        names, numbers = np.unique(status[~used], return_counts=True)
        excluded = {STATUSES[s]: int(c) for s, c in zip(names, numbers, strict=True)}
        if not used.any():
            raise LogError(f"outcomes: none left to use; all were excluded by status: {excluded}")
        count = np.zeros((n, k), np.int64)
        count[:, columns] = used.sum(axis=0)

        def mean(values: np.ndarray) -> np.ndarray:
            means = np.full((n, k), np.nan)
            total = np.where(used, values, 0.0).sum(axis=0)
            means[:, columns] = np.divide(total, used.sum(axis=0), out=np.full(total.shape, np.nan),
                                          where=used.any(axis=0))
            return means

        about = (np.repeat([getattr(task, name) for task in self.tasks], len(self.budgets))
                 for name in ("task_id", "domain", "level"))
        table = LogTable(*about, budget, count, mean(correct), mean(cost), mean(R), mean(R * len(columns)), excluded,
                         self.backend, rewards)
        keep = (count > 0).any(axis=1)
        return table if keep.all() else table.select(keep)

    def _seed_index(self, seed: int) -> int:
        if seed not in self.seeds:
            raise ValueError(f"seed = {shown(seed)}: was not run; there are {', '.join(map(str, self.seeds))}")
        return self.seeds.index(seed)


def run_factorial(tasks: Iterable[Task], budgets: Iterable[Any], *, pool: Pool, variant: Variant | None = None,
                  seeds: Sequence[int] = (0,), topologies: Sequence[str] = TOPOLOGIES, workers: int = 1) -> Outcomes:
    """Run the simulated LLM on the full factorial seeds x tasks x budgets x topologies.

    Args:
        tasks: the tasks.
        budgets: u$ for one task each; one below the least feasible gives status infeasible.
        pool: the LLMs.
        variant: what else decides the episodes; None: `Variant()`.
        seeds: of the simulated LLM.
        topologies: those to run.
        workers: processes; the outcomes are the same for any number of them.

    Raises:
        ValueError: an empty or doubtful argument; the message names it.
        SimulationError: parameters that cannot be used.
    """
    tasks, budgets, topologies, seeds = checked_factors(tasks, budgets, topologies, seeds, pool)
    variant = with_parameters(Variant() if variant is None else variant)
    return joined(list(spread(play, tasks, budgets, pool, variant, seeds, topologies, workers=workers)))


def with_parameters(variant: Variant) -> Variant:
    """The variant with its parameters as a complete dict: files are read once, and not again in each process."""
    if not isinstance(variant, Variant):
        raise ValueError(f"variant = {shown(variant)}: expected a Variant")
    return replace(variant, parameters=load_parameters(variant.parameters).model_dump())


def play(tasks: Sequence[Task], budgets: Sequence[float], pool: Pool, variant: Variant, seeds: Sequence[int],
         topologies: Sequence[str], backends: Sequence[SimulatedLLM] | None = None) -> Outcomes:
    """`run_factorial` in this process, without checks.

    `backends` are those of the seeds, if another variant with the same parameters has used them: they remember.
    """
    shape = len(seeds), len(tasks), len(budgets), len(topologies)
    correct, status = np.zeros(shape, np.uint8), np.zeros(shape, np.uint8)
    cost, over = np.zeros(shape), np.zeros(shape, bool)
    teams = [variant.teams(pool, budget) for budget in budgets]
    options = variant.options
    for s, backend in enumerate(backends_of(seeds, variant.parameters) if backends is None else backends):
        for j, task in enumerate(tasks):
            for b, budget in enumerate(budgets):
                for t, topology in enumerate(topologies):
                    team, place = teams[b][topology], (s, j, b, t)
                    if isinstance(team, InfeasibleBudgetError):
                        status[place] = STATUSES.index("infeasible")
                        continue
                    episode = run_task_sync(task, team, topology, backend, budget, **options)
                    correct[place] = episode.correct is True
                    cost[place] = episode.cost
                    over[place] = episode.over_budget
                    status[place] = STATUSES.index(episode.status)
    return Outcomes(tuple(tasks), tuple(budgets), tuple(topologies), tuple(seeds), correct, cost, over, status)


def backends_of(seeds: Sequence[int], parameters: Any) -> list[SimulatedLLM]:
    """A simulated LLM for each seed."""
    loaded = load_parameters(parameters)
    return [SimulatedLLM(seed, loaded) for seed in seeds]


def joined(parts: Sequence[Outcomes]) -> Outcomes:
    """The outcomes of several groups of tasks as one."""
    arrays = {name: np.concatenate([getattr(part, name) for part in parts], axis=1)
              for name in ("correct", "cost", "over", "status")}
    return replace(parts[0], tasks=tuple(task for part in parts for task in part.tasks), **arrays)


def spread(work: Callable[..., _T], tasks: Sequence[Task], *arguments: Any, workers: int = 1,
           tasks_per_part: int = TASKS_PER_PART, progress: Callable[[int], None] | None = None) -> Iterator[_T]:
    """The results of `work(some tasks, *arguments)` for all tasks, in their order, computed by so many processes.

    `work` is a function of a module, so that another process can find it. `progress` is told how many tasks are done.

    Raises:
        ValueError: `workers` is no whole number of at least 1.
        RuntimeError: a process ended early.
    """
    workers = whole(workers, "workers", 1)
    parts = [tasks[first:first + tasks_per_part] for first in range(0, len(tasks), tasks_per_part)]
    told = progress or (lambda n_done: None)
    if workers == 1 or len(parts) <= 1:
        n_done = 0
        for part in parts:
            yield work(part, *arguments)
            n_done += len(part)
            told(n_done)
        return
    with worker_processes(min(workers, len(parts))) as processes:
        futures = [processes.submit(work, part, *arguments) for part in parts]
        pending: set[Future[_T]] = set(futures)
        for future in futures:
            while future in pending:
                pending = wait(pending, return_when=FIRST_COMPLETED)[1]
                told(len(tasks) - sum(len(part) for part, f in zip(parts, futures, strict=True) if f in pending))
            yield future.result()
