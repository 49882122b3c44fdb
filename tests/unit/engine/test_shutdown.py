"""A start that waits for a store: nothing holds up a stop, and only a stop makes an away store no error. And the way out:
in an order that loses nothing, never later than its deadline.
"""

from __future__ import annotations

import asyncio

import pytest

from netspy.engine.components import Components
from netspy.engine.control import Control
from netspy.engine.page.actions import Action
from netspy.engine.shutdown import Shutdown, open_stores, unless_stopped
from netspy.errors import ConfigError, StoreUnavailableError
from netspy.messages.entry import BeatReply
from netspy.tasks.memory import MemoryTaskSource
from support.engine import (
    Gated,
    Lines,
    NoDownloader,
    Rows,
    Spider,
    entries_of,
    env_of,
    parts_of,
    tasks_of,
    until,
)


async def away():
    await asyncio.sleep(0)
    raise StoreUnavailableError("away")


async def wrong():
    await asyncio.sleep(0)
    raise ConfigError("wrong")


async def fine():
    await asyncio.sleep(0)


class Silent:
    """What never answers; `closed` tells that it was cut off."""

    closed = False

    async def __call__(self):
        try:
            await asyncio.Event().wait()
        finally:
            self.closed = True


async def test_what_opens_is_open_also_when_a_stop_came_meanwhile():
    control = Control(Lines())
    assert await unless_stopped(fine(), control)
    control.stop("told to")
    assert await unless_stopped(fine(), control)


async def test_a_silent_store_is_cut_off_soon_after_a_stop():
    control, silent = Control(Lines()), Silent()
    asyncio.get_running_loop().call_soon(control.stop, "told to")
    assert not await asyncio.wait_for(unless_stopped(silent(), control, grace_s=0.01), 10)
    assert silent.closed


async def test_a_store_that_is_away_is_an_error_unless_a_stop_has_begun():
    control = Control(Lines())
    with pytest.raises(StoreUnavailableError):
        await unless_stopped(away(), control)
    control.stop("told to")
    assert not await unless_stopped(away(), control)
    with pytest.raises(ConfigError):
        await unless_stopped(wrong(), control)


async def test_who_is_cancelled_while_opening_leaves_nothing_running():
    control, silent = Control(Lines()), Silent()
    waiting = asyncio.ensure_future(unless_stopped(silent(), control))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await asyncio.sleep(0)
    assert silent.closed


# -- opening


class Source(MemoryTaskSource):
    """Tells what is asked of it at the end; cannot be opened when `broken`."""

    def __init__(self, values=(), told=None, broken=None):
        super().__init__(values)
        self.told, self.broken = [] if told is None else told, broken

    async def open(self):
        if self.broken is not None:
            await self.broken()

    async def release(self, tasks):
        self.told += ["tasks given back"] * bool(tasks)
        await super().release(tasks)

    async def close(self):
        self.told.append("source closed")
        await super().close()


async def test_a_task_source_that_cannot_be_opened_leaves_no_frontier_open():
    spider = Spider()
    parts = parts_of(spider, tasks=tasks_of(spider, Source(broken=wrong)))
    with pytest.raises(ConfigError):
        await open_stores(parts)
    assert parts.frontier.told == ["frontier closed"]


async def test_who_is_told_to_stop_while_the_task_source_opens_leaves_no_frontier_open():
    spider, silent, control = Spider(), Silent(), Control(Lines())
    parts = parts_of(spider, tasks=tasks_of(spider, Source(broken=silent)))
    asyncio.get_running_loop().call_soon(control.stop, "told to")
    assert not await unless_stopped(open_stores(parts), control, grace_s=0.01)
    assert parts.frontier.told == ["frontier closed"]


async def test_stores_that_opened_stay_open():
    parts = parts_of()
    await open_stores(parts)
    assert parts.frontier.told == []


# -- leaving


class Keeper:
    """The keeper's side of a store that nothing happens to."""

    taken_over = 0

    def __init__(self, told):
        self.told = told

    def beat(self, report):
        return BeatReply(known=True, sweeping=False, stale_nodes=[], intact=True, live_nodes=1)

    def close(self):
        self.told.append("keeper closed")


class Leaving:
    """A node's parts at work: one page is in its callback, which ends when `gate` opens; two more wait for a worker."""

    def __init__(self, **settings):
        self.told = told = []
        self.gate = gate = asyncio.Event()
        self.end_callback = end = asyncio.Event()
        end.set()

        class Shop(Spider):
            async def parse(self, request, response):
                await gate.wait()
                told.append("page ended")
                yield {"n": 1}

            async def end_callback(self):
                told.append("end_callback")
                await end.wait()

        async def mark(_values):
            for _ in range(9):
                await asyncio.sleep(0)
            told.append("task states written")

        spider = Shop()
        self.env = env = env_of(**{"SPIDER_THREAD_COUNT": 1, "SPIDER_STOP_TIMEOUT": 5.0} | settings)
        self.source, self.frontier, self.rows = Source(["t"], told), Gated(told), Rows(told)
        self.parts = parts_of(
            spider,
            env,
            frontier=self.frontier,
            writer=self.rows,
            keeper=Keeper(told),
            make_downloader=lambda: NoDownloader(told),
            tasks=tasks_of(spider, self.source, doers={"mark": mark}),
        )

    async def start(self):
        self.control = control = Control(self.env.log)
        self.components = parts = Components(self.parts, self.env, control)
        parts.keeper.start()
        for part in (parts.outbox, parts.items, parts.effects, parts.workers):
            part.start()
        await self.frontier.put(entries_of(*(f"http://a.example/{n}" for n in range(3))))
        leases = (await self.frontier.claim(3)).leases
        parts.held.took(leases)
        parts.slots.add(leases)
        await until(lambda: parts.gauge.active)
        [page] = parts.handler.running.values()
        page.actions = [Action("mark", 1)]
        self.loops = [control.spawn(asyncio.Event().wait(), "netspy-claim")]
        self.told.clear()
        return self

    async def leave(self, *stop):
        self.control.stop(*(stop or ("told to",)))
        await Shutdown(self.parts, self.env, self.control, self.components, self.loops, grace_s=0.02).run()


