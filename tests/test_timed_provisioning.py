"""Provisioning under two budgets against every team of a small pool, and in episodes with a latency budget."""

import itertools
import math
import pickle
import random
import re
from fractions import Fraction

import pulp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bamas_lite import LLM, TOPOLOGIES, Pool, SimulatedLLM, exact, load_pool, load_tasks, provision, run_task_sync
from bamas_lite.provisioning import InfeasibleBudgetError, SolverError, recursive_weights
from bamas_lite.timed_provisioning import MOST_COPIES, InfeasibleTeamError, provision_in_time, team_latency

FOURTEEN = load_pool("fourteen")


def make_pool(*tiers, **changes):
    """A pool from (cost, seconds) per LLM and tier, strongest first, at t_in=1 and t_out=0. Names a1, b1, a2, ..."""
    return Pool(name="made", llms=[
        LLM(**{"name": f"{'abcdefgh'[k]}{t}", "tier": t, "rating": 1, "price_in": cost, "price_out": 0,
               "max_tokens": 1, "first_token_s": seconds, "tokens_per_s": 10, **changes})
        for t, tier in enumerate(tiers, 1) for k, (cost, seconds) in enumerate(tier)])


def hire(pool, budget, latency_budget, topology="linear", **options):
    """Provision with the plain numbers of `make_pool`."""
    return provision_in_time(pool, budget, latency_budget, topology, **{"t_in": 1, "t_out": 0, **options})


# --- against enumeration ---------------------------------------------------------------------------------------------


class Enumeration:
    """Every team of a small pool, as the rules are written in words."""

    def __init__(self, pool, topology, t_out, min_agents, max_copies):
        n_tiers = max(m.tier for m in pool.llms)
        seconds = {m.name: exact(m.first_token_s) + t_out / exact(m.tokens_per_s) for m in pool.llms}
        quickest_first = sorted(pool.llms, key=lambda m: (m.tier, seconds[m.name], m.name))
        self.teams = []   # (cost, latency, agents per tier, agents per LLM)
        for counts in itertools.product(range(max_copies + 1), repeat=len(pool)):
            if sum(counts) < min_agents:
                continue
            llms = [m for m, k in zip(quickest_first, counts, strict=True) for _ in range(k)]
            each = [seconds[m.name] for m in llms]
            self.teams.append((sum(exact(m.price_out) * t_out for m in llms),
                               max(each) if topology == "star" else sum(each),
                               tuple(sum(m.tier == t for m in llms) for t in range(1, n_tiers + 1)), counts))
        self.names = [m.name for m in quickest_first]

    def within(self, budget, latency_budget):
        return [team for team in self.teams if team[0] <= budget and team[1] <= latency_budget]

    def best(self, budget, latency_budget):
        return max(self.within(budget, latency_budget), default=None,
                   key=lambda team: (team[2], -team[0], -team[1], team[3]))


def random_case(rng):
    """A small pool with few different costs and speeds, so that there are ties and true choices; budgets; options."""
    step, second = Fraction(rng.choice(["0.1", "0.37", "1"])), rng.choice([0.1, 0.3, 1.0])
    llms, t_out = [], rng.choice([1, 2, 7])
    for tier in range(1, rng.randint(1, 3) + 1):
        for _ in range(rng.choice([1, 2, 3, 3]) if len(llms) < 3 else 1):
            llms.append(LLM(name=f"{rng.choice('xyz')}{len(llms)}", tier=tier, rating=rng.randint(1, 3), price_in=0,
                            price_out=step * rng.randint(1, rng.choice([2, 5, 9])), max_tokens=t_out,
                            first_token_s=second * rng.randint(0, rng.choice([2, 9])),
                            tokens_per_s=rng.choice([3, 7, 10.5, 1000])))
    rng.shuffle(llms)
    max_copies = rng.randint(1, 3 if len(llms) < 5 else 2)
    topology = rng.choice(TOPOLOGIES)
    options = {"max_copies": max_copies, "min_agents": rng.choice([None, 2, 3, 4]), "t_in": 0, "t_out": None}
    if topology in ("linear", "star") and rng.random() < 0.3:
        options["min_agents"] = 1
    return Pool(name="random", llms=llms), topology, t_out, step * t_out * rng.randint(1, rng.choice([8, 20, 40])), \
        exact(second) * rng.randint(1, rng.choice([8, 20])), options


