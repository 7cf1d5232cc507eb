"""Provisioning against independent oracles: all teams enumerated, a program over tuples, the paper's eight pools."""

import itertools
import math
import pickle
import random
import re
import subprocess
import sys
from fractions import Fraction

import pulp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bamas_lite import (
    LLM,
    ROLE_LIMITS,
    TOKEN_LIMITS,
    InfeasibleBudgetError,
    Pool,
    Reply,
    Usage,
    budget_frontier,
    estimate_t_out,
    exact,
    load_pool,
    provision,
    recursive_weights,
)
from bamas_lite.provisioning import RoleLimits, SolverError

PAPER = load_pool("paper")


def make_pool(*tiers, name="made"):
    """A pool from costs per tier, strongest first; an LLM costs its number at t_in=0, t_out=1. Names a1, b1, a2, ..."""
    tiers = [tier if isinstance(tier, list) else [tier] for tier in tiers]
    return Pool(name=name, llms=[
        LLM(name=f"{'abcdefgh'[k]}{t}", tier=t, rating=100 - 10 * t + k, price_in=0, price_out=cost, max_tokens=1)
        for t, costs in enumerate(tiers, 1) for k, cost in enumerate(costs)])


def hire(pool, budget, **options):
    """Provision with plain costs."""
    return provision(pool, budget, **{"t_in": 0, **options})


# --- weights ---------------------------------------------------------------------------------------------------------


def test_weights_of_the_paper():
    costs = [Fraction("557.4"), Fraction("203.6")]
    assert [recursive_weights(costs, b)[0] for b in (500, 875, 1250, 1625, 2000)] == [3, 5, 7, 8, 10]
    assert recursive_weights([13, 7, 5, 3, 1], 45) == [51520, 7360, 736, 46, 1]


def test_weights_floor_is_exact_where_floats_are_not():
    cost = 0.27 * 500 + 1.10 * 384  # a float a little above 557.4
    assert 1114.8 // cost == 1
    assert recursive_weights([1, "557.4"], "1114.8") == [3, 1] and recursive_weights([1, 0.1], 0.3) == [4, 1]


money = st.decimals("0.01", "20", places=2)


