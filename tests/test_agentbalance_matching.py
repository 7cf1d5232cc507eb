"""Role-backbone matching against full enumeration, by the search and by the integer program."""

import itertools
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from bamas_lite.agentbalance import label_search, matching
from bamas_lite.agentbalance.matching import EMPTY, match_roles
from bamas_lite.inputs import exact


def value(scores, taken):
    return sum(scores[r, m] for r, m in enumerate(taken) if m != EMPTY)


def permitted(costs, budget, taken, allowed=None, required=None, max_copies=None):
    """Whether an assignment keeps every rule, costs added up as the decimal numbers that they are written as."""
    pairs = [(r, m) for r, m in enumerate(taken) if m != EMPTY]
    return ((budget == math.inf or sum(exact(float(costs[r, m])) for r, m in pairs) <= exact(budget))
            and (allowed is None or all(allowed[r, m] for r, m in pairs))
            and (required is None or not required.any() or any(required[r] for r, _ in pairs))
            and (max_copies is None or all(sum(m == n for _, n in pairs) <= max_copies for _, m in pairs)))


def enumerated(scores, costs, budget, **rules):
    """The best value of all assignments; None where no one keeps the rules."""
    n_roles, n_llms = scores.shape
    values = [value(scores, taken) for taken in itertools.product(range(-1, n_llms), repeat=n_roles)
              if permitted(costs, budget, taken, **rules)]
    return max(values, default=None)


@st.composite
def problems(draw):
    n_roles, n_llms = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    if draw(st.booleans()):  # few different numbers: many ties
        scores = rng.integers(-2, 4, (n_roles, n_llms)).astype(float)
        costs = rng.integers(0, 4, (n_roles, n_llms)) / 10
    else:
        scores, costs = rng.normal(0.3, 1, (n_roles, n_llms)), rng.lognormal(0, 1, (n_roles, n_llms))
    budget = draw(st.one_of(st.just(math.inf), st.integers(0, 30).map(lambda tenths: tenths / 10)))
    return scores, costs, budget, {
        "allowed": draw(st.sampled_from([None, rng.random((n_roles, n_llms)) < 0.7])),
        "required": draw(st.sampled_from([None, rng.random(n_roles) < 0.5])),
        "max_copies": draw(st.sampled_from([None, 1, 2]))}


@pytest.mark.parametrize(("method", "examples"), [("search", 200), ("ilp", 60)])
def test_is_the_best_of_all_assignments(method, examples):
    outcomes = set()

    @settings(max_examples=examples)
    @given(problems())
    def check(problem):
        scores, costs, budget, rules = problem
        best = enumerated(scores, costs, budget, **rules)
        outcomes.add(best is None)
        if best is None:
            with pytest.raises(ValueError, match="^no candidate LLM for "):
                match_roles(scores, costs, budget, method=method, **rules)
            return
        taken = match_roles(scores, costs, budget, method=method, **rules)
        assert taken.shape == (len(scores),)
        assert permitted(costs, budget, taken, **rules)
        assert value(scores, taken) == pytest.approx(best, abs=1e-9)

    check()
    assert outcomes == {True, False}


@pytest.mark.parametrize("max_copies", [None, 1, 2])
def test_search_and_integer_program_agree_on_fourteen_llms(max_copies):
    rng = np.random.default_rng(5)
    coupled = 0
    for n_roles in (6, 6, 12, 12):
        quality, costs = np.sort(rng.normal(size=14)), np.sort(rng.lognormal(5, 1, 14))
        scores = rng.uniform(0.3, 1, (n_roles, 1)) * quality + rng.normal(0, 0.5, (n_roles, 14))
        options = {"required": np.arange(n_roles) % 3 == 1, "max_copies": max_copies}
        budget = 0.7 * n_roles * np.median(costs)
        searched, solved = (match_roles(scores, costs, budget, method=m, **options) for m in ("search", "ilp"))
        assert permitted(np.tile(costs, (n_roles, 1)), budget, searched, **options)
        assert value(scores, searched) == pytest.approx(value(scores, solved), abs=1e-8)
        free = match_roles(scores, costs, budget, required=options["required"])
        coupled += value(scores, free) > value(scores, searched) + 1e-9
    assert (coupled > 0) == (max_copies in (1, 2))  # else the limit is not tested


def test_without_a_budget_one_copy_each_is_scipys_assignment():
    scores = np.random.default_rng(2).uniform(0, 1, (7, 9))
    roles, llms = linear_sum_assignment(scores, maximize=True)
    taken = match_roles(scores, np.ones(9), math.inf, max_copies=1)
    assert taken.tolist() == llms.tolist()
    assert len(set(taken.tolist())) == 7 == len(roles)


