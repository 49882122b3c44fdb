"""MongoDB: bulk writes, keyed rows stored once, and an answer for each row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from netspy.errors import ItemError, MissingExtraError, RowsFailedError
from netspy.pipelines.base import BasePipeline
from netspy.pipelines.documents.mongo import collection_name, cut_moments, document, field_name, finding
from netspy.pipelines.errors import UnavailableError, UnusableError, text_of
from netspy.pipelines.own_settings import given
from netspy.settings import hide_password

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SELECT_MS = 5000  # how long a call looks for a server that takes writes; the writer tries again after it
_DUPLICATE = 11000
# Codes by which a server says "not now" (MongoDB, "Error Codes"): an election, a shutdown, a time limit, too much to do.
_PASSING = frozenset(
    {
        6,
        7,
        24,
        43,
        50,
        63,
        64,
        89,
        91,
        112,
        133,
        134,
        150,
        189,
        202,
        262,
        317,
        358,
        10107,
        11600,
        11602,
        13435,
        13436,
    }
)


_NOT_LET_IN = frozenset({11, 13, 18, 8000})  # no such user, unauthorized, wrong password, Atlas' word for it


class MongoPipeline(BasePipeline):
    """Stores rows in the database MONGO_DB on MONGO_URI, one collection per table.

    - Items with `__unique_key__` are upserted: a row delivered twice is stored once, and the fields of the later one
      win. A unique sparse index over the key is made when the collection has no index on it. A row whose key is None
      in every part is always new; its key fields are left out.
    - An UpdateItem sets its fields in all documents that its keys find, and makes one when there is none.
    - A batch is one bulk write, unordered; rows that the server refuses are dead-lettered one by one.
    - Field names are never operators or paths: a leading `$` and each `.` become full-width (`＄`, `．`), with a warning.

    Subclasses may override `connect`.
    """

    def __init__(self, uri: str | None = None, db: str | None = None, *, client: Any = None) -> None:
        """`uri`, `db`: MONGO_URI and MONGO_DB of this pipeline. `client`: a MongoClient of your own, which you close."""
        try:
            import pymongo
        except ImportError:
            raise MissingExtraError("MongoPipeline", "mongo") from None
        self._pymongo = pymongo
        self._client: Any = None
        self._given = client
        self.own_settings = given("MongoPipeline", MONGO_URI=uri, MONGO_DB=db)
        self._keys: dict[str, tuple[str, ...]] = {}
        self._said: set[tuple[str, str]] = set()

    def where(self) -> str:
        """The server and database, for the run's summary."""
        return f"{hide_password(self.settings.MONGO_URI)} ({self.settings.MONGO_DB})"

    def connect(self) -> Any:
        """A MongoClient. What the address says of waiting and of journalling goes before netspy's own choice."""
        if self._given is not None:
            return self._given
        uri = self.settings.MONGO_URI
        said = uri.partition("?")[2].lower()
        options: dict[str, Any] = {"appname": "netspy", "uuidRepresentation": "standard"}
        if "serverselectiontimeoutms=" not in said:
            options["serverSelectionTimeoutMS"] = _SELECT_MS
        if not any(f"{word}=" in f"&{said}" for word in ("&w", "&journal")):
            options["journal"] = True  # acknowledged = on the disk of the primary
        return self._pymongo.MongoClient(uri, **options)

    def open(self) -> None:
        """Connect, and ask whether a server answers. Raises PyMongoError, UnusableError when it doesn't let us in."""
        client = self.connect()
        try:
            client.admin.command("ping")
        except self._pymongo.errors.OperationFailure as error:
            if self._given is None:
                client.close()
            if error.code in _NOT_LET_IN:
                raise UnusableError(f"MongoDB refuses us, see MONGO_URI: {text_of(error)}") from error
            raise
        except BaseException:
            if self._given is None:
                client.close()
            raise
        self._client = client

    def describe(self, table: str, unique_key: tuple[str, ...]) -> None:
        """Make the index of the key. Raises PyMongoError."""
        if not unique_key:
            return
        keys = tuple(field_name(key) for key in unique_key)
        self._keys[table] = keys
        if keys == ("_id",):
            return
        collection = self._collection(table)
        there = [[name for name, _ in index["key"]] for index in collection.index_information().values()]
        if any(sorted(names) == sorted(keys) for names in there):
            return
        try:
            collection.create_index([(key, 1) for key in keys], unique=True, sparse=True)
        except self._pymongo.errors.ConnectionFailure:
            raise
        except self._pymongo.errors.PyMongoError as error:
            self._say(
                table,
                "index",
                f"collection {collection.name}: no unique index over {', '.join(keys)} can be made "
                f"({text_of(error)}); rows are upserted all the same, more slowly, and two processes that write one key "
                "at the same moment may store it twice",
            )

    def save_items(self, table: str, items: Sequence[dict[str, Any]]) -> bool:
        """Insert or upsert the batch. Raises RowsFailedError, UnavailableError."""
        keys = self._keys.get(table, ())
        rows, failed = self._documents(table, items)
        pymongo = self._pymongo
        writes: dict[int, Any] = {}
        for at, fields in rows.items():
            if not keys:
                writes[at] = pymongo.InsertOne(fields)
            elif missing := [key for key in keys if key not in fields]:
                failed[at] = ItemError(
                    f"an item of table {table!r} has no field {missing[0]!r}, its unique key"
                )
            elif all(fields[key] is None for key in keys):
                writes[at] = pymongo.InsertOne({k: v for k, v in fields.items() if k not in keys})
            else:
                try:
                    found = finding(keys, fields)
                except ItemError as error:
                    failed[at] = error
                else:
                    writes[at] = pymongo.UpdateOne(found, _setting(keys, fields), upsert=True)
        return self._write(table, writes, failed)

    def update_items(self, table: str, items: Sequence[dict[str, Any]], update_keys: Sequence[str]) -> bool:
        """Set fields in the documents found by `update_keys`; make one where there is none. Raises as `save_items`."""
        if not update_keys:
            raise ItemError(
                f"an UpdateItem of table {table!r} names no __update_key__; its row can't be found"
            )
        keys = tuple(field_name(key) for key in update_keys)
        rows, failed = self._documents(table, items)
        writes: dict[int, Any] = {}
        for at, fields in rows.items():
            if missing := [key for key in keys if fields.get(key) is None]:
                failed[at] = ItemError(
                    f"an UpdateItem of table {table!r} has no value for its key {missing[0]!r}"
                )
                continue
            try:
                found = finding(keys, fields)
            except ItemError as error:
                failed[at] = error
            else:
                writes[at] = self._pymongo.UpdateMany(found, _setting(keys, fields), upsert=True)
        return self._write(table, writes, failed)

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            if self._given is None:
                self._client.close()
            self._client = None

    def _collection(self, table: str) -> Any:
        return self._client[self.settings.MONGO_DB][collection_name(table)]

    def _documents(
        self, table: str, items: Sequence[dict[str, Any]]
    ) -> tuple[dict[int, dict[str, Any]], dict[int, Exception]]:
        """The items as documents by place, and why others are none."""
        rows: dict[int, dict[str, Any]] = {}
        failed: dict[int, Exception] = {}
        for at, item in enumerate(items):
            try:
                rows[at] = document(item)
            except ItemError as error:
                failed[at] = error
                continue
            for name, kept in zip(item, rows[at], strict=True):
                if name != kept and (table, kept) not in self._said:
                    self._say(
                        table, kept, f"field {name!r} of table {table!r} is kept as {kept!r} in MongoDB"
                    )
            for name in cut_moments(rows[at]):
                self._say(
                    table,
                    f"{name} ms",
                    f"field {name!r} of table {table!r}: MongoDB keeps milliseconds of a moment",
                )
        return rows, failed

    def _write(self, table: str, writes: dict[int, Any], failed: dict[int, Exception]) -> bool:
        refused = self._bulk(table, writes)
        # Two processes that upsert one new key at the same moment: the later one finds it at its second try.
        again = {
            at: writes[at]
            for at, error in refused.items()
            if error.get("code") == _DUPLICATE and not isinstance(writes[at], self._pymongo.InsertOne)
        }
        if again:
            refused = {at: error for at, error in refused.items() if at not in again} | self._bulk(
                table, again
            )
        failed |= {at: _classify(error) for at, error in refused.items()}
        if failed:
            raise RowsFailedError(failed)
        return True

    def _bulk(self, table: str, writes: dict[int, Any]) -> dict[int, Mapping[str, Any]]:
        """Write; the server's errors by place of the row."""
        if not writes:
            return {}
        places = list(writes)
        errors = self._pymongo.errors
        try:
            self._collection(table).bulk_write(list(writes.values()), ordered=False)
        except errors.BulkWriteError as error:
            details = error.details or {}
            if concern := details.get("writeConcernErrors"):
                raise UnavailableError(
                    f"the write was not confirmed as asked: {concern[0].get('errmsg')}"
                ) from error
            return {places[found["index"]]: found for found in details.get("writeErrors", ())}
        except (errors.DocumentTooLarge, errors.InvalidDocument, OverflowError) as error:
            raise ItemError(str(error)) from error
        except errors.ConnectionFailure as error:
            raise UnavailableError(text_of(error)) from error
        except errors.OperationFailure as error:
            if error.code in _PASSING:
                raise UnavailableError(text_of(error)) from error
            raise
        return {}

    def _say(self, table: str, what: str, message: str) -> None:
        """A warning, once."""
        if (table, what) not in self._said:
            self._said.add((table, what))
            from loguru import logger

            logger.warning("{}", message)


def _setting(keys: tuple[str, ...], fields: Mapping[str, Any]) -> dict[str, Any]:
    """The update that sets `fields`; the keys are set by the upsert itself."""
    rest = {name: value for name, value in fields.items() if name not in keys}
    return {"$set": rest} if rest else {"$setOnInsert": {name: fields[name] for name in keys}}


def _classify(error: Mapping[str, Any]) -> Exception:
    """A row's error: whether it may pass, or the row is at fault."""
    text = f"MongoDB {error.get('code')}: {error.get('errmsg', 'refused')}"
    return UnavailableError(text) if error.get("code") in _PASSING else ItemError(text)
