"""Kafka as a task source when something goes wrong: outages, kills, lost messages, foreign and broken ones, wrong set-ups."""

from __future__ import annotations

import asyncio
import json
import re
import time
import uuid

import pytest
from broker_rig import SETTINGS, TAKER, drain, taken
from loguru import logger

from netspy.brokers import kafka as brokers
from netspy.errors import ConfigError, SerializationError, StoreLostError, StoreUnavailableError
from netspy.settings import Settings
from netspy.tasks.kafka.source import KafkaTaskSource
from netspy.testing.children import wait_until
from netspy.testing.runner import start_script
from support.kafka_mock import UNKNOWN_TOPIC, KafkaMock

QUICK = "session.timeout.ms=1500&heartbeat.interval.ms=200&partition.assignment.strategy=range"


def kafka_source(servers, topic, query=QUICK, settings=SETTINGS):
    return KafkaTaskSource(
        f"kafka://{servers}/{topic}?group=g-{topic}&{query}", settings, topic="x", group="x"
    )


@pytest.fixture
def name():
    return f"hazard-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def said():
    """What is logged, line by line."""
    lines = []
    number = logger.add(lines.append, level="WARNING")
    yield lines
    logger.remove(number)


AWAY = {
    "cut": (KafkaMock.down, KafkaMock.up),
    "frozen": (KafkaMock.pause, KafkaMock.resume),
    "killed": (KafkaMock.kill, KafkaMock.start),
}


@pytest.fixture
def own_kafka():
    with KafkaMock() as running:
        yield running


@pytest.mark.slow
@pytest.mark.parametrize("how", ["cut", "frozen", "killed"])
async def test_kafka_away_for_a_while_loses_no_task_and_repeats_none_in_hand(own_kafka, name, how):
    outages = []
    source = KafkaTaskSource(
        f"kafka://{own_kafka.servers}/{name}?group=g&socket.timeout.ms=1000&{QUICK}",
        SETTINGS, topic="x", group="x", on_outage=lambda *o: outages.append(o),
    )  # fmt: skip
    await source.open()
    await source.add(list(range(300)))
    in_hand = await taken(source, 30)
    done = {task.value: 1 for task in in_hand}
    await asyncio.to_thread(own_kafka.kill, groups=["g"]) if how == "killed" else AWAY[how][0](own_kafka)
    adding = asyncio.create_task(source.add(list(range(300, 320))))
    looking = asyncio.create_task(source.backlog())
    end = time.monotonic() + 60
    while not outages:
        assert time.monotonic() < end, "nobody was told"
        await asyncio.sleep(0.02)
    assert not adding.done()
    await asyncio.to_thread(AWAY[how][1], own_kafka)
    await adding
    assert (await looking).waiting >= 270
    await source.settled(in_hand[:20])
    await drain(source, set(range(320)), done)
    # What was being added may have been written twice: the mock doesn't know the producer's sequence numbers.
    assert max(times for value, times in done.items() if value < 300) == 1
    await source.settled(in_hand[20:])
    end = time.monotonic() + 60
    while (await source.backlog()).waiting:
        assert time.monotonic() < end
        await source.settled(await source.take(50))  # what was written twice
    assert outages[0] == (True, 0.0)
    assert outages[-1][0] is False
    await source.close()
    after = kafka_source(own_kafka.servers, name, f"group=g&{QUICK}")
    await after.open()
    assert await after.take(10) == [], "all of it was committed"
    await after.close()


