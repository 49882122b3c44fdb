"""Kafka: addresses, clients made from them, and what their errors mean.

    kafka://[user:password@]host[:9092],host…/topic?group=name        kafka+ssl://… over TLS

The query also takes librdkafka's properties, which have a dot in their names (`session.timeout.ms=10000`,
`ssl.ca.location=/path`, `sasl.mechanism=SCRAM-SHA-512`). Without hosts KAFKA_BOOTSTRAP_SERVERS counts. The client is
blocking and has threads of its own; it belongs into one thread of ours, never on the event loop.
"""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from netspy.brokers.address import display_url, read_hosts, read_options, read_user, split_query, wrong
from netspy.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

PORT = 9092
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")  # Kafka's rule (org.apache.kafka.common.internals.Topic)


class KafkaAddress(NamedTuple):
    """`servers` as host:port,host:port; `config` are librdkafka's properties; `options` are ours, from the query."""

    servers: str
    topic: str
    config: dict[str, Any]
    shown: str
    options: dict[str, Any]


def read_kafka(
    url: str,
    *,
    name: str,
    servers: Sequence[str] = (),
    own: Mapping[str, Callable[[str], Any]] | None = None,
) -> KafkaAddress:
    """The address in `url`; `name` is the setting that holds it, `servers` count when it names none. Raises
    ConfigError.
    """
    place, pairs = split_query(url)
    scheme, mark, rest = place.partition("://")
    if not mark or scheme not in {"kafka", "kafka+ssl"}:
        raise wrong(name, url, "is no Kafka address", "write kafka://host:9092,host:9092/topic?group=name")
    authority, _, topic = rest.partition("/")
    secret, at, hosts = authority.rpartition("@")
    if topic and not is_topic(topic):
        raise wrong(
            name,
            url,
            f"names the topic {topic!r}",
            "a topic has letters, digits, dots, hyphens and underscores",
        )
    options, given = read_options(name, url, pairs, own or {}, lambda option: "." in option)
    user, password = read_user(secret) if at else (None, None)
    tls = scheme == "kafka+ssl"
    config: dict[str, Any] = {}
    if tls or at:
        config["security.protocol"] = ("SASL_" if at else "") + ("SSL" if tls else "PLAINTEXT")
    if at:
        config |= {"sasl.mechanism": "PLAIN", "sasl.username": user, "sasl.password": password}
    config |= dict(given)
    return KafkaAddress(
        ",".join(f"{host}:{port}" for host, port in read_hosts(name, url, hosts, PORT))
        if hosts
        else joined(servers),
        topic,
        config,
        display_url(url),
        options,
    )


def joined(servers: Sequence[str]) -> str:
    """KAFKA_BOOTSTRAP_SERVERS as librdkafka wants it. Raises ConfigError for what is no host:port."""
    url = ",".join(servers)
    hosts = [read_hosts("KAFKA_BOOTSTRAP_SERVERS", url, server.strip(), PORT) for server in servers]
    return ",".join(f"{host}:{port}" for several in hosts for host, port in several)


def is_topic(name: str) -> bool:
    """Whether a topic may be called so."""
    return _TOPIC.fullmatch(name) is not None and name not in {".", ".."}


def library() -> Any:
    """The module confluent_kafka. Raises MissingExtraError."""
    try:
        import confluent_kafka
    except ImportError:
        raise MissingExtraError("Kafka", "kafka") from None
    return confluent_kafka


def library_part(name: str) -> Any:
    """A module of confluent_kafka, e.g. `admin`."""
    library()
    return importlib.import_module(f"confluent_kafka.{name}")


_CONSUMERS_OWN = (
    "group.",
    "session.",
    "heartbeat.",
    "max.poll.",
    "auto.",
    "fetch.",
    "isolation.",
    "partition.",
)
_COMMON: dict[str, Any] = {
    "log_level": 0,  # it writes on stderr; errors that matter come through calls and callbacks
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 2000,
    "socket.keepalive.enable": True,
    "client.id": "netspy",
}


def make_producer(address: KafkaAddress, **config: Any) -> Any:
    """A producer that waits for all in-sync replicas and sends nothing twice by itself. Raises ConfigError."""
    return _made(
        "Producer", address, {"enable.idempotence": True, "linger.ms": 5, "compression.type": "lz4", **config}
    )


def make_consumer(address: KafkaAddress, group: str, **config: Any) -> Any:
    """A consumer that commits only what it is told to, and begins a new group at the oldest message. Raises
    ConfigError.
    """
    fixed = {"group.id": group, "enable.auto.commit": False, "enable.auto.offset.store": False}
    defaults = {
        "auto.offset.reset": "earliest",
        "partition.assignment.strategy": "cooperative-sticky",
        "allow.auto.create.topics": True,
        "fetch.wait.max.ms": 100,  # a partition that is resumed waits for the fetch before it
    }
    if address.config.get("group.protocol") == "consumer":
        del defaults["partition.assignment.strategy"]  # KIP-848: the brokers assign
    return _made("Consumer", address, {**defaults, **config}, fixed)


