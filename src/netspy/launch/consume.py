"""A consumer as a process: event loop, signals, how it ended, its summary. See `consumer`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from netspy.brokers.address import display_url
from netspy.engine.consume import Clean, Consumer
from netspy.engine.env import Env
from netspy.engine.node import force_exit
from netspy.errors import ConfigError
from netspy.launch.loops import loop_factory
from netspy.launch.signals import install_stop_handlers
from netspy.launch.single import strays, write_line
from netspy.observe import summary as summaries
from netspy.observe.counters import Counters
from netspy.observe.outcome import ExitCode, Stop, exit_code, outcome_of, stop_of
from netspy.observe.progress import duration
from netspy.observe.throttle import Throttled, ThrottledLog
from netspy.pipelines.dead_letters.file import DeadLetterFile
from netspy.pipelines.dead_letters.shared import SharedLetters, open_store
from netspy.pipelines.delivery.writer import BatchWriter
from netspy.pipelines.loader import load_pipelines, pipeline_name
from netspy.pipelines.stdout import check_stdout
from netspy.policy.run_scope import CLUSTER_SCHEMES
from netspy.raised import run_loop
from netspy.tasks.message_source import kind_of, message_source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netspy.observe.summary import RunSummary
    from netspy.pipelines.delivery.events import PipelineEvent
    from netspy.pipelines.delivery.writer import DeadLetters
    from netspy.settings import Settings

KIND = "consumer"
NAME = "consume"
"""What the summary, the log and shared dead letters call it."""
_BACK_INTO = {
    "amqp": "netspy.pipelines.rabbitmq.RabbitmqPipeline",
    "kafka": "netspy.pipelines.kafka.KafkaPipeline",
    "list": "netspy.pipelines.redis.RedisPipeline",
    "stream": "netspy.pipelines.redis.RedisPipeline",
}
_EVERY_S = 10.0


def run_consumer(
    address: str,
    settings: Settings,
    *,
    pipelines: Sequence[Any] | None,
    clean: Clean | None,
    once: bool,
    table: str,
    logger: Any,
) -> RunSummary:
    """Consume until a signal, or with `once` until nothing is left. `pipelines`: in the place of ITEM_PIPELINES.

    Raises ConfigError, StoreLostError.
    """
    kind = kind_of(address)
    with _embedded(kind, address, settings) as own:
        wanted = own.ITEM_PIPELINES if pipelines is None else pipelines
        check_stdout(wanted)
        made = load_pipelines(wanted, own)
        if not made:
            raise ConfigError(
                "ITEM_PIPELINES is empty, so there is nothing to store rows with; name a pipeline"
            )
        if any(pipeline_name(one) == _BACK_INTO[kind] for one in made):
            raise ConfigError(
                f"ITEM_PIPELINES holds {_BACK_INTO[kind]}, which would write the rows back into a queue; name the stores "
                "with --pipeline, -o, or -s ITEM_PIPELINES=…"
            )
        main = _run(address, own, made, clean, once, table, logger)
        return run_loop(main, strayed=strays(logger), factory=loop_factory())


@contextmanager
def _embedded(kind: str, address: str, settings: Settings) -> Iterator[Settings]:
    """With `list:KEY` and REDIS_URL="embedded": the data folder's own server while the block runs."""
    if kind not in {"list", "stream"} or "://" in address or settings.REDIS_URL != "embedded":
        yield settings
        return
    from netspy.redisio.embedded.server import EmbeddedRedis

    with EmbeddedRedis(settings.EMBEDDED_DATA_DIR) as url:
        yield msgspec.structs.replace(settings, REDIS_URL=url)


