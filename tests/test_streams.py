"""A budget for a stream of tasks: against brute force, a dynamic program, and hand-made cases."""

import itertools
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bamas_lite.inputs import exact
from bamas_lite.reproduction import streams
from bamas_lite.reproduction.streams import StreamBudgetError, flat_choice, spend_stream, stream_curve


def brute_force(values, costs, total):
    """The largest value of all choices within the total, in Fractions."""
    v, c = ([[exact(x) for x in row] for row in array.tolist()] for array in (values, costs))
    choices = itertools.product(range(len(v[0])), repeat=len(v))
    return max(sum(v[i][j] for i, j in enumerate(choice)) for choice in choices
               if sum(c[i][j] for i, j in enumerate(choice)) <= exact(total))


def dynamic_program(values, costs, total):
    """The same for whole costs, by the best value for every amount of money."""
    best = np.full(total + 1, -np.inf)
    best[0] = 0
    for v, c in zip(values, costs, strict=True):
        after = np.full(total + 1, -np.inf)
        for v_j, c_j in zip(v, c, strict=True):
            after[c_j:] = np.maximum(after[c_j:], best[:total + 1 - c_j] + v_j)
        best = after
    return best.max()


def check(choice, values, costs, total):
    """The choice adds up, exactly, and keeps the total."""
    costs = np.broadcast_to(costs, values.shape)
    at = range(len(values))
    cost = sum((exact(float(costs[i, choice.option[i]])) for i in at), Fraction(0))
    assert cost == choice.exact_cost <= exact(total)
    assert choice.value == pytest.approx(sum(values[i, choice.option[i]] for i in at), abs=1e-9)
    assert choice.value <= choice.bound + 1e-9


cents = st.integers(0, 2000).map(lambda n: n / 100)


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 5).flatmap(lambda n: st.integers(1, 4).flatmap(lambda k: st.tuples(
    st.lists(st.lists(st.integers(-100, 100).map(lambda n: n / 100), min_size=k, max_size=k), min_size=n, max_size=n),
    st.lists(st.lists(cents, min_size=k, max_size=k), min_size=n, max_size=n), cents))))
def test_as_good_as_the_best_of_all_choices(case):
    values, costs, extra = np.array(case[0]), np.array(case[1]), case[2]
    total = float(sum(exact(float(x)) for x in costs.min(axis=1)) + exact(extra))
    choice = spend_stream(values, costs, total)
    check(choice, values, costs, total)
    assert choice.proved
    assert choice.value == float(brute_force(values, costs, total))


@pytest.mark.parametrize("seed", range(5))
def test_as_good_as_the_dynamic_program_on_many_tasks(seed):
    rng = np.random.default_rng(seed)
    values, costs = rng.integers(0, 1000, (40, 6)), rng.integers(0, 60, (40, 6))
    total = int(costs.min(axis=1).sum() + rng.integers(0, 500))
    choice = spend_stream(values, costs, total)
    check(choice, values, costs, total)
    assert choice.proved and choice.value == dynamic_program(values, costs, total)


def test_a_wrong_solver_is_found_out(monkeypatch):
    """Greedy takes option 1 of the first task (4 per u$) and cannot pay the second's; the best one is the reverse."""
    values, costs = np.array([[0, 4], [0, 30]]), np.array([[0, 1], [0, 10]])
    right = spend_stream(values, costs, 10)
    assert right.option.tolist() == [0, 1] and "HiGHS" in right.note
    for answer in (None, [[1], [1]], [[1], [0]]):  # no answer, one that costs 11, a bad one
        monkeypatch.setattr(streams, "_solve", lambda stream, answer=answer: answer)
        choice = spend_stream(values, costs, 10)
        assert choice.option.tolist() == [0, 1] and choice.proved
        assert "exact search, after" in choice.note


def test_not_called_proved_when_the_search_is_cut_off(monkeypatch):
    monkeypatch.setattr(streams, "MOST_STATES", 0)
    choice = spend_stream([[0, 4], [0, 30]], [[0, 1], [0, 10]], 10)
    assert choice.value == 30 and not choice.proved and "not proved" in choice.note


