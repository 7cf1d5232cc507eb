"""Figures of the reproduction: what is drawn is what the tables say."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from bamas_lite.casting import TOPOLOGIES
from bamas_lite.plots_reproduction import (
    plot_accuracy_cost,
    plot_coverage,
    plot_draws,
    plot_frontiers,
    plot_residuals,
    plot_switches,
    plot_table,
    plot_topology_shares,
    plot_tornado,
)
from bamas_lite.reproduction.predicates import CHOOSERS, OURS, PUBLISHED, findings_in_draws
from bamas_lite.reproduction.published import DATASETS, load_published, load_shares
from tests.synthetic_results import SHARES, draws, rows

PAPER = load_published()


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.gcf().canvas.draw()   # a warning while drawing is an error
    plt.close("all")


def diamonds(ax):
    """x and y of the published figures in a panel."""
    line, = (line for line in ax.lines if line.get_marker() == "D" and len(line.get_xdata()))
    return np.asarray(line.get_xdata()), np.asarray(line.get_ydata())


def dots(ax):
    x, y = np.ma.filled(np.concatenate([c.get_offsets() for c in ax.collections if hasattr(c, "get_sizes")
                                        and len(c.get_offsets())]), np.nan).T
    return x, y


def whiskers(ax):
    segments = [s for c in ax.collections if hasattr(c, "get_segments") for s in c.get_segments() if len(s)]
    return np.array([[*s[:, 0], s[0, 1]] for s in segments])


def labels(ax):
    return [text.get_text() for text in ax.get_yticklabels()]


def test_table_has_every_row_twice():
    axes = plot_table(PAPER, rows(shift=0.5, scale=1.2))
    assert axes.shape == (3, 2)
    for (left, right), name in zip(axes, DATASETS, strict=True):
        table = PAPER[PAPER["dataset"] == name]
        for ax, figures, ours in ((left, table.accuracy_percent, table.accuracy_percent + 0.5),
                                  (right, table.avg_cost_microusd, 1.2 * table.avg_cost_microusd)):
            x, y = diamonds(ax)
            assert x.tolist() == figures.tolist() and len(set(y)) == len(table)
            np.testing.assert_allclose(dots(ax), [ours, y])
        spans = whiskers(left)[:, :2].T
        np.testing.assert_allclose(spans, [table.accuracy_percent - 0.5, table.accuracy_percent + 1.5])
        assert labels(left) == [f"{r.system}: {r.setting}" for r in table.itertuples()]
        assert left.get_xlabel() == "right answers (%)" and right.get_xlabel() == "cost (u$ a task)"
        assert left.get_title(loc="left") == name


def test_table_of_one_dataset_and_with_rows_that_we_lack():
    (left, _), = plot_table(PAPER, rows().query("system != 'ChatDev'"), ["MATH"])
    x, _ = dots(left)
    assert np.isnan(x).sum() == 1 and len(diamonds(left)[0]) == 6


def test_accuracy_against_cost_has_both():
    axes = plot_accuracy_cost(PAPER, rows(shift=-1))
    for ax, name in zip(axes, DATASETS, strict=True):
        table = PAPER[(PAPER["dataset"] == name) & (PAPER["system"] == "BAMAS")]
        hollow, = (line for line in ax.lines if line.get_linestyle() == "--")
        filled, = (line for line in ax.lines if line.get_linestyle() == "-" and line.get_marker() == "D")
        assert hollow.get_xdata().tolist() == filled.get_xdata().tolist() == table.avg_cost_microusd.tolist()
        np.testing.assert_allclose(np.asarray(filled.get_ydata(), float), hollow.get_ydata() - 1)
        points = [line for line in ax.lines if line.get_marker() in "s^vo" and line.get_linestyle() == "None"]
        n_baselines = (PAPER["dataset"] == name).sum() - len(table)
        assert sum(len(line.get_xdata()) for line in points) == 2 * n_baselines
        assert ax.get_xscale() == "log" and ax.get_xlabel() == "cost (u$ a task)"
        assert len(ax.get_xticks()) >= 4
    names = [text.get_text() for text in axes[0].figure.legends[0].texts]
    assert set(PAPER.system) < set(names) and "filled: ours, 95% interval" in names


def test_shares_stack_and_the_published_ones_are_markers_from_the_ground():
    table = rows()
    at = (table.system == PUBLISHED) & (table.setting == "budget 1000")
    table.loc[at, ["share_linear", "share_feedback"]] = [0.5, 0.4]
    axes = plot_topology_shares(table.iloc[::-1], load_shares())   # order of rows does not matter
    for ax, name in zip(axes[::-1], DATASETS, strict=True):
        heights = np.array([[bar.get_height() for bar in bars] for bars in ax.containers])
        np.testing.assert_allclose(heights.sum(axis=0), 100)
        feedback = [bar.get_height() for bar in ax.containers[0]]
        assert [bar.get_y() for bar in ax.containers[0]] == [0] * len(feedback)
        expected = [100 * SHARES[name][2]] * len(DATASETS[name].budgets)
        if name == "MATH":
            expected[0] = 40
        np.testing.assert_allclose(feedback, [*expected, np.mean(expected)])
        assert [t.get_text() for t in ax.get_xticklabels()] == [*map(str, DATASETS[name].budgets), "all"]
        given = load_shares().set_index("dataset").share_percent
        if name in given:
            x, y = diamonds(ax)
            assert y.tolist() == [given[name]] and x[0] == ax.get_xticks()[-1]
        else:
            assert not ax.lines


def test_switches_are_a_forest_with_zero():
    metrics, names = ("accuracy", "cost", "share_star"), ["one", "two"]
    table = pd.DataFrame([{"switch": s, "dataset": d, "metric": m, "effect": k + 1, "low": k, "high": k + 3}
                          for k, (s, d, m) in enumerate((s, d, m) for s in names for d in DATASETS for m in metrics)])
    axes = plot_switches(table.drop(index=0))
    assert [ax.get_xlabel().replace("\n", " ") for ax in axes] == ["right answers (points)", "cost (u$ a task)",
                                                                   "share of star (points)"]
    assert labels(axes[0]) == names
    for ax, metric in zip(axes, metrics, strict=True):
        part = table.drop(index=0)[lambda t, m=metric: t.metric == m]
        found = [line for line in ax.lines if line.get_marker() in "os^"]
        effects = np.concatenate([line.get_xdata() for line in found])
        assert sorted(effects[np.isfinite(effects)]) == sorted(part.effect)
        spans = whiskers(ax)
        spans = spans[np.isfinite(spans[:, 0]) & (spans[:, 1] - spans[:, 0] == 3)]
        assert sorted(map(tuple, spans[:, :2])) == sorted(zip(part.low, part.high, strict=True))
        assert any(set(line.get_xdata()) == {0} for line in ax.lines)
    assert len(plot_switches(table, ["cost"])) == 1


def test_tornado_has_the_largest_swing_on_top():
    table = pd.DataFrame({"parameter": ["a", "b", "c"], "low_end": 0.1, "high_end": 0.9, "at_low": [9.0, 5.0, 10.5],
                          "at_high": [10.0, 12.0, 10.0], "base": 10.0})
    ax = plot_tornado(table, xlabel="saving (%)", most=2, title="MBPP")
    assert labels(ax) == ["b  [0.1, 0.9]", "a  [0.1, 0.9]"] and ax.get_yticks()[0] > ax.get_yticks()[1]
    low, high = ([(bar.get_x(), bar.get_width()) for bar in bars] for bars in ax.containers)
    assert low == [(10, -5), (10, -1)] and high == [(10, 2), (10, 0)]
    assert ax.get_xlabel() == "saving (%)" and [*ax.lines[0].get_xdata()] == [10, 10]
    assert len(plot_tornado(table, xlabel="x", ax=plt.subplots()[1]).get_legend().texts) == 3


def test_frontiers_never_fall():
    table = rows()
    best = table.setting == "budget 1250"
    table.loc[best, ["accuracy", "accuracy_low", "accuracy_high"]] += 5
    axes = plot_frontiers(table, [PUBLISHED, OURS], PAPER)
    for ax, name in zip(axes, DATASETS, strict=True):
        part = table[(table["dataset"] == name) & (table.system == PUBLISHED)].sort_values("cost")
        step = next(line for line in ax.lines if line.get_drawstyle() == "steps-post")
        running = [part.accuracy[part.cost <= spend].max() for spend in part.cost]
        np.testing.assert_allclose(step.get_ydata(), [*running, running[-1]])
        assert step.get_xdata()[-1] > step.get_xdata()[-2] == part.cost.max()
        assert len(ax.collections) == 2 and diamonds(ax)[0].tolist() == PAPER[
            (PAPER["dataset"] == name) & (PAPER.system == "BAMAS")].avg_cost_microusd.tolist()
    assert [t.get_text() for t in axes[0].figure.legends[0].texts] == [PUBLISHED, OURS, "BAMAS, published"]


def test_coverage_rings_what_is_outside():
    table = rows(scale=1.02)
    miss = (table["dataset"] == "MBPP") & (table.setting == "budget 875") & (table.system == PUBLISHED)
    table.loc[miss, ["accuracy", "accuracy_low", "accuracy_high"]] += 4
    for predicted in (table, table.replace({"system": {OURS: "x"}}).query("system != 'x'").replace(
            {"system": {PUBLISHED: "BAMAS"}})):
        right, cost = plot_coverage(PAPER, predicted)
        assert right.get_title() == "12 of 13 inside" and cost.get_title() == "13 of 13 inside"
        ring, = (line for line in right.lines if line.get_marker() == "o")
        assert ring.get_xdata().tolist() == [80.4] and len(diamonds(right)[0]) == 13
        place = ring.get_ydata()[0]
        at = np.flatnonzero(right.get_yticks() == place)[0]
        assert labels(right)[at] == "MBPP, budget 875"
        assert "outside" in [text.get_text() for text in right.figure.legends[0].texts]
    few, _ = plot_coverage(PAPER, table[table["dataset"] == "MATH"])
    assert few.get_title() == "3 of 3 inside"
    assert "outside" not in [text.get_text() for text in few.figure.legends[0].texts]


def test_draws_show_each_finding_and_what_separates():
    table = draws(200, datasets=("GSM8K", "MBPP", "MATH"))
    weak = (table["dataset"] == "MATH") & (table["repair"] < 0.3)
    for budget in (1000, 2000, 3000):
        for t, share in zip(TOPOLOGIES, (0.9, 0.1, 0, 0), strict=True):
            table.loc[weak, f"{PUBLISHED}/{budget}/share_{t}"] = share
    found = findings_in_draws(table)
    ax = plot_draws(found)
    lines = {line.get_label(): line for line in ax.lines}
    for system in CHOOSERS:
        np.testing.assert_allclose(lines[system].get_xdata(), 100 * found.holds[found.system == system])
    assert set(lines["reproduced from 95%"].get_xdata()) == {95}
    np.testing.assert_allclose(lines["differs up to 5%"].get_xdata(), 5)
    assert labels(ax)[1] == "Feedback leads, MATH" and lines[PUBLISHED].get_xdata()[1] == 100 - 100 * weak.sum() / 200
    assert [text.get_text() for text in ax.texts] == ["repair", "repair"]
    assert "200 draws" in ax.get_xlabel()


def test_residuals_stand_at_what_was_published_and_fitted():
    fitted = pd.DataFrame({"system": ["AutoGen", "AutoGen", "Naive-CostAware"], "accuracy": [0.9, 0.8, 0.7],
                           "accuracy_fit": [0.91, 0.8, 0.72], "cost": [400.0, 1500.0, 210.0],
                           "cost_fit": [420.0, 1400.0, 300.0]})
    axes = plot_residuals(fitted)
    for ax, x, y in ((axes[0], 100 * fitted.accuracy, 100 * fitted.accuracy_fit),
                     (axes[1], fitted.cost, fitted.cost_fit)):
        autogen, naive, diagonal = ax.lines
        np.testing.assert_allclose(np.r_[autogen.get_xdata(), naive.get_xdata()], x)
        np.testing.assert_allclose(np.r_[autogen.get_ydata(), naive.get_ydata()], y)
        np.testing.assert_allclose(diagonal.get_xdata(), diagonal.get_ydata())
        np.testing.assert_allclose(diagonal.get_xdata(), [min(x.min(), y.min()), max(x.max(), y.max())])
