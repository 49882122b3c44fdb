"""Where a BatchSpider's tasks and batch records are kept: the contract. Back ends: `memory_batch.py`, `sql_batch.py`.

A back end of one's own subclasses `BatchStore` and writes the abstract methods, and those further below where it can do
better than their defaults. `netspy.testing.batch_store_contract` is the suite that says whether it keeps the promises.

A task row goes TODO ──claim──▶ DOING ──mark──▶ DONE or FAILED; DOING ──lost──▶ TODO; and all go to TODO when a batch
begins. Opening a batch is `reset_all_tasks`, then `create_batch`: a master that dies between the two leaves no open
batch, and the next one does both again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from netspy.errors import NetspyError, SerializationError
from netspy.messages import codec
from netspy.policy.batch import DOING, DONE, FAILED, TODO, BatchRecord, TaskCounts
from netspy.settings import load

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = [
    "DOING",
    "DONE",
    "FAILED",
    "TODO",
    "BatchRecord",
    "BatchStore",
    "FencedError",
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
