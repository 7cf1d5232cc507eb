"""The block of README.md that says how AgentBalance compares, made from the committed outcomes."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from bamas_lite.agentbalance.outcomes import auc_table
from bamas_lite.agentbalance.store import COMMITTED
from bamas_lite.agentbalance.studies import slice_of

BEGIN = "<!-- agentbalance: written by `python -m bamas_lite.agentbalance`, compared by a test -->"
END = "<!-- end of agentbalance -->"
OUTCOMES = COMMITTED.parent / "outcomes.parquet"
SHOWN = ("AgentBalance", "best single LLM", "BAMAS", "BAMAS + edges", "random matching", "topology-first",
         "G-Designer style", "AgentPrune style", "AgentDropout style")
"""Ablations, plug-in and unseen LLMs are in the notebook."""


def results_table(path: Path = OUTCOMES) -> str:
    """Areas under the accuracy-budget curves in Markdown, with the paired advantage of
    AgentBalance as reconstructed."""
    outcomes = pd.read_parquet(path)
    parts = {by: auc_table(slice_of(outcomes, by), by, SHOWN[0], scale="log").set_index("method")
             for by in ("cost_budget", "latency_budget")}
    lines = ["| design (simulated) | mean accuracy over cost budgets, % | advantage of the first row, points | "
             "over latency budgets, % | advantage of the first row, points |", "|---|---|---|---|---|"]
    for name in SHOWN:
        cells = [f"{name}, reconstructed" if name == SHOWN[0] else name]
        for table in parts.values():
            row = table.loc[name]
            cells.append(f"{100 * row.auc:.1f} [{100 * row.low:.1f}, {100 * row.high:.1f}]")
            cells.append("" if name == SHOWN[0] else
                         f"{-100 * row.difference:+.1f} [{-100 * row.difference_high:+.1f}, "
                         f"{-100 * row.difference_low:+.1f}]")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def write_results(readme: Path) -> None:
    """Put the table between its marks in README.md.

    Raises:
        ValueError: the file has no such marks.
    """
    text = readme.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{readme.name}: expected the line {BEGIN} and, after it, {END}")
    readme.write_text(f"{before}{BEGIN}\n\n{results_table()}\n\n{END}{after}", encoding="utf-8")
