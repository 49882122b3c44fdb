"""JSON lines that other programs wrote: valid rows are kept, another form is refused as it is."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from netspy.messages.row import DeadRow, Row
from netspy.pipelines.dead_letters.file import DeadLetterFile
from netspy.pipelines.errors import UnusableError, rows_fault
from netspy.pipelines.jsonl import JsonlPipeline
from netspy.pipelines.loader import load_pipelines
from netspy.pipelines.local.json_lines import is_torn
from netspy.pipelines.values import json_bytes
from netspy.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path


def append(path: Path, row: dict[str, Any]) -> None:
    """As a new run would add this row to the file."""
    [pipeline] = load_pipelines([JsonlPipeline(path)], Settings())
    pipeline.save_items(pipeline.settings.ITEM_DEFAULT_TABLE, [row])


FOREIGN = {
    "UTF-16": '{"a": 1}\n{"a": 2}\n'.encode("utf-16"),
    "UTF-16 without a mark": '{"a": 1}\n{"a": 2}\n'.encode("utf-16-le"),
    "GBK": '{"a": "中文"}\n{"a": 2}\n'.encode("gbk"),
    "GBK in a single line without a line break": '{"a": "中文"}'.encode("gbk"),
    "windows-1252 in the last line": '{"a": 1}\n{"a": "Größe"}'.encode("cp1252"),
    "an array": b'[\n{"a": 1},\n{"a": 2}\n]',
    "an array in one line": b'[{"a": 1}, {"a": 2}]\n',
    "an array in one line without a line break": b'[{"a": 1}]',
    "indented": b'{\n  "a": 1\n}\n',
    "objects without line breaks": b'{"a": 1}{"a": 2}',
    "CSV": b"a,b\n1,2\n",
    "text": b"hello",
}


LAST_LINES = {kind for kind in FOREIGN if "last line" in kind or ("without" in kind and "UTF-16" not in kind)}
"""A compressed member is whole by its checksum, whatever its last line is."""


@pytest.mark.parametrize(
    ("kind", "suffix"),
    [
        (kind, suffix)
        for kind in FOREIGN
        for suffix in ["", ".gz", ".zst"]
        if not suffix or kind not in LAST_LINES
    ],
)
def test_a_file_of_another_form_is_refused_and_stays_as_it_is(tmp_path, kind, suffix) -> None:
    """As case HB-15, for JSON lines."""
    data = FOREIGN[kind]
    path = tmp_path / f"t.jsonl{suffix}"
    packed = {"": data, ".gz": gzip.compress(data), ".zst": zstandard.ZstdCompressor().compress(data)}[suffix]
    path.write_bytes(packed)
    with pytest.raises(UnusableError, match="nothing was changed") as raised:
        append(path, {"a": "new"})
    assert rows_fault(raised.value)
    assert path.read_bytes() == packed
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
@pytest.mark.parametrize(
    "data", [b'{"a": 1}\n', b'{"a": 1}', b"PK\x03\x04", b"\x1f\x8b\x08\x00junk after it"]
)
def test_a_file_that_is_not_compressed_as_its_name_says_is_refused(tmp_path, suffix, data) -> None:
    path = tmp_path / f"t.jsonl{suffix}"
    if suffix == ".gz" and data[0] == 0x1F:
        data = gzip.compress(b'{"a": 1}\n') + b"junk after it"
    path.write_bytes(data)
    with pytest.raises(UnusableError):
        append(path, {"a": "new"})
    assert path.read_bytes() == data


@pytest.mark.parametrize(
    "old",
    [
        b'{"a": 1}\n{"a": 2}',
        b'{"a": 1}\r\n{"a": 2}\r\n',
        b'\xef\xbb\xbf{"a": 1}\n',
        b'\xef\xbb\xbf{"a": 1}',
        b'\n\n{"a": 1}\n',
        b'{"a": 1}\n[1, 2]',
        b'{"a": 1}\n\n',
        b"\n",
    ],
)
def test_valid_lines_of_others_stay(tmp_path, old) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(old)
    append(path, {"a": "new"})
    assert path.read_bytes().startswith(old)
    found = [json.loads(line) for line in path.read_text(encoding="utf-8-sig").split("\n") if line.strip()]
    expected = [json.loads(line) for line in old.decode("utf-8-sig").split("\n") if line.strip()]
    assert found == [*expected, {"a": "new"}]
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.jsonl"]


def test_members_that_others_put_together_are_one_file(tmp_path) -> None:
    path = tmp_path / "t.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"a": 1}\n') + gzip.compress(b'{"a": 2}') + b"\0" * 512)
    append(path, {"a": "new"})
    assert [json.loads(line)["a"] for line in gzip.decompress(path.read_bytes()).splitlines()] == [
        1,
        2,
        "new",
    ]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab"), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text("ab中"), json_values, min_size=1), st.data())
def test_every_beginning_of_a_row_is_torn_and_the_whole_row_is_not(row, data) -> None:
    line = json_bytes(row)
    assert not is_torn(line)
    assert is_torn(line[: data.draw(st.integers(1, len(line) - 1))])


def test_a_dead_letter_that_a_hand_left_without_a_line_break_is_not_lost(tmp_path) -> None:
    letters = DeadLetterFile(tmp_path / "failed.jsonl")
    letters.append([DeadRow(Row("books", {"a": 1}), "why", 1.0)])
    letters.path.write_bytes(letters.path.read_bytes().rstrip())
    letters.append([DeadRow(Row("books", {"a": 2}), "why", 1.0)])
    assert [dead.row.data["a"] for dead in letters.read()] == [1, 2]
