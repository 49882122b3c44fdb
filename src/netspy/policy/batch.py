"""The life of a batch, decided from plain values: when the next one is due, what a pass of the master does next, and
how its progress reads.

    none ──due──▶ open ──all tasks settled──▶ done ──due──▶ open …

Instants are aware datetimes in UTC. Local times are not unique (the hour that a change of clocks repeats), so nothing
here compares them. BATCH_INTERVAL is elapsed time: a day is 86,400 s, whatever the clocks on the wall do; whoever wants
"every midnight" gives BATCH_CRON with BATCH_TIMEZONE.

A batch carries the instant at which it was due, not the one at which somebody opened it. So batches keep their
grid instead of drifting by the master's passes, and a master that was away opens one batch for the time it missed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, Protocol

from netspy.errors import ConfigError

TODO, DONE, DOING, FAILED = 0, 1, 2, -1
"""The states of a task in its table. A row with any other number is left out of the batches."""

UNIT_SECONDS = {"day": 86_400.0, "hour": 3_600.0, "minute": 60.0}


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """How many rows of the task table are in which state. `other` rows (states that aren't ours) are not in `total`."""

    total: int
    todo: int
    doing: int
    done: int
    failed: int
    other: int = 0

    @property
    def settled(self) -> int:
        """Tasks that have come to an end."""
        return self.done + self.failed

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do; true for an empty table."""
        return self.settled >= self.total


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """One row of the record table; the fields have its columns' names. `batch_date` is the instant the batch was due."""

    id: int
    batch_date: datetime
    total_count: int = 0
    done_count: int = 0
    fail_count: int = 0
    interval: float = 0.0
    interval_unit: str = "day"
    is_done: bool = False
    create_time: datetime | None = None
    update_time: datetime | None = None


class Firings(Protocol):
    """A cron expression in its time zone, as instants. See `netspy.tasks.cron`."""

    def after(self, instant: datetime) -> datetime:
        """The first firing later than `instant`."""

    def at_or_before(self, instant: datetime) -> datetime:
        """The last firing that isn't later than `instant`."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """When batches are due: every `every_s` seconds, or, with `cron`, at its firings."""

    every_s: float
    cron: Firings | None = None

    def first_due(self, now: datetime) -> datetime:
        """When the very first batch is due: at once, or at the next firing."""
        return self.cron.after(now) if self.cron else now

    def due_after(self, batch_date: datetime) -> datetime:
        """When the batch after the one of `batch_date` is due."""
        return self.cron.after(batch_date) if self.cron else batch_date + timedelta(seconds=self.every_s)

    def date_for(self, previous: datetime | None, now: datetime) -> datetime:
        """The `batch_date` of a batch that is opened now: the last instant up to now at which one was due."""
        if self.cron:
            date = self.cron.at_or_before(now)
        elif previous is None:
            date = now
        else:
            missed = max(1, int((now - previous).total_seconds() / self.every_s))
            date = previous + timedelta(seconds=self.every_s * missed)
            if date > now and missed > 1:  # by a microsecond that the division lost
                date = previous + timedelta(seconds=self.every_s * (missed - 1))
        return date.replace(microsecond=0)


def interval_seconds(interval: float, unit: str) -> float:
    """BATCH_INTERVAL in seconds. Raises ConfigError for an unknown unit, and for an interval of no time."""
    if unit not in UNIT_SECONDS:
        raise ConfigError(f"BATCH_INTERVAL_UNIT={unit!r} is none of {', '.join(UNIT_SECONDS)}")
    seconds = interval * UNIT_SECONDS[unit]
    if not 1 <= seconds <= 100 * 366 * 86_400:
        raise ConfigError(
            f"BATCH_INTERVAL={interval:g} {unit} is {seconds:g} s; give between a second and a hundred years"
        )
    return seconds


_EARLY_SHARE, _EARLY_MOST_S = 0.05, 600.0


@dataclass(frozen=True, slots=True)
class Step:
    """What a pass of the master does next, and why.

    open    open a batch with the date `at`: reset the tasks, then write the record
    work    batch `batch` goes on: refresh, reset lost tasks, claim, push, count
    finish  every task of `batch` is settled: write the counts and close it
    wait    nothing is due before `at`
    leave   a single run has nothing (more) to do
    """

    action: Literal["open", "work", "finish", "wait", "leave"]
    why: str
    at: datetime | None = None
    batch: BatchRecord | None = None


def next_step(
    latest: BatchRecord | None,
    counts: TaskCounts | None,
    now: datetime,
    schedule: Schedule,
    *,
    since: datetime | None = None,
    once: bool = False,
    brought_to_end: bool = False,
) -> Step:
    """What to do, given the latest record and, when that batch is open, the counts of its tasks (None: not counted yet).

    `now` is the store's clock, `since` what it showed when this master began (default: now): the first batch of a cron
    expression is due at the first firing after that. `once`: bring one batch to its end, then leave; `brought_to_end`
    says that this master did. A single run may come a little early (`_early`); one that finds no batch at all opens one
    whatever the schedule says.
    """
    if latest is not None and not latest.is_done:
        if counts is not None and counts.finished:
            return Step("finish", f"all {counts.total} tasks are settled", batch=latest)
        left = "" if counts is None else f", {counts.total - counts.settled} of {counts.total} tasks are left"
        return Step("work", f"batch {latest.id} is open{left}", batch=latest)
    if once and brought_to_end:
        return Step("leave", "the batch is done")
    due = now if once else schedule.first_due(since or now)
    if latest is not None:
        due = schedule.due_after(latest.batch_date)
    early_s = _early(due, latest) if once else 0.0
    if due <= now + timedelta(seconds=early_s):
        date = schedule.date_for(None if latest is None else latest.batch_date, max(now, due))
        return Step("open", f"a batch is due since {_when(due)}", at=date)
    last = "no batch yet" if latest is None else f"batch {latest.id} is done"
    if once:
        return Step("leave", f"{last} and the next one is due at {_when(due)}", at=due)
    return Step("wait", f"{last}; the next one is due at {_when(due)}", at=due)


def _early(due: datetime, latest: BatchRecord | None) -> float:
    """By how many seconds a single run may be too early: cron calls at its own clock, and a day must not be skipped for three
    seconds. The batch keeps the date at which it was due.
    """
    if latest is None:
        return 0.0
    return min((due - latest.batch_date).total_seconds() * _EARLY_SHARE, _EARLY_MOST_S)


def overdue_seconds(record: BatchRecord, now: datetime, schedule: Schedule) -> float:
    """How long the batch after `record` has been due while this one is still open; 0 when it isn't."""
    if record.is_done:
        return 0.0
    return max(0.0, (now - schedule.due_after(record.batch_date)).total_seconds())


class Pace:
    """How fast tasks are settled, from the readings of the last `window_s` seconds."""

    __slots__ = ("_readings", "window_s")

    def __init__(self, window_s: float = 300.0) -> None:
        self.window_s = window_s
        self._readings: deque[tuple[float, int]] = deque()

    def note(self, at_s: float, settled: int) -> None:
        """At `at_s` (any steady clock, seconds) `settled` tasks were settled. Fewer than before: a new batch began."""
        readings = self._readings
        if readings and settled < readings[-1][1]:
            readings.clear()
        readings.append((at_s, settled))
        while len(readings) > 2 and readings[1][0] <= at_s - self.window_s:
            readings.popleft()

    def seconds_left(self, unsettled: int) -> float | None:
        """Seconds until `unsettled` more tasks are settled. None when nothing moves or too little is known."""
        if unsettled <= 0:
            return 0.0
        if len(self._readings) < 2:
            return None
        (first_s, first), (last_s, last) = self._readings[0], self._readings[-1]
        if last <= first or last_s <= first_s:
            return None
        return unsettled * (last_s - first_s) / (last - first)


def progress_text(
    batch_id: int, counts: TaskCounts, left_s: float | None = None, overdue_s: float = 0.0
) -> str:
    """One line: "batch 3: 812/1000, 4 failed, 37 s left"."""
    parts = [f"batch {batch_id}: {counts.done}/{counts.total}"]
    if counts.failed:
        parts.append(f"{counts.failed} failed")
    if counts.other:
        parts.append(f"{counts.other} left out")
    if left_s is not None and not counts.finished:
        parts.append(f"{duration_text(left_s)} left")
    if overdue_s > 0:
        parts.append(f"overdue by {duration_text(overdue_s)}")
    return ", ".join(parts)


def duration_text(seconds: float) -> str:
    """A length of time in one or two units: 37 s, 12 min, 5 h 20 min, 3 d 4 h."""
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min" if minutes % 60 else f"{minutes // 60} h"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24} h" if hours % 24 else f"{hours // 24} d"


def _when(instant: datetime) -> str:
    return instant.strftime("%Y-%m-%d %H:%M:%S UTC")
