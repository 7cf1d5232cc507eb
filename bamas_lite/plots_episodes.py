"""Pictures of one episode: who wrote to whom, what each call cost, when each call ran.

All take an `Episode` and return matplotlib Axes. Colors stand for tiers (Okabe-Ito, told apart by color-blind eyes).
"""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from bamas_lite.episode import CallRecord, Episode
from bamas_lite.plots_policy import label
from bamas_lite.prompts import tag

TIER_COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
SHAPES = {"planner": "D", "critic": "s", "executor": "o"}
ACCENT, FAINT = "#222222", "#999999"
Point = tuple[float, float]
_LABEL_AT = {"above": ((0, 15), "center", "bottom"), "below": ((0, -13), "center", "top"),
             "beside": ((14, 0), "left", "center")}


def tier_color(tier: int | None) -> str:
    """The color of a tier in all figures of episodes; 1 is the strongest."""
    return TIER_COLORS[((tier or 1) - 1) % len(TIER_COLORS)]


def sources(episode: Episode) -> list[list[tuple[str, str]]]:
    """For each call, whose words its prompt quotes: pairs (agent, what). Read off the messages, not off the topology.

    `what` is "answer", "critique", "plan" or "results"; a call that quotes nobody starts from ("task", "task").
    """
    found = []
    for k, call in enumerate(episode.calls):
        content = call.messages[-1]["content"]
        before = episode.calls[:k][::-1]
        quoted = []
        for what, name, role in (("answer", "earlier_answer", "executor"), ("critique", "critique", "critic")):
            quoted += [(c.agent, what) for c in before
                       if c.role == role and tag(name, c.reply.text) in content][:1]
        planners = [c for c in before if c.role == "planner"]
        if "<results>\n" in content:
            quoted += [(c.agent, "results") for c in before if c.role == "executor" and c.reply.text in content][:1]
        if planners and "<instruction>\n" in content:
            quoted.append((planners[0].agent, "plan"))
        elif planners and call.role == "planner" and not any(what == "critique" for _, what in quoted):
            quoted.append((planners[0].agent, "plan"))  # a plan that could not be used goes back to its planner
        found.append(quoted or [("task", "task")])
    return found


def message_graph(episode: Episode, ax: Axes | None = None) -> Axes:
    """Who wrote to whom: agents colored by tier, one arrow a message, numbered by the call that it is for.

    The task is part of every prompt, but drawn only where a prompt quotes nobody. A dotted arrow leads to the answer
    that was graded. An empty shape is an agent whose turn never came.
    """
    places = _places(episode)
    if ax is None:
        rows = len(episode.agents) if episode.topology == "star" else 3 if episode.topology != "linear" else 1
        ax = plt.subplots(figsize=(7, 1.2 + 0.6 * rows))[1]
    ends: dict[tuple[str, str], list[str]] = {}
    for k, quoted in enumerate(sources(episode), 1):
        for who, _ in quoted:
            ends.setdefault((who, episode.calls[k - 1].agent), []).append(str(k))
    for writer in _graded(episode):
        ends.setdefault((writer, "answer"), []).append("")
    for (a, b), numbers in ends.items():
        bend = 0.18 if (b, a) in ends else 0.0
        _arrow(ax, places[a], places[b], ", ".join(numbers), bend, final=b == "answer")
    called = {call.agent for call in episode.calls}
    for agent in episode.agents:
        color, idle = tier_color(agent.llm.tier), agent.name not in called
        ax.scatter(*places[agent.name], s=420, marker=SHAPES[agent.role], color="white" if idle else color,
                   edgecolor=color, linewidth=1.5, zorder=3)
        side = "beside" if episode.topology == "star" else "below" if agent.role == "executor" else "above"
        offset, ha, va = _LABEL_AT[side]
        ax.annotate(f"{agent.name}\n{agent.llm.name}", places[agent.name], offset, textcoords="offset points", ha=ha,
                    va=va, fontsize=8, zorder=5, linespacing=1.1,
                    bbox={"boxstyle": "square,pad=0.2", "facecolor": "white", "edgecolor": "none"})
    for name in ("task", "answer"):
        ax.annotate(name, places[name], ha="center", va="center", fontsize=9, zorder=4,
                    bbox={"boxstyle": "round,pad=0.4", "facecolor": "white", "edgecolor": ACCENT})
    xs, ys = zip(*places.values(), strict=True)
    ax.set(xlim=(min(xs) - 0.5, max(xs) + 0.5), ylim=(min(ys) - 0.5, max(ys) + 0.7),
           title=f"{label(episode.topology)}: {episode.n_calls} calls, stopped by: {episode.stop_reason}")
    ax.axis("off")
    return ax


