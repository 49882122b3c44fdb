"""A graceful stop is bounded whatever the user's code is doing, and keeps what it can."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from air_support import Air, Memory, crawl
from scenario_support import lines

import netspy as mw
from netspy.network.middleware import DownloaderMiddleware

pytestmark = pytest.mark.usefixtures("workdir")


@pytest.fixture
def release():
    """Lets go what hangs, at the end of the test."""
    event = threading.Event()
    yield event
    event.set()


class Stopping(Air):
    """Stopped from another thread as soon as something hangs."""

    __custom_setting__ = {"SPIDER_STOP_TIMEOUT": 1.0, "BUFFER_FLUSH_INTERVAL": 0.05}
    paths = tuple(f"/p/{n}" for n in range(20))

    def stop(self, reason=""):
        self.stopped_at = time.monotonic()
        super().stop(reason)

    def hang(self):
        threading.Timer(0.05, self.stop, ["it hangs"]).start()
        self.release.wait(60)

    async def hang_async(self):
        self.stop("it hangs")
        await asyncio.sleep(60)

    def parse(self, request, response):
        yield {"page": request.url.rpartition("/")[2]}


class InSeeds(Stopping):
    def start_requests(self):
        yield from super().start_requests()
        self.hang()


class InAsyncSeeds(Stopping):
    async def start_requests(self):
        for path in self.paths:
            yield mw.Request(self.url(path))
        await self.hang_async()


class InCallback(Stopping):
    def parse(self, request, response):
        yield from super().parse(request, response)
        if request.url.endswith("/7"):
            self.hang()


class InAsyncCallback(Stopping):
    async def parse(self, request, response):
        yield {"page": request.url.rpartition("/")[2]}
        if request.url.endswith("/7"):
            await self.hang_async()


class InFetch(Stopping):
    def start_requests(self):
        yield from super().start_requests()
        self.site.route("/hang", "", hang=True)
        yield mw.Request(self.url("/hang"))
        self.site.wait_hits(1, path="/hang")
        self.stop("it hangs")


class InSubDownload(Stopping):
    def parse(self, request, response):
        yield from super().parse(request, response)
        if request.url.endswith("/7"):
            self.site.route("/hang", "", hang=True)
            threading.Timer(0.1, self.stop, ["it hangs"]).start()
            mw.Request(self.url("/hang")).download()


class InValidate(Stopping):
    def validate(self, request, response):
        if request.url.endswith("/7"):
            self.hang()


class InEndCallback(Stopping):
    def end_callback(self):
        self.hang()


@pytest.mark.parametrize(
    "spider",
    [InSeeds, InAsyncSeeds, InCallback, InAsyncCallback, InFetch, InSubDownload, InValidate, InEndCallback],
)
def test_a_stop_is_bounded_and_every_finished_page_has_its_item(home, release, spider, workdir):
    summary, memory, made = crawl(spider, home, release=release)
    assert time.monotonic() - made.stopped_at < 6
    if spider is InEndCallback:
        assert summary.outcome == "finished"
    else:
        assert (summary.outcome, summary.reason) == ("stopped", "it hangs")
    stored = {row["page"] for row in memory.data()}
    dump = workdir / "failed_requests.jsonl"
    left = {record["request"]["u"].rpartition("/")[2] for record in lines(dump)} if dump.exists() else set()
    assert summary.request_ok >= len(stored - left)
    # With the seeding cut, what was not seeded yet is neither here nor there: it is seeded at the next start.
    if spider not in (InSeeds, InAsyncSeeds, InFetch):
        assert stored | (left - {"hang"}) >= {str(n) for n in range(20)} or summary.queued < 20


def test_a_pipeline_that_hangs_does_not_hold_a_stop_and_its_pages_stay_unfinished(home, release, workdir):
    class Hangs(Memory):
        def save_items(self, table, items):
            made.hang()

    made = Stopping(site=home, release=release, pipelines=[Hangs()])
    summary = made.run()
    assert time.monotonic() - made.stopped_at < 8
    assert (summary.items, summary.reason) == (0, "it hangs")
    dead = lines(workdir / "failed_items.jsonl") if (workdir / "failed_items.jsonl").exists() else []
    left = lines(workdir / "failed_requests.jsonl") if (workdir / "failed_requests.jsonl").exists() else []
    assert len(dead) + len(left) >= 20, "each page is unfinished, or its row a dead letter"


def test_stop_before_the_start_and_after_the_end_does_nothing(home):
    made = Stopping(site=home, pipelines=[Memory()])
    made.stop()
    assert made.run().outcome == "finished"
    made.stop()


def test_stop_in_start_callback_ends_before_the_first_page(home):
    class AtOnce(Stopping):
        def start_callback(self):
            self.stop("changed my mind")

    summary, _, _ = crawl(AtOnce, home)
    assert (summary.outcome, summary.reason, summary.pages) == ("stopped", "changed my mind", 0)


class Unopened(DownloaderMiddleware):
    def open(self):
        raise ConnectionRefusedError("no licence server")


@pytest.mark.parametrize("kind", [mw.AirSpider, mw.Spider])
def test_a_middleware_that_cannot_be_opened_ends_the_run_with_its_reason(home, redis_url, kind):
    class News(kind):
        start_urls = (home.url("/p/1"),)
        site = home

        def parse(self, request, response):
            """Never called."""

    with pytest.raises(mw.ConfigError, match=r"Unopened can't be opened: .*no licence server"):
        News(DOWNLOADER_MIDDLEWARES=[f"{__name__}.Unopened"], REDIS_URL=redis_url, PROGRESS="off").run()
    assert home.total == 0
