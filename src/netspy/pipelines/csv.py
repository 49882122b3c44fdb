"""CSV: one file per table, columns from the union of all items."""

from __future__ import annotations

import codecs
import csv
import io
import os
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from netspy.pipelines.base import BasePipeline
from netspy.pipelines.errors import UnusableError
from netspy.pipelines.local.csv_records import (
    BOM,
    OTHER_DELIMITERS,
    columns_of,
    first_record,
    padded,
    records,
    tail_of,
    why_foreign,
)
from netspy.pipelines.local.filenames import beside, file_stem
from netspy.pipelines.local.shared_file import SharedFile, locked
from netspy.pipelines.own_settings import given
from netspy.pipelines.values import as_sheet, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
        known = self._look(file, wanted)
        if known is None:
            marked = self.settings.CSV_BOM if self.bom is None else self.bom
            head = (BOM if marked else b"") + _heading(wanted)
            file.append(head + _lines(self._cells(rows, wanted)), marked=True)
            self._known[file.path] = _Known(file.identity, head, wanted, file.size())
            return
        new = [column for column in wanted if column not in known.columns]
        columns = known.columns + new
        data = _lines(self._cells(rows, columns))
        if new:
            bom = BOM if known.head.startswith(BOM) else b""
            self._rewrite(file, known, bom + _heading(columns), len(new), data)
        else:
            file.append(data, marked=True)
            self._known[file.path] = known._replace(end=file.size())

    def _look(self, file: SharedFile, wanted: list[str]) -> _Known | None:
        """The file's columns, after its last line was ended, or cut when a crash tore it; None for an empty file.

        Raises UnusableError for a file of another form; it is left as it is.
        """
        size = file.size()
        known = self._known.get(file.path)
        if (
            known is None
            or known.identity != file.identity
            or known.end > size
            or file.read(0, len(known.head)) != known.head
        ):
            known = self._look_at_all(file, wanted)
            if known is None:
                return None
        try:
            tail = tail_of(file.blocks(known.end, size), known.end)
        except ValueError as error:  # another program writes there as well
            raise _foreign(file, str(error)) from error
        if tail.fields:
            if (
                tail.in_quotes
                or file.torn_after(tail.end)
                or (tail.fields < len(known.columns) and self._is_short(file, known, tail.fields))
            ):
                file.cut(tail.end)
            else:
                file.append(b"\n" if file.read(size - 1, 1) == b"\r" else b"\r\n")
                return known._replace(end=file.size())
        return known._replace(end=tail.end)

    def _look_at_all(self, file: SharedFile, wanted: list[str]) -> _Known | None:
        """The heading of a file that this process doesn't know; None when there is none. Raises UnusableError."""
        size = file.size()
        if size == 0:
            return None
        mark = len(BOM) if file.read(0, len(BOM)) == BOM else 0
        try:
            part = _check_text(file)
            head_end = mark + first_record(file.blocks(mark, size))
            if head_end > mark:
                tail_of(file.blocks(mark, size), mark)
            elif part or tail_of(file.blocks(mark, size), mark).in_quotes or file.torn_after(0):
                file.cut(0)
                return None
            why = why_foreign(file.read(0, head_end or size), file.blocks(head_end or size, size), wanted)
        except ValueError as error:
            why = str(error)
        if why:
            raise _foreign(file, why)
        if head_end == mark:
            if size == mark:
                file.append(_heading(wanted))
            else:
                file.append(b"\n" if file.read(size - 1, 1) == b"\r" else b"\r\n")
            head_end = file.size()
        head = file.read(0, head_end)
        return _Known(file.identity, head, columns_of(head), head_end)

    @staticmethod
    def _is_short(file: SharedFile, known: _Known, fields: int) -> bool:
        """Whether no other line of the file has as few fields."""
        start = len(known.head)
        return all(
            found > fields or not record.strip()
            for record, found in records(file.blocks(start, file.size()))
            if record.endswith(b"\n")
        )

    def _rewrite(self, file: SharedFile, known: _Known, head: bytes, new: int, data: bytes) -> None:
        """The whole file with a wider header and the new rows, put in place in one step."""
        temp = file.path.with_name(f"{file.path.name}.tmp")
        try:
            with temp.open("wb") as out:
                out.write(head)
                old = file.blocks(len(known.head), known.end)
                out.writelines(padded(old, b"," * new, len(known.columns)))
                out.write(data)
                out.flush()
                os.fsync(out.fileno())
            temp.chmod(file.path.stat().st_mode & 0o777)
            file.replace_by(temp)
        except ValueError as error:
            temp.unlink(missing_ok=True)
            raise UnusableError(
                f"{file.path} can't get new columns: {error}; nothing was changed. Mend the line, or name another file"
            ) from error
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


def _lines(rows: Any, quoting: Literal[0, 1] = csv.QUOTE_MINIMAL) -> bytes:
    out = io.StringIO(newline="")
    csv.writer(out, quoting=quoting).writerows(rows)
    return out.getvalue().encode("utf-8")


def _foreign(file: SharedFile, why: str) -> UnusableError:
    return UnusableError(
        f"{file.path} is no CSV file of the kind that is written here: {why}; nothing was changed. Name another file, or "
        "save this one as UTF-8 with commas"
    )


def _heading(columns: list[str]) -> bytes:
    """The heading. A name with a sign that separates columns elsewhere is quoted, so that nobody takes it for two."""
    several = any(sign in name for name in columns for sign in OTHER_DELIMITERS)
    return _lines([columns], csv.QUOTE_ALL if several else csv.QUOTE_MINIMAL)


def _check_text(file: SharedFile) -> bool:
    """Whether the file ends within a character. Raises ValueError when it is no UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for block in file.blocks(0, file.size()):
            decoder.decode(block)
    except UnicodeDecodeError:
        raise ValueError("it is no UTF-8") from None
    return bool(decoder.getstate()[0])


def _disarm(text: str) -> str:
    """Text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text
