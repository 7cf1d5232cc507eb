"""The ledger of a recording and its totals: what was billed, and what may have been."""

from __future__ import annotations

import sqlite3
import time
from typing import Any

from bamas_lite.pool import ATOMS
from bamas_lite.recordings.store import LEDGER_COLUMNS


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