@settings(max_examples=150, deadline=None)
@given(st.lists(money, min_size=1, max_size=12), st.decimals(0, 500, places=1))
def test_weights_are_the_place_values_of_a_mixed_radix_number(costs, budget):
    weights = recursive_weights(costs, budget)
    assert weights == [math.prod(1 + int(budget // c) for c in costs[i + 1:]) for i in range(len(costs))]


@settings(max_examples=80, deadline=None)
@given(st.lists(st.lists(st.integers(2, 9), min_size=1, max_size=2), min_size=1, max_size=3), st.integers(0, 24))
def test_weights_dominate_every_affordable_set_of_weaker_llms(tiers, budget):
    weights = recursive_weights(tiers, budget)
    flat = [(t, c) for t, costs in enumerate(tiers) for c in costs]
    for counts in itertools.product(*(range(budget // c + 1) for _, c in flat)):
        if sum(n * c for n, (_, c) in zip(counts, flat, strict=True)) <= budget:
            for i, w in enumerate(weights):
                weaker = sum(n * weights[t] for n, (t, _) in zip(counts, flat, strict=True) if t > i)
                assert w > weaker


def test_average_cost_of_a_tier_breaks_dominance():
    tiers, budget = [10, [1, 9]], 10
    assert recursive_weights(tiers, budget, tier_cost="average") == [3, 1]  # ten cheap ones outweigh one strong
    assert recursive_weights(tiers, budget) == [11, 1]


@pytest.mark.parametrize("costs, budget, words", [
    ([], 5, "costs = []"), ([1, 0], 5, "costs[1] = 0"), ([-1], 5, "costs[0] = -1"),
    ([float("nan")], 5, "costs[0] = nan"), ([1, []], 5, "costs[1] = []"), ([[1, "x"]], 5, "costs[0][1] = 'x'"),
    ("12", 5, "costs = '12'"), (3, 5, "costs = 3"),
    ([1], -1, "budget = -1"), ([1], float("inf"), "budget = inf"), ([1], None, "budget = None")])
def test_weights_refuse_wrong_input(costs, budget, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        recursive_weights(costs, budget)
    with pytest.raises(ValueError, match="tier_cost = 'median'"):
        recursive_weights([1], 1, tier_cost="median")
    for unordered in ({1: 2}, {1, 2}):
        with pytest.raises(ValueError, match="costs = .*expected one cost, or a sequence"):
            recursive_weights(unordered, 5)
        with pytest.raises(ValueError, match=r"costs\[0\] = .*expected a finite"):
            recursive_weights([unordered], 5)


@pytest.mark.parametrize("name", ["budget", "t_in", "t_out", "min_agents", "roles"])
@pytest.mark.parametrize("value", ["1e9999999", 10**400, -10**5000, 10**5000, 1e201], ids=list("abcde"))
def test_numbers_beyond_every_size_are_refused_in_one_line(name, value):
    options = {"budget": 2000, name: {"executor": (value, value)} if name == "roles" else value}
    with pytest.raises(ValueError, match=f"^{name}.* = .*: expected (a finite|a whole|whole)") as caught:
        provision(PAPER, method="lexicographic", **options)
    assert len(str(caught.value)) < 250 and "\n" not in str(caught.value)


# --- the paper's pools -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["auto", "ilp", "lexicographic"])
@pytest.mark.parametrize("t_out, budget, weight, counts, cost", [
    (384, 500, 3, (0, 2), 407.2), (384, 875, 5, (1, 1), 761.0), (384, 1250, 7, (2, 0), 1114.8),
    (384, 1625, 8, (2, 2), 1522.0), (384, 2000, 10, (3, 1), 1875.8), (1024, 1000, 3, (0, 2), 919.2),
    (1024, 2000, 5, (1, 1), 1721.0), (1024, 3000, 7, (2, 1), 2982.4)])
def test_the_papers_eight_pools(method, t_out, budget, weight, counts, cost):
    team = provision(PAPER.with_max_tokens(t_out), budget, method=method)
    assert (team.tier_counts, team.cost) == (counts, cost)
    assert team.request.values == {"DeepSeek-V3": weight, "GPT-4.1 nano": 1}
    assert provision(PAPER, budget, t_out=t_out, method=method).slots[0].copy == 1


def test_team_is_complete():
    team = provision(PAPER, 875)
    assert [s.name for s in team.slots] == ["DeepSeek-V3 #1", "GPT-4.1 nano #1"] and team.slots[0].role is None
    assert str(team) == "1x DeepSeek-V3 + 1x GPT-4.1 nano" and team.budget == 875.0 and team.pool == PAPER
    assert team.exact_cost == Fraction(761) and team.method == "ilp"
    assert pickle.loads(pickle.dumps(team)) == team == provision(PAPER, 875, method="auto") and len({team, team}) == 1


def test_slots_follow_tier_rating_name_copy():
    pool = Pool(name="p", llms=[LLM(name=n, tier=t, rating=r, price_in=0, price_out=1, max_tokens=1)
                                for n, t, r in (("z", 1, 5), ("a", 1, 5), ("m", 1, 9), ("b", 2, 99))])
    team = hire(pool, 7, max_copies=2)
    assert [s.name for s in team.slots] == ["m #1", "m #2", "a #1", "a #2", "z #1", "z #2", "b #1"]


# --- against enumeration ---------------------------------------------------------------------------------------------


class Enumeration:
    """Every team of a small pool, as the rules are written in words."""

    def __init__(self, pool, scores, roles, min_agents, max_copies):
        self.tier = {m.name: m.tier for m in pool.llms}
        self.names = sorted(self.tier)
        self.pairs = [(m.name, role) for m in pool.llms for role in (roles or [None])]
        self.roles, self.min_agents, self.max_copies = roles, min_agents, max_copies
        cost = {m.name: exact(m.price_out) for m in pool.llms}
        self.teams = []
        for counts in itertools.product(range(max_copies + 1), repeat=len(self.pairs)):
            team = dict(zip(self.pairs, counts, strict=True))
            if self.allowed(team):
                by_name = {name: sum(n for (m, _), n in team.items() if m == name) for name in self.names}
                value = self.vector(team) if scores is None else sum(scores[m] * n for m, n in by_name.items())
                price = sum(cost[m] * n for m, n in by_name.items())
                self.teams.append((value, -price, [by_name[m] for m in self.names]))

    def count(self, team, role=None, tier=None):
        return sum(n for (m, r), n in team.items() if role in (None, r) and tier in (None, self.tier[m]))

    def vector(self, team):
        return tuple(self.count(team, tier=t) for t in range(1, max(self.tier.values()) + 1))

    def allowed(self, team):
        if self.count(team) < self.min_agents:
            return False
        for role, (low, high) in (self.roles or {}).items():
            per_tier = [self.count(team, role, t) for t in set(self.tier.values())]
            if not low <= sum(per_tier) <= high or max(per_tier) > self.max_copies:
                return False
        couplings = getattr(self.roles, "couplings", ())
        return not any(self.count(team, "critic", tier) > self.count(team, "executor", tier)
                       for rule, tier in (("critics <= executors", None), ("strong critics <= strong executors", 1))
                       if rule in couplings)

    def best(self, budget):
        return max((team for team in self.teams if -team[1] <= budget), default=None)


def random_case(rng):
    """A random pool with options: odd decimals, ties, several LLMs of a tier, copies, roles, both objectives."""
    step, llms = Fraction(rng.choice(["0.1", "0.01", "0.37", "1"])), []
    for tier in range(1, rng.randint(1, 4) + 1):
        for _ in range(rng.choice([1, 1, 2, 3]) if len(llms) < 3 else 1):
            llms.append(LLM(name=f"{rng.choice('xyz')}{len(llms)}", tier=tier, rating=rng.choice([-1, 0, 1, 2.5, 3, 5]),
                            price_in=0, price_out=step * rng.randint(1, rng.choice([3, 12, 60])), max_tokens=1))
    rng.shuffle(llms)
    roles = rng.choice([None, None, *ROLE_LIMITS.values(), "made"])
    if roles == "made":
        limits = {}
        for role in rng.sample(["planner", "executor", "critic"], 2):
            low = rng.randint(0, 2)
            limits[role] = (low, rng.choice([low, low + 1, math.inf]))
        couplings = ["critics <= executors", "strong critics <= strong executors"]
        roles = RoleLimits(limits, tuple(rng.sample(couplings, rng.randint(0, 2))))
    max_copies = rng.randint(1, 3)
    while (max_copies + 1) ** (len(llms) * len(roles or [0])) > 5000 and max_copies > 1:
        max_copies -= 1
    if 2 ** (len(llms) * len(roles or [0])) > 5000:
        roles = None
    return Pool(name="random", llms=llms), {
        "budget": step * rng.randint(1, rng.choice([12, 60, 200])), "roles": roles, "max_copies": max_copies,
        "min_agents": rng.choice([None, 1, 2, 3, 4]), "objective": rng.choice(["lexicographic", "score_sum"])}


@pytest.mark.parametrize("seed", range(8))
def test_every_choice_is_the_one_of_enumeration(seed):
    """Team, cost, ties, the next budget step, the least budget: all as found by looking at every team."""
    rng, seen = random.Random(seed), set()
    for _ in range(25):
        pool, options = random_case(rng)
        min_agents = options["min_agents"] or (1 if options["roles"] else 2)
        scores = None if options["objective"] == "lexicographic" else {m.name: exact(m.rating) for m in pool.llms}
        every = Enumeration(pool, scores, options["roles"], min_agents, options["max_copies"])
        wanted = every.best(options["budget"])
        options = {"method": rng.choice(["auto", "ilp", "lexicographic"]), **options}
        if not every.teams:
            with pytest.raises(ValueError, match="no team can have so many agents"):
                hire(pool, **options)
        elif wanted is None:
            with pytest.raises(InfeasibleBudgetError) as caught:
                hire(pool, **options)
            least = caught.value.least_budget
            assert least == float(min(-team[1] for team in every.teams))
            assert hire(pool, **{**options, "budget": least}).exact_cost == exact(least)
            with pytest.raises(InfeasibleBudgetError):
                hire(pool, **{**options, "budget": math.nextafter(least, 0)})
        else:
            team = hire(pool, **options)
            counts = {pair: 0 for pair in every.pairs}
            for slot in team.slots:
                counts[slot.llm.name, slot.role] += 1
            assert every.allowed(counts)
            by_name = [sum(n for (m, _), n in counts.items() if m == name) for name in every.names]
            assert (-team.exact_cost, by_name) == wanted[1:]
            better = [-cost for value, cost, _ in every.teams if value > wanted[0]]
            assert team.next_budget == (float(min(better)) if better else None)
            assert str(team) in team.explain()
        seen.add(("none" if not every.teams else wanted is not None, options["objective"], bool(options["roles"])))
    assert len(seen) >= 7  # the cases did vary


def best_vector(costs, budget, min_agents, max_copies):
    """The largest vector by a program over (agents so far, money left) and tuples; whole costs, one LLM a tier."""
    best = {(0, budget): ()}
    for c in costs:
        longer = {}
        for (agents, left), vector in best.items():
            for n in range(min(max_copies, left // c) + 1):
                key = (min(agents + n, min_agents), left - n * c)
                longer[key] = max(longer.get(key, ()), (*vector, n))
        best = longer
    return max((v for (agents, _), v in best.items() if agents == min_agents), default=None)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=3, max_size=14), st.integers(1, 120), st.integers(1, 6), st.integers(1, 5))
def test_many_tiers(costs, budget, min_agents, max_copies):
    if min_agents > max_copies * len(costs):
        return
    wanted = best_vector(costs, budget, min_agents, max_copies)
    options = {"min_agents": min_agents, "max_copies": max_copies}
    if wanted is None:
        with pytest.raises(InfeasibleBudgetError):
            hire(make_pool(*costs), budget, **options)
    else:
        assert hire(make_pool(*costs), budget, **options).tier_counts == wanted


def test_a_hundred_llms_in_twenty_tiers():
    rng = random.Random(7)
    pool = make_pool(*[[rng.randint(50, 5000) / 100 for _ in range(5)] for _ in range(20)])
    team = hire(pool, 100.03, max_copies=3)
    cheapest = [sorted(100 * exact(m.price_out) for m in tier for _ in range(3)) for tier in pool.tiers]
    left, counts = 10003, []
    for prices in cheapest:  # with two agents long reached, it is plain greed
        n = max(n for n in range(16) if sum(prices[:n]) <= left)
        counts.append(n)
        left -= sum(prices[:n])
    assert team.tier_counts == tuple(counts) and sum(counts) >= 2 and team.method == "lexicographic"


# --- solvers that compute in floats ----------------------------------------------------------------------------------


TRAPS = [([13, 7, 5, 3, 1], 45, 1, "HiGHS", {}), ([29, 11, 11, 12, 12, 10, 11, 43], 300, 0, "HiGHS", {"gapRel": 0}),
         ([4, 3, 3, 3, 3, 2], 298, 0, "PULP_CBC_CMD", {})]


@pytest.mark.parametrize("costs, budget, min_agents, solver, options", TRAPS)
@pytest.mark.parametrize("max_copies", [5, 200])
def test_auto_escapes_the_known_traps(costs, budget, min_agents, solver, options, max_copies):
    wanted = best_vector(costs, budget, max(min_agents, 1), max_copies)
    if solver not in pulp.listSolvers(onlyAvailable=True):
        pytest.skip(f"{solver} is not installed")
    made = pulp.getSolver(solver, msg=False, timeLimit=20, **options)
    request = {"min_agents": max(min_agents, 1), "max_copies": max_copies}
    team = hire(make_pool(*costs), budget, solver=made, **request)
    assert team.tier_counts == wanted == hire(make_pool(*costs), budget, **request).tier_counts
    try:
        assert hire(make_pool(*costs), budget, solver=made, method="ilp", **request).tier_counts == wanted
        assert team.method == "ilp"
    except SolverError as error:
        assert team.method == "lexicographic" and str(error) in team.note


class LyingSolver(pulp.LpSolver):
    """Calls whatever it is told optimal."""

    name = "Liar"

    def __init__(self, counts, status=pulp.LpStatusOptimal):
        super().__init__()
        self.counts, self.answer = counts, status

    def actualSolve(self, lp, **_):
        if self.counts is None:
            raise OSError("licence expired")
        left = dict(self.counts)
        for v in lp.variables():
            i = int(v.name.split("_")[1])
            v.varValue = 1.0 if left.get(i, 0) > 0 else 0.0
            left[i] = left.get(i, 0) - 1
        lp.assignStatus(self.answer)
        return self.answer


@pytest.mark.parametrize("solver, words", [
    (LyingSolver({0: 1}), "breaks a limit on agents"), (LyingSolver({0: 1, 1: 3}), "it costs 1,168.2 u$"),
    (LyingSolver({1: 2}), "1x DeepSeek-V3 + 1x GPT-4.1 nano is better (agents per tier (1, 1) against (0, 2))"),
    (LyingSolver({}, pulp.LpStatusInfeasible), "reports 'Infeasible' on a problem that has a solution"),
    (LyingSolver(None), "failed: licence expired")])
def test_a_wrong_solver_is_caught(solver, words):
    budget = 875
    with pytest.raises(SolverError, match=re.escape(words)):
        provision(PAPER, budget, method="ilp", solver=solver)
    team = provision(PAPER, budget, solver=solver)
    assert team.tier_counts == (1, 1) and team.method == "lexicographic"
    assert words in team.explain() and "it replaces the integer program" in team.explain()


def test_weights_past_the_floats_never_reach_a_solver():
    pool = make_pool(*range(9, 0, -1))
    with pytest.raises(SolverError, match=r"past 2\^53"):
        hire(pool, 500, method="ilp")
    assert "past 2^53" in hire(pool, 500).explain()
    team = hire(make_pool(*range(100, 0, -1)), 10**7, max_copies=1)  # weights past the largest float, too
    assert team.tier_counts == (1,) * 100 and "e+6" in team.explain() and "past 2^53" in team.note


def test_more_copies_than_a_program_should_have():
    team = hire(make_pool(3, 1), 10**5, max_copies=10**9)
    assert team.tier_counts == (33333, 1) and "more than 5000 variables" in team.note


@pytest.mark.parametrize("solver", ["HiGHS", "PULP_CBC_CMD", pulp.PULP_CBC_CMD(msg=False)])
def test_solvers_can_be_exchanged(solver):
    if isinstance(solver, str) and solver not in pulp.listSolvers(onlyAvailable=True):
        pytest.skip(f"{solver} is not installed")
    team = provision(PAPER, 1625, method="ilp", solver=solver)
    assert team == provision(PAPER, 1625, method="ilp") and (solver if isinstance(solver, str) else "CBC") in team.note


def test_no_solver_prints_anything():
    code = ("import bamas_lite as b; p = b.load_pool('paper'); b.provision(p, 875); "
            "b.provision(p, 875, solver='PULP_CBC_CMD', method='auto')")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


# --- objectives, costs, ties, roles ----------------------------------------------------------------------------------


def test_score_sum_takes_ratings_mappings_and_functions():
    pool = make_pool(5, 2)
    assert hire(pool, 10, objective="score_sum").tier_counts == (0, 5)
    for objective in ({"a1": 5, "a2": 1}, lambda m: 5 if m.tier == 1 else 1):
        assert hire(pool, 10, objective=objective).tier_counts == (2, 0)
    team = hire(pool, 9, objective={"a1": "2.5", "a2": 1})
    assert team.tier_counts == (1, 2) and "score" in team.explain() and "largest sum" in team.explain()
    with pytest.raises(ValueError, match="LLM 'DeepSeek-V3' has no rating"):
        provision(PAPER, 875, objective="score_sum")


def test_cost_model_can_be_exchanged():
    slow = {"DeepSeek-V3": 40, "GPT-4.1 nano": 160}

    def seconds(llm, t_in, t_out):
        return t_out / slow[llm.name]  # 9.6 s and 2.4 s, a float

    team = provision(PAPER, 21.6, cost_model=seconds)
    assert team.tier_counts == (2, 1) and team.exact_cost == Fraction("21.6")


def test_ties_go_to_the_cheapest_then_the_first_name():
    pool = make_pool([3, 2, 2], 1)
    assert str(hire(pool, 4, max_copies=1)) == "1x c1 + 1x b1"  # slots by rating, choice by cost
    assert str(hire(pool, 2, max_copies=1, min_agents=1)) == "1x b1"
    assert str(hire(pool, 5, max_copies=1)) == "1x c1 + 1x b1 + 1x a2"


def test_min_agents_is_kept_back():
    assert hire(make_pool(7, 2), 10).tier_counts == (1, 1)
    assert hire(make_pool(7, 2), 10, min_agents=1).tier_counts == (1, 1)
    assert hire(make_pool(7, 2), 10, min_agents=3).tier_counts == (0, 5)
    assert hire(make_pool(7, 7), 10, min_agents=1).tier_counts == (1, 0)


def test_roles_of_the_public_code():
    limits = {name: dict(rule) for name, rule in ROLE_LIMITS.items()}
    assert limits == {"linear": {"executor": (1, 5)}, "star": {"executor": (1, 5)},
                      "feedback": {"executor": (1, 3), "critic": (1, 2)},
                      "planner_driven": {"planner": (1, 1), "executor": (1, math.inf), "critic": (0, math.inf)}}
    assert len(ROLE_LIMITS["feedback"].couplings) == 2 and ROLE_LIMITS["linear"].couplings == ()


def test_team_with_roles_says_who_plays_what():
    team = provision(PAPER, 1600, roles=ROLE_LIMITS["feedback"])
    assert [(s.name, s.role) for s in team.slots] == [
        ("DeepSeek-V3 #1", "executor"), ("DeepSeek-V3 #2", "executor"),
        ("GPT-4.1 nano #1", "executor"), ("GPT-4.1 nano #2", "critic")]
    planner = provision(PAPER, 800, roles=ROLE_LIMITS["planner_driven"])
    assert str(planner) == "1x DeepSeek-V3 (planner) + 1x GPT-4.1 nano (executor)"
    assert provision(PAPER, 600, roles=ROLE_LIMITS["linear"]).tier_counts == (1, 0)  # one agent is enough here


# --- audit, frontier, limits -----------------------------------------------------------------------------------------


def test_audit_trail_says_why():
    text = provision(PAPER, 875).explain()
    for words in ("Team: 1x DeepSeek-V3 + 1x GPT-4.1 nano", "planned cost 761 u$; left 114 u$", "500 in, 384 out",
                  "at least 2 agents, at most 5 copies", "needs a budget of 1,114.8, 239.8 is missing",
                  "needs a budget of 964.6, 89.6 is missing",
                  "at a budget of 964.6 u$ (89.6 more) the team becomes 1x DeepSeek-V3 + 2x GPT-4.1 nano",
                  "integer program by HiGHS; its answer was verified"):
        assert words in text
    full = provision(PAPER, 9000, max_copies=1)
    assert full.next_budget is None and "no: all 1 copies are hired" in full.explain()
    assert "none; no budget buys a better team" in full.explain()
    roles = provision(PAPER, 2500, roles=ROLE_LIMITS["linear"]).explain()
    assert "no: the role limits allow no more of this tier" in roles and "executor 1 to 5" in roles
    several = hire(make_pool([1, 3, 1], 2), 4, max_copies=2).explain()
    assert "all 2 copies are hired" in several and "no solver" in hire(PAPER, 900, method="lexicographic").explain()


AMOUNT = r"([\d,]+(?:\.\d+)?)"


def printed(pattern, text):
    """The amounts in a text, as a reader types them."""
    return [[part.replace(",", "") for part in found.groups()] for found in re.finditer(pattern, text)]


def long_pool():
    return Pool(name="long decimals", llms=[
        LLM(name="strong", tier=1, rating=3, price_in=12.3456789, price_out=98.7654321, max_tokens=1234),
        LLM(name="weak", tier=2, rating=2, price_in=1.23456789, price_out=2.3456789, max_tokens=1234)])


def test_printed_amounts_are_exact_and_add_up():
    with_decimals = provision(long_pool(), 10000).explain()
    assert "at a budget of 10,535.5551228 u$ (535.5551228 more)" in with_decimals and "rounded" not in with_decimals
    ((budget, cost, left),) = printed(rf"Budget: {AMOUNT} .* planned cost {AMOUNT} u\$; left {AMOUNT} u", with_decimals)
    assert Fraction(budget) == Fraction(cost) + Fraction(left) == 10000
    for need, missing in printed(rf"needs a budget of {AMOUNT}, {AMOUNT} is missing", with_decimals):
        assert Fraction(need) == 10000 + Fraction(missing)
    thirds = hire(make_pool(1), 1, cost_model=lambda *_: Fraction(1, 3)).explain()
    assert "at a budget of 1.33333333333334 u$ (0.333333333333334 more)" in thirds and "rounded to 15 digits" in thirds


@pytest.mark.parametrize("objective", ["lexicographic", "score_sum"])
def test_every_printed_budget_buys_what_it_promises(objective):
    rng, cases, followed = random.Random(3), [(long_pool(), 10000, {})], 0
    for i in range(40):
        cut = rng.choice([1, 3, 7, Fraction(10) ** 9])  # thirds and sevenths have no finite decimals
        costs = {f"m{k}": Fraction(rng.randint(10**3, 10**12), 10 ** rng.randint(0, 9)) / cut for k in range(3)}
        pool = Pool(name="odd", llms=[
            LLM(name=name, tier=1 + k * (i % 2), rating=rng.randint(1, 5), price_in=0, price_out=1, max_tokens=1)
            for k, name in enumerate(costs)])
        cases.append((pool, sum(costs.values()) * rng.randint(1, 3) + Fraction(1, rng.choice([1, 3, 8])),
                      {"cost_model": lambda m, _, __, costs=costs: costs[m.name]}))
    for pool, budget, options in cases:
        options |= {"objective": objective, "method": "lexicographic"}
        team = provision(pool, budget, **options)
        text = team.explain()
        ((again,),) = printed(rf"Budget: {AMOUNT} u", text)
        assert str(provision(pool, again, **options)) == str(team)
        for found in re.finditer(rf"at a budget of {AMOUNT} u\$ .* the team becomes (.+)", text):
            needed = found[1].replace(",", "")
            for typed in (needed, float(needed)):
                assert str(provision(pool, typed, **options)) == found[2] != str(team)
                followed += 1
        for line in text.splitlines():
            for (need,) in printed(rf"needs a budget of {AMOUNT},", line):
                t = int(line.split()[0])
                assert provision(pool, float(need), **options).tier_counts[:t] > team.tier_counts[:t]
    assert followed > 60


def test_audit_trail_says_what_its_columns_mean():
    assert "Weight: what one agent counts in the sum" in provision(PAPER, 875).explain()
    scores = provision(load_pool("fourteen"), 1000, objective="score_sum").explain()
    assert "may also exchange agents, so it can need less" in scores and "Weight:" not in scores
    least_missing = min(Fraction(m) for (m,) in printed(rf", {AMOUNT} is missing", scores))
    ((_, more),) = printed(rf"at a budget of {AMOUNT} u\$ \({AMOUNT} more\)", scores)
    assert Fraction(more) < least_missing


def test_each_next_budget_is_the_least_that_changes_the_team():
    budget, vectors = 407.2, []
    while budget is not None:
        team = provision(PAPER, budget, max_copies=3)
        vectors.append(team.tier_counts)
        if len(vectors) > 1:
            just_below = provision(PAPER, math.nextafter(budget, 0), max_copies=3)
            assert just_below.tier_counts == vectors[-2]
        budget = team.next_budget
    every = sorted((5574 * a + 2036 * b, (a, b)) for a in range(4) for b in range(4) if a + b >= 2)
    assert vectors == [v for i, (_, v) in enumerate(every) if all(v > w for _, w in every[:i])]


def test_frontier_keeps_the_order_and_marks_what_is_infeasible():
    teams = budget_frontier(PAPER, [875, 100, 1250], method="lexicographic")
    assert [t and t.tier_counts for t in teams] == [(1, 1), None, (2, 0)]
    with pytest.raises(ValueError, match="budget = 'x'"):
        budget_frontier(PAPER, ["x"])


def test_infeasible_budget_tells_the_least_one():
    with pytest.raises(InfeasibleBudgetError, match=r"407\.2") as caught:
        provision(PAPER, 407.1)
    assert caught.value.least_budget == 407.2 and provision(PAPER, caught.value.least_budget).cost == 407.2
    assert pickle.loads(pickle.dumps(caught.value)).least_budget == 407.2
    third = Fraction(1, 3)
    with pytest.raises(InfeasibleBudgetError) as caught:
        hire(make_pool(1), 0, cost_model=lambda *_: third)
    assert 2 * third < exact(caught.value.least_budget)  # rounded up: as a float it would fall short
    assert hire(make_pool(1), caught.value.least_budget, cost_model=lambda *_: third).exact_cost == 2 * third


@pytest.mark.parametrize("options, words", [
    ({"budget": float("nan")}, "budget = nan"), ({"budget": -1}, "budget = -1"),
    ({"budget": "much"}, "budget = 'much'"), ({"budget": None}, "budget = None"), ({"budget": True}, "budget = True"),
    ({"pool": "paper"}, "pool = 'paper'"),
    ({"min_agents": 0}, "min_agents = 0"), ({"min_agents": 1.5}, "min_agents = 1.5"),
    ({"min_agents": 11}, "min_agents = 11: no team can have so many agents with max_copies = 5 and 2 LLMs"),
    ({"max_copies": 0}, "max_copies = 0"), ({"max_copies": True}, "max_copies = True"),
    ({"method": "magic"}, "method = 'magic'"), ({"objective": "best"}, "objective = 'best'"),
    ({"objective": {"nobody": 1}}, "expected one score for each of DeepSeek-V3, GPT-4.1 nano"),
    ({"objective": lambda m: None}, "LLM 'DeepSeek-V3': score = None"),
    ({"t_in": -1}, "t_in = -1"), ({"t_out": -5}, "t_out = -5"), ({"t_in": "x"}, "t_in = 'x'"), ({"t_in": None}, "t_in"),
    ({"t_in": 0, "t_out": 0}, "LLM 'DeepSeek-V3': planned cost = Fraction(0, 1)"),
    ({"cost_model": lambda *_: float("nan")}, "LLM 'DeepSeek-V3': planned cost = nan"),
    ({"cost_model": 5}, "cost_model = 5"),
    ({"roles": {"poet": (1, 2)}}, "unknown role 'poet'"), ({"roles": "feedback"}, "roles = 'feedback'"),
    ({"roles": {}}, "roles = {}"), ({"roles": {"critic": (2, 1)}}, "roles['critic'] = (2, 1)"),
    ({"roles": {"critic": 3}}, "roles['critic'] = 3"), ({"roles": {"critic": (-1, 1)}}, "roles['critic'] = (-1, 1)"),
    ({"roles": RoleLimits({"executor": (1, 2)}, ("friends",))}, "unknown coupling 'friends'"),
    ({"roles": ROLE_LIMITS["feedback"], "min_agents": 6}, "min_agents = 6: no team can have so many agents"),
    ({"solver": "Gurobi 99"}, "solver = 'Gurobi 99': not installed"), ({"solver": 5}, "solver = 5")])
def test_wrong_arguments_give_one_clear_error(options, words):
    with pytest.raises(ValueError, match=re.escape(words)) as caught:
        provision(**{"pool": PAPER, "budget": 875, **options})
    assert caught.type is ValueError and len(str(caught.value).splitlines()) == 1


def test_token_limits_and_their_estimate():
    assert TOKEN_LIMITS["mathematics"] == {"planner": 384, "executor": 1024, "critic": 1024} == TOKEN_LIMITS["math"]
    for name in ("arithmetic", "gsm8k", "code", "mbpp"):
        assert TOKEN_LIMITS[name] == {"planner": 384, "executor": 384, "critic": 384}
    assert estimate_t_out([Reply("x", Usage(500, n), 1.0) for n in (80, 312, 9)]) == 312 == estimate_t_out([312])
    for wrong, words in (([], "replies = []"), ([3, -1], "replies[1] = -1"), ([1.5], "replies[0] = 1.5"),
                         ([True], "replies[0] = True")):
        with pytest.raises(ValueError, match=re.escape(words)):
            estimate_t_out(wrong)


@pytest.mark.parametrize("budgets", ["1250", 1250, None])
def test_frontier_wants_a_list_of_budgets(budgets):
    with pytest.raises(ValueError, match="expected a list"):
        budget_frontier(load_pool("paper"), budgets)
