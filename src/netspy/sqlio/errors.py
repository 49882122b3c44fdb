"""What a database's error means: will it pass by itself, are the rows at fault, is the set-up wrong.

All functions take SQLAlchemy's errors and those of the drivers (PyMySQL, psycopg, sqlite3). Codes are from the
servers' manuals: MySQL and MariaDB "Error Reference", PostgreSQL appendix A (SQLSTATE), SQLite "Result Codes".
"""

from __future__ import annotations

import sqlite3
from typing import Any

from netspy.settings import without_passwords

MAX_CHARS = 500

_MYSQL_TRANSIENT = frozenset(
    {
        *(1020, 1205, 1213, 1412, 1615, 1689, 3572),  # changed meanwhile, lock wait, deadlock, NOWAIT
        *(1290, 1792, 1836),  # read-only: a fail-over is going on, or we reach the replica
        *(1040, 1041, 1042, 1043, 1053, 1077, 1078, 1079, 1080, 1129, 1135, 1152, 1184, 1203, 1226),  # (no) connection
        *(1156, 1157, 1158, 1159, 1160, 1161, 1189, 1190, 1927, 4031),  # the connection broke
        *(1317, 1969, 3024),  # interrupted, ran out of time
        *(1021, 1030, 1037, 1038, 1114),  # disk or memory full, storage engine in trouble
        *(1047, 3100, 3101, 3796),  # cluster node not ready, transaction rolled back by group replication
        *(2002, 2003, 2004, 2005, 2006, 2012, 2013, 2014, 2026, 2027, 2055),  # the client's words for all this
    }
)  # fmt: skip
_MYSQL_DATA = frozenset(
    {
        *(1022, 1048, 1062, 1169, 1216, 1217, 1364, 1451, 1452, 1557, 1586, 1761, 1762, 3819, 4025),  # constraints
        *(1153, 1264, 1265, 1292, 1300, 1301, 1366, 1367, 1406, 1411, 1416, 1441, 1525, 1526, 1644, 1690),
        4078,  # no cast from the value's type to the column's
        *(3140, 3141, 3143, 3144, 3156, 3157, 3158, 4038, 4039),  # JSON
        *(1118, 1139, 1365, 1748, 1906, 3105),  # row size, generated columns, no partition
    }
)  # fmt: skip
_MYSQL_SCHEMA = frozenset({1054, 1051, 1072, 1091, 1109, 1136, 1146, 1176, 1412, 1932})
_MYSQL_SETUP = frozenset(
    {1044, 1045, 1049, 1095, 1130, 1133, 1142, 1143, 1227, 1251, 1370, 1698, 4151, 2054, 2059}
)

_MYSQL_PRIVILEGES = frozenset({1095, 1142, 1143, 1227, 1370})

_MYSQL_LOST = frozenset({1158, 1159, 1160, 1161, 1927, 2006, 2013, 2014, 2055, 4031})
_PG_LOST = frozenset({"57P01", "57P02"})

_PG_TRANSIENT_CLASSES = ("08", "53", "57", "58")
_PG_TRANSIENT = frozenset({"40001", "40003", "40P01", "55P03", "55006", "25006", "25P03", "0A000"})
_PG_NOT_TRANSIENT = frozenset({"57P04"})  # the database was dropped
_PG_DATA_CLASSES = ("22", "23", "44", "54", "P0")
_PG_DATA = frozenset({"42804", "42846", "42P10", "428C9", "21000"})
_PG_SCHEMA = frozenset({"42703", "42P01", "42704", "3F000"})
_PG_SETUP_CLASSES = ("28", "3D")
_PG_SETUP_WORDS = ("authentication failed", "does not exist", "no pg_hba.conf entry", "no password supplied")

_RACES = frozenset({1020, 1213, "40001", "40P01"})
_LOCKS = frozenset({1205, 3572, "55P03"})

_SQLITE_TRANSIENT = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_SCHEMA,
    }
)
_SQLITE_DATA = frozenset(
    {sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_RANGE}
)


def driver_error(error: BaseException) -> BaseException:
    """The driver's error inside SQLAlchemy's, else `error` itself."""
    inner = getattr(error, "orig", None)
    return inner if isinstance(inner, BaseException) else error


def transient(error: BaseException) -> bool:
    """Whether the same statement may work later: a dead connection, a deadlock, a lock that was waited for too long,
    a fail-over, a server that is starting, full or read-only. The transaction is gone in any case.
    """
    if getattr(error, "connection_invalidated", False):
        return True
    if isinstance(error, OSError | TimeoutError | EOFError):
        return True
    if any(kind.__name__ == "TimeoutError" for kind in type(error).__mro__):  # no free connection in the pool
        return True
    inner = driver_error(error)
    code = error_code(inner)
    if isinstance(inner, sqlite3.Error):
        return isinstance(code, int) and code & 0xFF in _SQLITE_TRANSIENT
    if isinstance(code, int):
        return code in _MYSQL_TRANSIENT or (code == 0 and _has_name(inner, "InterfaceError"))
    if code:
        if code == "0A000":  # a prepared statement met a table that was changed meanwhile
            return "cached plan" in str(inner)
        return code not in _PG_NOT_TRANSIENT and (
            code in _PG_TRANSIENT or code.startswith(_PG_TRANSIENT_CLASSES)
        )
    return _has_name(inner, "OperationalError", "InterfaceError") and not setup_error(error)


