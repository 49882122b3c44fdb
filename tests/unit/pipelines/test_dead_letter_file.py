from __future__ import annotations

import asyncio
import json
import multiprocessing
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from kinds_of_values import ITEM, Unstorable, XPathText

from netspy.errors import ItemError, PipelineError
from netspy.messages.row import Row
from netspy.pipelines.base import BasePipeline
from netspy.pipelines.dead_letters.file import DeadLetterFile, DeadRow, Replayed
from netspy.pipelines.dead_letters.records import line_of
from netspy.pipelines.delivery.writer import BatchWriter
from netspy.pipelines.loader import pipeline_name
from netspy.pipelines.local.shared_file import locked
from netspy.pipelines.sqlite import SqlitePipeline

if TYPE_CHECKING:
    from pathlib import Path

    from netspy.settings import Settings

SQLITE = "netspy.pipelines.sqlite.SqlitePipeline"


class Memory(BasePipeline):
    """Keeps rows in a list, but for ids in `refuse`."""

    def __init__(self) -> None:
        self.kept: list = []
        self.refuse: set = set()

    def save_items(self, table, items):
        if any(item["id"] in self.refuse for item in items):
            raise ItemError("refused")
        self.kept += [item["id"] for item in items]


class Other(Memory):
    pass


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 100))


@pytest.fixture
def dead(settings: Settings) -> DeadLetterFile:
    return DeadLetterFile(settings.FAILED_ITEM_PATH)


def letters(*ids: int, pipelines: tuple[str, ...] | None = None, **more: object) -> list[DeadRow]:
    return [DeadRow(Row("t", {"id": i}, pipelines, **more), "away", 1_700_000_000.0) for i in ids]


def ids(dead: DeadLetterFile) -> list[int]:
    return [letter.row.data["id"] for letter in dead.read()]


def test_every_kind_of_value_comes_back_as_it_went_in(dead) -> None:
    item = ITEM | {"tuple": (1, (2,)), "key": {1: "a", "!set": [1]}, "!": None}
    row = Row("t", item, ("p.A",), ("id",), ("id", "j"))
    dead.append([DeadRow(row, "why", 1_700_000_000.5)])

    [back] = dead.read()

    assert back.error == "why"
    assert back.time == 1_700_000_000.5
    assert back.row[2:] == row[2:]
    assert repr(back.row.data) == repr(item)
    assert back.row.data["dt"] == datetime(2026, 1, 1, 8, tzinfo=timezone(timedelta(hours=8)))
    assert back.row.data["dec"] == Decimal("19.995")


def test_what_can_not_travel_is_kept_as_text_and_said(dead) -> None:
    itself: dict = {"id": 1, "x": XPathText("xpath"), "o": Unstorable()}
    itself["me"] = itself
    dead.append([DeadRow(Row("t", itself), "why", 0.0)])
    [back] = dead.read()
    assert back.row.data == {"id": 1, "x": "xpath", "o": "<a socket>", "me": "<contains itself>"}
    assert back.error.startswith("why (kept with some values as text")


def test_a_row_larger_than_a_queue_payload_fits(dead) -> None:
    dead.append([DeadRow(Row("t", {"html": "x" * 6_000_000, "b": b"\0"}), "why", 0.0)])
    [back] = dead.read()
    assert len(back.row.data["html"]) == 6_000_000


def test_a_torn_last_line_is_passed_over_by_readers_and_cut_by_the_next_writer(dead) -> None:
    dead.append(letters(1))
    with dead.path.open("ab") as file:
        file.write(b'{"table":"t","data":{"id":2')
    assert ids(dead) == [1]
    dead.append(letters(3))
    assert ids(dead) == [1, 3]
    assert dead.path.with_name("failed_items.jsonl.torn").read_bytes() == b'{"table":"t","data":{"id":2\n'


def test_a_line_as_the_documentation_shows_it_is_read(dead) -> None:
    dead.path.parent.mkdir(parents=True)
    dead.path.write_text(
        '{"table": "t", "data": {"id": 1}}\n{"table": "t", "data": {"id": 2}, "pipelines": ["p.A"]}\n'
    )
    first, second = dead.read()
    assert first.row == Row("t", {"id": 1})
    assert second.row.pipelines == ("p.A",)


