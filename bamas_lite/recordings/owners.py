"""Who makes the calls that are claimed, and when such an owner has lost its claims."""

from __future__ import annotations

import hashlib
import os
import platform
import sqlite3
import time
import uuid
from pathlib import Path

from bamas_lite.recordings.ledger import book

LEASE_S, RENEW_S = 20.0, 5.0
"""How long a claim outlives its last renewal where nobody can see whether its process lives (another machine or
container, Windows), and how often it is renewed."""

SILENT_S = 3600.0
"""How long a process of this machine that lives, but renews nothing, keeps its claims: it may have been stopped
(Ctrl-Z, a debugger) while its calls are in flight."""

_living: set[str] = set()
"""Owners of this process."""


class Owner:
    """Who makes calls: this process, by the life of one writing thread. `path` is the recording.

    Its name ends with the time at which the process started, where that can be known: process ids are used again.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.pid, self.machine = path, os.getpid(), _machine()
        self.name = f"{uuid.uuid4().hex}.{_process(self.pid)[1]}"
        _living.add(self.name)

    def end(self) -> None:
        """Nobody writes under this name any more."""
        _living.discard(self.name)

    def renew(self, connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO owners VALUES (?, ?, ?, ?) ON CONFLICT (owner) DO UPDATE SET "
                           "expires = excluded.expires", (self.name, self.machine, self.pid, time.time() + LEASE_S))

    def bury_others(self, connection: sqlite3.Connection) -> None:
        """Take the claims of owners that are gone: nobody knows whether their calls were billed."""
        for name, machine, pid, expires in connection.execute("SELECT * FROM owners").fetchall():
            if name != self.name and self._has_lost(name, machine, pid, time.time() - expires):
                bury(connection, name)

    def _has_lost(self, name: str, machine: str, pid: int, late_s: float) -> bool:
        if machine != self.machine:
            return late_s > 0
        gone = name not in _living if pid == self.pid else is_gone(pid, name.partition(".")[2])
        return late_s > (0 if gone is None else SILENT_S) or bool(gone)


def bury(connection: sqlite3.Connection, owner: str) -> None:
    """Remove an owner and its claims; what was held back for them counts as possibly billed."""
    for held, *who in connection.execute("SELECT held, llm, model, role, task_id FROM claims WHERE owner = ?",
                                         (owner,)).fetchall():
        book(connection, *who, None, None, None, None, 0, int(held), None, None, "unconfirmed")
    connection.execute("DELETE FROM claims WHERE owner = ?", (owner,))
    connection.execute("DELETE FROM owners WHERE owner = ?", (owner,))


def is_gone(pid: int, started: str = "") -> bool | None:
    """Whether process `pid` of this machine, which began at `started`, has ended; None: that cannot be told here."""
    if os.name != "posix":   # on Windows asking would end it
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass
    state, now = _process(pid)
    return state in ("Z", "X") or bool(started and now and started != now)


def _process(pid: int) -> tuple[str, str]:
    """State of a process and when it began (since the start of the machine); empty where there is no /proc."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        return words[0], words[19]
    except (OSError, IndexError):
        return "", ""


def _machine() -> str:
    """A mark of this run of this machine, from which its name cannot be read."""
    parts = [platform.node()]
    for read in (lambda: Path("/proc/sys/kernel/random/boot_id").read_text("ascii"),
                 lambda: os.readlink("/proc/self/ns/pid")):   # process ids mean nothing in another container
        try:
            parts.append(read())
        except OSError:
            pass
    return hashlib.sha256("\n".join(parts).encode("utf-8", "replace")).hexdigest()[:16]
