"""Batches into pipelines: retried, split to find bad rows, dead-lettered; per pipeline and never without an
end.

What `write` promises when it returns: each row is in every pipeline it belongs to, or a line in the
dead-letter file, synced to the disk, names the pipeline that lacks it. When even that fails it raises
PipelineError, and the caller must not ack; the same rows can be given again and go only to pipelines that
don't have them yet.
"""

from __future__ import annotations

import asyncio
import time
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from netspy.errors import ConfigError, ItemError, PipelineError
from netspy.pipelines.dead_letter import DeadRow
from netspy.pipelines.deadline import Deadline, LimitError
from netspy.pipelines.loader import load_pipelines, pipeline_name
from netspy.pipelines.runner import Group, Runner, SerialThread, UnavailableError
from netspy.policy.failed_record import MAX_ERROR_CHARS
from netspy.settings import without_passwords

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from netspy.messages.row import Row
    from netspy.pipelines.base import BasePipeline
    from netspy.settings import Settings

EventKind = Literal["retry", "down", "up", "dead_letter", "stuck", "no_pipeline", "close_failed"]

_LONGEST_BACKOFF_S = 30.0
_PATIENCE_S = 10.0  # splitting goes on for this long without storing a row, then the rest counts as failed
_CLOSE_S = 10.0


class PipelineEvent(NamedTuple):
    """Something worth a log line; `down`, `dead_letter` and `stuck` are worth an alarm.

    retry: a batch failed and will be tried again. down: not one row of a batch could be stored. up: it
    works again. dead_letter: rows went to the dead-letter file. stuck: not even that was possible.
    no_pipeline: there are items and nothing to keep them. close_failed: `close` raised or took too long.
    """

    kind: EventKind
    pipeline: str
    table: str
    rows: int
    message: str


class WriteResult(NamedTuple):
    """What became of a batch: `stored` + `failed` is its length.

    A row is `failed` when at least one of its pipelines doesn't have it; it is in the dead-letter file then.
    `failed_at` are the places of those rows in the batch; `tables` gives (stored, failed) for each table.
    """

    stored: int = 0
    failed: int = 0
    failed_at: tuple[int, ...] = ()
    tables: Mapping[str, tuple[int, int]] = MappingProxyType({})


class DeadLetters(Protocol):
    """Where rows go that couldn't be stored."""

    def append(self, rows: Sequence[DeadRow]) -> None:
        """On the disk when it returns; raises OSError when that is not possible."""


class _Failure(NamedTuple):
    place: int  # in the batch
    pipeline: str
    error: str


