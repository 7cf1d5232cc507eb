"""Training a designer: policy gradient with a baseline, and dual ascent on both budgets.

AgentBalance's losses are not known to us; this is our reconstruction. For each query and each candidate pool several
designs are drawn and run without a budget guard, and

    R = correct * (1 + s * saved) - lambda_c relu(C / B_c - 1) - lambda_l relu(L / B_l - 1)

is their reward; `saved` is the unspent share of the cost budget and s is small: among designs that are right equally
often the cheaper is better, as in BAMAS. The baseline of a design is the mean reward of the other designs of the same
query and pool, so that how hard the question is cancels out. After each batch the multipliers move along their
constraints, mean overshoot <= tolerance: lambda <- max(0, lambda + rate * (overshoot - tolerance)). They say what
overshooting must cost for a designer to keep within its budgets without a guard; the guard is there all the same when
designs are run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch

from bamas_lite.agentbalance.backbones import EMPTY
from bamas_lite.agentbalance.budgets import Budgets, InfeasibleBudgetsError, check_budgets
from bamas_lite.agentbalance.checks import check_profiles, check_tasks, random_seed
from bamas_lite.agentbalance.designer import Designer, Inputs
from bamas_lite.agentbalance.designs import Design, Query
from bamas_lite.agentbalance.difficulty import Difficulty, fit_difficulty
from bamas_lite.agentbalance.features import Quality
from bamas_lite.agentbalance.graded import run_graded
from bamas_lite.agentbalance.network import DesignNetwork
from bamas_lite.agentbalance.profiles import Profile
from bamas_lite.agentbalance.roles import Role, load_roles
from bamas_lite.agentbalance.settings import Settings
from bamas_lite.agentbalance.variants import OURS, Variant
from bamas_lite.encoder import encode
from bamas_lite.episode import check_backend, is_instant
from bamas_lite.inputs import shown
from bamas_lite.llm import ChatModel
from bamas_lite.provisioning import InfeasibleBudgetError
from bamas_lite.tasks import Task


@dataclass(frozen=True)
class TrainingResult:
    """A trained designer, and one row for each epoch: mean reward, correct, cost share, latency share, overshoots,
    multipliers, agents and edges, all over the designs that were drawn (of all pools alike)."""

    designer: Designer
    history: pd.DataFrame


def train_designer(tasks: Sequence[Task], profiles: Sequence[Profile], backend: ChatModel, *, variant: Variant = OURS,
                   settings: Settings | None = None, roles: Mapping[str, tuple[Role, ...]] | None = None,
                   difficulty: Difficulty | None = None) -> TrainingResult:
    """Train a designer on tasks with a backend that answers at once (simulated, or a recording).

    Args:
        tasks: the training tasks.
        profiles: the LLMs.
        variant: what is learned and what is fixed.
        roles: sets of roles; None: those of `load_roles()`.
        difficulty: d(x); None: `fit_difficulty` of the tasks, on which the LLMs must have been profiled.

    Raises:
        ValueError: an argument is wrong, the backend waits for its answers, or the budgets of the settings allow
            nothing.
        RuntimeError: a call failed; to count it as a wrong answer would teach the wrong thing.
        RunStopped: the backend ended the run, such as a recording that lacks a call.
    """
    settings = Settings() if settings is None else settings
    _check(tasks, profiles, backend, settings)
    difficulty = fit_difficulty(tasks, profiles, settings.seed) if difficulty is None else difficulty
    draw = np.random.default_rng(settings.seed)
    designer = replace(not_trained(profiles, difficulty, variant=variant, seed=settings.seed, roles=roles),
                       about={"settings": asdict(settings)})
    optimizer = torch.optim.Adam([{"params": list(parameters), "lr": rate} for parameters, rate in (
        (designer.network.pool_parameters(), settings.pool_learning_rate),
        (designer.network.other_parameters(), settings.learning_rate))])
    embeddings = encode([task.question for task in tasks])
    slower = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, settings.epochs)
    duals, history, tables = Duals(settings), [], []
    for epoch in range(1, settings.epochs + 1):
        entries = []
        for part in np.array_split(draw.permutation(len(tasks)), max(1, round(len(tasks) / settings.batch))):
            asked = [(tasks[i], Query(embeddings[i], tasks[i].domain, budgets)) for i in part
                     if (budgets := _draw_budgets(designer, tasks[i].domain, settings, draw))]
            batch = Batch.draw(designer, asked, settings.designs, draw)
            if not batch.designs:
                continue
            outcomes = np.array([_outcome(task, design, backend)
                                 for task, design in zip(batch.tasks, batch.designs, strict=True)])
            rewards = duals.reward(outcomes, settings.saving)
            optimizer.zero_grad()
            policy_loss(designer, batch, rewards, settings).backward()
            optimizer.step()
            duals.ascend(outcomes)
            tables.append((batch, rewards))
            entries.append([rewards.mean(), *outcomes.mean(0), *duals.overshoots(outcomes),
                            np.mean([len(d.graph.agents) for d in batch.designs]),
                            np.mean([len(d.graph.edges) for d in batch.designs])])
        if not entries:
            raise ValueError(f"cost_budgets = {shown(settings.cost_budgets)}, latency_budgets = "
                             f"{shown(settings.latency_budgets)}: no LLM (or team) of the profiles can answer within "
                             "those that were drawn; expected larger ones")
        slower.step()
        history.append(dict(zip(("reward", "correct", "cost_share", "latency_share", "cost_overshoot",
                                 "latency_overshoot", "agents", "edges"), np.mean(entries, axis=0), strict=True))
                       | {"epoch": epoch, "lambda_cost": duals.cost, "lambda_latency": duals.latency})
    if variant.backbones == "learned":
        _settle_pools(designer, tables[len(tables) // 2:], settings)
    for part in (designer.network, designer.difficulty):
        part.float().double()  # files hold float32: a designer is the same before and after saving
    designer.network.requires_grad_(False)
    return TrainingResult(designer, pd.DataFrame(history))


def not_trained(profiles: Sequence[Profile], difficulty: Difficulty, *, variant: Variant = OURS, seed: int = 0,
                roles: Mapping[str, tuple[Role, ...]] | None = None) -> Designer:
    """The designer from which training starts: first weights by chance, our starting values, d(x) as fitted.

    What it does is due to its rules - budgets, matching, measured quality - and to nothing that was learned by trying.

    Raises:
        ValueError: an argument is wrong.
    """
    generator = torch.Generator().manual_seed(random_seed(seed))
    return Designer(tuple(profiles), DesignNetwork(generator), difficulty, Quality.of(profiles), variant,
                    load_roles() if roles is None else roles)


@dataclass(frozen=True)
class Batch:
    """Designs drawn for Q queries, in groups of equal size, each of one query and one pool.

    Attributes:
        queries: Q.
        query_of, pool_of: query and pool (EMPTY: none is selected) of each group, (G,).
        designs, tasks: G x group size of them, group by group.
    """

    queries: list[Query]
    query_of: np.ndarray
    pool_of: np.ndarray
    designs: list[Design]
    tasks: list[Task]

    @classmethod
    def draw(cls, designer: Designer, asked: Sequence[tuple[Task, Query]], number: int, draw: np.random.Generator
             ) -> Batch:
        """`number` designs for each query and each pool that is feasible for it.

        A variant that selects no pool gets as many for each query as if there were three.
        """
        learned = designer.variant.backbones == "learned"
        size = number if learned else 3 * number
        groups = [(q, k) for q, (_, query) in enumerate(asked)
                  for k in (np.flatnonzero(designer.feasible(query)) if learned else (EMPTY,))]
        drawn = [(asked[q][0], replace(asked[q][1], pool=None if k == EMPTY else int(k)))
                 for q, k in groups for _ in range(size)]
        query_of, pool_of = np.array(groups, int).reshape(-1, 2).T
        return cls([query for _, query in asked], query_of, pool_of,
                   designer.designs([query for _, query in drawn], draw), [task for task, _ in drawn])


class Duals:
    """The multipliers of both budgets."""

    def __init__(self, settings: Settings) -> None:
        self.cost = self.latency = 1.0
        self._settings = settings

    def overshoots(self, outcomes: np.ndarray) -> tuple[float, float]:
        """Mean relu(C / B_c - 1) and relu(L / B_l - 1)."""
        return tuple(np.maximum(outcomes[:, 1:] - 1, 0).mean(0))

    def reward(self, outcomes: np.ndarray, saving: float) -> np.ndarray:
        """R of each outcome (correct, C / B_c, L / B_l)."""
        correct, cost, latency = outcomes.T
        over_cost, over_latency = np.maximum(cost - 1, 0), np.maximum(latency - 1, 0)
        return (correct * (1 + saving * np.clip(1 - cost, 0, 1)) - self.cost * over_cost
                - self.latency * over_latency)

    def ascend(self, outcomes: np.ndarray) -> None:
        """One step of dual ascent."""
        over_cost, over_latency = self.overshoots(outcomes)
        rate, tolerance = self._settings.dual_rate, self._settings.tolerance
        self.cost = max(0.0, self.cost + rate * (over_cost - tolerance))
        self.latency = max(0.0, self.latency + rate * (over_latency - tolerance))


def log_probabilities(designer: Designer, designs: Sequence[Design]) -> tuple[torch.Tensor, torch.Tensor]:
    """log pi of the matching, gates and edges of drawn designs, given their pools, and the entropy of these decisions:
    (n,) each, with gradients. What a variant fixes has no part in them."""
    n = len(designs)
    inputs = designer.inputs([design.query for design in designs])
    R, M = inputs.e.shape[1], inputs.z.shape[1]
    drawn = Drawn.of(designs, R, M)
    log_pi, entropy = torch.zeros((2, n), dtype=torch.float64)
    if designer.variant.backbones == "learned":
        scores = designer.network.match_scores(inputs.e, inputs.z, inputs.d)
        scores = torch.cat((scores, torch.zeros((n, R, 1), dtype=torch.float64)), 2)
        terms = _choice(scores.masked_fill(~drawn.options, -torch.inf), drawn.column)
        log_pi, entropy = terms[0].sum(1), terms[1].sum(1)
    h = designer.represent(inputs, drawn.llms, designer.network.context(inputs.x, inputs.d, inputs.b))
    if designer.variant.gate:
        terms = _coins(designer.network.gate_logits(h), drawn.gates, drawn.llms != EMPTY)
        log_pi, entropy = log_pi + terms[0].sum(1), entropy + terms[1].sum(1)
    alpha = designer.alpha if designer.variant.latency_term else 0.0
    terms = _coins(designer.network.edge_scores(h) - alpha * drawn.stretch, drawn.edges, drawn.asked)
    return log_pi + terms[0].sum((1, 2)), entropy + terms[1].sum((1, 2))


@dataclass(frozen=True)
class Drawn:
    """The decisions of n drawn designs as tensors, padded to R places: llms (n, R) and their column among the options
    (n, R, M + 1); gates (n, R); edges, asked and stretch (n, R, R)."""

    llms: torch.Tensor
    column: torch.Tensor
    options: torch.Tensor
    gates: torch.Tensor
    edges: torch.Tensor
    asked: torch.Tensor
    stretch: torch.Tensor

    @classmethod
    def of(cls, designs: Sequence[Design], R: int, M: int) -> Drawn:
        """Collect designs."""
        n = len(designs)
        llms, gates = np.full((n, R), EMPTY), np.zeros((n, R), bool)
        edges, asked, stretch = np.zeros((n, R, R), bool), np.zeros((n, R, R), bool), np.zeros((n, R, R))
        options, column = np.zeros((n, R, M + 1), bool), np.full((n, R), M)
        options[..., M] = True  # where nothing was drawn: one option is no choice
        for i, design in enumerate(designs):
            r = len(design.roles)
            llms[i, :r], gates[i, :r] = design.matching.llms, design.gates
            asked[i, :r, :r], stretch[i, :r, :r] = design.edges.asked, design.edges.stretch
            for pair in design.edges.chosen:
                edges[i][pair] = True
            if design.matching.options is not None:
                options[i, :r] = design.matching.options
                column[i, :r] = np.where(llms[i, :r] == EMPTY, M, llms[i, :r])
        return cls(*map(torch.tensor, (llms, column, options, gates, edges, asked, stretch)))


def policy_loss(designer: Designer, batch: Batch, rewards: np.ndarray, settings: Settings) -> torch.Tensor:
    """The loss whose gradient is the policy gradient; entropies are added with their weights.

    Every feasible pool was tried for every query, so pool selection has its exact expectation, -mean over queries of
    sum_k pi_k (mean reward of pool k): it does not depend on luck which pool is compared with which. All other
    decisions have -mean A log pi, with the mean reward of the rest of a design's group as baseline; all feasible pools
    count alike in this mean, also those that are seldom selected, so that each is matched well once it is.
    """
    groups = rewards.reshape(len(batch.query_of), -1)
    size, means = groups.shape[1], groups.mean(1)
    advantages = (groups - means[:, None]).ravel() * size / (size - 1)
    log_pi, entropy = log_probabilities(designer, batch.designs)
    loss = -(torch.tensor(advantages) * log_pi).mean() - settings.entropy * entropy.mean()
    if designer.variant.backbones != "learned":
        return loss
    return loss + pool_loss(designer, designer.inputs(batch.queries), pool_table(designer, batch, rewards), settings)


def pool_table(designer: Designer, batch: Batch, rewards: np.ndarray) -> np.ndarray:
    """Mean reward of each query's designs with each pool, (Q, K); NaN where a pool is not feasible."""
    table = np.full((len(batch.queries), len(designer.pools)), np.nan)
    table[batch.query_of, batch.pool_of] = rewards.reshape(len(batch.query_of), -1).mean(1)
    return table


