"""The checker of the fault suite notices what it is for, and the table is printed from complete results only."""

from __future__ import annotations

import importlib.util
import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from netspy.testing.faults import FaultRun, check_last_line
from netspy.testing.runner import Result

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "faults_table.py"
EXPECTED = {"a", "b", "c"}


class Site:
    """Stands for a site that was asked for these pages."""

    def __init__(self, **hits):
        self.hits = hits

    def url(self, path):
        return "http://127.0.0.1:1" + path

    def all_hits(self):
        return self.hits


@pytest.fixture
def came_to(redis_url, tmp_path):
    """A run with these rows in the table and in the file."""
    runs = []

    def make(table, lines, hits=None, dead=()):
        with closing(sqlite3.connect(tmp_path / "sink.db")) as db, db:
            db.execute("CREATE TABLE page (url TEXT)")
            db.executemany("INSERT INTO page VALUES (?)", [(url,) for url in table])
        (tmp_path / "lines").mkdir()
        text = "".join(json.dumps({"url": url}) + "\n" for url in lines)
        (tmp_path / "lines" / "page.jsonl").write_text(text)
        if dead:
            letters = "".join(json.dumps({"data": {"url": url}}) + "\n" for url in dead)
            (tmp_path / "failed_items.jsonl").write_text(letters)
        runs.append(FaultRun(tmp_path, redis_url=redis_url, site=Site(**(hits or {}))))
        return runs[-1]

    yield make
    for run in runs:
        run.__exit__(None, None, None)


def test_a_table_that_is_locked_is_not_taken_for_an_empty_one(came_to, tmp_path, monkeypatch):
    run = came_to("abc", "abc")
    monkeypatch.setattr("netspy.testing.faults._LOCKED_S", 0.01)
    with closing(sqlite3.connect(tmp_path / "sink.db")) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            run.stored()
    assert set(run.stored()) == EXPECTED


def test_nothing_is_stored_before_the_first_batch(tmp_path):
    run = FaultRun(tmp_path)
    assert not run.stored()
    sqlite3.connect(tmp_path / "sink.db").close()
    assert not run.stored()


def test_a_run_in_order_is_reported_with_its_repeats(came_to):
    report = came_to("abc", "abcc", {"a": 1, "b": 3}).check(EXPECTED, fetched_twice=2)
    assert report == (0, 2, 0, 1, None)


@pytest.mark.parametrize(
    ("table", "lines", "hits", "text"),
    [
        ("ab", "abc", {}, "1 of 3 rows are lost"),
        ("abcd", "abcd", {}, "nobody expected"),
        ("abc", "ab", {}, "the table and the file differ"),
        ("abbc", "abc", {}, "stored twice"),
        ("abc", "abc", {"a": 2}, "1 fetches were repeats"),
    ],
)
def test_what_is_wrong_with_the_rows_or_fetches_is_noticed(came_to, table, lines, hits, text):
    with pytest.raises(AssertionError, match=text):
        came_to(table, lines, hits).check(EXPECTED, fetched_twice=0)


def test_dead_letters_are_kept_rows_only_where_the_test_expects_them(came_to):
    run = came_to("ab", "ab", dead="c")
    assert run.check(EXPECTED, dead_letters=True).lost == 0
    with pytest.raises(AssertionError, match="1 rows are dead letters"):
        run.check(EXPECTED)


@pytest.mark.parametrize("key", ["z_requests", "z_inflight", "z_delayed"])
def test_what_is_left_in_redis_is_noticed(came_to, key):
    run = came_to("abc", "abc")
    run.client.zadd(f"netspy:Pages:{key}", {"left": 1})
    with pytest.raises(AssertionError, match=key):
        run.check(EXPECTED)
    run.check(EXPECTED, keys_empty=False)


def test_a_failed_request_that_nobody_expected_is_noticed(came_to):
    run = came_to("abc", "abc")
    run.client.rpush("netspy:Pages:failed_requests", b'{"reason":"x","request":{"v":1,"u":"http://h/"}}')
    with pytest.raises(AssertionError, match="x: http://h/"):
        run.check(EXPECTED)
    run.check(EXPECTED, failed=1)


def test_a_last_line_that_is_missing_or_lies_is_noticed():
    line = 'NETSPY_RUN_SUMMARY {"exit_code": 5}\n'
    check_last_line(Result(5, "words\n" + line, "", {"exit_code": 5}, 1.0))
    with pytest.raises(AssertionError, match="says exit code 5, and it was 0"):
        check_last_line(Result(0, line, "", {"exit_code": 5}, 1.0))
    with pytest.raises(AssertionError, match="the last line on stdout"):
        check_last_line(Result(5, line + "more\n", "", {"exit_code": 5}, 1.0))


@pytest.fixture
def table(tmp_path, monkeypatch):
    """The script, with two rows and pages in a folder of the test's own."""
    spec = importlib.util.spec_from_file_location("faults_table", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "faults_table", module)
    spec.loader.exec_module(module)
    rows = tmp_path / "rows.toml"
    one = '[[row]]\nid = "{0}"\nfault = "f{0}"\nmust = "m{0}"\nfault_zh = "z{0}"\nmust_zh = "y{0}"\n'
    rows.write_text(one.format("1") + one.format("2") + one.format("9") + 'kind = "air"\n')
    monkeypatch.setattr(module, "ROWS", rows)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "ENGLISH", module.ENGLISH._replace(path=tmp_path / "faults.md"))
    monkeypatch.setattr(module, "CHINESE", module.CHINESE._replace(path=tmp_path / "zh.md"))

    def write(*cases):
        xml = tmp_path / "faults.xml"
        xml.write_text("<testsuites><testsuite>" + "".join(cases) + "</testsuite></testsuites>")
        return module.main([str(xml)]), tmp_path / "faults.md"

    return write


def case(row, again=0, seconds="null", inside="", kind="spider"):
    value = (
        f'{{"row":"{row}","kind":"{kind}","redis":"7","lost":0,"fetched_twice":{again},"stored_twice":0,"written_twice":0,'
        f'"seconds":{seconds}}}'
    ).replace('"', "&quot;")
    noted = f'<properties><property name="fault" value="{value}"/></properties>'
    return f'<testcase classname="c" name="n{row}">{noted}{inside}</testcase>'


AIR = case("9", 4, "0.5", kind="air")


def test_the_table_shows_the_worst_of_each_figure(table):
    code, page = table(case("1", 3, "2.5"), case("1", 7, "1.5"), case("2"), AIR)
    assert code == 0
    assert "| 1 | f1 | m1 | 0 | 7 | 0 | 0 | 2.5 s | 7 |" in page.read_text()
    own = page.read_text().partition("## AirSpider")[2]
    assert "| 9 | f9 | m9 | 0 | 4 | 0 | 0 | 0.5 s |\n" in own
    assert "f1" not in own
    assert "| 2 | z2 | y2 | 0 | 0 | 0 | 0 |  | 7 |" in page.with_name("zh.md").read_text()


@pytest.mark.parametrize(
    ("cases", "text"),
    [
        ([case("1"), AIR], "row 2 (spider) has no result"),
        ([case("1"), case("2")], "row 9 (air) has no result"),
        ([case("1"), case("2"), AIR, case("3")], "row 3 (spider), which faults.toml lacks"),
        ([case("1"), case("2", inside="<failure/>")], "n2 did not pass"),
        ([case("1"), case("2", inside="<skipped/>")], "n2 did not pass"),
    ],
)
def test_incomplete_results_print_no_table(table, capsys, cases, text):
    code, page = table(*cases)
    assert code == 1
    assert text in capsys.readouterr().err
    assert not page.exists()
