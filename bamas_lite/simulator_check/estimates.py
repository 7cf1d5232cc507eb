"""Estimators for the simulator's parameters: counts and small likelihoods, each with a little shrinkage.

Every observation has a weight, so that the same code fits a bootstrap sample of the tasks. What an estimate is shrunk
to, and how many observations that is worth, stands with each function.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from scipy.optimize import minimize, minimize_scalar
from scipy.special import expit, ndtr

NODES = 21
_Z, _W = np.polynomial.hermite_e.hermegauss(NODES)
_W = _W / _W.sum()

SKILL_SPREAD, SLOPE_SPREAD, SHIFT_SPREAD = 2.0, 1.0, 0.5
"""Standard deviations of the priors on skill, loss per level and step shift, around what was assumed."""
CHANCE_WEIGHT = 2.0
"""Observations that the assumed value of a chance is worth."""
VIEW_WEIGHT = 4.0
"""Observations that "the own view does not matter" is worth."""
LENGTH_WEIGHT = 2.0
"""Observations that the assumed spread of lengths is worth."""


def views(k: np.ndarray, n: np.ndarray, above: np.ndarray, weight: np.ndarray, skill: float, slope: float
          ) -> tuple[float, float, float]:
    """Skill, loss per level and share of persistent variance of one LLM, from k right first answers of n a task.

    The largest penalized likelihood of z = skill - slope * (level - 1) + sqrt(share) * N(task) + the call's own noise;
    `above` is level - 1. Priors: normal around the given skill and slope, Beta(2, 2) for the share.
    """
    def loss(x: np.ndarray) -> float:
        chances = _chances(x[0], x[1], expit(x[2]), above)
        likelihood = (chances ** k[:, None] * (1 - chances) ** (n - k)[:, None]) @ _W
        prior = ((x[0] - skill) / SKILL_SPREAD)**2 / 2 + ((x[1] - slope) / SLOPE_SPREAD)**2 / 2
        share = expit(x[2])
        return prior - np.log(share * (1 - share)) - weight @ np.log(likelihood)

    best = minimize(loss, (skill, slope, 0.0), method="L-BFGS-B", bounds=[(-4, 4), (-3, 3), (-4, 4)])
    return float(best.x[0]), float(best.x[1]), float(expit(best.x[2]))


def _chances(skill: float, slope: float, share: float, above: np.ndarray, shift: float = 0.0) -> np.ndarray:
    """Chance of a right view at each node of the persistent part, (n_tasks, NODES)."""
    mean = skill - slope * above + shift
    return np.clip(ndtr((mean[:, None] + np.sqrt(share) * _Z) / np.sqrt(1 - share)), 1e-9, 1 - 1e-9)


def beliefs(k: np.ndarray, n: np.ndarray, above: np.ndarray, skill: float, slope: float, share: float) -> np.ndarray:
    """Weights of the nodes of the persistent part, given k of n right first answers of each task, (n_tasks, NODES)."""
    chances = _chances(skill, slope, share, above)
    weights = _W * chances ** k[:, None] * (1 - chances) ** (n - k)[:, None]
    return weights / weights.sum(axis=1, keepdims=True)


def view_chance(belief: np.ndarray, above: np.ndarray, skill: float, slope: float, share: float) -> np.ndarray:
    """Chance that a further view on each task is right, (n_tasks,)."""
    return (belief * _chances(skill, slope, share, above)).sum(axis=1)


def step_shift(right: np.ndarray, belief: np.ndarray, above: np.ndarray, weight: np.ndarray, skill: float,
               slope: float, share: float, assumed: float) -> float:
    """What a planner's instruction adds to the latent skill, from first answers to such prompts."""
    def loss(shift: float) -> float:
        chance = (belief * _chances(skill, slope, share, above, shift)).sum(axis=1)
        return (((shift - assumed) / SHIFT_SPREAD)**2 / 2
                - weight @ np.where(right, np.log(chance), np.log(1 - chance)))

    return float(minimize_scalar(loss, bounds=(-3, 3), method="bounded").x)


def task_share(counts: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray, float, float, float]], weight: np.ndarray,
               assumed: float) -> float:
    """The part of the persistent variance that all LLMs share on a task.

    Args:
        counts: of each LLM k, n, level - 1 (all (n_tasks,), n may be 0), skill, slope and share.
        weight: of each task.
        assumed: mean of a Beta prior worth four tasks.

    Returns:
        The best of a grid, at most the least share of the LLMs.
    """
    most = min(share for *_, share in counts)
    grid = np.linspace(0.01, 0.99, 25) * most
    fits = []
    for shared in grid:
        given = np.ones((len(weight), NODES))   # of the shared part
        for k, n, above, skill, slope, share in counts:
            mean = (skill - slope * above)[:, None] + np.sqrt(shared) * _Z
            latent = mean[:, :, None] + np.sqrt(share - shared) * _Z
            chances = np.clip(ndtr(latent / np.sqrt(1 - share)), 1e-9, 1 - 1e-9)
            given *= (chances ** k[:, None, None] * (1 - chances) ** (n - k)[:, None, None]) @ _W
        part = shared / most
        fits.append(weight @ np.log(given @ _W) + 4 * (assumed * np.log(part) + (1 - assumed) * np.log(1 - part)))
    return float(grid[int(np.argmax(fits))])


