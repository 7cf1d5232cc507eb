"""The paper against its public code: each difference as a switch that is turned alone, and all of them together.

A switch compares two sides which differ in one thing only, on the same tasks, seeds of the simulated LLM and initial
weights of the policy (common random numbers). A side is BAMAS as published, with something changed: how episodes are
run (fields of `Variant`, for some topologies), how the policy is trained (`Settings`), what becomes of failed calls, or
which tasks it is trained on. What changes training only uses the log of the base again.

`python -m bamas_lite.reproduction.switches` measures all of them and writes data/reproduction/switches.csv.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from bamas_lite.casting import TOPOLOGIES, CastingError, cast_roles
from bamas_lite.encoder import encode
from bamas_lite.experiments import bootstrap_interval
from bamas_lite.inputs import command, out_folder, shown, whole
from bamas_lite.paths import DATA
from bamas_lite.policy import OUR_REWARDS, PAPER_SETTINGS, Settings
from bamas_lite.pool import Pool, load_pool
from bamas_lite.provisioning import InfeasibleBudgetError, Team
from bamas_lite.reproduction.bench import default_parameters
from bamas_lite.reproduction.code_variant import teams_by
from bamas_lite.reproduction.outcomes import Outcomes, Variant, joined, play, spread, with_parameters
from bamas_lite.reproduction.published import DATASETS, Dataset
from bamas_lite.reproduction.task_sets import chosen_datasets
from bamas_lite.tasks import Task, load_tasks
from bamas_lite.trajectories import checked_factors, paper_pool

RESULTS = DATA / "reproduction"
BASE = Variant(enforcement="paper")
"""BAMAS as published; what the paper leaves open is as everywhere in this kit (Feedback writes at most 3 answers)."""

METRICS = ("accuracy", "cost", "over_budget", *(f"share_{name}" for name in TOPOLOGIES))
"""Percentage points, u$ a task, runs over the budget of 1000 tasks, percent of the choices."""

FAILURES = 0.02
"""Share of failed runs in the simulated API failures."""
MANY_EPOCHS = 300
N_BUDGETS = 61
"""Budgets under which teams are compared."""
CODE_SHUFFLE_SEED = 42
"""The seed with which the public code shuffles GSM8K."""

Changes = Mapping[str, Any]


@dataclass(frozen=True)
class Side:
    """BAMAS as published, with changes.

    Attributes:
        variant: fields of `Variant` that differ from BASE.
        topologies: those that the changed variant plays; the others are those of the base.
        settings: fields of `Settings` that differ from PAPER_SETTINGS.
        failures: share of runs that an API failure makes a wrong answer of cost 0.
        half_of_the_tasks: train on half as many tasks, drawn by shuffling the whole training split.
    """

    variant: tuple[tuple[str, Any], ...] = ()
    topologies: tuple[str, ...] = TOPOLOGIES
    settings: tuple[tuple[str, Any], ...] = ()
    failures: float = 0.0
    half_of_the_tasks: bool = False


@dataclass(frozen=True)
class Switch:
    """One difference between the paper and its public code.

    Attributes:
        name: unique.
        topic, paper, code: what it is about, what the paper does and what the code does.
        how: how it is turned here.
        code_side: fields of `Side` on the code's side. A value may be a function of the data set.
        paper_side: the same of the paper's side, where the base is not what is compared with.
        datasets: where it can be turned.
        planned: two ways of provisioning (`code_variant.PROVISIONING`) whose teams differ, if any; None: no difference
            of teams. A "<domain>" in a name stands for that of the data set.
    """

    name: str
    topic: str
    paper: str
    code: str
    how: str
    code_side: Changes = field(default_factory=dict)
    paper_side: Changes = field(default_factory=dict)
    datasets: tuple[str, ...] = tuple(DATASETS)
    planned: tuple[str, str] | None = None

    def sides(self, data: Dataset) -> tuple[Side, Side]:
        """The paper's side and the code's."""
        paper, code = (Side(**{name: _fixed(value, data) for name, value in changes.items()})
                       for changes in (self.paper_side, self.code_side))
        return paper, code


def _fixed(value: Any, data: Dataset) -> Any:
    """A field of `Side`: mappings as sorted pairs, functions asked for the data set."""
    if isinstance(value, Mapping):
        return tuple(sorted((name, v(data) if callable(v) else v) for name, v in value.items()))
    return value


def _rewards(**changes: Any) -> Any:
    """The rewards of a data set with changes; each is a value or a function of the unchanged rewards."""
    return lambda data: replace(PAPER_SETTINGS[data.domain].rewards, **{
        name: value(PAPER_SETTINGS[data.domain].rewards) if callable(value) else value
        for name, value in changes.items()})


_EPISODES = "fields of Variant, episodes run anew"
_TRAINING = "fields of Settings, same log"
_NO_EFFECT = "by computation: the teams are the same under every budget of the paper"

SWITCHES = (
    Switch("one agent", "at least 2 LLMs", "at least two agents", "Linear and Star need one", _NO_EFFECT,
           {"variant": {"provisioning": "one agent"}}, planned=("paper", "one agent")),
    Switch("average weights", "weights' c_j", "the cost of tier j", "the average over the tier's agents",
           "by computation: the average is the cheapest where a tier has one LLM",
           {"variant": {"provisioning": "average weights"}}, planned=("paper", "average weights")),
    Switch("topology first", "order", "pool, then topology, then roles",
           "topology first, then one integer program with roles", _EPISODES,
           {"variant": {"provisioning": "roles"}}, planned=("paper", "roles")),
    Switch("objective factors", "objective", "sum of W",
           "W x performance factor x role factor (both sides: one program for each topology)", _EPISODES,
           {"variant": {"provisioning": lambda data: f"code, factors of {data.domain}"}},
           {"variant": {"provisioning": "roles"}},
           planned=("roles", "code, factors of <domain>")),
    Switch("weak critic", "feedback critic", "the strongest LLM", "the weakest", _EPISODES,
           {"variant": {"casting": "code"}, "topologies": ("feedback",)}),
    Switch("linear of three", "linear", "all agents run, strongest first", "at most three; a strong one comes last",
           _EPISODES, {"variant": {"casting": "code"}, "topologies": ("linear",)}),
    Switch("star of three", "star", "all agents, each with an approach of its own",
           "at most three with the same prompt, one after another (not measured: its wording, and up to four "
           "sub-prompts for tasks that calculate)", _EPISODES,
           {"variant": {"casting": "code", "star_prompts": "same"}, "topologies": ("star",)}),
    Switch("two rounds", "feedback rounds", "until accepted or budget (here at most three answers)",
           "at most two rounds", _EPISODES, {"variant": {"rounds": 2}, "topologies": ("feedback",)}),
    Switch("critic not heard", "feedback verdict", "an accepted answer ends the work",
           "on MBPP no verdict is recognized", _EPISODES,
           {"variant": {"critic_heard": False}, "topologies": ("feedback",)}, datasets=("MBPP",)),
    Switch("late stop", "budget stop", "stops once the cost exceeds B (compared with ours: no call can exceed it)",
           "checked before a call: one call can overshoot", _EPISODES,
           paper_side={"variant": {"enforcement": "reserve"}}),
    Switch("features added", "features", "concatenated", "added", _TRAINING, {"settings": {"features": "add"}}),
    Switch("learning rate", "learning rate", "3e-4 or 1.5e-3", "3e-3", _TRAINING,
           {"settings": {"learning_rate": 3e-3}}),
    Switch("reward constants", "reward constants", "not given (here: ours, a right answer is worth 1)",
           "a right answer 1000 or 1500, a wrong one as much below 0", _TRAINING,
           paper_side={"settings": {"rewards": OUR_REWARDS}}),
    Switch("saving bonus", "effect of saving", "saving is rewarded (here: with a tenth of a success)",
           "with at most 0.0001", _TRAINING,
           paper_side={"settings": {"rewards": _rewards(saving=lambda r: r.success / 10)}}),
    Switch("infeasible reward", "infeasible", "not given (here: as a wrong answer)", "costs less than a wrong answer",
           "by computation: no budget of the paper is infeasible",
           paper_side={"settings": {"rewards": _rewards(infeasible=lambda r: -r.failure)}}),
    Switch("ten steps", "training steps", f"10 epochs (compared with {MANY_EPOCHS})",
           "one batch holds all rows: 10 Adam steps", _TRAINING, paper_side={"settings": {"epochs": MANY_EPOCHS}}),
    Switch("matched rows", "model choice", "best mean reward on the log",
           "best mean reward over rows that a draw matches", _TRAINING, {"settings": {"model_choice": "matched"}}),
    Switch("failures are wrong answers", "API failure", "not said (here: no call fails)",
           f"a wrong answer of cost 0 (here {FAILURES:.0%} of the runs)", "the log and the test runs are changed",
           {"failures": FAILURES}),
    Switch("half of the tasks", "GSM8K training tasks", "the first 1000", "shuffled with seed 42, 500",
           "another set of training tasks, half as large", {"half_of_the_tasks": True}, datasets=("GSM8K",)),
)
"""Every row of the comparison, in its order."""

ALL = "all together"
"""The name of the row in which all switches are on the code's side, against the paper's base."""

ALL_AGAINST_OURS = "all together, open points ours"
"""The same against a base that has our choices where the paper leaves something open: `paper_side` of each switch."""


def all_together(switches: Iterable[Switch], data: Dataset) -> Side:
    """All switches of a data set on the code's side; of several ways to provision the last one, which contains the
    others."""
    side = Side()
    for switch in switches:
        if data.name in switch.datasets:
            changed = switch.sides(data)[1]
            side = Side(tuple((dict(side.variant) | dict(changed.variant)).items()), TOPOLOGIES,
                        tuple((dict(side.settings) | dict(changed.settings)).items()),
                        max(side.failures, changed.failures), side.half_of_the_tasks or changed.half_of_the_tasks)
    return side


def paper_together(switches: Iterable[Switch], data: Dataset) -> Side:
    """The paper's sides of all switches, but for provisioning, which is the paper's; where two set the same, the
    first one counts."""
    side = Side()
    for switch in switches:
        if data.name in switch.datasets:
            paper = switch.sides(data)[0]
            variant = dict(paper.variant) | dict(side.variant)
            side = replace(side, variant=tuple((k, v) for k, v in variant.items() if k != "provisioning"),
                           settings=tuple((dict(paper.settings) | dict(side.settings)).items()))
    return side


def measure_switches(datasets: Sequence[str] = tuple(DATASETS), *, seeds: Sequence[int] = tuple(range(5)),
                     n_train: int = 150, n_test: int = 200, starts: int = 4, parameters: Any = None, workers: int = 1,
                     switches: Sequence[Switch] = SWITCHES, resamples: int = 2000) -> pd.DataFrame:
    """Turn each switch alone and all together, and measure what it does to BAMAS as published.

    Args:
        datasets: names of the paper's data sets; our own tasks of their kind are used.
        seeds: of the simulated LLM.
        n_train, n_test: tasks of each split.
        starts: initial weights of the policy for each seed; results are averaged over them.
        parameters: of the simulated LLM; None: the fitted ones, or the assumed ones as long as nothing was fitted.
        workers: processes.
        switches: those to turn.
        resamples: of the bootstrap over tasks and seeds.

    Returns:
        One row a switch, data set and metric: the `effect` of the code's side against the paper's with its 95% interval
        (low, high), and the values of both (base, with_switch). METRICS, and `teams_differ`: the percentage of
        budgets under which a switch of provisioning changes a team, for the paper's pool and (dataset "pool of
        fourteen") for a larger one.

    Raises:
        ValueError: an argument that makes no sense; the message names it.
    """
    n_train, n_test, starts = whole(n_train, "n_train", 2), whole(n_test, "n_test", 1), whole(starts, "starts", 1)
    resamples, workers = whole(resamples, "resamples", 1), whole(workers, "workers", 1)
    seeds, switches = _listed(seeds, "seeds"), _listed(switches, "switches")
    if wrong := [switch for switch in switches if not isinstance(switch, Switch)]:
        raise ValueError(f"switches holds {shown(wrong[0])}: expected Switch objects, such as those of SWITCHES")
    names = [switch.name for switch in switches]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"switches holds {shown(twice[0])} twice: its rows could not be told apart")
    splits = {data: _splits(data, n_train, n_test) for data in chosen_datasets(datasets)}
    variant = with_parameters(replace(BASE, parameters=default_parameters() if parameters is None else parameters))
    rows: list[dict[str, Any]] = []
    for data, (train, test) in splits.items():
        name = data.name
        pairs = {switch.name: switch.sides(data) for switch in switches if name in switch.datasets}
        together = all_together(switches, data)
        pairs |= {ALL: (Side(), together), ALL_AGAINST_OURS: (paper_together(switches, data), together)}
        sides = list(dict.fromkeys(side for pair in pairs.values() for side in pair))
        values = _measure(data, sides, variant, seeds, train, test, n_train, starts, workers)
        for switch_name, (paper, code) in pairs.items():
            for metric in METRICS:
                before, after = values[paper][metric], values[code][metric]
                low, high = bootstrap_interval(after - before, resamples=resamples)
                rows.append({"switch": switch_name, "dataset": name, "metric": metric,
                             "effect": (after - before).mean(), "low": low, "high": high, "base": before.mean(),
                             "with_switch": after.mean()})
        every = np.linspace(data.budgets[0], data.budgets[-1], N_BUDGETS)
        rows += teams_differ(switches, paper_pool(data.domain), data, every)
    rows += _larger_pool(switches)
    return pd.DataFrame(rows)


def _listed(values: Any, what: str) -> tuple[Any, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ValueError(f"{what} = {shown(values)}: expected a list")
    return tuple(values)


def _splits(data: Dataset, n_train: int, n_test: int) -> tuple[list[Task], list[Task]]:
    """The whole training split, and the test tasks."""
    train, test = load_tasks(data.own_tasks, "train"), load_tasks(data.own_tasks, "test", limit=n_test)
    for name, wanted, there in (("n_train", n_train, len(train)), ("n_test", n_test, len(test))):
        if wanted > there:
            raise ValueError(f"{name} = {wanted}: {data.own_tasks} has {there} tasks of that split")
    return train, test


def teams_differ(switches: Iterable[Switch], pool: Pool, data: Dataset, budgets: Iterable[float],
                 label: str | None = None) -> list[dict[str, Any]]:
    """For each switch of provisioning: the percentage of `budgets` (u$) under which some topology's team differs."""
    rows, budgets = [], [float(b) for b in budgets]
    for switch in switches:
        if switch.planned is None or data.name not in switch.datasets:
            continue
        one, other = (way.replace("<domain>", data.domain) for way in switch.planned)
        share = 100 * float(np.mean([not _same_teams(one, other, pool, b) for b in budgets]))
        rows.append({"switch": switch.name, "dataset": label or data.name, "metric": "teams_differ", "effect": share,
                     "low": share, "high": share, "base": 0.0, "with_switch": share})
    return rows


