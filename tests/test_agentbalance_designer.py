"""Designs against enumeration, formulas written out by hand, and what each variant says it does."""

import collections
import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from bamas_lite.agentbalance.backbones import EMPTY, best_matching, draw_matching, draw_pool, one_llm, random_matching
from bamas_lite.agentbalance.budgets import Budgets, InfeasibleBudgetsError
from bamas_lite.agentbalance.designer import Query
from bamas_lite.agentbalance.features import Quality
from bamas_lite.agentbalance.graphs import HANDS
from bamas_lite.agentbalance.profiles import Profile, ProfileError
from bamas_lite.agentbalance.roles import Role, RoleError, load_roles
from bamas_lite.agentbalance.variants import ABLATIONS, BAMAS_EDGES, OURS, PLUGGED, STYLES, TOPOLOGY_FIRST
from bamas_lite.pool import LLM, Pool
from bamas_lite.provisioning import TOKEN_LIMITS, InfeasibleBudgetError
from bamas_lite.timed_provisioning import provision_in_time
from tests.designs_by_hand import by_hand, probability, softmax_by_hand
from tests.small_designers import (
    all_outcomes,
    answers_last,
    decisions,
    designer,
    profiles,
    questions,
    some_roles,
    twelve_roles,
)

VARIANTS = (OURS, *ABLATIONS, TOPOLOGY_FIRST, *STYLES, BAMAS_EDGES, *PLUGGED)
CELLS = [Budgets(c, s) for c in (60, 400, 2500, 9000) for s in (1.0, 3.0, 9.0, math.inf)]
ANSWER, OTHER, REVIEW = (Role(f"{kind} {i}", kind, "Do your part.", critical) for i, (kind, critical) in
                         enumerate((("answer", 0.5), ("answer", 0.9), ("review", 0.7))))


def queries(cells=CELLS, number=1):
    """Each question with each pair of budgets that any LLM can meet."""
    return [Query(x, domain, budgets) for _, x, domain in questions(number) for budgets in cells
            if any(p.cost(domain) <= budgets.cost and p.latency_s(domain) <= budgets.latency_s for p in profiles())]


def outline(design):
    """The graph by names: places of LLMs do not matter."""
    agents = [agent.name for agent in design.graph.agents]
    return ({agent.name: agent.llm.name for agent in design.graph.agents},
            {(agents[i], agents[j]) for i, j in design.graph.edges})


# --- the backbone stage ---

def test_pools_are_drawn_with_the_softmax_of_the_feasible_ones():
    logits, feasible = np.array([0.3, 2.0, -0.5, 1.0]), np.array([True, False, True, True])
    rng = np.random.default_rng(0)
    drawn = np.bincount([draw_pool(logits, feasible, rng) for _ in range(4000)], minlength=4)
    weights = np.exp(logits) * feasible
    assert drawn[1] == 0
    assert chisquare(drawn[feasible], (4000 * weights / weights.sum())[feasible]).pvalue > 1e-3
    assert draw_pool(logits, feasible, None) == 3
    # pools of which the same LLMs fit: equal but for the last bits, and the cheapest one of them is named
    assert draw_pool(np.array([5.0, 1.0, 1.0 + 2e-15, 1.0 - 1e-15]), np.array([False, True, True, True]), None) == 1


@pytest.mark.parametrize(("budget", "most_copies"), [(4.0, 2), (9.0, 1), (100.0, 2)])
def test_matchings_are_drawn_as_often_as_enumeration_says(budget, most_copies):
    roles, costs, allowed = (ANSWER, OTHER, REVIEW), np.array([1.0, 2.5, 4.0]), np.array([True, True, False])
    scores = np.random.default_rng(1).normal(0.3, 1, (3, 3))
    exact = softmax_by_hand(scores.tolist(), costs.tolist(), allowed, budget, roles, most_copies)
    assert sum(exact.values()) == pytest.approx(1) and len(exact) > 5
    arguments, n = (scores, costs, allowed, budget, roles, most_copies, np.random.default_rng(2)), 4000
    drawn = collections.Counter(tuple(draw_matching(*arguments).llms.tolist()) for _ in range(n))
    assert set(drawn) <= set(exact)
    common = [way for way, p in exact.items() if n * p >= 5]
    rest = [n - sum(drawn[way] for way in common), n * (1 - sum(exact[way] for way in common))]
    counts = [drawn[way] for way in common] + [rest[0]] * (rest[1] > 5)
    expected = np.array([n * exact[way] for way in common] + [rest[1]] * (rest[1] > 5))
    assert chisquare(counts, expected * sum(counts) / expected.sum()).pvalue > 1e-3


