"""The paper's GSM8K experiment on real LLMs: `python -m bamas_lite.live_reproduction` (`make reproduce-live`).

BAMAS from end to end: a training log of every topology, a policy learned from it, and the test tasks run with the
topology that the policy chooses for each question and budget. Before anything is asked, the estimate is shown and every
key is looked for. All calls go through one recording with a spend cap: whatever ends the run, the same command goes on
from there, and no answer is paid twice.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from bamas_lite.casting import TOPOLOGIES
from bamas_lite.endpoints import OpenAIChat
from bamas_lite.estimates import Estimate, estimate_cost
from bamas_lite.experiments import bootstrap_interval
from bamas_lite.inputs import command, exact, in_folder, out_folder, whole
from bamas_lite.llm import ChatModel, RunStopped
from bamas_lite.paths import BUILD
from bamas_lite.policy import OURS, PAPER_SETTINGS, TopologyPolicy, train_policy
from bamas_lite.pool import Pool, load_pool
from bamas_lite.provisioning import InfeasibleBudgetError
from bamas_lite.recordings import CachedChat, export_ledger
from bamas_lite.reproduction.published import dataset, load_counts, load_published, load_shares
from bamas_lite.tasks import Task, load_tasks
from bamas_lite.trajectories import generate_trajectories, team_of

DATA = dataset("GSM8K")
SETTINGS = {"paper": PAPER_SETTINGS["gsm8k"], "ours": OURS}


@dataclass(frozen=True)
class Plan:
    """What is to be run, and where it is kept.

    Attributes:
        pool: the LLMs with their endpoints.
        train, test: the tasks.
        settings: name in SETTINGS, how the policy is trained.
        cap: USD that all calls of the recording may cost together, over all sittings.
        folder: for all files.
        concurrency: episodes in flight at once.
    """

    pool: Pool
    train: list[Task]
    test: list[Task]
    settings: str
    cap: float
    folder: Path
    concurrency: int

    def file(self, name: str) -> Path:
        return self.folder / name

    @property
    def recording(self) -> Path:
        """One for all numbers of tasks and settings: what a small trial has paid for, a full run gets for nothing."""
        return self.folder / "calls.sqlite"


@command
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the paper's GSM8K experiment on real endpoints, within a spend cap."""
    parser = argparse.ArgumentParser(prog="python -m bamas_lite.live_reproduction", description=main.__doc__)
    parser.add_argument("--spend-cap-usd", required=True, help="USD that all calls may cost, over all sittings")
    parser.add_argument("--pool", default="paper", help="name or YAML file of the pool (default %(default)s)")
    parser.add_argument("--benchmarks", help="folder with gsm8k_train.jsonl and gsm8k_test.jsonl; else downloaded")
    parser.add_argument("--tasks", type=int, help="at most so many training and so many test tasks")
    parser.add_argument("--settings", choices=SETTINGS, default="paper",
                        help="how the policy is trained (default %(default)s)")
    parser.add_argument("--concurrency", type=int, default=32, help="episodes at a time (default %(default)s)")
    parser.add_argument("--out", help="folder for recording, logs and report (default build/live/<pool>)")
    parser.add_argument("--yes", action="store_true", help="do not ask before spending")
    options = parser.parse_args(arguments)
    plan = _plan(options)
    _show_estimate(plan)
    check_keys(plan.pool)
    if not options.yes and not _confirmed(plan):
        print("Nothing was asked and nothing was spent.")
        return 1
    run(plan)
    return 0


def _plan(options: argparse.Namespace) -> Plan:
    """The arguments, checked; raises ValueError."""
    cap = float(exact(options.spend_cap_usd, "--spend-cap-usd"))
    if cap < 0:
        raise ValueError(f"--spend-cap-usd = {options.spend_cap_usd}: expected at least 0 USD")
    limit = None if options.tasks is None else whole(options.tasks, "--tasks", 1)
    concurrency = whole(options.concurrency, "--concurrency", 1)
    pool = load_pool(options.pool)
    source = None if options.benchmarks is None else in_folder(options.benchmarks, "--benchmarks")
    train, test = (load_tasks(DATA.real_tasks, split, limit=n if limit is None else min(n, limit), path=source)
                   for split, n in (("train", DATA.n_train), ("test", DATA.n_test)))
    folder = BUILD / "live" / re.sub(r"[^\w.-]+", "_", pool.name) if options.out is None else options.out
    return Plan(pool, train, test, options.settings, cap, out_folder(folder, "--out"), concurrency)


