"""What provisioning assumes, tested: the ranking, the planned tokens, the objective, the solver, the prices.

Each study returns a tidy table; differences are paired (same tasks, same seeds), intervals come from the bootstrap over
tasks and seeds. All outcomes are simulated. The topology is, for each team and budget, the one with the best mean
reward on the training tasks, so that a study of teams does not depend on how a policy was trained.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd

from bamas_lite.casting import TOPOLOGIES
from bamas_lite.experiments import bootstrap_interval
from bamas_lite.inputs import exact, shown, whole
from bamas_lite.pool import Pool, load_pool
from bamas_lite.provisioning import InfeasibleBudgetError, SolverError, Team, budget_frontier, provision
from bamas_lite.reproduction.bench import Bench, Play, as_in
from bamas_lite.reproduction.checks import amounts, listed, number
from bamas_lite.reproduction.outcomes import Variant
from bamas_lite.rewards import OUR_REWARDS, reward

NOISE_SD = (10.0, 20.0, 40.0, 80.0)
"""Standard deviations of the error of an arena rating; the committed ratings state 95% intervals of +-3 to +-8."""
BANDS = (1440, 1400, 1370, 1340, 1300)
"""Lower ends of the ratings of tiers 1 to 5, as in data/pools/fourteen.yaml."""
T_IN = 500
"""Prompt tokens of a call that the paper plans with."""

COLUMNS = ["study", "variant", "pool", "dataset", "budget", "metric", "base", "value", "difference", "low", "high",
           "note"]
"""Of every table of assumptions; accuracy, over_budget, stopped and shares in percent, cost in u$ a task."""


@dataclass(frozen=True)
class Arm:
    """The teams of all budgets, each played in the topology that did best on the training tasks.

    Arrays are (n_seeds, n_tasks, n_budgets). Where a budget has no team there is no answer and no cost.
    """

    teams: tuple[Team | None, ...]
    topologies: tuple[str, ...]
    correct: np.ndarray
    cost: np.ndarray
    over: np.ndarray
    stopped: np.ndarray


def teams_of(bench: Bench, pool: Pool | None = None, **options: Any) -> tuple[Team | None, ...]:
    """The team of each of the bench's budgets, None where there is none; `pool` None is the bench's."""
    return tuple(budget_frontier(bench.pool if pool is None else pool, bench.budgets, **options))


def all_teams(bench: Bench) -> tuple[Team, ...]:
    """The team of each of the bench's budgets, for studies that need one under every budget.

    Raises:
        ValueError: a budget that pays for no team.
    """
    teams = teams_of(bench)
    poor = [budget for budget, team in zip(bench.budgets, teams, strict=True) if team is None]
    if poor:
        raise ValueError(f"budgets = {shown(poor)}: no team below {least_budget(bench.pool)!r} u$")
    return teams


def least_budget(pool: Pool) -> float:
    """The least budget that pays for a team, u$."""
    try:
        provision(pool, 0)
    except InfeasibleBudgetError as error:
        return error.least_budget


def plays_of(bench: Bench, teams: Sequence[Team | None], variant: Variant) -> list[Play]:
    """A play for each budget that has a team."""
    return [Play(b, team, variant) for b, team in zip(bench.budgets, teams, strict=True) if team is not None]


def _arm(bench: Bench, teams: Sequence[Team | None], variant: Variant | None = None) -> Arm:
    variant = bench.variant() if variant is None else variant
    shape = len(bench.seeds["test"]), len(bench.tasks["test"]), len(bench.budgets)
    arrays = {name: np.zeros(shape) for name in ("correct", "cost", "over", "stopped")}
    bench.run(plays_of(bench, teams, variant))
    topologies = []
    for b, (budget, team) in enumerate(zip(bench.budgets, teams, strict=True)):
        if team is None:
            topologies.append("")
            continue
        play = Play(budget, team, variant)
        trained, tested = bench.played(play, "train"), bench.played(play)
        R = reward(trained.correct, trained.cost, budget, OUR_REWARDS)
        best = int(R.mean(axis=(0, 1)).argmax())
        topologies.append(TOPOLOGIES[best])
        for name, values in arrays.items():
            values[:, :, b] = getattr(tested, name)[:, :, best]
    return Arm(tuple(teams), tuple(topologies), **arrays)


METRICS = {"accuracy": ("correct", 100.0), "cost": ("cost", 1.0), "over_budget": ("over", 100.0),
           "stopped": ("stopped", 100.0)}
"""Metric -> array of an arm and factor: percent, u$ a task, percent, percent."""


def _compare(bench: Bench, arm: Arm, base: Arm, **labels: str) -> list[dict[str, Any]]:
    """An arm minus another: a row for each metric over all budgets, and for accuracy and cost at each budget."""
    rows = []
    whose = [f"{team}, {topology}" if team else "no team" for team, topology in
             zip(arm.teams, arm.topologies, strict=True)]
    missing = [f"{budget:g}" for budget, team in zip(bench.budgets, arm.teams, strict=True) if team is None]
    overall = f"no team, so no answer, at {', '.join(missing)} u$" if missing else ""
    differ = [_agents(a) != _agents(b) for a, b in zip(arm.teams, base.teams, strict=True)]
    for b, budget in [(None, "all"), *((b, f"{budget:g}") for b, budget in enumerate(bench.budgets))]:
        for metric, (name, factor) in METRICS.items():
            if b is not None and metric not in ("accuracy", "cost"):
                continue
            y, z = (factor * (getattr(a, name).mean(axis=2) if b is None else getattr(a, name)[:, :, b])
                    for a in (arm, base))
            low, high = bootstrap_interval(y - z)
            rows.append(labels | {"dataset": bench.dataset.name, "budget": budget, "metric": metric, "base": z.mean(),
                                  "value": y.mean(), "difference": (y - z).mean(), "low": low, "high": high,
                                  "note": overall if b is None else whose[b]})
    return rows + [_share(bench.dataset.name, labels, "teams_differ", 100 * np.mean(differ),
                          f"of {len(differ)} budgets")]


def _agents(team: Team | None) -> list[str]:
    """Who is in a team, whatever it was told about them."""
    return sorted(slot.name for slot in team.slots) if team else []


def _share(dataset: str, labels: Mapping[str, str], metric: str, value: float, note: str) -> dict[str, Any]:
    """A row that counts: no outcomes, no interval."""
    return dict(labels) | {"dataset": dataset, "budget": "all", "metric": metric, "base": np.nan, "value": value,
                           "difference": np.nan, "low": np.nan, "high": np.nan, "note": note}


def swapped_tiers(pool: Pool) -> Pool:
    """A pool of two tiers with the weaker LLM taken for the stronger: the worst ranking there is.

    Raises:
        ValueError: another number of tiers.
    """
    if len(pool.tiers) != 2:
        raise ValueError(f"pool {pool.name!r} has {len(pool.tiers)} tiers: expected 2, to be swapped")
    return Pool(**{**pool.model_dump(), "llms": [{**m.model_dump(), "tier": 3 - m.tier} for m in pool.llms]})


def noisy_tiers(pool: Pool, sd: float, rng: np.random.Generator) -> Pool:
    """A rated pool whose tiers (`BANDS`) were read off ratings with a normal error; the ratings themselves are kept."""
    seen = [m.rating + sd * rng.standard_normal() for m in pool.llms]
    tiers = [1 + sum(rating < band for band in BANDS) for rating in seen]
    ranks = sorted(set(tiers))
    return Pool(**{**pool.model_dump(), "llms": [{**m.model_dump(), "tier": ranks.index(t) + 1}
                                                 for m, t in zip(pool.llms, tiers, strict=True)]})


def _fourteen(bench: Bench) -> Pool:
    return load_pool("fourteen").with_max_tokens(bench.pool.llms[0].max_tokens)


def wrong_ranking(bench: Bench, *, sds: Sequence[float] = NOISE_SD, draws: int = 3, seed: int = 0) -> pd.DataFrame:
    """The ranking is wrong: the two tiers swapped, and arena ratings with noise on the pool of fourteen.

    Swapped tiers also swap the roles (the weaker LLM criticizes and plans). With noise the hired agents play the
    parts that their true tiers give them, so that only the hiring is wrong. The noise's rows are means over `draws`.

    Raises:
        ValueError: sds that are no list of different numbers of at least 0, no draws, or a seed below 0.
    """
    sds, draws, seed = amounts(sds, "sds"), whole(draws, "draws", 1), whole(seed, "seed")
    rows = _compare(bench, _arm(bench, teams_of(bench, swapped_tiers(bench.pool))),
                    _arm(bench, teams_of(bench)), study="wrong ranking", variant="tiers swapped",
                    pool="paper")
    pool = _fourteen(bench)
    right = teams_of(bench, pool)
    hired = {}
    for sd in sds:
        rng = np.random.default_rng([seed, round(1000 * sd)])
        for draw in range(draws):
            found = teams_of(bench, noisy_tiers(pool, sd, rng))
            hired[sd, draw] = tuple(None if team is None else as_in(team, pool) for team in found)
    bench.run(p for teams in [right, *hired.values()] for p in plays_of(bench, teams, bench.variant()))
    base = _arm(bench, right)
    for sd in sds:
        arms = [_arm(bench, hired[sd, draw]) for draw in range(draws)]
        labels = {"study": "wrong ranking", "variant": f"ratings with noise, sd {sd:g}", "pool": "fourteen"}
        for metric, (name, factor) in METRICS.items():
            y = factor * np.mean([getattr(arm, name).mean(axis=2) for arm in arms], axis=0)
            z = factor * getattr(base, name).mean(axis=2)
            low, high = bootstrap_interval(y - z)
            rows.append(labels | {"dataset": bench.dataset.name, "budget": "all", "metric": metric, "base": z.mean(),
                                  "value": y.mean(), "difference": (y - z).mean(), "low": low, "high": high,
                                  "note": f"mean of {draws} draws; interval over tasks and seeds"})
        differ = [_agents(a) != _agents(b) for arm in arms for a, b in zip(arm.teams, right, strict=True)]
        rows.append(_share(bench.dataset.name, labels, "teams_differ", 100 * np.mean(differ),
                           f"of {len(differ)} draws and budgets"))
    return tidy(rows)


def planned_against_actual(bench: Bench, *, factors: Sequence[float] = (0.5, 1.5)) -> pd.DataFrame:
    """Provisioning plans with other tokens than calls are allowed: T_in, T_out or both times a factor.

    Under both ways of keeping the budget: "paper" (over_budget counts) and "reserve" (stopped counts).

    Raises:
        ValueError: factors that are no list of different numbers above 0.
    """
    factors = amounts(factors, "factors", positive=True)
    longest = bench.pool.llms[0].max_tokens
    plans = {"T_in": ("t_in",), "T_out": ("t_out",), "T_in and T_out": ("t_in", "t_out")}
    teams = {}
    for factor in factors:
        tokens = {"t_in": exact(factor) * T_IN, "t_out": exact(factor) * longest}
        for name, changed in plans.items():
            teams[f"{name} x {factor:g}"] = teams_of(bench, **{key: tokens[key] for key in changed})
    planned = teams_of(bench)
    variants = {enforcement: bench.variant(enforcement) for enforcement in ("reserve", "paper")}
    bench.run(p for v in variants.values() for t in [planned, *teams.values()] for p in plays_of(bench, t, v))
    rows = []
    for enforcement, variant in variants.items():
        base = _arm(bench, planned, variant)
        for name, found in teams.items():
            rows += _compare(bench, _arm(bench, found, variant), base, study="planned against actual",
                             variant=f"{name}, enforcement {enforcement}", pool="paper")
    return tidy(rows)


def rated(pool: Pool) -> dict[str, float]:
    """Scores for `objective="score_sum"`: the arena ratings that data/pools/fourteen.yaml gives the same LLMs.

    Raises:
        ValueError: an LLM that the file does not have.
    """
    ratings = {m.name: m.rating for m in load_pool("fourteen").llms}
    for m in pool.llms:
        if m.name not in ratings:
            raise ValueError(f"pool {pool.name!r}: {m.name!r} has no rating in data/pools/fourteen.yaml")
    return {m.name: ratings[m.name] for m in pool.llms}


def objectives(bench: Bench, *, n_grid: int = 40) -> pd.DataFrame:
    """The largest sum of ratings (what some summaries describe) against the paper's lexicographic objective.

    On the paper's pool and on the pool of fourteen; teams also on a grid of budgets between the least feasible one and
    the largest of the data set.

    Raises:
        ValueError: n_grid is no whole number of at least 1, or no budget pays for a team.
    """
    n_grid, rows = whole(n_grid, "n_grid", 1), []
    for name, pool in (("paper", bench.pool), ("fourteen", _fourteen(bench))):
        labels = {"study": "objective", "variant": "score-sum", "pool": name}
        by_sum, by_weight = (teams_of(bench, pool, objective=o) for o in (rated(pool), "lexicographic"))
        rows += _compare(bench, _arm(bench, by_sum), _arm(bench, by_weight), **labels)
        grid = _grid(pool, max(bench.budgets), n_grid)
        pairs = list(zip(budget_frontier(pool, grid, objective=rated(pool)), budget_frontier(pool, grid), strict=True))
        rows.append(_share(bench.dataset.name, labels, "teams_differ_on_grid",
                           100 * np.mean([_agents(a) != _agents(b) for a, b in pairs]),
                           f"of {n_grid} budgets from {grid[0]:g} to {grid[-1]:g} u$"))
    return tidy(rows)


def _grid(pool: Pool, most: float, n: int) -> list[float]:
    """Budgets from the least feasible one to `most`, in even steps."""
    least = np.ceil(least_budget(pool))
    if most < least:
        raise ValueError(f"budgets up to {most:g} u$: no team of pool {pool.name!r}; expected at least {least:g} u$")
    return [round(float(b), 1) for b in np.linspace(least, most, n)]


def solvers(*, n_grid: int = 20, most: float = 3000.0,
            names: Sequence[str] = ("HiGHS", "PULP_CBC_CMD")) -> pd.DataFrame:
    """Do solvers find the best team? Each one's answer against the exact search, on both pools.

    `same_team`: percent of budgets where the solver's team is as good as the exact one; otherwise the solver refused,
    or was wrong, and `note` says what it was first.

    Raises:
        ValueError: n_grid is no whole number of at least 1, no team below `most`, or a solver that is not installed.
    """
    n_grid, most, names = whole(n_grid, "n_grid", 1), number(most, "most"), listed(names, "names")
    rows = []
    for pool_name in ("paper", "fourteen"):
        pool = load_pool(pool_name)
        grid = _grid(pool, most, n_grid)
        for solver in names:
            faults = []
            for budget in grid:
                try:
                    provision(pool, budget, method="ilp", solver=solver)
                except SolverError as error:
                    faults.append(f"{budget:g} u$: {error}")
            labels = {"study": "solver", "variant": solver, "pool": pool_name}
            rows.append(_share("any", labels, "same_team", 100 * (1 - len(faults) / len(grid)),
                               f"of {n_grid} budgets from {grid[0]:g} to {grid[-1]:g} u$"
                               + (f"; {faults[0]}" if faults else "")))
    return tidy(rows)


PRICE_CHANGES = {"DeepSeek-V3 at half price": {"DeepSeek-V3": Fraction(1, 2)},
                 "GPT-4.1 nano at twice the price": {"GPT-4.1 nano": Fraction(2)}}


def repriced(pool: Pool, changes: Mapping[str, Any]) -> Pool:
    """The pool with some LLM's prices multiplied by a factor.

    Raises:
        ValueError: an LLM that the pool does not have, or a factor that is no number above 0.
    """
    if not isinstance(changes, Mapping):
        raise ValueError(f"changes = {shown(changes)}: expected LLM -> factor")
    for name, factor in changes.items():
        if name not in [m.name for m in pool.llms]:
            raise ValueError(f"changes: {name!r} is not in the pool; it has {', '.join(m.name for m in pool.llms)}")
        number(factor, f"changes[{name!r}]", positive=True)
    data = pool.model_dump()
    return Pool(**{**data, "llms": [
        {**m, **{key: exact(m[key]) * exact(changes.get(m["name"], 1)) for key in ("price_in", "price_out")}}
        for m in data["llms"]]})


def reprice(bench: Bench, changes: Mapping[str, Mapping[str, Any]] = PRICE_CHANGES) -> pd.DataFrame:
    """Prices change: the teams of the old prices, kept, against teams provisioned anew; both pay the new prices.

    The note of each budget's rows names both teams and the new one's topology. A stale team whose planned cost exceeds
    the budget still runs: the budget's reserve stops it.

    Raises:
        ValueError: changes that are not name -> {LLM: factor}, at least one; or as `repriced`.
    """
    if not isinstance(changes, Mapping) or not changes:
        raise ValueError(f"changes = {shown(changes)}: expected name -> {{LLM: factor}}, at least one")
    rows = []
    stale = teams_of(bench)
    cases = {}
    for name, change in changes.items():
        pool = repriced(bench.pool, change)
        cases[name] = (tuple(None if team is None else as_in(team, pool) for team in stale),
                       teams_of(bench, pool))
    bench.run(p for pair in cases.values() for teams in pair for p in plays_of(bench, teams, bench.variant()))
    for name, (kept, renewed) in cases.items():
        found = _compare(bench, _arm(bench, renewed), _arm(bench, kept), study="prices", variant=name, pool="paper")
        for row in found:
            if row["budget"] != "all":
                before = kept[[f"{b:g}" for b in bench.budgets].index(row["budget"])]
                row["note"] = f"kept {before or 'no team'}; anew {row['note']}"
        rows += found
    return tidy(rows)


def tidy(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Rows as a table with COLUMNS."""
    return pd.DataFrame(list(rows))[COLUMNS]
