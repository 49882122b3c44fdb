"""The store goes back to an earlier state, or is empty: what each call of a node answers then.

An earlier state is a snapshot after a crash, a replica that lagged, or a backup that somebody restored. `Backup` does it within
one server process, so no connection tells of it. The table at the top has every call that a node sends to a store that is as it
was (same), one that has lost nothing but is another server process (restarted), one that went back behind the node's last
write (older), behind the node's registration (before it), and one that is empty.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from frontier_rig import REPORT, STALE, Backup, Clock, Rig, another_server, entry, name_of, names, rigs

from netspy.cluster.nodes import read_nodes
from netspy.errors import StoreLostError
from netspy.frontier.contract import SeedsLostError
from netspy.messages.entry import FinalFailure, Settlement, TaskMark, TaskState
from netspy.policy.failed_record import pack_failed

rig = rigs("7/redis", "6.2/redis-set")


def record(lease: Any) -> bytes:
    return pack_failed(lease.payload, reason="status 404", error="", attempts=1, time=1.0)


class World:
    """A node that holds `parent`, whose child it has put, and `plain`, without children; it seeds, and has put a task."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig

    async def begin(self, state: str) -> World:
        rig = self.rig
        first = await rig.node()
        backup = Backup(rig.url)
        self.node = node = await rig.node()
        self.keeper = rig.keeper(node)
        rig.steady(self.keeper)
        self.token = (await node.seed_acquire()).token
        await node.put([entry("parent", priority=1), entry("plain", priority=2), entry("third", priority=3)])
        self.parent, self.plain, self.third = (await node.claim(3)).leases
        if state != "before it":
            backup = Backup(rig.url)
        self.history = node.history
        await node.put([entry("seed")], seed_token=self.token)
        await node.put([entry("child")])
        await node.put([entry("of a task", task="t")], tasks=[TaskMark("t")])
        self.id = node.node
        with Backup(rig.url).client as client:
            if state == "restarted":
                another_server(client)
            elif state == "empty":
                client.flushdb()
            elif state != "same":
                backup.restore()
        del first
        return self


async def put_known(w: World) -> Any:
    """`child` was confirmed before: known, or to be put again. A page that leads to it was claimed from the store as it is."""
    await w.node.claim(1)
    return await w.node.put([entry("child")])


async def settle_parent(w: World) -> Any:
    answer = await w.node.settle([Settlement(w.parent, (), w.history), Settlement(w.plain)])
    return answer.acked, answer.stale


async def settle_known_child(w: World) -> Any:
    """The child is left out, because it is known here."""
    answer = await w.node.settle([Settlement(w.plain, [entry("child")])])
    there = [name for name in await queued(w) if name == "child"]
    return answer.acked, answer.stale, there


async def give_up_parent(w: World) -> Any:
    answer = await w.node.give_up(
        [FinalFailure(w.parent, record(w.parent), w.history), FinalFailure(w.plain, record(w.plain))]
    )
    return answer.failed, answer.stale


async def opened(w: World) -> Any:
    return (await w.node.open_tasks([("t", w.history), ("never put here", None)])).states


async def last_part_of_a_task(w: World) -> Any:
    await w.node.put([], tasks=[TaskMark("t", history=w.history)])
    return (await w.node.open_tasks([("t", None)])).states


async def seed_put(w: World) -> Any:
    try:
        return await w.node.put([entry("seed"), entry("more")], seed_token=w.token)
    except SeedsLostError:
        return "seeds lost"


async def seed_finish(w: World) -> Any:
    try:
        return await w.node.seed_finish(w.token)
    except SeedsLostError:
        return "seeds lost"


async def release(w: World) -> Any:
    return await w.node.release([w.third])


async def delay(w: World) -> Any:
    return await w.node.delay([(w.third, 5.0, None)])


async def claim(w: World) -> Any:
    return sorted(names((await w.node.claim(9)).leases))


async def beat(w: World) -> Any:
    reply = w.keeper.beat(REPORT)
    return reply.known, reply.intact


async def renew(w: World) -> Any:
    return w.keeper.renew([w.parent, w.plain])


async def reconcile(w: World) -> Any:
    """Everything is held, so nothing may be taken from the node."""
    w.keeper.beat(REPORT)
    with suppress(Exception):
        return w.keeper.reconcile([w.parent, w.plain, w.third])
    return "not known"


async def counts(w: World) -> Any:
    found = await w.node.counts()
    return found.intact, found.queued, found.leased


async def queued(w: World) -> list[str]:
    members = await w.node._session.link.client.zrange(w.node.keys.queued, 0, -1)
    return sorted(name_of(member[member.index(b"{") :]) for member in members)


