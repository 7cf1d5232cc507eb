"""How well does the simulator, fitted to half of a recording, predict the other half?

The tasks are split in two halves. From the episodes of half A the simulator's parameters are estimated
(`simulator_fit.py`); then it plays the tasks of half B, and its accuracy and cost are compared with what was recorded
there, for each topology, budget and domain. Beside it stand what a plain average predicts (half A's own mean of the
same cell), the simulator as it was before (parameters `assumed`), and the error that a perfect prediction would still
have, since half B is a sample itself.

`python -m bamas_lite.simulator_check` does so with the committed recording of two small LLMs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import kendalltau, t

from bamas_lite.casting import TOPOLOGIES
from bamas_lite.episode import Episode
from bamas_lite.inputs import command, whole
from bamas_lite.llm import ChatModel
from bamas_lite.local_study import LOCAL_BUDGETS, LOG, RECORDING, local_pool, local_tasks, replay_backend
from bamas_lite.pool import Pool
from bamas_lite.provisioning import InfeasibleBudgetError
from bamas_lite.simulation import SimulatedLLM
from bamas_lite.simulator_calls import calls_of
from bamas_lite.simulator_fit import Fit, fit_calls, fit_simulator
from bamas_lite.simulator_fitted import FittedLLM
from bamas_lite.tasks import Task
from bamas_lite.topologies import infeasible_episode, run_task
from bamas_lite.trajectories import generate_trajectories, load_trajectories, run_coroutine, team_of

__all__ = ["compare", "episodes_of", "fit_simulator", "predict", "rankings", "resampled_fits", "split_halves",
           "summary"]

QUANTITIES = {"accuracy": "correct", "cost": "cost"}
CELL = ["domain", "budget", "topology"]
PREDICTORS = ("predicted", "half_a", "unfitted")
SEEDS = 40
"""Repetitions behind the committed table."""


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


def compare(recorded: pd.DataFrame, predicted: pd.DataFrame, half_a: pd.DataFrame, unfitted: pd.DataFrame, *,
            level: float = 0.95, resamples: int = 2000, seed: int = 0) -> pd.DataFrame:
    """What was recorded in half B beside what was predicted for it.

    Args:
        recorded: the log of half B.
        predicted, unfitted: logs of the simulator on its tasks (`predict`), with a fit and without.
        half_a: the log of half A.
        level: of both intervals.
        resamples: bootstrap samples of half B's tasks.
        seed: of the bootstrap.

    Returns:
        A row for each domain, budget (u$), topology and quantity ("accuracy": share of right answers, "cost": u$ a
        task): recorded with a bootstrap interval over its tasks and its standard error; predicted with the interval in
        which the mean of such a half falls (mean of the seeds, their spread, Student's t), `covered`: whether the
        recorded mean does; half_a and unfitted: the means of the two other predictions; n_tasks. Cells where no episode
        could be played are left out.
    """
    groups = {name: dict(list(log[log.status == "ok"].groupby(CELL))) for name, log in
              {"recorded": recorded, "predicted": predicted, "half_a": half_a, "unfitted": unfitted}.items()}
    rows: list[dict[str, Any]] = []
    for cell, rows_b in groups["recorded"].items():
        parts = {name: groups[name].get(cell) for name in PREDICTORS}
        for quantity, column in QUANTITIES.items():
            values = rows_b.groupby("task_id")[column].mean().to_numpy(float)
            draws = np.random.default_rng(seed).multinomial(
                len(values), np.full(len(values), 1 / len(values)), resamples) @ values / len(values)
            low, high = np.quantile(draws, ((1 - level) / 2, (1 + level) / 2))
            row = dict(zip(CELL, cell, strict=True)) | {
                "quantity": quantity, "n_tasks": len(values), "recorded": values.mean(), "recorded_low": low,
                "recorded_high": high, "recorded_se": values.std() / np.sqrt(len(values))}
            row |= {name: np.nan if part is None else float(part[column].astype(float).mean())
                    for name, part in parts.items()}
            most = 1.0 if quantity == "accuracy" else np.inf
            low, high = np.clip(_interval(parts["predicted"], column, level), 0.0, most)
            row |= {"predicted_low": low, "predicted_high": high,
                    "covered": bool(low - 1e-9 <= row["recorded"] <= high + 1e-9)}
            rows.append(row)
    table = pd.DataFrame(rows)
    table["topology"] = pd.Categorical(table.topology, TOPOLOGIES)
    table = table.sort_values(["quantity", *CELL], ignore_index=True).astype({"topology": str})
    columns = ["quantity", *CELL, "n_tasks", "recorded", "recorded_low", "recorded_high", "recorded_se", "predicted",
               "predicted_low", "predicted_high", "covered", "half_a", "unfitted"]
    return table[columns]


def _interval(part: pd.DataFrame | None, column: str, level: float) -> tuple[float, float]:
    """Where the mean of one more repetition falls."""
    if part is None:
        return np.nan, np.nan
    means = part.astype({column: float}).groupby("seed")[column].mean().to_numpy()
    half = t.ppf((1 + level) / 2, len(means) - 1) * means.std(ddof=1) * np.sqrt(1 + 1 / len(means))
    return means.mean() - half, means.mean() + half


def summary(table: pd.DataFrame, by: Sequence[str] = ()) -> pd.DataFrame:
    """The errors of a comparison: one row for each quantity (and value of the columns `by`).

    Columns: cells; covered, the share of predicted intervals that hold the recorded mean; the mean absolute error of
    each prediction (accuracy: in points of 100; cost: in percent of the recorded cost); `perfect`: what the error of
    the true mean would be on average, from half B's sampling alone; `bias`: mean of predicted minus recorded.
    """
    rows = []
    for key, part in table.groupby(["quantity", *by]):
        quantity = key[0]
        scale = 100 / (1 if quantity == "accuracy" else part.recorded)
        row = dict(zip(["quantity", *by], key, strict=True)) | {"cells": len(part), "covered": part.covered.mean()}
        row |= {name: ((part[name] - part.recorded).abs() * scale).mean() for name in PREDICTORS}
        row["perfect"] = (np.sqrt(2 / np.pi) * part.recorded_se * scale).mean()
        row["bias"] = ((part.predicted - part.recorded) * scale).mean()
        rows.append(row)
    return pd.DataFrame(rows)


def rankings(table: pd.DataFrame) -> pd.DataFrame:
    """The order of topologies by accuracy, for each domain and budget with at least two of them.

    Columns: best, the recorded best topology (of equals the cheapest); for each prediction its best topology, the share
    of right answers lost by choosing it (`_lost`, in recorded accuracy) and Kendall's tau with the recorded order
    (`_tau`; missing where one of them ranks all alike).
    """
    accuracy = table[table.quantity == "accuracy"].set_index([*CELL])
    costs = table[table.quantity == "cost"].set_index([*CELL])
    rows = []
    for (domain, budget), part in accuracy.groupby(["domain", "budget"]):
        if len(part) < 2:
            continue
        part, cost = part.loc[(domain, budget)], costs.loc[(domain, budget)]
        chosen = {name: min(part.index, key=lambda place, n=name: (-part[n][place], cost[n][place]))
                  for name in ("recorded", *PREDICTORS)}
        row: dict[str, Any] = {"domain": domain, "budget": budget, "best": chosen["recorded"]}
        for name in PREDICTORS:
            varied = part[name].nunique() > 1 and part.recorded.nunique() > 1
            row |= {name: chosen[name], f"{name}_lost": part.recorded.max() - part.recorded[chosen[name]],
                    f"{name}_tau": kendalltau(part[name], part.recorded).statistic if varied else np.nan}
        rows.append(row)
    return pd.DataFrame(rows)


def log_of(episodes: Iterable[Episode], seed: int = 0) -> pd.DataFrame:
    """The rows of episodes, as far as `compare` reads them."""
    log = pd.DataFrame([episode.row() for episode in episodes])
    return log.assign(correct=log.correct.astype("boolean"), seed=seed)


def check(episodes: Sequence[Episode], tasks: Sequence[Task], budgets: Sequence[float], pool: Pool, *, seed: int = 0,
          n_seeds: int = 20) -> tuple[pd.DataFrame, Fit]:
    """Split, fit, predict and compare: the table, and the fit to half A."""
    half_a, half_b = split_halves(tasks, seed)
    of: Mapping[bool, list[Episode]] = {True: [], False: []}
    in_a = {task.task_id for task in half_a}
    for episode in episodes:
        of[episode.task_id in in_a].append(episode)
    fits = resampled_fits(of[True], half_a, pool, n_seeds, seed)
    table = compare(log_of(of[False]), predict(fits, half_b, budgets, pool, n_seeds=n_seeds), log_of(of[True]),
                    predict(None, half_b, budgets, pool, n_seeds=n_seeds), seed=seed)
    return table, fit_simulator(of[True], half_a, pool)


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
    """Check the simulator with the committed recording; writes simulator_check.csv and simulator_fit.csv."""
    argparse.ArgumentParser(description=main.__doc__).parse_args(arguments)
    table, fit = check(*recorded_episodes(), LOCAL_BUDGETS, local_pool(), n_seeds=SEEDS)
    for name, rows in (("check", table), ("fit", fit.estimates)):
        rows.round(6).to_csv(LOG.with_name(f"simulator_{name}.csv"), index=False, lineterminator="\n")
    print(summary(table).round(2).to_string(index=False))
    print(rankings(table).round(2).to_string(index=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
