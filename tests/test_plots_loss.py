"""Figures of the loss study: what is drawn is what the arrays and tables say."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from bamas_lite.casting import TOPOLOGIES
from bamas_lite.plots_loss import plot_convergence, plot_greedy_shares, plot_paths, plot_simplex


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def test_paths_have_a_line_an_action_and_the_formula():
    paths = {"gradient": np.random.default_rng(0).dirichlet(np.ones(4), 6),
             "Adam": np.random.default_rng(1).dirichlet(np.ones(4), 6)}
    ends = np.array([0.1, 0.2, 0.3, 0.4])
    ax = plot_paths(paths, ends, names="abcd")
    drawn = [line.get_ydata() for line in ax.lines if len(line.get_ydata()) == 6]
    np.testing.assert_allclose(drawn, np.hstack([paths["gradient"], paths["Adam"]]).T)
    assert any(np.array_equal(line.get_ydata(), ends) for line in ax.lines)
    names = ax.get_legend_handles_labels()[1]
    assert set(names) == {"gradient", "Adam", "a", "b", "c", "d", "formula"}
    assert ax.get_xlabel() == "steps + 1" and ax.get_ylabel() == "probability"


def test_simplex_puts_points_where_their_probabilities_say():
    path = np.array([[[1 / 3, 1 / 3, 1 / 3], [0.8, 0.1, 0.1]], [[0, 0, 1], [1, 0, 0]]])
    ax = plot_simplex(path, attracts=np.array([0, 1, 0]), repels=np.array([0.5, 0.5, 0]))
    lines = [line for line in ax.lines if len(line.get_xdata()) == 2]
    np.testing.assert_allclose(lines[0].get_xydata(), [[0.5, np.sqrt(0.75) / 3], [0.5, np.sqrt(0.75)]])
    np.testing.assert_allclose(lines[1].get_xydata()[1], [0, 0])
    assert lines[0].get_color() != lines[1].get_color()
    marks = {line.get_marker(): line.get_xydata()[0].tolist() for line in ax.lines if line.get_marker() in "*X"}
    assert marks == {"*": [1, 0], "X": [0.5, 0]}


def test_shares_are_stacked_for_each_seed():
    rng, tables = np.random.default_rng(0), {}
    for title in ("untrained", "trained"):
        table = pd.DataFrame({"scaling": ["B / B_max"] * 3 + ["B in u$"] * 3, "seed": [0, 1, 2] * 2})
        tables[title] = table.assign(**dict(zip((f"share_{t}" for t in TOPOLOGIES), rng.dirichlet(np.ones(4), 6).T,
                                                strict=True)))
    axes = plot_greedy_shares(tables)
    assert axes.shape == (2, 2)
    heights = [bar.get_height() for bar in axes[1, 1].containers[2]]
    np.testing.assert_allclose(heights, 100 * tables["trained"].share_feedback[3:])
    tops = [bar.get_y() + bar.get_height() for bar in axes[0, 0].containers[3]]
    np.testing.assert_allclose(tops, 100)
    assert axes[0, 1].get_title() == r"B in u\$" and axes[1, 0].get_ylabel().startswith("trained")


def test_convergence_shows_means_and_ranges():
    runs = [pd.DataFrame({"step": [0, 9], "agree": [0.2, a], "gradient": [4.0, g]}) for a, g in ((0.9, 0.4), (0.7, 4))]
    right, length = plot_convergence({"B in u$": runs})
    np.testing.assert_allclose(right.lines[0].get_xydata(), [[1, 20], [10, 80]])
    np.testing.assert_allclose(length.lines[0].get_ydata(), [1, np.sqrt(0.1)])
    band = right.collections[0].get_paths()[0].vertices
    assert {70.0, 90.0} <= {round(y, 6) for x, y in band if x == 10}
    assert right.lines[1].get_ydata()[0] == 95 and length.get_yscale() == "log"
    assert [[t.get_text() for t in ax.texts] for ax in (right, length)] == [["95%"], ["as at the start"]]
