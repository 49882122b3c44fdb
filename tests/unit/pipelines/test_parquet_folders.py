"""A folder of Parquet files is one table by `schema_of`, whatever types came in which order."""

from __future__ import annotations

import datetime as dt
import itertools
import shutil
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from netspy.pipelines.arrow.folder import make_alike, parts_of
from netspy.pipelines.arrow.types import Kind
from netspy.pipelines.loader import load_pipelines
from netspy.pipelines.parquet import ParquetPipeline, schema_of
from netspy.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

EAST = dt.timezone(dt.timedelta(hours=8))
VALUES: dict[str, Any] = {
    "none": None, "bool": True, "int": 7, "int of 17 digits": 12345678901234567, "least int": -(2**63), "uint64": 2**64 - 1,
    "float": 0.5, "whole float": 1.0, "decimal": Decimal("1.50"),
    "small decimal": Decimal("0.0000001"), "wide decimal": 10**60 + Decimal("0.5"), "text": "x",
    "bytes": b"\xff", "date": dt.date(2026, 1, 1), "time": dt.time(8, 0, 1),
    "moment": dt.datetime(2026, 1, 1, 8), "in UTC": dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    "in the east": dt.datetime(2026, 1, 1, tzinfo=EAST), "in Berlin": dt.datetime(2026, 7, 1, tzinfo=ZoneInfo("Europe/Berlin")),
    "empty list": [], "list of None": [None], "ints": [38, 39], "large ints": [12345678901234567],
    "floats": [0.5], "texts": ["a"], "bools": [True], "lists": [[1]],
    "dict": {"a": [1]},
}  # fmt: skip


def crawl(folder: Path, *rows: dict[str, Any]) -> None:
    """One run, which leaves one file."""
    [pipeline] = load_pipelines([ParquetPipeline], Settings(PARQUET_OUTPUT_DIR=str(folder)))
    pipeline.open()
    pipeline.save_items("t", rows)
    pipeline.close()


def read(folder: Path) -> list[dict[str, Any]]:
    table = ds.dataset(folder / "t", schema=schema_of(folder / "t")).to_table()
    return sorted(table.to_pylist(), key=lambda row: row["id"])


def meant(value: Any) -> Any:
    """The value, however Arrow or we write it as text: `1` and `1.0`, a moment with a blank or a T."""
    if not isinstance(value, str):
        return value
    try:
        return Decimal(value)
    except InvalidOperation:
        pass
    for form in (dt.datetime, dt.time):
        try:
            return form.fromisoformat(value)
        except ValueError:
            pass
    return value


def test_every_pair_of_types_in_both_orders_over_three_files(tmp_path) -> None:
    """Cases HB-11 and HB-12: each pair is a column, and reads as if all of its values had come in one file."""
    pairs = list(itertools.product(VALUES, VALUES))
    rows = [
        {"id": n, **{f"{first}, then {then}": VALUES[(first, then, first)[n]] for first, then in pairs}}
        for n in range(3)
    ]
    for row in rows:
        crawl(tmp_path / "apart", row)
    crawl(tmp_path / "at once", *rows)
    assert len(parts_of(tmp_path / "apart" / "t")) == 3
    apart, at_once = read(tmp_path / "apart"), read(tmp_path / "at once")
    different = {
        name: ([row[name] for row in apart], [row[name] for row in at_once])
        for name in at_once[0]
        if [meant(row[name]) for row in apart] != [meant(row[name]) for row in at_once]
    }
    assert different == {}


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([[], [38, 39]], pa.list_(pa.int64())),
        ([[38], []], pa.list_(pa.int64())),
        ([[], [], [0.5]], pa.list_(pa.float64())),
        ([[None], [True]], pa.list_(pa.bool_())),
        ([[], []], pa.list_(pa.string())),
        ([[], ["a"], [1]], pa.string()),
        ([12345678901234567, 0.5], pa.string()),
        ([123456789012345, 0.5], pa.float64()),
        ([0.5, 12345678901234567], pa.string()),
        ([[12345678901234567], [0.5]], pa.string()),
        ([5, Decimal("1.5")], pa.decimal128(20, 1)),
        ([b"\xff", "x"], pa.string()),
    ],
)
def test_the_type_of_all_files_is_that_of_their_values(tmp_path, values, wanted) -> None:
    """Cases HB-11 and HB-12: an empty list asks for no type, and the digits of earlier numbers are known."""
    for n, value in enumerate(values):
        crawl(tmp_path, {"id": n, "v": value})
    found = read(tmp_path)
    assert schema_of(tmp_path / "t").field("v").type.equals(wanted)
    assert len(found) == len(values)
    if not pa.types.is_string(wanted):
        assert [row["v"] for row in found] == values


