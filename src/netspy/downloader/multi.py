"""libcurl's multi handle on an asyncio loop: one reader for all sockets, one timer, no polling.

libcurl says which sockets it watches and when it wants to be woken (curl_multi_socket_action). On Linux the
sockets go into an epoll set of our own, and only that set's descriptor is given to the loop: readiness
arrives in batches, and a socket that comes and goes with every request costs one system call instead of a
handle of the loop. Elsewhere each socket is given to the loop.

The binding is curl_cffi's, used below its Curl and AsyncCurl classes: those copy callbacks and options for
every transfer and wake up ten times a second.
"""

from __future__ import annotations

import select
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

wrapper = import_module("curl_cffi._wrapper")
ffi: Any = wrapper.ffi
lib: Any = wrapper.lib

# curl/multi.h
POLL_IN, POLL_OUT, POLL_REMOVE = 1, 2, 4
CSELECT_IN, CSELECT_OUT, CSELECT_ERR = 1, 2, 4
SOCKET_TIMEOUT = -1
MSG_DONE = 1
M_SOCKETFUNCTION, M_TIMERFUNCTION, M_MAXCONNECTS = 20001, 20004, 6
OK = 0
WEIRD_REPLY = 8
ABORTED_BY_CALLBACK = 42

Ready = list[tuple[int, int]]  # descriptor, CSELECT_ bits


class Watcher(Protocol):
    """Tells when sockets are ready."""

    def watch(self, fd: int, interest: int) -> None:
        """Watch `fd` for POLL_IN and POLL_OUT bits from now on."""

    def forget(self, fd: int) -> None:
        """Watch `fd` no longer."""

    def close(self) -> None:
        """Forget all."""


class EpollWatcher:
    """All sockets in one epoll set, the set in the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_ready: Callable[[Ready], None]) -> None:
        self._loop = loop
        self._on_ready = on_ready
        self._epoll = select.epoll()
        self._interest: dict[int, int] = {}
        loop.add_reader(self._epoll.fileno(), self._drain)

    def watch(self, fd: int, interest: int) -> None:
        """See Watcher.watch."""
        mask = (select.EPOLLIN if interest & POLL_IN else 0) | (select.EPOLLOUT if interest & POLL_OUT else 0)
        before = self._interest.get(fd)
        if before is None:
            self._epoll.register(fd, mask)
        elif before != mask:
            self._epoll.modify(fd, mask)
        self._interest[fd] = mask

    def forget(self, fd: int) -> None:
        """See Watcher.forget."""
        if self._interest.pop(fd, None) is not None:
            try:
                self._epoll.unregister(fd)
            except OSError:
                return  # closed already, which takes it out of the set

    def _drain(self) -> None:
        ready: Ready = []
        for fd, event in self._epoll.poll(0):
            bits = 0
            if event & (select.EPOLLIN | select.EPOLLHUP):
                bits = CSELECT_IN
            if event & select.EPOLLOUT:
                bits |= CSELECT_OUT
            if event & select.EPOLLERR:
                bits |= CSELECT_ERR
            ready.append((fd, bits))
        self._on_ready(ready)

    def close(self) -> None:
        """See Watcher.close."""
        if not self._epoll.closed:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._interest.clear()


class LoopWatcher:
    """Each socket as a reader and writer of the loop, where there is no epoll."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_ready: Callable[[Ready], None]) -> None:
        self._loop = loop
        self._on_ready = on_ready
        self._interest: dict[int, int] = {}

    def watch(self, fd: int, interest: int) -> None:
        """See Watcher.watch."""
        changed = self._interest.get(fd, 0) ^ interest
        if changed & POLL_IN:
            if interest & POLL_IN:
                self._loop.add_reader(fd, self._on_ready, [(fd, CSELECT_IN)])
            else:
                self._loop.remove_reader(fd)
        if changed & POLL_OUT:
            if interest & POLL_OUT:
                self._loop.add_writer(fd, self._on_ready, [(fd, CSELECT_OUT)])
            else:
                self._loop.remove_writer(fd)
        self._interest[fd] = interest

    def forget(self, fd: int) -> None:
        """See Watcher.forget."""
        self.watch(fd, 0)
        del self._interest[fd]

    def close(self) -> None:
        """See Watcher.close."""
        for fd in list(self._interest):
            self.forget(fd)


