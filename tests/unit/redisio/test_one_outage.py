"""One outage is reported once, whichever calls notice it and in whichever order they see its end."""

from __future__ import annotations

import asyncio

import pytest

from netspy.redisio.link import AsyncLink
from netspy.settings import Settings


class Attempts:
    """A call whose attempts fail so often; the one with number `late` fails only when `fail` is set."""

    def __init__(self, failing, late=0):
        self.failing, self.late = failing, late
        self.made = 0
        self.waits, self.fail = asyncio.Event(), asyncio.Event()

    async def __call__(self):
        self.made += 1
        if self.made == self.late:
            self.waits.set()
            await self.fail.wait()
        if self.made <= self.failing:
            raise ConnectionError("refused")
        return b"an answer"


@pytest.fixture
def reports():
    return []


@pytest.fixture
async def link(reports):
    link = AsyncLink(
        Settings(REDIS_URL="redis://127.0.0.1:1/0"), on_outage=lambda away, _s: reports.append(away)
    )
    yield link
    await link.close()


async def test_an_attempt_that_fails_after_another_call_was_answered_is_no_second_outage(link, reports):
    """Both were sent while the server was away; what each came to is seen in any order."""
    slow = Attempts(failing=3, late=3)
    asking = asyncio.create_task(link.ask(slow))
    await slow.waits.wait()
    assert reports == [True]
    assert await link.ask(Attempts(failing=0)) == b"an answer"
    assert reports == [True, False]
    slow.fail.set()
    assert await asking == b"an answer"
    assert reports == [True, False]


async def test_an_outage_that_begins_after_an_answer_is_reported_again(link, reports):
    slow = Attempts(failing=4, late=3)
    asking = asyncio.create_task(link.ask(slow))
    await slow.waits.wait()
    await link.ask(Attempts(failing=0))
    slow.fail.set()
    assert await asking == b"an answer"
    assert reports == [True, False, True, False], "the fourth attempt was sent after the answer, and failed"
