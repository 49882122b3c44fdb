"""A TCP proxy that does to a connection what networks do: cut it, stall it, slow it, lose a reply.

with FaultProxy("127.0.0.1", server.port) as proxy:
    client = redis.Redis(port=proxy.port)
    proxy.drop_next_reply(b"EVALSHA")   # the script runs, its answer never arrives
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self, cast

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType


@dataclass(slots=True)
class _Network:
    """What the proxy does to its links just now, and what it counts. Touched on the proxy's loop only."""

    connect: Callable[[_Far], Awaitable[asyncio.BaseTransport]]
    cut: bool = False
    stalled: bool = False
    delay: float = 0.0
    traps: list[bytes | None] = field(default_factory=list)
    links: set[_Link] = field(default_factory=set)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    connections: int = 0
    dropped: int = 0
    changed: threading.Condition = field(default_factory=threading.Condition)
    emptied: asyncio.Event | None = None

    def abort_all(self) -> None:
        for link in list(self.links):
            link.abort()


class FaultProxy:
    """Forwards a free loopback port (or `listen_on`) to `host:port`, or to a unix socket path. Methods are thread-safe.

    Each method has taken effect when it returns.
    """

    def __init__(
        self, host: str = "127.0.0.1", port: int = 0, *, unix: str | None = None, listen_on: int = 0
    ) -> None:
        self.host = "127.0.0.1"
        self.port = listen_on
        self._target = (host, port)
        self._unix = unix
        self._network = _Network(self._connect)
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    @property
    def connections(self) -> int:
        """Connections accepted so far."""
        return self._network.connections

    @property
    def dropped(self) -> int:
        """Replies lost by `drop_next_reply` so far."""
        return self._network.dropped

    def redis_url(self, database: int = 0) -> str:
        """The proxy's address as a Redis URL without a password."""
        return f"redis://{self.host}:{self.port}/{database}"

    def cut(self) -> None:
        """Reset every connection, and every new one, until `resume`."""
        self._call(self._do_cut)

    def reset(self) -> None:
        """Reset the present connections; new ones work."""
        self._call(self._network.abort_all)

    def stall(self) -> None:
        """Hold all bytes in both directions until `resume`; connections stay open, new ones are accepted."""
        self._call(lambda: setattr(self._network, "stalled", True))

    def resume(self) -> None:
        """End `cut`, `stall` and `delay`; held bytes go on, in their order."""
        self._call(self._do_resume)

    def delay(self, seconds: float) -> None:
        """Let all data, in each direction, arrive that much later, until `resume`."""
        self._call(lambda: setattr(self._network, "delay", seconds))

    def drop_next_reply(self, containing: bytes | None = None) -> None:
        """Lose one reply: the next request (that contains these bytes) is forwarded, its answer isn't.

        The connection is reset when the answer arrives, so the client can't tell whether the request was
        carried out. May be called several times to lose several replies.
        """
        self._call(lambda: self._network.traps.append(containing))

    def wait_dropped(self, count: int = 1, timeout: float = 30.0) -> None:
        """Wait until `count` replies in all were lost. Raises TimeoutError."""
        with self._network.changed:
            if not self._network.changed.wait_for(lambda: self.dropped >= count, timeout):
                raise TimeoutError(f"{self.dropped} of {count} replies were lost after {timeout:g} s")

    # ---- life

    def start(self) -> Self:
        """Listen; returns when the port is open."""
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), name="fault-proxy", daemon=True)
        self._thread.start()
        ready.wait()
        return self

    def close(self) -> None:
        """Reset all connections and close the port. Safe to call twice."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        thread.join()
        self._loop = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, ready: threading.Event) -> None:
        try:
            asyncio.run(self._listen(ready))
        finally:
            ready.set()

    async def _listen(self, ready: threading.Event) -> None:
        loop, network = asyncio.get_running_loop(), self._network
        network.emptied = asyncio.Event()
        server = await loop.create_server(lambda: _Link(network, loop), self.host, self.port)
        self.port = server.sockets[0].getsockname()[1]
        self._loop, self._stop = loop, asyncio.Event()
        ready.set()
        await self._stop.wait()
        server.close()
        for task in list(network.tasks):
            task.cancel()
        await asyncio.gather(*network.tasks, return_exceptions=True)
        network.abort_all()
        if network.links:
            await network.emptied.wait()

    async def _connect(self, far: _Far) -> asyncio.BaseTransport:
        loop = asyncio.get_running_loop()
        if self._unix is not None:
            return (await loop.create_unix_connection(lambda: far, self._unix))[0]
        return (await loop.create_connection(lambda: far, *self._target))[0]

    def _call(self, act: Callable[[], None]) -> None:
        """Run `act` on the proxy's loop and wait until it has run, and until what it aborts is closed.

        An aborted transport closes its socket in the loop's next round, thus `done` is set behind it.
        """
        loop = self._loop
        if loop is None:
            act()
            return
        done = threading.Event()

        def go() -> None:
            try:
                act()
            finally:
                loop.call_soon(done.set)

        loop.call_soon_threadsafe(go)
        done.wait()

    def _do_cut(self) -> None:
        self._network.cut = True
        self._network.abort_all()

    def _do_resume(self) -> None:
        network = self._network
        network.cut = network.stalled = False
        network.delay = 0.0
        for link in list(network.links):
            link.release()


class _Link(asyncio.Protocol):
    """One client's connection and its counterpart to the target."""

    def __init__(self, network: _Network, loop: asyncio.AbstractEventLoop) -> None:
        self._network = network
        self._loop = loop
        self._client: asyncio.Transport | None = None
        self._server: asyncio.Transport | None = None
        self._held: deque[tuple[float, bool, bytes]] = deque()  # (due, to the server?, data), as they came
        self._timer: asyncio.TimerHandle | None = None
        self._doomed = False  # the next answer is lost, and the connection with it
        self._far_is_gone = False
        self._over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._client = cast("asyncio.Transport", transport)
        network = self._network
        network.connections += 1
        network.links.add(self)
        if network.cut:
            self.abort()
            return
        task = self._loop.create_task(self._dial())
        network.tasks.add(task)
        task.add_done_callback(network.tasks.discard)

    async def _dial(self) -> None:
        try:
            transport = await self._network.connect(_Far(self))
        except OSError:
            self.abort()
            return
        self._server = cast("asyncio.Transport", transport)
        if self._over:
            self._server.abort()
        else:
            self._pump()

    def data_received(self, data: bytes) -> None:
        traps = self._network.traps
        for position, wanted in enumerate(traps):
            if wanted is None or wanted in data:
                del traps[position]
                self._doomed = True
                break
        self.take(data, to_server=True)

    def take(self, data: bytes, *, to_server: bool) -> None:
        """Forward these bytes when their time comes; an answer that is to be lost ends the link."""
        if not to_server and self._doomed:
            with self._network.changed:
                self._network.dropped += 1
                self._network.changed.notify_all()
            self.abort()
            return
        self._held.append((self._loop.time() + self._network.delay, to_server, data))
        self._pump()

    def release(self) -> None:
        """Send all that is held, due or not."""
        self._held = deque((0.0, to_server, data) for _due, to_server, data in self._held)
        self._pump()

    def _pump(self) -> None:
        """Send what is due, as far as both sides are there and nothing stalls."""
        if self._network.stalled or self._server is None or self._client is None or self._over:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._held:
            due, to_server, data = self._held[0]
            if due > self._loop.time():
                self._timer = self._loop.call_at(due, self._pump)
                return
            self._held.popleft()
            (self._server if to_server else self._client).write(data)
        if self._far_is_gone:
            self._client.close()

    def abort(self) -> None:
        """Reset both sides."""
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
        for transport in (self._client, self._server):
            if transport is not None:
                transport.abort()

    def far_lost(self) -> None:
        """The target closed its side; the client's ends after what it still gets."""
        self._far_is_gone = True
        self._pump()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
        if self._server is not None:
            self._server.close()
        self._network.links.discard(self)
        if not self._network.links and self._network.emptied is not None:
            self._network.emptied.set()


class _Far(asyncio.Protocol):
    """The connection to the target."""

    def __init__(self, link: _Link) -> None:
        self._link = link

    def data_received(self, data: bytes) -> None:
        self._link.take(data, to_server=False)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._link.far_lost()
