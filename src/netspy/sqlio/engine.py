"""SQLAlchemy engines whose sessions mean the same on every server: strict, UTC, utf8mb4, bounded waits."""

from __future__ import annotations

import logging
import sqlite3
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netspy.errors import ConfigError, MissingExtraError
from netspy.sqlio import sqlite_file
from netspy.sqlio.address import SqlAddress, read_url

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine

    from netspy.sqlio.address import Kind

# Strict: a value that doesn't fit is refused, never cut or replaced; a counter keeps the number 0 that it is given. The
# others are what MySQL 8 sets by itself.
_SQL_MODE = (
    "STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO,"
    "NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"
)
_DRIVERS: dict[Kind, tuple[str, str]] = {
    "mysql": ("mysql", "pymysql"),
    "postgresql": ("postgres", "psycopg"),
    "sqlite": ("sql", "sqlite3"),
}
_RECYCLE_S = 1800  # below the idle limits that servers (wait_timeout 8 h) and firewalls (often 1 h) have


def make_engine(
    address: str | SqlAddress,
    *,
    pool_size: int = 5,
    connect_timeout: float = 5.0,
    read_timeout: float = 120.0,
    lock_timeout: float = 20.0,
    checkout_timeout: float = 30.0,
) -> Engine:
    """An engine; nothing is connected yet. Call `engine.dispose()` in the end.

    Every session speaks utf8mb4 or UTF-8, has the time zone UTC, and refuses what doesn't fit. On MySQL, `rowcount`
    of an UPDATE counts the rows found, not those changed, as the others do. SQLite: WAL, synchronous=FULL, and each
    transaction takes the write lock at its start; connections may be used by any thread, one at a time.

    `pool_size`: connections at the most. Seconds: `connect_timeout` for a connection, `read_timeout` for an answer
    (MySQL; PostgreSQL notices a lost peer by TCP within it), `lock_timeout` for a row or table lock, `checkout_timeout`
    for a free connection. Raises ConfigError for a wrong URL, MissingExtraError when SQLAlchemy or the driver isn't
    installed.
    """
    found = read_url(address) if isinstance(address, str) else address
    need_driver(found)
    import sqlalchemy

    creator, name = _creator(found, connect_timeout, read_timeout, lock_timeout)
    engine = sqlalchemy.create_engine(
        f"{name}://",
        creator=creator,
        poolclass=sqlalchemy.pool.QueuePool,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=checkout_timeout,
        pool_recycle=_RECYCLE_S,
        pool_pre_ping=found.kind != "sqlite",
        hide_parameters=True,  # rows don't belong in error messages
    )
    if found.kind == "sqlite":
        sqlalchemy.event.listen(engine, "begin", _begin_immediate)
    return engine


def need_driver(address: SqlAddress) -> None:
    """Raise MissingExtraError unless SQLAlchemy and the driver for `address` are installed. Imports neither."""
    extra, driver = _DRIVERS[address.kind]
    if any(find_spec(name) is None for name in ("sqlalchemy", driver)):
        raise MissingExtraError(f"the database {address.shown}", extra)


def _creator(
    address: SqlAddress, connect_timeout: float, read_timeout: float, lock_timeout: float
) -> tuple[Callable[[], Any], str]:
    """What makes a connection, and SQLAlchemy's name for the dialect."""
    if address.kind == "mysql":
        return _mysql(address, connect_timeout, read_timeout, lock_timeout), "mysql+pymysql"
    if address.kind == "postgresql":
        return _postgres(address, connect_timeout, read_timeout, lock_timeout), "postgresql+psycopg"
    return _sqlite(address, lock_timeout), "sqlite+pysqlite"


def _mysql(
    address: SqlAddress, connect_timeout: float, read_timeout: float, lock_timeout: float
) -> Callable[[], Any]:
    import pymysql
    from pymysql.constants import CLIENT

    options: dict[str, Any] = {k: v for k, v in address.options.items() if k != "charset"}
    for name in {"ssl_verify_identity", "ssl_verify_cert", "ssl_disabled"} & options.keys():
        options[name] = options[name].lower() in {"1", "true", "yes"}
    if address.hosts:
        options["host"], options["port"] = address.hosts[0]
    setup = (
        f"SET SESSION sql_mode='{_SQL_MODE}', time_zone='+00:00', "
        f"innodb_lock_wait_timeout={max(1, round(lock_timeout))}, lock_wait_timeout={max(1, round(lock_timeout))}"
    )

    def connect() -> Any:
        connection = pymysql.connect(
            user=address.user or None,
            password=address.password,
            database=address.database,
            charset="utf8mb4",
            init_command=setup,
            client_flag=CLIENT.FOUND_ROWS,
            binary_prefix=True,  # bytes are marked as such, not read as text of the session's character set
            local_infile=False,
            connect_timeout=connect_timeout,
            read_timeout=connect_timeout,
            write_timeout=connect_timeout,
            **options,
        )
        # PyMySQL's connect_timeout ends with TCP's handshake. A server that takes connections and greets nobody is away,
        # while an answer may well take longer than a greeting.
        connection._read_timeout = connection._write_timeout = read_timeout  # noqa: SLF001 - there is no other way
        return connection

    return connect


def _postgres(
    address: SqlAddress, connect_timeout: float, read_timeout: float, lock_timeout: float
) -> Callable[[], Any]:
    import psycopg

    options: dict[str, Any] = dict(address.options)
    if address.hosts:
        options["host"] = ",".join(host for host, _ in address.hosts)
        options["port"] = ",".join(str(port) for _, port in address.hosts)
    # Sent with the connection's first message, so they hold from the start and cost no round trip.
    session = f"-c TimeZone=UTC -c lock_timeout={max(1, round(lock_timeout * 1000))}"
    options["options"] = f"{options.get('options', '')} {session}".strip()
    idle = max(1, round(read_timeout / 4))
    prepare = options.pop("prepare_threshold", "5").lower()
    if not (prepare.isdecimal() or prepare == "none"):
        raise ConfigError(f"{address.shown}: prepare_threshold={prepare!r} is neither a number nor none")
    threshold = None if prepare == "none" else int(prepare)
    logging.getLogger("psycopg").addFilter(_told_already)

    def connect() -> Any:
        return psycopg.connect(
            user=address.user or None,
            password=address.password or None,
            dbname=address.database,
            client_encoding="utf-8",
            connect_timeout=max(2, round(connect_timeout)),  # libpq takes whole seconds, two at least
            keepalives_idle=idle,
            keepalives_interval=idle,
            keepalives_count=3,
            tcp_user_timeout=round(read_timeout * 1000),
            prepare_threshold=threshold,
            **{"application_name": "netspy", **options},
        )

    return connect


def _told_already(record: logging.LogRecord) -> bool:
    """The driver warns of what it also raises: an error among statements that were sent together."""
    return not str(record.msg).startswith("error ignored terminating")


def _sqlite(address: SqlAddress, lock_timeout: float) -> Callable[[], Any]:
    path = Path(address.database)

    def connect() -> sqlite3.Connection:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{address.shown}: its folder can't be made: {error}") from error
        db = sqlite_file.connect(path, lock_timeout)
        try:
            db.execute("PRAGMA foreign_keys=ON")
        except BaseException:
            db.close()
            raise
        return db

    return connect


def _begin_immediate(connection: Any) -> None:
    # A transaction that reads first and writes later fails at once when another one wrote in between, however long
    # it may wait for locks; so each takes the lock at its start.
    connection.exec_driver_sql("BEGIN IMMEDIATE")
