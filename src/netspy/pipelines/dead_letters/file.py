"""The dead-letter file: rows that could not be stored, one line each (`netspy.pipelines.dead_letters.records`)."""

from __future__ import annotations

from array import array
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from netspy.errors import NetspyError, PipelineError
from netspy.messages.row import DeadRow
from netspy.pipelines.dead_letters.records import line_of, parse_record
from netspy.pipelines.dead_letters.replay import Replayed, Writer, replay
from netspy.pipelines.local.json_lines import ended
from netspy.pipelines.local.shared_file import SharedFile, locked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["DeadLetterFile", "DeadRow", "Replayed"]

_DONE = b"#"  # put over the "{" of a replayed line


class DeadLetterFile:
    """FAILED_ITEM_PATH. Several processes may append to it, also while it is replayed."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @property
    def name(self) -> str:
        """Its path."""
        return str(self.path)

    @property
    def _claimed(self) -> Path:
        return self.path.with_name(self.path.name + ".replaying")

    def append(self, rows: Sequence[DeadRow]) -> None:
        """Add the rows; on the disk when this returns. Raises OSError, TimeoutError: then none is there."""
        self._append(b"".join(map(line_of, rows)))

    def read(self) -> Iterator[DeadRow]:
        """The rows in the file, and before them those that a broken-off replay has not come to.

        Lines that can't be read (one that a crash tore, or a hand changed) are left out; a replay keeps them.
        """
        for path in (self._claimed, self.path):
            with suppress(FileNotFoundError), path.open("rb") as file:
                for line in file:
                    with suppress(ValueError, NetspyError):
                        if line.strip() and not line.startswith(_DONE):
                            yield parse_record(line)

    async def replay(
        self, writer: Writer, *, progress: Callable[[int, int], None] | None = None, batch_size: int = 500
    ) -> Replayed:
        """Write the rows again, each only to the pipelines that lack it. See `netspy.pipelines.dead_letters.replay`.

        Rows that fail again come back to the file through the writer, which must dead-letter into this file.
        """
        return await replay(self, writer, progress=progress, batch_size=batch_size)

    @contextmanager
    def claim(self) -> Iterator[ClaimedFile | None]:
        """The letters to write again; None when there are none. Raises PipelineError while another replay runs.

        The file is renamed to `<file>.replaying`, so that a crawl may go on adding to it; what a replay that was
        killed had not come to is taken up, with what has come since.
        """
        with ExitStack() as stack:
            file = self._claim(stack)
            yield None if file is None else ClaimedFile(file, self._append)

    def _append(self, data: bytes) -> None:
        with locked(self.path, private=True) as file:
            self._whole(file)
            file.append(data)

    def _claim(self, stack: ExitStack) -> SharedFile | None:
        """The file to replay, locked until `stack` ends; None when there is nothing to replay."""
        while True:
            try:
                file = stack.enter_context(locked(self._claimed, wait_s=0.0, create=False, private=True))
            except TimeoutError as error:
                raise PipelineError(
                    f"{self._claimed} is being replayed by another process; let it finish"
                ) from error
            except FileNotFoundError:
                pass
            else:
                self._take_in(file)
                return file
            with ExitStack() as attempt:
                try:
                    file = attempt.enter_context(locked(self.path, create=False, private=True))
                except FileNotFoundError:
                    return None
                # Only the holder of this lock makes the other name, so it can't appear behind this question.
                if self._claimed.exists():
                    continue
                file.rename_to(self._claimed)
                stack.push(attempt.pop_all())
            self._whole(file)
            return file

    def _take_in(self, file: SharedFile) -> None:
        """Add what has failed since the broken-off replay, so that one pass does both."""
        self._whole(file)
        with suppress(FileNotFoundError), locked(self.path, create=False, private=True) as newer:
            self._whole(newer)
            file.append(newer.read(0, newer.size()))
            newer.remove()

    @staticmethod
    def _whole(file: SharedFile) -> None:
        """Cut a torn last line; end any other, also one that a hand has changed."""
        try:
            before = ended(file)
        except ValueError:
            before = b"\n"
        if before:
            file.append(before)


class ClaimedFile:
    """The lines of a file that are to be written again."""

    def __init__(self, file: SharedFile, put_back: Callable[[bytes], None]) -> None:
        self._file = file
        self._put_back = put_back
        self._starts = array("Q")  # eight bytes a line: there may be a million
        self._lengths = array("Q")
        for at, length, done in _lines(file):
            if not done:
                self._starts.append(at)
                self._lengths.append(length)
        self._next = 0
        self._taken: Sequence[int] = ()
        self.total = len(self._starts)

    def take(self, most: int) -> list[bytes]:
        """The next lines."""
        part = slice(self._next, self._next + most)
        self._taken = self._starts[part]
        self._next += len(self._taken)
        return [
            self._file.read(at, length) for at, length in zip(self._taken, self._lengths[part], strict=True)
        ]

    def settle(self, keep: Sequence[bytes]) -> None:
        """The lines taken are over; `keep` is put back first. Raises OSError, TimeoutError."""
        if keep:
            self._put_back(b"".join(keep))
        for at in self._taken:
            self._file.overwrite(at, _DONE)
        self._taken = ()

    def end(self) -> None:
        """All lines are over."""
        self._file.remove()


def _lines(file: SharedFile) -> Iterator[tuple[int, int, bool]]:
    """Offset, length and whether it needs nothing more, of each line."""
    at, rest = 0, b""
    for block in file.blocks(0, file.size()):
        *whole, rest = (rest + block).split(b"\n")
        for line in whole:
            yield at, len(line) + 1, not line.strip() or line.startswith(_DONE)
            at += len(line) + 1