def matching_case(seed):
    rng = np.random.default_rng(seed)
    R, M = int(rng.integers(1, 5)), int(rng.integers(1, 5))
    kinds = ["answer", *rng.choice(["document", "answer", "review"], R - 1)]
    roles = tuple(Role(f"role {r}", str(kind), "Do your part.", float(rng.choice([0.3, 0.6, 0.9])))
                  for r, kind in enumerate(rng.permutation(kinds)))
    costs, allowed = rng.uniform(1, 10, M), rng.random(M) < 0.7
    allowed[rng.integers(M)] = True
    return (rng.normal(0.2, 1.5, (R, M)), costs, allowed, costs[allowed].min() * float(rng.choice([1, 1.5, 4, 20])),
            roles, int(rng.integers(1, 4)))


@pytest.mark.parametrize("seed", range(40))
def test_best_matching_equals_enumeration_and_no_draw_breaks_a_rule(seed):
    scores, costs, allowed, budget, roles, most_copies = arguments = matching_case(seed)

    def valid(llms):
        filled = [m for m in llms if m != EMPTY]
        return (all(allowed[m] for m in filled) and sum(costs[m] for m in filled) <= budget
                and all(filled.count(m) <= most_copies for m in filled)
                and any(m != EMPTY and role.kind == "answer" for m, role in zip(llms, roles, strict=True)))

    def worth(llms):
        return sum(scores[r, m] for r, m in enumerate(llms) if m != EMPTY)

    best = best_matching(*arguments).llms.tolist()
    assert valid(best)
    assert worth(best) == pytest.approx(max(worth(llms) for llms in itertools.product(
        range(EMPTY, len(costs)), repeat=len(roles)) if valid(llms)))
    rng = np.random.default_rng(seed)
    for _ in range(30):
        matching = draw_matching(*arguments, rng)
        assert valid(matching.llms.tolist())
        assert all(matching.options[r, m] for r, m in enumerate(matching.llms))   # EMPTY = -1 is the last column
        some = random_matching(costs, allowed, budget, roles, most_copies, rng).llms
        assert np.bincount(some[some != EMPTY]).max() <= most_copies
        assert allowed[some[some != EMPTY]].all() and costs[some[some != EMPTY]].sum() <= budget
        assert any(m != EMPTY and role.kind == "answer" for m, role in zip(some, roles, strict=True))
    same = one_llm(rng.random(len(costs)), costs, allowed, budget, roles).llms
    assert len({*same.tolist()} - {EMPTY}) == 1 and costs[same[same != EMPTY]].sum() <= budget * (1 + 1e-12)
    assert any(m != EMPTY and role.kind == "answer" for m, role in zip(same, roles, strict=True))


@pytest.mark.parametrize("seed", range(60))
def test_a_draw_is_offered_what_can_still_end_with_an_answer(seed):
    """Role by role against all ways to go on; whole costs, so that sums are exact; often one LLM, once."""
    rng = np.random.default_rng(seed)
    R, M, most = int(rng.integers(1, 5)), int(rng.integers(1, 4)), int(rng.integers(1, 3))
    kinds = rng.permutation(["answer", *rng.choice(["document", "review", "answer"], R - 1)])
    roles = tuple(Role(f"role {r}", str(kind), "Do your part.", 0.2 if kind == "answer" and seed % 3 else float(c))
                  for r, (kind, c) in enumerate(zip(kinds, rng.random(R), strict=True)))
    costs, allowed = rng.integers(1, 7, M).astype(float), rng.random(M) < 0.6
    allowed[rng.integers(M)] = True
    budget = costs[allowed].min() + float(rng.integers(0, 8))
    order = sorted(range(R), key=lambda r: (-roles[r].criticality, roles[r].kind != "answer", r))

    def valid(way):   # LLMs in the order of criticality
        filled = [m for m in way if m != EMPTY]
        return (all(allowed[m] for m in filled) and sum(costs[m] for m in filled) <= budget
                and all(filled.count(m) <= most for m in filled)
                and any(m != EMPTY and roles[r].kind == "answer" for r, m in zip(order, way, strict=True)))

    ways = [way for way in itertools.product(range(EMPTY, M), repeat=R) if valid(way)]
    for _ in range(20):
        drawn = draw_matching(rng.normal(size=(R, M)), costs, allowed, budget, roles, most, rng)
        way = tuple(drawn.llms[order].tolist())
        assert way in ways
        for place, r in enumerate(order):
            offered = {m if m < M else EMPTY for m in np.flatnonzero(drawn.options[r])}
            assert offered == {other[place] for other in ways if other[:place] == way[:place]}


