"""Sites for scenarios: real processes, real signals, a site that counts."""

from __future__ import annotations

import pytest

from netspy.testing.site import LocalSite


@pytest.fixture
def numbered(site: LocalSite) -> LocalSite:
    """`/p/N` answers with its own path."""
    site.route("/p/", lambda request: f"<h1>{request.path}</h1>", prefix=True)
    return site


@pytest.fixture
def home(numbered: LocalSite) -> LocalSite:
    """The same, and a front page."""
    numbered.route("/", "<h1>home</h1>")
    return numbered
