"""The failed requests of a run: list, show, queue again, drop. Each step leaves every record in one place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

from netspy.policy.failed_record import FailedRecord, read_failed
from netspy.redisio.keys import RunKeys
from netspy.redisio.scripts import Arg, Call, load, run_sync

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import redis

    from netspy.policy.run_scope import RunScope

PAGE = 200


class Failed(NamedTuple):
    """One record with its text as stored, which names it to `drop_failed`."""

    place: int
    record: FailedRecord
    text: bytes


class Retried(NamedTuple):
    """What `retry_failed` did. `unreadable` records stay in the list."""

    queued: int
    unreadable: int


def count_failed(client: redis.Redis, scope: RunScope) -> int:
    """How many there are."""
    return client.llen(RunKeys.of(scope).failed)


def list_failed(
    client: redis.Redis, scope: RunScope, *, start: int = 0, limit: int | None = None
) -> Iterator[Failed]:
    """The records, oldest first, read in pages; a list that changes meanwhile may show one twice or pass one
    over.
    """
    key = RunKeys.of(scope).failed
    at, left = start, limit
    while left is None or left > 0:
        size = PAGE if left is None else min(PAGE, left)
        texts = cast("list[bytes]", client.lrange(key, at, at + size - 1))
        for offset, text in enumerate(texts):
            yield Failed(at + offset, read_failed(text), text)
        if len(texts) < size:
            return
        at += size
        left = None if left is None else left - size


def retry_failed(
    client: redis.Redis,
    scope: RunScope,
    *,
    limit: int | None = None,
    wanted: Callable[[FailedRecord], bool] = lambda _: True,
    edit: Callable[[bytes], bytes] = lambda payload: payload,
) -> Retried:
    """Move records back to the queue, as many as there are at the start.

    `wanted` chooses, `edit` may change the payload (a new retry budget). A page at a time, each in one step:
    a record is either in the list or in the queue. Repeating the call after a cut connection moves nothing
    twice.
    """
    keys = RunKeys.of(scope)
    script = load("netspy.cluster.lua", "requeue")
    left = count_failed(client, scope) if limit is None else limit
    at = queued = unreadable = 0
    while left > 0:
        texts = cast("list[bytes]", client.lrange(keys.failed, at, at + min(PAGE, left) - 1))
        if not texts:
            break
        args: list[Arg] = [scope.queue_ttl_ms]
        for text in texts:
            record = read_failed(text)
            payload = record.payload
            if payload is None:
                unreadable += 1
            elif wanted(record):
                args += [text, record.site, repr(record.priority), edit(payload)]
        moved = (
            run_sync(client, Call(script, [keys.meta, keys.failed, keys.queued], args))
            if len(args) > 1
            else 0
        )
        queued += moved
        left -= len(texts)
        at += len(texts) - moved
    return Retried(queued, unreadable)


def drop_failed(client: redis.Redis, scope: RunScope, texts: list[bytes] | None = None) -> int:
    """Remove these records, or all. Returns how many were removed."""
    key = RunKeys.of(scope).failed
    with client.pipeline(transaction=True) as pipe:
        if texts is None:
            pipe.llen(key)
            pipe.unlink(key)
            answers: list[Any] = pipe.execute()
            return int(answers[0])
        for text in texts:
            pipe.lrem(key, 1, cast("str", text))
        return sum(pipe.execute())