def below(number):
    return math.nextafter(number, 0)


@pytest.mark.parametrize("seed", range(8))
def test_every_choice_is_the_one_of_enumeration(seed):
    """Team, ties, both next steps, which budget binds, both least values: all as found by looking at every team."""
    rng, seen = random.Random(seed), set()
    for _ in range(30):
        pool, topology, t_out, B, L, options = random_case(rng)
        every = Enumeration(pool, topology, t_out, options["min_agents"] or 2, options["max_copies"])
        if not every.teams:
            with pytest.raises(ValueError, match="no team can have so many agents"):
                hire(pool, B, L, topology, **options)
            continue
        if rng.random() < 0.1:
            L = math.inf
        wanted, options = every.best(B, L), {"method": rng.choice(["auto", "ilp", "lexicographic"]), **options}
        if wanted is None:
            seen.add(check_infeasible(every, pool, B, L, topology, options))
            continue
        team = hire(pool, B, L, topology, **options)
        counts = [sum(slot.llm.name == name for slot in team.slots) for name in every.names]
        assert (team.exact_cost, team.exact_latency, team.tier_counts, tuple(counts)) == wanted
        assert team.latency_s == pytest.approx(team_latency(team.slots, topology, t_out), abs=1e-12)
        assert team.cost <= float(B) and team.latency_s <= float(L)
        dearer = [cost for cost, latency, vector, _ in every.teams if vector > wanted[2] and latency <= L]
        slower = [latency for cost, latency, vector, _ in every.teams if vector > wanted[2] and cost <= B]
        for step, better in ((team.next_budget, dearer), (team.next_latency_s, slower)):
            assert (step is None) == (not better)
            if better:
                assert exact(step) >= min(better) > exact(below(step))
        seen.add((topology == "star", bool(dearer), bool(slower)))
    assert len(seen) >= 7   # the cases did vary


def check_infeasible(every, pool, B, L, topology, options):
    with pytest.raises(InfeasibleTeamError) as caught:
        hire(pool, B, L, topology, **options)
    error = caught.value
    cheap, fast = every.within(B, math.inf), every.within(math.inf, L)
    money, time = error.least_budget, error.least_latency_s
    assert error.binding == (("cost", "latency") if bool(cheap) == bool(fast) else ("latency",) if cheap else ("cost",))
    for value, name in ((money, "least_budget"), (time, "least_latency_s")):
        assert (f"{name} = {value!r}" in str(error)) == (value is not None)
    if not cheap and not fast:   # both must be raised
        assert exact(money) == min(team[0] for team in every.teams)
        hire(pool, money, time, topology, **options)
        for pair in ((money, below(time)), (below(money), time), (money, L), (B, time)):
            with pytest.raises(InfeasibleTeamError):
                hire(pool, *pair, topology, **options)
        return "both are too small"
    for value, useful, budgets in ((money, fast, lambda b: (b, L)), (time, cheap, lambda s: (B, s))):
        assert (value is not None) == bool(useful)
        if useful:
            hire(pool, *budgets(value), topology, **options)
            with pytest.raises(InfeasibleTeamError):
                hire(pool, *budgets(below(value)), topology, **options)
    return error.binding


pairs = st.tuples(st.integers(1, 9), st.integers(0, 9))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(pairs, min_size=1, max_size=2), min_size=1, max_size=3), st.integers(1, 25),
       st.integers(0, 25), st.booleans())
