"""`FittedLLM`: a backend that plays with the parameters of a `fit.Fit`."""

from __future__ import annotations

import math
from collections.abc import Iterable

from bamas_lite.inputs import shown
from bamas_lite.llm import Message, Reply, Usage
from bamas_lite.pool import LLM
from bamas_lite.prompts import section, tag
from bamas_lite.simulation import SimulatedLLM, _Pair, count_tokens, task_noise
from bamas_lite.simulator_check.calls import kind_of, plain_tokens
from bamas_lite.simulator_check.fit import FINE, Fit
from bamas_lite.tasks import Task


class _Redrawn(SimulatedLLM):
    """The simulated LLM, but what all LLMs share on a task is drawn anew for each seed.

    `SimulatedLLM` ties it to the task, so that no number of seeds would average it out; which tasks are hard for real
    LLMs it cannot know. So a prediction must be taken over such draws too.
    """

    _shifted: dict[str, _Pair]

    def _pair(self, llm: LLM, task: Task) -> _Pair:
        pair = super()._pair(llm, task)
        shifted = self.__dict__.setdefault("_shifted", {})
        if shifted.get(task.task_id) is not pair:
            drawn = task_noise(f"{task.task_id}\x1f{self.seed}")
            pair.base += math.sqrt(self.parameters.task_share.value[task.domain]) * (drawn - pair.facts.noise)
            shifted[task.task_id] = pair
        return pair


class FittedLLM:
    """A backend that draws its replies with fitted parameters.

    Args:
        fit: the parameters.
        tasks: those that will be played: a prompt's length depends on the domain of its task.
        seed: of all draws.

    Raises:
        ValueError: a task of a domain that the fit has not seen.
    """

    name = "simulated"

    def __init__(self, fit: Fit, tasks: Iterable[Task], seed: int = 0) -> None:
        self.fit, self.seed = fit, seed
        known = {domain for _, domain, _ in fit.parameters}
        self._domains: dict[str | None, str] = {}
        for task in tasks:
            if task.domain not in known:
                raise ValueError(f"task {task.task_id}: domain = {shown(task.domain)}: the recorded episodes that were "
                                 f"fitted have {', '.join(sorted(known))}")
            self._domains[section(tag("task", task.question), "task")] = task.domain
        self._inner = {key: _Redrawn(seed, mapping) for key, mapping in fit.parameters.items()}

    @property
    def identity(self) -> str:
        """For a log's manifest."""
        return ", ".join((self.name, "fitted to recorded episodes", f"seed {self.seed}"))

    def bound_prompt_tokens(self, llm: LLM, messages: list[Message]) -> int:
        """What was reserved on average for such a prompt; at least its tokens."""
        return max(self._tokens(self.fit.bounds, llm, messages), self._tokens(self.fit.prompts, llm, messages))

    def _tokens(self, lines: dict[tuple[str, str, str], tuple[float, float]], llm: LLM, messages: list[Message]) -> int:
        question = section(messages[-1]["content"], "task") or ""
        line = lines.get((llm.name, self._domains.get(question, ""), kind_of(messages)[1]))
        if line is None:   # a kind that did not occur
            _, factor = lines.get((llm.name, "", ""), (0.0, 1.0))
            return max(1, round(factor * plain_tokens(messages)))
        return max(1, round(line[0] + line[1] * count_tokens(question)))

    async def complete(self, llm: LLM, messages: list[Message], *, max_tokens: int, temperature: float = 0.0,
                       role: str = "executor", task: Task | None = None) -> Reply:
        """Draw one reply; raises ValueError for an LLM, a role or a task that the fit does not know."""
        role_here = kind_of(messages)[0]   # of the prompt: a planner who is asked again is a role of its own
        inner = None if task is None else self._inner.get((llm.name, task.domain, role_here))
        if inner is None:
            raise ValueError(f"llm = {llm.name!r}, role = {role!r}, task = {shown(task and task.task_id)}: not fitted")
        reply = await inner.complete(llm, messages, max_tokens=max_tokens * FINE, temperature=temperature, role=role,
                                     task=task)
        n_tokens = min(max_tokens, max(1, round(reply.usage.completion_tokens / FINE)))
        first_s, per_s = self.fit.latency[llm.name]
        return Reply(reply.text, Usage(self._tokens(self.fit.prompts, llm, messages), n_tokens),
                     first_s + n_tokens / per_s, reply.finish_reason)

    complete.instant = True  # never waits
