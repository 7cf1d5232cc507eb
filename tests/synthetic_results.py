"""Made-up result tables in the formats of data/reproduction/, for tests of findings and figures."""

import numpy as np
import pandas as pd

from bamas_lite.casting import TOPOLOGIES
from bamas_lite.reproduction.predicates import OURS, PUBLISHED
from bamas_lite.reproduction.published import DATASETS, load_counts, load_published

SHARES = {"GSM8K": (0.33, 0.3, 0.37, 0.0), "MBPP": (0.8, 0.1, 0.1, 0.0), "MATH": (0.2, 0.1, 0.7, 0.0)}


def rows(shift=0.0, scale=1.0, half=1.0, over=True):
    """As many tasks as the paper has: accuracy = published + shift, cost = published * scale, +- half points and 5%."""
    counts = load_counts().set_index(["dataset", "budget"]).out_of_budget
    table = []
    for row in load_published().itertuples():
        n = DATASETS[row.dataset].n_test
        right, cost = row.accuracy_percent + shift, row.avg_cost_microusd * scale
        mine = {"dataset": row.dataset, "system": PUBLISHED if row.system == "BAMAS" else row.system,
                "setting": row.setting, "n_tasks": n, "n_seeds": 10,
                "accuracy": right, "accuracy_low": right - half, "accuracy_high": right + half,
                "cost": cost, "cost_low": 0.95 * cost, "cost_high": 1.05 * cost, "label": "synthetic"}
        if row.system == "BAMAS":
            k = float(counts[row.dataset, row.budget]) if over else 0.0
            mine |= {"over_budget": k, "over_low": 0.8 * k, "over_high": 1.2 * k}
            mine |= {f"share_{t}": s for t, s in zip(TOPOLOGIES, SHARES[row.dataset], strict=True)}
            table.append(mine | {"system": OURS, "accuracy": right + 1, "accuracy_low": right + 0.5,
                                 "accuracy_high": right + 1.5, "over_budget": 0.0, "over_low": 0.0, "over_high": 0.0})
        else:
            mine |= {"over_budget": 0.0, "over_low": 0.0, "over_high": 0.0}
        table.append(mine)
    return pd.DataFrame(table)


def draws(n=200, seed=0, datasets=tuple(DATASETS)):
    """Draws in which every finding holds for the policies, whatever the parameters."""
    rng, table = np.random.default_rng(seed), []
    for name in datasets:
        budgets = DATASETS[name].budgets
        for k in range(n):
            row = {"dataset": name, "draw": k} | dict(zip(("critic.hit", "repair", "step_shift"), rng.uniform(size=3),
                                                          strict=True))
            for i, budget in enumerate(budgets):
                poor = np.array([0.9, 0.1, 0.0, 0.0] if name == "MBPP" else [0.55, 0.15, 0.3, 0.0])
                shares = poor if i == 0 else (np.array(SHARES[name]) * len(budgets) - poor) / (len(budgets) - 1)
                for system in (PUBLISHED, OURS):
                    row |= {f"{system}/{budget}/accuracy": 80.0 + i, f"{system}/{budget}/cost": 0.4 * budget,
                            f"{system}/{budget}/over": 0.0}
                    row |= {f"{system}/{budget}/share_{t}": s for t, s in zip(TOPOLOGIES, shares, strict=True)}
                for t, topology in enumerate(TOPOLOGIES):
                    row |= {f"always {topology}/{budget}/accuracy": 70.0 + (2, 1, 3, 0)[t],
                            f"always {topology}/{budget}/cost": 100.0 + t}
            table.append(row)
    return pd.DataFrame(table)
