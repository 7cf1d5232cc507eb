import concurrent.futures
import os
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from bamas_lite import grading, latex
from bamas_lite.answers import find_box, find_latex, find_number, find_program, read_number
from bamas_lite.grading import Grade, extract_answer, grade, grade_many, vote_key
from bamas_lite.latex import same_latex
from bamas_lite.tasks import Task

EIGHTEEN = Task("t/18", "arithmetic", 2, "How many?", "18")
HALF = Task("t/half", "mathematics", 2, "What?", r"\frac{1}{2}")
DOUBLE = Task("t/double", "code", 1, "Double it.", "def f(x):\n    return x * 2\n", tests=("assert f(2) == 4",
    "assert f('a') == 'aa'"),
              entry_point="f", vote_inputs=("f(2)", "f([1])"))


@pytest.mark.parametrize("reply, value", [
    ("#### 18", 18), ("#### 18\n", 18), ("####18", 18), ("#### 18.", 18), ("#### 18.00", 18), ("#### **18**", 18),
    ("> #### 18", 18), ("First 3.\n#### 4\nNo:\n#### 18 apples", 18), ("#### 18 dollars per 2 hours", 18),
    ("#### 7 packs and 2 sticks", None), ("#### Answer: 18", 18), ("#### total = 18", 18), ("#### 3 + 4 = 7 apples", 7),
    ("#### 1,234", 1234), ("#### 1,234,567.50", Fraction("1234567.5")), ("#### 1 234 567", 1234567),
    ("#### 1\u202f234", 1234), ("#### 12,34,567", None), ("#### 3,5", None), ("#### 4, 5", None),
    ("#### $18", 18), ("#### $ 1,234.50", Fraction("1234.5")), ("#### 18\u20ac", 18), ("#### \u20ac18", 18),
    ("#### 18 EUR", 18),
    ("#### USD18", 18), ("#### EUR 18", 18), ("#### US$18", 18),
    ("#### 50%", 50), ("#### 12.5 %", Fraction("12.5")), ("\\boxed{50\\%}", 50),
    ("#### 3/4", Fraction(3, 4)), ("#### 3 / 4", Fraction(3, 4)), ("#### 2 1/2", Fraction(5, 2)),
    ("#### 2\u00bd", Fraction(5, 2)),
    ("#### 2 and 1/2 cups", Fraction(5, 2)), ("#### 100 1/2", Fraction(201, 2)), ("#### 3/0", None),
    ("#### .5", Fraction(1, 2)),
    ("#### -5", -5), ("#### \u22125", -5), ("#### \u20135", -5), ("#### -$5", -5), ("#### $-5", -5),
    ("#### (-5)", -5), ("#### -2 1/2", Fraction(-5, 2)),
    ("#### +5", 5),
    ("#### 1.2e3", 1200), ("#### 1.2E-3", Fraction("0.0012")), ("#### 1.2 x 10^3", 1200),
    ("#### 1.2 \u00d7 10^{3}", 1200),
    ("#### 1.2 \\times 10^{-3}", Fraction("0.0012")), ("#### 10^6", 10**6), ("#### 2^5", None),
    ("#### 10-15", None), ("#### 10 - 15", None), ("#### 10 to 15", None), ("#### 10\u201315", None),
    ("#### $10-$15", None),
    ("#### 2024-05-01", None), ("#### 5/1/2024", None), ("#### 12:30", None), ("#### 3:4", None), ("#### 1.2.3", None),
    ("#### 2\\pi", None), ("#### H2O", None), ("#### 3\u00b2", None),
    ("\\boxed{18}", 18), ("so \\boxed{12}, then \\boxed{18}.", 18), ("\\boxed{\\frac{3}{4}}", Fraction(3, 4)),
    ("\\boxed 5", 5),
    ("\\boxed{-\\dfrac{1}{2}}", Fraction(-1, 2)), ("\\boxed{2\\frac{1}{2}}", Fraction(5, 2)),
    ("\\boxed{1{,}234}", 1234), ("\\boxed{1\\,234}", 1234),
    ("\\boxed{\\$18}", 18), ("\\boxed{18\\text{ apples}}", 18), ("\\boxed{x = 18}", 18), ("\\boxed{1", None),
    ("12 so \\boxed{", None),
    ("\\boxed{5}\n#### 18", 18), ("The answer is 18.", 18), ("**Answer:** 18", 18), ("The answer is:\n\n**18**", 18),
    ("The answer is 3. No, the answer is 4.", 4), ("The answer is $12.50. He has 3 left.", Fraction("12.5")),
    ("The answer is 12 = 3*4", 12),
    ("#### Step 3: add\nThe answer is 9", 9), ("#### Step 3\nso 9 eggs", 9),
    ("He runs 30 + 20 = 50 miles.", 50), ("7 cats, 3 dogs and 18.", 18), ("She owes $18.00!", 18),
    ("She was born 2001-05-06 and has 3 cats. It is 12:30.", 3),
    ("It is 90 - k.", None), ("#### 90 - k", None), ("#### 18 + 2n", None), ("It is 18 - a dozen and a half.", 18),
    ("It takes 5-7 days for 9 eggs, from 3 to 4 p.m.", 9), ("x2 H2O", None), ("", None), ("no number", None),
    ("nan", None), ("inf", None), ("####", None),
])
def test_the_number_of_a_reply(reply, value):
    assert find_number(reply) == value