def pool_loss(designer: Designer, inputs: Inputs, table: np.ndarray, settings: Settings) -> torch.Tensor:
    """-mean over queries of sum_k pi_k (mean reward of pool k), less the weighted entropy."""
    feasible = torch.tensor(~np.isnan(table))
    logits = designer.network.pool_logits(designer.network.context(inputs.x, inputs.d, inputs.b), inputs.pools)
    log_pool = logits.masked_fill(~feasible, -1e9).log_softmax(1)
    worth = torch.tensor(np.nan_to_num(table)) - settings.pool_entropy * log_pool
    return -(log_pool.exp() * worth).sum(1)[feasible.any(1)].mean()


def _settle_pools(designer: Designer, tables: Sequence[tuple[Batch, np.ndarray]], settings: Settings) -> None:
    """Fit pool selection once more, to the rewards of the second half of training all together.

    They are a full-factorial log of queries and pools, as BAMAS's is of topologies, made when the later stages were
    nearly what they are in the end.
    """
    inputs = designer.inputs([query for batch, _ in tables for query in batch.queries])
    table = np.concatenate([pool_table(designer, batch, rewards) for batch, rewards in tables])
    optimizer = torch.optim.AdamW(designer.network.pool_parameters(), lr=settings.learning_rate, weight_decay=0.1)
    for _ in range(settings.pool_steps):
        optimizer.zero_grad()
        pool_loss(designer, inputs, table, settings).backward()
        optimizer.step()


