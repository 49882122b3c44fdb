"""Items: rows with a table, and keys that say which of them are the same.

    class Book(Item):
        __table_name__ = "books"
        __unique_key__ = "isbn"
        isbn: str
        price = None

    yield Book(isbn="978…", title="…")

Fields are what is set on the object, over the defaults of the class. Any field may be set; declaring is optional.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar

from netspy.errors import ItemError
from netspy.messages.fingerprint import item_digest

if TYPE_CHECKING:
    from collections.abc import Sequence

_words = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])").sub
_MUTABLE = (list, dict, set, bytearray)
_DESCRIPTORS = (property, classmethod, staticmethod)


def snake_case(class_name: str) -> str:
    """`HTTPPageItem` → `http_page`."""
    name = _words("_", class_name).lower().lstrip("_")
    return name.removesuffix("_item") or name


class Item:
    """One record for the pipelines. Fields are read and set as attributes or as `item["name"]`.

    Class attributes: `__table_name__` (default: the class name in snake case, without a trailing `_item`),
    `__unique_key__` (a field or several, which make two items the same), `__pipelines__` (class paths;
    default: all of ITEM_PIPELINES). Names that start with `_` are not fields. Raises ItemError for a field
    named like an attribute of Item itself.
    """

    __table_name__: ClassVar[str] = ""
    __unique_key__: ClassVar[str | Sequence[str] | None] = ()
    __pipelines__: ClassVar[str | Sequence[Any] | None] = ()

    _table_default: ClassVar[str] = "item"
    _defaults: ClassVar[dict[str, Any]] = {}
    _mutable: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._table_default = snake_case(cls.__name__)
        check_keys(cls, "__unique_key__")
        defaults: dict[str, Any] = {}
        for base in reversed(cls.__mro__):
            if not issubclass(base, Item) or base.__module__ == __name__:
                continue
            for name, value in vars(base).items():
                if name in _RESERVED and name not in _HOOKS:
                    raise ItemError(f"{base.__qualname__}.{name}: {_taken_name_error(name)}")
                if _is_field(name, value):
                    defaults[name] = value
                else:
                    defaults.pop(name, None)  # a method that took a field's name
        cls._defaults = defaults
        cls._mutable = tuple(name for name, value in defaults.items() if isinstance(value, _MUTABLE))

    def __init__(self, **fields: Any) -> None:
        for name in self._mutable:
            # Items of one class must not share the list that the class gives as default.
            if name not in fields:
                self.__dict__[name] = self._defaults[name].copy()
        if _RESERVED.isdisjoint(fields):
            self.__dict__.update(fields)
        else:
            for name, value in fields.items():
                self[name] = value

    def __getitem__(self, name: str) -> Any:
        """A field's value. Raises KeyError when there is none."""
        try:
            return self.__dict__[name]
        except KeyError:
            return self._defaults[name]

    def __setitem__(self, name: str, value: Any) -> None:
        """Set a field (`table_name` and `pipelines` too). Raises ItemError for a name of Item itself."""
        if name in _RESERVED and name not in _ITEM_SETTABLE:
            raise ItemError(f"{type(self).__name__}[{name!r}]: {_taken_name_error(name)}")
        setattr(self, name, value)

    def __contains__(self, name: object) -> bool:
        return name in self.__dict__ or name in self._defaults

    @property
    def table_name(self) -> str:
        """The table this item goes to; may be set per item."""
        own: str | None = self.__dict__.get("_table_name")
        return own or self.__table_name__ or self._table_default

    @table_name.setter
    def table_name(self, value: str) -> None:
        self.__dict__["_table_name"] = value

    @property
    def pipelines(self) -> tuple[Any, ...] | None:
        """The class paths of its pipelines; None = all of ITEM_PIPELINES. May be set per item."""
        return as_tuple(self.__dict__.get("_pipelines") or self.__pipelines__) or None

    @pipelines.setter
    def pipelines(self, value: Sequence[Any] | None) -> None:
        self.__dict__["_pipelines"] = value

    @property
    def unique_key(self) -> tuple[str, ...]:
        """The names of the fields that make two items the same; empty: all fields do."""
        return as_tuple(self.__unique_key__)

    @property
    def fingerprint(self) -> str:
        """32 hex digits: the table and the unique key, or all non-empty fields; 1 and "1" differ.

        A key of which every part is None tells nothing apart, so then all fields count. Raises ItemError when
        a key field isn't there.
        """
        return digest(type(self).__name__, self.table_name, self.to_dict(), self.unique_key).hex()

    def pre_to_db(self) -> None:
        """Called before the item goes to the pipelines; override it to clean fields. May raise ItemError."""

    def to_dict(self) -> dict[str, Any]:
        """The row: public fields that aren't callable, defaults of the class first."""
        fields = {**self._defaults, **self.__dict__}
        return {k: v for k, v in fields.items() if k[:1] != "_" and not callable(v)}

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r:.60}" for name, value in self.to_dict().items())
        return f"{type(self).__name__}({fields:.400})"


