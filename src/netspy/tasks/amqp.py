"""Tasks in a RabbitMQ queue: `amqp://user:password@host/vhost?queue=name`.

A task is a message, unacked while it is in a node's hands; RabbitMQ gives it to another node when the connection of
its node ends. What the connection's end loses is the word of acks, and the right to ack: so a message that comes again
to the node that still works on it, or has just settled it, is recognised by its token and not handed out twice.

The token is the message's `message_id`. A foreign message without one gets a new token at each delivery: two tasks
with the same body can't be told from one task that came twice, and crawling twice is better than losing one.

RabbitMQ closes a channel on which a message stays unacked longer than its `consumer_timeout` (30 min by default), and
delivers again. That costs nothing but a line in its log; queues that netspy declares on RabbitMQ 3.12 or newer carry
a longer `x-consumer-timeout` of their own.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from netspy.brokers.address import count, word
from netspy.brokers.amqp_frames import properties_of
from netspy.brokers.rabbit import RabbitLink, Session, ensure_queue, library, read_rabbit, unbroken
from netspy.brokers.rabbit_publish import Outgoing, publish_all
from netspy.errors import SerializationError
from netspy.policy.outage import OutageWatch
from netspy.settings import Settings
from netspy.tasks.amqp_failed import FailedQueue
from netspy.tasks.contract import Backlog, Task
from netspy.tasks.wire import KIND, SettledLately, decode_value, encode_values, token_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aio_pika.abc import AbstractIncomingMessage

    from netspy.brokers.amqp_properties import Properties

OPTIONS = {"queue": word, "prefetch": count}

LONGEST_TASK_MS = 7 * 24 * 3600 * 1000
"""How long a task may take on a queue of ours, where the broker lets the queue say so (3.12)."""

_LOWEST: Any = {"x-priority": 0}
"""A consumer's priority, which is 0 anyway. Streams know none: on one the broker refuses it, and says why."""
_ARRIVAL_S = 1.0  # how long a message that the broker counts may take to arrive


class Receipt(NamedTuple):
    """How a task came: the message, and the session in which it can be acked. `named`: it comes again with its token."""

    session: int
    message: AbstractIncomingMessage
    properties: Properties
    named: bool


