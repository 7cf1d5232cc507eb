"""What is really sent to an endpoint: the body of a request and the most tokens that its prompt can have.

Live calls, recordings and replays share these two functions, so that a replay needs neither the openai package nor a
key to know which request a call would have been.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from bamas_lite.few_shot import render
from bamas_lite.llm import Message, bound_prompt_tokens
from bamas_lite.pool import LLM


@dataclass
class Attempts:
    """What the attempts of one call may have cost without telling us; who keeps a spend cap sets it around the call.

    A backend adds to `doubtful` the worst case (atoms) of each attempt of which nobody knows whether it was billed,
    and before it repeats such an attempt it awaits `hold` with the worst case of the next one. `hold` raises RunStopped
    where the cap leaves no room: then there is no further attempt.
    """

    hold: Callable[[int], Awaitable[None]]
    doubtful: int = 0


ATTEMPTS: ContextVar[Attempts | None] = ContextVar("attempts", default=None)
"""The attempts of the call that is being made; None: nobody keeps a cap."""


def request_body(llm: LLM, messages: list[Message], max_tokens: int, temperature: float = 0.0) -> dict[str, Any]:
    """The JSON body of one request, for /chat/completions or (llm.api "completion") /completions.

    A reasoning LLM gets its limit as max_completion_tokens, which counts its thoughts too, and no temperature. What
    stands in `llm.extra_body` is added, or replaces a value; null there leaves a parameter out, as in
    `{temperature: null}`.
    """
    rendered = render(llm, messages)
    body: dict[str, Any] = {"model": llm.model or llm.name}
    if rendered.prompt is None:
        body["messages"] = rendered.messages
    else:
        body["prompt"] = rendered.prompt
    if llm.reasoning:
        body["max_completion_tokens"] = int(max_tokens)
    else:
        body["max_tokens"] = int(max_tokens)
        body["temperature"] = float(temperature)
    if rendered.stop:
        body["stop"] = list(rendered.stop)
    for key, value in (llm.extra_body or {}).items():
        if value is None:
            body.pop(key, None)
        else:
            body[key] = value
    return body


def bound_tokens(llm: LLM, messages: list[Message], strict: bool = False) -> int:
    """Upper bound on the prompt tokens of what is sent, few-shot examples included (see llm.bound_prompt_tokens)."""
    rendered = render(llm, messages)
    sent = rendered.messages if rendered.prompt is None else [{"role": "user", "content": rendered.prompt}]
    return bound_prompt_tokens(sent, strict=strict)
