"""List prices: their values, the date, the dearest hour, and what no list can tell."""

from __future__ import annotations

import datetime
import pickle
import subprocess
import sys
from decimal import Decimal

import genai_prices
import pytest
from genai_prices.data_snapshot import DataSnapshot, get_snapshot, set_custom_snapshot
from genai_prices.types import (
    ClauseEquals,
    ConditionalPrice,
    ModelInfo,
    ModelPrice,
    Provider,
    StartDateConstraint,
    Tier,
    TieredPrices,
    TimeOfDateConstraint,
)

from bamas_lite import LLM, Pool, PoolError, load_pool
from bamas_lite.prices import ListPrice, PriceError, list_price
from bamas_lite.provisioning import provision

DAY = "2026-01-16"
DEEPSEEK, OPENAI, OPENROUTER = "https://api.deepseek.com", "https://api.openai.com/v1", "https://openrouter.ai/api/v1"
ADDRESSES = {"openai": OPENAI, "deepseek": DEEPSEEK, "openrouter": OPENROUTER, "groq": "https://api.groq.com/openai/v1",
             "mistral": "https://api.mistral.ai/v1", "x-ai": "https://api.x.ai/v1"}


def entry(**fields):
    return {"name": "A", "tier": 1, "max_tokens": 8, "model": "gpt-4.1-nano", "base_url": OPENAI} | fields


def pool(*llms, **fields):
    return Pool(**{"name": "p", "price_date": DAY, "llms": list(llms)} | fields)


@pytest.mark.parametrize(("model", "base_url", "name"), [
    ("gpt-4.1-nano", OPENAI, "GPT-4.1 nano"), ("gpt-4.1", OPENAI, "GPT-4.1"), ("gpt-4.1-mini", None, "GPT-4.1 mini"),
    ("gpt-4o-mini", OPENAI, "GPT-4o mini"), ("deepseek-chat", DEEPSEEK, "DeepSeek-V3"),
    ("claude-haiku-4-5", None, "Claude Haiku 4.5"), ("gemini-2.5-flash-lite", None, "Gemini 2.5 Flash-Lite")])
def test_prices_are_those_that_the_committed_pool_was_typed_with(model, base_url, name):
    typed = load_pool("fourteen")[name]
    found = list_price(model, base_url, DAY)
    assert (float(found.price_in), float(found.price_out)) == (typed.price_in, typed.price_out)
    assert found.source.startswith(f"genai-prices {genai_prices.__version__}, {DAY} (") and "/" in found.source


def test_the_papers_prices():
    for llm in load_pool("paper").llms:
        found = list_price(llm.model, llm.base_url, load_pool("paper").date)
        assert (float(found.price_in), float(found.price_out)) == (llm.price_in, llm.price_out)


def test_the_dearest_hour_counts():
    night = datetime.datetime(2026, 1, 16, 20, tzinfo=datetime.UTC)
    usage = genai_prices.Usage(input_tokens=10**6, output_tokens=0)
    cheap = genai_prices.calc_price(usage, "deepseek-chat", genai_request_timestamp=night).total_price
    assert cheap < Decimal(list_price("deepseek-chat", DEEPSEEK, DAY).price_in)


