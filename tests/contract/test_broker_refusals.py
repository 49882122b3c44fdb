"""A broker that says no, on a connection that works: an answer, not an outage. RabbitMQ's refusals and alarms."""

from __future__ import annotations

import asyncio
import sys
import time
import uuid

import aio_pika
import pytest
from broker_rig import SETTINGS, taken

from netspy.brokers import rabbit
from netspy.errors import ConfigError, SerializationError, StoreUnavailableError
from netspy.pipelines.rabbitmq import RabbitmqPipeline
from netspy.settings import Settings
from netspy.tasks.amqp import AmqpTaskSource
from netspy.testing.runner import run_command
from support.missing import missing
from support.rabbitmq_server import RabbitServer, find_rabbitmq_server
from support.raw_amqp import RawPublisher


@pytest.fixture
def name():
    return f"refused-{uuid.uuid4().hex[:12]}"


def source_at(url, name, **options):
    query = "".join(f"&{key}={value}" for key, value in options.items())
    return AmqpTaskSource(f"{url}?queue={name}{query}", SETTINGS, queue="unused")


async def nothing(_message):
    """Takes it."""


async def purge(url, queue):
    async with await aio_pika.connect(url) as link, link.channel() as channel:
        await (await channel.get_queue(queue)).purge()


async def until(what, seconds=30.0):
    end = time.monotonic() + seconds
    while not await what():
        assert time.monotonic() < end
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
async def test_a_full_failed_queue_costs_no_session_and_holds_up_no_task(rabbit_url, name, kind):
    """Case HB-04: tasks in hand, of which the broker counts deliveries, stay this node's."""
    with RawPublisher(rabbit_url) as publisher:
        publisher.declare(name, x_queue_type=kind, **({"x_delivery_limit": 2} if kind == "quorum" else {}))
        publisher.declare(f"{name}.failed", x_max_length=1, x_overflow="reject-publish")
        for body in (b"not json 1", b"1", b"2", b"not json 2", b"3"):
            publisher.send(name, body)
    source = source_at(rabbit_url, name)
    await source.open()
    tasks = await taken(source, 3)
    assert [task.value for task in tasks] == [1, 2, 3]
    session = source._link._session
    await source.failed([(tasks[0], "ValueError: no such shop")])
    assert await source.take(5) == []
    assert (await source.backlog())[:2] == (0, 4)  # one of the three that can't be used has been put aside
    await source.settled(tasks[1:])

    await purge(rabbit_url, f"{name}.failed")

    async def another_is_put_aside():
        assert await source.take(5) == []
        return (await source.backlog()).taken == 1

    await until(another_is_put_aside)
    assert source._link._session is session
    assert source._publisher._count == 1
    await source.close()


async def test_a_task_for_a_full_queue_waits_and_a_stop_ends_that(rabbit_url, name):
    with RawPublisher(rabbit_url) as publisher:
        publisher.declare(name, x_max_length=2, x_overflow="reject-publish")
    source = source_at(rabbit_url, name)
    source.consumes = False
    await source.open()
    await source.add([1, 2])
    adding = asyncio.create_task(source.add([3, 4]))
    await asyncio.sleep(0.5)
    assert not adding.done()
    await purge(rabbit_url, name)
    await asyncio.wait_for(adding, 20)
    adding = asyncio.create_task(source.add([5]))
    await asyncio.sleep(0.1)
    source.give_up_waiting()
    with pytest.raises(StoreUnavailableError, match="may be full"):
        await asyncio.wait_for(adding, 10)
    assert source._publisher._count == 1
    await source.close()


async def test_queues_deleted_under_a_source_are_made_again_at_the_next_message(rabbit_url, name):
    source = source_at(rabbit_url, name)
    await source.open()
    await source.add([1])
    [task] = await taken(source, 1)
    async with await aio_pika.connect(rabbit_url) as link, link.channel() as channel:
        await channel.queue_delete(f"{name}.failed")
    session = source._link._session
    await source.failed([(task, "ValueError: no such shop")])
    assert (await source.backlog()).failed == 1
    assert source._link._session is session
    await source.close()


@pytest.fixture(scope="module")
def small_broker():
    """A node of its own: its alarms, and its limit for a message, concern everybody."""
    if find_rabbitmq_server() is None:
        missing("no rabbitmq-server on this machine")
    with RabbitServer(config={"max_message_size": "100000"}) as server:
        yield server


@pytest.mark.slow
async def test_a_task_larger_than_the_broker_takes_is_refused_by_its_size(small_broker, name):
    source = source_at(small_broker.url, name)
    source.consumes = False
    await source.open()
    with pytest.raises(SerializationError, match="message size 200"):
        await source.add(["x" * 200_000])
    await source.add([1])
    assert (await source.backlog()).waiting == 1
    await source.close()


