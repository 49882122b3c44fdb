from __future__ import annotations

import asyncio
import socket
import sqlite3
import threading
import time
from contextlib import closing
from types import SimpleNamespace

import msgspec
import pytest
from kinds_of_values import Unstorable

from netspy.errors import ItemError, PipelineError
from netspy.messages.row import Row
from netspy.pipelines import feeding
from netspy.pipelines.base import BasePipeline
from netspy.pipelines.dead_letter import DeadLetterFile, DeadRow
from netspy.pipelines.jsonl import JsonlPipeline
from netspy.pipelines.loader import load_pipelines, pipeline_name
from netspy.pipelines.sqlite import SqlitePipeline
from netspy.pipelines.verdict import UnavailableError, store_away
from netspy.pipelines.writer import BatchWriter
from netspy.settings import Settings


class Recorder(BasePipeline):
    """Keeps rows in a list; fails as told: `outages` calls, then rows marked bad."""

    error: type[Exception] = ConnectionError

    def __init__(self, outages: float = 0) -> None:
        self.outages = outages
        self.opened = self.closed = 0
        self.kept: list[tuple] = []
        self.calls: list[tuple] = []
        self.described: list[tuple] = []

    def open(self):
        self.opened += 1

    def describe(self, table, unique_key):
        self.described.append((table, unique_key))

    def save_items(self, table, items):
        self._take("save", table, items)

    def update_items(self, table, items, update_keys):
        self._take("update", table, items)

    def close(self):
        self.closed += 1

    def _take(self, what, table, items):
        self.calls.append((what, table, len(items)))
        if self.outages > 0:
            self.outages -= 1
            raise self.error("away")
        if any(item.get("bad") for item in items):
            raise self.error("bad row")
        self.kept += [(what, table, item["id"]) for item in items]


class Second(Recorder):
    pass


