"""Redis streams that netspy shares with other programs: their groups, their entries, and a user with the documented rights."""

from __future__ import annotations

import asyncio
import re
import sys
import uuid
from pathlib import Path

import pytest

from netspy.errors import ConfigError
from netspy.pipelines.redis import RedisPipeline
from netspy.settings import Settings
from netspy.tasks.redis.stream import RedisStreamSource
from netspy.testing.runner import run_command
from netspy.testing.servers import RedisServer

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def name():
    return f"shared-{uuid.uuid4().hex[:12]}"


@pytest.fixture(params=["redis_server", "redis62_server"])
def server(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def client(server):
    with server.client() as client:
        yield client


async def opened(server, name, **options):
    source = RedisStreamSource(Settings(REDIS_URL=server.url), name, **{"lease_s": 60.0, **options})
    await source.open()
    return source


def read(client, name, group, count=100):
    """What another program's group has not read yet; acknowledged."""
    ids = [
        entry for _, entries in client.xreadgroup(group, "other", {name: ">"}, count) for entry, _ in entries
    ]
    if ids:
        client.xack(name, group, *ids)
    return ids


def test_a_consumer_leaves_entries_to_other_groups(server, client, name, tmp_path):
    """Case HB-09."""
    ids = [client.xadd(name, {"n": n}) for n in range(5)]
    client.xgroup_create(name, "audit", "0")
    argv = [sys.executable, "-m", "netspy.cli", "consume", f"stream:{name}", "-o", "out.jsonl", "--once"]
    run_command(argv, cwd=tmp_path, env={"NETSPY_REDIS_URL": server.url}, timeout=60).check()
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 5
    assert read(client, name, "audit") == ids


async def test_what_all_groups_are_done_with_is_deleted_by_the_last_of_ours(server, client, name):
    one, other = await opened(server, name, group="a"), await opened(server, name, group="b")
    await one.add(list(range(4)))
    first = await one.take(9)
    await one.settled(first[:3])
    await one.failed([(first[3], "ValueError: no such shop")])
    assert client.xlen(name) == 4
    second = await other.take(9)
    assert [task.value for task in second] == [0, 1, 2, 3]
    await other.settled(second[1:])  # one of them is still in that group's hands
    assert [entry for entry, _ in client.xrange(name)] == [second[0].receipt.entry_id]
    assert (await one.backlog())[:2] == (0, 0)
    assert (await other.backlog())[:2] == (0, 1)
    await other.settled(second[:1])
    assert client.xlen(name) == 0
    await one.close()
    await other.close()


@pytest.mark.parametrize("group", ["at its beginning", "reading", "at its end", "destroyed"])
async def test_the_backlog_is_that_of_this_group_whatever_others_do(server, client, name, group):
    source = await opened(server, name)
    await source.add(list(range(6)))
    client.xgroup_create(name, "audit", "$" if group == "at its end" else "0")
    if group == "reading":
        client.xreadgroup("audit", "x", {name: ">"}, 2)
    tasks = await source.take(4)
    await source.settled(tasks[:3])
    if group == "destroyed":
        client.xgroup_destroy(name, "audit")
    assert (await source.backlog())[:2] == (2, 1)
    await source.settled([*tasks[3:], *await source.take(9)])
    assert (await source.backlog())[:2] == (0, 0)
    assert client.xlen(name) == {"at its beginning": 6, "reading": 6, "at its end": 0, "destroyed": 3}[group]
    await source.close()


async def test_a_long_backlog_is_counted_though_not_entry_by_entry(server, client, name, monkeypatch):
    monkeypatch.setattr("netspy.tasks.redis.stream._COUNTED", 3)
    source = await opened(server, name)
    await source.add(list(range(7)))
    await source.take(2)
    assert (await source.backlog())[:2] == (5, 2)
    await source.close()


async def test_a_node_that_was_taken_for_dead_takes_nothing_back(server, client, name):
    """Its entries are another's by now: it can't keep, release or fail them; that they are done it may say."""
    stalled, other = await opened(server, name), await opened(server, name)
    await stalled.add(["a", "b"])
    held = await stalled.take(5)
    client.xclaim(
        name, stalled.group, stalled._name, 0, [t.receipt.entry_id for t in held], idle=150_000, justid=True
    )
    assert [task.deliveries for task in await other.take(5)] == [2, 2]
    await stalled.keep(held)
    await stalled.release(held[:1])
    await stalled.failed([(held[0], "ValueError: late")])
    owners = {one["consumer"] for one in client.xpending_range(name, other.group, "-", "+", 9)}
    assert owners == {other._name}
    assert client.xlen(f"{name}:failed") == 0
    await stalled.settled(held[1:])
    assert (await other.backlog())[:2] == (0, 1)
    await stalled.close()
    await other.close()


async def test_an_entry_that_comes_back_again_comes_alone_and_a_release_does_not_count(server, client, name):
    source = await opened(server, name)
    await source.add(["a", "b", "c"])

    def lost(tasks):
        ids = [task.receipt.entry_id for task in tasks]
        client.xclaim(name, source.group, source._name, 0, ids, idle=150_000, justid=True)

    tasks = await source.take(2)
    await source.release(tasks)
    tasks = await source.take(2)
    assert [task.deliveries for task in tasks] == [1, 1]
    lost(tasks)
    tasks = await source.take(2)
    assert [task.deliveries for task in tasks] == [2, 2]
    lost(tasks)
    [alone] = await source.take(5)
    assert (alone.value, alone.deliveries) == ("a", 3)
    await source.settled([alone])
    assert [task.value for task in await source.take(5)] == ["b"]
    assert [task.value for task in await source.take(5)] == ["c"]
    await source.close()


async def test_entries_of_any_shape_are_put_aside_whole_or_with_a_note(server, client, name):
    names = [f"f{n}" for n in range(5000)]
    client.execute_command(
        "XADD", name, "*", "row", "not json", "error", "theirs", "twice", "1", "twice", "2"
    )
    client.execute_command("XADD", name, "*", *(word for field in names for word in (field, b"\xff")))
    client.execute_command("XADD", name, "*", "row", "1")
    source = await opened(server, name)
    assert [task.value for task in await source.take(9)] == [1]
    assert source.unreadable == 2
    with server.client(decode_responses=False) as raw:
        (_, first), (_, second) = raw.execute_command("XRANGE", f"{name}:failed", "-", "+")
    assert first.get(b"row") == b"not json"
    assert client.eval("return #redis.call('XRANGE', KEYS[1], '-', '+')[1][2]", 1, f"{name}:failed") == 10
    assert second[b"left-out"] == b"2000 of 5000 fields"
    await source.close()


async def test_an_entry_deleted_while_it_is_pending_is_passed_over(server, client, name):
    source = await opened(server, name, lease_s=0.0)
    await source.add([1, 2])
    first = await source.take(1)
    client.xdel(name, first[0].receipt.entry_id)
    assert [task.value for task in await source.take(5)] == [2]
    async with asyncio.timeout(10):
        while (await source.backlog()).taken != 1:
            await source.take(0)
    await source.close()


@pytest.mark.parametrize("kind", ["stream", "list"])
async def test_a_user_with_the_documented_rights_writes_and_consumes_items(server, client, kind, tmp_path):
    """Case HB-10."""
    pages = [ROOT / "docs/redis-topologies.md", ROOT / "docs/zh/redis-topologies.md"]
    [rule] = {
        *re.findall(r"^user (crawler on >password .*)$", "\n".join(p.read_text("utf-8") for p in pages), re.M)
    }
    client.execute_command("ACL", "SETUSER", *rule.split())
    url = server.url.replace("redis://", "redis://crawler:password@")
    key = f"netspy:items:{uuid.uuid4().hex}"
    pipeline = RedisPipeline()
    pipeline.settings = Settings(REDIS_URL=url, REDIS_ITEMS_TYPE=kind, REDIS_ITEMS_KEY=key)
    pipeline.describe("books", ())
    pipeline.save_items("books", [{"n": n} for n in range(3)])
    pipeline.close()
    client.rpush(key, "not json") if kind == "list" else client.xadd(key, {"row": "not json"})
    argv = [sys.executable, "-m", "netspy.cli", "consume", f"{kind}:{key}", "-o", "out.jsonl", "--once"]
    result = await asyncio.to_thread(
        run_command, argv, cwd=tmp_path, env={"NETSPY_REDIS_URL": url}, timeout=60
    )
    result.check()
    assert result.summary["items"] == 3, result.stderr
    assert len((tmp_path / "out.books.jsonl").read_text().splitlines()) == 3
    if kind == "stream":
        source = RedisStreamSource(Settings(REDIS_URL=url), key, lease_s=0.0)
        await source.open()
        await source.add([1, 2])
        tasks = await source.take(5)
        await source.keep(tasks)
        await source.release(tasks)
        await source.settled(await source.take(5))
        assert (await source.backlog())[:2] == (0, 0)
        await source.close()
    client.execute_command("ACL", "DELUSER", "crawler")


@pytest.mark.parametrize("right", ["xreadgroup", "xclaim", "xack", "xdel", "xinfo", "xgroup"])
async def test_a_missing_right_is_one_clear_error_at_the_start(name, right):
    with RedisServer() as server, server.client() as client:
        client.execute_command("ACL", "SETUSER", "narrow", "on", ">pw", "~*", "+@all", f"-{right}")
        source = RedisStreamSource(
            Settings(REDIS_URL=server.url.replace("redis://", "redis://narrow:pw@")), name
        )
        with pytest.raises(ConfigError, match="redis-topologies"):
            await source.open()
        await source.close()
