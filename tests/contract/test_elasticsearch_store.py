"""The Elasticsearch pipeline: on a stand-in, or on the server that STORE_URL names (`make test-stores URL=http://…`)."""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from netspy.errors import ConfigError, ItemError, RowsFailedError
from netspy.messages.row import Row
from netspy.pipelines import elasticsearch as module
from netspy.pipelines.dead_letters.file import DeadLetterFile
from netspy.pipelines.delivery.writer import BatchWriter
from netspy.pipelines.documents.bulk import document_id, index_name
from netspy.pipelines.elasticsearch import ElasticsearchPipeline
from netspy.pipelines.errors import UnavailableError
from netspy.pipelines.loader import load_pipelines, pipeline_name
from netspy.pipelines.sqlite import SqlitePipeline
from netspy.settings import Settings, hide_password
from netspy.testing.servers import free_port
from support.bulk_server import BulkServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

URL = os.environ.get("STORE_URL", "")
REAL = URL.startswith("http")
only_imitated = pytest.mark.skipif(REAL, reason="needs a server that fails on command")


@pytest.fixture(scope="module", autouse=True)
def _server_is_there() -> None:
    if REAL:
        try:
            opened(Settings(ELASTICSEARCH_HOSTS=[URL])).close()
        except (UnavailableError, ConfigError) as error:
            pytest.exit(f"URL={hide_password(URL)}: {error}", returncode=2)


@pytest.fixture
def server() -> Iterator[BulkServer]:
    with BulkServer() as running:
        yield running


@pytest.fixture
def settings(server: BulkServer, tmp_path: Path) -> Settings:
    return Settings(
        ELASTICSEARCH_HOSTS=[URL if REAL else server.url],
        SQLITE_PATH=str(tmp_path / "items.db"),
        FAILED_ITEM_PATH=str(tmp_path / "failed_items.jsonl"),
        ITEM_RETRY_BACKOFF=0.0,
    )


@pytest.fixture
def made(settings: Settings) -> Iterator[ElasticsearchPipeline]:
    pipeline = opened(settings)
    yield pipeline
    for name in used:
        pipeline._ask("DELETE", f"/{name}", b"")
    used.clear()
    pipeline.close()


used: set[str] = set()


@pytest.fixture
def table() -> str:
    name = f"netspy_test_{uuid.uuid4().hex[:12]}"
    used.add(name)
    return name


def opened(settings: Settings) -> ElasticsearchPipeline:
    [pipeline] = load_pipelines([ElasticsearchPipeline], settings)
    pipeline.open()
    return pipeline


def found(pipeline: ElasticsearchPipeline, table: str) -> dict[str, dict]:
    index = index_name(table)
    pipeline._ask("POST", f"/{index}/_refresh", b"")
    status, body = pipeline._ask("GET", f"/{index}/_search?size=5000", b"")
    assert status == 200, body
    return {hit["_id"]: hit["_source"] for hit in json.loads(body)["hits"]["hits"]}


def test_keyed_rows_are_one_document_whose_id_is_the_key_and_the_later_one_takes_its_place(
    made, table
) -> None:
    made.describe(table, ("isbn",))
    made.save_items(table, [{"isbn": "1", "title": "a", "price": 2}, {"isbn": "2", "title": "b"}])
    made.save_items(table, [{"isbn": "1", "title": "A"}, {"isbn": "1", "title": "AA"}])
    assert found(made, table) == {"1": {"isbn": "1", "title": "AA"}, "2": {"isbn": "2", "title": "b"}}


def test_rows_without_a_key_or_with_none_in_it_are_documents_of_their_own(made, table) -> None:
    made.save_items(table, [{"a": 1}, {"a": 1}])
    made.describe(table, ("isbn",))
    made.save_items(table, [{"isbn": None, "a": 1}, {"isbn": None, "a": 1}])
    assert len(found(made, table)) == 4