@pytest.mark.slow
async def test_kafka_that_lost_what_was_committed_serves_what_is_written_after_that(own_kafka, name, said):
    """A replica that lagged behind was elected: the log is shorter than the group's offset, then grows beyond it.

    The growth comes when the node has seen the end: in between, only the epochs that are committed with offsets tell, and
    the mock doesn't keep these.
    """
    own_kafka.topic(name, 1)
    own_kafka.topic(f"{name}.failed", 1)
    source = kafka_source(own_kafka.servers, name)
    await source.open()
    await source.add(list(range(100)))
    tasks = await taken(source, 80)
    await source.settled(tasks[:60])
    in_hand, done = tasks[60:], {task.value: 1 for task in tasks}
    await asyncio.to_thread(own_kafka.kill, groups=[f"g-{name}"])
    await asyncio.to_thread(own_kafka.start, lost=70)
    end = time.monotonic() + 60
    while (await source.backlog()).waiting:
        assert time.monotonic() < end
        come = await source.take(50)
        assert {task.value for task in come} <= set(range(80, 100)), (
            "fetched before; what is left of the log is known"
        )
        await source.settled(come)
    await source.add(list(range(100, 150)))  # at the offsets 30 to 79, most of which the group had behind it
    await drain(source, set(range(100, 150)), done)
    assert max(done.values()) == 1
    await source.settled(in_hand)
    end = time.monotonic() + 60
    while (left := await source.backlog())[:2] != (0, 0):
        assert time.monotonic() < end, left
        assert await source.take(10) == []
    await source.close()
    assert any("was read up to" in text for text in said)
    after = kafka_source(own_kafka.servers, name)
    await after.open()
    assert await after.take(10) == []
    await after.add(["later"])
    assert [task.value for task in await taken(after, 1)] == ["later"]
    await after.close()


async def test_kafka_says_how_many_tasks_its_retention_deleted(own_kafka, name, said):
    own_kafka.topic(name, 1)
    source = kafka_source(own_kafka.servers, name)
    await source.open()
    await source.add(list(range(20)))
    await source.settled(await taken(source, 5))
    await source.close()
    own_kafka.expire(name, 0, 12)
    after = kafka_source(own_kafka.servers, name)
    await after.open()
    await after.backlog()  # a node looks before it settles anything
    left = {}
    await drain(after, set(range(12, 20)), left)
    assert min(left) == 12
    await after.close()
    assert any(
        f"{name} [0] begins at offset 12: 7 message(s) from 5 on were deleted" in text for text in said
    )


async def test_kafka_with_a_new_leader_commits_the_tasks_of_the_old_one(own_kafka, name):
    own_kafka.topic(name, 1)
    source = kafka_source(own_kafka.servers, name)
    await source.open()
    await source.add([1, 2, 3])
    tasks = await taken(source, 3)
    own_kafka.elect(name, 1)
    await source.settled(tasks)
    end = time.monotonic() + 60
    while (left := await source.backlog())[:2] != (0, 0):
        assert time.monotonic() < end, left
        await asyncio.sleep(0.05)
    await source.close()


@pytest.mark.slow
async def test_kafka_whose_committed_offset_lies_behind_its_end_does_not_keep_a_crawl_from_ending(
    own_kafka, name
):
    own_kafka.topic(name, 2)
    source = kafka_source(own_kafka.servers, name)
    await source.open()
    await source.add(list(range(40)))
    await drain(source, set(range(40)), {})
    await source.close()
    await asyncio.to_thread(own_kafka.kill, groups=[f"g-{name}"])
    await asyncio.to_thread(own_kafka.start, lost=15)
    after = kafka_source(own_kafka.servers, name)
    await after.open()
    end = time.monotonic() + 60
    while (left := await after.backlog())[:2] != (0, 0):
        assert time.monotonic() < end, left
        await after.settled(await after.take(50))
    await after.close()


@pytest.mark.slow
async def test_kafka_gives_the_tasks_of_a_killed_process_to_another(kafka, name, tmp_path):
    kafka.topic(name, 2)
    first = kafka_source(kafka.servers, name)
    await first.open()
    await first.add(list(range(300)))
    await first.close()
    address = f"kafka://{kafka.servers}/{name}?group=g-{name}&{QUICK}"
    script = TAKER.replace("task.value, flush", "'4', task.value, flush")
    with start_script(script, cwd=tmp_path, args=[address]) as running:
        running.wait_line("settles 4")
        running.wait_line("holds")
        running.kill()
        output = running.finish().stdout
    done = {int(n) for n in re.findall(r"^settles 4 (\d+)$", output, re.M)}
    assert done
    after = kafka_source(kafka.servers, name)
    await after.open()
    rest = {}
    await drain(after, set(range(300)) - done, rest)
    assert set(rest) | done == set(range(300))
    await after.close()


