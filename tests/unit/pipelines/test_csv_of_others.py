"""CSV files that other programs wrote: valid data is kept, byte by byte, or the file is refused as it is."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from netspy.pipelines.csv import CsvPipeline
from netspy.pipelines.errors import UnusableError, rows_fault, store_away
from netspy.pipelines.loader import load_pipelines
from netspy.pipelines.local.csv_records import columns_of, first_record, padded, pieces, records, tail_of
from netspy.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

UTF8_BOM = b"\xef\xbb\xbf"


def append(path: Path, *rows: dict[str, str]) -> None:
    """As a new run would add these rows to the file."""
    [pipeline] = load_pipelines([CsvPipeline(path)], Settings())
    for row in rows:
        pipeline.save_items(pipeline.settings.ITEM_DEFAULT_TABLE, [row])


def read(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        return list(csv.reader(file))


@pytest.mark.parametrize(
    "old",
    [
        b"a,b\r\n1,2\r\n3,4",
        b"a,b\n1,2\n3,4",
        b"a,b",
        UTF8_BOM + b"a,b",
        b"a,b\r\n1,2\r\n3,4\r",
        b'a,b\r\n1,"x\r\ny"',
        b"a,b\r\n1,",
        b"a,b\r\n,",
        b"a\r\n1\r\n2",
        "a,b\r\n1,2\r\nä,中".encode(),
        b"a,b,c\r\n1\r\n1,2",  # others leave out what is empty at the end of a row
        b"a,b\n1,2\n3,4,5",
    ],
)
def test_the_last_line_of_others_needs_no_line_break(tmp_path, old) -> None:
    """Case HB-13."""
    path = tmp_path / "t.csv"
    path.write_bytes(old)
    before = read(path)
    append(path, {"a": "new"})
    after = read(path)
    assert after[: len(before)] == before
    assert [row[0] for row in after[len(before) :]] == ["new"]
    assert path.read_bytes().startswith(old)
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.csv"]


@pytest.mark.parametrize(
    "old",
    [
        b'a,b\r\n1,5" pipe\r\n2,x\r\n3,y\r\n',
        b'a,size 5" b\r\n1,2\r\n',
        b'a,b\r\n1,5"\r\n2,6"\r\n',
        b'a,b\r\n1,5" x 3" x 2"\r\n2,"q ""q"", 5"" pipe"\r\n',
        b'a,b\r\n"1"2"3,x\r\n4,"y"z\r\n',
        b'a,b\r\n1, "not quoted\r\n2,y\r\n',
        UTF8_BOM + b'"a","b"\r\n"1","x\r\ny"\r\n2,5"\r\n',
        b'a,b\n1,5" pipe\n2,"x\ny"\n3,"7"',
    ],
)
@pytest.mark.parametrize("new", [{"a": "new"}, {"a": "new", "c": "wide"}])
def test_a_quote_counts_only_at_the_beginning_of_a_field(tmp_path, old, new) -> None:
    """Case HB-14: inch marks are no quotes, in rows as in the heading, when rows are added and when columns are."""
    path = tmp_path / "t.csv"
    path.write_bytes(old)
    before = read(path)
    append(path, new)
    added = len(read(path)[0]) - len(before[0])
    assert read(path)[1:-1] == [row + [""] * added for row in before[1:]]
    assert read(path)[0][: len(before[0])] == before[0]
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.csv"]


FOREIGN = {
    "semicolons": b"a;b\r\n1;2\r\n",
    "semicolons, heading only": b"a;b\r\n",
    "semicolons without a last line break": b"a;b\r\n1;2",
    "semicolons and a decimal comma": b"a;b\r\n1;2,5\r\n3;4\r\n",
    "semicolons and a comma in the heading": b"a;price, net;b\r\n1;2,50;x\r\n",
    "semicolons, and quotes with commas": b'a;"x, y";b\r\n1;"2,5";3\r\n4;5;"6;7"\r\n',
    "tabs": b"a\tb\r\n1\t2\r\n",
    "bars": b"a|b\n1|2\n",
    "another sign": b"a:b\n1:2\n",
    "a mark and semicolons": UTF8_BOM + b"a;b\r\n1;2\r\n",
    "UTF-16": "a,b\r\n1,2\r\n".encode("utf-16"),
    "UTF-16 with tabs": "a\tb\r\n1\t2\r\n".encode("utf-16"),
    "UTF-16 big-endian without a mark": "a,b\r\n1,2\r\n".encode("utf-16-be"),
    "UTF-16 little-endian without a mark": "a,b\r\n1,2\r\n".encode("utf-16-le"),
    "UTF-32": "a,b\r\n1,2\r\n".encode("utf-32"),
    "GBK": "名,b\r\n1,2\r\n".encode("gbk"),
    "GBK below an English heading": "a,b\r\n1,中文\r\n".encode("gbk"),
    "GBK, heading only, no line break": "a,名字".encode("gbk"),
    "windows-1252": "a,b\r\n1,Größe\r\n".encode("cp1252"),
    "Shift-JIS": "a,名前\r\n1,日本\r\n".encode("shift-jis"),
    "lone returns": b"a,b\r1,2\r3,4\r",
    "a lone return in the middle": b"a,b\r\n1,2\r3,4\r\n",
    "Excel's hint": b"sep=,\r\na,b\r\n1,2\r\n",
    "Excel's hint for semicolons": b"sep=;\na;b\n1;2\n",
    "a workbook": b"PK\x03\x04\x14\x00\x06\x00\x08\x00\xff\xfe\n",
}


@pytest.mark.parametrize("new", [{"a": "new", "b": "x"}, {"a": "new", "c": "wide"}])
@pytest.mark.parametrize("kind", FOREIGN)
def test_a_file_of_another_form_is_refused_and_stays_as_it_is(tmp_path, kind, new) -> None:
    """Case HB-15: at once, with a word on what is different; no byte is changed, nothing moved away."""
    path = tmp_path / "t.csv"
    path.write_bytes(FOREIGN[kind])
    with pytest.raises(
        UnusableError, match=r"t\.csv is no CSV file of the kind .* nothing was changed"
    ) as raised:
        append(path, new)
    assert path.read_bytes() == FOREIGN[kind]
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.csv"]
    assert rows_fault(raised.value)
    assert not store_away(raised.value)


@pytest.mark.parametrize(
    "old",
    [
        b"a,size (S;M;L)\r\n1,S\r\n",
        b"a,b|c\r\n",
        b'"a;b",c\r\n1;2,3\r\n',
        b'"a;b"\r\n1;2\r\n',
        b"full name\r\nJane Doe\r\n",
        b"a,b\r\n1;2;3,x|y\r\n",
    ],
)
def test_other_signs_in_a_file_with_commas_are_text(tmp_path, old) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(old)
    before = read(path)
    append(path, {before[0][0]: "new"})
    assert read(path)[:-1] == before


@pytest.mark.parametrize("columns", [["a;b"], ["a\tb"], ["x", "a;b|c"], ["sep=;"], ["a b", "sep=,"]])
def test_our_own_headings_with_such_signs_are_known_again(tmp_path, columns) -> None:
    path = tmp_path / "t.csv"
    for n in range(2):
        append(path, dict.fromkeys(columns, str(n)))
    assert read(path) == [columns, ["0"] * len(columns), ["1"] * len(columns)]


def test_old_rows_keep_their_line_breaks_and_quotes_when_columns_are_added(tmp_path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b'b,a\n"1",2\n3\r\n')
    append(path, {"c": "new"})
    assert path.read_bytes() == b'b,a,c\r\n"1",2,\n3,\r\n,,new\r\n'


def test_a_row_with_more_fields_than_names_is_not_moved_under_a_new_name(tmp_path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,b\r\n1,2,3\r\n")
    with pytest.raises(UnusableError, match="a line has 3 fields where the heading has 2"):
        append(path, {"c": "new"})
    assert path.read_bytes() == b"a,b\r\n1,2,3\r\n"
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.csv"]


def test_lone_returns_that_another_program_adds_while_we_run_are_refused(tmp_path) -> None:
    path = tmp_path / "t.csv"
    [pipeline] = load_pipelines([CsvPipeline(path)], Settings())
    pipeline.save_items("items", [{"a": "1"}])
    with path.open("ab") as file:
        file.write(b"2\r3\r4\r\n")
    before = path.read_bytes()
    with pytest.raises(UnusableError, match="return alone"):
        pipeline.save_items("items", [{"a": "5"}])
    assert path.read_bytes() == before


documents = st.text(st.sampled_from('",\nax ;'), max_size=40).map(lambda text: text.replace("\n", "\r\n"))


@limits(max_examples=300)
@given(documents, st.integers(1, 9))
def test_records_are_those_of_pythons_reader(text, size) -> None:
    data = text.encode()
    blocks = [data[i : i + size] for i in range(0, len(data), size)]
    found = list(records(blocks))
    assert b"".join(record for record, _ in found) == data
    expected = list(csv.reader(io.StringIO(text, newline="")))
    assert [columns_of(record) for record, _ in found] == expected
    assert [fields for record, fields in found if record.strip(b"\r\n")] == [
        len(row) for row in expected if row
    ]
    assert b"".join(piece for _, piece in pieces(blocks)) == data

    whole = [record for record, _ in found if record.endswith(b"\n")]
    if found and list(pieces(blocks))[-1][0] == "quoted":
        whole = [record for record, _ in found[:-1]]
    tail = tail_of(blocks, 0)
    assert tail.end == sum(map(len, whole))
    assert tail.fields == (found[-1][1] if len(whole) < len(found) else 0)
    assert first_record(blocks) == (len(whole[0]) if whole else 0)
    wide = b"".join(padded(blocks, b",", 99))
    if tail.in_quotes:
        return
    expected_wide = [[*row, ""] if row else ["", ""] for row in expected]
    assert list(csv.reader(io.StringIO(wide.decode(), newline=""))) == expected_wide
