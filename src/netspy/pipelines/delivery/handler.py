"""`item_handler=`: a function of the user's in the place of all pipelines."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from netspy.pipelines.base import BasePipeline
from netspy.pipelines.delivery.writer import BatchWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from netspy.messages.row import Row
    from netspy.pipelines.delivery.runner import Runner


class HandlerPipeline(BasePipeline):
    """Hands lists of rows to a function, plain or `async def`; what it returns means nothing, what it raises does."""

    def __init__(self, handler: Callable[[list[Any]], Any]) -> None:
        self._handler = handler

    def save_items(self, table: str, items: Sequence[dict[str, Any]]) -> Any:
        """Pass the rows on, whatever their table."""
        del table
        result = self._handler(list(items))
        return _ended(result) if inspect.isawaitable(result) else None

    def update_items(self, table: str, items: Sequence[dict[str, Any]], update_keys: Sequence[str]) -> Any:
        """Updates are rows like others here."""
        del update_keys
        return self.save_items(table, items)


class HandlerWriter(BatchWriter):
    """A BatchWriter whose only pipeline is the handler, also for items that name pipelines of their own."""

    def _targets(self, row: Row) -> list[Runner | tuple[str, str]]:
        del row
        return list(self._defaults)


async def _ended(result: Any) -> None:
    await result
