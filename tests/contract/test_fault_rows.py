"""Rows 6 and 46 of the fault table, on the frontier itself: no id is seen and nowhere; very many leases run out at once."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import threading
import time
from pathlib import Path

import pytest
from frontier_rig import LEASE, Clock, Rig, entry, name_of

from netspy.messages.entry import Settlement
from netspy.redisio.client import sync_client
from netspy.testing.servers import RedisServer, find_embedded_server, find_redis_server
from support.missing import missing

pytestmark = pytest.mark.fault


@pytest.fixture(params=["on PATH", "embedded"])
def binary(request):
    found = find_redis_server() if request.param == "on PATH" else find_embedded_server()
    if found is None:
        missing(f"no Redis server {request.param}")
    return found


def places(client, keys):
    """Where each request is, by name."""
    found = {}
    for key in (keys.queued, keys.inflight, keys.delayed):
        for member in client.zrange(key, 0, -1):
            found.setdefault(name_of(member[member.index(b"{") :]), []).append(key)
    return found


def torn(folder: Path, cut: int) -> None:
    """The append-only file without its last bytes, as after a power cut."""
    files = sorted(path for path in folder.rglob("*.aof") if ".incr." in path.name or path.parent == folder)
    [file] = [path for path in files if path.stat().st_size]
    os.truncate(file, file.stat().st_size - cut)


@pytest.mark.parametrize("kind", ["redis", "redis-set"])
async def test_no_id_is_seen_and_nowhere_wherever_the_log_of_the_server_was_torn(
    binary, kind, record_property
):
    """What one script writes is written to the log as one piece: of a torn one nothing is left, mark or entry."""
    with RedisServer(binary, appendfsync="always") as server:
        version = server.client().info("server")["redis_version"]
        for cut in (1, 60, 400, 1500):
            rig = Rig(kind, Clock(), server.url)
            node = await rig.node()
            names = [f"cut{cut}-{i}" for i in range(40)]
            await node.put([entry(f"cut{cut}-parent")])
            [parent] = (await node.claim(1)).leases
            await node.put([entry(name) for name in names[:10]])
            await node.settle([Settlement(parent, [entry(name) for name in names[10:]])])
            await node._session.link.close()
            server.kill()
            torn(server.folder, cut)
            server.start()
            later = await rig.node()
            client = sync_client(later.settings)
            before = places(client, later.keys)
            new = await later.put([entry(name) for name in names])
            assert any(new), "the tear cost nothing, so this would prove nothing"
            for name, was_new in zip(names, new, strict=True):
                assert was_new == (name not in before), f"{name} is seen and nowhere, or here twice"
            assert all(len(found) == 1 for found in places(client, later.keys).values())
            client.flushall()
            client.close()
            await rig.close()
    row = {"row": "6", "redis": version, "lost": 0, "fetched_twice": 0, "stored_twice": 0, "written_twice": 0}
    record_property("fault", json.dumps({**row, "seconds": None}))


@pytest.mark.slow
@pytest.mark.faults_full
@pytest.mark.timeout(240)
async def test_a_hundred_thousand_leases_that_run_out_at_once_come_back_in_bounded_steps(
    binary, record_property
):
    total = 100_000
    with RedisServer(binary) as server:
        rig = Rig("redis", Clock(), server.url, DEDUP_INITIAL_CAPACITY=total * 2)
        dead = await rig.node()
        for at in range(0, total, 1000):
            await dead.put([entry(i) for i in range(at, at + 1000)])
        for _ in range(0, total, 1000):
            await dead.claim(1000)
        client = server.client()
        assert client.zcard(dead.keys.inflight) == total
        node = await rig.node()
        keeper = rig.keeper(node)
        rig.clock.advance(LEASE + 1)
        rig.steady(keeper)
        client.config_set("slowlog-max-len", 10_000)
        client.config_set("slowlog-log-slower-than", 0)
        client.slowlog_reset()
        waits, over = [], threading.Event()

        def ping() -> None:
            while not over.is_set():
                began = time.perf_counter()
                client.ping()
                waits.append(time.perf_counter() - began)
                over.wait(0.002)

        watcher = threading.Thread(target=ping)
        watcher.start()
        began = time.perf_counter()
        moved, steps = 0, 0
        more = True
        while more:
            step = await asyncio.to_thread(keeper.reclaim, 500)
            assert step.returned <= 500
            assert step.poisoned == 0
            moved, steps, more = moved + step.returned, steps + 1, step.more
        seconds = time.perf_counter() - began
        over.set()
        watcher.join()
        assert moved == total
        assert steps >= total / 500
        assert client.zcard(node.keys.queued) == total
        # Server time of one step; and what somebody else waits. Medians: the machine has others to serve.
        spent = [
            call["duration"] for call in client.slowlog_get(10_000) if call["command"].startswith(b"EVALSHA")
        ]
        assert len(spent) >= steps
        assert statistics.median(spent) < 20_000
        assert statistics.median(waits) < 0.1
        version = client.info("server")["redis_version"]
        await rig.close()
    row = {
        "row": "46",
        "redis": version,
        "lost": 0,
        "fetched_twice": 0,
        "stored_twice": 0,
        "written_twice": 0,
    }
    record_property("fault", json.dumps({**row, "seconds": seconds}))
