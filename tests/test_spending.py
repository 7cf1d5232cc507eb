"""Runs that cost money: a recording beside the log, the cap of a whole run, the total on the bar."""

import pickle
import platform

import pandas as pd
import pytest
from fault_server import FaultServer
from test_crash import pool_at

from bamas_lite import SimulatedLLM, generate_trajectories, load_tasks, schedulers, spending, trajectories
from bamas_lite.endpoints import EndpointError, OpenAIChat
from bamas_lite.parts import compute
from bamas_lite.pool import LLM, Pool
from bamas_lite.recordings import CachedChat, SpendCapReached
from bamas_lite.trajectories import load_manifest

TASKS = load_tasks("word_problems", split="test", limit=6)


def run(server, path, **options):
    pool = options.pop("pool", None) or pool_at(server.base_url)
    return generate_trajectories(TASKS, (500, 1250), **{"pool": pool, "backend": OpenAIChat(pool), "path": path,
                                                        "tasks_per_part": 1} | options)


def same(log, other):
    pd.testing.assert_frame_equal(log.drop(columns="latency_s"), other.drop(columns="latency_s"))


@pytest.fixture
def server():
    with FaultServer(latency_s=0.005) as server:
        yield server


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    with FaultServer() as server:
        return run(server, tmp_path_factory.mktemp("unbroken") / "log.parquet"), len(server.requests)


def test_a_paid_backend_records_beside_the_log(server, unbroken, tmp_path):
    path = tmp_path / "log.parquet"
    log = run(server, path)
    same(log, unbroken[0])
    assert len(server.requests) == unbroken[1]
    assert 1 < server.most_in_flight <= 16 * 3   # episodes at once, each with up to three calls of Star
    assert sorted(file.name for file in tmp_path.iterdir()) == ["log.calls.sqlite", "log.parquet"]
    assert "live big-1, small-1" in load_manifest(path)["backend"][0]
    path.unlink()
    pd.testing.assert_frame_equal(run(server, path, concurrency=3), log)    # with the latencies of the recording
    assert len(server.requests) == unbroken[1]


def test_without_a_place_for_the_recording_nothing_is_paid(server, tmp_path, unbroken):
    with pytest.raises(ValueError, match=r"'live big-1, small-1' costs money.*path=None.*CachedChat\(backend"):
        run(server, None)
    assert not server.requests
    chat = CachedChat(OpenAIChat(pool_at(server.base_url)), tmp_path / "calls.sqlite")
    same(run(server, None, backend=chat), unbroken[0])


@pytest.mark.parametrize("how", [{}, {"workers": 2}], ids=["here", "processes"])
def test_the_cap_of_a_run(how, server, unbroken, tmp_path):
    path = tmp_path / "log.parquet"
    with FaultServer() as other:
        run(other, tmp_path / "other.parquet")
        total = other.cost(pool_at(other.base_url)) / 1e6
    cap = total / 2
    with pytest.raises(SpendCapReached, match=r"spend cap reached.*of 48 episodes are saved in .*log.calls.sqlite"):
        run(server, path, spend_cap_usd=cap, concurrency=4, **how)
    recording = CachedChat(None, tmp_path / "log.calls.sqlite")
    assert 0.2 * cap < recording.spent_usd() <= cap
    assert server.cost(pool_at(server.base_url)) / 1e6 == pytest.approx(recording.spent_usd())
    assert recording.paid_calls() == len(server.requests)   # no call was in flight when the run ended
    same(run(server, path, spend_cap_usd=2 * total, concurrency=4), unbroken[0])
    assert len(server.requests) == unbroken[1]
    path.unlink()
    same(run(server, path, spend_cap_usd=0), unbroken[0])   # everything is recorded: nothing is spent


def test_the_cap_of_a_given_recording(server, tmp_path):
    chat = CachedChat(OpenAIChat(pool_at(server.base_url)), tmp_path / "calls.sqlite", spend_cap_usd=100)
    with pytest.raises(SpendCapReached, match="cap is 0 USD.* No episode is saved, as path is None"):
        run(server, None, backend=chat, spend_cap_usd=0)
    with pytest.raises(SpendCapReached, match="cap is 0 USD"):
        run(server, None, backend=chat.with_seed, seeds=(3, 4), spend_cap_usd=0)
    assert not server.requests and chat.spend_cap_usd == 100


