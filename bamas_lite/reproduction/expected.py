"""Closed form: what one simulated LLM is expected to score and spend in a workflow or a topology, without simulation.

Given what stays from call to call on a task - the task's noise and the LLM's persistent noise, together one normal -
the calls of the simulated LLM are independent draws (`bamas_lite.simulation`). So an episode is a tree: at each call an
executor is right, wrong or cut, a critic accepts or asks for a revision; the chance of each branch follows from the
parameters, and the mean over the normal is a Gauss-Hermite sum, level by level.

`Play` walks the tree of a workflow once with the real engine and a backend that says what the branch needs, and keeps
what each call was asked: the style of the prompt, the state of the answer in it, and its tokens, averaged over a sample
of tasks. Parameters come in only afterwards, so that a fit can try many at about a millisecond each.

Left out, all small: a cut verdict is quoted like one that asks for a revision; an answer that stays right or wrong is
quoted in the words of one that was kept; no budget stops a call. Two calls with the same prompt would get the same
reply; no workflow here makes them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtr

from bamas_lite.episode import Episode
from bamas_lite.inputs import shown, whole
from bamas_lite.pool import LLM, MOST_TOKENS
from bamas_lite.provisioning import Team
from bamas_lite.reproduction.scripted import OUTCOMES, Scripted
from bamas_lite.simulation import count_tokens, load_parameters
from bamas_lite.simulation_parameters import Parameters, View
from bamas_lite.tasks import Task
from bamas_lite.topologies import run_task_sync
from bamas_lite.workflows import Workflow, run_workflow_sync

SAMPLE = 48
"""Tasks, spread evenly over the levels, whose prompts and texts are counted."""
NODES = 16
"""Gauss-Hermite nodes; the test compares with many more."""
BINS = 4
"""Lengths of texts, of each level and kind, that stand for those of the sample."""
_LEAST = 1e-9
"""Branches less likely than this are not followed."""
_GOLDEN = (5**0.5 - 1) / 2

_Z, _W = np.polynomial.hermite_e.hermegauss(NODES)
_W = _W / _W.sum()


@dataclass(frozen=True, slots=True)
class Expected:
    """Expected share of right answers and cost (u$) of one task."""

    accuracy: float
    cost: float


def expected(workflow: Workflow, tasks: Sequence[Task], llm: LLM,
             parameters: str | Path | dict[str, Any] | Parameters = "fitted", *, max_tokens: int = 2048) -> Expected:
    """What `run_workflow` is expected to give with `SimulatedLLM(seed, parameters, workflow.system)`.

    Args:
        workflow: the workflow; all its agents run `llm`.
        tasks: their levels are weighted as they occur; prompts and texts are counted on SAMPLE of them.
        llm: its name has a skill of its own in the parameters.
        parameters: as of `SimulatedLLM`.
        max_tokens: as of `run_workflow`.

    Raises:
        ValueError: no tasks, tasks of several domains, an LLM without a skill of its own, or an argument of another
            kind.
        SimulationError: parameters that cannot be used.
    """
    _check(workflow, "workflow", Workflow)
    _check(llm, "llm", LLM)
    most = whole(max_tokens, "max_tokens", 1, MOST_TOKENS)
    return _with(play_of_workflow(workflow, _checked(tasks), most), llm, load_parameters(parameters))


def expected_topology(topology: str, tasks: Sequence[Task], team: Team,
                      parameters: str | Path | dict[str, Any] | Parameters = "fitted") -> Expected:
    """What `run_task` is expected to give with a team of copies of one LLM, while its budget does not stop it.

    Raises:
        ValueError: as `expected`; a team of several LLMs; Planner-Driven, whose plans have no closed form here.
    """
    _check(team, "team", Team)
    return _with(play_of_topology(topology, _checked(tasks), team), team.slots[0].llm, load_parameters(parameters))


def _check(value: Any, what: str, kind: type) -> None:
    if not isinstance(value, kind):
        raise ValueError(f"{what} = {shown(value)}: expected an object of class {kind.__name__}")


def _checked(tasks: Sequence[Task]) -> tuple[Task, ...]:
    if not isinstance(tasks, Iterable):
        raise ValueError(f"tasks = {shown(tasks)}: expected a list of Task")
    tasks = tuple(tasks)
    for task in tasks:
        if not isinstance(task, Task):
            raise ValueError(f"tasks holds {shown(task)}: expected Task objects, as load_tasks returns them")
    return tasks


def _with(play: Play, llm: LLM, p: Parameters) -> Expected:
    domain, system = play.domain, play.system
    skills, tokens = p.skill.value[domain], p.completion_tokens.value[domain]
    if llm.name not in skills:
        raise ValueError(f"llm = {llm.name!r}: has no skill of its own in {p.name}; there are {', '.join(skills)}")
    accuracy, cost = play.evaluate(p, [skills[llm.name] + p.system_shift.value[domain][system]],
                                   [tokens.get(llm.name, tokens["default"]) * p.system_tokens.value[domain][system]],
                                   llm.price_in, llm.price_out)
    return Expected(float(accuracy[0]), float(cost[0]))


@lru_cache(maxsize=64)
def play_of_workflow(workflow: Workflow, tasks: tuple[Task, ...], max_tokens: int = 2048) -> Play:
    """The tree of a workflow on these tasks; remembered."""
    return Play(workflow.system, tasks, lambda task, backend: run_workflow_sync(
        task, _ANYONE, workflow, backend, max_tokens=max_tokens))


def play_of_topology(topology: str, tasks: tuple[Task, ...], team: Team) -> Play:
    """The tree of a topology played by copies of one LLM; remembered."""
    if topology not in ("linear", "star", "feedback"):
        raise ValueError(f"topology = {shown(topology)}: the closed form knows linear, star and feedback")
    if len({slot.llm.name for slot in team.slots}) > 1:
        raise ValueError(f"team = {team}: the closed form needs copies of one LLM")
    return _play_of_topology(topology, tasks, team)


@lru_cache(maxsize=64)
def _play_of_topology(topology: str, tasks: tuple[Task, ...], team: Team) -> Play:
    return Play("bamas", tasks, lambda task, backend: run_task_sync(task, team, topology, backend, _NO_LIMIT))


_ANYONE = LLM(name="anyone", tier=1, price_in=1, price_out=1, max_tokens=1)
_NO_LIMIT = 10**9


@dataclass(slots=True)
class _Call:
    """A call in one situation. `after`: outcome -> the next call, or the share of right answers at the end (L,)."""

    style: str
    state: str  # of the answer in the prompt: "none", "cut", "wrong" or "right"
    limit: int
    prompt: Any = field(default_factory=dict)  # number of a sampled task -> tokens; once all are known the means (L,)
    after: dict[str, _Call | np.ndarray] = field(default_factory=dict)


class Play:
    """The tree of an episode on some tasks, played by one LLM.

    Attributes:
        system: whose length factor and skill shift belong to it.
        domain: of the tasks.
        levels: the L levels that occur, rising.
        weights: share of the tasks at each, (L,).
    """

    def __init__(self, system: str, tasks: Sequence[Task], run: Callable[[Task, Scripted], Episode]) -> None:
        domains = {task.domain for task in tasks}
        if len(domains) != 1:
            raise ValueError(f"tasks: expected tasks of one domain, found {', '.join(sorted(domains)) or 'no tasks'}")
        self.system, self.domain = system, domains.pop()
        by_level: dict[int, list[Task]] = {}
        for task in tasks:
            by_level.setdefault(task.level, []).append(task)
        levels = sorted(by_level)
        self.levels = np.array(levels, float)
        self.weights = np.array([len(by_level[level]) / len(tasks) for level in levels])
        each = max(1, SAMPLE // len(levels))
        sample = [of_level[len(of_level) * i // min(each, len(of_level))]
                  for of_level in by_level.values() for i in range(min(each, len(of_level)))]
        sample.sort(key=lambda task: task.level)
        self.level_of = np.searchsorted(self.levels, [task.level for task in sample])
        self.mean = np.equal.outer(np.arange(len(levels)), self.level_of) / np.bincount(self.level_of)[:, None]
        # (style, outcome) -> tokens of the text of each sampled task: no reply is billed fewer
        self._texts: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)
        self._calls: dict[tuple[str, ...], _Call] = {}
        self._ends: dict[tuple[str, ...], dict[int, bool]] = defaultdict(dict)
        for number, task in enumerate(sample):
            self._explore(number, task, run)
        questions = np.array([np.mean([count_tokens(task.question) for task in by_level[level]]) for level in levels])
        of_sample = self.mean @ [count_tokens(task.question) for task in sample]
        for path, call in self._calls.items():
            call.prompt = self.mean @ [call.prompt[n] for n in range(len(sample))] + questions - of_sample
            if path:
                self._calls[path[:-1]].after[path[-1]] = call
        for path, right in self._ends.items():
            self._calls[path[:-1]].after[path[-1]] = self.mean @ [float(right[n]) for n in range(len(sample))]
        self.floors = {key: np.stack([_binned([of[n] for n in np.flatnonzero(self.level_of == i)])
                                      for i in range(len(levels))]) for key, of in self._texts.items()}
        self._root = self._calls[()]

    def _explore(self, number: int, task: Task, run: Callable[[Task, Scripted], Episode]) -> None:
        """Play every branch of the tree on one task and note what each call was asked and what came of it."""
        open_paths: list[tuple[str, ...]] = [()]
        while open_paths:
            script = open_paths.pop()
            backend = Scripted(task, script, (number + 0.5) * _GOLDEN % 1)
            episode = run(task, backend)
            if episode.status != "ok":
                raise RuntimeError(f"{task.task_id}: {episode.reason}")
            for depth, (record, said) in enumerate(zip(episode.calls, backend.said, strict=True)):
                path = tuple(outcome for _, _, outcome, _ in backend.said[:depth])
                style, state, outcome, n_tokens = said
                call = self._calls.setdefault(path, _Call(style, state, record.max_tokens))
                call.prompt[number] = record.usage.prompt_tokens
                self._texts[style, outcome].setdefault(number, n_tokens)
                if depth >= len(script):
                    open_paths += [(*path, other) for other in OUTCOMES[record.role] if other != outcome]
            self._ends[tuple(outcome for _, _, outcome, _ in backend.said)][number] = bool(episode.correct)

    def evaluate(self, p: Parameters, skill: Sequence[float], tokens: Sequence[float], price_in: float,
                 price_out: float) -> tuple[np.ndarray, np.ndarray]:
        """Expected share of right answers and cost (u$) of a task, for n pairs of skill and tokens.

        Args:
            p: all other parameters.
            skill: latent skill on level 1, the system's shift included, (n,).
            tokens: mean completion tokens of a plain answer on level 1, times the system's factor, (n,).
            price_in, price_out: u$ per token.

        Returns:
            Two arrays (n,).
        """
        at = _Chances(self, p, np.asarray(skill, float), np.asarray(tokens, float))
        right = np.zeros((len(at.view), len(self.levels)))
        prompts, completions = np.zeros_like(right), np.zeros_like(right)
        todo = [(self._root, np.ones_like(at.view))]
        while todo:
            call, mass = todo.pop()
            chances, billed = at.of(call)
            prompts += mass @ _W * call.prompt
            completions += (mass * billed) @ _W
            for outcome, after in call.after.items():
                share = mass * chances[outcome]
                if isinstance(after, np.ndarray):
                    right += share @ _W * after
                elif share.max() > _LEAST:
                    todo.append((after, share))
        return right @ self.weights, (price_in * prompts + price_out * completions) @ self.weights


class _Chances:
    """Chances of a call's outcomes and its mean completion tokens, arrays (n, L, nodes), by style, state and limit.

    `view` is the chance that the LLM's own view is right, given what stays from call to call.
    """

    def __init__(self, play: Play, p: Parameters, skill: np.ndarray, tokens: np.ndarray) -> None:
        self.play, self.p, domain = play, p, play.domain
        stays = p.task_share.value[domain] + p.llm_share.value[domain]
        base = skill[:, None] - p.level_slope.value[domain] * (play.levels - 1)
        latent = base[:, :, None] + math.sqrt(stays) * _Z
        self.view = ndtr(latent / math.sqrt(1 - stays)) if stays < 1 else (latent > 0).astype(float)
        self.spread = p.tokens_spread.value[domain]
        with np.errstate(divide="ignore"):  # a fit may try so few tokens that a float has none: texts then count
            self.log_tokens = np.log(tokens)[:, None] - self.spread**2 / 2 + p.tokens_per_level.value[domain] * (
                play.levels - 1)
        self._known: dict[tuple[str, str, int], tuple[dict[str, np.ndarray], np.ndarray]] = {}
        self._lengths: dict[tuple[str, str, int], tuple[np.ndarray, np.ndarray]] = {}

    def of(self, call: _Call) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Outcome -> chance, and the mean tokens billed."""
        key = call.style, call.state, call.limit
        if key not in self._known:
            self._known[key] = self._compute(*key)
        return self._known[key]

    def _compute(self, style: str, state: str, limit: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        if style == "document":
            return {"said": np.ones_like(self.view)}, self._length(style, "said", limit)[0]
        if style == "critic":
            tokens, cut = self._length(style, "revise", limit)
            accept = (1 - self._asked(state)) * (1 - cut)
            return {"accept": accept, "revise": 1 - accept}, tokens
        right = self._right(style, state)
        tokens_r, cut_r = self._length(style, "right", limit)
        tokens_w, cut_w = self._length(style, "wrong", limit)
        chances = {"right": right * (1 - cut_r), "wrong": (1 - right) * (1 - cut_w)}
        chances["cut"] = right * cut_r + (1 - right) * cut_w
        return chances, right * tokens_r + (1 - right) * tokens_w

    def _right(self, style: str, state: str) -> np.ndarray:
        """Chance that an executor is right."""
        if state not in ("right", "wrong"):  # nothing, or nothing readable, to go by
            return self.view
        table = (self.p.revise if style == "revise" else self.p.improve).value[self.play.domain]
        return self._mixed(table.keep if state == "right" else table.repair)

    def _asked(self, state: str) -> np.ndarray:
        """Chance that a critic asks for a revision."""
        if state not in ("right", "wrong"):
            return np.ones_like(self.view)
        rates = self.p.critic.value[self.play.domain]
        return self._mixed(rates.false_alarm if state == "right" else rates.hit)

    def _mixed(self, chances: View) -> np.ndarray:
        return chances.view_wrong + (chances.view_right - chances.view_wrong) * self.view

    def _length(self, style: str, outcome: str, limit: int) -> tuple[np.ndarray, np.ndarray]:
        """Mean tokens billed and chance of a cut, (n, L, 1): log-normal, at least the text's, at most the limit."""
        key = style, outcome, limit
        if key not in self._lengths:
            text = self.play.floors[style, outcome]  # (L, bins)
            floor = np.minimum(text, limit)
            mu = (self.log_tokens + math.log(getattr(self.p.tokens_style.value, style)))[:, :, None]
            low, high = (np.log(floor) - mu) / self.spread, (math.log(limit) - mu) / self.spread
            between = ndtr(high - self.spread) - ndtr(low - self.spread)
            tokens = floor * ndtr(low) + np.exp(mu + self.spread**2 / 2) * between + limit * ndtr(-high)
            # A count is rounded before it is compared with the limit.
            cut = np.where(text > limit, 1.0, ndtr((mu - math.log(limit + 0.5)) / self.spread))
            self._lengths[key] = tokens.mean(-1, keepdims=True), cut.mean(-1, keepdims=True)
        return self._lengths[key]


def _binned(numbers: Sequence[int]) -> np.ndarray:
    """Numbers as BINS means, each of the same share of them, rising."""
    fine = np.repeat(np.sort(np.asarray(numbers, float)), BINS)
    return fine.reshape(BINS, -1).mean(axis=1)
