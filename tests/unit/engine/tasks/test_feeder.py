"""The task feeder: a task is in its source, in this node's hands or in the frontier, and never in none of them."""

from __future__ import annotations

import asyncio

import pytest

from netspy.engine.page.actions import Action, current
from netspy.engine.page.effects import Effects
from netspy.engine.tasks.feeder import Feeder
from netspy.errors import StoreLostError
from netspy.messages.entry import OpenTasks, TaskState
from netspy.messages.request import Request
from netspy.tasks.contract import Backlog, Task
from netspy.tasks.memory import MemoryTaskSource
from support.engine import Gated, Spider, tasks_of, until


class Source(MemoryTaskSource):
    """A memory source that notes what it is asked and told. `holds`: it wants to know of a task's end."""

    def __init__(self, values=(), *, holds=False, reusable=False, counts_deaths=False):
        super().__init__(values)
        self.holds, self.reusable, self.counts_deaths = holds, reusable, counts_deaths
        self.rooms, self.kept = [], 0

    async def take(self, limit):
        self.rooms.append(limit)
        return await super().take(limit)

    async def keep(self, tasks):
        self.kept += 1


class Past(Gated):
    """A frontier whose history can change: what was put under another one is lost."""

    history = "first"

    async def open_tasks(self, tasks):
        known, _ = await super().open_tasks(tasks)
        states = [
            TaskState.LOST if put is not None and put != self.history else state
            for (_, put), state in zip(tasks, known, strict=True)
        ]
        return OpenTasks(states, self.history)


class Flaky(Spider):
    """Raises for these tasks, so often."""

    def __init__(self, **trouble):
        self.trouble, self.drawn = trouble, []

    def task_requests(self, task):
        self.drawn.append(task)
        if self.trouble.get(task, 0):
            self.trouble[task] -= 1
            raise OSError("no such shop")
        return f"http://a.example/{task}"


@pytest.fixture
async def feeding(bench):
    """A bench with its feeder; `change` what the task side is."""
    made = []

    def make(source, spider=None, *, keep_alive=False, change=None, frontier=None, **settings):
        given = {"TASK_POLL_INTERVAL": 0.001, "HEARTBEAT_INTERVAL": 0.005} | settings
        b = bench(spider or Flaky(), frontier=frontier, **given)
        b.outbox.start()
        tasks = tasks_of(b.spider, source, **(change or {}))
        b.effects = Effects(b.env, b.control, tasks.doers)
        requests = b.task_requests(tasks, b.effects)
        b.feeder = Feeder(b.env, b.control, b.gauge, tasks, b.frontier, requests, keep_alive=keep_alive)
        made.append(b)
        return b

    yield make
    for b in made:
        b.control.leaving = True
        await b.effects.stop()
        b.feeder.stop()
        for task in b.feeder.tasks:
            task.cancel()
        await asyncio.gather(*b.feeder.tasks, return_exceptions=True)


def queued(b):
    return sorted(request.url.rpartition("/")[2] for request, _ in b.frontier.snapshot())


async def test_tasks_are_taken_no_more_than_there_is_room_and_handed_over_to_the_frontier(feeding):
    b = feeding(source := Source(range(7)), TASK_BATCH_SIZE=3)
    b.feeder.start()
    await until(lambda: not source.left())
    assert queued(b) == [str(n) for n in range(7)]
    assert set(source.rooms) == {3}
    assert (b.counters.get("tasks_taken"), b.gauge.fed) == (7, 7)
    await until(lambda: b.feeder.exhausted)
    assert not b.feeder.busy


async def test_no_task_is_taken_while_enough_requests_wait(feeding):
    b = feeding(source := Source(range(4)), TASK_BATCH_SIZE=2, SPIDER_SEED_AHEAD=2)
    b.feeder.start()
    await until(lambda: b.gauge.fed >= 2)
    assert len(source.left()) == 2, "what was fed counts until the queue is counted"
    asked = len(source.rooms)
    b.gauge.on_count(2)
    b.feeder._wake.set()
    await until(lambda: not b.feeder._wake.is_set())
    assert len(source.rooms) == asked
    b.gauge.on_count(0)
    await until(lambda: not source.left())


