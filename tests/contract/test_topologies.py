"""The frontier's life on every Redis that users have: a compact contract over TLS, ACL, unix, Sentinel and Cluster."""

from __future__ import annotations

import asyncio
import re
import shutil
import socket
import ssl
import sys
import threading
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import pytest
from frontier_rig import REPORT, Clock, Rig, entry, names

from netspy.assembly.shared import check_shared
from netspy.assembly.sources import make_source
from netspy.cluster.failed import count_failed, drop_failed, list_failed, retry_failed
from netspy.cluster.reset import reset
from netspy.cluster.runs import list_runs
from netspy.cluster.status import may_alert, may_alert_async, read_status, read_status_async
from netspy.errors import ConfigError, StoreUnavailableError
from netspy.messages.entry import FinalFailure, Settlement
from netspy.observe.log import get_logger
from netspy.policy.failed_record import pack_failed
from netspy.policy.run_scope import run_scope
from netspy.redisio.client import async_client, moved, sync_client
from netspy.redisio.scripts import load
from netspy.settings import Settings
from netspy.testing.runner import run_command
from netspy.testing.servers import Certificates, RedisServer, find_valkey_server, free_port
from support.missing import missing
from support.redis_cluster import RedisCluster
from support.redis_replication import RedisReplication

ROOT = Path(__file__).resolve().parents[2]
SPIDER = type(
    "Spider",
    (),
    {"name": "News", "job_name": "News", "redis_key": "news", "kind": "spider", "logger": get_logger("News")},
)
ODD = "p@ s:w/o#r?d%25\"\\'é"

LEAST = re.search(
    r"^user crawler on >password (.*)$", (ROOT / "docs/redis-topologies.md").read_text("utf-8"), re.M
)[1]


@pytest.fixture(scope="module")
def certificates():
    if shutil.which("openssl") is None:
        missing("no openssl on PATH to make certificates with")
    with Certificates() as made:
        yield made


@pytest.fixture(scope="module")
def started(certificates):
    """`started(name)`: these servers, started when first asked for and ended with the module."""
    running: dict[str, Any] = {}
    makers: dict[str, Any] = {
        "password": lambda: RedisServer(password=ODD),
        "acl": lambda: RedisServer(username="crawler", password=ODD, rules=LEAST),
        "unix": lambda: RedisServer(password=ODD, unix_socket=True),
        "tls": lambda: RedisServer(password=ODD, tls=certificates, client_certificate=True),
        "valkey": lambda: RedisServer(find_valkey_server()),
        # A master that a busy machine keeps waiting for a moment is no dead one.
        "sentinel": lambda: RedisReplication(
            password=ODD, sentinel_password="other" + ODD, tls=certificates, down_after_s=2.0
        ),
        "cluster": lambda: RedisCluster(password=ODD, tls=certificates),
    }
    with ExitStack() as stack:

        def start(name: str) -> Any:
            if name not in running:
                running[name] = stack.enter_context(makers[name]())
            return running[name]

        yield start


# Valkey joins where it is installed; Debian 12 has no package of it.
VALKEY = ["valkey"] if find_valkey_server() is not None else []


@pytest.fixture(params=["password", "acl", "unix", "tls", *VALKEY, "sentinel", "cluster"])
def servers(request, started):
    return started(request.param)


@pytest.fixture
def replication(started):
    return started("sentinel")


@pytest.fixture
def cluster(started):
    return started("cluster")


@pytest.fixture
async def rig(servers):
    made = Rig("redis", Clock(), servers.url)
    yield made
    await made.close()
    settings = made.settings()
    scope = run_scope(settings, "News", "news")
    client = sync_client(settings, key=scope.job)
    reset(client, scope, settings, force=True)
    client.close()


