"""Where a BatchSpider's tasks and batch records are kept: the contract, and the store in memory.

A back end of one's own subclasses `BatchStore` and writes the abstract methods, and those further below where it can do
better than their defaults. `netspy.testing.batch_store_contract` is the suite that says whether it keeps the promises.

A task row goes TODO ──claim──▶ DOING ──mark──▶ DONE or FAILED; DOING ──lost──▶ TODO; and all go to TODO when a batch
begins. Opening a batch is `reset_all_tasks`, then `create_batch`: a master that dies between the two leaves no open
batch, and the next one does both again.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Hashable
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from netspy.errors import ConfigError, NetspyError, SerializationError
from netspy.messages import codec
from netspy.policy.batch import DOING, DONE, FAILED, TODO, BatchRecord, TaskCounts
from netspy.settings import load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

__all__ = [
    "DOING",
    "DONE",
    "FAILED",
    "TODO",
    "BatchRecord",
    "BatchStore",
    "FencedError",
    "MemoryBatchStore",
    "TableHolder",
    "TaskCounts",
]


class FencedError(NetspyError):
    """Another master with a higher token has taken over: this one's write was refused, nothing was changed."""

    def __init__(self, own: int, seen: int) -> None:
        super().__init__(
            f"another master took over this batch job (its fencing token is {seen}, this one's {own}); "
            "this master must leave"
        )
        self.own = own
        self.seen = seen


class TableHolder(NamedTuple):
    """The job whose master works on a task table, and for how many seconds that holds without another word."""

    job: str
    left_s: float


class BatchStore(ABC):
    """Task table and batch records. Methods block; they are called in worker threads, several at once.

    Each call is one step: done or, when it raises, harmless to do again. They raise ConfigError for a set-up that
    can't work, and StoreUnavailableError when the store doesn't answer for longer than the back end itself waits.
    Staleness is judged by the store's clock, never by this machine's.
    """

    fence_token = 0
    id_field = ""
    """The column that names a task in the rows that `claim_tasks` gives; empty: the one that BATCH_TASK_ID_FIELD names."""

    @abstractmethod
    def ensure_schema(self) -> None:
        """Check the task table; create what the store itself needs. Called once, before anything else.

        Raises ConfigError when the table or a column is missing.
        """

    @abstractmethod
    def latest_batch(self) -> BatchRecord | None:
        """The record of the last batch; None before the first."""

    @abstractmethod
    def batch_age_seconds(self, batch_id: int) -> float:
        """Seconds since the batch's `batch_date`, by the store's clock."""

    @abstractmethod
    def create_batch(self, batch_date: datetime, total: int, interval: float, unit: str) -> int:
        """A new open record; returns its id, higher than any before.

        An open batch of the same date is returned instead of a second one, so the call may be repeated.
        """

    @abstractmethod
    def update_batch_counts(self, batch_id: int, *, done: int, failed: int, total: int) -> None:
        """Write the progress into the record."""

    @abstractmethod
    def finish_batch(self, batch_id: int) -> None:
        """Close the batch. Closing it again changes nothing."""

    @abstractmethod
    def count_tasks(self) -> TaskCounts:
        """How many tasks are in which state."""

    @abstractmethod
    def reset_all_tasks(self) -> int:
        """Every task back to TODO, failed ones too; returns how many rows were changed."""

    @abstractmethod
    def reset_lost_tasks(self, stale: float) -> int:
        """DOING rows whose time is over `stale` seconds ago back to TODO; returns how many."""

    @abstractmethod
    def claim_tasks(self, limit: int) -> list[dict[str, Any]]:
        """Up to `limit` TODO rows, whole, now DOING with the time set. No row goes to two callers.

        A row that can't travel (`refusal`) becomes FAILED instead of being returned.
        """

    @abstractmethod
    def mark_task(self, task_id: Any, state: int) -> bool | None:
        """Set the state of one task and its time. Returns whether there is such a row (None: can't tell).

        DONE applies to a task in any state, FAILED to one that is TODO or DOING, TODO to one that is DOING.
        """

    @abstractmethod
    def close(self) -> None:
        """Release connections. Safe to call twice."""

    # What follows has defaults on top of the methods above.

    def now(self) -> datetime:
        """The store's clock, in UTC. Default: this machine's."""
        return datetime.now(UTC)

    def use_fence(self, token: int) -> None:
        """From now on write as the master that holds `token`; tokens rise from master to master.

        Raises FencedError for a token that isn't higher than all that the store has seen. Once a higher one has been
        seen, these raise it too and change nothing: `create_batch update_batch_counts finish_batch reset_all_tasks
        reset_lost_tasks claim_tasks touch_tasks`. The default only remembers the token: such a back end relies on the lock
        alone.
        """
        self.fence_token = token

    def hold_table(self, job: str, for_s: float) -> TableHolder | None:  # noqa: ARG002 - for back ends that can
        """Say that the master of `job` works on the table for the next `for_s` seconds; None when that is so now.

        Else the other job that has said so: then nothing is changed. The default keeps nobody out.
        """
        return None

    def mark_tasks(self, marks: Sequence[tuple[Any, int]], *, batch_id: int | None = None) -> list[bool]:
        """`mark_task` for each (task id, state), in one step where the store can; for each, whether the row exists.

        With `batch_id`, nothing is changed unless that batch is the latest and open. When one task is marked DONE and
        FAILED, DONE wins.
        """
        latest = None if batch_id is None else self.latest_batch()
        applies = batch_id is None or (latest is not None and latest.id == batch_id and not latest.is_done)
        if not applies:
            return [True] * len(marks)
        return [self.mark_task(task_id, state) is not False for task_id, state in marks]

    def touch_tasks(self, ids: Sequence[Any]) -> int:  # noqa: ARG002 - for back ends that can
        """Set the time of those of `ids` that are DOING to now: they are alive. Returns how many.

        The default does nothing: tasks that take longer than BATCH_LOST_TASK_STALE are then claimed again.
        """
        return 0

    def refused_tasks(self) -> list[tuple[Any, str]]:
        """(task id, reason) of the rows that `claim_tasks` failed since the last call of this."""
        return []

    def failed_tasks(self, limit: int = 20) -> list[Any]:  # noqa: ARG002 - for back ends that can
        """Ids of up to `limit` FAILED tasks, for messages."""
        return []

    def index_advice(self) -> list[str]:
        """What would make the store faster, as sentences with the command to run; empty when all is well."""
        return []


