"""Properties of messages as bytes, without a broker."""

from __future__ import annotations

import asyncio
import struct
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands
from pamqp.header import ContentHeader

from netspy.brokers.amqp_frames import RAW, FrameReader, properties_of
from netspy.brokers.amqp_properties import Properties, of_a_copy
from netspy.brokers.rabbit import error_kind
from support.raw_amqp import long, pair, properties, short

NOTES = {"x-error": "ValueError: no such shop", "x-queue": "shops"}


def a_copy(head, *, user="guest", room=None):
    return of_a_copy(Properties.read(head), NOTES, name="made-up", user=user, room=room)


def test_what_the_library_writes_is_read_and_written_again_unchanged():
    theirs = commands.Basic.Properties(
        content_type="a/b", content_encoding="gzip", headers={"a": 1, "b": {"c": [True, None, "x", 1.5]}},
        delivery_mode=2, priority=3, correlation_id="c", reply_to="r", expiration="1", message_id="m",
        message_type="t", user_id="u", app_id="i",
    ).marshal()  # fmt: skip
    found = Properties.read(theirs)
    assert found.marshal() == theirs
    assert (found.text("content_encoding"), found.message_id) == ("gzip", "m")
    assert found.number(b"a") == 1
    assert found.number(b"b") is None
    assert found.number(b"missing") is None


@given(st.binary(max_size=80))
def test_any_bytes_are_properties_or_a_value_error(data):
    try:
        found = Properties.read(data)
    except ValueError:
        return
    assert Properties.read(found.marshal()).marshal() == found.marshal()


@given(st.binary(max_size=255), st.binary(max_size=255))
def test_an_id_of_any_bytes_has_a_text_that_the_property_can_hold(one, other):
    first, second = (Properties.read(properties(message_id=short(name))) for name in (one, other))
    assert len(first.message_id.encode()) <= 255
    assert (first.text("message_id") == second.text("message_id")) == (one == other)


def test_a_copy_has_what_the_message_had_and_the_notes_in_the_place_of_older_ones():
    head = properties(
        headers=pair(b"x-error", b"S" + long(b"old")) + pair(b"x-left-out", b"V") + pair(b"t", b"T" + b"\xff" * 8),
        timestamp=b"\xff" * 8,
        message_id=short(b"\xe9"),
    )  # fmt: skip
    copy = a_copy(head)
    assert copy.headers == [
        (b"t", b"T" + b"\xff" * 8),
        (b"x-error", b"S" + long(b"ValueError: no such shop")),
        (b"x-queue", b"S" + long(b"shops")),
    ]
    assert copy.parts == {"timestamp": b"\xff" * 8, "message_id": b"\x01\xe9", "delivery_mode": b"\x02"}


def test_a_copy_is_not_refused_dropped_or_sent_elsewhere_for_what_the_message_had():
    table = (
        pair(b"CC", b"A" + long(b"S" + long(b"shops")))
        + pair(b"BCC", b"V")
        + pair(b"x-delivery-count", b"l" + bytes(8))
    )
    head = properties(user_id=short(b"other"), expiration=short(b"60000"), headers=table)
    copy = a_copy(head)
    assert "user_id" not in copy.parts
    assert "expiration" not in copy.parts
    assert {key for key, _ in copy.headers} == {
        b"x-user-id",
        b"x-expiration",
        b"x-cc",
        b"x-bcc",
        b"x-error",
        b"x-queue",
    }
    assert copy.header(b"x-user-id") == b"S" + long(b"other")
    assert a_copy(head, user="other").parts["user_id"] == short(b"other")
    again = a_copy(copy.marshal())  # of a copy that was sent back and failed once more
    assert again.marshal() == copy.marshal()


@pytest.mark.parametrize("room", [4096 - 20, 131_072 - 20])
@pytest.mark.parametrize("size", [10, 4000, 130_000])
def test_a_copy_fits_into_a_frame(room, size):
    table = pair(b"small", b"S" + long(b"1")) + pair(b"large", b"S" + long(b"x" * size))
    copy = a_copy(properties(headers=table), room=room)
    assert len(copy.marshal()) <= room
    assert copy.header(b"small") is not None
    fits = size + 200 < room
    assert (copy.header(b"large") is not None) == fits
    assert copy.header(b"x-left-out") == (
        None if fits else b"S" + long(f"large ({size + 4:,} bytes)".encode())
    )


