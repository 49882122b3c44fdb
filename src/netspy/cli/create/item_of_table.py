"""An item class for a table that is there: `netspy create -i NAME --table T --url URL`."""

from __future__ import annotations

import json
import keyword
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from netspy import settings as settings_module
from netspy.cli.output import say
from netspy.errors import ConfigError, MissingExtraError
from netspy.messages.item import Item, UpdateItem
from netspy.sqlio import errors as sql_errors
from netspy.sqlio.address import SqlAddress, mysql_address, postgres_address, read_url
from netspy.sqlio.dialects import dialect_of
from netspy.sqlio.engine import make_engine
from netspy.sqlio.reflection import reflect

if TYPE_CHECKING:
    from netspy.settings import Settings
    from netspy.sqlio.reflection import Column, Holds, Table


class _Type(NamedTuple):
    """A Python type: how it is written, and the module it is imported from (empty: none)."""

    name: str
    module: str = ""


_TYPES: dict[Holds, _Type] = {
    "text": _Type("str"),
    "binary": _Type("bytes"),
    "integer": _Type("int"),
    "float": _Type("float"),
    "decimal": _Type("Decimal", "decimal"),
    "boolean": _Type("bool"),
    "datetime": _Type("datetime", "datetime"),
    "datetimetz": _Type("datetime", "datetime"),
    "date": _Type("date", "datetime"),
    "time": _Type("time", "datetime"),
    "timetz": _Type("time", "datetime"),
    "interval": _Type("timedelta", "datetime"),
    "json": _Type("dict | list"),
    "uuid": _Type("UUID", "uuid"),
    "array": _Type("list"),
    "other": _Type("Any", "typing"),
}
_TAKEN = frozenset(name for base in (Item, UpdateItem) for name in vars(base))
_WIDTH = 88  # of the formatters' defaults


def address_of(option: str, value: str) -> SqlAddress:
    """The database that `--url` or `--mysql` names: a URL, or `mysql`, `postgres` or `sql` for what the settings say.

    Raises ConfigError.
    """
    words = {"mysql", "postgres", "sql"}
    if value not in words:
        found = read_url(value, origin=option)
    else:
        settings = settings_module.load().settings
        if value == "mysql":
            found = mysql_address(settings)
        elif value == "postgres":
            found = postgres_address(settings)
        elif settings.SQL_URL:
            found = read_url(settings.SQL_URL, origin="SQL_URL")
        else:
            raise ConfigError(f"{option} sql takes the database of the setting SQL_URL, which is empty")
    if option == "--mysql" and found.kind != "mysql":
        raise ConfigError(f"--mysql wants a MySQL or MariaDB database, not {found.shown}; use --url")
    return found


def table_of_settings(name: str) -> Table | None:
    """The table in a database that the project's pipelines store in; None, with a line that says so, when it is in none.

    Raises ConfigError for wrong settings.
    """
    for address in _stores(settings_module.load().settings):
        try:
            table = read_table(address, name)
        except (ConfigError, MissingExtraError) as error:
            say(f"{error}; the fields are examples")
        else:
            say(f"fields, types and key are those of the table in {address.shown}")
            return table
    return None


def _stores(settings: Settings) -> list[SqlAddress]:
    """The databases of ITEM_PIPELINES, and that of SQL_URL."""
    found: list[SqlAddress] = []
    wanted = {path.replace(":", "."): path for path in settings.ITEM_PIPELINES}
    if "netspy.pipelines.mysql.MysqlPipeline" in wanted:
        found.append(mysql_address(settings))
    if "netspy.pipelines.postgres.PostgresPipeline" in wanted:
        found.append(postgres_address(settings))
    if settings.SQL_URL:
        found.append(read_url(settings.SQL_URL, origin="SQL_URL"))
    if "netspy.pipelines.sqlite.SqlitePipeline" in wanted:
        found.append(SqlAddress("sqlite", database=settings.SQLITE_PATH))
    return found


