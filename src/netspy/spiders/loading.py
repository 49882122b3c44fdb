"""While a command reads a spider's file, no line of the file starts a crawl: `netspy reset main.py` must not be one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from netspy.errors import ConfigError

if TYPE_CHECKING:
    from netspy.spiders.base import BaseParser  # which imports this file

_files: list[str] = []


class StartedWhileLoadingError(ConfigError):
    """The file starts its spider where it should only define it."""


@contextmanager
def only_loading(file: str) -> Iterator[None]:
    """Within this, starting a spider raises StartedWhileLoadingError. `file` is for the message."""
    _files.append(file)
    try:
        yield
    finally:
        _files.pop()


def may_start(spider: BaseParser) -> None:
    """Called by all that start a crawl. Raises StartedWhileLoadingError."""
    if _files:
        raise StartedWhileLoadingError(
            f"{spider.name} is started while {_files[-1]} is loaded; put that line below "
            '`if __name__ == "__main__":`, where only `python FILE` gets to'
        )
