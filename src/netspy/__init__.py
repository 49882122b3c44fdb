"""netspy: a crawling framework that grows from one script to a fleet of machines without losing anything.

    import netspy as mw

    class NewsSpider(mw.AirSpider):
        def start_requests(self):
            yield mw.Request("https://example.com/")

        def parse(self, request, response):
            yield {"title": response.css("title::text").get()}

    NewsSpider().start()

Importing it starts nothing: no configuration is read, no log is set up, no connection made.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from netspy import setting
    from netspy.errors import (
        ConfigError,
        DedupError,
        ItemError,
        NetspyError,
        NotRetryError,
        PipelineError,
        RequestError,
        ResponseError,
        SpiderError,
        ValidationError,
    )
    from netspy.messages.item import Item, UpdateItem
    from netspy.messages.request import Request
    from netspy.messages.response import Response
    from netspy.observe.log import get_logger
    from netspy.spiders.air import AirSpider
    from netspy.spiders.base import BaseParser
    from netspy.spiders.batch import BatchSpider
    from netspy.spiders.distributed import Spider
    from netspy.spiders.tasks import TaskSpider

    log: Any

__version__ = "0.1.0"

_HOMES = {
    "AirSpider": "netspy.spiders.air",
    "BaseParser": "netspy.spiders.base",
    "BatchSpider": "netspy.spiders.batch",
    "Spider": "netspy.spiders.distributed",
    "TaskSpider": "netspy.spiders.tasks",
    "Request": "netspy.messages.request",
    "Response": "netspy.messages.response",
    "Item": "netspy.messages.item",
    "UpdateItem": "netspy.messages.item",
    "get_logger": "netspy.observe.log",
    "NetspyError": "netspy.errors",
    "ConfigError": "netspy.errors",
    "SpiderError": "netspy.errors",
    "RequestError": "netspy.errors",
    "ResponseError": "netspy.errors",
    "ValidationError": "netspy.errors",
    "NotRetryError": "netspy.errors",
    "ItemError": "netspy.errors",
    "PipelineError": "netspy.errors",
    "DedupError": "netspy.errors",
}

__all__ = [
    "AirSpider",
    "BaseParser",
    "BatchSpider",
    "ConfigError",
    "DedupError",
    "Item",
    "ItemError",
    "NetspyError",
    "NotRetryError",
    "PipelineError",
    "Request",
    "RequestError",
    "Response",
    "ResponseError",
    "Spider",
    "SpiderError",
    "TaskSpider",
    "UpdateItem",
    "ValidationError",
    "__version__",
    "get_logger",
    "log",
    "setting",
]


def __getattr__(name: str) -> Any:
    """Names of the shop window are fetched from their rooms when they are first used."""
    home = _HOMES.get(name)
    if home is not None:
        value = getattr(importlib.import_module(home), name)
        if name == "Request":
            setattr(importlib.import_module("netspy.messages.sub_download"), "default", _download)  # noqa: B010 - a module
    elif name == "log":
        value = importlib.import_module("netspy.observe.log").get_logger("netspy")
    elif name == "setting":
        value = importlib.import_module("netspy.setting")
    else:
        raise AttributeError(f"module 'netspy' has no attribute {name!r}")
    globals()[name] = value
    return value


def _download(request: Any) -> Any:
    """`Request(url).download()` outside a spider."""
    return importlib.import_module("netspy.assembly.bare").bare_download(request)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
