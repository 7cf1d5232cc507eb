"""Calls of real LLMs: the client against a loopback server, the recording, replays, the ledger."""

import asyncio
import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bamas_lite import LLM, CachedChat, OpenAIChat, Pool, Reply, Usage, load_tasks, provision, run_task
from bamas_lite.inputs import whole
from bamas_lite.notebooks import peak_memory
from bamas_lite.recordings import export_ledger, load_ledger
from tests.benchmarks.rows import Row, at_most

LATENCY_S, CONCURRENCY = 0.05, 32
SERVER = Path(__file__).resolve().parent.parent / "fault_server.py"


@contextlib.contextmanager
def server() -> Iterator[Pool]:
    """A server that answers after LATENCY_S, in a process of its own, and a pool of one LLM behind it."""
    with subprocess.Popen([sys.executable, str(SERVER), str(LATENCY_S)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as process:
        url = process.stdout.readline().strip()
        try:
            yield Pool(name="loopback", llms=[LLM(name="loopback", tier=1, price_in=0.1, price_out=0.4, max_tokens=64,
                                                  base_url=url)])
        finally:
            process.stdin.close()


def question(n: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"Question number {n}"}]


async def calls_per_s(chat: OpenAIChat | CachedChat, llm: LLM, n: int, start: int) -> tuple[float, float]:
    """Calls per second of wall time, and the processor's seconds a call, CONCURRENCY of them at a time."""
    numbers = iter(range(start, start + n))

    async def worker() -> None:
        for number in numbers:
            await chat.complete(llm, question(number), max_tokens=64)

    wall, processor = time.perf_counter(), time.process_time()
    await asyncio.gather(*(worker() for _ in range(CONCURRENCY)))
    return n / (time.perf_counter() - wall), (time.process_time() - processor) / n


async def star_and_call(chat: OpenAIChat, pool: Pool, repeats: int = 15) -> tuple[float, float]:
    """Median seconds of one call, and of an episode of Star with three executors."""
    (llm,), tasks = pool.llms, load_tasks("word_problems", limit=repeats)
    team = provision(pool, 3 * llm.call_cost(500, llm.max_tokens), min_agents=3)
    one, three = [], []
    for number, task in enumerate(tasks):
        start = time.perf_counter()
        await chat.complete(llm, question(-number), max_tokens=64)
        one.append(time.perf_counter() - start)
        start = time.perf_counter()
        episode = await run_task(task, team, "star", chat, 10_000)
        three.append(time.perf_counter() - start)
        if episode.n_calls != 3:
            raise RuntimeError(f"Star made {episode.n_calls} calls, expected 3")
    return statistics.median(one), statistics.median(three)


def measure_client(n: int = 3200) -> dict[str, float]:
    """Throughput without and with a recording, hits in it, and the latency of Star."""
    async def main(pool: Pool, folder: Path) -> dict[str, float]:
        (llm,), chat = pool.llms, OpenAIChat(pool)
        await calls_per_s(chat, llm, 200, 10**6)   # opens the connections
        plain, processor = await calls_per_s(chat, llm, n, 0)
        one, three = await star_and_call(chat, pool)
        cached = CachedChat(chat, folder / "calls.sqlite")
        recording, _ = await calls_per_s(cached, llm, n, 0)
        hits = []
        for number in range(n):
            start = time.perf_counter()
            await cached.complete(llm, question(number), max_tokens=64)
            hits.append(time.perf_counter() - start)
        await cached.aclose()
        cached.close()
        return {"plain": plain, "processor": processor, "one": one, "three": three, "recording": recording,
                "hit": statistics.median(hits)}

    with server() as pool, tempfile.TemporaryDirectory() as folder:
        return asyncio.run(main(pool, Path(folder)))


class Instant:
    """A backend that answers at once, to fill a recording."""

    name, strict_bound = "instant", False

    async def complete(self, llm: LLM, messages: list[dict[str, str]], **_: object) -> Reply:
        return Reply(f"#### {len(messages)}", Usage(100, 20), 0.01)

    def bound_prompt_tokens(self, llm: LLM, messages: list[dict[str, str]]) -> int:
        return 200


def ledger(n: int = 100_000) -> tuple[float, float]:
    """GiB of a process that exports and reads a ledger of n rows, and the seconds that it takes."""
    llm = LLM(name="instant", tier=1, price_in=0.1, price_out=0.4, max_tokens=64)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "calls.sqlite"
        chat = CachedChat(Instant(), path)
        asyncio.run(calls_per_s(chat, llm, whole(n, "n", 1), 0))
        chat.close()
        code = ("import sys; from bamas_lite.recordings import export_ledger, load_ledger; "
                "print(len(load_ledger(export_ledger(sys.argv[1], sys.argv[2]))))")
        start = time.perf_counter()
        with peak_memory() as peak:
            rows = int(subprocess.run([sys.executable, "-c", code, str(path), str(path.with_suffix(".parquet"))],
                                      capture_output=True, text=True, check=True).stdout)
        took = time.perf_counter() - start
        if rows != n or len(load_ledger(export_ledger(path, path.with_suffix(".again.parquet")))) != n:
            raise RuntimeError(f"the ledger has {rows:,} rows, expected {n:,}")
        return peak[0], took


def replay_rate() -> float:
    """Episodes per second of the committed recording of two tiny LLMs, read anew, with grading."""
    from bamas_lite import local_study

    start = time.perf_counter()
    log = local_study.replay()
    return len(log) / (time.perf_counter() - start)


def calls() -> list[Row]:
    found = measure_client()
    ideal = CONCURRENCY / LATENCY_S
    most = min(ideal, 1 / found["processor"])   # what the client's own processor time allows
    gib, took = ledger()
    share, star = found["plain"] / most, found["three"] / found["one"]
    rate = replay_rate()
    return [Row(f"calls of {1000 * LATENCY_S:.0f} ms, {CONCURRENCY} at a time (ideal {ideal:,.0f} /s)",
                f"{found['plain']:,.0f} /s"),
            Row("... processor time of the client", f"{1000 * found['processor']:.2f} ms/call"),
            Row("... share of what 32 calls in flight, and the processor, allow", f"{100 * share:.0f} %", "> 90 %",
                share >= 0.9),
            Row("... all recorded on the disk", f"{found['recording']:,.0f} /s"),
            at_most("Star with three executors, one call's latency", star, 1.3, "x"),
            at_most("call that the recording holds, median", 1000 * found["hit"], 1, "ms", 3),
            Row("replay of the local recording, with grading", f"{rate:,.0f} episodes/s", "> 500 /s", rate > 500),
            at_most("ledger of 100,000 calls, exported and read, peak", gib, 1, "GiB"),
            Row("... time", f"{took:.1f} s")]
