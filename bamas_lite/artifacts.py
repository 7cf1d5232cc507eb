"""Rebuild the small committed files that the notebooks read: embeddings, logs and policies (`make artifacts`).

Every file is a function of the committed tasks, pools and simulation parameters and of the seeds below.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pandas as pd

from bamas_lite.encoder import COMMITTED, write_committed
from bamas_lite.paths import DATA
from bamas_lite.policy import train_policy
from bamas_lite.simulation import SimulatedLLM
from bamas_lite.tasks import OWN_SETS, Task, load_tasks
from bamas_lite.trajectories import PAPER_BUDGETS, generate_trajectories, paper_pool

SEEDS = (0, 1, 2)
TASKS_PER_SPLIT = 200


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


def main() -> int:
    """Write all artifacts. Logs are made anew; the old ones stay in place until the new ones are whole."""
    tasks = [task for task_set in OWN_SETS for task in load_tasks(task_set)]
    print(f"{COMMITTED.name}: {len(tasks)} questions", flush=True)
    write_committed([task.question for task in tasks])
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
    return 0


if __name__ == "__main__":
    sys.exit(main())
