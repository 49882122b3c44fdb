"""A node's part in the seeding: it seeds when the lock falls to it, else it waits until somebody has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import Any

from netspy.engine.components import Machine
from netspy.engine.parts import Parts
from netspy.engine.seeding import Seeder
from netspy.engine.standing import Standing
from netspy.frontier.contract import SeedsLostError
from netspy.messages.entry import SeedGrant
from netspy.policy.finish import finished_job_left_behind, finished_job_text

_NAME = "netspy-seed"


class SeedTurn:
    """`begin` starts it. `done`: start_requests has been drawn to its end by this node. `error`: why seeding failed.

    `left_behind`: what to say when there turns out to be nothing to do, because others had seeded; else ''.
    """

    def __init__(
        self,
        parts: Parts,
        machine: Machine,
        standing: Standing,
        *,
        wake: asyncio.Event,
        stopping: Callable[[], bool],
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
    ) -> None:
        """`spawn` makes one of the node's tasks, by that name."""
        self._p = parts
        self._frontier = parts.frontier
        self._settings = parts.settings
        self._log = parts.logger
        self._machine = machine
        self._standing = standing
        self._wake = wake
        self._stopping = stopping
        self._spawn = spawn
        self._task: asyncio.Task[None] | None = None
        self.seeder: Seeder | None = None
        self.done = False
        self.error: str | None = None
        self.left_behind = ""

    def begin(self) -> None:
        """Start the task."""
        self._task = self._spawn(self._run(), _NAME)

    def begin_again(self) -> None:
        """The store says that the seeding isn't over, and this node believes it is.

        Either another node, which had taken it over, died; or the store went back to an earlier state.
        """
        if self._task is None or not self._task.done() or self._stopping() or self._p.resumed:
            return
        self._task = self._spawn(self._run(again=True), _NAME)

    async def _run(self, *, again: bool = False) -> None:
        if self._p.resumed:
            grant = await self._frontier.seed_acquire()
            if grant.token is not None:
                await self._frontier.seed_finish(grant.token)
            self._standing.had_work = self.done = True
            self._wake.set()
            return
        first = not again
        while not self._stopping():
            grant = await self._frontier.seed_acquire()
            if grant.token is not None:
                if await self._seed_under(grant):
                    return
                continue
            if grant.state in {"seeded", "failed"}:
                if first and grant.state == "seeded":
                    await self._look_at_old_job(grant)
                if grant.state == "failed" and not first:
                    self.error = grant.detail
                return
            first = False
            await asyncio.sleep(min(self._settings.HEARTBEAT_INTERVAL, self._settings.SPIDER_SEEDING_TTL / 4))

    async def _seed_under(self, grant: SeedGrant) -> bool:
        """False when the store went back meanwhile: to be done again."""
        standing, machine = self._standing, self._machine
        standing.had_work = standing.seeding = True
        standing.state = "seeding"
        self.seeder = Seeder(
            self._p.spider,
            name=self._p.spider.name,
            frontier=self._frontier,
            outbox=machine.outbox,
            items=machine.items,
            sorter=machine.sorter,
            logger=self._log,
            ahead=self._settings.SPIDER_SEED_AHEAD,
            queued=lambda: standing.queued or 0,
            renew_every_s=self._settings.SPIDER_SEEDING_TTL / 4,
            context=copy_context(),
        )
        try:
            self.done = await self.seeder.run(grant)
        except SeedsLostError:
            self._log.warning(
                "Redis went back to an earlier state during the seeding (a fail-over or a restart): start_requests runs "
                "again, and what is still there is not queued twice"
            )
            return False
        finally:
            standing.seeding = False
            self.error = self.seeder.error
            self._wake.set()
        return True

    async def _look_at_old_job(self, grant: SeedGrant) -> None:
        if self._p.tasks is not None or not self._p.shared or self._p.keep_alive:
            return
        self.left_behind = finished_job_text(grant.age_s, grant.detail)
        if finished_job_left_behind(await self._frontier.counts()):
            self._log.warning("nothing to do: {}", self.left_behind)
            self.left_behind = "the job was finished before (see above)"
