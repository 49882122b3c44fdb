"""One page from its lease to its ack: what is fetched, what the answer means, what is stored before the ack, and when it
is waited for no longer.
"""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

import pytest

from netspy.engine.control import Control
from netspy.engine.page.actions import Action, current
from netspy.errors import (
    ContentTypeRejectedError,
    DownloadError,
    InvalidUrlError,
    NotRetryError,
    ResponseTooLargeError,
    ValidationError,
)
from netspy.messages.entry import NewEntry, TaskMark
from netspy.messages.request import Request
from netspy.messages.response import Response
from support.engine import Spider, until

URL = "http://a.example/"


class Shop(Spider):
    def parse(self, request, response):
        yield Request("http://a.example/child")

    def rows(self, request, response):
        yield {"url": request.url}
        yield {"url": request.url, "n": 2}
        yield Request("http://a.example/child")

    def none(self, request, response):
        """Yields nothing."""

    def drops(self, request, response):
        raise NotRetryError("sold out")


def site_is_free(b, site):
    """Whether the slot that the page took is free, and was freed once only."""
    return b.slots._sites[site].active == 0


# -- starting


async def test_a_lease_that_ran_out_is_not_started_and_frees_its_slot(pages):
    b = pages(Shop())
    lease = await b.lease(URL)
    lease.valid_until = b.clock() + 0.1
    await b.handler.handle(lease)
    assert b.downloader.asked == []
    assert (lease in b.held, b.counters.get("lease_lost")) == (False, 1)
    assert site_is_free(b, lease.site)
    assert b.told == []


@pytest.mark.parametrize(
    "fields", [{"callback": "pars"}, {"errback": "nowhere"}, {"download_midware": "nope"}]
)
async def test_an_unknown_name_is_given_up_at_once_without_a_fetch(pages, fields):
    b = pages(Shop())
    lease = await b.handle(URL, **fields)
    assert b.downloader.asked == []
    assert [(r["reason"], r["attempts"]) for r in b.records] == [("UnknownCallbackError", 1)]
    assert site_is_free(b, lease.site)
    assert b.counters.get("retry") == 0


async def test_a_request_with_nothing_to_download_goes_to_its_callback_without_a_fetch(pages):
    b = pages(Shop())
    got = []
    lease = await b.handle(URL, auto_request=False, callback=lambda request, response: got.append(response))
    assert (b.downloader.asked, got) == ([], [None])
    assert site_is_free(b, lease.site)
    assert lease not in b.held


# -- what was yielded


async def test_children_and_the_ack_reach_the_store_in_one_step(pages):
    b = pages(Shop())
    lease = await b.handle(URL)
    assert b.told == ["settle"]
    assert lease not in b.held
    assert await b.queued() == ["http://a.example/child"]
    assert (b.counters.get("request_ok"), b.counters.get("pages")) == (1, 1)
    assert site_is_free(b, lease.site)


async def test_a_page_is_acked_only_after_its_rows_are_stored(pages):
    b = pages(Shop())
    b.rows.gate.clear()
    lease = await b.lease(URL, callback="rows")
    await b.handler.handle(lease)
    await b.outbox.drained()
    assert lease in b.held
    assert b.told == ["put"], "its children are in the store"
    b.rows.gate.set()
    await b.drained()
    assert b.told == ["put", "items stored", "settle"]
    assert lease not in b.held
    assert [row["url"] for row in b.rows.stored] == [URL, URL]


async def test_a_page_that_waits_for_its_rows_does_not_keep_its_body(pages):
    b = pages(Shop())
    b.rows.gate.clear()
    at_work = []

    def callback(request, response):
        at_work.append(current.get())
        return {"n": len(response.content)}

    await b.handler.handle(await b.lease(URL, callback=callback))
    assert (at_work[0].pending, at_work[0].response) == (1, None)
    b.rows.gate.set()


