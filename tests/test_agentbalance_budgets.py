"""Cost and latency budgets: what is affordable, and the least values that would do."""

import math
import pickle
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bamas_lite.agentbalance.budgets import Budgets, InfeasibleBudgetsError, affordable, check_budgets
from bamas_lite.agentbalance.profiles import Profile, ProfileError
from tests.small_designers import profiles as small_profiles


class FakeProfile(Profile):
    """All that budgets ask of a profile: its plans are these numbers."""

    def __init__(self, name, u, s):
        vars(self).update(llm=SimpleNamespace(name=name), u=u, s=s)

    def cost(self, domain):
        return {"arithmetic": self.u, "code": 2 * self.u}[domain]

    def latency_s(self, domain):
        return {"arithmetic": self.s, "code": 3 * self.s}[domain]


CHEAP_SLOW, MIDDLE, DEAR_FAST = FakeProfile("Cheap", 10, 9), FakeProfile("Middle", 40, 4), FakeProfile("Fast", 100, 1)
LLMS = [CHEAP_SLOW, MIDDLE, DEAR_FAST]


def refusal(budgets, domain="arithmetic", profiles=LLMS):
    with pytest.raises(InfeasibleBudgetsError) as caught:
        check_budgets(profiles, budgets, domain)
    return caught.value


def test_affordable_meets_both():
    assert affordable(LLMS, Budgets(40, 4), "arithmetic").tolist() == [False, True, False]
    assert affordable(LLMS, Budgets(1e6), "arithmetic").tolist() == [True, True, True]
    assert affordable(LLMS, Budgets(80, 12), "code").tolist() == [False, True, False]
    assert affordable(LLMS, Budgets(79, 12), "code").dtype == bool


def test_enough_is_silent():
    assert check_budgets(LLMS, Budgets(10), "arithmetic") is None
    assert check_budgets(LLMS, Budgets(40, 4), "arithmetic") is None


def test_cost_binds():
    error = refusal(Budgets(9.99))
    assert (error.binding, error.least_cost, error.least_latency_s) == (("cost",), 10, None)
    assert "the cost budget is too small; expected at least 10 u$, one call of Cheap, the cheapest LLM" in str(error)
    assert "latency budget = inf" in str(error)
    error = refusal(Budgets(9, 9))  # given the latency: all LLMs are that fast
    assert (error.binding, error.least_cost) == (("cost",), 10)


def test_latency_binds():
    error = refusal(Budgets(50, 0.5))
    assert (error.binding, error.least_cost, error.least_latency_s) == (("latency",), None, 4)
    assert "the latency budget is too small; expected at least 4 s, one call of Middle" in str(error)


def test_each_alone_could_be_met():
    error = refusal(Budgets(20, 5))
    assert (error.binding, error.least_cost, error.least_latency_s) == (("cost", "latency"), 40, 9)
    assert "some LLMs meet the cost budget and others the latency budget, none meets both" in str(error)
    assert ("at least 40 u$ (one call of Middle), or the latency budget to at least 9 s (one call of Cheap)"
            in str(error))


def test_both_too_small_for_every_llm():
    error = refusal(Budgets(5, 0.5))
    assert (error.binding, error.least_cost, error.least_latency_s) == (("cost", "latency"), 10, 9)
    assert "the cheapest one, Cheap, needs 10 u$ and 9 s, the fastest one, Fast, 100 u$ and 1 s" in str(error)


def test_of_equally_cheap_llms_the_fastest_counts():
    error = refusal(Budgets(5, 0.5), profiles=[FakeProfile("Slow", 10, 9), FakeProfile("Quick", 10, 3)])
    assert (error.least_cost, error.least_latency_s) == (10, 3)
    assert "the cheapest one, Quick, needs 10 u$ and 3 s" in str(error)


def test_the_domain_counts():
    assert refusal(Budgets(12), "code").least_cost == 20


@st.composite
def cases(draw):
    amount = st.one_of(st.sampled_from([0.1, 0.3, 1.0, 2.0]),
                       st.floats(1e-3, 1e3, allow_nan=False, allow_subnormal=False))
    profiles = [FakeProfile(f"LLM {i}", draw(amount), draw(amount)) for i in range(draw(st.integers(1, 5)))]
    return profiles, Budgets(draw(amount), draw(st.one_of(st.just(math.inf), amount)))


def printed(text, unit):
    """The amounts in a message, after the part that repeats the budgets."""
    found = re.findall(rf"([\d,.]+) {re.escape(unit)}", text.split("): ", 1)[1])
    return [float(amount.replace(",", "")) for amount in found]


