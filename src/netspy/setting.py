"""The project's settings: `from netspy import setting`, `setting.SPIDER_THREAD_COUNT`, `setting.SPIDER_THREAD_COUNT = 8`.

The module is the object: its upper-case attributes are settings (`netspy.settings.ProjectSettings`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any

from netspy.settings import ProjectSettings

_project = ProjectSettings()


class _Setting(ModuleType):
    """A module whose upper-case names are settings."""

    def __getattr__(self, name: str) -> Any:
        if not name.isupper():
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return _project.get(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.isupper():
            _project.assign(name, value)
        else:
            super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        if name.isupper():
            _project.remove(name)
        else:
            super().__delattr__(name)

    def __dir__(self) -> Iterable[str]:
        return [*super().__dir__(), *_project.as_dict()]


def as_dict() -> dict[str, Any]:
    """Every setting, and the upper-case names of one's own. Raises ConfigError for a wrong value."""
    return _project.as_dict()


def apply(values: Mapping[str, Any] | None = None, **more: Any) -> None:
    """Assign several settings, as `setting.NAME = value` assigns one."""
    for name, value in {**(values or {}), **more}.items():
        _project.assign(name, value)


def reload() -> None:
    """Read the sources again at the next use, and forget what was assigned."""
    _project.reload()


sys.modules[__name__].__class__ = _Setting
