"""One easy handle of libcurl and what arrives on it: head, body pieces, and the decision to stop early."""

from __future__ import annotations

import os
import re
import select
import socket
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from netspy.downloader import decoding, ranges, redirects, streams
from netspy.downloader.decoding import BodyError
from netspy.downloader.multi import ffi, lib

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

    from netspy.downloader.decoding import Decoder

# curl/curl.h
WRITEDATA, URL, PROXY = 10001, 10002, 10004
WRITEFUNCTION, HEADERFUNCTION = 20011, 20079
HEADERDATA, ERRORBUFFER, POSTFIELDS, HTTPHEADER = 10029, 10010, 10015, 10023
OPENSOCKETFUNCTION, OPENSOCKETDATA = 20163, 10164
PREREQFUNCTION, PREREQDATA = 20312, 10313
VERBOSE, DEBUGFUNCTION, DEBUGDATA = 41, 20094, 10095
FRESH_CONNECT, HTTP_VERSION = 74, 84
I_HEADER_SIZE, I_REQUEST_SIZE, I_NUM_CONNECTS = 0x200000 + 11, 0x200000 + 12, 0x200000 + 26
I_OS_ERRNO = 0x200000 + 25
I_ACTIVESOCKET = 0x500000 + 44
I_UPLOADED, I_DOWNLOADED, I_PRETRANSFER = 0x600000 + 7, 0x600000 + 8, 0x600000 + 53
ABORT = 0xFFFFFFFF  # CURL_WRITEFUNC_ERROR

REDIRECT_BODY = 65536  # bytes read of a redirect's body, so that its connection can be used again

# CURLOPT_ number and value; a tuple is a list of lines, Any a callback
Option = tuple[int, "int | bytes | tuple[bytes, ...] | Any"]


Sink = Callable[[bytes], object]
"""Takes a piece of a body. What it raises ends the transfer, and is raised by the fetch."""


