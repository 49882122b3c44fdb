"""Cases of the storage area that are about files: STO-02 (csv), STO-06 (csv, jsonl, dead letters), STO-08."""

from __future__ import annotations

import asyncio
import csv
import json
import multiprocessing
import os
import threading
from typing import TYPE_CHECKING

import msgspec
import pytest
from kinds_of_values import ITEM

from netspy.messages.row import Row
from netspy.pipelines.csv import CsvPipeline
from netspy.pipelines.dead_letters.file import DeadLetterFile, DeadRow
from netspy.pipelines.delivery.writer import BatchWriter
from netspy.pipelines.jsonl import JsonlPipeline
from netspy.pipelines.loader import load_pipelines
from netspy.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

STO_08 = [
    {"a": "x,y", "b": 'q"q', "c": "l1\nl2\r\nl3"},
    {"a": "=1+1", "b": "007", "c": ""},
    {"a": "中文", "b": None, "c": " s "},
]


def read_back(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        return list(csv.DictReader(file))


def test_sto_02_a_csv_table_named_by_the_page_stays_inside_the_output_folder(settings, out) -> None:
    [pipeline] = load_pipelines([CsvPipeline], settings)
    pipeline.save_items("../../tmp/evil", [{"id": 10, "desc`) values (11, 'pwn') -- ": 1}])
    [file] = [p for p in out.parents[2].rglob("*") if p.is_file()]
    assert file.parent == out
    assert read_back(file) == [{"id": "10", "desc`) values (11, 'pwn') -- ": "1"}]


def test_sto_06_every_kind_of_value_in_csv_has_nested_values_as_json_and_none_empty(settings, out) -> None:
    [pipeline] = load_pipelines([CsvPipeline], settings)
    pipeline.save_items("t", [ITEM, {"id": 2}])
    first, second = read_back(out / "t.csv")
    assert json.loads(first["j"]) == ITEM["j"]
    assert json.loads(first["l"]) == ["x"]
    assert json.loads(first["s"]) == ["x"]
    assert first["none"] == ""
    assert first["t"] == "true"
    assert first["dec"] == "19.995"
    assert first["dt"] == "2026-01-01T08:00:00+08:00"
    assert first["iso"] == "2026-01-01T08:00:00Z"
    assert first["by"] == "//4="
    assert first["sur"] == "a\ufffd"
    assert first["nan"] == "nan"
    assert second["id"] == "2"


def test_sto_06_every_kind_of_value_in_json_lines_is_valid_json(settings, out) -> None:
    [pipeline] = load_pipelines([JsonlPipeline], settings)
    pipeline.save_items("t", [ITEM, {"id": 2}])
    text = (out / "t.jsonl").read_text("utf-8")
    assert "中" in text
    first, second = [json.loads(line) for line in text.splitlines()]
    assert first["j"] == ITEM["j"]
    assert (first["none"], first["t"], first["nan"], first["dec"]) == (None, True, None, "19.995")
    assert second == {"id": 2}


def test_sto_06_a_dead_letter_comes_back_with_the_same_values(settings) -> None:
    kept: list[dict] = []

    class Keep(JsonlPipeline):
        def save_items(self, table, items):
            kept.extend(items)
            return True

    dead = DeadLetterFile(settings.FAILED_ITEM_PATH)
    dead.append([DeadRow(Row("t", ITEM), "away", 0.0)])

    async def replay() -> None:
        writer = BatchWriter(load_pipelines([Keep], settings), settings, dead_letter=dead)
        await dead.replay(writer)
        await writer.close()

    asyncio.run(replay())
    [item] = kept
    assert repr(item) == repr(ITEM)


def write_in_threads(out: str, bom: bool, threads: int) -> None:
    [pipeline] = load_pipelines([CsvPipeline], Settings(CSV_OUTPUT_DIR=out, CSV_BOM=bom))
    others = [threading.Thread(target=pipeline.save_items, args=("t", STO_08)) for _ in range(threads)]
    for thread in others:
        thread.start()
    for thread in others:
        thread.join()
    os._exit(0)


@pytest.mark.parametrize("bom", [False, True], ids=["plain", "for-excel"])
def test_sto_08_two_runs_read_back_as_written_with_one_header_and_one_mark(settings, out, bom) -> None:
    for _ in range(2):
        [pipeline] = load_pipelines([CsvPipeline], msgspec.structs.replace(settings, CSV_BOM=bom))
        pipeline.save_items("t", STO_08)
    raw = (out / "t.csv").read_bytes()
    expected = [{k: "" if v is None else v for k, v in item.items()} for item in STO_08]
    assert read_back(out / "t.csv") == expected * 2
    assert raw.count(b"a,b,c\r\n") == 1
    assert raw.count(b"\xef\xbb\xbf") == raw.startswith(b"\xef\xbb\xbf") == bom
    assert b"\r\r\n" not in raw


def test_sto_08_eight_threads_in_two_processes_tear_no_row(out) -> None:
    context = multiprocessing.get_context("spawn")
    children = [context.Process(target=write_in_threads, args=(str(out), True, 4)) for _ in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join(100)
    assert [child.exitcode for child in children] == [0, 0]
    raw = (out / "t.csv").read_bytes()
    expected = [{k: "" if v is None else v for k, v in item.items()} for item in STO_08]
    found = read_back(out / "t.csv")
    assert len(found) == 24
    assert all(found.count(row) == 8 for row in expected)
    assert raw.count(b"\xef\xbb\xbf") == 1


def test_sto_08_formulas_of_a_page_are_disarmed_by_a_setting_in_cells_and_in_the_header(
    settings, out
) -> None:
    for _ in range(2):
        [pipeline] = load_pipelines(
            [CsvPipeline], msgspec.structs.replace(settings, CSV_ESCAPE_FORMULAS=True)
        )
        pipeline.save_items("t", [{"=HYPERLINK(1)": "=1+1", "n": -5, "b": "@SUM(1)"}])
    assert read_back(out / "t.csv") == [{"'=HYPERLINK(1)": "'=1+1", "n": "-5", "b": "'@SUM(1)"}] * 2