def make_admin(address: KafkaAddress) -> Any:
    """A client for questions about offsets. Raises ConfigError."""
    return _made("AdminClient", address, {})


def _made(
    kind: str, address: KafkaAddress, config: Mapping[str, Any], fixed: Mapping[str, Any] | None = None
) -> Any:
    kafka = library()
    given = address.config
    if kind != "Consumer":  # the other clients complain about a consumer's properties
        given = {name: value for name, value in given.items() if not name.startswith(_CONSUMERS_OWN)}
    whole = {
        **_COMMON,
        **config,
        **given,
        **(fixed or {}),
        "bootstrap.servers": address.servers,
    }
    home = library_part("admin") if kind == "AdminClient" else kafka
    try:
        return getattr(home, kind)(whole)
    except kafka.KafkaException as error:
        raise ConfigError(
            f"Kafka at {address.shown}: {one_line(error)}; correct the query of its address"
        ) from None


_CONFIG = (
    "_AUTHENTICATION",
    "_SSL",
    "_INVALID_ARG",
    "_UNKNOWN_PROTOCOL",
    "SASL_AUTHENTICATION_FAILED",
    "TOPIC_AUTHORIZATION_FAILED",
    "GROUP_AUTHORIZATION_FAILED",
    "CLUSTER_AUTHORIZATION_FAILED",
    "UNSUPPORTED_SASL_MECHANISM",
    "INVALID_TOPIC_EXCEPTION",
    "TOPIC_EXCEPTION",
)
_ROWS = (
    "MSG_SIZE_TOO_LARGE",
    "INVALID_MSG",
    "INVALID_RECORD",
    "INVALID_MSG_SIZE",
    "INVALID_TIMESTAMP",
    "RECORD_LIST_TOO_LARGE",
    "POLICY_VIOLATION",
)
_NO_TOPIC = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION")


def error_kind(error: Any) -> str:
    """What a KafkaError (or the exception around one) means.

    config: it will not get better by waiting; rows: this message is at fault; topic: there is no such topic;
    away: anything else, try again later.
    """
    kafka = library()
    inner = error.args[0] if isinstance(error, kafka.KafkaException) and error.args else error
    if not isinstance(inner, kafka.KafkaError):
        return "away"
    code = inner.code()
    for names, trouble in ((_CONFIG, "config"), (_ROWS, "rows"), (_NO_TOPIC, "topic")):
        if any(code == getattr(kafka.KafkaError, name, None) for name in names):
            return trouble
    return "away"


def of_another_epoch() -> frozenset[int]:
    """The codes of errors about a leader's epoch."""
    kafka = library().KafkaError
    return frozenset({kafka.FENCED_LEADER_EPOCH, kafka.UNKNOWN_LEADER_EPOCH})


def undecodable() -> frozenset[int]:
    """The codes of errors about messages that are damaged."""
    kafka = library().KafkaError
    return frozenset({kafka._BAD_COMPRESSION, kafka._BAD_MSG})  # noqa: SLF001 - their public names


def lasting() -> frozenset[int]:
    """The codes of errors for which somebody has to do something: rights, or a compression that this client can't do."""
    kafka = library().KafkaError
    return frozenset(
        {
            kafka.TOPIC_AUTHORIZATION_FAILED,
            kafka.GROUP_AUTHORIZATION_FAILED,
            kafka._NOT_IMPLEMENTED,  # noqa: SLF001 - its public name
        }
    )


def one_line(error: Any) -> str:
    """The error's text in one line."""
    inner = error.args[0] if isinstance(error, BaseException) and error.args else error
    text = inner.str() if hasattr(inner, "str") else str(inner)
    return " ".join(str(text).split())[:300] or type(error).__name__


def unusable(address: KafkaAddress, error: Any) -> ConfigError:
    """The error for a cluster that refuses us."""
    if "Not implemented" in one_line(error):
        return ConfigError(
            f"Kafka at {address.shown}: this client library can't read a message ({one_line(error)}); let those who write "
            "use another compression.type"
        )
    return ConfigError(
        f"Kafka at {address.shown} refuses this program ({one_line(error)}); put the right user, password and "
        "security properties into its address, and give the user the rights for the topic and the group"
    )


def no_topic(address: KafkaAddress, topic: str) -> ConfigError:
    """The error for a topic that isn't there, on brokers that don't make it at first use."""
    return ConfigError(
        f"Kafka at {address.shown} has no topic {topic!r} and makes none; create it first, e.g. "
        f"kafka-topics.sh --create --topic {topic} --partitions 12"
    )
