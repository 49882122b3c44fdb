"""Tasks in a Redis list: the default task source.

The list `<prefix>:<task_key>:tasks` holds tasks as JSON, one element each, so any program can push (`RPUSH`) and look.
Beside it: `…:tasks:inflight`, tasks taken and not yet in the frontier, with deadlines by the server's clock;
`…:tasks:meta`, counters; `…:tasks:failed`, tasks that can't be turned into requests.
"""

from __future__ import annotations

import asyncio
import secrets
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from netspy.errors import SerializationError, StoreUnavailableError
from netspy.messages import codec
from netspy.policy.run_scope import CLUSTER_SCHEMES, check_names
from netspy.redisio.link import AsyncLink, StoreFullError
from netspy.redisio.scripts import Arg, Call, load
from netspy.tasks.contract import Backlog, Task
from netspy.tasks.wire import decode_value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from netspy.settings import Settings

FOLDER = "netspy.tasks.redis.lua"
TASKS_PER_CALL = 500
_FULL_PAUSE_S = 1.0


class TaskKeys:
    """The names of one list's keys. `base` is the list's own name."""

    __slots__ = ("base", "failed", "inflight", "meta")

    def __init__(self, base: str) -> None:
        self.base = base
        self.inflight = f"{base}:inflight"
        self.meta = f"{base}:meta"
        self.failed = f"{base}:failed"

    def all(self) -> list[str]:
        """In the order of the scripts."""
        return [self.base, self.inflight, self.meta, self.failed]


def task_keys(settings: Settings, task_key: str) -> TaskKeys:
    """The keys of `<prefix>:<task_key>:tasks`, with a hash tag in Redis Cluster. Raises ConfigError for a bad name."""
    check_names(settings.REDIS_KEY_PREFIX, task_key, "")
    name = f"{settings.REDIS_KEY_PREFIX}:{task_key}"
    if settings.REDIS_URL.partition("://")[0] in CLUSTER_SCHEMES:
        name = "{" + name + "}"
    return TaskKeys(f"{name}:tasks")


def read_task(text: bytes) -> Any:
    """A task as it stands in the list: JSON as netspy or any other program writes it, or a bare word such as a URL.

    Raises SerializationError for what is neither.
    """
    try:
        return decode_value(text, ours=False)
    except SerializationError:
        if text[:1] in b'{["' or text.strip() == b"":
            raise
        try:
            return text.decode()
        except UnicodeDecodeError:
            raise SerializationError(f"a task of {len(text)} bytes is neither JSON nor text") from None


