"""What the errors of Redis clients mean, and what to say of them."""

from __future__ import annotations

from typing import Literal

from netspy.errors import ConfigError, StoreUnavailableError
from netspy.redisio.location import WrongLocationError
from netspy.settings import hide_password

ErrorKind = Literal["away", "full", "config", "type"]

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
_RIGHTS_IN_SCRIPTS = ("user executing the script", "ACL failure in script")
"""What Redis says, up to 7.0 and later, when the user may not do what a script does."""

_CONFIG = (
    "NOAUTH",
    "WRONGPASS",
    "NOPERM",
    *_RIGHTS_IN_SCRIPTS,
    "invalid password",
    "invalid username",
    "DB index",
    "without any password",
)


def error_kind(error: BaseException) -> ErrorKind | None:
    """What an exception of redis-py means.

    away: try again later; full: memory is at its limit; config: it will not get better by waiting (password, database
    number, rights, not a Redis); type: a key is not what it should be. None: a fault of ours or of the script.
    """
    from redis import exceptions as e

    text = str(error)
    if isinstance(
        error, e.AuthenticationError | e.AuthorizationError | e.NoPermissionError | e.InvalidResponse
    ):
        return "config"
    if any(mark in text for mark in _CONFIG) or is_tls_refusal(text) or _wrong_place(error) is not None:
        return "config"
    # Where several nodes are expected, redirections are followed and don't come here.
    if isinstance(error, e.AskError | e.ClusterCrossSlotError):
        return "config"
    if text.startswith(("NETSPYTYPE", "NETSPYLAYOUT")):
        return "type"
    if isinstance(error, e.ConnectionError | e.TimeoutError | OSError):
        return "away"
    # What uvloop says of a write on a connection that the other side has closed a moment before.
    if isinstance(error, RuntimeError) and text.endswith("the handler is closed"):
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


_TLS_REFUSALS = (
    "CERTIFICATE_VERIFY_FAILED",
    "CERTIFICATE_REQUIRED",
    "CERTIFICATE_EXPIRED",
    "CERTIFICATE_REVOKED",
    "CERTIFICATE_UNKNOWN",
    "BAD_CERTIFICATE",
    "UNSUPPORTED_CERTIFICATE",
    "UNKNOWN_CA",
    "ACCESS_DENIED",
    "WRONG_VERSION_NUMBER",
    "HANDSHAKE_FAILURE",
    "UNSUPPORTED_PROTOCOL",
    "PROTOCOL_VERSION",
    "KEY_VALUES_MISMATCH",
)


def is_tls_refusal(text: str) -> bool:
    """Whether an error says that one side doesn't accept the other's certificate or TLS.

    redis-py keeps no more of it than the text.
    """
    return "SSL" in text and any(mark in text for mark in _TLS_REFUSALS)


def _wrong_place(error: BaseException) -> WrongLocationError | None:
    """The WrongPlaceError that redis-py wrapped."""
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, WrongLocationError):
            return inner
        inner = inner.__cause__
    return None


def one_line(error: BaseException) -> str:
    """The error's text in one line; redis-py's texts carry no password."""
    text = " ".join(str(error).split())
    return text or type(error).__name__


def unavailable(url: str, error: BaseException, waited_s: float) -> StoreUnavailableError:
    """The error for a Redis that didn't answer in time."""
    text = one_line(error)
    remedy = "start it, or correct REDIS_URL"
    if url.startswith("rediss") and "Timeout connecting" in text:
        remedy += " (a port that speaks no TLS is silent, too: then write redis://)"
    return StoreUnavailableError(
        f"Redis at {hide_password(url)} did not answer within {waited_s:g} s ({text}); {remedy}"
    )


def unusable(url: str, error: BaseException) -> ConfigError:
    """The error for a Redis that refuses us: password, rights, database number, certificate, or something that
    is no Redis.
    """
    text = one_line(error)
    if (wrong := _wrong_place(error)) is not None:
        return ConfigError(f"Redis at {hide_password(url)} can't be found: {one_line(wrong)}")
    if is_tls_refusal(text):
        return ConfigError(
            f"Redis at {hide_password(url)} can't be reached over TLS ({text}); {_tls_remedy(text)}"
        )
    if "DB index" in text:
        remedy = "use a database number that the server has, e.g. /0 at the end of REDIS_URL"
    elif any(mark in text for mark in ("NOPERM", "no permissions", *_RIGHTS_IN_SCRIPTS)):
        remedy = (
            "give the Redis user the rights for its keys, EVALSHA, EVAL and the commands in the scripts "
            "(docs/redis-topologies.md has the rule)"
        )
    elif any(word in text for word in ("NOAUTH", "WRONGPASS", "invalid", "password", "Authentication")):
        remedy = (
            "put the right user and password into REDIS_URL: redis://user:password@host:6379/0, percent-encoded "
            "where they hold characters such as # / @ (# is %23)"
        )
    elif _is_redirection(error):
        remedy = "it is a node of a Redis Cluster: write redis+cluster://host:port,host:port"
    else:
        remedy = "check that REDIS_URL names a Redis server"
    return ConfigError(f"Redis at {hide_password(url)} refuses this program ({text}); {remedy}")


def _is_redirection(error: BaseException) -> bool:
    from redis import exceptions as e

    return isinstance(error, e.AskError | e.ClusterCrossSlotError)


def _tls_remedy(text: str) -> str:
    if "WRONG_VERSION_NUMBER" in text:
        return "this port speaks no TLS: write redis:// instead of rediss://, or name its TLS port"
    if "Hostname mismatch" in text or "IP address mismatch" in text:
        return (
            "connect by a name that the certificate holds, or, where its names can't be right, add "
            "ssl_check_hostname=false to the query of REDIS_URL"
        )
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return (
            "name the CA that signed its certificate: …?ssl_ca_certs=/path/to/ca.pem at the end of REDIS_URL"
        )
    return (
        "the server wants a certificate of this program that it accepts: "
        "…?ssl_certfile=/path/to/client.pem&ssl_keyfile=/path/to/client.key"
    )


def foreign_lock(key: str, value: str) -> str:
    """What to say of a lock whose value netspy did not write."""
    other = ", as the other package of this name does" if value == "1" else ""
    return (
        f"Redis key {key} has the value {value[:40]!r}, which netspy did not write{other}; clear the job with "
        "`netspy reset`, or choose another redis_key or REDIS_KEY_PREFIX"
    )
