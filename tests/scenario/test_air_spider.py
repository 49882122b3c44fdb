"""An AirSpider as its users meet it: callbacks, yields, hooks, settings, limits. In this process, on a local site."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from air_support import Air, crawl

import netspy as mw


@pytest.fixture(autouse=True)
def _folder(workdir):
    """Failed requests and dead letters go to a folder of their own."""


@pytest.fixture
def home(site):
    site.route("/", "<h1>home</h1>")
    site.route("/p/", lambda request: f"<h1>{request.path}</h1>", prefix=True)
    return site


def ok(summary):
    assert summary.outcome == "finished"
    assert summary.exit_code == 0
    return summary


# -- kinds of callbacks ----------------------------------------------------------------------------------------


class Title:
    def row(self, response):
        return {"title": response.css("h1::text").get()}


class AsGenerator(Title, Air):
    def parse(self, request, response):
        yield self.row(response)


class AsList(Title, Air):
    def parse(self, request, response):
        return [self.row(response)]


class AsTuple(Title, Air):
    def parse(self, request, response):
        return (self.row(response), None)


class AsOneValue(Title, Air):
    def parse(self, request, response):
        return self.row(response)


class AsIterator(Title, Air):
    def parse(self, request, response):
        return map(self.row, [response])


class AsCoroutine(Title, Air):
    async def parse(self, request, response):
        await asyncio.sleep(0)
        return [self.row(response)]


class AsCoroutineOneValue(Title, Air):
    async def parse(self, request, response):
        return self.row(response)


class AsAsyncGenerator(Title, Air):
    async def parse(self, request, response):
        await asyncio.sleep(0)
        yield self.row(response)


class AsStatic(Title, Air):
    @staticmethod
    def parse(request, response):
        yield {"title": response.css("h1::text").get()}


class AsWrapped(Title, Air):
    """A plain callback that hands on to an async one gives an awaitable."""

    def parse(self, request, response):
        return self.later(response)

    async def later(self, response):
        return [self.row(response)]


class AsHandedOnGenerator(Title, Air):
    def parse(self, request, response):
        return self.later(response)

    async def later(self, response):
        yield self.row(response)


@pytest.mark.parametrize(
    "spider",
    [
        AsGenerator, AsList, AsTuple, AsOneValue, AsIterator, AsCoroutine, AsCoroutineOneValue, AsAsyncGenerator,
        AsStatic, AsWrapped, AsHandedOnGenerator,
    ],
)  # fmt: skip
def test_a_callback_may_be_of_any_kind(home, spider):
    summary, memory, _ = crawl(spider, home)
    ok(summary)
    assert memory.data() == [{"title": "home"}]
    assert summary.parse_error == 0


class SeedsList(Air):
    def start_requests(self):
        return [mw.Request(self.url("/p/1")), self.url("/p/2")]

    def parse(self, request, response):
        yield {"url": request.url}


class SeedsAsync(SeedsList):
    async def start_requests(self):
        await asyncio.sleep(0)
        yield mw.Request(self.url("/p/1"))
        yield self.url("/p/2")


class SeedsCoroutine(SeedsList):
    async def start_requests(self):
        return [mw.Request(self.url("/p/1")), self.url("/p/2")]


class SeedsUrls(SeedsList):
    start_requests = mw.AirSpider.start_requests

    @property
    def start_urls(self):
        return [self.url("/p/1"), self.url("/p/2")]


@pytest.mark.parametrize("spider", [SeedsList, SeedsAsync, SeedsCoroutine, SeedsUrls])
def test_seeds_may_come_in_any_way(home, spider):
    summary, memory, _ = crawl(spider, home)
    ok(summary)
    assert sorted(row["url"] for row in memory.data()) == [home.url("/p/1"), home.url("/p/2")]


def test_seeds_may_be_items_too(home):
    class Both(Air):
        def start_requests(self):
            yield {"from": "seeding"}
            yield mw.Request(self.url("/"))

        def parse(self, request, response):
            yield {"from": "page"}

    summary, memory, _ = crawl(Both, home)
    ok(summary)
    assert sorted(row["from"] for row in memory.data()) == ["page", "seeding"]


# -- what may be yielded ---------------------------------------------------------------------------------------


class Product(mw.Item):
    __table_name__ = "products"
    __unique_key__ = ("sku",)


class Price(mw.UpdateItem):
    __table_name__ = "products"
    __update_key__ = ("sku",)


def test_a_callback_may_yield_requests_items_updates_dicts_callables_none_and_lists_of_them(home):
    called = []

    class Everything(Air):
        def parse(self, request, response):
            yield None
            yield [
                mw.Request(self.url("/p/1"), callback=self.detail),
                [{"n": 1}, (Product(sku="a", name="A"), None)],
            ]
            yield Price(sku="a", price=3)
            yield lambda: called.append(threading.current_thread().name)

        def detail(self, request, response):
            yield {"n": 2}

    summary, memory, _ = crawl(Everything, home)
    ok(summary)
    assert sorted(row["n"] for row in memory.data()) == [1, 2]
    assert memory.data("products") == [{"sku": "a", "name": "A"}]
    assert memory.updates == [("products", {"sku": "a", "price": 3}, ("sku",))]
    assert called == ["netspy-callback-0"]
    assert (summary.items, summary.request_ok, summary.parse_error) == (4, 2, 0)


def test_a_wrong_yield_costs_only_itself_and_is_reported_with_its_line(home, capsys):
    class Wrong(Air):
        paths = ("/", "/p/1")

        def parse(self, request, response):
            yield {"n": 1}
            yield 42
            yield mw.Request(self.url("/p/2"), callback="parse_detial")
            yield mw.Request("not a url")
            yield {"n": 2}

        def parse_detail(self, request, response):
            """Only here to be suggested."""

    summary, memory, _ = crawl(Wrong, home)
    ok(summary)
    log = capsys.readouterr().err
    line = Wrong.parse.__code__.co_firstlineno + 2
    assert f"Wrong.parse (test_air_spider.py:{line}), while handling {home.url('/')}" in log
    assert "yielded int 42" in log
    assert "'parse_detial'" in log
    assert "did you mean 'parse_detail'" in log
    assert "not a url" in log
    assert "Traceback" not in log
    assert [row["n"] for row in memory.data()].count(2) == 2
    assert summary.parse_error == 4
    assert summary.invalid_url == 2


def test_a_yielded_callable_that_raises_costs_only_itself(home, capsys):
    class Calls(Air):
        def parse(self, request, response):
            yield {"n": 1}
            yield self.broken
            yield {"n": 2}

        def broken(self):
            raise RuntimeError("no luck")

    summary, memory, _ = crawl(Calls, home)
    ok(summary)
    assert [row["n"] for row in memory.data()] == [1, 2]
    assert home.hits("/") == 1
    assert "no luck" in capsys.readouterr().err


def test_an_item_that_cannot_be_stored_costs_only_itself(home, capsys):
    class Bad(mw.Item):
        def pre_to_db(self):
            raise ValueError("bad price")

    class Items(Air):
        def parse(self, request, response):
            yield {"n": 1}
            yield Bad(a=1)
            yield {"n": 2}

    summary, memory, _ = crawl(Items, home)
    ok(summary)
    assert [row["n"] for row in memory.data()] == [1, 2]
    assert "bad price" in capsys.readouterr().err
    assert home.hits("/") == 1


def test_a_callback_that_raises_keeps_what_it_yielded_is_tried_again_and_fails_with_its_reason(
    home, capsys, workdir
):
    class Raises(Air):
        def parse(self, request, response):
            yield {"try": request.retry_times}
            yield mw.Request(self.url("/p/1"), callback=self.detail)
            raise KeyError("price")

        def detail(self, request, response):
            yield {"try": "detail"}

    summary, memory, _ = crawl(Raises, home, SPIDER_MAX_RETRY_TIMES=2)
    ok(summary)
    assert [row["try"] for row in memory.data() if row["try"] != "detail"] == [0, 1, 2]
    assert [row["try"] for row in memory.data()].count("detail") == 1
    assert (summary.request_ok, summary.request_failed, summary.retry) == (1, 1, 2)
    assert summary.reasons == {"KeyError": 1}
    assert summary.parse_error == 3
    log = capsys.readouterr().err
    assert f"test_air_spider.py:{Raises.parse.__code__.co_firstlineno + 3}) raised KeyError: 'price'" in log
    record = (workdir / "failed_requests.jsonl").read_text()
    assert '"reason":"KeyError"' in record
    assert '"attempts":3' in record


@pytest.mark.parametrize("kind", ["plain", "async", "async generator"])
def test_a_raising_callback_of_every_kind_is_a_failed_request(home, kind):
    class Plain(Air):
        def parse(self, request, response):
            raise RuntimeError("x")

    class Async(Air):
        async def parse(self, request, response):
            raise RuntimeError("x")

    class AsyncGenerator(Air):
        async def parse(self, request, response):
            yield {"n": 1}
            raise RuntimeError("x")

    spider = {"plain": Plain, "async": Async, "async generator": AsyncGenerator}[kind]
    summary, memory, _ = crawl(spider, home, SPIDER_MAX_RETRY_TIMES=1)
    assert summary.outcome == "all_failed"
    assert summary.exit_code == 6
    assert summary.reasons == {"RuntimeError": 1}
    assert home.hits("/") == 2
    assert len(memory.rows) == (2 if kind == "async generator" else 0)


def test_not_retry_error_in_a_callback_drops_the_page_but_keeps_what_it_yielded(home):
    class Drops(Air):
        def parse(self, request, response):
            yield {"n": 1}
            raise mw.NotRetryError("sold out")

    summary, memory, _ = crawl(Drops, home)
    assert memory.data() == [{"n": 1}]
    assert (summary.dropped, summary.retry, summary.request_failed) == (1, 0, 0)


def test_an_unknown_callback_name_at_seeding_is_named_and_the_others_go_on(home, capsys):
    class Typo(Air):
        def start_requests(self):
            yield mw.Request(self.url("/p/1"), callback="prase")
            yield mw.Request(self.url("/p/2"))

        def parse(self, request, response):
            yield {"n": 1}

    summary, memory, _ = crawl(Typo, home)
    ok(summary)
    assert len(memory.rows) == 1
    log = capsys.readouterr().err
    assert "Typo has no method 'prase'; did you mean 'parse'?" in log
    assert f"test_air_spider.py:{Typo.start_requests.__code__.co_firstlineno + 1}" in log


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


# -- inside a callback -----------------------------------------------------------------------------------------


class FetchesAsync(Air):
    async def parse(self, request, response):
        first = await mw.Request(self.url("/p/1")).fetch()
        second = await mw.Request(self.url("/p/2")).download()
        yield {"got": [first.css("h1::text").get(), second.css("h1::text").get()]}


class FetchesPlain(Air):
    def parse(self, request, response):
        pages = [mw.Request(self.url(path)).download() for path in ("/p/1", "/p/2")]
        yield {"got": [page.css("h1::text").get() for page in pages]}


class FetchesInSeeds(Air):
    def start_requests(self):
        page = mw.Request(self.url("/p/1")).download()
        self.first = page.css("h1::text").get()
        yield mw.Request(self.url("/p/2"))

    def parse(self, request, response):
        yield {"got": [self.first, response.css("h1::text").get()]}


@pytest.mark.parametrize("spider", [FetchesAsync, FetchesPlain, FetchesInSeeds])
@pytest.mark.parametrize("limit", [0, 1])
def test_a_callback_may_download_on_its_way(home, spider, limit):
    summary, memory, _ = crawl(spider, home, CONCURRENT_REQUESTS_PER_DOMAIN=limit, SPIDER_THREAD_COUNT=2)
    ok(summary)
    assert memory.data() == [{"got": ["/p/1", "/p/2"]}]
    assert summary.pages == home.total


def test_a_sub_download_goes_through_the_middlewares_and_its_error_is_the_callbacks(home, monkeypatch):
    class Sub(Air):
        def parse(self, request, response):
            try:
                mw.Request("http://127.0.0.1:1/").download()
            except mw.RequestError as error:
                yield {"error": error.reason}

        def download_midware(self, request):
            request.requests_kwargs["headers"] = {"X-Mid": "1"}

    summary, memory, _ = crawl(Sub, home)
    ok(summary)
    assert memory.data() == [{"error": "connect"}]


def test_counters_of_ones_own_arguments_and_the_logger_work(home, capsys):
    class Uses(Air):
        section = "none"

        def parse(self, request, response):
            self.stats.inc("captchas", 2)
            self.logger.warning("section {} of {}", self.section, self.arguments["section"])

    summary, _, _ = crawl(Uses, home, section="tech")
    assert summary.user == {"captchas": 2}
    assert "section tech of tech" in capsys.readouterr().err


def test_a_counter_with_a_name_of_ours_is_refused_at_the_call(home):
    class Clash(Air):
        def parse(self, request, response):
            self.stats.inc("items")

    summary, _, _ = crawl(Clash, home, SPIDER_MAX_RETRY_TIMES=0)
    assert summary.reasons == {"ValueError": 1}


def test_an_argument_that_would_replace_a_method_is_refused(home):
    with pytest.raises(mw.ConfigError, match="would replace the method parse"):
        Air(site=home, parse="x")


def test_cb_kwargs_reach_the_callback_and_may_be_anything_in_one_process(home):
    marker = object()

    class Kwargs(Air):
        def start_requests(self):
            yield mw.Request(self.url("/"), cb_kwargs={"depth": 3, "marker": marker})

        def parse(self, request, response, depth, marker):
            yield {"depth": depth, "same": marker is globals_marker}

    globals_marker = marker
    summary, memory, _ = crawl(Kwargs, home)
    ok(summary)
    assert memory.data() == [{"depth": 3, "same": True}]


def test_a_callback_that_does_not_take_its_cb_kwargs_is_a_failure_with_a_reason(home):
    class Kwargs(Air):
        def start_requests(self):
            yield mw.Request(self.url("/"), cb_kwargs={"depth": 3})

        def parse(self, request, response):
            """Takes no depth."""

    summary, _, _ = crawl(Kwargs, home, SPIDER_MAX_RETRY_TIMES=0)
    assert summary.reasons == {"TypeError": 1}


def test_lambdas_and_functions_are_callbacks_in_one_process(home):
    def outside(request, response):
        yield {"from": "function"}

    class Functions(Air):
        def start_requests(self):
            yield mw.Request(self.url("/p/1"), callback=lambda request, response: {"from": "lambda"})
            yield mw.Request(self.url("/p/2"), callback=outside)

    summary, memory, _ = crawl(Functions, home)
    ok(summary)
    assert sorted(row["from"] for row in memory.data()) == ["function", "lambda"]


# -- what a request may say ------------------------------------------------------------------------------------


def test_smaller_priorities_come_first_and_equal_ones_in_order(home):
    class Ordered(Air):
        def start_requests(self):
            yield [mw.Request(self.url(f"/p/{n}"), priority=300 - n % 2) for n in range(6)]

        def parse(self, request, response):
            """Nothing."""

    ok(crawl(Ordered, home, SPIDER_THREAD_COUNT=1)[0])
    assert [hit.path for hit in home.log] == ["/p/1", "/p/3", "/p/5", "/p/0", "/p/2", "/p/4"]


def test_a_page_is_fetched_once_unless_its_request_says_otherwise(home):
    class Repeats(Air):
        def start_requests(self):
            for _ in range(3):
                yield mw.Request(self.url("/p/once"))
                yield mw.Request(self.url("/p/always"), filter_repeat=False)

        def parse(self, request, response):
            """Nothing."""

    summary = ok(crawl(Repeats, home)[0])
    assert home.all_hits() == {"/p/once": 1, "/p/always": 3}
    assert summary.dedup_dropped == 2


def test_spellings_of_one_address_are_one_page(home):
    class Spellings(Air):
        def start_requests(self):
            for path in ("/p/1", "/p/./1", "/p/%31", "/p/1#x"):
                yield mw.Request(self.url(path))
            yield mw.Request(self.url("/p/q?q=1"))
            yield mw.Request(self.url("/p/q"), params={"q": 1})
            yield mw.Request(self.url("/p/q?q=1&utm_source=a"))

        def parse(self, request, response):
            """Nothing."""

    ok(crawl(Spellings, home)[0])
    assert home.total == 3
    home.clear()
    ok(crawl(Spellings, home, URL_IGNORE_PARAMS=["utm_*"])[0])
    assert home.total == 2


def test_auto_request_false_calls_back_without_a_download(home):
    class NoDownload(Air):
        def start_requests(self):
            yield mw.Request("task:17", auto_request=False)

        def parse(self, request, response):
            yield {"url": request.url, "response": response}

    summary, memory, _ = crawl(NoDownload, home)
    ok(summary)
    assert memory.data() == [{"url": "task:17", "response": None}]
    assert home.total == 0


def test_a_request_may_name_the_encoding_of_its_answer(home):
    home.route("/gbk", "中文".encode("gbk"), content_type="text/plain; charset=utf-8")

    class Encoded(Air):
        def start_requests(self):
            yield mw.Request(self.url("/gbk"), encoding="gbk")

        def parse(self, request, response):
            yield {"text": response.text}

    assert crawl(Encoded, home)[1].data() == [{"text": "中文"}]


def test_a_request_object_may_be_yielded_again_and_again(home):
    class Same(Air):
        def parse(self, request, response):
            if response.request is request and request.meta < 3:
                request.meta += 1
                request.filter_repeat = False
                yield request

        def start_requests(self):
            yield mw.Request(self.url("/"), meta=0)

    ok(crawl(Same, home)[0])
    assert home.hits("/") == 4


# -- settings --------------------------------------------------------------------------------------------------


class Threads(Air):
    __custom_setting__ = {"SPIDER_THREAD_COUNT": 2, "ITEM_BATCH_SIZE": 2}

    def parse(self, request, response):
        yield {"threads": self.settings.SPIDER_THREAD_COUNT, "batch": self.settings.ITEM_BATCH_SIZE}


def test_keyword_beats_environment_beats_class_beats_file_beats_default(home, workdir, monkeypatch):
    assert crawl(Threads, home)[1].data() == [{"threads": 2, "batch": 2}]
    (workdir / "setting.py").write_text("SPIDER_THREAD_COUNT = 9\nITEM_MAX_CACHED_COUNT = 77\n")
    made = Threads(site=home)
    assert (made.settings.SPIDER_THREAD_COUNT, made.settings.ITEM_MAX_CACHED_COUNT) == (2, 77)
    monkeypatch.setenv("NETSPY_SPIDER_THREAD_COUNT", "3")
    assert crawl(Threads, home)[1].data() == [{"threads": 3, "batch": 2}]
    assert crawl(Threads, home, SPIDER_THREAD_COUNT=4)[1].data() == [{"threads": 4, "batch": 2}]
    assert crawl(Threads, home, thread_count=5)[1].data() == [{"threads": 5, "batch": 2}]
    origins = Threads(site=home, thread_count=5).load_settings().origins
    assert origins["SPIDER_THREAD_COUNT"] == "keyword"
    assert origins["ITEM_BATCH_SIZE"] == "Threads.__custom_setting__"
    assert origins["PROGRESS"] == "Threads.__custom_setting__"


def test_settings_belong_to_the_instance(home):
    one, two = Threads(site=home, thread_count=7), Threads(site=home)
    assert (one.settings.SPIDER_THREAD_COUNT, two.settings.SPIDER_THREAD_COUNT) == (7, 2)


# -- ends ------------------------------------------------------------------------------------------------------


class Endless(Air):
    __custom_setting__ = {"SPIDER_THREAD_COUNT": 2}

    def parse(self, request, response):
        n = int(request.url.rpartition("/")[2] or 0)
        yield {"n": n}
        yield mw.Request(self.url(f"/p/{n + 1}"))


class StopsItself(Endless):
    def parse(self, request, response):
        yield from super().parse(request, response)
        if request.url.endswith("/5"):
            self.stop("seen enough")


def test_a_callback_may_stop_the_run_with_a_reason(home):
    summary, memory, _ = crawl(StopsItself, home)
    assert (summary.outcome, summary.reason, summary.exit_code) == ("stopped", "seen enough", 0)
    assert {"n": 5} in memory.data()
    assert home.total <= 8


@pytest.mark.parametrize(
    ("limit", "value", "most"),
    [("SPIDER_MAX_PAGES", 5, 8), ("SPIDER_MAX_ITEMS", 5, 400), ("SPIDER_MAX_RUNTIME", 0.3, 20000)],
)
def test_a_limit_ends_the_run_in_good_order(home, limit, value, most):
    summary, memory, _ = crawl(Endless, home, **{limit: value}, BUFFER_FLUSH_INTERVAL=0.01)
    assert summary.outcome == "limit"
    assert summary.exit_code == 0
    assert summary.reason == f"{limit}={value:g} reached"
    assert len(memory.rows) == summary.items >= 5
    assert home.total <= most
    assert summary.elapsed < 5


def test_too_many_errors_end_the_run(home):
    class Bad(Endless):
        paths = ("/p/0", "/bad/0")

        def parse(self, request, response):
            yield mw.Request(self.url(f"/p/{request.url[-1]}1"))
            yield mw.Request(self.url(f"/bad/{home.total}"))

    summary, _, _ = crawl(Bad, home, SPIDER_MAX_ERRORS=3)
    assert summary.outcome == "limit"
    assert summary.reason == "SPIDER_MAX_ERRORS=3 reached"
    assert 3 <= summary.request_failed <= 6


def test_all_failed_is_6_some_failed_is_0_nothing_to_do_is_0_or_9(home, capsys):
    class Some(Air):
        def parse(self, request, response):
            yield {"n": 1}

    assert crawl(Some, home, paths=("/no1", "/no2"))[0].exit_code == 6
    assert crawl(Some, home, paths=("/no1", "/p/1"))[0].exit_code == 0
    capsys.readouterr()
    summary = crawl(Some, home, paths=())[0]
    assert (summary.outcome, summary.exit_code) == ("nothing_to_do", 0)
    assert "WARNING" in capsys.readouterr().err
    assert crawl(Some, home, paths=(), FAIL_ON_NOTHING_TO_DO=True)[0].exit_code == 9


def test_a_raising_start_requests_crawls_what_it_had_and_exits_4(home, capsys):
    class Raises(Air):
        def start_requests(self):
            yield mw.Request(self.url("/p/1"))
            raise OSError("list is gone")

        def parse(self, request, response):
            yield {"n": 1}

    summary, memory, _ = crawl(Raises, home)
    assert (summary.outcome, summary.exit_code) == ("seeding_failed", 4)
    assert len(memory.rows) == 1
    assert "OSError: list is gone" in capsys.readouterr().err


def test_a_hung_callback_ends_in_failed_and_the_run_goes_on(home):
    release = threading.Event()

    class Hangs(Air):
        paths = ("/p/hang", "/p/fine")

        def parse(self, request, response):
            if request.url.endswith("hang"):
                release.wait(60)
            yield {"url": request.url}

    try:
        summary, memory, _ = crawl(Hangs, home, SPIDER_TASK_MAX_SECONDS=0.4, SPIDER_MAX_RETRY_TIMES=1)
    finally:
        release.set()
    ok(summary)
    assert summary.reasons == {"CallbackTimeoutError": 1}
    assert memory.data() == [{"url": home.url("/p/fine")}]
    assert summary.elapsed < 8


@pytest.mark.parametrize("kind", ["waiting", "busy"])
def test_more_hung_callbacks_than_threads_do_not_stop_the_others(home, kind):
    release = threading.Event()

    class Hangs(Air):
        paths = (*(f"/p/hang{n}" for n in range(4)), *(f"/p/{n}" for n in range(10)))

        def parse(self, request, response):
            while "hang" in request.url and not release.is_set():
                if kind == "waiting":
                    release.wait(60)
                time.sleep(0)
            yield {"url": request.url}

    try:
        summary, memory, _ = crawl(
            Hangs, home, SPIDER_TASK_MAX_SECONDS=0.4, SPIDER_MAX_RETRY_TIMES=0, CALLBACK_MAX_THREADS=2
        )
    finally:
        release.set()
    ok(summary)
    assert summary.reasons == {"CallbackTimeoutError": 4}
    assert len(memory.data()) == 10
    assert summary.elapsed < 10


def test_a_hung_async_callback_ends_in_failed_and_the_run_goes_on(home):
    class Hangs(Air):
        paths = ("/p/hang", "/p/fine")

        async def parse(self, request, response):
            if request.url.endswith("hang"):
                await asyncio.sleep(60)
            yield {"url": request.url}

    summary, memory, _ = crawl(Hangs, home, SPIDER_TASK_MAX_SECONDS=0.4, SPIDER_MAX_RETRY_TIMES=1)
    ok(summary)
    assert summary.reasons == {"CallbackTimeoutError": 1}
    assert memory.data() == [{"url": home.url("/p/fine")}]


def test_blocking_callbacks_run_side_by_side(home):
    together = threading.Barrier(4)

    class Blocks(Air):
        paths = tuple(f"/p/{n}" for n in range(4))

        def parse(self, request, response):
            together.wait(20)  # passes only when four callbacks are in it at once
            yield {"n": 1}

    summary, memory, _ = crawl(Blocks, home)
    ok(summary)
    assert len(memory.rows) == 4


def test_a_spider_may_run_twice_and_twice_at_once(home):
    class Again(Air):
        def parse(self, request, response):
            yield {"n": 1}

    made = Again(site=home, item_handler=lambda rows: None)
    assert made.run().items == 1
    assert made.run().items == 1, "the second run counts for itself"
    results = []
    threads = [threading.Thread(target=lambda: results.append(crawl(Again, home)[0].items)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert results == [1, 1]


def test_a_small_run_starts_and_ends_quickly(home):
    class Small(Air):
        def parse(self, request, response):
            yield {"n": 1}

    began = time.monotonic()
    crawl(Small, home)
    assert time.monotonic() - began < 1.5
