"""The Bloom filter inside Redis: the same bits as the one in the process, layers, and what is reported."""

from __future__ import annotations

import pytest
from frontier_rig import Clock, Rig, entry

from netspy.errors import ConfigError
from netspy.frontier.dedup import BloomFilter
from netspy.messages.entry import NewEntry
from netspy.policy.bloom import plan
from netspy.redisio.client import sync_client


@pytest.fixture(params=["redis_url", "redis62_url"])
async def rig(request):
    made = Rig(
        "redis",
        Clock(),
        request.getfixturevalue(request.param),
        DEDUP_INITIAL_CAPACITY=100,
        DEDUP_ERROR_RATE=1e-3,
        DEDUP_MAX_LAYERS=3,
    )
    yield made
    await made.close()


async def test_the_scripts_set_exactly_the_bits_of_the_filter_in_the_process(rig):
    """Repeats too, within a batch and of the other node's; the two extreme fingerprints use each segment's ends."""
    node, other = await rig.node(), await rig.node()
    here = BloomFilter(plan(100, 1e-3, 3))
    ends = [NewEntry(b"{}", byte * 16, 300.0, "0a0b0c0d") for byte in (b"\0", b"\xff")]
    for start in range(0, 800, 40):
        batch = [entry(i) for i in range(max(0, start - 20), start + 40)]
        batch += [*ends, batch[-1]]
        putter = other if start % 80 else node
        assert await putter.put(batch) == [here.add(e.id) for e in batch]
    client = sync_client(node.settings)
    stored = [client.get(key) for key in node.keys.requests.bloom]
    assert stored == [bytes(bits) for bits in here._layers]
    assert int(client.get(node.keys.requests.count)) == here.count
    client.close()


async def test_a_repeat_is_known_whatever_layer_holds_it(rig):
    node = await rig.node()
    first = [entry(i) for i in range(600)]
    flags = [flag for at in range(0, 600, 200) for flag in await node.put(first[at : at + 200])]
    other = await rig.node()
    again = [flag for at in range(0, 600, 200) for flag in await other.put(first[at : at + 200])]
    assert not any(again)
    assert sum(flags) >= 598


async def test_the_fill_is_reported_through_the_reply(rig):
    told: list[float] = []
    node = await rig.node(hooks={"on_fill": told.append})
    for start in range(0, 490, 70):
        await node.put([entry(i) for i in range(start, start + 70)])
    assert told == []
    await node.put([entry(i) for i in range(490, 600)])
    assert len(told) == 1
    assert told[0] == pytest.approx(600 / 700, rel=0.01)
    await node.put([entry(i) for i in range(600, 800)])
    assert told[-1] > 1


async def test_deleting_the_bits_without_the_count_still_finds_repeats(rig):
    node = await rig.node()
    await node.put([entry(i) for i in range(250)])
    client = sync_client(node.settings)
    client.delete(*node.keys.requests.bloom)
    other = await rig.node()
    assert all(await other.put([entry(i) for i in range(100, 200)]))
    third = await rig.node()
    assert not any(await third.put([entry(i) for i in range(100, 200)]))
    client.close()


async def test_bits_in_blocks_of_another_size_stop_the_start(rig):
    node = await rig.node()
    await node.put([entry(1)])
    client = sync_client(node.settings)
    line = client.hget(node.keys.requests.layout, "layout").decode()
    client.hset(node.keys.requests.layout, "layout", line.replace("block2", "block1"))
    with pytest.raises(ConfigError, match=r"block1.*netspy reset"):
        await rig.node()
    client.close()


@pytest.mark.parametrize("whose", ["requests", "items"])
@pytest.mark.parametrize("value", ["x", "", "-3", "1.5", "inf", b"\xff"])
async def test_a_count_that_netspy_has_not_written_stops_the_start_and_stays_as_it_is(rig, whose, value):
    node = await rig.node()
    await node.put([entry(1)])
    client = sync_client(node.settings)
    key = getattr(node.keys, whose).count
    client.set(key, value)
    with pytest.raises(ConfigError, match=f"{key} holds .*another program"):
        await rig.node()
    assert client.get(key) == (value if isinstance(value, bytes) else value.encode())
    client.close()


async def test_items_have_a_filter_of_their_own(rig):
    node = await rig.node()
    items = node.item_filter()
    fingerprints = [entry(i).id for i in range(600)]
    assert not any(await items.seen(fingerprints))
    await items.mark(fingerprints[:550])
    other = (await rig.node()).item_filter()
    flags = await other.seen(fingerprints)
    assert all(flags[:550])
    assert sum(flags[550:]) <= 2
    assert await node.put([entry(1)]) == [True]


@pytest.mark.parametrize("kind", ["lite", "bloom", "redis-set"])
async def test_other_kinds_of_item_filters(redis_url, kind):
    rig = Rig(kind, Clock(), redis_url)
    node = await rig.node()
    items = node.item_filter()
    await items.mark([entry("a").id])
    assert await items.seen([entry("a").id, entry("b").id]) == [True, False]
    await rig.close()


class SlowFilter:
    """A filter class of a user's, with `async def`."""

    def __init__(self, settings):
        self.known: set[bytes] = set()

    async def seen(self, ids):
        return [i in self.known for i in ids]

    async def mark(self, ids):
        self.known.update(ids)


async def test_a_filter_class_of_the_users_decides(redis_url):
    rig = Rig(f"{__name__}.SlowFilter", Clock(), redis_url)
    node = await rig.node()
    assert await node.put([entry("a"), entry("a"), entry("b")]) == [True, False, True]
    assert await node.put([entry("b"), entry("c")]) == [False, True]
    await rig.close()


async def test_a_filter_class_of_the_users_decides_in_memory_too():
    from netspy.frontier.memory.frontier import MemoryFrontier
    from netspy.messages.entry import Settlement

    node = MemoryFrontier(dedup=SlowFilter(None))
    assert await node.put([entry("a"), entry("a"), entry("b")]) == [True, False, True]
    leases = (await node.claim(2)).leases
    done = await node.settle([Settlement(leases[0], [entry("b"), entry("c")]), Settlement(leases[1])])
    assert done == ([True, True], [[False, True], []], [False, False])
    assert (await node.settle([Settlement(leases[0], [entry("d")])])).acked == [False]
    assert (await node.counts()).queued == 1