async def test_kafka_commits_only_up_to_the_first_task_that_is_not_settled(kafka, name):
    kafka.topic(name, 1)
    source = kafka_source(kafka.servers, name)
    await source.open()
    await source.add(list(range(10)))
    tasks = await taken(source, 10)
    await source.settled([task for task in tasks if task.value not in {3, 7}])
    end = time.monotonic() + 60
    while (left := await source.backlog()).waiting + left.taken != 7:  # the group may have to be joined again
        assert time.monotonic() < end, left
        assert await source.take(10) == []
    await source.close()
    after = kafka_source(kafka.servers, name)
    await after.open()
    again = await taken(after, 7)
    assert [task.value for task in again] == [3, 4, 5, 6, 7, 8, 9]
    assert {task.token for task in again} == {task.token for task in tasks[3:]}
    await after.close()


async def test_kafka_partition_with_too_many_unsettled_tasks_waits(kafka, name):
    kafka.topic(name, 1)
    source = kafka_source(kafka.servers, name, f"open=20&{QUICK}")
    await source.open()
    await source.add(list(range(150)))
    held = await taken(source, 20)
    while more := await source.take(50):
        held += more
        assert len(held) <= 60
    done = {}
    await source.settled(held)
    done |= {task.value: 1 for task in held}
    await drain(source, set(range(150)), done)
    assert max(done.values()) == 1
    await source.close()


@pytest.mark.slow
async def test_kafka_partition_that_waits_goes_on_after_the_group_had_lost_this_node(own_kafka, name):
    own_kafka.topic(name, 1)
    source = kafka_source(own_kafka.servers, name, f"open=20&{QUICK}")
    await source.open()
    await source.add(list(range(100)))
    held = await taken(source, 20)
    thread = source._thread
    before = thread._offsets[0]
    assert await asyncio.to_thread(wait_until, lambda: 0 in thread._paused, 30)
    own_kafka.pause()
    assert await asyncio.to_thread(wait_until, lambda: 0 not in thread._offsets, 60), "the session is over"
    own_kafka.resume()
    assert await asyncio.to_thread(wait_until, lambda: thread._offsets.get(0) not in (None, before), 30)
    done = {}
    await source.settled(held)
    done |= {task.value: 1 for task in held}
    await drain(source, set(range(100)), done)
    await source.close()


@pytest.mark.slow
async def test_kafka_moves_partitions_between_nodes_that_come_and_go(kafka, name):
    kafka.topic(name, 4)
    nodes = [kafka_source(kafka.servers, name)]
    await nodes[0].open()
    await nodes[0].add(list(range(200)))
    held = await nodes[0].take(20)
    done = {}
    nodes.append(kafka_source(kafka.servers, name))
    await nodes[1].open()
    working = [asyncio.create_task(drain(node, set(range(400)), done)) for node in nodes]
    await nodes[0].add(list(range(200, 400)))
    # What the first node holds may be delivered to the second one, whose partition it is now, and not to the first.
    await nodes[0].settled(held)
    done |= {task.value: 1 for task in held}
    await asyncio.gather(*working)
    await nodes[1].close()
    await nodes[0].close()


async def test_kafka_takes_none_of_the_tasks_of_which_one_is_too_large(own_kafka, name):
    source = kafka_source(own_kafka.servers, name, f"message.max.bytes=2000&{QUICK}")
    await source.open()
    with pytest.raises(
        SerializationError, match=r"task 1 of 3,002 bytes is larger than a message may be \(2,000\)"
    ):
        await source.add(["small", "x" * 3000])
    await source.add(["next"])
    assert [task.value for task in await taken(source, 1)] == ["next"]
    await source.close()


async def test_kafka_may_leave_the_assignment_to_its_brokers(own_kafka, name):
    """KIP-848: another protocol of groups, in which a member that leaves is missed at once."""
    done = {}
    for part in range(2):
        source = kafka_source(own_kafka.servers, name, "group.protocol=consumer")
        await source.open()
        await source.add(list(range(part * 10, part * 10 + 10)))
        await drain(source, set(range(part * 10, part * 10 + 10)), done)
        await source.close()
    assert done == dict.fromkeys(range(20), 1)


