"""Pipelines that answer for each row, and pipelines that complete rows before others store them."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from netspy.errors import ItemError, RowsFailedError
from netspy.messages.row import Row
from netspy.pipelines.base import BasePipeline
from netspy.pipelines.dead_letters.file import DeadLetterFile
from netspy.pipelines.delivery.writer import BatchWriter
from netspy.pipelines.errors import UnavailableError
from netspy.pipelines.loader import load_pipelines, pipeline_name


class PerRow(BasePipeline):
    """Stores rows one by one; `bad` rows never, `busy` rows after as many refusals as they say."""

    refusal: type[Exception] = UnavailableError

    def __init__(self) -> None:
        self.kept: list[int] = []
        self.calls: list[list[int]] = []

    def save_items(self, table, items):
        self.calls.append([item["id"] for item in items])
        failed: dict[int, Exception] = {}
        for at, item in enumerate(items):
            refusals = sum(item["id"] in ids for ids in self.calls)
            if item.get("bad"):
                failed[at] = ItemError("wrong type")
            elif refusals <= item.get("busy", 0):
                failed[at] = self.refusal("429")
            else:
                self.kept.append(item["id"])
        if failed:
            raise RowsFailedError(failed)


class Plain(BasePipeline):
    def __init__(self) -> None:
        self.kept: list[dict] = []
        self.refuse: set[int] = set()

    def save_items(self, table, items):
        if any(item["id"] in self.refuse for item in items):
            raise ItemError("refused")
        self.kept += items


class Completing(BasePipeline):
    """Adds a field; `hopeless` rows can't be completed."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.outages = 0
        self.mended = False
        self.stored: list[int] = []

    async def prepare_items(self, table, items):
        if self.outages:
            self.outages -= 1
            raise ConnectionError("away")
        self.seen += [item["id"] for item in items]
        return [
            TimeoutError("no file")
            if item.get("hopeless") and not self.mended
            else {**item, "extra": item["id"] * 10}
            for item in items
        ]

    def save_items(self, table, items):
        self.stored += [item["id"] for item in items]


class Bench:
    def __init__(self, settings, *pipelines: BasePipeline, **more: object) -> None:
        self.pauses: list[float] = []
        self.events: list = []
        self.settings = msgspec.structs.replace(settings, **more)
        self.dead = DeadLetterFile(settings.FAILED_ITEM_PATH)
        self.pipelines = pipelines

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0)

    def writer(self) -> BatchWriter:
        return BatchWriter(
            load_pipelines(self.pipelines, self.settings),
            self.settings,
            dead_letter=self.dead,
            sleep=self._sleep,
            on_event=self.events.append,
        )

    def write(self, *rows: Row):
        async def main():
            writer = self.writer()
            try:
                return await writer.write(rows)
            finally:
                await writer.close()

        return asyncio.run(asyncio.wait_for(main(), 60))

    def replay(self):
        async def main():
            writer = self.writer()
            try:
                return await self.dead.replay(writer)
            finally:
                await writer.close()

        return asyncio.run(asyncio.wait_for(main(), 60))

    def letters(self) -> list[tuple]:
        return [(d.row.data["id"], d.row.pipelines, d.error) for d in self.dead.read()]


def row(number: int, **data: object) -> Row:
    return Row("t", {"id": number, **data})


def test_rows_that_a_store_names_are_dead_lettered_without_splitting_the_batch(settings) -> None:
    store = PerRow()
    bench = Bench(settings, store)
    result = bench.write(*(row(n, bad=n in {3, 7}) for n in range(10)))
    assert (result.stored, result.failed_at) == (8, (3, 7))
    assert len(store.calls) == 1
    assert bench.letters() == [(n, (pipeline_name(store),), "ItemError: wrong type") for n in (3, 7)]


def test_rows_that_a_busy_store_refused_are_tried_again_alone(settings) -> None:
    store = PerRow()
    bench = Bench(settings, store, ITEM_RETRY_BACKOFF=0.5)
    result = bench.write(row(0), row(1, busy=1), row(2, bad=True), row(3, busy=2))
    assert (result.stored, result.failed_at) == (3, (2,))
    assert store.calls == [[0, 1, 2, 3], [1, 3], [3]]
    assert store.kept == [0, 1, 3]
    assert bench.pauses[:2] == [0.5, 1.0]


def test_rows_that_stay_refused_are_dead_lettered_with_their_own_reason(settings) -> None:
    store = PerRow()
    store.refusal = ValueError
    bench = Bench(settings, store, ITEM_RETRY_TIMES=2)
    result = bench.write(row(0), row(1, busy=99), row(2, bad=True))
    assert (result.stored, result.failed_at) == (1, (1, 2))
    assert len(store.calls) == 3  # the tries, and no splitting
    assert sorted(letter[2] for letter in bench.letters()) == ["ItemError: wrong type", "ValueError: 429"]


