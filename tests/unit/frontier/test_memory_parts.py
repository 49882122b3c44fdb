"""The parts of the frontier in memory: the queue that passes over sites, the counts of tasks, the seeding lock."""

from __future__ import annotations

from netspy.frontier.memory.frontier import MemoryFrontier, SeedMark
from netspy.frontier.memory.site_queue import SiteQueue
from netspy.frontier.memory.task_table import TaskTable
from netspy.messages.entry import NewEntry, SeedGrant, TaskMark

ROOM = (64, 8, 1)
CLOSING = NewEntry(b"{}", b"c" * 16, 300.0, "00000000", "")


def queue(*entries: tuple[str, tuple]) -> SiteQueue:
    made = SiteQueue()
    for site, one in entries:
        made.push(site, one)
    return made


def taken(made: SiteQueue, limit: int = 10, pass_over=(), room=ROOM) -> list[int]:
    return [one[1] for _, one in made.take(limit, pass_over, list(room))]


def test_order_is_priority_then_arrival_whatever_the_site():
    made = queue(("a", (300, 1, "")), ("b", (100, 2, "")), ("a", (100, 3, "")), ("b", (300, 4, "")))
    assert [one[1] for one in made.in_order()] == [2, 3, 1, 4]
    assert taken(made, 3) == [2, 3, 1]
    assert (made.size, taken(made), made.size) == (1, [4], 0)


def test_entries_of_sites_passed_over_keep_their_place():
    made = queue(("a", (100, 1, "")), ("b", (200, 2, "")), ("a", (300, 3, "")))
    assert taken(made, pass_over={"a"}) == [2]
    made.push("b", (200, 4, ""))
    assert taken(made) == [1, 4, 3]


def test_a_suspect_without_room_stays_and_the_others_come():
    made = queue(("a", (1, 1, "", 2, 2)), ("a", (2, 2, "", 2, 2)), ("a", (3, 3, "")))
    assert taken(made, room=(64, 1, 1)) == [1, 3]
    assert (made.size, taken(made)) == (1, [2])


def test_one_at_its_last_chance_comes_with_no_other_suspect():
    made = queue(("a", (1, 1, "", 4, 3)), ("b", (2, 2, "", 2, 1)), ("b", (3, 3, "")))
    assert taken(made) == [1, 3]
    made = queue(("a", (1, 1, "", 2, 1)), ("b", (2, 2, "", 4, 3)))
    assert taken(made) == [1]


def test_a_task_closes_when_all_of_it_was_put_and_nothing_is_left():
    tasks = TaskTable()
    tasks.arrived(1, "t")
    tasks.mark([TaskMark("t", closing=CLOSING, fed=False)])
    assert tasks.state("t") == 2
    tasks.ended(1)
    assert tasks.closed() == [], "more of its requests may come"
    tasks.arrived(2, "t")
    tasks.mark([TaskMark("t", fed=True)])
    assert (tasks.closed(), tasks.state("t")) == ([], 1)
    tasks.ended(2, failed=True)
    assert tasks.closed() == [(CLOSING, 1)]
    assert (tasks.state("t"), len(tasks), tasks.done, tasks.failed) == (0, 0, 0, 1)


def test_a_closing_request_keeps_no_task_open():
    tasks = TaskTable()
    tasks.arrived(5, "!0")
    assert (tasks.of(5), len(tasks)) == ("!0", 0)
    tasks.ended(5)
    assert (tasks.of(5), tasks.closed()) == ("", [])


def test_a_seeding_lock_is_one_nodes_until_it_stops_renewing_it():
    lock = SeedMark(10.0)
    first = lock.acquire(100.0).token
    assert first is not None
    assert lock.acquire(105.0)[:2] == (None, "seeding")
    assert lock.renew(first, 109.0)
    assert lock.acquire(119.0).token is None
    second = lock.acquire(119.5).token
    assert second is not None
    assert not lock.renew(first, 120.0)
    assert not lock.finish(first, None, 120.0)
    assert lock.finish(second, "boom", 121.0)
    assert lock.acquire(125.0) == SeedGrant(None, "failed", "boom", 4.0)
    assert lock.age_s(125.0) == 4.0


async def test_leases_of_one_process_never_run_out():
    """Nobody else could take them over."""
    frontier = MemoryFrontier(clock=lambda: 1e12)
    await frontier.put([CLOSING])
    [lease] = (await frontier.claim(1)).leases
    assert lease.valid_until == float("inf")
    assert frontier.keeper().reclaim().returned == 0
    assert frontier.keeper().renew([lease]) == [True]
