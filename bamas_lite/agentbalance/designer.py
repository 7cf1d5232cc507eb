"""A design for one question under two budgets: agents first, then their topology.

AgentBalance names the stages; their formulas are our reconstruction (see the modules of the stages). A designer keeps
no names of LLMs: give it other profiles (`with_profiles`) and it works with those, also with LLMs that it never saw.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np
import torch

from bamas_lite.agentbalance.backbones import (
    EMPTY,
    Matching,
    best_matching,
    draw_matching,
    draw_pool,
    hired,
    one_llm,
    random_matching,
)
from bamas_lite.agentbalance.budgets import Budgets, affordable, check_budgets
from bamas_lite.agentbalance.candidate_pools import CandidatePool, construct_pools
from bamas_lite.agentbalance.difficulty import Difficulty
from bamas_lite.agentbalance.features import (
    LLM_FEATURES,
    ROLE_FEATURES,
    Quality,
    budget_features,
    llm_features,
    role_features,
)
from bamas_lite.agentbalance.graphs import HANDS, AgentGraph, GraphAgent
from bamas_lite.agentbalance.network import DesignNetwork
from bamas_lite.agentbalance.profiles import Profile, ProfileError
from bamas_lite.agentbalance.roles import Role, load_roles, roles_of
from bamas_lite.agentbalance.synthesis import Edges, synthesize
from bamas_lite.agentbalance.variants import OURS, Variant
from bamas_lite.encoder import DIMENSION, encode
from bamas_lite.inputs import shown, whole
from bamas_lite.pool import Pool

_role_features = lru_cache(maxsize=64)(role_features)


@dataclass(frozen=True)
class Query:
    """A question to design for: its embedding (384,), its domain, and the budgets of one task.

    `pool` names a candidate pool by its index, which is then taken without being selected.
    """

    x: np.ndarray
    domain: str
    budgets: Budgets
    pool: int | None = None


@dataclass(frozen=True)
class Design:
    """What was designed for one query, with every decision that led to it.

    Attributes:
        graph: the agents and who hands on to whom; planned cost and latency are its properties.
        query: what it was designed for.
        difficulty: d(x).
        pool: index of the selected candidate pool; None where the variant selects none.
        feasible: which pools could meet the budgets, (K,).
        roles: the role of each place, R.
        matching: the LLM of each place, as an index among the designer's profiles.
        scores: matching scores (R, M).
        gates: which filled places the gate kept, (R,) bool; where no answering one is among them, the one with the
            largest logit stays too.
        gate_logits: (R,).
        edges: decisions about the pairs of places, (R, R).
    """

    graph: AgentGraph
    query: Query
    difficulty: float
    pool: int | None
    feasible: np.ndarray
    roles: tuple[Role, ...]
    matching: Matching
    scores: np.ndarray
    gates: np.ndarray
    gate_logits: np.ndarray
    edges: Edges


@dataclass(frozen=True)
class Sheet:
    """What all profiles plan for one domain: costs (M,), message costs (M,) in u$, latencies (M,) in s, scaled quality
    (M,)."""

    costs: np.ndarray
    message_costs: np.ndarray
    latencies: np.ndarray
    quality: np.ndarray


@dataclass(frozen=True)
class Designer:
    """Designs graphs of agents.

    Attributes:
        profiles: the LLMs, M.
        network, difficulty: the learned parts.
        quality: the scale of the quality feature, set by the LLMs of the training.
        variant: what is learned and what is fixed.
        roles: sets of roles, as from `load_roles`.
        alpha: weight of the latency term of edges.
        most_copies: in how many roles one LLM may be, at the most.
        about: how it was trained.
    """

    profiles: tuple[Profile, ...]
    network: DesignNetwork
    difficulty: Difficulty
    quality: Quality
    variant: Variant = OURS
    roles: Mapping[str, tuple[Role, ...]] = field(default_factory=load_roles)
    alpha: float = 1.0
    most_copies: int = 2
    about: dict = field(default_factory=dict, compare=False)

    @cached_property
    def pools(self) -> tuple[CandidatePool, ...]:
        """The candidate pools of the profiles."""
        return construct_pools(self.profiles, self.variant.pools)

    @cached_property
    def members(self) -> np.ndarray:
        """Which LLM is in which pool, (K, M) bool."""
        return np.array([[p in pool.profiles for p in self.profiles] for pool in self.pools])

    @cached_property
    def _sheets(self) -> dict[str, Sheet]:
        return {domain: Sheet(*(np.array(column) for column in zip(
            *((p.cost(domain), p.message_cost(domain), p.latency_s(domain)) for p in self.profiles), strict=True)),
            self.quality.scaled(self.profiles, domain)) for domain in self.profiles[0].quality}

    @cached_property
    def _llms(self) -> Pool:
        """The LLMs as a pool, their tiers without gaps, as some of a pool may be missing."""
        tiers = sorted({p.llm.tier for p in self.profiles} - {None})
        return Pool(name="profiled", llms=[
            p.llm if p.llm.tier is None else p.llm.model_copy(update={"tier": tiers.index(p.llm.tier) + 1})
            for p in self.profiles])

    def with_profiles(self, profiles: Sequence[Profile]) -> Designer:
        """The same designer for other LLMs: what it learned is about features, not names.

        Raises:
            ProfileError: not a list of profiles.
        """
        if not isinstance(profiles, Sequence) or not profiles or not all(isinstance(p, Profile) for p in profiles):
            raise ProfileError(f"profiles = {shown(profiles)}: expected a list of at least one Profile")
        return replace(self, profiles=tuple(profiles))

    def check_team(self, budgets: Budgets, domain: str) -> None:
        """For BAMAS's team: whether it can be hired.

        Raises:
            InfeasibleBudgetError: no team fits.
        """
        if self.variant.backbones == "BAMAS":
            names = tuple(p.llm.name for p in self.profiles)
            hired(self._llms, names, budgets, roles_of(domain, self.roles), domain)

    def design(self, question: str, domain: str, budgets: Budgets, mode: Literal["greedy", "sample"] = "greedy",
               seed: int = 0) -> Design:
        """Agents and graph for one question.

        Args:
            question: its text, or its embedding (384,).
            domain: "arithmetic", "mathematics" or "code".
            budgets: of one task.
            mode: "greedy" - the most probable choice at each step; "sample" - a draw with `seed`.

        Raises:
            InfeasibleBudgetsError: no LLM answers within the budgets; names the binding one and the least feasible
                value.
            ValueError: another argument is wrong.
        """
        if not isinstance(budgets, Budgets):
            raise ValueError(f"budgets = {shown(budgets)}: expected Budgets(cost, latency_s), such as Budgets(600, 10)")
        if mode not in ("greedy", "sample"):
            raise ValueError(f"mode = {shown(mode)}: expected 'greedy' or 'sample'")
        draw = None if mode == "greedy" else np.random.default_rng(whole(seed, "seed", 0))
        x = encode([question])[0] if isinstance(question, str) else _embedding(question)
        return self.designs([Query(x, domain, budgets)], draw)[0]

    @torch.no_grad()
    def designs(self, queries: Sequence[Query], draw: np.random.Generator | None = None) -> list[Design]:
        """A design for each query: greedy without `draw`."""
        if not queries:
            return []
        for query in queries:
            check_budgets(self.profiles, query.budgets, query.domain)
        inputs = self.inputs(queries)
        context = self.network.context(inputs.x, inputs.d, inputs.b)
        pool_logits = self.network.pool_logits(context, inputs.pools).numpy()
        scores = self.network.match_scores(inputs.e, inputs.z, inputs.d).numpy()
        chosen = [self._backbones(query, pool_logits[i], scores[i], draw) for i, query in enumerate(queries)]
        llms = np.full(inputs.e.shape[:2], EMPTY)
        for i, (_, _, matching) in enumerate(chosen):
            llms[i, :len(matching.llms)] = matching.llms
        h = self.represent(inputs, torch.tensor(llms), context)
        gate_logits, edge_scores = self.network.gate_logits(h).numpy(), self.network.edge_scores(h).numpy()
        return [self._finish(query, float(inputs.d[i]), *chosen[i], scores[i], gate_logits[i], edge_scores[i], draw)
                for i, query in enumerate(queries)]

    def feasible(self, query: Query) -> np.ndarray:
        """Which candidate pools have an LLM that can answer within the budgets, (K,) bool."""
        return (self.members & affordable(self.profiles, query.budgets, query.domain)).any(axis=1)

    def inputs(self, queries: Sequence[Query]) -> Inputs:
        """Queries as tensors, padded to the largest set of roles."""
        sets = [roles_of(query.domain, self.roles) for query in queries]
        x = torch.tensor(np.stack([query.x for query in queries]), dtype=torch.float64)
        e = np.zeros((len(queries), max(map(len, sets)), ROLE_FEATURES))
        for i, roles in enumerate(sets):
            e[i, :len(roles)] = _role_features(roles)
        z = np.stack([llm_features(sheet.quality, sheet.costs, sheet.latencies, query.budgets)
                      for query in queries for sheet in (self._sheets[query.domain],)])
        b = np.stack([budget_features(query.budgets) for query in queries])
        fits = np.stack([affordable(self.profiles, query.budgets, query.domain) for query in queries])
        shares = self.members * fits[:, None, :]
        pools = (shares / shares.sum(2, keepdims=True).clip(min=1)) @ z
        return Inputs(x, self.difficulty(x), *map(torch.tensor, (b, e, z, pools)))

    def represent(self, inputs: Inputs, llms: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        """h (n, R, 32) of the agents that were matched; `llms` (n, R)."""
        index = llms.clamp(min=0)[..., None].expand(-1, -1, LLM_FEATURES)
        z = inputs.z.gather(1, index)
        if not self.variant.reads_question:
            z, context = torch.zeros_like(z), torch.zeros_like(context)
        return self.network.represent(inputs.e, z, context, llms != EMPTY)

    def _backbones(self, query: Query, pool_logits: np.ndarray, scores: np.ndarray, draw: np.random.Generator | None
                   ) -> tuple[int | None, np.ndarray, Matching]:
        """The pool, which pools could have been taken, and the matching."""
        sheet, budgets = self._sheets[query.domain], query.budgets
        roles = roles_of(query.domain, self.roles)
        fits = affordable(self.profiles, budgets, query.domain)
        in_pools, feasible = fits & self.members.any(axis=0), self.feasible(query)
        if not in_pools.any():
            in_pools = fits  # the frontier is one of averages over domains: one domain may need another LLM
        kind = self.variant.backbones
        if kind == "one LLM":
            return None, feasible, one_llm(sheet.quality, sheet.costs, in_pools, budgets.cost, roles)
        if kind == "BAMAS":
            names = tuple(p.llm.name for p in self.profiles)
            return None, feasible, hired(self._llms, names, budgets, roles, query.domain)
        if kind == "random":
            draw = draw or _generator(query)
            return None, feasible, random_matching(sheet.costs, in_pools, budgets.cost, roles, draw)
        if not feasible.any():
            return None, feasible, one_llm(sheet.quality, sheet.costs, in_pools, budgets.cost, roles)
        pool = draw_pool(pool_logits, feasible, draw) if query.pool is None else query.pool
        allowed = self.members[pool] & fits
        arguments = scores[:len(roles)], sheet.costs, allowed, budgets.cost, roles, self.most_copies
        return pool, feasible, best_matching(*arguments) if draw is None else draw_matching(*arguments, draw)

    def _finish(self, query: Query, difficulty: float, pool: int | None, feasible: np.ndarray, matching: Matching,
                scores: np.ndarray, gate_logits: np.ndarray, edge_scores: np.ndarray,
                draw: np.random.Generator | None) -> Design:
        """Gates, edges and the graph."""
        sheet, roles, llms = self._sheets[query.domain], roles_of(query.domain, self.roles), matching.llms
        R = len(roles)
        filled = llms != EMPTY
        gates = filled & self._open(gate_logits[:R], filled, draw)
        stay, answers = gates.copy(), np.array([role.kind == "answer" for role in roles])
        if not (gates & answers).any():  # somebody has to answer
            stay[np.where(filled & answers, gate_logits[:R], -np.inf).argmax()] = True
        on = np.flatnonzero(stay)
        costs, message_costs, latencies = (array[llms[on]] for array in (sheet.costs, sheet.message_costs,
                                                                        sheet.latencies))
        candidates = np.array([[i != j and (roles[i].kind, roles[j].kind) in HANDS for j in on] for i in on])
        decide = self._decide(candidates, draw)
        some = synthesize(edge_scores[np.ix_(on, on)], candidates, latencies, message_costs,
                          query.budgets.cost - costs.sum(), query.budgets.latency_s,
                          self.alpha if self.variant.latency_term else 0.0, decide)
        agents = tuple(GraphAgent(roles[r].name, roles[r], self.profiles[llms[r]].llm, float(c), float(m), float(s))
                       for r, c, m, s in zip(on, costs, message_costs, latencies, strict=True))
        asked, stretch = np.zeros((R, R), bool), np.zeros((R, R))
        asked[np.ix_(on, on)], stretch[np.ix_(on, on)] = some.asked, some.stretch
        edges = Edges(tuple((int(on[i]), int(on[j])) for i, j in some.chosen), asked, stretch)
        return Design(AgentGraph(agents, some.chosen).heard(), query, difficulty, pool, feasible, roles, matching,
                      scores[:R], gates, gate_logits[:R], edges)

    def _open(self, logits: np.ndarray, filled: np.ndarray, draw: np.random.Generator | None) -> np.ndarray:
        """Which gates are open."""
        if not self.variant.gate:
            return filled
        if draw is not None:
            return draw.random(len(logits)) < _sigmoid(logits)
        if self.variant.keep_agents is None:
            return logits > 0
        rank = np.where(filled, -logits, np.inf).argsort().argsort()
        return rank < np.ceil(self.variant.keep_agents * filled.sum())

    def _decide(self, candidates: np.ndarray, draw: np.random.Generator | None):
        """How an edge's logit decides about it."""
        if draw is not None:
            return lambda logit: draw.random() < _sigmoid(logit)
        if self.variant.keep_edges is None:
            return lambda logit: logit > 0
        # of a pair, only one direction can be in a graph without cycles
        left = iter(range(round(self.variant.keep_edges * np.triu(candidates | candidates.T).sum())))
        return lambda logit: next(left, None) is not None


