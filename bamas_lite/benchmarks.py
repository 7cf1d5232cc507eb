"""Real benchmarks - GSM8K, MBPP, MATH - as their authors publish them: where the files are, and what a line means.

Nothing of them is part of this project: they are read from a file or folder of the user, or downloaded (with a
checksum) into the user's cache folder. `tasks.load_tasks` turns what is read here into tasks.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import sys
import urllib.request
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

from bamas_lite.inputs import shown

BENCHMARKS = {"gsm8k": ("train", "test"), "mbpp": ("train", "test", "validation", "prompt"), "math": ("train", "test")}
"""The real benchmarks and their splits."""

_GSM8K = ("https://raw.githubusercontent.com/openai/grade-school-math/3101c7d5072418e28b9008a6636bde82a006892c/"
          "grade_school_math/data/")
DOWNLOADS = {
    "gsm8k_train.jsonl": (_GSM8K + "train.jsonl", "17f347dc51477c50d4efb83959dbb7c56297aba886e5544ee2aaed3024813465"),
    "gsm8k_test.jsonl": (_GSM8K + "test.jsonl", "3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14"),
    "mbpp.jsonl": ("https://raw.githubusercontent.com/google-research/google-research/"
                   "4700efb9afa54286b0e04473ba80a13e8461e25f/mbpp/mbpp.jsonl",
                   "ccf64ceae9c5403bf50a044cb6d505bfd2a2963ee58338ba268fd65beab92a9f"),
    "math500.jsonl": ("https://huggingface.co/datasets/HuggingFaceH4/MATH-500/resolve/"
                      "6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be/test.jsonl",
                      "35dc41080a3680858b27fa7e0533d2d547825316fc5dafe5d316f4ccc5a06132"),
}
"""File name -> (address of one fixed version, its sha256). Of MATH, the 500 test tasks known as MATH-500."""


class TaskFileError(ValueError):
    """A task file that cannot be used, or a wrong argument of load_tasks; says what was found and what is expected."""


def read_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The JSON objects of a .jsonl file, each with its place ("file, line 3") for error messages.

    Raises:
        TaskFileError: no such file, not UTF-8, a line that is no JSON object, or no line at all.
    """
    if not path.is_file():
        raise TaskFileError(f"{path}: no such file")
    number, records = 0, 0
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    records += 1
                    yield f"{path}, line {number}", _json_object(line, f"{path}, line {number}")
    except UnicodeDecodeError as error:
        raise TaskFileError(f"{path}: not UTF-8 text after line {number} ({error.reason})") from None
    except OSError as error:
        raise TaskFileError(f"{path}: cannot be read ({error.strerror})") from None
    if records == 0:
        raise TaskFileError(f"{path}: the file is empty; expected one JSON object a line")


def _json_object(text: str, place: str) -> dict[str, Any]:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:  # a plain ValueError: a number of more than 4,300 digits
        what = f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else (
            "nested too deeply" if isinstance(error, RecursionError) else "a number has too many digits")
        raise TaskFileError(f"{place}: not valid JSON ({what}); expected one JSON object") from None
    if not isinstance(record, dict):
        raise TaskFileError(f"{place}: expected a JSON object, found {type(record).__name__}")
    return record


def field(record: dict[str, Any], key: str, kind: type, place: str) -> Any:
    """record[key], checked to be there and of a JSON type (str, int, or list for a list of texts)."""
    if key not in record:
        raise TaskFileError(f"{place}: field {key!r} is missing; found {', '.join(map(repr, record)) or 'no field'}")
    value = record[key]
    right = isinstance(value, kind) and not isinstance(value, bool)
    if kind is list:
        right = right and all(isinstance(item, str) for item in value)
    if not right:
        expected = {str: "a text", int: "a whole number", list: "a list of texts"}[kind]
        raise TaskFileError(f"{place}: {key} = {shown(value)}: expected {expected}")
    return value


_NUMBER = re.compile(r"[-+]?\$?(?:(?:[0-9]{1,3}(?:,[0-9]{3}){1,9}|[0-9]{1,30})(?:\.[0-9]{1,30})?|\.[0-9]{1,30})"
                     r"(?:/0{0,9}[1-9][0-9]{0,29})?%?")


def is_number(text: str) -> bool:
    """Whether a reference is a plain number which grading reads: 24, -3.5, 1,234, $5, 3/4, 50%."""
    return _NUMBER.fullmatch(text.strip()) is not None


