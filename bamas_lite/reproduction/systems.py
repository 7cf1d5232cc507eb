"""The full run: every system on every data set, budget and seed, as in the paper's tables, with intervals.

Per seed - of the simulated LLM and of training alike; the first is the paper's own - there are:
- BAMAS as published: budgets enforced as in the paper, its roles, network, reward, loss, rates and model choice;
- BAMAS as it should be: exact objective, a budget that is never passed, the roles that did better in training;
- on the episodes of the second: each topology alone, the best one in training, a random one, and an oracle;
- the baselines, which know no budget: workflows in the style of other systems, and chains of one LLM.

`python -m bamas_lite.reproduction.systems` writes rows.csv, paired.csv and slice.csv.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bamas_lite.casting import TOPOLOGIES, cast_roles
from bamas_lite.encoder import encode
from bamas_lite.experiments import baselines as fixed_choices
from bamas_lite.experiments import choose
from bamas_lite.inputs import command, out_folder, whole
from bamas_lite.paths import BUILD, DATA
from bamas_lite.policy import OURS, PAPER_SETTINGS, Settings, train_policy
from bamas_lite.pool import LLM, Pool
from bamas_lite.provisioning import InfeasibleBudgetError
from bamas_lite.reproduction.fit_problem import completion_limit
from bamas_lite.reproduction.outcomes import Outcomes, Variant, backends_of, joined, play, spread
from bamas_lite.reproduction.predicates import OURS as SHOULD_BE
from bamas_lite.reproduction.predicates import PUBLISHED
from bamas_lite.reproduction.published import DATASETS, LEVELS, Dataset
from bamas_lite.reproduction.system_rows import Measured, paired_table, rows_table
from bamas_lite.reproduction.task_sets import about_tasks, chosen_datasets, reproduction_tasks
from bamas_lite.simulation import SimulatedLLM, load_parameters
from bamas_lite.tasks import Task, TaskFileError
from bamas_lite.trajectories import paper_pool
from bamas_lite.workflows import WORKFLOWS, Workflow, naive, run_workflow_sync

SEEDS = 10
RESULTS = DATA / "reproduction"

STYLED = {"AutoGen": "autogen", "MetaGPT": "metagpt", "ChatDev": "chatdev"}
"""System of the paper's tables -> our workflow in its style."""

VARIANTS = {"published": Variant(enforcement="paper"), "paper roles": Variant(), "code roles": Variant(casting="code")}
"""Ways to play an episode; the last two are told apart by the training log."""

LEAST_TASKS = 2
"""Training tasks: some of them are kept to choose the model."""
SLICE_TASKS = 2
"""Test tasks whose raw outcomes go into slice.csv, for a test that plays them again."""


@dataclass(frozen=True)
class Baseline:
    """A row of the paper's tables that is not BAMAS: `setting` names the LLM, and the level of a chain."""

    system: str
    setting: str
    llm: LLM
    workflow: Workflow


@dataclass(frozen=True)
class Played:
    """All that was played on some tasks.

    Attributes:
        outcomes: by name of VARIANTS.
        baselines: what the last axis of the next two stands for.
        correct: 1 for a right answer of a baseline, uint8 (n_seeds, n_tasks, n_baselines).
        cost: u$, float64, of the same shape.
    """

    outcomes: dict[str, Outcomes]
    baselines: tuple[Baseline, ...]
    correct: np.ndarray
    cost: np.ndarray


def seeds_of(data: Dataset, n: int) -> tuple[int, ...]:
    """`n` seeds; the first is the one that the paper used on this data set."""
    first = PAPER_SETTINGS[data.domain].seed
    return tuple(range(first, first + n))


def all_baselines(pool: Pool) -> tuple[Baseline, ...]:
    """The baselines of the paper's tables with every LLM of the pool."""
    styled = [Baseline(system, llm.name, llm, WORKFLOWS[name]) for system, name in STYLED.items() for llm in pool.llms]
    return (*styled, *(Baseline("Naive-CostAware", f"L{level} {llm.name}", llm, naive(level))
                       for llm in pool.llms for level in LEVELS))