def test_a_replay_writes_only_to_the_pipeline_that_lacks_the_row(settings, dead) -> None:
    async def main() -> None:
        whole, broken = Memory(), Other()
        broken.refuse = {1, 2, 3}
        writer = BatchWriter([whole, broken], settings, dead_letter=dead)
        await writer.write([Row("t", {"id": i}) for i in (1, 2, 3)])
        assert whole.kept == [1, 2, 3]

        broken.refuse = {2}
        seen: list = []
        replayed = await dead.replay(
            writer, progress=lambda done, total: seen.append((done, total)), batch_size=2
        )

        assert replayed == (2, 1, 0, 0)
        assert whole.kept == [1, 2, 3]
        assert broken.kept == [1, 3]
        assert [(d.row.data["id"], d.row.pipelines) for d in dead.read()] == [(2, (pipeline_name(Other),))]
        assert seen == [(2, 3), (3, 3)]
        broken.refuse = set()
        assert await dead.replay(writer) == (1, 0, 0, 0)
        assert await dead.replay(writer) == (0, 0, 0, 0)
        assert list(dead.path.parent.iterdir()) == []

    run(main())


def test_a_line_that_can_not_be_read_stays_in_the_file_word_for_word(settings, dead) -> None:
    async def main() -> None:
        dead.append(letters(1))
        with dead.path.open("ab") as file:
            file.write(b'{"table":7}\nnot json\n\n{"table":"t","data":{"id":{"!future":1}}}\n')
        memory = Memory()
        writer = BatchWriter([memory], settings, dead_letter=dead)
        assert await dead.replay(writer) == (1, 3, 0, 0)
        assert memory.kept == [1]
        assert dead.path.read_bytes() == b'{"table":7}\nnot json\n{"table":"t","data":{"id":{"!future":1}}}\n'

    run(main())


def test_rows_that_fail_while_a_replay_runs_wait_for_the_next_one(settings, dead) -> None:
    class Slow(Memory):
        def save_items(self, table, items):
            dead.append(letters(100))
            super().save_items(table, items)

    async def main() -> None:
        slow = Slow()
        dead.append(letters(1, 2))
        assert await dead.replay(BatchWriter([slow], settings, dead_letter=dead)) == (2, 0, 0, 0)
        assert ids(dead) == [100]

    run(main())


def test_a_second_replay_at_the_same_time_is_refused(settings, dead) -> None:
    async def main() -> None:
        dead.append(letters(1))
        memory = Memory()
        writer = BatchWriter([memory], settings, dead_letter=dead)

        class Nested:
            async def write(self, batch):
                dead.append(letters(2))
                with pytest.raises(PipelineError, match="being replayed by another process"):
                    await dead.replay(writer)
                return await writer.write(batch)

        assert await dead.replay(Nested()) == (1, 0, 0, 0)
        assert memory.kept == [1]
        assert ids(dead) == [2]

    run(main())


def test_a_replay_that_can_not_put_rows_back_keeps_them_claimed(settings, dead) -> None:
    class Broken:
        async def write(self, batch):
            raise PipelineError("disk full")

    async def main() -> None:
        dead.append(letters(1, 2))
        with pytest.raises(PipelineError, match="disk full"):
            await dead.replay(Broken())
        dead.append(letters(3))
        assert ids(dead) == [1, 2, 3]
        memory = Memory()
        assert await dead.replay(BatchWriter([memory], settings, dead_letter=dead)) == (3, 0, 0, 0)
        assert memory.kept == [1, 2, 3]

    run(main())


