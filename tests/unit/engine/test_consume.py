"""A consumer of rows: nothing is acknowledged before it is stored or dead-lettered, and a stop loses nothing."""

import asyncio
from typing import NamedTuple

import pytest

from netspy.engine.consume import Consumer
from netspy.errors import PipelineError, StoreLostError
from netspy.tasks.memory import MemoryTaskSource
from support.engine import env_of


class Result(NamedTuple):
    stored: int
    failed: int = 0
    failed_at: tuple = ()


class Writer:
    """Keeps rows. `trouble` is raised instead, once or `for_ever`; `gate` is waited for before."""

    waited_for = ()

    def __init__(self):
        self.rows = []
        self.trouble = None
        self.for_ever = False
        self.gate = None
        self.writing = False
        self.closed = False

    async def write(self, batch):
        self.writing = True
        if self.gate is not None:
            await self.gate.wait()
        trouble = self.trouble
        if not self.for_ever:
            self.trouble = None
        if trouble is not None:
            raise trouble
        self.rows += batch
        return Result(len(batch))

    async def close(self):
        self.closed = True


class Letters(list):
    """Dead letters in memory."""

    def append(self, rows):
        self.extend(rows)


class Rig:
    """A consumer and what it is made from."""

    def __init__(self, values=(), *, source=MemoryTaskSource, clean=None, once=True, **settings):
        self.env = env_of(SPIDER_STOP_TIMEOUT=settings.pop("SPIDER_STOP_TIMEOUT", 0.01), **settings)
        self.source, self.writer, self.letters = source(values), Writer(), Letters()
        self.consumer = Consumer(
            self.env, self.source, self.writer, self.letters, table="books", clean=clean, once=once
        )

    async def run(self):
        async with asyncio.timeout(60):
            await self.consumer.run()
        return self

    async def until(self, seen):
        running = asyncio.create_task(self.run())
        while not seen():
            assert not running.done(), running
            await asyncio.sleep(0.001)
        return running

    def stored(self):
        return [row.data["n"] for row in self.writer.rows]


def books(count):
    return [{"n": n} for n in range(count)]


async def test_everything_is_stored_in_batches_and_acknowledged():
    rig = await Rig(books(7), ITEM_BATCH_SIZE=3).run()
    assert rig.stored() == list(range(7))
    assert {row.table for row in rig.writer.rows} == {"books"}
    assert rig.source.left() == []
    assert rig.env.counters.get("items") == 7
    assert rig.writer.closed


async def test_what_is_no_row_goes_to_the_sources_failed_list_and_the_others_are_stored():
    rig = await Rig([{"n": 1}, [1, 2], {"netspy": 9, "table": "t", "data": {}}]).run()
    assert rig.stored() == [1]
    assert [value for value, _ in rig.source.failures] == [[1, 2], {"netspy": 9, "table": "t", "data": {}}]
    assert rig.env.counters.user == {"unreadable": 2}


class HalfReadable(MemoryTaskSource):
    unreadable = 0

    async def take(self, limit):
        self.unreadable = 3
        return await super().take(limit)


async def test_messages_that_the_source_could_not_read_are_counted_once():
    rig = await Rig(books(2), source=HalfReadable).run()
    assert rig.env.counters.user == {"unreadable": 3}
    assert "3 message(s) can't be read" in rig.env.log


def cleaned(row):
    n = row.data["n"]
    if n == 1:
        return None
    if n == 2:
        raise ValueError("a bad price")
    if n == 3:
        return 7
    return row._replace(table="others") if n == 4 else {**row.data, "clean": True}


async def cleaned_async(row):
    return cleaned(row)


@pytest.mark.parametrize("clean", [cleaned, cleaned_async])
async def test_clean_changes_leaves_out_and_refuses_rows(clean):
    rig = await Rig(books(6), clean=clean).run()
    assert [(row.table, row.data) for row in rig.writer.rows] == [
        ("books", {"n": 0, "clean": True}),
        ("others", {"n": 4}),
        ("books", {"n": 5, "clean": True}),
    ]
    assert [(dead.row.data["n"], dead.error) for dead in rig.letters] == [
        (2, "clean(): ValueError: a bad price"),
        (3, "clean(): ItemError: it must return a row, a dict or None, not int"),
    ]
    assert rig.env.counters.user == {"dropped_by_clean": 1}
    assert rig.env.counters.get("item_failed") == 2
    assert rig.source.left() == []


async def test_rows_that_can_be_neither_stored_nor_dead_lettered_are_tried_again():
    rig = Rig(books(2))
    rig.writer.trouble = PipelineError("no store and no disk")
    await rig.run()
    assert rig.stored() == [0, 1]
    assert "error: rows can be neither stored nor dead-lettered: no store and no disk" in rig.env.log


async def test_rows_that_could_not_be_kept_before_a_stop_stay_in_the_queue():
    rig = Rig(books(2))
    rig.writer.trouble, rig.writer.for_ever = PipelineError("no store and no disk"), True
    running = await rig.until(lambda: "nothing is acknowledged" in rig.env.log)
    rig.consumer.stop()
    await running
    assert rig.source.left() == books(2)
    assert "the queue did not answer" not in rig.env.log