async def test_tasks_that_wait_for_their_end_in_other_hands_are_bounded_too(feeding):
    b = feeding(source := Source(range(50), holds=True), TASK_BATCH_SIZE=1)
    b.feeder.start()
    await until(lambda: len(b.feeder._held) == 10)
    b.feeder._wake.set()
    await until(lambda: not b.feeder._wake.is_set())
    assert len(source.rooms) == 10


async def test_a_task_whose_requests_could_not_be_made_is_tried_again_later_and_others_do_not_wait(feeding):
    spider = Flaky(bad=1)
    b = feeding(source := Source(["bad", "good"]), spider, TASK_EXHAUST_POLLS=1)
    b.feeder.start()
    await until(lambda: source.left() == ["bad"])
    assert (queued(b), spider.drawn) == (["good"], ["bad", "good"])
    assert b.feeder.busy, "it is in this node's hands"
    assert not b.feeder.exhausted
    assert "1 task(s) in hand" in await b.feeder.open_because(Backlog(0, 1))
    b.clock.advance(0.5)
    await until(lambda: not source.left())
    assert queued(b) == ["bad", "good"]
    assert source.failures == []


async def test_a_task_of_which_no_requests_can_be_made_goes_to_the_failed_list_and_the_spider_hears_of_it(
    feeding,
):
    told = Request("http://a.example/told", auto_request=False)
    b = feeding(
        source := Source(["bad"]),
        Flaky(bad=9),
        change={"closing": lambda task: (told, True)},
        SPIDER_MAX_RETRY_TIMES=1,
    )
    b.feeder.start()
    await until(lambda: b.feeder._later)
    b.clock.advance(60.0)
    await until(lambda: source.failures)
    assert source.failures == [("bad", "OSError: no such shop")]
    assert b.spider.drawn == ["bad"] * 2
    assert queued(b) == ["told"]
    [lease] = (await b.frontier.claim(1)).leases
    assert lease.task == "!1", "a failed task's end"
    assert b.counters.get("callback_error") == 2


async def test_what_is_in_hand_goes_back_when_the_node_leaves(feeding):
    b = feeding(source := Source(["bad", "held"], holds=True), Flaky(bad=1))
    b.feeder.start()
    await until(lambda: b.feeder._later and b.feeder._held)
    b.feeder.stop()
    await b.feeder.give_back()
    assert (await source.backlog())[:2] == (2, 0)


async def test_a_node_that_holds_nothing_does_not_trouble_the_source_at_its_end(feeding):
    class Strict(Source):
        async def release(self, tasks):
            raise AssertionError("nothing to give back")

    b = feeding(Strict())
    await b.feeder.give_back()


async def test_a_held_task_is_kept_alive_until_the_frontier_says_that_nothing_of_it_is_left(feeding):
    b = feeding(source := Source(["one"], holds=True), TASK_EXHAUST_POLLS=1)
    b.feeder.start()
    await until(lambda: b.feeder._held)
    b.clock.advance(1.0)
    await until(lambda: source.kept and b.feeder._empty_polls)
    assert not b.feeder.exhausted, "its pages may bring more"
    assert source.left() == ["one"]
    leases = (await b.frontier.claim(9)).leases
    for lease in leases:
        b.outbox.settle(lease)
    await until(lambda: not source.left())
    assert not b.feeder._held


async def test_a_held_task_that_was_put_before_the_store_went_back_is_turned_into_requests_again(feeding):
    b = feeding(source := Source(["one"], holds=True), frontier=Past())
    b.feeder.start()
    await until(lambda: b.feeder._held)
    b.frontier.history = "second"
    await until(lambda: len(b.spider.drawn) == 2)
    assert "1 task(s) whose requests may be gone are turned into requests again" in b.log
    await until(lambda: b.feeder._held)
    [put] = b.feeder._held.values()
    assert put.history == "second"
    assert source.left() == ["one"]


async def test_a_task_that_is_whole_after_the_store_went_back_is_held_under_the_new_history(feeding):
    class Whole(Past):
        asked = ()

        async def open_tasks(self, tasks):
            self.asked = [*self.asked, tasks[0][1]]
            known, _ = await Gated.open_tasks(self, tasks)
            return OpenTasks(known, self.history)

    b = feeding(Source(["one"], holds=True), frontier=Whole())
    b.feeder.start()
    await until(lambda: b.feeder._held)
    b.frontier.history = "second"
    await until(lambda: "second" in b.frontier.asked)
    assert b.spider.drawn == ["one"]


