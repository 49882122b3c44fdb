"""How a process shares out its file descriptors: connections, and the rest."""

from __future__ import annotations

import errno

RESERVE = 24
"""Left to what opens files at its own time: stores, logs, names of hosts, the user's code."""

IDLE_KEPT = 16

SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
"""What the system says when the machine, not the request, is at its end."""


def slots_for(wanted: int, *, limit: int, in_use: int) -> int:
    """How many requests may be in flight where `limit` files may be open and `in_use` are.

    Each has a connection, and two while it is made: to the host's IPv6 address and to the other one.
    """
    return max(1, min(wanted, (limit - in_use - RESERVE) * 2 // 3))


def connections_kept(in_flight: int, *, limit: int, in_use: int) -> int:
    """How many connections to keep, busy and idle, for `in_flight` requests at a time.

    More than are in flight, or busy ones would be closed for new ones; a few idle ones beside them, not one for each host of a
    long crawl.
    """
    return max(in_flight + 1, min(in_flight + IDLE_KEPT, limit - in_use - RESERVE))