@pytest.mark.parametrize("most_copies", [1, 2])
@pytest.mark.parametrize("variant", [OURS, *ABLATIONS, TOPOLOGY_FIRST, STYLES[2], BAMAS_EDGES], ids=lambda v: v.name)
def test_somebody_answers_whatever_is_more_critical(variant, most_copies):
    some = designer(variant, roles=answers_last(), most_copies=most_copies)
    tight = [Budgets(min(p.cost(domain) for p in profiles()), math.inf) for domain in ("arithmetic", "code")]
    asked = [query for query in queries([*CELLS, *tight]) if hires(some, query)]
    assert len(asked) > 10
    for draw in (None, np.random.default_rng(0), np.random.default_rng(1)):
        for design in some.designs(asked, draw):
            llms = dict(zip((role.name for role in design.roles), design.matching.llms, strict=True))
            assert any(agent.role.kind == "answer" for agent in design.graph.agents)
            assert all(some.profiles[llms[agent.name]].llm == agent.llm and llms[agent.name] != EMPTY
                       for agent in design.graph.agents)


def test_one_llm_is_the_best_of_which_three_agents_fit():
    quality, costs, roles = np.array([0.1, 0.5, 0.5, 0.9]), np.array([1.0, 5.0, 4.0, 20.0]), (ANSWER, OTHER, REVIEW) * 2
    everybody = np.ones(4, bool)

    def chosen(budget, allowed=everybody):
        return one_llm(quality, costs, allowed, budget, roles).llms

    assert chosen(60).tolist().count(3) == 3
    assert chosen(59.9).tolist() == [2] * 6   # of equals the cheaper
    assert chosen(12).tolist().count(2) == 3 and chosen(11.9).tolist() == [0] * 6
    assert chosen(2.5).tolist().count(0) == 2 and chosen(1).tolist().count(0) == 1
    assert chosen(30, np.array([False, False, False, True])).tolist().count(3) == 1


# --- one design, by hand ---

@pytest.mark.parametrize("sets", [load_roles(), twelve_roles()], ids=["six roles", "twelve roles"])
def test_designs_are_what_the_formulas_say(sets):
    """In one batch, so that padding and neighbors could do harm."""
    some = designer(roles=sets | {"code": sets["code"][:4]})
    asked = queries(CELLS[4::2])
    seen = set()
    for query, design in zip(asked, some.designs(asked), strict=True):
        llms, sheet = design.matching.llms, some._sheets[query.domain]
        pool_logits, scores, gates, edges = by_hand(some, query, llms)
        feasible = [any(p in pool.profiles and p.cost(query.domain) <= query.budgets.cost
                        and p.latency_s(query.domain) <= query.budgets.latency_s for p in some.profiles)
                    for pool in some.pools]
        assert design.feasible.tolist() == feasible
        assert design.pool == max(np.flatnonzero(feasible), key=lambda k: pool_logits[k])
        np.testing.assert_allclose(design.scores, scores, atol=1e-9)
        assert all(some.profiles[m] in some.pools[design.pool].profiles for m in llms if m != EMPTY)
        assert design.gate_logits[list(gates)] == pytest.approx(list(gates.values()))
        assert {r for r, logit in gates.items() if logit > 0} == set(np.flatnonzero(design.gates))
        kinds = [role.kind for role in design.roles]
        stay = {r for r, logit in gates.items() if logit > 0}
        if not any(kinds[r] == "answer" for r in stay):
            stay.add(max((r for r in gates if kinds[r] == "answer"), key=gates.get))
        for i, j in itertools.product(range(len(kinds)), repeat=2):
            if design.edges.asked[i, j]:
                assert {i, j} <= stay and (kinds[i], kinds[j]) in HANDS
                logit = edges[i, j] - some.alpha * design.edges.stretch[i, j]
                assert (logit > 0) == ((i, j) in design.edges.chosen)
        assert set(design.edges.chosen) <= set(zip(*np.nonzero(design.edges.asked), strict=True))
        names = {design.roles[r].name: r for r in stay}
        for agent in design.graph.agents:
            r = names[agent.name]
            m = llms[r]
            assert (agent.llm, agent.cost, agent.message_cost, agent.latency_s) == (
                some.profiles[m].llm, sheet.costs[m], sheet.message_costs[m], sheet.latencies[m])
        left_out = names.keys() - {agent.name for agent in design.graph.agents}
        assert all(kinds[names[name]] != "answer" for name in left_out)   # nobody would have heard them
        chosen = {(design.roles[i].name, design.roles[j].name) for i, j in design.edges.chosen}
        assert outline(design)[1] == {edge for edge in chosen if not left_out.intersection(edge)}
        seen |= {("pool", design.pool), ("gate", len(stay) < len(gates)), ("edges", bool(design.edges.chosen))}
    assert seen >= {("gate", True), ("gate", False), ("edges", True), ("edges", False), ("pool", 0)}
    assert len({value for what, value in seen if what == "pool"}) > 1


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_plans_keep_within_both_budgets_and_batches_do_not_matter(variant):
    some = designer(variant)
    asked = [query for query in queries() if hires(some, query)]
    together = some.designs(asked)
    assert len(asked) >= 20
    for query, design in zip(asked, together, strict=True):
        assert design.graph.cost <= query.budgets.cost * (1 + 1e-12)
        assert design.graph.latency_s <= query.budgets.latency_s * (1 + 1e-12)
        alone = some.design(query.x, query.domain, query.budgets)
        assert decisions(alone) == decisions(design) and outline(alone) == outline(design)
    for draw in (np.random.default_rng(seed) for seed in range(2)):
        for query, design in zip(asked, some.designs(asked, draw), strict=True):
            assert design.graph.cost <= query.budgets.cost * (1 + 1e-12)
            assert design.graph.latency_s <= query.budgets.latency_s * (1 + 1e-12)
    assert some.designs([]) == []