def python_tree(source: str, mode: str = "exec") -> ast.AST | str:
    """The syntax tree of Python statements (or of an expression: mode "eval"); a text says why there is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a published test may hold an odd escape such as "\d"
        try:
            return ast.parse(source, mode=mode)
        except SyntaxError as error:
            return error.msg
        except (ValueError, RecursionError, MemoryError) as error:  # NUL; nested too deeply
            return str(error) or "nested too deeply"


def benchmark_fields(name: str, split: str | None, path: Path | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """The tasks of a real benchmark in the order of the files: place (for messages) and keyword arguments of Task.

    Args:
        name: a key of BENCHMARKS.
        split: one of its splits, or None for all that are there.
        path: a file, a folder, or None for a download.
    """
    if name == "math" and path is not None and any((path / s).is_dir() for s in BENCHMARKS["math"]):
        yield from _math_folder(path, split)
        return
    convert: Callable[[dict[str, Any], str, str, int], dict[str, Any]]
    convert = {"gsm8k": gsm8k_fields, "mbpp": mbpp_fields, "math": math_fields}[name]
    for file in _files(name, split, path):
        file_split = "train" if "train" in file.stem else "test"
        for number, (place, record) in enumerate(read_lines(file)):
            yield place, convert(record, place, file_split, number)


def _files(name: str, split: str | None, path: Path | None) -> list[Path]:
    """The .jsonl files that hold a benchmark (or one split of it)."""
    wanted = {"gsm8k": [f"gsm8k_{s}.jsonl" for s in ("train", "test") if split in (s, None)],
              "mbpp": ["mbpp.jsonl"], "math": ["math500.jsonl"]}[name]
    if path is None:
        if name == "math" and split == "train":
            raise TaskFileError("math: the download holds test tasks only (MATH-500); for split 'train' give "
                                "path= the folder of the MATH release, which holds <split>/<subject>/<n>.json")
        return [download(*DOWNLOADS[file], cache_folder() / file, name) for file in wanted]
    if not path.is_dir():
        return [path]
    if name == "math":
        found = sorted(path.glob("math*.jsonl"))
        wanted = ["math500.jsonl, math*.jsonl or <split>/<subject>/<n>.json"]
    else:
        found = [path / file for file in wanted if (path / file).is_file()]
    if not found:
        raise TaskFileError(f"{path}: no {' or '.join(wanted)} in this folder")
    return found


def gsm8k_fields(record: dict[str, Any], place: str, split: str, number: int) -> dict[str, Any]:
    """A line of GSM8K; the level is the number of solution steps (lines before "####"), at most 8."""
    steps, found, reference = field(record, "answer", str, place).rpartition("####")
    reference = reference.strip()
    if not found or not is_number(reference):
        raise TaskFileError(f"{place}: field 'answer' must end in '#### number'")
    level = min(8, max(1, sum(bool(line.strip()) for line in steps.splitlines())))
    return dict(task_id=f"gsm8k/{split}/{number:04d}", domain="arithmetic", level=level, split=split,
                question=field(record, "question", str, place), reference=reference.replace("$", "").replace(",", ""))


def mbpp_fields(record: dict[str, Any], place: str, split: str, number: int) -> dict[str, Any]:
    """A line of MBPP, with the official split by task_id.

    The question shows the first assert as its example, and Star votes on the call in it: the other asserts stay hidden.
    (The usual MBPP prompt shows all three.) Grading uses all of them, as the official metric does. The level is 1 for
    a reference program of at most 4 lines, 2 for at most 7, else 3 (about a third of the tasks each).
    """
    task_id = field(record, "task_id", int, place)
    program, tests = (field(record, key, kind, place) for key, kind in (("code", str), ("test_list", list)))
    setup = field(record, "test_setup_code", str, place).replace("\r\n", "\n").strip()
    defined = re.findall(r"^def\s+(\w+)", program, re.MULTILINE)
    called = [name for name in re.findall(r"(\w+)\s*\(", tests[0]) if name in defined] if tests else []
    if not called:
        raise TaskFileError(f"{place}: test_list must call a function that code defines")
    example = tests[0].strip().removeprefix("assert").strip()
    question = [field(record, "text", str, place).strip(), f"Name the function `{called[0]}`."]
    if setup:
        question.append(f"These statements will have been run before it is called:\n{setup}")
    question.append(f"For example, this must hold:\n{example}")
    lines = sum(bool(line.strip()) for line in program.splitlines())
    split = next((s for s, (low, high) in {"prompt": (1, 10), "test": (11, 510), "validation": (511, 600),
                                           "train": (601, 974)}.items() if low <= task_id <= high), "")
    if not split:
        raise TaskFileError(f"{place}: task_id = {task_id}: expected 1 to 974")
    return dict(task_id=f"mbpp/{split}/{task_id}", domain="code", level=1 if lines <= 4 else 2 if lines <= 7 else 3,
                split=split, question="\n".join(question), reference=program.replace("\r\n", "\n"), tests=tuple(tests),
                setup=setup, entry_point=called[0], vote_inputs=(_call(tests[0], called[0], place),))


def _call(statement: str, function: str, place: str) -> str:
    """The text of the call of `function` in an assert statement."""
    tree = python_tree(statement)
    if isinstance(tree, str):
        raise TaskFileError(f"{place}: test_list holds a statement that is not Python ({tree})")
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == function:
            return ast.get_source_segment(statement, node)
    raise TaskFileError(f"{place}: test_list must call {function}")


def math_fields(record: dict[str, Any], place: str, split: str, number: int) -> dict[str, Any]:
    """A record of MATH: the reference is the field `answer`, or the last box in `solution`.

    The level is the published one (3 or "Level 3"); the few tasks that have "Level ?" get 3, the middle.
    """
    name = f"{number:04d}"
    if "unique_id" in record:
        split, _, name = field(record, "unique_id", str, place).removesuffix(".json").partition("/")
        if split not in BENCHMARKS["math"] or not name:
            raise TaskFileError(f"{place}: unique_id = {shown(record['unique_id'])}: expected train/... or test/...")
    reference = field(record, "answer", str, place) if "answer" in record else _boxed(record, place)
    level = record.get("level")
    found = re.fullmatch(r"(?:Level )?([1-5?])", str(level))
    if not found:
        raise TaskFileError(f"{place}: level = {shown(level)}: expected 1 to 5 or 'Level 1' to 'Level 5'")
    return dict(task_id=f"math/{split}/{name}", domain="mathematics", level=int(found[1].replace("?", "3")),
                split=split, question=field(record, "problem", str, place), reference=reference.strip())


def _boxed(record: dict[str, Any], place: str) -> str:
    r"""What stands in the last \boxed{...} (or "\boxed 5") of the solution."""
    solution = field(record, "solution", str, place)
    start = max(solution.rfind("\\boxed"), solution.rfind("\\fbox"))
    rest = solution[start:].removeprefix("\\boxed").removeprefix("\\fbox").lstrip() if start >= 0 else ""
    depth = 0
    for position, sign in enumerate(rest):
        depth += (sign == "{") - (sign == "}")
        if depth == 0:
            return rest[1:position] if sign == "}" else rest[0]
    raise TaskFileError(f"{place}: no field 'answer', and no \\boxed{{...}} in 'solution'")


def _math_folder(path: Path, split: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """The layout of the MATH release: <split>/<subject>/<n>.json, ordered by split, subject and number."""
    for part in BENCHMARKS["math"]:
        files = (path / part).glob("*/*.json") if split in (part, None) else ()
        for file in sorted(files, key=lambda f: (f.parent.name, len(f.stem), f.stem)):
            try:
                text = file.read_text(encoding="utf-8-sig")
            except UnicodeDecodeError as error:
                raise TaskFileError(f"{file}: not UTF-8 text ({error.reason})") from None
            except OSError as error:
                raise TaskFileError(f"{file}: cannot be read ({error.strerror})") from None
            unique_id = f"{part}/{file.parent.name}/{file.stem}"
            yield str(file), math_fields({**_json_object(text, str(file)), "unique_id": unique_id}, str(file), part, 0)


def cache_folder() -> Path:
    """The user's cache folder for downloads, where the system keeps such things."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "bamas-lite"


def download(url: str, sha256: str, target: Path, name: str) -> Path:
    """The file behind `url`, from `target` when it is there already. A broken file is never left behind.

    Raises:
        TaskFileError: it cannot be fetched or stored, or its checksum is not `sha256`.
    """
    if target.is_file() and hashlib.sha256(target.read_bytes()).hexdigest() == sha256:
        return target
    instead = f"get it by other means and call load_tasks({name!r}, path=<file or folder>)"
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            content = answer.read()
    except (OSError, HTTPException) as error:  # URLError is an OSError
        raise TaskFileError(f"{url}: cannot be downloaded ({getattr(error, 'reason', error)}); {instead}") from None
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise TaskFileError(f"{url}: the checksum of the download is wrong: expected sha256 {sha256}, found {found}; "
                            f"try again, or {instead}")
    partial = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(content)
        partial.replace(target)
    except OSError as error:
        with suppress(OSError):
            partial.unlink()
        raise TaskFileError(f"{target}: cannot be written ({error.strerror}); {instead}") from None
    return target
