"""`netspy settings`: every value that is in force, and where it comes from."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from netspy import settings
from netspy.cli.target import class_settings, find_spider, setting_values
from netspy.observe.log import is_terminal
from netspy.policy.secrets import mask

if TYPE_CHECKING:
    from collections.abc import Iterable


class Row(NamedTuple):
    """One setting as shown."""

    group: str
    name: str
    value: str
    type: str
    unit: str
    origin: str


OWN_GROUP = "your own names"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("settings", help=HELP, short_help="Show every setting, its value and where it comes from.")(
        show
    )


HELP = """Show every setting: value, type, unit and where the value comes from.

From weak to strong: defaults, the project's setting.py, the spider's __custom_setting__, NETSPY_* variables,
-s. Passwords are hidden. On a terminal the columns are aligned; elsewhere they are separated by tabs.

\b
Examples
  netspy settings
  netspy settings --changed
  netspy settings --spider main.py -s SPIDER_THREAD_COUNT=32
"""


def show(
    *,
    spider: Annotated[
        str | None,
        typer.Option(
            "--spider",
            metavar="FILE",
            help="A spider's settings: FILE[:CLASS] or MODULE[:CLASS].",
        ),
    ] = None,
    values: Annotated[
        list[str] | None,
        typer.Option("-s", "--set", metavar="KEY=VALUE", help="As if the run got this setting."),
    ] = None,
    changed: Annotated[bool, typer.Option("--changed", help="Only what something has set.")] = False,
) -> None:
    """Print the table to stdout, warnings about names to stderr."""
    chosen = find_spider(spider) if spider else None
    loaded = class_settings(chosen, setting_values(values or ()))
    for warning in loaded.warnings:
        sys.stderr.write(f"netspy: warning: {warning}\n")
    rows = [row for row in rows_of(loaded) if not changed or row.origin != settings.DEFAULT_ORIGIN]
    write = aligned if is_terminal(sys.stdout) else tabbed
    for line in write(rows):
        print(line)


def rows_of(loaded: settings.Loaded) -> list[Row]:
    """Every setting, by group, then the user's own names."""
    rows = []
    for name in settings.FIELDS:
        extra = settings.meta(name).extra or {}
        rows.append(
            Row(
                extra.get("group", ""),
                name,
                settings.display_value(name, getattr(loaded.settings, name)),
                settings.type_name(name),
                extra.get("unit", ""),
                loaded.origins[name],
            )
        )
    for name, value in loaded.extra.items():
        rows.append(
            Row(
                OWN_GROUP,
                name,
                settings.display_value(name, mask(value, name)),
                type(value).__name__,
                "",
                "not a setting",
            )
        )
    return rows


def tabbed(rows: Iterable[Row]) -> list[str]:
    """One line per setting: name, value, type, unit, origin, separated by tabs."""
    return ["\t".join(row[1:]) for row in rows]


def aligned(rows: list[Row]) -> list[str]:
    """The rows under their groups, in columns; a long value doesn't widen the column for all."""
    if not rows:
        return ["Nothing differs from the defaults."]
    widths = [
        min(max(len(row[column]) for row in rows), most)
        for column, most in ((1, 32), (2, 26), (3, 12), (4, 12))
    ]
    lines: list[str] = []
    group = None
    for row in rows:
        if row.group != group:
            group = row.group
            lines += ["", f"[{group}]"] if lines else [f"[{group}]"]
        cells = [text.ljust(width) for text, width in zip(row[1:5], widths, strict=True)]
        lines.append("  ".join([*cells, row.origin]).rstrip())
    return lines
