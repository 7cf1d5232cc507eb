"""The generators of our own task sets: the committed files, determinism, and answers against independent solutions."""

import re
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import sympy as sp
from latex2sympy2_extended import latex2sympy
from scipy.integrate import quad

from bamas_lite import generators
from bamas_lite.generators import algebra_calculus, word_problems
from bamas_lite.generators.common import Draw, Problem, split_generator
from bamas_lite.grading import grade
from bamas_lite.paths import DATA
from bamas_lite.tasks import load_tasks

QUICK_SETS = ("word_problems", "algebra_calculus")
X, Y = sp.symbols("x y")


@pytest.mark.parametrize("name", QUICK_SETS)
def test_committed_files_are_what_the_generators_make(name):
    path = DATA / "tasks" / f"{name}.jsonl"
    assert path.read_bytes() == generators.committed(name).encode("utf-8")
    assert path.stat().st_size < 1_000_000


@pytest.mark.parametrize("name", QUICK_SETS)
def test_a_set_of_any_size_is_deterministic_and_loads_as_generated(name, tmp_path, monkeypatch):
    monkeypatch.setattr(generators, "SIZES", {name: 11})
    path, = generators.write(tmp_path)
    first = path.read_bytes()
    assert generators.write(tmp_path) == [path] and path.read_bytes() == first and b"\r" not in first
    assert load_tasks(name, "test", path=tmp_path) == generators.generate(name, 11, generators.SEED, "test")
    assert len(load_tasks(name, path=path)) == 22


@pytest.mark.parametrize("name", QUICK_SETS)
def test_seeds_differ_splits_are_disjoint_and_sizes_nest(name):
    train, test = (generators.generate(name, 60, 5, split) for split in ("train", "test"))
    other = generators.generate(name, 60, 6, "train")
    assert {task.question for task in train}.isdisjoint(task.question for task in test)
    assert {task.question for task in other}.isdisjoint(task.question for task in test)
    assert [task.question for task in train] != [task.question for task in other]
    assert generators.generate(name, 20, 5, "train") == train[:20]
    assert [task.task_id for task in test[:2]] == [f"{name}/test/0000", f"{name}/test/0001"]


@pytest.mark.parametrize(("arguments", "message"), [
    (("gsm8k", 3, 0), "task set = 'gsm8k': there are generators for word_problems,"),
    (("word_problems", 3, 0, "dev"), "split = 'dev': expected 'train' or 'test'"),
    (("word_problems", -1, 0), "n = -1: expected a whole number, at least 0"),
    (("algebra_calculus", 3, -1), "seed = -1: expected a whole number, at least 0"),
    (("algebra_calculus", 2.5, 1), "n = 2.5: expected a whole number, at least 0"),
])
def test_wrong_arguments_give_one_message(arguments, message):
    with pytest.raises(ValueError, match=message):
        generators.generate(*arguments)


# ---------------------------------------------------------------- word problems

@pytest.fixture(scope="module")
def stories():
    return load_tasks("word_problems")


def test_word_problems_read_as_text_and_have_clean_answers(stories):
    for task in stories:
        assert not re.search(r"[{}|]|  | \.|\d\d{4}", task.question), task.question
        assert task.question.endswith("?") and task.question.count("?") == 1
        assert re.fullmatch(r"[1-9]\d*|\d+\.\d{1,2}", task.reference), task
        wrong = [Fraction(text) for text in task.wrong]
        assert 4 <= len(set(wrong)) <= 6 and Fraction(task.reference) not in wrong


def test_there_are_thirty_stories_and_all_their_lines_are_used(stories):
    assert len(word_problems._STORIES) >= 30
    patterns = {}
    for _, lines in word_problems._STORIES:
        for line in lines:
            parts = re.split(r"\{\w+\}", line.text.partition(". ")[0] + "." * (". " in line.text))
            patterns[line.text] = re.compile(".{1,20}".join(map(re.escape, parts)))
    everything = "\n".join(task.question for task in stories)
    unused = [text for text, pattern in patterns.items() if not pattern.search(everything)]
    assert len(unused) <= 0.05 * len(patterns), unused


