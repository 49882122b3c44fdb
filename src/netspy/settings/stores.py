"""Settings of the stores that items go to."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from netspy.settings.declaring import described
from netspy.settings.items import ItemSettings

_doc = described("stores")


class StoreSettings(ItemSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of `Settings`."""

    ITEM_AUTO_CREATE_TABLE: Annotated[
        bool, _doc("SQL pipelines make a missing table from the first batch's fields.")
    ] = False
    ITEM_UNKNOWN_COLUMNS: Annotated[
        Literal["drop", "json", "add", "error"],
        _doc(
            "A field without a column in an SQL table: left out and reported, kept in ITEM_EXTRA_COLUMN, added to the "
            "table, or a failure of its row."
        ),
    ] = "drop"
    ITEM_EXTRA_COLUMN: Annotated[
        str, _doc("Column that ITEM_UNKNOWN_COLUMNS=json keeps fields in, as one JSON object.")
    ] = "extra"
    ITEM_UPDATE_UPSERT: Annotated[
        bool, _doc("An UpdateItem that finds no row is inserted (SQL); off: it is a failure of that row.")
    ] = False
    SQL_URL: Annotated[
        str, _doc("Database of SqlPipeline: mysql://, postgresql:// or sqlite:///path.", "URL")
    ] = ""
    SQL_POOL_SIZE: Annotated[
        int, _doc("The most connections a process opens to SQL_URL.", "connections", ge=1)
    ] = 5
    SQL_ON_CONFLICT: Annotated[
        Literal["update", "nothing", "error"],
        _doc("SqlPipeline and a row whose key is there: overwrite its fields, leave it, or fail."),
    ] = "update"
    MYSQL_HOST: Annotated[str, _doc("MySQL or MariaDB server: a host, or a socket's path.")] = "localhost"
    MYSQL_PORT: Annotated[int, _doc("Its port.", ge=1)] = 3306
    MYSQL_USER: Annotated[str, _doc("The user there.")] = "root"
    MYSQL_PASSWORD: Annotated[str, _doc("The user's password.")] = ""
    MYSQL_DB: Annotated[str, _doc("The database there.")] = "netspy"
    MYSQL_POOL_SIZE: Annotated[
        int, _doc("The most connections a process opens to MySQL.", "connections", ge=1)
    ] = 5
    MYSQL_UPDATE_ON_DUPLICATE: Annotated[
        bool, _doc("A row whose key is there overwrites its fields; off: the old row stays as it is.")
    ] = True
    POSTGRES_HOST: Annotated[str, _doc("PostgreSQL server: a host, or a socket's folder.")] = "localhost"
    POSTGRES_PORT: Annotated[int, _doc("Its port.", ge=1)] = 5432
    POSTGRES_USER: Annotated[str, _doc("The user there.")] = "postgres"
    POSTGRES_PASSWORD: Annotated[str, _doc("The user's password.")] = ""
    POSTGRES_DB: Annotated[str, _doc("The database there.")] = "netspy"
    POSTGRES_POOL_SIZE: Annotated[
        int, _doc("The most connections a process opens to PostgreSQL.", "connections", ge=1)
    ] = 5
    POSTGRES_ON_CONFLICT: Annotated[
        Literal["nothing", "update", "error"],
        _doc("A row whose key is there: left as it is, overwritten by the new one's fields, or a failure."),
    ] = "nothing"
    POSTGRES_CONFLICT_TARGET: Annotated[
        list[str],
        _doc("Columns of the key to go by; empty: the item's `__unique_key__`, else the table's keys."),
    ] = msgspec.field(default_factory=list)