class Reception:
    """What one hop received so far, and the rules by which it stops early.

    The rules are set before the start: `method`, `cap` (bytes of decoded body, 0 = no limit), `follow` (a
    redirect's body isn't wanted), `range` (the Range value that is sent), `allowed` (content type patterns,
    empty = all), `vet` (only public addresses may be connected to; see `guard.py`), `sink` (gets the body of a 2xx
    answer piece by piece; other bodies are dropped then).
    """

    __slots__ = (
        "allowed",
        "cap",
        "cut",
        "decoder",
        "due",
        "easy",
        "ended",
        "error",
        "follow",
        "head",
        "hinted",
        "left",
        "lines",
        "location",
        "method",
        "on_redirect",
        "on_unmarked",
        "opened",
        "pieces",
        "range",
        "refused",
        "rejected",
        "sendings",
        "set_cookies",
        "sink",
        "stale",
        "take",
        "vet",
    )

    def __init__(self) -> None:
        self.easy: Any = None  # the handle that it belongs to
        self.method = "GET"
        self.cap = 0
        self.follow = True
        self.allowed: list[str] = []
        self.range = ""
        self.sendings = 0  # how often the request was about to be sent; counted where `once` guards it
        self.hinted = False  # an interim answer had a Location
        self.stale = False  # nothing was sent, since the kept connection had ended
        self.vet = False
        self.sink: Sink | None = None
        self.on_redirect: Callable[[], None] | None = (
            None  # called when a redirect's body is about to be read
        )
        self.on_unmarked: Callable[[], None] | None = None  # called when only its stream tells the body's end
        self.clear()

    def clear(self) -> None:
        """Forget what was received; also drops the references to the page's bytes."""
        self.lines: list[bytes] = []  # of the head that is arriving
        self.head: Head | None = None
        self.pieces: list[bytes] = []
        self.take: Sink = self.pieces.append
        self.decoder: Decoder | None = None
        self.left = 0
        self.due = 0  # bytes that the head promises
        self.location: bytes | None = None  # of a redirect that is followed
        self.set_cookies: list[bytes] = []
        self.error: BaseException | None = None  # why the transfer was stopped from here
        self.rejected: str | None = None  # the content type that isn't allowed
        self.refused: tuple[str, str] | None = None  # an address that was not connected to, and its kind
        self.opened = False  # another address was let through
        self.ended = False  # the end of its HTTP/2 stream was seen; see `streams.py`
        self.cut = False  # its HTTP/2 stream was reset before its end, with NO_ERROR

    def on_header(self, line: bytes) -> bool:
        """Take one header line, line end included; False stops the transfer."""
        if len(line) <= 2 and line in {b"\r\n", b"\n"}:
            return self.head is not None or self._on_head()
        if self.head is not None:
            if not line.startswith(b"HTTP/"):
                return True  # a trailer: RFC 9110 6.5.1 lets a recipient drop it
            self.clear()  # a further answer on the same handle; the last one counts
        self.lines.append(line)
        return True

    def _on_head(self) -> bool:
        lines, self.lines = self.lines, []
        if not lines:
            return True
        head = read_head(lines)
        if 100 <= head.status < 200:
            if head.status == 101:
                self.error = BodyError("protocol", "101 Switching Protocols, which nobody asked for")
                return False
            self.hinted = self.hinted or head.get("location") is not None
            return True  # early hints and the like; the answer comes after them
        self.head = head
        self.left = self.cap or decoding.UNLIMITED
        names = None
        length = ""
        chunked = False
        for name, value in head.pairs:
            if name == "content-encoding":
                names = [*(names or ()), value]
            elif name == "content-length":
                length = value
            elif name == "transfer-encoding":
                chunked = "chunked" in value.lower()
            elif name == "set-cookie":
                self.set_cookies = self.set_cookies or raw_values(lines, b"set-cookie:")
        if self.follow and head.status in redirects.STATUSES:
            found = [value for value in raw_values(lines, b"location:") if value]
            if found:
                self.location = found[0]
                self.left = REDIRECT_BODY
                if not has_known_end(lines[0], head):
                    return False
                if self.on_redirect is not None:
                    self.on_redirect()
        if (
            self.location is None
            and self.allowed
            and 200 <= head.status < 300
            and not is_allowed(head.get("content-type"), self.allowed)
        ):
            self.rejected = head.get("content-type") or ""
            return False
        # libcurl counts the bytes, but not where it doesn't understand the line (a blank before the colon, a number too
        # large) or puts a Transfer-Encoding above it.
        if length and not chunked and may_have_body(self.method, head.status):
            self.due = int(digits[:20]) if (digits := length.partition(",")[0]).isdecimal() else 0
        if head.status == 206 and self.method != "HEAD" and not self._is_part_asked(head):
            return False
        if names is not None and self.method != "HEAD" and (found_codings := decoding.codings(names)):
            try:
                self.decoder = decoding.decoder_for(found_codings, self.left)
            except BodyError as error:
                self.error = error
                return False
        if (
            self.on_unmarked is not None
            and self.decoder is None
            and lines[0].startswith(b"HTTP/2")
            and head.get("content-length") is None
            and may_have_body(self.method, head.status)
        ):
            self.on_unmarked()
        if self.sink is not None:
            self.take = self.sink if 200 <= head.status < 300 else _drop
        return True

    def _is_part_asked(self, head: Head) -> bool:
        """Whether a 206 brings what was asked for; `error` says why not."""
        content_range = head.get("content-range")
        why = ranges.misfit(self.range, content_range, head.get("content-type"))
        if why is not None:
            self.error = BodyError("truncated", f"206 brings {why}")
            return False
        part = ranges.part_of(content_range)
        self.due = max(self.due, part.size if part is not None else 0)
        return True

    def on_body(self, piece: bytes) -> bool:
        """Take a piece of the body; False stops the transfer."""
        if self.decoder is not None:
            try:
                piece = self.decoder.feed(piece)
            except BodyError as error:
                self.error = error
                return False
        else:
            self.left -= len(piece)
            if self.left < 0:
                self.error = (
                    BodyError("protocol", "a body without a head")
                    if self.head is None
                    else decoding.too_large(self.cap)
                )
                return False
        self.take(piece)
        return True

    def body(self) -> bytes:
        """The whole decoded body. Raises BodyError when it isn't whole."""
        if self.decoder is not None:
            self.decoder.finish()
        elif (received := (self.cap or decoding.UNLIMITED) - self.left) < self.due:
            raise BodyError("truncated", f"{received} of {self.due} bytes came")
        pieces = self.pieces
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _drop(_piece: bytes) -> None:
    """Of an answer that isn't wanted."""


def may_have_body(method: str, status: int) -> bool:
    """Whether an answer has a body at all (RFC 9110 6.4.1)."""
    return method != "HEAD" and status not in {204, 304}


