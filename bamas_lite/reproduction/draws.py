"""What no published row identifies, drawn: many simulators that fit the baselines alike, and what each makes of BAMAS.

The baselines say little about what a critic finds, what a repair is worth, how good a plan is or how errors correlate.
So each of these parameters is drawn uniformly from the range that `data/simulation/assumed.yaml` states, which was
committed before any run; then the rest is fitted again to the baseline rows, themselves moved by their errors
(`Fit.draw`). Parameters with which the rows cannot be fitted - say, agents that spoil so many right answers that no
skill reaches a published accuracy - are contradicted by the rows and drawn anew: those whose fit to the rows as
published fails, or is rejected by its chi-squared at the level `REJECTED_AT`. BAMAS's agents are those of
Naive-CostAware, the paper's own ablation, and so is their length factor; their shift comes from the spread between
systems.

With every draw the whole pipeline runs on a part of the tasks: training log, policies, test (`systems.measure`), under
a seed of its own for the simulated LLM and for training. A finding that holds in nearly all draws does not rest on an
assumption; `prediction` turns the draws into intervals for the published figures.

The part of the tasks stands for all of them: within each level the tasks are taken at even steps of the noise that all
LLMs share on a task, so that neither an easy nor a hard lot is drawn. Neighbors in that order are pairs; the
differences within pairs tell how much of a result is chance (`accuracy_error`, `cost_error`).

`python -m bamas_lite.reproduction.draws --draws 200 --workers 2`; a run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pydantic import BaseModel
from scipy.special import ndtri
from scipy.stats import chi2

import bamas_lite
from bamas_lite.casting import TOPOLOGIES
from bamas_lite.inputs import command, out_folder, shown, whole
from bamas_lite.paths import BUILD, DATA
from bamas_lite.policy import OURS, PAPER_SETTINGS
from bamas_lite.reproduction.calibration import Fit, baseline_rows, fit, second_fit
from bamas_lite.reproduction.draw_files import claim, read_part, write_part
from bamas_lite.reproduction.findings import HEADLINES
from bamas_lite.reproduction.outcomes import Outcomes, spread
from bamas_lite.reproduction.predicates import FITTED, PUBLISHED
from bamas_lite.reproduction.predicates import OURS as SHOULD_BE
from bamas_lite.reproduction.prediction import coverage, headline_intervals, prediction_intervals
from bamas_lite.reproduction.published import DATASETS, Dataset, load_published
from bamas_lite.reproduction.system_rows import Measured
from bamas_lite.reproduction.systems import better_roles, measure, play_all, with_roles
from bamas_lite.rewards import Rewards
from bamas_lite.simulation import load_parameters, task_noise
from bamas_lite.simulation_parameters import ByDomain, Parameters, numbers
from bamas_lite.tasks import Task, load_tasks

__all__ = ["DRAWN", "Plan", "coverage", "draw_parameters", "one_draw", "prediction_intervals", "representative",
           "run_draws"]

DRAWN = ("critic", "improve", "revise", "step_shift", "plan_validity", "plan_more", "task_share", "llm_share",
         "wrong_shared", "wrong_decay", "stick", "level_slope", "tokens_style", "tokens_spread", "tokens_per_level")
"""Entries of the parameters that are drawn."""
REFERENCE = {"tokens_style": "solve"}
"""What is not drawn of them: completion_tokens means the tokens of this style."""

RANGES, ASSUMED, OWN_ROW = "ranges", "assumed values", "assumed values, one row of BAMAS fitted"
GIVEN: dict[str, tuple[str, dict[str, bool]]] = {
    RANGES: ("draws", {}), ASSUMED: ("draws_fitted", {"vary": False}),
    OWN_ROW: ("draws_one_bamas_row", {"vary": False, "own_rows": True})}
"""What no row identifies - drawn from its range, or left at its assumed value: file of the draws, fields of `Plan`.
With the assumed values the draws show the errors of what was fitted: half as many are enough for an interval."""

FIXED_AS_PUBLISHED = "always {} as published"
"""Fixed topologies under the paper's enforcement; "always ..." alone is under ours."""
REJECTED_AT = 0.05
"""Drawn parameters are given up if the rows would fit so badly, or worse, with less than this chance."""
_MOST_REJECTED = 100
_PLACES_KEPT = 4
"""Decimals of recorded numbers."""


