"""The recorded GSM8K replies as a backend with two LLMs, their prices and estimated token counts.

The file has no token counts. They are estimated as OpenAI's help center does ("What are tokens and how to count
them?": one token is about 4 characters of English), for both LLMs; Mixtral's own tokenizer makes somewhat more of them.
The prompt is the one that the replies were made with: EXAMPLES characters of worked examples, then the question.
Latency is not recorded, and not estimated: it is 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from bamas_lite.llm import Message, Reply, RunStopped, Usage
from bamas_lite.pool import LLM, Pool
from bamas_lite.prompts import section
from bamas_lite.recorded_answers.answers import LABEL, LLMS, SOURCE, STRONG, WEAK
from bamas_lite.tasks import Task

if TYPE_CHECKING:
    from bamas_lite.recorded_answers.answers import RecordedAnswers

CHARACTERS_PER_TOKEN = 4
"""https://help.openai.com/en/articles/4936856-what-are-tokens-and-how-to-count-them"""
EXAMPLES = 3_789
"""Characters of the eight worked examples, the first of GSM8K's training split, as RouteLLM's generate_responses.py
writes them (a test counts them in gsm8k_train.jsonl)."""
MOST_TOKENS = 1_024
"""The limit that the replies were made with (generate_responses.py)."""
PRICE_DATE = "2024-07-01"
"""The month in which RouteLLM was published."""
_PRICED_AS = {STRONG: ("gpt-4-1106-preview", "openai"), WEAK: ("open-mixtral-8x7b", "mistral")}


def estimated_tokens(characters: int) -> int:
    """Tokens of a text with so many characters: an estimate, rounded up."""
    return -(-characters // CHARACTERS_PER_TOKEN)


def prompt_tokens(question: str) -> int:
    """Estimated tokens of the prompt that a reply was made with."""
    return estimated_tokens(EXAMPLES + len(f"Question: {question}\nAnswer:"))


def recorded_pool(llms: Sequence[str] = LLMS) -> Pool:
    """The two LLMs, or one of them, at the list prices of PRICE_DATE (genai-prices, offline).

    Raises:
        RuntimeError: genai-prices is not installed.
        KeyError: an LLM that is none of LLMS.
    """
    prices = {llm: _list_price(*_PRICED_AS[llm]) for llm in llms}
    return Pool(name="recorded_gsm8k", source=SOURCE, date=PRICE_DATE, description=price_note(), llms=tuple(
        LLM(name=llm, price_in=price_in, price_out=price_out, max_tokens=MOST_TOKENS,
            tier=tier, source=f"{_PRICED_AS[llm][1]}'s list price of {PRICE_DATE}")
        for tier, (llm, (price_in, price_out)) in enumerate(prices.items(), 1)))


def price_note() -> str:
    """Where prices and token counts are from, in a sentence."""
    return (f"list prices of OpenAI (gpt-4-1106-preview) and Mistral AI (open-mixtral-8x7b) on {PRICE_DATE} "
            f"(genai-prices); tokens estimated at {CHARACTERS_PER_TOKEN} characters each, the eight examples before "
            "each question included")


def _list_price(model: str, provider: str) -> tuple[float, float]:
    """u$ per prompt token and per completion token (= USD per million tokens)."""
    try:
        import genai_prices
    except ModuleNotFoundError:
        raise RuntimeError("genai-prices, which knows the list prices, is not installed: pip install genai-prices"
                           ) from None
    date = datetime.fromisoformat(PRICE_DATE).replace(tzinfo=UTC)
    million = genai_prices.Usage(input_tokens=10**6, output_tokens=10**6)
    price = genai_prices.calc_price(million, model_ref=model, provider_id=provider, genai_request_timestamp=date)
    return float(price.input_price), float(price.output_price)


class RecordedReplies:
    """A backend that answers an executor's first call about a question with the recorded reply of its LLM.

    There is one reply for each question and LLM, made for a plain question: Star with one agent of each LLM and
    cascades can be played, no dialogue and no second copy. Approaches (Star's different prompts) change nothing.
    A limit below the estimated length of a reply cuts it, as a provider would.
    """

    name = LABEL

    def __init__(self, answers: RecordedAnswers) -> None:
        self._rows = {task.question: row for row, task in enumerate(answers.tasks)}
        self._replies = answers.replies

    async def complete(self, llm: LLM, messages: list[Message], *, max_tokens: int, temperature: float = 0.0,
                       role: str = "executor", task: Task | None = None) -> Reply:
        """The recorded reply.

        Raises:
            RunStopped: there is none: another LLM, question, role or a temperature above 0, or a call that shows an
                earlier answer.
        """
        question, replies = _question(messages), self._replies.get(llm.name)
        if replies is None:
            raise RunStopped(f"LLM {llm.name!r}: has no recorded replies; these have: {', '.join(self._replies)}")
        row = self._rows.get(question or "")
        if row is None:
            raise RunStopped(f"{llm.name}: no reply to this question is recorded, only those to GSM8K's test questions")
        later = next((name for name in ("earlier_answer", "critique", "instruction")
                      if section(messages[-1]["content"], name) is not None), None)
        if role != "executor" or later or temperature:
            asked = f"role {role!r}" if role != "executor" else f"with <{later}>" if later else f"at {temperature = }"
            raise RunStopped(f"{llm.name}: a call {asked} is not recorded: only first answers at temperature 0, which "
                             "Star with one agent of each LLM and cascades ask for")
        text = replies[row]
        cut = len(text) > CHARACTERS_PER_TOKEN * max_tokens
        text = text[:CHARACTERS_PER_TOKEN * max_tokens] if cut else text
        usage = Usage(prompt_tokens(question), estimated_tokens(len(text)))
        return Reply(text, usage, 0.0, "length" if cut else "stop")

    complete.instant = True

    def bound_prompt_tokens(self, llm: LLM, messages: list[Message]) -> int:
        """The estimated tokens of the recorded prompt, which `complete` bills."""
        return prompt_tokens(_question(messages) or "")


def _question(messages: list[Message]) -> str | None:
    return section(messages[-1]["content"], "task") if messages else None
