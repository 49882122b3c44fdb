"""A request that failed: tries are counted down, the failed list says what was lost, and a hook that breaks costs only
itself.
"""

from __future__ import annotations

import pytest

from netspy.errors import DownloadError, HttpStatusError, UnknownCallbackError
from netspy.messages.request import Request
from support.engine import Spider

URL = "http://a.example/"


class Shop(Spider):
    """Notes the calls of its hooks in `calls`."""

    def __init__(self):
        self.calls = []

    def parse(self, request, response):
        """Yields nothing."""

    def on_error(self, request, response, error):
        self.calls.append(("errback", request, response, error))
        yield {"lost": request.url}
        yield Request("http://a.example/mirror")


class Watching(Shop):
    def exception_request(self, request, response, error):
        self.calls.append(("exception_request", request, response, error, request.retry_times))
        yield {"tried": request.retry_times}

    def failed_request(self, request, response):
        self.calls.append(("failed_request", request, response))
        return Request("http://a.example/instead")


# -- another try


async def test_tries_are_counted_down_and_the_last_one_puts_the_request_into_the_failed_list(pages):
    b = pages(Shop(), SPIDER_MAX_RETRY_TIMES=2, RETRY_BACKOFF=2.0)
    page = await b.page(URL)
    for tries, waits_s in ((1, 1.0), (2, 2.0)):
        await b.ending.fail(page, DownloadError("reset", reason="connect"))
        await b.drained()
        assert (page.request.retry_times, b.counters.get("retry"), b.failed) == (tries, tries, [])
        b.clock.advance(waits_s - 0.1)
        assert await b.claimed() is None
        b.clock.advance(0.1)
        page.lease = await b.claimed()
    await b.ending.fail(page, DownloadError("reset", reason="connect"))
    await b.drained()
    (record,) = b.records
    assert (record["reason"], record["error"], record["attempts"]) == ("connect", "DownloadError: reset", 3)
    assert record["request"]["u"] == URL
    assert (record["site"], record["priority"]) == (page.lease.site, page.lease.priority)
    assert b.counters.reasons == {"connect": 1}
    assert "failed after 3 tries: http://a.example/: reset" in b.log


async def test_what_must_not_be_retried_is_given_up_with_its_budget_unused(pages):
    b = pages(Shop())
    await b.ending.fail(await b.page(URL), HttpStatusError(404, URL), retry=False)
    await b.drained()
    assert [(r["reason"], r["attempts"]) for r in b.records] == [("HTTP 404", 1)]
    assert "failed after 1 try: " in b.log


async def test_a_page_waits_for_its_items_before_it_is_tried_again_or_given_up(pages):
    b = pages(Shop(), SPIDER_MAX_RETRY_TIMES=1, RETRY_BACKOFF=0.0)
    for retry in (True, False):
        page = await b.page(f"{URL}{retry}")
        page.pending = 1
        await b.ending.fail(page, ValueError(), retry=retry)
        await b.outbox.drained()
        assert page.lease in b.held
        page.stored()
        await b.outbox.drained()
        assert page.lease not in b.held


async def test_a_request_that_cannot_travel_again_is_given_up_instead_of_being_lost(pages):
    b = pages(Shop(), shared=True)
    page = await b.page(URL)
    page.request.cb_kwargs = {"socket": object()}
    await b.ending.fail(page, ValueError())
    await b.drained()
    (record,) = b.records
    assert record["reason"] == "SerializationError"
    assert record["raw"].startswith("GET http://a.example/ (")


async def test_what_was_told_of_already_is_not_told_again(pages):
    b = pages(Shop(), SPIDER_MAX_RETRY_TIMES=0)
    await b.ending.fail(await b.page(URL), ValueError("told"), logged=True)
    assert b.log.lines == []


@pytest.mark.parametrize(("site_health", "opens"), [(True, True), (False, False)])
async def test_a_sites_circuit_opens_only_for_failures_of_the_site_and_retries_do_not_count(
    pages, site_health, opens
):
    b = pages(Shop(), SPIDER_MAX_RETRY_TIMES=1, CIRCUIT_FAILURE_THRESHOLD=2, CIRCUIT_COOLDOWN=30.0)
    page = await b.page(URL)
    await b.ending.fail(page, HttpStatusError(500), site_health=site_health)
    await b.ending.fail(page, HttpStatusError(500), site_health=site_health)
    assert b.slots.full_sites(1) == []
    await b.ending.fail(
        await b.page("http://a.example/2"), HttpStatusError(500), retry=False, site_health=site_health
    )
    assert b.slots.full_sites(1) == ([page.lease.site] if opens else [])
    assert ("no request goes there for 30 s" in b.log) == opens


# -- replaced by a middleware


async def test_a_replaced_request_goes_on_under_the_same_lease_and_uses_up_the_budget(pages):
    b = pages(Shop(), SPIDER_MAX_RETRY_TIMES=2)
    page = await b.page(URL)
    for n in (1, 2):
        await b.ending.replace(page, Request(f"{URL}{n}"))
        await b.drained()
        lease = await b.claimed()
        assert (lease.payload.url, lease.payload.retry_times, lease.seq) == (f"{URL}{n}", n, page.lease.seq)
        page.lease, page.request = lease, lease.payload
    await b.ending.replace(page, Request(f"{URL}3"))
    await b.drained()
    assert "replaced the request again and again" in b.records[0]["error"]
    assert b.records[0]["request"]["u"] == f"{URL}2"
    assert b.counters.get("retry") == 2


