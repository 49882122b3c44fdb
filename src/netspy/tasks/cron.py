"""BATCH_CRON in BATCH_TIMEZONE as instants, and the schedule that the settings describe.

Over a change of clocks it goes as in Debian's cron: a firing whose local time doesn't exist happens when the clocks have
moved, one whose local time comes twice happens once; `*` in the hour or minute field follows elapsed time.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from netspy.errors import ConfigError, MissingExtraError
from netspy.policy.batch import Schedule, interval_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from netspy.settings import Settings


class CronFirings:
    """The firings of a cron expression. Raises ConfigError for an expression or a time zone that can't be used,
    MissingExtraError when the library isn't installed.
    """

    def __init__(self, expression: str, zone: str = "UTC") -> None:
        try:
            import cronsim
        except ImportError as error:
            raise MissingExtraError("BATCH_CRON", "batch") from error
        from zoneinfo import ZoneInfo

        self.expression = expression
        try:
            self._zone = ZoneInfo(zone)
        except (OSError, ValueError, KeyError) as error:  # KeyError: ZoneInfoNotFoundError
            raise ConfigError(
                f"BATCH_TIMEZONE={zone!r} is no time zone that this machine knows; give a name like Europe/Berlin"
            ) from error
        self._ticks = cronsim.CronSim
        if len(expression.split()) != 5:
            raise ConfigError(
                f"BATCH_CRON={expression!r} has {len(expression.split())} fields; give five: minute hour day month weekday"
            )
        try:
            next(self._after(datetime(2026, 1, 1, tzinfo=UTC)))
        except cronsim.CronSimError as error:
            raise ConfigError(f"BATCH_CRON={expression!r} can't be read: {error}") from error
        except StopIteration:
            raise ConfigError(f"BATCH_CRON={expression!r} never comes") from None

    def after(self, instant: datetime) -> datetime:
        """The first firing later than `instant`."""
        return next(self._after(instant))

    def at_or_before(self, instant: datetime) -> datetime:
        """The last firing that isn't later than `instant`."""
        # Backwards only to have a start: what counts as a firing is what `after` says, around changes of clocks too.
        backwards = self._ticks(self.expression, instant.astimezone(self._zone), reverse=True)
        next(backwards)
        latest = (next(backwards) - timedelta(seconds=1)).astimezone(UTC)
        for firing in self._after(latest):
            if firing > instant:
                return latest
            latest = firing
        return latest

    def _after(self, instant: datetime) -> Iterator[datetime]:
        for tick in self._ticks(self.expression, instant.astimezone(self._zone)):
            firing = tick.astimezone(UTC)
            if firing > instant:  # within a repeated hour the local time may lead back
                yield firing


def batch_schedule(settings: Settings, batch_interval: float | None = None) -> Schedule:
    """The schedule of BATCH_CRON, else of BATCH_INTERVAL (`batch_interval` in its place) and its unit.

    Raises ConfigError.
    """
    interval = settings.BATCH_INTERVAL if batch_interval is None else batch_interval
    every_s = interval_seconds(interval, settings.BATCH_INTERVAL_UNIT)
    if not settings.BATCH_CRON:
        return Schedule(every_s)
    return Schedule(every_s, CronFirings(settings.BATCH_CRON, settings.BATCH_TIMEZONE))
