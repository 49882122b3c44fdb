"""Hazards that no ordinary history meets: each test stands for a line in a script which nothing else would miss.

scripts/mutate_scripts.py takes such lines out, one at a time, and wants a test to fail.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import pytest
from frontier_rig import LEASE, REPORT, STALE, Backup, Clock, Rig, entry, names, rigs, sent

from netspy.cluster import failed
from netspy.errors import ConfigError
from netspy.frontier.redis import calls
from netspy.frontier.redis.entry_format import base36
from netspy.frontier.redis.liveness import this_process
from netspy.messages.entry import FinalFailure, Settlement
from netspy.policy.failed_record import pack_failed
from netspy.policy.run_scope import run_scope
from netspy.redisio.client import sync_client
from netspy.testing.servers import RedisServer
from support.missing import missing

rig = rigs("7/redis", "6.2/redis-set")


def raw(rig: Rig) -> Any:
    return rig.nodes[0]._session.link.client


async def state(rig: Rig) -> dict[str, Any]:
    """Every key of the run as it is stored."""
    client, ns = raw(rig), rig.nodes[0].keys.ns
    return {key: await client.dump(key) for key in sorted(await client.keys(f"{ns}*"))}


# -- whose clock, and what when it jumps


async def test_a_clock_that_ran_backwards_since_the_last_beat_moves_nothing_until_beats_are_unbroken_again(
    rig,
):
    owner, other = await rig.node(), await rig.node()
    keeper = rig.keeper(other)
    rig.steady(keeper)
    await owner.put([entry("a")])
    await owner.claim(1)
    rig.pass_time(LEASE + 20, keeper)
    # The lease has run out by 20 seconds, and still has after the clock was set back by ten.
    rig.clock.advance(-10)
    assert keeper.reclaim().returned == 0
    assert keeper.sweep(owner.node) is False
    assert (await other.counts()).leased == 1
    assert not keeper.beat(REPORT).sweeping
    assert keeper.reclaim().returned == 0
    assert keeper.sweep(owner.node) is False
    assert (await other.counts()).leased == 1
    rig.steady(keeper)
    assert keeper.reclaim().returned == 1


async def test_only_the_servers_clock_counts(redis_server):
    redis_server.flush()

    class Real(Rig):
        """Without a clock of the test's."""

        async def node(self, **more: Any) -> Any:
            made = await super().node(**more)
            made._session.shared.now = lambda: ""
            return made

    rig = Real("redis", Clock(), redis_server.url)  # its clock is years behind
    node = await rig.node()
    await node.put([entry("a"), entry("b")])
    client = node._session.link.client

    async def now_ms() -> float:
        seconds, micros = await client.time()
        return seconds * 1000 + micros / 1000

    before = await now_ms()
    [lease] = (await node.claim(1)).leases
    after = await now_ms()
    deadline = await client.zscore(node.keys.inflight, lease.member)
    assert before - 1 <= deadline - LEASE * 1000 <= after + 1
    await node.delay([(lease, 30.0, None)])
    [(_, due)] = await client.zrange(node.keys.delayed, 0, 0, withscores=True)
    assert before - 1 <= due - 30_000 <= await now_ms() + 1
    await rig.close()


async def test_a_live_node_is_not_stale_to_another(rig):
    one, two = await rig.node(), await rig.node()
    keepers = rig.keeper(one), rig.keeper(two)
    rig.steady(*keepers)
    rig.clock.advance(3)
    reply = keepers[0].beat(REPORT)
    assert (reply.stale_nodes, reply.live_nodes) == ([], 2)
    rig.pass_time(STALE + 1, keepers[0])
    reply = keepers[0].beat(REPORT)
    assert (reply.stale_nodes, reply.live_nodes) == ([two.node], 1)
    assert (await one.counts()).live_nodes == 1


# -- one step is one step


