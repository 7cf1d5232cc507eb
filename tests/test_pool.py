"""Pools: every wrong file gives one message that names the file, the LLM, the field and the value."""

import json
import pickle
import random
import string
from decimal import Decimal
from fractions import Fraction
from urllib.parse import urlsplit

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bamas_lite import LLM, Pool, PoolError, call_cost, exact, load_pool, provision
from bamas_lite.paths import DATA
from bamas_lite.pool import rank
from bamas_lite.trajectory_log import load_manifest

GOOD = """\
name: mine
llms:
  - name: A
    tier: 1
    price_in: 0.27
    price_out: 1.10
    max_tokens: 384
  - name: B
    tier: 2
    price_in: 0.10
    price_out: 0.40
    max_tokens: 512
"""

# what is changed -> text that replaces the first occurrence, and words that the message must hold
KEY = "sk" "-a1B2c3D4e5F6g7H8i9J0secret"

WRONG = {
    "missing price": ("    price_out: 1.10\n", "", ["LLM 'A'", "price_out is missing"]),
    "missing max_tokens": ("    max_tokens: 512\n", "", ["LLM 'B'", "max_tokens is missing"]),
    "missing name": ("  - name: A\n    tier", "  - tier", ["LLM number 1", "name is missing"]),
    "negative": ("1.10", "-1.10", ["LLM 'A'", "price_out = -1.1", "expected 0 to"]),
    "NaN": ("1.10", ".nan", ["LLM 'A'", "price_out = .nan", "finite number"]),
    "infinite": ("1.10", ".inf", ["LLM 'A'", "price_out = .inf", "finite number"]),
    "past every float": ("1.10", "1e400", ["LLM 'A'", "price_out = 1e400", "finite number"]),
    "boolean price": ("1.10", "true", ["LLM 'A'", "price_out = True", "finite number"]),
    "word as price": ("1.10", "cheap", ["LLM 'A'", "price_out = 'cheap'", "finite number"]),
    "comma in price": ("1.10", "'1,10'", ["LLM 'A'", "price_out = '1,10'", "finite number"]),
    "empty price": ("1.10", "", ["LLM 'A'", "price_out = None", "finite number"]),
    "list as price": ("1.10", "[1]", ["LLM 'A'", "price_out = [1]", "finite number"]),
    "too many decimals": ("1.10", "'1.0000000000000000001'", ["LLM 'A'", "price_out", "18 decimals"]),
    "exponent of a hang": ("1.10", "1e99999999", ["LLM 'A'", "price_out = 1e99999999", "finite number"]),
    "5000 digits": ("1.10", "1" * 5000, ["LLM 'A'", "price_out = 111", "finite number"]),
    "sexagesimal": ("1.10", "1:30", ["LLM 'A'", "price_out = '1:30'", "finite number"]),
    "hexadecimal": ("384", "0x10", ["LLM 'A'", "max_tokens = '0x10'", "whole number"]),
    "bare digits that a float rounds": ("1.10", "1.000000000000000001", ["price_out = 1.000000000000000001", "digits"]),
    "no price at all": ("0.27\n    price_out: 1.10", "0\n    price_out: 0", ["LLM 'A'", "price_in = price_out = 0"]),
    "duplicate name": ("name: B", "name: A", ["LLM 'A'", "name = 'A'", "2 times"]),
    "empty name": ("name: A", "name: '  '", ["name = '  '", "expected text"]),
    "number as name": ("name: A", "name: 3", ["name = 3", "put it in quotes"]),
    "unknown key of an LLM": ("tier: 2", "tier: 2\n    color: red", ["LLM 'B'", "color = 'red'", "unknown key"]),
    "unknown key of the pool": ("name: mine", "name: mine\ncolor: red", ["color = 'red'", "unknown key", "llms"]),
    "tier gap": ("tier: 2", "tier: 3", ["LLM 'B'", "tier = 3", "tier 2 has no LLM"]),
    "tier 0": ("tier: 1", "tier: 0", ["LLM 'A'", "tier = 0", "at least 1"]),
    "tier as word": ("tier: 1", "tier: one", ["LLM 'A'", "tier = 'one'", "whole number"]),
    "tier and rating mixed": ("tier: 2", "rating: 1300", ["LLM 'B'", "tier is missing"]),
    "neither tier nor rating": ("    tier: 2\n", "", ["LLM 'B'", "tier and rating are missing"]),
    "boolean rating": ("tier: 1", "tier: 1\n    rating: true", ["LLM 'A'", "rating = True", "a number"]),
    "NaN rating": ("tier: 1", "tier: 1\n    rating: .nan", ["LLM 'A'", "rating = .nan", "finite"]),
    "no speed": ("tier: 1", "tier: 1\n    tokens_per_s: 0", ["LLM 'A'", "tokens_per_s = 0", "more than 0"]),
    "no tokens": ("max_tokens: 384", "max_tokens: 0", ["LLM 'A'", "max_tokens = 0", "at least 1"]),
    "endless tokens": ("384", "1" + "0" * 30, ["LLM 'A'", "max_tokens = 1000", "at most 100,000,000"]),
    "tokens of 5000 digits": ("384", "1" * 5000, ["LLM 'A'", "max_tokens = 111", "whole number"]),
    "name of two lines": ("name: B", 'name: "B\\nC"', ["name = 'B\\nC'", "one line"]),
    "NUL in a name": ("name: B", 'name: "B\\0"', ["name = 'B\\x00'", "one line"]),
    "half a token": ("max_tokens: 384", "max_tokens: 1.5", ["LLM 'A'", "max_tokens = 1.5", "whole number"]),
    "address without a scheme": ("tier: 2", "tier: 2\n    base_url: openai.com", ["LLM 'B'", "base_url", "such as"]),
    "key in the address": ("tier: 2", "tier: 2\n    base_url: https://u:secret@h/v1",
                           ["LLM 'B'", "base_url = 'https://***@h/v1'", "without a user"]),
    "key behind the address": ("tier: 2", "tier: 2\n    base_url: https://h/v1?key=secret",
                               ["LLM 'B'", "base_url = 'https://h/v1?***'"]),
    "space in the address": ("tier: 2", "tier: 2\n    base_url: http://h /v1", ["LLM 'B'", "base_url", "such as"]),
    "a key as the variable": ("tier: 2", "tier: 2\n    api_key_env: sk-a-secret", ["LLM 'B'", "api_key_env = 'sk-a...'",
                                                                                 "keys do not belong"]),
    "very long variable": ("tier: 2", "tier: 2\n    api_key_env: " + "K" * 41, ["LLM 'B'", "name of an environment"]),
    "unknown field with a key": ("tier: 2", "tier: 2\n    api_key: sk-proj-secret", ["LLM 'B'", "api_key = '***'",
                                                                                  "api_key_env is the NAME"]),
    "unknown field with a password": ("tier: 2", "tier: 2\n    my_password: 4711secret", ["my_password = '***'"]),
    "headers with a key": ("tier: 2", "tier: 2\n    headers: {Authorization: Bearer secret}",
                           ["headers = {'Authorization': '***'}", "api_key_env is the NAME"]),
    "key twice": ("tier: 2", "tier: 2\n    api_key: secret1\n    api_key: secret2", ["api_key = ***, then ***"]),
    "key of the pool": ("name: mine", "name: mine\napi_token: secret", ["api_token = '***'", "unknown key"]),
    "key in a pool that is none": (GOOD, "- {name: A, api_key: secret}\n", ["found [{'name': 'A', 'api_key': '***'}]"]),
    "key in LLMs that are none": (GOOD, "llms: {name: A, api_key: secret}\n", ["'api_key': '***'", "a list of LLMs"]),
    "key in extra_body": ("tier: 2", f"tier: 2\n    extra_body: {{headers: {{a: Bearer {KEY}}}}}",
                          ["LLM 'B'", "extra_body = {'headers': {'a': 'Bearer ***'}}", "looks like a key"]),
    "extra_body with a number as key": ("tier: 2", "tier: 2\n    extra_body: {x: {1: 2, a: 3}}",
                                        ["extra_body = {'x': {1: 2, 'a': 3}}", "keys that are text"]),
    "extra_body with a YAML word as key": ("tier: 2", "tier: 2\n    extra_body: {x: {on: 2}}", ["keys that are text"]),
    "extra_body of half a pair": ("tier: 2", 'tier: 2\n    extra_body: {x: "\\ud800"}', ["extra_body", "JSON"]),
    "half a pair as model": ("tier: 2", 'tier: 2\n    model: "\\ud800"', ["LLM 'B'", "model", "half a surrogate pair"]),
    "address without a host": ("tier: 2", "tier: 2\n    base_url: http://:80/v1", ["LLM 'B'", "base_url", "such as"]),
    "port past the last": ("tier: 2", "tier: 2\n    base_url: http://h:65536/v1", ["LLM 'B'", "base_url", "65,535"]),
    "port 0": ("tier: 2", "tier: 2\n    base_url: http://h:0/v1", ["LLM 'B'", "base_url", "65,535"]),
    "port of letters": ("tier: 2", "tier: 2\n    base_url: http://h:x/v1", ["LLM 'B'", "base_url", "65,535"]),
    "half an IPv6 address": ("tier: 2", "tier: 2\n    base_url: http://[::1/v1", ["LLM 'B'", "base_url", "such as"]),
    "week as price_date": ("name: mine", "name: mine\nprice_date: 2026-W03-5", ["price_date", "such as"]),
    "price_date to come": ("name: mine", "name: mine\nprice_date: '2999-01-01'", ["price_date", "not come yet"]),
    "number as model": ("tier: 2", "tier: 2\n    model: 4.1", ["LLM 'B'", "model = 4.1", "put it in quotes"]),
    "unknown api": ("tier: 2", "tier: 2\n    api: responses", ["LLM 'B'", "api = 'responses'",
                                                            "'chat' or 'completion'"]),
    "few_shot as text": ("tier: 2", "tier: 2\n    few_shot: 'yes'", ["LLM 'B'", "few_shot = 'yes'"]),
    "reasoning as number": ("tier: 2", "tier: 2\n    reasoning: 1", ["LLM 'B'", "reasoning = 1"]),
    "cached price above": ("tier: 2", "tier: 2\n    price_cached_in: 0.2", ["LLM 'B'", "price_cached_in = 0.2",
                                                                          "at most price_in = 0.1"]),
    "negative cached price": ("tier: 2", "tier: 2\n    price_cached_in: -0.1", ["LLM 'B'", "price_cached_in = -0.1"]),
    "no concurrency": ("tier: 2", "tier: 2\n    concurrency: 0", ["LLM 'B'", "concurrency = 0", "at least 1"]),
    "concurrency of a half": ("tier: 2", "tier: 2\n    concurrency: 0.5", ["LLM 'B'", "concurrency = 0.5", "whole"]),
    "no requests": ("tier: 2", "tier: 2\n    requests_per_minute: 0", ["LLM 'B'", "requests_per_minute = 0",
                                                                     "more than 0"]),
    "no time": ("tier: 2", "tier: 2\n    timeout_s: 0", ["LLM 'B'", "timeout_s = 0", "more than 0"]),
    "endless time": ("tier: 2", "tier: 2\n    timeout_s: .inf", ["LLM 'B'", "timeout_s = .inf", "finite"]),
    "extra_body no mapping": ("tier: 2", "tier: 2\n    extra_body: [1]", ["LLM 'B'", "extra_body = [1]"]),
    "extra_body of dates": ("tier: 2", "tier: 2\n    extra_body: {day: 2026-01-16}", ["extra_body", "JSON"]),
    "extra_body of NaN": ("tier: 2", "tier: 2\n    extra_body: {x: .nan}", ["extra_body", "JSON"]),
    "extra_body decides a limit": ("tier: 2", "tier: 2\n    extra_body: {max_tokens: 9}", ["LLM 'B'", "max_tokens is"]),
    "price_date as a date": ("name: mine", "name: mine\nprice_date: 2026-01-16", ["price_date", "put it in quotes"]),
    "duplicate YAML key": ("tier: 2", "tier: 2\n    tier: 3", ["LLM 'B'", "tier = 2, then 3", "line 10"]),
    "broken YAML": ("llms:", "llms: [", ["line "]),
    "nested too deeply": (GOOD, "name: " + "[" * 3000, ["nested too deeply"]),
    "alias": (GOOD, "a: &a [1, 1]\nb: [*a, *a]\n", ["line 2", "*a: aliases are not supported"]),
    "no such day": ("name: mine", "name: mine\ndate: 2026-13-45", ["not readable as YAML", "month"]),
    "key is a number": ("tier: 2", "5: 2", ["LLM 'B'", "5 = 2", "unknown key"]),
    "date as text": ("name: mine", "name: mine\ndate: 2026-01-16", ["date", "put it in quotes"]),
    "no LLMs key": (GOOD, "name: mine\n", ["llms is missing"]),
    "empty pool": (GOOD, "name: mine\nllms: []\n", ["llms = []", "at least one LLM"]),
    "LLMs left blank": (GOOD, "name: mine\nllms:\n", ["llms = None", "a list of LLMs"]),
    "LLM is a word": (GOOD, "llms: [GPT]\n", ["LLM number 1", "'GPT'", "expected a mapping"]),
    "not a mapping": (GOOD, "- A\n- B\n", ["expected a mapping", "['A', 'B']"]),
    "empty file": (GOOD, "", ["expected a mapping", "None"]),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_file_gives_one_message(what, tmp_path):
    old, new, words = WRONG[what]
    path = tmp_path / "mine.yaml"
    assert old in GOOD
    path.write_text(GOOD.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(PoolError) as caught:
        load_pool(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert len(message.splitlines()) == 1
    assert [word for word in words if word not in message] == [] and "secret" not in message
    assert caught.value.__context__ is None or caught.value.__suppress_context__  # no second traceback above it


@pytest.mark.parametrize("name", ["OPENAI_API_KEY", "MY_KEY_2", "openrouter_key", "openrouterkey2026", "K", "hf_token",
                                  "HF_TOKEN_2", "sk_course", "GROQ_API_KEY_COURSE2026", "MyKeyForTheCourse2026",
                                  "AZURE_OPENAI_GPT41_EASTUS2_KEY", "A" * 40])
def test_names_of_variables_are_taken(name):
    assert llm("A", rating=1, api_key_env=name).api_key_env == name


def invented(kind, seed):
    """A key as a provider might make it, of random signs."""
    prefix, signs, length = kind
    return prefix + "".join(random.Random(seed).choices(signs, k=length))


LETTERS = string.ascii_letters + string.digits
KINDS = [("gsk_", LETTERS, 52), ("hf_", LETTERS, 34), ("sk_", LETTERS, 32), ("xai_", LETTERS, 30), ("r8_", LETTERS, 37),
         ("", LETTERS, 40), ("K", "0123456789abcdef", 31), ("tgp_v1_", LETTERS + "_", 43), ("AIza", LETTERS, 35)]


@pytest.mark.parametrize("kind", KINDS, ids=[kind[0] or "plain" for kind in KINDS])
def test_keys_are_no_names_of_variables(kind):
    """And stand in no message, whatever field they were typed into."""
    for seed in range(50):
        key = invented(kind, seed)
        for fields in ({"api_key_env": key}, {"api_key": key}, {"modell": key}, {"api_key_env": key + " "},
                       {"extra_body": {"a": [{"api_key": key}]}}, {"tier": key}, {"base_url": f"https://h/{key}/?"}):
            with pytest.raises(PoolError) as caught:
                llm("A", **{"rating": 1} | fields)
            assert key[8:] not in str(caught.value) and "'A'" in str(caught.value)


def test_options_and_checksums_are_no_keys():
    body = {"prompt_cache_key": "course-2026", "revision": "5f0b02c75b57c5855da9ae460ce51323ea669d8a", "top_p": 0.9,
            "stop_token_ids": [1, 2], "provider": {"order": ["DeepInfra"], "user": "MyCourseInComputerScience2026"}}
    assert llm("A", rating=1, extra_body=body).extra_body == body


def test_numbers_in_extra_body_travel(tmp_path):
    """To other processes: those of YAML carry their text along, and could not."""
    path = tmp_path / "mine.yaml"
    path.write_text(GOOD.replace("tier: 2", "tier: 2\n    extra_body: {top_p: 0.90, a: [{b: 1.5}]}"), encoding="utf-8")
    pool = load_pool(path)
    assert pickle.loads(pickle.dumps(pool)) == pool and pool["B"].extra_body == {"top_p": 0.9, "a": [{"b": 1.5}]}


def test_two_problems_give_one_line_each(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(GOOD.replace("1.10", "-1").replace("0.40", "cheap"), encoding="utf-8")
    with pytest.raises(PoolError) as caught:
        load_pool(path)
    first, second = str(caught.value).splitlines()
    assert "'A'" in first and "price_out = -1" in first and "'B'" in second and "'cheap'" in second


def test_missing_file_names_the_known_pools(tmp_path):
    for name in ("nosuch", tmp_path / "nosuch.yaml", tmp_path):
        with pytest.raises(PoolError, match="no pool file .*fourteen, .*paper"):
            load_pool(name)


def test_file_that_is_no_text(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_bytes(b"name: \xff")
    with pytest.raises(PoolError, match="not readable as YAML"):
        load_pool(path)


@pytest.mark.parametrize("name", [None, 5, b"paper", ["paper"], "a" * 5000, "a\0b"], ids=lambda v: repr(v)[:9])
def test_what_is_no_path_is_named(name):
    with pytest.raises(PoolError, match="^(pool = .*expected the name of a file|no pool file)"):
        load_pool(name)


@pytest.mark.parametrize(("change", "line"), [
    ({"price_out": -1}, "LLM 'x': price_out = -1: expected 0 to 1,000,000 u$ per token (= USD per million tokens)"),
    ({"price_in": "1e99999999"}, "LLM 'x': price_in = '1e99999999': expected a finite number of u$ per token, "
                                 "such as 0.27"),
    ({"max_tokens": "8"}, "LLM 'x': max_tokens = '8': expected a whole number"),
    ({"max_tokens": 10**5000}, "LLM 'x': max_tokens = <int that cannot be shown>: expected at most 100,000,000"),
    ({"rating": 10**400}, "LLM 'x': rating = " + "1" + "0" * 76 + "...: expected a number"),
    ({"name": b"a"}, "LLM b'a': name = b'a': expected text; put it in quotes"),
    ({"tier": None}, "LLM 'x': tier and rating are missing: one of them must rank the LLM"),
])
def test_wrong_python_values_give_one_line_too(change, line):
    with pytest.raises(PoolError) as caught:
        LLM(**{**llm("x", tier=1).model_dump(), **change})
    assert str(caught.value) == line
    good = llm("good", tier=1).model_dump()
    with pytest.raises(PoolError) as caught:  # the same line from a Pool of plain mappings
        Pool(name="p", llms=[good, {**good, "name": "x", **change}])
    assert str(caught.value) == line


def test_wrong_pools_of_python_give_plain_lines():
    good = llm("good", tier=1)
    for llms, line in (([], "llms = []: expected a list of at least one LLM"), (None, "llms = None: expected a list"),
                       ([good, 3], "LLM number 2: 3: expected a mapping"), ([good, good], "LLM 'good': name = 'good'"),
                       ([{"tier": 1}], "LLM number 1: name is missing\nLLM number 1: price_in is missing"),
                       ([{**good.model_dump(), 1: 2}], "LLM 'good': 1 = 2: unknown key")):
        with pytest.raises(PoolError) as caught:
            Pool(name="p", llms=llms)
        assert str(caught.value).startswith(line) and "pydantic" not in str(caught.value)


def test_numpy_numbers_are_numbers_everywhere():
    m = llm("m", max_tokens=np.int64(8), tier=np.int32(1), rating=np.float32(0.5), price_in=np.float64(0.1))
    assert m == llm("m", max_tokens=8, tier=1, rating=0.5, price_in=0.1) and type(m.max_tokens) is int
    assert Pool(name="p", llms=[m]).with_max_tokens(np.int64(9)).llms[0].max_tokens == 9


def test_tokens_are_not_negative():
    for t_in, t_out, words in ((-1, 5, "t_in = "), (5, -1, "t_out = "), (10**400, 1, "t_in = 1000"),
                               (1, None, "t_out = ")):
        with pytest.raises(ValueError, match=words):
            call_cost(llm("m", tier=1), t_in, t_out)


def test_paper_pool_has_the_papers_prices():
    pool = load_pool("paper")
    assert [(m.name, m.tier, m.price_in, m.price_out, m.max_tokens) for m in pool.llms] == [
        ("DeepSeek-V3", 1, 0.27, 1.10, 384), ("GPT-4.1 nano", 2, 0.10, 0.40, 384)]
    assert [call_cost(m, 500, 384) for m in pool.llms] == [Fraction("557.4"), Fraction("203.6")]
    assert [m.cost_atoms(500, 384) for m in pool.llms] == [5574 * 10**17, 2036 * 10**17]


def test_fourteen_has_five_tiers_and_says_where_its_numbers_come_from():
    pool = load_pool("fourteen")
    assert len(pool) == 14 and len(pool.tiers) >= 5 and pool.date
    assert all(m.rating and m.source for m in pool.llms)
    ratings = [m.rating for tier in pool.tiers for m in tier]
    assert ratings == sorted(ratings, reverse=True)


def test_good_file_as_typed(tmp_path):
    path = tmp_path / "my pool.yaml"
    path.write_text(GOOD.replace("name: mine\n", ""), encoding="utf-8")
    pool = load_pool(path)
    assert pool.name == "my pool" and load_pool(str(path)) == pool
    assert pool["B"].call_cost(1000, 10) == 104 and call_cost(pool["A"], 0, 1) == Fraction("1.1")
    with pytest.raises(KeyError, match="no LLM 'C'; it has A, B"):
        pool["C"]


def llm(name, **fields):
    return LLM(**{"name": name, "price_in": 1, "price_out": 1, "max_tokens": 8, **fields})


def test_ratings_rank_when_no_llm_states_a_tier():
    pool = Pool(name="p", llms=[llm("low", rating=1), llm("high", rating=9), llm("same", rating=9)])
    assert [[m.name for m in tier] for tier in pool.tiers] == [["high", "same"], ["low"]]


def test_order_within_a_tier_is_rating_then_name():
    pool = Pool(name="p", llms=[llm("b", tier=1), llm("a", tier=1), llm("z", tier=1, rating=5), llm("c", tier=2)])
    assert [m.name for m in sorted(pool.llms, key=rank)] == ["z", "a", "b", "c"]


def test_with_max_tokens_changes_nothing_else():
    pool = load_pool("paper")
    assert pool.tiers and pool.llms[0].atoms_per_token  # cached values must not leak into the copy
    longer = pool.with_max_tokens(1024)
    assert [m.max_tokens for m in longer.llms] == [1024, 1024] and longer.with_max_tokens(384) == pool
    for wrong in (0, -1, 1.5, True, "384"):
        with pytest.raises(ValueError, match="max_tokens = "):
            pool.with_max_tokens(wrong)


@pytest.mark.parametrize("value", [Decimal("0.1"), "0.1", " 0.1 ", 0.1, np.float64(0.1), np.float32(0.1),
                                   Fraction(1, 10)])
def test_exact_means_the_decimal_text(value):
    assert exact(value) == Fraction(1, 10)


@pytest.mark.parametrize("value", [None, True, "x", "", float("nan"), float("inf"), [1], object, "1/3"])
def test_exact_refuses_what_is_no_number(value):
    with pytest.raises(ValueError, match="budget = .*expected a finite decimal number"):
        exact(value, "budget")


@pytest.mark.parametrize("value", ["1e9999999", Decimal("1e-99999999"), Decimal("1e99999999"), "1" * 5000, 10**400,
                                   -10**5000, Fraction(10**400), "1e200", float("inf")], ids=lambda v: type(v).__name__)
def test_exact_bounds_what_it_takes(value):
    with pytest.raises(ValueError, match="B = .*: expected a finite decimal number within 1e-400 to 1e200"):
        exact(value, "B")


@pytest.mark.parametrize("value", [5e-324, 1.5e199, 10**199, Decimal("0e99999999"), -1e-300])
def test_exact_takes_every_usual_number(value):
    assert float(exact(value)) == float(value)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 999_999), st.integers(0, 4), st.integers(0, 10**4), st.integers(0, 10**4))
def test_costs_are_exact(digits, decimals, t_in, t_out):
    price = Fraction(digits + 1, 10**decimals)
    m = llm("m", tier=1, price_in=float(price), price_out=str(Decimal(digits + 1).scaleb(-decimals)))
    assert m.call_cost(t_in, t_out) == price * (t_in + t_out) == Fraction(m.cost_atoms(t_in, t_out), 10**18)


FIELDS = {"model": "m-1", "base_url": "http://127.0.0.1:8080/v1", "api_key_env": "MY_KEY", "api": "completion",
          "few_shot": True, "reasoning": True, "price_cached_in": 0.5, "concurrency": 3, "requests_per_minute": 30.5,
          "timeout_s": 2, "extra_body": {"provider": {"order": ["a"]}, "seed": 7}}


def test_endpoint_fields_go_through_files_and_copies(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(GOOD + "".join(f"    {name}: {json.dumps(value)}\n" for name, value in FIELDS.items())
                    .replace(": 0.5", ": 0.05"), encoding="utf-8")
    loaded = load_pool(path)["B"]
    assert {name: getattr(loaded, name) for name in FIELDS} == FIELDS | {"price_cached_in": 0.05}
    for copy in (pickle.loads(pickle.dumps(loaded)), LLM(**loaded.model_dump()),
                 load_pool(path).with_max_tokens(512)["B"]):
        assert copy == loaded and hash(copy) == hash(loaded)
    plain = load_pool("paper")["GPT-4.1 nano"]
    assert [getattr(plain, name) for name in list(FIELDS)[3:]] == ["chat", False, False, *[None] * 5]
    numpy = llm("n", tier=1, concurrency=np.int64(3), requests_per_minute=np.float32(2), timeout_s=np.int32(2))
    assert (numpy.concurrency, numpy.requests_per_minute, numpy.timeout_s) == (3, 2, 2)


@pytest.mark.parametrize("name", FIELDS)
def test_the_checksum_is_of_prices_and_style_not_of_addresses(name):
    """A log may be resumed at another address, not with other prices or prompts."""
    plain, changed = (Pool(name="p", llms=[llm("m", tier=1, **fields)]) for fields in ({}, {name: FIELDS[name]}))
    assert (plain.checksum == changed.checksum) == (name in ("model", "base_url", "api_key_env"))


def test_the_checksum_of_the_papers_pool_is_that_of_the_committed_logs():
    assert load_manifest(DATA / "recorded" / "trajectories_word_problems.parquet")["prices"] == load_pool(
        "paper").checksum


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 1000), st.sampled_from([None, 0, "0.025", 0.1]))
def test_cached_prompt_tokens_cost_their_own_price(t_in, t_out, cached, price):
    m = llm("m", tier=1, price_in=0.1, price_out=0.4, price_cached_in=price)
    cached = min(cached, t_in)
    cheap = Fraction(1, 10) if price is None else exact(price)
    cost = cheap * cached + Fraction(1, 10) * (t_in - cached) + Fraction(4, 10) * t_out
    assert Fraction(m.cost_atoms(t_in, t_out, cached), 10**18) == cost <= m.call_cost(t_in, t_out)


def test_the_examples_load_and_name_what_they_need():
    pool = load_pool("endpoints_example")
    hosted = [m for m in pool.llms if m.api_key_env]
    assert {m.api_key_env for m in hosted} == {"OPENAI_API_KEY", "DEEPSEEK_API_KEY", "OPENROUTER_API_KEY"}
    assert all(m.base_url.startswith("https://") for m in hosted) and all(m.base_url and m.source for m in pool.llms)
    assert all(urlsplit(m.base_url).hostname == "127.0.0.1" for m in pool.llms if not m.api_key_env)
    listed = [m for m in hosted if "genai-prices" in m.source]
    assert [m.name for m in listed] == ["OpenAI nano", "OpenAI reasoning", "DeepSeek"]
    assert all(f"{pool.price_date} (" in m.source for m in listed)
    assert pool["DeepSeek"].price_in == load_pool("paper")["DeepSeek-V3"].price_in
    assert provision(pool, 10**6).cost > 0
