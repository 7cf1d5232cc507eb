"""A bench for studies that change teams, prices or parameters: what has been played once is not played again.

`outcomes.run_factorial` asks provisioning for the team of a budget; here the team is given. All plays that a study
needs are declared first and run in one pass over the tasks, so that each (task, answer) is graded once for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bamas_lite.casting import TOPOLOGIES
from bamas_lite.inputs import whole
from bamas_lite.paths import DATA
from bamas_lite.pool import Pool
from bamas_lite.provisioning import Team
from bamas_lite.reproduction.outcomes import Outcomes, Variant, spread
from bamas_lite.reproduction.published import Dataset, dataset
from bamas_lite.simulation import SimulatedLLM, load_parameters
from bamas_lite.tasks import Task, load_tasks
from bamas_lite.topologies import run_task_sync
from bamas_lite.trajectories import checked_factors, paper_pool
from bamas_lite.trajectory_log import STATUSES

SPLITS = ("train", "test")


def default_parameters() -> str:
    """The fitted parameters of the simulated LLM, or the assumed ones as long as nothing was fitted."""
    return "fitted" if (DATA / "simulation" / "fitted.yaml").is_file() else "assumed"


@dataclass(frozen=True)
class Play:
    """One team under one budget (u$), in all topologies, under a variant (`Bench.variant`)."""

    budget: float
    team: Team
    variant: Variant

    @property
    def key(self) -> tuple[Any, ...]:
        """What decides its outcomes: whoever else is in the pool does not."""
        agents = tuple((slot.llm, slot.copy, slot.role) for slot in self.team.slots)
        parameters = self.variant.parameters
        return (float(self.budget), agents, tuple(sorted(self.variant.options.items())),
                parameters if isinstance(parameters, str) else repr(parameters))


@dataclass(frozen=True)
class Played:
    """Outcomes of a play, each (n_seeds, n_tasks, 4 topologies): right, u$, over the budget, stopped by it, status."""

    correct: np.ndarray
    cost: np.ndarray
    over: np.ndarray
    stopped: np.ndarray
    status: np.ndarray


@dataclass
class Bench:
    """Training and test tasks of one data set, and what has been played on them.

    Attributes:
        dataset: GSM8K, MBPP or MATH; our own tasks of that domain stand for it.
        pool, budgets: the paper's, or others; budgets rise, as in `Outcomes.table`.
        tasks: split -> tasks.
        seeds: split -> seeds of the simulated LLM.
        parameters: of the simulated LLM.
        workers: processes.
    """

    dataset: Dataset
    pool: Pool
    budgets: tuple[float, ...]
    tasks: dict[str, tuple[Task, ...]]
    seeds: dict[str, tuple[int, ...]]
    parameters: Any
    workers: int = 1
    known: dict[str, dict[tuple[Any, ...], Played]] = field(default_factory=lambda: {split: {} for split in SPLITS},
                                                               repr=False)

    def variant(self, enforcement: str = "reserve", **changes: Any) -> Variant:
        """A variant with the bench's parameters."""
        return Variant(**{"enforcement": enforcement, "parameters": self.parameters, **changes})

    def run(self, plays: Iterable[Play], splits: Sequence[str] = SPLITS) -> None:
        """Run what has not been run yet, in one pass over the tasks of each split."""
        plays = list(plays)
        for split in splits:
            new = {play.key: play for play in plays if play.key not in self.known[split]}
            if not new:
                continue
            parts = list(spread(_play_all, self.tasks[split], list(new.values()), self.seeds[split],
                                workers=self.workers))
            arrays = {name: np.concatenate([part[name] for part in parts], axis=2) for name in parts[0]}
            for i, key in enumerate(new):
                self.known[split][key] = Played(**{name: values[i] for name, values in arrays.items()})

    def played(self, play: Play, split: str = "test") -> Played:
        """The outcomes of a play, run now if they are not known."""
        self.run([play], (split,))
        return self.known[split][play.key]

    def outcomes(self, plays: Sequence[Play], split: str = "test") -> Outcomes:
        """Plays of different budgets as `Outcomes`, (n_seeds, n_tasks, n_budgets, 4)."""
        self.run(plays, (split,))
        found = [self.known[split][play.key] for play in plays]
        arrays = {name: np.stack([getattr(p, name) for p in found], axis=2)
                  for name in ("correct", "cost", "over", "status")}
        return Outcomes(self.tasks[split], tuple(float(play.budget) for play in plays), TOPOLOGIES, self.seeds[split],
                        **arrays)