class Pauses:
    """A sleep that only takes notes."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        await asyncio.sleep(0)


class Bench:
    """A writer with its dead-letter file, its pauses and its events."""

    def __init__(self, settings: Settings, *pipelines: object, sleep: object = None) -> None:
        self.pauses = sleep or Pauses()
        self.events: list = []
        self.dead = DeadLetterFile(settings.FAILED_ITEM_PATH)
        self.writer = BatchWriter(
            load_pipelines(pipelines, settings), settings, dead_letter=self.dead,
            sleep=self.pauses, on_event=self.events.append,
        )  # fmt: skip

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]

    def letters(self) -> list[tuple]:
        return [(d.row.table, d.row.data.get("id"), d.row.pipelines, d.error) for d in self.dead.read()]


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return msgspec.structs.replace(settings, ITEM_RETRY_TIMES=3, ITEM_RETRY_BACKOFF=0.5, ITEM_BATCH_SIZE=100)


def rows(*ids: int, table: str = "t", bad: tuple[int, ...] = (), **more: object) -> list[Row]:
    return [Row(table, {"id": i, **({"bad": True} if i in bad else {})}, **more) for i in ids]


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 30))


def test_rows_reach_every_pipeline_grouped_and_described(settings) -> None:
    async def main() -> None:
        first, second = Recorder(), Second()
        bench = Bench(settings, first, second)
        batch = [*rows(1, 2), *rows(3, table="u", unique_key=("id",)), *rows(4)]

        result = await bench.writer.write(batch)

        assert (result.stored, result.failed, result.failed_at) == (4, 0, ())
        assert result.tables == {"t": (3, 0), "u": (1, 0)}
        for pipeline in (first, second):
            assert pipeline.calls == [("save", "t", 3), ("save", "u", 1)]
            assert pipeline.described == [("t", ()), ("u", ("id",))]
            assert pipeline.opened == 1
        await bench.writer.close()
        assert (first.closed, second.closed) == (1, 1)
        assert not bench.events
        assert not bench.dead.path.exists()

    run(main())


def test_inserts_and_updates_of_a_table_keep_their_order_whatever_stands_between(settings) -> None:
    async def main() -> None:
        pipeline = Recorder()
        bench = Bench(settings, pipeline)
        batch = [
            *rows(1),
            *rows(2, table="u"),
            *rows(3),
            *rows(1, update_keys=("id",)),
            *rows(4, table="u"),
            *rows(5),
        ]
        await bench.writer.write(batch)
        assert pipeline.calls == [("save", "t", 2), ("save", "u", 2), ("update", "t", 1), ("save", "t", 1)]

    run(main())


def test_no_call_gets_more_than_the_batch_size(settings) -> None:
    async def main() -> None:
        pipeline = Recorder()
        await Bench(settings, pipeline).writer.write(rows(*range(250)))
        assert [n for _, _, n in pipeline.calls] == [100, 100, 50]

    run(main())


def test_a_short_outage_is_waited_for_with_growing_pauses(settings) -> None:
    async def main() -> None:
        pipeline = Recorder(outages=3)
        bench = Bench(settings, pipeline)
        result = await bench.writer.write(rows(1, 2))
        assert result.stored == 2
        assert bench.pauses.seconds == [0.5, 1.0, 2.0]
        assert bench.kinds() == ["retry"] * 3
        assert bench.letters() == []

    run(main())


def test_pauses_stop_growing_at_half_a_minute(settings) -> None:
    async def main() -> None:
        bench = Bench(msgspec.structs.replace(settings, ITEM_RETRY_TIMES=9), Recorder(outages=9))
        await bench.writer.write(rows(1))
        assert bench.pauses.seconds == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]

    run(main())


def test_one_bad_row_among_many_is_dead_lettered_alone(settings) -> None:
    async def main() -> None:
        pipeline = Recorder()
        bench = Bench(settings, pipeline)
        result = await bench.writer.write(rows(*range(100), bad=(63,)))

        assert (result.stored, result.failed, result.failed_at) == (99, 1, (63,))
        assert [i for _, _, i in pipeline.kept] == [i for i in range(100) if i != 63]
        assert bench.letters() == [("t", 63, (pipeline_name(Recorder),), "ConnectionError: bad row")]
        assert bench.kinds() == ["retry"] * 3 + ["dead_letter"]
        assert (
            "Recorder could not store 100 row(s) of 't' (try 1: ConnectionError: bad row)"
            in bench.events[0].message
        )
        assert "1 row(s) of 't' could not be stored by Recorder" in bench.events[-1].message
        assert len(pipeline.calls) < 25

    run(main())


@pytest.mark.parametrize("error", [ItemError, sqlite3.IntegrityError, NotImplementedError])
def test_an_error_of_the_row_itself_costs_no_pause(settings, error) -> None:
    async def main() -> None:
        pipeline = Recorder()
        pipeline.error = error
        bench = Bench(settings, pipeline)
        result = await bench.writer.write(rows(*range(10), bad=(3, 4)))
        assert result.failed_at == (3, 4)
        assert bench.pauses.seconds == []
        assert "down" not in bench.kinds()

    run(main())


def test_false_counts_as_not_stored(settings) -> None:
    class Refuses(Recorder):
        def save_items(self, table, items):
            return False

    async def main() -> None:
        bench = Bench(settings, Refuses())
        result = await bench.writer.write(rows(1))
        assert result.failed == 1
        assert bench.letters()[0][3] == "PipelineError: save_items returned False"

    run(main())


def test_a_database_refused_at_start_is_retried_dead_lettered_and_alarmed(settings) -> None:
    class Refused(Recorder):
        def open(self):
            super().open()
            raise ConnectionRefusedError("port 3306")

    async def main() -> None:
        pipeline = Refused()
        bench = Bench(settings, pipeline)
        result = await bench.writer.write([*rows(*range(50)), *rows(1, 2, table="u")])
        assert (result.stored, result.failed) == (0, 52)
        assert len(bench.letters()) == 52
        assert "open() failed: ConnectionRefusedError: port 3306" in bench.letters()[0][3]
        assert bench.kinds().count("down") == 1
        # The second table of a batch doesn't wait through the whole series again.
        assert pipeline.opened == 5
        assert pipeline.calls == []

        Refused.open = Recorder.open
        assert (await bench.writer.write(rows(60))).stored == 1
        assert bench.kinds()[-1] == "up"

    run(main())


def test_a_long_outage_ends_in_dead_letters_within_bounded_time(settings, monkeypatch) -> None:
    monkeypatch.setattr(feeding, "_PATIENCE_S", 0.0)

    async def main() -> None:
        pipeline = Recorder(outages=10**9)
        bench = Bench(settings, pipeline)
        result = await bench.writer.write(rows(*range(100)))
        assert result.failed == 100
        assert len(pipeline.calls) == 4
        assert "down" in bench.kinds()

    run(main())


def test_a_retry_never_writes_to_the_pipeline_that_has_the_row(settings) -> None:
    async def main() -> None:
        good, shaky = Recorder(), Second(outages=2)
        bench = Bench(settings, good, shaky)
        result = await bench.writer.write(rows(*range(10), bad=()))
        assert result.stored == 10
        assert len(good.kept) == len(shaky.kept) == 10
        assert good.calls == [("save", "t", 10)]

    run(main())


def test_a_row_that_one_of_two_pipelines_lacks_names_only_that_one(settings) -> None:
    class Picky(Second):
        def save_items(self, table, items):
            if any(item["id"] == 2 for item in items):
                raise ItemError("no twos")
            super().save_items(table, items)

    async def main() -> None:
        bench = Bench(settings, Recorder(), Picky())
        result = await bench.writer.write(rows(1, 2, 3))
        assert (result.stored, result.failed_at) == (2, (1,))
        assert bench.letters() == [("t", 2, (pipeline_name(Picky),), "ItemError: no twos")]

    run(main())


class Full:
    """A dead-letter file on a full disk."""

    def __init__(self, to: DeadLetterFile) -> None:
        self.full = True
        self.to = to

    def append(self, rows) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        self.to.append(rows)


def test_when_not_even_dead_letters_can_be_written_nothing_is_claimed_and_nothing_doubled(settings) -> None:
    async def main() -> None:
        good, broken = Recorder(), Second()
        broken.error = ItemError
        disk = Full(DeadLetterFile(settings.FAILED_ITEM_PATH))
        events: list = []
        writer = BatchWriter([good, broken], settings, dead_letter=disk, on_event=events.append)
        batch = rows(1, 2, 3)
        batch[1].data["bad"] = True
        good_take = good._take
        good._take = lambda what, table, items: good_take(what, table, [{"id": i["id"]} for i in items])
        for _attempt in range(3):
            with pytest.raises(PipelineError, match="No space left"):
                await writer.write(batch)
        disk.full = False
        result = await writer.write(batch)

        assert (result.stored, result.failed_at) == (2, (1,))
        assert good.kept == [("save", "t", 1), ("save", "t", 2), ("save", "t", 3)]
        assert broken.kept == [("save", "t", 1), ("save", "t", 3)]
        assert [d.row.pipelines for d in disk.to.read()] == [(pipeline_name(Second),)]
        assert [e.kind for e in events].count("stuck") == 3
        # What is done is forgotten: an equal batch is a new one.
        await writer.write(rows(1))
        assert len(good.kept) == 4

    run(main())


def test_an_item_can_name_its_pipelines_by_path_by_name_or_by_another_path(
    settings, tmp_path, monkeypatch
) -> None:
    (tmp_path / "my_project.py").write_text("from netspy.pipelines.jsonl import JsonlPipeline as Lines\n")
    monkeypatch.syspath_prepend(tmp_path)

    async def main() -> None:
        pipeline = Recorder()
        bench = Bench(settings, pipeline)
        for number, names in enumerate(
            [
                ("netspy.pipelines.jsonl.JsonlPipeline",),
                ("netspy.pipelines.jsonl:JsonlPipeline",),
                ("my_project.Lines",),
            ]
        ):
            assert (await bench.writer.write(rows(number, pipelines=names))).stored == 1
        assert (await bench.writer.write(rows(7, pipelines=("Recorder",)))).stored == 1
        assert (await bench.writer.write(rows(8, pipelines=("__main__.Recorder",)))).stored == 1
        assert (await bench.writer.write(rows(9, pipelines=()))).stored == 1

        assert [i for _, _, i in pipeline.kept] == [7, 8, 9]
        assert len((tmp_path / "not/there/yet/t.jsonl").read_text().splitlines()) == 3
        assert sum(isinstance(r.pipeline, JsonlPipeline) for r in set(bench.writer._runners.values())) == 1
        await bench.writer.close()

    run(main())


def test_a_pipeline_that_can_not_be_loaded_costs_only_its_rows(settings) -> None:
    async def main() -> None:
        bench = Bench(settings, Recorder())
        result = await bench.writer.write([*rows(1), *rows(2, pipelines=("nowhere.Pipe",)), *rows(3)])
        assert result.failed_at == (1,)
        assert bench.letters()[0][2] == ("nowhere.Pipe",)
        assert "there is no module nowhere" in bench.letters()[0][3]
        assert bench.kinds() == ["down", "dead_letter"]

    run(main())


def test_two_pipelines_of_one_class_are_told_apart(settings) -> None:
    async def main() -> None:
        whole, torn = Recorder(), Recorder(outages=10**9)
        torn.error = ItemError
        bench = Bench(settings, whole, torn)
        await bench.writer.write(rows(1))
        assert bench.letters()[0][2] == (f"{pipeline_name(Recorder)}#2",)

    run(main())


def test_items_without_any_pipeline_are_said_once(settings) -> None:
    async def main() -> None:
        bench = Bench(settings)
        for _ in range(2):
            assert (await bench.writer.write(rows(1, 2))).stored == 2
        assert bench.kinds() == ["no_pipeline"]

    run(main())


def test_async_pipelines_run_on_the_loop_and_plain_ones_beside_it(settings) -> None:
    class Async(Recorder):
        async def open(self):
            self.opened += 1

        async def save_items(self, table, items):
            await asyncio.sleep(0)
            self.thread = threading.current_thread()
            super().save_items(table, items)

    class Plain(Second):
        def save_items(self, table, items):
            self.thread = threading.current_thread()
            super().save_items(table, items)

    async def main() -> None:
        on_loop, beside = Async(), Plain()
        bench = Bench(settings, on_loop, beside)
        await bench.writer.write(rows(1))
        assert on_loop.thread is threading.current_thread()
        assert beside.thread is not threading.current_thread()
        assert beside.thread.daemon
        assert (len(on_loop.kept), len(beside.kept)) == (1, 1)
        await bench.writer.close()

    run(main())


def test_calls_for_one_pipeline_never_overlap(settings) -> None:
    class Busy(Recorder):
        inside = most = 0

        async def save_items(self, table, items):
            Busy.inside += 1
            Busy.most = max(Busy.most, Busy.inside)
            await asyncio.sleep(0.001)
            Busy.inside -= 1

    async def main() -> None:
        bench = Bench(settings, Busy())
        await asyncio.gather(*(bench.writer.write(rows(n)) for n in range(20)))
        assert Busy.most == 1

    run(main())


class Stuck(Recorder):
    """save_items doesn't return until `release` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.release = threading.Event()
        self.entered = threading.Event()

    def save_items(self, table, items):
        self.entered.set()
        self.release.wait(30)
        super().save_items(table, items)


