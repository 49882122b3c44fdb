"""The frontier's promises, on memory, on Redis 7 and on the embedded Redis 6.2."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from frontier_rig import LEASE, REPORT, Clock, Rig, entry, names, rigs, sent

from netspy.frontier.contract import SeedLockLostError
from netspy.messages.entry import FinalFailure, Settlement
from netspy.policy.failed_record import pack_failed, read_failed

KINDS = ["memory", "7/redis", "7/redis-set", "7/lite", "6.2/redis", "6.2/redis-set"]


rig = rigs(*KINDS)


shared = rigs("7/redis", "6.2/redis-set")


def record(lease: Any, reason: str = "status 404") -> bytes:
    return pack_failed(
        lease.payload,
        reason=reason,
        error="",
        attempts=lease.deliveries,
        time=1.0,
        priority=lease.priority,
        site=lease.site,
    )


async def test_a_repeated_url_is_queued_once_also_within_one_batch(rig):
    node = await rig.node()
    assert await node.put([entry("a"), entry("b"), entry("a")]) == [True, True, False]
    assert await node.put([entry("b"), entry("c")]) == [False, True]
    assert (await node.counts()).queued == 3


async def test_smaller_priority_first_then_first_in_first_out(rig):
    node = await rig.node()
    await node.put([entry("x1"), entry("late", priority=900), entry("x2"), entry("first", priority=-1.5)])
    await node.put([entry("x3", site="ffffffff"), entry("mid", priority=300.5)])
    assert names((await node.claim(10)).leases) == ["first", "x1", "x2", "x3", "mid", "late"]


async def test_claim_tells_what_is_left_in_the_same_reading(rig):
    node = await rig.node()
    await node.put([entry(i) for i in range(5)])
    claimed = await node.claim(2)
    assert (len(claimed.leases), claimed.queued, claimed.leased, claimed.delayed) == (2, 3, 2, 0)
    assert claimed.next_due_s is None
    assert [lease.deliveries for lease in claimed.leases] == [1, 1]


async def test_settle_puts_the_children_of_owned_parents_only_and_drops_the_parents(rig):
    node = await rig.node()
    await node.put([entry("p1"), entry("p2"), entry("p3")])
    leases = (await node.claim(3)).leases
    await node.settle([Settlement(leases[2])])
    done = await node.settle(
        [
            Settlement(leases[0], [entry("c1"), entry("c2"), entry("p1")]),
            Settlement(leases[2], [entry("never")]),
            Settlement(leases[1]),
        ]
    )
    assert done.acked == [True, False, True]
    assert done.new == [[True, True, False], [], []]
    assert done.stale == [False, False, False]
    counts = await node.counts()
    assert (counts.queued, counts.leased) == (2, 0)
    assert names((await node.claim(9)).leases) == ["c1", "c2"]


async def test_a_parent_with_very_many_children_loses_none(rig):
    node = await rig.node()
    await node.put([entry("p")])
    [parent] = (await node.claim(1)).leases
    children = [entry(f"c{i}") for i in range(1700)]
    done = await node.settle([Settlement(parent, [*children, children[0]])])
    assert done.acked == [True]
    assert done.new == [[True] * 1700 + [False]]
    assert (await node.counts()).queued == 1700


async def test_release_goes_back_to_the_old_place_and_counts_no_delivery(rig):
    node = await rig.node()
    await node.put([entry(i) for i in range(4)])
    leases = (await node.claim(3)).leases
    assert await node.release([leases[1], leases[0]]) == [True, True]
    assert await node.release([leases[1]]) == [False]
    again = (await node.claim(9)).leases
    assert names(again) == ["0", "1", "3"]
    assert [lease.deliveries for lease in again] == [1, 1, 1]


async def test_delayed_entries_come_back_when_due_with_the_new_payload(rig):
    node = await rig.node()
    await node.put([entry("a", priority=7), entry("b", priority=8)])
    a, b = (await node.claim(2)).leases
    assert await node.delay([(a, 30.0, b'{"url":"https://example.com/a2"}'), (b, 2.5, None)]) == [True, True]
    claimed = await node.claim(5)
    assert not claimed.leases
    assert claimed.delayed == 2
    assert claimed.next_due_s == pytest.approx(2.5)
    assert (await node.counts()).next_due_s == pytest.approx(2.5)
    rig.clock.advance(2.5)
    assert names((await node.claim(5)).leases) == ["b"]
    rig.clock.advance(27.5)
    [back] = (await node.claim(5)).leases
    assert names([back]) == ["a2"]
    assert (back.priority, back.deliveries, back.expired) == (7, 2, 0)


async def test_give_up_moves_the_request_to_the_failed_list_once(rig):
    node = await rig.node()
    await node.put([entry("a")])
    [lease] = (await node.claim(1)).leases
    assert (await node.give_up([FinalFailure(lease, record(lease))])).failed == [True]
    assert (await node.give_up([FinalFailure(lease, record(lease))])).failed == [False]
    counts = await node.counts()
    assert (counts.failed, counts.leased, counts.queued) == (1, 0, 0)


async def test_late_calls_of_a_node_that_lost_its_lease_change_nothing(rig):
    node = await rig.node()
    keeper = rig.keeper(node)
    rig.steady(keeper)
    await node.put([entry("a")])
    [stalled] = (await node.claim(1)).leases
    rig.pass_time(LEASE + 1, keeper)
    assert keeper.reclaim() == (1, 0, False)
    [current] = (await node.claim(1)).leases
    assert (await node.settle([Settlement(stalled, [entry("child")])])).acked == [False]
    assert await node.release([stalled]) == [False]
    assert await node.delay([(stalled, 1.0, None)]) == [False]
    assert (await node.give_up([FinalFailure(stalled, record(stalled))])).failed == [False]
    assert keeper.renew([stalled, current]) == [False, True]
    counts = await node.counts()
    assert (counts.leased, counts.queued, counts.delayed, counts.failed) == (1, 0, 0, 0)
    assert (await node.settle([Settlement(current)])).acked == [True]


async def test_a_renewed_lease_does_not_run_out(rig):
    node = await rig.node()
    keeper = rig.keeper(node)
    rig.steady(keeper)
    await node.put([entry("a")])
    [lease] = (await node.claim(1)).leases
    before = lease.valid_until
    rig.pass_time(LEASE - 5, keeper)
    assert keeper.renew([lease]) == [True]
    assert lease.valid_until == pytest.approx(before + LEASE - 5)
    rig.pass_time(LEASE - 5, keeper)
    assert keeper.reclaim().returned == 0
    assert (await node.settle([Settlement(lease)])).acked == [True]


async def test_poison_reaches_the_failed_list_and_its_neighbours_do_not(rig):
    """Deadly entries come back marked; what was lost three times while it was alone is found out."""
    node = await rig.node()
    keeper = rig.keeper(node)
    rig.steady(keeper)
    await node.put([entry("deadly"), entry("neighbour")])
    seen = []
    for _ in range(9):
        leases = (await node.claim(10, suspect_room=(64, 8, 1))).leases
        seen.append([(n, lease.expired) for n, lease in zip(names(leases), leases, strict=True)])
        if not leases:
            break
        # Everything in flight dies with the process, until the neighbour happens to run alone.
        if names(leases) == ["neighbour"]:
            await node.settle([Settlement(leases[0])])
            continue
        rig.pass_time(LEASE + 1, keeper)
        keeper.reclaim()
    counts = await node.counts()
    assert seen[0] == [("deadly", 0), ("neighbour", 0)]
    assert seen[1] == [("deadly", 0), ("neighbour", 0)]
    assert seen[2] == [("deadly", 1), ("neighbour", 1)]
    assert seen[3:6] == [[("deadly", 2)], [("deadly", 3)], [("deadly", 4)]]
    assert seen[6] == [("neighbour", 2)]
    assert seen[7] == []
    assert (counts.failed, counts.queued, counts.leased) == (1, 0, 0)


async def test_suspects_are_bounded_by_their_number_of_expired_starts(rig):
    node = await rig.node()
    keeper = rig.keeper(node)
    rig.steady(keeper)
    await node.put([entry(i) for i in range(5)])
    await node.claim(5)
    rig.pass_time(LEASE + 1, keeper)
    keeper.reclaim()
    await node.put([entry("fresh")])
    leases = (await node.claim(10, suspect_room=(2, 8, 1))).leases
    assert names(leases) == ["0", "1", "fresh"]
    assert (await node.counts()).queued == 3


async def test_a_suspect_at_its_last_chance_is_with_no_other_suspect(rig):
    """Else it would be condemned when the other one kills the process."""
    node = await rig.node()
    keeper = rig.keeper(node)
    rig.steady(keeper)
    await node.put([entry("innocent")])
    for _ in range(3):
        assert names((await node.claim(1)).leases) == ["innocent"]
        rig.pass_time(LEASE + 1, keeper)
        keeper.reclaim()
        if _ == 0:
            await node.put([entry("deadly")])
    [_deadly] = (await node.claim(1, suspect_room=(64, 8, 0))).leases
    rig.pass_time(LEASE + 1, keeper)
    keeper.reclaim()
    await node.put([entry("fresh")])
    leases = (await node.claim(10)).leases
    assert names(leases) == ["innocent", "fresh"]
    assert [lease.suspicion for lease in leases] == [3, 0]
    assert names((await node.claim(10, suspect_room=(0, 0, 0))).leases) == []
    assert all((await node.settle([Settlement(leases[0])])).acked)
    assert names((await node.claim(10)).leases) == ["deadly"]


async def test_a_long_row_of_a_passed_over_site_starves_nobody(rig):
    node = await rig.node()
    for start in range(0, 4000, 500):
        await node.put([entry(f"slow{i}", site="aaaaaaaa") for i in range(start, start + 500)])
    await node.put([entry("good1", site="bbbbbbbb"), entry("good2", site="cccccccc")])
    found: list[str] = []
    for _ in range(4):
        found += names((await node.claim(10, pass_over={"aaaaaaaa", "dddddddd"})).leases)
    assert found == ["good1", "good2"]
    assert (await node.counts()).queued == 4000
    assert names((await node.claim(2)).leases) == ["slow0", "slow1"]


async def test_reclaim_is_bounded_and_says_when_there_is_more(rig):
    node = await rig.node()
    keeper = rig.keeper(node)
    rig.steady(keeper)
    await node.put([entry(i) for i in range(25)])
    await node.claim(25)
    rig.pass_time(LEASE + 1, keeper)
    assert keeper.reclaim(10) == (10, 0, True)
    assert keeper.reclaim(10).returned == 10
    assert keeper.reclaim(10) == (5, 0, False)
    assert (await node.counts()).queued == 25


async def test_seeding_is_one_nodes_and_a_seed_put_checks_it(rig):
    node = await rig.node()
    assert (await node.counts()).seed == "none"
    grant = await node.seed_acquire()
    assert grant.token is not None
    assert (await node.counts()).seed == "seeding"
    assert await node.put([entry("s")], seed_token=grant.token) == [True]
    with pytest.raises(SeedLockLostError):
        await node.put([entry("s2")], seed_token="somebody-else")
    assert (await node.counts()).queued == 1
    assert await node.seed_renew(grant.token)
    assert not await node.seed_renew("somebody-else")
    assert not await node.seed_finish("somebody-else")
    assert await node.seed_finish(grant.token)
    counts = await node.counts()
    assert counts.seed == "seeded"
    assert counts.seed_age_s == pytest.approx(0)
    assert (await node.seed_acquire()).token is None
    assert (await node.seed_acquire()).state == "seeded"


async def test_failed_seeding_is_a_state_with_its_error_and_nobody_repeats_it_in_this_run(rig):
    node = await rig.node()
    grant = await node.seed_acquire()
    assert await node.seed_finish(grant.token, error="ValueError: no such\nsitemap")
    counts = await node.counts()
    assert counts.seed == "failed"
    assert "no such" in counts.seed_detail
    again = await node.seed_acquire()
    assert (again.token, again.state) == (None, "failed")


async def test_an_abandoned_seeding_lock_goes_to_the_next_one_to_ask(rig):
    first = await rig.node()
    second = await rig.node() if rig.shared else first
    grant = await first.seed_acquire()
    assert (await second.seed_acquire()).token is None
    rig.clock.advance(9)
    assert await first.seed_renew(grant.token)
    rig.clock.advance(9)
    assert (await second.seed_acquire()).token is None
    rig.clock.advance(2)
    taken = await second.seed_acquire()
    assert taken.token not in (None, grant.token)
    assert not await first.seed_renew(grant.token)
    with pytest.raises(SeedLockLostError):
        await first.put([entry("late seed")], seed_token=grant.token)


@pytest.mark.parametrize("priority", [float("nan"), float("inf")])
async def test_a_priority_that_is_no_number_is_refused_before_anything_is_written(rig, priority):
    node = await rig.node()
    with pytest.raises(ValueError, match="finite"):
        await node.put([entry("bad", priority=priority)])
    assert (await node.counts()).queued == 0


async def test_reconcile_returns_leases_that_the_node_does_not_hold(rig):
    node = await rig.node()
    keeper = rig.keeper(node)
    rig.steady(keeper)
    await node.put([entry(i) for i in range(6)])
    held = (await node.claim(3)).leases
    await node.claim(2)
    held += (await node.claim(1)).leases
    assert keeper.reconcile(held) == 2
    counts = await node.counts()
    assert (counts.leased, counts.queued) == (4, 2)
    assert keeper.reconcile(held) == 0
    assert all((await node.settle([Settlement(lease) for lease in held])).acked)


# -- several nodes on Redis


async def test_two_nodes_share_the_queue_and_neither_gets_the_others_entry(shared):
    one, two = await shared.node(), await shared.node()
    await one.put([entry(i) for i in range(20)])
    a, b = await asyncio.gather(one.claim(10), two.claim(10))
    assert sorted(int(n) for n in names(a.leases + b.leases)) == list(range(20))
    assert (await two.settle([Settlement(a.leases[0])])).acked == [
        True
    ]  # the token is the lease's, not the caller's
    assert one.node != two.node


async def test_a_dead_nodes_leases_come_back_when_its_heartbeat_is_stale_not_after_the_lease(shared):
    dead, alive = await shared.node(), await shared.node()
    keeper = shared.keeper(alive)
    await dead.put([entry(i) for i in range(700)])
    held = (await dead.claim(600)).leases
    mine = (await alive.claim(50)).leases
    shared.steady(keeper)
    reply = keeper.beat(REPORT)
    assert reply.stale_nodes == [dead.node]
    assert reply.sweeping
    assert reply.live_nodes == 1
    steps = 0
    while not keeper.sweep(dead.node):
        steps += 1
        assert steps < 20
    counts = await alive.counts()
    assert (counts.queued, counts.leased, counts.live_nodes) == (650, 50, 1)
    assert keeper.beat(REPORT).stale_nodes == []
    assert all((await alive.settle([Settlement(lease) for lease in mine])).acked)
    # The dead one wakes: its late words change nothing, and it goes on under a new id.
    before = dead.node
    assert not any((await dead.settle([Settlement(lease, [entry("ghost")]) for lease in held])).acked)
    assert dead.node not in (before, alive.node)
    assert (await dead.counts()).queued == 650


async def test_a_node_whose_own_beats_had_a_gap_takes_nothing_from_others(shared):
    """After an outage everybody's heartbeat is old, though all are healthy."""
    one, two = await shared.node(), await shared.node()
    keepers = shared.keeper(one), shared.keeper(two)
    shared.steady(*keepers)
    await one.put([entry(i) for i in range(4)])
    held = (await one.claim(4)).leases
    shared.clock.advance(LEASE * 2)
    assert keepers[1].sweep(one.node) is False
    assert keepers[1].reclaim().returned == 0
    reply = keepers[1].beat(REPORT)
    assert reply.stale_nodes == [one.node]
    assert not reply.sweeping
    assert keepers[1].sweep(one.node) is False
    assert keepers[1].reclaim().returned == 0
    keepers[0].beat(REPORT)
    assert keepers[0].renew(held) == [True] * 4
    shared.steady(*keepers)
    assert keepers[1].reclaim().returned == 0
    assert all((await one.settle([Settlement(lease) for lease in held])).acked)


