"""`netspy retry`: dead-lettered items are written again, failed requests are crawled again."""

from __future__ import annotations

import re
import sys
import time
from datetime import datetime
from typing import Annotated

import typer

from netspy.cli.job import ArgumentOption, KeyOption, RunOption

HELP = """Write items again that could not be stored, and crawl requests again that failed. Both, or what the flags name;
without a spider, items only.

SPIDER is FILE[:CLASS] or MODULE[:CLASS], with its settings. Items are in FAILED_ITEM_PATH and, with FAILED_ITEM_URL, in
a shared store: both are read. Each goes only to the pipelines that lack it; what fails again stays. It may be
interrupted and started again at any time. Failed requests of a Spider go back to its queue; those of an AirSpider are
crawled now, in this process.

\b
Examples
  netspy retry
  netspy retry main.py --items -o prices.jsonl
  netspy retry main.py --items --table prices --since 2h
  netspy retry main.py --items --pipeline MysqlPipeline --dry-run
  netspy retry main.py --requests
  netspy retry main.py

\b
Exit codes
  0  done, also when there was nothing; with --dry-run always
  2  the command line can't be understood
  3  there is no such spider, job or run; a setting is wrong
  5  Redis does not answer
  6  some items failed again and stay, or all requests of an AirSpider did
"""

SinceOption = Annotated[
    str | None,
    typer.Option(
        "--since", metavar="WHEN", help="Failed at WHEN or later: 2h, 30m, 3d, 2026-03-01, 2026-03-01T12:00."
    ),
]
_AGO = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d|w)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("retry", help=HELP, short_help="Write failed items and crawl failed requests again.")(retry)


def retry(
    *,
    target: Annotated[
        str | None, typer.Argument(metavar="[SPIDER]", help="FILE[:CLASS] or MODULE[:CLASS]: its settings.")
    ] = None,
    items: Annotated[bool, typer.Option("--items", help="Only items.")] = False,
    requests: Annotated[bool, typer.Option("--requests", help="Only requests.")] = False,
    table: Annotated[str | None, typer.Option("--table", metavar="T", help="Items of this table.")] = None,
    pipeline: Annotated[
        str | None,
        typer.Option(
            "--pipeline",
            metavar="P",
            help="Items that this pipeline lacks, and only to it: class path or name.",
        ),
    ] = None,
    when: SinceOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done; change nothing.")
    ] = False,
    spider: Annotated[
        str | None, typer.Option("--spider", metavar="FILE", help="The same as SPIDER.")
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="FILE", help="Items go here, as with `netspy run`."),
    ] = None,
    key: KeyOption = None,
    run: RunOption = None,
    arguments: ArgumentOption = None,
    values: Annotated[
        list[str] | None, typer.Option("-s", "--set", metavar="KEY=VALUE", help="A setting.")
    ] = None,
) -> int:
    """Items first: crawling again may give new ones."""
    if target is not None and spider is not None:
        raise typer.BadParameter(f"{target!r} and --spider {spider!r} name two spiders; give one")
    chosen = target or spider
    both = not (items or requests)
    moment = since(when, time.time())
    if both and chosen is None and key is None:
        both, items = False, True
        sys.stderr.write(
            "netspy: failed requests belong to a spider: `netspy retry main.py` crawls them again\n"
        )
    if (table is not None or pipeline is not None) and (requests or both):
        raise typer.BadParameter(
            "--table and --pipeline are for items; add --items, and leave out --requests"
        )
    code = 0
    if items or both:
        from netspy.cli.retry.items import retry_items
        from netspy.pipelines.dead_letters.replay import Wanted

        code = retry_items(
            chosen, Wanted(table, moment, pipeline), output=output, key=key, arguments=arguments, values=values,
            dry_run=dry_run,
        )  # fmt: skip
    if requests or both:
        from netspy.cli.retry.requests import retry_requests

        done = retry_requests(
            chosen,
            moment,
            output=output,
            key=key,
            run=run,
            arguments=arguments,
            values=values,
            dry_run=dry_run,
        )
        code = code or done
    return code


def since(text: str | None, now: float) -> float | None:
    """Seconds since 1970; local time where no zone is given. None for None. Raises a usage error."""
    if text is None:
        return None
    ago = _AGO.fullmatch(text.strip().lower())
    if ago is not None:
        return now - float(ago[1]) * _SECONDS[ago[2]]
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError, OSError):
        raise typer.BadParameter(
            f"--since {text!r} is no time; write e.g. 2h, 30m, 3d, 2026-03-01 or 2026-03-01T12:00+02:00"
        ) from None
