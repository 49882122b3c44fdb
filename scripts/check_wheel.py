"""The wheel that users get: built, installed without extras in a new environment, and README's first spider run there.

Also what is not for users must not be in it: the rig of our own tests. Call it from the repository's root, in .venv.
"""
# ruff: noqa: INP001 - a script, no part of a package

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

from netspy.testing.runner import Result, run_command
from netspy.testing.site import LocalSite

ROOT = Path(__file__).resolve().parents[1]
# Beginnings of names in the wheel. The rig of our own tests belongs to tests/support.
NOT_FOR_USERS = (
    "tests/", "scripts/", "netspy/tests/", "netspy/testing/fork", "netspy/testing/kafka", "netspy/testing/rabbitmq",
    "netspy/testing/redis_cluster", "netspy/testing/redis_replication", "netspy/testing/sql_servers", "netspy/testing/demo",
)  # fmt: skip
ROWS = {"Article 1", "Article 2", "Article 3"}


def main() -> int:
    """Exit code 0 when the wheel is what it should be."""
    with tempfile.TemporaryDirectory(prefix="netspy-wheel-") as name:
        folder = Path(name)
        wheel = build(folder)
        wrong = [entry for entry in zipfile.ZipFile(wheel).namelist() if not allowed(entry)]
        if wrong:
            return fail(f"{wheel.name} holds what is not for users: {', '.join(wrong)}")
        python = install(wheel, folder / "env")
        result = first_spider(python, folder)
    titles = set(re.findall(r"Article \d", result.stdout))
    if result.returncode or titles != ROWS:
        return fail(f"README's first spider ended with {result.returncode}\n{result.stdout}\n{result.stderr}")
    sys.stdout.write(f"{wheel.name}: installed alone, README's first spider stored {len(ROWS)} rows\n")
    return 0


def allowed(entry: str) -> bool:
    """Whether users get this file: the package and its description, and nothing of our tests' rig."""
    return entry.startswith(("netspy/", "netspy-")) and not entry.startswith(NOT_FOR_USERS)


def build(folder: Path) -> Path:
    """The wheel, made with the hatchling of the lock file."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "wheel", "-qq"]
    call([*pip, "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT)])
    [wheel] = folder.glob("netspy-*.whl")
    return wheel


def install(wheel: Path, environment: Path) -> Path:
    """A new environment with the wheel and what it asks for, in the versions of the lock file; its Python."""
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "-qq"]
    call([*pip, "--constraint", str(ROOT / "requirements-dev.lock"), str(wheel)])
    return python


def first_spider(python: Path, folder: Path) -> Result:
    """Run the first Python block of README, its example.com being a site on this machine."""
    found = re.search(
        r"^```python\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    if found is None:
        raise SystemExit("README.md has no Python block")
    with LocalSite() as site:
        site.fallback(answer)
        script = folder / "main.py"
        script.write_text(found[1].replace("https://example.com", site.url("").rstrip("/")), "utf-8")
        # -I: nothing of this checkout and of this machine's environment is imported.
        return run_command([python, "-I", script], cwd=folder, env={"PYTHONPATH": None})


def answer(request: object) -> str:
    """A list of three articles, and the articles."""
    path = str(getattr(request, "path", ""))
    if path == "/news":
        return "".join(f'<h2><a href="/news/{n}">Article {n}</a></h2>' for n in range(1, 4))
    return f"<h1>Article {path.rpartition('/')[2]}</h1>"


def call(argv: list[str]) -> None:
    """Run it with its output on this terminal. Raises SystemExit when it fails."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(argv, env=environment, stdin=subprocess.DEVNULL, check=False)  # noqa: S603 - as above
    if done.returncode:
        raise SystemExit(f"{' '.join(argv)} ended with {done.returncode}")


def fail(why: str) -> int:
    """Say why on stderr; the exit code."""
    sys.stderr.write(f"check_wheel: {why}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
