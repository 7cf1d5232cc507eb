"""Tiered recursive weights, planned tokens and role limits: what the integer program of provisioning is made of."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from fractions import Fraction
from typing import Any, Literal

from bamas_lite.inputs import exact, shown

_TOKENS = {"arithmetic": {"planner": 384, "executor": 384, "critic": 384},
           "mathematics": {"planner": 384, "executor": 1024, "critic": 1024},
           "code": {"planner": 384, "executor": 384, "critic": 384}}

TOKEN_LIMITS = {**_TOKENS, "gsm8k": _TOKENS["arithmetic"], "math": _TOKENS["mathematics"], "mbpp": _TOKENS["code"]}
"""Longest completion in tokens, TOKEN_LIMITS[domain or benchmark][role] (BAMAS, experimental settings)."""

CRITICS = "critics <= executors"
STRONG_CRITICS = "strong critics <= strong executors"
COUPLINGS = (CRITICS, STRONG_CRITICS)
"""Rules of the public code that tie the two roles; strong means tier 1."""


class RoleLimits(dict[str, tuple[int, float]]):
    """Role -> (fewest, most) agents; `couplings` names those of COUPLINGS that hold.

    The order of the roles breaks ties: among equal teams the earlier role gets the stronger agents.
    """

    def __init__(self, limits: dict[str, tuple[int, float]], couplings: tuple[str, ...] = ()) -> None:
        super().__init__(limits)
        self.couplings = couplings


ROLE_LIMITS = {
    "linear": RoleLimits({"executor": (1, 5)}),
    "star": RoleLimits({"executor": (1, 5)}),
    "feedback": RoleLimits({"executor": (1, 3), "critic": (1, 2)}, (CRITICS, STRONG_CRITICS)),
    # the code's configuration lists executor 1 to 3 and critic 0 to 2 here, but its program does not enforce them
    "planner_driven": RoleLimits({"planner": (1, 1), "executor": (1, math.inf), "critic": (0, math.inf)}),
}
"""Topology -> limits per role which the program of BAMAS's public code enforces (the paper has none: there roles follow
the team)."""


def recursive_weights(costs: Sequence[Any], budget: Any, *,
                      tier_cost: Literal["cheapest", "average"] = "cheapest") -> list[int]:
    """W_L = 1, W_i = 1 + sum_{j>i} W_j * floor(B / c_j) (BAMAS, tiered recursive weights), as exact integers.

    Args:
        costs: c_i in u$ per tier, strongest first; a sequence instead of a number gives the costs of the tier's LLMs.
        budget: B in u$.
        tier_cost: which cost stands for a tier of several LLMs: the cheapest (dominance holds), or their average
            (as in the public code; dominance can fail).

    Returns:
        W_i per tier, strongest first.

    Raises:
        ValueError: no tier, a cost that is no positive number, a negative budget, an unknown tier_cost.
    """
    if tier_cost not in ("cheapest", "average"):
        raise ValueError(f"tier_cost = {tier_cost!r}: expected 'cheapest' or 'average'")
    b = exact(budget, "budget")
    if b < 0:
        raise ValueError(f"budget = {shown(budget)}: expected at least 0 u$")
    if not _is_series(costs):
        raise ValueError(f"costs = {shown(costs)}: expected one cost, or a sequence of costs, for each tier")
    c = [_tier_cost(entry, f"costs[{i}]", tier_cost) for i, entry in enumerate(costs)]
    if not c:
        raise ValueError("costs = []: expected at least one tier")
    weights, total = [], 0
    for c_i in reversed(c):
        w_i = 1 + total
        weights.append(w_i)
        total += w_i * (b // c_i)
    return weights[::-1]


def _tier_cost(entry: Any, what: str, tier_cost: str) -> Fraction:
    """The one cost that stands for a tier."""
    several = _is_series(entry)
    given = [positive(value, f"{what}[{k}]") for k, value in enumerate(entry)] if several else [positive(entry, what)]
    if not given:
        raise ValueError(f"{what} = {shown(entry)}: the tier has no LLM")
    return min(given) if tier_cost == "cheapest" else sum(given, Fraction(0)) / len(given)


def _is_series(value: Any) -> bool:
    """Whether these are values in an order: no text, mapping or set."""
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping, Set))


def positive(value: Any, what: str) -> Fraction:
    """`value` as an exact number above 0, or a ValueError that names it."""
    number = exact(value, what)
    if number <= 0:
        raise ValueError(f"{what} = {shown(value)}: expected a cost above 0 u$; else the number of copies has no bound")
    return number


def estimate_t_out(replies: Iterable[Any]) -> int:
    """T_out of the paper's cost model: the longest completion, in tokens, over sampled training tasks (there 50).

    Args:
        replies: `Reply` objects, or numbers of completion tokens.

    Raises:
        ValueError: no reply, or a token count that is no whole number of at least 0.
    """
    tokens = [r.usage.completion_tokens if hasattr(r, "usage") else r for r in replies]
    if not tokens:
        raise ValueError("replies = []: expected at least one reply; the paper samples 50 training tasks")
    for i, n in enumerate(tokens):
        if isinstance(n, bool) or exact(n, f"replies[{i}]") < 0 or exact(n).denominator != 1:
            raise ValueError(f"replies[{i}] = {n!r}: expected a whole number of completion tokens")
    return int(max(tokens))
