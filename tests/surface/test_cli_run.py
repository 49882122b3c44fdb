"""`netspy run`: where items go, several processes, take-over, and what is wrong told in one line."""

import csv
import json
import os
import signal
import sqlite3
import subprocess
import sys

import pytest
from cli_rig import NETSPY, SPIDER, Rig, one_line, until

from netspy.testing.children import wait_until
from netspy.testing.runner import summary_of
from netspy.testing.servers import free_port

TWO_TABLES = """
import os
import netspy as mw


class Book(mw.Item):
    pass


class Author(mw.Item):
    __table_name__ = "writers"


class Shop(mw.AirSpider):
    __custom_setting__ = dict(PROGRESS="off", CONCURRENT_REQUESTS_PER_DOMAIN=0)
    start_urls = [f"{os.environ['SITE']}/p/{n}" for n in range(3)]

    def parse(self, request, response):
        yield Book(url=request.url, title="Größe 书 😀")
        yield Author(name=request.url)
        yield {"plain": request.url}
"""
ONE_TABLE = TWO_TABLES.replace("        yield Author(name=request.url)\n", "").replace(
    'class Author(mw.Item):\n    __table_name__ = "writers"\n', ""
)


@pytest.fixture
def shop(pages, tmp_path):
    """AirSpiders: `two.py` yields two kinds of items and dicts, `one.py` one kind and dicts."""
    (tmp_path / "two.py").write_text(TWO_TABLES)
    (tmp_path / "one.py").write_text(ONE_TABLE)
    return Rig(tmp_path, pages.url(""))


def written(rig):
    return sorted(p.name for p in rig.folder.iterdir() if p.suffix in {".jsonl", ".csv", ".db"})


def only_the_summary(result):
    """Nothing is on standard output but the summary: the console pipeline is replaced."""
    assert result.stdout.count("\n") == 1
    return result.summary


def test_the_only_item_class_goes_to_the_named_file_and_dicts_beside_it(shop):
    summary = only_the_summary(shop("run", "one.py", "-o", "out.jsonl").check())
    assert written(shop) == ["out.items.jsonl", "out.jsonl"]
    assert {row["title"] for row in shop.rows("out.jsonl")} == {"Größe 书 😀"}
    assert [set(row) for row in shop.rows("out.items.jsonl")] == [{"plain"}] * 3
    assert sorted(summary["outputs"][0].split(", ")) == ["out.items.jsonl", "out.jsonl"]
    shop("run", "one.py", "-o", "out.jsonl").check()
    assert len(shop.rows("out.jsonl")) == 6


def test_with_several_item_classes_dicts_go_to_the_named_file_and_each_table_beside_it(shop):
    shop("run", "two.py", "-o", "new/out.csv").check()
    files = {path.name: path for path in (shop.folder / "new").iterdir()}
    assert set(files) == {"out.csv", "out.book.csv", "out.writers.csv"}
    for name, columns in (
        ("out.csv", {"plain"}),
        ("out.book.csv", {"url", "title"}),
        ("out.writers.csv", {"name"}),
    ):
        with files[name].open(newline="", encoding="utf-8") as file:
            found = list(csv.DictReader(file))
        assert [set(row) for row in found] == [columns] * 3


@pytest.mark.parametrize("name", ["out.db", "out.sqlite"])
def test_a_database_holds_every_table(shop, name):
    assert shop("run", "two.py", "-o", name).check().summary["outputs"] == [name]
    with sqlite3.connect(shop.folder / name) as db:
        tables = {
            table: db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in ("book", "writers", "items")
        }
    db.close()
    assert tables == {"book": 3, "writers": 3, "items": 3}
    assert not (shop.folder / "items.db").exists()


