"""REDIS_URL="embedded": one server per folder, whoever comes, leaves or dies in between."""

import os
import signal
import threading
from pathlib import Path

import pytest
import redis

from netspy.errors import ConfigError, MissingExtraError, StoreUnavailableError
from netspy.redisio.embedded import server as embedded
from netspy.redisio.embedded.process import started_at
from netspy.redisio.embedded.server import EmbeddedRedis
from netspy.testing.children import wait_until
from netspy.testing.runner import start_script
from netspy.testing.servers import RedisServer, find_embedded_server, find_redis_server

pytestmark = pytest.mark.skipif(
    not os.environ.get("CI") and not (find_redis_server() or find_embedded_server()),
    reason="no Redis server program",
)

USER = """
import signal, sys, threading, redis
from netspy.redisio.embedded.server import EmbeddedRedis
told = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: told.set())
user = EmbeddedRedis(sys.argv[1])
client = redis.Redis.from_url(user.acquire(), decode_responses=True)
client.incr("came")
print("joined", client.info("server")["run_id"], flush=True)
told.wait()
client.close()
user.release()
print("left", flush=True)
"""


@pytest.fixture
def connect():
    """Clients by URL, closed at the end."""
    opened = []

    def open_client(url):
        opened.append(redis.Redis.from_url(url, decode_responses=True, retry=None))
        return opened[-1]

    yield open_client
    for client in opened:
        client.close()


def server_pid(client):
    return client.info("server")["process_id"]


def kill_server(pid):
    os.kill(pid, signal.SIGKILL)
    assert wait_until(lambda: started_at(pid) is None, 30)


def test_data_survive_the_last_one_leaving(embedded_dir, connect):
    with EmbeddedRedis(embedded_dir) as url:
        client = connect(url)
        client.set("kept", "yes")
        pid = server_pid(client)
        assert client.config_get("appendfsync")["appendfsync"] == "everysec"
        assert client.config_get("maxmemory-policy")["maxmemory-policy"] == "noeviction"
    assert started_at(pid) is None
    assert EmbeddedRedis(embedded_dir).running() is None
    with EmbeddedRedis(embedded_dir) as url:
        assert connect(url).get("kept") == "yes"


def test_users_share_one_server_and_only_the_last_stops_it(embedded_dir, connect):
    first, second = EmbeddedRedis(embedded_dir), EmbeddedRedis(embedded_dir)
    client = connect(first.acquire())
    assert second.acquire() == first.acquire()  # and asking twice counts once
    first.release()
    first.release()
    assert client.ping()
    assert second.running() is not None
    pid = server_pid(client)
    second.release()
    assert started_at(pid) is None


def test_six_processes_that_come_at_once_get_one_server(embedded_dir):
    scripts = [start_script(USER, args=[str(embedded_dir)]) for _ in range(6)]
    try:
        run_ids = {script.wait_line("joined").split()[1] for script in scripts}
        assert len(run_ids) == 1
        assert EmbeddedRedis(embedded_dir).running() is not None
        for script in scripts:
            script.terminate()
        for script in scripts:
            assert script.finish(30).check().stderr == ""
    finally:
        for script in scripts:
            script.kill()
            script.finish(30)
    assert EmbeddedRedis(embedded_dir).running() is None


def test_threads_of_one_process_that_come_at_once_get_one_server(embedded_dir, connect):
    users = [EmbeddedRedis(embedded_dir) for _ in range(4)]
    threads = [threading.Thread(target=user.acquire) for user in users]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    client = connect(users[0].acquire())
    for user in users[:3]:
        user.release()
    assert client.ping()
    users[3].release()
    with pytest.raises(redis.ConnectionError):
        client.ping()


def test_an_orphan_whose_users_were_killed_is_used_again_and_then_stopped(embedded_dir, connect):
    with start_script(USER, args=[str(embedded_dir)]) as script:
        run_id = script.wait_line("joined").split()[1]
        script.kill()
        assert script.finish(30).returncode == -signal.SIGKILL
    user = EmbeddedRedis(embedded_dir)
    assert user.running() is not None
    client = connect(user.acquire())
    assert client.info("server")["run_id"] == run_id
    pid = server_pid(client)
    user.release()  # the dead user doesn't keep it
    assert started_at(pid) is None