def play_all(tasks: Sequence[Task], data: Dataset, parameters: dict[str, Any], seeds: Sequence[int],
             with_baselines: bool) -> Played:
    """Everything on some tasks, in this process: so each answer to a task is graded once.

    Args:
        tasks: of the data set.
        data: its budgets and pool.
        parameters: of the simulated LLM, complete.
        seeds: of the simulated LLM.
        with_baselines: whether the baselines play too.
    """
    pool, budgets = paper_pool(data.domain), tuple(map(float, data.budgets))
    published, ours, code = (replace(variant, parameters=parameters) for variant in VARIANTS.values())
    backends = backends_of(seeds, parameters)
    paper_roles = play(tasks, budgets, pool, ours, seeds, TOPOLOGIES, backends)
    outcomes = (play(tasks, budgets, pool, published, seeds, TOPOLOGIES, backends), paper_roles,
                _changed(paper_roles, tasks, pool, code, seeds, backends))
    chosen = all_baselines(pool) if with_baselines else ()
    shape = len(seeds), len(tasks), len(chosen)
    correct, cost = np.zeros(shape, np.uint8), np.zeros(shape)
    loaded = load_parameters(parameters)
    for s, seed in enumerate(seeds):
        backend_of = {name: SimulatedLLM(seed, loaded, name) for name in {b.workflow.system for b in chosen}}
        for j, task in enumerate(tasks):
            known: dict[tuple[Any, ...], tuple[bool, float]] = {}  # chains that differ in agents that never run
            for b, baseline in enumerate(chosen):
                system, steps = baseline.workflow.system, baseline.workflow.steps
                key = system, steps, baseline.llm.name
                if key not in known:
                    episode = run_workflow_sync(task, baseline.llm, baseline.workflow, backend_of[system],
                                                **completion_limit(system, data.domain))
                    known[key] = episode.correct is True, episode.cost
                correct[s, j, b], cost[s, j, b] = known[key]
    return Played(dict(zip(VARIANTS, outcomes, strict=True)), chosen, correct, cost)


def _changed(base: Outcomes, tasks: Sequence[Task], pool: Pool, variant: Variant, seeds: Sequence[int],
             backends: Sequence[SimulatedLLM]) -> Outcomes:
    """Outcomes under a variant of another casting: only the teams and topologies that it casts otherwise are played."""
    arrays = {name: getattr(base, name).copy() for name in ("correct", "cost", "over", "status")}
    for t, topology in enumerate(TOPOLOGIES):
        places = [b for b, budget in enumerate(base.budgets) if _casts_otherwise(variant, pool, budget, topology)]
        if places:
            other = play(tasks, [base.budgets[b] for b in places], pool, variant, seeds, (topology,), backends)
            for name, values in arrays.items():
                values[:, :, places, t] = getattr(other, name)[..., 0]
    return replace(base, **arrays)


def _casts_otherwise(variant: Variant, pool: Pool, budget: float, topology: str) -> bool:
    team = variant.teams(pool, budget)[topology]
    if isinstance(team, InfeasibleBudgetError):
        return False
    paper, other = ([(agent.name, agent.role, agent.llm) for agent in cast_roles(team, topology, casting)]
                    for casting in ("paper", variant.casting))
    return paper != other


def play_tasks(tasks: Sequence[Task], data: Dataset, parameters: dict[str, Any], seeds: Sequence[int],
               with_baselines: bool, workers: int = 1, progress: Callable[[int], None] | None = None) -> Played:
    """`play_all`, shared among processes."""
    parts = list(spread(play_all, tasks, data, parameters, tuple(seeds), with_baselines, workers=workers,
                        progress=progress))
    return Played({name: joined([part.outcomes[name] for part in parts]) for name in VARIANTS}, parts[0].baselines,
                  np.concatenate([part.correct for part in parts], axis=1),
                  np.concatenate([part.cost for part in parts], axis=1))


def better_roles(train: Played) -> np.ndarray:
    """Whether the code's roles had the better mean reward on the training log: bool (n_seeds, 4 topologies)."""
    def rewards(name: str, seed: int) -> np.ndarray:
        return np.nanmean(train.outcomes[name].table(OURS.rewards, seeds=[seed]).R, axis=0)

    return np.array([rewards("code roles", seed) > rewards("paper roles", seed)
                     for seed in train.outcomes["paper roles"].seeds])


def with_roles(played: Played, code: np.ndarray) -> Outcomes:
    """The outcomes under the code's roles where `code` (n_seeds, 4) is true, else under the paper's."""
    paper, other = played.outcomes["paper roles"], played.outcomes["code roles"]
    where = code[:, None, None, :]
    return replace(paper, **{name: np.where(where, getattr(other, name), getattr(paper, name))
                             for name in ("correct", "cost", "over", "status")})


