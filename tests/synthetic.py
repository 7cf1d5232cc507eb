"""A made-up log with the columns of a real one and a made-up encoder, for tests that need neither."""

import numpy as np
import pandas as pd

from bamas_lite.casting import TOPOLOGIES
from bamas_lite.tasks import Task


def synthetic_log(n_tasks=30, budgets=(500, 1250, 2000), seeds=(0,), seed=0):
    """Tasks, and the full-factorial log of a world in which accuracy depends on level, budget and topology."""
    rng = np.random.default_rng(seed)
    tasks = [Task(f"synthetic/train/{i:04d}", "arithmetic", 1 + i % 5, f"Question {i} of level {1 + i % 5}?", "1")
             for i in range(n_tasks)]
    rows = []
    for s in seeds:
        for task in tasks:
            for B in budgets:
                for t, topology in enumerate(TOPOLOGIES):
                    p = 1 / (1 + np.exp(0.5 * task.level - 1.5 - B / 1500 - (0, 0.3, 0.5 * (task.level > 2), -0.5)[t]))
                    rows.append({"run_id": f"{len(rows):06d}", "task_id": task.task_id, "domain": task.domain,
                                 "level": task.level, "budget": float(B), "topology": topology, "status": "ok",
                                 "correct": bool(rng.random() < p),
                                 "cost": B * (0.4, 0.5, 0.7, 0.9)[t] * rng.uniform(0.5, 1),
                                 "behaviour_prob": 0.25, "backend": "synthetic", "seed": s})
    return tasks, pd.DataFrame(rows)


def pseudo_encode(texts):
    """Vectors of length 1 that depend on the text alone."""
    vectors = np.array([np.random.default_rng(list(t.encode())).normal(size=384) for t in texts]).reshape(-1, 384)
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
