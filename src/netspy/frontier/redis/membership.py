"""One node's registration with the shared store, known to its loop and to its keeper's thread; how calls carry it."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from netspy.frontier.redis.entry_format import base36
from netspy.redisio.scripts import Arg, Call, Script

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class NotRegisteredError(Exception):
    """The store doesn't know this node (any more): it must join again under a new id."""


class WentBackError(Exception):
    """The store went back to an earlier state, behind a write of which this node was told that it was done.

    `last`: the node's last write that the store knows; `history`: the store's now.
    """

    def __init__(self, last: int, history: bytes) -> None:
        super().__init__(f"the store knows no write of this node after number {last}")
        self.last = last
        self.history = history


class StaleOperationError(Exception):
    """A write or claim number that was not above the last one; `last` is the store's."""

    def __init__(self, last: int) -> None:
        super().__init__(f"operation number not above {last}")
        self.last = last


class NotSeederError(Exception):
    """The seeding lock is somebody else's."""


class Owner(NamedTuple):
    """Whose the namespace is."""

    name: str  #: the spider class
    kind: str  #: of spider
    take_over: bool = False  #: a renamed class has another's redis_key


class Clocks(NamedTuple):
    """The time, for tests to turn."""

    server_ms: Callable[[], int] | None = (
        None  #: in the place of the server's clock; None = the scripts ask the server
    )
    monotonic: Callable[[], float] = time.monotonic


class NodeCall(NamedTuple):
    """A script call that a registered node sends: `Shared.sent` puts the node before the arguments."""

    script: Script
    keys: Sequence[str]
    args: Sequence[Arg]


class Member:
    """One registration of this process."""

    __slots__ = ("claims_done", "node", "writes_done")

    def __init__(self, node: str) -> None:
        self.node = node
        self.claims_done = 0  # the number of the last claim whose answer was seen; written on the loop
        self.writes_done = 0  # and of the last write; lower again when the store went back behind it


class Numbers:
    """The numbers of a registration's writes, or of its claims: rising, and one call is outstanding. Loop only.

    So a call repeated after a cut connection is answered from the store's memory. A claim whose answer was never seen (it was
    cancelled) is asked for again under its number by the next one, or its leases would be orphans.
    """

    def __init__(self, *, claims: bool = False) -> None:
        self.lane = asyncio.Lock()
        self.sent = 0.0  #: when the number was sent first, by the monotonic clock
        self._claims = claims
        self._member: Member | None = None
        self._op = 0
        self._open = False  # sent, and the answer has not been seen yet

    def take(self, member: Member, now: float) -> tuple[Arg, ...]:
        """The script arguments that number the call sent now."""
        if member is not self._member:
            self._member, self._op, self._open = member, 0, False
        if not (self._open and self._claims):
            self._op += 1
            self._open = True
            self.sent = now
        return (self._op, base36(self._op)) if self._claims else (self._op,)

    def answered(self) -> None:
        """The answer of the call under way was seen."""
        self._open = False
        if self._member is None:
            return
        if self._claims:
            self._member.claims_done = self._op
        else:
            self._member.writes_done = self._op

    def refused(self, last: int) -> None:
        """The store has seen the number `last`; the call under way was not done."""
        self._op = max(self._op, last)
        self._open = False


class Shared:
    """What the frontier on the loop and the keeper in its thread both know of this node.

    With every call the node says which of its writes it was told to be done. A store that doesn't know that one went back
    to an earlier state, and what this node was told before may be untrue: then its `memory` gets another name. A server
    that was merely restarted knows it.
    """

    def __init__(self, lifetime_ms: int, clocks: Clocks, *, keeps_queue: bool = False) -> None:
        """`lifetime_ms`: of the run's keys, 0 = for ever. `keeps_queue`: not of its requests, which a later run takes over."""
        self.lock = threading.Lock()
        self.member = Member("")
        self._name = ""  # of the memory: the first id of this node
        self._times_back = 0
        self.epoch = ""
        self.history = ""
        self.run_id = ""
        self.started = time.time()
        self.monotonic = clocks.monotonic
        self._server_ms = clocks.server_ms
        self._lifetime = f"{lifetime_ms}+" if keeps_queue and lifetime_ms else str(lifetime_ms)

    def now(self) -> str:
        """The time handed to scripts: '' for the server's own clock."""
        return "" if self._server_ms is None else str(self._server_ms())

    def sent(self, call: Call | NodeCall, member: Member, numbers: Sequence[Arg] = ()) -> Call:
        """The call as `member` sends it now."""
        if isinstance(call, Call):
            return call
        script, keys, args = call
        sender = f"{member.node}.{self._memory}.{member.writes_done}"
        return Call(script, keys, [self.now(), self.epoch, sender, self._lifetime, *numbers, *args])

    @property
    def _memory(self) -> str:
        return f"{self._name}-{self._times_back}"

    @property
    def memory(self) -> str:
        """The name of what this node may believe of the store: another one when the store went back to an earlier state, or
        a new seeding began. '' before it has joined.
        """
        return f"{self._memory}:{self.history.rpartition(':')[2]}" if self._name else ""

    def joined(self, old: Member, node: str, *, kept: bool) -> bool:
        """Take a new registration, unless the other side already got one. False then. `kept`: the store had forgotten the
        node only, none of its writes.
        """
        with self.lock:
            if self.member is not old:
                return False
            if not kept and self._name:
                self._times_back += 1
            self._name = self._name or node
            self.member = Member(node)
            return True

    def went_back(self, call: Call, member: Member, last: int) -> None:
        """The store answered to `call` of `member` that it knows its writes up to `last` only."""
        with self.lock:
            if self.member is member and str(call.args[2]).split(".")[1] == self._memory:
                self._times_back += 1
                member.writes_done = last
