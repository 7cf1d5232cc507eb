"""Pareto frontier, k-medoids and candidate pools against brute force."""

import pickle
from itertools import combinations
from math import log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bamas_lite.agentbalance.candidate_pools import CandidatePool, construct_pools, k_medoids, pareto_frontier
from bamas_lite.agentbalance.profiles import Profile, ProfileError
from bamas_lite.pool import LLM


def profile(name, quality, cost, latency_s, domain="code"):
    """One token in and none out: a call costs price_in and takes first_token_s."""
    llm = LLM(name=name, price_in=cost, price_out=1.0, max_tokens=384, tier=1, first_token_s=latency_s, tokens_per_s=80)
    return Profile(llm, {domain: quality}, {domain: 1.0}, {domain: 0.0}, {domain: 0.0}, 1.0, 1.0, 10, "mine")


def points(profiles):
    return [(p.mean_quality, p.mean_cost, p.mean_latency_s) for p in profiles]


def dominated(a, others):
    return any(b[0] >= a[0] and b[1] <= a[1] and b[2] <= a[2] and b != a for b in others)


coarse = st.tuples(st.sampled_from([0.25, 0.5, 0.75]), st.sampled_from([1.0, 2.0, 4.0]), st.sampled_from([0.5, 1.0]))
"""Few values, so that many are equal in one respect or in all."""


@settings(max_examples=150)
@given(st.lists(coarse, min_size=1, max_size=9))
def test_the_frontier_is_what_nobody_dominates(values):
    profiles = [profile(f"LLM {i}", *value) for i, value in enumerate(values)]
    expected = [p for p, value in zip(profiles, values, strict=True) if not dominated(value, values)]
    assert pareto_frontier(profiles) == expected


def test_equal_profiles_are_all_kept_and_worse_in_one_respect_is_not():
    a, b, c = profile("A", 0.5, 2.0, 1.0), profile("B", 0.5, 2.0, 1.0), profile("C", 0.5, 2.0, 1.5)
    assert pareto_frontier([c, b, a]) == [b, a]


def test_the_frontier_takes_means_over_domains():
    """A is better in one domain, B in the other; B's mean is better at the same cost and latency."""
    def two(name, qualities):
        llm = LLM(name=name, price_in=1.0, price_out=1.0, max_tokens=384, tier=1, first_token_s=1.0, tokens_per_s=80)
        both = {"arithmetic": 10.0, "code": 30.0}
        return Profile(llm, dict(zip(both, qualities, strict=True)), both, both, both, 1.0, 1.0, 10, "mine")

    assert pareto_frontier([two("A", (0.9, 0.4)), two("B", (0.6, 0.8))])[0].llm.name == "B"


def brute_force(d, k):
    """Least sum of distances, and the first of the best sets in lexicographic order."""
    sums = {medoids: d[:, medoids].min(axis=1).sum() for medoids in combinations(range(len(d)), k)}
    least = min(sums.values())
    return least, next(medoids for medoids, value in sums.items() if value <= least * (1 + 1e-9))


def check_medoids(d, k):
    medoids, labels = k_medoids(d, k)
    _, expected = brute_force(d, k)
    assert medoids == expected
    assert all(isinstance(j, int) for j in medoids)
    for i, label in enumerate(labels):
        nearest = min(range(k), key=lambda c: (d[i, medoids[c]], c))
        assert label == (medoids.index(i) if i in medoids else nearest)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=8), st.data())
def test_medoids_with_many_ties(grid, data):
    xy = np.array(grid, dtype=float)
    check_medoids(np.abs(xy[:, None] - xy[None]).sum(axis=2), data.draw(st.integers(1, len(grid))))


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(2, 10), st.data())
def test_medoids_of_random_points(seed, n, data):
    xyz = np.random.default_rng(seed).normal(size=(n, 3)) * 10.0 ** data.draw(st.integers(-6, 6))
    check_medoids(np.linalg.norm(xyz[:, None] - xyz[None], axis=2), data.draw(st.integers(1, n)))


def test_medoids_that_differ_in_the_last_digits():
    """An absolute gap of 1e-6 in the solver would let the wrong one pass."""
    d = np.ones((6, 6)) - np.eye(6)
    d[:5, 4] -= 1e-8
    d[4, 4] = 0
    assert k_medoids(d, 1)[0] == (4,) == brute_force(d, 1)[1]


