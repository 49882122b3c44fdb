"""A small web site on loopback for tests and demos: real sockets, real keep-alive, and it counts every fetch.

    with LocalSite() as site:
        site.route("/news", "<h1>Hello</h1>")
        site.route("/flaky", "fine at last", fail_first=2)
        site.route("/item/", lambda request: f"<p>{request.path}</p>", prefix=True)
        ...
        assert site.hits("/news") == 1

Runs in a thread with a loop of its own. As a process: `python -m netspy.testing.site FOLDER` serves a folder.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from netspy.testing.folder import FolderRoute
from netspy.testing.wire import Answer, Connection, Headers, Incoming

if TYPE_CHECKING:
    import ssl
    from types import TracebackType

__all__ = ["Answer", "Handler", "Hit", "Incoming", "LocalSite"]

Handler = Callable[[Incoming], Any]
"""Called on the site's loop, plain or async; gives an Answer, a body, a status (int), or None for 404."""


class Hit(NamedTuple):
    """One request in the log. `time` is on the monotonic clock; `path` is the target with its query."""

    time: float
    path: str
    method: str
    headers: dict[str, str]


class _Route(NamedTuple):
    answer: Answer
    handler: Handler | None
    fail_first: int
    fail_status: int


class LocalSite:
    """An HTTP/1.1 server on a free loopback port; a context manager. All methods are thread-safe."""

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        keep_log: bool = True,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        """`port` 0 takes a free one. Without `keep_log` only counts are kept, so a long run stays small."""
        self.host = host
        self.port = port
        self.log: list[Hit] = []
        self.connections = 0  #: accepted so far
        self.in_flight = 0  #: requests being answered
        self.peak = 0  #: the most requests that were being answered at once
        self.total = 0  #: requests so far
        self._keep_log = keep_log
        self._ssl = ssl_context
        self._routes: dict[str, _Route] = {}
        self._prefixes: list[tuple[str, _Route]] = []  # longest first
        self._by_path: Counter[str] = Counter()
        self._by_target: Counter[str] = Counter()
        self._open: set[Connection] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._emptied: asyncio.Event | None = None  # no connection is open
        self._error: BaseException | None = None

    # ---- routes

    def route(
        self,
        path: str,
        body: Any = "",
        *,
        status: int = 200,
        headers: Headers | None = None,
        content_type: str | None = None,
        charset: str | None = None,
        delay: float = 0.0,
        fail_first: int = 0,
        fail_status: int = 500,
        drop: bool = False,
        hang: bool = False,
        prefix: bool = False,
    ) -> str:
        """Answer `path` (or with `prefix` all paths that start with it) and return its URL.

        A path with a query matches that target alone and goes before the bare path. `body` is bytes, text
        (encoded in `charset`, default UTF-8), any JSON value, or a callable that gets the Incoming request
        and gives an Answer, a body, an int (a status) or None (404). `delay` is in seconds. The first
        `fail_first` requests of each path get `fail_status`. `drop` closes the connection without an answer,
        `hang` never answers.
        """
        handler = body if callable(body) else None
        answer = Answer(
            b"" if handler else body,
            status=status,
            headers=headers if headers is not None else {},
            content_type=content_type,
            charset=charset,
            delay=delay,
            drop=drop,
            hang=hang,
        )
        entry = _Route(answer, handler, fail_first, fail_status)
        if prefix:
            others = [(known, other) for known, other in self._prefixes if known != path]
            self._prefixes = sorted([*others, (path, entry)], key=lambda pair: -len(pair[0]))
        else:
            self._routes[path] = entry
        return self.url(path)

    def fallback(self, handler: Handler) -> None:
        """Answer every path that no route takes."""
        self.route("", handler, prefix=True)

    def serve_folder(self, prefix: str, path: str | Path) -> str:
        """Serve the files of a folder below `prefix`: content types, index.html, 404. Returns the URL."""
        prefix = "/" + prefix.strip("/")
        below = prefix if prefix.endswith("/") else prefix + "/"
        if prefix != below:
            self.route(prefix, status=301, headers={"Location": below})
        return self.route(below, FolderRoute(Path(path), below), prefix=True)

    def unroute(self, path: str) -> None:
        """Forget a path or a prefix; it answers 404 from now on."""
        self._routes.pop(path, None)
        self._prefixes = [(known, entry) for known, entry in self._prefixes if known != path]

    # ---- what happened

    def url(self, path: str = "/") -> str:
        """The absolute URL of a path."""
        scheme = "https" if self._ssl else "http"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{self.port}{path}"

    def hits(self, path: str) -> int:
        """How often a path was asked for, whatever its query; with a query in `path`, that target alone."""
        with self._changed:
            return (self._by_target if "?" in path else self._by_path)[path]

    def all_hits(self) -> dict[str, int]:
        """Requests per target (path with query)."""
        with self._changed:
            return dict(self._by_target)

    def clear(self) -> None:
        """Forget the log and all counts (and so begin `fail_first` again); routes stay."""
        with self._changed:
            self.log.clear()
            self._by_path.clear()
            self._by_target.clear()
            self.total = self.peak = 0

    def wait_hits(self, count: int, timeout: float = 30.0, *, path: str | None = None) -> None:
        """Wait until there were `count` requests (for `path` if given). Raises TimeoutError."""
        counter = self._by_target if path and "?" in path else self._by_path

        def seen() -> int:
            return self.total if path is None else counter[path]

        with self._changed:
            if not self._changed.wait_for(lambda: seen() >= count, timeout):
                what = f"of {path}" if path else "in all"
                raise TimeoutError(f"{seen()} of {count} requests {what} after {timeout:g} s at {self.url()}")

    def wait_until(self, condition: Callable[[], bool], timeout: float = 30.0) -> None:
        """Wait until `condition()` is true; it is asked after each request and answer; or TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(condition, timeout):
                raise TimeoutError(
                    f"the condition was not met in {timeout:g} s at {self.url()} ({self.total} requests)"
                )

    # ---- life

    def start(self) -> Self:
        """Listen; returns when the port is open. Raises OSError when it can't be had."""
        if self._thread is not None:
            raise RuntimeError(f"the site at {self.url()} is already running")
        ready = threading.Event()
        self._error = None
        self._thread = threading.Thread(target=self._run, args=(ready,), name="local-site", daemon=True)
        self._thread.start()
        ready.wait()
        if self._error is not None:
            self.stop()
            raise self._error
        return self

    def stop(self) -> None:
        """Close the port and every connection. Safe to call twice; `start` opens the same port again."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        thread.join()
        self._loop = self._stop = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self, ready: threading.Event) -> None:
        with asyncio.Runner() as runner:
            try:
                runner.run(self._listen(ready))
            except OSError as error:
                self._error = error
                ready.set()

    async def _listen(self, ready: threading.Event) -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: Connection(self, loop), self.host, self.port, ssl=self._ssl, backlog=1024
        )
        self.port = server.sockets[0].getsockname()[1]
        self._loop, self._stop, self._emptied = loop, asyncio.Event(), asyncio.Event()
        ready.set()
        await self._stop.wait()
        server.close()
        for connection in list(self._open):
            connection.abort()
        if self._open:
            await self._emptied.wait()

    # ---- called by connections, on the site's loop

    def opened(self, connection: Connection) -> None:
        """Count an accepted connection."""
        self._open.add(connection)
        if self._emptied is not None:
            self._emptied.clear()
        with self._changed:
            self.connections += 1

    def closed(self, connection: Connection) -> None:
        """Forget a connection."""
        self._open.discard(connection)
        if not self._open and self._emptied is not None:
            self._emptied.set()

    def done(self) -> None:
        """Count an answer."""
        with self._changed:
            self.in_flight -= 1
            self._changed.notify_all()

    def respond(self, request: Incoming) -> Answer | Awaitable[Answer]:
        """Count a request and give its answer."""
        with self._changed:
            self.total += 1
            self.in_flight += 1
            self.peak = max(self.peak, self.in_flight)
            self._by_path[request.path] += 1
            self._by_target[request.target] += 1
            request.hits = self._by_path[request.path]
            if self._keep_log:
                self.log.append(Hit(time.monotonic(), request.target, request.method, request.headers))
            self._changed.notify_all()
        entry = self._find(request)
        if entry is None:
            return _not_found(request)
        if request.hits <= entry.fail_first:
            return Answer("try again", entry.fail_status, content_type="text/plain", delay=entry.answer.delay)
        if entry.handler is None:
            return entry.answer
        try:
            given = entry.handler(request)
        except Exception as error:
            return _broken(request, error)
        if inspect.isawaitable(given):
            return self._awaited(request, entry, given)
        return _as_answer(request, entry, given)

    async def _awaited(self, request: Incoming, entry: _Route, given: Awaitable[Any]) -> Answer:
        try:
            return _as_answer(request, entry, await given)
        except Exception as error:
            return _broken(request, error)

    def _find(self, request: Incoming) -> _Route | None:
        entry = self._routes.get(request.target) or self._routes.get(request.path)
        if entry is not None:
            return entry
        return next((entry for known, entry in self._prefixes if request.path.startswith(known)), None)


def _as_answer(request: Incoming, entry: _Route, given: Any) -> Answer:
    """What a handler gave, as an answer that takes the route's other properties."""
    if isinstance(given, Answer):
        return given
    if given is None:
        return _not_found(request)
    known = entry.answer
    status, body = (given, b"") if isinstance(given, int) else (known.status, given)
    return Answer(
        body,
        status=status,
        headers=known.headers,
        content_type=known.content_type,
        charset=known.charset,
        delay=known.delay,
        drop=known.drop,
        hang=known.hang,
    )


def _not_found(request: Incoming) -> Answer:
    return Answer(f"nothing at {request.path}", status=404, content_type="text/plain")


def _broken(request: Incoming, error: Exception) -> Answer:
    """A handler's exception as a 500 that names it, so that the test which meets it can tell why."""
    return Answer(f"{request.path}: {type(error).__name__}: {error}", status=500, content_type="text/plain")


def main(argv: list[str] | None = None) -> int:
    """Serve a folder until SIGINT or SIGTERM."""
    import argparse

    from netspy.testing.process import add_process_arguments, serve_until_told

    parser = argparse.ArgumentParser(
        prog="python -m netspy.testing.site", description="Serve a folder on loopback."
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--prefix", default="/", help="path under which the files appear (default: /)")
    add_process_arguments(parser)
    options = parser.parse_args(argv)
    if not options.folder.is_dir():
        parser.error(f"{options.folder} is no folder")
    site = LocalSite(port=options.port, keep_log=False)
    site.serve_folder(options.prefix, options.folder)
    return serve_until_told(site, options, path=options.prefix)


if __name__ == "__main__":
    raise SystemExit(main())
