"""What unit tests build a part of a node from: an environment that keeps what it was told, leases, a quiet logger."""

from __future__ import annotations

from netspy.engine.env import Env
from netspy.messages.entry import Lease
from netspy.messages.request import Request
from netspy.observe.counters import Counters
from netspy.observe.throttle import ThrottledLog
from netspy.settings import Settings
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
