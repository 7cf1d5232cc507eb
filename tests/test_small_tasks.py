"""Small tasks: the committed file, and answers against readers that know only the words."""

import re
from collections import Counter

import pytest

from bamas_lite import generators
from bamas_lite.generators import small_tasks
from bamas_lite.generators.small_tasks import KINDS, kind_of
from bamas_lite.grading import grade, vote_key
from bamas_lite.paths import DATA
from bamas_lite.tasks import load_tasks

CLASSES = {   # another list of what is what, written for this test
    "animal": "cat cow dog duck horse lion rabbit sheep", "musical instrument": "cello drum flute guitar harp piano "
    "trumpet violin", "color": "black blue brown green pink red white yellow",
    "fruit": "apple banana cherry grape lemon orange peach plum",
    "day of the week": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    "piece of furniture": "bed bench chair desk shelf sofa stool table",
    "part of the body": "arm ear elbow finger foot hand knee nose", "thing to wear": "coat dress glove hat scarf shirt "
    "shoe sock"}
ALSO = {"color": {"orange", "peach", "plum"}}   # what else could pass for one


@pytest.fixture(scope="module")
def tasks():
    return load_tasks("small_tasks")


def of_kind(tasks, *names):
    return [task for task in tasks if kind_of(task.task_id) in names]


def reply(task, answer):
    return f"```python\n{answer}\n```" if task.domain == "code" else f"#### {answer}"


def test_the_committed_file_is_what_the_generator_makes(tasks):
    path = DATA / "tasks" / "small_tasks.jsonl"
    assert path.read_bytes() == generators.committed("small_tasks").encode("utf-8")
    assert len(tasks) >= 180 and path.stat().st_size < 200_000


def test_splits_are_disjoint_seeds_differ_and_sizes_nest(tasks):
    train, test = ({task.question for task in tasks if task.split == split} for split in ("train", "test"))
    assert not train & test and len(train) == len(test) == len(tasks) // 2
    other = {task.question for task in small_tasks.generate(40, 6, "train")}
    assert not other & test and other != {task.question for task in small_tasks.generate(40, 7, "train")}
    assert small_tasks.generate(9, 6, "train") == small_tasks.generate(40, 6, "train")[:9]


def test_every_kind_is_there_equally_often(tasks):
    assert set(Counter(kind_of(task.task_id) for task in tasks).values()) == {len(tasks) // len(KINDS)}
    assert {task.domain for task in of_kind(tasks, "function")} == {"code"}
    assert {task.level for task in of_kind(tasks, "two_steps")} == {2}
    assert {task.level for task in of_kind(tasks, "one_step", "choice", "function")} == {1}


def passes(task, program):
    try:
        exec("\n".join((program, *task.tests)), {})
    except Exception:
        return False
    return True


def test_references_are_right_and_wrong_answers_are_wrong(tasks):
    for task in tasks:
        right = passes if task.domain == "code" else lambda task, answer: grade(task, reply(task, answer)).correct
        assert right(task, task.reference) and len(set(task.wrong)) == len(task.wrong) >= 2, task
        assert not any(right(task, wrong) for wrong in task.wrong), task


def test_functions_are_graded_as_they_run(tasks):
    for task in of_kind(tasks, "function")[::8]:
        assert grade(task, reply(task, task.reference)).correct
        assert not any(grade(task, reply(task, wrong)).correct for wrong in task.wrong[:2])


SENTENCES = {   # how a reader understands each question
    r"has (\d+) (\w+) and gets (\d+) more\. How many \2 does": lambda a, b: a + b,
    r"has (\d+) (\w+) and gives (\d+) away\. How many \2 are left": lambda a, b: a - b,
    r"has (\d+) (\w+) with (\d+) (\w+) in each\. How many \4 does": lambda a, b: a * b,
    r"puts (\d+) (\w+) into (\d+) (\w+), the same number in each\. How many \2 are in one of the \4":
        lambda a, b: a // b if a % b == 0 else None,
    r"has (\d+) (\w+), gets (\d+) more and then gives (\d+) away\. How many \2 does": lambda a, b, c: a + b - c,
    r"has (\d+) (\w+), finds (\d+) more and buys (\d+) more\. How many \2 does": lambda a, b, c: a + b + c,
    r"has (\d+) (\w+) with (\d+) (\w+) in each and (\d+) more \4\. How many \4 does": lambda a, b, c: a * b + c,
    r"has (\d+) (\w+) with (\d+) (\w+) in each and gives (\d+) \4 away\. How many \4 are left":
        lambda a, b, c: a * b - c,
}


def test_word_problems_have_the_answers_of_a_second_reader(tasks):
    stories = of_kind([*tasks, *small_tasks.generate(140, 3)], "one_step", "two_steps")
    used = Counter()
    for task in stories:
        (pattern, solve), *more = [(p, s) for p, s in SENTENCES.items() if re.search(p, task.question)]
        numbers = [int(number) for number in re.findall(r"\d+", task.question)]
        assert not more and str(solve(*numbers)) == task.reference and int(task.reference) > 0, task
        assert task.level == len(numbers) - 1
        used[pattern] += 1
    assert set(used) == set(SENTENCES)


def test_choices_have_exactly_one_right_option(tasks):
    asked = Counter()
    more = [task for seed in range(4) for task in small_tasks.generate(120, seed)]
    for task in of_kind([*tasks, *more], "choice"):
        what, options = re.fullmatch(r"Which of these is (?:an? |the )(.+): (.+)\? Answer with the number\.",
                                     task.question).groups()
        words = re.findall(r"(\w+) \((\d)\)", options)
        assert [number for _, number in words] == ["1", "2", "3"] and len({word for word, _ in words}) == 3
        if what in CLASSES:
            right = [number for word, number in words if word in CLASSES[what].split() or word in ALSO.get(what, ())]
        else:
            best = {"largest number": max, "smallest number": min}[what](int(word) for word, _ in words)
            right = [number for word, number in words if int(word) == best]
        assert right == [task.reference], task
        asked[what] += 1
    assert set(asked) == {*CLASSES, "largest number", "smallest number"}
    share = Counter(task.reference for task in of_kind(more, "choice"))
    assert min(share.values()) > 0.2 * sum(share.values()), "no option may be right nearly always"


def test_functions_show_a_call_that_is_true_and_hide_others(tasks):
    for task in of_kind(tasks, "function"):
        call, value = re.search(r"For example, (.+) returns (.+)\.$", task.question).groups()
        assert task.vote_inputs == (call,) and f"def {task.entry_point}(" in task.reference
        names = {}
        exec(task.reference, names)
        assert repr(eval(call, names)) == value
        assert len(task.tests) >= 2 and not any(call in test for test in task.tests)
        constant = re.search(r"== (.+)$", task.tests[0])[1]
        always = f"def {task.entry_point}(x):\n    return {constant}"
        assert not passes(task, always), "one constant passes all tests"


def test_star_can_vote_on_functions(tasks):
    task = of_kind(tasks, "function")[0]
    assert vote_key(task, reply(task, task.reference)) is not None


def test_a_set_that_is_too_large_is_one_message():
    with pytest.raises(ValueError, match="n = 5000: there are not so many different tasks"):
        small_tasks.generate(5000, 1)
