"""What is sent: bodies of requests and bounds on their prompts."""

import json
import subprocess
import sys

import numpy as np
import pytest

from bamas_lite.few_shot import render
from bamas_lite.llm import bound_prompt_tokens
from bamas_lite.pool import LLM, PoolError
from bamas_lite.prompts import critic_messages, executor_messages, planner_messages
from bamas_lite.tasks import Task
from bamas_lite.wire import bound_tokens, request_body

TASK = Task("t/1", "arithmetic", 1, "Ann has 2 pens and buys 3. How many pens has she?", "5")
MESSAGES = executor_messages(TASK)


def llm(**fields) -> LLM:
    return LLM(**{"name": "small", "price_in": 1, "price_out": 2, "max_tokens": 100, "tier": 1, **fields})


def test_a_chat_request_holds_the_messages_as_they_are():
    assert request_body(llm(model="small-1"), MESSAGES, 77, 0.5) == {
        "model": "small-1", "messages": MESSAGES, "max_tokens": 77, "temperature": 0.5}
    assert request_body(llm(), MESSAGES, 77)["model"] == "small"


def test_a_base_model_gets_one_text_with_examples():
    body = request_body(llm(api="completion", few_shot=True), MESSAGES, 77)
    assert set(body) == {"model", "prompt", "max_tokens", "temperature", "stop"}
    assert TASK.question in body["prompt"] and len(body["prompt"]) > 2 * len(TASK.question)
    assert body["stop"] and all(isinstance(stop, str) for stop in body["stop"])


def test_a_reasoning_llm_gets_another_limit_and_no_temperature():
    assert request_body(llm(reasoning=True), MESSAGES, 77, 0.5) == {
        "model": "small", "messages": MESSAGES, "max_completion_tokens": 77}


def test_options_of_a_provider_are_added_replaced_or_left_out():
    body = request_body(llm(extra_body={"top_p": 0.9, "temperature": 1, "seed": None}), MESSAGES, 77, 0.5)
    assert body["top_p"] == 0.9 and body["temperature"] == 1 and "seed" not in body
    assert "temperature" not in request_body(llm(extra_body={"temperature": None}), MESSAGES, 77, 0.5)


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "n", "stream", "model", "messages"])
def test_options_cannot_replace_what_a_budget_rests_on(name):
    with pytest.raises(PoolError, match=f"extra_body.*{name} is decided by each call"):
        llm(extra_body={"top_p": 1, name: 5})


def test_equal_requests_have_equal_text_whatever_the_type_of_their_numbers():
    texts = {json.dumps(request_body(llm(), MESSAGES, tokens, temperature))
             for tokens, temperature in ((7, 0), (np.int64(7), 0.0), (7, np.float64(0)))}
    assert len(texts) == 1


@pytest.mark.parametrize("fields", [{}, {"few_shot": True}, {"api": "completion"},
                                    {"api": "completion", "few_shot": True}])
@pytest.mark.parametrize("messages", [MESSAGES, critic_messages(TASK, "#### 5 \u20ac"),
                                      planner_messages(TASK, ["A #1", "B #1"])])
def test_the_bound_is_of_what_is_sent(fields, messages):
    model = llm(**fields)
    sent = render(model, messages)
    size = sum(len(m["content"].encode()) for m in sent.messages) if sent.prompt is None else len(sent.prompt.encode())
    assert bound_tokens(model, messages, strict=True) > size
    assert size / 2.5 < bound_tokens(model, messages) < bound_tokens(model, messages, strict=True)
    if fields.get("few_shot"):
        assert bound_tokens(model, messages) > bound_prompt_tokens(messages)
    body = request_body(model, messages, 5)
    assert body.get("messages") == sent.messages and body.get("prompt") == sent.prompt


def test_nothing_is_imported_before_a_call():
    code = ("import sys, bamas_lite.wire, bamas_lite.endpoints as e; b = e.OpenAIChat(); "
            "print([m for m in ('openai', 'httpx', 'httpx2', 'torch') if m in sys.modules])")
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
