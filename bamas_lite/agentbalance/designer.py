"""A design for one question under two budgets: agents first, then their topology.

The abstract names the stages; their formulas are our reconstruction (see the modules of the stages). A designer keeps
no names of LLMs: give it other profiles (`with_profiles`) and it works with those, also with LLMs that it never saw.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
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
from bamas_lite.agentbalance.budgets import Budgets, affordable, check_asked, check_budgets
from bamas_lite.agentbalance.candidate_pools import CandidatePool, construct_pools, pareto_frontier
from bamas_lite.agentbalance.checks import check_profiles, number
from bamas_lite.agentbalance.designs import Design, Query, check_queries, embedding
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
from bamas_lite.agentbalance.roles import Role, RoleError, load_roles, read_set, roles_of
from bamas_lite.agentbalance.synthesis import Edges, synthesize
from bamas_lite.agentbalance.variants import OURS, Variant
from bamas_lite.encoder import encode
from bamas_lite.inputs import shown, whole
from bamas_lite.pool import Pool

_role_features = lru_cache(maxsize=64)(role_features)


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

    Raises:
        ProfileError: `profiles` is no list of at least one Profile.
        RoleError: `roles` is no mapping of sets to roles, or a set is unknown, empty or without an answering role.
        ValueError: another field does not fit.
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

    def __post_init__(self) -> None:
        check_profiles(self.profiles)
        for name, kind in (("network", DesignNetwork), ("difficulty", Difficulty), ("quality", Quality),
                           ("variant", Variant)):
            if not isinstance(value := getattr(self, name), kind):
                raise ValueError(f"{name} = {shown(value)}: expected a {kind.__name__}")
        if not set(self.profiles[0].domains) <= set(self.quality.mean):
            raise ProfileError(f"profiles: of the domains {', '.join(self.profiles[0].domains)}, while the scale of "
                               f"quality is one of {', '.join(self.quality.mean)} only")
        for name, value in (("profiles", tuple(self.profiles)), ("roles", _roles(self.roles)),
                            ("alpha", number(self.alpha, "alpha", 1e100)),
                            ("most_copies", whole(self.most_copies, "most_copies", 1))):
            object.__setattr__(self, name, value)

    @cached_property
    def pools(self) -> tuple[CandidatePool, ...]:
        """The candidate pools of the profiles: as many as the variant has, on a smaller frontier one for each LLM."""
        return construct_pools(self.profiles, min(self.variant.pools, len(pareto_frontier(self.profiles))),
                               stacked=self.variant.stacked)

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
            ProfileError: not a list of profiles, or of a domain that the LLMs of the training were not profiled on.
        """
        return replace(self, profiles=profiles)

    def check_team(self, budgets: Budgets, domain: str) -> None:
        """For BAMAS's team: whether it can be hired.

        Raises:
            InfeasibleTeamError: no team meets the budgets (see `hired`).
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
            InfeasibleTeamError: a variant with BAMAS's team, and no team meets the budgets (see `hired`).
            ProfileError, RoleError: the LLMs were not profiled on the domain, or it has no set of roles.
            EncoderError: `question` is a text that is new, and there is no encoder.
            ValueError: another argument is wrong. All but EncoderError are kinds of it.
        """
        check_asked(budgets, domain)
        if mode not in ("greedy", "sample"):
            raise ValueError(f"mode = {shown(mode)}: expected 'greedy' or 'sample'")
        draw = None if mode == "greedy" else np.random.default_rng(whole(seed, "seed", 0))
        x = (encode([question])[0] if isinstance(question, str) else
             embedding(question, "question", "a text, or its embedding"))
        return self.designs([Query(x, domain, budgets)], draw)[0]

    @torch.no_grad()
    def designs(self, queries: Sequence[Query], draw: np.random.Generator | None = None) -> list[Design]:
        """A design for each query, n: greedy without `draw`.

        Raises:
            InfeasibleBudgetsError: as `design`; where a query names a pool, it is about the LLMs of that pool.
            InfeasibleTeamError, ProfileError, RoleError: as `design`.
            ValueError: no list of Query, or a pool that is none.
        """
        check_queries(queries)
        if not queries:
            return []
        for query in queries:
            pool = query.pool if query.pool is None else whole(query.pool, "pool", 0, len(self.pools) - 1)
            check_budgets(self.profiles if pool is None else self.pools[pool].profiles, query.budgets, query.domain)
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
            return None, feasible, random_matching(sheet.costs, in_pools, budgets.cost, roles, self.most_copies, draw)
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


def _roles(sets: Any) -> dict[str, tuple[Role, ...]]:
    """Sets of roles, read as strictly as those of a file."""
    if not isinstance(sets, Mapping) or not sets:
        raise RoleError(f"roles = {shown(sets)}: expected what load_roles returns, set -> roles")
    for name, roles in sets.items():
        if not isinstance(roles, (tuple, list)) or not all(isinstance(role, Role) for role in roles):
            raise RoleError(f"roles[{shown(name)}] = {shown(roles)}: expected a tuple of Role")
    return {name: read_set(name, list(map(asdict, roles))) for name, roles in sets.items()}


def _sigmoid(logits):
    return 1 / (1 + np.exp(-np.clip(logits, -500, 500)))


def _generator(query: Query) -> np.random.Generator:
    """Draws of the greedy mode of a variant that draws its LLMs: the same for the same query."""
    bits = np.frombuffer(np.float32(query.x[:8]).tobytes(), np.uint32)
    return np.random.default_rng([*bits.tolist(), int(query.budgets.cost)])