def task_columns(
    id_field: str | None, state_field: str | None, time_field: str | None
) -> tuple[str, str, str]:
    """A task table's key, state and time columns; those not given are what the project's settings say."""
    if id_field and state_field and time_field:
        return id_field, state_field, time_field
    known = load().settings
    return (
        id_field or known.BATCH_TASK_ID_FIELD,
        state_field or known.BATCH_TASK_STATE_FIELD,
        time_field or known.BATCH_TASK_TIME_FIELD,
    )


def refusal(row: Mapping[str, Any]) -> str | None:
    """Why a task row can't travel to the workers; None when it can."""
    try:
        codec.encode(row, "task")
    except SerializationError as error:
        return str(error)
    return None


def sift(rows: Iterable[dict[str, Any]], id_field: str) -> tuple[list[dict[str, Any]], list[tuple[Any, str]]]:
    """The rows that can travel, and (id, reason) of those that can't."""
    good: list[dict[str, Any]] = []
    bad: list[tuple[Any, str]] = []
    for row in rows:
        why = refusal(row)
        if why is None:
            good.append(row)
        else:
            bad.append((row[id_field], why))
    return good, bad


def applies(old: int | None, new: int) -> bool:
    """Whether a mark `new` may change a task in state `old`. Raises ValueError for a state that can't be marked."""
    if new == DONE:
        return old in (None, TODO, DOING, FAILED)
    if new == FAILED:
        return old in (None, TODO, DOING)
    if new == TODO:
        return old == DOING
    raise ValueError(f"a task can't be marked {new!r}: give DONE (1), FAILED (-1) or TODO (0)")


