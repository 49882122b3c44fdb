"""The failed requests of a run: list, show, queue again, drop. Each step leaves every record in one place."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from netspy.errors import NetspyError, SerializationError
from netspy.messages.request import Request
from netspy.messages.wire_format import DEFAULT_PRIORITY
from netspy.policy.failed_record import FailedRecord, read_failed
from netspy.redisio.keys import RunKeys
from netspy.redisio.scripts import Arg, Call, load, run_sync

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import redis

    from netspy.policy.run_scope import RunScope

PAGE = 200
_CALL_BYTES = 4_000_000  # Redis does nothing else during a call
_SITE = re.compile(r"[0-9A-Za-z_-]{8}")


class Failed(NamedTuple):
    """One record with its text as stored, which names it to `drop_failed`."""

    place: int
    record: FailedRecord
    text: bytes


class Retried(NamedTuple):
    """What `retry_failed` did. `unreadable` records stay in the list; `why` is what is wrong with the first of them."""

    queued: int
    unreadable: int
    why: str = ""


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

    `wanted` chooses, `edit` may change the payload (a new retry budget) and raises NetspyError for what is no request.
    A page at a time, in steps in which a record is either in the list or in the queue. Repeating the call after a cut
    connection moves nothing twice. What stands in the list that can't be queued stays there and costs no other record.
    """
    keys = RunKeys.of(scope)
    script = load("netspy.cluster.lua", "requeue")
    left = count_failed(client, scope) if limit is None else limit
    at = queued = unreadable = 0
    why = ""
    while left > 0:
        texts = cast("list[bytes]", client.lrange(keys.failed, at, at + min(PAGE, left) - 1))
        if not texts:
            break
        good: list[list[Arg]] = []
        for text in texts:
            record = read_failed(text)
            try:
                if record.payload is None or wanted(record):
                    good.append([text, *_entry(record, edit)])
            except NetspyError as error:
                unreadable += 1
                why = why or str(error)
        moved = 0
        for args in _calls(good):
            call = Call(script, [keys.meta, keys.failed, keys.queued], [scope.queue_ttl_ms, *args])
            moved += run_sync(client, call)
        queued += moved
        left -= len(texts)
        at += len(texts) - moved
    return Retried(queued, unreadable, why)


def _entry(record: FailedRecord, edit: Callable[[bytes], bytes]) -> list[Arg]:
    """Site, priority and JSON of a record, as the script takes them. Raises NetspyError for what can't be queued."""
    payload = record.payload
    if payload is None:
        raise SerializationError(record.error or "the record holds no request")
    payload = edit(payload)
    site = record.site if _SITE.fullmatch(record.site) else Request.unpack(payload).site
    return [site, repr(record.priority if math.isfinite(record.priority) else DEFAULT_PRIORITY), payload]


def _calls(records: list[list[Arg]]) -> Iterator[list[Arg]]:
    """The arguments of as many calls as it takes."""
    args: list[Arg] = []
    size = 0
    for record in records:
        length = sum(len(word) for word in record if isinstance(word, str | bytes))
        if args and size + length > _CALL_BYTES:
            yield args
            args, size = [], 0
        args += record
        size += length
    if args:
        yield args


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
