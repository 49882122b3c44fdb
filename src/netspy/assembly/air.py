"""The parts of an AirSpider: everything in memory, and the files it resumes from."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from netspy.assembly import Built, resume
from netspy.assembly.contract import AnySpider, StoreParts
from netspy.engine.control import Ended
from netspy.engine.node import Node
from netspy.errors import ConfigError, InvalidUrlError
from netspy.frontier.dedup import MemoryItemFilter
from netspy.frontier.memory.frontier import MemoryFrontier
from netspy.messages.callbacks import callback_problem
from netspy.messages.request import Request
from netspy.messages.urls import compile_ignore
from netspy.observe.alerts import Alerts
from netspy.policy.failed_record import read_failed
from netspy.settings import Settings


def build_air(
    built: Built, spider: AnySpider, settings: Settings, alerts: Alerts, filter_items: bool
) -> StoreParts:
    """Raises ConfigError for a file that can't be written and for a DEDUP_FILTER that needs Redis."""

    def trouble(error: OSError) -> None:
        spider.logger.error(
            "failed requests can't be listed in {}: {}; trying again", failed.path, error.strerror
        )

    wanted = settings.FAILED_REQUEST_PATH
    failed = resume.FailedFile(wanted, spider.job_name, trouble)
    path = failed.path
    if path != Path(wanted):
        spider.logger.info("{} holds the records of another spider; this one's go to {}", wanted, path)
    failed.check()
    built.closers.append(failed.close)
    frontier = MemoryFrontier(on_failed=failed.append, **memory_dedup(settings, alerts))
    resumed_dump = _take_up(spider, frontier, path, settings)
    # `netspy retry` crawls what failed, and nothing else.
    only_failed = resumed_dump is not None and resumed_dump.seeded is None and hasattr(spider, "retry_wanted")
    seeded = resumed_dump is not None and (bool(resumed_dump.seeded) or only_failed)

    def after(node: Node, _ended: Ended) -> None:
        failed.close()
        for record in failed.unwritten:
            spider.logger.error("failed and not listed: {}", read_failed(record).url)
        keep_what_is_left(spider, frontier, failed, settings, node=node, taken=resumed_dump)

    built.keep = after
    item_filter = MemoryItemFilter() if filter_items else None
    return StoreParts(frontier, None, item_filter, seeded)


def memory_dedup(settings: Settings, alerts: Alerts) -> dict[str, Any]:
    """How an AirSpider deduplicates: exactly, unless a layered Bloom filter or a class is asked for."""
    kind = settings.DEDUP_FILTER
    if kind in {"auto", "lite"}:
        return {}
    if kind in {"redis", "redis-bloom", "redis-set"}:
        raise ConfigError(
            f"DEDUP_FILTER={kind!r} is for spiders on Redis; an AirSpider deduplicates in its own memory: "
            "leave the setting out, or change the base class to Spider"
        )
    from netspy.frontier.dedup import IN_PROCESS, in_process_filter, load_filter

    if kind not in IN_PROCESS:
        load_filter(settings)  # raises for a name that is nothing at all
        raise ConfigError(
            f"DEDUP_FILTER={kind!r}: a filter class is for spiders on Redis; an AirSpider takes auto, lite, memory or bloom"
        )

    def report(rate: float) -> None:
        alerts.raise_alert(fill_kind(rate), fill_message(rate, settings))

    return {"dedup": in_process_filter(settings, on_fill=report)}


def fill_kind(rate: float) -> str:
    """Filling and full are two alerts: the second must not be held back because the first has just been sent."""
    return "dedup_full" if rate >= 1 else "dedup_fill"


def fill_message(rate: float, settings: Settings) -> str:
    """What to tell of a filling Bloom filter."""
    text = f"the dedup filter holds {rate:.0%} of its capacity"
    if rate >= 1:
        return f"{text}: more and more new URLs are taken for known ones; raise DEDUP_INITIAL_CAPACITY or use redis-set"
    return f"{text} (DEDUP_INITIAL_CAPACITY={settings.DEDUP_INITIAL_CAPACITY}, {settings.DEDUP_MAX_LAYERS} layers)"


def _take_up(
    spider: AnySpider, frontier: MemoryFrontier, path: Path, settings: Settings
) -> resume.Resumed | None:
    if not settings.RETRY_FAILED_ON_START:
        if resume.has_unfinished(path):
            aside = resume.set_aside(path)
            spider.logger.info(
                "the last run left unfinished requests, kept as {}; to go on from a stop, start with RETRY_FAILED_ON_START=True",
                aside,
            )
        return None
    dump = resume.claim_dump(path, getattr(spider, "retry_wanted", None))
    if dump is None:
        return None
    frontier.restore(dump.requests, seen=[*dump.seen.chunks, *_known(dump, settings)])
    if dump.requests or dump.seeded is not None:
        spider.logger.info("going on with {} request(s) of the last run from {}", len(dump.requests), path)
    if dump.seen.damaged:
        spider.logger.warning(
            "{} is damaged, or of another version of netspy: what the last run has crawled may be crawled again",
            resume.seen_path(path),
        )
    if dump.unreadable:
        spider.logger.warning(
            "{} line(s) of {} can't be read as requests and are kept in {}",
            dump.unreadable,
            path,
            resume.unreadable_path(path),
        )
    return dump


def _known(dump: resume.Resumed, settings: Settings) -> list[bytes]:
    """The fingerprints of failed requests that come with no `.seen`: a seed of the same URL would crawl it twice."""
    if dump.seeded is not None:
        return []
    ignore = compile_ignore(settings.URL_IGNORE_PARAMS) if settings.URL_IGNORE_PARAMS else None
    known = []
    for request, _ in dump.requests:
        with suppress(InvalidUrlError):
            known += [request.digest(ignore)] if request.filter_repeat else []
    return known


def keep_what_is_left(
    spider: AnySpider,
    frontier: MemoryFrontier,
    failed: resume.FailedFile,
    settings: Settings,
    *,
    node: Node,
    taken: resume.Resumed | None,
) -> None:
    """At the end: write down what is unfinished, and only then let go of the dump this run went on from."""
    left: list[tuple[Request, float]] = list(frontier.snapshot())
    unfinished = bool(left) or node.seeding_unfinished
    log = spider.logger
    if unfinished and settings.DUMP_UNFINISHED_ON_EXIT:
        bound = [r for r, _ in left if callback_problem(r.callback, spider) is not None]
        try:
            with failed.settled() as path:
                kept, lost = resume.dump(
                    path, left, frontier.seen(), seeded=not node.seeding_unfinished, spider=spider.job_name
                )
        except OSError as error:
            log.error(
                "{} unfinished request(s) could not be kept in {}: {}; a file that this run went on from stays",
                len(left),
                failed.path,
                error.strerror,
            )
            return
        log.info("{} unfinished request(s) kept in {}; go on with RETRY_FAILED_ON_START=True", kept, path)
        if lost:
            log.warning("{} unfinished request(s) hold values that can't be written down and are lost", lost)
        if bound:
            log.warning(
                "{} unfinished request(s) have callbacks that can't be found again by name (lambdas); they will fail",
                len(bound),
            )
    elif unfinished:
        log.warning("{} unfinished request(s) are dropped, as DUMP_UNFINISHED_ON_EXIT is off", len(left))
    if taken is not None and (not unfinished or settings.DUMP_UNFINISHED_ON_EXIT):
        for file in taken.files:
            if file.name.endswith(".replaying") or not unfinished:
                file.unlink(missing_ok=True)