async def test_a_task_whose_store_goes_back_while_it_is_put_is_turned_into_requests_again(feeding):
    class GoesBack(Past):
        async def put(self, entries, **keywords):
            answer = await super().put(entries, **keywords)
            if self.told.count("put") == 1:
                self.history = "second"
            return answer

    b = feeding(source := Source(["one"]), frontier=GoesBack())
    b.feeder.start()
    await until(lambda: not source.left())
    assert b.spider.drawn == ["one", "one"]


async def test_a_store_that_goes_back_while_the_source_hears_of_the_end_loses_no_task(feeding):
    class GoesBack(Source):
        async def settled(self, tasks):
            await super().settled(tasks)
            if b.frontier.history == "first":
                b.frontier.history = "second"

    b = feeding(GoesBack(["one"]), frontier=Past())
    b.feeder.start()
    await until(lambda: len(b.spider.drawn) == 2)
    await until(lambda: not b.feeder.busy)
    assert "went back to an earlier state" in b.log


async def test_a_row_whose_requests_are_all_there_needs_no_more_than_holding(feeding):
    b = feeding(source := Source(holds=True, reusable=True))
    [task] = await source.adopt(["one"])
    await b.feeder._feed([task])
    assert b.spider.drawn == ["one"]
    await source.release([task])
    b.feeder._held.clear()
    b.feeder.start()
    await until(lambda: b.feeder._held)
    assert b.spider.drawn == ["one"], "another node had put it"


async def test_an_empty_source_is_at_its_end_after_so_many_looks_and_a_task_begins_the_count_anew(feeding):
    b = feeding(source := Source(), TASK_EXHAUST_POLLS=3)
    empty = Backlog(0, 0)
    assert await b.feeder.open_because(empty) == "the task source was empty 0 time(s) of 3"
    b.feeder.start()
    await until(lambda: b.feeder.exhausted)
    assert await b.feeder.open_because(empty) is None
    assert await b.control.changed(0.0), "the node may ask whether the run is over"
    await source.add(["late"])
    await until(lambda: b.spider.drawn)
    await until(lambda: b.feeder.exhausted)
    assert len(source.rooms) >= 7


@pytest.mark.parametrize(
    ("backlog", "why"),
    [(Backlog(2, 0), "2 task(s) waiting"), (Backlog(0, 1), "1 task(s) in other nodes' hands")],
)
async def test_a_source_with_tasks_is_open_however_often_it_gave_none(feeding, backlog, why):
    b = feeding(Source(), TASK_EXHAUST_POLLS=1)
    b.feeder.start()
    await until(lambda: b.feeder.exhausted)
    assert await b.feeder.open_because(backlog) == why


async def test_another_reason_for_more_tasks_is_asked_when_the_source_is_at_its_end(feeding):
    async def batch_is_open():
        return "the batch is open"

    b = feeding(Source(), change={"open_because": batch_is_open}, TASK_EXHAUST_POLLS=1)
    assert "was empty" in await b.feeder.open_because(Backlog(0, 0))
    b.feeder.start()
    await until(lambda: b.feeder.exhausted)
    assert await b.feeder.open_because(Backlog(0, 0)) == "the batch is open"


# -- fetch_tasks


async def test_fetched_tasks_fill_the_room_that_the_source_left(feeding):
    limits, rounds = [], [["c", "d"], []]

    def fetch(limit):
        limits.append(limit)
        return rounds.pop(0) if rounds else []

    b = feeding(source := Source(["a"]), change={"fetch": fetch}, TASK_BATCH_SIZE=3)
    b.feeder.start()
    await until(lambda: b.feeder.exhausted)
    assert queued(b) == ["a", "c", "d"]
    assert limits[:2] == [2, 3]
    assert source.left() == []


def failing(times):
    calls = []

    def fetch(limit):
        calls.append(limit)
        if len(calls) <= times:
            raise OSError("no database")
        return []

    return fetch, calls