def make_bench(name: str, *, n_train: int = 120, n_test: int = 120, train_seeds: int = 2, test_seeds: int = 2,
               budgets: Iterable[float] | None = None, pool: Pool | None = None, parameters: Any = None,
               workers: int = 1) -> Bench:
    """A bench on the first of our own tasks of a data set.

    Args:
        name: GSM8K, MBPP or MATH.
        n_train, n_test: tasks of each split, at most as many as there are; training sets some aside, so at least 2.
        train_seeds, test_seeds: seeds of the simulated LLM: training counts from 1000, test from 0.
        budgets: u$ a task, in any order; None: the paper's.
        pool: None: the paper's, with its token limit.
        parameters: of the simulated LLM; None: `default_parameters()`.
        workers: processes.

    Raises:
        ValueError: an unknown data set, more tasks than there are, or another argument that makes no sense.
        SimulationError: parameters that cannot be used.
    """
    data = dataset(name)
    tasks = {}
    for split, n in zip(SPLITS, (n_train, n_test), strict=True):
        found = load_tasks(data.own_tasks, split=split)
        tasks[split] = tuple(found[:whole(n, f"n_{split}", 1 + (split == "train"), len(found))])
    seeds = {"train": tuple(range(1000, 1000 + whole(train_seeds, "train_seeds", 1))),
             "test": tuple(range(whole(test_seeds, "test_seeds", 1)))}
    pool = paper_pool(data.domain) if pool is None else pool
    _, budgets, _, _ = checked_factors(tasks["test"], data.budgets if budgets is None else budgets, TOPOLOGIES,
                                       seeds["test"], pool)
    parameters = load_parameters(default_parameters() if parameters is None else parameters).model_dump()
    return Bench(data, pool, tuple(sorted(budgets)), tasks, seeds, parameters, whole(workers, "workers", 1))


def as_in(team: Team, pool: Pool) -> Team:
    """The same agents as another pool describes them: hired before prices changed, or by a wrong ranking."""
    return replace(team, pool=pool, slots=tuple(replace(slot, llm=pool[slot.llm.name]) for slot in team.slots))


def _play_all(tasks: Sequence[Task], plays: Sequence[Play], seeds: Sequence[int]) -> dict[str, np.ndarray]:
    """All plays on some tasks: arrays (n_plays, n_seeds, n_tasks, 4)."""
    shape = len(plays), len(seeds), len(tasks), len(TOPOLOGIES)
    correct, status = np.zeros(shape, np.uint8), np.zeros(shape, np.uint8)
    cost, over, stopped = np.zeros(shape), np.zeros(shape, bool), np.zeros(shape, bool)
    by_parameters: dict[str, list[int]] = {}
    for i, play in enumerate(plays):
        by_parameters.setdefault(repr(play.variant.parameters), []).append(i)
    for members in by_parameters.values():
        parameters = load_parameters(plays[members[0]].variant.parameters)
        for s, seed in enumerate(seeds):
            backend = SimulatedLLM(seed, parameters)
            for j, task in enumerate(tasks):
                for i in members:
                    play = plays[i]
                    for t, topology in enumerate(TOPOLOGIES):
                        episode = run_task_sync(task, play.team, topology, backend, play.budget,
                                                **play.variant.options)
                        place = i, s, j, t
                        correct[place] = episode.correct is True
                        cost[place] = episode.cost
                        over[place] = episode.over_budget
                        stopped[place] = episode.stop_reason == "budget"
                        status[place] = STATUSES.index(episode.status)
    return {"correct": correct, "cost": cost, "over": over, "stopped": stopped, "status": status}
