"""Exercises of notebook 03: each check says right, or gives a hint, and never the answer."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np

from bamas_lite.exercises import expects

exercise_1 = """\
Exercise 1: what a breakdown costs.
A log of 90 tasks, 3 budgets, 4 topologies and 2 seeds is made in parts of 20 tasks, one part after the other. In the
eighth part, after 100 of its episodes, the power goes out. Then the same call is made again.
answer_1 = {"rows": rows of the whole log, "saved": rows that were on disk after the breakdown,
            "twice": episodes that are run twice}"""

exercise_2 = """\
Exercise 2: the value of a policy, from one action a state.
Write a function of three arrays of length n - the reward r_i of the action that was logged in state i, the chance mu_i
with which the log took it, and the chance pi_i with which the policy takes it - that returns the estimate of equation
(2). It must be right on average for any mu that gives every action some chance.
answer_2 = your function(r, mu, pi)"""

exercise_3 = """\
Exercise 3: a vote of copies.
Three calls are each right with chance p; given the shared part u of their noise (a standard normal) they are
independent, as in equation (5): rho is the correlation of their views. Write a function that returns the chance that
at least two of the three are right, for p in (0, 1) and rho in [0, 1).
answer_3 = your function(p, rho)"""


@expects("a dict with the keys rows, saved and twice, a whole number for each")
def check_1(answer: dict[str, int] | None) -> None:
    """Check the bookkeeping of exercise 1."""
    if answer is None:
        print("Exercise 1: set answer_1 to a dict with the keys rows, saved and twice.")
        return
    right = _breakdown(n_tasks=90, per_task=3 * 4, n_seeds=2, part=20, broken=8, into=100)
    if not isinstance(answer, dict) or set(answer) != set(right):
        print("Exercise 1: expected a dict with the keys rows, saved and twice.")
        return
    hints = {"rows": "every task, with every budget, topology and seed, is one row",
             "saved": "only whole parts are on disk; a part holds tasks of one seed, so a seed's last one is shorter",
             "twice": "what was run and not saved is run again, and nothing else"}
    for name, hint in hints.items():
        if answer[name] != right[name]:
            print(f"Exercise 1: {name} is not right. Hint: {hint}.")
            return
    print("Exercise 1: right.")


def _breakdown(n_tasks: int, per_task: int, n_seeds: int, part: int, broken: int, into: int) -> dict[str, int]:
    sizes = [min(part, n_tasks - first) * per_task for _ in range(n_seeds) for first in range(0, n_tasks, part)]
    return {"rows": sum(sizes), "saved": sum(sizes[:broken - 1]), "twice": into}


@expects("a function of the arrays r, mu and pi that returns a number")
def check_2(estimate: Callable[..., float] | None) -> None:
    """Check an estimate: its exact mean over all logs of a small world must be the value of the policy."""
    if estimate is None:
        print("Exercise 2: set answer_2 to a function of the arrays r, mu and pi.")
        return
    rng = np.random.default_rng(3)
    r = rng.uniform(size=(3, 4))
    for kind in ("uniform", "skewed"):
        mu = np.full((3, 4), 0.25) if kind == "uniform" else rng.dirichlet(np.full(4, 2.0), size=3)
        pi = rng.dirichlet(np.ones(4), size=3)
        states, mean = np.arange(3), 0.0
        for actions in itertools.product(range(4), repeat=3):     # every log that could have been written
            taken = states, np.array(actions)
            try:
                mean += mu[taken].prod() * float(estimate(r[taken], mu[taken], pi[taken]))
            except Exception as error:  # the reader's code may raise anything
                print(f"Exercise 2: your function raised {type(error).__name__}: {error}")
                return
        value = (pi * r).sum() / 3
        if not math.isclose(mean, value, rel_tol=1e-9):
            print(f"Exercise 2: on average over all logs of a small world with a {kind} mu it gives {mean:.3f}, the "
                  f"value of the policy is {value:.3f}. Hint: {_why(mean, value, mu, pi, r)}")
            return
    print("Exercise 2: right.")


def _why(mean: float, value: float, mu: np.ndarray, pi: np.ndarray, r: np.ndarray) -> str:
    if math.isclose(mean, 3 * value):
        return "(2) is an average over the states, not a sum."
    if math.isclose(mean, (mu * r).sum() / 3):
        return "this is the value of the policy that wrote the log; where does pi come in?"
    if math.isclose(mean, (mu * pi * r).sum() / 3):
        return "an action that the log takes often is seen often; what undoes that?"
    return "each reward is weighted by how much more often the policy takes the action than the log did."


@expects("a function of p and rho that returns a number")
def check_3(majority: Callable[[float, float], float] | None) -> None:
    """Check the chance of a majority against its two limits and between them."""
    if majority is None:
        print("Exercise 3: set answer_3 to a function of p and rho.")
        return
    for rho, why in ((0.0, "without correlation it is the binomial chance of two or three out of three"),
                     (0.999999, "as rho goes to 1 the three calls become one, and so does their chance"),
                     (0.5, "given u all three have the same chance q(u); average a majority's chance over u, not q(u)"),
                     (0.8, "the more of the noise is shared, the less a vote can mend")):
        for p in (0.2, 0.6, 0.9):
            try:
                given: Any = float(majority(p, rho))
            except Exception as error:  # the reader's code may raise anything
                print(f"Exercise 3: for p = {p}, rho = {rho:g} your function raised {type(error).__name__}: {error}")
                return
            if not abs(given - _majority(p, rho)) < 2e-3:
                print(f"Exercise 3: for p = {p}, rho = {rho:g} your function gives {given:.3f}. Hint: {why}.")
                return
    print("Exercise 3: right.")


def _majority(p: float, rho: float) -> float:
    """The chance of two or three right, averaged over u by the midpoint rule on its quantiles."""
    normal, n = NormalDist(), 4000
    total = 0.0
    for i in range(n):
        u = normal.inv_cdf((i + 0.5) / n)
        q = normal.cdf((normal.inv_cdf(p) + math.sqrt(rho) * u) / math.sqrt(1 - rho))
        total += q**3 + 3 * q**2 * (1 - q)
    return total / n