def estimates(plan: Plan) -> tuple[Estimate, Estimate]:
    """Of the training log, and of the test run, where one topology is played for each task and budget."""
    return tuple(estimate_cost(tasks, DATA.budgets, TOPOLOGIES, plan.pool, concurrency=plan.concurrency,
                               parameters="fitted", one_topology=one) for tasks, one in ((plan.train, False),
                                                                                         (plan.test, True)))


def _show_estimate(plan: Plan) -> None:
    team = team_of(plan.pool, float(max(DATA.budgets)))
    if isinstance(team, InfeasibleBudgetError):
        raise ValueError(f"pool {plan.pool.name!r}: no budget of the experiment pays for a team: {team}")
    train, test = estimates(plan)
    print(f"Pool {plan.pool.name}, USD per million tokens (check them: the cap counts by these):")
    for llm in plan.pool.llms:
        print(f"  {llm.name}: {llm.price_in:g} in, {llm.price_out:g} out; {llm.model or llm.name} at {llm.base_url}")
    print(f"\nTraining log, every topology:\n{train}\n\nTest, the topology that the policy chooses:\n{test}\n")
    print(f"Together at most {train.worst_usd + test.worst_usd:.4f} USD; expected to be paid: some "
          f"{train.paid_usd + test.paid_usd:.4f} USD (simulated).\nCap: {plan.cap:g} USD; there the run stops; "
          f"with a higher one it goes on.\nRecording: {plan.recording}", flush=True)
    if plan.recording.exists():
        print(f"Of earlier sittings. {_spent(CachedChat(None, plan.recording))}", flush=True)


def check_keys(pool: Pool) -> None:
    """Look for the endpoints and keys of all LLMs, before anything is spent on one of them.

    Raises:
        RuntimeError: an LLM has no base_url, or an environment variable that the pool names is not set.
    """
    without = [llm.name for llm in pool.llms if llm.base_url is None]
    if without:
        raise RuntimeError(f"pool {pool.name!r}: no base_url for {', '.join(without)}: live LLMs need the address of "
                           "their endpoint. Nothing was asked and nothing was spent.")
    missing: dict[str, list[str]] = {}
    for llm in pool.llms:
        if llm.api_key_env is not None and not os.environ.get(llm.api_key_env, "").strip():
            missing.setdefault(llm.api_key_env, []).append(llm.name)
    if missing:
        names = "; ".join(f"{name} (for {', '.join(llms)})" for name, llms in missing.items())
        raise RuntimeError(f"No key in the environment: set {names}. Nothing was asked and nothing was spent.")


def _confirmed(plan: Plan) -> bool:
    """Ask whoever sits at the terminal; raises RuntimeError where nobody does."""
    if not sys.stdin.isatty():
        raise RuntimeError("Nobody can be asked here (no terminal): add --yes to go on without a question. Nothing was "
                           "asked and nothing was spent.")
    return input(f"Spend up to {plan.cap:g} USD? [y/N] ").strip().lower() in ("y", "yes")


def run(plan: Plan) -> pd.DataFrame:
    """Run the experiment or go on with it; returns the table of results, one row a budget.

    Raises:
        RunStopped: no key, no host, the cap, ...; what was answered is kept.
    """
    backend = CachedChat(OpenAIChat(plan.pool), plan.recording, spend_cap_usd=plan.cap)
    try:
        log = generate_trajectories(plan.train, DATA.budgets, pool=plan.pool, backend=backend,
                                    path=plan.file(f"train-{len(plan.train)}.parquet"), concurrency=plan.concurrency,
                                    retry_errors=True)
        print(f"Training log: {len(log):,} episodes, {(log.status == 'error').sum():,} failed. {_spent(backend)}",
              flush=True)
        policy = train_policy(log, settings=SETTINGS[plan.settings], tasks=plan.train).policy
        policy.save(plan.file(f"policy-{len(plan.train)}-{plan.settings}.npz"))
        played = play_test(plan, policy, backend)
    finally:
        with suppress(RunStopped):   # what stopped the run is told, not that the ledger cannot be read either
            export_ledger(plan.recording, plan.file("ledger.parquet"))
            print(f"{_spent(backend)} Each paid call: {plan.file('ledger.parquet')}", flush=True)
    table = results(played, len(plan.test))
    name = f"{len(plan.train)}-{len(plan.test)}-{plan.settings}"
    played.to_parquet(plan.file(f"test-{name}.parquet"))
    table.to_parquet(plan.file(f"results-{name}.parquet"))
    text, report = report_text(plan, table, played, backend), plan.file(f"report-{name}.md")
    report.write_text(text, encoding="utf-8")
    print(f"\n{text}\nReport: {report}")
    return table


