"""From what users yield as items to rows: Item, dataclass instances, msgspec Structs, pydantic models.

    @dataclass
    class Book:
        __table_name__ = "books"  # else the class name in snake case, without a trailing `_item`
        __unique_key__ = "isbn"
        isbn: str
        price: float | None = None

`__update_key__`, `__pipelines__` and a method `pre_to_db` mean what they mean in an Item. What is known of a class is
found once. Pydantic is not imported: a model comes with it.
"""

from __future__ import annotations

import dataclasses
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import msgspec

from netspy.errors import ItemError
from netspy.messages.item import Item, UpdateItem, as_tuple, check_keys, digest, digest_of_update, snake_case
from netspy.messages.row import Row
from netspy.messages.validation import AS_THEY_ARE, checker

if TYPE_CHECKING:
    from collections.abc import Callable

_ATOMS = frozenset({str, int, float, bool, type(None), bytes, datetime, date, time, timedelta, Decimal, UUID})


class Kind(NamedTuple):
    """What is known of a class whose instances are taken as items. `dump` gives the fields, as plain values."""

    table: str
    unique_key: tuple[str, ...]
    update_key: tuple[str, ...]
    pipelines: tuple[Any, ...] | None
    dump: Callable[[Any], dict[str, Any]]
    prepares: bool


@lru_cache(maxsize=4096)
def kind_of(cls: type) -> Kind | None:
    """How instances of `cls` become rows; None when they are no records. Raises ItemError for wrong keys."""
    dump = _dumper(cls)
    if dump is None:
        return None
    for attribute in ("__table_name__", "__unique_key__", "__update_key__", "__pipelines__"):
        if attribute in getattr(cls, "__struct_fields__", ()):
            raise ItemError(
                f"{cls.__qualname__}.{attribute} is a field of the Struct; write it without an annotation, or as ClassVar"
            )
    check_keys(cls, "__unique_key__")
    check_keys(cls, "__update_key__")
    return Kind(
        getattr(cls, "__table_name__", "") or snake_case(cls.__name__),
        as_tuple(getattr(cls, "__unique_key__", ())),
        as_tuple(getattr(cls, "__update_key__", ())),
        as_tuple(getattr(cls, "__pipelines__", ())) or None,
        dump,
        callable(getattr(cls, "pre_to_db", None)),
    )


def is_record(cls: type) -> bool:
    """Whether instances of `cls` are taken as items, though they are no Item."""
    return _dumper(cls) is not None


def row_of(value: Any, *, validate: bool, mark: bool = True) -> tuple[Row, bytes | None]:
    """The row of an item of any kind but dict, and (`mark`) the fingerprint that the item filter asks about.

    Calls `pre_to_db`. `validate`: the types that the class declares are checked, unless it says `__validate__ = False`;
    with `__validate__ = True` they always are. Raises ItemError, and whatever `pre_to_db` raises.
    """
    cls: type = type(value)
    if isinstance(value, Item):
        value.pre_to_db()
        fields = value.to_dict()
        update = value.update_key if isinstance(value, UpdateItem) else None
        row = Row(value.table_name, fields, value.pipelines, update, value.unique_key)
        fingerprint = bytes.fromhex(value.fingerprint) if mark else None
    else:
        kind = kind_of(cls)
        if kind is None:
            raise ItemError(f"{cls.__qualname__} is no kind of item")
        if kind.prepares:
            value.pre_to_db()
        fields = kind.dump(value)
        row = Row(kind.table, fields, kind.pipelines, kind.update_key or None, kind.unique_key)
        fingerprint = None
        if mark:
            name = cls.__name__
            fingerprint = (
                digest_of_update(name, kind.table, fields, kind.update_key)
                if kind.update_key
                else digest(name, kind.table, fields, kind.unique_key)
            )
    if getattr(cls, "__validate__", validate):
        check = checker(cls)
        if check is not None:
            check(fields)
    return row, fingerprint


def raw_row(value: Any) -> Row:
    """What can be kept of an item that was refused: its fields as they are. Never raises."""
    cls: type = type(value)
    try:
        if isinstance(value, Item):
            fields = value.to_dict()
            return Row(value.table_name, fields, _names(value.pipelines), None, value.unique_key)
        kind = kind_of(cls)
        if kind is not None:
            return Row(kind.table, kind.dump(value), _names(kind.pipelines), None, kind.unique_key)
    except Exception:  # its own to_dict, or a table name that can't be had: that is why it is here
        fields = {k: v for k, v in getattr(value, "__dict__", {}).items() if k[:1] != "_"}
        return Row(snake_case(cls.__name__), fields or {"item": repr(value)[:2000]})
    return Row(snake_case(cls.__name__), {"item": repr(value)[:2000]})


def class_path(cls: type) -> str:
    """`module.Class`, by which a dead letter names the class of its item."""
    return f"{cls.__module__}.{cls.__qualname__}"


def remade(cls: type, fields: dict[str, Any]) -> Any:
    """An item of class `cls` with these fields. Raises ItemError when they don't make one."""
    try:
        if issubclass(cls, Item):
            return cls(**fields)
        if hasattr(cls, "model_validate"):
            return cls.model_validate(fields)
        try:
            return msgspec.convert(fields, cls, builtin_types=AS_THEY_ARE)  # with the records within it
        except msgspec.ValidationError:
            return cls(**fields)  # its pre_to_db may mend what is wrong
    except ItemError:
        raise
    except Exception as error:
        raise ItemError(f"{cls.__qualname__} can't be made of the fields: {error}") from error


def _names(pipelines: tuple[Any, ...] | None) -> tuple[str, ...] | None:
    if not pipelines:
        return None
    return tuple(
        one if isinstance(one, str) else class_path(one if isinstance(one, type) else type(one))
        for one in pipelines
    )


@lru_cache(maxsize=4096)
def _dumper(cls: type) -> Callable[[Any], dict[str, Any]] | None:
    if cls.__module__.partition(".")[0] == "netspy":
        return None  # a response that was yielded is a mistake, not an item
    if issubclass(cls, msgspec.Struct):
        return _by_name(cls, cls.__struct_fields__)
    if callable(getattr(cls, "model_dump", None)) and hasattr(cls, "model_fields"):
        return _dump_model
    if dataclasses.is_dataclass(cls):
        return _by_name(cls, tuple(field.name for field in dataclasses.fields(cls)))
    return None


def _by_name(cls: type, fields: tuple[str, ...]) -> Callable[[Any], dict[str, Any]]:
    names = tuple(name for name in fields if not name.startswith("_"))

    def dump(value: Any) -> dict[str, Any]:
        try:
            return {name: _plain(getattr(value, name)) for name in names}
        except AttributeError as error:
            raise ItemError(f"{cls.__qualname__}: a field was never set: {error}") from None

    return dump


def _dump_model(value: Any) -> dict[str, Any]:
    fields: dict[str, Any] = value.model_dump(warnings=False)
    return fields


def _plain(value: Any) -> Any:
    """`value` with records within it as dicts; lists and dicts are copies, users may go on with theirs."""
    kind: type = type(value)
    if kind in _ATOMS:
        return value
    if kind is list:
        return [_plain(inner) for inner in value]
    if kind is dict:
        return {key: _plain(inner) for key, inner in value.items()}
    if kind is tuple:
        return tuple(_plain(inner) for inner in value)
    dump = _dumper(kind)
    return value if dump is None else dump(value)
