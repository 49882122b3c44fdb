"""Redis that is away, full, restarted, wrong or somebody else's."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from frontier_rig import REPORT, Clock, Rig, entry, names

from netspy.errors import ConfigError, StoreLostError, StoreUnavailableError
from netspy.messages.entry import FinalFailure, Settlement
from netspy.redisio.client import sync_client
from netspy.testing.proxy import FaultProxy
from netspy.testing.servers import RedisServer, find_embedded_server, free_port


@pytest.fixture(params=["on PATH", "embedded 6.2"])
def binary(request) -> Any:
    return None if request.param == "on PATH" else find_embedded_server()


async def opened(url: str, **overrides: Any) -> tuple[Rig, Any]:
    rig = Rig("redis", Clock(), url, **overrides)
    return rig, await rig.node()


# -- at start


async def test_a_redis_that_is_down_at_start_is_a_clear_error_after_the_set_time():
    url = f"redis://:s3cret@127.0.0.1:{free_port()}/0"
    rig = Rig("redis", Clock(), url, REDIS_START_TIMEOUT=0.3)
    began = time.monotonic()
    with pytest.raises(StoreUnavailableError, match="REDIS_URL") as caught:
        await rig.node()
    assert time.monotonic() - began < 8, "not the 10 s that are the default"
    assert "s3cret" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://localhost", "localhost:6379", "redis://localhost:notaport/0"])
async def test_a_wrong_url_is_a_config_error(url):
    with pytest.raises(ConfigError, match="REDIS_URL"):
        await Rig("redis", Clock(), url).node()


async def test_wrong_password_and_wrong_database_are_told_apart_and_never_printed(binary):
    with RedisServer(binary, password="right-one") as server:
        wrong = server.url.replace("right-one", "wrong-one")
        with pytest.raises(ConfigError, match="password") as caught:
            await Rig("redis", Clock(), wrong).node()
        assert "wrong-one" not in str(caught.value)
        with pytest.raises(ConfigError, match="password"):
            await Rig("redis", Clock(), f"redis://127.0.0.1:{server.port}/0").node()
        with pytest.raises(ConfigError, match="database number"):
            await Rig("redis", Clock(), server.url[:-1] + "99").node()
        rig, node = await opened(server.url)
        assert await node.put([entry("a")]) == [True]
        await rig.close()


async def test_a_unix_socket_works(binary):
    with RedisServer(binary, unix_socket=True) as server:
        rig, node = await opened(server.url)
        keeper = rig.keeper(node)
        assert await node.put([entry("a")]) == [True]
        assert keeper.beat(REPORT).known
        await rig.close()


async def test_keys_of_another_type_stop_the_start_and_nothing_is_changed(redis_url):
    settings = Rig("redis", Clock(), redis_url).settings()
    client = sync_client(settings)
    client.set("netspy:news:z_requests", "mine")
    client.set("netspy:news:dedup:layout", "mine")
    with pytest.raises(
        ConfigError, match=r"z_requests is a string, not a zset.*layout is a string, not a hash"
    ):
        await Rig("redis", Clock(), redis_url).node()
    assert sorted(client.keys()) == [b"netspy:news:dedup:layout", b"netspy:news:z_requests"]
    client.close()


LATER = {
    "items:dedup:bloom": "string", "items:dedup:bloom:1": "string", "items:dedup:bloom:count": "string",
    "items:dedup:set": "set", "items:dedup:layout": "hash", "alerts": "zset", "runs": "zset", "failed_items": "list",
    "open_tasks": "hash", "open_tasks:closing": "hash", "lock:seed": "string", "nodes": "hash", "beats": "zset",
    "meta": "hash", "z_delayed": "zset", "z_inflight": "zset", "failed_requests": "list", "dedup:set": "set",
}  # fmt: skip
OF_A_BATCH = {
    "batch_pending": "list", "batch_pending:inflight": "zset", "batch_pending:meta": "hash", "batch_pending:failed": "list",
    "batch_done": "string", "batch_progress": "string", "batch_master": "hash", "batch_monitor_lock": "string",
}  # fmt: skip


def in_the_way(client, key, wanted):
    """Put something of another type at the key; returns what proves that it is still there."""
    if wanted == "list":
        client.set(key, "precious")
    else:
        client.rpush(key, "precious")
    return client.dump(key)


@pytest.mark.parametrize(("key", "wanted"), [*LATER.items(), *OF_A_BATCH.items()])
async def test_hv_08_every_key_that_a_run_makes_later_is_looked_at_before_it_begins(redis_url, key, wanted):
    """case HV-08"""
    client = sync_client(Rig("redis", Clock(), redis_url).settings())
    before = in_the_way(client, f"netspy:news:{key}", wanted)
    kind = "batch" if key in OF_A_BATCH else "Spider"
    with pytest.raises(ConfigError, match=f"netspy:news:{key} is a"):
        await Rig("redis", Clock(), redis_url).node(spider_kind=kind)
    assert client.keys() == [f"netspy:news:{key}".encode()]
    assert client.dump(f"netspy:news:{key}") == before
    client.close()


@pytest.mark.parametrize(
    ("key", "command"),
    [
        ("items:dedup:bloom", ("SET", "precious")),
        ("items:dedup:bloom:2", ("SETBIT", "7", "1")),
        ("items:dedup:bloom:count", ("SET", "5")),
        ("items:dedup:set", ("SADD", "precious")),
        ("items:dedup:layout", ("HSET", "precious", "1")),
    ],
)
async def test_hv_08_what_another_program_keeps_at_the_item_filters_keys_is_not_taken_for_ours(
    redis_url, key, command
):
    """case HV-08: of the right type, and deleted all the same when a seeding begins."""
    client = sync_client(Rig("redis", Clock(), redis_url).settings())
    client.execute_command(command[0], f"netspy:news:{key}", *command[1:])
    before = client.dump(f"netspy:news:{key}")
    with pytest.raises(ConfigError, match=f"netspy:news:{key} belongs to another program"):
        await Rig("redis", Clock(), redis_url).node()
    assert client.dump(f"netspy:news:{key}") == before
    client.close()


async def test_hv_08_a_key_that_comes_in_the_middle_of_the_run_is_not_deleted_either(redis_url):
    """case HV-08: the items pass unchecked then."""
    rig, node = await opened(redis_url)
    client = sync_client(node.settings)
    assert (await node.seed_acquire()).token
    client.rpush("netspy:news:items:dedup:bloom:1", "precious")
    with pytest.raises(ConfigError, match="items:dedup:bloom:1 is a list"):
        await node.item_filter().mark([entry("row").id])
    assert client.lrange("netspy:news:items:dedup:bloom:1", 0, -1) == [b"precious"]
    client.close()
    await rig.close()


@pytest.mark.parametrize(
    "value", ["1", "locked", "seeding", "seeded soon host:1", "failed", '{"pid": 1}', b"\xff\xfe", ""]
)
async def test_hv_08_a_seed_lock_that_netspy_did_not_write_is_refused(redis_url, value):
    """case HV-08: taken for a seeded run, nothing would ever be crawled."""
    client = sync_client(Rig("redis", Clock(), redis_url).settings())
    client.set("netspy:news:lock:seed", value)
    with pytest.raises(ConfigError, match=r"netspy:news:lock:seed has the value .*`netspy reset`") as refused:
        await Rig("redis", Clock(), redis_url).node()
    assert "\n" not in str(refused.value)
    assert ("the other package of this name" in str(refused.value)) is (value == "1")
    assert client.keys() == [b"netspy:news:lock:seed"]
    client.close()


@pytest.mark.parametrize("ended", ["seeding", "seeded", "failed"])
async def test_our_own_lock_and_item_marks_are_no_reason_to_refuse_a_start(redis_url, ended):
    rig, node = await opened(redis_url)
    grant = await node.seed_acquire()
    await node.item_filter().mark([entry("row").id])
    if ended != "seeding":
        await node.seed_finish(grant.token, error="boom: it broke" if ended == "failed" else None)
    assert await rig.node()
    await rig.close()


async def test_a_redis_key_of_another_class_is_refused_unless_taken_over(redis_url):
    rig, _ = await opened(redis_url)
    with pytest.raises(ConfigError, match=r"belongs to the Spider class News.*--take-over"):
        await rig.node(owner="Renamed")
    with pytest.raises(ConfigError, match="TaskSpider"):
        await rig.node(spider_kind="TaskSpider")
    renamed = await rig.node(owner="Renamed", take_over=True)
    assert (await renamed.counts()).live_nodes == 2
    with pytest.raises(ConfigError, match="class Renamed"):
        await rig.node()
    await rig.close()


async def test_bits_without_our_mark_or_of_another_layout_stop_the_start(redis_url):
    rig = Rig("redis", Clock(), redis_url)
    client = sync_client(rig.settings())
    client.setbit("netspy:news:dedup:bloom", 5, 1)
    with pytest.raises(ConfigError, match="no mark"):
        await rig.node()
    client.delete("netspy:news:dedup:bloom")
    node = await rig.node()
    await node.put([entry("a")])
    with pytest.raises(ConfigError, match="DEDUP_INITIAL_CAPACITY"):
        await rig.node(DEDUP_INITIAL_CAPACITY=2000)
    # The documented way to clear dedup leaves the mark behind; without bits it is written anew.
    client.delete("netspy:news:dedup:bloom", "netspy:news:dedup:bloom:count")
    larger = await rig.node(DEDUP_INITIAL_CAPACITY=2000)
    assert await larger.put([entry("a")]) == [True]
    client.close()
    await rig.close()


async def test_a_layer_beyond_one_redis_string_is_refused_with_the_numbers(redis_url):
    with pytest.raises(ConfigError, match=r"layer 7 .* more than the 512 MB"):
        await Rig("redis", Clock(), redis_url, DEDUP_INITIAL_CAPACITY=1_000_000, DEDUP_MAX_LAYERS=8).node()


async def test_no_persistence_and_eviction_are_warned_of(binary):
    with RedisServer(binary, policy="allkeys-lru") as server:
        rig, node = await opened(server.url)
        text = "\n".join(node.warnings)
        assert "appendonly" in text
        assert "noeviction" in text
        await rig.close()
    with RedisServer(binary, appendfsync="everysec") as server:
        rig, node = await opened(server.url)
        assert node.warnings == []
        await rig.close()


async def test_config_may_be_forbidden():
    with RedisServer() as server:
        server.client().execute_command(
            "ACL", "SETUSER", "crawler", "on", ">pw", "~*", "+@all", "-config", "-info", "-client"
        )
        rig, node = await opened(f"redis://crawler:pw@127.0.0.1:{server.port}/0")
        assert await node.put([entry("a")]) == [True]
        assert names((await node.claim(1)).leases) == ["a"]
        await rig.close()


async def test_a_node_that_joins_again_does_not_claim_the_namespace_back(redis_url):
    rig, old = await opened(redis_url)
    keeper = rig.keeper(old)
    await rig.node(owner="Renamed", take_over=True)
    client = sync_client(old.settings)
    client.zrem(old.keys.beats, old.node)
    keeper.rejoin()
    assert keeper.beat(REPORT).known
    assert client.hget(old.keys.meta, "class") == b"Renamed"
    client.close()
    await rig.close()


# -- while running


SPOILT = ["queued", "inflight", "delayed", "failed", "layout", "count", "bloom"]


@pytest.mark.parametrize("spoilt", SPOILT)
async def test_a_script_that_meets_a_wrong_key_has_written_nothing_before(redis_url, spoilt):
    """A script is atomic, not transactional: bits set before a failing ZADD would be seen and nowhere."""
    rig, node = await opened(redis_url)
    keeper = rig.keeper(node)
    client = sync_client(node.settings)
    await node.put([entry(i) for i in range(9)])
    leases = (await node.claim(6)).leases
    await node.delay([(leases[0], 1.0, None)])
    await node.give_up([FinalFailure(leases[1], b'{"request":{}}')])
    keys = node.keys
    rig.steady(keeper)
    rig.pass_time(60, keeper)
    names_of = {
        "queued": keys.queued,
        "inflight": keys.inflight,
        "delayed": keys.delayed,
        "failed": keys.failed,
        "layout": keys.requests.layout,
        "count": keys.requests.count,
        "bloom": keys.requests.bloom[0],
    }
    key = names_of[spoilt]
    client.delete(key)
    client.geoadd(key, (1, 1, "x")) if spoilt in ("layout", "count", "bloom", "failed") else client.set(
        key, "1"
    )

    def state():
        return {name: client.dump(name) for name in names_of.values()}

    before = state()
    calls = {
        "put": (node.put, [entry("new")]),
        "settle": (node.settle, [Settlement(leases[2], [entry("new")])]),
        "claim": (node.claim, 5),
        "release": (node.release, [leases[3]]),
        "delay": (node.delay, [(leases[4], 1.0, None)]),
        "give_up": (node.give_up, [FinalFailure(leases[5], b'{"request":{}}')]),
    }
    touched = {
        "put": {"queued", "layout", "count", "bloom"},
        "settle": {"queued", "inflight", "layout", "count", "bloom"},
        "claim": {"queued", "inflight", "delayed", "failed"},
        "release": {"queued", "inflight", "delayed", "failed"},
        "delay": {"queued", "inflight", "delayed", "failed"},
        "give_up": {"queued", "inflight", "delayed", "failed"},
    }
    refused = 0
    for name, (call, argument) in calls.items():
        if spoilt in touched[name]:
            with pytest.raises(ConfigError, match=r"is a \w+, not a"):
                await call(argument)
            refused += 1
            assert state() == before, name
    if spoilt in ("queued", "inflight", "failed"):
        with pytest.raises(ConfigError):
            keeper.reclaim()
        assert state() == before
    assert refused >= 2
    client.delete(key)
    client.close()
    await rig.close()


async def test_large_payloads_travel_in_several_calls(redis_url):
    rig, node = await opened(redis_url)
    body = b'{"url":"https://example.com/%d","data":"' + b"x" * 100_000 + b'"}'
    large = [entry(i, payload=body % i) for i in range(120)]
    assert all(await node.put([*large[:60], entry("small")]))
    [parent] = (await node.claim(1)).leases
    done = await node.settle([Settlement(parent, large)])
    assert done.new == [[False] * 60 + [True] * 60]
    assert (await node.counts()).queued == 120
    await rig.close()


async def test_calls_wait_out_an_outage_and_go_on_without_loss(binary):
    reports: list[bool] = []
    with RedisServer(binary, appendfsync="always") as server:
        rig = Rig("redis", Clock(), server.url)
        node = await rig.node(hooks={"on_outage": lambda away, _s: reports.append(away)})
        await node.put([entry(i) for i in range(10)])
        leases = (await node.claim(4)).leases
        before, its_server = node.history, node._session.shared.history
        server.kill()
        waiting = [
            asyncio.ensure_future(node.put([entry("late")])),
            asyncio.ensure_future(node.claim(2)),
            asyncio.ensure_future(node.counts()),
        ]
        while not reports:
            await asyncio.sleep(0.01)
        server.start()
        put, claimed, _ = await asyncio.wait_for(asyncio.gather(*waiting), 60)
        assert put == [True]
        assert len(claimed.leases) == 2
        assert reports == [True, False]
        assert node.history == before, "nothing was lost, so nothing is doubted"
        assert node._session.shared.history != its_server, "and yet it is another server"
        assert all((await node.settle([Settlement(lease) for lease in leases])).acked)
        counts = await node.counts()
        assert (counts.queued, counts.leased, counts.intact) == (5, 2, True)
        await rig.close()


async def test_giving_up_waiting_ends_an_outage_for_the_node_at_once():
    away = asyncio.Event()
    with RedisServer() as server:
        rig = Rig("redis", Clock(), server.url)
        node = await rig.node(hooks={"on_outage": lambda gone, _s: away.set()})
        server.kill()
        waiting = [asyncio.ensure_future(node.put([entry(i)])) for i in range(3)]
        await asyncio.wait_for(away.wait(), 30)
        node.give_up_waiting()
        done = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 10)
        assert [type(error) for error in done] == [StoreUnavailableError] * 3
        began = time.monotonic()
        await node.close()
        assert time.monotonic() - began < 5


async def test_an_outage_longer_than_allowed_is_an_error():
    with RedisServer() as server:
        rig, node = await opened(server.url, REDIS_OUTAGE_TIMEOUT=0.4)
        keeper = rig.keeper(node)
        server.kill()
        with pytest.raises(StoreUnavailableError):
            await node.put([entry("a")])
        with pytest.raises(StoreUnavailableError):
            keeper.beat(REPORT)
        await rig.close()


async def test_lost_keys_under_a_live_node_are_an_error_not_an_empty_queue(binary):
    with RedisServer(binary) as server:
        rig, node = await opened(server.url)
        keeper = rig.keeper(node)
        await node.put([entry("a")])
        server.kill()
        server.start()
        assert not (await node.counts()).intact
        assert not keeper.beat(REPORT).intact
        with pytest.raises(StoreLostError):
            await node.claim(1)
        with pytest.raises(StoreLostError):
            await node.put([entry("b")])
        with pytest.raises(StoreLostError):
            keeper.rejoin()
        # Another node may start the job anew; the old one must not mix its work into it.
        other = await rig.node()
        assert not (await node.counts()).intact
        with pytest.raises(StoreLostError):
            await node.put([entry("b")])
        assert (await other.counts()).intact
        await rig.close()


async def test_an_ack_that_rests_on_a_put_from_before_a_data_loss_is_refused():
    """The children went to a server that forgot them; acking their parent would lose them for good."""
    with RedisServer(save="900 1000") as server:
        rig, node = await opened(server.url)
        await node.put([entry("p"), entry("q")])
        parent, other = (await node.claim(2)).leases
        server.client().save()
        history = node.history
        assert await node.put([entry("child")]) == [True]
        server.kill()
        server.start()
        done = await node.settle([Settlement(parent, (), history), Settlement(other)])
        assert done.acked == [False, True]
        assert done.stale == [True, False]
        assert await node.release([parent]) == [True]
        [again] = (await node.claim(5)).leases
        assert (await node.settle([Settlement(again, [entry("child")])])).new == [[True]]
        await rig.close()


async def test_a_confirmed_repeat_does_not_outlive_the_server_that_confirmed_it():
    with RedisServer(save="900 1000") as server:
        rig, node = await opened(server.url)
        await node.put([entry("p")])
        [parent] = (await node.claim(1)).leases
        server.client().save()
        await node.put([entry("child")])
        assert await node.put([entry("child")]) == [False]
        server.kill()
        server.start()
        done = await node.settle([Settlement(parent, [entry("child")])])
        assert done.stale == [True], "the child was left out because the lost server knew it"
        await node.release([parent])
        [parent] = (await node.claim(1)).leases
        assert (await node.settle([Settlement(parent, [entry("child")])])).new == [[True]]
        await rig.close()


async def test_deleting_lock_queue_and_dedup_as_documented_crawls_and_stores_again(redis_url):
    rig, node = await opened(redis_url)
    client = sync_client(node.settings)
    grant = await node.seed_acquire()
    await node.put([entry("seed")], seed_token=grant.token)
    await node.seed_finish(grant.token)
    await node.item_filter().mark([entry("row").id])
    [lease] = (await node.claim(1)).leases
    await node.settle([Settlement(lease)])
    assert await node.item_filter().seen([entry("row").id]) == [True]
    client.delete("netspy:news:lock:seed", "netspy:news:z_requests")
    client.delete(*(f"netspy:news:dedup:bloom{end}" for end in ("", ":1", ":2", ":3", ":count")))
    assert (await node.counts()).seed == "seeded"  # a live node goes on in the seeding it has seen
    later = await rig.node()
    grant = await later.seed_acquire()
    assert grant.token is not None
    assert await later.put([entry("seed")], seed_token=grant.token) == [True]
    assert await later.item_filter().seen([entry("row").id]) == [False]
    await later.item_filter().mark([entry("row").id])
    assert await later.item_filter().seen([entry("row").id, entry("other").id]) == [True, False]
    # The node that lived through it has dropped what it took for confirmed.
    [lease] = (await node.claim(1)).leases
    assert (await node.settle([Settlement(lease, [entry("page")])])).new == [[True]]
    client.close()
    await rig.close()


async def test_a_lock_of_another_program_that_comes_in_the_middle_of_a_run_counts_as_seeded(redis_url):
    rig, node = await opened(redis_url)
    client = sync_client(node.settings)
    client.set("netspy:news:lock:seed", "1", ex=86400 - 7200)
    grant = await node.seed_acquire()
    assert (grant.token, grant.state) == (None, "seeded")
    assert grant.age_s == pytest.approx(7200, abs=5)
    client.close()
    await rig.close()


async def test_a_failed_seeding_is_tried_again_by_the_next_start_only(redis_url):
    rig, first = await opened(redis_url)
    beside = await rig.node()
    grant = await first.seed_acquire()
    await first.seed_finish(grant.token, error="boom")
    assert (await beside.seed_acquire()).state == "failed"
    await first.close()
    await beside.close()
    later = await rig.node()
    assert (await later.seed_acquire()).token is not None
    await rig.close()


async def test_a_full_server_refuses_new_requests_whole_and_lets_acks_through(binary):
    full: list[bool] = []
    with RedisServer(binary) as server:
        rig = Rig("redis", Clock(), server.url)
        node = await rig.node(hooks={"on_full": full.append})
        keeper = rig.keeper(node)
        client = server.client()
        await node.put([entry(i) for i in range(40)])
        leases = (await node.claim(30)).leases
        client.set("ballast", "x" * 11_000_000)
        client.config_set("maxmemory", "6mb")
        stuck = asyncio.ensure_future(node.put([entry("waits")]))
        mixed = asyncio.ensure_future(
            node.settle(
                [Settlement(leases[0]), Settlement(leases[1], [entry("child")]), Settlement(leases[2])]
            )
        )
        while full != [True] or (await node.counts()).leased > 28:
            await asyncio.sleep(0.01)
        assert not stuck.done()
        assert all((await node.settle([Settlement(lease) for lease in leases[3:10]])).acked)
        assert await node.release(leases[10:12]) == [True, True]
        assert await node.delay([(leases[12], 5.0, None)]) == [True]
        assert keeper.renew(leases[20:]) == [True] * 10
        assert len((await node.claim(2)).leases) == 2
        grant_waits = (await node.counts()).seed
        assert grant_waits == "none"
        assert not client.exists(node.keys.requests.bloom[1])
        client.delete("ballast")
        client.config_set("maxmemory", "0")
        assert await asyncio.wait_for(stuck, 30) == [True]
        done = await asyncio.wait_for(mixed, 30)
        assert (done.acked, done.new) == ([True] * 3, [[], [True], []])
        assert full[-1] is False
        await rig.close()


@pytest.mark.parametrize("what", ["put", "mark items", "seed"])
async def test_no_call_waits_for_memory_longer_than_for_a_server_that_is_away(what):
    full: list[bool] = []
    with RedisServer() as server:
        rig = Rig("redis", Clock(), server.url, REDIS_OUTAGE_TIMEOUT=20.0)
        node = await rig.node(hooks={"on_full": full.append})
        calls = {
            "put": lambda: node.put([entry("a")]),
            "mark items": lambda: node.item_filter().mark([b"f" * 16]),
            "seed": node.seed_acquire,
        }
        server.client().set("ballast", "x" * 11_000_000)
        server.client().config_set("maxmemory", "6mb")
        call = asyncio.ensure_future(calls[what]())
        async with asyncio.timeout(30):
            while not full:
                await asyncio.sleep(0.01)
            rig.clock.advance(21)
            with pytest.raises(StoreUnavailableError, match="maxmemory"):
                await call
        await rig.close()


async def test_a_cut_connection_in_the_middle_of_an_answer_does_nothing_twice(redis_server):
    redis_server.flush()
    with FaultProxy("127.0.0.1", redis_server.port) as proxy:
        rig = Rig("redis", Clock(), proxy.redis_url())
        node = await rig.node()
        for round_ in range(5):
            proxy.drop_next_reply()
            flags = await node.put([entry(f"{round_}-{i}") for i in range(3)])
            assert flags == [True] * 3
            proxy.drop_next_reply()
            [lease] = (await node.claim(1)).leases
            proxy.drop_next_reply()
            done = await node.settle([Settlement(lease, [entry(f"child {round_}")])])
            assert (done.acked, done.new) == ([True], [[True]])
            [lease] = (await node.claim(1)).leases
            proxy.drop_next_reply()
            assert (await node.give_up([FinalFailure(lease, b'{"request":{}}')])).failed == [True]
        assert proxy.dropped == 20
        counts = await node.counts()
        assert (counts.queued, counts.leased, counts.failed) == (10, 0, 5)
        await rig.close()


async def test_a_cancelled_claim_orphans_nothing_and_leaves_no_answer_for_the_next_call(redis_server):
    redis_server.flush()
    rig, node = await opened(redis_server.url)
    await node.put([entry(i) for i in range(6)])
    try:
        for _ in range(3):
            redis_server.pause()
            task = asyncio.ensure_future(node.claim(2))
            counting = asyncio.ensure_future(node.counts())
            await asyncio.sleep(0.05)
            task.cancel()
            counting.cancel()
            await asyncio.gather(task, counting, return_exceptions=True)
            redis_server.resume()
    finally:
        redis_server.resume()
    counts = await node.counts()
    assert counts.leased <= 2
    leases = (await node.claim(2)).leases
    assert len(leases) == 2
    assert (await node.counts()).leased == 2
    assert names(leases) == ["0", "1"]
    await rig.close()


async def test_scripts_forgotten_by_the_server_are_sent_again(redis_server):
    redis_server.flush()
    rig, node = await opened(redis_server.url)
    keeper = rig.keeper(node)
    await node.put([entry("a")])
    redis_server.client().script_flush()
    assert await node.put([entry("b")]) == [True]
    redis_server.client().script_flush()
    assert keeper.beat(REPORT).known
    await rig.close()
