"""The user's code, run for one page: drawn from in chunks, whatever it raises an error of its own, and its time not that
of a store that is away.
"""

from __future__ import annotations

import asyncio
import math
import threading

import pytest

from netspy.engine.page.actions import current
from netspy.errors import SpiderError, UserCodeError
from netspy.messages.request import Request
from support.engine import Gated, Spider, entries_of, until

URL = "http://a.example/"


class Shop(Spider):
    def parse(self, request, response):
        """Yields nothing."""


class Own(BaseException):
    """Not an Exception, and not netspy's."""


def children(out):
    return [entry.payload.url for entry in out.children]


# -- plain callbacks


async def test_a_generator_is_drawn_in_chunks_on_a_thread_and_each_chunk_is_stored_before_the_next_is_drawn(
    pages,
):
    b = pages(Shop(), CALLBACK_CHUNK=2)
    seen = []

    def many(request, response):
        for n in range(5):
            seen.append((b.told.count("put"), threading.current_thread() is threading.main_thread()))
            yield Request(f"{URL}{n}")

    page = await b.page(URL, callback=many)
    out = await b.code.run_plain(page)
    assert children(out) == [f"{URL}4"]
    assert (out.more, out.error) == (False, None)
    assert seen == [(0, False), (0, False), (1, False), (1, False), (2, False)]
    assert page.put_early
    assert await b.queued() == [f"{URL}{n}" for n in range(4)]


async def test_of_several_puts_the_first_ones_history_is_kept_so_that_the_ack_outlives_none_of_them(pages):
    class GoesBack(Gated):
        given = iter(["first", "second"])
        history = property(lambda self: next(self.given))

    b = pages(Shop(), frontier=GoesBack(), CALLBACK_CHUNK=1)

    def two(request, response):
        yield Request(f"{URL}1")
        yield Request(f"{URL}2")

    page = await b.page(URL, callback=two)
    await b.code.run_plain(page)
    assert b.told == ["put", "put"]
    assert page.history == "first"


@pytest.mark.parametrize(
    ("returned", "rows"),
    [(None, 0), ([{"n": 1}, {"n": 2}], 2), (({"n": 1},), 1), ({"n": 1}, 1), (iter([{"n": 1}]), 1)],
)
async def test_what_a_callback_returns_counts_as_yielded(pages, returned, rows):
    b = pages(Shop())
    out = await b.code.run_plain(await b.page(URL, callback=lambda request, response: returned))
    assert (len(out.rows), out.error, out.more) == (rows, None, False)


async def test_a_plain_callback_that_hands_on_an_async_generator_is_drained_on_the_loop(pages):
    b = pages(Shop(), CALLBACK_CHUNK=2)

    async def stream():
        for n in range(3):
            yield {"n": n}

    out = await b.code.run_plain(await b.page(URL, callback=lambda request, response: stream()))
    assert [row.row.data for row in out.rows] == [{"n": 2}]
    await b.drained()
    assert b.rows.stored == [{"n": 0}, {"n": 1}]


async def test_a_callback_gets_its_keywords_and_sees_its_own_page(pages):
    b = pages(Shop())
    got = []
    page = await b.page(
        URL, callback=lambda request, response, n: got.append((n, request, response, current.get())), cb_kwargs={"n": 1}
    )  # fmt: skip
    response = page.response
    await b.code.run_plain(page)
    assert got == [(1, page.request, response, page)]
    assert current.get() is None, "the loop's own context is not touched"


@pytest.mark.parametrize("how", ["returns", "yields"])
async def test_the_page_is_freed_on_the_thread_that_has_read_it_when_its_callback_has_ended(pages, how):
    b = pages(Shop())
    freed = []

    class Tree:
        def __del__(self):
            freed.append(threading.current_thread().name)

    def returns(request, response):
        response.tree = Tree()

    def yields(request, response):
        response.tree = Tree()
        yield {"n": 1}

    page = await b.page(URL, callback={"returns": returns, "yields": yields}[how])
    out = await b.code.run_plain(page)
    assert (out.error, page.response) == (None, None)
    assert [name.startswith("netspy-callback-") for name in freed] == [True]


async def test_a_page_that_is_not_done_keeps_its_response(pages):
    b = pages(Shop())

    def wrong(request, response):
        yield {"n": 1}
        raise ValueError("x")

    page = await b.page(URL, callback=wrong)
    assert (await b.code.run_plain(page)).error is not None
    assert page.response is not None, "errback and hooks are handed it"
    page.timed_out = True
    page.served()
    assert page.response is not None, "a late end takes it from nobody"


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (ValueError("x"), ValueError),
        (KeyboardInterrupt("x"), UserCodeError),
        (SystemExit(1), SpiderError),
        (asyncio.CancelledError("x"), UserCodeError),
        (GeneratorExit("x"), UserCodeError),
        (Own("x"), UserCodeError),
    ],
)
@pytest.mark.parametrize("how", ["called", "yielding", "async", "stream"])
async def test_whatever_user_code_raises_is_an_error_of_the_callback_and_what_it_yielded_is_kept(
    pages, raised, kind, how
):
    b = pages(Shop())

    def called(request, response):
        raise raised

    def yielding(request, response):
        yield {"n": 1}
        raise raised

    async def alone(request, response):
        raise raised

    async def stream(request, response):
        yield {"n": 1}
        raise raised

    callback = {"called": called, "yielding": yielding, "async": alone, "stream": stream}[how]
    page = await b.page(URL, callback=callback)
    run = b.code.run_plain if how in {"called", "yielding"} else b.code.run_async
    out = await run(page)
    assert type(out.error) is kind
    assert out.error is raised or out.error.__cause__ is raised
    assert len(out.rows) == (how in {"yielding", "stream"})