@pytest.mark.parametrize(
    ("keys", "item", "expected"),
    [
        (("a",), {"a": "x"}, "x"),
        (("a",), {"a": 7}, "7"),
        (("a",), {"a": ""}, '[""]'),
        (("a", "b"), {"a": "1:2", "b": "3"}, '["1:2","3"]'),
        (("a", "b"), {"a": "1", "b": None}, '["1",null]'),
        (("a", "b"), {"a": None, "b": None}, None),
    ],
)
def test_an_id_tells_keys_apart_whatever_they_contain(keys, item, expected) -> None:
    assert document_id(keys, item) == expected


def test_an_id_longer_than_elasticsearch_takes_is_hashed_and_still_tells_apart() -> None:
    one, two = (document_id(("a",), {"a": "中" * 300 + end}) for end in "12")
    assert one != two
    assert one.startswith("sha256-")
    assert len(one) < 512


def test_a_long_or_odd_id_is_taken_by_the_server(made, table) -> None:
    made.describe(table, ("k",))
    keys = ["x" * 600, "a/b?c#d", "中文 ", '"}\n{"delete":{}}', "\ud83d"]
    made.save_items(table, [{"k": key, "n": n} for n, key in enumerate(keys)])
    assert sorted(doc["n"] for doc in found(made, table).values()) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "name",
    ["Books", "../x", "_all", "-a", ".kibana", "a,b", "*", "a b", "", "x" * 400, "中" * 100, "a#b:c", "\ud83d", "a\nb"],
)  # fmt: skip
def test_no_table_name_reaches_other_indices_and_each_has_its_own(made, name) -> None:
    index = index_name(name)
    used.add(index)
    assert index == index.lower()
    assert not set(index) & set('\\/*?"<>| ,#:\n')
    assert index[0] not in "-_+."
    assert len(index.encode()) < 255
    assert index != index_name(name + "?")
    made.save_items(name, [{"n": 1}])
    assert [doc["n"] for doc in found(made, name).values()] == [1]


def test_names_that_are_fine_stay_as_they_are() -> None:
    assert index_name("books_2026.v1") == "books_2026.v1"


def test_a_row_that_the_index_refuses_is_dead_lettered_alone(made, table, settings) -> None:
    made.save_items(table, [{"n": 1}])

    async def main() -> None:
        dead = DeadLetterFile(settings.FAILED_ITEM_PATH)
        writer = BatchWriter([made], settings, dead_letter=dead)
        rows = [Row(table, {"n": "no number" if n == 3 else n}) for n in range(6)]
        result = await writer.write(rows)
        assert (result.stored, result.failed_at) == (5, (3,))
        [letter] = dead.read()
        assert "400 " in letter.error
        assert "parsing_exception" in letter.error

    asyncio.run(main())
    assert len(found(made, table)) == 6


def test_a_row_without_form_or_key_fails_without_being_sent(made, table) -> None:
    made.describe(table, ("k",))
    with pytest.raises(RowsFailedError) as raised:
        made.save_items(table, [{"k": 1}, {"k": 2, "v": object()}, {"v": 1}])
    assert list(raised.value.failed) == [1, 2]
    assert all(isinstance(error, ItemError) for error in raised.value.failed.values())
    assert set(found(made, table)) == {"1"}


def test_a_number_that_the_index_can_not_hold_is_the_rows_fault(made, table) -> None:
    made.save_items(table, [{"n": 1}])
    with pytest.raises(RowsFailedError) as raised:
        made.save_items(table, [{"n": 2}, {"n": 2**70}])
    assert list(raised.value.failed) == [1]


def test_values_have_the_forms_of_json_lines(made, table) -> None:
    made.describe(table, ("k",))
    item = {
        "k": 1,
        "emoji": "😀",
        "none": None,
        "t": True,
        "dec": Decimal("19.9950"),
        "b": b"\xff",
        "l": [1, {"a": [2]}],
    }
    made.save_items(table, [{**item, "long": "x" * 1_000_000}])
    document = found(made, table)["1"]
    assert len(document.pop("long")) == 1_000_000
    assert document == item | {"dec": "19.9950", "b": "/w=="}


