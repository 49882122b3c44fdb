"""The encoding cases of html5lib 1.1, asked of `netspy.messages.charset`.

The cases are in html5lib's source distribution, which is fetched with pip from the index that is configured, unpacked into a
temporary folder and left nowhere. Prints the figures; exit code 1 when a case differs that isn't in DIFFERENT.
"""
# ruff: noqa: INP001 - a script, no part of a package

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from netspy.messages import charset
from netspy.messages.charset_labels import FALLBACK

if TYPE_CHECKING:
    from collections.abc import Iterator

HTML5LIB = "html5lib==1.1"
# What its setup.py needs in order to be looked at, which pip does with every source distribution.
BUILD = ("setuptools<70", "wheel")
CASES = 83

DIFFERENT = {
    b"""document.write('<meta charset="ISO-8859-' + '2">')""": "what a script writes is known to who runs it",
}
"""A part of each case that differs, and why it does."""


class Case(NamedTuple):
    """A document, and the encoding that a browser of the western world takes it to be in."""

    data: bytes
    encoding: str


def main() -> int:
    """Exit code 0 when all cases are answered as html5lib does, but for those that are known to differ."""
    with tempfile.TemporaryDirectory(prefix="netspy-conformance-") as name:
        cases = [case for file in sorted(fetch(Path(name)).glob("*.dat")) for case in read(file.read_bytes())]
    same = undeclared = 0
    known: list[str] = []
    wrong: list[str] = []
    for case in cases:
        found = charset.detect(case.data, "text/html")
        if found == case.encoding:
            same += 1
        elif is_undeclared(case, found):
            undeclared += 1
        else:
            reason = next((why for part, why in DIFFERENT.items() if part in case.data), None)
            line = f"{case.data[-120:]!r}: {found}, html5lib says {case.encoding}"
            known.append(f"{line}: {reason}") if reason else wrong.append(line)
    sys.stdout.write(
        f"{len(cases)} encoding cases of {HTML5LIB}: {same} the same; {undeclared} declare nothing and are ASCII, which "
        f"is called utf-8 here and windows-1252 there; {len(known)} known to differ; {len(wrong)} wrong\n"
    )
    sys.stdout.writelines(f"known: {line}\n" for line in known)
    sys.stderr.writelines(f"WRONG: {line}\n" for line in wrong)
    if len(cases) != CASES:
        sys.stderr.write(f"expected {CASES} cases\n")
    return 0 if not wrong and len(known) == len(DIFFERENT) and len(cases) == CASES else 1


def is_undeclared(case: Case, found: str) -> bool:
    """Whether the case has no declaration: netspy says UTF-8 then, and what is ASCII is the same text in both."""
    return case.data.isascii() and (found, case.encoding) == ("utf-8", FALLBACK)


def fetch(folder: Path) -> Path:
    """Download and unpack html5lib; the folder of its encoding cases."""
    venv.create(folder / "env", with_pip=True)
    pip = [str(folder / "env/bin/python"), "-m", "pip", "--disable-pip-version-check", "--no-input"]
    call([*pip, "install", "-qq", *BUILD])
    source_only = ["--no-deps", "--no-binary", ":all:", "--no-build-isolation"]
    call([*pip, "download", "-qq", *source_only, "--dest", str(folder), HTML5LIB])
    [archive] = folder.glob("html5lib-*.tar.gz")
    with tarfile.open(archive) as unpacked:
        unpacked.extractall(folder, filter="data")
    [cases] = folder.glob("html5lib-*/html5lib/tests/testdata/encoding")
    return cases


def call(command: list[str]) -> None:
    """Run it; when it fails, the script ends with its output."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - pip, with our arguments
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}\n{done.stdout}{done.stderr}")


def read(source: bytes) -> Iterator[Case]:
    """The cases of one file: `#data`, the document; `#encoding`, its encoding."""
    for block in source.split(b"#data\n")[1:]:
        data, _, encoding = block.partition(b"\n#encoding\n")
        yield Case(data, encoding.split(b"\n", 1)[0].decode("ascii").lower())


if __name__ == "__main__":
    sys.exit(main())
