"""The frontier knows what is left of each task: counted in the same step in which its requests move."""

from __future__ import annotations

import pytest
from frontier_rig import LEASE, REPORT, STALE, Backup, another_server, entry, names, rigs

from netspy.errors import StoreLostError
from netspy.messages.entry import FinalFailure, Settlement, TaskMark, TaskState
from netspy.policy.failed_record import pack_failed
from netspy.redisio.client import sync_client

rig = rigs("memory", "7/redis", "6.2/redis-set")


shared = rigs("7/redis", "6.2/redis-set")


def closing(name="closing"):
    return entry(name, site="dddddddd")


def record(lease):
    return pack_failed(lease.payload, reason="status 404", error="", attempts=1, time=1.0)


async def settled(node, leases, children=()):
    return await node.settle([Settlement(lease, children) for lease in leases])


async def states(node, *tasks):
    """What is left of them, put under the history of now."""
    return (await node.open_tasks([(task, node.history) for task in tasks])).states


async def test_a_task_is_open_until_its_last_request_is_done_children_included(rig):
    node = await rig.node()
    await node.put([entry("a", task="t/1"), entry("b", task="t/1"), entry("x")], tasks=[TaskMark("t/1")])
    leases = (await node.claim(3)).leases
    assert [lease.task for lease in leases] == ["t/1", "t/1", ""]
    await settled(node, [leases[0]], [entry("child", task="t/1")])
    await settled(node, leases[1:])
    assert await states(node, "t/1", "t/2") == [1, 0]
    [child] = (await node.claim(3)).leases
    await settled(node, [child])
    assert await states(node, "t/1") == [0]
    counts = await node.counts()
    assert (counts.tasks, counts.tasks_done, counts.tasks_failed, counts.queued) == (0, 1, 0, 0)


async def test_the_closing_request_comes_first_and_says_how_many_failed(rig):
    node = await rig.node()
    waiting = [entry(f"other {i}", priority=1) for i in range(3)]
    mark = TaskMark("t/1", closing=closing())
    await node.put(
        [entry("a", priority=0, task="t/1"), entry("b", priority=0, task="t/1"), *waiting], tasks=[mark]
    )
    a, b = (await node.claim(2)).leases
    await settled(node, [a])
    await node.give_up([FinalFailure(b, record(b))])
    [last] = (await node.claim(1)).leases
    assert (names([last]), last.task) == (["closing"], "!1")
    assert (await node.counts()).tasks_failed == 1
    await node.delay([(last, 1.0, None)])
    rig.clock.advance(2)
    [again] = (await node.claim(1)).leases
    assert (names([again]), again.task) == (["closing"], "!1"), "another try keeps the number"


async def test_another_try_with_a_new_payload_stays_with_its_task(rig):
    node = await rig.node()
    await node.put([entry("a", task="t/1")], tasks=[TaskMark("t/1")])
    [lease] = (await node.claim(1)).leases
    await node.delay([(lease, 1.0, b'{"url":"https://example.com/again"}')])
    rig.clock.advance(2)
    [again] = (await node.claim(1)).leases
    assert (names([again]), again.task) == (["again"], "t/1")
    await settled(node, [again])
    assert (await node.counts()).tasks_done == 1


async def test_a_task_that_wants_to_hear_of_failure_only_hears_of_nothing_else(rig):
    node = await rig.node()
    marks = [TaskMark(t, closing=closing(t), only_failed=True) for t in ("t/1", "t/2")]
    await node.put([entry("a", task="t/1"), entry("b", task="t/2")], tasks=marks)
    a, b = (await node.claim(2)).leases
    await settled(node, [a])
    assert (await node.counts()).queued == 0
    await node.give_up([FinalFailure(b, record(b))])
    assert names((await node.claim(5)).leases) == ["2"]


async def test_a_task_without_requests_is_closed_at_once(rig):
    node = await rig.node()
    await node.put([], tasks=[TaskMark("t/1", closing=closing())])
    assert await states(node, "t/1") == [0]
    assert names((await node.claim(5)).leases) == ["closing"]


