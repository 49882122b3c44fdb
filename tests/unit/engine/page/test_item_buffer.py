"""The item buffer: batches, acks after the store, back-pressure, dedup, and a store that takes nothing."""

import asyncio
from types import SimpleNamespace

import pytest

from netspy.engine.control import Control
from netspy.engine.page.item_buffer import ItemBuffer
from netspy.engine.page.output import ItemRow
from netspy.engine.page.page import LastStep
from netspy.errors import PipelineError
from netspy.frontier.dedup import MemoryItemFilter
from netspy.messages.row import Row
from support.engine import env_of


class Writer:
    """Keeps rows; can be made to wait, to fail and to refuse single rows."""

    def __init__(self):
        self.batches = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.refusing = asyncio.Event()
        self.refusing.set()
        self.failures = 0
        self.refused = set()
        self.buried = []
        self.waited_for = []

    async def refuse(self, rows):
        await self.refusing.wait()
        if self.failures:
            self.failures -= 1
            raise PipelineError("disk full")
        self.buried += [(dead.row.data["n"], dead.error, dead.item) for dead in rows]

    async def write(self, batch):
        await self.gate.wait()
        if self.failures:
            self.failures -= 1
            raise PipelineError("disk full")
        self.batches.append([row.data["n"] for row in batch])
        at = [place for place, row in enumerate(batch) if row.data["n"] in self.refused]
        return SimpleNamespace(stored=len(batch) - len(at), failed=len(at), failed_at=at)

    def shorten_deadline(self, deadline):
        """No deadline to shorten."""

    async def close(self):
        """Nothing to close."""


class Page:
    """The part of a page that the buffer knows."""

    def __init__(self):
        self.pending = 0
        self.done = 0

    def stored(self):
        self.pending -= 1
        self.done += 1


class Rig:
    def __init__(self, **settings):
        self.writer = Writer()
        self.filter = settings.pop("item_filter", None)
        env = env_of(
            **{"ITEM_BATCH_SIZE": 3, "BUFFER_FLUSH_INTERVAL": 0.02, "ITEM_MAX_CACHED_COUNT": 10, **settings}
        )
        self.counters, self.log, self.alerts = env.counters, env.log, env.alert
        self.control = Control(env.log)
        self.buffer = ItemBuffer(env, self.control, self.writer, self.filter)
        self.buffer.start()


@pytest.fixture
async def make():
    made = []

    def rig(**settings):
        made.append(Rig(**settings))
        return made[-1]

    yield rig
    for one in made:
        await one.buffer.stop()


def rows(*numbers, fingerprints=False):
    return [ItemRow(Row("items", {"n": n}), b"%016d" % n if fingerprints else None) for n in numbers]


async def stored(page, n):
    async with asyncio.timeout(30):
        while page.done < n:
            await asyncio.sleep(0.001)


async def test_a_full_batch_goes_at_once_and_the_rest_waits_for_its_interval(make):
    rig = make(BUFFER_FLUSH_INTERVAL=3600.0)
    page = Page()
    rig.buffer.add(page, rows(1, 2, 3, 4))
    assert page.pending == 4
    await stored(page, 3)
    await asyncio.sleep(0.01)
    assert rig.writer.batches == [[1, 2, 3]]
    assert (page.pending, len(rig.buffer)) == (1, 1)


async def test_a_small_batch_goes_after_the_interval(make):
    rig = make(BUFFER_FLUSH_INTERVAL=0.05)
    page = Page()
    rig.buffer.add(page, rows(1))
    await stored(page, 1)
    assert rig.writer.batches == [[1]]
    assert (page.pending, rig.counters.get("items")) == (0, 1)
    assert rig.buffer.empty


async def test_pages_learn_of_their_items_only_when_they_are_stored(make):
    rig = make()
    rig.writer.gate.clear()
    page = Page()
    rig.buffer.add(page, rows(1, 2, 3))
    await asyncio.sleep(0.02)
    assert page.pending == 3
    assert len(rig.buffer) == 3
    rig.writer.gate.set()
    await rig.buffer.flush_all()
    assert page.pending == 0


