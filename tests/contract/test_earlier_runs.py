"""Where fingerprints outlive a run, the next run takes over what an earlier one queued and never crawled (F11)."""

from __future__ import annotations

from typing import Any

import pytest
from frontier_rig import REPORT, STALE, Backup, Clock, Rig, entry, names

from netspy.frontier.contract import SeedsLostError
from netspy.frontier.redis.frontier import RedisFrontier
from netspy.frontier.redis.membership import Clocks, Owner
from netspy.messages.entry import FinalFailure, Settlement, TaskMark, TaskState
from netspy.policy.failed_record import pack_failed
from netspy.policy.run_scope import run_scope
from netspy.redisio.client import sync_client
from netspy.redisio.keys import RunKeys


class Runs(Rig):
    """Runs of one job, one node each; fingerprints are the job's."""

    async def run(self, run_id: str, **more: Any) -> RedisFrontier:
        settings = self.settings(RUN_ID=run_id, **{"DEDUP_SCOPE": "spider", **more})
        node = RedisFrontier(
            settings,
            run_scope(settings, "News", "news"),
            Owner("News", "Spider"),
            pack=bytes,
            unpack=bytes,
            renewed=lambda payload: payload.replace(b'"tries":3', b'"tries":0'),
            clocks=Clocks(self.clock.ms, self.clock),
        )
        await node.open()
        self.nodes.append(node)
        return node

    async def killed(self, node: RedisFrontier) -> None:
        """Its process is gone: nothing is given back."""
        self.nodes.remove(node)
        await node._session.link.close()
        with self.client() as client:
            client.hset(node.keys.nodes, node.node, "{}")  # of another machine
        self.clock.advance(STALE + 1)

    def client(self) -> Any:
        return sync_client(self.settings())


@pytest.fixture(params=["redis_url", "redis62_url"])
async def runs(request):
    made = Runs("redis", Clock(), request.getfixturevalue(request.param))
    yield made
    await made.close()


def record(lease: Any, reason: str = "HTTP 500") -> bytes:
    payload = lease.payload[:-1] + b',"tries":3}'
    return pack_failed(payload, reason=reason, error="", attempts=4, time=1.0, site="0a0b0c0d", priority=5.0)


async def adopted(node: RedisFrontier) -> int:
    found = await node.adopt()
    assert not found.waits
    return found.moved


async def left_by_one(runs: Runs) -> RedisFrontier:
    """Run one ended in the middle: one page crawled, one queued, one leased, one delayed, one failed."""
    one = await runs.run("one")
    await one.put([entry(n, priority=n) for n in range(1, 6)])
    crawled, leased, delayed, failed = (await one.claim(4)).leases
    await one.settle([Settlement(crawled)])
    await one.delay([(delayed, 600.0, None)])
    await one.give_up([FinalFailure(failed, record(failed))])
    assert names([leased]) == ["2"]
    return one


async def test_what_a_killed_run_left_is_crawled_by_the_next_and_what_it_crawled_is_not(runs):
    one = await left_by_one(runs)
    await runs.killed(one)
    two = await runs.run("two")
    assert await two.put([entry(n) for n in range(1, 7)]) == [False] * 5 + [True], "all are known to the job"
    assert await adopted(two) == 4
    assert await adopted(two) == 0, "each once"
    counts = await two.counts()
    assert (counts.queued, counts.delayed, counts.failed) == (4, 1, 0)
    leases = (await two.claim(9)).leases
    assert [(lease.priority, lease.deliveries) for lease in leases] == [
        (2.0, 2),
        (5.0, 1),
        (5.0, 1),
        (300.0, 1),
    ]
    assert b'"tries":0' in next(lease.payload for lease in leases if b"/4" in lease.payload)
    runs.clock.advance(601)
    assert names((await two.claim(9)).leases) == ["3"]


async def test_a_run_that_was_stopped_leaves_it_too(runs):
    one = await left_by_one(runs)
    await one.close()
    assert await adopted(await runs.run("two")) == 4


