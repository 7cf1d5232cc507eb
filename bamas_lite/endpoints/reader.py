"""What an endpoint's HTTP answer means: a reply, or a fault with what was billed for it and whether asking again helps.

The rule of money: what was billed is never asked for again. An answer that names token counts was billed, whatever else
is wrong with it; a status of 400 or more, or an answer from which nothing can be read, was not, as far as we can know.
"""

from __future__ import annotations

import email.utils
import json
import math
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from bamas_lite.llm import Usage
from bamas_lite.pool import LLM, MOST_TOKENS

_MOST_WORDS = 100_000
"""Characters of a text that are looked at to tell what it says."""

CUT_EARLY = 0.8
"""A reply cut at less than this part of max_tokens was cut by the provider, not by our limit."""

_RETRIED = frozenset({408, 409, 425, 429})

# The words of providers and servers for a reply that is whole, and for one that has reached max_tokens. All others
# (content_filter, SAFETY, insufficient_system_resource, abort, ...) say that it broke off.
_WHOLE = frozenset({"", "stop", "eos", "eos_token", "end_turn", "stop_sequence", "complete", "completed", "tool_calls",
                    "function_call"})
_CUT = frozenset({"length", "max_tokens", "model_length", "max_output_tokens"})


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer: `broken` says why its body ends early (empty: it does not), `hidden` takes the key out."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)
    broken: str = ""
    hidden: Callable[[str], str] = str

    def line(self, text: str, width: int = 200) -> str:
        """`text` on one line, shortened after the key is out of it, of which a part would be left."""
        text = _sound(self.hidden(" ".join(text[:_MOST_WORDS].split())))
        return text if len(text) <= width else text[:width - 3] + "..."


@dataclass(frozen=True, slots=True)
class Text:
    """A reply that can be used. `usage` is None where the provider names no usable counts."""

    text: str
    usage: Usage | None
    finish_reason: Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class Fault:
    """Why there is no reply.

    Attributes:
        ends: what it ends: "attempt" (ask again), "call" or "run".
        words: what happened, with the server's own words.
        usage: what was billed all the same.
        generated: the LLM has worked, but its token counts are not named.
        doubtful: nobody knows whether it was billed.
        retry_after: seconds to wait before the next attempt, if the server says so.
        unreachable: no connection came about.
    """

    ends: Literal["attempt", "call", "run"]
    words: str
    usage: Usage | None = None
    generated: bool = False
    doubtful: bool = False
    retry_after: float | None = None
    unreachable: bool = False


def read_answer(answer: Answer, llm: LLM, max_tokens: int) -> Text | Fault:
    """The reply in an answer, or its fault."""
    try:
        data = json.loads(answer.body)
    except (ValueError, RecursionError):
        data = None
    if answer.status >= 300:
        return _status_fault(answer.status, data, answer)
    if not isinstance(data, dict):
        return _unreadable(answer)
    usage, error = read_usage(data.get("usage")), data.get("error")
    choices = data.get("choices")
    first = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else None
    if first is not None and not error:
        error = first.get("error")
    if error:
        if _billed(usage):
            words = _error_words({"error": error}, answer)
            return Fault("call", f"an error in a reply that was billed: {words}", usage)
        code = error.get("code") if isinstance(error, dict) else None
        status = code if isinstance(code, int) and 400 <= code < 600 else 500
        return _status_fault(status, {"error": error}, answer, "an error in a reply")
    if first is None:
        return Fault("call", "a reply without choices that was billed", usage) if _billed(usage) else Fault(
            "attempt", "a reply without choices", doubtful=True)
    return _read_choice(first, usage, llm, max_tokens, answer)


