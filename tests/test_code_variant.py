"""Provisioning of the public code against a look at every team, written anew here from the rules in words."""

import itertools
import math
import random
from fractions import Fraction

import numpy as np
import pytest

from bamas_lite import LLM, InfeasibleBudgetError, Pool, load_pool, provision
from bamas_lite.casting import TOPOLOGIES, cast_roles
from bamas_lite.pool import exact
from bamas_lite.provisioning import ROLE_LIMITS, RoleLimits
from bamas_lite.reproduction.code_variant import CODE_PERFORMANCE, code_weights, teams_as_code

PAPER = load_pool("paper")
COPIES = 5
FREE = RoleLimits(dict(ROLE_LIMITS["feedback"]))
TOTAL = RoleLimits(dict(ROLE_LIMITS["feedback"]), ("critics <= executors",))
STRONG = RoleLimits(dict(ROLE_LIMITS["feedback"]), ("strong critics <= strong executors",))
LIMITS = {**ROLE_LIMITS, "feedback, free": FREE, "feedback, critics": TOTAL, "feedback, strong": STRONG}


def every_team(topology, n_tiers):
    """All teams that a topology's limits allow, as (n, roles, tiers): the rules as facts of the public code state them.

    Roles: planner, executor, critic.
    """
    kind = topology.split(",")[0]
    most = {"linear": (0, 5, 0), "star": (0, 5, 0), "feedback": (0, 3, 2), "planner_driven": (1, 99, 99)}[kind]
    least = {"linear": (0, 1, 0), "star": (0, 1, 0), "feedback": (0, 1, 1), "planner_driven": (1, 1, 0)}[kind]
    per_role = []
    for role in range(3):
        splits = itertools.product(range(min(COPIES, most[role]) + 1), repeat=n_tiers)
        per_role.append([s for s in splits if least[role] <= sum(s) <= most[role]])
    teams = np.array([team for team in itertools.product(*per_role)], dtype=np.int64)
    executors, critics = teams[:, 1], teams[:, 2]
    keep = np.ones(len(teams), bool)
    if topology in ("feedback", "feedback, critics"):
        keep &= critics.sum(axis=1) <= executors.sum(axis=1)
    if topology in ("feedback", "feedback, strong"):
        keep &= critics[:, 0] <= executors[:, 0]
    return teams[keep]


TEAMS = {(topology, n): every_team(topology, n) for topology in LIMITS for n in (1, 2, 3)}


def random_pool(rng, step):
    """One to three tiers of one to three LLMs: odd decimals, equal costs, dear weak LLMs, names in any order."""
    llms = []
    for tier in range(1, rng.randint(1, 3) + 1):
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            price = step * rng.randint(1, rng.choice([4, 15, 60]))
            llms.append(LLM(name=f"{rng.choice('xyz')}{len(llms)}", tier=tier, price_in=float(price),
                            price_out=float(step * rng.randint(0, 3)), max_tokens=rng.choice([1, 3, 384])))
    rng.shuffle(llms)
    return Pool(name="random", llms=llms)


def counts_of(team, n_tiers):
    counts = np.zeros((3, n_tiers), np.int64)
    for slot in team.slots:
        counts[("planner", "executor", "critic").index(slot.role), slot.llm.tier - 1] += 1
    return counts


def costs_of(pool, t_in, how):
    """Cost of an agent of each tier: of its cheapest LLM, or the average."""
    tiers = [[exact(m.price_in) * t_in + exact(m.price_out) * m.max_tokens for m in pool.llms if m.tier == t]
             for t in range(1, max(m.tier for m in pool.llms) + 1)]
    return [min(tier) if how == "cheapest" else sum(tier) / Fraction(len(tier)) for tier in tiers]


def units(costs, budget):
    """Costs and budget as whole numbers of a common unit."""
    scale = math.lcm(*(c.denominator for c in costs))
    return [int(c * scale) for c in costs], math.floor(budget * scale), scale


