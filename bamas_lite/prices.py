"""List prices for LLMs whose pool file states none, from the open data set that the package genai-prices carries.

Nothing is downloaded, and a price is that of the date which the pool states; the clock is read only to refuse a date
that has not come yet, at which the data set would give the prices of today. Some providers bill by the hour of the day
(DeepSeek did in 2025); the price taken is that of the day's dearest hour (UTC), so that a budget guard never counts too
little. Where the data set knows no earlier price of an LLM, it gives the oldest it knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from bamas_lite.inputs import shown

PRICES = {"price_in": "input_mtok", "price_out": "output_mtok", "price_cached_in": "cache_read_mtok"}
"""Our names of the prices and those of genai-prices (USD per million tokens, which is u$ per token)."""

_BEYOND_TOKENS = ("requests_kcount", "output_reasoning_mtok", "output_citation_mtok")
"""What some LLMs bill besides prompt and completion tokens: with these, no two prices say what a call costs."""

_DAY = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")   # fromisoformat also takes the weeks of a year

_TIMES_OF_DAY = tuple(timedelta(minutes=minutes) for minutes in range(0, 24 * 60, 15))


class PriceError(ValueError):
    """No list price can be told; the message says why."""


class Unpriced:
    """Stands in place of a price that is missing and was not found either; `fault` says so, for the first of them."""

    def __init__(self, fault: str) -> None:
        self.fault = fault


@dataclass(frozen=True, slots=True)
class ListPrice:
    """Prices in u$ per token, as decimal text; `price_cached_in` is None where the data set has none.

    `source` says where they come from: package, version, date and the entry of the data set.
    """

    price_in: str
    price_out: str
    price_cached_in: str | None
    source: str


def list_price(model: str, base_url: str | None = None, day: str | None = None) -> ListPrice:
    """The list price of `model` on a day.

    Args:
        model: the provider's name for the LLM.
        base_url: the endpoint, which says who the provider is; None: the provider is guessed from the model.
        day: a date such as "2025-11-26".

    Raises:
        PriceError: no day, the package is missing, the provider or LLM is unknown, or its price is more than one number
            for a prompt token and one for a completion token.
    """
    if day is None:
        raise PriceError('the pool states no price_date (or date), such as "2026-01-16", at which to look it up')
    try:
        midnight = datetime.combine(checked_day(day), time(), UTC)
    except PriceError as error:
        raise PriceError(f"it cannot be looked up at the date {shown(day)}: {error}") from None
    try:
        import genai_prices
    except ImportError:
        raise PriceError("price lists come with the package genai-prices, which is not installed "
                         "(pip install genai-prices)") from None
    where = {} if base_url is None else {"provider_api_url": base_url}
    usage = genai_prices.Usage(input_tokens=1, output_tokens=1)
    found: dict[str, Decimal] = {}
    for since_midnight in _TIMES_OF_DAY:
        try:
            price = genai_prices.calc_price(usage, model, **where, genai_request_timestamp=midnight + since_midnight)
        except LookupError:
            raise PriceError(_unknown(model, base_url, genai_prices.__version__)) from None
        entry = f"{price.provider.id}/{price.model.id.removeprefix(price.provider.id + '/')}"
        for name, theirs in PRICES.items():
            value = getattr(price.model_price, theirs)
            if value is None and name == "price_cached_in":
                continue
            if value is None:
                raise PriceError(f"genai-prices {genai_prices.__version__} has no {name} for {entry}")
            if not isinstance(value, Decimal):
                raise PriceError(f"the price of {entry} depends on the length of the prompt (for {name}, "
                                 f"{value.base:f} up to {value.tiers[0].start:,} tokens); state the prices that apply")
            found[name] = max(value, found.get(name, value))
        more = next((what for what in _BEYOND_TOKENS if getattr(price.model_price, what) is not None), None)
        if more is not None:
            raise PriceError(f"{entry} bills more than tokens ({more})")
    text = {name: format(value.normalize(), "f") for name, value in found.items()}
    return ListPrice(text["price_in"], text["price_out"], text.get("price_cached_in"),
                     f"genai-prices {genai_prices.__version__}, {midnight.date()} ({entry})")


def with_list_prices(llms: Iterable[Any], price_date: Any = None, pool_date: Any = None) -> list[Any]:
    """The mappings of a pool's LLMs; those without price_in or price_out get what the list says for that day.

    `price_cached_in` comes along with price_in: one list, one source. What cannot be found becomes `Unpriced`. What is
    no LLM at all stays as it is, for whoever checks it.
    """
    day = pool_date if price_date is None else price_date
    try:
        fault = not isinstance(day, (str, type(None))) or (price_date is not None and not checked_day(price_date))
    except PriceError:
        fault = True
    if fault:   # of the pool's own field: it is told there
        return [dict.fromkeys(("price_in", "price_out"), Unpriced("")) | m if isinstance(m, dict) else m for m in llms]
    return [_priced(m, day) if isinstance(m, dict) else m for m in llms]


def checked_day(day: Any) -> date:
    """The date of a text such as "2026-01-16"; PriceError for anything else, and for a day that has not come yet."""
    if isinstance(day, date):
        raise PriceError(f'expected text; put it in quotes: "{day:%Y-%m-%d}"')
    try:
        found = date.fromisoformat(day) if isinstance(day, str) and re.fullmatch(_DAY, day) else None
    except ValueError:
        found = None
    if found is None:
        raise PriceError('expected a day such as "2026-01-16"')
    if found > datetime.now(UTC).date() + timedelta(days=1):   # somewhere it is tomorrow already
        raise PriceError("this day has not come yet, and nobody knows its prices")
    return found


def _priced(m: dict[str, Any], day: Any) -> dict[str, Any]:
    missing = [name for name in ("price_in", "price_out") if name not in m]
    if not missing:
        return m
    model, base_url, source = m.get("model") or m.get("name"), m.get("base_url"), m.get("source")
    if not isinstance(model, str) or not isinstance(base_url, (str, type(None))):
        return m   # two faults of one cause would be reported
    try:
        found = list_price(model, base_url, day)
    except PriceError as why:
        fault = f"{' and '.join(missing)} {'are' if missing[1:] else 'is'} missing, and {why}"
        return m | dict.fromkeys(missing, Unpriced("")) | {missing[0]: Unpriced(fault)}
    if "price_in" in missing and m.get("price_cached_in") is None:
        missing.append("price_cached_in")
    told = found.source if len(missing) == len(PRICES) else f"{', '.join(missing)}: {found.source}"
    return m | {name: getattr(found, name) for name in missing} | {
        "source": f"{source}; {told}" if isinstance(source, str) else told}


def _unknown(model: str, base_url: str | None, version: str) -> str:
    if base_url is None:
        return f"genai-prices {version} knows no model {shown(model)}"
    return (f"genai-prices {version} knows no model {shown(model)} at {base_url}; for a server of your own give small "
            "pseudo-prices")
