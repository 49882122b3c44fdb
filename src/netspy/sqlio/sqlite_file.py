"""A SQLite file that several processes write: how it is opened."""

import re
import sqlite3
import time
from pathlib import Path

_PAUSES_S = (0.002, 0.005, 0.01, 0.02, 0.05)


_COLLATE = re.compile(r"(?i)\bcollate\s+[\"'`\[]?(\w+)")


def has_other_collation(index_sql: str | None, table_sql: str) -> bool:
    """Whether an index compares its columns otherwise than the table does: then no upsert can go by it."""
    wanted = {name.lower() for name in _COLLATE.findall(index_sql or "")}
    there = {name.lower() for name in _COLLATE.findall(table_sql)} or {"binary"}
    return not wanted <= there


def connect(path: str | Path, patience: float) -> sqlite3.Connection:
    """Open the file in WAL mode, each commit synced; `patience` is the wait for other processes' locks, in seconds.

    Raises sqlite3.Error; what it had opened is closed.
    """
    db = sqlite3.connect(path, timeout=patience, isolation_level=None, check_same_thread=False)
    try:
        _write_ahead(db, time.monotonic() + patience)
        db.execute("PRAGMA synchronous=FULL")
    except BaseException:
        db.close()
        raise
    return db


def _write_ahead(db: sqlite3.Connection, until: float) -> None:
    """Switch to WAL. Waits by itself: for this statement SQLite answers "busy" at once, whatever its timeout, when
    two connections want to switch a fresh file, since each would wait for the other's read lock.
    """
    pauses = iter(_PAUSES_S)
    while True:
        try:
            if db.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
                return
            db.execute("PRAGMA journal_mode=WAL").fetchone()
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                raise
            time.sleep(next(pauses, _PAUSES_S[-1]))
