"""Stopping an AirSpider and going on: real processes, real signals."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from air_support import SCRIPT_HEAD
from scenario_support import lines

import netspy as mw
from netspy.testing.runner import run_command, run_script, start_script

pytestmark = pytest.mark.slow

SPIDER = (
    SCRIPT_HEAD
    + """
import datetime, sys, threading


class Pages(mw.AirSpider):
    __custom_setting__ = dict(
        ITEM_PIPELINES=["netspy.pipelines.jsonl.JsonlPipeline"], PROGRESS="off", CONCURRENT_REQUESTS_PER_DOMAIN=0,
        RETRY_BACKOFF=0.0,
    )

    def start_requests(self):
        with open("seedings.txt", "a") as file:
            file.write("seeding\\n")
        for n in range(int(os.environ.get("PAGES", "20"))):
            time.sleep(float(os.environ.get("SEED_SLEEP", "0")))
            yield mw.Request(f"{BASE}/p/{n}", cb_kwargs={"when": datetime.date(2024, 2, 29)}, priority=300 - n)

    def start_callback(self):
        threading.Thread(target=self.tell_when_seeded, daemon=True).start()

    def tell_when_seeded(self):
        while self._running._node.seeding_unfinished:
            time.sleep(0.005)
        sys.stdout.write("all seeds are queued\\n")  # one write: it must not get into another line

    def parse(self, request, response, when):
        assert when == datetime.date(2024, 2, 29)
        time.sleep(float(os.environ.get("PARSE_SLEEP", "0")))
        yield {"url": request.url}


if __name__ == "__main__":
    Pages().start()
