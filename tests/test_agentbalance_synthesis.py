"""The edge rule against a plain re-telling of it, in which networkx knows paths and cycles."""

import math
import random

import networkx as nx
import numpy as np
import pytest

from bamas_lite.agentbalance.synthesis import path_times, synthesize


def longest(graph, latencies):
    """Seconds of the slowest way: a start before all agents turns their times into lengths of edges."""
    timed = nx.DiGraph()
    timed.add_weighted_edges_from(("start", j, latencies[j]) for j in graph.nodes)
    timed.add_weighted_edges_from((i, j, latencies[j]) for i, j in graph.edges)
    way = nx.dag_longest_path(timed)
    return sum(latencies[j] for j in way if j != "start")


def retold(scores, candidates, latencies, message_costs, cost_left, latency_budget, alpha, decide):
    """The docstring of the module, one trial graph for each pair: nothing is kept from step to step but the edges."""
    n = len(scores)
    graph, chosen, asked = nx.DiGraph(), [], {}
    graph.add_nodes_from(range(n))
    pairs = [(i, j) for i in range(n) for j in range(n) if candidates[i][j]]
    for i, j in sorted(pairs, key=lambda pair: -scores[pair]):   # stable: of equals the first row, the first column
        trial = graph.copy()
        trial.add_edge(i, j)
        if (not nx.is_directed_acyclic_graph(trial)
                or sum(message_costs[k] for _, k in trial.edges) > cost_left
                or longest(trial, latencies) > latency_budget):
            continue
        asked[i, j] = (longest(trial, latencies) - longest(graph, latencies)) / latency_budget
        if decide(scores[i, j] - alpha * asked[i, j]):
            graph = trial
            chosen.append((i, j))
    return chosen, asked


def case(seed, n=None):
    """A case at random. Times and costs are eighths: their sums have no rounding, so a budget can be met exactly."""
    rng = random.Random(seed)
    n = n or rng.randint(1, 7)
    scores = np.array([[rng.gauss(0.3, 0.7) for _ in range(n)] for _ in range(n)])
    if seed % 3 == 0:
        scores = scores.round()   # ties
    density = rng.choice([0.3, 0.7, 1.0])
    candidates = np.array([[i != j and rng.random() < density for j in range(n)] for i in range(n)])
    latencies = np.array([rng.randrange(1, 40) / 8 for _ in range(n)])
    message_costs = np.array([rng.randrange(0, 80) / 8 for _ in range(n)])
    cost_left = rng.choice([0.0, rng.randrange(200) / 8, message_costs.sum(), 1e9])
    latency_budget = max(latencies) + rng.choice([0, 2, rng.randrange(20, 160) / 8, math.inf])
    return scores, candidates, latencies, message_costs, cost_left, latency_budget, rng.choice([0.0, 2.0, 8.0])


class Coin:
    """Decides by a seeded draw and keeps the logits it was asked about."""

    def __init__(self, seed):
        self.rng, self.asked = random.Random(seed), []

    def __call__(self, logit):
        self.asked.append(float(logit))
        return self.rng.random() < 1 / (1 + math.exp(-logit))


def compare(arguments, one, other):
    edges = synthesize(*arguments, one)
    chosen, asked = retold(*arguments, other)
    assert list(edges.chosen) == chosen
    assert set(zip(*np.nonzero(edges.asked), strict=True)) == set(asked)
    expected = np.zeros_like(edges.stretch)
    for pair, stretch in asked.items():
        expected[pair] = stretch
    np.testing.assert_allclose(edges.stretch, expected, atol=1e-12)
    return chosen, asked


@pytest.mark.parametrize("seed", range(100))
def test_greedy_and_drawn_edges_are_those_of_the_re_telling(seed):
    arguments = case(seed)
    compare(arguments, lambda logit: logit > 0, lambda logit: logit > 0)
    one, other = Coin(seed), Coin(seed)
    compare(arguments, one, other)
    assert one.asked == pytest.approx(other.asked)


@pytest.mark.parametrize("seed", range(4))
def test_twelve_agents(seed):
    arguments = case(seed, 12)
    arguments = (*arguments[:4], (30.0, math.inf, 200.0, math.inf)[seed], (20.0, 15.0, math.inf, math.inf)[seed],
                 arguments[6])
    chosen, asked = compare(arguments, lambda logit: logit > 0, lambda logit: logit > 0)
    assert asked and chosen