# -- hooks


async def test_each_hook_is_called_with_what_failed_and_what_they_yield_is_stored(pages):
    b = pages(Watching(), SPIDER_MAX_RETRY_TIMES=1, RETRY_BACKOFF=0.0)
    page = await b.page(URL, errback="on_error")
    first, second = ValueError("first"), ValueError("second")
    await b.ending.fail(page, first)
    await b.drained()
    page.lease = await b.claimed()
    await b.ending.fail(page, second)
    await b.drained()
    assert b.spider.calls == [
        ("exception_request", page.request, page.response, first, 0),
        ("errback", page.request, page.response, second),
        ("failed_request", page.request, page.response),
    ]
    assert b.rows.stored == [{"tried": 0}, {"lost": URL}]
    assert await b.queued() == ["http://a.example/mirror", "http://a.example/instead"]
    assert len(b.failed) == 1
    assert len(b.held) == 0


async def test_what_a_hook_yields_is_in_the_store_before_the_request_leaves_it(pages):
    b = pages(Watching(), SPIDER_MAX_RETRY_TIMES=0)
    b.rows.gate.clear()
    page = await b.page(URL, errback="on_error")
    await b.ending.fail(page, ValueError())
    await b.outbox.drained()
    assert (b.told, b.failed, page.lease in b.held) == (["put", "put"], [], True)
    b.rows.gate.set()
    await b.drained()
    assert (len(b.failed), page.lease in b.held) == (1, False)


async def test_an_errback_may_be_a_function_or_async(pages):
    b = pages(Shop(), SPIDER_MAX_RETRY_TIMES=0)

    async def later(request, response, error):
        return {"lost": str(error)}

    async def stream(request, response, error):
        yield {"streamed": str(error)}

    await b.ending.fail(await b.page(URL, errback=later), ValueError("1"))
    await b.ending.fail(await b.page(f"{URL}2", errback=stream), ValueError("2"))
    await b.drained()
    assert b.rows.stored == [{"lost": "1"}, {"streamed": "2"}]
    assert len(b.failed) == 2


class Broken(Shop):
    def failed_request(self, request, response):
        yield {"kept": 1}
        raise KeyboardInterrupt

    def exception_request(self, request, response, error):
        raise ZeroDivisionError("of the hook")

    def on_error(self, request, response, error):
        raise OSError("of the errback")


async def test_the_error_of_a_hook_is_counted_and_costs_only_itself(pages):
    b = pages(Broken(), SPIDER_MAX_RETRY_TIMES=1, RETRY_BACKOFF=0.0)
    page = await b.page(URL, errback="on_error")
    await b.ending.fail(page, ValueError("of the callback"))
    await b.drained()
    assert (b.counters.get("callback_error"), b.counters.get("retry")) == (1, 1)
    page.lease = await b.claimed()
    await b.ending.fail(page, ValueError("of the callback"))
    await b.drained()
    assert b.counters.get("callback_error") == 3
    assert b.records[0]["error"] == "ValueError: of the callback"
    assert b.rows.stored == [{"kept": 1}]
    for line in ("shop.exception_request (test_page_outcome.py:", "shop.on_error (test_page_outcome.py:"):
        assert line in b.log


async def test_an_errback_that_is_not_there_is_told_and_the_request_is_still_in_the_failed_list(pages):
    b = pages(Shop(), SPIDER_MAX_RETRY_TIMES=0)
    await b.ending.fail(await b.page(URL, errback="on_eror"), ValueError("1"))
    await b.ending.fail(await b.page(f"{URL}2", errback="on_eror"), UnknownCallbackError("errback: on_eror"))
    await b.drained()
    assert len(b.failed) == 2
    told = [line for line in b.log.lines if line.startswith("error")]
    assert len(told) == 1, "not when the name is the failure itself"
    assert "did you mean 'on_error'?" in told[0]


# -- an error of netspy's own


async def test_a_request_whose_handling_broke_is_recorded_with_the_error(pages):
    b = pages(Shop())
    lease = await b.lease(URL)
    b.ending.broke(lease, TypeError("a bug of ours"))
    await b.drained()
    assert [(r["reason"], r["error"]) for r in b.records] == [("TypeError", "TypeError: a bug of ours")]
    assert b.counters.reasons == {"internal error": 1}
    assert b.counters.get("callback_error") == 1
    assert lease not in b.held


async def test_a_payload_that_is_no_request_is_recorded_as_it_is(pages):
    b = pages(Shop())
    lease = await b.lease(URL)
    lease.payload = 7
    b.ending.broke(lease, TypeError("a bug of ours"))
    await b.drained()
    (record,) = b.records
    assert (record["reason"], record["raw"], record["attempts"]) == ("internal error", "7", 1)
    assert record["error"].startswith("TypeError: a bug of ours; AttributeError: ")
