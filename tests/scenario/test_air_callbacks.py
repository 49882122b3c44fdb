"""Kinds of callbacks and seeds of an AirSpider, and what they may yield. In this process, on a local site."""

from __future__ import annotations

import asyncio
import threading

import pytest
from air_support import Air, crawl, ok

import netspy as mw

pytestmark = pytest.mark.usefixtures("workdir")


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
    [thread] = called
    assert thread.startswith("netspy-callback-")
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
    assert f"Wrong.parse (test_air_callbacks.py:{line}), while handling {home.url('/')}" in log
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
    assert (
        f"test_air_callbacks.py:{Raises.parse.__code__.co_firstlineno + 3}) raised KeyError: 'price'" in log
    )
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
    assert f"test_air_callbacks.py:{Typo.start_requests.__code__.co_firstlineno + 1}" in log
