"""BLOCK_PRIVATE_ADDRESSES: no connection to an address that isn't public, whatever name led there.

Direct connections are judged where they begin: libcurl asks `open_socket` for a socket and hands it the very address
that it is about to connect to. There is no second look-up between the check and the connection, so a name that
changes its answer (DNS rebinding) gains nothing. A connection that is used again was judged when it was made.

Through a proxy, libcurl connects to the proxy, which is the operator's own choice and may be private. The target is
looked up here, judged, and given to the proxy as an address (CURLOPT_CONNECT_TO), so the proxy looks nothing up.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING, Any

from netspy.downloader import redirects
from netspy.downloader.addresses import literal, objection
from netspy.downloader.failures import Kind, download_error
from netspy.downloader.multi import ffi
from netspy.downloader.outgoing import Outgoing, proxy_for
from netspy.messages import urls

if TYPE_CHECKING:
    from netspy.downloader.transfer import Reception
    from netspy.errors import DownloadError

Address = IPv4Address | IPv6Address
Resolve = Callable[[str, int], Awaitable[list[str]]]
"""The addresses of a host and port. Raises OSError."""

KEPT_S = 60.0  # how long an answer is used, as libcurl does with its own
MAX_KEPT = 10_000
BAD_SOCKET = -1
_FAMILIES: dict[int, tuple[type[IPv4Address | IPv6Address], slice]] = {
    socket.AF_INET: (IPv4Address, slice(20, 24)),
    socket.AF_INET6: (IPv6Address, slice(24, 40)),
}  # where the address lies in struct curl_sockaddr: four ints, then struct sockaddr_in or sockaddr_in6


def blocked_error(method: str, url: str, address: Address | str, kind: str) -> DownloadError:
    """The error of a request that leads to `address`."""
    article = "an" if kind[0] in "aeiou" else "a"
    return download_error(
        method,
        url,
        f"it leads to {address}, {article} {kind} address, and BLOCK_PRIVATE_ADDRESSES is on",
        Kind("blocked", retryable=False),
    )


async def look_up(host: str, port: int) -> list[str]:
    """Ask the system's resolver, without blocking the loop."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(row[4][0]) for row in found]


class ProxyGuard:
    """Judges the targets of requests that go through a proxy."""

    def __init__(self, resolve: Resolve = look_up) -> None:
        self._resolve = resolve
        self._kept: dict[tuple[str, int], tuple[float, str]] = {}

    async def pin(self, out: Outgoing) -> str:
        """The address to give to the proxy, "" when the hop uses none or its URL names an address already.

        Raises DownloadError `blocked`, or `dns` for a name without addresses.
        """
        if not proxy_for(out.method, out.url, out.kwargs):
            return ""
        host = urls.host_of(out.url)
        address = literal(host)
        if address is not None:
            self._judge(out, address)
            return ""
        key = (host, redirects.origin(out.url).port)
        now = asyncio.get_running_loop().time()
        kept = self._kept.get(key)
        if kept is not None and kept[0] > now:
            return kept[1]
        pinned = await self._check_host(out, *key)
        if len(self._kept) >= MAX_KEPT:
            self._kept.clear()
        self._kept[key] = (now + KEPT_S, pinned)
        return pinned

    async def _check_host(self, out: Outgoing, host: str, port: int) -> str:
        try:
            found = await asyncio.wait_for(self._resolve(host, port), out.connect_s)
            addresses = [ip_address(text.partition("%")[0]) for text in found]
        except (OSError, UnicodeError, ValueError) as error:  # TimeoutError is an OSError
            raise download_error(
                out.method,
                out.url,
                f"{host} can't be looked up here ({error or type(error).__name__}), so BLOCK_PRIVATE_ADDRESSES "
                "can't judge it",
                Kind("dns"),
            ) from None
        if not addresses:
            raise download_error(out.method, out.url, f"{host} has no address", Kind("dns"))
        for address in addresses:
            self._judge(out, address)
        # IPv4 first: not every proxy has IPv6, and SOCKS4 can't say it.
        chosen = next((one for one in addresses if one.version == 4), addresses[0])
        return str(chosen) if chosen.version == 4 else f"[{chosen}]"

    def _judge(self, out: Outgoing, address: Address) -> None:
        kind = objection(address)
        if kind is not None:
            raise blocked_error(out.method, out.url, address, kind)


@ffi.callback("int(void *, int, void *)", error=BAD_SOCKET)  # type: ignore[untyped-decorator]  # cffi
def open_socket(user: Any, _purpose: int, wanted: Any) -> int:
    """CURLOPT_OPENSOCKETFUNCTION: a socket for a public address, none for another."""
    got: Reception = ffi.from_handle(user)
    family, kind, protocol, size = ffi.cast("int *", wanted)[0:4]
    if got.vet:
        known = _FAMILIES.get(family)
        if known is None:
            got.refused = (f"address family {family}", "unknown")
            return BAD_SOCKET
        make, where = known
        address = make(ffi.buffer(wanted, 16 + size)[where])
        problem = objection(address)
        if problem is not None:
            got.refused = (str(address), problem)
            return BAD_SOCKET
        got.opened = True
    made = socket.socket(family, kind, protocol)
    made.setblocking(False)
    return made.detach()
