"""The command line as a whole: help, version, one-line errors, exit codes."""

import subprocess
import sys

import pytest
import typer

from netspy.cli import app, main
from netspy.errors import ConfigError, SeedingError, StoreUnavailableError
from netspy.observe.outcome import ExitCode

COMMAND = f"{sys.executable} -c 'import sys; from netspy.cli import main; sys.exit(main())'"


def netspy(*arguments, **options):
    """The real command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", "import sys; from netspy.cli import main; sys.exit(main())", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **options,
    )


@pytest.mark.parametrize("flag", ["-V", "--version"])
def test_version(flag, capsys):
    assert main([flag]) == 0
    assert capsys.readouterr().out == "netspy 0.1.0\n"


def test_the_package_can_be_run_where_scripts_are_not_on_the_path():
    command = [sys.executable, "-m", "netspy", "runn"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "netspy: No such command 'runn'. Did you mean 'run'? (see netspy --help)\n"


def test_without_a_command_the_help_is_shown_and_the_exit_code_says_usage(capsys):
    assert main([]) == ExitCode.USAGE
    assert "Commands:" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["", *app.COMMANDS])
def test_every_command_has_help_and_each_but_the_top_shows_examples(command, capsys):
    assert main([command, "--help"] if command else ["-h"]) == 0
    out = capsys.readouterr().out
    assert "Usage: netspy" in out
    assert ("Examples\n    netspy " + command in out) or not command
    assert "\b" not in out


def test_the_help_explains_every_exit_code(capsys):
    main(["-h"])
    text = capsys.readouterr().out.partition("Exit codes")[2].partition("Options")[0]
    for code in ExitCode:
        assert str(int(code)) in text


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["nonsense"], "netspy: No such command 'nonsense'. (see netspy --help)\n"),
        (
            ["settings", "--nonsense"],
            "netspy settings: No such option: --nonsense (see netspy settings --help)\n",
        ),
        (
            ["settings", "-s"],
            "netspy settings: Option '-s' requires an argument. (see netspy settings --help)\n",
        ),
    ],
)
def test_a_usage_error_is_one_line_and_exit_code_2(arguments, line, capsys):
    assert main(arguments) == ExitCode.USAGE
    assert capsys.readouterr() == ("", line)


def with_command(monkeypatch, action):
    """The application with one command more, which does `action`."""
    monkeypatch.setattr(app, "COMMANDS", {})
    built = app.build()
    built.command("act")(action)
    monkeypatch.setattr(app, "build", lambda: built)


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (
            ConfigError("REDIS_URL='redis://:s3cret@h/0'\nis wrong"),
            3,
            "netspy: error: REDIS_URL='redis://:***@h/0' is wrong\n",
        ),
        (SeedingError("start_requests raised"), 4, "netspy: error: start_requests raised\n"),
        (StoreUnavailableError("away"), 5, "netspy: error: away\n"),
        (KeyboardInterrupt(), 130, None),
        (typer.Abort(), 130, "netspy: aborted\n"),
        (
            ZeroDivisionError("x"),
            7,
            "netspy: internal error: ZeroDivisionError: x (NETSPY_DEBUG=1 shows where)\n",
        ),
    ],
)
def test_what_ends_a_command_is_one_line_without_passwords_and_an_exit_code(
    error, code, line, monkeypatch, capsys
):
    def action():
        raise error

    with_command(monkeypatch, action)
    assert main(["act"]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    assert line is None or err == line


def test_the_traceback_of_an_internal_error_can_be_had(monkeypatch, capsys):
    def action():
        raise ZeroDivisionError("redis://:s3cret@h/0")

    monkeypatch.setenv("NETSPY_DEBUG", "1")
    with_command(monkeypatch, action)
    assert main(["act"]) == 7
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "test_cli_app.py" in err
    assert "s3cret" not in err.replace('raise ZeroDivisionError("redis://:***@h/0")', "")


@pytest.mark.parametrize("code", list(ExitCode))
def test_a_commands_exit_code_reaches_the_caller(code, monkeypatch):
    with_command(monkeypatch, lambda: code)
    assert main(["act"]) == code


def test_without_typer_the_command_says_how_to_install_it(tmp_path):
    code = "import sys; sys.modules['typer'] = None; from netspy.cli import main; sys.exit(main(['-V']))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == ExitCode.CONFIG
    assert done.stderr == (
        "netspy: The command line needs the optional dependencies 'cli'; "
        "install them from the netspy checkout: pip install '.[cli]'\n"
    )


def test_a_reader_that_leaves_early_causes_no_traceback():
    script = f"{COMMAND} create --help | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    assert done.stdout in {"0\n", "141\n"}


def test_the_installed_command_is_this_one():
    done = netspy("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, "netspy 0.1.0\n", "")


def test_every_file_with_a_command_is_listed():
    """A command that is written but not in COMMANDS would be a command nobody can call."""
    from pathlib import Path

    folder = Path(app.__file__).parent
    with_register = {
        ".".join(path.relative_to(folder).with_suffix("").parts)
        for path in folder.rglob("*.py")
        if "\ndef register(" in path.read_text("utf-8")
    }
    assert with_register == set(app.COMMANDS.values())
