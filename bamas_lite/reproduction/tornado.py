"""How much each headline moves when one assumed parameter of the simulator goes to an end of its committed range.

One at a time, with common random numbers: tasks, seeds and draws are the same at both ends, so that what moves, moves
because of the parameter - or because a policy trained on slightly other rewards chooses otherwise. Everything is
recomputed at each end: training outcomes, policies, test outcomes, and the baseline (in closed form).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import chi2

from bamas_lite.casting import TOPOLOGIES
from bamas_lite.experiments import choose
from bamas_lite.inputs import shown
from bamas_lite.policy import PAPER_SETTINGS, train_policy
from bamas_lite.reproduction.assumptions import plays_of, teams_of
from bamas_lite.reproduction.bench import Bench, make_bench
from bamas_lite.reproduction.calibration import Fit, baseline_rows, fit
from bamas_lite.reproduction.checks import listed
from bamas_lite.reproduction.expected import expected
from bamas_lite.reproduction.findings import HEADLINES, Headline
from bamas_lite.reproduction.outcomes import Outcomes
from bamas_lite.reproduction.published import load_published
from bamas_lite.rewards import OUR_REWARDS
from bamas_lite.simulation_parameters import Parameters, load_parameters
from bamas_lite.workflows import WORKFLOWS

POLICY_SEEDS = 3
"""Policies trained for each set of outcomes; headlines are means over them."""

VIEWS = tuple(f"{kind}.{view}" for kind in ("{0}", "{1}") for view in ("view_right", "view_wrong"))
BARS: dict[str, tuple[str, ...]] = {
    **{f"{name}.{place.format(*kinds)}": (name, "{domain}." + place.format(*kinds))
       for name, kinds in (("improve", ("keep", "repair")), ("revise", ("keep", "repair")),
                           ("critic", ("hit", "false_alarm"))) for place in VIEWS},
    **{name: (name, "{domain}") for name in ("step_shift", "task_share", "llm_share", "wrong_shared", "wrong_decay",
                                             "stick", "tokens_spread", "level_slope", "tokens_per_level")},
    "plan_validity (all LLMs)": ("plan_validity", ""), "plan_more": ("plan_more", ""),
    **{f"tokens_style ({', '.join(styles)})": ("tokens_style", *styles)
       for styles in (("approach",), ("improve", "revise"), ("step", "planner"), ("critic",), ("document",))}}
"""Bar -> parameter and the places whose numbers move together ("" is every place)."""


def tornado(dataset: str, *, n_train: int = 60, n_test: int = 80, test_seeds: int = 2, parameters: Any = None,
            bars: Sequence[str] = tuple(BARS), workers: int = 1) -> pd.DataFrame:
    """Every headline of a data set with one parameter at a time at the ends of its range.

    Headlines, of BAMAS as published (its provisioning, enforcement, loss and settings) on our own tasks:
    "accuracy against <baseline>": points above the baseline of the paper's headline, at the headline's budget;
    "saving against <baseline>": percent cheaper than it; "Feedback against Linear": points of accuracy between the two
    topologies, mean over the budgets; "Planner-Driven against the best other": points, likewise.

    Args:
        dataset: GSM8K, MBPP or MATH.
        n_train, n_test, test_seeds, workers: of the bench.
        parameters: the base; None: `default_parameters()`.
        bars: some of BARS.

    Returns:
        Columns dataset, headline, parameter, low_end, high_end (the ends; for numbers that move together and differ in
        range, those of the first), at_low, at_high, base; p_low and p_high: chance of baseline rows that fit as badly
        or worse with that end, everything that is fitted fitted again (0: no fit). A small one says that the published
        rows speak against that end. An end is moved inwards where the parameters together allow
        no more (task_share + llm_share <= 1).

    Raises:
        ValueError: an unknown data set or bar, no bar, or as `make_bench`.
    """
    bars = listed(bars, "bars")
    for bar in bars:
        if not isinstance(bar, str) or bar not in BARS:
            raise ValueError(f"bars: {shown(bar)} is none; there are {', '.join(BARS)}")
    bench = make_bench(dataset, n_train=n_train, n_test=n_test, train_seeds=1, test_seeds=test_seeds,
                       parameters=parameters, workers=workers)
    base = load_parameters(bench.parameters)
    cases = {bar: [moved(base, bench.dataset.domain, bar, end) for end in (0, 1)] for bar in bars}
    teams = teams_of(bench)
    plays = {id(p): plays_of(bench, teams, bench.variant("paper", parameters=p))
             for p in [bench.parameters, *(p for pair in cases.values() for p, _ in pair)]}
    bench.run(play for some in plays.values() for play in some)

    def at(p: dict[str, Any]) -> dict[str, float]:
        return headlines(bench, p, bench.outcomes(plays[id(p)], "train"), bench.outcomes(plays[id(p)]))

    middle, fitted = at(bench.parameters), fit(baseline_rows(load_published()))
    rows = []
    for bar, ((low, low_end), (high, high_end)) in cases.items():
        at_low, at_high = at(low), at(high)
        p_low, p_high = (_chance(fitted, BARS[bar][0], p) for p in (low, high))
        rows += [{"dataset": dataset, "headline": name, "parameter": bar, "low_end": low_end, "high_end": high_end,
                  "at_low": at_low[name], "at_high": at_high[name], "base": value, "p_low": p_low, "p_high": p_high}
                 for name, value in middle.items()]
    return pd.DataFrame(rows).sort_values("headline", kind="stable", ignore_index=True)


def _chance(fitted: Fit, entry: str, parameters: dict[str, Any]) -> float:
    try:
        return float(chi2.sf(*fitted.refit({entry: {"value": parameters[entry]["value"]}}).misfit))
    except (ValueError, RuntimeError):
        return 0.0


def moved(base: Parameters, domain: str, bar: str, end: int) -> tuple[dict[str, Any], float]:
    """The parameters with a bar's numbers at the low (0) or high (1) end of their ranges, and that end."""
    name, *places = BARS[bar]
    wanted = [place.format(domain=domain) for place in places]
    entry, data, ends = getattr(base, name), base.model_dump(), []

    def walk(value: Any, place: str) -> Any:
        if isinstance(value, dict):
            return {key: walk(inner, f"{place}.{key}" if place else key) for key, inner in value.items()}
        if "" not in wanted and place not in wanted:
            return value
        limit = entry.range_at(place)[end]
        if name in ("task_share", "llm_share"):
            other = base.llm_share if name == "task_share" else base.task_share
            limit = min(limit, round(1 - other.value[domain], 12))
        ends.append(limit)
        return limit

    return {**data, name: {**data[name], "value": walk(data[name]["value"], "")}}, ends[0]


