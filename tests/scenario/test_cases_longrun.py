"""The cases of the area *longrun*: bombs and drips, threads that stay, a pipeline slower than the crawl.

What single parts do with bombs and drips is tested in tests/unit/downloader (test_bodies.py, test_decoding.py,
test_failing_servers.py); here the crawl around them goes on. LNG-04 is in tests/fault/test_long_run.py, in small and with
the figures of the case.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from pathlib import Path

import brotli
import pytest
from air_support import Air, crawl

import netspy as mw
from netspy.testing.children import wait_until
from netspy.testing.runner import run_script
from support.raw_server import HANG, RawServer

CASES = {
    case["id"]: case
    for case in json.loads(
        (Path(__file__).parents[1] / "data/cases/longrun.json").read_text(encoding="utf-8")
    )
}
LIMIT = 10_000_000


pytestmark = pytest.mark.usefixtures("workdir")


@pytest.fixture
async def raw():
    async with RawServer() as server:
        yield server


async def run_beside(raw, folder, paths, **env):
    """Run the script while this loop serves its pages."""
    values = {"SITE": raw.url("").rstrip("/"), "PATHS": paths, **env}
    return (await asyncio.to_thread(run_script, BOMBS, cwd=folder, env=values)).check()


# -- LNG-01

BOMBS = """
import os
import netspy as mw


def peak_kb():
    # Not ru_maxrss: that of a new process begins with what its parent had used.
    return int(dict(line.split(":", 1) for line in open("/proc/self/status"))["VmHWM"].split()[0])


class Bombs(mw.AirSpider):
    __custom_setting__ = dict(
        PROGRESS="off", MAX_RESPONSE_SIZE=10_000_000, IDLE_TIMEOUT=0, RETRY_BACKOFF=0.0,
        REQUEST_TIMEOUT=float(os.environ["TIMEOUT"]), SPIDER_MAX_RETRY_TIMES=int(os.environ.get("RETRIES", "1")), CONCURRENT_REQUESTS_PER_DOMAIN=0,
        SPIDER_THREAD_COUNT=int(os.environ.get("SLOTS", "4")), CIRCUIT_FAILURE_THRESHOLD=0,
    )

    def start_requests(self):
        self.before = peak_kb()
        for path in os.environ["PATHS"].split():
            yield mw.Request(os.environ["SITE"] + path)

    def parse(self, request, response):
        self.stats.inc("fine")

    def end_callback(self):
        print("GREW", peak_kb() - self.before, flush=True)


