"""Named points at which a test kills this process, as a power cut would: NETSPY_CRASH_AT=after_claim:3.

The number says at which passage (default 1). Nothing is armed unless the variable is set. Points, along a request's path:
seed_put, after_claim, in_fetch, after_callback, after_children, before_store, after_store, before_ack,
after_actions, after_settle. Of tasks: after_take, after_fetch_tasks, after_task_put. Of a batch's master: master_elected,
batch_reset, batch_created, batch_claimed, batch_pushed, batch_counted, batch_finished.
"""

from __future__ import annotations

import os
import signal

VARIABLE = "NETSPY_CRASH_AT"


def _read(text: str) -> tuple[str, int]:
    name, _, count = text.partition(":")
    return name, int(count) if count.isdigit() else 1


armed, _left = _read(os.environ.get(VARIABLE, ""))


def reached(name: str) -> None:
    """The process is at the point `name`: it ends here, unannounced, when the point is armed and its count is over."""
    global _left  # noqa: PLW0603 - one process, one countdown
    if name != armed:
        return
    _left -= 1
    if _left <= 0:
        os.kill(os.getpid(), signal.SIGKILL)
