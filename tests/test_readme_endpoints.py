"""What README.md tells about LLMs of your own, done as it stands there, against a loopback server."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from fault_server import FaultServer

from bamas_lite import CachedChat, generate_trajectories, load_pool, load_tasks, load_trajectories

SECTION = (Path(__file__).resolve().parent.parent / "README.md").read_text(encoding="utf-8").partition(
    "\n## Your own LLMs\n")[2].partition("\n## ")[0]
POOLS = re.findall(r"```yaml\n(.*?)```", SECTION, re.DOTALL)
SCRIPT, REPLAY = (re.findall(r"```py\n(.*?)```", SECTION, re.DOTALL) + ["", ""])[:2]
SERVER = "http://127.0.0.1:11434/v1"


@pytest.mark.parametrize("number", range(3))
def test_the_pools_load_and_are_short(number, tmp_path):
    path = tmp_path / "my_pool.yaml"
    path.write_text(POOLS[number], encoding="utf-8")
    pool = load_pool(path)
    assert len(POOLS[number].splitlines()) < 20 and len(pool) == 2
    assert all(m.base_url and m.price_in > 0 for m in pool.llms)
    assert [m.api_key_env is None for m in pool.llms] == [number == 0] * 2
    assert number == 0 or all("genai-prices" in m.source for m in pool.llms)


def run(script, folder, **environment):
    name = folder / "mine.py"
    name.write_text(script, encoding="utf-8")
    return subprocess.run([sys.executable, name.name], cwd=folder, input="y\n", capture_output=True, text=True,
                          env=os.environ | environment)


def test_the_script_runs_pays_once_and_is_replayed(tmp_path):
    assert len(SCRIPT.splitlines()) <= 17
    with FaultServer() as server:
        (tmp_path / "my_pool.yaml").write_text(POOLS[0].replace(SERVER, server.base_url), encoding="utf-8")
        first, n_requests = run(SCRIPT, tmp_path), len(server.requests)
        second = run(SCRIPT, tmp_path)
        assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
        assert n_requests > 0 and len(server.requests) == n_requests
        cost = server.cost(load_pool(tmp_path / "my_pool.yaml")) / 1e6
    assert first.stdout.index("worst case") < first.stdout.index("Go on?")
    last = f"paid in all: {cost:.4f} USD for {n_requests} calls"
    assert first.stdout.splitlines()[-1] == second.stdout.splitlines()[-1] == last
    # the server is gone; the recording travels
    assert run(REPLAY, tmp_path).returncode == 0
    again = generate_trajectories(load_tasks("word_problems", "test", limit=5), [500, 1250], progress=False,
                                  pool=load_pool(tmp_path / "my_pool.yaml"),
                                  backend=CachedChat(None, tmp_path / "class.parquet"))
    log = load_trajectories(tmp_path / "build" / "mine.parquet")
    assert again.drop(columns="backend").equals(log.drop(columns="backend"))
    assert all(label.startswith("recorded ") for label in again.backend)


def test_without_a_server_or_a_key_the_last_line_says_what_to_do(tmp_path):
    (tmp_path / "my_pool.yaml").write_text(POOLS[1], encoding="utf-8")
    done = run(SCRIPT, tmp_path)
    assert "Traceback" not in done.stderr
    assert done.returncode == 1 and re.search(r"environment variable (OPENAI|DEEPSEEK)_API_KEY is not set",
                                              done.stderr.splitlines()[-1])