@pytest.mark.timeout(300)  # some fifty heartbeats, each of which asks the sentinels over TLS
async def test_the_life_of_requests_is_the_same_on_every_redis(rig):
    node, other = await rig.node(), await rig.node()
    keeper, beside = rig.keeper(node), rig.keeper(other)
    rig.steady(keeper, beside)
    grant = await node.seed_acquire()
    assert (await other.seed_acquire()).state == "seeding"
    assert await node.seed_renew(grant.token)
    seeds = [entry(i) for i in range(8)]
    assert await node.put([*seeds, entry(0)], seed_token=grant.token) == [True] * 8 + [False]
    assert await node.seed_finish(grant.token)
    one, two, three, four = (await node.claim(4)).leases
    lost = (await other.claim(2)).leases
    assert keeper.renew([one, two]) == [True, True]
    done = await node.settle([Settlement(one, [entry("child"), entry(1)])])
    assert (done.acked, done.new) == ([True], [[True, False]])
    assert await node.release([two]) == [True]
    assert await node.delay([(three, 5.0, None)]) == [True]
    record = pack_failed(
        four.payload, reason="status 500", error="boom", attempts=1, time=1.0, priority=300, site=four.site
    )
    assert (await node.give_up([FinalFailure(four, record)])).failed == [True]
    counts = await node.counts()
    assert (counts.queued, counts.leased, counts.delayed, counts.failed) == (4, 2, 1, 1)
    assert (counts.seed, counts.live_nodes, counts.intact) == ("seeded", 2, True)
    # The other node dies; its leases come back at once.
    rig.pass_time(16, keeper)
    assert keeper.beat(REPORT).stale_nodes == [other.node]
    while not keeper.sweep(other.node):
        pass
    assert (await node.counts()).queued == 6
    # An expired lease comes back by reclaim.
    await node.claim(1)
    rig.pass_time(61, keeper)
    assert keeper.reclaim().returned == 1
    assert keeper.reconcile([]) == 0
    assert len((await node.claim(50)).leases) == 7, "with the delayed one, which is due"
    assert await other.put([entry("late")]) == [True], "a node taken for dead joins again"
    assert {name for name in names(lost)} <= {str(i) for i in range(8)}
    items = node.item_filter()
    await items.mark([entry("row").id])
    assert await items.seen([entry("row").id, entry("other").id]) == [True, False]


async def test_status_failed_and_reset_work_on_every_redis(rig, servers):
    rig.overrides["RUN_ID"] = "r1"
    node = await rig.node()
    keeper = rig.keeper(node)
    settings, scope, now = node.settings, node.scope, str(rig.clock.ms())
    keeper.beat(REPORT)
    await node.put([entry(i) for i in range(3)])
    for lease in (await node.claim(3)).leases:
        record = pack_failed(
            lease.payload,
            reason="status 500",
            error="boom",
            attempts=1,
            time=1.0,
            priority=300,
            site=lease.site,
        )
        await node.give_up([FinalFailure(lease, record)])
    client = sync_client(settings, key=scope.job)
    aio = async_client(settings, key=scope.job, pool_size=1)
    try:
        status = read_status(client, scope, settings, now=now)
        assert (status.exists, status.owner, status.failed, status.live_nodes) == (True, "News", 3, 1)
        assert status.counters == {"pages": 1}
        assert await read_status_async(aio, scope, settings, now=now) == status
        assert may_alert(client, scope, "full", 60, now=now)
        assert not await may_alert_async(aio, scope, "full", 60, now=now)
        assert [run.run_id for run in list_runs(client, scope)] == ["r1"]
        assert count_failed(client, scope) == 3
        [first, *_] = list_failed(client, scope)
        assert drop_failed(client, scope, [first.text]) == 1
        assert retry_failed(client, scope, limit=1).queued == 1
        assert drop_failed(client, scope) == 1
        with pytest.raises(ConfigError, match="alive"):
            reset(client, scope, settings, now=now)
        assert reset(client, scope, settings, force=True, now=now).runs == 1
        assert not read_status(client, scope, settings).exists
        assert not (await node.counts()).intact
    finally:
        client.close()
        await aio.aclose()
        await aio.connection_pool.disconnect()


@pytest.mark.parametrize("name", ["tls", "sentinel", "cluster"])
def test_the_command_line_speaks_to_every_redis(name, started, workdir):
    servers = started(name)
    command = [sys.executable, "-m", "netspy.cli", "status", "--key", "nobody"]
    result = run_command(command, env={"NETSPY_REDIS_URL": servers.url}, cwd=workdir, timeout=30)
    assert result.returncode != 0
    assert "knows no job" in result.stderr
    assert "netspy:nobody" in result.stderr
    assert ODD not in result.stderr
    assert "p%40" not in result.stderr


# -- rights


def test_the_documented_rule_covers_every_command_of_the_scripts():
    allowed = set(re.findall(r"\+(\w+)", LEAST))
    for path in (ROOT / "src/netspy").rglob("*.lua"):
        used = set(re.findall(r"redis\.p?call\('(\w+)'", path.read_text("utf-8")))
        assert {command.lower() for command in used} <= allowed, path.name