def test_floats_do_not_break_the_budget():
    """Three options of 0.1 u$ fit in 0.3 u$, though 0.1 + 0.1 + 0.1 > 0.3 in floats; in 0.29999 u$ only two do."""
    values, costs = np.array([[0, 1]] * 3), [0, 0.1]
    assert spend_stream(values, costs, 0.3).value == 3
    assert spend_stream(values, costs, "0.29999").value == 2
    assert spend_stream(values, costs, 0.3).exact_cost == Fraction(3, 10)


def test_the_bound_is_the_relaxation():
    """Values 0/10 and 0/6 at 4 and 3 u$: 5 u$ buy the first and a third of the second, 10 + 6/3."""
    choice = spend_stream([[0, 10], [0, 6]], [[0, 4], [0, 3]], 5)
    assert choice.value == 10 and choice.bound == 12 and choice.price == 2
    rich = spend_stream([[0, 10], [0, 6]], [[0, 4], [0, 3]], 7)
    assert rich.value == rich.bound == 16 and rich.price == 0


def test_more_money_never_buys_less_and_kinds_of_tasks_do_not_matter():
    rng = np.random.default_rng(0)
    kinds = rng.integers(0, 3, 60)
    values, costs = rng.random((3, 4)).round(2)[kinds], rng.integers(1, 50, (3, 4))[kinds]
    found = [spend_stream(values, costs, int(costs.min(axis=1).sum()) + extra) for extra in range(0, 600, 60)]
    assert all(a.value <= b.value for a, b in itertools.pairwise(found))
    order = rng.permutation(60)
    shuffled = spend_stream(values[order], costs[order], int(costs.min(axis=1).sum()) + 300)
    assert shuffled.value == found[5].value


def test_too_small_a_total_names_the_least_one():
    values, costs = np.ones((3, 2)), np.array([[5, 7.5], [6, 4], [3.3, 9]])
    with pytest.raises(StreamBudgetError, match=r"total = 10 u\$.*cost 12.3 u\$.*least_total = 12.3 ") as caught:
        spend_stream(values, costs, 10)
    assert spend_stream(values, costs, caught.value.least_total).cost == 12.3
    assert pickle.loads(pickle.dumps(caught.value)).least_total == 12.3
    with pytest.raises(StreamBudgetError, match=r"each = 4.9.* 5 u\$") as caught:
        flat_choice(values, costs, 4.9)
    assert flat_choice(values, costs, caught.value.least_total).tolist() == [0, 1, 0]


@pytest.mark.parametrize(("values", "costs", "total", "words"), [
    ([1, 2], [1, 2], 5, r"values: shape \(2,\); expected \(n tasks, k options\)"),
    (np.ones((0, 2)), np.ones((0, 2)), 5, r"values: shape \(0, 2\)"),
    (np.ones((2, 2)), np.ones((2, 3)), 5, r"costs: shape \(2, 3\); expected \(2, 2\)"),
    ([[1, np.nan]], [[1, 1]], 5, r"values\[0, 1\] = nan: expected a finite number"),
    ([[1, 1]], [[1, np.inf]], 5, r"costs\[0, 1\] = inf"),
    ([[1, 1]], [1, -2], 5, r"costs\[1\] = -2.0: expected a finite number of at least 0"),
    ([["a", 1]], [[1, 1]], 5, "values = .*: expected an array of numbers"),
    ([[1, 1]], [[1, 1]], "much", "total = 'much'"),
    ([[1, 1]], [[1, 1]], np.nan, "total = nan")])
def test_wrong_input_is_one_clear_message(values, costs, total, words):
    with pytest.raises(ValueError, match=words):
        spend_stream(values, costs, total)


def test_flat_takes_the_best_that_each_budget_pays_for():
    values, costs = np.array([[1, 2, 3], [3, 3, 1]]), np.array([[1, 2, 3], [2, 1, 3]])
    assert flat_choice(values, costs, 2).tolist() == [1, 1]  # equal values: the cheaper option
    assert flat_choice(values, costs, 3).tolist() == [2, 1]


