"""What the tests of task sources on brokers share."""

from __future__ import annotations

import asyncio
import time

from netspy.settings import Settings

SETTINGS = Settings(REDIS_START_TIMEOUT=60.0)


async def taken(source, count, seconds=60.0):
    """`count` tasks, however many takes that needs: what is on its way is no promise of one take."""
    end = time.monotonic() + seconds
    tasks = []
    while len(tasks) < count:
        assert time.monotonic() < end, f"{len(tasks)} of {count} tasks came"
        tasks += await source.take(count - len(tasks))
    return tasks


async def drain(source, wanted, done, seconds=60.0):
    """Take and settle until the values in `wanted` are done."""
    end = time.monotonic() + seconds
    while not wanted <= done.keys():
        assert time.monotonic() < end, f"{len(wanted - done.keys())} tasks did not come"
        tasks = await source.take(20)
        for task in tasks:
            done[task.value] = done.get(task.value, 0) + 1
        await source.settled(tasks)
        if not tasks:
            await asyncio.sleep(0.05)


TAKER = """
import asyncio, sys
from netspy.settings import Settings
from netspy.tasks.message_source import message_source

async def main():
    source = message_source(sys.argv[1], Settings())
    await source.open()
    while True:
        tasks = await source.take(10)
        for task in tasks[:5]:
            print("settles", task.value, flush=True)  # before it does: a kill may come in between
            await source.settled([task])
        if tasks:
            print("holds", len(tasks[5:]), flush=True)

asyncio.run(main())
"""
