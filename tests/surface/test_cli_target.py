"""How a spider is named on the command line, and what is said when the name leads nowhere."""

import sys
import textwrap

import pytest

from netspy.cli.target import assignments, find_spider, load_module
from netspy.errors import ConfigError

TWO = """
from netspy.spiders.air import AirSpider
from netspy.spiders.distributed import Spider

class News(AirSpider):
    pass

class Shop(Spider):
    pass

class _Hidden(AirSpider):
    pass

nothing = 1
"""
ONE = "from netspy.spiders.air import AirSpider\n\nclass News(AirSpider):\n    pass\n"


@pytest.fixture
def write(workdir, monkeypatch):
    """Write a module into the current folder; what the test imports is forgotten afterwards."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "main", raising=False)
    before = set(sys.modules)

    def put(name, text):
        path = workdir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return name

    yield put
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(workdir)):
            del sys.modules[name]


@pytest.mark.parametrize("target", ["main.py", "main.py:News", "main", "main:News", "./main.py"])
def test_a_file_or_a_module_with_or_without_the_class(write, target):
    write("main.py", ONE)
    spider = find_spider(target)
    assert spider.__name__ == "News"
    assert sys.modules[spider.__module__].News is spider


def test_the_same_file_twice_gives_the_same_class(write):
    write("main.py", ONE)
    assert find_spider("main.py") is find_spider("main.py")


def test_a_file_in_a_folder_imports_from_the_project_and_its_own_folder(write):
    write("items/__init__.py", "")
    write("items/product.py", "NAME = 1")
    write("spiders/beside.py", "BESIDE = 2")
    write("spiders/shop.py", ONE + "    from items.product import NAME\n    from beside import BESIDE\n")
    assert (find_spider("spiders/shop.py").NAME, find_spider("spiders/shop.py").BESIDE) == (1, 2)


def test_a_main_that_only_imports_its_spider(write):
    write("spiders/__init__.py", "")
    write("spiders/shop.py", ONE)
    write("main.py", "from spiders.shop import News\nif __name__ == '__main__':\n    News().start()\n")
    assert find_spider("main.py").__module__ == "spiders.shop"
    assert find_spider("spiders.shop:News") is find_spider("main.py")


def test_a_file_named_like_a_loaded_module_does_not_replace_it(write):
    import json

    write("json.py", ONE)
    assert find_spider("json.py").__name__ == "News"
    assert find_spider("json.py") is find_spider("json.py")
    assert sys.modules["json"] is json


@pytest.mark.parametrize(
    ("target", "text", "piece"),
    [
        ("main.py", TWO, "main.py holds 2 spiders; name one of them: main.py:News, main.py:Shop"),
        ("main.py:Nws", TWO, "main.py has no spider class 'Nws'; it has News, Shop"),
        ("main.py:nothing", TWO, "main.py has no spider class 'nothing'"),
        ("main.py", "x = 1", "main.py holds no spider; define a class that inherits from netspy.AirSpider"),
        ("main.py:News", "x = 1", "it has none"),
        ("main.py", "x = 1\ny = 1 / 0\n", "main.py can't be loaded: main.py:2: ZeroDivisionError"),
        ("main.py", "def f(:\n", "main.py can't be loaded: SyntaxError"),
        ("main.py", "import sys\nsys.exit(3)\n", "main.py can't be loaded: main.py:2: SystemExit: 3"),
        ("main.py", "import not_there\n", "main.py:1: ModuleNotFoundError: No module named 'not_there'"),
        ("main", "import not_there\n", "main.py:1: ModuleNotFoundError: No module named 'not_there'"),
        ("other.py", "", "other.py: there is no such file"),
        ("other:News", "", "'other' is neither a file nor a module"),
        ("no.such.module", "", "'no.such.module' is neither a file nor a module"),
    ],
)
def test_a_target_that_leads_nowhere_says_why_and_what_to_do(write, target, text, piece):
    write("main.py", text)
    with pytest.raises(ConfigError) as caught:
        find_spider(target)
    assert piece in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_failed_to_load_is_loaded_afresh_once_it_is_mended(write):
    write("main.py", "1 / 0")
    with pytest.raises(ConfigError):
        load_module("main.py")
    write("main.py", ONE)
    assert find_spider("main.py").__name__ == "News"


def test_pairs_of_the_command_line():
    assert assignments(["a=1", "b=x=y", "a=2", "c="], "-a") == {"a": "2", "b": "x=y", "c": ""}
    for pair in ("a", "=1", "a b=1", ""):
        with pytest.raises(ConfigError, match="is not KEY=VALUE"):
            assignments([pair], "-a")


@pytest.mark.parametrize("call", ["start()", "run()", "start(processes=2)"])
def test_a_file_that_starts_its_spider_when_it_is_read_crawls_nothing(write, call):
    """Else `netspy status main.py` and `netspy reset main.py` would be a crawl."""
    write("main.py", ONE + f"\n\nNews(start_urls=['http://127.0.0.1:1/']).{call}\n")
    told = r"main\.py:7: News is started while main\.py is loaded; put that line below `if __name__"
    with pytest.raises(ConfigError, match=told):
        find_spider("main.py")


def test_a_batch_master_is_not_started_by_reading_its_file_either(write):
    write(
        "main.py",
        "import netspy as mw\n\nclass Rows(mw.BatchSpider):\n    pass\n\nRows().start_monitor(once=True)\n",
    )
    with pytest.raises(ConfigError, match=r"main\.py:6: Rows is started while"):
        find_spider("main.py")