def cases(seed, n):
    rng = random.Random(seed)
    for _ in range(n):
        step = Fraction(rng.choice(["0.1", "0.01", "0.37", "1", "2.5"]))
        pool = random_pool(rng, step)
        t_in = rng.choice([1, 2, 500])
        top = max(costs_of(pool, t_in, "average"))
        budget = Fraction(rng.randint(1, 900), 100) * top
        if rng.random() < 0.3:  # a whole number of agents exactly
            budget = rng.randint(1, 6) * rng.choice(costs_of(pool, t_in, rng.choice(["cheapest", "average"])))
        budget = Fraction(math.ceil(budget * 10000), 10000)
        yield rng, pool, t_in, budget


# ------------------------------------------------------------------------------------------- the paper's objective

@pytest.mark.parametrize("topology", LIMITS)
def test_lexicographic_teams_under_role_limits_are_those_of_enumeration(topology):
    seen = set()
    for rng, pool, t_in, budget in cases(f"lexicographic {topology}", 60 if topology == "planner_driven" else 120):
        costs = costs_of(pool, t_in, "cheapest")
        n_tiers = len(costs)
        every = TEAMS[topology, n_tiers]
        unit, b, scale = units(costs, budget)
        price = (every.sum(axis=1) * np.array(unit)).sum(axis=1)
        options = {"t_in": t_in, "roles": LIMITS[topology], "method": rng.choice(["auto", "lexicographic"])}
        if price.min() > b:
            with pytest.raises(InfeasibleBudgetError) as caught:
                provision(pool, budget, **options)
            least = Fraction(int(price.min()), scale)
            assert exact(caught.value.least_budget) >= least > exact(math.nextafter(caught.value.least_budget, 0))
            assert provision(pool, caught.value.least_budget, **options).exact_cost == least
        else:
            vectors = every[price <= b].sum(axis=1)
            best = max(map(tuple, vectors.tolist()))
            team = provision(pool, budget, **options)
            assert team.tier_counts == best
            counts = counts_of(team, n_tiers)
            assert (every == counts).all(axis=(1, 2)).any()  # it keeps every rule
            assert team.exact_cost == sum(n * c for n, c in zip(best, costs, strict=True)) <= budget
        seen.add((price.min() > b, n_tiers, len(pool) > n_tiers))
    assert len(seen) >= 8  # feasible and not, 1 to 3 tiers, one and several LLMs a tier


# ------------------------------------------------------------------------------------------------ the code's objective

def weights_in_words(costs, budget):
    """W_L = 1, W_i = 1 + sum over weaker j of W_j * floor(B / c_j)."""
    weights = {}
    for i in reversed(range(len(costs))):
        weights[i] = 1 + sum(weights[j] * int(budget / costs[j]) for j in range(i + 1, len(costs)))
    return [weights[i] for i in range(len(costs))]


def factor_of_role(topology, role, tier):
    if topology == "planner_driven":
        return 1.001 if role == 0 else 1.0
    return {0: None, 1: 1.01 if tier == 0 else 1.00, 2: 1.005}[role]


