"""Rows into RabbitMQ, for a `netspy consume` or any other consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from netspy.brokers.rabbit import RabbitLink, Session, ensure_queue, library, one_line, read_rabbit
from netspy.brokers.rabbit_publish import Outgoing, largest_body, publish, refusal
from netspy.errors import ItemError, PipelineError, RowsFailedError, StoreUnavailableError
from netspy.messages.envelope import pack_row
from netspy.messages.row import Row
from netspy.pipelines.base import BasePipeline
from netspy.pipelines.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Sequence

_PATIENCE_S = 5.0  # per call; the writer tries again
_MAX_QUEUE_BYTES = 255  # AMQP 0-9-1: a queue's name is a short string


class RabbitmqPipeline(BasePipeline):
    """Each row is a persistent message in the durable queue RABBITMQ_QUEUE, or else in one with the table's name.

    The body is the row in its envelope (`netspy.messages.envelope`); an UpdateItem keeps its place in the order. The
    queue is declared when it is missing; one that exists is used as it is. A batch counts as stored when the broker
    has confirmed each message; those that it refuses (a queue with a limit) are tried again by themselves. A row may
    be there twice after an outage.
    """

    def __init__(self) -> None:
        library()
        self._link: RabbitLink | None = None
        self._keys: dict[str, tuple[str, ...]] = {}
        self._declared: set[tuple[int, str]] = set()

    def where(self) -> str:
        """The broker, for the run's summary."""
        return read_rabbit(self.settings.RABBITMQ_URL, name="RABBITMQ_URL").shown

    async def open(self) -> None:
        """Connect. Raises UnavailableError, ConfigError."""
        if self._link is None:
            address = read_rabbit(self.settings.RABBITMQ_URL, name="RABBITMQ_URL")
            self._link = RabbitLink(address, start_timeout_s=_PATIENCE_S, publishes=True)
        try:
            await self._link.open()
        except StoreUnavailableError as error:
            raise UnavailableError(str(error)) from None

    async def describe(self, table: str, unique_key: tuple[str, ...]) -> None:
        """Keep the key for the envelopes. Raises ItemError for a name that no queue can have."""
        self._keys[table] = unique_key
        self._queue(table)

    def _queue(self, table: str) -> str:
        queue = self.settings.RABBITMQ_QUEUE or table
        if len(queue.encode()) > _MAX_QUEUE_BYTES or queue.startswith("amq."):
            raise ItemError(
                f"{queue!r:.80} can't be a queue of RabbitMQ (at most {_MAX_QUEUE_BYTES} bytes, not amq.…); set RABBITMQ_QUEUE"
            )
        return queue

    async def save_items(self, table: str, items: Sequence[dict[str, Any]]) -> None:
        """Publish the batch and wait for the confirms. Raises RowsFailedError that names the rows without one."""
        await self._save(table, items, None)

    async def update_items(
        self, table: str, items: Sequence[dict[str, Any]], update_keys: Sequence[str]
    ) -> None:
        """As `save_items`; who consumes does the update."""
        await self._save(table, items, tuple(update_keys))

    async def _save(
        self, table: str, items: Sequence[dict[str, Any]], update_keys: tuple[str, ...] | None
    ) -> None:
        aio_pika = library()
        queue = self._queue(table)
        failed: dict[int, Exception] = {}
        left: dict[int, Outgoing] = {}
        for place, item in enumerate(items):
            try:
                body = pack_row(Row(table, item, None, update_keys, self._keys.get(table, ())))
            except ItemError as error:
                failed[place] = error
                continue
            message = aio_pika.Message(
                body, content_type="application/json", delivery_mode=aio_pika.DeliveryMode.PERSISTENT
            )
            left[place] = Outgoing(body, message.properties)
        refused: dict[int, Exception] = {}

        async def send(session: Session) -> None:
            refused.clear()
            await self._declare(session, queue)
            try:
                answers = await publish(session, queue, left)
            except Exception as error:
                failed.update(large := _too_large(error, left))
                if large:  # the others go again, on a new connection
                    raise ConnectionResetError(one_line(error)) from None
                raise
            for place, answer in answers.items():
                refused[place] = PipelineError(
                    f"RabbitMQ refuses the message for {queue!r} ({one_line(answer)})"
                )
                if (
                    refusal(answer) == "missing"
                ):  # somebody has deleted the queue: the next try makes it again
                    self._declared.discard((session.number, queue))

        if self._link is None:
            raise UnavailableError("the pipeline is not open")
        if left:
            try:
                await self._link.ask(send, timeout_s=_PATIENCE_S)
            except StoreUnavailableError as error:
                failed |= {place: UnavailableError(str(error)) for place in left}
            else:
                failed |= refused
        if failed:
            raise RowsFailedError(failed)

    async def _declare(self, session: Session, queue: str) -> None:
        """Make sure that the queue is there, once per connection; one that exists may have any properties."""
        if (session.number, queue) in self._declared:
            return
        await ensure_queue(session, queue)
        self._declared.add((session.number, queue))

    def is_away(self, error: Exception) -> bool | None:
        """A full queue may have room later."""
        return True if isinstance(error, PipelineError) and "refuses the message" in str(error) else None

    async def close(self) -> None:
        """Disconnect."""
        if self._link is not None:
            await self._link.close()
            self._link = None


def _too_large(error: Exception, left: dict[int, Outgoing]) -> dict[int, Exception]:
    """The rows that are larger than the broker's limit, taken out of `left`. It ends the channel over the first one."""
    most = largest_body(error)
    if most is None:
        return {}
    over = {place: len(message.body) for place, message in left.items() if len(message.body) > most}
    for place in over:
        del left[place]
    return {
        place: ItemError(
            f"the message of {size:,} bytes is larger than RabbitMQ takes ({most:,}: max_message_size); keep large data "
            "in a file and pass its key"
        )
        for place, size in over.items()
    }
