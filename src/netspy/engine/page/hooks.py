"""The spider's hooks, where they are really overridden."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def own_hook(spider: Any, base: type, name: str) -> Callable[..., Any] | None:
    """The spider's hook of that name; None when it is only that of the class `base`."""
    return getattr(spider, name) if getattr(type(spider), name) is not getattr(base, name) else None


class Hooks:
    """The hooks that a page may come to; None = nothing to call. A `validate` is here as plain or as awaited."""

    __slots__ = ("exception_request", "failed_request", "validate", "validate_awaited")

    def __init__(self, spider: Any, base: type) -> None:
        validate = own_hook(spider, base, "validate")
        awaited = validate is not None and inspect.iscoroutinefunction(validate)
        self.validate = None if awaited else validate
        self.validate_awaited = validate if awaited else None
        self.failed_request = own_hook(spider, base, "failed_request")
        self.exception_request = own_hook(spider, base, "exception_request")
