"""JSON lines on standard output, for a program that reads them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from netspy.pipelines.base import BasePipeline
from netspy.pipelines.values import json_lines

if TYPE_CHECKING:
    from collections.abc import Sequence


class StdoutPipeline(BasePipeline):
    """Writes one JSON object per item to standard output, UTF-8, of whatever table. Nothing else is written
    there but the run's summary, which is the last line. An UpdateItem is refused.
    """

    def where(self) -> str:
        """For the run's summary."""
        return "standard output"

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
            out.flush()
            out.buffer.write(data)
            out.buffer.flush()
        return True
