"""A backend that says what a script wants, to walk an episode's every branch through the real engine."""

from __future__ import annotations

from collections.abc import Sequence

from bamas_lite.llm import Message, Reply, Usage
from bamas_lite.pool import LLM
from bamas_lite.prompts import accepts, section
from bamas_lite.simulation import count_tokens
from bamas_lite.simulation_replies import answer_text, document_text, verdict_text
from bamas_lite.tasks import Task
from bamas_lite.wrong_answers import wrong_answers

OUTCOMES = {"executor": ("right", "wrong", "cut"), "critic": ("accept", "revise"), "writer": ("said",)}
"""What a call can come to, by the role that is asked; the first is said where a script ends."""


class Scripted:
    """A backend that says what a script wants: "right", "wrong" or "cut", "accept" or "revise", then the first of each.

    `said` notes for each call the style of its prompt, the state of the answer in it, the outcome and the tokens of the
    reply's text. `u` in (0, 1) chooses the wordings and the wrong answer.
    """

    name = "scripted"

    def __init__(self, task: Task, script: Sequence[str], u: float) -> None:
        self.task, self.script, self.u = task, script, u
        self.said: list[tuple[str, str, str, int]] = []
        self._states: dict[str, str] = {}  # text of an answer -> its state

    def bound_prompt_tokens(self, llm: LLM, messages: list[Message]) -> int:
        """As the simulated LLM."""
        return sum(count_tokens(m["content"]) + 4 for m in messages)

    async def complete(self, llm: LLM, messages: list[Message], *, max_tokens: int, temperature: float = 0.0,
                       role: str = "executor", task: Task | None = None) -> Reply:
        """The next reply of the script."""
        content, number = messages[-1]["content"], len(self.said)
        outcome = self.script[number] if number < len(self.script) else OUTCOMES[role][0]
        earlier = section(content, "earlier_answer") if "<earlier_answer>\n" in content else None
        state = "none" if earlier is None else self._states[earlier]
        if role == "writer":
            style, text = "document", document_text(self.u)[0]
        elif role == "critic":
            style, text = "critic", verdict_text(outcome == "accept", self.u)[0]
        else:
            style, text = self._answer(content, state, outcome)
        self.said.append((style, state, outcome, count_tokens(text)))
        usage = Usage(self.bound_prompt_tokens(llm, messages), 0)
        return Reply(text, usage, 0.0, "length" if outcome == "cut" else "stop")

    complete.instant = True

    def _answer(self, content: str, state: str, outcome: str) -> tuple[str, str]:
        style = "approach" if "<approach>\n" in content else "solve"
        if state != "none":
            critique = section(content, "critique") if "<critique>\n" in content else None
            style = "improve" if critique is None or accepts(critique) else "revise"
        wrong = wrong_answers(self.task)
        answer = self.task.reference
        if outcome == "wrong":
            answer = wrong[int(self.u * len(wrong))] if wrong else None
        kind = "keep" if state == outcome else "solve" if state in ("none", "cut") else "change"
        text, cut_at = answer_text(self.task, answer, kind, self.u)
        if outcome == "cut":
            text = text[:cut_at]
        self._states[text] = outcome
        return style, text
