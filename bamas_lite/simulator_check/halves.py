"""How well does the simulator, fitted to half of a recording, predict the other half?

The tasks are split in two halves. From the episodes of one half the simulator's parameters are estimated
(`fit.py`); then it plays the tasks of the other, and its accuracy and cost are compared with what was
recorded there, for each topology, budget and domain. Beside it stand what a plain average predicts (the same cell's
mean in the half that was fitted), the simulator without a fit (parameters `assumed`), and the error that a perfect
prediction would still have, since a half is a sample itself. The plain average knows the cell that it predicts; the
simulator has one set of parameters for all cells.

`python -m bamas_lite.simulator_check` does so with the committed recording of two small LLMs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from itertools import product

import numpy as np
import pandas as pd

from bamas_lite.casting import TOPOLOGIES
from bamas_lite.episode import Episode
from bamas_lite.inputs import command, whole
from bamas_lite.llm import ChatModel
from bamas_lite.local_study import LOCAL_BUDGETS, LOG, RECORDING, local_pool, local_tasks, replay_backend
from bamas_lite.pool import Pool
from bamas_lite.provisioning import InfeasibleBudgetError
from bamas_lite.simulation import SimulatedLLM
from bamas_lite.simulator_check.calls import calls_of
from bamas_lite.simulator_check.compare import CELL, PREDICTORS, compare, log_of, rankings, summary
from bamas_lite.simulator_check.fit import Fit, fit_calls, fit_simulator
from bamas_lite.simulator_check.fitted import FittedLLM
from bamas_lite.tasks import Task
from bamas_lite.topologies import infeasible_episode, run_task
from bamas_lite.trajectories import generate_trajectories, load_trajectories, run_coroutine, team_of

__all__ = ["check", "check_new_budgets", "compare", "episodes_of", "fit_simulator", "log_of", "predict", "rankings",
           "resampled_fits", "split_halves", "summary"]

SPLITS, SEEDS = tuple(range(5)), 20
"""Splits of the tasks and repetitions of the simulator behind the committed table."""


def split_halves(tasks: Iterable[Task], seed: int = 0) -> tuple[list[Task], list[Task]]:
    """Two halves of the tasks, each with half of every (domain, source, level), in the order of `tasks`.

    Raises:
        ValueError: fewer than two tasks.
    """
    tasks = list(tasks)
    if len(tasks) < 2:
        raise ValueError(f"tasks: {len(tasks)} of them; expected at least 2, to have one in each half")
    rng = np.random.default_rng(seed)
    strata: dict[tuple[str, str, int], list[int]] = {}
    for i, task in enumerate(tasks):
        strata.setdefault((task.domain, task.source, task.level), []).append(i)
    first: set[int] = set()
    more = 0   # of strata with an odd number of tasks, every second gives one more to the first half
    for _, members in sorted(strata.items()):
        odd = len(members) % 2
        n = len(members) // 2 + (odd and more % 2 == 0)
        more += odd
        first.update(rng.permutation(members)[:n].tolist())
    return ([task for i, task in enumerate(tasks) if i in first],
            [task for i, task in enumerate(tasks) if i not in first])


def episodes_of(tasks: Iterable[Task], budgets: Iterable[float], pool: Pool, backend: ChatModel,
                topologies: Sequence[str] = TOPOLOGIES) -> list[Episode]:
    """The full factorial with traces, as `generate_trajectories` plays it (which keeps none)."""
    tasks, budgets = list(tasks), [float(budget) for budget in budgets]

    async def all_of_them() -> list[Episode]:
        episodes = []
        for task, budget, topology in product(tasks, budgets, topologies):
            team = team_of(pool, budget)
            if isinstance(team, InfeasibleBudgetError):
                episodes.append(infeasible_episode(task, topology, budget, str(team), backend=backend.name))
            else:
                episodes.append(await run_task(task, team, topology, backend, budget))
        return episodes

    return run_coroutine(all_of_them())


def resampled_fits(episodes: Iterable[Episode], tasks: Sequence[Task], pool: Pool, n: int = 20, seed: int = 0
                   ) -> list[Fit]:
    """The simulator fitted to `n` bootstrap samples of the tasks, drawn within each (domain, level).

    What differs between them is what is not known about the parameters.
    """
    calls = calls_of(episodes, tasks)
    strata: dict[tuple[str, int], list[str]] = {}
    for task in tasks:
        strata.setdefault((task.domain, task.level), []).append(task.task_id)
    fits = []
    for rng in np.random.default_rng(seed).spawn(whole(n, "n", 1)):
        weights: dict[str, float] = {}
        for members in strata.values():
            weights |= zip(members, rng.multinomial(len(members), np.full(len(members), 1 / len(members))), strict=True)
        fits.append(fit_calls(calls, pool, weights))
    return fits


class _Backends:
    """Seed -> backend; each seed has a fit of its own as long as there are enough."""

    def __init__(self, fits: Sequence[Fit], tasks: Sequence[Task]) -> None:
        self.fits, self.tasks = fits, tasks

    def __call__(self, seed: int) -> FittedLLM:
        return FittedLLM(self.fits[seed % len(self.fits)], self.tasks, seed)


def predict(fits: Fit | Sequence[Fit] | None, tasks: Sequence[Task], budgets: Iterable[float], pool: Pool, *,
            n_seeds: int = 20, topologies: Sequence[str] = TOPOLOGIES, progress: bool = False) -> pd.DataFrame:
    """Play `tasks` with the simulator: a log as of `generate_trajectories`, one repetition of everything a seed.

    Args:
        fits: what to play with; of several, seed s uses number s, so that the spread over seeds holds what is not known
            about the parameters. None: the simulator as it is without a fit.
        n_seeds: at least 2.
    """
    seeds = range(whole(n_seeds, "n_seeds", 2))
    tasks = list(tasks)
    backend: Callable[[int], ChatModel] = SimulatedLLM
    if fits is not None:
        backend = _Backends([fits] if isinstance(fits, Fit) else list(fits), tasks)
    return generate_trajectories(tasks, budgets, pool=pool, backend=backend, seeds=seeds, topologies=topologies,
                                 progress=progress)


def check(episodes: Sequence[Episode], tasks: Sequence[Task], budgets: Sequence[float], pool: Pool, *,
          splits: Sequence[int] = (0,), n_seeds: int = 20) -> pd.DataFrame:
    """Split, fit, predict and compare, in both directions: each half is predicted from the other.

    Args:
        episodes: the full factorial of `tasks` and `budgets` with traces (`episodes_of`).
        splits: seeds of `split_halves`.
        n_seeds: of `predict`, and the number of fits.

    Returns:
        As `compare`, with the columns split and predicted_half ("A" or "B") before the others.
    """
    tables = []
    for split in splits:
        halves = split_halves(tasks, split)
        for other, name in ((1, "A"), (0, "B")):
            known, asked = halves[other], halves[1 - other]
            names = {task.task_id for task in known}
            seen = [episode for episode in episodes if episode.task_id in names]
            unseen = [episode for episode in episodes if episode.task_id not in names]
            fits = resampled_fits(seen, known, pool, n_seeds, split)
            table = compare(log_of(unseen), predict(fits, asked, budgets, pool, n_seeds=n_seeds), log_of(seen),
                            predict(None, asked, budgets, pool, n_seeds=2), seed=split)
            tables.append(table.assign(split=split, predicted_half=name))
    joined = pd.concat(tables, ignore_index=True)
    return joined[["split", "predicted_half", *joined.columns.drop(["split", "predicted_half"])]]


def check_new_budgets(episodes: Sequence[Episode], tasks: Sequence[Task], budgets: Sequence[float], pool: Pool, *,
                      splits: Sequence[int] = (0,), n_seeds: int = 8) -> pd.DataFrame:
    """Predict cells that were not run: as `check`, but the simulator is fitted without the budget that it predicts.

    plain_average is then the mean of the same topology and domain at the other budgets, in the half that was fitted;
    there is no column unfitted.
    """
    tables = []
    for split, (other, name), budget in product(splits, ((1, "A"), (0, "B")), budgets):
        halves = split_halves(tasks, split)
        known, asked = halves[other], halves[1 - other]
        names = {task.task_id for task in known}
        seen = [episode for episode in episodes if episode.task_id in names and episode.budget != budget]
        unseen = [episode for episode in episodes if episode.task_id not in names and episode.budget == budget]
        fits = resampled_fits(seen, known, pool, n_seeds, split)
        average = log_of(seen).assign(budget=budget)
        table = compare(log_of(unseen), predict(fits, asked, [budget], pool, n_seeds=n_seeds), average, average,
                        seed=split)
        tables.append(table.drop(columns="unfitted").assign(split=split, predicted_half=name))
    joined = pd.concat(tables, ignore_index=True)
    return joined[["split", "predicted_half", *joined.columns.drop(["split", "predicted_half"])]]


def recorded_episodes() -> tuple[list[Episode], list[Task]]:
    """The committed recording of two small LLMs, replayed: episodes with traces, and their tasks.

    Raises:
        ValueError: the replay does not give what the committed log of the recording says.
    """
    tasks = local_tasks()
    episodes = episodes_of(tasks, LOCAL_BUDGETS, local_pool(), replay_backend())
    key = ["task_id", *CELL[1:]]
    replayed, logged = (rows.set_index(key).cost.sort_index() for rows in (
        pd.DataFrame([episode.row() for episode in episodes]), load_trajectories(LOG)))
    if not replayed.equals(logged):
        raise ValueError(f"{LOG.name}: a replay of {RECORDING.name} has other episodes or costs; record or log anew")
    return episodes, tasks


@command
def main(arguments: Sequence[str] | None = None) -> int:
    """Check the simulator with the committed recording; writes simulator_check.csv, simulator_new_budgets.csv (each
    budget predicted from the others), and simulator_fit.csv: the parameters fitted to all of it."""
    argparse.ArgumentParser(prog="python -m bamas_lite.simulator_check", description=main.__doc__).parse_args(arguments)
    episodes, tasks = recorded_episodes()
    table = check(episodes, tasks, LOCAL_BUDGETS, local_pool(), splits=SPLITS, n_seeds=SEEDS)
    new = check_new_budgets(episodes, tasks, LOCAL_BUDGETS, local_pool(), splits=SPLITS[:2])
    fit = fit_simulator(episodes, tasks, local_pool())
    for name, rows, digits in (("check", table, 4), ("new_budgets", new, 4), ("fit", fit.estimates, 3)):
        rows.round(digits).to_csv(LOG.with_name(f"simulator_{name}.csv"), index=False, lineterminator="\n")
    for by in ((), ("domain",), ("topology",)):
        print(summary(table, by).round(2).to_string(index=False), end="\n\n")
    ranks = pd.concat(rankings(part) for _, part in table.groupby(["split", "predicted_half"]))
    print(ranks.drop(columns=["best", *PREDICTORS]).groupby("domain").mean().round(3).to_string())
    return 0
