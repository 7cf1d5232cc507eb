"""Values of plain LaTeX: what differs there, differs for math-verify; what it reads otherwise is not read."""

import random

import pytest
import sympy as sp

from bamas_lite import load_tasks
from bamas_lite.latex_values import _read, surely_differ
from bamas_lite.latex_worker import same

TASKS = load_tasks("algebra_calculus", "test", limit=60)
PIECES = ["2", "10", "0.5", "x", "y", "e", "\\pi", "+", "-", " ", "\\cdot ", "\\times ", "^{2}", "^x", "^e", "^{-1}",
          "\\frac{x}{2}", "\\frac{1}{3}", "\\sqrt{x}", "\\ln{\\left(x\\right)}", "\\sin{x}", "\\cos(x)",
          "\\left(x + 1\\right)", "(y)", "\\left(2\\right)", "e^{2}", "{2}", "(", ")"]
AT = {"x": sp.Float("0.7310585786", 20), "y": sp.Float("1.2490457724", 20), "z": sp.Float("0.4812118251", 20)}


def test_most_wrong_answers_of_our_tasks_are_told_apart_and_math_verify_agrees():
    rng, told, pairs = random.Random(0), 0, 0
    for task in TASKS:
        one, other = rng.sample([task.reference, *task.wrong], 2)
        pairs += 1
        if surely_differ(one, other):
            told += 1
            assert not same(one, other), (one, other)
    assert told > 0.8 * pairs


FORMS = {"18 - 7 x": "18 - 7*x", "\\left(24 - 20 x\\right) e^{- 5 x}": "(24 - 20*x)*exp(-5*x)",
         "\\frac{x^{2}}{3} + \\frac{x}{2}": "x**2/3 + x/2", "\\sqrt{8}": "sqrt(8)", "\\frac{5 \\pi}{6}": "5*pi/6",
         "2 \\ln{\\left(3 \\right)}": "2*log(3)", "x \\sin{\\left(2 x \\right)} + 1": "x*sin(2*x) + 1"}


@pytest.mark.parametrize("form", [sp.expand, sp.factor, sp.together, sp.cancel])
@pytest.mark.parametrize("text", FORMS)
def test_another_form_of_an_answer_does_not_differ(text, form):
    same_value, other_value = (sp.latex(form(sp.sympify(FORMS[text]) + more), ln_notation=True) for more in (0, 1))
    assert _read(text) is not None
    assert not surely_differ(text, same_value)
    assert surely_differ(text, other_value) or _read(other_value) is None


def test_what_is_read_has_the_value_that_math_verify_reads():
    from math_verify import LatexExtractionConfig, parse
    rng, read = random.Random(1), 0
    while read < 150:
        text = "".join(rng.choice(PIECES) for _ in range(rng.randint(1, 5))).strip()
        mine = _read(text)
        if mine is None:
            continue
        read += 1
        found = parse(f"$\\boxed{{{text}}}$", [LatexExtractionConfig(boxed_match_priority=0)], parsing_timeout=None)
        if isinstance(found[0], str):
            continue  # math-verify cannot read it: then only the same text is equal
        value = complex(found[0].doit().subs({symbol: AT[symbol.name] for symbol in found[0].free_symbols}).evalf())
        assert value == pytest.approx(mine[1][0][0], rel=1e-6, abs=1e-6), text


@pytest.mark.parametrize("text", [
    "10(2)", "2\\frac{1}{2}", "5 m", "3 t", "50\\%", "1,000", "(1, 2)", "[1, 2]", "x = 3", "f(2)", "x(2)", "5 e x",
    "\\ln{2} x", "x^12", "x2", "2 3", "\\text{two}", "\\frac{1}{0}", "\\sqrt{-1}", "10^{400}", "x^2^3", "", "(x", "5!",
    "1/2", "\\{1, 2", "i", "(" * 300 + "1" + ")" * 300])
def test_what_is_left_to_math_verify(text):
    assert _read(text) is None
    assert not surely_differ(text, "7")


@pytest.mark.parametrize(("one", "other", "differ"), [
    ("\\{1, 2\\}", "\\{2, 1\\}", False), ("\\{1, 2\\}", "\\{1, 3\\}", True), ("\\{1, 2\\}", "\\{1\\}", True),
    ("\\{1\\}", "1", False), ("(1, 2, 3)", "(1, 3, 2)", True), ("(1, 2, 3)", "(1, 2, \\frac{6}{2})", False),
    ("(1, 2, 3)", "\\{1, 2, 3\\}", False),
    ("x + 0.333333", "x + \\frac{1}{3}", False), ("\\frac{x}{2}", "0.5 x", False), ("- x^2", "(-x)^2", True),
    ("e^{-1}", "\\frac{1}{e}", False), ("e", "2.7", True), ("2^{3}", "8", False), ("x", "y", True)])
def test_by_hand(one, other, differ):
    assert surely_differ(one, other) is differ
