"""`netspy settings`: every value, its type, its unit and where it came from."""

import io
import sys
import textwrap
from collections import Counter

import pytest

from netspy import settings
from netspy.cli import main
from netspy.cli.settings import Row, aligned, rows_of, tabbed


@pytest.fixture
def run(workdir, capsys):
    """Run `netspy settings …` in an empty folder; (code, rows by name, errors)."""

    def call(*arguments):
        code = main(["settings", *arguments])
        out, err = capsys.readouterr()
        return code, {line.split("\t")[0]: line.split("\t")[1:] for line in out.splitlines()}, err

    return call


def test_every_setting_is_shown_with_value_type_unit_and_origin(run):
    code, rows, err = run()
    assert (code, err) == (0, "")
    assert list(rows) == list(settings.FIELDS)
    assert rows["SPIDER_THREAD_COUNT"] == ["16", "int", "requests", "default"]
    assert rows["DEDUP_SCOPE"] == ["'auto'", "auto | run | spider", "", "default"]
    assert rows["LOG_FILE"] == ["None", "str | None", "path", "default"]


def test_the_strongest_source_wins_and_is_named(run, workdir, monkeypatch):
    (workdir / "setting.py").write_text(
        "LOG_LEVEL = 'ERROR'\nRUN_TTL = 60\nSPIDER_THREAD_COUNT = 2\nMY_OWN = 1\n"
    )
    monkeypatch.setenv("NETSPY_RUN_TTL", "70")
    monkeypatch.setenv("NETSPY_SPIDER_THREAD_COUNT", "3")
    _, rows, _ = run("-s", "SPIDER_THREAD_COUNT=4", "--changed")
    assert rows == {
        "LOG_LEVEL": ["'ERROR'", rows["LOG_LEVEL"][1], "", str(workdir / "setting.py")],
        "RUN_TTL": ["70", "int", "s", "NETSPY_RUN_TTL"],
        "SPIDER_THREAD_COUNT": ["4", "int", "requests", "-s"],
        "MY_OWN": ["1", "int", "", "not a setting"],
    }


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("SPIDER_KEEP_ALIVE=no", "False"),
        ("HEARTBEAT_INTERVAL=1.5", "1.5"),
        ("RUN_ID=007", "'007'"),
        ("RETRY_STATUS_CODES=500,503", "[500, 503]"),
        ("RETRY_STATUS_CODES=[500]", "[500]"),
        ("ALLOWED_CONTENT_TYPES=text/*,image/png", "['text/*', 'image/png']"),
        ("USER_AGENT=a=b", "'a=b'"),
    ],
)
def test_values_of_the_command_line_are_read_by_type(run, given, shown):
    _, rows, _ = run("-s", given)
    assert rows[given.partition("=")[0]][0] == shown


@pytest.mark.parametrize(
    ("arguments", "piece"),
    [
        (["-s", "SPIDER_THREAD_COUNT=eight"], "SPIDER_THREAD_COUNT='eight' is not a whole number"),
        (["-s", "SPIDER_THREAD_COUNT"], "-s 'SPIDER_THREAD_COUNT' is not KEY=VALUE"),
        (["-s", "SPIDER_THREAD_COUNT=0"], "SPIDER_THREAD_COUNT=0 is wrong"),
        (["-s", "HEARTBEAT_STALE=1"], "HEARTBEAT_STALE=1s is not longer than HEARTBEAT_INTERVAL=3s"),
        (["--spider", "nowhere.py"], "nowhere.py: there is no such file"),
    ],
)
def test_a_wrong_value_is_one_line_that_names_it_and_exit_code_3(run, arguments, piece):
    code, rows, err = run(*arguments)
    assert code == 3
    assert rows == {}
    assert err.count("\n") == 1
    assert piece in err


def test_a_wrong_variable_is_named(run, monkeypatch):
    monkeypatch.setenv("NETSPY_SPIDER_THREAD_COUNT", "eight")
    code, _, err = run()
    assert code == 3
    assert "NETSPY_SPIDER_THREAD_COUNT: SPIDER_THREAD_COUNT='eight' is not a whole number" in err


def test_a_misspelt_name_is_told(run, monkeypatch):
    monkeypatch.setenv("NETSPY_SPIDER_THREAD_COUT", "8")
    code, _, err = run()
    assert code == 0
    assert err == (
        "netspy: warning: NETSPY_SPIDER_THREAD_COUT: SPIDER_THREAD_COUT is no setting; "
        "did you mean SPIDER_THREAD_COUNT?\n"
    )


def test_a_name_that_nothing_knows_is_told_on_the_command_line_but_not_ones_own(run, workdir):
    (workdir / "setting.py").write_text("SHOP_REGION = 'eu'\n")
    code, _, err = run("-s", "THREADS=8", "-s", "SHOP_REGION=us")
    assert code == 0
    assert err == (
        "netspy: warning: -s: THREADS is no setting (`netspy settings` lists them; -a gives an argument)\n"
    )


def test_secrets_are_never_shown(run, workdir):
    (workdir / "setting.py").write_text(
        "REDIS_URL = 'redis://user:s3cret@h/0'\nSHOP_PASSWORD = 's3cret'\nAPI_TOKEN = 's3cret'\n"
    )
    for arguments in ((), ("--changed",)):
        _, rows, err = run(*arguments)
        assert "s3cret" not in f"{rows}{err}"
        assert rows["REDIS_URL"][0] == "redis://user:***@h/0"
        assert rows["SHOP_PASSWORD"][0] == "***"


def test_a_spiders_own_settings_are_shown_inherited_ones_too(run, workdir, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (workdir / "own_settings.py").write_text(
        textwrap.dedent("""
        import netspy.spiders.air as air

        class Base(air.AirSpider):
            __custom_setting__ = {"SPIDER_THREAD_COUNT": 5, "LOG_LEVEL": "ERROR"}

        class News(Base):
            __custom_setting__ = {"LOG_LEVEL": "DEBUG"}
        """)
    )
    _, rows, _ = run("--spider", "own_settings.py:News", "--changed")
    assert {name: (row[0], row[3]) for name, row in rows.items()} == {
        "SPIDER_THREAD_COUNT": ("5", "News.__custom_setting__"),
        "LOG_LEVEL": ("'DEBUG'", "News.__custom_setting__"),
    }


def test_on_a_terminal_the_columns_are_aligned(workdir, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout", terminal)
    assert main(["settings"]) == 0
    lines = terminal.getvalue().splitlines()
    assert lines[0] == "[run]"
    starts = Counter(line.index("  default") for line in lines if line.endswith("  default"))
    assert starts.most_common(1)[0][1] > 0.9 * len(settings.FIELDS)
    assert "\t" not in terminal.getvalue()


def test_nothing_changed_is_said_on_a_terminal_and_empty_in_a_pipe():
    assert aligned([]) == ["Nothing differs from the defaults."]
    assert tabbed([]) == []


def test_a_long_value_does_not_widen_the_table():
    rows = [Row("g", "A", "1", "int", "s", "default"), Row("g", "B", "x" * 500, "str", "", "default")]
    assert len(aligned(rows)[1]) < 80


def test_a_value_with_a_newline_or_tab_stays_one_line():
    loaded = settings.load(environ={}, project={}, overrides={"USER_AGENT": "a\n\tb"})
    [row] = [row for row in rows_of(loaded) if row.name == "USER_AGENT"]
    assert tabbed([row]) == ["USER_AGENT\t'a\\n\\tb'\tstr\t\tkeyword"]
