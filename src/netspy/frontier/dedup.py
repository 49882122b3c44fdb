"""Fingerprint filters in the process, and the memory of what Redis confirmed.

A filter is asked and told by lists of 16-byte fingerprints. Asking and telling are two calls, because a
fingerprint may be marked only after its entry is safely queued, or its item safely stored.
"""

from __future__ import annotations

import importlib
import inspect
import struct
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from netspy.errors import ConfigError
from netspy.policy.bloom import BLOCK_BYTES, BloomPlan, layer_of, plan

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

    from netspy.settings import Settings

T = TypeVar("T")

IN_PROCESS = frozenset({"memory", "lite", "bloom"})
BLOOM_MAGIC = b"netspy-bloom-01\n"
"""Sixteen bytes, as long as a fingerprint, so that both fit into one file format."""
SHARED = frozenset({"auto", "redis", "redis-bloom", "redis-set"})


class RequestFilter(Protocol):
    """What a class named by DEDUP_FILTER must offer; its methods may also be `async def`. Made as
    `cls(settings)`.

    A `forget()`, if it has one, is called when Redis went back to an earlier state: pages that the filter knows may be
    queued nowhere then, and are to be called new again.
    """

    def seen(self, ids: Sequence[bytes]) -> list[bool] | Awaitable[list[bool]]:
        """Which of these fingerprints are known."""

    def mark(self, ids: Sequence[bytes]) -> Awaitable[None] | None:
        """They are queued now."""


class ExactFilter:
    """A set: never errs, grows with the crawl (about 90 bytes per fingerprint)."""

    __slots__ = ("ids",)

    def __init__(self) -> None:
        self.ids: set[bytes] = set()

    def add(self, fingerprint: bytes) -> bool:
        """True when it was new."""
        before = len(self.ids)
        self.ids.add(fingerprint)
        return len(self.ids) != before

    def seen(self, ids: Sequence[bytes]) -> list[bool]:
        """Which of these fingerprints are known."""
        known = self.ids
        return [i in known for i in ids]

    def mark(self, ids: Sequence[bytes]) -> None:
        """Make them known."""
        self.ids.update(ids)

    def forget(self) -> None:
        """Make all of them new again."""
        self.ids.clear()

    @property
    def count(self) -> int:
        """Fingerprints known."""
        return len(self.ids)

    def dump(self) -> Iterator[bytes]:
        """Every fingerprint; for `load`."""
        yield from self.ids

    def load(self, chunks: Iterable[bytes]) -> None:
        """Take in what `dump` gave. Raises ConfigError for the bits of a Bloom filter."""
        pieces = iter(chunks)
        for first in pieces:
            if first.startswith(BLOOM_MAGIC):
                raise ConfigError(
                    "the saved fingerprints are a Bloom filter's; keep DEDUP_FILTER as it was, or delete "
                    "the saved file"
                )
            self.ids.add(first)
            self.ids.update(pieces)


_PAIRS: list[bytes] = []
"""For each 12 bits of a fingerprint: the two bits they set in two neighbouring 64-bit segments, 16 bytes."""


def block_mask(fingerprint: bytes) -> int:
    """The 16 bits of a fingerprint in its block, as a little-endian number; the same as `lua/dedup.lua`."""
    if not _PAIRS:
        _PAIRS.extend(((1 << (v & 63)) | (1 << (64 + (v >> 6)))).to_bytes(16, "little") for v in range(4096))
    t = _PAIRS
    a = int.from_bytes(fingerprint[4:10], "little")
    b = int.from_bytes(fingerprint[10:16], "little")
    pairs = (
        t[a & 4095],
        t[a >> 12 & 4095],
        t[a >> 24 & 4095],
        t[a >> 36],
        t[b & 4095],
        t[b >> 12 & 4095],
        t[b >> 24 & 4095],
        t[b >> 36],
    )
    return int.from_bytes(b"".join(pairs), "little")