def test_a_dash_is_json_lines_on_stdout_in_utf_8_and_the_summary_is_on_stderr(shop):
    # The locale of a cron job: a text stream would not take these characters.
    result = shop("run", "two.py", "-o", "-", LC_ALL="C", PYTHONIOENCODING="ascii", PYTHONUTF8="0").check()
    found = [json.loads(row) for row in result.stdout.splitlines()]
    assert result.stderr.splitlines()[-1].startswith("NETSPY_RUN_SUMMARY ")
    assert len(found) == 9
    assert {row["title"] for row in found if "title" in row} == {"Größe 书 😀"}
    assert written(shop) == []


def test_on_a_terminal_rows_and_panel_do_not_get_into_each_others_way(shop):
    code, screen = shop.on_terminal("run", "two.py", "-o", "-", "-s", "PROGRESS=panel")
    assert code == 0
    assert screen.count('"Größe 书 😀"') == 3


@pytest.mark.parametrize(
    ("output", "part"),
    [
        ("out.xlsx", "no pipeline writes .xlsx"),
        ("out", "a file without suffix"),
        (".", "is a folder"),
        ("new.db/", "new.db"),
    ],
)
def test_an_output_that_can_not_be_is_refused_before_the_crawl(shop, pages, output, part):
    (shop.folder / "new.db").mkdir()
    one_line(shop("run", "one.py", "-o", output), 3, f"-o '{output}'", part)
    assert pages.total == 0


def test_items_that_could_not_be_written_are_written_later_to_the_same_file(shop):
    (shop.folder / "out").write_text("a file where a folder is wanted")
    first = shop("run", "one.py", "-o", "out/x.jsonl", "-s", "ITEM_RETRY_TIMES=0").check(6)
    assert first.summary["item_failed"] == 6
    (shop.folder / "out").unlink()
    shop("retry", "--items", "--spider", "one.py", "-o", "out/x.jsonl").check()
    assert len(shop.rows("out/x.jsonl")) == 3
    assert len(shop.rows("out/x.items.jsonl")) == 3


def test_an_item_handler_and_an_output_file_exclude_each_other(shop):
    text = ONE_TABLE + "\n    def __init__(self):\n        super().__init__(item_handler=print)\n"
    (shop.folder / "handled.py").write_text(text)
    one_line(shop("run", "handled.py", "-o", "x.jsonl"), 3, "item_handler")


def test_three_processes_are_one_run_and_write_one_file(rig, pages):
    result = rig("run", "main.py", "-n", "3", "-o", "out.jsonl", PAGES="60").check()
    assert result.stdout.count("NETSPY_RUN_SUMMARY") == 1
    assert (result.summary["nodes"], result.summary["items"]) == (3, 60)
    assert len({row["url"] for row in rig.rows("out.jsonl")}) == 60
    assert pages.total == 60


def test_items_of_three_processes_on_stdout_are_whole_lines(rig):
    result = rig("run", "main.py", "-n", "3", "-o", "-", PAGES="60").check()
    assert len({json.loads(row)["url"] for row in result.stdout.splitlines()}) == 60
    assert result.stderr.splitlines()[-1].startswith("NETSPY_RUN_SUMMARY ")
    assert result.summary["nodes"] == 3


def test_processes_of_an_air_spider_are_refused_with_the_way_out(rig, pages):
    result = rig("run", "air.py", "-n", "3").check(3)
    assert result.stderr.count("\n") == 1
    assert "Air is an AirSpider" in result.stderr
    assert 'netspy.Spider (REDIS_URL="embedded"' in result.stderr
    assert result.summary["outcome"] == "config_error"
    assert pages.total == 0


def test_a_renamed_class_takes_its_job_over_only_when_told_to(rig, redis):
    old = SPIDER.replace("    def start_requests", '    redis_key = "news"\n\n    def start_requests', 1)
    (rig.folder / "old.py").write_text(old)
    (rig.folder / "new.py").write_text(old.replace("class Pages", "class Renamed"))
    rig("run", "old.py", PAGES="8").check()
    refused = rig("run", "new.py", PAGES="12").check(3)
    assert "belongs to the spider class Pages" in refused.stderr
    assert "--take-over" in refused.stderr
    rig("run", "new.py", "--take-over").check()
    assert rig.status("new.py")["class"] == "Renamed"
    rig("run", "old.py").check(3)
    one_line(rig("run", "air.py", "--take-over"), 3, "--take-over", "Air is an AirSpider")