def read_table(address: SqlAddress, name: str) -> Table:
    """The table as the database knows it. Raises ConfigError when it can't be read or isn't there."""
    if address.kind == "sqlite" and not Path(address.database).is_file():
        raise ConfigError(f"there is no file {address.database}")  # connecting would make one
    engine = make_engine(address, pool_size=1)
    try:
        with engine.connect() as connection:
            table = reflect(connection, dialect_of(connection), name)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"{address.shown} can't be read: {sql_errors.one_line(error)}") from None
    finally:
        engine.dispose()
    if table is None:
        raise ConfigError(
            f"{address.shown} has no table {name!r}; check the name, upper and lower case included"
        )
    return table


def item_module(class_name: str, table: Table) -> str:
    """The text of a module with an item class: fields with types, and the key that makes a row unique."""
    fields, left_out, odd, unfit = [], [], [], []
    used: list[_Type] = []
    for column in table.columns.values():
        kind = _TYPES["boolean"] if column.declared.lower() == "tinyint(1)" else _TYPES[column.holds]
        if column.name in _TAKEN or column.name.startswith("_"):
            unfit.append(column)
        elif not _is_field(column.name):
            odd.append(column)
        elif column.filled:
            left_out.append(f"    # {column.name}: {kind.name}{_note(column)}")
        else:
            none = "" if not column.nullable else " = None" if kind.name == "Any" else " | None = None"
            fields.append(f"    {column.name}: {kind.name}{none}")
            used.append(kind)
    key = _key(table)
    text = [f'"""{class_name}: one row of the table {_in_docstring(table.name)}."""', ""]
    text += _imports(used)
    text += ["import netspy as mw", "", ""]
    text += [f"class {class_name}(mw.Item):"]
    text += [
        '    """Give the fields as keywords. A field with None as default is NULL when not given."""',
        "",
    ]
    text += [f"    __table_name__ = {_literal(table.name)}"]
    if key:
        text += _wrap_call("    __unique_key__ = ", [_literal(name) for name in key])
    else:
        text += ["    # The table has no unique key: a row that is delivered twice is there twice."]
    if fields:
        text += ["", *fields]
    if left_out:
        text += ["", "    # The database fills these when they are not given:", *left_out]
    text += _list("No Python names, so they are given as `item[name] = value`:", odd)
    text += _list("No field can have these names; they are NULL, or what the database fills in:", unfit)
    return "\n".join(text) + "\n"


def _list(title: str, columns: list[Column]) -> list[str]:
    """Comment lines; none without columns."""
    lines = [
        f"    # {_literal(column.name)}: {_TYPES[column.holds].name}{_note(column)}" for column in columns
    ]
    return ["", f"    # {title}", *lines] if lines else []


def _is_field(name: str) -> bool:
    return (
        name.isidentifier()
        and name.isascii()
        and not keyword.iskeyword(name)
        and name != "self"  # of the constructor
        and all(name != kind.name for kind in _TYPES.values())  # `date: date | None` would hide the type
    )


def _key(table: Table) -> tuple[str, ...]:
    """The first key whose columns the crawl knows: not one that the database counts."""
    counted = {column.name for column in table.columns.values() if column.counter}
    return next((key for key in table.keys if not counted & set(key)), ())


def _note(column: Column) -> str:
    if column.counter:
        return "  (a counter)"
    return "  (has a default)" if column.filled else ""


def _imports(used: list[_Type]) -> list[str]:
    lines = [
        f"from {module} import {', '.join(sorted({kind.name for kind in used if kind.module == module}))}"
        for module in sorted({kind.module for kind in used if kind.module})
    ]
    return [*lines, ""] if lines else []


def _literal(text: str) -> str:
    """A Python string in double quotes, whatever it contains."""
    return json.dumps(text, ensure_ascii=not text.isprintable())


def _wrap_call(start: str, parts: list[str]) -> list[str]:
    line = f"{start}({', '.join(parts)}{',' if len(parts) == 1 else ''})"
    if len(line) <= _WIDTH:
        return [line]
    return [f"{start}(", *(f"        {part}," for part in parts), "    )"]


def _in_docstring(name: str) -> str:
    plain = name if name.isprintable() else ascii(name)[1:-1]
    return plain.replace("\\", "/").replace('"', "'")