def has_known_end(status_line: bytes, head: Head) -> bool:
    """Whether the body's end is marked, so that reading it saves the connection (RFC 9112 6.3)."""
    return (
        not status_line.startswith(b"HTTP/1")
        or head.get("content-length") is not None
        or head.get("transfer-encoding") is not None
    )


def is_allowed(content_type: str | None, patterns: Iterable[str]) -> bool:
    """Whether a content type begins with one of the patterns (`text/`, `text/html`) or matches it (`text/*`, `*/xml`); an
    answer without one is given the benefit.
    """
    if not content_type:
        return True
    essence = content_type.partition(";")[0].strip().lower()
    wanted = (pattern.partition(";")[0].strip().lower() for pattern in patterns)
    return any(one and (essence.startswith(one) or fnmatchcase(essence, one)) for one in wanted)


from_handle, buffer = ffi.from_handle, ffi.buffer


@ffi.callback("size_t(char *, size_t, size_t, void *)", error=ABORT)  # type: ignore[untyped-decorator]  # cffi
def _header_function(pointer: Any, _one: int, size: int, user: Any) -> int:
    reception: Reception = from_handle(user)
    line = buffer(pointer, size)[:]
    if size > 2 and reception.head is None:
        reception.lines.append(line)
        return size
    try:
        return size if reception.on_header(line) else ABORT
    except Exception as error:  # C can't carry it; the fetch raises it
        reception.error = error
        return ABORT


@ffi.callback("size_t(char *, size_t, size_t, void *)", error=ABORT)  # type: ignore[untyped-decorator]  # cffi
def _write_function(pointer: Any, _one: int, size: int, user: Any) -> int:
    reception: Reception = from_handle(user)
    try:
        return size if reception.on_body(buffer(pointer, size)[:]) else ABORT
    except Exception as error:  # as above
        reception.error = error
        return ABORT


@ffi.callback("int(void *, char *, char *, int, int)", error=1)  # type: ignore[untyped-decorator]  # cffi
def once(user: Any, _here: Any, _there: Any, _port: int, _local_port: int) -> int:
    """CURLOPT_PREREQFUNCTION of what must not be sent again by itself: libcurl repeats a request when a kept
    connection ends before the answer, and can't know whether the server has carried it out.
    """
    reception: Reception = from_handle(user)
    if not reception.sendings and leads_nowhere(reception.easy):
        reception.stale = True
        return 1
    reception.sendings += 1
    return 0 if reception.sendings == 1 else 1


