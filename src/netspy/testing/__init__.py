"""Help for tests of spiders and back ends: a local site, real servers, scripts as processes, a clock to turn.

    from netspy.testing import LocalSite, RedisServer, run_script

Nothing here is needed to crawl. Names are loaded at first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from netspy.testing.clock import FakeClock as FakeClock
    from netspy.testing.faults import FaultReport as FaultReport
    from netspy.testing.faults import FaultRun as FaultRun
    from netspy.testing.proxy import FaultProxy as FaultProxy
    from netspy.testing.runner import Result as Result
    from netspy.testing.runner import Script as Script
    from netspy.testing.runner import run_command as run_command
    from netspy.testing.runner import run_script as run_script
    from netspy.testing.runner import start_command as start_command
    from netspy.testing.runner import start_script as start_script
    from netspy.testing.servers import RedisServer as RedisServer
    from netspy.testing.servers import find_redis_server as find_redis_server
    from netspy.testing.shop import Shop as Shop
    from netspy.testing.site import Answer as Answer
    from netspy.testing.site import Incoming as Incoming
    from netspy.testing.site import LocalSite as LocalSite

_HOME = {
    "Answer": "site",
    "FakeClock": "clock",
    "FaultReport": "faults",
    "FaultProxy": "proxy",
    "FaultRun": "faults",
    "Incoming": "site",
    "LocalSite": "site",
    "RedisServer": "servers",
    "Result": "runner",
    "Script": "runner",
    "Shop": "shop",
    "find_redis_server": "servers",
    "run_command": "runner",
    "run_script": "runner",
    "start_command": "runner",
    "start_script": "runner",
}

__all__ = sorted(_HOME)  # noqa: PLE0605 - a list of the lazily loaded names


def __getattr__(name: str) -> Any:
    """Load a public name from its module."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
