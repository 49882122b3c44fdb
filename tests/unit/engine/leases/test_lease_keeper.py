"""The keeper's beats go on whatever the loop does, leases of a node that works are renewed, and a pause of the claims that it
gave up waiting for still ends.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager

import pytest

from netspy.engine.control import Control
from netspy.engine.gauge import NodeGauge
from netspy.engine.leases.held import HeldLeases
from netspy.engine.leases.keeper import LeaseKeeper
from netspy.errors import StoreUnavailableError
from netspy.frontier.memory.frontier import MemoryFrontier, MemoryKeeper
from netspy.messages.entry import BeatReply, Reclaimed
from support.engine import entries_of, env_of, lease_of, until


class Store:
    """Counts what is asked of it."""

    def __init__(self, **reply):
        self.reply = {
            "known": True, "sweeping": False, "stale_nodes": [], "intact": True, "live_nodes": 1,
        } | reply  # fmt: skip
        self.beats = self.taken_over = self.rejoined = 0
        self.error = None
        self.reports, self.renewed, self.swept = [], [], []
        self.reclaims, self.reclaimed_at = [], []
        self.reconciled = threading.Event()

    def beat(self, report):
        self.reports.append(report)
        self.beats += 1
        if self.error is not None:
            raise self.error
        return BeatReply(**self.reply)

    def renew(self, leases):
        self.renewed.append([lease.seq for lease in leases])
        return [lease.seq >= 0 for lease in leases]

    def reclaim(self, limit):
        self.reclaimed_at.append(self.beats)
        moved = self.reclaims.pop(0) if self.reclaims else Reclaimed(0, 0, more=False)
        self.taken_over += moved.returned
        return moved

    def sweep(self, node):
        self.swept.append(node)
        return self.swept.count(node) >= 2

    def rejoin(self):
        self.rejoined += 1
        self.reply["known"] = True

    def reconcile(self, held):
        self.reconciled.set()
        return 0

    def close(self):
        pass


@asynccontextmanager
async def no_pause():
    yield


def keeper_of(store, *, history=lambda: None, paused=no_pause, **settings):
    env = env_of(**{"HEARTBEAT_INTERVAL": 0.1, "HEARTBEAT_STALE": 1.0} | settings)
    control, held, gauge = Control(env.log), HeldLeases(env.counters, env.log), NodeGauge()
    keeper = LeaseKeeper(env, control, held, gauge, store, buffered=lambda: 3, history=history, paused=paused)
    keeper.log, keeper.held, keeper.control = env.log, held, control
    keeper.env, keeper.clock, keeper.gauge = env, env.clock, gauge
    return keeper


@asynccontextmanager
async def beating(keeper):
    """The keeper's thread is at work inside."""
    keeper.start()
    try:
        yield keeper
    finally:
        keeper.stop()
        await asyncio.to_thread(keeper.join, 5)


FAST = {"HEARTBEAT_INTERVAL": 0.005}


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


# -- one beat


async def test_a_beat_says_what_the_node_holds_and_hears_how_many_nodes_live():
    keeper = keeper_of(store := Store(live_nodes=4), **FAST)
    keeper.held.took([lease_of(seq=1), lease_of(seq=2)])
    keeper.env.counters.inc("pages", 7)
    async with beating(keeper):
        await until(lambda: keeper.gauge.live_nodes == 4)
    report = store.reports[0]
    assert (report.in_flight, report.unacked, report.counters["pages"]) == (2, 3, 7)


async def test_the_last_beat_has_what_was_counted_up_to_the_end():
    keeper = keeper_of(store := Store())
    async with beating(keeper):
        await until(lambda: store.beats)
        keeper.env.counters.inc("pages", 9)
    assert store.reports[-1].counters["pages"] == 9


async def test_only_leases_that_end_soon_are_renewed():
    keeper = keeper_of(store := Store(), SPIDER_TASK_LEASE=60.0, **FAST)
    now = keeper.clock()
    keeper.held.took([lease_of(seq=1, valid_until=now + 29), lease_of(seq=2, valid_until=now + 31)])
    async with beating(keeper):
        await until(lambda: store.renewed)
        assert store.renewed[0] == [1]
        keeper.clock.advance(5)
        await until(lambda: [1, 2] in store.renewed)


async def test_a_lease_whose_renewal_is_refused_is_trusted_no_longer():
    keeper = keeper_of(store := Store(), SPIDER_TASK_LEASE=60.0, **FAST)
    lost, kept = (lease_of(seq=n, valid_until=keeper.clock() + 20) for n in (-1, 1))
    keeper.held.took([lost, kept])
    async with beating(keeper):
        await until(lambda: store.renewed)
        await until(lambda: lost.valid_until == 0.0)
    assert kept.valid_until > 0
    assert lost in keeper.held, "who works on it learns it from the store"


async def test_a_real_renewal_moves_the_time_that_the_holder_trusts():
    keeper = keeper_of(store := Store(), SPIDER_TASK_LEASE=60.0, **FAST)
    frontier = MemoryFrontier(lease_s=60.0, clock=keeper.clock)
    store.renew = MemoryKeeper(frontier).renew
    await frontier.put(entries_of("http://a.example/"))
    [lease] = (await frontier.claim(1)).leases
    keeper.held.took([lease])
    async with beating(keeper):
        for _ in range(5):
            keeper.clock.advance(40)
            keeper.loop_alive()
            now = keeper.clock()
            await until(lambda now=now: lease.valid_until == now + 60)
    assert frontier.reclaim().returned == 0


