"""LLMs, their prices and their tiers.

Money is exact. Prices are micro-dollars (u$ = 1e-6 USD) per token, given as decimal text or as the float that a reader
types; `exact` turns either into the Fraction that the decimal text means, so that 0.27 * 500 + 1.10 * 384 is 557.4 and
not 557.4000000000001 (which would make floor(1114.8 / 557.4) equal 1).
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from fractions import Fraction
from functools import cached_property
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictStr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from bamas_lite.inputs import exact, named_file, read_yaml, shown, whole
from bamas_lite.masking import holds_a_key, is_secret_name, like_a_key, without_keys
from bamas_lite.paths import DATA
from bamas_lite.prices import Unpriced, checked_day, with_list_prices

ATOMS = 10**18
"""Parts of one micro-dollar in which calls are metered: whole numbers are exact and much faster than Fractions."""

MOST_PRICE = 1_000_000
"""u$ per token; whatever costs more was typed in another unit."""

MOST_TOKENS = 10**8
"""Tokens of one call; whatever is longer is a mistake."""


class PoolError(ValueError):
    """A pool (file) that cannot be used; the message names file, LLM, field and value."""


_EXPECTED = {"too_short": "expected a list of at least one LLM", "tuple_type": "expected a list of LLMs",
             "string_type": "expected text; put it in quotes", "string_too_short": "expected text",
             "string_unicode": "holds half a surrogate pair, which is no text",
             "int_type": "expected a whole number", "float_type": "expected a number",
             "finite_number": "expected a finite number", "greater_than_equal": "expected at least {ge:g}",
             "less_than_equal": "expected at most {le:,}",
             "greater_than": "expected more than {gt:g}"}


class _Checked(BaseModel):
    """A model whose faults are one PoolError, a plain line each, instead of pydantic's own text."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)

    def __init__(self, **data: Any) -> None:
        try:
            super().__init__(**data)
        except ValidationError as error:
            # pydantic also calls the list too short when an entry of it is wrong
            faults = [e for e in error.errors() if e["type"] != "too_short" or not data["llms"]]
            raise PoolError("\n".join(line for e in faults for line in self._lines(e, data))) from None

    @classmethod
    def _lines(cls, error: dict[str, Any], data: dict[str, Any]) -> list[str]:
        """One fault in plain words: which field, which value, what is valid."""
        value, field = error["input"], without_keys(".".join(map(str, error["loc"])))
        if error["type"] == "missing":
            return [f"{field} is missing"]
        if isinstance(value, Unpriced):
            return [value.fault] if value.fault else []
        if error["type"] == "extra_forbidden":
            told = without_keys(value, field)
            hint = ("keys do not belong into a pool file; api_key_env is the NAME of the environment variable that "
                    "holds one; ") if told != value or is_secret_name(field) else ""
            return [f"{field} = {shown(told)}: unknown key; {hint}known are "
                    + ", ".join(cls.model_fields)]
        value = without_keys(value)
        words = _EXPECTED.get(error["type"], error["msg"].removeprefix("Value error, "))
        words = words.format(**error.get("ctx", {})) if error["type"] in _EXPECTED else words
        return [f"{field} = {shown(value)}: {words}" if field else words]


_OWN_PARAMETERS = frozenset({"model", "messages", "prompt", "max_tokens", "max_completion_tokens", "n", "best_of",
                             "stream"})
"""Parameters of a request that `extra_body` may not replace."""


