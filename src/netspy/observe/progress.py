"""Progress as plain values: what is known at one instant, the rate, the time left, and one line of text."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """One node of the run. `rate` in pages/s; `age_s` since its last heartbeat, by the store's clock."""

    name: str
    host: str = ""
    pid: int = 0
    done: int = 0
    in_flight: int = 0
    rate: float = 0.0
    alive: bool = True
    age_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The run at one instant: the whole cluster's figures.

    `state` says what is going on ("seeding", "crawling", "draining", "Redis away 12 s"); `finishing` why the
    run ends, once it does. `rate` in pages/s; `eta_s` None when it can't be told. `tasks`: those that have requests
    which are not done; `batch`: the master's line of progress, "" where there is no batch.
    """

    spider: str
    run_id: str = ""
    elapsed_s: float = 0.0
    nodes: tuple[NodeView, ...] = ()
    done: int = 0
    queued: int = 0
    in_flight: int = 0
    delayed: int = 0
    failed: int = 0
    items: int = 0
    rate: float = 0.0
    eta_s: float | None = None
    state: str = "crawling"
    finishing: str = ""
    tasks: int = 0
    batch: str = ""

    @property
    def left(self) -> int:
        """Requests known and not yet over."""
        return self.queued + self.in_flight + self.delayed


class RateMeter:
    """Moving average of a growing count over the last `window_s` seconds."""

    MIN_STEP_S = 0.1  # readings closer together than this are one: the memory stays bounded at any call rate

    def __init__(self, clock: Clock = time.monotonic, *, window_s: float = 10.0) -> None:
        self._clock = clock
        self._window_s = window_s
        self._readings: deque[tuple[float, int]] = deque()
        self._rate = 0.0

    def update(self, count: int) -> float:
        """Take a reading of the cumulative `count`; the rate per second. A count that shrank starts anew."""
        now = self._clock()
        readings = self._readings
        if readings and count < readings[-1][1]:
            readings.clear()
        if len(readings) > 1 and now - readings[-2][0] < self.MIN_STEP_S:
            readings[-1] = (now, count)
        else:
            readings.append((now, count))
        # One reading at or before the window's start stays as the base of the average.
        while len(readings) > 2 and readings[1][0] <= now - self._window_s:
            readings.popleft()
        start, base = readings[0]
        if now - start >= self.MIN_STEP_S:
            self._rate = (count - base) / (now - start)
        elif len(readings) == 1:
            self._rate = 0.0
        return self._rate

    @property
    def rate(self) -> float:
        """The rate at the last reading, per second."""
        return self._rate


def eta(left: int, rate: float) -> float | None:
    """Seconds until `left` requests are done at `rate` per second. None when nothing moves."""
    if left <= 0:
        return 0.0
    return left / rate if rate > 0.005 else None


def clock_time(seconds: float) -> str:
    """`0:43`, `12:05`, `3:07:09`, `2d 03:07`."""
    whole = max(0, round(seconds))
    minutes, sec = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d {hours:02d}:{minutes:02d}"
    return f"{hours}:{minutes:02d}:{sec:02d}" if hours else f"{minutes}:{sec:02d}"


def duration(seconds: float) -> str:
    """`0.4 s`, `12 s`, then as `clock_time`."""
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f} s"
    return f"{round(seconds)} s" if seconds < 59.5 else clock_time(seconds)


def rate_text(rate: float) -> str:
    """`28.1/s`, `1,204/s`; slow crawls per minute: `7.5/min`."""
    if rate >= 100:
        return f"{rate:,.0f}/s"
    return f"{rate:.1f}/s" if rate >= 1 or rate == 0 else f"{rate * 60:.1f}/min"


def figures(snapshot: Snapshot) -> list[tuple[str, str]]:
    """The figures worth showing, as (word, value); tasks, delayed and items only when there are any."""
    shown = [("tasks", f"{snapshot.tasks:,}")] if snapshot.tasks else []
    shown += [("done", f"{snapshot.done:,}"), ("queued", f"{snapshot.queued:,}")]
    shown.append(("in flight", f"{snapshot.in_flight:,}"))
    if snapshot.delayed:
        shown.append(("delayed", f"{snapshot.delayed:,}"))
    shown.append(("failed", f"{snapshot.failed:,}"))
    if snapshot.items:
        shown.append(("items", f"{snapshot.items:,}"))
    return shown


def line(snapshot: Snapshot) -> str:
    """One plain line: `12 s  done 340  queued 1,204  in flight 32  failed 2  28.1/s  ETA 0:43`."""
    parts = [duration(snapshot.elapsed_s)]
    if snapshot.batch:
        parts.append(f"[{snapshot.batch}]")
    parts += [f"{word} {value}" for word, value in figures(snapshot)]
    parts.append(rate_text(snapshot.rate))
    if snapshot.eta_s is not None and snapshot.left:
        parts.append(f"ETA {clock_time(snapshot.eta_s)}")
    if len(snapshot.nodes) > 1:
        dead = sum(not node.alive for node in snapshot.nodes)
        parts.append(f"nodes {len(snapshot.nodes) - dead}" + (f" (+{dead} dead)" if dead else ""))
    if snapshot.state and snapshot.state != "crawling":
        parts.append(f"[{snapshot.state}]")
    if snapshot.finishing:
        parts.append(f"[{snapshot.finishing}]")
    return "  ".join(parts)