class BloomFilter:
    """A layered Bloom filter in the process: bounded memory, errs with at most twice the first layer's
    rate.
    """

    def __init__(
        self, made: BloomPlan, *, warn_rate: float = 1.0, on_fill: Callable[[float], None] | None = None
    ) -> None:
        """`on_fill(rate)` is called when the fill passes `warn_rate`, and at each further 5 %."""
        self.plan = made
        self.count = 0
        self._watch = FillWatch(made.capacity, warn_rate, on_fill)
        self._warn_at = warn_rate * made.capacity
        self._capacities = tuple(layer.capacity for layer in made.layers)
        self._layers: list[bytearray] = []

    def _known(self, fingerprint: bytes, mask: int) -> bool:
        number = int.from_bytes(fingerprint[:4], "little")
        for bits, layer in zip(
            reversed(self._layers), reversed(self.plan.layers[: len(self._layers)]), strict=True
        ):
            at = number % layer.blocks * BLOCK_BYTES
            if int.from_bytes(bits[at : at + BLOCK_BYTES], "little") & mask == mask:
                return True
        return False

    def add(self, fingerprint: bytes) -> bool:
        """True when it was new."""
        mask = block_mask(fingerprint)
        if self._known(fingerprint, mask):
            return False
        number = layer_of(self.count, self._capacities)
        while len(self._layers) <= number:
            self._layers.append(bytearray(self.plan.layers[len(self._layers)].size))
        bits = self._layers[number]
        at = int.from_bytes(fingerprint[:4], "little") % self.plan.layers[number].blocks * BLOCK_BYTES
        block = int.from_bytes(bits[at : at + BLOCK_BYTES], "little") | mask
        bits[at : at + BLOCK_BYTES] = block.to_bytes(BLOCK_BYTES, "little")
        self.count += 1
        if self.count >= self._warn_at:
            self._watch.seen(self.count)
        return True

    def seen(self, ids: Sequence[bytes]) -> list[bool]:
        """Which of these fingerprints are known."""
        return [self._known(i, block_mask(i)) for i in ids]

    def mark(self, ids: Sequence[bytes]) -> None:
        """Make them known."""
        for i in ids:
            self.add(i)

    def forget(self) -> None:
        """Make all of them new again."""
        self.count = 0
        self._layers = []

    def dump(self) -> Iterator[bytes]:
        """Layout, count and bits, in pieces of a multiple of 16 bytes; for `load`."""
        layout = self.plan.layout.encode()
        head = BLOOM_MAGIC + struct.pack(">QII", self.count, len(self._layers), len(layout))
        yield head + layout + b" " * (-len(layout) % 16)
        for bits in self._layers:
            for at in range(0, len(bits), 1 << 16):
                yield bytes(bits[at : at + (1 << 16)])

    def load(self, chunks: Iterable[bytes]) -> None:
        """Take in what `dump` gave, in pieces of any size, or plain 16-byte fingerprints.

        Raises ConfigError when the bits have another layout than the settings make.
        """
        pieces = iter(chunks)
        first = next(pieces, None)
        if first is None:
            return
        if not first.startswith(BLOOM_MAGIC):
            self.mark([first, *pieces])
            return
        data = first + b"".join(pieces)
        self.count, layers, width = struct.unpack(">QII", data[16:32])
        layout = data[32 : 32 + width].decode("utf-8", "replace")
        if layout != self.plan.layout:
            raise ConfigError(
                f"the saved fingerprints have the layout {layout!r}, the settings make "
                f"{self.plan.layout!r}; keep "
                "DEDUP_INITIAL_CAPACITY, DEDUP_ERROR_RATE and DEDUP_MAX_LAYERS as they were, or delete the "
                "saved "
                "file"
            )
        at = 32 + width + -width % 16
        self._layers = []
        for layer in self.plan.layers[:layers]:
            self._layers.append(bytearray(data[at : at + layer.size]))
            at += layer.size


