from __future__ import annotations

import datetime as dt
import itertools
import os
import subprocess
import sys
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import msgspec
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kinds_of_values import ITEM, Unstorable, XPathText

from netspy.errors import ItemError, PipelineError
from netspy.pipelines.arrow import segment as parquet_segment
from netspy.pipelines.arrow.types import NULL, Kind, kind_of, merge
from netspy.pipelines.dead_letters.file import DeadLetterFile
from netspy.pipelines.delivery.writer import BatchWriter
from netspy.pipelines.loader import load_pipelines
from netspy.pipelines.parquet import ParquetPipeline, schema_of
from netspy.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EAST = dt.timezone(dt.timedelta(hours=8))


@pytest.fixture
def settings(settings: Settings, out: Path) -> Settings:
    return msgspec.structs.replace(settings, PARQUET_OUTPUT_DIR=str(out))


def made(settings: Settings, kind: type = ParquetPipeline, **more: object) -> ParquetPipeline:
    [pipeline] = load_pipelines([kind], msgspec.structs.replace(settings, **more))
    pipeline.open()
    return pipeline


@pytest.fixture
def pipeline(settings: Settings) -> Iterator[ParquetPipeline]:
    opened = made(settings)
    yield opened
    opened.close()


def files(out: Path, table: str = "t") -> list[Path]:
    return sorted((out / table).glob("part-*.parquet"))


def read(out: Path, table: str = "t") -> list[dict[str, Any]]:
    return [row for file in files(out, table) for row in pq.read_table(file).to_pylist()]


def test_a_folder_is_a_table_of_typed_columns_that_any_reader_takes(pipeline, out) -> None:
    item = {
        "id": 1,
        "title": "中文 😀",
        "price": Decimal("19.90"),
        "rate": 0.5,
        "seen": True,
        "body": b"\xff\x00",
        "day": dt.date(2026, 1, 2),
        "at": dt.datetime(2026, 1, 1, 8, 0, 0, 1, tzinfo=EAST),
        "local": dt.datetime(2026, 1, 1, 8, 0),
        "clock": dt.time(8, 30, 0, 5),
        "tags": ["a", None, "b"],
        "attrs": {"a": [1, {"b": "中"}]},
        "none": None,
    }
    pipeline.save_items("t", [item, {"id": 2}])
    assert files(out) == []  # not finished yet, so not there
    pipeline.close()

    found = pyarrow.dataset.dataset(out / "t").to_table()
    assert {field.name: str(field.type) for field in found.schema} == {
        "id": "int64",
        "title": "string",
        "price": "decimal128(4, 2)",
        "rate": "double",
        "seen": "bool",
        "body": "binary",
        "day": "date32[day]",
        "at": "timestamp[us, tz=+08:00]",
        "local": "timestamp[us]",
        "clock": "time64[us]",
        "tags": "list<element: string>",
        "attrs": "string",
        "none": "null",
    }
    first, second = found.to_pylist()
    assert first == item | {"attrs": '{"a":[1,{"b":"中"}]}'}
    assert first["at"].utcoffset() == dt.timedelta(hours=8)
    assert second == dict.fromkeys(item) | {"id": 2}
    assert [p.name for p in (out / "t").iterdir()] == [files(out)[0].name]


def test_every_kind_of_value_of_the_cases_is_kept(pipeline, out) -> None:
    pipeline.save_items("t", [ITEM])
    pipeline.close()
    [row] = read(out)
    assert row.pop("nan") != row.pop("nan", 0)  # NaN
    assert row == {
        "id": 1,
        "j": '{"a":[1,{"b":"中"}]}',
        "l": ["x"],
        "s": ["x"],
        "none": None,
        "t": True,
        "dec": Decimal("19.995"),
        "dt": ITEM["dt"],
        "iso": "2026-01-01T08:00:00Z",
        "by": b"\xff\xfe",
        "sur": "a\ufffd",
        "big": Decimal(2**70),
    }


