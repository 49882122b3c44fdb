"""Stores of BatchSpider: `from netspy.core.batch_store import MemoryBatchStore`.

SqlBatchStore needs the extra `sql` (and `mysql` or `postgres`) and is loaded at first use; MysqlBatchStore is another
name of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from netspy.tasks.batch_store import (
    DOING,
    DONE,
    FAILED,
    TODO,
    BatchRecord,
    BatchStore,
    FencedError,
    TableHolder,
    TaskCounts,
    applies,
    refusal,
)
from netspy.tasks.memory_batch import MemoryBatchStore

if TYPE_CHECKING:
    from netspy.tasks.sql.batch import MysqlBatchStore, SqlBatchStore

__all__ = [
    "DOING",
    "DONE",
    "FAILED",
    "TODO",
    "BatchRecord",
    "BatchStore",
    "FencedError",
    "MemoryBatchStore",
    "MysqlBatchStore",
    "SqlBatchStore",
    "TableHolder",
    "TaskCounts",
    "applies",
    "refusal",
]


def __getattr__(name: str) -> Any:
    """Load the SQL store."""
    if name not in {"MysqlBatchStore", "SqlBatchStore"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import netspy.tasks.sql.batch as module

    return getattr(module, name)