def test_weights_rank_teams_lexicographically_under_both_budgets(tiers, budget, limit, at_once):
    """Of all teams within both budgets, the one with the largest sum of weights has the largest vector of tiers."""
    weights = recursive_weights([[cost for cost, _ in tier] for tier in tiers], budget)
    flat = [(t, *pair) for t, tier in enumerate(tiers) for pair in tier]
    within = []
    for counts in itertools.product(*(range(min(3, budget // cost) + 1) for _, cost, _ in flat)):
        each = [seconds for (_, _, seconds), n in zip(flat, counts, strict=True) for _ in range(n)]
        cost = sum(n * c for n, (_, c, _) in zip(counts, flat, strict=True))
        if cost <= budget and (max(each, default=0) if at_once else sum(each)) <= limit:
            vector = [sum(n for n, (t, _, _) in zip(counts, flat, strict=True) if t == i) for i in range(len(tiers))]
            within.append((sum(w * n for w, n in zip(weights, vector, strict=True)), vector))
    assert max(within)[1] == max(vector for _, vector in within)
    assert len({score for score, _ in within}) == len({tuple(vector) for _, vector in within})


# --- what a second budget changes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_without_a_latency_limit_it_is_plain_provisioning(topology):
    for budget in (150, 500, 2000, 9000, 30000):
        plain = provision(FOURTEEN, budget)
        for none in (math.inf, None, 10**6):
            team = provision_in_time(FOURTEEN, budget, none, topology)
            assert (team.tier_counts, team.exact_cost) == (plain.tier_counts, plain.exact_cost)
            assert team.method == plain.method == "ilp" and team.next_budget == plain.next_budget
            assert team.next_latency_s is None and team.latency_budget == (none or math.inf)


def test_greedy_by_cost_would_be_wrong():
    pool = make_pool([(3, 9), (5, 2)], [(1, 1)])   # the cheap strong one is slow
    assert str(hire(pool, 10, 10)) == "2x b1" and str(hire(pool, 9, 10)) == "1x b1 + 4x a2"
    assert str(hire(pool, 10, 12)) == "1x a1 + 1x b1 + 1x a2"
    assert str(hire(pool, 10, 12, "star")) == "3x a1 + 1x a2" and str(hire(pool, 10, 8, "star")) == "2x b1"


def test_agents_are_kept_back_from_both_budgets():
    pool = make_pool([(1, 8)], [(1, 2)])
    assert str(hire(pool, 9, 9)) == "4x a2" and str(hire(pool, 9, 10)) == "1x a1 + 1x a2"
    assert str(hire(pool, 9, 9, min_agents=1)) == "1x a1"
    assert str(hire(pool, 9, 9, "star")) == "5x a1 + 4x a2"


def test_among_equal_teams_the_cheapest_then_the_fastest_then_by_name():
    assert str(hire(make_pool([(2, 1), (1, 3)]), 3, 9, max_copies=1)) == "1x a1 + 1x b1"
    assert str(hire(make_pool([(2, 1), (1, 3)]), 4, 5)) == "1x a1 + 1x b1"   # even two of b1 take too long
    assert str(hire(make_pool([(2, 3), (2, 1), (2, 1)]), 4, 9, max_copies=2)) == "2x b1"
    assert str(hire(make_pool([(2, 3), (2, 1), (2, 1)]), 4, 9, max_copies=1)) == "1x b1 + 1x c1"
    assert str(hire(make_pool([(1, 4), (2, 3), (2, 1)]), 3, 9, "star", max_copies=1)) == "1x a1 + 1x c1"


def test_a_better_team_may_need_more_than_one_agent_more():
    team = hire(make_pool([(1, 10), (10, 1)], [(5, 5)]), 10, 11)
    assert str(team) == "2x a2" and (team.next_budget, team.next_latency_s) == (11.0, 15.0)
    assert str(hire(make_pool([(1, 10), (10, 1)], [(5, 5)]), 11, 11)) == "1x a1 + 1x b1"


def test_latency_is_exact_where_floats_are_not():
    pool = make_pool([(1, 0.1)])
    assert 3 * (0.1 + 1 / 10) > 0.6   # a little, as floats
    team = hire(pool, 9, 0.6, t_out=1)
    assert str(team) == "3x a1" and team.exact_latency == Fraction(3, 5) and team.latency_s == 0.6


def test_planned_latency_of_a_team():
    pool = make_pool([(1, 2)], [(1, 5)])
    a, b = pool.llms
    slots = provision(pool, 3, t_in=1, t_out=0, max_copies=2).slots
    assert [slot.llm for slot in slots] == [a, a, b]
    for topology in TOPOLOGIES:
        assert team_latency(slots, topology, 20) == (7.0 if topology == "star" else 15.0)
    assert team_latency(slots, "linear") == 9.3 and team_latency(slots, "star") == 5.1   # max_tokens is 1


# --- solvers ---------------------------------------------------------------------------------------------------------


class LyingSolver(pulp.LpSolver):
    """Calls whatever it is told optimal."""

    name = "Liar"

    def __init__(self, counts):
        super().__init__()
        self.counts = counts

    def actualSolve(self, lp, **_):
        left = list(self.counts)
        for v in lp.variables():
            i = int(v.name.split("_")[1])
            v.varValue, left[i] = float(left[i] > 0), left[i] - 1
        lp.assignStatus(pulp.LpStatusOptimal)
        return pulp.LpStatusOptimal


@pytest.mark.parametrize("topology, counts, words", [
    ("linear", (2, 0), "2x a1 optimal, but it takes 16 s"),
    ("star", (1, 1), "1x a1 + 1x a2 optimal, but it takes 8 s"),
    ("linear", (0, 2), "4x a2 is better"), ("star", (0, 1), "breaks a limit on agents")])
def test_a_wrong_solver_is_caught(topology, counts, words):
    pool, limit = make_pool([(1, 8)], [(1, 2)]), 9 if topology == "linear" else 7
    options = {"max_copies": 4, "topology": topology}
    with pytest.raises(SolverError, match=re.escape(words)):
        hire(pool, 9, limit, method="ilp", solver=LyingSolver(counts), **options)
    team = hire(pool, 9, limit, solver=LyingSolver(counts), **options)
    assert str(team) == "4x a2" and team.method == "lexicographic" and words in team.explain()


def test_the_program_alone_finds_the_team():
    """With its own answer, not the exact one: the latency constraint is in the program."""
    for topology, budget, limit in itertools.product(("linear", "star"), (900, 3000, 9000), (3, 8, 20, 61)):
        exactly = provision_in_time(FOURTEEN, budget, limit, topology, method="lexicographic")
        team = provision_in_time(FOURTEEN, budget, limit, topology, method="ilp")
        assert team.slots == exactly.slots and team.method == "ilp" and exactly.method == "lexicographic"


def test_weights_past_the_floats_never_reach_a_solver():
    pool = make_pool(*[[(cost, 1)] for cost in range(9, 0, -1)])
    with pytest.raises(SolverError, match=r"past 2\^53"):
        hire(pool, 500, 30, method="ilp")
    assert "past 2^53" in hire(pool, 500, 30).note and hire(pool, 500, 30).tier_counts == (5,) * 6 + (0,) * 3


# --- words -----------------------------------------------------------------------------------------------------------

AMOUNT = r"([\d,]+(?:\.\d+)?)"


def typed(text):
    return text.replace(",", "")


@pytest.mark.parametrize("topology", ["linear", "star"])
def test_every_printed_budget_buys_what_it_promises(topology):
    followed, kinds = 0, set()
    for budget, limit in itertools.product((120, 900, 2500, 8000, 10**5), (1.2, 4, 8.5, 20.3, 75, None)):
        try:
            team = provision_in_time(FOURTEEN, budget, limit, topology, method="lexicographic")
        except InfeasibleTeamError:
            continue
        text = team.explain()
        assert f"Team: {team}\n" in text
        kinds.add(re.search(r"What binds: (.+?)[:.]", text)[1])
        for money, promised in re.findall(rf"at a budget of {AMOUNT} u\$ .* the team becomes (.+)", text):
            assert str(provision_in_time(FOURTEEN, typed(money), limit, topology)) == promised != str(team)
            followed += 1
        for seconds, more, promised in re.findall(
                rf"at a latency budget of {AMOUNT} s \({AMOUNT} more\) the team becomes (.+)", text):
            assert str(provision_in_time(FOURTEEN, budget, typed(seconds), topology)) == promised != str(team)
            assert exact(typed(seconds)) - exact(limit) == exact(typed(more))
            followed += 1
        for tier, need in re.findall(r"^  tier (\d): (.+)", text, flags=re.M):
            for other in [{"budget": typed(m)} for m in re.findall(rf"needs a budget of {AMOUNT}", need)] + [
                    {"latency_budget": typed(s)} for s in re.findall(rf"latency budget of {AMOUNT}", need)] + [
                    {"budget": typed(m), "latency_budget": typed(s)}
                    for m, s in re.findall(rf"such as {AMOUNT} u\$ and {AMOUNT} s", need)]:
                new = provision_in_time(FOURTEEN, **{"budget": budget, "latency_budget": limit, "topology": topology,
                                                     "method": "lexicographic", **other})
                assert new.tier_counts[:int(tier)] > team.tier_counts[:int(tier)]
                followed += 1
    assert followed > 60 and {"the cost budget", "the latency budget"} < kinds


def test_audit_trail_says_which_budget_binds():
    pool = make_pool([(3, 9), (5, 2)], [(1, 1)])
    for budget, limit, topology, words in (
            (9, 12, "linear", "both budgets: a little more of either"),
            (9, 90, "linear", "the cost budget: more money"), (90, 12, "linear", "the latency budget: more time"),
            (90, 90, "star", "neither budget: no team is better"),
            (2, 1, "star", "both budgets together: only more money and more time")):
        text = hire(pool, budget, limit, topology, max_copies=2 if budget == 2 else 3).explain()
        assert f"What binds: {words}" in text
    assert "the limits allow no more, whatever the budgets" in hire(pool, 90, 90, "star", max_copies=3).explain()
    assert "one alone passes the budget and the latency budget" in hire(pool, 2, 3).explain()
    text = provision_in_time(FOURTEEN, 2000, 20, "linear").explain()
    for part in ("Topology: linear (one after the other", "500 in, 384 out", "its answer was verified by exact search",
                 "at least 2 agents, at most 5 copies of an LLM", "Latency budget: 20 s a task; planned latency "):
        assert part in text
    planned, left = re.search(rf"planned latency {AMOUNT} s; left {AMOUNT} s", text).groups()
    assert exact(planned) + exact(left) == 20 and "Latency budget: none;" in hire(pool, 9, None).explain()


def test_infeasible_budgets_say_which_one_binds():
    pool = make_pool([(1, 9), (5, 2)])
    for B, L, binding, money, time, words in (
            (1, 99, ("cost",), 2.0, None, "the cheapest team of 2 within latency_budget = 99 s costs 2 u$ in linear"),
            (1, None, ("cost",), 2.0, None, "budget = 1 u$: the cheapest team of 2 costs 2 u$"),
            (99, 1, ("latency",), None, 4.0, "the fastest team of 2 that budget = 99 u$ pays for takes 4"),
            (5, 5, ("cost", "latency"), 10.0, 18.0, "each alone could be met, but no team of 2 meets both in linear"),
            (1, 1, ("cost", "latency"), 2.0, 18.0, "each is too small for every team of 2")):
        with pytest.raises(InfeasibleTeamError, match=re.escape(words)) as caught:
            hire(pool, B, L)
        for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):
            assert error.binding == binding and isinstance(error, InfeasibleBudgetError) and "\n" not in str(error)
            assert (error.least_budget, error.least_latency_s) == (money, pytest.approx(time))


def test_a_team_can_be_kept():
    team = provision_in_time(FOURTEEN, 2000, 20, "feedback")
    assert pickle.loads(pickle.dumps(team)) == team == provision_in_time(FOURTEEN, 2000, 20, "feedback", method="ilp")
    assert team != provision_in_time(FOURTEEN, 2000, 20, "linear") and len({team, team}) == 1
    assert team.topology == "feedback" and (team.budget, team.latency_budget) == (2000.0, 20.0)
    assert "TimedRequest" not in repr(team)


@pytest.mark.parametrize("options, words", [
    ({"latency_budget": -1}, "latency_budget = -1: expected at least 0 seconds"),
    ({"latency_budget": float("nan")}, "latency_budget = nan"),
    ({"latency_budget": -math.inf}, "latency_budget = -inf"), ({"latency_budget": "soon"}, "latency_budget = 'soon'"),
    ({"latency_budget": True}, "latency_budget = True"),
    ({"topology": "ring"}, "topology = 'ring': expected one of linear, star"), ({"topology": None}, "topology = None"),
    ({"topology": "feedback", "min_agents": 1}, "min_agents = 1: feedback needs at least two agents"),
    ({"budget": -1}, "budget = -1"), ({"pool": "fourteen"}, "pool = 'fourteen'"), ({"t_out": -5}, "t_out = -5"),
    ({"method": "magic"}, "method = 'magic'"), ({"min_agents": 71}, "no team can have so many agents"),
    ({"max_copies": MOST_COPIES + 1}, f"max_copies = {MOST_COPIES + 1}: expected a whole number from 1 to"),
    ({"solver": "Gurobi 99"}, "solver = 'Gurobi 99': not installed"),
    ({"pool": make_pool([(1, 1)], first_token_s=None)}, "LLM 'a1': first_token_s is missing"),
    ({"pool": make_pool([(1, 1)], tokens_per_s=None)}, "LLM 'a1': tokens_per_s is missing")])
def test_wrong_arguments_give_one_clear_error(options, words):
    with pytest.raises(ValueError, match=re.escape(words)) as caught:
        provision_in_time(**{"pool": FOURTEEN, "budget": 2000, "latency_budget": 20, "topology": "linear", **options})
    assert caught.type is ValueError and len(str(caught.value).splitlines()) == 1


def test_latency_of_no_team():
    slots = provision(FOURTEEN, 2000).slots
    for wrong, words in ((([], "linear"), "slots = []"), (("abc", "linear"), "slots = 'abc'"),
                         ((5, "linear"), "slots = 5"),
                         ((["x"], "star"), "slots = ['x']"), ((slots, "ring"), "topology = 'ring'"),
                         ((slots, "star", -1), "t_out = -1"), ((slots, "star", "x"), "t_out = 'x'")):
        with pytest.raises(ValueError, match=re.escape(words)):
            team_latency(*wrong)


# --- episodes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_no_episode_of_a_provisioned_team_passes_a_budget(topology):
    backend, tasks = SimulatedLLM(), load_tasks("word_problems", "test", limit=12)
    answered = called = 0
    for budget, limit in itertools.product((400, 2500, 9000), (2.0, 6.5, 17.0, 45.0)):
        try:
            team = provision_in_time(FOURTEEN, budget, limit, topology)
        except InfeasibleTeamError:
            continue
        for task in tasks:
            episode = run_task_sync(task, team, topology, backend, budget, latency_budget=limit)
            assert episode.latency_s <= limit and episode.cost <= budget and not episode.over_latency
            assert episode.status == "ok" and episode.latency_budget == limit and episode.team is team
            answered += episode.answer is not None
            called += episode.n_calls >= len(team.slots)
    assert answered > 60 and called > 30   # the budgets let them work
