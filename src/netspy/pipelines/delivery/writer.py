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
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from netspy.blocking import SerialThread
from netspy.errors import ConfigError, PipelineError
from netspy.messages.row import DeadRow
from netspy.pipelines.delivery.deadline import Deadline
from netspy.pipelines.delivery.events import Events, PipelineEvent
from netspy.pipelines.delivery.feeding import Failure, Feeder
from netspy.pipelines.delivery.runner import Runner
from netspy.pipelines.errors import cause_of, text_of
from netspy.pipelines.loader import load_pipelines, pipeline_name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from netspy.messages.row import Row
    from netspy.pipelines.base import BasePipeline
    from netspy.settings import Settings

_CLOSE_S = 10.0


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
        self._deadline = Deadline()
        events = Events(on_event)
        self._tell = events.tell
        self._feeder = Feeder(settings, self._deadline, sleep, events)
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
        s without progress; and ITEM_STORE_PATIENCE for each time that a store is away. Raises PipelineError
        when the dead-letter file can't be written: nothing may be acked then, and the caller gives the same
        Row objects again later.
        """
        rows = list(batch)  # as the pipelines get them
        work: dict[Runner, list[int]] = {}
        failures: list[Failure] = []
        for index, row in enumerate(batch):
            kept = self._half_done.get(id(row))
            for found in self._targets(row):
                if not isinstance(found, Runner):
                    failures.append(Failure(index, *found))
                elif kept is None or found.name not in kept[1]:
                    work.setdefault(found, []).append(index)
        if any(runner.prepares for runner in self._runners.values()):
            failures += await self._prepare(rows, work)
        for failed in await asyncio.gather(
            *(self._feeder.feed(runner, rows, at) for runner, at in work.items() if at)
        ):
            failures.extend(failed)
        if failures:
            await self._bury(batch, rows, failures, work)
        if self._half_done:
            for row in batch:
                self._half_done.pop(id(row), None)
        return _result(batch, {failure.place for failure in failures})

    async def _prepare(self, rows: list[Row], work: dict[Runner, list[int]]) -> list[Failure]:
        """Have rows completed, in place, by those of their pipelines that do so, one after another.

        A row for which that fails is taken out of `work`: no pipeline stores half of it.
        """
        failures: list[Failure] = []
        busy = {index for indexes in work.values() for index in indexes}
        for runner in [runner for runner in self._runners.values() if runner.prepares]:
            indexes = [index for index in sorted(busy) if runner in self._targets(rows[index])]
            if not indexes:
                continue
            prepared: dict[int, dict[str, Any] | Exception] = {}
            lost = await self._feeder.feed(runner, rows, indexes, prepared)
            for index, made in prepared.items():
                if isinstance(made, Exception):
                    lost.append(Failure(index, runner.name, text_of(made)))
                else:
                    rows[index] = rows[index]._replace(data=made)
            for failure in lost:
                lacking = [other.name for other, at in work.items() if failure.place in at]
                names = tuple(dict.fromkeys([runner.name, *lacking]))
                failures.append(failure._replace(lacking=names))
            gone = {failure.place for failure in lost}
            busy -= gone
            for other, at in work.items():
                work[other] = [index for index in at if index not in gone]
        return failures

    def shorten_deadline(self, deadline: float) -> None:
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

    @property
    def waiting(self) -> str | None:
        """The pipeline whose store is away and is waited for, None when none is: no new work should begin then."""
        return next((runner.label for runner in self._runners.values() if runner.waited_for), None)

    async def _close(self, runner: Runner) -> None:
        try:
            async with runner.lock:
                await asyncio.wait_for(runner.close(), min(_CLOSE_S, max(self._deadline.left(), 1.0)))
        except Exception as error:
            text = (
                f"it took longer than {_CLOSE_S:g} s" if isinstance(error, TimeoutError) else text_of(error)
            )
            self._tell("close_failed", runner.name, "", 0, f"{runner.label} could not be closed: {text}")

    # what can't be stored

    async def refuse(self, rows: Sequence[DeadRow]) -> None:
        """Dead-letter rows that never came to a pipeline. Raises PipelineError when that is not possible."""
        try:
            await self._disk.submit(self._dead_letter.append, rows)
        except Exception as error:
            message = f"{len(rows)} row(s) could be neither taken ({rows[0].error}) nor dead-lettered ({text_of(error)})"
            self._tell("stuck", "", rows[0].row.table, len(rows), message, error=text_of(error))
            raise PipelineError(message) from error

    async def _bury(
        self,
        batch: Sequence[Row],
        rows: list[Row],
        failures: list[Failure],
        work: dict[Runner, list[int]],
    ) -> None:
        now = time.time()
        dead = [
            DeadRow(
                rows[failure.place]._replace(pipelines=failure.lacking or (failure.pipeline,)),
                failure.error,
                now,
            )
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
                f"nor dead-lettered ({text_of(error)})"
            )
            table = batch[failures[0].place].table
            self._tell("stuck", failures[0].pipeline, table, len(dead), message, error=text_of(error))
            raise PipelineError(message) from error
        groups: dict[tuple[str, str, str], list[str]] = {}
        for failure in failures:
            table = batch[failure.place].table
            groups.setdefault((failure.pipeline, table, cause_of(failure.error)), []).append(failure.error)
        for (pipeline, table, _), errors in groups.items():
            label = pipeline.rpartition(".")[2]
            message = (
                f"{len(errors)} row(s) of {table!r} could not be stored by {label} and are dead-lettered "
                f"(`netspy retry --items` writes them again): {errors[0]}"
            )
            self._tell("dead_letter", pipeline, table, len(errors), message, error=errors[0])


def _result(batch: Sequence[Row], failed: set[int]) -> WriteResult:
    tables: dict[str, tuple[int, int]] = {}
    for index, row in enumerate(batch):
        stored, lost = tables.get(row.table, (0, 0))
        tables[row.table] = (stored, lost + 1) if index in failed else (stored + 1, lost)
    return WriteResult(len(batch) - len(failed), len(failed), tuple(sorted(failed)), tables)
