"""`netspy run`: start a spider."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from netspy.cli.target import assignments, find_spider, setting_values
from netspy.errors import ConfigError, NetspyError
from netspy.observe.faults import describe_error, where

if TYPE_CHECKING:
    from collections.abc import Iterable

    from netspy.pipelines.base import BasePipeline
    from netspy.spiders.base import BaseParser

HELP = """Run a spider: of a file, or of a module.

A BatchSpider has two roles: --monitor is the master (one), without it a worker (as many as you like). With --once the
master brings one batch to its end and leaves.

\b
Where items go with -o, in the place of ITEM_PIPELINES (rows are added to a file that exists)
  FILE.db, FILE.sqlite   a SQLite database, one table per item table
  FILE.jsonl, FILE.csv   one file per table: FILE has the rows of the one Item class that the code defines
                         or, when it defines none or several, plain dicts; other tables go beside it,
                         to FILE.TABLE.jsonl; FILE.jsonl.gz and FILE.jsonl.zst are compressed
  -                      JSON lines on standard output, before the summary's line

\b
Examples
  netspy run main.py
  netspy run main.py:NewsSpider -n 4
  netspy run shop.spiders:Prices -a category=shoes -s SPIDER_THREAD_COUNT=64 -o prices.jsonl
  netspy run crawl_task.py --monitor --once

\b
Exit codes
  as the run's: 0 done, 3 wrong spider, argument or setting, 4 start_requests raised, 5 Redis lost,
  6 everything failed, 8 another master runs (--monitor --once), 129, 130 and 143 stopped; see netspy --help
"""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("run", help=HELP, short_help="Run a spider.")(run)


def run(
    *,
    spider: Annotated[str, typer.Argument(metavar="SPIDER", help="FILE[:CLASS] or MODULE[:CLASS].")],
    processes: Annotated[int, typer.Option("-n", "--processes", help="Node processes (Spider only).")] = 1,
    arguments: Annotated[
        list[str] | None,
        typer.Option("-a", "--argument", metavar="KEY=VALUE", help="An argument of the spider."),
    ] = None,
    values: Annotated[
        list[str] | None,
        typer.Option("-s", "--set", metavar="KEY=VALUE", help="A setting; beats every other source."),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Items go here: .jsonl, .jsonl.gz, .csv, .db, or - (stdout).",
        ),
    ] = None,
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over", help="Go on with a job that a class of another name began (renamed class)."
        ),
    ] = False,
    monitor: Annotated[
        bool, typer.Option("--monitor", help="Be the master of a BatchSpider's batches.")
    ] = False,
    once: Annotated[
        bool, typer.Option("--once", help="With --monitor: bring one batch to its end and leave (for cron).")
    ] = False,
) -> int:
    """Start it; the exit code is the run's."""
    if once and not monitor:
        raise typer.BadParameter("--once goes with --monitor")
    made: Any = make_spider(spider, arguments or (), values or (), output)
    if take_over:
        if not made.shared:
            raise ConfigError(
                f"--take-over is for jobs in Redis, and {made.name} is an AirSpider; leave it out"
            )
        made.take_over = True
    if monitor:
        check_master(made, processes, output)
    try:
        if monitor:
            made.start_monitor(once=once)
        else:
            made.start(processes=processes)
    except SystemExit as end:
        return int(end.code or 0) if not isinstance(end.code, str) else 1
    return 0


def check_master(made: Any, processes: int, output: str | None) -> None:
    """Whether --monitor makes sense with this. Raises ConfigError, and a usage error for options of a worker."""
    if made.kind != "batch":
        raise ConfigError(
            f"--monitor is the master of a BatchSpider, and {made.name} has no batches; leave it out, or change the base "
            "class to netspy.BatchSpider"
        )
    if processes != 1:
        raise typer.BadParameter(f"-n {processes}: there is one master; start workers without --monitor")
    from netspy.assembly.batch import in_process

    if output is not None and not in_process(made):
        raise typer.BadParameter("-o is for workers; a master stores no items")


def make_spider(
    target: str, arguments: Iterable[str], values: Iterable[str], output: str | None = None
) -> BaseParser:
    """The spider object as the command line describes it. Raises ConfigError."""
    chosen = find_spider(target)
    keywords: dict[str, Any] = dict(assignments(arguments, "-a"))
    for name in ("pipelines", "item_handler"):
        if name in keywords:
            raise ConfigError(f"-a {name}=… can't be given as text; for a file of items use -o FILE")
    try:
        made = chosen(**keywords)
    except NetspyError:
        raise
    except Exception as error:
        place = where(error)
        raise ConfigError(
            f"{chosen.__name__} can't be made with {', '.join(keywords) or 'no arguments'}: "
            f"{f'{place}: ' if place else ''}{describe_error(error)}"
        ) from None
    if not hasattr(made, "arguments"):
        raise ConfigError(f"{chosen.__name__}.__init__ must call super().__init__(**arguments)")
    made.override_settings(setting_values(values), "-s")
    if output is not None:
        if made.item_handler is not None:
            raise ConfigError(f"-o {output!r}: {made.name} hands its items to its item_handler; leave out -o")
        made.pipelines = [pipeline_for(output)]
    return made


JSON_LINES = frozenset({".jsonl", ".ndjson", ".jl"})


def pipeline_for(output: str) -> BasePipeline:
    """The pipeline that writes one file, by its suffix; `-` is standard output. Raises ConfigError."""
    if output == "-":
        from netspy.pipelines.stdout import StdoutPipeline

        return StdoutPipeline()
    if "://" in output:
        from netspy.settings import hide_password

        raise ConfigError(
            f"-o {hide_password(output)!r} is a URL, and -o writes files; for a database name its pipeline in ITEM_PIPELINES"
        )
    path = Path(output).expanduser()
    if path.is_dir():
        raise ConfigError(f"-o {output!r} is a folder; name a file in it, e.g. {path / 'items.jsonl'}")
    suffix = path.suffix.lower()
    if suffix in {".gz", ".zst"}:
        inner = Path(path.stem).suffix.lower()
        if inner not in JSON_LINES:
            raise ConfigError(
                f"-o {output!r}: only JSON lines are compressed; name it e.g. items.jsonl{suffix}"
            )
        suffix = inner
    if suffix in JSON_LINES:
        from netspy.pipelines.jsonl import JsonlPipeline

        return JsonlPipeline(path, table=only_table())
    if suffix == ".csv":
        from netspy.pipelines.csv import CsvPipeline

        return CsvPipeline(path, table=only_table())
    if suffix in {".db", ".sqlite", ".sqlite3"}:
        from netspy.pipelines.sqlite import SqlitePipeline

        return SqlitePipeline(path)
    raise ConfigError(
        f"-o {output!r}: no pipeline writes {suffix or 'a file without suffix'}; use .jsonl, .csv, .db or -"
    )


def only_table() -> str | None:
    """The table of the Item classes that the loaded code defines, when they share one; else None.

    It follows from the code alone, so that all processes of a run give a file the same table.
    """
    from netspy.messages.item import Item

    tables: set[str] = set()
    waiting: list[type[Item]] = [Item]
    while waiting:
        kind = waiting.pop()
        under = kind.__subclasses__()
        waiting += under
        if not under and not kind.__module__.startswith("netspy."):
            tables.add(kind.__table_name__ or kind._table_default)  # noqa: SLF001 - an instance may need arguments
    return tables.pop() if len(tables) == 1 else None
