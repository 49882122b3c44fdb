"""Pipelines that write rows to queues: Kafka (mock cluster), RabbitMQ and Redis, through the real writer."""

from __future__ import annotations

import asyncio
import uuid
from datetime import UTC, datetime
from decimal import Decimal

import msgspec
import pytest

from netspy.errors import ConfigError, ItemError
from netspy.messages.codec import decode
from netspy.messages.envelope import row_of
from netspy.messages.row import Row
from netspy.pipelines.dead_letters.file import DeadLetterFile
from netspy.pipelines.delivery.writer import BatchWriter
from netspy.pipelines.loader import load_pipelines
from netspy.settings import Settings

MSG_SIZE_TOO_LARGE = 10  # the protocol's error code
PATHS = {
    "kafka": "netspy.pipelines.kafka.KafkaPipeline",
    "rabbitmq": "netspy.pipelines.rabbitmq.RabbitmqPipeline",
    "list": "netspy.pipelines.redis.RedisPipeline",
    "stream": "netspy.pipelines.redis.RedisPipeline",
}
ODD = {
    "id": 1,
    "text": "😀 \ud800 {!x}",
    "price": Decimal("1.10"),
    "at": datetime(2026, 3, 1, 12, tzinfo=UTC),
    "raw": b"\x00\xff",
    "big": 2**63,
    "none": None,
    "nested": {"!tuple": [1], "t": (1, {2})},
}


class Queue:
    """One kind of queue: the settings that lead to it, and what is in it."""

    def __init__(self, kind, request, tmp_path) -> None:
        self.kind = kind
        self.table = f"rows-{uuid.uuid4().hex[:12]}"
        own = {"ITEM_RETRY_BACKOFF": 0.0, "FAILED_ITEM_PATH": str(tmp_path / "failed.jsonl")}
        if kind == "kafka":
            self.kafka = request.getfixturevalue("kafka")
            own["KAFKA_BOOTSTRAP_SERVERS"] = self.kafka.servers.split(",")
        elif kind == "rabbitmq":
            own["RABBITMQ_URL"] = request.getfixturevalue("rabbit_url")
        else:
            own |= {"REDIS_URL": request.getfixturevalue("redis_url"), "REDIS_ITEMS_TYPE": kind}
            self.redis = request.getfixturevalue("redis_server").client(decode_responses=False)
        self.settings = Settings(**own)
        self.letters = DeadLetterFile(self.settings.FAILED_ITEM_PATH)

    async def write(self, rows, **changes):
        settings = Settings(
            **{**{f: getattr(self.settings, f) for f in self.settings.__struct_fields__}, **changes}
        )
        writer = BatchWriter(load_pipelines([PATHS[self.kind]], settings), settings, dead_letter=self.letters)
        try:
            return await writer.write(rows)
        finally:
            await writer.close()

    async def bodies(self, name: str | None = None) -> list[bytes]:
        name = name or self.table
        if self.kind == "kafka":
            return await asyncio.to_thread(self._kafka_bodies, name)
        if self.kind == "rabbitmq":
            import aio_pika

            async with await aio_pika.connect(self.settings.RABBITMQ_URL) as link, link.channel() as channel:
                queue = await channel.get_queue(name)
                found = []
                while (message := await queue.get(fail=False, no_ack=True)) is not None:
                    assert message.delivery_mode == aio_pika.DeliveryMode.PERSISTENT
                    found.append(message.body)
                return found
        key = f"netspy:items:{name}"
        if self.kind == "list":
            return self.redis.lrange(key, 0, -1)
        return [fields[b"row"] for _, fields in self.redis.xrange(key)]

    def _kafka_bodies(self, name: str) -> list[bytes]:
        from confluent_kafka import Consumer, TopicPartition

        client = Consumer(
            {"bootstrap.servers": self.kafka.servers, "group.id": "look", "auto.offset.reset": "earliest"}
        )
        parts = client.list_topics(name, timeout=30).topics[name].partitions
        marks = [TopicPartition(name, number, 0) for number in parts]
        wanted = sum(client.get_watermark_offsets(mark, timeout=30)[1] for mark in marks)
        client.assign(marks)
        found = []
        while len(found) < wanted:
            message = client.poll(30)
            assert message is not None
            assert message.error() is None
            found.append((message.key(), message.value()))
        client.close()
        self.keys = [key for key, _ in found]
        return [value for _, value in found]


@pytest.fixture(params=PATHS)
def queue(request, tmp_path):
    made = Queue(request.param, request, tmp_path)
    yield made
    if hasattr(made, "redis"):
        made.redis.close()


async def test_rows_arrive_with_table_keys_and_the_types_they_had(queue):
    rows = [Row(queue.table, ODD, unique_key=("id",)), Row(queue.table, {"id": 2}, unique_key=("id",))]
    result = await queue.write(rows)
    assert (result.stored, result.failed) == (2, 0)
    found = sorted(
        (row_of(decode(body), "x") for body in await queue.bodies()), key=lambda row: row.data["id"]
    )
    assert found == rows
    if queue.kind == "kafka":
        assert sorted(queue.keys) == [b"[1]", b"[2]"]