def test_least_values_are_the_least_that_pass():
    kinds = set()

    @settings(max_examples=300)
    @given(cases())
    def check(case):
        profiles, budgets = case
        pairs = [(p.u, p.s) for p in profiles]
        if any(u <= budgets.cost and s <= budgets.latency_s for u, s in pairs):
            check_budgets(profiles, budgets, "arithmetic")
            return
        error = refusal(budgets, profiles=profiles)
        # given the other budget
        cost = min((u for u, s in pairs if s <= budgets.latency_s), default=None)
        latency = min((s for u, s in pairs if u <= budgets.cost), default=None)
        if cost is None and latency is None:
            least = min(pairs)  # the cheapest, of these the fastest
            assert (error.binding, error.least_cost, error.least_latency_s) == (("cost", "latency"), *least)
            check_budgets(profiles, Budgets(*least), "arithmetic")
            kinds.add("neither")
            return
        assert (error.least_cost, error.least_latency_s) == (cost, latency)
        assert error.binding == tuple(name for name, value in (("cost", cost), ("latency", latency)) if value)
        kinds.add(error.binding)
        # the named value passes, and so does the printed one; a trifle less does not
        for value, unit, field in ((cost, "u$", "cost"), (latency, "s", "latency_s")):
            if value is not None:
                check_budgets(profiles, replace(budgets, **{field: value}), "arithmetic")
                check_budgets(profiles, replace(budgets, **{field: printed(str(error), unit)[0]}), "arithmetic")
                assert not affordable(profiles, replace(budgets, **{field: np.nextafter(value, 0)}), "arithmetic").any()

    check()
    assert kinds == {("cost",), ("latency",), ("cost", "latency"), "neither"}


def test_error_survives_pickling():
    error = refusal(Budgets(20, 5))
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.binding, copy.least_cost, copy.least_latency_s) == (
        str(error), error.binding, error.least_cost, error.least_latency_s)


def test_budgets_are_floats():
    budgets = Budgets("12.5", np.float32(2))
    assert (type(budgets.cost), budgets.cost, type(budgets.latency_s), budgets.latency_s) == (float, 12.5, float, 2.0)
    assert budgets == Budgets(12.5, 2.0) and hash(budgets) == hash(Budgets(12.5, 2.0))
    assert str(budgets) == "12.5 u$, 2 s"
    assert str(Budgets(500)) == "500 u$, no latency limit"
    assert not hasattr(budgets, "__dict__")
    with pytest.raises(AttributeError):
        budgets.cost = 1


@pytest.mark.parametrize(("arguments", "message"), [
    ((0,), r"cost = 0: expected a positive number of u\$"),
    ((-3,), "cost = -3: expected a positive number"),
    ((math.inf,), "cost = inf: expected a positive number"),
    ((math.nan,), "cost = nan: expected a positive number"),
    (("much",), "cost = 'much': expected a positive number"),
    ((True,), "cost = True: expected a positive number"),
    ((None,), "cost = None: expected a positive number"),
    ((500, 0), "latency_s = 0: expected a positive number of seconds, or math.inf"),
    ((500, -math.inf), "latency_s = -inf: expected a positive number"),
    ((500, math.nan), "latency_s = nan: expected a positive number"),
    ((500, None), "latency_s = None: expected a positive number"),
])
def test_wrong_budgets(arguments, message):
    with pytest.raises(ValueError, match=message):
        Budgets(*arguments)


@pytest.mark.parametrize("function", [affordable, check_budgets])
@pytest.mark.parametrize(("profiles", "domain", "message"), [
    (LLMS, "poetry", "domain = 'poetry': expected one of arithmetic, mathematics, code"),
    (LLMS, None, "domain = None: expected one of arithmetic, mathematics, code"),
    (LLMS, ["code"], r"domain = \['code'\]: expected one of arithmetic, mathematics, code"),
])
def test_wrong_domains(function, profiles, domain, message):
    with pytest.raises(ValueError, match=message):
        function(profiles, Budgets(100), domain)


def only_code(profile):
    return replace(profile, **{name: {"code": getattr(profile, name)["code"]}
                               for name in ("quality", "t_in", "t_out", "handed")})


@pytest.mark.parametrize("function", [affordable, check_budgets])
@pytest.mark.parametrize(("profiles", "message"), [
    *((wrong, "profiles = .*: expected a list of at least one Profile") for wrong in (
        [], (), None, 3, "GPT-4.1", ["GPT-4.1"], [CHEAP_SLOW, None], np.array([1.0]), {"GPT-4.1": CHEAP_SLOW})),
    ([only_code(small_profiles()[0])], "domain = 'arithmetic': Llama 3.1 8B was profiled on code")])
def test_wrong_profiles(function, profiles, message):
    with pytest.raises(ProfileError, match=message):
        function(profiles, Budgets(100), "arithmetic")


@pytest.mark.parametrize("function", [affordable, check_budgets])
@pytest.mark.parametrize("budgets", [None, 100, (100, 10), {"cost": 100}, Budgets])
def test_budgets_that_are_none(function, budgets):
    with pytest.raises(ValueError, match=r"budgets = .*: expected Budgets\(cost, latency_s\)"):
        function(LLMS, budgets, "arithmetic")
