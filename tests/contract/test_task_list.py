"""The task list in Redis: tasks that are taken are leased, and come back from the dead with the token they had."""

from __future__ import annotations

import asyncio
import json
import uuid
from urllib.parse import urlsplit

import pytest
from frontier_rig import Backup, Clock

from netspy.errors import ConfigError, SerializationError, StoreUnavailableError
from netspy.policy.run_scope import run_scope
from netspy.redisio.client import sync_client
from netspy.redisio.scripts import Call, load
from netspy.settings import Settings
from netspy.tasks.batch_queue import BatchQueue
from netspy.tasks.contract import Backlog
from netspy.tasks.redis.list import FOLDER, RedisTaskList, TaskKeys, read_task, task_keys
from netspy.testing.proxy import FaultProxy
from netspy.testing.redis_server import RedisServer, find_embedded_server, find_redis_server
from netspy.testing.source_contract import CHECKS, OUTLIVES_A_LEASE, Traits

LEASE = 15.0
BASE = "netspy:shop:tasks"


@pytest.fixture(params=["redis_url", "redis62_url"])
def url(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def client(url):
    with sync_client(Settings(REDIS_URL=url)) as made:
        yield made


class Nodes:
    """Nodes on one list, with one clock."""

    def __init__(self, url) -> None:
        self.url = url
        self.clock = Clock()
        self.made = []

    async def node(self, **kw):
        settings = Settings(REDIS_URL=kw.pop("url", self.url), **kw)
        source = RedisTaskList(settings, task_keys(settings, "shop"), lease_s=LEASE, clock_ms=self.clock.ms)
        self.made.append(source)
        await source.open()
        return source


@pytest.fixture
async def nodes(url):
    made = Nodes(url)
    yield made
    for source in made.made:
        await source.close()


def proxy_to(url):
    address = urlsplit(url)
    return FaultProxy(address.hostname, address.port)


def values(tasks):
    return [task.value for task in tasks]


def left(client):
    """Every key of the list, but those that make a repeated push harmless."""
    return sorted(key.decode() for key in client.scan_iter(f"{BASE}*") if b":call:" not in key)


# -- the contract that all sources have


class List(Traits):
    def __init__(self, url, check) -> None:
        self.lease_s = 0.5 if check in OUTLIVES_A_LEASE else 600.0
        self.settings = Settings(REDIS_URL=url)
        self.keys = task_keys(self.settings, f"contract-{uuid.uuid4().hex}")

    async def make(self):
        return RedisTaskList(self.settings, self.keys, lease_s=self.lease_s)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_it_keeps_the_contract_of_task_sources(url, check):
    await check(List(url, check))


# -- leases


async def test_tasks_come_in_order_and_nothing_is_left_of_settled_ones(nodes, client):
    node = await nodes.node()
    await node.add(range(1200))
    got = []
    while tasks := await node.take(700):
        got += values(tasks)
        await node.settled(tasks)
    assert got == list(range(1200))
    assert left(client) == [f"{BASE}:meta"]


async def test_a_dead_nodes_tasks_come_back_when_their_lease_is_over_with_the_same_tokens(nodes):
    dead, other = await nodes.node(), await nodes.node()
    await dead.add(["a", "b"])
    taken = await dead.take(10)
    nodes.clock.advance(LEASE - 0.01)
    assert await other.take(10) == []
    nodes.clock.advance(0.02)
    again = await other.take(10)
    assert [(t.token, t.value) for t in again] == [(t.token, t.value) for t in taken]
    assert [t.deliveries for t in again] == [2, 2]


async def test_a_node_that_says_so_keeps_its_tasks(nodes):
    slow, other = await nodes.node(), await nodes.node()
    await slow.add(["a", "b"])
    a, _ = await slow.take(10)
    nodes.clock.advance(LEASE - 1)
    await slow.keep([a])
    nodes.clock.advance(LEASE - 1)
    assert values(await other.take(10)) == ["b"]


async def test_a_node_that_wakes_up_too_late_changes_nothing(nodes, client):
    frozen, other = await nodes.node(), await nodes.node()
    await frozen.add(["a"])
    old = await frozen.take(10)
    nodes.clock.advance(LEASE + 1)
    [new] = await other.take(10)
    await frozen.settled(old)
    await frozen.failed([(old[0], "too late")])
    await frozen.release(old)
    await frozen.keep(old)
    assert await other.backlog() == Backlog(0, 1, 2, 0)
    assert client.zrange(f"{BASE}:inflight", 0, -1) == [new.receipt]


async def test_tasks_that_were_given_back_and_those_of_a_node_that_is_gone_count_as_waiting(nodes):
    node, other = await nodes.node(), await nodes.node()
    await node.add(["a", "b", "c"])
    tasks = await node.take(2)
    assert await other.backlog() == Backlog(1, 2, 5, 0)
    await node.release(tasks[:1])
    assert await other.backlog() == Backlog(2, 1, 5, 0)
    nodes.clock.advance(LEASE + 1)
    assert await other.backlog() == Backlog(3, 0, 5, 0)


async def test_a_task_that_went_down_with_its_node_twice_comes_alone_and_first(nodes):
    node = await nodes.node()
    await node.add(["innocent", "deadly"])
    both = await node.take(10)
    nodes.clock.advance(LEASE + 1)
    both = await node.take(10)
    assert [task.deliveries for task in both] == [2, 2]
    await node.add(["fresh"])
    nodes.clock.advance(LEASE + 1)
    [innocent] = await node.take(10)
    assert (innocent.value, innocent.deliveries) == ("innocent", 3)
    await node.settled([innocent])
    for deliveries in (3, 4, 5):
        [deadly] = await node.take(10)
        assert (deadly.value, deadly.deliveries) == ("deadly", deliveries), "the feeder counts and fails it"
        nodes.clock.advance(LEASE + 1)
    await node.take(10)
    assert values(await node.take(10)) == ["fresh"]


async def test_a_suspect_does_not_come_with_others_that_are_back_before_it(nodes):
    node = await nodes.node()
    await node.add(["deadly"])
    await node.take(1)
    nodes.clock.advance(LEASE + 1)
    suspects = await node.take(1)
    await node.add(["innocent", "fresh"])
    await node.take(1)
    nodes.clock.advance(1)
    await node.keep(suspects)
    nodes.clock.advance(LEASE + 1)
    assert values(await node.take(10)) == ["innocent", "fresh"]
    [deadly] = await node.take(10)
    assert (deadly.value, deadly.deliveries) == ("deadly", 3)


async def test_a_failed_task_that_is_tried_again_is_so_once(nodes, client):
    node = await nodes.node()
    await node.add([{"id": 7}])
    await node.failed([((await node.take(1))[0], "no")])
    [record] = client.lrange(f"{BASE}:failed", 0, -1)
    again = Call(load(FOLDER, "retry"), node.keys.all(), ["", record, json.loads(record)["task"]])
    assert [await node.link.run(again), await node.link.run(again)] == [1, 0]
    assert await node.backlog() == Backlog(1, 0, 3, 0)
    assert values(await node.take(10)) == [{"id": 7}]


async def test_more_deliveries_than_two_digits_can_say(nodes):
    node = await nodes.node()
    await node.add(["a"])
    for _ in range(103):
        [task] = await node.take(1)
        nodes.clock.advance(LEASE + 1)
    assert (task.value, task.deliveries) == ("a", 99)


async def test_what_is_given_back_comes_first_and_was_not_delivered(nodes):
    node, other = await nodes.node(), await nodes.node()
    await node.add(["a", "b"])
    taken = await node.take(1)
    await node.release(taken)
    again = await other.take(2)
    assert values(again) == ["a", "b"]
    assert (again[0].token, again[0].deliveries) == (taken[0].token, 1)


async def test_a_failed_task_keeps_its_text_and_its_error(nodes, client):
    node = await nodes.node()
    await node.add([{"id": 7}, "good"])
    bad, good = await node.take(10)
    await node.failed([(bad, "ValueError: 坏 " + "x" * 5000)])
    [record] = [json.loads(text) for text in client.lrange(f"{BASE}:failed", 0, -1)]
    assert (json.loads(record["task"]), record["deliveries"], len(record["error"])) == ({"id": 7}, 1, 2000)
    assert record["time"] == pytest.approx(nodes.clock.s, abs=1)
    assert await node.backlog() == Backlog(0, 1, 4, 1)
    await node.settled([good])


async def test_rows_of_fetch_tasks_are_leased_from_the_start(nodes):
    node, other = await nodes.node(), await nodes.node()
    rows = [{"row": n} for n in range(1100)]
    mine = await node.adopt(rows)
    assert values(mine) == rows
    assert len({task.token for task in mine}) == 1100
    assert await other.take(10) == []
    nodes.clock.advance(LEASE + 1)
    assert [t.token for t in await other.take(3)] == [t.token for t in mine[:3]]


# -- foreign producers


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'{"id": 1, "deep": [{"a": null}]}', {"id": 1, "deep": [{"a": None}]}),
        (b"17", 17),
        (b'"a text"', "a text"),
        (b"https://example.com/a?b=c", "https://example.com/a?b=c"),
        ("商品 17".encode(), "商品 17"),
        (b"17-a", "17-a"),
        (b"NaN", "NaN"),
        (b'{"!colour": "red"}', {"!colour": "red"}),
        (b" [1,\n2] ", [1, 2]),
    ],
)
async def test_a_task_pushed_by_any_program_is_read(nodes, client, text, value):
    client.rpush(BASE, text)
    node = await nodes.node()
    assert values(await node.take(10)) == [value]


