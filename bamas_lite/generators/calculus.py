"""Templates of calculus problems. Each draws numbers and returns the problem with its answer and typical mistakes."""

from __future__ import annotations

import sympy as sp

from bamas_lite.generators.algebra import X, tex
from bamas_lite.generators.common import Draw, Problem


def _polynomial(d: Draw, degree: int) -> sp.Expr:
    return sum((d(-6, 6) * X**k for k in range(degree)), d(1, 5) * X**degree)


def monomial_derivative(d: Draw) -> Problem:
    a, n, b = d(2, 12), d(2, 9), d(-12, 12)
    return Problem(f"Find the derivative of $f(x) = {tex(a * X**n + b * X)}$.", a * n * X ** (n - 1) + b,
                   (a * X ** (n - 1) + b, a * n * X**n + b, a * n * X ** (n - 1), a * n * X ** (n - 1) + b * X))


def evaluate_polynomial(d: Draw) -> Problem:
    f, at = _polynomial(d, 2), d(-6, 6, without=(0, 1))
    a, b, c = (f.coeff(X, k) for k in (2, 1, 0))
    return Problem(f"Let $f(x) = {tex(f)}$. What is $f({at})$?", f.subs(X, at),
                   (f.subs(X, -at), (a * at) ** 2 + b * at + c, 2 * a * at + b * at + c))


def cubic_derivative(d: Draw) -> Problem:
    f = _polynomial(d, 3)
    derivative = sp.diff(f, X)
    return Problem(f"Find the derivative of $f(x) = {tex(f)}$.", derivative,
                   (derivative + f.coeff(X, 0), sp.expand(derivative * X), sp.diff(f, X, 2), sp.integrate(f, X)))


def derivative_at(d: Draw) -> Problem:
    a, b, n, at = d(1, 4), d(-6, 6), d(2, 4), d(-3, 3)
    f = (a * X + b) ** n
    answer = sp.diff(f, X).subs(X, at)
    if answer == 0:
        return derivative_at(d)
    return Problem(f"Let $f(x) = {tex(f)}$. What is $f'({at})$?", answer,
                   (sp.Integer(n * (a * at + b) ** (n - 1)), f.subs(X, at), -answer))


def polynomial_integral(d: Draw) -> Problem:
    f, low, width = _polynomial(d, 2), d(-3, 2, without=()), d(1, 4)
    primitive = sp.integrate(f, X)
    top, bottom = primitive.subs(X, low + width), primitive.subs(X, low)
    if top == bottom:
        return polynomial_integral(d)
    return Problem(f"Compute $\\int_{{{low}}}^{{{low + width}}} \\left({tex(f)}\\right) dx$.", top - bottom,
                   (bottom - top, top + bottom, top, f.subs(X, low + width) - f.subs(X, low)))


def limit_of_quotient(d: Draw) -> Problem:
    a, b, k = d(-9, 9), d(-9, 9), d(1, 4)
    if a + b == 0 or a == b:
        return limit_of_quotient(d)
    top, bottom = sp.expand(k * (X**2 - a**2)), sp.expand((X - a) * (X + b))
    return Problem(f"Compute $\\lim_{{x \\to {a}}} \\frac{{{tex(top)}}}{{{tex(bottom)}}}$.",
                   sp.Rational(2 * a * k, a + b), (sp.Integer(0), sp.Integer(k), sp.Rational(a * k, a + b),
                                                   sp.Rational(2 * a * k, a - b)))


def tangent_line(d: Draw) -> Problem:
    f, at = _polynomial(d, 2), d(-4, 4)
    m, y = sp.diff(f, X).subs(X, at), f.subs(X, at)
    if m == 0:
        return tangent_line(d)
    return Problem(f"The tangent line to the graph of $f(x) = {tex(f)}$ at $x = {at}$ has the equation $y = g(x)$. "
                   "Find $g(x)$.", sp.expand(m * (X - at) + y),
                   (m * X + y, sp.expand(m * (X + at) + y), sp.expand(y * (X - at) + m)))


def exponential_derivative(d: Draw) -> Problem:
    a, b, k = d(1, 9), d(-9, 9), d(-5, 5, without=(0, 1))
    e = sp.exp(k * X)
    return Problem(f"Find the derivative of $f(x) = ({tex(a * X + b)})e^{{{tex(k * X)}}}$.",
                   (a * k * X + a + b * k) * e,
                   (a * k * e, (a * X + a + b) * e, k * (a * X + b) * e, a * e))


def arctangent_integral(d: Draw) -> Problem:
    a, k = d(1, 9), d(1, 15)
    return Problem(f"Compute $\\int_{{0}}^{{{a}}} \\frac{{{k}}}{{x^2 + {a * a}}} \\, dx$.", k * sp.pi / (4 * a),
                   (k * sp.pi / 4, k * sp.pi / (2 * a), k * sp.pi / (4 * a * a), k * sp.log(2) / 2))


def logarithmic_integral(d: Draw) -> Problem:
    low, width, k, c = d(1, 6), d(1, 8), d(2, 9), d(1, 5)
    high = low + width
    log = sp.log(sp.Rational(high + c, low + c))
    return Problem(f"Compute $\\int_{{{low}}}^{{{high}}} \\frac{{{k}}}{{x + {c}}} \\, dx$.", k * log,
                   (-k * log, log, k * sp.log(sp.Rational(high, low)), k * sp.log(width)))


