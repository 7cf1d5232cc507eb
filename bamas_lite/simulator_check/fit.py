"""The simulated LLM fitted to recorded episodes: estimates, and a backend that plays with them.

`SimulatedLLM` has one set of parameters for all LLMs but their skill and length. Real LLMs differ in more, so there is
one set for each (LLM, domain, role) here, and `FittedLLM` asks the simulator that has it. The model stays the same.

**Estimated**, by LLM and domain: skill and level_slope, the persistent share of variance (llm_share + task_share),
keep and repair (improve, revise), the critic's hit and false_alarm, step_shift; plan_validity, plan_more; completion
tokens by style of prompt, growth per level and spread by role; prompt tokens and their bounds by kind of prompt;
by domain task_share, wrong_decay, wrong_shared; by LLM latency. **Assumed**: stick, which changes no verdict, and all
whose call never occurred.

**What the model cannot say.** Views and lengths are independent; a cut reply holds no answer; a prompt is as long as
the average of its kind for the question, whatever it quotes; steps of a plan go to the executors in turn; wrong answers
are a few, each as tempting to all LLMs or to one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from bamas_lite.episode import Episode
from bamas_lite.inputs import shown
from bamas_lite.pool import LLM, Pool
from bamas_lite.prompts import MAX_PLAN_STEPS
from bamas_lite.simulation import _skill, load_parameters
from bamas_lite.simulation_parameters import Parameters
from bamas_lite.simulator_check import estimates as est
from bamas_lite.simulator_check.calls import Call, calls_of
from bamas_lite.tasks import Task

STYLES = {"executor": ("solve", "approach", "improve", "revise", "step"), "critic": ("critic",),
          "planner": ("planner",), "replanner": ("planner",)}
"""Roles, and the styles of their prompts."""
FINE = 16
"""Lengths are simulated in sixteenths of a token: the simulator bills no fewer tokens than its stand-in text has, and
real replies can be shorter than that."""
LEAST = 3
"""Observations below which an estimate is called assumed: the prior decides it."""


@dataclass(frozen=True)
class Fit:
    """Parameters of the simulator, estimated from episodes.

    Attributes:
        parameters: (LLM, domain, role) -> a mapping that `SimulatedLLM` accepts.
        prompts, bounds: (LLM, domain, kind of prompt) -> (offset, slope): tokens = offset + slope * tokens of the
            question; (LLM, "", "") -> (0, factor on the simulator's own count), for kinds that did not occur.
        latency: LLM -> (seconds to the first token, tokens per second).
        estimates: a row a number: llm, domain, parameter, value, assumed, n (observations), status.
    """

    parameters: Mapping[tuple[str, str, str], dict[str, Any]]
    prompts: Mapping[tuple[str, str, str], tuple[float, float]]
    bounds: Mapping[tuple[str, str, str], tuple[float, float]]
    latency: Mapping[str, tuple[float, float]]
    estimates: pd.DataFrame = field(repr=False)


def fit_simulator(episodes: Iterable[Episode], tasks: Iterable[Task], pool: Pool) -> Fit:
    """Estimate the simulator's parameters from the traces of episodes.

    Args:
        episodes: with their calls, as `run_task` returns them (a replay does).
        tasks: their tasks: replies, and answers quoted in prompts, are graded.
        pool: the LLMs.

    Raises:
        ValueError: no calls, a task that is not there, or an LLM that is not in the pool.
    """
    return fit_calls(calls_of(episodes, tasks), pool)


def fit_calls(calls: Sequence[Call], pool: Pool, weights: Mapping[str, float] | None = None) -> Fit:
    """`fit_simulator` from the calls; `weights` by task_id (default 1), for bootstrap samples of the tasks."""
    names = {llm.name for llm in pool.llms}
    if unknown := next((call.llm for call in calls if call.llm not in names), None):
        raise ValueError(f"pool {pool.name!r} has no LLM {shown(unknown)}, which made calls here")
    return _Fitting(calls, pool, weights).fit()


class _Fitting:
    """One fit: the calls as columns, and what was estimated so far."""

    def __init__(self, calls: Sequence[Call], pool: Pool, weights: Mapping[str, float] | None) -> None:
        self.pool, self.assumed = pool, load_parameters("assumed")
        frame = pd.DataFrame(calls)
        frame["weight"] = 1.0 if weights is None else frame.task_id.map(weights).fillna(0.0)
        self.calls = frame[frame.weight > 0]
        self.domains = sorted(frame.domain.unique())
        self.rows: list[dict[str, Any]] = []

    def fit(self) -> Fit:
        parameters: dict[tuple[str, str, str], dict[str, Any]] = {}
        for domain in self.domains:
            of_domain = self.calls[self.calls.domain == domain]
            tasks = of_domain.groupby("task_id").agg(level=("level", "first"), weight=("weight", "first"))
            views = {llm.name: _Views(llm, domain, of_domain, tasks, self) for llm in self.pool.llms}
            assumed_share = self.assumed.task_share.value[domain]
            seen = [view for view in views.values() if view.n.sum() >= LEAST]
            shared = est.task_share([view.counts for view in seen], tasks.weight.to_numpy(), 0.5) if seen else None
            if shared is not None:
                self.note("all", domain, "task_share", shared, assumed_share, int(sum(v.n.sum() for v in seen)))
            decay, same_order = self._wrong_answers(domain, of_domain)
            for llm in self.pool.llms:
                common = self._of_llm(llm, domain, of_domain, views[llm.name])
                most = views[llm.name].share
                common |= {"task_share": min(assumed_share, most) if shared is None else min(shared, most),
                           "wrong_decay": decay, "wrong_shared": same_order}
                common["llm_share"] = max(0.0, most - common["task_share"])
                for role in STYLES:
                    own = self._lengths(llm, domain, role, of_domain) | self._plans(llm, domain, role, of_domain)
                    parameters[llm.name, domain, role] = _mapping(llm, domain, common | own, self.assumed)
        prompts, bounds = self._prompts("prompt"), self._prompts("bound")
        return Fit(parameters, prompts, bounds, self._latency(), pd.DataFrame(self.rows))

    def note(self, llm: str, domain: str, parameter: str, value: float, assumed: float, n: int) -> float:
        status = "fitted" if n >= LEAST else "assumed"
        self.rows.append({"llm": llm, "domain": domain, "parameter": parameter, "value": value, "assumed": assumed,
                          "n": int(n), "status": status})
        return value

    def _of_llm(self, llm: LLM, domain: str, of_domain: pd.DataFrame, view: _Views) -> dict[str, Any]:
        """What is the same for all roles of an LLM."""
        p, mine = self.assumed, of_domain[of_domain.llm == llm.name]
        whole = mine[~mine.cut]
        values: dict[str, Any] = {"skill": view.skill, "level_slope": view.slope}
        edits = whole[(whole.role == "executor") & whole.earlier.isin(("right", "wrong"))]
        for name, part in (("improve", edits[~edits.asked]), ("revise", edits[edits.asked])):
            values[name] = {kind: self._by_view(llm, domain, f"{name}.{kind}", part[part.earlier == state], view,
                                                getattr(getattr(p, name).value[domain], kind))
                            for kind, state in (("keep", "right"), ("repair", "wrong"))}
        verdicts = mine[mine.role == "critic"]
        # One that is cut cannot be read and counts as a wish to revise, here and in the simulator, which cuts so many.
        read = 1 - est.chance(verdicts.cut.to_numpy(float), verdicts.weight.to_numpy(float), 0.0)
        values["critic"] = {kind: self._by_view(llm, domain, f"critic.{kind}", verdicts[verdicts.earlier == state],
                                                view, getattr(p.critic.value[domain], kind), read)
                            for kind, state in (("hit", "wrong"), ("false_alarm", "right"))}
        steps = whole[(whole["style"] == "step") & whole.earlier.isna()]
        place = view.place(steps)
        shift = est.step_shift(steps.right.to_numpy(bool), view.belief[place], view.above[place],
                               steps.weight.to_numpy(float), view.skill, view.slope, view.share,
                               p.step_shift.value[domain])
        values["step_shift"] = self.note(llm.name, domain, "step_shift", shift, p.step_shift.value[domain], len(steps))
        return values

    def _by_view(self, llm: LLM, domain: str, name: str, part: pd.DataFrame, view: _Views, assumed: Any,
                 read: float = 1.0) -> dict[str, float]:
        """A chance by view; `read`: the share of replies that are not cut, in which alone the other outcome shows."""
        hit, weight = part.right.to_numpy(float), part.weight.to_numpy(float)
        before = assumed.view_right, assumed.view_wrong
        chances = est.by_view(hit, view.chance[view.place(part)], weight, before)
        return {kind: self.note(llm.name, domain, f"{name}.{kind}", max(0.0, 1 - (1 - chance) / read), a, len(part))
                for kind, chance, a in zip(("view_right", "view_wrong"), chances, before, strict=True)}

    def _plans(self, llm: LLM, domain: str, role: str, of_domain: pd.DataFrame) -> dict[str, Any]:
        """Whether plans are valid, and how many steps they have; of a cut one nothing is counted."""
        if "planner" not in role:
            return {}
        p, stated = self.assumed, self.assumed.plan_validity.value
        plans = of_domain[(of_domain.llm == llm.name) & (of_domain.role == role) & ~of_domain.cut]
        valid = plans[plans.steps > 0]
        before = stated.get(llm.name, stated["default"])
        good = est.chance((plans.steps > 0).to_numpy(float), plans.weight.to_numpy(float), before)
        more = est.repeat_chance(valid.steps.to_numpy(float), valid.weight.to_numpy(float), p.plan_more.value,
                                 MAX_PLAN_STEPS)
        return {"plan_validity": self.note(llm.name, domain, f"plan_validity.{role}", good, before, len(plans)),
                "plan_more": self.note(llm.name, domain, f"plan_more.{role}", more, p.plan_more.value, len(valid))}

    def _lengths(self, llm: LLM, domain: str, role: str, of_domain: pd.DataFrame) -> dict[str, Any]:
        """Parameters of the lengths of a role; styles that did not occur keep their assumed ratio to the others."""
        p, styles = self.assumed, STYLES[role]
        part = of_domain[(of_domain.llm == llm.name) & (of_domain.role == role)]
        factors = np.array([getattr(p.tokens_style.value, style) for style in styles])
        spread = p.tokens_spread.value[domain]
        base = p.completion_tokens.value[domain]
        mean = np.log(base.get(llm.name, base["default"])) - spread**2 / 2 + np.log(factors)
        if len(part) == 0:
            growth = p.tokens_per_level.value[domain]
        else:
            code = part["style"].map(styles.index).to_numpy()
            logs, growth, spread = est.lengths(
                part.completion.to_numpy(float), part.cut.to_numpy(bool), part.limit.to_numpy(float), code,
                len(styles), (part.level - 1).to_numpy(float), part.weight.to_numpy(float), spread)
            seen = np.bincount(code, minlength=len(styles)) > 0
            mean = np.where(seen, logs, np.log(factors) + (logs - np.log(factors))[seen].mean())
        tokens = np.exp(np.minimum(mean, 12.0) + spread**2 / 2)
        before = base.get(llm.name, base["default"]) * factors
        for style, n_tokens, assumed in zip(styles, tokens, before, strict=True):
            name = role if role == "replanner" else style
            self.note(llm.name, domain, f"tokens.{name}", float(n_tokens), float(assumed),
                      int((part["style"] == style).sum()))
        self.note(llm.name, domain, f"tokens_spread.{role}", spread, p.tokens_spread.value[domain], len(part))
        return {"completion_tokens": float(FINE * tokens[0]), "tokens_per_level": growth, "tokens_spread": spread,
                "tokens_style": {style: float(n / tokens[0]) for style, n in zip(styles, tokens, strict=True)}}

    def _wrong_answers(self, domain: str, of_domain: pd.DataFrame) -> tuple[float, float]:
        """wrong_decay and wrong_shared from pairs of wrong first answers to a task."""
        p = self.assumed
        wrong = of_domain[(of_domain.role == "executor") & of_domain.earlier.isna() & ~of_domain.right & ~of_domain.cut]
        pairs = {True: np.zeros(2), False: np.zeros(2)}
        n = 0
        for _, part in wrong.groupby("task_id"):
            for a, b in combinations(zip(part.llm, part.vote, part.weight, strict=True), 2):
                pairs[a[0] == b[0]] += a[2] * (a[1] is not None and a[1] == b[1]), a[2]
                n += 1
        assumed = p.wrong_decay.value[domain], p.wrong_shared.value[domain]
        n_wrong = round(of_domain.n_wrong.mean())
        found = est.coincidences(tuple(pairs[True]), tuple(pairs[False]), n_wrong, assumed)
        for name, value, before in zip(("wrong_decay", "wrong_shared"), found, assumed, strict=True):
            self.note("all", domain, name, value, before, n)
        return found

    def _prompts(self, column: str) -> dict[tuple[str, str, str], tuple[float, float]]:
        """Lines from tokens of the question to tokens of the prompt."""
        lines: dict[tuple[str, str, str], tuple[float, float]] = {}
        for llm, part in self.calls.groupby("llm"):
            group, kinds = pd.factorize(pd.MultiIndex.from_frame(part[["domain", "kind"]]))
            offsets, slope = est.line(part.question.to_numpy(float), part[column].to_numpy(float), group, len(kinds),
                                      part.weight.to_numpy(float))
            lines |= {(llm, *kind): (float(offset), slope) for kind, offset in zip(kinds, offsets, strict=True)}
            factor = float((part.weight @ part[column]) / (part.weight @ part.plain))
            lines[llm, "", ""] = 0.0, factor
            self.note(llm, "all", f"{column}_tokens.factor", factor, 1.0, len(part))
        return lines

    def _latency(self) -> dict[str, tuple[float, float]]:
        """Seconds to the first token and tokens per second, by least squares over completion tokens."""
        p, found = self.assumed, {}
        for llm in self.pool.llms:
            first, rate = (by.get(llm.name, by["default"]) for by in (p.first_token_s.value, p.tokens_per_s.value))
            part = self.calls[(self.calls.llm == llm.name) & (self.calls.latency_s > 0)]
            n, estimate = 0, (first, rate)
            if len(part) >= LEAST and part.completion.nunique() > 1:
                slope, at_0 = np.polyfit(part.completion, part.latency_s, 1, w=np.sqrt(part.weight))
                if slope > 0:
                    n, estimate = len(part), (max(0.0, float(at_0)), float(1 / slope))
            self.note(llm.name, "all", "first_token_s", estimate[0], first, n)
            self.note(llm.name, "all", "tokens_per_s", estimate[1], rate, n)
            found[llm.name] = estimate
        return found


class _Views:
    """What an LLM's first answers say about its views, and what they let expect of its next view on each task."""

    def __init__(self, llm: LLM, domain: str, of_domain: pd.DataFrame, tasks: pd.DataFrame, fitting: _Fitting) -> None:
        p = fitting.assumed
        first = of_domain[(of_domain.llm == llm.name) & of_domain["style"].isin(("solve", "approach")) & ~of_domain.cut]
        self.tasks = tasks.index
        counts = first.groupby("task_id").right.agg(["sum", "count"]).reindex(self.tasks, fill_value=0)
        self.k, self.n = counts["sum"].to_numpy(float), counts["count"].to_numpy(float)
        self.above = (tasks.level - 1).to_numpy(float)
        before = {"skill": _skill(llm, domain, p), "level_slope": p.level_slope.value[domain],
                  "persistent_share": p.task_share.value[domain] + p.llm_share.value[domain]}
        n_seen = int(self.n.sum())
        found = tuple(before.values()) if n_seen < LEAST else est.views(
            self.k, self.n, self.above, tasks.weight.to_numpy(float), before["skill"], before["level_slope"])
        self.skill, self.slope, self.share = found
        for (name, assumed), value in zip(before.items(), found, strict=True):
            fitting.note(llm.name, domain, name, value, assumed, n_seen)
        self.belief = est.beliefs(self.k, self.n, self.above, *found)
        self.chance = est.view_chance(self.belief, self.above, *found)

    @property
    def counts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, float, float, float]:
        return self.k, self.n, self.above, self.skill, self.slope, self.share

    def place(self, part: pd.DataFrame) -> np.ndarray:
        return self.tasks.get_indexer(part.task_id)


def _mapping(llm: LLM, domain: str, values: Mapping[str, Any], assumed: Parameters) -> dict[str, Any]:
    """A dict for `SimulatedLLM`: the assumed parameters with those of one LLM, domain and role in place."""
    wide: dict[str, list[float]] = defaultdict(lambda: [-10, 10]) | {
        "completion_tokens": [0, 1e8], "tokens_spread": [0, 100], "tokens_style": [0, 1e8]}
    by_llm = {"skill": {llm.name: values["skill"]},
              "completion_tokens": {llm.name: values["completion_tokens"], "default": values["completion_tokens"]}}
    entries: dict[str, Any] = {}
    for name, value in values.items():
        if name == "plan_validity":
            value = {llm.name: value, "default": value}
        elif name == "tokens_style":
            value = assumed.tokens_style.value.model_dump() | value
        elif name != "plan_more":
            value = {domain: by_llm.get(name, value)}
        entries[name] = {"value": value, "status": "fitted", "range": wide[name], "source": "recorded episodes"}
    return {"base": "assumed", "name": f"fitted to recorded episodes of {llm.name}",
            "description": f"estimated from recorded episodes: {llm.name}, {domain}", **entries}
