"""The log: full factorial, resumable after a kill, the same on any number of workers."""

import contextlib
import dataclasses
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bamas_lite import (
    LLM,
    CallError,
    Pool,
    Reply,
    SimulatedLLM,
    Usage,
    generate_trajectories,
    load_pool,
    load_tasks,
    load_trajectories,
    trajectories,
)
from bamas_lite.pool import MOST_TOKENS
from bamas_lite.topologies import TOPOLOGIES
from bamas_lite.trajectories import SCHEMA, TrajectoryError, load_manifest

POOL = load_pool("paper")
BUDGETS = (300, 500, 1250)  # the first is infeasible: two GPT-4.1 nano cost 407.2
SCRIPT = """
import sys
from bamas_lite import SimulatedLLM, generate_trajectories, load_pool, load_tasks
generate_trajectories(load_tasks("word_problems", split="test", limit=40), (500, 1250, 2000), pool=load_pool("paper"),
                      backend=SimulatedLLM, seeds=(0, 1), path=sys.argv[1], tasks_per_part=4, progress=False)
"""


@pytest.fixture(scope="module")
def tasks():
    return load_tasks("word_problems", split="test", limit=12)


@pytest.fixture(scope="module")
def log(tasks):
    return generate_trajectories(tasks, BUDGETS, pool=POOL, backend=SimulatedLLM, seeds=(0, 1), tasks_per_part=5)


def test_full_factorial_in_order(log, tasks):
    assert list(log.columns) == SCHEMA.names
    wanted = [(s, t.task_id, b, k) for s in (0, 1) for t in tasks for b in BUDGETS for k in TOPOLOGIES]
    assert list(log[["seed", "task_id", "budget", "topology"]].itertuples(index=False, name=None)) == wanted
    assert log.run_id.is_unique
    assert np.allclose(log.behaviour_prob, 1 / len(TOPOLOGIES))


def test_infeasible_budgets_are_rows_with_a_reason(log):
    infeasible = log[log.budget == 300]
    assert (infeasible.status == "infeasible").all()
    assert infeasible.reason.str.contains("407.2").all()
    assert (infeasible.cost == 0).all() and infeasible.correct.isna().all()


def test_never_over_budget_and_something_is_right(log):
    run = log[log.status == "ok"]
    assert (run.cost <= run.budget).all() and not run.over_budget.any()
    assert 0 < run.correct.mean() < 1


def test_same_rows_on_two_workers_and_in_other_parts(log, tasks, tmp_path):
    other = generate_trajectories(tasks, BUDGETS, pool=POOL, backend=SimulatedLLM, seeds=(0, 1), workers=2,
                                  tasks_per_part=3, path=tmp_path / "log.parquet", progress=False)
    pd.testing.assert_frame_equal(log, other)
    pd.testing.assert_frame_equal(log, load_trajectories(tmp_path / "log.parquet"))
    assert [p.name for p in tmp_path.iterdir()] == ["log.parquet"]


def test_killed_at_any_moment_and_resumed(tmp_path):
    whole = tmp_path / "whole.parquet"
    subprocess.run([sys.executable, "-c", SCRIPT, str(whole)], check=True)
    killed = tmp_path / "killed.parquet"
    rng, kills = random.Random(5), 0
    parts = killed.with_suffix(".parts")
    for _ in range(40):
        process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(killed)])
        before = len(list(parts.glob("*.parquet"))) if parts.exists() else 0
        # Wait until it has saved one part more, then kill it somewhere in the next ones.
        while process.poll() is None and (len(list(parts.glob("*.parquet"))) if parts.exists() else 0) <= before:
            time.sleep(0.002)
        time.sleep(rng.random() * 0.03)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL if os.name == "posix" else signal.SIGTERM)
            kills += 1
        if process.wait() == 0 or kills == 3:
            break
    assert kills >= 1
    subprocess.run([sys.executable, "-c", SCRIPT, str(killed)], check=True)
    pd.testing.assert_frame_equal(load_trajectories(whole), load_trajectories(killed))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads the processes from Linux's /proc")
