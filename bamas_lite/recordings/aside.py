"""Paid answers that a recording cannot take (its disk is full, its file may not grow): small files in a folder beside.

One file for each, so that processes do not disturb each other. Whoever can write the recording next saves them first.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from dataclasses import asdict, dataclass
from pathlib import Path

from bamas_lite.recordings.jobs import Call, Settle
from bamas_lite.recordings.owners import Owner
from bamas_lite.recordings.store import Answer, reading
from bamas_lite.trajectory_log import write_whole


@dataclass(frozen=True, slots=True)
class Aside:
    """What was put aside: the file, what it settles, and whose claim that was."""

    file: Path
    settle: Settle
    owner: str

    def write(self, connection: sqlite3.Connection, _: Owner) -> None:
        """Save it, once: another process, or a killed one, may have saved it before."""
        self.settle.release(connection, self.owner)
        known = connection.execute("SELECT 1 FROM calls WHERE key = ? AND (error IS NULL OR prompt_tokens IS NOT NULL)",
                                   (self.settle.call.key,)).fetchone()
        if self.settle.answer is None or not known:
            self.settle.book(connection)


def folder_of(path: Path) -> Path:
    """Where the answers wait that the recording `path` could not take."""
    return Path(f"{path}-unsaved")


def put(path: Path, settle: Settle, owner: Owner) -> bool:
    """Keep beside the recording what it cannot take; False: that is not possible either."""
    file = folder_of(path) / f"{owner.name}.{settle.call.number}.{'doubtful' if settle.cost is None else 'paid'}.json"
    call = {**asdict(settle.call), "key": settle.call.key.hex()}
    text = json.dumps({"owner": owner.name, "call": call, "answer": settle.answer and settle.answer.columns(),
                       "cost": settle.cost, "unconfirmed": settle.unconfirmed})
    try:
        file.parent.mkdir(exist_ok=True)
        write_whole(file, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    except OSError:
        with contextlib.suppress(OSError):
            for half in file.parent.glob(f"{file.name}.*.tmp"):
                half.unlink()
            file.parent.rmdir()
        return False
    return True


def found(path: Path) -> list[Aside]:
    """All that waits beside a recording. Raises RecordingError where a file of these is damaged."""
    some = []
    for file in sorted(folder_of(path).glob("*.json")) if folder_of(path).exists() else ():
        with reading(file), contextlib.suppress(FileNotFoundError):   # another process has just saved it
            kept = json.loads(file.read_text("utf-8"))
            call = Call(**{**kept["call"], "key": bytes.fromhex(kept["call"]["key"])})
            answer = None if kept["answer"] is None else Answer.of_columns(*kept["answer"])
            some.append(Aside(file, Settle(call, answer, kept["cost"], kept["unconfirmed"]), kept["owner"]))
    return some


def remove(some: list[Aside]) -> None:
    """Forget what is saved."""
    with contextlib.suppress(OSError):
        for kept in some:
            kept.file.unlink(missing_ok=True)
        if some:
            some[0].file.parent.rmdir()   # unless more has come