def headlines(bench: Bench, parameters: dict[str, Any], train: Outcomes, test: Outcomes) -> dict[str, float]:
    """The headlines of `tornado`, from outcomes of all budgets."""
    claim = next(h for h in HEADLINES if h.dataset == bench.dataset.name)
    settings = PAPER_SETTINGS[bench.dataset.domain]
    table, learned = test.table(OUR_REWARDS), train.table(settings.rewards)
    pi = np.mean([choose(train_policy(learned, settings=replace(settings, seed=settings.seed + i),
                                      tasks=bench.tasks["train"]).policy, table, tasks=test.tasks)
                  for i in range(POLICY_SEEDS)], axis=0).reshape(len(test.tasks), len(test.budgets), len(TOPOLOGIES))
    b = test.budgets.index(claim.budget)
    accuracy, cost = ((pi * y).sum(axis=3)[:, :, b].mean() for y in (test.correct, test.cost))
    rival = _rival(bench, claim, parameters)
    by_topology = 100 * test.correct.mean(axis=(0, 1, 2))
    linear, star, feedback, planner = (by_topology[test.topologies.index(t)] for t in TOPOLOGIES)
    name = f"{claim.against} ({claim.llm})"
    return {f"accuracy against {name}": 100 * (accuracy - rival.accuracy),
            f"saving against {name}": 100 * (1 - cost / rival.cost),
            "Feedback against Linear": feedback - linear,
            "Planner-Driven against the best other": planner - max(linear, star, feedback)}


def _rival(bench: Bench, claim: Headline, parameters: dict[str, Any]) -> Any:
    return expected(WORKFLOWS[claim.against.lower()], bench.tasks["test"], bench.pool[claim.llm], parameters)
