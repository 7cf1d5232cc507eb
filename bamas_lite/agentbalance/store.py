"""A trained designer as one small file: weights and what they were trained for. No pickle."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bamas_lite.agentbalance.designer import Designer
from bamas_lite.agentbalance.difficulty import Difficulty
from bamas_lite.agentbalance.features import Quality
from bamas_lite.agentbalance.network import DesignNetwork
from bamas_lite.agentbalance.profiles import Profile
from bamas_lite.agentbalance.roles import read_set
from bamas_lite.agentbalance.variants import Variant
from bamas_lite.inputs import file_path, shown
from bamas_lite.paths import DATA
from bamas_lite.pool import LLM
from bamas_lite.tasks import DOMAINS
from bamas_lite.trajectory_log import write_whole

COMMITTED = DATA / "agentbalance" / "designer.npz"
"""The designer of the notebook."""

COMMITTED_TALK = DATA / "agentbalance" / "designer_talk.npz"
"""The same, trained in a simulated world where talking helps more than voting (see `studies.WORLDS`)."""

_FORMAT, _VERSION = "bamas_lite designer", 1
_PARTS = {"network": DesignNetwork, "difficulty": Difficulty}
_HEADER = ("format", "version", "variant", "quality", "alpha", "most_copies", "profiles", "roles", "about")
_UNSAVED = "right"
"""The field of a profile with the verdicts on single tasks: a designer does not need them."""
_LEAST_SPREAD = 1e-3
"""As `Quality.of` makes them."""


class DesignerFileError(ValueError):
    """A file that is no designer of this kit; the message names the file and what is wrong."""


def save_designer(designer: Designer, path: str | Path) -> None:
    """Write a designer, whole or not at all; the same file for the same designer.

    Raises:
        DesignerFileError: `path` is none, or the designer's `about` cannot be written as JSON. A file that was there
            stays as it was.
    """
    path = file_path(path, "path", DesignerFileError)
    header = {"format": _FORMAT, "version": _VERSION, "variant": asdict(designer.variant),
              "quality": asdict(designer.quality), "alpha": designer.alpha, "most_copies": designer.most_copies,
              "profiles": [_plain(profile) for profile in designer.profiles],
              "roles": {name: [asdict(role) for role in roles] for name, roles in designer.roles.items()},
              "about": designer.about}
    try:
        text = json.dumps(header)
    except (TypeError, ValueError, RecursionError) as error:
        raise DesignerFileError(f"about = {shown(designer.about)}: cannot be written as JSON ({error})") from None
    weights = {f"{part}.{name}": tensor.numpy().astype(np.float32) for part in _PARTS
               for name, tensor in getattr(designer, part).state_dict().items()}

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:  # given a name, numpy would add .npz to it
            np.savez_compressed(file, about=np.array(text), **weights)

    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, write)


def load_designer(path: str | Path = COMMITTED) -> Designer:
    """Read a designer that `save_designer` wrote.

    Raises:
        DesignerFileError: the file is missing, damaged, no designer, or one of another version; or it holds a value
            that no designer can have.
    """
    path = file_path(path, "path", DesignerFileError)
    if not path.is_file():
        raise DesignerFileError(f"{path}: no such file")
    try:
        header, weights = _content(path)
    except Exception as error:  # on damaged bytes numpy, zipfile, zlib and ast raise a dozen types
        raise DesignerFileError(f"{path}: not a designer of this kit ({type(error).__name__}: {_line(error)})"
                                ) from None
    if header.get("format") != _FORMAT or header.get("version") != _VERSION:
        raise DesignerFileError(f"{path}: format {shown(header.get('format'))}, version "
                                f"{shown(header.get('version'))}: expected {_FORMAT!r}, version {_VERSION}")
    try:
        return _designer(header, weights)
    except ValueError as error:
        raise DesignerFileError(f"{path}: not a designer of this kit ({_line(error)})") from None


def _plain(profile: Profile) -> dict[str, Any]:
    """A profile as plain values."""
    plain = {name: value for name, value in vars(profile).items() if name not in ("llm", _UNSAVED)}
    return {"llm": profile.llm.model_dump(exclude_none=True)} | plain


def _content(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The header and the arrays of a file; raises anything on another file."""
    with path.open("rb") as opened:   # given a name, numpy would leave a broken archive open
        file = np.load(opened, allow_pickle=False)
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise ValueError("one array, not an archive of several")
        header = json.loads(str(file["about"]))
        if not isinstance(header, dict):
            raise ValueError(f"header = {shown(header)}: expected a mapping")
        return header, {name: file[name] for name in file.files if name != "about"}


