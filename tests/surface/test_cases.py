"""Every case of tests/data/cases has a test that names it; where a case has parts (a, b, c), every part has one.

A test names a case in its name (`test_dst_05a_…`, `test_sto05_…`) or in its docstring (`case BAT-05 d`, `BAT-05 a, e`).
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
SUITES = TESTS.parent / "src/netspy/testing"
"""The contract suites, which users run as well."""

IN_NAME = re.compile(r"(?:^|_)(?P<area>[a-z]{2,3})_?(?P<number>\d\d)_?(?P<parts>[a-e](?=_|$))?")
IN_TEXT = re.compile(r"\b(?P<area>[A-Z]{2,3})-(?P<number>\d\d)(?P<parts>(?:,? (?:and )?[a-e]\b)*)")

PARTS = {"BAT-05": "abcde", "DST-05": "abc", "LNG-03": "abc"}
"""Cases whose parts are tests of their own. Those of the others are done together, in one test."""

BY_PARAMETER = {"decode.json": ("unit/messages/test_charset.py", "test_case")}
"""Files whose every case is a parameter of one test."""


def names_in(text: str, pattern: re.Pattern[str]) -> set[str]:
    """`{"BAT-05", "BAT-05 d"}` of `"case BAT-05 d"`."""
    found = set()
    for match in pattern.finditer(text):
        name = f"{match['area'].upper()}-{match['number']}"
        found |= {name, *(f"{name} {part}" for part in re.findall(r"\b[a-e]\b", match["parts"] or ""))}
    return found


def named_by_tests(source: str) -> set[str]:
    """The cases that the test functions of this source name."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_"):
            found |= names_in(node.name, IN_NAME) | names_in(ast.get_docstring(node) or "", IN_TEXT)
    return found


def wanted(cases: list[dict[str, str]]) -> set[str]:
    """Every case, and its parts where they are tests of their own."""
    ids = {case["id"] for case in cases}
    return ids | {f"{name} {part}" for name in ids for part in PARTS.get(name, "")}


@pytest.fixture(scope="module")
def named() -> set[str]:
    files = [*TESTS.rglob("test_*.py"), *SUITES.glob("*_contract.py")]
    return set().union(*(named_by_tests(file.read_text(encoding="utf-8")) for file in files))


def case_files() -> dict[str, list[dict[str, str]]]:
    folder = TESTS / "data/cases"
    read = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json")}
    for path in folder.glob("*.jsonl"):
        read[path.name] = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {name: cases for name, cases in read.items() if isinstance(cases, list)}


@pytest.mark.parametrize("name", sorted(case_files()))
def test_every_case_has_a_test_that_names_it(name, named):
    cases = case_files()[name]
    assert cases
    if name in BY_PARAMETER:
        file, test = BY_PARAMETER[name]
        source = (TESTS / file).read_text(encoding="utf-8")
        assert name in source
        assert f'CASES, ids=[case["id"] for case in CASES])\ndef {test}(' in source
    else:
        assert wanted(cases) - named == set()


def test_a_case_without_a_test_is_noticed():
    source = 'def test_bat_05a_x(): "And BAT-05 b, d and e."\ndef test_sto01_y(): "SCH-03"\n# STO-02\nHERE = "STO-05"'
    named = named_by_tests(source)
    assert named == {"BAT-05", "BAT-05 a", "BAT-05 b", "BAT-05 d", "BAT-05 e", "STO-01", "SCH-03"}
    assert wanted([{"id": "BAT-05"}, {"id": "STO-02"}]) - named == {"BAT-05 c", "STO-02"}
