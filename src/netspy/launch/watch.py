"""The parent's view of its run: the cluster's status, read once a second and shown."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import replace

from netspy import assembly
from netspy.assembly.contract import SharedSpider
from netspy.launch.child import Child
from netspy.launch.observer import cluster_snapshot, cluster_state, run_id_of
from netspy.observe.panel import Progress
from netspy.observe.progress import NodeView, RateMeter, Snapshot
from netspy.settings import Settings

_EVERY_S = 1.0
_JOIN_S = 1.0


class Watch(threading.Thread):
    """A thread of its own, because a Redis that is away may hold a look up for seconds.

    `seen` has the counters that each of our nodes reported last, by pid. `stopping` is set by the parent.
    """

    def __init__(
        self, spider: SharedSpider, settings: Settings, shown: Progress, children: Sequence[Child]
    ) -> None:
        super().__init__(name="netspy-watch", daemon=True)
        self.seen: dict[int, dict[str, int]] = {}
        self.stopping = False
        self._spider = spider
        self._settings = settings
        self._shown = shown
        self._children = children
        self._numbers = {child.pid: str(child.number) for child in children}
        self._host = socket.gethostname()
        self._view = assembly.ClusterView(spider, settings)
        self._over = threading.Event()
        self._began = time.monotonic()
        self._away_since: float | None = None
        self._rate = RateMeter()
        self._node_rates: dict[str, RateMeter] = {}
        self._nodes: dict[str, NodeView] = {}
        self._died_at: dict[str, float] = {}
        self._last: Snapshot | None = None

    def run(self) -> None:
        """Until `end`."""
        while True:
            self._look()
            if self._over.wait(_EVERY_S):
                return

    def _look(self) -> None:
        try:
            cluster = self._view.look()
        except Exception as error:  # a display must not stop a crawl
            self._spider.logger.debug("progress can't be shown: {!r}", error)
            return
        now = time.monotonic()
        if cluster is None:
            self._away_since = self._away_since or now
            if self._last is not None:
                state = f"Redis away for {now - self._away_since:.0f} s"
                self._show(replace(self._last, state=state, elapsed_s=now - self._began))
            if self._spider.load_settings().settings.REDIS_URL == assembly.EMBEDDED:
                assembly.revive_embedded(self._spider, self._settings)
            return
        self._away_since = None
        for node in cluster.nodes:
            if node.host == self._host and node.pid in self._numbers:
                self.seen[node.pid] = node.counters
        snapshot = cluster_snapshot(
            cluster,
            self._spider.name,
            run_id_of(self._spider, self._settings),
            now - self._began,
            cluster_state(cluster, stopping=self.stopping),
            self._rate,
            self._node_rates,
        )
        nodes = {view.name: view for view in map(self._named, snapshot.nodes)}
        for child in self._children:
            name = str(child.number)
            if not child.alive and child.report is None and name in self._nodes:
                nodes[name] = self._died(self._nodes[name], now)
        self._nodes.update(nodes)
        self._show(replace(snapshot, nodes=tuple(sorted(nodes.values(), key=lambda view: view.name))))

    def _died(self, view: NodeView, now: float) -> NodeView:
        """A node process of ours that is gone stays in sight, also when the run has forgotten it."""
        since = self._died_at.setdefault(view.name, now)
        return replace(view, alive=False, in_flight=0, rate=0.0, age_s=now - since)

    def _named(self, view: NodeView) -> NodeView:
        """Our own nodes by their number, as in their log lines; others by their id in the run."""
        number = self._numbers.get(view.pid) if view.host == self._host else None
        return replace(view, name=number or f"#{view.name}")

    def _show(self, snapshot: Snapshot) -> None:
        self._last = snapshot
        self._shown.update(snapshot)

    def end(self, state: str) -> None:
        """Look once more, show how it ended and give the terminal back. Call it when the nodes are gone."""
        self._over.set()
        if self.ident is not None:
            self.join(_JOIN_S)
        if not self.is_alive():
            if self._away_since is None:
                self._look()
            if self._last is not None:
                self._shown.update(self._at_the_end(self._last, state))
            self._view.close()
        self._shown.close()

    def _at_the_end(self, last: Snapshot, state: str) -> Snapshot:
        """The nodes have said goodbye, so the run's records don't name them any more: we do."""
        elapsed = time.monotonic() - self._began
        nodes = []
        for child in self._children:
            view = self._nodes.get(str(child.number), NodeView(name=str(child.number), pid=child.pid))
            done = view.done
            if child.report is not None:
                s = child.report.summary
                done = s.request_ok + s.dropped + s.content_type_dropped
            ended = child.report is not None
            average = done / elapsed if ended and elapsed > 0 else 0.0
            nodes.append(
                replace(
                    view,
                    done=done,
                    in_flight=0,
                    rate=average,
                    alive=ended,
                    age_s=0.0 if ended else view.age_s,
                )
            )
        rate = sum(node.rate for node in nodes)
        return replace(last, nodes=tuple(nodes), elapsed_s=elapsed, rate=rate, eta_s=None, finishing=state)
