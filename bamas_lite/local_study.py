"""The recorded run of the two local LLMs: what notebook 08 replays, and the command that records it anew."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from bamas_lite.paths import BUILD, DATA
from bamas_lite.pool import Pool, load_pool
from bamas_lite.recordings import CachedChat
from bamas_lite.tasks import Task, load_tasks
from bamas_lite.trajectories import generate_trajectories

TASKS_PER_SPLIT = 76
"""19 of each of the four kinds; the set holds a few more."""

LOCAL_BUDGETS = (200.0, 300.0, 480.0)
"""u$ for one task. They pay for two SmolLM2, one of each, and two Gemma3 with one SmolLM2."""

RECORDING = DATA / "recorded" / "local_calls.parquet"
LOG = DATA / "recorded" / "trajectories_small_tasks.parquet"
WORKING = BUILD / "local.sqlite"


def local_tasks(split: str | None = None) -> list[Task]:
    """The tasks of the recorded run: the first of the training split, then the first of the test split."""
    return [task for name in ("train", "test") if split in (name, None)
            for task in load_tasks("small_tasks", split=name, limit=TASKS_PER_SPLIT)]


def local_pool() -> Pool:
    """The two LLMs with their pseudo-prices, without addresses."""
    return load_pool("local")


def replay_backend(path: str | Path = RECORDING) -> CachedChat:
    """The recorded replies; needs no LLM, no key and no network."""
    return CachedChat(None, path)


def replay(tasks: list[Task] | None = None, path: str | Path | None = None) -> pd.DataFrame:
    """The log of the recorded run, from the recorded replies."""
    return generate_trajectories(local_tasks() if tasks is None else tasks, LOCAL_BUDGETS, pool=local_pool(),
                                 backend=replay_backend(), path=path, progress=False)


def record(working: Path = WORKING, tasks: list[Task] | None = None) -> pd.DataFrame:
    """Ask the local LLMs whatever `working` does not hold yet: it can be stopped and goes on where it was."""
    from bamas_lite.endpoints import OpenAIChat
    from bamas_lite.local import local_llms
    with local_llms() as pool:
        chat = CachedChat(OpenAIChat(pool, timeout_s=600.0), working)
        return generate_trajectories(local_tasks() if tasks is None else tasks, LOCAL_BUDGETS, pool=pool, backend=chat,
                                     concurrency=16)
