"""An AirSpider as its users meet it: what callbacks and requests can do, settings, limits. In this process, on a local site."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from air_support import Air, crawl, ok

import netspy as mw

pytestmark = pytest.mark.usefixtures("workdir")


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
    ("limit", "value", "least", "most"),
    [("SPIDER_MAX_PAGES", 5, 5, 8), ("SPIDER_MAX_ITEMS", 5, 5, 400)],
)
def test_a_limit_ends_the_run_in_good_order(home, limit, value, least, most):
    summary, memory, _ = crawl(
        Endless, home, **{limit: value}, BUFFER_FLUSH_INTERVAL=0.01, ITEM_MAX_CACHED_COUNT=100
    )
    assert summary.outcome == "limit"
    assert summary.exit_code == 0
    assert summary.reason == f"{limit}={value:g} reached"
    assert len(memory.rows) == summary.items >= least
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
            Hangs, home, SPIDER_TASK_MAX_SECONDS=0.4, SPIDER_MAX_RETRY_TIMES=1, CALLBACK_MAX_THREADS=2
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

    def seconds():
        began = time.monotonic()
        crawl(Small, home)
        return time.monotonic() - began

    # One of some: a machine that has something else to do makes any single run slow.
    assert any(seconds() < 1.5 for _ in range(5))
