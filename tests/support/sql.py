"""SQL servers for tests: one MariaDB and one PostgreSQL per test process, started when first asked for.

`mariadb` and `postgres` are the servers; don't kill them, start one of your own for that (`own_mariadb`,
`own_postgres`). `mariadb_url`, `postgres_url` and `sqlite_url` are empty databases, removed after the test; `any_sql`
runs the test on each of the three.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.missing import missing
from support.sql_servers import MariaDbServer, PostgresServer, find_mariadb, find_postgres

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def _need_mariadb() -> None:
    if find_mariadb() is None:
        missing("mariadbd is not installed")


def _need_postgres() -> None:
    if find_postgres() is None:
        missing("PostgreSQL's server is not installed")


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDbServer]:
    """A MariaDB server for the whole session."""
    _need_mariadb()
    with MariaDbServer() as server:
        yield server


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server for the whole session."""
    _need_postgres()
    with PostgresServer() as server:
        yield server


@pytest.fixture
def own_mariadb() -> Iterator[MariaDbServer]:
    """A MariaDB server that the test may kill."""
    _need_mariadb()
    with MariaDbServer() as server:
        yield server


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server that the test may kill."""
    _need_postgres()
    with PostgresServer() as server:
        yield server


@pytest.fixture
def mariadb_url(mariadb: MariaDbServer) -> Iterator[str]:
    """An empty database on MariaDB."""
    url = mariadb.create_database()
    yield url
    mariadb.drop_database(url.rpartition("/")[2])


@pytest.fixture(scope="session")
def _postgres_database(postgres: PostgresServer) -> str:
    return postgres.create_database()


@pytest.fixture
def postgres_url(postgres: PostgresServer, _postgres_database: str) -> Iterator[str]:
    """An empty database on PostgreSQL."""
    yield _postgres_database
    # Emptied rather than made anew, which takes PostgreSQL ten times as long.
    database = _postgres_database.rpartition("/")[2]
    postgres.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [database])
    postgres.execute("DROP SCHEMA public CASCADE", database=database)
    postgres.execute("CREATE SCHEMA public", database=database)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """A database file that isn't there yet."""
    return f"sqlite:///{tmp_path / 'test.sqlite'}"


@pytest.fixture(params=["mariadb", "postgres", "sqlite"])
def any_sql(request: pytest.FixtureRequest) -> str:
    """The URL of an empty database, on MariaDB, PostgreSQL and SQLite in turn."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url
