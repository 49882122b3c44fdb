"""F6: a store that is away or full while a batch is halved costs no row; only what is about a row does."""

from __future__ import annotations

import errno
import os
import random
import sqlite3

import msgspec
import pytest
from test_store_away import Hours, patient
from writer_rig import Bench, Recorder, rows, run

from netspy.errors import ItemError, RowsFailedError
from netspy.pipelines.documents.bulk import Line, failed_rows
from netspy.pipelines.errors import UnavailableError, may_be_the_row, rows_fault, store_away
from netspy.settings import Settings

ALL = 64


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return patient(msgspec.structs.replace(settings, ITEM_RETRY_BACKOFF=0.5, ITEM_BATCH_SIZE=100))


def error_named(name: str, *bases: type[Exception], **fields: object) -> Exception:
    """An error of a driver that need not be installed."""
    made = type(name, bases or (Exception,), {})("trouble")
    for field, value in fields.items():
        setattr(made, field, value)
    return made


class Slow(Exception):
    """What botocore raises."""

    def __init__(self, code: str, status: int) -> None:
        super().__init__(code)
        self.response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}


AWAY = {
    "connection lost": ConnectionResetError("gone"),
    "refused": ConnectionRefusedError("port 3306"),
    "no space": OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    "quota": OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)),
    "read-only disk": OSError(errno.EROFS, os.strerror(errno.EROFS)),
    "database locked": sqlite3.OperationalError("database is locked"),
    "MySQL deadlock": error_named("OperationalError", sqlstate="40P01"),
    "end of stream": EOFError("the server closed the connection"),
    "S3 slow-down": Slow("SlowDown", 503),
    "throttled": Slow("ThrottlingException", 400),
    "HTTP 429": error_named("ApiError", status_code=429),
    "not primary": error_named("NotPrimaryError"),
    "read-only replica": error_named("ReadOnlyError"),
}


class AwayFor(Recorder):
    """Fails its first `calls` calls, or those that `fails` chooses."""

    def __init__(self, error: Exception, calls: int = 0, fails=None) -> None:
        super().__init__()
        self.trouble, self.left, self.fails = error, calls, fails

    def _take(self, what, table, items):
        self.left -= 1
        if self.left >= 0 or (self.fails is not None and self.fails()):
            raise self.trouble
        super()._take(what, table, items)


@pytest.mark.parametrize("error", AWAY.values(), ids=AWAY)
@pytest.mark.parametrize("calls", [3, 9, 12, 70])
def test_a_store_back_in_the_middle_of_the_halving_gets_every_row(
    settings, monkeypatch, error, calls
) -> None:
    assert store_away(error)
    assert not rows_fault(error)

    async def main() -> None:
        pipeline = AwayFor(error, calls)
        bench = Bench(settings, pipeline, sleep=Hours(monkeypatch))
        result = await bench.writer.write(rows(*range(ALL)))
        assert (result.stored, bench.letters()) == (ALL, [])
        assert sorted(i for _, _, i in pipeline.kept) == list(range(ALL)), "each once"

    run(main())


@pytest.mark.parametrize("seed", range(20))
def test_a_store_that_fails_every_other_time_gets_every_row(settings, monkeypatch, seed) -> None:
    """As behind a balancer with one dead node."""
    lot = random.Random(seed)

    async def main() -> None:
        pipeline = AwayFor(ConnectionResetError("gone"), fails=lambda: lot.random() < 0.5)
        bench = Bench(settings, pipeline, sleep=Hours(monkeypatch))
        for _ in range(5):
            assert (await bench.writer.write(rows(*range(ALL)))).failed == 0

    run(main())


def test_a_store_that_strictly_alternates_gets_every_row(settings, monkeypatch) -> None:
    calls = []

    def odd() -> bool:
        calls.append(1)
        return len(calls) % 2 == 1

    async def main() -> None:
        bench = Bench(settings, AwayFor(ConnectionResetError("gone"), fails=odd), sleep=Hours(monkeypatch))
        assert (await bench.writer.write(rows(*range(ALL)))).failed == 0

    run(main())


class Disk(Recorder):
    """Has room for so many bytes, and more once `roomy()`; rows of a multiple of 7 are small."""

    def __init__(self, room: int, roomy) -> None:
        super().__init__()
        self.room, self.roomy = room, roomy

    def _take(self, what, table, items):
        size = sum(60 if item["id"] % 7 == 0 else 3000 for item in items)
        if size > self.room and not self.roomy():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.room -= size
        super()._take(what, table, items)


@pytest.mark.parametrize("room", [100, 8192, 16384, 24576, 100_000])
def test_a_full_disk_that_still_takes_small_rows_is_waited_for(settings, monkeypatch, room) -> None:
    sleep = Hours(monkeypatch)

    async def main() -> None:
        pipeline = Disk(room, lambda: sleep.now > 1300)
        bench = Bench(settings, pipeline, sleep=sleep)
        for at in range(0, 200, 50):
            assert (await bench.writer.write(rows(*range(at, at + 50)))).failed == 0
        assert len(pipeline.kept) == 200

    run(main())


@pytest.mark.parametrize("bad", [(0,), (31,), (63,), (7, 8), (3, 40, 62)])
def test_a_row_that_breaks_the_connection_each_time_costs_only_itself_and_seconds(
    settings, monkeypatch, bad
) -> None:
    sleep = Hours(monkeypatch)

    async def main() -> None:
        pipeline = Recorder()
        bench = Bench(settings, pipeline, sleep=sleep)
        result = await bench.writer.write(rows(*range(ALL), bad=bad))
        assert result.failed_at == bad
        assert sleep.now - 1000 < 60
        assert not bench.writer.waited_for

    run(main())