def test_the_cases_reach_every_rule():
    """Else the comparison above would not notice a rule that is missing."""
    cycle = cost = time = blind = 0
    for seed in range(100):
        scores, candidates, latencies, message_costs, cost_left, seconds, alpha = case(seed)

        def chosen(alpha=alpha, cost_left=cost_left, seconds=seconds, case=(scores, candidates, latencies,
                                                                            message_costs)):
            return synthesize(*case, cost_left, seconds, alpha, lambda logit: logit > 0).chosen

        everybody = synthesize(scores, candidates, latencies, message_costs, math.inf, math.inf, 0, lambda logit: True)
        cycle += everybody.asked.sum() < candidates.sum()
        cost += chosen() != chosen(cost_left=math.inf)
        time += chosen(alpha=0) != chosen(alpha=0, seconds=math.inf)
        blind += chosen() != chosen(alpha=0)
    assert min(cycle, cost, time, blind) >= 5, (cycle, cost, time, blind)


def test_all_pairs_asked_give_an_order_of_everybody():
    """Every pair is joined where it does not close a cycle: of 12 agents any two, in one direction."""
    rng = np.random.default_rng(0)
    scores, everybody = rng.normal(size=(12, 12)), ~np.eye(12, dtype=bool)
    edges = synthesize(scores, everybody, np.ones(12), np.ones(12), math.inf, math.inf, 1.0, lambda logit: True)
    assert len(edges.chosen) == 66
    assert nx.is_directed_acyclic_graph(nx.DiGraph(edges.chosen))
    assert [scores[pair] for pair in edges.chosen] == sorted((scores[pair] for pair in edges.chosen), reverse=True)


def test_a_budget_that_is_met_exactly_is_met():
    def chosen(cost, seconds):
        scores, candidates = np.array([[0.0, 1.0], [0.0, 0.0]]), np.array([[False, True], [False, False]])
        return synthesize(scores, candidates, np.array([1.5, 2.0]), np.array([9.0, 4.0]), cost, seconds, 0.0,
                          lambda logit: logit > 0).chosen

    assert chosen(4.0, 3.5) == ((0, 1),)
    assert chosen(3.9, 3.5) == chosen(4.0, 3.4) == ()


def test_an_edge_that_makes_the_graph_slower_has_to_be_better():
    """logit = 0.4 - alpha * 1.5 / 5: alpha 1 lets it pass, alpha 2 does not; an infinite budget asks nothing of it."""
    def chosen(alpha, seconds):
        scores, candidates = np.array([[0.0, 0.4], [0.0, 0.0]]), np.array([[False, True], [False, False]])
        return synthesize(scores, candidates, np.array([1.5, 2.0]), np.zeros(2), 0.0, seconds, alpha,
                          lambda logit: logit > 0).chosen

    assert chosen(1.0, 5.0) == ((0, 1),) and chosen(2.0, 5.0) == () and chosen(1e9, math.inf) == ((0, 1),)


def test_arguments_are_left_alone_and_small_teams_work():
    latencies = np.array([1.0, 2.0, 3.0])
    synthesize(np.ones((3, 3)), ~np.eye(3, dtype=bool), latencies, np.ones(3), 9.0, 99.0, 1.0, lambda logit: True)
    assert latencies.tolist() == [1, 2, 3]
    one = synthesize(np.ones((1, 1)), np.zeros((1, 1), bool), np.ones(1), np.ones(1), 9.0, 9.0, 1.0, lambda logit: True)
    assert one.chosen == () and not one.asked.any() and not one.stretch.any()


@pytest.mark.parametrize("seed", range(20))
def test_path_times_against_networkx(seed):
    rng = random.Random(seed)
    n = rng.randint(1, 12)
    latencies = np.array([rng.uniform(0, 9) for _ in range(n)])
    graph = nx.DiGraph()
    graph.add_nodes_from(range(n))
    hidden = rng.sample(range(n), n)
    graph.add_edges_from((hidden[a], hidden[b]) for a in range(n) for b in range(a + 1, n) if rng.random() < 0.4)
    finish, tails = path_times(graph, latencies)
    for j in range(n):
        assert finish[j] == pytest.approx(longest(graph.subgraph({j, *nx.ancestors(graph, j)}), latencies))
        assert tails[j] == pytest.approx(longest(graph.subgraph({j, *nx.descendants(graph, j)}), latencies))
