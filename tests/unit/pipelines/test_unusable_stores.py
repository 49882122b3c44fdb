"""A store that can't be used until a person mends it costs no wait and no second try; one that is away is waited for."""

from __future__ import annotations

import os
import sqlite3
from typing import TYPE_CHECKING, Any

import mongomock
import msgspec
import pymongo
import pytest
from writer_rig import Bench, Recorder, rows, run

from netspy.core.batch_store import SqlBatchStore
from netspy.errors import ConfigError
from netspy.pipelines.csv import CsvPipeline
from netspy.pipelines.errors import UnavailableError, UnusableError, rows_fault, store_away
from netspy.pipelines.jsonl import JsonlPipeline
from netspy.pipelines.loader import load_pipelines
from netspy.pipelines.mongo import MongoPipeline
from netspy.pipelines.parquet import ParquetPipeline
from netspy.pipelines.sql import SqlPipeline, SqlTroubleError
from netspy.pipelines.sqlite import SqlitePipeline
from netspy.settings import Settings
from netspy.sqlio.sqlite_file import why_unusable

if TYPE_CHECKING:
    from pathlib import Path

    from netspy.pipelines.base import BasePipeline


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return msgspec.structs.replace(
        settings, ITEM_STORE_PATIENCE=2700.0, ITEM_RETRY_TIMES=3, ITEM_RETRY_BACKOFF=1.0
    )


def csv_named_db(path: Path) -> None:
    path.write_bytes(b"a,b\n" * 2000)


def encrypted(path: Path) -> None:
    path.write_bytes(os.urandom(8192))


def damaged(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE t (id)")
    db.close()
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 3000)


def folder(path: Path) -> None:
    path.mkdir()


def below_a_file(path: Path) -> None:
    path.parent.rmdir()
    path.parent.write_bytes(b"")


WRONG = [csv_named_db, encrypted, damaged, folder, below_a_file]


def kinds(path: Path) -> dict[str, BasePipeline]:
    return {
        "sqlite": SqlitePipeline(path),
        "sql": SqlPipeline(f"sqlite:///{path}"),
        "jsonl": JsonlPipeline(path, table="t"),
        "csv": CsvPipeline(path, table="t"),
    }


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.__name__)
@pytest.mark.parametrize("kind", ["sqlite", "sql", "jsonl", "csv"])
def test_a_file_that_is_none_of_its_kind_is_not_waited_for_and_tried_once(
    tmp_path, settings, kind, wrong
) -> None:
    """Case HB-16."""
    if kind in {"jsonl", "csv"} and wrong not in {folder, below_a_file, encrypted}:
        return
    path = tmp_path / "sub" / "out.db"
    path.parent.mkdir()
    wrong(path)
    before = path.read_bytes() if path.is_file() else b""

    async def main() -> None:
        bench = Bench(settings, kinds(path)[kind])
        result = await bench.writer.write(rows(*range(40)))
        await bench.writer.close()
        assert result.failed == 40
        assert bench.pauses.seconds == []
        assert not bench.writer.waited_for

    run(main())
    assert (path.read_bytes() if path.is_file() else b"") == before


def test_a_parquet_folder_below_a_file_is_not_waited_for(tmp_path, settings) -> None:
    (tmp_path / "out").write_bytes(b"")

    async def main() -> None:
        bench = Bench(
            msgspec.structs.replace(settings, PARQUET_OUTPUT_DIR=str(tmp_path / "out")), ParquetPipeline
        )
        assert (await bench.writer.write(rows(*range(4)))).failed == 4
        await bench.writer.close()
        assert bench.pauses.seconds == []

    run(main())


def test_a_database_that_becomes_none_in_the_middle_of_a_run_is_not_waited_for(tmp_path, settings) -> None:
    async def main() -> None:
        bench = Bench(settings, SqlitePipeline(tmp_path / "t.db"))
        assert (await bench.writer.write(rows(1))).stored == 1
        for file in tmp_path.glob("t.db*"):  # the log of the old one would be taken into the new one
            file.unlink()
        csv_named_db(tmp_path / "t.db")
        assert (await bench.writer.write(rows(2, 3))).failed == 2
        assert bench.pauses.seconds == []
        await bench.writer.close()

    run(main())


def test_a_locked_database_is_still_waited_for(tmp_path, settings, monkeypatch) -> None:
    monkeypatch.setattr("netspy.pipelines.sqlite._BUSY_S", 0.05)
    holder = sqlite3.connect(tmp_path / "t.db", isolation_level=None)
    holder.execute("PRAGMA journal_mode=WAL")
    holder.execute("BEGIN IMMEDIATE")

    class Release:
        seconds: list[float]

        def __init__(self) -> None:
            self.seconds = []

        async def __call__(self, seconds: float) -> None:
            self.seconds.append(seconds)
            if len(self.seconds) == 5:
                holder.execute("ROLLBACK")

    async def main() -> None:
        pauses = Release()
        bench = Bench(settings, SqlitePipeline(tmp_path / "t.db"), sleep=pauses)
        assert (await bench.writer.write(rows(1))).stored == 1
        assert len(pauses.seconds) >= 5
        await bench.writer.close()

    run(main())
    holder.close()