class BatchWriter:
    """Writes rows to the pipelines. All methods belong to one event loop.

    `pipelines` get the rows that name none. Rows that name others (`Item.__pipelines__`, dead letters) have
    them loaded when first needed. Plain methods run in one thread per pipeline, `async def` on the loop;
    different pipelines work side by side, calls for one pipeline never overlap and keep the order of the
    rows of a table.
    """

    def __init__(
        self,
        pipelines: Iterable[BasePipeline],
        settings: Settings,
        *,
        dead_letter: DeadLetters,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        on_event: Callable[[PipelineEvent], None] | None = None,
    ) -> None:
        self._settings = settings
        self._dead_letter = dead_letter
        self._sleep = sleep
        self._on_event = on_event
        self._deadline = Deadline()
        self._disk = SerialThread("netspy-dead-letter")
        self._runners: dict[str, Runner] = {}
        self._unusable: dict[str, str] = {}
        # Rows of a batch that could not even be dead-lettered, with the pipelines that have them.
        self._half_done: dict[int, tuple[Row, set[str]]] = {}
        self._said_no_pipeline = False
        self._defaults = [self._add(pipeline) for pipeline in pipelines]

    async def write(self, batch: Sequence[Row]) -> WriteResult:
        """Store the rows, or dead-letter those that can't be stored.

        Takes at most: per group of rows, the tries with their back-off and ITEM_WRITE_TIMEOUT each, then 10
        s without progress. Raises PipelineError when the dead-letter file can't be written: nothing may be
        acked then, and the caller gives the same Row objects again later.
        """
        work: dict[Runner, list[int]] = {}
        failures: list[_Failure] = []
        for index, row in enumerate(batch):
            kept = self._half_done.get(id(row))
            for found in self._targets(row):
                if not isinstance(found, Runner):
                    failures.append(_Failure(index, *found))
                elif kept is None or found.name not in kept[1]:
                    work.setdefault(found, []).append(index)
        for failed in await asyncio.gather(*(self._feed(runner, batch, at) for runner, at in work.items())):
            failures.extend(failed)
        if failures:
            await self._bury(batch, failures, work)
        if self._half_done:
            for row in batch:
                self._half_done.pop(id(row), None)
        return _result(batch, {failure.place for failure in failures})

    def hurry(self, deadline: float) -> None:
        """Be done by `deadline` (time.monotonic): what isn't stored by then is dead-lettered.

        Call it on the loop. The last half second, at most a fifth of the time, is kept for the dead letters.
        """
        left = max(0.0, deadline - time.monotonic())
        self._deadline.set(deadline - min(0.5, left / 5))

    async def close(self) -> None:
        """Close the pipelines, within 10 s, less when hurried. Doesn't raise: `close_failed` events tell."""
        await asyncio.gather(*(self._close(runner) for runner in self._runners.values()))
        self._disk.close()

    # which pipelines

    def _add(self, pipeline: BasePipeline) -> Runner:
        name = base = pipeline_name(pipeline)
        number = 1
        while name in self._runners:
            number += 1
            name = f"{base}#{number}"
        self._runners[name] = runner = Runner(name, pipeline)
        return runner

    def _targets(self, row: Row) -> list[Runner | tuple[str, str]]:
        """The pipelines of a row; (name, error) for one that can't be had."""
        if not row.pipelines:
            if not self._defaults and not self._said_no_pipeline:
                self._said_no_pipeline = True
                self._tell(
                    "no_pipeline",
                    "",
                    row.table,
                    1,
                    "ITEM_PIPELINES is empty: items are counted and kept nowhere",
                )
            return list(self._defaults)
        return list(dict.fromkeys(self._find(name) for name in row.pipelines))

    def _find(self, wanted: str | type | BasePipeline) -> Runner | tuple[str, str]:
        name = wanted.replace(":", ".") if isinstance(wanted, str) else pipeline_name(wanted)
        if (runner := self._runners.get(name)) is not None:
            return runner
        # A class of a script has the module name `__main__` there and another one in `netspy retry`.
        alike = [
            r for n, r in self._runners.items() if n.rpartition(".")[2] == name.removeprefix("__main__.")
        ]
        if len(alike) == 1:
            return alike[0]
        if name not in self._unusable:
            try:
                [pipeline] = load_pipelines([wanted], self._settings)
            except ConfigError as error:
                self._unusable[name] = str(error)
                self._tell("down", name, "", 0, str(error))
            else:
                # The path may be another name of a class that is there already.
                known = self._runners.get(pipeline_name(pipeline))
                self._runners[name] = runner = known or self._add(pipeline)
                return runner
        return name, self._unusable[name]

    # one pipeline

    async def _feed(self, runner: Runner, batch: Sequence[Row], indexes: list[int]) -> list[_Failure]:
        """Give a pipeline its rows of the batch; returns those it doesn't have afterwards."""
        failures: list[_Failure] = []
        patient = True
        async with runner.lock:
            for group in _groups(batch, indexes, self._settings.ITEM_BATCH_SIZE):
                failed, passing = await self._store(runner, group, patient=patient)
                failures.extend(failed)
                everything = len(failed) == len(group.indexes)
                if not everything:
                    patient = True
                    if runner.down:
                        runner.down = False
                        stored = len(group.indexes) - len(failed)
                        self._tell(
                            "up", runner.name, group.table, stored, f"{runner.label} stores rows again"
                        )
                elif passing:
                    patient = False  # the other tables get one try each, not the whole series
                    if not runner.down and not self._deadline.hurried:
                        runner.down = True
                        message = f"{runner.label} stores nothing at the moment: {failed[0].error}"
                        self._tell("down", runner.name, group.table, len(failed), message)
        return failures

    async def _store(self, runner: Runner, group: Group, *, patient: bool) -> tuple[list[_Failure], bool]:
        """Rows of the group that failed, and whether the last error may pass by itself."""
        error = await self._attempt(runner, group)
        wait_s = self._settings.ITEM_RETRY_BACKOFF
        for number in range(self._settings.ITEM_RETRY_TIMES if patient else 0):
            if error is None or _rows_fault(error) or self._deadline.left() <= wait_s:
                break
            message = (
                f"{runner.label} could not store {len(group.items)} row(s) of {group.table!r} "
                f"(try {number + 1}: {_text(error)}); trying again in {wait_s:g} s"
            )
            self._tell("retry", runner.name, group.table, len(group.items), message)
            await self._deadline.pause(wait_s, self._sleep)
            wait_s = min(wait_s * 2, _LONGEST_BACKOFF_S)
            error = await self._attempt(runner, group)
        if error is None:
            return [], False
        if isinstance(error, UnavailableError) or len(group.items) == 1:
            return _all_failed(runner, group, error), not _rows_fault(error)
        return await self._split(runner, group, error)

    async def _split(self, runner: Runner, group: Group, error: Exception) -> tuple[list[_Failure], bool]:
        """Halve the group again and again, so that only rows which fail alone count as failed."""
        failures: list[_Failure] = []
        passing = True
        progress = time.monotonic()
        waiting = [group.part(len(group.items) // 2, len(group.items)), group.part(0, len(group.items) // 2)]
        while waiting:
            part = waiting.pop()
            if not isinstance(error, UnavailableError) and time.monotonic() - progress < _PATIENCE_S:
                found = await self._attempt(runner, part)
                if found is None:
                    progress = time.monotonic()
                    continue
                error = found
                passing = not _rows_fault(error)
                if len(part.items) > 1 and not isinstance(error, UnavailableError):
                    half = len(part.items) // 2
                    waiting += [part.part(half, len(part.items)), part.part(0, half)]
                    continue
            failures += _all_failed(runner, part, error)
        return failures, passing

    async def _attempt(self, runner: Runner, group: Group) -> Exception | None:
        if self._deadline.left() <= 0:
            return UnavailableError("not tried: the time to stop had come")
        limit_s = self._settings.ITEM_WRITE_TIMEOUT or inf
        try:
            await self._deadline.call(runner.deliver(group), limit_s)
        except LimitError:
            why = (
                "the time to stop had come"
                if self._deadline.left() <= 0
                else f"it took longer than ITEM_WRITE_TIMEOUT={limit_s:g} s"
            )
            return UnavailableError(f"given up, perhaps stored all the same: {why}")
        except Exception as error:
            return error
        return None

    async def _close(self, runner: Runner) -> None:
        try:
            async with runner.lock:
                await asyncio.wait_for(runner.close(), min(_CLOSE_S, max(self._deadline.left(), 1.0)))
        except Exception as error:
            self._tell("close_failed", runner.name, "", 0, _text(error))

    # what can't be stored

    async def _bury(
        self, batch: Sequence[Row], failures: list[_Failure], work: dict[Runner, list[int]]
    ) -> None:
        now = time.time()
        dead = [
            DeadRow(batch[failure.place]._replace(pipelines=(failure.pipeline,)), failure.error, now)
            for failure in failures
        ]
        try:
            await self._disk.submit(self._dead_letter.append, dead)
        except Exception as error:
            failed = {(failure.place, failure.pipeline) for failure in failures}
            for runner, indexes in work.items():
                for index in indexes:
                    if (index, runner.name) not in failed:
                        row = batch[index]
                        self._half_done.setdefault(id(row), (row, set()))[1].add(runner.name)
            message = (
                f"{len(dead)} row(s) could be neither stored ({failures[0].error}) "
                f"nor dead-lettered ({_text(error)})"
            )
            self._tell("stuck", failures[0].pipeline, batch[failures[0].place].table, len(dead), message)
            raise PipelineError(message) from error
        groups: dict[tuple[str, str], list[str]] = {}
        for failure in failures:
            groups.setdefault((failure.pipeline, batch[failure.place].table), []).append(failure.error)
        for (pipeline, table), errors in groups.items():
            label = pipeline.rpartition(".")[2]
            message = (
                f"{len(errors)} row(s) of {table!r} could not be stored by {label} and are dead-lettered "
                f"(`netspy retry --items` writes them again): {errors[0]}"
            )
            self._tell("dead_letter", pipeline, table, len(errors), message)

    def _tell(self, kind: EventKind, pipeline: str, table: str, rows: int, message: str) -> None:
        if self._on_event is None:
            return
        try:
            self._on_event(PipelineEvent(kind, pipeline, table, rows, message))
        except Exception:  # whoever listens must not cost an item
            from loguru import logger

            logger.exception("the listener of pipeline events failed at {}: {}", kind, message)


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


def _rows_fault(error: Exception) -> bool:
    """Whether the same rows would fail again: an ItemError, or a driver's word for it (PEP 249)."""
    if isinstance(error, ItemError | NotImplementedError):
        return True
    return any(kind.__name__ in {"IntegrityError", "DataError"} for kind in type(error).__mro__)


def _all_failed(runner: Runner, group: Group, error: Exception) -> list[_Failure]:
    text = _text(error)
    return [_Failure(index, runner.name, text) for index in group.indexes]


def _text(error: BaseException) -> str:
    return without_passwords(f"{type(error).__name__}: {error}")[:MAX_ERROR_CHARS]


def _result(batch: Sequence[Row], failed: set[int]) -> WriteResult:
    tables: dict[str, tuple[int, int]] = {}
    for index, row in enumerate(batch):
        stored, lost = tables.get(row.table, (0, 0))
        tables[row.table] = (stored, lost + 1) if index in failed else (stored + 1, lost)
    return WriteResult(len(batch) - len(failed), len(failed), tuple(sorted(failed)), tables)