@pytest.mark.parametrize("topology", LIMITS)
def test_teams_of_the_code_are_those_of_enumeration(topology):
    """The objective value always; the team wherever no other one has the same value."""
    seen, kind = set(), topology.split(",")[0]
    for rng, pool, t_in, budget in cases(f"code {topology}", 40 if kind == "planner_driven" else 100):
        in_floats = [[m.price_in * t_in + m.price_out * m.max_tokens for m in tier] for tier in pool.tiers]
        weights = weights_in_words([sum(tier) / len(tier) for tier in in_floats], float(budget))
        assert code_weights(pool, budget, t_in=t_in) == weights
        performance = None if rng.random() < 0.3 else {
            m.name: {r: rng.choice([0.5, 0.8, 0.9, 0.95, 1.0]) for r in ("planner", "executor", "critic")}
            for m in pool.llms}
        n_tiers = len(weights)
        value = np.zeros((3, n_tiers))
        for (r, role), t in itertools.product(enumerate(("planner", "executor", "critic")), range(n_tiers)):
            given = [1 if performance is None else performance[m.name][role] for m in pool.tiers[t]]
            factor = factor_of_role(kind, r, t)
            value[r, t] = 0 if factor is None else sum(given) / len(given) * weights[t] * factor
        every = TEAMS[topology, n_tiers]
        unit, b, scale = units(costs_of(pool, t_in, "average"), budget)
        price = (every.sum(axis=1) * np.array(unit, dtype=object if max(unit) > 2**50 else np.int64)).sum(axis=1)
        found = teams_as_code(pool, budget, performance=performance, t_in=t_in, topologies=[kind],
                              limits={kind: LIMITS[topology]})[kind]
        if price.min() > b:
            assert isinstance(found, InfeasibleBudgetError)
            least = Fraction(int(price.min()), scale)
            assert exact(found.least_budget) >= least > exact(math.nextafter(found.least_budget, 0))
            again = teams_as_code(pool, found.least_budget, t_in=t_in, topologies=[kind],
                                  limits={kind: LIMITS[topology]})[kind]
            assert again.exact_cost == least
            seen.add(("infeasible", n_tiers))
            continue
        affordable = every[price <= b]
        values = (affordable * value).sum(axis=(1, 2))
        best = values.max()
        counts = counts_of(found, n_tiers)
        assert (affordable == counts).all(axis=(1, 2)).any()
        assert found.objective == pytest.approx(best, rel=1e-12)
        equal = affordable[values >= best * (1 - 1e-12)]
        if len(equal) == 1:
            assert (counts == equal[0]).all()
        else:  # the cheapest, then the earlier roles get more of the stronger tiers
            prices = (equal.sum(axis=1) * np.array(unit)).sum(axis=1)
            cheapest = equal[prices == prices.min()]
            assert counts.T.ravel().tolist() == max(team.T.ravel().tolist() for team in cheapest)
        assert found.exact_cost == Fraction(int(((counts.sum(axis=0)) * np.array(unit)).sum()), scale) <= budget
        seen |= {("ties" if len(equal) > 1 else "unique", n_tiers), "several" if len(pool) > n_tiers else "single"}
    assert len(seen) >= 7


def test_factors_and_couplings_do_bind():
    """Each rule of the code changes a team somewhere; else the enumeration above would prove little."""
    roles = {topology: teams_as_code(PAPER, 1625, topologies=[topology])[topology] for topology in TOPOLOGIES}
    assert str(roles["feedback"]) == "2x DeepSeek-V3 (executor) + 2x GPT-4.1 nano (critic)"
    plain = teams_as_code(PAPER, 1625, role_factors=False)["feedback"]
    assert str(plain) == "2x DeepSeek-V3 (executor) + 1x GPT-4.1 nano (executor) + 1x GPT-4.1 nano (critic)"
    assert plain.objective == 2 * 8 + 2 == float(sum(code_weights(PAPER, 1625)[s.llm.tier - 1] for s in plain.slots))
    planner = {name: teams_as_code(PAPER, 875, performance=given)["planner_driven"]
               for name, given in (("ones", None), ("set", CODE_PERFORMANCE["arithmetic"]))}
    assert str(planner["ones"]) == "1x DeepSeek-V3 (planner) + 1x GPT-4.1 nano (executor)"
    assert str(planner["set"]) == "1x DeepSeek-V3 (executor) + 1x GPT-4.1 nano (planner)"


def test_one_agent_is_enough_for_linear_and_star():
    teams = teams_as_code(PAPER.with_max_tokens(1024), 1500)
    assert str(teams["linear"]) == str(teams["star"]) == "1x DeepSeek-V3 (executor)"
    assert str(provision(PAPER.with_max_tokens(1024), 1500)) == "3x GPT-4.1 nano"
    poor = teams_as_code(PAPER, 300)
    assert poor["linear"].tier_counts == (0, 1) and isinstance(poor["feedback"], InfeasibleBudgetError)
    assert poor["feedback"].least_budget == 407.2


