import io
import logging
import pickle
import re
import subprocess
import sys
from contextlib import contextmanager

import pytest
from loguru import logger as loguru_logger

from netspy.errors import ConfigError
from netspy.observe import log
from netspy.settings import Settings


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def quiet_afterwards():
    """Each test sets the process's log up as it likes; afterwards it is as before, and every file is closed."""
    yield
    log.redirect(None)
    log.close()


@contextmanager
def bare_root():
    """The root logger as in a program that has not set up logging (pytest hangs its own handlers there)."""
    root = logging.getLogger()
    theirs, root.handlers = root.handlers, []
    try:
        yield root
    finally:
        root.handlers = theirs


def test_a_line_has_time_level_name_and_the_formatted_message():
    stream = io.StringIO()
    log.setup(Settings(), spider="News", stream=stream)
    log.get_logger("NewsSpider").info("{} rows from {}", 3, "here")
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} INFO     NewsSpider: 3 rows from here\n", stream.getvalue()
    )


def test_braces_in_a_message_without_arguments_are_left_alone():
    stream = io.StringIO()
    log.setup(Settings(), spider="News", stream=stream)
    log.get_logger("x").info('{"a": 1} {}')
    log.get_logger("x").info("{}", "<red>{not} a template</red>")
    assert '{"a": 1} {}\n' in stream.getvalue()
    assert "<red>{not} a template</red>\n" in stream.getvalue()


def test_setting_up_twice_does_not_double_the_lines():
    stream = io.StringIO()
    log.setup(Settings(), spider="News", stream=stream)
    log.setup(Settings(), spider="News", stream=stream)
    log.get_logger("x").info("once")
    assert stream.getvalue().count("once") == 1


def test_lines_below_the_level_are_not_written():
    stream = io.StringIO()
    log.setup(Settings(LOG_LEVEL="WARNING"), spider="News", stream=stream)
    log.get_logger("x").info("quiet")
    log.get_logger("x").warning("loud")
    assert "quiet" not in stream.getvalue()
    assert "loud" in stream.getvalue()


def test_debug_setting_shows_debug_lines():
    stream = io.StringIO()
    log.setup(Settings(DEBUG=True), spider="News", stream=stream)
    log.get_logger("x").debug("detail")
    assert "detail" in stream.getvalue()


def test_colours_only_on_a_terminal_and_only_when_wanted(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    for stream, settings, coloured in (
        (Terminal(), Settings(), True),
        (Terminal(), Settings(LOG_COLOR=False), False),
        (io.StringIO(), Settings(), False),
    ):
        log.setup(settings, spider="News", stream=stream)
        log.get_logger("x").info("hello")
        assert ("\x1b[" in stream.getvalue()) is coloured


def test_log_file_has_no_colours_though_the_terminal_has(tmp_path, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    path = tmp_path / "crawl.log"
    terminal = Terminal()
    log.setup(Settings(LOG_FILE=str(path)), spider="News", stream=terminal)
    log.get_logger("x").error("a \x1b[31mred\x1b[0m title from a page, 中文")
    log.close()
    assert "\x1b" in terminal.getvalue()
    assert "\x1b" not in path.read_text(encoding="utf-8")
    assert "a red title from a page, 中文" in path.read_text(encoding="utf-8")


def test_log_file_names_spider_and_node(tmp_path):
    log.setup(
        Settings(LOG_FILE=str(tmp_path / "{spider}.{node}.log")),
        spider="News",
        node="3",
        stream=io.StringIO(),
    )
    log.get_logger("x").info("hello")
    log.close()
    assert (tmp_path / "News.3.log").read_text(encoding="utf-8").endswith(" x[3]: hello\n")


def test_log_file_is_rotated(tmp_path):
    log.setup(
        Settings(LOG_FILE=str(tmp_path / "c.log"), LOG_ROTATION="300 B"), spider="News", stream=io.StringIO()
    )
    for _ in range(20):
        log.get_logger("x").info("some forty characters of text, to fill it")
    log.close()
    files = list(tmp_path.iterdir())
    assert len(files) > 1
    assert sum(path.read_text().count("\n") for path in files) == 20


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"LOG_FILE": "/proc/nowhere/x.log"}, "LOG_FILE='/proc/nowhere/x.log'"),
        ({"LOG_FILE": "x.log", "LOG_ROTATION": "fifty"}, "LOG_ROTATION='fifty'"),
    ],
)
def test_a_log_file_that_cannot_be_is_one_clear_line(settings, names, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as caught:
        log.setup(Settings(**settings), spider="News", stream=io.StringIO())
    assert names in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("to redis://:s3cret@h:6379/0 now", "to redis://:***@h:6379/0 now"),
        ("redis://user:a/b?c@h/0", "redis://user:***@h/0"),
        ("proxy http://u:s3cret@10.0.0.1:8080/ failed", "proxy http://u:***@10.0.0.1:8080/ failed"),
        ("http://token@host/x", "http://***@host/x"),
        ("GET https://medium.example/@user/post?mail=a@b.example", None),
        ("mail a@b.example", None),
        ("https://a.example/ and x@y", None),
        (
            "mysql://root:p@ss@db/x and postgresql://u:pw@db/y",
            "mysql://root:***@db/x and postgresql://u:***@db/y",
        ),
    ],
)
def test_passwords_of_urls_are_never_shown(text, shown):
    assert log.without_passwords(text) == (text if shown is None else shown)