class MemoryBatchStore(BatchStore):
    """Tasks in this process, for tests and small jobs.

        MemoryBatchStore([{"id": 1, "url": "…"}, {"id": 2, "url": "…"}])

    The rows given are copied; a row without a state is TODO. Columns that are not named: those that the BATCH_TASK_*_FIELD
    settings name. `clock` gives seconds and may be replaced in tests.
    """

    def __init__(
        self,
        rows: Iterable[Mapping[str, Any]] = (),
        *,
        id_field: str | None = None,
        state_field: str | None = None,
        time_field: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.id_field, self.state_field, self.time_field = task_columns(id_field, state_field, time_field)
        self._clock = clock
        self._lock = threading.RLock()
        self._rows: dict[Any, dict[str, Any]] = {}
        self._touched: dict[Any, float] = {}
        self._records: list[BatchRecord] = []
        self._highest_fence = 0
        self._held = TableHolder("", 0.0)  # until that second of the clock
        self._refused: list[tuple[Any, str]] = []
        self.add_tasks(rows)

    def add_tasks(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """More task rows. Raises ConfigError, before any is added, for a row without id or with one that is there."""
        with self._lock:
            new: dict[Any, dict[str, Any]] = {}
            for row in rows:
                if self.id_field not in row:
                    raise ConfigError(
                        f"MemoryBatchStore: the row {dict(row)!r:.200} has no {self.id_field!r}; "
                        "give each row one, or name the column that has it: MemoryBatchStore(rows, id_field=…)"
                    )
                task_id = row[self.id_field]
                if task_id in new or task_id in self._rows:
                    raise ConfigError(
                        f"MemoryBatchStore: two rows have {self.id_field}={task_id!r}; it must be unique"
                    )
                new[task_id] = {self.state_field: TODO, self.time_field: self.now(), **deepcopy(dict(row))}
            self._rows.update(new)
            self._touched.update(dict.fromkeys(new, self._clock()))

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Copies of all task rows as they are now."""
        with self._lock:
            return deepcopy(list(self._rows.values()))

    @property
    def records(self) -> list[BatchRecord]:
        """The records of all batches, oldest first."""
        with self._lock:
            return list(self._records)

    def ensure_schema(self) -> None:
        """Nothing to create."""

    def now(self) -> datetime:
        """The clock given, in UTC."""
        return datetime.fromtimestamp(self._clock(), UTC)

    def latest_batch(self) -> BatchRecord | None:
        """The last record."""
        with self._lock:
            return self._records[-1] if self._records else None

    def batch_age_seconds(self, batch_id: int) -> float:
        """Seconds since the batch was due. Raises KeyError for an unknown id."""
        with self._lock:
            return (self.now() - self._record(batch_id).batch_date).total_seconds()

    def create_batch(self, batch_date: datetime, total: int, interval: float, unit: str) -> int:
        """A new open record."""
        with self._lock:
            self._check_fence()
            latest = self.latest_batch()
            if latest is not None and not latest.is_done and latest.batch_date == batch_date:
                return latest.id
            now = self.now()
            batch_id = len(self._records) + 1
            self._records.append(
                BatchRecord(
                    batch_id, batch_date, total, 0, 0, interval, unit, create_time=now, update_time=now
                )
            )
            return batch_id

    def update_batch_counts(self, batch_id: int, *, done: int, failed: int, total: int) -> None:
        """Write the progress into the record."""
        self._change(batch_id, done_count=done, fail_count=failed, total_count=total)

    def finish_batch(self, batch_id: int) -> None:
        """Close the batch."""
        self._change(batch_id, is_done=True)

    def count_tasks(self) -> TaskCounts:
        """How many tasks are in which state."""
        with self._lock:
            counted = Counter(row[self.state_field] for row in self._rows.values())
        todo = counted[TODO] + counted[None]
        ours = todo + counted[DOING] + counted[DONE] + counted[FAILED]
        return TaskCounts(ours, todo, counted[DOING], counted[DONE], counted[FAILED], counted.total() - ours)

    def reset_all_tasks(self) -> int:
        """Every task back to TODO."""
        with self._lock:
            self._check_fence()
            wanted = [
                id_ for id_, row in self._rows.items() if row[self.state_field] in (DOING, DONE, FAILED, None)
            ]
            return self._set(wanted, TODO)

    def reset_lost_tasks(self, stale: float) -> int:
        """DOING rows without a sign of life for `stale` seconds back to TODO."""
        with self._lock:
            self._check_fence()
            oldest = self._clock() - stale
            lost = [
                id_
                for id_, row in self._rows.items()
                if row[self.state_field] is None
                or (row[self.state_field] == DOING and self._touched[id_] < oldest)
            ]
            return self._set(lost, TODO)

    def claim_tasks(self, limit: int) -> list[dict[str, Any]]:
        """Up to `limit` TODO rows, now DOING, oldest time first."""
        with self._lock:
            self._check_fence()
            waiting = [id_ for id_, row in self._rows.items() if row[self.state_field] == TODO]
            waiting.sort(key=self._touched.__getitem__)
            chosen = waiting[:limit]
            self._set(chosen, DOING)
            good, bad = sift((deepcopy(self._rows[id_]) for id_ in chosen), self.id_field)
            self._set([id_ for id_, _ in bad], FAILED)
            self._refused += bad
            return good

    def mark_task(self, task_id: Any, state: int) -> bool:
        """Set the state of one task."""
        return self.mark_tasks([(task_id, state)])[0]

    def mark_tasks(self, marks: Sequence[tuple[Any, int]], *, batch_id: int | None = None) -> list[bool]:
        """Set the states of these tasks while that batch is the open one."""
        with self._lock:
            latest = self.latest_batch()
            is_open = batch_id is None or (
                latest is not None and latest.id == batch_id and not latest.is_done
            )
            answer = []
            for task_id, state in marks:
                row = self._rows.get(task_id) if isinstance(task_id, Hashable) else None
                may = applies(row[self.state_field] if row else None, state)
                if row is not None and may and is_open:
                    self._set([task_id], state)
                answer.append(row is not None)
            return answer

    def touch_tasks(self, ids: Sequence[Any]) -> int:
        """Set the time of those that are DOING to now."""
        with self._lock:
            self._check_fence()
            alive = [id_ for id_ in ids if id_ in self._rows and self._rows[id_][self.state_field] == DOING]
            return self._set(alive, DOING)

    def use_fence(self, token: int) -> None:
        """Write as the master that holds `token`. Raises FencedError for one that was seen before, or a lower one."""
        with self._lock:
            self.fence_token = token
            if token <= self._highest_fence:
                raise FencedError(token, self._highest_fence)
            self._highest_fence = token

    def hold_table(self, job: str, for_s: float) -> TableHolder | None:
        """Say that the master of `job` works on these tasks for the next `for_s` seconds, unless another one does."""
        with self._lock:
            left_s = self._held.left_s - self._clock()
            if self._held.job != job and left_s > 0:
                return TableHolder(self._held.job, left_s)
            self._held = TableHolder(job, self._clock() + for_s)
            return None

    def refused_tasks(self) -> list[tuple[Any, str]]:
        """(task id, reason) of rows that could not travel, since the last call."""
        with self._lock:
            refused, self._refused = self._refused, []
            return refused

    def failed_tasks(self, limit: int = 20) -> list[Any]:
        """Ids of up to `limit` FAILED tasks."""
        with self._lock:
            return [id_ for id_, row in self._rows.items() if row[self.state_field] == FAILED][:limit]

    def close(self) -> None:
        """Nothing to release; the rows stay."""

    def _check_fence(self) -> None:
        if self.fence_token < self._highest_fence:
            raise FencedError(self.fence_token, self._highest_fence)
        self._highest_fence = self.fence_token

    def _record(self, batch_id: int) -> BatchRecord:
        if not 1 <= batch_id <= len(self._records):
            raise KeyError(f"there is no batch {batch_id}")
        return self._records[batch_id - 1]

    def _change(self, batch_id: int, **fields: Any) -> None:
        with self._lock:
            self._check_fence()
            self._records[batch_id - 1] = replace(self._record(batch_id), update_time=self.now(), **fields)

    def _set(self, ids: Sequence[Any], state: int) -> int:
        now_s, now = self._clock(), self.now()
        for task_id in ids:
            row = self._rows[task_id]
            row[self.state_field], row[self.time_field] = state, now
            self._touched[task_id] = now_s
        return len(ids)
