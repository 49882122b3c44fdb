"""A node's parts are made once and fit together; what a spider lacks is not made."""

from __future__ import annotations

import pytest

from netspy.engine import components
from netspy.engine.components import Components, control_of
from netspy.frontier.memory.frontier import MemoryKeeper
from netspy.tasks.memory import MemoryTaskSource
from support.engine import Spider, entries_of, env_of, parts_of, tasks_of, until


def components_of(parts):
    return Components(parts, components.env_of(parts), control_of(parts))


async def test_a_spider_without_tasks_has_no_feeder_and_a_frontier_that_cannot_expire_no_keeper():
    parts = components_of(parts_of())
    assert (parts.feeder, parts.keeper) == (None, None)
    parts.pool.close()


async def test_a_spider_with_tasks_has_a_feeder_and_a_shared_frontier_a_keeper():
    spider, given = Spider(), parts_of()
    given = given._replace(tasks=tasks_of(spider, MemoryTaskSource()), keeper=MemoryKeeper(given.frontier))
    parts = components_of(given)
    assert not parts.feeder.busy
    assert not parts.keeper.is_alive(), "nothing runs before it is started"
    parts.pool.close()


async def test_a_page_goes_through_all_parts_to_its_ack():
    class Shop(Spider):
        def parse(self, request, response):
            yield {"url": request.url}

    given = parts_of(Shop())
    parts = components_of(given)
    for part in (parts.outbox, parts.items, parts.workers):
        part.start()
    await given.frontier.put(entries_of("http://a.example/"))
    await parts.claimer._claim()
    await until(lambda: not len(parts.held))
    assert given.writer.stored == [{"url": "http://a.example/"}]
    assert given.counters.get("request_ok") == 1
    parts.slots.drain()
    await parts.outbox.stop()
    await parts.items.stop()
    parts.pool.close()


async def test_the_limits_of_the_settings_stop_the_node():
    given = parts_of(env=env_of(SPIDER_MAX_ITEMS=2))
    control = control_of(given)
    given.counters.inc("items", 2)
    control.progressed()
    assert control.ended[:2] == ("limit", "SPIDER_MAX_ITEMS=2 reached")


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
async def test_a_hook_that_raises_is_told_of_and_counted_and_ends_nothing(kind):
    class Plain(Spider):
        def start_callback(self):
            raise SystemExit("not now")

    class Coroutine(Spider):
        async def start_callback(self):
            raise OSError("no database")

    given = parts_of(Plain() if kind == "plain" else Coroutine())
    parts = components_of(given)
    await parts.call_hook("start_callback")
    assert given.counters.get("callback_error") == 1
    assert "error: shop.start_callback (test_components.py:" in given.logger
    parts.pool.close()


async def test_a_hook_that_the_spider_does_not_have_is_not_called():
    given = parts_of()
    parts = components_of(given)
    await parts.call_hook("end_callback")
    assert given.logger.lines == []
    parts.pool.close()