def play_test(plan: Plan, policy: TopologyPolicy, backend: ChatModel) -> pd.DataFrame:
    """Run each test task and budget with the topology that the policy finds most probable, and no other."""
    logs = []
    for budget in DATA.budgets:
        choices = policy.probabilities([task.question for task in plan.test], budget).argmax(axis=1)
        for number in np.unique(choices):
            tasks = [task for task, choice in zip(plan.test, choices, strict=True) if choice == number]
            logs.append(generate_trajectories(tasks, [budget], pool=plan.pool, backend=backend,
                                              topologies=[TOPOLOGIES[number]], concurrency=plan.concurrency))
    return pd.concat(logs, ignore_index=True)


def results(played: pd.DataFrame, n_tasks: int) -> pd.DataFrame:
    """Accuracy, cost and choices by budget with 95% bootstrap intervals over tasks, beside the paper's rows.

    Accuracy (percent), cost (u$ a task) and over_budget are of the episodes that ran to their end, `n` of them; failed
    ones (`failed`) and budgets without a team are left out. Columns published_* are the paper's figures.
    """
    rows = load_published()
    rows = rows[(rows.dataset == DATA.name) & (rows.system == "BAMAS")].set_index("budget")
    counts = load_counts()
    counts = counts[counts.dataset == DATA.name].set_index("budget")
    table = []
    for budget, group in played.groupby("budget"):
        ok = group[group.status == "ok"]
        row = {"budget": budget, "label": group.backend.iloc[0], "n": len(ok), "n_tasks": n_tasks,
               "failed": int((group.status == "error").sum())}
        for name, values in (("accuracy", 100.0 * ok.correct.to_numpy(float)), ("cost", ok.cost.to_numpy(float))):
            low, high = bootstrap_interval(values) if len(ok) else (np.nan, np.nan)
            row |= {name: values.mean() if len(ok) else np.nan, f"{name}_low": low, f"{name}_high": high}
        row |= {"over_budget": int(ok.over_budget.sum())}
        row |= {f"share_{name}": float((group.topology == name).mean()) for name in TOPOLOGIES}
        table.append(row | {"published_accuracy": rows.accuracy_percent[budget],
                            "published_cost": rows.avg_cost_microusd[budget],
                            "published_over_budget": int(counts.out_of_budget[budget])})
    return pd.DataFrame(table)


def report_text(plan: Plan, table: pd.DataFrame, played: pd.DataFrame, backend: ChatModel) -> str:
    """The results in Markdown."""
    label, settings = table.label.iloc[0], SETTINGS[plan.settings]
    titles = ("budget, u$", "right, % (live)", "right, % (paper)", "u$ a task (live)", "u$ a task (paper)",
              "over budget (live)", "over budget (paper)", "failed, not graded (live)")
    lines = [f"# BAMAS on {DATA.name}: {label}", "",
             f"{len(plan.train):,} training and {len(plan.test):,} test tasks. The policy is trained with the settings "
             f"\"{plan.settings}\" ({settings.source}) and takes the most probable topology. In brackets 95% bootstrap "
             f"intervals over tasks. Live: {label}. Paper: {DATA.n_train:,} and {DATA.n_test:,} tasks, single points. "
             "What answers behind the name of an LLM changes: it need not be what the paper asked.", "",
             f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for row in table.itertuples():
        right, cost = (f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]" for value, low, high, digits in (
            (row.accuracy, row.accuracy_low, row.accuracy_high, 1), (row.cost, row.cost_low, row.cost_high, 0)))
        lines.append(f"| {row.budget:g} | {right if row.n else 'no team'} | {row.published_accuracy:g} | "
                     f"{cost if row.n else 'no team'} | {row.published_cost:g} | {row.over_budget} of {row.n:,} | "
                     f"{row.published_over_budget} of {DATA.n_test:,} | {row.failed} |")
    published = load_shares()
    published = published[published.dataset == DATA.name].set_index("topology").share_percent
    lines += ["", "| topology | chosen, % (live) | chosen, % (paper) |", "|---|---|---|"]
    for name in TOPOLOGIES:
        known = f"{published[name]:g}" if name in published else "no number given"
        lines.append(f"| {name} | {100 * (played.topology == name).mean():.1f} | {known} |")
    return "\n".join([*lines, "", _spent(backend), ""])


def _spent(backend: ChatModel) -> str:
    return f"Paid so far: {backend.spent_usd():.4f} USD for {backend.paid_calls():,} calls."


if __name__ == "__main__":
    sys.exit(main())
