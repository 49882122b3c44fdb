"""How MySQL, MariaDB, PostgreSQL and SQLite differ in the SQL that netspy writes. Text only, no I/O.

The text is for `connection.exec_driver_sql(text, parameters)`. Names that are quoted here have their `%` doubled
where the driver wants that, which holds whenever parameters are passed, an empty tuple included.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from netspy.errors import ItemError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from netspy.sqlio.address import Kind

OnConflict = Literal["update", "nothing", "error"]


class Dialect(NamedTuple):
    """One server's SQL. `version` is empty until a connection told it; `mariadb` tells the two MySQLs apart."""

    kind: Kind
    version: tuple[int, ...] = ()
    mariadb: bool = False

    @property
    def mark(self) -> str:
        """The place of a parameter."""
        return "?" if self.kind == "sqlite" else "%s"

    @property
    def skip_locked(self) -> str:
        """What to append to a SELECT to lock its rows and pass over rows locked by others; "" on SQLite, where a
        transaction has the whole file. Servers before MySQL 8.0.1 and MariaDB 10.6 wait for the rows instead.
        """
        if self.kind == "sqlite":
            return ""
        if self.kind == "mysql" and self.version and self.version < ((10, 6) if self.mariadb else (8, 0, 1)):
            return " FOR UPDATE"
        return " FOR UPDATE SKIP LOCKED"

    @property
    def now(self) -> str:
        """The server's clock as a UTC date and time without a zone, to the microsecond (SQLite: millisecond text)."""
        if self.kind == "mysql":
            return "UTC_TIMESTAMP(6)"
        if self.kind == "postgresql":
            return "(clock_timestamp() AT TIME ZONE 'UTC')"
        return "strftime('%Y-%m-%d %H:%M:%f', 'now')"

    @property
    def epoch(self) -> str:
        """The server's clock in seconds since 1970, with fractions."""
        if self.kind == "mysql":
            return "(UNIX_TIMESTAMP(SYSDATE(6)) + 0e0)"
        if self.kind == "postgresql":
            return "extract(epoch FROM clock_timestamp())::float8"
        return "((julianday('now') - 2440587.5) * 86400.0)"

    def quote(self, name: str) -> str:
        """An identifier, safe whatever it contains. Raises ItemError for a name that no such server can have."""
        if not name or "\0" in name:
            raise ItemError(f"{name!r} can't be the name of a table or column")
        if self.kind == "mysql":
            if len(name) > 64 or name[-1] == " " or max(name) > "\uffff":
                raise ItemError(
                    f"{name[:80]!r} can't be a name in MySQL: at most 64 characters, none beyond U+FFFF, no space "
                    "at the end"
                )
            return "`" + name.replace("`", "``").replace("%", "%%") + "`"
        try:
            size = len(name.encode())
        except UnicodeEncodeError:
            raise ItemError(f"{name!r} holds half a surrogate pair, so it can't be a name") from None
        quoted = '"' + name.replace('"', '""') + '"'
        if self.kind == "sqlite":
            return quoted
        if size > 63:  # the server would cut it silently, and two names could become one
            raise ItemError(
                f"{name[:80]!r} can't be a name in PostgreSQL: it has {size} bytes, 63 are allowed"
            )
        return quoted.replace("%", "%%")

    def insert(self, table: str, columns: Sequence[str], rows: int = 1) -> str:
        """INSERT of `rows` rows into the quoted name `table`."""
        names = ", ".join(map(self.quote, columns))
        one = f"({', '.join([self.mark] * len(columns))})"
        return f"INSERT INTO {table} ({names}) VALUES {', '.join([one] * rows)}"  # noqa: S608 (quoted)

    def on_conflict(self, columns: Sequence[str], keys: Sequence[str], action: OnConflict) -> str:
        """What follows an INSERT of `columns` so that a row that is there (with equal `keys`) is updated or left alone.

        MySQL goes by all unique keys of the table whatever `keys` says. With "nothing" on the others, `keys` may be
        empty: any unique key counts.
        """
        if action == "error":
            return ""
        rest = [name for name in columns if name not in keys]
        if self.kind == "mysql":
            # INSERT IGNORE would also turn values that don't fit into others.
            same = self.quote(keys[0] if keys else columns[0])
            changes = [f"{c} = VALUES({c})" for c in map(self.quote, rest)] if action == "update" else []
            return f" ON DUPLICATE KEY UPDATE {', '.join(changes) or f'{same} = {same}'}"
        target = f" ({', '.join(map(self.quote, keys))})" if keys else ""
        if action == "nothing" or not rest or not keys:
            return f" ON CONFLICT{target} DO NOTHING"
        changes = [f"{c} = excluded.{c}" for c in map(self.quote, rest)]
        return f" ON CONFLICT{target} DO UPDATE SET {', '.join(changes)}"

    def update(self, table: str, columns: Sequence[str], keys: Sequence[str]) -> str:
        """UPDATE of `columns` where `keys` equal the parameters that follow; NULL equals nothing."""
        changes = ", ".join(f"{self.quote(c)} = {self.mark}" for c in columns)
        found = " AND ".join(f"{self.quote(k)} = {self.mark}" for k in keys)
        return f"UPDATE {table} SET {changes} WHERE {found}"  # noqa: S608 (quoted)


def dialect_of(connection: Connection) -> Dialect:
    """The dialect of a connection's server, with its version."""
    found = connection.dialect
    kind: Kind = (
        "postgresql" if found.name == "postgresql" else "sqlite" if found.name == "sqlite" else "mysql"
    )
    version = tuple(part for part in (found.server_version_info or ()) if isinstance(part, int))
    return Dialect(kind, version, bool(getattr(found, "is_mariadb", False)))
