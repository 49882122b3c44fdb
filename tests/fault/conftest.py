"""A crawl to break, on the servers that the rows of the fault table want; what came out is noted for docs/faults.md."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from netspy.testing.fault_pages import AIR_PAGES
from netspy.testing.faults import PAGES, FaultReport, FaultRun
from netspy.testing.servers import RedisServer, find_embedded_server, find_redis_server
from netspy.testing.site import LocalSite
from support.missing import missing


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest begins first: whoever is free takes from the rest, and nobody waits for it at the end."""

    def allowed_s(item: pytest.Item) -> float:
        mark = item.get_closest_marker("timeout") if item.get_closest_marker("fault") else None
        return float(mark.args[0]) if mark is not None else 0.0

    items.sort(key=allowed_s, reverse=True)


SERVERS = ["on PATH", pytest.param("embedded", marks=pytest.mark.faults_full)]
"""Every row runs on both; `make test` takes the first."""


@pytest.fixture(params=SERVERS)
def either_url(request: pytest.FixtureRequest) -> str:
    """An empty database on the server on PATH, then on the embedded Redis 6.2."""
    url: str = request.getfixturevalue("redis_url" if request.param == "on PATH" else "redis62_url")
    return url


@pytest.fixture(params=SERVERS)
def either_binary(request: pytest.FixtureRequest) -> str:
    """The program of a server that the test starts and kills itself."""
    found = find_redis_server() if request.param == "on PATH" else find_embedded_server()
    if found is None:
        missing(f"no Redis server {request.param}")
    return found


@pytest.fixture
def pages(site: LocalSite) -> LocalSite:
    """`/p/N` answers with its own path."""
    site.route("/p/", lambda request: f"<h1>{request.path}</h1>", prefix=True)
    return site


@pytest.fixture
def own_server() -> Iterator[Callable[..., RedisServer]]:
    """Start a server of one's own, ended with the test."""
    with ExitStack() as stack:
        yield lambda *args, **options: stack.enter_context(RedisServer(*args, **options))


@pytest.fixture
def begin(site: LocalSite, tmp_path: Path) -> Iterator[Callable[..., FaultRun]]:
    """`begin(redis_url, source, SETTING="value")`: a run whose nodes are not started yet."""
    with ExitStack() as stack:

        def make(redis_url: str, source: str = PAGES, **env: str) -> FaultRun:
            return stack.enter_context(FaultRun(tmp_path, source, redis_url=redis_url, site=site, env=env))

        yield make


@pytest.fixture
def begin_air(site: LocalSite, tmp_path: Path) -> Iterator[Callable[..., FaultRun]]:
    """`begin_air(source, SETTING="value")`: the same of an AirSpider, which has no Redis."""
    with ExitStack() as stack:

        def make(source: str = AIR_PAGES, **env: str) -> FaultRun:
            return stack.enter_context(FaultRun(tmp_path, source, site=site, env=env))

        yield make


@pytest.fixture
def note(record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """`note(row, run, report)`: a line for the table in docs/faults.md (scripts/faults_table.py reads it)."""

    def write(row: str, run: FaultRun, report: FaultReport) -> None:
        if run.redis_url is None:
            line = {"row": row, "kind": "air", "redis": ""}
        else:
            line = {"row": row, "kind": "spider", "redis": run.client.info("server")["redis_version"]}
        record_property("fault", json.dumps({**line, **report._asdict()}))

    return write
