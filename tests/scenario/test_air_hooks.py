"""The hooks of an AirSpider: failures, validate, download_midware, start and end. In this process, on a local site."""

from __future__ import annotations

import asyncio

import pytest
from air_support import Air, crawl, ok

import netspy as mw

pytestmark = pytest.mark.usefixtures("workdir")


# -- hooks -----------------------------------------------------------------------------------------------------


def both_ways(plain):
    """The same spider with its hooks as they are and as `async def`."""
    asynchronous = {}
    for name, function in vars(plain).items():
        if name.startswith("hook_"):
            raise AssertionError(name)
        if callable(function) and name in HOOKS:
            asynchronous[name] = made_async(function)
    return [plain, type(f"Async{plain.__name__}", (plain,), asynchronous)]


HOOKS = {
    "failed_request", "exception_request", "validate", "download_midware", "start_callback", "end_callback", "on_failed",
    "on_alert",
}  # fmt: skip


def made_async(function):
    async def hook(*args):
        await asyncio.sleep(0)
        result = function(*args)
        return list(result) if hasattr(result, "__next__") else result

    return hook


class Failing(Air):
    """Every hook of a request that fails for good."""

    def start_requests(self):
        self.seen = []
        yield mw.Request(self.url("/gone"), errback=self.on_failed, cb_kwargs={"k": 1})
        yield mw.Request(self.url("/p/1"), errback="on_failed")

    def parse(self, request, response, k=None):
        yield {"from": "parse"}

    def exception_request(self, request, response, exception):
        self.seen.append(
            ("exception_request", response.status_code, type(exception).__name__, request.retry_times)
        )
        yield {"from": "exception_request"}

    def on_failed(self, request, response, exception):
        self.seen.append(("errback", response.status_code, str(exception)))
        yield {"from": "errback"}
        yield mw.Request(self.url("/p/2"))

    def failed_request(self, request, response):
        self.seen.append(("failed_request", response.status_code))
        yield {"from": "failed_request"}


@pytest.mark.parametrize("spider", both_ways(Failing))
def test_the_hooks_of_a_failing_request_come_in_order_and_may_yield(home, spider):
    home.route("/gone", "no", status=503)
    summary, memory, made = crawl(spider, home, SPIDER_MAX_RETRY_TIMES=2)
    ok(summary)
    url = home.url("/gone")
    assert made.seen == [
        ("exception_request", 503, "HttpStatusError", 0),
        ("exception_request", 503, "HttpStatusError", 1),
        ("errback", 503, f"HTTP 503 for {url}"),
        ("failed_request", 503),
    ]
    stored = sorted(row["from"] for row in memory.data())
    assert stored == ["errback", "exception_request", "exception_request", "failed_request", "parse", "parse"]
    assert home.hits("/p/2") == 1
    assert summary.reasons == {"HTTP 503": 1}


def test_a_failed_fetch_has_no_response_for_its_hooks(home):
    class Dead(Air):
        seen = ()

        def start_requests(self):
            yield mw.Request("http://127.0.0.1:1/", errback=self.oops)

        def parse(self, request, response):
            """Never called."""

        def oops(self, request, response, exception):
            self.seen = (response, type(exception).__name__, exception.reason)

    summary, _, made = crawl(Dead, home, SPIDER_MAX_RETRY_TIMES=0)
    assert summary.outcome == "all_failed"
    assert made.seen == (None, "DownloadError", "connect")


def test_a_hook_that_raises_is_counted_and_the_request_still_fails_properly(home, capsys):
    class Broken(Air):
        paths = ("/gone", "/")

        def parse(self, request, response):
            yield {"n": 1}

        def failed_request(self, request, response):
            raise ValueError("hook is broken")

        def start_callback(self):
            raise ValueError("start is broken")

    summary, memory, _ = crawl(Broken, home)
    ok(summary)
    assert summary.request_failed == 1
    assert summary.callback_error == 2
    log = capsys.readouterr().err
    assert "hook is broken" in log
    assert "start is broken" in log
    assert len(memory.rows) == 1


class Judging(Air):
    paths = ("/p/drop", "/p/again", "/p/never", "/p/fine", "/p/broken")

    def validate(self, request, response):
        path = request.url.rpartition("/")[2]
        if path == "drop":
            return False
        if path == "again" and request.retry_times < 2:
            raise mw.ValidationError("half a page")
        if path == "never":
            raise mw.NotRetryError("not wanted")
        if path == "broken":
            raise ZeroDivisionError("in validate")
        return True

    def parse(self, request, response):
        yield {"path": request.url.rpartition("/")[2]}


