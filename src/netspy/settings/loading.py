"""The loader: layers the sources of settings, and keeps where each value came from."""

from __future__ import annotations

import difflib
import os
import runpy
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from netspy.errors import ConfigError
from netspy.logger import get_logger
from netspy.settings.declared import FIELDS, LEGACY, NOT_BUILT, Settings
from netspy.settings.passwords import display_value
from netspy.settings.values import NO, check_value, from_text

DEFAULT_ORIGIN = "default"

COMMAND_LINE = "-s"
"""The origin of settings given on the command line."""


class Loaded(Struct, frozen=True):
    """Settings with where each value came from, and what is to be said about them at start."""

    settings: Settings
    origins: dict[str, str]
    warnings: tuple[str, ...] = ()
    extra: dict[str, Any] = {}  # the user's own upper-case names
    project: str = ""  # the setting file that was read


_FILES = ("setting.py", "settings.py")
_PACKAGE = Path(__file__).resolve().parent.parent
_script: Path | None = None


class ProjectFile(NamedTuple):
    """The setting file that is read, and what is to be said about those that aren't."""

    path: Path | None
    warnings: tuple[str, ...] = ()


def set_script(path: Path | None) -> None:
    """The command line was given this file to run. Its folder is the script's own."""
    global _script  # noqa: PLW0603 - a process runs one script
    _script = path


def script_folder() -> Path | None:
    """The folder of the script that this process runs; None for a notebook, and for installed commands."""
    if _script is not None:
        return _script.resolve().parent
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    if not file:
        return None
    folder = Path(file).resolve().parent
    installed = [sysconfig.get_path(name) for name in ("scripts", "purelib", "platlib", "stdlib")]
    not_scripts = [_PACKAGE, *(Path(one).resolve() for one in installed if one)]
    return None if folder in not_scripts else folder


def project_file(
    environ: Mapping[str, str], folder: Path | None = None, script: Path | None = None
) -> ProjectFile:
    """The project's setting file: what NETSPY_SETTING names, else `setting.py` or `settings.py` in the current folder
    (`folder`), else in the script's own (`script`). No other folder is looked at, but to say that its file wasn't read.
    """
    named = environ.get("NETSPY_SETTING", "")
    folder = folder or Path.cwd()
    if named:
        path = Path(named).expanduser()
        if path.is_file():
            return ProjectFile(path)
        as_module = folder.joinpath(*named.split(".")).with_suffix(".py")
        if as_module.is_file():
            return ProjectFile(as_module)
        raise ConfigError(
            f"NETSPY_SETTING={named!r} names no file; give the path of a setting.py, or unset it"
        )
    found = _present([folder, *([script] if script else [])])
    if found:
        return ProjectFile(
            found[0],
            tuple(
                f"{other} is not read: the settings are those of {found[0]}; NETSPY_SETTING names another file"
                for other in found[1:]
            ),
        )
    above = _present([(script or folder).parent])[:1]
    return ProjectFile(
        None,
        tuple(f"{one} is not read; start from its folder, or name it in NETSPY_SETTING" for one in above),
    )


def _present(folders: Iterable[Path]) -> list[Path]:
    """The setting files there are, each once."""
    found: dict[Path, Path] = {}
    for folder in folders:
        for name in _FILES:
            path = folder / name
            if path.is_file():
                found.setdefault(path.resolve(), path)
    return list(found.values())


def read_project(path: Path) -> dict[str, Any]:
    """The upper-case names of a setting file, which may import what lies beside it. Raises ConfigError when it raises."""
    folder = str(path.resolve().parent)
    added = folder not in sys.path
    if added:
        sys.path.insert(0, folder)
    try:
        names = runpy.run_path(str(path))
    except Exception as error:
        raise ConfigError(f"{path}: reading the settings failed: {type(error).__name__}: {error}") from error
    finally:
        if added:
            with suppress(ValueError):
                sys.path.remove(folder)
    return {key: value for key, value in names.items() if key.isupper() and not key.startswith("_")}


