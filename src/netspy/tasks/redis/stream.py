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
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from netspy.errors import ConfigError, SerializationError, StoreUnavailableError
from netspy.policy.failed_record import MAX_ERROR_CHARS
from netspy.redisio.link import AsyncLink, StoreFullError
from netspy.redisio.scripts import Arg, Call, load, run_async
from netspy.settings import Settings, hide_password, without_passwords
from netspy.tasks.contract import Backlog, Task
from netspy.tasks.redis.list import read_task
from netspy.tasks.wire import decode_value, encode_values

if TYPE_CHECKING:
    from collections.abc import Mapping

FIELD = "row"
"""The field of an entry that holds the message; an entry without it is a message of all its fields."""
TASK_FIELD = "task"
"""The same for tasks, which may also be bare words. An entry with the one field `data` is read as if it were `task`."""

_FULL_PAUSE_S = 1.0
_CLOSE_S = 2.0
_PER_CALL = 500
_COUNTED = 1000
FOLDER = "netspy.tasks.redis.lua"


class Receipt(NamedTuple):
    """An entry as it is in the stream."""

    entry_id: str
    fields: dict[bytes, bytes]


class RedisStreamSource:
    """One consumer of the group. See `contract.TaskSource`. `consumes` False, set before `open`: it adds and counts only, and
    makes no group.
    """

    holds = True
    reusable = False

    def __init__(
        self,
        settings: Settings,
        key: str,
        *,
        group: str = "netspy",
        field: str = FIELD,
        url: str | None = None,
        lease_s: float | None = None,
        on_outage: Callable[[bool, float], None] | None = None,
    ) -> None:
        """`field`: FIELD or TASK_FIELD. `lease_s`: how long an entry is a consumer's without a sign of life (default:
        HEARTBEAT_STALE). Nothing is connected yet. Raises ConfigError for a wrong URL.
        """
        self.key = key
        self.group = group
        self.consumes = True
        self._field = field
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
        await self._ask(self._join if self.consumes else self._check, timeout_s=self._start_timeout_s)
        if self.consumes:
            await self._ask(self._try_rights)

    async def _try_rights(self) -> None:
        """What taking and settling need, on nothing: no entry can have the id 0-0."""
        client = self._link.client
        await client.xreadgroup(self.group, self._name, {self.key: "0"}, count=1)
        await client.xclaim(self.key, self.group, self._name, 0, ["0-0"], justid=True)
        call = self._call("stream_end", self._name, "settled", "0-0", "")
        await run_async(client, call)
        await run_async(client, self._call("stream_backlog", 1))

    async def _check(self) -> None:
        if _text(await self._link.client.type(self.key)) not in {"stream", "none"}:
            raise self._no_stream()

    def _no_stream(self) -> ConfigError:
        return ConfigError(
            f"Redis at {hide_password(self._url)}: {self.key!r} is no stream; name another key, or list:{self.key}"
        )

    async def _join(self) -> None:
        from redis.exceptions import ResponseError

        client = self._link.client
        try:
            await client.xgroup_create(self.key, self.group, id="0", mkstream=True)
        except ResponseError as error:
            if "WRONGTYPE" in str(error):
                raise self._no_stream() from None
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
            fields = dict(zip(flat[::2], flat[1::2], strict=True))
            receipt = Receipt(_text(entry_id), fields)
            task = Task(_token(receipt), None, receipt, deliveries)
            try:
                tasks.append(task._replace(value=self._read(fields)))
            except SerializationError as error:
                broken.append((task, str(error)))
        if broken:
            self.unreadable += len(broken)
            await self.failed(broken)
        return tasks

    def _read(self, fields: Mapping[bytes, bytes]) -> Any:
        body = fields.get(self._field.encode())
        if self._field != TASK_FIELD:
            return _plain(fields) if body is None else decode_value(body, ours=False)
        if body is None and len(fields) == 1:
            body = fields.get(b"data")
        return _plain(fields) if body is None else read_task(body)

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
                args += [task.receipt.entry_id, error.encode("utf-8", "replace")]
            call = self._call("stream_end", self._name, what, *args)
            await self._ask(partial(run_async, self._link.client, call))

    async def add(self, values: Sequence[Any]) -> None:
        """New entries, all or none; perhaps twice when the connection breaks in between."""
        bodies = encode_values(values)

        async def send() -> None:
            async with self._link.client.pipeline(transaction=True) as several:
                for body in bodies:
                    several.xadd(self.key, {self._field: body})
                await several.execute()

        if bodies:
            await self._ask(send)

    async def backlog(self) -> Backlog:
        """`waiting` is exact up to a thousand."""
        if not self.consumes:
            found: Backlog = await self._ask(self._look)
            return found
        call = self._call("stream_backlog", _COUNTED)
        waiting, taken, failed = await self._ask(partial(run_async, self._link.client, call))
        return Backlog(int(waiting), int(taken), None, int(failed))

    async def _look(self) -> Backlog:
        client = self._link.client
        group = (await self._groups()).get(self.group)
        length, failed = await client.xlen(self.key), await client.xlen(self.failed_key)
        if group is None:
            return Backlog(length, 0, None, failed)
        # What was taken since the group was read is counted as waiting: a look never finds less than there is.
        next_one = await client.xrange(self.key, f"({_text(group['last-delivered-id'])}", "+", count=1)
        taken = int(group["pending"])
        waiting = max(1, group.get("lag") or length - taken) if next_one else 0
        return Backlog(waiting, taken, None, failed)

    async def _groups(self) -> dict[str, dict[str, Any]]:
        """The stream's groups by name; none where there is no stream."""
        from redis.exceptions import ResponseError

        try:
            found = await self._link.client.xinfo_groups(self.key)
        except ResponseError as error:
            if "no such key" not in str(error):
                raise
            return {}
        return {_text(group["name"]): group for group in found}

    async def _forget(self) -> None:
        if not self.consumes:
            return
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


def _ids(tasks: Sequence[Task]) -> list[Any]:
    return [task.receipt.entry_id for task in tasks]


def _token(receipt: Receipt) -> str:
    """Producers may choose ids, and choose one again after the key was deleted: so the fields are in it, too."""
    digest = blake2b(repr(sorted(receipt.fields.items())).encode(), digest_size=6).hexdigest()
    return f"{receipt.entry_id}.{digest}"


def _plain(fields: Mapping[bytes, bytes]) -> dict[str, str]:
    """A foreign entry: its fields as text. Raises SerializationError."""
    try:
        return {name.decode(): value.decode() for name, value in fields.items()}
    except UnicodeDecodeError as error:
        raise SerializationError(f"the entry has a field that is no UTF-8 text: {error}") from None
