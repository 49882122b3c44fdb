"""What went wrong in the user's code, told by the user's own line and not by ours.

A traceback of a crawl is mostly frames of netspy, asyncio and libraries; what helps is the last line that the
user wrote.
"""

from __future__ import annotations

import os
import traceback
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

MAX_TEXT = 300
"""Characters of an exception's message that are shown; a parser error may quote a whole page."""

_PACKAGE = str(Path(__file__).resolve().parent.parent) + os.sep
_STDLIB = str(Path(os.__file__).resolve().parent) + os.sep


@lru_cache(maxsize=1024)
def is_user_file(filename: str) -> bool:
    """Whether a frame's file is the user's: not netspy, the standard library or an installed package."""
    if filename.startswith("<"):
        return False
    path = os.path.realpath(filename)
    if f"{os.sep}site-packages{os.sep}" in path or f"{os.sep}dist-packages{os.sep}" in path:
        return False
    return not path.startswith((_PACKAGE, _STDLIB))


def where(exc: BaseException) -> str:
    """`file.py:line` of the last user frame that led to `exc`; empty when there is none."""
    found: TracebackType | None = None
    step = exc.__traceback__
    while step is not None:
        if is_user_file(step.tb_frame.f_code.co_filename):
            found = step
        step = step.tb_next
    if found is None:
        return ""
    return f"{Path(found.tb_frame.f_code.co_filename).name}:{found.tb_lineno}"


def what(exc: BaseException, limit: int = MAX_TEXT) -> str:
    """`Type: message` on one line, the message cut at `limit` characters; also when its `str()` raises."""
    try:
        text = " ".join(str(exc).split())
    except Exception as broken:
        text = f"(its message can't be shown: {type(broken).__name__})"
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
