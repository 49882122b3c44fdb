"""CSV: one file per table, columns from the union of all items."""

from __future__ import annotations

import csv
import io
import os
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from netspy.pipelines.base import BasePipeline
from netspy.pipelines.local.filenames import beside, file_stem
from netspy.pipelines.local.shared_file import SharedFile, locked
from netspy.pipelines.own_settings import given
from netspy.pipelines.values import as_sheet, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_BOM = b"\xef\xbb\xbf"
# OWASP, "CSV Injection"; the last four are the full-width forms of the first.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
_NUMBERS = (int, float, Decimal)


class _Known(NamedTuple):
    """What this process knows of a file after its last write: a header, and that all is whole up to `end`."""

    identity: tuple[int, int]
    head: bytes
    columns: list[str]
    end: int


class CsvPipeline(BasePipeline):
    """Appends to `<CSV_OUTPUT_DIR>/<table>.csv`: RFC 4180 quoting, UTF-8, a header line.

    A new field makes a new column: the file is rewritten with the wider header, old rows get an empty cell,
    and the new file takes the place of the old one in one step. That costs time with each new column of a
    large file; items with ever new fields are better kept as JSON lines. None is an empty cell, nested
    values are JSON.

    A batch that was reported as stored is on the disk; it is written whole or not at all, except when the
    process is killed within the write: then its complete rows stay and a torn last one is moved to
    `<file>.torn`. Several processes may write to one file. Rows are never changed: an item that is
    delivered again is written again, and an UpdateItem is refused.

    CSV_BOM begins new files with a byte order mark, by which Excel knows UTF-8. CSV_ESCAPE_FORMULAS puts an
    apostrophe before text that a spreadsheet would run as a formula (it starts with = + - @, tab or a line break),
    which changes such values. The class attributes `bom` and `escape_formulas` of a subclass go before them.
    """

    bom: bool | None = None  # None: the setting
    escape_formulas: bool | None = None

    path: Path | None = None
    table: str | None = None

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        table: str | None = None,
        output_dir: str | Path | None = None,
    ) -> None:
        """`path`: a file to use in the place of CSV_OUTPUT_DIR/<table>.csv, for the rows of `table` (default:
        ITEM_DEFAULT_TABLE); other tables go beside it, to `<stem>.<table><suffix>`.
        `output_dir`: CSV_OUTPUT_DIR of this pipeline.
        """
        self.own_settings = given("CsvPipeline", CSV_OUTPUT_DIR=output_dir)
        if path is not None:
            self.path = Path(path).expanduser()
            self.table = table

    @cached_property
    def _files(self) -> dict[Path, None]:
        return {}

    def where(self) -> str:
        """The files written, for the run's summary."""
        return ", ".join(map(str, self._files)) or str(
            self.path or Path(self.settings.CSV_OUTPUT_DIR) / "*.csv"
        )

    def _path(self, table: str) -> Path:
        if self.path is not None:
            return beside(self.path, table, self.table or self.settings.ITEM_DEFAULT_TABLE)
        return Path(self.settings.CSV_OUTPUT_DIR) / f"{file_stem(table)}.csv"

    @cached_property
    def _known(self) -> dict[Path, _Known]:
        return {}

    def save_items(self, table: str, items: Sequence[dict[str, Any]]) -> bool:
        """Append the batch. Raises ItemError for an item without fields, OSError, TimeoutError (lock)."""
        wanted, rows = as_sheet(table, items)
        path = self._path(table)
        with locked(path) as file:
            self._write(file, wanted, rows)
        self._files[path] = None
        return True

    @property
    def _escapes(self) -> bool:
        own = self.escape_formulas
        return self.settings.CSV_ESCAPE_FORMULAS if own is None else own

    def _write(self, file: SharedFile, wanted: list[str], rows: list[dict[str, Any]]) -> None:
        if self._escapes and any(name.startswith(_FORMULA_STARTS) for name in wanted):
            rows = [{_disarm(name): value for name, value in row.items()} for row in rows]
            wanted = [_disarm(name) for name in wanted]
        known = self._look(file)
        if known is None:
            marked = self.settings.CSV_BOM if self.bom is None else self.bom
            head = (_BOM if marked else b"") + self._lines([wanted])
            file.append(head + self._lines(self._cells(rows, wanted)))
            self._known[file.path] = _Known(file.identity, head, wanted, file.size())
            return
        new = [column for column in wanted if column not in known.columns]
        columns = known.columns + new
        data = self._lines(self._cells(rows, columns))
        if new:
            bom = _BOM if known.head.startswith(_BOM) else b""
            self._rewrite(file, known, bom + self._lines([columns]), len(new), data)
        else:
            file.append(data)
            self._known[file.path] = known._replace(end=file.size())

    def _look(self, file: SharedFile) -> _Known | None:
        """The file's columns, after a torn last row was cut; None for an empty file."""
        size = file.size()
        known = self._known.get(file.path)
        if (
            known is None
            or known.identity != file.identity
            or known.end > size
            or file.read(0, len(known.head)) != known.head
        ):
            head_end = _end_of_first_record(file, size)
            if head_end == 0:
                if size:
                    file.cut(0)
                return None
            head = file.read(0, head_end)
            text = head.removeprefix(_BOM).decode("utf-8", "replace")
            columns = next(csv.reader(io.StringIO(text, newline="")), [])
            known = _Known(file.identity, head, columns, head_end)
        end = _end_of_last_record(file, known.end, size)
        if end < size:
            file.cut(end)
        return known._replace(end=end)

    def _rewrite(self, file: SharedFile, known: _Known, head: bytes, new: int, data: bytes) -> None:
        """The whole file with a wider header and the new rows, put in place in one step."""
        temp = file.path.with_name(f"{file.path.name}.tmp")
        try:
            with temp.open("wb") as out:
                out.write(head)
                for block in _pad_records(file.blocks(len(known.head), known.end), b"," * new):
                    out.write(block)
                out.write(data)
                out.flush()
                os.fsync(out.fileno())
            temp.chmod(file.path.stat().st_mode & 0o777)
            file.replace_by(temp)
        except BaseException:
            temp.unlink(missing_ok=True)
            raise

    def _cells(self, rows: list[dict[str, Any]], columns: list[str]) -> Iterator[list[str]]:
        escape = self._escapes
        for row in rows:
            cells = [text_of(row.get(column)) for column in columns]
            if escape:
                cells = [
                    cell if isinstance(row.get(column), _NUMBERS) else _disarm(cell)
                    for cell, column in zip(cells, columns, strict=True)
                ]
            yield cells

    @staticmethod
    def _lines(rows: Any) -> bytes:
        out = io.StringIO(newline="")
        csv.writer(out).writerows(rows)
        return out.getvalue().encode("utf-8")


