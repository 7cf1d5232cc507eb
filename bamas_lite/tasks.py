"""Tasks: our own task sets and loaders for real benchmarks."""

from __future__ import annotations

from dataclasses import dataclass

DOMAINS = ("arithmetic", "mathematics", "code")
"""Word problems with a number (as GSM8K), problems with a LaTeX answer (as MATH), Python functions (as MBPP)."""


@dataclass(frozen=True, slots=True)
class Task:
    """One task and its reference answer.

    Attributes:
        task_id: unique, for example "word_problems/train/0007" or "gsm8k/test/12".
        domain: one of DOMAINS.
        level: difficulty, from 1: number of steps (arithmetic), level 1-5 (mathematics), 1-3 (code).
        question: the text that agents see; for code it names the function and shows example calls.
        reference: the right answer: a number, LaTeX, or a program that passes the tests.
        split: "train" or "test".
        tests: for code: hidden assert statements, run after `setup` and the program.
        setup: for code: statements that the tests need.
        entry_point: for code: the name of the function to write.
        vote_inputs: for code: call expressions on inputs that the question shows; Star compares their outputs.
        wrong: wrong answers (or programs) that are verified to fail grading; read by the simulator only.
        source: the task set it is from, for labels.
    """

    task_id: str
    domain: str
    level: int
    question: str
    reference: str
    split: str = "test"
    tests: tuple[str, ...] = ()
    setup: str = ""
    entry_point: str = ""
    vote_inputs: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    source: str = "own"
