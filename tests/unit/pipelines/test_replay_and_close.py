"""A replay of many letters stays small, and values of kinds that don't travel come back as a store would keep them; a
pipeline whose `close` fails is named.
"""

from __future__ import annotations

import tracemalloc
from collections import Counter, OrderedDict
from datetime import date
from enum import Enum
from http import HTTPStatus

import pytest

from netspy.messages.row import Row
from netspy.pipelines.base import BasePipeline
from netspy.pipelines.dead_letters.file import DeadLetterFile, DeadRow
from netspy.pipelines.delivery.writer import BatchWriter

LETTERS = 20_000


def test_what_is_remembered_of_the_letters_of_a_replay_is_a_few_bytes_each(tmp_path):
    dead = DeadLetterFile(tmp_path / "failed.jsonl")
    row = DeadRow(Row("t", {"text": "x" * 200}), "ItemError: no", 0.0)
    dead.append([row] * LETTERS)
    tracemalloc.start()
    try:
        with dead.claim() as claim:
            assert claim is not None
            assert claim.total == LETTERS
            assert tracemalloc.get_traced_memory()[0] / LETTERS < 24
            while lines := claim.take(500):
                claim.settle(lines[:1])
            assert tracemalloc.get_traced_memory()[0] / LETTERS < 24
            claim.end()
    finally:
        tracemalloc.stop()
    assert sum(1 for _ in dead.read()) == LETTERS // 500


class Color(Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "back"),
    [
        (Color.RED, "red"),
        ({Color.RED: [Color.RED, {Color.RED}]}, {"red": ["red", {"red"}]}),
        (HTTPStatus.OK, 200),
        (bytearray(b"\xff"), b"\xff"),
        (memoryview(b"\xff"), b"\xff"),
        (Counter("aab"), {"a": 2, "b": 1}),
        (OrderedDict({1: Color.RED, "day": date(2026, 1, 2)}), {1: "red", "day": date(2026, 1, 2)}),
    ],
)
def test_values_that_stores_take_come_back_as_they_would_have_been_stored(tmp_path, value, back):
    dead = DeadLetterFile(tmp_path / "failed.jsonl")
    dead.append([DeadRow(Row("t", {"v": value, "plain": 1}), "store away", 0.0)])
    [letter] = dead.read()
    assert letter.row.data == {"v": back, "plain": 1}
    assert letter.error == "store away"


class Plain(BasePipeline):
    def save_items(self, table, items):
        """Everything is fine."""

    def close(self):
        raise ValueError("no more room")


class Async(Plain):
    async def close(self):
        raise ValueError("no more room")


@pytest.mark.parametrize("kind", [Plain, Async])
async def test_a_pipeline_that_can_not_be_closed_is_named_and_costs_no_row(kind, settings, tmp_path):
    events = []
    dead = DeadLetterFile(tmp_path / "failed.jsonl")
    writer = BatchWriter([kind()], settings, dead_letter=dead, on_event=events.append)
    assert (await writer.write([Row("t", {"a": 1})])).stored == 1
    await writer.close()
    [event] = events
    assert event.kind == "close_failed"
    assert event.message == f"{kind.__name__} could not be closed: ValueError: no more room"