NUMBER = r"\$?(\d+(?:\.\d\d)?)"
PARTS = {"half": 2, "third": 3, "quarter": 4, "fifth": 5}
TIMES = {"twice": 2, "three times": 3, "four times": 4, "five times": 5}
SENTENCES = [  # what each sentence about things and money does to the running quantity (number of operations, function)
    (rf"has {NUMBER} marbles\.", 0, lambda v, a: a),
    (rf"has {NUMBER} bags with {NUMBER} marbles in each\.", 1, lambda v, a, b: a * b),
    (rf"has {NUMBER} blue marbles and {NUMBER} fewer white ones\.", 2, lambda v, a, b: 2 * a - b),
    (rf"gives {NUMBER} marbles to \w+\.", 1, lambda v, a: v - a),
    (rf"then brings (?:her|him) {NUMBER} more marbles\.", 1, lambda v, a: v + a),
    (rf"then brings (?:her|him) {NUMBER} boxes with {NUMBER} more marbles in each\.", 2, lambda v, a, b: v + a * b),
    (rf"finds that {NUMBER} of the marbles are damaged", 1, lambda v, a: v - a),
    (r"keeps half of the marbles", 1, lambda v: v / 2),
    (r"gives one (\w+) of the marbles that s?he has", 2, lambda v, a: v - v / PARTS[a]),
    (rf"sells all the marbles that s?he has (?:for|at a price of) {NUMBER} each", 1, lambda v, a: v * a),
    (rf"into bags of {NUMBER} and sells every bag for {NUMBER}\.", 2, lambda v, a, b: v / a * b),
    (rf"\w+ has {NUMBER} marbles\. How many more marbles", 1, lambda v, a: v - a),
    (rf"bags with {NUMBER} marbles in each\. How many bags", 1, lambda v, a: v / a),
    (r"has (twice|\w+ times) as many marbles as \w+ has now\. How many", 2, lambda v, a: v + v * TIMES[a]),
    (rf"then gives (?:her|him) {NUMBER}\.", 1, lambda v, a: v + a),
    (rf"s?he pays {NUMBER} for", 1, lambda v, a: v - a),
    (rf"buys {NUMBER} presents that cost {NUMBER} each", 2, lambda v, a, b: v - a * b),
    (r"grandmother then doubles the money", 1, lambda v: v * 2),
    (rf"gives {NUMBER}% of (?:her|his) money", 2, lambda v, a: v * (100 - a) / 100),
    (r"share all this money equally", 1, lambda v: v / 2),
    (rf"For the next {NUMBER} days s?he earns {NUMBER} a day", 2, lambda v, a, b: v + a * b),
    (rf"wants .+ that costs {NUMBER}\. How many more dollars", 1, lambda v, a: a - v),
    (rf"concert tickets at exactly {NUMBER} each", 1, lambda v, a: v / a),
    (rf"\w+ has {NUMBER} less than \w+\. How many dollars do", 2, lambda v, a: 2 * v - a),
]


def read_and_solve(question):
    """A second reading of the marble stories: sentence by sentence, knowing only the words."""
    value, operations, position = Decimal(0), 0, 0
    while True:
        found = [(match.start(), -match.end(), count, rule, match)
                 for pattern, count, rule in SENTENCES if (match := re.compile(pattern).search(question, position))]
        if not found:
            return value, operations
        _, end, count, rule, match = min(found, key=lambda item: item[:2])
        arguments = [part if part in PARTS or part in TIMES else Decimal(part) for part in match.groups()]
        value, operations, position = rule(value, *arguments), operations + count, -end


def test_a_second_reader_of_the_words_finds_the_same_answers_and_levels(monkeypatch):
    marbles = [story for story in word_problems._STORIES if story[0].get("items") == "marbles"]
    monkeypatch.setattr(word_problems, "_STORIES", marbles)
    for task in word_problems.generate(240, 11):
        assert read_and_solve(task.question) == (Decimal(task.reference), task.level), task


