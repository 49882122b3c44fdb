"""One process crawling: how its run ends, and what it says of itself meanwhile."""

from __future__ import annotations

import asyncio
import threading

import pytest

from netspy.engine.control import Ended
from netspy.engine.node import Node
from netspy.errors import ConfigError, StoreUnavailableError
from support.engine import Gated, Spider, env_of, parts_of, until


class Shop(Spider):
    """So many pages, each with one item."""

    def __init__(self, n=3, gate=None):
        self.n, self.gate, self.parsed = n, gate, []

    def start_requests(self):
        return [f"http://a.example/{n}" for n in range(self.n)]

    async def parse(self, request, response):
        if self.gate is not None:
            await self.gate.wait()
        self.parsed.append(request.url)
        yield {"url": request.url}


async def test_a_run_ends_by_itself_when_everything_is_crawled():
    spider = Shop()
    parts = parts_of(spider)
    node = Node(parts)
    assert node.seeding_unfinished
    assert await node.run() == Ended("finished", "finished")
    assert sorted(row["url"] for row in parts.writer.stored) == spider.start_requests()
    assert not node.seeding_unfinished
    assert "frontier closed" in parts.frontier.told


async def test_a_node_that_is_stopped_before_it_runs_crawls_nothing():
    parts = parts_of(Shop())
    node = Node(parts)
    node.stop("not today", signal=2)
    assert node.stopping
    assert await node.run() == Ended("stopped", "not today", 2)
    assert parts.writer.stored == []
    assert parts.frontier.told[-1] == "frontier closed"


async def test_a_stop_while_the_store_is_away_at_the_start_needs_no_store():
    class Gone(Gated):
        async def open(self):
            node.stop("told to")
            raise StoreUnavailableError("away")

    parts = parts_of(Shop(), frontier=Gone())
    node = Node(parts)
    assert (await node.run()).reason == "told to"
    assert parts.frontier.told == ["frontier closed"]


async def test_a_configuration_error_of_the_store_is_raised():
    class Wrong(Gated):
        async def open(self):
            raise ConfigError("wrong address")

    with pytest.raises(ConfigError, match="wrong address"):
        await Node(parts_of(frontier=Wrong())).run()


async def test_an_error_at_the_start_leaves_nothing_open():
    class Broken:
        async def open(self):
            raise ConfigError("no proxy list")

    parts = parts_of(Shop(), middlewares=(Broken(),))
    with pytest.raises(ConfigError, match="no proxy list"):
        await Node(parts).run()
    assert parts.frontier.told == ["frontier closed"]


async def test_what_the_store_warns_of_is_said_and_on_open_is_called_once_it_is_open():
    called = []
    parts = parts_of(Shop(), on_open=lambda: called.append(threading.current_thread()))
    parts.frontier.warnings.append("no persistence")
    await Node(parts).run()
    assert "warning: no persistence" in parts.logger
    assert called
    assert called[0] is not threading.main_thread(), "it may block"


async def test_a_limit_by_counter_ends_the_run_and_the_rest_stays():
    class Slow(Shop):
        async def parse(self, request, response):
            if self.parsed:
                await until(lambda: "release" in parts.frontier.told)
            async for item in super().parse(request, response):
                yield item

    env = env_of(SPIDER_MAX_ITEMS=1, SPIDER_THREAD_COUNT=1, BUFFER_FLUSH_INTERVAL=0.001)
    parts = parts_of(Slow(30), env)
    assert await Node(parts).run() == Ended("limit", "SPIDER_MAX_ITEMS=1 reached")
    assert len(parts.writer.stored) == 2, "the page that ran then was finished"
    assert (await parts.frontier.counts()).queued == 28
    assert "info: stopping: SPIDER_MAX_ITEMS=1 reached" in parts.logger


async def test_a_limit_of_time_ends_the_run_though_nothing_else_happens():
    env = env_of(SPIDER_MAX_RUNTIME=0.03, SPIDER_TASK_MAX_SECONDS=0.04)
    parts = parts_of(Spider(), env, keep_alive=True)
    assert await Node(parts).run() == Ended("limit", "SPIDER_MAX_RUNTIME=0.03 reached")


