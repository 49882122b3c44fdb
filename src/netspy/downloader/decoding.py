"""Content codings (RFC 9110 8.4): turn coded bytes into the page, piece by piece and never beyond a cap.

What happens to odd bodies, in one place:

- An unknown coding (`Content-Encoding: utf-8`) is no coding: the bytes pass unchanged.
- `gzip` on a body that isn't gzip fails, as in browsers and curl: a body that can't be checked may be half a
  page.
- Several gzip members or zstd frames are one body; bytes after the last one (padding, a stray CRLF) are
  ignored.
- `deflate` means zlib by the RFC, and raw deflate as some servers send it: the first two bytes tell which.
- A stream that stops before its end mark is truncated; one whose checksum is wrong is corrupt. Both fail.
- An empty body is empty whatever its coding says.
"""

from __future__ import annotations

import sys
import zlib
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_STACKED = 5  # codings on top of each other; more is an attack, not a page
ZSTD_WINDOW = 8 << 20  # RFC 9659: a zstd body must not need a larger window
ZSTD_SLICE = 256  # a 4-byte block can stand for 128 KiB, so one slice makes 8 MiB at most
UNLIMITED = sys.maxsize - 1
GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
GZIP = 16 + zlib.MAX_WBITS  # zlib's way of saying: with gzip's frame
ALIASES = {"x-gzip": "gzip"}


def fastest_inflate() -> Any:
    """ISA-L's module where it is installed: the same interface and checks as zlib's in half the time."""
    try:
        return import_module("isal.isal_zlib")
    except ImportError:
        return zlib


inflate_engine: Any = fastest_inflate()


class BodyError(Exception):
    """The body can't be had in full. `reason` is one of DownloadError's words, such as `decode`, `truncated` or
    `too_large`.
    """

    def __init__(self, reason: str, why: str) -> None:
        super().__init__(why)
        self.reason = reason


class Decoder(Protocol):
    """One coding, undone incrementally."""

    def feed(self, data: bytes) -> bytes:
        """What `data` adds to the decoded body. Raises BodyError."""

    def finish(self) -> None:
        """The coded bytes are over. Raises BodyError when the stream isn't."""


class Budget:
    """How many decoded bytes may still come."""

    __slots__ = ("cap", "left")

    def __init__(self, cap: int) -> None:
        """`cap` in bytes; 0 = no limit."""
        self.cap = cap
        self.left = cap or UNLIMITED

    def spend(self, count: int) -> None:
        """Take `count` bytes. Raises BodyError `too_large` when they are not there."""
        self.left -= count
        if self.left < 0:
            raise too_large(self.cap)


def too_large(cap: int) -> BodyError:
    """The error of a body over `cap` bytes."""
    return BodyError("too_large", f"the body is larger than MAX_RESPONSE_SIZE={cap} bytes")


def truncated(coding: str) -> BodyError:
    """The error of a coded stream without its end."""
    return BodyError("truncated", f"the {coding} body stops before its end")


class GzipDecoder:
    """gzip (RFC 1952), any number of members; checksums are verified."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._member: Any = inflate_engine.decompressobj(GZIP)
        self._fed = False
        self._rest = b""  # the first byte of what may be a next member
        self._over = False

    def feed(self, data: bytes) -> bytes:
        """See Decoder.feed."""
        out: list[bytes] = []
        while data and not self._over:
            if self._member is None:
                data = self._rest + data
                self._rest = b""
                if not data.startswith(GZIP_MAGIC):
                    if data == GZIP_MAGIC[:1]:
                        self._rest = data
                    else:
                        self._over = True
                    break
                self._member = inflate_engine.decompressobj(GZIP)
            self._fed = True
            piece = inflate(self._member, data, "gzip", self._budget)
            if piece:
                out.append(piece)
            if not self._member.eof:
                break
            data = self._member.unused_data
            self._member = None
        return out[0] if len(out) == 1 else b"".join(out)

    def finish(self) -> None:
        """See Decoder.finish."""
        if self._fed and self._member is not None:
            raise truncated("gzip")


class DeflateDecoder:
    """deflate: zlib (RFC 1950) or, as some servers send it, raw deflate (RFC 1951)."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._inflater: Any = None
        self._head = b""

    def feed(self, data: bytes) -> bytes:
        """See Decoder.feed."""
        if self._inflater is None:
            data = self._head + data
            if len(data) < 2:
                self._head = data
                return b""
            is_zlib = data[0] & 0x0F == 8 and (data[0] << 8 | data[1]) % 31 == 0
            self._inflater = inflate_engine.decompressobj(zlib.MAX_WBITS if is_zlib else -zlib.MAX_WBITS)
            self._head = b""
        return b"" if self._inflater.eof else inflate(self._inflater, data, "deflate", self._budget)

    def finish(self) -> None:
        """See Decoder.finish."""
        if self._head or (self._inflater is not None and not self._inflater.eof):
            raise truncated("deflate")