class LLM(_Checked):
    """One large language model that can be hired.

    Prices are u$ per token; `max_tokens` is the longest completion it may write; tier 1 is the strongest tier.
    Latency fields are seconds and tokens per second.

    The other fields are read by live backends only (`endpoints.OpenAIChat`): `model` is the provider's name for the LLM
    (default: `name`), `base_url` the endpoint, `api_key_env` the environment variable with its key (None: it needs
    none). `api` is "chat" or, for base models, "completion"; `few_shot` shows examples before each task, for LLMs that
    do not follow instructions; `reasoning` marks one that thinks before it answers (its limit is sent as
    max_completion_tokens, without a temperature). `price_cached_in` is the price of a prompt token that the provider
    reads from its cache (default: price_in). `concurrency` bounds the calls in flight, `requests_per_minute` their
    rate, `timeout_s` (seconds) one attempt. `extra_body` is sent along with each request, for options of one provider.

    Raises:
        PoolError: a problem; one line for each: LLM, field, value, what is valid.
    """

    name: StrictStr = Field(min_length=1)
    price_in: float
    price_out: float
    max_tokens: int = Field(ge=1, le=MOST_TOKENS, strict=True)
    tier: int | None = Field(default=None, ge=1, strict=True)
    rating: float | None = Field(default=None, strict=True, allow_inf_nan=False)
    first_token_s: float | None = Field(default=None, strict=True, ge=0, allow_inf_nan=False)
    tokens_per_s: float | None = Field(default=None, strict=True, gt=0, allow_inf_nan=False)
    model: StrictStr | None = None
    base_url: StrictStr | None = None
    api_key_env: StrictStr | None = None
    source: StrictStr | None = None
    api: Literal["chat", "completion"] = "chat"
    few_shot: StrictBool = False
    reasoning: StrictBool = False
    price_cached_in: float | None = None
    concurrency: int | None = Field(default=None, ge=1, le=10_000, strict=True)
    requests_per_minute: float | None = Field(default=None, strict=True, gt=0, allow_inf_nan=False)
    timeout_s: float | None = Field(default=None, strict=True, gt=0, allow_inf_nan=False)
    extra_body: dict[str, Any] | None = None

    @classmethod
    def _lines(cls, error: dict[str, Any], data: dict[str, Any]) -> list[str]:
        who = f"LLM {shown(data['name'])}: " if "name" in data else ""
        if isinstance(error["input"], str) and error["loc"] in (("api_key_env",), ("base_url",)):
            error = error | {"input": _without_key(error["input"])}
        return [who + line for line in super()._lines(error, data)]

    @field_validator("name")
    @classmethod
    def _one_line(cls, name: str) -> str:
        if not name.isprintable():
            raise ValueError("expected printable text on one line")
        return name

    @field_validator("max_tokens", "tier", "rating", "first_token_s", "tokens_per_s", "concurrency",
                     "requests_per_minute", "timeout_s", mode="before")
    @classmethod
    def _plain_number(cls, value: Any) -> Any:
        """numpy's numbers as Python's own: strict fields know no others."""
        if isinstance(value, Integral) and not isinstance(value, bool):
            return int(value)
        return float(value) if isinstance(value, Real) and not isinstance(value, (bool, float, Fraction)) else value

    @field_validator("base_url")
    @classmethod
    def _is_a_url(cls, url: str | None) -> str | None:
        if url is not None and not (re.fullmatch(r"https?://[^\s/?#@]+(/[^\s?#]*)?", url) and _has_host(url)):
            raise ValueError("expected an address such as https://api.openai.com/v1 or http://127.0.0.1:8080/v1, "
                             "without a user name or a key in it; a port is at most 65,535")
        return url

    @field_validator("api_key_env")
    @classmethod
    def _is_a_variable(cls, name: str | None) -> str | None:
        if name is not None and (not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,39}", name) or like_a_key(name)):
            raise ValueError("expected the name of an environment variable, such as OPENAI_API_KEY (at most 40 "
                             "letters, digits and _); keys do not belong into a pool file")
        return name

    @field_validator("extra_body")
    @classmethod
    def _is_json(cls, body: dict[str, Any] | None) -> dict[str, Any] | None:
        try:
            text = json.dumps(body, allow_nan=False, ensure_ascii=False)
            text.encode("utf-8")   # not for half a surrogate pair
            plain = json.loads(text)
        except (TypeError, ValueError, RecursionError):
            raise ValueError("expected a mapping of plain values, as they stand in JSON") from None
        if not _has_text_keys(body):
            raise ValueError("expected keys that are text; put them in quotes")
        if holds_a_key(plain):
            raise ValueError("holds what looks like a key, which would be recorded; keys do not belong into a pool "
                             "file: api_key_env names the environment variable of one")
        for key in sorted(_OWN_PARAMETERS.intersection(body or ())):
            raise ValueError(f"{key} is decided by each call (a budget holds back what it can cost); leave it out")
        return plain

    @field_validator("price_in", "price_out", "price_cached_in", mode="before")
    @classmethod
    def _price_is_exact(cls, value: Any, info: ValidationInfo) -> float | None:
        if value is None and info.field_name == "price_cached_in":
            return None
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
        if self.price_cached_in is not None and self.price_cached_in > self.price_in:
            raise ValueError(f"price_cached_in = {self.price_cached_in:g}: expected at most price_in = "
                             f"{self.price_in:g}, or a call could cost more than was held back for it")
        return self

    def __hash__(self) -> int:
        return hash((self.name, self.tier, self.price_in, self.price_out, self.max_tokens))  # extra_body has none

    @cached_property
    def atoms_per_token(self) -> tuple[int, int]:
        """Price of one prompt token and of one completion token, in atoms."""
        return int(exact(self.price_in) * ATOMS), int(exact(self.price_out) * ATOMS)

    def cost_atoms(self, t_in: int, t_out: int, cached: int = 0) -> int:
        """Cost of one call in atoms (1e-18 u$); `cached` of its t_in prompt tokens come from the provider's cache."""
        price_in, price_out = self.atoms_per_token
        cost = price_in * t_in + price_out * t_out
        if cached and self.price_cached_in is not None:
            cost -= (price_in - int(exact(self.price_cached_in) * ATOMS)) * cached
        return cost

    def call_cost(self, t_in: int, t_out: int) -> Fraction:
        """c_i = T_in * P_in + T_out * P_out in u$ (BAMAS, cost model); ValueError unless both are numbers >= 0."""
        tokens = {"t_in": exact(t_in, "t_in"), "t_out": exact(t_out, "t_out")}
        for what, number in tokens.items():
            if number < 0:
                raise ValueError(f"{what} = {shown(number)}: expected at least 0 tokens")
        return exact(self.price_in) * tokens["t_in"] + exact(self.price_out) * tokens["t_out"]


