"""Where parts are computed and how a run ends early: the same rows everywhere, nothing that was paid for is lost."""

import _thread
import asyncio
import errno
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from contextlib import ExitStack, contextmanager

import pandas as pd
import pytest
import test_crash
from fault_server import FaultServer
from slow_backend import Deadly, NoMoreMoney, Slow, calls

from bamas_lite import CallError, SimulatedLLM, generate_trajectories, load_pool, load_tasks, schedulers, trajectories
from bamas_lite.llm import RunStopped

POOL = load_pool("paper")
BUDGETS = (300, 500, 1250)
PER_TASK = len(BUDGETS) * 4
HERE = {"workers": 1, "concurrency": 4, "scheduler": None}


@contextmanager
def cluster(workers=2, threads=1):
    """A Dask cluster of processes on this machine, without a dashboard and without words."""
    import distributed

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with distributed.LocalCluster(n_workers=workers, threads_per_worker=threads, processes=True, memory_limit=0,
                                      dashboard_address=None, silence_logs=logging.CRITICAL) as local, \
                distributed.Client(local) as client:
            yield client


@pytest.fixture(scope="module")
def clusters():
    with ExitStack() as stack:
        yield stack, []


@pytest.fixture
def client(clusters):
    """With two workers: Dask gives up starting one anew where that takes very long."""
    stack, clients = clusters
    try:
        clients[-1].wait_for_workers(2, timeout=30)
    except (IndexError, TimeoutError):
        clients.append(stack.enter_context(cluster()))
    return clients[-1]


@pytest.fixture(params=["here", "processes", "dask"])
def where(request):
    """Arguments of generate_trajectories."""
    return arguments_for(request)


@pytest.fixture(params=["processes", "dask"])
def elsewhere(request):
    return arguments_for(request)


def arguments_for(request):
    workers = {"processes": {"workers": 2}}.get(request.param, {})
    return {"concurrency": 4} | workers | (
        {"scheduler": request.getfixturevalue("client")} if request.param == "dask" else {})


@pytest.fixture(scope="module")
def tasks():
    return load_tasks("word_problems", split="test", limit=12)


@pytest.fixture(scope="module")
def unbroken(tasks):
    return generate_trajectories(tasks, BUDGETS, pool=POOL, backend=SimulatedLLM())


def test_same_rows_and_all_connections_closed(where, tasks, unbroken, tmp_path):
    log = generate_trajectories(tasks, BUDGETS, pool=POOL, backend=Slow(tmp_path, seconds=0.001), tasks_per_part=5,
                                path=tmp_path / "log.parquet", **where)
    pd.testing.assert_frame_equal(log, unbroken)
    loops = 1 if set(where) == {"concurrency"} else 3    # elsewhere one a part
    assert calls(tmp_path, "closed beside 0") == loops
    assert calls(tmp_path, "started") == calls(tmp_path, "finished") == unbroken.n_calls.sum()


def test_an_instant_backend_on_a_cluster(client, tasks, unbroken):
    log = generate_trajectories(tasks, BUDGETS, pool=POOL, backend=SimulatedLLM, tasks_per_part=1, scheduler=client)
    pd.testing.assert_frame_equal(log, unbroken)


def test_what_stops_a_run_loses_nothing_and_is_told_once(where, tasks, unbroken, tmp_path):
    """Calls in flight are waited for, no task of an event loop is left over, and the same call goes on."""
    arguments = {"pool": POOL, "path": tmp_path / "log.parquet", "tasks_per_part": 2} | where
    with pytest.raises(NoMoreMoney) as stopped:
        generate_trajectories(tasks, BUDGETS, backend=Slow(tmp_path, at=tasks[6].task_id), **arguments)
    saved = saved_rows(tmp_path)
    assert len(saved) % (2 * PER_TASK) == 0 and len(saved) <= 10 * PER_TASK
    assert f"no more money. {len(saved)} of {12 * PER_TASK} episodes are saved in" in str(stopped.value)
    assert "the same call goes on from there" in str(stopped.value)
    # Those that were refused and no others: at most four episodes in two processes, three calls at once in Star.
    assert 1 <= calls(tmp_path, "started") - calls(tmp_path, "finished") <= 2 * 4 * 3
    ends = [line for file in tmp_path.glob("calls-*") for line in file.read_text().splitlines() if "closed" in line]
    assert ends and set(ends) == {"closed beside 0"}
    before = calls(tmp_path, "started")
    log = generate_trajectories(tasks, BUDGETS, backend=Slow(tmp_path), **arguments | HERE)
    pd.testing.assert_frame_equal(log, unbroken)
    assert calls(tmp_path, "started") - before == unbroken.n_calls.sum() - saved.n_calls.sum()


