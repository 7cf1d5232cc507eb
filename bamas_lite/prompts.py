"""The prompts of the roles and the readers of what comes back.

Parts of a prompt that a reader - a person, an LLM, the simulator - has to tell apart stand in tags:
<task>, <documents>, <earlier_answer>, <critique>, <approach>, <instruction>, <agents>, <results>.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from bamas_lite.tasks import Task

ANSWER_FORMAT = {
    "arithmetic": "Reason step by step, briefly. End with one line of the form: #### number",
    "mathematics": "Reason step by step, briefly. Put the final answer in \\boxed{...}.",
    "code": "Write the whole function, with its imports, in one ```python code block.",
}

APPROACHES = {
    "arithmetic": ("Work forward from what is given, one quantity at a time.",
                   "Name the unknown, write an equation for it and solve it.",
                   "Work backward from what is asked to what is given.",
                   "First estimate the answer, then compute it exactly and compare.",
                   "Make a table of the quantities with their units, then combine them."),
    "mathematics": ("Solve it directly by the standard method.",
                    "Substitute or transform the problem into a simpler one first.",
                    "Find a candidate answer on a special case, then prove it.",
                    "Solve it, then check the result by putting it back into the problem.",
                    "Look for symmetry or an invariant before you compute."),
    "code": ("Write the plainest correct solution.",
             "List the edge cases first, then write code that covers them.",
             "Write it with the standard library where that helps.",
             "Write it as a loop that keeps one clear invariant.",
             "Trace one of the examples by hand, then write the code."),
}
"""One approach a slot for Star: at temperature 0 the same prompt would give the same answer (wording ours)."""

PLAN_SCHEMA = '{"steps": [{"agent": "<name of an executor>", "instruction": "<what to do>"}, ...]}'
MAX_PLAN_STEPS = 5

EXECUTOR_SYSTEM = "You solve tasks carefully and answer in exactly the format that is asked for."
CRITIC_SYSTEM = "You check proposed answers. You write no new answer: you find mistakes or confirm that there are none."
PLANNER_SYSTEM = "You plan how a team of agents solves a task. You answer with JSON only."
WRITER_SYSTEM = "You write short working papers for a team that solves a task."

REVIEW_FORMAT = "Say briefly what is wrong, if anything.\nEnd with one line: CONCLUSION: ACCEPT or CONCLUSION: REVISE"
DOCUMENT_FORMAT = "Write a few sentences. Leave the final answer to the agent who is asked for it."

MOST_INSTRUCTION_CHARS = 2000

_CONCLUSION = re.compile(r"CONCLUSION:[^\w\n]*(.*)", re.IGNORECASE)
_TAG = re.compile(r"<(/?(?:task|documents|earlier_answer|critique|approach|instruction|agents|results)>)")


class PlanError(ValueError):
    """A planner's reply that is no valid plan; the message says what is wrong, for the next try."""


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One step of a plan: which executor does what."""

    agent: str
    instruction: str


def tag(name: str, text: str) -> str:
    """Put `text` between tags. Our own tags inside it are broken up, so that no reply can pass for another part."""
    if "<" in text:
        text = _TAG.sub(r"< \1", text)
    return f"<{name}>\n{text}\n</{name}>"


def section(content: str, name: str) -> str | None:
    """The text between the last pair of tags `name`, or None."""
    end = content.rfind(f"\n</{name}>")
    start = content.rfind(f"<{name}>\n", 0, end) if end >= 0 else -1
    return content[start + len(name) + 3:end] if start >= 0 else None


def approach_of(domain: str, number: int) -> str:
    """The approach of Star's agent `number` (from 0). All differ, also where there are more agents than approaches."""
    known = APPROACHES[domain]
    text = known[number % len(known)]
    again = number // len(known)
    return text if not again else f"{text} Attempt {again + 1}: do not take the first way that comes to mind."


def executor_messages(task: Task, *, earlier: str | None = None, critique: str | None = None,
                      approach: str | None = None, instruction: str | None = None) -> list[dict[str, str]]:
    """Ask for an answer: afresh, or (with `earlier`) as an improvement of an earlier one."""
    parts = [tag("task", task.question)]
    if earlier is not None:
        parts.append(tag("earlier_answer", earlier))
    if critique is not None:
        parts.append(tag("critique", critique))
    if approach is not None:
        parts.append(tag("approach", approach))
    if instruction is not None:
        parts.append(tag("instruction", instruction))
    if critique is not None:
        parts.append("Revise the earlier answer where the critique is right.")
    elif earlier is not None:
        parts.append("Check the earlier answer, keep it if it is right, and correct it if it is not.")
    parts.append(ANSWER_FORMAT[task.domain])
    return [{"role": "system", "content": EXECUTOR_SYSTEM}, {"role": "user", "content": "\n".join(parts)}]


