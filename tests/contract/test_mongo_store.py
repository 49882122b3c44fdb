"""The MongoDB pipeline: on mongomock, or on the server that STORE_URL names (`make test-stores URL=mongodb://…`)."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import uuid
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import mongomock
import mongomock.collection
import pymongo
import pytest

from netspy.errors import ItemError, RowsFailedError
from netspy.messages.row import Row
from netspy.pipelines.base import BasePipeline
from netspy.pipelines.dead_letters.file import DeadLetterFile
from netspy.pipelines.delivery.writer import BatchWriter
from netspy.pipelines.documents.mongo import collection_name
from netspy.pipelines.errors import UnavailableError
from netspy.pipelines.loader import load_pipelines, pipeline_name
from netspy.pipelines.mongo import MongoPipeline
from netspy.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

URL = os.environ.get("STORE_URL", "")
REAL = URL.startswith("mongodb")
only_imitated = pytest.mark.skipif(REAL, reason="needs a server that fails on command")


@pytest.fixture(scope="module", autouse=True)
def _server_is_there() -> None:
    if REAL:
        pipeline = MongoPipeline()
        pipeline.settings = Settings(MONGO_URI=URL)
        try:
            pipeline.open()
        except pymongo.errors.PyMongoError as error:
            pytest.exit(f"URL={pipeline.where()}: {error}", returncode=2)
        pipeline.close()


@pytest.fixture(autouse=True)
def _newer_pymongo(monkeypatch: pytest.MonkeyPatch) -> None:
    """mongomock's bulk writes don't know an argument that newer versions of PyMongo hand them."""
    builder = mongomock.collection.BulkOperationBuilder
    plain = builder.add_update
    monkeypatch.setattr(builder, "add_update", lambda *args, sort=None, **more: plain(*args, **more))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        MONGO_URI=URL if REAL else "mongodb://localhost:27017",
        MONGO_DB=f"netspy_test_{uuid.uuid4().hex[:12]}",
        FAILED_ITEM_PATH=str(tmp_path / "failed_items.jsonl"),
        ITEM_RETRY_BACKOFF=0.0,
    )


class Pipeline(MongoPipeline):
    """Connects to the imitated server unless a real one is given."""

    server: Any = None

    def connect(self) -> Any:
        return super().connect() if REAL else self.server


@pytest.fixture
def made(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[MongoPipeline]:
    if not REAL:
        monkeypatch.setattr(Pipeline, "server", mongomock.MongoClient())
    [pipeline] = load_pipelines([Pipeline], settings)
    pipeline.open()
    yield pipeline
    if REAL:
        pipeline._client.drop_database(settings.MONGO_DB)
    pipeline.close()


def found(pipeline: MongoPipeline, table: str, **query: Any) -> list[dict]:
    rows = pipeline._collection(table).find(query, {"_id": 0}).sort("_id", 1)
    return list(rows)


def test_rows_without_a_key_are_added_and_keyed_ones_are_stored_once(made) -> None:
    made.describe("plain", ())
    made.save_items("plain", [{"a": 1}])
    made.save_items("plain", [{"a": 1}])
    assert found(made, "plain") == [{"a": 1}, {"a": 1}]

    made.describe("books", ("isbn",))
    made.save_items("books", [{"isbn": "1", "title": "a", "price": 2}, {"isbn": "2", "title": "b"}])
    made.save_items("books", [{"isbn": "1", "title": "A"}, {"isbn": "3"}])
    assert sorted(found(made, "books"), key=lambda row: row["isbn"]) == [
        {"isbn": "1", "title": "A", "price": 2},
        {"isbn": "2", "title": "b"},
        {"isbn": "3"},
    ]


def test_a_batch_with_one_key_twice_stores_it_once_and_the_later_wins(made) -> None:
    made.describe("books", ("isbn",))
    made.save_items("books", [{"isbn": "1", "n": n} for n in range(5)])
    assert found(made, "books") == [{"isbn": "1", "n": 4}]


def test_the_key_has_a_unique_index_and_a_second_process_makes_no_second_one(made, settings) -> None:
    made.describe("books", ("isbn", "shop"))
    made.save_items("books", [{"isbn": "1", "shop": "x"}])
    [other] = load_pipelines([Pipeline], settings)
    other.open()
    other.describe("books", ("shop", "isbn"))
    unique = [
        [name for name, _ in index["key"]]
        for index in made._collection("books").index_information().values()
        if index.get("unique")
    ]
    assert unique == [["isbn", "shop"]]
    if REAL:
        other.close()


def test_rows_whose_whole_key_is_none_are_all_kept_and_a_part_that_is_none_counts(made) -> None:
    made.describe("books", ("isbn", "shop"))
    rows = [
        {"isbn": None, "shop": None, "n": 1},
        {"isbn": None, "shop": None, "n": 2},
        {"isbn": "1", "shop": None, "n": 3},
        {"isbn": "1", "shop": None, "n": 4},
    ]
    made.save_items("books", rows)
    assert sorted(row["n"] for row in found(made, "books")) == [1, 2, 4]


def test_a_row_without_its_key_field_fails_alone(made) -> None:
    made.describe("books", ("isbn",))
    with pytest.raises(RowsFailedError) as raised:
        made.save_items("books", [{"isbn": "1"}, {"title": "x"}, {"isbn": "2"}])
    assert list(raised.value.failed) == [1]
    assert isinstance(raised.value.failed[1], ItemError)
    assert len(found(made, "books")) == 2


@pytest.mark.parametrize(
    "evil",
    [{"$ne": None}, {"$gt": ""}, {"$regex": ".*"}, {"$where": "sleep(1000)"}, {"$exists": True}, ["x"], "$isbn"],
    ids=repr,
)  # fmt: skip
def test_a_key_value_of_the_page_is_never_an_operator(made, evil) -> None:
    made.describe("books", ("isbn",))
    made.save_items("books", [{"isbn": "1", "n": 1}, {"isbn": "2", "n": 2}])
    for write in (made.save_items, lambda table, items: made.update_items(table, items, ["isbn"])):
        rows = [{"isbn": evil, "n": 666}, {"isbn": "3", "n": 3}]
        if isinstance(evil, str):
            write("books", rows)
        else:
            with pytest.raises(RowsFailedError) as raised:
                write("books", rows)
            assert "can't be the value of the key" in str(raised.value.failed[0])
    assert {row["n"] for row in found(made, "books", isbn={"$in": ["1", "2", "3"]})} == {1, 2, 3}
    assert len(found(made, "books")) == (4 if isinstance(evil, str) else 3)


def test_field_names_of_the_page_are_no_operators_and_no_paths(made) -> None:
    made.describe("books", ("isbn",))
    made.save_items("books", [{"isbn": "1", "price": {"net": 1}, "n": 1}])
    made.save_items(
        "books",
        [{"isbn": "1", "price.net": 666, "$inc": {"n": 5}, "deep": {"$set": 1, "a.b": [{"$x": 2}]}, "a$": 1}],
    )
    assert found(made, "books") == [
        {
            "isbn": "1",
            "price": {"net": 1},
            "n": 1,
            "price．net": 666,
            "＄inc": {"n": 5},
            "deep": {"＄set": 1, "a．b": [{"＄x": 2}]},
            "a$": 1,
        }
    ]


def test_a_key_field_with_a_dot_is_a_plain_name_too(made) -> None:
    made.describe("books", ("a.b",))
    made.save_items("books", [{"a.b": "1", "n": 1}])
    made.save_items("books", [{"a.b": "1", "n": 2}])
    assert found(made, "books") == [{"a．b": "1", "n": 2}]


@pytest.mark.parametrize("names", [{"": 1}, {"a\0b": 1}, {"a.b": 1, "a．b": 2}], ids=repr)
def test_names_that_bson_can_not_hold_or_tell_apart_fail_their_row(made, names) -> None:
    with pytest.raises(RowsFailedError) as raised:
        made.save_items("t", [{"n": 1}, names])
    assert list(raised.value.failed) == [1]
    assert found(made, "t") == [{"n": 1}]


@pytest.mark.parametrize(
    "table",
    ["system.users", "$cmd", "a$b", "", ".", "..", "a\0b", "../x", "x" * 500, "中" * 100, "t; drop", "\ud83d"],
)  # fmt: skip
def test_no_table_name_reaches_a_system_collection_and_each_has_its_own(made, table) -> None:
    name = collection_name(table)
    assert "$" not in name
    assert "\0" not in name
    assert not name.startswith(("system.", "."))
    assert 0 < len(name.encode()) <= 120
    made.save_items(table, [{"n": 1}])
    assert found(made, table) == [{"n": 1}]
    assert collection_name(f"{table}?") != name


def test_values_of_every_kind_arrive_as_they_were(made) -> None:
    zone = dt.timezone(dt.timedelta(hours=8))
    token = uuid.UUID(int=7)
    item = {
        "emoji": "😀中",
        "long": "x" * 1_000_000,
        "none": None,
        "true": True,
        "int": 2**63 - 1,
        "float": 0.1,
        "decimal": Decimal("19.9950"),
        "bytes": b"\xff\x00",
        "moment": dt.datetime(2026, 1, 1, 8, 0, 0, 123000, tzinfo=zone),
        "date": dt.date(2026, 1, 1),
        "list": [1, [2, {"a": (3, 4)}]],
        "empty": {},
    }
    if REAL:
        item["uuid"] = token
    made.save_items("t", [item])
    [row] = found(made, "t")
    decimal = row.pop("decimal")
    assert decimal.to_decimal() == Decimal("19.9950")
    assert str(decimal) == "19.9950"
    moment = row.pop("moment")
    assert moment == dt.datetime(2026, 1, 1, 0, 0, 0, 123000)
    expected = {k: v for k, v in item.items() if k not in {"decimal", "moment"}}
    expected |= {"date": "2026-01-01", "list": [1, [2, {"a": [3, 4]}]]}
    assert row == expected


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (2**63, "more than 64 bits"),
        ([-(2**63) - 1], "more than 64 bits"),
        (Decimal("1." + "1" * 40), "34 digits"),
        (object(), "can't be stored"),
    ],
)
def test_what_mongodb_would_alter_is_dead_lettered_with_the_reason(made, settings, value, reason) -> None:
    async def main() -> Any:
        dead = DeadLetterFile(settings.FAILED_ITEM_PATH)
        writer = BatchWriter([made], settings, dead_letter=dead)
        result = await writer.write([Row("t", {"n": 1}), Row("t", {"n": 2, "v": value}), Row("t", {"n": 3})])
        assert (result.stored, result.failed_at) == (2, (1,))
        [letter] = dead.read()
        assert reason in letter.error

    asyncio.run(main())
    assert [row["n"] for row in found(made, "t")] == [1, 3]


def test_a_document_over_16_mb_fails_alone(made, settings, monkeypatch) -> None:
    if not REAL:  # mongomock has no limit: PyMongo's own words for it
        plain = mongomock.Collection.bulk_write

        def bulk_write(self, writes, **options):
            if any(len(write._doc.get("text", "")) > 16 << 20 for write in writes):
                raise pymongo.errors.DocumentTooLarge("BSON document too large (17825851 bytes)")
            return plain(self, writes, **options)

        monkeypatch.setattr(mongomock.Collection, "bulk_write", bulk_write)

    async def main() -> None:
        dead = DeadLetterFile(settings.FAILED_ITEM_PATH)
        writer = BatchWriter([made], settings, dead_letter=dead)
        texts = ["", "x" * (17 << 20), "", ""]
        result = await writer.write([Row("t", {"n": n, "text": text}) for n, text in enumerate(texts)])
        assert (result.stored, result.failed_at) == (3, (1,))
        [letter] = dead.read()
        assert "too large" in letter.error

    asyncio.run(main())
    assert sorted(row["n"] for row in found(made, "t")) == [0, 2, 3]


def test_a_value_that_contains_itself_fails_its_row(made) -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(RowsFailedError, match="contains itself"):
        made.save_items("t", [{"a": loop}])


def test_cut_microseconds_are_said_once(made, caplog_lines) -> None:
    for _ in range(3):
        made.save_items("t", [{"at": dt.datetime(2026, 1, 1, 0, 0, 0, 1)}])
    assert len([line for line in caplog_lines if "milliseconds" in line]) == 1


@pytest.fixture
def caplog_lines() -> Iterator[list[str]]:
    from loguru import logger

    lines: list[str] = []
    number = logger.add(lambda message: lines.append(str(message)), level="WARNING")
    yield lines
    logger.remove(number)


def test_an_update_changes_what_it_finds_and_makes_what_is_missing(made) -> None:
    made.save_items("t", [{"id": 1, "a": 1, "b": 1}, {"id": 1, "a": 2, "b": 2}])
    made.update_items("t", [{"id": 1, "a": 9}, {"id": 2, "a": 5}], ["id"])
    assert sorted(found(made, "t"), key=str) == [
        {"id": 1, "a": 9, "b": 1},
        {"id": 1, "a": 9, "b": 2},
        {"id": 2, "a": 5},
    ]
    with pytest.raises(RowsFailedError):
        made.update_items("t", [{"id": None, "a": 9}], ["id"])


def test_a_row_that_another_unique_index_refuses_is_named_and_the_others_are_stored(made) -> None:
    made._collection("t").create_index("url", unique=True)
    made.save_items("t", [{"n": 0, "url": "a"}])
    with pytest.raises(RowsFailedError) as raised:
        made.save_items("t", [{"n": 1, "url": "b"}, {"n": 2, "url": "a"}, {"n": 3, "url": "c"}])
    assert list(raised.value.failed) == [1]
    assert "11000" in str(raised.value.failed[1])
    assert isinstance(raised.value.failed[1], ItemError)
    assert sorted(row["n"] for row in found(made, "t")) == [0, 1, 3]


def test_a_large_batch_arrives_whole(made) -> None:
    made.describe("t", ("n",))
    made.save_items("t", [{"n": n, "text": "x" * 100} for n in range(300)])
    assert made._collection("t").count_documents({}) == 300


class Away:
    """Stands for a collection whose server answers with an error."""

    name = "t"

    def __init__(self, error: Exception) -> None:
        self.error = error

    def bulk_write(self, *_: Any, **__: Any) -> None:
        raise self.error


@only_imitated
@pytest.mark.parametrize(
    "error",
    [
        pymongo.errors.AutoReconnect("connection closed"),
        pymongo.errors.NetworkTimeout("timed out"),
        pymongo.errors.ServerSelectionTimeoutError("no primary"),
        pymongo.errors.NotPrimaryError("stepping down"),
        pymongo.errors.OperationFailure("shutdown", code=91),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_server_that_is_away_is_told_apart_from_bad_rows(made, error) -> None:
    made._collection = lambda _: Away(error)
    with pytest.raises(UnavailableError):
        made.save_items("t", [{"n": 1}])


@only_imitated
def test_two_writers_of_one_new_key_at_a_time_lose_no_row(made) -> None:
    plain = made._bulk
    raced: list[int] = []

    def racing(table: str, writes: dict[int, Any]) -> Any:
        if not raced:
            raced.append(1)
            return {at: {"code": 11000, "errmsg": "E11000 duplicate key"} for at in writes}
        return plain(table, writes)

    made._bulk = racing
    made.describe("t", ("id",))
    made.save_items("t", [{"id": 1}])
    assert found(made, "t") == [{"id": 1}]


@only_imitated
@pytest.mark.parametrize("code", [10107, 112, 91])
def test_rows_that_a_server_refuses_for_the_moment_may_be_tried_again(made, code) -> None:
    made._bulk = lambda _table, writes: {at: {"code": code, "errmsg": "x"} for at in writes}
    with pytest.raises(RowsFailedError) as raised:
        made.save_items("t", [{"id": 1}])
    assert not isinstance(raised.value.failed[0], ItemError)


def test_nobody_there_is_an_error_that_passes_and_never_a_hang(settings) -> None:
    import msgspec

    away = msgspec.structs.replace(
        settings, MONGO_URI="mongodb://localhost:1/?serverSelectionTimeoutMS=100&connectTimeoutMS=100"
    )
    [pipeline] = load_pipelines([MongoPipeline], away)
    with pytest.raises(pymongo.errors.ServerSelectionTimeoutError):
        pipeline.open()
    pipeline.close()


def test_passwords_are_not_shown(settings) -> None:
    import msgspec

    [pipeline] = load_pipelines(
        [MongoPipeline], msgspec.structs.replace(settings, MONGO_URI="mongodb://me:hidden@a:1,b:2/?w=1")
    )
    assert "hidden" not in pipeline.where()


def test_both_stores_have_a_row_or_only_the_failing_one_is_replayed(made, settings) -> None:
    class Primary(BasePipeline):
        def __init__(self) -> None:
            self.kept: list[int] = []

        def save_items(self, table, items):
            self.kept += [item["n"] for item in items]

    primary = Primary()
    dead = DeadLetterFile(settings.FAILED_ITEM_PATH)

    async def main() -> None:
        writer = BatchWriter([primary, made], settings, dead_letter=dead)
        made._collection("t").create_index("url", unique=True)
        result = await writer.write([Row("t", {"n": n, "url": "a" if n < 2 else n}) for n in range(4)])
        assert (result.stored, result.failed_at) == (3, (1,))
        [letter] = dead.read()
        assert letter.row.pipelines == (pipeline_name(made),)
        made._collection("t").drop_index("url_1")
        assert (await dead.replay(writer)).stored == 1

    asyncio.run(main())
    assert primary.kept == [0, 1, 2, 3]
    assert sorted(row["n"] for row in found(made, "t")) == [0, 1, 2, 3]
