"""What a Kafka broker has on its disk, copied out of one cluster and into another: messages and committed offsets."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple, cast

if TYPE_CHECKING:
    from collections.abc import Sequence

TIMEOUT_S = 60.0


class Kept(NamedTuple):
    """`messages` go by topic and partition, `committed` (offset and leader epoch) by group, topic and partition."""

    topics: dict[str, int]
    messages: dict[tuple[str, int], list[Any]]
    committed: dict[tuple[str, str, int], tuple[int, int]]


def _config(servers: str, **more: Any) -> dict[str, Any]:
    return {"bootstrap.servers": servers, "log_level": 0, **more}


def keep(servers: str, groups: Sequence[str]) -> Kept:
    """Everything in the cluster at `servers`. Raises RuntimeError when a partition no longer begins at 0."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
    from confluent_kafka.admin import AdminClient

    found = AdminClient(_config(servers)).list_topics(timeout=TIMEOUT_S).topics
    topics = {name: len(topic.partitions) for name, topic in found.items() if not name.startswith("__")}
    places = [(name, number) for name, count in topics.items() for number in range(count)]
    messages: dict[tuple[str, int], list[Any]] = {place: [] for place in places}
    committed: dict[tuple[str, str, int], tuple[int, int]] = {}
    reader = Consumer(_config(servers, **{"group.id": "keep", "enable.auto.commit": False}))
    try:
        ends = {}
        for place in places:
            first, ends[place] = reader.get_watermark_offsets(TopicPartition(*place), timeout=TIMEOUT_S)
            if first:
                raise RuntimeError(f"{place} begins at {first}: its offsets can't be kept")
        reader.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in places])
        limit = time.monotonic() + TIMEOUT_S
        while any(len(messages[place]) < ends[place] for place in places):
            if time.monotonic() > limit:
                raise RuntimeError(f"the messages at {servers} can't be read")
            for message in reader.consume(500, timeout=0.2):
                if message.error() is None:
                    messages[cast("tuple[str, int]", (message.topic(), message.partition()))].append(message)
    finally:
        reader.close()
    for group in groups:
        member = Consumer(_config(servers, **{"group.id": group}))
        try:
            for mark in member.committed([TopicPartition(*place) for place in places], timeout=TIMEOUT_S):
                if mark.offset >= 0:
                    committed[group, mark.topic, mark.partition] = (
                        mark.offset,
                        -1 if mark.leader_epoch is None else mark.leader_epoch,
                    )
        finally:
            member.close()
    return Kept(topics, messages, committed)


def restore(servers: str, kept: Kept, *, lost: int = 0) -> None:
    """Write it into a cluster whose topics are there and empty, but each partition's last `lost` messages."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    failed: list[Any] = []
    writer = Producer(_config(servers, **{"enable.idempotence": True, "linger.ms": 0}))
    for (topic, number), messages in kept.messages.items():
        for message in messages[: max(0, len(messages) - lost)]:
            writer.produce(
                topic,
                partition=number,
                key=message.key(),
                value=message.value(),
                headers=message.headers() or [],
                timestamp=message.timestamp()[1],
                on_delivery=lambda error, _message: failed.append(error) if error else None,
            )
            writer.poll(0)
    if writer.flush(TIMEOUT_S) or failed:
        raise RuntimeError(f"the messages could not be written to {servers}: {failed[:1]}")
    for group in {group for group, _, _ in kept.committed}:
        member = Consumer(_config(servers, **{"group.id": group, "enable.auto.commit": False}))
        try:
            marks = [
                TopicPartition(topic, number, offset, "", epoch)
                for (of, topic, number), (offset, epoch) in kept.committed.items()
                if of == group
            ]
            member.commit(offsets=marks, asynchronous=False)
        finally:
            member.close()
