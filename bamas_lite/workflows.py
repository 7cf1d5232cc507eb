"""Small declared workflows "in the style of" other systems, on any backend and under the same meter as the topologies.

A workflow is a list of steps, taken in order by agents that all run one LLM. The steps and every word in them are ours:
they keep what matters for accuracy and cost - who speaks after whom, what is handed on, what ends the talk - and are no
copy of AutoGen, MetaGPT or ChatDev. With `budget=None` nothing is limited, as these systems know no budget.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from bamas_lite.casting import Agent
from bamas_lite.episode import Caller, Episode, check_backend, check_temperature, play, run_now
from bamas_lite.inputs import shown, whole
from bamas_lite.llm import BudgetMeter, ChatModel, Enforcement
from bamas_lite.pool import LLM, MOST_TOKENS
from bamas_lite.prompts import accepts, step_messages
from bamas_lite.simulation_parameters import SYSTEMS
from bamas_lite.tasks import Task, check_task

Kind = Literal["document", "answer", "review"]

ROLES = {"document": "writer", "answer": "executor", "review": "critic"}
"""Kind of a step -> role that the backend, the meter and the trace are told."""

NAIVE_LEVELS, NAIVE_RUN = 5, 3
"""Levels of Naive-CostAware, and how many of its agents run at the most. The second is inferred: the published costs
with GPT-4.1 nano are flat from L2 on; those with DeepSeek-V3 rise further, which this leaves unexplained (BAMAS,
Table 4)."""


@dataclass(frozen=True, slots=True)
class Step:
    """One call of a workflow.

    Attributes:
        agent: who is asked; the system message says so ("You are the ..."). One line; the same name again is the same
            agent.
        kind: "document" - a text that is handed on and never graded; "answer" - an answer to the task, the first one
            or a better one; "review" - a verdict on the answer so far, ending in CONCLUSION: ACCEPT or REVISE.
        instruction: what is asked, one sentence, as plain text behind the tagged parts. Empty (not for a document):
            exactly the prompt of the topologies, Linear's for an answer, Feedback's for a review, without documents.
        ends: of a review: if it accepts, the workflow ends here and the steps behind it are not taken.
    """

    agent: str
    kind: Kind
    instruction: str = ""
    ends: bool = False

    @property
    def role(self) -> str:
        """The role of the call: "writer", "executor" or "critic"."""
        return ROLES[self.kind]


@dataclass(frozen=True, slots=True)
class Workflow:
    """Steps that are taken in order, each once, until a review with `ends` accepts or the last is done.

    What a step is shown, in this order, each part only if there is one (`prompts.step_messages`):
      1. the task;
      2. <documents>: the last document; with `history` everything said so far that is not shown as part 3 or 4, each
         text behind a line "agent:";
      3. <earlier_answer>: the last complete answer (while there is none, the last one that was cut);
      4. <critique>: the last review, if no answer came after it and the step is no review itself;
      5. the step's instruction and the format that its kind asks for.
    A review is skipped while there is no answer. An empty reply changes nothing. What is graded is part 3 at the end.

    Attributes:
        name: label in logs and tables, such as "autogen" or "naive L2".
        system: whose length factor and skill shift the simulated LLM takes: `SimulatedLLM(seed, parameters, system)`;
            one of `simulation_parameters.SYSTEMS`.
        title: for readers, such as "in the style of AutoGen".
        steps: at least one of them an answer, which stands before every review.
        history: see above.

    Raises:
        ValueError: a part that does not fit; the message names it, its value and what would be valid.
    """

    name: str
    system: str
    title: str
    steps: tuple[Step, ...]
    history: bool = False

    def __post_init__(self) -> None:
        for field in ("name", "system", "title"):
            if not isinstance(getattr(self, field), str) or not getattr(self, field).strip():
                raise ValueError(f"{field} = {shown(getattr(self, field))}: expected text")
        if self.system not in SYSTEMS:
            raise ValueError(f"{self.name}: system = {shown(self.system)}: expected one of {', '.join(SYSTEMS)}")
        if not isinstance(self.history, bool):
            raise ValueError(f"{self.name}: history = {shown(self.history)}: expected True or False")
        if not isinstance(self.steps, tuple) or not all(isinstance(step, Step) for step in self.steps):
            raise ValueError(f"{self.name}: steps = {shown(self.steps)}: expected a tuple of Step")
        answered = False
        for number, step in enumerate(self.steps, 1):
            if problem := _problem(step, answered):
                raise ValueError(f"{self.name}: step {number}: {problem}")
            answered = answered or step.kind == "answer"
        if not answered:
            raise ValueError(f"{self.name}: steps: expected at least one of kind 'answer'; nothing could be graded")

    @property
    def agents(self) -> tuple[str, ...]:
        """Names of the agents in the order of their first step."""
        return tuple(dict.fromkeys(step.agent for step in self.steps))


def _problem(step: Step, answered: bool) -> str:
    """What does not fit in a step; empty if all does. `answered`: whether an answer stands before it."""
    if not isinstance(step.kind, str) or step.kind not in ROLES:
        return f"kind = {shown(step.kind)}: expected one of {', '.join(ROLES)}"
    if not isinstance(step.agent, str) or not step.agent.strip() or step.agent.splitlines() != [step.agent]:
        return f"agent = {shown(step.agent)}: expected a name on one line"
    if not isinstance(step.instruction, str) or (step.kind == "document" and not step.instruction.strip()):
        return f"instruction = {shown(step.instruction)}: expected text; only answers and reviews can do without"
    if not isinstance(step.ends, bool):
        return f"ends = {shown(step.ends)}: expected True or False"
    if step.ends and step.kind != "review":
        return f"ends = True: only a review can end a workflow, this is kind {step.kind!r}"
    return "" if answered or step.kind != "review" else "kind = 'review': there is no answer before it to review"


def naive(level: int) -> Workflow:
    """Naive-CostAware at L1 to L5 (BAMAS, Table 4): level + 1 executors in a chain with the prompts of Linear.

    At most `NAIVE_RUN` (three) of them run, which is inferred, not published.

    Raises:
        ValueError: a level that is no whole number from 1 to 5.
    """
    level = whole(level, "level", 1, NAIVE_LEVELS)
    steps = tuple(Step(f"executor {i + 1}", "answer") for i in range(min(level + 1, NAIVE_RUN)))
    title = f"Naive-CostAware L{level}: {level + 1} agents, {len(steps)} of them run"
    return Workflow(f"naive L{level}", "naive", title, steps)


_REVISE = "Revise your answer where the review is right, and keep it where it is not."

WORKFLOWS: dict[str, Workflow] = {w.name: w for w in (
    Workflow("autogen", "autogen", "in the style of AutoGen", (
        Step("assistant", "answer", "Solve the task."),
        Step("reviewer", "review", "Check the assistant's answer.", ends=True),
        Step("assistant", "answer", _REVISE),
        Step("reviewer", "review", "Check the assistant's new answer.", ends=True),
        Step("assistant", "answer", _REVISE),
    ), history=True),
    Workflow("metagpt", "metagpt", "in the style of MetaGPT", (
        Step("product manager", "document", "List what is given and what a right answer must meet."),
        Step("architect", "document", "From these requirements, design the way to the answer, step by step."),
        Step("engineer", "answer", "Carry out the design and answer the task."),
        Step("tester", "review", "Test the engineer's answer against the task."),
        Step("engineer", "answer", _REVISE),
    )),
    Workflow("chatdev", "chatdev", "in the style of ChatDev", (
        Step("chief executive", "document", "Open the design phase: tell the technical officer what to find out."),
        Step("technical officer", "document", "Reply to the chief executive with a design."),
        Step("technical officer", "document", "Open the solving phase: tell the programmer what to do by this design."),
        Step("programmer", "answer", "Do what the technical officer says and answer the task."),
        Step("tester", "review", "Open the testing phase: check the programmer's answer."),
        Step("programmer", "answer", _REVISE),
    )),
)}
"""Baselines by name; Naive-CostAware is `naive(level)`. AutoGen: two agents talk, at most three answers. MetaGPT: a
fixed pipeline of roles with documents handed on. ChatDev: phases (design, solving, testing) of an instructor and an
assistant."""


async def run_workflow(task: Task, llm: LLM, workflow: Workflow, backend: ChatModel, *, budget: Any = None,
                       enforcement: Enforcement = "reserve", temperature: float = 0.0, max_tokens: int = 2048,
                       minimum_tokens: dict[str, int] | None = None) -> Episode:
    """Let agents that all run `llm` go through a workflow on one task.

    Args:
        task: the task; its reference is read by grading (and the simulator) only.
        llm: its prices are billed.
        workflow: one of WORKFLOWS, naive(level), or your own.
        backend: answers the calls. A simulated one takes the system: `SimulatedLLM(seed, parameters, workflow.system)`;
            one that says another `system` is refused, as its costs would be those of that system.
        budget: u$ for the whole episode; None: not limited (`Episode.budget` is then infinite).
        enforcement, minimum_tokens: what a budget does, see BudgetMeter; without one they change nothing.
        temperature: of every call.
        max_tokens: most completion tokens of a call. It stands in for the LLM's own `max_tokens`, which is what BAMAS
            plans with; the systems imitated here set no such limit.

    Returns:
        The episode; its `topology` is the workflow's name. As in `run_task` the last complete answer counts, and a call
        that failed for good gives status "error". Stop reason "rounds": no review accepted, though one could have.

    Raises:
        ValueError: an argument is wrong; the message names it, its value and what would be valid.
    """
    check_task(task)
    check_backend(backend)
    check_temperature(temperature)
    if not isinstance(llm, LLM):
        raise ValueError(f"llm = {shown(llm)}: expected an LLM, such as load_pool('paper').llms[0]")
    if not isinstance(workflow, Workflow):
        raise ValueError(f"workflow = {shown(workflow)}: expected a Workflow, such as WORKFLOWS['autogen'] or naive(1)")
    system = getattr(backend, "system", workflow.system)
    if system != workflow.system:
        raise ValueError(f"backend: speaks for system {shown(system)}, workflow {workflow.name!r} is of "
                         f"{workflow.system!r}; expected SimulatedLLM(seed, parameters, {workflow.system!r})")
    most = whole(max_tokens, "max_tokens", 1, MOST_TOKENS)
    if budget is None:
        meter, limit = BudgetMeter.unlimited(enforcement, minimum_tokens=minimum_tokens), math.inf
    else:
        meter = BudgetMeter(budget, enforcement, minimum_tokens=minimum_tokens)
        limit = float(budget)
    agents = _agents(workflow, llm if llm.max_tokens == most else llm.model_copy(update={"max_tokens": most}))
    call = Caller(task, backend, meter, dict.fromkeys(ROLES.values(), most), temperature)
    return await play(_moves(task, workflow, agents, call), call, task=task, topology=workflow.name,
                      team=f"{len(workflow.agents)}x {llm.name}", budget=limit, backend=backend,
                      agents=tuple(agents.values()))


def run_workflow_sync(task: Task, llm: LLM, workflow: Workflow, backend: ChatModel, **options: Any) -> Episode:
    """`run_workflow` for scripts: no `await`, and no event loop for a backend that never waits.

    Raises:
        ValueError: as `run_workflow`.
        RuntimeError: called where an event loop runs already (a notebook), with a backend that waits.
    """
    check_backend(backend)
    return run_now(run_workflow(task, llm, workflow, backend, **options), backend, "run_workflow")


def _agents(workflow: Workflow, llm: LLM) -> dict[tuple[str, str], Agent]:
    """Every agent in every role that it plays, in the order of the steps."""
    return {(step.agent, step.role): Agent(step.agent, step.role, llm, None) for step in workflow.steps}


async def _moves(task: Task, workflow: Workflow, agents: dict[tuple[str, str], Agent],
                 call: Caller) -> tuple[str | None, str]:
    """The calls of a workflow, as `Workflow` describes them."""
    said: list[tuple[Step, str]] = []
    answer_at = review_at = None  # places in `said` of the answer that counts, and of a review that no answer followed
    for step in workflow.steps:
        review = step.kind == "review"
        if review and call.answer is None:
            continue
        critique_at = None if review else review_at
        documents = _documents(workflow, said, (answer_at, critique_at))
        critique = None if critique_at is None else said[critique_at][1]
        reply = await call(agents[step.agent, step.role],
                           step_messages(task, step.agent, step.kind, step.instruction, documents=documents,
                                         earlier=call.answer, critique=critique))
        if not reply.text.strip():
            continue
        said.append((step, reply.text))
        if review:
            if step.ends and accepts(reply.text):
                return call.answer, "finished"
            review_at = len(said) - 1
        elif step.kind == "answer":
            review_at = None
            if reply.text == call.answer:
                answer_at = len(said) - 1
    return call.answer, "rounds" if any(step.ends for step in workflow.steps) else "finished"


def _documents(workflow: Workflow, said: list[tuple[Step, str]], elsewhere: tuple[int | None, ...]) -> str | None:
    """What a step is handed as <documents>; `elsewhere` are the places in `said` that it is shown in other tags."""
    if not workflow.history:
        return next((text for step, text in reversed(said) if step.kind == "document"), None)
    return "\n".join(f"{step.agent}:\n{text}" for i, (step, text) in enumerate(said) if i not in elsewhere) or None
