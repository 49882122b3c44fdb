"""Connecting a node's stores at its start, which no silent server may hold up once the node was told to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from netspy.engine.parts import Parts
from netspy.errors import StoreLostError

_GRACE_S = 1.0  # for what is just being said; nothing is half done when it is cut off


async def unless_stopped(opening: Awaitable[Any], stopping: asyncio.Future[Any]) -> bool:
    """Await `opening`; True when it came to its end. False when `stopping` was set before: it is cut off soon after.

    Raises what `opening` raises, unless a stop has begun and it is that a store is away.
    """
    task = asyncio.ensure_future(opening)
    try:
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            await asyncio.wait({task}, timeout=_GRACE_S)
        if not task.done():
            task.cancel()
            await asyncio.wait(
                {task}, timeout=_GRACE_S
            )  # for closing connections; then whoever waits is left behind
            return False
        try:
            task.result()
        except StoreLostError:
            if not stopping.done():
                raise
            return False
        return True
    finally:
        task.cancel()


async def open_stores(parts: Parts) -> None:
    """The frontier, then the task source. Nothing is left open when it raises or is cancelled."""
    try:
        await parts.frontier.open()
        if parts.tasks is not None:
            await parts.tasks.source.open()
    except BaseException:
        await parts.frontier.close()
        raise
