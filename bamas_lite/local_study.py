"""The recorded run of the two local LLMs: what notebook 08 replays and reads, and the commands that make it anew.

    python -m bamas_lite.local_study record   # asks the LLMs, then writes data/recorded/local_calls.parquet and the log
    python -m bamas_lite.local_study trial    # which kinds of small tasks can they sometimes do? (local_trial.csv)

The replies are real, the prices are not: see data/pools/local.yaml.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from bamas_lite.experiments import baselines, bootstrap_interval, choose
from bamas_lite.grading import grade
from bamas_lite.paths import BUILD, DATA
from bamas_lite.policy import train_policy
from bamas_lite.pool import Pool, load_pool
from bamas_lite.prompts import executor_messages
from bamas_lite.provisioning import Team, provision
from bamas_lite.recordings import CachedChat, export_recording
from bamas_lite.rewards import LogTable
from bamas_lite.tasks import Task, load_tasks
from bamas_lite.topologies import TOPOLOGIES, run_task_sync
from bamas_lite.trajectories import generate_trajectories

TASK_SET = "small_tasks"
TASKS_PER_SPLIT = 76
"""As many of each of the four kinds; the set holds a few more."""

LOCAL_BUDGETS = (200.0, 300.0, 480.0)
"""u$ for one task. They pay for two SmolLM2, for one of each LLM, and for two Gemma3 with one SmolLM2."""

RECORDING = DATA / "recorded" / "local_calls.parquet"
LOG = DATA / "recorded" / f"trajectories_{TASK_SET}.parquet"
WORKING = BUILD / "local.sqlite"
"""Where a run records; it can be stopped and goes on where it was."""

TRIAL = DATA / "recorded" / "local_trial.csv"
TRIAL_SEED = 72
"""Of the tasks on which kinds were tried: others than the committed ones."""


def local_tasks(split: str | None = None) -> list[Task]:
    """The tasks of the recorded run: the first of the training split, then the first of the test split."""
    return [task for name in ("train", "test") if split in (name, None)
            for task in load_tasks(TASK_SET, split=name, limit=TASKS_PER_SPLIT)]


def local_pool() -> Pool:
    """The two LLMs with their pseudo-prices, without addresses."""
    return load_pool("local")


def replay_backend(path: str | Path = RECORDING) -> CachedChat:
    """The recorded replies; needs no LLM, no key and no network."""
    return CachedChat(None, path)


def replay(tasks: Iterable[Task] | None = None, path: str | Path | None = None) -> pd.DataFrame:
    """The log of the recorded run (of some of its tasks) from the recorded replies."""
    return generate_trajectories(local_tasks() if tasks is None else tasks, LOCAL_BUDGETS, pool=local_pool(),
                                 backend=replay_backend(), path=path, progress=False)


def record(tasks: Iterable[Task] | None = None, path: str | Path = WORKING) -> pd.DataFrame:
    """Ask the local LLMs for whatever the recording `path` does not hold yet; returns the log.

    Raises:
        LocalError: the extra [local] is not installed.
    """
    from bamas_lite.endpoints import OpenAIChat
    from bamas_lite.local import local_llms
    with local_llms() as pool:
        return generate_trajectories(local_tasks() if tasks is None else tasks, LOCAL_BUDGETS, pool=pool,
                                     backend=CachedChat(OpenAIChat(pool), path))


def kinds(task_ids: Iterable[str]) -> list[str]:
    """The kind of each task id: "one_step", "two_steps", "choice" or "function"."""
    from bamas_lite.generators.small_tasks import kind_of
    return [kind_of(task_id) for task_id in task_ids]


def alone(tasks: Iterable[Task] | None = None) -> pd.DataFrame:
    """What each LLM does alone, asked once: the first call of Linear, whose reply the recording holds.

    Columns llm, task_id, correct, cost (u$).
    """
    tasks, backend, pool = list(local_tasks() if tasks is None else tasks), replay_backend(), local_pool()
    rows = []
    for llm in pool.llms:
        team = _only(pool, llm.name)
        for task in tasks:
            episode = run_task_sync(task, team, "linear", backend, max(LOCAL_BUDGETS))
            rows.append({"llm": llm.name, "task_id": task.task_id, "correct": bool(episode.correct),
                         "cost": episode.cost})
    return pd.DataFrame(rows)


def _only(pool: Pool, name: str) -> Team:
    """A team of one agent."""
    return provision(Pool(name=name, llms=[pool[name].model_copy(update={"tier": 1})]), max(LOCAL_BUDGETS),
                     min_agents=1, max_copies=1)


def results(log: pd.DataFrame, single: pd.DataFrame | None = None, *, by: str = "all") -> pd.DataFrame:
    """Accuracy and cost of each topology at each budget and of each LLM alone, with 95% bootstrap intervals over tasks.

    Args:
        log: of the recorded run.
        single: what `alone` returned; None leaves it out.
        by: "all": one row each; "kind": one for each kind of task.

    Returns:
        Columns budget (NaN for an LLM alone), who, (kind), correct, correct_low, correct_high, cost, cost_low,
        cost_high (u$), calls, n_tasks.
    """
    if by not in ("all", "kind"):
        raise ValueError(f"by = {by!r}: expected 'all' or 'kind'")
    order = {name: i for i, name in enumerate(TOPOLOGIES)}
    parts = [((budget, topology), part) for (budget, topology), part in
             sorted(log.groupby(["budget", "topology"]), key=lambda item: (item[0][0], order[item[0][1]]))]
    if single is not None:
        parts = [((np.nan, f"{llm} alone"), part) for llm, part in single.groupby("llm")] + parts
    rows = []
    for (budget, who), part in parts:
        groups = [({}, part)] if by == "all" else [({"kind": kind}, part[np.array(kinds(part.task_id)) == kind])
                                                   for kind in dict.fromkeys(kinds(part.task_id))]
        for extra, group in groups:
            row = {"budget": budget, "who": who, **extra}
            for metric in ("correct", "cost"):
                values = group[metric].to_numpy(float)
                low, high = bootstrap_interval(values)
                row |= {metric: values.mean(), f"{metric}_low": low, f"{metric}_high": high}
            rows.append(row | {"calls": group.n_calls.mean() if "n_calls" in group else 1.0, "n_tasks": len(group)})
    return pd.DataFrame(rows)


def against_alone(log: pd.DataFrame, single: pd.DataFrame, llm: str | None = None) -> pd.DataFrame:
    """Does collaboration help? Accuracy of each topology and budget minus that of one LLM asked once, task by task.

    Args:
        llm: the LLM; None: the one that is right more often on these tasks.

    Returns:
        Columns budget, topology, difference, low, high (95% bootstrap interval over tasks), better and worse: tasks
        that only the team, or only the LLM alone got right.
    """
    llm = single.groupby("llm").correct.mean().idxmax() if llm is None else llm
    base = single[single.llm == llm].set_index("task_id").correct.astype(float)
    rows = []
    for budget in sorted(log.budget.unique()):
        for topology in TOPOLOGIES:
            part = log[(log.budget == budget) & (log.topology == topology)].set_index("task_id").correct.astype(float)
            gain = (part - base.reindex(part.index)).to_numpy()
            low, high = bootstrap_interval(gain)
            rows.append({"budget": budget, "topology": topology, "against": llm, "difference": gain.mean(),
                         "low": low, "high": high, "better": int((gain > 0).sum()), "worse": int((gain < 0).sum())})
    return pd.DataFrame(rows)


def pooled_against_alone(log: pd.DataFrame, single: pd.DataFrame, llm: str) -> tuple[float, float, float]:
    """The mean over all budgets and topologies minus one LLM asked once, task by task, with its 95% interval."""
    base = single[single.llm == llm].set_index("task_id").correct.astype(float)
    team = log.astype({"correct": float}).groupby("task_id", sort=False).correct.mean()
    gain = (team - base.reindex(team.index)).to_numpy()
    return float(gain.mean()), *bootstrap_interval(gain)


def llms_by_kind(single: pd.DataFrame, first: str, second: str) -> pd.DataFrame:
    """Accuracy of one LLM alone minus another's, task by task: kind, difference, low, high (95%), n_tasks."""
    right = single.astype({"correct": float}).pivot(index="task_id", columns="llm", values="correct").dropna()
    gap, kind = right[first] - right[second], np.array(kinds(right.index))
    rows = []
    for name in dict.fromkeys(kinds(single.task_id)):
        values = gap[kind == name].to_numpy()
        low, high = bootstrap_interval(values)
        rows.append({"kind": name, "difference": values.mean(), "low": low, "high": high, "n_tasks": len(values)})
    return pd.DataFrame(rows)


