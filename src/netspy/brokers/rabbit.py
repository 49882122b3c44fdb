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
from netspy.errors import ConfigError, MissingExtraError, StoreLostError, StoreUnavailableError
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
    """One connection with what belongs to it: `work` for queues and deliveries, `publish` with confirms.

    `number` tells sessions apart: a delivery can be acked only in the session that brought it.
    """

    def __init__(
        self, number: int, connection: AbstractConnection, work: AbstractChannel, publish: AbstractChannel
    ) -> None:
        self.number = number
        self.connection = connection
        self.work = work
        self.publish = publish
        self.broken = False

    async def close(self) -> None:
        """Never raises; takes at most CLOSE_S."""
        self.broken = True
        with suppress(Exception):
            await unbroken(asyncio.wait_for(self.connection.close(), CLOSE_S))


class RabbitLink:
    """Calls on one broker from one event loop.

    `set_up` is called with each new session before anything else is done with it: it declares and consumes.
    `on_outage(True, 0)` is called when the broker went away, `on_outage(False, seconds)` when it is back.
    """

    def __init__(
        self,
        address: RabbitAddress,
        *,
        start_timeout_s: float,
        outage_timeout_s: float = 0.0,
        set_up: Callable[[Session], Awaitable[None]] | None = None,
        on_outage: Callable[[bool, float], None] | None = None,
    ) -> None:
        """`outage_timeout_s`: how long a call waits for a broker that went away; 0 = for ever."""
        self.address = address
        self._start_timeout_s = start_timeout_s
        self._outage_timeout_s = outage_timeout_s
        self._set_up = set_up
        self._session: Session | None = None
        self._connecting = asyncio.Lock()
        self._count = 0
        self._outage = OutageWatch(on_outage)
        self._stop = asyncio.Event()
        self._calls: set[asyncio.Timeout] = set()
        self._closed = False

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
                call.reschedule(min(end, call.when() or end))

    async def ask(self, send: Callable[[Session], Awaitable[T]], *, timeout_s: float | None = None) -> T:
        """What `send` gives; it is called again after an outage, so it must be safe to repeat.

        Raises StoreUnavailableError when waiting is over, StoreLostError after `close`, ConfigError when the
        broker refuses what we want.
        """
        limit = self._outage_timeout_s if timeout_s is None else timeout_s
        tries = self._outage.begin(limit or math.inf)
        while True:
            if self._closed:
                raise StoreLostError(f"the connection to RabbitMQ at {self.address.shown} is closed")
            session: Session | None = None
            try:
                session = await unbroken(self._get())
                answer = await self._within_limit(unbroken(send(session)))
            except Exception as error:
                trouble = error_kind(error)
                if trouble is None and session is not None and session.broken:
                    trouble = "away"  # the client's words for it vary
                if session is not None:
                    await self._drop(session)
                if trouble == "config":
                    raise self._unusable(error) from None
                if trouble is None:
                    raise
                await self._wait(error, tries)
            else:
                self._outage.answered()
                return answer

    async def _within_limit(self, call: Awaitable[T]) -> T:
        async with asyncio.timeout(STOPPING_CALL_S if self._stop.is_set() else CALL_S) as limit:
            self._calls.add(limit)
            try:
                return await call
            finally:
                self._calls.discard(limit)

    async def _get(self) -> Session:
        async with self._connecting:
            if (session := self.session) is None:
                session = await self._connect()
            return session

    async def _connect(self) -> Session:
        aio_pika = library()
        # Not aio_pika.connect(): a connection that it doesn't bring about is closed by nobody.
        connection = aio_pika.Connection(aio_pika.connection.make_url(self.address.url))
        self._count += 1
        try:
            await asyncio.wait_for(connection.connect(timeout=CONNECT_S), CONNECT_S + 1)
            work = await asyncio.wait_for(connection.channel(publisher_confirms=False), CALL_S)
            publish = await asyncio.wait_for(connection.channel(on_return_raises=True), CALL_S)
            session = Session(self._count, connection, work, publish)
            for part in (connection, work, publish):
                part.close_callbacks.add(lambda *_args: setattr(session, "broken", True))
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
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), wait_s)

    def _unusable(self, error: Exception) -> ConfigError:
        text = one_line(error)
        if isinstance(error, ConfigError):
            return error
        if "ACCESS_REFUSED" in text or "auth" in text.lower():
            remedy = "put the right user and password into its address, and give the user the rights it needs"
        elif "inequivalent" in text:
            remedy = "the queue was made with other properties: name another queue, or delete it"
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


def error_kind(error: BaseException) -> str | None:
    """What an exception of the client means.

    away: try again later, on a new connection; config: it will not get better by waiting. None: a fault of ours.
    """
    from aiormq import exceptions as e

    if isinstance(error, ConfigError):
        return "config"
    text = one_line(error)
    # The delivery acknowledgement timeout and a deleted queue are mended by a new session, which declares it again.
    if isinstance(error, e.ChannelPreconditionFailed):
        return "away" if "timeout" in text or "unknown delivery tag" in text else "config"
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
