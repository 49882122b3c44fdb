"""`netspy run`: start a spider."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from netspy.cli.target import find_spider, setting_values
from netspy.errors import ConfigError

HELP = """Run a spider: of a file, or of a module.

\b
Examples
  netspy run main.py
  netspy run main.py:NewsSpider -n 4
  netspy run shop.spiders:Prices -a category=shoes -s SPIDER_THREAD_COUNT=64 -o prices.jsonl
"""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("run", help=HELP, short_help="Run a spider.")(run)


def run(
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
            "-o", "--output", metavar="FILE", help="Where items go: a .jsonl, .csv, .db or .sqlite file."
        ),
    ] = None,
) -> int:
    """Start it; the exit code is the run's."""
    made = make_spider(spider, arguments or (), values or (), output)
    try:
        made.start(processes=processes)
    except SystemExit as end:
        return int(end.code or 0) if not isinstance(end.code, str) else 1
    return 0


def make_spider(target: str, arguments: Any, values: Any, output: str | None = None) -> Any:
    """The spider object as the command line describes it. Raises ConfigError."""
    chosen = find_spider(target)
    keywords = dict(_pair(text, "-a") for text in arguments)
    try:
        made = chosen(**keywords)
    except TypeError as error:
        raise ConfigError(
            f"{chosen.__name__} can't be made with {', '.join(keywords) or 'no arguments'}: {error}"
        ) from None
    made.override_settings(setting_values(values), "-s")
    if output is not None:
        made.pipelines = [pipeline_for(output)]
    return made


def _pair(text: str, option: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.isidentifier():
        raise ConfigError(f"{option} {text!r} is not KEY=VALUE")
    return key, value


def pipeline_for(output: str) -> Any:
    """The pipeline that writes one file, by its suffix. Raises ConfigError."""
    path = Path(output)
    suffix = path.suffix.lower()
    if suffix in {".jsonl", ".ndjson", ".jl"}:
        from netspy.pipelines.jsonl import JsonlPipeline

        return JsonlPipeline(path)
    if suffix == ".csv":
        from netspy.pipelines.csv import CsvPipeline

        return CsvPipeline(path)
    if suffix in {".db", ".sqlite", ".sqlite3"}:
        from netspy.pipelines.sqlite import SqlitePipeline

        return SqlitePipeline(path)
    raise ConfigError(
        f"-o {output!r}: no pipeline writes {suffix or 'a file without suffix'}; use .jsonl, .csv or .db"
    )
