"""Figures of a policy: what is drawn is what the table says."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from bamas_lite.casting import TOPOLOGIES
from bamas_lite.plots_policy import plot_ends, plot_policy_map, plot_shares, plot_training, plot_values


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def shares(n):
    drawn = np.random.default_rng(0).dirichlet(np.ones(4), n).T
    return {f"share_{t}": share for t, share in zip(TOPOLOGIES, drawn, strict=True)}


def test_training_curves():
    runs = {"a": pd.DataFrame({"epoch": [0, 1], "reward": [0.1, 0.4]}),
            "b": pd.DataFrame({"epoch": [0], "reward": [0.3]})}
    ax = plot_training(runs)
    assert [line.get_ydata().tolist() for line in ax.lines] == [[0.1, 0.4], [0.3]]
    assert ax.get_xlabel() == "epoch" and [text.get_text() for text in ax.get_legend().texts] == ["a", "b"]


def test_ends_have_bars_and_the_limit_of_the_published_loss():
    worlds = {"positive": [1, 3, 5, 2], "negative": [-1, -2, -3, -4], "mixed": [3, 1, -1, 0.5]}
    ends = {name: np.random.default_rng(k).dirichlet(np.ones(4), 3) for k, name in enumerate("abc")}
    axes = plot_ends(worlds, ends)
    for w, ax in enumerate(axes):
        for bars, end in zip(ax.containers, ends.values(), strict=True):
            np.testing.assert_allclose([bar.get_height() for bar in bars], end[w])
    positive, mixed = axes[0].lines[0].get_ydata(), axes[2].lines[0].get_ydata()
    np.testing.assert_allclose(positive, np.array([1, 3, 5, 2]) / 11)
    pi, R, S = np.full(4, 0.25), np.array(worlds["mixed"]), 3.5
    for _ in range(20_000):  # the descent itself
        pi = pi * np.exp(0.01 * (R - pi * S))
        pi /= pi.sum()
    np.testing.assert_allclose(mixed, pi, atol=1e-3)
    assert not axes[1].lines
    assert [tick.get_text() for tick in axes[2].get_xticklabels()] == ["3", "1", "-1", "0.5"]


def test_policy_map_shows_each_share_and_leaves_gaps_empty():
    table = pd.DataFrame({"domain": ["code", "code", "arithmetic"], "budget": [500.0, 2000.0, 500.0]} | shares(3))
    axes = plot_policy_map(table, "domain")
    for ax, topology in zip(axes, TOPOLOGIES, strict=True):
        grid = ax.images[0].get_array()
        assert grid[1, 1] == table[f"share_{topology}"][1] and grid[0, 0] == table[f"share_{topology}"][2]
        assert not np.isfinite(np.ma.filled(grid, np.nan)[0, 1]) and len(ax.texts) == 3
        assert "u$" in ax.get_xlabel()
    assert [tick.get_text() for tick in axes[0].get_yticklabels()] == ["arithmetic", "code"]


def test_values_have_dots_and_whiskers():
    table = pd.DataFrame({"choice": ["always planner_driven", "policy: ours"], "correct": [0.5, 0.7],
                          "correct_low": [0.4, 0.6], "correct_high": [0.6, 0.8], "cost": [100.0, 90.0],
                          "cost_low": [90.0, 80.0], "cost_high": [110.0, 95.0]})
    right, cost = plot_values(table)
    assert sorted(float(line.get_xdata()[0]) for line in right.lines) == [50.0, 70.0]
    whiskers = sorted(tuple(segment[:, 0].tolist()) for c in cost.collections for segment in c.get_segments())
    assert whiskers == [(80.0, 95.0), (90.0, 110.0)]
    assert right.get_xlabel() == "right answers (%)" and cost.get_xlabel() == "cost (u$ a task)"
    assert [tick.get_text() for tick in right.get_yticklabels()] == ["always planner-driven", "policy: ours"]


def test_shares_stack_to_a_hundred():
    table = pd.DataFrame({"budget": [500.0, 2000.0]} | shares(2))
    ax = plot_shares(table, "budget", xlabel="budget (u$)")
    heights = np.array([[bar.get_height() for bar in bars] for bars in ax.containers])
    np.testing.assert_allclose(heights.sum(axis=0), 100)
    np.testing.assert_allclose(heights[1], 100 * table.share_star)
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["500", "2000"]
