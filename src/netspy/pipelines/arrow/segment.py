"""The rows of a Parquet file that isn't finished yet: a log on the disk, which becomes the file when it is full.

Parquet's index stands at the end of a file, so a file that a crash cut short can't be read. Batches are therefore kept
in a log first, as Arrow tables with a length and a checksum, synced one by one. The finished file is written under a
temporary name, synced and renamed. Whoever finds the log of a process that is gone finishes it; the log names its
file, so that a crash between the renaming and the log's removal can't make two files of it.
"""

from __future__ import annotations

import os
import struct
import zlib
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from netspy.pipelines.arrow.batch import Columns, Plan, as_table, conformed, plan_of
from netspy.pipelines.arrow.folder import make_alike, parts_of, types_of
from netspy.pipelines.local.shared_file import locked, sync_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from netspy.pipelines.arrow.types import Kind
    from netspy.pipelines.local.shared_file import SharedFile

_LOG_SUFFIX = ".rows"
_HEAD = struct.Struct(">II")  # length and CRC-32 of the batch that follows
_GROUP_ROWS = 20_000  # rows, and bytes of their log, in memory at a time: a row group of the file
_GROUP_BYTES = 32 << 20


class Say:
    """Where remarks go; each is made once."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def __call__(self, message: str) -> None:
        """Log a warning."""
        if message not in self._said:
            self._said.add(message)
            from loguru import logger

            logger.warning("{}", message)


class Segment:
    """The log of one file to be. It is locked as long as it is open."""

    def __init__(self, table: str, target: Path, declared: Mapping[str, Any], say: Say) -> None:
        """`target` is the Parquet file that it becomes. Raises OSError, TimeoutError."""
        self.table = table
        self.target = target
        self.rows = 0
        self._say = say
        self._stack = ExitStack()
        self._file = self._stack.enter_context(locked(log_of(target)))
        self._columns = Columns(declared, _kinds_before(target.parent))

    @property
    def size(self) -> int:
        """Length of the log in bytes."""
        return self._file.size()

    @property
    def is_gone(self) -> bool:
        """Whether somebody removed the log. Its rows can still be made a file while this process lives."""
        return self._file.is_gone

    def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add a batch; on the disk when this returns. Raises ItemError, OSError: then none of it is there."""
        import pyarrow as pa

        table = as_table(self.table, rows, self._columns, self._say)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        data = sink.getvalue().to_pybytes()
        self._file.append(_HEAD.pack(len(data), zlib.crc32(data)) + data)
        self.rows += len(rows)

    def finish(self) -> None:
        """Make the Parquet file and remove the log. Raises OSError, ArrowException: then the log stays."""
        finish(self._file, self.target, self._columns.declared, self._say)
        self.close()

    def close(self) -> None:
        """Let go of the log."""
        self._stack.close()


def log_of(target: Path) -> Path:
    """The log of a file to be. Readers of a folder of Parquet files leave names with an underscore alone."""
    return target.with_name(f"_{target.stem}{_LOG_SUFFIX}")


def with_logs(folder: Path) -> Iterator[Path]:
    """The files whose logs lie in `folder`, whether or not somebody is still writing to them."""
    for log in sorted(folder.glob(f"_part-*{_LOG_SUFFIX}")):
        yield log.with_name(f"{log.name.removeprefix('_').removesuffix(_LOG_SUFFIX)}.parquet")


def take_over(target: Path, declared: Mapping[str, Any], say: Callable[[str], None]) -> bool:
    """Finish the file of a process that is gone; False when it isn't gone. Raises OSError, ArrowException."""
    try:
        with locked(log_of(target), wait_s=0.0, create=False) as file:
            finish(file, target, declared, say)
    except (TimeoutError, FileNotFoundError):
        return False
    return True


def finish(file: SharedFile, target: Path, declared: Mapping[str, Any], say: Callable[[str], None]) -> None:
    """Make `target` of the log `file` and remove the log. `declared` columns are there in any case."""
    if not target.exists():
        places = _batches(file)
        plan = plan_of((_table(file, *place).schema for place in places), declared)
        if plan is not None:
            _make(file, places, target, plan)
    make_alike(target.parent, say)
    file.remove()


def _batches(file: SharedFile) -> list[tuple[int, int]]:
    """Offset and length of each whole batch; what a crash has torn is cut off."""
    size = file.size()
    at = 0
    places: list[tuple[int, int]] = []
    while at + _HEAD.size <= size:
        length, checksum = _HEAD.unpack(file.read(at, _HEAD.size))
        data = file.read(at + _HEAD.size, length)
        if len(data) < length or zlib.crc32(data) != checksum:
            break
        places.append((at + _HEAD.size, length))
        at += _HEAD.size + length
    if at < size:
        file.cut(at)
    return places


def _table(file: SharedFile, at: int, length: int) -> Any:
    import pyarrow as pa

    return pa.ipc.open_stream(file.read(at, length)).read_all()


def _kinds_before(folder: Path) -> dict[str, Kind]:
    """The kinds that hold what all finished files of the folder have, so that files of a table have the same types."""
    return {name: kind for name, (_, kind) in types_of(parts_of(folder)).items() if kind.name != "other"}


def _make(file: SharedFile, places: list[tuple[int, int]], target: Path, plan: Plan) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    temporary = target.with_name(f"_{target.name}.tmp")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with temporary.open("wb") as out:
            with pq.ParquetWriter(out, plan.schema, compression="zstd") as writer:
                for group in _groups(file, places):
                    tables = [conformed(table, plan) for table in group]
                    writer.write_table(pa.concat_tables(tables).combine_chunks(), row_group_size=_GROUP_ROWS)
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(target)
        sync_folder(target.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _groups(file: SharedFile, places: list[tuple[int, int]]) -> Iterator[list[Any]]:
    tables: list[Any] = []
    rows = size = 0
    for at, length in places:
        tables.append(_table(file, at, length))
        rows += tables[-1].num_rows
        size += length
        if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
            yield tables
            tables, rows, size = [], 0, 0
    if tables:
        yield tables
