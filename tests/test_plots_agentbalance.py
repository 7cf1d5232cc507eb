"""Figures of AgentBalance: what is drawn is what the profiles, tables and graphs say, and nothing covers anything."""

import itertools

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import FancyArrowPatch, Rectangle
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from bamas_lite.agentbalance.candidate_pools import CandidatePool
from bamas_lite.agentbalance.graphs import AgentGraph, GraphAgent
from bamas_lite.agentbalance.profiles import Profile
from bamas_lite.agentbalance.roles import roles_of
from bamas_lite.plots_agentbalance import (
    COLORS,
    GREY,
    plot_aucs,
    plot_curves,
    plot_graph,
    plot_graphs,
    plot_profiles,
    plot_surface,
    plot_training,
)
from bamas_lite.plots_labels import apart
from bamas_lite.pool import load_pool

LLMS = load_pool("fourteen").llms


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def texts(legend):
    return [text.get_text() for text in legend.texts]


def drawn(ax):
    """Label -> points of each line."""
    return {line.get_label(): line.get_xydata() for line in ax.lines}


def overlap(a, b):
    both = Bbox.intersection(a, b)
    return 0 if both is None else both.width * both.height


# --- profiles -------------------------------------------------------------------------------------------------------

def profile(llm, quality):
    domains = ("arithmetic", "code")
    return Profile(llm, dict(zip(domains, quality, strict=True)), dict.fromkeys(domains, 300.0),
                   dict(zip(domains, (100.0, 200.0), strict=True)), dict.fromkeys(domains, 50.0), 1.5, 2.0, 60, "test")


def test_profiles_lie_at_their_means_in_the_colors_of_their_pools():
    profiles = [profile(llm, (0.2 + 0.05 * k, 0.3 + 0.05 * k)) for k, llm in enumerate(LLMS[:5])]
    pools = (CandidatePool("economy", (profiles[3],), LLMS[3].name),
             CandidatePool("premium", (profiles[0], profiles[4]), LLMS[4].name))
    axes = plot_profiles(profiles, pools)
    means = {p.llm.name: (1.5 * (300 * p.llm.price_in + 150 * p.llm.price_out),
                          2 * (p.llm.first_token_s + 150 / p.llm.tokens_per_s)) for p in profiles}
    for k, ax in enumerate(axes):
        points = drawn(ax)
        np.testing.assert_allclose(points["economy"], [[means[LLMS[3].name][k], 40]])
        np.testing.assert_allclose(points["premium"], [[means[LLMS[i].name][k], 25 + 5 * i] for i in (0, 4)])
        np.testing.assert_allclose(points["in no pool"], [[means[LLMS[i].name][k], 25 + 5 * i] for i in (1, 2)])
        np.testing.assert_allclose(points["medoid"], [[means[LLMS[i].name][k], 25 + 5 * i] for i in (3, 4)])
        assert sorted(note.get_text() for note in ax.texts) == sorted(llm.name for llm in LLMS[:5])
        assert ax.get_xscale() == "log"
        assert next(line for line in ax.lines if line.get_label() == "best up to here").get_drawstyle() == "steps-post"
        steps = points["best up to here"]
        for x, y in zip([means[p.llm.name][k] for p in profiles], [25 + 5 * i for i in range(5)], strict=True):
            best = max(25 + 5 * i for i, p in enumerate(profiles) if means[p.llm.name][k] <= x)
            assert steps[steps[:, 0] <= x][-1, 1] == pytest.approx(best) and best >= y
    assert {line.get_label(): line.get_color() for line in axes[0].lines}["premium"] == COLORS[1]
    assert "u$" in axes[0].get_xlabel() and "(s " in axes[1].get_xlabel() and "%" in axes[0].get_ylabel()


