"""Recordings and ledgers as parquet files: small, the same bytes for the same calls, written a few rows at a time."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from bamas_lite.inputs import shown
from bamas_lite.pool import ATOMS
from bamas_lite.recordings.owners import is_gone
from bamas_lite.recordings.store import (
    ANSWER_COLUMNS,
    CALL_COLUMNS,
    LEDGER_COLUMNS,
    VERSION,
    Answer,
    Calls,
    RecordingError,
    check_version,
    key_of,
    reading,
    recording_path,
)
from bamas_lite.trajectory_log import write_whole

ROWS_AT_ONCE = 8192
"""Rows in memory at a time, a row group of the files."""

_TOKENS = [(name, pa.int64()) for name in ("prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens")]
_CALLS = pa.schema([
    ("llm", pa.string()), ("seed", pa.int64()), ("request", pa.string()), ("text", pa.string()), *_TOKENS,
    ("latency_s", pa.float64()), ("finish_reason", pa.string()), ("error", pa.string())])
LEDGER = pa.schema([
    ("time", pa.timestamp("ms", "UTC")), ("llm", pa.string()), ("model", pa.string()), ("role", pa.string()),
    ("task_id", pa.string()), *_TOKENS, ("cost", pa.float64()), ("unconfirmed", pa.float64()),
    ("latency_s", pa.float64()), ("finish_reason", pa.string()), ("status", pa.string())])
"""One row a call that was paid, or (status "unconfirmed") that broke off and may have been.

