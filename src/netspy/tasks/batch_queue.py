"""What a batch's master and its workers share in Redis: the lock, the pushed tasks, and the marks of begin and end.

A task on its way to a worker is an element of `<ns>:batch_pending`: JSON with its batch, its round, its id and its row. Its
token in the frontier is `<batch>.<round>/<id as JSON>`, so everybody can tell which rows of the table are being worked
on. The round rises whenever lost tasks are handed out again: what was crawled for them before is no repeat.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import secrets
import socket
import time
from typing import TYPE_CHECKING, Any

from netspy.errors import ConfigError, SerializationError, StoreUnavailableError
from netspy.messages import codec
from netspy.redisio.errors import foreign_lock
from netspy.redisio.keys import RunKeys, batch_types
from netspy.redisio.link import AsyncLink, StoreFullError
from netspy.redisio.scripts import Arg, Call, load
from netspy.tasks.master_lock import Holder, NotMasterError, read_holder
from netspy.tasks.redis.list import FOLDER, TaskKeys

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from netspy.policy.run_scope import RunScope
    from netspy.settings import Settings

DONE_MARK_S = 86_400
_PAGE = 1000
_FULL_PAUSE_S = 1.0
_CALL_BYTES = 2_000_000
_LOCK = re.compile(r"[0-9a-f]{16} \d+ \S+")  # of acquire in lua/master.lua


def text_of(value: Any) -> str:
    """What Redis answered, as text."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


class BatchKeys:
    """The names of one batch job's keys beside those of its frontier."""

    __slots__ = ("done", "lock", "master", "pending", "progress")

    def __init__(self, ns: str) -> None:
        self.pending = TaskKeys(f"{ns}:batch_pending")
        self.done = f"{ns}:batch_done"
        self.lock = f"{ns}:batch_monitor_lock"
        self.master = f"{ns}:batch_master"
        self.progress = f"{ns}:batch_progress"


def token_of(batch: int, task_id: Any, round_: int = 0) -> str:
    """The frontier's name of a task: `17.0/"abc"`. Braces are written as JSON escapes would be, so that none stands in it."""
    text = codec.encode(task_id, "task id").decode().replace("%", "%25").replace("{", "%7B")
    return f"{batch}.{round_}/{text}"


def read_token(token: str) -> tuple[int, Any]:
    """(batch, task id). Raises ValueError for a token of something else."""
    head, _, text = token.partition("/")
    batch, _, _round = head.partition(".")
    try:
        return int(batch), codec.decode(text.replace("%7B", "{").replace("%25", "%").encode())
    except (SerializationError, ValueError):
        raise ValueError(f"{token!r:.100} is not the token of a batch's task") from None


def salt_of(token: str) -> bytes:
    """What is the same for all tasks of a batch's round and differs from the others'."""
    return token.partition("/")[0].encode() + b"/"


def identify(value: Any) -> tuple[str, Any]:
    """(token, row) of an element of `batch_pending`. Raises KeyError or TypeError for anything else."""
    return token_of(value["batch"], value["id"], value.get("round", 0)), value["row"]