def _read_choice(choice: dict[str, Any], usage: Usage | None, llm: LLM, max_tokens: int,
                 answer: Answer) -> Text | Fault:
    message = choice.get("message")
    message = message if isinstance(message, dict) else {}
    text = _joined(choice.get("text") if "text" in choice else message.get("content"))
    reason = choice.get("finish_reason")
    reason = "" if reason is None else answer.line(_in_words(reason), 40)
    cut = reason.lower() in _CUT
    refusal = message.get("refusal")
    fault = ""
    if refusal:
        fault = f"the LLM refuses: {answer.line(_in_words(refusal))}"
    elif not cut and reason.lower() not in _WHOLE:
        fault = f"the provider broke off the reply ({reason})"
    elif not text and (message.get("tool_calls") or message.get("function_call")):
        fault = "the LLM calls a tool instead of an answer"
    elif not cut and not (text or "").strip():
        fault = "a reply without text"
    elif cut:
        # Without token counts: there are never more tokens than bytes (thoughts, which are not shown, aside).
        written = usage.completion_tokens if usage is not None else None if llm.reasoning else len(
            (text or "").encode("utf-8", "replace"))
        if written is not None and written < CUT_EARLY * max_tokens:
            fault = f"the provider cut the reply (after {written} of {max_tokens} tokens)"
    if fault:
        return Fault("call", fault, usage, generated=usage is None)
    return Text(_sound(text or ""), usage, "length" if cut else "stop")


