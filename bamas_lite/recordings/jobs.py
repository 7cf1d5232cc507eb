"""What a recording is asked to write: to claim a call, to hold back more for it, and to settle it."""

from __future__ import annotations

import itertools
import shutil
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path

from bamas_lite.llm import RunStopped
from bamas_lite.recordings.ledger import amounts, book, usd
from bamas_lite.recordings.owners import Owner
from bamas_lite.recordings.store import ANSWER_COLUMNS, CALL_COLUMNS, Answer, RecordingError

LEAST_FREE = 32 * 2**20
"""Bytes that the disk must have free for another call: answers of the calls in flight must find room."""


class SpendCapReached(RunStopped):
    """The next call could cost more than the spend cap leaves; the message says how to go on."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call to make: key, canonical request, the most it can cost (`worst`, atoms), and a number of its own."""

    key: bytes
    llm: str
    model: str
    seed: int
    request: str
    role: str
    task_id: str | None
    worst: int
    number: int = field(default_factory=itertools.count().__next__)


@dataclass(frozen=True, slots=True)
class Claim:
    """Ask to make a call. The outcome is what the call came to, if it was made; True: make it; False: ask again."""

    call: Call
    cap: int | None
    durable = False

    def write(self, connection: sqlite3.Connection, owner: Owner) -> Answer | bool:
        call = self.call
        columns = connection.execute(f"SELECT {ANSWER_COLUMNS} FROM calls WHERE key = ?", (call.key,)).fetchone()
        if columns and (answer := Answer.of_columns(*columns)).final:
            return answer
        owner.bury_others(connection)
        if connection.execute("SELECT 1 FROM claims WHERE key = ?", (call.key,)).fetchone():
            return False
        what = f"the next call ({call.llm}, {call.role}) could cost up to {usd(call.worst)} USD"
        if not _fits(connection, self.cap, call.worst, 0, what):
            return False   # it may fit when the calls in flight have cost less than was held back for them
        _require_room(owner.path)
        owner.renew(connection)
        connection.execute("INSERT INTO claims VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                           (call.key, owner.name, call.number, str(call.worst), call.llm, call.model, call.role,
                            call.task_id))
        return True


@dataclass(frozen=True, slots=True)
class Hold:
    """Ask for another attempt at a claimed call, which can cost `atoms` besides those that may have been billed.

    The outcome: True: make it; False: ask again, as calls in flight hold what is needed. The `last` time that raises
    SpendCapReached.
    """

    call: Call
    atoms: int
    cap: int | None
    last: bool = False
    durable = False

    def write(self, connection: sqlite3.Connection, owner: Owner) -> bool:
        call = self.call
        claim = call.key, owner.name, call.number
        found = connection.execute(f"SELECT held FROM claims WHERE {_MINE}", claim).fetchone()
        if found is None:
            raise RecordingError(f"recording {owner.path}: this process stood still for so long that another one took "
                                 f"its call ({call.llm}, {call.role}); start again")
        held = int(found[0])
        what = (f"a call ({call.llm}, {call.role}), attempts of which broke off, could cost up to "
                f"{usd(held + self.atoms)} USD if it were attempted once more")
        if not _fits(connection, self.cap, held + self.atoms, held, what, self.last):
            return False
        connection.execute(f"UPDATE claims SET held = ? WHERE {_MINE}", (str(held + self.atoms), *claim))
        return True


@dataclass(frozen=True, slots=True)
class Settle:
    """Give a claim back. `answer`: what to record (None: nothing); `cost`: atoms that were billed (None: none);
    `unconfirmed`: atoms that may have been billed besides. The outcome is what is recorded now."""

    call: Call
    answer: Answer | None
    cost: int | None = None
    unconfirmed: int = 0

    @property
    def durable(self) -> bool:
        return self.answer is not None or bool(self.unconfirmed)

    def write(self, connection: sqlite3.Connection, owner: Owner) -> Answer | None:
        self.release(connection, owner.name)
        return self.book(connection)

    def release(self, connection: sqlite3.Connection, owner: str) -> None:
        connection.execute(f"DELETE FROM claims WHERE {_MINE}", (self.call.key, owner, self.call.number))

    def book(self, connection: sqlite3.Connection) -> Answer | None:
        call, answer = self.call, self.answer
        if answer is not None:
            marks = ", ".join("?" * (1 + len(CALL_COLUMNS)))
            # only a failure that was not billed is replaced
            connection.execute("DELETE FROM calls WHERE key = ? AND error IS NOT NULL AND prompt_tokens IS NULL",
                               (call.key,))
            connection.execute(f"INSERT OR IGNORE INTO calls VALUES ({marks})",
                               (call.key, call.llm, call.seed, call.request, *answer.columns()))
        if self.cost is not None or self.unconfirmed:
            usage = answer and answer.usage
            tokens = (None,) * 4 if not usage else (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens,
                                                    usage.reasoning_tokens)
            status = "unconfirmed" if self.cost is None else "failed" if answer.error is not None else \
                "ok" if usage else "usage missing"
            book(connection, call.llm, call.model, call.role, call.task_id, *tokens, self.cost or 0, self.unconfirmed,
                 answer and answer.latency_s, answer and answer.finish_reason, status)
        return answer


_MINE = "key = ? AND owner = ? AND number = ?"


def _fits(connection: sqlite3.Connection, cap: int | None, wanted: int, has: int, what: str,
          last: bool = False) -> bool:
    """Whether `wanted` atoms can be held back for a call that holds `has` of them.

    Raises:
        SpendCapReached: not even (or, the `last` time: not now) when all other calls in flight cost nothing.
    """
    spent, unconfirmed = amounts(connection, "spent", "unconfirmed")   # a damaged file is found before a call is paid
    if cap is None:
        return True
    held = sum(int(text) for text, in connection.execute("SELECT held FROM claims")) - has
    fits = spent + unconfirmed + held + wanted <= cap
    if spent + unconfirmed + wanted > cap or last and not fits:
        besides = f", calls that broke off may have cost up to {usd(unconfirmed)} USD more" if unconfirmed else ""
        besides += f", calls in flight may cost up to {usd(held)} USD" if last and held else ""
        raise SpendCapReached(f"spend cap reached: the calls of this recording have cost {usd(spent)} USD{besides}, "
                              f"the cap is {usd(cap)} USD, and {what}. What was answered is kept: start again with a "
                              "higher spend_cap_usd to go on")
    return fits


def _require_room(path: Path) -> None:
    """Raise RecordingError where the disk is so full that a paid answer might find no room."""
    try:
        free = shutil.disk_usage(path.parent).free
    except OSError:
        return
    if free < LEAST_FREE:
        raise RecordingError(f"recording {path}: its disk is full but for {free / 2**20:.0f} MB; no call is made with "
                             f"less than {LEAST_FREE >> 20} MB, so that what is paid can be saved: make room, then "
                             "start again")