def _designer(header: dict[str, Any], weights: dict[str, np.ndarray]) -> Designer:
    """The designer of a file; ValueError where a value does not fit."""
    _mapping(header, _HEADER, "header")
    if not isinstance(header["about"], dict):
        raise ValueError(f"about = {shown(header['about'])}: expected a mapping")
    given = header["profiles"]
    if not isinstance(given, list) or not given:
        raise ValueError(f"profiles = {shown(given)}: expected a list of at least one profile")
    profiles = tuple(_profile(values, f"profile {number}") for number, values in enumerate(given, 1))
    sets = header["roles"]
    if not isinstance(sets, dict) or not sets:
        raise ValueError(f"roles = {shown(sets)}: expected set -> roles")
    designer = Designer(profiles, *_modules(weights), _quality(header["quality"]), _variant(header["variant"]),
                        {name: read_set(name, roles) for name, roles in sets.items()}, header["alpha"],
                        header["most_copies"], header["about"])
    _ = designer.pools  # for which the profiles must be of different LLMs and of the same domains
    return designer


def _modules(weights: dict[str, np.ndarray]) -> list[torch.nn.Module]:
    """The learned parts, with their weights, which must be there exactly and finite."""
    modules = [part() for part in _PARTS.values()]
    shapes = {f"{part}.{name}": tuple(tensor.shape) for part, module in zip(_PARTS, modules, strict=True)
              for name, tensor in module.state_dict().items()}
    _mapping(weights, shapes, "weights")
    for name, array in weights.items():
        if array.shape != shapes[name] or array.dtype.kind != "f" or not np.isfinite(array).all():
            raise ValueError(f"weights: {name}: {array.dtype} of shape {array.shape}: expected finite floats of shape "
                             f"{shapes[name]}")
    for part, module in zip(_PARTS, modules, strict=True):
        module.load_state_dict({name: torch.tensor(weights[f"{part}.{name}"], dtype=torch.float64)
                                for name in module.state_dict()})
        module.requires_grad_(False)
    return modules


def _profile(values: Any, what: str) -> Profile:
    known = [field.name for field in fields(Profile) if field.name != _UNSAVED]
    llm = _mapping(values, known, what)["llm"]
    if not isinstance(llm, dict):
        raise ValueError(f"{what}: llm = {shown(llm)}: expected a mapping")
    try:
        llm = LLM(**llm)
    except ValueError as error:
        raise ValueError(f"{what}: llm: {_line(error)}") from None
    return Profile(llm, **{name: value for name, value in values.items() if name != "llm"})


def _quality(values: Any) -> Quality:
    _mapping(values, ("mean", "spread"), "quality")
    mean = values["mean"]
    if not isinstance(mean, dict) or not mean.keys() <= set(DOMAINS):
        raise ValueError(f"quality: mean = {shown(mean)}: expected domain -> number for {', '.join(DOMAINS)}")
    for name, least in (("mean", 0.0), ("spread", _LEAST_SPREAD)):
        for domain, value in _mapping(values[name], mean, f"quality: {name}").items():
            if not isinstance(value, (int, float)) or isinstance(value, bool) or not least <= value <= 1:
                raise ValueError(f"quality: {name}[{domain!r}] = {shown(value)}: expected a number from {least:g} to 1")
    return Quality(**values)


def _variant(values: Any) -> Variant:
    _mapping(values, [field.name for field in fields(Variant)], "variant")
    for name in ("name", "title"):
        if not isinstance(values[name], str) or not values[name].strip():
            raise ValueError(f"{name} = {shown(values[name])}: expected text")
    return Variant(**values)


def _mapping(values: Any, names: Iterable[str], what: str) -> dict[str, Any]:
    """`values`, which must be a mapping with exactly these names."""
    if not isinstance(values, dict):
        raise ValueError(f"{what} = {shown(values)}: expected a mapping with {', '.join(names)}")
    for name in [*values, *names]:
        if name not in values:
            raise ValueError(f"{what}: {name} is missing")
        if name not in names:
            raise ValueError(f"{what}: {shown(name)}: unknown; known are {', '.join(names)}")
    return values


def _line(error: Exception) -> str:
    """The text of an exception on one line of readable length."""
    return "; ".join(" ".join(line.split()) for line in str(error).splitlines() if line.strip())[:500]
