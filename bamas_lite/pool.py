"""LLMs, their prices and their tiers.

Money is exact. Prices are micro-dollars (u$ = 1e-6 USD) per token, given as decimal text or as the float that a reader
types; `exact` turns either into the Fraction that the decimal text means, so that 0.27 * 500 + 1.10 * 384 is 557.4
and not 557.4000000000001 (which would make floor(1114.8 / 557.4) equal 1).
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from bamas_lite.paths import DATA

ATOMS = 10**18
"""Parts of one micro-dollar in which calls are metered: whole numbers are exact and much faster than Fractions."""


class PoolError(ValueError):
    """A pool (file) that cannot be used; the message names file, LLM, field and value."""


def exact(value: Any, what: str = "value") -> Fraction:
    """The Fraction that the decimal text of `value` means.

    Args:
        value: int, float, numpy number, Decimal, Fraction or decimal text; a float means its shortest decimal text.
        what: name of the quantity, for the error message.

    Raises:
        ValueError: not a number, or not finite.
    """
    if isinstance(value, (int, Fraction)) and not isinstance(value, bool):
        return Fraction(value)
    try:
        if isinstance(value, bool) or value is None:
            raise ValueError
        number = Decimal(value.strip()) if isinstance(value, str) else Decimal(str(value))
        if number.is_finite():
            return Fraction(number)
    except (InvalidOperation, ValueError, TypeError):
        pass
    raise ValueError(f"{what} = {value!r}: expected a finite decimal number")


class LLM(BaseModel):
    """One large language model that can be hired.

    Prices are u$ per token; `max_tokens` is the longest completion it may write; tier 1 is the strongest tier.
    Latency fields are seconds and tokens per second; endpoint fields are used by live backends only.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1)
    price_in: float
    price_out: float
    max_tokens: int = Field(ge=1, strict=True)
    tier: int | None = Field(default=None, ge=1, strict=True)
    rating: float | None = Field(default=None, allow_inf_nan=False)
    first_token_s: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    tokens_per_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    model: str | None = None
    base_url: str | None = None
    api_key_env: str | None = None
    source: str | None = None

    @field_validator("price_in", "price_out", mode="before")
    @classmethod
    def _price_is_exact(cls, value: Any) -> float:
        price = exact(value, "price")
        if price < 0:
            raise ValueError("a price is at least 0 u$ per token")
        if (price * ATOMS).denominator != 1:
            raise ValueError("a price has at most 18 decimals")
        return float(price)

    @model_validator(mode="after")
    def _costs_something_and_has_a_rank(self) -> LLM:
        if self.price_in == self.price_out == 0:
            raise ValueError("price_in and price_out are both 0: without a price the number of copies has no bound; "
                             "give a small pseudo-price")
        if self.tier is None and self.rating is None:
            raise ValueError("tier or rating is needed to rank it")
        return self

    @cached_property
    def atoms_per_token(self) -> tuple[int, int]:
        """Price of one prompt token and of one completion token, in atoms."""
        return int(exact(self.price_in) * ATOMS), int(exact(self.price_out) * ATOMS)

    def cost_atoms(self, t_in: int, t_out: int) -> int:
        """Cost of one call in atoms (1e-18 u$)."""
        price_in, price_out = self.atoms_per_token
        return price_in * t_in + price_out * t_out

    def call_cost(self, t_in: int, t_out: int) -> Fraction:
        """c_i = T_in * P_in + T_out * P_out in u$ (BAMAS, cost model)."""
        return exact(self.price_in) * exact(t_in, "t_in") + exact(self.price_out) * exact(t_out, "t_out")


def call_cost(llm: LLM, t_in: int, t_out: int) -> Fraction:
    """c_i = T_in * P_in + T_out * P_out in u$: the default cost model of provisioning (BAMAS, cost model)."""
    return llm.call_cost(t_in, t_out)


