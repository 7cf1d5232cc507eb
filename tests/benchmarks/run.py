"""Speed and memory of the kit beside what they should reach: `make bench`, or `python -m tests.benchmarks.run`.

One table from one run on one core. Nothing here is asserted: a busy or slow machine misses targets without being wrong.
"""

import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

import pulp

from bamas_lite import (
    LLM,
    TOPOLOGIES,
    Pool,
    SimulatedLLM,
    generate_trajectories,
    load_pool,
    load_tasks,
    provision,
    run_task_sync,
    train_policy,
    versions,
)
from bamas_lite.notebooks import peak_memory
from bamas_lite.reproduction.published import DATASETS
from bamas_lite.reproduction.systems import reproduce
from bamas_lite.reproduction.task_sets import reproduction_tasks
from tests.benchmarks.agentbalance import agentbalance
from tests.benchmarks.calls import calls
from tests.benchmarks.programs import sandbox
from tests.benchmarks.rows import Row, at_most, median_ms, seconds

PAPER_BUDGETS = (500, 875, 1250, 1625, 2000)


# --- import ---

def imports() -> list[Row]:
    code = ("import sys, time; start = time.perf_counter(); import bamas_lite; took = time.perf_counter() - start; "
            "print(took, 'torch' in sys.modules or 'sentence_transformers' in sys.modules)")
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
            for _ in range(7)]
    heavy = any(loaded == "True" for _, loaded in runs)
    took = statistics.median(float(t) for t, _ in runs)
    return [at_most("import bamas_lite, median of 7 processes", took, 0.5, "s", 3),
            Row("... loads torch or sentence-transformers", "yes" if heavy else "no", "no", not heavy)]


# --- provisioning ---

