"""Pictures of the simulated LLM and of an offline log. All take ax=None and return matplotlib Axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from bamas_lite.casting import TOPOLOGIES
from bamas_lite.plots_policy import LINE_STYLES, TOPOLOGY_COLORS, label

MARKERS = ("o", "s", "^", "D")
LLM_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")
"""Okabe-Ito, told apart by color-blind eyes; markers and line styles tell the LLMs apart in grey."""


def plot_calibration(points: pd.DataFrame, *, formula: str = "closed form", title: str = "",
                     ax: Axes | None = None) -> Axes:
    """Measured accuracy of single calls against the closed form, over the levels.

    Args:
        points: one line for each LLM and level: `llm`, `level`, `expected`, `measured`, `low`, `high` (all shares).
        formula: what the legend calls the lines.
        title: of the axes.
    """
    ax = ax or plt.subplots(figsize=(5, 3.4))[1]
    for k, (llm, rows) in enumerate(points.groupby("llm", sort=False)):
        color, shift = LLM_COLORS[k % len(LLM_COLORS)], 0.16 * (k - 0.5)
        ax.plot(rows.level, 100 * rows.expected, LINE_STYLES[k % 4], color=color, lw=1.4)
        _with_intervals(ax, rows.level + shift, rows.measured, rows.low, rows.high, 100, fmt=MARKERS[k % 4],
                        color=color, label=llm)
    ax.plot([], [], color="#555555", lw=1.4, label=f"line: {formula}")
    ax.set(xlabel="level", ylabel="right (% of calls)", title=title, xticks=sorted(points.level.unique()))
    return ax


def plot_pairs(pairs: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """How often two calls are both wrong: measured, by the closed form, and if errors were independent.

    Args:
        pairs: one line a pair: `pair` (its name), `measured`, `low`, `high`, `expected`, `independent` (shares).
    """
    ax = ax or plt.subplots(figsize=(7, 0.9 + 0.5 * len(pairs)))[1]
    y = np.arange(len(pairs))[::-1]
    error = 100 * np.array([pairs.measured - pairs.low, pairs.high - pairs.measured])
    ax.errorbar(100 * pairs.measured, y, xerr=error, fmt="o", color="#333333", capsize=3,
                label="measured, 95% interval")
    ax.plot(100 * pairs.expected, y, "D", mfc="none", ms=9, color="#D55E00", label="closed form")
    ax.plot(100 * pairs.independent, y, "x", ms=8, color="#0072B2", label="if independent")
    ax.set_yticks(y, pairs.pair)
    ax.set(xlabel="both calls wrong (% of tasks)", xlim=(0, None), ylim=(-0.5, len(pairs) - 0.5))
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    ax.grid(axis="x", alpha=0.3)
    return ax


def plot_estimates(estimates: Sequence[float], exact: float, *, std: float, ax: Axes | None = None) -> Axes:
    """Estimates of one value from logs with one action per state (shares), and the value from the full factorial.

    Args:
        estimates: one for each log.
        exact: the value that all of them estimate.
        std: their standard deviation by the closed form: its normal curve is drawn.
    """
    ax = ax or plt.subplots(figsize=(6, 3.2))[1]
    percent = 100 * np.asarray(estimates)
    ax.hist(percent, bins=25, density=True, color="#9ECAE1", edgecolor="white", label="one action logged per state")
    x = 100 * np.linspace(exact - 4 * std, exact + 4 * std, 200)
    ax.plot(x, np.exp(-((x / 100 - exact) / std) ** 2 / 2) / (100 * std * np.sqrt(2 * np.pi)), "--", color="#333333",
            label="closed form")
    ax.axvline(100 * exact, color="#D55E00", lw=2, label="every action logged")
    ax.set(xlabel="estimated accuracy (%)", ylabel="density")
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    return ax


def plot_by_topology(values: pd.DataFrame, along: str, metric: str = "correct", *, xlabel: str, ylabel: str,
                     ax: Axes | None = None) -> Axes:
    """A metric with its intervals along a column, one line a topology.

    Args:
        values: as from `experiments.evaluate(..., by=along)` for choices that are named as topologies.
        along: "budget" or "level".
        metric: "correct" (drawn in percent), "cost" or "reward".
    """
    ax = ax or plt.subplots(figsize=(5, 3.4))[1]
    scale = 100 if metric == "correct" else 1
    places = sorted(values[along].unique())
    step = min(np.diff(places), default=1)
    for k, topology in enumerate(TOPOLOGIES):
        rows = values[values.choice == topology]
        _with_intervals(ax, rows[along] + 0.09 * step * (k - 1.5), rows[metric], rows[f"{metric}_low"],
                        rows[f"{metric}_high"], scale, fmt=LINE_STYLES[k] + MARKERS[k],
                        color=TOPOLOGY_COLORS[topology], label=label(topology))
    ax.set(xlabel=xlabel, ylabel=ylabel)
    ax.set_xticks(places, [f"{place:g}" for place in places])
    ax.grid(axis="y", alpha=0.3)
    return ax


def plot_disagreement(shares: np.ndarray, *, most: float | None = None, title: str = "",
                      ax: Axes | None = None) -> Axes:
    """For each pair of topologies how often the one of the row is right where the one of the column is wrong.

    Args:
        shares: (4, 4) in the order of TOPOLOGIES; the diagonal is left empty.
        most: share at the end of the color scale, to compare several panels; None: the largest one of `shares`.
        title: of the axes.
    """
    ax = ax or plt.subplots(figsize=(4.4, 3.6))[1]
    percent = np.where(np.eye(len(shares), dtype=bool), np.nan, 100 * shares)
    end = np.nanmax(percent) if most is None else 100 * most
    ax.imshow(percent, cmap="cividis", vmin=0, vmax=end)
    for (i, j), value in np.ndenumerate(percent):
        if np.isfinite(value):
            ax.text(j, i, f"{value:.1f}", ha="center", va="center", color="white" if value < end / 2 else "black")
    names = [label(topology) for topology in TOPOLOGIES]
    ax.set_xticks(range(len(names)), names, rotation=30, ha="right")
    ax.set_yticks(range(len(names)), names)
    ax.set(xlabel="is wrong", ylabel="is right", title=title)
    return ax


def plot_chooser(chooser: Mapping[int, tuple[float, float, float]], lines: Mapping[str, float],
                 ax: Axes | None = None) -> Axes:
    """Accuracy of a chooser against the number of seeds it has seen, between horizontal lines to compare it with.

    Args:
        chooser: number of seeds -> (share right, low, high).
        lines: name -> share right.
    """
    ax = ax or plt.subplots(figsize=(6, 3.4))[1]
    mid, low, high = 100 * np.array(list(chooser.values())).T
    ax.errorbar(list(chooser), mid, yerr=[mid - low, high - mid], fmt="o-", color="#0072B2", capsize=3,
                label="chooser, 95% interval")
    for (name, value), style, color in zip(lines.items(), LINE_STYLES[1:], ("#333333", "#D55E00", "#009E73"),
                                           strict=False):
        ax.axhline(100 * value, ls=style, color=color, label=name)
    ax.set_xscale("log", base=2)
    ax.set_xticks(list(chooser), [str(k) for k in chooser])
    ax.set(xlabel="seeds seen of each task", ylabel="right on other seeds (%)")
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    return ax


def _with_intervals(ax: Axes, x: pd.Series, mid: pd.Series, low: pd.Series, high: pd.Series, scale: float,
                    **style: object) -> None:
    ax.errorbar(x, scale * mid, yerr=scale * np.array([mid - low, high - mid]), ms=4.5, lw=1.4, elinewidth=1,
                capsize=2.5, **style)
