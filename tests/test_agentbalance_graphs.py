"""Graphs of agents against brute force over orders and paths."""

import itertools
import math
import random
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import networkx as nx
import numpy as np
import pytest

from bamas_lite.agentbalance.graphs import HANDS, MOST_AGENTS, AgentGraph, GraphAgent, GraphError
from bamas_lite.agentbalance.profiles import MOST_COST
from bamas_lite.agentbalance.roles import Role
from bamas_lite.agentbalance.shares import deadlines, divide
from bamas_lite.episode import MOST_SECONDS
from bamas_lite.pool import load_pool

POOL = load_pool("fourteen")
KINDS = ("document", "answer", "review")
ROLES = {kind: Role(kind, kind, "Do your part.", 0.5) for kind in KINDS}


def agent(name, kind="answer", llm=0, cost=100.0, message_cost=10.0, latency_s=2.0):
    return GraphAgent(name, ROLES[kind], POOL.llms[llm], cost, message_cost, latency_s)


def some(*kinds, edges=()):
    return AgentGraph(tuple(agent(f"agent {i}", kind) for i, kind in enumerate(kinds)), edges)


def random_graph(rng, most=7, density=None):
    """Kinds, times and edges at random, along a hidden order that is not the order of the places."""
    n = rng.randint(1, most)
    kinds = [rng.choice(KINDS) for _ in range(n)]
    kinds[rng.randrange(n)] = "answer"
    agents = tuple(agent(f"agent {i}", kind, rng.randrange(len(POOL)), rng.uniform(1, 900), rng.uniform(0, 90),
                         rng.choice([0.0, 1.0, rng.uniform(0, 9)])) for i, kind in enumerate(kinds))
    density = rng.random() if density is None else density
    places = rng.sample(range(n), n)
    edges = [(i, j) for i, j in itertools.combinations(places, 2)
             if (kinds[i], kinds[j]) in HANDS and rng.random() < density]
    return AgentGraph(agents, tuple(rng.sample(edges, len(edges))))


def paths(graph):
    """Every way through the graph, from any agent, against the definition of a path only."""
    ways = [(j,) for j in range(len(graph.agents))]
    for way in ways:
        ways += [(*way, j) for i, j in graph.edges if i == way[-1]]
    return ways


@pytest.mark.parametrize("seed", range(120))
def test_times_costs_and_critical_path_against_all_paths(seed):
    graph = random_graph(random.Random(seed))
    ways, times = paths(graph), [agent.latency_s for agent in graph.agents]
    long = {way: math.fsum(times[j] for j in way) for way in ways}
    for j in range(len(times)):
        assert graph.finish_times[j] == pytest.approx(max(s for way, s in long.items() if way[-1] == j))
        assert graph.tails[j] == pytest.approx(max(s for way, s in long.items() if way[0] == j))
    assert graph.latency_s == pytest.approx(max(long.values()))
    assert graph.critical_path in long and long[graph.critical_path] == pytest.approx(graph.latency_s)
    handed = [sum(k == j for _, k in graph.edges) for j in range(len(times))]
    expected = [a.cost + n * a.message_cost for a, n in zip(graph.agents, handed, strict=True)]
    np.testing.assert_allclose(graph.costs, expected)
    assert graph.cost == pytest.approx(math.fsum(expected))


@pytest.mark.parametrize("seed", range(60))
def test_the_order_is_the_first_of_all_that_are_possible(seed):
    graph = random_graph(random.Random(1000 + seed), most=6)
    n = len(graph.agents)
    possible = (order for order in itertools.permutations(range(n))
                if all(order.index(i) < order.index(j) for i, j in graph.edges))
    assert graph.order == next(possible)
    assert graph.before == tuple(tuple(i for i in range(n) if (i, j) in graph.edges) for j in range(n))
    assert graph.after == tuple(tuple(j for j in range(n) if (i, j) in graph.edges) for i in range(n))


