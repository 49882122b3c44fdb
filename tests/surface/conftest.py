"""A spider's folder with the `netspy` command."""

from __future__ import annotations

import sys
import time

import pytest
from cli_rig import Rig

from netspy.cli import main
from netspy.testing.runner import Result


@pytest.fixture
def pages(site):
    """`/p/N` answers; anything else is a 404."""
    site.route("/p/", lambda request: f"<h1>{request.path}</h1>", prefix=True)
    return site


@pytest.fixture
def rig(pages, redis_url, tmp_path) -> Rig:
    """The command, with the spiders `main.py` (on a real Redis) and `air.py` in its folder."""
    return Rig(tmp_path, pages.url(""), redis_url)


@pytest.fixture
def here(rig, monkeypatch, capsys):
    """The command in this process: for what ends before it does anything. The modules that it loads are forgotten."""
    monkeypatch.chdir(rig.folder)
    for name, value in rig.env.items():
        monkeypatch.setenv(name, value)
    before, path = set(sys.modules), list(sys.path)

    def run(*arguments: str, **env: str) -> Result:
        for name, value in (rig.env | env).items():
            monkeypatch.setenv(name, value)
        began = time.monotonic()
        code = main(arguments)
        said = capsys.readouterr()
        return Result(code, said.out, said.err, {}, time.monotonic() - began)

    yield run
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(rig.folder) in str(
            sys.modules[name].__file__
        ):
            del sys.modules[name]


@pytest.fixture
def redis(redis_url, redis_server):
    """A client of the rig's Redis."""
    client = redis_server.client()
    yield client
    client.close()
