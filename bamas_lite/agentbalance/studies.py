"""The experiments of notebook 09: who is better at matched budgets, and why.

AgentBalance's benchmarks are not known to us: tasks, LLMs, budgets, baselines as run here and worlds are our choice,
and what is compared is our reconstruction of it.

Each seed is a study of its own: a simulated world, profiles measured in it, designers trained in it, held-out tasks.
Everything is simulated. `python -m bamas_lite.agentbalance` runs them and writes `data/agentbalance/`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pandas as pd

from bamas_lite.agentbalance import systems
from bamas_lite.agentbalance.budgets import Budgets
from bamas_lite.agentbalance.candidate_pools import construct_pools
from bamas_lite.agentbalance.designer import Designer
from bamas_lite.agentbalance.difficulty import Difficulty
from bamas_lite.agentbalance.profiles import Profile, profile_llms_sync
from bamas_lite.agentbalance.training import (
    Settings,
    TrainingResult,
    fit_difficulty,
    not_trained,
    train_designer,
)
from bamas_lite.agentbalance.variants import (
    ABLATIONS,
    BAMAS_EDGES,
    NOT_TRAINED,
    OURS,
    PLUGGED,
    STYLES,
    TOPOLOGY_FIRST,
    Variant,
)
from bamas_lite.policy import OURS as POLICY_SETTINGS
from bamas_lite.policy import train_policy
from bamas_lite.pool import Pool, load_pool
from bamas_lite.provisioning import TOKEN_LIMITS
from bamas_lite.simulation import SimulatedLLM
from bamas_lite.simulation_parameters import load_parameters
from bamas_lite.tasks import Task, load_tasks
from bamas_lite.topologies import TOPOLOGIES

SEEDS = (0, 1, 2, 3, 4)
COST_BUDGETS = (150, 300, 600, 1200, 2400, 4800)
LATENCY_BUDGETS = (1, 1.5, 2.5, 4, 6.5, 10, 60)
"""u$ and seconds for one task. The last of each hardly binds: curves over one budget hold the other there."""

TRAIN = {"word_problems": 170, "algebra_calculus": 160, "python_functions": 170}
TEST_TASKS = 80
"""Tasks: the first of the training split by task set, 500 in all, and the first of each test split."""

VARIANTS = (OURS, *ABLATIONS, TOPOLOGY_FIRST, *STYLES, BAMAS_EDGES, *PLUGGED)

_ALIKE = {"task_share": 0.6, "llm_share": 0.3, "wrong_shared": 0.9}
_TALK_TABLES = {"improve": {"keep": {"view_right": 1.0, "view_wrong": 0.98}, "repair": {"view_right": 0.8,
                                                                                        "view_wrong": 0.15}}}
WORLDS: dict[str, dict[str, Any]] = {
    "assumed": {},
    "errors alike": _ALIKE,
    "talk helps": _ALIKE | _TALK_TABLES,
}
"""Changes to the assumed parameters, the same in all domains: within their stated ranges, most of them at or near an
end. "errors alike": LLMs fail on the same tasks with the same wrong answers, so votes help less. "talk helps": besides,
an LLM that is shown an answer seldom spoils a right one and often repairs a wrong one."""


@dataclass(frozen=True)
class World:
    """One seed's simulated world, its tasks, and what was measured in it."""

    seed: int
    backend: SimulatedLLM
    train: list[Task]
    test: list[Task]
    profiles: list[Profile]
    difficulty: Difficulty


def llms() -> Pool:
    """The fourteen LLMs. Domains limit a completion (TOKEN_LIMITS), the pool must not limit it further."""
    return load_pool("fourteen").with_max_tokens(max(limits["executor"] for limits in TOKEN_LIMITS.values()))


