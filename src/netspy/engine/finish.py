"""The finish watch: asks, when this node has nothing left to do, whether the whole run is over, and ends it then."""

from __future__ import annotations

from collections.abc import Callable

from netspy.engine.parts import Outcome, Parts
from netspy.engine.seed_turn import SeedTurn
from netspy.engine.standing import Standing
from netspy.engine.tasks.feeder import Feeder
from netspy.engine.workers import Workers
from netspy.messages.entry import Counts
from netspy.policy.finish import nothing_moved, unfinished_because
from netspy.tasks.contract import Backlog


class FinishWatch:
    """`counts` are the last ones read. `stop` begins a graceful stop, with its reason and outcome."""

    def __init__(
        self,
        parts: Parts,
        standing: Standing,
        *,
        workers: Workers,
        turn: SeedTurn,
        feeder: Feeder | None,
        stop: Callable[[str, Outcome], None],
    ) -> None:
        self._settings = parts.settings
        self._frontier = parts.frontier
        self._counters = parts.counters
        self._keep_alive = parts.keep_alive
        self._shared = parts.shared
        self._standing = standing
        self._workers = workers
        self._turn = turn
        self._feeder = feeder
        self._stop = stop
        self._saw_others_work = False
        self.counts: Counts | None = None

    async def over(self) -> bool:
        """Ask once, atomically, whether the run is over; end it when it is."""
        backlog = await self._feeder.backlog() if self._feeder is not None else None
        counts = self.counts = await self._frontier.counts()
        self._standing.counted(counts.queued)
        if not counts.intact:
            self._stop("the keys of this run are gone from the store", "store_lost")
            return True
        if counts.seed in {"none", "seeding"}:
            self._turn.begin_again()
        if self._keep_alive:
            return False
        if counts.seed == "failed" and not (counts.queued or counts.leased or counts.delayed):
            why = self._turn.error or counts.seed_detail or "seeding failed"
            self._stop(why, "seeding_failed")
            return True
        unfinished = unfinished_because(
            counts,
            source_open=await self._source_open(backlog, counts),
            had_work=self._standing.had_work,
            node_age_s=self._standing.elapsed_s,
            grace_s=self._settings.SPIDER_STARTUP_GRACE if self._shared else 0.0,
        )
        if unfinished is not None:
            at_work = counts.queued or counts.leased or counts.delayed or counts.seed == "seeding"
            self._saw_others_work |= counts.live_nodes > 1 and bool(at_work)
            if not self._workers.active:
                self._standing.state = f"waiting: {unfinished}"
            return False
        left_behind = self._turn.left_behind
        if any(map(self._counters.get, ("pages", "request_ok", "request_failed"))):
            self._stop("finished", "finished")
        elif (counts.failed and not left_behind) or counts.live_nodes > 1 or self._saw_others_work:
            # Where other nodes of this very run are, or were, at work, an idle node is no sign of an empty run.
            self._stop("nothing to do", "finished")
        else:
            self._stop(left_behind or "nothing to do", "nothing_to_do")
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