async def test_flush_all_waits_for_everything_and_does_not_wait_for_the_interval(make):
    rig = make(BUFFER_FLUSH_INTERVAL=60.0)
    page = Page()
    rig.buffer.add(page, rows(*range(8)))
    await asyncio.wait_for(rig.buffer.flush_all(), 30)
    assert page.done == 8
    assert rig.writer.batches == [[0, 1, 2], [3, 4, 5], [6, 7]]
    await asyncio.wait_for(rig.buffer.flush_all(), 30)


async def test_the_bound_holds_makers_back_until_there_is_room(make):
    rig = make(ITEM_MAX_CACHED_COUNT=4)
    rig.writer.gate.clear()
    rig.buffer.add(Page(), rows(1, 2, 3, 4))
    assert rig.buffer.full
    waiting = asyncio.ensure_future(rig.buffer.room())
    await asyncio.sleep(0.02)
    assert not waiting.done()
    rig.writer.gate.set()
    await asyncio.wait_for(waiting, 30)
    assert not rig.buffer.full


async def test_items_of_the_seeding_belong_to_no_page(make):
    rig = make()
    rig.buffer.add(LastStep(), rows(1))
    await rig.buffer.flush_all()
    assert rig.writer.batches == [[1]]


async def test_a_store_that_takes_nothing_acks_nothing_and_alarms_once(make):
    rig = make()
    rig.writer.failures = 3
    rig.writer.gate.clear()
    page = Page()
    rig.buffer.add(page, rows(1, 2, 3))
    slept = []

    async def sleep(seconds):
        slept.append(seconds)
        assert rig.buffer.stuck == "disk full"
        assert page.done == 0

    rig.buffer._sleep = sleep
    rig.writer.gate.set()
    await rig.buffer.flush_all()
    assert slept == [0.5, 1.0, 2.0]
    assert [kind for kind, _ in rig.alerts] == ["items_stuck"]
    assert rig.buffer.stuck is None
    assert page.done == 3


async def test_dead_lettered_rows_are_over_for_their_page_and_counted(make):
    rig = make()
    rig.writer.refused = {2}
    page = Page()
    rig.buffer.add(page, rows(1, 2, 3))
    await rig.buffer.flush_all()
    assert page.pending == 0
    assert (rig.counters.get("items"), rig.counters.get("item_failed")) == (2, 1)


async def test_known_items_are_left_out_within_and_across_batches(make):
    rig = make(item_filter=MemoryItemFilter())
    page = Page()
    rig.buffer.add(page, rows(1, 1, 2, fingerprints=True))
    await rig.buffer.flush_all()
    rig.buffer.add(page, rows(2, 3, 1, fingerprints=True))
    await rig.buffer.flush_all()
    assert rig.writer.batches == [[1, 2], [3]]
    assert rig.counters.get("item_dedup_dropped") == 3
    assert page.pending == 0, "a page whose items are all known is done too"


async def test_only_stored_items_are_known_afterwards(make):
    rig = make(item_filter=MemoryItemFilter())
    rig.writer.refused = {1}
    rig.buffer.add(Page(), rows(1, 2, fingerprints=True))
    await rig.buffer.flush_all()
    rig.writer.refused = set()
    rig.buffer.add(Page(), rows(1, 2, fingerprints=True))
    await rig.buffer.flush_all()
    assert rig.writer.batches == [[1, 2], [1]]


async def test_without_its_filter_items_pass_and_it_is_counted(make):
    class Away:
        async def seen(self, fingerprints):
            raise ConnectionError("away")

        async def mark(self, fingerprints):
            raise ConnectionError("away")

    rig = make(item_filter=Away())
    rig.buffer.add(Page(), rows(1, 2, 2, fingerprints=True))
    await rig.buffer.flush_all()
    assert rig.writer.batches == [[1, 2]]
    assert rig.counters.get("dedup_degraded") == 3 + 2
    assert any("not available" in line for line in rig.log.lines)


async def test_when_the_flushing_breaks_nobody_waits_for_it(make):
    rig = make()

    async def broken(batch):
        raise RuntimeError("a fault inside")

    rig.writer.write = broken
    page = Page()
    rig.buffer.add(page, rows(1))
    await asyncio.wait_for(rig.buffer.flush_all(), 30)
    assert page.pending == 1
    assert isinstance(rig.buffer.task.exception(), RuntimeError)
    await asyncio.wait_for(rig.buffer.flush_all(), 30)