async def test_a_loop_that_hangs_for_good_does_not_hold_its_requests_for_ever():
    keeper = keeper_of(store := Store(), SPIDER_TASK_LEASE=60.0, SPIDER_TASK_MAX_SECONDS=100.0, **FAST)
    keeper.clock.advance(101)
    keeper.held.took([lease_of(seq=1, valid_until=keeper.clock() + 1)])
    async with beating(keeper):
        await until(lambda: store.beats >= 3)
        assert store.renewed == []
        keeper.loop_alive()
        await until(lambda: store.renewed)


async def test_leases_that_ran_out_go_back_until_there_are_no_more_of_them():
    keeper = keeper_of(store := Store(sweeping=True), **FAST)
    store.reclaims = [Reclaimed(500, 0, more=True), Reclaimed(20, 0, more=False)]
    async with beating(keeper):
        await until(lambda: not store.reclaims)
        await until(lambda: keeper.env.counters.get("reclaimed") == 520)
    assert store.reclaimed_at[:2] == [1, 1], "in one beat"
    assert "500 expired lease(s) went back to the queue" in keeper.log


async def test_poison_is_counted_and_a_person_hears_of_it():
    keeper = keeper_of(store := Store(sweeping=True), **FAST)
    store.reclaims = [Reclaimed(0, 2, more=False)]
    async with beating(keeper):
        await until(lambda: keeper.env.alert)
    [(kind, text)] = keeper.env.alert
    assert (kind, text[:12]) == ("poison", "2 request(s)")
    assert keeper.env.counters.get("poisoned") == 2
    assert keeper.env.counters.get("request_failed") == 2


@pytest.mark.parametrize(
    ("reply", "swept"),
    [
        ({"stale_nodes": ["7"], "gone_nodes": ["8"]}, {"8"}),
        ({"stale_nodes": ["7"], "gone_nodes": ["8"], "sweeping": True}, {"7", "8"}),
    ],
    ids=["our own beats were broken", "unbroken beats"],
)
async def test_a_silent_node_is_taken_over_only_by_one_whose_own_beats_are_unbroken(reply, swept):
    keeper = keeper_of(store := Store(**reply), **FAST)
    async with beating(keeper):
        await until(lambda: store.beats >= 3)
    assert set(store.swept) == swept
    assert store.swept[:2] in (["8", "8"], ["7", "7"]), "until a full pass found none"
    assert "node 8 is dead; its requests went back to the queue" in keeper.log


async def test_a_node_that_the_store_had_forgotten_joins_again_and_holds_nothing_of_before():
    keeper = keeper_of(store := Store(known=False), **FAST)
    keeper.held.took([lease_of(seq=1, valid_until=0.0)])
    async with beating(keeper):
        await until(lambda: not len(keeper.held))
        await until(lambda: store.beats >= 2)
    assert store.rejoined == 1
    assert await keeper.control.changed(0.0)
    assert "the store had forgotten this node; joining again" in keeper.log


async def test_a_store_without_the_keys_of_the_run_is_lost():
    keeper = keeper_of(store := Store(intact=False), **FAST)
    async with beating(keeper):
        assert (await keeper.control.stopped()).outcome == "store_lost"
    assert store.rejoined == 0


@pytest.mark.parametrize("error", [StoreUnavailableError("away"), OSError("a bug")])
async def test_a_store_that_is_away_is_told_of_once_and_asked_again(error):
    keeper = keeper_of(store := Store(), **FAST)
    store.error = error
    async with beating(keeper):
        await until(lambda: store.beats >= 3)
        store.error = None
        beats = store.beats
        await until(lambda: store.beats > beats)
    assert len(keeper.log.lines) == 1
    assert "heartbeat failed, trying again" in keeper.log
    assert not keeper.control.stopping


async def test_leases_that_no_node_holds_are_looked_for_now_and_then_without_any_claim():
    inside, held = [], []

    @asynccontextmanager
    async def paused():
        inside.append(True)
        yield
        inside.clear()

    class Counting(Store):
        def reconcile(self, leases):
            held.append((list(inside), len(leases)))
            return 2

    keeper = keeper_of(store := Counting(), paused=paused, **FAST)
    keeper.held.took([lease_of(seq=1)])
    async with beating(keeper):
        await until(lambda: store.beats >= 3)
        assert held == []
        keeper.clock.advance(300)
        await until(lambda: held and not inside)
    assert held == [([True], 1)]
    assert "2 lease(s) that no node holds went back to the queue" in keeper.log


async def test_a_loop_that_is_blocked_is_told_of_once_and_not_while_the_node_leaves():
    keeper = keeper_of(store := Store(), **FAST)
    async with beating(keeper):
        keeper.clock.advance(60)
        beats = store.beats
        await until(lambda: store.beats >= beats + 2)
        assert keeper.log.lines == [], "the loop has not begun"
        keeper.loop_alive()
        keeper.clock.advance(6)
        await until(lambda: keeper.log.lines)
        beats = store.beats
        await until(lambda: store.beats >= beats + 2)
        assert len(keeper.log.lines) == 1
        keeper.loop_alive()
        keeper.watch_no_more()
        keeper.clock.advance(60)
        beats = store.beats
        await until(lambda: store.beats >= beats + 2)
    assert len(keeper.log.lines) == 1
    assert "the event loop has been blocked for 6 s" in keeper.log
