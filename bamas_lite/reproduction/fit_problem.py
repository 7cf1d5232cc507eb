"""The least-squares problem behind `calibration`: rows, free parameters, residuals and their slopes, errors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import brentq, least_squares
from scipy.special import ndtr

from bamas_lite.inputs import shown
from bamas_lite.pool import load_pool
from bamas_lite.provisioning import TOKEN_LIMITS
from bamas_lite.reproduction.expected import Play, play_of_topology, play_of_workflow
from bamas_lite.reproduction.published import DATASETS, LEVELS, LLMS
from bamas_lite.simulation import load_parameters
from bamas_lite.tasks import Task
from bamas_lite.trajectories import paper_pool, team_of
from bamas_lite.workflows import WORKFLOWS, Workflow, naive

ACCURACY_SD = 0.01
"""Error of the model in a share of right answers, beside the binomial one; near what the baseline rows then show."""
COST_SD = 0.25
"""Error of the model in the log of a cost; near what the baseline rows then show."""
SHIFT_SD = 0.2
"""How far a system's shift may lie from naive's, in units of the latent skill (assumed)."""
NEUTRAL = {"skill": 1.0, "completion_tokens": 200.0, "system_tokens": 1.0, "system_shift": 0.0}
"""Where every fit starts; no look at any row."""
TOPOLOGIES_MIXED = ("linear", "star", "feedback")
"""How BAMAS plays its lowest budget in the second fit: each of these on a third of the tasks. The paper gives no shares
by budget; Planner-Driven is left out, which the paper says is never chosen."""


class Cited(NamedTuple):
    """An external figure: share right of single calls, its standard deviation on the latent scale (assumed), source."""

    accuracy: float
    sd: float
    source: str


CITED = {("MATH", "DeepSeek-V3"): Cited(0.902, 0.15, (
    "DeepSeek-V3 Technical Report, arXiv 2412.19437, evaluation of the chat model: MATH-500 (EM) 90.2, greedy, at most "
    "8192 output tokens"))}
"""For an LLM on a data set that no row identifies: its skill. Its tokens follow from the other LLM's by the ratio on
the other data sets."""

SYSTEM_KEYS = {"Naive-CostAware": "naive", "AutoGen": "autogen", "MetaGPT": "metagpt", "ChatDev": "chatdev",
               "BAMAS": "bamas"}
_STEP = 1e-3


class Name(NamedTuple):
    """A free parameter: entry of the parameters, data set ("all": shared), LLM or system."""

    entry: str
    dataset: str
    who: str

    @property
    def is_log(self) -> bool:
        """Whether the fit works on its logarithm."""
        return self.entry in ("completion_tokens", "system_tokens")


@dataclass(frozen=True)
class Spread:
    """Standard deviations that the fit leaves or finds.

    Attributes:
        accuracy_row: of a row's share of right answers beyond the binomial error.
        cost_row: of the log of a row's cost.
        tokens_system: between systems, of log system_tokens (naive's 0 included).
        shift_system: between systems, of system_shift (naive's 0 included), within a data set.
    """

    accuracy_row: float
    cost_row: float
    tokens_system: float
    shift_system: float


def completion_limit(system: str, domain: str) -> dict[str, int]:
    """The `max_tokens` of `run_workflow` for a baseline: BAMAS's for naive, else its default: no limit is published."""
    return {"max_tokens": TOKEN_LIMITS[domain]["executor"]} if system == "naive" else {}


class Group(NamedTuple):
    """Rows that the model cannot tell apart: who plays what, and which parameters are theirs."""

    plays: tuple[Play, ...]
    prices: tuple[float, float]
    skill: tuple[int, ...]
    tokens: tuple[int, ...]


class Targets(NamedTuple):
    accuracy: np.ndarray
    log_cost: np.ndarray
    shift: np.ndarray


class Problem:
    """The least-squares problem of some rows."""

    def __init__(self, rows: pd.DataFrame, tasks_by_dataset: Mapping[str, Sequence[Task]], base: str | Path,
                 fixed: Mapping[str, Any]) -> None:
        if not isinstance(fixed, Mapping):
            raise ValueError(f"fixed = {shown(fixed)}: expected values by entry, such as "
                             "{'plan_more': {'value': 0.3}}")
        if fitted := [entry for entry in fixed if entry in NEUTRAL]:
            raise ValueError(f"fixed holds {fitted[0]}, which is fitted")
        if not isinstance(tasks_by_dataset, Mapping):
            raise ValueError(f"tasks_by_dataset = {shown(tasks_by_dataset)}: expected lists of tasks by data set")
        self.rows, self.base, self.fixed = rows, base, dict(fixed)
        self.p = load_parameters({"base": base, **fixed})
        self.datasets = tuple(dict.fromkeys(rows.dataset))
        self.tasks = {name: _tasks_of(name, tasks_by_dataset) for name in self.datasets}
        llms = {llm.name: llm for llm in load_pool("paper").llms}
        names: dict[Name, int] = {}
        groups: dict[tuple[Any, ...], int] = {}
        self.groups: list[Group] = []
        self.group_of = np.zeros(len(rows), int)
        for number, row in enumerate(rows.itertuples()):
            system, llm, how = _how(row.dataset, row.system, row.setting)
            key = row.dataset, system, llm, how.steps if isinstance(how, Workflow) else how
            if key not in groups:
                ours = system != "naive"
                shared_shift = "all" if system == "bamas" else row.dataset
                skill = [Name("skill", row.dataset, llm), *[Name("system_shift", shared_shift, system)] * ours]
                tokens = [Name("completion_tokens", row.dataset, llm), *[Name("system_tokens", "all", system)] * ours]
                at = [tuple(names.setdefault(name, len(names)) for name in part) for part in (skill, tokens)]
                groups[key] = len(self.groups)
                prices = llms[llm].price_in, llms[llm].price_out
                self.groups.append(Group(self._plays(row.dataset, how), prices, *at))
            self.group_of[number] = groups[key]
        self.names = tuple(names)
        self.shifts = np.array([i for i, name in enumerate(names) if name.entry == "system_shift"], int)
        share = rows.accuracy_percent.to_numpy(float) / 100
        n_test = np.array([DATASETS[name].n_test for name in rows.dataset])
        self.binomial = np.sqrt(share * (1 - share) / n_test)
        self.accuracy_sd = np.sqrt(self.binomial**2 + ACCURACY_SD**2)
        self.weight = 1 / np.bincount(self.group_of)[self.group_of]
        self.published = Targets(share, np.log(rows.avg_cost_microusd.to_numpy(float)), np.zeros(len(self.shifts)))
        # How theta moves each group's skill and log of tokens.
        self.moves = np.zeros((len(self.groups), 2, len(names)))
        for g, group in enumerate(self.groups):
            self.moves[g, 0, list(group.skill)] = 1
            self.moves[g, 1, list(group.tokens)] = 1

    def _plays(self, data: str, how: Workflow | float) -> tuple[Play, ...]:
        tasks, domain = self.tasks[data], DATASETS[data].domain
        if isinstance(how, Workflow):
            return (play_of_workflow(how, tasks, **completion_limit(how.system, domain)),)
        team = team_of(paper_pool(domain), how)
        return tuple(play_of_topology(topology, tasks, team) for topology in TOPOLOGIES_MIXED)

    def with_fixed(self, fixed: Mapping[str, Any]) -> Problem:
        """The same problem with other values for the parameters that are not fitted."""
        return Problem(self.rows, self.tasks, self.base, fixed)

    def expected(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Share right and log cost of each group, (G, 2), and their slopes in theta, (G, 2, P)."""
        at = self.moves @ theta
        values, slopes = np.zeros((len(self.groups), 2)), np.zeros((len(self.groups), 2, 2))
        skill_steps, token_steps = _STEP * np.array([0, 1, -1, 0, 0]), _STEP * np.array([0, 0, 0, 1, -1])
        for g, group in enumerate(self.groups):
            parts = [play.evaluate(self.p, at[g, 0] + skill_steps, np.exp(at[g, 1] + token_steps), *group.prices)
                     for play in group.plays]
            share, cost = (np.mean(part, axis=0) for part in zip(*parts, strict=True))
            both = np.stack([share, np.log(cost)])
            values[g] = both[:, 0]
            slopes[g] = (both[:, [1, 3]] - both[:, [2, 4]]) / (2 * _STEP)
        return values, slopes @ self.moves

    def solve(self, theta: np.ndarray, targets: Targets, *, near: bool,
              tolerance: float = 1e-10) -> tuple[np.ndarray, np.ndarray]:
        """The least-squares estimate from a start (`near` it or not), and its Jacobian with the loss accounted for."""
        scale_a, scale_c = np.sqrt(self.weight) / self.accuracy_sd, np.sqrt(self.weight) / COST_SD
        known: dict[bytes, tuple[np.ndarray, np.ndarray]] = {}

        def both(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            if x.tobytes() not in known:
                known.clear()
                values, slopes = self.expected(x)
                values, slopes = values[self.group_of], slopes[self.group_of]
                ridge = np.zeros((len(self.shifts), len(x)))
                ridge[np.arange(len(self.shifts)), self.shifts] = 1 / SHIFT_SD
                known[x.tobytes()] = (
                    np.concatenate([(values[:, 0] - targets.accuracy) * scale_a,
                                    (values[:, 1] - targets.log_cost) * scale_c,
                                    (x[self.shifts] - targets.shift) / SHIFT_SD]),
                    np.vstack([slopes[:, 0] * scale_a[:, None], slopes[:, 1] * scale_c[:, None], ridge]))
            return known[x.tobytes()]

        def least(x: np.ndarray, loss: str, tolerance: float) -> Any:
            return least_squares(lambda x: both(x)[0], x, jac=lambda x: both(x)[1], loss=loss, x_scale="jac",
                                 xtol=tolerance, ftol=tolerance, gtol=None, max_nfev=300)

        if not near:  # squares first: far off, soft_l1 would give up rows whose answers are all cut
            theta = least(theta, "linear", 1e-3).x
        found = least(theta, "soft_l1", tolerance)
        if not found.success:
            raise RuntimeError("the fit did not converge: the rows contradict each other, or lie where no parameters "
                               f"lead ({found.message})")
        return found.x, found.jac

    def moved(self, rng: np.random.Generator) -> Targets:
        """The published numbers and the zeros of the ridge, each moved by its error; rows of a group move together."""
        z = rng.standard_normal((2, len(self.groups)))[:, self.group_of]
        return Targets(self.published.accuracy + z[0] * self.accuracy_sd, self.published.log_cost + z[1] * COST_SD,
                        SHIFT_SD * rng.standard_normal(len(self.shifts)))

    def covariance(self, jac: np.ndarray) -> np.ndarray:
        """Of the estimate with this Jacobian.

        Raises:
            ValueError: the rows leave a parameter open.
        """
        _, s, axes = np.linalg.svd(jac, full_matrices=False)
        if s[-1] < 1e-7 * s[0]:
            name = self.names[int(np.abs(axes[-1]).argmax())]
            raise ValueError(f"rows: do not identify {name.entry} of {name.who} ({name.dataset})")
        return (axes.T / s**2) @ axes

    def residuals(self, theta: np.ndarray) -> pd.DataFrame:
        """The rows beside what `theta` expects; see `calibration.Fit.rows`."""
        values = self.expected(theta)[0][self.group_of]
        return self.rows[["dataset", "system", "setting"]].assign(
            weight=self.weight, accuracy=self.published.accuracy, accuracy_fit=values[:, 0],
            accuracy_sd=self.accuracy_sd, cost=np.exp(self.published.log_cost), cost_fit=np.exp(values[:, 1]),
            log_cost_residual=values[:, 1] - self.published.log_cost)

    def spread(self, theta: np.ndarray, jac: np.ndarray, covariance: np.ndarray, rows: pd.DataFrame) -> Spread:
        """What is left in `rows`, the residuals, for the degrees of freedom that are left, and between systems."""
        used = np.einsum("ij,jk,ik->i", jac, covariance, jac)  # degrees of freedom that each number takes
        n, G = len(rows), len(self.groups)

        def left(residual: np.ndarray, degrees: float) -> float:
            return float(self.weight @ residual**2 / max(G - degrees, 1.0))

        accuracy = left(rows.accuracy_fit - rows.accuracy, used[:n].sum()) - float(self.weight @ self.binomial**2) / G
        cost = left(rows.log_cost_residual, used[n:2 * n].sum())
        factors = [0.0, *(theta[i] for i, name in enumerate(self.names)
                          if name.entry == "system_tokens" and name.who != "bamas")]
        by_dataset = [[0.0, *(theta[i] for i, name in enumerate(self.names)
                              if name.entry == "system_shift" and name.dataset == data)] for data in self.datasets]
        variances = [np.var(shifts, ddof=1) for shifts in by_dataset if len(shifts) > 1]
        return Spread(math.sqrt(max(0.0, accuracy)), math.sqrt(cost),
                      float(np.std(factors, ddof=1)) if len(factors) > 1 else 0.0,
                      math.sqrt(float(np.mean(variances))) if variances else 0.0)

    def cited(self) -> dict[tuple[str, str], float]:
        """Skills with which single calls reach the cited shares on the levels of the tasks."""
        found = {}
        for (data, llm), cited in CITED.items():
            if data in self.datasets and Name("skill", data, llm) not in self.names:
                slope = self.p.level_slope.value[DATASETS[data].domain]
                below = np.array([slope * (task.level - 1) for task in self.tasks[data]])
                found[data, llm] = float(brentq(lambda x, a=cited.accuracy, b=below: ndtr(x - b).mean() - a, -10, 20))
        return found


def _tasks_of(name: str, tasks_by_dataset: Mapping[str, Sequence[Task]]) -> tuple[Task, ...]:
    given = tasks_by_dataset.get(name, ())
    tasks = tuple(given) if isinstance(given, Iterable) else (given,)
    if not tasks:
        raise ValueError(f"tasks_by_dataset: has no tasks for {name}, which rows hold")
    if other := [task for task in tasks if not isinstance(task, Task)]:
        raise ValueError(f"tasks_by_dataset[{name!r}] holds {shown(other[0])}: expected Task objects, as load_tasks "
                         "returns them")
    if other := [task for task in tasks if task.domain != DATASETS[name].domain]:
        raise ValueError(f"tasks_by_dataset[{name!r}]: {other[0].task_id} is of the domain {other[0].domain}; expected "
                         f"{DATASETS[name].domain}")
    return tasks


def _how(data: str, system: str, setting: str) -> tuple[str, str, Workflow | float]:
    """System, LLM, and the workflow or the budget of a row."""
    key, words = SYSTEM_KEYS[system], str(setting)
    level, _, llm = words.partition(" ")
    if key == "bamas":
        if level == "budget" and llm in map(str, DATASETS[data].budgets):
            team = team_of(paper_pool(DATASETS[data].domain), float(llm))
            return key, team.slots[0].llm.name, float(llm)
    elif key != "naive":
        if words in LLMS:
            return key, words, WORKFLOWS[key]
    elif llm in LLMS and level in {f"L{i}" for i in LEVELS}:
        return key, llm, naive(int(level[1:]))
    raise ValueError(f"setting = {shown(setting)}: {system} on {data} has no such setting")