def test_passwords_are_hidden_in_messages_files_and_tracebacks(tmp_path):
    stream, path = io.StringIO(), tmp_path / "c.log"
    log.setup(Settings(LOG_FILE=str(path)), spider="News", stream=stream)
    try:
        raise ConnectionError("no answer from redis://:s3cret@h/0")
    except ConnectionError:
        log.get_logger("x").exception("lost {}", "redis://:s3cret@h/0")
    log.close()
    for text in (stream.getvalue(), path.read_text()):
        assert "s3cret" not in text
        assert "lost redis://:***@h/0" in text
        assert "ConnectionError: no answer from redis://:***@h/0\n" in text


def test_a_page_cannot_steer_the_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    log.setup(Settings(LOG_COLOR=False), spider="News", stream=stream)
    log.get_logger("x").info("title \x1b[2J\x1b]0;owned\x07")
    assert "\x1b" not in stream.getvalue()


def test_third_party_warnings_are_shown_and_their_chatter_is_not():
    stream = io.StringIO()
    with bare_root():
        log.setup(Settings(DEBUG=True), spider="News", stream=stream)
        logging.getLogger("some.library").warning("pool %s is full", 3)
        logging.getLogger("some.library").info("chatter")
        log.setup(Settings(), spider="News", stream=stream)
        logging.getLogger("some.library").error("again {}")
    assert "WARNING  some.library: pool 3 is full\n" in stream.getvalue()
    assert "chatter" not in stream.getvalue()
    assert stream.getvalue().count("again {}") == 1


def test_a_program_that_set_up_logging_itself_keeps_its_own():
    theirs = logging.StreamHandler(io.StringIO())
    with bare_root() as root:
        root.addHandler(theirs)
        log.setup(Settings(), spider="News", stream=io.StringIO())
        assert root.handlers == [theirs]


def test_closing_gives_the_standard_library_back():
    with bare_root() as root:
        log.setup(Settings(), spider="News", stream=io.StringIO())
        assert len(root.handlers) == 1
        log.close()
        assert root.handlers == []


def test_lines_go_to_the_panel_while_it_has_them_also_after_another_setup():
    stream, panel = io.StringIO(), []
    log.setup(Settings(), spider="News", stream=stream)
    log.redirect(panel.append)
    log.get_logger("x").info("one")
    log.setup(Settings(), spider="News", stream=stream)
    log.get_logger("x").info("two")
    log.redirect(None)
    log.get_logger("x").info("three")
    assert [line[-4:] for line in panel] == ["one\n", "two\n"]
    assert "three" in stream.getvalue()
    assert "one" not in stream.getvalue()


def test_a_reader_that_is_gone_does_not_stop_the_crawl(capsys):
    stream = io.StringIO()
    log.setup(Settings(), spider="News", stream=stream)
    stream.close()
    log.get_logger("x").info("nobody reads this")
    assert capsys.readouterr() == ("", "")


def test_text_that_the_stream_cannot_encode_is_escaped():
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    log.setup(Settings(), spider="News", stream=stream)
    log.get_logger("x").info("中文 page")
    assert b"\\u4e2d\\u6587 page\n" in raw.getvalue()


def test_a_logger_of_a_spider_can_be_pickled_and_keeps_its_name():
    logger = log.get_logger("News")
    logger.debug("binds the method")
    assert pickle.loads(pickle.dumps(logger)).name == "News"


def test_users_own_loguru_lines_are_shown_too():
    stream = io.StringIO()
    log.setup(Settings(), spider="News", stream=stream)
    loguru_logger.info("from the user's module")
    assert "from the user's module" in stream.getvalue()


def test_importing_and_getting_a_logger_does_not_import_loguru():
    code = (
        "import sys; from netspy.observe.log import get_logger; get_logger('x'); "
        "assert 'loguru' not in sys.modules; assert 'rich' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