@dataclass(frozen=True)
class Inputs:
    """n queries as tensors: embeddings x (n, 384), difficulties d (n,), budgets b (n, 2), roles e (n, R, 388), LLMs
    z (n, M, 4), and for each pool the mean z of its LLMs that fit the budgets, (n, K, 4)."""

    x: torch.Tensor
    d: torch.Tensor
    b: torch.Tensor
    e: torch.Tensor
    z: torch.Tensor
    pools: torch.Tensor


def _embedding(question: Any) -> np.ndarray:
    try:
        x = np.asarray(question, float)
    except (TypeError, ValueError, OverflowError):
        x = None
    if x is None or x.shape != (DIMENSION,) or not np.isfinite(x).all():
        given = f"= {shown(question)}" if x is None or not x.ndim else f"is an array of shape {x.shape}"
        raise ValueError(f"question {given}: expected a text, or its embedding of {DIMENSION} finite numbers")
    return x


def _sigmoid(logits):
    return 1 / (1 + np.exp(-np.clip(logits, -500, 500)))


def _generator(query: Query) -> np.random.Generator:
    """Draws of the greedy mode of a variant that draws its LLMs: the same for the same query."""
    bits = np.frombuffer(np.float32(query.x[:8]).tobytes(), np.uint32)
    return np.random.default_rng([*bits.tolist(), int(query.budgets.cost)])
