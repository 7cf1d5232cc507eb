"""The block of README.md that says how AgentBalance compares, made from the committed outcomes."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from bamas_lite.agentbalance.comparisons import budgets_in_words, by_budget, compare, in_words
from bamas_lite.agentbalance.store import COMMITTED
from bamas_lite.agentbalance.studies import slice_of
from bamas_lite.agentbalance.variants import ABLATIONS, BAMAS_EDGES, NOT_TRAINED, OURS, STYLES, TOPOLOGY_FIRST
from bamas_lite.plots_real import percent

BEGIN = "<!-- agentbalance: written by `python -m bamas_lite.agentbalance`, compared by a test -->"
END = "<!-- end of agentbalance -->"
OUTCOMES = COMMITTED.parent / "outcomes.parquet"
AT_EACH_BUDGET = ("best single LLM", "BAMAS", "random matching")
SHOWN = ("best single LLM", "BAMAS", "star", BAMAS_EDGES.name, TOPOLOGY_FIRST.name, *(v.name for v in STYLES),
         *(v.name for v in (*ABLATIONS, *NOT_TRAINED)))
"""The other topologies, plug-in and unseen LLMs are in the notebook."""


def results_table(path: Path = OUTCOMES) -> str:
    """Areas under the accuracy-budget curves in Markdown, paired differences from AgentBalance as reconstructed with
    what they say, and at which single budgets there is a difference."""
    outcomes = pd.read_parquet(path)
    outcomes = outcomes[outcomes.method.isin([OURS.name, *SHOWN])]
    parts, at_each = {}, {}
    for by in ("cost_budget", "latency_budget"):
        rows = slice_of(outcomes, by)
        parts[by] = compare(rows, by, OURS.name)
        at_each[by] = by_budget(rows[rows.method.isin([OURS.name, *AT_EACH_BUDGET])], by, OURS.name)
    lines = ["| design (simulated) | mean accuracy over cost budgets, % | compared with the first row, points | "
             "over latency budgets, % | compared with the first row, points |", "|---|---|---|---|---|"]
    for name in (OURS.name, *SHOWN):
        cells = [OURS.title if name == OURS.name else name]
        for table in parts.values():
            row = table.loc[name]
            cells.append(percent(row.auc, row.low, row.high))
            cells.append("" if name == OURS.name else
                         f"{percent(row.difference, row.difference_low, row.difference_high, '+')} "
                         f"{in_words(table, name)}")
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "Compared with AgentBalance, reconstructed, at single budgets (simulated):", ""]
    for name in AT_EACH_BUDGET:
        lines.append(f"- {name}, by cost budget (u$): {budgets_in_words(at_each['cost_budget'], name)}. By latency "
                     f"budget (s): {budgets_in_words(at_each['latency_budget'], name)}.")
    edges = outcomes.assign(edge=outcomes.n_edges > 0).groupby("method", observed=True).edge.mean()
    talkers = (OURS.name, TOPOLOGY_FIRST.name, *(v.name for v in STYLES), BAMAS_EDGES.name)
    lines += ["", "Episodes in which at least one agent hands its text to another one: "
              + ", ".join(f"{name} {100 * edges[name]:.1f}%" for name in talkers)
              + ". Without an edge, agents vote, and designs differ by which LLMs vote."]
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
