"""A SQL database for a spider's own queries, on SQLAlchemy's connection pool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from netspy.errors import ConfigError
from netspy.settings import load
from netspy.sqlio.address import read_url
from netspy.sqlio.engine import make_engine

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from netspy.settings import Settings
    from netspy.sqlio.address import SqlAddress

    Parameters = Sequence[Any] | Mapping[str, Any] | None


class SqlDB:
    """Queries as text, in the driver's own style (`%s` with a sequence, `%(name)s` with a dict); rows as dicts.

    Each call is a transaction of its own, committed when it returns. It may be used by several threads. Connections are made
    when they are needed. Raises ConfigError for a wrong address, MissingExtraError without the driver, and the errors of
    SQLAlchemy.
    """

    def __init__(self, url: str | SqlAddress, *, pool_size: int = 5) -> None:
        """`url`: mysql://, postgresql:// or sqlite:///path."""
        self.address = read_url(url) if isinstance(url, str) else url
        self._engine = make_engine(self.address, pool_size=pool_size)

    def query(self, sql: str, parameters: Parameters = None) -> list[dict[str, Any]]:
        """All rows of a SELECT."""
        with self._engine.begin() as connection:
            found = connection.exec_driver_sql(sql, _sent(parameters))
            return [dict(row) for row in found.mappings()] if found.returns_rows else []

    def query_one(self, sql: str, parameters: Parameters = None) -> dict[str, Any] | None:
        """The first row of a SELECT; None when there is none."""
        with self._engine.begin() as connection:
            row = connection.exec_driver_sql(sql, _sent(parameters)).mappings().first()
            return None if row is None else dict(row)

    def execute(self, sql: str, parameters: Parameters = None) -> int:
        """Run a statement; how many rows it changed."""
        with self._engine.begin() as connection:
            return int(connection.exec_driver_sql(sql, _sent(parameters)).rowcount)

    def executemany(self, sql: str, rows: Sequence[Sequence[Any] | Mapping[str, Any]]) -> int:
        """Run a statement once for each of `rows`, in one transaction; how many rows were changed."""
        if not rows:
            return 0
        sent: Any = [_sent(row) for row in rows]
        with self._engine.begin() as connection:
            return int(connection.exec_driver_sql(sql, sent).rowcount)

    def insert(self, table: str, rows: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> int:
        """Insert one row or several with the same columns; how many."""
        from sqlalchemy import column, insert
        from sqlalchemy import table as named

        many = [dict(rows)] if hasattr(rows, "keys") else [dict(row) for row in rows]
        if not many:
            return 0
        with self._engine.begin() as connection:
            target = named(table, *(column(name) for name in many[0]))
            return int(connection.execute(insert(target), many).rowcount)

    def close(self) -> None:
        """Close the connections that no call uses."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address.shown})"


def _sent(parameters: Parameters) -> Any:
    """As a driver wants them: a tuple, or a dict."""
    if parameters is None:
        return None
    if isinstance(parameters, str | bytes):
        raise ConfigError(
            f"parameters={parameters!r:.80}: give a tuple or a dict, such as ({parameters!r:.80},)"
        )
    return dict(parameters) if hasattr(parameters, "keys") else tuple(parameters)


def project_settings(**given: Any) -> Settings:
    """The project's settings, with those that are given (None: the project's). Raises ConfigError."""
    return load(overrides={name: value for name, value in given.items() if value is not None}).settings
