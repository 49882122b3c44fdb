from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from contextlib import closing

import msgspec
import pytest
from kinds_of_values import Unstorable
from writer_rig import Bench, Pauses, Recorder, Second, rows, run, run_on_a_turned_clock

from netspy.errors import ItemError, PipelineError
from netspy.messages.row import Row
from netspy.pipelines.dead_letters.file import DeadLetterFile, DeadRow
from netspy.pipelines.delivery import deadline, feeding, writer
from netspy.pipelines.delivery.writer import BatchWriter
from netspy.pipelines.jsonl import JsonlPipeline
from netspy.pipelines.loader import pipeline_name
from netspy.pipelines.sqlite import SqlitePipeline
from netspy.settings import Settings


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return msgspec.structs.replace(settings, ITEM_RETRY_TIMES=3, ITEM_RETRY_BACKOFF=0.5, ITEM_BATCH_SIZE=100)


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
        bench = Bench(msgspec.structs.replace(settings, ITEM_WRITE_TIMEOUT=60.0), stuck, other)
        writing = asyncio.create_task(bench.writer.write(rows(1)))
        await asyncio.to_thread(stuck.entered.wait, 30)
        beside = bench.writer._runners[pipeline_name(Second)]
        while beside.lock.locked():
            await asyncio.sleep(0)
        assert other.kept == [("save", "t", 1)]
        await asyncio.get_running_loop().turn(59.9)
        assert not writing.done()
        await asyncio.get_running_loop().turn(0.2)
        result = await writing
        assert result.failed == 1
        assert "still busy" in bench.letters()[0][3]
        await bench.writer.close()
        assert "close_failed" in bench.kinds()
        stuck.release.set()

    run_on_a_turned_clock(main())


def test_hurry_cuts_a_running_call_at_the_deadline_and_starts_nothing_after_it(settings, monkeypatch) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        for module in (deadline, writer):
            monkeypatch.setattr(module, "time", loop.module)
        stuck = Stuck()
        bench = Bench(settings, stuck)
        writing = asyncio.create_task(bench.writer.write(rows(1, 2)))
        await asyncio.to_thread(stuck.entered.wait, 30)
        bench.writer.shorten_deadline(loop.time() + 60)
        await loop.turn(59.4)
        assert not writing.done()
        await loop.turn(0.2)  # the last half second is for the dead letters
        result = await writing
        assert result.failed == 2
        assert "time to stop" in bench.letters()[0][3]
        assert (await bench.writer.write(rows(3))).failed == 1
        stuck.release.set()
        assert len(bench.letters()) == 3

    run_on_a_turned_clock(main())


def test_hurry_ends_a_long_pause_with_one_more_try(settings) -> None:
    async def main() -> None:
        pipeline = Recorder(outages=1)
        asleep = asyncio.Event()

        async def long(_seconds: float) -> None:
            asleep.set()
            await asyncio.Event().wait()

        settings_ = msgspec.structs.replace(settings, ITEM_RETRY_BACKOFF=300.0)
        bench = Bench(settings_, pipeline, sleep=long)
        writing = asyncio.create_task(bench.writer.write(rows(1)))
        await asleep.wait()
        bench.writer.shorten_deadline(time.monotonic() + 120)
        assert (await asyncio.wait_for(writing, 25)).stored == 1  # at once

    run(main())


def test_a_timed_out_async_call_is_cancelled(settings) -> None:
    class Hangs(Recorder):
        entered = cancelled = 0

        async def save_items(self, table, items):
            Hangs.entered += 1
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                Hangs.cancelled += 1
                raise

    async def main() -> None:
        minute = msgspec.structs.replace(settings, ITEM_WRITE_TIMEOUT=60.0, ITEM_RETRY_TIMES=1)
        bench = Bench(minute, Hangs())
        writing = asyncio.create_task(bench.writer.write(rows(1)))
        for attempt in (1, 2):
            while Hangs.entered < attempt:
                await asyncio.sleep(0)
            await asyncio.get_running_loop().turn(60.1)
            assert Hangs.cancelled == attempt
        assert (await writing).failed == 1

    run_on_a_turned_clock(main())


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
