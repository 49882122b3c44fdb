"""A task's value as a message: netspy's JSON when netspy wrote it, plain JSON from anybody else."""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec

from netspy.errors import SerializationError
from netspy.messages import codec

if TYPE_CHECKING:
    from collections.abc import Sequence

KIND = "netspy.task"
"""Marks a message that `add` wrote: its JSON brings back Python's types."""

MAX_TOKEN_BYTES = 200
_SETTLED_KEPT = 20_000

_read_plain = msgspec.json.Decoder().decode


def encode_values(values: Sequence[Any]) -> list[bytes]:
    """The bodies of new tasks. Raises SerializationError, which names the task by its place."""
    return [codec.encode(value, f"task {number}") for number, value in enumerate(values)]


def decode_value(body: bytes, *, ours: bool) -> Any:
    """The value in a body. Raises SerializationError for what is no JSON.

    In a foreign message a key that begins with "!" means nothing, unless it happens to be a value of netspy's.
    """
    try:
        return codec.decode(body)
    except SerializationError:
        if ours:
            raise
    if len(body) > codec.MAX_BYTES:
        raise SerializationError(
            f"a message of {len(body):,} bytes is over the limit of {codec.MAX_BYTES:,}; pass a key to large data"
        )
    try:
        return _read_plain(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise SerializationError(f"the message is no JSON ({error}): {body[:80]!r}") from None


def token_of(text: str) -> str:
    """`text` as a token: itself, or a digest when it is too long or holds what a token may not."""
    data = text.encode("utf-8", "surrogatepass")
    if 0 < len(data) <= MAX_TOKEN_BYTES and text.isprintable() and not {"{", "}"} & set(text):
        return text
    return blake2b(data, digest_size=16).hexdigest()


class SettledLately:
    """Tokens of tasks that were settled a short while ago.

    An outage may swallow the word of it; when the broker then delivers such a task again, it is done already.
    """

    def __init__(self, most: int = _SETTLED_KEPT) -> None:
        self._most = most
        self._tokens: OrderedDict[str, None] = OrderedDict()

    def add(self, token: str) -> None:
        """Remember it, and forget the oldest one beyond the limit."""
        self._tokens[token] = None
        if len(self._tokens) > self._most:
            self._tokens.popitem(last=False)

    def __contains__(self, token: object) -> bool:
        return token in self._tokens