def test_curve_by_hand():
    """An easy task (option 0 is enough) and a hard one, 1 or 3 u$ each: 4 u$ split evenly buy nothing for the hard."""
    values, costs = np.array([[0.9, 0.9], [0.1, 0.7]]), [1.0, 3.0]
    correct = np.array([[[1, 1], [0, 1]]])
    table = stream_curve(values, costs, [1, 4, 6], outcomes={"correct": correct, "cost": np.tile([[1, 4]], (1, 2, 1))},
                         resamples=50).set_index(["total", "plan"])
    assert 1 not in table.index.get_level_values("total")  # pays for nobody
    assert table.loc[(4, "flat"), "expected"] == pytest.approx(0.5)
    assert table.loc[(4, "stream expected"), "expected"] == pytest.approx(0.8)
    assert table.loc[(4, "stream expected"), "against_flat"] == pytest.approx(0.5)
    assert table.loc[(4, "stream expected"), "cost"] == 2.5 and table.loc[(4, "stream expected"), "over_total"] == 1
    assert table.loc[(4, "oracle stream"), "correct"] == 0.5  # the real costs are 1 and 4: 4 u$ do not pay for both
    assert table.loc[(6, "oracle stream"), "correct"] == 1
    assert table.loc[(6, "flat"), "expected"] == table.loc[(6, "stream expected"), "expected"]


def test_curve_with_caps_never_passes_the_total():
    rng = np.random.default_rng(1)
    values, caps = np.sort(rng.random((2, 30, 3)), axis=2), np.array([10.0, 20.0, 40.0])
    cost = caps * rng.uniform(0.4, 1, (2, 30, 3))
    table = stream_curve(values[0], caps * 0.7, [300, 450, 900], caps=caps, resamples=50,
                         outcomes={"correct": rng.integers(0, 2, (2, 30, 3)), "cost": cost})
    kept = table[table.plan.isin(["flat", "stream guaranteed"])]
    assert len(kept) == 6 and (kept.over_total == 0).all() and (kept.planned_cost <= kept.each + 1e-9).all()
    pairs = kept.pivot(index="total", columns="plan", values="expected")
    assert (pairs["stream guaranteed"] >= pairs["flat"] - 1e-12).all() and pairs.loc[450].nunique() == 2


@pytest.mark.parametrize(("change", "words"), [
    ({"totals": "56"}, "totals = '56': expected a list"), ({"totals": 5}, "totals = 5: expected a list"),
    ({"totals": []}, "totals is empty"), ({"totals": [-1]}, "totals = -1: expected a number of at least 0"),
    ({"totals": [np.nan]}, "totals = nan"), ({"totals": [2, 2.0]}, "totals holds 2 more than once"),
    ({"values": [], "costs": []}, r"values: shape \(0,\)"), ({"values": "x"}, "values = 'x': expected an array of num"),
    ({"costs": "x"}, "costs = 'x': expected an array of numbers"), ({"caps": [1, np.inf]}, r"caps\[1\] = inf"),
    ({"caps": [1, 2, 3]}, r"caps: shape \(3,\); expected \(1, 2\)"), ({"outcomes": 5}, "outcomes = 5: expected {"),
    ({"outcomes": {"correct": [[[1, np.nan]]], "cost": [[[1, 2]]]}}, r"outcomes\['correct'\]\[0, 0, 1\] = nan")])
def test_wrong_input_of_a_curve_is_one_clear_message(change, words):
    with pytest.raises(ValueError, match=words):
        stream_curve(**{"values": [[0, 1]], "costs": [1, 2], "totals": [5]} | change)


def test_a_curve_that_no_total_pays_for_says_what_would():
    with pytest.raises(StreamBudgetError, match=r"total = 0.5 u\$: the cheapest option .* 1 u\$") as caught:
        stream_curve([[0, 1]], [1, 2], [0.5])
    table = stream_curve([[0, 1]], [1, 2], [0.5, caught.value.least_total])
    assert list(table) == ["total", "each", "plan", "expected", "planned_cost", "bound", "proved"]
    assert table.total.tolist() == [1, 1]


def test_outcomes_of_another_shape():
    with pytest.raises(ValueError, match=r"outcomes\['cost'\]: shape \(1, 2\); expected \(n_seeds, 1, 2\)"):
        stream_curve([[0, 1]], [1, 2], [2], outcomes={"correct": np.ones((1, 1, 2)), "cost": np.ones((1, 2))})
    with pytest.raises(ValueError, match="outcomes: has no 'cost'"):
        stream_curve([[0, 1]], [1, 2], [2], outcomes={"correct": np.ones((1, 1, 2))})
