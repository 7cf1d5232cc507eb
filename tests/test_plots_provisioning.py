"""Pictures of weights and teams: drawn where asked, and showing the numbers that they were given."""

import matplotlib.pyplot as plt
import pytest

from bamas_lite import budget_frontier, load_pool
from bamas_lite.plots_provisioning import (
    plot_costs,
    plot_dominance,
    plot_shares,
    plot_staircase,
    plot_team_map,
    plot_weight_growth,
)

BUDGETS = [500, 875, 1250]
TEAMS = budget_frontier(load_pool("paper"), BUDGETS, method="lexicographic")


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


@pytest.mark.parametrize("draw", [
    lambda ax: plot_dominance([24, 6, 1], [18, 5, 0], ax=ax), lambda ax: plot_costs(TEAMS, ax=ax),
    lambda ax: plot_shares({"a": {1: 0.5, 10: 1}}, "x", "y", ax=ax), lambda ax: plot_staircase(TEAMS, BUDGETS, ax=ax),
    lambda ax: plot_weight_growth({"a": [1, 10, 2**60]}, ax=ax),
    lambda ax: plot_team_map({(b, 1): t for b, t in zip(BUDGETS, TEAMS, strict=True)}, "x", "y", ax=ax)])
def test_drawn_into_the_given_axes_or_new_ones(draw):
    ax = plt.subplots()[1]
    assert draw(ax) is ax and ax.get_xlabel() + ax.get_ylabel() and draw(None) is not ax
    plt.gcf().canvas.draw()


def test_bars_carry_their_numbers():
    ax = plot_dominance([24, 6, 1], [18, 5, 0])
    assert [bar.get_height() for bar in ax.patches] == [24, 6, 1, 18, 5, 0]
    assert {text.get_text() for text in ax.texts} == {"24", "6", "1", "18", "5", "0"}


def test_staircase_stacks_the_agents_of_each_tier():
    ax = plot_staircase(TEAMS, BUDGETS)
    strong, weak = ax.patches
    assert strong.get_data().values.tolist() == [0, 1, 2] and weak.get_data().values.tolist() == [2, 2, 2]
    assert strong.get_data().edges.tolist()[:3] == BUDGETS and "$" in ax.get_xlabel()


def test_shares_are_percent_and_maps_show_all_tiers():
    assert plot_shares({"a": {1: 0.5, 10: 1}}, "x", "y").lines[0].get_ydata().tolist() == [50, 100]
    grid = {(b, 1): t for b, t in zip([100, *BUDGETS], [None, *TEAMS], strict=True)}
    assert [text.get_text() for text in plot_team_map(grid, "x", "y").texts] == ["-", "0+2", "1+1", "2+0"]
