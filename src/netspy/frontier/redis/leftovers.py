"""What earlier runs of a job queued and never crawled, where fingerprints outlive a run (DEDUP_SCOPE=spider).

Such a page is known to every later run, so that nobody would ask for it again. Therefore the next run takes it over, from each
run whose nodes are gone: queued, delayed and leased requests, and those that failed for good, with a new retry budget. What
ended its process too often, and what must not run twice (SPIDER_TASK_LEASE=0), stays in that run's failed list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from netspy.frontier.redis.keeper import gone_nodes
from netspy.frontier.redis.liveness import this_process
from netspy.messages.entry import Adopted
from netspy.policy.failed_record import read_failed
from netspy.redisio.keys import RunKeys

if TYPE_CHECKING:
    from collections.abc import Callable

    from netspy.frontier.redis.session import Session

PAGE = 200
MOST_BYTES = 4_000_000
STAYS = frozenset({"poison", "lease off"})


def is_site(text: str) -> bool:
    """Whether it can stand in an entry; a record may be of another program."""
    return len(text) == 8 and text.isascii() and text.isalnum()


class Earlier(NamedTuple):
    """A run that is looked at. `beat`: the newest heartbeat when it was looked at first."""

    keys: RunKeys
    gone: str
    beat: str


class Leftovers:
    """For the seeding node. `renewed`: a failed request's payload with a new retry budget."""

    def __init__(self, session: Session, renewed: Callable[[bytes], bytes]) -> None:
        self._session = session
        self._renewed = renewed
        self._looked: dict[str, Earlier] = {}
        self._living: set[str] = set()

    async def adopt(self) -> Adopted:
        """See `contract.Frontier`."""
        moved, waits = 0, False
        for run_id in await self._runs():
            n, alive = await self._adopt_from(run_id)
            moved += n
            waits = waits or alive
        return Adopted(moved, waits)

    async def _runs(self) -> list[str]:
        """Earlier runs that left something, and whose fingerprints are the job's."""
        link, own = self._session.link, self._session.calls.keys
        scope = self._session.calls.scope
        ids: Any = await link.ask(lambda: link.client.zrange(own.runs, 0, -1))
        found = []
        for name in ids:
            run_id = name.decode("utf-8", "replace")
            if run_id == scope.run_id or run_id in self._living:
                continue
            ns = f"{scope.job}:run:{run_id}"
            keys = RunKeys(ns, ns, scope.job)
            left = (keys.queued, keys.inflight, keys.delayed, keys.failed)
            if not await link.ask(lambda left=left: link.client.exists(*left)):  # type: ignore[misc]
                continue
            apart = (keys.requests.layout, keys.requests.exact)
            if await link.ask(lambda apart=apart: link.client.exists(*apart)):  # type: ignore[misc]
                continue  # a run of another scope: its pages are known to itself only
            if run_id not in self._looked:
                self._looked[run_id] = Earlier(keys, await self._gone(keys), "")
            found.append(run_id)
        return found

    async def _gone(self, keys: RunKeys) -> str:
        """Nodes of this machine whose process is gone."""
        mine = this_process()
        if mine is None:
            return ""
        client = self._session.link.client
        ids: Any = await self._session.link.ask(lambda: client.zrange(keys.beats, 0, -1))
        records: Any = await self._session.link.ask(lambda: client.hmget(keys.nodes, ids)) if ids else []
        return "".join(name for name in gone_nodes(ids, records, mine) if len(name) == 8)

    async def _adopt_from(self, run_id: str) -> tuple[int, bool]:
        """How many were moved, and whether a node of that run may live."""
        earlier = self._looked[run_id]
        total = 0
        while True:
            what, number = await self._step(earlier, [])
            if what == "alive":
                if earlier.beat and earlier.beat != number:
                    self._living.add(run_id)
                    return total, False
                self._looked[run_id] = earlier._replace(beat=number)
                return total, True
            total += int(number)
            if number == "0":
                return total + await self._failed(earlier), False

    async def _failed(self, earlier: Earlier) -> int:
        link, at, total = self._session.link, 0, 0
        while True:
            texts: Any = await link.ask(
                lambda at=at: link.client.lrange(earlier.keys.failed, at, at + PAGE - 1)  # type: ignore[misc]
            )
            args: list[bytes | str] = []
            size = looked_at = 0
            for text in texts:
                record = read_failed(text)
                size += 2 * len(text)
                if args and size > MOST_BYTES:
                    break
                looked_at += 1
                if record.payload is not None and record.reason not in STAYS and is_site(record.site):
                    args += [text, record.site, repr(record.priority), self._renewed(record.payload)]
            moved = int((await self._step(earlier, args))[1]) if args else 0
            total += moved
            at += looked_at - moved
            if not texts:
                return total

    async def _step(self, earlier: Earlier, failed: list[bytes | str]) -> tuple[str, str]:
        session = self._session
        call = session.calls.adopt(earlier.keys, earlier.gone, failed)
        reply = await session.call(call, session.writes, grows=True)
        what, _, number = reply[1].decode().partition(" ")
        return what, number
