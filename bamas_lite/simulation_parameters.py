"""Parameters of the simulated LLM: read from `data/simulation/*.yaml`, checked, never defaulted in silence."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from bamas_lite.inputs import named_file, read_yaml
from bamas_lite.paths import DATA

T = TypeVar("T")


class SimulationError(ValueError):
    """Parameters that cannot be used; the message names file, parameter and value."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("expected a finite number")
    return value


def _with_default(value: dict[str, float]) -> dict[str, float]:
    if "default" not in value:
        raise ValueError("needs a key 'default' for LLMs that it does not name")
    return value


Number = Annotated[float, AfterValidator(_finite)]
Chance = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, AfterValidator(_finite), Field(gt=0)]
ByLLM = Annotated[dict[str, Positive], AfterValidator(_with_default)]


class ByDomain(_Model, Generic[T]):
    """One value a domain."""

    arithmetic: T
    mathematics: T
    code: T

    def __getitem__(self, domain: str) -> T:
        return getattr(self, domain)


class Rating(_Model):
    """Linear rule: skill = at_1300 + per_100 * (rating - 1300) / 100."""

    at_1300: Number
    per_100: Number


class Tier(_Model):
    """Linear rule: skill = tier_1 + per_tier * (tier - 1)."""

    tier_1: Number
    per_tier: Number


class View(_Model):
    """A chance, by whether the LLM's own view of the task is right."""

    view_right: Chance
    view_wrong: Chance


class Change(_Model):
    """Chances that a reply is right after a right (keep) and after a wrong (repair) earlier answer."""

    keep: View
    repair: View


class Critic(_Model):
    """Chances that a critic asks for a revision of a wrong (hit) and of a right answer (false_alarm)."""

    hit: View
    false_alarm: View


class BySystem(_Model, Generic[T]):
    """One value a system of agents: BAMAS, and the baselines that `workflows.py` imitates."""

    bamas: T
    naive: T
    autogen: T
    metagpt: T
    chatdev: T

    def __getitem__(self, system: str) -> T:
        return getattr(self, system)


SYSTEMS = tuple(BySystem.model_fields)


class Style(_Model):
    """One factor a style of prompt."""

    solve: Positive
    approach: Positive
    improve: Positive
    revise: Positive
    step: Positive
    critic: Positive
    planner: Positive
    document: Positive


Range = Annotated[tuple[Number, Number], Field(strict=False)]


class Entry(_Model, Generic[T]):
    """One parameter: its value, where it comes from, the range that its numbers keep, and what it means.

    `range` is one pair for all numbers, or pairs by a part of the number's place ("code", "keep.view_right").
    """

    value: T
    status: Literal["assumed", "cited", "fitted"]
    range: dict[str, Range]
    source: str | None = None
    meaning: str = Field(min_length=1)

    @field_validator("range", mode="before")
    @classmethod
    def _one_pair_for_all(cls, value: Any) -> Any:
        return {"all": value} if isinstance(value, (list, tuple)) else value

    @model_validator(mode="after")
    def _stated_and_in_range(self) -> Entry[T]:
        if self.status != "assumed" and not self.source:
            raise ValueError(f"status = {self.status!r}: needs a source")
        for place, number in numbers(self.value):
            low, high = self.range_at(place)
            if low > high:
                raise ValueError(f"range = [{low:g}, {high:g}]: the lower end comes first")
            if not low <= number <= high:
                raise ValueError(f"{place or 'value'} = {number!r}: outside its range [{low:g}, {high:g}]")
        return self


    def range_at(self, place: str) -> tuple[float, float]:
        """The range of the number at `place`, for example "code.keep.view_right"."""
        for part, limits in self.range.items():
            if part == "all" or f".{part}." in f".{place}.":
                return limits
        raise ValueError(f"range = {', '.join(self.range)}: has no pair for {place}")


def numbers(value: Any, place: str = "") -> Iterator[tuple[str, float]]:
    """Every number in a parameter's value with its place, for example ("code.keep.view_right", 0.99)."""
    if isinstance(value, BaseModel):
        value = dict(value)
    if isinstance(value, dict):
        for key, item in value.items():
            yield from numbers(item, f"{place}.{key}" if place else str(key))
    else:
        yield place, value


