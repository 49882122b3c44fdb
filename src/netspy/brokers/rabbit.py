"""A line to RabbitMQ that survives outages: a call waits and repeats until the broker is back.

    amqp://[user:password@]host[:5672][/vhost][?…]      amqps://… over TLS

The client library's own reconnecting is not used: who calls knows whether a repeat is safe, what a lost connection
did to the deliveries in hand, and how long to wait. Everything of one connection is a `Session`; it is given up whole
when any part of it breaks.
"""

from __future__ import annotations

import asyncio
import logging
import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import quote, unquote, urlencode

from netspy.brokers.address import display_url, read_hosts, read_options, read_user, split_query, wrong
from netspy.brokers.amqp_frames import Transport
from netspy.errors import (
    ConfigError,
    MissingExtraError,
    SerializationError,
    StoreLostError,
    StoreUnavailableError,
)
from netspy.policy.outage import OutageWatch, Tries

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from aio_pika.abc import AbstractChannel, AbstractConnection

T = TypeVar("T")

PORT, TLS_PORT = 5672, 5671
CONNECT_S = 5.0
CALL_S = 15.0
"""How long one call may take before its connection counts as dead: an answer comes within milliseconds."""
STOPPING_CALL_S = 3.0
"""The same once waiting was given up: whoever stops has little time."""
HEARTBEAT_S = 15
CLOSE_S = 3.0

_NO_VHOST = "Expected one of ['Connection.OpenOk']"
"""How the client tells of a broker that ends the connection at its last step. A broker that is starting does so, too."""

_LIBRARY = frozenset(
    {"heartbeat", "cafile", "capath", "certfile", "keyfile", "no_verify_ssl", "auth", "connection_timeout"}
)
"""What aiormq reads from the query itself."""


class RabbitAddress(NamedTuple):
    """`url` is what the client library gets; `shown` is for people; `options` are ours, from the query."""

    url: str
    shown: str
    options: dict[str, Any]


def read_rabbit(
    url: str, *, name: str, own: Mapping[str, Callable[[str], Any]] | None = None
) -> RabbitAddress:
    """The address in `url`; `name` is the setting that holds it, `own` our options in its query. Raises ConfigError."""
    place, pairs = split_query(url)
    scheme, mark, rest = place.partition("://")
    if not mark or scheme not in {"amqp", "amqps"}:
        raise wrong(name, url, "is no RabbitMQ address", "write amqp://user:password@host:5672/vhost")
    authority, slash, vhost = rest.partition("/")
    secret, at, host = authority.rpartition("@")
    hosts = read_hosts(name, url, host, TLS_PORT if scheme == "amqps" else PORT)
    if len(hosts) > 1:
        raise wrong(name, url, f"names {len(hosts)} hosts", "name one, or a load balancer in front of them")
    if "/" in vhost:
        raise wrong(name, url, f"names the vhost {vhost!r}", "write a / in a vhost's name as %2F")
    options, library = read_options(name, url, pairs, own or {}, _LIBRARY.__contains__)
    if "heartbeat" not in dict(library):
        library.append(("heartbeat", str(HEARTBEAT_S)))
    user, password = read_user(secret) if at else ("guest", "guest")
    who = f"{quote(user or '', safe='')}:{quote(password or '', safe='')}@"
    where = f"{hosts[0][0]}:{hosts[0][1]}"
    # An empty vhost after a slash is the default one, as in the URLs of most clients and brokers' own pages.
    path = quote(unquote(vhost) if slash and vhost else "/", safe="")
    return RabbitAddress(f"{scheme}://{who}{where}/{path}?{urlencode(library)}", display_url(url), options)


async def unbroken(call: Awaitable[T]) -> T:
    """What a call of the client gives. When its connection breaks, the client cancels what waits for it; here that is a
    ConnectionResetError, so that it isn't taken for the end of the task that waits.
    """
    mine = asyncio.current_task()
    try:
        return await call
    except asyncio.CancelledError:
        if mine is None or mine.cancelling():
            raise
        raise ConnectionResetError("the connection broke") from None


