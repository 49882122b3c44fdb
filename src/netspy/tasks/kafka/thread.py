"""The thread that has the Kafka clients: it polls all the time, as consumers must, and does calls in between.

Everything here but `call`, `stop` and what is named public runs in the thread. Kafka's own threads call back only
while we poll, so nothing needs a lock but the queue of calls.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from netspy.brokers import kafka as brokers
from netspy.tasks.kafka.offsets import Mark, Offsets

if TYPE_CHECKING:
    from collections.abc import Callable

    from netspy.brokers.kafka import KafkaAddress

T = TypeVar("T")
Marks = dict[int, Future[Any]]
"""Per partition an answer on its way, with an `offset`."""


class Record(NamedTuple):
    """A message to write. `stamp`: its time in ms; 0: now. A `value` of None is a tombstone."""

    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    key: bytes | None = None
    stamp: int = 0


POLL_S = 0.05
"""A call waits this long at most for the poll that is going on."""
PROBE_S = 2.0
"""How long one question to the brokers may take, while nothing else is done."""
_BATCH = 200
_COMMIT_RETRY_S = 0.5
_COMMIT_S = 30.0  # an answer to a commit that hasn't come by then won't come
_CLOSE_S = 5.0


def stamp_of(message: Any) -> int:
    """The message's timestamp in ms; 0: it has none."""
    stamp: int = message.timestamp()[1]
    return max(0, stamp)