async def test_a_clock_that_jumps_ahead_moves_no_lease(shared):
    one, two = await shared.node(), await shared.node()
    keepers = shared.keeper(one), shared.keeper(two)
    shared.steady(*keepers)
    await one.put([entry("a")])
    await one.claim(1)
    shared.clock.advance(3600)
    for keeper in keepers:
        keeper.beat(REPORT)
    assert keepers[1].reclaim().returned == 0
    shared.clock.advance(-7200)
    for keeper in keepers:
        keeper.beat(REPORT)
    assert keepers[1].reclaim().returned == 0
    assert (await one.counts()).leased == 1


async def test_close_gives_back_what_is_still_leased_and_removes_the_record(shared):
    one, two = await shared.node(), await shared.node()
    await one.put([entry(i) for i in range(5)])
    await one.claim(3)
    await one.close()
    await one.close()
    counts = await two.counts()
    assert (counts.queued, counts.leased, counts.live_nodes) == (5, 0, 1)
    assert [lease.deliveries for lease in (await two.claim(5)).leases] == [1] * 5


async def test_with_leases_off_nothing_runs_twice_and_a_dead_nodes_requests_are_listed(redis_url):
    rig = Rig("redis", Clock(), redis_url, SPIDER_TASK_LEASE=0.0)
    try:
        dead, alive = await rig.node(), await rig.node()
        keeper = rig.keeper(alive)
        await dead.put([entry(i) for i in range(4)])
        await dead.claim(3)
        assert any("SPIDER_TASK_LEASE=0" in warning for warning in dead.warnings)
        rig.steady(keeper)
        rig.pass_time(100_0, keeper)
        assert keeper.reclaim().returned == 0
        while not keeper.sweep(dead.node):
            pass
        counts = await alive.counts()
        assert (counts.failed, counts.queued, counts.leased) == (3, 1, 0)
        stored = await alive._session.link.client.lrange(alive.keys.failed, 0, -1)
        found = read_failed(stored[0])
        assert found.reason == "lease off"
        assert found.url.startswith("https://example.com/")
    finally:
        await rig.close()