@pytest.mark.parametrize("seed", range(120))
def test_heard_leaves_out_what_reaches_no_answering_agent(seed):
    """The oracle removes one after another, by descendants in networkx, until nothing is left to remove."""
    graph = random_graph(random.Random(2000 + seed))
    kinds = {a.name: a.role.kind for a in graph.agents}
    rest = nx.relabel_nodes(graph.digraph, {i: a.name for i, a in enumerate(graph.agents)})

    def useless(name):
        if kinds[name] == "answer":
            return False
        reviews_nothing = kinds[name] == "review" and not any(kinds[i] == "answer" for i in rest.predecessors(name))
        return reviews_nothing or not any(kinds[j] == "answer" for j in nx.descendants(rest, name))

    while gone := [name for name in rest if useless(name)]:
        rest.remove_nodes_from(gone[:1])
    heard = graph.heard()
    names = [a.name for a in heard.agents]
    assert names == [a.name for a in graph.agents if a.name in rest]
    assert {(names[i], names[j]) for i, j in heard.edges} == set(rest.edges)
    assert heard.heard() == heard and (len(names) < len(kinds) or heard is graph)


def test_heard_by_hand():
    graph = some("document", "review", "document", "answer", "review", edges=((0, 1), (2, 0), (3, 4)))
    assert [a.name for a in graph.heard().agents] == ["agent 3"]
    heard = some("document", "answer", "review", "answer", edges=((0, 2), (1, 2), (2, 3)))
    assert heard.heard() is heard   # the document is heard by a review that an answering agent hears
    unheard = AgentGraph(heard.agents, ((0, 2), (2, 3)))
    assert [a.name for a in unheard.heard().agents] == ["agent 1", "agent 3"]


def test_a_chain_by_hand():
    graph = AgentGraph((agent("planner", "document", 3, 50, 5, 1.0), agent("solver", "answer", 4, 80, 8, 4.0),
                        agent("other", "answer", 5, 20, 2, 2.5), agent("checker", "review", 4, 30, 3, 0.5)),
                       [(0, 1), (1, 3), (0, 2), (2, 3)])
    assert graph.edges == ((0, 1), (0, 2), (1, 3), (2, 3)) and isinstance(graph.agents, tuple)
    assert list(graph.finish_times) == [1.0, 5.0, 3.5, 5.5] and list(graph.tails) == [5.5, 4.5, 3.0, 0.5]
    assert (graph.cost, graph.latency_s, graph.critical_path) == (50 + 88 + 22 + 36, 5.5, (0, 1, 3))
    assert graph.digraph.nodes[1] == {"name": "solver", "cost": 80.0, "latency_s": 4.0}
    label = str(graph)
    assert f"2x {POOL.llms[4].name}" in label and label.endswith(", 4 edges") and "\n" not in label
    assert str(some("answer", "answer", edges=((0, 1),))).endswith(", 1 edge")


def test_equal_graphs_are_equal_whatever_the_order_of_their_edges():
    kinds = ("answer", "answer", "review")
    graph = some(*kinds, edges=((0, 2), (1, 2), (0, 1)))
    assert graph == some(*kinds, edges=np.array([(1, 2), (0, 1), (0, 2)])) and hash(graph) == hash(replace(graph))
    assert graph != some(*kinds, edges=((0, 2), (1, 2)))


def test_agents_whose_calls_take_no_time_have_a_critical_path_too():
    graph = AgentGraph((agent("b", latency_s=0), agent("a", latency_s=0)), ((1, 0),))
    assert graph.critical_path == (1,) and graph.latency_s == 0


def test_a_cycle_names_the_agents_on_it():
    kinds = ("answer", "answer", "review", "answer")
    with pytest.raises(GraphError, match="cycle") as told:
        some(*kinds, edges=((0, 1), (1, 2), (2, 3), (3, 1)))
    named = str(told.value).split("cycle ")[1].split(";")[0].split(" -> ")
    assert named[0] == named[-1] and set(named) == {"agent 1", "agent 2", "agent 3"}
    steps = {(f"agent {i}", f"agent {j}") for i, j in ((1, 2), (2, 3), (3, 1))}
    assert set(itertools.pairwise(named)) == steps


