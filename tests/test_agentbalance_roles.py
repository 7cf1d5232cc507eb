"""Roles: the committed sets, files of one's own, and what is wrong with a file."""

import dataclasses
import os
import pickle

import pytest
import yaml

from bamas_lite.agentbalance.roles import MOST_ROLES, ROLE_SET, Role, RoleError, load_roles, roles_of
from bamas_lite.paths import DATA
from bamas_lite.prompts import step_messages
from bamas_lite.tasks import DOMAINS, Task
from bamas_lite.workflows import Step

TASK = Task("t/1", "arithmetic", 1, "How many are 3 and 4?", "7")
SOLVER = {"name": "solver", "kind": "answer", "instruction": "Solve it.", "criticality": 1.0}
REVIEWER = {"name": "reviewer", "kind": "review", "instruction": "Check it.", "criticality": 0.5}


def written(tmp_path, content):
    path = tmp_path / "mine.yaml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content), encoding="utf-8")
    return path


def test_default_roles_are_what_the_file_says():
    data = yaml.safe_load((DATA / "roles" / "default.yaml").read_text(encoding="utf-8"))["sets"]
    roles = load_roles()
    assert list(roles) == ["mathematics", "code", "general"] == list(data)
    for name, entries in data.items():
        assert [dataclasses.asdict(role) for role in roles[name]] == entries


@pytest.mark.parametrize("name", ["mathematics", "code", "general"])
def test_each_default_set_has_one_document_four_answers_and_one_review(name):
    roles = load_roles()[name]
    assert sorted(role.kind for role in roles) == ["answer"] * 4 + ["document", "review"]
    assert len({role.instruction for role in roles}) == len({role.name for role in roles}) == 6
    assert all(role.instruction.count(".") == 1 and role.instruction.endswith(".") for role in roles)
    strongest = max(role.criticality for role in roles if role.kind == "answer")
    assert all(role.criticality < strongest for role in roles if role.kind != "answer")


def test_the_other_modules_can_use_them_and_prompts_are_short():
    for role in (role for roles in load_roles().values() for role in roles):
        assert Step(role.name, role.kind, role.instruction).kind == role.kind
        system, user = step_messages(TASK, role.name, role.kind, role.instruction)
        assert system["content"].startswith(f"You are the {role.name}. ")
        assert role.instruction in user["content"].splitlines()
        assert len(role.instruction) <= 125
        assert pickle.loads(pickle.dumps(role)) == role


@pytest.mark.parametrize("domain, name", [("arithmetic", "general"), ("mathematics", "mathematics"), ("code", "code")])
def test_roles_of_a_domain(domain, name):
    assert ROLE_SET[domain] == name
    assert roles_of(domain) == load_roles()[name]
    own = {name: (Role(**SOLVER),)}
    assert roles_of(domain, own) == own[name]


def test_every_domain_has_a_set():
    assert set(ROLE_SET) == set(DOMAINS)


def test_what_is_returned_is_the_callers_own():
    roles = load_roles()
    roles.clear()
    assert set(load_roles()) == set(ROLE_SET.values())


def test_own_file_may_leave_out_sets_and_is_read_again_after_a_change(tmp_path):
    path = written(tmp_path, {"sets": {"code": [SOLVER, REVIEWER]}})
    roles = load_roles(path)
    assert roles == {"code": (Role(**SOLVER), Role(**REVIEWER))} == load_roles(str(path))
    with pytest.raises(RoleError, match=r"has no set 'general', which arithmetic needs; it has code"):
        roles_of("arithmetic", roles)
    written(tmp_path, {"sets": {"code": [SOLVER]}})
    os.utime(path, ns=(1, 1))
    assert load_roles(path) == {"code": (Role(**SOLVER),)}


def test_limits_of_a_set(tmp_path):
    most = [{**SOLVER, "name": f"solver {i}"} for i in range(MOST_ROLES)]
    assert len(load_roles(written(tmp_path, {"sets": {"code": most}}))["code"]) == MOST_ROLES == 12
    path = written(tmp_path, {"sets": {"code": [*most, REVIEWER]}})
    os.utime(path, ns=(1, 1))
    with pytest.raises(RoleError, match="set code: 13 roles: expected a list of 1 to 12 roles"):
        load_roles(path)


