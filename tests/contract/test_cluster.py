"""Looking at a run and tending it: status, failed requests, reset, alerts; on both servers."""

from __future__ import annotations

import json

import pytest
from frontier_rig import REPORT, Clock, Rig, entry, names

from netspy.cli.failed.records import with_fresh_budget
from netspy.cluster import failed
from netspy.cluster.failed import count_failed, drop_failed, list_failed, retry_failed
from netspy.cluster.reset import reset
from netspy.cluster.runs import list_runs
from netspy.cluster.status import may_alert, may_alert_async, read_status, read_status_async
from netspy.errors import ConfigError
from netspy.messages.entry import BeatReport, FinalFailure, Settlement
from netspy.messages.request import Request
from netspy.policy.failed_record import pack_failed
from netspy.redisio.client import sync_client
from netspy.redisio.scripts import run_sync


@pytest.fixture(params=["redis_url", "redis62_url"])
async def rig(request):
    made = Rig("redis", Clock(), request.getfixturevalue(request.param))
    yield made
    await made.close()


@pytest.fixture
def client(rig):
    made = sync_client(rig.settings())
    yield made
    made.close()


async def give_up(node, *wanted, reason="status 500"):
    claimed = await node.claim(len(wanted))
    for lease in claimed.leases:
        record = pack_failed(
            lease.payload,
            reason=reason,
            error="boom",
            attempts=lease.deliveries,
            time=5.0,
            priority=lease.priority,
            site=lease.site,
        )
        await node.give_up([FinalFailure(lease, record)])


async def test_status_sums_what_nodes_count_also_of_those_that_left(rig, client):
    one, two = await rig.node(), await rig.node()
    k1, k2 = rig.keeper(one), rig.keeper(two)
    await one.put([entry(i) for i in range(6)])
    leases = (await one.claim(3)).leases
    await one.delay([(leases[0], 9.0, None)])
    k1.beat(BeatReport(2, 1, {"pages": 5, "items": 2}))
    k2.beat(BeatReport(0, 0, {"pages": 7}))
    now = str(rig.clock.ms())
    status = read_status(client, one.scope, one.settings, now=now)
    assert (status.queued, status.leased, status.delayed, status.failed) == (3, 2, 1, 0)
    assert (status.owner, status.kind, status.exists, status.live_nodes, status.in_flight) == (
        "News",
        "Spider",
        True,
        2,
        2,
    )
    assert status.counters == {"pages": 12, "items": 2}
    assert status.fingerprints == 6
    assert status.next_due_s == pytest.approx(9.0)
    await two.close()
    later = await read_status_async(one._session.link.client, one.scope, one.settings, now=now)
    assert later.counters == {"pages": 12, "items": 2}
    assert [node.id for node in later.nodes] == [one.node]


async def test_a_woken_node_is_not_counted_twice_in_the_totals(rig, client):
    frozen, alive = await rig.node(), await rig.node()
    k1, k2 = rig.keeper(frozen), rig.keeper(alive)
    k1.beat(BeatReport(0, 0, {"pages": 10}))
    rig.steady(k2)
    while not k2.sweep(frozen.node):
        pass
    reply = k1.beat(BeatReport(0, 0, {"pages": 11}))
    assert not reply.known
    k1.rejoin()
    assert k1.beat(BeatReport(0, 0, {"pages": 14})).known
    status = read_status(client, alive.scope, alive.settings, now=str(rig.clock.ms()))
    assert status.counters == {"pages": 14 + 1}


async def test_a_node_without_heartbeat_is_shown_as_dead(rig, client):
    node = await rig.node()
    rig.clock.advance(100)
    status = read_status(client, node.scope, node.settings, now=str(rig.clock.ms()))
    assert [(n.alive, round(n.beat_age_s)) for n in status.nodes] == [(False, 100)]


async def test_a_name_without_a_run_is_told_from_an_empty_queue(rig, client):
    node = await rig.node()
    other = node.scope.__class__(
        prefix="netspy",
        redis_key="no",
        run_id="",
        job="netspy:no",
        ns="netspy:no",
        dedup="netspy:no",
        run_ttl_ms=0,
        incremental=False,
    )
    assert not read_status(client, other, node.settings).exists
    assert read_status(client, node.scope, node.settings).exists