class BatchQueue:
    """The master's side. Calls wait through outages; `on_outage` is told."""

    def __init__(
        self,
        settings: Settings,
        scope: RunScope,
        *,
        on_outage: Callable[[bool, float], None] | None = None,
        on_full: Callable[[], None] | None = None,
        url: str | None = None,
    ) -> None:
        """Nothing is connected yet. `on_full`: the server's memory is full, and it is waited for. Raises ConfigError for a
        wrong URL.
        """
        self.keys = BatchKeys(scope.ns)
        self.run_keys = RunKeys.of(scope, max_layers=settings.DEDUP_MAX_LAYERS)
        self._settings = settings
        self.link = AsyncLink(settings, url=url, key=self.keys.lock, on_outage=on_outage)
        self.token = secrets.token_hex(8)
        self.who = f"{socket.gethostname()}:{os.getpid()}".replace(" ", "_")
        self.lock_ms = round(settings.HEARTBEAT_STALE * 1000)
        self._round = 0
        self._on_full = on_full
        self._stop = asyncio.Event()

    async def open(self) -> None:
        """Connect, and look at the keys. Raises ConfigError, StoreUnavailableError."""
        timeout = max(0.05, self._settings.REDIS_START_TIMEOUT)
        await self.link.ask(self._check, timeout_s=timeout)

    async def _check(self) -> None:
        for key, wanted in batch_types(self.run_keys.ns):
            found = text_of(await self.link.client.type(key))
            if found not in {wanted, "none"}:
                raise ConfigError(
                    f"Redis key {key} belongs to another program (it is a {found}, not a {wanted}); choose another redis_key "
                    "or REDIS_KEY_PREFIX, or delete it"
                )
        await check_lock(self.link, self.keys)

    async def _run(self, what: str, *args: Arg, keys: Sequence[str] = ()) -> list[Any]:
        call = Call(
            load(FOLDER, "master"), [self.keys.lock, self.keys.master, *keys], ["", what, self.token, *args]
        )
        reply = await self._when_there_is_room(call)
        if not reply[0]:
            holder = text_of(reply[1])
            if holder and not _LOCK.match(holder):
                raise ConfigError(foreign_lock(self.keys.lock, holder))
            raise NotMasterError(holder, max(0, int(reply[2])) / 1000)
        return reply

    async def _when_there_is_room(self, call: Call) -> list[Any]:
        told = False
        while True:
            try:
                reply: list[Any] = await self.link.run(call)
            except StoreFullError as error:
                if self._stop.is_set():
                    raise StoreUnavailableError(f"Redis has no memory left (maxmemory): {error}") from None
                if not told and self._on_full is not None:
                    self._on_full()
                told = True
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), _FULL_PAUSE_S)
            else:
                return reply

    async def acquire(self, at_least: int = 1) -> int:
        """Become the master; returns the fence, a number higher than before. Raises NotMasterError with the holder."""
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        reply = await self._run("acquire", f"{self.who} {since}", self.lock_ms, at_least)
        self._round = int(reply[2])
        return int(reply[1])

    async def renew(self) -> None:
        """Stay the master. Raises NotMasterError."""
        await self._run("renew", self.lock_ms)

    async def release(self) -> None:
        """Be the master no longer; harmless when it isn't."""
        try:
            await self._run("release")
        except NotMasterError:
            return

    async def begin(self) -> None:
        """Forget what the batch before has fetched and stored. Raises NotMasterError."""
        keys = self.run_keys
        await self._run("begin", "", keys=[self.keys.done, *keys.requests.all(), *keys.items.all()])
        self._round = 0

    async def again(self) -> None:
        """Tasks pushed from now on may have been pushed before and are worked on all the same. Raises NotMasterError."""
        await self._run("again", self._round + 1)
        self._round += 1

    async def push(self, batch: int, pairs: Sequence[tuple[Any, dict[str, Any]]]) -> int:
        """Hand (id, row) pairs to the workers; returns how many wait now. Raises NotMasterError."""
        waiting = 0
        piece: list[Arg] = []
        size = 0
        for task_id, row in pairs:
            text = codec.encode({"batch": batch, "round": self._round, "id": task_id, "row": row}, "task")
            if piece and size + len(text) > _CALL_BYTES:
                waiting = int((await self._run("push", *piece, keys=[self.keys.pending.base]))[1])
                piece, size = [], 0
            piece.append(text)
            size += len(text)
        if piece:
            waiting = int((await self._run("push", *piece, keys=[self.keys.pending.base]))[1])
        return waiting

    async def finished(self, batch: int) -> None:
        """Set the documented mark. Raises NotMasterError."""
        await self._run("done", batch, DONE_MARK_S, keys=[self.keys.done])

    async def tell(self, progress: dict[str, Any]) -> None:
        """What `netspy status` and the workers' displays show of the batch. Raises NotMasterError."""
        await self._run("tell", json.dumps(progress), keys=[self.keys.progress])

    async def waiting(self) -> int:
        """How many pushed tasks no worker has taken yet."""
        return int(await self.link.ask(lambda: self.link.client.llen(self.keys.pending.base)))

    async def live_ids(self, batch: int) -> AsyncIterator[list[Any]]:
        """Ids of the batch's tasks that wait, are in a worker's hands, or have requests that aren't done; in pages.

        Read in the direction in which a task moves, so one that moves meanwhile is seen at least once.
        """
        pending, client = self.keys.pending, self.link.client
        end = -1
        while True:
            # From the tail: the list loses its head meanwhile, and places counted from the end stay what they are.
            last = end
            texts: Any = await self.link.ask(lambda: client.lrange(pending.base, last - _PAGE + 1, last))  # noqa: B023
            yield _ids((_token(text) for text in texts), batch)
            end -= _PAGE
            if len(texts) < _PAGE:
                break
        members: Any = await self.link.ask(lambda: client.zrange(pending.inflight, 0, -1))
        yield _ids((_token(member[17:]) for member in members), batch)
        cursor: int = 0
        while True:
            position = cursor
            page: Any = await self.link.ask(
                lambda: client.hscan(self.run_keys.tasks, position, count=_PAGE)  # noqa: B023
            )
            cursor = int(page[0])
            yield _ids((field.decode("utf-8", "replace") for field in page[1]), batch)
            if not cursor:
                return

    def give_up_waiting(self) -> None:
        """Calls that wait for a server that is away raise StoreUnavailableError now."""
        self._stop.set()
        self.link.give_up_waiting()

    async def close(self) -> None:
        """Drop the connections."""
        await self.link.close()


def _token(text: bytes) -> str:
    try:
        return identify(codec.decode(text))[0]
    except (SerializationError, KeyError, TypeError):
        return ""


def _ids(tokens: Any, batch: int) -> list[Any]:
    found = []
    for token in tokens:
        try:
            of, task_id = read_token(token)
        except ValueError:
            continue
        if of == batch:
            found.append(task_id)
    return found


async def check_lock(link: AsyncLink, keys: BatchKeys) -> None:
    """Raises ConfigError for a master lock that netspy did not write."""
    text: Any = await link.client.get(keys.lock)
    if text is not None and not _LOCK.match(text_of(text)):
        raise ConfigError(foreign_lock(keys.lock, text_of(text)))


async def master_holder(link: AsyncLink, keys: BatchKeys) -> Holder | None:
    """Who the master is now; None when there is none."""
    text: Any = await link.ask(lambda: link.client.get(keys.lock))
    if text is None:
        return None
    left: Any = await link.ask(lambda: link.client.pttl(keys.lock))
    return read_holder(text.decode("utf-8", "replace"), left / 1000)