FOREIGN = {
    "int8": pa.array([1], pa.int8()),
    "uint64": pa.array([2**64 - 1], pa.uint64()),
    "small uint64": pa.array([1], pa.uint64()),
    "float32": pa.array([0.5], pa.float32()),
    "large text": pa.array(["a"], pa.large_string()),
    "dictionary": pa.array(["a"]).dictionary_encode(),
    "date64": pa.array([dt.date(2026, 1, 1)], pa.date64()),
    "seconds": pa.array([dt.datetime(2026, 1, 1)], pa.timestamp("s")),
    "nanoseconds": pa.array([1], pa.timestamp("ns")),
    "struct": pa.array([{"a": 1}]),
    "struct of two": pa.array([{"a": 1, "b": "x"}]),
    "map": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
    "large list": pa.array([[1]], pa.large_list(pa.int64())),
    "list of uint64": pa.array([[2**64 - 1]], pa.list_(pa.uint64())),
    "list of structs": pa.array([[{"a": 1}]]),
    "duration": pa.array([dt.timedelta(1)]),
    "fixed bytes": pa.array([b"ab"], pa.binary(2)),
}


def test_files_with_types_of_others_and_ours_are_one_table(tmp_path) -> None:
    """Types that were declared, or that another program wrote there: each pair is a column."""
    arrays = {**FOREIGN, "ours": pa.array([7]), "our list": pa.array([[7]]), "our text": pa.array(["x"])}
    pairs = list(itertools.product(arrays, arrays))
    for n in range(3):
        columns = {f"{first}, then {then}": arrays[(first, then, first)[n]] for first, then in pairs}
        pq.write_table(pa.table({"id": pa.array([n]), **columns}), tmp_path / f"part-{n}.parquet")
    make_alike(tmp_path, lambda message: None)
    table = ds.dataset(tmp_path, schema=schema_of(tmp_path)).to_table()
    assert table.num_rows == 3
    assert [name for name in table.column_names if table.column(name).null_count] == []
    assert not list(tmp_path.glob("_*"))


def test_a_struct_after_text_is_its_json(tmp_path) -> None:
    crawl(tmp_path, {"id": 0, "v": {"a": 1}})
    pq.write_table(pa.table({"id": [1], "v": [{"a": 2}]}), tmp_path / "t" / "part-9.parquet")
    crawl(tmp_path, {"id": 2, "v": "x"})
    assert [row["v"] for row in read(tmp_path)] == ['{"a":1}', '{"a":2}', "x"]


def test_a_file_is_written_again_only_where_arrow_can_not_cast_and_that_is_said(tmp_path, said) -> None:
    crawl(tmp_path, {"id": 0, "price": 1.5, "tags": ["a"]})
    [old] = (tmp_path / "t").iterdir()
    inode = old.stat().st_ino
    crawl(tmp_path, {"id": 1, "price": "N/A", "tags": ["b"]})
    assert old.stat().st_ino == inode
    assert [row["price"] for row in read(tmp_path)] == ["1.5", "N/A"]
    crawl(tmp_path, {"id": 2, "price": "N/A", "tags": "c"})
    assert old.stat().st_ino != inode
    assert [row["tags"] for row in read(tmp_path)] == ['["a"]', '["b"]', "c"]
    assert sum("is written again with text in 'tags'" in line for line in said) == 2
    assert pq.read_schema(old).field("price").type == pa.float64()


def test_what_a_crash_between_two_files_left_unlike_is_made_alike_at_the_next_start(tmp_path) -> None:
    crawl(tmp_path, {"id": 0, "v": [1]})
    pq.write_table(pa.table({"id": [1], "v": ["x"]}), tmp_path / "t" / "part-9.parquet")
    with pytest.raises(pa.ArrowNotImplementedError):
        read(tmp_path)
    crawl(tmp_path, {"id": 2, "v": "y"})
    assert [row["v"] for row in read(tmp_path)] == ["[1]", "x", "y"]


def test_what_is_no_parquet_is_left_out(tmp_path) -> None:
    crawl(tmp_path, {"id": 0, "v": [1]})
    (tmp_path / "t" / "part-0.parquet").write_bytes(b"PAR1 torn")
    [part] = parts_of(tmp_path / "t")
    assert part.kinds == {"id": Kind("int", 1), "v": Kind("list", 1, inner="int")}


def test_a_folder_that_a_cleaner_removed_is_made_again_and_its_rows_are_in_it(tmp_path) -> None:
    """As case HB-17: those that were in the log, those that come later, and those of a run without further rows."""
    [pipeline] = load_pipelines([ParquetPipeline], Settings(PARQUET_OUTPUT_DIR=str(tmp_path)))
    pipeline.open()
    pipeline.save_items("t", [{"id": 0}])
    shutil.rmtree(tmp_path / "t")
    pipeline.save_items("t", [{"id": 1}])
    assert [row["id"] for row in read(tmp_path)] == [0]
    pipeline.save_items("t", [{"id": 2}])
    shutil.rmtree(tmp_path / "t")
    pipeline.close()
    assert [row["id"] for row in read(tmp_path)] == [1, 2]
