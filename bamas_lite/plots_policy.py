"""Pictures of a policy: how it was trained, what it chooses where, what it is worth. All return matplotlib Axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from bamas_lite.casting import TOPOLOGIES

TOPOLOGY_COLORS = {"linear": "#0072B2", "star": "#E69F00", "feedback": "#009E73", "planner_driven": "#CC79A7"}
"""Okabe-Ito: told apart by color-blind eyes; hatches tell them apart in grey."""
TOPOLOGY_HATCHES = {"linear": "", "star": "//", "feedback": "..", "planner_driven": "xx"}
LINE_STYLES = ("-", "--", ":", "-.")


def label(topology: str) -> str:
    """A topology's name for readers: "planner_driven" -> "planner-driven"."""
    return topology.replace("_", "-")


def plot_training(histories: Mapping[str, pd.DataFrame], column: str = "reward", *, ylabel: str = "mean reward",
                  ax: Axes | None = None) -> Axes:
    """A column of training histories over the epochs, one line a training run."""
    ax = ax or plt.subplots(figsize=(6, 3.2))[1]
    for (name, history), color, style in zip(histories.items(), TOPOLOGY_COLORS.values(), LINE_STYLES, strict=False):
        ax.plot(history.epoch, history[column], style, color=color, label=name)
    ax.set(xlabel="epoch", ylabel=ylabel)
    ax.legend(frameon=False)
    return ax


def plot_ends(worlds: Mapping[str, Sequence[float]], ends: Mapping[str, np.ndarray],
              axes: Sequence[Axes] | None = None) -> np.ndarray:
    """Where losses end in worlds of one state: one panel a world, its rewards below, one bar for each loss.

    Black lines, where the sum S of the rewards is positive: (R - lambda)^+ / S, with the lambda that makes it sum to 1
    (0 where no reward is negative). There the published loss ends.

    Args:
        worlds: name -> rewards of the topologies, (k,).
        ends: name of the loss -> probabilities, (number of worlds, k).
        axes: one for each world.
    """
    if axes is None:
        axes = plt.subplots(1, len(worlds), figsize=(11, 3), sharey=True, layout="constrained")[1]
        axes[0].set_ylabel("probability at the end")
    width = 0.8 / len(ends)
    for w, (ax, (world, rewards)) in enumerate(zip(axes, worlds.items(), strict=True)):
        R = np.asarray(rewards, float)
        x = np.arange(len(R))
        for k, (name, end) in enumerate(ends.items()):
            ax.bar(x + width * (k - (len(ends) - 1) / 2), end[w], 0.93 * width, label=name,
                   color=("#56B4E9", "#0072B2", "#D55E00")[k % 3])
        if R.sum() > 0:
            ax.plot(x, _published_end(R), "k_", ms=22, mew=2, label=r"$(R - \lambda)^+ / S$")
        ax.set(title=world, xlabel="reward of each topology", ylim=(0, 1.05))
        ax.set_xticks(x, [f"{round(v, 3):g}" for v in R])
    axes[0].figure.legend(*axes[0].get_legend_handles_labels(), frameon=False, loc="outside lower center", ncols=4)
    return np.asarray(axes)


def _published_end(R: np.ndarray) -> np.ndarray:
    """(R - lambda)^+ / S for S > 0: with the m largest rewards above lambda, lambda = (their sum - S) / m."""
    largest, S = np.sort(R)[::-1], R.sum()
    lambdas = (np.cumsum(largest) - S) / np.arange(1, len(R) + 1)
    return np.maximum(R - lambdas[np.flatnonzero(largest > lambdas)[-1]], 0) / S


def plot_policy_map(shares: pd.DataFrame, rows: str, axes: Sequence[Axes] | None = None) -> np.ndarray:
    """Mean probability of each topology: one panel a topology, budgets across, `rows` (domain, level) down.

    Args:
        shares: columns `budget` (u$), `rows`, and share_<topology>; one line for each pair of budget and row.
        rows: the column that goes down.
        axes: four axes to draw in.
    """
    if axes is None:
        n_rows = shares[rows].nunique()
        axes = plt.subplots(1, len(TOPOLOGIES), figsize=(11, 1.3 + 0.42 * n_rows), sharey=True, layout="constrained")[1]
    for ax, topology in zip(axes, TOPOLOGIES, strict=True):
        grid = shares.pivot(index=rows, columns="budget", values=f"share_{topology}")
        ax.imshow(grid, cmap="cividis", vmin=0, vmax=1, aspect="auto")
        for (i, j), share in np.ndenumerate(grid.to_numpy()):
            if np.isfinite(share):
                ax.text(j, i, f"{share:.2f}", ha="center", va="center", size=8,
                        color="white" if share < 0.55 else "black")
        ax.set(title=label(topology), xlabel="budget (u$)")
        ax.set_xticks(range(grid.shape[1]), [f"{b:g}" for b in grid.columns], rotation=45)
        ax.set_yticks(range(grid.shape[0]), [str(name) for name in grid.index])
    axes[0].set_ylabel(rows)
    return np.asarray(axes)


def plot_values(values: pd.DataFrame, metrics: Sequence[str] = ("correct", "cost"),
                axes: Sequence[Axes] | None = None) -> np.ndarray:
    """Dots with intervals, one line a choice: a table from `evaluate` (or `differences`, whose zero is drawn)."""
    names = {"correct": "right answers (%)", "cost": "cost (u$ a task)", "reward": "reward a task"}
    if axes is None:
        axes = plt.subplots(1, len(metrics), figsize=(10, 0.9 + 0.3 * len(values)), sharey=True, squeeze=False,
                            layout="constrained")[1][0]
    y = np.arange(len(values))[::-1]
    for ax, metric in zip(axes, metrics, strict=True):
        scale = 100 if metric == "correct" else 1
        low, mid, high = (scale * values[column].to_numpy() for column in (f"{metric}_low", metric, f"{metric}_high"))
        own = values.choice.str.startswith("policy").to_numpy()
        for mine, color, marker in ((True, "#D55E00", "D"), (False, "#333333", "o")):
            if (own == mine).any():
                k = own == mine
                ax.hlines(y[k], low[k], high[k], color=color, lw=1.6)
                ax.plot(mid[k], y[k], marker, color=color, ms=5)
        if (low < 0).any():
            ax.axvline(0, color="#999999", lw=1, zorder=0)
        ax.set_xlabel(names[metric])
        ax.grid(axis="x", alpha=0.3)
    axes[0].set_yticks(y, [label(name) for name in values.choice])
    return np.asarray(axes)


def plot_shares(values: pd.DataFrame, along: str, *, xlabel: str, ax: Axes | None = None) -> Axes:
    """How often each topology is chosen, stacked: one bar for each line of a table with share_<topology>."""
    ax = ax or plt.subplots(figsize=(6, 3.2))[1]
    x, bottom = np.arange(len(values)), np.zeros(len(values))
    for topology in TOPOLOGIES:
        share = 100 * values[f"share_{topology}"].to_numpy()
        ax.bar(x, share, bottom=bottom, width=0.7, color=TOPOLOGY_COLORS[topology], hatch=TOPOLOGY_HATCHES[topology],
               edgecolor="white", label=label(topology))
        bottom += share
    ax.set_xticks(x, [f"{v:g}" if isinstance(v, (int, float)) else str(v) for v in values[along]])
    ax.set(xlabel=xlabel, ylabel="chosen (% of states)", ylim=(0, 100))
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    return ax