def saved_rows(folder):
    files = list((folder / "log.parts").glob("*.parquet"))
    return pd.concat(map(pd.read_parquet, files)) if files else pd.DataFrame({"n_calls": []})


def test_no_episode_starts_after_the_stop(tasks, tmp_path):
    """The first call stops the run; without the gate, the episodes beside it would go on to their ends."""
    with pytest.raises(NoMoreMoney):
        generate_trajectories(tasks, (1250,), pool=POOL, backend=Slow(tmp_path, at=tasks[0].task_id),
                              topologies=("linear",), concurrency=4)
    assert calls(tmp_path, "started") == 4 and calls(tmp_path, "finished") == 3


def test_workers_that_die_are_survived(elsewhere, tasks, unbroken, tmp_path):
    log = generate_trajectories(tasks, BUDGETS, pool=POOL, backend=Slow(tmp_path, at=tasks[6].task_id, happens="die"),
                                tasks_per_part=2, path=tmp_path / "log.parquet", **elsewhere)
    assert (tmp_path / "died").exists()
    pd.testing.assert_frame_equal(log, unbroken)


@pytest.mark.skipif(os.name != "posix", reason="on Windows a process is ended without being asked")
def test_the_other_workers_finish_their_calls_when_one_dies(tasks, unbroken, tmp_path):
    """Each process writes into a file of its own. Only the calls of the one that died are left open."""
    log = generate_trajectories(tasks, BUDGETS, pool=POOL, tasks_per_part=2, workers=2, concurrency=4, backend=Slow(
        tmp_path, at=tasks[6].task_id, happens="die", seconds=0.05), path=tmp_path / "log.parquet")
    pd.testing.assert_frame_equal(log, unbroken)
    counts = [file.read_text().splitlines() for file in tmp_path.glob("calls-*")]
    left_open = [lines.count("started") - lines.count("finished") for lines in counts]
    assert (tmp_path / "died").exists() and len(counts) > 2
    assert sum(n > 0 for n in left_open) == 1 and sum(left_open) <= 4 * 3


@pytest.mark.skipif(os.name != "posix", reason="on Windows a process is ended without being asked")
def test_a_worker_that_waits_for_work_ends_at_once():
    """When it is asked to: there is nothing to finish, and the run would wait for it for ever."""
    context = multiprocessing.get_context("spawn")
    arguments = context.Event(), context.Event()
    with pytest.raises(RuntimeError, match="a worker process ended early"), \
            schedulers.worker_processes(1, schedulers._in_worker, arguments) as processes:
        os.kill(processes.submit(os.getpid).result(), signal.SIGTERM)
        processes.submit(os.getpid).result()


def test_a_worker_of_a_cluster_that_is_killed_pays_nothing_twice(client, tmp_path):
    """Dask computes its part again elsewhere; what had been answered comes from the recording."""
    with FaultServer() as server:
        unbroken = test_crash.run(tmp_path / "unbroken.parquet", server.base_url)
        n_calls = len(server.requests)
    killed = []

    def kill(pids):
        while not killed:
            if len(server.requests) > n_calls / 3:
                os.kill(pids[0], getattr(signal, "SIGKILL", signal.SIGTERM))
                killed.append(pids[0])
            time.sleep(0.002)

    with FaultServer(latency_s=0.02) as server:
        killer = threading.Thread(target=kill, args=(list(client.run(os.getpid).values()),), daemon=True)
        killer.start()
        log = test_crash.run(tmp_path / "log.parquet", server.base_url, scheduler=client)
        assert killed
        test_crash.check_money(server, tmp_path / "log.calls.sqlite", tmp_path, lost=4 * 3)
        test_crash.check_rows(log, unbroken, tmp_path / "log.calls.sqlite", server.base_url)


