"""Redis clients made from settings; what their errors mean is in `trouble`.

redis-py sends a command again by itself after a cut connection unless told not to. Ours are told not to: who
calls knows whether a repeat is safe, and how long to wait. So each role has its own patience:

    loop      AsyncLink waits and repeats, for ever or REDIS_OUTAGE_TIMEOUT; what it sends is safe to repeat
    keeper    tries twice (a connection may merely have been cut), then leaves it to its next beat
    commands  CLI_PATIENCE_S for the first answer, then nothing is repeated: what they print must be true

A new connection resolves the host's name anew, and asks sentinels or cluster nodes anew where the server is. In
Redis Cluster a client is tied to one slot, that of `key`: all keys of a job are in it.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from netspy.errors import MissingExtraError
from netspy.redisio.address import Address, read_address
from netspy.redisio.location import ServerLocation
from netspy.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import redis
    import redis.asyncio

POOL_SIZE = 4
CLI_PATIENCE_S = 1.0


def _options_of(settings: Settings, url: str | None, key: str) -> tuple[Address, Any, dict[str, Any]]:
    """The address, where it leads, and the options of a connection without retry and greeting."""
    address = read_address(url or settings.REDIS_URL)
    slot = -1
    if address.kind == "cluster":
        from redis.crc import key_slot

        if not key:
            raise ValueError("in Redis Cluster a client needs a key of the job")
        slot = key_slot(key.encode())
    options: dict[str, Any] = {
        "username": address.username,
        "password": address.password,
        "db": address.db,
        "socket_connect_timeout": settings.REDIS_CONNECT_TIMEOUT,
        # A script answers within milliseconds, so a silent connection is a dead one.
        "socket_timeout": settings.REDIS_CONNECT_TIMEOUT,
        "health_check_interval": 0,
        "protocol": 2,
        **_nameless(),
        **address.options,
    }
    if address.kind == "unix":
        options["path"] = address.path
    else:
        options["host"], options["port"] = address.hosts[0]
        options["socket_keepalive"] = True
    return address, ServerLocation(address, slot), options


@cache
def _nameless() -> dict[str, Any]:
    """Options with which redis-py doesn't introduce itself on each connection, which a least-rights user may not."""
    from inspect import signature

    from redis.connection import AbstractConnection

    known = signature(AbstractConnection.__init__).parameters
    return dict.fromkeys(("driver_info",) if "driver_info" in known else ("lib_name", "lib_version"))


def async_client(
    settings: Settings,
    *,
    url: str | None = None,
    key: str = "",
    pool_size: int = POOL_SIZE,
    hello: Callable[[Any], Awaitable[None]] | None = None,
) -> redis.asyncio.Redis:
    """An asyncio client with a pool of at most `pool_size` connections, which callers wait for in turn.

    `hello` gets each new connection after its handshake, before any other command is sent on it. Nothing is
    sent yet. Raises ConfigError for a wrong URL, MissingExtraError without redis-py.
    """
    try:
        from redis.asyncio import BlockingConnectionPool, Redis
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff
    except ImportError:
        raise MissingExtraError("a Redis spider", "redis") from None
    address, location, options = _options_of(settings, url, key)
    from netspy.redisio import connections as c

    kind: Any = c.AsyncUnixConnection if address.kind == "unix" else c.AsyncTcpConnection
    options["retry"] = Retry(NoBackoff(), 0)
    pool = BlockingConnectionPool(
        connection_class=c.AsyncTlsConnection if address.tls else kind,
        max_connections=pool_size,
        timeout=None,
        redis_connect_func=c.async_greeting(hello),
        location=location,
        lookup=c.lookup_options(address, options),
        **options,
    )
    return Redis.from_pool(pool)


def sync_client(
    settings: Settings,
    *,
    url: str | None = None,
    key: str = "",
    pool_size: int = 1,
    hello: Callable[[Any], None] | None = None,
) -> redis.Redis:
    """A blocking client, as `async_client`."""
    try:
        from redis import BlockingConnectionPool, Redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry
    except ImportError:
        raise MissingExtraError("a Redis spider", "redis") from None
    address, location, options = _options_of(settings, url, key)
    from netspy.redisio import connections as c

    kind: Any = c.UnixConnection if address.kind == "unix" else c.TcpConnection
    options["retry"] = Retry(NoBackoff(), 0)
    pool = BlockingConnectionPool(  # type: ignore[no-untyped-call]
        connection_class=c.TlsConnection if address.tls else kind,
        max_connections=pool_size,
        timeout=None,
        redis_connect_func=c.greeting(hello),
        location=location,
        lookup=c.lookup_options(address, options),
        **options,
    )
    return Redis.from_pool(pool)


def moved(client: redis.Redis) -> bool:
    """With Sentinel: whether the sentinels agree on another master than the one that `client` talks to.

    All connections of this process to that service are replaced then, before their next use. A master that is
    replaced in good order goes on taking writes for some ten seconds, and loses them; it says nothing of it. Raises
    what a call raises.
    """
    pool = client.connection_pool
    location: ServerLocation = pool.connection_kwargs["location"]
    if location.address.kind != "sentinel":
        return False
    connection: Any = pool.get_connection()
    try:
        there = connection.agreed()
        if there is None or there == (connection.host, connection.port):
            return False
    finally:
        pool.release(connection)
    location.elsewhere()
    return True