async def _run(
    address: str,
    settings: Settings,
    made: list[Any],
    clean: Clean | None,
    once: bool,
    table: str,
    logger: Any,
) -> RunSummary:
    counters = Counters()
    started = datetime.now(UTC)
    letters, drop_letters = _letters(settings, logger)
    tell, flush = _events(logger, counters)
    writer = BatchWriter(made, settings, dead_letter=letters, on_event=tell)

    def outage(away: bool, seconds: float) -> None:
        if not consumer.opened:
            return  # if it doesn't come, the error says so
        if away:
            logger.warning("{} is away; waiting for it", display_url(address))
        else:
            logger.info("{} is back after {:.1f} s", display_url(address), seconds)

    source = message_source(address, settings, on_outage=outage)
    env = Env(NAME, settings, logger, ThrottledLog(logger), counters, alert=lambda _kind, _text: None)
    consumer = Consumer(env, source, writer, letters, table=table, clean=clean, once=once)

    def ended(stop: Stop) -> RunSummary:
        finished = datetime.now(UTC)
        counts = counters.own()
        outcome = outcome_of(
            stop=stop,
            ok=counts["items"] + counters.user.get("dropped_by_clean", 0),
            failed=counts["item_failed"] + counters.user.get("unreadable", 0),
        )
        code = exit_code(outcome, stop=stop, fail_on_nothing_to_do=settings.FAIL_ON_NOTHING_TO_DO)
        return summaries.build(
            counters, spider=NAME, kind=KIND, outcome=outcome, code=code, started=started,
            finished=finished, elapsed_s=(finished - started).total_seconds(), reason=stop,
            outputs=[str(one.where()) for one in made if hasattr(one, "where")],
        )  # fmt: skip

    def stop(name: str, _number: int) -> None:
        logger.info("{}: storing what was read; once more to leave at once", name)
        consumer.stop()

    def forced() -> None:  # what is not acknowledged comes again
        write_line(ended("forced"))
        force_exit(int(ExitCode.FORCED))

    seen, uninstall = install_stop_handlers(stop, forced)
    try:
        await consumer.run()
    finally:
        uninstall()
        flush()
        drop_letters()
    return ended(stop_of(seen[0]) if seen else "")


def _letters(settings: Settings, logger: Any) -> tuple[DeadLetters, Callable[[], None]]:
    """The dead-letter file, or the store of FAILED_ITEM_URL with the file behind it; and what closes it."""
    file = DeadLetterFile(settings.FAILED_ITEM_PATH)
    job = f"{settings.REDIS_KEY_PREFIX}:{NAME}"
    if settings.REDIS_URL.partition("://")[0] in CLUSTER_SCHEMES:
        job = "{" + job + "}"
    store = open_store(settings, job)
    if store is None:
        return file, lambda: None
    return SharedLetters(store, file, lambda message: logger.warning("{}", message)), store.close


def _events(logger: Any, counters: Counters) -> tuple[Callable[[PipelineEvent], None], Callable[[], None]]:
    """Log lines for what happens to pipelines, and what shows those that were held back."""
    lines = Throttled(lambda line: logger.warning("{}", line), limit=5, interval_s=_EVERY_S)

    def tell(event: PipelineEvent) -> None:
        if event.kind == "retry":
            counters.inc("pipeline_retry")
        if event.kind == "stuck":
            logger.error("{}", event.message)
        elif event.kind == "up":
            logger.info("{}", event.message)
        else:
            lines(f"{event.kind} {event.pipeline} {event.table}", event.message)

    return tell, lambda: lines.flush(everything=True)


def human(summary: RunSummary) -> str:
    """A line for people."""
    s = summary
    parts = [f"{s.items:,} row(s) stored", f"{s.item_failed:,} dead-lettered"]
    for name, words in (("dropped_by_clean", "left out by clean()"), ("unreadable", "no rows")):
        if s.user.get(name):
            parts.append(f"{s.user[name]:,} {words}")
    where = f"\n  rows: {', '.join(s.outputs)}" if s.outputs else ""
    return f"consume {summaries.HEADS[s.outcome]} after {duration(s.elapsed)}: {', '.join(parts)}{where}"
