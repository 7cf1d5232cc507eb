"""The integer program of the paper in PuLP, and the choice of a solver that is there."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from decimal import Decimal
from functools import cache
from typing import Any

import pulp

from bamas_lite.search import Limit, Problem
from bamas_lite.weights import CRITICS, STRONG_CRITICS

EXACT_IN_FLOATS = 2**53
"""Up to here floats represent every whole number; an objective that can pass it is not given to a float solver."""

MOST_VARIABLES = 5000
"""Larger programs are not built: with so many copies the exact method is the quicker one by far."""

TIME_LIMIT_S = 20.0


class SolverError(RuntimeError):
    """The solver failed, or its answer is not the best team; the message says which."""


def choose_solver(solver: Any = None) -> Any:
    """A silent PuLP solver: the given one (object or name), else HiGHS with gap 0, else CBC.

    Raises:
        ValueError: the named solver is unknown or not installed.
        SolverError: no solver is installed.
    """
    if solver is not None and not isinstance(solver, str):
        _installed()
        if not hasattr(solver, "actualSolve"):
            raise ValueError(f"solver = {solver!r}: expected a PuLP solver object or the name of one")
        return solver
    installed = _installed()
    if solver is not None and solver not in installed:
        raise ValueError(f"solver = {solver!r}: not installed; PuLP finds {', '.join(installed) or 'none'}")
    name = solver or next((s for s in ("HiGHS", "PULP_CBC_CMD", "COIN_CMD") if s in installed), None)
    if name is None:
        raise SolverError("no solver is installed: install highspy, or use method='lexicographic'")
    options = {"msg": False, "gapRel": 0, "timeLimit": TIME_LIMIT_S}
    if name == "HiGHS":  # waking threads, also those of one heuristic, takes most of the time of so small a program
        import highspy
        highspy.Highs.resetGlobalScheduler(True)  # it may already run with another number of threads
        options |= {"threads": 1, "mip_heuristic_run_feasibility_jump": False}
    return pulp.getSolver(name, **options)


@cache
def _installed() -> tuple[str, ...]:
    """Names of the solvers that are there, HiGHS hushed: 1.16 prints a banner when the first one is made, whatever its
    options say, and that would end up in the output of notebooks."""
    names = tuple(pulp.listSolvers(onlyAvailable=True))
    if "HiGHS" in names:
        import highspy
        with contextlib.suppress(OSError), open(os.devnull, "w", encoding="utf-8") as nowhere:
            sys.stdout.flush()
            stdout = os.dup(1)
            try:
                os.dup2(nowhere.fileno(), 1)
                highspy.Highs()
            finally:
                os.dup2(stdout, 1)
                os.close(stdout)
    return names


def build(p: Problem, values: dict[str, Any], further: Sequence[Limit] = ()
          ) -> tuple[pulp.LpProblem, dict[tuple[str, str], list[pulp.LpVariable]]]:
    """The integer program: maximize sum W_i x_ij over binaries x_ij (copy j of LLM i, per role).

    Args:
        values: W_i (or the score) per LLM name.
        further: limits beside those of `p`.

    Returns:
        The model, and its variables per (LLM name, role).
    """
    model = pulp.LpProblem("provisioning", pulp.LpMaximize)
    copies = {name: min(p.max_copies, p.budget_units // cost) for name, cost in p.units.items()}
    if sum(copies.values()) * len(p.names) > MOST_VARIABLES:
        raise SolverError(f"the program would have more than {MOST_VARIABLES} variables")
    x = {(name, role): [pulp.LpVariable(f"x_{i}_{j}_{r}", cat="Binary") for j in range(n)]
         for i, (name, n) in enumerate(copies.items()) for r, role in enumerate(p.names)}
    every = [(name, v) for (name, _), variables in x.items() for v in variables]
    unit = 1 if p.budget_units < 2**40 else p.scale  # whole costs as long as they are small, else u$
    model += pulp.lpSum(values[name] * v for name, v in every)
    model += pulp.lpSum(p.units[name] / unit * v for name, v in every) <= p.budget_units / unit, "budget"
    model += pulp.lpSum(v for _, v in every) >= p.min_agents, "fewest_agents"
    for limit, counts, most in further:
        unit = 1 if most < 2**40 else most
        model += pulp.lpSum(counts[name] / unit * v for name, v in every) <= most / unit, limit
    if p.roles:
        _add_roles(model, p, x)
    return model, x


def _add_roles(model: pulp.LpProblem, p: Problem, x: dict[tuple[str, str], list[pulp.LpVariable]]) -> None:
    """Limits per role, per (role, tier), and the couplings of critics and executors."""
    def agents(role: str, tiers: Any) -> pulp.LpAffineExpression:
        return pulp.lpSum(v for tier in tiers for m in tier for v in x.get((m.name, role), []))

    for role, (low, high) in p.roles.items():
        model += agents(role, p.tiers) >= low, f"fewest_{role}"
        if high < float("inf"):
            model += agents(role, p.tiers) <= high, f"most_{role}"
        for t, tier in enumerate(p.tiers):
            model += agents(role, [tier]) <= p.max_copies, f"copies_{role}_{t}"
    if CRITICS in p.couplings:
        model += agents("critic", p.tiers) <= agents("executor", p.tiers), "critics"
    if STRONG_CRITICS in p.couplings:
        model += agents("critic", p.tiers[:1]) <= agents("executor", p.tiers[:1]), "strong_critics"


def solve(p: Problem, values: dict[str, Any], solver: Any = None, further: Sequence[Limit] = ()
          ) -> tuple[dict[tuple[str, str], int], str]:
    """Solve the integer program.

    Returns:
        Agents per (LLM name, role) as the solver reports them - to be checked exactly - and the solver's name.

    Raises:
        SolverError: the solver stopped without calling its answer optimal, or the program is past what floats hold.
    """
    chosen = choose_solver(solver)
    most = sum(abs(v) * min(p.max_copies, p.budget_units // p.units[name]) * len(p.names) for name, v in values.items())
    if most >= EXACT_IN_FLOATS:
        raise SolverError(f"the objective can reach {Decimal(most):.1e}, past 2^53, where floats skip whole numbers")
    model, x = build(p, values, further)
    try:
        model.solve(chosen)
    except Exception as error:  # solvers raise what they like; the reader needs one kind of error
        raise SolverError(f"{chosen.name} failed: {error}") from None
    if model.status != pulp.LpStatusOptimal:
        raise SolverError(f"{chosen.name} reports {pulp.LpStatus[model.status]!r} on a problem that has a solution")
    return {key: sum(round(v.value() or 0) for v in copies) for key, copies in x.items()}, chosen.name