BROKEN = {
    "raises.py": "import netspy as mw\n\nclass A(mw.AirSpider):\n    def __init__(self):\n        raise ValueError('no disk')\n",
    "bare.py": "import netspy as mw\n\nclass A(mw.AirSpider):\n    def __init__(self):\n        pass\n",
    "picky.py": "import netspy as mw\n\nclass A(mw.AirSpider):\n    def __init__(self, section):\n        super().__init__()\n",
    "none.py": "x = 1\n\nclass NotOne:\n    pass\n",
}


@pytest.mark.parametrize(
    ("arguments", "code", "parts"),
    [
        (["nothere.py"], 3, ["nothere.py: there is no such file"]),
        (["no.module"], 3, ["'no.module' is neither a file nor a module"]),
        (["none.py:NotOne"], 3, ["none.py has no spider class 'NotOne'"]),
        (["none.py"], 3, ["none.py holds no spider"]),
        (["main.py:Absent"], 3, ["no spider class 'Absent'", "Pages"]),
        (["picky.py"], 3, ["A can't be made with no arguments", "'section'"]),
        (["picky.py", "-a", "color=red"], 3, ["A can't be made with color", "'color'"]),
        (["raises.py"], 3, ["A can't be made", "raises.py:5: ValueError: no disk"]),
        (["bare.py"], 3, ["A.__init__ must call super().__init__("]),
        (["main.py", "-a", "section"], 3, ["-a 'section' is not KEY=VALUE"]),
        (["main.py", "-a", "parse=x"], 3, ["would replace the method parse()"]),
        (["main.py", "-a", "pipelines=x"], 3, ["-a pipelines=", "-o FILE"]),
        (["main.py", "-s", "SPIDER_THREAD_COUNT"], 3, ["-s 'SPIDER_THREAD_COUNT' is not KEY=VALUE"]),
        (["main.py", "-s", "SPIDER_THREAD_COUNT=many"], 3, ["SPIDER_THREAD_COUNT='many'", "whole number"]),
        ([], 2, ["Missing argument 'SPIDER'", "netspy run --help"]),
        (["main.py", "-n", "two"], 2, ["'-n'", "integer"]),
    ],
)
def test_what_is_wrong_is_one_line_before_anything_is_crawled(rig, pages, arguments, code, parts):
    for name, text in BROKEN.items():
        (rig.folder / name).write_text(text)
    one_line(rig("run", *arguments), code, *parts)
    assert pages.total == 0


@pytest.mark.parametrize(
    ("arguments", "code", "parts"),
    [
        (["-n", "0"], 3, ["processes=0"]),
        (["-s", "SPIDER_THREAD_COUNT=0"], 3, ["SPIDER_THREAD_COUNT=0"]),
        (
            ["-s", "REDIS_URL=redis://:s3cret@127.0.0.1:{port}/0", "-s", "REDIS_START_TIMEOUT=0.3"],
            5,
            [":***@127.0.0.1", "did not answer"],
        ),
        (["-s", "REDIS_URL=http://me:s3cret@127.0.0.1"], 3, ["REDIS_URL='http://me:***@127.0.0.1'"]),
    ],
)
def test_a_run_that_can_not_start_says_why_and_ends_with_its_summary(rig, pages, arguments, code, parts):
    result = rig("run", "main.py", *[text.format(port=free_port()) for text in arguments]).check(code)
    errors = [line for line in result.stderr.splitlines() if line.startswith("netspy: error: ")]
    assert len(errors) == 1
    assert all(part in errors[0] for part in parts)
    assert "s3cret" not in result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    assert pages.total == 0