async def test_a_callback_that_runs_too_long_is_ended_and_the_run_goes_on():
    env = env_of(SPIDER_TASK_MAX_SECONDS=0.04, SPIDER_MAX_RETRY_TIMES=0)
    parts = parts_of(Shop(1, asyncio.Event()), env)
    assert (await Node(parts).run()).outcome == "finished"
    assert parts.counters.get("request_failed") == 1


# -- what people see


class Seen:
    """The display: what it was shown, until `wanted` comes; then `then` is called."""

    def __init__(self, wanted, then):
        self.wanted, self.then, self.states = wanted, then, []

    async def __call__(self, view):
        self.states.append(view.state)
        if view.state.startswith(self.wanted):
            self.then()


async def shown(wanted, parts, *, then=None, begin=None):
    """Run a node until it says that it is in the state `wanted`."""

    def stop():
        (then or (lambda: None))()
        node.stop("seen")

    seen = Seen(wanted, stop)
    node = Node(parts._replace(observe=seen))
    if begin is not None:
        begin(node)
    async with asyncio.timeout(20):
        await node.run()
    return seen.states


async def test_a_node_that_has_not_heard_of_the_store_yet_is_starting():
    parts = parts_of(Shop())
    gates = [parts.frontier.gates[name] for name in ("claim", "seed_acquire")]
    for gate in gates:
        gate.clear()
    assert (await shown("starting", parts))[0] == "starting"


async def test_a_node_that_draws_its_seeds_says_so():
    gate = threading.Event()

    class Slow(Spider):
        def start_requests(self):
            gate.wait(20)
            return ()

    await shown("seeding", parts_of(Slow()), then=gate.set)


async def test_a_node_at_work_is_crawling():
    gate = asyncio.Event()
    await shown("crawling", parts_of(Shop(1, gate)), then=gate.set)


async def test_a_node_that_waits_for_another_ones_seeding_says_so():
    parts = parts_of(Shop())
    await parts.frontier.seed_acquire()
    await shown("waiting: seeding is going on", parts)


async def test_a_node_whose_items_wait_for_a_store_says_for_which():
    parts = parts_of(Shop())
    parts.writer.waiting = "mysql"
    await shown("waiting: the store of mysql is away", parts)


async def test_a_node_whose_store_is_away_says_for_how_long_and_that_it_is_back():
    parts = parts_of(Shop(1, asyncio.Event()))
    states = await shown("store away for 7 s", parts, begin=lambda node: node.outage(True, 7.0))
    assert states == ["store away for 7 s"]

    def comes_back(node):
        node.outage(True, 7.0)
        node.outage(False, 0.0)

    gate = asyncio.Event()
    await shown("crawling", parts_of(Shop(1, gate)), then=gate.set, begin=comes_back)


async def test_a_node_that_was_told_to_stop_says_so():
    gate = asyncio.Event()
    loop, states = asyncio.get_running_loop(), []

    async def look(view):
        states.append(view.state)
        if view.state == "crawling":
            gate.set()
            loop.call_soon(node.stop, "told to")  # before the display's next look

    node = Node(parts_of(Shop(1, gate), observe=look))
    await node.run()
    assert states[-1] == "stopping"


async def test_a_display_that_raises_stops_no_crawl():
    async def look(view):
        raise OSError("no terminal")

    parts = parts_of(Shop(), observe=look)
    assert (await Node(parts).run()).outcome == "finished"
    assert "debug: progress can't be shown: OSError('no terminal')" in parts.logger


async def test_the_view_has_what_the_node_holds():
    gate, views = asyncio.Event(), []

    async def look(view):
        views.append(view)

    running = asyncio.create_task(
        Node(parts_of(Shop(3, gate), env_of(SPIDER_THREAD_COUNT=2), observe=look)).run()
    )
    await until(lambda: any((view.active, view.held) == (2, 3) for view in views))
    gate.set()
    assert (await running).outcome == "finished"