def learned(train: Outcomes, test: Outcomes, settings: Settings) -> np.ndarray:
    """What policies choose greedily on the test tasks, one trained for each seed: (n_seeds, n_tasks, n_budgets, 4)."""
    choices = []
    for seed in train.seeds:
        policy = train_policy(train.table(settings.rewards, seeds=[seed]), settings=replace(settings, seed=seed),
                              tasks=train.tasks).policy
        choices.append(choose(policy, test.table(settings.rewards, seeds=[seed]), tasks=test.tasks))
    return np.reshape(choices, test.correct.shape)


def measure(train: Played, test: Played, domain: str) -> dict[tuple[str, str], Measured]:
    """What every system reaches on the test tasks: by system and setting."""
    measured = {(b.system, b.setting): Measured(test.correct[:, :, i], test.cost[:, :, i])
                for i, b in enumerate(test.baselines)}
    code = better_roles(train)
    ours_train, ours = with_roles(train, code), with_roles(test, code)
    published = test.outcomes["published"]
    by_system = {PUBLISHED: (published, learned(train.outcomes["published"], published, PAPER_SETTINGS[domain])),
                 SHOULD_BE: (ours, learned(ours_train, ours, OURS))}
    fixed = [fixed_choices(ours.table(OURS.rewards, [seed]), ours_train.table(OURS.rewards, [seed]))
             for seed in ours.seeds]
    for name in fixed[0]:
        by_system[name] = ours, np.reshape([choices[name] for choices in fixed], ours.correct.shape)
    for system, (outcomes, pi) in by_system.items():
        right, cost, over = ((pi * values).sum(axis=-1) for values in (outcomes.correct, outcomes.cost, outcomes.over))
        for b, budget in enumerate(outcomes.budgets):
            measured[system, f"budget {budget:g}"] = Measured(
                right[:, :, b], cost[:, :, b], over[:, :, b], pi[:, :, b].mean(axis=(0, 1)))
    return measured


def slice_table(name: str, played: Played) -> pd.DataFrame:
    """Raw outcomes of the first test tasks under the first seed: what was played, before any choice of a policy."""
    rows = []
    some = played.outcomes["published"].tasks[:SLICE_TASKS]
    for variant, outcomes in played.outcomes.items():
        about = {"dataset": name, "seed": outcomes.seeds[0], "played": variant}
        for j, task in enumerate(some):
            for b, budget in enumerate(outcomes.budgets):
                for t, topology in enumerate(outcomes.topologies):
                    place = 0, j, b, t
                    rows.append(about | {"setting": f"budget {budget:g}", "topology": topology, "task_id": task.task_id,
                                         "correct": int(outcomes.correct[place]),
                                         "cost": round(float(outcomes.cost[place]), 4),
                                         "over": int(outcomes.over[place])})
    for i, baseline in enumerate(played.baselines):
        rows += [{"dataset": name, "seed": outcomes.seeds[0], "played": baseline.system, "setting": baseline.setting,
                  "topology": "", "task_id": task.task_id, "correct": int(played.correct[0, j, i]),
                  "cost": round(float(played.cost[0, j, i]), 4), "over": 0} for j, task in enumerate(some)]
    return pd.DataFrame(rows)


@dataclass(frozen=True)
class Results:
    """The files of a run: `rows` (one a system and setting), `paired` (differences) and `slice` (raw outcomes)."""

    rows: pd.DataFrame
    paired: pd.DataFrame
    slice: pd.DataFrame

    def write(self, folder: str | Path) -> list[Path]:
        """Write rows.csv, paired.csv and slice.csv.

        Raises:
            ValueError: `folder` is a file, or cannot be made.
        """
        folder = out_folder(folder, "folder")
        paths = []
        for field in fields(self):
            paths.append(folder / f"{field.name}.csv")
            getattr(self, field.name).to_csv(paths[-1], index=False, lineterminator="\n")
        return paths