async def test_a_task_that_is_still_being_fed_stays_open_with_nothing_left(rig):
    node = await rig.node()
    await node.put([entry("a", task="t/1")], tasks=[TaskMark("t/1", fed=False)])
    await settled(node, (await node.claim(1)).leases)
    assert await states(node, "t/1") == [2]
    await node.put([entry("b", task="t/1")], tasks=[TaskMark("t/1", fed=True)])
    assert await states(node, "t/1") == [1]
    await settled(node, (await node.claim(1)).leases)
    assert await states(node, "t/1") == [0]


async def test_a_task_of_many_requests_is_never_taken_for_done_between_two_pieces(rig):
    node = await rig.node()
    many = [entry(i, task="t/1") for i in range(1200)]
    assert all(await node.put(many, tasks=[TaskMark("t/1", closing=closing())]))
    counts = await node.counts()
    assert (counts.tasks, counts.queued) == (1, 1200)


async def test_a_task_delivered_twice_is_counted_once(rig):
    node = await rig.node()
    requests = [entry("a", task="t/1"), entry("b", task="t/1")]
    assert await node.put(requests, tasks=[TaskMark("t/1")]) == [True, True]
    assert await node.put(requests, tasks=[TaskMark("t/1")]) == [False, False]
    await settled(node, (await node.claim(5)).leases)
    assert await states(node, "t/1") == [0]
    assert (await node.counts()).tasks_done == 1


async def test_a_request_that_ends_its_process_again_and_again_fails_its_task(shared):
    node = await shared.node()
    keeper = shared.keeper(node)
    shared.steady(keeper)
    await node.put([entry("deadly", task="t/1")], tasks=[TaskMark("t/1", closing=closing())])
    for _ in range(8):
        if names((await node.claim(1)).leases) != ["deadly"]:
            break
        shared.pass_time(LEASE + 1, keeper)
        keeper.beat(REPORT)
        keeper.reclaim()
    counts = await node.counts()
    assert (counts.tasks, counts.tasks_failed, counts.failed) == (0, 1, 1)


async def test_an_entry_that_cannot_be_read_fails_its_task(shared):
    node = await shared.node()
    await node.put([entry("broken", task="t/1")], tasks=[TaskMark("t/1")])
    assert (await node.claim(1)).leases == []
    assert (await node.counts()).tasks_failed == 1


async def test_an_entry_with_a_broken_header_fails_its_task(shared):
    node = await shared.node()
    await node.put([entry("a", task="t/1"), entry("b", task="t/2")], tasks=[TaskMark("t/1"), TaskMark("t/2")])
    client = node._session.link.client
    for member in await client.zrange(node.keys.queued, 0, -1):
        if b"@t/1{" in member:
            await client.zrem(node.keys.queued, member)
            await client.zadd(node.keys.queued, {b"?" + member[1:]: 300})
    assert names((await node.claim(5)).leases) == ["b"]
    assert await states(node, "t/1", "t/2") == [0, 1]
    assert (await node.counts()).tasks_failed == 1


async def test_a_request_that_ends_node_after_node_fails_its_task(shared):
    survivor = await shared.node()
    keeper = shared.keeper(survivor)
    shared.steady(keeper)
    await survivor.put([entry("deadly", task="t/1")], tasks=[TaskMark("t/1", closing=closing())])
    for _ in range(8):
        victim = await shared.node()
        if names((await victim.claim(1)).leases) != ["deadly"]:
            break
        shared.pass_time(STALE + 3, keeper)
        for dead in keeper.beat(REPORT).stale_nodes:
            while not keeper.sweep(dead):
                pass
    counts = await survivor.counts()
    assert (counts.tasks, counts.tasks_failed, counts.failed) == (0, 1, 1)


async def test_a_task_that_this_node_did_not_put_is_judged_by_what_is_there(rig):
    node = await rig.node()
    await node.put([entry("a", task="t/1")], tasks=[TaskMark("t/1")])
    await node.put([entry("b", task="t/2")], tasks=[TaskMark("t/2", fed=False)])
    asked = await node.open_tasks([("t/1", None), ("t/2", None), ("t/3", None)])
    assert asked.states == [TaskState.OPEN, TaskState.FEEDING, TaskState.ENDED]
    assert asked.history == node.history
    assert (await node.open_tasks([])).states == []


