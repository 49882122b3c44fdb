"""Compressed files that grow: each batch is a gzip member (RFC 1952) or a zstd frame (RFC 8878) of its own.

Any reader of the format takes the whole for one file. A member that a crash tore can be told from a whole one by its
checksum, so the end of the last whole member is where the file goes on.
"""

from __future__ import annotations

import gzip
import zlib
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from netspy.pipelines.local.shared_file import SharedFile

_BLOCK = 1 << 20
_GZIP_LEVEL = 6
_ZSTD_LEVEL = 3
_MAX_PIECE = 1 << 20  # decompressed at a time
_ZSTD_SLICE = 4096


class Codec(NamedTuple):
    """One format: how a batch is packed, what begins a member, and how a member is read.

    `begin`: up to so many bytes of the content, out of the beginning of a file.
    """

    suffix: str
    magic: bytes
    pack: Callable[[bytes], bytes]
    reader: Callable[[], _Reader]
    begin: Callable[[bytes, int], bytes]


class _Reader(Protocol):
    """Reads one member and checks it."""

    done: bool
    unused: int  # bytes behind the member's end of those that were fed
    last: int  # the last byte of the content, -1 for none

    def feed(self, data: bytes) -> None:
        """Take bytes of the file. Raises ValueError when they are no member."""


class _GzipReader:
    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(16 + zlib.MAX_WBITS)
        self.done = False
        self.unused = 0
        self.last = -1

    def feed(self, data: bytes) -> None:
        try:
            while data:
                piece = self._inflate.decompress(data, _MAX_PIECE)
                if piece:
                    self.last = piece[-1]
                data = self._inflate.unconsumed_tail
                if self._inflate.eof:
                    self.done = True
                    self.unused = len(self._inflate.unused_data)
                    return
        except zlib.error as error:
            raise ValueError(str(error)) from error


class _ZstdReader:
    def __init__(self) -> None:
        self._zstd = import_module("zstandard")
        self._frame: Any = self._zstd.ZstdDecompressor().decompressobj()
        self.done = False
        self.unused = 0
        self.last = -1

    def feed(self, data: bytes) -> None:
        # In slices: four bytes can stand for 128 KiB of content.
        for start in range(0, len(data), _ZSTD_SLICE):
            try:
                piece = self._frame.decompress(data[start : start + _ZSTD_SLICE])
            except self._zstd.ZstdError as error:
                raise ValueError(str(error)) from error
            if piece:
                self.last = piece[-1]
            if self._frame.eof:
                self.done = True
                self.unused = len(self._frame.unused_data) + max(0, len(data) - start - _ZSTD_SLICE)
                return


def _zstd(data: bytes) -> bytes:
    compressor = import_module("zstandard").ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=True)
    packed: bytes = compressor.compress(data)
    return packed


def _begin_gzip(data: bytes, most: int) -> bytes:
    return zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(data, most)


def _begin_zstd(data: bytes, most: int) -> bytes:
    zstd = import_module("zstandard")
    with zstd.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
        content: bytes = reader.read(most)
    return content


CODECS: dict[str, Codec] = {
    "gzip": Codec(
        ".gz",
        b"\x1f\x8b\x08",
        lambda data: gzip.compress(data, _GZIP_LEVEL, mtime=0),
        _GzipReader,
        _begin_gzip,
    ),
    "zstd": Codec(".zst", b"\x28\xb5\x2f\xfd", _zstd, _ZstdReader, _begin_zstd),
}


def codec_of(name: str) -> Codec | None:
    """The codec that a file name asks for by its suffix (`.gz`, `.zst`); None for plain files."""
    low = name.lower()
    return next((codec for codec in CODECS.values() if low.endswith(codec.suffix)), None)


class Whole(NamedTuple):
    """How much of a file is whole: up to `end`, and whether the content there ends with a newline."""

    end: int
    newline: bool


def whole_part(file: SharedFile, codec: Codec) -> Whole:
    """Where the last whole member ends.

    Looks for it from the end of the file backwards, so a long file costs no more than its last members. What isn't a
    member at all (a file that something else wrote) ends at 0.
    """
    size = file.size()
    for start in _starts(file, codec.magic, size):
        found = _member(file, codec, start, size)
        if found is not None:
            return found
    return Whole(0, newline=True)


def head_of(file: SharedFile, codec: Codec, most: int) -> bytes:
    """Up to `most` bytes of the content, from its beginning. Raises ValueError when the file isn't of this format."""
    data = file.read(0, most)
    if not data.startswith(codec.magic) and data != codec.magic[: len(data)]:
        raise ValueError(f"its content is not compressed as its name says ({codec.suffix})")
    try:
        return codec.begin(data, most)
    except Exception:  # a first member that a crash tore; the formats have errors of their own
        return b""


def _member(file: SharedFile, codec: Codec, start: int, size: int) -> Whole | None:
    """The whole member that begins at `start`, None when none does."""
    reader = codec.reader()
    at = start
    try:
        for block in file.blocks(start, size):
            reader.feed(block)
            at += len(block)
            if reader.done:
                return Whole(at - reader.unused, reader.last in {-1, 0x0A})
    except ValueError:
        return None
    return None


def _starts(file: SharedFile, magic: bytes, size: int) -> Iterator[int]:
    """Where `magic` stands in the file, from the end backwards."""
    end = size
    while end > 0:
        start = max(0, end - _BLOCK)
        block = file.read(start, min(size, end + len(magic) - 1) - start)
        upto = len(block)
        while (at := block.rfind(magic, 0, upto)) >= 0:
            yield start + at
            upto = at + len(magic) - 1
        end = start