@pytest.mark.parametrize("text", [b"", b"  ", b"{broken", b"[1,", b"\xff\xfe\x00", b'"half'])
async def test_what_is_no_task_goes_to_the_failed_list_and_its_neighbours_are_served(nodes, client, text):
    client.rpush(BASE, "1", text, "2")
    node = await nodes.node()
    assert values(await node.take(10)) == [1, 2]
    assert (await node.backlog()).failed == 1
    assert await node.take(10) == []


def test_an_element_that_is_no_text_says_so():
    with pytest.raises(SerializationError, match="neither JSON nor text"):
        read_task(b"\xff")


# -- keys


async def test_a_list_that_was_deleted_comes_back_with_other_tokens(nodes, client):
    node = await nodes.node()
    await node.add(["a"])
    [first] = await node.take(1)
    client.delete(*left(client))
    await node.settled([first])
    await node.add(["a"])
    [second] = await node.take(1)
    assert first.token != second.token, "else the frontier would take its requests for known ones"


async def test_two_tasks_that_a_list_gave_the_same_number_have_tokens_of_their_own(nodes, client, url):
    """The list goes back with the store, and counts on from there: the frontier must take neither for the other."""
    one, other = await nodes.node(), await nodes.node()
    await one.add(["a"])
    backup = Backup(url)
    await one.add(["x"])
    taken = {task.value: task for task in await one.take(2)}
    backup.restore()
    await other.add(["y"])
    again = {task.value: task for task in await other.take(2)}
    assert again["a"].token == taken["a"].token, "the same task, whoever has it"
    assert again["y"].token != taken["x"].token
    await one.settled([taken["x"]])
    assert await other.backlog() == Backlog(0, 2, 4, 0), "the end of the one is not the end of the other"


