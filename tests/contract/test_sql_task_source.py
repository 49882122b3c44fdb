"""A table as a TaskSpider's task source, on MariaDB, PostgreSQL and SQLite."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import sqlalchemy

from netspy.errors import ConfigError, SerializationError, StoreUnavailableError
from netspy.messages import codec
from netspy.settings import Settings
from netspy.tasks.sql.table import SqlTaskSource, read_table_url
from netspy.testing.source_contract import CHECKS, OUTLIVES_A_LEASE, Traits
from support.batch_tables import CREATE, admin

SETTINGS = Settings(HEARTBEAT_STALE=600.0, HEARTBEAT_INTERVAL=0.2)
SHORT_LEASE = Settings(HEARTBEAT_STALE=1.5, HEARTBEAT_INTERVAL=0.2)


def make_table(url: str, rows: list[str] = ()) -> str:
    with admin(url) as db:
        db.exec_driver_sql(CREATE[db.dialect.name])
        if rows:
            insert = "INSERT INTO crawl_task (id, url) VALUES (:id, :url)"
            db.execute(sqlalchemy.text(insert), [{"id": n, "url": u} for n, u in enumerate(rows, 1)])
    return f"{url}?table=crawl_task"


def states(url: str) -> list[int]:
    with admin(url) as db:
        return [row[0] for row in db.exec_driver_sql("SELECT batch_status FROM crawl_task ORDER BY id", ())]


class Boxed(SqlTaskSource):
    """Any value in the column `url`, as the contract's checks want it; rows are this source's own kind of value."""

    async def add(self, values: Any) -> None:
        await super().add([{"url": codec.encode(value).decode()} for value in values])

    async def take(self, limit: int) -> Any:
        return [task._replace(value=codec.decode(task.value["url"])) for task in await super().take(limit)]


class Table(Traits):
    def __init__(self, url: str, check: Any) -> None:
        self.url = make_table(url)
        self.settings = SHORT_LEASE if check in OUTLIVES_A_LEASE else SETTINGS

    async def make(self) -> SqlTaskSource:
        return Boxed(self.settings, url=self.url)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_sql_task_source(check, any_sql):
    await check(Table(any_sql, check))


@pytest.fixture
async def opened():
    sources: list[SqlTaskSource] = []

    async def open_source(url: str, settings: Settings = SETTINGS) -> SqlTaskSource:
        sources.append(SqlTaskSource(settings, "unused", url=url))
        await sources[-1].open()
        return sources[-1]

    yield open_source
    for source in sources:
        await source.close()


async def test_rows_are_tasks_and_their_states_are_written_back(any_sql, opened):
    source = await opened(make_table(any_sql, ["/a", "/b", "/c", "/d"]))
    tasks = await source.take(3)
    assert [(task.token, task.value["url"]) for task in tasks] == [("1", "/a"), ("2", "/b"), ("3", "/c")]
    assert states(any_sql) == [2, 2, 2, 0]
    await source.settled(tasks[:1])
    await source.failed([(tasks[1], "ValueError: no such shop")])
    await source.release(tasks[2:])
    assert states(any_sql) == [1, -1, 0, 0]
    assert await source.backlog() == (2, 0, None, 1)


async def test_a_slow_task_that_is_kept_stays_and_one_of_a_dead_node_comes_back_first(any_sql, opened):
    url = make_table(any_sql, ["/slow", "/dead", "/later"])
    first, second = await opened(url), await opened(url)
    [slow, dead] = await first.take(2)
    with admin(any_sql) as db:  # both older than a lease
        db.exec_driver_sql("UPDATE crawl_task SET update_time = '2026-01-01 00:00:00' WHERE id < 3", ())
    await first.keep([slow])
    first._held[dead.token] -= 601  # the node knows, too, that this lease is over
    [again] = await second.take(1)
    assert (again.token, again.value["url"]) == (dead.token, "/dead")
    assert states(any_sql) == [2, 2, 0]
    await first.release([slow, dead])  # it may not give away what another node has
    assert states(any_sql) == [0, 2, 0]
    await first.settled([dead])  # but what it has done is done
    assert states(any_sql) == [0, 1, 0]


async def test_a_row_that_is_set_back_by_hand_comes_again(sqlite_url, opened):
    source = await opened(make_table(sqlite_url, ["/a"]))
    await source.settled(await source.take(1))
    assert await source.take(1) == []
    with admin(sqlite_url) as db:
        db.exec_driver_sql("UPDATE crawl_task SET batch_status = 0", ())
    assert [task.token for task in await source.take(1)] == ["1"]


async def test_a_database_that_was_restored_to_an_earlier_state_gives_its_rows_again(tmp_path, opened):
    """A row that was done comes again, one that a node still has in hand is done with that, and what it lost is gone."""
    path = tmp_path / "tasks.db"
    url = f"sqlite:///{path}"
    source = await opened(make_table(url, ["a", "b"]))
    kept = path.read_bytes()
    with admin(url) as db:
        db.exec_driver_sql("INSERT INTO crawl_task (id, url) VALUES (3, 'c')", ())
    taken = await source.take(3)
    await source.settled(taken[:1])
    await source.close()
    for beside in tmp_path.glob("tasks.db-*"):
        beside.unlink()
    path.write_bytes(kept)
    source = await opened(f"{url}?table=crawl_task")
    await source.settled(taken[1:])
    assert states(url) == [0, 1]
    assert [task.value["id"] for task in await source.take(3)] == [1]


async def test_new_rows_come_as_dicts_of_their_columns(any_sql, opened):
    source = await opened(make_table(any_sql))
    await source.add([{"url": "/a"}, {"url": "/b", "id": 7}, {"url": {"deep": [1]}}])
    tasks = await source.take(5)
    assert sorted(task.value["url"] for task in tasks) == ["/a", "/b", '{"deep":[1]}']
    assert 7 in [task.receipt for task in tasks]
    for wrong in ("text", {}, {1: 2}, {"url": object()}):
        with pytest.raises(SerializationError):
            await source.add([{"url": "/never"}, wrong])
    with pytest.raises(ConfigError, match="colour"):
        await source.add([{"colour": "red"}])
    assert await source.take(5) == []


async def test_a_row_that_cannot_travel_fails_and_the_others_come(any_sql, opened):
    source = await opened(make_table(any_sql, ["/a", "x" * (codec.MAX_BYTES + 1), "/c"]))
    assert [task.value["url"] for task in await source.take(5)] == ["/a", "/c"]
    assert states(any_sql) == [2, -1, 2]


async def test_a_database_that_was_away_is_waited_for_and_giving_up_ends_it(own_mariadb, opened):
    url = own_mariadb.create_database()
    source = await opened(make_table(url, ["/a", "/b"]), Settings(HEARTBEAT_STALE=60.0))
    tasks = await source.take(1)
    own_mariadb.kill()
    settling = asyncio.ensure_future(source.settled(tasks))
    await asyncio.sleep(0.3)
    assert not settling.done()
    await asyncio.to_thread(own_mariadb.restart)
    await asyncio.wait_for(settling, 60)
    assert states(url) == [1, 0]
    own_mariadb.kill()
    waiting = asyncio.ensure_future(source.take(1))
    await asyncio.sleep(0.3)
    assert not waiting.done()
    source.give_up_waiting()
    with pytest.raises(StoreUnavailableError):
        await asyncio.wait_for(waiting, 30)


async def test_a_database_that_is_not_there_is_named_within_the_start_limit(tmp_path):
    source = SqlTaskSource(Settings(REDIS_START_TIMEOUT=0.3), url="mysql://u:secret@127.0.0.1:1/db?table=t")
    with pytest.raises(StoreUnavailableError, match=r"mysql://u@127\.0\.0\.1:1/db") as caught:
        await source.open()
    assert "secret" not in str(caught.value)
    await source.close()


def test_what_a_url_says():
    settings = Settings()
    found = read_table_url("mysql://me:p@ss@db/crawls?ssl_ca=/ca.pem&table=my tasks&state=s", settings)
    assert found[1:] == ("my tasks", "id", "s", "update_time")
    assert (found.database.password, dict(found.database.options)) == ("p@ss", {"ssl_ca": "/ca.pem"})
    assert read_table_url("sqlite:///a.db?table=t&id=key", settings)[1:] == (
        "t",
        "key",
        "batch_status",
        "update_time",
    )
    with pytest.raises(
        ConfigError, match=r"names no table; add it, e\.g\. sqlite:///a\.db\?table=crawl_task"
    ):
        read_table_url("sqlite:///a.db", settings)
    with pytest.raises(ConfigError, match="'tabel' is none of mysql's") as caught:
        read_table_url("mysql://me:secret@db/crawls?tabel=t", settings)
    assert "secret" not in str(caught.value)
