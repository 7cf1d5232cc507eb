"""What the simulated LLM says: short texts in the formats that the prompts ask for.

Each function returns the text and the place at which a reply that max_tokens cuts ends: before its answer.
"""

from __future__ import annotations

import json

from bamas_lite.prompts import MAX_PLAN_STEPS
from bamas_lite.tasks import Task
from bamas_lite.wrong_answers import as_reply

Text = tuple[str, int]

# No digits and no "answer is" in these: a cut reply must not seem to hold an answer.
_REASONING = {
    "solve": ("I take what is given in order and combine it step by step.",
              "First I sort out what is asked, then I work it out.",
              "I work from what is given to what is asked."),
    "keep": ("I checked the earlier answer step by step and keep it.",
             "The earlier answer holds when I work it out again."),
    "change": ("The earlier answer does not hold, so I worked it out again.",
               "I found a slip in the earlier answer and corrected it."),
}
_VERDICTS = {
    True: ("Each step follows and the result answers what is asked.\nCONCLUSION: ACCEPT",
           "I worked it out another way and came to the same result.\nCONCLUSION: ACCEPT"),
    False: ("One step does not follow from the one before, so the result cannot stand.\nCONCLUSION: REVISE",
            "When I work it out another way I come to another result.\nCONCLUSION: REVISE"),
}
_DOCUMENTS = (
    "What is given and what is asked are clear. Take the quantities in order, check each step and keep to the format.",
    "The task has one open point. Settle it first, then combine the parts and check the result against what is asked.",
)
_STEPS = ("List what is given and what is asked, and work out a first answer.",
          "Check each step of the answer so far and correct it.",
          "Work it out in another way and compare.",
          "Look for cases that were overlooked.")
_LAST_STEP = "State the final answer in the format that is asked for."


def count_tokens(text: str) -> int:
    """Tokens of `text` as the simulated provider counts them: ceil(UTF-8 bytes / 4)."""
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return (size + 3) // 4


def shorten(text: str, tokens: int) -> str:
    """At most the first `tokens` tokens of `text`."""
    if count_tokens(text) <= tokens:
        return text
    return text.encode("utf-8", "surrogatepass")[:4 * tokens].decode("utf-8", "ignore")


def answer_text(task: Task, answer: str | None, kind: str, u: float) -> Text:
    """An executor's reply. `kind` is "solve", "keep" or "change"; `u` in (0, 1) chooses the wording."""
    phrases = _REASONING[kind]
    reasoning = phrases[int(u * len(phrases))]
    if answer is None:
        return reasoning, len(reasoning)
    body, cut_at = as_reply(task.domain, answer), len(reasoning) + 1
    if task.domain == "code":  # within the first line of the function: half a program must not happen to work
        head = f"def {task.entry_point}("
        place = body.find(head)
        cut_at += place + len(head) if place >= 0 else len("```python\n")
    return f"{reasoning}\n{body}", cut_at


def verdict_text(accept: bool, u: float) -> Text:
    """A critic's reply."""
    phrases = _VERDICTS[accept]
    text = phrases[int(u * len(phrases))]
    return text, text.index("CONCLUSION")


def document_text(u: float) -> Text:
    """A writer's reply: working notes without an answer."""
    text = _DOCUMENTS[int(u * len(_DOCUMENTS))]
    return text, len(text)


def plan_text(agents: list[str], n_steps: int) -> Text:
    """A valid plan: `n_steps` steps, the agents in turn."""
    words = [*(_STEPS[i % len(_STEPS)] for i in range(n_steps - 1)), _LAST_STEP]
    text = _dump([(agents[i % len(agents)], words[i]) for i in range(n_steps)])
    return text, len(text) // 2


def bad_plan_text(agents: list[str], u: float) -> Text:
    """An invalid plan, each kind as likely as the others: prose, an unknown agent, no or too many steps, open JSON."""
    text = (
        "I would first let one agent solve the task and then let another one check it.",
        _dump([(agents[0], _STEPS[0]), ("the strongest expert", _LAST_STEP)]),
        _dump([]),
        _dump([(agents[i % len(agents)], f"Do part {i + 1}.") for i in range(MAX_PLAN_STEPS + 1)]),
        _dump([(agents[0], _STEPS[0])])[:-2],
    )[int(u * 5)]
    return text, len(text) // 2


def _dump(steps: list[tuple[str, str]]) -> str:
    return json.dumps({"steps": [{"agent": agent, "instruction": words} for agent, words in steps]})