class Parameters(_Model):
    """All parameters of the simulated LLM; their meaning stands in the YAML file beside each value."""

    name: str
    description: str
    skill: Entry[ByDomain[dict[str, Number]]]
    skill_by_rating: Entry[ByDomain[Rating]]
    skill_by_tier: Entry[ByDomain[Tier]]
    level_slope: Entry[ByDomain[Number]]
    task_share: Entry[ByDomain[Chance]]
    llm_share: Entry[ByDomain[Chance]]
    wrong_decay: Entry[ByDomain[Chance]]
    wrong_shared: Entry[ByDomain[Chance]]
    stick: Entry[ByDomain[Chance]]
    improve: Entry[ByDomain[Change]]
    revise: Entry[ByDomain[Change]]
    critic: Entry[ByDomain[Critic]]
    step_shift: Entry[ByDomain[Number]]
    plan_validity: Entry[Annotated[dict[str, Chance], AfterValidator(_with_default)]]
    plan_more: Entry[Chance]
    completion_tokens: Entry[ByDomain[ByLLM]]
    tokens_per_level: Entry[ByDomain[Number]]
    tokens_spread: Entry[ByDomain[Positive]]
    tokens_style: Entry[Style]
    system_tokens: Entry[ByDomain[BySystem[Positive]]]
    system_shift: Entry[ByDomain[BySystem[Number]]]
    first_token_s: Entry[ByLLM]
    tokens_per_s: Entry[ByLLM]

    @model_validator(mode="after")
    def _shares_leave_room(self) -> Parameters:
        for domain in ByDomain.model_fields:
            both = self.task_share.value[domain] + self.llm_share.value[domain]
            if both > 1:
                raise ValueError(f"task_share + llm_share = {both:g} in {domain}: at most 1 (the rest is the call's)")
        return self


def load_parameters(parameters: str | Path | dict[str, Any] | Parameters = "assumed") -> Parameters:
    """Load parameters by name (a file of `data/simulation`), from a YAML file, or from a dict of the same shape.

    A file or dict with `base: <name>` states only what differs from that file.

    Raises:
        SimulationError: no such file, or a problem in it; one line for each problem.
    """
    if isinstance(parameters, Parameters):
        return parameters
    data, where = (parameters, "parameters") if isinstance(parameters, dict) else _read(parameters)
    seen = {where}
    while "base" in data:
        base, place = _read(data["base"])
        if place in seen:
            raise SimulationError(f"{where}: base = {data['base']!r}: a file cannot be its own base")
        seen.add(place)
        data = _merge(base, {key: value for key, value in data.items() if key != "base"})
    try:
        return Parameters(**data)
    except ValidationError as error:
        raise SimulationError("\n".join(f"{where}: {_problem(e)}" for e in error.errors())) from None
    except TypeError as error:
        raise SimulationError(f"{where}: {error}") from None


def _read(name_or_path: str | Path) -> tuple[dict[str, Any], str]:
    path = named_file(name_or_path, "parameter", DATA / "simulation", SimulationError)
    data = _parsed(path, path.stat().st_mtime_ns)
    if not isinstance(data, dict):
        raise SimulationError(f"{path}: expected a mapping of parameters, found {type(data).__name__}")
    return data, str(path)


@lru_cache(maxsize=16)
def _parsed(path: Path, changed: int) -> Any:
    """The content of a YAML file; parsed again when it has changed."""
    return read_yaml(path, SimulationError)


def _merge(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`base` with `changes`, level by level."""
    merged = dict(base)
    for key, value in changes.items():
        both = isinstance(value, dict) and isinstance(base.get(key), dict)
        merged[key] = _merge(base[key], value) if both else value
    return merged


def _problem(error: dict[str, Any]) -> str:
    """One problem in plain words: which parameter, which value, what is valid."""
    field = ".".join(map(str, error["loc"]))
    words = error["msg"].removeprefix("Value error, ")
    if error["type"] == "missing":
        return f"{field}: is missing"
    if error["type"] == "extra_forbidden":
        return f"{field} = {error['input']!r}: unknown key"
    if "=" in words:  # the validator has named the place and the value itself
        return f"{field}: {words}" if field else words
    return f"{field} = {error['input']!r}: {words}"
