"""The parts that a page comes past, started, and ended after each test."""

from __future__ import annotations

import pytest

from support.engine import PageBench


@pytest.fixture
async def pages():
    """Makes a started `PageBench`; called in the test, on its loop."""
    made = []

    def make(*args, **keywords):
        made.append(PageBench(*args, **keywords))
        made[-1].start()
        return made[-1]

    yield make
    for one in made:
        await one.close()
