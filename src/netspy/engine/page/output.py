"""What a callback may yield, turned into frontier entries and item rows.

Runs where the callback runs (a worker thread or the loop), so that a value that can't be taken is reported with the
line that yielded it, and costs only itself.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, NamedTuple

from netspy.engine.env import Env
from netspy.engine.page.callbacks import Callbacks
from netspy.errors import InvalidUrlError, ItemError, SerializationError
from netspy.messages.callbacks import callback_problem, name_of
from netspy.messages.entry import BYTES_PER_ENTRY, NewEntry
from netspy.messages.item import Item
from netspy.messages.records import class_path, fields_of, is_record, raw_row, row_of
from netspy.messages.request import Request
from netspy.messages.row import Row
from netspy.messages.urls import Ignore, require_http
from netspy.observe.faults import describe_error, user_line
from netspy.raised import failure

_FETCHABLE = ("http://", "https://")
_BAD_URLS_REMEMBERED = 2000
_DRAW_S = 1.0  # what a slow generator has yielded is not kept back for longer


class YieldSite:
    """Where values come from: whose children they are, and how to name the place in messages.

    `identity` makes the ids of children that bypass the repeat filter stable: parent entry (or seeding) + ordinal.
    `task` is the task they belong to; with `bypass` none of them is asked for by the repeat filter (what task_requests
    yields: the task is its identity). `salt` keeps apart what is alike in two batches.
    """

    __slots__ = (
        "_label", "bypass", "generator", "handed_over", "history", "identity", "ordinal", "refused", "salt", "task", "url",
    )  # fmt: skip

    def __init__(
        self,
        label: str | Callable[[], str],
        identity: bytes,
        url: str = "",
        *,
        task: str = "",
        salt: bytes = b"",
        bypass: bool = False,
    ) -> None:
        self._label = label
        self.identity = identity
        self.url = url
        self.task = task
        self.salt = salt
        self.bypass = bypass
        self.ordinal = 0
        self.generator: Any = None
        self.refused = ""  # why a value was refused, the first one
        self.handed_over = False  # some of its values are in the frontier
        self.history: str | None = None  # the store's history under which the first of them were put

    @property
    def label(self) -> str:
        """`Spider.parse`, for messages: made when one needs it."""
        if not isinstance(self._label, str):
            self._label = self._label()
        return self._label

    @label.setter
    def label(self, label: str) -> None:
        self._label = label

    def where(self) -> str:
        """`Spider.parse (main.py:14), while handling URL`."""
        frame = getattr(self.generator, "gi_frame", None) or getattr(self.generator, "ag_frame", None)
        place = (
            f" ({frame.f_code.co_filename.rsplit('/', 1)[-1]}:{frame.f_lineno})" if frame is not None else ""
        )
        return f"{self.label}{place}" + (f", while handling {self.url}" if self.url else "")


class ItemRow(NamedTuple):
    """One row with the fingerprint the item filter asks about; None = not deduplicated.

    `error`: why the item was refused; it is to be dead-lettered, with the class `item` that refused it.
    """

    row: Row
    fingerprint: bytes | None
    error: str = ""
    item: str = ""


class CallbackOutput:
    """One hand-over from a callback: what it yielded so far, whether there is more, and how it ended."""

    __slots__ = ("children", "error", "heavy", "later", "more", "rows", "verdict")

    def __init__(self) -> None:
        self.children: list[NewEntry] = []
        self.rows: list[ItemRow] = []
        self.heavy = 0  # what large requests count beyond one each
        self.more = False
        self.error: Exception | None = None
        self.verdict: bool | None = None  # what `validate` said
        self.later: Any = None  # an awaitable or async generator that a plain callback handed on

    def size(self) -> int:
        """How much it is: bounds are in requests, and a large one counts as several."""
        return len(self.children) + len(self.rows) + self.heavy


class OutputCollector:
    """Takes what one spider's callbacks yield. Thread-safe, as they run on several."""

    def __init__(
        self,
        env: Env,
        callbacks: Callbacks,
        *,
        ignore: Ignore | None = None,
        filter_items: bool = False,
    ) -> None:
        """`ignore`: what of a URL doesn't count for its fingerprint. `filter_items`: items are deduplicated."""
        self._callbacks = callbacks
        self._spider = callbacks.spider
        self._shared = env.shared
        self._table = env.settings.ITEM_DEFAULT_TABLE
        self._filter_items = filter_items
        self._validate = env.settings.ITEM_VALIDATE
        self._ignore = ignore
        self._counters = env.counters
        self._log = env.log
        self._throttled = env.throttled
        self._bad_urls: set[str] = set()
        self._good_callbacks: set[Any] = set()

    def take(self, out: CallbackOutput, value: Any, origin: YieldSite) -> None:
        """Put one yielded value into `out`; a value that can't be taken is reported and counted."""
        kind = type(value)
        if kind is Request:
            self._request(out, value, origin)
        elif kind is dict:
            out.rows.append(ItemRow(Row(self._table, fields_of(value)), None))
        elif value is None:
            return
        elif isinstance(value, Request):
            self._request(out, value, origin)
        elif isinstance(value, Item):
            self._item(out, value, origin)
        elif isinstance(value, list | tuple):
            for inner in value:
                self.take(out, inner, origin)
        elif isinstance(value, dict):
            out.rows.append(ItemRow(Row(self._table, fields_of(value)), None))
        elif is_record(kind):
            self._item(out, value, origin)
        elif callable(value) and not isinstance(value, type):
            self._call(value, origin)
        else:
            self._refuse(
                origin,
                f"yielded {kind.__name__} {_short(value)}, which netspy can't take: "
                "yield a Request, an Item, a dict, a dataclass instance, a msgspec Struct, a pydantic model, "
                "a callable, None or a list of these",
            )

    def _call(self, function: Callable[[], Any], origin: YieldSite) -> None:
        try:
            result = function()
        except BaseException as caught:
            self._refuse(origin, f"yielded {_short(function)}, which raised {_told(failure(caught))}")
        else:
            if inspect.iscoroutine(result):
                result.close()
                self._refuse(
                    origin, f"yielded {_short(function)}, which is `async def`; await it before the yield"
                )

    def _refuse(self, origin: YieldSite, text: str) -> None:
        self._counters.inc("parse_error")
        origin.refused = origin.refused or text
        self._complain(origin, text)

    def _complain(self, origin: YieldSite, text: str) -> None:
        where = origin.where()
        self._throttled.error(where.partition(", while ")[0], f"{where}: {text}")

    def entry(self, request: Request, origin: YieldSite) -> NewEntry | None:
        """A request as a frontier entry; None when it can't be taken (reported)."""
        ordinal = origin.ordinal
        origin.ordinal = ordinal + 1
        problem = self._callback_problem(request)
        if problem is not None:
            self._refuse(origin, f"yielded a request for {request.url} whose {problem}")
            return None
        try:
            if request.auto_request and not request.url.startswith(_FETCHABLE):
                require_http(request.url)  # mailto:, javascript: and the like are that link's property only
            site = request.site
            identity = request.digest(self._ignore)
            if origin.bypass or not request.filter_repeat:
                # Its place, and what it is: a page that yields something else at its second try loses nothing.
                identity = blake2b(
                    b"%s#%d#%s" % (origin.identity, ordinal, identity), digest_size=16
                ).digest()
            elif origin.salt:
                identity = blake2b(origin.salt + identity, digest_size=16).digest()
            payload: Any = request.pack() if self._shared else request
        except InvalidUrlError as error:
            self._counters.inc("invalid_url")
            origin.refused = origin.refused or str(error)
            if len(self._bad_urls) < _BAD_URLS_REMEMBERED and request.url not in self._bad_urls:
                self._bad_urls.add(request.url)
                self._log.warning("{}: request skipped: {}", origin.where(), error)
            return None
        except SerializationError as error:
            self._refuse(origin, f"yielded a request for {request.url} that can't travel: {error}")
            return None
        return NewEntry(payload, identity, request.priority, site, origin.task)

    def _callback_problem(self, request: Request) -> str | None:
        for role, callback in (
            ("callback", request.callback),
            ("errback", request.errback),
            ("download_midware", request.download_midware),
        ):
            if callback is None:
                continue
            if isinstance(callback, str):
                if callback not in self._callbacks:
                    return f"{role} is unknown: {self._callbacks.problem(callback)}"
            elif self._shared:
                key = getattr(callback, "__func__", callback)
                if key in self._good_callbacks:
                    continue
                problem = callback_problem(callback, self._spider)
                name = name_of(callback)
                if problem is None and name not in self._callbacks:
                    problem = self._callbacks.problem(str(name))
                if problem is not None:
                    return f"{role} can't be called from another process: {problem}"
                self._good_callbacks.add(key)
            elif not callable(callback):
                return f"{role} {callback!r} can't be called"
        return None

    def _request(self, out: CallbackOutput, request: Request, origin: YieldSite) -> None:
        entry = self.entry(request, origin)
        if entry is not None:
            out.children.append(entry)
            if self._shared:
                out.heavy += len(entry.payload) // BYTES_PER_ENTRY

    def _item(self, out: CallbackOutput, item: Any, origin: YieldSite) -> None:
        try:
            out.rows.append(ItemRow(*row_of(item, validate=self._validate, mark=self._filter_items)))
            return
        except ItemError as refused:
            told = f"yielded an item that can't be stored: {refused}"
            why = str(refused)
        except BaseException as caught:  # the item's own pre_to_db
            error = failure(caught)
            told = f"yielded {type(item).__name__}, whose pre_to_db raised {_told(error)}"
            why = f"pre_to_db raised {_told(error)}"
        self._complain(origin, f"{told}; it is dead-lettered")
        out.rows.append(
            ItemRow(raw_row(item), None, f"{why}, yielded by {origin.where()}", class_path(type(item)))
        )


def _told(error: Exception) -> str:
    return f"{describe_error(error)} ({user_line(error)})"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def is_async(result: Any) -> bool:
    """Whether a callback gave something that only the loop can finish: an awaitable or an async generator."""
    return hasattr(result, "__await__") or hasattr(result, "__aiter__")


def as_iterator(result: Any) -> Any:
    """What a plain callback returned, as something to draw from; None when there is nothing."""
    if result is None:
        return None
    if hasattr(result, "__next__"):
        return result
    if isinstance(result, list | tuple):
        return iter(result)
    return iter((result,))


def draw(iterator: Any, take: Callable[[Any], None], size: Callable[[], int], limit: int) -> bool:
    """Draw values until `limit` are gathered, a second is over or the iterator ends; True when there may be more."""
    until = time.monotonic() + _DRAW_S
    for value in iterator:
        take(value)
        if size() >= limit or (time.monotonic() > until and size()):
            return True
    return False