def best_per_kind(table: LogTable, train: LogTable) -> np.ndarray:
    """A look-up: for each kind of task the topology with the best mean reward on `train`, at all budgets; pi (n, 4).

    A kind that `train` lacks gets the best topology of all.
    """
    known, asked = np.array(kinds(train.task_id)), np.array(kinds(table.task_id))
    best = {kind: int(np.nanmean(train.R[known == kind], axis=0).argmax()) for kind in dict.fromkeys(known)}
    other = int(np.nanmean(train.R, axis=0).argmax())
    return np.eye(len(TOPOLOGIES))[[best.get(kind, other) for kind in asked]]


def gains_per_kind(train: LogTable, test: LogTable, single: pd.DataFrame) -> pd.DataFrame:
    """What `best_per_kind` gains in accuracy: chosen on one half of the tasks and judged on the other, both ways.

    Returns:
        judged ("held-out half", "halves swapped", "both"), against ("best fixed", also chosen on the other half, or
        "<LLM> alone"), difference, low, high: paired over tasks, with 95% intervals that hold the choice fixed.
    """
    gaps: dict[str, dict[str, np.ndarray]] = {}
    for judged, table, known in (("held-out half", test, train), ("halves swapped", train, test)):
        pis = {"kind": best_per_kind(table, known), "best fixed": baselines(table, known)["best fixed"]}
        right = {name: pd.Series((pi * table.correct).sum(axis=1)).groupby(np.array(table.task_id)).mean()
                 for name, pi in pis.items()}
        for llm, part in single.groupby("llm"):
            right[f"{llm} alone"] = part.set_index("task_id").correct.astype(float).reindex(right["kind"].index)
        gaps[judged] = {name: (right["kind"] - other).dropna().to_numpy() for name, other in right.items()
                        if name != "kind"}
    halves = list(gaps.values())
    gaps["both"] = {name: np.concatenate([half[name] for half in halves]) for name in halves[0]}
    rows = [(judged, name, gap.mean(), *bootstrap_interval(gap)) for judged, part in gaps.items()
            for name, gap in part.items()]
    return pd.DataFrame(rows, columns=["judged", "against", "difference", "low", "high"])