def test_workers_that_always_die(elsewhere, tasks, tmp_path, monkeypatch):
    monkeypatch.setattr(schedulers, "MOST_LOSSES", 1)
    if "scheduler" in elsewhere:
        monkeypatch.setattr(elsewhere["scheduler"].cluster.scheduler, "allowed_failures", 1)
    with pytest.raises(RunStopped, match="died again and again.*0 of 8 episodes are saved"):
        generate_trajectories(tasks[:2], (1250,), pool=POOL, backend=Deadly(tmp_path), tasks_per_part=1,
                              path=tmp_path / "log.parquet", **elsewhere)


def test_a_script_without_a_main_guard_is_told(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("from bamas_lite import SimulatedLLM, generate_trajectories, load_pool, load_tasks\n"
                      "generate_trajectories(load_tasks('word_problems', limit=2), (1250,), pool=load_pool('paper'),\n"
                      "                      backend=SimulatedLLM, workers=2, tasks_per_part=1)\n")
    ended = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert ended.returncode == 1
    last = [line for line in ended.stderr.splitlines() if not line.startswith((" ", "/"))][-1]   # but for warnings
    assert "must start its work below `if __name__ == '__main__':`" in last


def test_ctrl_c_waits_for_calls_in_flight(where, tasks, unbroken, tmp_path):
    """The parent is interrupted: by the backend itself here, else by a clock once the workers are at work."""
    arguments = {"pool": POOL, "path": tmp_path / "log.parquet", "tasks_per_part": 2} | where
    happens = "interrupt" if set(where) == {"concurrency"} else "nothing"
    backend = Slow(tmp_path, at=tasks[6].task_id, happens=happens, seconds=0.02)
    with interrupted_once(lambda: happens == "nothing" and calls(tmp_path, "finished") > 50), \
            pytest.raises(KeyboardInterrupt) as stopped:
        generate_trajectories(tasks, BUDGETS, backend=backend, **arguments)
    saved = saved_rows(tmp_path)
    assert len(saved) < 12 * PER_TASK
    assert f"{len(saved)} of {12 * PER_TASK} episodes are saved" in stopped.value.__notes__[0]
    assert calls(tmp_path, "started") == calls(tmp_path, "finished") > 0
    log = generate_trajectories(tasks, BUDGETS, backend=Slow(tmp_path), **arguments | HERE)
    pd.testing.assert_frame_equal(log, unbroken)


@contextmanager
def interrupted_once(condition):
    over = threading.Event()

    def watch():
        while not over.wait(0.01):
            if condition():
                _thread.interrupt_main()
                return

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_ctrl_c_in_a_notebook(tasks, tmp_path):
    """There an event loop runs already, and the calls are made in a thread that no signal reaches."""
    async def cell():
        generate_trajectories(tasks, BUDGETS, pool=POOL, concurrency=4, backend=Slow(
            tmp_path, at=tasks[6].task_id, happens="interrupt"))

    loop = asyncio.new_event_loop()
    try:
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(cell())
    finally:
        loop.close()
    assert calls(tmp_path, "started") == calls(tmp_path, "finished") < 1000
    assert calls(tmp_path, "closed beside 0") == 1


def test_a_full_disk_ends_the_run(tasks, unbroken, tmp_path, monkeypatch):
    write, written = trajectories.write_whole, []

    def full(path, *rest):
        if len(written) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(path, *rest)
        written.append(path)

    arguments = {"pool": POOL, "path": tmp_path / "log.parquet", "tasks_per_part": 2} | HERE
    monkeypatch.setattr(trajectories, "write_whole", full)
    with pytest.raises(RunStopped, match=r"cannot be written: .*No space left.*48 of 144 episodes are saved"):
        generate_trajectories(tasks, BUDGETS, backend=Slow(tmp_path, seconds=0.001), **arguments)
    assert calls(tmp_path, "started") == calls(tmp_path, "finished")
    monkeypatch.undo()
    log = generate_trajectories(tasks, BUDGETS, backend=Slow(tmp_path, seconds=0.001), **arguments)
    pd.testing.assert_frame_equal(log, unbroken)


def test_a_cluster_without_workers_is_told(tasks, tmp_path, monkeypatch):
    """Ctrl-C then has nothing to wait for."""
    monkeypatch.setattr(schedulers, "NO_WORKER_S", 0.1)
    with cluster(workers=0) as client, interrupted_once(lambda: bool(told)), pytest.raises(KeyboardInterrupt), \
            warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        generate_trajectories(tasks, BUDGETS, pool=POOL, backend=SimulatedLLM, scheduler=client, tasks_per_part=2,
                              path=tmp_path / "log.parquet")
    assert [str(warning.message)[:49] for warning in told] == ["the cluster has had no worker for 0.1 s; the run "]


def test_wrong_schedulers(client, tasks):
    arguments = {"pool": POOL, "backend": SimulatedLLM}
    for wrong in ("dask", 2, object(), client.cluster):
        with pytest.raises(ValueError, match=r"scheduler = .*expected None .*bamas-lite\[cluster\]"):
            generate_trajectories(tasks, (500,), scheduler=wrong, **arguments)
    with pytest.raises(ValueError, match="workers = 2 with a scheduler"):
        generate_trajectories(tasks, (500,), scheduler=client, workers=2, **arguments)
    import distributed
    closed = distributed.Client(client.scheduler.address)
    closed.close()
    with pytest.raises(ValueError, match="the client is closed"):
        generate_trajectories(tasks, (500,), scheduler=closed, **arguments)


def test_dask_is_not_imported_without_need():
    code = ("import sys; from bamas_lite import *; from bamas_lite.trajectories import generate_trajectories\n"
            "try: generate_trajectories(load_tasks('word_problems', limit=1), (500,), pool=load_pool('paper'),\n"
            "                           backend=SimulatedLLM, scheduler='dask')\n"
            "except ValueError as error: print(error)\n"
            "print([name for name in ('dask', 'distributed', 'openai') if name in sys.modules])")
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert "expected None" in out[0] and out[1] == "[]"


def test_parts_with_errors_can_be_computed_again(tasks, unbroken, tmp_path):
    class Failing(SimulatedLLM):
        asked = set()

        async def complete(self, llm, messages, **options):
            Failing.asked.add(options["task"].task_id)
            if options["task"].task_id in bad:
                raise CallError("the server said 500")
            return await super().complete(llm, messages, **options)

    arguments = {"pool": POOL, "path": tmp_path / "log.parquet", "tasks_per_part": 2, "backend": Failing()}
    bad = {tasks[3].task_id, tasks[8].task_id}
    log = generate_trajectories(tasks, BUDGETS, **arguments)
    assert set(log[log.status == "error"].task_id) == bad
    bad, Failing.asked = {tasks[8].task_id}, set()
    pd.testing.assert_frame_equal(generate_trajectories(tasks, BUDGETS, **arguments), log)   # rows are what happened
    assert not Failing.asked
    log = generate_trajectories(tasks, BUDGETS, retry_errors=True, **arguments)
    assert set(log[log.status == "error"].task_id) == bad
    assert Failing.asked == {tasks[n].task_id for n in (2, 3, 8, 9)}
    bad = set()
    pd.testing.assert_frame_equal(generate_trajectories(tasks, BUDGETS, retry_errors=True, **arguments), unbroken)
    pd.testing.assert_frame_equal(generate_trajectories(tasks, BUDGETS, **arguments), unbroken)
    assert [p.name for p in tmp_path.iterdir()] == ["log.parquet"]