async def test_fetch_tasks_that_raises_again_and_again_ends_the_run(feeding):
    fetch, calls = failing(99)
    b = feeding(Source(), change={"fetch": fetch}, SPIDER_MAX_RETRY_TIMES=2)
    b.feeder.start()
    ended = await b.control.stopped()
    assert ended.outcome == "failed"
    assert "OSError: no database, 3 times in a row" in ended.reason
    assert len(calls) == 3
    assert not b.feeder.exhausted, "that says nothing about the source"


async def test_fetch_tasks_that_raises_now_and_then_is_asked_again_and_counted_anew(feeding):
    fetch, _ = failing(2)
    b = feeding(Source(), change={"fetch": fetch}, SPIDER_MAX_RETRY_TIMES=2)
    b.feeder.start()
    await until(lambda: b.feeder.exhausted)
    assert (b.feeder._fetch_errors, b.control.ended) == (0, None)
    assert b.counters.get("callback_error") == 2


async def test_a_run_that_stays_is_not_ended_by_fetch_tasks(feeding):
    fetch, calls = failing(4)
    b = feeding(Source(), change={"fetch": fetch}, keep_alive=True, SPIDER_MAX_RETRY_TIMES=0)
    b.feeder.start()
    await until(lambda: len(calls) > 4)
    assert not b.control.stopping


async def test_what_the_source_gave_is_served_though_fetch_tasks_raises(feeding):
    fetch, _ = failing(99)
    b = feeding(source := Source(["a"]), change={"fetch": fetch}, keep_alive=True)
    b.feeder.start()
    await until(lambda: not source.left())
    assert queued(b) == ["a"]


async def test_a_fetched_task_that_cannot_travel_is_left_out_alone(feeding):
    rounds = [["a", object(), "b"]]
    b = feeding(Source(), change={"fetch": lambda _limit: rounds.pop() if rounds else []})
    b.feeder.start()
    await until(lambda: b.feeder.exhausted)
    assert queued(b) == ["a", "b"]
    assert "it is left out" in b.log


# -- trouble


async def test_a_task_whose_node_died_again_and_again_is_poison_and_takes_no_other_along(feeding):
    b = feeding(source := Source(counts_deaths=True), SPIDER_MAX_DELIVERIES=3)
    tasks = [Task("a", "a", deliveries=5), Task("b", "b", deliveries=6)]
    source._taken = {task.token: task for task in tasks}
    b.feeder._remember(tasks)
    await b.feeder._feed(tasks)
    assert b.spider.drawn == ["a"]
    assert source.failures == [("b", "its node died 5 times before it was turned into requests")]
    assert b.counters.get("poisoned") == 1
    assert not b.feeder.busy


async def test_where_deliveries_say_nothing_of_deaths_no_task_is_poison(feeding):
    b = feeding(Source())
    await b.feeder._feed([Task("a", "a", deliveries=99)])
    assert b.spider.drawn == ["a"]


class Long(Flaky):
    """So many requests that they go to the frontier in chunks."""

    def task_requests(self, task):
        return [f"http://a.example/{n}" for n in range(600)]


@pytest.mark.parametrize("spider", [Flaky, Long])
async def test_a_store_that_is_lost_ends_the_run_and_condemns_no_task(feeding, spider):
    class Lost(Gated):
        async def put(self, entries, **keywords):
            raise StoreLostError("gone")

    b = feeding(source := Source(["a"]), spider(), frontier=Lost())
    b.feeder.start()
    assert (await b.control.stopped()).outcome == "store_lost"
    await until(b.feeder.tasks[0].done)
    assert (source.left(), source.failures) == (["a"], [])


async def test_a_stop_in_the_middle_keeps_what_was_not_put_in_hand(feeding):
    class Stops(Flaky):
        def task_requests(self, task):
            b.feeder._stopping = True
            return super().task_requests(task)

    b = feeding(source := Source(range(20)), Stops(), TASK_BATCH_SIZE=20)
    await b.feeder._feed(await b.feeder._take(20))
    assert len(b.spider.drawn) == 8, "so many side by side"
    assert (queued(b), b.feeder.busy) == ([], True)
    await b.feeder.give_back()
    assert len(source.left()) == 20


