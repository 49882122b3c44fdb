"""Connections that find their server anew each time they connect, and notice when it is no longer the one.

Importing this imports redis-py. The classes come in pairs, blocking and asyncio; what they decide is in `location`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import redis.asyncio.connection as aio
import redis.connection as sync
from redis import exceptions
from redis.exceptions import NoPermissionError, RedisError, ResponseError

from netspy.redisio.errors import is_tls_refusal
from netspy.redisio.location import Ask, Host, ServerLocation

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from netspy.redisio.address import Address

LOOKUP_TIMEOUT_S = 2.0
"""How long one sentinel or cluster node may take to say where the server is; then the next one is asked."""

_REFUSALS = (exceptions.AuthenticationError, exceptions.AuthorizationError, NoPermissionError)
_NO_SENTINEL = "answers, but is no sentinel; redis+sentinel:// wants the sentinels' ports (26379), redis:// is for one server"
_NO_CLUSTER = "answers, but is in no cluster; write redis:// for a single server"


class Lookup:
    """One round of asking: keeps what was answered, and says what came of it."""

    def __init__(self, location: ServerLocation) -> None:
        self._location = location
        self._told: list[tuple[Host, str]] = []
        self._unknowing: list[Host] = []
        self._refused = ""

    def answered(self, ask: Ask, reply: Any) -> Host | None:
        """Where the server is, if this one knows."""
        found = self._location.read(ask.host, reply)
        if found is None:
            self._unknowing.append(ask.host)
        return found

    def failed(self, ask: Ask, error: Exception) -> None:
        """`ask` got no answer but this error."""
        host, port = ask.host
        text = " ".join(str(error).split()) or type(error).__name__
        self._told.append((ask.host, text))
        sentinel = self._location.address.kind == "sentinel"
        if isinstance(error, _REFUSALS):
            whom, names = (
                ("sentinel", "sentinel_password=… into its query") if sentinel else ("node", "user:password@")
            )
            self._refused = (
                f"the {whom} {host}:{port} refuses this program ({text}); put {names} into REDIS_URL"
            )
        elif is_tls_refusal(text):
            self._refused = f"{host}:{port}: {text}"
        elif isinstance(error, ResponseError) and (
            "unknown command" in text or "cluster support disabled" in text
        ):
            self._refused = f"{host}:{port} {_NO_SENTINEL if sentinel else _NO_CLUSTER}"

    def over(self) -> Exception:
        """The error to raise when nobody knew."""
        outcome = self._location.nowhere(self._told, self._unknowing, self._refused)
        return exceptions.ConnectionError(outcome) if isinstance(outcome, str) else outcome


def lookup_options(address: Address, options: dict[str, Any]) -> dict[str, Any]:
    """Connection options for those who are asked, from those for the server."""
    kept = {
        name: value
        for name, value in options.items()
        if name.startswith("ssl_") or name in {"protocol", "retry"}
    }
    if address.kind == "sentinel":
        kept["username"], kept["password"] = address.sentinel_username, address.sentinel_password
    else:
        kept["username"], kept["password"] = address.username, address.password
    for name in ("socket_connect_timeout", "socket_timeout"):
        kept[name] = min(LOOKUP_TIMEOUT_S, options[name])
    return kept


class _HeardTls(sync.SSLConnection):
    """Blocking TLS, of which a refusal is heard.

    In TLS 1.3 (RFC 8446, 4.4.2.4) a server judges the client's certificate after the client's side of the handshake is over,
    says why it refuses it, and hangs up. The greeting's first write may fail by then, with the reason still unread.
    """

    _reading = False

    def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        """As in redis-py. Raises ConnectionError with the server's reason where it gave one."""
        if check_health or self._sock is None:
            super().send_packed_command(command, check_health)  # type: ignore[no-untyped-call]
            return
        self._reading = True
        try:
            super().send_packed_command(command, check_health)
        except BaseException as error:
            told = self._last_words() if isinstance(error, exceptions.ConnectionError) else ""
            self._reading = False
            self.disconnect()
            if told:
                raise exceptions.ConnectionError(told) from error
            raise
        finally:
            self._reading = False

    def disconnect(self, *args: Any) -> None:
        """As in redis-py, but not before the reason is read."""
        if not self._reading:
            super().disconnect(*args)  # type: ignore[no-untyped-call]

    def _last_words(self) -> str:
        sock: Any = self._sock
        try:
            sock.settimeout(0.1)
            sock.recv(1)
        except OSError as error:
            text = str(error)
            return text if is_tls_refusal(text) else ""
        return ""


