"""JSON lines: one file per table, one JSON object per line."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from netspy.pipelines.base import BasePipeline
from netspy.pipelines.filenames import beside, file_stem
from netspy.pipelines.shared_file import SharedFile, end_of_last_line, locked
from netspy.pipelines.values import json_lines

if TYPE_CHECKING:
    from collections.abc import Sequence


class JsonlPipeline(BasePipeline):
    """Appends to `<JSONL_OUTPUT_DIR>/<table>.jsonl`, UTF-8, one object per line, fields in the item's
    order.

    A batch that was reported as stored is on the disk. A batch is written whole or not at all, except when
    the process is killed within the write: complete lines of it stay, a torn last line is moved to
    `<file>.torn` at the next write. Several processes may write to one file. Lines are never changed, so an
    item that is delivered again is written again, and an UpdateItem is refused.
    """

    path: Path | None = None
    table: str | None = None

    def __init__(self, path: str | Path | None = None, *, table: str | None = None) -> None:
        """`path`: a file to use in the place of JSONL_OUTPUT_DIR/<table>.jsonl, for the rows of `table` (default:
        ITEM_DEFAULT_TABLE); other tables go beside it, to `<stem>.<table><suffix>`.
        """
        if path is not None:
            self.path = Path(path)
            self.table = table

    @cached_property
    def _files(self) -> dict[Path, None]:
        return {}

    def where(self) -> str:
        """The files written, for the run's summary."""
        return ", ".join(map(str, self._files)) or str(
            self.path or Path(self.settings.JSONL_OUTPUT_DIR) / "*.jsonl"
        )

    def _path(self, table: str) -> Path:
        if self.path is not None:
            return beside(self.path, table, self.table or self.settings.ITEM_DEFAULT_TABLE)
        return Path(self.settings.JSONL_OUTPUT_DIR) / f"{file_stem(table)}.jsonl"

    def save_items(self, table: str, items: Sequence[dict[str, Any]]) -> bool:
        """Append the batch. Raises ItemError (a value has no JSON form), OSError, TimeoutError (lock)."""
        data = json_lines(items)
        path = self._path(table)
        with locked(path) as file:
            file.append(mend(file) + data)
        self._files[path] = None
        return True


def mend(file: SharedFile) -> bytes:
    """Cut a torn last line. Returns what must stand before the next line: a newline when only that was
    missing.
    """
    size = file.size()
    if size == 0 or file.read(size - 1, 1) == b"\n":
        return b""
    end = end_of_last_line(file)
    try:
        msgspec.json.decode(file.read(end, size - end))
    except (msgspec.DecodeError, UnicodeDecodeError):
        file.cut(end)
        return b""
    return b"\n"