class Yielding(Flaky):
    """Yields a row, and a page, for each task; `marks` reports the task besides, before the row."""

    def __init__(self, *, how="plain", marks=False, page=True, **trouble):
        super().__init__(**trouble)
        self.how, self.marks, self.page = how, marks, page
        self.task_requests = {"plain": self.plain, "agen": self.agen, "returned": self.returned}[how]

    def plain(self, task):
        if self.marks:
            current.get().actions.append(Action("mark", task, on_success=True))
        yield {"task": task}
        if self.page:
            yield f"http://a.example/{task}"
        if self.trouble.get(task, 0):
            self.trouble[task] -= 1
            raise OSError("no such shop")

    async def agen(self, task):
        for value in self.plain(task):
            yield value

    async def returned(self, task):
        return list(self.plain(task))


@pytest.mark.parametrize("how", ["plain", "agen", "returned"])
@pytest.mark.parametrize("holds", [False, True])
async def test_f4_a_task_is_not_settled_before_its_items_are_stored_and_others_do_not_wait(
    feeding, how, holds
):
    """F4: a node that is killed in between must leave the task to another."""
    b = feeding(
        source := Source(["a", "b"], holds=holds),
        Yielding(how=how),
        BUFFER_FLUSH_INTERVAL=0.001,
        TASK_BATCH_SIZE=1,
    )
    b.rows.gate.clear()
    b.items.start()
    b.feeder.start()
    await until(lambda: len(b.items) == 2)
    for _ in range(50):
        await asyncio.sleep(0)
    assert (source.left(), queued(b)) == (["a", "b"], [])
    assert not b.feeder.exhausted
    b.rows.gate.set()
    await until(lambda: queued(b) == ["a", "b"])
    if not holds:
        await until(lambda: not source.left())
    assert [row["task"] for row in b.rows.stored] == ["a", "b"]


async def test_f4_what_task_requests_reports_is_written_after_its_items_are_stored(feeding):
    told = []

    async def mark(values):
        told.append((list(values), len(b.rows.stored)))

    b = feeding(
        source := Source(["a"]), Yielding(marks=True, page=False), BUFFER_FLUSH_INTERVAL=0.001,
        change={"doers": {"mark": mark}},
    )  # fmt: skip
    b.effects.start()
    b.items.start()
    b.feeder.start()
    await until(lambda: not source.left())
    assert told == [(["a"], 1)]


@pytest.mark.parametrize("how", ["plain", "agen"])
async def test_f4_what_was_yielded_before_task_requests_raised_is_stored_before_the_task_is_failed(
    feeding, how
):
    marked = []

    async def mark(values):
        marked.extend(values)

    b = feeding(
        source := Source(["a"]), Yielding(how=how, marks=True, a=9), BUFFER_FLUSH_INTERVAL=0.001,
        SPIDER_MAX_RETRY_TIMES=0, change={"doers": {"mark": mark}},
    )  # fmt: skip
    b.rows.gate.clear()
    b.effects.start()
    b.items.start()
    b.feeder.start()
    await until(lambda: len(b.items) == 1)
    for _ in range(50):
        await asyncio.sleep(0)
    assert source.failures == []
    b.rows.gate.set()
    await until(lambda: source.failures)
    assert (b.rows.stored, queued(b), marked) == ([{"task": "a"}], ["a"], [])


async def test_f4_a_task_of_very_many_items_is_drawn_no_faster_than_they_are_stored(feeding):
    drawn = []

    class Many(Flaky):
        def task_requests(self, task):
            for n in range(5000):
                drawn.append(n)
                yield {"n": n}

    b = feeding(source := Source(["a"]), Many(), ITEM_MAX_CACHED_COUNT=100)
    b.rows.gate.clear()
    b.items.start()
    b.feeder.start()
    await until(lambda: b.items.full)
    for _ in range(50):
        await asyncio.sleep(0)
    assert len(drawn) <= 500 + 100
    b.rows.gate.set()
    await until(lambda: not source.left())
    assert len(b.rows.stored) == 5000


async def test_f4_tasks_that_wait_for_their_items_are_bounded(feeding):
    b = feeding(source := Source(range(50)), Yielding(), TASK_BATCH_SIZE=1)
    b.rows.gate.clear()
    b.items.start()
    b.feeder.start()
    await until(lambda: len(b.feeder._in_hand) == 10)
    b.feeder._wake.set()
    await until(lambda: not b.feeder._wake.is_set())
    assert len(source.rooms) == 10
