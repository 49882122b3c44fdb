"""Console: one line per item on standard output."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Any

from netspy.pipelines.base import BasePipeline
from netspy.pipelines.values import clean_text, json_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

# JSON escapes what is below a space; the rest of the control characters can steer a terminal as well.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


class ConsolePipeline(BasePipeline):
    """Prints `<table> <JSON>` per item, `<table> update by <keys> <JSON>` for an UpdateItem.

    Colours appear only on a terminal, and not when NO_COLOR is set or LOG_COLOR is off. Nothing is kept:
    use it to look, beside a pipeline that stores.
    """

    def is_away(self, error: Exception) -> bool:
        """A reader that has left doesn't come back."""
        del error
        return False

    def save_items(self, table: str, items: Sequence[dict[str, Any]]) -> bool:
        """Print the batch. Raises ItemError for a value without a JSON form."""
        self._print(table, "", items)
        return True

    def update_items(self, table: str, items: Sequence[dict[str, Any]], update_keys: Sequence[str]) -> bool:
        """Print the batch."""
        self._print(table, f" update by {', '.join(update_keys)}", items)
        return True

    def _print(self, table: str, what: str, items: Sequence[dict[str, Any]]) -> None:
        out = sys.stdout  # looked up each time: a progress display may have put itself in front of it
        head = _visible(table)
        if self._colours():
            head = f"\x1b[36m{head}\x1b[0m"
        head += _visible(what)
        text = "".join(f"{head} {_visible(json_bytes(item).decode('utf-8'))}\n" for item in items)
        try:
            out.write(text)
        except UnicodeEncodeError:  # a terminal or a pipe that isn't UTF-8
            encoding = getattr(out, "encoding", None) or "ascii"
            out.write(text.encode(encoding, "backslashreplace").decode(encoding))
        out.flush()

    def _colours(self) -> bool:
        return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and self.settings.LOG_COLOR


def _visible(text: str) -> str:
    return _CONTROL.sub(lambda m: f"\\u{ord(m[0]):04x}", clean_text(text))
