"""`get_redis()`: a client of the Redis that the settings name, for a spider's own keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from netspy.db.sqldb import project_settings
from netspy.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    import redis


def get_redis(url: str | None = None, **options: Any) -> redis.Redis:
    """A redis-py client, text in and out unless `decode_responses=False`. `url`: in the place of REDIS_URL; `options`:
    redis-py's own. Raises ConfigError for a wrong URL, MissingExtraError without redis-py. Connects at the first command.
    """
    try:
        import redis
    except ImportError:
        raise MissingExtraError("get_redis()", "redis") from None
    address = url or project_settings().REDIS_URL
    if "://" not in address:
        raise ConfigError(
            f"REDIS_URL={address!r} has no address of its own: the server lives with the crawl; give get_redis(url)"
        )
    client: redis.Redis = redis.Redis.from_url(address, **{"decode_responses": True, **options})
    return client
