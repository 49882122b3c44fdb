"""Memory, descriptors and log of a long crawl stay flat: scripts/long_run.py, in full and in small."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from netspy.testing.runner import Result, run_script

CASE = next(
    case
    for case in json.loads(
        (Path(__file__).parents[1] / "data/cases/longrun.json").read_text(encoding="utf-8")
    )
    if case["id"] == "LNG-04"
)
SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "long_run.py"


@pytest.fixture(scope="module")
def long_run():
    spec = importlib.util.spec_from_file_location("long_run", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["long_run"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["long_run"]


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.faults_full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["air", "redis"])
def test_200_000_pages_leave_memory_descriptors_and_log_flat(long_run, kind):
    report = long_run.run(kind, 200_000)
    assert report.problems == [], report.line()


@pytest.mark.slow
def test_a_few_thousand_pages_open_nothing_that_stays_open(long_run, monkeypatch):
    """So short a run says nothing about memory; descriptors and log are judged as in the long one."""
    monkeypatch.setattr(long_run, "SLOPE_MB", 1000.0)
    report = long_run.run("air", 4_000)
    assert report.problems == [], report.line()


def samples(long_run, mb_per_50_000, descriptors_at_the_end):
    return [
        long_run.Sample(
            n, n * 1000, 50 + mb_per_50_000 * n / 50, 20 if n < 150 else descriptors_at_the_end, 4
        )
        for n in range(200)
    ]


@pytest.mark.parametrize(
    ("kind", "growth", "descriptors", "lines", "done", "wrong"),
    [
        ("redis", 1.9, 22, 10, 200_000, None),
        ("redis", 2.1, 22, 10, 200_000, "memory grows by 2.1 MB"),
        ("air", 6.4, 22, 10, 200_000, None),
        ("air", 6.6, 22, 10, 200_000, "memory grows by 6.6 MB"),
        ("redis", 0.0, 40, 10, 200_000, "open descriptors grew from 20 to 40"),
        ("redis", 0.0, 20, 5000, 200_000, "5000 lines of log"),
        ("redis", 0.0, 20, 10, 199_999, "199999 pages done"),
    ],
)
def test_what_does_not_stay_flat_is_called_so(long_run, kind, growth, descriptors, lines, done, wrong):
    result = Result(0, "", "x\n" * lines, {"request_ok": done}, 200.0)
    report = long_run.judge(kind, 200_000, samples(long_run, growth, descriptors), result, 200_000)
    assert report.slope_mb == pytest.approx(growth)
    assert [problem.startswith(wrong) for problem in report.problems] == ([True] if wrong else [])


# -- LNG-04

SLOW_SINK = """
import os, time
import netspy as mw
from netspy.pipelines.base import BasePipeline

SLOW_FOR = float(os.environ["SLOW_FOR"])
PAGES, EACH = int(os.environ["PAGES"]), 1000
seen = set()


class Slow(BasePipeline):
    began = time.monotonic()

    def save_items(self, table, items):
        if time.monotonic() - self.began < SLOW_FOR:
            time.sleep(1)
        seen.update((item["page"], item["n"]) for item in items)


class Fast(mw.AirSpider):
    __custom_setting__ = dict(PROGRESS="off", CONCURRENT_REQUESTS_PER_DOMAIN=0, ITEM_BATCH_SIZE=500)

    def start_requests(self):
        for n in range(PAGES):
            yield mw.Request(os.environ["SITE"] + f"/p/{n}")

    def parse(self, request, response):
        page = int(request.url.rpartition("/")[2])
        for n in range(EACH):
            yield {"page": page, "n": n, "text": os.urandom(5000).hex()}


summary = Fast(pipelines=[Slow()]).run()
# Not ru_maxrss: that of a new process begins with what its parent had used.
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print("STORED", len(seen), "PEAK", int(status["VmHWM"].split()[0]) // 1024, summary.items)
"""
CAP_MB = 512


def slow_sink(site, tmp_path, pages, slow_for, timeout):
    site.route("/p/", "x", prefix=True)
    env = {"SITE": site.url("").rstrip("/"), "PAGES": str(pages), "SLOW_FOR": str(slow_for)}
    result = run_script(SLOW_SINK, cwd=tmp_path, env=env, timeout=timeout).check()
    stored, _, peak, items = result.stdout.partition("STORED ")[2].split()[:4]
    return int(stored), int(peak), int(items)


@pytest.mark.slow
def test_lng_04_a_pipeline_slower_than_the_crawl_slows_it_and_loses_nothing(site, tmp_path):
    stored, peak, items = slow_sink(site, tmp_path, pages=30, slow_for=5, timeout=60)
    assert (stored, items) == (30_000, 30_000)
    # 300 MB of rows went through; the buffer holds ITEM_MAX_CACHED_COUNT of 10 KB.
    assert peak < 250


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.faults_full
@pytest.mark.timeout(300)
def test_lng_04_with_the_figures_of_the_case(site, tmp_path):
    stored, peak, items = slow_sink(site, tmp_path, pages=200, slow_for=30, timeout=280)
    assert stored == items == CASE["expected"]["items_stored"]
    assert peak < CAP_MB
