"""What is really sent to an LLM: our prompts as they are, or, for LLMs that do not follow instructions, as examples.

A base model continues text; a tiny chat model copies what it sees. Both do better with a few short examples and a
plain question than with our instructions. Domain and kind of a request are read from the tags of our own prompts (see
prompts.py). The examples of a kind come first and never change, so that servers can keep them in their prompt cache.
What is sent is part of the key of every recorded call: a change of wording here makes recordings miss.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache

from bamas_lite.llm import Message
from bamas_lite.pool import LLM
from bamas_lite.prompts import (
    ANSWER_FORMAT,
    CRITIC_SYSTEM,
    DOCUMENT_FORMAT,
    PLANNER_SYSTEM,
    REVIEW_FORMAT,
    WRITER_SYSTEM,
    section,
)

LABELS = {"task": "Question", "agents": "Agents", "documents": "Notes", "earlier_answer": "Earlier answer",
          "critique": "Criticism", "results": "Results", "approach": "Hint", "instruction": "Do this"}
"""How the tagged parts of a prompt are headed in a few-shot prompt, in this order."""

REPLY_LABELS = {"plan": "Plan", "review": "Check", "revise": "New answer", "improve": "Checked answer",
                "document": "Text"}
"""How the reply is headed; "Answer" for the other kinds."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """A request as it is sent: chat messages or one prompt text (the other is None), and where the reply ends."""

    messages: list[Message] | None
    prompt: str | None
    stop: tuple[str, ...] = ()


def render(llm: LLM, messages: list[Message]) -> Rendered:
    """What `llm` is sent for our messages.

    Chat LLMs without `few_shot` get the messages as they are. With it the examples are earlier turns of the chat, or,
    for `api: completion`, stand before the question in one text, which the LLM continues.
    """
    if not llm.few_shot:
        if llm.api == "chat":
            return Rendered(messages, None)
        return Rendered(None, "\n\n".join(m["content"] for m in messages) + "\n\n")
    kind, domain, question = _read(messages)
    examples, label = _examples(kind, domain), REPLY_LABELS.get(kind.split()[-1], "Answer")
    if llm.api == "chat":
        turns = [Message(role="system", content=m["content"]) for m in messages if m["role"] == "system"]
        for asked, replied in examples:
            turns += [{"role": "user", "content": f"{asked}\n{label}:"}, {"role": "assistant", "content": replied}]
        return Rendered([*turns, {"role": "user", "content": f"{question}\n{label}:"}], None, (f"\n{_QUESTION}",))
    # A program may hold empty lines, and its closing fence must not be cut off as a stop sequence would be.
    program = domain == "code" and not kind.endswith(("plan", "review"))
    stop = (f"\n{_QUESTION}",) if program else (f"\n{_QUESTION}", "\n\n")
    shown = [f"{asked}\n{label}:{_gap(replied)}{replied}\n\n" for asked, replied in examples]
    return Rendered(None, f"{''.join(shown)}{question}\n{label}:", stop)


_QUESTION = f"{LABELS['task']}:"
_BLANK = re.compile(r"\n\s*\n")
_OPTIONS = re.compile(r"\(1\).*\(2\)", re.DOTALL)
_NUMBER = re.compile(r"\d+")
_LATEX = re.compile(r"\\[a-z]+|\$[^$\n]*[\\^=][^$\n]*\$")
_ANY_TAG = re.compile(r"<(\w+)>\n.*?\n</\1>\n?", re.DOTALL)


def _gap(reply: str) -> str:
    return "\n" if reply.startswith("```") else " "


def _read(messages: list[Message]) -> tuple[str, str, str]:
    """Kind and domain of a request and its question in plain words."""
    system = next((m["content"] for m in messages if m["role"] == "system"), "")
    content = messages[-1]["content"]
    parts = {name: _BLANK.sub("\n", text.strip()) for name in LABELS if (text := section(content, name)) is not None}
    if system.startswith("You are the "):   # a step of a workflow: its instruction stands without tags
        parts.setdefault("instruction", _BLANK.sub("\n", _untagged(content)))
    kind = ("plan" if system.endswith(PLANNER_SYSTEM) else "review" if system.endswith(CRITIC_SYSTEM) else
            "document" if system.endswith(WRITER_SYSTEM) else "step" if "instruction" in parts else
            "revise" if "critique" in parts else "improve" if "earlier_answer" in parts else
            "approach" if "approach" in parts else "answer")
    domain = next((name for name, words in ANSWER_FORMAT.items() if content.endswith(words)), None)
    if domain is None:   # only a request for an answer names its format
        latex = "\\boxed" in content or _LATEX.search(parts.get("task", ""))
        domain = ("code" if "```" in content or "Python function" in content else
                  "mathematics" if latex else "arithmetic")
    if domain == "arithmetic" and "task" in parts:   # LLMs this small need examples that are much like the question
        domain = ("choice" if _OPTIONS.search(parts["task"]) else
                  "several steps" if len(_NUMBER.findall(parts["task"])) > 2 else domain)
    if "task" not in parts:
        return kind, domain, f"{_QUESTION} {content.strip()}"
    if "agents" in parts:
        parts["agents"] = parts["agents"].replace("\n", ", ")
        kind = "team plan" if "," in parts["agents"] else kind
    return kind, domain, _asked({name: parts[name] for name in LABELS if name in parts})


def _untagged(content: str) -> str:
    """What a prompt says outside of tags, without our own format of the reply."""
    text = _ANY_TAG.sub("", content).strip()
    for asked_for in (*ANSWER_FORMAT.values(), REVIEW_FORMAT, DOCUMENT_FORMAT):
        text = text.removesuffix(asked_for).strip()
    return text


def _asked(parts: dict[str, str]) -> str:
    return "\n".join(f"{LABELS[name]}:{_gap(text)}{text}" for name, text in parts.items())


@lru_cache(maxsize=64)
def _examples(kind: str, domain: str) -> tuple[tuple[str, str], ...]:
    """(question, reply) pairs of a kind."""
    if kind == "document":
        return ()
    if kind in ("plan", "team plan"):   # of the same steps that executors are shown
        shown = [(task, *_plan(instruction, kind == "team plan" and i == 0))
                 for i, (task, instruction, _) in enumerate(_OF_DOMAIN[domain]["step"])]
    else:
        shown = _OF_DOMAIN[domain][kind]
    return tuple((_asked(dict(zip(_PARTS[kind.split()[-1]], asked, strict=True))), reply) for *asked, reply in shown)


def _plan(instruction: str, checked: bool) -> tuple[str, str]:
    """Agents and plan of an example, with a second step for a team of several executors."""
    steps = [("executor 1", instruction), *([("executor 2", "Check the answer.")] if checked else [])]
    return ", ".join(agent for agent, _ in steps), json.dumps({"steps": [{"agent": agent, "instruction": text}
                                                                         for agent, text in steps]})


_PARTS = {"answer": ("task",), "approach": ("task", "approach"), "step": ("task", "instruction"),
          "improve": ("task", "earlier_answer"), "revise": ("task", "earlier_answer", "critique"),
          "review": ("task", "earlier_answer"), "plan": ("task", "agents")}
"""What the texts of an example are, before its reply."""

_SHIRTS = "Eva has 3 red shirts and 5 blue shirts. How many shirts does Eva have in all?"
_SHIRTS_RIGHT, _SHIRTS_WRONG = "3 + 5 = 8.\n#### 8", "3 + 5 = 9.\n#### 9"
_PENS = "Tim has 6 pens, gets 2 more and then gives 3 away. How many pens are left?"
_PENS_RIGHT, _PENS_WRONG = "6 + 2 = 8. 8 - 3 = 5.\n#### 5", "6 + 2 = 8.\n#### 8"
_BAGS = "There are 4 bags with 3 rolls in each. How many rolls are there?"
_BAGS_RIGHT, _BAGS_WRONG = "4 x 3 = 12.\n#### 12", "4 + 3 = 7.\n#### 7"

_ARITHMETIC = {
    "answer": ((_PENS, _PENS_RIGHT), (_SHIRTS, _SHIRTS_RIGHT), (_BAGS, _BAGS_RIGHT)),
    "approach": ((_PENS, "Work step by step.", _PENS_RIGHT), (_SHIRTS, "Work step by step.", _SHIRTS_RIGHT),
                 (_BAGS, "Work step by step.", _BAGS_RIGHT)),
    "step": ((_PENS, "Add, then subtract.", _PENS_RIGHT), (_SHIRTS, "Add the numbers.", _SHIRTS_RIGHT),
             (_BAGS, "Multiply.", _BAGS_RIGHT)),
    "improve": ((_PENS, _PENS_WRONG, _PENS_RIGHT), (_SHIRTS, _SHIRTS_RIGHT, _SHIRTS_RIGHT),
                (_BAGS, _BAGS_WRONG, _BAGS_RIGHT)),
    "revise": ((_PENS, _PENS_WRONG, "He gives 3 away: 8 - 3 is missing.", _PENS_RIGHT),
               (_SHIRTS, _SHIRTS_WRONG, "3 + 5 is 8, not 9.", _SHIRTS_RIGHT),
               (_BAGS, _BAGS_WRONG, "3 rolls in each of 4 bags: 4 x 3.", _BAGS_RIGHT)),
    "review": ((_PENS, _PENS_WRONG, "He gives 3 away: 8 - 3 is missing.\nCONCLUSION: REVISE"),
               (_SHIRTS, _SHIRTS_RIGHT, "3 + 5 is 8.\nCONCLUSION: ACCEPT"),
               (_BAGS, _BAGS_WRONG, "3 rolls in each of 4 bags: 4 x 3.\nCONCLUSION: REVISE"),
               (_PENS, _PENS_RIGHT, "6 + 2 is 8. 8 - 3 is 5.\nCONCLUSION: ACCEPT")),
}

_ROLLS = "There are 4 bags with 3 rolls in each and 2 more rolls. How many rolls are there?"
_ROLLS_RIGHT, _ROLLS_WRONG = "4 x 3 = 12. 12 + 2 = 14.\n#### 14", "4 x 3 = 12.\n#### 12"
_CUPS = "Ann has 5 cups, finds 1 more and buys 3 more. How many cups does Ann have?"
_CUPS_RIGHT, _CUPS_WRONG = "5 + 1 = 6. 6 + 3 = 9.\n#### 9", "5 + 1 = 6.\n#### 6"

_SEVERAL_STEPS = {
    "answer": ((_PENS, _PENS_RIGHT), (_ROLLS, _ROLLS_RIGHT), (_CUPS, _CUPS_RIGHT)),
    "approach": ((_PENS, "Work step by step.", _PENS_RIGHT), (_ROLLS, "Work step by step.", _ROLLS_RIGHT),
                 (_CUPS, "Work step by step.", _CUPS_RIGHT)),
    "step": ((_PENS, "Add, then subtract.", _PENS_RIGHT), (_ROLLS, "Multiply, then add.", _ROLLS_RIGHT),
             (_CUPS, "Add all numbers.", _CUPS_RIGHT)),
    "improve": ((_PENS, _PENS_WRONG, _PENS_RIGHT), (_ROLLS, _ROLLS_RIGHT, _ROLLS_RIGHT),
                (_CUPS, _CUPS_WRONG, _CUPS_RIGHT)),
    "revise": ((_PENS, _PENS_WRONG, "He gives 3 away: 8 - 3 is missing.", _PENS_RIGHT),
               (_ROLLS, _ROLLS_WRONG, "There are 2 more rolls: 12 + 2 is missing.", _ROLLS_RIGHT),
               (_CUPS, _CUPS_WRONG, "She buys 3 more: 6 + 3 is missing.", _CUPS_RIGHT)),
    "review": ((_PENS, _PENS_WRONG, "He gives 3 away: 8 - 3 is missing.\nCONCLUSION: REVISE"),
               (_ROLLS, _ROLLS_RIGHT, "4 x 3 is 12. 12 + 2 is 14.\nCONCLUSION: ACCEPT"),
               (_CUPS, _CUPS_WRONG, "She buys 3 more: 6 + 3 is missing.\nCONCLUSION: REVISE"),
               (_PENS, _PENS_RIGHT, "6 + 2 is 8. 8 - 3 is 5.\nCONCLUSION: ACCEPT")),
}

_SWIM = "Which of these can swim: fish (1), lamp (2) or tree (3)? Answer with the number."
_SWIM_RIGHT, _SWIM_WRONG = "fish (1)\n#### 1", "lamp (2)\n#### 2"
_MOST = "Which of these is the largest number: 21 (1), 35 (2) or 68 (3)? Answer with the number."
_MOST_RIGHT, _MOST_WRONG = "68 (3)\n#### 3", "21 (1)\n#### 1"
_DRINK = "Which of these is a drink: chair (1), milk (2) or stone (3)? Answer with the number."
_DRINK_RIGHT, _DRINK_WRONG = "milk (2)\n#### 2", "stone (3)\n#### 3"

_CHOICE = {
    "answer": ((_DRINK, _DRINK_RIGHT), (_SWIM, _SWIM_RIGHT), (_MOST, _MOST_RIGHT)),
    "approach": ((_DRINK, "Look at each option.", _DRINK_RIGHT), (_SWIM, "Look at each option.", _SWIM_RIGHT),
                 (_MOST, "Look at each option.", _MOST_RIGHT)),
    "step": ((_DRINK, "Find the drink.", _DRINK_RIGHT), (_SWIM, "Look at each option.", _SWIM_RIGHT),
             (_MOST, "Compare the numbers.", _MOST_RIGHT)),
    "improve": ((_DRINK, _DRINK_WRONG, _DRINK_RIGHT), (_SWIM, _SWIM_RIGHT, _SWIM_RIGHT),
                (_MOST, _MOST_WRONG, _MOST_RIGHT)),
    "revise": ((_DRINK, _DRINK_WRONG, "A stone is no drink.", _DRINK_RIGHT),
               (_SWIM, _SWIM_WRONG, "A lamp cannot swim.", _SWIM_RIGHT),
               (_MOST, _MOST_WRONG, "68 is larger than 21.", _MOST_RIGHT)),
    "review": ((_DRINK, _DRINK_WRONG, "A stone is no drink.\nCONCLUSION: REVISE"),
               (_SWIM, _SWIM_RIGHT, "A fish can swim.\nCONCLUSION: ACCEPT"),
               (_MOST, _MOST_WRONG, "68 is larger than 21.\nCONCLUSION: REVISE"),
               (_DRINK, _DRINK_RIGHT, "Milk is a drink.\nCONCLUSION: ACCEPT")),
}

_SLOPE, _ROOT = "Compute the derivative of $x^3$ at $x = 2$.", "Solve $2x + 1 = 2$."
_SLOPE_RIGHT = "The derivative is $3x^2$. At $2$ it is $12$.\nThe answer is \\boxed{12}."
_SLOPE_WRONG = "The derivative is $x^2$. At $2$ it is $4$.\nThe answer is \\boxed{4}."
_ROOT_RIGHT = "$2x = 1$, so $x = \\frac{1}{2}$.\nThe answer is \\boxed{\\frac{1}{2}}."

_MATHEMATICS = {
    "answer": ((_SLOPE, _SLOPE_RIGHT), (_ROOT, _ROOT_RIGHT)),
    "approach": ((_SLOPE, "Work step by step.", _SLOPE_RIGHT), (_ROOT, "Work step by step.", _ROOT_RIGHT)),
    "step": ((_SLOPE, "Differentiate, then put in 2.", _SLOPE_RIGHT), (_ROOT, "Isolate x.", _ROOT_RIGHT)),
    "improve": ((_SLOPE, _SLOPE_WRONG, _SLOPE_RIGHT), (_ROOT, _ROOT_RIGHT, _ROOT_RIGHT)),
    "revise": ((_SLOPE, _SLOPE_WRONG, "The derivative is $3x^2$, not $x^2$.", _SLOPE_RIGHT),
               (_ROOT, "$x = 1$.\nThe answer is \\boxed{1}.", "$2x = 1$, so $x$ is not $1$.", _ROOT_RIGHT)),
    "review": ((_SLOPE, _SLOPE_WRONG, "The derivative is $3x^2$, not $x^2$.\nCONCLUSION: REVISE"),
               (_ROOT, _ROOT_RIGHT, "$2x = 1$ is right, and so is $x$.\nCONCLUSION: ACCEPT")),
}

_TWICE = "Write a Python function twice(n) that returns n times 2. For example, twice(3) returns 6."
_TWICE_RIGHT, _TWICE_WRONG = (f"```python\ndef twice(n):\n    return n {op}\n```" for op in ("* 2", "** 2"))
_LAST = "Write a Python function last(items) that returns the last item of a list. For example, last([1, 5]) returns 5."
_LAST_RIGHT, _LAST_WRONG = (f"```python\ndef last(items):\n    return items[{at}]\n```" for at in ("-1", "0"))

_CODE = {
    "answer": ((_TWICE, _TWICE_RIGHT), (_LAST, _LAST_RIGHT)),
    "approach": ((_TWICE, "Write plain code.", _TWICE_RIGHT), (_LAST, "Write plain code.", _LAST_RIGHT)),
    "step": ((_TWICE, "Write the function.", _TWICE_RIGHT), (_LAST, "Use an index.", _LAST_RIGHT)),
    "improve": ((_TWICE, _TWICE_WRONG, _TWICE_RIGHT), (_LAST, _LAST_RIGHT, _LAST_RIGHT)),
    "revise": ((_TWICE, _TWICE_WRONG, "** 2 is the square; use * 2.", _TWICE_RIGHT),
               (_LAST, _LAST_WRONG, "Index 0 is the first item; use -1.", _LAST_RIGHT)),
    "review": ((_TWICE, _TWICE_RIGHT, "twice(3) is 6, as it should be.\nCONCLUSION: ACCEPT"),
               (_LAST, _LAST_WRONG, "Index 0 is the first item; use -1.\nCONCLUSION: REVISE")),
}

_OF_DOMAIN = {"arithmetic": _ARITHMETIC, "several steps": _SEVERAL_STEPS, "choice": _CHOICE,
              "mathematics": _MATHEMATICS, "code": _CODE}
