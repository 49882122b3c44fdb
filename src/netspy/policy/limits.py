"""The limits that end a run: so many pages, items, failed requests, seconds."""

from __future__ import annotations

from collections.abc import Callable

from netspy.settings import Settings

_COUNTED = (
    ("SPIDER_MAX_PAGES", "pages"),
    ("SPIDER_MAX_ITEMS", "items"),
    ("SPIDER_MAX_ERRORS", "request_failed"),
)


def limit_of(settings: Settings, count: Callable[[str], int]) -> Callable[[], str | None] | None:
    """What says that a counted limit is reached, in a sentence; None when the settings have none.

    `count` gives a counter by its name.
    """
    limits = [
        (name, counter, getattr(settings, name)) for name, counter in _COUNTED if getattr(settings, name)
    ]
    if not limits:
        return None

    def reached() -> str | None:
        for name, counter, limit in limits:
            if count(counter) >= limit:
                return f"{name}={limit} reached"
        return None

    return reached


def runtime_over(settings: Settings, elapsed_s: float) -> str | None:
    """That SPIDER_MAX_RUNTIME is over, in a sentence; None while it isn't, or is 0."""
    limit = settings.SPIDER_MAX_RUNTIME
    return f"SPIDER_MAX_RUNTIME={limit:g} reached" if limit and elapsed_s >= limit else None