@pytest.mark.parametrize("line, value", [
    *((line, None) for line in (
        "18 or 20", "18, 20", "18 1", "3 + 6", "3 * 6", "3 x 6", "3 times 6", "18 minus 3", "3 by 4", "3 : 4", "18; 20",
        "7 hours 30 minutes", "3 feet 2 inches", "18 apples and 3 pears", "18 of them or 20", "> 18", ">= 18",
        "\\le 18", "1_800", "$1.5M")),
    ("$1.5 million", 1_500_000), ("18 thousand", 18_000), ("18k", 18_000), ("18 km", 18), ("2 dozen", 24),
    ("1/2 dozen", 6), ("2 dozens", 2),
    ("minus 18", -18), ("negative 18", -18), ("minus $5", -5), ("1'800", 1800), ("1\u2019800", 1800),
    ("not 18 but 19", 19), ("~~19~~ 18", 18), ("<b>18</b>", 18), ("\uff11\uff18", 18),
    ("$12 and 50 cents", Fraction("12.5")), ("12 dollars and 5 cents", Fraction("12.05")),
    ("18 = 18.00", 18), ("18 or 18.00", 18), ("3 * 6 -> 18", 18), ("18 m^{2}", 18), ("18 cm2", 18), ("18 (3 x 6)", 18),
    ("18, because 3 + 15 = 18", 18), ("18 apples in 2 weeks", 18)])
def test_an_answer_line_states_one_number(line, value):
    """Several different quantities are no answer; scale words, signs in words and strikes are read."""
    assert find_number(f"#### {line}") == find_number(f"7 and 9. \\boxed{{{line}}}") == value
    if not line.startswith(("~", ">", "\\")):
        assert find_number(f"The answer is {line}") == value


@given(st.integers(2, 10**6), st.integers(2, 10**6), st.sampled_from(
    ["{} or {}", "{}, {}", "{} + {}", "{} * {}", "{} : {}", "{} apples and {} pears", "{} feet {} inches", "{} & {}"]))
@hypothesis_settings(max_examples=100)
def test_two_different_numbers_are_no_answer(one, other, form):
    expected = Fraction(one) if one == other else None
    assert find_number("#### " + form.format(one, other)) == expected


@pytest.mark.parametrize("reply", [None, 18, b"#### 18", ["#### 18"], float("nan")])
def test_a_reply_that_is_no_text_holds_no_answer(reply):
    for task in (EIGHTEEN, HALF, DOUBLE):
        assert extract_answer(task.domain, reply) is None and vote_key(task, reply) is None
        assert grade(task, reply) == Grade(False, None, "no answer found")