@dataclass(frozen=True)
class Plan:
    """All that decides the draws beside the code.

    Attributes:
        seed: of all draws; draw k does not depend on how many there are.
        n_train, n_test: about how many tasks of each data set (`representative`).
        datasets: names of `published.DATASETS`, each once.
        base: parameters whose ranges are drawn from, by name or file.
        published: another file of published rows; only those of the baselines are used (see `own_rows`).
        vary: whether what no row identifies is drawn; False leaves it at the values of `base`, so that the draws show
            the errors of what was fitted.
        own_rows: whether BAMAS's row at the lowest budget of each data set is fitted too (`second_fit`).

    Raises:
        ValueError: a number that is none, an unknown data set or one given twice, or a base that cannot be used.
    """

    seed: int = 2025
    n_train: int = 96
    n_test: int = 144
    datasets: tuple[str, ...] = tuple(DATASETS)
    base: str = "assumed"
    published: str | None = None
    vary: bool = True
    own_rows: bool = False

    def __post_init__(self) -> None:
        for name, least in (("seed", 0), ("n_train", 1), ("n_test", 2)):
            object.__setattr__(self, name, whole(getattr(self, name), name, least))
        names = tuple(self.datasets) if isinstance(self.datasets, (list, tuple)) else ()
        if not names or any(names.count(name) > 1 or name not in list(DATASETS) for name in names):
            raise ValueError(f"datasets = {shown(self.datasets)}: expected some of {', '.join(DATASETS)}, each once")
        object.__setattr__(self, "datasets", names)
        if not isinstance(self.base, (str, Path)):
            raise ValueError(f"base = {shown(self.base)}: expected the name of parameters or of their file")
        object.__setattr__(self, "base", str(self.base))
        load_parameters(self.base)

    @property
    def fingerprint(self) -> str:
        """Of everything that decides the draws: parts of another run are never taken up."""
        digest = hashlib.sha256(repr(replace(self, published=None)).encode())
        package = Path(bamas_lite.__file__).parent
        for path in sorted(package.rglob("*.py")):
            if not path.name.startswith("plots_") and path.parent.name != "exercises":
                digest.update(path.read_bytes())
        published = load_published(self.published)
        digest.update((published if self.own_rows else baseline_rows(published)).to_csv().encode())
        digest.update(repr(load_parameters(self.base).model_dump()).encode())
        for name in self.datasets:
            digest.update((DATA / "tasks" / f"{DATASETS[name].own_tasks}.jsonl").read_bytes())
        return digest.hexdigest()[:16]


def draw_parameters(rng: np.random.Generator, base: str | Path | Parameters = "assumed") -> dict[str, dict[str, Any]]:
    """Draw the parameters that no published row identifies, each uniformly from its stated range.

    Args:
        rng: source of the draw.
        base: parameters with their ranges.

    Returns:
        Entry -> {"value": ...}, to be stated over `base`. task_share and llm_share of a domain are drawn again until
        they sum to at most 1.
    """
    p = load_parameters(base)

    def drawn(name: str) -> Any:
        entry = getattr(p, name)
        kept = REFERENCE.get(name)
        return _mapped(entry.value, lambda place, number: number if place == kept else float(
            rng.uniform(*entry.range_at(place))))

    values = {name: drawn(name) for name in DRAWN}
    for domain in ByDomain.model_fields:
        while values["task_share"][domain] + values["llm_share"][domain] > 1:
            for name in ("task_share", "llm_share"):
                values[name][domain] = float(rng.uniform(*getattr(p, name).range_at(domain)))
    return {name: {"value": value} for name, value in values.items()}


def _mapped(value: Any, change: Callable[[str, float], float], place: str = "") -> Any:
    """A parameter's value with each number changed, by its place."""
    if isinstance(value, BaseModel):
        value = dict(value)
    if isinstance(value, dict):
        return {key: _mapped(item, change, f"{place}.{key}" if place else str(key)) for key, item in value.items()}
    return change(place, value)


def recorded(p: Parameters, domain: str) -> dict[str, float]:
    """The drawn and the fitted numbers of a domain by name, such as "critic.hit.view_right" or "skill.GPT-4.1 nano"."""
    found = {}
    for name in DRAWN + FITTED:
        value = getattr(p, name).value
        for place, number in numbers(value[domain] if isinstance(value, ByDomain) else value):
            if place not in ("default", REFERENCE.get(name)):
                found[f"{name}.{place}" if place else name] = float(number)
    return found


