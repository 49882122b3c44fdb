"""Messages that no consumer can use: kept apart, counted, and never in the way of the others. All four brokers."""

from __future__ import annotations

import asyncio
import sys
import uuid

import pytest
from broker_rig import taken

from netspy.messages.codec import MAX_BYTES
from netspy.settings import Settings
from netspy.tasks.message_source import message_source
from netspy.testing.runner import run_command

JUNK = [b"{broken", b"\xff\xfe", b'["netspy"]', b'{"!decimal": "x", "n": 1}', b""]
HUGE = b'{"n": "' + b"x" * MAX_BYTES + b'"}'  # JSON, and over the limit of a message
KINDS = ["rabbitmq", "kafka", "list", "stream"]


class Queue:
    """One queue: its address, and how another program writes to it."""

    def __init__(self, kind, request) -> None:
        self.kind, self.name = kind, f"poison-{uuid.uuid4().hex[:12]}"
        self.env = {}
        if kind == "rabbitmq":
            self.url = request.getfixturevalue("rabbit_url")
            self.address = f"{self.url}?queue={self.name}"
        elif kind == "kafka":
            self.servers = request.getfixturevalue("kafka").servers
            self.address = f"kafka://{self.servers}/{self.name}?group={self.name}"
        else:
            self.env["NETSPY_REDIS_URL"] = request.getfixturevalue("redis_url")
            self.redis = request.getfixturevalue("redis_server").client(decode_responses=False)
            request.addfinalizer(self.redis.close)
            self.address = f"{kind}:{self.name}"

    def write(self, bodies) -> None:
        if self.kind == "rabbitmq":
            asyncio.run(self._write_rabbit(bodies))
        elif self.kind == "kafka":
            from confluent_kafka import Producer

            producer = Producer({"bootstrap.servers": self.servers, "message.max.bytes": 2 * MAX_BYTES})
            for body in bodies:
                producer.produce(self.name, body)
            assert producer.flush(60) == 0
        elif self.kind == "list":
            self.redis.rpush(self.name, *bodies)
        else:
            for body in bodies:
                self.redis.xadd(self.name, {"row": body})

    async def _write_rabbit(self, bodies):
        import aio_pika

        async with await aio_pika.connect(self.url) as link, link.channel() as channel:
            await channel.declare_queue(self.name, durable=True)
            for body in bodies:
                await channel.default_exchange.publish(aio_pika.Message(body), routing_key=self.name)

    def failed(self) -> int:
        """How many messages are kept apart."""
        if self.kind == "list":
            return self.redis.llen(f"{self.name}:failed")
        if self.kind == "stream":
            return self.redis.xlen(f"{self.name}:failed")
        if self.kind == "rabbitmq":
            return asyncio.run(self._count_rabbit())
        from confluent_kafka import Consumer, TopicPartition

        client = Consumer({"bootstrap.servers": self.servers, "group.id": "look"})
        topic = f"{self.name}.failed"
        parts = client.list_topics(topic, timeout=30).topics[topic].partitions
        total = sum(client.get_watermark_offsets(TopicPartition(topic, n), timeout=30)[1] for n in parts)
        client.close()
        return total

    async def _count_rabbit(self):
        import aio_pika

        async with await aio_pika.connect(self.url) as link, link.channel() as channel:
            found = await channel.declare_queue(f"{self.name}.failed", durable=True, passive=True)
            return found.declaration_result.message_count


@pytest.fixture(params=KINDS)
def queue(request):
    return Queue(request.param, request)


def test_junk_between_rows_is_kept_apart_and_counted_and_every_row_is_stored(queue, tmp_path):
    queue.write([b'{"n": 1}', *JUNK, b'{"n": 2}', HUGE, b'{"n": 3}'])
    argv = [sys.executable, "-m", "netspy.cli", "consume", queue.address, "-o", "out.jsonl", "--once"]
    result = run_command(argv, cwd=tmp_path, env=queue.env, timeout=110).check()
    rows = sorted((tmp_path / "out.jsonl").read_text().splitlines())
    # A foreign object whose key happens to look like a mark of ours is a row like any other.
    assert rows == sorted(['{"n":1}', '{"n":2}', '{"n":3}', '{"!decimal":"x","n":1}'])
    assert queue.failed() == result.summary["user"]["unreadable"] == 5
    assert "5 no rows" in result.stderr
    assert result.summary["items"] == 4


async def test_messages_that_another_program_gave_one_name_are_all_rows(rabbit_url, request):
    import aio_pika

    queue = Queue("rabbitmq", request)
    async with await aio_pika.connect(rabbit_url) as link, link.channel() as channel:
        await channel.declare_queue(queue.name, durable=True)
        for n in range(3):
            message = aio_pika.Message(b'{"n": %d}' % n, message_id="books")
            await channel.default_exchange.publish(message, routing_key=queue.name)
    source = message_source(queue.address, Settings())
    await source.open()
    try:
        found = await taken(source, 3)
        assert [task.value["n"] for task in found] == [0, 1, 2]
        assert len({task.token for task in found}) == 3
        await source.settled(found)
    finally:
        await source.close()


async def test_a_message_that_is_too_large_for_the_failed_topic_does_not_end_the_consumer(request):
    queue = Queue("kafka", request)
    # With the error in its headers it is over what a producer may send (1,000,000 bytes by default).
    await asyncio.to_thread(queue.write, [b"{" + b"x" * 999_900, b'{"n": 1}'])
    source = message_source(queue.address, Settings())
    await source.open()
    try:
        found = []
        while not found:
            found = await source.take(10)
        assert [task.value for task in found] == [{"n": 1}]
        await source.settled(found)
        # Where the group gave the partition anew meanwhile, what is done comes once more and is only counted.
        async with asyncio.timeout(60):
            while (await source.backlog()).waiting:
                assert await source.take(10) == []
    finally:
        await source.close()
    assert await asyncio.to_thread(queue.failed) == 1
