"""The faults. Each takes a fresh World of its plan, starts the crawl, does harm, and sees the crawl to its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from world import Note, Plan, World


class Case(NamedTuple):
    plan: Plan
    run: Callable[[World], None]


def no_fault(world: World) -> None:
    """The control: whoever loses something here shows a fault of this harness."""
    node = world.start()
    world.fault()
    world.end(node)


def kill_at(pages: int) -> Callable[[World], None]:
    """kill -9 of the only node once so many pages were asked for; then a second start."""

    def run(world: World) -> None:
        node = world.start()
        world.wait(lambda: world.site.total >= pages, node)
        world.kill(node)
        world.end(world.start())

    return run


def kill_seeder(world: World) -> None:
    """kill -9 while start_requests is half way; then a second start."""
    node = world.start()
    world.wait(lambda: world.seeded >= world.plan.seeds // 2, node)
    if world.site.total == 0:
        world.notes.append(Note("unfetched"))
    world.kill(node)
    world.end(world.start())


def restart_redis(world: World) -> None:
    """Redis stops in order (its append-only file is complete), is away for 2 s, and comes back."""
    node = world.start()
    world.wait(lambda: world.site.total >= world.plan.pages // 4, node)
    world.fault()
    world.redis.stop()
    time.sleep(2)
    world.redis.start()
    world.end_supervised(node)


def lose_reply(world: World) -> None:
    """The queue's answer to one request for work never arrives; the connection is reset."""
    proxy = world.through_proxy()
    node = world.start()
    world.wait(lambda: world.site.total >= world.plan.pages // 4, node)
    proxy.drop_next_reply(world.framework.pop)
    world.fault()
    world.wait(lambda: proxy.dropped > 0, node)
    if not proxy.dropped:
        world.notes.append(Note("untouched"))
    world.end_supervised(node)


def kill_while_writing(world: World) -> None:
    """Each write takes 1.5 s. kill -9 in a later write, half of the pages fetched; then a second start."""
    node = world.start()
    world.wait(lambda: world.rows() and world.site.total >= world.plan.pages // 2, node)
    time.sleep(0.5)
    world.kill(node)
    world.end(world.start())


LINKS = Plan(lists=20, links=50)
CASES = {
    "none": Case(LINKS, no_fault),
    "kill-10": Case(LINKS, kill_at(10)),
    "kill-40": Case(LINKS, kill_at(40)),
    "kill-500": Case(LINKS, kill_at(500)),
    "seeder": Case(Plan(lists=0, seeds=200, seed_pause=0.02), kill_seeder),
    "redis": Case(LINKS, restart_redis),
    "reply": Case(LINKS, lose_reply),
    "pipeline": Case(Plan(lists=10, links=20, write_pause=1.5), kill_while_writing),
}
