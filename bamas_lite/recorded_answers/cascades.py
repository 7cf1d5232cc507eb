"""Star and cascades of Mixtral-8x7B and gpt-4-1106-preview on their recorded GSM8K replies.

A cascade asks the cheap LLM first and, when its reply looks bad, the dear one. Here the look is `signals` and the
length of the reply; how bad each looks is learned on one half of the questions, everything is reported on the other.

"Budget" means two different things here, both in u$ per question. Star's is the paper's: a hard limit on every single
question, held back before a call at its worst case (the longest completion), so that it must be well above what a
question costs on average. A cascade's is a limit on the *mean* cost over many questions: a hard one is no use to it,
since asking twice costs most just where it matters. It is kept exactly on the training half; on the held-out half the
mean may lie a little above or below. Compare the two at equal `cost`, never at equal `budget`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from bamas_lite.inputs import exact, shown, whole
from bamas_lite.llm import RunStopped
from bamas_lite.provisioning import InfeasibleBudgetError, estimate_t_out, provision
from bamas_lite.recorded_answers.answers import STRONG, WEAK, RecordedAnswers
from bamas_lite.recorded_answers.readings import READINGS, right
from bamas_lite.recorded_answers.replay import MOST_TOKENS, prompt_tokens, recorded_pool
from bamas_lite.recorded_answers.signals import SIGNALS, signals
from bamas_lite.topologies import Episode, run_task_sync

BUDGETS = (1_000, 2_000, 4_000, 6_000, 8_000, 12_000, 24_000, 32_000)
"""u$ per question."""

EVERYTHING = 10**6
"""u$; more than any question can cost."""


@dataclass(frozen=True)
class Outcomes:
    """What both LLMs answer alone, as arrays over the questions: (n,) right and cost in u$, weak LLM and strong LLM."""

    weak_right: np.ndarray
    weak_cost: np.ndarray
    strong_right: np.ndarray
    strong_cost: np.ndarray


def star_episodes(answers: RecordedAnswers, budget: float = EVERYTHING, llms: Sequence[str] = (STRONG, WEAK), *,
                  rows: Sequence[int] | None = None, t_out: int = MOST_TOKENS) -> list[Episode]:
    """Play Star on the recorded replies: `provision` hires at most one agent of each LLM, `run_task` plays.

    Two agents who disagree have one vote each, and the stronger one's counts: Star of both answers as the strong LLM
    alone, unless that one's reply was cut or holds no answer.

    Args:
        answers: the recorded replies.
        budget: u$, a hard limit on every single question: who is hired and what may be called, both at worst case.
        llms: who can be hired.
        rows: the questions; None takes all.
        t_out: planned completion tokens, and the longest completion of a call.

    Raises:
        InfeasibleBudgetError: the budget pays for no agent.
        ValueError: an argument is wrong.
    """
    backend, tasks = answers.backend(), [answers.tasks[row] for row in (range(len(answers)) if rows is None else rows)]
    t_in = max(prompt_tokens(task.question) for task in tasks)
    team = provision(recorded_pool(llms), budget, t_in=t_in, t_out=t_out, min_agents=1, max_copies=1)
    limits = {"arithmetic": {"executor": t_out}}
    return [run_task_sync(task, team, "star", backend, budget, token_limits=limits, star_prompts="same")
            for task in tasks]


def outcomes(answers: RecordedAnswers, reading: str = "ours") -> Outcomes:
    """Both LLMs alone on every question, without a budget. What is right goes by a reading of READINGS.

    Raises:
        ValueError: an unknown reading.
    """
    found = [_right_and_cost(answers, star_episodes(answers, llms=(llm,)), reading) for llm in (WEAK, STRONG)]
    return Outcomes(*found[0], *found[1])


def halves(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the training half and of the held-out half, each in order."""
    order = np.random.default_rng(seed).permutation(n)
    return np.sort(order[:n // 2]), np.sort(order[n // 2:])


def suspicion(answers: RecordedAnswers, train: np.ndarray, weak_right: np.ndarray) -> np.ndarray:
    """How much each reply of the weak LLM asks for a second opinion: (n,), larger is more.

    A reply belongs to the first of SIGNALS that it gives, or to those in good order. The groups are ranked by how often
    the weak LLM is wrong in them on the training half; within a group the longer reply is the more suspect.
    """
    replies = answers.replies[WEAK]
    first = [next(iter(signals(reply)), "") for reply in replies]
    group = np.array([(*SIGNALS, "").index(name) for name in first])
    wrong = [1 - (weak_right[train][group[train] == g].sum() + 1) / ((group[train] == g).sum() + 2)
             for g in range(len(SIGNALS) + 1)]     # one right and one wrong added: a group of few says little
    length = np.array([len(reply) for reply in replies])
    return np.argsort(np.argsort(wrong, kind="stable"), kind="stable")[group] + length / (length.max() + 1)


def threshold(score: np.ndarray, weak_cost: np.ndarray, strong_cost: np.ndarray, budget: float) -> float:
    """The least score from which on the dear LLM can be asked within `budget`, u$ per question in the mean of these.

    No single question is limited: one that is escalated may cost many times the budget.
    """
    order = np.argsort(-score, kind="stable")
    mean = (weak_cost.sum() + np.cumsum(strong_cost[order])) / len(score)
    affordable = int(np.searchsorted(mean, budget, side="right"))
    while 0 < affordable < len(score) and score[order[affordable]] == score[order[affordable - 1]]:
        affordable -= 1          # replies that look the same are treated the same
    return float(score[order[affordable - 1]]) if affordable else np.inf


def cascade_table(answers: RecordedAnswers, budgets: Sequence[float] = BUDGETS, *, reading: str = "ours",
                  seed: int = 0, resamples: int = 2_000) -> pd.DataFrame:
    """Accuracy and cost on the held-out half, by budget in u$ per question.

    Rows: each LLM alone, Star of both (no budget); then for each budget:
      "star": the team that `provision` hires for it, with T_out from the training half. The budget is a hard limit on
        every single question, as in the paper; no line where it hires nobody.
      "cascade": asks Mixtral, and GPT-4 where `suspicion` reaches a threshold. The budget is a limit on the mean cost,
        and the threshold is the least that keeps to it on the training half; `cost` is what the held-out half then
        costs. No line where the mean cost of Mixtral alone is beyond it.
      "random": escalates at random, at the cascade's mean cost (its expectation, not a draw).
      "oracle": knows both verdicts and escalates only where that helps, the cheapest first, within that mean cost.

    Columns: policy, budget, accuracy with its 95% bootstrap interval, cost (mean, u$), escalated (share of questions
    on which the strong LLM was asked), gain (accuracy minus that of "random" at the same mean cost) with its paired
    interval: the same resampled questions, the cost matched anew in each.

    Args:
        answers: the recorded replies.
        budgets: u$ per question; what they limit depends on the policy, see above.
        reading: by which of READINGS a reply is right, in learning and in reporting; "ours" is our grader. Who answers
            for Star is our grader's vote under all of them.
        seed: of the halves and of the bootstrap.
        resamples: of the bootstrap.

    Raises:
        ValueError: a budget that is no number above 0, an unknown reading, fewer than 4 questions, a seed or resamples
            below 0 or 1.
    """
    for budget in budgets:
        if exact(budget, "budgets") <= 0:
            raise ValueError(f"budgets = {shown(budget)}: expected more than 0 u$ per question")
    if reading not in READINGS:
        raise ValueError(f"reading = {shown(reading)}: expected one of {', '.join(READINGS)}")
    whole(seed, "seed")
    whole(resamples, "resamples", 1)
    if len(answers) < 4:
        raise ValueError(f"answers = {len(answers)} questions: expected at least 4, to be halved")
    train, test = halves(len(answers), seed)
    alone = outcomes(answers, reading)
    weak, strong = (alone.weak_right[test], alone.weak_cost[test]), (alone.strong_right[test], alone.strong_cost[test])
    draws = np.random.default_rng(seed).multinomial(len(test), np.full(len(test), 1 / len(test)), resamples)
    weights = np.vstack([np.ones(len(test), int), draws]) / len(test)   # the first line is the sample itself
    table = _Table(weights, weak, strong)
    table.add(WEAK, None, *weak, 0 * weak[0])
    table.add(STRONG, None, *strong, 1 + 0 * weak[0], gain=False)
    both = star_episodes(answers, rows=test.tolist())
    table.add("star of both", None, *_right_and_cost(answers, both, reading), 1 + 0 * weak[0], gain=False)
    score = suspicion(answers, train, alone.weak_right)
    t_out = _planned_completion(answers, train)
    for budget in budgets:
        try:
            episodes = star_episodes(answers, budget, rows=test.tolist(), t_out=t_out)
            asked = np.array([any(call.llm.name == STRONG for call in e.calls) for e in episodes], float)
            table.add("star", budget, *_right_and_cost(answers, episodes, reading), asked, gain=False)
        except InfeasibleBudgetError:
            pass
        if budget < alone.weak_cost[train].mean():
            continue      # not even the cheap LLM can be asked each time
        least = threshold(score[train], alone.weak_cost[train], alone.strong_cost[train], budget)
        asked = (score[test] >= least).astype(float)
        correct = np.where(asked == 1, strong[0], weak[0])
        cost = weak[1] + asked * strong[1]
        table.add("cascade", budget, correct, cost, asked)
        table.add_at_cost("random", budget, *table.random(weights @ cost))
        table.add_at_cost("oracle", budget, *table.oracle(weights @ cost))
    return pd.DataFrame(table.rows)


def _right_and_cost(answers: RecordedAnswers, episodes: list[Episode], reading: str) -> tuple[np.ndarray, np.ndarray]:
    if failed := next((e for e in episodes if e.status != "ok"), None):
        raise RunStopped(f"{failed.task_id}: {failed.reason}")
    tasks = {task.task_id: task for task in answers.tasks}
    verdicts = [right(tasks[e.task_id], e.answer_text, reading) for e in episodes]
    return np.array(verdicts, float), np.array([e.cost for e in episodes])


def _planned_completion(answers: RecordedAnswers, train: np.ndarray) -> int:
    """T_out as the paper takes it: the longest completion on the training questions, of either LLM."""
    return max(estimate_t_out([call.reply for e in star_episodes(answers, llms=(llm,), rows=train.tolist())
                               for call in e.calls]) for llm in (WEAK, STRONG))


class _Table:
    """Rows of `cascade_table`. `weights` is (1 + resamples, n): the sample, then its resamples; means are products."""

    def __init__(self, weights: np.ndarray, weak: tuple[np.ndarray, np.ndarray],
                 strong: tuple[np.ndarray, np.ndarray]) -> None:
        self.rows: list[dict[str, object]] = []
        self._weights, self._weak, self._strong = weights, weak, strong

    def random(self, cost: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Accuracy, cost and share of escalation at random with the mean cost `cost`: (1 + resamples,) each."""
        w = self._weights
        share = np.clip((cost - w @ self._weak[1]) / (w @ self._strong[1]), 0, 1)
        accuracy = w @ self._weak[0] + share * (w @ self._strong[0] - w @ self._weak[0])
        return accuracy, w @ self._weak[1] + share * (w @ self._strong[1]), share

    def oracle(self, cost: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The same for escalation where only the strong LLM is right, the cheapest first, up to that mean cost."""
        w, helps = self._weights, np.flatnonzero(self._strong[0] > self._weak[0])
        helps = helps[np.argsort(self._strong[1][helps], kind="stable")]
        prices = w[:, helps] * self._strong[1][helps]
        left = (cost - w @ self._weak[1])[:, None] - (np.cumsum(prices, axis=1) - prices)
        taken = np.clip(np.divide(left, prices, out=np.zeros_like(prices), where=prices > 0), 0, 1)  # the last in part
        gained = (taken * w[:, helps]).sum(axis=1)
        return w @ self._weak[0] + gained, w @ self._weak[1] + (taken * prices).sum(axis=1), gained

    def add(self, policy: str, budget: float | None, correct: np.ndarray, cost: np.ndarray, asked: np.ndarray,
            gain: bool = True) -> None:
        """A policy by what it does on each held-out question."""
        self.add_at_cost(policy, budget, *(self._weights @ x for x in (correct, cost, asked)), gain=gain)

    def add_at_cost(self, policy: str, budget: float | None, accuracy: np.ndarray, cost: np.ndarray, share: np.ndarray,
                    gain: bool = True) -> None:
        """A policy by its means: (1 + resamples,) each."""
        above = accuracy - self.random(cost)[0] if gain else np.full_like(accuracy, np.nan)
        low, high = np.quantile(accuracy[1:], (0.025, 0.975))
        gain_low, gain_high = np.quantile(above[1:], (0.025, 0.975))
        self.rows.append(dict(
            policy=policy, budget=np.nan if budget is None else float(budget), accuracy=float(accuracy[0]),
            accuracy_low=float(low), accuracy_high=float(high), cost=float(cost[0]), escalated=float(share[0]),
            gain=float(above[0]), gain_low=float(gain_low), gain_high=float(gain_high)))