# ---- frames


class Bytes:
    """A StreamReader's part that is read from."""

    def __init__(self, data):
        self.data = data

    def at_eof(self):
        return not self.data

    async def readexactly(self, size):
        if len(self.data) < size:
            raise asyncio.IncompleteReadError(self.data, size)
        piece, self.data = self.data[:size], self.data[size:]
        return piece

    async def read(self, _size=-1):
        piece, self.data = self.data, b""
        return piece


def frame(kind, payload):
    return struct.pack(">BHI", kind, 1, len(payload)) + payload + b"\xce"


async def through(data, heard=None):
    reader = FrameReader(Bytes(data), (heard if heard is not None else []).append)
    out = b""
    while not reader.at_eof():
        out += await reader.readexactly(1)
        start = out[-1:] + await reader.readexactly(6)
        out += start[1:] + await reader.readexactly(struct.unpack(">BHI", start)[2] + 1)
    return out


@pytest.mark.parametrize(
    "head", [properties(timestamp=b"\xff" * 8, message_id=short(b"caf\xe9")), b"\x80\x00\xff"]
)
async def test_properties_that_the_library_cant_decode_come_through_it_as_they_were(head):
    start = struct.pack(">HHQ", 60, 0, 5)
    payload = (await through(frame(2, start + head)))[7:-1]
    header = ContentHeader()
    header.unmarshal(payload)
    assert header.body_size == 5
    assert bytes(header.properties.headers[RAW]) == head
    message = SimpleNamespace(headers=header.properties.headers)
    try:
        wanted = Properties.read(head).marshal()
    except ValueError:
        wanted = b"\0\0"
    assert properties_of(message).marshal() == wanted


async def test_names_in_a_delivery_are_text_and_other_frames_are_left_alone():
    start = struct.pack(">HH", 60, 60) + short(b"ctag1") + bytes(8) + b"\x01"
    bad, good = start + short(b"ex\xff") + short(b"caf\xe9"), start + short(b"ex") + short(b"key")
    others = frame(1, good) + frame(3, b"\xff\xfe") + frame(8, b"")
    assert await through(others) == others
    delivery = commands.Basic.Deliver()
    delivery.unmarshal((await through(frame(1, bad)))[11:-1])
    assert (delivery.consumer_tag, delivery.redelivered, delivery.exchange, delivery.routing_key) == (
        "ctag1", True, "ex", "caf",
    )  # fmt: skip


async def test_alarms_are_told_of_and_what_is_no_frame_is_left_to_the_library():
    heard = []
    await through(
        frame(1, struct.pack(">HH", 10, 60) + short(b"low on memory")) + frame(1, struct.pack(">HH", 10, 61)),
        heard,
    )
    assert heard == ["low on memory", None]
    reader = FrameReader(Bytes(b"HTTP/1.1 400 Bad Request"), heard.append)
    assert (
        await reader.readexactly(1) + await reader.readexactly(6) + await reader.readexactly(8)
        == b"HTTP/1.1 400 Ba"
    )
    assert await reader.read() == b"d Request"


# ---- errors


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("delivery acknowledgement on channel 1 timed out. Timeout value used: 1800000 ms.", "away"),
        ("unknown delivery tag 7", "away"),
        ("inequivalent arg 'x-max-length' for queue 'timeout' in vhost '/'", "config"),
        ("invalid arg 'x-priority' for queue 'unknown delivery tag' in vhost '/' of queue type rabbit_stream_queue", "config"),
        ("message size 5 is larger than configured max size 4", "message"),
        ("user_id property set to 'a' but authenticated user was 'b'", "message"),
        ("invalid message: {delivery_mode_unknown,3}", "message"),
    ],
)  # fmt: skip
def test_what_a_broken_precondition_means_is_told_by_how_it_begins_not_by_names_in_it(reason, kind):
    from aiormq.exceptions import ChannelPreconditionFailed

    assert error_kind(ChannelPreconditionFailed(f"PRECONDITION_FAILED - {reason}")) == kind
