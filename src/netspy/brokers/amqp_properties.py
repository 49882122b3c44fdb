"""The properties of a message of AMQP 0-9-1 as the bytes that they are: read without a judgement, changed, written again.

A broker takes more from its clients than any of them can decode: text that is no UTF-8, times beyond any calendar. Who
passes a message on needs none of these values, only where each begins and ends.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_NAMES = (
    "content_type", "content_encoding", "headers", "delivery_mode", "priority", "correlation_id", "reply_to",
    "expiration", "message_id", "timestamp", "type", "user_id", "app_id", "cluster_id",
)  # fmt: skip
"""In their order; each has a bit in the flags, the highest one first."""
_SIZES = {"delivery_mode": 1, "priority": 1, "timestamp": 8}
_FIXED = {
    **dict.fromkeys((b"t", b"b", b"B"), 1),
    **dict.fromkeys((b"s", b"u"), 2),
    **dict.fromkeys((b"I", b"i", b"f"), 4),
    **dict.fromkeys((b"l", b"L", b"d", b"T"), 8),
    b"D": 5,
    b"V": 0,
}
"""How many bytes a value of each type has; the others say it themselves."""
_COUNTED = frozenset({b"S", b"x", b"A", b"F"})
_WHOLE_NUMBERS = {
    b"b": ">b",
    b"B": ">B",
    b"s": ">h",
    b"u": ">H",
    b"I": ">i",
    b"i": ">I",
    b"l": ">q",
    b"L": ">q",
}
_RECEIVERS = frozenset({b"CC", b"BCC"})
_COUNTS = frozenset({b"x-delivery-count", b"x-acquired-count"})
_PERSISTENT = b"\x02"
_LEFT_OUT = b"x-left-out"
_LONGEST_NOTE = 2000
_LONGEST_SHORT = 255


class Properties:
    """Those of one message. `headers` are pairs of a name and a value as bytes, the value with the letter of its type."""

    def __init__(
        self, parts: Mapping[str, bytes] | None = None, headers: Iterable[tuple[bytes, bytes]] = ()
    ) -> None:
        """`parts`: the other properties by name, each as it is written."""
        self.parts = dict(parts or {})
        self.headers = list(headers)

    @classmethod
    def read(cls, data: bytes) -> Self:
        """From a content header's flags on. Raises ValueError for bytes that are no properties."""
        flags = int.from_bytes(data[:2])
        parts: dict[str, bytes] = {}
        headers: list[tuple[bytes, bytes]] = []
        at = 2
        for place, name in enumerate(_NAMES):
            if not flags & 1 << (15 - place):
                continue
            if name == "headers":
                size = int.from_bytes(_piece(data, at, 4))
                headers = _read_table(_piece(data, at + 4, size))
                at += 4 + size
                continue
            size = _SIZES.get(name) or 1 + _piece(data, at, 1)[0]
            parts[name] = _piece(data, at, size)
            at += size
        return cls(parts, headers)

    def marshal(self) -> bytes:
        """As they are written, flags first."""
        flags, data = 0, []
        for place, name in enumerate(_NAMES):
            value = self.parts.get(name)
            if name == "headers" and self.headers:
                value = _counted(b"".join(_short(key) + value for key, value in self.headers))
            if value is not None:
                flags |= 1 << (15 - place)
                data.append(value)
        return struct.pack(">H", flags) + b"".join(data)

    def text(self, name: str) -> str:
        """A property that is text; "" when it is missing. Bytes that are no UTF-8 become lone surrogates."""
        return self.parts.get(name, b"\0")[1:].decode("utf-8", "surrogateescape")

    @property
    def message_id(self) -> str:
        """As text that fits into the property, by which the client library knows a message that is returned."""
        text = self.parts.get("message_id", b"\0")[1:].decode("utf-8", "backslashreplace")
        return text.encode()[:_LONGEST_SHORT].decode("utf-8", "ignore")

    @message_id.setter
    def message_id(self, text: str) -> None:
        self.parts["message_id"] = _short(text.encode())

    def header(self, name: bytes) -> bytes | None:
        """The value of a header, with the letter of its type."""
        return next((value for key, value in self.headers if key == name), None)

    def number(self, name: bytes) -> int | None:
        """A header that is a whole number."""
        value = self.header(name) or b""
        shape = _WHOLE_NUMBERS.get(value[:1])
        return None if shape is None else int(struct.unpack(shape, value[1:])[0])


def of_a_copy(
    original: Properties, notes: Mapping[str, str], *, name: str, user: str, room: int | None
) -> Properties:
    """The properties with which a message is put aside: all that it had, and `notes` as headers; `name` is its id when it
    has none, without which the client library can't tell that it was returned.

    But for what would make the broker refuse the copy, send it elsewhere or drop it: another `user` than the one who
    publishes, a time to live and further receivers become headers (`x-user-id`, `x-expiration`, `x-cc`); the count of
    deliveries is the old queue's. A header frame can't be split: what makes it larger than `room` bytes (None: any
    number) is left out, the largest header first, and named in the header `x-left-out`.
    """
    parts = {"message_id": _short(name.encode()), **original.parts, "delivery_mode": _PERSISTENT}
    moved: list[tuple[bytes, bytes]] = []
    for part, header in (("expiration", b"x-expiration"), ("user_id", b"x-user-id")):
        if part in parts and not (part == "user_id" and original.text(part) == user):
            moved.append((header, b"S" + _counted(parts.pop(part)[1:])))
    moved += [(b"x-" + key.lower(), value) for key, value in original.headers if key in _RECEIVERS]
    replaced = (
        {name.encode() for name in notes} | {key for key, _ in moved} | {_LEFT_OUT} | _RECEIVERS | _COUNTS
    )
    kept = [pair for pair in original.headers if pair[0] not in replaced] + moved
    said = [(name.encode(), _text(text)) for name, text in notes.items()]
    left_out: list[str] = []
    while True:
        note = [(_LEFT_OUT, _text(", ".join(left_out)))] if left_out else []
        copy = Properties(parts, [*kept, *said, *note])
        if not kept or room is None or len(copy.marshal()) <= room:
            return copy
        largest = max(range(len(kept)), key=lambda place: len(kept[place][1]))
        key, value = kept.pop(largest)
        left_out.append(f"{key.decode('utf-8', 'replace')} ({len(value) - 1:,} bytes)")


def _text(text: str) -> bytes:
    """A header's value. Cut: it must never be the reason that a message isn't taken."""
    return b"S" + _counted(text[:_LONGEST_NOTE].encode("utf-8", "replace"))


def _short(data: bytes) -> bytes:
    return bytes([len(data)]) + data


def _counted(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def _piece(data: bytes, at: int, size: int) -> bytes:
    piece = data[at : at + size]
    if len(piece) < size:
        raise ValueError(f"{size} bytes were expected at {at}, {len(piece)} came")
    return piece


def _read_table(data: bytes) -> list[tuple[bytes, bytes]]:
    pairs: list[tuple[bytes, bytes]] = []
    at = 0
    while at < len(data):
        name = _piece(data, at + 1, data[at])
        at += 1 + len(name)
        kind = _piece(data, at, 1)
        if kind in _COUNTED:
            size = 5 + int.from_bytes(_piece(data, at + 1, 4))
        elif kind in _FIXED:
            size = 1 + _FIXED[kind]
        else:
            raise ValueError(f"a header of the unknown type {kind!r}")
        pairs.append((name, _piece(data, at, size)))
        at += size
    return pairs
