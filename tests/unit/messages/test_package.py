"""The package's names load at first use, so that a node's light parts don't pay for selectors and parsers."""

import subprocess
import sys

import pytest

import netspy.messages as messages


def test_light_modules_load_no_heavy_ones() -> None:
    code = (
        "import sys, netspy.messages.entry, netspy.messages.request, netspy.messages.item\n"
        "heavy = {'netspy.messages.response', 'lxml', 'parsel', 'turbohtml', 'ada_url', 'asyncio', 'curl_cffi'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_public_names_are_there_and_others_are_not() -> None:
    for name in messages.__all__:
        assert getattr(messages, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = messages.Nothing
