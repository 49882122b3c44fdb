"""What a database knows of one table: its columns, what they hold, and the keys that make a row unique."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from netspy.sqlio.address import Kind
    from netspy.sqlio.dialects import Dialect

Holds = Literal[
    "text",
    "binary",
    "integer",
    "float",
    "decimal",
    "boolean",
    "datetime",
    "datetimetz",
    "date",
    "time",
    "timetz",
    "interval",
    "json",
    "uuid",
    "array",
    "other",
]
_ASCII_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


class Column(NamedTuple):
    """One column. `declared` is the server's word for its type; `filled` means that the server gives a value where a
    row has none (a default, a counter, a generated column).
    """

    name: str
    holds: Holds
    declared: str
    nullable: bool = True
    filled: bool = False
    counter: bool = False


class Table(NamedTuple):
    """A table or view. `primary` and `uniques` are the keys: each a tuple of column names."""

    name: str
    columns: dict[str, Column]
    primary: tuple[str, ...] = ()
    uniques: tuple[tuple[str, ...], ...] = ()
    kind: Kind = "postgresql"

    @property
    def keys(self) -> tuple[tuple[str, ...], ...]:
        """All unique keys, the primary key first."""
        return ((self.primary,) if self.primary else ()) + self.uniques

    def column(self, field: str) -> Column | None:
        """The column of a field."""
        return self.columns.get(fold(field, self.kind))

    def has_key(self, names: tuple[str, ...]) -> bool:
        """Whether exactly these columns, in any order, make a row unique."""
        wanted = set(names)
        return any(set(key) == wanted for key in self.keys)


def fold(name: str, kind: Kind) -> str:
    """What makes column names equal: MySQL ignores case, SQLite that of A-Z, PostgreSQL doesn't."""
    if kind == "mysql":
        return name.lower()
    return name.translate(_ASCII_LOWER) if kind == "sqlite" else name


def reflect(connection: Connection, dialect: Dialect, name: str) -> Table | None:
    """The table of exactly this name in the connection's own database or search path; None when there is none.

    A dot in `name` is part of the name: a name that comes from a page reaches no other database or schema.
    """
    if not name or "\0" in name:
        return None
    if dialect.kind == "sqlite":
        return _sqlite(connection, name)
    from sqlalchemy import inspect
    from sqlalchemy.exc import NoSuchTableError

    inspector = inspect(connection)
    try:
        found: list[dict[str, Any]] = [dict(column) for column in inspector.get_columns(name)]
        primary = tuple(inspector.get_pk_constraint(name)["constrained_columns"])
        indexes = inspector.get_indexes(name)
    except NoSuchTableError:
        return None
    columns = {}
    for column in found:
        columns[fold(column["name"], dialect.kind)] = Column(
            column["name"],
            _holds(column["type"]),
            _declared(column["type"], connection),
            bool(column.get("nullable", True)),
            column.get("default") is not None
            or column.get("autoincrement") is True
            or bool(column.get("computed") or column.get("identity")),
            column.get("autoincrement") is True or bool(column.get("identity")),
        )
    uniques = []
    for index in indexes:
        parts = tuple(part for part in index["column_names"] if part is not None)
        options: dict[str, Any] = dict(index.get("dialect_options") or {})
        whole = len(parts) == len(index["column_names"]) and not options.get("postgresql_where")
        prefixes = options.get("mysql_length")
        if index["unique"] and whole and not prefixes and parts != primary:
            uniques.append(parts)
    return Table(name, columns, primary, tuple(dict.fromkeys(uniques)), dialect.kind)


def _declared(kind: Any, connection: Connection) -> str:
    from sqlalchemy.exc import CompileError

    try:
        return str(kind.compile(connection.dialect))
    except CompileError:  # a type that SQLAlchemy doesn't know
        return type(kind).__name__


def _holds(kind: Any) -> Holds:
    """SQLAlchemy's type as one of ours; subclasses first."""
    from sqlalchemy import types

    if type(kind).__name__ == "DOMAIN":
        return _holds(kind.data_type)
    if isinstance(kind, types.ARRAY):
        return "array"
    if isinstance(kind, types.JSON):
        return "json"
    if isinstance(kind, types.Uuid):
        return "uuid"
    if isinstance(kind, types.DateTime):
        return "datetimetz" if kind.timezone else "datetime"
    if isinstance(kind, types.Time):
        return "timetz" if kind.timezone else "time"
    simple: tuple[tuple[type, Holds], ...] = (
        (types.Boolean, "boolean"),
        (types.Interval, "interval"),
        (types.Date, "date"),
        (types.Integer, "integer"),
        (types.Float, "float"),
        (types.Numeric, "decimal"),
        (types._Binary, "binary"),  # noqa: SLF001 - the base of BLOB, BYTEA, VARBINARY has no public name
        (types.String, "text"),
    )
    for base, holds in simple:
        if isinstance(kind, base):
            return holds
    names: dict[str, Holds] = {"INTERVAL": "interval", "YEAR": "integer"}
    return names.get(type(kind).__name__, "other")


def _sqlite(connection: Connection, name: str) -> Table | None:
    found = connection.exec_driver_sql(
        "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name = ? COLLATE NOCASE", (name,)
    ).scalar()
    if found is None:
        return None
    columns, primary = {}, []
    info = connection.exec_driver_sql(
        'SELECT name, type, "notnull", dflt_value, pk, hidden FROM pragma_table_xinfo(?)', (found,)
    ).all()
    counters = sum(1 for row in info if row[4]) == 1
    for column, declared, notnull, default, place, hidden in info:
        counter = bool(place) and counters and declared.upper() == "INTEGER"
        columns[fold(column, "sqlite")] = Column(
            column,
            _sqlite_holds(declared),
            declared,
            not notnull,
            default is not None or counter or bool(hidden),
            counter,
        )
        if place:
            primary.append((place, column))
    indexes = connection.exec_driver_sql(
        "SELECT name FROM pragma_index_list(?) WHERE \"unique\" AND NOT partial AND origin <> 'pk'", (found,)
    ).all()
    uniques = []
    for (index,) in indexes:
        parts = connection.exec_driver_sql("SELECT name FROM pragma_index_info(?)", (index,)).scalars().all()
        if None not in parts:
            uniques.append(tuple(parts))
    return Table(found, columns, tuple(c for _, c in sorted(primary)), tuple(uniques), "sqlite")


def _sqlite_holds(declared: str) -> Holds:
    """For people (`netspy create`): what the declared word means. SQLite itself goes by affinity."""
    kind = declared.upper()
    words: tuple[tuple[tuple[str, ...], Holds], ...] = (
        (("BOOL",), "boolean"),
        (("INT",), "integer"),
        (("CHAR", "CLOB", "TEXT"), "text"),
        (("BLOB",), "binary"),
        (("REAL", "FLOA", "DOUB"), "float"),
        (("DATETIME", "TIMESTAMP"), "datetime"),
        (("DATE",), "date"),
        (("TIME",), "time"),
        (("JSON",), "json"),
        (("DEC", "NUMERIC"), "decimal"),
    )
    return next((holds for parts, holds in words if any(part in kind for part in parts)), "other")
