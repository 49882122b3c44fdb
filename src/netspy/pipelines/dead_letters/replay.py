"""Dead letters are written again: those that are wanted, each only to the pipelines that lack it.

A batch is taken, written, and settled: what is not stored goes back, and only then is the batch over. Killed in the
middle, nothing is lost; at most one batch is written twice, and keyed rows of it are stored once.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from netspy.errors import ItemError, NetspyError, UserCodeError, message_of
from netspy.messages.records import remade, row_of
from netspy.messages.row import DeadRow, Row
from netspy.pipelines.dead_letters.records import line_of, parse_record
from netspy.raised import failure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager


class Replayed(NamedTuple):
    """What a replay came to. `failed` rows are dead letters again; `left` ones were not wanted; a replay that was
    stopped has not come to the `unseen` ones.
    """

    stored: int
    failed: int
    left: int = 0
    unseen: int = 0


class _Result(Protocol):
    @property
    def stored(self) -> int: ...
    @property
    def failed(self) -> int: ...


class Writer(Protocol):
    """What replay needs of a BatchWriter: store the rows, or dead-letter them again."""

    async def write(self, batch: Sequence[Row]) -> _Result:
        """As `BatchWriter.write`."""


class Claim(Protocol):
    """The letters of a store, held by one replay. Methods may block."""

    total: int

    def take(self, most: int) -> list[bytes]:
        """The next lines, none at the end."""

    def settle(self, keep: Sequence[bytes]) -> None:
        """The lines taken are over, but for `keep`, which stay in the store."""

    def end(self) -> None:
        """All lines were taken and settled."""


class Letters(Protocol):
    """Where dead letters are kept."""

    @property
    def name(self) -> str:
        """For people."""

    def append(self, rows: Sequence[DeadRow]) -> None:
        """Kept when it returns; raises when that is not possible."""

    def read(self) -> Iterator[DeadRow]:
        """All that can be read, oldest first."""

    def claim(self) -> AbstractContextManager[Claim | None]:
        """To write them again; None when there are none. Raises PipelineError while another replay runs."""


class Again:
    """Takes the dead letters of a replay's writer, so that they go back in one step with the end of their batch."""

    def __init__(self) -> None:
        self.rows: list[DeadRow] = []

    def append(self, rows: Sequence[DeadRow]) -> None:
        """Remember them."""
        self.rows += rows

    def taken(self) -> list[DeadRow]:
        """What was remembered; forgotten now."""
        rows, self.rows = self.rows, []
        return rows


class Wanted(NamedTuple):
    """Which letters: of this table, of `since` (seconds since 1970) or later, lacked by this pipeline (its path, or
    its last part).
    """

    table: str | None = None
    since: float | None = None
    pipeline: str | None = None

    def choose(self, dead: DeadRow) -> tuple[DeadRow | None, DeadRow | None]:
        """The part of a letter that is to be written now, and the part that is to stay."""
        if (self.table is not None and dead.row.table != self.table) or (
            self.since is not None and dead.time < self.since
        ):
            return None, dead
        if self.pipeline is None:
            return dead, None
        names = dead.row.pipelines or ()
        now = tuple(name for name in names if named(name, self.pipeline))
        later = tuple(name for name in names if name not in now)
        return (
            dead._replace(row=dead.row._replace(pipelines=now)) if now else None,
            dead._replace(row=dead.row._replace(pipelines=later)) if later or not names else None,
        )


def named(path: str, wanted: str) -> bool:
    """Whether `wanted` means the pipeline of this class path."""
    return path == wanted.replace(":", ".") or path.rpartition(".")[2].partition("#")[0] == wanted


async def replay(
    letters: Letters,
    writer: Writer,
    *,
    wanted: Wanted | None = None,
    again: Again | None = None,
    find_class: Callable[[str], Any] | None = None,
    validate: bool = False,
    progress: Callable[[int, int], None] | None = None,
    stopped: Callable[[], bool] = lambda: False,
    batch_size: int = 500,
) -> Replayed:
    """Write the letters again, or those `wanted`.

    `again` is what the writer dead-letters into; without it the writer has to dead-letter into `letters` itself.
    `find_class` gives the class of an item that was refused (raises ItemError when it can't be had): the item is made
    and checked anew. `progress(done, total)` is called after each batch; `stopped` is asked before each.

    Raises PipelineError when another replay is running, and when rows can be neither stored nor put back.
    """
    stored = failed = left = done = 0
    with letters.claim() as claim:
        if claim is None:
            return Replayed(0, 0)
        while done < claim.total:
            if stopped():
                return Replayed(stored, failed, left, claim.total - done)
            lines = await asyncio.to_thread(claim.take, min(batch_size, claim.total - done))
            if not lines:
                break  # another replay was quicker
            sorted_ = _Sorted(lines, wanted or Wanted(), find_class, validate=validate)
            result = await writer.write(sorted_.rows) if sorted_.rows else None
            keep = sorted_.keep + [line_of(dead) for dead in (again.taken() if again else ())]
            await asyncio.to_thread(claim.settle, keep)
            done += len(lines)
            stored += result.stored if result else 0
            failed += (result.failed if result else 0) + sorted_.failed
            left += sorted_.left
            if progress is not None:
                progress(done, claim.total)
        claim.end()
    return Replayed(stored, failed, left)


class _Sorted:
    """A batch of lines: the rows to write, and the lines that stay."""

    def __init__(
        self,
        lines: Sequence[bytes],
        wanted: Wanted,
        find_class: Callable[[str], Any] | None,
        *,
        validate: bool,
    ) -> None:
        self.rows: list[Row] = []
        self.keep: list[bytes] = []
        self.failed = self.left = 0
        self._find_class = find_class
        self._validate = validate
        for line in lines:
            try:
                dead = parse_record(line)
            except (ValueError, NetspyError):
                self.failed += 1
                self.keep.append(line)
                continue
            now, later = wanted.choose(dead)
            if later is not None:
                self.keep.append(line if now is None else line_of(later))
            if now is None:
                self.left += 1
            else:
                self._now(now)

    def _now(self, dead: DeadRow) -> None:
        if not dead.item or self._find_class is None:
            self.rows.append(dead.row)
            return
        try:
            item = remade(dead.row, self._find_class(dead.item))
            self.rows.append(row_of(item, validate=self._validate, mark=False)[0])
        except BaseException as caught:  # the item's own pre_to_db, its module
            error = failure(caught)
            why = f"{type(error).__name__}: {message_of(error)}"
            if isinstance(error, ItemError | UserCodeError):
                why = str(error)
            self.failed += 1
            self.keep.append(line_of(dead._replace(error=why)))
