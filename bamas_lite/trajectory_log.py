"""The log as a file: its columns, reading and checking it, and writing it whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from bamas_lite.casting import TOPOLOGIES

SCHEMA = pa.schema([
    ("run_id", pa.string()), ("task_id", pa.string()), ("domain", pa.string()), ("level", pa.int16()),
    ("budget", pa.float64()), ("topology", pa.string()), ("team", pa.string()), ("status", pa.string()),
    ("reason", pa.string()), ("correct", pa.bool_()), ("stop_reason", pa.string()), ("cost", pa.float64()),
    ("over_budget", pa.bool_()), ("n_calls", pa.int16()), ("prompt_tokens", pa.int32()),
    ("completion_tokens", pa.int32()), ("latency_s", pa.float32()), ("behaviour_prob", pa.float32()),
    ("answer", pa.string()), ("provider_overrun", pa.int16()), ("enforcement", pa.string()), ("backend", pa.string()),
    ("seed", pa.int64()),
])
"""One row an episode: `budget` and `cost` in u$, `latency_s` in seconds, `status` ok, infeasible or error.

`correct` is missing unless the status is ok: what was not run to its end is not graded. Token counts end at MOST_COUNT:
providers have reported nonsense, and an episode's cost is exact all the same.
"""

MOST_COUNT = 2**31 - 1
"""The largest token count of a log, whose columns have 32 bits."""

STATUSES = ("ok", "infeasible", "error")
MANIFEST = b"bamas_lite"
"""Key of the file's metadata under which it says how it was made."""

_MAY_BE_MISSING = ("reason", "correct", "answer")
_KINDS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean,
          lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind))


class TrajectoryError(ValueError):
    """A log that cannot be used; the message names the file and what is wrong with it."""


def load_trajectories(path: str | Path) -> pd.DataFrame:
    """Read a log.

    Raises:
        TrajectoryError: no such file, an unfinished run, not parquet, or columns or values that are no log's.
    """
    return frame(read_log(path))


def load_manifest(path: str | Path) -> dict[str, Any]:
    """How a log was made, as its file says: checksums of tasks and prices, budgets, topologies, seeds, backends, ...

    Raises:
        TrajectoryError: as `load_trajectories`, or something else than `generate_trajectories` wrote the file.
    """
    manifest = manifest_of(read_log(path))
    if not manifest:
        raise TrajectoryError(f"{path}: does not say how it was made; generate_trajectories did not write it")
    return manifest


def frame(table: pa.Table) -> pd.DataFrame:
    """The log in pandas; `correct` is pandas' boolean, which can be missing and is left out of a mean."""
    return table.to_pandas(types_mapper={pa.bool_(): pd.BooleanDtype()}.get).astype({"over_budget": bool})


def manifest_of(table: pa.Table) -> dict[str, Any]:
    """What the metadata of a table say about how it was made; empty if nothing readable."""
    try:
        manifest = json.loads((table.schema.metadata or {}).get(MANIFEST, b"{}"))
    except ValueError:
        return {}
    return manifest if isinstance(manifest, dict) else {}


def read_log(path: str | Path) -> pa.Table:
    """Read and check a log; raises TrajectoryError."""
    path = checked_path(path)
    if not path.is_file():
        hint = "; the run is unfinished: call generate_trajectories again with the same arguments" \
            if path.with_suffix(".parts").is_dir() else ""
        raise TrajectoryError(f"no log {path}{hint}")
    try:
        table = pq.read_table(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise TrajectoryError(f"{path}: not a parquet log: {error}") from None
    missing = [name for name in SCHEMA.names if name not in table.schema.names]
    if missing:
        raise TrajectoryError(f"{path}: columns missing: {', '.join(missing)}")
    if table.num_rows == 0:
        raise TrajectoryError(f"{path}: the log is empty")
    for field in SCHEMA:
        found = table.schema.field(field.name).type
        if not any(kind(found) and kind(field.type) for kind in _KINDS):
            raise TrajectoryError(f"{path}: column {field.name} has the type {found}, expected {field.type}")
        if field.name not in _MAY_BE_MISSING and table[field.name].null_count:
            raise TrajectoryError(f"{path}: column {field.name} has missing values")
    try:
        table = table.select(SCHEMA.names).cast(SCHEMA.with_metadata(table.schema.metadata))
    except pa.ArrowInvalid as error:
        raise TrajectoryError(f"{path}: a column has another type: {error}") from None
    for name, known in (("status", STATUSES), ("topology", TOPOLOGIES)):
        unknown = [value for value in table[name].unique().to_pylist() if value not in known]
        if unknown:
            raise TrajectoryError(f"{path}: {name} = {unknown[0]!r}: expected one of {', '.join(known)}")
    keys = table.select(["task_id", "budget", "topology", "seed"]).to_pandas()
    if keys.duplicated().any():
        raise TrajectoryError(f"{path}: two rows for {keys[keys.duplicated()].iloc[0].to_dict()}")
    return table


def checked_path(path: Any) -> Path:
    """A path, or a TrajectoryError that says what was given instead."""
    if not isinstance(path, (str, os.PathLike)) or not str(path):
        raise TrajectoryError(f"path = {path!r}: expected the name of a .parquet file")
    return Path(path)


def write_whole(path: Path, write: Callable[[Path], Any], folder: Path | None = None) -> None:
    """Write under another name (in `folder`, by default beside the file), then rename: readers see all or nothing."""
    temporary = (folder or path.parent) / f"{path.name}.{os.getpid()}.tmp"
    write(temporary)
    with temporary.open("rb+") as file:
        os.fsync(file.fileno())  # the rename must not reach the disk before the contents
    os.replace(temporary, path)


def require_same_run(path: Path, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Raise TrajectoryError where what is at `path` was made with other arguments."""
    wanted = json.loads(json.dumps(wanted))
    for key in wanted:
        if found.get(key) != wanted[key]:
            there, here = f"it has {key} = {found.get(key)!r}", f"this call has {wanted[key]!r}"
            if key == "tasks":   # of which a checksum is kept, that says nothing to a reader
                there, here = f"it has other tasks ({found.get('n_tasks')})", f"this call has {wanted['n_tasks']}"
            elif key == "prices":
                there, here = "its LLMs have other prices, ranks or limits", f"pool {wanted['pool']!r} was changed"
            raise TrajectoryError(f"{path} holds another run: {there}, {here}; give another path. (Calls that a "
                                  "recording holds are not paid again: it can stay the same.)")