def test_a_server_killed_in_mid_run_comes_back_at_its_address_with_its_data(embedded_dir, connect):
    user = EmbeddedRedis(embedded_dir)
    client = connect(user.acquire())
    assert user.ensure() is False
    client.config_set("appendfsync", "always")
    client.set("kept", "yes")
    kill_server(server_pid(client))
    with pytest.raises(redis.ConnectionError):
        client.ping()
    assert user.running() is None
    assert user.ensure() is True
    assert client.get("kept") == "yes"
    user.release()


def test_a_crashed_server_with_its_stale_socket_is_replaced_by_the_next_user(embedded_dir, connect):
    with start_script(USER, args=[str(embedded_dir)]) as script:
        script.wait_line("joined")
        url = EmbeddedRedis(embedded_dir).running()
        client = connect(url)
        client.config_set("appendfsync", "always")
        client.set("kept", "yes")
        kill_server(server_pid(client))
        assert (embedded_dir / "redis.sock").exists()
        with EmbeddedRedis(embedded_dir) as again:
            assert again == url
            assert connect(again).get("kept") == "yes"
        assert client.ping()  # the first user is still there


def test_a_server_whose_starter_died_before_noting_it_is_found(embedded_dir, connect):
    user = EmbeddedRedis(embedded_dir)
    client = connect(user.acquire())
    pid = server_pid(client)
    noted = user._known()
    user._note(noted._replace(pid=0, started=""))  # as it stands between the start and the note
    other = EmbeddedRedis(embedded_dir)
    assert server_pid(connect(other.acquire())) == pid
    assert other._known() == noted
    other.release()
    user.release()
    assert started_at(pid) is None


def test_a_silent_server_is_neither_replaced_nor_doubled(embedded_dir, connect, monkeypatch):
    user = EmbeddedRedis(embedded_dir)
    pid = server_pid(connect(user.acquire()))
    monkeypatch.setattr(embedded, "ANSWER_TIMEOUT", 0.05)
    monkeypatch.setattr(embedded, "START_TIMEOUT", 0.1)
    os.kill(pid, signal.SIGSTOP)
    try:
        assert user.ensure() is False
        with pytest.raises(StoreUnavailableError, match=rf"process {pid}\) is alive but doesn't answer"):
            EmbeddedRedis(embedded_dir).acquire()
    finally:
        os.kill(pid, signal.SIGCONT)
    monkeypatch.undo()
    user.release()
    assert started_at(pid) is None


def test_somebody_elses_server_behind_a_stale_note_is_left_alone(embedded_dir, connect, redis_server):
    with RedisServer(redis_server.binary, unix_socket=True) as other:
        user = EmbeddedRedis(embedded_dir)
        user.acquire()
        user.release()
        user._note(embedded._Server(str(other.socket_path), (7, 0, 0), other.pid, started_at(other.pid)))
        url = user.acquire()
        assert server_pid(connect(url)) != other.pid
        user.release()
        user._note(embedded._Server(str(other.socket_path), (7, 0, 0), other.pid, started_at(other.pid)))
        user.stop()
        assert other.client().ping()
        assert other.socket_path.exists()


def test_a_long_folder_name_gets_a_short_socket_that_goes_away(tmp_path, connect):
    folder = tmp_path / ("long" * 30) / "data"
    user = EmbeddedRedis(folder)
    url = user.acquire()
    client = connect(url)
    client.config_set("appendfsync", "always")
    client.set("kept", "yes")
    path = Path(client.connection_pool.connection_kwargs["path"])
    assert len(str(path)) < 100
    kill_server(server_pid(client))
    assert user.ensure() is True
    assert client.get("kept") == "yes"  # the address stayed
    user.release()
    assert not path.parent.exists()
    assert EmbeddedRedis(folder).acquire() != url
    EmbeddedRedis(folder).stop()