def cost_waterfall(episode: Episode, ax: Axes | None = None) -> Axes:
    """What each call cost, stacked towards the budget; behind it, in grey, what was held back for it before it ran.

    Calls that start together are reserved together, so their grey bars stand one after the other; each cost still
    stands on the cost before it, and so moves away from its grey bar.
    """
    ax = ax or plt.subplots(figsize=(7, 0.9 + 0.45 * max(episode.n_calls, 1)))[1]
    spent = 0.0
    held_until, start = 0.0, None
    for k, call in enumerate(episode.calls):
        if call.start_s != start:
            start, held_until = call.start_s, spent
        if call.reserved:
            ax.barh(k, call.reserved, left=held_until, height=0.8, color="#DDDDDD", edgecolor=FAINT, linewidth=0.5)
            held_until += call.reserved
        ax.barh(k, call.cost, left=spent, height=0.45, color=tier_color(call.llm.tier), edgecolor="white")
        spent += call.cost
    ax.axvline(episode.budget, color=ACCENT, linestyle="--", linewidth=1.2)
    ax.set(yticks=range(episode.n_calls), yticklabels=_labels(episode.calls), xlabel="cost (u$)", ylim=(
        max(episode.n_calls, 1) - 0.4, -0.6), xlim=(0, 1.04 * max(episode.budget, spent, held_until)),
           title=f"{label(episode.topology)}: cost {episode.cost:.1f} of {episode.budget:g} u$")
    _legend(ax, episode, Patch(facecolor="#DDDDDD", edgecolor=FAINT, label="held back"),
            plt.Line2D([], [], color=ACCENT, linestyle="--", label="budget B"))
    return ax


def time_chart(episode: Episode, ax: Axes | None = None) -> Axes:
    """When each call ran, in virtual seconds since the episode began."""
    ax = ax or plt.subplots(figsize=(7, 0.9 + 0.45 * max(episode.n_calls, 1)))[1]
    for k, call in enumerate(episode.calls):
        ax.barh(k, call.end_s - call.start_s, left=call.start_s, height=0.55, color=tier_color(call.llm.tier))
    ax.set(yticks=range(episode.n_calls), yticklabels=_labels(episode.calls), xlabel="time (s)", xlim=(0, None),
           ylim=(max(episode.n_calls, 1) - 0.4, -0.6), title=f"{label(episode.topology)}: {episode.latency_s:.1f} s")
    _legend(ax, episode)
    return ax


def _labels(calls: tuple[CallRecord, ...]) -> list[str]:
    return [f"{k}  {call.agent}" for k, call in enumerate(calls, 1)]


def _legend(ax: Axes, episode: Episode, *more: Any) -> None:
    llms = {agent.llm.name: agent.llm for agent in episode.agents}.values()
    ax.legend(handles=[*(Patch(color=tier_color(m.tier), label=m.name) for m in llms), *more], fontsize=8,
              loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)


def _graded(episode: Episode) -> list[str]:
    """Whose words were graded; in Star all who voted."""
    executors = [call for call in episode.calls if call.role == "executor"]
    if episode.topology == "star":
        return [call.agent for call in executors]
    return [call.agent for call in reversed(executors) if call.reply.text == episode.answer_text][:1]


def _places(episode: Episode) -> dict[str, Point]:
    """Linear: one line. Star: a column. Else: executors in a row, who plans and judges above them, the answer below."""
    of_role = {role: [agent.name for agent in episode.agents if agent.role == role] for role in SHAPES}
    executors = of_role["executor"]
    n = len(executors)
    if episode.topology == "star":
        column = {name: (1.5, (n - 1) / 2 - i) for i, name in enumerate(executors)}
        return {"task": (0.0, 0.0), **column, "answer": (3.0, 0.0)}
    row = {name: (1.2 * i, 0.0) for i, name in enumerate([a.name for a in episode.agents if a.name in executors], 1)}
    if episode.topology == "linear":
        return {"task": (0.0, 0.0), **row, "answer": (1.2 * (n + 1), 0.0)}
    above = of_role["planner"] + of_role["critic"]
    center = 0.6 * (n + 1)
    tops = {name: (center + 1.6 * (i - (len(above) - 1) / 2), 1.4) for i, name in enumerate(above)}
    left = min([1.2, *(x for x, _ in tops.values())])
    below = next((row[name][0] for name in [*_graded(episode), *executors]), center)
    return {"task": (left - 1.2, 0.5 if of_role["planner"] else 0.0), **row, **tops, "answer": (below, -1.5)}


def _arrow(ax: Axes, start: Point, end: Point, label: str, bend: float, final: bool) -> None:
    """One arrow with its numbers; `bend` parts it from the arrow back; an arrow to oneself is a loop."""
    (x0, y0), (x1, y1) = start, end
    # The box of the answer is wider than high; a final arrow that is not level starts behind the agent's name.
    style = {"arrowstyle": "-|>", "color": FAINT if final else ACCENT, "shrinkA": 26 if final and y0 != y1 else 12,
             "shrinkB": 22 if final and x0 != x1 else 12, "linestyle": ":" if final else "-", "linewidth": 1.2}
    if start == end:
        style |= {"connectionstyle": "arc3,rad=-1.4", "shrinkA": 0, "shrinkB": 0}
        ax.annotate("", (x0 - 0.16, y0 + 0.12), (x0 - 0.16, y0 - 0.12), arrowprops=style)
        ax.text(x0 - 0.36, y0, label, ha="center", va="center", fontsize=8)
        return
    ax.annotate("", end, start, arrowprops=style | {"connectionstyle": f"arc3,rad={bend}"})
    # The middle of a quadratic Bezier whose control point is `bend` times the length away from the chord.
    x, y = (x0 + x1) / 2 + bend * (y1 - y0) / 2, (y0 + y1) / 2 - bend * (x1 - x0) / 2
    if label:
        ax.text(x, y, label, ha="center", va="center", fontsize=8, zorder=6,
                bbox={"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none"})