def world(seed: int, name: str = "assumed", train: Sequence[Task] | None = None, test: Sequence[Task] | None = None
          ) -> World:
    """A simulated world with its profiles: every LLM is asked every training task once."""
    train = list(train) if train is not None else [t for s, n in TRAIN.items() for t in load_tasks(s, "train", limit=n)]
    test = list(test) if test is not None else [t for s in TRAIN for t in load_tasks(s, "test", limit=TEST_TASKS)]
    backend = SimulatedLLM(seed, parameters(name))
    profiles = profile_llms_sync(llms(), train, backend)
    return World(seed, backend, train, test, profiles, fit_difficulty(train, profiles, seed))


def parameters(name: str) -> dict[str, Any]:
    """The simulator's parameters in one of WORLDS."""
    values = load_parameters("assumed").model_dump()
    for parameter, value in WORLDS[name].items():
        values[parameter]["value"] = dict.fromkeys(values[parameter]["value"], value)
    return values if name == "assumed" else values | {"name": name}


def train(w: World, variant: Variant = OURS, profiles: Sequence[Profile] | None = None, **changes: Any
          ) -> TrainingResult:
    """Train a variant in a world."""
    return train_designer(w.train, w.profiles if profiles is None else profiles, w.backend, variant=variant,
                          settings=replace(Settings(seed=w.seed), **changes), difficulty=w.difficulty)


def cells() -> list[Budgets]:
    """The pairs of budgets of both curves."""
    return [Budgets(c, LATENCY_BUDGETS[-1]) for c in COST_BUDGETS] + [
        Budgets(COST_BUDGETS[-1], s) for s in LATENCY_BUDGETS[:-1]]


def slice_of(outcomes: pd.DataFrame, by: Literal["cost_budget", "latency_budget"]) -> pd.DataFrame:
    """The rows of one curve: the other budget is the largest."""
    other, largest = {"cost_budget": ("latency_budget", LATENCY_BUDGETS[-1]),
                      "latency_budget": ("cost_budget", COST_BUDGETS[-1])}[by]
    return outcomes[outcomes[other] == largest]


def surface_cells() -> list[Budgets]:
    """All pairs of budgets."""
    return [Budgets(c, s) for s in LATENCY_BUDGETS for c in COST_BUDGETS]


def held_out(profiles: Sequence[Profile]) -> tuple[str, ...]:
    """The LLMs of the unseen-LLM experiment: the medoids of the pools, so that nobody picks them."""
    return tuple(pool.medoid for pool in construct_pools(profiles))


def bamas(w: World, budget_pairs: Sequence[Budgets]) -> list[systems.Row]:
    """BAMAS's team in each topology, and (system "BAMAS") what its learned policy chooses.

    The policy is trained as in the other notebooks, on the log of all topologies on the training tasks; one for each
    latency budget, which it cannot read.
    """
    rows = systems.topologies(llms(), w.test, budget_pairs, w.backend)
    level = {task.task_id: task.level for task in w.train}
    for seconds in sorted({budgets.latency_s for budgets in budget_pairs}):
        asked = [budgets for budgets in budget_pairs if budgets.latency_s == seconds]
        log = pd.DataFrame(systems.topologies(llms(), w.train, asked, w.backend)).rename(
            columns={"cost_budget": "budget", "method": "topology"})
        log = log.assign(level=log.task_id.map(level), over_budget=False, behaviour_prob=1 / len(TOPOLOGIES),
                         backend=w.backend.name)
        if not (log.status == "ok").any():
            policy = None
        else:
            policy = train_policy(log, settings=replace(POLICY_SETTINGS, seed=w.seed), tasks=w.train).policy
        known = {(row["method"], row["cost_budget"], row["task_id"]): row for row in rows
                 if row["latency_budget"] == seconds}
        for budgets in asked:
            topology = ([TOPOLOGIES[0]] * len(w.test) if policy is None else
                        [TOPOLOGIES[t] for t in policy.probabilities(
                            [task.question for task in w.test], [budgets.cost] * len(w.test)).argmax(1)])
            rows += [known[name, budgets.cost, task.task_id] | {"method": "BAMAS"}
                     for name, task in zip(topology, w.test, strict=True)]
    return rows


