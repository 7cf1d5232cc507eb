"""Killed at any moment and resumed: the rows of an unbroken run, and no call whose answer had arrived is paid again.

Against a server on this machine, which counts what it bills. Processes are forked from one that has imported
everything, where the system can do that: most of a run's time would go into imports.
"""

import json
import multiprocessing
import os
import random
import sqlite3
import threading
import time

import pandas as pd
import pytest
from fault_server import FaultServer

from bamas_lite import LLM, Pool, generate_trajectories, load_tasks
from bamas_lite.endpoints import OpenAIChat
from bamas_lite.recordings import CachedChat, export_ledger, load_ledger
from bamas_lite.trajectories import load_trajectories

KILLS = 10
BUDGETS = (500, 1250)
CONTEXT = multiprocessing.get_context("forkserver" if os.name == "posix" else "spawn")


def pool_at(base_url):
    return Pool(name="served", llms=[
        LLM(name="big", model="big-1", tier=1, price_in=0.27, price_out=1.10, max_tokens=384, base_url=base_url),
        LLM(name="small", model="small-1", tier=2, price_in=0.10, price_out=0.40, max_tokens=384, base_url=base_url)])


def run(path, base_url, **options):
    pool = pool_at(base_url)
    return generate_trajectories(load_tasks("word_problems", split="test", limit=9), BUDGETS, pool=pool,
                                 **{"backend": OpenAIChat(pool), "path": path, "tasks_per_part": 2, "concurrency": 4,
                                    "progress": False} | options)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """The log of a run that nothing disturbs, and how many calls it needs."""
    with FaultServer() as server:
        log = run(tmp_path_factory.mktemp("unbroken") / "log.parquet", server.base_url)
        return log, len(server.requests)


def canonical(body):
    return json.dumps(body, sort_keys=True)


def recorded(recording):
    """The requests that a recording holds; read as a process would that comes after a crash."""
    if not recording.exists():
        return set()
    connection = sqlite3.connect(recording)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        if not connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'calls'").fetchone()[0]:
            return set()
        return {canonical(json.loads(text)) for text, in connection.execute("SELECT request FROM calls")}
    finally:
        connection.close()


def check_rows(log, unbroken, recording, base_url):
    """All columns; a latency is that of the call that was answered, so it is compared with a replay."""
    pd.testing.assert_frame_equal(log.drop(columns="latency_s"), unbroken.drop(columns="latency_s"))
    replay = run(None, base_url, backend=CachedChat(None, recording))
    assert set(replay.backend) == {"recorded big, small"} and set(log.backend) == {"live big-1, small-1"}
    pd.testing.assert_frame_equal(log.drop(columns="backend"), replay.drop(columns="backend"))
    assert (log[log.n_calls > 0].latency_s > 0).all()


def check_money(server, recording, tmp_path, lost):
    """What the server billed is what the recording knows, up to the calls that were in flight at a kill."""
    export_ledger(recording, tmp_path / "ledger" / "ledger.parquet")
    ledger = load_ledger(tmp_path / "ledger" / "ledger.parquet")
    counts = ledger.status.value_counts()
    assert counts.get("ok", 0) == len(recorded(recording)) == len({canonical(r.body) for r in server.requests})
    repeated = len(server.requests) - counts["ok"]
    assert repeated <= counts.get("unconfirmed", 0) <= lost
    spent = ledger.cost.sum()
    assert spent == pytest.approx(1e6 * CachedChat(None, recording).spent_usd())
    billed = server.cost(pool_at(server.base_url))
    unconfirmed = ledger.unconfirmed.sum()
    assert spent - 1e-6 <= billed <= spent + unconfirmed + 1e-6
    assert (billed == pytest.approx(spent)) == (repeated == 0)


def test_killed_at_ten_moments(unbroken, tmp_path):
    unbroken, n_calls = unbroken
    rng = random.Random(11)
    path, recording = tmp_path / "log.parquet", tmp_path / "log.calls.sqlite"
    moments = sorted(rng.randrange(n_calls) for _ in range(KILLS))
    if os.name == "posix":
        CONTEXT.set_forkserver_preload(["bamas_lite.trajectories", "bamas_lite.recordings", "openai"])
    kills, answered, since = 0, [], []
    with FaultServer(latency_s=0.02) as server:
        for moment in moments:
            process = CONTEXT.Process(target=run, args=(path, server.base_url))
            process.start()
            while process.is_alive() and len(server.requests) < moment:
                time.sleep(0.001)
            time.sleep(rng.random() * 0.04)    # within a call, or between two
            process.kill()
            process.join()
            kills += process.exitcode != 0
            answered.append(recorded(recording))
            since.append(len(server.requests))
        log = run(path, server.base_url)
        assert sorted(file.name for file in tmp_path.iterdir()) == ["log.calls.sqlite", "log.parquet"]
        assert kills == KILLS
        for known, start in zip(answered, since, strict=True):
            assert not known & {canonical(request.body) for request in server.requests[start:]}
        assert sorted(map(len, answered)) == list(map(len, answered)) and len(answered[-1]) > n_calls / 2
        pd.testing.assert_frame_equal(log, load_trajectories(path))
        check_money(server, recording, tmp_path, lost=KILLS * 4 * 3)
        asked = len(server.requests)
        check_rows(log, unbroken, recording, server.base_url)
        assert len(server.requests) == asked


def test_a_worker_process_that_is_killed(unbroken, tmp_path):
    unbroken, n_calls = unbroken
    path, recording = tmp_path / "log.parquet", tmp_path / "log.calls.sqlite"
    killed = []
    with FaultServer(latency_s=0.02) as server:

        def kill():
            while not killed:
                children = multiprocessing.active_children()
                if len(server.requests) > n_calls / 3 and children:
                    children[0].kill()
                    killed.append(children[0].pid)
                time.sleep(0.002)

        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        log = run(path, server.base_url, workers=2)
        assert killed
        # the other worker finishes its calls; elsewhere it is ended without being asked
        check_money(server, recording, tmp_path, lost=4 * 3 * (1 if os.name == "posix" else 2))
        check_rows(log, unbroken, recording, server.base_url)