def test_an_update_changes_fields_and_makes_a_document_that_is_missing(made, table) -> None:
    made.describe(table, ("id",))
    made.save_items(table, [{"id": 1, "a": 1, "b": 1}])
    made.update_items(table, [{"id": 1, "a": 9}, {"id": 2, "a": 5}], ["id"])
    assert found(made, table) == {"1": {"id": 1, "a": 9, "b": 1}, "2": {"id": 2, "a": 5}}
    with pytest.raises(RowsFailedError):
        made.update_items(table, [{"id": None, "a": 5}], ["id"])
    with pytest.raises(RowsFailedError):
        made.update_items(table, [{"a": 5}], ["id"])


def test_a_large_batch_goes_in_several_requests(made, server, table, monkeypatch) -> None:
    monkeypatch.setattr(module, "_REQUEST_BYTES", 10_000)
    made.describe(table, ("n",))
    made.save_items(table, [{"n": n, "text": "x" * 100} for n in range(500)])
    assert len(found(made, table)) == 500
    if not REAL:
        assert len(server.bulks) > 5


@only_imitated
def test_a_request_that_is_too_large_is_split_until_only_the_row_that_is_fails(made, server, table) -> None:
    server.most = 3000
    made.describe(table, ("n",))
    with pytest.raises(RowsFailedError) as raised:
        made.save_items(table, [{"n": n, "text": "x" * (4000 if n == 5 else 400)} for n in range(10)])
    assert list(raised.value.failed) == [5]
    assert "413" in str(raised.value.failed[5])
    assert len(found(made, table)) == 9


@only_imitated
@pytest.mark.parametrize("status", [429, 500, 503, 0])
def test_a_busy_or_broken_answer_is_tried_again_whole(made, server, table, settings, status) -> None:
    server.statuses = [status, status]
    made.describe(table, ("n",))

    async def main() -> Any:
        writer = BatchWriter([made], settings, dead_letter=DeadLetterFile(settings.FAILED_ITEM_PATH))
        return await writer.write([Row(table, {"n": n}, unique_key=("n",)) for n in range(3)])

    result = asyncio.run(main())
    assert result.stored == 3
    assert server.bulks == [3]


@only_imitated
@pytest.mark.parametrize(
    "refusal",
    [
        (429, "es_rejected_execution_exception"),
        (503, "unavailable_shards_exception"),
        (409, "version_conflict_engine_exception"),
        (403, "cluster_block_exception"),
    ],
)
def test_rows_that_a_busy_node_refuses_are_sent_again_alone(made, server, table, settings, refusal) -> None:
    server.busy.update({"1": 1, "3": 2})
    server.refusal = refusal

    async def main() -> Any:
        writer = BatchWriter([made], settings, dead_letter=DeadLetterFile(settings.FAILED_ITEM_PATH))
        return await writer.write([Row(table, {"n": n}, unique_key=("n",)) for n in range(5)])

    assert asyncio.run(main()).stored == 5
    assert server.bulks == [5, 2, 1]


@only_imitated
def test_an_outage_between_two_requests_of_a_batch_repeats_only_the_rest(
    made, server, table, monkeypatch
) -> None:
    monkeypatch.setattr(module, "_REQUEST_BYTES", 1000)
    made.describe(table, ("n",))
    server.statuses = [200, 503, 503]
    with pytest.raises(RowsFailedError) as raised:
        made.save_items(table, [{"n": n, "text": "x" * 200} for n in range(10)])
    first = server.bulks[0]
    assert sorted(raised.value.failed) == list(range(first, 10))
    assert all(isinstance(error, UnavailableError) for error in raised.value.failed.values())


@only_imitated
def test_another_node_is_asked_when_one_is_away(server, settings, table) -> None:
    closed = f"http://127.0.0.1:{free_port()}"
    pipeline = opened(msgspec.structs.replace(settings, ELASTICSEARCH_HOSTS=[closed, server.url, closed]))
    for n in range(4):
        pipeline.save_items(table, [{"n": n}])
    pipeline.close()
    assert server.bulks == [1, 1, 1, 1]