def bloom_plan(settings: Settings, *, limit: int | None = None) -> BloomPlan:
    """The Bloom layers that the settings ask for. Raises ConfigError for a layer above `limit` bytes."""
    return plan(
        settings.DEDUP_INITIAL_CAPACITY, settings.DEDUP_ERROR_RATE, settings.DEDUP_MAX_LAYERS, limit=limit
    )


def in_process_filter(
    settings: Settings, *, on_fill: Callable[[float], None] | None = None
) -> ExactFilter | BloomFilter | RequestFilter:
    """The filter inside the process: Bloom for `memory` and `bloom`, exact for `lite` and `auto`, else by
    class path.
    """
    kind = settings.DEDUP_FILTER
    if kind in ("memory", "bloom"):
        return BloomFilter(bloom_plan(settings), warn_rate=settings.DEDUP_WARN_FILL_RATE, on_fill=on_fill)
    return ExactFilter() if kind in ("auto", "lite") else load_filter(settings)


def load_filter(settings: Settings) -> RequestFilter:
    """The filter class that DEDUP_FILTER names by its path, made with the settings. Raises ConfigError."""
    path = settings.DEDUP_FILTER
    module, _, name = path.rpartition(".")
    known = ", ".join(sorted(IN_PROCESS | SHARED))
    if not module:
        raise ConfigError(
            f"DEDUP_FILTER={path!r} is none of {known}, and no class path such as 'project.dedup.MyFilter'"
        )
    try:
        made: Any = getattr(importlib.import_module(module), name)(settings)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"DEDUP_FILTER={path!r} can't be loaded: {error}") from error
    for method in ("seen", "mark"):
        if not callable(getattr(made, method, None)):
            raise ConfigError(f"DEDUP_FILTER={path!r} has no method {method}(ids)")
    found: RequestFilter = made
    return found


async def maybe_await(answer: T | Awaitable[T]) -> T:
    """The answer of a method that may be `async def`."""
    return await answer if inspect.isawaitable(answer) else answer


class MemoryItemFilter:
    """Which items were stored before: an exact set in the process."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: set[bytes] = set()

    async def seen(self, fingerprints: list[bytes]) -> list[bool]:
        """One flag per fingerprint."""
        known = self._known
        return [f in known for f in fingerprints]

    async def mark(self, fingerprints: list[bytes]) -> None:
        """These are stored now."""
        self._known.update(fingerprints)


class ConfirmedCache:
    """Fingerprints that the shared store has confirmed, so that repeats cost no call.

    They hold as long as the store doesn't go back to an earlier state, in which it has not heard of them, and no new
    seeding generation begins. Bounded: the older half is dropped when `limit` is reached.
    """

    __slots__ = ("_half", "_new", "_old", "history")

    def __init__(self, limit: int = 65536) -> None:
        self._half = max(1, limit // 2)
        self._new: set[bytes] = set()
        self._old: set[bytes] = set()
        self.history = ""

    def follow(self, history: str) -> None:
        """The node's memory now; one with another name than before empties the cache."""
        if history != self.history:
            self.history = history
            self._new.clear()
            self._old.clear()

    def __contains__(self, fingerprint: bytes) -> bool:
        return fingerprint in self._new or fingerprint in self._old

    def confirm(self, ids: Iterable[bytes]) -> None:
        """The store knows these, in the memory followed last."""
        self._new.update(ids)
        if len(self._new) >= self._half:
            self._old = self._new
            self._new = set()


class FillWatch:
    """Calls `report` when a filter's fill passes the warning rate, and at each further 5 %."""

    __slots__ = ("_capacity", "_next", "_report")

    def __init__(self, capacity: int, warn_rate: float, report: Callable[[float], None] | None) -> None:
        self._capacity = capacity
        self._next = warn_rate
        self._report = report

    def seen(self, count: int) -> None:
        """`count` fingerprints are in."""
        rate = count / self._capacity
        if rate >= self._next and self._report is not None:
            while self._next <= rate + 1e-9:
                self._next += 0.05
            self._report(rate)
