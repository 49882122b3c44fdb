"""Which offset of a partition may be committed: decided without Kafka.

Kafka knows one number per partition: everything before it is done. Tasks are settled in any order, so the number is
that of the first task which is not settled, among those that were delivered.

Delivery may go back: a partition that has lost messages (an election of a replica that lagged behind), or was made anew,
is read again from an earlier offset. What lies there now are other messages, so what may be committed goes back too.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple


class Mark(NamedTuple):
    """What tells apart messages that had one offset: `stamp`, the timestamp in ms, and the epoch of its leader (-1:
    unknown).
    """

    stamp: int = 0
    epoch: int = -1


_NO_MARK = Mark()


class Offsets:
    """The tasks of one assigned partition, in the order of delivery."""

    def __init__(self, reached: int = -1) -> None:
        """`reached`: what is known to have been committed in an earlier assignment."""
        self._reached = reached
        self._open: deque[int] = deque()
        self._marks: dict[int, Mark] = {}  # of the open ones
        self._settled: set[int] = set()
        self._position: int | None = None  # what may be committed
        self.epoch = -1
        """The leader's epoch of the message before `due`, which is committed with it (KIP-320)."""
        self.next = -1
        """Everything before this offset has been delivered, markers that are no messages included; -1: nothing has."""
        self.committed: int | None = None  # what was committed last

    def __len__(self) -> int:
        """How many tasks were delivered and are not covered by what may be committed."""
        return len(self._open)

    def delivered(self, offset: int, mark: Mark = _NO_MARK) -> int | None:
        """A message came. Where delivery was before, when it has gone back."""
        gone_back = self._go_on(offset)
        self.next = offset + 1
        self._open.append(offset)
        self._marks[offset] = mark
        return gone_back

    def at_end(self, offset: int) -> int | None:
        """The partition's end was reached, which lies at `offset`: behind the last message there may be markers of
        transactions, which count as offsets and never arrive. As `delivered`.
        """
        gone_back = self._go_on(offset)
        self.next = offset
        self._skip()
        return gone_back

    def _go_on(self, offset: int) -> int | None:
        reached, self._reached = self._reached, -1
        if offset >= self.next:
            return reached if offset < reached else None
        before = self.next
        self._go_back(offset)
        return before

    def _go_back(self, offset: int) -> None:
        """Nothing is known any more of what lies at this offset and behind it. What lies before it stays open."""
        while self._open and self._open[-1] >= offset:
            last = self._open.pop()
            del self._marks[last]
            self._settled.discard(last)
        if self._position is not None and self._position > offset:
            self._position, self.epoch = offset, -1
        self.committed = None

    def settled(self, offset: int, stamp: int = 0) -> None:
        """Its task is done with. A message that isn't open any more, or another one with its offset, changes nothing."""
        mark = self._marks.get(offset)
        if mark is None or mark.stamp != stamp:
            return
        self._settled.add(offset)
        while self._open and self._open[0] in self._settled:
            first = self._open.popleft()
            self._settled.discard(first)
            self._position, self.epoch = first + 1, self._marks.pop(first).epoch
        self._skip()

    def _skip(self) -> None:
        if not self._open:
            self._position = self.next

    @property
    def due(self) -> int | None:
        """The offset to commit; None when there is nothing new."""
        return None if self._position == self.committed else self._position
