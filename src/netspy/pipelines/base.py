"""What a pipeline is. Users subclass BasePipeline and name their class in ITEM_PIPELINES or
`Item.__pipelines__`.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from netspy.logger import HasLogger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence

    from netspy.settings import Settings


class BasePipeline(HasLogger):
    """Keeps items somewhere. Methods may be plain (run in a worker thread) or `async def` (run on the
    loop).

    `settings` is set before `open` is called; `logger` is there from the start. Calls for one pipeline never
    overlap. A method that raises, or returns False, has stored nothing of its batch as far as netspy knows: the
    batch is tried again with back-off, then split to find the bad rows, which are dead-lettered. So a write should
    be atomic, or keyed. A store that answers for each row can raise RowsFailedError, which names the rows that it lacks.
    """

    settings: Settings

    own_settings: Mapping[str, Any] = MappingProxyType({})
    """Settings that this object was given by its constructor; they go before the spider's."""

    recovers: ClassVar[bool] = False
    """Whether `open` finishes what a crash has left: then a run without rows opens and closes the pipeline, too."""

    def open(self) -> Awaitable[None] | None:
        """Called once before the first batch. Raising means "not available now": it is tried again."""
        return None

    def describe(self, table: str, unique_key: tuple[str, ...]) -> Awaitable[None] | None:  # noqa: ARG002 (a hook)
        """Told before the first batch of a table, and again when its items name another `__unique_key__`.

        `unique_key` names the columns that make a row unique; it is empty when the items name none. A
        pipeline that can store a keyed row once makes use of it; the others ignore it, as here. Raising
        counts like `open` raising.
        """
        return None

    def prepare_items(
        self,
        table: str,  # noqa: ARG002 (a hook)
        items: Sequence[dict[str, Any]],
    ) -> Awaitable[Sequence[dict[str, Any] | Exception]] | Sequence[dict[str, Any] | Exception]:
        """Complete rows before any pipeline stores them, this one included; for example, fetch their files.

        Returns as many rows in the same order; those given are left as they are. An exception in the place of
        a row dead-letters it for all its pipelines. A call that raises is tried again and split, as with
        `save_items`; it may take as long as a callback (SPIDER_TASK_MAX_SECONDS). A row may come here again
        after a failure, and should become the same again.
        """
        return items

    def save_items(self, table: str, items: Sequence[dict[str, Any]]) -> Awaitable[bool | None] | bool | None:
        """Store new rows. True or None = stored; False or an exception = not."""
        raise NotImplementedError(f"{type(self).__name__} must define save_items(table, items)")

    def update_items(
        self, table: str, items: Sequence[dict[str, Any]], update_keys: Sequence[str]
    ) -> Awaitable[bool | None] | bool | None:
        """Update rows found by `update_keys` (from UpdateItem)."""
        raise NotImplementedError(
            f"{type(self).__name__} can't take UpdateItem: it has no update_items(table, items, update_keys)"
        )

    def is_away(self, error: Exception) -> bool | None:  # noqa: ARG002 (a hook)
        """Whether `error` of this pipeline means that its store is away and may come back.

        Then the batch is kept and tried again for up to ITEM_STORE_PATIENCE. None: netspy decides, by the usual
        signs (a connection's error, a time-out, PEP 249's OperationalError). Must not block.
        """
        return None

    def close(self) -> Awaitable[None] | None:
        """Called once at the end, after the last batch."""
        return None
