"""Which offset of a partition may be committed: decided without Kafka.

Kafka knows one number per partition: everything before it is done. Tasks are settled in any order, so the number is
that of the first task which is not settled, among those that were delivered.
"""

from __future__ import annotations

from collections import deque


class Offsets:
    """The tasks of one assigned partition, in the order of delivery."""

    def __init__(self) -> None:
        self._open: deque[int] = deque()
        self._settled: set[int] = set()
        self._position: int | None = None  # what may be committed
        self.end = -1
        """Everything before this offset has been delivered, markers that are no messages included."""
        self.committed: int | None = None  # what was committed last

    def __len__(self) -> int:
        """How many tasks were delivered and are not covered by what may be committed."""
        return len(self._open)

    def delivered(self, offset: int) -> bool:
        """A message came. False when it had come before, in this assignment."""
        if self._open and offset <= self._open[-1]:
            return False
        if self._position is not None and offset < self._position:
            return False
        self._open.append(offset)
        return True

    def settled(self, offset: int) -> None:
        """Its task is done with. An offset that isn't open any more changes nothing."""
        if not self._open or offset < self._open[0]:
            return
        self._settled.add(offset)
        while self._open and self._open[0] in self._settled:
            first = self._open.popleft()
            self._settled.discard(first)
            self._position = first + 1
        self._skip()

    def at_end(self, offset: int) -> None:
        """The partition's end was reached, which lies at `offset`: behind the last message there may be markers of
        transactions, which count as offsets and never arrive.
        """
        self.end = max(self.end, offset)
        self._skip()

    def _skip(self) -> None:
        if not self._open and self._position is not None:
            self._position = max(self._position, self.end)

    @property
    def due(self) -> int | None:
        """The offset to commit; None when there is nothing new."""
        return None if self._position == self.committed else self._position
