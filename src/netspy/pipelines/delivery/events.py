"""What happens to pipelines, as it is told to whoever listens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from netspy.pipelines.errors import cause_of

if TYPE_CHECKING:
    from collections.abc import Callable

EventKind = Literal["retry", "down", "up", "dead_letter", "stuck", "no_pipeline", "close_failed"]


class PipelineEvent(NamedTuple):
    """Something worth a log line; `down`, `up`, `dead_letter` and `stuck` are worth an alarm.

    retry: a batch failed and will be tried again. down: not one row of a batch could be stored. up: it
    works again. dead_letter: rows went to the dead-letter file. stuck: not even that was possible.
    no_pipeline: there are items and nothing to keep them. close_failed: `close` raised or took too long.
    `cause` is the error without what differs from row to row; empty where there is none.
    """

    kind: EventKind
    pipeline: str
    table: str
    rows: int
    message: str
    cause: str = ""


class Events:
    """Passes events on to a listener, if there is one."""

    def __init__(self, listener: Callable[[PipelineEvent], None] | None) -> None:
        self._listener = listener

    def tell(
        self, kind: EventKind, pipeline: str, table: str, rows: int, message: str, *, error: str = ""
    ) -> None:
        """Never raises; `error` is the text whose cause is told."""
        if self._listener is None:
            return
        try:
            self._listener(PipelineEvent(kind, pipeline, table, rows, message, cause_of(error)))
        except Exception:  # whoever listens must not cost an item
            from loguru import logger

            logger.exception("the listener of pipeline events failed at {}: {}", kind, message)
