from __future__ import annotations

import csv
import json
import multiprocessing
import os
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from kinds_of_values import ITEM, Unstorable, XPathText

from netspy.errors import ItemError
from netspy.pipelines.jsonl import JsonlPipeline
from netspy.pipelines.loader import load_pipelines
from netspy.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def pipeline(settings: Settings) -> JsonlPipeline:
    [made] = load_pipelines([JsonlPipeline], settings)
    assert isinstance(made, JsonlPipeline)
    return made


def lines(path: Path) -> list[object]:
    return [json.loads(line) for line in path.read_text("utf-8").split("\n")[:-1]]


def test_every_kind_of_value_becomes_valid_json_and_costs_no_other_row(pipeline, out) -> None:
    pipeline.save_items("t", [ITEM, {"id": 2}])

    assert lines(out / "t.jsonl") == [
        {
            "id": 1,
            "j": {"a": [1, {"b": "中"}]},
            "l": ["x"],
            "s": ["x"],
            "none": None,
            "t": True,
            "nan": None,
            "dec": "19.995",
            "dt": "2026-01-01T08:00:00+08:00",
            "iso": "2026-01-01T08:00:00Z",
            "by": "//4=",
            "sur": "a\ufffd",
            "big": 2**70,
        },
        {"id": 2},
    ]
    assert "中" in (out / "t.jsonl").read_text("utf-8")


def test_text_of_a_str_subclass_and_keys_that_are_no_text_are_kept(pipeline, out) -> None:
    pipeline.save_items("t", [{"a": XPathText("x"), "b": {(1, 2): "pair", None: 0}}])
    assert lines(out / "t.jsonl") == [{"a": "x", "b": {"(1, 2)": "pair", "None": 0}}]


def test_a_value_without_json_form_is_the_items_fault_and_writes_nothing(pipeline, out) -> None:
    with pytest.raises(ItemError, match="Unstorable"):
        pipeline.save_items("t", [{"a": 1}, {"a": Unstorable()}])
    itself: list[object] = []
    itself.append(itself)
    with pytest.raises(ItemError, match="contains itself"):
        pipeline.save_items("t", [{"a": itself}])
    assert not (out / "t.jsonl").exists()


def test_line_breaks_inside_text_stay_inside_the_line(pipeline, out) -> None:
    items = [{"a": "x\ny\r\n\u2028z"}, {"a": "\x00"}]
    pipeline.save_items("t", items)
    assert lines(out / "t.jsonl") == items


@pytest.mark.parametrize(
    "table",
    ["../../tmp/evil", "/etc/passwd", "..", ".", "", "a/b", "a\\b", "CON", "nul.txt", "t`; DROP TABLE t; -- ", "x" * 5000, "\ud83d", "中" * 200, "a\x00b", " a "],
)  # fmt: skip
def test_no_table_name_leaves_the_folder(pipeline, out, table) -> None:
    pipeline.save_items(table, [{"a": 1}])
    [file] = [p for p in out.parents[2].rglob("*") if p.is_file()]
    assert file.parent == out
    assert len(file.name.encode()) < 240
    assert file.name.split(".")[0].upper() not in {"CON", "NUL", ""}


def test_names_that_look_alike_after_cleaning_have_files_of_their_own(pipeline, out) -> None:
    for table in ("a/b", "a\\b", "a_b", "a?b", "x" * 200, "x" * 201):
        pipeline.save_items(table, [{"name": table}])
    files = list(out.iterdir())
    assert len(files) == 6
    assert (out / "a_b.jsonl") in files


def test_a_torn_last_line_is_cut_and_kept_beside(pipeline, out) -> None:
    pipeline.save_items("t", [{"a": 1}])
    with (out / "t.jsonl").open("ab") as file:
        file.write(b'{"a": 2, "tex')

    pipeline.save_items("t", [{"a": 3}])

    assert lines(out / "t.jsonl") == [{"a": 1}, {"a": 3}]
    assert (out / "t.jsonl.torn").read_bytes() == b'{"a": 2, "tex\n'


def test_a_torn_first_line_longer_than_a_block_is_cut(pipeline, out) -> None:
    out.mkdir(parents=True)
    (out / "t.jsonl").write_bytes(b'{"a": "' + b"x" * 200_000)
    pipeline.save_items("t", [{"a": 3}])
    assert lines(out / "t.jsonl") == [{"a": 3}]
    assert (out / "t.jsonl.torn").stat().st_size == 200_008


def test_a_whole_last_line_without_its_newline_is_kept(pipeline, out) -> None:
    out.mkdir(parents=True)
    (out / "t.jsonl").write_bytes(b'{"a":1}\n{"a":2}')
    pipeline.save_items("t", [{"a": 3}])
    assert lines(out / "t.jsonl") == [{"a": 1}, {"a": 2}, {"a": 3}]


def test_a_file_removed_between_batches_is_made_again(pipeline, out) -> None:
    pipeline.save_items("t", [{"a": 1}])
    (out / "t.jsonl").rename(out / "rotated")
    pipeline.save_items("t", [{"a": 2}])
    assert lines(out / "t.jsonl") == [{"a": 2}]
    assert lines(out / "rotated") == [{"a": 1}]


