"""The parts that others are built from, ended after each test."""

from __future__ import annotations

import pytest

from support.engine import Bench


@pytest.fixture
async def bench():
    """Makes a `Bench`; called in the test, on its loop."""
    made = []

    def make(*args, **keywords):
        made.append(Bench(*args, **keywords))
        return made[-1]

    yield make
    for one in made:
        await one.close()