@pytest.mark.parametrize(
    ("values", "kind", "kept"),
    [
        ([1, 2.5], "double", [1.0, 2.5]),
        ([10**16, 2.5], "string", ["10000000000000000", "2.5"]),
        ([1, 2**63], "decimal128(19, 0)", [Decimal(1), Decimal(2**63)]),
        ([2**200, None], "decimal256(61, 0)", [Decimal(2**200), None]),
        ([10**80], "string", [str(10**80)]),
        ([Decimal("1.5"), Decimal("100"), 7], "decimal128(4, 1)", [Decimal("1.5"), Decimal(100), Decimal(7)]),
        ([Decimal("1E+3"), Decimal("0.001")], "decimal128(7, 3)", [Decimal(1000), Decimal("0.001")]),
        ([Decimal("NaN"), None], "string", ["NaN", None]),
        ([1, "x"], "string", ["1", "x"]),
        ([True, 1], "string", ["true", "1"]),
        ([True, "x", None], "string", ["true", "x", None]),
        ([b"\xff", "x"], "string", ["/w==", "x"]),
        ([dt.date(2026, 1, 2), dt.datetime(2026, 1, 2, 3)], "string", ["2026-01-02", "2026-01-02T03:00:00"]),
        (
            [dt.datetime(2026, 1, 1, tzinfo=EAST), dt.datetime(2026, 1, 1, tzinfo=dt.UTC)],
            "timestamp[us, tz=UTC]",
            [dt.datetime(2025, 12, 31, 16, tzinfo=dt.UTC), dt.datetime(2026, 1, 1, tzinfo=dt.UTC)],
        ),
        (
            [dt.datetime(2026, 1, 1, tzinfo=EAST), dt.datetime(2026, 1, 1)],
            "string",
            ["2026-01-01T00:00:00+08:00", "2026-01-01T00:00:00"],
        ),
        ([dt.time(1, tzinfo=dt.UTC)], "string", ["01:00:00+00:00"]),
        ([[1], [2.5]], "list<element: double>", [[1.0], [2.5]]),
        ([[1], ["x"]], "string", ["[1]", '["x"]']),
        ([[1, "x"], ["x"]], "string", ['[1,"x"]', '["x"]']),
        ([[], None], "list<element: string>", [[], None]),
        ([[], [1]], "list<element: int64>", [[], [1]]),
        ([[1], 1], "string", ["[1]", "1"]),
        ([{"a": 1}, ["x"]], "string", ['{"a":1}', '["x"]']),
        ([[b"x"]], "string", ['["eA=="]']),
        ([XPathText("x")], "string", ["x"]),
        ([float("inf"), float("-inf")], "double", [float("inf"), float("-inf")]),
        ([dt.datetime(2026, 7, 1, tzinfo=ZoneInfo("Asia/Shanghai"))], "timestamp[us, tz=Asia/Shanghai]", [dt.datetime(2026, 7, 1, tzinfo=ZoneInfo("Asia/Shanghai"))]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("batches", ["one batch", "a batch each"])
def test_a_column_has_the_narrowest_type_that_keeps_every_value(
    pipeline, out, values, kind, kept, batches
) -> None:
    rows = [{"n": n, "v": value} for n, value in enumerate(values)]
    for batch in [rows] if batches == "one batch" else [[row] for row in rows]:
        pipeline.save_items("t", batch)
    pipeline.close()
    found = pq.read_table(files(out)[0])
    assert str(found.schema.field("v").type) == kind
    assert [row["v"] for row in found.to_pylist()] == kept


def test_columns_come_late_and_stay_away_and_only_the_file_of_a_wider_value_is_wider(settings, out) -> None:
    for row in ({"a": 1}, {"a": 2, "b": "x"}, {"b": "y"}, {"a": 2.5}, {"a": 3}, {"a": "text"}, {"a": 4}):
        pipeline = made(settings)
        pipeline.save_items("t", [row])
        pipeline.close()
    types = [{field.name: str(field.type) for field in pq.read_schema(file)} for file in files(out)]
    assert types == [
        {"a": "int64"},
        {"a": "int64", "b": "string"},
        {"b": "string"},
        # The type of the newest file that has the column; a file without it doesn't remember.
        {"a": "double"},
        {"a": "double"},
        {"a": "string"},
        {"a": "string"},
    ]
    assert [row.get("a") for row in read(out)] == [1, 2, None, 2.5, 3.0, "text", "4"]


def test_a_column_that_was_only_none_gets_its_type_later(pipeline, out) -> None:
    pipeline.save_items("t", [{"a": None}])
    pipeline.save_items("t", [{"a": 5}])
    pipeline.close()
    assert str(pq.read_schema(files(out)[0]).field("a").type) == "int64"
    assert [row["a"] for row in read(out)] == [None, 5]


def test_files_whose_types_differ_are_read_as_one_table(settings, out) -> None:
    rows = [
        {"n": None, "price": 1, "odd": 7},
        {"n": 5, "price": 0.5, "late": "x"},
        {"n": 6, "price": Decimal("2.50"), "odd": "seven"},
    ]
    for row in rows:  # a file for each
        made = ParquetPipeline()
        made.settings = settings
        made.save_items("t", [row])
        made.close()
    found = pa.dataset.dataset(out / "t", schema=schema_of(out / "t")).to_table().to_pylist()
    assert found == [
        {"n": None, "price": "1", "odd": "7", "late": None},
        {"n": 5, "price": "0.5", "odd": None, "late": "x"},
        {"n": 6, "price": "2.50", "odd": "seven", "late": None},
    ]
    with pytest.raises(FileNotFoundError, match="no finished Parquet file"):
        schema_of(out / "nothing")


def test_mixed_types_are_said_once(settings, out) -> None:
    from loguru import logger

    lines: list[str] = []
    number = logger.add(lambda message: lines.append(str(message)), level="WARNING")
    try:
        pipeline = made(settings)
        for value in (1, "x", 2, "y"):
            pipeline.save_items("t", [{"v": value}])
        pipeline.close()
    finally:
        logger.remove(number)
    assert len([line for line in lines if "column 'v' has values of different types" in line]) == 1


class Declared(ParquetPipeline):
    schemas = {
        "t": pa.schema(
            [
                ("price", pa.decimal128(8, 2)),
                ("at", pa.timestamp("ms", tz="UTC")),
                ("small", pa.int8()),
                ("point", pa.struct([("x", pa.float64()), ("y", pa.float64())])),
            ]
        )
    }


def test_declared_types_are_kept_and_a_value_that_does_not_fit_is_the_rows_fault(settings, out) -> None:
    pipeline = made(settings, Declared)
    good = {
        "price": Decimal("9.50"),
        "at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        "small": 7,
        "point": {"x": 1, "y": 2},
    }
    pipeline.save_items("t", [good, {"more": "x"}])
    for bad in (
        {"price": Decimal("1.234")},
        {"small": 300},
        {"small": "x"},
        {"at": "yesterday"},
        {"price": Unstorable()},
    ):
        with pytest.raises(ItemError, match="is declared as"):
            pipeline.save_items("t", [good, bad])
    pipeline.close()
    found = pq.read_table(files(out)[0])
    assert found.schema.names == ["price", "at", "small", "point", "more"]
    assert str(found.schema.field("price").type) == "decimal128(8, 2)"
    assert found.num_rows == 2
    assert found.to_pylist()[0] == good | {"point": {"x": 1.0, "y": 2.0}, "more": None}


def test_rows_kept_before_a_type_was_declared_lose_nothing(settings, out) -> None:
    crashed = made(settings)
    crashed.save_items("t", [{"price": "about 9", "small": 1}])
    crashed._open["t"][0].close()  # as a killed process leaves it
    made(settings, Declared).close()
    [row] = read(out)
    assert row["price"] == "about 9"
    assert row["small"] == "1"
    assert row["at"] is None


def test_an_object_is_the_items_fault_and_writes_nothing(pipeline, out) -> None:
    with pytest.raises(ItemError, match="Unstorable"):
        pipeline.save_items("t", [{"a": 1}, {"a": Unstorable()}])
    with pytest.raises(ItemError, match="has no fields"):
        pipeline.save_items("t", [{}])
    itself: list[Any] = []
    itself.append(itself)
    with pytest.raises(ItemError):
        pipeline.save_items("t", [{"a": itself}])
    pipeline.save_items("t", [{"a": 2}])
    pipeline.close()
    assert read(out) == [{"a": 2}]


def test_files_are_finished_at_their_number_of_rows_or_bytes_or_age(settings, out) -> None:
    pipeline = made(settings, PARQUET_FILE_ROWS=10)
    for n in range(25):
        pipeline.save_items("rows", [{"n": n}])
    assert [pq.read_metadata(f).num_rows for f in files(out, "rows")] == [10, 10]
    pipeline.close()
    assert [row["n"] for row in read(out, "rows")] == list(range(25))

    pipeline = made(settings, PARQUET_FILE_BYTES=20_000)
    for n in range(10):
        pipeline.save_items("bytes", [{"n": n, "x": os.urandom(4000).hex()}])
    assert len(files(out, "bytes")) >= 3
    pipeline.close()
    assert [row["n"] for row in read(out, "bytes")] == list(range(10))

    pipeline = made(settings, PARQUET_FILE_AGE=1e-6)
    pipeline.save_items("age", [{"n": 1}])
    assert len(files(out, "age")) == 1
    pipeline.close()


def test_what_a_killed_process_left_is_a_file_after_the_next_start(settings, out) -> None:
    code = """
import itertools, sys
from netspy.pipelines.dead_letters.file import DeadLetterFile
from netspy.pipelines.loader import load_pipelines
from netspy.settings import Settings
[p] = load_pipelines(["netspy.pipelines.parquet.ParquetPipeline"], Settings(PARQUET_OUTPUT_DIR=sys.argv[1], PARQUET_FILE_ROWS=70))
p.open()
for n in itertools.count():
    p.save_items("t", [{"n": n, "i": i, "x": "y" * 20000} for i in range(20)])
    print(n, flush=True)
"""
    reported = -1
    with subprocess.Popen([sys.executable, "-c", code, str(out)], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            reported = int(line)
            if reported == 9:
                child.kill()
    made(settings).close()
    rows = read(out)
    batches = {row["n"] for row in rows}
    assert set(range(reported + 1)) <= batches
    assert len(rows) == len({(row["n"], row["i"]) for row in rows}) == 20 * len(batches)
    assert [p for p in (out / "t").iterdir() if p.name.startswith("_") and not p.name.endswith(".torn")] == []


async def test_what_a_killed_process_left_is_a_file_after_a_run_without_rows(settings, out) -> None:
    crashed = made(settings)
    crashed.save_items("t", [{"n": 1}])
    crashed._open["t"][0].close()
    assert list((out / "t").glob("part-*.parquet")) == []
    settings = msgspec.structs.replace(settings, FAILED_ITEM_PATH=str(out / "failed.jsonl"))
    letters = DeadLetterFile(settings.FAILED_ITEM_PATH)
    writer = BatchWriter(load_pipelines([ParquetPipeline], settings), settings, dead_letter=letters)
    await writer.close()
    assert read(out) == [{"n": 1}]


@pytest.mark.parametrize("keep", [1, 7, -1, -40])
def test_a_batch_torn_in_the_log_is_cut_off_whole(settings, out, keep) -> None:
    crashed = made(settings)
    crashed.save_items("t", [{"n": 1}, {"n": 2}])
    segment = crashed._open["t"][0]
    whole = segment.size
    crashed.save_items("t", [{"n": 3, "x": "y" * 100}, {"n": 4}])
    size = segment.size
    segment.close()
    os.truncate(parquet_segment.log_of(segment.target), whole + keep if keep > 0 else size + keep)
    made(settings).close()
    assert [row["n"] for row in read(out)] == [1, 2]


@pytest.mark.parametrize("moment", ["before the renaming", "before the removal"])
def test_a_crash_while_the_file_is_made_neither_loses_nor_doubles_a_row(
    settings, out, monkeypatch, moment
) -> None:
    from netspy.pipelines.local.shared_file import SharedFile

    class Killed(BaseException):
        pass

    def stop(*_: object) -> None:
        raise Killed

    crashed = made(settings)
    crashed.save_items("t", [{"n": n} for n in range(5)])
    segment = crashed._open["t"][0]
    with monkeypatch.context() as patched:
        if moment == "before the removal":
            patched.setattr(SharedFile, "remove", stop)
        else:
            patched.setattr(parquet_segment.os, "fsync", stop)
        with pytest.raises(Killed):
            crashed.close()
    segment.close()
    made(settings).close()
    assert [row["n"] for row in read(out)] == list(range(5))
    assert len(list((out / "t").iterdir())) == 1


def test_a_log_whose_process_lives_is_left_alone(settings, out) -> None:
    alive = made(settings)
    alive.save_items("t", [{"n": 1}])
    made(settings).close()
    assert files(out) == []
    alive.save_items("t", [{"n": 2}])
    alive.close()
    assert [row["n"] for row in read(out)] == [1, 2]


def test_a_file_that_can_not_be_finished_costs_no_row_and_is_finished_later(
    settings, out, monkeypatch
) -> None:
    pipeline = made(settings, PARQUET_FILE_ROWS=2)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(parquet_segment, "_make", full)
        assert pipeline.save_items("t", [{"n": 1}, {"n": 2}]) is True
        assert files(out) == []
    pipeline.save_items("t", [{"n": 3}, {"n": 4}])
    assert sorted(row["n"] for row in read(out)) == [1, 2, 3, 4]
    pipeline.save_items("t", [{"n": 5}])
    monkeypatch.setattr(parquet_segment, "_make", full)
    with pytest.raises(PipelineError, match="the rows are safe"):
        pipeline.close()
    monkeypatch.undo()
    made(settings).close()
    assert sorted(row["n"] for row in read(out)) == [1, 2, 3, 4, 5]


def test_a_log_that_is_no_log_does_not_keep_a_crawl_from_starting(settings, out) -> None:
    (out / "t").mkdir(parents=True)
    (out / "t" / "_part-1.rows").write_bytes(b"\0\0\0\4\0\0\0\0nope")
    pipeline = made(settings)
    pipeline.save_items("t", [{"n": 1}])
    pipeline.close()
    assert read(out) == [{"n": 1}]


@pytest.mark.parametrize("table", ["../../evil", "/etc/x", "CON", "a\0b", "t; drop"])
def test_no_table_name_leaves_the_folder(pipeline, out, table) -> None:
    pipeline.save_items(table, [{"../../x": 1}])
    pipeline.close()
    [file] = [p for p in out.parents[2].rglob("*") if p.is_file()]
    assert file.parent.parent == out


def test_two_processes_at_a_time_have_files_of_their_own(settings, out) -> None:
    one, two = made(settings), made(settings)
    for n in range(5):
        one.save_items("t", [{"n": n}])
        two.save_items("t", [{"n": n + 10}])
    one.close()
    two.close()
    assert len(files(out)) == 2
    assert sorted(row["n"] for row in read(out)) == [*range(5), *range(10, 15)]


def test_an_update_is_refused_in_words(pipeline) -> None:
    with pytest.raises(NotImplementedError, match="ParquetPipeline can't take UpdateItem"):
        pipeline.update_items("t", [{"id": 1}], ["id"])


def test_the_summary_is_told_where_the_items_are(pipeline, out) -> None:
    assert pipeline.where() == str(out / "*" / "part-*.parquet")
    pipeline.save_items("t", [{"n": 1}])
    assert pipeline.where() == str(out / "t")


KINDS = [
    NULL, *map(kind_of, (True, 1, 2.5, "x", b"x", dt.date(2026, 1, 1), dt.time(1), Decimal("1.5"), 2**70, 10**17)),
    *map(kind_of, (dt.datetime(2026, 1, 1), dt.datetime(2026, 1, 1, tzinfo=EAST), dt.datetime(2026, 1, 1, tzinfo=dt.UTC))),
    *map(kind_of, ([], [1], [2.5], ["x"], [True])),
]  # fmt: skip


@given(st.lists(st.sampled_from(KINDS), min_size=2, max_size=4))
def test_the_type_of_a_column_does_not_depend_on_the_order_of_its_values(kinds: list[Kind]) -> None:
    def joined(order: tuple[Kind, ...]) -> Kind:
        found = NULL
        for kind in order:
            found = merge(found, kind)
        return found

    assert len({joined(order).name for order in itertools.permutations(kinds)}) == 1