def test_a_call_that_never_returns_is_given_up_and_holds_up_nothing_else(settings) -> None:
    async def main() -> None:
        stuck, other = Stuck(), Second()
        bench = Bench(msgspec.structs.replace(settings, ITEM_WRITE_TIMEOUT=0.05), stuck, other)
        result = await bench.writer.write(rows(1))
        assert result.failed == 1
        assert other.kept == [("save", "t", 1)]
        assert "still busy" in bench.letters()[0][3]
        await bench.writer.close()
        assert "close_failed" in bench.kinds()
        stuck.release.set()

    started = time.monotonic()
    run(main())
    assert time.monotonic() - started < 5


def test_hurry_cuts_a_running_call_at_the_deadline_and_starts_nothing_after_it(settings) -> None:
    async def main() -> None:
        stuck = Stuck()
        bench = Bench(settings, stuck)
        writing = asyncio.create_task(bench.writer.write(rows(1, 2)))
        await asyncio.to_thread(stuck.entered.wait, 10)
        deadline = time.monotonic() + 0.5
        bench.writer.hurry(deadline)
        result = await asyncio.wait_for(writing, 5)
        assert time.monotonic() < deadline  # there was time left for the dead letters
        assert result.failed == 2
        assert "time to stop" in bench.letters()[0][3]
        assert (await asyncio.wait_for(bench.writer.write(rows(3)), 5)).failed == 1
        stuck.release.set()
        assert len(bench.letters()) == 3

    run(main())


