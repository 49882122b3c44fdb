"""What the progress display shows: the node's own figures, or the whole cluster's."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from netspy.assembly import Built
from netspy.assembly.contract import AnySpider
from netspy.engine.parts import NodeState
from netspy.observe.panel import NoProgress, Progress
from netspy.observe.progress import NodeView, RateMeter, Snapshot, eta
from netspy.settings import Settings

if TYPE_CHECKING:
    from netspy.cluster.status import Status  # needs the Redis client

LAST_LOOK_S = 0.25
"""How long the end waits for a store that doesn't answer any more: a stop has its bound, and the display is not worth more."""


class Observer:
    """Called by the node now and then; keeps the last view for the end."""

    def __init__(self, spider: AnySpider, built: Built, shown: Progress) -> None:
        self._spider = spider
        self._built = built
        self._shown = shown
        self._rate = RateMeter()
        self._node_rates: dict[str, RateMeter] = {}
        self._cluster: Status | None = None
        self._before: dict[str, int] = {}  # what the job had counted before this process came
        self._last: Snapshot | None = None
        self.every_s = 1.0 if built.parts.shared else 0.25
        if isinstance(shown, NoProgress):
            self.every_s = max(self.every_s, 2.0)

    async def look(self, state: NodeState) -> None:
        """Take a reading and show it."""
        look = self._built.cluster_view
        snapshot = await (self._of_node(state) if look is None else self._of_cluster(look, state))
        self._last = snapshot
        self._shown.update(snapshot)

    async def _of_node(self, state: NodeState) -> Snapshot:
        counts = await self._built.parts.frontier.counts()
        own = self._spider.counters.own()
        done = own["request_ok"] + own["dropped"] + own["content_type_dropped"]
        rate = self._rate.update(done + own["request_failed"])
        node = NodeView(
            name="1",
            host=socket.gethostname(),
            pid=os.getpid(),
            done=done,
            in_flight=counts.leased,
            rate=rate,
        )
        left = counts.queued + counts.leased + counts.delayed
        return Snapshot(
            spider=self._spider.name, elapsed_s=state.elapsed_s, nodes=(node,), done=done, queued=counts.queued,
            in_flight=counts.leased, delayed=counts.delayed, failed=own["request_failed"], items=own["items"], rate=rate,
            eta_s=eta(left, rate), state=state.state,
        )  # fmt: skip

    async def _of_cluster(self, look: Callable[[], Awaitable[Status]], state: NodeState) -> Snapshot:
        try:
            cluster = await look()
        except Exception:
            if self._last is None:
                raise
            return replace(self._last, state=state.state, elapsed_s=state.elapsed_s)
        if self._cluster is None:
            self._before = dict(cluster.counters)
        self._cluster = cluster
        return self._snapshot(cluster, state)

    def _snapshot(self, cluster: Status, state: NodeState) -> Snapshot:
        return cluster_snapshot(
            cluster,
            self._spider.name,
            run_id_of(self._spider, self._built.settings),
            state.elapsed_s,
            state.state,
            self._rate,
            self._node_rates,
        )

    def totals(self) -> dict[str, int]:
        """What all nodes have counted since this process came, its own figures exactly.

        A job keeps the counts of earlier starts; they say nothing about this one.
        """
        own: dict[str, int] = self._spider.counters.own()
        if self._cluster is None:
            return own
        me = next(
            (n for n in self._cluster.nodes if n.pid == os.getpid() and n.host == socket.gethostname()), None
        )
        beaten: dict[str, int] = me.counters if me is not None else {}
        # The cluster's sums hold this node's figures as of its last beat; the rest are the others', gone ones included.
        now, before = self._cluster.counters, self._before
        return {
            name: max(now.get(name, 0) - before.get(name, 0) - beaten.get(name, 0), 0) + value
            for name, value in own.items()
        }

    def stopping(self) -> None:
        """Say so in the display: there are no readings while a node leaves."""
        if self._last is not None:
            self._last = replace(self._last, state="stopping", eta_s=None)
            self._shown.update(self._last)

    async def look_last(self, elapsed_s: float) -> None:
        """A reading after the node has left, for the display to end with; the rate is that of the whole time.

        It isn't kept for `totals`: the node is none of the cluster's any more.
        """
        if self._last is None or isinstance(self._shown, NoProgress):
            return
        left = NodeState("", elapsed_s, 0, 0, None)
        totals = self.totals()
        try:
            async with asyncio.timeout(LAST_LOOK_S):
                view = self._built.cluster_view
                last = await self._of_node(left) if view is None else self._snapshot(await view(), left)
        except Exception as error:
            self._spider.logger.debug("no last look at the crawl: {!r}", error)
            done = max(self._last.done, done_of(self._before) + done_of(totals))
            items = max(self._last.items, self._before.get("items", 0) + totals["items"])
            last = replace(self._last, state="", elapsed_s=elapsed_s, done=done, items=items)
        rate = (done_of(totals) + totals["request_failed"]) / elapsed_s if elapsed_s else 0.0
        self._last = replace(last, nodes=last.nodes or self._last.nodes, rate=rate)

    def end(self, reason: str) -> None:
        """Show how it ended."""
        if self._last is not None:
            self._shown.update(replace(self._last, finishing=reason))


