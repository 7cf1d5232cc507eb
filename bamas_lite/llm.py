"""What a language model is to this kit: a backend that answers one call, and a meter that no call can overdraw.

A backend implements one async method, `complete`, and says how many tokens a prompt can have at the most; everything
else - simulated, replayed or live - is its own affair.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal, Protocol

from bamas_lite.inputs import exact, shown, whole
from bamas_lite.pool import ATOMS, LLM, MOST_TOKENS
from bamas_lite.tasks import Task

Message = dict[str, str]
"""One chat message: `role` ("system", "user", "assistant") and `content`."""

Enforcement = Literal["reserve", "paper"]

MINIMUM_TOKENS = {"executor": 128, "critic": 32, "planner": 96, "writer": 96}
"""Completion tokens below which a call of that role is not worth paying for (ours; an argument of BudgetMeter)."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens that the provider bills for one call.

    `cached_tokens` of the prompt tokens were read from the provider's cache (see LLM.price_cached_in) and
    `reasoning_tokens` of the completion tokens are thoughts that the reply does not show: parts, not additions.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    reasoning_tokens: int = 0


def billable(usage: Any) -> Usage | None:
    """Token counts of any backend as plain numbers, the same object if they are; None if they cannot be billed."""
    try:
        prompt, completion = operator.index(usage.prompt_tokens), operator.index(usage.completion_tokens)
        cached = operator.index(getattr(usage, "cached_tokens", 0))
        thought = operator.index(getattr(usage, "reasoning_tokens", 0))
    except Exception:  # a backend may hand over anything
        return None
    if not (0 <= prompt <= MOST_TOKENS and 0 <= completion <= MOST_TOKENS):
        return None
    if not (0 <= cached <= prompt and 0 <= thought <= completion):
        cached = thought = 0  # parts that are larger than the whole: billed without them
    elif type(usage) is Usage and type(usage.prompt_tokens) is type(usage.completion_tokens) is type(cached) is int:
        return usage
    return Usage(prompt, completion, cached, thought)


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of an LLM. `finish_reason` is "stop" or "length" (cut at max_tokens); `latency_s` is in seconds."""

    text: str
    usage: Usage
    latency_s: float
    finish_reason: str = "stop"


class CallError(RuntimeError):
    """A call that failed for good, after the client's own retries; ends the episode with status `error`.

    `usage` is what the provider billed for it all the same (a refusal, a reply without text), None if nothing.
    """

    def __init__(self, message: str, usage: Usage | None = None, latency_s: float = 0.0) -> None:
        super().__init__(message, usage, latency_s)   # all of them, so that the error can be pickled
        self.message, self.usage, self.latency_s = message, usage, latency_s

    def __str__(self) -> str:
        return self.message


class RunStopped(RuntimeError):
    """What must end a whole run, not one episode: no key, no host, no disk, nothing left to spend.

    Whatever was answered before is kept; the same call, started again after the cause was mended, goes on from there.
    """


class ChatModel(Protocol):
    """A backend. `name` is the label that goes with its numbers: `simulated`, `recorded ...`, `live ...`."""

    name: str

    async def complete(self, llm: LLM, messages: list[Message], *, max_tokens: int, temperature: float = 0.0,
                       role: str = "executor", task: Task | None = None) -> Reply:
        """Answer one call. `task` stands beside the messages: only the simulator may read its reference.

        Raises:
            CallError: the call failed for good.
            RunStopped: no call can be answered any more.
        """
        ...

    def bound_prompt_tokens(self, llm: LLM, messages: list[Message]) -> int:
        """The most prompt tokens that the provider can bill for these messages."""
        ...


def bound_prompt_tokens(messages: list[Message], *, strict: bool = False) -> int:
    """Upper bound on the prompt tokens of a real LLM: UTF-8 bytes / 2.5 + 8 a message, or plain bytes + 8 if `strict`.

    A byte-level tokenizer never makes more tokens than bytes, so the strict bound cannot fail. The other one reserves
    far less and is a rule of thumb for prose: a long list of single digits or signs can have more tokens than that.
    """
    bytes_per_token = 1.0 if strict else 2.5
    return sum(math.ceil(len((m.get("content") or "").encode("utf-8", "surrogatepass")) / bytes_per_token) + 8
               for m in messages)


@dataclass(frozen=True, slots=True)
class Reservation:
    """Leave to make one call: its completion limit in tokens and the amount held back for it, in atoms (1e-18 u$)."""

    llm: LLM
    prompt_bound: int
    max_tokens: int
    amount: int


class BudgetMeter:
    """Spends a budget (u$) without ever going over it, and a latency budget (seconds of virtual time) likewise.

    `enforcement="reserve"`: before a call the worst case (prompt bound, max_tokens) is held back; a call that does not
    fit gets fewer tokens, or is refused below a useful minimum. What a call did not use is free again afterwards.
    `enforcement="paper"`: calls are made until the cost has passed the budget, so one call can overshoot.
    `latency_budget`: a call gets no more tokens than its LLM writes until then, by its first_token_s and tokens_per_s,
    whatever the enforcement; an LLM that keeps to them is never late. None: no limit.

    Attributes:
        provider_overrun: calls that were billed more than the bound or max_tokens allowed.
        latency_budget: seconds; infinite without one.
    """

    def __init__(self, budget: Any, enforcement: Enforcement = "reserve", *,
                 minimum_tokens: dict[str, int] | None = None, latency_budget: float | None = None) -> None:
        if enforcement not in ("reserve", "paper"):
            raise ValueError(f"enforcement = {enforcement!r}: expected 'reserve' or 'paper'")
        self.enforcement = enforcement
        self.minimum_tokens = MINIMUM_TOKENS if minimum_tokens is None else token_counts(
            minimum_tokens, "minimum_tokens", 0)
        self.provider_overrun = 0
        # A run has few budgets and many episodes; only plain numbers are sure to have a hash.
        atoms = _remembered_atoms if type(budget) in (int, float) else _atoms
        self._budget: int | None = atoms(budget)
        self.latency_budget = math.inf if latency_budget is None else seconds(latency_budget, "latency_budget")
        self._spent = 0
        self._reserved = 0
        self._open: dict[int, Reservation] = {}  # by identity: equal reservations are different calls

    @classmethod
    def unlimited(cls, enforcement: Enforcement = "reserve", **options: Any) -> BudgetMeter:
        """A meter without a budget, for systems that know none: it only counts, and refuses or shortens no call."""
        meter = cls(0, enforcement, **options)
        meter._budget = None
        return meter

    @property
    def spent(self) -> float:
        """Cost so far in u$."""
        return self._spent / ATOMS

    @property
    def exact_spent(self) -> Fraction:
        """Cost so far in u$, without rounding."""
        return Fraction(self._spent, ATOMS)

    @property
    def budget_atoms(self) -> int | None:
        """The budget in atoms, rounded down; None without one."""
        return self._budget

    @property
    def remaining(self) -> float:
        """Budget that is neither spent nor held back, in u$; infinite without a budget."""
        return math.inf if self._budget is None else (self._budget - self._spent - self._reserved) / ATOMS

    @property
    def over_budget(self) -> bool:
        """Whether more than the budget has been spent."""
        return self._budget is not None and self._spent > self._budget

    def reserve(self, llm: LLM, prompt_bound: int, max_tokens: int, role: str = "executor", *, start_s: float = 0.0,
                deadline_s: float | None = None, purse: int | None = None) -> Reservation | None:
        """Hold back the worst case of one call; None when the budgets do not allow a useful call.

        Args:
            prompt_bound: the most prompt tokens that can be billed.
            max_tokens: the most completion tokens that are wanted.
            role: whose minimum counts (see MINIMUM_TOKENS).
            start_s: when the call begins, seconds of virtual time.
            deadline_s: when it must end; None, or later than the latency budget: the latency budget.
            purse: what this call may cost in atoms, instead of all that is free: a part of the budget that its owner
                divides. Not with enforcement="paper", nor without a budget.

        Raises:
            ValueError: a prompt bound below 0, a completion limit below 1, or an LLM without the latency fields that a
                deadline needs.
        """
        prompt_bound, max_tokens = whole(prompt_bound, "prompt_bound"), whole(max_tokens, "max_tokens", 1)
        fits = max_tokens
        if deadline_s is not None or self.latency_budget != math.inf:
            latest = self.latency_budget if deadline_s is None else min(deadline_s, self.latency_budget)
            fits = min(fits, tokens_by(llm, start_s, latest))
        paying = self._budget is not None and self.enforcement == "reserve"
        if paying:
            price_in, price_out = llm.atoms_per_token
            free = self._budget - self._spent - self._reserved if purse is None else purse
            left = free - price_in * prompt_bound
            if left < 0:
                return None
            if price_out:
                fits = min(fits, left // price_out)
        elif self.over_budget:
            return None
        if fits < max(1, min(self.minimum_tokens.get(role, 1), max_tokens)):
            return None
        if not paying:
            return self._hold(Reservation(llm, prompt_bound, fits, 0))
        return self._hold(Reservation(llm, prompt_bound, fits, price_in * prompt_bound + price_out * fits))

    def settle(self, reservation: Reservation, usage: Usage) -> float:
        """Book what a call really cost and free the rest of its reservation. Returns the cost in u$.

        Raises:
            ValueError: token counts that are no whole numbers of at least 0, or a reservation that is not open.
        """
        prompt = whole(usage.prompt_tokens, "usage.prompt_tokens")
        completion = whole(usage.completion_tokens, "usage.completion_tokens")
        cached = min(whole(getattr(usage, "cached_tokens", 0), "usage.cached_tokens"), prompt)
        self.release(reservation)
        cost = reservation.llm.cost_atoms(prompt, completion, cached)
        self._spent += cost
        if prompt > reservation.prompt_bound or completion > reservation.max_tokens:
            self.provider_overrun += 1
        return cost / ATOMS

    def release(self, reservation: Reservation) -> None:
        """Free a reservation whose call was not billed.

        Raises:
            ValueError: it is not open: settled or released before, or of another meter.
        """
        if self._open.pop(id(reservation), None) is None:
            raise ValueError(f"reservation = {shown(reservation)}: is not open in this meter; each is settled or "
                             "released once")
        self._reserved -= reservation.amount

    def _hold(self, reservation: Reservation) -> Reservation:
        self._reserved += reservation.amount
        self._open[id(reservation)] = reservation
        return reservation


def _atoms(budget: Any) -> int:
    """A budget (u$) in atoms, rounded down."""
    amount = exact(budget, "budget")
    if amount < 0:
        raise ValueError(f"budget = {shown(budget)}: expected at least 0 u$")
    return math.floor(amount * ATOMS)


def seconds(value: Any, what: str) -> float:
    """A time of at least 0 seconds, infinity included, as a float.

    Raises:
        ValueError: anything else.
    """
    if isinstance(value, float) and value == math.inf:
        return math.inf
    number = exact(value, what)
    if number < 0:
        raise ValueError(f"{what} = {shown(value)}: expected at least 0 seconds")
    return float(number)


def check_latency_fields(llms: Iterable[LLM]) -> None:
    """Make sure that a latency budget can be kept with these LLMs.

    Raises:
        ValueError: one lacks first_token_s or tokens_per_s; the message names it and the fields.
    """
    for llm in llms:
        missing = [field for field in ("first_token_s", "tokens_per_s") if getattr(llm, field) is None]
        if missing:
            raise ValueError(f"LLM {llm.name!r}: {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} "
                             "missing: a latency budget needs first_token_s (seconds) and tokens_per_s of every LLM")


def tokens_by(llm: LLM, start_s: float, end_s: float) -> int:
    """Completion tokens that `llm`, asked at `start_s`, has written at `end_s`; at least 0.

    Raises:
        ValueError: the LLM lacks first_token_s or tokens_per_s.
    """
    if end_s == math.inf:
        return MOST_TOKENS
    if llm.first_token_s is None or llm.tokens_per_s is None:
        check_latency_fields((llm,))
    first, speed = llm.first_token_s, llm.tokens_per_s
    tokens = max(0, math.floor(min((end_s - start_s - first) * speed, MOST_TOKENS)))
    while tokens and start_s + (first + tokens / speed) > end_s:  # floats round: never a token too late
        tokens -= 1
    return tokens


_remembered_atoms = lru_cache(maxsize=1024)(_atoms)


def token_counts(counts: Any, what: str, least: int) -> dict[str, int]:
    """Tokens by role, each a whole number of at least `least`.

    Raises:
        ValueError: anything else.
    """
    if not isinstance(counts, Mapping):
        raise ValueError(f"{what} = {shown(counts)}: expected tokens by role, such as {MINIMUM_TOKENS}")
    return {role: whole(tokens, f"{what}[{shown(role)}]", least) for role, tokens in counts.items()}