def _disarm(text: str) -> str:
    """Text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text


def _end_of_first_record(file: SharedFile, size: int) -> int:
    """Offset behind the first newline outside quotes; 0 when there is none."""
    at, quoted = 0, False
    for block in file.blocks(0, size):
        for i, part in enumerate(block.split(b'"')):
            if i:
                quoted = not quoted
                at += 1
            if not quoted and (found := part.find(b"\n")) >= 0:
                return at + found + 1
            at += len(part)
    return 0


def _end_of_last_record(file: SharedFile, start: int, end: int) -> int:
    """Offset behind the last newline outside quotes; `start`, which is the beginning of a record, when
    there is none.
    """
    if start >= end:
        return end
    # Quotes come in pairs in every complete record, escaped ones included.
    if (
        file.read(end - 1, 1) == b"\n"
        and sum(block.count(b'"') for block in file.blocks(start, end)) % 2 == 0
    ):
        return end
    at, last, quoted = start, start, False
    for block in file.blocks(start, end):
        for i, part in enumerate(block.split(b'"')):
            if i:
                quoted = not quoted
                at += 1
            if not quoted and (found := part.rfind(b"\n")) >= 0:
                last = at + found + 1
            at += len(part)
    return last


def _pad_records(blocks: Iterator[bytes], pad: bytes) -> Iterator[bytes]:
    """The records with `pad` before each newline outside quotes; all other bytes as they are."""
    quoted = False
    carry = b""  # a return at the end of a block belongs to the newline that may follow
    for raw in blocks:
        block = carry + raw
        carry = b"\r" if block.endswith(b"\r") else b""
        parts = block.removesuffix(b"\r").split(b'"')
        for i, part in enumerate(parts):
            if i:
                quoted = not quoted
            if not quoted and b"\n" in part:
                parts[i] = part.replace(b"\r\n", b"\n").replace(b"\n", pad + b"\r\n")
        yield b'"'.join(parts)
    yield carry
