"""Loading tasks: our own sets, files of a user, real benchmarks from files, folders and downloads."""

import collections
import hashlib
import json
import os
import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bamas_lite import benchmarks
from bamas_lite.answers import read_number
from bamas_lite.benchmarks import is_number
from bamas_lite.tasks import OWN_SETS, Task, TaskFileError, check_task, load_tasks

REAL = os.environ.get("BENCHMARKS", "")
needs_benchmarks = pytest.mark.skipif(not REAL or not Path(REAL).is_dir(),
                                      reason="BENCHMARKS names no folder with the real benchmark files")


def write_lines(path, *records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


# ---------------------------------------------------------------- our own sets

@pytest.mark.parametrize(("name", "domain", "at_least", "levels"), [
    ("word_problems", "arithmetic", 600, 8), ("algebra_calculus", "mathematics", 300, 5),
    ("python_functions", "code", 400, 3)])
def test_own_sets_have_what_they_promise(name, domain, at_least, levels):
    tasks = load_tasks(name)
    assert len(tasks) >= at_least
    assert {task.domain for task in tasks} == {domain} and {task.source for task in tasks} == {name}
    assert len({task.task_id for task in tasks}) == len({task.question for task in tasks}) == len(tasks)
    for split in ("train", "test"):
        count = collections.Counter(task.level for task in tasks if task.split == split)
        assert set(count) == set(range(1, levels + 1))
        assert min(count.values()) >= 0.8 * sum(count.values()) / levels
    assert all(3 <= len(task.wrong) <= 6 and len(set(task.wrong)) == len(task.wrong) for task in tasks)


def test_split_and_limit_choose_from_the_file_in_order():
    everything = load_tasks("word_problems")
    test = [task for task in everything if task.split == "test"]
    assert load_tasks("word_problems", split="test") == test
    assert load_tasks("word_problems", "test", limit=7) == test[:7]
    assert load_tasks("word_problems", limit=0) == []
    assert load_tasks("word_problems", limit=10**400) == everything


# ---------------------------------------------------------------- a user's own file

MINE = {"task_id": "mine/1", "domain": "arithmetic", "question": "A box holds 6 eggs. How many eggs are in 4 boxes?",
        "reference": "24"}
CODE = {"task_id": "mine/2", "domain": "code", "question": "Write double(x).",
        "reference": "def double(x): return 2 * x",
        "tests": ["assert double(2) == 4"], "entry_point": "double", "vote_inputs": ["double(3)"], "level": 2,
        "split": "train"}


def test_a_users_file_needs_four_fields_and_takes_all(tmp_path):
    path = write_lines(tmp_path / "x.jsonl", MINE, CODE)
    assert load_tasks("my tasks", path=path) == [
        Task(task_id="mine/1", domain="arithmetic", level=1, question=MINE["question"], reference="24", split="test",
             source="my tasks"),
        Task(task_id="mine/2", domain="code", level=2, question="Write double(x).", reference=CODE["reference"],
             split="train", tests=("assert double(2) == 4",), entry_point="double", vote_inputs=("double(3)",),
             source="my tasks")]
    assert [task.task_id for task in load_tasks("my tasks", "train", path=str(path))] == ["mine/2"]
    (tmp_path / "word_problems.jsonl").write_bytes(path.read_bytes())
    assert len(load_tasks("word_problems", path=tmp_path)) == 2  # a folder, which holds <name>.jsonl


def test_blank_lines_and_non_ascii_text_are_fine(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text("\n" + json.dumps({**MINE, "question": "Prix en \u20ac\u00a0?"}, ensure_ascii=False) + "\n\n",
                    encoding="utf-8")
    assert load_tasks("mine", path=path)[0].question == "Prix en \u20ac\u00a0?"


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps(MINE), encoding="utf-8-sig")
    assert load_tasks("mine", path=path)[0].task_id == "mine/1"
    release = tmp_path / "MATH" / "test" / "algebra" / "1.json"
    release.parent.mkdir(parents=True)
    release.write_text(json.dumps(MATH), encoding="utf-8-sig")
    assert load_tasks("math", path=tmp_path / "MATH")[0].task_id == "math/test/algebra/1"


@settings(max_examples=300)
@given(st.from_regex(r"[-+]?[$]?[0-9]{0,5}(,[0-9]{3}){0,2}[.]?[0-9]{0,3}(/[0-9]{1,3})?%?", fullmatch=True))
def test_grading_reads_every_reference_that_is_accepted_as_the_number_it_is(text):
    value = text.replace(",", "").replace("$", "").replace("%", "")
    if is_number(text):
        above, _, below = value.partition("/")
        assert read_number(text) == Fraction(above) / Fraction(below or 1)
    elif re.fullmatch(r"[-+]?[0-9]+([.][0-9]+)?", text):
        pytest.fail(f"{text} is a plain number")


def test_check_task_looks_at_equal_tasks_once_and_at_types_always():
    task = Task("mine/1", "arithmetic", 1, "How many?", "24")
    check_task(task)
    for change, words in (({"level": True}, "level = True"), ({"split": None}, "split = None"),
                          ({"wrong": ("7", 8)}, "wrong = "), ({"level": 1.0}, "level")):
        with pytest.raises(ValueError, match=f"task 'mine/1': {words}"):
            check_task(replace(task, **change))


@pytest.mark.parametrize(("content", "message"), [
    ("", "x.jsonl: the file is empty; expected one JSON object a line"),
    ("\n \n", "x.jsonl: the file is empty; expected one JSON object a line"),
    (json.dumps(MINE) + '\n{"task_id": ', r"x.jsonl, line 2: not valid JSON \(Expecting value at column \d+\)"),
    ("[1, 2]\n", "x.jsonl, line 1: expected a JSON object, found list"),
    (json.dumps({k: v for k, v in MINE.items() if k != "reference"}),
     "line 1: field 'reference' is missing; found 'task_id'"),
    ("{}", "line 1: field 'task_id' is missing; found no field"),
    (json.dumps({**MINE, "reference": 24}), "line 1: reference = 24: expected a text"),
    (json.dumps({**MINE, "level": "2"}), "line 1: level = '2': expected a whole number"),
    (json.dumps({**MINE, "level": True}), "line 1: level = True: expected a whole number"),
    (json.dumps({**MINE, "level": 0}), "line 1: level = 0: expected at least 1"),
    (json.dumps({**MINE, "wrong": "7"}), "line 1: wrong = '7': expected a list of texts"),
    (json.dumps({**MINE, "wrong": [7]}), r"line 1: wrong = \[7\]: expected a list of texts"),
    (json.dumps({**MINE, "question": " "}), "line 1: question = ' ': must not be empty"),
    (json.dumps({**MINE, "split": ""}), "line 1: split = '': must not be empty"),
    (json.dumps({**MINE, "domain": "poetry"}), "domain = 'poetry': expected one of arithmetic, mathematics, code"),
    (json.dumps({**MINE, "answer": "24"}), "line 1: unknown field 'answer'; known are task_id, domain,"),
    (json.dumps({**CODE, "tests": []}), "needs the fields 'tests' and 'entry_point'"),
    (json.dumps({**MINE, "level": 10**30}), "line 1: level = 1000.*: expected at least 1, at most 32,767"),
    (json.dumps({**MINE, "level": 0}).replace("0}", "1" * 5000 + "}"), "line 1: .*too many digits"),
    ("[" * 100_000, "line 1: not valid JSON .nested too deeply"),
    (json.dumps({**MINE, "reference": "abc"}), "line 1: reference = 'abc': expected a number"),
    (json.dumps({**MINE, "reference": "1,2,3"}), "line 1: reference = '1,2,3': expected a number"),
    (json.dumps({**MINE, "reference": "1" * 1000}), "line 1: reference = '111.*: expected a number"),
    (json.dumps({**MINE, "reference": "\u0663"}), "line 1: reference = '.': expected a number"),
    (json.dumps({**MINE, "reference": "3/0"}), "line 1: reference = '3/0': expected a number"),
    (json.dumps({**MINE, "question": "\ud800 eggs"}), "line 1: question = .*half a surrogate pair"),
    (json.dumps({**CODE, "tests": ["assert double("]}), r"line 1: tests\[0\] = 'assert double\(': expected Python"),
    (json.dumps({**CODE, "setup": "import"}), "line 1: setup = 'import': expected Python"),
    (json.dumps({**CODE, "reference": "def double(x) return"}), "line 1: reference = 'def .*': expected Python"),
    (json.dumps({**CODE, "reference": "x = 1\0"}), "line 1: reference = .*: expected Python"),
    (json.dumps({**CODE, "vote_inputs": ["double("]}), r"line 1: vote_inputs\[0\] = 'double\(': expected Python"),
    (json.dumps({**CODE, "entry_point": "1f"}), "line 1: entry_point = '1f': expected the name of a function"),
    (json.dumps({**CODE, "entry_point": "class"}), "line 1: entry_point = 'class': expected the name of a function"),
    (json.dumps(MINE) + "\n" + json.dumps(MINE), "line 2: task_id = 'mine/1': is used twice"),
])
def test_a_broken_file_gives_one_message_with_file_and_line(tmp_path, content, message):
    path = tmp_path / "x.jsonl"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(TaskFileError, match=message) as caught:
        load_tasks("mine", path=path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_file_that_is_not_utf8_or_not_there(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(json.dumps(MINE).encode() + b"\n\xff\xfe\n")
    with pytest.raises(TaskFileError, match="not UTF-8 text"):
        load_tasks("mine", path=path)
    for name in ("mine", "gsm8k", "word_problems"):
        with pytest.raises(TaskFileError, match="nowhere.jsonl: no such file"):
            load_tasks(name, path=tmp_path / "nowhere.jsonl")


@pytest.mark.parametrize(("arguments", "message"), [
    ({"name": "gsm9k"}, "task set = 'gsm9k': unknown; known are word_problems, .*gsm8k, mbpp, math; .*path="),
    ({"name": "word_problems", "split": "dev"},
     "split = 'dev': word_problems has no such tasks here; it has train, test"),
    ({"name": "mbpp", "split": "dev"}, "split = 'dev': mbpp has train, test, validation, prompt"),
    ({"name": "word_problems", "limit": -1}, "limit = -1: expected a whole number of at least 0, or None"),
    ({"name": "word_problems", "limit": 2.5}, "limit = 2.5: expected a whole number of at least 0, or None"),
    ({"name": "word_problems", "limit": True}, "limit = True: expected a whole number of at least 0, or None"),
    ({"name": "word_problems", "limit": -10**5000}, "limit = <int that cannot be shown>"),
    ({"name": None}, "task set = None: unknown"), ({"name": ["gsm8k"]}, r"task set = \['gsm8k'\]: unknown"),
    *(({"name": name, "path": path}, "path = .*expected the name of a file")
      for name in ("mine", "gsm8k", "math") for path in (5, b"x", "a" * 5000)),
    ({"name": "math", "split": "train"}, "the download holds test tasks only .*path="),
])
def test_wrong_arguments_give_one_message(arguments, message):
    with pytest.raises(TaskFileError, match=message):
        load_tasks(**arguments)


# ---------------------------------------------------------------- benchmark formats (records of our own making)

GSM = {"question": "Tom has 1,000 pens and buys 234 more. How many pens has he?",
       "answer": "1000 + 234 = 1234\nSo 1234.\n#### 1,234"}
PY = {"text": "Write a function to add two numbers.",
      "code": "def helper(a):\r\n    return a\r\ndef add(a, b):\r\n    return helper(a) + b",
      "task_id": 11, "test_setup_code": "", "challenge_test_list": [],
      "test_list": ["assert set([add(helper(1), 2)]) == {3}", "assert add(2, 2) == 4"]}
MATH = {"problem": "Compute $1/2+1/3$.", "solution": "We get $\\boxed{\\frac{5}{6}}$.", "level": "Level 2",
        "type": "Algebra"}


def test_gsm8k_lines(tmp_path):
    long = {"question": "q", "answer": "\n".join(f"step {i}" for i in range(12)) + "\n#### -3.5"}
    write_lines(tmp_path / "gsm8k_test.jsonl", GSM, long)
    first, second = load_tasks("gsm8k", path=tmp_path)
    assert (first.task_id, first.domain, first.level, first.reference, first.split, first.source) == (
        "gsm8k/test/0000", "arithmetic", 2, "1234", "test", "gsm8k")
    assert first.question == GSM["question"] and (second.level, second.reference) == (8, "-3.5")
    write_lines(tmp_path / "gsm8k_train.jsonl", GSM)
    assert [task.split for task in load_tasks("gsm8k", path=tmp_path)] == ["train", "test", "test"]
    assert [task.task_id for task in load_tasks("gsm8k", "train", path=tmp_path)] == ["gsm8k/train/0000"]
    with pytest.raises(TaskFileError, match="split = 'train': gsm8k has no such tasks here; it has test"):
        load_tasks("gsm8k", "train", path=tmp_path / "gsm8k_test.jsonl")


def test_mbpp_lines_and_official_splits(tmp_path):
    ends = (1, 10, 11, 510, 511, 600, 601, 974)
    path = write_lines(tmp_path / "mbpp.jsonl", *({**PY, "task_id": i} for i in ends))
    tasks = load_tasks("mbpp", path=tmp_path)
    assert [task.split for task in tasks] == ["prompt"] * 2 + ["test"] * 2 + ["validation"] * 2 + ["train"] * 2
    assert [task.task_id for task in load_tasks("mbpp", "validation", path=path)] == [
        "mbpp/validation/511", "mbpp/validation/600"]
    task = tasks[2]
    assert task.entry_point == "add" and task.vote_inputs == ("add(helper(1), 2)",)
    assert task.tests == tuple(PY["test_list"]) and "\r" not in task.reference
    assert "`add`" in task.question and "set([add(helper(1), 2)]) == {3}" in task.question
    assert "add(2, 2)" not in task.question  # a hidden assert
    assert task.level == 1
    lines = write_lines(tmp_path / "long.jsonl", *({**PY, "task_id": 10 + n, "code": PY["code"] + "\n" + "x = 1\n" * n}
                                                   for n in (3, 4)))
    assert [task.level for task in load_tasks("mbpp", path=lines)] == [2, 3]


def test_the_same_task_twice_is_named(tmp_path):
    path = write_lines(tmp_path / "m.jsonl", PY, PY)
    with pytest.raises(TaskFileError, match="line 2: task_id = 'mbpp/test/11': is used twice"):
        load_tasks("mbpp", path=path)


def test_mbpp_setup_is_shown_and_kept(tmp_path):
    record = {**PY, "test_setup_code": "root = 1 \r\nleaf = 2"}
    task, = load_tasks("mbpp", path=write_lines(tmp_path / "m.jsonl", record))
    assert task.setup == "root = 1 \nleaf = 2" and task.setup in task.question


def test_math_files_and_the_release_folder(tmp_path):
    with_answer = {"problem": "p", "solution": "s", "answer": "3", "level": 5, "unique_id": "test/algebra/17.json"}
    path = write_lines(tmp_path / "math500.jsonl", with_answer)
    task, = load_tasks("math", path=tmp_path)
    assert (task.task_id, task.reference, task.level, task.split) == ("math/test/algebra/17", "3", 5, "test")
    assert load_tasks("math", path=path) == [task]
    release = tmp_path / "MATH"
    records = {"train/algebra/10": MATH, "train/algebra/2": {**MATH, "level": "Level ?"},
               "test/geometry/1": {**MATH, "solution": "\\boxed{1} or \\boxed 7", "level": "Level 5"}}
    for place, record in records.items():
        (release / place).parent.mkdir(parents=True, exist_ok=True)
        write_lines(release / f"{place}.json", record)
    tasks = load_tasks("math", path=release)
    assert [(t.task_id, t.reference, t.level) for t in tasks] == [
        ("math/train/algebra/2", "\\frac{5}{6}", 3), ("math/train/algebra/10", "\\frac{5}{6}", 2),
        ("math/test/geometry/1", "7", 5)]
    assert load_tasks("math", "test", path=release) == tasks[2:]


@pytest.mark.parametrize(("name", "record", "message"), [
    ("gsm8k", {"question": "q", "answer": "just 7"}, "line 1: field 'answer' must end in '#### number'"),
    ("gsm8k", {"question": "q", "answer": "#### seven"}, "line 1: field 'answer' must end in '#### number'"),
    ("gsm8k", {"answer": "#### 7"}, "line 1: field 'question' is missing"),
    *(("gsm8k", {"question": "q", "answer": f"#### {n}"}, "line 1: field 'answer' must end in '#### number'")
      for n in ("1" * 1000, "\u0663", "1,2,3")),
    ("gsm8k", {"question": " ", "answer": "#### 7"}, "line 1: question = ' ': must not be empty"),
    ("mbpp", {**PY, "code": PY["code"] + "\n)"}, "line 1: reference = .*: expected Python"),
    ("mbpp", {**PY, "test_setup_code": "import"}, "line 1: setup = 'import': expected Python"),
    ("mbpp", {**PY, "test_list": ["assert x.add(1) == 1"]}, "line 1: test_list must call add"),
    ("math", {**MATH, "answer": " "}, "line 1: reference = '': must not be empty"),
    ("math", {**MATH, "unique_id": "dev/x"}, "line 1: unique_id = 'dev/x': expected train/... or test/..."),
    ("mbpp", {**PY, "task_id": "11"}, "line 1: task_id = '11': expected a whole number"),
    ("mbpp", {**PY, "task_id": 975}, "line 1: task_id = 975: expected 1 to 974"),
    ("mbpp", {**PY, "test_list": []}, "line 1: test_list must call a function that code defines"),
    ("mbpp", {**PY, "test_list": ["assert other(1) == 2"]}, "line 1: test_list must call a function that code defines"),
    ("mbpp", {**PY, "test_list": ["assert add(1 == 2"]}, "line 1: test_list holds a statement that is not Python"),
    ("mbpp", {**PY, "test_list": "assert"}, "line 1: test_list = 'assert': expected a list of texts"),
    ("math", {**MATH, "level": "Level 6"}, "line 1: level = 'Level 6': expected 1 to 5"),
    ("math", {**MATH, "level": None}, "line 1: level = None: expected 1 to 5"),
    ("math", {**MATH, "solution": "It is 5."}, "line 1: no field 'answer', and no .*boxed"),
    ("math", {**MATH, "solution": "\\boxed{\\frac{1}{2}"}, "line 1: no field 'answer', and no .*boxed"),
])
def test_a_broken_benchmark_line_says_what_was_expected(tmp_path, name, record, message):
    path = write_lines(tmp_path / "file.jsonl", record)
    with pytest.raises(TaskFileError, match=message) as caught:
        load_tasks(name, path=path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(("name", "wanted"), [("gsm8k", "gsm8k_train.jsonl or gsm8k_test.jsonl"),
                                              ("mbpp", "mbpp.jsonl"),
                                              ("math", "math500.jsonl, .*<split>/<subject>/<n>.json")])
def test_an_empty_folder_says_which_file_was_expected(tmp_path, name, wanted):
    with pytest.raises(TaskFileError, match=f"no {wanted} in this folder"):
        load_tasks(name, path=tmp_path)


def test_a_broken_file_of_the_math_release_is_named(tmp_path):
    (tmp_path / "train" / "algebra").mkdir(parents=True)
    (tmp_path / "train" / "algebra" / "1.json").write_text("{", encoding="utf-8")
    with pytest.raises(TaskFileError, match="1.json: not valid JSON"):
        load_tasks("math", path=tmp_path)


# ---------------------------------------------------------------- download

@pytest.fixture
def published(tmp_path, monkeypatch):
    """A published file behind a file:// address, and an empty cache folder."""
    source = write_lines(tmp_path / "published.jsonl", GSM)
    sha256 = hashlib.sha256(source.read_bytes()).hexdigest()
    monkeypatch.setattr(benchmarks, "DOWNLOADS", {"gsm8k_test.jsonl": (source.as_uri(), sha256)})
    monkeypatch.setattr(benchmarks, "cache_folder", lambda: tmp_path / "cache" / "bamas-lite")
    return source


def test_a_download_is_checked_and_kept(published, tmp_path):
    tasks = load_tasks("gsm8k", "test")
    assert [task.reference for task in tasks] == ["1234"]
    published.unlink()
    assert load_tasks("gsm8k", "test") == tasks  # from the cache
    kept = tmp_path / "cache" / "bamas-lite" / "gsm8k_test.jsonl"
    assert [file.name for file in kept.parent.iterdir()] == [kept.name]


def test_a_damaged_cache_is_fetched_again(published, tmp_path):
    kept = tmp_path / "cache" / "bamas-lite" / "gsm8k_test.jsonl"
    kept.parent.mkdir(parents=True)
    kept.write_text("half a li", encoding="utf-8")
    assert len(load_tasks("gsm8k", "test")) == 1
    assert kept.read_bytes() == published.read_bytes()


def test_a_wrong_checksum_names_both_and_leaves_nothing(published, tmp_path):
    expected = benchmarks.DOWNLOADS["gsm8k_test.jsonl"][1]
    write_lines(published, GSM, GSM)
    found = hashlib.sha256(published.read_bytes()).hexdigest()
    with pytest.raises(TaskFileError, match=f"expected sha256 {expected}, found {found}.*path="):
        load_tasks("gsm8k", "test")
    assert not list(tmp_path.rglob("cache/**/*.*"))


def test_without_network_the_message_says_how_to_go_on(published):
    published.unlink()
    with pytest.raises(TaskFileError, match=r"cannot be downloaded .*load_tasks\('gsm8k', path=<file or folder>\)"):
        load_tasks("gsm8k", "test")


def test_a_cache_that_cannot_be_written_is_one_message(published, tmp_path):
    (tmp_path / "cache").write_text("a file where the folder should be", encoding="utf-8")
    with pytest.raises(TaskFileError, match="gsm8k_test.jsonl: cannot be written .*path="):
        load_tasks("gsm8k", "test")


@pytest.mark.parametrize("name", OWN_SETS)
def test_own_sets_are_named_as_their_files(name):
    assert load_tasks(name, limit=1)[0].task_id.startswith(f"{name}/train/")


# ---------------------------------------------------------------- the real files

@needs_benchmarks
def test_real_files_are_the_published_bytes():
    for file, (_, sha256) in benchmarks.DOWNLOADS.items():
        assert hashlib.sha256((Path(REAL) / file).read_bytes()).hexdigest() == sha256, file


@needs_benchmarks
@pytest.mark.parametrize(("name", "splits"), [
    ("gsm8k", {"train": 7473, "test": 1319}), ("mbpp", {"train": 374, "test": 500, "validation": 90, "prompt": 10}),
    ("math", {"test": 500})])
def test_real_benchmarks_have_their_published_sizes(name, splits):
    tasks = load_tasks(name, path=REAL)
    assert collections.Counter(task.split for task in tasks) == splits
    assert len({task.task_id for task in tasks}) == len(tasks)
    for split, count in splits.items():
        assert len(load_tasks(name, split, path=REAL)) == count


@needs_benchmarks
def test_real_mbpp_asks_for_the_function_that_its_asserts_call():
    for task in load_tasks("mbpp", path=REAL):
        assert all(f"{task.entry_point}(" in test.replace(" (", "(") for test in task.tests), task.task_id
        assert task.vote_inputs[0] in task.question and task.vote_inputs[0].startswith(task.entry_point)
        assert not any(test.removeprefix("assert ").strip() in task.question for test in task.tests[1:]
                       if test.strip() != task.tests[0].strip()), task.task_id
