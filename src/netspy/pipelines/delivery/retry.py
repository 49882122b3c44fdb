"""One pipeline and its rows of a batch: tried again, waited for while its store is away, split to find bad rows."""

from __future__ import annotations

import time
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from netspy.errors import PipelineError, RowsFailedError
from netspy.pipelines.delivery.deadline import Deadline, LimitError
from netspy.pipelines.delivery.runner import Group, Runner
from netspy.pipelines.errors import UnavailableError, may_be_the_row, rows_fault, text_of
from netspy.policy.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from netspy.messages.row import Row
    from netspy.pipelines.delivery.events import Events
    from netspy.settings import Settings

_LONGEST_BACKOFF_S = 30.0
_SHORTEST_PAUSE_S = 0.1
_PATIENCE_S = 10.0  # splitting goes on for this long without storing a row, then the rest counts as failed
_ALONE_TRIES = 5
"""So often a row breaks the connection by itself, with pauses, while others were stored, before it is the row's fault."""


class Failure(NamedTuple):
    """A row that a pipeline doesn't have; `place` is its place in the batch."""

    place: int
    pipeline: str
    error: str
    lacking: tuple[str, ...] = ()  # the pipelines that lack the row when it isn't `pipeline` alone


class _Attempt(NamedTuple):
    """What one call left: rows that may be stored later and why they are not, and rows lost for good.

    `named`: the pipeline told which rows they are, so there is nothing to be found by splitting.
    """

    left: Group
    error: Exception | None
    lost: list[Failure]
    named: dict[int, Exception]


class _Tried(NamedTuple):
    """What became of a group: rows lost for good, and those that may be stored once `error` has passed.

    `suspects`: those of the rest that alone broke the connection, while everything else was stored.
    """

    lost: Sequence[Failure] = ()
    rest: Sequence[Failure] = ()
    error: Exception | None = None
    suspects: frozenset[int] = frozenset()

    @property
    def places(self) -> set[int]:
        """Of the rest, in the batch."""
        return {failure.place for failure in self.rest}


