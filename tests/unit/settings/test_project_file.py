"""Which setting file is read, which one isn't and who hears of it; and paths in settings."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from netspy import settings
from netspy.errors import ConfigError
from netspy.settings.loading import ProjectFile, load, project_file, script_folder, set_script


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Two folders beside each other: the current one and the script's."""
    here, script = tmp_path / "here", tmp_path / "project"
    here.mkdir()
    script.mkdir()
    monkeypatch.chdir(here)
    return here, script


def write(path: Path, text: str = "SPIDER_THREAD_COUNT = 3\n") -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", ["setting.py", "settings.py"])
def test_cron_starts_from_another_folder_and_the_scripts_own_file_is_read(name, folders):
    """Case HV-06."""
    here, script = folders
    file = write(script / name)
    assert project_file({}, here, script) == ProjectFile(file)


def test_the_current_folder_comes_first_and_the_file_that_is_not_read_is_named(folders):
    here, script = folders
    mine, other = write(here / "setting.py"), write(script / "setting.py")
    found = project_file({}, here, script)
    assert found.path == mine
    assert found.warnings == (
        f"{other} is not read: the settings are those of {mine}; NETSPY_SETTING names another file",
    )


def test_two_files_in_one_folder_are_one_too_many(folders):
    here, script = folders
    write(here / "setting.py")
    write(here / "settings.py")
    found = project_file({}, here, script)
    assert found.path == here / "setting.py"
    assert "settings.py is not read" in found.warnings[0]


def test_a_script_in_the_current_folder_has_one_file_and_no_warning(folders):
    here, _ = folders
    file = write(here / "setting.py")
    assert project_file({}, here, here) == ProjectFile(file)


def test_a_file_above_the_scripts_folder_is_not_read_but_named(folders):
    """`netspy run /srv/shop/spiders/news.py` from /: the project's folder is one up."""
    here, script = folders
    above = write(script / "setting.py")
    spiders = script / "spiders"
    spiders.mkdir()
    found = project_file({}, here, spiders)
    assert found.path is None
    assert found.warnings == (f"{above} is not read; start from its folder, or name it in NETSPY_SETTING",)


@pytest.mark.parametrize("named", ["other.py", "conf/prod.py", "conf.prod", "~/home.py"])
def test_the_file_that_is_named_is_read_and_no_other_is_spoken_of(named, folders, monkeypatch):
    here, script = folders
    monkeypatch.setenv("HOME", str(script))
    write(here / "setting.py")
    (here / "conf").mkdir()
    for path in (here / "other.py", here / "conf/prod.py", script / "home.py"):
        write(path)
    found = project_file({"NETSPY_SETTING": named}, here, script)
    assert found.path is not None
    assert found.path.name == {"conf.prod": "prod.py"}.get(named, Path(named).name)
    assert found.warnings == ()


def test_a_named_file_that_is_not_there_is_an_error(folders):
    with pytest.raises(ConfigError, match=r"NETSPY_SETTING='no\.py' names no file"):
        project_file({"NETSPY_SETTING": "no.py"})


def test_what_lies_beside_the_file_can_be_imported_and_the_path_is_as_before(folders):
    _, script = folders
    write(script / "shared_by_settings.py", "COUNT = 5\n")
    file = write(script / "setting.py", "from shared_by_settings import COUNT as SPIDER_THREAD_COUNT\n")
    before = list(sys.path)
    assert settings.read_project(file) == {"SPIDER_THREAD_COUNT": 5}
    assert sys.path == before


def test_the_scripts_folder_is_that_of_the_file_that_python_runs(folders, monkeypatch):
    _, script = folders
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(__file__=str(script / "main.py")))
    assert script_folder() == script
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace())  # a notebook, python -c
    assert script_folder() is None
    for command in (
        Path(sys.executable).with_name("netspy"),
        Path(settings.__file__).parents[1] / "__main__.py",
    ):
        monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(__file__=str(command)))
        assert script_folder() is None


def test_the_command_line_names_the_script(folders, monkeypatch):
    _, script = folders
    file = write(script / "setting.py")
    set_script(script / "main.py")
    try:
        loaded = load(environ={})
    finally:
        set_script(None)
    assert (loaded.settings.SPIDER_THREAD_COUNT, loaded.project) == (3, str(file))
    assert loaded.origins["SPIDER_THREAD_COUNT"] == str(file)


PATHS = [name for name in settings.FIELDS if settings.is_path(name)]


def test_the_settings_that_are_paths_are_known():
    assert {"FAILED_ITEM_PATH", "LOG_FILE", "EMBEDDED_DATA_DIR", "FILES_STORE", "SQLITE_PATH"} <= set(PATHS)


@pytest.mark.parametrize("name", PATHS)
def test_a_path_may_be_an_object_and_begin_with_the_home_folder(name, monkeypatch, tmp_path):
    """Case HV-06: a path that begins with ~ is in the home folder, not in a folder called ~."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for value in (Path("~/in/home"), "~/in/home"):
        assert settings.check_value(name, value, "setting.py") == str(tmp_path / "in/home")
    assert settings.check_value(name, Path("in/folder"), "setting.py") == "in/folder"
    assert settings.check_value(name, "a~b", "setting.py") == "a~b"


def test_a_home_folder_that_nobody_knows_is_an_error():
    with pytest.raises(ConfigError, match=r"setting\.py: LOG_FILE='~no_such_user/x': no home folder"):
        settings.check_value("LOG_FILE", "~no_such_user/x", "setting.py")