async def test_a_deleted_list_leaves_no_task_that_nobody_can_take(nodes, client):
    node = await nodes.node()
    await node.add(["a", "b"])
    taken = await node.take(1)
    client.delete(BASE)
    assert await node.backlog() == Backlog(0, 1, 3, 0)
    await node.settled(taken)
    assert await node.backlog() == Backlog(0, 0, 3, 0)


@pytest.mark.parametrize(
    ("name", "command"),
    [(BASE, "set"), (f"{BASE}:inflight", "set"), (f"{BASE}:meta", "set"), (f"{BASE}:failed", "set")],
)
async def test_a_key_that_is_something_else_stops_the_start_and_stays_as_it_is(nodes, client, name, command):
    getattr(client, command)(name, "mine")
    with pytest.raises(ConfigError, match=f"{name} is a string"):
        await nodes.node()
    assert client.get(name) == b"mine"


@pytest.mark.parametrize(
    "member", [b"", b"mine", b"12345", b"\xff\x00junk", b"1234567890123456x{}", b"{}" * 40]
)
@pytest.mark.parametrize("score", ["-inf", "0", "inf", "1e300"])
async def test_what_others_put_among_the_tasks_at_work_is_put_aside_and_holds_nothing_up(
    nodes, client, member, score
):
    client.zadd(f"{BASE}:inflight", {member: score})
    node = await nodes.node()
    await node.add(["a"])
    taken = []
    for _ in range(3):
        taken += await node.take(10)
    assert values(taken) == ["a"]
    await node.settled(taken)
    left = await node.backlog()
    assert (left.waiting, left.taken) == (0, 0)
    aside = [json.loads(line.decode("utf-8", "replace")) for line in client.lrange(f"{BASE}:failed", 0, -1)]
    assert [one["task"] for one in aside] == ([member.decode("utf-8", "replace")] if member else [])
    assert all("netspy has not written it" in one["error"] for one in aside)