async def test_a_page_whose_callback_fails_keeps_what_it_yielded_before_and_is_tried_again(pages):
    b = pages(Shop(), RETRY_BACKOFF=2.0)

    def breaks(request, response):
        yield {"n": 1}
        yield Request("http://a.example/child")
        raise ValueError("the third row")

    await b.handle(URL, callback=breaks)
    assert b.rows.stored == [{"n": 1}]
    assert await b.queued() == ["http://a.example/child"]
    assert (b.counters.get("parse_error"), b.counters.get("retry"), b.counters.get("request_ok")) == (1, 1, 0)
    assert "raised ValueError: the third row, while handling http://a.example/" in b.log
    assert await b.waits_s() == 1.0


async def test_what_a_failed_callback_asked_for_on_success_is_dropped_and_the_rest_is_done(pages):
    b = pages(Shop(), tasks={}, SPIDER_MAX_RETRY_TIMES=0)

    def breaks(request, response):
        current.get().actions += [Action("mark", "ok", on_success=True), Action("mark", "failed")]
        raise ValueError

    await b.handle(URL, callback=breaks)
    assert b.done == ["failed"]


async def test_a_page_is_acked_after_what_its_callback_asked_for_besides(pages):
    b = pages(Shop(), tasks={})
    await b.handle(URL, callback=lambda request, response: current.get().actions.append(Action("mark", "t1")))
    assert b.told == ["marked", "settle"]


# -- what the answer means


@pytest.mark.parametrize(
    ("status", "reason", "attempts"), [(404, "HTTP 404", 1), (410, "HTTP 410", 1), (500, "HTTP 500", 3), (429, "HTTP 429", 3)]
)  # fmt: skip
async def test_a_status_that_may_pass_is_tried_again_and_one_that_stays_is_given_up_at_once(
    pages, status, reason, attempts
):
    b = pages(Shop(), answers={URL: status}, SPIDER_MAX_RETRY_TIMES=2, RETRY_BACKOFF=0.0)
    await b.handle(URL)
    while lease := await b.claimed():
        await b.handler.handle(lease)
        await b.drained()
    assert b.downloader.asked == [URL] * attempts
    assert [(r["reason"], r["attempts"]) for r in b.records] == [(reason, attempts)]
    assert b.counters.get("retry") == attempts - 1
    assert b.counters.get("pages") == attempts, "answers count whatever they say"
    assert len(b.held) == 0


@pytest.mark.parametrize(("asked", "waits_s"), [("20", 20.0), ("9999", 60.0), ("soon", 1.0), (None, 1.0)])
async def test_the_seconds_of_retry_after_are_waited_up_to_a_limit(pages, asked, waits_s):
    headers = {} if asked is None else {"Retry-After": asked}
    answer = Response(url=URL, status_code=503, headers=headers)
    b = pages(Shop(), answers={URL: answer}, RETRY_BACKOFF=2.0, RETRY_AFTER_MAX=60.0)
    await b.handle(URL)
    assert await b.waits_s() == waits_s


async def test_retry_after_cools_the_whole_site(pages):
    answer = Response(url=URL, status_code=429, headers={"Retry-After": "20"})
    b = pages(Shop(), answers={URL: answer})
    lease = await b.handle(URL)
    assert b.slots.full_sites(1) == [lease.site]
    b.clock.advance(20.0)
    assert b.slots.full_sites(1) == []


@pytest.mark.parametrize(
    ("answer", "opens"), [(500, True), (404, False), (ResponseTooLargeError("1 GB"), False)]
)
async def test_only_failures_that_speak_of_the_site_open_its_circuit(pages, answer, opens):
    urls = [f"{URL}{n}" for n in range(3)]
    b = pages(
        Shop(), answers=dict.fromkeys(urls, answer), SPIDER_MAX_RETRY_TIMES=0, CIRCUIT_FAILURE_THRESHOLD=3
    )
    for url in urls:
        lease = await b.handle(url)
    assert b.slots.full_sites(1) == ([lease.site] if opens else [])
    assert ("failed 3 times in a row" in b.log) == opens