OPEN, ENDED, LOST = TaskState.OPEN, TaskState.ENDED, TaskState.LOST
TABLE: list[tuple[Any, Any, Any, Any]] = [
    # call, the same or restarted, older, before the node had joined; an empty store is StoreLostError everywhere
    (put_known, [False], [True], [True]),
    (settle_parent, ([True, True], [False, False]), ([False, True], [True, False]), ([False, False], [True, False])),
    (settle_known_child, ([True], [False], ["child"]), ([False], [True], []), ([False], [True], [])),
    (give_up_parent, ([True, True], [False, False]), ([False, True], [True, False]), ([False, False], [True, False])),
    (opened, [OPEN, ENDED], [LOST, ENDED], [LOST, ENDED]),
    (last_part_of_a_task, [OPEN], [TaskState.FEEDING], [TaskState.FEEDING]),
    (seed_put, [False, True], "seeds lost", "lock lost"),
    (seed_finish, True, "seeds lost", False),
    (release, [True], [True], [False]),
    (delay, [True], [True], [False]),
    (claim, ["child", "of a task", "seed"], [], []),
    (beat, (True, True), (True, True), (False, True)),
    (renew, [True, True], [True, True], [False, False]),
    (reconcile, 0, 0, "not known"),
    (counts, (True, 3, 3), (True, 0, 3), (True, 0, 0)),
]  # fmt: skip


@pytest.mark.parametrize("state", ["same", "restarted", "older", "before it", "empty"])
@pytest.mark.parametrize("row", TABLE, ids=lambda row: row[0].__name__)
async def test_what_each_call_answers(rig, row, state):
    call, same, older, before = row
    world = await World(rig).begin(state)
    wanted = {"same": same, "restarted": same, "older": older, "before it": before}.get(state)
    if state == "empty":
        if call in (beat, reconcile, counts):
            assert (await call(world)) in ((False, False), (False, 0, 0), "not known")
        else:
            with pytest.raises(StoreLostError):
                await call(world)
        return
    if wanted == "lock lost":
        with pytest.raises(Exception, match="seeding lock"):
            await call(world)
        return
    assert await call(world) == wanted
    if state in ("same", "restarted"):
        assert world.node.history == world.history, "nothing was lost, so nothing is doubted"
    elif call not in (counts, beat, reconcile) or state == "older":
        with suppress(Exception):
            await world.node.claim(1)
        assert world.node.history != world.history


# -- node ids (F1)


async def test_no_two_live_nodes_ever_share_an_id(rig):
    first = await rig.node()
    backup = Backup(rig.url)
    others = [await rig.node() for _ in range(4)]
    ids = {node.node for node in (first, *others)}
    backup.restore()
    for n in range(3):
        for node in reversed(others):
            assert await node.put([entry(f"{n} {id(node)}")]) == [True]
    now = {node.node for node in (first, *others)}
    assert len(now) == 5
    assert now & ids == {first.node}, (
        "who joined after the snapshot has an id of which nobody has heard before"
    )
    assert (await first.counts()).queued == 12


async def test_what_a_node_was_told_to_be_queued_is_queued_whoever_rejoins_first(rig):
    first = await rig.node()
    await first.put([entry("before")])
    backup = Backup(rig.url)
    one, other = await rig.node(), await rig.node()
    for n in range(3):
        await one.put([entry(f"one {n}")])
        await other.put([entry(f"other {n}")])
    backup.restore()
    told = {"before"}
    for n in range(5):
        for node, name in ((other, "other"), (one, "one")):
            assert await node.put([entry(f"{name} new {n}")]) == [True]
            told.add(f"{name} new {n}")
    leases = [*(await one.claim(4)).leases, *(await other.claim(4)).leases, *(await first.claim(9)).leases]
    assert sorted(names(leases)) == sorted(told), "each once, in one node's hands"
    keeper = rig.keeper(one)
    keeper.beat(REPORT)
    assert keeper.reconcile(leases[:4]) == 0, "it takes nothing from the others"


async def test_a_node_whose_registration_and_writes_are_gone_believes_neither(rig):
    first = await rig.node()
    backup = Backup(rig.url)
    node = await rig.node()
    history = node.history
    await node.put([entry("a", task="t")], tasks=[TaskMark("t")])
    backup.restore()
    assert (await node.open_tasks([("t", history)])).states == [TaskState.LOST]
    assert node.history != history
    assert (await first.counts()).tasks == 0


async def test_a_join_whose_answer_was_lost_registers_one_node(rig):
    node = await rig.node()
    _, call = node._calls.join(node._session.shared, "")
    client = node._session.link
    await client.run(call)
    await client.run(call)
    assert (await node.counts()).live_nodes == 2


async def test_a_node_that_was_taken_for_dead_believes_what_it_put(rig):
    """Nothing was lost but its registration, so its tasks and seeds are not done again."""
    frozen, other = await rig.node(), await rig.node()
    keepers = rig.keeper(frozen), rig.keeper(other)
    rig.steady(*keepers)
    await frozen.put([entry("a", task="t")], tasks=[TaskMark("t", fed=False)])
    history, old = frozen.history, frozen.node
    rig.pass_time(STALE + 4, keepers[1])
    for dead in keepers[1].beat(REPORT).stale_nodes:
        while not keepers[1].sweep(dead):
            pass
    assert (await frozen.open_tasks([("t", history)])).states == [TaskState.FEEDING]
    assert frozen.node != old
    assert frozen.history == history
    assert not await frozen._session.link.client.hexists(frozen.keys.nodes, f"{old}:f"), "asked for once"