def test_rows_named_while_a_batch_is_split_are_not_split_further(settings) -> None:
    class Moody(PerRow):
        def save_items(self, table, items):
            if len(items) > 2:
                self.calls.append([item["id"] for item in items])
                raise ItemError("the batch is too large")
            super().save_items(table, items)

    store = Moody()
    result = Bench(settings, store).write(*(row(n, bad=n == 1) for n in range(4)))
    assert (result.stored, result.failed_at) == (3, (1,))
    assert store.calls == [[0, 1, 2, 3], [0, 1], [2, 3]]


def test_a_place_that_is_none_fails_the_batch_instead_of_losing_a_row(settings) -> None:
    class Wrong(BasePipeline):
        def save_items(self, table, items):
            raise RowsFailedError({len(items): ItemError("off by one")})

    bench = Bench(settings, Wrong(), ITEM_RETRY_TIMES=0)
    assert bench.write(row(0), row(1)).failed == 2
    assert all("names row" in letter[2] for letter in bench.letters())


def test_rows_are_completed_before_any_pipeline_stores_them_and_the_yielded_ones_stay_as_they_were(
    settings,
) -> None:
    first, completing, last = Plain(), Completing(), PerRow()
    rows = [row(1), row(2)]
    result = Bench(settings, first, completing, last).write(*rows)
    assert result.stored == 2
    assert first.kept == [{"id": 1, "extra": 10}, {"id": 2, "extra": 20}]
    assert [r.data for r in rows] == [{"id": 1}, {"id": 2}]
    assert completing.stored == [1, 2]


def test_a_row_that_can_not_be_completed_is_stored_nowhere_and_replayed_everywhere(settings) -> None:
    store, completing = Plain(), Completing()
    bench = Bench(settings, store, completing)
    result = bench.write(row(1), row(2, hopeless=True), row(3))
    assert (result.stored, result.failed_at) == (2, (1,))
    assert [item["id"] for item in store.kept] == [1, 3]
    [(number, pipelines, error)] = bench.letters()
    assert (number, error) == (2, "TimeoutError: no file")
    assert set(pipelines) == {pipeline_name(store), pipeline_name(completing)}

    completing.mended = True
    assert bench.replay().stored == 1
    assert store.kept[-1] == {"id": 2, "hopeless": True, "extra": 20}
    assert bench.letters() == []


def test_a_completed_row_that_a_store_refuses_is_replayed_to_that_store_only_and_as_it_was_completed(
    settings,
) -> None:
    good, bad, completing = Plain(), PerRow(), Completing()
    bench = Bench(settings, good, bad, completing)
    assert bench.write(row(1, bad=True)).failed == 1
    [(number, pipelines, _)] = bench.letters()
    assert (number, pipelines) == (1, (pipeline_name(bad),))
    [letter] = bench.dead.read()
    assert letter.row.data == {"id": 1, "bad": True, "extra": 10}
    bench.replay()
    assert completing.seen == [1]
    assert len(good.kept) == 1


def test_an_outage_while_rows_are_completed_is_waited_for(settings) -> None:
    store, completing = Plain(), Completing()
    completing.outages = 2
    bench = Bench(settings, store, completing, ITEM_RETRY_BACKOFF=0.5)
    assert bench.write(row(1)).stored == 1
    assert bench.pauses[:2] == [0.5, 1.0]
    assert store.kept == [{"id": 1, "extra": 10}]


@pytest.mark.parametrize("made", [None, [], "rows"])
def test_a_hook_that_returns_something_else_is_told_and_stores_nothing(settings, made) -> None:
    class Forgetful(Completing):
        def prepare_items(self, table, items):
            return made

    store = Plain()
    bench = Bench(settings, store, Forgetful(), ITEM_RETRY_TIMES=0)
    assert bench.write(row(1)).failed == 1
    assert "prepare_items must return a list" in bench.letters()[0][2]
    assert store.kept == []


def test_rows_that_could_not_even_be_dead_lettered_are_completed_again_for_the_store_that_lacks_them(
    settings, tmp_path
) -> None:
    store, refusing, completing = Plain(), PerRow(), Completing()
    bench = Bench(settings, store, refusing, completing)
    again = row(1, bad=True)

    async def main() -> None:
        writer = bench.writer()
        bench.dead.path = tmp_path  # a folder: nothing can be appended
        with pytest.raises(Exception, match="neither stored"):
            await writer.write([again])
        bench.dead.path = tmp_path / "failed.jsonl"
        await writer.write([again])
        await writer.close()

    asyncio.run(asyncio.wait_for(main(), 60))
    assert store.kept == [{"id": 1, "bad": True, "extra": 10}]
    [letter] = bench.dead.read()
    assert letter.row.data["extra"] == 10
    assert letter.row.pipelines == (pipeline_name(refusing),)
