"""FAILED_ITEM_URL: dead letters go to a store that outlives the machine, and to the local file while it is away."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from netspy.errors import ConfigError
from netspy.pipelines.dead_letters.replay import Letters
from netspy.pipelines.errors import text_of
from netspy.settings import hide_password

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from netspy.messages.row import DeadRow
    from netspy.settings import Settings

_AWAY_S = 10.0  # how long a store that did not answer is left alone: each try costs its time-out


class Store(Letters, Protocol):
    """A shared store of dead letters."""

    def count(self) -> int:
        """How many there are."""

    def close(self) -> None:
        """Drop connections."""


def open_store(settings: Settings, job: str) -> Store | None:
    """The store that FAILED_ITEM_URL names; None when it is empty. Nothing is sent yet.

    `job` is `<prefix>:<redis_key>`, in braces in a Redis Cluster. Raises ConfigError, MissingExtraError.
    """
    url = settings.FAILED_ITEM_URL
    if not url:
        return None
    scheme, _, rest = url.partition("://")
    if in_redis(url):
        from netspy.pipelines.dead_letters.redis import RedisLetters

        if url == "redis" and settings.REDIS_URL == "embedded":
            raise ConfigError(
                "FAILED_ITEM_URL='redis' needs a Redis that outlives the run, and REDIS_URL is 'embedded' here; "
                "leave it empty: dead letters are in FAILED_ITEM_PATH"
            )
        return RedisLetters(settings, job, None if url == "redis" else url)
    if scheme == "sqlite" and rest.startswith("/") and len(rest) > 1:
        from netspy.pipelines.dead_letters.sqlite import SqliteLetters

        return SqliteLetters(rest[1:])
    raise ConfigError(
        f"FAILED_ITEM_URL={hide_password(url)!r} is none that netspy knows; write redis (the spider's own), "
        "redis://host:6379/0, sqlite:///folder/failed.db, or nothing for the file alone"
    )


def in_redis(url: str) -> bool:
    """Whether FAILED_ITEM_URL names a Redis, where each job has a list of its own."""
    scheme, mark, _ = url.partition("://")
    return url == "redis" or (bool(mark) and scheme.partition("+")[0] in {"redis", "rediss", "unix"})


class SharedLetters:
    """Appends to the store, and to the file when the store takes nothing."""

    def __init__(self, store: Letters, file: Letters, on_trouble: Callable[[str], None]) -> None:
        """`on_trouble` is told once for each time that the store is away."""
        self._store = store
        self._file = file
        self._on_trouble = on_trouble
        self._away = False
        self._not_before = 0.0

    def append(self, rows: Sequence[DeadRow]) -> None:
        """Kept when it returns. Raises OSError when neither takes them."""
        if time.monotonic() >= self._not_before:
            try:
                self._store.append(rows)
            except Exception as error:
                self._not_before = time.monotonic() + _AWAY_S
                if not self._away:
                    self._away = True
                    self._on_trouble(
                        f"{self._store.name} takes no dead letters ({text_of(error)}); they go to {self._file.name} "
                        "on this machine"
                    )
            else:
                self._away = False
                return
        self._file.append(rows)
