"""How an AirSpider fetches: middlewares, statuses and tries again, limits per site, dead sites beside live ones."""

from __future__ import annotations

import asyncio
import time
from typing import ClassVar

import pytest
from air_support import Air, crawl

import netspy as mw
from netspy.network.middleware import DownloaderMiddleware
from netspy.testing.servers import free_port
from netspy.testing.site import LocalSite

pytestmark = pytest.mark.usefixtures("workdir")


class Pages(Air):
    def parse(self, request, response):
        yield {"path": request.url.partition("//")[2].partition("/")[2], "got": response.text}


# -- middlewares -----------------------------------------------------------------------------------------------


class Header(DownloaderMiddleware):
    def process_request(self, request):
        request.requests_kwargs.setdefault("headers", {})["X-Seen"] = type(self).__name__


class Redirecting(DownloaderMiddleware):
    def process_request(self, request):
        return mw.Request(request.url.replace("/p/old", "/p/new"))


class Cached(DownloaderMiddleware):
    async def process_request(self, request):
        await asyncio.sleep(0)
        return mw.Response(url=request.url, status_code=200, content=b"from the cache", request=request)


class Marking(DownloaderMiddleware):
    async def process_response(self, request, response):
        return mw.Response(
            url=response.url, status_code=200, content=response.content + b"!", request=request
        )


class Again(DownloaderMiddleware):
    def process_response(self, request, response):
        if b"captcha" in response.content:
            return mw.Request(request.url, filter_repeat=False)
        return response


class Rescue(DownloaderMiddleware):
    def process_exception(self, request, exception):
        return mw.Response(url=request.url, status_code=200, content=b"rescued", request=request)


class OtherWay(DownloaderMiddleware):
    async def process_exception(self, request, exception):
        return mw.Request(request.custom["way_out"])


class Broken(DownloaderMiddleware):
    def process_response(self, request, response):
        raise RuntimeError("in the middleware")


class Forgetful(DownloaderMiddleware):
    def process_response(self, request, response):
        """Forgets to return."""


class Opened(DownloaderMiddleware):
    events: ClassVar[list[str]] = []

    def open(self):
        self.events.append(f"open {self.settings.PROJECT_NAME}")

    async def close(self):
        self.events.append("close")


def path_of(*classes):
    return [f"{__name__}.{kind.__name__}" for kind in classes]


def test_middlewares_see_requests_on_the_way_out_and_responses_on_the_way_back(home):
    summary, memory, _ = crawl(
        Pages, home, paths=("/p/old",), DOWNLOADER_MIDDLEWARES=path_of(Header, Redirecting, Marking)
    )
    assert summary.outcome == "finished"
    assert memory.data() == [{"path": "p/old", "got": "<h1>/p/new</h1>!"}]
    assert home.all_hits() == {"/p/new": 1}


def test_a_middleware_may_answer_in_the_place_of_the_site(home):
    summary, memory, _ = crawl(Pages, home, DOWNLOADER_MIDDLEWARES=path_of(Cached, Marking))
    assert memory.data() == [{"path": "", "got": "from the cache!"}]
    assert home.total == 0
    assert summary.request_ok == 1


def test_a_response_may_be_answered_with_a_request_within_the_retry_budget(home):
    home.route("/p/wall", lambda request: "captcha" if request.hits < 3 else "welcome")
    summary, memory, _ = crawl(Pages, home, paths=("/p/wall",), DOWNLOADER_MIDDLEWARES=path_of(Again))
    assert memory.data() == [{"path": "p/wall", "got": "welcome"}]
    assert (summary.retry, summary.request_failed) == (2, 0)
    home.route("/p/wall2", "captcha")
    summary, _, _ = crawl(
        Pages, home, paths=("/p/wall2",), DOWNLOADER_MIDDLEWARES=path_of(Again), SPIDER_MAX_RETRY_TIMES=2
    )
    assert home.hits("/p/wall2") == 3
    assert summary.exit_code == 6


