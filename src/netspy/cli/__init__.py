"""The command line: one file per command. `main` says so when typer is missing."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

from netspy.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command in `argv` (default: the process's arguments); the exit code (see ExitCode)."""
    if find_spec("typer") is None:
        sys.stderr.write(f"netspy: {MissingExtraError('The command line', 'cli')}\n")
        return 3
    from netspy.cli.app import run

    return run(argv)
