"""Servers and downloaders for tests that are `async def`, on the loop that crawls run on."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from netspy.downloader.curl import CurlDownloader
from netspy.settings import Settings
from support.raw_server import RawServer

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def raw() -> AsyncIterator[RawServer]:
    """A server that sends any bytes."""
    async with RawServer() as server:
        yield server


@pytest.fixture
async def other() -> AsyncIterator[RawServer]:
    """A second server, on another port."""
    async with RawServer() as server:
        yield server


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., CurlDownloader]]:
    """Makes downloaders from settings, and closes them after the test."""
    made: list[CurlDownloader] = []

    def one(**settings: Any) -> CurlDownloader:
        made.append(CurlDownloader(Settings(**settings)))
        return made[-1]

    yield one
    for downloader in made:
        await downloader.close()


@pytest.fixture
def d(make: Callable[..., CurlDownloader]) -> CurlDownloader:
    """A downloader with default settings."""
    return make()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Certificate and key for localhost and 127.0.0.1, signed by itself."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "c.pem", folder / "k.pem"
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost "
        f"-addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout {key} -out {cert}"
    )
    subprocess.run(command.split(), check=True, capture_output=True)
    return cert, key
