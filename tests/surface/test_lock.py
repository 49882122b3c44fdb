"""The lock file can be installed on every Python that is promised, the oldest included."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import metadata
from pathlib import Path

from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parents[2]
PROMISED = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["requires-python"]
OLDEST = PROMISED.removeprefix(">=") + ".0"
LOCKED = re.findall(
    r"^([\w.-]+)==([^;\s]+)", (ROOT / "requirements-dev.lock").read_text(encoding="utf-8"), re.M
)


def test_the_lock_names_what_there_is_to_install():
    assert re.fullmatch(r"3\.\d+\.0", OLDEST)
    assert len(LOCKED) > 100


def test_every_locked_package_is_the_installed_one_and_runs_on_the_oldest_python():
    wrong = []
    for name, version in LOCKED:
        installed = metadata(name)
        if installed["Version"] != version:
            wrong.append(f"{name}: {installed['Version']} is installed, {version} locked; run make venv")
        if OLDEST not in SpecifierSet(installed["Requires-Python"] or ""):
            wrong.append(f"{name} {version} needs Python {installed['Requires-Python']}")
    assert wrong == []