class FullDisk(Letters):
    def append(self, rows):
        raise OSError("no space left on device")


async def test_a_dead_letter_that_cannot_be_written_is_not_acknowledged():
    rig = Rig([{"n": 2}], clean=cleaned)
    consumer = Consumer(rig.env, rig.source, rig.writer, FullDisk(), table="books", clean=cleaned)
    running = asyncio.create_task(consumer.run())
    while "no space left on device" not in rig.env.log:
        await asyncio.sleep(0.001)
    consumer.stop()
    await running
    assert rig.source.left() == [{"n": 2}]


async def test_a_stop_lets_the_batch_in_hand_finish_and_leaves_the_rest():
    rig = Rig(books(5), ITEM_BATCH_SIZE=2, SPIDER_STOP_TIMEOUT=60.0)
    rig.writer.gate = asyncio.Event()
    running = await rig.until(lambda: rig.writer.writing)
    rig.consumer.stop()
    rig.writer.gate.set()
    await running
    assert rig.stored() == [0, 1]
    assert rig.source.left() == books(5)[2:]


class NotesWhatComesBack(MemoryTaskSource):
    back = None

    async def close(self):
        """What is in hand now was not given back."""
        self.back = (await self.backlog()).waiting


async def test_a_batch_that_takes_longer_than_the_stop_stays_in_the_queue():
    rig = Rig(books(3), source=NotesWhatComesBack)
    rig.writer.gate = asyncio.Event()
    running = await rig.until(lambda: rig.writer.writing)
    rig.consumer.stop()
    await running
    assert rig.stored() == []
    assert rig.source.back == 3, "others need not wait for its lease"
    assert "3 row(s) could not be stored in time and stay in the queue" in rig.env.log


async def test_a_clean_that_hangs_holds_up_no_stop():
    cleaning = []

    async def hangs(row):
        cleaning.append(row)
        await asyncio.Event().wait()

    rig = Rig(books(3), clean=hangs)
    running = await rig.until(lambda: cleaning)
    rig.consumer.stop()
    await running
    assert rig.source.left() == books(3)
    assert "3 row(s) could not be stored in time" in rig.env.log


class Kept(MemoryTaskSource):
    kept = 0

    async def keep(self, tasks):
        self.kept += len(tasks)


async def test_messages_in_hand_are_kept_while_the_store_is_slow():
    rig = Rig(books(3), source=Kept, HEARTBEAT_INTERVAL=0.001)
    rig.writer.gate = asyncio.Event()
    running = await rig.until(lambda: rig.source.kept >= 6)
    rig.writer.gate.set()
    await running
    assert rig.stored() == [0, 1, 2]


class Lost(MemoryTaskSource):
    """Away; told to give up waiting, it raises."""

    def __init__(self, values):
        super().__init__(values)
        self.gave_up = asyncio.Event()
        self.asked = False

    async def take(self, limit):
        self.asked = True
        await self.gave_up.wait()
        raise StoreLostError("the queue is away")

    def give_up_waiting(self):
        self.gave_up.set()


async def test_a_queue_that_is_lost_is_an_error_unless_it_was_told_to_stop():
    rig = Rig(source=Lost)
    rig.source.give_up_waiting()
    with pytest.raises(StoreLostError):
        await rig.run()
    assert rig.writer.closed
    rig = Rig(source=Lost)
    running = await rig.until(lambda: rig.source.asked)
    rig.consumer.stop()
    await running
    assert "the queue is away; what was in hand is delivered again" in rig.env.log


class Silent(Lost):
    """Says nothing, whatever it is told."""

    def give_up_waiting(self):
        pass

    async def close(self):
        await asyncio.Event().wait()


async def test_a_queue_that_answers_nothing_holds_up_no_stop():
    rig = Rig(source=Silent)
    running = await rig.until(lambda: rig.source.asked)
    rig.consumer.stop()
    rig.env.clock.advance(60)
    await running
    assert "the queue did not answer in time" in rig.env.log
    assert rig.writer.closed


class OneMoreArrives(MemoryTaskSource):
    """Another producer adds a row after the first look that found nothing."""

    looks = 0

    async def backlog(self):
        self.looks += 1
        answer = await super().backlog()
        if self.looks == 1:
            await self.add([{"n": 99}])
        return answer


async def test_a_single_run_looks_twice_before_nothing_is_left():
    rig = await Rig(books(1), source=OneMoreArrives).run()
    assert rig.stored() == [0, 99]


class TurnsTheClock(MemoryTaskSource):
    clock = None

    async def settled(self, tasks):
        self.clock.advance(11.0)
        await super().settled(tasks)


async def test_progress_says_what_is_stored_and_what_waits():
    rig = Rig(books(50), source=TurnsTheClock, ITEM_BATCH_SIZE=20, METRICS_LOG_INTERVAL=10.0)
    rig.source.clock = rig.env.clock
    await rig.run()
    assert [line for line in rig.env.log.lines if "waiting" in line] == [
        "info: 20 row(s) stored, 0 dead-lettered, 30 waiting",
        "info: 40 row(s) stored, 0 dead-lettered, 10 waiting",
        "info: 50 row(s) stored, 0 dead-lettered, 0 waiting",
    ]
