"""Passwords of databases are in no output of `netspy settings`, in no error and in no traceback."""

import traceback

import pytest

from netspy.cli import main
from netspy.pipelines.loader import load_pipelines
from netspy.pipelines.mysql import MysqlPipeline
from netspy.pipelines.postgres import PostgresPipeline
from netspy.settings import Settings
from netspy.testing.servers import free_port

SECRET = "p@ss/w:rd#1"


@pytest.mark.parametrize("extra", [[], ["--changed"]])
def test_settings_are_printed_without_the_passwords(workdir, capsys, monkeypatch, extra):
    for name in ("MYSQL_PASSWORD", "POSTGRES_PASSWORD"):
        monkeypatch.setenv(f"NETSPY_{name}", SECRET)
    monkeypatch.setenv("NETSPY_SQL_URL", f"postgresql://me:{SECRET}@db/shop")
    assert main(["settings", *extra]) == 0
    out = "".join(capsys.readouterr())
    assert "MYSQL_PASSWORD" in out
    assert "SQL_URL" in out
    for part in (SECRET, "ss/w", "rd#1"):
        assert part not in out


@pytest.mark.parametrize("kind", [MysqlPipeline, PostgresPipeline])
def test_a_server_that_is_down_is_told_without_the_password(kind):
    port = free_port()
    [made] = load_pipelines(
        [kind], Settings(MYSQL_PORT=port, MYSQL_PASSWORD=SECRET, POSTGRES_PORT=port, POSTGRES_PASSWORD=SECRET)
    )
    with pytest.raises(Exception) as caught:
        made.open()
    told = "".join(traceback.format_exception(caught.value))
    assert str(port) in told
    assert SECRET not in told
    assert made.is_away(caught.value) is True
    assert SECRET not in made.where()