async def test_a_run_that_ended_well_leaves_nothing(runs):
    one = await runs.run("one")
    await one.put([entry("a")])
    await one.settle([Settlement(lease) for lease in (await one.claim(1)).leases])
    await one.close()
    assert await adopted(await runs.run("two")) == 0


async def test_a_run_with_a_live_node_keeps_its_work(runs):
    one = await left_by_one(runs)
    keeper = runs.keeper(one)
    two = await runs.run("two")
    assert await two.adopt() == (0, True), "it may live: wait for a sign of it"
    runs.clock.advance(3)
    assert await two.adopt() == (0, True)
    keeper.beat(REPORT)
    assert await two.adopt() == (0, False), "it lives"
    assert (await one.counts())[:4] == (1, 1, 1, 1)


async def test_a_run_whose_node_gives_no_sign_is_taken_over_when_its_heartbeat_is_stale(runs):
    one = await left_by_one(runs)
    await one._session.link.client.hset(one.keys.nodes, one.node, "{}")
    two = await runs.run("two")
    assert (await two.adopt()).waits
    runs.clock.advance(STALE + 1)
    assert await adopted(two) == 4
    lease = (await one.claim(1)).leases
    assert lease == [], "a node that wakes up then finds nothing and changes nothing"


async def test_a_run_whose_process_is_gone_from_this_machine_is_taken_over_at_once(runs):
    one = await left_by_one(runs)
    with runs.client() as client:
        report = client.hget(one.keys.nodes, one.node)
        client.hset(one.keys.nodes, one.node, report.replace(b'"born":', b'"born":9'))
    assert await adopted(await runs.run("two")) == 4


async def test_of_several_runs_each_is_taken_over_and_the_next_one_takes_it_from_there(runs):
    for number in range(3):
        node = await runs.run(f"run {number}")
        await node.put([entry(number)])
        await node.close()
    four = await runs.run("four")
    assert await adopted(four) == 3
    await four.close()
    assert await adopted(await runs.run("five")) == 3


async def test_thousands_are_moved_in_bounded_steps_and_twice_over_once(runs, monkeypatch):
    one = await runs.run("one")
    await one.put([entry(n) for n in range(1300)])
    failed = (await one.claim(450)).leases
    await one.give_up([FinalFailure(lease, record(lease)) for lease in failed])
    await one.close()
    two = await runs.run("two")
    link, sizes = two._session.link, []
    plain = link.run

    async def twice(call: Any, **more: Any) -> Any:
        answer = await plain(call, **more)
        if call.script.name == "adopt":
            sizes.append(int(answer[1].split()[1]))
            assert (await plain(call, **more))[:2] == [b"AGAIN", answer[1]], "the answer was lost"
        return answer

    monkeypatch.setattr(link, "run", twice)
    assert await adopted(two) == 1300
    assert max(sizes) <= 500
    found = []
    while leases := (await two.claim(500)).leases:
        found += leases
    assert len({lease.payload for lease in found}) == len({lease.seq for lease in found}) == 1300


async def test_what_ends_its_process_and_what_must_not_run_twice_stays_where_it_is(runs):
    one = await runs.run("one")
    await one.put([entry(n) for n in range(4)])
    leases = (await one.claim(4)).leases
    reasons = ("poison", "lease off", "HTTP 404", "TimeoutError")
    await one.give_up([FinalFailure(x, record(x, why)) for x, why in zip(leases, reasons, strict=True)])
    with runs.client() as client:
        client.rpush(one.keys.failed, b"junk", b'{"reason":"x","site":"short","request":{"url":"u"}}')
    await one.close()
    two = await runs.run("two")
    assert await adopted(two) == 2
    with runs.client() as client:
        assert client.llen(one.keys.failed) == 4
        assert 0 < client.pttl(one.keys.failed) <= runs.settings().RUN_TTL * 1000