async def test_a_task_put_under_another_history_is_not_said_to_have_ended(shared):
    node = await shared.node()
    before = node.history
    await node.put([entry("a", task="t/whole")], tasks=[TaskMark("t/whole")])
    await node.put([entry("b", task="t/part")], tasks=[TaskMark("t/part", fed=False)])
    backup = Backup(shared.url)
    await node.put([entry("c", task="t/gone")], tasks=[TaskMark("t/gone")])
    backup.restore()
    asked = await node.open_tasks([("t/whole", before), ("t/part", before), ("t/gone", before)])
    assert asked.states == [TaskState.OPEN, TaskState.LOST, TaskState.LOST]
    assert node.history != before
    assert await states(node, "t/whole", "t/part", "t/gone") == [1, 2, 0], (
        "under the new history they are known"
    )


async def test_another_server_that_lost_nothing_makes_no_task_doubtful(shared):
    node = await shared.node()
    before = node.history
    await node.put([entry("a", task="t/part")], tasks=[TaskMark("t/part", fed=False)])
    with sync_client(shared.settings()) as client:
        another_server(client)
    assert (await node.open_tasks([("t/part", before), ("t/gone", before)])).states == [2, 0]
    assert node.history == before


async def test_a_task_that_another_node_had_put_is_not_called_done_by_a_store_that_went_back(shared):
    """This node has put nothing: that it saw the task is all it knows."""
    gone, node = await shared.node(), await shared.node()
    backup = Backup(shared.url)
    await gone.put([entry("a", task="t/1")], tasks=[TaskMark("t/1")])
    [state], history = await node.open_tasks([("t/1", None)])
    assert state == TaskState.OPEN
    backup.restore()
    assert (await node.open_tasks([("t/1", history)])).states == [TaskState.LOST]


async def test_a_task_whose_first_requests_a_store_may_have_forgotten_is_never_whole(shared):
    node = await shared.node()
    before = node.history
    backup = Backup(shared.url)
    await node.put([entry("a", task="t/1")], tasks=[TaskMark("t/1", fed=False)])
    backup.restore()
    await node.put([entry("b", task="t/1")], tasks=[TaskMark("t/1", history=before)])
    assert (await node.open_tasks([("t/1", None)])).states == [TaskState.FEEDING]
    await settled(node, (await node.claim(5)).leases)
    assert (await node.open_tasks([("t/1", before)])).states == [TaskState.LOST]
    await node.put([entry("a", task="t/1"), entry("c", task="t/1")], tasks=[TaskMark("t/1")])
    assert await states(node, "t/1") == [1], "put anew, all of it under one history"
    await settled(node, (await node.claim(5)).leases)
    assert await states(node, "t/1") == [0]


async def test_a_put_in_several_pieces_over_a_change_of_servers_leaves_its_task_open(shared):
    node = await shared.node()
    before = node.history
    backup = Backup(shared.url)
    call = node._session.call

    async def then_another_server(*args, **keywords):
        reply = await call(*args, **keywords)
        node._session.call = call
        backup.restore()
        return reply

    node._session.call = then_another_server
    await node.put([entry(i, task="t/1") for i in range(600)], tasks=[TaskMark("t/1")])
    assert node.history != before, "whoever put it can tell"
    assert (await node.open_tasks([("t/1", None)])).states == [TaskState.FEEDING]


async def test_a_store_without_the_runs_keys_says_of_no_task_that_it_has_ended(shared):
    node = await shared.node()
    await node.put([entry("a", task="t/1")], tasks=[TaskMark("t/1")])
    await node._session.link.client.flushdb()
    with pytest.raises(StoreLostError):
        await states(node, "t/1")
    other = await shared.node()
    with pytest.raises(StoreLostError):
        await states(node, "t/1")
    assert await states(other, "t/1") == [0], "a later life of the namespace knows nothing of it"


async def test_a_node_that_the_store_forgot_joins_again_to_ask(shared):
    node = await shared.node()
    await node.put([entry("a", task="t/1")], tasks=[TaskMark("t/1")])
    first = node.node
    await node._session.link.client.zrem(node.keys.beats, first)
    assert await states(node, "t/1") == [1]
    assert node.node != first
