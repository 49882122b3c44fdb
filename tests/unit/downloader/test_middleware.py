from __future__ import annotations

import sys
import textwrap
from typing import TYPE_CHECKING

import pytest

from netspy.downloader.middleware import DownloaderMiddleware, load_middlewares
from netspy.errors import ConfigError
from netspy.messages.request import Request
from netspy.messages.response import Response
from netspy.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module with middlewares, good and bad."""
    (tmp_path / "own_middlewares_x.py").write_text(
        textwrap.dedent(
            """
            from netspy.downloader.middleware import DownloaderMiddleware
            class Adds(DownloaderMiddleware):
                async def process_request(self, request):
                    return request.replace(headers={"X-Agent": self.settings.USER_AGENT})
            class Duck:
                def process_response(self, request, response):
                    return response
            class Nothing: pass
            class Needs(DownloaderMiddleware):
                def __init__(self, argument): pass
            class Slotted(DownloaderMiddleware):
                def __init__(self): raise OSError("no disk")
            not_a_class = 5
            """
        )
    )
    (tmp_path / "broken_middlewares_x.py").write_text("import no_such_module_at_all")
    (tmp_path / "raising_middlewares_x.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "own_middlewares_x"
    for name in ("own_middlewares_x", "broken_middlewares_x", "raising_middlewares_x"):
        sys.modules.pop(name, None)


async def test_middlewares_come_in_order_with_settings(module: str) -> None:
    settings = Settings(USER_AGENT="me")
    adds, duck = load_middlewares([f"{module}.Adds", f" {module}.Duck "], settings)
    assert adds.settings is settings
    assert duck.settings is settings
    changed = await adds.process_request(Request("http://h/"))
    assert changed.requests_kwargs["headers"] == {"X-Agent": "me"}
    assert adds.open() is None
    assert adds.close() is None


def test_the_base_class_changes_nothing() -> None:
    base = DownloaderMiddleware()
    request = Request("http://h/")
    response = Response(url="http://h/", status_code=200)
    assert base.process_request(request) is None
    assert base.process_response(request, response) is response
    assert base.process_exception(request, ValueError()) is None


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("Adds", "no class path"),
        ("no_such_package_x.Adds", "no module 'no_such_package_x'"),
        ("own_middlewares_x.Missing", "has no class Missing"),
        ("own_middlewares_x.not_a_class", "has no class"),
        ("own_middlewares_x.Nothing", "none of process_request"),
        ("own_middlewares_x.Needs", "can't be made: TypeError"),
        ("own_middlewares_x.Slotted", "no disk"),
        ("broken_middlewares_x.Adds", "no_such_module_at_all"),
        ("raising_middlewares_x.Adds", "ZeroDivisionError"),
    ],
)
def test_a_path_that_can_not_be_used_is_named(module: str, path: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        load_middlewares([path], Settings())
    assert path in str(caught.value)
    assert "DOWNLOADER_MIDDLEWARES" in str(caught.value)


def test_the_documented_import_path() -> None:
    from netspy.network.middleware import DownloaderMiddleware as Documented

    assert Documented is DownloaderMiddleware