def inflate(inflater: Any, data: bytes, coding: str, budget: Budget) -> bytes:
    """Run zlib over `data`, one byte over the budget at most, so that a bomb costs no memory."""
    try:
        piece: bytes = inflater.decompress(data, budget.left + 1)
    except inflate_engine.error as error:
        raise BodyError("decode", f"the body is not valid {coding}: {error}") from None
    budget.spend(len(piece))
    return piece


class BrotliDecoder:
    """br (RFC 7932)."""

    def __init__(self, budget: Budget) -> None:
        import brotli

        self._budget = budget
        self._error = brotli.error
        self._stream = brotli.Decompressor()
        self._fed = False

    def feed(self, data: bytes) -> bytes:
        """See Decoder.feed."""
        out: list[bytes] = []
        self._fed = True
        stream = self._stream
        try:
            while not stream.is_finished():
                piece = stream.process(data, output_buffer_limit=min(self._budget.left + 1, 1 << 20))
                data = b""
                if piece:
                    out.append(piece)
                    self._budget.spend(len(piece))
                if stream.can_accept_more_data():
                    break
        except self._error as error:
            raise BodyError("decode", f"the body is not valid br: {error}") from None
        return out[0] if len(out) == 1 else b"".join(out)

    def finish(self) -> None:
        """See Decoder.finish."""
        if self._fed and not self._stream.is_finished():
            raise truncated("br")


class ZstdDecoder:
    """zstd (RFC 8878), any number of frames, with or without content size."""

    def __init__(self, budget: Budget) -> None:
        import zstandard

        self._budget = budget
        self._error = zstandard.ZstdError
        self._context = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW)
        self._frame: Any = self._context.decompressobj()
        self._fed = False
        self._rest = b""
        self._over = False

    def feed(self, data: bytes) -> bytes:
        """See Decoder.feed."""
        out: list[bytes] = []
        data = self._rest + data if self._rest else data
        self._rest = b""
        start = 0
        while start < len(data) and not self._over:
            if self._frame is None:
                if len(data) - start < 4:
                    self._rest = data[start:]
                    break
                if not starts_zstd_frame(data[start : start + 4]):
                    self._over = True
                    break
                self._frame = self._context.decompressobj()
            self._fed = True
            piece = data[start : start + ZSTD_SLICE]
            start += len(piece)
            try:
                decoded = self._frame.decompress(piece)
            except self._error as error:
                raise BodyError("decode", f"the body is not valid zstd: {error}") from None
            if decoded:
                self._budget.spend(len(decoded))
                out.append(decoded)
            if self._frame.eof:
                start -= len(self._frame.unused_data)
                self._frame = None
        return out[0] if len(out) == 1 else b"".join(out)

    def finish(self) -> None:
        """See Decoder.finish."""
        if self._fed and self._frame is not None:
            raise truncated("zstd")


def starts_zstd_frame(head: bytes) -> bool:
    """Whether four bytes open a zstd frame or a skippable frame (RFC 8878 3.1)."""
    return head == ZSTD_MAGIC or (head[1:] == b"\x2a\x4d\x18" and head[0] >> 4 == 5)


DECODERS: dict[str, Any] = {
    "gzip": GzipDecoder,
    "deflate": DeflateDecoder,
    "br": BrotliDecoder,
    "zstd": ZstdDecoder,
}


class StackedDecoder:
    """Several codings, applied in the order listed (RFC 9110 8.4), so undone from the last to the first."""

    def __init__(self, stages: list[Decoder]) -> None:
        self._stages = stages

    def feed(self, data: bytes) -> bytes:
        """See Decoder.feed."""
        for stage in self._stages:
            if not data:
                break
            data = stage.feed(data)
        return data

    def finish(self) -> None:
        """See Decoder.finish."""
        for stage in self._stages:
            stage.finish()


def codings(values: Iterable[str]) -> list[str]:
    """The codings to undo that the Content-Encoding lines name, in the order they were applied."""
    names = [name.strip().lower() for value in values for name in value.split(",")]
    return [name for name in (ALIASES.get(name, name) for name in names) if name in DECODERS]


def decoder_for(names: list[str], cap: int) -> Decoder:
    """A decoder of `names` (from `codings`, at least one) for a page of at most `cap` bytes; 0 = no limit.

    Raises BodyError when too many codings are stacked.
    """
    if len(names) > MAX_STACKED:
        raise BodyError(
            "decode", f"{len(names)} content codings are stacked; at most {MAX_STACKED} are undone"
        )
    stages: list[Decoder] = [DECODERS[name](Budget(cap)) for name in reversed(names)]
    return stages[0] if len(stages) == 1 else StackedDecoder(stages)


def accept_encoding() -> str:
    """The Accept-Encoding value: only what can be undone under a cap is offered."""
    import brotli

    capped_brotli = hasattr(brotli.Decompressor, "can_accept_more_data")
    return "gzip, deflate, br, zstd" if capped_brotli else "gzip, deflate, zstd"
