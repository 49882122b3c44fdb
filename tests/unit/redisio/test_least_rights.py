"""The ACL rule that users copy from the docs has every command that a script calls."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
CALL = re.compile(r"redis\.p?call\(\s*['\"](\w+)['\"]")


@pytest.mark.parametrize("page", ["docs/redis-topologies.md", "docs/zh/redis-topologies.md"])
def test_the_rule_for_a_user_with_least_rights_allows_every_command_of_every_script(page):
    [rule] = re.findall(r"^user crawler on >password (.*)$", (ROOT / page).read_text("utf-8"), re.M)
    allowed = {word[1:] for word in rule.split() if word.startswith("+")}
    called = {
        (script.name, command.lower())
        for script in (ROOT / "src" / "netspy").rglob("*.lua")
        for command in CALL.findall(script.read_text("utf-8"))
    }
    assert len(called) > 50
    assert {(script, command) for script, command in called if command not in allowed} == set()