def read_usage(data: Any) -> Usage | None:
    """What a `usage` object bills; None if it names no usable counts.

    Cached prompt tokens are in prompt_tokens_details (OpenAI) or prompt_cache_hit_tokens (DeepSeek). Reasoning tokens
    are part of the completion tokens, except where the total says that they come on top (xAI): then they are added.
    """
    if not isinstance(data, dict):
        return None
    prompt, completion = _count(data.get("prompt_tokens")), _count(data.get("completion_tokens"))
    if prompt is None or completion is None:
        return None
    cached = _count(_part(data, "prompt_tokens_details").get("cached_tokens"))
    if cached is None:
        cached = _count(data.get("prompt_cache_hit_tokens")) or 0
    reasoning = _count(_part(data, "completion_tokens_details").get("reasoning_tokens")) or 0
    if reasoning and _count(data.get("total_tokens")) == prompt + completion + reasoning:
        completion += reasoning
    return Usage(prompt, completion, cached if cached <= prompt else 0, reasoning if reasoning <= completion else 0)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the server asks to wait (Retry-After as seconds or as a date, or retry-after-ms); None: it does not.
    """
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * unit
        except ValueError:
            continue
        return seconds if 0 < seconds < math.inf else None
    try:
        moment = email.utils.parsedate_to_datetime(headers.get("retry-after", ""))
        seconds = moment.timestamp() - time.time()
    except (TypeError, ValueError, IndexError, OverflowError, OSError):
        return None
    return seconds if 0 < seconds else None


def _status_fault(status: int, data: Any, answer: Answer, what: str = "") -> Fault:
    """The fault of a status (of the answer, or stated in an error object)."""
    words = _error_words(data, answer)
    said = f"{what or 'HTTP'} {status}" + (f": {words}" if words else "")
    usage = read_usage(data.get("usage")) if isinstance(data, dict) else None
    if _billed(usage):
        return Fault("call", f"{said} (billed)", usage)
    error = data.get("error") if isinstance(data, dict) else None
    code = str(error.get("code") or "") if isinstance(error, dict) else ""
    if status < 400:
        where = answer.line(answer.headers.get("location", "another address"), 120)
        return Fault("run", f"{said}: it sends us to {where}; put the right base_url into the pool file")
    if status == 401:
        return Fault("run", f"{said}: the key is not accepted")
    if status == 403:
        flagged = isinstance(error, dict) and _part(error, "metadata").get("reasons")   # OpenRouter's moderation
        return Fault("call", said) if flagged else Fault("run", f"{said}: the key may not do this")
    if status == 402 or code in ("insufficient_quota", "billing_hard_limit_reached"):
        return Fault("run", f"{said}: the account has nothing left to spend")
    if status in (404, 405):
        return Fault("run", f"{said}: the endpoint does not know the model, or base_url is not its address (most end "
                            "in /v1)")
    if status in _RETRIED or status >= 500:
        return Fault("attempt", said, retry_after=retry_after(answer.headers))
    if status == 400 and (code == "model_not_found" or _NO_MODEL.search(words)):
        return Fault("run", f"{said}: the endpoint does not know the model")
    if status == 400 and _NO_KEY.search(words):
        return Fault("run", f"{said}: the key is not accepted")
    if status in (400, 422) and (code in ("unsupported_parameter", "unsupported_value", "unknown_parameter")
                                 or _NO_PARAMETER.search(words)):
        return Fault("run", f"{said}: a parameter of ours is not known there; in the pool file `reasoning: true` sends "
                            "max_completion_tokens and no temperature, and null in `extra_body` (such as "
                            "`{temperature: null}`) leaves a parameter out")
    return Fault("call", said)


_NO_MODEL = re.compile(r"not a valid model|invalid model\b|model[^.]{0,80} (does not exist|not found|is not supported)",
                       re.IGNORECASE)
_NO_KEY = re.compile(r"(api|access) key (is )?(not valid|invalid|not found|missing)|(invalid|incorrect) api key",
                     re.IGNORECASE)
_NO_PARAMETER = re.compile(r"(unsupported|unknown|unrecognized) (parameter|value|request argument|field)|"
                           r"extra (inputs|fields) (are )?not permitted", re.IGNORECASE)
_USAGE_TEXT = re.compile(rb'"usage"\s*:\s*(?=\{)')


def _unreadable(answer: Answer) -> Fault:
    """The fault of a body that is no JSON object. One that was billed names its usage all the same."""
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    start = answer.body[:200].lstrip()
    if answer.broken:
        words = f"the reply broke off ({answer.broken})"
    elif kind == "text/html" or start.startswith(b"<"):
        words = f"{kind or 'HTML'} instead of JSON: {_page_words(answer)}"
    elif not start:
        words = "an empty reply"
    else:
        words = f"malformed JSON ({len(answer.body)} bytes)"
    for match in _USAGE_TEXT.finditer(answer.body):
        try:
            data, _ = json.JSONDecoder().raw_decode(answer.body[match.end():].decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            continue
        if _billed(usage := read_usage(data)):
            return Fault("call", f"{words}; it was billed", usage)
    return Fault("attempt", words, doubtful=True)


def _error_words(data: Any, answer: Answer) -> str:
    """The server's own words about an error."""
    if isinstance(data, dict):
        error = data.get("error") or data
        if isinstance(error, dict):
            words = error.get("message") or error.get("detail") or error.get("error") or error
        else:
            words = error
        return answer.line(_in_words(words))
    return _page_words(answer)


def _in_words(value: Any) -> str:
    try:
        return value if isinstance(value, str) else json.dumps(value)
    except RecursionError:
        return "a value too deep to show"


def _page_words(answer: Answer) -> str:
    page = answer.hidden(answer.body[:_MOST_WORDS].decode("utf-8", "replace"))
    return answer.line(re.sub(r"<[^>]*>", " ", page[:2000]))


def _sound(text: str) -> str:
    """`text` without halves of surrogate pairs, which JSON can hold and files cannot."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _joined(content: Any) -> str | None:
    """Text, or the text parts of a list of parts; None for anything else."""
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
        return "".join(part for part in parts if isinstance(part, str)) if parts else None
    return content if isinstance(content, str) else None


def _part(data: dict[str, Any], name: str) -> dict[str, Any]:
    part = data.get(name)
    return part if isinstance(part, dict) else {}


def _count(value: Any) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS else None


def _billed(usage: Usage | None) -> bool:
    return usage is not None and usage.prompt_tokens + usage.completion_tokens > 0
