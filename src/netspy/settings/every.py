"""All settings together: their cross-checks, and the names beside them that mean something."""

from __future__ import annotations

from typing import Any, get_type_hints

from netspy.errors import ConfigError
from netspy.settings.ops import OpsSettings


class Settings(OpsSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One spider's settings: a frozen value that is handed to whoever needs it.

    Field names are the documented setting names; see docs/settings.md, which is generated from the declarations in this
    package. Each group of them adds to the one before: run, shared, tasks, download, politeness, items, stores, ops.
    """

    def __post_init__(self) -> None:
        """Cross-checks between settings."""
        if 0 < self.SPIDER_TASK_LEASE < 2 * self.HEARTBEAT_INTERVAL:
            raise ConfigError(
                f"SPIDER_TASK_LEASE={self.SPIDER_TASK_LEASE:g}s is shorter than two heartbeats "
                f"(HEARTBEAT_INTERVAL={self.HEARTBEAT_INTERVAL:g}s), so a healthy node would lose its requests; "
                "make the lease longer, the heartbeat shorter, or the lease 0 to turn it off"
            )
        if self.HEARTBEAT_STALE <= self.HEARTBEAT_INTERVAL:
            raise ConfigError(
                f"HEARTBEAT_STALE={self.HEARTBEAT_STALE:g}s is not longer than HEARTBEAT_INTERVAL="
                f"{self.HEARTBEAT_INTERVAL:g}s, so every node would look dead; make it several heartbeats long"
            )
        if self.RUN_ID and self.RUN_TTL <= self.HEARTBEAT_STALE:
            raise ConfigError(
                f"RUN_TTL={self.RUN_TTL}s is not longer than HEARTBEAT_STALE={self.HEARTBEAT_STALE:g}s, so a run's keys "
                "would be gone before a dead node is noticed; make it hours or days"
            )
        if not self.DEDUP_ERROR_RATE < 1:
            raise ConfigError(f"DEDUP_ERROR_RATE={self.DEDUP_ERROR_RATE:g} must lie between 0 and 1")
        if not self.DEDUP_WARN_FILL_RATE <= 1:
            raise ConfigError(f"DEDUP_WARN_FILL_RATE={self.DEDUP_WARN_FILL_RATE:g} must lie between 0 and 1")
        for name, what in (("REDIS_KEY_PREFIX", self.REDIS_KEY_PREFIX), ("RUN_ID", self.RUN_ID)):
            if "{" in what or "}" in what:
                raise ConfigError(
                    f"{name}={what!r} contains a brace, which Redis Cluster reads as a hash tag; leave braces out"
                )
        if not self.REDIS_KEY_PREFIX:
            raise ConfigError("REDIS_KEY_PREFIX is empty; give the keys a prefix, e.g. 'netspy'")


FIELDS: dict[str, Any] = get_type_hints(Settings, include_extras=True)

# Names that tune another engine's internals. They are accepted, have no effect here, and say so once.
LEGACY = frozenset(
    {
        "SESSION_CACHE_SIZE",
        "SESSION_SHARD_THREADS",
        "CURL_SESSION_SHARD_THREADS",
        "DOWNLOADER_ASYNC",
        "DOWNLOADER_ASYNC_CONCURRENCY",
        "ASYNC_THREADS_PER_LOOP",
        "DONE_CHECK_TIMES",
        "DEDUP_TO_MD5",
        "ANTIBOT_DETECT",
        "ROBOTS_USER_AGENT",
        "ROBOTS_CACHE_TTL",
        "RESPONSE_CACHE_PATH",
        "RESPONSE_CACHE_EXPIRE",
        "PROXY_POOL",
        "PROXY_EXTRACT_API",
        "PROXY_MAX_USE_TIMES",
        "PROXY_MIN_INTERVAL",
        "PROXY_WAIT_TIMEOUT",
        "PROXY_BAN_SECONDS",
        "PROXY_BAN_MAX_SECONDS",
        "PROXY_SUSPECT_BAN_AFTER",
        "PROXY_ALLOW_DIRECT",
        "USER_POOL_WAIT_TIMEOUT",
        "USER_POOL_ALLOW_ANONYMOUS",
        "WEBDRIVER",
        "METRICS_ENABLE",
        "WARNING_FEISHU_WEBHOOK",
        "WARNING_DINGTALK_WEBHOOK",
        "WARNING_DINGTALK_SECRET",
        "WARNING_WECHAT_WEBHOOK",
        "WARNING_EMAIL",
        "WARNING_FAILED_RATE",
        "WARNING_MIN_REQUESTS",
        "WARNING_FAILED_COUNT",
        "WARNING_STALL_SECONDS",
    }
)

# Switches whose feature is not built yet. Turning one on is refused: a crawl that silently ignores robots.txt or
# goes out without its proxy does harm.
NOT_BUILT = {
    "PROXY_ENABLE": "proxy pools are not built yet; give single requests a `proxy=`",
    "ROBOTS_OBEY": "robots.txt rules are not built yet; filter the URLs in your spider",
    "GLOBAL_THROTTLE": "the cluster-wide rate limit is not built yet; divide DOWNLOAD_DELAY by the number of nodes",
    "RESPONSE_CACHE_ENABLE": "the response cache is not built yet",
    "METRICS_PROMETHEUS_PORT": "the Prometheus exporter is not built yet; read the summary line or `netspy status`",
}
