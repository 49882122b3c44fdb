"""Messages as clients in other languages write them: handed out or kept apart whole, and never in anybody's way.

What our own client can't write is written byte by byte (`support.raw_amqp`).
"""

from __future__ import annotations

import asyncio
import struct
import sys
import uuid

import pytest
from broker_rig import SETTINGS, taken
from loguru import logger

from netspy.brokers.amqp_properties import Properties, of_a_copy
from netspy.errors import ConfigError
from netspy.tasks.amqp import AmqpTaskSource
from netspy.tasks.kafka.source import KafkaTaskSource, in_parts
from netspy.tasks.kafka.thread import Record
from netspy.testing.runner import run_command
from support.kafka_mock import (
    GROUP_AUTHORIZATION_FAILED,
    JOIN_GROUP,
    KafkaMock,
    write_damaged_batch,
    write_with_headers,
)
from support.raw_amqp import RawPublisher, long, pair, properties, short

MICROSECONDS = struct.pack(">Q", 1_796_077_425_046_000)
BEFORE_1970 = struct.pack(">q", -62_135_596_800_000)

HEADS = {
    "a header as large as a frame": properties(headers=pair(b"trace", b"S" + long(b"x" * 130_900))),
    "headers that fill a frame": properties(
        headers=b"".join(pair(b"h%d" % n, b"S" + long(b"y" * 13_080)) for n in range(10))
    ),
    "a header in latin-1": properties(headers=pair(b"who", b"S" + long(b"caf\xe9"))),
    "a header's name in latin-1": properties(headers=pair(b"caf\xe9", b"S" + long(b"x"))),
    "an array of bytes": properties(headers=pair(b"a", b"A" + long(b"x" + long(b"\xff") + b"S" + long(b"\xff")))),
    "an id in latin-1": properties(message_id=short(b"caf\xe9 5")),
    "an id of 255 bytes that are no text": properties(message_id=short(b"\xff" * 255)),
    "a type and a correlation in latin-1": properties(correlation_id=short(b"\xe9"), type=short(b"\xe9")),
    "microseconds": properties(timestamp=MICROSECONDS),
    "the largest number as time": properties(timestamp=b"\xff" * 8),
    "microseconds in a header": properties(headers=pair(b"t", b"T" + MICROSECONDS)),
    "a time before 1970 deep in a header": properties(
        headers=pair(b"a", b"F" + long(pair(b"b", b"A" + long(b"T" + BEFORE_1970))))
    ),
    "numbers of every kind": properties(
        headers=pair(b"n", b"d" + struct.pack(">d", 1e300))
        + pair(b"s", b"D\xff\xff\xff\xff\xff")
        + pair(b"i", b"i\xff\xff\xff\xff")
        + pair(b"", b"V")
    ),
    "a count of deliveries that is text": properties(headers=pair(b"x-delivery-count", b"S" + long(b"many"))),
}  # fmt: skip


@pytest.fixture
def name():
    return f"foreign-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def publisher(rabbit_url, name):
    with RawPublisher(rabbit_url) as publisher:
        publisher.declare(name)
        publisher.declare(f"{name}.failed")
        yield publisher


async def opened(url, name):
    source = AmqpTaskSource(f"{url}?queue={name}", SETTINGS, queue="unused")
    await source.open()
    return source


def test_no_message_of_others_stops_a_consumer_or_is_lost(rabbit_url, publisher, name, tmp_path):
    """Cases HB-01, HB-02, HB-03: whatever the broker lets through is put aside in the midst of rows."""
    for number, head in enumerate(HEADS.values()):
        publisher.send(name, b"not json %d" % number, head)
        publisher.send(name, b'{"n": %d}' % number)
    publisher.bind(name, f"{name}-fan")
    publisher.send(name, b"not json", exchange=f"{name}-fan".encode(), key=b"caf\xe9")
    publisher.send(name, b'{"n": 100}', exchange=f"{name}-fan".encode(), key=b"\xff" * 255)

    source = f"{rabbit_url}?queue={name}"
    argv = [sys.executable, "-m", "netspy.cli", "consume", source, "-o", "out.jsonl", "--once"]
    run_command(argv, cwd=tmp_path, timeout=60).check()

    rows = {*(tmp_path / "out.jsonl").read_text().split()}
    assert rows == {f'{{"n":{n}}}' for n in (*range(len(HEADS)), 100)}
    apart = {}
    while (message := publisher.get(f"{name}.failed")) is not None:
        apart[message[0]] = message[1]
    assert apart.keys() == {b"not json", *(b"not json %d" % n for n in range(len(HEADS)))}
    for number, (what, head) in enumerate(HEADS.items()):
        copy = apart[b"not json %d" % number]
        if what == "a header as large as a frame":
            assert b"trace (130,904 bytes)" in copy
        elif what == "headers that fill a frame":
            assert copy.count(b"y" * 13_080) >= 9
            assert b"x-left-out" in copy
        elif what != "a count of deliveries that is text":  # that is the old queue's
            before, after = Properties.read(head), Properties.read(copy)
            assert before.parts.items() <= after.parts.items(), what
            assert set(before.headers) <= set(after.headers), what
    assert publisher.get(name) is None