def test_one_story_worked_by_hand():
    question = ("Ivan has 65 blue marbles and 16 fewer white ones. He keeps half of the marbles that he has and gives "
                "the other half to his neighbors. He packs all the marbles that he has into bags of 3 and sells every "
                "bag for $10. He gives 25% of his money to an animal shelter. At the beginning Ivan had no money. "
                "How many dollars does he have now?")  # 65 + 49 = 114; 57; 19 bags; $190; $142.50
    assert read_and_solve(question) == (Decimal("142.5"), 7)


# ---------------------------------------------------------------- algebra and calculus

@pytest.fixture(scope="module")
def problems():
    return load_tasks("algebra_calculus")


def test_references_pass_and_wrong_answers_fail_by_math_verify(problems):
    assert sum(len(templates) for templates in algebra_calculus.TEMPLATES.values()) >= 25
    for task in problems[::16]:
        assert grade(task, f"The answer is $\\boxed{{{task.reference}}}$.").correct, task
        for wrong in task.wrong:
            verdict = grade(task, f"The answer is $\\boxed{{{wrong}}}$.")
            assert verdict.answer is not None and not verdict.correct, (task, wrong)


def read(latex):
    """LaTeX as sympy reads it with latex2sympy: nothing of our templates takes part."""
    return latex2sympy(latex.replace(r"\left(", "(").replace(r"\right)", ")").replace(r"\,", ""))


def formulas(problem):
    """What stands between dollar signs in the question."""
    return re.findall(r"\$(.+?)\$", problem.question)


def tuples(problem):
    """The ordered tuples of numbers in the question."""
    return [np.array([int(n) for n in t.split(", ")]) for t in re.findall(r"\((-?\d+(?:, -?\d+)+)\)", problem.question)]


def numbers(problem):
    return np.array([float(part) for part in problem.answer])


def function(latex, variable=X):
    return sp.lambdify(variable, read(latex), "math")


def sides(latex):
    """Left minus right side of an equation or inequality."""
    left, right = re.split(r"=|<|>|\\le|\\ge", latex)
    return sp.lambdify(X, read(left) - read(right), "math")


def slope_of(f, at, h=1e-5):
    return (f(at + h) - f(at - h)) / (2 * h)


def near(one, other):
    return bool(np.allclose(np.array(one, float), np.array(other, float), rtol=1e-5, atol=1e-6))


def right_side(latex):
    """f of "f(x) = ..." or "y = ..."."""
    return function(latex.partition("=")[2])


def same_function(one, answer):
    two = sp.lambdify(X, answer, "math")
    return near([one(t) for t in (-0.7, 0.4, 1.3)], [two(t) for t in (-0.7, 0.4, 1.3)])


def as_value(p):
    return near(read(formulas(p)[0]).evalf(), p.answer.evalf())


def as_root(p):
    f = sides(formulas(p)[0])
    roots = [float(r) for r in p.answer] if isinstance(p.answer, sp.FiniteSet) else [float(p.answer)]
    return near([f(r) for r in roots], 0) and (not isinstance(p.answer, sp.FiniteSet) or len(roots) == 2)


def as_larger_root(p):
    f = sides(formulas(p)[0])
    return near(f(float(p.answer)), 0) and slope_of(f, float(p.answer)) > 0  # these parabolas open upward


def as_solution_set(p):
    latex = formulas(p)[0]
    f = sides(latex)
    ends = [float(end) for end in p.answer.args[:2] if end.is_finite]
    for t in {*ends, *(end + shift for end in ends for shift in (-0.001, 0.001)), *np.arange(-40.5, 41)}:
        try:
            gap = f(t)
        except ZeroDivisionError:
            gap = None
        gap = 0 if gap is not None and abs(gap) < 1e-9 else gap
        holds = gap is not None and (gap < 0 if r"\l" in latex or "<" in latex else gap > 0)
        holds = holds or (gap == 0 and r"\le" in latex or gap == 0 and r"\ge" in latex)
        exact = next((e for e in p.answer.args[:2] if e.is_finite and float(e) == t), sp.Float(t))
        if bool(p.answer.contains(exact)) != holds:
            return False
    return True


