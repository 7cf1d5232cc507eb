"""Templates of algebra problems. Each draws numbers and returns the problem with its answer and typical mistakes."""

from __future__ import annotations

from math import gcd

import sympy as sp

from bamas_lite.generators.common import Draw, Problem

X = sp.Symbol("x")
_SQUAREFREE = (2, 3, 5, 6, 7, 10, 11, 13, 14, 15)


def tex(expression: object) -> str:
    """LaTeX of an expression, for the text of a question."""
    return sp.latex(sp.sympify(expression), ln_notation=True)


def linear_equation(d: Draw) -> Problem:
    a, b, c, e = d(2, 9), d(-12, 12), d(-9, 9), d(-12, 12)
    if a == c:
        return linear_equation(d)
    answer = sp.Rational(e - b, a - c)
    return Problem(f"Solve the equation ${tex(a * X + b)} = {tex(c * X + e)}$ for $x$.", answer,
                   (sp.Rational(e + b, a - c), sp.Rational(e - b, a + c) if a + c else -answer, -answer))


def sum_of_fractions(d: Draw) -> Problem:
    a, b, c, e = d(1, 9), d(2, 12), d(1, 9), d(2, 12)
    if b == e or gcd(a, b) > 1 or gcd(c, e) > 1:
        return sum_of_fractions(d)
    one, two = sp.Rational(a, b), sp.Rational(c, e)
    return Problem(f"Compute ${tex(one)} + {tex(two)}$. Give the answer as a fraction in lowest terms.", one + two,
                   (sp.Rational(a + c, b + e), one * two, one - two, sp.Rational(a + c, b * e)))


def simplify_root(d: Draw) -> Problem:
    outer, inner = d(2, 15), d.choice(_SQUAREFREE)
    return Problem(f"Simplify $\\sqrt{{{outer**2 * inner}}}$: write it as $a\\sqrt{{b}}$ with the smallest $b$.",
                   outer * sp.sqrt(inner),
                   (outer**2 * sp.sqrt(inner), inner * sp.sqrt(outer), (outer + 1) * sp.sqrt(inner)))


def expand_product(d: Draw) -> Problem:
    a, b, c = d(1, 6), d(-9, 9), d(-9, 9)
    answer = sp.expand((a * X + b) * (X + c))
    return Problem(f"Expand $({tex(a * X + b)})({tex(X + c)})$.", answer,
                   (a * X**2 + b * c, sp.expand((a * X + b) * (X - c)), a * X**2 + (b + c) * X + b * c))


def slope(d: Draw) -> Problem:
    x1, y1, x2, y2 = (d(-9, 9) for _ in range(4))
    if x1 == x2 or y1 == y2:
        return slope(d)
    answer = sp.Rational(y2 - y1, x2 - x1)
    return Problem(f"What is the slope of the line through $({x1}, {y1})$ and $({x2}, {y2})$?", answer,
                   (1 / answer, -answer, sp.Rational(y2 + y1, x2 + x1) if x1 + x2 else answer + 1))


def integer_roots(d: Draw) -> Problem:
    a, b = d(-12, 12), d(-12, 12)
    if a == b or a == -b:
        return integer_roots(d)
    poly = sp.expand((X - a) * (X - b))
    return Problem(f"Find the set of all real solutions of ${tex(poly)} = 0$.", sp.FiniteSet(a, b),
                   (sp.FiniteSet(-a, -b), sp.FiniteSet(a, -b), sp.FiniteSet(-a, b)))


def linear_system(d: Draw) -> Problem:
    x, y, a, b, c, e = d(-8, 8), d(-8, 8), d(1, 6), d(-6, 6), d(1, 6), d(-6, 6)
    if a * e == b * c or x == y:
        return linear_system(d)
    y_ = sp.Symbol("y")
    return Problem(f"Solve the system ${tex(a * X + b * y_)} = {a * x + b * y}$, "
                   f"${tex(c * X + e * y_)} = {c * x + e * y}$. Give the answer as an ordered pair $(x, y)$.",
                   sp.Tuple(x, y), (sp.Tuple(y, x), sp.Tuple(-x, y), sp.Tuple(x, -y)))


def linear_inequality(d: Draw) -> Problem:
    a, b, c = d(-9, 9, without=(0, 1, -1)), d(-15, 15), d(-15, 15)
    sign = d.choice(("<", "\\le", ">", "\\ge"))
    bound, strict = sp.Rational(c - b, a), sign in "<>"
    below = sp.Interval(-sp.oo, bound, True, strict)
    above = sp.Interval(bound, sp.oo, strict, True)
    answer, other = (below, above) if (sign in ("<", "\\le")) == (a > 0) else (above, below)
    return Problem(f"Solve ${tex(a * X + b)} {sign} {c}$. Give the set of all real solutions in interval notation.",
                   answer, (other, sp.Interval(-bound, sp.oo, strict, True), sp.Interval(-sp.oo, -bound, True, strict)))


