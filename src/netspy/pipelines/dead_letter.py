"""The dead-letter file: rows that a pipeline could not store, kept on the disk and written again on demand.

One JSON object per line: `table`, `data`, `pipelines` (the ones that lack the row; null = all),
`update_keys`, `unique_key`, `error`, `time`. Values come back with their types (`netspy.messages.codec`).
"""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from netspy.errors import NetspyError, PipelineError, SerializationError
from netspy.messages.codec import is_plain, lift, lower
from netspy.messages.row import DeadRow, Row
from netspy.pipelines.shared_file import SharedFile, end_of_last_line, locked

_DONE = b"#"  # put over the "{" of a replayed line
_write = msgspec.json.Encoder().encode
_read = msgspec.json.Decoder().decode


class Replayed(NamedTuple):
    """What a replay came to. `failed` rows are back in the file."""

    stored: int
    failed: int


class _Result(Protocol):
    @property
    def stored(self) -> int: ...
    @property
    def failed(self) -> int: ...


class Writer(Protocol):
    """What replay needs of a BatchWriter: store the rows, or put them into the dead-letter file again."""

    async def write(self, batch: Sequence[Row]) -> _Result:
        """As `BatchWriter.write`."""


class DeadLetterFile:
    """FAILED_ITEM_PATH. Several processes may append to it, also while it is replayed."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @property
    def _claimed(self) -> Path:
        return self.path.with_name(self.path.name + ".replaying")

    def append(self, rows: Sequence[DeadRow]) -> None:
        """Add the rows; on the disk when this returns. Raises OSError, TimeoutError: then none is there."""
        self._append(b"".join(map(_line, rows)))

    def read(self) -> Iterator[DeadRow]:
        """The rows in the file, and before them those that a broken-off replay has not come to.

        Lines that can't be read (one that a crash tore, or a hand changed) are left out; a replay keeps them.
        """
        for path in (self._claimed, self.path):
            with suppress(FileNotFoundError), path.open("rb") as file:
                for line in file:
                    with suppress(ValueError, NetspyError):
                        if line.strip() and not line.startswith(_DONE):
                            yield _parsed(line)

    async def replay(
        self, writer: Writer, *, progress: Callable[[int, int], None] | None = None, batch_size: int = 500
    ) -> Replayed:
        """Write the rows again, each only to the pipelines that lack it.

        The file is first renamed to `<file>.replaying`, so that a crawl may go on adding to it; a replay
        that was killed is taken up where it was. Rows that fail again go back to the file through the
        writer (which must dead-letter into this file). Killed in the middle, nothing is lost; at most one
        batch is written twice, and keyed rows of it are stored once. `progress(done, total)` is called
        after each batch.

        Raises PipelineError when another replay is running, and when rows can be neither stored nor put
        back.
        """
        with ExitStack() as stack:
            file = self._claim(stack)
            if file is None:
                return Replayed(0, 0)
            lines = [(at, length) for at, length, done in _lines(file) if not done]
            stored = failed = 0
            for start in range(0, len(lines), batch_size):
                part = lines[start : start + batch_size]
                rows: list[Row] = []
                unreadable: list[bytes] = []
                for at, length in part:
                    line = file.read(at, length)
                    try:
                        rows.append(_parsed(line).row)
                    except (ValueError, NetspyError):
                        unreadable.append(line)
                if unreadable:
                    self._append(b"".join(unreadable))
                result = await writer.write(rows)
                for at, _ in part:
                    file.overwrite(at, _DONE)
                stored += result.stored
                failed += result.failed + len(unreadable)
                if progress is not None:
                    progress(start + len(part), len(lines))
            file.remove()
        return Replayed(stored, failed)

    def _append(self, data: bytes) -> None:
        with locked(self.path) as file:
            if end := file.size():
                whole = end_of_last_line(file)
                if whole < end:
                    file.cut(whole)
            file.append(data)

    def _claim(self, stack: ExitStack) -> SharedFile | None:
        """The file to replay, locked until `stack` ends; None when there is nothing to replay."""
        while True:
            try:
                file = stack.enter_context(locked(self._claimed, wait_s=0.0, create=False))
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
                    file = attempt.enter_context(locked(self.path, create=False))
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
        with suppress(FileNotFoundError), locked(self.path, create=False) as newer:
            self._whole(newer)
            file.append(newer.read(0, newer.size()))
            newer.remove()

    @staticmethod
    def _whole(file: SharedFile) -> None:
        end = end_of_last_line(file)
        if end < file.size():
            file.cut(end)


def _lines(file: SharedFile) -> Iterator[tuple[int, int, bool]]:
    """Offset, length and whether it needs nothing more, of each line."""
    at, rest = 0, b""
    for block in file.blocks(0, file.size()):
        *whole, rest = (rest + block).split(b"\n")
        for line in whole:
            yield at, len(line) + 1, not line.strip() or line.startswith(_DONE)
            at += len(line) + 1


def _line(dead: DeadRow) -> bytes:
    row = dead.row
    record: dict[str, Any] = {
        "table": row.table,
        "data": row.data,
        "pipelines": None if row.pipelines is None else list(row.pipelines),
        "update_keys": None if row.update_keys is None else list(row.update_keys),
        "unique_key": list(row.unique_key),
        "error": dead.error,
        "time": datetime.fromtimestamp(dead.time, UTC).isoformat(timespec="milliseconds"),
    }
    try:
        return _encoded(record)
    except SerializationError as error:
        record["data"] = _tame(row.data, ())
        record["error"] = f"{dead.error} (kept with some values as text: {error})"
        return _encoded(record)


def _encoded(record: dict[str, Any]) -> bytes:
    if is_plain(record):
        with suppress(UnicodeEncodeError):
            return _write(record) + b"\n"
    return _write(lift(record)) + b"\n"


def _tame(value: Any, path: tuple[int, ...]) -> Any:
    """`value` with everything that can't travel replaced by its text, or by the type it derives from."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bool | int):
        return value if isinstance(value, bool) else int(value)
    if isinstance(value, float):
        return float(value)
    if id(value) in path or len(path) > 50:
        return "<contains itself>" if id(value) in path else repr(value)
    inside = (*path, id(value))
    if isinstance(value, Mapping):
        return {str(key): _tame(inner, inside) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_tame(inner, inside) for inner in value]
    try:
        lift(value)
    except SerializationError:
        return repr(value)
    return value


def _parsed(line: bytes) -> DeadRow:
    """Raises ValueError (DecodeError, UnicodeDecodeError), SerializationError."""
    record = lower(_read(line))
    if not (
        isinstance(record, dict)
        and isinstance(record.get("table"), str)
        and isinstance(record.get("data"), dict)
    ):
        raise ValueError("no dead letter: it needs 'table' and 'data'")  # noqa: TRY004 (the line is wrong)
    row = Row(
        record["table"],
        record["data"],
        _names(record, "pipelines"),
        _names(record, "update_keys"),
        _names(record, "unique_key") or (),
    )
    at = record.get("time")
    when = datetime.fromisoformat(at).timestamp() if isinstance(at, str) else clock.time()
    return DeadRow(row, str(record.get("error", "")), when)


def _names(record: dict[str, Any], field: str) -> tuple[str, ...] | None:
    names = record.get(field)
    if names is None:
        return None
    if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise ValueError(f"no dead letter: {field!r} must be a list of names")
    return tuple(names)