def hires(some, query):
    try:
        some.check_team(query.budgets, query.domain)
    except InfeasibleBudgetError:
        return False
    return True


def test_text_or_vector_greedy_or_drawn():
    some, (text, x, domain) = designer(), questions()[0]
    budgets = Budgets(2500, 9)
    one = some.design(text, domain, budgets)
    assert outline(one) == outline(some.design(x, domain, budgets)) == outline(some.design(x.tolist(), domain, budgets))
    assert decisions(one) == decisions(some.design(text, domain, budgets, "greedy", seed=5))
    drawn = [decisions(some.design(x, domain, budgets, "sample", seed)) for seed in range(12)]
    assert len(set(drawn)) > 4
    assert drawn == [decisions(some.design(x, domain, budgets, "sample", seed)) for seed in range(12)]


def test_drawn_designs_come_as_often_as_their_decisions_say():
    """Roles, gates and edges together: every design that can be drawn, with its probability written out."""
    some = designer(replace(OURS, pools=1), 2, some_roles("answer", "review"))
    query = Query(questions()[0][1], "arithmetic", Budgets(300, 20))
    exact = collections.Counter()
    for design in all_outcomes(lambda script: some.designs([query], script)[0]):
        exact[decisions(design)] = probability(some, design)
    assert sum(exact.values()) == pytest.approx(1) and len(exact) > 10
    n = 3000
    drawn = collections.Counter(map(decisions, some.designs([query] * n, np.random.default_rng(0))))
    assert set(drawn) <= set(exact)
    common = [way for way, p in exact.items() if n * p >= 5]
    expected = np.array([n * exact[way] for way in common])
    counts = np.array([drawn[way] for way in common])
    assert chisquare(counts, expected * counts.sum() / expected.sum()).pvalue > 1e-3


# --- other LLMs ---

def test_llms_that_were_never_seen_and_their_order():
    known = designer(number=5)
    wider = known.with_profiles(profiles())
    assert known.profiles == profiles(5) and wider.quality == known.quality
    asked = queries()
    used = {llm for design in wider.designs(asked) for llm in outline(design)[0].values()}
    assert used & {p.llm.name for p in profiles()[5:]}
    rng = np.random.default_rng(0)
    for _ in range(3):
        mixed = wider.with_profiles([profiles()[m] for m in rng.permutation(len(profiles()))])
        for one, other in zip(wider.designs(asked), mixed.designs(asked), strict=True):
            assert outline(one) == outline(other) and one.pool == other.pool


def test_names_do_not_matter():
    some, asked = designer(), queries()
    renamed = some.with_profiles([replace(p, llm=p.llm.model_copy(update={"name": f"No. {i}"}))
                                  for i, p in enumerate(some.profiles)])
    for one, other in zip(some.designs(asked), renamed.designs(asked), strict=True):
        assert decisions(one) == decisions(other)


def test_an_llm_off_the_frontier_is_hired_where_no_other_can_answer():
    """Slow on average, but the only one that is fast on short answers."""
    slow, fast = (LLM(name=name, tier=1, price_in=price, price_out=price, max_tokens=1024, first_token_s=first,
                      tokens_per_s=speed) for name, price, first, speed in (("slow", 2, 0.1, 10), ("fast", 1, 3, 1000)))
    both = [Profile(llm, {"arithmetic": quality, "code": quality}, {"arithmetic": 100, "code": 100},
                    {"arithmetic": 10, "code": 900}, {"arithmetic": 9, "code": 9}, 1.0, 1.0, 9, "by hand")
            for llm, quality in ((slow, 0.5), (fast, 0.6))]
    some = designer(replace(OURS, pools=1)).with_profiles(both)
    assert [p.llm.name for p in some.pools[0].profiles] == ["fast"]
    x = questions()[0][1]
    for mode in ("greedy", "sample"):
        design = some.design(x, "arithmetic", Budgets(5000, 2), mode)
        assert set(outline(design)[0].values()) == {"slow"} and design.pool is None and not design.feasible.any()
        assert set(outline(some.design(x, "arithmetic", Budgets(5000, 9), mode))[0].values()) == {"fast"}