async def test_one_step_of_a_sweep_moves_a_bounded_number(rig):
    dead, alive = await rig.node(), await rig.node()
    keeper = rig.keeper(alive)
    await dead.put([entry(i) for i in range(calls.SWEEP_MOVE + 150)])
    await dead.claim(calls.SWEEP_MOVE + 150)
    rig.steady(keeper)
    left = [calls.SWEEP_MOVE + 150]
    while not keeper.sweep(dead.node):
        left.append((await alive.counts()).leased)
    moved = [before - after for before, after in itertools.pairwise(left)]
    assert sum(moved) == calls.SWEEP_MOVE + 150
    assert max(moved) == calls.SWEEP_MOVE


async def test_a_sweep_finds_every_lease_of_a_dead_node_among_those_of_a_live_one(rig, monkeypatch):
    # Small steps, so that the cursor stops between and within stretches of one deadline.
    monkeypatch.setattr(calls, "SWEEP_LOOK", 7)
    monkeypatch.setattr(calls, "SWEEP_MOVE", 3)
    dead, alive = await rig.node(), await rig.node()
    keeper = rig.keeper(alive)
    await dead.put([entry(i) for i in range(120)])
    mine = []
    for size in (1, 5, 11, 9, 20, 2):
        mine += (await alive.claim(size)).leases
        await dead.claim(12 - size % 4)
        rig.clock.advance(0.5)
    of_dead = (await alive.counts()).leased - len(mine)
    rig.steady(keeper)
    keeper.renew(mine)
    for step in range(200):
        if keeper.sweep(dead.node):
            break
    else:
        pytest.fail("the sweep did not end in 200 steps")
    assert step > of_dead / 3
    counts = await alive.counts()
    assert (counts.leased, counts.queued) == (len(mine), 120 - len(mine))
    assert all((await alive.settle([Settlement(lease) for lease in mine])).acked)


