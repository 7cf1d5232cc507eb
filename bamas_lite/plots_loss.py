"""Pictures of a loss: where logits go, what ten steps choose, when training settles. All return matplotlib Axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from bamas_lite.casting import TOPOLOGIES
from bamas_lite.plots_policy import LINE_STYLES, TOPOLOGY_COLORS, TOPOLOGY_HATCHES, label

_CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(0.75)]])
_COLORS = tuple(TOPOLOGY_COLORS.values())


def plot_paths(paths: Mapping[str, np.ndarray], ends: np.ndarray | None = None, *, names: Sequence[str] | None = None,
               ax: Axes | None = None) -> Axes:
    """Probabilities over the steps of training, one color an action, one line style a way of training.

    Args:
        paths: name -> (steps + 1, k).
        ends: where they should end, (k,): short black bars at the right edge.
        names: of the k actions.
        ax: to draw in.
    """
    ax = ax or plt.subplots(figsize=(5, 3), layout="constrained")[1]
    k = next(iter(paths.values())).shape[1]
    names = [f"no. {i + 1}" for i in range(k)] if names is None else names
    for (way, path), style in zip(paths.items(), LINE_STYLES, strict=False):
        for i, color in enumerate(_COLORS[:k]):
            ax.plot(np.arange(len(path)) + 1, path[:, i], style, color=color)
        ax.plot([], [], style, color="#333333", label=way)
    for i, color in enumerate(_COLORS[:k]):
        ax.plot([], [], "s", color=color, label=names[i])
    if ends is not None:
        last = max(len(path) for path in paths.values())
        ax.plot(np.full(k, 1.6 * last), ends, "k_", ms=12, mew=2.5, label="formula")
    ax.set(xlabel="steps + 1", ylabel="probability", xscale="log", ylim=(-0.03, 1.03))
    return ax


def plot_simplex(path: np.ndarray, *, names: Sequence[str] = ("1", "2", "3"), attracts: np.ndarray | None = None,
                 repels: np.ndarray | None = None, ax: Axes | None = None) -> Axes:
    """Paths of pi over three actions, as lines in a triangle: each corner is a policy that always takes one action.

    A line has the color of the corner that it ends nearest to.

    Args:
        path: (steps + 1, n starts, 3).
        names: of the corners: left, right, top.
        attracts: a point (3,) that the paths should end at: a black star.
        repels: a point (3,) that they should run away from: a black cross.
        ax: to draw in.
    """
    ax = ax or plt.subplots(figsize=(3.6, 3.4), layout="constrained")[1]
    ax.fill(*_CORNERS.T, facecolor="none", edgecolor="#666666", lw=1)
    where = path @ _CORNERS
    for n in range(path.shape[1]):
        color = _COLORS[int(path[-1, n].argmax())]
        ax.plot(*where[:, n].T, color=color, lw=1.1, alpha=0.8)
        ax.plot(*where[0, n], "o", color=color, ms=3)
    for point, marker in ((attracts, "*"), (repels, "X")):
        if point is not None:
            ax.plot(*(np.asarray(point) @ _CORNERS), marker, color="black", ms=11, mec="white", zorder=4)
    for name, corner, va in zip(names, _CORNERS, ("top", "top", "bottom"), strict=True):
        ax.annotate(name, corner, xytext=(0, -6 if va == "top" else 5), textcoords="offset points", ha="center", va=va,
                    size=9)
    ax.set(xlim=(-0.15, 1.15), ylim=(-0.12, 1.0), aspect="equal")
    ax.axis("off")
    return ax


def plot_greedy_shares(rows: Mapping[str, pd.DataFrame], axes: np.ndarray | None = None) -> np.ndarray:
    """Which topology a greedy choice takes, over seeds: a grid of stacked bars, one column a budget scaling.

    Args:
        rows: title of a row of panels -> table with the columns scaling, seed and share_<topology>.
        axes: (number of rows, number of scalings) to draw in.
    """
    scalings = list(dict.fromkeys(name for table in rows.values() for name in table.scaling))
    if axes is None:
        axes = plt.subplots(len(rows), len(scalings), figsize=(10, 0.9 + 1.45 * len(rows)), sharex=True, sharey=True,
                            squeeze=False, layout="constrained")[1]
    for line, (title, table) in zip(axes, rows.items(), strict=True):
        for ax, scaling in zip(line, scalings, strict=True):
            part = table[table.scaling == scaling].sort_values("seed")
            x, bottom = np.arange(len(part)), np.zeros(len(part))
            for name in TOPOLOGIES:
                share = 100 * part[f"share_{name}"].to_numpy()
                ax.bar(x, share, bottom=bottom, width=0.8, color=TOPOLOGY_COLORS[name], hatch=TOPOLOGY_HATCHES[name],
                       edgecolor="white", lw=0.5, label=label(name))
                bottom += share
            ax.set(ylim=(0, 100), yticks=(0, 50, 100))
            ax.set_xticks(x, part.seed)
        line[0].set_ylabel(f"{title}\nchosen (%)")
    for ax, scaling in zip(axes[0], scalings, strict=True):
        ax.set_title(scaling.replace("$", r"\$"))
    for ax in axes[-1]:
        ax.set_xlabel("seed of the initial weights")
    axes[0, 0].figure.legend(*axes[0, 0].get_legend_handles_labels(), frameon=False, loc="outside lower center",
                             ncols=len(TOPOLOGIES))
    return axes


def plot_convergence(histories: Mapping[str, Sequence[pd.DataFrame]], level: float = 0.95,
                     axes: Sequence[Axes] | None = None) -> np.ndarray:
    """When training settles: right greedy choices, and the gradient relative to its start, over the steps.

    Args:
        histories: name -> histories (columns step, agree, gradient) of several seeds with the same steps; drawn are the
            mean over seeds and the least and largest value.
        level: share of right choices to mark.
        axes: two.
    """
    if axes is None:
        axes = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")[1]
    for (name, runs), color, style in zip(histories.items(), ("#0072B2", "#009E73", "#D55E00", "#CC79A7"), LINE_STYLES,
                                          strict=False):
        right = np.array([100 * run.agree for run in runs])
        length = np.array([run.gradient / run.gradient.iloc[0] for run in runs])
        for ax, values, mean in ((axes[0], right, right.mean(axis=0)),
                                 (axes[1], length, np.exp(np.log(length).mean(axis=0)))):
            ax.fill_between(runs[0].step + 1, values.min(axis=0), values.max(axis=0), color=color, alpha=0.15, lw=0)
            ax.plot(runs[0].step + 1, mean, style, color=color, label=name.replace("$", r"\$"))
    for ax, y, text in ((axes[0], 100 * level, f"{100 * level:g}%"), (axes[1], 1, "as at the start")):
        ax.axhline(y, color="#999999", lw=1, zorder=0)
        ax.annotate(text, (0.01, y), xycoords=("axes fraction", "data"), xytext=(0, 1), textcoords="offset points",
                    va="bottom", size=8, color="#666666")
    axes[0].set(xlabel="steps of Adam + 1", ylabel="greedy choice is the best (%)", xscale="log", ylim=(-3, 103))
    axes[1].set(xlabel="steps of Adam + 1", ylabel="gradient / gradient at the start", xscale="log", yscale="log")
    axes[0].figure.legend(*axes[0].get_legend_handles_labels(), frameon=False, loc="outside lower center", ncols=4)
    return np.asarray(axes)