def reproduce(datasets: Sequence[str] = tuple(DATASETS), *, benchmarks: str | Path | None = None, n_seeds: int = SEEDS,
              n_tasks: int | None = None, parameters: Any = "fitted", workers: int = 1,
              say: Callable[[str], None] = lambda line: None) -> Results:
    """Run all systems on the data sets.

    While processes play, this one makes the next tasks, encodes questions and trains policies.

    Args:
        datasets: names of `published.DATASETS`.
        benchmarks: a folder with the real tasks; None: our own.
        n_seeds: repetitions of everything.
        n_tasks: at most so many tasks of each split, the first ones, at least 2; None takes all.
        parameters: of the simulated LLM.
        workers: processes that play. The results are the same for any number.
        say: told one line about each step.

    Raises:
        ValueError: no data set, an unknown one or one given twice, or a number that is none.
        SimulationError: parameters that cannot be used.
        TaskFileError: a file of `benchmarks` is missing or broken.
    """
    chosen = chosen_datasets(datasets)
    n_seeds, workers = whole(n_seeds, "n_seeds", 1), whole(workers, "workers", 1)
    limit = None if n_tasks is None else whole(n_tasks, "n_tasks", LEAST_TASKS)
    values = load_parameters(parameters)
    label = f"{SimulatedLLM.name}, {values.name}" + ("" if benchmarks is None else ", real tasks")
    start = time.monotonic()

    def tell(line: str) -> None:
        say(f"{time.monotonic() - start:6.0f} s  {line}")

    def make_tasks(name: str) -> tuple[list[Task], list[Task]]:
        train, test = reproduction_tasks(name, benchmarks, limit)
        if len(train) < LEAST_TASKS:
            raise TaskFileError(f"{benchmarks}: {name} has {len(train)} training task; expected at least {LEAST_TASKS}")
        tell(about_tasks(name, train, test))
        return train, test

    def encode_all(name: str) -> None:
        encode([task.question for split in made[name].result() for task in split])
        tell(f"{name}: questions encoded")

    def finish(name: str, domain: str, train: Played, test: Played) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
        encoded[name].result()
        measured = measure(train, test, domain)
        tell(f"{name}: policies trained")
        episodes = len(test.outcomes["published"].tasks) * n_seeds
        tables = rows_table(name, measured, label, episodes), paired_table(name, measured), slice_table(name, test)
        tell(f"{name}: {len(tables[0])} rows, {len(tables[1])} paired differences")
        return tables

    made: dict[str, Future[Any]] = {}
    encoded: dict[str, Future[Any]] = {}
    finished: list[Future[Any]] = []
    with ThreadPoolExecutor(1) as preparing, ThreadPoolExecutor(1) as finishing:
        try:
            for data in chosen:
                made[data.name] = preparing.submit(make_tasks, data.name)
            for data in chosen:
                encoded[data.name] = preparing.submit(encode_all, data.name)
            if benchmarks is not None:  # a missing or broken file is found before anything is played
                for future in made.values():
                    future.result()
            for data in chosen:
                played = []
                for split, tasks in zip(("training", "test"), made[data.name].result(), strict=True):
                    played.append(play_tasks(tasks, data, values.model_dump(), seeds_of(data, n_seeds),
                                             split == "test", workers))
                    tell(f"{data.name}: {split} tasks played")
                finished.append(finishing.submit(finish, data.name, data.domain, *played))
            tables = [future.result() for future in finished]
        except BaseException:
            for executor in (preparing, finishing):
                executor.shutdown(wait=False, cancel_futures=True)
            raise
    return Results(*(pd.concat(parts, ignore_index=True) for parts in zip(*tables, strict=True)))


@command
def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bamas_lite.reproduction.systems", description=main.__doc__)
    parser.add_argument("--benchmarks", help="folder with the real GSM8K, MBPP and MATH; without it our own tasks")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="repetitions of everything (default %(default)s)")
    parser.add_argument("--tasks", type=int, help="at most so many tasks of each split (default all)")
    parser.add_argument("--workers", type=int, default=2, help="processes (default %(default)s)")
    parser.add_argument("--parameters", default="fitted", help="of the simulated LLM (default %(default)s)")
    parser.add_argument("--out", help="folder of the results (default data/reproduction; with --benchmarks, --seeds, "
                                      "--tasks or --parameters build/reproduction)")
    options = parser.parse_args(arguments)
    for name, least in (("seeds", 1), ("tasks", LEAST_TASKS), ("workers", 1)):
        if getattr(options, name) is not None:
            whole(getattr(options, name), f"--{name}", least)
    full = all(getattr(options, name) == parser.get_default(name)
               for name in ("benchmarks", "seeds", "tasks", "parameters"))
    default = RESULTS if full else BUILD / "reproduction"
    out = out_folder(default if options.out is None else options.out, "--out")
    results = reproduce(benchmarks=options.benchmarks, n_seeds=options.seeds, n_tasks=options.tasks,
                        parameters=options.parameters, workers=options.workers,
                        say=lambda line: print(line, flush=True))
    for path in results.write(out):
        print(f"{path}: {path.stat().st_size / 1e3:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
