"""Spider: queue and dedup in Redis, for as many processes and machines as wished."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from netspy.spiders.base import BaseParser


class Spider(BaseParser):
    """A crawl that many processes share and that survives each of them.

    Start the same code as often as wished: one node seeds, all of them crawl; a dead node's requests are taken over
    within seconds; started again, the crawl goes on where it was. Set RUN_ID to crawl everything afresh.
    """

    kind: ClassVar[str] = "spider"
    shared: bool = True
    redis_key: str | None = None

    def __init__(
        self,
        *,
        redis_key: str | None = None,
        thread_count: int | None = None,
        keep_alive: bool | None = None,
        item_handler: Callable[[list[Any]], Any] | None = None,
        pipelines: Sequence[Any] | None = None,
        take_over: bool = False,
        **arguments: Any,
    ) -> None:
        """`redis_key`: the job's name in Redis (default: the class name). `keep_alive`: stay when the queue is empty
        (SPIDER_KEEP_ALIVE). `take_over`: accept a job that a class of another name owns. Others: see BaseParser.
        """
        super().__init__(
            thread_count=thread_count, item_handler=item_handler, pipelines=pipelines, **arguments
        )
        if redis_key is not None:
            self.redis_key = redis_key
        if keep_alive is not None:
            self._overrides["SPIDER_KEEP_ALIVE"] = keep_alive
        self.take_over = take_over
