"""`netspy parse`: fetch one URL, run one callback, show what it yields; nothing is queued or stored."""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from netspy.cli.run import make_spider
from netspy.errors import ConfigError
from netspy.observe.faults import describe_error, where
from netspy.observe.log import without_passwords
from netspy.observe.outcome import ExitCode
from netspy.raised import failure, run_loop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from netspy.messages.request import Request

HELP = """Fetch a URL, run one callback of a spider on it, and show what it yields. Nothing is queued or stored.

\b
Examples
  netspy parse https://example.com/p/1 --spider main.py --callback detail
  netspy parse https://example.com/ --spider main.py:Shop -a category=shoes

\b
Exit codes
  0  the page was fetched and the callback came to its end
  2  the command line can't be understood
  3  a wrong URL, spider, callback, argument or setting
  6  the page can't be had, or the callback raised
"""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("parse", help=HELP, short_help="Try a callback on one URL.")(parse)


def parse(
    url: Annotated[str, typer.Argument(metavar="URL")],
    spider: Annotated[str, typer.Option("--spider", metavar="FILE", help="FILE[:CLASS] or MODULE[:CLASS].")],
    callback: Annotated[str, typer.Option("--callback", "-c", metavar="NAME")] = "parse",
    arguments: Annotated[list[str] | None, typer.Option("-a", "--argument", metavar="KEY=VALUE")] = None,
    values: Annotated[list[str] | None, typer.Option("-s", "--set", metavar="KEY=VALUE")] = None,
) -> int:
    """One line per yielded value on stdout: kind, then the value as JSON."""
    from netspy import assembly
    from netspy.engine.page.callbacks import Callbacks
    from netspy.messages.request import Request
    from netspy.observe import log

    made = make_spider(spider, arguments or (), values or ())
    settings = made.load_settings().settings
    log.setup(settings, spider=made.name)
    callbacks = Callbacks(made, framework=assembly.base_of(made))
    if callback not in callbacks:
        raise ConfigError(callbacks.problem(callback))
    request = Request(url, callback=callback)
    raised = run_loop(_run(settings, request, callbacks.named(callback)))
    if raised is None:
        return 0
    place = where(raised)
    sys.stdout.flush()
    sys.stderr.write(
        without_passwords(
            f"netspy: error: {made.name}.{callback}{f' ({place})' if place else ''} raised {describe_error(raised)}\n"
        )
    )
    return ExitCode.ALL_FAILED


async def _run(settings: Any, request: Request, function: Any) -> Exception | None:
    """Fetch, say what came, and show what the callback yields; what it raised. Raises what the fetch raises."""
    from netspy import assembly

    downloader = assembly.make_downloader(settings)
    try:
        response = await downloader.fetch(request)
        sys.stderr.write(
            f"{response.status_code} {without_passwords(response.url)} ({len(response.content):,} bytes, {response.encoding})\n"
        )
        sys.stderr.flush()
        try:
            async for value in _iterate(function(request, response)):
                print(_format_value(value))
        except BrokenPipeError:  # nobody reads any more
            raise
        except BaseException as caught:
            return failure(caught)
        return None
    finally:
        await downloader.close()


async def _iterate(result: Any) -> AsyncIterator[Any]:
    """The values of a callback of any kind, one by one."""
    from netspy.engine.page.output import as_iterator

    if inspect.isasyncgen(result):
        async for value in result:
            yield value
        return
    if inspect.isawaitable(result):
        result = await result
    for value in as_iterator(result) or ():
        yield value


def _format_value(value: Any) -> str:
    import msgspec

    from netspy.messages.item import Item
    from netspy.messages.records import is_record, raw_row
    from netspy.messages.request import Request

    if isinstance(value, Request):
        return f"request  {value.method} {without_passwords(value.url)}  ->  {value.callback_name or 'parse'}"
    kind, data = "item", value
    if isinstance(value, Item) or is_record(type(value)):
        row = raw_row(value)
        kind, data = row.table, row.data
    try:
        return f"{kind}  {msgspec.json.encode(data, enc_hook=str).decode()}"
    except (TypeError, msgspec.MsgspecError):
        return f"{type(value).__name__}  {value!r}"
