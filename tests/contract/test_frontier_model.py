"""Random histories of the frontier: every accepted request stays in exactly one place, whatever happens.

Three machines. The first drives memory and Redis side by side and wants the same answers. The second has two nodes on one
Redis, loses answers (the call is repeated), lets calls arrive once more later, freezes, kills and wakes nodes, turns the
clock, and reads the raw keys after every step. In the third the store goes back to earlier states besides, unnoticed by any
connection. What each call then answers stands in a table of its own, `test_store_went_back.py`.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from frontier_rig import LEASE, REPORT, STALE, Backup, Clock, Rig, entry, name_of
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from netspy.frontier.contract import TRANSITIONS, State
from netspy.messages.entry import FinalFailure, Settlement, TaskMark
from netspy.policy.failed_record import pack_failed
from netspy.redisio.client import sync_client
from netspy.testing.servers import RedisServer

NAMES = [f"n{i}" for i in range(12)]
PRIORITIES = [300.0, 1.0, 0.5, 900.0]
TASKS = ["t/1", "t/2", "t/3"]
SITES = ["aaaaaaaa", "bbbbbbbb", "cccccccc"]
some_names = st.lists(st.sampled_from(NAMES), max_size=5)
FEW = {"SPIDER_MAX_DELIVERIES": 1}  # so that histories as short as these come to poison
seconds = st.sampled_from([0.5, 3.0, 8.0, STALE + 1, LEASE / 2, LEASE + 1])


def site_of(name: str) -> str:
    return SITES[sum(name.encode()) % 3]


def priority_of(name: str) -> float:
    return PRIORITIES[sum(name.encode()) % 4]


def task_of(name: str) -> str:
    return ("", "t/1", "t/2")[sum(name.encode()) % 3]


def made(name: str) -> Any:
    return entry(name, priority=priority_of(name), site=site_of(name), task=task_of(name))


def marked(task: str, *, fed: bool, only_failed: bool) -> TaskMark:
    closing = entry(f"closing of {task}", site="dddddddd", payload=b'{"url":"https://example.com/closing"}')
    return TaskMark(task, fed, closing, only_failed)


def failed_record(lease: Any) -> bytes:
    return pack_failed(lease.payload, reason="gave up", error="", attempts=1, time=1.0)


class Base(RuleBasedStateMachine):
    kind = "redis"
    server: RedisServer

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.server.flush()
        self.clock = Clock()
        self.rig = Rig(self.kind, self.clock, self.server.url, **FEW)
        self.raw = sync_client(self.rig.settings())

    def run(self, awaitable: Any) -> Any:
        return self.loop.run_until_complete(awaitable)

    def teardown(self) -> None:
        self.run(self.rig.close())
        self.raw.close()
        self.loop.close()


class SideBySide(Base):
    """Memory is the specification of Redis."""

    def __init__(self) -> None:
        super().__init__()
        self.memory_rig = Rig("memory", self.clock, None, **FEW)
        self.pair = [self.run(self.memory_rig.node()), self.run(self.rig.node())]
        self.keepers = [self.memory_rig.keeper(self.pair[0]), self.rig.keeper(self.pair[1])]
        self.rig.steady(self.keepers[1])
        self.held: list[tuple[Any, Any]] = []

    def both(self, call: Any) -> Any:
        first, second = (self.run(call(i, node)) for i, node in enumerate(self.pair))
        assert first == second
        return first

    @rule(names=some_names)
    def put(self, names: list[str]) -> None:
        self.both(lambda _, node: node.put([made(n) for n in names]))

    @rule(
        names=some_names, task=st.sampled_from(["t/1", "t/2"]), fed=st.booleans(), only_failed=st.booleans()
    )
    def put_of_a_task(self, names: list[str], task: str, fed: bool, only_failed: bool) -> None:
        mark = marked(task, fed=fed, only_failed=only_failed)
        self.both(lambda _, node: node.put([made(n) for n in names], tasks=[mark]))

    @invariant()
    def same_tasks(self) -> None:
        for put_here in (True, False):
            one, other = (
                self.run(node.open_tasks([(task, node.history if put_here else None) for task in TASKS]))
                for node in self.pair
            )
            assert one.states == other.states

    @rule(
        n=st.integers(1, 4),
        passed=st.sets(st.sampled_from(SITES), max_size=2),
        room=st.sampled_from([(64, 8, 1), (1, 1, 1), (0, 0, 0)]),
    )
    def claim(self, n: int, passed: set[str], room: tuple[int, int, int]) -> None:
        a, b = (self.run(node.claim(n, pass_over=passed, suspect_room=room)) for node in self.pair)
        assert [view(x) for x in a.leases] == [view(x) for x in b.leases]
        assert a[1:4] == b[1:4]
        assert a.next_due_s == pytest.approx(b.next_due_s, abs=0.002)
        self.held += zip(a.leases, b.leases, strict=True)

    def pick(self, which: list[int]) -> list[tuple[Any, Any]]:
        chosen = sorted({i % len(self.held) for i in which}) if self.held else []
        return [self.held[i] for i in chosen]

    @rule(which=st.lists(st.integers(0, 20), max_size=3), names=some_names)
    def settle(self, which: list[int], names: list[str]) -> None:
        chosen = self.pick(which)
        self.both(lambda i, node: node.settle([Settlement(x[i], [made(c) for c in names]) for x in chosen]))

    @rule(which=st.lists(st.integers(0, 20), max_size=3))
    def release(self, which: list[int]) -> None:
        chosen = self.pick(which)
        self.both(lambda i, node: node.release([x[i] for x in chosen]))

    @rule(which=st.lists(st.integers(0, 20), max_size=3), wait=seconds)
    def delay(self, which: list[int], wait: float) -> None:
        chosen = self.pick(which)
        self.both(lambda i, node: node.delay([(x[i], wait, None) for x in chosen]))

    @rule(which=st.lists(st.integers(0, 20), max_size=2))
    def give_up(self, which: list[int]) -> None:
        chosen = self.pick(which)
        self.both(lambda i, node: node.give_up([FinalFailure(x[i], failed_record(x[i])) for x in chosen]))

    @rule(wait=seconds)
    def advance(self, wait: float) -> None:
        self.rig.pass_time(wait, self.keepers[1])

    @rule(which=st.lists(st.integers(0, 20), max_size=3))
    def renew(self, which: list[int]) -> None:
        chosen = self.pick(which)
        first, second = (keeper.renew([x[i] for x in chosen]) for i, keeper in enumerate(self.keepers))
        assert first == second

    @rule()
    def reclaim(self) -> None:
        first, second = (keeper.reclaim(500) for keeper in self.keepers)
        assert first == second

    @invariant()
    def same_counts(self) -> None:
        a, b = (self.run(node.counts()) for node in self.pair)
        assert a[:4] == b[:4]
        assert (a.tasks, a.tasks_done, a.tasks_failed) == (b.tasks, b.tasks_done, b.tasks_failed)

    def teardown(self) -> None:
        self.run(self.memory_rig.close())
        super().teardown()


def view(lease: Any) -> tuple[Any, ...]:
    return (lease.payload, lease.priority, lease.site, lease.deliveries, lease.expired, lease.task)


class Actor:
    """One node of the second machine."""

    def __init__(self, node: Any, keeper: Any) -> None:
        self.node, self.keeper = node, keeper
        self.held: list[Any] = []
        self.frozen = False


class Chaos(Base):
    """Two nodes, lost answers, late duplicates, dead and woken nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.accepted: set[str] = set()
        self.done: set[str] = set()
        self.lose_answers = False
        self.sent: list[Any] = []
        self.actors = [self.actor(), self.actor()]
        self.zombies: list[Actor] = []
        self.rig.steady(*(a.keeper for a in self.actors))

    def actor(self) -> Actor:
        node = self.run(self.rig.node())
        link = node._session.link
        plain = link.run

        async def faulty(call: Any, **more: Any) -> Any:
            if call.script.name not in ("counts", "join", "forget"):
                self.sent.append((link, plain, call))
            answer = await plain(call, **more)
            if self.lose_answers:
                answer = await plain(call, **more)
            return answer

        link.run = faulty
        return Actor(node, self.rig.keeper(node))

    def beats(self) -> None:
        for actor in self.actors:
            if not actor.frozen:
                actor.keeper.beat(REPORT)

    @rule(lose=st.booleans())
    def answers_get_lost(self, lose: bool) -> None:
        self.lose_answers = lose

    @precondition(lambda self: self.sent)
    @rule(which=st.integers(0, 1000))
    def an_old_call_arrives_once_more(self, which: int) -> None:
        _link, plain, call = self.sent[which % len(self.sent)]
        before = self.snapshot()
        reply = self.run(plain(call))
        if call.script.name in ("put", "settle", "move", "claim"):
            # Either it is the node's last one of its kind, then it is answered again, or it is refused.
            assert reply[0] in (b"AGAIN", b"STALEOP", b"NOTREG", b"OK")
            assert self.snapshot() == before or reply[0] == b"OK"
            if call.script.name != "claim":
                assert self.snapshot() == before

    @rule(who=st.integers(0, 1), names=some_names)
    def put(self, who: int, names: list[str]) -> None:
        flags = self.run(self.actors[who].node.put([made(n) for n in names]))
        self.accept(names, flags)

    @rule(who=st.integers(0, 1), names=some_names, task=st.sampled_from(["t/1", "t/2"]), fed=st.booleans())
    def put_of_a_task(self, who: int, names: list[str], task: str, fed: bool) -> None:
        flags = self.run(self.actors[who].node.put([made(n) for n in names], tasks=[TaskMark(task, fed)]))
        self.accept(names, flags)

    @invariant()
    def each_task_counts_what_is_left_of_it(self) -> None:
        keys = self.actors[0].node.keys
        left: dict[str, int] = {}
        for place in ("queued", "leased", "delayed"):
            for row in self.snapshot()[place]:
                _, _, task = row[: row.index(b"{")].partition(b"@")
                if task:
                    left[task.decode()] = left.get(task.decode(), 0) + 1
        counted = {k.decode(): v.split() for k, v in self.raw.hgetall(keys.tasks).items()}
        assert {task: int(n) for task, (n, _, _) in counted.items() if int(n)} == left
        assert all(held == b"1" for n, _, held in counted.values() if n == b"0"), (
            "nothing left and still open"
        )

    def accept(self, names: list[str], flags: list[bool]) -> None:
        for name, new in zip(names, flags, strict=True):
            assert new == (name not in self.accepted), f"{name}: a new one refused or a repeat accepted"
            self.accepted.add(name)

    @rule(who=st.integers(0, 1), n=st.integers(1, 4), passed=st.sets(st.sampled_from(SITES), max_size=2))
    def claim(self, who: int, n: int, passed: set[str]) -> None:
        claimed = self.run(self.actors[who].node.claim(n, pass_over=passed))
        assert not {lease.site for lease in claimed.leases} & passed
        self.actors[who].held += claimed.leases

    def take(self, actor: Actor, count: int) -> list[Any]:
        taken, actor.held = actor.held[:count], actor.held[count:]
        return taken

    @rule(who=st.integers(0, 1), count=st.integers(1, 3), names=some_names)
    def settle(self, who: int, count: int, names: list[str]) -> None:
        self.settle_as(self.actors[who], count, names)

    def settle_as(self, actor: Actor, count: int, names: list[str]) -> None:
        leases = self.take(actor, count)
        answer = self.run(actor.node.settle([Settlement(x, [made(c) for c in names]) for x in leases]))
        for lease, acked, new in zip(leases, answer.acked, answer.new, strict=True):
            if acked:
                self.accept(names, new)
                assert name_of(lease.payload) not in self.done, "finished twice"
                self.done.add(name_of(lease.payload))

    @rule(who=st.integers(0, 1), count=st.integers(1, 3))
    def release(self, who: int, count: int) -> None:
        self.run(self.actors[who].node.release(self.take(self.actors[who], count)))

    @rule(who=st.integers(0, 1), count=st.integers(1, 3), wait=seconds)
    def delay(self, who: int, count: int, wait: float) -> None:
        self.run(self.actors[who].node.delay([(x, wait, None) for x in self.take(self.actors[who], count)]))

    @rule(who=st.integers(0, 1))
    def give_up(self, who: int) -> None:
        self.run(
            self.actors[who].node.give_up(
                [FinalFailure(x, failed_record(x)) for x in self.take(self.actors[who], 1)]
            )
        )

    @rule(wait=seconds)
    def time_passes(self, wait: float) -> None:
        while wait > 0:
            self.clock.advance(min(3.0, wait))
            wait -= 3.0
            self.beats()

    @rule(wait=seconds)
    def everybody_was_cut_off_for(self, wait: float) -> None:
        self.clock.advance(wait)
        self.beats()

    @rule(who=st.integers(0, 1))
    def renew(self, who: int) -> None:
        actor = self.actors[who]
        flags = actor.keeper.renew(actor.held)
        actor.held = [x for x, mine in zip(actor.held, flags, strict=True) if mine]

    @rule(who=st.integers(0, 1))
    def reclaim(self, who: int) -> None:
        self.actors[who].keeper.reclaim(3)

    @rule(who=st.integers(0, 1))
    def sweep(self, who: int) -> None:
        keeper = self.actors[who].keeper
        for dead in keeper.beat(REPORT).stale_nodes:
            for _ in range(10):
                if keeper.sweep(dead):
                    break

    @rule(who=st.integers(0, 1))
    def reconcile(self, who: int) -> None:
        self.actors[who].keeper.reconcile(self.actors[who].held)

    @rule(who=st.integers(0, 1))
    def a_node_freezes_and_another_starts(self, who: int) -> None:
        self.zombies.append(self.actors[who])
        self.actors[who] = self.actor()

    @precondition(lambda self: self.zombies)
    @rule(names=some_names)
    def a_frozen_node_wakes_and_goes_on_as_if_nothing_was(self, names: list[str]) -> None:
        self.settle_as(self.zombies[-1], 3, names)
        if len(self.zombies) > 1:
            self.zombies.pop(0)

    def snapshot(self) -> dict[str, Any]:
        keys = self.actors[0].node.keys
        return {
            "queued": self.raw.zrange(keys.queued, 0, -1),
            "leased": self.raw.zrange(keys.inflight, 0, -1),
            "delayed": self.raw.zrange(keys.delayed, 0, -1),
            "failed": self.raw.lrange(keys.failed, 0, -1),
        }

    @invariant()
    def every_accepted_request_is_in_exactly_one_place(self) -> None:
        places: dict[str, list[str]] = {}
        for place, rows in self.snapshot().items():
            for row in rows:
                text = row[row.index(b"{") :]
                name = (
                    json.loads(row)["request"]["url"].rpartition("/")[2]
                    if place == "failed"
                    else name_of(text)
                )
                places.setdefault(name, []).append(place)
        for name in self.done:
            places.setdefault(name, []).append("done")
        assert {name: found for name, found in places.items() if len(found) != 1} == {}
        assert set(places) == self.accepted

    @invariant()
    def no_lease_in_a_nodes_name_that_it_does_not_hold(self) -> None:
        everyone = [*self.actors, *self.zombies]
        held = {x.member for actor in everyone for x in actor.held}
        live = {actor.node.node.encode() for actor in self.actors}
        for member in self.snapshot()["leased"]:
            assert member[27:35] not in live or member in held


