"""Around the downloader: the order of the middlewares, what each may answer, their opening and closing, and downloads from
inside a callback.
"""

from __future__ import annotations

import asyncio
import threading

import pytest

from netspy.downloader.middleware import DownloaderMiddleware
from netspy.engine.page.fetch import Replaced, SubDownloads
from netspy.errors import ConfigError, DownloadError, NotRetryError, SpiderError, UserCodeError
from netspy.messages.request import Request
from netspy.messages.response import Response
from support.engine import Spider, until

URL = "http://a.example/"
GONE = DownloadError("reset", reason="connect")


class Shop(Spider):
    def elsewhere(self, request):
        return Request(f"{URL}named")


class Midware(DownloaderMiddleware):
    """Answers at each stage with what it was made with; an error is raised. `told` has the stages, in order."""

    def __init__(self, name, told, *, out=None, back=None, failed=None, opening=None, closing=None):
        self.name, self.told = name, told
        self.out, self.back, self.failed, self.opening, self.closing = out, back, failed, opening, closing

    def _answer(self, stage, answer):
        self.told.append(f"{self.name} {stage}")
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def process_request(self, request):
        return self._answer("out", self.out)

    async def process_response(self, request, response):
        return self._answer("back", response if self.back is None else self.back)

    def process_exception(self, request, exception):
        return self._answer("failed", self.failed)

    async def open(self):
        self._answer("open", self.opening)

    def close(self):
        self._answer("close", self.closing)


class Around:
    """Two middlewares around a downloader; `a` and `b` are how they answer."""

    def __init__(self, pages, *, a=(), b=(), spider=None, **keywords):
        self.told = []
        around = [Midware("a", self.told, **dict(a)), Midware("b", self.told, **dict(b))]
        self.bench = pages(spider or Shop(), middlewares=around, **keywords)
        self.fetcher, self.asked = self.bench.fetcher, self.bench.downloader.asked


# -- the way out and back


async def test_middlewares_come_in_order_on_the_way_out_and_in_reverse_on_the_way_back(pages):
    around = Around(pages)
    response = await around.fetcher.fetch(Request(URL))
    assert around.told == ["a out", "b out", "b back", "a back"]
    assert (response.url, response.status_code) == (URL, 200)


async def test_a_request_from_a_middleware_goes_on_in_the_place_of_the_first(pages):
    around = Around(pages, a={"out": Request(f"{URL}2")})
    await around.fetcher.fetch(Request(URL))
    assert around.asked == [f"{URL}2"]
    assert around.told[1] == "b out"


async def test_a_response_from_a_middleware_is_the_answer_without_a_download(pages):
    cached = Response(url=URL, status_code=203)
    around = Around(pages, a={"out": cached})
    assert await around.fetcher.fetch(Request(URL)) is cached
    assert (around.asked, around.told) == ([], ["a out", "b back", "a back"])


async def test_a_request_for_a_response_takes_the_place_of_the_one_at_work(pages):
    other = Request(f"{URL}2")
    around = Around(pages, b={"back": other})
    with pytest.raises(Replaced) as caught:
        await around.fetcher.fetch(Request(URL))
    assert caught.value.request is other
    assert around.told == ["a out", "b out", "b back"]


async def test_without_anything_around_it_the_downloader_is_asked_at_once(pages):
    b = pages(Shop(), middlewares=[DownloaderMiddleware()])
    assert (await b.fetcher.fetch(Request(URL))).status_code == 200
    assert b.pool.busy == 0
    assert b.fetcher._simple, "the base class's methods are no stages"


async def test_plain_hooks_run_on_a_thread_and_awaited_ones_on_the_loop(pages):
    seen = []

    class Where:
        def process_request(self, request):
            seen.append(threading.current_thread() is threading.main_thread())

        async def process_response(self, request, response):
            seen.append(threading.current_thread() is threading.main_thread())
            return response

    await pages(Shop(), middlewares=[Where()]).fetcher.fetch(Request(URL))
    assert seen == [False, True]


# -- a failed download


