"""The threads that write a recording: they claim calls and settle them (see jobs.py).

All that waits is written in one transaction, and all transactions that wait share one flush to the disk, in a second
thread: neither an event loop nor a claim waits for the disk, and a reply is handed out when it is there.
A claim says that somebody makes a call: whoever else needs it waits. Claims belong to an owner (one writing thread),
who renews a lease; an owner whose process is gone loses them (see owners.py). Paid answers for which there is no room
are put aside and saved before anything else (see aside.py).
"""

from __future__ import annotations

import asyncio
import errno
import os
import queue
import sqlite3
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bamas_lite.llm import RunStopped
from bamas_lite.recordings import aside
from bamas_lite.recordings.jobs import Claim, Hold, Settle
from bamas_lite.recordings.owners import RENEW_S, Owner, bury
from bamas_lite.recordings.store import connect, errorname, file_identity, told

MOST_AT_ONCE = 512
"""Jobs of one transaction."""


_STOP = object()


class Writer:
    """Writes a recording from a thread of its own, which starts with the first job."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()
        self._jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, job: Claim | Hold | Settle, done: Callable[[Any], None]) -> None:
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

    async def write(self, job: Claim | Hold | Settle) -> Any:
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
        self._path, self._jobs, self._owner = path, jobs, Owner(path)
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._unsaved: list[Settle] = []   # what could neither be written nor put aside
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
                _sync(self._wal)
            except OSError as error:
                fault = error
            for done, outcome in (pair for written in some if written is not _STOP for pair in written):
                done(outcome if fault is None else told(self._path, fault))

    def _write(self, jobs: list[Claim | Hold | Settle], renew: bool) -> list[Any]:
        """The outcomes of jobs: all in one transaction or, where that fails, as many as can be written."""
        try:
            return self._transaction(jobs, renew)
        except Exception as error:   # also what is no fault of SQLite: nobody may wait for ever
            outcomes: list[Any] = []
            for job in jobs:
                try:
                    if len(jobs) == 1 or errorname(error).startswith("SQLITE_BUSY"):
                        raise error
                    outcomes += self._transaction([job], False)
                except Exception as fault:
                    if isinstance(job, Settle) and not (job.durable and aside.put(self._path, job, self._owner)):
                        self._unsaved.append(job)
                    outcomes.append(_Failed(fault))
            return [told(self._path, outcome.fault, self._kept()) if isinstance(outcome, _Failed) else outcome
                    for outcome in outcomes]

    def _kept(self) -> str:
        """What became of the answers that are not in the recording."""
        folder, words = aside.folder_of(self._path), "; what was saved before is kept"
        if put := sum(1 for _ in folder.glob("*.paid.json")):
            words += f"; {put} paid answers are kept in {folder} and saved when this recording is used next"
        if held := sum(job.cost is not None for job in self._unsaved):
            words += f"; {held} paid answers are kept in memory only and saved when this process goes on"
        return words

    def _transaction(self, jobs: list[Claim | Hold | Settle], renew: bool) -> list[Any]:
        self._open()
        put = aside.found(self._path)
        before = [*put, *self._unsaved]
        connection, outcomes = self._connection, []
        try:
            connection.execute("BEGIN IMMEDIATE")
            if renew:
                self._owner.renew(connection)
            for job in [*before, *jobs]:
                try:
                    outcomes.append(job.write(connection, self._owner))
                except RunStopped as stop:
                    outcomes.append(stop)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        self._unsaved.clear()
        if put:
            _sync(self._wal)
            aside.remove(put)
        return outcomes[len(before):]

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
            raise FileNotFoundError(errno.ENOENT, "was deleted or replaced while it was in use")

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
        if self._connection is not None:
            self._written.put(_STOP)
            self._flusher.join()
            try:
                self._connection.execute("PRAGMA synchronous = FULL")
                if self._unsaved or aside.folder_of(self._path).exists():
                    self._transaction([], False)
                self._connection.execute("BEGIN IMMEDIATE")
                bury(self._connection, self._owner.name)
                self._connection.execute("COMMIT")
            except Exception:   # whoever comes next finds the owner gone, and says what is wrong with the file
                pass
            finally:
                self._connection.close()
                os.close(self._wal)
        self._owner.end()
        lost = [job for job in self._unsaved if job.durable and not aside.put(self._path, job, self._owner)]
        if lost:
            warnings.warn(f"recording {self._path}: {len(lost)} paid answers could not be saved, neither in it nor in "
                          f"{aside.folder_of(self._path)}; they are lost", RuntimeWarning, stacklevel=1)


class _Failed:
    """A job that could not be written."""

    def __init__(self, fault: Exception) -> None:
        self.fault = fault


def _sync(file: int) -> None:
    getattr(os, "fdatasync", os.fsync)(file)
