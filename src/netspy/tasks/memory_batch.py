"""The task table and its batch records inside one process."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Hashable
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from netspy.errors import ConfigError
from netspy.policy.batch import DOING, DONE, FAILED, TODO, BatchRecord, TaskCounts
from netspy.tasks.batch_store import (
    BatchStore,
    FencedError,
    TableHolder,
    applies,
    sift,
    task_columns,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


class MemoryBatchStore(BatchStore):
    """Tasks in this process, for tests and small jobs.

        MemoryBatchStore([{"id": 1, "url": "…"}, {"id": 2, "url": "…"}])

    The rows given are copied; a row without a state is TODO. Columns that are not named: those that the BATCH_TASK_*_FIELD
    settings name. `clock` gives seconds and may be replaced in tests.
    """

    def __init__(
        self,
        tasks: Iterable[Mapping[str, Any]] = (),
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
        self.add_tasks(tasks)

    def add_tasks(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """More task rows. Raises ConfigError, before any is added, for a row without id or with one that is there."""
        with self._lock:
            new: dict[Any, dict[str, Any]] = {}
            for row in rows:
                if self.id_field not in row:
                    raise ConfigError(
                        f"MemoryBatchStore: the row {dict(row)!r:.200} has no {self.id_field!r}; "
                        "give each row one, or name the column that has it: MemoryBatchStore(tasks, id_field=…)"
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