# --- variants ---

def test_no_gate_keeps_everybody():
    gated, everybody = designer(), designer(replace(OURS, gate=False))
    asked = queries()
    assert any((d.gates != (d.matching.llms != EMPTY)).any() for d in gated.designs(asked))
    for design in (*everybody.designs(asked), *everybody.designs(asked, np.random.default_rng(0))):
        assert design.gates.tolist() == (design.matching.llms != EMPTY).tolist()


def test_the_latency_term():
    """Without it an edge is decided by its score alone; with a heavy one no edge makes a graph slower."""
    asked = queries()
    blind, heavy = designer(replace(OURS, latency_term=False)), designer(alpha=1e9)
    slower = 0
    for query, design in zip(asked, blind.designs(asked), strict=True):
        edges = by_hand(blind, query, design.matching.llms)[3]
        assert all((edges[i, j] > 0) == ((i, j) in design.edges.chosen)
                   for i, j in np.argwhere(design.edges.asked).tolist())
        slower += any(design.edges.stretch[pair] > 0 for pair in design.edges.chosen)
    assert slower
    for query, design in zip(asked, heavy.designs(asked), strict=True):
        if query.budgets.latency_s < math.inf:
            assert all(design.edges.stretch[pair] == 0 for pair in design.edges.chosen)


def test_shares_of_agents_and_of_pairs_stay():
    part = designer(replace(OURS, keep_agents=0.5, keep_edges=0.5, latency_term=False, pools=1))
    full = 0
    for query, design in zip(queries(), part.designs(queries()), strict=True):
        _, _, gates, scores = by_hand(part, query, design.matching.llms)
        best = sorted(gates, key=gates.get, reverse=True)[:math.ceil(len(gates) / 2)]
        assert set(np.flatnonzero(design.gates)) == set(best)
        kinds = [role.kind for role in design.roles]
        if not any(kinds[r] == "answer" for r in best):
            best.append(max((r for r in gates if kinds[r] == "answer"), key=gates.get))
        pairs = {frozenset((i, j)) for i in best for j in best if i != j and (kinds[i], kinds[j]) in HANDS}
        asked = sorted(zip(*np.nonzero(design.edges.asked), strict=True), key=lambda pair: -scores[pair])
        assert list(design.edges.chosen) == asked[:round(len(pairs) / 2)]
        full += len(design.edges.chosen) == round(len(pairs) / 2) > 0
    assert full


@pytest.mark.parametrize("variant", [v for v in VARIANTS if not v.reads_question], ids=lambda variant: variant.name)
def test_one_graph_for_all_questions(variant):
    """The same roles in all domains, and budgets under which everybody can be asked and handed anything."""
    roles = some_roles("document", "answer", "answer", "review")
    for some in (designer(variant, roles=roles, most_copies=4),
                 designer(replace(variant, keep_agents=None, keep_edges=None), roles=roles, most_copies=4)):
        asked = queries([Budgets(1e5, 1e3), Budgets(3e5, math.inf)], number=3)
        designs = [d for d in some.designs(asked) if (d.matching.llms != EMPTY).all()]
        assert len({d.query.domain for d in designs}) == 3
        assert len({(*d.gates.tolist(), d.edges.chosen) for d in designs}) == 1
        for design in designs:
            np.testing.assert_allclose(design.gate_logits, designs[0].gate_logits, atol=1e-12)
    readers = designer(replace(variant, reads_question=True), roles=roles).designs(asked)
    assert len({tuple(d.gate_logits.round(6)) for d in readers}) > 3


@pytest.mark.parametrize("variant", [TOPOLOGY_FIRST, *STYLES], ids=lambda variant: variant.name)
def test_one_llm_for_all_agents(variant):
    some = designer(variant)
    for query, design in zip(queries(), some.designs(queries()), strict=True):
        frontier = {p.llm.name for pool in some.pools for p in pool.profiles}
        fits = [p for p in some.profiles if p.llm.name in frontier and p.cost(query.domain) <= query.budgets.cost
                and p.latency_s(query.domain) <= query.budgets.latency_s]
        size = max(n for n in (1, 2, 3) if any(n * p.cost(query.domain) <= query.budgets.cost for p in fits))
        best = max((p for p in fits if size * p.cost(query.domain) <= query.budgets.cost),
                   key=lambda p: (p.quality[query.domain], -p.cost(query.domain)))
        assert set(outline(design)[0].values()) == {best.llm.name}
        assert design.pool is None