class DeliveryRetry:
    """Gives pipelines their rows, again and again where that may help. All methods belong to one event loop.

    `waited_for`: the names of the pipelines whose stores are away while rows wait for them.
    """

    def __init__(
        self,
        settings: Settings,
        deadline: Deadline,
        sleep: Callable[[float], Awaitable[None]],
        events: Events,
    ) -> None:
        self._settings = settings
        self._deadline = deadline
        self._sleep = sleep
        self._tell = events.tell
        self.waited_for: dict[str, None] = {}

    async def feed(
        self,
        runner: Runner,
        batch: Sequence[Row],
        indexes: list[int],
        prepared: dict[int, dict[str, Any] | Exception] | None = None,
    ) -> list[Failure]:
        """Give a pipeline its rows of the batch; returns those it doesn't have afterwards.

        With `prepared`, the rows are given to be prepared, and what they become is put there by place.
        """
        failures: list[Failure] = []
        async with runner.lock:
            patient = not runner.gave_up
            for plain in _groups(batch, indexes, self._settings.ITEM_BATCH_SIZE):
                group = plain._replace(prepared=prepared)
                left = group
                tried = await self._store(runner, left, patient=patient)
                self._judge(runner, left, tried)
                failures += tried.lost
                suspects, waits, alone = tried.suspects, 0, 0
                while tried.rest and alone < _ALONE_TRIES and await self._wait_for_store(runner, tried):
                    left = left.only(tried.places)
                    tried = await self._again(runner, left, waits, suspects)
                    self._judge(runner, left, tried)
                    failures += tried.lost
                    suspects |= tried.suspects
                    waits += 1
                    alone = alone + 1 if tried.places <= suspects else 0
                if tried.rest and alone >= _ALONE_TRIES:
                    failures += tried.rest
                    runner.away_since = None
                    self.waited_for.pop(runner.label, None)
                    continue
                if tried.rest:
                    failures += tried.rest
                    patient = False  # the other tables get one try each, not the whole series
        return failures

    def _judge(self, runner: Runner, group: Group, tried: _Tried) -> None:
        """Whether the pipeline is down or up; a change is told."""
        stored = len(group.indexes) - len(tried.lost) - len(tried.rest)
        if not (tried.rest and tried.error is not None and runner.away(tried.error)):
            # It answered, even if it refused every row.
            runner.away_since, runner.gave_up = None, False
            self.waited_for.pop(runner.label, None)
        if stored:
            if runner.down:
                runner.down = False
                self._tell("up", runner.name, group.table, stored, f"{runner.label} stores rows again")
        elif tried.error is not None and not runner.down and not self._deadline.hurried:
            runner.down = True
            text = text_of(tried.error)
            message = f"{runner.label} stores nothing at the moment: {text}"
            if self._patience_s and runner.away(tried.error):
                message += f"; the crawl waits for it, at most {self._patience_s:g} s (ITEM_STORE_PATIENCE)"
            self._tell("down", runner.name, group.table, len(tried.rest), message, error=text)

    @property
    def _patience_s(self) -> float:
        return 0.0 if self._settings.ITEM_STORE_DOWN == "spill" else self._settings.ITEM_STORE_PATIENCE

    async def _wait_for_store(self, runner: Runner, tried: _Tried) -> bool:
        """Pause because the store is away. False when it isn't, or has been waited for long enough."""
        if tried.error is None or not runner.away(tried.error):
            return False
        now = time.monotonic()
        if runner.away_since is None:
            runner.away_since = now
            self.waited_for[runner.label] = None
            runner.pauses = self._backoff(_SHORTEST_PAUSE_S)
        left = runner.away_since + self._patience_s - now
        if left <= 0 or self._deadline.hurried:
            runner.gave_up = True
            self.waited_for.pop(runner.label, None)
            return False
        await self._deadline.pause(min(runner.pauses.next_s(), left), self._sleep)
        return True

    def _backoff(self, shortest_s: float = 0.0) -> Backoff:
        first_s = max(self._settings.ITEM_RETRY_BACKOFF, shortest_s)
        return Backoff(first_s, max(first_s, _LONGEST_BACKOFF_S))

    async def _store(self, runner: Runner, group: Group, *, patient: bool) -> _Tried:
        """Try a group of rows, several times when `patient`, and part by part when that may tell the bad rows."""
        lost: list[Failure] = []
        group, error, gone, named = await self._attempt(runner, group)
        lost += gone
        pauses = self._backoff()
        for number in range(self._settings.ITEM_RETRY_TIMES if patient else 0):
            if error is None or rows_fault(error):
                break
            wait_s = pauses.next_s()
            if self._deadline.left() <= wait_s:
                break
            text = text_of(error)
            message = (
                f"{runner.label} could not store {len(group.items)} row(s) of {group.table!r} "
                f"(try {number + 1}: {text}); trying again in {wait_s:g} s"
            )
            self._tell("retry", runner.name, group.table, len(group.items), message, error=text)
            await self._deadline.pause(wait_s, self._sleep)
            group, error, gone, named = await self._attempt(runner, group)
            lost += gone
        if error is None:
            return _Tried(lost)
        if named:
            return self._named(runner, lost, named)
        # A store that is known to be away is not asked for each of the rows.
        known = runner.away_since is not None and runner.away(error)
        if known or isinstance(error, UnavailableError) or len(group.items) == 1:
            failed = _all_failed(runner, group, error)
            return _Tried(lost + failed) if rows_fault(error) else _Tried(lost, failed, error)
        parts = await self._split(runner, group, error)
        return parts._replace(lost=[*lost, *parts.lost])

    def _named(self, runner: Runner, lost: list[Failure], named: dict[int, Exception]) -> _Tried:
        """Of rows that the pipeline itself told apart, those for which its store has no time now are the rest."""
        away = {place: why for place, why in named.items() if runner.away(why)}
        rest = away or named
        refused = {place: why for place, why in named.items() if place not in rest}
        return _Tried(
            [*lost, *_named_failures(runner, refused)],
            _named_failures(runner, rest),
            next(iter(rest.values())),
        )

    async def _again(self, runner: Runner, group: Group, number: int, suspects: frozenset[int]) -> _Tried:
        """Another try, the `number`-th, of rows that wait for their store.

        One row that breaks the connection must not keep the others waiting for ever. So each time one of them, another
        one, goes alone, and when it is stored the store is there, and the others are split.
        """
        tried = await self._store(runner, group, patient=False)
        if (
            len(tried.rest) < len(group.indexes)
            or len(group.indexes) == 1
            or tried.error is None
            or isinstance(tried.error, UnavailableError)
            or not runner.away(tried.error)
        ):
            return tried
        lost: Sequence[Failure] = ()
        if not tried.places <= suspects:
            probe = group.indexes[number % len(group.indexes)]
            found = await self._store(runner, group.only({probe}), patient=False)
            if found.rest:
                return tried
            lost = found.lost
            group = group.only(tried.places - {probe})
        parts = await self._split(runner, group, tried.error)
        return parts._replace(lost=[*lost, *parts.lost])

    async def _split(self, runner: Runner, group: Group, error: Exception) -> _Tried:
        """Halve the group again and again, so that only rows which are at fault are lost.

        Where the error says that the store is away, or may be (nothing was stored after it), the rows are the rest.
        """
        lost: list[Failure] = []
        waiting_for: list[tuple[Group, Exception]] = []  # failed because the store was away
        behind: list[tuple[Group, Exception]] = []  # failed since the last row that was stored
        failed_calls: list[Group] = [group]
        stored = False
        progress = time.monotonic()
        waiting = group.halves()
        while waiting:
            part = waiting.pop()
            if not isinstance(error, UnavailableError) and time.monotonic() - progress < _PATIENCE_S:
                left, found, gone, named = await self._attempt(runner, part)
                lost += gone
                if len(left.items) + len(gone) < len(part.items):
                    progress = time.monotonic()
                    stored = True
                    for failed, why in behind:
                        if runner.away(why):
                            waiting_for.append((failed, why))
                        else:
                            lost += _all_failed(runner, failed, why)
                    behind = []
                if found is None:
                    continue
                if rows_fault(found):
                    progress = time.monotonic()  # the store is there, and says what is wrong
                error = found
                part = left
                failed_calls.append(part)
                if named:
                    behind += [(part.only({place}), why) for place, why in named.items()]
                    continue
                if len(part.items) > 1 and not isinstance(error, UnavailableError):
                    waiting += part.halves()
                    continue
            behind.append((part, error))
        rest: list[Failure] = []
        reasons: list[Exception] = []
        alone: set[int] = set()
        for failed, why in waiting_for + behind:
            away = runner.away(why)
            if away or not (stored or rows_fault(why)):
                rest += _all_failed(runner, failed, why)
                reasons.append(why)
                if away and len(failed.indexes) == 1 and may_be_the_row(why):
                    alone |= {*failed.indexes}
            else:
                lost += _all_failed(runner, failed, why)
        if not rest:
            return _Tried(lost)
        guilty = stored and all(alone.intersection(call.indexes) for call in failed_calls)
        cause = next((why for why in reasons if runner.away(why)), reasons[-1])
        return _Tried(lost, rest, cause, frozenset(alone) if guilty else frozenset())

    async def _attempt(self, runner: Runner, group: Group) -> _Attempt:
        error = await self._call(runner, group)
        if error is None:
            return _Attempt(group.only(set()), None, [], {})
        if not isinstance(error, RowsFailedError):
            return _Attempt(group, error, [], {})
        if wrong := [at for at in error.failed if at not in range(len(group.items))]:
            told = PipelineError(f"RowsFailedError names row {wrong[0]!r} of {len(group.items)}")
            return _Attempt(group, told, [], {})
        lost: list[Failure] = []
        named: dict[int, Exception] = {}
        for at, why in error.failed.items():
            if rows_fault(why):
                lost.append(Failure(group.indexes[at], runner.name, text_of(why)))
            else:
                named[group.indexes[at]] = why
        return _Attempt(group.only(set(named)), next(iter(named.values()), None), lost, named)

    async def _call(self, runner: Runner, group: Group) -> Exception | None:
        if self._deadline.left() <= 0:
            return UnavailableError("not tried: the time to stop had come")
        limit_s = self._settings.ITEM_WRITE_TIMEOUT or inf
        setting = "ITEM_WRITE_TIMEOUT"
        if group.prepared is not None:
            limit_s, setting = self._settings.SPIDER_TASK_MAX_SECONDS, "SPIDER_TASK_MAX_SECONDS"
        try:
            await self._deadline.call(runner.deliver(group), limit_s)
        except LimitError:
            why = (
                "the time to stop had come"
                if self._deadline.left() <= 0
                else f"it took longer than {setting}={limit_s:g} s"
            )
            return UnavailableError(f"given up, perhaps stored all the same: {why}")
        except Exception as error:
            return error
        return None


def _groups(batch: Sequence[Row], indexes: list[int], most: int) -> list[Group]:
    """Rows that can share a call. Inserts and updates of one table stay in their order; tables don't matter
    to each other.
    """
    groups: list[Group] = []
    latest: dict[str, Group] = {}
    for index in indexes:
        row = batch[index]
        group = latest.get(row.table)
        if (
            group is None
            or group.update_keys != row.update_keys
            or group.unique_key != row.unique_key
            or len(group.items) >= most
        ):
            group = latest[row.table] = Group(row.table, row.update_keys, row.unique_key, [], [])
            groups.append(group)
        group.indexes.append(index)
        group.items.append(row.data)
    return groups


def _named_failures(runner: Runner, named: dict[int, Exception]) -> list[Failure]:
    return [Failure(place, runner.name, text_of(why)) for place, why in named.items()]


def _all_failed(runner: Runner, group: Group, error: Exception) -> list[Failure]:
    text = text_of(error)
    return [Failure(index, runner.name, text) for index in group.indexes]