KILLED = """
import asyncio, os, signal, sys
from netspy.pipelines.dead_letters.file import DeadLetterFile
from netspy.pipelines.loader import load_pipelines
from netspy.pipelines.delivery.writer import BatchWriter
from netspy.settings import Settings
settings = Settings(SQLITE_PATH=sys.argv[1] + "/items.db", FAILED_ITEM_PATH=sys.argv[1] + "/failed_items.jsonl")
dead = DeadLetterFile(settings.FAILED_ITEM_PATH)
writer = BatchWriter(load_pipelines(["netspy.pipelines.sqlite.SqlitePipeline"], settings), settings, dead_letter=dead)

class Killer:
    calls = 0
    async def write(self, batch):
        result = await writer.write(batch)
        Killer.calls += 1
        if Killer.calls == 3:
            os.kill(os.getpid(), signal.SIGKILL)  # stored, but not marked as done
        return result

asyncio.run(dead.replay(Killer(), batch_size=10))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_a_replay_killed_in_the_middle_goes_on_where_it_was_and_keyed_rows_stay_single(
    settings, dead, out
) -> None:
    dead.append(letters(*range(60), pipelines=(SQLITE,), unique_key=("id",)))
    done = subprocess.run([sys.executable, "-c", KILLED, str(out)], timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    assert ids(dead) == list(range(20, 60))
    dead.append(letters(60, pipelines=(SQLITE,), unique_key=("id",)))

    async def main() -> None:
        writer = BatchWriter([], settings, dead_letter=dead)
        assert await dead.replay(writer, batch_size=10) == (41, 0, 0, 0)
        await writer.close()

    run(main())
    with closing(sqlite3.connect(settings.SQLITE_PATH)) as db:
        assert [i for (i,) in db.execute("SELECT id FROM t ORDER BY id")] == list(range(61))
    assert [p.name for p in out.iterdir()] == ["items.db"]


def append_some(path: str, who: int) -> None:
    dead = DeadLetterFile(path)
    for n in range(100):
        dead.append(letters(who * 1000 + n))


def test_appends_of_other_processes_during_replays_are_neither_lost_nor_doubled(settings, dead) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=append_some, args=(str(dead.path), who)) for who in range(3)]
    for process in writers:
        process.start()
    memory = Memory()

    async def main() -> None:
        writer = BatchWriter([memory], settings, dead_letter=dead)
        while any(process.is_alive() for process in writers):
            await dead.replay(writer)
        await dead.replay(writer)

    run(main())
    for process in writers:
        process.join(60)
        assert process.exitcode == 0
    assert sorted(memory.kept) == sorted(who * 1000 + n for who in range(3) for n in range(100))


def test_a_lock_that_is_never_given_back_is_an_error_not_a_hang(tmp_path: Path) -> None:
    path = tmp_path / "f"
    with (
        locked(path),
        pytest.raises(TimeoutError, match="locked by another process"),
        locked(path, wait_s=0.05),
    ):
        pass
    with locked(path, wait_s=0.05) as file:
        file.append(b"x")


def test_a_waiter_for_the_lock_writes_to_the_file_that_took_the_place(tmp_path: Path) -> None:
    path, new = tmp_path / "f", tmp_path / "new"
    with locked(path) as file:
        file.append(b"old\n")
        new.write_bytes(b"new\n")
        waiter = threading.Thread(target=append_line, args=(path,))
        waiter.start()
        file.replace_by(new)
    waiter.join(60)
    assert path.read_bytes() == b"new\nline\n"


def append_line(path: Path) -> None:
    with locked(path) as file:
        file.append(b"line\n")


def test_lines_are_plain_json_for_other_tools(dead) -> None:
    dead.append(letters(1, pipelines=("p.A",)))
    assert json.loads(dead.path.read_text()) == {
        "table": "t",
        "data": {"id": 1},
        "pipelines": ["p.A"],
        "update_keys": None,
        "unique_key": [],
        "error": "away",
        "time": "2023-11-14T22:13:20.000+00:00",
    }


def test_the_sqlite_pipeline_named_by_letters_is_the_real_one() -> None:
    assert pipeline_name(SqlitePipeline) == SQLITE


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense\n", b"null\n", b"[1]\n", b"1\n", b'"text"\n', b'{"table":1,"data":{}}\n', b"\xff\xfe\n", b'{"table":"t"}\n',
        b'{"table":"t","data":{},"time":"9999-12-31T23:59:59-23:00"}\n',
        b'{"table":"t","data":{},"time":"0001-01-01T00:00:00+23:00"}\n',
        b'{"table":"t","data":{},"time":"yesterday"}\n',
        b'{"table":"t","data":{},"pipelines":"one"}\n',
        b'{"table":"t","data":{},"update_keys":[1]}\n',
        b'{"table":"t","data":{"x":{"!":"datetime","v":"no"}}}\n',
        b'{"table":"t","data":{"x":{"!d":5}}}\n',
        b'{"data":' + b"[" * 50_000 + b"\n",
    ],
)  # fmt: skip
def test_f10_a_line_that_can_not_be_read_stays_and_costs_no_other(tmp_path, line) -> None:
    """F10: whatever stands among the dead letters, the others are written again."""
    letters = DeadLetterFile(tmp_path / "failed.jsonl")
    row = Row("t", {"id": 1})
    good = line_of(DeadRow(row, "away", 5.0))
    letters.path.write_bytes(line + good + line)

    class Writes:
        def __init__(self):
            self.stored = []

        async def write(self, batch):
            self.stored.extend(one.data for one in batch)
            return Replayed(len(batch), 0)

    writer = Writes()
    assert len(list(letters.read())) >= 1
    done = asyncio.run(letters.replay(writer))
    assert {"id": 1} in writer.stored
    if done.failed:
        assert (done.failed, letters.path.read_bytes()) == (2, line + line)
    else:
        assert len(writer.stored) == 3, "it is a letter after all"