def test_an_llm_of_stacked_pools_has_the_color_of_the_first():
    profiles = [profile(llm, (0.2 + 0.05 * k, 0.3 + 0.05 * k)) for k, llm in enumerate(LLMS[:3])]
    pools = (CandidatePool("economy", (profiles[1],), LLMS[1].name),
             CandidatePool("premium", tuple(profiles), LLMS[0].name))
    points = drawn(plot_profiles(profiles, pools)[0])
    assert points["economy"][:, 1].tolist() == [30] and points["premium"][:, 1].tolist() == [25, 35]


def test_names_of_fourteen_llms_cover_neither_points_nor_names():
    rng = np.random.default_rng(3)
    profiles = [profile(llm, rng.uniform(0.2, 0.9, 2)) for llm in LLMS]
    axes = plot_profiles(profiles)
    for ax in axes:
        boxes = [note.get_window_extent() for note in ax.texts]
        assert len(boxes) == len(LLMS)
        assert all(overlap(a, b) == 0 for a, b in itertools.combinations(boxes, 2))
        points = ax.transData.transform(drawn(ax)["in no pool"])
        assert not any(box.contains(*point) for box in boxes for point in points)
        assert all(ax.bbox.containsx(end) for box in boxes for end in (box.x0, box.x1))


def test_one_profile_alone():
    axes = plot_profiles([profile(LLMS[0], (0.4, 0.6))])
    assert [note.get_text() for note in axes[1].texts] == [LLMS[0].name]


# --- results --------------------------------------------------------------------------------------------------------

def curves():
    return pd.DataFrame([{"method": m, "budget": B, "accuracy": 0.3 + 0.1 * k + B / 1e4, "low": 0.2 + 0.1 * k,
                          "high": 0.6 + 0.1 * k} for k, m in enumerate("abcd") for B in (2000.0, 500.0, 1000.0)])


def test_curves_rise_over_budgets_with_bands_for_the_highlighted():
    ax = plot_curves(curves(), "latency_budget", highlight=["c", "a"])
    lines = {line.get_label(): line for line in ax.lines}
    np.testing.assert_allclose(lines["b"].get_xydata(), [[500, 45], [1000, 50], [2000, 60]])
    assert [lines[m].get_color() for m in "abcd"] == [COLORS[1], GREY, COLORS[0], GREY]
    bands = [band.get_paths()[0].get_extents() for band in ax.collections]
    assert [(round(b.y0), round(b.y1)) for b in bands] == [(40, 80), (20, 60)], "of c and a alone, 95% intervals"
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["500", "1000", "2000"]
    assert ax.get_xlabel() == "latency budget (s a task)" and ax.get_xscale() == "log"
    assert plot_curves(curves()).get_xlabel() == "cost budget (u$ a task)"
    with pytest.raises(ValueError, match="highlight = 'z': expected one of a, b, c, d"):
        plot_curves(curves(), highlight=["z"])


def test_names_of_curves_that_end_together_do_not_cover_each_other():
    table = pd.concat([curves().query("method == 'a'").assign(method=f"method {k}", accuracy=0.5 + 1e-4 * k)
                       for k in range(15)] + [curves()])
    ax = plot_curves(table, highlight=["method 3"])
    ax.figure.draw_without_rendering()
    assert len(ax.texts) == 19
    boxes = [Text.get_window_extent(note) for note in ax.texts]     # without the line that leads to it
    assert all(overlap(a, b) == 0 for a, b in itertools.combinations(boxes, 2))
    heights = {note.get_text(): note.get_position()[1] for note in ax.texts}
    order = sorted(heights, key=heights.get)
    assert [m for m in order if m.startswith("method")] == [f"method {k}" for k in range(15)]
    assert order[0] == "a" and order[-3:] == ["b", "c", "d"]


def test_heights_move_apart_as_little_as_possible():
    np.testing.assert_allclose(apart(np.array([0.0, 5.0, 9.0]), 2), [0, 5, 9])
    np.testing.assert_allclose(apart(np.array([1.0, 1.0, 9.0]), 2), [0, 2, 9])
    rng = np.random.default_rng(0)
    for _ in range(20):
        heights = np.sort(rng.uniform(0, 5, 4))
        moved = apart(heights, 1.0)
        assert np.diff(moved).min() > 1 - 1e-9
        cost = ((moved - heights) ** 2).sum()
        for other in moved + rng.normal(0, 0.3, (200, 4)):
            if np.diff(other).min() >= 1:
                assert ((other - heights) ** 2).sum() >= cost - 1e-9


