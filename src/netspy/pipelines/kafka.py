"""Rows into Kafka, for a `netspy consume` or any other consumer."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from netspy.brokers import kafka as brokers
from netspy.errors import ItemError, NetspyError, RowsFailedError
from netspy.messages import codec
from netspy.messages.envelope import pack_row
from netspy.messages.row import Row
from netspy.pipelines.base import BasePipeline
from netspy.pipelines.errors import UnavailableError
from netspy.pipelines.own_settings import given

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from netspy.brokers.kafka import KafkaAddress

DELIVERY_S = 20.0
"""How long the brokers may take for a batch; rows without an answer by then are sent again."""
_ASK_S = 5.0


class KafkaPipeline(BasePipeline):
    """Each row is a message of the topic KAFKA_TOPIC, or else of the topic with the table's name.

    The value is the row in its envelope (`netspy.messages.envelope`). The key is that of the item's `__unique_key__`,
    so that rows of one key stay in order and a compacted topic keeps the newest. A batch counts as stored when all
    in-sync replicas have it; a row that Kafka refuses (too large) is dead-lettered by itself. A row may be there
    twice after an outage. An UpdateItem is refused: Kafka keeps no order between it and the row that it changes.
    """

    def __init__(self, servers: Sequence[str] | str | None = None) -> None:
        """`servers`: KAFKA_BOOTSTRAP_SERVERS of this pipeline, in the place of KAFKA_URL."""
        brokers.library()
        wanted = servers.split(",") if isinstance(servers, str) else servers
        self.own_settings = given(
            "KafkaPipeline", KAFKA_BOOTSTRAP_SERVERS=wanted, KAFKA_URL="" if servers else None
        )
        self._producer: Any = None
        self._keys: dict[str, tuple[str, ...]] = {}

    @property
    def _address(self) -> KafkaAddress:
        settings = self.settings
        url = settings.KAFKA_URL or f"kafka://{','.join(settings.KAFKA_BOOTSTRAP_SERVERS)}"
        name = "KAFKA_URL" if settings.KAFKA_URL else "KAFKA_BOOTSTRAP_SERVERS"
        return brokers.read_kafka(url, name=name, servers=settings.KAFKA_BOOTSTRAP_SERVERS)

    def where(self) -> str:
        """The brokers, for the run's summary."""
        return self._address.shown

    def open(self) -> None:
        """Connect. Raises UnavailableError, ConfigError."""
        if self._producer is None:
            self._producer = brokers.make_producer(
                self._address, **{"message.timeout.ms": int(1000 * DELIVERY_S)}
            )
        self._ask(self._producer.list_topics)

    def _ask(self, question: Callable[..., Any], *args: Any) -> Any:
        kafka = brokers.library()
        try:
            return question(*args, timeout=_ASK_S)
        except kafka.KafkaException as error:
            raise self._problem(error) from None

    def _problem(self, error: Any) -> NetspyError:
        if brokers.error_kind(error) == "config":
            return brokers.unusable(self._address, error)
        return UnavailableError(f"Kafka at {self._address.shown} does not answer: {brokers.one_line(error)}")

    def describe(self, table: str, unique_key: tuple[str, ...]) -> None:
        """See that the topic exists, or is made at this first use. Raises ConfigError for a bad or missing one."""
        self._keys[table] = unique_key
        topic = self._topic(table)
        found = self._ask(self._producer.list_topics, topic).topics[topic]
        if found.error is not None and brokers.error_kind(found.error) == "topic":
            # Making it takes a moment.
            end = time.monotonic() + _ASK_S
            while found.error is not None and time.monotonic() < end:
                time.sleep(0.1)
                found = self._ask(self._producer.list_topics, topic).topics[topic]
            if found.error is not None:
                raise brokers.no_topic(self._address, topic)

    def _topic(self, table: str) -> str:
        topic = self.settings.KAFKA_TOPIC or table
        if not brokers.is_topic(topic):
            raise ItemError(
                f"{topic!r} can't be a topic of Kafka (letters, digits, dots, hyphens and underscores, at most 249); "
                "set KAFKA_TOPIC"
            )
        return topic

    def save_items(self, table: str, items: Sequence[dict[str, Any]]) -> None:
        """Send the batch and wait for the answers. Raises RowsFailedError that names the rows without one."""
        topic, key = self._topic(table), self._keys.get(table, ())
        failed: dict[int, Exception] = {}
        messages: dict[int, tuple[bytes, bytes | None]] = {}
        for place, item in enumerate(items):
            try:
                messages[place] = pack_row(Row(table, item, unique_key=key)), _key_of(item, key)
            except ItemError as error:
                failed[place] = error
        answers = self._send(topic, messages)
        # Messages travel in batches, which Kafka refuses as a whole: one that it doesn't take is found alone.
        away = next((error for error in answers.values() if isinstance(error, UnavailableError)), None)
        doubtful = [place for place, error in answers.items() if isinstance(error, ItemError)]
        for place in doubtful if len(messages) > 1 else ():
            alone = {place: away} if away is not None else self._send(topic, {place: messages[place]})
            del answers[place]
            answers |= alone
            away = next((error for error in alone.values() if isinstance(error, UnavailableError)), None)
        failed |= answers
        if failed:
            if any(isinstance(error, UnavailableError) for error in failed.values()):
                self._renew()
            raise RowsFailedError(failed)

    def _send(self, topic: str, messages: Mapping[int, tuple[bytes, bytes | None]]) -> dict[int, Exception]:
        """Send messages and wait; why some of them, by place, are not in Kafka. Raises UnavailableError."""
        kafka = brokers.library()
        failed: dict[int, Exception] = {}
        open_: set[int] = set()

        def answered(place: int) -> Callable[[Any, Any], None]:
            def note(error: Any, _message: Any) -> None:
                open_.discard(place)
                if error is not None:
                    failed[place] = self._row_problem(error)

            return note

        end = time.monotonic() + DELIVERY_S + _ASK_S
        for place, (body, name) in messages.items():
            open_.add(place)
            while True:
                try:
                    self._producer.produce(topic, value=body, key=name, on_delivery=answered(place))
                except BufferError:
                    if time.monotonic() > end:
                        raise UnavailableError(
                            f"Kafka at {self._address.shown} takes no more messages"
                        ) from None
                    self._producer.poll(0.1)
                except kafka.KafkaException as error:
                    open_.discard(place)
                    failed[place] = self._row_problem(error)
                    break
                else:
                    break
            self._producer.poll(0)
        while open_ and time.monotonic() < end:
            self._producer.poll(0.1)
        for place in open_:
            failed[place] = UnavailableError(
                f"Kafka at {self._address.shown} did not answer in {DELIVERY_S:g} s"
            )
        return failed

    def _row_problem(self, error: Any) -> Exception:
        if brokers.error_kind(error) == "rows":
            return ItemError(f"Kafka refuses the row: {brokers.one_line(error)}")
        return self._problem(error)

    def _renew(self) -> None:
        """What is still under way must not arrive after the row was sent again, or dead-lettered."""
        self._producer.purge()
        self._producer.flush(0.2)
        self._producer = None
        self._producer = brokers.make_producer(
            self._address, **{"message.timeout.ms": int(1000 * DELIVERY_S)}
        )

    def update_items(self, table: str, items: Sequence[dict[str, Any]], update_keys: Sequence[str]) -> None:
        """Refused."""
        del items, update_keys
        raise ItemError(
            f"KafkaPipeline takes no UpdateItem (of {table!r}): Kafka keeps no order between an update and the row that "
            "it changes; use RabbitmqPipeline or RedisPipeline, or yield the whole item with __unique_key__"
        )

    def close(self) -> None:
        """Nothing is under way any more when this is called."""
        self._producer = None


def _key_of(item: dict[str, Any], key: tuple[str, ...]) -> bytes | None:
    values = [item.get(name) for name in key]
    return codec.stable(values) if values and any(value is not None for value in values) else None
