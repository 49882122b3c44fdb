"""What user code asks for beside requests and items, and the page or task that it runs for.

Light: the spider classes import it.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol


class Action(NamedTuple):
    """`kind` names who carries it out. `on_success`: dropped when the callback raises, since the page comes again."""

    kind: str
    value: Any
    on_success: bool = False


class Soon(Protocol):
    """Carries out an action that waits for nothing. Any thread may call it."""

    def do_soon(self, action: Action) -> None: ...  # noqa: D102 - as the class says


class CurrentPage(Protocol):
    """What the spider classes may touch of the page at work, or of the task that task_requests draws."""

    actions: list[Action]
    reported: bool

    @property
    def task(self) -> str: ...  # noqa: D102 - the task it belongs to, '' for none
    @property
    def effects(self) -> Soon | None: ...  # noqa: D102 - who carries actions out; None where there are no tasks


current: ContextVar[CurrentPage | None] = ContextVar("netspy_page", default=None)
"""The page whose callback or hook runs here, or the task whose task_requests does; None outside of them."""