def aucs():
    return pd.DataFrame([
        {"method": "ours", "auc": 0.6, "low": 0.45, "high": 0.62, "difference": 0.0, "difference_low": 0.0,
         "difference_high": 0.0},
        {"method": "unclear", "auc": 0.59, "low": 0.5, "high": 0.7, "difference": -0.01, "difference_low": -0.05,
         "difference_high": 0.02},
        {"method": "published", "auc": 0.8, "low": np.nan, "high": np.nan, "difference": np.nan,
         "difference_low": np.nan, "difference_high": np.nan},
        {"method": "worse", "auc": 0.4, "low": 0.3, "high": 0.5, "difference": -0.2, "difference_low": -0.3,
         "difference_high": -0.1}])


def test_areas_are_sorted_and_differences_are_filled_where_they_are_clear():
    left, right = plot_aucs(aucs(), reference="ours")
    assert [tick.get_text() for tick in left.get_yticklabels()] == ["worse", "unclear", "ours", "published"]
    np.testing.assert_allclose(left.collections[1].get_offsets(), [[40, 0], [59, 1], [60, 2], [80, 3]])
    segments = left.collections[0].get_segments()
    np.testing.assert_allclose([np.ravel(s) for s in segments[:3]], [[30, 0, 50, 0], [50, 1, 70, 1], [45, 2, 62, 2]])
    bars, dots = right.collections
    np.testing.assert_allclose([np.ravel(s) for s in bars.get_segments()[:2]], [[-30, 0, -10, 0], [-5, 1, 2, 1]])
    np.testing.assert_allclose(dots.get_offsets()[:2].filled(), [[-20, 0], [-1, 1]])
    assert 2 not in np.ma.getdata(dots.get_offsets())[:, 1], "no difference of a method from itself"
    assert [to_hex(c) for c in dots.get_facecolors()[:2]] == [COLORS[0].lower(), "#ffffff"]
    assert "from ours" in right.get_xlabel()
    assert len(plot_aucs(aucs().drop(columns=["difference", "difference_low", "difference_high"]))) == 1
    with pytest.raises(ValueError, match="reference = 'BAMAS': expected one of ours, "):
        plot_aucs(aucs(), reference="BAMAS")


def surface():
    rows = [{"method": m, "cost_budget": B, "latency_budget": L, "accuracy": 0.01 * (10 * k + 7 * i + j)}
            for k, m in enumerate("ab") for i, B in enumerate((500.0, 1000.0, 4000.0))
            for j, L in enumerate((np.inf, 2.0))]
    return pd.DataFrame(rows)


def numbers(ax):
    return {(int(t.get_position()[0]), int(t.get_position()[1])): t.get_text() for t in ax.texts}


def test_surfaces_show_each_pair_of_budgets_and_the_difference():
    first, second, gap = plot_surface(surface(), ("b", "a"))
    assert numbers(second) == {(i, j): f"{7 * i + 1 - j}" for i in range(3) for j in range(2)}
    assert numbers(first) == {(i, j): f"{10 + 7 * i + 1 - j}" for i in range(3) for j in range(2)}
    assert set(numbers(gap).values()) == {"+10.0"}
    assert [tick.get_text() for tick in gap.get_xticklabels()] == ["500", "1000", "4000"]
    assert [tick.get_text() for tick in first.get_yticklabels()] == ["2", "none"]
    assert first.images[0].get_clim() == second.images[0].get_clim() == pytest.approx((0, 25)), "one scale for both"
    assert gap.images[0].get_clim() == pytest.approx((-10, 10))
    assert first.get_ylim()[0] < first.get_ylim()[1], "latency budgets rise upwards"
    assert "u$" in gap.get_xlabel() and "(s " in first.get_ylabel()


