"""The finish watch: asks, when this node has nothing left to do, whether the whole run is over, and ends it then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from netspy.engine.control import Control, NodeGauge
from netspy.engine.env import Env
from netspy.engine.seeding import SeedCoordinator
from netspy.engine.tasks.feeder import Feeder
from netspy.frontier.contract import Frontier
from netspy.messages.entry import Counts
from netspy.policy.finish import nothing_moved, unfinished_because
from netspy.tasks.contract import Backlog


class Emptied(Protocol):
    """A part in which work may wait: slots, outbox, item buffer, effects."""

    @property
    def empty(self) -> bool: ...  # noqa: D102 - nothing waits there and nothing is under way


class FinishWatch:
    """`counts` are the last ones read; `unfinished` is why the run goes on, as the last look said (None: no look yet)."""

    def __init__(
        self,
        env: Env,
        control: Control,
        gauge: NodeGauge,
        frontier: Frontier,
        seeding: SeedCoordinator,
        feeder: Feeder | None,
        *,
        waiting_in: Sequence[Emptied],
        keep_alive: bool = False,
        elapsed_s: Callable[[], float],
    ) -> None:
        """`waiting_in`: the parts of this node in which work may wait. `keep_alive`: the run is never over by itself."""
        self._settings = env.settings
        self._counters = env.counters
        self._shared = env.shared
        self._control = control
        self._gauge = gauge
        self._frontier = frontier
        self._seeding = seeding
        self._feeder = feeder
        self._waiting_in = waiting_in
        self._keep_alive = keep_alive
        self._elapsed_s = elapsed_s
        self._saw_others_work = False
        self.counts: Counts | None = None
        self.unfinished: str | None = None

    @property
    def is_idle(self) -> bool:
        """The node has nothing to do."""
        gauge = self._gauge
        return (
            not (gauge.active or gauge.seeding)
            and all(part.empty for part in self._waiting_in)
            and not (self._feeder is not None and self._feeder.busy)
        )

    def on_work(self) -> None:
        """The node has work again: what the last look said is over."""
        self.unfinished = None

    async def over(self) -> bool:
        """Ask once, atomically, whether the run is over; end it when it is."""
        backlog = await self._feeder.backlog() if self._feeder is not None else None
        counts = self.counts = await self._frontier.counts()
        self._gauge.on_count(counts.queued)
        if not counts.intact:
            self._control.stop("the keys of this run are gone from the store", "store_lost")
            return True
        if counts.seed in {"none", "seeding"}:
            self._seeding.begin_again()
        if self._keep_alive:
            return False
        if counts.seed == "failed" and not (counts.queued or counts.leased or counts.delayed):
            why = self._seeding.error or counts.seed_detail or "seeding failed"
            self._control.stop(why, "seeding_failed")
            return True
        unfinished = unfinished_because(
            counts,
            source_open=await self._source_open(backlog, counts),
            had_work=self._gauge.had_work,
            node_age_s=self._elapsed_s(),
            grace_s=self._settings.SPIDER_STARTUP_GRACE if self._shared else 0.0,
        )
        if unfinished is not None:
            at_work = counts.queued or counts.leased or counts.delayed or counts.seed == "seeding"
            self._saw_others_work |= counts.live_nodes > 1 and bool(at_work)
            self.unfinished = unfinished
            return False
        left_behind = self._seeding.left_behind
        if any(map(self._counters.get, ("pages", "request_ok", "request_failed", "items", "item_failed"))):
            self._control.stop("finished", "finished")
        elif (
            (counts.failed and not left_behind)
            or counts.live_nodes > 1
            or self._saw_others_work
            or self._seeding.in_time
        ):
            # Where other nodes of this very run are, or were, at work, an idle node is no sign of an empty run.
            self._control.stop("nothing to do", "finished")
        else:
            self._control.stop(left_behind or "nothing to do", "nothing_to_do")
        return True

    async def look(self) -> None:
        """Read the counts."""
        self.counts = await self._frontier.counts()

    async def _source_open(self, backlog: Backlog | None, counts: Counts) -> str | None:
        """Why the task source may still bring work.

        Source and frontier can't be read at one instant, so each is read twice in turn: a task that was in neither
        place when it was looked at has moved a counter.
        """
        if self._feeder is None or backlog is None:
            return None
        why = await self._feeder.open_because(backlog)
        if why is not None or counts.queued or counts.leased or counts.delayed or counts.tasks:
            return why
        again = await self._feeder.backlog()
        after = await self._frontier.counts()
        return None if again == backlog and nothing_moved(counts, after) else "tasks are on their way"
