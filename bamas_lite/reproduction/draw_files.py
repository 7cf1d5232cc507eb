"""The folder in which a run keeps its draws: of one plan only, and only draws that are as they were written."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from bamas_lite.trajectory_log import MANIFEST, write_whole


def claim(folder: Path, mark: str) -> None:
    """Say in the folder whose draws it holds.

    Args:
        folder: of the draws; it is there.
        mark: of the plan, `Plan.fingerprint`.

    Raises:
        ValueError: the folder holds draws of another plan, or of one that it does not name.
    """
    file = folder / "plan.txt"
    if not file.exists() and not any(folder.glob("draw_*.parquet")):
        write_whole(file, lambda path: path.write_text(mark, encoding="utf-8"))
    if not file.is_file() or file.read_bytes() != mark.encode():
        raise ValueError(f"{folder}: holds draws of another plan or of another version of the package; give another "
                         "folder, or delete it")


def write_part(draw: pd.DataFrame, folder: Path, number: int, mark: str) -> None:
    """Write a draw, stamped with its plan, its number and all its values."""
    table = pa.Table.from_pandas(draw, preserve_index=False)
    table = table.replace_schema_metadata({**table.schema.metadata, MANIFEST: _stamp(draw, number, mark)})
    write_whole(_part(folder, number), lambda path: pq.write_table(table, path))


def read_part(folder: Path, number: int, mark: str) -> pd.DataFrame | None:
    """A draw as it was written; None: it is not there, or damaged, and is to be made.

    Raises:
        ValueError: a folder has the name of its file.
    """
    path = _part(folder, number)
    if path.is_dir():
        raise ValueError(f"{path}: a folder, where the file of a draw belongs; remove it")
    try:
        table = pq.read_table(path)
        draw = table.to_pandas()
    except (OSError, ValueError, pa.ArrowException):
        return None
    return draw if (table.schema.metadata or {}).get(MANIFEST) == _stamp(draw, number, mark) else None


def _part(folder: Path, number: int) -> Path:
    return folder / f"draw_{number:05d}.parquet"


def _stamp(draw: pd.DataFrame, number: int, mark: str) -> bytes:
    return hashlib.sha256(f"{mark} {number}\n{draw.to_csv(index=False)}".encode()).hexdigest().encode()
