"""What users write about tasks: any number of requests, in any way, and a mistake costs only what it is in."""

from __future__ import annotations

import asyncio
import threading

import pytest

from netspy.engine.page.actions import current
from netspy.engine.page.threads import CallbackPool
from netspy.engine.tasks.requests import NothingTakenError, TaskRequests, fetch_tasks, split_travelling
from netspy.errors import SpiderError
from netspy.messages.entry import TaskState
from netspy.messages.request import Request
from netspy.tasks.contract import Task
from netspy.tasks.memory import MemoryTaskSource
from support.engine import Gated, Spider, tasks_of, until

TASK = Task("token", "shoes")


@pytest.fixture
def requesting(bench):
    """A bench whose spider has this `task_requests`."""

    def make(function, *, source=None, change=None, frontier=None, **settings):
        class Shop(Spider):
            task_requests = function

        b = bench(Shop(), frontier=frontier, **settings)
        b.outbox.start()
        tasks = tasks_of(b.spider, source or MemoryTaskSource(), **(change or {}))
        b.requests = TaskRequests(b.env, b.control, b.gauge, tasks, b.outbox, b.items, b.collector, b.pool)
        b.work = b.requests.at_work(TASK)
        b.draw = lambda: b.requests.requests_of(TASK, b.work)
        return b

    return make


def pages(n):
    return [f"http://a.example/{page}" for page in range(n)]


def plain(n):
    def task_requests(_self, task):
        yield from pages(n)

    return task_requests


def agen(n):
    async def task_requests(_self, task):
        for page in pages(n):
            yield page

    return task_requests


def handed_on(n):
    return lambda self, task: agen(n)(self, task)


def coroutine(n):
    async def task_requests(_self, task):
        return pages(n)

    return task_requests


@pytest.mark.parametrize("kind", [plain, agen, handed_on, coroutine])
async def test_the_requests_of_a_task_know_their_task(requesting, kind):
    b = requesting(kind(3))
    drawn = await b.draw()
    assert [entry.payload.url for entry in drawn.requests] == pages(3)
    assert {entry.task for entry in drawn.requests} == {"token"}
    assert (drawn.task, drawn.history) == (TASK, None)
    assert (await b.frontier.counts()).queued == 0, "the feeder puts them"


@pytest.mark.parametrize("kind", [plain, agen, handed_on])
async def test_a_long_task_is_put_in_chunks_and_stays_open_until_its_rest_is_there(requesting, kind):
    b = requesting(kind(1100))
    drawn = await b.draw()
    assert len(drawn.requests) == 100
    assert b.frontier.told == ["put", "put"]
    assert b.gauge.fed == 1000
    assert (await b.frontier.open_tasks([("token", None)])).states == [TaskState.FEEDING]
    await b.outbox.put(drawn.requests, tasks=[b.requests.mark(TASK, history=drawn.history)])
    assert (await b.frontier.open_tasks([("token", None)])).states == [TaskState.OPEN]


@pytest.mark.parametrize("kind", [plain, agen])
async def test_a_long_task_is_not_drawn_on_while_enough_requests_wait(requesting, kind):
    b = requesting(kind(1100), SPIDER_SEED_AHEAD=500)
    drawing = asyncio.create_task(b.draw())
    await until(lambda: b.gauge.fed)
    for _ in range(99):
        await asyncio.sleep(0)
    assert b.gauge.fed == 500
    assert not drawing.done()
    b.gauge.on_count(0)
    await until(lambda: b.gauge.fed == 500 and b.frontier.told == ["put", "put"])
    b.control.stop("told to")
    assert len((await drawing).requests) == 100, "a stop waits for no room"


async def test_the_history_is_that_of_the_first_chunk(requesting):
    class GoesBack(Gated):
        history = "first"

        async def put(self, entries, **keywords):
            answer = await super().put(entries, **keywords)
            self.history = "second"
            return answer

    b = requesting(agen(1100), frontier=GoesBack())
    assert (await b.draw()).history == "first"
    assert b.frontier.told == ["put", "put"]


@pytest.mark.parametrize("wrong", [5, Request("no url")])
async def test_a_task_of_which_nothing_could_be_taken_says_why(requesting, wrong):
    b = requesting(lambda _self, task: [wrong])
    with pytest.raises(NothingTakenError):
        await b.draw()


