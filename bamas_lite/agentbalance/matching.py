"""Role-backbone matching: which LLM takes which role, under a cost budget.

The abstract names this stage; the formula is our reconstruction: an assignment problem with x_rm in {0, 1},

    maximize  sum_rm score_rm x_rm   subject to   sum_rm c_rm x_rm <= B_c   and   sum_m x_rm <= 1 for each role r.

For up to a dozen roles an exact search (`label_search`) is much faster than a solver. The integer program (HiGHS, by
PuLP) is there to compare with, and for what is too large to search.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

from bamas_lite.agentbalance.arrays import real_numbers
from bamas_lite.agentbalance.label_search import EMPTY, Problem, search
from bamas_lite.inputs import exact, shown, whole
from bamas_lite.team import needed

SLACKS = (1e-12, -1e-12, -1e-9, -1e-6)
"""The budget that the methods see, relative to the real one: first a trifle more, so that no rounding of a sum hides an
assignment that costs exactly the budget; less where the answer, added up exactly, turns out to be above it."""

MOST = 1e100
"""The largest score and cost: sums of them then fit a float."""


def match_roles(scores: Any, costs: Any, budget: Any, *, allowed: Any = None, required: Any = None,
                max_copies: int | None = None, names: Iterable[str] | None = None,
                method: Literal["auto", "search", "ilp"] = "auto") -> np.ndarray:
    """The affordable assignment of LLMs to roles with the largest sum of scores.

    Args:
        scores: (R, M) what LLM m adds in role r, -MOST to MOST. A role is left empty rather than filled at a loss.
        costs: (R, M) planned cost of its call, u$, 0 to MOST; or (M,) where it is the same in all roles.
        budget: B_c in u$, at least 0; math.inf: no limit.
        allowed: bool (R, M), which LLMs may take which roles; None: all.
        required: bool (R,), roles of which at least one must be filled (an answering one, say), at a loss if need be;
            None: none.
        max_copies: roles that one LLM may take; None: any number.
        names: of the roles, for messages.
        method: "search": exact, without a solver; "ilp": the integer program; "auto": the search, and the integer
            program where the search has too much to keep.

    Returns:
        (R,) the index of the LLM of each role, EMPTY = -1 where there is none. Costs added up exactly (as decimal
        numbers, see `exact`) are never above the budget. Among equally good assignments the search takes the cheapest.

    Raises:
        ValueError: no candidate LLM for the required roles, or none within the budget; arrays of other shapes or with
            numbers that are none.
    """
    problem = _problem(scores, costs, budget, allowed, required, max_copies, names)
    if not isinstance(method, str) or method not in ("auto", "search", "ilp"):
        raise ValueError(f"method = {shown(method)}: expected 'auto', 'search' or 'ilp'")
    taken = None if method == "ilp" else _within(problem, search)
    if taken is None and method == "search":
        raise ValueError("method = 'search': too many partial assignments to keep; expected 'auto' or 'ilp'")
    return _within(problem, _ilp) if taken is None else taken


def _within(problem: Problem, solve: Any) -> np.ndarray | None:
    """The answer of a method which, added up exactly, is within the budget; None where the method gives up."""
    for slack in SLACKS:
        taken = solve(problem, problem.limit * (1 + slack))
        if taken is None or not problem.over_budget(taken):
            return taken
    raise RuntimeError(f"matching: the answer stays above the budget of {problem.limit!r} u$")


def _ilp(problem: Problem, limit: float) -> np.ndarray:
    """The integer program, in PuLP with the solver of the kit."""
    import pulp

    from bamas_lite.ilp import SolverError, choose_solver

    # Solvers' tolerances are absolute: with both scaled up they are trifles.
    unit, worth = limit / 1e6 or 1.0, max(np.abs(problem.scores[problem.allowed]).max(initial=0.0), 1e-300) / 1e3
    model = pulp.LpProblem("matching", pulp.LpMaximize)
    x = {(int(r), int(m)): pulp.LpVariable(f"x_{r}_{m}", cat="Binary") for r, m in np.argwhere(problem.allowed)}
    if not x:
        return np.full(len(problem.scores), EMPTY)
    model += pulp.LpAffineExpression([(v, problem.scores[rm] / worth) for rm, v in x.items()])
    model += pulp.LpAffineExpression([(v, problem.costs[rm] / unit) for rm, v in x.items()]) <= limit / unit, "budget"
    for r in range(len(problem.scores)):
        model += pulp.lpSum(v for (i, _), v in x.items() if i == r) <= 1, f"one_llm_{r}"
    if problem.max_copies is not None:
        for m in range(problem.scores.shape[1]):
            model += pulp.lpSum(v for (_, j), v in x.items() if j == m) <= problem.max_copies, f"copies_{m}"
    if problem.required is not None:
        model += pulp.lpSum(v for (r, _), v in x.items() if problem.required[r]) >= 1, "required"
    solver = choose_solver()
    model.solve(solver)
    if model.status != pulp.LpStatusOptimal:
        raise SolverError(f"{solver.name} reports {pulp.LpStatus[model.status]!r} on a matching that has a solution")
    taken = np.full(len(problem.scores), EMPTY)
    for (r, m), v in x.items():
        if round(v.value() or 0):
            taken[r] = m
    return taken


def _problem(scores: Any, costs: Any, budget: Any, allowed: Any, required: Any, max_copies: Any,
             names: Iterable[str] | None) -> Problem:
    """The arguments, checked."""
    s = real_numbers(scores, "scores")
    if s.ndim != 2 or not s.size:
        raise ValueError(f"scores: shape {s.shape}; expected (roles, LLMs), at least 1 of each")
    c = real_numbers(costs, "costs")
    if c.shape not in (s.shape, s.shape[1:]):
        raise ValueError(f"costs: shape {c.shape}; expected {s.shape}, as scores, or {s.shape[1:]}, the same for all "
                         "roles")
    c = np.broadcast_to(c, s.shape)
    may = np.ones(s.shape, bool) if allowed is None else _mask(allowed, "allowed", s.shape)
    for array, what, wrong in ((s, "scores", ~(np.abs(s) <= MOST)), (c, "costs", ~((c >= 0) & (c <= MOST)))):
        wrong = wrong & may
        if wrong.any():
            r, m = np.argwhere(wrong)[0].tolist()
            raise ValueError(f"{what}[{r}, {m}] = {array[r, m].item()!r}: expected a finite number"
                             + (f" of at least 0 u$, at most {MOST:g}" if what == "costs" else
                                f" from {-MOST:g} to {MOST:g}"))
    if names is not None and (isinstance(names, (str, bytes)) or not isinstance(names, Iterable)):
        raise ValueError(f"names = {shown(names)}: expected a list of texts, one for each role")
    labels = [f"role {r}" for r in range(len(s))] if names is None else list(map(str, names))
    if len(labels) != len(s):
        raise ValueError(f"names: {len(labels)} names for {len(s)} roles")
    amount = None
    if not (isinstance(budget, float) and budget == math.inf):
        amount = exact(budget, "budget")
        if amount < 0:
            raise ValueError(f"budget = {shown(budget)}: expected at least 0 u$")
    payable = may if amount is None else may & (c <= float(amount))
    must = None if required is None else _mask(required, "required", s.shape[:1])
    if must is not None and not must.any():
        must = None
    if must is not None and not payable[must].any():
        who = ("the role " if must.sum() == 1 else "any of the roles ") + ", ".join(
            label for label, needed_role in zip(labels, must, strict=True) if needed_role)
        if not may[must].any():
            raise ValueError(f"no candidate LLM for {who}: allowed has none; expected at least one")
        least = c[must][may[must]].min()
        raise ValueError(f"no candidate LLM for {who} within the budget: the cheapest costs "
                         f"{needed(exact(float(least)))} u$, budget = {shown(budget)} u$")
    limit = float(amount) if amount is not None else float(np.where(may, c, 0).max(axis=1).sum())
    most = None if max_copies is None else min(whole(max_copies, "max_copies", 1), len(s))
    return Problem(np.where(payable, s, 0.0), np.where(payable, c, 0.0), payable, amount, limit, must, most)


def _mask(values: Any, what: str, shape: tuple[int, ...]) -> np.ndarray:
    try:
        mask = np.asarray(values)
    except ValueError:  # rows of different length
        raise ValueError(f"{what} = {shown(values)}: expected True and False of shape {shape}") from None
    if mask.dtype != bool or mask.shape != shape or isinstance(values, np.ma.MaskedArray):
        raise ValueError(f"{what}: {mask.dtype} of shape {mask.shape}; expected True and False of shape {shape}")
    return mask
