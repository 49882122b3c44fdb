"""Messages into a queue of RabbitMQ, each confirmed, over a `RabbitLink` that does nothing else."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from netspy.brokers.rabbit import RabbitLink, Session, ensure_queue, one_line
from netspy.errors import StoreUnavailableError
from netspy.policy.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Sequence

_CHUNK = 500  # messages published before their confirms are awaited
_LIMIT = re.compile(r"message size \d+ is larger than configured max size (\d+)")


class Outgoing(NamedTuple):
    """A message: its body, and properties as the client library takes them."""

    body: bytes
    properties: Any


async def publish(session: Session, queue: str, left: dict[int, Outgoing]) -> dict[int, BaseException]:
    """Send what is in `left` and wait for the broker's word on each; what it has is taken out of `left`.

    The answers are those that it refused, on a connection that works (`refusal` says what that means). Raises the
    error that ended the connection or channel.
    """
    channel: Any = await session.channel.get_underlay_channel()
    places = list(left)
    refused: dict[int, BaseException] = {}
    for start in range(0, len(places), _CHUNK):
        piece = places[start : start + _CHUNK]
        results = await asyncio.gather(
            *(
                channel.basic_publish(
                    left[place].body, routing_key=queue, properties=left[place].properties, mandatory=True
                )
                for place in piece
            ),
            return_exceptions=True,
        )
        broken: list[BaseException] = []
        for place, result in zip(piece, results, strict=True):
            if not isinstance(result, BaseException):
                del left[place]
            elif refusal(result):
                refused[place] = result
            else:
                broken.append(result)
        if broken:
            # The first cause; that the others were cancelled follows from it.
            raise next((one for one in broken if isinstance(one, Exception)), broken[0])
    return refused


def refusal(error: BaseException) -> str | None:
    """What the broker's no to one message means, on a connection that works: `full`, it may have room later (nack);
    `missing`, there is no such queue (return). None for every other error.
    """
    from aiormq.exceptions import DeliveryError, PublishError

    if isinstance(error, PublishError):
        return "missing"
    return "full" if isinstance(error, DeliveryError) else None


def largest_body(error: BaseException) -> int | None:
    """The broker's limit in bytes, when that is what the error is about."""
    found = _LIMIT.search(one_line(error))
    return int(found[1]) if found else None


def room_for_properties(session: Session) -> int | None:
    """How many bytes the properties of a message may have, since they can't be split; None: any number."""
    tuned: Any = session.connection
    most: int = tuned.transport.connection.connection_tune.frame_max
    return most - 8 - 12 if most else None  # the frame's own bytes, and what comes before them in its payload


async def publish_all(
    link: RabbitLink, queue: str, messages: Sequence[Outgoing], *, patience_s: float
) -> None:
    """Returns when the broker has them all. What was confirmed before an outage is not sent again; a missing queue is
    made again, and one that is full is waited for, `patience_s` at most (0: for ever).

    Raises MessageRefusedError for one that it never takes, and StoreUnavailableError.
    """
    left = dict(enumerate(messages))
    pauses = Backoff(0.2, 5.0)
    end = asyncio.get_running_loop().time() + patience_s if patience_s else None
    said = False
    while left:
        refused = await link.ask(lambda session: publish(session, queue, left))
        if not refused:
            continue
        why = next(iter(refused.values()))
        if refusal(why) == "missing":
            await link.ask(lambda session: ensure_queue(session, queue))
            if not said:
                said = True
                continue
        elif not said:
            said = True
            say_full(link, queue, why)
        if link.stopping or (end is not None and asyncio.get_running_loop().time() >= end):
            raise StoreUnavailableError(
                f"RabbitMQ at {link.address.shown} took {len(messages) - len(left)} of {len(messages)} message(s) for "
                f"{queue!r} and refuses the others ({one_line(why)}): the queue may be full"
            )
        await link.pause(pauses.next_s())


def say_full(link: RabbitLink, queue: str, why: BaseException) -> None:
    """A line in the log."""
    from loguru import logger

    logger.warning(
        "RabbitMQ at {}: the queue {!r} refuses messages ({}): it may be full; trying again",
        link.address.shown, queue, one_line(why),
    )  # fmt: skip