@only_imitated
def test_no_node_at_all_is_an_error_that_passes(server, settings) -> None:
    closed = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(UnavailableError, match="no node of ELASTICSEARCH_HOSTS answers"):
        opened(msgspec.structs.replace(settings, ELASTICSEARCH_HOSTS=[closed]))


@only_imitated
def test_a_password_in_the_address_in_the_settings_or_an_api_key_lets_us_in_and_is_not_shown(
    server, settings, table
) -> None:
    server.login = ("me", "hid:den/ü")
    with pytest.raises(ConfigError, match="401"):
        opened(settings)
    address = server.url.replace("http://", "http://me:hid%3Aden%2F%C3%BC@")
    for more in (
        {"ELASTICSEARCH_HOSTS": [address]},
        {"ELASTICSEARCH_USER": "me", "ELASTICSEARCH_PASSWORD": "hid:den/ü"},
    ):
        pipeline = opened(msgspec.structs.replace(settings, **more))
        pipeline.save_items(table, [{"n": 1}])
        assert "hid" not in pipeline.where()
        pipeline.close()
    server.login, server.api_key = None, "c2VjcmV0"
    pipeline = opened(msgspec.structs.replace(settings, ELASTICSEARCH_API_KEY="c2VjcmV0"))
    pipeline.save_items(table, [{"n": 1}])
    server.api_key = "another"
    with pytest.raises(UnavailableError, match="401") as raised:
        pipeline.save_items(table, [{"n": 1}])
    assert isinstance(raised.value.__cause__, ConfigError)
    pipeline.close()


@pytest.mark.parametrize("url", ["localhost:9200", "ftp://x", "http://", "http://a:99999"])
def test_an_address_that_is_none_is_named(settings, url) -> None:
    with pytest.raises(ConfigError, match="ELASTICSEARCH_HOSTS has"):
        opened(msgspec.structs.replace(settings, ELASTICSEARCH_HOSTS=[url]))
    with pytest.raises(ConfigError, match="is empty"):
        opened(msgspec.structs.replace(settings, ELASTICSEARCH_HOSTS=[]))


def test_secrets_of_the_settings_are_not_shown() -> None:
    from netspy.settings import display_value

    assert display_value("ELASTICSEARCH_API_KEY", "c2VjcmV0") == "***"
    assert "hidden" not in display_value("ELASTICSEARCH_HOSTS", ["http://me:hidden@a:9200"])


def test_a_row_counts_as_stored_when_both_stores_have_it_and_only_the_index_is_replayed(
    made, table, settings
) -> None:
    """The index is kept in step with the primary store."""
    made.save_items(table, [{"n": 0, "id": "first"}])
    [primary] = load_pipelines([SqlitePipeline], settings)
    dead = DeadLetterFile(settings.FAILED_ITEM_PATH)

    async def main() -> None:
        writer = BatchWriter([primary, made], settings, dead_letter=dead)
        rows = [Row(table, {"id": f"r{n}", "n": "x" if n == 2 else n}, unique_key=("id",)) for n in range(4)]
        result = await writer.write(rows)
        assert (result.stored, result.failed_at) == (3, (2,))
        [letter] = dead.read()
        assert letter.row.pipelines == (pipeline_name(made),)
        assert len(primary._db.execute(f'SELECT id FROM "{table}"').fetchall()) == 4
        assert len(found(made, table)) == 4

        primary._db.execute(f'DELETE FROM "{table}"')  # would come back if the replay wrote there, too
        made._ask("DELETE", f"/{table}", b"")
        assert (await dead.replay(writer)).stored == 1
        assert primary._db.execute(f'SELECT id FROM "{table}"').fetchall() == []
        assert list(found(made, table)) == ["r2"]
        await writer.close()

    asyncio.run(main())
    made.open()