# -- whoever notices tells the others


async def test_another_node_that_lost_nothing_learns_that_the_store_went_back(rig):
    quiet, busy = await rig.node(), await rig.node()
    await busy.seed_acquire()
    backup = Backup(rig.url)
    await busy.put([entry("a")])
    before = quiet._session.shared.history
    backup.restore()
    await busy.put([entry("b")])
    await quiet.counts()
    assert quiet._session.shared.history != before
    assert quiet._session.shared.history.startswith(before.partition(":")[0] + "~")


async def test_the_keeper_notices_it_too_and_the_loop_forgets_what_it_knew(rig):
    node = await rig.node()
    keeper = rig.keeper(node)
    keeper.beat(REPORT)
    backup = Backup(rig.url)
    await node.put([entry("a")])
    backup.restore()
    assert keeper.beat(REPORT).known
    assert await node.put([entry("a")]) == [True], "it had been confirmed, and is not known any more"


async def test_numbers_of_entries_that_were_forgotten_are_not_given_again(rig):
    """A child that bypasses the repeat filter is named by its parent's number: two parents of one number are one child."""
    node = await rig.node()
    backup = Backup(rig.url)
    await node.put([entry("a")])
    [gone] = (await node.claim(1)).leases
    backup.restore()
    await node.put([entry("b")])
    [there] = (await node.claim(1)).leases
    assert gone.seq != there.seq
    with Backup(rig.url).client as client:
        another_server(client)
    other = await rig.node()
    await other.put([entry("c")])
    assert (await other.claim(1)).leases[0].seq > there.seq + 1_000_000


# -- filters in the process (F2)


class Remembering:
    """A filter of the user's own, without `forget`."""

    def __init__(self, settings: Any) -> None:
        self.ids: set[bytes] = set()

    def seen(self, ids: Any) -> list[bool]:
        return [i in self.ids for i in ids]

    def mark(self, ids: Any) -> None:
        self.ids.update(ids)


class Forgetting(Remembering):
    async def forget(self) -> None:
        self.ids.clear()


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("kind", ["redis", "redis-set", "memory", "bloom", "lite", f"{__name__}.Forgetting"])
async def test_links_of_a_page_that_comes_again_are_queued_again_with_every_filter(redis_url, kind, early):
    rig = Rig("redis", Clock(), redis_url, DEDUP_FILTER=kind)
    node = await rig.node()
    await node.put([entry("list")])
    backup = Backup(redis_url)
    links = [entry(n) for n in range(5)]
    [page] = (await node.claim(1)).leases
    await node.settle([Settlement(page, links)])
    backup.restore()
    [page] = (await node.claim(1)).leases
    history = node.history
    if early:
        assert all(await node.put(links))
    done = await node.settle([Settlement(page, () if early else links, history if early else None)])
    assert done.acked == [True]
    assert (await node.counts()).queued == 5
    await rig.close()


# -- heartbeats that nobody can have sent


@pytest.mark.parametrize("beat", ["inf", "9e15", "1800000000000"])
async def test_a_heartbeat_of_the_far_future_is_no_sign_of_life_and_goes_like_a_dead_nodes(rig, beat):
    node = await rig.node()
    keeper = rig.keeper(node)
    client = node._session.link.client
    await client.execute_command("ZADD", node.keys.beats, beat, "planted")
    assert (await node.counts()).live_nodes == 1
    assert keeper.beat(REPORT).live_nodes == 1
    rig.steady(keeper)
    for dead in keeper.beat(REPORT).stale_nodes:
        while not keeper.sweep(dead):
            pass
    assert await client.zrange(node.keys.beats, 0, -1) == [node.node.encode()]
    rows = ["planted", float(beat), b"{}"]
    assert not read_nodes(rows, rig.clock.ms(), STALE)[0].alive


async def test_a_failed_seeding_is_tried_again_though_such_a_heartbeat_is_there(rig):
    node = await rig.node()
    token = (await node.seed_acquire()).token
    await node.seed_finish(token, error="boom")
    await node._session.link.client.execute_command("ZADD", node.keys.beats, "inf", "planted")
    await node.close()
    assert (await (await rig.node()).seed_acquire()).token is not None


async def test_a_clock_that_was_turned_back_makes_no_healthy_node_dead(rig):
    one, other = await rig.node(), await rig.node()
    keepers = rig.keeper(one), rig.keeper(other)
    rig.steady(*keepers)
    await one.put([entry("a")])
    [lease] = (await one.claim(1)).leases
    rig.clock.advance(-3600)
    reply = keepers[1].beat(REPORT)
    assert not reply.sweeping
    assert not keepers[1].sweep(one.node)
    keepers[0].beat(REPORT)
    assert keepers[1].beat(REPORT).stale_nodes == []
    assert (await one.settle([Settlement(lease)])).acked == [True]
