"""Candidate pools: the LLMs that no other beats in all respects, in k groups of similar ones, stacked from cheap to
dear.

The abstract names LLM pool construction, and one summary the Pareto frontier and k-medoids; features, scaling and names
are our reconstruction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array, eye_array, hstack, kron, vstack

from bamas_lite.agentbalance.arrays import real_numbers
from bamas_lite.agentbalance.checks import check_profiles
from bamas_lite.agentbalance.profiles import Profile, ProfileError
from bamas_lite.inputs import shown, whole

NAMES = {1: ("all",), 3: ("economy", "balanced", "premium")}
"""Names of the pools by their number, cheapest first."""

SAME = 1e-9
"""Sums of distances that differ relatively by less are equal: floats add in different orders."""

MOST = 1e100
"""The largest distance: sums of them, scaled for the solver, then fit a float."""


@dataclass(frozen=True)
class CandidatePool:
    """LLMs to choose among, cheapest first; `medoid` is the name of the one in the middle of its dearest group."""

    name: str
    profiles: tuple[Profile, ...]
    medoid: str

    def __post_init__(self) -> None:
        if not isinstance(self.profiles, tuple) or not all(isinstance(p, Profile) for p in self.profiles):
            raise ProfileError(f"pool {shown(self.name)}: profiles = {shown(self.profiles)}: expected a tuple of "
                               "Profile")
        if self.medoid not in self.names:
            raise ProfileError(f"pool {shown(self.name)}: medoid = {shown(self.medoid)}: expected one of "
                               f"{', '.join(self.names) or 'its LLMs; it has none'}")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the LLMs."""
        return tuple(p.llm.name for p in self.profiles)


def pareto_frontier(profiles: Sequence[Profile]) -> list[Profile]:
    """The profiles that no other dominates, in their order.

    One dominates another if its mean quality over the domains is at least as high, its mean cost and mean latency are
    at most as high, and one of them is better. Equal ones do not dominate each other: all are kept.

    Raises:
        ProfileError: no profiles, an LLM twice, or profiles of different domains.
    """
    profiles = _checked(profiles)
    losses = np.array([(-p.mean_quality, p.mean_cost, p.mean_latency_s) for p in profiles])
    as_good = (losses[:, None] <= losses[None]).all(axis=2)   # [i, j]: i is as good as j in all respects
    better = (losses[:, None] < losses[None]).any(axis=2)
    return [p for p, beaten in zip(profiles, (as_good & better).any(axis=0), strict=True) if not beaten]


def k_medoids(distances: Any, k: int) -> tuple[tuple[int, ...], np.ndarray]:
    """The k points with the least sum of distances to them, exactly: the p-median integer program.

    Minimize sum d_ij x_ij: point i belongs to point j (x_ij), which must be one of k medoids (y_j, binary). Of several
    best sets the one with the lowest indices is taken.

    Exact within these limits: sums that differ by less than SAME of themselves are equal, and the solver's tolerances
    hide differences below about 1e-10 of the largest distance (as among near points beside one very far away): of sets
    that differ by less, any may be taken.

    Args:
        distances: (n, n), 0 to MOST, and 0 on the diagonal.
        k: 1 to n.

    Returns:
        Indices of the medoids, ascending, and for each point the place (0 to k - 1) of its medoid in them: its nearest
        one, the first of equals; a medoid is its own.

    Raises:
        ValueError: an argument does not fit.
    """
    d = _distances(distances)
    n = len(d)
    k = whole(k, "k", 1, n)
    # Variables: x row by row, then y. Every point has one medoid; x_ij <= y_j; k medoids.
    one_each = hstack([kron(eye_array(n), np.ones((1, n))), csr_array((n, n))])
    only_medoids = hstack([eye_array(n * n), kron(np.ones((n, 1)), -eye_array(n))])
    number = hstack([csr_array((1, n * n)), csr_array(np.ones((1, n)))])
    rules = LinearConstraint(csr_array(vstack([one_each, only_medoids, number])),
                             np.r_[np.ones(n), np.full(n * n, -np.inf), k], np.r_[np.ones(n), np.zeros(n * n), k])
    # scipy sets the relative gap only; HiGHS also allows an absolute one of 1e-6, which this scale makes negligible.
    objective = np.r_[1e4 * d.ravel() / (d.max() or 1.0), np.zeros(n)]
    integral = np.r_[np.zeros(n * n), np.ones(n)]   # with binary y the best x are 0 or 1 by themselves

    def best(forced: list[int]) -> list[int]:
        low = np.zeros(n * n + n)
        low[[n * n + j for j in forced]] = 1
        found = milp(objective, integrality=integral, bounds=Bounds(low, 1), constraints=rules,
                     options={"mip_rel_gap": 0})
        if not found.success:
            raise RuntimeError(f"the solver of the p-median program stopped: {found.message}")
        return [j for j in range(n) if found.x[n * n + j] > 0.5]

    def total(medoids: list[int]) -> float:
        return float(d[:, medoids].min(axis=1).sum())

    medoids = best([])
    least, forced = total(medoids), []
    for j in range(n):   # the lowest indices among equals: one after another is tried as a medoid
        if len(forced) == k:
            break
        other = medoids if j in medoids else best([*forced, j])
        if total(other) <= least * (1 + SAME):
            forced, medoids, least = [*forced, j], other, min(least, total(other))
    labels = d[:, medoids].argmin(axis=1)
    labels[medoids] = np.arange(k)
    return tuple(medoids), labels


