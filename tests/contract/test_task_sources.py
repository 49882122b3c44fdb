"""The task source's contract, on every kind of source: add a kind by one line in KINDS."""

from __future__ import annotations

import uuid

import pytest

from netspy.settings import Settings
from netspy.testing.source_contract import (
    CHECKS,
    OUTLIVES_A_LEASE,
    Traits,
    a_settled_task_is_gone,
    two_nodes_share_the_tasks,
)

CHANGES_THE_GROUP = {a_settled_task_is_gone, two_nodes_share_the_tasks}
SETTINGS = Settings(TASK_BATCH_SIZE=50, REDIS_START_TIMEOUT=60.0)


class Memory(Traits):
    shared = durable = False

    def __init__(self, request, check) -> None:
        pass

    async def make(self):
        from netspy.tasks.memory import MemoryTaskSource

        return MemoryTaskSource()


class Rabbit(Traits):
    def __init__(self, request, check) -> None:
        self.url = f"{request.getfixturevalue('rabbit_url')}?queue=contract-{uuid.uuid4().hex}"

    async def make(self):
        from netspy.tasks.amqp import AmqpTaskSource

        return AmqpTaskSource(self.url, SETTINGS, queue="unused")


class Kafka(Traits):
    first_in_first_out = False
    patience_s = 60.0

    def __init__(self, request, check) -> None:
        name = f"contract-{uuid.uuid4().hex}"
        # The mock waits for a session's time at each change of the group, and knows the older kind of rebalance best.
        session_ms = 1500 if check in OUTLIVES_A_LEASE else 3000 if check in CHANGES_THE_GROUP else 30_000
        how = f"session.timeout.ms={session_ms}&heartbeat.interval.ms=200&partition.assignment.strategy=range"
        self.url = f"kafka://{request.getfixturevalue('kafka').servers}/{name}?group={name}&{how}"

    async def make(self):
        from netspy.tasks.kafka.source import KafkaTaskSource

        return KafkaTaskSource(self.url, SETTINGS, topic="unused", group="unused")


class RedisStream(Traits):
    def __init__(self, request, check) -> None:
        self.lease_s = 0.3 if check in OUTLIVES_A_LEASE else 600.0
        self.settings = Settings(REDIS_URL=request.getfixturevalue("redis_url"))
        self.key = f"contract-{uuid.uuid4().hex}"

    async def make(self):
        from netspy.tasks.redis.stream import RedisStreamSource

        return RedisStreamSource(self.settings, self.key, lease_s=self.lease_s)


class StreamOfTasks(RedisStream):
    async def make(self):
        from netspy.tasks.redis.stream import TASK_FIELD, RedisStreamSource

        return RedisStreamSource(self.settings, self.key, field=TASK_FIELD, group="job", lease_s=self.lease_s)


KINDS = {
    "memory": Memory,
    "rabbitmq": Rabbit,
    "kafka": Kafka,
    "redis stream": RedisStream,
    "stream of tasks": StreamOfTasks,
}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("kind", KINDS)
async def test_task_source(kind, check, request):
    await check(KINDS[kind](request, check))
