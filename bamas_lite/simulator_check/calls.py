"""What recorded calls say about the LLMs that made them: one `Call` for each different prompt.

The simulator's parameters (`fit.py`) are estimated from these. A recording at temperature 0 repeats itself:
the same LLM answers the same prompt alike in many budgets and topologies. Such a prompt counts once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Literal, NamedTuple

from bamas_lite.episode import CallRecord, Episode
from bamas_lite.grading import grade, vote_key
from bamas_lite.inputs import shown
from bamas_lite.llm import Message
from bamas_lite.prompts import CRITIC_SYSTEM, PLANNER_SYSTEM, PlanError, accepts, parse_plan, section
from bamas_lite.simulation_replies import count_tokens
from bamas_lite.tasks import Task
from bamas_lite.wrong_answers import WANTED

_PARTS = ("earlier_answer", "critique", "approach", "instruction", "results")


class Call(NamedTuple):
    """One call as the simulator sees it.

    Attributes:
        role: "executor", "critic", "planner" or "replanner" (a planner who is told what came of its plan); `style` of
            the prompt as in `SimulatedLLM` (solve, approach, improve, revise, step, critic, planner); `kind`: the role
            with all tagged parts of the prompt.
        earlier: what the prompt holds: no earlier answer (None), one that cannot be read ("none"), "right" or "wrong".
        asked: whether a critique in the prompt asks for a revision.
        right: executor: whether the reply is right; critic: whether it asks for a revision.
        vote: what Star would count a wrong first answer as (None: no vote; other calls have none either).
        n_wrong: wrong answers of the task that the simulator draws from.
        steps: planner: steps of the plan; 0 for one that is not valid.
        cut: whether the reply reached its limit, `limit` tokens; `completion` are the tokens billed.
        prompt, bound: tokens of the prompt as billed and as reserved; `plain`: as the simulator counts our own prompt.
        question: tokens of the task's question as the simulator counts them.
    """

    task_id: str
    domain: str
    level: int
    llm: str
    role: str
    style: str
    kind: str
    earlier: Literal["right", "wrong", "none"] | None
    asked: bool
    right: bool
    vote: Hashable
    n_wrong: int
    steps: int
    cut: bool
    limit: int
    completion: int
    prompt: int
    bound: int
    plain: int
    question: int
    latency_s: float


def kind_of(messages: Sequence[Message]) -> tuple[str, str]:
    """Role of a prompt of ours, and the role with the tagged parts of the prompt."""
    content, system = messages[-1].get("content") or "", messages[0].get("content") or ""
    parts = [name for name in _PARTS if f"<{name}>\n" in content]
    role = "critic" if system == CRITIC_SYSTEM else "executor"
    if system == PLANNER_SYSTEM:
        role = "replanner" if parts else "planner"
    return role, " ".join((role, *parts))


def plain_tokens(messages: Iterable[Message]) -> int:
    """Prompt tokens as `SimulatedLLM` bills them."""
    return sum(4 + count_tokens(m.get("content") or "") for m in messages)


def calls_of(episodes: Iterable[Episode], tasks: Iterable[Task]) -> list[Call]:
    """The different calls in the traces of episodes, in the order in which they first occur.

    Of the same prompt with several limits the call with the largest one is kept. Calls whose text could not be used
    (refusals) and calls without reported usage are left out.

    Raises:
        ValueError: an episode of a task that is not in `tasks`, or no call at all.
    """
    by_id = {task.task_id: task for task in tasks}
    longest: dict[tuple[object, ...], tuple[CallRecord, Task]] = {}
    for episode in episodes:
        task = by_id.get(episode.task_id)
        if task is None:
            raise ValueError(f"episodes: task_id = {shown(episode.task_id)}: is not one of the {len(by_id)} tasks")
        for record in episode.calls:
            if record.fault or not record.usage_reported:
                continue
            key = record.llm.name, *(m.get("content") for m in record.messages)
            known = longest.get(key)
            if known is None or record.max_tokens > known[0].max_tokens:
                longest[key] = record, task
    if not longest:
        raise ValueError("episodes: hold no call to learn from")
    return [_call(record, task) for record, task in longest.values()]


def _call(record: CallRecord, task: Task) -> Call:
    messages, text = record.messages, record.reply.text
    content = messages[-1]["content"]
    role, kind = kind_of(messages)
    state, asked, right, vote, steps = None, False, False, None, 0
    earlier = section(content, "earlier_answer")
    if earlier is not None:
        found = grade(task, earlier)
        state = "right" if found.correct else "none" if found.answer is None else "wrong"
    if role == "critic":
        style, right = "critic", not accepts(text)
    elif role != "executor":
        style = "planner"
        names = (line.strip() for line in (section(content, "agents") or "").splitlines())
        try:
            steps = len(parse_plan(text, [name for name in names if name]))
        except PlanError:
            steps = 0
    else:
        critique = section(content, "critique")
        asked = critique is not None and not accepts(critique)
        style = ("step" if "instruction" in kind else "revise" if asked else "improve" if earlier is not None
                 else "approach" if "approach" in kind else "solve")
        right = grade(task, text).correct
        if earlier is None and not right:
            vote = vote_key(task, text)
    llm, usage = record.llm, record.usage
    bound = usage.prompt_tokens
    if record.reserved and llm.price_in:   # what was held back beside the completion paid for the bound
        bound = max(bound, round((record.reserved - llm.price_out * record.max_tokens) / llm.price_in))
    return Call(task.task_id, task.domain, task.level, llm.name, role, style, kind, state, asked, right, vote,
                len(task.wrong) or WANTED, steps, record.reply.finish_reason == "length", record.max_tokens,
                max(1, usage.completion_tokens), usage.prompt_tokens, bound, plain_tokens(messages),
                count_tokens(task.question), record.reply.latency_s)