async def test_a_task_with_any_properties_is_handed_out_and_fails_whole(rabbit_url, publisher, name):
    """Cases HB-02, HB-03: also when it was readable."""
    for number, head in enumerate(HEADS.values()):
        publisher.send(name, b"%d" % number, head)
    source = await opened(rabbit_url, name)
    tasks = await taken(source, len(HEADS))
    assert [task.value for task in tasks] == list(range(len(HEADS)))
    assert len({task.token for task in tasks}) == len(HEADS)
    await source.failed([(task, "ValueError: no such shop") for task in tasks])
    assert await source.take(5) == []
    backlog = await source.backlog()
    assert backlog[:2] == (0, 0)
    assert backlog.failed == len(HEADS)
    await source.close()


async def test_the_copy_of_a_failed_message_has_all_that_the_message_had(rabbit_url, publisher, name):
    """Case HB-08; but for what would make the broker refuse it, drop it or send it back."""
    had = {
        "content_type": short(b"application/json"), "content_encoding": short(b"gzip"), "priority": b"\x05",
        "correlation_id": short(b"c1"), "reply_to": short(b"answers"), "message_id": short(b"order-7"),
        "timestamp": struct.pack(">Q", 1_577_836_800), "type": short(b"order"), "app_id": short(b"shop"),
        "user_id": short(b"guest"),
    }  # fmt: skip
    headers = pair(b"a", b"S" + long(b"1")) + pair(b"x-error", b"S" + long(b"of the last time"))
    back = pair(b"CC", b"A" + long(b"S" + long(name.encode())))
    publisher.send(name, b"\x1f\x8b", properties(**had, expiration=short(b"600000"), headers=headers + back))
    source = await opened(rabbit_url, name)
    async with asyncio.timeout(30):
        while (await source.backlog()).failed != 1:
            assert await source.take(5) == []
    await source.close()
    body, head = publisher.get(f"{name}.failed")
    copy = Properties.read(head)
    assert body == b"\x1f\x8b"
    assert {part: copy.parts[part] for part in had} == had
    assert copy.parts["delivery_mode"] == b"\x02"
    assert "expiration" not in copy.parts
    assert copy.header(b"x-expiration") == b"S" + long(b"600000")
    assert copy.header(b"a") == b"S" + long(b"1")
    assert copy.header(b"x-cc") == back[3:]
    assert [key for key, _ in copy.headers].count(b"x-error") == 1
    assert b"no JSON" in copy.header(b"x-error")
    assert publisher.get(name) is None


async def test_a_copy_that_the_broker_refuses_for_good_is_put_aside_in_part(
    rabbit_url, publisher, name, monkeypatch
):
    """The broker ends the channel over it, as it does over a message that is too large."""
    publisher.send(name, b"x" * 5000, properties(user_id=short(b"guest")))
    publisher.send(name, b"1")
    monkeypatch.setattr("netspy.tasks.amqp_failed.of_a_copy", _with_another_user)
    source = await opened(rabbit_url, name)
    [good] = await taken(source, 1)
    assert good.value == 1
    async with asyncio.timeout(30):
        while (await source.backlog()).failed != 1:
            assert await source.take(5) == []
    await source.close()
    body, head = publisher.get(f"{name}.failed")
    assert body == b"x" * 5000
    assert b"put aside without properties" in Properties.read(head).header(b"x-error")


def _with_another_user(original, notes, **how):
    copy = of_a_copy(original, notes, **how)
    if "user_id" in copy.parts:
        copy.parts["user_id"] = short(b"somebody")
    return copy


# ---- Kafka


async def through_kafka(kafka, name, write, count):
    """The messages of the failed topic, by body, when `write` has written `count` of them and one task."""
    from confluent_kafka import Consumer, Producer

    producer = Producer({"bootstrap.servers": kafka.servers})
    await asyncio.to_thread(write, producer)
    producer.produce(name, b"1")
    assert await asyncio.to_thread(producer.flush, 30) == 0
    source = KafkaTaskSource(f"kafka://{kafka.servers}/{name}?group={name}", SETTINGS, topic="x", group="x")
    await source.open()
    tasks = []
    async with asyncio.timeout(60):
        while not tasks or (await source.backlog()).failed < count:
            tasks += await source.take(10)
    assert [task.value for task in tasks] == [1]
    await source.settled(tasks)
    await source.close()
    reader = Consumer(
        {"bootstrap.servers": kafka.servers, "group.id": f"r-{name}", "auto.offset.reset": "earliest"}
    )
    reader.subscribe([f"{name}.failed"])
    found = [await asyncio.to_thread(reader.poll, 30) for _ in range(count)]
    reader.close()
    return {message.value(): message for message in found}


