"""The exact search for role-backbone matching: partial assignments that no other one beats, role by role.

AgentBalance names the matching; it and this search are our reconstruction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from bamas_lite.inputs import exact

EMPTY = -1
"""A role that no LLM takes."""

MOST_LABELS = 20_000
"""Partial assignments that the search keeps at most."""

FEW_ROLES = 8
"""Up to so many, counting copies is faster than a linear relaxation first."""


@dataclass(frozen=True)
class Problem:
    """A matching, checked: roles R, LLMs M."""

    scores: np.ndarray  # (R, M), 0 where not allowed, as the costs
    costs: np.ndarray
    allowed: np.ndarray  # and payable at all
    budget: Fraction | None  # None: no limit
    limit: float
    required: np.ndarray | None  # None: nothing is required
    max_copies: int | None

    def over_budget(self, taken: np.ndarray) -> bool:
        """Whether the assignment costs more than the budget: added up in floats, and exactly where it is close."""
        if self.budget is None:
            return False
        roles = np.flatnonzero(taken != EMPTY)
        costs = self.costs[roles, taken[roles]].tolist()
        return sum(costs) > self.limit * (1 - 1e-9) and sum(map(exact, costs)) > self.budget

    def score(self, taken: np.ndarray) -> float:
        """Sum of scores; minus infinity where no required role is filled."""
        roles = np.flatnonzero(taken != EMPTY)
        missing = self.required is not None and not self.required[roles].any()
        return -math.inf if missing else float(self.scores[roles, taken[roles]].sum())

    def too_often(self, taken: np.ndarray) -> list[int]:
        """LLMs of which the assignment has more than `max_copies`."""
        copies = np.bincount(taken[taken != EMPTY])
        return [] if self.max_copies is None else np.flatnonzero(copies > self.max_copies).tolist()


def search(problem: Problem, limit: float) -> np.ndarray | None:
    """The best assignment: first without the limit on copies and, if that takes an LLM too often, with it.

    For few roles the copies of such an LLM are then counted, until none is taken too often. For more the linear
    relaxation helps: only choices that together lose little against its bound are looked at. If the best of these does
    not lose more than what was looked at, it is the best of all.
    """
    anything, counted = np.zeros((len(problem.scores), problem.scores.shape[1] + 1)), []
    while True:
        taken = _by_role(problem, limit, counted, anything, math.inf)
        often = [] if taken is None else problem.too_often(taken)
        if not often and not (taken is None and counted):
            return taken
        counted = sorted({*counted, *often})
        if taken is None or len(problem.scores) > FEW_ROLES or (problem.max_copies + 1) ** len(counted) >= 2**63:
            break
    bound, loss = _relaxation(problem, limit)
    gap = max(np.ptp(problem.scores[problem.allowed]) / 100, 1e-9 * (1 + abs(bound)))
    while True:
        near = replace(problem, allowed=problem.allowed & (loss[:, :-1] <= gap))
        counted = np.flatnonzero(near.allowed.sum(axis=0) > near.max_copies).tolist()
        if (near.max_copies + 1) ** len(counted) >= 2**63:  # the copies of an assignment are kept as one number
            return None
        taken = _by_role(near, limit, counted, loss, gap)
        if taken is None or problem.score(taken) >= bound - gap:
            return taken
        gap = max(2 * gap, min(4 * gap, bound - problem.score(taken)))


def _relaxation(problem: Problem, limit: float) -> tuple[float, np.ndarray]:
    """The bound of the linear relaxation, and what each choice loses against it, (R, M + 1), the last one EMPTY.

    The score of any assignment is at most the bound minus the sum of what its choices lose.
    """
    from scipy.optimize import linprog

    n_roles, n_llms = problem.scores.shape
    scores, costs = problem.scores, problem.costs / (limit or 1.0)
    rows = np.vstack([np.kron(np.eye(n_roles), np.ones(n_llms)), costs.ravel(),
                      np.kron(np.ones(n_roles), np.eye(n_llms))])
    room = np.concatenate([np.ones(n_roles), [1.0], np.full(n_llms, problem.max_copies)])
    limits = np.column_stack([np.zeros(scores.size), problem.allowed.ravel()])
    found = linprog(-scores.ravel(), rows, room, bounds=limits)
    # Any prices of at least 0 give a bound; those of the relaxation give the best one.
    price = np.zeros(n_llms + 1) if found.status else np.maximum(-found.ineqlin.marginals[n_roles:], 0)
    worth = np.column_stack([scores - price[0] * costs - price[1:], np.zeros(n_roles)])
    worth[:, :-1][~problem.allowed] = -np.inf
    best = worth.max(axis=1)
    return float(best.sum() + price @ room[n_roles:]), best[:, None] - worth


@dataclass(frozen=True)
class _Labels:
    """Partial assignments: cost, score and loss (n,), LLMs taken (n, R), copies of counted LLMs as one number (n,)."""

    cost: np.ndarray
    score: np.ndarray
    loss: np.ndarray
    taken: np.ndarray
    copies: np.ndarray

    def columns(self) -> tuple[np.ndarray, ...]:
        return self.cost, self.score, self.loss, self.taken, self.copies

    def chosen(self, which: Any) -> _Labels:
        return _Labels(*(column[which] for column in self.columns()))


def _by_role(problem: Problem, limit: float, counted: list[int], loss: np.ndarray, gap: float) -> np.ndarray | None:
    """Role by role, the partial assignments that no other one beats; at the end the one with the best score."""
    if problem.required is not None:  # often the best assignment of all fills a required role: half the work
        taken = _by_role(replace(problem, required=None), limit, counted, loss, gap)
        if taken is None or (taken[problem.required] != EMPTY).any():
            return taken
    n_roles, n_llms = problem.scores.shape
    k = problem.max_copies or 0
    step = np.zeros(n_llms + 1, np.int64)  # copies are the digits of a number to the base k + 1
    step[counted] = (k + 1) ** np.arange(len(counted))
    nothing = np.zeros((n_roles, 1))  # EMPTY = -1 is the last column
    costs, scores = np.hstack([problem.costs, nothing]), np.hstack([problem.scores, nothing])

    def grown(labels: _Labels, r: int, llms: list[int]) -> _Labels:
        """Each label with each of these LLMs in role r, as far as copies, budget and gap allow."""
        full = (step[llms] > 0) & (labels.copies[:, None] // np.maximum(step[llms], 1) % (k + 1) == k)
        i, j = np.nonzero(~full & (labels.cost[:, None] + costs[r, llms] <= limit)
                          & (labels.loss[:, None] + loss[r, llms] <= gap))
        m, taken = np.array(llms, int)[j], labels.taken[i]
        taken[:, r] = m
        return _Labels(labels.cost[i] + costs[r, m], labels.score[i] + scores[r, m], labels.loss[i] + loss[r, m], taken,
                       labels.copies[i] + step[m])

    without = _Labels(*np.zeros((3, 1)), np.full((1, n_roles), EMPTY), np.zeros(1, np.int64))
    done = without if problem.required is None else without.chosen(slice(0))  # a required role is filled
    for r in range(n_roles):
        llms = np.flatnonzero(problem.allowed[r]).tolist()
        parts = [grown(done, r, [EMPTY, *llms])]
        if problem.required is not None:
            must = problem.required[r]
            if must:
                parts.append(grown(without, r, llms))
            without = _undominated([grown(without, r, [EMPTY] if must else [EMPTY, *llms])])
        done = _undominated(parts)
        if max(len(done.cost), len(without.cost)) > MOST_LABELS:
            return None
    best = np.lexsort((done.cost, -done.score))[:1]
    return done.taken[best[0]] if len(best) else np.full(n_roles, EMPTY)


def _undominated(parts: list[_Labels]) -> _Labels:
    """The labels that none with the same copies beats in cost and score; of equal ones the first."""
    labels = _Labels(*map(np.concatenate, zip(*(part.columns() for part in parts), strict=True)))
    if not len(labels.cost):
        return labels
    order = np.lexsort((-labels.score, labels.cost, labels.copies))
    best, copies = labels.score[order], labels.copies[order]
    if copies[-1]:  # ranks, raised from one number of copies to the next, so that the running maximum starts anew
        best = np.unique(best, return_inverse=True)[1] + len(best) * np.cumsum(np.diff(copies, prepend=0) > 0)
    best = np.maximum.accumulate(best)
    return labels.chosen(order[np.concatenate(([True], best[1:] > best[:-1]))])