def test_exactly_the_budget_is_within_it():
    # in floats 0.1 + 0.2 > 0.3 and 0.1 + 0.7 < 0.8, added as decimals both are equal
    for a, b, total in ((0.1, 0.2, 0.3), (0.1, 0.7, 0.8)):
        for method in ("search", "ilp"):
            assert match_roles([[1.0], [1.0]], [[a], [b]], total, method=method).tolist() == [0, 0]


@pytest.mark.parametrize("method", ["search", "ilp"])
@pytest.mark.parametrize("less", [1e-13, 1e-11, 1e-9])
def test_never_over_budget_by_less_than_a_solver_can_see(method, less):
    # 3 + 3 is over the budget by a trifle; the best within it is 3 + 2
    costs, scores = np.array([[3.0, 2.0], [3.0, 2.0]]), np.array([[3.0, 1.0], [3.0, 2.0]])
    taken = match_roles(scores, costs, 6 - less, method=method)
    assert taken.tolist() == [0, 1]


def test_roles_stay_empty_at_a_loss_unless_required():
    scores, costs = np.array([[-1.0, -3.0], [-2.0, -1.5]]), np.ones((2, 2))
    assert match_roles(scores, costs, 5).tolist() == [EMPTY, EMPTY]
    assert match_roles(scores, costs, 5, required=np.array([True, True])).tolist() == [0, EMPTY]
    assert match_roles(scores, costs, 5, required=np.array([False, True])).tolist() == [EMPTY, 1]
    assert match_roles(scores, costs, 5, required=np.array([False, False])).tolist() == [EMPTY, EMPTY]


def test_of_equally_good_ones_the_cheapest():
    scores = np.array([[1.0, 1.0, 1.0], [2.0, 2.0, 1.0]])
    assert match_roles(scores, [5.0, 3.0, 3.0], 20).tolist() == [1, 1]
    assert match_roles(scores, [5.0, 3.0, 4.0], 20, max_copies=1).tolist() == [2, 1]


def test_scores_of_what_is_not_allowed_may_be_anything():
    scores, costs = np.array([[np.nan, 1.0], [2.0, -np.inf]]), np.array([[np.nan, 1.0], [1.0, np.inf]])
    allowed = np.array([[False, True], [True, False]])
    for method in ("search", "ilp"):
        for copies in (None, 1):
            taken = match_roles(scores, costs, 2, allowed=allowed, max_copies=copies, method=method)
            assert taken.tolist() == [1, 0]


@pytest.fixture
def programs(monkeypatch):
    """The integer programs that are solved."""
    solved, solve = [], matching._ilp
    monkeypatch.setattr(matching, "_ilp", lambda *arguments: solved.append(1) or solve(*arguments))
    return solved


def test_too_much_to_keep_goes_to_the_integer_program(monkeypatch, programs):
    rng = np.random.default_rng(0)
    scores = rng.uniform(0, 1, (5, 4))
    problem = scores, scores + 0.01 * rng.uniform(0, 1, (5, 4)), 1.7
    expected = value(scores, match_roles(*problem))
    assert not programs
    monkeypatch.setattr(label_search, "MOST_LABELS", 3)
    assert value(scores, match_roles(*problem)) == pytest.approx(expected, abs=1e-9)
    assert programs
    with pytest.raises(ValueError, match="too many partial assignments"):
        match_roles(*problem, method="search")


def test_copies_of_too_many_llms_go_to_the_integer_program(programs):
    taken = match_roles(np.ones((30, 26)), np.ones(26), 30, max_copies=5)
    assert programs
    assert (taken != EMPTY).all()
    assert np.bincount(taken).max() <= 5


def test_equal_scores_with_a_limit_on_copies():
    for score in (0.0, 1.0):
        taken = match_roles(np.full((4, 3), score), [1.0, 2.0, 3.0], 6, max_copies=1)
        assert sum(m != EMPTY for m in taken) == (3 if score else 0)


ONE = {"scores": [[1.0, 2.0], [0.5, 1.0]], "costs": [1.0, 2.0], "budget": 3}