def test_bamas_team_goes_to_the_most_critical_roles():
    some = designer(BAMAS_EDGES)
    pool, sizes = Pool(name="all", llms=[p.llm for p in profiles()]), set()
    for query in queries():
        longest = TOKEN_LIMITS[query.domain]["executor"]
        try:
            team = provision_in_time(pool, query.budgets.cost, query.budgets.latency_s, "star", t_out=longest)
        except InfeasibleBudgetError:
            with pytest.raises(InfeasibleBudgetError):
                some.check_team(query.budgets, query.domain)
            with pytest.raises(InfeasibleBudgetError):
                some.designs([query])
            continue
        design = some.designs([query])[0]
        names = [None if m == EMPTY else some.profiles[m].llm.name for m in design.matching.llms]
        order = sorted(range(6), key=lambda r: (-design.roles[r].criticality, design.roles[r].kind != "answer", r))
        hired = [slot.llm.name for slot in team.slots][:6]
        assert [names[r] for r in order] == hired + [None] * (6 - len(hired))
        sizes.add(len(hired))
    assert len(sizes) > 1


def test_random_llms_are_the_same_for_the_same_query_and_independent_of_the_network():
    variant = next(v for v in ABLATIONS if v.backbones == "random")
    one, other = designer(variant), designer(variant, seed=6)
    asked = queries(CELLS[8:], number=2)
    first = [design.matching.llms.tolist() for design in one.designs(asked)]
    assert first == [design.matching.llms.tolist() for design in other.designs(asked)]
    assert len(set(map(tuple, first))) > len(asked) / 3
    frontier = {p for pool in one.pools for p in map(profiles().index, pool.profiles)}
    assert {m for llms in first for m in llms} - {EMPTY} == frontier


def test_pools_of_the_variants():
    assert [len(designer(replace(OURS, pools=k)).pools) for k in (1, 2, 3)] == [1, 2, 3]
    some = designer()
    for k in range(3):
        query = Query(questions()[0][1], "arithmetic", Budgets(9000, 30), pool=k)
        design, = some.designs([query])
        assert design.pool == k
        assert {p.llm.name for p in some.pools[k].profiles} >= set(outline(design)[0].values())


# --- wrong input ---

@pytest.mark.parametrize(("budgets", "binding"), [(Budgets(1, 30), ("cost",)), (Budgets(1e5, 0.01), ("latency",)),
                                                  (Budgets(1, 0.01), ("cost", "latency"))])
@pytest.mark.parametrize("variant", [OURS, TOPOLOGY_FIRST], ids=lambda variant: variant.name)
def test_infeasible_budgets(variant, budgets, binding):
    some, (text, x, domain) = designer(variant), questions()[0]
    for mode in ("greedy", "sample"):
        with pytest.raises(InfeasibleBudgetsError) as error:
            some.design(text, domain, budgets, mode)
        assert error.value.binding == binding
    enough = Budgets(error.value.least_cost or budgets.cost, 9e9 if error.value.least_latency_s else budgets.latency_s)
    assert len(some.design(x, domain, enough).graph.agents) == 1
    if error.value.least_latency_s and not error.value.least_cost:
        assert some.design(x, domain, Budgets(budgets.cost, error.value.least_latency_s)).graph.agents


@pytest.mark.parametrize(("wrong", "message"), [
    ({"domain": "poetry"}, r"domain = 'poetry': expected one of arithmetic, mathematics, code"),
    ({"domain": None}, r"domain = None: expected one of"),
    ({"domain": ["code"]}, r"domain = \['code'\]: expected one of"),
    ({"question": 3}, r"question = 3: expected a text, or its embedding of 384 finite numbers"),
    ({"question": None}, r"question = None: expected a text"),
    ({"question": ["How many?"]}, r"question = \['How many\?'\]: expected a text"),
    ({"question": np.zeros(5)}, r"question is an array of shape \(5,\): expected a text, or its embedding of 384"),
    ({"question": np.zeros((1, 384))}, r"question is an array of shape \(1, 384\): expected"),
    ({"question": np.full(384, np.nan)}, r"question .*: expected a text, or its embedding of 384 finite numbers"),
    ({"question": "half \ud800"}, r"half a character"),
    ({"mode": "fast"}, r"mode = 'fast': expected 'greedy' or 'sample'"),
    ({"mode": None}, r"mode = None: expected 'greedy' or 'sample'"),
    ({"seed": -1, "mode": "sample"}, r"seed = -1: expected a whole number of at least 0"),
    ({"budgets": 1000}, r"budgets = 1000: expected Budgets\(cost, latency_s\)"),
    ({"budgets": (1000, 10)}, r"budgets = \(1000, 10\): expected Budgets"),
    ({"budgets": None}, r"budgets = None: expected Budgets"),
])
def test_wrong_arguments_are_one_clear_message(wrong, message):
    text, _, domain = questions()[0]
    with pytest.raises(ValueError, match=message) as error:
        designer().design(**{"question": text, "domain": domain, "budgets": Budgets(2500, 9)} | wrong)
    assert error.value.__cause__ is None and len(str(error.value)) < 250 and "\n" not in str(error.value)


