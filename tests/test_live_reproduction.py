"""The GSM8K experiment against a loopback server: what is shown before a call, the cap, resuming, the report.

The tasks are our own, in GSM8K's file format.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO

import numpy as np
import pandas as pd
import pytest
from fault_server import FaultServer, answer

from bamas_lite import TOPOLOGIES, Pool, TopologyPolicy, load_pool, load_tasks, load_trajectories
from bamas_lite import live_reproduction as live
from bamas_lite.recordings import CachedChat, load_ledger
from bamas_lite.reproduction.published import load_published

N_TRAIN, N_TEST = 8, 6
LLMS = ("DeepSeek-V3", "deepseek-chat", 1, 0.27, 1.10), ("GPT-4.1 nano", "gpt-4.1-nano", 2, 0.10, 0.40)


@pytest.fixture(scope="module")
def answers():
    """Question -> reference of all tasks."""
    return {t.question: t.reference for split, n in (("train", N_TRAIN), ("test", N_TEST))
            for t in load_tasks("word_problems", split, n)}


@pytest.fixture(scope="module")
def benchmarks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("benchmarks")
    for split, n in (("train", N_TRAIN), ("test", N_TEST)):
        lines = [json.dumps({"question": t.question, "answer": f"Thus.\n#### {t.reference}"})
                 for t in load_tasks("word_problems", split, n)]
        (folder / f"gsm8k_{split}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return folder


def pool_file(folder, base_url, key="", **fields):
    path = folder / "pool.yaml"
    llms = [{"name": name, "model": model, "tier": tier, "price_in": a, "price_out": b, "max_tokens": 384}
            | ({"base_url": base_url} if base_url else {}) | ({"api_key_env": key} if key else {}) | fields
            for name, model, tier, a, b in LLMS]
    path.write_text(json.dumps({"name": "loop", "llms": llms}), encoding="utf-8")   # JSON is YAML
    return path


def command(folder, benchmarks, pool, cap="1", *more):
    return live.main(["--pool", str(pool), "--benchmarks", str(benchmarks), "--spend-cap-usd", cap, "--out",
                      str(folder / "out"), *more])


class Slip:
    """Answers from `answers`; the weaker LLM is wrong on every other question."""

    def __init__(self, answers):
        self.answers, self.odd = answers, set(list(answers)[::2])

    def __call__(self, body):
        text = answer(body, self.answers)
        wrong = body["model"] == "gpt-4.1-nano" and any(q in body["messages"][-1]["content"] for q in self.odd)
        return text.rpartition("####")[0] + "#### 987654321" if wrong and "####" in text else text


@pytest.fixture(scope="module")
def finished(tmp_path_factory, benchmarks, answers):
    """A whole run: server, folder, what was printed, and what was printed before the first request."""
    folder, shown, before = tmp_path_factory.mktemp("live"), StringIO(), []
    slip = Slip(answers)

    def reply(body):
        before.append(shown.getvalue()) if not before else None
        return slip(body)

    with FaultServer(reply=reply) as server, redirect_stdout(shown):
        pool = pool_file(folder, server.base_url)
        status = command(folder, benchmarks, pool, "1", "--yes")
        assert status == 0
        n_requests = len(server.requests)
        status = command(folder, benchmarks, pool, "1", "--yes")
        yield {"folder": folder / "out", "printed": shown.getvalue(), "before": before[0], "server": server,
               "pool": load_pool(pool), "n_requests": n_requests, "status": status}


def test_the_estimate_is_shown_before_the_first_request(finished):
    before = finished["before"]
    for words in ("Training log, every topology", "worst case", "expected", "paid", "Cap: 1 USD", "calls.sqlite",
                  "deepseek-chat at http://127.0.0.1", "0.27 in, 1.1 out"):
        assert words in before
    assert "Training log: " not in before   # no result yet
    train, test = live.estimates(live.Plan(finished["pool"], load_tasks("word_problems", "train", N_TRAIN),
                                           load_tasks("word_problems", "test", N_TEST), "paper", 1, None, 32))
    assert (train.n_episodes, test.n_episodes) == (N_TRAIN * 5 * 4, N_TEST * 5)
    assert f"Together at most {train.worst_usd + test.worst_usd:.4f} USD" in before
    assert finished["server"].cost(finished["pool"]) / 1e6 < train.worst_usd + test.worst_usd


def test_the_bill_is_the_servers(finished):
    server, folder = finished["server"], finished["folder"]
    chat = CachedChat(None, folder / "calls.sqlite")
    assert chat.paid_calls() == finished["n_requests"] == len({json.dumps(r.body) for r in server.requests})
    assert chat.spent_usd() * 1e6 == pytest.approx(server.cost(finished["pool"]))
    ledger = load_ledger(folder / "ledger.parquet")
    assert len(ledger) == finished["n_requests"] and ledger.cost.sum() == pytest.approx(server.cost(finished["pool"]))
    assert f"Each paid call: {folder / 'ledger.parquet'}" in finished["printed"]


def test_the_same_command_again_pays_nothing_and_says_the_same(finished):
    assert finished["status"] == 0 and len(finished["server"].requests) == finished["n_requests"]
    first, second = finished["printed"].split("# BAMAS on GSM8K")[1:]
    assert first.split("\nPaid so far")[0] == second.split("\nPaid so far")[0]
    assert f"Of earlier sittings. Paid so far: {finished['server'].cost(finished['pool']) / 1e6:.4f}" in first


def test_only_the_chosen_topology_is_played_on_the_test_tasks(finished):
    folder = finished["folder"]
    test = pd.read_parquet(folder / f"test-{N_TRAIN}-{N_TEST}-paper.parquet")
    policy = TopologyPolicy.load(folder / f"policy-{N_TRAIN}-paper.npz")
    questions = [t.question for t in load_tasks("word_problems", "test", N_TEST)]
    assert len(test) == N_TEST * 5 and not test.duplicated(["task_id", "budget"]).any()
    for row in test.itertuples():
        assert row.topology == policy.select(questions[int(row.task_id.rsplit("/", 1)[1])], row.budget)
    train = load_trajectories(folder / f"train-{N_TRAIN}.parquet")
    assert train.groupby(["task_id", "budget"]).topology.nunique().eq(len(TOPOLOGIES)).all()
    assert set(train.task_id).isdisjoint(test.task_id)


def test_the_report_stands_beside_the_papers_rows(finished, answers):
    folder = finished["folder"]
    test = pd.read_parquet(folder / f"test-{N_TRAIN}-{N_TEST}-paper.parquet")
    rows = pd.read_parquet(folder / f"results-{N_TRAIN}-{N_TEST}-paper.parquet").set_index("budget")
    published = load_published()
    for budget, group in test.groupby("budget"):
        row = rows.loc[budget]
        assert row.label == "live deepseek-chat, gpt-4.1-nano" and row.n == N_TEST and row.failed == 0
        assert row.accuracy == pytest.approx(100 * group.correct.astype(float).mean())
        assert row.cost == pytest.approx(group.cost.mean()) and row.cost_low <= row.cost <= row.cost_high
        paper, = published[(published.system == "BAMAS") & (published.dataset == "GSM8K")
                           & (published.setting == f"budget {budget:g}")].itertuples()
        assert (row.published_accuracy, row.published_cost) == (paper.accuracy_percent, paper.avg_cost_microusd)
    assert 0 < rows.accuracy.min() < 100   # the server's slips are seen
    report = (folder / f"report-{N_TRAIN}-{N_TEST}-paper.md").read_text(encoding="utf-8")
    assert report in finished["printed"] and "live deepseek-chat, gpt-4.1-nano" in report
    line = next(line for line in report.splitlines() if line.startswith("| 1625 |"))
    assert line.split(" | ")[2] == "95.3" and line.split(" | ")[4] == "542.9"


def test_the_cap_stops_the_run_and_a_higher_one_goes_on(tmp_path, benchmarks, answers, capsys, finished):
    with FaultServer(reply=Slip(answers)) as server:
        pool = pool_file(tmp_path, server.base_url)
        for cap in ("0", "0.001", "0.002"):
            assert command(tmp_path, benchmarks, pool, cap, "--yes") == 2
            output = capsys.readouterr()
            assert server.cost(load_pool(pool)) / 1e6 <= float(cap)
            assert "spend cap" in output.err and "worst case" in output.out
        assert len(server.requests) > 0 and "Each paid call" in output.out
        assert command(tmp_path, benchmarks, pool, "1", "--yes") == 0
        assert len(server.requests) == finished["n_requests"]   # as many as without a stop: nothing twice
    name = f"results-{N_TRAIN}-{N_TEST}-paper.parquet"
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "out" / name), pd.read_parquet(finished["folder"] / name))


def test_a_small_trial_is_part_of_the_whole_run(tmp_path, benchmarks, answers):
    with FaultServer(reply=Slip(answers)) as server:
        pool = pool_file(tmp_path, server.base_url)
        assert command(tmp_path, benchmarks, pool, "1", "--yes", "--tasks", "2", "--settings", "ours") == 0
        trial = len(server.requests)
        assert command(tmp_path, benchmarks, pool, "1", "--yes", "--tasks", "3") == 0
        both = server.requests[trial:]
        assert trial > 0 and both
        assert not {json.dumps(r.body) for r in server.requests[:trial]} & {json.dumps(r.body) for r in both}


def test_failed_episodes_are_counted_and_not_graded(tmp_path, benchmarks, answers):
    refused = next(t.question for t in load_tasks("word_problems", "test", N_TEST))

    def plan(body, attempt):
        return "refusal" if refused in body["messages"][-1]["content"] else None

    with FaultServer(reply=lambda body: answer(body, answers), plan=plan) as server:
        assert command(tmp_path, benchmarks, pool_file(tmp_path, server.base_url), "1", "--yes") == 0
        cost = server.cost(load_pool(tmp_path / "pool.yaml"))
    rows = pd.read_parquet(tmp_path / "out" / f"results-{N_TRAIN}-{N_TEST}-paper.parquet")
    assert (rows.failed == 1).all() and (rows.n == N_TEST - 1).all() and (rows.accuracy == 100).all()
    assert CachedChat(None, tmp_path / "out" / "calls.sqlite").spent_usd() * 1e6 == pytest.approx(cost)


def test_a_missing_key_is_told_before_anything_is_spent(tmp_path, benchmarks, capsys, monkeypatch):
    with FaultServer() as server:
        pool = pool_file(tmp_path, server.base_url, key="LOOP_KEY")
        monkeypatch.setenv("LOOP_KEY", "  ")
        assert command(tmp_path, benchmarks, pool, "1", "--yes") == 2
        output = capsys.readouterr()
        assert "set LOOP_KEY (for DeepSeek-V3, GPT-4.1 nano)" in output.err and "worst case" in output.out
        assert not server.requests and not (tmp_path / "out" / "calls.sqlite").exists()
        monkeypatch.setenv("LOOP_KEY", "wrong-key-of-mine")
        server.keys = {"right"}
        assert command(tmp_path, benchmarks, pool, "1", "--yes") == 2
        assert "LOOP_KEY" in (error := capsys.readouterr().err) and "wrong-key-of-mine" not in error
        assert not server.billed


def test_without_an_address(tmp_path, benchmarks, capsys):
    assert command(tmp_path, benchmarks, pool_file(tmp_path, ""), "1", "--yes") == 2
    assert "no base_url for DeepSeek-V3, GPT-4.1 nano" in capsys.readouterr().err


@pytest.mark.parametrize(("said", "status"), [("", 1), ("n", 1), ("no", 1), ("y", 0), ("YES ", 0)])
def test_a_person_is_asked(tmp_path, benchmarks, monkeypatch, capsys, said, status):
    ran = []
    monkeypatch.setattr(live, "run", ran.append)
    monkeypatch.setattr(sys, "stdin", type("Terminal", (StringIO,), {"isatty": lambda self: True})(f"{said}\n"))
    assert command(tmp_path, benchmarks, pool_file(tmp_path, "http://127.0.0.1:9/v1"), "0.5") == status
    output = capsys.readouterr().out
    assert "Spend up to 0.5 USD? [y/N]" in output and output.index("worst case") < output.index("Spend up to")
    assert len(ran) == (status == 0) and ("nothing was spent" in output) == (status == 1)


def test_where_nobody_can_be_asked_it_stops(tmp_path, benchmarks):
    with FaultServer() as server:
        done = subprocess.run([sys.executable, "-m", "bamas_lite.live_reproduction", "--pool",
                               str(pool_file(tmp_path, server.base_url)), "--benchmarks", str(benchmarks),
                               "--spend-cap-usd", "1", "--out", str(tmp_path / "out")], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True)
        assert done.returncode == 2 and "add --yes" in done.stderr and "worst case" in done.stdout
        assert "Traceback" not in done.stderr and not server.requests


@pytest.mark.parametrize(("change", "words"), [
    (["--spend-cap-usd", "-1"], "--spend-cap-usd = -1: expected at least 0 USD"),
    (["--spend-cap-usd", "nan"], "--spend-cap-usd = 'nan': expected a finite decimal number"),
    (["--tasks", "0"], "--tasks = 0: expected a whole number of at least 1"),
    (["--concurrency", "0"], "--concurrency = 0"), (["--pool", "nosuch"], "no pool file nosuch"),
    (["--benchmarks", "nosuch-folder"], "--benchmarks = 'nosuch-folder': no such folder")])
def test_wrong_arguments(tmp_path, benchmarks, capsys, change, words):
    assert command(tmp_path, benchmarks, "paper", "1", "--yes", *change) == 2
    error = capsys.readouterr().err
    assert words in error and "Traceback" not in error


def test_a_pool_that_no_budget_pays_for(tmp_path, benchmarks, capsys):
    pool = pool_file(tmp_path, "http://127.0.0.1:9/v1", max_tokens=100_000)
    assert command(tmp_path, benchmarks, pool, "1", "--yes") == 2
    assert "no budget of the experiment pays for a team" in capsys.readouterr().err


def test_results_by_hand():
    def row(budget, correct, cost, topology="star", status="ok", over=False):
        return {"budget": budget, "correct": correct, "cost": cost, "topology": topology, "status": status,
                "over_budget": over, "backend": "live m"}

    played = pd.DataFrame([row(500.0, True, 100.0), row(500.0, False, 300.0, "linear"),
                           row(500.0, None, 7.0, status="error"), row(500.0, True, 600.0, over=True),
                           row(875.0, None, 0.0, status="infeasible")])
    a, b = live.results(played.astype({"correct": "boolean"}), 4).itertuples()
    assert (a.n, a.failed, a.over_budget, a.n_tasks) == (3, 1, 1, 4)
    assert a.accuracy == pytest.approx(200 / 3) and a.cost == pytest.approx(1000 / 3)
    assert (a.share_star, a.share_linear, a.share_feedback) == (0.75, 0.25, 0)
    assert b.n == 0 and np.isnan(b.accuracy) and np.isnan(b.cost_low)
    plan = live.Plan(Pool(**load_pool("paper").model_dump()), [], [], "ours", 1.0, None, 1)
    chat = type("Chat", (), {"spent_usd": lambda self: 0.5, "paid_calls": lambda self: 2})()
    text = live.report_text(plan, live.results(played.astype({"correct": "boolean"}), 4), played, chat)
    assert "| 875 | no team | 92.4 | no team | " in text and "Paid so far: 0.5000 USD for 2 calls." in text