class Session:
    """One connection with its channel.

    `number` tells sessions apart: a delivery can be acked only in the session that brought it. `blocked` is the broker's
    reason while it takes no messages in (a memory or disk alarm).
    """

    def __init__(self, number: int, connection: AbstractConnection, channel: AbstractChannel) -> None:
        self.number = number
        self.connection = connection
        self.channel = channel
        self.broken = False
        self.blocked: str | None = None
        self.unblocked = asyncio.Event()

    def lost(self, *_why: object) -> None:
        """It can't be used any more; who waits for the end of an alarm finds out."""
        self.broken = True
        self.unblocked.set()

    async def close(self) -> None:
        """Never raises; takes at most CLOSE_S."""
        self.lost()
        with suppress(Exception):
            await unbroken(asyncio.wait_for(self.connection.close(), CLOSE_S))


class RabbitLink:
    """Calls on one broker from one event loop, over one connection.

    A link that publishes does nothing else, on a channel with confirms: from a connection that has published RabbitMQ
    reads nothing during an alarm, acks neither. Its calls wait for the end of the alarm.

    `set_up` is called with each new session before anything else is done with it: it declares and consumes.
    """

    def __init__(
        self,
        address: RabbitAddress,
        *,
        start_timeout_s: float,
        outage_timeout_s: float = 0.0,
        set_up: Callable[[Session], Awaitable[None]] | None = None,
        outage: OutageWatch | None = None,
        publishes: bool = False,
    ) -> None:
        """`outage_timeout_s`: how long a call waits for a broker that went away; 0 = for ever. `outage`: who is told; one
        for all links to a broker.
        """
        self.address = address
        self._start_timeout_s = start_timeout_s
        self._outage_timeout_s = outage_timeout_s
        self._set_up = set_up
        self._publishes = publishes
        self._session: Session | None = None
        self._connecting = asyncio.Lock()
        self._count = 0
        self._outage = outage or OutageWatch()
        self._stop = asyncio.Event()
        self._calls: dict[asyncio.Timeout, float | None] = {}  # and when the patience of each is over
        self._closed = False

    @property
    def stopping(self) -> bool:
        """Waiting was given up."""
        return self._stop.is_set()

    async def pause(self, seconds: float) -> None:
        """Wait, unless or until waiting is given up."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), seconds)

    @property
    def session(self) -> Session | None:
        """The live session, if there is one now."""
        return self._session if self._session is not None and not self._session.broken else None

    async def open(self) -> None:
        """The first connection. Raises ConfigError when the broker refuses us, StoreUnavailableError when it doesn't
        answer in `start_timeout_s`, MissingExtraError without aio-pika.
        """
        library()

        async def nothing(_session: Session) -> None:
            """Connecting is all."""

        await self.ask(nothing, timeout_s=self._start_timeout_s or 0.001)

    def give_up_waiting(self) -> None:
        """From now on a call that finds the broker away fails soon, and those that wait fail now."""
        self._stop.set()
        end = asyncio.get_running_loop().time() + STOPPING_CALL_S
        for call in self._calls:
            if not call.expired():
                when = call.when()
                call.reschedule(end if when is None else min(end, when))

    async def ask(self, send: Callable[[Session], Awaitable[T]], *, timeout_s: float | None = None) -> T:
        """What `send` gives; it is called again after an outage, so it must be safe to repeat.

        Raises StoreUnavailableError when waiting is over, StoreLostError after `close`, ConfigError when the
        broker refuses what we want.
        """
        limit = self._outage_timeout_s if timeout_s is None else timeout_s
        tries = self._outage.begin(limit or math.inf)
        over_at = asyncio.get_running_loop().time() + limit if limit else None
        while True:
            if self._closed:
                raise StoreLostError(f"the connection to RabbitMQ at {self.address.shown} is closed")
            session: Session | None = None
            try:
                session = await unbroken(self._get())
                answer = await self._within_limit(session, send, over_at)
            except Exception as error:
                trouble = error_kind(error)
                if session is not None and session.blocked is not None and isinstance(error, TimeoutError):
                    raise StoreUnavailableError(
                        f"RabbitMQ at {self.address.shown} takes no messages in ({session.blocked})"
                    ) from None
                if trouble is None and session is not None and session.broken:
                    trouble = "away"  # the client's words for it vary
                if session is not None:
                    await self._drop(session)
                if trouble == "config":
                    raise self._unusable(error) from None
                if trouble == "message":
                    raise MessageRefusedError(
                        f"RabbitMQ does not take a message: {one_line(error)}"
                    ) from None
                if trouble is None:
                    raise
                await self._wait(error, tries)
            else:
                self._outage.answered()
                return answer

    async def _within_limit(
        self, session: Session, send: Callable[[Session], Awaitable[T]], over_at: float | None
    ) -> T:
        async with asyncio.timeout(STOPPING_CALL_S if self._stop.is_set() else CALL_S) as limit:
            self._calls[limit] = over_at
            try:
                if session.blocked is not None:
                    # Nothing is sent during an alarm: it would be read at its end, however often it was repeated.
                    self._wait_out_the_alarm()
                    await session.unblocked.wait()
                return await unbroken(send(session))
            finally:
                del self._calls[limit]

    def _wait_out_the_alarm(self) -> None:
        """What was published before is read when the alarm is over: until then silence says nothing of the connection."""
        if self._stop.is_set():
            return
        for call, over_at in self._calls.items():
            if not call.expired():
                call.reschedule(over_at)

    def _on_blocked(self, session: Session, why: str | None) -> None:
        before, session.blocked = session.blocked, why
        if why is None:
            session.unblocked.set()
        else:
            session.unblocked.clear()
        if session.broken or (before is None) == (why is None):
            return
        from loguru import logger

        if why is not None:
            logger.warning("RabbitMQ at {} takes no messages in ({}); waiting", self.address.shown, why)
            self._wait_out_the_alarm()
            return
        logger.info("RabbitMQ at {} takes messages in again", self.address.shown)
        if not self._stop.is_set():
            end = asyncio.get_running_loop().time() + CALL_S
            for call in self._calls:
                if not call.expired():
                    call.reschedule(end)

    async def _get(self) -> Session:
        async with self._connecting:
            if (session := self.session) is None:
                session = await self._connect()
            return session

    async def _connect(self) -> Session:
        aio_pika = library()
        # Not aio_pika.connect(): a connection that it doesn't bring about is closed by nobody.
        connection = aio_pika.Connection(aio_pika.connection.make_url(self.address.url))
        session: Session | None = None  # an alarm is told of when something was published

        def on_blocked(why: str | None) -> None:
            if session is not None:
                self._on_blocked(session, why)

        connection.kwargs["transport_factory"] = Transport(on_blocked)
        self._count += 1
        try:
            await asyncio.wait_for(connection.connect(timeout=CONNECT_S), CONNECT_S + 1)
            channel = await asyncio.wait_for(
                connection.channel(publisher_confirms=self._publishes, on_return_raises=self._publishes),
                CALL_S,
            )
            session = Session(self._count, connection, channel)
            for part in (connection, channel):
                part.close_callbacks.add(session.lost)
            if self._set_up is not None:
                await asyncio.wait_for(self._set_up(session), CALL_S)
        except BaseException:
            with suppress(Exception):
                await asyncio.wait_for(connection.close(), CLOSE_S)
            raise
        self._session = session
        return session

    async def _drop(self, session: Session) -> None:
        if self._session is session:
            self._session = None
        await session.close()

    async def _wait(self, error: Exception, tries: Tries) -> None:
        stopping = self._stop.is_set()
        wait_s = self._outage.failed(tries, stopping=stopping)
        if wait_s == "stopping" or (stopping and isinstance(error, TimeoutError)):
            raise StoreUnavailableError(
                f"RabbitMQ at {self.address.shown} is away ({one_line(error)}) and the node is stopping"
            ) from None
        if wait_s == "over":
            if _NO_VHOST in one_line(error):
                raise ConfigError(
                    f"RabbitMQ at {self.address.shown} doesn't open its vhost to this program; name a vhost that exists "
                    "(amqp://user:password@host/vhost, %2F is the vhost /), and give the user rights in it"
                ) from None
            raise StoreUnavailableError(
                f"RabbitMQ at {self.address.shown} did not answer within {tries.limit_s:g} s ({one_line(error)}); "
                "start it, or correct its address"
            ) from None
        if wait_s:
            await self.pause(wait_s)

    def _unusable(self, error: Exception) -> ConfigError:
        text = one_line(error)
        if isinstance(error, ConfigError):
            return error
        if "rabbit_stream_queue" in text:
            remedy = "the queue is a stream, which keeps no word of what is done with; name a classic or a quorum queue"
        elif "in exclusive use" in text or "exclusive access to locked queue" in text:
            remedy = (
                "another program has the queue for itself (exclusive); end that one, or name another queue"
            )
        elif "ACCESS_REFUSED" in text or "auth" in text.lower():
            remedy = "put the right user and password into its address, and give the user the rights it needs"
        else:
            remedy = "check its address"
        return ConfigError(f"RabbitMQ at {self.address.shown} refuses this program ({text}); {remedy}")

    async def close(self) -> None:
        """Disconnect; calls that wait end with StoreLostError. Safe to call twice."""
        self._closed = True
        self._stop.set()
        session, self._session = self._session, None
        if session is not None:
            await session.close()


def library() -> Any:
    """The module aio_pika. Raises MissingExtraError."""
    try:
        import aio_pika
    except ImportError:
        raise MissingExtraError("RabbitMQ", "rabbitmq") from None
    # It logs each broken connection, with traceback; the link tells of outages itself.
    for name in ("aio_pika", "aiormq"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return aio_pika


class MessageRefusedError(SerializationError):
    """RabbitMQ ended the channel or the connection over a message that it doesn't take: it wouldn't take it again."""


async def ensure_queue(session: Session, name: str, arguments: Any = None) -> Any:
    """The queue as it is, or a durable one: an existing one may have any properties. Gives its counts."""
    from aiormq.exceptions import ChannelNotFoundEntity, ChannelPreconditionFailed

    async def declare(**how: Any) -> Any:
        asking = await session.connection.channel(publisher_confirms=False)
        found = (await asking.declare_queue(name, **how)).declaration_result
        await asking.close()
        return found

    try:
        return await declare(passive=True)
    except ChannelNotFoundEntity:
        try:
            return await declare(durable=True, arguments=arguments)
        except ChannelPreconditionFailed:  # somebody has made it in between, in another way
            return await declare(passive=True)


def error_kind(error: BaseException) -> str | None:
    """What an exception of the client means.

    away: try again later, on a new connection; config: it will not get better by waiting; message: what was published
    is refused for good. None: a fault of ours.
    """
    from aiormq import exceptions as e

    if isinstance(error, ConfigError):
        return "config"
    text = one_line(error)
    # The delivery acknowledgement timeout and a deleted queue are mended by a new session, which declares it again.
    if isinstance(error, e.ChannelPreconditionFailed):
        # By how it begins: the rest has names that others gave.
        reason = text.removeprefix("PRECONDITION_FAILED - ")
        if reason.startswith(
            ("delivery acknowledgement on channel", "consumer ack timed out", "unknown delivery tag")
        ):
            return "away"
        return (
            "message"
            if reason.startswith(("message size", "invalid message", "user_id property"))
            else "config"
        )
    if isinstance(error, e.ConnectionFrameError | e.ConnectionSyntaxError):
        return "message"
    if isinstance(error, e.ProbableAuthenticationError | e.AuthenticationError | e.ChannelAccessRefused):
        return "config"
    if isinstance(error, e.ConnectionNotAllowed | e.IncompatibleProtocolError | e.ChannelLockedResource):
        return "config"
    if any(mark in text for mark in ("CERTIFICATE_VERIFY_FAILED", "WRONG_VERSION_NUMBER", "ACCESS_REFUSED")):
        return "config"
    if isinstance(error, e.AMQPError | e.ChannelInvalidStateError | OSError | TimeoutError):
        return "away"
    return None


def one_line(error: BaseException) -> str:
    """The error's text in one line."""
    text = " ".join(str(error).split()) or " ".join(str(part) for part in error.args if part)
    return text[:300] or type(error).__name__