def oracle_by_luck(table: LogTable, draws: int = 200, seed: int = 0) -> float:
    """Share of right answers that an oracle has if each topology's outcomes are shuffled among tasks of equal kind and
    budget: then nothing but the kind can be known, and the rest is the maximum of chance outcomes."""
    rng, kind = np.random.default_rng(seed), np.array(kinds(table.task_id))
    cells = [np.flatnonzero((kind == k) & (table.budget == budget)) for k in dict.fromkeys(kind)
             for budget in np.unique(table.budget)]
    best = [rng.permuted(np.tile(table.correct[cell], (draws, 1, 1)), axis=1).max(axis=2).sum() for cell in cells]
    return float(sum(best)) / draws / len(table)


def oracle_of_other_budgets(table: LogTable) -> np.ndarray:
    """For each state the topology with the best mean reward for the same task at the other budgets; pi (n, 4)."""
    if len(np.unique(table.budget)) < 2:
        raise ValueError("table: one budget; expected at least two, to choose at one from the others")
    task_id = np.array(table.task_id)
    rows = [table.R[(task_id == task) & (table.budget != budget)].mean(axis=0)
            for task, budget in zip(task_id, table.budget, strict=True)]
    return np.eye(len(TOPOLOGIES))[np.argmax(rows, axis=1)]


def policies(log: pd.DataFrame, seeds: Sequence[int] = (0, 1, 2)) -> tuple[dict[str, np.ndarray], LogTable]:
    """Choices on the held-out tasks, for `experiments.evaluate`: the baselines, and the policy trained with each seed.

    Returns:
        name -> pi (n, 4), or (seeds, n, 4) for "learned policy"; and the held-out table with its n states.
    """
    train, test = (LogTable.from_log(log[log.task_id.str.contains(f"/{split}/")], complete=True)
                   for split in ("train", "test"))
    learned = [choose(train_policy(train, seed=seed).policy, test) for seed in seeds]
    return baselines(test, train) | {"learned policy": np.stack(learned)}, test


def trial(n: int = 96, seed: int = TRIAL_SEED) -> pd.DataFrame:
    """Ask both local LLMs once for each of `n` small tasks; the share of right answers by LLM and kind.

    Raises:
        LocalError: the extra [local] is not installed.
    """
    from bamas_lite.endpoints import OpenAIChat
    from bamas_lite.generators import small_tasks
    from bamas_lite.local import local_llms
    tasks = small_tasks.generate(n, seed, "train")

    async def ask(pool: Pool) -> list[tuple[str, str, bool]]:
        chat, rows = OpenAIChat(pool), []
        for llm in pool.llms:
            for task in tasks:
                reply = await chat.complete(llm, executor_messages(task), max_tokens=llm.max_tokens)
                rows.append((llm.name, small_tasks.kind_of(task.task_id), grade(task, reply.text).correct))
        await chat.aclose()
        return rows

    with local_llms() as pool:
        rows = asyncio.run(ask(pool))
    table = pd.DataFrame(rows, columns=["llm", "kind", "correct"])
    return table.groupby(["llm", "kind"], as_index=False).agg(right=("correct", "sum"), n=("correct", "size"))


def write_log(path: Path = LOG) -> pd.DataFrame:
    """Make the committed log anew from the committed recording."""
    new = path.with_suffix(".new.parquet")
    new.unlink(missing_ok=True)
    log = replay(path=new)
    new.replace(path)
    return log


def _record() -> None:
    record()
    export_recording(WORKING, RECORDING)
    log = write_log()
    print(f"{RECORDING.name}: {RECORDING.stat().st_size / 1e6:.2f} MB; {LOG.name}: {len(log)} episodes")


def _trial() -> None:
    table = trial()
    table.to_csv(TRIAL, index=False, lineterminator="\n")
    print(table.to_string(index=False))


def main(arguments: Sequence[str] | None = None) -> int:
    """Record the run of the local LLMs anew, or try which small tasks they can do."""
    commands: dict[str, Callable[[], None]] = {"record": _record, "trial": _trial}
    parser = argparse.ArgumentParser(prog="python -m bamas_lite.local_study", description=main.__doc__)
    parser.add_argument("command", choices=commands)
    commands[parser.parse_args(arguments).command]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