def as_system(p):
    x, y = p.answer
    return all(read(left).subs({X: x, Y: y}) == int(right) for left, _, right in
               (f.partition(" = ") for f in formulas(p)[:2]))


def as_integral(p):
    low, high, body = re.fullmatch(r"\\int_\{(.+?)\}\^\{(.+?)\} (.+?) *dx", formulas(p)[0]).groups()
    return near(quad(function(body.removesuffix(r"\, ").removesuffix(r"\,")), int(low), int(high))[0], p.answer.evalf())


def as_limit(p):
    to, body = re.fullmatch(r"\\lim_\{x \\to (.+?)\} (.+)", formulas(p)[0]).groups()
    at = sp.Float(10, 60) ** 12 if "infty" in to else sp.Float(to, 60) + sp.Float(10, 60) ** -12
    return near(read(body).subs(X, at).evalf(30), p.answer.evalf())


def as_series_limit(p):
    k, low, high = re.search(r"frac\{(\d+)\}\{(n|\(n \+ \d+\))\(n \+ (\d+)\)\}", formulas(p)[0]).groups()
    low = int(re.sub(r"\D", "", low) or 0)
    n = np.arange(1, 2_000_000, dtype=float)
    return near((int(k) / ((n + low) * (n + int(high)))).sum() + int(k) / n[-1], p.answer)


def as_infinite_sum(p):
    terms = [float(read(t)) for t in formulas(p)[0].split(", ")[:3]]
    return near(sum(terms[0] * (terms[1] / terms[0]) ** k for k in range(2000)), p.answer) and \
        near(terms[2] * terms[0], terms[1] ** 2)


def as_finite_sum(p):
    first, second, third = (int(t) for t in formulas(p)[0].split(", ")[:3])
    assert second - first == third - second
    return sum(first + k * (second - first) for k in range(int(formulas(p)[1]))) == p.answer


def as_combination(p):
    u, v = tuples(p)
    a, b = map(int, re.search(r"Compute \$(\d+)u - (\d+)v\$", p.question).groups())
    return near(a * u - b * v, numbers(p))


def as_cross_product(p):
    u, v = tuples(p)
    w = numbers(p)
    return w @ u == 0 and w @ v == 0 and near(np.linalg.det([u, v, w]), w @ w) and w.any()


def as_slope(p):
    (x1, y1), (x2, y2) = tuples(p)
    return p.answer * int(x2 - x1) == int(y2 - y1)


def as_distance(p):
    one, two = tuples(p)
    return near(np.linalg.norm(one - two), p.answer.evalf())


def as_plane_distance(p):
    point, plane = tuples(p)[0], formulas(p)[1]
    left, _, right = plane.partition(" = ")
    normal = np.array([float(read(left).coeff(sp.Symbol(s))) for s in "xyz"])
    foot = point - normal * (normal @ point - float(right)) / (normal @ normal)
    return near(normal @ foot, float(right)) and near(np.linalg.norm(point - foot), p.answer.evalf())


def as_derivative(p):
    f = right_side(formulas(p)[0])
    return same_function(lambda t: slope_of(f, t), p.answer)


def as_derivative_at(p):
    return near(slope_of(right_side(formulas(p)[0]), float(re.search(r"f'\((.+?)\)", p.question)[1])), p.answer)


def as_value_at(p):
    return near(right_side(formulas(p)[0])(float(re.search(r"is \$f\((.+?)\)", p.question)[1])), p.answer)


