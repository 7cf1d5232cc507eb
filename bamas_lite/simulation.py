"""The simulated LLM: a model of how LLMs err and spend, not of language.

It reads the real prompts, replies in the real formats and bills tokens, so that every parser and the meter are
exercised without a key. Whether a reply is right is drawn, not reasoned.

**The LLM's own view** of task j, LLM m, domain d, level l, seed s, messages M:

    z = skill[m, d] - a[d] * (l - 1) + shift
        + sqrt(task_share[d]) * N(j) + sqrt(llm_share[d]) * N(s, m, j)
        + sqrt(1 - task_share[d] - llm_share[d]) * N(s, m, j, M)

with independent standard normals N; the view is right if and only if z > 0. The three shares add up to 1, so a
single call is right with chance Phi(skill - a * (l - 1) + shift), the views of two LLMs correlate with task_share, two
calls of one LLM with task_share + llm_share. `shift` is system_shift[d, system], plus step_shift[d] when the
prompt holds a planner's instruction.

**System.** A backend speaks for one system of agents ("bamas", or a baseline of `workflows.py`). The style of its
prompts makes all its replies longer (system_tokens) and its views better or worse (system_shift); at 1 and 0 systems
differ only by what their prompts hold. The draws are the same for all systems: the same prompt is drawn alike.

**Reply of an executor.** Without an earlier answer: its own view. With one, it is right with a chance that depends
on whether the earlier answer is right (found by grading it) and on the own view: `improve`, or `revise` when a
critique that asks for a revision stands beside it. An earlier text without an answer counts as none.
**Wrong answers** are drawn from a few per task that fail grading, with weights wrong_decay^k; an earlier wrong
answer that is not repaired is repeated with chance `stick`.
**Critic.** Asks for a revision with the chance `hit` (answer wrong) or `false_alarm` (answer right), by its own
view; of a text without an answer always. **Planner.** A valid plan with chance plan_validity; else one of five
kinds of bad plan. **Writer.** A short text without an answer; later replies do not depend on what it says.
**Tokens.** completion_tokens is log-normal (LLM, domain, level, style of prompt, system), at least the tokens of the
reply's own text and cut at max_tokens. A cut reply ends before its answer (no `####`, no box, an open code block,
no conclusion, open JSON). The text is a short stand-in for the reasoning that the tokens are billed for, so later
prompts that quote it are shorter than with a real LLM. A text of n UTF-8 bytes has ceil(n / 4) tokens, a message 4
more; usage and `bound_prompt_tokens` count alike.

All draws come from a keyed hash of (seed, LLM's name, task_id, messages, temperature): the same prompt gets the
same reply in any process and order, also at a temperature above 0 (another temperature is another draw; ask with
another prompt or seed for another sample). max_tokens is not hashed: less room cuts the same reply.
"""

from __future__ import annotations

import math
from functools import lru_cache
from hashlib import blake2b
from numbers import Integral
from pathlib import Path
from statistics import NormalDist
from struct import Struct
from typing import Any

from bamas_lite.grading import grade
from bamas_lite.inputs import shown
from bamas_lite.llm import Message, Reply, Usage
from bamas_lite.pool import LLM
from bamas_lite.prompts import MAX_PLAN_STEPS, accepts, section
from bamas_lite.simulation_parameters import SYSTEMS, Parameters, SimulationError, load_parameters
from bamas_lite.simulation_replies import (
    Text,
    answer_text,
    bad_plan_text,
    count_tokens,
    document_text,
    plan_text,
    shorten,
    verdict_text,
)
from bamas_lite.tasks import DOMAINS, Task
from bamas_lite.wrong_answers import wrong_answers

__all__ = ["SimulatedLLM", "SimulationError", "count_tokens", "load_parameters"]

_normal = NormalDist().inv_cdf
_integers = Struct("<8Q").unpack
_PAIRS, _DRAWN, _TASKS, _VERDICTS = 8_192, 4_096, 1_024, 64
"""What is kept, at the most, to bound the memory: pairs of LLM and task with their persistent draws, and replies (many
budgets and topologies begin with the same prompts), of each backend; tasks with their facts, and verdicts of each."""


def _uniforms(digest: bytes) -> list[float]:
    """Eight numbers strictly between 0 and 1 from 64 bytes; 52 bits each, so that none rounds to 1."""
    return [((n >> 12) + 0.5) * 2.0**-52 for n in _integers(digest)]


