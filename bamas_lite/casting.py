"""Who plays which role: from the slots of a team to the agents of a topology."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from bamas_lite.inputs import shown
from bamas_lite.pool import LLM, rank

TOPOLOGIES = ("linear", "star", "feedback", "planner_driven")
ROLES = ("planner", "critic", "executor")
Casting = Literal["paper", "code"]

CODE_MOST_AGENTS = 3
"""Linear and Star of the public code run at most this many agents."""


class CastingError(ValueError):
    """A team that cannot play a topology, for example one agent alone in Feedback; the message says why."""


@dataclass(frozen=True, slots=True)
class Agent:
    """One slot of a team with a part to play. `name` is unique in an episode, for example "executor 1"."""

    name: str
    role: str
    llm: LLM
    slot: Any


def cast_roles(team: Any, topology: str, casting: Casting = "paper") -> list[Agent]:
    """Give every slot of `team` (strongest first) its role; a team provisioned with roles keeps them.

    Linear, Star: all execute. Feedback: slot 1 is the only critic, the rest execute. Planner-Driven: slot 1 plans; with
    three or more slots slot 2 criticizes; the rest execute. The paper's rule ("the highest-weight LLMs") leaves some
    teams without an executor; this one completes it.

    `casting="code"` follows the public code: Linear and Star run three agents at the most, Linear keeps the strongest
    for its last step (also of a team provisioned with roles), and Feedback's critic is the weakest slot. Planner-Driven
    does not differ.

    Returns:
        The agents in the order of their slots (for the code's Linear in the order in which they run).

    Raises:
        CastingError: too few agents, or roles that do not fit the topology.
        ValueError: unknown topology or casting, a team without slots.
    """
    if topology not in TOPOLOGIES:
        raise ValueError(f"topology = {shown(topology)}: expected one of {', '.join(TOPOLOGIES)}")
    if casting not in ("paper", "code"):
        raise ValueError(f"casting = {shown(casting)}: expected 'paper' or 'code'")
    slots = list(getattr(team, "slots", ()))
    if not slots:
        raise ValueError(f"team = {shown(team)}: expected a team with at least one slot, as provision() returns it")
    if len(slots) > 1:
        slots.sort(key=lambda slot: (*rank(slot.llm), slot.copy))
    roles = [slot.role for slot in slots]
    given = any(role is not None for role in roles)
    if given:
        _check_roles(roles, topology)
    if topology in ("linear", "star"):
        if casting == "code":
            slots = slots[:CODE_MOST_AGENTS]
            if topology == "linear":
                slots = slots[1:] + slots[:1]
        roles = ["executor"] * len(slots)
    elif given:
        pass
    elif len(slots) == 1:
        pair = "a critic and an executor" if topology == "feedback" else "a planner and an executor"
        raise CastingError(f"{topology} needs at least two agents, {pair}; the team has one ({slots[0].llm.name})")
    else:
        roles = ["executor"] * len(slots)
        if topology == "planner_driven":
            roles[0] = "planner"
            if len(slots) > 2:
                roles[1] = "critic"
        else:
            roles[0 if casting == "paper" else -1] = "critic"
    agents, count = [], dict.fromkeys(ROLES, 0)
    for slot, role in zip(slots, roles, strict=True):
        count[role] += 1
        agents.append(Agent(f"{role} {count[role]}", role, slot.llm, slot))
    return agents


def _check_roles(roles: list[str | None], topology: str) -> None:
    """Whether roles that provisioning gave make a team for this topology."""
    needed = {"feedback": {"critic"}, "planner_driven": {"planner"}}.get(topology, set()) | {"executor"}
    allowed = needed | ({"critic"} if topology == "planner_driven" else set())
    given = set(roles)
    if not needed <= given <= allowed:
        raise CastingError(f"{topology} needs the roles {', '.join(sorted(needed))}"
                           f"{' and allows critic' if allowed != needed else ''}; the team was provisioned for "
                           f"{', '.join(sorted(str(role) for role in given))}")
