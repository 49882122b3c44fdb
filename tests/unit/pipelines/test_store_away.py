"""A store that is away is waited for, rows stay in order, and what is no outage is not taken for one."""

from __future__ import annotations

import asyncio
import socket
import sqlite3
import time
from types import SimpleNamespace

import msgspec
import pytest
from writer_rig import Bench, Recorder, Second, rows, run

from netspy.errors import ItemError
from netspy.pipelines.delivery import feeding
from netspy.pipelines.errors import UnavailableError, store_away
from netspy.settings import Settings


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return msgspec.structs.replace(settings, ITEM_RETRY_TIMES=3, ITEM_RETRY_BACKOFF=0.5, ITEM_BATCH_SIZE=100)


class Hours:
    """A sleep that passes on a clock of its own, which the feeder reads."""

    def __init__(self, monkeypatch) -> None:
        self.now = 1000.0
        self.seconds: list[float] = []
        monkeypatch.setattr(feeding, "time", SimpleNamespace(monotonic=lambda: self.now))

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


def patient(settings: Settings, **more: object) -> Settings:
    return msgspec.structs.replace(settings, **{"ITEM_STORE_PATIENCE": 2700.0, "ITEM_RETRY_TIMES": 1, **more})


def test_row_32_a_database_away_for_half_an_hour_gets_all_rows_in_the_end(settings, monkeypatch) -> None:
    """Fault table row 32: one alarm when it goes, one when it is back, and no dead letter."""
    sleep = Hours(monkeypatch)

    class AwayFor(Recorder):
        def _take(self, what, table, items):
            if sleep.now < 1000.0 + 1800.0:
                raise ConnectionRefusedError("port 3306")
            super()._take(what, table, items)

    async def main() -> None:
        pipeline = AwayFor()
        bench = Bench(patient(settings), pipeline, Second(), sleep=sleep)
        result = await bench.writer.write([*rows(*range(150)), *rows(1, 2, table="u")])
        assert (result.stored, result.failed) == (152, 0)
        assert sorted(i for _, t, i in pipeline.kept if t == "t") == list(range(150))
        assert max(sleep.seconds) == 30.0
        assert [kind for kind in bench.kinds() if kind != "retry"] == ["down", "up"]
        assert (
            "at most 2700 s (ITEM_STORE_PATIENCE)"
            in next(e for e in bench.events if e.kind == "down").message
        )
        assert bench.letters() == []
        assert len(pipeline.calls) < 10

    run(main())


def test_an_outage_longer_than_the_patience_is_paid_for_once(settings, monkeypatch) -> None:
    sleep = Hours(monkeypatch)

    async def main() -> None:
        pipeline = Recorder(outages=10**9)
        bench = Bench(patient(settings, ITEM_STORE_PATIENCE=100.0), pipeline, sleep=sleep)
        assert (await bench.writer.write(rows(1, 2))).failed == 2
        assert 100 <= sleep.now - 1000 <= 131
        before, calls = sleep.now, len(pipeline.calls)
        assert (await bench.writer.write(rows(*range(3, 40)))).failed == 37
        assert (sleep.now, len(pipeline.calls)) == (before, calls + 1), "known to be down: one try a batch"
        pipeline.outages = 0
        assert (await bench.writer.write(rows(50))).stored == 1
        assert [kind for kind in bench.kinds() if kind != "retry"] == [
            "down",
            "dead_letter",
            "dead_letter",
            "up",
        ]
        # The next outage has its whole patience again.
        pipeline.outages = 4
        assert (await bench.writer.write(rows(51))).stored == 1

    run(main())


def test_spill_waits_for_no_store(settings) -> None:
    async def main() -> None:
        bench = Bench(patient(settings, ITEM_STORE_DOWN="spill"), Recorder(outages=10**9))
        assert (await bench.writer.write(rows(1, 2))).failed == 2
        assert bench.pauses.seconds == [0.5]
        assert "ITEM_STORE_PATIENCE" not in bench.events[-2].message

    run(main())