async def test_a_sweep_passes_over_nothing_so_that_two_passes_are_enough(rig, monkeypatch):
    """Each further pass looks at every lease of every live node again."""
    monkeypatch.setattr(calls, "SWEEP_LOOK", 7)
    dead, alive = await rig.node(), await rig.node()
    keeper = rig.keeper(alive)
    await dead.put([entry(i) for i in range(260)])
    await dead.claim(60)  # all of one deadline
    rig.steady(keeper)
    mine = (await alive.claim(200)).leases
    steps = 1
    while not keeper.sweep(dead.node):
        steps += 1
    one_pass = -(-len(mine) // 7)
    assert steps <= -(-60 // 7) + 2 * one_pass + 4
    assert (await alive.counts()).leased == len(mine)


async def test_a_live_node_is_not_swept_and_one_whose_record_is_gone_is_done(rig):
    one, two = await rig.node(), await rig.node()
    keepers = rig.keeper(one), rig.keeper(two)
    rig.steady(*keepers)
    await two.put([entry("a")])
    [lease] = (await two.claim(1)).leases
    assert keepers[0].sweep(two.node) is False
    assert (await one.counts()).leased == 1
    assert (await two.settle([Settlement(lease)])).acked == [True]
    rig.pass_time(STALE + 1, keepers[0])
    for _ in range(5):
        if keepers[0].sweep(two.node):
            break
    assert keepers[0].sweep(two.node) is True


async def test_a_script_takes_more_entries_in_one_call_than_lua_hands_over_at_once(rig):
    """Our own calls are shorter; the scripts don't rely on it."""
    node = await rig.node()
    session = node._session
    rows = [node._writes._packed(entry(i)) for i in range(5000)]
    call = sent(node, node._calls.put(rows, None))
    assert (await session.link.run(call))[1] == b"1" * 5000
    claimed = 0
    while leases := (await node.claim(1000)).leases:
        claimed += len(leases)
    assert claimed == 5000


# -- a claim's answer


async def test_a_repeated_claim_gets_its_own_leases_though_others_have_the_same_deadline(rig):
    one, two = await rig.node(), await rig.node()
    await one.put([entry(i) for i in range(6)])
    session = one._session
    call = sent(one, one._calls.claim(2, (), (64, 8, 1), 0), "claims")
    first = await session.link.run(call)
    await two.claim(2)  # in the same millisecond
    assert (await session.link.run(call))[8:] == first[8:]
    assert len(first[8:]) == 2


async def test_two_claims_of_one_node_at_once_share_no_entry(rig):
    node = await rig.node()
    await node.put([entry(i) for i in range(6)])
    one, two = await asyncio.gather(node.claim(2), node.claim(2))
    assert names(one.leases + two.leases) == ["0", "1", "2", "3"]
    assert names((await node.claim(2)).leases) == ["4", "5"]


async def test_a_node_whose_numbers_fell_behind_the_stores_goes_on_above_them(rig):
    node = await rig.node()
    await node.put([entry("a")])
    await node.claim(0)
    for kind in (":p", ":c"):
        name = node.node + kind
        _, _, answer = (await raw(rig).hget(node.keys.nodes, name)).partition(b" ")
        await raw(rig).hset(node.keys.nodes, name, b"1000000 " + answer)
    assert await asyncio.wait_for(node.put([entry("b")]), 20) == [True]
    leases = (await asyncio.wait_for(node.claim(2), 20)).leases
    assert names(leases) == ["a", "b"]
    assert leases[0].member[35:41] == base36(1_000_001).encode()


async def test_what_a_claim_under_way_has_taken_is_no_orphan(rig):
    """Its answer is on the way while the keeper, in its thread, compares what the node holds."""
    node = await rig.node()
    keeper = rig.keeper(node)
    rig.steady(keeper)
    await node.put([entry(i) for i in range(5)])
    held = (await node.claim(2)).leases
    session = node._session
    call = sent(node, node._calls.claim(2, (), (64, 8, 1), 0), "claims")
    first = await session.link.run(call)
    assert keeper.reconcile(held) == 0
    assert (await session.link.run(call))[8:] == first[8:]
    assert (await node.counts()).leased == 4


async def test_a_lease_that_has_just_begun_does_not_run_out(rig):
    node = await rig.node()
    keeper = rig.keeper(node)
    rig.steady(keeper)
    await node.put([entry("a")])
    [lease] = (await node.claim(1)).leases
    assert keeper.reclaim().returned == 0
    rig.pass_time(LEASE / 2, keeper)
    assert keeper.reclaim().returned == 0
    assert (await node.settle([Settlement(lease)])).acked == [True]


# -- a script is atomic, not transactional: what is malformed is refused before the first write


@pytest.mark.parametrize("how", ["id", "site", "priority", "payload"])
@pytest.mark.parametrize("script", ["put", "settle"])
async def test_a_malformed_entry_in_the_middle_leaves_everything_as_it_was(rig, script, how):
    """Marked and then refused would be: seen, and nowhere. Acked and then refused would be: its children are lost."""
    node = await rig.node()
    await node.put([entry("parent")])
    [parent] = (await node.claim(1)).leases
    session = node._session
    good = node._writes._packed(entry("good"))
    bad = node._writes._packed(entry("bad"))
    broken = {
        "id": {"id": b"short"},
        "site": {"site": "x"},
        "priority": {"priority": 123456.0},
        "payload": {"payload": b"[]"},
    }
    bad = bad._replace(**broken[how])
    rows = [good, bad, node._writes._packed(entry("other"))]
    if script == "put":
        call = sent(node, node._calls.put(rows, None))
    else:
        call = sent(node, node._calls.settle([], [(parent.member, "", rows)]))
    # Our own side would refuse it before the call.
    call = call._replace(args=["inf" if str(arg) == "123456" else arg for arg in call.args])
    before = await state(rig)
    with pytest.raises(Exception, match="NETSPYARGS"):
        await session.link.run(call)
    assert await state(rig) == before
    assert await node.put([entry("good")]) == [True]
    assert (await node.settle([Settlement(parent)])).acked == [True]


@pytest.mark.parametrize(
    ("what", "row"),
    [("delay", ("", "")), ("delay", ("soon", "")), ("delay", ("5", "[]")), ("give_up", ("", ""))],
)
async def test_a_malformed_move_in_the_middle_leaves_everything_as_it_was(rig, what, row):
    node = await rig.node()
    await node.put([entry(i) for i in range(3)])
    a, b, c = (await node.claim(3)).leases
    session = node._session
    good = ("5", "") if what == "delay" else ("", '{"request":{}}')
    call = sent(node, node._calls.move(what,
        [(a.member, *good), (b.member, *row), (c.member, *good)]))  # fmt: skip
    before = await state(rig)
    with pytest.raises(Exception, match="NETSPYARGS"):
        await session.link.run(call)
    assert await state(rig) == before
    assert await node.release([a, b, c]) == [True] * 3


# -- repeated and late writes


async def test_a_repeated_release_answers_the_same_and_a_late_one_is_refused(rig):
    node = await rig.node()
    await node.put([entry("a"), entry("b")])
    [lease] = (await node.claim(1)).leases
    session = node._session
    call = sent(node, node._calls.move("release", [(lease.member, "", "")]))
    first, second = await session.link.run(call), await session.link.run(call)
    assert (first[0], second[0]) == (b"OK", b"AGAIN")
    assert first[1] == second[1] == b"1"
    await node.put([entry("c")])
    before = await state(rig)
    assert (await session.link.run(call))[0] == b"STALEOP"
    assert await state(rig) == before


async def test_a_confirmed_repeat_is_forgotten_when_another_node_seeds_anew(rig):
    """After the documented DEL nothing is known any more; a node that stayed must not say "seen" from memory."""
    stayed, other = await rig.node(), await rig.node()
    grant = await stayed.seed_acquire()
    await stayed.put([entry("a"), entry("b")])
    assert await stayed.put([entry("a"), entry("b")]) == [False, False]
    await stayed.seed_finish(grant.token)
    keys = stayed.keys
    await raw(rig).delete(keys.lock, keys.queued, *stayed._calls.dedup.script_keys())
    assert (await other.seed_acquire()).token is not None
    await stayed.claim(1)  # any answer of the store's tells of the new generation
    assert await stayed.put([entry("a"), entry("b")]) == [True, True]


async def test_items_of_an_earlier_seeding_stay_forgotten_after_the_first_new_one(rig):
    node = await rig.node()
    items = node.item_filter()
    old, new = [entry(n).id for n in range(20)], entry("new").id
    await node.seed_acquire()
    await items.mark(old)
    assert all(await items.seen(old))
    await raw(rig).delete(node.keys.lock)
    await node.seed_acquire()
    assert not any(await items.seen(old))
    await items.mark([new])
    assert await items.seen([new, *old]) == [True] + [False] * 20


async def test_failed_requests_that_are_queued_again_twice_over_run_once(rig, monkeypatch):
    """As after a cut connection, or by two people at once."""
    node = await rig.node()
    await node.put([entry(i) for i in range(3)])
    leases = (await node.claim(3)).leases
    await node.give_up(
        [
            FinalFailure(x, pack_failed(x.payload, reason="gave up", error="", attempts=1, time=1.0))
            for x in leases
        ]
    )
    real = failed.run_sync
    monkeypatch.setattr(failed, "run_sync", lambda client, call: (real(client, call), real(client, call))[0])
    client = sync_client(node.settings)
    moved = failed.retry_failed(client, run_scope(node.settings, "News", "news"))
    client.close()
    assert moved.queued == 3
    counts = await node.counts()
    assert (counts.queued, counts.failed) == (3, 0)
    assert sorted(names((await node.claim(9)).leases)) == ["0", "1", "2"]


# -- suspicion


async def test_a_release_keeps_the_suspicion(rig):
    """A suspect that is given back unstarted has not become innocent by it."""
    node = await rig.node()
    keeper = rig.keeper(node)
    rig.steady(keeper)
    await node.put([entry("a")])
    for _ in range(2):
        await node.claim(1)
        rig.pass_time(LEASE + 1, keeper)
        assert keeper.reclaim().returned == 1
    [lease] = (await node.claim(1)).leases
    assert lease.expired == 1
    await node.release([lease])
    [again] = (await node.claim(1)).leases
    assert again.expired == 1
    await node.release([again])
    # With no room for suspects it stays where it is.
    assert (await node.claim(1, suspect_room=(0, 0, 0))).leases == []


async def test_a_node_whose_process_is_gone_from_this_machine_is_swept_at_once_and_no_other(rig):
    """No heartbeat has to grow stale for what the kernel knows; of all others the heartbeat decides."""
    mine = this_process()
    if mine is None:
        missing("no /proc to ask about processes")
    dead, elsewhere, alive = [await rig.node() for _ in range(3)]
    for node, name in ((dead, "dead"), (elsewhere, "elsewhere"), (alive, "alive")):
        await node.put([entry(name)])
        assert names((await node.claim(1)).leases) == [name]
    client = raw(rig)
    places = {dead: mine._replace(born=mine.born - 1), elsewhere: mine._replace(kernel="another:1", born=1)}
    for node, place in places.items():
        record = json.dumps(
            {"pid": place.pid, "kernel": place.kernel, "born": place.born, "counters": {"pages": 3}}
        )
        await client.hset(node.keys.nodes, node.node, record)
    rig.clock.advance(0.01)
    heir = await rig.node()
    keeper = rig.keeper(heir)
    reply = keeper.beat(REPORT)
    assert (reply.sweeping, reply.stale_nodes, list(reply.gone_nodes)) == (False, [], [dead.node])
    assert not keeper.sweep(dead.node), "it had leases, so the pass is made once more"
    assert keeper.sweep(dead.node)
    assert not keeper.sweep(elsewhere.node)
    assert not keeper.sweep(alive.node)
    assert keeper.taken_over == 1
    [lease] = (await heir.claim(9)).leases
    assert (names([lease]), lease.suspicion) == (["dead"], 1)
    assert await client.hget(heir.keys.nodes, dead.node) is None, "its record is gone"
    assert list(keeper.beat(REPORT).gone_nodes) == []


@pytest.mark.parametrize("lease_s", [LEASE, 0])
async def test_a_lease_of_a_node_without_a_record_holds_up_no_run_whatever_its_deadline(rig, lease_s):
    """Nobody can renew or ack it: the record was deleted, or somebody wrote the lease by hand."""
    rig.overrides["SPIDER_TASK_LEASE"] = lease_s
    node, other = await rig.node(), await rig.node()
    keeper = rig.keeper(node)
    await node.put([entry("mine"), entry("theirs"), entry("lost"), entry("forged")])
    mine = (await node.claim(1)).leases
    await other.claim(1)
    gone = await rig.node()
    await gone.claim(1)
    client = raw(rig)
    await client.zrem(node.keys.beats, gone.node)
    [(member, score)] = await client.zrange(node.keys.queued, 0, 0, withscores=True)
    forged = b"%s0%s%s%d%s" % (member[:26], b"00000999", b"zzzzzz", score, member[26:])
    await client.zrem(node.keys.queued, member)
    await client.zadd(node.keys.inflight, {forged: "+inf" if lease_s == 0 else 9e15})
    assert keeper.reconcile(mine) == 2
    counts = await node.counts()
    assert counts.leased == 2, "what is held by nodes that are known stays"
    if lease_s == 0:
        assert (counts.queued, counts.failed) == (0, 2), "nothing runs twice"
        return
    back = (await node.claim(9)).leases
    assert [(name, lease.suspicion) for name, lease in zip(names(back), back, strict=True)] == [
        ("lost", 1),
        ("forged", 1),
    ]
    assert keeper.reconcile([*mine, *back]) == 0


async def test_a_parent_with_very_many_children_is_not_acked_when_the_store_goes_back_between_two_pieces(
    rig, monkeypatch
):
    """The first pieces are gone; the ack comes to a store that never heard of them."""
    node = await rig.node()
    await node.put([entry("parent")])
    [parent] = (await node.claim(1)).leases
    writes, backup = node._writes, Backup(rig.url)
    put = writes.put

    async def put_and_a_restart(entries: Any) -> Any:
        flags = await put(entries)
        backup.restore()
        return flags

    monkeypatch.setattr(writes, "put", put_and_a_restart)
    children = [entry(f"child {n}") for n in range(1200)]
    done = await node.settle([Settlement(parent, children)])
    assert (done.acked, done.stale) == ([False], [True])
    monkeypatch.undo()
    assert (await node.counts()).queued == 0
    assert (await node.settle([Settlement(parent, children)])).acked == [True]
    assert (await node.counts()).queued == 1200


# -- what others left in Redis


async def test_bits_that_changed_their_layout_under_a_live_node_are_not_read(redis_url):
    rig = Rig("redis", Clock(), redis_url)
    node = await rig.node()
    await node.put([entry("a")])
    layout = node._calls.dedup.script_keys()[0]
    mine = await raw(rig).hget(layout, "layout")
    await raw(rig).hset(layout, "layout", "block9 0.5 10:10")
    before = await state(rig)
    with pytest.raises(ConfigError, match="another layout"):
        await node.put([entry("b")])
    assert await state(rig) == before
    await raw(rig).hset(layout, "layout", mine)
    assert await node.put([entry("b")]) == [True]
    await rig.close()


async def test_a_damaged_lease_is_moved_aside_and_its_neighbours_come_back(rig):
    node, other = await rig.node(), await rig.node()
    keeper = rig.keeper(other)
    rig.steady(keeper)
    await node.put([entry(i) for i in range(4)])
    a, b, c, _d = (await node.claim(4)).leases
    client, key = raw(rig), node.keys.inflight
    score = await client.zscore(key, a.member)
    brace = a.member.index(b"{")
    await client.zrem(key, a.member, b.member, c.member)
    await client.zadd(
        key,
        {
            a.member[:41] + b"soon" + a.member[brace:]: score,  # a priority that is no number
            b.member[:41] + b"inf" + b.member[brace:]: score,
            c.member[:20]: score,  # cut off
        },
    )
    rig.pass_time(LEASE + 1, keeper)
    for _ in range(3):
        keeper.reclaim()
        keeper.sweep(node.node)
    counts = await other.counts()
    assert (counts.queued, counts.leased, counts.failed) == (1, 0, 3)
    assert all(b'"unreadable"' in text for text in await client.lrange(node.keys.failed, 0, -1))


async def test_the_record_of_a_node_that_beat_again_meanwhile_is_not_removed(rig):
    one, two = await rig.node(), await rig.node()
    keepers = rig.keeper(one), rig.keeper(two)
    rig.steady(*keepers)
    rig.pass_time(STALE + 1, keepers[0])
    assert keepers[0].beat(REPORT).stale_nodes == [two.node]
    keepers[1].beat(REPORT)
    forget = one._calls.forget(two.node, own=False)
    assert keepers[0]._run(forget)[0] == b"ALIVE"
    assert keepers[1].beat(REPORT).known
    rig.pass_time(STALE + 1, keepers[0])
    assert keepers[0]._run(forget)[0] == b"OK"
    assert not keepers[1].beat(REPORT).known


# -- a full server


@pytest.fixture(params=["on PATH", "embedded 6.2"])
def own_server(request):
    from netspy.testing.servers import find_embedded_server

    with RedisServer(None if request.param == "on PATH" else find_embedded_server()) as server:
        yield server


async def test_a_full_server_lets_everything_through_that_moves_or_removes(own_server):
    """Leases that can't be renewed, given back or taken over while memory is full would make the outage worse."""
    rig = Rig("redis", Clock(), own_server.url)
    node, other = await rig.node(), await rig.node()
    keeper = rig.keeper(node)
    client = own_server.client()
    grant = await node.seed_acquire()
    await node.put([entry(i) for i in range(40)])
    leases = (await node.claim(20)).leases
    await other.claim(5)
    rig.steady(keeper)
    client.set("ballast", "x" * 11_000_000)
    client.config_set("maxmemory", "6mb")

    async def soon(work: Any) -> Any:
        return await asyncio.wait_for(work, 30)

    assert await soon(node.release(leases[:2])) == [True, True]
    assert await soon(node.delay([(leases[2], 5.0, None)])) == [True]
    assert (await soon(node.give_up([FinalFailure(leases[3], b'{"request":{}}')]))).failed == [True]
    assert (await soon(node.settle([Settlement(lease) for lease in leases[4:8]]))).acked == [True] * 4
    assert len((await soon(node.claim(3))).leases) == 3
    assert keeper.renew(leases[8:]) == [True] * 12
    assert keeper.beat(REPORT).known
    assert await soon(node.seed_renew(grant.token)) is True
    while not keeper.sweep(other.node):
        pass
    assert (await node.counts()).live_nodes == 1
    rig.pass_time(LEASE + 1, keeper)
    assert keeper.reclaim().returned == 12 + 3
    await soon(node.seed_finish(grant.token))
    assert (await node.counts()).seed == "seeded"
    client.config_set("maxmemory", "0")
    await rig.close()


# -- what is gone


async def test_a_node_of_another_format_version_is_refused_and_changes_nothing(rig):
    await rig.node()
    await raw(rig).hset(rig.nodes[0].keys.meta, "version", "99")
    before = await state(rig)
    with pytest.raises(ConfigError, match="99"):
        await rig.node()
    assert await state(rig) == before
    await raw(rig).hset(rig.nodes[0].keys.meta, "version", calls.FORMAT_VERSION)


async def test_priorities_survive_every_way_through_a_lease(rig):
    node = await rig.node()
    keeper = rig.keeper(node)
    rig.steady(keeper)
    ways = ["release", "delay", "reclaim", "leave"]
    await node.put([entry(way, priority=7.25) for way in ways])
    released, delayed, _reclaimed, _left = (await node.claim(4)).leases
    await node.release([released])
    await node.delay([(delayed, 1.0, None)])
    rig.pass_time(LEASE + 1, keeper)
    keeper.reclaim()
    got = (await node.claim(9)).leases
    assert sorted(names(got)) == sorted(ways)
    assert {lease.priority for lease in got} == {7.25}
    other = await rig.node()
    await node.close()
    assert {lease.priority for lease in (await other.claim(9)).leases} == {7.25}


async def test_entries_of_one_call_come_out_in_the_order_in_which_they_were_given(rig):
    node = await rig.node()
    order = ["m", "z", "a", "q", "b"]
    await node.put([entry(name) for name in order])
    assert names((await node.claim(5)).leases) == order


async def test_a_claim_is_bounded_in_bytes_in_order_and_gives_one_entry_however_large_ho_03(rig):
    """Case HO-03: a hundred entries of megabytes in one answer fill the server and the node."""
    node = await rig.node()
    large = [entry(f"l{n}", payload=b'{"url":"%s/l%d"}' % (b"x" * 30_000, n)) for n in range(5)]
    await node.put([entry("first"), *large, *(entry(f"s{n}") for n in range(30))])
    took = []
    for _ in range(20):
        leases = (await node.claim(100, max_bytes=70_000)).leases
        if not leases:
            break
        took.append(names(leases))
        assert len(leases) == 1 or sum(lease.size for lease in leases) <= 70_000
    assert [name for batch in took for name in batch] == [
        "first",
        *(f"l{n}" for n in range(5)),
        *(f"s{n}" for n in range(30)),
    ]
    assert len(took) == 3
    assert names((await node.claim(1, max_bytes=10)).leases) == []
    await node.put([entry("alone", payload=b'{"url":"%s/alone"}' % (b"x" * 30_000))])
    assert names((await node.claim(100, max_bytes=10)).leases) == ["alone"]


async def test_what_is_passed_over_and_what_is_too_much_stay_in_their_places(rig):
    node = await rig.node()
    row = [entry(f"{site}{n}", site=site * 8, payload=b'{"url":"%s/%s%d"}' % (b"x" * 20_000, site.encode(), n))
           for n in range(20) for site in "ab"]  # fmt: skip
    await node.put(row)
    took = [names((await node.claim(10, pass_over={"aaaaaaaa"}, max_bytes=50_000)).leases) for _ in range(3)]
    assert took == [["b0", "b1"], ["b2", "b3"], ["b4", "b5"]]
    left = []
    while leases := (await node.claim(50)).leases:
        left += names(leases)
    assert left == [f"{site}{n}" for n in range(20) for site in "ab" if site == "a" or n > 5]
