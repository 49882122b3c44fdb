"""How a run ended, and what the process tells its caller: the outcome and the exit code."""

from __future__ import annotations

import signal as signals
from enum import IntEnum
from typing import Literal

from netspy.errors import (
    ConfigError,
    InvalidUrlError,
    RequestError,
    SeedingError,
    SpiderError,
    StoreLostError,
)

Outcome = Literal[
    "finished",
    "nothing_to_do",
    "stopped",
    "limit",
    "all_failed",
    "seeding_failed",
    "config_error",
    "store_lost",
    "forced",
    "failed",
    "not_master",
]
"""How a run ended. See OUTCOMES for what each means."""

Crash = Literal["", "config", "seeding", "store", "internal"]
"""What broke the run; empty when nothing did."""

Stop = Literal["", "limit", "code", "SIGHUP", "SIGINT", "SIGTERM", "forced"]
"""Who ended the run before the work was done; empty when nobody did."""

_BY_SIGNAL: tuple[Stop, ...] = ("SIGHUP", "SIGINT", "SIGTERM")

OUTCOMES: dict[Outcome, str] = {
    "finished": "every request is over; some may have failed",
    "nothing_to_do": "no request was handled: nothing queued, all of it known already",
    "limit": "a limit (SPIDER_MAX_…) was reached; the rest stays queued",
    "stopped": "stopped gracefully by a signal or by `stop()`; the rest stays queued",
    "all_failed": "there was work and none of it succeeded: no page, or no item could be stored",
    "seeding_failed": "start_requests raised; what it had yielded was crawled",
    "config_error": "a setting, an argument or the spider's declaration is wrong",
    "store_lost": "the shared store went away, or lost this run's keys",
    "forced": "stopped by a second signal; what was in flight is taken over or crawled again",
    "failed": "an error inside netspy",
    "not_master": "another batch master runs for this job; the reason says who and since when",
}
"""Every outcome, from the best to the worst (`merge` of several processes keeps the worst)."""


class ExitCode(IntEnum):
    """What the process returns. 1 is left to Python, 128 + n follows the shells' habit for signals."""

    FINISHED = 0
    """The run is over, also with some failed requests, with nothing to do, at a limit or after `stop()`."""
    USAGE = 2
    """The command line can't be understood."""
    CONFIG = 3
    """A setting, an argument or the spider's declaration is wrong."""
    SEEDING = 4
    """`start_requests` raised."""
    STORE = 5
    """The shared store is lost or not available."""
    ALL_FAILED = 6
    """There was work and all of it failed."""
    INTERNAL = 7
    """An error inside netspy."""
    NOT_MASTER = 8
    """Another batch master runs (`start_monitor(once=True)`)."""
    NOTHING_TO_DO = 9
    """Nothing to do, with FAIL_ON_NOTHING_TO_DO only."""
    SIGHUP = 129
    """Stopped gracefully by SIGHUP (the terminal has gone)."""
    SIGINT = 130
    """Stopped gracefully by SIGINT (Ctrl-C)."""
    FORCED = 137
    """Stopped by a second signal."""
    SIGTERM = 143
    """Stopped gracefully by SIGTERM."""


_CRASHED: dict[Crash, Outcome] = {
    "config": "config_error",
    "seeding": "seeding_failed",
    "store": "store_lost",
    "internal": "failed",
}

_CODES: dict[Outcome, ExitCode] = {
    "finished": ExitCode.FINISHED,
    "nothing_to_do": ExitCode.FINISHED,
    "limit": ExitCode.FINISHED,
    "stopped": ExitCode.FINISHED,
    "all_failed": ExitCode.ALL_FAILED,
    "seeding_failed": ExitCode.SEEDING,
    "config_error": ExitCode.CONFIG,
    "store_lost": ExitCode.STORE,
    "forced": ExitCode.FORCED,
    "failed": ExitCode.INTERNAL,
    "not_master": ExitCode.NOT_MASTER,
}


def crash_of(error: BaseException | None) -> Crash:
    """What kind of breakage `error` is; empty for None."""
    if error is None:
        return ""
    if isinstance(error, SeedingError):
        return "seeding"
    if isinstance(error, StoreLostError):
        return "store"
    if isinstance(error, ConfigError | SpiderError):
        return "config"
    return "internal"


def stop_of(signal: int | None) -> Stop:
    """Who stopped a run: this signal, or code."""
    return "code" if signal is None else next(s for s in _BY_SIGNAL if getattr(signals, s, None) == signal)


def causes_of(outcome: Outcome, signal: int | None = None) -> tuple[Crash, Stop]:
    """What broke the run and who stopped it, from how it ended and the signal that stopped it, if any."""
    crash: Crash = next((cause for cause, effect in _CRASHED.items() if effect == outcome), "")
    stop: Stop = ""
    if outcome == "stopped":
        stop = stop_of(signal)
    elif outcome in {"limit", "forced"}:
        stop = "limit" if outcome == "limit" else "forced"
    return crash, stop


def outcome_of(
    *,
    crash: Crash = "",
    stop: Stop = "",
    ok: int,
    failed: int,
    other: int = 0,
    items: int = 0,
    items_failed: int = 0,
) -> Outcome:
    """How the run ended, from what broke it, who stopped it and what it had done by then.

    `ok` and `failed` count requests, `other` those that ended in another way (dropped, refused). A forced
    stop and a crash decide first. A graceful stop by a signal says nothing about success; a run that ends of
    itself, at a limit or by `stop()` is `all_failed` when it had work and nothing came of it.
    """
    if stop == "forced":
        return "forced"
    if crash:
        return _CRASHED[crash]
    if stop in _BY_SIGNAL:
        return "stopped"
    if (failed and not ok) or (items_failed and not items):
        return "all_failed"
    if stop:
        return "limit" if stop == "limit" else "stopped"
    return "finished" if ok or failed or other else "nothing_to_do"


def exit_code(outcome: Outcome, *, stop: Stop = "", fail_on_nothing_to_do: bool = False) -> ExitCode:
    """The exit code of an outcome. `stop` tells which signal a `stopped` run got."""
    if outcome == "stopped" and stop in _BY_SIGNAL:
        return ExitCode[stop]
    if outcome == "nothing_to_do" and fail_on_nothing_to_do:
        return ExitCode.NOTHING_TO_DO
    return _CODES[outcome]


def exit_code_of(error: BaseException) -> ExitCode:
    """The exit code for an exception that ends a command.

    A URL that can't be fetched is a wrong argument there; a page that can't be had is all that was asked for.
    """
    if isinstance(error, KeyboardInterrupt):
        return ExitCode.SIGINT
    if isinstance(error, InvalidUrlError):
        return ExitCode.CONFIG
    if isinstance(error, RequestError):
        return ExitCode.ALL_FAILED
    return _CODES[_CRASHED[crash_of(error)]]