@pytest.mark.parametrize("wrong", [[], [1], None, "GPT-4.1"])
def test_profiles_that_are_none(wrong):
    with pytest.raises(ProfileError, match="profiles = .*: expected a list of at least one Profile"):
        designer().with_profiles(wrong)


PART = {"general": load_roles()["general"]}


@pytest.mark.parametrize(("wrong", "error", "message"), [
    ({"profiles": []}, ProfileError, r"profiles = \[\]: expected a list of at least one Profile"),
    ({"network": None}, ValueError, "network = None: expected a DesignNetwork"),
    ({"difficulty": None}, ValueError, "difficulty = None: expected a Difficulty"),
    ({"difficulty": 0.5}, ValueError, "difficulty = 0.5: expected a Difficulty"),
    ({"quality": {}}, ValueError, r"quality = \{\}: expected a Quality"),
    ({"quality": Quality({"code": 0.5}, {"code": 0.1})}, ProfileError, "the scale of quality is one of code only"),
    ({"variant": "no gate"}, ValueError, "variant = 'no gate': expected a Variant"),
    ({"alpha": -1}, ValueError, "alpha = -1: expected a number from 0"),
    ({"alpha": math.nan}, ValueError, "alpha = nan: expected a number from 0"),
    ({"most_copies": 0}, ValueError, "most_copies = 0: expected a whole number of at least 1"),
    ({"most_copies": 1.5}, ValueError, "most_copies = 1.5: expected a whole number"),
    ({"roles": None}, RoleError, "roles = None: expected what load_roles returns"),
    ({"roles": {}}, RoleError, r"roles = \{\}: expected what load_roles returns"),
    ({"roles": list(PART["general"])}, RoleError, "roles = .*: expected what load_roles returns"),
    ({"roles": {"arithmetic": PART["general"]}}, RoleError, "set 'arithmetic': unknown; known are general"),
    ({"roles": {"general": ()}}, RoleError, "set general: 0 roles: expected a list of 1 to 12 roles"),
    ({"roles": {"general": PART["general"] * 3}}, RoleError, "set general: 18 roles: expected"),
    ({"roles": {"general": PART["general"][1:] * 2}}, RoleError, "name = 'step-by-step solver': is used twice"),
    ({"roles": {"general": PART["general"][:1]}}, RoleError, "set general: expected at least one role of kind"),
    ({"roles": {"general": ("solver",)}}, RoleError, r"roles\['general'\] = \('solver',\): expected a tuple of Role"),
    ({"roles": {"general": "solver"}}, RoleError, r"roles\['general'\] = 'solver': expected a tuple of Role"),
    ({"roles": {"general": PART["general"][1]}}, RoleError, r"roles\['general'\] = Role\(.*: expected a tuple")])
def test_fields_of_a_designer_that_do_not_fit(wrong, error, message):
    with pytest.raises(error, match=message) as caught:
        replace(designer(), **wrong)
    assert caught.value.__cause__ is None and len(str(caught.value)) < 250 and "\n" not in str(caught.value)


def test_a_domain_without_roles_or_profiles():
    some, x = replace(designer(), roles={name: list(roles) for name, roles in PART.items()}), questions()[0][1]
    assert some.roles == PART and some.design(x, "arithmetic", Budgets(2500, 9)).graph.agents
    with pytest.raises(RoleError, match="roles: has no set 'code', which code needs; it has general"):
        some.design(x, "code", Budgets(2500, 9))
    part = [replace(p, **{name: {"code": getattr(p, name)["code"]} for name in ("quality", "t_in", "t_out", "handed")})
            for p in profiles()]
    assert designer().with_profiles(part).design(x, "code", Budgets(2500, 9)).graph.agents
    with pytest.raises(ProfileError, match="domain = 'arithmetic': Llama 3.1 8B was profiled on code"):
        designer().with_profiles(part).design(x, "arithmetic", Budgets(2500, 9))


