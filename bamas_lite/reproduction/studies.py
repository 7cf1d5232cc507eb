"""Studies beyond the paper's tables: assumptions tested, frontier, decomposition, prices, streams; each a tidy table.

All outcomes are simulated, on our own tasks, with the paper's prices and budgets. A study runs on a `Bench`;
differences are paired (same tasks, same seeds), intervals come from the bootstrap over tasks and seeds.
`python -m bamas_lite.reproduction.studies` writes the tables to data/reproduction/.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from bamas_lite.casting import TOPOLOGIES
from bamas_lite.experiments import baselines, bootstrap_interval, choose
from bamas_lite.inputs import out_folder, shown, whole
from bamas_lite.paths import DATA
from bamas_lite.policy import OURS, PAPER_SETTINGS, Settings, TopologyPolicy, train_policy
from bamas_lite.pool import load_pool
from bamas_lite.provisioning import provision
from bamas_lite.reproduction.assumptions import (
    all_teams,
    least_budget,
    objectives,
    planned_against_actual,
    plays_of,
    reprice,
    solvers,
    tidy,
    wrong_ranking,
)
from bamas_lite.reproduction.bench import Bench, make_bench
from bamas_lite.reproduction.checks import amounts
from bamas_lite.reproduction.frontier import decompose, frontier_area
from bamas_lite.reproduction.outcomes import Outcomes, spread
from bamas_lite.reproduction.published import DATASETS, load_published
from bamas_lite.reproduction.streams import StreamBudgetError, stream_curve
from bamas_lite.reproduction.tornado import tornado
from bamas_lite.rewards import OUR_REWARDS, reward

__all__ = ["decompose", "decomposition", "frontier", "frontier_area", "learners", "make_bench", "objectives",
           "planned_against_actual", "reprice", "solvers", "streams", "summaries_versus_paper", "tornado",
           "wrong_ranking"]

FOLDER = DATA / "reproduction"
FILES = ("assumptions", "frontier", "decomposition", "reprice", "streams", "tornado")
PRIOR = 5.0
"""How many training tasks the overall mean is worth where chances are predicted by level."""


def _policies(bench: Bench, outcomes: Outcomes, settings: Settings, **options: Any) -> list[TopologyPolicy]:
    """One policy for each test seed, trained with that seed on the same training outcomes."""
    table, tasks = outcomes.table(settings.rewards), bench.tasks["train"]
    return [train_policy(table, settings=replace(settings, seed=settings.seed + i), tasks=tasks, **options).policy
            for i in range(len(bench.seeds["test"]))]


def _chosen(bench: Bench, policies: Sequence[TopologyPolicy], test: Outcomes, mode: str = "greedy") -> np.ndarray:
    """pi of each policy on the test tasks, (n_policies, n_tasks, n_budgets, 4)."""
    table = test.table(OUR_REWARDS)
    shape = len(test.tasks), len(test.budgets), len(TOPOLOGIES)
    return np.stack([choose(p, table, mode=mode, tasks=test.tasks).reshape(shape) for p in policies])


def _by_baseline(train: Outcomes, test: Outcomes) -> dict[str, np.ndarray]:
    """pi of the fixed choices, (1, n_tasks, n_budgets, 4)."""
    found = baselines(test.table(OUR_REWARDS), train.table(OUR_REWARDS))
    shape = 1, len(test.tasks), len(test.budgets), len(TOPOLOGIES)
    return {name: pi.reshape(shape) for name, pi in found.items()}


def _oracle(test: Outcomes) -> np.ndarray:
    """Per seed, task and budget the topology with the best reward, outcomes known."""
    R = reward(test.correct, test.cost, np.asarray(test.budgets)[None, None, :, None], OUR_REWARDS)
    return np.eye(len(TOPOLOGIES))[R.argmax(axis=3)]


def _value(pi: np.ndarray, outcomes: Outcomes) -> tuple[np.ndarray, np.ndarray]:
    """Correct and cost of a choice, each (n_seeds, n_tasks, n_budgets): policy i is played with seed i."""
    return (pi * outcomes.correct).sum(axis=3), (pi * outcomes.cost).sum(axis=3)


LEARNERS = {
    "published loss": {"objective": "published"}, "importance weights": {"objective": "importance"},
    "exact expectation": {"objective": "expectation"}, "supervised": {"learner": "supervised"}}


def learners(bench: Bench) -> pd.DataFrame:
    """Other learners on the same training outcomes with otherwise our settings, against the exact expectation, greedy.

    Choices are greedy (the most probable topology) and sampled (the expectation over the policy's draws).

    Raises:
        ValueError: a budget that pays for no team.
    """
    plays = plays_of(bench, all_teams(bench), bench.variant())
    train, test = bench.outcomes(plays, "train"), bench.outcomes(plays)
    values = {}
    for name, options in LEARNERS.items():
        settings = replace(OURS, objective=options.get("objective", OURS.objective))
        policies = _policies(bench, train, settings, learner=options.get("learner", "reinforce"))
        for mode in ("greedy", "sample"):
            values[f"{name}, {'sampled' if mode == 'sample' else mode}"] = _outcome(bench, policies, test, mode)
    base, rows = values["exact expectation, greedy"], []
    for name, value in values.items():
        for metric, y in value.items():
            factor = 100 if metric == "accuracy" else 1
            low, high = bootstrap_interval(factor * (y - base[metric]))
            rows.append({"study": "learner", "variant": name, "pool": "paper", "dataset": bench.dataset.name,
                         "budget": "all", "metric": metric, "base": factor * base[metric].mean(),
                         "value": factor * y.mean(), "difference": factor * (y - base[metric]).mean(), "low": low,
                         "high": high, "note": f"{len(bench.tasks['train'])} training tasks"})
    return tidy(rows)


def _outcome(bench: Bench, policies: Sequence[TopologyPolicy], test: Outcomes, mode: str) -> dict[str, np.ndarray]:
    """Accuracy, cost and reward of policies, each (n_seeds, n_tasks): means over the budgets."""
    pi = _chosen(bench, policies, test, mode)
    R = reward(test.correct, test.cost, np.asarray(test.budgets)[None, None, :, None], OUR_REWARDS)
    return {name: (pi * y).sum(axis=3).mean(axis=2)
            for name, y in (("accuracy", test.correct), ("cost", test.cost), ("reward", R))}


def frontier(bench: Bench) -> pd.DataFrame:
    """Area under the accuracy-cost frontier: BAMAS as published, ours, the best fixed choice, the oracle, the figures.

    Published: its loss, settings and enforcement. Ours: exact expectation, reserve. Best fixed: the topology that was
    best on the training tasks, for all budgets. The last row is the paper's own points, on other tasks and LLMs.

    Raises:
        ValueError: a budget that pays for no team.
    """
    teams = all_teams(bench)
    ours, paper = plays_of(bench, teams, bench.variant()), plays_of(bench, teams, bench.variant("paper"))
    bench.run([*ours, *paper])
    train, test = bench.outcomes(ours, "train"), bench.outcomes(ours)
    train_paper, test_paper = bench.outcomes(paper, "train"), bench.outcomes(paper)
    published = _policies(bench, train_paper, PAPER_SETTINGS[bench.dataset.domain])
    fixed = _by_baseline(train, test)
    systems = {
        "BAMAS as published": _value(_chosen(bench, published, test_paper), test_paper),
        "BAMAS as it should be": _value(_chosen(bench, _policies(bench, train, OURS), test), test),
        "best fixed": _value(fixed["best fixed"], test),
        "random": _value(fixed["random"], test),
        "oracle": _value(_oracle(test), test)}
    figures = load_published()
    figures = figures[(figures.dataset == bench.dataset.name) & (figures.system == "BAMAS")]
    table = frontier_area({name: (100 * correct, cost) for name, (correct, cost) in systems.items()},
                          against="BAMAS as published",
                          fixed={"paper's figures": (figures.accuracy_percent, figures.avg_cost_microusd)})
    table.insert(0, "dataset", bench.dataset.name)
    return table.assign(label=["simulated"] * len(systems) + ["paper"])


def decomposition(bench: Bench) -> pd.DataFrame:
    """How much of the gain over a reference comes from provisioning and how much from choosing the topology.

    Reference team: the cheapest one, under every budget. Reference topologies: "random" (the mean of all four) and
    "linear". Chosen topology: of a policy trained, with our settings, for the provisioned teams; the reference team is
    given the same choices. Accuracy in percent, for each budget and for their mean ("all").

    Raises:
        ValueError: a budget that pays for no team.
    """
    provisioned, cheapest = all_teams(bench), provision(bench.pool, least_budget(bench.pool))
    arms = [plays_of(bench, teams, bench.variant()) for teams in ([cheapest] * len(bench.budgets), provisioned)]
    bench.run(play for plays in arms for play in plays)
    policies = _policies(bench, bench.outcomes(arms[1], "train"), OURS)
    pi = _chosen(bench, policies, bench.outcomes(arms[1]))
    references = {"random": np.full(len(TOPOLOGIES), 1 / len(TOPOLOGIES)), "linear": np.eye(len(TOPOLOGIES))[0]}
    cells = {name: [[_value(choice, bench.outcomes(plays))[0] for choice in (reference, pi)] for plays in arms]
             for name, reference in references.items()}
    rows = []
    for name, found in cells.items():
        y = 100 * np.array(found)
        for budget, part in [("all", y.mean(axis=4)), *((f"{b:g}", y[..., i]) for i, b in enumerate(bench.budgets))]:
            table = decompose(part)
            for place, value in enumerate((bench.dataset.name, f"{cheapest}, {name}", budget)):
                table.insert(place, ("dataset", "reference", "budget")[place], value)
            rows.append(table)
    return pd.concat(rows, ignore_index=True)


def predicted(train: np.ndarray, train_levels: Sequence[int], levels: Sequence[int] | None) -> np.ndarray:
    """Means of training outcomes for each option, by level of the task and drawn towards the mean of all levels.

    Args:
        train: (n_train, k).
        train_levels: (n_train,).
        levels: of the tasks to predict, (n,); None: one row, the mean of all.

    Returns:
        (n, k): (sum over the level + PRIOR * mean of all) / (tasks of the level + PRIOR); a level that was never
        trained on gets the mean of all.
    """
    overall = train.mean(axis=0)
    if levels is None:
        return overall[None]
    train_levels = np.asarray(train_levels)
    by_level = {level: (train[train_levels == level].sum(axis=0) + PRIOR * overall)
                / ((train_levels == level).sum() + PRIOR) for level in set(levels)}
    return np.array([by_level[level] for level in levels])


def streams(bench: Bench, *, eaches: Sequence[float] | None = None) -> pd.DataFrame:
    """One budget for all test tasks together against the same budget for each.

    Options of a task: each of the paper's budgets with its team and each topology, under reserve enforcement, so an
    option never costs more than its budget (the cap). Values and costs are predicted from the training tasks: by level,
    or one mean for all tasks. Of the test tasks only the level is used; the oracle alone knows their outcomes.

    A flat budget leaves much of its money unspent (`cost` against `each`), and "stream expected" also wins by spending
    it; "stream guaranteed" keeps the same promise as the flat budget, that no outcome can pass the total.

    Args:
        eaches: totals, in u$ a task; None: the bench's budgets, the middle of the lowest two (if there are two), and
            two below them, where only expected costs leave a choice.

    Raises:
        StreamBudgetError: the totals pay for no plan.
        ValueError: a budget that pays for no team, or eaches that are no list of different numbers of at least 0.
    """
    lowest = bench.budgets[0]
    default = [0.6 * lowest, 0.8 * lowest, lowest, *((lowest + b) / 2 for b in bench.budgets[1:2]), *bench.budgets[1:]]
    eaches = default if eaches is None else amounts(eaches, "eaches")
    plays = plays_of(bench, all_teams(bench), bench.variant())
    train, test = bench.outcomes(plays, "train"), bench.outcomes(plays)
    n, k = len(test.tasks), len(test.budgets) * len(TOPOLOGIES)
    flat = {m: getattr(train, m).mean(axis=0).reshape(len(train.tasks), k) for m in ("correct", "cost")}
    real = {m: getattr(test, m).reshape(len(test.seeds), n, k) for m in ("correct", "cost")}
    caps = np.repeat(test.budgets, len(TOPOLOGIES))
    tables, refusal = [], None
    for predictor in ("level", "mean"):
        levels = [task.level for task in test.tasks] if predictor == "level" else None
        values, costs = (np.broadcast_to(predicted(flat[m], [t.level for t in train.tasks], levels), (n, k)).round(6)
                         for m in ("correct", "cost"))
        try:
            table = stream_curve(values, costs, [n * each for each in eaches], caps=caps, outcomes=real)
        except StreamBudgetError as error:
            refusal = error
            continue
        table.insert(0, "dataset", bench.dataset.name)
        tables.append(table.assign(predictor=np.where(table.plan == "oracle stream", "outcomes known", predictor)))
    if not tables:
        raise StreamBudgetError(f"eaches = {shown(eaches)}: {refusal}", refusal.least_total)
    table = pd.concat(tables, ignore_index=True)
    return table.drop_duplicates(["total", "plan", "predictor"], ignore_index=True)


def summaries_versus_paper() -> pd.DataFrame:
    """What some public summaries credit BAMAS with, what the paper does, and what this kit offers; in our words."""
    return pd.DataFrame([
        {"topic": "choice of the collaboration",
         "some summaries": "a reinforcement-learning agent proposes the edges of a communication graph",
         "paper": "a policy picks one of four fixed topologies for a question and a budget, learned offline",
         "kit": "the paper's policy; a policy that proposes edges comes with notebook 09"},
        {"topic": "objective of the integer program",
         "some summaries": "maximizes a sum of performance scores of the task",
         "paper": "maximizes tiered recursive weights, which ranks teams lexicographically; no scores of tasks",
         "kit": "provision(objective='lexicographic') by default, objective='score_sum' as an option"},
        {"topic": "pool of LLMs",
         "some summaries": "GPT-3.5, Claude and LLaMA-2",
         "paper": "DeepSeek-V3 and GPT-4.1 nano",
         "kit": "load_pool('paper'), load_pool('fourteen'), or any pool file"},
        {"topic": "size of a team",
         "some summaries": "about ten agents at the most",
         "paper": "at least two, at most five copies of an LLM; the budget is the limit",
         "kit": "provision(min_agents=2, max_copies=5)"},
        {"topic": "solver",
         "some summaries": "can be exchanged",
         "paper": "PuLP with CBC",
         "kit": "provision(solver=...) with any PuLP solver; every answer is checked by exact search"},
        {"topic": "learning algorithm",
         "some summaries": "can be exchanged",
         "paper": "a policy-gradient loss on a static data set, without importance weights",
         "kit": "train_policy(objective=..., learner=...): published, importance, expectation, supervised, your own"},
        {"topic": "cost model",
         "some summaries": "can be exchanged",
         "paper": "prompt and completion tokens times their prices",
         "kit": "provision(cost_model=...)"}])


def rounded(table: pd.DataFrame, digits: int = 3) -> pd.DataFrame:
    """Numbers rounded so that last-bit differences between processors do not show, and no minus zero."""
    return table.assign(**{name: table[name].round(digits) + 0.0 for name in table.select_dtypes("float").columns})


def marked(table: pd.DataFrame) -> pd.DataFrame:
    """The table with a column `mark`: the LLMs in play whose skill no baseline row of the paper fixes on that data set.

    Their skill is cited, or read off a rating. Empty where there are none, and where a row does not rest on skill: the
    paper's own figures, which teams differ, what a solver finds.
    """
    return table.assign(mark=[
        "" if row.get("label") == "paper" or str(row.get("metric")).startswith("teams_")
        else _unfitted(row["dataset"], row.get("pool", "paper")) for row in table.to_dict("records")])


@cache
def _unfitted(name: str, pool: str) -> str:
    if name not in DATASETS:
        return ""
    data = DATASETS[name]
    llms = data.llms if pool == "paper" else [m.name for m in load_pool(pool).llms]
    unseen = [llm for llm in llms if llm not in data.baseline_llms]
    who = unseen[0] if len(unseen) == 1 else f"{len(unseen)} of {len(llms)} LLMs"
    return f"skill of {who} not fitted: no baseline row of {name}" if unseen else ""


def make_tables(parts: Sequence[tuple[str, str]]) -> list[tuple[str, pd.DataFrame]]:
    """(file, its rows) of some parts (data set, "studies" or "tornado"), in this process (each answer graded once)."""
    found: list[tuple[str, pd.DataFrame]] = []
    for name, part in parts:
        if part == "tornado":
            found.append(("tornado", tornado(name)))
            continue
        bench = make_bench(name)
        found += [("assumptions", study(bench)) for study in (
            wrong_ranking, planned_against_actual, objectives, learners)]
        found += [("frontier", frontier(bench)), ("decomposition", decomposition(bench)), ("reprice", reprice(bench)),
                  ("streams", streams(bench))]
    return found


def all_tables(workers: int = 2) -> Iterator[tuple[str, pd.DataFrame]]:
    """Every table by the name of its file, for all data sets; computed by so many processes."""
    parts = [(name, part) for part in ("studies", "tornado") for name in DATASETS]
    found = [pair for some in spread(make_tables, parts, workers=workers, tasks_per_part=1) for pair in some]
    found.append(("assumptions", solvers()))
    for file in FILES:
        yield file, marked(rounded(pd.concat([table for name, table in found if name == file], ignore_index=True)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the tables of all studies to data/reproduction/."""
    parser = argparse.ArgumentParser(prog="python -m bamas_lite.reproduction.studies", description=main.__doc__)
    parser.add_argument("--workers", type=int, default=2, help="processes (default %(default)s)")
    options = parser.parse_args(arguments)
    try:
        workers, folder = whole(options.workers, "workers", 1), out_folder(FOLDER, "folder")
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    for name, table in all_tables(workers):
        path = folder / f"{name}.csv"
        table.to_csv(path, index=False, lineterminator="\n")
        print(f"{path.name}: {len(table)} rows", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