def leads_nowhere(easy: Any) -> bool:
    """Whether the connection that a transfer uses again was closed by the other end in the meantime.

    libcurl looks once a second only.
    """
    number, fd = ffi.new("long *"), ffi.new("int *")
    lib.curl_easy_getinfo(easy, I_NUM_CONNECTS, number)
    lib.curl_easy_getinfo(easy, I_ACTIVESOCKET, fd)
    if number[0] or fd[0] < 0 or not hasattr(select, "poll"):  # a new one, or Windows
        return False
    poll = select.poll()
    poll.register(fd[0], select.POLLIN | _HUNG_UP)
    found = poll.poll(0)
    if not found:
        return False
    if found[0][1] & ~select.POLLIN:
        return True
    try:
        with socket.socket(fileno=os.dup(fd[0])) as waiting:
            return is_farewell(waiting.recv(5, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except OSError:
        return True


def is_farewell(first: bytes) -> bool:
    """Whether the first bytes that wait unread on a kept connection say that nothing more is answered there.

    The end; an HTTP/1 answer to nothing (408); a TLS alert, in TLS 1.3 a record of 19 bytes that looks like data, for
    which no HTTP/2 frame is short enough. Frames of HTTP/2 may wait at any time.
    """
    return not first or first == b"HTTP/" or first[0] == 0x15 or first == b"\x17\x03\x03\0\x13"


_HUNG_UP = getattr(select, "POLLRDHUP", 0)  # POLLHUP and POLLERR are told unasked
_ON, _OFF = ffi.new("long *", 1), ffi.new("long *", 0)


def slist_of(lines: Iterable[bytes]) -> Any:
    """A curl_slist that is freed with its last reference."""
    slist = ffi.NULL
    for line in lines:
        slist = lib.curl_slist_append(slist, line)
    return ffi.gc(slist, lib.curl_slist_free_all)


def newest(browser: str) -> bytes:
    """The impersonation target that a browser's plain name (`chrome`) stands for."""
    from curl_cffi.requests.impersonate import REAL_TARGET_MAP

    return REAL_TARGET_MAP.get(browser, browser).encode()


class Transfer:
    """An easy handle, prepared once and used for many hops.

    `base` options hold for every hop. Whatever a hop sets beyond URL and headers is undone by a reset before
    a hop with other options, so that none can inherit another's body, proxy or certificate.
    """

    __slots__ = (
        "_base",
        "_error",
        "_headers",
        "_impersonate",
        "_kept",
        "_lines",
        "_open_socket",
        "_options",
        "_user",
        "easy",
        "got",
        "grace",
    )

    def __init__(self, base: list[Option], impersonate: str = "", open_socket: Any = None) -> None:
        """`impersonate` names a browser of curl_cffi. `open_socket` is a CURLOPT_OPENSOCKETFUNCTION that gets
        the Reception. Raises ValueError when libcurl doesn't know the browser.
        """
        self.easy: Any = lib.curl_easy_init()
        self.got = Reception()
        self.got.easy = self.easy
        self.grace: asyncio.TimerHandle | None = None  # ends a redirect whose body doesn't
        self._base = base
        self._impersonate = impersonate
        self._open_socket = open_socket
        self._user = ffi.new_handle(self.got)
        self._error = ffi.new("char[]", 256)
        self._kept: list[Any] = []
        self._prepare()

    def _prepare(self) -> None:
        if self._impersonate and lib.curl_easy_impersonate(self.easy, newest(self._impersonate), 1) != 0:
            raise ValueError(f"{self._impersonate!r} is no browser that libcurl can impersonate")
        setopt = lib._curl_easy_setopt  # noqa: SLF001  the binding's name for curl_easy_setopt
        setopt(self.easy, ERRORBUFFER, self._error)
        setopt(self.easy, WRITEFUNCTION, _write_function)
        setopt(self.easy, WRITEDATA, self._user)
        setopt(self.easy, HEADERFUNCTION, _header_function)
        setopt(self.easy, HEADERDATA, self._user)
        if streams.available:
            setopt(self.easy, DEBUGFUNCTION, streams.on_trace)
            setopt(self.easy, DEBUGDATA, self._user)
        setopt(self.easy, PREREQDATA, self._user)
        if self._open_socket is not None:
            setopt(self.easy, OPENSOCKETFUNCTION, self._open_socket)
            setopt(self.easy, OPENSOCKETDATA, self._user)
        self._lines: tuple[bytes, ...] | None = None
        self._headers: Any = None
        self._options: list[Option] | None = []
        self._set(self._base)

    def _set(self, options: Iterable[Option]) -> None:
        for number, value in options:
            if isinstance(value, bytes):
                if number == POSTFIELDS:
                    self._kept.append(value)  # libcurl doesn't copy it
                    value = ffi.from_buffer(value)  # noqa: PLW2901  bytes with NUL in them
                    self._kept.append(value)
            elif isinstance(value, tuple):
                value = slist_of(value)  # noqa: PLW2901
                self._kept.append(value)
            elif isinstance(value, int):
                value = ffi.new("int64_t *" if number >= 30000 else "long *", value)  # noqa: PLW2901
            code = lib._curl_easy_setopt(self.easy, number, value)  # noqa: SLF001
            if code:
                raise ValueError(
                    f"libcurl refuses option {number}: {ffi.string(lib.curl_easy_strerror(code)).decode()}"
                )

    def arm(self, url: str, lines: tuple[bytes, ...], options: list[Option]) -> None:
        """Make ready for one hop. Raises ValueError when libcurl refuses an option."""
        if options != self._options:
            if self._options != []:
                lib.curl_easy_reset(self.easy)
                self._kept.clear()
                self._prepare()
            self._options = None  # unknown until all are set
            self._set(options)
            self._options = options
        lib._curl_easy_setopt(self.easy, URL, url.encode("ascii"))  # noqa: SLF001
        if lines is not self._lines and lines != self._lines:
            kept = slist_of(lines)
            lib._curl_easy_setopt(self.easy, HTTPHEADER, kept)  # noqa: SLF001
            self._headers = kept  # the list set before is freed only now, when libcurl has let go of it
            self._lines = lines

    def renew(self, *, http_1_0: bool = False) -> None:
        """Make ready to run the same hop on a new connection."""
        lib._curl_easy_setopt(self.easy, FRESH_CONNECT, _ON)  # noqa: SLF001
        if http_1_0:
            lib._curl_easy_setopt(self.easy, HTTP_VERSION, ffi.new("long *", 1))  # noqa: SLF001
        self._options = None  # so that the next use resets it
        self._error[0] = b"\0"
        self.got.stale = self.got.hinted = False
        self.got.clear()

    def trace(self, on: bool) -> None:
        """Let `streams.py` see the HTTP/2 frames that this handle reads from now on, or no longer."""
        lib._curl_easy_setopt(self.easy, VERBOSE, _ON if on else _OFF)  # noqa: SLF001

    def forget(self) -> None:
        """Let go of the page and of the body that was sent; `arm` resets the handle before its next use."""
        self.got.clear()
        self.got.sink = None
        self.got.sendings = 0
        self.got.hinted = False
        if self._kept:
            self._kept.clear()
            self._options = None

    @property
    def lines(self) -> tuple[bytes, ...]:
        """The header lines of the hop that it is armed for."""
        return self._lines or ()

    def os_error(self) -> int:
        """The system's number for what failed last on this handle; 0 = none."""
        number = ffi.new("long *")
        lib.curl_easy_getinfo(self.easy, I_OS_ERRNO, number)
        return int(number[0])

    def error_text(self) -> str:
        """What libcurl says about the failure of the last hop."""
        text = ffi.string(self._error).decode("utf-8", "replace")
        self._error[0] = b"\0"  # libcurl writes it only when it has something to say
        return str(text)

    def progress(self) -> tuple[int, ...] | None:
        """Counters that grow while bytes flow in either direction; None before the connection is made."""
        read = ffi.new("int64_t *")
        counters = []
        for number in (I_PRETRANSFER, I_UPLOADED, I_DOWNLOADED):
            lib.curl_easy_getinfo(self.easy, number, read)
            counters.append(int(read[0]))
        if not counters[0]:
            return None
        size = ffi.new("long *")
        for number in (I_HEADER_SIZE, I_REQUEST_SIZE):
            lib.curl_easy_getinfo(self.easy, number, size)
            counters.append(int(size[0]))
        return tuple(counters)

    def close(self) -> None:
        """Free the handle; it must not be in a multi handle any more."""
        if self.easy is not None:
            lib.curl_easy_cleanup(self.easy)
            self.easy = self.got.easy = self._headers = self._user = None


_fold = re.compile(r"\s*\n[ \t]+").sub


class Head:
    """Status line and header lines of one response."""

    __slots__ = ("pairs", "status")

    def __init__(self, status: int, pairs: list[tuple[str, str]]) -> None:
        """`pairs` keep the order and every line; names are lower-case."""
        self.status = status
        self.pairs = pairs

    def get(self, name: str) -> str | None:
        """The first value of `name` (lower-case), None when there is none."""
        for key, value in self.pairs:
            if key == name:
                return value
        return None

    def get_all(self, name: str) -> list[str]:
        """All values of `name` (lower-case), in order."""
        return [value for key, value in self.pairs if key == name]


def read_head(lines: list[bytes]) -> Head:
    """The head that `lines` (status line first, line ends kept) make up.

    Values are UTF-8 where they can be, else latin-1. A line without a colon is skipped, a folded one
    (RFC 9112 5.2) continues the line before it: a page isn't lost to a sloppy header.
    """
    first = lines[0].split(None, 2)
    status = int(first[1]) if len(first) > 1 and first[1].isdigit() else 0
    raw = b"".join(lines[1:])
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = "".join([decode(line) for line in lines[1:]])
    if "\n " in text or "\n\t" in text:
        text = _fold(" ", text)
    pairs = []
    for line in text.split("\n"):
        name, colon, value = line.partition(":")
        if colon:
            pairs.append((name.strip().lower(), value.strip()))
    return Head(status, pairs)


def decode(raw: bytes) -> str:
    """Header bytes as text: UTF-8 if valid, else latin-1."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def raw_values(lines: Iterable[bytes], name: bytes) -> list[bytes]:
    """The undecoded values of the lines called `name` (lower-case, with its colon)."""
    size = len(name)
    return [line[size:].strip() for line in lines if line[:size].lower() == name]
