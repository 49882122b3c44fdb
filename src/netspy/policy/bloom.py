"""How large a layered Bloom filter is: pure arithmetic, shared by the in-process filter and the Redis one.

A layer is a row of 128-byte blocks. A fingerprint (16 bytes) chooses one block by its first 32 bits and sets
one bit in each of the block's sixteen 64-bit segments by its other 96 bits (16 × 6). One block per fingerprint
costs one read and one write, at the price of more memory than a filter whose bits lie anywhere: blocks fill
unevenly, so the error is an average over a Poisson distribution of how full they are. The larger the block,
the more even: with 128 bytes, up to eight layers from an error of 1e-6 on stay below 1.4 times a classic
filter's memory.

The block is the 32 bits modulo the layer's blocks. The first blocks are chosen more often than the last by
one part in 2^32 / blocks: one in 1024 in the largest layer that Redis can hold, which doesn't change the error.

When a layer is full the next one begins, with twice the capacity and half the error. The errors form a
geometric series, so the whole filter stays below twice the error of its first layer, however many layers
there are.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

from netspy.errors import ConfigError

BLOCK_BYTES = 128
BLOCK_BITS = 8 * BLOCK_BYTES
SEGMENTS = 16
SEGMENT_BITS = 64
LAYOUT_VERSION = "block2"
MAX_LAYER_BYTES = 512 * 1024 * 1024
"""A Redis string holds at most 512 MB (proto-max-bulk-len's default)."""


class Layer(NamedTuple):
    """One layer: how many fingerprints it takes at its error, and its size in 128-byte blocks."""

    capacity: int
    error: float
    blocks: int

    @property
    def size(self) -> int:
        """Bytes."""
        return self.blocks * BLOCK_BYTES


class BloomPlan(NamedTuple):
    """All layers of a filter."""

    layers: tuple[Layer, ...]

    @property
    def capacity(self) -> int:
        """Fingerprints in all layers together."""
        return sum(layer.capacity for layer in self.layers)

    @property
    def size(self) -> int:
        """Bytes, once every layer is in use."""
        return sum(layer.size for layer in self.layers)

    @property
    def error_bound(self) -> float:
        """The chance that a new fingerprint is taken for a known one, with every layer full: a sum, so an
        upper bound.
        """
        return sum(layer.error for layer in self.layers)

    @property
    def layout(self) -> str:
        """The plan in one line, kept beside the bits: two programs share bits only when their lines are
        equal.
        """
        sizes = " ".join(f"{layer.capacity}:{layer.blocks}" for layer in self.layers)
        return f"{LAYOUT_VERSION} {self.layers[0].error:g} {sizes}"


def block_error(keys_per_block: float) -> float:
    """The chance that a new fingerprint is taken for a known one, with that many keys per block on average.

    A block that got k keys has a given bit set with 1 - (63/64)^k in each of its 16 segments; k is
    Poisson distributed.
    """
    if keys_per_block <= 0:
        return 0.0
    total = 0.0
    spread = 12 * math.sqrt(keys_per_block) + 30
    for k in range(max(0, int(keys_per_block - spread)), int(keys_per_block + spread) + 1):
        weight = math.exp(k * math.log(keys_per_block) - keys_per_block - math.lgamma(k + 1))
        total += weight * (1 - (1 - 1 / SEGMENT_BITS) ** k) ** SEGMENTS
    return total


@lru_cache(maxsize=256)
def bits_per_key(error: float) -> float:
    """Bits of memory per fingerprint so that a full layer errs with at most `error`, rounded up to 0.1."""
    low, high = 0.5, 4096.0
    for _ in range(60):
        middle = (low + high) / 2
        if block_error(BLOCK_BITS / middle) > error:
            low = middle
        else:
            high = middle
    return math.ceil(high * 10) / 10


def plan(capacity: int, error: float, max_layers: int, *, limit: int | None = MAX_LAYER_BYTES) -> BloomPlan:
    """Layers of `capacity`, twice that, four times that and so on, with `error`, half of it, a quarter of it.

    Raises ConfigError when a layer is larger than `limit` bytes (None: no limit), with the numbers.
    """
    layers = []
    for number in range(max_layers):
        size = capacity << number
        target = error / (1 << number)
        blocks = max(1, math.ceil(size * bits_per_key(target) / BLOCK_BITS))
        layers.append(Layer(size, target, blocks))
        if limit is not None and layers[-1].size > limit:
            raise ConfigError(
                f"Bloom layer {number} for {size:,} fingerprints at an error of {target:g} needs "
                f"{layers[-1].size / 2**20:,.0f} MB, more than the {limit / 2**20:,.0f} MB of one Redis "
                f"string (DEDUP_INITIAL_CAPACITY={capacity}, DEDUP_ERROR_RATE={error:g}, "
                f"DEDUP_MAX_LAYERS={max_layers}); use at most {number} layers, a smaller first layer or a larger error"
                if number
                else f"the first Bloom layer for {size:,} fingerprints at an error of {target:g} needs "
                f"{layers[-1].size / 2**20:,.0f} MB, more than the {limit / 2**20:,.0f} MB of one Redis "
                f"string; make DEDUP_INITIAL_CAPACITY={capacity} smaller or DEDUP_ERROR_RATE={error:g} larger"
            )
    return BloomPlan(tuple(layers))


class MemoryRow(NamedTuple):
    """One row of the documented memory table."""

    layers: int
    capacity: int
    megabytes: float
    error_bound: float


def memory_table(
    capacity: int = 1_000_000, error: float = 1e-6, layers: tuple[int, ...] = (1, 4, 6, 8)
) -> list[MemoryRow]:
    """What the docs print: memory (MB of 2^20 bytes) and error bound by number of layers."""
    rows = []
    for count in layers:
        made = plan(capacity, error, count, limit=None)
        rows.append(MemoryRow(count, made.capacity, made.size / 2**20, made.error_bound))
    return rows


def layer_of(count: int, capacities: tuple[int, ...]) -> int:
    """The layer that takes the next fingerprint when `count` are in; the last one when all are full."""
    for number, capacity in enumerate(capacities):
        if count < capacity:
            return number
        count -= capacity
    return len(capacities) - 1