@pytest.mark.parametrize(("change", "message"), [
    ({"backend": SimulatedLLM, "spend_cap_usd": 5}, "spend_cap_usd = 5: backend 'simulated' costs nothing"),
    ({"spend_cap_usd": -1}, "spend_cap_usd = -1: expected at least 0 USD"),
    ({"spend_cap_usd": "much"}, "spend_cap_usd = 'much'"), ({"spend_cap_usd": float("inf")}, "spend_cap_usd = inf"),
    ({"spend_cap_usd": True}, "spend_cap_usd = True"), ({"concurrency": 0}, "concurrency = 0"),
    ({"spend_cap_usd": 1e-300}, r"spend_cap_usd = 1e-300: is less than .*\(1e-24 USD\); expected 0"),
    ({"retry_errors": 1}, "retry_errors = 1: expected True or False"), ({"progress": None}, "progress = None"),
    ({"concurrency": 1.5}, "concurrency = 1.5"), ({"workers": True}, "workers = True"),
])
def test_wrong_arguments(server, tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        run(server, tmp_path / "log.parquet", **change)
    assert not server.requests and not list(tmp_path.iterdir())


def test_repetitions_are_other_calls(server, tmp_path, unbroken):
    log = run(server, tmp_path / "log.parquet", seeds=(0, 1))
    assert len(server.requests) == 2 * unbroken[1] and len(log) == 2 * len(unbroken[0])
    chat = CachedChat(OpenAIChat(pool_at(server.base_url)), tmp_path / "calls.sqlite")
    with pytest.raises(ValueError, match="the repetitions would be copies; expected backend=chat.with_seed"):
        run(server, None, seeds=(0, 1), backend=chat)
    same(run(server, None, seeds=(0, 1), backend=chat.with_seed), log)
    assert len(server.requests) == 4 * unbroken[1]


def test_no_key_is_told_before_anything_is_asked(server, tmp_path, monkeypatch):
    monkeypatch.delenv("SERVED_KEY", raising=False)
    pool = pool_at(server.base_url)
    pool = Pool(name="served", llms=[LLM(**llm.model_dump() | {"api_key_env": "SERVED_KEY"}) for llm in pool.llms])
    with pytest.raises(EndpointError, match=r"SERVED_KEY is not set.*0 of 48 episodes are saved.*same call goes on"):
        run(server, tmp_path / "log.parquet", pool=pool)
    assert not server.requests


def test_a_server_that_goes_away_loses_nothing(tmp_path, unbroken):
    """And comes back at another address: neither log nor recording depends on it."""
    path, limit = tmp_path / "log.parquet", unbroken[1] // 2
    server = FaultServer(latency_s=0.005).__enter__()
    take, pool = server.take, pool_at(server.base_url)

    def take_half(*request):
        if len(server.requests) < limit:
            return take(*request)
        server._stop.set()
        return b"", "abort"

    server.take = take_half
    with pytest.raises(EndpointError, match="no connection.*of 48 episodes are saved"):
        run(server, path, backend=OpenAIChat(pool, backoff_s=0.01), concurrency=4)
    server._thread.join()
    with FaultServer() as other:
        same(run(other, path), unbroken[0])
        assert len(other.requests) == unbroken[1] - limit


class Bar:
    """Writes down what it is told."""

    def __init__(self, **options):
        self.options, self.n, self.steps, self.costs = options, options["initial"], [], []
        Bar.last = self

    def update(self, n=1):
        self.n += n
        self.steps.append(n)

    def set_postfix_str(self, text, refresh):
        self.costs.append(text)

    def close(self):
        self.closed = True


def test_the_bar_grows_by_episodes_and_shows_the_total(server, tmp_path, monkeypatch):
    monkeypatch.setattr(spending, "tqdm", Bar)
    monkeypatch.setattr(spending, "SHOWN_EVERY_S", 0.0)
    run(server, tmp_path / "log.parquet")
    bar, spent = Bar.last, CachedChat(None, tmp_path / "log.calls.sqlite").spent_usd()
    assert bar.steps == [1] * 48 and bar.n == bar.options["total"] == 48 and bar.closed
    assert bar.costs[-1] == f"${spent:.4f}" and bar.costs == sorted(bar.costs) and len(set(bar.costs)) > 5
    run(server, tmp_path / "two.parquet", workers=2)
    assert sum(Bar.last.steps) == 48 and Bar.last.costs[-1] == f"${spent:.4f}"
    generate_trajectories(TASKS, (500, 1250), pool=pool_at(server.base_url), backend=SimulatedLLM)
    assert Bar.last.steps == [1] * 48 and not Bar.last.costs
    run(server, tmp_path / "three.parquet", progress=False)
    assert Bar.last.options["disable"] and not Bar.last.costs


def test_other_machines_of_a_cluster(server, unbroken, tmp_path, monkeypatch):
    class Client:
        def run(self, function, on_error):
            return {"tcp://a": platform.node(), "tcp://b": "far away"}

    assert schedulers.other_hosts(Client()) == ["far away"]
    monkeypatch.setattr(trajectories, "check_scheduler", lambda client: None)
    with pytest.raises(ValueError, match="scheduler: has workers on far away; calls of 'live .*' cost money.*`paid` "
                                         "is False"):
        run(server, tmp_path / "log.parquet", scheduler=Client())
    assert not server.requests
    monkeypatch.setattr(trajectories, "on_cluster", lambda client, parts, *rest: compute(
        pickle.loads(pickle.dumps(parts)), *rest, lambda: None))
    backend = OpenAIChat(pool_at(server.base_url))
    backend.paid = False    # servers of one's own
    log = run(server, tmp_path / "own" / "log.parquet", scheduler=Client(), backend=backend)
    same(log, unbroken[0])
    assert len(server.requests) == log.n_calls.sum()
    assert [file.name for file in (tmp_path / "own").iterdir()] == ["log.parquet"]
    with pytest.raises(ValueError, match="costs nothing, so that it cannot hold a cap"):
        run(server, tmp_path / "other.parquet", scheduler=Client(), backend=backend, spend_cap_usd=1)
