"""Rebuild the small committed files that the notebooks read: embeddings, logs and policies (`make artifacts`).

Every file is a function of the committed tasks, pools and simulation parameters and of the seeds below. The table of
results in README.md is made from them too.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pandas as pd

from bamas_lite import local_study
from bamas_lite.casting import TOPOLOGIES
from bamas_lite.encoder import COMMITTED, COMMITTED_SMALL, write_committed
from bamas_lite.experiments import baselines, choose, evaluate
from bamas_lite.paths import DATA
from bamas_lite.plots_policy import label
from bamas_lite.policy import TopologyPolicy, train_policy
from bamas_lite.rewards import LogTable
from bamas_lite.simulation import SimulatedLLM
from bamas_lite.tasks import OWN_SETS, Task, load_tasks
from bamas_lite.trajectories import PAPER_BUDGETS, generate_trajectories, load_trajectories, paper_pool

SEEDS = (0, 1, 2)
TASKS_PER_SPLIT = 200

RESULTS_BEGIN = "<!-- results: written by `make artifacts`, compared by a test -->"
RESULTS_END = "<!-- end of results -->"


def log_path(task_set: str) -> Path:
    """The committed log of one of our own task sets."""
    return DATA / "recorded" / f"trajectories_{task_set}.parquet"


def policy_path(task_set: str) -> Path:
    """The committed policy of one of our own task sets."""
    return DATA / "policies" / f"{task_set}.npz"


def logged_tasks(task_set: str) -> list[Task]:
    """The tasks of the committed log: the first of the training split, then the first of the test split."""
    return [task for split in ("train", "test") for task in load_tasks(task_set, split=split, limit=TASKS_PER_SPLIT)]


def make_log(tasks: list[Task], path: Path | None = None, workers: int = 1) -> pd.DataFrame:
    """Log `tasks` with the paper's pool and budgets on the simulated LLM, all topologies, SEEDS."""
    domain = tasks[0].domain
    return generate_trajectories(tasks, PAPER_BUDGETS[domain], pool=paper_pool(domain), backend=SimulatedLLM,
                                 seeds=SEEDS, path=path, workers=workers)


def split_log(log: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Training and test part of a log; the split is the middle part of the task id ("set/split/number")."""
    split = log.task_id.str.split("/").str[1]
    return log[split == "train"], log[split == "test"]


def results_table() -> str:
    """What the committed policies are worth on the held-out part of the committed logs, in Markdown (simulated)."""
    lines = ["| held-out tasks (simulated) | choice of topology | right, % [95% interval] | cost of a task, u$ |",
             "|---|---|---|---|"]
    episodes = over = 0
    for task_set in OWN_SETS:
        log = load_trajectories(log_path(task_set))
        episodes, over = episodes + len(log), over + int(log.over_budget.sum())
        train, test = (LogTable.from_log(part, complete=True) for part in split_log(log))
        choices = baselines(test, train)
        fixed = label(TOPOLOGIES[int(choices["best fixed"][0].argmax())])
        shown = {"random": choices["random"], f"best fixed on the training tasks: {fixed}": choices["best fixed"],
                 "learned policy": choose(TopologyPolicy.load(policy_path(task_set)), test),
                 "oracle, which knows the outcomes": choices["oracle"]}
        values = evaluate(shown, test)
        for row in values.itertuples():
            right, low, high = (f"{100 * x:.1f}" for x in (row.correct, row.correct_low, row.correct_high))
            lines.append(f"| {task_set.replace('_', ' ')} | {row.choice} | {right} [{low}, {high}] | {row.cost:.0f} |")
    lines += ["", f"Over their budget: {over} of {episodes:,} logged episodes."]
    return "\n".join(lines)


def write_results(readme: Path) -> None:
    """Put the table of results between its marks in README.md."""
    before, _, rest = readme.read_text(encoding="utf-8").partition(RESULTS_BEGIN)
    _, _, after = rest.partition(RESULTS_END)
    readme.write_text(f"{before}{RESULTS_BEGIN}\n\n{results_table()}\n\n{RESULTS_END}{after}", encoding="utf-8")


def main() -> int:
    """Write all artifacts. Logs are made anew; the old ones stay in place until the new ones are whole."""
    tasks = [task for task_set in OWN_SETS for task in load_tasks(task_set)]
    print(f"{COMMITTED.name}: {len(tasks)} questions", flush=True)
    write_committed([task.question for task in tasks])
    write_committed([task.question for task in load_tasks("small_tasks")], COMMITTED_SMALL)
    for task_set in OWN_SETS:
        path = log_path(task_set)
        new = path.with_suffix(".new.parquet")
        new.unlink(missing_ok=True)
        shutil.rmtree(new.with_suffix(".parts"), ignore_errors=True)  # of an interrupted call, perhaps with older code
        log = make_log(logged_tasks(task_set), new, workers=2)
        new.replace(path)
        print(f"{path.name}: {len(log)} episodes, {path.stat().st_size / 1e6:.2f} MB", flush=True)
        train, _ = split_log(log)
        train_policy(train).policy.save(policy_path(task_set))
        print(f"{policy_path(task_set).name}: {policy_path(task_set).stat().st_size / 1e6:.2f} MB", flush=True)
    print(f"{local_study.LOG.name}: {len(local_study.write_log())} episodes, replayed", flush=True)
    readme = DATA.parent / "README.md"
    if readme.is_file():  # a wheel has none
        write_results(readme)
    return 0


if __name__ == "__main__":
    sys.exit(main())