async def test_an_answer_of_process_exception_stands_for_the_failed_download_and_goes_the_way_back(pages):
    spare = Response(url=URL, status_code=200)
    around = Around(pages, b={"failed": spare}, answers={URL: GONE})
    assert await around.fetcher.fetch(Request(URL)) is spare
    assert around.told == ["a out", "b out", "b failed", "b back", "a back"]


async def test_a_request_of_process_exception_takes_the_place_of_the_one_at_work(pages):
    other = Request(f"{URL}2")
    around = Around(pages, a={"failed": other}, answers={URL: GONE})
    with pytest.raises(Replaced) as caught:
        await around.fetcher.fetch(Request(URL))
    assert caught.value.request is other


async def test_a_failure_that_nobody_wants_passes_all_of_them_innermost_first(pages):
    around = Around(pages, answers={URL: GONE})
    with pytest.raises(DownloadError, match="reset"):
        await around.fetcher.fetch(Request(URL))
    assert around.told == ["a out", "b out", "b failed", "a failed"]


async def test_what_a_middleware_raises_fails_the_fetch(pages):
    around = Around(pages, a={"out": NotRetryError("robots.txt")})
    with pytest.raises(NotRetryError):
        await around.fetcher.fetch(Request(URL))
    assert (around.asked, around.told) == ([], ["a out"])


async def test_a_base_exception_of_an_awaited_middleware_is_an_error_of_the_users_code(pages):
    around = Around(pages, b={"back": KeyboardInterrupt()})
    with pytest.raises(UserCodeError):
        await around.fetcher.fetch(Request(URL))


# -- wrong answers


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"out": 7},
            r"Midware\.process_request returned int; process_request must return None, a Request or a Resp",
        ),
        (
            {"back": "page"},
            r"Midware\.process_response returned str; process_response must return a Response or a R",
        ),
    ],
)
async def test_a_middleware_that_answers_with_something_else_is_named(pages, given, told):
    with pytest.raises(SpiderError, match=told):
        await Around(pages, b=given).fetcher.fetch(Request(URL))


async def test_a_process_response_that_forgets_to_return_is_named(pages):
    class Forgets:
        def process_response(self, request, response):
            """Returns None."""

    with pytest.raises(SpiderError, match=r"Forgets\.process_response returned NoneType"):
        await pages(Shop(), middlewares=[Forgets()]).fetcher.fetch(Request(URL))


# -- the spider's own download_midware


def own(answer):
    """A spider whose `download_midware` answers this."""

    class Own(Shop):
        def download_midware(self, request):
            return answer

    return Own()


async def test_the_spiders_midware_comes_after_the_middlewares_and_changes_the_request(pages):
    around = Around(pages, spider=own(Request(f"{URL}own")), a={"out": Request(f"{URL}a")})
    await around.fetcher.fetch(Request(URL))
    assert around.asked == [f"{URL}own"]


@pytest.mark.parametrize("named", ["elsewhere", lambda request: Request(f"{URL}named")])
async def test_a_requests_own_midware_goes_before_the_spiders(pages, named):
    b = pages(own(Request(f"{URL}own")))
    await b.fetcher.fetch(Request(URL, download_midware=named))
    await b.fetcher.fetch(Request(URL))
    assert b.downloader.asked == [f"{URL}named", f"{URL}own"]


async def test_a_midware_may_answer_itself_or_leave_the_request_as_it_is(pages):
    answer = Response(url=URL, status_code=203)
    assert await pages(own(answer)).fetcher.fetch(Request(URL)) is answer
    b = pages(own(None))
    await b.fetcher.fetch(Request(URL))
    assert b.downloader.asked == [URL]


async def test_a_midware_that_answers_with_something_else_is_named(pages):
    with pytest.raises(
        SpiderError, match="download_midware returned tuple; it must return a Request or None"
    ):
        await pages(own((1, 2))).fetcher.fetch(Request(URL))


# -- opening and closing


async def test_middlewares_are_opened_outermost_first_and_closed_innermost_first(pages):
    around = Around(pages)
    await around.fetcher.open()
    await around.fetcher.close()
    assert around.told == ["a open", "b open", "b close", "a close"]


