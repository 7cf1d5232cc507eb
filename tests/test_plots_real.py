"""Figures of runs with real LLMs: what is drawn is what the table says."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import LineCollection

from bamas_lite.casting import TOPOLOGIES
from bamas_lite.plots_policy import TOPOLOGY_COLORS
from bamas_lite.plots_real import plot_against_alone, plot_cascades, plot_critics, plot_gaps, plot_prediction


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def texts(ax):
    return [text.get_text() for text in ax.get_legend().texts]


def bars(container):
    """Ends of the error bars: for each direction an array (points, 2 ends, x and y)."""
    return [np.array(lines.get_segments()) for lines in container.lines[2] if isinstance(lines, LineCollection)]


def results():
    rows = [{"who": "A alone", "budget": np.nan, "correct": 0.3, "cost": 50.0},
            {"who": "B alone", "budget": np.nan, "correct": 0.2, "cost": 20.0}]
    rows += [{"who": t, "budget": B, "correct": 0.1 + 0.1 * k, "cost": B / 2 + k} for B in (480.0, 200.0)
             for k, t in enumerate(TOPOLOGIES)]
    return pd.DataFrame(rows).assign(correct_low=lambda r: r.correct - 0.05, correct_high=lambda r: r.correct + 0.07)


def test_topologies_and_llms_alone_are_where_their_cost_and_accuracy_are():
    ax = plot_against_alone(results())
    assert texts(ax) == ["linear", "star", "feedback", "planner-driven", "A alone", "B alone"]
    star = ax.containers[1]
    np.testing.assert_allclose(star.lines[0].get_xydata(), [[101, 20], [241, 20]])
    (across,) = bars(star)
    np.testing.assert_allclose(across[:, :, 1], [[15, 27], [15, 27]])
    np.testing.assert_allclose(ax.containers[5].lines[0].get_xydata(), [[20, 20]])
    assert sorted(text.get_text() for text in ax.texts) == ["200"] * 4 + ["480"] * 4
    level = {round(float(line.get_ydata()[0]), 6) for line in ax.lines if list(line.get_xdata()) == [0, 1]}
    assert level == {30.0, 20.0}, "a line at the height of each LLM alone"


def test_gaps_have_one_line_a_budget_and_topology_in_order():
    table = pd.DataFrame([{"budget": B, "topology": t, "difference": 0.01 * k, "low": -0.05, "high": 0.06 + 0.01 * k}
                          for B in (200.0, 300.0) for k, t in enumerate(TOPOLOGIES)])
    axes = plot_gaps({"minus A": table, "minus B": table.assign(difference=-0.02)})
    assert [ax.get_title() for ax in axes] == ["minus A", "minus B"]
    names = [tick.get_text() for tick in axes[0].get_yticklabels()]
    assert names[0] == "200 u$, linear" and names[7] == "300 u$, planner-driven"
    dots = sorted((tuple(point) for line in axes[0].lines if line.get_marker() != "None"
                   for point in line.get_xydata()), key=lambda point: -point[1])
    np.testing.assert_allclose(dots, [(k % 4, -k) for k in range(8)], atol=1e-9)
    whiskers = sorted((segment[0][1], segment[0][0], segment[1][0]) for lines in axes[0].collections
                      for segment in lines.get_segments())
    np.testing.assert_allclose(whiskers, [(-k, -5, 6 + k % 4) for k in range(7, -1, -1)])
    assert all(line.get_xdata()[0] == -2 for line in axes[1].lines if line.get_marker() != "None")


def test_critics_lie_at_false_alarms_and_hits_beside_the_simulated_segment():
    table = pd.DataFrame([{"llm": "A", "false_alarm": 0.4, "false_alarm_low": 0.3, "false_alarm_high": 0.6, "hit": 0.5,
                           "hit_low": 0.45, "hit_high": 0.52},
                          {"llm": "B", "false_alarm": 0.1, "false_alarm_low": 0.1, "false_alarm_high": 0.2, "hit": 0.9,
                           "hit_low": 0.8, "hit_high": 0.9}])
    ax = plot_critics(table, {"simulated": [(0.02, 0.7), (0.3, 0.2)]})
    a, b = ax.containers
    assert a.lines[0].get_xydata().tolist() == [[40, 50]] and b.lines[0].get_xydata().tolist() == [[10, 90]]
    across, up = bars(a)
    np.testing.assert_allclose(across[0, :, 0], [30, 60])
    np.testing.assert_allclose(up[0, :, 1], [45, 52])
    np.testing.assert_allclose(ax.lines[1].get_xydata(), [[2, 70], [30, 20]])
    assert texts(ax) == ["does not look at the answer", "simulated", "A", "B"]
    kinds = pd.concat([table.assign(kind="sum"), table.assign(kind="choice", false_alarm=1.0, hit=0.75)])
    ax = plot_critics(table, kinds=kinds)
    assert [text.get_text() for text in ax.texts] == ["sum", "choice"] * 2
    small = [line.get_xydata()[0].tolist() for line in ax.lines if line.get_markerfacecolor() == "none"]
    assert small == [[40, 50], [100, 75], [10, 90], [100, 75]]


def test_predictions_are_hollow_where_the_interval_misses():
    rows = []
    for quantity, scale in (("accuracy", 1.0), ("cost", 300.0)):
        for k, topology in enumerate(TOPOLOGIES):
            x = scale * (0.2 + 0.1 * k)
            rows.append({"quantity": quantity, "domain": "code", "budget": 200.0, "topology": topology, "recorded": x,
                         "recorded_low": 0.8 * x, "recorded_high": 1.1 * x, "predicted": 0.9 * x,
                         "predicted_low": 0.9 * x, "predicted_high": 1.2 * x, "covered": topology != "star"})
    accuracy, cost = plot_prediction(pd.DataFrame(rows))
    drawn = {tuple(np.round(c.lines[0].get_xydata()[0], 6)): c for c in accuracy.containers}
    assert set(drawn) == {(20, 18), (30, 27), (40, 36), (50, 45)}
    star, linear = drawn[30, 27].lines[0], drawn[20, 18].lines[0]
    assert star.get_markerfacecolor() == "white" and star.get_color() == TOPOLOGY_COLORS["star"]
    assert linear.get_markerfacecolor() == TOPOLOGY_COLORS["linear"]
    across, up = bars(drawn[20, 18])
    np.testing.assert_allclose(across[0, :, 0], [16, 22])
    np.testing.assert_allclose(up[0, :, 1], [18, 24])
    assert sorted(c.lines[0].get_xydata()[0, 0] for c in cost.containers) == pytest.approx([60, 90, 120, 150])
    assert "u$" in cost.get_xlabel() and "predicted" in cost.get_ylabel()


def test_cascades_are_lines_by_cost_and_llms_alone_are_points():
    rows = [{"policy": "weak", "budget": np.nan, "accuracy": 0.6, "cost": 700.0},
            {"policy": "strong", "budget": np.nan, "accuracy": 0.9, "cost": 13000.0}]
    rows += [{"policy": p, "budget": float(B), "accuracy": 0.6 + B / 1e5 + k / 100, "cost": B - 100.0}
             for k, p in enumerate(("star", "cascade", "random", "oracle")) for B in (4000, 1000)]
    table = pd.DataFrame(rows)
    table = table.assign(accuracy_low=table.accuracy - 0.03, accuracy_high=table.accuracy + 0.02)
    ax = plot_cascades(table, {"weak": "W alone", "strong": "S alone"})
    drawn = {c.get_label(): c for c in ax.containers}
    np.testing.assert_allclose(drawn["cascade, by budget"].lines[0].get_xydata(), [[900, 62], [3900, 65]])
    (up,) = bars(drawn["cascade, by budget"])
    np.testing.assert_allclose(up[0, :, 1], [59, 64])
    assert not bars(drawn["escalates at random"]), "an expectation has no interval here"
    points = {line.get_label(): line.get_xydata().tolist() for line in ax.lines if line.get_label().endswith("alone")}
    assert points == {"W alone": [[700, 60]], "S alone": [[13000, 90]]}
    assert drawn["star, by budget"].lines[0].get_linestyle() == "None"


def test_without_bars_accuracies_keep_the_scale_of_the_intervals():
    table = results()
    ax = plot_against_alone(table, bars=False)
    assert not any(container.has_yerr for container in ax.containers)
    assert ax.get_ylim() == pytest.approx((100 * table.correct_low.min() - 1, 100 * table.correct_high.max() + 1))