@pytest.mark.parametrize(
    ("error", "retried"),
    [
        (DownloadError("reset", reason="connect"), True),
        (DownloadError("gone", reason="dns", retryable=False), False),
        (InvalidUrlError("no host"), False),
        (RuntimeError("a middleware of the user's"), True),
        (KeyboardInterrupt(), True),
    ],
)
async def test_a_failed_fetch_is_tried_again_when_that_may_help_and_its_slot_is_free(pages, error, retried):
    b = pages(Shop(), answers={URL: error})
    lease = await b.handle(URL)
    assert b.counters.get("retry") == retried
    assert len(b.failed) == (not retried)
    assert site_is_free(b, lease.site)
    assert lease not in b.held


async def test_a_refused_content_type_is_acked_quietly(pages):
    b = pages(Shop(), answers={URL: ContentTypeRejectedError("video/mp4")})
    await b.handle(URL)
    assert (b.counters.get("content_type_dropped"), b.failed, b.told) == (1, [], ["settle"])
    assert not any(line.startswith(("warning", "error")) for line in b.log.lines)


async def test_not_retry_drops_the_page_without_a_record_wherever_it_is_raised(pages):
    b = pages(Shop(), answers={URL: NotRetryError("robots.txt")})
    await b.handle(URL)
    await b.handle("http://a.example/2", callback="drops")
    assert (b.counters.get("dropped"), b.failed, len(b.held), b.counters.get("retry")) == (2, [], 0, 0)
    assert "dropped http://a.example/: robots.txt" in b.log
    assert "dropped http://a.example/2: sold out" in b.log


@pytest.mark.parametrize(
    ("answer", "counted"), [(False, "dropped"), (None, "request_ok"), (True, "request_ok")]
)
async def test_a_page_is_dropped_only_when_validate_says_false(pages, answer, counted):
    class Checks(Shop):
        def validate(self, request, response):
            return answer

    b = pages(Checks())
    await b.handle(URL, callback="rows")
    assert b.counters.get(counted) == 1
    assert len(b.rows.stored) == (0 if counted == "dropped" else 2)
    assert len(b.held) == 0


async def test_a_page_that_validate_finds_broken_is_tried_again_and_is_no_error_of_the_callback(pages):
    class Checks(Shop):
        def validate(self, request, response):
            raise ValidationError("half a page")

    b = pages(Checks())
    await b.handle(URL)
    assert (b.counters.get("retry"), b.counters.get("parse_error")) == (1, 0)


async def test_a_limit_of_the_run_is_noticed_before_the_callback_of_the_page_that_reached_it(pages):
    def limited(env):
        return Control(env.log, lambda: "1 page" if env.counters.get("pages") else None)

    b = pages(Shop(), control=limited)
    seen = []
    await b.handle(URL, callback=lambda request, response: seen.append(b.control.ended.outcome))
    assert seen == ["limit"]


async def test_a_middleware_that_replaces_the_request_sends_the_page_back_under_the_same_lease(pages):
    class Elsewhere:
        def process_response(self, request, response):
            return Request("http://b.example/", callback="none")

    b = pages(Shop(), middlewares=[Elsewhere()])
    lease = await b.handle(URL)
    assert site_is_free(b, lease.site)
    again = await b.claimed()
    assert (again.payload.url, again.seq, again.payload.retry_times) == ("http://b.example/", lease.seq, 1)


# -- callbacks that don't end


@pytest.fixture
def stuck():
    """A plain callback that hangs until the test is over; `entered` says that it runs."""
    entered, end = threading.Event(), threading.Event()

    def hangs(request, response):
        entered.set()
        end.wait(20)

    yield SimpleNamespace(callback=hangs, entered=entered, end=end)
    end.set()


async def test_an_overdue_plain_callback_is_given_up_and_the_next_page_has_a_thread(pages, stuck):
    b = pages(Shop(), threads=1, SPIDER_TASK_MAX_SECONDS=60.0, SPIDER_MAX_RETRY_TIMES=0)
    at_work = asyncio.create_task(b.handle(URL, callback=stuck.callback))
    await until(stuck.entered.is_set)
    b.handler.end_overdue()
    assert not at_work.done(), "its time is not over"
    b.clock.advance(60.0)
    b.handler.end_overdue()
    await at_work
    assert b.records[0]["reason"] == "CallbackTimeoutError"
    assert "ran longer than SPIDER_TASK_MAX_SECONDS=60 s for http://a.example/" in b.records[0]["error"]
    assert b.handler.running == {}
    await b.handle("http://a.example/2")
    assert b.counters.get("request_ok") == 1