class GoesBack(Chaos):
    """A page puts children early, and is acked or given up later: never once the store has forgotten them."""

    def __init__(self) -> None:
        super().__init__()
        self.early: dict[int, tuple[str | None, list[str]]] = {}
        self.kept: tuple[Backup, set[str], set[str]] | None = None

    @rule()
    def the_store_is_saved(self) -> None:
        self.kept = (Backup(self.server.url), set(self.accepted), set(self.done))

    @precondition(lambda self: self.kept)
    @rule(noticed=st.booleans())
    def the_store_goes_back(self, noticed: bool) -> None:
        assert self.kept is not None
        (backup, self.accepted, self.done), self.kept = self.kept, None
        backup.restore()
        self.sent.clear()
        self.zombies.clear()
        if noticed:
            self.raw.hset(self.actors[0].node.keys.meta, "history", "another server")
        for actor in self.actors:
            if not actor.keeper.beat(REPORT).known:
                actor.keeper.rejoin()
                actor.held.clear()
        for who, actor in enumerate(self.actors):
            # Nobody is sure of a node's last claim until its next one: the answer may be on its way.
            self.claim(who=who, n=1, passed=set())
            actor.keeper.reconcile(actor.held)

    @precondition(lambda self: any(actor.held for actor in self.actors))
    @rule(names=some_names)
    def a_page_puts_children_early(self, names: list[str]) -> None:
        actor = next(a for a in self.actors if a.held)
        history = actor.node.history
        self.accept(names, self.run(actor.node.put([made(n) for n in names])))
        first, before = self.early.get(id(actor.held[0]), (history, []))
        self.early[id(actor.held[0])] = (first, before + names)

    def take(self, actor: Actor, count: int) -> list[Any]:
        taken: list[Any] = [x for x in actor.held if id(x) not in self.early][:count]
        actor.held = [x for x in actor.held if x not in taken]
        return taken

    @precondition(lambda self: any(id(x) in self.early for actor in self.actors for x in actor.held))
    @rule(fails=st.booleans())
    def such_a_page_ends(self, fails: bool) -> None:
        actor, lease = next((a, x) for a in self.actors for x in a.held if id(x) in self.early)
        actor.held.remove(lease)
        history, names = self.early.pop(id(lease))
        if fails:
            given = self.run(actor.node.give_up([FinalFailure(lease, failed_record(lease), history)]))
            ended, stale = given.failed[0], given.stale[0]
        else:
            answer = self.run(actor.node.settle([Settlement(lease, (), history)]))
            ended, stale = answer.acked[0], answer.stale[0]
        if ended:
            assert set(names) <= self.accepted, "it ended, and its children are gone"
            if not fails:
                self.done.add(name_of(lease.payload))
        if stale:
            self.run(actor.node.release([lease]))


RUNS = settings(
    max_examples=25,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    database=None,
)


@pytest.mark.parametrize("fixture", ["redis_server", "redis62_server"])
@pytest.mark.parametrize("kind", ["redis", "redis-set"])
@pytest.mark.parametrize("machine", [SideBySide, Chaos])
def test_random_histories_keep_every_request_in_one_place(request, fixture, kind, machine):
    found = type(machine.__name__, (machine,), {"kind": kind, "server": request.getfixturevalue(fixture)})
    run_state_machine_as_test(found, settings=RUNS)


@pytest.mark.parametrize(("fixture", "kind"), [("redis_server", "redis"), ("redis62_server", "redis-set")])
def test_random_histories_in_which_the_store_goes_back_lose_no_child_of_a_page_that_ended(
    request, fixture, kind
):
    found = type("Found", (GoesBack,), {"kind": kind, "server": request.getfixturevalue(fixture)})
    run_state_machine_as_test(found, settings=RUNS)


def test_the_table_of_transitions_has_no_way_out_of_done_and_failed():
    assert {state for state, _ in TRANSITIONS} == {State.QUEUED, State.LEASED, State.DELAYED}
    assert set(TRANSITIONS.values()) == set(State)