"""
)


@pytest.fixture
def run(site, tmp_path):
    """Start the spider in its folder with settings."""
    site.route("/p/", lambda request: f"<h1>{request.path}</h1>", prefix=True)

    def begin(source=SPIDER, *, resume=False, **env):
        values = {"SITE": site.url("").rstrip("/"), **{key: str(value) for key, value in env.items()}}
        if resume:
            values["NETSPY_RETRY_FAILED_ON_START"] = "1"
        return start_script(source, env=values, cwd=tmp_path)

    return begin


def stored(folder: Path) -> Counter[str]:
    path = folder / "items.jsonl"
    return Counter(row["url"].rpartition("/")[2] for row in lines(path)) if path.exists() else Counter()


def once_each(n: int) -> Counter[str]:
    return Counter(str(i) for i in range(n))


def seedings(folder: Path) -> int:
    return len((folder / "seedings.txt").read_text().splitlines())


def stop_after(script, site, hits, *, seeded=True):
    """Ctrl-C after so many fetches; (result, seconds until the process was gone)."""
    site.wait_hits(hits)
    if seeded:
        script.wait_line("all seeds are queued")
    began = time.monotonic()
    script.interrupt()
    result = script.finish(30).check(130)
    return result, time.monotonic() - began


def test_ctrl_c_in_a_long_delay_is_quick_flushes_items_and_the_next_start_crawls_exactly_the_rest(
    run, site, tmp_path
):
    settings = {"NETSPY_DOWNLOAD_DELAY": 60, "NETSPY_BUFFER_FLUSH_INTERVAL": 30}
    with run(**settings) as script:
        result, seconds = stop_after(script, site, 1)
    assert seconds < 5
    assert result.summary["outcome"] == "stopped"
    assert "Traceback" not in result.stderr
    assert sum(stored(tmp_path).values()) == 1, "the buffered item was written at the stop"
    assert len(lines(tmp_path / "failed_requests.jsonl")) == 19
    with run(resume=True) as script:
        result = script.finish(60).check()
    assert stored(tmp_path) == once_each(20)
    assert set(site.all_hits().values()) == {1}
    assert seedings(tmp_path) == 1
    assert not list(tmp_path.glob("failed_requests*")), "nothing is left of the dump when all is done"
    assert result.summary["outcome"] == "finished"


def test_ctrl_c_while_a_server_hangs_keeps_what_was_in_flight(run, site, tmp_path):
    site.route("/p/", "", prefix=True, hang=True)
    with run(NETSPY_SPIDER_THREAD_COUNT=4) as script:
        result, seconds = stop_after(script, site, 4)
    assert seconds <= 10
    assert len(lines(tmp_path / "failed_requests.jsonl")) == 20
    site.clear()
    site.route("/p/", "x", prefix=True)
    with run(resume=True) as script:
        script.finish(60).check()
    assert stored(tmp_path) == once_each(20)
    assert site.total == 20
    assert result.summary["request_failed"] == 0


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_ctrl_c_while_a_callback_hangs_is_bounded_and_its_page_comes_again(run, site, tmp_path, kind):
    if kind == "plain":
        source = SPIDER
    else:
        source = SPIDER.replace("def parse", "async def parse").replace(
            '        time.sleep(float(os.environ.get("PARSE',
            '        await asyncio.sleep(float(os.environ.get("PARSE',
        )
    with run(source, PARSE_SLEEP=60, NETSPY_SPIDER_STOP_TIMEOUT=2) as script:
        _, seconds = stop_after(script, site, 16)
    assert seconds <= 5
    with run(resume=True) as script:
        script.finish(60).check()
    assert stored(tmp_path) == once_each(20)


def test_sigterm_under_a_shell_stops_in_good_order(run, site, tmp_path):
    with run(NETSPY_DOWNLOAD_DELAY=60) as script:
        site.wait_hits(1)
        script.wait_line("all seeds are queued")
        script.terminate()
        result = script.finish(20)
    assert result.returncode == 143
    assert result.summary["outcome"] == "stopped"
    assert len(lines(tmp_path / "failed_requests.jsonl")) == 19


def test_a_second_ctrl_c_is_out_at_once_and_says_so(run, site, tmp_path):
    with run(PARSE_SLEEP=60, NETSPY_SPIDER_STOP_TIMEOUT=30) as script:
        site.wait_hits(16)
        script.wait_line("all seeds are queued")  # the script's own thread must not speak after the summary
        script.interrupt()
        script.wait_line("once more to leave at once")
        began = time.monotonic()
        script.interrupt()
        result = script.finish(20).check(137)
    assert time.monotonic() - began < 2
    assert result.summary["outcome"] == "forced"
    assert result.stdout.splitlines()[-1].startswith("NETSPY_RUN_SUMMARY ")


def test_when_the_seeding_was_cut_the_next_start_seeds_on_and_repeats_nothing(run, site, tmp_path):
    with run(PAGES=300, SEED_SLEEP=0.03) as script:
        stop_after(script, site, 10, seeded=False)
    crawled = site.total
    assert 10 <= crawled < 300
    with run(PAGES=300, resume=True) as script:
        script.finish(60).check()
    assert stored(tmp_path) == once_each(300)
    assert set(site.all_hits().values()) == {1}
    assert seedings(tmp_path) == 2


def test_a_resumed_run_may_be_stopped_and_resumed_again(run, site, tmp_path):
    begun = 0
    with run(PAGES=300, PARSE_SLEEP=0.03, NETSPY_SPIDER_THREAD_COUNT=1) as script:
        stop_after(script, site, 5)
    for _ in range(3):
        begun = site.total
        with run(PAGES=300, PARSE_SLEEP=0.03, NETSPY_SPIDER_THREAD_COUNT=1, resume=True) as script:
            stop_after(script, site, begun + 5, seeded=False)
    assert site.total < 300
    with run(PAGES=300, resume=True) as script:
        script.finish(60).check()
    assert stored(tmp_path) == once_each(300)
    assert set(site.all_hits().values()) == {1}
    assert seedings(tmp_path) == 1


def test_failed_requests_are_tried_again_at_the_next_start_beside_its_own_seeds_with_a_fresh_budget(
    run, site, tmp_path
):
    site.route("/p/3", "no", status=500)
    site.route("/p/4", "no", status=404)
    with run(NETSPY_SPIDER_MAX_RETRY_TIMES=1) as script:
        assert script.finish(60).check().summary["request_failed"] == 2
    assert len(lines(tmp_path / "failed_requests.jsonl")) == 2
    site.clear()
    site.route("/p/3", "yes", fail_first=1)
    site.unroute("/p/4")
    with run(resume=True, NETSPY_SPIDER_MAX_RETRY_TIMES=1) as script:
        result = script.finish(60).check()
    assert site.all_hits() == {f"/p/{n}": 2 if n == 3 else 1 for n in range(20)}
    assert set(stored(tmp_path)) == set(once_each(20))
    assert result.summary["request_ok"] == 20
    with run(resume=True) as script:
        assert script.finish(60).check().summary["request_ok"] == 20, (
            "nothing is left to go on from: a fresh run"
        )


def test_without_the_setting_a_fresh_run_keeps_the_old_dump_aside(run, site, tmp_path):
    with run(NETSPY_DOWNLOAD_DELAY=60) as script:
        stop_after(script, site, 1)
    with run() as script:
        result = script.finish(60).check()
    assert result.summary["request_ok"] == 20
    assert "RETRY_FAILED_ON_START" in result.stderr
    [aside] = tmp_path.glob("failed_requests.*.jsonl")
    assert len(lines(aside)) == 19
    assert aside.name in result.stderr


def test_kill_9_during_a_resumed_run_loses_nothing_of_the_dump(run, site, tmp_path):
    with run(PAGES=300, NETSPY_DOWNLOAD_DELAY=60) as script:
        stop_after(script, site, 1)
    for hits in (8, 20):
        with run(PAGES=300, PARSE_SLEEP=0.05, NETSPY_SPIDER_THREAD_COUNT=2, resume=True) as script:
            site.wait_hits(hits)
            script.kill()
    with run(PAGES=300, resume=True) as script:
        script.finish(60).check()
    assert set(stored(tmp_path)) == set(once_each(300))
    assert not list(tmp_path.glob("failed_requests*"))


def test_a_fresh_run_after_a_killed_resumed_run_keeps_its_dump_aside_too(run, site, tmp_path):
    with run(PAGES=300, NETSPY_DOWNLOAD_DELAY=60) as script:
        stop_after(script, site, 1)
    with run(PAGES=300, PARSE_SLEEP=0.05, NETSPY_SPIDER_THREAD_COUNT=2, resume=True) as script:
        site.wait_hits(8)
        script.kill()
    with run(PAGES=300) as script:
        script.finish(60).check()
    asides = list(tmp_path.glob("failed_requests.*.jsonl"))
    assert sum(len(lines(aside)) for aside in asides) == 299


def test_lambdas_that_cannot_be_found_again_are_warned_of(run, site, tmp_path):
    source = SPIDER.replace(
        'yield mw.Request(f"{BASE}/p/{n}",',
        'yield mw.Request(f"{BASE}/p/{n}", callback=lambda *_, **__: None,',
    )
    with run(source, NETSPY_DOWNLOAD_DELAY=60) as script:
        result, _ = stop_after(script, site, 1)
    assert (
        "19 unfinished request(s) have callbacks that can't be found again by name (lambdas)" in result.stderr
    )


def test_without_dump_nothing_is_written_and_it_is_said(run, site, tmp_path):
    with run(NETSPY_DOWNLOAD_DELAY=60, NETSPY_DUMP_UNFINISHED_ON_EXIT="no") as script:
        result, _ = stop_after(script, site, 1)
    assert not list(tmp_path.glob("failed_requests*"))
    assert "19 unfinished request(s) are dropped" in result.stderr


def test_requests_that_bypass_the_repeat_filter_are_resumed_too(run, site, tmp_path):
    source = SPIDER.replace("priority=300 - n)", "filter_repeat=False)").replace("/p/{n}", "/p/same")
    with run(source, NETSPY_DOWNLOAD_DELAY=60) as script:
        stop_after(script, site, 1)
    with run(source, resume=True) as script:
        script.finish(60).check()
    assert site.hits("/p/same") == 20


def test_the_order_of_priorities_survives_a_stop(run, site, tmp_path):
    with run(NETSPY_DOWNLOAD_DELAY=60) as script:
        stop_after(script, site, 1)
    site.clear()
    with run(resume=True, NETSPY_SPIDER_THREAD_COUNT=1) as script:
        script.finish(60).check()
    order = [int(hit.path.rpartition("/")[2]) for hit in site.log]
    assert order == sorted(order, reverse=True)


def test_a_torn_last_line_of_the_dump_costs_only_itself(run, site, tmp_path):
    with run(NETSPY_DOWNLOAD_DELAY=60) as script:
        stop_after(script, site, 1)
    dump = tmp_path / "failed_requests.jsonl"
    whole = dump.read_bytes().splitlines(keepends=True)
    dump.write_bytes(b"".join(whole[:-1]) + b"not json\n" + whole[-1][:40])
    with run(resume=True) as script:
        result = script.finish(60).check()
    assert sum(stored(tmp_path).values()) == 19
    assert "2 line(s) of failed_requests.jsonl can't be read as requests and are kept in " in result.stderr
    assert (tmp_path / "failed_requests.jsonl.unreadable").read_bytes() == whole[-1][:40] + b"\nnot json\n"


def test_a_limit_keeps_the_rest_for_the_next_start(run, site, tmp_path):
    with run(NETSPY_SPIDER_MAX_PAGES=5, NETSPY_SPIDER_THREAD_COUNT=1) as script:
        assert script.finish(60).check().summary["outcome"] == "limit"
    before = site.total
    assert before < 20
    with run(resume=True) as script:
        script.finish(60).check()
    assert site.total == 20
    assert stored(tmp_path) == once_each(20)


def test_exit_in_a_callback_is_that_callbacks_error(site, tmp_path):
    """`sys.exit()` in a callback ends neither the process nor the loop; `self.stop()` is the way to end a crawl."""
    site.route("/p/", "x", prefix=True)
    for kind in ("def parse", "async def parse"):
        source = SPIDER.replace("def parse", kind).replace(
            "        yield {",
            '        if request.url.endswith("/7"):\n            sys.exit(3)\n        yield {',
        )
        result = run_script(source, env={"SITE": site.url("").rstrip("/")}, cwd=tmp_path).check()
        assert result.summary["reasons"] == {"SpiderError": 1}
        assert result.summary["request_ok"] == 19
        assert "self.stop()" in result.stderr
        assert json.loads((tmp_path / "failed_requests.jsonl").read_text())["reason"] == "SpiderError"
        (tmp_path / "failed_requests.jsonl").unlink()


def test_two_spiders_in_one_folder_keep_their_unfinished_runs_apart(numbered, workdir):
    class First(mw.AirSpider):
        __custom_setting__ = {"PROGRESS": "off", "ITEM_PIPELINES": [], "SPIDER_THREAD_COUNT": 1}

        def start_requests(self):
            for n in range(6):
                yield mw.Request(numbered.url(f"/p/{type(self).__name__}/{n}"))

        def parse(self, request, response):
            if self.cut and self.stats.get("pages") >= 2:
                self.stop()

    class Second(First):
        pass

    for spider in (First, Second):
        assert spider(cut=True).run().outcome == "stopped"
    for spider in (First, Second):
        assert spider(cut=False, RETRY_FAILED_ON_START=True).run().request_failed == 0
    crawled = set(numbered.all_hits())
    assert crawled == {f"/p/{name}/{n}" for name in ("First", "Second") for n in range(6)}
    assert [path.name for path in workdir.iterdir() if "failed_requests" in path.name] == []


FAILING = """
import os
import netspy as mw