async def test_where_config_is_forbidden_the_start_is_silent_about_persistence(started):
    rig = Rig("redis", Clock(), started("acl").url)
    node = await rig.node()
    assert node.warnings == []
    await rig.close()
    with RedisServer(username="crawler", password="x", rules=f"{LEAST} +config|get") as server:
        rig = Rig("redis", Clock(), server.url)
        [warning] = (await rig.node()).warnings
        assert "appendonly" in warning
        await rig.close()


async def test_a_missing_right_is_named_in_one_line():
    with RedisServer(username="crawler", password="x", rules=LEAST.replace(" +zrem ", " ")) as server:
        rig = Rig("redis", Clock(), server.url)
        node = await rig.node()
        await node.put([entry(1)])
        with pytest.raises(ConfigError, match=r"(?i)rights.*redis-topologies") as caught:
            await node.claim(1)
        assert "\n" not in str(caught.value)
        await rig.close()


async def test_the_rights_for_streams_are_all_that_a_stream_of_tasks_needs():
    text = (ROOT / "docs/redis-topologies.md").read_text("utf-8")
    [rights] = re.findall(r"^\| `(\+xadd [^`]*)` \|", text, re.M)
    with RedisServer(username="crawler", password="x", rules=f"{LEAST} {rights}") as server:
        settings = Settings(REDIS_URL=server.url, TASK_SOURCE="stream:netspy:shop")
        source = make_source(settings, "Shop")
        await source.open()
        await source.add([1, 2, 3])
        first, second, third = await source.take(3)
        await source.keep([first])
        await source.settled([first])
        await source.failed([(second, "no")])
        await source.release([third])
        assert await source.backlog() == (0, 1, None, 1)
        await source.settled(await source.take(3))
        await source.close()
        looks = make_source(settings, "Shop")
        looks.consumes = False
        await looks.open()
        assert await looks.backlog() == (0, 0, None, 1)
        await looks.close()
        with server.client() as client:
            assert client.xinfo_consumers("netspy:shop", "netspy.Shop") == [], "the node's name is forgotten"


# -- TLS


def refused(url: str, *, patience: float = 30) -> str:
    """The one line with which a start on this URL ends, without waiting for the server; with no patience, in one attempt."""
    with pytest.raises(ConfigError) as caught:
        check_shared(SPIDER, Settings(REDIS_URL=url, REDIS_START_TIMEOUT=patience))
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_tls_is_verified_unless_told_otherwise(started, certificates):
    server = started("tls")
    own = f"ssl_certfile={certificates.client}&ssl_keyfile={certificates.client_key}"
    base = f"rediss://:{quote(ODD, safe='')}@127.0.0.1:{server.port}/0"
    assert "ssl_ca_certs" in refused(f"{base}?{own}")
    for _ in range(
        10
    ):  # the refusal comes after the handshake; whether a write fails before it is read is chance
        assert "ssl_certfile" in refused(f"{base}?ssl_ca_certs={certificates.ca}", patience=0)
    with Certificates() as others:
        assert "ssl_ca_certs" in refused(f"{base}?{own}&ssl_ca_certs={others.ca}")
    check_shared(
        SPIDER,
        Settings(REDIS_URL=f"{base}?{own}&ssl_cert_reqs=none"),
    )


def test_a_certificate_for_another_name_is_refused_unless_told_otherwise():
    with Certificates("DNS:redis.example.com") as wrong, TlsListener(wrong) as listener:
        url = f"rediss://localhost:{listener.port}/0?ssl_ca_certs={wrong.ca}"
        assert "ssl_check_hostname" in refused(url)


def test_tls_to_a_plain_port_hints_at_it(redis_server):
    url = f"rediss://127.0.0.1:{redis_server.port}/0"
    with pytest.raises(StoreUnavailableError, match="speaks no TLS"):
        check_shared(SPIDER, Settings(REDIS_URL=url, REDIS_START_TIMEOUT=0.1, REDIS_CONNECT_TIMEOUT=0.2))


def test_the_host_of_the_url_is_sent_as_server_name(certificates):
    with TlsListener(certificates) as listener:
        url = f"rediss://localhost:{listener.port}/0?ssl_ca_certs={certificates.ca}"
        with pytest.raises(StoreUnavailableError):
            check_shared(SPIDER, Settings(REDIS_URL=url, REDIS_START_TIMEOUT=0))
    assert set(listener.names) == {"localhost"}