def test_hurry_ends_a_long_pause_with_one_more_try(settings) -> None:
    async def main() -> None:
        pipeline = Recorder(outages=1)
        asleep = asyncio.Event()

        async def long(_seconds: float) -> None:
            asleep.set()
            await asyncio.Event().wait()

        settings_ = msgspec.structs.replace(settings, ITEM_RETRY_BACKOFF=30.0)
        bench = Bench(settings_, pipeline, sleep=long)
        writing = asyncio.create_task(bench.writer.write(rows(1)))
        await asleep.wait()
        bench.writer.hurry(time.monotonic() + 8)
        assert (await asyncio.wait_for(writing, 5)).stored == 1

    run(main())


def test_a_timed_out_async_call_is_cancelled(settings) -> None:
    class Hangs(Recorder):
        cancelled = 0

        async def save_items(self, table, items):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                Hangs.cancelled += 1
                raise

    async def main() -> None:
        tight = msgspec.structs.replace(settings, ITEM_WRITE_TIMEOUT=0.02, ITEM_RETRY_TIMES=1)
        bench = Bench(tight, Hangs())
        assert (await bench.writer.write(rows(1))).failed == 1
        assert Hangs.cancelled == 2

    run(main())


def test_a_listener_that_raises_costs_no_item(settings) -> None:
    async def main() -> None:
        pipeline = Recorder(outages=1)
        writer = BatchWriter(
            [pipeline], settings, dead_letter=DeadLetterFile(settings.FAILED_ITEM_PATH),
            sleep=Pauses(), on_event=lambda event: 1 / 0,
        )  # fmt: skip
        assert (await writer.write(rows(1))).stored == 1

    run(main())