class Pool(BaseModel):
    """The LLMs to choose from. Without tiers, LLMs are ranked by rating: equal ratings share a tier."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1)
    llms: tuple[LLM, ...] = Field(min_length=1)
    description: str | None = None
    source: str | None = None
    date: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _rank_by_rating(cls, data: Any) -> Any:
        """Fill the tiers from the ratings where no LLM states a tier."""
        if not isinstance(data, dict) or not isinstance(data.get("llms"), (list, tuple)):
            return data
        llms = [m.model_dump() if isinstance(m, BaseModel) else m for m in data["llms"]]
        if llms and all(isinstance(m, dict) and m.get("tier") is None
                        and isinstance(m.get("rating"), (int, float)) for m in llms):
            ranks = sorted({m["rating"] for m in llms}, reverse=True)
            llms = [{**m, "tier": ranks.index(m["rating"]) + 1} for m in llms]
        return {**data, "llms": llms}

    @model_validator(mode="after")
    def _names_and_tiers(self) -> Pool:
        names = [m.name for m in self.llms]
        for m in self.llms:
            if names.count(m.name) > 1:
                raise ValueError(f"LLM {m.name!r}: name = {m.name!r}: is used {names.count(m.name)} times")
            if m.tier is None:
                raise ValueError(f"LLM {m.name!r}: tier = None: some LLMs of this pool state a tier, so all must")
        tiers = {m.tier for m in self.llms}
        for tier in range(1, max(tiers)):
            if tier not in tiers:
                above = next(m for m in self.llms if m.tier == min(t for t in tiers if t > tier))
                raise ValueError(f"LLM {above.name!r}: tier = {above.tier}: tier {tier} has no LLM; "
                                 "tiers run 1, 2, 3, ... without a gap")
        return self

    @cached_property
    def tiers(self) -> tuple[tuple[LLM, ...], ...]:
        """LLMs per tier, strongest tier first; within a tier by rating (best first), then name."""
        ranked = sorted(self.llms, key=rank)
        return tuple(tuple(m for m in ranked if m.tier == t) for t in range(1, ranked[-1].tier + 1))

    def __getitem__(self, name: str) -> LLM:
        for m in self.llms:
            if m.name == name:
                return m
        raise KeyError(f"pool {self.name!r} has no LLM {name!r}; it has {', '.join(m.name for m in self.llms)}")

    def __len__(self) -> int:
        return len(self.llms)

    def with_max_tokens(self, max_tokens: int) -> Pool:
        """The same pool where every LLM may write `max_tokens` tokens a call."""
        data = self.model_dump()
        return Pool(**{**data, "llms": [{**m, "max_tokens": max_tokens} for m in data["llms"]]})


def rank(llm: LLM) -> tuple[int, float, str]:
    """Sort key from strongest to weakest: tier, then rating, then name (the order of slots in a team)."""
    return llm.tier or 0, -(llm.rating if llm.rating is not None else -math.inf), llm.name


def load_pool(name_or_path: str | Path) -> Pool:
    """Load a pool by name (a file of `data/pools`) or from a YAML file.

    Raises:
        PoolError: no such file, or a problem in it; one line for each problem: file, LLM, field, value.
    """
    path = Path(name_or_path)
    if path.suffix not in {".yaml", ".yml"} and not path.is_file():
        path = DATA / "pools" / f"{name_or_path}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in (DATA / "pools").glob("*.yaml")))
        raise PoolError(f"no pool file {name_or_path}; give a path ending in .yaml or one of: {known}")
    try:
        data = yaml.load(path.read_text(encoding="utf-8"), _StrictLoader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise PoolError(f"{path}: not readable as YAML: {' '.join(str(error).split())}") from None
    if not isinstance(data, dict):
        raise PoolError(f"{path}: expected a mapping with name and llms, found {type(data).__name__}")
    data = {"name": path.stem, **data}
    try:
        return Pool(**data)
    except ValidationError as error:
        raise PoolError("\n".join(f"{path}: {_problem(e, data)}" for e in error.errors())) from None
    except TypeError as error:
        raise PoolError(f"{path}: {error}") from None


def _problem(error: dict[str, Any], data: dict[str, Any]) -> str:
    """One problem in plain words: which LLM, which field, which value, what is valid."""
    place, words, value = error["loc"], error["msg"].removeprefix("Value error, "), error["input"]
    who = ""
    if len(place) > 1 and place[0] == "llms":
        entry = data["llms"][place[1]]
        who = f"LLM {entry.get('name', f'number {place[1] + 1}')!r}: " if isinstance(entry, dict) else ""
        place = place[2:]
    field = ".".join(map(str, place))
    if error["type"] == "missing":
        return f"{who}{field}: is missing"
    if error["type"] == "extra_forbidden":
        known = ", ".join(LLM.model_fields if who else Pool.model_fields)
        return f"{who}{field} = {value!r}: unknown key; known are {known}"
    if not field:
        return who + words
    return f"{who}{field} = {value!r}: {words}" if "=" not in words else f"{who}{field} = {value!r}: not a valid number"


class _StrictLoader(yaml.SafeLoader):
    """YAML where the same key twice is an error: the plain loader keeps the last one silently."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is given twice", node.start_mark)
        return super().construct_mapping(node, deep)
