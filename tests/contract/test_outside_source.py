"""Pushing to a source and looking at it from outside: nothing is taken from the nodes, and no group is joined."""

from __future__ import annotations

import asyncio
import os
import signal
import uuid

import pytest

from netspy.assembly.outside import OutsideSource
from netspy.assembly.sources import make_source
from netspy.errors import ConfigError, SerializationError, StoreUnavailableError
from netspy.settings import Settings
from netspy.testing.servers import free_port


@pytest.fixture(params=["redis", "stream", "rabbitmq", "kafka", "sqlite"])
def where(request):
    """The settings of a source, and a name for its list."""
    name = f"outside-{uuid.uuid4().hex}"
    if request.param == "redis":
        return Settings(REDIS_URL=request.getfixturevalue("redis_url")), name
    if request.param == "stream":
        return Settings(REDIS_URL=request.getfixturevalue("redis_url"), TASK_SOURCE=f"stream:{name}"), name
    if request.param == "rabbitmq":
        return Settings(TASK_SOURCE=request.getfixturevalue("rabbit_url")), name
    if request.param == "kafka":
        # The mock waits for a session's time at each change of the group.
        quick = "session.timeout.ms=1500&heartbeat.interval.ms=200&partition.assignment.strategy=range"
        return Settings(
            TASK_SOURCE=f"kafka://{request.getfixturevalue('kafka').servers}/{name}?{quick}",
            REDIS_START_TIMEOUT=60.0,
        ), name
    from support.batch_tables import CREATE, admin

    url = request.getfixturevalue("sqlite_url")
    with admin(url) as connection:
        connection.exec_driver_sql(CREATE["sqlite"])
    return Settings(TASK_SOURCE=f"{url}?table=crawl_task"), name


def test_what_is_pushed_and_counted_from_outside_reaches_a_node_as_new(where):
    settings, name = where
    values = [{"url": f"http://a/{n}"} for n in range(7)]
    with OutsideSource(settings, name) as outside:
        outside.add(values[:4])
        outside.add(values[4:])
        assert outside.backlog().waiting == 7
        assert outside.backlog().taken in {0, None}

    async def work() -> list:
        node = make_source(settings, name)
        await node.open()
        try:
            tasks: list = []
            async with asyncio.timeout(60):
                while len(tasks) < 7:
                    tasks += await node.take(10)
            # A look from outside, while a node has tasks in hand, moves none of them.
            seen = await asyncio.to_thread(look)
            assert (seen.waiting or 0) in {0, 7}  # Kafka can't tell those in hand
            assert (
                seen.taken is None or (seen.waiting or 0) + seen.taken == 7
            )  # RabbitMQ doesn't tell of others' at all
            await node.settled(tasks)
            return tasks
        finally:
            await node.close()

    def look():
        with OutsideSource(settings, name) as outside:
            return outside.backlog()

    tasks = asyncio.run(work())
    assert sorted(task.value["url"] for task in tasks) == sorted(value["url"] for value in values)
    assert {task.deliveries for task in tasks} == {1}


def test_a_value_that_can_not_travel_is_refused_and_the_source_goes_on(redis_url):
    with OutsideSource(Settings(REDIS_URL=redis_url), "x") as outside:
        with pytest.raises(SerializationError):
            outside.add([object()])
        outside.add([1])
        assert outside.backlog().waiting == 1


def test_an_opening_that_fails_raises_and_leaves_no_thread():
    import threading

    told: list = []
    before = set(threading.enumerate())
    settings = Settings(REDIS_URL=f"redis://127.0.0.1:{free_port()}/0", REDIS_START_TIMEOUT=0.2)
    with (
        pytest.raises(StoreUnavailableError),
        OutsideSource(settings, "x", on_outage=lambda *word: told.append(word)),
    ):
        pytest.fail("it is not there")
    with pytest.raises(ConfigError), OutsideSource(Settings(TASK_SOURCE="ftp://x"), "x"):
        pytest.fail("there is no such source")
    assert told == []
    assert set(threading.enumerate()) <= before


def test_ctrl_c_while_the_store_takes_a_piece_leaves_no_doubt_whether_it_has_it(redis_url):
    with OutsideSource(Settings(REDIS_URL=redis_url), uuid.uuid4().hex) as outside:
        taken = outside.source.add

        async def add(values) -> None:
            await taken(values)
            os.kill(os.getpid(), signal.SIGINT)  # the store has them, the caller doesn't know it yet
            await asyncio.sleep(0.05)

        outside.source.add = add
        with pytest.raises(KeyboardInterrupt):
            outside.add([1, 2, 3])
        assert outside.added == 3 == outside.backlog().waiting
