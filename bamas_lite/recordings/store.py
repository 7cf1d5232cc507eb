"""The SQLite file of a recording: its tables, opening it, and looking up what was answered.

Tables: `calls` holds what requests came to (by key), `claims` and `owners` which calls are in flight and who makes
them, `ledger` each call that was paid or may have been, `meta` the format version, how the recording was made, and the
totals. Amounts are whole numbers of atoms (1e-18 u$) as text: a 64-bit integer would end at 9 u$.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bamas_lite.inputs import shown
from bamas_lite.llm import CallError, Reply, RunStopped, Usage, billable

VERSION = 1
"""Of the file format, in SQLite and in parquet."""

BUSY_S = 30.0
"""How long another program may lock the file before the run stops."""

CALL_COLUMNS = ("llm", "seed", "request", "text", "prompt_tokens", "completion_tokens", "cached_tokens",
                "reasoning_tokens", "latency_s", "finish_reason", "error")
LEDGER_COLUMNS = ("time", "llm", "model", "role", "task_id", "prompt_tokens", "completion_tokens", "cached_tokens",
                  "reasoning_tokens", "cost", "unconfirmed", "latency_s", "finish_reason", "status")
ANSWER_COLUMNS = ", ".join(CALL_COLUMNS[3:])

_TABLES = f"""
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE calls (key BLOB PRIMARY KEY, llm TEXT NOT NULL, seed INTEGER NOT NULL, request TEXT NOT NULL,
    text TEXT NOT NULL, prompt_tokens INTEGER, completion_tokens INTEGER, cached_tokens INTEGER,
    reasoning_tokens INTEGER, latency_s REAL NOT NULL, finish_reason TEXT NOT NULL, error TEXT);
CREATE INDEX calls_by_llm ON calls (llm);
CREATE TABLE owners (owner TEXT PRIMARY KEY, machine TEXT NOT NULL, pid INTEGER NOT NULL, expires REAL NOT NULL);
CREATE TABLE claims (key BLOB PRIMARY KEY, owner TEXT NOT NULL, number INTEGER NOT NULL, held TEXT NOT NULL,
    llm TEXT, model TEXT, role TEXT, task_id TEXT);
CREATE TABLE ledger ({", ".join(LEDGER_COLUMNS)});
"""
_TOTALS = {"spent": "0", "unconfirmed": "0", "paid_calls": "0"}


class RecordingError(RunStopped):
    """A recording that cannot be read or written; the message names the file and what to do."""


def request_text(request: dict[str, Any]) -> str:
    """A request as canonical JSON (plain ASCII): what is recorded, and a part of the key."""
    return json.dumps(request, sort_keys=True, separators=(",", ":"))


def key_of(llm: str, seed: int, request: str) -> bytes:
    """The key of a call: SHA-256 of seed, name of the LLM and canonical request."""
    return hashlib.sha256(f"{seed}\n{llm}\n{request}".encode()).digest()


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request came to: a reply, or (`error` is its message) a call that failed for good.

    `usage` is None where the provider named none: for a failure that means that nothing was billed.
    """

    text: str
    usage: Usage | None
    latency_s: float
    finish_reason: str
    error: str | None = None

    @classmethod
    def of(cls, reply: Reply) -> Answer:
        """A reply of any backend in the form in which it is stored: an episode books both alike."""
        text = reply.text
        if text is not None and not isinstance(text, str):
            raise TypeError(f"the reply's text is {type(text).__name__}, expected str")
        finish = plain_text(reply.finish_reason) if isinstance(reply.finish_reason, str) else "stop"
        return cls(plain_text(text or ""), billable(reply.usage), seconds(reply.latency_s), finish)

    @classmethod
    def of_columns(cls, text: str, prompt: int | None, completion: int, cached: int, thought: int, latency_s: float,
                   finish_reason: str, error: str | None) -> Answer:
        """From stored values. Raises ValueError where they are none that `columns` gives."""
        usage = None if prompt is None else Usage(prompt, completion, cached, thought)
        if not (isinstance(text, str) and usage == billable(usage) and isinstance(latency_s, float)
                and latency_s == seconds(latency_s) and isinstance(finish_reason, str)
                and isinstance(error, str | None)):
            raise ValueError(f"an answer with odd values {shown((prompt, completion, cached, thought, latency_s))}")
        return cls(text, usage, latency_s, finish_reason, error)

    def columns(self) -> tuple[Any, ...]:
        """The values of ANSWER_COLUMNS."""
        usage = self.usage
        tokens = (None,) * 4 if usage is None else (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens,
                                                    usage.reasoning_tokens)
        return self.text, *tokens, self.latency_s, self.finish_reason, self.error

    @property
    def final(self) -> bool:
        """Whether the request must not be made again: it was answered, or billed."""
        return self.error is None or self.usage is not None

    def reply(self) -> Reply:
        """The reply. Raises CallError where the call failed."""
        if self.error is not None:
            raise CallError(self.error, self.usage, self.latency_s)
        return Reply(self.text, self.usage, self.latency_s, self.finish_reason)


