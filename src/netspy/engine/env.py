"""What every part of a node is given, as one value."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import NamedTuple

from netspy.engine.contract import Alert, CountersLike
from netspy.observe.throttle import LoggerLike, ThrottledLog
from netspy.settings import Settings


class Env(NamedTuple):
    """`clock` and `jitter` are arguments, so that tests turn the one and know the other."""

    name: str  #: the spider's name, for messages
    settings: Settings
    log: LoggerLike
    throttled: ThrottledLog  #: for lines of which a crawl may cause any number
    counters: CountersLike
    alert: Alert  #: `alert(kind, message)`
    shared: bool = False  #: requests leave the process
    clock: Callable[[], float] = time.monotonic  #: seconds, for what ends within the process
    jitter: Callable[[], float] = random.random  #: 0 … 1