def test_a_forked_child_does_not_leave_for_its_parent(embedded_dir, connect):
    user = EmbeddedRedis(embedded_dir)
    client = connect(user.acquire())
    child = os.fork()
    if child == 0:
        user.release()
        os._exit(0)
    os.waitpid(child, 0)
    assert client.ping()
    user.release()


def test_the_wheel_serves_where_there_is_nothing_on_path(embedded_dir, connect, redis62_server, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with EmbeddedRedis(embedded_dir) as url:
        assert connect(url).info("server")["redis_version"].startswith("6.2.")


def test_without_any_server_program_the_extra_is_named(embedded_dir, monkeypatch):
    monkeypatch.setattr(embedded, "server_on_path", lambda: None)
    monkeypatch.setattr(embedded, "server_in_wheel", lambda: None)
    with pytest.raises(MissingExtraError, match=r"pip install '\.\[embedded\]'"):
        EmbeddedRedis(embedded_dir).acquire()


def test_data_of_a_newer_server_are_not_started_empty_by_an_older_one(
    embedded_dir, connect, redis62_server, monkeypatch
):
    monkeypatch.setenv("PATH", "/nowhere")
    (embedded_dir / "appendonlydir").mkdir(parents=True)
    (embedded_dir / "appendonlydir" / "appendonly.aof.1.incr.aof").touch()
    with pytest.raises(ConfigError, match=r"written by Redis 7 or later.*newer redis-server"):
        EmbeddedRedis(embedded_dir).acquire()


def test_a_folder_that_is_a_file_is_a_setting_error(tmp_path):
    (tmp_path / "data").write_text("")
    with pytest.raises(ConfigError, match=r"EMBEDDED_DATA_DIR='.*/data' can't be used"):
        EmbeddedRedis(tmp_path / "data").acquire()


def test_a_damaged_append_only_file_stops_the_start_with_its_reason(
    embedded_dir, connect, redis62_server, monkeypatch
):
    monkeypatch.setenv("PATH", "/nowhere")
    embedded_dir.mkdir()
    (embedded_dir / "appendonly.aof").write_bytes(b"*3\r\n$3\r\nSET\r\ngarbage")
    with pytest.raises(StoreUnavailableError, match=r"did not start in .*(?i:bad file format|unexpected)"):
        EmbeddedRedis(embedded_dir).acquire()
    assert (embedded_dir / "appendonly.aof").read_bytes().endswith(b"garbage")


def test_looking_does_not_make_a_folder(tmp_path):
    assert EmbeddedRedis(tmp_path / "none").running() is None
    EmbeddedRedis(tmp_path / "none").stop()
    assert not (tmp_path / "none").exists()


def test_nobody_else_reads_the_queue_s1(embedded_dir):
    """S1: the append-only file has requests with their cookies; also where an older start made it for all to read."""
    umask = os.umask(0)
    try:
        with EmbeddedRedis(embedded_dir) as url:
            client = redis.Redis.from_url(url)
            client.set("a", "secret")
            client.bgrewriteaof()
            wait_until(lambda: client.info("persistence")["aof_rewrite_in_progress"] == 0, 10)
            client.close()
            assert wide_open(embedded_dir) == []
        for path in (embedded_dir, *embedded_dir.rglob("*")):
            path.chmod(0o777 if path.is_dir() else 0o666)
        with EmbeddedRedis(embedded_dir):
            assert wide_open(embedded_dir) == []
    finally:
        os.umask(umask)


def test_a_folder_that_holds_things_of_others_is_left_open_but_the_queue_in_it_is_not_s1(embedded_dir):
    embedded_dir.mkdir(parents=True)
    embedded_dir.chmod(0o755)
    (embedded_dir / "page.html").touch(mode=0o644)
    (embedded_dir / "temp-mine").mkdir(mode=0o755)
    with EmbeddedRedis(embedded_dir):
        assert wide_open(embedded_dir) == ["", "page.html", "temp-mine"]


def wide_open(folder):
    """What others may read, by its path in the folder, sorted; "" is the folder."""
    found = [path for path in (folder, *folder.rglob("*")) if path.lstat().st_mode & 0o077]
    return sorted("" if path == folder else str(path.relative_to(folder)) for path in found)