async def test_without_leases_what_a_dead_node_held_runs_no_second_time_in_the_next_run_either(redis_url):
    runs = Runs("redis", Clock(), redis_url, SPIDER_TASK_LEASE=0)
    one = await runs.run("one")
    await one.put([entry("held"), entry("queued")])
    await one.claim(1)
    await runs.killed(one)
    two = await runs.run("two")
    assert await adopted(two) == 2
    assert names((await two.claim(9)).leases) == ["queued"]
    assert (await one_failed(runs, one)) == 1
    await runs.close()


async def one_failed(runs: Runs, node: RedisFrontier) -> int:
    with runs.client() as client:
        return int(client.llen(node.keys.failed))


async def test_requests_of_a_task_are_counted_where_they_come_to_and_its_end_is_told_there(runs):
    one = await runs.run("one")
    requests = [entry("a", task="t"), entry("b", task="t")]
    mark = TaskMark("t", closing=entry("closing"))
    await one.put(requests, tasks=[mark])
    await one.put([entry("c", task="fed")], tasks=[TaskMark("fed", fed=False)])
    await one.settle([Settlement(lease) for lease in (await one.claim(1)).leases])
    await one.close()
    two = await runs.run("two")
    assert await adopted(two) == 2
    assert (await two.open_tasks([("t", None), ("fed", None)])).states == [TaskState.OPEN, TaskState.FEEDING]
    leases = (await two.claim(9)).leases
    await two.settle([Settlement(lease) for lease in leases])
    assert names((await two.claim(9)).leases) == ["closing"]
    with runs.client() as client:
        assert not client.exists(one.keys.tasks, one.keys.closing)


@pytest.mark.parametrize("kind", ["redis", "redis-set", "support.known_pages.KnownPages", "lite", "memory"])
async def test_every_filter_whose_memory_outlives_a_run_has_it(redis_url, kind):
    runs = Runs("redis", Clock(), redis_url, DEDUP_FILTER=kind)
    one = await runs.run("one")
    await one.put([entry("a")])
    await one.close()
    two = await runs.run("two")
    assert await adopted(two) == (0 if kind in {"lite", "memory"} else 1), (
        "a filter in the process knows no page of an earlier run: that finds them anew"
    )
    await runs.close()


async def test_a_run_of_the_other_scope_neither_takes_nor_gives(runs):
    apart = await runs.run("apart", DEDUP_SCOPE="run")
    await apart.put([entry("a")])
    await apart.close()
    two = await runs.run("two")
    assert await adopted(two) == 0
    await two.put([entry("b")])
    await two.close()
    assert await adopted(await runs.run("three", DEDUP_SCOPE="run")) == 0


async def test_what_is_left_waits_for_the_next_run_longer_than_the_run_lives(runs):
    one = await left_by_one(runs)
    keeper = runs.keeper(one)
    keeper.beat(REPORT)
    keys = one.keys
    await runs.killed(one)
    with runs.client() as client:
        assert [client.pttl(key) for key in (keys.queued, keys.inflight, keys.delayed, keys.failed)] == [
            -1
        ] * 4
        assert client.pttl(keys.meta) > 0
        client.delete(keys.meta, keys.nodes, keys.beats, keys.lock)  # RUN_TTL is over
    runs.clock.advance(8 * 86400)
    assert await adopted(await runs.run("two")) == 4


async def test_runs_of_which_nothing_is_left_leave_the_index(runs):
    one = await runs.run("one")
    await one.close()
    with runs.client() as client:
        client.delete(*RunKeys.of(one.scope).all())
    runs.clock.advance(8 * 86400)
    await runs.run("two")
    with runs.client() as client:
        assert client.zrange(one.keys.runs, 0, -1) == [b"two"]


async def test_a_store_that_went_back_behind_a_take_over_is_noticed(runs):
    one = await left_by_one(runs)
    await one.close()
    two = await runs.run("two")
    grant = await two.seed_acquire()
    backup = Backup(runs.url)
    assert await adopted(two) == 4
    backup.restore()
    with pytest.raises(SeedsLostError):
        await two.seed_finish(grant.token)
    assert await adopted(two) == 4
