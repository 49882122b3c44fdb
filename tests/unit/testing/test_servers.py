"""Private servers and the proxy: what the fault tests stand on."""

import contextlib
import os
import socket
import subprocess
import threading
import time

import pytest
import redis

from netspy.redisio.embedded.process import started_at
from netspy.testing.children import wait_until
from netspy.testing.private_server import HeldPort, free_port
from netspy.testing.proxy import FaultProxy
from netspy.testing.runner import start_script
from netspy.testing.servers import RedisServer


@pytest.fixture
def server(redis_server):
    """A server of the test's own, to be killed."""
    with RedisServer(redis_server.binary, appendfsync="always") as own:
        yield own


@pytest.fixture
def proxy(redis_server):
    redis_server.flush()
    with FaultProxy(redis_server.host, redis_server.port) as running:
        yield running


@pytest.fixture
def through(proxy):
    with redis.Redis(port=proxy.port, retry=None, decode_responses=True) as client:
        yield client


def test_a_killed_server_comes_back_on_its_port_with_what_it_had_written(server):
    client, port = server.client(), server.port
    client.set("kept", "yes")
    server.kill()
    assert not server.alive
    with pytest.raises(redis.ConnectionError):
        server.client(retry=None).ping()
    server.restart()
    assert server.port == port
    assert client.get("kept") == "yes"


def test_a_server_goes_back_to_what_was_kept(server):
    client, port = server.client(), server.port
    client.set("before", 1)
    server.keep()
    client.set("after", 1)
    server.go_back()
    assert server.port == port
    assert client.keys() == ["before"]


def test_a_server_without_files_forgets_when_killed(redis_server):
    with RedisServer(redis_server.binary) as server:
        server.client().set("gone", 1)
        server.kill()
        server.restart()
        assert server.client().dbsize() == 0


def test_variants_are_what_they_say(redis_server):
    with RedisServer(
        redis_server.binary,
        maxmemory="30mb",
        policy="allkeys-lru",
        save="900 1",
        password="a b/ü",
        unix_socket=True,
    ) as server:
        client = server.client()
        assert client.config_get("maxmemory")["maxmemory"] == str(30 * 1024 * 1024)
        assert client.config_get("maxmemory-policy")["maxmemory-policy"] == "allkeys-lru"
        assert client.config_get("save")["save"] == "900 1"
        assert client.config_get("appendonly")["appendonly"] == "no"
        assert server.cli("PING") == "PONG\n"
        assert server.url.startswith("unix://:a%20b%2F%C3%BC@")
        without = redis.Redis(unix_socket_path=str(server.socket_path), retry=None)
        with without, pytest.raises(redis.AuthenticationError):
            without.ping()


def taken(port):
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
        other.listen()


def test_the_port_of_a_dead_server_refuses_and_is_given_to_nobody_else(server):
    server.kill()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((server.host, server.port), 10)
    with pytest.raises(OSError, match="in use"), socket.socket() as other:
        other.bind((server.host, server.port))
    server.start()
    with pytest.raises(OSError, match="in use"):
        taken(server.port)


def test_a_held_port_is_another_ones_after_it_was_let_go():
    address = "127.0.3.7"  # where nobody else looks for a port
    held = HeldPort(address)
    with pytest.raises(OSError, match="in use"), socket.socket() as other:
        other.bind((address, held.number))
    held.close()
    with socket.socket() as other:
        other.bind((address, held.number))


def test_a_free_port_can_be_listened_on():
    taken(free_port())


def test_the_servers_are_the_two_ends_of_what_is_supported(redis_server, redis62_server):
    assert redis62_server.client().info()["redis_version"].startswith("6.2.")
    assert redis_server.client().info()["redis_version"] >= "6.2"


def test_a_paused_server_answers_nothing_and_goes_on_when_resumed(server):
    patient, impatient = server.client(), server.client(socket_timeout=0.1, retry=None)
    patient.ping()
    server.pause()
    with pytest.raises(redis.TimeoutError):
        impatient.ping()
    server.resume()
    assert patient.ping()


def test_a_paused_server_can_be_stopped(server):
    server.pause()
    server.stop()
    assert not server.alive


def test_a_server_that_cannot_start_says_why(redis_server):
    with (
        pytest.raises(RuntimeError, match=r"(?i)bad directive|wrong number"),
        RedisServer(redis_server.binary, config={"no-such-directive": "1"}),
    ):
        pass


def test_a_server_does_not_outlive_a_test_process_that_is_killed(redis_server, tmp_path):
    source = f"""
from netspy.testing.servers import RedisServer
import threading
with RedisServer({redis_server.binary!r}) as server:
    print("server", server.pid)
    threading.Event().wait()
"""
    with start_script(source, cwd=tmp_path) as script:
        pid = int(script.wait_line("server").split()[1])
        assert started_at(pid)
        script.kill()
        assert wait_until(lambda: started_at(pid) is None, 10)


def test_nothing_of_a_closed_server_is_left(redis_server):
    with RedisServer(redis_server.binary) as server:
        pid, folder = server.pid, server.folder
        server.client().ping()
    assert started_at(pid) is None
    assert not folder.exists()
    children = subprocess.run(
        ["ps", "-o", "args=", "--ppid", str(os.getpid())], capture_output=True, text=True, check=True
    )
    assert str(pid) not in children.stdout.split(), "its watcher is named by it"


def test_the_reply_is_lost_but_the_command_was_carried_out(proxy, through, redis_server):
    through.ping()
    proxy.drop_next_reply(b"INCR")
    assert through.get("n") is None  # not the one that is waited for
    with pytest.raises(redis.ConnectionError):
        through.incr("n")
    proxy.wait_dropped(1)
    assert redis_server.client().get("n") == "1"
    assert through.incr("n") == 2


def test_a_cut_resets_old_connections_and_new_ones_until_resumed(proxy, through):
    through.ping()
    proxy.cut()
    for _ in range(2):
        with pytest.raises(redis.ConnectionError):
            through.ping()
    proxy.resume()
    assert through.ping()


def test_a_reset_ends_the_connections_of_now_and_spares_later_ones(proxy, through):
    with socket.create_connection((proxy.host, proxy.port), timeout=10) as early:
        early.sendall(b"PING\r\n")
        assert early.recv(64) == b"+PONG\r\n"
        proxy.reset()
        with contextlib.suppress(ConnectionResetError):
            assert early.recv(64) == b""
    assert through.ping()
    assert proxy.connections == 2


def test_a_stall_holds_the_answer_and_loses_nothing(proxy, through, redis_server):
    through.ping()
    proxy.stall()
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(through.incr("n")))
    waiting.start()
    assert redis_server.client().get("n") is None
    proxy.resume()
    waiting.join(10)
    assert answers == [1]


def test_a_delay_is_felt_in_both_directions_and_keeps_the_order(proxy, through):
    through.ping()
    proxy.delay(0.05)
    before = time.monotonic()
    with through.pipeline(transaction=False) as pipe:
        for number in range(50):
            pipe.rpush("l", number)
        pipe.execute()
    assert time.monotonic() - before >= 0.1
    proxy.resume()
    assert through.lrange("l", 0, -1) == [str(number) for number in range(50)]


def test_an_unreachable_target_looks_like_a_closed_connection():
    with FaultProxy("127.0.0.1", 1) as proxy, redis.Redis(port=proxy.port, retry=None) as client:
        with pytest.raises(redis.ConnectionError):
            client.ping()