def representative(tasks: Sequence[Task], n: int) -> list[Task]:
    """About `n` of the tasks that stand for all: an even number of each level, by the level's share.

    Of a level, tasks are taken whose noise is nearest to evenly spaced quantiles of the normal distribution that it
    comes from. Tasks 2i and 2i + 1 are of one level and neighbors in noise.

    Raises:
        ValueError: `n` is no whole number of at least 1, or there are no two tasks of a level.
    """
    n, chosen = whole(n, "n", 1), []
    if not len(tasks):
        raise ValueError("tasks: empty; expected at least 2 of each level")
    for level in sorted({task.level for task in tasks}):
        rest = [(task_noise(task.task_id), task) for task in tasks if task.level == level]
        take = max(1, min(round(n * len(rest) / len(tasks) / 2), len(rest) // 2)) * 2
        if len(rest) < 2:
            raise ValueError(f"tasks: {len(rest)} of level {level}; expected at least 2")
        for quantile in ndtri((np.arange(take) + 0.5) / take):
            nearest = min(range(len(rest)), key=lambda i, q=quantile: abs(rest[i][0] - q))
            chosen.append(rest.pop(nearest))
        chosen[-take:] = sorted(chosen[-take:], key=lambda pair: pair[0])
    return [task for _, task in chosen]


def run_draws(n: int, plan: Plan | None = None, *, workers: int = 1, folder: str | Path | None = None,
              say: Callable[[str], None] = lambda line: None) -> pd.DataFrame:
    """Draw `n` simulators and run the pipeline with each.

    Args:
        n: draws.
        plan: what else decides them; None: `Plan()`.
        workers: processes; the draws are the same for any number.
        folder: each draw is kept here as it is done, and not made again unless its file is damaged; None: under
            build/, by `Plan.fingerprint`.
        say: told a line now and then.

    Returns:
        One row a draw and data set: dataset, draw, seed, n_tasks, n_seeds, the parameters by name (`recorded`);
        fit/rejected, how many drawn before this one could not be fitted, fit/row_sd_accuracy and fit/row_sd_cost, what
        the fit leaves of a row (points; log); and `<system>/<budget or setting>/<metric>`:
        accuracy (percent), cost (u$ a task), over (percent of the runs), share_<topology> (0 to 1). The two BAMAS also
        have accuracy_error and cost_error (standard error of the mean that comes from calls and seeds) and cost_sd
        (between tasks, u$); fixed topologies have reward and train_reward, with the rewards of who would choose them.
        Baselines are the closed form's.

    Raises:
        ValueError: a number that is none, or a folder that cannot be used, such as one that holds another plan's draws.
        RuntimeError: a draw cannot be fitted, or a process ended early.
    """
    plan, n, workers = plan or Plan(), whole(n, "n", 1), whole(workers, "workers", 1)
    mark = plan.fingerprint
    folder = out_folder(BUILD / "draws" / mark if folder is None else folder, "folder")
    claim(folder, mark)
    parts = {k: part for k in range(n) if (part := read_part(folder, k, mark)) is not None}
    missing = [k for k in range(n) if k not in parts]
    start = time.monotonic()
    if len(missing) < n:
        say(f"{n - len(missing)} of {n} draws are there already")
    for done, _ in enumerate(spread(_make_parts, missing, plan, folder, mark, workers=workers, tasks_per_part=1), 1):
        if done % 10 == 0 or done == len(missing):
            say(f"{time.monotonic() - start:6.0f} s  {n - len(missing) + done} of {n} draws")
    parts |= {k: read_part(folder, k, mark) for k in missing}
    return pd.concat([parts[k] for k in range(n)], ignore_index=True)


def _make_parts(draws: Sequence[int], plan: Plan, folder: Path, mark: str) -> None:
    for number in draws:
        write_part(one_draw(number, plan), folder, number, mark)


@dataclass(frozen=True)
class _Prepared:
    fit: Fit
    tasks: dict[str, tuple[list[Task], list[Task]]]


@lru_cache(maxsize=2)
def _prepared(plan: Plan) -> _Prepared:
    """What all draws share, made once in a process."""
    published, tasks = load_published(plan.published), {}
    for name in plan.datasets:
        own = DATASETS[name].own_tasks
        tasks[name] = (representative(load_tasks(own, split="train"), plan.n_train),
                       representative(load_tasks(own, split="test"), plan.n_test))
    fitted = second_fit(published, base=plan.base) if plan.own_rows else fit(baseline_rows(published), base=plan.base)
    return _Prepared(fitted, tasks)


def one_draw(number: int, plan: Plan | None = None) -> pd.DataFrame:
    """Draw `number`: one row a data set, see `run_draws`.

    Raises:
        ValueError: `number` is no whole number of at least 0.
        RuntimeError: no parameters were found that can be fitted to the baseline rows.
    """
    plan, number = plan or Plan(), whole(number, "number")
    prepared = _prepared(plan)
    rng = np.random.default_rng(np.random.SeedSequence(plan.seed, spawn_key=(number,)))
    drawn, p, rejected = _drawn(rng, prepared.fit, plan, f"draw {number}")
    seed = int(rng.integers(2**31))
    rows = []
    for name in plan.datasets:
        data, (train, test) = DATASETS[name], prepared.tasks[name]
        row = {"dataset": name, "draw": number, "seed": seed, "n_tasks": len(test), "n_seeds": 1}
        row |= recorded(p, data.domain)
        row |= {"fit/rejected": rejected, "fit/row_sd_accuracy": 100 * prepared.fit.spread.accuracy_row,
                "fit/row_sd_cost": prepared.fit.spread.cost_row}
        row |= dict(_baselines(drawn, name))
        row |= dict(_systems(data, p, seed, train, test))
        rows.append(row)
    table = pd.DataFrame(rows)
    return table.astype(dict.fromkeys(table.select_dtypes("float64").columns, "float32"))  # a small file


def _drawn(rng: np.random.Generator, fitted: Fit, plan: Plan, name: str) -> tuple[Fit, Parameters, int]:
    """A draw, its parameters, and how many were drawn before it with which the rows cannot be fitted."""
    if not plan.vary:
        drawn = fitted.draw(rng)
        return drawn, load_parameters(drawn.parameters(name)), 0
    for rejected in range(_MOST_REJECTED):
        try:
            fixed = draw_parameters(rng, plan.base)
            misfit, degrees = fitted.refit(fixed).misfit
            if chi2.sf(misfit, degrees) < REJECTED_AT:
                raise ValueError(f"chi-squared = {misfit:.1f} with {degrees} degrees of freedom")
            drawn = fitted.draw(rng, fixed=fixed)
            return drawn, load_parameters(drawn.parameters(name)), rejected
        except (ValueError, RuntimeError) as error:
            last = error
    raise RuntimeError(f"{name}: none of {_MOST_REJECTED} can be fitted to the baseline rows; the last: {last}")


def _baselines(drawn: Fit, name: str) -> Iterator[tuple[str, float]]:
    for row in drawn.rows[drawn.rows.dataset == name].itertuples():
        yield f"{row.system}/{row.setting}/accuracy", round(100 * row.accuracy_fit, _PLACES_KEPT)
        yield f"{row.system}/{row.setting}/cost", round(row.cost_fit, _PLACES_KEPT)


def _systems(data: Dataset, p: Parameters, seed: int, train: Sequence[Task],
             test: Sequence[Task]) -> Iterator[tuple[str, float]]:
    """Every system's columns, for one data set."""
    parameters = p.model_dump()
    logged, played = (play_all(tasks, data, parameters, [seed], False) for tasks in (train, test))
    for (system, setting), found in measure(logged, played, data.domain).items():
        place = f"{system}/{setting.removeprefix('budget ')}"
        given = system.startswith("always ") or system == "random"  # their shares say nothing
        for metric, value in _metrics(found, errors=system in (PUBLISHED, SHOULD_BE)):
            if not (given and metric.startswith("share_")):
                yield f"{place}/{metric}", round(value, _PLACES_KEPT)
    code = better_roles(logged)
    ours = with_roles(logged, code), with_roles(played, code)
    published = tuple(some.outcomes["published"] for some in (logged, played))
    for words, outcomes, rewards in (("always {}", ours, OURS.rewards),
                                     (FIXED_AS_PUBLISHED, published, PAPER_SETTINGS[data.domain].rewards)):
        for (topology, budget), values in _fixed(*outcomes, rewards).items():
            for metric, value in values.items():
                yield f"{words.format(topology)}/{budget:g}/{metric}", round(value, _PLACES_KEPT)


def _metrics(found: Measured, errors: bool) -> Iterator[tuple[str, float]]:
    yield "accuracy", 100 * float(found.correct.mean())
    yield "cost", float(found.cost.mean())
    yield "over", 100 * float(found.over.mean())
    for topology, share in zip(TOPOLOGIES, found.shares, strict=True):
        yield f"share_{topology}", float(share)
    if errors:
        yield "accuracy_error", 100 * _error(found.correct[0])
        yield "cost_error", _error(found.cost[0])
        yield "cost_sd", float(found.cost.std(ddof=1))


def _error(values: np.ndarray) -> float:
    """Standard error of the mean, given the tasks, from the differences within pairs of like tasks."""
    return math.sqrt(float(((values[::2] - values[1::2]) ** 2).sum())) / len(values)


def _fixed(train: Outcomes, test: Outcomes, rewards: Rewards) -> dict[tuple[str, float], dict[str, float]]:
    """Each topology at each budget: what it reaches, and its reward in training and in the test."""
    R = [table.R.reshape(-1, len(table.budget) // len(some.tasks), len(TOPOLOGIES)).mean(axis=0)
         for some, table in ((some, some.table(rewards)) for some in (train, test))]
    found = {}
    for b, budget in enumerate(test.budgets):
        for t, topology in enumerate(TOPOLOGIES):
            place = 0, slice(None), b, t
            found[topology, budget] = {
                "accuracy": 100 * float(test.correct[place].mean()), "cost": float(test.cost[place].mean()),
                "over": 100 * float(test.over[place].mean()), "reward": float(R[1][b, t]),
                "train_reward": float(R[0][b, t])}
    return found


def result_tables(draws: Mapping[str, pd.DataFrame], published: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """prediction, coverage and headlines (`prediction`) of draws by what they are given, a column of each table."""
    pairs = [(h.dataset, system, f"budget {h.budget}", h.against, h.llm)
             for system in (PUBLISHED, SHOULD_BE) for h in HEADLINES]
    tables: dict[str, list[pd.DataFrame]] = {"prediction": [], "coverage": [], "headlines": []}
    for given, some in draws.items():
        prediction = prediction_intervals(some)
        for name, table in (("prediction", prediction), ("coverage", coverage(prediction, published)),
                            ("headlines", headline_intervals(some, pairs))):
            table.insert(0, "given", given)
            tables[name].append(table.round(4))
    return {name: pd.concat(parts, ignore_index=True) for name, parts in tables.items()}


@command
def main(arguments: Sequence[str] | None = None) -> int:
    """Draw, and write draws.parquet, prediction.csv and coverage.csv."""
    parser = argparse.ArgumentParser(prog="python -m bamas_lite.reproduction.draws", description=main.__doc__)
    parser.add_argument("--draws", type=int, default=200, help="how many (default %(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="processes (default %(default)s)")
    parser.add_argument("--seed", type=int, default=Plan.seed, help="of all draws (default %(default)s)")
    parser.add_argument("--train", type=int, default=Plan.n_train, help="training tasks, about (default %(default)s)")
    parser.add_argument("--test", type=int, default=Plan.n_test, help="test tasks, about (default %(default)s)")
    parser.add_argument("--published", help="another file of published rows")
    parser.add_argument("--out", help="where to write (default data/reproduction; for anything but the default draws "
                                      "build/reproduction)")
    options = parser.parse_args(arguments)
    own = any(getattr(options, name) != parser.get_default(name)
              for name in ("draws", "seed", "train", "test", "published"))
    out = options.out if options.out is not None else (BUILD if own else DATA) / "reproduction"
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of each worker: processes that share cores only wait for each other
    plan = Plan(options.seed, options.train, options.test, published=options.published)
    published = load_published(options.published)
    whole(options.draws, "draws", 2)
    out = out_folder(out, "out")
    draws = {}
    for given, (name, changes) in GIVEN.items():
        n = options.draws if plan == replace(plan, **changes) else options.draws // 2
        print(f"{given}: {n} draws", flush=True)
        draws[given] = run_draws(n, replace(plan, **changes), workers=options.workers,
                                 say=lambda line: print(line, flush=True))
        draws[given].to_parquet(out / f"{name}.parquet", compression="zstd", index=False, use_dictionary=False,
                                write_statistics=False)
    tables = result_tables(draws, published)
    for name, table in tables.items():
        table.to_csv(out / f"{name}.csv", index=False, lineterminator="\n")
    with pd.option_context("display.width", 200, "display.max_columns", None):
        print(tables["coverage"].to_string(index=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