class TlsListener:
    """A TLS server that notes the names it is asked for, and hangs up after the handshake."""

    def __init__(self, certificates: Certificates) -> None:
        self.names: list[str | None] = []
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificates.server, certificates.server_key)
        self._context.sni_callback = lambda _socket, name, _context: self.names.append(name)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)

    def _serve(self) -> None:
        while True:
            try:
                plain, _ = self._socket.accept()
            except OSError:
                return
            with plain, suppress(OSError), self._context.wrap_socket(plain, server_side=True):
                pass

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(5)


# -- wrong addresses


def test_a_wrong_service_name_is_one_line(replication):
    text = refused(replication.url.replace(replication.service, "nobody"))
    assert "'nobody'" in text
    assert "sentinel monitor" in text


def test_a_server_taken_for_a_sentinel(redis_server):
    assert "is no sentinel" in refused(f"redis+sentinel://127.0.0.1:{redis_server.port}/x/0")


def test_a_sentinel_that_wants_a_password_is_told_from_a_server(replication):
    without, _, secret = replication.url.partition("&sentinel_password=")
    assert "sentinel_password" in refused(without)
    text = refused(f"{without}&sentinel_password=wr0ng")
    assert "sentinel_password" in text
    assert "wr0ng" not in text
    assert secret not in text


def test_a_single_server_taken_for_a_cluster(redis_server):
    assert "is in no cluster" in refused(f"redis+cluster://127.0.0.1:{redis_server.port}")


async def test_a_cluster_node_as_a_single_server_is_one_line(cluster):
    rig = Rig("redis", Clock(), cluster.nodes[0].url)
    with pytest.raises(ConfigError, match=r"redis\+cluster://"):
        await rig.node()


def test_nobody_there_is_an_outage_with_the_hosts_named():
    ports = free_port(), free_port()
    url = f"redis+sentinel://:s3cret@127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}/x/0"
    with pytest.raises(StoreUnavailableError, match=f"no sentinel of 127.0.0.1:{ports[0]}") as caught:
        check_shared(SPIDER, Settings(REDIS_URL=url, REDIS_START_TIMEOUT=0.2))
    assert "s3cret" not in str(caught.value)


# -- the server moves


async def held(rig: Rig) -> tuple[Any, Any, Any]:
    """A node that holds a request whose first children were put on the present server."""
    node = await rig.node()
    keeper = rig.keeper(node)
    keeper.beat(REPORT)
    await node.put([entry("parent")])
    [parent] = (await node.claim(1)).leases
    return node, keeper, parent


async def test_an_orderly_change_of_masters_is_followed_with_a_heartbeat_once_most_sentinels_agree():
    """The old master answers as ever, and loses what it is told."""
    with RedisReplication(down_after_s=5.0) as group:
        rig = Rig("redis", Clock(), group.url)
        node, keeper, _ = await held(rig)
        assert keeper.beat(REPORT).known
        one, *others = [f"127.0.0.1:{sentinel.port}" for sentinel in group.sentinels]
        url = group.url
        for other in others:
            url = url.replace(other, f"127.0.0.1:{free_port()}")
        assert one in url
        with closing(sync_client(rig.settings(), url=url)) as unsure:
            assert unsure.ping()
            before = node._session.shared.history
            old = group.master
            new = await asyncio.to_thread(group.failover)
            assert not moved(unsure), "one sentinel of three may have an old view, or a wrong one"
        keeper.beat(REPORT)
        assert await node.put([entry("after")]) == [True]
        assert node._session.shared.history != before
        assert old.ask("ROLE")[0] == b"master", "it would have taken the put"
        assert new.client().exists(node.keys.queued)
        await rig.close()


async def test_a_slow_heartbeat_does_not_put_off_the_next_question_for_the_master(redis_url, monkeypatch):
    """The old one takes writes meanwhile, and loses them."""
    rig, asked = Rig("redis", Clock(), redis_url), []
    keeper = rig.keeper(await rig.node())
    monkeypatch.setattr("netspy.frontier.redis.keeper.clients.moved", asked.append)
    beat = keeper._run
    monkeypatch.setattr(keeper, "_run", lambda *call: (rig.clock.advance(1.0), beat(*call))[1])
    for _ in range(3):
        keeper.beat(REPORT)
    assert len(asked) == 3
    await rig.close()