def test_tasks_may_be_made_with_lists():
    task = Task("t/list", "code", 1, "?", "", tests=["assert f() == 1"], entry_point="f", vote_inputs=["f()"], wrong=[])
    assert grade(task, "def f(): return 1").correct and vote_key(task, "def f(): return 1") == ("1",)
    for wrong in ("assert f() == 1", None):
        with pytest.raises(TypeError, match="tests = .*: expected a tuple"):
            Task("t/text", "code", 1, "?", "", tests=wrong)


@given(st.integers(-10**12, 10**12), st.sampled_from(["{}", "{:,}", "${:,}", "{:,} apples", "**{}**", "{}.00",
    "{:,}.0 EUR", "{:e}"]),
       st.sampled_from(["so\n#### {}", "7 of 9.\n\\boxed{{{}}}", "12, so the answer is {}.", "1 and 2 make {}"]))
@hypothesis_settings(max_examples=150)
def test_a_whole_number_is_read_in_every_way_of_writing_it(number, form, frame):
    if form == "{:e}":
        number = int(float(f"{number:e}"))
    text = frame.format(form.format(number))
    assert find_number(text) == (Fraction(f"{number:e}") if form == "{:e}" else number), text


@given(st.text(alphabet="0123456789 ,.-/:^$%()\\{}ex#*abc\n=\u2212\u00bd\u20ac", max_size=80) | st.text(max_size=60))
@hypothesis_settings(max_examples=300)
def test_no_text_raises(text):
    for domain in ("arithmetic", "mathematics", "code"):
        for reply in (text, f"#### {text}", f"\\boxed{{{text}}}", f"```python\n{text}\n```"):
            answer = extract_answer(domain, reply)
            assert answer is None or (isinstance(answer, str) and answer.strip())


@pytest.mark.parametrize("text", [
    "9" * 10**6, "#### " + "9" * 10**6, "1e999999", "#### 1e-99999999999", "10^999999999", "1 " * 10**5,
    "1,111" * 10**5, "\\boxed{" * 10**5,
    "\\frac{1" * 10**5, "-" * 10**6, "answer is " * 10**5, "$" * 10**5, "####\n" * 10**5, "\udcff\x00 1",
    "\u0663\u0664", "```" * 10**5,
    "```python\n" * 10**4, "{" * 10**6 + "}" * 10**6, "#### " + "1/" * 10**5, "\u00bd" * 10**5, "(" * 10**5])
def test_hostile_text_is_read_or_refused_but_never_raises(text):
    for domain in ("arithmetic", "mathematics", "code"):
        answer = extract_answer(domain, text)
        assert answer is None or len(answer) <= len(text)
    assert not grade(EIGHTEEN, text).correct


def test_numbers_are_compared_exactly():
    third = Task("t/third", "arithmetic", 1, "?", "1/3")
    assert grade(third, "#### 2/6").correct
    assert not grade(third, "#### 0.3333333333333333333333").correct
    tenths = Task("t/tenths", "arithmetic", 1, "?", "0.3")
    assert grade(tenths, "#### 3/10").correct and not grade(tenths, "#### 0.30000000000000004").correct
    big = Task("t/big", "arithmetic", 1, "?", "9,007,199,254,740,993")
    assert grade(big, "#### 9007199254740993").correct and not grade(big, "#### 9007199254740992").correct


def test_a_grade_says_what_was_found_and_why_it_is_wrong():
    assert grade(EIGHTEEN, "6 * 3\n#### $18.00") == Grade(True, "18")
    assert grade(EIGHTEEN, "#### 17") == Grade(False, "17", "the answer is 18")
    assert grade(EIGHTEEN, "I do not know.") == Grade(False, None, "no answer found")