X = questions()[0][1]


@pytest.mark.parametrize(("wrong", "message"), [
    ({"x": None}, "x = None: expected an embedding of 384 finite numbers"),
    ({"x": "How many?"}, "x = 'How many[?]': expected an embedding"),
    ({"x": ["1"] * 384}, r"x = \['1', .*: expected an embedding"),
    ({"x": X[:5]}, r"x is an array of shape \(5,\): expected an embedding of 384"),
    ({"x": X[None]}, r"x is an array of shape \(1, 384\): expected an embedding"),
    ({"x": np.where(np.arange(384) == 7, np.nan, X)}, r"x is an array of shape \(384,\): expected .* finite numbers"),
    ({"x": np.where(np.arange(384) == 7, np.inf, X)}, r"x is an array of shape \(384,\): expected .* finite numbers"),
    ({"x": X + 1j}, "x = .*: expected an embedding"),
    ({"domain": "poetry"}, "domain = 'poetry': expected one of arithmetic, mathematics, code"),
    ({"budgets": (600, 10)}, r"budgets = \(600, 10\): expected Budgets"),
    ({"pool": -1}, "pool = -1: expected a whole number of at least 0"),
    ({"pool": "economy"}, "pool = 'economy': expected a whole number")])
def test_queries_that_are_none(wrong, message):
    with pytest.raises(ValueError, match=message) as error:
        Query(**{"x": X, "domain": "arithmetic", "budgets": Budgets(600, 10)} | wrong)
    assert error.value.__cause__ is None and len(str(error.value)) < 250 and "\n" not in str(error.value)


def test_lists_of_queries_and_pools_that_are_none():
    some, query = designer(replace(OURS, stacked=False)), Query(X, "arithmetic", Budgets(600, 10))
    assert some.designs([]) == some.designs(()) == []
    for wrong in (query, None, 3, [query, X], [None], "Query"):
        with pytest.raises(ValueError, match=r"queries holds .*: expected a list of Query\(x, domain, budgets\)"):
            some.designs(wrong)
    with pytest.raises(ValueError, match="pool = 3: expected a whole number from 0 to 2"):
        some.designs([query, replace(query, pool=3)])
    dear = max(range(3), key=lambda k: min(p.cost("arithmetic") for p in some.pools[k].profiles))
    least = min(p.cost("arithmetic") for p in some.pools[dear].profiles)
    few = replace(query, budgets=Budgets(0.9 * least))
    assert some.designs([few])[0].pool != dear
    with pytest.raises(InfeasibleBudgetsError) as error:
        some.designs([replace(few, pool=dear)])
    assert error.value.least_cost == least
    assert some.designs([replace(few, pool=dear, budgets=Budgets(least))])[0].pool == dear


@pytest.mark.parametrize(("wrong", "message"), [
    ({"backbones": "ours"}, "backbones = 'ours': expected one of learned, random, one LLM, BAMAS"),
    ({"backbones": None}, "backbones = None: expected one of"), ({"pools": 0}, "pools = 0: expected a whole number"),
    ({"pools": 2.0}, "pools = 2.0: expected a whole number"), ({"gate": "no"}, "gate = 'no': expected True or False"),
    ({"latency_term": 1}, "latency_term = 1: expected True or False"),
    ({"reads_question": None}, "reads_question = None: expected True or False"),
    ({"keep_agents": 1.5}, "keep_agents = 1.5: expected a number from 0 to 1"),
    ({"keep_edges": -0.1}, "keep_edges = -0.1: expected a number from 0 to 1"),
    ({"keep_edges": math.nan}, "keep_edges = nan: expected a number from 0 to 1")])
def test_variants_that_are_none(wrong, message):
    with pytest.raises(ValueError, match=message):
        replace(OURS, **wrong)


@pytest.mark.parametrize(("number", "pools", "made"), [(1, 3, 1), (2, 3, 2), (2, 1, 1), (9, 20, 8), (9, 3, 3)])
def test_no_more_pools_than_llms_on_the_frontier(number, pools, made):
    some = designer(replace(OURS, pools=pools), number)
    assert len(some.pools) == made
    for draw in (None, np.random.default_rng(0)):
        for design in some.designs(queries(CELLS[8:]), draw):
            assert {agent.llm for agent in design.graph.agents} <= {p.llm for p in profiles(number)}
            assert design.feasible.shape == (made,) and isinstance(design.difficulty, float)
    assert len(some.with_profiles(profiles()[:1]).pools) == 1 and torch.is_grad_enabled()
