"""`netspy retry --items`: write dead-lettered items again."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from netspy import settings as settings_module
from netspy.errors import ConfigError
from netspy.observe import log

HELP = """Write items again that could not be stored. Rows that fail again stay in the file.

For failed requests see `netspy failed retry` (Spider) and RETRY_FAILED_ON_START (AirSpider).

\b
Examples
  netspy retry --items
  netspy retry --items --spider main.py
  netspy retry --items --spider main.py -o prices.jsonl
"""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("retry", help=HELP, short_help="Write dead-lettered items again.")(retry)


def retry(
    items: Annotated[bool, typer.Option("--items", help="Replay FAILED_ITEM_PATH.")] = False,
    spider: Annotated[
        str | None, typer.Option("--spider", metavar="FILE", help="With the settings of this spider.")
    ] = None,
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="FILE", help="As it was given to `netspy run`.")
    ] = None,
    values: Annotated[list[str] | None, typer.Option("-s", "--set", metavar="KEY=VALUE")] = None,
) -> int:
    """Exit code 0 when all rows are stored, 6 when some failed again."""
    import asyncio

    from netspy.cli.run import pipeline_for
    from netspy.cli.target import class_settings, find_spider, setting_values
    from netspy.pipelines.dead_letter import DeadLetterFile
    from netspy.pipelines.loader import load_pipelines
    from netspy.pipelines.writer import BatchWriter

    if not items:
        raise ConfigError("say what to retry: netspy retry --items (for requests: netspy failed retry)")
    chosen = find_spider(spider) if spider else None
    loaded = (
        class_settings(chosen, setting_values(values or ()))
        if spider
        else settings_module.load(overrides=setting_values(values or ()))
    )
    settings = loaded.settings
    log.setup(settings, spider="retry")

    async def replay() -> Any:
        letters = DeadLetterFile(settings.FAILED_ITEM_PATH)
        wanted: Any = settings.ITEM_PIPELINES if output is None else [pipeline_for(output)]
        writer = BatchWriter(load_pipelines(wanted, settings), settings, dead_letter=letters)
        try:
            return await letters.replay(writer)
        finally:
            await writer.close()

    stored, failed = asyncio.run(replay())
    sys.stderr.write(
        f"{stored} item(s) stored, {failed} failed again and stay in {settings.FAILED_ITEM_PATH}\n"
    )
    return 6 if failed else 0
