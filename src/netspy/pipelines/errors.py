"""What a pipeline's error says: are the rows at fault, is the store away, and is it the same cause as before."""

from __future__ import annotations

import errno
import re
import socket
import sqlite3

from netspy.errors import ConfigError, ItemError, PipelineError, message_of
from netspy.policy.failed_record import MAX_ERROR_CHARS
from netspy.settings import without_passwords
from netspy.sqlio import errors as sql

_ROWS = frozenset({"IntegrityError", "DataError"})
_AWAY = frozenset(
    {
        *("OperationalError", "InterfaceError"),  # PEP 249
        *("AutoReconnect", "ServerSelectionTimeoutError", "NetworkTimeout", "NotPrimaryError"),  # PyMongo
        *("ConnectionError", "ConnectionTimeout", "TimeoutError", "ReadTimeoutError"),  # redis-py, elastic
        *(
            "ReadOnlyError",
            "ClusterDownError",
            "MasterDownError",
            "TryAgainError",
            "OutOfMemoryError",
        ),  # redis-py
        *("EndpointConnectionError", "ConnectTimeoutError", "ConnectionClosedError"),  # botocore
        *("NetworkError", "TimeoutException", "RemoteProtocolError"),  # httpx
        *(
            "ClientConnectionError",
            "MaxRetryError",
            "ProtocolError",
            "AMQPConnectionError",
        ),  # aiohttp, urllib3, AMQP
    }
)
_BUSY = frozenset({408, 425, 429, 502, 503, 504, 507})
_THROTTLED = re.compile(
    r"SlowDown|Throttl|RequestLimit|ThroughputExceeded|TooManyRequests|ServiceUnavailable"
)
_PASSING = frozenset(
    getattr(errno, name)
    for name in (
        "ENOSPC", "EDQUOT", "EFBIG", "EIO", "EAGAIN", "EBUSY", "EMFILE", "ENFILE", "ENOMEM", "ENOBUFS", "ESTALE", "EROFS",
        "ENETDOWN", "ENETUNREACH", "EHOSTDOWN", "EHOSTUNREACH",
    )
    if hasattr(errno, name)
)  # fmt: skip
_LASTING = frozenset(
    {errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP}
)
_CODE = (TypeError, AttributeError, NameError, ImportError, ItemError, NotImplementedError, ConfigError)
_STATEMENT = re.compile(
    r"no such |near |table |too many |duplicate column|has no column"
)  # SQLite, at its code 1
_VARIABLE = re.compile(r"""'[^']*'|"[^"]*"|`[^`]*`|0x[0-9a-fA-F]+|\d+""")
_CAUSE_CHARS = 200


class UnavailableError(PipelineError):
    """The pipeline can't be used at the moment, whatever the rows are: splitting the batch would not help.

    Its `__cause__` tells why. A pipeline may raise it when it knows that its store is away.
    """


class UnusableError(UnavailableError):
    """The store can't be used as it is, and waiting doesn't mend that: a file of another kind, for instance.

    All rows fail at once: no second try, and no part of the batch alone.
    """


def rows_fault(error: BaseException) -> bool:
    """Whether the same rows would fail again: an ItemError, a driver's word for it (PEP 249), or a store that is unusable."""
    if isinstance(error, UnavailableError):
        return isinstance(error, UnusableError) or _lasting(error.__cause__)
    if _lasting(error) or isinstance(error, ItemError | NotImplementedError):
        return True
    return sql.data_error(error) if _has_code(error) else _has_name(error, _ROWS)


def store_away(error: BaseException) -> bool:
    """Whether the store doesn't answer or takes nothing, so that waiting may help: it is down, full, or failing over.

    An error of a kind that is not known isn't: it may be a mistake in a pipeline, and no crawl waits for that.
    """
    if isinstance(error, UnusableError):
        return False
    if isinstance(error, UnavailableError):
        if isinstance(error.__cause__, UnusableError):
            return False
        if error.__cause__ is None:
            return True  # a call ran out of time
        error = error.__cause__
        if not isinstance(error, OSError):  # out of `open`, where raising means "not now"
            return not (isinstance(error, _CODE) or rows_fault(error) or _is_statement(error))
    status, code = _answer(error)
    if status or code:
        return status in _BUSY or _THROTTLED.search(code) is not None
    if isinstance(error, OSError):
        # A wrong path or a missing permission stays as it is; a connection, a full disk and the like may pass.
        return (
            isinstance(error, ConnectionError | TimeoutError | socket.gaierror)
            or error.errno is None
            or error.errno in _PASSING
        )
    if _has_code(error):
        damaged = isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError)
        return not damaged and (sql.transient(error) or sql.setup_error(error))
    return isinstance(error, EOFError) or (_has_name(error, _AWAY) and not _is_statement(error))


def may_be_the_row(error: BaseException) -> bool:
    """Whether an error that says that the store is away may also come of one row: what a server can't bear (a statement
    that is too long for it, say) often ends the connection, and nothing else. A store that is full or busy says so.
    """
    if isinstance(error, UnavailableError | ConnectionRefusedError) or any(_answer(error)):
        return False
    if isinstance(error, OSError):
        return isinstance(error, ConnectionError)
    from_database = _has_code(error) or isinstance(sql.driver_error(error), sqlite3.Error)
    return sql.connection_lost(error) if from_database else True


def _lasting(cause: BaseException | None) -> bool:
    """Whether it stays until a person mends its cause: a wrong path, a missing permission, a wrong setting."""
    return isinstance(cause, UnusableError | ConfigError) or (
        isinstance(cause, OSError) and cause.errno in _LASTING
    )


def text_of(error: BaseException) -> str:
    """The error for a log line or a dead letter: type and message, bounded, without passwords."""
    return without_passwords(f"{type(error).__name__}: {message_of(error)}")[:MAX_ERROR_CHARS]


def cause_of(text: str) -> str:
    """The error's text without what differs from row to row: numbers and quoted values."""
    return _VARIABLE.sub("…", text[: 2 * _CAUSE_CHARS])[:_CAUSE_CHARS]


def _is_statement(error: BaseException) -> bool:
    """SQLite says OperationalError for a wrong statement, too."""
    inner = getattr(error, "orig", None) or error
    return isinstance(inner, sqlite3.OperationalError) and _STATEMENT.match(str(inner)) is not None


def _answer(error: BaseException) -> tuple[int, str]:
    """The HTTP status, and the code of the service, of an answer that a client library made an error of; 0 and ''."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # botocore
        found = response.get("ResponseMetadata"), response.get("Error")
        status, code = (part if isinstance(part, dict) else {} for part in found)
        return _whole(status.get("HTTPStatusCode")), str(code.get("Code", ""))
    for holder in (response, getattr(error, "meta", None), error):
        for name in ("status_code", "status"):
            if status_code := _whole(getattr(holder, name, None)):
                return status_code, ""
    return 0, ""


def _whole(value: object) -> int:
    return value if isinstance(value, int) and 100 <= value <= 599 else 0


def _has_code(error: BaseException) -> bool:
    """Whether a database's driver tells a code: PyMySQL, for one, calls most of what a server refuses OperationalError."""
    return bool(sql.error_code(sql.driver_error(error)))


def _has_name(error: BaseException, names: frozenset[str]) -> bool:
    # By name: the drivers need not be installed, or imported, to be recognised.
    return any(kind.__name__ in names for kind in type(error).__mro__)
