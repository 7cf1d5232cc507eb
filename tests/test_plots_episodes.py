"""Pictures of episodes: the data behind them."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import pytest
from test_topologies import ACCEPT, REVISE, Scripted, plan, run

from bamas_lite.plots_episodes import cost_waterfall, message_graph, sources, tier_color, time_chart
from bamas_lite.topologies import TOPOLOGIES


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def test_sources_are_read_off_the_messages():
    task = [("task", "task")]
    assert sources(run(Scripted("#### 5", "#### 6", "#### 7"), "SSW", "linear")) == [
        task, [("executor 1", "answer")], [("executor 2", "answer")]]
    assert sources(run(Scripted("#### 5", "#### 7"), "SW", "star")) == [task, task]
    assert sources(run(Scripted("#### 5", REVISE, "#### 7", ACCEPT), "SWW", "feedback")) == [
        task, [("executor 1", "answer")], [("executor 1", "answer"), ("critic 1", "critique")],
        [("executor 2", "answer")]]
    good = plan(("executor 1", "Add."))
    assert sources(run(Scripted("No.", good, "#### 5", REVISE, good, "#### 7"), "SWW", "planner_driven")) == [
        task, [("planner 1", "plan")], [("planner 1", "plan")], [("executor 1", "answer")],
        [("critic 1", "critique"), ("executor 1", "results")], [("executor 1", "answer"), ("planner 1", "plan")]]


def test_waterfall_ends_at_the_cost_and_shows_what_was_held_back():
    linear = run(Scripted("#### 7"), "SW", "linear", 1000)
    ax = cost_waterfall(linear)
    held, paid = ax.patches[0::2], ax.patches[1::2]
    assert paid[-1].get_x() + paid[-1].get_width() == pytest.approx(linear.cost)
    assert [bar.get_width() for bar in held] == pytest.approx([call.reserved for call in linear.calls])
    assert [bar.get_x() for bar in held] == pytest.approx([bar.get_x() for bar in paid])
    assert ax.lines[0].get_xdata()[0] == 1000
    star = run(Scripted("#### 7"), "SW", "star", 1000)
    held = cost_waterfall(star).patches[0::2]
    assert held[1].get_x() == pytest.approx(star.calls[0].reserved)  # both held back before either ran
    assert len(cost_waterfall(run(Scripted("#### 7"), "SW", "linear", enforcement="paper")).patches) == 2


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_every_picture_of_every_topology(topology):
    for letters, budget in (("SW", 2000), ("SSWW", 2000), ("SSSWWW", 5), ("S", 2000)):
        episode = run(Scripted("#### 7", ACCEPT), letters, topology, budget)
        texts = [text.get_text() for text in message_graph(episode).texts]
        assert {"task", "answer"} <= set(texts)
        assert sum(text.startswith(("executor", "critic", "planner")) for text in texts) == len(episode.agents)
        cost_waterfall(episode)
        ends = [bar.get_x() + bar.get_width() for bar in time_chart(episode).patches]
        assert max(ends, default=0.0) == episode.latency_s


def test_tiers_have_different_colors():
    assert len({tier_color(tier) for tier in range(1, 7)}) == 6
