"""AgentBalance as reconstructed: training a designer, and deciding for one query."""

import time
from dataclasses import replace

import numpy as np

from tests.benchmarks.rows import Row, at_most, seconds


def agentbalance(n_queries: int = 300) -> list[Row]:
    """Train on the experiments' 500 tasks, then design for single queries that were encoded before."""
    from bamas_lite import encode
    from bamas_lite.agentbalance import studies
    from bamas_lite.agentbalance.training import TrainingResult

    w, trained = studies.world(0), list[TrainingResult]()
    took = seconds(lambda: trained.append(studies.train(w)))
    designer = trained[0].designer
    double = dict.fromkeys(designer.roles, designer.roles["mathematics"] + designer.roles["code"])
    x = encode([task.question for task in w.test])
    rows = [at_most(f"AgentBalance, training on {len(w.train)} queries", took, 60, "s", 1)]
    for name, some in (("6", designer), ("12", replace(designer, roles=double))):
        times = 1000 * np.array([_decide(some, x, w.test, draw) for draw in
                                 np.random.default_rng(0).spawn(n_queries + 20)][20:])   # the first warm it up
        rows += [at_most(f"AgentBalance, deciding for one query, {name} roles, median of {n_queries}",
                         float(np.median(times)), 10, "ms"),
                 Row("... 95th percentile", f"{np.quantile(times, 0.95):.2f} ms")]
    return rows


def _decide(designer, x: np.ndarray, tasks, draw: np.random.Generator) -> float:
    """Seconds for one query with random budgets that every domain can meet."""
    from bamas_lite.agentbalance.budgets import Budgets

    i = draw.integers(len(tasks))
    budgets = Budgets(200 * 32 ** draw.random(), 3 * 20 ** draw.random())
    start = time.perf_counter()
    designer.design(x[i], tasks[i].domain, budgets)
    return time.perf_counter() - start