async def test_a_callback_that_waits_for_a_thread_is_not_overdue(pages, stuck):
    b = pages(Shop(), threads=1, SPIDER_TASK_MAX_SECONDS=60.0, SPIDER_MAX_RETRY_TIMES=0)
    first = asyncio.create_task(b.handle(URL, callback=stuck.callback))
    await until(stuck.entered.is_set)
    runs, end = threading.Event(), threading.Event()

    def waits(request, response):
        runs.set()
        end.wait(20)

    second = asyncio.create_task(b.handle("http://a.example/2", callback=waits))
    await until(lambda: b.pool.busy == 2)
    b.clock.advance(60.0)
    b.handler.end_overdue()
    await first
    await until(runs.is_set)
    b.handler.end_overdue()  # its own time has only begun
    end.set()
    await second
    assert [r["reason"] for r in b.records] == ["CallbackTimeoutError"]
    assert b.counters.get("request_ok") == 1


@pytest.mark.parametrize("swallows", [False, True])
async def test_an_overdue_async_callback_is_cancelled_and_the_workers_next_page_is_not(pages, swallows):
    b = pages(Shop(), SPIDER_TASK_MAX_SECONDS=60.0, SPIDER_MAX_RETRY_TIMES=0)

    async def hangs(request, response):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if not swallows:
                raise

    async def next_page(request, response):
        await asyncio.sleep(0)

    async def worker():
        await b.handle(URL, callback=hangs)
        await b.handle("http://a.example/2", callback=next_page)
        return asyncio.current_task().cancelling()

    at_work = asyncio.create_task(worker())
    await until(lambda: b.handler.running and b.downloader.asked)
    b.clock.advance(60.0)
    b.handler.end_overdue()
    b.handler.end_overdue()  # once is enough
    assert await at_work == 0
    assert [r["reason"] for r in b.records] == ([] if swallows else ["CallbackTimeoutError"])
    assert b.counters.get("request_ok") == 1 + swallows


async def test_a_worker_that_the_node_cancels_leaves_its_page_unacked(pages):
    b = pages(Shop())
    b.downloader.gate.clear()
    at_work = asyncio.create_task(b.handle(URL))
    await until(lambda: b.downloader.asked)
    at_work.cancel()
    await asyncio.gather(at_work, return_exceptions=True)
    assert at_work.cancelled()
    assert (b.told, b.failed, b.handler.running, len(b.held)) == ([], [], {}, 1)


# -- the end of a task


async def end_of_task(b):
    """Work on the only page of a task, and on the request that tells of the task's end."""
    closing = Request("http://task.invalid/", auto_request=False, cb_kwargs={"task": {"id": 7}, "token": "7"})
    mark = TaskMark("7", closing=NewEntry(closing, b"e" * 16, 0.0, closing.site))
    await b.handle(URL, callback="none", task="7", mark=mark)
    lease = await b.claimed()
    assert lease.is_task_end
    await b.handler.handle(lease)
    await b.drained()


async def test_the_end_of_a_task_calls_the_spiders_hook_and_fetches_nothing(pages):
    told = []
    b = pages(Shop(), tasks={"ended": lambda request, response, **given: told.append((response, given))})
    await end_of_task(b)
    assert told == [(None, {"task": {"id": 7}, "failed": 0, "token": "7"})]
    assert b.downloader.asked == [URL]
    assert (b.counters.get("tasks_done"), b.counters.get("request_ok"), len(b.held)) == (1, 1, 0)


@pytest.mark.parametrize("tasks", [None, {}])
async def test_the_end_of_a_task_that_nobody_wants_is_given_up(pages, tasks):
    b = pages(Shop(), tasks=tasks)
    await end_of_task(b)
    assert "shop has no tasks, so none can end" in b.records[0]["error"]
    assert len(b.held) == 0
