from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING

from netspy.pipelines.console import ConsolePipeline
from netspy.pipelines.loader import load_pipelines
from netspy.settings import Settings

if TYPE_CHECKING:
    import pytest


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def console(**settings: object) -> ConsolePipeline:
    [made] = load_pipelines([ConsolePipeline], Settings(**settings))
    assert isinstance(made, ConsolePipeline)
    return made


def test_a_pipe_gets_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    console().save_items("news", [{"a": 1, "b": "中"}, {"c": None}])
    console().update_items("news", [{"a": 2}], ["a"])
    assert capsys.readouterr().out == ('news {"a":1,"b":"中"}\nnews {"c":null}\nnews update by a {"a":2}\n')


def test_colours_appear_only_on_a_terminal_that_wants_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys, "stdout", Terminal())
    console().save_items("t", [{"a": 1}])
    assert "\x1b[36mt\x1b[0m" in sys.stdout.getvalue()
    for wish in ("setting", "variable"):
        monkeypatch.setattr(sys, "stdout", Terminal())
        if wish == "variable":
            monkeypatch.setenv("NO_COLOR", "1")
        console(LOG_COLOR=wish != "setting").save_items("t", [{"a": 1}])
        assert "\x1b" not in sys.stdout.getvalue()


def test_a_page_can_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    console().save_items("t\x1b]0;x\x07\nfake {}", [{"a": "\x1b[2J\x9b31m\x7f\r\n"}])
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert not set(out.rstrip("\n")) & {chr(c) for c in [*range(0x20), *range(0x7F, 0xA0)]}


def test_a_pipe_that_is_not_utf8_gets_escapes_instead_of_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    console().save_items("t", [{"a": "中"}])
    assert raw.getvalue() == b't {"a":"\\u4e2d"}\n'
