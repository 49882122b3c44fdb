"""`--since`: a moment, or how long ago."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated

import typer

SinceOption = Annotated[
    str | None,
    typer.Option(
        "--since", metavar="WHEN", help="Failed at WHEN or later: 2h, 30m, 3d, 2026-03-01, 2026-03-01T12:00."
    ),
]
_AGO = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d|w)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


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