def test_a_surface_of_outcomes_is_their_mean_and_holes_stay_empty():
    table = surface()
    outcomes = pd.concat([table.assign(correct=True), table.assign(correct=[*[False] * 6, *[True] * 6])])
    holes = outcomes[(outcomes.method == "b") | (outcomes.cost_budget < 4000)].drop(columns="accuracy")
    first, second, gap = plot_surface(holes, ("a", "b"))
    assert set(numbers(first).values()) == {"50"} and set(numbers(second).values()) == {"100"}
    assert set(numbers(gap).values()) == {"-50.0"}
    assert len(numbers(gap)) == len(numbers(first)) == 4 and len(numbers(second)) == 6
    small = plot_surface(table.assign(accuracy=lambda t: 0.5 + 0.001 * (t.method == "a")), ("a", "b"))[2]
    assert small.images[0].get_clim() == (-5, 5), "a small difference keeps pale colors"
    with pytest.raises(ValueError, match="methods = 'z'"):
        plot_surface(table, ("a", "z"))
    with pytest.raises(ValueError, match="no pair of budgets"):
        plot_surface(table[(table.method == "a") == (table.cost_budget < 1000)], ("a", "b"))


def test_a_training_is_drawn_over_its_epochs():
    names = ("reward", "correct", "cost_share", "latency_share", "cost_overshoot", "latency_overshoot", "agents",
             "edges", "lambda_cost", "lambda_latency")
    history = pd.DataFrame({name: [k + 0.1, k + 0.2] for k, name in enumerate(names)}).assign(epoch=[1, 2])
    axes = plot_training(history)
    assert [texts(ax.get_legend()) for ax in axes] == [["reward", "right answers"], ["cost", "latency"],
                                                       ["of cost", "of latency"], ["agents", "edges"]]
    np.testing.assert_allclose(axes[1].lines[1].get_xydata(), [[1, 3.1], [2, 3.2]])
    np.testing.assert_allclose(axes[2].lines[0].get_ydata(), [8.1, 8.2])
    assert {ax.get_xlabel() for ax in axes} == {"epoch"}


# --- graphs ---------------------------------------------------------------------------------------------------------

ROLE = {role.kind: role for role in roles_of("mathematics")}


def graph(*parts, edges=()):
    """Parts: (kind, seconds)."""
    agents = tuple(GraphAgent(f"agent {k}", ROLE[kind], LLMS[k], 100.0, 10.0, seconds)
                   for k, (kind, seconds) in enumerate(parts))
    return AgentGraph(agents, edges)


def boxes(ax):
    """(start, finish, row, whether bold) of each agent, in the order of the graph."""
    return [(p.get_x(), p.get_x() + p.get_width(), round(p.get_y() + p.get_height() / 2), p.get_linewidth() > 1.5)
            for p in ax.patches if isinstance(p, Rectangle)]


def arrows(ax):
    """(from, to, whether bold): ends in seconds and rows."""
    return [(p._posA_posB[0], p._posA_posB[1], p.get_linewidth() > 1.5) for p in ax.patches
            if isinstance(p, FancyArrowPatch)]


def test_a_graph_stands_in_its_planned_time_with_its_critical_path_bold():
    g = graph(("answer", 4.0), ("document", 3.0), ("answer", 1.0), ("review", 2.0), ("answer", 5.0),
              edges=[(1, 0), (0, 3), (2, 3), (3, 4), (1, 4)])
    ax = plot_graph(g)
    drawn_boxes = boxes(ax)
    np.testing.assert_allclose([box[:2] for box in drawn_boxes], [(3, 7), (0, 3), (0, 1), (7, 9), (9, 14)])
    rows = [box[2] for box in drawn_boxes]
    assert sorted(rows) == list(range(5)) and all(rows[i] < rows[j] for i, j in g.edges)
    assert [box[3] for box in drawn_boxes] == [True, True, False, True, True]
    ends = {(i, j): arrow for (i, j), arrow in zip(g.edges, arrows(ax), strict=True)}
    assert {edge for edge, arrow in ends.items() if arrow[2]} == {(1, 0), (0, 3), (3, 4)}
    for (i, j), (tail, head, _) in ends.items():
        assert tail[0] == pytest.approx(drawn_boxes[i][1]) and head[0] == pytest.approx(drawn_boxes[j][0], abs=0.2)
        assert rows[i] < tail[1] < rows[i] + 0.5 and rows[j] - 0.5 < head[1] < rows[j]
    names = {note.get_text() for note in ax.texts}
    assert names == {f"{a.role.name} · {a.llm.name}" for a in g.agents}
    assert ax.get_title(loc="left") == "planned: 14.0 s, 550 u$" and "(s)" in ax.get_xlabel()