# -- async callbacks


async def test_an_async_generator_hands_over_each_chunk_and_keeps_the_rest(pages):
    b = pages(Shop(), CALLBACK_CHUNK=2)
    puts = []

    async def stream(request, response):
        for n in range(5):
            puts.append(b.told.count("put"))
            yield Request(f"{URL}{n}")

    page = await b.page(URL, callback=stream)
    out = await b.code.run_async(page)
    assert (puts, children(out)) == ([0, 0, 1, 1, 2], [f"{URL}4"])
    assert await b.queued() == [f"{URL}{n}" for n in range(4)]


async def test_a_coroutines_list_counts_as_yielded(pages):
    b = pages(Shop())

    async def later(request, response):
        return [{"n": 1}, Request(f"{URL}1")]

    out = await b.code.run_async(await b.page(URL, callback=later))
    assert (len(out.rows), children(out)) == (1, [f"{URL}1"])


async def test_netspys_own_cancellation_passes_an_async_callback(pages):
    b = pages(Shop())
    entered = asyncio.Event()

    async def hangs(request, response):
        entered.set()
        await asyncio.Event().wait()

    at_work = asyncio.create_task(b.code.run_async(await b.page(URL, callback=hangs)))
    await entered.wait()
    at_work.cancel()
    await asyncio.wait({at_work})
    assert at_work.cancelled()


# -- validate


def checking(answer, *, awaited):
    """A spider whose `validate` answers this, or raises it; and a list of the callbacks that ran."""
    ran = []

    def give():
        if isinstance(answer, BaseException):
            raise answer
        return answer

    class Plain(Shop):
        def validate(self, request, response):
            return give()

        def parse(self, request, response):
            ran.append("plain")

        async def later(self, request, response):
            ran.append("async")

    class Awaited(Plain):
        async def validate(self, request, response):
            return give()

    return (Awaited if awaited else Plain)(), ran


@pytest.mark.parametrize("awaited", [False, True])
@pytest.mark.parametrize("callback", ["parse", "later"])
@pytest.mark.parametrize(
    ("answer", "runs"), [(True, True), (None, True), (0, True), (False, False), (ValueError("half"), False), (Own(), False)]
)  # fmt: skip
async def test_a_callback_runs_unless_validate_says_false_or_raises(pages, awaited, callback, answer, runs):
    spider, ran = checking(answer, awaited=awaited)
    b = pages(spider)
    page = await b.page(URL, callback=callback)
    out = await (b.code.run_plain(page) if callback == "parse" else b.code.run_async(page))
    assert len(ran) == runs
    assert (out.error is not None) == isinstance(answer, BaseException)
    assert (out.verdict is False) == (answer is False)


async def test_validate_is_not_asked_about_a_page_that_was_not_fetched(pages):
    spider, ran = checking(False, awaited=False)
    b = pages(spider)
    page = await b.page(URL)
    page.response = None
    await b.code.run_plain(page)
    assert ran == ["plain"]


# -- room


async def test_the_time_that_a_store_of_items_is_away_is_no_time_of_the_callback(pages):
    b = pages(Shop(), ITEM_MAX_CACHED_COUNT=1)
    b.rows.gate.clear()
    page = await b.page(URL, callback=lambda *_: {"n": 1})
    at_work = asyncio.create_task(b.code.hand_over(page, await b.code.run_plain(page)))
    await until(lambda: page.started == math.inf)
    b.clock.advance(500.0)
    b.rows.gate.set()
    await b.items.flush_all()
    await at_work
    assert page.started == b.clock()


async def test_the_time_that_the_frontier_is_away_is_no_time_of_the_callback(pages):
    b = pages(Shop(), REQUEST_BUFFER_MAX_CACHED=1)
    page, other = await b.page(URL), await b.lease(f"{URL}other")
    b.frontier.gates["settle"].clear()
    b.outbox.settle(other, entries_of(f"{URL}child"))
    at_work = asyncio.create_task(b.code.room(page))
    await until(lambda: page.started == math.inf)
    b.clock.advance(500.0)
    b.frontier.gates["settle"].set()
    await at_work
    assert page.started == b.clock()


async def test_with_room_the_callbacks_time_goes_on(pages):
    b = pages(Shop())
    page = await b.page(URL, callback=lambda *_: [{"n": 1}])
    before = page.started
    b.clock.advance(5.0)
    await b.code.hand_over(page, await b.code.run_plain(page))
    assert page.started == before


# -- hooks


async def test_a_hooks_children_that_bypass_the_filter_are_the_same_at_each_delivery_and_not_those_of_another_hook(
    pages,
):
    b = pages(Shop())
    page = await b.page(URL)

    def hook():
        return Request(f"{URL}again", filter_repeat=False)

    await b.code.run_hook(page, "errback", hook)
    await b.code.run_hook(page, "errback", hook)
    assert len(await b.queued()) == 1
    await b.code.run_hook(page, "failed_request", hook)
    assert len(await b.queued()) == 1


async def test_a_hook_runs_with_its_page_so_that_it_may_report_its_task(pages):
    b = pages(Shop())
    page = await b.page(URL, task="7")
    got = []
    await b.code.run_hook(page, "errback", lambda: got.append(current.get().task))
    assert got == ["7"]
