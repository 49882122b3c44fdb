"""Logging: one sink on stderr, optionally one file, both without passwords.

loguru does the work; it is imported at the first message, so that `import netspy` stays light. The log
belongs to the process, not to a spider: the last `setup` decides.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

from netspy.errors import ConfigError
from netspy.logger import Logger as Logger  # noqa: PLC0414  what sets the log up offers the loggers, too
from netspy.logger import get_logger as get_logger  # noqa: PLC0414
from netspy.logger import loguru_logger
from netspy.observe.faults import short_traceback
from netspy.settings import without_passwords as without_passwords  # noqa: PLC0414  the command line and the summary use it, too

if TYPE_CHECKING:
    from netspy.settings import Settings

Write = Callable[[str], None]

_SCREEN_FORMAT = "<dim>{time:HH:mm:ss}</dim> <level>{level.name: <8}</level> {where}: {text}\n{trace}"
_PLAIN_FORMAT = "{time:YYYY-MM-DD HH:mm:ss.SSS} {level.name: <8} {where}: {text}\n{trace}"

_ANSI = re.compile(r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def without_escapes(text: str) -> str:
    """`text` without terminal escapes and control characters (line breaks and tabs stay): what a page says must
    not steer the terminal or colour a file.
    """
    if _CONTROLS.search(text) is None:
        return text
    return _CONTROLS.sub(lambda m: f"\\x{ord(m[0]):02x}", _ANSI.sub("", text))


class _Screen:
    """The stderr sink. A progress panel may take the lines over to print them above itself."""

    def __init__(self, stream: TextIO | None, redirected: Write | None = None) -> None:
        self._stream = stream  # None: whatever sys.stderr is when a line is written
        self.redirected = redirected

    def stream(self) -> TextIO | None:
        return self._stream if self._stream is not None else sys.stderr

    def write(self, message: str) -> None:
        text = str(message)
        if self.redirected is not None:
            self.redirected(text)
            return
        stream = self.stream()
        if stream is None:
            return
        try:
            try:
                stream.write(text)
            except UnicodeEncodeError:
                encoding = stream.encoding or "ascii"
                stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
            stream.flush()
        except (OSError, ValueError):
            # Whoever read stderr is gone (closed pipe, closed file); the crawl goes on without it.
            return


class _Log:
    """The process's log as set up last."""

    def __init__(self) -> None:
        self.node = ""
        self.full_traceback = False
        self.screen = _Screen(None)
        self.handlers: list[int] = []
        self.route: _Route | None = None


class _Route(logging.Handler):
    """Hands what other libraries log at WARNING and above through the standard library to our sinks."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            level: str | int = record.levelno
            if record.levelname in {"WARNING", "ERROR", "CRITICAL"}:
                level = record.levelname
            loguru_logger().opt(exception=record.exc_info).bind(name=record.name).log(
                level, "{}", record.getMessage()
            )
        except Exception:
            self.handleError(record)


_LOG = _Log()


def _complete(record: Any) -> None:
    """Add what our formats show. The record's message loses its passwords for every sink that comes after."""
    name = record["extra"].get("name") or record["name"] or "netspy"
    record["where"] = f"{name}[{_LOG.node}]" if _LOG.node else name
    record["text"] = record["message"] = without_escapes(without_passwords(record["message"]))
    error = record["exception"]
    record["trace"] = ""
    if error is not None and error.value is not None:
        trace = short_traceback(error.value, full=_LOG.full_traceback)
        record["trace"] = without_escapes(without_passwords(trace))


def _screen_format(record: Any) -> str:
    _complete(record)
    return _SCREEN_FORMAT


def _plain_format(record: Any) -> str:
    _complete(record)
    return _PLAIN_FORMAT


def is_terminal(stream: object) -> bool:
    """Whether `stream` is a terminal that understands cursor movements and colours."""
    try:
        return bool(stream.isatty()) and os.environ.get("TERM", "") != "dumb"  # type: ignore[attr-defined]
    except (AttributeError, ValueError):  # no stream at all, or a closed one
        return False


def setup(
    settings: Settings,
    *,
    spider: str,
    node: str = "",
    stream: TextIO | None = None,
    terminal: bool | None = None,
) -> None:
    """Send the log to stderr (or `stream`) and to LOG_FILE, as `settings` say; earlier set-ups are replaced.

    Colours only on a terminal with LOG_COLOR. LOG_FILE may contain `{spider}` and `{node}`; processes that
    share a file lose no line, but rotate it more often than asked. `node`, if any, is shown in each line.
    `terminal` says whether stderr ends on one, where it is a pipe to somebody who knows.
    Raises ConfigError when LOG_FILE can't be opened or its rotation or retention isn't understood.
    """
    logger = loguru_logger()
    _remove()
    with suppress(ValueError):
        logger.remove(0)  # loguru's own handler on stderr; it is gone after the first time
    level = "DEBUG" if settings.DEBUG else settings.LOG_LEVEL
    _LOG.node = node
    _LOG.full_traceback = level in {"TRACE", "DEBUG"}
    _LOG.screen = _Screen(stream, _LOG.screen.redirected)
    on_terminal = is_terminal(_LOG.screen.stream()) if terminal is None else terminal
    options: dict[str, Any] = {"level": level, "backtrace": False, "diagnose": False, "catch": True}
    _LOG.handlers.append(
        logger.add(
            _LOG.screen.write,
            format=_screen_format if on_terminal else _plain_format,
            colorize=on_terminal and settings.LOG_COLOR and not os.environ.get("NO_COLOR"),
            **options,
        )
    )
    if settings.LOG_FILE:
        path = settings.LOG_FILE.replace("{spider}", spider).replace("{node}", node or "main")
        try:
            _LOG.handlers.append(
                logger.add(
                    path,
                    format=_plain_format,
                    colorize=False,
                    encoding="utf-8",
                    rotation=settings.LOG_ROTATION or None,
                    retention=settings.LOG_RETENTION or None,
                    **options,
                )
            )
        except OSError as error:
            raise ConfigError(
                f"LOG_FILE={settings.LOG_FILE!r} can't be opened: {error.strerror}; name a file in a folder "
                "that can be written"
            ) from error
        except (ValueError, TypeError) as error:
            raise ConfigError(
                f"LOG_ROTATION={settings.LOG_ROTATION!r} or LOG_RETENTION={settings.LOG_RETENTION!r} is not "
                f"understood: {error}; write e.g. '50 MB' and '10 days'"
            ) from error
    root = logging.getLogger()
    if not root.handlers:  # a program that set up logging itself keeps its own way
        _LOG.route = _Route(logging.WARNING)
        root.addHandler(_LOG.route)


def redirect(write: Write | None) -> None:
    """Hand log lines to `write` instead of stderr; None gives them back. LOG_FILE is not touched."""
    _LOG.screen.redirected = write


def close() -> None:
    """Take our sinks away (LOG_FILE is closed) and let loguru write plainly to stderr, as before `setup`."""
    if not _LOG.handlers:
        return
    _remove()
    screen = _LOG.screen = _Screen(None)
    _LOG.node = ""
    _LOG.handlers.append(
        loguru_logger().add(
            screen.write, format=_plain_format, colorize=False, level="DEBUG", backtrace=False, diagnose=False
        )
    )


def _remove() -> None:
    for handler in _LOG.handlers:
        with suppress(ValueError):  # the program may have removed all of loguru's handlers itself
            loguru_logger().remove(handler)
    _LOG.handlers.clear()
    if _LOG.route is not None:
        logging.getLogger().removeHandler(_LOG.route)
        _LOG.route = None