BASE = os.environ["SITE"]


class {name}(mw.AirSpider):
    __custom_setting__ = dict(PROGRESS="off", ITEM_PIPELINES=[], RETRY_BACKOFF=0.0, SPIDER_MAX_RETRY_TIMES=0)

    def start_requests(self):
        for n in range(4):
            yield mw.Request(f"{{BASE}}/p/{name}/{{n}}", callback=self.of_{name})

    def of_{name}(self, request, response):
        pass


{name}().start()
"""


def test_two_spiders_in_one_folder_keep_their_failed_requests_apart(run, site, tmp_path):
    site.route("/p/", "no", prefix=True, status=500)
    for name in ("First", "Second"):
        with run(FAILING.format(name=name)) as script:
            script.finish(60).check(6)
    assert [len(lines(path)) for path in sorted(tmp_path.glob("failed_requests*"))] == [4, 4]
    site.route("/p/", "yes", prefix=True)
    for number, name in enumerate(("Second", "First"), 1):
        site.clear()
        with run(FAILING.format(name=name), resume=True) as script:
            assert script.finish(60).check().summary["request_ok"] == 4
        assert site.all_hits() == {f"/p/{name}/{n}": 1 for n in range(4)}
        assert len(list(tmp_path.glob("failed_requests*"))) == 2 - number


def test_two_spiders_that_run_at_the_same_time_keep_their_records_apart(run, site, tmp_path):
    """At the start of both there is no file yet: whose it is becomes known at the first record."""
    site.route("/p/", "no", prefix=True, status=500)
    site.route("/p/First/3", "", hang=True)
    site.route("/p/Second/3", "", hang=True)
    kept = {"NETSPY_SPIDER_STOP_TIMEOUT": "0.2"}
    with (
        run(FAILING.format(name="First"), **kept) as first,
        run(FAILING.format(name="Second"), **kept) as second,
    ):
        site.wait_hits(8)
        for script in (first, second):
            script.interrupt()
            script.finish(30).check(130)
    whose = {
        path.name: {json.loads(line)["spider"] for line in path.read_text().splitlines()}
        for path in tmp_path.glob("*.jsonl")
    }
    assert sorted(map(sorted, whose.values())) == [["First"], ["Second"]]
    for name in ("First", "Second"):
        [mine] = [path for path, owners in whose.items() if owners == {name}]
        assert len(lines(tmp_path / mine)) == 4
        shown = run_command(
            [sys.executable, "-m", "netspy.cli", "failed", "list", f"{name}.py:{name}", "--json"],
            cwd=write_module(tmp_path, name), env={"SITE": site.url("").rstrip("/")},
        ).check()  # fmt: skip
        assert [f"/p/{name}/" in line for line in shown.stdout.splitlines()] == [True] * 4


def write_module(folder, name):
    """The spider as a module that starts nothing when it is imported; its folder."""
    source = FAILING.format(name=name).replace(f"{name}().start()", "")
    (folder / f"{name}.py").write_text(source)
    return folder


def test_hv_10_lines_of_another_format_stay_in_a_file_that_the_log_names_and_the_seeds_are_crawled(
    run, site, tmp_path
):
    """case HV-10"""
    path = tmp_path / "failed_requests.jsonl"
    path.write_text("http://a.example/,500\nhttp://b.example/,404\n")
    with run(resume=True) as script:
        result = script.finish(60).check()
    assert stored(tmp_path) == once_each(20)
    assert not path.exists()
    assert (
        tmp_path / "failed_requests.jsonl.unreadable"
    ).read_text() == "http://a.example/,500\nhttp://b.example/,404\n"
    assert "are kept in failed_requests.jsonl.unreadable" in result.stderr
