"""A connection that the server closed in the very moment of a write is an outage, not an error of ours."""

from __future__ import annotations

import asyncio

import pytest

from netspy.redisio.errors import error_kind

uvloop = pytest.importorskip("uvloop")


async def write_when_closed():
    """The error that a write on a closed connection raises; None when there was none."""
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        assert await reader.read() == b""
        writer.transport.abort()
        await asyncio.sleep(0)
        try:
            for _ in range(10):
                writer.write(b"PING\r\n")
                await asyncio.sleep(0)
        except RuntimeError as error:
            return error
    return None


def test_a_write_on_a_connection_that_is_closed_by_then_is_an_outage():
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        error = runner.run(write_when_closed())
    assert error is not None
    assert error_kind(error) == "away"


def test_another_runtime_error_is_an_error_of_ours():
    assert error_kind(RuntimeError("dictionary changed size during iteration")) is None
