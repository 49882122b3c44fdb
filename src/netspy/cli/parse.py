"""`netspy parse`: fetch one URL, run one callback, show what it yields; nothing is queued or stored."""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from netspy.cli.run import make_spider
from netspy.errors import ConfigError

if TYPE_CHECKING:
    from netspy.messages.request import Request
    from netspy.messages.response import Response

HELP = """Fetch a URL, run one callback of a spider on it, and show what it yields. Nothing is queued or stored.

\b
Examples
  netspy parse https://example.com/p/1 --spider main.py --callback detail
  netspy parse https://example.com/ --spider main.py:Shop -a category=shoes
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
    import asyncio

    from netspy import assembly
    from netspy.engine.callbacks import Callbacks
    from netspy.messages.request import Request
    from netspy.observe import log

    made = make_spider(spider, arguments or (), values or ())
    settings = made.load_settings().settings
    log.setup(settings, spider=made.name)
    callbacks = Callbacks(made, framework=assembly.base_of(made))
    if callback not in callbacks:
        raise ConfigError(callbacks.problem(callback))
    request = Request(url, callback=callback)
    response, yielded = asyncio.run(_run(settings, request, callbacks.named(callback)))
    sys.stderr.write(
        f"{response.status_code} {response.url} ({len(response.content):,} bytes, {response.encoding})\n"
    )
    for value in yielded:
        print(_shown(value))
    return 0


async def _run(settings: Any, request: Request, function: Any) -> tuple[Response, list[Any]]:
    from netspy import assembly
    from netspy.engine.yields import as_iterator

    downloader = assembly.make_downloader(settings)
    try:
        response = await downloader.fetch(request)
        result = function(request, response)
        if inspect.isasyncgen(result):
            return response, [value async for value in result]
        if inspect.isawaitable(result):
            result = await result
        return response, list(as_iterator(result) or ())
    finally:
        await downloader.close()


def _shown(value: Any) -> str:
    import msgspec

    from netspy.messages.item import Item
    from netspy.messages.records import is_record, raw_row
    from netspy.messages.request import Request

    if isinstance(value, Request):
        return f"request  {value.method} {value.url}  ->  {value.callback_name or 'parse'}"
    kind, data = "item", value
    if isinstance(value, Item) or is_record(type(value)):
        row = raw_row(value)
        kind, data = row.table, row.data
    try:
        return f"{kind}  {msgspec.json.encode(data, enc_hook=str).decode()}"
    except (TypeError, msgspec.MsgspecError):
        return f"{type(value).__name__}  {value!r}"