async def test_a_node_leaves_in_an_order_that_loses_nothing():
    node = await Leaving().start()
    node.components.feeder._remember(await node.source.take(1))
    leaving = asyncio.create_task(node.leave())
    await until(lambda: node.told)
    assert node.told == ["release"], "what has not started goes back at once, the running page may end"
    assert node.loops[0].cancelled()
    node.gate.set()
    await leaving
    assert "tasks given back" in node.told[node.told.index("task states written") : -1]
    for in_its_own_time in ("keeper closed", "tasks given back"):
        node.told.remove(in_its_own_time)
    assert node.told == [
        "release",
        "page ended",
        "items stored",
        "task states written",
        "settle",
        "end_callback",
        "pipelines closed",
        "downloader closed",
        "source closed",
        "frontier closed",
    ]
    counts = await node.frontier.counts()
    assert (counts.queued, counts.leased, node.source.left()) == (2, 0, ["t"])
    assert node.env.log.lines == []


async def test_leases_are_renewed_until_the_last_ack_is_in_the_store():
    node = await Leaving().start()
    node.components.feeder._remember(await node.source.take(1))
    node.frontier.gates["settle"].clear()
    node.gate.set()
    leaving = asyncio.create_task(node.leave())
    await until(lambda: {"settle", "tasks given back"} <= set(node.told))
    for _ in range(20):
        await asyncio.sleep(0)
    assert node.components.keeper.is_alive()
    assert "end_callback" not in node.told
    node.frontier.gates["settle"].set()
    await leaving
    assert not node.components.keeper.is_alive()


async def test_a_page_that_does_not_end_in_time_goes_back():
    node = await Leaving(SPIDER_STOP_TIMEOUT=0.1).start()
    await node.leave()
    assert "1 page(s) did not end in time; they go back to the queue" in node.env.log
    assert "page ended" not in node.told
    counts = await node.frontier.counts()
    assert (counts.queued, counts.leased) == (3, 0)


async def test_items_that_cannot_be_stored_in_time_leave_their_page_unfinished():
    node = await Leaving(SPIDER_STOP_TIMEOUT=0.1).start()
    node.rows.gate.clear()
    node.gate.set()
    await node.leave()
    assert "items were not stored in time; their pages will be crawled again" in node.env.log
    assert "settle" not in node.told
    assert (await node.frontier.counts()).queued == 3, "the page of the item too"


@pytest.mark.parametrize("silent", ["release", "settle", "frontier closed"])
async def test_a_store_that_does_not_answer_holds_up_no_stop(silent):
    node = await Leaving(SPIDER_STOP_TIMEOUT=0.1).start()
    node.frontier.gates[silent].clear()
    node.gate.set()
    await node.leave()
    assert "the store did not" in node.env.log
    assert node.rows.stored == [{"n": 1}], "what needs no store is done"
    assert "pipelines closed" in node.told
    assert "frontier closed" in node.told


async def test_an_end_callback_that_hangs_holds_up_no_stop():
    node = await Leaving(SPIDER_STOP_TIMEOUT=0.1).start()
    node.end_callback.clear()
    node.gate.set()
    await node.leave()
    assert "end_callback did not end in time" in node.env.log
    assert node.told[-1] == "frontier closed"


async def test_a_node_that_lost_its_store_waits_for_nothing_that_needs_it_and_closes_all_the_same():
    node = await Leaving().start()
    for name in ("release", "settle"):
        node.frontier.gates[name].clear()
    await node.leave("the keys are gone", "store_lost")
    assert not {"page ended", "items stored", "task states written", "settle"} & set(node.told)
    assert {"end_callback", "pipelines closed", "keeper closed", "frontier closed"} <= set(node.told)
    assert "did not end in time" not in node.env.log, "for what a page does is lost anyway"


async def test_what_is_left_running_is_ended_with_the_node():
    node = await Leaving().start()
    node.components.seeding.begin()
    node.components.feeder.start()
    node.gate.set()
    await node.leave()
    parts = node.components
    assert parts.seeding.task.done()
    assert all(task.done() for task in (*parts.feeder.tasks, *parts.workers.tasks, *node.loops))
    assert not parts.keeper.is_alive()
    assert "internal error" not in node.env.log