async def test_the_copy_of_a_failed_kafka_message_has_all_that_the_message_had(kafka, name):
    """Case HB-08: key, time, a null that stays null, headers without a value; and the notes in the place of older ones."""

    def write(producer):
        producer.produce(name, None, key="shop-1", headers=[("a", None), ("b", b"\xff"), ("error", b"old")])
        producer.produce(name, b"not json", key=b"\xff", timestamp=1_577_836_800_000)
        producer.produce(name, b"")

    found = await through_kafka(kafka, name, write, 3)
    assert found.keys() == {None, b"not json", b""}
    assert (found[None].key(), found[b""].key()) == (b"shop-1", None)
    assert found[None].headers()[:2] == [("a", None), ("b", b"\xff")]
    assert [key for key, _ in found[None].headers()] == ["a", "b", "error", "failed-at", "offset"]
    assert found[b"not json"].key() == b"\xff"
    assert found[b"not json"].timestamp()[1] == 1_577_836_800_000


async def test_a_kafka_message_whose_headers_are_too_large_or_no_text_is_put_aside_in_part(kafka, name):
    """Cases HB-01, HB-02 on Kafka. The client library can't decode a header's name that is no UTF-8."""

    def write(producer):
        # With the notes it is over what a producer may send (1,000,000 bytes by default).
        producer.produce(name, b"not json", key=b"k", headers=[("trace", b"x" * 999_850)])
        write_with_headers(kafka.servers, name, b"not json either", [(b"caf\xe9", b"v")])

    found = await through_kafka(kafka, name, write, 2)
    large, latin = found[b"not json"], found[b"not json either"]
    assert large.key() == b"k"
    assert dict(large.headers())["left-out"] == b"headers, 999855 bytes"
    assert b"no UTF-8" in dict(latin.headers())["left-out"]


async def test_a_damaged_batch_is_passed_over_with_a_word_and_what_lies_around_it_is_served(kafka, name):
    """Case HB-03 on Kafka: the client library reads it again and again, and says nothing."""
    kafka.topic(name, 1)
    said = []
    number = logger.add(said.append, level="ERROR")
    source = KafkaTaskSource(f"kafka://{kafka.servers}/{name}?group={name}", SETTINGS, topic="x", group="x")
    await source.open()
    await source.add(["first"])
    await asyncio.to_thread(write_damaged_batch, kafka.servers, name, codec=1, count=7)
    await source.add(["last"])
    tasks = await taken(source, 2)
    assert [task.value for task in tasks] == ["first", "last"]
    await source.settled(tasks)
    backlog = await source.backlog()
    assert backlog[:2] == (0, 0)
    assert source.unreadable == 7
    assert sum("can't be decoded" in line for line in said) == 1
    await source.close()
    logger.remove(number)


async def test_messages_in_a_compression_that_the_client_lacks_end_the_start_or_the_run(kafka, name):
    """They are good ones: to pass over them would lose them."""
    kafka.topic(name, 1)
    await asyncio.to_thread(write_damaged_batch, kafka.servers, name, codec=7, count=1)
    source = KafkaTaskSource(f"kafka://{kafka.servers}/{name}?group={name}", SETTINGS, topic="x", group="x")

    async def work():
        await source.open()
        while True:
            await source.take(5)

    with pytest.raises(ConfigError, match=r"another compression\.type"):
        await asyncio.wait_for(work(), 30)
    await source.close()


async def test_a_group_that_this_user_may_not_join_is_one_clear_error_at_the_start(name):
    with KafkaMock() as kafka:
        kafka.request_errors(JOIN_GROUP, *[GROUP_AUTHORIZATION_FAILED] * 20)
        source = KafkaTaskSource(
            f"kafka://{kafka.servers}/{name}?group={name}", SETTINGS, topic="x", group="x"
        )
        with pytest.raises(ConfigError, match="the rights for the topic and the group"):
            await asyncio.wait_for(source.open(), 20)
        await source.close()


def test_what_brokers_refuse_is_offered_to_them_with_less_and_less():
    notes = [("error", b"e"), ("offset", b"t/0/7")]
    whole = Record(b"body", [("a", b"1"), *notes], None, 5)
    first, keyed, less, note = in_parts(whole)
    assert first is whole
    assert keyed == Record(b"body", whole.headers, b"t/0/7", 0)
    assert (less.value, less.headers[:-1]) == (b"", whole.headers)
    assert (note.value, note.headers[:-1]) == (b"", notes)
    assert note.headers[-1] == ("left-out", b"4 bytes, and headers, 2 bytes")
    large = Record(b"body", [("a", b"x" * 9), *notes], b"k")
    assert in_parts(large)[2] == Record(b"body", [*notes, ("left-out", b"headers, 10 bytes")], b"k")
