"""Callbacks travel by name: what a callback's name is, and whether the name would find it again."""

from __future__ import annotations

import difflib
import functools
from types import MethodType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    Callback = Callable[..., Any] | str | None


def name_of(callback: Callback) -> str | None:
    """The name under which the callback is an attribute of its spider; None for none.

    A private method has its mangled name (`_Base__detail`). What has no usable name, such as a lambda or a
    `functools.partial`, gets one in angle brackets.
    """
    if callback is None or type(callback) is str:
        return callback
    function = callback.__func__ if type(callback) is MethodType else callback
    name = getattr(function, "__name__", None)
    if not isinstance(name, str):
        return str(callback) if isinstance(callback, str) else f"<{type(callback).__qualname__}>"
    if name.startswith("__") and not name.endswith("__"):
        owner = getattr(function, "__qualname__", "").rpartition(".")[0].rpartition(".")[2].lstrip("_")
        return f"_{owner}{name}" if owner else name
    return name


def callback_problem(callback: Callback, owner: object) -> str | None:
    """Why `owner`, the spider, can't find this callback again by its name; None when it can.

    None is no problem (`parse` is called), nor is the name of a method.
    """
    if callback is None:
        return None
    kind = type(owner).__name__
    name = name_of(callback)
    if type(callback) is MethodType:
        if callback.__self__ is owner and getattr(type(owner), str(name), None) is callback.__func__:
            return None
    elif isinstance(callback, str):
        return None if callable(getattr(owner, callback, None)) else _missing(kind, callback, owner)
    elif not callable(callback):
        return f"{callback!r:.100} is neither a method of {kind} nor a method's name"
    found = getattr(owner, str(name), None)
    if found is not None and _function(found) is _function(callback) and _belongs(callback, owner):
        return None
    return _diagnosis(callback, str(name), found, owner)


def _function(callback: Any) -> Any:
    return getattr(callback, "__func__", callback)


def _belongs(callback: Any, owner: object) -> bool:
    """False for a method bound to another object."""
    bound_to = getattr(callback, "__self__", None)
    return (
        bound_to is None or bound_to is owner or (isinstance(bound_to, type) and isinstance(owner, bound_to))
    )


def _missing(kind: str, name: str, owner: object) -> str:
    close = difflib.get_close_matches(name, dir(owner), n=1)
    return f"{kind} has no method {name!r}" + (f"; did you mean {close[0]!r}?" if close else "")


def _diagnosis(callback: Any, name: str, found: object, owner: object) -> str:
    kind = type(owner).__name__
    advice = f"make it a method of {kind}, and pass data with cb_kwargs"
    if name == "<lambda>":
        return f"a lambda has no name to travel by; {advice}"
    if isinstance(callback, functools.partial):
        return f"a functools.partial has no name to travel by; {advice}"
    shown = getattr(callback, "__qualname__", name)
    if not _belongs(callback, owner):
        return f"{shown} is a method of another object ({type(callback.__self__).__name__}); {advice}"
    if "<locals>" in shown and found is None:
        return f"{shown} is a function inside a function, or a wrapper without functools.wraps; {advice}"
    if found is not None:
        other = getattr(found, "__qualname__", repr(found))
        return f"the name {name!r} means {other} on {kind}, not {shown}; give the callback a name of its own"
    return f"{shown} isn't a method of {kind}; {advice}"