def _hash(*parts: object) -> Any:
    """A running hash of `parts`, with a separator behind each."""
    return blake2b("".join(f"{part}\x1f" for part in parts).encode("utf-8", "surrogatepass"), digest_size=64)


def task_noise(task_id: str) -> float:
    """The standard normal draw that all LLMs share on a task: it belongs to the task, not to a seed."""
    return _normal(_uniforms(_hash("task", task_id).digest())[0])


class _TaskFacts:
    """What all LLMs share on one task: its noise, its wrong answers, the verdicts on answers seen in prompts."""

    __slots__ = ("task", "noise", "verdicts", "_wrong")

    def __init__(self, task: Task) -> None:
        if task.domain not in DOMAINS:
            raise ValueError(f"task {task.task_id}: domain = {task.domain!r}: expected one of {', '.join(DOMAINS)}")
        self.task = task
        self.noise = task_noise(task.task_id)
        self.verdicts: dict[str, tuple[bool, str | None]] = {}
        self._wrong: tuple[str, ...] | None = None

    @property
    def wrong(self) -> tuple[str, ...]:
        """Wrong answers, most tempting first; made when first needed."""
        if self._wrong is None:
            self._wrong = wrong_answers(self.task)
        return self._wrong

    def verdict(self, text: str) -> tuple[bool, str | None]:
        """Whether the answer in `text` is right, and the answer (None: there is none)."""
        known = self.verdicts.get(text)
        if known is None:
            found = grade(self.task, text)
            open_block = self.task.domain == "code" and text.count("```") % 2 == 1
            known = found.correct, None if open_block and not found.correct else found.answer
            if len(self.verdicts) >= _VERDICTS:
                self.verdicts.clear()
            self.verdicts[text] = known
        return known


_facts_of = lru_cache(maxsize=_TASKS)(_TaskFacts)
"""The same for every seed and system: an answer is read once, not once for each."""


class _Pair:
    """What stays from call to call for one LLM on one task."""

    __slots__ = ("facts", "base", "call_weight", "start", "offset", "log_tokens", "spread", "first_s", "per_s")

    def __init__(self, seed: int, llm: LLM, facts: _TaskFacts, p: Parameters, system: str) -> None:
        task, domain = facts.task, facts.task.domain
        self.facts = facts
        self.start = _hash(seed, llm.name, task.task_id)
        own = _uniforms(self.start.digest())
        shared, persistent = p.task_share.value[domain], p.llm_share.value[domain]
        self.base = (_skill(llm, domain, p) - p.level_slope.value[domain] * (task.level - 1)
                     + p.system_shift.value[domain][system]
                     + math.sqrt(shared) * facts.noise + math.sqrt(persistent) * _normal(own[0]))
        self.call_weight = math.sqrt(max(0.0, 1 - shared - persistent))
        self.offset = own[1]
        self.spread = p.tokens_spread.value[domain]
        mean = _by_name(p.completion_tokens.value[domain], llm)
        self.log_tokens = (math.log(mean) - self.spread**2 / 2 + p.tokens_per_level.value[domain] * (task.level - 1)
                           + math.log(p.system_tokens.value[domain][system]))
        self.first_s = _by_name(p.first_token_s.value, llm) if llm.first_token_s is None else llm.first_token_s
        self.per_s = _by_name(p.tokens_per_s.value, llm) if llm.tokens_per_s is None else llm.tokens_per_s


def _by_name(values: dict[str, float], llm: LLM) -> float:
    return values.get(llm.name, values["default"])


def _skill(llm: LLM, domain: str, p: Parameters) -> float:
    """skill[m, d]: by name, else by rating, else by tier (linear rules, kept within -3 and 4)."""
    named = p.skill.value[domain].get(llm.name)
    if named is not None:
        return named
    if llm.rating is not None:
        rule = p.skill_by_rating.value[domain]
        skill = rule.at_1300 + rule.per_100 * (llm.rating - 1300) / 100
    else:
        rule = p.skill_by_tier.value[domain]
        skill = rule.tier_1 + rule.per_tier * ((llm.tier or 1) - 1)
    return min(4.0, max(-3.0, skill))


