"""One node's registration with the shared store, known to its loop and to its keeper's thread."""

from __future__ import annotations

import threading


class NotRegisteredError(Exception):
    """The store doesn't know this node (any more): it must join again under a new id."""


class StaleOperationError(Exception):
    """A write or claim number that was not above the last one; `last` is the store's."""

    def __init__(self, last: int) -> None:
        super().__init__(f"operation number not above {last}")
        self.last = last


class NotSeederError(Exception):
    """The seeding lock is somebody else's."""


class Member:
    """One registration of this process: an id, and the numbers of its writes and claims."""

    __slots__ = ("claim_op", "claim_open", "claim_sent", "claims_done", "node", "write_op")

    def __init__(self, node: str) -> None:
        self.node = node
        self.write_op = 0
        self.claim_op = 0
        self.claim_open = False  # sent, and the answer has not been seen yet
        self.claim_sent = 0.0  # when it was sent first
        self.claims_done = 0


class Shared:
    """What the frontier on the loop and the keeper in its thread both know of this node."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.member = Member("")
        self.epoch = ""
        self.history = ""
        self.run_id = ""

    def joined(self, old: Member, node: str) -> bool:
        """Take a new registration, unless the other side already got one. False then."""
        with self.lock:
            if self.member is not old:
                return False
            self.member = Member(node)
            return True
