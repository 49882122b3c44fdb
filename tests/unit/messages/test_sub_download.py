"""Downloading inside a callback: who does it, and a clear word where nobody can."""

import asyncio
import contextvars

import pytest

from netspy.errors import RequestError
from netspy.messages import sub_download
from netspy.messages.request import Request

URL = "http://e.com/"


class Engine:
    """Answers with what it was asked, and how."""

    def blocking(self, request):
        return ("blocking", request.url)

    async def fetching(self, request):
        return ("fetching", request.url)


class OwnDownloader:
    async def fetch(self, request):
        await asyncio.sleep(0)
        return ("own", request.url)


class PlainDownloader:
    def fetch(self, request):
        return ("plain", request.url)


@pytest.fixture
def active():
    token = sub_download.active.set(Engine())
    yield
    sub_download.active.reset(token)


def test_plain_code_waits_and_async_code_awaits(active) -> None:
    assert Request(URL).download() == ("blocking", URL)

    async def callback():
        return await Request(URL).fetch(), await Request(URL).download()

    assert asyncio.run(callback()) == (("fetching", URL), ("fetching", URL))


def test_a_given_downloader_comes_first(active) -> None:
    assert Request(URL).download(OwnDownloader()) == ("own", URL)
    assert Request(URL).download(PlainDownloader()) == ("plain", URL)

    async def callback():
        return await Request(URL).download(OwnDownloader()), await Request(URL).download(PlainDownloader())

    assert asyncio.run(callback()) == (("own", URL), ("plain", URL))


def test_outside_a_spider_the_default_does_it(monkeypatch) -> None:
    monkeypatch.setattr(sub_download, "default", lambda request: ("default", request.url))
    assert Request(URL).download() == ("default", URL)

    async def script():
        return await Request(URL).fetch()

    assert asyncio.run(script()) == ("default", URL)


def test_where_nobody_downloads_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sub_download, "default", None)  # set by the first use of `netspy.Request`
    with pytest.raises(RequestError, match="no callback is running"):
        Request(URL).download()
    with pytest.raises(RequestError, match="no callback is running"):
        asyncio.run(Request(URL).fetch())


def test_a_forgotten_await_is_told() -> None:
    async def callback():
        return Request(URL).download().text

    with pytest.raises(AttributeError, match="must be awaited"):
        asyncio.run(callback())


def test_the_engine_of_one_context_is_not_anothers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sub_download, "default", None)  # else it would be asked for the page
    other = contextvars.Context()
    other.run(sub_download.active.set, Engine())
    assert other.run(Request(URL).download) == ("blocking", URL)
    with pytest.raises(RequestError):
        Request(URL).download()
