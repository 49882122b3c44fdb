"""One setting's type, and how a value given for it is read and checked."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from msgspec import Meta

from netspy.errors import ConfigError
from netspy.settings.declared import FIELDS
from netspy.settings.passwords import display_value


def base_type(name: str) -> Any:
    """The type of a setting without its description."""
    hint = FIELDS[name]
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def meta(name: str) -> Meta:
    """The description, unit and bounds of a setting."""
    found: Meta = get_args(FIELDS[name])[1]
    return found


def type_name(name: str) -> str:
    """The type of a setting as people write it, e.g. `int`, `list[str]`, `auto | run | spider`."""
    kind = base_type(name)
    if get_origin(kind) is Literal:
        return " | ".join(map(str, get_args(kind)))
    return (
        kind.__name__
        if isinstance(kind, type) and get_origin(kind) is None
        else str(kind).replace("typing.", "")
    )


def is_path(name: str) -> bool:
    """Whether a setting is a file or a folder (or may be one)."""
    return str((meta(name).extra or {}).get("unit", "")).startswith("path")


def _home(name: str, value: str, origin: str) -> str:
    try:
        return str(Path(value).expanduser())
    except RuntimeError:
        raise ConfigError(
            f"{origin}: {name}={value!r}: no home folder is known for this user; write the whole path"
        ) from None


_YES = {"1", "true", "yes", "on", "y", "t"}

NO = {"0", "false", "no", "off", "n", "f"}


def from_text(name: str, text: str, origin: str) -> Any:
    """Read a setting given as text (environment, command line) by its declared type. Raises ConfigError."""
    kind = base_type(name)
    if kind is bool:
        low = text.strip().lower()
        if low in _YES:
            return True
        if low in NO:
            return False
        raise ConfigError(
            f"{origin}: {name}={display_value(name, text)} is not a yes or no; write true or false"
        )
    if kind in (int, float):
        try:
            return kind(text.strip().replace("_", ""))
        except ValueError:
            raise ConfigError(
                f"{origin}: {name}={display_value(name, text)} is not {'a whole number' if kind is int else 'a number'}"
            ) from None
    if get_origin(kind) is list or kind is dict or get_origin(kind) is dict:
        stripped = text.strip()
        if stripped[:1] in "[{" and stripped:
            try:
                return json.loads(stripped)
            except json.JSONDecodeError as error:
                raise ConfigError(
                    f"{origin}: {name}={display_value(name, text)} is not JSON ({error})"
                ) from None
        parts = [part.strip() for part in stripped.split(",") if part.strip()]
        return [int(p) if p.lstrip("-").isdigit() and int in get_args(kind) else p for p in parts]
    return text


def check_value(name: str, value: Any, origin: str) -> Any:
    """`value` as the declared type of `name`, within its bounds. Raises ConfigError naming origin, name and value."""
    if isinstance(value, str) and base_type(name) is not str and base_type(name) in (bool, int, float):
        value = from_text(name, value, origin)
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, str) and value.startswith("~") and is_path(name):
        value = _home(name, value, origin)
    if isinstance(value, tuple | set | frozenset):
        value = list(value)
    try:
        return msgspec.convert(value, FIELDS[name], strict=True)
    except msgspec.ValidationError as error:
        shown = display_value(name, value)
        raise ConfigError(
            f"{origin}: {name}={shown} is wrong: {str(error).lower()}; it is of type {type_name(name)}"
        ) from None