def test_workers_end_with_a_killed_parent(tmp_path):
    script = SCRIPT.replace("progress=False", "progress=False, workers=2")
    process = subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "log.parquet")])

    def children():
        with contextlib.suppress(OSError):
            return [int(n) for n in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
        return []

    def alive(pids):
        return [pid for pid in pids if Path(f"/proc/{pid}/stat").exists()
                and Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"]

    deadline = time.monotonic() + 60
    while process.poll() is None and len(children()) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)  # two workers, and the tracker that multiprocessing starts with the first
    seen = children()
    process.kill()
    process.wait()
    assert len(seen) == 3
    while alive(seen) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(seen)


def test_resuming_computes_only_what_is_missing(tasks, tmp_path):
    class Counting(SimulatedLLM):
        calls = 0

        async def complete(self, *args, **kwargs):
            Counting.calls += 1
            if Counting.calls == 60:
                raise KeyboardInterrupt
            return await super().complete(*args, **kwargs)

    path = tmp_path / "log.parquet"
    arguments = {"pool": POOL, "backend": Counting, "path": path, "tasks_per_part": 1, "progress": False}
    with pytest.raises(KeyboardInterrupt):
        generate_trajectories(tasks, (1250,), **arguments)
    saved = len(list(path.with_suffix(".parts").glob("*.parquet")))
    assert 0 < saved < len(tasks)
    with pytest.raises(TrajectoryError, match="unfinished"):
        load_trajectories(path)
    first_run, Counting.calls = Counting.calls, 100
    resumed = generate_trajectories(tasks, (1250,), **arguments)
    assert resumed.n_calls.sum() > Counting.calls - 100 >= resumed.n_calls.sum() - first_run
    fresh = generate_trajectories(tasks, (1250,), pool=POOL, backend=SimulatedLLM)
    pd.testing.assert_frame_equal(resumed, fresh)


def test_failed_calls_are_rows_with_a_reason(tasks):
    class Failing(SimulatedLLM):
        async def complete(self, llm, messages, **kwargs):
            if kwargs["task"].task_id == tasks[3].task_id:
                raise CallError("the server said 500")
            return await super().complete(llm, messages, **kwargs)

    log = generate_trajectories(tasks, (1250,), pool=POOL, backend=Failing)
    failed = log[log.status == "error"]
    assert set(failed.task_id) == {tasks[3].task_id} and len(failed) == len(TOPOLOGIES)
    assert failed.reason.str.contains("the server said 500").all() and failed.correct.isna().all()


def test_what_providers_report_always_fits_into_the_log(tasks, tmp_path):
    """Tokens beyond 32 bits, half a surrogate pair in the words of a fault: the run would end, again and again."""
    class Odd(SimulatedLLM):
        async def complete(self, llm, messages, **options):
            if options["task"] is tasks[0]:
                raise CallError("the server said \ud800")
            return Reply("#### 1", Usage(MOST_TOKENS, MOST_TOKENS), 1.0)

    pool = Pool(name="many", llms=[LLM(name="a", tier=1, price_in=0.01, price_out=0.01, max_tokens=8),
                                   *(LLM(name=f"b{n}", tier=2, price_in=0.0001, price_out=0.0001, max_tokens=8)
                                     for n in range(6))])
    log = generate_trajectories(tasks[:2], (10**4,), pool=pool, backend=Odd(), topologies=("star",),
                                path=tmp_path / "log.parquet")
    assert list(log.status) == ["error", "ok"] and log.reason[0].endswith("the server said ?")
    assert int(log.n_calls[1]) * MOST_TOKENS > 2**31 and log.prompt_tokens[1] == log.completion_tokens[1] == 2**31 - 1
    assert log.cost[1] > 2e5 and SCHEMA.field("prompt_tokens").type == pa.int32()


def test_a_task_that_cannot_be_asked_is_refused_before_the_others_are(tasks):
    class Never(SimulatedLLM):
        async def complete(self, *args, **options):
            raise AssertionError

    bad = dataclasses.replace(tasks[1], question="half a pair: \ud800")
    for budget in (1250, 1):   # one that has a team, and one that has none
        with pytest.raises(ValueError, match=r"task '.*': question = .*half a surrogate pair"):
            generate_trajectories([tasks[0], bad], (budget,), pool=load_pool("paper"), backend=Never())


def test_another_run_is_not_resumed(tasks, tmp_path):
    path = tmp_path / "log.parquet"
    generate_trajectories(tasks, (1250,), pool=POOL, backend=SimulatedLLM, path=path)
    again = generate_trajectories(tasks, (1250,), pool=POOL, backend=SimulatedLLM, path=path)
    assert len(again) == len(tasks) * len(TOPOLOGIES)
    with pytest.raises(TrajectoryError, match=r"another run: it has budgets = \[1250.0\]"):
        generate_trajectories(tasks, (1625,), pool=POOL, backend=SimulatedLLM, path=path)


def test_a_log_says_how_it_was_made_and_is_not_mixed_with_other_parameters(tasks, tmp_path):
    def weaker(seed):
        return SimulatedLLM(seed, {"base": "assumed", "name": "weaker", "level_slope": {"value": {"arithmetic": 0.2}}})

    path = tmp_path / "log.parquet"
    generate_trajectories(tasks, (1250,), pool=POOL, backend=SimulatedLLM, seeds=(0, 4), path=path)
    manifest = load_manifest(path)
    assert manifest["n_tasks"] == len(tasks) and manifest["budgets"] == [1250.0] and manifest["seeds"] == [0, 4]
    assert manifest["backend"] == [SimulatedLLM(0).identity, SimulatedLLM(4).identity]
    with pytest.raises(TrajectoryError, match="another run: it has backend = .*assumed.* this call has .*weaker"):
        generate_trajectories(tasks, (1250,), pool=POOL, backend=weaker, seeds=(0, 4), path=path)
    load_trajectories(path).to_parquet(path)
    with pytest.raises(TrajectoryError, match="does not say how it was made"):
        load_manifest(path)


def test_broken_parts_are_computed_again(tasks, tmp_path):
    arguments = {"pool": POOL, "backend": SimulatedLLM, "tasks_per_part": 3, "progress": False}
    whole = generate_trajectories(tasks, (500, 1250), **arguments)
    path = tmp_path / "log.parquet"
    parts = path.with_suffix(".parts")

    class Stops(SimulatedLLM):
        name = "simulated"

        async def complete(self, *args, task, **kwargs):
            if task is tasks[-1]:
                raise KeyboardInterrupt
            return await super().complete(*args, task=task, **kwargs)

    with pytest.raises(KeyboardInterrupt):
        generate_trajectories(tasks, (500, 1250), path=path, **arguments | {"backend": Stops})
    first, second, third = sorted(parts.glob("*.parquet"))
    first.write_bytes(first.read_bytes()[:-40])                             # cut by a power failure
    second.write_bytes(b"")
    pq.write_table(pq.read_table(third).slice(1), third)                    # a row is missing
    resumed = generate_trajectories(tasks, (500, 1250), path=path, **arguments | {"backend": SimulatedLLM})
    pd.testing.assert_frame_equal(whole, resumed)


def test_two_runs_that_start_at_once_do_not_mix(tasks, tmp_path):
    """The folder of parts appears together with its manifest: there is no moment at which it is nobody's."""
    parts = tmp_path / "log.parts"
    trajectories._claim(parts, {"seeds": [0]})
    trajectories._claim(parts, {"seeds": [0]})
    with pytest.raises(TrajectoryError, match=r"it has seeds = \[0\], this call has \[1\]"):
        trajectories._claim(parts, {"seeds": [1]})
    assert [p.name for p in tmp_path.iterdir()] == ["log.parts"]


@pytest.mark.parametrize("content", ["", "not json", "[1]"])
def test_a_folder_that_is_no_unfinished_run(tasks, tmp_path, content):
    (tmp_path / "log.parts").mkdir()
    (tmp_path / "log.parts" / "manifest.json").write_text(content, encoding="utf-8")
    with pytest.raises(TrajectoryError, match="not the folder of an unfinished run"):
        generate_trajectories(tasks, (500,), pool=POOL, backend=SimulatedLLM, path=tmp_path / "log.parquet")


@pytest.mark.parametrize(("change", "message"), [
    ({"budgets": "1250"}, "budgets = '1250': expected a list"), ({"seeds": [1.5]}, "seeds holds 1.5"),
    ({"seeds": [None]}, "seeds holds None"), ({"seeds": [2**70]}, "at most 64 bits"), ({"seeds": [True]}, "True"),
    ({"tasks": None}, "tasks = None: expected a list"), ({"tasks": ["a task"]}, "expected Task objects"),
    ({"pool": "paper"}, "pool = 'paper': expected a Pool"), ({"backend": None}, "backend = None: expected a backend"),
    ({"path": 5}, "path = 5"), ({"path": ""}, "path = ''"),
    ({"tasks": []}, "tasks is empty"), ({"budgets": []}, "budgets is empty"), ({"seeds": ()}, "seeds is empty"),
    ({"budgets": [500, 500]}, "more than once"), ({"budgets": ["much"]}, "budget = 'much'"),
    ({"budgets": [-1]}, "budget = -1"), ({"topologies": ["ring"]}, "unknown 'ring'"), ({"workers": 0}, "workers = 0"),
    ({"path": "log.csv"}, "ends in .parquet"), ({"backend": lambda seed: None}, "backend = None: expected an object"),
    ({"workers": 2, "backend": lambda seed: SimulatedLLM(seed)}, "other processes"),
])
def test_wrong_arguments(tasks, change, message):
    arguments = {"tasks": tasks, "budgets": [500], "pool": POOL, "backend": SimulatedLLM} | change
    with pytest.raises(ValueError, match=message):
        generate_trajectories(arguments.pop("tasks"), arguments.pop("budgets"), **arguments)


def test_wrong_files(tmp_path):
    with pytest.raises(TrajectoryError, match="no log"):
        load_trajectories(tmp_path / "none.parquet")
    (tmp_path / "text.parquet").write_text("not parquet", encoding="utf-8")
    with pytest.raises(TrajectoryError, match="not a parquet log"):
        load_trajectories(tmp_path / "text.parquet")
    pd.DataFrame({"task_id": ["a"], "cost": [1.0]}).to_parquet(tmp_path / "other.parquet")
    with pytest.raises(TrajectoryError, match="columns missing: run_id, domain"):
        load_trajectories(tmp_path / "other.parquet")


@pytest.mark.parametrize(("change", "message"), [
    ({"status": "weird"}, "status = 'weird': expected one of ok, infeasible, error"),
    ({"topology": "ring"}, "topology = 'ring'"), ({"correct": 5}, "column correct has the type int64"),
    ({"over_budget": None}, "over_budget"), ({"cost": None}, "cost"), ({"task_id": "a"}, "two rows for"),
])
def test_values_that_are_no_logs(log, tmp_path, change, message):
    log.assign(**change).to_parquet(tmp_path / "log.parquet")
    with pytest.raises(TrajectoryError, match=message):
        load_trajectories(tmp_path / "log.parquet")


def test_a_backend_that_waits_runs_concurrently_and_gives_the_same_rows(tasks):
    import asyncio

    class Waiting(SimulatedLLM):
        in_flight = most = 0

        async def complete(self, *args, **kwargs):
            Waiting.in_flight += 1
            Waiting.most = max(Waiting.most, Waiting.in_flight)
            await asyncio.sleep(0.001)
            Waiting.in_flight -= 1
            return await super().complete(*args, **kwargs)

    arguments = {"pool": POOL, "topologies": ("linear",)}
    log = generate_trajectories(tasks, (1250,), backend=Waiting, concurrency=8, **arguments)
    assert Waiting.most == 8
    pd.testing.assert_frame_equal(log, generate_trajectories(tasks, (1250,), backend=SimulatedLLM, **arguments))