async def test_a_task_whose_deadline_never_comes_is_taken_back(nodes, client):
    node = await nodes.node()
    await node.add(["a"])
    [task] = await node.take(1)
    client.zadd(f"{BASE}:inflight", {task.receipt: "inf"})
    assert values(await node.take(1)) == ["a"]


@pytest.mark.parametrize("field", ["seq", "added"])
@pytest.mark.parametrize("value", ["x", "", "-1", "1.5", "inf"])
async def test_counters_that_are_no_numbers_stop_the_start_and_stay_as_they_are(nodes, client, field, value):
    client.hset(f"{BASE}:meta", field, value)
    with pytest.raises(ConfigError, match=f"{field} = {value}, not a number"):
        await nodes.node()
    assert client.hget(f"{BASE}:meta", field).decode() == value


@pytest.mark.parametrize("name", ["a{b", "x\n", ""])
def test_a_name_that_keys_cannot_have_is_refused(name):
    with pytest.raises(ConfigError):
        task_keys(Settings(), name)


# -- a server in trouble


async def use_every_script(node):
    """The first call of each is refused by a server that doesn't know it: that reply is not the one to lose."""
    await node.add(["warm"])
    await node.settled(await node.take(1))


async def test_a_reply_lost_by_take_leases_the_tasks_to_nobody_and_they_come_back(nodes, url, client):
    with proxy_to(url) as proxy:
        node = await nodes.node(url=proxy.redis_url())
        await use_every_script(node)
        await node.add(["a", "b", "c"])
        proxy.drop_next_reply()
        first = await node.take(2)
        proxy.wait_dropped()
        assert values(first) == ["c"], "the two of the lost reply are leased"
        nodes.clock.advance(LEASE + 1)
        assert sorted(values(await node.take(10))) == ["a", "b", "c"]


@pytest.mark.parametrize("what", ["add", "adopt"])
async def test_a_reply_lost_by_a_push_pushes_nothing_twice(nodes, url, client, what):
    with proxy_to(url) as proxy:
        node = await nodes.node(url=proxy.redis_url())
        await use_every_script(node)
        proxy.drop_next_reply()
        given = await getattr(node, what)(["a", "b"])
        proxy.wait_dropped()
        assert client.llen(BASE) + client.zcard(f"{BASE}:inflight") == 2
        if what == "adopt":
            assert values(given) == ["a", "b"]
            proxy.drop_next_reply()
            await node.settled(given)
            proxy.wait_dropped(2)
            assert client.zcard(f"{BASE}:inflight") == 0


@pytest.mark.parametrize("binary", ["on PATH", "6.2"])
async def test_a_full_server_still_gives_tasks_away_and_takes_new_ones_when_there_is_room(binary):
    program = find_redis_server() if binary == "on PATH" else find_embedded_server()
    with RedisServer(program) as server:
        settings = Settings(REDIS_URL=server.url)
        node = RedisTaskList(settings, task_keys(settings, "shop"))
        await node.open()
        await node.add(range(20))
        server.ask("CONFIG", "SET", "maxmemory", "1")
        tasks = await node.take(5)
        await node.keep(tasks)
        await node.settled(tasks[:2])
        await node.failed([(tasks[2], "no")])
        await node.release(tasks[3:])
        assert await node.backlog() == Backlog(17, 0, 25, 1)
        adding = asyncio.create_task(node.add(["late"]))
        done, _ = await asyncio.wait({adding}, timeout=0.3)
        assert not done
        server.ask("CONFIG", "SET", "maxmemory", "0")
        await asyncio.wait_for(adding, 30)
        assert (await node.backlog()).waiting == 18
        server.ask("CONFIG", "SET", "maxmemory", "1")
        adding = asyncio.create_task(node.add(["never"]))
        await asyncio.sleep(0)
        node.give_up_waiting()
        with pytest.raises(StoreUnavailableError, match="maxmemory"):
            await asyncio.wait_for(adding, 30)
        await node.close()