@pytest.mark.parametrize("error", [ItemError, ValueError, TypeError, RuntimeError])
def test_what_is_no_outage_is_not_waited_for(settings, error) -> None:
    async def main() -> None:
        pipeline = Recorder(outages=10**9)
        pipeline.error = error
        bench = Bench(patient(settings), pipeline)
        assert (await bench.writer.write(rows(*range(8)))).failed == 8
        assert sum(bench.pauses.seconds) <= 0.5

    run(main())


def test_a_store_that_goes_away_in_the_middle_of_a_split_gets_the_rest_later(settings, monkeypatch) -> None:
    sleep = Hours(monkeypatch)

    class Goes(Recorder):
        def _take(self, what, table, items):
            if any(item["id"] == 3 for item in items):
                raise ValueError("no threes")
            if any(item["id"] > 5 for item in items) and sleep.now < 1060:
                raise ConnectionResetError("gone")
            super()._take(what, table, items)

    async def main() -> None:
        bench = Bench(patient(settings), Goes(), sleep=sleep)
        result = await bench.writer.write(rows(*range(10)))
        assert result.failed_at == (3,)
        assert [i for _, i, _, _ in bench.letters()] == [3]

    run(main())


def test_hurry_ends_the_wait_for_a_store_with_dead_letters(settings) -> None:
    async def main() -> None:
        asleep = asyncio.Event()

        async def long(_seconds: float) -> None:
            asleep.set()
            await asyncio.Event().wait()

        slow = patient(settings, ITEM_RETRY_TIMES=0, ITEM_RETRY_BACKOFF=300.0)
        bench = Bench(slow, Recorder(outages=10**9), sleep=long)
        writing = asyncio.create_task(bench.writer.write(rows(1, 2)))
        await asleep.wait()
        assert bench.writer.waiting == "Recorder"
        bench.writer.shorten_deadline(time.monotonic() + 120)
        assert (await asyncio.wait_for(writing, 25)).failed == 2  # at once
        assert bench.writer.waiting is None
        assert len(bench.letters()) == 2

    run(main())


def test_a_pipeline_can_say_itself_whether_its_store_is_away(settings, monkeypatch) -> None:
    sleep = Hours(monkeypatch)

    class Knows(Recorder):
        error = RuntimeError

        def is_away(self, error):
            return "away" in str(error)

    async def main() -> None:
        bench = Bench(patient(settings), Knows(outages=20), sleep=sleep)
        assert (await bench.writer.write(rows(1))).stored == 1

    run(main())


def test_a_store_that_is_back_and_refuses_every_row_is_not_waited_for_any_more(settings, monkeypatch) -> None:
    sleep = Hours(monkeypatch)

    async def main() -> None:
        pipeline = Recorder(outages=6)
        bench = Bench(patient(settings), pipeline, sleep=sleep)

        class Refusing:
            def __call__(self, what, table, items):
                if pipeline.outages > 0:
                    pipeline.outages -= 1
                    raise ConnectionResetError("gone")
                raise ItemError("no")

        pipeline._take = Refusing()
        assert (await bench.writer.write(rows(1, 2))).failed == 2
        assert bench.writer.waiting is None
        assert [error for *_, error in bench.letters()] == ["ItemError: no"] * 2

    run(main())


@pytest.mark.parametrize(
    ("error", "away"),
    [
        (ConnectionRefusedError(), True),
        (TimeoutError(), True),
        (OSError(28, "No space left on device"), True),
        (OSError("Multiple exceptions"), True),
        (socket.gaierror(-3, "Temporary failure in name resolution"), True),
        (PermissionError(13, "Permission denied"), False),
        (NotADirectoryError(20, "Not a directory"), False),
        (sqlite3.OperationalError("database is locked"), True),
        (sqlite3.OperationalError("no such table: t"), False),
        (sqlite3.IntegrityError("UNIQUE constraint failed"), False),
        (ValueError("bad"), False),
        (ItemError("bad"), False),
    ],
)
def test_what_counts_as_a_store_that_is_away(error, away) -> None:
    assert store_away(error) is away
    opening = UnavailableError("open() failed")
    opening.__cause__ = error
    assert store_away(opening) is (away or isinstance(error, ValueError)), "raising in `open` means not now"
    assert store_away(UnavailableError("it took longer than ITEM_WRITE_TIMEOUT"))
