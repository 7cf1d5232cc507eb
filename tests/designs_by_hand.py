"""The formulas of a design written out for one query, without batches and padding, and the probability of a draw."""

import collections
import math

import numpy as np

from bamas_lite.agentbalance.backbones import EMPTY
from bamas_lite.agentbalance.features import budget_features, llm_features, role_features


def softmax_by_hand(scores, costs, allowed, budget, roles, most_copies):
    """Probability of every matching, role by role as the docstrings tell: the most critical first."""
    order = sorted(range(len(roles)), key=lambda r: (-roles[r].criticality, roles[r].kind != "answer", r))
    cheapest, ways = min(c for c, may in zip(costs, allowed, strict=True) if may), {(): 1.0}
    for place, r in enumerate(order):
        answers_later = any(roles[q].kind == "answer" for q in order[place + 1:])
        longer = collections.Counter()
        for way, p in ways.items():
            left = budget - sum(costs[m] for m in way if m != EMPTY)
            answered = any(roles[q].kind == "answer" and m != EMPTY for q, m in zip(order, way, strict=False))
            keep = cheapest if not answered and roles[r].kind != "answer" else 0   # for who has to answer
            weight = {m: math.exp(scores[r][m]) for m in range(len(costs))
                      if allowed[m] and costs[m] <= left - keep and way.count(m) < most_copies}
            if answered or answers_later:
                weight[EMPTY] = 1.0
            for m, w in weight.items():
                longer[(*way, m)] += p * w / sum(weight.values())
        ways = longer
    return {tuple(way[order.index(r)] for r in range(len(roles))): p for way, p in ways.items()}


def linear(layer, x):
    y = x @ layer.weight.detach().numpy().T
    return y if layer.bias is None else y + layer.bias.detach().numpy()


def relu(x):
    return np.maximum(x, 0)


def by_hand(some, query, llms=None):
    """Pool logits, matching scores, and (for `llms`) gate logits and edge scores of one query, without padding."""
    net, sheet = some.network, some._sheets[query.domain]
    roles = some.roles[{"arithmetic": "general"}.get(query.domain, query.domain)]
    x = np.asarray(query.x, float)
    d = 1 / (1 + math.exp(-linear(some.difficulty.output, relu(linear(some.difficulty.hidden, x))).item()))
    context = np.concatenate((relu(linear(net.question, x)), [d], budget_features(query.budgets)))
    z, e = llm_features(sheet.quality, sheet.costs, sheet.latencies, query.budgets), role_features(roles)
    fits = (sheet.costs <= query.budgets.cost) & (sheet.latencies <= query.budgets.latency_s)
    pools = [z[fits & members].mean(0) if (fits & members).any() else np.zeros(4) for members in some.members]
    pool_logits = [linear(net.pool, relu(linear(net.pool_hidden, np.concatenate((context, mean))))).item()
                   for mean in pools]
    scores = np.array([[linear(net.U, e[r]) @ linear(net.V, z[m]) / math.sqrt(32)
                        + net.beta.item() * d * roles[r].criticality * z[m, 1]
                        + (net.fill if roles[r].kind == "answer" else net.fill_others).item()
                        for m in range(len(z))] for r in range(len(roles))])
    if llms is None:
        return pool_logits, scores
    if not some.variant.reads_question:
        z, context = np.zeros_like(z), np.zeros_like(context)
    there = [r for r in range(len(roles)) if llms[r] != EMPTY]
    h = {r: relu(linear(net.agent, np.concatenate((e[r], z[llms[r]], context)))) for r in there}
    for own, others in zip(net.own, net.others, strict=True):
        mean = {r: np.sum([h[q] for q in there if q != r], axis=0) / max(len(there) - 1, 1) + np.zeros(32)
                for r in there}
        h = {r: relu(linear(own, h[r]) + linear(others, mean[r])) for r in there}
    gates = {r: linear(net.gate, h[r]).item() + net.open.item() for r in there}
    edges = {(i, j): linear(net.Q, h[i]) @ linear(net.K, h[j]) / math.sqrt(32) + net.join.item()
             for i in there for j in there}
    return pool_logits, scores, gates, edges


def probability(some, design):
    """Of a drawn design, given its pool: its matching by `softmax_by_hand`, its gates and edges as coins."""
    query, llms, sheet = design.query, design.matching.llms, some._sheets[design.query.domain]
    _, scores, gates, edges = by_hand(some, query, llms)
    fits = (sheet.costs <= query.budgets.cost) & (sheet.latencies <= query.budgets.latency_s)
    p = 1.0
    if design.pool is not None:
        p = softmax_by_hand(scores.tolist(), sheet.costs.tolist(), fits & some.members[design.pool],
                            query.budgets.cost, design.roles, some.most_copies)[tuple(llms.tolist())]
    coins = [(logit, design.gates[r]) for r, logit in gates.items()] if some.variant.gate else []
    alpha = some.alpha if some.variant.latency_term else 0
    coins += [(edges[i, j] - alpha * design.edges.stretch[i, j], (i, j) in design.edges.chosen)
              for i, j in np.argwhere(design.edges.asked).tolist()]
    return p * math.prod(1 / (1 + math.exp(-logit if heads else logit)) for logit, heads in coins)