@pytest.mark.parametrize("wrong", WRONG[:4], ids=lambda wrong: wrong.__name__)
def test_a_task_table_in_such_a_file_is_an_error_at_once(tmp_path, wrong) -> None:
    path = tmp_path / "tasks.db"
    wrong(path)
    store = SqlBatchStore("crawl_task", f"sqlite:///{path}", patience=3600.0)
    with pytest.raises(ConfigError, match=r"no SQLite database|is a folder"):
        store.ensure_schema()
    store.close()


def sqlite_error(code: int) -> sqlite3.Error:
    error = sqlite3.OperationalError("words")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize("code", [sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY])
@pytest.mark.parametrize("there", [True, False])
def test_a_file_that_this_user_may_not_write_stays_so(tmp_path, monkeypatch, code, there) -> None:
    path = tmp_path / "t.db"
    if there:
        path.write_bytes(b"")
    assert why_unusable(path, sqlite_error(code)) == ""  # no more descriptors, for instance
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "may not write" in why_unusable(path, sqlite_error(code))
    assert why_unusable(path, sqlite_error(sqlite3.SQLITE_BUSY)) == ""
    assert why_unusable(path, sqlite_error(sqlite3.SQLITE_FULL)) == ""


@pytest.mark.parametrize(
    ("error", "lasting"),
    [
        (PermissionError(13, "denied"), True),
        (IsADirectoryError(21, "folder"), True),
        (NotADirectoryError(20, "no folder"), True),
        (FileExistsError(17, "a file"), True),
        (OSError(36, "too long"), True),
        (ConfigError("wrong"), True),
        (UnusableError("wrong"), True),
        (OSError(28, "full"), False),
        (OSError(24, "too many open files"), False),
        (ConnectionRefusedError(111, "refused"), False),
        (FileNotFoundError(2, "gone"), False),
        (TimeoutError(), False),
        (sqlite3.OperationalError("database is locked"), False),
    ],
)
def test_what_stays_until_a_person_mends_it(error, lasting) -> None:
    opening = UnavailableError("open() failed")
    opening.__cause__ = error
    assert rows_fault(opening) is lasting
    assert not (lasting and store_away(opening))


def test_an_open_that_raises_what_lasts_is_called_once(settings) -> None:
    class Closed(Recorder):
        def open(self) -> None:
            super().open()
            raise PermissionError(13, "Permission denied")

    async def main() -> None:
        pipeline = Closed()
        bench = Bench(settings, pipeline)
        assert (await bench.writer.write(rows(*range(30)))).failed == 30
        assert pipeline.opened == 1
        assert bench.pauses.seconds == []

    run(main())


@pytest.mark.parametrize(
    ("wrong", "answer"),
    [("://netspy:", "://nobody:"), ("/{name}", "/no_such_database"), ("@127.0.0.1", "x@127.0.0.1")],
)
@pytest.mark.parametrize("server", ["mariadb", "postgres"])
def test_who_is_not_let_in_is_told_at_once(request, settings, server, wrong, answer) -> None:
    """As case HB-16: a user, a database or a password that is wrong stays wrong."""
    running = request.getfixturevalue(server)
    if server == "postgres" and "database" not in answer and _trusts(running):
        return
    right = running.url("netspy")
    url = (
        right.replace(wrong.format(name="netspy"), answer)
        if "{" not in wrong
        else right.removesuffix("/netspy") + answer
    )
    assert url != right

    async def main() -> None:
        bench = Bench(settings, SqlPipeline(url))
        assert (await bench.writer.write(rows(1, 2))).failed == 2
        assert bench.pauses.seconds == []
        assert "s3c" not in str(bench.letters())
        await bench.writer.close()

    run(main())


def _trusts(server: Any) -> bool:
    """Whether the server asks for no password."""
    return any("trust" in str(row) for row in server.execute("SELECT auth_method FROM pg_hba_file_rules"))


def test_a_server_that_is_not_there_is_still_away() -> None:
    [made] = load_pipelines([SqlPipeline("mysql://netspy@127.0.0.1:9/x")], Settings())
    with pytest.raises(SqlTroubleError) as away:
        made.open()
    assert made.is_away(away.value)


@pytest.mark.parametrize(
    ("code", "lasting"), [(18, True), (13, True), (8000, True), (11600, False), (89, False)]
)
def test_who_mongodb_does_not_let_in_is_told_at_once(settings, code, lasting) -> None:
    class Refusing(MongoPipeline):
        def connect(self) -> Any:
            client = mongomock.MongoClient()

            def command(*_: Any) -> None:
                raise pymongo.errors.OperationFailure("no", code)

            client.admin.command = command
            return client

    [made] = load_pipelines([Refusing], settings)
    with pytest.raises(UnusableError if lasting else pymongo.errors.OperationFailure):
        made.open()
