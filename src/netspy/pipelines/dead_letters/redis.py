"""Dead letters in a Redis list of the job: they outlive the container, and every node's are in one place.

The list is permanent and of the whole job, not of a run: what a run could not store must not end with the run's keys.
"""

from __future__ import annotations

import threading
import time
import uuid
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, cast

from netspy.errors import NetspyError, PipelineError
from netspy.pipelines.dead_letters.records import line_of, parse_record
from netspy.redisio.client import sync_client
from netspy.redisio.errors import one_line
from netspy.redisio.keys import failed_items
from netspy.settings import hide_password

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import redis

    from netspy.messages.row import DeadRow
    from netspy.settings import Settings

_PAGE = 500
_COMMAND_BYTES = 4 * 1024 * 1024  # of one command: Redis does nothing else meanwhile
_LOCK_S = 15.0
_LOCK_PAUSE_S = 0.25
_EXTEND = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0"
_UNLOCK = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


class RedisLetters:
    """The list `<job>:failed_items`. Connects when it is first used; one thread at a time."""

    def __init__(self, settings: Settings, job: str, url: str | None = None) -> None:
        """`url`: another Redis than REDIS_URL's. Raises ConfigError, MissingExtraError."""
        self._client: redis.Redis = sync_client(settings, url=url, key=job)
        self._key = failed_items(job)
        self._lock = f"{self._key}:lock"
        self.name = f"{self._key} in {hide_password(url or settings.REDIS_URL)}"

    def append(self, rows: Sequence[DeadRow]) -> None:
        """Add the rows, all or none. Raises what the client raises."""
        with self._client.pipeline(transaction=True) as pipe:
            self._push(pipe, [line_of(row).rstrip(b"\n") for row in rows])
            pipe.execute()

    def _push(self, pipe: Any, lines: Sequence[bytes]) -> None:
        part: list[bytes] = []
        size = 0
        for line in lines:
            if part and size + len(line) > _COMMAND_BYTES:
                pipe.rpush(self._key, *part)
                part, size = [], 0
            part.append(line)
            size += len(line)
        if part:
            pipe.rpush(self._key, *part)

    def count(self) -> int:
        """How many there are."""
        return self._client.llen(self._key)

    def read(self) -> Iterator[DeadRow]:
        """The rows, oldest first; lines that can't be read are left out."""
        at = 0
        while lines := self._range(at, _PAGE):
            for line in lines:
                with suppress(ValueError, NetspyError):
                    yield parse_record(line)
            at += len(lines)

    def _range(self, at: int, most: int) -> list[bytes]:
        return cast("list[bytes]", self._client.lrange(self._key, at, at + most - 1))

    @contextmanager
    def claim(self) -> Iterator[RedisClaim | None]:
        """To write them again; None when there are none. Raises PipelineError while another replay runs.

        The lock of a replay that was killed runs out within 15 s, which is waited for.
        """
        token = uuid.uuid4().hex
        until = time.monotonic() + _LOCK_S + 1.0
        while not self._locked(token):
            if time.monotonic() > until:
                raise PipelineError(f"{self.name} is being replayed by another process; let it finish")
            time.sleep(_LOCK_PAUSE_S)
        ended = threading.Event()
        keeper = threading.Thread(
            target=self._keep_lock, args=(token, ended), name="netspy-replay-lock", daemon=True
        )
        keeper.start()
        try:
            total = self.count()
            yield RedisClaim(self, total) if total else None
        finally:
            ended.set()
            keeper.join()
            with suppress(Exception):  # then it runs out by itself
                self._client.eval(_UNLOCK, 1, self._lock, token)

    def _locked(self, token: str) -> bool:
        try:
            return bool(self._client.set(self._lock, token, nx=True, px=int(_LOCK_S * 1000)))
        except Exception as error:
            raise _away(self.name, error) from error

    def _keep_lock(self, token: str, ended: threading.Event) -> None:
        while not ended.wait(_LOCK_S / 4):
            with suppress(Exception):  # the next beat tries again; rows are safe without the lock
                self._client.eval(_EXTEND, 1, self._lock, token, str(int(_LOCK_S * 1000)))

    def take(self, most: int) -> list[bytes]:
        """The first lines of the list."""
        try:
            return self._range(0, most)
        except Exception as error:
            raise _away(self.name, error) from error

    def settle(self, lines: Sequence[bytes], keep: Sequence[bytes]) -> None:
        """In one step: `lines` leave the list, `keep` stand at its end."""
        try:
            with self._client.pipeline(transaction=True) as pipe:
                for line in lines:
                    # By its text and not by its place: right also for whoever has lost the lock.
                    pipe.lrem(self._key, 1, cast("str", line))
                self._push(pipe, [line.rstrip(b"\n") for line in keep])
                pipe.execute()
        except Exception as error:
            raise _away(self.name, error) from error

    def close(self) -> None:
        """Drop the connections."""
        self._client.close()
        self._client.connection_pool.disconnect()


class RedisClaim:
    """The letters that were there when the replay began."""

    def __init__(self, letters: RedisLetters, total: int) -> None:
        self._letters = letters
        self._lines: list[bytes] = []
        self.total = total

    def take(self, most: int) -> list[bytes]:
        """The next lines."""
        self._lines = self._letters.take(most)
        return self._lines

    def settle(self, keep: Sequence[bytes]) -> None:
        """The lines taken are over, but for `keep`. Raises PipelineError."""
        self._letters.settle(self._lines, keep)

    def end(self) -> None:
        """Nothing is left to do."""


def _away(name: str, error: Exception) -> PipelineError:
    return PipelineError(f"{name} does not answer ({one_line(error)}); what was not settled is still there")