class _Blocking:
    """What the blocking connections have in common; mixed into redis-py's classes."""

    if TYPE_CHECKING:
        host: str
        port: int
        _sock: Any

        def disconnect(self, *args: Any) -> None: ...
        def send_command(self, *args: Any) -> None: ...

    def __init__(self, *, location: ServerLocation, lookup: dict[str, Any], **options: Any) -> None:
        self._location = location
        self._lookup = lookup
        self._seen = -1
        super().__init__(**options)

    def connect(self) -> None:
        if self._sock is not None and self._seen != self._location.generation:
            self.disconnect()
        super().connect()  # type: ignore[misc]

    def _connect(self) -> Any:
        self._seen = self._location.generation
        if not self._location.fixed:
            self.host, self.port = self._location.take_hint() or self._find()
        return super()._connect()  # type: ignore[misc]

    def _find(self) -> Host:
        lookup = Lookup(self._location)
        for ask in self._location.asks():
            try:
                found = lookup.answered(ask, self._reply_to(ask))
            except (RedisError, OSError) as error:
                lookup.failed(ask, error)
            else:
                if found is not None:
                    return found
        raise lookup.over()

    def _reply_to(self, ask: Ask) -> Any:
        host, port = ask.host
        kind: Any = _HeardTls if self._location.address.tls else sync.Connection
        other = kind(host=host, port=port, **self._lookup)
        try:
            other.connect()
            other.send_command(*ask.command)
            return other.read_response()
        finally:
            other.disconnect()

    def agreed(self) -> Host | None:
        """The master that more than half of the sentinels name; None when they don't agree, or don't answer.

        Right after a fail-over some still tell of the old one.
        """
        votes: Counter[Host] = Counter()
        for ask in self._location.asks():
            try:
                found = self._location.read(ask.host, self._reply_to(ask))
            except (RedisError, OSError):
                continue
            if found is not None:
                votes[found] += 1
                if votes[found] * 2 > len(self._location.address.hosts):
                    return found
        return None

    def read_response(self, *args: Any, **options: Any) -> Any:
        try:
            return super().read_response(*args, **options)  # type: ignore[misc]
        except ResponseError as error:
            why = self._location.moved_on(error, None if self._location.fixed else (self.host, self.port))
            if why is None:
                raise
            self.disconnect()
            raise exceptions.ConnectionError(why) from error

    def check_role(self) -> None:
        """With Sentinel: that this is a master. Sentinels may still, or again, tell of an old one."""
        if self._location.address.kind != "sentinel":
            return
        try:
            self.send_command("ROLE")
            role = self.read_response()
        except NoPermissionError:
            return
        if self._location.is_replica(role):
            self.disconnect()
            raise exceptions.ConnectionError(
                f"{self.host}:{self.port} is a replica, not yet or no longer the master"
            )


class TcpConnection(_Blocking, sync.Connection):
    """Blocking, over TCP."""


class TlsConnection(_Blocking, _HeardTls):
    """Blocking, over TLS."""


class UnixConnection(_Blocking, sync.UnixDomainSocketConnection):
    """Blocking, over a unix socket."""


class _Asyncio:
    """What the asyncio connections have in common; mixed into redis-py's classes."""

    if TYPE_CHECKING:
        host: str
        port: int
        is_connected: bool

        async def disconnect(self, *args: Any, **options: Any) -> None: ...
        async def send_command(self, *args: Any) -> None: ...

    def __init__(self, *, location: ServerLocation, lookup: dict[str, Any], **options: Any) -> None:
        self._location = location
        self._lookup = lookup
        self._seen = -1
        super().__init__(**options)

    async def connect(self) -> None:
        if self.is_connected and self._seen != self._location.generation:
            await self.disconnect(nowait=True)
        await super().connect()  # type: ignore[misc]

    async def _connect(self) -> None:
        self._seen = self._location.generation
        if not self._location.fixed:
            self.host, self.port = self._location.take_hint() or await self._find()
        await super()._connect()  # type: ignore[misc]

    async def _find(self) -> Host:
        lookup = Lookup(self._location)
        kind: Any = aio.SSLConnection if self._location.address.tls else aio.Connection
        for ask in self._location.asks():
            host, port = ask.host
            other = kind(host=host, port=port, **self._lookup)
            try:
                await other.connect()
                await other.send_command(*ask.command)
                found = lookup.answered(ask, await other.read_response())
            except (RedisError, OSError) as error:
                lookup.failed(ask, error)
            else:
                if found is not None:
                    return found
            finally:
                await other.disconnect(nowait=True)
        raise lookup.over()

    async def read_response(self, *args: Any, **options: Any) -> Any:
        try:
            return await super().read_response(*args, **options)  # type: ignore[misc]
        except ResponseError as error:
            why = self._location.moved_on(error, None if self._location.fixed else (self.host, self.port))
            if why is None:
                raise
            await self.disconnect(nowait=True)
            raise exceptions.ConnectionError(why) from error

    async def check_role(self) -> None:
        """With Sentinel: that this is a master. Sentinels may still, or again, tell of an old one."""
        if self._location.address.kind != "sentinel":
            return
        try:
            await self.send_command("ROLE")
            role = await self.read_response()
        except NoPermissionError:
            return
        if self._location.is_replica(role):
            await self.disconnect(nowait=True)
            raise exceptions.ConnectionError(
                f"{self.host}:{self.port} is a replica, not yet or no longer the master"
            )


class AsyncTcpConnection(_Asyncio, aio.Connection):
    """On the event loop, over TCP."""


class AsyncTlsConnection(_Asyncio, aio.SSLConnection):
    """On the event loop, over TLS."""


class AsyncUnixConnection(_Asyncio, aio.UnixDomainSocketConnection):
    """On the event loop, over a unix socket."""


def greeting(hello: Callable[[Any], None] | None) -> Callable[[Any], None]:
    """The handshake of a blocking connection: redis-py's, the role, then `hello`."""

    def greet(connection: Any) -> None:
        connection.on_connect()
        connection.check_role()
        if hello is not None:
            hello(connection)

    return greet


def async_greeting(hello: Callable[[Any], Awaitable[None]] | None) -> Callable[[Any], Awaitable[None]]:
    """The handshake of an asyncio connection."""

    async def greet(connection: Any) -> None:
        await connection.on_connect()
        await connection.check_role()
        if hello is not None:
            await hello(connection)

    return greet


__all__ = [
    "AsyncTcpConnection",
    "AsyncTlsConnection",
    "AsyncUnixConnection",
    "TcpConnection",
    "TlsConnection",
    "UnixConnection",
    "async_greeting",
    "greeting",
    "lookup_options",
]
