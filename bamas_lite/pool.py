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
from numbers import Integral
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from bamas_lite.paths import DATA

ATOMS = 10**18
"""Parts of one micro-dollar in which calls are metered: whole numbers are exact and much faster than Fractions."""

MOST_PRICE = 1_000_000
"""u$ per token; whatever costs more was typed in another unit."""


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

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)

    name: str = Field(min_length=1)
    price_in: float
    price_out: float
    max_tokens: int = Field(ge=1, strict=True)
    tier: int | None = Field(default=None, ge=1, strict=True)
    rating: float | None = Field(default=None, strict=True, allow_inf_nan=False)
    first_token_s: float | None = Field(default=None, strict=True, ge=0, allow_inf_nan=False)
    tokens_per_s: float | None = Field(default=None, strict=True, gt=0, allow_inf_nan=False)
    model: str | None = None
    base_url: str | None = None
    api_key_env: str | None = None
    source: str | None = None

    @field_validator("price_in", "price_out", mode="before")
    @classmethod
    def _price_is_exact(cls, value: Any) -> float:
        try:
            price = exact(value)
        except ValueError:
            raise ValueError("expected a finite number of u$ per token, such as 0.27") from None
        if not 0 <= price <= MOST_PRICE:
            raise ValueError(f"expected 0 to {MOST_PRICE:,} u$ per token (= USD per million tokens)")
        if (price * ATOMS).denominator != 1 or exact(float(price)) != price:
            raise ValueError("expected at most 18 decimals and 15 digits in all")
        return float(price)

    @model_validator(mode="after")
    def _costs_something_and_has_a_rank(self) -> LLM:
        if self.price_in == self.price_out == 0:
            raise ValueError("price_in = price_out = 0: without a price the number of copies has no bound; "
                             "give a small pseudo-price")
        if self.tier is None and self.rating is None:
            raise ValueError("tier and rating are missing: one of them must rank the LLM")
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

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)

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
                raise ValueError(f"LLM {m.name!r}: name = {m.name!r}: used {names.count(m.name)} times; names differ")
            if m.tier is None:
                raise ValueError(f"LLM {m.name!r}: tier is missing: give every LLM a tier, or none (then ratings rank)")
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
        if not isinstance(max_tokens, Integral) or isinstance(max_tokens, bool) or max_tokens < 1:
            raise ValueError(f"max_tokens = {max_tokens!r}: expected a whole number of at least 1")
        data = self.model_dump()
        return Pool(**{**data, "llms": [{**m, "max_tokens": int(max_tokens)} for m in data["llms"]]})


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
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise PoolError(f"{path}: {line}{error.problem}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise PoolError(f"{path}: not readable as YAML: {' '.join(str(error).split())}") from None
    if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
        raise PoolError(f"{path}: expected a mapping with name and llms, found {data!r:.80}")
    data = {"name": path.stem, **data}
    try:
        return Pool(**data)
    except ValidationError as error:
        # pydantic also calls the list too short when an entry of it is wrong
        problems = [e for e in error.errors() if e["type"] != "too_short" or not data["llms"]]
        raise PoolError("\n".join(f"{path}: {_problem(e, data)}" for e in problems)) from None


_EXPECTED = {"too_short": "expected a list of at least one LLM", "tuple_type": "expected a list of LLMs",
             "string_type": "expected text; put it in quotes", "string_too_short": "expected text",
             "int_type": "expected a whole number", "float_type": "expected a number",
             "finite_number": "expected a finite number", "greater_than_equal": "expected at least {ge:g}",
             "greater_than": "expected more than {gt:g}"}


def _problem(error: dict[str, Any], data: dict[str, Any]) -> str:
    """One problem in plain words: which LLM, which field, which value, what is valid."""
    place, value, who = error["loc"], error["input"], ""
    if len(place) > 1 and place[0] == "llms":
        entry = data["llms"][place[1]]
        who = f"LLM number {place[1] + 1}: "
        if not isinstance(entry, dict):
            return f"{who}{value!r:.80}: expected a mapping with name, tier or rating, price_in, price_out, max_tokens"
        who = f"LLM {entry['name']!r}: " if "name" in entry else who
        place = place[2:]
    field = ".".join(map(str, place))
    if error["type"] == "missing":
        return f"{who}{field} is missing"
    if error["type"] == "extra_forbidden":
        known = ", ".join(LLM.model_fields if who else Pool.model_fields)
        return f"{who}{field} = {value!r}: unknown key; known are {known}"
    words = _EXPECTED.get(error["type"], error["msg"].removeprefix("Value error, ")).format(**error.get("ctx", {}))
    return f"{who}{field} = {value!r}: {words}" if field else who + words


class _StrictLoader(yaml.SafeLoader):
    """YAML where the same key twice is an error: the plain loader keeps the last one silently."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: dict[Hashable, str] = {}
        for key_node, value_node in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge" or not isinstance(key_node, yaml.ScalarNode):
                continue
            value = value_node.value if isinstance(value_node, yaml.ScalarNode) else "..."
            if key_node.value in seen:
                who = f"LLM {seen['name']!r}: " if "name" in seen and "llms" not in seen else ""
                raise yaml.constructor.ConstructorError(
                    None, None, f"{who}{key_node.value} = {seen[key_node.value]}, then {value}: the key is given twice",
                    key_node.start_mark)
            seen[key_node.value] = value
        return super().construct_mapping(node, deep)