def _without_key(text: str) -> str:
    """What stands where a variable's name or an address should, for a message: it may be, or hold, a key."""
    if text.startswith("http"):
        text = without_keys(text)
        return re.sub(r"[?#].*", "?***", re.sub(r"//[^/]*@", "//***@", text))
    return text if len(text) < 8 else f"{text[:4]}..."


def _has_host(url: str) -> bool:
    """Whether an address names a machine, and a port only if there can be one."""
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0   # `port` raises above 65,535
    except ValueError:
        return False


def _has_text_keys(value: Any) -> bool:
    """Whether all keys of nested mappings are text: JSON would rewrite others, and cannot sort a mixture."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and _has_text_keys(item) for key, item in value.items())
    return not isinstance(value, (list, tuple)) or all(map(_has_text_keys, value))


def call_cost(llm: LLM, t_in: int, t_out: int) -> Fraction:
    """c_i = T_in * P_in + T_out * P_out in u$: the default cost model of provisioning (BAMAS, cost model)."""
    return llm.call_cost(t_in, t_out)


_ENDPOINT_FIELDS = ("model", "base_url", "api_key_env", "source")
_LATER_FIELDS = ("api", "few_shot", "reasoning", "price_cached_in", "concurrency", "requests_per_minute", "timeout_s",
                 "extra_body")


class Pool(_Checked):
    """The LLMs to choose from. Without tiers, LLMs are ranked by rating: equal ratings share a tier.

    An LLM given as a mapping may leave out price_in and price_out: then they (and price_cached_in) are list prices of
    its `model` on the day `price_date`, else `date` (ISO dates), and its `source` says so: see prices.py.

    Raises:
        PoolError: a problem; one line for each: LLM, field, value, what is valid.
    """

    name: StrictStr = Field(min_length=1)
    llms: tuple[LLM, ...] = Field(min_length=1)
    description: StrictStr | None = None
    source: StrictStr | None = None
    date: StrictStr | None = None
    price_date: StrictStr | None = None

    @classmethod
    def _lines(cls, error: dict[str, Any], data: dict[str, Any]) -> list[str]:
        place, cause = error["loc"], error.get("ctx", {}).get("error")
        if len(place) != 2 or place[0] != "llms":
            return super()._lines(error, data)
        if isinstance(cause, PoolError):  # an LLM's own lines; they begin with its name, if it has one
            named = "name" in data["llms"][place[1]]
            return [line if named else f"LLM number {place[1] + 1}: {line}" for line in str(cause).splitlines()]
        return [f"LLM number {place[1] + 1}: {shown(without_keys(error['input']))}: expected a mapping with name, "
                "tier or rating, price_in, price_out, max_tokens"]

    @field_validator("price_date")
    @classmethod
    def _is_a_day(cls, day: str | None) -> str | None:
        if day is not None:
            checked_day(day)
        return day

    @model_validator(mode="before")
    @classmethod
    def _fill_tiers_and_prices(cls, data: Any) -> Any:
        """Fill the tiers from the ratings where no LLM states a tier, and missing prices from a list."""
        if not isinstance(data, dict) or not isinstance(data.get("llms"), (list, tuple)):
            return data
        llms = [m.model_dump() if isinstance(m, BaseModel) else
                {str(key): value for key, value in m.items()} if isinstance(m, dict) else m for m in data["llms"]]
        if llms and all(isinstance(m, dict) and m.get("tier") is None
                        and isinstance(m.get("rating"), (int, float)) for m in llms):
            ranks = sorted({m["rating"] for m in llms}, reverse=True)
            llms = [{**m, "tier": ranks.index(m["rating"]) + 1} for m in llms]
        return {**data, "llms": with_list_prices(llms, data.get("price_date"), data.get("date"))}

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

    @property
    def checksum(self) -> str:
        """16 hexadecimal digits that change with names, ranks, prices, limits and latencies, not with endpoints."""
        data = self.model_dump(mode="json", exclude={"price_date"})
        for llm in data["llms"]:
            for name in _ENDPOINT_FIELDS:
                llm[name] = None
            for name in _LATER_FIELDS:   # logs of before these fields keep their checksum
                if llm[name] == LLM.model_fields[name].default:
                    del llm[name]
        text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def with_max_tokens(self, max_tokens: int) -> Pool:
        """The same pool where every LLM may write `max_tokens` tokens a call."""
        longest, data = whole(max_tokens, "max_tokens", 1, MOST_TOKENS), self.model_dump()
        return Pool(**{**data, "llms": [{**m, "max_tokens": longest} for m in data["llms"]]})


def rank(llm: LLM) -> tuple[int, float, str]:
    """Sort key from strongest to weakest: tier, then rating, then name (the order of slots in a team)."""
    return llm.tier or 0, -(llm.rating if llm.rating is not None else -math.inf), llm.name


def load_pool(name_or_path: str | Path) -> Pool:
    """Load a pool by name (a file of `data/pools`) or from a YAML file.

    Raises:
        PoolError: no such file, or a problem in it; one line for each problem: file, LLM, field, value.
    """
    path = named_file(name_or_path, "pool", DATA / "pools", PoolError)
    data = read_yaml(path, PoolError)
    if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
        raise PoolError(f"{path}: expected a mapping with name and llms, found {shown(without_keys(data))}")
    try:
        return Pool(**{"name": path.stem, **data})
    except PoolError as error:
        raise PoolError("\n".join(f"{path}: {line}" for line in str(error).splitlines())) from None