async def test_a_server_that_is_away_is_waited_for():
    with RedisServer() as server:
        told = []
        settings = Settings(REDIS_URL=server.url)
        node = RedisTaskList(
            settings, task_keys(settings, "shop"), on_outage=lambda away, _s: told.append(away)
        )
        await node.open()
        server.kill()
        adding = asyncio.create_task(node.add([1]))
        while not told:
            await asyncio.sleep(0.01)
        assert not adding.done()
        server.restart()
        await asyncio.wait_for(adding, 30)
        assert values(await node.take(5)) == [1]
        assert told == [True, False]
        await node.close()


# -- what a batch's master does with a list that moves under its hands


async def test_no_waiting_task_is_overlooked_while_workers_take_from_the_list(url):
    settings = Settings(REDIS_URL=url)
    queue = BatchQueue(settings, run_scope(settings, "Crawl"))
    await queue.open()
    await queue.acquire()
    await queue.push(1, [(n, {"id": n}) for n in range(6000)])
    seen = set()
    worker = RedisTaskList(settings, queue.keys.pending)
    async for ids in queue.live_ids(1):
        seen.update(ids)
        await worker.take(500)
        await worker.take(400)
    assert seen == set(range(6000))
    await worker.close()
    await queue.close()


async def test_a_master_waits_for_memory_and_a_stop_ends_that():
    with RedisServer() as server:
        told = []
        settings = Settings(REDIS_URL=server.url)
        queue = BatchQueue(settings, run_scope(settings, "Crawl"), on_full=lambda: told.append(1))
        await queue.open()
        await queue.acquire()
        server.ask("CONFIG", "SET", "maxmemory", "1")
        pushing = asyncio.create_task(queue.push(1, [(1, {"id": 1})]))
        while not told:
            await asyncio.sleep(0.01)
        await queue.renew()
        server.ask("CONFIG", "SET", "maxmemory", "0")
        assert await asyncio.wait_for(pushing, 30) == 1
        server.ask("CONFIG", "SET", "maxmemory", "1")
        pushing = asyncio.create_task(queue.push(1, [(2, {"id": 2})]))
        while len(told) < 2:
            await asyncio.sleep(0.01)
        queue.give_up_waiting()
        with pytest.raises(StoreUnavailableError, match="maxmemory"):
            await asyncio.wait_for(pushing, 30)
        await queue.close()


async def test_tasks_of_a_later_round_are_not_those_of_an_earlier_one_for_whoever_is_master(url):
    settings = Settings(REDIS_URL=url)
    first, second = (BatchQueue(settings, run_scope(settings, "Crawl")) for _ in range(2))
    worker = RedisTaskList(settings, first.keys.pending)

    async def pushed(queue, batch=1):
        await queue.push(batch, [(1, {"id": 1})])
        [task] = await worker.take(1)
        await worker.settled([task])
        return json.loads(task.receipt[17:])["round"]

    await first.acquire()
    assert await pushed(first) == 0
    await first.again()
    assert await pushed(first) == 1
    await first.release()
    await second.acquire()
    assert await pushed(second) == 1, "the next master goes on counting"
    await second.begin()
    assert await pushed(second, 2) == 0
    await second.release()
    await first.acquire()
    assert await pushed(first, 2) == 0, "and begins anew with each batch"
    for one in (first, second, worker):
        await one.close()


def test_the_keys_have_their_documented_names():
    assert task_keys(Settings(REDIS_KEY_PREFIX="p"), "shop").all() == [
        "p:shop:tasks", "p:shop:tasks:inflight", "p:shop:tasks:meta", "p:shop:tasks:failed",
    ]  # fmt: skip
    assert task_keys(Settings(REDIS_URL="redis+cluster://h:1"), "shop").base == "{netspy:shop}:tasks"
    assert TaskKeys("x").base == "x"