@pytest.mark.parametrize("spider", both_ways(Judging))
@pytest.mark.parametrize("async_callback", [False, True])
def test_validate_drops_retries_refuses_or_passes(home, spider, async_callback):
    if async_callback:

        class Judging2(spider):
            async def parse(self, request, response):
                yield {"path": request.url.rpartition("/")[2]}

        spider = Judging2
    summary, memory, _ = crawl(spider, home, SPIDER_MAX_RETRY_TIMES=2)
    ok(summary)
    assert sorted(row["path"] for row in memory.data()) == ["again", "fine"]
    assert home.hits("/p/again") == 3
    assert home.hits("/p/never") == 1
    assert home.hits("/p/broken") == 3
    assert summary.dropped == 2
    assert summary.reasons == {"ZeroDivisionError": 1}
    assert summary.retry == 4


class Midware(Air):
    paths = ("/p/1",)
    mode = ""

    def download_midware(self, request):
        if self.mode == "header":
            request.requests_kwargs["headers"] = {"X-Spider": "yes"}
            return request
        if self.mode == "other":
            return mw.Request(self.url("/p/other"))
        if self.mode == "wrong":
            return 7
        if self.mode == "raise":
            raise mw.NotRetryError("not this one")
        return None

    def parse(self, request, response):
        yield {"got": response.css("h1::text").get()}


@pytest.mark.parametrize("spider", both_ways(Midware))
def test_download_midware_changes_replaces_or_leaves_the_request(home, spider):
    for mode, path in (("", "/p/1"), ("header", "/p/1"), ("other", "/p/other")):
        summary, memory, _ = crawl(spider, home, mode=mode)
        ok(summary)
        assert memory.data() == [{"got": path}]
        assert home.log[-1].headers.get("x-spider") == ("yes" if mode == "header" else None)


@pytest.mark.parametrize("spider", both_ways(Midware))
def test_a_download_midware_at_fault_fails_or_drops_the_request_with_a_reason(home, spider):
    summary, _, _ = crawl(spider, home, mode="wrong", SPIDER_MAX_RETRY_TIMES=0)
    assert summary.reasons == {"SpiderError": 1}
    summary, _, _ = crawl(spider, home, mode="raise")
    assert summary.dropped == 1
    assert home.total == 0


def test_a_request_may_have_a_download_midware_of_its_own(home):
    class Own(Air):
        def start_requests(self):
            yield mw.Request(self.url("/p/1"), download_midware=self.mark)
            yield mw.Request(self.url("/p/2"), download_midware="mark")
            yield mw.Request(self.url("/p/3"))

        def mark(self, request):
            request.requests_kwargs["headers"] = {"X-Mark": "1"}

        def parse(self, request, response):
            """Nothing."""

    ok(crawl(Own, home)[0])
    assert {hit.path: hit.headers.get("x-mark") for hit in home.log} == {
        "/p/1": "1",
        "/p/2": "1",
        "/p/3": None,
    }


class Around(Air):
    events = ()

    def start_callback(self):
        self.events = ["start"]

    def parse(self, request, response):
        self.events.append("page")

    def end_callback(self):
        self.events.append("end")


@pytest.mark.parametrize("spider", both_ways(Around))
def test_start_and_end_callback_are_called_once_around_the_crawl(home, spider):
    _, _, made = crawl(spider, home)
    assert made.events == ["start", "page", "end"]


def test_a_full_disk_for_failed_requests_is_said_and_ends_nothing(home, capsys):
    class Fails(Air):
        paths = ("/gone1", "/gone2", "/p/1")

        def parse(self, request, response):
            yield {"n": 1}

    summary, _, _ = crawl(Fails, home, FAILED_REQUEST_PATH="/dev/full")
    ok(summary)
    assert summary.request_failed == 2
    log = capsys.readouterr().err
    assert log.count("can't be listed in /dev/full: No space left on device") == 1
    assert log.count("failed and not listed: ") == 2
    assert home.url("/gone1") in log


def test_a_full_disk_at_a_stop_is_said(home, capsys):
    class Stops(Air):
        paths = tuple(f"/p/{n}" for n in range(50))

        def parse(self, request, response):
            self.stop("enough")

    summary, _, _ = crawl(Stops, home, FAILED_REQUEST_PATH="/dev/full", SPIDER_THREAD_COUNT=1)
    assert summary.outcome == "stopped"
    assert "could not be kept in /dev/full: No space left on device" in capsys.readouterr().err