async def test_a_new_master_is_followed_and_acks_that_depend_on_what_it_lacks_are_refused():
    with RedisReplication(password="x") as group:
        rig = Rig("redis", Clock(), group.url)
        node, keeper, parent = await held(rig)
        before = node.history
        master, replica = group.master, group.replica
        master.client().wait(1, 5000)
        replica.ask("CONFIG", "SET", "masterauth", "wrong")
        master.ask("CLIENT", "KILL", "TYPE", "replica")
        while replica.ask("ROLE")[3] == b"connected":
            await asyncio.sleep(0.01)
        assert await node.put([entry("child")]) == [True]
        await asyncio.to_thread(group.kill_master)
        assert await node.put([entry("another")]) == [True]
        assert await asyncio.to_thread(group.wait_new_master, master) is replica
        assert node.history != before
        done = await node.settle([Settlement(parent, [], before)])
        assert (done.acked, done.stale) == ([False], [True]), "its child is gone"
        assert keeper.beat(REPORT).known
        assert (await node.settle([Settlement(parent)])).acked == [True]
        await rig.close()


async def test_a_moved_slot_is_followed_by_loop_keeper_and_commands(cluster):
    rig = Rig("redis", Clock(), cluster.url)
    node, keeper, parent = await held(rig)
    client = sync_client(node.settings, key=node.scope.job)
    assert count_failed(client, node.scope) == 0
    key = node.keys.meta
    target = await asyncio.to_thread(cluster.move_slot_of, key, finish=False)
    # Half way neither server can run a script on all keys: that is an outage, which ends with the move.
    with pytest.raises(StoreUnavailableError):
        keeper.beat(REPORT)
    waiting = asyncio.create_task(node.put([entry("child")]))
    done, _ = await asyncio.wait([waiting], timeout=0.2)
    assert not done
    await asyncio.to_thread(cluster.finish_moving, key, target)
    assert await waiting == [True]
    assert keeper.beat(REPORT).known
    assert (await node.settle([Settlement(parent)])).acked == [True]
    assert (await node.counts()).queued == 1
    assert cluster.master_of(key) is target
    client.close()
    await rig.close()


@pytest.mark.parametrize("fixture", ["redis_server", "redis62_server"])
async def test_names_are_looked_up_anew_for_each_connection(monkeypatch, request, fixture):
    """A DNS fail-over: the name leads elsewhere, and the old server is demoted or gone."""
    binary, quick = request.getfixturevalue(fixture).binary, {"repl-diskless-sync-delay": "0"}
    with RedisServer(binary, config=quick) as old, RedisServer(binary, config=quick) as new:
        now = old
        real = socket.getaddrinfo

        def answer(host: Any, port: Any, *args: Any, **options: Any) -> Any:
            if host in {"redis.test", b"redis.test"}:
                return real("127.0.0.1", now.port, *args, **options)
            return real(host, port, *args, **options)

        monkeypatch.setattr(socket, "getaddrinfo", answer)
        rig = Rig("redis", Clock(), "redis://redis.test:6379/0")
        node, keeper, _ = await held(rig)
        new.ask("REPLICAOF", old.host, str(old.port))
        await asyncio.to_thread(_wait_linked, new)
        new.ask("REPLICAOF", "NO", "ONE")
        now = new
        old.ask("REPLICAOF", new.host, str(new.port))
        # The connections to the old server live on: only its READONLY tells that it is no longer the one.
        assert await node.put([entry("child")]) == [True]
        assert keeper.beat(REPORT).known
        assert new.client().zcard("netspy:news:z_requests") == 1
        old.kill()
        assert await node.put([entry("child 2")]) == [True]
        await rig.close()


def _wait_linked(server: RedisServer) -> None:
    from netspy.testing.children import wait_until

    assert wait_until(lambda: server.ask("ROLE")[3] == b"connected", 30)


def test_scripts_name_every_key_they_touch():
    """Cluster refuses a key that isn't declared; no script builds one from text."""
    for folder in ("frontier/redis", "cluster"):
        for path in (ROOT / f"src/netspy/{folder}/lua").glob("*.lua"):
            text = load(f"netspy.{folder.replace('/', '.')}.lua", path.stem).text
            assert not re.search(r"redis\.p?call\('\w+', *['\"]", text), path.name