class _Layers:
    """What has been taken so far; a later value replaces an earlier one."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._origins = dict.fromkeys(FIELDS, DEFAULT_ORIGIN)
        self._extra: dict[str, Any] = {}
        self._warnings: list[str] = []
        self._misspelt: list[str] = []

    def warn(self, text: str) -> None:
        """To be said at the start."""
        self._warnings.append(text)

    def take(self, name: str, value: Any, origin: str) -> None:
        """One value. Raises ConfigError when it is wrong."""
        if name in FIELDS:
            self._values[name] = check_value(name, value, origin)
            self._origins[name] = origin
        elif name in NOT_BUILT:
            on = value if not isinstance(value, str) else value.strip().lower() not in NO | {""}
            if on:
                raise ConfigError(f"{origin}: {name}={display_value(name, value)}: {NOT_BUILT[name]}")
        elif name in LEGACY:
            self._warnings.append(f"{origin}: {name} is accepted and has no effect in netspy")
        else:
            close = difflib.get_close_matches(name, [*FIELDS, *NOT_BUILT, *LEGACY], n=1, cutoff=0.85)
            if close:
                self._misspelt.append(f"{origin}: {name} is no setting; did you mean {close[0]}?")
            elif origin == COMMAND_LINE and name not in self._extra:
                self._warnings.append(
                    f"{origin}: {name} is no setting (`netspy settings` lists them; -a gives an argument)"
                )
            self._extra[name] = value

    def loaded(self, project: str = "") -> Loaded:
        """The settings that come of it; `project` is the file that was read. Raises ConfigError: they don't fit together,
        or a name is misspelt under STRICT_SETTINGS.
        """
        if self._misspelt and self._values.get("STRICT_SETTINGS", False):
            raise ConfigError("; ".join(self._misspelt))
        warnings = (*self._warnings, *self._misspelt)
        return Loaded(Settings(**self._values), self._origins, warnings, self._extra, project)


def load(
    *,
    custom: Mapping[str, Any] | None = None,
    custom_origin: str = "__custom_setting__",
    overrides: Mapping[str, Any] | None = None,
    override_origin: str | Mapping[str, str] = "keyword",
    assigned: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    project: Mapping[str, Any] | None = None,
    project_origin: str = "setting.py",
) -> Loaded:
    """Layer the sources and check the result.

    `project=None` reads the project's file; pass a mapping to give its values directly. `assigned`: in the place of what
    `netspy.setting` was assigned in this process. `override_origin` may name the
    origin of each override by itself. Raises ConfigError with one line for the first wrong value.
    """
    environ = os.environ if environ is None else environ
    layers = _Layers()
    read = ""
    if project is None:
        path, warnings = project_file(environ, script=script_folder())
        project = {}
        if path is not None:
            project, project_origin, read = read_project(path), str(path), str(path)
        for warning in warnings:
            layers.warn(warning)
    by_code = _assigned if assigned is None else assigned
    for source, origin in ((project, project_origin), (by_code, ASSIGNED), (custom or {}, custom_origin)):
        for name, value in source.items():
            layers.take(name, value, origin)
    for variable, text in environ.items():
        if not variable.startswith("NETSPY_") or variable == "NETSPY_SETTING":
            continue
        name = variable.removeprefix("NETSPY_")
        if name in FIELDS and text == "":
            continue
        layers.take(name, from_text(name, text, variable) if name in FIELDS else text, variable)
    for name, value in (overrides or {}).items():
        origin = override_origin if isinstance(override_origin, str) else override_origin.get(name, "keyword")
        layers.take(name, value, origin)
    return layers.loaded(read)


ASSIGNED = "netspy.setting"
"""The origin of settings that were assigned: `netspy.setting.NAME = value`."""

_assigned: dict[str, Any] = {}
_in_use: list[tuple[str, Loaded]] = []


@contextmanager
def in_use(spider: str, loaded: Loaded) -> Iterator[None]:
    """While the block runs, `netspy.setting` shows the settings of this spider, its `__custom_setting__` included."""
    mine = (spider, loaded)
    _in_use.append(mine)
    try:
        yield
    finally:
        _in_use[:] = [other for other in _in_use if other is not mine]


class ProjectSettings:
    """What `netspy.setting` shows, and what assigning to it does.

    It shows the settings of the spider that runs in this process (of the one started last, where several do), else the
    project's: defaults, setting.py, what was assigned, environment. An assignment is a layer between setting.py and
    `__custom_setting__` for the spiders that start after it.
    """

    def __init__(self) -> None:
        self._loaded: Loaded | None = None
        self._too_late: set[str] = set()

    def as_dict(self) -> dict[str, Any]:
        """Every setting, and the upper-case names of one's own. Raises ConfigError for a wrong value."""
        if _in_use:
            loaded = _in_use[-1][1]
        else:
            loaded = self._loaded = self._loaded or load()
        return {**msgspec.structs.asdict(loaded.settings), **loaded.extra}

    def get(self, name: str) -> Any:
        """One setting. Raises AttributeError for a name that is none, ConfigError."""
        values = self.as_dict()
        if name in values:
            return values[name]
        if name in _assigned:  # a name that is accepted without effect
            return _assigned[name]
        raise AttributeError(f"no setting is called {name!r}; see docs/settings.md")

    def assign(self, name: str, value: Any) -> None:
        """Set one. It is checked when a spider starts. A run that goes on doesn't change; that is said once."""
        _assigned[name] = value
        self._loaded = None
        if _in_use and name not in self._too_late:
            self._too_late.add(name)
            get_logger("setting").warning(
                "setting.{} was assigned while {} runs, which keeps its value; assign it before start()",
                name,
                _in_use[-1][0],
            )

    def remove(self, name: str) -> None:
        """Take an assignment back. Raises AttributeError where there is none."""
        if _assigned.pop(name, self) is self:
            raise AttributeError(f"setting.{name} was not assigned")
        self._loaded = None

    def reload(self) -> None:
        """Read the sources again at the next use, and forget what was assigned."""
        _assigned.clear()
        self._loaded = None
