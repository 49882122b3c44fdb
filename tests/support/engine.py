"""What unit tests build a part of a node from: an environment that keeps what it was told, leases, a quiet logger."""

from __future__ import annotations

from netspy.engine.env import Env
from netspy.messages.entry import Lease
from netspy.messages.request import Request
from netspy.observe.counters import Counters
from netspy.observe.throttle import ThrottledLog
from netspy.settings import Settings
from netspy.tasks.master_lock import NotMasterError
from netspy.testing.clock import FakeClock


class Lines:
    """A logger that keeps its lines, each as `level: text`."""

    def __init__(self):
        self.lines = []

    def __getattr__(self, level):
        if level not in {"debug", "info", "warning", "error"}:
            raise AttributeError(level)
        return lambda message, *args: self.lines.append(f"{level}: {message.format(*args)}")

    def __contains__(self, text):
        return any(text in line for line in self.lines)


class Alerts(list):
    """Takes alerts as (kind, message)."""

    def __call__(self, kind, message):
        self.append((kind, message))


def env_of(*, name="shop", shared=False, clock=None, jitter=0.0, **settings):
    """An `Env` with these settings. Its clock is turned by hand, its alerts and log lines are kept."""
    log = Lines()
    return Env(
        name=name,
        settings=Settings(**settings),
        log=log,
        throttled=ThrottledLog(log),
        counters=Counters(),
        alert=Alerts(),
        shared=shared,
        clock=clock or FakeClock(),
        jitter=lambda: jitter,
    )


def lease_of(url="http://a.example/", *, seq=1, valid_until=float("inf"), task="", **fields):
    """A lease as the memory frontier hands it out."""
    request = url if isinstance(url, Request) else Request(url, **fields)
    return Lease(
        seq=seq,
        payload=request,
        priority=request.priority,
        site=request.site,
        deliveries=1,
        suspicion=0,
        member=b"",
        valid_until=valid_until,
        task=task,
    )


LOCK_S = 10.0
"""For how long a master lock of `FakeBatchQueue` lasts."""


class FakeBatchQueue:
    """What a batch's master asks of Redis, in this process. `rival()` is another master at the same place.

    `pushed` has (batch, round, id, row) of what no worker has taken yet, `live` the ids that are being worked on.
    """

    def __init__(self, clock=None, *, who="host:1", beside=None):
        self.clock = clock or FakeClock()
        self.who = who
        self.place = {"master": None, "until": 0.0, "fence": 0} if beside is None else beside.place
        self.opened = False
        self.begun = 0
        self.round = 0
        self.renewed = 0
        self.pushed = []
        self.live = []
        self.done = []
        self.told = []

    def rival(self, who="host:2"):
        return FakeBatchQueue(self.clock, who=who, beside=self)

    @property
    def is_master(self):
        return self.place["master"] == self.who and self.clock() < self.place["until"]

    def _check(self):
        if not self.is_master:
            left_s = max(0.0, self.place["until"] - self.clock())
            raise NotMasterError(self._text() if left_s else "", left_s)

    def _text(self):
        return f"token {self.place['fence']} {self.place['master']} 2026-01-01"

    async def open(self):
        self.opened = True

    async def acquire(self, at_least=1):
        left_s = self.place["until"] - self.clock()
        if left_s > 0 and self.place["master"] != self.who:
            raise NotMasterError(self._text(), left_s)
        fence = max(self.place["fence"] + 1, at_least)
        self.place.update(master=self.who, until=self.clock() + LOCK_S, fence=fence)
        return fence

    async def renew(self):
        self._check()
        self.renewed += 1
        self.place["until"] = self.clock() + LOCK_S

    async def release(self):
        if self.is_master:
            self.place["until"] = 0.0

    async def begin(self):
        self._check()
        self.begun += 1
        self.round = 0

    async def again(self):
        self._check()
        self.round += 1

    async def push(self, batch, pairs):
        self._check()
        self.pushed += [(batch, self.round, task_id, row) for task_id, row in pairs]
        return len(self.pushed)

    async def finished(self, batch):
        self._check()
        self.done.append(batch)

    async def tell(self, progress):
        self._check()
        self.told.append(progress)

    async def waiting(self):
        return len(self.pushed)

    async def live_ids(self, batch):
        yield [task_id for of, _, task_id, _ in self.pushed if of == batch]
        yield list(self.live)
