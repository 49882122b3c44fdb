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

from netspy.brokers.amqp_properties import Properties
from netspy.tasks.amqp import AmqpTaskSource
from netspy.testing.runner import run_command
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
    from netspy.brokers.amqp_properties import of_a_copy

    copy = of_a_copy(original, notes, **how)
    if "user_id" in copy.parts:
        copy.parts["user_id"] = short(b"somebody")
    return copy
