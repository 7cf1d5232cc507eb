"""Pictures of AgentBalance (notebook 09). All take ax=None or axes=None and return matplotlib Axes.

AgentBalance names its stages; what is drawn here comes from our reconstruction of them. Colors are Okabe-Ito, told
apart by color-blind eyes; markers, line styles or words tell the same in grey.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import FancyArrowPatch, Rectangle
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FixedFormatter, FixedLocator, LogLocator, NullLocator, StrMethodFormatter

from bamas_lite.inputs import shown
from bamas_lite.plots_labels import INK, name_ends, name_points

if TYPE_CHECKING:
    from bamas_lite.agentbalance.candidate_pools import CandidatePool
    from bamas_lite.agentbalance.graphs import AgentGraph
    from bamas_lite.agentbalance.profiles import Profile

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINE_STYLES = ("-", "--", "-.", ":")
GREY = "#777777"
BUDGETS = {"cost_budget": "cost budget (u$ a task)", "latency_budget": "latency budget (s a task)"}
TRAINING_PANELS = (("share", {"reward": "reward", "correct": "right answers"}),
                   ("spent (share of the budget)", {"cost_share": "cost", "latency_share": "latency"}),
                   ("multiplier", {"lambda_cost": "of cost", "lambda_latency": "of latency"}),
                   ("number in a graph", {"agents": "agents", "edges": "edges"}))
"""Label of the y axis, and columns of a training history with what a legend calls them: a panel each."""


# --- profiles -------------------------------------------------------------------------------------------------------

def plot_profiles(profiles: Sequence[Profile], pools: Sequence[CandidatePool] = (),
                  axes: Sequence[Axes] | None = None) -> np.ndarray:
    """Quality against cost and against latency, means over the domains: one point an LLM, in the color of its pool (of
    the first one, where dearer pools hold it, too).

    A ring is a pool's medoid; hollow grey points are in no pool. The dotted steps are the best quality that a cost, or
    a latency, buys: an LLM below both may still be on the frontier of all three.

    Args:
        axes: one for cost and one for latency.
    """
    if axes is None:
        axes = plt.subplots(1, 2, figsize=(11, 4.6), sharey=True, layout="constrained")[1]
    pool_of = {p.llm.name: k for k, pool in reversed(list(enumerate(pools))) for p in pool.profiles}
    medoids = {pool.medoid for pool in pools}
    names = [p.llm.name for p in profiles]
    quality = np.array([100 * np.mean(list(p.quality.values())) for p in profiles])
    spends = [np.array([np.mean([getattr(p, what)(d) for d in p.quality]) for p in profiles])
              for what in ("cost", "latency_s")]
    for ax, spend, unit in zip(axes, spends, ("cost (u$ a call)", "latency (s a call)"), strict=True):
        order = np.lexsort((-quality, spend))
        best = np.maximum.accumulate(quality[order])
        ax.step([*spend[order], 2.2 * spend.max()], [*best, best[-1]], where="post", color=GREY, lw=1, ls=":",
                zorder=1, label="best up to here")
        for k in range(-1, len(pools)):
            of = [i for i, name in enumerate(names) if pool_of.get(name, -1) == k]
            if of:
                color, marker, text = (GREY, "o", "in no pool") if k < 0 else (
                    COLORS[k % len(COLORS)], MARKERS[k % len(MARKERS)], pools[k].name)
                ax.plot(spend[of], quality[of], marker, color=color, mfc="white" if k < 0 else color, ms=7, label=text)
        rings = [i for i, name in enumerate(names) if name in medoids]
        if rings:
            ax.plot(spend[rings], quality[rings], "o", color=INK, mfc="none", ms=13, label="medoid")
        ax.set(xscale="log", xlabel=unit, xlim=(spend.min() / 1.35, 2.2 * spend.max()))
        _plain_log_axis(ax)
        ax.grid(alpha=0.3)
    axes[0].set_ylabel("right answers (%)")
    axes[1].legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    for ax, spend in zip(axes, spends, strict=True):
        name_points(ax, spend, quality, names, [7 if name in medoids else 4 for name in names])
    return np.asarray(axes)


def _plain_log_axis(ax: Axes) -> None:
    """Ticks at 1, 2, 5, 10, ... written out."""
    ax.xaxis.set(major_locator=LogLocator(subs=(1, 2, 5)), major_formatter=StrMethodFormatter("{x:g}"),
                 minor_locator=NullLocator())


# --- results --------------------------------------------------------------------------------------------------------

def plot_curves(curves: pd.DataFrame, by: str = "cost_budget", highlight: Sequence[str] = (),
                ax: Axes | None = None) -> Axes:
    """Accuracy against a budget, a line a method, named at its end.

    Args:
        curves: as from `agentbalance.outcomes.curves`: method, budget, accuracy with low and high (shares).
        by: which budget it is: "cost_budget" or "latency_budget".
        highlight: methods in color, with their 95% intervals as bands; the others are thin grey lines.
    """
    ax = ax or plt.subplots(figsize=(8.5, 4.6), layout="constrained")[1]
    methods = list(dict.fromkeys(curves.method))
    _check_known(highlight, methods, "highlight")
    ends = []
    for method in [m for m in methods if m not in highlight] + list(highlight):
        rows = curves[curves.method == method].sort_values("budget")
        x, y = rows.budget.to_numpy(float), 100 * rows.accuracy.to_numpy(float)
        if method in highlight:
            k = list(highlight).index(method)
            color = COLORS[k % len(COLORS)]
            ax.plot(x, y, LINE_STYLES[k % 4] + MARKERS[k % len(MARKERS)], color=color, lw=2, ms=5, label=method)
            ax.fill_between(x, 100 * rows.low, 100 * rows.high, color=color, alpha=0.15, lw=0)
        else:
            color = GREY
            ax.plot(x, y, color=color, lw=0.9, label=method)
        ends.append((y[-1], method, color, method in highlight))
    budgets = sorted(set(curves.budget))
    ax.set(xscale="log", xlabel=BUDGETS[by], ylabel="right answers (%)")
    ax.xaxis.set(major_locator=FixedLocator(budgets), major_formatter=FixedFormatter([f"{B:g}" for B in budgets]),
                 minor_locator=NullLocator())
    ax.grid(alpha=0.3)
    name_ends(ax, budgets[-1], ends)
    return ax


def _check_known(given: Sequence[str], known: Sequence[str], what: str) -> None:
    for name in given:
        if name not in known:
            raise ValueError(f"{what} = {shown(name)}: expected one of {', '.join(known)}")


def plot_aucs(table: pd.DataFrame, reference: str | None = None, axes: Sequence[Axes] | None = None) -> np.ndarray:
    """Areas under the curves, sorted, with 95% intervals; beside them the paired differences from the reference.

    Args:
        table: as from `agentbalance.outcomes.auc_table`: method, auc, low, high (shares), and, for the second panel,
            difference, difference_low and difference_high. Filled dots: the interval excludes 0.
        reference: the method that differences are from.
        axes: as many as panels.
    """
    paired = reference is not None
    if paired:
        _check_known([reference], list(table.method), "reference")
    if axes is None:
        axes = plt.subplots(1, 1 + paired, figsize=(6 + 4 * paired, 1.2 + 0.3 * len(table)), sharey=True,
                            squeeze=False, layout="constrained")[1][0]
    table = table.sort_values("auc", kind="stable")
    y = np.arange(len(table))
    own = (table.method == reference).to_numpy()
    color = np.where(own, COLORS[1], COLORS[0])
    axes[0].hlines(y, 100 * table.low, 100 * table.high, color=color, lw=1.8)
    axes[0].scatter(100 * table.auc, y, color=color, s=28, zorder=3)
    axes[0].set_yticks(y, table.method)
    axes[0].set_xlabel("area under the curve\n(mean % right over the budgets)")
    if paired:
        other = table[~own]
        low, high = 100 * other.difference_low, 100 * other.difference_high
        clear = ((low > 0) | (high < 0)).to_numpy()
        axes[1].axvline(0, color=COLORS[1], lw=1.2, zorder=1)
        axes[1].hlines(y[~own], low, high, color=COLORS[0], lw=1.8)
        axes[1].scatter(100 * other.difference, y[~own], s=28, zorder=3, edgecolor=COLORS[0],
                        color=np.where(clear, COLORS[0], "white"))
        axes[1].set_xlabel(f"difference from {reference}\n(points; hollow: the interval has 0)")
    for ax in axes:
        ax.set_ylim(-0.6, len(table) - 0.4)
        ax.grid(axis="x", alpha=0.3)
    return np.asarray(axes)


def plot_surface(table: pd.DataFrame, methods: tuple[str, str], axes: Sequence[Axes] | None = None) -> np.ndarray:
    """Accuracy over cost budgets (across) and latency budgets (up) of two methods, and the first minus the second.

    Args:
        table: method, cost_budget (u$), latency_budget (s; inf: none) and `accuracy` or `correct` (shares), rows of
            one cell are averaged: an outcomes frame will do.
        axes: three.
    """
    value = "accuracy" if "accuracy" in table else "correct"
    _check_known(methods, list(dict.fromkeys(table.method)), "methods")
    grids = [100 * table[table.method == m].pivot_table(index="latency_budget", columns="cost_budget", values=value)
             .sort_index() for m in methods]
    gap = grids[0] - grids[1]
    if gap.isna().all(axis=None):
        raise ValueError(f"methods = {shown(tuple(methods))}: no pair of budgets under which both were run")
    grids = [grid.reindex_like(gap) for grid in grids]
    if axes is None:
        n_rows, n_columns = gap.shape
        axes = plt.subplots(1, 3, figsize=(3 + 1.6 * n_columns, 1.6 + 0.45 * n_rows), sharey=True,
                            layout="constrained")[1]
    levels = [g.to_numpy() for g in grids]
    least, most = (float(end([end(g[np.isfinite(g)]) for g in levels])) for end in (np.min, np.max))
    widest = max(5.0, float(np.nanmax(np.abs(gap.to_numpy()))))     # what is small should not look large
    scales = [("cividis", least, most, "{:.0f}")] * 2 + [("PuOr_r", -widest, widest, "{:+.1f}")]
    titles = [*(f"{m}: right (%)" for m in methods), "first minus second (points)"]
    for ax, grid, title, (cmap, low, high, form) in zip(axes, [*grids, gap], titles, scales, strict=True):
        image = ax.imshow(grid, cmap=cmap, vmin=low, vmax=max(high, low + 1e-9), aspect="auto", origin="lower")
        for (i, j), share in np.ndenumerate(grid.to_numpy()):
            if np.isfinite(share):
                ax.text(j, i, form.format(share + 0.0), ha="center", va="center", size=8,
                        color=_ink(image.cmap(image.norm(share))))
        ax.set_title(title, size=10)
        ax.set_xlabel(BUDGETS["cost_budget"])
        ax.set_xticks(range(grid.shape[1]), [f"{B:g}" for B in grid.columns], rotation=45)
        ax.set_yticks(range(grid.shape[0]), ["none" if np.isinf(L) else f"{L:g}" for L in grid.index])
    axes[0].set_ylabel(BUDGETS["latency_budget"])
    return np.asarray(axes)


def _ink(background: Sequence[float] | str) -> str:
    """Black or white, whichever reads better on a color."""
    return "black" if np.dot(to_rgb(background), (0.299, 0.587, 0.114)) > 0.5 else "white"


def plot_training(history: pd.DataFrame, axes: Sequence[Axes] | None = None) -> np.ndarray:
    """A training history (`agentbalance.training`) over its epochs: a panel for each of `TRAINING_PANELS`.

    Args:
        axes: four.
    """
    if axes is None:
        axes = plt.subplots(1, len(TRAINING_PANELS), figsize=(13, 2.9), layout="constrained")[1]
    for ax, (ylabel, columns) in zip(axes, TRAINING_PANELS, strict=True):
        for (column, name), color, style in zip(columns.items(), COLORS, LINE_STYLES, strict=False):
            ax.plot(history.epoch, history[column], style, color=color, label=name)
        ax.legend(frameon=False)
        ax.set(xlabel="epoch", ylabel=ylabel)
        ax.grid(alpha=0.3)
    return np.asarray(axes)


# --- graphs ---------------------------------------------------------------------------------------------------------

def plot_graph(graph: AgentGraph, ax: Axes | None = None, pools: Mapping[str, str] | None = None) -> Axes:
    """A graph of agents in its planned time: a row an agent, a box from its start to its finish, arrows for edges.

    The critical path, which fixes the latency, has bold frames, names and arrows.

    Args:
        pools: LLM name -> pool name: colors by pool, told in a legend; without it by LLM.
    """
    if ax is None:
        ax = plt.subplots(figsize=(9, 1.1 + 0.42 * len(graph.agents)), layout="constrained")[1]
    return plot_graphs({"planned": graph}, [ax], pools)[0]


def plot_graphs(graphs: Mapping[str, AgentGraph], axes: Sequence[Axes] | None = None,
                pools: Mapping[str, str] | None = None) -> np.ndarray:
    """Several graphs as in `plot_graph`, one below the other in the same time; title -> graph."""
    if axes is None:
        rows = [len(graph.agents) for graph in graphs.values()]
        axes = plt.subplots(len(graphs), 1, figsize=(9, 0.7 + sum(0.7 + 0.34 * n for n in rows)), sharex=True,
                            squeeze=False, layout="constrained", height_ratios=[0.6 + n for n in rows])[1][:, 0]
    llms = dict.fromkeys(agent.llm.name for graph in graphs.values() for agent in graph.agents)
    groups = {name: pools.get(name, "in no pool") if pools else name for name in llms}
    named = dict.fromkeys(pools.values() if pools else llms)
    colors = dict(zip(named, COLORS[:-1] * len(named), strict=False)) | {"in no pool": GREY}
    rows = [_draw_graph(ax, title, graph, [colors[groups[a.llm.name]] for a in graph.agents])
            for ax, (title, graph) in zip(axes, graphs.items(), strict=True)]
    end = max((graph.latency_s for graph in graphs.values()), default=0.0) or 1.0
    for ax in axes:
        ax.set_xlim(-0.02 * end, 1.02 * end)
    axes[-1].set_xlabel("planned time since the question came (s)")
    if pools:
        for name in (name for name in colors if name in groups.values()):
            axes[0].plot([], [], "s", ms=8, color=_pale(colors[name]), mec=colors[name], label=name)
        axes[0].legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    axes[0].figure.draw_without_rendering()     # so that what fits into a box can be measured
    for ax, graph, heights in zip(axes, graphs.values(), rows, strict=True):
        for j, agent in enumerate(graph.agents):
            _write(ax, f"{agent.role.name} · {agent.llm.name}", graph.finish_times[j] - agent.latency_s,
                   graph.finish_times[j], heights[j], inside=_pale(colors[groups[agent.llm.name]]),
                   bold=j in graph.critical_path)
    return np.asarray(axes)


def _draw_graph(ax: Axes, title: str, graph: AgentGraph, colors: Sequence[str]) -> dict[int, int]:
    """Boxes and arrows; returns the row of each agent: by start, and a successor always below."""
    finish, critical = graph.finish_times, list(graph.critical_path)
    start = finish - [agent.latency_s for agent in graph.agents]
    order = {j: k for k, j in enumerate(graph.order)}
    row = {j: k for k, j in enumerate(sorted(order, key=lambda j: (round(start[j], 9), order[j])))}
    half, inset = 0.33, 0.01 * float(finish.max())
    for j, agent in enumerate(graph.agents):
        bold = j in critical
        ax.add_patch(Rectangle((start[j], row[j] - half), agent.latency_s, 2 * half, facecolor=_pale(colors[j]),
                               edgecolor=INK if bold else colors[j], lw=2 if bold else 0.8, zorder=2))
    for i, j in graph.edges:
        bold = (i, j) in zip(critical, critical[1:], strict=False)
        to = start[j] + (0 if bold else inset)      # beside the bold arrows, which come from straight above
        ax.add_patch(FancyArrowPatch((finish[i], row[i] + half), (to, row[j] - half), arrowstyle="-|>", shrinkA=0,
                                     shrinkB=0, mutation_scale=9, lw=2 if bold else 0.8, zorder=3 if bold else 2.5,
                                     color=INK if bold else GREY))
    ax.set(ylim=(len(finish) - 0.45, -0.6), yticks=[])
    ax.set_title(f"{title}: {graph.latency_s:.1f} s, {graph.cost:.0f} u$", size=10, loc="left",
                 parse_math=False)     # two u$ are no formula
    ax.spines[["left", "right", "top"]].set_visible(False)
    return row


def _write(ax: Axes, text: str, start: float, finish: float, height: float, *, inside: Any, bold: bool) -> None:
    """Text in a box (of color `inside`) if it fits, else behind or before it; over whatever arrows pass there."""
    note = ax.text((start + finish) / 2, height, text, ha="center", va="center", size=8, zorder=4, color="black",
                   fontweight="bold" if bold else "normal", parse_math=False)
    width = note.get_window_extent().transformed(ax.transData.inverted()).width
    left, right = ax.get_xlim()
    beside = 0.012 * (right - left)
    if width > 0.94 * (finish - start):
        inside = "white"
        fits = finish + beside + width < right or right - finish > start - left
        note.set(x=finish + beside if fits else start - beside, ha="left" if fits else "right")
    note.set_path_effects([withStroke(linewidth=2, foreground=inside)])


def _pale(color: str) -> tuple[float, ...]:
    return tuple(0.35 * np.array(to_rgb(color)) + 0.65)
