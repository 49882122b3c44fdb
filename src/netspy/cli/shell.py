"""`netspy shell`: fetch one URL and look at it in a Python prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from netspy.messages.request import Request

HELP = """Fetch a URL and open a Python prompt with `request`, `response` and `fetch(url)`.

\b
Examples
  netspy shell https://example.com/
  echo 'print(response.css("title::text").get())' | netspy shell https://example.com/

\b
Exit codes
  0  left with Ctrl-D
  2  the command line can't be understood
  3  a wrong URL or setting
  6  the page can't be had
"""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("shell", help=HELP, short_help="Look at one page in a Python prompt.")(shell)


def shell(
    url: Annotated[str, typer.Argument(metavar="URL")],
    values: Annotated[list[str] | None, typer.Option("-s", "--set", metavar="KEY=VALUE")] = None,
) -> int:
    """Open the prompt."""
    import asyncio
    import code

    import netspy
    from netspy import assembly
    from netspy import settings as settings_module
    from netspy.cli.target import setting_values
    from netspy.messages.request import Request

    settings = settings_module.load(overrides=setting_values(values or ())).settings

    async def get(request: Request) -> Any:
        downloader = assembly.make_downloader(settings)
        try:
            return await downloader.fetch(request)
        finally:
            await downloader.close()

    names: dict[str, Any] = {"Request": Request, "mw": netspy}

    def fetch(target: str | Request) -> Any:
        """Fetch another page; `request` and `response` are the new ones."""
        request = target if isinstance(target, Request) else Request(target)
        names["request"], names["response"] = request, asyncio.run(get(request))
        return names["response"]

    names["fetch"] = fetch
    response = fetch(url)
    banner = f"{response!r}\nnames: request, response, fetch(url), Request, mw — leave with Ctrl-D"
    code.interact(banner=banner, local=names, exitmsg="")
    return 0