DISK_FULL = """
import resource, sys
from netspy.pipelines.loader import load_pipelines
from netspy.settings import Settings
kind, out = sys.argv[1:]
[pipeline] = load_pipelines([kind], Settings(JSONL_OUTPUT_DIR=out, CSV_OUTPUT_DIR=out, SQLITE_PATH=out + "/t.db"))
pipeline.open()
pipeline.save_items("t", [{"a": "first"}])
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
try:
    pipeline.save_items("t", [{"a": "x" * 30_000}])
except OSError as error:
    print("refused", error.errno)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
pipeline.save_items("t", [{"a": "x" * 30_000}])
pipeline.close()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit on a process' file size")
@pytest.mark.parametrize(
    ("kind", "name", "head"),
    [("jsonl.JsonlPipeline", "t.jsonl", b'{"a":"first"}\n'), ("csv.CsvPipeline", "t.csv", b"a\r\nfirst\r\n")],
)
def test_a_batch_that_hits_a_full_disk_half_way_is_not_doubled_by_its_retry(out, kind, name, head) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DISK_FULL, f"netspy.pipelines.{kind}", str(out)],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout.startswith("refused")
    content = (out / name).read_bytes()
    assert content.startswith(head)
    assert content.count(b"x") == 30_000
    assert not (out / f"{name}.torn").exists()


def append_many(kind: str, out: str, who: int, batches: int) -> None:
    settings = Settings(JSONL_OUTPUT_DIR=out, CSV_OUTPUT_DIR=out, SQLITE_PATH=f"{out}/t.db")
    [pipeline] = load_pipelines([kind], settings)
    pipeline.open()
    pipeline.describe("t", ("id",))
    for n in range(batches):
        # Each process brings columns of its own, at different times.
        rows = [{"id": f"{who}-{n}-{i}", "text": "a\nb" * 50, f"c{who}{n // 10}": n} for i in range(5)]
        pipeline.save_items("t", rows)
    pipeline.close()


def run_side_by_side(kind: str, out: Path) -> set[str]:
    """Four processes with two threads each write 20 batches; the ids that must be there."""
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=append_in_threads, args=(kind, str(out), who)) for who in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(100)
    assert [worker.exitcode for worker in workers] == [0] * 4
    return {
        f"{who * 10 + t}-{n}-{i}" for who in range(4) for t in range(2) for n in range(20) for i in range(5)
    }


def append_in_threads(kind: str, out: str, who: int) -> None:
    failed: list[BaseException] = []

    def run(number: int) -> None:
        try:
            append_many(kind, out, who * 10 + number, 20)
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=run, args=(t,)) for t in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os._exit(1 if failed else 0)


def test_processes_and_threads_share_a_file_without_tearing_a_line(out) -> None:
    expected = run_side_by_side("netspy.pipelines.jsonl.JsonlPipeline", out)
    ids = [row["id"] for row in lines(out / "t.jsonl")]
    assert len(ids) == len(expected)
    assert set(ids) == expected


CRASH = """
import itertools, sys
from netspy.pipelines.loader import load_pipelines
from netspy.settings import Settings
kind, out = sys.argv[1:]
[pipeline] = load_pipelines([kind], Settings(JSONL_OUTPUT_DIR=out, CSV_OUTPUT_DIR=out, SQLITE_PATH=out + "/t.db"))
pipeline.open()
pipeline.describe("t", ("id",))
for n in itertools.count():
    pipeline.save_items("t", [{"id": f"{n}-{i}", "text": "line\\n" * 40_000} for i in range(20)])
    print(n, flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
@pytest.mark.parametrize("kind", ["jsonl.JsonlPipeline", "csv.CsvPipeline", "sqlite.SqlitePipeline"])
def test_a_killed_process_loses_no_batch_it_reported_and_leaves_a_file_that_goes_on(out, kind) -> None:
    path = f"netspy.pipelines.{kind}"
    reported: set[str] = set()
    with subprocess.Popen(
        [sys.executable, "-c", CRASH, path, str(out)], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            reported |= {f"{line.strip()}-{i}" for i in range(20)}
            if line == "3\n":
                child.kill()  # it is writing the next 4 MB by now, or about to
    [pipeline] = load_pipelines(
        [path], Settings(JSONL_OUTPUT_DIR=str(out), CSV_OUTPUT_DIR=str(out), SQLITE_PATH=f"{out}/t.db")
    )
    pipeline.open()
    pipeline.save_items("t", [{"id": "after", "text": "x"}])
    pipeline.close()

    if kind.startswith("jsonl"):
        found = lines(out / "t.jsonl")
    elif kind.startswith("csv"):
        with (out / "t.csv").open(newline="", encoding="utf-8") as file:
            before = csv.field_size_limit(10**7)
            found = list(csv.DictReader(file))
            csv.field_size_limit(before)
    else:
        with closing(sqlite3.connect(out / "t.db")) as db:
            found = [{"id": i, "text": text} for i, text in db.execute("SELECT id, text FROM t")]
    ids = [row["id"] for row in found]
    assert len(ids) == len(set(ids))
    assert {*reported, "after"} <= set(ids)
    assert all(row["text"] == "line\n" * 40_000 for row in found if row["id"] != "after")


def test_the_summary_is_told_where_the_items_are(settings, out) -> None:
    made = load_pipelines(
        [
            f"netspy.pipelines.{p}"
            for p in ("jsonl.JsonlPipeline", "csv.CsvPipeline", "sqlite.SqlitePipeline")
        ],
        settings,
    )
    assert [p.where() for p in made] == [f"{out}/*.jsonl", f"{out}/*.csv", f"{out}/items.db"]
    for pipeline in made[:2]:
        pipeline.save_items("a", [{"x": 1}])
        pipeline.save_items("b", [{"x": 1}])
    assert [p.where() for p in made[:2]] == [f"{out}/a.{e}, {out}/b.{e}" for e in ("jsonl", "csv")]


def test_an_update_is_refused_in_words(pipeline) -> None:
    with pytest.raises(NotImplementedError, match="JsonlPipeline can't take UpdateItem"):
        pipeline.update_items("t", [{"id": 1}], ["id"])