async def test_an_unreadable_entry_is_moved_aside_and_the_node_lives(shared, redis_server):
    told: list[int] = []
    node = await shared.node(hooks={"on_unreadable": told.append})
    await node.put([entry("broken"), entry("good")])
    client = node._session.link.client
    await client.zadd(node.keys.queued, {b'{"url":"https://example.com/from-another-program"}': 1})
    claimed = await node.claim(10)
    assert names(claimed.leases) == ["good"]
    assert told == [1, 1]
    counts = await node.counts()
    assert (counts.failed, counts.leased, counts.queued) == (2, 1, 0)
    records = [read_failed(text) for text in await client.lrange(node.keys.failed, 0, -1)]
    assert [r.reason for r in records] == ["unreadable", "unreadable"]
    assert "another-program" in (records[0].raw or "")
    assert "unknown version 9" in records[1].error


async def test_poison_is_listed_as_readable_json(shared):
    node = await shared.node(SPIDER_MAX_DELIVERIES=1)
    keeper = shared.keeper(node)
    shared.steady(keeper)
    await node.put([entry("deadly", priority=12.5)])
    for _ in range(4):
        assert len((await node.claim(1)).leases) == 1
        shared.pass_time(LEASE + 1, keeper)
        moved = keeper.reclaim()
    assert moved.poisoned == 1
    [text] = await node._session.link.client.lrange(node.keys.failed, 0, -1)
    assert json.loads(text)["priority"] == 12.5
    found = read_failed(text)
    assert (found.reason, found.attempts, found.url) == ("poison", 4, "https://example.com/deadly")