@pytest.mark.parametrize("provider", ADDRESSES)
def test_no_minute_of_the_day_is_dearer(provider):
    """Against the data set itself, read by the minute; every model of the provider with plain prices."""
    minutes = [datetime.datetime(2026, 1, 16, m // 60, m % 60, tzinfo=datetime.UTC) for m in range(24 * 60)]
    known = next(p for p in get_snapshot().providers if p.id == provider)
    compared = 0
    for model in known.models[:60]:
        if known.find_model(model.id) is not model:
            continue   # another entry answers to this name
        try:
            found = list_price(model.id, ADDRESSES[provider], DAY)
        except PriceError:
            continue
        prices = [model.get_prices(minute) for minute in (minutes if isinstance(model.prices, list) else minutes[:1])]
        assert Decimal(found.price_in) == max(p.input_mtok for p in prices)
        assert Decimal(found.price_out) == max(p.output_mtok for p in prices)
        compared += 1
    assert compared >= 1


def model_of(prices):
    return ModelInfo(id="m", match=ClauseEquals(equals="m"), prices=prices)


@pytest.fixture
def listed():
    """Let the data set hold one model "m" at https://maker.example."""
    def install(prices):
        set_custom_snapshot(DataSnapshot([Provider("maker", "Maker", r"https://maker\.example",
                                                   models=[model_of(prices)])], from_auto_update=False))
    yield install
    set_custom_snapshot(None)


def price(price_in, price_out, **more):
    return ModelPrice(input_mtok=Decimal(price_in), output_mtok=Decimal(price_out), **more)


def hours(start, end):
    return TimeOfDateConstraint(datetime.time(start, 15, tzinfo=datetime.UTC), datetime.time(end, tzinfo=datetime.UTC))


def found(day=DAY):
    return list_price("m", "https://maker.example/v1", day)


def test_each_price_has_its_own_dearest_hour(listed):
    listed([ConditionalPrice(prices=price("1", "5")), ConditionalPrice(hours(3, 4), prices=price("2", "3"))])
    assert (found().price_in, found().price_out) == ("2", "5")


def test_the_day_decides(listed):
    listed([ConditionalPrice(prices=price("1", "2", cache_read_mtok=Decimal("0.5"))),
            ConditionalPrice(StartDateConstraint(datetime.date(2026, 1, 17)), prices=price("0.5", "1"))])
    assert found("2026-01-16") == ListPrice("1", "2", "0.5", f"genai-prices {genai_prices.__version__}, 2026-01-16 "
                                                             "(maker/m)")
    assert found("2026-01-17").price_in == "0.5" and found("2026-01-17").price_cached_in is None


def test_decimals_stay_as_they_are(listed):
    listed(price("0.000000000000000001", "1E+2"))
    llm = pool(entry(model="m", base_url="https://maker.example")).llms[0]
    assert llm.atoms_per_token == (1, 100 * 10**18)


TIERED = TieredPrices(Decimal(1), [Tier(200_000, Decimal(2))])


@pytest.mark.parametrize(("prices", "words"), [
    (ModelPrice(input_mtok=TIERED, output_mtok=Decimal(1)),
     "depends on the length of the prompt (for price_in, 1 up to 200,000 tokens)"),
    (ModelPrice(input_mtok=Decimal(1), output_mtok=TIERED), "depends on the length of the prompt"),
    (price("1", "1", cache_read_mtok=TIERED), "depends on the length of the prompt"),
    (ModelPrice(input_mtok=Decimal(1)), "has no price_out for maker/m"), (ModelPrice(), "has no price_in for maker/m"),
    (price("1", "1", requests_kcount=Decimal(5)), "bills more than tokens"),
    (price("1", "1", output_reasoning_mtok=Decimal(5)), "bills more than tokens"),
    ([ConditionalPrice(prices=price("1", "1")), ConditionalPrice(hours(3, 4), prices=ModelPrice(input_mtok=TIERED))],
     "depends on the length of the prompt")])
def test_prices_that_are_not_two_numbers_are_refused(listed, prices, words):
    listed(prices)
    with pytest.raises(PoolError) as caught:
        pool(entry(model="m", base_url="https://maker.example"))
    assert str(caught.value).startswith("LLM 'A': price_in and price_out are missing, and ")
    assert words in str(caught.value) and len(str(caught.value).splitlines()) == 1


def test_free_is_no_price(listed):
    listed(price("0", "0"))
    with pytest.raises(PoolError, match="LLM 'A': price_in = price_out = 0: .*pseudo-price"):
        pool(entry(model="m", base_url="https://maker.example"))


@pytest.mark.parametrize(("llm", "fields", "words"), [
    ({"model": "no-such"}, {}, "knows no model 'no-such' at https://api.openai.com/v1"),
    ({"model": "no-such", "base_url": None}, {}, "knows no model 'no-such'"),
    ({"base_url": "http://127.0.0.1:8080/v1"}, {}, "at http://127.0.0.1:8080/v1; for a server of your own give small"),
    ({"model": None}, {}, "knows no model 'A'"),
    ({}, {"price_date": None}, "the pool states no price_date (or date)"),
    ({}, {"price_date": None, "date": "January 2026"}, "at the date 'January 2026': expected a day such as"),
    ({}, {"price_date": None, "date": "20260116"}, "expected a day such as"),
    ({}, {"price_date": None, "date": "2026-W03-5"}, "expected a day such as"),
    ({}, {"price_date": None, "date": "2999-01-01"}, "this day has not come yet")])
def test_what_is_not_found_is_one_line_with_llm_and_field(llm, fields, words):
    with pytest.raises(PoolError) as caught:
        pool(entry(**llm), **fields)
    line, = str(caught.value).splitlines()
    assert line.startswith("LLM 'A': price_in and price_out are missing, and ") and words in line


def test_one_missing_price_is_named_alone():
    with pytest.raises(PoolError, match="^LLM 'A': price_out is missing, and the pool states no price_date"):
        pool(entry(price_in=1), price_date=None)
    with pytest.raises(PoolError, match="^price_date = '16.1.2026': expected a day such as \"2026-01-16\"$"):
        pool(entry(price_in=1, price_out=1), price_date="16.1.2026")


@pytest.mark.parametrize(("field", "day", "words"), [
    ("price_date", datetime.date(2026, 1, 16), "expected text; put it in quotes"),
    ("date", datetime.date(2026, 1, 16), "expected text; put it in quotes"),
    ("price_date", "2026-W03-5", 'expected a day such as "2026-01-16"'),
    ("price_date", "2999-01-01", "this day has not come yet, and nobody knows its prices"),
    ("price_date", 20260116, "expected text; put it in quotes")])
def test_a_wrong_day_is_told_once(field, day, words):
    """Also where prices are missing, which nobody can look up then."""
    for llm in (entry(), entry(price_in=1, price_out=1)):
        with pytest.raises(PoolError) as caught:
            pool(llm, entry(name="B"), **{"price_date": None} | {field: day})
        assert str(caught.value) == f"{field} = {day!r}: {words}"
    with pytest.raises(PriceError, match='put it in quotes: "2026-01-16"'):
        list_price("gpt-4.1-nano", OPENAI, datetime.date(2026, 1, 16))


def test_today_is_a_day(listed):
    """Wherever it is today: the clock may be a day ahead of UTC."""
    listed(price("1", "2"))
    now = datetime.datetime.now(datetime.UTC)
    for ahead in (-1, 0, 12):
        assert found((now + datetime.timedelta(hours=ahead)).date().isoformat()).price_in == "1"


def test_other_faults_are_told_beside_it():
    with pytest.raises(PoolError) as caught:
        pool(entry(model="no-such", max_tokens=0), entry(name="B", price_in=-1))
    assert [line.split(":")[0] + line.split(":")[1][:9] for line in str(caught.value).splitlines()] == [
        "LLM 'A' price_in", "LLM 'A' max_toke", "LLM 'B' price_in"]


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    with pytest.raises(PoolError, match="LLM 'A': .*genai-prices, which is not installed"):
        pool(entry())
    assert pool(entry(price_in=1, price_out=2)).llms[0].price_cached_in is None


def test_stated_prices_win():
    full, half, cached = pool(entry(price_in=7, price_out=8), entry(name="B", price_in=7),
                              entry(name="C", price_cached_in=0.01, source="mine")).llms
    assert (full.price_in, full.price_out, full.price_cached_in, full.source) == (7, 8, None, None)
    assert (half.price_in, half.price_out, half.price_cached_in) == (7, 0.4, None)   # a cached price of another list
    assert half.source.startswith("price_out: genai-prices ")
    assert (cached.price_in, cached.price_out, cached.price_cached_in) == (0.1, 0.4, 0.01)
    assert cached.source.startswith("mine; price_in, price_out: genai-prices ")
    everything = pool(entry()).llms[0]
    assert everything.price_cached_in == 0.025 and everything.source.startswith("genai-prices ")


def test_price_date_goes_before_date(listed):
    listed([ConditionalPrice(prices=price("1", "2")),
            ConditionalPrice(StartDateConstraint(datetime.date(2026, 1, 17)), prices=price("3", "4"))])
    m = entry(model="m", base_url="https://maker.example")
    assert pool(m, date="2026-02-01").llms[0].price_in == 1
    assert pool(m, price_date=None, date="2026-02-01").llms[0].price_in == 3


def test_a_filled_pool_is_a_pool_like_any_other(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(f"name: p\nprice_date: '{DAY}'\nllms:\n  - {{name: A, tier: 1, max_tokens: 8, model: gpt-4.1-nano, "
                    f"base_url: '{OPENAI}'}}\n", encoding="utf-8")
    loaded, built = load_pool(path), pool(entry())
    assert loaded == built == pickle.loads(pickle.dumps(built)) == Pool(**built.model_dump())
    assert built.with_max_tokens(9).llms[0].price_in == 0.1 and provision(built, 107).cost > 0
    typed = Pool(name="p", llms=[LLM(**entry(price_in="0.10", price_out=0.4, price_cached_in=0.025,
                                             source=built.llms[0].source))])
    assert typed.checksum == built.checksum   # the day of the look-up changes nothing, the prices do
    assert built.checksum != pool(entry(model="gpt-4.1-mini")).checksum


def test_a_file_that_fails_names_file_llm_and_field(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("llms: [{name: A, tier: 1, max_tokens: 8, model: gpt-4.1-nano}]", encoding="utf-8")
    with pytest.raises(PoolError) as caught:
        load_pool(path)
    assert str(caught.value).startswith(f"{path}: LLM 'A': price_in and price_out are missing, and ")


def test_pools_with_all_prices_do_not_load_the_package():
    code = ("import sys; from bamas_lite import load_pool; [load_pool(name) for name in ('paper', 'fourteen')]; "
            "sys.exit('genai_prices' in sys.modules)")
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
