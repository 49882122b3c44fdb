"""A head that libcurl can't read: a redirect after an early hint that had another Location.

Fields of a 1xx answer aren't those of the final one (RFC 9110 15.2), but libcurl takes the two for one redirect to two places,
and gives up. Then the head is asked for once more, here.
"""

from __future__ import annotations

import asyncio
import ssl
from urllib.parse import urlsplit

from netspy.downloader.redirects import DEFAULT_PORTS

_LONGEST = 1 << 16


async def final_head(
    url: str, method: str, lines: tuple[bytes, ...], *, timeout_s: float, verify: bool
) -> list[bytes]:
    """The header lines of the final answer to a request without a body, status line first, line ends included.

    `url` in wire form, `lines` as libcurl gets them. Raises OSError (TLS and time-outs too), ValueError for what is no HTTP/1.
    """
    parts = urlsplit(url)
    context: ssl.SSLContext | None = None
    if parts.scheme == "https":
        context = ssl.create_default_context()
        if not verify:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    async with asyncio.timeout(timeout_s):
        reader, writer = await asyncio.open_connection(
            parts.hostname, parts.port or DEFAULT_PORTS[parts.scheme], ssl=context, limit=_LONGEST
        )
        try:
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            names = {line.partition(b":")[0].lower() for line in lines}
            own = [] if b"host" in names else [b"Host: " + parts.netloc.rpartition("@")[2].encode()]
            sent = [line for line in lines if line.partition(b":")[2].strip()]
            head = [
                f"{method} {target} HTTP/1.1".encode("ascii"),
                *own,
                *sent,
                b"Connection: close",
                b"",
                b"",
            ]
            writer.write(b"\r\n".join(head))
            while True:
                got = await _head(reader)
                if not 100 <= int(got[0].split()[1]) < 200:
                    return got
        finally:
            writer.close()


async def _head(reader: asyncio.StreamReader) -> list[bytes]:
    lines: list[bytes] = []
    while (line := await reader.readline()).strip():
        lines.append(line)
    if not lines or not lines[0].startswith(b"HTTP/1."):
        raise ValueError("no HTTP/1 answer")
    return lines
