"""AirSpider: one process, no server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from netspy.spiders.base import BaseParser


class AirSpider(BaseParser):
    """A crawl in one process: queue and dedup in memory, nothing to install.

    Queue and dedup end with the process; after Ctrl-C what is left is kept in a file (DUMP_UNFINISHED_ON_EXIT) and
    the next start with RETRY_FAILED_ON_START goes on from it. For a crawl that survives `kill -9`, or for more than
    one process, change the base class to Spider.
    """

    kind: ClassVar[str] = "air"

    def __init__(
        self,
        *,
        thread_count: int | None = None,
        item_handler: Callable[[list[Any]], Any] | None = None,
        pipelines: Sequence[Any] | None = None,
        debug: bool = False,
        **arguments: Any,
    ) -> None:
        """`debug`: log at DEBUG and run callbacks in one thread. For the others see BaseParser."""
        super().__init__(
            thread_count=thread_count, item_handler=item_handler, pipelines=pipelines, **arguments
        )
        if debug:
            self._overrides["DEBUG"] = True
            self._overrides.setdefault("SPIDER_THREAD_COUNT", 1)