def as_tangent(p):
    f, at = right_side(formulas(p)[0]), float(re.search(r"at \$x = (.+?)\$", p.question)[1])
    g = sp.lambdify(X, p.answer, "math")
    return near(g(at), f(at)) and near(slope_of(f, at), p.answer.coeff(X, 1)) and sp.degree(p.answer, X) == 1


def as_extrema(p):
    f = right_side(formulas(p)[1])
    return len(p.answer) == 2 and near([slope_of(f, float(t)) for t in p.answer], 0)


def as_area(p):
    one, two = (right_side(f) for f in formulas(p))
    low, high = np.roots(np.polyfit([0, 1, 2], [one(t) - two(t) for t in (0, 1, 2)], 2)).real
    return near(abs(quad(lambda t: one(t) - two(t), low, high)[0]), p.answer)


def as_volume(p):
    f, end = right_side(formulas(p)[0]), float(re.search(r"\\le (\d+)\$", p.question)[1])
    return near(quad(lambda t: np.pi * f(t) ** 2, 0, end)[0], p.answer.evalf())


def as_largest_value(p):
    f, square = sp.lambdify((X, Y), read(formulas(p)[0]), "numpy"), float(p.question.split("= ")[1].rstrip("$."))
    angle = np.linspace(0, 2 * np.pi, 200_001)
    return near(f(np.sqrt(square) * np.cos(angle), np.sqrt(square) * np.sin(angle)).max(), p.answer.evalf())


def as_solution_of_differential_equation(p):
    law, start = sp.lambdify(Y, read(formulas(p)[1].partition("=")[2]), "math"), float(formulas(p)[2].split("= ")[1])
    y = sp.lambdify(X, p.answer, "math")
    return near(y(0), start) and near([slope_of(y, t) for t in (-0.3, 0.5)], [law(y(t)) for t in (-0.3, 0.5)])


ORACLES = {
    as_value: "sum_of_fractions simplify_root rationalize logarithm",
    as_root: "linear_equation integer_roots exponential_equation", as_larger_root: "surd_root",
    as_solution_set: "linear_inequality quadratic_inequality rational_inequality", as_system: "linear_system",
    as_integral: "polynomial_integral arctangent_integral logarithmic_integral integral_by_parts",
    as_limit: "limit_of_quotient exponential_limit root_limit", as_series_limit: "telescoping",
    as_infinite_sum: "geometric_series", as_finite_sum: "arithmetic_series", as_combination: "vector_combination",
    as_cross_product: "cross_product", as_slope: "slope", as_distance: "distance", as_plane_distance: "plane_distance",
    as_derivative: "monomial_derivative cubic_derivative exponential_derivative", as_derivative_at: "derivative_at",
    as_value_at: "evaluate_polynomial", as_tangent: "tangent_line", as_extrema: "critical_points",
    as_area: "area_between", as_volume: "volume_of_revolution", as_largest_value: "constrained_maximum",
    as_solution_of_differential_equation: "differential_equation",
    lambda p: same_function(function(formulas(p)[0]), p.answer): "expand_product",
}
ORACLE_OF = {name: oracle for oracle, names in ORACLES.items() for name in names.split()}
TEMPLATES = {template.__name__: template for level in algebra_calculus.TEMPLATES.values() for template in level}


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_template_agrees_with_a_check_that_reads_the_question(name):
    draw = Draw(split_generator(name, 1, 3, "test"))
    for _ in range(8):
        problem = TEMPLATES[name](draw)
        assert ORACLE_OF[name](problem), problem


@pytest.mark.parametrize("name", ["slope", "rational_inequality", "integral_by_parts", "differential_equation"])
def test_the_checks_refuse_the_wrong_answers(name):
    draw = Draw(split_generator(name, 1, 3, "test"))
    for _ in range(5):
        problem = TEMPLATES[name](draw)
        for mistake in problem.mistakes:
            mistake = sp.sympify(mistake)
            if not algebra_calculus.same(mistake, problem.answer):
                assert not ORACLE_OF[name](Problem(problem.question, mistake)), (problem, mistake)