async def test_refused_items_are_dead_letters_before_their_page_is_over(make):
    rig = make()
    rig.writer.refusing.clear()
    page = Page()
    bad = ItemRow(Row("items", {"n": 2}), None, "price: wrong", "shop.Book")
    rig.buffer.add(page, [*rows(1), bad, *rows(3)])
    await asyncio.sleep(0.05)
    assert page.done == 0, "the disk hasn't taken the refused one yet"
    rig.writer.refusing.set()
    await rig.buffer.flush_all()
    assert rig.writer.buried == [(2, "price: wrong", "shop.Book")]
    assert rig.writer.batches == [[1, 3]]
    assert (page.pending, page.done) == (0, 3)
    assert (rig.counters.get("items"), rig.counters.get("item_failed")) == (2, 1)


async def test_a_refused_item_that_can_not_be_kept_holds_its_page(make):
    rig = make()
    rig.writer.failures = 2
    page = Page()

    async def sleep(seconds):
        assert page.done == 0
        assert rig.buffer.stuck == "disk full"

    rig.buffer._sleep = sleep
    rig.buffer.add(page, [ItemRow(Row("items", {"n": n}), None, "wrong") for n in range(3)])
    await rig.buffer.flush_all()
    assert [n for n, _, _ in rig.writer.buried] == [0, 1, 2]
    assert page.done == 3
    assert [kind for kind, _ in rig.alerts] == ["items_stuck"]


async def test_the_twin_of_a_row_that_failed_is_not_taken_for_known(make):
    """Of equal keys in a batch the second is stored, or dead-lettered, when the first could not be stored."""

    class Once(Writer):
        async def write(self, batch):
            self.refused = set() if self.batches else {1}
            return await super().write(batch)

    rig = make(item_filter=MemoryItemFilter(), ITEM_BATCH_SIZE=6)
    rig.writer = rig.buffer._writer = Once()
    page = Page()
    rig.buffer.add(page, rows(1, 2, 1, 1, 2, 3, fingerprints=True))
    await rig.buffer.flush_all()
    assert rig.writer.batches == [[1, 2, 3], [1]]
    assert (rig.counters.get("items"), rig.counters.get("item_failed")) == (3, 1)
    assert rig.counters.get("item_dedup_dropped") == 2
    assert page.done == 6


async def test_twins_that_all_fail_are_all_counted_as_failed(make):
    rig = make(item_filter=MemoryItemFilter())
    rig.writer.refused = {1}
    rig.buffer.add(Page(), rows(1, 1, 1, fingerprints=True))
    await rig.buffer.flush_all()
    assert rig.writer.batches == [[1], [1], [1]]
    assert (rig.counters.get("item_failed"), rig.counters.get("item_dedup_dropped")) == (3, 0)


async def test_the_fields_of_stored_rows_are_counted_and_of_failed_ones_not(make):
    rig = make()
    rig.writer.refused = {2}
    more = [ItemRow(Row("u", {"n": n, "price": None}), None) for n in (4, 5)]
    rig.buffer.add(Page(), [*rows(1, 2, 3), *more])
    await rig.buffer.flush_all()
    counted = rig.counters.coverage.tables()
    assert (counted["items"].rows, counted["items"].filled) == (2, {"n": 2})
    assert (counted["u"].rows, counted["u"].filled) == (2, {"n": 2, "price": 0})


async def test_the_buffer_says_which_store_is_waited_for(make):
    rig = make()
    assert rig.buffer.waiting is None
    rig.writer.waited_for = ["MysqlPipeline"]
    assert rig.buffer.waiting == "MysqlPipeline"


@pytest.mark.parametrize("ticks", range(5))
async def test_a_stop_in_the_moment_of_the_last_item_is_not_lost(make, ticks):
    """The task that waits for a batch to fill is woken and cancelled at once, or a few steps later."""
    rig = make(BUFFER_FLUSH_INTERVAL=30.0)
    rig.buffer.add(Page(), rows(1))
    await asyncio.sleep(0.01)  # it waits for the second item or the interval
    rig.buffer.add(Page(), rows(2, 3))
    for _ in range(ticks):
        await asyncio.sleep(0)
    async with asyncio.timeout(20):
        await rig.buffer.stop()
    assert rig.buffer.task.done()