async def test_kafka_messages_of_others_are_tasks_and_broken_ones_go_to_the_failed_topic(kafka, name):
    from confluent_kafka import Consumer, Producer

    source = kafka_source(kafka.servers, name)
    await source.open()
    producer = Producer({"bootstrap.servers": kafka.servers})
    for body in (b'{"a": 1}', b'{"!x": 1}', b"<xml/>", None):
        producer.produce(name, body)
    assert producer.flush(60) == 0
    tasks = []
    while len(tasks) < 2 or (await source.backlog()).failed < 2:
        tasks += await source.take(10)
    assert sorted(json.dumps(task.value) for task in tasks) == ['{"!x": 1}', '{"a": 1}']
    await source.settled(tasks)
    await source.close()
    reader = Consumer({"bootstrap.servers": kafka.servers, "group.id": "r", "auto.offset.reset": "earliest"})
    reader.subscribe([f"{name}.failed"])
    found = [reader.poll(60), reader.poll(60)]
    reader.close()
    assert {message.value() for message in found} == {b"<xml/>", None}
    headers = dict(found[0].headers())
    assert b"no JSON" in headers["error"]
    assert headers["offset"].startswith(f"{name}/".encode())


@pytest.mark.parametrize("last", ["answered", "unanswered"])
async def test_kafka_without_the_topic_says_how_to_make_it(own_kafka, name, last, monkeypatch):
    """Also when the last of many questions, for which little time is left, gets no answer."""
    error_kind = brokers.error_kind

    def away_after(error):
        trouble = error_kind(error)
        if trouble == "topic" and last == "unanswered":
            own_kafka.down()
        return trouble

    monkeypatch.setattr(brokers, "error_kind", away_after)
    own_kafka.topic_error(name, UNKNOWN_TOPIC)
    source = kafka_source(own_kafka.servers, name, settings=Settings(REDIS_START_TIMEOUT=2.0))
    with pytest.raises(ConfigError, match=rf"has no topic '{name}'.*kafka-topics.sh --create --topic {name}"):
        await source.open()
    await source.close()


@pytest.mark.slow
async def test_kafka_away_while_more_is_written_than_the_client_buffers_is_told_of(own_kafka, name):
    outages = []
    source = KafkaTaskSource(
        f"kafka://{own_kafka.servers}/{name}?queue.buffering.max.messages=2000&{QUICK}",
        SETTINGS, topic="x", group="x", on_outage=lambda *o: outages.append(o),
    )  # fmt: skip
    await source.open()
    own_kafka.down()
    adding = asyncio.create_task(source.add(list(range(3000))))
    end = time.monotonic() + 60
    while not outages:
        assert time.monotonic() < end, "nobody was told"
        await asyncio.sleep(0.02)
    own_kafka.up()
    await asyncio.wait_for(adding, 60)
    assert outages[0] == (True, 0.0)
    assert outages[-1][0] is False
    await source.close()


@pytest.mark.slow
async def test_kafka_absent_ends_the_start_in_time_and_a_stop_ends_the_waiting(own_kafka, name):
    source = KafkaTaskSource("kafka://127.0.0.1:1/x", Settings(REDIS_START_TIMEOUT=0.3), topic="x", group="g")
    with pytest.raises(StoreUnavailableError, match=r"did not answer within 0\.3 s"):
        await source.open()
    source = kafka_source(own_kafka.servers, name)
    await source.open()
    own_kafka.down()
    waiting = [asyncio.create_task(call) for call in (source.add([1]), source.backlog(), source.take(1))]
    await asyncio.sleep(0.3)
    source.give_up_waiting()
    for one in await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 10):
        assert isinstance(one, StoreLostError)
    await asyncio.wait_for(source.close(), 30)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("kafka://host/topic?sesion.timeout.ms=6", "sesion.timeout.ms"),
        ("kafka://host/topic?grup=x", "did you mean group"),
        ("kafka://host/topic?open=0", "it is a whole number above 0"),
        ("kafka://host/topic?auto.offset.reset=latest", "would pass over tasks"),
        ("kafka://host/topic?auto.offset.reset=error", "--group x --topic topic --reset-offsets"),
        ("kafka://u:geheim@host:port/topic", "names no host"),
        ("http://host/topic", "is no Kafka address"),
        ("kafka://host/to pic", "names the topic 'to pic'"),
    ],
)
async def test_kafka_address_that_is_wrong_says_what_is(url, text):
    with pytest.raises(ConfigError, match=re.escape(text)) as caught:
        await KafkaTaskSource(url, SETTINGS, topic="x", group="x").open()
    assert "geheim" not in str(caught.value)