def plain_text(text: str) -> str:
    """Half surrogate pairs, which cannot be stored, become "?"; so an episode reads them too."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def seconds(latency: Any) -> float:
    """A latency, 0 if it is no number of seconds."""
    return float(latency) if isinstance(latency, (int, float)) and 0 <= latency <= 1e6 else 0.0


def recording_path(path: Any, *, new: bool = False) -> Path:
    """The file that `path` names, symbolic links followed: SQLite keeps its -wal file beside the real one.

    Raises:
        ValueError: `path` is no name of a file.
        RecordingError: it is a folder; there is no such file (unless `new`); its folder cannot be made.
    """
    if not isinstance(path, (str, os.PathLike)) or not str(path).strip() or "\0" in str(path):
        raise ValueError(f"path = {shown(path)}: expected the name of a .sqlite file")
    try:
        real = Path(path).resolve()
        folder, there = real.is_dir(), real.exists()
        if new and not there:
            real.parent.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:   # RuntimeError: symbolic links in a circle
        raise RecordingError(f"recording {path}: {getattr(error, 'strerror', None) or error}") from None
    if folder:
        raise RecordingError(f"recording {path}: is a folder; expected the name of a .sqlite file")
    if not (there or new):
        raise RecordingError(f"no recording {path}; make one with CachedChat(backend, path)")
    return real


def file_identity(path: Path) -> tuple[int, int] | None:
    """What tells the file at `path` from others, None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def told(path: Path, error: Exception, besides: str = "", what: str = "recording") -> RunStopped:
    """What an error in reading or writing a file means for the user; `besides`: what else there is to say."""
    if isinstance(error, RunStopped):
        return error
    name = errorname(error)
    known = next((text.format(busy=BUSY_S) for start, text in _ERRORS.items() if name.startswith(start)), None)
    if known is None and isinstance(error, OSError) and error.errno:   # pyarrow raises OSError for damaged pages too
        known = error.strerror or str(error)
    elif known is None and isinstance(error, sqlite3.Error) and name not in ("", "SQLITE_ERROR"):
        known = str(error)
    elif known is None:   # all that can be wrong with what stands in a file
        known = f"is damaged: {type(error).__name__}: {' '.join(str(error).split())[:200]}; restore a copy"
    return RecordingError(f"{what} {path}: {known}{besides}")


_ERRORS = {
    "SQLITE_FULL": "the disk is full (that of the file, or that of temporary files): make room, then start again",
    "SQLITE_READONLY": "file or folder may not be written to: give another path, or mend the permissions",
    "SQLITE_CANTOPEN": "cannot be opened or made: does the folder exist, and may it be written to?",
    "SQLITE_NOTADB": "is no recording (not a SQLite file): give another path",
    "SQLITE_BUSY": "has been locked by another program for {busy:g} s: close it there, then start again",
    "SQLITE_CORRUPT": "is damaged: restore a copy, or give another path",
    "SQLITE_IOERR": "cannot be written or read (disk full, file too large, or a fault of the disk)",
    "SQLITE_PERM": "may not be read: mend the permissions",
}


def errorname(error: BaseException) -> str:
    """SQLite's name of an error; empty where it has none, as for a text that is no UTF-8."""
    return getattr(error, "sqlite_errorname", None) or ""


@contextmanager
def reading(path: Path, what: str = "recording") -> Iterator[None]:
    """Whatever fails while a file is read, whoever raises it, is a RecordingError that names the file."""
    try:
        yield
    except (RunStopped, MemoryError):
        raise
    except Exception as error:
        raise told(path, error, what=what) from None


def connect(path: Path, *, write: bool) -> sqlite3.Connection:
    """A connection in autocommit mode; raises sqlite3.Error. Without `write` nothing is changed or made."""
    if write:
        connection = _connection(path, "rwc")
        connection.execute("PRAGMA synchronous = FULL")
        return connection
    connection = _connection(path, "rw")   # not "ro", which would leave -wal and -shm files behind
    try:
        connection.execute("PRAGMA query_only = ON")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        return connection
    except sqlite3.Error as error:
        connection.close()
        wal = Path(f"{path}-wal")
        if (wal.exists() and wal.stat().st_size) or not errorname(error).startswith(
                ("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_IOERR_SHM", "SQLITE_FULL")):
            raise
    return _connection(path, "ro&immutable=1")   # in a read-only folder or on a full disk no -shm file can be made


