"""What a machine lacks is skipped with the reason; where the variable CI is set it fails instead."""

import os

import pytest


def missing(reason: str) -> None:
    """Skip the test, or fail it in CI, because this machine lacks something."""
    if os.environ.get("CI"):
        pytest.fail(f"{reason} (CI is set, so this is a failure)", pytrace=False)
    pytest.skip(reason)
