"""Arguments that several stages take, read strictly: each fault is one clear message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bamas_lite.agentbalance.profiles import Profile, ProfileError
from bamas_lite.inputs import exact, shown, whole
from bamas_lite.tasks import Task, check_task


def check_profiles(profiles: Any) -> None:
    """Raise ProfileError unless `profiles` is a list (or tuple) of at least one Profile."""
    if not isinstance(profiles, Sequence) or not profiles or not all(isinstance(p, Profile) for p in profiles):
        raise ProfileError(f"profiles = {shown(profiles)}: expected a list of at least one Profile")


def check_tasks(tasks: Any) -> None:
    """Raise ValueError unless `tasks` is a list (or tuple) of at least one Task, all of which can be graded."""
    if not isinstance(tasks, Sequence) or not tasks or not all(isinstance(task, Task) for task in tasks):
        raise ValueError(f"tasks = {shown(tasks)}: expected a list of at least one Task")
    for task in tasks:
        check_task(task)


def random_seed(value: Any) -> int:
    """`value` as a seed that torch takes too: a whole number of at least 0 and at most 63 bits; else ValueError."""
    return whole(value, "seed", 0, 2**63 - 1)


def number(value: Any, what: str, most: float) -> float:
    """`value` as a float; ValueError unless it is a number from 0 to `most`."""
    try:
        amount = exact(value, what)
    except ValueError:
        amount = -1
    if not 0 <= amount <= most:
        raise ValueError(f"{what} = {shown(value)}: expected a number from 0 to {most:g}")
    return float(amount)
