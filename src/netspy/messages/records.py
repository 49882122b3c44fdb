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
from netspy.messages.validation import AS_THEY_ARE, checker, model_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_ATOMS = frozenset({str, int, float, bool, type(None), bytes, datetime, date, time, timedelta, Decimal, UUID})


class Kind(NamedTuple):
    """What is known of a class whose instances are taken as items. `dump` gives the fields, as plain values."""

    table: str
    unique_key: tuple[str, ...]
    update_key: tuple[str, ...]
    pipelines: tuple[Any, ...] | None
    dump: Callable[[Any], dict[str, Any]]


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
    )


def is_record(cls: type) -> bool:
    """Whether instances of `cls` are taken as items, though they are no Item."""
    return _dumper(cls) is not None


def row_of(value: Any, *, validate: bool, mark: bool = True) -> tuple[Row, bytes | None]:
    """The row of an item of any kind but dict, and (`mark`) the fingerprint that the item filter asks about.

    Calls `pre_to_db`; an item that is refused afterwards is left as it was yielded, since it may go through it again.
    `validate`: the types that the class declares are checked, unless it says `__validate__ = False`;
    with `__validate__ = True` they always are. Raises ItemError, and whatever `pre_to_db` raises.
    """
    prepare = getattr(type(value), "pre_to_db", None)
    if prepare is Item.pre_to_db or not callable(prepare):
        return _row_of(value, validate=validate, mark=mark)
    before = _attributes(value)
    try:
        value.pre_to_db()
        return _row_of(value, validate=validate, mark=mark)
    except BaseException:
        _restore(value, before)
        raise


def _row_of(value: Any, *, validate: bool, mark: bool) -> tuple[Row, bytes | None]:
    cls: type = type(value)
    if isinstance(value, Item):
        fields = fields_of(value.to_dict())
        update = value.update_key if isinstance(value, UpdateItem) else None
        row = Row(value.table_name, fields, value.pipelines, update, value.unique_key)
        fingerprint = bytes.fromhex(value.fingerprint) if mark else None
    else:
        kind = kind_of(cls)
        if kind is None:
            raise ItemError(f"{cls.__qualname__} is no kind of item")
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
            check(_as_set(value) if _is_model(cls) else fields)
    return row, fingerprint


def fields_of(item: Mapping[Any, Any]) -> dict[Any, Any]:
    """The fields as they are now: users may go on with the lists and dicts in them."""
    if _ATOMS.issuperset(map(type, item.values())):
        return dict(item)
    try:
        return {name: value if type(value) in _ATOMS else _plain(value) for name, value in item.items()}
    except RecursionError:  # it holds itself; a pipeline says so
        return dict(item)


def raw_row(value: Any) -> Row:
    """What can be kept of an item that was refused: its fields as they are. Never raises."""
    cls: type = type(value)
    try:
        if isinstance(value, Item):
            return Row(
                value.table_name, fields_of(value.to_dict()), _names(value.pipelines), None, value.unique_key
            )
        kind = kind_of(cls)
        if kind is not None:
            fields = _as_set(value) if _is_model(cls) else kind.dump(value)
            return Row(kind.table, fields, _names(kind.pipelines), None, kind.unique_key)
    except BaseException:  # its own to_dict, or a table name that can't be had: that is why it is here
        fields = {k: v for k, v in getattr(value, "__dict__", {}).items() if k[:1] != "_"}
        return Row(snake_case(cls.__name__), fields or {"item": repr(value)[:2000]})
    return Row(snake_case(cls.__name__), {"item": repr(value)[:2000]})


def class_path(cls: type) -> str:
    """`module.Class`, by which a dead letter names the class of its item."""
    return f"{cls.__module__}.{cls.__qualname__}"


def remade(row: Row, cls: type) -> Any:
    """An item of class `cls` with the fields of `raw_row`. Raises ItemError when they don't make one."""
    try:
        if issubclass(cls, Item):
            item = cls(**row.data)
            if item.table_name != row.table:
                item.table_name = row.table  # it was set for this item alone
            if row.pipelines and row.pipelines != _names(item.pipelines):
                item.pipelines = row.pipelines
            return item
        if _is_model(cls):
            return model_of(cls, row.data)
        return _record(cls, row.data)
    except ItemError:
        raise
    except Exception as error:
        raise ItemError(f"{cls.__qualname__} can't be made of the fields: {error}") from error


def _record(cls: Any, fields: dict[str, Any]) -> Any:
    """A Struct or dataclass instance, with the records within it where these can be told from dicts."""
    own = getattr(cls, "__struct_fields__", ())
    encoded = dict(zip(own, getattr(cls, "__struct_encode_fields__", ()), strict=True))
    try:
        made = msgspec.convert(
            {encoded.get(name, name): value for name, value in fields.items()}, cls, builtin_types=AS_THEY_ARE
        )
        kind = kind_of(cls)
        if kind is not None and kind.dump(made) == fields:
            return made
    except msgspec.ValidationError:
        pass  # its pre_to_db may mend what is wrong
    return cls(**fields)


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
    if _is_model(cls):
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


def _is_model(cls: Any) -> bool:
    return callable(getattr(cls, "model_dump", None)) and hasattr(cls, "model_fields")


def _as_set(value: Any) -> Any:
    """A pydantic model as its fields hold it, by their names: no alias, no serializer, nothing computed."""
    cls: Any = type(value)
    if isinstance(value, list | tuple):
        return type(value)(map(_as_set, value)) if cls in {list, tuple} else value
    if cls is dict:
        return {key: _as_set(inner) for key, inner in value.items()}
    if not _is_model(cls):
        return _plain(value)
    if getattr(cls, "__pydantic_root_model__", False):
        return _as_set(value.root)
    fields = {name: value.__dict__[name] for name in cls.model_fields if name in value.__dict__}
    return {name: _as_set(inner) for name, inner in {**fields, **(value.__pydantic_extra__ or {})}.items()}


def _attributes(value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is set on an object: in its `__dict__`, and in the slots of a Struct or dataclass."""
    cls: Any = type(value)
    own = dict(getattr(value, "__dict__", ()))
    names: Iterable[str] = getattr(cls, "__struct_fields__", ()) or getattr(cls, "__dataclass_fields__", ())
    return own, {name: getattr(value, name) for name in names if name not in own and hasattr(value, name)}


def _restore(value: Any, before: tuple[dict[str, Any], dict[str, Any]]) -> None:
    own, slots = before
    if hasattr(value, "__dict__"):
        value.__dict__.clear()
        value.__dict__.update(own)
    for name, inner in slots.items():
        if getattr(value, name, None) is not inner:
            setattr(value, name, inner)


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
    if kind is set:
        return value.copy()
    if isinstance(value, Item):
        return fields_of(value.to_dict())
    dump = _dumper(kind)
    return value if dump is None else dump(value)
