"""The threads that write a recording, and the two things they are asked for: to claim a call and to settle it.

All that waits is written in one transaction, and all transactions that wait share one flush to the disk, in a second
thread: neither an event loop nor a claim waits for the disk, and a reply is handed out when it is there.
A claim says that somebody makes a call: whoever else needs it waits. Claims belong to an owner (one writing thread),
who renews a lease; an owner whose process is gone, or whose lease has run out, loses them.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import os
import platform
import queue
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bamas_lite.llm import RunStopped
from bamas_lite.pool import ATOMS
from bamas_lite.recordings.store import (
    ANSWER_COLUMNS,
    CALL_COLUMNS,
    LEDGER_COLUMNS,
    Answer,
    connect,
    file_identity,
    told,
)

LEASE_S, RENEW_S = 20.0, 5.0
"""How long a claim outlives its last renewal where it cannot be seen that its process is gone, and how often it is
renewed."""

MOST_AT_ONCE = 512
"""Jobs of one transaction."""


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
        if self.cap is not None:
            spent, unconfirmed = amounts(connection, "spent", "unconfirmed")
            if spent + unconfirmed + call.worst > self.cap:
                raise SpendCapReached(self._reached(spent, unconfirmed))
            held = sum(int(text) for text, in connection.execute("SELECT held FROM claims"))
            if spent + unconfirmed + held + call.worst > self.cap:
                return False   # it may fit when the calls in flight have cost less than was held back for them
        owner.renew(connection)
        connection.execute("INSERT INTO claims VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                           (call.key, owner.name, call.number, str(call.worst), call.llm, call.model, call.role,
                            call.task_id))
        return True

    def _reached(self, spent: int, unconfirmed: int) -> str:
        besides = f", calls that broke off may have cost up to {usd(unconfirmed)} USD more" if unconfirmed else ""
        return (f"spend cap reached: the calls of this recording have cost {usd(spent)} USD{besides}, the cap is "
                f"{usd(self.cap)} USD, and the next call ({self.call.llm}, {self.call.role}) could cost up to "
                f"{usd(self.call.worst)} USD. What was answered is kept: start again with a higher spend_cap_usd to "
                "go on")


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
        call, answer = self.call, self.answer
        connection.execute("DELETE FROM claims WHERE key = ? AND owner = ? AND number = ?",
                           (call.key, owner.name, call.number))
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


def book(connection: sqlite3.Connection, *values: Any) -> None:
    """Add a row to the ledger (its columns after `time`), and to the totals."""
    *before, cost, unconfirmed, latency_s, finish_reason, status = values
    connection.execute(f"INSERT INTO ledger VALUES ({', '.join('?' * len(LEDGER_COLUMNS))})",
                       (time.time(), *before, str(cost), str(unconfirmed), latency_s, finish_reason, status))
    names = "spent", "unconfirmed", "paid_calls"
    added = cost, unconfirmed, status != "unconfirmed"
    for name, old, more in zip(names, amounts(connection, *names), added, strict=True):
        if more:
            connection.execute("UPDATE meta SET value = ? WHERE name = ?", (str(old + more), name))


def amounts(connection: sqlite3.Connection, *names: str) -> list[int]:
    """Whole numbers of the table meta."""
    return [int(connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()[0]) for name in names]


def usd(atoms: int) -> str:
    """Atoms in USD, to three digits."""
    return f"{atoms / ATOMS / 1e6:.3g}"


class Owner:
    """Who makes calls: this process, by the life of one writing thread."""

    def __init__(self) -> None:
        self.name, self.pid, self.machine = uuid.uuid4().hex, os.getpid(), _machine()

    def renew(self, connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO owners VALUES (?, ?, ?, ?) ON CONFLICT (owner) DO UPDATE SET "
                           "expires = excluded.expires", (self.name, self.machine, self.pid, time.time() + LEASE_S))

    def bury_others(self, connection: sqlite3.Connection) -> None:
        """Take the claims of owners that are gone: nobody knows whether their calls were billed."""
        for name, machine, pid, expires in connection.execute("SELECT * FROM owners").fetchall():
            if name != self.name and (expires < time.time() or (machine == self.machine and _is_gone(pid))):
                bury(connection, name)


def bury(connection: sqlite3.Connection, owner: str) -> None:
    """Remove an owner and its claims; what was held back for them counts as possibly billed."""
    for held, *who in connection.execute("SELECT held, llm, model, role, task_id FROM claims WHERE owner = ?",
                                         (owner,)).fetchall():
        book(connection, *who, None, None, None, None, 0, int(held), None, None, "unconfirmed")
    connection.execute("DELETE FROM claims WHERE owner = ?", (owner,))
    connection.execute("DELETE FROM owners WHERE owner = ?", (owner,))


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


def _is_gone(pid: int) -> bool:
    """Whether there is surely no process `pid` on this machine. (On Windows asking would end it.)"""
    if os.name != "posix":
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass
    return False


_STOP = object()


class Writer:
    """Writes a recording from a thread of its own, which starts with the first job."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()
        self._jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, job: Claim | Settle, done: Callable[[Any], None]) -> None:
        """Have a job written; `done` is called in the thread, with the outcome or a RunStopped."""
        with self._lock:
            if self._thread is None:
                self._jobs = queue.SimpleQueue()
                self._thread = threading.Thread(target=_Thread(self._path, self._jobs).run, daemon=True,
                                                name=f"recording {self._path.name}")
                self._thread.start()
            self._jobs.put((job, done))

    def close(self) -> None:
        """Have everything written that waits, and end the thread."""
        with self._lock:
            thread, self._thread = self._thread, None
            self._jobs.put(_STOP)
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    async def write(self, job: Claim | Settle) -> Any:
        """The outcome of a job, which is done also if this is canceled. Raises RecordingError, SpendCapReached."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()

        def done(outcome: Any) -> None:
            try:
                loop.call_soon_threadsafe(_resolve, future, outcome)
            except RuntimeError:   # the loop is closed: nobody waits any more
                pass

        self.submit(job, done)
        return await future


def _resolve(future: asyncio.Future[Any], outcome: Any) -> None:
    if future.done():
        return
    if isinstance(outcome, RunStopped):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


class _Thread:
    """What the writing thread does; it knows nothing of its Writer, which can be forgotten while it runs."""

    def __init__(self, path: Path, jobs: queue.SimpleQueue[Any]) -> None:
        self._path, self._jobs, self._owner = path, jobs, Owner()
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._unsaved: list[Settle] = []   # answers that were paid and could not be written
        self._written: queue.SimpleQueue[Any] = queue.SimpleQueue()   # outcomes that wait for the disk
        self._flusher: threading.Thread | None = None
        self._wal = -1

    def run(self) -> None:
        owns, going = False, True
        while going:
            batch = []
            try:
                batch.append(self._jobs.get(timeout=RENEW_S if owns else None))
                while len(batch) < MOST_AT_ONCE:
                    batch.append(self._jobs.get_nowait())
            except queue.Empty:
                pass
            going = _STOP not in batch
            batch = [job for job in batch if job is not _STOP]
            written = []
            for (job, done), outcome in zip(batch, self._write([job for job, _ in batch], renew=owns), strict=True):
                if job.durable and not isinstance(outcome, RunStopped):
                    written.append((done, outcome))
                else:
                    done(outcome)
            if written:
                self._written.put(written)
            owns = self._owns()
        self._end()

    def _flush(self) -> None:
        """Bring what was written to the disk, then hand it out: the body of the second thread."""
        going = True
        while going:
            some = [self._written.get()]
            while not self._written.empty():
                some.append(self._written.get())
            going = _STOP not in some
            fault = None
            try:
                getattr(os, "fdatasync", os.fsync)(self._wal)
            except OSError as error:
                fault = error
            for done, outcome in (pair for written in some if written is not _STOP for pair in written):
                done(outcome if fault is None else told(self._path, fault))

    def _write(self, jobs: list[Claim | Settle], renew: bool) -> list[Any]:
        """The outcomes of jobs: all in one transaction or, where that fails, as many as can be written."""
        try:
            return self._transaction(jobs, renew)
        except Exception as error:   # also what is no fault of SQLite: nobody may wait for ever
            outcomes = []
            for job in jobs:
                try:
                    if len(jobs) == 1 or getattr(error, "sqlite_errorname", "").startswith("SQLITE_BUSY"):
                        raise error
                    outcomes += self._transaction([job], False)
                except Exception as fault:
                    if isinstance(job, Settle):   # written before anything else as soon as that is possible
                        self._unsaved.append(job)
                    paid = sum(kept.cost is not None for kept in self._unsaved)
                    outcomes.append(told(self._path, fault, paid))
            return outcomes

    def _transaction(self, jobs: list[Claim | Settle], renew: bool) -> list[Any]:
        self._open()
        jobs, unsaved = [*self._unsaved, *jobs], len(self._unsaved)
        connection, outcomes = self._connection, []
        try:
            connection.execute("BEGIN IMMEDIATE")
            if renew:
                self._owner.renew(connection)
            for job in jobs:
                try:
                    outcomes.append(job.write(connection, self._owner))
                except RunStopped as stop:
                    outcomes.append(stop)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        del self._unsaved[:unsaved]
        return outcomes[unsaved:]

    def _open(self) -> None:
        """Open the file, and make sure that it is still there: SQLite would write into a deleted one."""
        if self._connection is None:
            connection = connect(self._path, write=True)
            try:
                connection.execute("PRAGMA synchronous = NORMAL")   # the flush of a commit is ours
                connection.execute("SELECT count(*) FROM meta").fetchone()   # from here the -wal file is there
                self._wal, self._file = self._open_log(), file_identity(self._path)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
            self._flusher = threading.Thread(target=self._flush, daemon=True, name=f"flush {self._path.name}")
            self._flusher.start()
        if self._file is None or file_identity(self._path) != self._file:
            raise FileNotFoundError("was deleted or replaced while it was in use")

    def _open_log(self) -> int:
        """The -wal file, to flush it. Where folders can be flushed, its name is brought to the disk too."""
        if os.name == "posix":
            folder = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        return os.open(f"{self._path}-wal", os.O_RDWR | getattr(os, "O_BINARY", 0))

    def _owns(self) -> bool:
        try:
            return self._connection is not None and self._connection.execute(
                "SELECT 1 FROM claims WHERE owner = ?", (self._owner.name,)).fetchone() is not None
        except sqlite3.Error:
            return True

    def _end(self) -> None:
        """Give up claims that are left, and close; the last connection folds the -wal file into the recording."""
        if self._connection is None:
            return
        self._written.put(_STOP)
        self._flusher.join()
        os.close(self._wal)
        try:
            self._connection.execute("PRAGMA synchronous = FULL")
            if self._unsaved:
                self._transaction([], False)
            self._connection.execute("BEGIN IMMEDIATE")
            bury(self._connection, self._owner.name)
            self._connection.execute("COMMIT")
        except (sqlite3.Error, OSError):
            pass   # whoever comes next finds the owner gone
        finally:
            self._connection.close()
