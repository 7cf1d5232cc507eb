"""Programs in the sandbox."""

import os
import statistics
from concurrent.futures import ThreadPoolExecutor

from bamas_lite import load_tasks, sandbox_protection
from bamas_lite.sandbox import run_python
from bamas_lite.tasks import Task
from tests.benchmarks.rows import Row, at_most, seconds


def sandbox(n_tasks: int = 100) -> list[Row]:
    """Right programs for our tasks, each anew in the sandbox: no verdict is remembered."""
    tasks = load_tasks("python_functions", limit=n_tasks)
    protection = sandbox_protection().partition("(")[2].partition(")")[0]

    def run(task: Task) -> None:
        outcome = run_python(task.reference, tests=task.tests, setup=task.setup, entry_point=task.entry_point)
        if not outcome.passed:
            raise RuntimeError(f"{task.task_id}: {outcome.reason}")

    rows = []
    for threads in sorted({1, 2, os.cpu_count() or 1}):
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(run, tasks[: 4 * threads]))   # servers start, tests are split
            took: list[float] = []
            wall = seconds(lambda pool=pool, took=took: took.extend(
                pool.map(lambda task: seconds(lambda: run(task)), tasks)))
        if threads == 1:
            rows.append(at_most(f"sandbox, median of {len(tasks)} programs, {protection.partition(',')[0]}",
                                1000 * statistics.median(took), 20, "ms"))
        rows.append(Row(f"... {threads} thread{'s' * (threads > 1)}", f"{len(tasks) / wall:,.0f} programs/s"))
    return rows