NO_NUMBERS = {
    "text": [["1", "2"], ["3", "4"]], "none": [[None, 1.0], [1.0, 2.0]], "truth": [[True, False], [True, True]],
    "truth among numbers": [[True, 0.5], [1.0, 2.0]], "complex": np.ones((2, 2), complex),
    "ragged": [[1.0], [1.0, 2.0]], "dates": np.ones((2, 2), "M8[D]"), "objects": np.full((2, 2), object()),
    "huge": [[10**400, 1], [1, 1]],
    "masked": np.ma.array(np.ones((2, 2)), mask=np.eye(2)), "missing": None, "set": {1.0, 2.0},
    "a signaling NaN": [[Decimal("sNaN"), 1], [1, 1]],
}


@pytest.mark.parametrize("values", NO_NUMBERS.values(), ids=NO_NUMBERS)
@pytest.mark.parametrize("what", ["scores", "costs"])
def test_what_numpy_would_take_for_numbers(what, values):
    with pytest.raises(ValueError, match=f"^{what} = .*: expected an array of numbers$"):
        match_roles(**(ONE | {what: values}))


def test_numbers_of_any_kind():
    expected = match_roles(**ONE).tolist()
    for kind in (Fraction, Decimal, np.float32):
        scores = [[kind(score) for score in row] for row in ONE["scores"]]
        assert match_roles(scores, np.array(ONE["costs"], np.float16), 3).tolist() == expected
    assert match_roles(np.ones((9, 2)), [1, 1], 10, max_copies=10**30).tolist() == [0] * 9
    large = match_roles([[1e100, 1.0], [-1e100, 1e99]], [1e100, 1e100], 10**101)
    assert large.tolist() == [0, 1]


@pytest.mark.parametrize(("change", "message"), [
    ({"scores": [1.0, 2.0]}, r"scores: shape \(2,\); expected \(roles, LLMs\)"),
    ({"scores": np.zeros((0, 3))}, r"scores: shape \(0, 3\)"),
    ({"scores": [["a", "b"]]}, "scores = .*expected an array of numbers"),
    ({"scores": [[1.0, math.nan], [1.0, 2.0]]}, r"scores\[0, 1\] = nan: expected a finite number"),
    ({"costs": [1.0, 2.0, 3.0]}, r"costs: shape \(3,\); expected \(2, 2\), as scores, or \(2,\)"),
    ({"costs": [-1.0, 2.0]}, r"costs\[0, 0\] = -1.0: expected a finite number of at least 0 u\$"),
    ({"scores": [[1e308, 1.0], [1e308, 1.0]]}, r"scores\[0, 0\] = 1e\+308: expected a finite number from -1e\+100"),
    ({"costs": [1.0, 1e308]}, r"costs\[0, 1\] = 1e\+308: expected .* at least 0 u\$, at most 1e\+100"),
    ({"allowed": [[True], [True, False]]}, r"allowed = .*: expected True and False of shape \(2, 2\)"),
    ({"required": np.ma.array([True, True], mask=[True, False])}, "required: bool of shape"),
    ({"names": "ab"}, "names = 'ab': expected a list of texts"), ({"names": 2}, "names = 2: expected a list of texts"),
    ({"method": np.array(["search", "ilp"])}, "method = array.*: expected 'auto', 'search' or 'ilp'"),
    ({"budget": -1}, "budget = -1: expected at least 0"),
    ({"budget": math.nan}, "budget = nan: expected a finite decimal number"),
    ({"allowed": [True, False]}, r"allowed: bool of shape \(2,\); expected True and False of shape \(2, 2\)"),
    ({"allowed": np.ones((2, 2))}, r"allowed: float64 of shape \(2, 2\); expected True and False of shape \(2, 2\)"),
    ({"required": [True]}, r"required: bool of shape \(1,\); expected True and False of shape \(2,\)"),
    ({"max_copies": 0}, "max_copies = 0: expected a whole number of at least 1"),
    ({"names": ["solver"]}, "names: 1 names for 2 roles"),
    ({"method": "guess"}, "method = 'guess': expected 'auto', 'search' or 'ilp'"),
    ({"allowed": np.array([[False, False], [True, True]]), "required": [True, False], "names": ["solver", "critic"]},
     "^no candidate LLM for the role solver: allowed has none"),
    ({"allowed": np.zeros((2, 2), bool), "required": [True, True]},
     "^no candidate LLM for any of the roles role 0, role 1: allowed has none"),
    ({"budget": 0.5, "required": [True, False], "names": ["solver", "critic"]},
     r"^no candidate LLM for the role solver within the budget: the cheapest costs 1 u\$, budget = 0.5 u\$"),
])
def test_wrong_use_gets_one_message(change, message):
    with pytest.raises(ValueError, match=message):
        match_roles(**(ONE | change))