`cost` in u$, `unconfirmed` the u$ that it may have cost at most besides; `status` ok, failed (billed, but of no use),
usage missing (the provider named no tokens: booked at its worst case) or unconfirmed.
"""
_META = b"bamas_lite.recording."
_DIGEST = b"bamas_lite.digest"


def export_recording(source: str | Path, target: str | Path) -> Path:
    """Write what a recording answers to a small .parquet file, which `CachedChat(None, target)` replays anywhere.

    It holds requests, replies, token counts and latencies, ordered by LLM, seed and request: equal calls give an equal
    file. It holds no times, no prices and no ledger. It ends with a digest of its rows: a damaged file is refused, not
    misread.

    Raises:
        ValueError: `target` does not end in .parquet.
        RecordingError: `source` is no recording, or `target` cannot be written.
    """
    calls = _opened(source)
    try:
        meta = {_META + name.encode(): str(value).encode() for name, value in
                {"version": VERSION, **calls.meta}.items()}
        return _write(target, _CALLS.with_metadata(meta), calls.path, _answers(calls))
    finally:
        calls.close()


def _answers(calls: Calls) -> Iterator[tuple[Any, ...]]:
    for row in calls.stream(f"SELECT {', '.join(CALL_COLUMNS)} FROM calls ORDER BY llm, seed, request"):
        Answer.of_columns(*row[3:])   # raises where a replay would
        yield row


def export_ledger(source: str | Path, target: str | Path) -> Path:
    """Write the ledger of a recording, a row for each call that was paid, to a .parquet file (columns: LEDGER).

    Raises:
        ValueError: `target` does not end in .parquet.
        RecordingError: `source` is no recording, or `target` cannot be written.
    """
    calls = _opened(source)
    cost, unconfirmed = LEDGER_COLUMNS.index("cost"), LEDGER_COLUMNS.index("unconfirmed")

    def rows() -> Iterator[tuple[Any, ...]]:
        for row in calls.stream(f"SELECT {', '.join(LEDGER_COLUMNS)} FROM ledger ORDER BY rowid"):
            row = list(row)
            row[0] = int(row[0] * 1000)
            row[cost], row[unconfirmed] = int(row[cost]) / ATOMS, int(row[unconfirmed]) / ATOMS
            yield tuple(row)

    try:
        return _write(target, LEDGER, calls.path, rows())
    finally:
        calls.close()


def load_ledger(path: str | Path) -> pd.DataFrame:
    """The ledger that `export_ledger` wrote.

    Raises:
        RecordingError: no such file, or no ledger.
    """
    path = recording_path(path)
    if path.suffix != ".parquet":
        raise RecordingError(f"ledger {path}: expected a .parquet file, as export_ledger(recording, 'ledger.parquet') "
                             "writes it")
    with reading(path, "ledger"):
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            table, meta = file.read(), file.metadata.metadata
        if not table.schema.equals(LEDGER):
            raise RecordingError(f"ledger {path}: is no ledger; expected the columns {', '.join(LEDGER.names)}")
        digest = hashlib.sha256()
        for batch in table.to_batches(ROWS_AT_ONCE):
            for row in _rows(batch):
                _digest(digest, row)
        _check_digest(meta, digest)
        return table.to_pandas()


def _opened(source: str | Path) -> Calls:
    path = recording_path(source)
    if path.suffix == ".parquet":
        raise RecordingError(f"recording {source}: is exported already; expected the .sqlite file")
    return Calls(path)


def _write(target: str | Path, schema: pa.Schema, source: Path, rows: Iterator[tuple[Any, ...]]) -> Path:
    """Write rows of `source`, then their digest; each page of the file has a checksum too, but its header has none."""
    target = Path(target)
    if target.suffix != ".parquet":
        raise ValueError(f"target = {shown(str(target))}: expected a file name that ends in .parquet")

    def batches() -> Iterator[pa.RecordBatch]:
        with reading(source):
            while batch := list(islice(rows, ROWS_AT_ONCE)):
                columns = zip(*batch, strict=True)
                yield pa.record_batch([pa.array(column, field.type) for column, field in
                                       zip(columns, schema, strict=True)], schema=schema)

    def write(temporary: Path) -> None:
        digest = hashlib.sha256()
        with pq.ParquetWriter(temporary, schema, compression="zstd", compression_level=9, data_page_size=8 << 20,
                              write_page_checksum=True) as file:
            for batch in batches():
                file.write_batch(batch)
                for row in _rows(batch):
                    _digest(digest, row)
            file.add_key_value_metadata({_DIGEST: digest.hexdigest()})

    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            write_whole(target, write)
        finally:
            _clean(target)
    except (OSError, pa.ArrowException) as error:
        raise RecordingError(f"export {target}: cannot be written ({getattr(error, 'strerror', None) or error}); the "
                             f"recording {source} is as it was") from None
    return target


def _clean(target: Path) -> None:
    """Remove half files (see write_whole) of this process, or of processes that were killed."""
    for half in target.parent.glob(f"{glob.escape(target.name)}.*.tmp"):
        of = half.name[len(target.name) + 1:-len(".tmp")]
        if of.isdecimal() and (int(of) == os.getpid() or is_gone(int(of)) is not False):
            with contextlib.suppress(OSError):   # Windows removes no file that somebody writes
                half.unlink()


class ExportedCalls:
    """What an exported recording holds; the requests themselves stay in the file, only their keys are in memory.

    Raises:
        RecordingError: no recording, another version, damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with reading(path):
            with pq.ParquetFile(path, page_checksum_verification=True) as file:
                meta = {name[len(_META):].decode(): value.decode() for name, value in
                        (file.schema_arrow.metadata or {}).items() if name.startswith(_META)}
                check_version(path, meta)
                self.meta = {name: meta[name] for name in ("kind", "bound")}
                if not file.schema_arrow.equals(_CALLS):
                    raise RecordingError(f"recording {path}: is damaged: it has other columns than a recording")
                names = ANSWER_COLUMNS.split(", ")
                self._rows: dict[bytes, int] = {}
                self._llms: dict[str, int] = {}
                parts, digest = [], hashlib.sha256()
                for batch in file.iter_batches(ROWS_AT_ONCE):
                    for row in _rows(batch):
                        llm, seed, request = row[:3]
                        _digest(digest, row)
                        self._rows[key_of(llm, seed, request)] = len(self._rows)
                        self._llms[llm] = self._llms.get(llm, 0) + 1
                    parts.append(batch.select(names))
                _check_digest(file.metadata.metadata, digest)
                schema = pa.schema([field for field in _CALLS if field.name in names])
                self._answers = pa.Table.from_batches(parts, schema).combine_chunks()
        self._columns = [column.chunk(0) if column.num_chunks else [] for column in self._answers.columns]

    def find(self, key: bytes) -> Answer | None:
        """What the request came to; None if it was never made."""
        row = self._rows.get(key)
        with reading(self.path):
            return None if row is None else Answer.of_columns(*(column[row].as_py() for column in self._columns))

    def llms(self) -> dict[str, int]:
        """Calls by name of their LLM."""
        return dict(sorted(self._llms.items()))

    def totals(self) -> tuple[int, int, int]:
        """No ledger: nothing was spent with this file."""
        return 0, 0, 0

    def requests(self) -> Iterator[tuple[str, int, str]]:
        """(LLM, seed, request) of each call."""
        with reading(self.path), pq.ParquetFile(self.path, page_checksum_verification=True) as file:
            for batch in file.iter_batches(ROWS_AT_ONCE, columns=["llm", "seed", "request"]):
                yield from _requests(batch)

    def close(self) -> None:
        """Nothing is open."""


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    columns = (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in batch.columns)
    return zip(*(column.to_pylist() for column in columns), strict=True)


def _digest(digest: Any, row: tuple[Any, ...]) -> None:
    digest.update(f"{row!r}\n".encode("utf-8", "surrogatepass"))


def _check_digest(meta: dict[bytes, bytes], digest: Any) -> None:
    """Raise ValueError where rows are not those that were written; files of older releases have no digest."""
    if meta.get(_DIGEST, digest.hexdigest().encode()) != digest.hexdigest().encode():
        raise ValueError("its rows are not those that were written")


def _requests(batch: pa.RecordBatch) -> Iterator[tuple[str, int, str]]:
    return zip(*(batch.column(name).to_pylist() for name in ("llm", "seed", "request")), strict=True)