def test_bad_rows_and_unknown_updates_in_a_real_database_cost_only_themselves(settings) -> None:
    async def main() -> None:
        bench = Bench(settings, SqlitePipeline)
        batch = [Row("t", {"id": i, "v": f"v{i}"}, unique_key=("id",)) for i in range(50)]
        batch[7].data["v"] = Unstorable()
        batch[8].data.clear()
        batch.append(Row("t", {"id": 3, "v": "new"}, update_keys=("id",)))
        batch.append(Row("t", {"id": 99, "v": "lost"}, update_keys=("id",)))
        batch.append(Row("t", {"id": 1, "v": "again"}, unique_key=("id",)))
        result = await bench.writer.write(batch)
        await bench.writer.close()

        assert result.failed_at == (7, 8, 51)
        errors = [error for *_, error in bench.letters()]
        assert ["Unstorable" in errors[0], "no fields" in errors[1], "no row of table" in errors[2]] == [
            True
        ] * 3
        assert bench.pauses.seconds == []
        with closing(sqlite3.connect(settings.SQLITE_PATH)) as db:
            kept = dict(db.execute("SELECT id, v FROM t").fetchall())
        assert kept == {i: f"v{i}" for i in range(50) if i not in (7, 8)} | {3: "new", 1: "again"}

    run(main())


# -- a store that is away --------------------------------------------------------------------------------------


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

        slow = patient(settings, ITEM_RETRY_TIMES=0, ITEM_RETRY_BACKOFF=30.0)
        bench = Bench(slow, Recorder(outages=10**9), sleep=long)
        writing = asyncio.create_task(bench.writer.write(rows(1, 2)))
        await asleep.wait()
        assert bench.writer.waiting == "Recorder"
        began = time.monotonic()
        bench.writer.hurry(began + 2)
        assert (await asyncio.wait_for(writing, 5)).failed == 2
        assert time.monotonic() - began < 2
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


def test_refused_rows_are_dead_letters_too(settings) -> None:
    async def main() -> None:
        bench = Bench(settings, Recorder())
        await bench.writer.refuse([DeadRow(row, "price: wrong", 5.0) for row in rows(1, 2)])
        assert bench.letters() == [("t", 1, None, "price: wrong"), ("t", 2, None, "price: wrong")]
        assert bench.kinds() == []
        full = BatchWriter([], settings, dead_letter=Full(bench.dead))
        with pytest.raises(PipelineError, match="No space left"):
            await full.refuse([DeadRow(rows(1)[0], "price: wrong", 5.0)])

    run(main())


def test_rows_that_fail_alike_are_one_event_with_their_number(settings) -> None:
    """The text of an error reaches the log once per cause, not once per row."""

    class Numbers(Recorder):
        def _take(self, what, table, items):
            raise ValueError(f"row {items[0]['id']}: duplicate key 'a{items[0]['id']}'")

    async def main() -> None:
        bench = Bench(msgspec.structs.replace(settings, ITEM_RETRY_TIMES=0), Numbers())
        await bench.writer.write(rows(*range(30)))
        [letters] = [event for event in bench.events if event.kind == "dead_letter"]
        assert letters.rows == 30
        assert letters.cause == "ValueError: row …: duplicate key …"

    run(main())
