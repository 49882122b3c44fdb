"""Where the server of a job is right now: decided without I/O, so that blocking and asyncio clients share it.

Plain addresses are always where they say. With Sentinel the place is asked of the sentinels before each
connection, with Cluster of the nodes: all keys of a job are in one slot, so one server has them all.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from netspy.redisio.address import Address

Host = tuple[str, int]

_moves: Counter[tuple[Any, ...]] = Counter()
"""How often a server of this process turned out to be elsewhere, by what its place is asked with."""


class WrongLocationError(Exception):
    """The address leads to no server of ours, and waiting won't help. The text says what to do."""


class Ask(NamedTuple):
    """Whom to ask for the place, and with which command."""

    host: Host
    command: tuple[str, ...]


class ServerLocation:
    """The place of one client's server, shared by its connections.

    `generation` rises whenever the server turned out to be elsewhere: connections of an earlier one are replaced
    before they are used again. What one client finds out holds for all of the process that ask for the same server.
    """

    def __init__(self, address: Address, slot: int = -1) -> None:
        """`slot`: that of the job's keys, in Redis Cluster."""
        self.address = address
        self.slot = slot
        self._who = (address.kind, address.hosts, address.service, slot)
        self._hint: Host | None = None
        self._known: list[Host] = list(address.hosts)
        self._turn = 0

    @property
    def generation(self) -> int:
        """See the class."""
        return _moves[self._who]

    @property
    def fixed(self) -> bool:
        """Whether nobody needs to be asked."""
        return self.address.kind in {"plain", "unix"}

    def take_hint(self) -> Host | None:
        """Where a redirection pointed, once: should it be wrong, the others are asked."""
        hint, self._hint = self._hint, None
        return hint

    def asks(self) -> list[Ask]:
        """Whom to ask, in turn. Each time another is first, so that one with an old view is not asked for ever."""
        turn = self._turn % len(self._known)
        self._turn += 1
        if self.address.kind == "sentinel":
            command: tuple[str, ...] = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.address.service)
        else:
            command = ("CLUSTER", "SLOTS")
        return [Ask(host, command) for host in self._known[turn:] + self._known[:turn]]

    def read(self, asked: Host, reply: Any) -> Host | None:
        """The place in a reply; None when the one asked knows none."""
        if self.address.kind == "sentinel":
            return (_text(reply[0]), int(reply[1])) if reply else None
        found: Host | None = None
        nodes: list[Host] = []
        for first, last, *holders in reply or ():
            hosts = [(_text(holder[0]) or asked[0], int(holder[1])) for holder in holders]
            # A node that doesn't know its own name says so with a question mark.
            nodes += [host for host in hosts if host[0] != "?"]
            if first <= self.slot <= last and hosts[0][0] != "?":
                found = hosts[0]
        if found is not None:
            # The nodes of the URL may all be gone one day.
            self._known = list(dict.fromkeys([*self.address.hosts, *nodes]))
        return found

    def moved_on(self, error: Exception, at: Host | None) -> str | None:
        """Why the server that gave this error is not, or no longer, the one; None when it is.

        `at`: the server's own host and port.
        """
        from redis import exceptions as e

        text = str(error)
        if isinstance(error, e.MovedError) and self.address.kind == "cluster":
            host, port = error.node_addr
            self._hint = (host or (at[0] if at else ""), int(port))
            if not self._hint[0] or self._hint[0] == "?":
                self._hint = None
            return self._elsewhere(f"the slot of this job moved to {host}:{port}")
        if isinstance(error, e.AskError) and self.address.kind == "cluster":
            # The slot's keys are under way to another server. Scripts touch several at once, which neither of
            # the two can serve now; it takes as long as an outage, and ends with MOVED.
            return "the slot of this job is being moved (ASK)"
        if isinstance(error, e.ReadOnlyError) or "READONLY" in text:
            return self._elsewhere("this server is a replica now (READONLY)")
        if isinstance(error, e.MasterDownError):
            return self._elsewhere("this server is a replica without its master (MASTERDOWN)")
        if isinstance(error, e.ClusterDownError) and self.address.kind == "cluster":
            return self._elsewhere("this part of the cluster is down (CLUSTERDOWN)")
        return None

    def is_replica(self, role: Any) -> bool:
        """Whether a server that sentinels call the master answers ROLE with another one."""
        return bool(role) and _text(role[0]) != "master"

    def elsewhere(self) -> None:
        """The server is another one now."""
        _moves[self._who] += 1

    def _elsewhere(self, why: str) -> str:
        self.elsewhere()
        return why

    def nowhere(self, told: list[tuple[Host, str]], unknowing: list[Host], refused: str) -> Exception | str:
        """The outcome when nobody named a place: WrongPlaceError, or the text of an outage.

        `told`: who failed how; `unknowing`: who answered without knowing; `refused`: how one refused us for good.
        """
        kind = self.address.kind
        if unknowing and kind == "sentinel":
            host, port = unknowing[0]
            return WrongLocationError(
                f"the sentinel {host}:{port} knows no service {self.address.service!r}; REDIS_URL names it after the "
                "hosts, as `sentinel monitor` does"
            )
        if refused:
            return WrongLocationError(refused)
        if unknowing:
            return f"no node of the cluster serves slot {self.slot} just now"
        whom = "sentinel" if kind == "sentinel" else "cluster node"
        (host, port), why = told[-1]
        return f"no {whom} of {self.address.names} answers; {host}:{port}: {why}"


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