@pytest.mark.slow
async def test_during_an_alarm_tasks_are_handed_out_and_acked_and_no_session_is_dropped(
    small_broker, name, monkeypatch
):
    """Case HB-05: what is published waits, on a connection of its own. Also: the pipeline's rows."""
    monkeypatch.setattr(rabbit, "CALL_S", 2.0)  # an alarm outlasts what silence may mean
    with RawPublisher(small_broker.url) as publisher:
        publisher.declare(name, x_queue_type="quorum", x_delivery_limit=1)
        publisher.declare(f"{name}.failed")
        for number in range(40):
            publisher.send(name, b"%d" % number)
        publisher.send(name, b"not json")
    source = source_at(small_broker.url, name, prefetch=50)
    await source.open()
    in_hand = await taken(source, 10)
    pipeline = RabbitmqPipeline()
    pipeline.settings = Settings(RABBITMQ_URL=small_broker.url)
    await pipeline.open()
    small_broker.control("set_vm_memory_high_watermark", "0.0000001")
    try:
        adding = asyncio.create_task(source.add(["new 1", "new 2"]))
        storing = asyncio.create_task(pipeline.save_items(f"{name}-rows", [{"n": 1}]))
        rest = await taken(source, 30)
        await source.settled(rest)
        assert await source.take(5) == []
        await asyncio.wait({adding}, timeout=2 * rabbit.CALL_S)
        assert not adding.done()
        with pytest.raises(Exception, match="takes no messages in"):
            await storing
        backlog = await source.backlog()
        assert (backlog.waiting, backlog.taken) == (0, 11)
    finally:
        small_broker.control("set_vm_memory_high_watermark", "absolute", "1GB")
    await asyncio.wait_for(adding, 30)
    await pipeline.save_items(f"{name}-rows", [{"n": 1}])
    assert {task.value for task in await taken(source, 2)} == {"new 1", "new 2"}
    assert all(task.deliveries == 1 for task in in_hand)

    async def put_aside():
        await source.take(5)
        return (await source.backlog()).failed == 1

    await until(put_aside)
    assert (source._link._count, source._publisher._count, pipeline._link._count) == (1, 1, 1)
    await pipeline.close()
    await source.close()


# ---- what can't be consumed is refused at the start


async def test_a_stream_queue_is_refused_at_the_start(rabbit_url, name, tmp_path):
    """Case HB-06."""
    with RawPublisher(rabbit_url) as publisher:
        publisher.declare(name, x_queue_type="stream")
        publisher.send(name, b'{"n": 1}')
    source = source_at(rabbit_url, name)
    with pytest.raises(ConfigError, match="is a stream"):
        await source.open()
    await source.close()
    argv = [
        sys.executable,
        "-m",
        "netspy.cli",
        "consume",
        f"{rabbit_url}?queue={name}",
        "-o",
        "o.jsonl",
        "--once",
    ]
    result = await asyncio.to_thread(run_command, argv, cwd=tmp_path, timeout=60)
    assert result.returncode == 3
    assert "is a stream" in result.stderr
    assert "Traceback" not in result.stderr


async def test_a_queue_that_another_program_has_for_itself_is_refused_at_the_start(rabbit_url, name):
    async with await aio_pika.connect(rabbit_url) as link, link.channel() as channel:
        await channel.declare_queue(f"{name}-locked", exclusive=True)
        queue = await channel.declare_queue(f"{name}-used", durable=True)
        await queue.consume(nothing, exclusive=True)
        for which in ("locked", "used"):
            source = source_at(rabbit_url, f"{name}-{which}")
            with pytest.raises(ConfigError, match="another program has the queue for itself"):
                await asyncio.wait_for(source.open(), 20)
            await source.close()


async def test_a_queue_made_in_between_with_other_arguments_is_used_as_it_is(rabbit_url, name, monkeypatch):
    """Its name tells of a timeout: that isn't what the broker says."""
    name = f"{name}-timeout"
    source = source_at(rabbit_url, name)
    link = await aio_pika.connect(rabbit_url)
    declare = aio_pika.Channel.declare_queue

    async def late(self, queue, **how):
        if queue == name and how.get("durable"):
            async with link.channel() as channel:
                await declare(channel, name, durable=True, arguments={"x-max-length": 5})
        return await declare(self, queue, **how)

    monkeypatch.setattr(aio_pika.Channel, "declare_queue", late)
    await asyncio.wait_for(source.open(), 20)
    await source.add([1])
    assert [task.value for task in await taken(source, 1)] == [1]
    await source.close()
    await link.close()


async def test_a_queue_with_a_single_active_consumer_serves_the_next_node_when_the_first_ends(
    rabbit_url, name
):
    with RawPublisher(rabbit_url) as publisher:
        publisher.declare(name, x_single_active_consumer=True)
    first, second = source_at(rabbit_url, name, prefetch=2), source_at(rabbit_url, name)
    await first.open()
    await second.open()
    await first.add([1, 2, 3])
    held = await taken(first, 2)
    assert await second.take(5) == []
    assert (await second.backlog()).waiting == 1  # so the second node doesn't take the queue for empty
    await first.settled(held)
    await first.close()
    assert [task.value for task in await taken(second, 1)] == [3]
    await second.close()