async def test_failed_requests_are_listed_retried_and_dropped_without_loss(rig, client):
    node = await rig.node()
    await node.put([entry(i, priority=10 + i) for i in range(5)])
    await give_up(node, 0, 1, 2)
    await give_up(node, 3, reason="status 404")
    client.rpush(node.keys.failed, b"not json at all")
    shown = list(list_failed(client, node.scope))
    assert [f.record.reason for f in shown] == ["status 500"] * 3 + ["status 404", "unreadable"]
    assert [f.record.url for f in list_failed(client, node.scope, start=1, limit=2)] == [
        "https://example.com/1",
        "https://example.com/2",
    ]
    done = retry_failed(
        client,
        node.scope,
        wanted=lambda r: r.reason == "status 500",
        edit=lambda p: p.replace(b"example.com", b"example.net"),
    )
    assert done[:2] == (3, 1)
    claimed = await node.claim(10)
    assert names(claimed.leases) == ["0", "1", "2", "4"]
    assert claimed.leases[0].payload == b'{"url":"https://example.net/0"}'
    assert [lease.deliveries for lease in claimed.leases] == [1, 1, 1, 1]
    assert count_failed(client, node.scope) == 2
    assert drop_failed(client, node.scope, [shown[4].text]) == 1
    assert drop_failed(client, node.scope) == 1
    assert count_failed(client, node.scope) == 0


def record_of(n, **changed):
    """A record as netspy writes it, as a dict; changed."""
    made = {
        "reason": "HTTP 500", "error": "e", "attempts": 1, "time": 1.0, "priority": 300, "site": "0a0b0c0d",
        "request": {"v": 1, "u": f"http://a.example/{n}"},
    }  # fmt: skip
    return made | changed


UNREADABLE = {
    "not JSON": b"nonsense",
    "no UTF-8": b'{"reason":"\xff\xfe"}',
    "null": b"null",
    "a list": b"[1,2]",
    "a number": b"1",
    "nothing": b"",
    "no request": json.dumps({"reason": "x"}).encode(),
    "raw": json.dumps({"reason": "unreadable", "raw": "junk"}).encode(),
    "a text for a priority": json.dumps(record_of(9, priority="high")).encode(),
    "null for a site": json.dumps(record_of(9, site=None)).encode(),
    "null for a time": json.dumps(record_of(9, time=None)).encode(),
    "a list for a request": json.dumps(record_of(9, request=[1])).encode(),
    "a newer version": json.dumps(record_of(9, request={"v": 2, "u": "http://a.example/"})).encode(),
    "an unknown field": json.dumps(
        record_of(9, request={"v": 1, "u": "http://a.example/", "zz": 1})
    ).encode(),
    "no URL": json.dumps(record_of(9, request={"v": 1})).encode(),
    "very deep": b'{"request":' + b"[" * 100_000,
    "a site of three letters and no URL for another": json.dumps(
        record_of(9, site="abc", request={"v": 1, "u": "http://[::1"})
    ).encode(),
}


@pytest.mark.parametrize("bad", UNREADABLE.values(), ids=UNREADABLE)
async def test_f10_a_record_that_can_not_be_read_stays_and_costs_no_other(rig, client, bad):
    """F10: whatever stands among the failed requests, the others are queued again."""
    node = await rig.node()
    good = [json.dumps(record_of(n)).encode() for n in range(3)]
    client.rpush(node.keys.failed, bad, good[0], bad, good[1], bad, good[2])
    done = retry_failed(client, node.scope, edit=with_fresh_budget)
    assert (done.queued, done.unreadable) == (3, 3)
    assert done.why
    assert client.lrange(node.keys.failed, 0, -1) == [bad] * 3
    assert retry_failed(client, node.scope, edit=with_fresh_budget).queued == 0
    assert [record.record.reason for record in list_failed(client, node.scope)]
    leases = (await node.claim(10)).leases
    assert sorted(Request.unpack(lease.payload).url for lease in leases) == [
        f"http://a.example/{n}" for n in range(3)
    ]


@pytest.mark.parametrize(
    "changed",
    [
        {"site": "abc"},
        {"site": ""},
        {"site": "{}@0123!"},
        {"site": "0a0b0c0d0a0b"},
        {"priority": -1e300},
        {"time": 1e300},
    ],
)
async def test_f10_what_can_be_told_from_the_request_itself_keeps_no_record_back(rig, client, changed):
    """F10: the request is whole, and all that the queue needs besides is a site of eight characters."""
    node = await rig.node()
    client.rpush(node.keys.failed, json.dumps(record_of(1, **changed)))
    assert retry_failed(client, node.scope, edit=with_fresh_budget)[:2] == (1, 0)
    [lease] = (await node.claim(10)).leases
    assert len(lease.site) == 8
    assert lease.deliveries == 1


async def test_records_of_many_megabytes_are_moved_in_several_steps(rig, client, monkeypatch):
    sent = []
    monkeypatch.setattr(failed, "run_sync", lambda c, call: sent.append(call) or run_sync(c, call))
    node = await rig.node()
    for n in range(9):
        big = record_of(n, request={"v": 1, "u": f"http://a.example/{n}", "k": {"text": "x" * 900_000}})
        client.rpush(node.keys.failed, json.dumps(big))
    assert retry_failed(client, node.scope, edit=with_fresh_budget).queued == 9
    assert len(sent) == 5, "of 4 MB each, at most"
    assert (await node.counts()).queued == 9