def digest(kind: str, table: str, fields: dict[str, Any], unique_key: tuple[str, ...]) -> bytes:
    """What tells an item of class `kind` from others: its key's values, or all non-empty fields. Raises ItemError."""
    if unique_key:
        missing = [name for name in unique_key if name not in fields]
        if missing:
            raise ItemError(
                f"{kind} has no field {missing[0]!r}, which its __unique_key__ names; "
                f"it has {', '.join(fields) or 'none'}"
            )
        key = {name: fields[name] for name in unique_key}
        if any(value is not None for value in key.values()):
            return item_digest(table, key)
    return _digest_of_all(table, fields)


def digest_of_update(kind: str, table: str, fields: dict[str, Any], update_key: tuple[str, ...]) -> bytes:
    """What tells an update from others: all non-empty fields. Raises ItemError for a key field without value."""
    for name in update_key:
        if fields.get(name) is None:
            raise ItemError(f"{kind} needs a value for {name!r}, by which the rows to update are found")
    return _digest_of_all(table, fields)


def _digest_of_all(table: str, fields: dict[str, Any]) -> bytes:
    return item_digest(table, {k: v for k, v in fields.items() if not _is_empty(v)})


def _taken_name_error(name: str) -> str:
    return f"{name!r} is a name of Item itself; give the field another name"


def _is_field(name: str, value: Any) -> bool:
    return not name.startswith("_") and not callable(value) and not isinstance(value, _DESCRIPTORS)


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, (str, bytes, list, tuple, dict, set)) and not value)


def as_tuple(value: Any) -> tuple[Any, ...]:
    """One name, several or none."""
    return (value,) if isinstance(value, str) and value else tuple(value or ())


def check_keys(cls: type, attribute: str) -> None:
    """Raises ItemError when the class attribute isn't a field's name or several."""
    keys = getattr(cls, attribute, None)
    try:
        names = as_tuple(keys)
    except TypeError:
        names = (None,)
    if not all(isinstance(name, str) and name for name in names):
        raise ItemError(f"{cls.__qualname__}.{attribute}={keys!r:.100}: field names are wanted")


class UpdateItem(Item):
    """An item that changes rows that are there: those whose `__update_key__` fields are equal.

    `__update_key__` falls back to `__unique_key__`. Every field counts in the fingerprint, so that a second
    update of a row isn't taken for the first.
    """

    __update_key__: ClassVar[str | Sequence[str] | None] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        check_keys(cls, "__update_key__")

    @property
    def update_key(self) -> tuple[str, ...]:
        """The names of the fields by which rows are found. Raises ItemError when there are none."""
        keys = as_tuple(self.__update_key__) or self.unique_key
        if not keys:
            raise ItemError(
                f"{type(self).__name__} has neither __update_key__ nor __unique_key__, so nothing tells "
                "which rows to update; name the key fields"
            )
        return keys

    @property
    def fingerprint(self) -> str:
        """32 hex digits of table and all non-empty fields. Raises ItemError for a key field without value."""
        name, fields = type(self).__name__, self.to_dict()
        return digest_of_update(name, self.table_name, fields, self.update_key).hex()


_RESERVED = frozenset(name for base in (Item, UpdateItem) for name in vars(base) if not name.startswith("_"))
_HOOKS = frozenset({"pre_to_db", "to_dict", "fingerprint"})  # what a subclass may well define anew
_ITEM_SETTABLE = frozenset({"table_name", "pipelines"})