def arithmetic_series(d: Draw) -> Problem:
    first, step, n = d(-9, 20), d(2, 9), d(8, 30)
    last = first + (n - 1) * step
    return Problem(f"An arithmetic sequence begins ${first}, {first + step}, {first + 2 * step}, \\ldots$ "
                   f"What is the sum of its first ${n}$ terms?", sp.Rational(n * (first + last), 2),
                   (sp.Rational(n * (first + last + step), 2), n * (first + last),
                    sp.Rational((n - 1) * (first + last), 2)))


def vector_combination(d: Draw) -> Problem:
    u, v = [d(-6, 6, without=()) for _ in range(3)], [d(-6, 6, without=()) for _ in range(3)]
    a, b = d(2, 5), d(2, 5)
    return Problem(f"Let $u = ({', '.join(map(str, u))})$ and $v = ({', '.join(map(str, v))})$. "
                   f"Compute ${a}u - {b}v$. Give the answer as an ordered triple.",
                   sp.Tuple(*(a * p - b * q for p, q in zip(u, v, strict=True))),
                   (sp.Tuple(*(a * p + b * q for p, q in zip(u, v, strict=True))),
                    sp.Tuple(*(b * p - a * q for p, q in zip(u, v, strict=True)))))


def logarithm(d: Draw) -> Problem:
    base, p, q = d.choice((2, 3, 5)), d(1, 5), d(1, 5)
    if q == p:
        return logarithm(d)
    c, e = d(2, 9), d(-9, 9)
    answer = sp.Rational(c * p, q) + e
    return Problem(f"Compute ${c}\\log_{{{base**q}}} {base**p} {'+' if e > 0 else '-'} {abs(e)}$.", answer,
                   (sp.Rational(c * q, p) + e, c * sp.Integer(base) ** (p - q) + e, sp.Rational(c * p, q) - e))


def surd_root(d: Draw) -> Problem:
    a, b, c = d(1, 4), d(-9, 9), d(-9, 9)
    disc = b * b - 4 * a * c
    if disc <= 0 or sp.sqrt(disc).is_rational:
        return surd_root(d)
    root = sp.sqrt(disc)
    return Problem(f"What is the larger of the two real solutions of ${tex(a * X**2 + b * X + c)} = 0$?",
                   sp.Rational(-b, 2 * a) + root / (2 * a),
                   (sp.Rational(b, 2 * a) + root / (2 * a), sp.Rational(-b, 2 * a) - root / (2 * a),
                    sp.Rational(-b, 2 * a) + sp.sqrt(b * b + 4 * abs(a * c)) / (2 * a), -b + root))


def quadratic_inequality(d: Draw) -> Problem:
    a, b = sorted((d(-9, 9), d(-9, 9)))
    if a == b:
        return quadratic_inequality(d)
    sign = d.choice(("<", "\\le"))
    k = d(1, 3)
    poly = sp.expand(k * (X - a) * (X - b))
    strict = sign == "<"
    return Problem(f"Solve ${tex(poly)} {sign} 0$. Give the set of all real solutions in interval notation.",
                   sp.Interval(a, b, strict, strict),
                   (sp.Interval(a, b, not strict, not strict), sp.Interval(-b, -a, strict, strict),
                    sp.Interval(-sp.oo, b, True, strict), sp.Interval(a, sp.oo, strict, True)))


def distance(d: Draw) -> Problem:
    p, q = [d(-8, 8, without=()) for _ in range(3)], [d(-8, 8, without=()) for _ in range(3)]
    deltas = [s - t for s, t in zip(p, q, strict=True)]
    squares = sum(delta * delta for delta in deltas)
    if p == q or sp.sqrt(squares).is_rational:
        return distance(d)
    return Problem(f"What is the distance between the points $({', '.join(map(str, p))})$ and "
                   f"$({', '.join(map(str, q))})$?", sp.sqrt(squares),
                   (sum(map(abs, deltas)), squares, sp.sqrt(sum((s + t) ** 2 for s, t in zip(p, q, strict=True)))))


def geometric_series(d: Draw) -> Problem:
    first, q, p = d(1, 12), d(2, 9), d(-7, 7)
    if abs(p) >= q or gcd(p, q) > 1:
        return geometric_series(d)
    ratio = sp.Rational(p, q)
    terms = ", ".join(tex(first * ratio**k) for k in range(3))
    return Problem(f"What is the sum of the infinite geometric series with the terms ${terms}, \\ldots$?",
                   first / (1 - ratio), (first / (1 + ratio), first * ratio / (1 - ratio), first + first * ratio,
                                         sp.Integer(first) / ratio))