def _choice(logits: torch.Tensor, chosen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """log probability of what was chosen, and entropy, along the last dimension; logits of -inf are no options."""
    log_p = logits.log_softmax(-1).masked_fill(logits.isinf(), -1e9)  # finite, so that its gradient is 0 and not NaN
    entropy = -(log_p.exp() * log_p).sum(-1)
    return log_p.gather(-1, chosen[..., None])[..., 0], entropy


def _coins(logits: torch.Tensor, heads: torch.Tensor, thrown: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """log probability and entropy of independent coins; 0 where none was thrown."""
    yes, no = torch.nn.functional.logsigmoid(logits), torch.nn.functional.logsigmoid(-logits)
    entropy = -(yes.exp() * yes + no.exp() * no)
    return torch.where(thrown, torch.where(heads, yes, no), 0.0), torch.where(thrown, entropy, 0.0)


def _check(tasks: Any, profiles: Any, backend: Any, settings: Any) -> None:
    """Look at all arguments that Designer does not look at."""
    check_backend(backend)
    if not is_instant(backend):
        raise ValueError(f"backend {shown(backend.name)} waits for its answers, and training makes thousands of calls "
                         "one after another; expected one that answers at once: train with SimulatedLLM(), or with a "
                         "recording as CachedChat(None, path), then run the designer's graphs on any backend")
    check_tasks(tasks)
    check_profiles(profiles)
    if not isinstance(settings, Settings):
        raise ValueError(f"settings = {shown(settings)}: expected a Settings")


def _draw_budgets(designer: Designer, domain: str, settings: Settings, draw: np.random.Generator) -> Budgets | None:
    """Budgets of the grid which some LLM (or team) can meet; None if ten draws found none."""
    for _ in range(10):
        budgets = Budgets(draw.choice(settings.cost_budgets), draw.choice(settings.latency_budgets))
        try:
            check_budgets(designer.profiles, budgets, domain)
            designer.check_team(budgets, domain)
            return budgets
        except (InfeasibleBudgetsError, InfeasibleBudgetError):
            continue
    return None


def _outcome(task: Task, design: Design, backend: ChatModel) -> tuple[float, float, float]:
    """(correct, C / B_c, L / B_l) of a run without a guard."""
    episode = run_graded(task, design.graph, backend)
    budgets = design.query.budgets
    return float(bool(episode.correct)), episode.cost / budgets.cost, episode.latency_s / budgets.latency_s