def run_id_of(spider: AnySpider, settings: Settings) -> str:
    """The run's id; a BatchSpider has batches and no runs."""
    return "" if spider.kind == "batch" else str(settings.RUN_ID)


def done_of(counters: dict[str, int]) -> int:
    """Requests that are over and didn't fail."""
    return (
        counters.get("request_ok", 0) + counters.get("dropped", 0) + counters.get("content_type_dropped", 0)
    )


def cluster_state(cluster: Status, *, stopping: bool) -> str:
    """What a run is about, told by its status: stopping, seeding, crawling, waiting or finishing."""
    if stopping:
        return "stopping"
    if cluster.seed.startswith("seeding"):
        return "seeding"
    if cluster.delayed and not cluster.queued and not cluster.leased:
        return "waiting for a further try"
    left = cluster.queued + cluster.delayed + cluster.leased
    over = done_of(cluster.counters) + cluster.failed
    # With so few left some nodes are idle already. An empty queue alone says little: nodes claim ahead, and a
    # crawl begins with few requests.
    return "finishing" if left < cluster.live_nodes and left < over else "crawling"


def cluster_snapshot(
    cluster: Status,
    spider: str,
    run_id: str,
    elapsed_s: float,
    state: str,
    rate_meter: RateMeter,
    node_rates: dict[str, RateMeter],
) -> Snapshot:
    """A cluster status as the display wants it; the meters carry the rates from one reading to the next."""
    views = []
    for node in cluster.nodes:
        meter = node_rates.setdefault(node.id, RateMeter())
        done = done_of(node.counters)
        views.append(
            NodeView(
                name=node.id.lstrip("0") or "0",
                host=node.host,
                pid=node.pid,
                done=done,
                in_flight=node.in_flight,
                rate=meter.update(done + node.counters.get("request_failed", 0)),
                alive=node.alive,
                age_s=node.beat_age_s,
            )
        )
    done = done_of(cluster.counters)
    rate = rate_meter.update(done + cluster.failed)
    left = cluster.queued + cluster.leased + cluster.delayed
    return Snapshot(
        spider=spider, run_id=run_id, elapsed_s=elapsed_s, nodes=tuple(views), done=done, queued=cluster.queued,
        in_flight=cluster.leased, delayed=cluster.delayed, failed=cluster.failed, items=cluster.counters.get("items", 0),
        rate=rate, eta_s=eta(left, rate), state=state, tasks=cluster.open_tasks,
        batch="" if cluster.batch is None else cluster.batch.text,
    )  # fmt: skip