async def test_a_row_that_cant_travel_is_dead_lettered_and_the_others_are_sent_once(queue):
    rows = [Row(queue.table, {"id": n, "bad": object() if n == 7 else None}) for n in range(20)]
    result = await queue.write(rows)
    assert (result.stored, result.failed, result.failed_at) == (19, 1, (7,))
    found = sorted(row_of(decode(body), "x").data["id"] for body in await queue.bodies())
    assert found == [n for n in range(20) if n != 7]
    [letter] = queue.letters.read()
    assert "object can't travel" in letter.error


async def test_an_update_keeps_its_place_or_is_refused_with_the_reason(queue):
    rows = [
        Row(queue.table, {"id": 1, "v": 1}),
        Row(queue.table, {"id": 1, "v": 2}, update_keys=("id",)),
        Row(queue.table, {"id": 3, "v": 3}),
    ]
    result = await queue.write(rows)
    found = [row_of(decode(body), "x") for body in await queue.bodies()]
    if queue.kind == "kafka":
        assert result.failed_at == (1,)
        [letter] = queue.letters.read()
        assert "takes no UpdateItem" in letter.error
        assert "RabbitmqPipeline" in letter.error
    else:
        assert result.stored == 3
        assert found == rows


async def test_all_tables_in_one_queue_when_a_setting_names_it(queue):
    one = f"all-{uuid.uuid4().hex[:12]}"
    names = {"KAFKA_TOPIC": one, "RABBITMQ_QUEUE": one, "REDIS_ITEMS_KEY": f"netspy:items:{one}"}
    await queue.write([Row("a", {"n": 1}), Row("a b/ö", {"n": 2})], **names)
    found = {row_of(decode(body), "x").table for body in await queue.bodies(one)}
    assert found == {"a", "a b/ö"}


async def test_kafka_refuses_one_row_that_is_too_large_and_keeps_the_rest(request, tmp_path):
    queue = Queue("kafka", request, tmp_path)
    rows = [Row(queue.table, {"n": n, "text": "x" * (2_000_000 if n == 1 else 10)}) for n in range(4)]
    result = await queue.write(rows)
    assert (result.stored, result.failed_at) == (3, (1,))
    assert len(await queue.bodies()) == 3
    [letter] = queue.letters.read()
    assert "Kafka refuses the row" in letter.error


async def test_kafka_that_refuses_a_batch_for_one_message_gets_the_others(request, tmp_path):
    from support.kafka_mock import KafkaMock

    queue = Queue("kafka", request, tmp_path)
    with KafkaMock() as own:
        queue.kafka = own
        own.topic(queue.table, 1)
        # The client sends a batch when it has four rows, or half a second after the first.
        changes = {"KAFKA_URL": f"kafka://{own.servers}?batch.num.messages=4&linger.ms=500"}
        own.request_errors(
            0, MSG_SIZE_TOO_LARGE, 0, 0, MSG_SIZE_TOO_LARGE
        )  # the batch; then the third of its rows
        result = await queue.write([Row(queue.table, {"n": n}) for n in range(4)], **changes)
        assert (result.stored, result.failed_at) == (3, (2,))
        found = [row_of(decode(body), "x").data["n"] for body in await queue.bodies()]
    assert sorted(found) == [0, 1, 3]
    [letter] = queue.letters.read()
    assert "Kafka refuses the row" in letter.error


async def test_kafka_says_which_name_is_no_topic(request, tmp_path):
    queue = Queue("kafka", request, tmp_path)
    result = await queue.write([Row("a b", {"n": 1})])
    assert result.failed == 1
    [letter] = queue.letters.read()
    assert "'a b' can't be a topic of Kafka" in letter.error
    assert "KAFKA_TOPIC" in letter.error


async def test_kafka_away_for_a_while_gets_every_row_once_it_is_back(request, tmp_path):
    from support.kafka_mock import KafkaMock

    queue = Queue("kafka", request, tmp_path)
    with KafkaMock() as own:
        queue.kafka = own
        changes = {"KAFKA_BOOTSTRAP_SERVERS": own.servers.split(","), "ITEM_RETRY_BACKOFF": 0.1}
        await queue.write([Row(queue.table, {"n": -1})], **changes)
        own.down()
        writing = asyncio.create_task(queue.write([Row(queue.table, {"n": n}) for n in range(50)], **changes))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(writing), 0.5)
        own.up()
        assert (await writing).stored == 50
        found = [row_of(decode(body), "x").data["n"] for body in await queue.bodies()]
    assert set(found) == set(range(-1, 50))


async def test_rabbitmq_queue_with_a_limit_takes_what_it_has_room_for(request, tmp_path):
    import aio_pika

    queue = Queue("rabbitmq", request, tmp_path)
    async with await aio_pika.connect(queue.settings.RABBITMQ_URL) as link, link.channel() as channel:
        limits = {"x-max-length": 3, "x-overflow": "reject-publish"}
        await channel.declare_queue(queue.table, durable=True, arguments=limits)
    rows = [Row(queue.table, {"n": n}) for n in range(5)]
    result = await queue.write(rows, ITEM_RETRY_TIMES=1, ITEM_STORE_PATIENCE=0)
    bodies = await queue.bodies()
    assert len(bodies) == result.stored
    assert result.stored + result.failed == 5
    letters = list(queue.letters.read())
    assert len(letters) == result.failed > 0
    assert "refuses the message" in letters[0].error


