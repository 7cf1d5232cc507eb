"""Roles of agents, read from `data/roles/*.yaml` and checked.

The abstract names role-backbone matching; AgentBalance's roles are not available to us, so these, their prompts and
their criticality are our reconstruction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from bamas_lite.inputs import exact, named_file, read_yaml, shown
from bamas_lite.paths import DATA
from bamas_lite.tasks import DOMAINS
from bamas_lite.workflows import ROLES, Kind

__all__ = ["MOST_ROLES", "ROLE_SET", "Kind", "Role", "RoleError", "load_roles", "read_set", "roles_of"]

ROLE_SET = {"arithmetic": "general", "mathematics": "mathematics", "code": "code"}
"""Domain -> set of roles. Word problems with a number stand for general questions."""

MOST_ROLES = 12
"""Roles of a set; a graph has as many agents at the most."""

MOST_CHARS = 300
"""Of an instruction: every call of the agent pays for it."""

_KEYS = ("name", "source", "sets")


class RoleError(ValueError):
    """A role, or a file of roles, that cannot be used; the message names file, set, role, field and value."""


@dataclass(frozen=True, slots=True)
class Role:
    """A part that an agent can play.

    Attributes:
        name: who the agent is told to be ("You are the ..."); one line.
        kind: "document", "answer" or "review", as in `workflows.Step`.
        instruction: what is asked, one short sentence on one line.
        criticality: 0 to 1, how much hangs on the strength of the agent's LLM.

    Raises:
        RoleError: a field that does not fit.
    """

    name: str
    kind: Kind
    instruction: str
    criticality: float

    def __post_init__(self) -> None:
        for field, most in (("name", 60), ("instruction", MOST_CHARS)):
            text = getattr(self, field)
            if not isinstance(text, str) or not text.strip() or not text.isprintable() or len(text) > most:
                raise RoleError(f"{field} = {shown(text)}: expected printable text on one line, at most {most} "
                                "characters")
        if not isinstance(self.kind, str) or self.kind not in ROLES:
            raise RoleError(f"kind = {shown(self.kind)}: expected one of {', '.join(ROLES)}")
        try:
            criticality = float(exact(self.criticality))
        except ValueError:
            criticality = -1.0
        if not 0 <= criticality <= 1:
            raise RoleError(f"criticality = {shown(self.criticality)}: expected a number from 0 to 1")
        object.__setattr__(self, "criticality", criticality)


def load_roles(name_or_path: str | Path = "default") -> dict[str, tuple[Role, ...]]:
    """Load sets of roles by name (a file of `data/roles`) or from a YAML file of the same shape.

    Returns:
        Set ("mathematics", "code", "general"; a file may leave some out) -> its roles, in the order of the file.

    Raises:
        RoleError: no such file, or the first problem in it.
    """
    path = named_file(name_or_path, "role", DATA / "roles", RoleError)
    return dict(_read(path, path.stat().st_mtime_ns))


def roles_of(domain: str, roles: Mapping[str, tuple[Role, ...]] | None = None) -> tuple[Role, ...]:
    """The roles for tasks of a domain.

    Args:
        domain: one of DOMAINS.
        roles: what `load_roles` returned; None: the default ones.

    Raises:
        RoleError: unknown domain, or `roles` has no set for it.
    """
    if domain not in DOMAINS:
        raise RoleError(f"domain = {shown(domain)}: expected one of {', '.join(DOMAINS)}")
    roles = load_roles() if roles is None else roles
    if not isinstance(roles, Mapping):
        raise RoleError(f"roles = {shown(roles)}: expected what load_roles returns, set -> roles")
    if ROLE_SET[domain] not in roles:
        raise RoleError(f"roles: has no set {ROLE_SET[domain]!r}, which {domain} needs; it has "
                        f"{', '.join(map(str, roles)) or 'none'}")
    return roles[ROLE_SET[domain]]


@lru_cache(maxsize=16)
def _read(path: Path, changed: int) -> tuple[tuple[str, tuple[Role, ...]], ...]:
    """The sets of a file; read again when it has changed."""
    data = read_yaml(path, RoleError)
    if not isinstance(data, dict):
        raise RoleError(f"{path}: expected a mapping with sets, found {shown(data)}")
    for key in data:
        if key not in _KEYS:
            raise RoleError(f"{path}: {key}: unknown key; known are {', '.join(_KEYS)}")
    sets = data.get("sets")
    if not isinstance(sets, dict) or not sets:
        raise RoleError(f"{path}: sets = {shown(sets)}: expected at least one of {', '.join(ROLE_SET.values())}")
    try:
        return tuple((name, read_set(name, roles)) for name, roles in sets.items())
    except RoleError as error:
        raise RoleError(f"{path}: {error}") from None


def read_set(name: Any, roles: Any) -> tuple[Role, ...]:
    """One set of roles from plain values, as a file has them.

    Args:
        name: of the set, one of ROLE_SET's.
        roles: a list of mappings with the fields of Role.

    Raises:
        RoleError: the first problem; the message names the set, the role, the field and the value.
    """
    if name not in ROLE_SET.values():
        raise RoleError(f"set {shown(name)}: unknown; known are {', '.join(ROLE_SET.values())}")
    where = f"set {name}"
    if not isinstance(roles, list) or not 1 <= len(roles) <= MOST_ROLES:
        found = f"{len(roles)} roles" if isinstance(roles, list) else shown(roles)
        raise RoleError(f"{where}: {found}: expected a list of 1 to {MOST_ROLES} roles")
    known, read = [field.name for field in fields(Role)], []
    for number, entry in enumerate(roles, 1):
        if not isinstance(entry, dict):
            raise RoleError(f"{where}: role {number} = {shown(entry)}: expected a mapping with {', '.join(known)}")
        who = f"{where}: role {shown(entry['name']) if 'name' in entry else number}"
        for key in [*entry, *known]:
            if key not in known:
                raise RoleError(f"{who}: {key}: unknown key; known are {', '.join(known)}")
            if key not in entry:
                raise RoleError(f"{who}: {key} is missing")
        try:
            role = Role(**entry)
        except RoleError as error:
            raise RoleError(f"{who}: {error}") from None
        for other in read:
            if role.name == other.name:
                raise RoleError(f"{who}: name = {shown(role.name)}: is used twice; names differ")
            if _reads(role.name) == _reads(other.name):
                raise RoleError(f"{who}: name = {shown(role.name)}: {shown(other.name)} reads the same; names differ "
                                "by more than capitals and blanks")
        read.append(role)
    if not any(role.kind == "answer" for role in read):
        raise RoleError(f"{where}: expected at least one role of kind 'answer'; nothing could be graded")
    return tuple(read)


def _reads(name: str) -> str:
    """A name without what a reader may overlook."""
    return " ".join(name.split()).casefold()
