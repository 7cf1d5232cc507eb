import ast
from itertools import islice

import numpy as np
import pytest

from bamas_lite.mutants import mutants

PROGRAM = '''
def longest(words, least):
    best = None
    for i, word in enumerate(sorted(words, key=len)):
        if len(word) >= least and not word.isdigit():
            best = word
            continue
        best = best[:len(best) - 1] if best else word
    return best
'''


def every(program, seed=0):
    return list(mutants(program, np.random.default_rng(seed)))


def body(text):
    return ast.unparse(ast.parse(text))


def test_mutants_are_valid_different_programs_one_edit_away():
    found = every(PROGRAM)
    assert len(found) == len(set(found)) >= 15
    right = body(PROGRAM)
    for text in found:
        assert body(text) == text != right
        ast.parse(text)


def test_the_same_generator_state_gives_the_same_mutants():
    assert every(PROGRAM, 3) == every(PROGRAM, 3) != every(PROGRAM, 4)
    assert sorted(every(PROGRAM, 3)) == sorted(every(PROGRAM, 4))


@pytest.mark.parametrize(("program", "slip"), [
    ("x = a < b", "x = a <= b"), ("x = a == b", "x = a != b"), ("x = a in b", "x = a not in b"),
    ("x = 7", "x = 8"), ("x = 7", "x = 6"), ("x = True", "x = False"),
    ("x = a + b", "x = a - b"), ("x = a // b", "x = a % b"), ("x += a", "x -= a"),
    ("x = a and b", "x = a or b"), ("x = not a", "x = a"), ("x = -a", "x = a"),
    ("x = a if c else b", "x = b if c else b"), ("x = a if c else b", "x = a if not c else b"),
    ("x = [a for a in b if a]", "x = [a for a in b]"),
    ("x = max(a, b)", "x = min(a, b)"), ("x = a.lower()", "x = a.upper()"), ("x = a.lower()", "x = a"),
    ("x = a[i:j]", "x = a[i:]"), ("x = a[i:j]", "x = a[i:j - 1]"), ("x = a[::2]", "x = a[:]"),
    ("x = range(n)", "x = range(n - 1)"), ("x = range(n)", "x = range(1, n)"),
    ("x = range(a, n)", "x = range(a, n + 1)"),
    ("x = range(n + 1)", "x = range(n)"), ("x = range(n - 1)", "x = range(n - 2)"),
    ("x = sorted(a, reverse=True)", "x = sorted(a)"), ("x = f(a, b)", "x = f(b, a)"),
    ("def f():\n    return a", "def f():\n    return"),
    ("def f():\n    for i in a:\n        b\n    return c",
     "def f():\n    for i in a:\n        b\n        return c\n    return c"),
    ("if a:\n    b\nc", "c"), ("if a:\n    b\nc", "b\nc"), ("if a:\n    b\nelse:\n    c", "c"),
    ("x += a\nb", "b"), ("x.append(a)\nb", "b"),
    ("for i in a:\n    break", "for i in a:\n    continue"),
])
def test_kinds_of_slips(program, slip):
    assert body(slip) in every(program)


def test_an_edit_is_undone_before_the_next_one():
    right = body("a = 1\nb = 2\nc = 3").splitlines()
    for text in every("a = 1\nb = 2\nc = 3"):
        assert sum(x != y for x, y in zip(text.splitlines(), right, strict=True)) == 1


def test_kinds_take_turns():
    program = "\n".join(f"x{i} = {i}" for i in range(50)) + "\ny = a < b"
    first_two = list(islice(mutants(program, np.random.default_rng(0)), 2))
    assert sum("y = a < b" not in text for text in first_two) == 1


def test_nothing_to_edit_gives_no_mutants_and_bad_syntax_is_an_error():
    assert every("x = a") == []
    with pytest.raises(SyntaxError):
        every("def f(:")
