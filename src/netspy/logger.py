"""Named loggers: `logger.info("{} rows from {}", n, url)`. Where they go to is set up by `observe/log.py`."""

from __future__ import annotations

from typing import Any, Protocol


def loguru_logger() -> Any:
    """The logger of loguru; it is imported at the first message, so that `import netspy` stays light."""
    from loguru import logger

    return logger


class Say(Protocol):
    """One level's method of a logger."""

    def __call__(self, message: str, *args: Any, **kwargs: Any) -> None:
        """Log `message`, formatted with the arguments when there are any."""


class Logger:
    """A named logger with brace style: `logger.info("{} rows from {}", n, url)`.

    Everything that loguru's logger can do is there (`bind`, `opt`, `exception` …); loguru is imported at the
    first use.
    """

    trace: Say
    debug: Say
    info: Say
    success: Say
    warning: Say
    error: Say
    critical: Say
    exception: Say

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, attribute: str) -> Any:
        # Reached once per method: the bound method then lives in the instance.
        if attribute.startswith("_"):
            raise AttributeError(attribute)
        found = getattr(loguru_logger().bind(name=self.name), attribute)
        self.__dict__[attribute] = found
        return found

    def __repr__(self) -> str:
        return f"<Logger {self.name}>"

    def __reduce__(self) -> tuple[type[Logger], tuple[str]]:
        # loguru's bound methods don't pickle; the name is all there is to a logger.
        return Logger, (self.name,)


def get_logger(name: str = "netspy") -> Logger:
    """The logger of this name; nothing is set up or imported until it is used."""
    return Logger(name)


class HasLogger:
    """Gives a class `self.logger`, named after it."""

    @property
    def logger(self) -> Logger:
        """The logger of this class. A subclass may have an attribute of its own in its place."""
        found = self.__dict__.get("logger")
        if found is None:
            found = self.__dict__["logger"] = get_logger(type(self).__name__)
        return found

    @logger.setter
    def logger(self, value: Any) -> None:
        self.__dict__["logger"] = value