Bombs().start()
"""


def head(coding):
    return f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Encoding: {coding}\r\n".encode()


def coded(coding, body):
    return [head(coding) + f"Content-Length: {len(body)}\r\n\r\n".encode() + body]


async def test_lng_01_bombs_are_given_up_at_the_limit_of_decoded_bytes_once_and_without_memory(raw, tmp_path):
    zeros = b"\0" * 50_000_000
    twice = gzip.compress(gzip.compress(zeros))
    raw.on("/br", coded("br", brotli.compress(zeros)))
    raw.on("/gzip", coded("gzip", gzip.compress(zeros)))
    raw.on("/twice", coded("gzip, gzip", twice))
    pages = " ".join(f"/p/{n}" for n in range(20))
    # One at a time, so that what grows is one bomb's.
    result = await run_beside(raw, tmp_path, f"/br /gzip /twice {pages}", SLOTS="1", TIMEOUT="60")
    assert result.summary["user"]["fine"] == 20
    assert result.summary["request_failed"] == 3
    assert result.summary["retry"] == 0
    assert result.summary["reasons"] == {"too_large": 3}
    grew = int(result.stdout.partition("GREW ")[2].split()[0]) * 1024
    assert grew < 3 * LIMIT


@pytest.mark.slow
async def test_lng_01_endless_and_dripping_answers_free_their_slot_in_time(raw, tmp_path):
    stream = [b"HTTP/1.0 200 OK\r\nContent-Type: audio/mpeg\r\n\r\n"]
    for _ in range(100):
        stream += [b"x" * 1024, 0.2]
    drip = [b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"]
    for _ in range(100):
        drip += [b"x", 0.5]
    slow_head = []
    for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok":
        slow_head += [bytes([byte]), 1.0]
    raw.on("/stream", stream)
    raw.on("/drip", drip)
    raw.on("/head", slow_head)
    pages = " ".join(f"/p/{n}" for n in range(30))
    result = await run_beside(raw, tmp_path, f"/stream /drip /head {pages}", RETRIES="0", TIMEOUT="3")
    # The timeout is 3 s of total time; the case allows three times that.
    assert result.summary["elapsed"] < 3 * 3
    assert result.summary["user"]["fine"] == 30
    assert result.summary["request_failed"] == 3
    assert result.summary["reasons"] == {"timeout": 3}


async def test_lng_01_one_slot_is_free_again_after_a_drip(raw, tmp_path):
    raw.on("/drip", [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx", HANG])
    result = await run_beside(raw, tmp_path, "/drip /p/1 /p/2", RETRIES="0", SLOTS="1", TIMEOUT="3")
    assert (result.summary["user"]["fine"], result.summary["request_failed"]) == (2, 1)


# -- LNG-03


def test_lng_03a_twenty_runs_in_one_process_gain_no_thread_and_each_crawls_anew(home):
    before = threading.active_count()
    for n in range(1, 21):
        summary, memory, _ = crawl(Rows, home, paths=tuple(f"/p/{i}" for i in range(10)))
        assert summary.request_ok == 10
        assert len(memory.rows) == 10
        assert home.total == 10 * n
        # Threads are told to end and end by themselves, a moment after the run: also those that an earlier test had.
        assert wait_until(lambda: threading.active_count() <= before, 30)


def test_lng_03a_runs_on_redis_in_one_process_gain_no_thread_and_a_new_run_crawls_anew(home, redis_url):
    class Shared(mw.Spider):
        __custom_setting__ = {
            **Air.__custom_setting__,
            "DONE_CHECK_INTERVAL": 0.05,
            "SPIDER_STARTUP_GRACE": 0.0,
        }

        def start_requests(self):
            for n in range(10):
                yield mw.Request(home.url(f"/p/{n}"))

        parse = Rows.parse

    before = threading.active_count()
    for n in range(1, 6):
        rows = []
        summary = Shared(item_handler=rows.extend, REDIS_URL=redis_url, RUN_ID=str(n)).run()
        assert (summary.request_ok, len(rows), home.total) == (10, 10, 10 * n)
        assert wait_until(lambda: threading.active_count() <= before, 30)


class Rows(Air):
    def parse(self, request, response):
        yield {"n": request.url}


@pytest.mark.parametrize("kind", ["thread", "loop"])
def test_lng_03b_callbacks_that_raise_what_ends_threads_cost_only_themselves(home, kind):
    # Ctrl-C is no error of a callback's, so KeyboardInterrupt isn't among them.
    errors = (SystemExit, MemoryError, RecursionError)

    class Breaks(Air):
        __custom_setting__ = {
            **Air.__custom_setting__,
            "SPIDER_THREAD_COUNT": 16,
            "SPIDER_MAX_RETRY_TIMES": 0,
        }

        def parse(self, request, response):
            n = int(request.url.rpartition("/")[2])
            if n % 6 == 0 and n < 96:
                raise errors[n // 6 % 3]("as in the case")
            yield {"n": n}

    if kind == "loop":

        class Breaks(Breaks):
            async def parse(self, request, response):
                for item in super().parse(request, response):
                    yield item

    summary, memory, _ = crawl(Breaks, home, paths=tuple(f"/p/{n}" for n in range(100)))
    assert (len(memory.rows), summary.request_failed) == (84, 16)
    assert summary.request_ok == 84
    assert summary.outcome == "finished"


def test_lng_03c_a_spider_may_run_in_another_thread_where_signals_cannot_be_caught(home):
    results = []

    def work():
        results.append(crawl(Rows, home, paths=("/p/1", "/p/2"))[0])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    assert results[0].request_ok == 2