@pytest.mark.parametrize("n", [1, 12])
def test_one_agent_and_twelve_are_readable(n):
    rng = np.random.default_rng(n)
    kinds = ["answer"] * n if n == 1 else ["document"] * 2 + ["answer"] * 8 + ["review"] * 2
    edges = [(i, j) for i in range(n) for j in range(i + 1, n) if kinds[i] != "review" and rng.random() < 0.3]
    g = graph(*zip(kinds, rng.uniform(0.5, 8, n), strict=True), edges=edges)
    ax = plot_graph(g)
    ax.figure.draw_without_rendering()
    notes = [note.get_window_extent() for note in ax.texts]
    assert len(notes) == n and all(overlap(a, b) == 0 for a, b in itertools.combinations(notes, 2))
    frames = [p.get_window_extent() for p in ax.patches if isinstance(p, Rectangle)]
    for note, frame in zip(notes, frames, strict=True):
        low, high = sorted((frame.y0, frame.y1))     # rows go down
        inside = frame.x0 <= note.x0 and note.x1 <= frame.x1
        assert inside or note.x0 > frame.x1 or note.x1 < frame.x0, "never across the edge of its box"
        assert ax.bbox.x0 <= note.x0 and note.x1 <= ax.bbox.x1 and low < note.y0 and note.y1 < high


def test_graphs_share_their_time_and_colors_of_pools():
    small, large = graph(("answer", 2.0)), graph(("document", 3.0), ("answer", 4.0), ("answer", 1.0), edges=[(0, 1)])
    axes = plot_graphs({"500 u$, 10 s": small, "900 u$, 20 s": large},
                       pools={LLMS[0].name: "economy", LLMS[2].name: "premium", "absent": "balanced"})
    assert axes[0].get_xlim() == axes[1].get_xlim() and axes[0].get_xlim()[1] > 7
    assert texts(axes[0].get_legend()) == ["economy", "premium", "in no pool"] and axes[1].get_legend() is None
    edges = [to_hex(p.get_facecolor()) for p in axes[1].patches if isinstance(p, Rectangle)]
    assert len(set(edges)) == 3
    same = [to_hex(p.get_facecolor()) for p in axes[0].patches if isinstance(p, Rectangle)]
    assert same == edges[:1], "a pool has one color in all panels"
    title = next(text for text in axes[0].findobj(Text) if text.get_text().startswith("500 u$"))
    assert title.get_text() == "500 u$, 10 s: 2.0 s, 100 u$" and not title.get_parse_math()


def test_agents_that_take_no_time_stay_above_whom_they_hand_on_to():
    g = graph(("answer", 0.3), ("answer", 0.0), ("answer", 0.6), edges=[(0, 1), (1, 2)])
    assert g.finish_times[2] - 0.6 < g.finish_times[1], "in floats the last starts before the second is done"
    assert [box[2] for box in boxes(plot_graph(g))] == [0, 1, 2]
    g = graph(("answer", 5.0), ("answer", 1.0), ("answer", 3.0), edges=[(1, 2)])
    assert [box[2] for box in boxes(plot_graph(g))] == [0, 1, 2], "rows by start, not by finish"
    assert len(boxes(plot_graph(graph(("answer", 0.0))))) == 1