def plain_cbc(pool: Pool, budget: float, copies: int = 5) -> float:
    """The paper's integer program as one writes it down, solved by CBC in floats, nothing checked: the baseline."""
    tiers = [tier[0] for tier in pool.tiers]
    costs = [500 * llm.price_in + llm.max_tokens * llm.price_out for llm in tiers]
    weights: list[float] = []
    for i in reversed(range(len(tiers))):
        weights.insert(0, 1 + sum(w * (budget // c) for w, c in zip(weights, costs[i + 1:], strict=True)))
    problem = pulp.LpProblem("team", pulp.LpMaximize)
    slots = list(itertools.product(range(len(tiers)), range(copies)))
    x = {slot: problem.add_variable(f"x_{slot[0]}_{slot[1]}", cat="Binary") for slot in slots}
    problem += pulp.lpSum(weights[i] * x[i, j] for i, j in slots)
    problem += pulp.lpSum(costs[i] * x[i, j] for i, j in slots) <= budget
    problem += pulp.lpSum(x.values()) >= 2
    problem.solve(pulp.PULP_CBC_CMD(msg=False))
    return pulp.value(problem.objective)


def hundred_llms() -> Pool:
    """100 LLMs in 20 tiers whose prices fall by tier, with odd decimals."""
    return Pool(name="hundred", llms=[
        LLM(name=f"LLM {tier}.{k}", tier=tier, price_in=round(3.01 * 0.8**tier + 0.007 * k, 3),
            price_out=round(12.07 * 0.8**tier + 0.031 * k, 3), max_tokens=384)
        for tier in range(1, 21) for k in range(5)])


def provisioning() -> tuple[list[Row], float]:
    pool, hundred = load_pool("paper"), hundred_llms()
    budgets = [500 + 10 * i for i in range(151)]   # all different, so that nothing can be remembered
    cbc = median_ms([lambda b=b: plain_cbc(pool, b) for b in budgets[::5]])
    ilp = median_ms([lambda b=b: provision(pool, b, method="ilp") for b in budgets])
    exact = median_ms([lambda b=b: provision(pool, b, method="lexicographic") for b in budgets])
    many = [6000 + 37 * i for i in range(15)]
    large = median_ms([lambda b=b: provision(hundred, b, method="lexicographic") for b in many])
    auto = median_ms([lambda b=b: provision(hundred, b) for b in many])
    return [at_most("provision, paper's pool, ILP checked exactly, median of 151 budgets", ilp, 10, "ms"),
            at_most("provision, paper's pool, exact method, median of 151 budgets", exact, 0.5, "ms", 3),
            at_most("provision, 100 LLMs in 20 tiers, exact method, median of 15 budgets", large, 100, "ms"),
            at_most("provision, 100 LLMs in 20 tiers, method auto, median of 15 budgets", auto, 100, "ms"),
            Row("plain PuLP model with CBC, unchecked, paper's pool", f"{cbc:.2f} ms"),
            Row("... ratio to the exact method", f"{cbc / exact:,.0f} x")], cbc / 1000


# --- simulated episodes ---

def episodes(cbc_s: float) -> list[Row]:
    pool, rows = load_pool("paper"), []
    for name, limit, seeds in (("word_problems", 500, 2), ("algebra_calculus", 100, 5), ("python_functions", 100, 5)):
        tasks = load_tasks(name, limit=limit)
        n = len(tasks) * len(PAPER_BUDGETS) * len(TOPOLOGIES)
        start = time.process_time()
        took = [seconds(lambda tasks=tasks, seed=seed: generate_trajectories(
            tasks, PAPER_BUDGETS, pool=pool, backend=SimulatedLLM, seeds=(seed,), progress=False))
            for seed in range(seeds)]
        processor = seeds * n / (time.process_time() - start)
        first, last = n / took[0], n / took[-1]
        goal = {"target": "> 5,000 /s", "met": first > 5000} if name == "word_problems" else {}
        rows += [Row(f"episodes of {name} with grading, {n:,} rows, first seed", f"{first:,.0f} /s", **goal),
                 Row(f"... seed number {seeds}: most grades are remembered", f"{last:,.0f} /s")]
        if name == "word_problems":
            rows.append(Row("... per second of processor time, whatever else is running", f"{processor:,.0f} /s"))
            rows.append(Row("... an ILP by CBC for each episode instead", f"{1 / (1 / first + cbc_s):,.0f} /s"))
            rows.append(Row("... ratio", f"{first * (1 / first + cbc_s):,.0f} x"))
    return rows + memory(pool)


def memory(pool: Pool) -> list[Row]:
    """Python memory that stays after n more episodes, and after 2n more: flat if an episode leaves nothing behind."""
    tasks, budget = load_tasks("word_problems", limit=100), 2000
    team, seeds = provision(pool, budget), itertools.count()

    def play(repeats: int) -> int:
        for _ in range(repeats):
            backend = SimulatedLLM(seed=next(seeds))
            for task, topology in itertools.product(tasks, TOPOLOGIES):
                run_task_sync(task, team, topology, backend, budget)
        return 4 * len(tasks) * repeats

    play(5)   # fills the caches, which are bounded
    tracemalloc.start()
    play(1)
    start = tracemalloc.get_traced_memory()[0]
    n = play(5)
    middle = tracemalloc.get_traced_memory()[0]
    play(10)
    end = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return [Row(f"memory that {n:,} episodes leave behind", f"{(middle - start) / n:,.0f} byte/ep."),
            Row(f"... {2 * n:,} more (a kept trace would be some 10,000)", f"{(end - middle) / (2 * n):,.0f} byte/ep.",
                "< 50 byte/ep.", end - middle < 50 * 2 * n)]


# --- encoding and training ---

def learning() -> list[Row]:
    from bamas_lite import encode, encoder
    from bamas_lite.policy import PAPER_SETTINGS

    tasks = [task for name in ("word_problems", "algebra_calculus", "python_functions") for task in load_tasks(name)]
    questions = list(dict.fromkeys(task.question for task in tasks))[:1000]
    log_tasks = load_tasks("word_problems", limit=500)
    with tempfile.TemporaryDirectory() as folder:
        encoder.COMMITTED, encoder.CACHE = Path(folder) / "none.npz", Path(folder) / "cache.sqlite"
        cold = seconds(lambda: encode(questions))
        encoder._memory.clear()
        cached = seconds(lambda: encode(questions))
        remembered = seconds(lambda: encode(questions))
        log = generate_trajectories(log_tasks, [500 + 150 * i for i in range(10)], pool=load_pool("paper"),
                                    backend=SimulatedLLM(), progress=False)
        encode([task.question for task in log_tasks])
        train_policy(log.head(400), settings=PAPER_SETTINGS["gsm8k"], epochs=1)   # loads torch
        paper = seconds(lambda: train_policy(log, settings=PAPER_SETTINGS["gsm8k"]))
        ours = seconds(lambda: train_policy(log, epochs=10))
    anew = 2 * 10 * len(log) * cold / len(questions)
    return [at_most(f"encoding {len(questions):,} questions, encoder loaded and all", cold, 30, "s", 1),
            Row("... from the cache on disk", f"{cached:.3f} s"),
            Row("... from memory", f"{remembered:.4f} s"),
            at_most(f"training, {len(log):,} rows, 10 epochs, paper's settings", paper, 3, "s"),
            at_most(f"training, {len(log):,} rows, 10 epochs, our settings", ours, 3, "s"),
            Row("... if each row's text were encoded twice an epoch (computed)", f"{anew:,.0f} s"),
            Row("... ratio to ours", f"{anew / ours:,.0f} x")]


def reproduction(n_tasks: int = 60) -> list[Row]:
    """The full run of the reproduction on two processes, from a part of the tasks; questions are encoded beforehand."""
    from bamas_lite import encode
    for name in DATASETS:
        encode([task.question for split in reproduction_tasks(name, limit=n_tasks) for task in split])
    with peak_memory() as peak:
        took = seconds(lambda: reproduce(n_tasks=n_tasks, workers=2))
    parts = sum(data.n_train + data.n_test for data in DATASETS.values()) / (2 * n_tasks * len(DATASETS))
    return [at_most(f"full reproduction, 10 seeds, extrapolated from {n_tasks} tasks a split", took * parts / 60, 10,
                    "min", 1),
            at_most("... its processes beside this one, peak", peak[0], 2, "GiB", 2)]


def main() -> None:
    load = f", load average {os.getloadavg()[0]:.1f} before the start" if hasattr(os, "getloadavg") else ""
    print(f"{versions()}; {os.cpu_count()} processors{load}\n")
    print(f"{'what':<66} {'measured':>16}  target\n{'-' * 104}")
    met: list[bool] = []

    def show(rows: list[Row]) -> None:
        for row in rows:
            print(row, flush=True)
            met.extend([row.met] if row.met is not None else [])

    show(imports())
    rows, cbc_s = provisioning()
    show(rows)
    show(episodes(cbc_s))
    show(sandbox())
    show(calls())
    show(learning())
    show(agentbalance())
    show(reproduction())
    print(f"{'-' * 104}\n{sum(met)} of {len(met)} targets met")


if __name__ == "__main__":
    main()
