"""What users hand in - numbers, paths, YAML - read strictly: each fault is one clear message."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Hashable, Sequence
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import wraps
from numbers import Integral
from pathlib import Path
from typing import Any

import yaml

from bamas_lite.masking import without_keys

EXPONENTS = range(-400, 200)
"""Powers of ten that a number may have: sums of costs then fit a float, and no exponent can ask for gigabytes."""
LONGEST = 1_000
"""Characters of a number; a float has at most 24."""


def shown(value: Any, width: int = 80) -> str:
    """`value` as Python shows it, in one line, cut at `width` characters; safe for what has no text, such as
    10**5000."""
    try:
        text = repr(value)
    except Exception:  # an int of more than 4,300 digits, or a class whose repr fails
        return f"<{type(value).__name__} that cannot be shown>"
    text = " ".join(line.strip() for line in text.splitlines())
    return text if len(text) <= width else text[:width - 3] + "..."


def exact(value: Any, what: str = "value") -> Fraction:
    """The Fraction that the decimal text of `value` means.

    Args:
        value: int, float, numpy number, Decimal, Fraction or decimal text; a float means its shortest decimal text.
        what: name of the quantity, for the error message.

    Raises:
        ValueError: not a number, not finite, or not within 1e-400 to 1e200.
    """
    number: Decimal | None = None
    if isinstance(value, (int, Fraction)) and not isinstance(value, bool):
        if abs(value) < 10**EXPONENTS.stop:
            return Fraction(value)
        number = Decimal("inf")
    elif value is not None and not isinstance(value, bool):
        text = value.strip() if isinstance(value, str) else str(value)
        try:
            number = Decimal(text if len(text) <= LONGEST else "inf")
        except InvalidOperation:
            pass
    if number is not None and number.is_finite():
        if not number:
            return Fraction(0)
        if number.adjusted() in EXPONENTS:
            return Fraction(number)
    raise ValueError(f"{what} = {shown(value)}: expected a finite decimal number"
                     + ("" if number is None or number.is_nan() else " within 1e-400 to 1e200"))


def whole(value: Any, what: str, least: int = 0, most: int | None = None) -> int:
    """`value` (a Python or numpy whole number) as an int.

    Raises:
        ValueError: not a whole number from `least` to `most`.
    """
    if type(value) is int and value >= least and (most is None or value <= most):
        return value  # the usual case; the meter asks several times a call, and Integral is slow to look up
    if (not isinstance(value, Integral) or isinstance(value, bool) or value < least
            or (most is not None and value > most)):
        valid = f"of at least {least}" if most is None else f"from {least} to {most:,}"
        raise ValueError(f"{what} = {shown(value)}: expected a whole number {valid}")
    return int(value)


def file_path(value: Any, what: str, error: type[ValueError]) -> Path:
    """`value` as a path which the system can look up.

    Raises:
        error: not text or a path, or nothing that could be a file's name.
    """
    try:
        path = Path(value)
        path.is_file()
    except (TypeError, ValueError, OSError):  # not a path; holds a NUL; too long
        raise error(f"{what} = {shown(value)}: expected the name of a file as text or a path") from None
    return path


def in_folder(value: Any, what: str, error: type[ValueError] = ValueError) -> Path:
    """`value` as the path of a folder that is there.

    Raises:
        error: empty, not text or a path, or no folder.
    """
    path = _folder(value, what, error)
    if not path.is_dir():
        raise error(f"{what} = {shown(str(value))}: no such folder")
    return path


def out_folder(value: Any, what: str) -> Path:
    """`value` as the path of a folder to write to; it is made now, so that no work is lost to a path that cannot be.

    Raises:
        ValueError: empty, not text or a path, a file, or a folder that cannot be made or written to.
    """
    path = _folder(value, what, ValueError)
    fault = "is a file" if path.exists() and not path.is_dir() else ""
    if not fault:
        try:
            path.mkdir(parents=True, exist_ok=True)
            fault = "" if os.access(path, os.W_OK) else "may not be written to"
        except OSError as problem:
            fault = f"cannot be made ({problem.strerror})"
    if fault:
        raise ValueError(f"{what} = {shown(str(value))}: {fault}; expected a folder to write to")
    return path


def _folder(value: Any, what: str, error: type[ValueError]) -> Path:
    if isinstance(value, str) and not value.strip():  # Path("") would be the current folder
        raise error(f"{what} = {shown(value)}: empty; expected the name of a folder")
    try:
        path = Path(value)
        if "\0" in str(path):
            raise ValueError
        path.is_dir()
    except (TypeError, ValueError, OSError):  # not a path; too long
        raise error(f"{what} = {shown(value)}: expected the name of a folder as text or a path") from None
    return path


def command(main: Callable[[Sequence[str] | None], int]) -> Callable[[Sequence[str] | None], int]:
    """The `main` of a command, which then answers wrong use, and work that fails, with one message and status 2."""
    @wraps(main)
    def told(arguments: Sequence[str] | None = None) -> int:
        try:
            return main(arguments)
        except (ValueError, RuntimeError) as error:
            print(error, file=sys.stderr)
            return 2
    return told


def named_file(value: Any, what: str, folder: Path, error: type[ValueError]) -> Path:
    """The YAML file at the path `value`, or of that name in `folder`.

    Raises:
        error: there is none; the message lists the names in `folder`.
    """
    path = file_path(value, what, error)
    if path.suffix not in {".yaml", ".yml"} and not path.is_file():
        path = folder / f"{value}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in folder.glob("*.yaml")))
        raise error(f"no {what} file {value}; give a path ending in .yaml or one of: {known}")
    return path


def read_yaml(path: Path, error: type[ValueError]) -> Any:
    """The content of a YAML file (UTF-8).

    Only what looks like a decimal number is one: YAML 1.1 would read 1:30 as 90 and 0x10 as 16. A float keeps its text
    (`TypedFloat`), so that `exact` sees every digit. The same key twice is an error, and so is an alias (*name).

    Raises:
        error: it cannot be read; the message names the file and, where known, the line.
    """
    try:
        return yaml.load(path.read_text(encoding="utf-8"), _StrictLoader)
    except yaml.MarkedYAMLError as problem:
        line = f"line {problem.problem_mark.line + 1}: " if problem.problem_mark else ""
        raise error(f"{path}: not readable as YAML: {line}{problem.problem}") from None
    except OSError as problem:
        raise error(f"{path}: cannot be read ({problem.strerror})") from None
    except RecursionError:
        raise error(f"{path}: not readable as YAML: nested too deeply") from None
    except (yaml.YAMLError, ValueError) as problem:  # ValueError: no UTF-8, or no such date
        raise error(f"{path}: not readable as YAML: {' '.join(str(problem).split())}") from None


class TypedFloat(float):
    """A float that shows the text it was typed as."""

    def __new__(cls, text: str) -> TypedFloat:
        number = super().__new__(cls, text.replace(".inf", "inf").replace(".nan", "nan"))
        number._text = text
        return number

    def __repr__(self) -> str:
        return self._text

    __str__ = __repr__


_INT, _FLOAT = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"
_DIGITS = 100
"""A longer whole number is read as a float: Python refuses to convert more than 4,300 digits to an int."""


class _StrictLoader(yaml.SafeLoader):
    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in rules if tag not in (_INT, _FLOAT)]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()}

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            raise yaml.composer.ComposerError(None, None, f"*{event.anchor}: aliases are not supported; write it out",
                                              event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: dict[Hashable, str] = {}
        for key_node, value_node in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge" or not isinstance(key_node, yaml.ScalarNode):
                continue
            value = value_node.value if isinstance(value_node, yaml.ScalarNode) else "..."
            if key_node.value in seen:
                who = f"LLM {seen['name']!r}: " if "name" in seen and "llms" not in seen else ""
                raise yaml.constructor.ConstructorError(
                    None, None, f"{who}{key_node.value} = {without_keys(seen[key_node.value], key_node.value)}, "
                    f"then {without_keys(value, key_node.value)}: the key is given twice",
                    key_node.start_mark)
            seen[key_node.value] = value
        return super().construct_mapping(node, deep)


_StrictLoader.add_implicit_resolver(_INT, re.compile(rf"[-+]?[0-9]{{1,{_DIGITS}}}\Z"), list("-+0123456789"))
_StrictLoader.add_implicit_resolver(
    _FLOAT, re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\Z|[-+]?\.inf\Z|\.nan\Z"),
    list("-+.0123456789"))
_StrictLoader.add_constructor(_INT, lambda loader, node: int(loader.construct_scalar(node)))
_StrictLoader.add_constructor(_FLOAT, lambda loader, node: TypedFloat(loader.construct_scalar(node)))