def _larger_pool(switches: Iterable[Switch]) -> list[dict[str, Any]]:
    """`teams_differ` for the pool of fourteen LLMs; hand-set factors exist for the paper's two LLMs only."""
    pool = load_pool("fourteen")
    ones = [replace(switch, planned=tuple("code" if "<domain>" in way else way for way in switch.planned))
            for switch in switches if switch.planned]
    most = 2 * max(m.call_cost(500, m.max_tokens) for m in pool.llms)
    return teams_differ(ones, pool, DATASETS["GSM8K"], np.linspace(500, float(most), N_BUDGETS).round(),
                        "pool of fourteen")


def _same_teams(one: str, other: str, pool: Pool, budget: float) -> bool:
    """Whether every topology is played by the same agents."""
    teams = teams_by(one, pool, budget), teams_by(other, pool, budget)
    return all(sorted(_agents(teams[0][t], t) or ()) == sorted(_agents(teams[1][t], t) or ()) for t in TOPOLOGIES)


# ------------------------------------------------------------------------------------------------ one data set

@dataclass(frozen=True)
class _Job:
    """One policy to train and to ask: everything that decides its choices."""

    settings: Settings
    embeddings: np.ndarray
    table: Any
    asked: np.ndarray
    budgets: tuple[float, ...]