@pytest.mark.parametrize("text, box", [
    (r"\boxed{1}", "1"), (r"\boxed{\frac{a}{\sqrt{b}}} x", r"\frac{a}{\sqrt{b}}"),
    (r"\boxed{1} and \boxed{\{2\}}", r"\{2\}"),
    (r"\boxed{ 3 }", "3"), (r"\fbox{4}", "4"), (r"\boxed 7", "7"), (r"\boxed{1} \boxed{\frac{2}{3}", None),
    (r"\boxed{}", None),
    (r"\boxed{a\\b}", r"a\\b"), ("none", None)])
def test_the_last_box(text, box):
    assert find_box(text) == box


@pytest.mark.parametrize("reply, latex_answer", [
    (r"So $x = 2$. \boxed{x^2}", "x^2"), (r"The answer is $\frac{1}{2}$.", r"\frac{1}{2}"), ("The answer is: 7", "7"),
    (r"we get $y$ and then $z+1$.", "z+1"), (r"it is 12 in the end", "12"), (r"\boxed{\frac{1}", None), ("", None),
    ("hm", None),
    ("#### 3x", "3x")])
def test_the_latex_of_a_reply(reply, latex_answer):
    assert find_latex(reply) == latex_answer


@pytest.mark.parametrize("one, other", [
    (r"\frac{1}{2}", "0.5"), (r"\frac{3}{4}", "3/4"), ("3", "x = 3"), (r"\text{Evelyn}", "Evelyn"), (r"\text{(C)}",
    "C"), (r"90^\circ", "90"),
    ("90", r"90\text{ degrees}"), ("[1,2)", "[1, 2)"), (r"[-2,7]", r"-2 \le x \le 7"), (r"\{1,2\}", r"\{2, 1\}"),
    ("1,2", "2,1"),
    (r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}", r"\begin{bmatrix}1&2\\3&4\end{bmatrix}"), ("x^2-1", "(x-1)(x+1)"),
    (r"2\sqrt{3}", r"\sqrt{12}"), ("5", r"5\text{ cm}"), ("10", r"10\%"), ("1000", "1,000"), (r"\left(3,4\right)",
    "(3,4)"), (r"3 \pm 1", "4, 2"),
    (r"\sin^2 x+\cos^2 x", "1"), (r"-\frac{1}{2}", r"\frac{-1}{2}"), ("e^{2x}", "(e^x)^2"), ("10_{2}", "10_2"),
    (r"\dfrac12", r"\frac{1}{2}"), (r"\frac{1}{2}", r"\frac 1 2"), ("12", "12_{10}"), ("12_8", "12"), ("7", "7;"),
    ("7", r"7\;"), ("7", "\uff17"), ("1e5", "100000"), ("4", "2 + 2 = 4"), ("30", r"\theta_1 = 30"),
    ("4", r"\text{Area} = 4"), (r"\frac{3}{2}", "1 1/2"), ("1000", r"1\,000"), ("1000", "1 000"),
    ("12,345", r"12,\!345"), (r"2\sqrt{2}", r"\sqrt{8} = 2\sqrt{2}"), ("10", r"10\text{ apples, in all}"),
    (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{pmatrix}1\\ 2\end{pmatrix}")])
def test_equal_latex(one, other):
    assert same_latex(one, other)


@pytest.mark.parametrize("one, other", [
    ("3", "4"), (r"\frac{1}{2}", r"\frac{1}{3}"), ("[1,2)", "(1,2)"), ("[1,2)", "[1,2]"), (r"\{1,2\}", r"\{1,3\}"),
    ("(3,4)", "(4,3)"),
    (r"\begin{pmatrix} 1 & 2 \end{pmatrix}", r"\begin{pmatrix} 1 & 3 \end{pmatrix}"), ("x^2-1", "x^2+1"), ("3",
    "1,2,3"), ("3", "3 or 4"),
    (r"\text{Evelyn}", "Carla"), (r"\text{(C)}", "(D)"), ("5", "-5"), ("x", "y"), ("10_2", "10_3"), (r"\frac{1}{3}",
    "0.33"), ("5", ""),
    ("1,2", "1"), ("3", "x=4"), ("10^{100}", "10^{100}+1"), ("3", "2<x<4"), ("1", r"\frac{0}{0}"),
    ("4", "3 = 4"), ("4", "2 + 3 = 4"), (r"2\sqrt{2}", r"\sqrt{9} = 2\sqrt{2}"), ("12", "12_8"), ("11", "1 1"),
    ("11", "1~1"), ("5", "5,5"), ("5", "5; 5"), ("0.5", "0.50000001")])
def test_different_latex(one, other):
    assert not same_latex(one, other)


def test_endless_latex_costs_its_time_limit_and_harms_nothing(monkeypatch):
    monkeypatch.setattr(latex, "SECONDS", 1.0)
    for answer in ("9^{9^{9^9}}", "(10^9)!", "(" * 500, "\x00\udcff", "x" * 5_000, '__import__("os").getcwd()'):
        assert grade(HALF, rf"\boxed{{{answer}}}").correct is False
    assert same_latex(r"\sqrt{4}", "2.0")   # a worker is there again


def test_a_dead_worker_changes_no_verdict():
    task = Task("t/dead", "mathematics", 1, "?", r"\sqrt{8}")
    assert same_latex(r"\sqrt{8}", r"\sqrt{4} \sqrt{2}")
    assert latex._pool._idle
    for worker in latex._pool._idle:
        worker.kill()
        worker.wait()
    assert grade(task, r"\boxed{2\sqrt2}").correct


@pytest.mark.skipif(not hasattr(os, "getpgid"), reason="process groups are POSIX's")
def test_the_terminals_interrupt_does_not_reach_the_workers():
    assert same_latex(r"\sqrt{8}", r"\sqrt{4} \sqrt{2}")
    assert all(os.getpgid(worker.pid) != os.getpgid(0) for worker in latex._pool._idle)


def test_a_verdict_from_a_death_or_a_delay_is_not_remembered(monkeypatch):
    task, reply = Task("t/undecided", "mathematics", 1, "?", r"\sqrt{18}"), r"\boxed{3\sqrt2}"
    exchange, died = latex._exchange, []

    def deadly(worker, request):
        worker.kill()
        worker.wait()
        died.append(worker)
        return exchange(worker, request)

    monkeypatch.setattr(latex, "_exchange", deadly)
    found = grade(task, reply)
    assert not found.correct and "ended the process" in found.reason and len(died) == 2
    assert vote_key(task, reply) == r"3\sqrt2"
    monkeypatch.setattr(latex, "_exchange", exchange)
    latex.close()
    monkeypatch.setattr(latex, "SECONDS", 0.001)
    found = grade(task, reply)
    assert not found.correct and "too long" in found.reason
    monkeypatch.undo()
    assert grade(task, reply).correct
    assert vote_key(task, reply) == vote_key(task, r"\boxed{\sqrt{18}}")


def test_latex_in_threads_and_in_a_running_event_loop():
    import asyncio

    async def in_loop():
        return grade(HALF, r"\boxed{\frac{2}{4} + 0}")

    assert asyncio.run(in_loop()).correct
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        assert all(threads.map(lambda n: same_latex(f"{n}.5", rf"\frac{{{2 * n + 1}}}{{2}} + 0"), range(6)))


@pytest.mark.parametrize("reply, program", [
    ("Here:\n```python\ndef f(): pass\n```\nDone.", "def f(): pass\n"), ("```py\nx = 1\n```", "x = 1\n"),
    ("```\ndef f(): pass\n```", "def f(): pass\n"),
    ("```python\ndef f(): return 1\n```\nbetter:\n```python\ndef f(): return 2\n```", "def f(): return 2\n"),
    ("```python\ndef f(): return 1\n```\nUse it:\n```python\nprint(f())\n```", "def f(): return 1\n"),
    ("```python\ndef f(): return 1\n```\n```text\n1\n```", "def f(): return 1\n"), ("```text\n1\n```", None),
    ("```python\ndef f(): return 1\n```\nThen:\n```python\ndef f(): ret", None), ("```python\ndef f(): return", None),
    ("   ```python\n   def f():\n       return 1\n   ```", "def f():\n    return 1\n"),
    ("```Python\r\nx = 1\r\n```\r\n", "x = 1\r\n"),
    ("def f(x):\n    return x", "def f(x):\n    return x"), ("import math\nf = math.sqrt",
    "import math\nf = math.sqrt"), ("f = lambda x: x", "f = lambda x: x"),
    ("Write def f.", None), ("I would use a loop.", None), ("", None), ("```python\n\n```", None)])
def test_the_program_of_a_reply(reply, program):
    assert find_program(reply) == program


def test_programs_are_graded_by_what_they_do():
    assert grade(DOUBLE, "```python\ndef f(x):\n    return x + x\n```") == Grade(True, "def f(x):\n    return x + x\n")
    wrong = grade(DOUBLE, "def f(x): return 4")
    assert not wrong.correct and "f('a')" in wrong.reason
    assert "SyntaxError" in grade(DOUBLE, "def f(x): return (").reason
    assert "ZeroDivisionError" in grade(DOUBLE, "def f(x): return x / 0").reason
    assert "NameError" in grade(DOUBLE, "def g(x): return x").reason


def test_votes():
    assert vote_key(EIGHTEEN, "#### 18") == vote_key(EIGHTEEN, "it is $18.00") != vote_key(EIGHTEEN, "#### 17")
    assert vote_key(EIGHTEEN, "none") is None
    assert vote_key(HALF, r"\boxed{0.5}") == vote_key(HALF, r"\boxed{\frac{4}{8}}") != vote_key(HALF, r"\boxed{2}")
    assert vote_key(DOUBLE, "def f(x): return x * 2") == vote_key(DOUBLE, "def f(x):\n    return x + x") == ("4",
        "[1, 1]")
    assert vote_key(DOUBLE, "def f(x): return x ** 2") == ("4", "raises TypeError")
    assert vote_key(DOUBLE, "def f(x): return y") is None and vote_key(DOUBLE, "def f(x): (") is None


def test_the_vote_needs_neither_reference_nor_tests():
    blind = Task("t/blind", "code", 1, "?", "not read",
        tests=("assert undefined",), entry_point="f", vote_inputs=("f(3)",))
    assert vote_key(blind, "def f(x): return {x, 1}") == ("set(1, 3)",)


def test_an_answer_is_verified_once(monkeypatch):
    task = Task("t/once", "code", 1, "?", "", tests=("assert f() == 1",), entry_point="f")
    runs = []
    original = grading.run_python
    monkeypatch.setattr(grading, "run_python", lambda *a, **k: runs.append(a) or original(*a, **k))
    for reply in ("```python\ndef f(): return 1\n```", "Now:\n```python\ndef f(): return 1\n```",
        "```python\ndef f(): return 2\n```"):
        grade(task, reply)
    assert len(runs) == 2


def test_many_at_once():
    pairs = [(EIGHTEEN, f"#### {n}") for n in (17, 18, 19)] + [(DOUBLE, f"def f(x): return x * {n}") for n in (1, 2, 3)]
    assert [g.correct for g in grade_many(pairs, workers=3)] == [False, True, False] * 2


@pytest.mark.parametrize("task, message", [
    (Task("t/1", "arithmetic", 1, "?", "many"), "reference = 'many'"), (Task("t/2", "poetry", 1, "?", "a"),
    "domain = 'poetry'"),
    (Task("t/3", "code", 1, "?", "", tests=("assert (",), entry_point="f"), r"tests\[0\] = 'assert \('")])
def test_a_broken_task_is_named(task, message):
    with pytest.raises(ValueError, match=message):
        grade(task, "def f(): pass\n#### 1" if task.domain != "code" else "def f(): pass")


def test_a_number_with_its_unit():
    assert read_number("$1,234.50") == Fraction("1234.5") and read_number("cups") is None