@pytest.mark.parametrize("bad", [(0,), (5, 6)])
def test_rows_beside_one_that_breaks_the_connection_are_stored_once_the_store_is_back(
    settings, monkeypatch, bad
) -> None:
    sleep = Hours(monkeypatch)

    class Both(Recorder):
        def _take(self, what, table, items):
            if sleep.now < 1600:
                raise ConnectionResetError("away")
            super()._take(what, table, items)

    async def main() -> None:
        bench = Bench(settings, Both(), sleep=sleep)
        assert (await bench.writer.write(rows(*range(ALL), bad=bad))).failed_at == bad
        assert sleep.now < 2000

    run(main())


def test_rows_that_were_never_tried_are_not_lost_with_those_that_are_refused(settings, monkeypatch) -> None:
    """A thousand refusals that take their time must not condemn what comes after them."""
    sleep = Hours(monkeypatch)

    class Slowly(Recorder):
        error = ItemError

        def _take(self, what, table, items):
            sleep.now += 1.0
            super()._take(what, table, items)

    async def main() -> None:
        bench = Bench(settings, Slowly(), sleep=sleep)
        result = await bench.writer.write(rows(*range(ALL), bad=tuple(range(40))))
        assert result.failed_at == tuple(range(40))

    run(main())


class Named(Recorder):
    """Names its rows: those of `busy` have to wait until `free()`, those of `wrong` are refused."""

    def __init__(self, busy, wrong, free) -> None:
        super().__init__()
        self.busy, self.wrong, self.free = busy, wrong, free

    def _take(self, what, table, items):
        failed = {}
        for at, item in enumerate(items):
            if item["id"] in self.wrong:
                failed[at] = RuntimeError("409 conflict")
            elif item["id"] in self.busy and not self.free():
                failed[at] = UnavailableError("429 es_rejected_execution_exception")
            else:
                self.kept.append((what, table, item["id"]))
        if failed:
            raise RowsFailedError(failed)


@pytest.mark.parametrize("wrong", [{1}, {5}, {9}])
def test_rows_that_a_store_is_too_busy_for_wait_also_beside_refused_ones(
    settings, monkeypatch, wrong
) -> None:
    sleep = Hours(monkeypatch)

    async def main() -> None:
        pipeline = Named({3, 4, 7}, wrong, lambda: sleep.now > 1300)
        bench = Bench(settings, pipeline, sleep=sleep)
        assert (await bench.writer.write(rows(*range(10)))).failed_at == tuple(wrong)

    run(main())


def test_a_bulk_answer_with_busy_shards_is_about_the_store() -> None:
    answer = (
        b'{"errors":true,"items":['
        b'{"index":{"status":429,"error":{"type":"es_rejected_execution_exception","reason":"queue"}}},'
        b'{"index":{"status":503,"error":{"type":"unavailable_shards_exception","reason":"timeout"}}},'
        b'{"index":{"status":400,"error":{"type":"mapper_parsing_exception","reason":"no date"}}}]}'
    )
    found = failed_rows([Line(at, b"") for at in range(3)], answer)
    assert [store_away(why) for why in found.values()] == [True, True, False]
    assert rows_fault(found[2])


def test_a_mongo_that_is_no_primary_any_more_is_away_for_each_row() -> None:
    from netspy.pipelines.mongo import _classify

    assert store_away(_classify({"code": 10107, "errmsg": "not primary"}))
    assert rows_fault(_classify({"code": 121, "errmsg": "Document failed validation"}))


def mysql(name: str, code: int) -> Exception:
    kind = type(name, (Exception,), {"__module__": "pymysql.err"})
    return kind(code, "what the server says")


@pytest.mark.parametrize(
    ("error", "away", "row"),
    [
        (mysql("OperationalError", 1366), False, True),  # incorrect string value
        (mysql("OperationalError", 1364), False, True),  # no default value
        (mysql("OperationalError", 1054), False, False),  # unknown column
        (mysql("OperationalError", 2013), True, False),  # lost connection
        (mysql("OperationalError", 1213), True, False),  # deadlock
        (mysql("InternalError", 1205), True, False),  # lock wait
        (mysql("OperationalError", 1290), True, False),  # read-only
        (mysql("OperationalError", 1045), True, False),  # access denied, as during a change of passwords
        (error_named("ApiError", status_code=400), False, False),
        (error_named("HTTPError", OSError, status_code=404), False, False),
        (error_named("HTTPError", OSError, status_code=503), True, False),
        (Slow("EntityTooLarge", 400), False, False),
    ],
)
def test_what_clients_call_by_one_name_is_told_apart_by_its_code(error, away, row) -> None:
    assert (store_away(error), rows_fault(error)) == (away, row)


def test_a_damaged_database_is_not_waited_for(tmp_path) -> None:
    (tmp_path / "db").write_bytes(b"no database" * 100)
    db = sqlite3.connect(tmp_path / "db")
    with pytest.raises(sqlite3.DatabaseError) as raised:
        db.execute("CREATE TABLE t (x)")
    db.close()
    assert not store_away(raised.value)


@pytest.mark.parametrize(
    ("error", "may"),
    [
        (ConnectionResetError(), True),
        (BrokenPipeError(), True),
        (mysql("OperationalError", 2006), True),
        (ConnectionRefusedError(), False),
        (OSError(errno.ENOSPC, "full"), False),
        (UnavailableError("busy"), False),
        (error_named("ApiError", status_code=429), False),
        (mysql("OperationalError", 1114), False),  # the table is full
        (mysql("OperationalError", 1213), False),
        (sqlite3.OperationalError("database is locked"), False),
    ],
)
def test_which_errors_a_row_may_cause_itself(error, may) -> None:
    assert may_be_the_row(error) is may
