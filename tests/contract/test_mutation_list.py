"""The list of mutations fits the scripts as they are; that tests notice each of them is `make mutations`' to show."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "netspy"


@pytest.fixture(scope="module")
def mutate():
    spec = importlib.util.spec_from_file_location("mutate_scripts", ROOT / "scripts" / "mutate_scripts.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutate_scripts"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["mutate_scripts"]


def test_every_mutation_changes_the_script_it_names_in_one_place(mutate):
    found = mutate.mutations()
    assert len({(m.file, m.en) for m in found}) == len(found)
    for mutation in found:
        text = (PACKAGE / mutation.file).read_text("utf-8")
        assert mutation.broken(text) != text
        assert re.search("[一-鿿]", mutation.zh), mutation


def test_every_script_has_one(mutate):
    scripts = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.lua")}
    assert {mutation.file for mutation in mutate.mutations()} == scripts


def test_a_text_that_is_not_there_once_is_refused(mutate):
    mutation = mutate.Mutation("x.lua", "what", "什么", "old", "new")
    for text in ("", "old old"):
        with pytest.raises(ValueError, match="occurs"):
            mutation.broken(text)
    assert mutation.broken("an old thing") == "an new thing"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_page_of_results_is_of_this_list(mutate, language):
    path = ROOT / mutate.PAGES[language][0]
    if not path.exists():
        pytest.fail("run `make mutations`")
    text = path.read_text("utf-8")
    missing = [m.en for m in mutate.mutations() if mutate.start_of_row(m, language) + "`tests/" not in text]
    assert missing == [], "run `make mutations`"


def test_a_run_of_some_keeps_the_lines_of_the_others(mutate):
    one, other = (mutate.Mutation("x.lua", f"what {n}", f"什么 {n}", "old", "new") for n in (1, 2))
    first = [mutate.Verdict(m, "tests/a.py", "test_it", 1.0) for m in (one, other)]
    whole = mutate.page("en", [one, other], first, "")
    again = mutate.page(
        "en", [one, other], [mutate.Verdict(other, "tests/b.py", "(a test hung)", 1.0)], whole
    )
    assert again == whole.replace("what 2 | `tests/a.py::test_it`", "what 2 | `tests/b.py` (a test hung)")
    assert "1 mutations, 1 noticed." in mutate.page("en", [one], [], whole)
    with pytest.raises(LookupError, match="what 2"):
        mutate.page("en", [one, other], first[:1], "")