async def test_a_middleware_that_cannot_be_opened_ends_the_start_with_its_name(pages):
    around = Around(pages, a={"opening": OSError("no such file")})
    with pytest.raises(ConfigError, match="middleware Midware can't be opened: OSError: no such file"):
        await around.fetcher.open()
    assert around.told == ["a open"]


async def test_one_that_fails_at_its_close_keeps_no_other_open_and_all_problems_are_told(pages):
    around = Around(pages, a={"closing": OSError("first")}, b={"closing": OSError("second")})
    with pytest.raises(SpiderError) as caught:
        await around.fetcher.close()
    assert around.told == ["b close", "a close"]
    assert str(caught.value).index("second") < str(caught.value).index("first")
    assert "Midware.close (test_page_fetch.py:" in str(caught.value)


# -- downloads inside a callback


def sub_downloads(b):
    """The way of `request.fetch()` through this bench, and the answers that were counted."""
    counted = []
    return SubDownloads(b.fetcher, b.slots, asyncio.get_running_loop(), counted.append), counted


async def test_a_download_inside_a_callback_keeps_its_sites_limit(pages):
    b = pages(Shop(), CONCURRENT_REQUESTS_PER_DOMAIN=1)
    subs, counted = sub_downloads(b)
    b.downloader.gate.clear()
    at_work = [asyncio.create_task(subs.fetching(Request(f"{URL}{n}"))) for n in range(2)]
    other = asyncio.create_task(subs.fetching(Request("http://b.example/")))
    await until(lambda: "http://b.example/" in b.downloader.asked)
    assert len(b.downloader.asked) == 2, "one of each site"
    b.downloader.gate.set()
    responses = await asyncio.gather(*at_work, other)
    assert sorted(r.url for r in counted) == sorted(r.url for r in responses)
    assert len(counted) == 3


@pytest.mark.parametrize("error", [GONE, KeyboardInterrupt()])
async def test_a_download_that_fails_inside_a_callback_frees_its_slot_and_is_not_counted(pages, error):
    class Raises:
        async def process_request(self, request):
            raise error

    b = pages(Shop(), middlewares=[Raises()], CONCURRENT_REQUESTS_PER_DOMAIN=1)
    subs, counted = sub_downloads(b)
    for _ in range(2):  # the second would wait for ever
        with pytest.raises(DownloadError if error is GONE else UserCodeError):
            await asyncio.wait_for(subs.fetching(Request(URL)), 20)
    assert counted == []


async def test_a_plain_callback_waits_on_its_thread_for_a_download_on_the_loop(pages):
    b = pages(Shop(), answers={f"{URL}gone": GONE})
    subs, counted = sub_downloads(b)
    response = await b.pool.call(lambda: subs.blocking(Request(URL)))
    assert (response.url, counted) == (URL, [response])
    with pytest.raises(DownloadError):
        await b.pool.call(lambda: subs.blocking(Request(f"{URL}gone")))


async def test_a_machine_without_room_is_waited_for_and_no_try_is_lost_ho_12(monkeypatch):
    """Case HO-12: the fetch goes on when there is room, whoever asked for it; a real failure is told at once."""
    from netspy.engine.page import fetch as module
    from netspy.errors import ShortageError

    answers = [ShortageError("no files"), ShortageError("no memory"), Response(url=URL, status_code=200)]

    class Short:
        async def fetch(self, request):
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

    monkeypatch.setattr(module, "_SHORTAGE_FIRST_S", 0.001)
    told = []
    fetcher = module.Fetcher(
        Short(), middlewares=(), download_midware=None, named_midware=lambda _name: None, pool=None,
        selector_engine="turbohtml", max_tree_nodes=1000, on_shortage=told.append,
    )  # fmt: skip
    assert (await fetcher.fetch(Request(URL))).status_code == 200
    assert told == ["no files", "no memory"]
    answers += [ShortageError("no files"), GONE]
    with pytest.raises(DownloadError) as raised:
        await fetcher.fetch(Request(URL))
    assert raised.value is GONE
