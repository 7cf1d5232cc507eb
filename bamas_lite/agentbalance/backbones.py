"""The backbone stage: which candidate pool, and which of its LLMs plays which role.

The abstract names pool selection and role-backbone matching; the rules are our reconstruction. When a design is asked
for, matching is the assignment that maximizes the total score (`match_roles`); in training it is drawn role by role,
the most critical first, so that the probability of a draw is known. A role may stay empty: with one LLM for every role
a small budget could pay for nothing but the cheapest LLMs. But an answering role is always filled, whatever the roles.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from bamas_lite.agentbalance.budgets import Budgets
from bamas_lite.agentbalance.matching import match_roles
from bamas_lite.agentbalance.roles import Role
from bamas_lite.pool import Pool
from bamas_lite.provisioning import TOKEN_LIMITS
from bamas_lite.timed_provisioning import provision_in_time

EMPTY = -1


@dataclass(frozen=True)
class Matching:
    """A draw or a choice.

    Attributes:
        llms: index of each role's LLM among all M, EMPTY for none, (R,).
        options: what each role could have been given when it was its turn, (R, M + 1) bool; the last column is EMPTY.
            Only for draws; None for choices that no policy made.
    """

    llms: np.ndarray
    options: np.ndarray | None = None


def draw_pool(logits: np.ndarray, feasible: np.ndarray, draw: np.random.Generator | None) -> int:
    """A pool among the feasible ones: drawn with the softmax of the logits or, without `draw`, the most probable; of
    equals the first, the cheapest."""
    masked = np.where(feasible, logits, -np.inf)
    if draw is not None:
        return int((masked + draw.gumbel(size=len(masked))).argmax())
    # Stacked pools of which the same LLMs fit are equal, but for the last bits of sums.
    return int(np.flatnonzero(masked >= masked.max() - 1e-9)[0])


def draw_matching(scores: np.ndarray, costs: np.ndarray, allowed: np.ndarray, budget: float, roles: tuple[Role, ...],
                  most_copies: int, draw: np.random.Generator) -> Matching:
    """Draw an LLM for one role after another, with the softmax of what is affordable; EMPTY has score 0.

    At least one answering role is filled: until one is, another role is offered only LLMs after which there is still
    one to answer, with money and a copy left for it. So `allowed` must hold an LLM that the budget can pay, and `roles`
    an answering one.

    Args:
        scores: (R, M). costs: planned u$ of one call, (M,). allowed: (M,) bool.
    """
    R, M = scores.shape
    llms, options = np.full(R, EMPTY), np.zeros((R, M + 1), bool)
    copies, left, answered = np.zeros(M, int), budget, False
    answers_left = sum(role.kind == "answer" for role in roles)
    for r in by_criticality(roles):
        answers = roles[r].kind == "answer"
        answers_left -= answers
        options[r, :M] = allowed & (costs <= left) & (copies < most_copies)
        if not answered and not answers:
            later = copies + np.eye(M, dtype=int) < most_copies   # [m, n]: a copy of n is left once m is taken
            options[r, :M] &= (allowed & later & (costs <= (left - costs)[:, None])).any(axis=1)
        options[r, M] = answered or answers_left > 0
        score = np.where(options[r], np.append(scores[r], 0.0), -np.inf)
        m = int((score + draw.gumbel(size=M + 1)).argmax())
        if m < M:
            llms[r], answered = m, answered or answers
            left -= costs[m]
            copies[m] += 1
    return Matching(llms, options)


def best_matching(scores: np.ndarray, costs: np.ndarray, allowed: np.ndarray, budget: float, roles: tuple[Role, ...],
                  most_copies: int) -> Matching:
    """The assignment with the largest total score."""
    members = np.flatnonzero(allowed)
    found = match_roles(scores[:, members], np.tile(costs[members], (len(roles), 1)), budget,
                        required=np.array([role.kind == "answer" for role in roles]), max_copies=most_copies)
    return Matching(np.array([EMPTY if m == EMPTY else members[m] for m in found]))


def random_matching(costs: np.ndarray, allowed: np.ndarray, budget: float, roles: tuple[Role, ...],
                    most_copies: int, draw: np.random.Generator) -> Matching:
    """Any affordable LLM for each role, in the order of `answer_first`, as long as money and copies last."""
    llms, copies, left = np.full(len(roles), EMPTY), np.zeros(len(costs), int), budget
    for r in answer_first(roles):
        options = np.flatnonzero(allowed & (costs <= left) & (copies < most_copies))
        if len(options):
            llms[r] = draw.choice(options)
            left -= costs[llms[r]]
            copies[llms[r]] += 1
    return Matching(llms)


def one_llm(quality: np.ndarray, costs: np.ndarray, allowed: np.ndarray, budget: float, roles: tuple[Role, ...],
            team: int = 3) -> Matching:
    """The best LLM of which `team` agents fit the budget (if none: one agent fewer, and so on), in as many roles as
    fit, in the order of `answer_first`."""
    for size in range(min(team, len(roles)), 0, -1):
        fits = np.flatnonzero(allowed & (size * costs <= budget))
        if len(fits):
            break
    m = fits[np.lexsort((costs[fits], -quality[fits]))[0]]
    places = min(len(roles), int(budget // costs[m]))
    llms = np.full(len(roles), EMPTY)
    llms[answer_first(roles)[:places]] = m
    return Matching(llms)


def hired(pool: Pool, names: tuple[str, ...], budgets: Budgets, roles: tuple[Role, ...], domain: str) -> Matching:
    """BAMAS's team, strongest first, in the order of `answer_first`; planned as for a star, its agents side by side.

    Raises:
        InfeasibleTeamError: no team meets the budgets. It is an InfeasibleBudgetError, as of BAMAS's `provision`, and
            no InfeasibleBudgetsError: one LLM may meet both budgets where no team of two does.
    """
    llms = np.full(len(roles), EMPTY)
    for r, name in zip(answer_first(roles), _team(pool, budgets, domain), strict=False):
        llms[r] = names.index(name)
    return Matching(llms)


@lru_cache(maxsize=4096)
def _team(pool: Pool, budgets: Budgets, domain: str) -> tuple[str, ...]:
    team = provision_in_time(pool, budgets.cost, budgets.latency_s, "star", t_out=TOKEN_LIMITS[domain]["executor"],
                             method="lexicographic")
    return tuple(slot.llm.name for slot in team.slots)


def by_criticality(roles: tuple[Role, ...]) -> list[int]:
    """Indices of the roles, the most critical first; answering roles before others of the same criticality."""
    return sorted(range(len(roles)), key=lambda r: (-roles[r].criticality, roles[r].kind != "answer", r))


def answer_first(roles: tuple[Role, ...]) -> list[int]:
    """Indices of the roles: the most critical answering one, as somebody has to answer, then the others, the most
    critical first."""
    order = by_criticality(roles)
    first = next(r for r in order if roles[r].kind == "answer")
    return [first, *(r for r in order if r != first)]