def construct_pools(profiles: Sequence[Profile], k: int = 3, *, stacked: bool = True) -> tuple[CandidatePool, ...]:
    """The Pareto frontier in `k` pools, cheapest first.

    Features of an LLM are its mean quality, log mean cost and log mean latency over the domains, each scaled to mean 0
    and standard deviation 1; k-medoids with Euclidean distances groups them. Of equally good medoids (of two LLMs
    alone always) the cheaper one is taken, so that the order of `profiles` does not matter.

    Args:
        profiles: of all LLMs.
        k: number of groups.
        stacked: a pool holds its own group and all cheaper ones, so that it says how dear an LLM may be and not how
            dear it must be: cheap and dear ones can vote together. False: its own group only.

    Returns:
        Pools by the mean cost of their own groups: "economy", "balanced", "premium" for k = 3, "all" for k = 1, else
        "pool 1", "pool 2", ...

    Raises:
        ProfileError: as `pareto_frontier`, or more pools than LLMs on the frontier.
    """
    from scipy.spatial.distance import cdist
    from sklearn.preprocessing import StandardScaler  # takes a second to import, and only this needs it

    frontier = sorted(pareto_frontier(profiles), key=_by_cost)
    try:
        k = whole(k, "k", 1)
    except ValueError as error:
        raise ProfileError(f"{error} of pools") from None
    if k > len(frontier):
        raise ProfileError(f"k = {k} pools: the Pareto frontier has {len(frontier)} of the {len(profiles)} LLMs; "
                           f"expected at most {len(frontier)}")
    features = np.array([(p.mean_quality, np.log(p.mean_cost), np.log(p.mean_latency_s)) for p in frontier])
    scaled = StandardScaler().fit_transform(features)
    medoids, labels = k_medoids(cdist(scaled, scaled), k)
    groups = [(frontier[medoid].llm.name, sorted((p for p, label in zip(frontier, labels, strict=True) if label == c),
                                                 key=_by_cost)) for c, medoid in enumerate(medoids)]
    groups.sort(key=lambda group: (np.mean([p.mean_cost for p in group[1]]), group[0]))
    names = NAMES.get(k) or [f"pool {c + 1}" for c in range(k)]
    pools, below = [], []
    for name, (medoid, group) in zip(names, groups, strict=True):
        below += group
        pools.append(CandidatePool(name, tuple(sorted(below, key=_by_cost)) if stacked else tuple(group), medoid))
    return tuple(pools)


def _by_cost(profile: Profile) -> tuple[float, str]:
    return profile.mean_cost, profile.llm.name


def _checked(profiles: Any) -> list[Profile]:
    check_profiles(profiles)
    names = [p.llm.name for p in profiles]
    for p in profiles:
        if names.count(p.llm.name) > 1:
            raise ProfileError(f"profiles: {p.llm.name!r} is there {names.count(p.llm.name)} times; names differ")
        if set(p.domains) != set(profiles[0].domains):
            raise ProfileError(f"profiles: {p.llm.name!r} was profiled on {', '.join(p.domains)}, "
                               f"{profiles[0].llm.name!r} on {', '.join(profiles[0].domains)}: means over different "
                               "domains cannot be compared")
    return list(profiles)


def _distances(distances: Any) -> np.ndarray:
    d = real_numbers(distances, "distances")
    if d.ndim != 2 or d.shape[0] != d.shape[1] or not len(d):
        raise ValueError(f"distances has the shape {d.shape}: expected n x n, n at least 1")
    if not ((d >= 0) & (d <= MOST)).all() or np.diagonal(d).any():
        raise ValueError(f"distances: expected finite numbers of at least 0, at most {MOST:g}, and 0 from each point "
                         "to itself")
    return d
