"""Messages of a Redis stream, through a consumer group: for `netspy consume`, and for tasks that others put there.

The group remembers which consumer has which entry; what a consumer hasn't kept for a lease is claimed by others. A
settled entry is acknowledged, and deleted when no other group of the stream still waits for it: so a stream of this group
alone holds only what is left. An entry that can't be used goes to the stream `<key>:failed`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from netspy.errors import ConfigError, SerializationError, StoreUnavailableError
from netspy.policy.failed_record import MAX_ERROR_CHARS
from netspy.redisio.link import AsyncLink, StoreFullError
from netspy.redisio.scripts import Arg, Call, load, run_async
from netspy.settings import Settings, hide_password, without_passwords
from netspy.tasks.contract import Backlog, Task
from netspy.tasks.wire import decode_value, encode_values

if TYPE_CHECKING:
    from collections.abc import Mapping

FIELD = "row"
"""The field of an entry that holds the message; an entry without it is a message of all its fields."""

_FULL_PAUSE_S = 1.0
_CLOSE_S = 2.0
_PER_CALL = 500
_COUNTED = 1000
FOLDER = "netspy.tasks.redis.lua"


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
        self._stop = asyncio.Event()
        self.unreadable = 0

    async def open(self) -> None:
        """Connect, make the group where it is missing. Raises ConfigError for a key of another type, or missing rights."""
        await self._ask(self._join, timeout_s=self._start_timeout_s)
        await self._ask(self._try_rights)

    async def _try_rights(self) -> None:
        """What taking and settling need, on nothing: no entry can have the id 0-0."""
        client = self._link.client
        await client.xreadgroup(self.group, self._name, {self.key: "0"}, count=1)
        await client.xclaim(self.key, self.group, self._name, 0, ["0-0"], justid=True)
        call = self._call("stream_end", self._name, "settled", "0-0", "")
        await run_async(client, call)
        await run_async(client, self._call("stream_backlog", 1))

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

    def _call(self, script: str, *args: Arg) -> Call:
        return Call(load(FOLDER, script), [self.key, self.failed_key], [self.group, *args])

    async def take(self, limit: int) -> list[Task]:
        """Entries whose consumer is gone come first; one that has come back twice comes alone."""
        call = Call(
            load(FOLDER, "stream_take"),
            [self.key],
            [self.group, self._name, min(limit, _PER_CALL), self._lease_ms],
        )
        return await self._tasks(await self._ask(partial(run_async, self._link.client, call)))

    async def _tasks(self, entries: Sequence[Any]) -> list[Task]:
        tasks: list[Task] = []
        broken: list[tuple[Task, str]] = []
        for entry_id, flat, deliveries in entries:
            token = _text(entry_id)
            fields = dict(zip(flat[::2], flat[1::2], strict=True))
            body = fields.get(FIELD.encode())
            try:
                value = _plain(fields) if body is None else decode_value(body, ours=False)
            except SerializationError as error:
                broken.append((Task(token, None, None, deliveries), str(error)))
            else:
                tasks.append(Task(token, value, None, deliveries))
        if broken:
            self.unreadable += len(broken)
            await self.failed(broken)
        return tasks

    async def keep(self, tasks: Sequence[Task]) -> None:
        """Idle for 0 ms again, those that are still this consumer's."""
        await self._end("keep", [(task, "") for task in tasks])

    async def release(self, tasks: Sequence[Task]) -> None:
        """Idle for so long that anybody may claim them; this delivery doesn't count."""
        await self._end("release", [(task, "") for task in tasks])

    async def settled(self, tasks: Sequence[Task]) -> None:
        """Acknowledged, and deleted unless another group waits for them."""
        await self._end("settled", [(task, "") for task in tasks])

    async def failed(self, failures: Sequence[tuple[Task, str]]) -> None:
        """To `<key>:failed`, with the fields that it had and `error`; then as `settled`."""
        await self._end(
            "failed", [(task, without_passwords(error)[:MAX_ERROR_CHARS]) for task, error in failures]
        )

    async def _end(self, what: str, pairs: Sequence[tuple[Task, str]]) -> None:
        for at in range(0, len(pairs), _PER_CALL):
            args: list[Arg] = []
            for task, error in pairs[at : at + _PER_CALL]:
                args += [task.token, error.encode("utf-8", "replace")]
            call = self._call("stream_end", self._name, what, *args)
            await self._ask(partial(run_async, self._link.client, call))

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
        """`waiting` is exact up to a thousand."""
        call = self._call("stream_backlog", _COUNTED)
        waiting, taken, failed = await self._ask(partial(run_async, self._link.client, call))
        return Backlog(int(waiting), int(taken), None, int(failed))

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
