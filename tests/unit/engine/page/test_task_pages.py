"""Pages of a task: who says what became of it, and what its end calls."""

from __future__ import annotations

import pytest

from netspy.errors import UnknownCallbackError
from support.engine import Spider, lease_of

URL = "http://a.example/"


class Shop(Spider):
    def parse(self, request, response):
        """Yields nothing, reports nothing."""


def silences(b):
    return [line for line in b.log.lines if "without update_task" in line]


# -- silence


async def test_a_task_whose_last_page_says_nothing_is_told_of_once_per_callback(pages):
    b = pages(Shop(), tasks={"reported": True})
    page = await b.page(URL, task="7")
    b.tasks.look_for_report(page, URL)
    b.tasks.look_for_report(page, URL)
    assert len(silences(b)) == 1
    assert (
        f"shop.parse ended for a task without update_task and without further requests ({URL})"
        in silences(b)[0]
    )
    other = await b.page(f"{URL}2", task="8")
    other.origin.label = "shop.detail"
    b.tasks.look_for_report(other, URL)
    assert len(silences(b)) == 2


@pytest.mark.parametrize("why", ["reported", "further requests", "no task", "nobody expects it"])
async def test_a_page_that_is_not_silent_is_not_told_of(pages, why):
    b = pages(Shop(), tasks={"reported": why != "nobody expects it"})
    page = await b.page(URL, task="" if why == "no task" else "7")
    page.reported = why == "reported"
    page.put_early = why == "further requests"
    b.tasks.look_for_report(page, URL)
    assert silences(b) == []


async def test_a_dropped_page_of_a_task_says_that_it_was_dropped(pages):
    class Checks(Shop):
        def validate(self, request, response):
            return False

    b = pages(Checks(), tasks={"reported": True})
    await b.handle(URL, task="7")
    assert "http://a.example/ was dropped: validate returned False" in silences(b)[0]


# -- the end


@pytest.mark.parametrize(("failures", "label"), [(0, "shop.task_done"), (3, "shop.task_failed")])
async def test_the_end_of_a_task_goes_to_its_hook_with_the_number_of_failures(pages, failures, label):
    def ended(request, response, **given):
        """The spider's hook."""

    b = pages(Shop(), tasks={"ended": ended})
    page = await b.page(URL, cb_kwargs={"task": {"id": 7}, "token": "7", "other": 1})
    page.lease.task = f"!{failures}"
    b.tasks.prepare_end(page)
    assert page.function is ended
    assert page.request.cb_kwargs == {"task": {"id": 7}, "failed": failures, "token": "7"}
    assert page.origin.label == label


@pytest.mark.parametrize("task", ["!", "!x", "!-1"])
async def test_an_end_that_a_stranger_queued_calls_nothing(pages, task):
    b = pages(Shop(), tasks={"ended": lambda request, response, **given: None})
    page = await b.page(URL)
    page.lease.task = task
    with pytest.raises(UnknownCallbackError, match="shop has no tasks, so none can end"):
        b.tasks.prepare_end(page)


@pytest.mark.parametrize("reported", [False, True])
async def test_ends_are_counted_unless_reports_are_counted_where_they_are_written(pages, reported):
    b = pages(Shop(), tasks={"reported": reported})
    b.tasks.count_end(lease_of(task="!0"))
    b.tasks.count_end(lease_of(task="!2"))
    assert [b.counters.get(name) for name in ("tasks_done", "tasks_failed")] == [not reported] * 2


async def test_pages_of_two_batches_are_kept_apart_by_their_tasks_salt(pages):
    salted = []

    class Salted(Shop):
        def parse(self, request, response):
            yield request.replace(url=f"{URL}child")

    b = pages(Salted(), tasks={"salt": lambda token: salted.append(token) or token.encode()})
    for lease in [await b.lease(f"{URL}{n}", task=f"7:{n}") for n in (1, 2)]:
        await b.handler.handle(lease)
    await b.drained()
    assert salted == ["7:1", "7:2"]
    assert await b.queued() == [f"{URL}child"] * 2
