"""Messages of a Redis stream, through a consumer group: for `netspy consume`, and for tasks that others put there.

The group remembers which consumer has which entry; what a consumer hasn't kept for a lease is claimed by others
(XAUTOCLAIM, Redis 6.2). A settled entry is acknowledged and deleted, so the stream holds only what is left. A message
that can't be used goes to the stream `<key>:failed`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from netspy.errors import ConfigError, SerializationError, StoreUnavailableError
from netspy.policy.failed_record import MAX_ERROR_CHARS
from netspy.redisio.link import AsyncLink, StoreFullError
from netspy.settings import Settings, hide_password, without_passwords
from netspy.tasks.contract import Backlog, Task
from netspy.tasks.wire import decode_value, encode_values

if TYPE_CHECKING:
    from collections.abc import Mapping

FIELD = "row"
"""The field of an entry that holds the message; an entry without it is a message of all its fields."""

_FULL_PAUSE_S = 1.0
_CLOSE_S = 2.0
_AT_ONCE_MS = 10**9  # idle for so long that the next claim takes it


class RedisStreamSource:
    """One consumer of the group. See `contract.TaskSource`."""

    holds = False
    reusable = False

    def __init__(
        self,
        settings: Settings,
        key: str,
        *,
        group: str = "netspy",
        url: str | None = None,
        lease_s: float | None = None,
        on_outage: Callable[[bool, float], None] | None = None,
    ) -> None:
        """`lease_s`: how long an entry is a consumer's without a sign of life (default: HEARTBEAT_STALE). Nothing is
        connected yet. Raises ConfigError for a wrong URL.
        """
        self.key = key
        self.group = group
        self.failed_key = f"{key}:failed"
        self._name = f"netspy-{secrets.token_hex(6)}"
        self._url = url or settings.REDIS_URL
        self._link = AsyncLink(settings, url=url, key=key, on_outage=on_outage)
        self._lease_ms = round(1000 * (settings.HEARTBEAT_STALE if lease_s is None else lease_s))
        self._start_timeout_s = max(0.05, settings.REDIS_START_TIMEOUT)
        self._cursor = "0-0"
        self._stop = asyncio.Event()
        self.unreadable = 0

    async def open(self) -> None:
        """Connect, make the group where it is missing. Raises ConfigError for a key of another type."""
        await self._ask(self._join, timeout_s=self._start_timeout_s)

    async def _join(self) -> None:
        from redis.exceptions import ResponseError

        client = self._link.client
        try:
            await client.xgroup_create(self.key, self.group, id="0", mkstream=True)
        except ResponseError as error:
            if "WRONGTYPE" in str(error):
                raise ConfigError(
                    f"Redis at {hide_password(self._url)}: {self.key!r} is no stream; name another key, or list:{self.key}"
                ) from None
            if "BUSYGROUP" not in str(error):
                raise

    async def _ask(self, send: Callable[[], Awaitable[Any]], *, timeout_s: float | None = None) -> Any:
        """Waits through outages and for memory, and makes the group again when the key was deleted."""
        from redis.exceptions import ResponseError

        while True:
            try:
                return await self._link.ask(send, timeout_s=timeout_s)
            except ResponseError as error:
                if "NOGROUP" not in str(error):
                    raise
                await self._link.ask(self._join)
            except StoreFullError as error:
                if self._stop.is_set():
                    raise StoreUnavailableError(f"Redis has no memory left (maxmemory): {error}") from None
                try:
                    await asyncio.wait_for(self._stop.wait(), _FULL_PAUSE_S)
                except TimeoutError:
                    continue

    async def take(self, limit: int) -> list[Task]:
        """Entries whose consumer is gone come first."""
        client = self._link.client

        async def claim() -> Any:
            return await client.xautoclaim(
                self.key, self.group, self._name, self._lease_ms, self._cursor, count=limit
            )

        reply = await self._ask(claim)
        self._cursor = _text(reply[0])
        tasks = await self._tasks(reply[1], deliveries=2)
        if len(tasks) < limit:

            async def read() -> Any:
                return await client.xreadgroup(
                    self.group, self._name, {self.key: ">"}, count=limit - len(tasks)
                )

            for _key, entries in await self._ask(read) or ():
                tasks += await self._tasks(entries, deliveries=1)
        return tasks

    async def _tasks(self, entries: Sequence[Any], *, deliveries: int) -> list[Task]:
        tasks: list[Task] = []
        broken: list[tuple[Task, str]] = []
        for entry_id, fields in entries:
            if fields is None:  # deleted while it was pending (Redis 6.2 tells of those)
                continue
            token = _text(entry_id)
            body = fields.get(FIELD.encode())
            try:
                value = _plain(fields) if body is None else decode_value(body, ours=False)
            except SerializationError as error:
                broken.append((Task(token, None, fields, deliveries), str(error)))
            else:
                tasks.append(Task(token, value, fields, deliveries))
        if broken:
            self.unreadable += len(broken)
            await self.failed(broken)
        return tasks

    async def keep(self, tasks: Sequence[Task]) -> None:
        """Idle for 0 ms again."""
        await self._claim(tasks, 0)

    async def release(self, tasks: Sequence[Task]) -> None:
        """Idle for so long that anybody may claim them."""
        await self._claim(tasks, _AT_ONCE_MS)

    async def _claim(self, tasks: Sequence[Task], idle_ms: int) -> None:
        if not tasks:
            return

        async def send() -> Any:
            return await self._link.client.xclaim(
                self.key, self.group, self._name, 0, [task.token for task in tasks], idle=idle_ms, justid=True
            )

        await self._ask(send)

    async def settled(self, tasks: Sequence[Task]) -> None:
        """Acknowledged and deleted."""
        await self._end(tasks, [])

    async def failed(self, failures: Sequence[tuple[Task, str]]) -> None:
        """To `<key>:failed`, with the fields that it had and `error`."""
        entries: list[dict[Any, Any]] = [
            {**task.receipt, b"error": without_passwords(error)[:MAX_ERROR_CHARS].encode("utf-8", "replace")}
            for task, error in failures
        ]
        await self._end([task for task, _ in failures], entries)

    async def _end(self, tasks: Sequence[Task], entries: Sequence[dict[Any, Any]]) -> None:
        if not tasks:
            return
        tokens = [task.token for task in tasks]

        async def send() -> None:
            async with self._link.client.pipeline(transaction=True) as several:
                for entry in entries:
                    several.xadd(self.failed_key, entry)
                several.xack(self.key, self.group, *tokens)
                several.xdel(self.key, *tokens)
                await several.execute()

        await self._ask(send)

    async def add(self, values: Sequence[Any]) -> None:
        """New entries, all or none; perhaps twice when the connection breaks in between."""
        bodies = encode_values(values)

        async def send() -> None:
            async with self._link.client.pipeline(transaction=True) as several:
                for body in bodies:
                    several.xadd(self.key, {FIELD: body})
                await several.execute()

        if bodies:
            await self._ask(send)

    async def backlog(self) -> Backlog:
        """Exact while this group is the stream's only one."""

        async def look() -> Backlog:
            async with self._link.client.pipeline(transaction=True) as several:
                several.xlen(self.key)
                several.xpending(self.key, self.group)
                several.xlen(self.failed_key)
                length, pending, failed = await several.execute()
            taken = int(pending["pending"])
            return Backlog(max(0, length - taken), taken, None, failed)

        found: Backlog = await self._ask(look)
        return found

    async def _forget(self) -> None:
        client = self._link.client
        if not await client.xpending_range(self.key, self.group, "-", "+", 1, consumername=self._name):
            await client.xgroup_delconsumer(self.key, self.group, self._name)

    def give_up_waiting(self) -> None:
        """Calls that wait for an absent server end soon."""
        self._stop.set()
        self._link.give_up_waiting()

    async def close(self) -> None:
        """Disconnect. The group forgets this consumer's name, unless it still has entries."""
        self.give_up_waiting()
        with suppress(Exception):  # a name that stays costs nothing but room in XINFO CONSUMERS
            await asyncio.wait_for(self._forget(), _CLOSE_S)
        await self._link.close()


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _plain(fields: Mapping[bytes, bytes]) -> dict[str, str]:
    """A foreign entry: its fields as text. Raises SerializationError."""
    try:
        return {name.decode(): value.decode() for name, value in fields.items()}
    except UnicodeDecodeError as error:
        raise SerializationError(f"the entry has a field that is no UTF-8 text: {error}") from None