@pytest.mark.parametrize(("rescuer", "text"), [(Rescue, "rescued"), (OtherWay, "<h1>/p/1</h1>")])
def test_a_failed_fetch_may_be_rescued(home, rescuer, text):
    class Dead(Pages):
        def start_requests(self):
            yield mw.Request("http://127.0.0.1:1/x", way_out=self.url("/p/1"))

    summary, memory, _ = crawl(Dead, home, DOWNLOADER_MIDDLEWARES=path_of(rescuer))
    assert [row["got"] for row in memory.data()] == [text]
    assert summary.request_failed == 0


def test_an_error_in_a_middleware_is_the_requests_failure(home):
    summary, _, _ = crawl(Pages, home, DOWNLOADER_MIDDLEWARES=path_of(Broken), SPIDER_MAX_RETRY_TIMES=1)
    assert (summary.reasons, summary.exit_code, summary.retry) == ({"RuntimeError": 1}, 6, 1)
    summary, _, _ = crawl(Pages, home, DOWNLOADER_MIDDLEWARES=path_of(Forgetful), SPIDER_MAX_RETRY_TIMES=0)
    assert summary.reasons == {"SpiderError": 1}


def test_middlewares_are_opened_and_closed_around_the_crawl(home):
    Opened.events.clear()
    crawl(Pages, home, DOWNLOADER_MIDDLEWARES=path_of(Opened), PROJECT_NAME="mine")
    assert Opened.events == ["open mine", "close"]


# -- statuses and further tries --------------------------------------------------------------------------------


def test_a_flaky_page_is_fetched_in_the_end(home):
    home.route("/flaky", "fine", fail_first=2, fail_status=503)
    summary, memory, _ = crawl(Pages, home, paths=("/flaky",))
    assert memory.data() == [{"path": "flaky", "got": "fine"}]
    assert (summary.request_ok, summary.request_failed, summary.retry, summary.pages) == (1, 0, 2, 3)


def test_tries_are_counted_and_a_status_without_hope_is_not_tried_again(home):
    home.route("/down", "no", status=500)
    summary, _, _ = crawl(Pages, home, paths=("/down", "/nothing-there"), SPIDER_MAX_RETRY_TIMES=2)
    assert home.all_hits() == {"/down": 3, "/nothing-there": 1}
    assert summary.reasons == {"HTTP 500": 1, "HTTP 404": 1}


def test_statuses_are_judged_as_set(home):
    home.route("/gone", "gone", status=404)
    home.route("/busy", "busy", status=503)
    summary, memory, _ = crawl(Pages, home, paths=("/gone", "/busy"), ACCEPT_STATUS_CODES=[404, 503])
    assert sorted(row["got"] for row in memory.data()) == ["busy", "gone"]
    summary, memory, _ = crawl(Pages, home, paths=("/gone", "/busy"), CHECK_STATUS_CODE=False)
    assert summary.request_ok == 2
    home.clear()
    crawl(Pages, home, paths=("/gone",), RETRY_STATUS_CODES=[404], SPIDER_MAX_RETRY_TIMES=1)
    assert home.hits("/gone") == 2


def test_tries_wait_for_the_back_off_and_hold_no_slot_meanwhile(home):
    home.route("/down", "no", status=500)
    summary, _memory, _ = crawl(
        Pages, home, paths=("/down", *(f"/p/{n}" for n in range(20))), SPIDER_THREAD_COUNT=1,
        SPIDER_MAX_RETRY_TIMES=1, SPIDER_RETRY_INTERVAL=0.6,
    )  # fmt: skip
    first, second = (hit.time for hit in home.log if hit.path == "/down")
    assert second - first >= 0.6
    meanwhile = [hit for hit in home.log if first < hit.time < second]
    assert meanwhile, "one slot, and the others did not wait for it"
    assert summary.request_ok == 20