async def test_retrying_hundreds_takes_each_once(rig, client):
    node = await rig.node()
    await node.put([entry(i) for i in range(450)])
    await give_up(node, *range(450))
    assert retry_failed(client, node.scope, limit=430).queued == 430
    assert count_failed(client, node.scope) == 20
    assert retry_failed(client, node.scope).queued == 20
    assert (await node.counts()).queued == 450


async def test_reset_refuses_while_nodes_live_and_then_leaves_nothing(rig, client):
    node = await rig.node()
    other = await rig.node(redis_key="other")
    await other.put([entry("x")])
    items = node.item_filter()
    await node.put([entry(i) for i in range(3)])
    await node.claim(1)
    await items.mark([entry("item").id])
    grant = await node.seed_acquire()
    await node.seed_finish(grant.token)
    with pytest.raises(ConfigError, match="1 node"):
        reset(client, node.scope, node.settings, now=str(rig.clock.ms()))
    reset(client, node.scope, node.settings, force=True)
    assert {key.split(b":")[1] for key in client.keys()} == {b"other"}
    assert (await other.counts()).queued == 1


async def test_reset_of_a_job_takes_all_its_runs(rig, client):
    runs = [await rig.node(RUN_ID=str(i), DEDUP_SCOPE="spider" if i else "auto") for i in range(3)]
    for node in runs:
        await node.put([entry("a")])
        await node.item_filter().mark([entry("a").id])
    found = list_runs(client, runs[0].scope)
    assert sorted((r.run_id, r.exists) for r in found) == [("0", True), ("1", True), ("2", True)]
    assert sum(r.queued for r in found) == 2  # run 2 found run 1's fingerprint in the job's dedup
    for node in runs:
        await node.close()
    done = reset(client, runs[0].scope, runs[0].settings)
    assert done.runs == 3
    assert client.keys() == []


async def test_reset_of_dedup_crawls_and_stores_again_and_keeps_the_queue(rig, client):
    node = await rig.node()
    items = node.item_filter()
    await node.put([entry("a"), entry("b")])
    await items.mark([entry("row").id])
    await node.close()
    reset(client, node.scope, node.settings, what="dedup")
    again = await rig.node()
    assert await again.put([entry("a")]) == [True]
    assert await again.item_filter().seen([entry("row").id]) == [False]
    assert (await again.counts()).queued == 3


async def test_an_alert_is_sent_once_for_the_whole_cluster(rig, client):
    node = await rig.node()
    now = str(rig.clock.ms())
    assert may_alert(client, node.scope, "stall", 300, now=now)
    assert not await may_alert_async(node._session.link.client, node.scope, "stall", 300, now=now)
    assert may_alert(client, node.scope, "fill", 300, now=now)
    rig.clock.advance(301)
    assert may_alert(client, node.scope, "stall", 300, now=str(rig.clock.ms()))


async def test_run_keys_have_a_lifetime_also_after_the_queue_was_empty(rig, client):
    node = await rig.node(RUN_ID="r1", RUN_TTL=1000)
    keeper = rig.keeper(node)
    await node.put([entry("a")])
    [lease] = (await node.claim(1)).leases
    await node.settle([Settlement(lease, [entry("b")])])
    await node.item_filter().mark([entry("row").id])
    [lease] = (await node.claim(1)).leases
    await node.delay([(lease, 5, None)])
    grant = await node.seed_acquire()
    await node.seed_finish(grant.token)
    # Each script sets the lifetime of what it writes; the beat renews it.
    for renewed in (False, True):
        if renewed:
            for key in client.keys():
                if not key.endswith(b":runs"):
                    client.expire(key, 10)
            keeper.beat(REPORT)
        for key in client.keys():
            if key.endswith(b":runs"):
                assert client.ttl(key) == -1
            else:
                assert 10 < client.ttl(key) <= 1000, key


async def test_job_scope_dedup_never_expires(rig, client):
    node = await rig.node(RUN_ID="r1", DEDUP_SCOPE="spider")
    assert node.scope.incremental
    await node.put([entry("a")])
    rig.keeper(node).beat(REPORT)
    for key in (*node.keys.requests.bloom[:1], node.keys.requests.count, node.keys.requests.layout):
        assert client.ttl(key) == -1
    later = await rig.node(RUN_ID="r2", DEDUP_SCOPE="spider")
    assert await later.put([entry("a"), entry("new")]) == [False, True]
