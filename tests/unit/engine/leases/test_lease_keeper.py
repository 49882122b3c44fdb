"""The keeper's beats go on whatever the loop does, and a pause of the claims that it gave up waiting for still ends."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager

import pytest

from netspy.engine.control import Control
from netspy.engine.gauge import NodeGauge
from netspy.engine.leases.held import HeldLeases
from netspy.engine.leases.keeper import LeaseKeeper
from netspy.messages.entry import BeatReply
from support.engine import env_of


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


def keeper_of(store, *, history=lambda: None, paused=None):
    env = env_of(HEARTBEAT_INTERVAL=0.1, HEARTBEAT_STALE=1.0)
    control, held = Control(env.log), HeldLeases(env.counters, env.log)
    keeper = LeaseKeeper(
        env, control, held, NodeGauge(), store, buffered=lambda: 0, history=history, paused=paused
    )
    keeper.log, keeper.held, keeper.control = env.log, held, control
    return keeper


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

    keeper = keeper_of(store, history=lambda: history[0], paused=paused)
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


@pytest.mark.parametrize("error", [SystemExit, MemoryError])
async def test_a_keeper_that_ends_by_itself_says_so_and_closes_its_store_hv_07(error):
    closed = []

    class Broken(Store):
        def close(self):
            closed.append(True)

    keeper = keeper_of(Broken())
    keeper._watch_loop = lambda: (_ for _ in ()).throw(error)
    keeper.start()
    async with asyncio.timeout(20):
        assert (await keeper.control.stopped()).outcome == "failed"
    await asyncio.to_thread(keeper.join, 5)
    assert closed


async def test_a_keeper_that_is_told_to_stop_has_not_broken():
    store = Store()
    keeper = keeper_of(store)
    keeper.start()
    await until(lambda: store.beats)
    keeper.stop()
    await asyncio.to_thread(keeper.join, 5)
    await asyncio.sleep(0)
    assert not keeper.control.stopping


async def test_what_blocks_the_loop_is_named_in_a_folder_called_netspy_too_hv_13(tmp_path):
    names = {"keeper": keeper_of(Store())}
    text = "def parse():\n    return keeper._culprit()\n"
    exec(compile(text, str(tmp_path / "netspy/main.py"), "exec"), names)
    assert names["parse"]() == "parse (main.py:2)"
