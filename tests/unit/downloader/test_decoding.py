from __future__ import annotations

import gzip
import tracemalloc
import zlib

import brotli
import pytest
import zstandard

from netspy.downloader import decoding
from netspy.downloader.decoding import BodyError

PAGE = b"<p>" + b"some words on a page, " * 2000 + b"</p>"


def raw_deflate(data: bytes) -> bytes:
    squeezer = zlib.compressobj(wbits=-15)
    return squeezer.compress(data) + squeezer.flush()


CODED = {
    "gzip": gzip.compress(PAGE),
    "deflate": zlib.compress(PAGE),
    "raw deflate": raw_deflate(PAGE),
    "br": brotli.compress(PAGE),
    "zstd": zstandard.ZstdCompressor().compress(PAGE),
}


@pytest.fixture(params={zlib, decoding.fastest_inflate()}, ids=lambda module: module.__name__, autouse=True)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What inflates gzip and deflate: zlib, and ISA-L where it is installed."""
    monkeypatch.setattr(decoding, "inflate_engine", request.param)


def decode(coded: bytes, *header: str, step: int = 1 << 20, cap: int = 0) -> bytes:
    decoder = decoding.decoder_for(decoding.codings(header), cap)
    out = b"".join(decoder.feed(coded[start : start + step]) for start in range(0, len(coded), step))
    decoder.finish()
    return out


@pytest.mark.parametrize("step", [1, 7, 1 << 20])
@pytest.mark.parametrize("name", CODED)
def test_every_coding_in_pieces_of_any_size(name: str, step: int) -> None:
    assert decode(CODED[name], name.removeprefix("raw "), step=step) == PAGE


@pytest.mark.parametrize("name", CODED)
def test_a_stream_without_its_end_is_never_a_page(name: str) -> None:
    for cut in (len(CODED[name]) - 1, len(CODED[name]) // 2, 3):
        with pytest.raises(BodyError) as caught:
            decode(CODED[name][:cut], name.removeprefix("raw "))
        assert caught.value.reason == "truncated", cut


@pytest.mark.parametrize("name", ["gzip", "deflate", "br", "zstd"])
def test_plain_text_labelled_as_coded_fails(name: str) -> None:
    with pytest.raises(BodyError) as caught:
        decode(b"<!doctype html><title>plain text</title>" * 10, name)
    assert caught.value.reason == "decode"


@pytest.mark.parametrize(("name", "where"), [("gzip", -6), ("deflate", -2)])
def test_a_flipped_bit_fails_by_the_checksum(name: str, where: int) -> None:
    coded = bytearray(CODED[name])
    coded[where] ^= 0x10
    with pytest.raises(BodyError) as caught:
        decode(bytes(coded), name)
    assert caught.value.reason == "decode"


@pytest.mark.parametrize("name", ["gzip", "deflate", "br", "zstd"])
def test_an_empty_body_is_empty_whatever_its_label(name: str) -> None:
    assert decode(b"", name) == b""


@pytest.mark.parametrize("step", [1, 1 << 20])
@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_several_members_or_frames_are_one_body(name: str, step: int) -> None:
    assert decode(CODED[name] * 3, name, step=step) == PAGE * 3


@pytest.mark.parametrize("step", [1, 1 << 20])
@pytest.mark.parametrize("tail", [b"\r\n\r\n", b"\0" * 512, b"\x1f", b"\x28\xb5"])
@pytest.mark.parametrize("name", ["gzip", "deflate", "zstd"])
def test_padding_after_the_end_is_no_reason_to_lose_the_page(name: str, tail: bytes, step: int) -> None:
    assert decode(CODED[name] + tail, name, step=step) == PAGE


def test_a_skippable_zstd_frame_between_frames() -> None:
    skippable = b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd"
    assert decode(CODED["zstd"] + skippable + CODED["zstd"], "zstd", step=5) == PAGE * 2


@pytest.mark.parametrize(
    "header", [("gzip, br",), ("gzip", "br"), ("GZIP , identity, Br",), ("x-gzip, utf-8, br",)]
)
def test_stacked_codings_are_undone_from_the_last_to_the_first(header: tuple[str, ...]) -> None:
    assert decode(brotli.compress(CODED["gzip"]), *header, step=11) == PAGE


def test_half_of_the_inner_stream_in_a_whole_outer_one_is_truncated() -> None:
    with pytest.raises(BodyError) as caught:
        decode(gzip.compress(CODED["br"][:-4]), "br, gzip")
    assert caught.value.reason == "truncated"


def test_a_tower_of_codings_is_refused() -> None:
    with pytest.raises(BodyError, match="stacked"):
        decoding.decoder_for(["gzip"] * 6, 0)


@pytest.mark.parametrize("header", [("UTF-8",), ("identity",), ("",), ("none, aws-chunked",)])
def test_unknown_codings_are_none(header: tuple[str, ...]) -> None:
    assert decoding.codings(header) == []


def repeated(make: object, size: int) -> bytes:
    """A bomb: `size` zero bytes, coded piece by piece."""
    chunk = bytes(1 << 20)
    out = []
    for _ in range(size >> 20):
        out.append(make.process(chunk) if hasattr(make, "process") else make.compress(chunk))
    out.append(make.finish() if hasattr(make, "finish") else make.flush())
    return b"".join(out)


@pytest.mark.parametrize(
    ("name", "maker", "size"),
    [
        ("gzip", lambda: zlib.compressobj(9, wbits=31), 64 << 20),
        ("deflate", lambda: zlib.compressobj(9), 64 << 20),
        ("br", lambda: brotli.Compressor(quality=5), 256 << 20),
        ("zstd", lambda: zstandard.ZstdCompressor().compressobj(), 256 << 20),
    ],
)
def test_a_bomb_costs_little_memory_and_stops_at_the_cap(name: str, maker: object, size: int) -> None:
    bomb = repeated(maker(), size)
    assert len(bomb) < size / 500
    decoder = decoding.decoder_for([name], 1 << 20)
    tracemalloc.start()
    pieces = (decoder.feed(bomb[start : start + 16384]) for start in range(0, len(bomb), 16384))
    with pytest.raises(BodyError) as caught:
        list(pieces)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert caught.value.reason == "too_large"
    assert "MAX_RESPONSE_SIZE=1048576" in str(caught.value)
    assert peak < 24 << 20


@pytest.mark.parametrize("name", ["gzip", "deflate", "br", "zstd"])
def test_a_body_of_exactly_the_cap_passes_and_one_byte_more_does_not(name: str) -> None:
    assert decode(CODED[name], name, cap=len(PAGE)) == PAGE
    with pytest.raises(BodyError):
        decode(CODED[name], name, cap=len(PAGE) - 1)


def test_a_zstd_frame_that_asks_for_a_huge_window_is_refused() -> None:
    options = zstandard.ZstdCompressionParameters.from_level(3, window_log=26, enable_ldm=True)
    coded = repeated(zstandard.ZstdCompressor(compression_params=options).compressobj(), 80 << 20)
    with pytest.raises(BodyError, match="zstd"):
        decode(coded, "zstd")


def test_what_is_offered_can_be_undone() -> None:
    assert {name.strip() for name in decoding.accept_encoding().split(",")} <= set(decoding.DECODERS)