class RedisTaskList:
    """See `contract.TaskSource`. `identify` names tasks that carry their own token: value → (token, value).

    `url`, `clock_ms`: for tests. `lease_s`: how long a taken task is the node's without a sign of life (default:
    HEARTBEAT_STALE); the node keeps it while it turns it into requests.
    """

    holds = False
    reusable = False
    counts_deaths = True  # `deliveries` counts nodes that were gone before the task was in the frontier

    def __init__(
        self,
        settings: Settings,
        keys: TaskKeys,
        *,
        identify: Callable[[Any], tuple[str, Any]] | None = None,
        url: str | None = None,
        on_outage: Callable[[bool, float], None] | None = None,
        lease_s: float | None = None,
        clock_ms: Callable[[], int] | None = None,
    ) -> None:
        """Nothing is connected yet. Raises ConfigError for a wrong URL."""
        self.keys = keys
        self._settings = settings
        self._identify = identify
        self.link = AsyncLink(settings, url=url, key=keys.base, on_outage=on_outage)
        self._lease_ms = round(1000 * (lease_s if lease_s is not None else settings.HEARTBEAT_STALE))
        self._clock_ms = clock_ms
        self._stop = asyncio.Event()
        self.unreadable = 0

    async def open(self) -> None:
        """Connect and look at the keys. Raises ConfigError, StoreUnavailableError."""
        timeout = max(0.05, self._settings.REDIS_START_TIMEOUT)
        await self.link.run(self._call("backlog"), timeout_s=timeout)

    def _call(self, script: str, *args: Arg, extra: Sequence[str] = ()) -> Call:
        now = "" if self._clock_ms is None else str(self._clock_ms())
        return Call(load(FOLDER, script), [*self.keys.all(), *extra], [now, *args])

    async def _run(self, script: str, *args: Arg, extra: Sequence[str] = ()) -> Any:
        """Waits through outages and for memory."""
        while True:
            try:
                return await self.link.run(self._call(script, *args, extra=extra))
            except StoreFullError as error:
                if self._stop.is_set():
                    raise StoreUnavailableError(
                        f"Redis has no memory left (maxmemory) and took no task: {error}"
                    ) from None
                try:
                    await asyncio.wait_for(self._stop.wait(), _FULL_PAUSE_S)
                except TimeoutError:
                    continue

    async def take(self, limit: int) -> list[Task]:
        """See the contract. A task that is neither JSON nor text goes to the failed list.

        A task that has come back twice, since its node died, comes alone, so that the guilty one is found.
        """
        limit = min(limit, TASKS_PER_CALL)
        reply = await self._run("take", limit, self._lease_ms, secrets.token_hex(4))
        return await self._tasks(reply[0], reply[3:])

    async def _tasks(self, epoch: bytes, members: Sequence[bytes]) -> list[Task]:
        tasks: list[Task] = []
        broken: list[tuple[Task, str]] = []
        for member in members:
            # The number alone may be given again, to another task, by a server that went back to an earlier state.
            digest = blake2b(member[17:], digest_size=6).hexdigest()
            token = f"{epoch.decode()}.{int(member[:15])}.{digest}"
            deliveries = int(member[15:17])
            try:
                value = read_task(member[17:])
                if self._identify is not None:
                    token, value = self._identify(value)
            except SerializationError as error:
                broken.append((Task(token, None, member, deliveries), str(error)))
            except (KeyError, TypeError, ValueError) as error:
                broken.append((Task(token, None, member, deliveries), f"not a task of this queue: {error!r}"))
            else:
                tasks.append(Task(token, value, member, deliveries))
        if broken:
            self.unreadable += len(broken)
            await self.failed(broken)
        return tasks

    async def adopt(self, values: Sequence[Any]) -> list[Task]:
        """New tasks that are this node's at once: leased in the step in which they come in."""
        texts = [codec.encode(value, "task") for value in values]
        tasks: list[Task] = []
        for at in range(0, len(texts), TASKS_PER_CALL):
            piece = texts[at : at + TASKS_PER_CALL]
            own = f"{self.keys.base}:call:{secrets.token_hex(12)}"
            reply = await self._run("give", secrets.token_hex(4), self._lease_ms, *piece, extra=[own])
            tasks += await self._tasks(reply[0], reply[1:])
        return tasks

    async def add(self, values: Sequence[Any]) -> None:
        """See the contract."""
        texts = [codec.encode(value, "task") for value in values]
        for at in range(0, len(texts), TASKS_PER_CALL):
            own = f"{self.keys.base}:call:{secrets.token_hex(12)}"
            piece = texts[at : at + TASKS_PER_CALL]
            await self._run("give", secrets.token_hex(4), "", *piece, extra=[own])

    async def _end(self, what: str, pairs: Sequence[tuple[Task, str]], ms: int | str = "") -> None:
        for at in range(0, len(pairs), TASKS_PER_CALL):
            args: list[Arg] = []
            for task, error in pairs[at : at + TASKS_PER_CALL]:
                args += [task.receipt, error]
            await self._run("end", what, ms, *args)

    async def keep(self, tasks: Sequence[Task]) -> None:
        """See the contract."""
        await self._end("keep", [(task, "") for task in tasks], self._lease_ms)

    async def settled(self, tasks: Sequence[Task]) -> None:
        """See the contract."""
        await self._end("settled", [(task, "") for task in tasks])

    async def failed(self, failures: Sequence[tuple[Task, str]]) -> None:
        """See the contract."""
        await self._end("failed", [(task, error[:2000]) for task, error in failures])

    async def release(self, tasks: Sequence[Task]) -> None:
        """See the contract."""
        await self._end("release", [(task, "") for task in tasks])

    async def backlog(self) -> Backlog:
        """See the contract."""
        reply = await self._run("backlog")
        return Backlog(int(reply[0]), int(reply[1]), int(reply[2]), int(reply[3]))

    def give_up_waiting(self) -> None:
        """See the contract."""
        self._stop.set()
        self.link.give_up_waiting()

    async def close(self) -> None:
        """See the contract."""
        self.give_up_waiting()
        await self.link.close()