async def test_rabbitmq_queue_deleted_under_a_crawl_is_made_again(request, tmp_path):
    import aio_pika

    queue = Queue("rabbitmq", request, tmp_path)
    writer = BatchWriter(
        load_pipelines([PATHS["rabbitmq"]], queue.settings), queue.settings, dead_letter=queue.letters
    )
    try:
        assert (await writer.write([Row(queue.table, {"n": 1})])).stored == 1
        async with await aio_pika.connect(queue.settings.RABBITMQ_URL) as link, link.channel() as channel:
            await channel.queue_delete(queue.table)
        assert (await writer.write([Row(queue.table, {"n": 2}), Row(queue.table, {"n": 3})])).stored == 2
    finally:
        await writer.close()
    assert sorted(decode(body)["data"]["n"] for body in await queue.bodies()) == [2, 3]


@pytest.mark.slow
async def test_rabbitmq_with_a_limit_of_size_refuses_only_the_rows_over_it(request, tmp_path):
    from support.rabbitmq_server import RabbitServer

    queue = Queue("rabbitmq", request, tmp_path)
    with RabbitServer(config={"max_message_size": "20000"}) as server:
        queue.settings = msgspec.structs.replace(queue.settings, RABBITMQ_URL=server.url)
        rows = [Row(queue.table, {"n": n, "x": "x" * (20_100 if n in {3, 7} else 10)}) for n in range(12)]
        result = await queue.write(rows)
        assert (result.stored, result.failed_at) == (10, (3, 7))
        found = {decode(body)["data"]["n"] for body in await queue.bodies()}
    assert found == set(range(12)) - {3, 7}
    for letter in queue.letters.read():
        assert "is larger than RabbitMQ takes (20,000: max_message_size)" in letter.error


async def test_redis_key_of_another_type_is_left_alone(request, tmp_path):
    queue = Queue("list", request, tmp_path)
    try:
        queue.redis.set(f"netspy:items:{queue.table}", "mine")
        result = await queue.write([Row(queue.table, {"n": 1})])
        assert result.failed == 1
        [letter] = queue.letters.read()
        assert "is a string, not a list" in letter.error
        assert queue.redis.get(f"netspy:items:{queue.table}") == b"mine"
    finally:
        queue.redis.close()


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("kafka", {"KAFKA_BOOTSTRAP_SERVERS": ["127.0.0.1:1"]}),
        ("rabbitmq", {"RABBITMQ_URL": "amqp://user:geheim@127.0.0.1:1/"}),
        ("list", {"REDIS_URL": "redis://:geheim@127.0.0.1:1/0"}),
    ],
)
async def test_a_queue_that_never_answers_ends_in_dead_letters_without_its_password(
    kind, changes, tmp_path, monkeypatch
):
    monkeypatch.setattr("netspy.pipelines.rabbitmq._PATIENCE_S", 0.3)
    monkeypatch.setattr("netspy.pipelines.kafka._ASK_S", 0.3)
    settings = Settings(
        ITEM_RETRY_TIMES=0,
        ITEM_STORE_PATIENCE=0,
        FAILED_ITEM_PATH=str(tmp_path / "failed.jsonl"),
        REDIS_CONNECT_TIMEOUT=0.5,
        **changes,
    )
    letters = DeadLetterFile(settings.FAILED_ITEM_PATH)
    writer = BatchWriter(load_pipelines([PATHS[kind]], settings), settings, dead_letter=letters)
    result = await writer.write([Row("t", {"n": 1})])
    await writer.close()
    assert result.failed == 1
    [letter] = letters.read()
    assert "127.0.0.1:1" in letter.error
    assert "geheim" not in letter.error


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ([1], "is no row"),
        ("text", "is no row"),
        ({1: 2}, "is no row"),
        ({"netspy": 2, "table": "t", "data": {}}, "version 2"),
        ({"netspy": 1, "table": "", "data": {}}, "broken"),
        ({"netspy": 1, "table": "t", "data": []}, "broken"),
        ({"netspy": 1, "table": "t", "data": {}, "unique_key": "id"}, "`unique_key`"),
    ],
)
def test_what_is_no_row_says_so(value, problem):
    with pytest.raises(ItemError, match=problem):
        row_of(value, "x")


def test_a_foreign_object_is_a_row_of_the_default_table():
    assert row_of({"a": 1, "table": "t"}, "x") == Row("x", {"a": 1, "table": "t"})


def test_a_wrong_address_names_the_setting_and_hides_the_password():
    from netspy.pipelines.rabbitmq import RabbitmqPipeline

    pipeline = RabbitmqPipeline()
    pipeline.settings = Settings(RABBITMQ_URL="http://user:geheim@host/")
    with pytest.raises(ConfigError, match=r"RABBITMQ_URL='http://user:\*\*\*@host/' is no RabbitMQ address"):
        pipeline.where()
