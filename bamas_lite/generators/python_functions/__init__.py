"""Our own task set of Python functions: parametric families, hidden asserts, and wrong programs that were run.

A task is one family with one parameter setting. The settings of a family are dealt once and for all to the splits, so
that a family may occur in both, but never the same question. The hidden asserts are chosen to tell the reference from
its mutants and from the same family with other parameters.
"""

from __future__ import annotations

from itertools import chain, islice, zip_longest

import numpy as np

from bamas_lite.generators.common import SPLITS, split_generator
from bamas_lite.generators.python_functions import further, level1, level2, level3
from bamas_lite.generators.python_functions.family import Family, Parameters
from bamas_lite.generators.python_functions.running import Outcome, observe
from bamas_lite.mutants import mutants
from bamas_lite.tasks import Task

NAME = "python_functions"

FAMILIES: tuple[Family, ...] = level1.FAMILIES + level2.FAMILIES + level3.FAMILIES + further.FAMILIES

LATER = 5
"""Rounds of dealing that the families of `further` sit out: 80 tasks a level and split do not depend on them."""

DRAWS, CANDIDATES, SIBLINGS = 24, 40, 8
"""Per task: ordinary calls drawn, mutants tried, other settings of the family that the asserts must tell apart."""

HIDDEN, WRONG = 8, 5
"""Per task: hidden asserts and wrong programs."""


def generate(n: int, seed: int, split: str = "test") -> list[Task]:
    """`n` tasks, the levels 1, 2, 3 in turn and within a level the families in turn; the same for the same arguments.

    Raises:
        ValueError: an unknown split, a negative n or seed, or more tasks than there are parameter settings.
    """
    rng = split_generator(NAME, n, seed, split)
    plan = _settings(split)
    if n > len(plan):
        raise ValueError(f"n = {n}: expected at most {len(plan)}, the number of different {split} tasks")
    return [_task(family, setting, child, f"{NAME}/{split}/{i:04d}", split)
            for i, ((family, setting), child) in enumerate(zip(plan, rng.spawn(n), strict=False))]


def _settings(split: str) -> list[tuple[Family, Parameters]]:
    """All (family, setting) of a split in the order in which they are used."""
    by_level: dict[int, list[list[tuple[Family, Parameters] | None]]] = {1: [], 2: [], 3: []}
    for number, family in enumerate(FAMILIES):
        order = np.random.default_rng(number).permutation(len(family.grid))  # not by the seed: splits never meet
        waits = [None] * (LATER if family in further.FAMILIES else 0)
        by_level[family.level].append(
            waits + [(family, family.grid[i]) for i in order[SPLITS.index(split)::len(SPLITS)]])
    turns = [[pair for pair in chain.from_iterable(zip_longest(*families)) if pair] for families in by_level.values()]
    return list(chain.from_iterable(zip(*turns, strict=False)))  # ends with the shortest level: levels stay balanced


def _task(family: Family, setting: Parameters, rng: np.random.Generator, task_id: str, split: str) -> Task:
    program = family.program(setting)
    edges = list(dict.fromkeys(family.call(arguments) for arguments in family.edges(setting)))
    drawn = (family.call(family.draw(rng, setting)) for _ in range(DRAWS))
    ordinary = [call for call in dict.fromkeys(drawn) if call not in edges]
    calls = edges + ordinary
    right = _run(program, calls)
    if right is None or (broken := [call for call in calls if not right[call].ok]):
        raise RuntimeError(f"{family.name} {setting}: the reference fails on {broken if right else 'endless calls'}")

    seen = {text: _run(text, calls) for text in islice(mutants(program, rng), CANDIDATES)}
    seen = {text: outcomes for text, outcomes in seen.items() if outcomes is not None}
    others = [family.program(family.grid[i]) for i in rng.permutation(len(family.grid)) if family.grid[i] != setting]
    siblings = {text: outcomes for text in others[:SIBLINGS] if (outcomes := _run(text, calls)) is not None}
    caught_by = {text: {call for call in calls if not outcomes[call].equals(right[call])}
                 for text, outcomes in (seen | siblings).items()}

    examples = _examples(ordinary, right, list(caught_by.values()))
    hidden = _hidden(edges, [call for call in ordinary if call not in examples], list(caught_by.values()))
    failing = {text: outcomes for text, outcomes in seen.items() if caught_by[text] & set(hidden)}
    shown = "\n".join(f"{call} returns {right[call].text}" for call in examples)
    return Task(
        task_id=task_id, domain="code", level=family.level, split=split, entry_point=family.name, reference=program,
        question=f"{family.describe(setting)}\nExamples:\n{shown}", vote_inputs=tuple(examples),
        tests=tuple(f"assert {call} == {right[call].text}" for call in hidden),
        wrong=_wrong(failing, caught_by, hidden, examples), source=NAME)


def _run(program: str, calls: list[str]) -> dict[str, Outcome] | None:
    outcomes = observe(program, calls)
    return None if outcomes is None else dict(zip(calls, outcomes, strict=True))


def _examples(ordinary: list[str], right: dict[str, Outcome], caught_by: list[set[str]]) -> list[str]:
    """Calls that say much: unlike results, the first of them not empty, that tell most wrong programs apart."""
    first = max(ordinary, key=lambda call: (bool(right[call].value), sum(call in catching for catching in caught_by)))
    missed = [catching for catching in caught_by if first not in catching]
    second = max((call for call in ordinary if call != first), key=lambda call: (
        right[call].text != right[first].text, sum(call in catching for catching in missed)))
    return [first, second]


def _hidden(edges: list[str], ordinary: list[str], caught_by: list[set[str]]) -> list[str]:
    """All edges, then each time the call that catches most of the wrong programs that nothing has caught so far."""
    chosen = list(edges)
    while len(chosen) < HIDDEN and (rest := [call for call in ordinary if call not in chosen]):
        missed = [catching for catching in caught_by if not catching & set(chosen)] or caught_by
        chosen.append(max(rest, key=lambda call: sum(call in catching for catching in missed)))  # noqa: B023
    return chosen


def _wrong(failing: dict[str, dict[str, Outcome]], caught_by: dict[str, set[str]], hidden: list[str],
           examples: list[str]) -> tuple[str, ...]:
    """Choose wrong programs, the most tempting first: it returns a value on every call and fails few asserts.

    They are as unlike in what they return as can be: on the examples, else at least on the asserts, else not at all.
    """

    def results(text: str, calls: list[str]) -> tuple[str, ...]:
        return tuple(failing[text][call].text for call in calls)

    def crude(text: str) -> bool:
        outcomes = [failing[text][call] for call in hidden + examples]
        return not all(outcome.ok for outcome in outcomes) or all(outcome.value is None for outcome in outcomes)

    def tempting(text: str) -> tuple[bool, int]:
        return crude(text), len(caught_by[text] & set(hidden))

    chosen: list[str] = []
    for calls in (examples, hidden, []):
        for text in sorted(failing, key=tempting):
            taken = {results(other, calls) for other in chosen} if calls else set()
            if len(chosen) < WRONG and text not in chosen and results(text, calls) not in taken and not (
                    crude(text) and calls is examples):
                chosen.append(text)
    return tuple(sorted(chosen, key=tempting))
