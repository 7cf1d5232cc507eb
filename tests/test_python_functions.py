"""The committed task set of Python functions and its generator. Programs run in a few processes of their own."""

import ast
import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from itertools import permutations

import pytest

from bamas_lite.generators import SEED, SIZES, python_functions
from bamas_lite.generators.python_functions import FAMILIES, further, generate, running
from bamas_lite.generators.python_functions.running import MAX_STEPS, observe
from bamas_lite.paths import DATA
from bamas_lite.tasks import load_tasks

FILE = DATA / "tasks" / "python_functions.jsonl"

RUNNER = '''
import json, sys
for line in sys.stdin:
    program, checks = json.loads(line)
    verdicts = []
    try:
        names = {}
        exec(program, names)
    except Exception as error:
        verdicts = [type(error).__name__] * len(checks)
    else:
        for check in checks:
            try:
                verdicts.append(exec(check, names) or "" if check.startswith("assert ") else repr(eval(check, names)))
            except Exception as error:
                verdicts.append(type(error).__name__)
    print(json.dumps(verdicts))
'''


def run(jobs, seconds=60):
    """Run (program, checks) pairs in one process: for an assert "" or the error that it raised, for a call its value.

    Independent of the generator: no step limit, no shared code, the real assert statements.
    """
    text = "".join(json.dumps(job) + "\n" for job in jobs)
    done = subprocess.run([sys.executable, "-I", "-c", RUNNER], input=text, capture_output=True, text=True,
                          encoding="utf-8", timeout=seconds, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def tasks():
    return load_tasks("python_functions")


@pytest.fixture(scope="module")
def later():
    """Tasks of the families that join later only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(python_functions, "FAMILIES", further.FAMILIES)
        return [task for split in ("train", "test") for task in generate(54, SEED, split)]


@pytest.fixture(params=["committed", "later"])
def tasks_of_all_families(request, tasks):
    return tasks if request.param == "committed" else request.getfixturevalue("later")


def examples(task):
    return re.findall(r"^(.+?) returns (.+)$", task.question.split("\nExamples:\n")[1], flags=re.M)


def called(test):
    return test.removeprefix("assert ").split(" == ")[0]


def test_counts(tasks):
    assert len(FAMILIES) >= 44 and len({family.name for family in FAMILIES}) == len(FAMILIES)
    assert len({task.entry_point for task in tasks}) >= 44
    assert len(tasks) >= 440
    by = Counter((task.split, task.level) for task in tasks)
    assert {split for split, _ in by} == {"train", "test"} and {level for _, level in by} == {1, 2, 3}
    assert max(by.values()) - min(by.values()) <= 1
    assert len({task.question for task in tasks}) == len({task.task_id for task in tasks}) == len(tasks)
    assert FILE.stat().st_size < 1_500_000


def test_fields(tasks_of_all_families):
    tasks = tasks_of_all_families
    for task in tasks:
        assert task.domain == "code" and task.source == "python_functions" and not task.setup
        assert 5 <= len(task.tests) <= 8 and len(set(task.tests)) == len(task.tests)
        assert 4 <= len(task.wrong) <= 5 and len(set(task.wrong)) == len(task.wrong)
        assert f"`{task.entry_point}(" in task.question and "$" not in task.question + task.reference
        assert all(test.startswith(f"assert {task.entry_point}(") for test in task.tests)
        for program in (task.reference, *task.wrong):
            functions = [node.name for node in ast.parse(program).body if isinstance(node, ast.FunctionDef)]
            assert functions == [task.entry_point]


def test_every_reference_passes_and_every_example_is_true(tasks_of_all_families):
    tasks = tasks_of_all_families
    jobs = [(task.reference, [*task.tests, *(f"assert {call} == {value}" for call, value in examples(task))])
            for task in tasks]
    failed = [task.task_id for task, verdicts in zip(tasks, run(jobs), strict=True) if any(verdicts)]
    assert failed == []


def test_every_wrong_program_fails_an_assert_and_ends(tasks_of_all_families):
    tasks = tasks_of_all_families
    jobs = [(program, task.tests) for task in tasks for program in task.wrong]
    owners = [task.task_id for task in tasks for _ in task.wrong]
    passed = [owner for owner, verdicts in zip(owners, run(jobs), strict=True) if not any(verdicts)]
    assert passed == []


def test_wrong_programs_are_plausible_and_unlike_each_other(tasks_of_all_families):
    tasks = tasks_of_all_families
    jobs = [(program, [called(test) for test in task.tests]) for task in tasks for program in task.wrong]
    results = iter(run(jobs))
    crash_or_none = distinct = 0
    for task in tasks:
        rows = [next(results) for _ in task.wrong]
        crash_or_none += sum(all(value == "None" or value.endswith("Error") for value in row) for row in rows)
        distinct += len({tuple(row) for row in rows}) == len(rows)
    assert crash_or_none <= 0.02 * len(jobs)
    assert distinct >= 0.9 * len(tasks)


def test_the_question_shows_the_vote_inputs_and_no_hidden_assert(tasks_of_all_families):
    tasks = tasks_of_all_families
    for task in tasks:
        shown = examples(task)
        assert tuple(call for call, _ in shown) == task.vote_inputs and len(shown) >= 2
        assert len({value for _, value in shown}) > 1
        for test in task.tests:
            assert called(test) not in task.question


def test_the_asserts_tell_the_settings_of_a_family_apart(tasks_of_all_families):
    tasks = tasks_of_all_families
    families = defaultdict(list)
    for task in tasks:
        families[task.entry_point].append(task)
    pairs = [(one, other) for members in families.values() for one, other in permutations(members, 2)]
    verdicts = run([(one.reference, other.tests) for one, other in pairs])
    same = Counter(one.entry_point for (one, _), verdict in zip(pairs, verdicts, strict=True) if not any(verdict))
    assert sum(same.values()) <= 0.01 * len(pairs)
    assert len(same) <= len(families) // 10


def test_settings_of_a_family_give_different_programs_and_statements():
    for family in FAMILIES:
        assert len(family.grid) >= 8
        assert len({family.program(setting) for setting in family.grid}) == len(family.grid)
        assert len({family.describe(setting) for setting in family.grid}) == len(family.grid)


def test_the_committed_file_is_what_the_generator_makes(tasks):
    for split in ("train", "test"):
        committed = [task for task in tasks if task.split == split]
        assert len(committed) == SIZES["python_functions"]
        assert generate(30, SEED, split) == committed[:30]
        planned = python_functions._settings(split)[:len(committed)]
        assert [task.question.split("\n")[0] for task in committed] == [
            family.describe(setting) for family, setting in planned]


@pytest.mark.parametrize(("split", "least"), [("train", 400), ("test", 520)])
def test_there_are_enough_different_tasks_for_a_set_as_large_as_the_papers(split, least):
    plan = python_functions._settings(split)
    assert len(plan) >= least
    assert len({family.describe(setting) for family, setting in plan}) == len(plan)
    assert {family.name for family, _ in plan[:least]} == {family.name for family in FAMILIES}
    levels = Counter(family.level for family, _ in plan[:least])
    assert max(levels.values()) - min(levels.values()) <= 1
    other = {family.describe(setting) for family, setting in python_functions._settings("train" if split == "test" else
                                                                                        "test")}
    assert other.isdisjoint(family.describe(setting) for family, setting in plan)


def test_another_seed_gives_other_inputs_but_keeps_the_splits_apart():
    one, other = generate(6, 1, "test"), generate(6, 2, "test")
    assert all(a.question.split("\n")[0] == b.question.split("\n")[0] for a, b in zip(one, other, strict=True))
    assert [task.tests for task in one] != [task.tests for task in other]
    train = {task.question.split("\n")[0] for task in generate(6, 2, "train")}
    assert train.isdisjoint(task.question.split("\n")[0] for task in other)


@pytest.mark.parametrize(("n", "seed", "split", "message"), [
    (5000, 0, "test", r"n = 5000: expected at most \d+"), (-1, 0, "test", "n = -1"), (1, -2, "test", "seed = -2"),
    (1, 0, "dev", "split = 'dev'")])
def test_wrong_arguments(n, seed, split, message):
    with pytest.raises(ValueError, match=message):
        generate(n, seed, split)


def test_observe_reports_values_errors_and_endless_calls():
    program = "def f(n):\n    while n != 0:\n        n -= 2\n    return [n]\n\ndef g():\n    return 1 // 0\n"
    fine, error = observe(program, ["f(8)", "g()"])
    assert fine.ok and fine.value == [0] and fine.text == "[0]"
    assert not error.ok and error.text == "ZeroDivisionError" and not error.equals(error)
    assert observe(program, ["f(8)", "f(7)"]) is None
    assert observe(program, [f"f({2 * MAX_STEPS})"]) is None


def test_the_limit_counts_lines_also_where_few_rounds_are_counted_first(monkeypatch):
    program = ("def g(n):\n    if n > 0:\n        g(n - 1)\n    return n\n\n"
               "def f(n):\n    for i in range(n):\n        i += 1\n    return n\n\n"
               "def h(n):\n    return sum(i for i in range(n))\n")
    monkeypatch.setattr(running, "MAX_STEPS", 301)
    for call, lines in (("f", lambda n: 2 * n + 2), ("g", lambda n: 3 * (n + 1) - 1)):  # header, body; the return
        most = max(n for n in range(301) if lines(n) <= 301)
        for n in (1, 10, most):
            assert observe(program.split("\n\n")["gf".index(call)] + "\n", [f"{call}({n})"])[0].value == n
        assert observe(program.split("\n\n")["gf".index(call)] + "\n", [f"{call}({most + 1})"]) is None
    assert running._ticking(program.split("\n\n")[2]) is None
