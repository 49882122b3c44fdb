"""Where `netspy consume` reads: the source that an address names."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode

from netspy.brokers.address import display_url
from netspy.errors import ConfigError
from netspy.policy.run_scope import CLUSTER_SCHEMES

if TYPE_CHECKING:
    from collections.abc import Callable

    from netspy.settings import Settings
    from netspy.tasks.contract import TaskSource

GROUP = "netspy"
_REDIS = frozenset({"redis", "rediss", "unix"})
_WAYS = (
    "amqp://user:password@host/vhost?queue=NAME, kafka://host:9092/TOPIC?group=NAME, redis://host:6379/0?list=KEY "
    "(or stream=KEY), or list:KEY and stream:KEY in the Redis of REDIS_URL"
)


def kind_of(address: str) -> str:
    """`amqp`, `kafka`, `list` or `stream`. Raises ConfigError for an address of another kind."""
    scheme = address.partition(":")[0]
    if scheme in {"amqp", "amqps"}:
        return "amqp"
    if scheme.partition("+")[0] == "kafka":
        return "kafka"
    if scheme in {"list", "stream"}:
        return scheme
    if scheme.partition("+")[0] in _REDIS:
        wanted = [name for name, _ in parse_qsl(address.partition("?")[2]) if name in {"list", "stream"}]
        if len(wanted) == 1:
            return wanted[0]
        raise ConfigError(f"{display_url(address)!r} must name one key: …?list=KEY or …?stream=KEY")
    raise ConfigError(f"{display_url(address)!r} is no source of messages; write {_WAYS}")


def message_source(
    address: str, settings: Settings, *, on_outage: Callable[[bool, float], None] | None = None
) -> TaskSource:
    """The source, not opened. Raises ConfigError, MissingExtraError."""
    kind = kind_of(address)
    if kind == "amqp":
        from netspy.tasks.amqp import AmqpTaskSource

        rabbit = AmqpTaskSource(
            address, settings, queue=settings.RABBITMQ_QUEUE, on_outage=on_outage, name="the source"
        )
        if not rabbit.queue:
            raise ConfigError(f"{rabbit.shown!r} names no queue; add ?queue=NAME, or set RABBITMQ_QUEUE")
        # At least a batch must be in hand to store a batch.
        rabbit.prefetch = max(rabbit.prefetch, 2 * settings.ITEM_BATCH_SIZE)
        return rabbit
    if kind == "kafka":
        return _kafka(address, settings, on_outage)
    return _redis(kind, address, settings, on_outage)


def _kafka(address: str, settings: Settings, on_outage: Callable[[bool, float], None] | None) -> TaskSource:
    from netspy.brokers.kafka import read_kafka
    from netspy.tasks.kafka.source import OPTIONS, KafkaTaskSource

    topic = settings.KAFKA_TOPIC
    found = read_kafka(address, name="the source", servers=settings.KAFKA_BOOTSTRAP_SERVERS, own=OPTIONS)
    if not (found.topic or topic):
        raise ConfigError(
            f"{found.shown!r} names no topic; write kafka://host:9092/TOPIC, or set KAFKA_TOPIC"
        )
    return KafkaTaskSource(
        address,
        settings,
        topic=topic,
        group=GROUP,
        servers=settings.KAFKA_BOOTSTRAP_SERVERS,
        most_open=20 * settings.ITEM_BATCH_SIZE,
        on_outage=on_outage,
        name="the source",
    )


def _redis(
    kind: str, address: str, settings: Settings, on_outage: Callable[[bool, float], None] | None
) -> TaskSource:
    from netspy.tasks.redis.list import RedisTaskList, TaskKeys
    from netspy.tasks.redis.stream import RedisStreamSource

    url, key, group = redis_place(kind, address, settings)
    if kind == "list":
        return RedisTaskList(settings, TaskKeys(key), url=url, on_outage=on_outage)
    return RedisStreamSource(settings, key, group=group or GROUP, url=url, on_outage=on_outage)


def redis_place(kind: str, address: str, settings: Settings) -> tuple[str | None, str, str]:
    """(URL, or None for that of REDIS_URL; key; group, or "") of `KIND:KEY` or `redis://…?KIND=KEY`. Raises ConfigError."""
    url, key, group = None, "", ""
    if "://" in address:
        url, _, query = address.partition("?")
        rest = []
        for name, text in parse_qsl(query, keep_blank_values=True):
            if name == kind:
                key = text
            elif name == "group":
                group = text
            else:
                rest.append((name, text))
        if rest:
            url += f"?{urlencode(rest)}"
    else:
        key = address.partition(":")[2]
    if not key:
        raise ConfigError(f"{display_url(address)!r} names no key; write {kind}:KEY")
    if (url or settings.REDIS_URL).partition("://")[0] in CLUSTER_SCHEMES and "{" not in key:
        key = "{" + key + "}"  # as RedisPipeline names it: what belongs to the key must be in the same slot
    return url, key, group
