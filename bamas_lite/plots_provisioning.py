"""Pictures of weights and teams. All return matplotlib Axes; money is in u$ (micro-dollars) for one task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from bamas_lite.ilp import EXACT_IN_FLOATS
from bamas_lite.plots_episodes import tier_color
from bamas_lite.team import Team

_LINES = (("#0072B2", "-", "o"), ("#E69F00", "--", "s"), ("#009E73", "-.", "^"), ("#CC79A7", ":", "D"))
_HATCHES = ("", "//", "..", "xx", "\\\\", "++")


def _axes(ax: Axes | None, width: float = 6.5, height: float = 3.4) -> Axes:
    return ax if ax is not None else plt.subplots(figsize=(width, height), layout="constrained")[1]


def plot_dominance(weights: Sequence[int], weaker: Sequence[int], ax: Axes | None = None) -> Axes:
    """Per tier, the weight of one agent beside the heaviest affordable set of weaker agents.

    Args:
        weights: W_i, strongest tier first.
        weaker: the largest sum of weights of an affordable set from the tiers below.
    """
    ax, x = _axes(ax), np.arange(len(weights))
    for shift, values, color, hatch, name in (
            (-0.2, weights, "#0072B2", "", "one agent of this tier"),
            (0.2, weaker, "#E69F00", "//", "heaviest affordable set of weaker agents")):
        bars = ax.bar(x + shift, values, 0.38, color=color, hatch=hatch, edgecolor="white", label=name)
        ax.bar_label(bars, [f"{v:,}" for v in values], padding=2, size=9)
    ax.set(xticks=x, xticklabels=[f"tier {t}" for t in range(1, len(weights) + 1)], ylabel="sum of weights")
    ax.margins(y=0.15)
    ax.legend(frameon=False)
    return ax


def plot_shares(shares: Mapping[str, Mapping[float, float]], xlabel: str, ylabel: str, ax: Axes | None = None, *,
                logarithmic: bool = True) -> Axes:
    """Shares (0 to 1) of random pools over a quantity, one line per name, in percent."""
    ax = _axes(ax)
    for (name, line), (color, style, marker) in zip(shares.items(), _LINES, strict=False):
        ax.plot(list(line), [100 * y for y in line.values()], style, color=color, marker=marker, label=name)
    if logarithmic:
        ax.set_xscale("log")
    ax.set(xlabel=xlabel, ylabel=ylabel)
    ax.set_ylim(bottom=-1)
    ax.legend(frameon=False)
    return ax


def plot_weight_growth(weights: Mapping[str, Sequence[int]], ax: Axes | None = None) -> Axes:
    """The largest weight W_1 over the number of tiers, one line per name, and where floats begin to skip whole numbers.

    Args:
        weights: name -> W_1 of a pool of 1, 2, 3, ... tiers.
    """
    ax = _axes(ax, 8)
    for (name, line), (color, style, marker) in zip(weights.items(), _LINES, strict=False):
        ax.plot(range(1, len(line) + 1), [float(w) for w in line], style, color=color, marker=marker, label=name)
    ax.axhline(EXACT_IN_FLOATS, color="#D55E00", linewidth=1)
    ax.annotate("$2^{53}$: above, floats skip whole numbers", (1, EXACT_IN_FLOATS), (0, 3),
                textcoords="offset points", color="#A04000", size=9)
    ax.set(yscale="log", xlabel="number of tiers", ylabel="weight $W_1$ of the strongest tier")
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return ax


def plot_staircase(teams: Sequence[Team], budgets: Sequence[float] = (), ax: Axes | None = None, *,
                   marks: str = "marked budgets") -> Axes:
    """Agents per tier over the budget, stacked with the strongest tier at the bottom.

    Args:
        teams: by rising budget; each stands until the budget of the next.
        budgets: budgets to mark, u$.
        marks: what the legend calls them.
    """
    ax = _axes(ax, 8, 3.6)
    edges = [team.budget for team in teams]
    edges.append(edges[-1] + (edges[-1] - edges[0]) / len(teams))
    counts = np.array([team.tier_counts for team in teams])
    base = np.zeros(len(teams))
    for t, row in enumerate(counts.T):
        name = ", ".join(m.name for m in teams[0].pool.tiers[t])
        name = name if len(name) <= 30 else f"tier {t + 1}"
        ax.stairs(base + row, edges, baseline=base, fill=True, facecolor=tier_color(t + 1), hatch=_HATCHES[t % 6],
                  edgecolor="white", linewidth=0.5, label=name)
        base = base + row
    for budget in budgets:
        ax.axvline(budget, color="#222222", linewidth=0.8, linestyle=":")
    if len(budgets):
        ax.plot([], [], ":", color="#222222", label=marks)
    ax.set(xlabel="budget $B$ (u\\$ a task)", ylabel="agents hired", xlim=(edges[0], edges[-1]))
    ax.yaxis.get_major_locator().set_params(integer=True)
    ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5), fontsize=9)
    return ax


def plot_costs(teams: Sequence[Team], ax: Axes | None = None) -> Axes:
    """What the plan spends of each budget: planned cost over budget, and the money that no agent can be had for."""
    ax = _axes(ax, 8, 3.2)
    edges = [team.budget for team in teams]
    last = edges[-1] + (edges[-1] - edges[0]) / len(teams)
    x = np.repeat([*edges, last], 2)[1:-1]
    y = np.repeat([team.cost for team in teams], 2)
    ax.fill_between(x, y, x, color="#E69F00", alpha=0.35, hatch="//", edgecolor="white", label="not planned")
    ax.plot(x, y, color="#0072B2", label="planned cost of the team")
    ax.plot([edges[0], last], [edges[0], last], color="#222222", linewidth=0.8, label="the budget itself")
    ax.set(xlabel="budget $B$ (u\\$ a task)", ylabel="u\\$ a task", xlim=(edges[0], last))
    ax.legend(frameon=False)
    return ax


def plot_team_map(teams: Mapping[tuple[float, float], Team | None], xlabel: str, ylabel: str,
                  ax: Axes | None = None) -> Axes:
    """Agents per tier over two quantities: the color counts agents of tier 1, the text gives all tiers; - for no team.

    Args:
        teams: (x, y) -> team, on a full grid.
    """
    ax = _axes(ax, 8, 3.8)
    xs, ys = (sorted({key[i] for key in teams}) for i in (0, 1))
    strong = np.array([[teams[x, y].tier_counts[0] if teams[x, y] else np.nan for x in xs] for y in ys])
    ax.imshow(strong, cmap="cividis", aspect="auto", origin="lower")
    for (i, j), n in np.ndenumerate(strong):
        team = teams[xs[j], ys[i]]
        text = "+".join(map(str, team.tier_counts)) if team else "-"
        ax.text(j, i, text, ha="center", va="center", size=9, color="black" if n > np.nanmax(strong) / 2 else "white"
                if team else "black")
    ax.set(xlabel=xlabel, ylabel=ylabel)
    ax.set_xticks(range(len(xs)), [f"{x:g}" for x in xs])
    ax.set_yticks(range(len(ys)), [f"{y:g}" for y in ys])
    return ax