def test_floats_of_the_code_can_miss_a_copy():
    """0.27 * 500 + 1.10 * 384 is a little more than 557.4 in floats, so int(1114.8 / c) is 1."""
    pool = Pool(name="three", llms=[{"name": "top", "tier": 1, "price_in": 1, "price_out": 1, "max_tokens": 384},
                                    *({**m.model_dump(), "tier": m.tier + 1} for m in PAPER.llms)])
    assert code_weights(pool, 1114.8, exact=True) == [1 + 2 * 6 + 5, 6, 1]
    assert code_weights(pool, 1114.8) == [1 + 1 * 6 + 5, 6, 1]
    assert [type(w) for w in code_weights(pool, 1114.8)] == [float] * 3


def test_average_cost_is_planned_and_the_first_by_name_plays():
    pool = Pool(name="two", llms=[
        {"name": "b cheap", "tier": 1, "price_in": 1, "price_out": 0, "max_tokens": 1},
        {"name": "a dear", "tier": 1, "price_in": 3, "price_out": 0, "max_tokens": 1}])
    team = teams_as_code(pool, 4, t_in=1)["linear"]
    assert (str(team), team.exact_cost) == ("2x a dear (executor)", 4)
    assert str(provision(pool, 4, t_in=1, roles=ROLE_LIMITS["linear"])) == "4x b cheap (executor)"


def test_teams_can_play_and_say_why():
    for budget in (500, 875, 1625):
        for topology, team in teams_as_code(PAPER, budget).items():
            agents = cast_roles(team, topology, "code")
            assert len(agents) == min(len(team.slots), 3 if topology in ("linear", "star") else 9)
            text = team.explain()
            assert f"Objective: {team.objective:.6g}" in text and "1x" in str(team) + "1x"
    assert "tier 2 as critic: coefficient 1.005, 203.6 u$, 2 hired" in teams_as_code(PAPER, 1625)["feedback"].explain()
    with pytest.raises(NotImplementedError, match="weights change with the budget"):
        _ = team.next_budget


@pytest.mark.parametrize(("change", "words"), [
    ({"pool": "paper"}, "pool = 'paper': expected a Pool"), ({"budget": -1}, "budget = -1"),
    ({"budget": "much"}, "budget = 'much'"), ({"topologies": ["ring"]}, "topologies: unknown 'ring'"),
    ({"performance": {"GPT-5": 1}}, "performance = .*expected factors by LLM name"),
    ({"performance": {"GPT-4.1 nano": {"judge": 1}}}, r"performance\['GPT-4.1 nano'\]\['judge'\]: unknown role"),
    ({"performance": {"GPT-4.1 nano": 0}}, r"\['planner'\] = 0: expected a number above 0"),
    ({"performance": {"GPT-4.1 nano": {"critic": "x"}}}, r"\['critic'\] = 'x'"),
])
def test_wrong_arguments_are_named(change, words):
    with pytest.raises(ValueError, match=words):
        teams_as_code(**{"pool": PAPER, "budget": 875, **change})


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(("change", "words"), [
    ({"pool": "paper"}, "pool = 'paper': expected a Pool"), ({"budget": -1}, "budget = -1: expected at least 0"),
    ({"budget": None}, "budget = None"), ({"t_out": -1000}, "t_out = .*-1000.*: expected at least 0 tokens"),
    ({"t_in": -1}, "t_in = .*-1.*: expected at least 0 tokens"), ({"t_in": float("nan")}, "t_in = nan"),
    ({"t_in": 0, "t_out": 0}, "expected a cost above 0")])
def test_wrong_arguments_of_the_weights_are_named(exact, change, words):
    with pytest.raises(ValueError, match=words):
        code_weights(**{"pool": PAPER, "budget": 875, "exact": exact, **change})
