"""The store goes back to before the end of the seeding: a fail-over to a replica that lagged, a restart that lost a
second. The seeds that went with it must come again.
"""

from __future__ import annotations

from typing import Any

import pytest
from frontier_rig import Backup, Clock, Rig, another_server, entry

from netspy.frontier.contract import SeedsLostError
from netspy.redisio.client import sync_client


@pytest.fixture
async def world(redis_url) -> Any:
    """A rig, and a client to turn the store back with."""
    rig = Rig("redis", Clock(), redis_url)
    client = sync_client(rig.settings())
    yield rig, client
    client.close()
    await rig.close()


async def seeded(node: Any) -> str:
    grant = await node.seed_acquire()
    await node.put([entry("seed")], seed_token=grant.token)
    assert await node.seed_finish(grant.token)
    assert (await node.counts()).seed == "seeded"
    return grant.token


async def test_a_seeder_learns_at_its_next_put_that_earlier_seeds_may_be_gone(world):
    rig, _ = world
    node = await rig.node()
    grant = await node.seed_acquire()
    backup = Backup(rig.url)
    assert await node.put([entry("one")], seed_token=grant.token) == [True]
    backup.restore()
    with pytest.raises(SeedsLostError):
        await node.put([entry("two")], seed_token=grant.token)
    again = await node.seed_acquire()
    assert again.token == grant.token, "its own lock is taken again at once"
    assert await node.put([entry("one"), entry("three")], seed_token=again.token) == [True, True]
    assert await node.seed_finish(again.token)


async def test_a_seeding_goes_on_over_a_restart_that_lost_none_of_its_seeds(world):
    rig, client = world
    node = await rig.node()
    grant = await node.seed_acquire()
    await node.put([entry("one")], seed_token=grant.token)
    another_server(client)
    assert await node.put([entry("two")], seed_token=grant.token) == [True]
    assert await node.seed_finish(grant.token)


@pytest.mark.parametrize("error", [None, "ValueError: boom"])
async def test_seeds_that_may_be_gone_are_not_called_seeded(world, error):
    rig, _ = world
    node = await rig.node()
    grant = await node.seed_acquire()
    backup = Backup(rig.url)
    await node.put([entry("one")], seed_token=grant.token)
    backup.restore()
    with pytest.raises(SeedsLostError):
        await node.seed_finish(grant.token, error=error)
    assert (await node.counts()).seed == "seeding"
    again = await node.seed_acquire()
    assert await node.seed_finish(again.token, error=error)


async def test_a_lost_end_of_the_seeding_is_not_remembered_as_seeded(world):
    rig, client = world
    node = await rig.node()
    token = await seeded(node)
    client.set("netspy:news:lock:seed", f"seeding {token} {rig.clock.ms()} host:1", px=60_000)
    another_server(client)
    assert (await node.counts()).seed == "seeding"
    assert (await node.seed_acquire()).token == token
    other = await rig.node()
    assert (await other.seed_acquire()).state == "seeding"


async def test_another_node_seeds_again_when_the_seeder_is_gone(world):
    rig, client = world
    seeder, other = await rig.node(), await rig.node()
    token = await seeded(seeder)
    assert (await other.seed_acquire()).state == "seeded"
    client.set("netspy:news:lock:seed", f"seeding {token} {rig.clock.ms()} host:1", px=60_000)
    another_server(client)
    assert (await other.counts()).seed == "seeding"
    assert (await other.seed_acquire()).token is None
    rig.clock.advance(11)
    assert (await other.seed_acquire()).token not in {None, token}


async def test_a_lost_lock_means_that_nobody_has_seeded(world):
    rig, client = world
    node = await rig.node()
    await seeded(node)
    client.delete("netspy:news:lock:seed")
    another_server(client)
    assert (await node.counts()).seed == "none"
    assert (await node.seed_acquire()).token is not None


async def test_a_restart_that_kept_the_mark_changes_nothing(world):
    rig, client = world
    node = await rig.node()
    await seeded(node)
    another_server(client)
    assert (await node.counts()).seed == "seeded"
    assert (await node.seed_acquire()).state == "seeded"
    client.delete("netspy:news:lock:seed")
    assert (await node.counts()).seed == "seeded", "seen on this server; only its lifetime can have ended it"


async def test_a_mark_whose_lifetime_ran_out_is_not_missed_after_a_restart(redis_url):
    rig = Rig("redis", Clock(), redis_url, SPIDER_SEED_LOCK_TTL=1)
    client = sync_client(rig.settings())
    node = await rig.node()
    await seeded(node)
    client.delete("netspy:news:lock:seed")
    another_server(client)
    node._seed._last_at -= 2  # it was seen two seconds ago
    assert (await node.counts()).seed == "seeded"
    client.close()
    await rig.close()