def critical_points(d: Draw) -> Problem:
    a, b, k = d(-7, 7, without=()), d(-7, 7, without=()), d(1, 3)
    c = d(-9, 9, without=())
    if a == b or a == -b:
        return critical_points(d)
    f = sp.integrate(sp.expand(6 * k * (X - a) * (X - b)), X) + c
    return Problem(f"Find the set of all $x$ at which $f(x) = {tex(f)}$ has a local maximum or a local minimum.",
                   sp.FiniteSet(a, b), (sp.FiniteSet(-a, -b), sp.FiniteSet(a), sp.FiniteSet(b), sp.FiniteSet(a, -b)))


def area_between(d: Draw) -> Problem:
    a, width, k, m = d(-5, 3, without=()), d(1, 6), d(1, 3), d(-5, 5)
    b = a + width
    parabola = sp.expand(k * (X - a) * (X - b) + m * X)
    return Problem(f"Find the area of the region between the graphs of $y = {tex(parabola)}$ "
                   f"and $y = {tex(m * X)}$.",
                   sp.Rational(k * width**3, 6), (sp.Rational(width**3, 6 * k), sp.Rational(k * width**3, 3),
                                                  sp.Rational(k * width**2, 2), -sp.Rational(k * width**3, 6)))


def volume_of_revolution(d: Draw) -> Problem:
    a, n, b = d(1, 6), d(1, 4), d(1, 4)
    value = sp.Rational(a * a * b ** (2 * n + 1), 2 * n + 1)
    return Problem(f"The region between the graph of $y = {tex(a * X**n)}$ and the $x$-axis, for $0 \\le x \\le {b}$, "
                   "is rotated about the $x$-axis. Find the volume of the solid.", value * sp.pi,
                   (value, sp.Rational(a * b ** (n + 1), n + 1) * sp.pi, 2 * value * sp.pi,
                    sp.Rational(a * b ** (2 * n + 1), 2 * n + 1) * sp.pi))


def integral_by_parts(d: Draw) -> Problem:
    k, b, c = d(-4, 4), d(1, 4), d(1, 6)
    end = sp.exp(k * b)
    answer = sp.Rational(c, k * k) * (end * (k * b - 1) + 1)
    return Problem(f"Compute $\\int_{{0}}^{{{b}}} {tex(c * X)} e^{{{tex(k * X)}}} \\, dx$.", sp.expand(answer),
                   (sp.expand(answer - sp.Rational(c, k * k)), sp.expand(sp.Rational(c * b * b, 2) * end),
                    sp.expand(sp.Rational(c, k * k) * (end * (k * b + 1) + 1)), sp.expand(c * b * end / k)))


def exponential_limit(d: Draw) -> Problem:
    a, b, c = d(-6, 6), d(1, 6), d(1, 5)
    sign = f"+ \\frac{{{a}}}" if a > 0 else f"- \\frac{{{-a}}}"
    exponent = sp.Rational(a * b, c)
    return Problem(f"Compute $\\lim_{{x \\to \\infty}} \\left(1 {sign}{{{tex(c * X)}}}\\right)^{{{tex(b * X)}}}$.",
                   sp.exp(exponent), (sp.Integer(1), sp.exp(sp.Rational(a, c)), sp.exp(-exponent), exponent))


def root_limit(d: Draw) -> Problem:
    k, a, b = d(1, 4), d(-12, 12), d(-12, 12)
    if a == b:
        return root_limit(d)
    one, two = tex(k * k * X**2 + a * X), tex(k * k * X**2 + b * X)
    return Problem(f"Compute $\\lim_{{x \\to \\infty}} \\left(\\sqrt{{{one}}} - \\sqrt{{{two}}}\\right)$.",
                   sp.Rational(a - b, 2 * k), (sp.Integer(0), sp.Rational(a - b, k), sp.Rational(b - a, 2 * k),
                                               sp.Rational(a + b, 2 * k)))


def constrained_maximum(d: Draw) -> Problem:
    a, b, square = d(1, 9), d(-9, 9), d(1, 20)
    x, y = sp.symbols("x y")
    return Problem(f"Find the largest value of ${tex(a * x + b * y)}$ for real numbers $x$, $y$ with "
                   f"$x^2 + y^2 = {square}$.", sp.sqrt(square * (a * a + b * b)),
                   (square * sp.sqrt(a * a + b * b), sp.sqrt(square) * (a + abs(b)), (a + abs(b)) * sp.sqrt(square) / 2,
                    sp.sqrt(a * a + b * b)))


def differential_equation(d: Draw) -> Problem:
    a, b, c = d(-5, 5, without=(0, 1, -1)), d(-9, 9), d(-6, 6)
    shift = sp.Rational(b, a)
    if c + shift == 0:
        return differential_equation(d)
    y = sp.Symbol("y")
    return Problem(f"A function $y = y(x)$ satisfies $y' = {tex(a * y + b)}$ and $y(0) = {c}$. Find $y(x)$.",
                   (c + shift) * sp.exp(a * X) - shift,
                   (c * sp.exp(a * X) + b, (c - shift) * sp.exp(a * X) + shift, (c + shift) * sp.exp(a * X),
                    (c + shift) * sp.exp(-a * X) - shift))


TEMPLATES = {
    1: [monomial_derivative, evaluate_polynomial],
    2: [cubic_derivative, derivative_at],
    3: [polynomial_integral, limit_of_quotient, tangent_line],
    4: [exponential_derivative, arctangent_integral, logarithmic_integral, critical_points, area_between],
    5: [volume_of_revolution, integral_by_parts, exponential_limit, root_limit, constrained_maximum,
        differential_equation],
}
