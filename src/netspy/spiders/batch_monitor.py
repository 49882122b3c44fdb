"""A batch job's master without its spider: for schedulers and services that know the table and the job's name only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from netspy.errors import ConfigError, SpiderError
from netspy.redisio.address import url_of_client
from netspy.spiders.batch import BatchSpider

if TYPE_CHECKING:
    from netspy.observe.summary import RunSummary
    from netspy.tasks.batch_store import BatchStore


class _Master(BatchSpider):
    """The job under its own name. It never crawls: the job's workers do."""

    crawls_itself = False

    @property
    def job_name(self) -> str:
        """The job's name, as its spider class has it."""
        return self.redis_key or type(self).__name__

    def task_requests(self, task: dict[str, Any]) -> Any:
        """Not here."""
        raise SpiderError(
            f"{self.name}: a BatchMonitor crawls nothing; start a worker of the spider (task {task!r:.100})"
        )


class BatchMonitor:
    """The master of the job `ns`, as `start_monitor` of its spider would be.

    `ns`: the job's namespace, `<REDIS_KEY_PREFIX>:<redis_key>`, such as "netspy:CrawlTask". `redis`: a URL, or a redis-py
    client, whose address is taken; None: REDIS_URL. What is None comes from the settings. Times are in seconds,
    `batch_interval` in units of `interval_unit`. Raises ConfigError for a name that is no namespace, and for a client that
    tells no single address.
    """

    def __init__(
        self,
        *,
        store: BatchStore,
        ns: str,
        redis: Any = None,
        batch_interval: float | None = None,
        interval_unit: str | None = None,
        monitor_interval: float | None = None,
        lost_stale: float | None = None,
        push_limit: int | None = None,
    ) -> None:
        prefix, colon, key = ns.removeprefix("{").removesuffix("}").partition(":")
        if not (prefix and colon and key):
            raise ConfigError(
                f"BatchMonitor(ns={ns!r}): give the job's namespace, prefix and name, such as 'netspy:CrawlTask'"
            )
        url = redis if redis is None or isinstance(redis, str) else url_of_client(redis)
        wanted = {
            "REDIS_URL": url,
            "BATCH_INTERVAL": batch_interval,
            "BATCH_INTERVAL_UNIT": interval_unit,
            "BATCH_MONITOR_INTERVAL": monitor_interval,
            "BATCH_LOST_TASK_STALE": lost_stale,
            "BATCH_PUSH_LIMIT": push_limit,
        }
        given: dict[str, Any] = {name: value for name, value in wanted.items() if value is not None}
        self._spider = _Master(redis_key=key, batch_store=store, REDIS_KEY_PREFIX=prefix, **given)
        self._spider.name = key

    def run(self) -> RunSummary:
        """Open batch after batch until stopped. Blocks; ends as `start_monitor` does."""
        return self._spider.start_monitor()

    def run_once(self) -> RunSummary:
        """Bring one batch to its end, if one is open or due. Blocks; ends as `start_monitor(once=True)` does."""
        return self._spider.start_monitor(once=True)

    def stop(self) -> None:
        """Give the lock up and return from `run`. From any thread."""
        self._spider.stop()
