import json
import re
import textwrap

import pytest

import netspy
from netspy.observe.faults import MAX_TEXT, describe_error, is_user_file, short_traceback, user_line, where


def caught(call, *args):
    try:
        call(*args)
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


@pytest.fixture
def main(tmp_path):
    """A user's module, in a file of its own."""
    path = tmp_path / "main.py"
    path.write_text(
        textwrap.dedent("""\
        import json

        def parse(text):
            rows = json.loads(text)
            return 1 / rows["n"]

        def wrapped(text):
            try:
                parse(text)
            except ZeroDivisionError as error:
                raise KeyError("n") from error
        """)
    )
    names = {"__file__": str(path)}
    exec(compile(path.read_text(), str(path), "exec"), names)
    return names


def test_the_users_line_is_named_and_not_that_of_a_library(main):
    error = caught(main["parse"], "not json")
    assert where(error) == "main.py:4"
    assert describe_error(error) == "JSONDecodeError: Expecting value: line 1 column 1 (char 0)"


def test_an_exception_without_user_frames_has_no_place():
    assert where(ValueError("never raised")) == ""


def test_a_message_that_quotes_a_page_stays_one_short_line():
    text = describe_error(ValueError("line one\nline two\r\n" + "x" * 10_000))
    assert "\n" not in text
    assert len(text) <= len("ValueError: ") + MAX_TEXT


def test_an_exception_that_cannot_be_shown_is_still_told():
    class BadError(Exception):
        def __str__(self):
            raise RuntimeError("no")

    assert describe_error(BadError()) == "BadError: (its message can't be shown: RuntimeError)"


def test_traceback_keeps_the_users_frames_and_the_cause(main):
    error = caught(main["wrapped"], '{"n": 0}')
    text = short_traceback(error)
    assert re.findall(r'main\.py", line (\d+)', text) == ["9", "5", "11"]
    assert "ZeroDivisionError" in text
    assert "direct cause" in text
    assert text.endswith("KeyError: 'n'\n")


def test_traceback_drops_library_frames_unless_asked(main):
    error = caught(main["parse"], "not json")
    assert json.__file__ not in short_traceback(error)
    assert json.__file__.replace("__init__", "decoder") in short_traceback(error, full=True)


def test_whose_file_it_is():
    import msgspec

    import netspy.settings

    assert is_user_file(__file__)
    assert not is_user_file(netspy.settings.__file__)
    assert not is_user_file(json.__file__)
    assert not is_user_file(msgspec.__file__)
    assert not is_user_file("<frozen importlib._bootstrap>")


def test_the_line_in_a_text_is_the_last_of_the_users_code(main):
    from netspy.messages.request import Request

    error = caught(lambda: Request("http://example.com/", priority="high"))
    assert re.fullmatch(r"test_faults\.py:\d+", user_line(error))
    assert user_line(caught(main["parse"], "not json")) == "main.py:4"
    assert user_line(ValueError("never raised")) == "?"


def test_a_spider_that_is_an_installed_package_has_a_line_too():
    import msgspec

    file = msgspec.__file__.replace("__init__", "spider")
    names = {}
    exec(compile("import json\n\ndef parse():\n    json.loads('x')\n", file, "exec"), names)
    error = caught(names["parse"])
    error.__traceback__ = error.__traceback__.tb_next  # as netspy would have called it
    assert (where(error), user_line(error)) == ("", "spider.py:4")


@pytest.mark.parametrize("folder", ["netspy", "netspy/src/netspy", "src/netspy-shop", "lib/python3/shop"])
def test_a_users_folder_may_have_any_name_hv_13(tmp_path, folder):
    path = tmp_path / folder / "main.py"
    path.parent.mkdir(parents=True)
    names = {}
    exec(compile("def parse():\n    raise KeyError('n')\n", str(path), "exec"), names)
    error = caught(names["parse"])
    assert is_user_file(str(path))
    assert where(error) == user_line(error) == "main.py:2"


def test_what_only_begins_like_the_package_is_the_users_hv_13():
    package = netspy.__file__.removesuffix("/__init__.py")
    assert not is_user_file(f"{package}/engine/any.py")
    assert is_user_file(f"{package}_shop/main.py")
    assert is_user_file(f"{package}.py")
