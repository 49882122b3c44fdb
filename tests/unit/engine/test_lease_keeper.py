"""The keeper's beats go on whatever the loop does, and a pause of the claims that it gave up waiting for still ends."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager

from loguru import logger

from netspy.engine.leases.keeper import LeaseKeeper
from netspy.messages.entry import BeatReply, BeatReport
from netspy.settings import Settings


class Store:
    """Counts what is asked of it."""

    def __init__(self):
        self.beats = 0
        self.reconciled = threading.Event()

    def beat(self, report):
        self.beats += 1
        return BeatReply(known=True, sweeping=False, stale_nodes=[], intact=True, live_nodes=1)

    def reconcile(self, held):
        self.reconciled.set()
        return 0

    def close(self):
        pass


async def until(condition):
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_claim_that_waits_for_the_store_keeps_no_heartbeat_waiting_and_claims_go_on_afterwards():
    store, claiming = Store(), asyncio.Lock()
    history, entered, left = ["first"], [0], [0]

    @asynccontextmanager
    async def paused():
        entered[0] += 1
        try:
            async with claiming:
                pass
            yield
        finally:
            left[0] += 1

    keeper = LeaseKeeper(
        store,
        settings=Settings(HEARTBEAT_INTERVAL=0.1, HEARTBEAT_STALE=1.0),
        held={},
        report=lambda: BeatReport(0, 0, {}),
        loop=asyncio.get_running_loop(),
        logger=logger,
        history=lambda: history[0],
        on_rejoined=lambda: None,
        on_store_lost=lambda why: None,
        on_nodes=lambda live: None,
        on_poison=lambda n: None,
        on_taken_over=lambda n: None,
        paused=paused,
    )
    keeper.start()
    try:
        await until(lambda: store.beats >= 2)
        async with claiming:
            history[0] = "second"
            await until(lambda: entered[0])
            beats = store.beats
            await until(lambda: store.beats >= beats + 5)
            assert entered[0] == 1, "one pause at a time"
            assert not store.reconciled.is_set()
        await until(store.reconciled.is_set)
        await until(lambda: left[0] == entered[0] >= 2)
    finally:
        keeper.stop()
        await asyncio.to_thread(keeper.join, 5)