def run_seed(seed: int, variants: Iterable[Variant] = VARIANTS) -> dict[str, Any]:
    """Everything of one seed: "outcomes", "surface", "history", "profiles", "worlds" as tables, and "designers"."""
    w, pairs = world(seed), cells()
    rows, histories, designers = [], [], {}
    for variant in variants:
        trained = train(w, variant)
        histories.append(trained.history.assign(method=variant.name, seed=seed))
        designers[variant.name] = trained.designer
        rows += systems.designed(variant.name, trained.designer, w.test, pairs, w.backend)
    ours = designers[OURS.name]
    rows += _not_trained(w, pairs)
    rows += systems.plugged_in(ours, w.test, pairs, w.backend)
    rows += systems.best_single(w.profiles, w.train, w.test, pairs, w.backend)
    rows += _unseen(w, pairs)
    everywhere = surface_cells()
    both = bamas(w, everywhere) + systems.designed(OURS.name, ours, w.test, everywhere, w.backend)
    named = {(b.cost, b.latency_s) for b in pairs}
    rows += [row for row in both if row["method"] != OURS.name and (row["cost_budget"], row["latency_budget"]) in named]
    surface = systems.as_frame(row for row in both if row["method"] in (OURS.name, "BAMAS"))
    surface = surface.assign(infeasible=surface.status == "infeasible").groupby(
        ["method", "seed", "cost_budget", "latency_budget"], observed=True)[
        ["correct", "cost", "latency_s", "infeasible"]].mean().reset_index().rename(columns={"correct": "accuracy"})
    profiles = pd.DataFrame([{"seed": seed, "llm": p.llm.name, "domain": d, "quality": p.quality[d], "cost": p.cost(d),
                              "latency_s": p.latency_s(d)} for p in w.profiles for d in p.domains])
    worlds, talk = _worlds(seed, ours, w)
    return {"outcomes": systems.as_frame(rows), "surface": surface, "history": pd.concat(histories),
            "profiles": profiles, "worlds": worlds, "designer": ours, "designer_talk": talk}


def _not_trained(w: World, pairs: Sequence[Budgets]) -> list[systems.Row]:
    """The designers from which training starts."""
    return [row for variant in NOT_TRAINED for row in systems.designed(
        variant.name, not_trained(w.profiles, w.difficulty, variant=variant, seed=w.seed), w.test, pairs, w.backend)]


def _unseen(w: World, pairs: Sequence[Budgets]) -> list[systems.Row]:
    """Three LLMs held out of the training, then added by their profiles."""
    away = held_out(w.profiles)
    known = [p for p in w.profiles if p.llm.name not in away]
    designer = train(w, OURS, known).designer
    return (systems.designed("11 LLMs", designer, w.test, pairs, w.backend)
            + systems.designed("11 + 3 unseen", designer.with_profiles(w.profiles), w.test, pairs, w.backend))


def _worlds(seed: int, ours: Designer, assumed: World) -> tuple[pd.DataFrame, Designer]:
    """AgentBalance and the best single LLM over cost budgets in each of WORLDS; and the designer of the last."""
    pairs, tables, designer = [b for b in cells() if b.latency_s == LATENCY_BUDGETS[-1]], [], ours
    for name in WORLDS:
        w = assumed
        if name != "assumed":
            w = world(seed, name, assumed.train, assumed.test)
            designer = train(w).designer
        rows = systems.designed(OURS.name, designer, w.test, pairs, w.backend)
        rows += systems.best_single(w.profiles, w.train, w.test, pairs, w.backend)
        tables.append(pd.DataFrame(rows).assign(world=name).groupby(["world", "seed", "method", "cost_budget"])[
            ["correct", "cost", "n_agents", "n_edges"]].mean().reset_index().rename(columns={"correct": "accuracy"}))
    return pd.concat(tables), designer


def rounded(table: pd.DataFrame, digits: int = 4) -> pd.DataFrame:
    """Numbers as they are committed, so that another processor's last bits do not show."""
    return table.round({name: digits for name in table.columns if pd.api.types.is_float_dtype(table[name])})