def rationalize(d: Draw) -> Problem:
    a, b, inner = d(1, 9), d(1, 9), d.choice(_SQUAREFREE)
    bottom = b * b - inner
    if bottom == 0:
        return rationalize(d)
    root = sp.sqrt(inner)
    return Problem(f"Write $\\frac{{{a}}}{{{b} + \\sqrt{{{inner}}}}}$ without a root in the denominator.",
                   sp.expand(a * (b - root) / bottom),
                   (sp.expand(a * (b + root) / bottom), a * (b - root) / sp.Integer(b * b + inner), a * (b - root)))


def exponential_equation(d: Draw) -> Problem:
    a, b = d(2, 15), d(2, 15)
    if a == b:
        return exponential_equation(d)
    return Problem(f"Find the set of all real solutions of $e^{{2x}} - {a + b}e^x + {a * b} = 0$.",
                   sp.FiniteSet(sp.log(a), sp.log(b)),
                   (sp.FiniteSet(a, b), sp.FiniteSet(-sp.log(a), -sp.log(b)),
                    sp.FiniteSet(sp.log(a)), sp.FiniteSet(sp.log(b))))


def cross_product(d: Draw) -> Problem:
    u, v = [d(-5, 5, without=()) for _ in range(3)], [d(-5, 5, without=()) for _ in range(3)]
    cross = sp.Matrix(u).cross(sp.Matrix(v))
    if not any(cross):
        return cross_product(d)
    return Problem(f"Compute the cross product $u \\times v$ of $u = ({', '.join(map(str, u))})$ and "
                   f"$v = ({', '.join(map(str, v))})$. Give the answer as an ordered triple.", sp.Tuple(*cross),
                   (sp.Tuple(*(-cross)), sp.Tuple(cross[0], -cross[1], cross[2]),
                    sp.Tuple(*(p * q for p, q in zip(u, v, strict=True)))))


def rational_inequality(d: Draw) -> Problem:
    a, b = d(-9, 9, without=()), d(-9, 9, without=())
    if a == b:
        return rational_inequality(d)
    sign = d.choice(("\\le", "<"))
    low, high = min(a, b), max(a, b)
    k, m = d(2, 5), d(1, 5)
    zero_open = sign == "<"  # at x = a the quotient is 0, at x = b it has no value
    answer = sp.Interval(low, high, zero_open if low == a else True, zero_open if high == a else True)
    return Problem(f"Solve $\\frac{{{tex(sp.expand(k * (X - a)))}}}{{{tex(sp.expand(m * (X - b)))}}} {sign} 0$. "
                   "Give the set of all real solutions in interval notation.", answer,
                   (sp.Interval(low, high), sp.Interval(low, high, True, True),
                    sp.Interval(low, high, True, False), sp.Interval(low, high, False, True)))


def plane_distance(d: Draw) -> Problem:
    normal = [d(-5, 5) for _ in range(3)]
    point = [d(-6, 6, without=()) for _ in range(3)]
    offset = d(-9, 9)
    top = abs(sum(n * p for n, p in zip(normal, point, strict=True)) - offset)
    if top == 0:
        return plane_distance(d)
    length = sp.sqrt(sum(n * n for n in normal))
    plane = tex(sum(n * s for n, s in zip(normal, sp.symbols("x y z"), strict=True)))
    return Problem(f"What is the distance of the point $({', '.join(map(str, point))})$ from the plane "
                   f"${plane} = {offset}$?", top / length,
                   (sp.Integer(top), sp.Integer(top) / length**2, (top + 2 * abs(offset)) / length))


def telescoping(d: Draw) -> Problem:
    m, k, c = d(1, 4), d(1, 9), d(0, 5, without=())
    answer = sp.Rational(k, m) * sum(sp.Rational(1, c + j) for j in range(1, m + 1))
    shift = "n" if c == 0 else f"(n + {c})"
    return Problem(f"Compute $\\sum_{{n=1}}^{{\\infty}} \\frac{{{k}}}{{{shift}(n + {c + m})}}$.", answer,
                   (answer * m, sp.Rational(k, c + 1), sp.Rational(k, (c + 1) * m),
                    sp.Rational(k, (c + 1) * (c + m + 1))))


TEMPLATES = {
    1: [linear_equation, sum_of_fractions, simplify_root, expand_product, slope],
    2: [integer_roots, linear_system, linear_inequality, arithmetic_series, vector_combination, logarithm],
    3: [surd_root, quadratic_inequality, distance, geometric_series, rationalize],
    4: [exponential_equation, cross_product],
    5: [rational_inequality, plane_distance, telescoping],
}
