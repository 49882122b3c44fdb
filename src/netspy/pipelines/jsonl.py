"""JSON lines: one file per table, one JSON object per line, compressed if wanted."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netspy.pipelines.base import BasePipeline
from netspy.pipelines.errors import UnusableError
from netspy.pipelines.local.compressed import CODECS, Codec, codec_of, head_of, whole_part
from netspy.pipelines.local.filenames import beside, file_stem, next_number
from netspy.pipelines.local.json_lines import HEAD_BYTES, ended, why_foreign
from netspy.pipelines.local.shared_file import SharedFile, locked
from netspy.pipelines.own_settings import given
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

    JSONL_COMPRESSION, or a file name that ends in `.gz` or `.zst`, compresses: each batch is one gzip member
    or zstd frame, whole or (torn by a crash) cut off at the next write. A file that would grow beyond
    JSONL_ROTATE_BYTES is put away as `<stem>.<number><suffix>` first, and a new one begun.
    """

    path: Path | None = None
    table: str | None = None
    rotate_bytes: int | None = None  # None: the setting

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        table: str | None = None,
        output_dir: str | Path | None = None,
    ) -> None:
        """`path`: a file to use in the place of JSONL_OUTPUT_DIR/<table>.jsonl, for the rows of `table` (default:
        ITEM_DEFAULT_TABLE); other tables go beside it, to `<stem>.<table><suffix>`.
        `output_dir`: JSONL_OUTPUT_DIR of this pipeline.
        """
        self.own_settings = given("JsonlPipeline", JSONL_OUTPUT_DIR=output_dir)
        if path is not None:
            self.path = Path(path).expanduser()
            self.table = table

    @cached_property
    def _files(self) -> dict[Path, None]:
        return {}

    def where(self) -> str:
        """The files written, for the run's summary."""
        return ", ".join(map(str, self._files)) or str(self.path or self._path_of("*"))

    def _path(self, table: str) -> Path:
        if self.path is not None:
            return beside(self.path, table, self.table or self.settings.ITEM_DEFAULT_TABLE)
        return self._path_of(file_stem(table))

    def _path_of(self, stem: str) -> Path:
        codec = CODECS.get(self.settings.JSONL_COMPRESSION)
        return Path(self.settings.JSONL_OUTPUT_DIR) / f"{stem}.jsonl{codec.suffix if codec else ''}"

    @cached_property
    def _whole(self) -> dict[Path, tuple[tuple[int, int], int]]:
        """Which file it was, and up to where this process knows it to be whole."""
        return {}

    def save_items(self, table: str, items: Sequence[dict[str, Any]]) -> bool:
        """Append the batch.

        Raises ItemError (a value has no JSON form), OSError, TimeoutError (lock), UnusableError (a file of another form).
        """
        data = json_lines(items)
        path = self._path(table)
        codec = codec_of(path.name)
        while not self._append(path, data, codec):
            pass
        self._files[path] = None
        return True

    def _append(self, path: Path, data: bytes, codec: Codec | None) -> bool:
        """Add the batch; False when the file was full and was put away instead."""
        limit = self.settings.JSONL_ROTATE_BYTES if self.rotate_bytes is None else self.rotate_bytes
        with locked(path) as file:
            try:
                before = self._goes_on(file, codec)
            except ValueError as error:
                raise UnusableError(
                    f"{path} is no file of JSON lines of the kind that is written here: {error}; nothing was changed. Name "
                    "another file"
                ) from error
            packed = before + data if codec is None else codec.pack(before + data)
            if limit and file.size() and file.size() + len(packed) > limit:
                file.rename_to(next_number(path))
                return False
            file.append(packed)
            self._whole[path] = file.identity, file.size()
        return True

    def _goes_on(self, file: SharedFile, codec: Codec | None) -> bytes:
        """Cut what a crash tore. Returns what must stand before the next line.

        Raises ValueError for a file of another form, which is left as it is.
        """
        size = file.size()
        known, upto = self._whole.get(file.path, (None, 0))
        if known != file.identity or upto > size:
            known, upto = None, 0
        if size == upto:
            return b""
        if codec is None:
            if known is None and (why := why_foreign(file.read(0, HEAD_BYTES))):
                raise ValueError(why)
            return ended(file)
        if known is None and (why := why_foreign(head_of(file, codec, HEAD_BYTES))):
            raise ValueError(why)
        found = whole_part(file, codec)
        if found.end < size:
            if not _may_be_torn(file.read(found.end, len(codec.magic)), codec.magic):
                raise ValueError("something else than compressed data follows in it")
            file.cut(found.end)
        return b"" if found.newline else b"\n"


def _may_be_torn(start: bytes, magic: bytes) -> bool:
    """Whether what follows the last whole member begins as one, or is what a power cut or padding left empty."""
    return start == magic[: len(start)] or not start.strip(b"\0")
