"""What a database knows of one table: its columns, what they hold, and the keys that make a row unique."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from netspy.sqlio.sqlite_file import has_other_collation

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
    row has none (a default, a counter, a generated column). `length`: the most characters, of a VARCHAR and the like.
    `element`: what an array consists of. `folds`: texts that differ may be equal there (in case, accents and the like), by
    the rules of `collation`. `scale`: the most digits behind the point; None: any number.
    """

    name: str
    holds: Holds
    declared: str
    nullable: bool = True
    filled: bool = False
    counter: bool = False
    length: int | None = None
    element: Column | None = None
    folds: bool = False
    scale: int | None = None
    collation: str = ""


class Table(NamedTuple):
    """A table or view. `primary` and `uniques` are the keys: each a tuple of column names.

    `null_keys`: those of them in which one NULL equals another. `deferred`: the table has a unique constraint that is
    checked later; it is no key, and an INSERT that goes by any key of the table fails because of it.
    """

    name: str
    columns: dict[str, Column]
    primary: tuple[str, ...] = ()
    uniques: tuple[tuple[str, ...], ...] = ()
    kind: Kind = "postgresql"
    null_keys: tuple[tuple[str, ...], ...] = ()
    deferred: bool = False

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
    if dialect.kind == "mysql":
        return _mysql(connection, dialect, name)
    from sqlalchemy import inspect
    from sqlalchemy.exc import NoSuchTableError, SAWarning

    inspector = inspect(connection)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", SAWarning
            )  # a type that it doesn't know: we hand the server text then
            found: list[dict[str, Any]] = [dict(column) for column in inspector.get_columns(name)]
        primary = tuple(inspector.get_pk_constraint(name)["constrained_columns"])
        indexes = inspector.get_indexes(name)
    except NoSuchTableError:
        return None
    folding, late, nulls_equal = _postgres_more(connection, dialect, name)
    if inspector.get_pk_constraint(name)["name"] in late:
        primary = ()
    columns = {}
    for column in found:
        columns[column["name"]] = Column(
            column["name"],
            _holds(column["type"]),
            _declaration(column["type"], connection),
            bool(column.get("nullable", True)),
            column.get("default") is not None or bool(column.get("computed") or column.get("identity")),
            column.get("autoincrement") is True or bool(column.get("identity")),
            _length(column["type"]),
            _element(column["type"], connection),
            folds=column["name"] in folding,
            scale=_scale(column["type"]),
        )
    uniques = []
    null_keys = []
    for index in indexes:
        parts = tuple(part for part in index["column_names"] if part is not None)
        options: dict[str, Any] = dict(index.get("dialect_options") or {})
        whole = len(parts) == len(index["column_names"]) and options.get("postgresql_where") is None
        if index["unique"] and whole and parts != primary and index["name"] not in late:
            uniques.append(parts)
            if index["name"] in nulls_equal:
                null_keys.append(parts)
    return Table(
        name,
        columns,
        primary,
        tuple(dict.fromkeys(uniques)),
        null_keys=tuple(null_keys),
        deferred=bool(late),
    )


def _postgres_more(
    connection: Connection, dialect: Dialect, name: str
) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """What SQLAlchemy doesn't tell: columns in which different texts may be equal; unique indexes that are checked later or
    not at all; and those in which NULLs are equal.
    """
    quoted = '"' + name.replace('"', '""') + '"'
    apart = "co.collisdeterministic" if dialect.version >= (12,) else "true"
    columns = connection.exec_driver_sql(
        "SELECT a.attname FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid "  # noqa: S608 (no values in it)
        "LEFT JOIN pg_type b ON b.oid = t.typbasetype LEFT JOIN pg_collation co ON co.oid = a.attcollation "
        "WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 "
        f"AND ('citext' IN (t.typname, b.typname) OR NOT coalesce({apart}, true))",
        (quoted,),
    ).scalars()
    nulls = "i.indnullsnotdistinct" if dialect.version >= (15,) else "false"
    indexes = connection.exec_driver_sql(
        f"SELECT c.relname, i.indimmediate AND i.indisvalid, {nulls} FROM pg_index i "  # noqa: S608 (no values in it)
        "JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indisunique AND i.indrelid = to_regclass(%s)",
        (quoted,),
    ).all()
    late = frozenset(index for index, usable, _ in indexes if not usable)
    return frozenset(columns), late, frozenset(index for index, _, equal in indexes if equal)


def _length(kind: Any) -> int | None:
    from sqlalchemy import Enum, String

    return kind.length if isinstance(kind, String) and not isinstance(kind, Enum) else None


def _element(kind: Any, connection: Connection) -> Column | None:
    from sqlalchemy import types

    if not isinstance(kind, types.ARRAY):
        return None
    inner = kind.item_type
    return Column(
        "", _holds(inner), _declaration(inner, connection), length=_length(inner), scale=_scale(inner)
    )


