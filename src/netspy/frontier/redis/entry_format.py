"""The entry format, version 1, as Python reads and writes it; the scripts' side is `lua/entry.lua`."""

from __future__ import annotations

from typing import NamedTuple

FORMAT_VERSION = "1"
MAX_SUSPICION = 34
"""The suspicion is one base-36 digit; the last one is kept free."""
BASE36 = "0123456789abcdefghijklmnopqrstuvwxyz"


class WireEntry(NamedTuple):
    """A new entry ready to travel."""

    id: bytes
    site: str
    priority: float
    payload: bytes
    task: str = ""

    @property
    def body(self) -> bytes:
        """What follows the header of a queued entry."""
        return b"@%s%s" % (self.task.encode(), self.payload) if self.task else self.payload


def base36(number: int) -> str:
    """Six digits, so that claim numbers compare as text."""
    digits = ""
    for _ in range(6):
        number, rest = divmod(number, 36)
        digits = BASE36[rest] + digits
    return digits


def priority_text(priority: float) -> str:
    """A priority as Redis writes scores. Raises ValueError for one that isn't finite."""
    if priority - priority != 0:
        raise ValueError(f"priority {priority!r} is not a finite number")
    whole = int(priority)
    return str(whole) if whole == priority and abs(whole) < 1 << 53 else repr(float(priority))


class LeaseParts(NamedTuple):
    """A leased member taken apart."""

    seq: int
    deliveries: int
    suspicion: int
    site: str
    priority: float
    payload: bytes
    task: str


def read_member(member: bytes) -> LeaseParts:
    """Take a leased member apart (format in `lua/entry.lua`)."""
    brace = member.index(b"{", 41)
    priority, _, task = member[41:brace].partition(b"@")
    return LeaseParts(
        int(member[:15]),
        int(member[15:17]),
        int(member[17:18], 36),
        member[18:26].decode(),
        float(priority),
        member[brace:],
        task.decode("utf-8", "replace"),
    )


def held_mark(member: bytes) -> bytes:
    """What names a lease to `reconcile`: sequence and claim number."""
    return member[:15] + member[35:41]
