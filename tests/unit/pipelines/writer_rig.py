"""What tests of the batch writer share: pipelines that fail as told, a bench, rows."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace

from netspy.messages.row import Row
from netspy.pipelines.base import BasePipeline
from netspy.pipelines.dead_letters.file import DeadLetterFile
from netspy.pipelines.delivery.writer import BatchWriter
from netspy.pipelines.loader import load_pipelines
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


def rows(*ids: int, table: str = "t", bad: tuple[int, ...] = (), **more: object) -> list[Row]:
    return [Row(table, {"id": i, **({"bad": True} if i in bad else {})}, **more) for i in ids]


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 60))


class TurnedLoop(asyncio.SelectorEventLoop):
    """A loop whose clock stands still but for `turn`. `module` stands in for the module `time`."""

    now = 1000.0

    def __init__(self) -> None:
        super().__init__()
        self.module = SimpleNamespace(monotonic=self.time, time=time.time)

    def time(self) -> float:
        return self.now

    async def turn(self, seconds: float) -> None:
        """Let time pass, and whatever is due then happen."""
        self.now += seconds
        for _ in range(20):
            await asyncio.sleep(0)


def run_on_a_turned_clock(coroutine):
    with asyncio.Runner(loop_factory=TurnedLoop) as runner:
        return runner.run(coroutine)