def test_arguments_reach_the_spider_as_attributes_and_settings(rig):
    text = SPIDER.replace(
        "yield Page(url=request.url)",
        "yield Page(url=request.url, section=self.section, threads=self.settings.SPIDER_THREAD_COUNT)",
    )
    (rig.folder / "args.py").write_text(text)
    rig(
        "run",
        "args.py",
        "-a",
        "section=a=b",
        "-a",
        "SPIDER_THREAD_COUNT=3",
        "-s",
        "RUN_ID=x",
        "-o",
        "o.jsonl",
        PAGES="1",
    ).check()
    assert [(row["section"], row["threads"]) for row in rig.rows("o.jsonl")] == [("a=b", 3)]
    assert rig.status("args.py", "-a", "section=", "--run", "x")["done"] == 1


def left_alone(folder, env, *arguments):
    """The command, whose standard output nobody reads any more when it writes the first row."""
    read, write = os.pipe()
    os.close(read)
    try:
        return subprocess.run(
            [*NETSPY, "run", *arguments, "-o", "-", "-s", "ITEM_RETRY_TIMES=0"],
            cwd=folder, env={**os.environ, **env}, stdout=write, stderr=subprocess.PIPE, text=True, timeout=60,
            check=False,
        )  # fmt: skip
    finally:
        os.close(write)


def test_a_reader_that_leaves_ends_the_crawl_and_loses_no_item(shop):
    done = left_alone(shop.folder, shop.env, "one.py")
    assert done.returncode == 143
    assert "nobody reads standard output any more: the crawl stops" in done.stderr
    assert "Traceback" not in done.stderr
    assert len(shop.rows("failed_items.jsonl")) == 6
    assert summary_of(done.stderr)["items"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("presses", [0, 2])
def test_what_several_processes_have_written_waits_for_a_slow_reader(rig, presses):
    """More than the reader's pipe holds, and little enough for the nodes to have left."""
    text = SPIDER.replace(
        "yield Page(url=request.url)",
        "yield from (Page(url=f'{request.url}#{n}', pad='ß' * 35) for n in range(120))",
    )
    assert text != SPIDER
    (rig.folder / "many.py").write_text(text)
    with subprocess.Popen(
        [*NETSPY, "run", "many.py", "-n", "2", "-o", "-"],
        cwd=rig.folder, env={**os.environ, **rig.env, "PYTHONIOENCODING": "ascii"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            until(lambda: rig("status", "many.py", "--no-rate").stdout.count("state\tfinished\n"))
            if presses:
                for number in (signal.SIGINT, signal.SIGTERM):  # two of a kind might be taken for one
                    process.send_signal(number)
            assert wait_until(lambda: process.poll() is not None, 30 if presses else 4) is bool(presses)
            rows, said = process.communicate(timeout=60)
        finally:
            process.kill()
    summary = summary_of(said)
    if presses:
        assert rows.count("\n") < 960
        assert (process.returncode, summary["outcome"]) == (137, "forced")
    else:
        assert rows.count("\n") == summary["items"] == 960
        assert process.returncode == 0


def test_a_reader_that_leaves_ends_all_processes(rig):
    env = {"PAGES": "3000"}
    done = left_alone(rig.folder, rig.env | env, "main.py", "-n", "2")
    assert done.returncode == 143
    assert "Traceback" not in done.stderr
    assert done.stderr.count("nobody reads standard output any more: the crawl stops") == 2
    assert summary_of(done.stderr)["request_ok"] < 3000


def test_the_version_is_told_without_loading_the_engine_redis_or_the_downloader():
    code = (
        "import sys; from netspy.cli import main; main(['-V']); "
        "print(sorted(n for n in sys.modules if n.partition('.')[0] in ('redis', 'curl_cffi', 'lxml', 'rich', 'turbohtml', 'loguru') "
        "or n.startswith(('netspy.engine', 'netspy.assembly', 'netspy.frontier', 'netspy.downloader', 'netspy.messages'))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "netspy 0.1.0\n[]\n"
