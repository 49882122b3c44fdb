"""Redis clients made from settings, and what their errors mean.

redis-py sends a command again by itself after a cut connection unless told not to. Ours are told not to: who
calls knows whether a repeat is safe, and how long to wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from netspy.errors import ConfigError, MissingExtraError, StoreUnavailableError
from netspy.settings import Settings, hide_password

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    import redis
    import redis.asyncio

SCHEMES = ("redis://", "rediss://", "unix://")
POOL_SIZE = 4
BACKOFF_FIRST_S = 0.05
BACKOFF_CAP_S = 2.0

Trouble = Literal["away", "full", "config", "type"]


def checked_url(url: str) -> str:
    """`url` when its scheme is one of ours. Raises ConfigError."""
    if url.startswith(SCHEMES):
        return url
    raise ConfigError(
        f"REDIS_URL={hide_password(url)!r} is no Redis address; write redis://host:6379/0, rediss://… for "
        "TLS or "
        "unix:///path/to/socket"
    )


def _options(settings: Settings, retries: int) -> dict[str, Any]:
    from redis.backoff import ExponentialBackoff, NoBackoff

    backoff = ExponentialBackoff(cap=BACKOFF_CAP_S, base=BACKOFF_FIRST_S) if retries else NoBackoff()
    return {
        "backoff": backoff,
        "socket_connect_timeout": settings.REDIS_CONNECT_TIMEOUT,
        # A script answers within milliseconds, so a silent connection is a dead one.
        "socket_timeout": settings.REDIS_CONNECT_TIMEOUT,
        "socket_keepalive": True,
        "health_check_interval": 0,
        "protocol": 2,
        "driver_info": None,
    }


def async_client(
    settings: Settings,
    *,
    url: str | None = None,
    pool_size: int = POOL_SIZE,
    retries: int = 0,
    on_connect: Callable[[Any], Coroutine[Any, Any, None]] | None = None,
) -> redis.asyncio.Redis:
    """An asyncio client with a pool of at most `pool_size` connections, which callers wait for in turn.

    `on_connect` replaces the handshake: it gets each new connection and must await its `on_connect()` first.
    `retries` repeats a failed command, with a capped back-off; leave it 0 where a repeat isn't safe. Nothing
    is sent yet. Raises ConfigError for a wrong URL, MissingExtraError without redis-py.
    """
    try:
        from redis.asyncio import BlockingConnectionPool, Redis
        from redis.asyncio.retry import Retry
    except ImportError:
        raise MissingExtraError("a Redis spider", "redis") from None
    options = _options(settings, retries)
    retry = Retry(options.pop("backoff"), retries)
    address = checked_url(url or settings.REDIS_URL)
    if address.startswith("unix://"):
        options.pop("socket_keepalive")
    try:
        pool = BlockingConnectionPool.from_url(
            address,
            max_connections=pool_size,
            timeout=None,
            retry=retry,
            redis_connect_func=on_connect,
            **options,
        )
    except ValueError as error:
        raise ConfigError(f"REDIS_URL={hide_password(address)!r} can't be read: {error}") from None
    return Redis.from_pool(pool)


def sync_client(
    settings: Settings,
    *,
    url: str | None = None,
    pool_size: int = 1,
    retries: int = 0,
    on_connect: Callable[[Any], None] | None = None,
) -> redis.Redis:
    """A blocking client, as `async_client`."""
    try:
        from redis import BlockingConnectionPool, Redis
        from redis.retry import Retry
    except ImportError:
        raise MissingExtraError("a Redis spider", "redis") from None
    options = _options(settings, retries)
    retry = Retry(options.pop("backoff"), retries)
    address = checked_url(url or settings.REDIS_URL)
    if address.startswith("unix://"):
        options.pop("socket_keepalive")
    try:
        pool = BlockingConnectionPool.from_url(
            address,
            max_connections=pool_size,
            timeout=None,
            retry=retry,
            redis_connect_func=on_connect,
            **options,
        )
    except ValueError as error:
        raise ConfigError(f"REDIS_URL={hide_password(address)!r} can't be read: {error}") from None
    return Redis.from_pool(pool)


_AWAY = (
    "LOADING",
    "READONLY",
    "MASTERDOWN",
    "NOREPLICAS",
    "MISCONF",
    "CLUSTERDOWN",
    "TRYAGAIN",
    "BUSY ",
    "FAILOVER",
)
_CONFIG = (
    "NOAUTH",
    "WRONGPASS",
    "NOPERM",
    "invalid password",
    "invalid username",
    "DB index",
    "without any password",
)


def trouble_of(error: BaseException) -> Trouble | None:
    """What an exception of redis-py means.

    away: try again later; full: memory is at its limit; config: it will not get better by waiting (password,
    database number, rights, not a Redis); type: a key is not what it should be. None: a fault of ours or of
    the script.
    """
    from redis import exceptions as e

    text = str(error)
    if isinstance(
        error, e.AuthenticationError | e.AuthorizationError | e.NoPermissionError | e.InvalidResponse
    ):
        return "config"
    if any(mark in text for mark in _CONFIG):
        return "config"
    if text.startswith(("NETSPYTYPE", "NETSPYLAYOUT")):
        return "type"
    if isinstance(error, e.ConnectionError | e.TimeoutError | OSError):
        return "away"
    if isinstance(error, e.OutOfMemoryError):
        return "full"
    # redis-py takes the first word off the text when it has a class for it.
    if isinstance(error, e.ReadOnlyError | e.MasterDownError | e.ClusterDownError | e.TryAgainError):
        return "away"
    if isinstance(error, e.ResponseError):
        # Inside a script 6.2 puts its own words in front of the error's.
        if "OOM " in text:
            return "full"
        if any(mark in text for mark in _AWAY):
            return "away"
    return None


def one_line(error: BaseException) -> str:
    """The error's text in one line; redis-py's texts carry no password."""
    text = " ".join(str(error).split())
    return text or type(error).__name__


def unavailable(url: str, error: BaseException, waited_s: float) -> StoreUnavailableError:
    """The error for a Redis that didn't answer in time."""
    return StoreUnavailableError(
        f"Redis at {hide_password(url)} did not answer within {waited_s:g} s ({one_line(error)}); "
        "start it, or correct REDIS_URL"
    )


def unusable(url: str, error: BaseException) -> ConfigError:
    """The error for a Redis that refuses us: password, rights, database number, or something that is no
    Redis.
    """
    text = one_line(error)
    if "DB index" in text:
        remedy = "use a database number that the server has, e.g. /0 at the end of REDIS_URL"
    elif "NOPERM" in text or "no permissions" in text:
        remedy = "give the Redis user the rights for its keys, EVALSHA, EVAL and the commands in the scripts"
    elif any(word in text for word in ("NOAUTH", "WRONGPASS", "invalid", "password", "Authentication")):
        remedy = "put the right user and password into REDIS_URL: redis://user:password@host:6379/0"
    else:
        remedy = "check that REDIS_URL names a Redis server"
    return ConfigError(f"Redis at {hide_password(url)} refuses this program ({text}); {remedy}")