# -- calls that arrive twice


async def test_a_put_whose_answer_was_lost_enqueues_once_and_answers_the_same(shared):
    node = await shared.node()
    session = node._session
    packed = [node._writes._packed(e) for e in (entry("a"), entry("b"), entry("a"))]
    call = sent(node, node._calls.put(packed, None))
    first = await session.link.run(call)
    second = await session.link.run(call)
    assert first[1] == second[1] == b"110"
    assert (await node.counts()).queued == 2
    await node.put([entry("c")])
    assert (await session.link.run(call))[0] == b"STALEOP"
    assert (await node.counts()).queued == 3


async def test_a_claim_whose_answer_was_lost_gives_the_same_batch_again(shared):
    node = await shared.node()
    await node.put([entry(i) for i in range(10)])
    session = node._session
    call = sent(node, node._calls.claim(4, (), (64, 8, 1), 0), "claims")
    first = await session.link.run(call)
    shared.clock.advance(1)
    second = await session.link.run(call)
    assert first[8:] == second[8:]
    assert len(first[8:]) == 4
    await node.claim(1)
    assert (await session.link.run(call))[0] == b"STALEOP"
    assert (await node.counts()).leased == 5


async def test_a_claim_that_got_nothing_is_remembered_too(shared):
    node = await shared.node()
    session = node._session
    call = sent(node, node._calls.claim(4, (), (64, 8, 1), 0), "claims")
    assert (await session.link.run(call))[8:] == []
    await node.put([entry("a")])
    assert (await session.link.run(call))[8:] == []
    assert (await node.counts()).leased == 0


async def test_a_settle_whose_answer_was_lost_answers_the_same(shared):
    node = await shared.node()
    await node.put([entry("p")])
    [lease] = (await node.claim(1)).leases
    session = node._session
    call = sent(node, node._calls.settle([], [(lease.member, "", [node._writes._packed(entry("c"))])]))
    first, second = await session.link.run(call), await session.link.run(call)
    assert first[1] == second[1] == b"a1"
    assert (await node.counts()).queued == 1


async def test_an_unknown_node_is_refused_and_joins_under_a_new_id(shared):
    node = await shared.node()
    old = node.node
    await node._session.link.client.delete(node.keys.nodes, node.keys.beats)
    assert await node.put([entry("a")]) == [True]
    assert node.node != old
    assert len((await node.claim(1)).leases) == 1
