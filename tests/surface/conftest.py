"""A spider's folder with the `netspy` command."""

from __future__ import annotations

import pytest
from cli_rig import Rig


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
def redis(redis_url, redis_server):
    """A client of the rig's Redis."""
    client = redis_server.client()
    yield client
    client.close()
