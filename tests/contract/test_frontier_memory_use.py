"""What one queued request costs in memory."""

from __future__ import annotations

import tracemalloc

import pytest
from frontier_rig import Clock, Rig, entry

from netspy.frontier.memory.frontier import MemoryFrontier
from netspy.redisio.client import sync_client


@pytest.mark.parametrize("url", ["redis_url", "redis62_url"])
async def test_a_queued_request_of_189_bytes_takes_at_most_350_in_redis(request, url):
    rig = Rig("redis", Clock(), request.getfixturevalue(url))
    node = await rig.node()
    payload = b'{"u":"https://example.com/%08d","x":"' + b"y" * 146 + b'"}'
    assert len(payload % 1) == 189
    for start in range(0, 4000, 500):
        await node.put([entry(i, payload=payload % i) for i in range(start, start + 500)])
    client = sync_client(node.settings)
    assert client.memory_usage(node.keys.queued, samples=0) / 4000 <= 350
    client.close()
    await rig.close()


@pytest.mark.parametrize("sites", [1, 20_000])
async def test_a_queued_request_takes_at_most_500_bytes_in_the_process_besides_its_own(sites):
    node = MemoryFrontier()
    payload = object()
    entries = [
        entry(i, payload=b"{}", site=f"{i % sites:08x}")._replace(payload=payload) for i in range(20_000)
    ]
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        await node.put(entries)
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert used / 20_000 <= 500
    assert (await node.counts()).queued == 20_000
