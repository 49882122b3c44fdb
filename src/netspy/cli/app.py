"""The application: collects the commands, and turns whatever ends one into one line and an exit code."""

from __future__ import annotations

import errno
import os
import sys
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Any

import typer

from netspy.errors import NetspyError
from netspy.observe.faults import describe_error, short_traceback
from netspy.observe.log import without_passwords
from netspy.observe.outcome import ExitCode, exit_code_of
from netspy.stdio import lead_nowhere, open_missing, write_last

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = {
    "run": "run",
    "demo": "demo",
    "status": "status",
    "failed": "failed.command",
    "reset": "reset",
    "retry": "retry.command",
    "tasks": "tasks.command",
    "batch": "batch",
    "consume": "consume",
    "parse": "parse",
    "shell": "shell",
    "settings": "settings",
    "create": "create.command",
}
"""The commands in the order of the help, each with its module in this package, which has `register(app)`."""

BROKEN_PIPE = 141
"""128 + SIGPIPE, as a shell reports it: whoever read the output (`| head`) has left."""


OUTPUT_FAILED = 1
"""What a command was asked to print got lost: the disk is full."""

HELP = """A crawling framework that grows from one script to many machines.

\b
Exit codes
  0  done: also with some failed requests, or with nothing to do
  2  the command line can't be understood
  3  a setting, an argument or the spider's declaration is wrong
  4  start_requests raised
  5  the shared store is lost or does not answer
  6  everything failed
  7  an error inside netspy
  8  another batch master runs (run --monitor --once)
  9  nothing to do (only with FAIL_ON_NOTHING_TO_DO)
  129, 130, 143  stopped gracefully by SIGHUP, SIGINT, SIGTERM;  137  stopped by force
"""


def build() -> typer.Typer:
    """The application with every command of COMMANDS."""
    app = typer.Typer(
        name="netspy",
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback(invoke_without_command=True, help=HELP)(_top)
    for module in COMMANDS.values():
        import_module(f"netspy.cli.{module}").register(app)
    return app


def _top(
    context: typer.Context,
    show_version: Annotated[
        bool, typer.Option("-V", "--version", help="Print the version and exit.")
    ] = False,
) -> None:
    """Handle what comes before a command."""
    if show_version:
        print(f"netspy {version('netspy')}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(ExitCode.USAGE)


def run(argv: Sequence[str] | None = None) -> int:
    """Run one command line. Never raises but for SystemExit; errors are one line on stderr."""
    open_missing()
    try:
        code = _invoke(argv)
    except BrokenPipeError:
        # Python flushes stdout once more at its end, and would complain there.
        lead_nowhere(sys.stdout)
        return BROKEN_PIPE
    error = write_last(sys.stdout, "")
    if isinstance(error, BrokenPipeError):
        return BROKEN_PIPE
    if error is not None:
        _say(f"error: standard output can't be written: {describe_error(error)}")
        return code or OUTPUT_FAILED
    return code


def _invoke(argv: Sequence[str] | None) -> int:
    command: Any = typer.main.get_command(build())
    try:
        result = command.main(
            args=None if argv is None else list(argv), prog_name="netspy", standalone_mode=False
        )
    except NetspyError as error:
        _say(f"error: {error}")
        return exit_code_of(error)
    except (typer.Abort, KeyboardInterrupt):
        _say("aborted")
        return ExitCode.SIGINT
    except SystemExit as end:
        # The option parser turns a closed pipe into exit code 1; any other exit is the command's own.
        if isinstance(end.__context__, BrokenPipeError):
            raise end.__context__ from None
        raise
    except BrokenPipeError:
        raise
    except Exception as error:
        if hasattr(error, "format_message"):  # a usage error of the option parser
            context = getattr(error, "ctx", None)
            path = context.command_path if context is not None else _command_of(argv)
            _say(f"{error.format_message()} (see {path} --help)", path)
            return ExitCode.USAGE
        if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EIO}:
            _say(f"error: what the command writes can't be written: {describe_error(error)}")
            return OUTPUT_FAILED
        if os.environ.get("NETSPY_DEBUG", ""):
            sys.stderr.write(without_passwords(short_traceback(error, full=True)))
        _say(f"internal error: {describe_error(error)} (NETSPY_DEBUG=1 shows where)")
        return ExitCode.INTERNAL
    return int(result) if isinstance(result, int) else ExitCode.FINISHED


def _command_of(argv: Sequence[str] | None) -> str:
    """The command that the arguments begin with: the parser leaves it out of some of its errors."""
    first = (sys.argv[1:] if argv is None else argv)[:1]
    return f"netspy {first[0]}" if first and first[0] in COMMANDS else "netspy"


def _say(text: str, who: str = "netspy") -> None:
    """One line on stderr, without passwords."""
    line = without_passwords(" ".join(text.split()))
    write_last(sys.stderr, f"{who}: {line}\n")
