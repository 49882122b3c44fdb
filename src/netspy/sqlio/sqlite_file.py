"""A SQLite file that several processes write: how it is opened."""

import os
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


def why_unusable(path: str | Path, error: BaseException) -> str:
    """Why no waiting helps after this error of the file; "" when it may pass, or when the statement is at fault."""
    path = Path(path)
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT}:
        return f"{path} is no SQLite database, or one that is encrypted or damaged ({error})"
    if code not in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM}:
        return ""
    if path.is_dir():
        return f"{path} is a folder; name a file in it"
    there = path if path.exists() else path.parent
    if there.exists() and not (os.access(there, os.R_OK | os.W_OK) and os.access(path.parent, os.W_OK)):
        return f"this user may not write {path} and its folder ({error})"
    return ""


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