def test_distances_need_not_be_symmetric():
    d = np.array([[0.0, 5.0, 1.0], [1.0, 0.0, 4.0], [9.0, 2.0, 0.0]])
    check_medoids(d, 1)
    check_medoids(d, 2)


def test_fourteen_points_and_the_edges():
    xyz = np.random.default_rng(1).normal(size=(14, 3))
    d = np.linalg.norm(xyz[:, None] - xyz[None], axis=2)
    for k in (1, 3, 5, 13, 14):
        check_medoids(d, k)
    assert k_medoids(d, 14)[1].tolist() == list(range(14))
    assert k_medoids([[0.0]], 1)[0] == (0,)
    medoids, labels = k_medoids(np.zeros((4, 4)), 2)   # all the same: no pool is empty
    assert medoids == (0, 1) and labels.tolist() == [0, 1, 0, 0]


def test_near_points_are_told_apart_beside_a_far_one():
    """Down to the limit that is stated: distances of 1e-8 beside one of 1."""
    for seed in range(20):
        points = np.random.default_rng(seed).random((6, 6)) * 1e-8
        d = np.ones((7, 7))
        d[:6, :6] = (points + points.T) / 2
        np.fill_diagonal(d, 0)
        assert k_medoids(d, 2)[0] == brute_force(d, 2)[1]


@pytest.mark.parametrize("distances, k, message", [
    ("far", 1, "distances = 'far': expected an array of numbers"),
    ([["0", "1"], ["1", "0"]], 1, "distances = .*: expected an array of numbers"),
    ([[False, True], [True, False]], 1, "distances = .*: expected an array of numbers"),
    (np.array([[0, 1j], [1j, 0]]), 1, "distances = .*: expected an array of numbers"),
    ([[0, 10**400], [10**400, 0]], 1, "distances = .*: expected an array of numbers"),
    ([[0.0, 1e308], [1e308, 0.0]], 1, r"distances: expected finite numbers of at least 0, at most 1e\+100"),
    ([[0.0, None], [1.0, 0.0]], 1, "distances = .*: expected an array of numbers"),
    ([[0.0, 1.0]], 1, r"distances has the shape \(1, 2\): expected n x n"),
    (np.zeros((0, 0)), 1, r"distances has the shape \(0, 0\)"),
    ([[0.0, -1.0], [1.0, 0.0]], 1, "distances: expected finite numbers of at least 0"),
    ([[0.0, np.inf], [1.0, 0.0]], 1, "distances: expected finite numbers"),
    ([[1.0, 1.0], [1.0, 0.0]], 1, "0 from each point to itself"),
    (np.zeros((2, 2)), 3, "k = 3: expected a whole number from 1 to 2"),
    (np.zeros((2, 2)), 0, "k = 0: expected a whole number from 1 to 2"),
    (np.zeros((2, 2)), 1.5, "k = 1.5: expected a whole number"),
])
def test_wrong_arguments_of_k_medoids(distances, k, message):
    with pytest.raises(ValueError, match=message):
        k_medoids(distances, k)


def frontier_of(n, seed):
    """`n` profiles on a frontier in random order, and one that is dominated."""
    rng = np.random.default_rng(seed)
    costs = np.round(np.exp(np.sort(rng.uniform(0, 6, n))), 3)
    qualities = np.sort(rng.uniform(0.3, 0.95, n))
    profiles = [profile(f"LLM {i}", float(qualities[i]), float(costs[i]), float(rng.uniform(0.3, 8)))
                for i in rng.permutation(n)]
    return [*profiles, profile("beaten", 0.1, float(costs[0]), 9.0)]


