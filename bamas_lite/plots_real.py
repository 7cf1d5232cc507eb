"""Pictures of runs with real LLMs (notebook 08). All take ax=None or axes=None and return matplotlib Axes.

A bar is a 95% interval everywhere; the tables that are drawn say of what.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from bamas_lite.casting import TOPOLOGIES
from bamas_lite.plots_policy import LINE_STYLES, TOPOLOGY_COLORS, label
from bamas_lite.plots_trajectories import MARKERS

LLM_STYLES = (("#000000", "P"), ("#777777", "X"), ("#56B4E9", "h"), ("#D55E00", "d"))
"""Color and marker of each LLM: no topology looks like one."""

POLICY_STYLES = {"cascade": ("#D55E00", "-", "o"), "random": ("#777777", "--", None), "oracle": ("#009E73", ":", None),
                 "star": ("#E69F00", "none", "s")}
"""Color, line style and marker of each policy in a table of cascades."""


def percent(mid: float, low: float, high: float, sign: str = "") -> str:
    """A share with its interval for tables, in percent: "31.6 [24.3, 38.8]"; sign "+" writes one always.

    A value halfway between two roundings goes up, so that the last bits of a float never show.
    """
    mid, low, high = (f"{round(100 * x + 1e-7, 1) + 0.0:{sign}.1f}" for x in (mid, low, high))   # no -0.0
    return f"{mid} [{low}, {high}]"


def plot_against_alone(table: pd.DataFrame, ax: Axes | None = None, bars: bool = True) -> Axes:
    """Accuracy against cost: a line for each topology through its budgets, and each LLM alone.

    Args:
        table: as from `local_study.results`: who ("<LLM> alone" or a topology), budget (u$; NaN for an LLM alone),
            correct with correct_low and correct_high (shares), cost (u$ a task). Numbers beside points are budgets.
        bars: draw the intervals, which say little about lines that were tried on the same tasks.
    """
    ax = ax or plt.subplots(figsize=(7.5, 4.2))[1]
    for k, topology in enumerate(TOPOLOGIES):
        rows = table[table.who == topology].sort_values("budget")
        color = TOPOLOGY_COLORS[topology]
        _points(ax, rows, bars, fmt=LINE_STYLES[k] + MARKERS[k], color=color, label=label(topology))
        for row in rows.itertuples():
            ax.annotate(f"{row.budget:g}", (row.cost, 100 * row.correct), (4, 3), textcoords="offset points", size=7,
                        color=color)
    for (who, rows), (color, marker) in zip(table[table.budget.isna()].groupby("who", sort=False), LLM_STYLES,
                                            strict=False):
        _points(ax, rows, bars, fmt=marker, color=color, label=who, ms=9)
        ax.axhline(100 * rows.correct.iloc[0], color=color, lw=0.8, ls=":")
    ax.set(xlabel="cost (u$ a task)", ylabel="right answers (%)", xlim=(0, None))
    if not bars:    # as wide as with them: what is less than an interval should not look large
        ax.set_ylim(100 * table.correct_low.min() - 1, 100 * table.correct_high.max() + 1)
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    ax.grid(alpha=0.3)
    return ax


def _points(ax: Axes, rows: pd.DataFrame, bars: bool, **style: object) -> None:
    error = 100 * _ends(rows.correct, rows.correct_low, rows.correct_high) if bars else None
    ax.errorbar(rows.cost, 100 * rows.correct, yerr=error, elinewidth=1, capsize=2.5, lw=1.3, **({"ms": 5} | style))


def plot_gaps(tables: Mapping[str, pd.DataFrame], axes: Sequence[Axes] | None = None) -> np.ndarray:
    """Paired differences in accuracy, a panel for each thing to compare with: a line a budget and topology.

    Args:
        tables: title of the panel -> table as from `local_study.against_alone`: budget (u$), topology, difference, low,
            high (shares). All with the same lines in the same order.
        axes: one for each table.
    """
    if axes is None:
        n_lines = len(next(iter(tables.values())))
        axes = plt.subplots(1, len(tables), figsize=(10, 1.1 + 0.24 * n_lines), sharex=True, sharey=True, squeeze=False,
                            layout="constrained")[1][0]
    for ax, (title, table) in zip(axes, tables.items(), strict=True):
        y = -np.arange(len(table))
        for topology, marker in zip(TOPOLOGIES, MARKERS, strict=True):
            k = (table.topology == topology).to_numpy()
            ax.hlines(y[k], 100 * table.low[k], 100 * table.high[k], color=TOPOLOGY_COLORS[topology], lw=1.8)
            ax.plot(100 * table.difference[k], y[k], marker, color=TOPOLOGY_COLORS[topology], ms=5)
        ax.axvline(0, color="#333333", lw=1, zorder=0)
        ax.set(title=title, xlabel="difference (points of accuracy)")
        ax.set_yticks(y, [f"{row.budget:g} u$, {label(row.topology)}" for row in table.itertuples()])
        ax.grid(axis="x", alpha=0.3)
    return np.asarray(axes)


def plot_critics(table: pd.DataFrame, segments: Mapping[str, Sequence[tuple[float, float]]] | None = None,
                 kinds: pd.DataFrame | None = None, ax: Axes | None = None) -> Axes:
    """Critics by how often they reject right answers (across) and wrong ones (up). On the diagonal they merely guess.

    Args:
        table: as from `critic_rates`: llm, false_alarm and hit, each with _low and _high (shares).
        segments: name -> points (false alarm, hit), joined by a line: the critics that a simulator can have.
        kinds: the same for each kind of task, with a column kind: small points, named.
    """
    ax = ax or plt.subplots(figsize=(5, 4.2))[1]
    ax.plot([0, 100], [0, 100], ":", color="#777777", lw=1, label="does not look at the answer")
    for (name, points), color in zip((segments or {}).items(), ("#0072B2", "#E69F00", "#009E73", "#CC79A7"),
                                     strict=False):
        x, y = 100 * np.array(points).T
        ax.plot(x, y, "o-", color=color, mfc="none", ms=5, lw=1.2, label=name)
    across, up = (100 * _ends(table[name], table[f"{name}_low"], table[f"{name}_high"]) for name in
                  ("false_alarm", "hit"))
    for k, (row, (color, marker)) in enumerate(zip(table.itertuples(), LLM_STYLES, strict=False)):
        ax.errorbar(100 * row.false_alarm, 100 * row.hit, xerr=across[:, [k]], yerr=up[:, [k]], fmt=marker, color=color,
                    ms=9, capsize=2.5, elinewidth=1, label=row.llm)
        if kinds is not None:
            for number, part in enumerate(kinds[kinds.llm == row.llm].itertuples()):
                at = 100 * part.false_alarm, 100 * part.hit
                ax.plot(*at, marker, color=color, mfc="none", ms=6)
                side = -1 if part.false_alarm > 0.6 else 1     # names stay inside
                ax.annotate(part.kind, at, (7 * side, (-9, 4)[k % 2] + 9 * (number % 2)), textcoords="offset points",
                            size=7, color=color, ha="right" if side < 0 else "left")
    ax.set(xlabel="right answers rejected (%)", ylabel="wrong answers rejected (%)", xlim=(-5, 105), ylim=(-7, 112))
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    return ax


def plot_prediction(table: pd.DataFrame, axes: Sequence[Axes] | None = None) -> np.ndarray:
    """Predicted against recorded, a panel a quantity: a point a cell, hollow where the prediction's interval misses.

    Args:
        table: as from `simulator_check.compare`.
        axes: one for accuracy and one for cost.
    """
    if axes is None:
        axes = plt.subplots(1, 2, figsize=(10.5, 4.2), layout="constrained")[1]
    for ax, (quantity, scale, unit) in zip(axes, (("accuracy", 100, "right answers (%)"), ("cost", 1, "u$ a task")),
                                           strict=True):
        part = table[table.quantity == quantity]
        x, y = scale * part.recorded, scale * part.predicted
        across = scale * _ends(part.recorded, part.recorded_low, part.recorded_high)
        up = scale * _ends(part.predicted, part.predicted_low, part.predicted_high)
        for (topology, inside), rows in part.reset_index(drop=True).groupby(["topology", "covered"]).groups.items():
            color = TOPOLOGY_COLORS[topology]
            ax.errorbar(x.iloc[rows], y.iloc[rows], xerr=across[:, rows], yerr=up[:, rows], ls="none", ms=6,
                        marker=MARKERS[TOPOLOGIES.index(topology)], color=color, mfc=color if inside else "white",
                        elinewidth=0.7, alpha=0.9)
        least, most = min(x.min(), y.min()), max(x.max(), y.max())
        ax.plot([least, most], [least, most], ":", color="#333333", lw=1)
        ax.set(title=quantity, xlabel=f"recorded: {unit}", ylabel=f"predicted: {unit}")
        ax.grid(alpha=0.3)
    for k, topology in enumerate(TOPOLOGIES):
        axes[-1].plot([], [], MARKERS[k], color=TOPOLOGY_COLORS[topology], label=label(topology))
    axes[-1].plot([], [], "o", color="#333333", mfc="white", label="hollow: not covered")
    axes[-1].legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    return np.asarray(axes)


def _ends(mid: pd.Series, low: pd.Series, high: pd.Series) -> np.ndarray:
    """Lengths of error bars, (2, n)."""
    return np.maximum([mid - low, high - mid], 0)


def plot_cascades(table: pd.DataFrame, names: Mapping[str, str], ax: Axes | None = None) -> Axes:
    """Accuracy against cost of two LLMs together: policies along their budgets, and each LLM alone.

    Args:
        table: as from `cascade_table`, under one reading.
        names: policy of a line without a budget (each LLM alone, the Star of both) -> what the legend calls it.
    """
    ax = ax or plt.subplots(figsize=(7.5, 4.2))[1]
    for policy, (color, line, marker) in POLICY_STYLES.items():
        rows = table[(table.policy == policy) & table.budget.notna()].sort_values("cost")
        error = None
        if marker:
            error = 100 * _ends(rows.accuracy, rows.accuracy_low, rows.accuracy_high)
        what = "escalates at random" if policy == "random" else f"{policy}, by budget"
        ax.errorbar(rows.cost, 100 * rows.accuracy, yerr=error, color=color, ls=line, marker=marker, ms=5, capsize=2.5,
                    elinewidth=1, label=what)
    for (policy, name), (color, marker) in zip(names.items(), LLM_STYLES, strict=False):
        row = table[(table.policy == policy) & table.budget.isna()]
        hollow = {"mfc": "none"} if marker == "h" else {}   # it may lie on another point
        ax.plot(row.cost, 100 * row.accuracy, marker, color=color, ms=9, label=name, **hollow)
    ax.set(xlabel="mean cost (u$ a question)", ylabel="right answers (%)", xlim=(0, None))
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    ax.grid(alpha=0.3)
    return ax
