"""What each LLM can do and costs: measured on a few tasks, then planned with.

One summary of AgentBalance states profiling, the calibration of cost and latency, and that conventional LLMs are
assumed to write completions of similar length; the formulas are our reconstruction. Planned for one call of LLM m in
domain d, with the tokens t_in, t_out of all LLMs and a factor that puts the price and speed sheet right for this one:

    c_m = f_cost * (p_in * t_in[d] + p_out * t_out[d])            u$
    l_m = f_latency * (first_token_s + t_out[d] / tokens_per_s)   seconds
    f   = sum of what the calibration calls of m cost (took) / sum of what the sheet says for mean lengths of all LLMs

t_in is a mean, t_out a high quantile: a call that gets what was planned for it is seldom cut.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import numpy as np

from bamas_lite.episode import MOST_SECONDS, CallRecord, Episode, all_of, check_backend, is_instant, run_now
from bamas_lite.inputs import shown, whole
from bamas_lite.llm import ChatModel
from bamas_lite.pool import LLM, MOST_PRICE, MOST_TOKENS, Pool
from bamas_lite.prompts import tag
from bamas_lite.spending import PAID_CONCURRENCY
from bamas_lite.tasks import DOMAINS, Task, check_task
from bamas_lite.team import Slot
from bamas_lite.topologies import run_task

LATENCY_FIELDS = ("first_token_s", "tokens_per_s")

MOST_COST = 2.0 * MOST_TOKENS * MOST_PRICE
"""u$; no call can cost more. Sums of plans then fit a float."""


class ProfileError(ValueError):
    """A profile that cannot be measured or used; the message names LLM, field and value."""


@dataclass(frozen=True)
class Profile:
    """What is known of one LLM, by domain.

    Attributes:
        llm: prices (u$ per token), first_token_s and tokens_per_s; the last two must be there.
        quality: share of right answers, alone and at the first try.
        t_in, t_out: planned tokens of one call, common to the LLMs that were profiled together: the mean of the
            prompts, the quantile of the completions that was asked for.
        handed: planned tokens of a text of another agent in a prompt, common too.
        cost_factor, latency_factor: measured / by the sheet.
        n_tasks: graded tasks, over all domains.
        source: name of the backend that was asked.
        n_failed: tasks that are left out because their call failed.
        right: task_id -> whether the answer was right, of the graded tasks.

    Raises:
        ProfileError: a field is missing or does not fit.
    """

    llm: LLM
    quality: dict[str, float]
    t_in: dict[str, float]
    t_out: dict[str, float]
    handed: dict[str, float]
    cost_factor: float
    latency_factor: float
    n_tasks: int
    source: str
    n_failed: int = 0
    right: dict[str, bool] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.llm, LLM):
            raise ProfileError(f"llm = {shown(self.llm)}: expected an LLM, such as load_pool('fourteen').llms[0]")
        check_latency_fields(self.llm)
        who = f"profile of {self.llm.name}"
        for name, most in (("quality", 1), ("t_in", MOST_TOKENS), ("t_out", MOST_TOKENS), ("handed", MOST_TOKENS)):
            values = getattr(self, name)
            if not isinstance(values, dict) or not values or not values.keys() <= set(DOMAINS):
                raise ProfileError(f"{who}: {name} = {shown(values)}: expected domain -> number for one or more of "
                                   f"{', '.join(DOMAINS)}")
            if values.keys() != self.quality.keys():
                raise ProfileError(f"{who}: {name} = {shown(values)}: expected the domains of quality, "
                                   f"{', '.join(self.quality)}")
            for domain, value in values.items():
                if not _is_number(value) or not 0 <= value <= most:
                    raise ProfileError(f"{who}: {name}[{domain!r}] = {shown(value)}: expected a number from 0 to "
                                       f"{most:,}")
        for name in ("cost_factor", "latency_factor"):
            if not _is_number(value := getattr(self, name)) or not 0 < value < math.inf:
                raise ProfileError(f"{who}: {name} = {shown(value)}: expected a finite number above 0")
        for domain in self.quality:
            for what, value, most in (("cost", self.cost(domain), MOST_COST),
                                      ("latency", self.latency_s(domain), MOST_SECONDS)):
                if not 0 < value <= most:
                    raise ProfileError(f"{who}: planned {what} in {domain} = {value:g}: expected a finite number above "
                                       f"0, at most {most:g}; tokens, factors, prices and speed do not fit")
            if not self.message_cost(domain) <= MOST_COST:
                raise ProfileError(f"{who}: planned cost of a text in {domain} = {self.message_cost(domain):g}: "
                                   f"expected at most {MOST_COST:g}; tokens, factors and prices do not fit")
        try:
            whole(self.n_tasks, "n_tasks")
            whole(self.n_failed, "n_failed")
        except ValueError as error:
            raise ProfileError(f"{who}: {error}") from None
        if not isinstance(self.source, str):
            raise ProfileError(f"{who}: source = {shown(self.source)}: expected the name of a backend")

    @property
    def domains(self) -> tuple[str, ...]:
        """Domains that were profiled."""
        return tuple(self.quality)

    @property
    def mean_quality(self) -> float:
        """Mean over the domains."""
        return fmean(self.quality.values())

    @property
    def mean_cost(self) -> float:
        """Mean over the domains, u$ for one call."""
        return fmean(map(self.cost, self.quality))

    @property
    def mean_latency_s(self) -> float:
        """Mean over the domains, seconds for one call."""
        return fmean(map(self.latency_s, self.quality))

    def cost(self, domain: str) -> float:
        """Planned u$ of one call without texts of other agents."""
        return self.cost_factor * (self.llm.price_in * self._of(self.t_in, domain)
                                   + self.llm.price_out * self.t_out[domain])

    def latency_s(self, domain: str) -> float:
        """Planned seconds of one call."""
        return self.latency_factor * (self.llm.first_token_s + self._of(self.t_out, domain) / self.llm.tokens_per_s)

    def message_cost(self, domain: str) -> float:
        """Planned u$ for each text of another agent in the prompt of a call."""
        return self.cost_factor * self.llm.price_in * self._of(self.handed, domain)

    def _of(self, values: dict[str, float], domain: str) -> float:
        if domain not in values:
            raise ProfileError(f"domain = {shown(domain)}: {self.llm.name} was profiled on {', '.join(values)}")
        return values[domain]


def check_latency_fields(llm: LLM) -> None:
    """Make sure that an LLM says how fast it is.

    Raises:
        ProfileError: first_token_s or tokens_per_s is missing.
    """
    for name in LATENCY_FIELDS:
        if getattr(llm, name) is None:
            valid = "seconds, such as 0.5" if name == "first_token_s" else "tokens per second, such as 80"
            raise ProfileError(f"LLM {llm.name!r}: {name} is missing: a profile needs it ({valid})")


async def profile_llms(pool: Pool, tasks: Iterable[Task], backend: ChatModel, *, quantile: float | None = 0.9
                       ) -> list[Profile]:
    """Ask every LLM of a pool every task, alone: one executor call each.

    Failed calls are left out and counted. Calls without usable token counts are graded, but do not calibrate. A backend
    that waits is asked up to PAID_CONCURRENCY tasks at a time; wrap one that costs money in a `CachedChat`, so that no
    call is paid twice.

    Args:
        pool: the LLMs, with their latency fields; its max_tokens bound the answers.
        tasks: the calibration set; its domains are those of the profiles.
        backend: answers the calls.
        quantile: of the completion lengths, to plan with: a share of 1 - quantile of the calls is longer. None: their
            mean.

    Returns:
        One profile an LLM, in the order of the pool.

    Raises:
        ProfileError: a field or argument does not fit, or an LLM has no graded task in a domain.
        RunStopped: the backend ended the run; calls in flight were waited for.
    """
    if quantile is not None and not (_is_number(quantile) and 0 <= quantile <= 1):
        raise ProfileError(f"quantile = {shown(quantile)}: expected a number from 0 to 1, or None for the mean")
    tasks = _checked(pool, tasks, backend)
    pairs = [(llm, task) for llm in pool.llms for task in tasks]
    episodes = await _episodes(pairs, backend)
    domains = [domain for domain in DOMAINS if any(task.domain == domain for task in tasks)]
    by_llm = [episodes[i:i + len(tasks)] for i in range(0, len(episodes), len(tasks))]
    quality = [_quality(llm, own, domains) for llm, own in zip(pool.llms, by_llm, strict=True)]
    sheets = [_Sheet(llm, own, domains) for llm, own in zip(pool.llms, by_llm, strict=True)]
    t_in, t_out, handed = ({d: fmean(sheet.means[d][i] for sheet in sheets) for d in domains} for i in range(3))
    planned = t_out if quantile is None else {
        d: float(np.quantile([tokens for sheet in sheets for tokens in sheet.lengths[d]], quantile)) for d in domains}
    return [Profile(llm, right, dict(t_in), dict(planned), dict(handed), *sheet.factors(t_in, t_out),
                    sum(e.status == "ok" for e in own), backend.name, sum(e.status != "ok" for e in own),
                    {e.task_id: e.correct for e in own if e.status == "ok"})
            for llm, own, right, sheet in zip(pool.llms, by_llm, quality, sheets, strict=True)]


def profile_llms_sync(pool: Pool, tasks: Iterable[Task], backend: ChatModel, *, quantile: float | None = 0.9
                      ) -> list[Profile]:
    """`profile_llms` for scripts: no `await`, and no event loop for a backend that never waits.

    Raises:
        ProfileError, RunStopped: as `profile_llms`.
        RuntimeError: called where an event loop runs already (a notebook), with a backend that waits.
    """
    tasks = _checked(pool, tasks, backend)
    return run_now(profile_llms(pool, tasks, backend, quantile=quantile), backend, "profile_llms")


def _checked(pool: Any, tasks: Any, backend: Any) -> list[Task]:
    """The tasks as a list, after a check of all arguments: before anything is paid for."""
    if not isinstance(pool, Pool):
        raise ProfileError(f"pool = {shown(pool)}: expected a Pool, as load_pool returns it")
    for llm in pool.llms:
        check_latency_fields(llm)
    try:
        check_backend(backend)
        checked = list(tasks) if isinstance(tasks, Iterable) and not isinstance(tasks, (str, bytes)) else []
        for task in checked:
            check_task(task)
    except ValueError as error:
        raise ProfileError(str(error)) from None
    if not checked:
        raise ProfileError(f"tasks = {shown(tasks)}: expected at least one Task, as load_tasks returns them")
    seen: set[str] = set()
    for task in checked:
        if task.task_id in seen:
            raise ProfileError(f"tasks holds {shown(task.task_id)} more than once: it would count twice")
        seen.add(task.task_id)
    return checked


async def _episodes(pairs: list[tuple[LLM, Task]], backend: ChatModel) -> list[Episode]:
    """One episode a pair, in their order. After a failure none is started; those in flight are waited for."""
    done: list[Any] = [None] * len(pairs)
    waiting: Iterator[int] = iter(range(len(pairs)))
    failures: list[BaseException] = []

    async def one_after_another() -> None:
        for i in waiting:
            if failures:
                return
            llm, task = pairs[i]
            # One call at its worst case fits twice; atoms are whole numbers, so nothing is lost by the size.
            budget = 2 * MOST_TOKENS * (llm.price_in + llm.price_out)
            try:
                done[i] = await run_task(task, SimpleNamespace(slots=(Slot(llm, 1),)), "linear", backend, budget)
            except BaseException as error:
                failures.append(error)

    if is_instant(backend):
        await one_after_another()
    else:
        await all_of(one_after_another() for _ in range(min(PAID_CONCURRENCY, len(pairs))))
    if failures:
        raise failures[0]
    return done


def _quality(llm: LLM, episodes: list[Episode], domains: list[str]) -> dict[str, float]:
    """Share of right answers by domain."""
    quality = {}
    for domain in domains:
        graded = [e.correct for e in episodes if e.domain == domain and e.status == "ok"]
        if not graded:
            reason = next(e.reason for e in episodes if e.domain == domain)
            raise ProfileError(f"LLM {llm.name!r}: no graded task in {domain}: all calls failed; the first: {reason}")
        quality[domain] = fmean(graded)
    return quality


class _Sheet:
    """The calls of one LLM that calibrate it: `means` is domain -> mean (t_in, t_out, handed), `lengths` domain ->
    completion lengths, in tokens."""

    def __init__(self, llm: LLM, episodes: list[Episode], domains: list[str]) -> None:
        self.llm = llm
        calls = [(e.domain, call) for e in episodes if e.status == "ok" for call in e.calls if call.usage_reported]
        self.counts = {domain: sum(d == domain for d, _ in calls) for domain in domains}
        for domain, count in self.counts.items():
            if not count:
                raise ProfileError(f"LLM {llm.name!r}: no call in {domain} came with token counts: its cost cannot be "
                                   "calibrated")
        self.means = {domain: tuple(fmean(tokens) for tokens in zip(
            *((c.usage.prompt_tokens, c.usage.completion_tokens, _handed_tokens(c)) for d, c in calls if d == domain),
            strict=True)) for domain in domains}
        self.lengths = {domain: [c.usage.completion_tokens for d, c in calls if d == domain] for domain in domains}
        self.cost = math.fsum(call.cost for _, call in calls)
        self.latency_s = math.fsum(call.end_s - call.start_s for _, call in calls)

    def factors(self, t_in: dict[str, float], t_out: dict[str, float]) -> tuple[float, float]:
        """Measured / by the sheet, for cost and for latency."""
        llm, n = self.llm, self.counts
        cost = math.fsum(n[d] * (llm.price_in * t_in[d] + llm.price_out * t_out[d]) for d in n)
        latency_s = math.fsum(n[d] * (llm.first_token_s + t_out[d] / llm.tokens_per_s) for d in n)
        for what, measured, sheet in (("cost", self.cost, cost), ("latency", self.latency_s, latency_s)):
            if not (measured > 0 and sheet > 0):
                raise ProfileError(f"LLM {llm.name!r}: {what} of its calls = {measured:g}, by its sheet {sheet:g}: "
                                   "expected both above 0, or it cannot be calibrated")
        return self.cost / cost, self.latency_s / latency_s


def _handed_tokens(call: CallRecord) -> float:
    """Tokens that the text of a reply has in another agent's prompt, in its tags, at the bytes per token which the
    prompt of the same call was billed at."""
    prompt = sum(len(message["content"].encode("utf-8")) for message in call.messages)
    text = len(tag("documents", call.reply.text).encode("utf-8")) + 1
    return text * call.usage.prompt_tokens / prompt


def _is_number(value: Any) -> bool:
    """Whether `value` is a plain number that a float can hold."""
    return isinstance(value, float) or type(value) is int and abs(value) <= sys.float_info.max