def critic_messages(task: Task, answer: str) -> list[dict[str, str]]:
    """Ask whether `answer` is right."""
    content = "\n".join((tag("task", task.question), tag("earlier_answer", answer),
                         f"Check this answer step by step. {REVIEW_FORMAT}"))
    return [{"role": "system", "content": CRITIC_SYSTEM}, {"role": "user", "content": content}]


def planner_messages(task: Task, agents: list[str], *, results: str | None = None,
                     critique: str | None = None) -> list[dict[str, str]]:
    """Ask for a plan; with `results` and `critique` for a new one after a plan that failed."""
    parts = [tag("task", task.question), tag("agents", "\n".join(agents))]
    if results is not None:
        parts.append(tag("results", results))
    if critique is not None:
        parts.append(tag("critique", critique))
    parts.append(f"Plan 1 to {MAX_PLAN_STEPS} steps. Each step sees the answer of the step before; the last step must "
                 f"state the final answer. Reply with JSON only: {PLAN_SCHEMA}")
    return [{"role": "system", "content": PLANNER_SYSTEM}, {"role": "user", "content": "\n".join(parts)}]


def step_messages(task: Task, agent: str, kind: str, instruction: str, *, documents: str | None = None,
                  earlier: str | None = None, critique: str | None = None) -> list[dict[str, str]]:
    """Ask `agent` of a workflow for a "document", an "answer" or a "review" (see `workflows.Workflow`).

    The system message names the agent; the instruction is plain text: <instruction> marks a planner's step. Without an
    instruction it is the topologies' own prompt for an answer or a review.
    """
    if not instruction:
        if kind == "review":
            return critic_messages(task, earlier or "(no answer)")
        return executor_messages(task, earlier=earlier, critique=critique)
    system, asked_for = {"document": (WRITER_SYSTEM, DOCUMENT_FORMAT), "review": (CRITIC_SYSTEM, REVIEW_FORMAT),
                         "answer": (EXECUTOR_SYSTEM, ANSWER_FORMAT[task.domain])}[kind]
    parts = [tag("task", task.question)]
    for name, text in (("documents", documents), ("earlier_answer", earlier), ("critique", critique)):
        if text is not None:
            parts.append(tag(name, text))
    return [{"role": "system", "content": f"You are the {agent}. {system}"},
            {"role": "user", "content": "\n".join((*parts, instruction, asked_for))}]


def accepts(reply: str) -> bool:
    """Whether a critic accepts. Without a readable conclusion it does not: unread praise must not end the work."""
    found = _CONCLUSION.findall(reply)
    words = re.findall(r"\w+", found[-1].upper()) if found else []
    return bool(words) and words[0] in ("ACCEPT", "ACCEPTED") and "REVISE" not in words


def parse_plan(reply: str, agents: list[str]) -> list[PlanStep]:
    """Read a plan and check it against the schema before anything is run. Text around the JSON is ignored.

    Raises:
        PlanError: no JSON, another shape, no or too many steps, an unknown agent, an empty or very long instruction.
    """
    start = reply.rfind("{", 0, max(reply.find('"steps"'), 0))
    if start < 0:
        raise PlanError("no JSON object with steps found")
    try:
        data, _ = json.JSONDecoder().raw_decode(reply, start)
    except (ValueError, RecursionError) as error:
        raise PlanError(f"not valid JSON: {error}") from None
    steps = data.get("steps")
    if not isinstance(steps, list) or not 1 <= len(steps) <= MAX_PLAN_STEPS:
        raise PlanError(f"expected 1 to {MAX_PLAN_STEPS} steps in a list 'steps'")
    plan = []
    for number, step in enumerate(steps, 1):
        agent = step.get("agent") if isinstance(step, dict) else None
        instruction = step.get("instruction") if isinstance(step, dict) else None
        if agent not in agents:
            raise PlanError(f"step {number}: agent {str(agent)[:40]!r} is not one of {', '.join(agents)}")
        if not isinstance(instruction, str) or not instruction.strip():
            raise PlanError(f"step {number}: an instruction is needed")
        if len(instruction) > MOST_INSTRUCTION_CHARS:
            raise PlanError(f"step {number}: the instruction is longer than {MOST_INSTRUCTION_CHARS} characters")
        plan.append(PlanStep(agent, instruction.strip()))
    return plan