async def test_a_task_of_which_something_could_be_taken_goes_on(requesting):
    b = requesting(lambda _self, task: [5, *pages(1)])
    assert len((await b.draw()).requests) == 1


async def test_items_of_task_requests_are_kept(requesting):
    b = requesting(lambda _self, task: [{"n": 1}])
    assert (await b.draw()).requests == []
    assert len(b.items) == 1


async def test_a_task_with_nothing_to_crawl_that_is_not_reported_is_warned_of_once(requesting):
    b = requesting(lambda _self, task: None, change={"reported": True})
    for _ in range(3):
        await b.draw()
    assert len(b.log.lines) == 1
    assert "gave no request for a task and did not report it (shoes)" in b.log


@pytest.mark.parametrize("how", ["reported there", "it has requests", "nobody expects it"])
async def test_a_task_that_is_accounted_for_is_not_warned_of(requesting, how):
    def task_requests(_self, task):
        if how == "reported there":
            current.get().reported = True
        return pages(1) if how == "it has requests" else None

    b = requesting(task_requests, change={"reported": how != "nobody expects it"})
    await b.draw()
    assert b.log.lines == []


async def test_equal_requests_of_a_task_are_known_at_its_next_delivery_and_new_where_a_row_comes_again(
    requesting,
):
    async def ids(source):
        b = requesting(plain(2), source=source)
        return [[entry.id for entry in (await b.draw()).requests] for _ in range(2)]

    class Rows(MemoryTaskSource):
        reusable = True

    first, second = await ids(MemoryTaskSource())
    assert first == second
    assert len(set(first)) == 2
    first, second = await ids(Rows())
    assert not set(first) & set(second)


async def test_a_task_ends_with_a_request_only_where_somebody_wants_to_know(requesting):
    b = requesting(plain(1))
    assert b.requests.closing(TASK) == (None, False)
    assert b.requests.mark(TASK) == ("token", True, None, False, None)
    wanted = Request("http://a.example/end", auto_request=False, cb_kwargs={"task": "shoes"})
    b = requesting(plain(1), change={"closing": lambda task: (wanted, True)})
    mark = b.requests.mark(TASK, fed=False)
    assert mark.closing.payload.cb_kwargs == {"task": "shoes", "token": "token"}
    assert (mark.fed, mark.only_failed, mark.closing.task) == (False, True, "")
    assert b.requests.closing(TASK, failures="!1")[0].task == "!1"


# -- fetch_tasks


@pytest.fixture
async def pool():
    made = CallbackPool(maximum=2)
    yield made
    made.close()


def listed(limit):
    return list(range(limit))


def generated(limit):
    yield from range(limit)


async def awaited(limit):
    return list(range(limit))


async def agenerated(limit):
    for task in range(limit):
        yield task


@pytest.mark.parametrize("fetch", [listed, generated, awaited, agenerated, lambda limit: awaited(limit)])
async def test_fetch_tasks_may_be_written_in_any_way(pool, fetch):
    assert await fetch_tasks(fetch, 3, pool) == [0, 1, 2]


async def test_a_plain_fetch_tasks_holds_up_no_loop(pool):
    def generator(limit):
        yield threading.current_thread()

    assert await fetch_tasks(generator, 1, pool) != [threading.main_thread()]


async def test_no_tasks_are_an_empty_list(pool):
    assert await fetch_tasks(lambda _limit: None, 1, pool) == []


@pytest.mark.parametrize("given", ["http://a.example/", b"1", {"id": 1}, 7])
@pytest.mark.parametrize("awaits", [False, True])
async def test_what_is_no_list_of_tasks_is_refused_with_what_it_was(pool, given, awaits):
    async def coroutine(_limit):
        return given

    with pytest.raises(SpiderError, match=f"it returned {type(given).__name__} .*; return a list of tasks"):
        await fetch_tasks(coroutine if awaits else lambda _limit: given, 1, pool)


def test_tasks_that_cannot_travel_are_told_apart_from_those_that_can():
    good, trouble = split_travelling([1, object(), {"id": 2}, {"at": threading.Lock()}])
    assert good == [1, {"id": 2}]
    assert len(trouble) == 2
    assert "task <object object" in trouble[0]
