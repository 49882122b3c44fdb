"""A batch's master and workers in Redis: one lock with a rising number, and writes that only its holder can make."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

from netspy.errors import ConfigError
from netspy.policy.run_scope import run_scope
from netspy.redisio.keys import batch_types
from netspy.settings import Settings
from netspy.tasks.batch_queue import (
    BatchKeys,
    BatchQueue,
    identify,
    master_holder,
    read_token,
    salt_of,
    token_of,
)
from netspy.tasks.master_lock import NotMasterError, read_holder
from netspy.tasks.redis.list import RedisTaskList


@pytest.fixture(params=["redis_url", "redis62_url"])
def settings(request):
    return Settings(
        REDIS_URL=request.getfixturevalue(request.param), HEARTBEAT_STALE=600.0, HEARTBEAT_INTERVAL=1.0
    )


@pytest.fixture
async def queues(settings):
    made = [BatchQueue(settings, run_scope(settings, "Crawl")) for _ in range(2)]
    for queue in made:
        await queue.open()
    yield made
    for queue in made:
        await queue.close()


async def test_one_master_at_a_time_and_each_has_a_higher_number(queues):
    first, second = queues
    one = await first.acquire()
    with pytest.raises(NotMasterError) as refused:
        await second.acquire()
    holder = read_holder(refused.value.holder, refused.value.left_s)
    assert holder.who == first.who
    assert 0 < holder.left_s <= 600.0
    await first.release()
    two = await second.acquire()
    assert two > one
    await first.release()
    with pytest.raises(NotMasterError):
        await first.renew()
    await second.renew()


async def test_the_number_never_falls_behind_what_the_task_table_has_seen(queues):
    assert await queues[0].acquire(at_least=41) == 41
    await queues[0].release()
    assert await queues[1].acquire() == 42


async def test_renewing_keeps_the_lock(queues):
    first = queues[0]
    await first.acquire()
    await first.link.client.pexpire(first.keys.lock, 60_000)
    await first.renew()
    assert await first.link.client.pttl(first.keys.lock) > 60_000


async def test_a_master_without_its_lock_can_write_nothing(queues):
    first, second = queues
    await first.acquire()
    await first.link.client.delete(first.keys.lock)
    await second.acquire()
    for write in (
        first.push(1, [(1, {"id": 1})]),
        first.begin(),
        first.finished(1),
        first.tell({}),
        first.renew(),
    ):
        with pytest.raises(NotMasterError):
            await write
    assert await second.waiting() == 0
    assert await second.link.client.get(second.keys.done) is None
    assert await second.link.client.get(second.keys.progress) is None


async def test_a_batch_begins_without_what_the_one_before_has_fetched_and_stored(queues):
    queue = queues[0]
    await queue.acquire()
    keys = queue.run_keys
    old = [keys.requests.bloom[0], keys.requests.exact, keys.items.bloom[0], keys.requests.layout]
    await queue.link.client.set(old[0], "x")
    await queue.link.client.sadd(old[1], "x")
    await queue.link.client.set(old[2], "x")
    await queue.link.client.hset(old[3], "layout", "x")
    await queue.link.client.set(keys.meta, "stays")
    await queue.finished(1)
    await queue.begin()
    assert await queue.link.client.exists(*old, queue.keys.done) == 0
    assert await queue.link.client.exists(keys.meta) == 1


async def test_pushed_rows_reach_a_worker_as_they_were_and_are_seen_alive_all_the_way(queues, settings):
    queue = queues[0]
    await queue.acquire()
    rows = [
        (2**64 - 1, {"id": 2**64 - 1, "price": Decimal("10.50"), "raw": b"\x00\xff", "note": None}),
        (
            "a{b}%",
            {"id": "a{b}%", "at": dt.datetime(2026, 2, 28, 12), "day": dt.date(2026, 2, 28)},
        ),
    ]
    assert await queue.push(7, rows) == 2

    async def alive():
        return {task_id for page in [ids async for ids in queue.live_ids(7)] for task_id in page}

    assert await alive() == {2**64 - 1, "a{b}%"}
    assert [ids async for ids in queue.live_ids(8)] == [[]] * 3
    source = RedisTaskList(settings, queue.keys.pending, identify=identify)
    try:
        tasks = await source.take(10)
        assert [task.value for task in tasks] == [row for _, row in rows]
        assert await alive() == {2**64 - 1, "a{b}%"}, "in a worker's hands"
        await queue.link.client.hset(queue.run_keys.tasks, tasks[0].token, "1 0 0")
        await source.settled(tasks)
        assert await alive() == {2**64 - 1}, "its requests are in the frontier"
    finally:
        await source.close()


async def test_what_stands_in_the_lock_names_the_master(queues):
    keys = BatchKeys("netspy:Crawl")
    assert await master_holder(queues[0].link, keys) is None
    await queues[0].acquire()
    holder = await master_holder(queues[0].link, keys)
    assert holder is not None
    assert holder.who == queues[0].who
    assert str(holder).startswith(holder.who)


@pytest.mark.parametrize(
    "task_id", [1, -5, "x", 'quote"d', "{brace}", "50%7B", b"\x00", Decimal("1.5"), (1, "a")]
)
def test_a_token_gives_batch_and_id_back_and_holds_no_brace(task_id):
    token = token_of(12, task_id)
    assert "{" not in token
    assert not token.startswith("!")
    assert read_token(token) == (12, task_id)
    assert salt_of(token) == b"12.0/"


@pytest.mark.parametrize("token", ["", "x", "1", "a/1", "1/", "1/{", "m.5"])
def test_the_token_of_something_else_is_refused(token):
    with pytest.raises(ValueError, match="not the token"):
        read_token(token)


@pytest.mark.parametrize(
    "what", ["dedup:bloom", "dedup:set", "dedup:layout", "items:dedup:bloom", "items:dedup:bloom:count"]
)
async def test_hv_08_a_batch_that_begins_deletes_no_key_of_another_type(queues, what):
    """case HV-08: the key came after the start."""
    queue = queues[0]
    await queue.acquire()
    await queue.link.client.rpush(f"netspy:Crawl:{what}", "precious")
    with pytest.raises(ConfigError, match=f"netspy:Crawl:{what} is a list"):
        await queue.begin()
    assert await queue.link.client.lrange(f"netspy:Crawl:{what}", 0, -1) == [b"precious"]


@pytest.mark.parametrize("key", [name for name, _ in batch_types("netspy:Crawl")])
async def test_hv_08_a_master_refuses_a_key_of_another_type_at_its_start(settings, key):
    """case HV-08"""
    queue = BatchQueue(settings, run_scope(settings, "Crawl"))
    await queue.link.client.pfadd("other", "x")
    await queue.link.client.xadd(key, {"precious": "1"})
    with pytest.raises(ConfigError, match=f"{key} belongs to another program"):
        await queue.open()
    assert await queue.link.client.xlen(key) == 1
    await queue.close()


@pytest.mark.parametrize("value", ["1", "locked", "0123456789abcdef", "x 1 host:1", ""])
async def test_hv_08_a_master_lock_that_netspy_did_not_write_is_refused(settings, value):
    """case HV-08: also where it comes after the start."""
    queue = BatchQueue(settings, run_scope(settings, "Crawl"))
    await queue.open()
    await queue.link.client.set(queue.keys.lock, value)
    if value:
        with pytest.raises(ConfigError, match="netspy reset"):
            await queue.acquire()
    with pytest.raises(ConfigError, match=r"batch_monitor_lock has the value '.*netspy did not write"):
        await queue.open()
    assert await queue.link.client.get(queue.keys.lock) == value.encode()
    await queue.close()
