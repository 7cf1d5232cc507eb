"""What the published loss converges to, and how far ten steps of Adam get.

One state, k topologies with rewards R, free logits z, pi = softmax(z), S = sum R. On a log whose topologies were drawn
uniformly, without importance weights, the descent direction of the logits is (R - pi S) / k. The loss is
S log sum exp(z) - R . z up to the factor 1 / k, so everything depends on the sign of S:

- S > 0: convex. The gradient of a convex function tends to the shortest vector that its gradients come close to; here
  that makes pi the point of the simplex nearest to R / S, (R - lambda)^+ / S, from every start. It is R / S itself,
  with lambda = 0, where no reward is negative.
- S = 0: linear; the direction is R, whatever pi is, and the best topology wins.
- S < 0: concave and unbounded below. Wherever topologies share the probability, the flow runs away from an even
  balance, so it ends at a single topology: k can be an end where its logit, once pi(k) = 1, grows fastest,
  R(k) + |S| > R(j) for all other j. That always holds for the best; where it holds for others, the start decides.

This is about gradient flow and plain descent by small steps. Adam rescales each coordinate by its own history and ends
elsewhere, except where the end is a minimum (all R > 0).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from scipy.integrate import solve_ivp

from bamas_lite.casting import TOPOLOGIES
from bamas_lite.encoder import encode
from bamas_lite.inputs import exact, shown, whole
from bamas_lite.losses import expectation_loss, importance_loss, published_loss
from bamas_lite.network import Examples, PolicyNetwork
from bamas_lite.policy import questions_of
from bamas_lite.reproduction.checks import number, numbers
from bamas_lite.rewards import LogTable

Objective = Literal["published", "importance", "expectation"]
Optimizer = Literal["flow", "gradient", "adam"]
Regime = Literal["interior", "boundary", "linear", "one end", "start decides"]

REGIMES: tuple[Regime, ...] = ("interior", "boundary", "linear", "one end", "start decides")
"""S > 0 and all R > 0; S > 0 and not all; S = 0; S < 0 and only the best can be the end; S < 0 and several can."""


# --- one state: the formula

@dataclass(frozen=True)
class FixedPoint:
    """Where gradient flow on the published loss ends, for one state.

    Attributes:
        regime: one of REGIMES.
        pi: the end (k,); None where the start decides.
        reason: why, in words.
        lambda_: the threshold of (R - lambda)^+ / S, in the unit of R; None unless S > 0 and beta = 0.
        ends: where S <= 0, the topologies (numbers from 0) at which the flow can end.
    """

    regime: Regime
    pi: np.ndarray | None
    reason: str
    lambda_: float | None = None
    ends: tuple[int, ...] = ()


def fixed_point(R: Sequence[float], beta: float = 0.0) -> FixedPoint:
    """The end of gradient flow on the published loss, for one state and a uniformly drawn log.

    By formula, and sign and lambda in exact arithmetic, for beta = 0. With an entropy term there is no formula: pi is
    then followed numerically from the uniform start, and `regime` is still that of the rewards alone.

    Args:
        R: rewards of the k topologies, at least 2.
        beta: weight of the entropy, per log row as in `published_loss`.

    Raises:
        ValueError: fewer than two rewards, one that is no finite number, or a beta below 0.
    """
    rewards, beta = _rewards(R), number(beta, "beta")
    point = _by_signs(rewards)
    if beta == 0:
        return point
    path = train_logits(np.array(rewards, float), "published", "flow", steps=1, beta=beta,
                        learning_rate=1e7 / max(beta, float(max(abs(r) for r in rewards))))
    return FixedPoint(point.regime, path[-1], f"{point.reason}; with entropy, from the uniform start", ends=point.ends)


def _by_signs(R: list[Fraction]) -> FixedPoint:
    S, best = sum(R), max(R)
    if S > 0:
        lam = threshold(R)
        pi = np.array([float(max(r - lam, 0) / S) for r in R])
        if min(R) > 0:
            return FixedPoint("interior", pi, "all rewards positive: R / S is the minimum", float(lam))
        return FixedPoint("boundary", pi, "S > 0, not all rewards positive: no minimum, some logits fall for ever",
                          float(lam))
    if S == 0:
        ends = tuple(i for i, r in enumerate(R) if r == best)
        if len(ends) > 1:
            return FixedPoint("linear", None, "S = 0: the best topologies keep the shares of the start", ends=ends)
        return FixedPoint("linear", np.eye(len(R))[ends[0]], "S = 0: a straight way to the best topology", ends=ends)
    ends = tuple(i for i, r in enumerate(R) if all(r - S > other for j, other in enumerate(R) if j != i))
    if len(ends) == 1:
        return FixedPoint("one end", np.eye(len(R))[ends[0]], "S < 0, but only the best topology can be the end",
                          ends=ends)
    return FixedPoint("start decides", None, "S < 0: unbounded loss, R / S repels, several topologies can be the end",
                      ends=ends)


def threshold(R: Sequence[Fraction]) -> Fraction:
    """lambda with sum (R - lambda)^+ = S, for S > 0: 0 where no reward is negative.

    With the m largest rewards above lambda it is (their sum - S) / m; the right m is the largest one for which the
    m-th reward is still above.

    Raises:
        ValueError: rewards that are none, or whose sum is not above 0.
    """
    R = _rewards(R)
    if sum(R) <= 0:
        raise ValueError(f"R = {shown([float(r) for r in R])}: expected rewards with a sum above 0")
    largest, S = sorted(R, reverse=True), sum(R)
    candidates = [(sum(largest[:m]) - S) / m for m in range(1, len(largest) + 1)]
    return [lam for r, lam in zip(largest, candidates, strict=True) if r > lam][-1]


def regime_shares(R: np.ndarray) -> pd.Series:
    """Share of the states of a table, R (n, k), in each regime."""
    found = pd.Series([_by_signs(_rewards(row)).regime for row in np.atleast_2d(R)])
    return found.value_counts(normalize=True).reindex(REGIMES, fill_value=0.0)


def choice_values(pi: np.ndarray, R: np.ndarray) -> dict[str, float]:
    """What choices from pi are worth, averaged over states; pi and R are (k,) or (n, k).

    `greedy` takes the largest probability, `sampled` draws from pi (the expectation: nothing is drawn), `random` takes
    each topology alike, `best` is the bound. `gain` is the share of the way from random to best that sampling gets.

    Raises:
        ValueError: pi and R of different shapes, or not finite.
    """
    pi, R = np.atleast_2d(numbers(pi, "pi")), np.atleast_2d(numbers(R, "R"))
    if pi.shape != R.shape or not R.size:
        raise ValueError(f"pi and R: shapes {pi.shape} and {R.shape}; expected the same, (k,) or (n, k)")
    greedy = np.take_along_axis(R, pi.argmax(axis=1)[:, None], axis=1).mean()
    sampled, random, best = (pi * R).sum(axis=1).mean(), R.mean(), R.max(axis=1).mean()
    gain = (sampled - random) / (best - random) if best > random else 1.0
    return {"greedy": greedy, "sampled": sampled, "random": random, "best": best, "gain": gain}


# --- one state: training

def direction(pi: np.ndarray, R: np.ndarray, objective: Objective = "published", *, beta: float = 0.0,
              mu: np.ndarray | None = None, share: np.ndarray | None = None) -> np.ndarray:
    """Descent direction of the logits, minus the gradient of the losses in `losses.py`, for each state; (..., k).

    Args:
        pi: softmax of the logits, (..., k).
        R: rewards, (..., k).
        objective: "published", "importance" or "expectation".
        beta: weight of the entropy.
        mu: probability with which the log took each topology, all positive; uniform, if not given.
        share: share of the log's rows that each topology got; mu, as in an endless log, if not given.

    Raises:
        ValueError: an argument is wrong; the message names it.
    """
    pi, R = numbers(pi, "pi"), numbers(R, "R")
    if not R.ndim or R.shape[-1] < 2 or pi.shape[-1:] != R.shape[-1:]:
        raise ValueError(f"pi and R: shapes {pi.shape} and {R.shape}; expected (..., k) with the same k of at least 2")
    return _direction(pi, R, objective, number(beta, "beta"), *_log_of(mu, share, R.shape))


def _direction(pi: np.ndarray, R: np.ndarray, objective: Objective, beta: float, mu: np.ndarray,
               share: np.ndarray) -> np.ndarray:
    """`direction` of arguments that are known to be right."""
    if objective == "published":
        way = share * R - pi * (share * R).sum(-1, keepdims=True)
    elif objective in ("importance", "expectation"):
        weighted = R * share / mu if objective == "importance" else R
        way = pi * (weighted - (pi * weighted).sum(-1, keepdims=True))
    else:
        raise ValueError(f"objective = {shown(objective)}: expected 'published', 'importance' or 'expectation'")
    if beta:
        log_pi = np.log(np.maximum(pi, 1e-300))
        way = way - beta * pi * (log_pi - (pi * log_pi).sum(-1, keepdims=True))
    return way


def train_logits(R: Sequence[float] | np.ndarray, objective: Objective = "published", optimizer: Optimizer = "adam",
                 steps: int = 1000, start: Sequence[float] | np.ndarray | None = None, *, learning_rate: float = 0.01,
                 beta: float = 0.0, mu: np.ndarray | None = None, share: np.ndarray | None = None) -> np.ndarray:
    """The path of pi when plain logits are trained: no network, no chance.

    Args:
        R: rewards (k,), or (n, k) for n states that have nothing to do with each other.
        objective: see `direction`.
        optimizer: "gradient" (plain descent), "adam" (torch's constants), or "flow": descent by infinitely small steps,
            solved as a differential equation, at the times learning_rate * step.
        steps: how many.
        start: pi at the start, all positive, (k,) or (n, k), scaled to a sum of 1; uniform, if not given.
        learning_rate: length of a step.
        beta, mu, share: see `direction`.

    Returns:
        (steps + 1, k) or (steps + 1, n, k), float64.

    Raises:
        ValueError: an argument is wrong; the message names it.
    """
    R = numbers(R, "R")
    if R.ndim not in (1, 2) or not R.size or R.shape[-1] < 2:
        raise ValueError(f"R: shape {R.shape}; expected (k,) or (n, k), k at least 2")
    steps, rate = whole(steps, "steps", 1), number(learning_rate, "learning_rate", positive=True)
    beta, (mu, share) = number(beta, "beta"), _log_of(mu, share, R.shape)
    pi = np.full(R.shape, 1 / R.shape[-1]) if start is None else _probabilities(start, "start", R.shape)
    z = np.log(np.broadcast_to(pi, R.shape))

    def way(logits: np.ndarray) -> np.ndarray:
        return _direction(_softmax(logits), R, objective, beta, mu, share)

    if optimizer == "flow":
        times = rate * np.arange(steps + 1)
        solved = solve_ivp(lambda _, flat: way(flat.reshape(R.shape)).ravel(), (0, times[-1]), z.ravel(), "LSODA",
                           t_eval=times, rtol=1e-9, atol=1e-9)
        return _softmax(solved.y.T.reshape(-1, *R.shape))
    if optimizer not in ("gradient", "adam"):
        raise ValueError(f"optimizer = {shown(optimizer)}: expected 'flow', 'gradient' or 'adam'")
    path, m, v = [z], np.zeros_like(z), np.zeros_like(z)
    for step in range(1, steps + 1):
        g = way(z)
        if optimizer == "gradient":
            z = z + rate * g
        else:
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            z = z + rate * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
        path.append(z)
    return _softmax(np.array(path))


# --- the network: how far a few steps get

SCALINGS: dict[str, Callable[[np.ndarray], tuple[float, float]]] = {
    "B / B_max": lambda B: (0.0, float(B.max())),
    "B in u$": lambda B: (0.0, 1.0),
    "standardized": lambda B: (float(B.mean()), float(B.std()) or 1.0),
}
"""How the budget enters the network, (B - shift) / scale. The paper does not say; the code divides by the largest."""

LEARNING_RATES = (3e-4, 1.5e-3, 3e-3)
"""The paper's on GSM8K; the paper's on MATH and MBPP; the code's."""

_LOSSES = {"published": lambda z, e, beta: published_loss(z, e.R, e.count, beta),
           "importance": lambda z, e, beta: importance_loss(z, e.R_over_b, e.count, beta),
           "expectation": lambda z, e, beta: expectation_loss(z, e.R, e.count, beta)}


def follow(table: LogTable, embedding: np.ndarray | None = None, *, scaling: str = "B / B_max",
           learning_rate: float = 3e-4, seed: int = 0, steps: int = 10, record: Iterable[int] | None = None,
           objective: Objective = "published", beta: float = 0.001) -> pd.DataFrame:
    """Train the policy network on all rows of a log at once, as the paper does, and look at it along the way.

    Args:
        table: the log, with its rewards, complete (`LogTable.from_log(..., complete=True)`).
        embedding: of each state's question, (n, 384); looked up, if not given.
        scaling: one of SCALINGS.
        learning_rate: of Adam.
        seed: of the initial weights.
        steps: of Adam, each on the whole log.
        record: the steps to report; all, if not given.
        objective: "published", "importance" or "expectation".
        beta: weight of the entropy.

    Returns:
        One row a recorded step: step; total_variation between pi and the untrained pi, mean over states; entropy of pi
        (nats); changed, the share of states whose greedy choice is not the untrained one; agree, the share whose greedy
        choice is the best topology of the table, among states in which not all topologies are as good (NaN without
        any); drawn and greedy, the mean reward; gradient, the length of the gradient of the loss; share_<topology> of
        the greedy choices.

    Raises:
        ValueError: an argument is wrong; the message names it.
    """
    if scaling not in SCALINGS:
        raise ValueError(f"scaling = {shown(scaling)}: expected one of {', '.join(SCALINGS)}")
    if objective not in _LOSSES:
        raise ValueError(f"objective = {shown(objective)}: expected one of {', '.join(_LOSSES)}")
    if (table.count == 0).any():
        raise ValueError("table: some states lack a topology; build it with LogTable.from_log(log, complete=True)")
    steps, learning_rate = whole(steps, "steps", 1), number(learning_rate, "learning_rate", positive=True)
    seed, beta = whole(seed, "seed"), number(beta, "beta")
    wanted = {whole(step, "record", 0, steps) for step in (range(steps + 1) if record is None else record)}
    shift, scale = SCALINGS[scaling](table.budget)
    states = Examples.from_table(replace(table, budget=table.budget - shift),
                                 encode(questions_of(table.task_id)) if embedding is None else embedding, scale)
    network = PolicyNetwork(generator=torch.Generator().manual_seed(seed))
    adam = torch.optim.Adam(network.parameters(), lr=learning_rate)
    R, untrained, rows = states.R.numpy(), None, []
    best = R >= R.max(axis=1, keepdims=True) - 1e-6 * np.abs(R).max()   # a bonus of the code's size breaks no tie
    for step in range(steps + 1):
        logits = network(states.embedding, states.budget)
        adam.zero_grad()
        _LOSSES[objective](logits, states, beta).backward()
        if step in wanted or step == 0:
            pi = _softmax(logits.detach().numpy())
            untrained = pi if untrained is None else untrained
        if step in wanted:
            rows.append({"step": step} | _compare(pi, untrained, R, best) | {"gradient": _length(network)})
        adam.step()
    return pd.DataFrame(rows)


def steps_study(table: LogTable, embedding: np.ndarray | None = None, *, steps: int = 10,
                learning_rates: Iterable[float] = LEARNING_RATES, scalings: Iterable[str] = tuple(SCALINGS),
                seeds: Iterable[int] = range(10), **options: Any) -> pd.DataFrame:
    """`follow` for all learning rates, budget scalings and seeds: columns scaling, learning_rate, seed, then those of
    `follow`; one row a step, from 0 (untrained). `options` go to `follow`."""
    if embedding is None:
        embedding = encode(questions_of(table.task_id))
    runs = [follow(table, embedding, scaling=scaling, learning_rate=rate, seed=seed, steps=steps, **options)
            .assign(scaling=scaling, learning_rate=rate, seed=seed)
            for scaling in scalings for rate in learning_rates for seed in seeds]
    study = pd.concat(runs, ignore_index=True)
    first = ["scaling", "learning_rate", "seed"]
    return study[first + [name for name in study.columns if name not in first]]


def kept_steps(study: pd.DataFrame) -> pd.DataFrame:
    """The step of each run that the paper keeps: the best mean reward (drawn) on the whole log, untrained left out."""
    trained = study[study.step > 0]
    runs = trained.groupby(["scaling", "learning_rate", "seed"], sort=False).drawn
    return trained.loc[runs.idxmax()].reset_index(drop=True)


def average_by_budget(table: LogTable) -> LogTable:
    """The table with the rewards of each state replaced by their mean over all states of its budget.

    What is left is what no luck of a single task decides: with one best topology a budget there is something to
    converge to.
    """
    budgets, where = np.unique(table.budget, return_inverse=True)
    R, R_over_b = (np.array([np.nanmean(values[where == b], axis=0) for b in range(len(budgets))])[where]
                   for values in (table.R, table.R_over_b))
    return replace(table, R=R, R_over_b=R_over_b)


def settled_from(history: pd.DataFrame, column: str = "agree", level: float = 0.95) -> int | None:
    """The first recorded step from which on a column stays at `level` or above; None if it never does."""
    late = history[column].to_numpy() >= level
    start = len(late) - int(np.argmin(np.append(late[::-1], False)))
    return None if start == len(late) else int(history.step.iloc[start])


def _compare(pi: np.ndarray, untrained: np.ndarray, R: np.ndarray, best: np.ndarray) -> dict[str, float]:
    chosen, states, contested = pi.argmax(axis=1), np.arange(len(pi)), ~best.all(axis=1)
    shares = np.bincount(chosen, minlength=len(TOPOLOGIES)) / len(pi)
    return {"total_variation": np.abs(pi - untrained).sum(axis=1).mean() / 2,
            "entropy": -(pi * np.log(np.maximum(pi, 1e-300))).sum(axis=1).mean(),
            "changed": (chosen != untrained.argmax(axis=1)).mean(),
            "agree": best[states, chosen][contested].mean() if contested.any() else np.nan,
            "drawn": (pi * R).sum(axis=1).mean(), "greedy": R[states, chosen].mean(),
            **{f"share_{name}": share for name, share in zip(TOPOLOGIES, shares, strict=True)}}


def _length(network: PolicyNetwork) -> float:
    return float(sum((p.grad**2).sum() for p in network.parameters()) ** 0.5)


def _softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _rewards(R: Sequence[float]) -> list[Fraction]:
    values = [] if isinstance(R, str) or not isinstance(R, Iterable) else list(R)
    if len(values) < 2:
        raise ValueError(f"R = {shown(R)}: expected the rewards of at least two topologies")
    return [exact(value, "R") for value in values]


def _log_of(mu: Any, share: Any, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """mu and share of `direction`, for rewards of that shape."""
    mu = np.full(shape[-1], 1 / shape[-1]) if mu is None else _probabilities(mu, "mu", shape)
    share = mu if share is None else _probabilities(share, "share", shape)
    for p, name in ((mu, "mu"), (share, "share")):
        if not np.allclose(p.sum(axis=-1), 1, atol=1e-6):
            raise ValueError(f"{name} = {shown(p.tolist())}: expected a sum of 1")
    return mu, share


def _probabilities(values: Any, what: str, shape: tuple[int, ...]) -> np.ndarray:
    """Probabilities of k topologies, all positive (a `share` of the rows may be 0)."""
    p = numbers(values, what)
    if p.shape not in (shape, shape[-1:]):
        raise ValueError(f"{what}: shape {p.shape}; expected {shape[-1:]}{f' or {shape}' if len(shape) > 1 else ''}")
    if (p < 0).any() or (what != "share" and not p.all()):
        raise ValueError(f"{what} = {shown(values)}: expected {'' if what == 'share' else 'positive '}probabilities")
    return p
