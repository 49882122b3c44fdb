"""Do an item's fields have the types that its class declares? Nothing is converted: a value is right or wrong.

The rules are msgspec's strict ones: an int does for a float, nothing else stands in for another type; None only where
`| None` says so; `Annotated[int, msgspec.Meta(ge=0)]` and the like are checked. Fields that aren't declared are free.
"""

from __future__ import annotations

import inspect
import re
import sys
import types
import typing
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from netspy.errors import ItemError
from netspy.messages.item import Item

if TYPE_CHECKING:
    from collections.abc import Callable

AS_THEY_ARE = (bytes, bytearray, datetime, date, time, timedelta, Decimal, UUID)
_PLACE = re.compile(r"(.*) - at `\$\.?(.*)`$", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`")


@lru_cache(maxsize=4096)
def checker(cls: type) -> Callable[[dict[str, Any]], None] | None:
    """What raises ItemError, naming the field, for fields that are not as `cls` declares; None: it declares nothing.

    A declared type that can't be found (a name that isn't imported) or checked leaves its field unchecked.
    """
    if hasattr(cls, "model_validate"):
        return lambda fields: _check_model(cls, fields)
    declared: list[Any] = []
    for name, hint in _declared_types(cls).items():
        required = issubclass(cls, Item) and name not in cls._defaults
        declared.append((name, hint) if required else (name, hint, None))
    if not declared:
        return None
    shape = msgspec.defstruct("Fields", declared, kw_only=True)
    convert = msgspec.convert

    def check(fields: dict[str, Any]) -> None:
        try:
            convert(fields, shape, builtin_types=AS_THEY_ARE, str_keys=False)
        except msgspec.ValidationError as error:
            raise ItemError(_describe(cls, fields, str(error))) from None

    return check


def _declared_types(cls: type) -> dict[str, Any]:
    """The types of the fields that a class and its bases declare, as far as they can be found and checked."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if base is object or base.__module__.partition(".")[0] in {"netspy", "msgspec"}:
            continue
        for name, hint in inspect.get_annotations(base).items():
            found.pop(name, None)
            if name.startswith("_"):
                continue
            one = types.SimpleNamespace(__annotations__={name: hint})
            try:
                known = typing.get_type_hints(
                    one, vars(sys.modules[base.__module__]), dict(vars(base)), include_extras=True
                )[name]
            except (NameError, TypeError, AttributeError, SyntaxError, KeyError):
                continue
            if typing.get_origin(known) is not typing.ClassVar and _checkable(known):
                found[name] = known
    return found


def _checkable(hint: Any) -> bool:
    try:
        msgspec.convert(object(), hint, builtin_types=AS_THEY_ARE)
    except msgspec.ValidationError:
        return True
    except (TypeError, RecursionError):
        return False
    return True


def _describe(cls: type, fields: dict[str, Any], text: str) -> str:
    """`Book.price = '12': expected `float`, got `str``."""
    if missing := _MISSING.match(text):
        return f"{cls.__name__}.{missing[1]} is missing; give it a value, or the class a default"
    place = _PLACE.match(text)
    if place is None:
        return f"{cls.__name__}: {text}"
    name = re.split(r"[.\[]", place[2], maxsplit=1)[0]
    reason = place[1][:1].lower() + place[1][1:]
    return f"{cls.__name__}.{place[2]}: {reason}; {name} = {fields.get(name)!r:.80}"


def model_of(cls: Any, fields: dict[str, Any]) -> Any:
    """A pydantic model of its fields by their own names, whatever aliases it reads. Raises what its rules raise."""
    try:
        return cls.model_validate(fields, by_alias=False, by_name=True)
    except TypeError:  # pydantic before 2.11 doesn't know these
        return cls.model_validate(fields)


def _check_model(cls: Any, fields: dict[str, Any]) -> None:
    try:
        model_of(cls, fields)
    except ValueError as error:
        found: Any = getattr(error, "errors", list)()
        if not found:
            raise ItemError(f"{cls.__name__}: {error}") from None
        place = ".".join(str(step) for step in found[0]["loc"])
        told = f"{found[0]['msg']}; it is {found[0].get('input')!r:.80}"
        raise ItemError(f"{cls.__name__}.{place}: {told}" if place else f"{cls.__name__}: {told}") from None
