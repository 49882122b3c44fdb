"""What a spider's `fetch_tasks` gives, as a list of tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from netspy.engine.page.callbacks import kind_of
from netspy.engine.page.output import is_async
from netspy.engine.page.threads import CallbackPool
from netspy.errors import SerializationError, SpiderError
from netspy.messages import codec


async def fetched(fetch: Callable[[int], Any], limit: int, pool: CallbackPool) -> list[Any]:
    """The tasks. Plain functions and generators run on a worker thread, others on the loop. Raises what the user's code
    raises, and SpiderError when it gives no tasks.
    """

    def plain() -> Any:
        result = fetch(limit)
        return result if is_async(result) else _listed(result)

    result = await pool.call(plain) if kind_of(fetch) == "plain" else fetch(limit)
    if hasattr(result, "__aiter__"):
        return [task async for task in result]
    return result if isinstance(result, list) else _listed(await result)


def _listed(result: Any) -> list[Any]:
    if result is None:
        return []
    if isinstance(result, str | bytes | dict) or not isinstance(result, Iterable):
        raise SpiderError(f"it returned {type(result).__name__} {result!r:.100}; return a list of tasks")
    return list(result)


def travelling(tasks: Sequence[Any]) -> tuple[list[Any], list[str]]:
    """Those that can be sent, and why others can't."""
    good: list[Any] = []
    trouble: list[str] = []
    for task in tasks:
        try:
            codec.encode(task, f"task {task!r:.80}")
        except SerializationError as error:
            trouble.append(str(error))
        else:
            good.append(task)
    return good, trouble
