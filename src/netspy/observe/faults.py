"""What went wrong in the user's code, told by the user's own line and not by ours.

A traceback of a crawl is mostly frames of netspy, asyncio and libraries; what helps is the last line that the
user wrote.
"""

from __future__ import annotations

import os
import site
import sys
import sysconfig
import traceback
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from netspy.errors import message_of

MAX_TEXT = 300
"""Characters of an exception's message that are shown; a parser error may quote a whole page."""

_PACKAGE = str(Path(__file__).resolve().parent.parent) + os.sep
"""netspy's own folder, exactly: a checkout and a user's project may be in folders that are called netspy too."""

_INSTALLED = tuple(
    os.path.realpath(path) + os.sep
    for path in {
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        *site.getsitepackages([sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix]),
        site.getusersitepackages(),
    }
)
"""Where the standard library and installed packages are."""


@lru_cache(maxsize=1024)
def _is_not_ours(filename: str) -> bool:
    return not os.path.realpath(filename).startswith(_PACKAGE)


@lru_cache(maxsize=1024)
def is_user_file(filename: str) -> bool:
    """Whether a frame's file is the user's: not netspy, the standard library or an installed package."""
    if filename.startswith("<"):
        return False
    return not os.path.realpath(filename).startswith((_PACKAGE, *_INSTALLED))


def where(exc: BaseException) -> str:
    """`file.py:line` of the last user frame that led to `exc`; empty when there is none."""
    own = _lines(exc, is_user_file)
    return own[-1] if own else ""


def user_line(exc: BaseException) -> str:
    """`where`; for a spider that is an installed package, the frame that netspy called. `?` when there is none."""
    return where(exc) or next(iter(_lines(exc, _is_not_ours)), "?")


def _lines(exc: BaseException, wanted: Callable[[str], bool]) -> list[str]:
    return [
        f"{Path(frame.f_code.co_filename).name}:{line}"
        for frame, line in traceback.walk_tb(exc.__traceback__)
        if wanted(frame.f_code.co_filename)
    ]


def describe_error(exc: BaseException, limit: int = MAX_TEXT) -> str:
    """`Type: message` on one line, the message cut at `limit` characters; also when its `str()` raises."""
    text = " ".join(message_of(exc).split())
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    name = type(exc).__name__
    return f"{name}: {text}" if text else name


def short_traceback(exc: BaseException, *, full: bool = False) -> str:
    """The traceback of `exc` with the user's frames only; all frames when there are none or with `full`.

    Causes and contexts are kept, as Python prints them. Ends with a newline.
    """
    whole = traceback.TracebackException.from_exception(exc)
    if not full:
        seen: set[int] = set()
        step: traceback.TracebackException | None = whole
        while step is not None and id(step) not in seen:
            seen.add(id(step))
            own = [frame for frame in step.stack if is_user_file(frame.filename)]
            if own:
                step.stack = traceback.StackSummary.from_list(own)
            step = step.__cause__ or (None if step.__suppress_context__ else step.__context__)
    return "".join(whole.format())
