"""From what is typed on the command line to values: `main.py:NewsSpider`, `KEY=VALUE`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netspy import settings
from netspy.errors import ConfigError
from netspy.observe.faults import describe_error, where
from netspy.spiders.loading import StartedWhileLoadingError, only_loading

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

    from netspy.spiders.base import BaseParser


def find_spider(target: str) -> type[BaseParser]:
    """The spider class that `target` names: `main.py`, `main.py:News`, `shop.news` or `shop.news:News`.

    Without a class name there must be exactly one: those defined in the module count first, then those it
    imports from the project. Raises ConfigError when the module can't be read or the choice isn't clear.
    """
    place, colon, name = target.rpartition(":")
    if not colon or not name.isidentifier():
        place, name = target, ""
    module = load_module(place)
    from netspy.spiders.base import BaseParser  # light commands, and a file that isn't there, do without it

    found = spiders_in(module)
    if name:
        chosen = vars(module).get(name)
        if isinstance(chosen, type) and issubclass(chosen, BaseParser):
            return chosen
        have = f"it has {', '.join(found)}" if found else "it has none"
        raise ConfigError(f"{place} has no spider class {name!r}; {have}")
    if not found:
        raise ConfigError(f"{place} holds no spider; define a class that inherits from netspy.AirSpider")
    if len(found) > 1:
        raise ConfigError(f"{place} holds {len(found)} spiders; name one of them: {_choices(place, found)}")
    return next(iter(found.values()))


def _choices(place: str, found: Iterable[str]) -> str:
    return ", ".join(f"{place}:{name}" for name in found)


def spiders_in(module: ModuleType) -> dict[str, type[BaseParser]]:
    """The spider classes of a module by name: its own or, if it has none, those it imports."""
    from netspy.spiders.base import BaseParser

    spiders = {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, BaseParser)
        and not value.__module__.startswith("netspy.")
        and not name.startswith("_")
    }
    own = {name: value for name, value in spiders.items() if value.__module__ == module.__name__}
    return own or spiders


def load_module(place: str) -> ModuleType:
    """Import a file (`main.py`, `spiders/news.py`) or a module (`shop.news`), as `__main__` is not.

    The current folder, and a file's own, can be imported from, as with `python main.py`. Raises ConfigError
    when it isn't there, or when its code raises: with the line that did.
    """
    path = Path(place)
    is_file = path.suffix == ".py" or path.is_file()
    if is_file and not path.is_file():
        raise ConfigError(f"{place}: there is no such file; give the path of a spider's file, e.g. main.py")
    if is_file:
        settings.set_script(path)
    for folder in (str(Path.cwd()), str(path.resolve().parent)) if is_file else (str(Path.cwd()),):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    try:
        with only_loading(place):
            return _from_file(path) if is_file else importlib.import_module(place)
    except StartedWhileLoadingError as error:
        raise ConfigError(f"{where(error) or place}: {error}") from None
    except ModuleNotFoundError as error:
        if not is_file and error.name and f"{place}.".startswith(f"{error.name}."):
            raise ConfigError(
                f"{place!r} is neither a file nor a module; give e.g. main.py:News or package.module:News"
            ) from None
        raise ConfigError(_broken(place, error)) from error
    except (Exception, SystemExit) as error:
        raise ConfigError(_broken(place, error)) from error


def _broken(place: str, error: BaseException) -> str:
    line = where(error)
    return f"{place} can't be loaded: {f'{line}: ' if line else ''}{describe_error(error)}"


def _from_file(path: Path) -> ModuleType:
    """A file as a module of its own name, so that what it defines is found again by a second import."""
    resolved = path.resolve()
    package = _package_of(resolved)
    if package:
        return _from_package(package, resolved)
    name = resolved.stem
    if not _is_free(name, resolved):
        name = f"netspy_target_{name}"  # the file is named like a module that is loaded, e.g. queue.py
    if name in sys.modules and _is_free(name, resolved):
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, resolved)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} is not Python source; give the path of a .py file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _package_of(path: Path) -> str:
    """`shop.spiders` for a file in such a package, whose relative imports then work; empty for one in a plain folder."""
    names: list[str] = []
    folder = path.parent
    while (folder / "__init__.py").is_file() and folder.name.isidentifier():
        names.insert(0, folder.name)
        folder = folder.parent
    return ".".join(names)


def _from_package(package: str, path: Path) -> ModuleType:
    top = path.parents[package.count(".") + 1]
    if str(top) not in sys.path:
        sys.path.append(str(top))
    name = package if path.stem == "__init__" else f"{package}.{path.stem}"
    module = importlib.import_module(name)
    if getattr(module, "__file__", None) != str(path):
        raise ConfigError(
            f"{path} is {name}, which Python finds at {getattr(module, '__file__', None)}; rename the package, or run it "
            "as a module"
        )
    return module


def _is_free(name: str, path: Path) -> bool:
    """Whether no module of that name is loaded from another file."""
    return name not in sys.modules or getattr(sys.modules[name], "__file__", None) == str(path)


def assignments(pairs: Iterable[str], option: str) -> dict[str, str]:
    """`KEY=VALUE` pairs of an option given several times; the last one wins. Raises ConfigError."""
    values: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip().isidentifier():
            raise ConfigError(
                f"{option} {pair!r} is not KEY=VALUE; write e.g. {option} SPIDER_THREAD_COUNT=8"
            )
        values[key.strip()] = value
    return values


def setting_values(pairs: Iterable[str], option: str = "-s") -> dict[str, Any]:
    """Settings given as `-s KEY=VALUE`, read by their declared types. Raises ConfigError."""
    return {
        name: settings.from_text(name, text, option) if name in settings.FIELDS else text
        for name, text in assignments(pairs, option).items()
    }


def class_settings(
    spider: type[BaseParser] | None, overrides: dict[str, Any], option: str = "-s"
) -> settings.Loaded:
    """The settings that a spider class would run with, without making one. Raises ConfigError."""
    if spider is None:
        return settings.load(overrides=overrides, override_origin=option)
    custom: dict[str, Any] = {}
    for klass in reversed(spider.__mro__):
        custom.update(vars(klass).get("__custom_setting__", {}))
    return settings.load(
        custom=custom,
        custom_origin=f"{spider.__name__}.__custom_setting__",
        overrides=overrides,
        override_origin=option,
    )
