"""Problems of algebra and calculus with LaTeX answers, of five levels (the templates are in algebra.py, calculus.py).

Level 1 takes one rule, level 2 two, level 3 a standard method, level 4 a method and care with its cases, level 5
several methods together: our ranking, by the work that a solution takes.
"""

from __future__ import annotations

from collections.abc import Callable

import sympy as sp

from bamas_lite.generators import algebra, calculus
from bamas_lite.generators.common import Draw, Problem, in_split, split_generator
from bamas_lite.tasks import Task

NAME = "algebra_calculus"
LEVELS = 5
_X = sp.Symbol("x")

TEMPLATES: dict[int, list[Callable[[Draw], Problem]]] = {
    level: algebra.TEMPLATES[level] + calculus.TEMPLATES[level] for level in range(1, LEVELS + 1)
}


def to_latex(answer: sp.Basic) -> str:
    r"""How an answer is written: "\frac{1}{2}", "\left(1, 2\right)", "\left\{1, 2\right\}", "\left[1, 2\right)"."""
    if isinstance(answer, sp.Tuple):
        return "\\left(" + ", ".join(map(to_latex, answer)) + "\\right)"
    return sp.latex(answer, ln_notation=True)


def same(one: sp.Basic, other: sp.Basic) -> bool:
    """Whether two answers are equal: sets exactly, expressions by their values at two points."""
    if isinstance(one, sp.Tuple) and isinstance(other, sp.Tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if one == other or not (isinstance(one, sp.Expr) and isinstance(other, sp.Expr)):
        return bool(one == other)
    if one.is_Rational and other.is_Rational:
        return False
    difference = one - other
    return all(abs(sp.N(difference.subs(_X, point))) < 1e-9 for point in (sp.Rational(7, 10), sp.Rational(13, 9)))


def _slips(answer: sp.Basic) -> list[sp.Basic]:
    """Answers that a slip of the pen would give, of the same kind as `answer`."""
    if isinstance(answer, sp.Tuple):
        first, *rest = answer
        return [sp.Tuple(*reversed(answer)), sp.Tuple(-first, *rest), sp.Tuple(*(-part for part in answer)),
                sp.Tuple(first + 1, *rest), sp.Tuple(first, *(part + 1 for part in rest))]
    if isinstance(answer, sp.FiniteSet):
        first, *rest = sorted(answer, key=lambda number: float(number))
        return [sp.FiniteSet(*(-part for part in answer)), sp.FiniteSet(first + 1, *rest),
                sp.FiniteSet(first - 1, *rest), sp.FiniteSet(-first, *rest), sp.FiniteSet(first)]
    if isinstance(answer, sp.Interval):
        low, high, left, right = answer.args
        finite = [end for end in (low, high) if end.is_finite]
        return [sp.Interval(low, high, not left and low.is_finite, not right and high.is_finite),
                sp.Interval(-high, -low, right, left), sp.Interval(low, high + 1, left, right),
                sp.Interval(low - 1, high, left, right), sp.Interval(finite[0], sp.oo, left, True),
                sp.Interval(-sp.oo, finite[0], True, right)]
    return [answer + 1, 2 * answer, answer / 2, -answer, answer - 1, answer + 2]


def _wrong_answers(problem: Problem) -> tuple[str, ...]:
    """Up to five wrong answers: the template's mistakes first, then slips; none equals the answer or another one."""
    found: list[sp.Basic] = []
    for candidate in [*map(sp.sympify, problem.mistakes), *_slips(problem.answer)]:
        nonsense = candidate.has(sp.nan, sp.zoo) or candidate in (sp.oo, sp.EmptySet)
        if len(found) < 5 and not nonsense and not any(same(candidate, other) for other in [problem.answer, *found]):
            found.append(candidate)
    return tuple(map(to_latex, found))


def generate(n: int, seed: int, split: str = "test") -> list[Task]:
    """Make `n` problems: levels 1, 2, ..., 5, 1, 2, ... in turn, the same for the same arguments.

    A question belongs to a split by a hash of its text, so train and test never share one, whatever the seeds.

    Raises:
        ValueError: n is negative, split is neither "train" nor "test", or there are no `n` different questions.
    """
    rng = split_generator(NAME, n, seed, split)
    draw = Draw(rng)
    tasks: list[Task] = []
    seen: set[str] = set()
    rejected = 0
    while len(tasks) < n:
        level = 1 + len(tasks) % LEVELS
        templates = TEMPLATES[level]
        problem = templates[rng.integers(len(templates))](draw)
        if problem.question in seen or not in_split(problem.question, split):
            rejected += 1
            if rejected > 1000:
                raise ValueError(f"n = {n}: only about {len(tasks)} different questions can be made")
            continue
        rejected = 0
        seen.add(problem.question)
        tasks.append(Task(task_id=f"{NAME}/{split}/{len(tasks):04d}", domain="mathematics", level=level,
                          question=problem.question, reference=to_latex(problem.answer), split=split,
                          wrong=_wrong_answers(problem), source=NAME))
    return tasks
