"""`netspy demo`: a distributed crawl of a local shop, from nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

HELP = """Crawl a made-up shop on this machine with several node processes and an embedded Redis.

Nothing else is needed, and nothing leaves the machine. Ctrl-C stops it; called again it goes on where it was. At the
end the rows are compared with what the shop has.

\b
Examples
  netspy demo
  netspy demo --processes 4 --dir /tmp/demo
  netspy demo --fresh            # forget a run that was stopped
  netspy demo --batch            # a task table, a master and two workers, two batches, one worker killed

\b
Try while it runs
  kill -9 PID                    # a node (the panel shows its process): the others take over

\b
Exit codes
  0  finished, and every product is there     3  the folder or the port can't be used
  129, 130, 143  stopped; call it again to go on   137  stopped by force    7  a product is missing or wrong
"""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("demo", help=HELP, short_help="Watch a distributed crawl of a local shop.")(demo)


def demo(
    *,
    folder: Annotated[Path, typer.Option("--dir", metavar="DIR", help="Where its data are.")] = Path(
        "demo-data"
    ),
    processes: Annotated[int, typer.Option("-n", "--processes", help="Node processes.")] = 2,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget an unfinished run.")] = False,
    fast: Annotated[
        bool, typer.Option("--fast", help="A shop that answers at once: over in seconds.")
    ] = False,
    delay_ms: Annotated[
        str | None,
        typer.Option("--delay-ms", metavar="LOW:HIGH", help="Bounds of the shop's answer time (300:700)."),
    ] = None,
    batch: Annotated[
        bool, typer.Option("--batch", help="The batches of a BatchSpider: a master and two workers.")
    ] = False,
) -> int:
    """Run it; the exit code is the run's."""
    from netspy.demo.run import DELAY_MS, Options, check_delay, run_demo

    if batch:
        from netspy.demo import batch_run as demo_batch_run

        if processes != 2 or fresh:
            raise typer.BadParameter(
                "--batch has two workers and begins anew each time; leave out -n and --fresh"
            )
        delay = check_delay(delay_ms or demo_batch_run.DELAY_MS)
        return demo_batch_run.run_batch_demo(Options(folder, fast=fast, delay_ms=delay), _say)
    delay_ms = delay_ms or DELAY_MS
    return run_demo(Options(folder, processes, fast=fast, fresh=fresh, delay_ms=delay_ms), _say)


def _say(text: str) -> None:
    print(text, flush=True)
