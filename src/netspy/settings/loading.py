"""The loader: layers the sources of settings, and keeps where each value came from."""

from __future__ import annotations

import difflib
import os
import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from netspy.errors import ConfigError
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


def project_file(environ: Mapping[str, str], folder: Path | None = None) -> Path | None:
    """The project's setting file: what NETSPY_SETTING names, else `setting.py` or `settings.py` in the folder."""
    named = environ.get("NETSPY_SETTING", "")
    folder = folder or Path.cwd()
    if named:
        path = Path(named)
        if path.is_file():
            return path
        as_module = folder.joinpath(*named.split(".")).with_suffix(".py")
        if as_module.is_file():
            return as_module
        raise ConfigError(
            f"NETSPY_SETTING={named!r} names no file; give the path of a setting.py, or unset it"
        )
    for name in ("setting.py", "settings.py"):
        path = folder / name
        if path.is_file():
            return path
    return None


def read_project(path: Path) -> dict[str, Any]:
    """The upper-case names of a setting file. Raises ConfigError when the file raises."""
    try:
        names = runpy.run_path(str(path))
    except Exception as error:
        raise ConfigError(f"{path}: reading the settings failed: {type(error).__name__}: {error}") from error
    return {key: value for key, value in names.items() if key.isupper() and not key.startswith("_")}


class _Layers:
    """What has been taken so far; a later value replaces an earlier one."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._origins = dict.fromkeys(FIELDS, DEFAULT_ORIGIN)
        self._extra: dict[str, Any] = {}
        self._warnings: list[str] = []
        self._misspelt: list[str] = []

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
            close = difflib.get_close_matches(name, FIELDS, n=1, cutoff=0.85)
            if close:
                self._misspelt.append(f"{origin}: {name} is no setting; did you mean {close[0]}?")
            elif origin == COMMAND_LINE and name not in self._extra:
                self._warnings.append(
                    f"{origin}: {name} is no setting (`netspy settings` lists them; -a gives an argument)"
                )
            self._extra[name] = value

    def loaded(self) -> Loaded:
        """The settings that come of it. Raises ConfigError: they don't fit together, or a name is misspelt under
        STRICT_SETTINGS.
        """
        if self._misspelt and self._values.get("STRICT_SETTINGS", False):
            raise ConfigError("; ".join(self._misspelt))
        warnings = (*self._warnings, *self._misspelt)
        return Loaded(Settings(**self._values), self._origins, warnings, self._extra)


def load(
    *,
    custom: Mapping[str, Any] | None = None,
    custom_origin: str = "__custom_setting__",
    overrides: Mapping[str, Any] | None = None,
    override_origin: str | Mapping[str, str] = "keyword",
    environ: Mapping[str, str] | None = None,
    project: Mapping[str, Any] | None = None,
    project_origin: str = "setting.py",
) -> Loaded:
    """Layer the sources and check the result.

    `project=None` reads the project's file; pass a mapping to give its values directly. `override_origin` may name the
    origin of each override by itself. Raises ConfigError with one line for the first wrong value.
    """
    environ = os.environ if environ is None else environ
    if project is None:
        path = project_file(environ)
        project, project_origin = (read_project(path), str(path)) if path else ({}, project_origin)
    layers = _Layers()
    for source, origin in ((project, project_origin), (custom or {}, custom_origin)):
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
    return layers.loaded()


class ProjectSettings:
    """`netspy.setting`: a read view of the project's settings (defaults, setting.py, environment).

    A spider's own settings, with its `__custom_setting__`, are `spider.settings`.
    """

    def __init__(self) -> None:
        self._loaded: Loaded | None = None

    def _get(self) -> Loaded:
        if self._loaded is None:
            self._loaded = load()
        return self._loaded

    def reload(self) -> None:
        """Read the sources again at the next use."""
        self._loaded = None

    def as_dict(self) -> dict[str, Any]:
        """Every setting and the project's own upper-case names."""
        loaded = self._get()
        return {**msgspec.structs.asdict(loaded.settings), **loaded.extra}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self.as_dict()[name]
        except KeyError:
            raise AttributeError(f"no setting is called {name!r}; see docs/settings.md") from None
