"""JSON lines on standard output, for a program that reads them."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from netspy.errors import ConfigError
from netspy.pipelines.base import BasePipeline
from netspy.pipelines.values import json_lines
from netspy.stdio import is_missing, write_all

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


STDOUT = "standard output"
"""What the run's summary calls the place of the rows."""


def writes_stdout(pipelines: Iterable[Any]) -> bool:
    """Whether rows go to standard output with these pipelines: objects, classes or paths."""
    names = {StdoutPipeline, f"{__name__}.StdoutPipeline", f"{__name__}:StdoutPipeline"}
    return any(
        isinstance(one, StdoutPipeline) or (isinstance(one, type | str) and one in names) for one in pipelines
    )


def check_stdout(pipelines: Iterable[Any]) -> None:
    """Raises ConfigError: rows are to go to standard output, and this process was started without one."""
    if is_missing(sys.stdout) and writes_stdout(pipelines):
        raise ConfigError(
            "rows are to go to standard output, which is closed; start netspy with one, or name a file (-o FILE)"
        )


class StdoutPipeline(BasePipeline):
    """Writes one JSON object per item to standard output, UTF-8, of whatever table. Nothing else is written
    there: the run's summary line goes to stderr. An UpdateItem is refused.

    When the reader leaves (`| head`), the crawl stops as at SIGTERM; rows that could not be written any more are
    dead-lettered.
    """

    _left = False

    def where(self) -> str:
        """For the run's summary."""
        return STDOUT

    def is_away(self, error: Exception) -> bool:
        """A reader that has left doesn't come back."""
        del error
        return False

    def save_items(self, table: str, items: Sequence[dict[str, Any]]) -> bool:
        """Write the batch. Raises ItemError (a value has no JSON form), OSError (the reader is gone)."""
        del table
        data = json_lines(items)
        out = sys.stdout  # looked up each time: a progress display may have put itself in front of a terminal
        if out.isatty():
            out.write(data.decode("utf-8"))
            out.flush()
        else:
            # Bytes, as the reader expects UTF-8 whatever this machine's locale is.
            try:
                out.flush()
                write_all(getattr(out.buffer, "raw", out.buffer), data)
            except BrokenPipeError:
                self._stop()
                raise
        return True

    def _stop(self) -> None:
        if self._left:
            return  # a second signal would cut the stop short
        self._left = True
        from loguru import logger

        logger.warning("nobody reads standard output any more: the crawl stops")
        if signal.getsignal(signal.SIGTERM) not in {
            signal.SIG_DFL,
            signal.SIG_IGN,
            None,
        }:  # somebody handles it
            os.kill(os.getpid(), signal.SIGTERM)