def data_error(error: BaseException) -> bool:
    """Whether the rows are at fault: the same ones would fail again, others may do."""
    if isinstance(error, UnicodeError | OverflowError):
        return True
    inner = driver_error(error)
    code = error_code(inner)
    if isinstance(inner, sqlite3.Error):
        if isinstance(code, int):
            return code & 0xFF in _SQLITE_DATA
        return isinstance(inner, sqlite3.DataError | sqlite3.ProgrammingError)
    if isinstance(code, int):
        return code in _MYSQL_DATA or (
            code not in _MYSQL_TRANSIENT | _MYSQL_SCHEMA and _has_name(inner, "DataError", "IntegrityError")
        )
    if code == "0A000":  # the value can't be converted, e.g. NaN to a whole number
        return not transient(error)
    if code:
        return code in _PG_DATA or code.startswith(_PG_DATA_CLASSES)
    if _has_name(inner, "ProgrammingError"):
        return "cannot adapt type" in str(inner)  # psycopg, about a Python type
    return _has_name(inner, "DataError", "IntegrityError")


def schema_error(error: BaseException) -> bool:
    """Whether a table or column isn't there (any more): what is remembered of the schema is to be read again."""
    inner = driver_error(error)
    code = error_code(inner)
    if isinstance(inner, sqlite3.Error):
        return str(inner).startswith(("no such table", "no such column")) or "has no column named" in str(
            inner
        )
    return code in _MYSQL_SCHEMA if isinstance(code, int) else code in _PG_SCHEMA


def setup_error(error: BaseException) -> bool:
    """Whether a person must act: a wrong password, no such database, a missing privilege."""
    inner = driver_error(error)
    code = error_code(inner)
    if isinstance(inner, sqlite3.Error):
        return False
    if isinstance(code, int):
        return code in _MYSQL_SETUP
    if code:
        return code.startswith(_PG_SETUP_CLASSES) or code == "42501"
    # A connection that psycopg could not make carries no code, only the server's text.
    return _has_name(inner, "OperationalError") and any(word in str(inner) for word in _PG_SETUP_WORDS)


def lost_race(error: BaseException) -> bool:
    """Whether two transactions were in each other's way and the server ended this one: a deadlock, a serialization
    failure. Trying again at once is right, with fewer rows if need be.
    """
    return error_code(driver_error(error)) in _RACES


def locked(error: BaseException) -> bool:
    """Whether somebody holds a lock for longer than it was waited for."""
    inner = driver_error(error)
    code = error_code(inner)
    if isinstance(inner, sqlite3.Error):
        return isinstance(code, int) and code & 0xFF in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
    return code in _LOCKS


def connection_lost(error: BaseException) -> bool:
    """Whether the connection broke while the statement was under way."""
    inner = driver_error(error)
    code = error_code(inner)
    if isinstance(inner, sqlite3.Error):
        return False
    if isinstance(code, int):
        return code in _MYSQL_LOST
    return (
        code.startswith("08") or code in _PG_LOST
        if code
        else _has_name(inner, "OperationalError", "InterfaceError")
    )


def login_error(error: BaseException) -> bool:
    """Whether nobody gets in: a wrong password, no such database. The other kind of `setup_error` is a missing
    privilege, which concerns some statements only.
    """
    code = error_code(driver_error(error))
    return setup_error(error) and code not in _MYSQL_PRIVILEGES and code != "42501"


def one_line(error: BaseException) -> str:
    """The error for a log line or a dead letter: the server's words and code, without SQL, rows and passwords."""
    inner = driver_error(error)
    code = error_code(inner)
    diagnosis = getattr(inner, "diag", None)
    if diagnosis is not None and diagnosis.message_primary:
        text = str(diagnosis.message_primary)
        detail = str(diagnosis.message_detail or "")
        if detail and not detail.startswith("Failing row contains"):  # that one quotes the whole row
            text = f"{text} ({detail})"
        place = ".".join(part for part in (diagnosis.table_name, diagnosis.column_name) if part)
        if place and place.rpartition(".")[2] not in text:
            text = f"{text} ({place})"
    elif isinstance(code, int) and len(inner.args) > 1 and not isinstance(inner, sqlite3.Error):
        text = str(inner.args[1])
    else:
        text = str(inner)
    text = without_passwords(" ".join(text.split()))
    if len(text) > MAX_CHARS:
        text = text[:MAX_CHARS] + "…"
    name = getattr(inner, "sqlite_errorname", None) or code
    shown = f" [{name}]" if name else ""
    return f"{text or type(inner).__name__}{shown}"


def error_code(error: BaseException) -> int | str | None:
    """MySQL's or SQLite's number, PostgreSQL's SQLSTATE, None when the driver gave none."""
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", None)
    if any(kind.__module__.startswith("pymysql") for kind in type(error).__mro__):
        first = error.args[0] if error.args else None
        return first if isinstance(first, int) else None
    state: Any = getattr(error, "sqlstate", None)
    return state if isinstance(state, str) else None


def _has_name(error: BaseException, *names: str) -> bool:
    # By name (PEP 249): the drivers need not be installed, or imported, to be recognised.
    return any(kind.__name__ in names for kind in type(error).__mro__)
