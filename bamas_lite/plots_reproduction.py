"""Pictures of the reproduction: published beside ours. All return matplotlib Axes.

Everywhere: a black diamond is a figure of the paper, a dot or bar with an interval is ours. The tables that they draw
are those of data/reproduction/ and `bamas_lite.reproduction.published`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import ScalarFormatter

from bamas_lite.casting import TOPOLOGIES
from bamas_lite.plots_policy import LINE_STYLES, TOPOLOGY_COLORS, TOPOLOGY_HATCHES, label

SYSTEM_COLORS = {"BAMAS": "#D55E00", "BAMAS as published": "#D55E00", "BAMAS as it should be": "#009E73",
                 "AutoGen": "#0072B2", "MetaGPT": "#56B4E9", "ChatDev": "#CC79A7", "Naive-CostAware": "#777777"}
SYSTEM_MARKERS = {"AutoGen": "s", "MetaGPT": "^", "ChatDev": "v", "Naive-CostAware": "o"}
"""Okabe-Ito, told apart by color-blind eyes; markers and order tell them apart in grey."""
MORE_COLORS = ("#E69F00", "#56B4E9", "#CC79A7", "#777777", "#000000")
DATASET_STYLES = {"GSM8K": ("o", "#0072B2"), "MBPP": ("s", "#D55E00"), "MATH": ("^", "#009E73")}
PAPER = {"marker": "D", "color": "black", "mfc": "none", "ls": "none", "ms": 6, "mew": 1.3}
METRICS = {"accuracy": "right answers (%)", "cost": "cost (u$ a task)", "over_budget": "runs above the budget",
           **{f"share_{t}": f"share of {label(t)} (%)" for t in TOPOLOGIES}}
"""Metric of a result table -> label with unit."""
_OURS = {"BAMAS": "BAMAS as published"}


def plot_table(published: pd.DataFrame, rows: pd.DataFrame, datasets: Sequence[str] | None = None) -> np.ndarray:
    """Every published row beside ours, as dots: one pair of panels (accuracy, cost) a data set, one line a setting.

    Args:
        published: from `load_published`.
        rows: ours: dataset, system, setting, accuracy and cost with _low and _high.
        datasets: which; None: all of `published`.

    Returns:
        Axes (n_datasets, 2).
    """
    names = list(datasets or published["dataset"].unique())
    tables = [published[published["dataset"] == name].reset_index(drop=True) for name in names]
    lines = [len(table) + table.system.nunique() for table in tables]
    axes = plt.subplots(len(names), 2, figsize=(10, 1.2 + 0.215 * sum(lines)), squeeze=False, sharey="row",
                        height_ratios=lines, layout="constrained")[1]
    for (left, right), name, table in zip(axes, names, tables, strict=True):
        table = table.sort_values("system", key=lambda s: s.map(list(dict.fromkeys(s)).index), kind="stable")
        system = pd.factorize(table.system)[0]
        y = -(np.arange(len(table)) + system)   # one empty line between systems
        mine = _matched(table, rows)
        for ax, metric, column in ((left, "accuracy", "accuracy_percent"), (right, "cost", "avg_cost_microusd")):
            _dots(ax, y, mine, metric, [_color(s) for s in table.system])
            ax.plot(table[column], y, **PAPER)
            ax.set(xlabel=METRICS[metric], ylim=(y.min() - 0.8, 0.8))
            ax.grid(axis="x", alpha=0.3)
        left.set_yticks(y, [f"{s}: {setting}" for s, setting in zip(table.system, table.setting, strict=True)])
        left.set_title(name, loc="left", fontweight="bold")
        _log_cost(right)
    _key(axes[0, 0].figure, [_paper_key(), _ours_key()])
    return axes


def plot_accuracy_cost(published: pd.DataFrame, rows: pd.DataFrame, axes: Sequence[Axes] | None = None) -> np.ndarray:
    """Accuracy against cost (the paper's Figure 2): BAMAS as a line over its budgets, baselines as points.

    Hollow and dashed: published; filled, with 95% intervals: ours. One panel a data set; the arguments are those of
    `plot_table`.
    """
    names = list(published["dataset"].unique())
    axes = _row_of_axes(axes, len(names), (4.1, 4.2))
    for ax, name in zip(axes, names, strict=True):
        table = published[published["dataset"] == name]
        for system, part in table.groupby("system", sort=False):
            mine, color, bamas = _matched(part, rows), _color(system), system == "BAMAS"
            marker = SYSTEM_MARKERS.get(system, "D")
            ax.plot(part.avg_cost_microusd, part.accuracy_percent, ls="--" if bamas else "none", marker=marker,
                    mfc="none", color=color, lw=1.1, ms=6, mew=1.2)
            ax.errorbar(mine.cost, mine.accuracy, xerr=_error(mine, "cost"), yerr=_error(mine, "accuracy"),
                        ls="-" if bamas else "none", marker=marker, color=color, ms=4.5, lw=1.4, elinewidth=0.9)
        ax.set(title=name, xlabel=METRICS["cost"])
        _log_cost(ax)
        ax.grid(alpha=0.3)
    axes[0].set_ylabel(METRICS["accuracy"])
    systems = list(dict.fromkeys(published.system))
    _key(axes[0].figure, [*(Line2D([], [], color=_color(s), marker=SYSTEM_MARKERS.get(s, "D"), ms=5, label=s,
                                   ls="-" if s == "BAMAS" else "none") for s in systems),
                          Line2D([], [], color="#333333", marker="o", mfc="none", ls="--", label="hollow: published"),
                          Line2D([], [], color="#333333", marker="o", label="filled: ours, 95% interval")], ncols=4)
    return axes


def plot_topology_shares(rows: pd.DataFrame, shares: pd.DataFrame, system: str = "BAMAS as published",
                         axes: Sequence[Axes] | None = None) -> np.ndarray:
    """How often each topology is chosen, by budget and over all budgets (the paper's Figure 3); one panel a data set.

    Bars are ours. A topology that the paper gives a number for lies at the bottom, so that its top can be compared with
    the marker: the published share, over all budgets.

    Args:
        rows: ours, with share_<topology> (0 to 1) for settings "budget <u$>".
        shares: from `load_shares`.
        system: whose choice.
    """
    mine = rows[(rows["system"] == system) & rows["setting"].str.startswith("budget ")]
    names = list(mine["dataset"].unique())
    axes = _row_of_axes(axes, len(names), (3.9, 3.8))
    first = [t for t in TOPOLOGIES if t in set(shares.topology)]
    order = [*first, *(t for t in TOPOLOGIES if t not in first)]
    for ax, name in zip(axes, names, strict=True):
        part = mine[mine["dataset"] == name]
        budgets = part["setting"].str.removeprefix("budget ").astype(float)
        part = part.assign(budget=budgets).sort_values("budget")
        x = np.append(np.arange(len(part)), len(part) + 0.5)
        bottom = np.zeros(len(x))
        for topology in order:
            share = 100 * part[f"share_{topology}"].to_numpy()
            share = np.append(share, share.mean())
            ax.bar(x, share, bottom=bottom, width=0.75, color=TOPOLOGY_COLORS[topology], edgecolor="white",
                   hatch=TOPOLOGY_HATCHES[topology])
            bottom += share
        for row in shares[shares["dataset"] == name].itertuples():
            ax.plot(x[-1], row.share_percent, **PAPER | {"mfc": "white", "ms": 8})
        ax.set_xticks(x, [*(f"{budget:g}" for budget in part.budget), "all"])
        ax.set(title=name, xlabel="budget (u$)", ylim=(0, 100))
    axes[0].set_ylabel("chosen (% of tasks)")
    bars = [plt.Rectangle((0, 0), 1, 1, fc=TOPOLOGY_COLORS[t], hatch=TOPOLOGY_HATCHES[t], ec="white", label=label(t))
            for t in order]
    given = " and ".join(dict.fromkeys(label(t) for t in shares.topology))
    _key(axes[0].figure, [*bars, Line2D([], [], **PAPER, label=f"published share of {given}")], ncols=5)
    return axes


def plot_switches(switches: pd.DataFrame, metrics: Sequence[str] | None = None) -> np.ndarray:
    """What each difference between the paper and its code does: a forest plot, one panel a metric, zero drawn.

    Args:
        switches: switch, dataset, metric, effect, low, high (accuracy and shares in points, runs of 1000).
        metrics: which, in which order; None: all that there are.

    Returns:
        Axes, one a metric.
    """
    metrics = [m for m in METRICS if m in set(switches.metric)] if metrics is None else list(metrics)
    names, datasets = list(switches.switch.unique()), [d for d in DATASET_STYLES if d in set(switches["dataset"])]
    axes = plt.subplots(1, len(metrics), figsize=(2.4 + 2.6 * len(metrics), 1.5 + 0.38 * len(names)), sharey=True,
                        squeeze=False, layout="constrained")[1][0]
    y = -np.arange(len(names), dtype=float)
    for ax, metric in zip(axes, metrics, strict=True):
        title = METRICS[metric]
        for k, name in enumerate(datasets):
            part = switches[(switches.metric == metric) & (switches["dataset"] == name)].set_index("switch")
            part = part[["effect", "low", "high"]].reindex(names)
            marker, color = DATASET_STYLES[name]
            place = y - 0.24 * (k - (len(datasets) - 1) / 2)
            ax.hlines(place, part.low, part.high, color=color, lw=1.3)
            ax.plot(part.effect, place, marker, color=color, ms=4)
        ax.axvline(0, color="#999999", lw=1, zorder=0)
        ax.hlines(y[:-1] - 0.5, 0, 1, transform=ax.get_yaxis_transform(), color="#DDDDDD", lw=0.6, zorder=0)
        ax.set(ylim=(y.min() - 0.6, 0.6))
        title = title.replace("(%)", "(points)").replace("above the budget", "above the budget (of 1000)")
        ax.set_xlabel(title.replace(" (", "\n("), size=9)
        ax.locator_params(axis="x", nbins=4)
        ax.grid(axis="x", alpha=0.3)
    axes[0].set_yticks(y, names)
    _key(axes[0].figure, [Line2D([], [], marker=DATASET_STYLES[d][0], color=DATASET_STYLES[d][1], ms=5,
                                 label=f"{d}, 95% interval") for d in datasets])
    return axes


def plot_tornado(swings: pd.DataFrame, *, xlabel: str, most: int = 12, title: str = "", ax: Axes | None = None) -> Axes:
    """One headline with each assumed parameter at the ends of its range, the largest swing on top.

    Args:
        swings: parameter, low_end, high_end (of the range), at_low, at_high (the headline there), base (at our values).
        xlabel: what the headline measures, with its unit.
        most: draw at most so many parameters.
        title: of the axes.
    """
    swing = (swings.at_high - swings.at_low).abs()
    table = swings.loc[swing.sort_values(ascending=False, kind="stable").index[:most]]
    own = ax is None
    ax = ax or plt.subplots(figsize=(8, 1.4 + 0.3 * len(table)), layout="constrained")[1]
    y = -np.arange(len(table))
    for column, end, color, hatch in (("at_low", "low_end", "#56B4E9", ""), ("at_high", "high_end", "#E69F00", "//")):
        width = table[column] - table.base
        ax.barh(y, width, left=table.base, height=0.66, color=color, hatch=hatch, edgecolor="white",
                label=f"at the {end.split('_')[0]} end of its range")
    ax.axvline(table.base.iloc[0], color="#333333", lw=1, label="at our values")
    ax.set_yticks(y, [f"{row.parameter}  [{row.low_end:g}, {row.high_end:g}]" for row in table.itertuples()])
    ax.set(xlabel=xlabel, ylabel="parameter [its range]", title=title, ylim=(y.min() - 0.6, 0.6))
    ax.grid(axis="x", alpha=0.3)
    return _with_key(ax, own)


def plot_frontiers(rows: pd.DataFrame, systems: Sequence[str], published: pd.DataFrame | None = None,
                   axes: Sequence[Axes] | None = None) -> np.ndarray:
    """The best accuracy that a system reaches for at most so much: steps, with bands; one panel a data set.

    Args:
        rows: dataset, system, accuracy and cost with _low and _high; one row a budget.
        systems: which, in the order of the legend.
        published: from `load_published`: its rows of BAMAS are drawn as points.
        axes: one a data set.
    """
    rows = rows[rows["system"].isin(systems)]
    names = [name for name in DATASET_STYLES if name in set(rows["dataset"])]
    axes = _row_of_axes(axes, len(names), (4.1, 3.9))
    colors = _colors(systems)
    for ax, name in zip(axes, names, strict=True):
        most = rows.cost[rows["dataset"] == name].max()
        for k, system in enumerate(systems):
            part = rows[(rows["dataset"] == name) & (rows["system"] == system)].sort_values("cost")
            if part.empty:
                continue
            cost = np.append(part.cost, 1.03 * most)
            low, best, high = (np.maximum.accumulate(np.append(part[c], part[c].iloc[-1]))
                               for c in ("accuracy_low", "accuracy", "accuracy_high"))
            ax.step(cost, best, LINE_STYLES[k % 4], where="post", color=colors[system], lw=1.6)
            ax.fill_between(cost, low, high, step="post", color=colors[system], alpha=0.15, lw=0)
            ax.plot(part.cost, part.accuracy, ".", color=colors[system])
        if published is not None:
            paper = published[(published["dataset"] == name) & (published["system"] == "BAMAS")]
            ax.plot(paper.avg_cost_microusd, paper.accuracy_percent, **PAPER)
        ax.set(title=name, xlabel=f"spend: {METRICS['cost']}")
        ax.grid(alpha=0.3)
    axes[0].set_ylabel(METRICS["accuracy"])
    keys = [Line2D([], [], color=colors[s], ls=LINE_STYLES[k % 4], marker=".", label=s) for k, s in enumerate(systems)]
    _key(axes[0].figure, keys + ([] if published is None else [Line2D([], [], **PAPER, label="BAMAS, published")]),
         ncols=3)
    return axes


def plot_residuals(fitted: pd.DataFrame, axes: Sequence[Axes] | None = None) -> np.ndarray:
    """Fitted against published figures of the baselines, with the diagonal: accuracy left, cost right.

    Args:
        fitted: `calibration.Fit.rows`: system, accuracy and accuracy_fit (shares), cost and cost_fit (u$).
        axes: two.
    """
    axes = _row_of_axes(axes, 2, (5.0, 4.2))
    for ax, metric, factor in zip(axes, ("accuracy", "cost"), (100, 1), strict=True):
        x, y = factor * fitted[metric], factor * fitted[f"{metric}_fit"]
        for system in fitted.system.unique():
            part = fitted.system == system
            ax.plot(x[part], y[part], SYSTEM_MARKERS.get(system, "D"), color=_color(system), mfc="none", label=system)
        ends = [min(x.min(), y.min()), max(x.max(), y.max())]
        ax.plot(ends, ends, color="#999999", lw=1, zorder=0)
        ax.set(xlabel=f"published: {METRICS[metric]}", ylabel=f"fitted (simulated): {METRICS[metric]}")
        ax.grid(alpha=0.3)
    _log_cost(axes[1])
    _log_cost(axes[1], "y")
    _key(axes[0].figure, axes[0].get_legend_handles_labels()[0], ncols=4)
    return axes


def plot_coverage(published: pd.DataFrame, predicted: pd.DataFrame, axes: Sequence[Axes] | None = None) -> np.ndarray:
    """Held-out rows: our prediction, its 95% interval and the published value; accuracy left, cost right.

    A published value outside its interval is drawn in a filled diamond with a ring.

    Args:
        published: from `load_published`; its rows of BAMAS are drawn.
        predicted: dataset, system ("BAMAS" or "BAMAS as published"), setting, accuracy and cost with _low and _high.
    """
    table = published[published["system"] == "BAMAS"].reset_index(drop=True)
    mine = _matched(table, predicted)
    if axes is None:
        axes = plt.subplots(1, 2, figsize=(10, 1.4 + 0.3 * len(table)), sharey=True, layout="constrained")[1]
    y = -(np.arange(len(table)) + 0.6 * pd.factorize(table["dataset"])[0])
    ringed = False
    for ax, metric, column in zip(axes, ("accuracy", "cost"), ("accuracy_percent", "avg_cost_microusd"), strict=True):
        _dots(ax, y, mine, metric, [_color("BAMAS")] * len(table))
        value = table[column].to_numpy()
        ax.plot(value, y, **PAPER)
        low, high = mine[f"{metric}_low"].to_numpy(), mine[f"{metric}_high"].to_numpy()
        outside = np.isfinite(low) & ((value < low) | (value > high))
        ax.plot(value[outside], y[outside], "o", mfc="none", color="black", ms=13, mew=1.2)
        ringed = ringed or bool(outside.any())
        known = int(np.isfinite(low).sum())
        ax.set(xlabel=METRICS[metric], ylim=(y.min() - 0.7, 0.7))
        ax.set_title(f"{known - int(outside.sum())} of {known} inside", size=10)
        ax.grid(axis="x", alpha=0.3)
    _log_cost(axes[1])
    axes[0].set_yticks(y, [f"{row.dataset}, {row.setting}" for row in table.itertuples()])
    ring = Line2D([], [], marker="o", mfc="none", color="black", ls="none", ms=11, label="outside")
    _key(axes[0].figure, [_paper_key(), _ours_key("predicted, 95% prediction interval", _color("BAMAS")),
                          *([ring] if ringed else [])])
    return np.asarray(axes)


def plot_draws(found: pd.DataFrame, enough: float = 0.95, ax: Axes | None = None) -> Axes:
    """In which share of the draws each finding holds, with the lines of what is reproduced and of what differs.

    Where a finding holds in some draws only, the parameter that separates them best is written beside it.

    Args:
        found: from `predicates.findings_in_draws`.
        enough: reproduced from this share on, differs up to 1 minus it.
        ax: to draw in.
    """
    lines = list(dict.fromkeys(zip(found.finding, found["dataset"], strict=True)))
    systems = list(found.system.unique())
    colors = _colors(systems)
    own = ax is None
    ax = ax or plt.subplots(figsize=(9, 1.5 + 0.5 * len(lines)), layout="constrained")[1]
    for k, system in enumerate(systems):
        part = found[found.system == system].set_index(["finding", "dataset"]).reindex(lines)
        y = -np.arange(len(lines)) - 0.3 * (k - (len(systems) - 1) / 2)
        ax.hlines(y, 0, 100 * part.holds, color=colors[system], lw=1, alpha=0.5)
        ax.plot(100 * part.holds, y, "os^Dv"[k % 5], color=colors[system], ms=5.5, label=system, clip_on=False)
        for place, row in zip(y, part.itertuples(), strict=True):
            if isinstance(row.parameter, str):
                ax.annotate(row.parameter, (103, place), va="center", size=8, color="#222222", annotation_clip=False)
    ax.axvline(100 * enough, color="#333333", lw=1, ls="--", label=f"reproduced from {100 * enough:g}%")
    ax.axvline(100 * (1 - enough), color="#333333", lw=1, ls=":", label=f"differs up to {100 * (1 - enough):.3g}%")
    ax.hlines(-np.arange(len(lines) - 1) - 0.5, 0, 100, color="#DDDDDD", lw=0.6, zorder=0)
    ax.set_yticks(-np.arange(len(lines)), [f"{finding}, {name}" for finding, name in lines])
    ax.set(xlabel=f"holds (% of {found.n_draws.max()} draws); right: the parameter that separates them", xlim=(0, 100),
           ylim=(-len(lines) + 0.4, 0.6))
    return _with_key(ax, own)


def _color(system: str) -> str:
    return SYSTEM_COLORS.get(system, "#333333")


def _colors(systems: Sequence[str]) -> Mapping[str, str]:
    more = iter(MORE_COLORS * len(systems))
    return {system: SYSTEM_COLORS.get(system) or next(more) for system in systems}


def _matched(published: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Our row for each published one, in its order; NaN where there is none."""
    key = ["dataset", "system", "setting"]
    columns = [f"{metric}{end}" for metric in ("accuracy", "cost") for end in ("", "_low", "_high")]
    named = rows.assign(system=rows["system"].replace(_OURS)).set_index(key)[columns]
    return published[key].assign(system=published["system"].replace(_OURS)).join(named, on=key)


def _error(mine: pd.DataFrame, metric: str) -> np.ndarray:
    return np.array([mine[metric] - mine[f"{metric}_low"], mine[f"{metric}_high"] - mine[metric]]).clip(min=0)


def _dots(ax: Axes, y: np.ndarray, mine: pd.DataFrame, metric: str, colors: Sequence[str]) -> None:
    ax.hlines(y, mine[f"{metric}_low"], mine[f"{metric}_high"], color=colors, lw=2)
    ax.scatter(mine[metric], y, color=colors, s=16, zorder=3)


def _log_cost(ax: Axes, along: str = "x") -> None:
    """Costs along x or y on a log scale, with plain numbers."""
    ax.set(**{f"{along}scale": "log"})
    axis = ax.xaxis if along == "x" else ax.yaxis
    low, high = axis.get_view_interval()
    ticks = [tick for tick in (100, 200, 500, 1000, 2000, 5000, 10000) if low <= tick <= high]
    if len(ticks) < 4:
        ticks = [tick for tick in (100, 150, 200, 300, 400, 600, 800, 1000, 1400, 2000, 3000, 5000, 7000, 10000)
                 if low <= tick <= high]
    axis.set_ticks(ticks)
    axis.set_major_formatter(ScalarFormatter())
    axis.set_minor_formatter("")


def _row_of_axes(axes: Sequence[Axes] | None, n: int, size: tuple[float, float]) -> np.ndarray:
    if axes is not None:
        return np.asarray(axes)
    return plt.subplots(1, n, figsize=(n * size[0], size[1]), squeeze=False, layout="constrained")[1][0]


def _paper_key() -> Line2D:
    return Line2D([], [], **PAPER, label="published")


def _ours_key(text: str = "ours, 95% interval", color: str = "#333333") -> Line2D:
    return Line2D([], [], color=color, marker="o", ms=4, lw=2, label=text)


def _key(figure: plt.Figure, handles: Sequence[Line2D], ncols: int = 3) -> None:
    where = "outside lower center" if figure.get_layout_engine() is not None else "lower center"
    figure.legend(handles=list(handles), frameon=False, loc=where, ncols=ncols)


def _with_key(ax: Axes, own: bool) -> Axes:
    """The key below a figure of our own, or below the axes of somebody else's."""
    if own:
        _key(ax.figure, ax.get_legend_handles_labels()[0], ncols=2)
    else:
        ax.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3)
    return ax