@pytest.mark.parametrize(("kinds", "edges", "words"), [
    (("answer",), ((0, 0),), "'agent 0' would hand its text to itself"),
    (("answer", "answer"), ((0, 2),), r"\(0, 2\): expected two places in agents, whole numbers from 0 to 1"),
    (("answer", "answer"), ((-1, 0),), r"\(-1, 0\): expected two places"),
    (("answer", "answer"), ((0, True),), "expected two places"),
    (("answer", "answer"), ((0, 1.0),), "expected two places"),
    (("answer", "answer"), (0, 1), r"edges: 0: expected a pair"),
    (("answer", "answer"), "01", "edges = '01': expected a tuple of pairs"),
    (("answer", "answer"), 7, "edges = 7: expected a tuple of pairs"),
    (("answer", "answer"), ((0, 1), (0, 1)), r"\(0, 1\) is there twice"),
    (("review", "review", "answer"), ((0, 1),), r"'agent 0' \(review\) has nothing to hand to 'agent 1' \(review\)"),
    (("document", "review"), (), "none of kind 'answer'; nothing could be graded"),
    ((), (), "0 of them: expected 1 to 12"),
    (("answer",) * (MOST_AGENTS + 1), (), "13 of them: expected 1 to 12"),
])
def test_graphs_that_nobody_can_play(kinds, edges, words):
    with pytest.raises(GraphError, match=words):
        some(*kinds, edges=edges)


@pytest.mark.parametrize("pair", list(itertools.product(KINDS, KINDS)))
def test_kinds_that_can_be_handed_on(pair):
    """By what prompts.step_messages shows: a document sees documents, a review no review."""
    sees = {"document": {"document"}, "answer": set(KINDS), "review": {"document", "answer"}}
    if pair[0] in sees[pair[1]]:
        assert some(*pair, "answer", edges=((0, 1),)).edges == ((0, 1),)
    else:
        with pytest.raises(GraphError, match="nothing to hand"):
            some(*pair, "answer", edges=((0, 1),))


@pytest.mark.parametrize(("field", "value", "words"), [
    ("name", "two\nlines", "expected text on one line"), ("name", " ", "expected text"),
    ("name", None, "expected text"),
    ("role", "solver", "role = 'solver': expected Role objects"),
    ("llm", "GPT", "llm = 'GPT': expected LLM objects"),
    ("cost", -1, "agent 'a': cost = -1: expected a finite number of at least 0 u"),
    ("cost", "12", "cost = '12': expected a number of u"), ("message_cost", math.nan, "message_cost = nan"),
    ("latency_s", math.inf, "latency_s = inf: expected a finite number of at least 0 seconds"),
    ("latency_s", True, "latency_s = True: expected a number of seconds"),
    ("cost", 1e308, r"cost = 1e\+308: expected .* at most 2e\+14"),
    ("cost", 10**400, r"cost = 1000.*\.\.\.: expected .* at most 2e\+14"),
    ("message_cost", Fraction(10**400, 3), "message_cost = .*: expected .* at most"),
    ("latency_s", 1.1e6, r"latency_s = 1100000.0: expected .* at most 1e\+06"),
    ("cost", Decimal(1), r"cost = Decimal\('1'\): expected a number of u"),
])
def test_agents_with_a_field_that_does_not_fit(field, value, words):
    with pytest.raises(GraphError, match=words):
        replace(agent("a"), **{field: value})


def test_the_largest_plans_have_finite_sums():
    agents = [agent(f"a{i}", "answer", 0, MOST_COST, MOST_COST, MOST_SECONDS) for i in range(MOST_AGENTS)]
    graph = AgentGraph(tuple(agents), tuple(itertools.combinations(range(MOST_AGENTS), 2)))
    assert graph.cost == (12 + 66) * MOST_COST and graph.latency_s == 12 * MOST_SECONDS
    assert sum(divide(10**218, graph.costs)) == 10**218
    assert max(deadlines(graph, 1e308)) == deadlines(graph, 1e308)[-1] == 1e308


def test_agents_that_are_none_and_names_that_are_used_twice():
    with pytest.raises(GraphError, match="the name 'a' is used 2 times"):
        AgentGraph((agent("a"), agent("a")))
    with pytest.raises(GraphError, match="agents: 'a': expected GraphAgent"):
        AgentGraph(("a",))
    with pytest.raises(GraphError, match="agents = None: expected a tuple of GraphAgent"):
        AgentGraph(None)
    assert all(replace(agent("a"), cost=kind(2)).cost == 2.0 for kind in (np.float16, np.float32, Fraction, int))