class AmqpTaskSource:
    """See the module's text. One node's view of the queue."""

    holds = True
    reusable = False

    def __init__(
        self,
        url: str,
        settings: Settings,
        *,
        queue: str,
        on_outage: Callable[[bool, float], None] | None = None,
        name: str = "TASK_SOURCE",
    ) -> None:
        """`queue` is used when the URL names none. Nothing is sent yet. Raises ConfigError for a wrong URL."""
        address = read_rabbit(url, name=name, own=OPTIONS)
        self.queue: str = address.options.get("queue", queue)
        self.shown = address.shown
        self.prefetch: int = address.options.get(
            "prefetch", 2 * max(settings.TASK_BATCH_SIZE, settings.SPIDER_THREAD_COUNT)
        )
        self._patience_s = settings.REDIS_OUTAGE_TIMEOUT
        how: Any = {
            "start_timeout_s": settings.REDIS_START_TIMEOUT,
            "outage_timeout_s": settings.REDIS_OUTAGE_TIMEOUT,
        }
        outage = OutageWatch(on_outage)
        self._link = RabbitLink(address, set_up=self._set_up, outage=outage, **how)
        self._publisher = RabbitLink(address, publishes=True, outage=outage, **how)
        self._failed = FailedQueue(
            self._publisher, self.queue, still_ours=self._still_ours, settled=self.settled
        )
        self._arrived: deque[AbstractIncomingMessage] = deque()
        self._news = asyncio.Event()
        self._held: dict[str, list[Receipt]] = {}
        self._unacked: dict[int, None] = {}  # delivery tags of this session, in their order
        self._settled = SettledLately()
        self.unreadable = 0
        self.consumes = True
        """False, set before `open`: only to add and to look; no message is taken from the nodes."""

    # connection

    async def open(self) -> None:
        """Connect, declare the queues, begin to consume."""
        await self._link.open()

    async def _set_up(self, session: Session) -> None:
        self._arrived.clear()  # of an earlier session: they come again
        self._unacked.clear()
        lasting: Any = {"x-consumer-timeout": LONGEST_TASK_MS} if _version(session) >= (3, 12) else None
        await ensure_queue(session, self.queue, lasting)
        await ensure_queue(session, self._failed.name)
        if not self.consumes:
            return
        await session.channel.set_qos(prefetch_count=self.prefetch)
        queue = await session.channel.get_queue(self.queue, ensure=False)

        async def take_in(message: AbstractIncomingMessage) -> None:
            if not session.broken and message.delivery_tag is not None:
                self._unacked[message.delivery_tag] = None
                self._arrived.append(message)
                self._news.set()

        # A queue that moved or was deleted ends the consumer, and nothing else.
        channel: Any = await session.channel.get_underlay_channel()
        cancelled = getattr(channel, "on_consumer_cancel_callbacks", None)
        if cancelled is not None:
            cancelled.add(session.lost)
        await queue.consume(take_in, arguments=_LOWEST)

    # tasks

    async def take(self, limit: int) -> list[Task]:
        """Up to `limit`, and never more than `prefetch` in hand."""
        await self._failed.work()
        tasks: list[Task] = []
        while len(tasks) < limit:
            session = await self._link.ask(self._fill)
            if not self._arrived:
                break
            while self._arrived and len(tasks) < limit:
                task = await self._received(session, self._arrived.popleft())
                if task is not None:
                    tasks.append(task)
        await self._failed.work()
        return tasks

    async def _fill(self, session: Session) -> Session:
        """Wait until messages that were on their way have arrived."""
        if self._arrived:
            return session
        self._news.clear()
        state = await session.channel.declare_queue(self.queue, passive=True)
        # What the broker had sent before it answered arrives before the answer to this.
        await session.channel.set_qos(prefetch_count=self.prefetch)
        waiting = state.declaration_result.message_count or 0
        if not self._arrived and waiting and self._in_hand(session) < self.prefetch:
            with suppress(TimeoutError):
                async with asyncio.timeout(_ARRIVAL_S):
                    await self._news.wait()
        return session

    def _in_hand(self, session: Session) -> int:
        return sum(1 for receipts in self._held.values() for r in receipts if r.session == session.number)

    async def _received(self, session: Session, message: AbstractIncomingMessage) -> Task | None:
        """The message as a task, unless it is one that this node knows or one that can't be read."""
        properties = properties_of(message)
        identity = properties.text("message_id")
        receipt = Receipt(session.number, message, properties, named=bool(identity))
        token = token_of(identity) if identity else uuid.uuid4().hex
        if token in self._settled and message.redelivered:
            await self._ack([receipt])
            return None
        known = self._held.get(token)
        if known is not None and not message.redelivered:
            # Another message, under a name that isn't its own.
            known, token, receipt = None, uuid.uuid4().hex, receipt._replace(named=False)
        if known is not None:
            known[:] = [r for r in known if r.session == session.number]
            known.append(receipt)
            return None
        try:
            value = decode_value(message.body, ours=properties.text("type") == KIND)
        except SerializationError as error:
            self.unreadable += 1
            self._held[token] = [receipt]
            self._failed.put(Task(token, None, receipt), str(error))
            return None
        self._held[token] = [receipt]
        return Task(token, value, receipt, _deliveries(receipt))

    async def keep(self, tasks: Sequence[Task]) -> None:
        """Nothing to do: they are this node's while its connection lives."""

    async def settled(self, tasks: Sequence[Task]) -> None:
        """Ack them. One whose connection was lost is acked when it comes again to this node."""
        receipts: list[Receipt] = []
        for task in tasks:
            self._settled.add(task.token)
            receipts += self._held.pop(task.token, ())
        await self._ack(receipts)

    async def _ack(self, receipts: Sequence[Receipt]) -> None:
        """Tell the broker, with one word for those that come first. A session that has ended can't be told: the broker
        has taken its messages back already.
        """
        session = self._link.session
        if session is None:
            return
        mine = {r.message.delivery_tag: r.message for r in receipts if r.session == session.number}
        first: list[int] = []
        for tag in self._unacked:
            if tag not in mine:
                break
            first.append(tag)
        with suppress(Exception):  # the session broke just now, which the next call notices
            if first:
                await unbroken(mine[first[-1]].ack(multiple=True))
                for tag in first:
                    del self._unacked[tag], mine[tag]
            for other, message in mine.items():
                self._unacked.pop(other or 0, None)
                await unbroken(message.ack())

    async def release(self, tasks: Sequence[Task]) -> None:
        """Back to their places in the queue."""
        session = self._link.session
        for task in tasks:
            for receipt in self._held.pop(task.token, ()):
                if session is None or session.number != receipt.session:
                    continue
                self._unacked.pop(receipt.message.delivery_tag or 0, None)
                with suppress(Exception):  # as in `_ack`
                    await unbroken(receipt.message.nack(requeue=True))

    async def failed(self, failures: Sequence[tuple[Task, str]]) -> None:
        """To the queue `<queue>.failed`, with the error in the header `x-error`; then acked. While that queue takes
        nothing they stay in hand, and this returns.
        """
        for task, error in failures:
            self._failed.put(task, error)
        await self._failed.work()

    def _still_ours(self, task: Task) -> bool:
        receipts = self._held.get(task.token, ())
        session = self._link.session
        return any(r.named or (session is not None and r.session == session.number) for r in receipts)

    async def add(self, values: Sequence[Any]) -> None:
        """Persistent messages, confirmed by the broker when this returns."""
        aio_pika = library()
        messages = []
        for body in encode_values(values):
            message = aio_pika.Message(
                body,
                content_type="application/json",
                type=KIND,
                message_id=uuid.uuid4().hex,
                timestamp=datetime.now(UTC),
                delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
            )
            messages.append(Outgoing(body, message.properties))
        await publish_all(self._publisher, self.queue, messages, patience_s=self._patience_s)

    async def backlog(self) -> Backlog:
        """`taken` is known only while no other node consumes from the queue."""

        async def look(session: Session) -> Backlog:
            state = await ensure_queue(session, self.queue)
            failed = await ensure_queue(session, self._failed.name)
            if self.consumes:  # as in `_fill`: what has left the queue's count has arrived here then
                await session.channel.set_qos(prefetch_count=self.prefetch)
            alone = (state.consumer_count or 0) <= self.consumes
            return Backlog(
                (state.message_count or 0) + len(self._arrived),
                len(self._held) if alone else None,
                None,
                failed.message_count,
            )

        return await self._link.ask(look)

    def give_up_waiting(self) -> None:
        """Calls that wait for an absent broker end soon."""
        self._link.give_up_waiting()
        self._publisher.give_up_waiting()

    async def close(self) -> None:
        """RabbitMQ takes back what is unacked."""
        await self._failed.close()
        await self._publisher.close()
        await self._link.close()
        self._held.clear()
        self._arrived.clear()


def _deliveries(receipt: Receipt) -> int:
    """Quorum queues count; others only tell a first delivery from a later one."""
    counted = receipt.properties.number(b"x-delivery-count")
    if counted is not None:
        return counted + 1
    return 2 if receipt.message.redelivered else 1


def _version(session: Session) -> tuple[int, int]:
    """The broker's version from its greeting; (0, 0) when it tells none."""
    connection: Any = session.connection
    with suppress(AttributeError, KeyError, ValueError, TypeError):
        properties = connection.transport.connection.server_properties
        text = properties["version"]
        major, minor = (text.decode() if isinstance(text, bytes) else str(text)).split(".")[:2]
        return int(major), int(minor)
    return 0, 0
