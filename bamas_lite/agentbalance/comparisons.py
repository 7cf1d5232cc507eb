"""Who is better at matched budgets: at each of them, and by three kinds of area under the curves.

AgentBalance compares by areas; which kinds, and what counts as better, is our reconstruction.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from bamas_lite.agentbalance.outcomes import By, auc_table, curves

AREAS: dict[str, dict[str, Any]] = {
    "log": {"scale": "log"},
    "linear": {"scale": "linear"},
    "spend": {"scale": "linear", "against": "spend"},
}
"""Options of `auc_table`. "log": every doubling of the budget counts the same; "linear": budgets as they are, so that
the largest ones count most; "spend": the best accuracy at a mean spend of at most B, not at a budget of B."""

SAYS = ("better", "worse", "not shown")


def says(low: float, high: float) -> str:
    """What an interval of a difference says: "better" or "worse" if it lies on one side of zero, else "not shown"."""
    return "better" if low > 1e-9 else "worse" if high < -1e-9 else "not shown"   # 1e-9: sums of floats


def compare(outcomes: pd.DataFrame, by: By, reference: str, *, scale: str = "log", resamples: int = 2000
            ) -> pd.DataFrame:
    """Areas of all methods and their paired differences from a reference, with what each kind of area says.

    Args:
        outcomes, by, reference, resamples: as for `auc_table`.
        scale: "log" or "linear", the kind of the areas that are shown.

    Returns:
        `auc_table`, indexed by method, best area first. Column `says`: what the difference says of the method,
        compared with the reference; a column for each other kind of AREAS with what that one says.

    Raises:
        ValueError: as `auc_table`.
    """
    def area(**options: Any) -> pd.DataFrame:
        table = auc_table(outcomes, by, reference, resamples=resamples, **options).set_index("method", drop=False)
        return table.assign(says=[says(*ends) for ends in zip(table.difference_low, table.difference_high,
                                                             strict=True)])

    others = {name: area(**options).says for name, options in AREAS.items() if name != scale}
    return area(scale=scale).assign(**others).sort_values("auc", ascending=False, kind="stable")


def by_budget(outcomes: pd.DataFrame, by: By, reference: str, *, resamples: int = 2000) -> pd.DataFrame:
    """`curves` with paired differences from a reference at each budget, and in the column `says` what each one says.

    Raises:
        ValueError: as `curves`.
    """
    table = curves(outcomes, by, reference, resamples=resamples)
    return table.assign(says=[says(low, high) for low, high in zip(table.difference_low, table.difference_high,
                                                                  strict=True)])


def in_words(table: pd.DataFrame, method: str) -> str:
    """One method's row of `compare` in words, other kinds of areas where they say something else: "worse (linear: not
    shown)"."""
    row = table.loc[method]
    changed = ", ".join(f"{name}: {row[name]}" for name in AREAS if name in table and row[name] != row.says)
    return row.says + f" ({changed})" * bool(changed)


def budgets_in_words(table: pd.DataFrame, method: str) -> str:
    """One method's rows of `by_budget` in words: "better at 1, worse at 4, 10, not shown at 60"."""
    rows = table[table.method == method]
    found = {what: [f"{budget:g}" for budget in rows.budget[rows.says == what]] for what in SAYS}
    return "; ".join(f"{what} at {', '.join(budgets)}" for what, budgets in found.items() if budgets)
