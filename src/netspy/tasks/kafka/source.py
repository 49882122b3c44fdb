"""Tasks in a Kafka topic: `kafka://host:9092,host:9092/topic?group=name`.

All nodes are members of one consumer group. A task is a message; its token is `topic-partition-offset-timestamp` (the
timestamp tells apart the messages of a topic that was deleted and made again). Kafka keeps one number per partition,
so what may be committed is the first task that isn't settled: after a crash the tasks behind it come again, and are
recognised by their tokens. At most `open` of them (1000 by default) may lie behind it per partition; a partition that
is full is paused, which costs up to a second each time.

When the group moves a partition to another node, its tasks are no longer ours: what wasn't committed is delivered
there again. When a partition comes back to the node that still works on its tasks, these are not handed out twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError as ThreadGone
from concurrent.futures import Future
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from netspy.brokers import kafka as brokers
from netspy.brokers.address import count, word
from netspy.errors import ConfigError, SerializationError, StoreLostError, StoreUnavailableError
from netspy.policy.failed_record import MAX_ERROR_CHARS
from netspy.settings import Settings, without_passwords
from netspy.tasks.contract import Backlog, Task
from netspy.tasks.kafka.patience import Patience, is_kafka
from netspy.tasks.kafka.thread import PROBE_S, KafkaThread, Marks, Record, stamp_of
from netspy.tasks.wire import KIND, SettledLately, decode_value, encode_values, token_of

if TYPE_CHECKING:
    from netspy.brokers.kafka import KafkaAddress

T = TypeVar("T")

OPTIONS = {"group": word, "open": count}
MOST_OPEN = 1000

_JOIN_S = 15.0  # how long a take waits for the group to give out partitions
_ARRIVAL_S = 5.0  # how long messages that the broker has may take to arrive
_COMMIT_S = 5.0  # how long `settled` waits for the commit; it is tried on in the background
_CLOSE_S = 12.0
_STEP_S = 0.01
_SILENCE_S = 3.0  # an acknowledgement that takes longer makes us ask whether the brokers are there
_PIECE, _PIECE_BYTES = 1000, 32_000_000
_MOST_BYTES = 1_000_000  # librdkafka's default of message.max.bytes
_FROM_THE_BEGINNING = frozenset({"earliest", "smallest", "beginning"})  # librdkafka's words for one thing


class Receipt(NamedTuple):
    """Where a task lies, and its message as it came."""

    partition: int
    offset: int
    stamp: int
    body: bytes | None
    key: bytes | None
    headers: list[tuple[str, bytes | None]] | None


class KafkaTaskSource:
    """See the module's text. One member of the group."""

    holds = True
    reusable = False

    def __init__(
        self,
        url: str,
        settings: Settings,
        *,
        topic: str,
        group: str,
        servers: Sequence[str] = (),
        most_open: int = MOST_OPEN,
        on_outage: Callable[[bool, float], None] | None = None,
        name: str = "TASK_SOURCE",
    ) -> None:
        """`topic`, `group`, `servers` and `most_open` are used when the URL names none. Nothing is sent yet. Raises ConfigError
        for a wrong URL.
        """
        self._address: KafkaAddress = brokers.read_kafka(url, name=name, servers=servers, own=OPTIONS)
        self.topic = self._address.topic or topic
        self.failed_topic = f"{self.topic}.failed"
        self.group: str = self._address.options.get("group", group)
        self.shown = self._address.shown
        self._most_open: int = self._address.options.get("open", most_open)
        for what in (self.topic, self.failed_topic):
            if not brokers.is_topic(what):
                raise ConfigError(
                    f"{name}={self.shown!r}: {what!r} can't be a topic of Kafka (letters, digits, dots, hyphens and "
                    "underscores, at most 249); name one in the URL: kafka://host:9092/topic"
                )
        if self._address.config.get("auto.offset.reset", "earliest") not in _FROM_THE_BEGINNING:
            raise ConfigError(
                f"{name}={self.shown!r} sets auto.offset.reset, which would pass over tasks whenever a partition has "
                "lost messages; leave it out. To begin a new group with new tasks only, set its offsets: "
                f"kafka-consumer-groups.sh --group {self.group} --topic {self.topic} --reset-offsets --to-latest --execute"
            )
        self._start_timeout_s = settings.REDIS_START_TIMEOUT
        self._outage_timeout_s = settings.REDIS_OUTAGE_TIMEOUT
        self._thread: KafkaThread | None = None
        self._stop = asyncio.Event()
        self._patience = Patience(
            self._address,
            timeout_s=settings.REDIS_OUTAGE_TIMEOUT,
            stop=self._stop,
            refused=lambda: self._thread.refused if self._thread is not None else None,
            on_outage=on_outage,
        )
        self._closed = False
        self._held: dict[str, Receipt] = {}
        self._settled = SettledLately()
        self._returned: list[Task] = []
        self._gaps: set[int] = set()  # partitions of which it was said that they lack messages
        self._failures = 0
        self._undecodable = 0  # what of `unreadable` the thread has told of
        self.unreadable = 0
        self.consumes = True
        """False, set before `open`: only to add and to look; the group isn't joined."""

    # connection

    async def open(self) -> None:
        """Join the group and wait for its partitions. Raises ConfigError, also for a topic that isn't there."""
        brokers.library()
        thread = self._thread = KafkaThread(self._address, self.topic, self.group, self._most_open)
        thread.start()
        end = time.monotonic() + self._start_timeout_s
        for topic in (self.topic, self.failed_topic):
            await self._find(thread, topic, end)
        await self._ask(thread.subscribe)
        await self._until(thread.assigned.is_set, min(_JOIN_S, self._start_timeout_s))
        await self._refuse(thread)

    async def _refuse(self, thread: KafkaThread) -> None:
        if thread.forbidden is not None:
            await self.close()
            raise brokers.unusable(self._address, thread.forbidden)

    async def _find(self, thread: KafkaThread, topic: str, end: float) -> None:
        """Wait until the brokers know the topic, which some of them make at this first use."""
        last = ""
        unknown = False  # once they have said so, a last question without an answer changes nothing
        while True:
            ask_s = max(0.1, min(PROBE_S, end - time.monotonic()))
            try:
                if await self._ask(partial(thread.partitions, ask_s, topic)):
                    return
            except Exception as error:
                trouble = brokers.error_kind(error)
                unknown = unknown or trouble == "topic"
                last = brokers.one_line(error)
                refused = thread.refused or (error if trouble == "config" else None)
                if refused is not None:
                    await self.close()
                    raise brokers.unusable(self._address, refused) from None
            left = end - time.monotonic()
            if left <= 0:
                await self.close()
                if unknown:
                    raise brokers.no_topic(self._address, topic)
                raise self._patience.unavailable(last, self._start_timeout_s)
            await asyncio.sleep(min(0.1, left))

    async def _ask(self, function: Callable[[], T]) -> T:
        """What a call gives in the thread of the clients."""
        thread = self._running
        try:
            return await asyncio.wrap_future(thread.call(function))
        except (asyncio.CancelledError, ThreadGone):
            if thread.alive:
                raise
            raise StoreLostError(
                f"the connection to Kafka at {self.shown} {thread.broken or 'is closed'}"
            ) from None

    async def _behind(self, places: Callable[[], tuple[dict[int, int], Marks, Marks]]) -> int:
        """How many messages lie between the places and the ends of their partitions."""
        at, first, end = await self._ask(places)
        if not at:
            await self._ask(self._running.partitions)  # are the brokers there at all?
        total = 0
        for number, place in at.items():
            low = (await asyncio.wrap_future(first[number])).offset
            high = (await asyncio.wrap_future(end[number])).offset
            if not low <= place <= high and place >= 0:
                self._say_gap(number, place, low, high)
            # A place behind the end says nothing about what lies before it now.
            total += high - low if place > high else max(0, high - max(place, low))
        return total

    def _say_gap(self, partition: int, place: int, low: int, high: int) -> None:
        if partition in self._gaps:
            return
        self._gaps.add(partition)
        from loguru import logger

        where = f"Kafka at {self.shown}: {self.topic} [{partition}]"
        if place < low:
            logger.warning(
                "{} begins at offset {}: {} message(s) from {} on were deleted by its retention before their tasks were done",
                where, low, low - place, place,
            )  # fmt: skip
        else:
            logger.warning(
                "{} ends at offset {}, and was read up to {}: it has lost messages, or was made anew. What it has is read; "
                "tasks that are known are not crawled twice",
                where, high, place,
            )  # fmt: skip

    @property
    def _running(self) -> KafkaThread:
        if self._thread is None:
            raise StoreLostError(f"the connection to Kafka at {self.shown} is closed")
        return self._thread

    async def _until(self, condition: Callable[[], bool], seconds: float) -> bool:
        end = time.monotonic() + seconds
        while not condition():
            forbidden = self._thread is not None and self._thread.forbidden is not None
            if time.monotonic() >= end or self._stop.is_set() or forbidden:
                return condition()
            await asyncio.sleep(_STEP_S)
        return True

    # tasks

    async def take(self, limit: int) -> list[Task]:
        """Up to `limit` messages of the partitions that are this node's now."""
        tasks = self._returned[:limit]
        del self._returned[:limit]
        while len(tasks) < limit:
            thread = self._thread
            if thread is None or (not thread.arrived and (tasks or not await self._arrival(thread))):
                break
            # One batch, so that what the thread does meanwhile can't change the queue under our hands.
            batch: list[Any] = []
            while len(batch) + len(tasks) < limit:
                try:
                    batch.append(thread.arrived.popleft())
                except IndexError:
                    break
            for message in batch:
                task = await self._received(message)
                if task is not None:
                    tasks.append(task)
        if self._thread is not None:
            self.unreadable += self._thread.undecodable - self._undecodable
            self._undecodable = self._thread.undecodable
        return tasks

    async def _arrival(self, thread: KafkaThread) -> bool:
        """Whether messages are there, now or within the time that fetching takes. Raises ConfigError for missing rights."""
        await self._until(thread.assigned.is_set, _JOIN_S)
        await self._refuse(thread)
        if thread.arrived:
            return True
        if not await self._patience.ask(lambda: self._behind(thread.unread)):
            return bool(thread.arrived)
        return await self._until(lambda: bool(thread.arrived), _ARRIVAL_S)

    async def _received(self, message: Any) -> Task | None:
        """The message as a task, unless it is one that this node knows or one that can't be read."""
        partition, offset, stamp = message.partition(), message.offset(), stamp_of(message)
        token = token_of(f"{self.topic}-{partition}-{offset}-{stamp}")
        receipt = Receipt(partition, offset, stamp, message.value(), message.key(), _headers_of(message))
        if token in self._settled:
            await self._settle([receipt])
            return None
        if token in self._held:
            return None  # it came back to us with its partition: settling it counts again
        self._held[token] = receipt
        try:
            value = decode_value(receipt.body or b"", ours=_KIND_HEADER in (receipt.headers or ()))
        except SerializationError as error:
            self.unreadable += 1
            await self.failed([(Task(token, None, receipt), str(error))])
            return None
        return Task(token, value, receipt)

    async def keep(self, tasks: Sequence[Task]) -> None:
        """Nothing to do: the thread stays in the group while the node lives."""

    async def settled(self, tasks: Sequence[Task]) -> None:
        """Done with; committed as far as the tasks before them are settled, too."""
        for task in tasks:
            self._held.pop(task.token, None)
            self._settled.add(task.token)
        await self._settle([task.receipt for task in tasks])

    async def _settle(self, receipts: Sequence[Receipt]) -> None:
        thread = self._thread
        if thread is None or self._closed or not receipts:
            return
        waiter: Future[None] = Future()
        places = [(receipt.partition, receipt.offset, receipt.stamp) for receipt in receipts]
        await self._ask(lambda: thread.settle(places, waiter))
        try:
            await self._first(asyncio.wrap_future(waiter), _COMMIT_S)
        except (asyncio.CancelledError, ThreadGone):
            mine = asyncio.current_task()
            if mine is not None and mine.cancelling():
                raise
            # Else the thread has ended, and its next call says why.

    async def _first(self, future: asyncio.Future[T], seconds: float | None) -> T | None:
        """The future's result; None when time is over or waiting was given up."""
        stop: asyncio.Future[Any] = asyncio.ensure_future(self._stop.wait())
        try:
            both: set[asyncio.Future[Any]] = {future, stop}
            await asyncio.wait(both, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.cancel()
        return future.result() if future.done() else None

    async def release(self, tasks: Sequence[Task]) -> None:
        """Kafka can't take a message back: this node hands them out again, or after `close` another one."""
        self._returned[:0] = [
            task._replace(deliveries=task.deliveries + 1) for task in tasks if task.token in self._held
        ]

    async def failed(self, failures: Sequence[tuple[Task, str]]) -> None:
        """To the topic `<topic>.failed`, with the error in the header `error`; then settled."""
        moment = datetime.now(UTC).isoformat(timespec="milliseconds").encode()
        records = [self._copy(task.receipt, error, moment) for task, error in failures]
        try:
            await self._write(self.failed_topic, records)
        except SerializationError:
            for record in records:
                await self._write_failed(record)
        self._failures += len(records)
        await self.settled([task for task, _ in failures])

    def _copy(self, receipt: Receipt, error: str, moment: bytes) -> Record:
        """The message as it was, and the notes in the place of older ones."""
        notes: list[tuple[str, bytes | None]] = [
            ("error", without_passwords(error)[:MAX_ERROR_CHARS].encode("utf-8", "replace")),
            ("failed-at", moment),
            ("offset", f"{self.topic}/{receipt.partition}/{receipt.offset}".encode()),
        ]
        if receipt.headers is None:
            notes.append(("left-out", b"headers: a name in them is no UTF-8"))
        had = [pair for pair in receipt.headers or () if pair[0] not in _NOTES]
        return Record(receipt.body, [*had, *notes], receipt.key, receipt.stamp)

    async def _write_failed(self, record: Record) -> None:
        """One that the brokers don't take goes in part. The message itself stays where `offset` says, as long as the topic
        keeps it.
        """
        why: SerializationError | None = None
        for part in in_parts(record):
            try:
                await self._write(self.failed_topic, [part])
            except SerializationError as error:
                why = error
            else:
                return
        raise ConfigError(
            f"Kafka at {self.shown}: the topic {self.failed_topic!r} takes not even a note ({why}); correct its settings "
            "(max.message.bytes)"
        )

    async def add(self, values: Sequence[Any]) -> None:
        """Acknowledged by all in-sync replicas when this returns."""
        bodies = encode_values(values)
        most = int(self._address.config.get("message.max.bytes", _MOST_BYTES))
        for number, body in enumerate(bodies):
            if len(body) > most:
                raise SerializationError(
                    f"task {number} of {len(body):,} bytes is larger than a message may be ({most:,}); pass a key to large "
                    "data, or raise message.max.bytes in the source's address and on the brokers"
                )
        await self._write(self.topic, [Record(body, [_KIND_HEADER]) for body in bodies])

    async def _write(self, topic: str, messages: Sequence[Record]) -> None:
        """In pieces that the client's buffer takes at once: it must not keep the thread waiting for absent brokers."""
        piece: list[Record] = []
        size = 0
        for message in messages:
            piece.append(message)
            size += len(message.value or b"")
            if len(piece) >= _PIECE or size >= _PIECE_BYTES:
                await self._write_piece(topic, piece)
                piece, size = [], 0
        if piece:
            await self._write_piece(topic, piece)

    async def _write_piece(self, topic: str, messages: list[Record]) -> None:
        tries = self._patience.begin()
        while True:
            thread = self._running
            try:
                sent = asyncio.wrap_future(await self._ask(partial(thread.send, topic, messages)))
                await self._await_delivery(thread, sent)
                return
            except Exception as error:
                if not is_kafka(error):
                    raise
                if brokers.error_kind(error) == "rows":
                    raise SerializationError(
                        f"Kafka does not take a message: {brokers.one_line(error)}"
                    ) from None
                if brokers.error_kind(error) == "topic":
                    raise brokers.no_topic(self._address, topic) from None
                await self._ask(thread.new_producer)
                await self._patience.wait(error, tries)

    async def _await_delivery(self, thread: KafkaThread, sent: asyncio.Future[None]) -> None:
        """Wait for it. The client itself would wait for absent brokers without a word."""
        await self._first(sent, _SILENCE_S)
        while not sent.done():
            try:
                await self._patience.ask(lambda: self._ask(thread.partitions))
            except StoreUnavailableError:
                # Nobody waits any more: what is not written by now must not be written later.
                await self._ask(thread.purge)
                await asyncio.wait([sent])
                if sent.exception() is not None:
                    raise
                return
            await self._first(sent, _SILENCE_S)

    async def backlog(self) -> Backlog:
        """`waiting` and `taken` add up to what the group has not committed; tasks in other nodes' hands count as
        waiting, since Kafka doesn't tell. `failed` counts what this node moved to the failed topic.
        """
        thread = self._running
        lag = await self._patience.ask(lambda: self._behind(thread.undone))
        taken = len(self._held) - len(self._returned)
        return Backlog(max(0, lag - taken), taken, None, self._failures)

    def give_up_waiting(self) -> None:
        """Calls that wait for absent brokers end soon."""
        self._stop.set()

    async def close(self) -> None:
        """Commit what may be, and leave the group: others get the partitions at once. Safe to call twice."""
        self._closed = True
        self._stop.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.stop()
            end = time.monotonic() + _CLOSE_S
            while thread.alive and time.monotonic() < end:  # noqa: ASYNC110 - another thread's end
                await asyncio.sleep(_STEP_S)
        self._held.clear()
        self._returned.clear()


def in_parts(record: Record) -> list[Record]:
    """What is written of a message that is put aside, until the brokers take it: all of it; with the time of now, and
    its offset as key when it has none (they may refuse its time, and a compacted topic what has no key); without the
    larger of its body and its headers; the notes alone.
    """
    notes = [pair for pair in record.headers if pair[0] in _NOTES]
    had = [pair for pair in record.headers if pair[0] not in _NOTES]
    body = len(record.value or b"")
    size = sum(len(name) + len(value or b"") for name, value in had)
    keyed = record._replace(stamp=0, key=record.key or dict(notes)["offset"])

    def without(what: str, **less: Any) -> Record:
        return keyed._replace(**less)._replace(
            headers=[*less.get("headers", keyed.headers), ("left-out", what.encode())]
        )

    return [
        record,
        keyed,
        without(f"{body} bytes", value=b"")
        if body >= size
        else without(f"headers, {size} bytes", headers=notes),
        without(
            f"{body} bytes, and headers, {size} bytes", value=b"", headers=notes, key=dict(notes)["offset"]
        ),
    ]


def _headers_of(message: Any) -> list[tuple[str, bytes | None]] | None:
    """None when the client library can't decode them; it must not be asked twice then."""
    try:
        return message.headers() or []
    except (SystemError, UnicodeDecodeError):
        return None


_NOTES = frozenset({"error", "failed-at", "offset", "left-out"})
_KIND_HEADER = ("kind", KIND.encode())