def test_retry_after_cools_the_whole_site_and_is_capped(home):
    home.route("/limited", "no", status=429, headers={"Retry-After": "3600"})
    summary, _, _ = crawl(
        Pages, home, paths=("/limited", *(f"/p/{n}" for n in range(6))), SPIDER_THREAD_COUNT=1,
        SPIDER_MAX_RETRY_TIMES=1, RETRY_AFTER_MAX=0.7,
    )  # fmt: skip
    times = [hit.time for hit in home.log]
    assert times[1] - times[0] >= 0.69
    assert summary.reasons == {"HTTP 429": 1}
    assert summary.request_ok == 6


# -- limits per site -------------------------------------------------------------------------------------------


def paths(n):
    return tuple(f"/p/{i}" for i in range(n))


@pytest.mark.parametrize(("limit", "peak"), [(1, 1), (3, 3), (0, 16)])
def test_requests_at_once_per_site_are_limited_and_0_is_no_limit(site, limit, peak):
    async def when_all_have_come(request):
        while site.peak < peak:
            await asyncio.sleep(0.005)
        return "x"  # after a delay, in which one more would be seen

    site.route("/p/", when_all_have_come, prefix=True, delay=0.05)
    summary, _, _ = crawl(Pages, site, paths=paths(24), CONCURRENT_REQUESTS_PER_DOMAIN=limit)
    assert summary.request_ok == 24
    assert site.peak == peak


def test_a_delay_spaces_the_requests_to_a_site(home):
    class Noting(Pages):
        def start_requests(self):
            self.began = time.monotonic()
            yield from super().start_requests()

    _, _, made = crawl(Noting, home, paths=paths(5), DOWNLOAD_DELAY=0.1, RANDOMIZE_DOWNLOAD_DELAY=False)
    # From a moment before the first: how long each is on its way varies, and makes the gaps between hits vary.
    times = [hit.time - made.began for hit in home.log]
    assert len(times) == 5
    assert [n for n, at in enumerate(times) if at < 0.099 * n] == []


def test_two_sites_with_delays_are_crawled_side_by_side(home):
    with LocalSite() as other:
        other.route("/p/", "x", prefix=True)

        class Two(Pages):
            def start_requests(self):
                for n in range(6):
                    yield mw.Request(home.url(f"/p/{n}"))
                for n in range(6):
                    yield mw.Request(other.url(f"/p/{n}"))

        summary, _, _ = crawl(
            Two, home, DOWNLOAD_DELAY=0.15, RANDOMIZE_DOWNLOAD_DELAY=False, SPIDER_THREAD_COUNT=4
        )
        assert summary.request_ok == 12
        assert max(home.log[0].time, other.log[0].time) < min(home.log[-1].time, other.log[-1].time)
        apart = [abs(here.time - there.time) for here, there in zip(home.log, other.log, strict=True)]
        assert min(apart) < 0.075, "one delay for both would keep each two of them 0.15 s apart"


@pytest.mark.parametrize("tries", [1, 2])
@pytest.mark.parametrize("threads", [4, 16])
def test_a_dead_site_does_not_slow_a_live_one(home, threads, tries):
    """A minute's cool-down after the last tries, a minute's back-off after the first ones: the live site waits for neither."""
    dead = free_port()
    live = []

    class Mixed(Pages):
        def start_requests(self):
            for n in range(60):
                yield mw.Request(f"http://127.0.0.1:{dead}/{n}")
            for n in range(60):
                yield mw.Request(self.url(f"/p/{n}"))

        def parse(self, request, response):
            live.append(request.url)
            if len(live) == 60:
                self.stop("all live pages are there")

    summary, _, _ = crawl(
        Mixed, home, SPIDER_THREAD_COUNT=threads, SPIDER_MAX_RETRY_TIMES=tries - 1, RETRY_BACKOFF=60, CIRCUIT_COOLDOWN=60
    )  # fmt: skip
    assert (summary.request_ok, summary.reason) == (60, "all live pages are there")
    assert summary.elapsed < 25