def _scale(kind: Any) -> int | None:
    from sqlalchemy import types

    if type(kind).__name__ == "DOMAIN":
        return _scale(kind.data_type)
    if type(kind).__name__ == "MONEY":
        return 2
    if not isinstance(kind, types.Numeric) or isinstance(kind, types.Float) or kind.precision is None:
        return None
    return kind.scale or 0


def _declaration(kind: Any, connection: Connection) -> str:
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
    names: dict[str, Holds] = {"INTERVAL": "interval", "MONEY": "decimal"}
    return names.get(type(kind).__name__, "other")


_MYSQL_HOLDS: dict[Holds, frozenset[str]] = {
    "text": frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set"}),
    "binary": frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"}),
    "integer": frozenset({"tinyint", "smallint", "mediumint", "int", "bigint", "year"}),
    "float": frozenset({"float", "double"}),
    "decimal": frozenset({"decimal"}),
    "datetime": frozenset({"datetime", "timestamp"}),
    "date": frozenset({"date"}),
    "time": frozenset({"time"}),
    "json": frozenset({"json"}),
    "uuid": frozenset({"uuid"}),
}


def _mysql(connection: Connection, dialect: Dialect, name: str) -> Table | None:
    """By information_schema: SQLAlchemy's reader of SHOW CREATE TABLE misreads names with a backtick."""
    rows = connection.exec_driver_sql(
        "SELECT table_name, column_name, data_type, column_type, is_nullable, column_default, extra, "
        "character_maximum_length, collation_name, numeric_scale "
        "FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = %s "
        "ORDER BY ordinal_position",
        (name,),
    ).all()
    # The comparison may ignore case and accents where the server's table names don't.
    ignores_case = bool(connection.exec_driver_sql("SELECT @@lower_case_table_names").scalar_one())
    rows = [row for row in rows if row[0] == name or (ignores_case and row[0].lower() == name.lower())]
    if not rows:
        return None
    json = _mariadb_json(connection, rows[0][0]) if dialect.mariadb else frozenset[str]()
    columns = {}
    for _, column, kind, declared, nullable, default, extra, length, collation, scale in rows:
        counter = "auto_increment" in extra.lower()
        made = counter or "generated" in extra.lower() or "on update" in extra.lower()
        holds: Holds = next((h for h, names in _MYSQL_HOLDS.items() if kind.lower() in names), "other")
        if column in json:
            holds = "json"
        columns[fold(column, "mysql")] = Column(
            column,
            holds,
            declared,
            nullable == "YES",
            made or default not in {None, "NULL"},  # MariaDB gives the expression, MySQL no row value
            counter,
            length if kind.lower() in {"char", "varchar"} else None,
            folds=bool(collation) and not collation.endswith(("_bin", "binary")),
            scale=int(scale) if holds == "decimal" else None,
            collation=collation or "",
        )
    keys: dict[str, list[tuple[str, Any]]] = {}
    for index, column, part in connection.exec_driver_sql(
        "SELECT index_name, column_name, sub_part FROM information_schema.statistics "
        "WHERE table_schema = DATABASE() AND table_name = %s AND non_unique = 0 ORDER BY index_name, seq_in_index",
        (rows[0][0],),
    ):
        keys.setdefault(index, []).append((column, part))
    # A key over the start of a column, or over an expression, is stricter than one over the columns.
    whole = {
        index: tuple(column for column, _ in parts)
        for index, parts in keys.items()
        if all(column is not None and part is None for column, part in parts)
    }
    primary = whole.pop("PRIMARY", ())
    return Table(rows[0][0], columns, primary, tuple(dict.fromkeys(whole.values())), "mysql")


def _mariadb_json(connection: Connection, table: str) -> frozenset[str]:
    """MariaDB declares a JSON column as LONGTEXT with a check of the column's own name."""
    found = connection.exec_driver_sql(
        "SELECT constraint_name, check_clause FROM information_schema.check_constraints "
        "WHERE constraint_schema = DATABASE() AND table_name = %s",
        (table,),
    )
    return frozenset(name for name, clause in found if clause.lower().startswith("json_valid("))


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
        "SELECT l.name, i.sql, t.sql FROM pragma_index_list(?) l JOIN sqlite_master i ON i.name = l.name "
        "JOIN sqlite_master t ON t.name = i.tbl_name WHERE l.\"unique\" AND NOT l.partial AND l.origin <> 'pk'",
        (found,),
    ).all()
    uniques = []
    for index, index_sql, table_sql in indexes:
        parts = connection.exec_driver_sql("SELECT name FROM pragma_index_info(?)", (index,)).scalars().all()
        if None not in parts and not has_other_collation(index_sql, table_sql):
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