class KafkaThread:
    """One consumer of one topic, and a producer when something is written."""

    def __init__(self, address: KafkaAddress, topic: str, group: str, most_open: int) -> None:
        self.address = address
        self.topic = topic
        self.arrived: deque[Any] = deque()
        self.assigned = threading.Event()
        """Set while the group has told us which partitions are ours, even when that is none."""
        self.refused: Any = None  # the KafkaError that says waiting won't help
        self.forbidden: Any = None  # the same, for an error that no restart of a broker brings about
        self.broken = ""  # why the thread has ended, when it wasn't told to
        self._group = group
        self._most_open = most_open
        self._offsets: dict[int, Offsets] = {}
        self._reached: dict[int, int] = {}  # what we have committed, also of partitions that aren't ours now
        self._paused: set[int] = set()
        self._skipping: dict[
            int, int
        ] = {}  # the offset that was passed over last, while nothing readable has come since
        self._skipped_now: set[int] = set()  # in this poll: what it brought besides is of the place before
        self.undecodable = 0
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._stopping = False
        self._consumer: Any = None
        self._producer: Any = None
        self._admin: Any = None
        self._sending = 0
        self._committing = False
        self._epochs = (
            True  # commits say the epoch of their message; some brokers refuse one that isn't the present one
        )
        self._commit_began = 0.0
        self._commit_after = 0.0
        self._commit_waiters: list[Future[None]] = []
        self._thread = threading.Thread(target=self._run, name="netspy-kafka", daemon=True)

    # ---- from other threads

    def start(self) -> None:
        """Make the consumer. Raises ConfigError."""
        self._consumer = brokers.make_consumer(
            self.address,
            self._group,
            error_cb=self._on_error,
            on_commit=self._on_commit,
            **{"enable.partition.eof": True},
        )
        self._thread.start()

    def call(self, function: Callable[[], T]) -> Future[T]:
        """Run it in the thread, between two polls."""
        future: Future[T] = Future()
        self._calls.put((future, function))
        if not self._thread.is_alive():
            self._refuse_calls()
        return future

    def stop(self) -> None:
        """Leave the group, with a last commit, and end the thread; doesn't wait."""
        self._stopping = True

    @property
    def alive(self) -> bool:
        """Whether the thread still runs."""
        return self._thread.is_alive()

    # ---- calls

    def subscribe(self) -> None:
        """Join the group."""
        self._consumer.subscribe(
            [self.topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def partitions(self, timeout_s: float = PROBE_S, topic: str = "") -> list[int]:
        """The topic's partitions; [] while there are none yet. Raises KafkaException (away, no such topic)."""
        kafka = brokers.library()
        name = topic or self.topic
        found = self._asking.list_topics(name, timeout=timeout_s).topics[name]
        if found.error is not None:
            raise kafka.KafkaException(found.error)
        return sorted(found.partitions)

    def unread(self) -> tuple[dict[int, int], Marks, Marks]:
        """Where reading our partitions goes on (-1: at their beginning), and their first and end offsets, which are
        on their way. Paused partitions are left out.
        """
        kafka = brokers.library()
        running = [number for number in self._offsets if number not in self._paused]
        places = {number: self._offsets[number].next for number in running}
        fresh = [kafka.TopicPartition(self.topic, number) for number, place in places.items() if place < 0]
        if fresh:
            for mark in self._consumer.committed(fresh, timeout=PROBE_S):
                places[mark.partition] = mark.offset
        return places, *self._ends(running)

    def undone(self) -> tuple[dict[int, int], Marks, Marks]:
        """As `unread`, for what the group has not committed, in all partitions."""
        kafka = brokers.library()
        numbers = self.partitions()
        marks = [kafka.TopicPartition(self.topic, number) for number in numbers]
        places: dict[int, int] = {}
        for mark in self._consumer.committed(marks, timeout=PROBE_S):
            own = self._offsets.get(mark.partition)
            on_its_way = -1 if own is None or own.due is None else own.due
            places[mark.partition] = max(mark.offset, on_its_way)
        return places, *self._ends(numbers)

    def _ends(self, numbers: list[int]) -> tuple[Marks, Marks]:
        if not numbers:
            return {}, {}
        specs: Any = brokers.library_part("admin").OffsetSpec
        marks = [brokers.library().TopicPartition(self.topic, number) for number in numbers]
        first, end = (
            self._asking.list_offsets(dict.fromkeys(marks, spec), request_timeout=PROBE_S)
            for spec in (specs.earliest(), specs.latest())
        )
        return {mark.partition: f for mark, f in first.items()}, {
            mark.partition: f for mark, f in end.items()
        }

    @property
    def _asking(self) -> Any:
        """A client of its own: on the consumer's connections an answer waits until the fetch before it has its own."""
        if self._admin is None:
            self._admin = brokers.make_admin(self.address)
        return self._admin

    def settle(self, places: list[tuple[int, int, int]], waiter: Future[None] | None = None) -> None:
        """(partition, offset, timestamp) of tasks that are done with; `waiter` is done when nothing is left to commit."""
        for partition, offset, stamp in places:
            if (offsets := self._offsets.get(partition)) is not None:
                offsets.settled(offset, stamp)
        self._commit_after = 0.0
        if waiter is not None:
            self._commit_waiters.append(waiter)
        self._commit()

    def send(self, topic: str, messages: list[Record]) -> Future[None]:
        """Write them; done when all are acknowledged. Its exception is a KafkaException."""
        kafka = brokers.library()
        if self._producer is None:
            self._producer = brokers.make_producer(
                self.address, error_cb=self._on_error, **{"message.timeout.ms": 0}
            )
        result: Future[None] = Future()
        left = len(messages)
        failed: list[Any] = []

        def delivered(error: Any, _message: Any) -> None:
            nonlocal left
            left -= 1
            self._sending -= 1
            if error is not None:
                failed.append(error)
            if left == 0 and not result.done():
                if failed:
                    result.set_exception(kafka.KafkaException(failed[0]))
                else:
                    result.set_result(None)

        if not messages:
            result.set_result(None)
        for record in messages:
            while True:
                try:
                    self._producer.produce(
                        topic,
                        value=record.value,
                        key=record.key,
                        headers=record.headers,
                        timestamp=record.stamp,
                        on_delivery=delivered,
                    )
                except BufferError:
                    self._producer.poll(0.1)
                else:
                    break
            self._sending += 1
        return result

    def purge(self) -> None:
        """Let go of what is being written: it fails."""
        if self._producer is not None:
            self._producer.purge()

    def new_producer(self) -> None:
        """The old one has met an error after which it can't go on."""
        self._producer = None

    # ---- the thread

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._do_calls()
                self._poll()
                self._commit()
                self._pause_and_resume()
            self._do_calls()
            self._leave()
        except Exception as error:
            self.broken = f"{type(error).__name__}: {brokers.one_line(error)}"
        finally:
            self._stopping = True
            self._refuse_calls()
            for waiter in self._commit_waiters:
                waiter.cancel()

    def _do_calls(self) -> None:
        with suppress(queue.Empty):
            while True:
                future, function = self._calls.get_nowait()
                if not future.set_running_or_notify_cancel():
                    continue
                try:
                    future.set_result(function())
                except BaseException as error:
                    future.set_exception(error)

    def _refuse_calls(self) -> None:
        with suppress(queue.Empty):
            while True:
                self._calls.get_nowait()[0].cancel()

    def _poll(self) -> None:
        message = self._consumer.poll(0.005 if self._sending else POLL_S)
        if self._producer is not None:
            self._producer.poll(0)
        if message is None:
            return
        self._skipped_now.clear()
        for one in (message, *self._consumer.consume(min(_BATCH, self._most_open), timeout=0)):
            self._take_in(one)

    def _take_in(self, message: Any) -> None:
        error = message.error()
        offsets = self._offsets.get(message.partition())
        if error is not None:
            if error.code() == brokers.library().KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                if offsets is not None:
                    self._say_gone_back(message, offsets.at_end(message.offset()))
            elif error.code() in brokers.undecodable():
                self._skip(message)
            else:
                self._on_error(error)
            return
        if offsets is None:
            return
        self._skipping.pop(message.partition(), None)
        epoch = message.leader_epoch()
        mark = Mark(stamp_of(message), -1 if epoch is None else epoch)
        self._say_gone_back(message, offsets.delivered(message.offset(), mark))
        self.arrived.append(message)

    def _skip(self, message: Any) -> None:
        """The client library can't decode what lies there (a damaged batch), and would try it for ever."""
        kafka = brokers.library()
        number = message.partition()
        if number not in self._offsets or number in self._skipped_now:
            return
        self._skipped_now.add(number)
        before = self._skipping.get(number)
        # Of a batch the library tells where it begins, wherever in it one reads; how long it is, nobody says.
        at = max(message.offset(), 0) if before is None else before + 1
        self._skipping[number] = at
        self.undecodable += 1
        if before is None:
            from loguru import logger

            logger.error(
                "Kafka at {}: what lies in {} [{}] from offset {} on can't be decoded ({}); it is passed over, and stays in "
                "the topic as long as that keeps it",
                self.address.shown, self.topic, number, at, brokers.one_line(message.error()),
            )  # fmt: skip
        with suppress(kafka.KafkaException):  # just taken from us
            self._consumer.seek(kafka.TopicPartition(self.topic, number, at + 1))

    def _say_gone_back(self, message: Any, before: int | None) -> None:
        if before is None:
            return
        from loguru import logger

        logger.warning(
            "Kafka at {}: {} [{}] was read up to offset {} and goes on at {}: it has lost messages, or was made anew. Its "
            "tasks are read from there; those that are known are not crawled twice",
            self.address.shown, self.topic, message.partition(), before, message.offset(),
        )  # fmt: skip

    def _pause_and_resume(self) -> None:
        kafka = brokers.library()
        for number, offsets in self._offsets.items():
            full = len(offsets) >= self._most_open
            if full == (number in self._paused):
                continue
            mark = [kafka.TopicPartition(self.topic, number)]
            with suppress(kafka.KafkaException):  # just taken from us
                if full:
                    self._consumer.pause(mark)
                    self._paused.add(number)
                elif len(offsets) <= self._most_open // 2:
                    self._consumer.resume(mark)
                    self._paused.discard(number)

    # ---- commits

    def _due(self) -> list[Any]:
        kafka = brokers.library()
        return [
            kafka.TopicPartition(self.topic, number, offsets.due, "", offsets.epoch if self._epochs else -1)
            for number, offsets in self._offsets.items()
            if offsets.due is not None
        ]

    def _commit(self) -> None:
        now = time.monotonic()
        if now < self._commit_after or (self._committing and now < self._commit_began + _COMMIT_S):
            return
        due = self._due()
        if not due:
            self._tell_waiters()
            return
        kafka = brokers.library()
        try:
            self._committing, self._commit_began = True, now
            self._consumer.commit(offsets=due, asynchronous=True)
        except kafka.KafkaException:
            self._committing = False
            self._commit_after = time.monotonic() + _COMMIT_RETRY_S

    def _on_commit(self, error: Any, marks: list[Any]) -> None:
        self._committing = False
        if error is not None:
            self._commit_after = time.monotonic() + _COMMIT_RETRY_S
            if error.code() in brokers.of_another_epoch():
                self._epochs = False
            return
        for mark in marks:
            if mark.error is not None:
                continue
            self._reached[mark.partition] = mark.offset
            if (offsets := self._offsets.get(mark.partition)) is not None:
                offsets.committed = mark.offset

    def _tell_waiters(self) -> None:
        for waiter in self._commit_waiters:
            if waiter.set_running_or_notify_cancel():
                waiter.set_result(None)
        self._commit_waiters.clear()

    # ---- the group

    def _on_assign(self, _consumer: Any, marks: list[Any]) -> None:
        for mark in marks:
            self._offsets[mark.partition] = Offsets(self._reached.get(mark.partition, -1))
        self.assigned.set()

    def _on_revoke(self, _consumer: Any, marks: list[Any]) -> None:
        kafka = brokers.library()
        gone = {mark.partition for mark in marks}
        due = [mark for mark in self._due() if mark.partition in gone]
        if due:
            with suppress(kafka.KafkaException):
                self._consumer.commit(offsets=due, asynchronous=False)
        self._on_lost(_consumer, marks)

    def _on_lost(self, _consumer: Any, marks: list[Any]) -> None:
        kafka = brokers.library()
        paused = [kafka.TopicPartition(self.topic, m.partition) for m in marks if m.partition in self._paused]
        if paused:  # else the client keeps them paused when they come back to us
            with suppress(kafka.KafkaException):
                self._consumer.resume(paused)
        for mark in marks:
            self._offsets.pop(mark.partition, None)
            self._paused.discard(mark.partition)
        # Piece by piece, since the other thread takes from it meanwhile.
        for _ in range(len(self.arrived)):
            with suppress(IndexError):
                message = self.arrived.popleft()
                if message.partition() in self._offsets:
                    self.arrived.append(message)

    def _on_error(self, error: Any) -> None:
        if brokers.error_kind(error) == "config" or (error.fatal() and self._producer is None):
            self.refused = error
        if error.code() in brokers.lasting():
            self.forbidden = error

    def _leave(self) -> None:
        kafka = brokers.library()
        end = time.monotonic() + _CLOSE_S
        self._commit_after = 0.0
        while (self._committing or self._due()) and time.monotonic() < end and self.refused is None:
            self._commit()
            self._consumer.poll(0.02)
        with suppress(kafka.KafkaException, RuntimeError):
            self._consumer.close()
        if self._producer is not None:
            self._producer.purge()
            self._producer.flush(0.5)