@pytest.mark.parametrize("threads", [4, 16])
def test_requests_of_a_dead_site_come_to_their_end_beside_those_of_a_live_one(home, threads):
    dead = free_port()

    class Mixed(Pages):
        def start_requests(self):
            for n in range(60):
                yield mw.Request(f"http://127.0.0.1:{dead}/{n}")
                yield mw.Request(self.url(f"/p/{n}"))

    summary, _, _ = crawl(
        Mixed, home, SPIDER_THREAD_COUNT=threads, SPIDER_MAX_RETRY_TIMES=1, RETRY_BACKOFF=0.2, CIRCUIT_COOLDOWN=0.1
    )  # fmt: skip
    assert (summary.request_ok, summary.request_failed) == (60, 60)
    assert summary.reasons == {"connect": 60}


def test_a_site_that_hangs_does_not_slow_a_live_one(home):
    """It hangs until the live one is crawled, and has no more than its share of the slots all that time."""
    with LocalSite() as hanging:
        hung = []

        async def until_the_live_ones_are_there(request):
            while len(hung) < 60:
                await asyncio.sleep(0.01)
            return "x"

        def live(request):
            hung.append(hanging.total)
            return "x"

        hanging.route("/h/", until_the_live_ones_are_there, prefix=True)
        home.route("/p/", live, prefix=True)

        class Mixed(Pages):
            def start_requests(self):
                for n in range(30):
                    yield mw.Request(hanging.url(f"/h/{n}"))
                for n in range(60):
                    yield mw.Request(self.url(f"/p/{n}"))

        summary, _, _ = crawl(
            Mixed, home, SPIDER_THREAD_COUNT=8, CONCURRENT_REQUESTS_PER_DOMAIN=4, REQUEST_TIMEOUT=60, IDLE_TIMEOUT=60
        )  # fmt: skip
        assert (summary.request_ok, summary.request_failed, summary.retry) == (90, 0, 0)
        assert max(hung) <= 4


def test_requests_of_a_site_that_hangs_run_out_of_time_beside_those_of_a_live_one(home):
    with LocalSite() as hanging:
        hanging.route("/h/", "", prefix=True, hang=True)

        class Mixed(Pages):
            def start_requests(self):
                for n in range(15):
                    yield mw.Request(hanging.url(f"/h/{n}"), timeout=0.5)
                    yield mw.Request(self.url(f"/p/{n}"))

        summary, _, _ = crawl(
            Mixed, home, SPIDER_THREAD_COUNT=8, CONCURRENT_REQUESTS_PER_DOMAIN=4, SPIDER_MAX_RETRY_TIMES=0,
            CIRCUIT_FAILURE_THRESHOLD=4, CIRCUIT_COOLDOWN=0.1,
        )  # fmt: skip
        assert (summary.request_ok, summary.request_failed) == (15, 15)


def test_a_failing_site_cools_down_and_is_tried_again(home, capsys):
    home.route("/bad/", "no", status=500, prefix=True)
    began = time.monotonic()
    summary, _, _ = crawl(
        Pages, home, paths=tuple(f"/bad/{n}" for n in range(6)), SPIDER_THREAD_COUNT=1, SPIDER_MAX_RETRY_TIMES=0,
        CIRCUIT_FAILURE_THRESHOLD=3, CIRCUIT_COOLDOWN=0.6,
    )  # fmt: skip
    assert summary.request_failed == 6
    times = [hit.time for hit in home.log]
    assert times[3] - times[2] >= 0.59
    assert "failed 3 times in a row" in capsys.readouterr().err
    assert time.monotonic() - began < 4


def test_a_cooled_site_waits_in_the_queue_and_the_run_waits_for_it(home, monkeypatch):
    """A longer cool-down goes through the delayed set."""
    monkeypatch.setattr("netspy.engine.claimer._COOLING_S", 0.1)
    home.route("/limited", "no", status=429, headers={"Retry-After": "1"})
    summary, _, _ = crawl(
        Pages, home, paths=("/limited", *paths(3)), SPIDER_THREAD_COUNT=1, SPIDER_MAX_RETRY_TIMES=0
    )
    times = [hit.time for hit in home.log]
    assert len(times) == 4
    assert times[1] - times[0] >= 0.99
    assert (summary.request_ok, summary.request_failed) == (3, 1)
