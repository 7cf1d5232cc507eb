"""Cost and latency budgets of one task, and whether any LLM can meet both.

The abstract has explicit token-cost and latency budgets; the check and the least feasible values are our
reconstruction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from typing import Any

import numpy as np

from bamas_lite.agentbalance.checks import check_profiles
from bamas_lite.agentbalance.profiles import Profile
from bamas_lite.inputs import exact, shown
from bamas_lite.tasks import DOMAINS


@dataclass(frozen=True, slots=True)
class Budgets:
    """What one task may cost and take.

    Attributes:
        cost: B_c in u$, positive and finite.
        latency_s: B_l in seconds, positive; infinity: no limit.

    Raises:
        ValueError: another value.
    """

    cost: float
    latency_s: float = math.inf

    def __post_init__(self) -> None:
        object.__setattr__(self, "cost", _positive(self.cost, "cost", "u$"))
        if not (isinstance(self.latency_s, float) and self.latency_s == math.inf):
            object.__setattr__(self, "latency_s", _positive(self.latency_s, "latency_s", "seconds, or math.inf"))

    def __str__(self) -> str:
        return f"{self.cost:g} u$, " + (f"{self.latency_s:g} s" if self.latency_s < math.inf else "no latency limit")


class InfeasibleBudgetsError(ValueError):
    """No LLM's one planned call meets both budgets.

    Attributes:
        binding: which budgets are too small: ("cost",), ("latency",) or both.
        least_cost: the least cost budget, u$, with which the check passes, the latency budget left as it is; None where
            no cost budget would do, because latency binds.
        least_latency_s: the same for the latency budget, in seconds.

    Two budgets bind in two ways. Where each could be met, but by different LLMs, raising either one to its least value
    is enough. Where each is too small for every LLM, both must be raised: `least_cost` is then the price of the
    cheapest call and `least_latency_s` the time of the fastest call at that price.
    """

    def __init__(self, message: str, binding: tuple[str, ...], least_cost: float | None,
                 least_latency_s: float | None) -> None:
        super().__init__(message)
        self.binding = binding
        self.least_cost = least_cost
        self.least_latency_s = least_latency_s

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args[0], self.binding, self.least_cost, self.least_latency_s)


def affordable(profiles: Sequence[Profile], budgets: Budgets, domain: str) -> np.ndarray:
    """Which LLMs meet both budgets with one planned call: bool (n_llms,).

    Raises:
        ProfileError: `profiles` is no list of at least one Profile, or one of them lacks the domain.
        ValueError: a domain or budgets that are none.
    """
    cost, latency = _planned(profiles, budgets, domain)
    return (cost <= budgets.cost) & (latency <= budgets.latency_s)


def check_budgets(profiles: Sequence[Profile], budgets: Budgets, domain: str) -> None:
    """Make sure that at least one LLM meets both budgets with one planned call.

    Raises:
        InfeasibleBudgetsError: none does; the message names the binding budget and the least value that would do.
        ProfileError, ValueError: as `affordable`.
    """
    cost, latency = _planned(profiles, budgets, domain)
    cheap, fast = cost <= budgets.cost, latency <= budgets.latency_s
    if (cheap & fast).any():
        return
    given = f"cost budget = {shown(budgets.cost)} u$, latency budget = {shown(budgets.latency_s)} s ({domain})"
    if cheap.any() and fast.any():
        c, t = _least(cost, fast, latency), _least(latency, cheap, cost)
        raise InfeasibleBudgetsError(
            f"{given}: some LLMs meet the cost budget and others the latency budget, none meets both; raise the cost "
            f"budget to at least {_text(cost[c])} u$ (one call of {_name(profiles, c)}), or the latency budget to at "
            f"least {_text(latency[t])} s (one call of {_name(profiles, t)})",
            ("cost", "latency"), float(cost[c]), float(latency[t]))
    if cheap.any():
        t = _least(latency, cheap, cost)
        raise InfeasibleBudgetsError(
            f"{given}: the latency budget is too small; expected at least {_text(latency[t])} s, one call of "
            f"{_name(profiles, t)}, the fastest LLM within the cost budget",
            ("latency",), None, float(latency[t]))
    if fast.any():
        c = _least(cost, fast, latency)
        within = "the cheapest LLM" + ("" if budgets.latency_s == math.inf else " within the latency budget")
        raise InfeasibleBudgetsError(
            f"{given}: the cost budget is too small; expected at least {_text(cost[c])} u$, one call of "
            f"{_name(profiles, c)}, {within}",
            ("cost",), float(cost[c]), None)
    c, t = _least(cost, np.ones(len(cost), bool), latency), _least(latency, np.ones(len(cost), bool), cost)
    raise InfeasibleBudgetsError(
        f"{given}: both budgets are too small for every LLM; the cheapest one, {_name(profiles, c)}, needs "
        f"{_text(cost[c])} u$ and {_text(latency[c])} s" + ("" if c == t else
        f", the fastest one, {_name(profiles, t)}, {_text(cost[t])} u$ and {_text(latency[t])} s"),
        ("cost", "latency"), float(cost[c]), float(latency[c]))


def _planned(profiles: Sequence[Profile], budgets: Budgets, domain: str) -> tuple[np.ndarray, np.ndarray]:
    """Planned cost (u$) and latency (s) of one call of each LLM, after a look at all arguments."""
    check_profiles(profiles)
    check_asked(budgets, domain)
    cost, latency = np.array([(profile.cost(domain), profile.latency_s(domain)) for profile in profiles], float).T
    return cost, latency


def check_asked(budgets: Any, domain: Any) -> None:
    """Raise ValueError unless `budgets` are Budgets and `domain` is one of DOMAINS."""
    if not isinstance(budgets, Budgets):
        raise ValueError(f"budgets = {shown(budgets)}: expected Budgets(cost, latency_s), such as Budgets(600, 10)")
    if domain not in DOMAINS:
        raise ValueError(f"domain = {shown(domain)}: expected one of {', '.join(DOMAINS)}")


def _least(value: np.ndarray, among: np.ndarray, then: np.ndarray) -> int:
    """The LLM with the least value among some; of several the one with the least `then`, then the first."""
    return min(np.flatnonzero(among).tolist(), key=lambda i: (value[i], then[i]))


def _name(profiles: Sequence[Profile], index: int) -> str:
    return profiles[index].llm.name


def _text(amount: float) -> str:
    """An amount that a budget must reach: rounded up to four digits, so that the printed value passes."""
    value = Decimal(repr(float(amount)))
    return f"{value.quantize(Decimal(1).scaleb(value.adjusted() - 3), ROUND_CEILING).normalize():f}"


def _positive(value: Any, what: str, unit: str) -> float:
    try:
        amount = float(exact(value, what))
    except ValueError:
        amount = 0.0
    if not amount > 0:
        raise ValueError(f"{what} = {shown(value)}: expected a positive number of {unit}") from None
    return amount