def by_view(hit: np.ndarray, view: np.ndarray, weight: np.ndarray, assumed: tuple[float, float]) -> tuple[float, float]:
    """Chances of `hit` where the own view is right and where it is wrong, if it is only known with the chance `view`.

    Both are shrunk to their common rate, and that to what was assumed. Expectation maximization.
    """
    rate = [(weight @ hit + CHANCE_WEIGHT * a) / (weight.sum() + CHANCE_WEIGHT) for a in assumed]
    when_right, when_wrong = rate
    for _ in range(100):
        right = np.where(hit, view * when_right, view * (1 - when_right))
        wrong = np.where(hit, (1 - view) * when_wrong, (1 - view) * (1 - when_wrong))
        mine = weight * right / np.maximum(right + wrong, 1e-12)
        other = weight - mine
        when_right = (mine @ hit + VIEW_WEIGHT * rate[0]) / (mine.sum() + VIEW_WEIGHT)
        when_wrong = (other @ hit + VIEW_WEIGHT * rate[1]) / (other.sum() + VIEW_WEIGHT)
    return float(when_right), float(when_wrong)


def chance(hit: np.ndarray, weight: np.ndarray, assumed: float) -> float:
    """A plain share, shrunk to what was assumed."""
    return float((weight @ hit + CHANCE_WEIGHT * assumed) / (weight.sum() + CHANCE_WEIGHT))


def lengths(tokens: np.ndarray, cut: np.ndarray, limit: np.ndarray, style: np.ndarray, n_styles: int,
            above: np.ndarray, weight: np.ndarray, spread: float) -> tuple[np.ndarray, float, float]:
    """Means of the log of completion tokens by style on level 1, growth per level, and standard deviation.

    A reply that was cut would have been longer than its limit: expectation maximization over what it would have been.
    The spread is shrunk to the given one, growth to 0 with a spread of 0.3.
    """
    design = np.column_stack([np.eye(n_styles)[style], above])
    y = np.log(tokens)
    end = np.log(limit + 0.5)
    mean, sigma = y.copy(), spread
    variance = np.zeros_like(y)
    root = np.sqrt(weight)[:, None]
    for _ in range(60):
        ridge = np.zeros((1, n_styles + 1))
        ridge[0, -1] = sigma / 0.3
        solved = np.linalg.lstsq(np.vstack([root * design, ridge]), np.append(root[:, 0] * mean, 0.0), rcond=None)[0]
        fitted = design @ solved
        squares = weight @ ((mean - fitted)**2 + variance)
        sigma = float(np.sqrt((squares + LENGTH_WEIGHT * spread**2) / (weight.sum() + LENGTH_WEIGHT)))
        a = (end - fitted) / sigma
        density = np.exp(-a**2 / 2) / np.sqrt(2 * np.pi)
        mills = np.where(a < 30, density / np.maximum(ndtr(-a), 1e-300), a)
        mean = np.where(cut, fitted + sigma * mills, y)
        variance = np.where(cut, sigma**2 * np.maximum(1 + a * mills - mills**2, 0), 0)
    return solved[:n_styles], float(solved[-1]), sigma


def line(x: np.ndarray, y: np.ndarray, group: np.ndarray, n_groups: int, weight: np.ndarray
         ) -> tuple[np.ndarray, float]:
    """Offsets by group and a common slope of y on x, least squares; the slope shrunk to 1 by one squared token."""
    total = np.bincount(group, weight, n_groups)
    x_mean, y_mean = (np.bincount(group, weight * v, n_groups) / np.maximum(total, 1e-12) for v in (x, y))
    dx, dy = x - x_mean[group], y - y_mean[group]
    slope = float((weight @ (dx * dy) + 1) / (weight @ dx**2 + 1))
    return y_mean - slope * x_mean, slope


def coincidences(within: tuple[float, float], between: tuple[float, float], n_wrong: int, assumed: tuple[float, float]
                 ) -> tuple[float, float]:
    """wrong_decay and wrong_shared from how often wrong first answers coincide, within an LLM and between LLMs.

    Args:
        within, between: (pairs that coincide, pairs).
        n_wrong: wrong answers that the simulator knows of a task.
        assumed: decay and shared; worth two pairs each.
    """
    target = [(same + 2 * rate) / (pairs + 2) for (same, pairs), rate in
              zip((within, between), _coincide(n_wrong, *assumed), strict=True)]
    importance = within[1] + 2, between[1] + 2
    grid = _grid(n_wrong)
    errors = [sum(i * (r - t)**2 for i, r, t in zip(importance, rates, target, strict=True)) for _, _, rates in grid]
    decay, shared, _ = grid[int(np.argmin(errors))]
    return decay, shared


def _coincide(n_wrong: int, decay: float, shared: float) -> tuple[float, float]:
    """Chance that two wrong answers coincide, of one LLM and of two, in the simulator."""
    p = decay ** np.arange(n_wrong)
    p /= p.sum()
    own = [shared * p + (1 - shared) * np.roll(p, offset) for offset in range(n_wrong)]
    mean = np.mean(own, axis=0)
    return float(np.mean([q @ q for q in own])), float(mean @ mean)


@lru_cache(maxsize=8)
def _grid(n_wrong: int) -> list[tuple[float, float, tuple[float, float]]]:
    return [(float(d), float(s), _coincide(n_wrong, d, s)) for d in np.linspace(0.05, 1, 39)
            for s in np.linspace(0, 1, 21)]


def repeat_chance(steps: np.ndarray, weight: np.ndarray, assumed: float, most: int) -> float:
    """plan_more: with it the simulator's plans have as many steps on average; shrunk to what was assumed."""
    def mean(more: float) -> float:
        return 1 + sum(more**k for k in range(1, most))

    target = float((weight @ steps + CHANCE_WEIGHT * mean(assumed)) / (weight.sum() + CHANCE_WEIGHT))
    return float(minimize_scalar(lambda more: (mean(more) - target)**2, bounds=(0, 1), method="bounded").x)
