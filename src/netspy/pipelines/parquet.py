"""Parquet: a folder of finished files for each table, with typed columns."""

from __future__ import annotations

import secrets
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from netspy.errors import MissingExtraError, PipelineError
from netspy.pipelines.arrow.folder import parts_of, types_of
from netspy.pipelines.arrow.segment import Say, Segment, take_over, with_logs
from netspy.pipelines.base import BasePipeline
from netspy.pipelines.local.filenames import file_stem
from netspy.pipelines.values import as_sheet

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def schema_of(folder: str | Path) -> Any:
    """The pyarrow.Schema by which all finished files of a table's folder are one table, whatever types each has.

    For `pyarrow.dataset.dataset(folder, schema=schema_of(folder))`, which by itself takes the first file's schema for
    that of all. Raises FileNotFoundError when there is no file yet.
    """
    import pyarrow as pa

    parts = parts_of(Path(folder))
    if not parts:
        raise FileNotFoundError(
            f"{folder} has no finished Parquet file; does the crawl that writes it still run?"
        )
    return pa.schema([(name, found) for name, (found, _) in types_of(parts).items()])


class ParquetPipeline(BasePipeline):
    """Writes `<PARQUET_OUTPUT_DIR>/<table>/part-<time>-<number>.parquet`, zstd-compressed.

    A file appears when it is finished: at PARQUET_FILE_ROWS, PARQUET_FILE_BYTES or PARQUET_FILE_AGE, and at the end
    of the run. Until then its rows are in a log beside it (`_part-….rows`), on the disk for each batch that was
    reported as stored. What a killed process left in such a log is made a file at the next start. Several processes
    may write to one folder; each has files of its own. Rows are never changed: an item that is delivered again is
    written again, and an UpdateItem is refused.

    Types follow from the values: a column has the narrowest type that holds each of them exactly, and the same in
    later files unless a value asks for a wider one. `schemas` of a subclass declares them instead: a pyarrow.Schema
    by table name, for all columns or for some. A row with a value that its declared type can't hold is dead-lettered.
    """

    schemas: ClassVar[Mapping[str, Any]] = {}
    recovers = True

    def __init__(self) -> None:
        try:
            import pyarrow as pa
        except ImportError:
            raise MissingExtraError("ParquetPipeline", "parquet") from None
        self._pa = pa
        self._open: dict[str, tuple[Segment, float]] = {}  # with when it was begun (time.monotonic)
        self._full: list[Segment] = []  # could not be finished yet
        self._folders: dict[Path, None] = {}
        self._say = Say()

    def where(self) -> str:
        """The folders written, for the run's summary."""
        return ", ".join(map(str, self._folders)) or str(self._root / "*" / "part-*.parquet")

    @property
    def _root(self) -> Path:
        return Path(self.settings.PARQUET_OUTPUT_DIR)

    def open(self) -> None:
        """Make files of what killed processes have left."""
        tables = {file_stem(table): table for table in self.schemas}
        for folder in sorted({log.parent for log in self._root.glob("*/_part-*.rows")}):
            for target in with_logs(folder):
                try:
                    take_over(target, self._declared(tables.get(folder.name, "")), self._say)
                except (OSError, ValueError, self._pa.ArrowException) as error:
                    self._say(
                        f"{target} can't be finished from the log of a crashed process beside it: {error}"
                    )

    def save_items(self, table: str, items: Sequence[dict[str, Any]]) -> bool:
        """Keep the batch. Raises ItemError (a value has no form, or not the declared one), OSError."""
        _, rows = as_sheet(table, items)
        segment, begun = self._segment(table)
        segment.append(rows)
        settings = self.settings
        if (
            segment.rows >= settings.PARQUET_FILE_ROWS
            or segment.size >= settings.PARQUET_FILE_BYTES
            or (settings.PARQUET_FILE_AGE and time.monotonic() - begun >= settings.PARQUET_FILE_AGE)
        ):
            self._full.append(segment)
            del self._open[table]
            if error := self._finish():
                # The batch is on the disk all the same.
                self._say(f"{segment.target} can't be finished now ({error}); its rows are safe beside it")
        return True

    def close(self) -> None:
        """Finish all files. Raises PipelineError when one can't be; the next start does it then."""
        self._full += [segment for segment, _ in self._open.values()]
        self._open.clear()
        error = self._finish()
        left, self._full = self._full, []
        for segment in left:
            segment.close()
        if error is not None:
            raise PipelineError(
                f"{', '.join(str(segment.target) for segment in left)} could not be finished: {error}; the rows are "
                "safe beside it, and the next start of a crawl with this pipeline makes the file"
            ) from error

    def _declared(self, table: str) -> dict[str, Any]:
        schema = self.schemas.get(table)
        return {} if schema is None else {field.name: field.type for field in schema}

    def _segment(self, table: str) -> tuple[Segment, float]:
        found = self._open.get(table)
        if found is not None and found[0].is_gone:
            self._full.append(self._open.pop(table)[0])
            if error := self._finish():
                raise error
            found = None
        if found is None:
            folder = self._root / file_stem(table)
            moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
            target = folder / f"part-{moment}-{secrets.token_hex(4)}.parquet"
            segment = Segment(table, target, self._declared(table), self._say)
            found = self._open[table] = segment, time.monotonic()
            self._folders[folder] = None
        return found

    def _finish(self) -> Exception | None:
        """Make files of the full segments; the error of one that stays."""
        trouble: Exception | None = None
        waiting, self._full = self._full, []
        for segment in waiting:
            try:
                segment.finish()
            except (OSError, self._pa.ArrowException) as error:
                trouble = error
                self._full.append(segment)
        return trouble
