"""Pictures of the log: they draw the numbers that they are given, in percent, and return their Axes."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from bamas_lite import plots_trajectories as plots
from bamas_lite.topologies import TOPOLOGIES

POINTS = pd.DataFrame({"llm": ["A", "A", "B", "B"], "level": [1, 2, 1, 2], "expected": [0.9, 0.8, 0.7, 0.6],
                       "measured": [0.91, 0.79, 0.7, 0.61], "low": 0.5, "high": 0.95})


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def test_calibration():
    ax = plots.plot_calibration(POINTS, title="t")
    lines = [line.get_ydata() for line in ax.lines if line.get_linestyle() in ("-", "--")]
    assert np.allclose(lines[0], [90, 80]) and np.allclose(lines[1], [70, 60])
    assert ax.get_xlabel() == "level" and "%" in ax.get_ylabel()
    assert ax.get_legend_handles_labels()[1][0] == "line: closed form"


def test_pairs_and_estimates():
    pairs = pd.DataFrame({"pair": ["x", "y"], "measured": [0.05, 0.02], "low": [0.04, 0.01], "high": [0.06, 0.03],
                          "expected": [0.05, 0.02], "independent": [0.01, 0.0]})
    ax = plots.plot_pairs(pairs)
    assert [t.get_text() for t in ax.get_yticklabels()] == ["x", "y"] and "%" in ax.get_xlabel()
    ax = plots.plot_estimates([0.4, 0.5, 0.6], 0.5, std=0.1)
    curve = next(line for line in ax.lines if line.get_linestyle() == "--")
    x, density = curve.get_data()
    assert np.trapezoid(density, x) == pytest.approx(1, abs=1e-3) and x[density.argmax()] == pytest.approx(50, abs=1)


def test_by_topology_draws_each_line_in_percent():
    values = pd.DataFrame([{"choice": t, "budget": b, "correct": 0.5 + i / 10, "correct_low": 0.4, "correct_high": 0.9}
                           for i, t in enumerate(TOPOLOGIES) for b in (500, 1000)])
    ax = plots.plot_by_topology(values, "budget", xlabel="budget (u$)", ylabel="right (%)")
    drawn = [container.lines[0].get_ydata() for container in ax.containers]
    assert np.allclose(drawn, [[50, 50], [60, 60], [70, 70], [80, 80]])
    assert [t.get_text() for t in ax.get_xticklabels()] == ["500", "1000"]


def test_disagreement_leaves_the_diagonal_empty():
    ax = plots.plot_disagreement(np.full((4, 4), 0.031))
    assert [t.get_text() for t in ax.texts] == ["3.1"] * 12


def test_disagreement_in_several_panels_shares_a_color_scale():
    first, second = (plots.plot_disagreement(np.full((4, 4), share), most=0.1) for share in (0.031, 0.1))
    assert first.images[0].get_clim() == second.images[0].get_clim() == (0, 10)
    assert {t.get_color() for t in first.texts} == {"white"} and {t.get_color() for t in second.texts} == {"black"}


def test_chooser():
    ax = plots.plot_chooser({1: (0.9, 0.8, 0.95), 2: (0.92, 0.85, 0.96)}, {"oracle": 0.99})
    assert np.allclose(ax.containers[0].lines[0].get_ydata(), [90, 92])
    assert [t.get_text() for t in ax.get_xticklabels()] == ["1", "2"]