WRONG = {
    "no mapping": ([1], r"expected a mapping with sets, found \[1\]"),
    "unknown key": ({"roles": {}}, "roles: unknown key; known are name, source, sets"),
    "no sets": ({"name": "mine"}, "sets = None: expected at least one of general, mathematics, code"),
    "empty": ({"sets": {}}, "sets = {}: expected at least one of"),
    "unknown set": ({"sets": {"history": [SOLVER]}}, "set 'history': unknown; known are general, mathematics, code"),
    "no roles": ({"sets": {"code": []}}, "set code: 0 roles: expected a list of 1 to 12 roles"),
    "no list": ({"sets": {"code": "solver"}}, "set code: 'solver': expected a list"),
    "no role": ({"sets": {"code": ["solver"]}}, "set code: role 1 = 'solver': expected a mapping with name, kind"),
    "no answer": ({"sets": {"code": [REVIEWER]}}, "set code: expected at least one role of kind 'answer'"),
    "twice": ({"sets": {"code": [SOLVER, dict(SOLVER)]}}, "role 'solver': name = 'solver': is used twice"),
    "field missing": ({"sets": {"code": [{"name": "solver", "kind": "answer", "criticality": 1}]}},
                      "role 'solver': instruction is missing"),
    "name missing": ({"sets": {"code": [{"kind": "answer"}]}}, "set code: role 1: name is missing"),
    "field unknown": ({"sets": {"code": [{**SOLVER, "llm": "x"}]}}, "role 'solver': llm: unknown key"),
    "kind": ({"sets": {"code": [{**SOLVER, "kind": "vote"}]}},
             "role 'solver': kind = 'vote': expected one of document, answer, review"),
    "kind of no text": ({"sets": {"code": [{**SOLVER, "kind": []}]}}, r"kind = \[\]: expected one of"),
    "two lines": ({"sets": {"code": [{**SOLVER, "instruction": "Solve.\nit"}]}}, "instruction = .*on one line"),
    "long": ({"sets": {"code": [{**SOLVER, "instruction": "x" * 301}]}}, "instruction = .*at most 300 characters"),
    "no name": ({"sets": {"code": [{**SOLVER, "name": " "}]}}, "name = ' ': expected printable text"),
    "name in capitals": ({"sets": {"code": [SOLVER, {**SOLVER, "name": "Solver"}]}},
                         "set code: role 'Solver': name = 'Solver': 'solver' reads the same; names differ by more"),
    "name in blanks": ({"sets": {"code": [{**SOLVER, "name": "the  solver"}, {**SOLVER, "name": " The solver "}]}},
                       "name = ' The solver ': 'the  solver' reads the same"),
    "critical": ({"sets": {"code": [{**SOLVER, "criticality": 1.2}]}}, "criticality = 1.2: expected a number from 0"),
    "critical word": ({"sets": {"code": [{**SOLVER, "criticality": "high"}]}}, "criticality = 'high': expected a numb"),
    "critical truth": ({"sets": {"code": [{**SOLVER, "criticality": True}]}}, "criticality = True: expected a number"),
    "no YAML": ("sets: [", "not readable as YAML"),
}


@pytest.mark.parametrize("content, message", WRONG.values(), ids=WRONG)
def test_a_wrong_file_gets_one_message_that_names_it(tmp_path, content, message):
    path = written(tmp_path, content)
    with pytest.raises(RoleError, match=message) as caught:
        load_roles(path)
    assert str(caught.value).startswith(str(path)) and "\n" not in str(caught.value)


def test_no_such_file_and_wrong_arguments():
    with pytest.raises(RoleError, match="no role file nobody; give a path ending in .yaml or one of: default"):
        load_roles("nobody")
    with pytest.raises(RoleError, match="domain = 'general': expected one of arithmetic, mathematics, code"):
        roles_of("general")
    with pytest.raises(RoleError, match="roles = 'default': expected what load_roles returns"):
        roles_of("code", "default")