def by_hand(profiles, k):
    """The groups of names by brute force over standardized features, without scikit-learn; ties: the cheaper."""
    profiles = sorted(profiles, key=lambda p: p.mean_cost)
    f = np.array([(q, log(c), log(s)) for q, c, s in points(profiles)])
    f = (f - f.mean(axis=0)) / np.where(f.std(axis=0) > 0, f.std(axis=0), 1)
    d = np.linalg.norm(f[:, None] - f[None], axis=2)
    medoids = brute_force(d, k)[1]
    nearest = d[:, medoids].argmin(axis=1)
    return {profiles[m].llm.name: {p.llm.name for p, c in zip(profiles, nearest, strict=True) if c == i}
            for i, m in enumerate(medoids)}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_pools_are_those_of_brute_force(seed, k):
    profiles = frontier_of(8, seed)
    pools = construct_pools(profiles, k, stacked=False)
    assert {pool.medoid: set(pool.names) for pool in pools} == by_hand(profiles[:8], k)
    assert sorted(name for pool in pools for name in pool.names) == sorted(p.llm.name for p in profiles[:8])
    means = [np.mean([p.mean_cost for p in pool.profiles]) for pool in pools]
    assert means == sorted(means)
    for pool in pools:
        assert [p.mean_cost for p in pool.profiles] == sorted(p.mean_cost for p in pool.profiles)
    expected = {1: ["all"], 3: ["economy", "balanced", "premium"]}.get(k, [f"pool {i + 1}" for i in range(k)])
    assert [pool.name for pool in pools] == expected
    assert construct_pools(profiles[::-1], k, stacked=False) == pools
    assert pickle.loads(pickle.dumps(pools)) == pools


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_stacked_pools_hold_all_cheaper_groups(seed, k):
    profiles = frontier_of(8, seed)
    groups, pools, held = construct_pools(profiles, k, stacked=False), construct_pools(profiles, k), set()
    for group, pool in zip(groups, pools, strict=True):
        held |= set(group.names)
        assert (pool.name, pool.medoid, set(pool.names)) == (group.name, group.medoid, held)
        assert [p.mean_cost for p in pool.profiles] == sorted(p.mean_cost for p in pool.profiles)
    assert held == {p.llm.name for p in profiles[:8]}
    assert construct_pools(profiles[::-1], k) == pools


def test_three_clear_groups():
    groups = {"economy": (0.4, 10.0, 0.5), "balanced": (0.6, 100.0, 2.0), "premium": (0.9, 1000.0, 8.0)}
    profiles = [profile(f"{name} {i}", q + 0.01 * i, c * (1 + 0.02 * i), s * (1 - 0.01 * i))
                for name, (q, c, s) in reversed(groups.items()) for i in range(3)]
    pools = construct_pools(profiles, stacked=False)
    assert [pool.name for pool in pools] == list(groups)
    for pool in pools:
        assert pool.names == tuple(f"{pool.name} {i}" for i in range(3)) and pool.medoid == f"{pool.name} 1"


def test_twins_fill_as_many_pools_as_there_are_llms():
    twins = [profile(name, 0.5, 2.0, 1.0) for name in "ABC"]
    assert [pool.names for pool in construct_pools(twins, 3, stacked=False)] == [("A",), ("B",), ("C",)]
    assert [pool.names for pool in construct_pools(twins, 3)] == [("A",), ("A", "B"), ("A", "B", "C")]


@pytest.mark.parametrize("call, message", [
    (lambda: construct_pools(frontier_of(4, 0), 5),
     r"k = 5 pools: the Pareto frontier has 4 of the 5 LLMs; expected at most 4"),
    (lambda: construct_pools(frontier_of(4, 0), 0), "k = 0: expected a whole number of at least 1 of pools"),
    (lambda: pareto_frontier([]), r"profiles = \[\]: expected a list of at least one Profile"),
    (lambda: pareto_frontier(["A"]), r"profiles = \['A'\]: expected a list"),
    (lambda: pareto_frontier([profile("A", 0.5, 1.0, 1.0)] * 2), "profiles: 'A' is there 2 times; names differ"),
    (lambda: pareto_frontier([profile("A", 0.5, 1.0, 1.0), profile("B", 0.5, 1.0, 1.0, "arithmetic")]),
     "'B' was profiled on arithmetic, 'A' on code"),
    (lambda: CandidatePool("mine", (profile("A", 0.5, 1.0, 1.0),), "B"), "'mine': medoid = 'B': expected one of A"),
    (lambda: CandidatePool("mine", (), "B"), "medoid = 'B': expected one of its LLMs; it has none"),
    (lambda: CandidatePool("mine", ["A"], "A"), r"profiles = \['A'\]: expected a tuple of Profile"),
])
def test_wrong_use(call, message):
    with pytest.raises(ProfileError, match=message):
        call()