def _connection(path: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.as_uri()}?mode={mode}", BUSY_S, isolation_level=None, check_same_thread=False,
                           uri=True)


def create(path: Path, made_with: dict[str, str]) -> None:
    """Make the recording, or check that the one that is there was made with the same kind of backend.

    Raises:
        RecordingError: it is another file, of another version, made with another kind of backend, or not writable.
    """
    with reading(path):
        connection = connect(path, write=True)
        try:
            _to_wal(connection, path)
            connection.execute("BEGIN IMMEDIATE")
            if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                for statement in _TABLES.split(";\n"):
                    connection.execute(statement)
                meta = {"version": str(VERSION), **made_with, **_TOTALS}
                connection.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
            else:
                check_version(path, meta := read_meta(connection))
                for name, value in made_with.items():
                    if meta.get(name) != value:
                        raise RecordingError(
                            f"recording {path}: was made with {name} = {meta.get(name)!r}, this backend has {value!r}; "
                            "their answers cannot share a file: give another path")
            connection.execute("COMMIT")
        finally:
            connection.close()


def _to_wal(connection: sqlite3.Connection, path: Path) -> None:
    """Switch the file to write-ahead logging. SQLite does not wait for others here, so we do."""
    end = time.monotonic() + BUSY_S
    while True:
        try:
            if connection.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
                raise RecordingError(f"recording {path}: its file system allows no write-ahead log: put it on a local "
                                     "disk")
            return
        except sqlite3.OperationalError as error:
            if not errorname(error).startswith("SQLITE_BUSY") or time.monotonic() > end:
                raise
        time.sleep(0.01)


def read_meta(connection: sqlite3.Connection) -> dict[str, str]:
    """The table meta; empty if there is none."""
    try:
        return dict(connection.execute("SELECT name, value FROM meta"))
    except sqlite3.OperationalError as error:
        if errorname(error) != "SQLITE_ERROR":
            raise
        return {}
    except (ValueError, TypeError):   # a table of that name with other columns
        return {}


def check_version(path: Path, meta: dict[str, str]) -> None:
    """Raise RecordingError unless `meta` are those of a recording of this version."""
    if not {"version", "kind", "bound"} <= set(meta):
        raise RecordingError(f"recording {path}: is no recording of calls, but another file; give another path")
    if meta["version"] != str(VERSION):
        raise RecordingError(f"recording {path}: has the format version {meta['version']}, this bamas_lite reads "
                             f"version {VERSION}; use the bamas_lite that made it, or record again")


class Calls:
    """What the recording in a SQLite file holds; safe for several threads.

    Raises:
        RecordingError: no recording, another version, unreadable.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._lock = path, threading.Lock()
        with reading(path):
            self._connection = connect(path, write=False)
            try:
                check_version(path, meta := read_meta(self._connection))
                self.meta = {name: meta[name] for name in ("kind", "bound")}
            except BaseException:
                self._connection.close()
                raise

    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with reading(self.path), self._lock:
            return self._connection.execute(query, values).fetchall()

    def find(self, key: bytes) -> Answer | None:
        """What the request came to; None if it was never made."""
        rows = self._rows(f"SELECT {ANSWER_COLUMNS} FROM calls WHERE key = ?", key)
        with reading(self.path):
            return Answer.of_columns(*rows[0]) if rows else None

    def llms(self) -> dict[str, int]:
        """Calls by name of their LLM."""
        return dict(self._rows("SELECT llm, count(*) FROM calls GROUP BY llm ORDER BY llm"))

    def totals(self) -> tuple[int, int, int]:
        """Atoms spent, atoms that may have been billed besides, calls paid."""
        found = dict(self._rows("SELECT name, value FROM meta"))
        with reading(self.path):
            return int(found["spent"]), int(found["unconfirmed"]), int(found["paid_calls"])

    def requests(self) -> Iterator[tuple[str, int, str]]:
        """(LLM, seed, request) of each call."""
        yield from self.stream("SELECT llm, seed, request FROM calls")

    def stream(self, query: str) -> Iterator[tuple[Any, ...]]:
        """The rows of a query, a few at a time."""
        with reading(self.path):
            cursor = self._connection.execute(query)
            while True:
                with self._lock:
                    rows = cursor.fetchmany(256)
                if not rows:
                    return
                yield from rows

    def close(self) -> None:
        with self._lock:
            self._connection.close()
