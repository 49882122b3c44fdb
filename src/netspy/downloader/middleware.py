"""Middlewares: classes wrapped around each fetch, named by DOWNLOADER_MIDDLEWARES."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import TYPE_CHECKING, Any

from netspy.errors import ConfigError
from netspy.logger import HasLogger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable

    from netspy.messages.request import Request
    from netspy.messages.response import Response
    from netspy.settings import Settings

HOOKS = ("process_request", "process_response", "process_exception", "open", "close")


class DownloaderMiddleware(HasLogger):
    """Base class: override what you need; each method may be plain `def` or `async def`.

    On the way out the first middleware of DOWNLOADER_MIDDLEWARES comes first, on the way back last. What a
    method raises fails the fetch as if the downloader had raised it. Plain methods run on worker threads.
    """

    settings: Settings
    """The settings of the spider that runs."""

    def open(self) -> Awaitable[None] | None:
        """Called once before the first fetch."""
        return None

    def close(self) -> Awaitable[None] | None:
        """Called once after the last fetch."""
        return None

    def process_request(
        self, request: Request
    ) -> Request | Response | Awaitable[Request | Response | None] | None:
        """Before the fetch. None goes on, a Request goes on in its place, a Response is the answer at
        once.
        """
        del request
        return None

    def process_response(
        self, request: Request, response: Response
    ) -> Response | Request | Awaitable[Response | Request]:
        """After the fetch. A Response goes on; a Request is queued instead, within the retry budget."""
        del request
        return response

    def process_exception(
        self, request: Request, exception: Exception
    ) -> Response | Request | Awaitable[Response | Request | None] | None:
        """After a failed fetch. None passes the failure on, a Response replaces it, a Request is queued
        instead.
        """
        del request, exception
        return None


def load_middlewares(paths: Iterable[str], settings: Settings) -> list[Any]:
    """The middlewares that the class paths name, made without arguments, `settings` set, in order.

    Raises ConfigError naming the path when it can't be imported, is no class, has none of the hooks, or can't
    be made.
    """
    return [load_middleware(path, settings) for path in paths]


def load_middleware(path: str, settings: Settings) -> Any:
    """One middleware; see load_middlewares."""
    module_name, dot, class_name = path.strip().rpartition(".")
    where = f"DOWNLOADER_MIDDLEWARES: {path!r}"
    if not dot:
        raise ConfigError(f"{where} is no class path; write package.module.ClassName")
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise ConfigError(
                f"{where}: there is no module {error.name!r}; check the path and PYTHONPATH"
            ) from None
        raise ConfigError(f"{where}: importing it failed: {error}") from error
    except Exception as error:
        raise ConfigError(f"{where}: importing it failed: {type(error).__name__}: {error}") from error
    found: Any = getattr(module, class_name, None)
    if not inspect.isclass(found):
        raise ConfigError(f"{where}: {module_name} has no class {class_name}")
    if not any(callable(getattr(found, hook, None)) for hook in HOOKS[:3]):
        raise ConfigError(
            f"{where} has none of {', '.join(HOOKS[:3])}; inherit from netspy's DownloaderMiddleware"
        )
    try:
        middleware: Any = found()
        middleware.settings = settings
    except Exception as error:
        raise ConfigError(f"{where} can't be made: {type(error).__name__}: {error}") from error
    return middleware