class SimulatedLLM:
    """A backend that draws its replies; see the module's text for the model.

    Args:
        seed: seed of all draws except the task noise, which belongs to the task: a whole number of at most 64 bits.
        parameters: name of a file of `data/simulation`, path of a YAML file, or a dict (`load_parameters`).
        system: whose length factor and skill shift apply: one of `simulation_parameters.SYSTEMS`.

    Raises:
        SimulationError: parameters that cannot be used, an unknown system, or a seed that is none.
    """

    name = "simulated"

    def __init__(self, seed: int = 0, parameters: str | Path | dict[str, Any] | Parameters = "assumed",
                 system: str = "bamas") -> None:
        if not isinstance(seed, Integral) or isinstance(seed, bool) or not -(2**63) <= seed < 2**63:
            raise SimulationError(f"seed = {shown(seed)}: expected a whole number of at most 64 bits")
        if system not in SYSTEMS:
            raise SimulationError(f"system = {shown(system)}: expected one of {', '.join(SYSTEMS)}")
        self.seed, self.system = int(seed), system
        self.parameters = load_parameters(parameters)
        self._pairs: dict[tuple[object, ...], _Pair] = {}
        self._drawn: dict[tuple[object, ...], tuple[str, int, int, int]] = {}

    @property
    def identity(self) -> str:
        """What decides the replies, for a log's manifest: parameters (name, checksum of the values), seed and system.

        Factors of 1 and shifts of 0 that a system or a document has are left out of the checksum, and so are the values
        of other systems: they change no reply.
        """
        entries = self.parameters.model_dump().items()
        values = {name: entry["value"] for name, entry in entries if isinstance(entry, dict)}
        if values["tokens_style"]["document"] == 1:
            del values["tokens_style"]["document"]
        for name, neutral in (("system_tokens", 1), ("system_shift", 0)):
            own = {domain: by_system[self.system] for domain, by_system in values.pop(name).items()}
            if any(value != neutral for value in own.values()):
                values[name] = own
        parts = [self.name, f"{self.parameters.name} {_hash(values).hexdigest()[:12]}", f"seed {self.seed}"]
        return ", ".join(parts if self.system == "bamas" else [*parts, f"system {self.system}"])

    def __reduce__(self) -> tuple[Any, ...]:
        # The caches hold hashes, which cannot be pickled.
        return SimulatedLLM, (self.seed, self.parameters.model_dump(), self.system)

    def bound_prompt_tokens(self, llm: LLM, messages: list[Message]) -> int:
        """Exactly the prompt tokens that `complete` bills: ceil(bytes / 4) + 4 a message."""
        tokens = 4 * len(messages)
        for m in messages:
            tokens += count_tokens(m.get("content") or "")
        return tokens

    async def complete(self, llm: LLM, messages: list[Message], *, max_tokens: int, temperature: float = 0.0,
                       role: str = "executor", task: Task | None = None) -> Reply:
        """Draw one reply.

        Raises:
            ValueError: no task, an unknown domain, a max_tokens below 1.
        """
        if task is None:
            raise ValueError("task = None: the simulated LLM needs the task beside the messages")
        if max_tokens < 1:
            raise ValueError(f"max_tokens = {max_tokens!r}: expected at least 1")
        pair = self._pair(llm, task)
        key = pair, role, temperature, *[part for m in messages for part in (m.get("role"), m.get("content"))]
        drawn = self._drawn.get(key)
        if drawn is None:
            if len(self._drawn) >= _DRAWN:
                self._drawn.clear()
            drawn = self._drawn[key] = self._draw(pair, llm, messages, temperature, role)
        text, cut_at, tokens, prompt_tokens = drawn
        finish = "stop"
        if tokens > max_tokens:
            tokens, finish = max_tokens, "length"
            text = shorten(text[:cut_at], max_tokens)
        return Reply(text, Usage(prompt_tokens, tokens), pair.first_s + tokens / pair.per_s, finish)

    complete.instant = True  # never waits: an episode needs no event loop

    def _draw(self, pair: _Pair, llm: LLM, messages: list[Message], temperature: float, role: str
              ) -> tuple[str, int, int, int]:
        """A reply before max_tokens cuts it: text, where a cut one ends, its tokens, and the prompt's."""
        draw = pair.start.copy()
        content = ""
        for m in messages:
            content = m.get("content") or ""
            draw.update(f"{m.get('role')}\x1f{content}\x1f".encode("utf-8", "surrogatepass"))
        if temperature:
            draw.update(f"temperature {float(temperature)!r}".encode())
        u = _uniforms(draw.digest())
        if role == "critic":
            style, (text, cut_at) = "critic", self._critic(pair, content, u)
        elif role == "planner":
            style, (text, cut_at) = "planner", self._planner(llm, content, u)
        elif role == "writer":
            style, (text, cut_at) = "document", document_text(u[5])
        else:
            style, (text, cut_at) = self._executor(pair, content, u)
        factor = getattr(self.parameters.tokens_style.value, style)
        drawn = factor * math.exp(min(20.0, pair.log_tokens + pair.spread * _normal(u[4])))
        return text, cut_at, max(round(drawn), count_tokens(text), 1), self.bound_prompt_tokens(llm, messages)

    def _pair(self, llm: LLM, task: Task) -> _Pair:
        key = (task.task_id, llm.name, llm.rating, llm.tier, llm.first_token_s, llm.tokens_per_s)
        pair = self._pairs.get(key)
        if pair is None or (pair.facts.task is not task and pair.facts.task != task):
            if len(self._pairs) >= _PAIRS:
                self._pairs.clear()
            pair = self._pairs[key] = _Pair(self.seed, llm, _facts_of(task), self.parameters, self.system)
        return pair

    def _executor(self, pair: _Pair, content: str, u: list[float]) -> tuple[str, Text]:
        """Style of the prompt, and the reply."""
        p, facts, domain = self.parameters, pair.facts, pair.facts.task.domain
        view = pair.base + pair.call_weight * _normal(u[0])
        style = "approach" if "<approach>\n" in content else "solve"
        if "<instruction>\n" in content:
            style = "step"
            view += p.step_shift.value[domain]
        right, repeated, kind = view > 0, None, "solve"
        earlier = section(content, "earlier_answer") if "<earlier_answer>\n" in content else None
        if earlier is not None:
            critique = section(content, "critique") if "<critique>\n" in content else None
            asked = critique is not None and not accepts(critique)
            if style != "step":
                style = "revise" if asked else "improve"
            was_right, answer = facts.verdict(earlier)
            if answer is not None:
                table = (p.revise if asked else p.improve).value[domain]
                chances = table.keep if was_right else table.repair
                right = u[1] < (chances.view_right if view > 0 else chances.view_wrong)
                if not right and not was_right and u[3] < p.stick.value[domain]:
                    repeated = answer
                kind = "keep" if repeated is not None or (right and was_right) else "change"
        if right:
            return style, answer_text(facts.task, facts.task.reference, kind, u[5])
        return style, answer_text(facts.task, self._wrong(pair, u) if repeated is None else repeated, kind, u[5])

    def _wrong(self, pair: _Pair, u: list[float]) -> str | None:
        """A wrong answer: the weight of the k-th is decay^k, in the order that all LLMs share or in the LLM's own.

        The LLM's own order is the shared one, rotated. None if no wrong answer is known.
        """
        wrong, domain = pair.facts.wrong, pair.facts.task.domain
        n = len(wrong)
        if not n:
            return None
        decay = self.parameters.wrong_decay.value[domain]
        if decay == 1:
            k = int(u[2] * n)
        else:  # the inverse of the geometric distribution that is cut off at n
            k = min(n - 1, int(math.log(1 - u[2] * (1 - decay**n)) / math.log(decay)))
        if u[6] >= self.parameters.wrong_shared.value[domain]:
            k = (k + int(pair.offset * n)) % n
        return wrong[k]

    def _critic(self, pair: _Pair, content: str, u: list[float]) -> Text:
        earlier = section(content, "earlier_answer")
        was_right, answer = (False, None) if earlier is None else pair.facts.verdict(earlier)
        if answer is None:
            return verdict_text(False, u[5])
        rates = self.parameters.critic.value[pair.facts.task.domain]
        chances = rates.false_alarm if was_right else rates.hit
        view = pair.base + pair.call_weight * _normal(u[0])
        return verdict_text(u[1] >= (chances.view_right if view > 0 else chances.view_wrong), u[5])

    def _planner(self, llm: LLM, content: str, u: list[float]) -> Text:
        names = (line.strip() for line in (section(content, "agents") or "").splitlines())
        agents = [name for name in names if name] or ["executor"]
        if u[1] >= _by_name(self.parameters.plan_validity.value, llm):
            return bad_plan_text(agents, u[2])
        n_steps, more = 1, self.parameters.plan_more.value
        while n_steps < MAX_PLAN_STEPS and u[2] < more**n_steps:
            n_steps += 1
        return plan_text(agents, n_steps)