def _measure(data: Dataset, sides: Sequence[Side], variant: Variant, seeds: tuple[int, ...], split: list[Task],
             test: list[Task], n_train: int, starts: int, workers: int) -> dict[Side, dict[str, np.ndarray]]:
    """By side and metric: the mean over budgets and starts, (n_seeds, n_test)."""
    first = split[:n_train]
    shuffled = list(split)
    random.Random(CODE_SHUFFLE_SEED).shuffle(shuffled)
    half = shuffled[:n_train // 2] if any(side.half_of_the_tasks for side in sides) else []
    tasks = list(dict.fromkeys([*first, *half, *test]))
    place = {task: i for i, task in enumerate(tasks)}
    of_train = {False: [place[t] for t in first], True: [place[t] for t in half]}
    of_test = [place[t] for t in test]

    played = _play_sides(data, sides, variant, seeds, tasks, workers)
    vectors = encode([task.question for task in tasks])
    jobs = []
    for side in sides:
        train = _part(played[side], of_train[side.half_of_the_tasks])
        settings = replace(PAPER_SETTINGS[data.domain], **dict(side.settings))
        for s, seed in enumerate(seeds):
            table = train.table(settings.rewards, seeds=[seed])
            embeddings = np.repeat(vectors[of_train[side.half_of_the_tasks]], len(data.budgets), axis=0)
            for start in range(starts):
                jobs.append(_Job(replace(settings, seed=settings.seed + s * starts + start), embeddings, table,
                                 vectors[of_test], tuple(map(float, data.budgets))))
    chosen = np.concatenate(list(spread(_choices, jobs, workers=workers, tasks_per_part=2 * starts)))
    chosen = chosen.reshape(len(sides), len(seeds), starts, len(test), len(data.budgets))
    return {side: _metrics(_part(played[side], of_test), chosen[k]) for k, side in enumerate(sides)}


def _play_sides(data: Dataset, sides: Sequence[Side], variant: Variant, seeds: tuple[int, ...], tasks: list[Task],
                workers: int) -> dict[Side, Outcomes]:
    """The outcomes of each side in all four topologies; episodes that several sides share are played once."""
    pool = paper_pool(data.domain)
    tasks, budgets, _, seeds = checked_factors(tasks, data.budgets, TOPOLOGIES, seeds, pool)
    plain = replace(variant, parameters="")  # parameters are the same for all, and a dict cannot be looked up
    plays: dict[Any, tuple[Variant, str]] = {}
    keys: dict[Side, list[Any]] = {}
    for side in sides:
        changed = replace(plain, **dict(side.variant))
        ways = [(changed if name in side.topologies else plain, name) for name in TOPOLOGIES]
        keys[side] = [_episodes_key(way, name, pool, budgets) for way, name in ways]
        for key, way in zip(keys[side], ways, strict=True):
            plays.setdefault(key, way)
    parts = spread(_play_all, tasks, budgets, pool, tuple(plays.values()), variant.parameters, seeds, workers=workers)
    outcomes = {key: joined(of_play) for key, of_play in zip(plays, zip(*parts, strict=True), strict=True)}
    result = {}
    for side in sides:
        columns = [outcomes[key] for key in keys[side]]
        arrays = {name: np.concatenate([getattr(column, name) for column in columns], axis=-1) for name in _ARRAYS}
        result[side] = _with_failures(replace(columns[0], topologies=TOPOLOGIES, **arrays), side.failures)
    return result


def _episodes_key(variant: Variant, topology: str, pool: Pool, budgets: Sequence[float]) -> tuple[Any, ...]:
    """What decides the episodes of one topology: who plays what, and the options that it reads."""
    cast = tuple(_agents(teams_by(variant.provisioning, pool, b)[topology], topology, variant.casting)
                 for b in budgets)
    options = {"star": (variant.star_prompts,), "feedback": (variant.rounds, variant.critic_heard),
               "planner_driven": (variant.replans,)}.get(topology, ())
    return topology, variant.enforcement, cast, options


def _agents(team: Team | InfeasibleBudgetError, topology: str, casting: str = "paper") -> Any:
    """Who plays what, in the order in which they run; None where nobody can."""
    if isinstance(team, InfeasibleBudgetError):
        return None
    try:
        return tuple((agent.llm.name, agent.role) for agent in cast_roles(team, topology, casting))
    except CastingError:
        return None


def _play_all(tasks: Sequence[Task], budgets: tuple[float, ...], pool: Pool, plays: Sequence[tuple[Variant, str]],
              parameters: Any, seeds: tuple[int, ...]) -> list[Outcomes]:
    """All plays of some tasks in one process, so that each answer is graded once."""
    return [play(tasks, budgets, pool, replace(variant, parameters=parameters), seeds, (topology,))
            for variant, topology in plays]


_ARRAYS = ("correct", "cost", "over", "status")


def _part(outcomes: Outcomes, tasks: Sequence[int]) -> Outcomes:
    """The outcomes of some tasks, by index."""
    return replace(outcomes, tasks=tuple(outcomes.tasks[i] for i in tasks),
                   **{name: getattr(outcomes, name)[:, tasks] for name in _ARRAYS})


def _with_failures(outcomes: Outcomes, share: float) -> Outcomes:
    """A share of the runs, drawn, as the public code logs a failed call: a wrong answer of cost 0."""
    failed = np.random.default_rng(0).random(outcomes.correct.shape) < share
    return replace(outcomes, correct=np.where(failed, 0, outcomes.correct).astype(outcomes.correct.dtype),
                   cost=np.where(failed, 0.0, outcomes.cost), over=outcomes.over & ~failed)


def _choices(jobs: Sequence[_Job]) -> np.ndarray:
    """Train each policy and ask it: the greedy choice (n_jobs, n_test, n_budgets), as numbers of topologies."""
    import torch

    from bamas_lite.network import Examples, PolicyNetwork, reinforce
    threads, chosen = torch.get_num_threads(), []
    torch.set_num_threads(1)  # these are small: more threads only wait for each other
    try:
        for job in jobs:
            scale = max(job.budgets)
            generator = torch.Generator().manual_seed(job.settings.seed)
            network = PolicyNetwork(job.settings.features, generator)
            reinforce(network, Examples.from_table(job.table, job.embeddings, scale), job.settings, generator)
            n, k = len(job.asked), len(job.budgets)
            with torch.no_grad():
                logits = network(torch.tensor(np.repeat(job.asked, k, axis=0), dtype=torch.float64),
                                 torch.tensor(np.tile(job.budgets, n) / scale, dtype=torch.float64))
            chosen.append(logits.argmax(-1).numpy().reshape(n, k))
    finally:
        torch.set_num_threads(threads)
    return np.stack(chosen)


def _metrics(test: Outcomes, chosen: np.ndarray) -> dict[str, np.ndarray]:
    """METRICS of the choices (n_seeds, starts, n_test, n_budgets), each (n_seeds, n_test)."""
    def of_choice(values: np.ndarray) -> np.ndarray:
        taken = np.take_along_axis(np.broadcast_to(values[:, None], (*chosen.shape, len(TOPOLOGIES))),
                                   chosen[..., None], axis=-1)[..., 0]
        return taken.mean(axis=(1, 3))

    values = {"accuracy": 100 * of_choice(test.correct.astype(float)), "cost": of_choice(test.cost),
              "over_budget": 1000 * of_choice(test.over.astype(float))}
    return values | {f"share_{name}": 100 * (chosen == t).mean(axis=(1, 3)) for t, name in enumerate(TOPOLOGIES)}


@command
def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what each difference between BAMAS and its public code does, and write switches.csv."""
    parser = argparse.ArgumentParser(prog="python -m bamas_lite.reproduction.switches", description=main.__doc__)
    parser.add_argument("--workers", type=int, default=2, help="processes (default %(default)s)")
    parser.add_argument("--out", default=RESULTS, help="folder of switches.csv (default data/reproduction)")
    options = parser.parse_args(arguments)
    out, workers = out_folder(options.out, "--out"), whole(options.workers, "--workers", 1)
    table = measure_switches(workers=workers)
    table.round(4).to_csv(out / "switches.csv", index=False)
    print(f"switches.csv: {table.switch.nunique()} switches, {len(table)} rows")
    return 0


if __name__ == "__main__":
    sys.exit(main())
