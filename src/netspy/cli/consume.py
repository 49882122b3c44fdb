"""`netspy consume`: the consumer side of items that travel through a queue."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from netspy.errors import ConfigError

if TYPE_CHECKING:
    from netspy.engine.consume import Clean
    from netspy.settings import Settings

HELP = """Store rows that crawls have written to a queue: read in bulk, cleaned, stored, and only then acknowledged.

A consumer that is killed loses nothing: its messages come again. So a row may be stored twice, unless its table has a
unique key. What can't be stored is dead-lettered (`netspy retry --items`); a message that is no row goes to the
source's failed list.

\b
SOURCE
  amqp://user:password@host/vhost?queue=NAME    a RabbitMQ queue
  kafka://host:9092/TOPIC?group=NAME            a Kafka topic
  list:KEY  stream:KEY                          in the Redis of REDIS_URL
  redis://host:6379/0?list=KEY                  in another Redis (or ?stream=KEY)

\b
Examples
  netspy consume amqp://localhost/?queue=books --pipeline netspy.pipelines.sqlite.SqlitePipeline
  netspy consume list:netspy:items:books -o books.db --once
  netspy consume kafka://localhost/books --spider main.py --clean shop.rules:clean_book

\b
Exit codes
  0 done, 3 wrong source, argument or setting, 5 source lost, 6 nothing could be stored, 129, 130 and 143 stopped;
  see netspy --help
"""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("consume", help=HELP, short_help="Store rows from a queue.")(consume)


def consume(
    *,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="Where the rows are.")],
    spider: Annotated[
        str | None,
        typer.Option(
            "--spider", metavar="FILE", help="With the settings of this spider, and its clean(row)."
        ),
    ] = None,
    clean: Annotated[
        str | None,
        typer.Option(
            "--clean",
            metavar="MODULE:FUNCTION",
            help="Called with each row: returns it, changed or not, or None to leave it out.",
        ),
    ] = None,
    pipelines: Annotated[
        list[str] | None,
        typer.Option("--pipeline", metavar="CLASS", help="In the place of ITEM_PIPELINES; may be repeated."),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="In their place: .jsonl, .csv, .db, or - (stdout)."
        ),
    ] = None,
    table: Annotated[
        str | None,
        typer.Option("--table", help="Table of rows that name none (default: ITEM_DEFAULT_TABLE)."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="End when nothing is left.")] = False,
    values: Annotated[
        list[str] | None,
        typer.Option("-s", "--set", metavar="KEY=VALUE", help="A setting; beats every other source."),
    ] = None,
) -> int:
    """Run it; the summary line is the last one on stdout, or on stderr with `-o -`."""
    from netspy.launch.consume import human, run_consumer
    from netspy.launch.single import write_line
    from netspy.observe import log
    from netspy.stdio import write_last

    if pipelines and output is not None:
        raise ConfigError("--pipeline and -o both say where rows go; give one of them")
    settings, hook = _settings(spider, values or ())
    if clean is not None:
        hook = _function(clean)
    log.setup(settings, spider="consume")
    from loguru import logger

    wanted: list[Any] | None = list(pipelines) if pipelines else None
    if output is not None:
        from netspy.cli.run import pipeline_for

        wanted = [pipeline_for(output)]
    summary = run_consumer(
        source,
        settings,
        pipelines=wanted,
        clean=hook,
        once=once,
        table=table or settings.ITEM_DEFAULT_TABLE,
        logger=logger,
    )
    write_last(sys.stderr, f"{human(summary)}\n")
    if settings.RUN_SUMMARY_ENABLE:
        write_line(summary)
    return summary.exit_code


def _settings(spider: str | None, values: Any) -> tuple[Settings, Clean | None]:
    """The settings, and the spider's `clean` if it has one."""
    from netspy import settings as settings_module
    from netspy.cli.target import setting_values

    if spider is None:
        loaded = settings_module.load(overrides=setting_values(values), override_origin="-s")
        return loaded.settings, None
    from netspy.cli.run import make_spider

    made = make_spider(spider, (), values)
    hook = getattr(made, "clean", None)
    if hook is not None and not callable(hook):
        raise ConfigError(f"{made.name}.clean is no method; define clean(self, row)")
    return made.load_settings().settings, hook


def _function(target: str) -> Clean:
    """The function that `MODULE:FUNCTION` or `FILE.py:FUNCTION` names. Raises ConfigError."""
    from netspy.cli.target import load_module

    place, colon, name = target.rpartition(":")
    if not colon or not name.isidentifier():
        raise ConfigError(f"--clean {target!r} names no function; write module:function or file.py:function")
    found = getattr(load_module(place), name, None)
    if not callable(found):
        raise ConfigError(f"--clean {target!r}: {place} has no function {name!r}")
    function: Clean = found
    return function