class Multi:
    """Runs easy handles side by side; their connections, DNS answers and TLS sessions are shared."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        max_connects: int,
        watcher: Callable[[asyncio.AbstractEventLoop, Callable[[Ready], None]], Watcher] | None = None,
    ) -> None:
        """`max_connects` idle and busy connections are kept; it must lie above the number of transfers at
        a time.
        """
        self._loop = loop
        self._handle: Any = lib.curl_multi_init()
        make = watcher or (EpollWatcher if hasattr(select, "epoll") else LoopWatcher)
        self._watcher = make(loop, self._on_ready)
        self._waiting: dict[Any, asyncio.Future[int]] = {}  # easy handle -> its CURLcode to be
        self._running = ffi.new("int *")
        self._queued = ffi.new("int *")
        self._timer: asyncio.TimerHandle | None = None
        self._kick: asyncio.Handle | None = None
        # libcurl keeps the pointers only; the closures live as long as these names.
        self._socket_function = ffi.callback("int(void *, int, int, void *, void *)", self._on_socket)
        self._timer_function = ffi.callback("int(void *, long, void *)", self._on_timer)
        lib.curl_multi_setopt(self._handle, M_SOCKETFUNCTION, self._socket_function)
        lib.curl_multi_setopt(self._handle, M_TIMERFUNCTION, self._timer_function)
        # The binding hands the value on as it is: no pointer to it.
        lib.curl_multi_setopt(self._handle, M_MAXCONNECTS, ffi.cast("void *", max_connects))

    def start(self, easy: Any) -> asyncio.Future[int]:
        """Run an easy handle; the future gives its CURLcode. The handle is free again when the future is
        done.
        """
        done: asyncio.Future[int] = self._loop.create_future()
        code = lib.curl_multi_add_handle(self._handle, easy)
        if code != OK:
            raise RuntimeError(f"curl_multi_add_handle: {ffi.string(lib.curl_multi_strerror(code)).decode()}")
        self._waiting[easy] = done
        return done

    def stop(self, easy: Any, code: int = ABORTED_BY_CALLBACK) -> None:
        """End a transfer now: its connection is closed, its future (if it still runs) gets `code`.

        Never called from inside a libcurl callback, which libcurl forbids.
        """
        done = self._waiting.pop(easy, None)
        if done is None:
            return
        lib.curl_multi_remove_handle(self._handle, easy)
        if not done.done():
            done.set_result(code)

    def close(self) -> None:
        """Stop all transfers and close all connections. Safe to call twice."""
        if self._handle is None:
            return
        for easy in list(self._waiting):
            self.stop(easy)
        handle, self._handle = self._handle, None
        lib.curl_multi_cleanup(handle)
        self._watcher.close()
        for pending in (self._timer, self._kick):
            if pending is not None:
                pending.cancel()
        self._timer = self._kick = None
        self._socket_function = self._timer_function = None

    def _on_socket(self, _easy: Any, fd: int, what: int, _user: Any, _socket_user: Any) -> int:
        if what == POLL_REMOVE:
            self._watcher.forget(fd)
        else:
            self._watcher.watch(fd, what)
        return 0

    def _on_timer(self, _multi: Any, delay_ms: int, _user: Any) -> int:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if delay_ms == 0:
            # Several transfers started in one turn of the loop are set going together.
            if self._kick is None:
                self._kick = self._loop.call_soon(self._on_kick)
        elif delay_ms > 0:
            self._timer = self._loop.call_later(delay_ms / 1000, self._on_timeout)
        return 0

    def _on_kick(self) -> None:
        self._kick = None
        self._act(SOCKET_TIMEOUT, 0)
        self._collect()

    def _on_timeout(self) -> None:
        self._timer = None
        self._act(SOCKET_TIMEOUT, 0)
        self._collect()

    def _on_ready(self, ready: Ready) -> None:
        for fd, bits in ready:
            self._act(fd, bits)
        self._collect()

    def _act(self, fd: int, bits: int) -> None:
        if self._handle is not None:
            lib.curl_multi_socket_action(self._handle, fd, bits, self._running)

    def _collect(self) -> None:
        """Hand over the results of finished transfers."""
        while self._handle is not None:
            message = lib.curl_multi_info_read(self._handle, self._queued)
            if not message:
                return
            if message.msg != MSG_DONE:
                continue
            # Removing the handle invalidates the message.
            easy, code = message.easy_handle, message.data.result
            done = self._waiting.pop(easy, None)
            lib.curl_multi_remove_handle(self._handle, easy)
            if done is not None and not done.done():
                done.set_result(code)
