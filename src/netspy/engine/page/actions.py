"""What callbacks ask for beside requests and items, and the page that they run for. Light: the spider classes import it."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from netspy.engine.page.page import Page

current: ContextVar[Page | None] = ContextVar("netspy_page", default=None)
"""The page whose callback or hook runs here; None outside of them."""

reports: ContextVar[list[Any] | None] = ContextVar("netspy_reports", default=None)
"""Where ids are noted that `update_task` reports outside of a page; None where nobody wants to know."""


class Action(NamedTuple):
    """`kind` names who carries it out. `on_success`: dropped when the callback raises, since the page comes again."""

    kind: str
    value: Any
    on_success: bool = False
