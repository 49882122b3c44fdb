"""Response headers: names without regard to case, every value kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Given = Mapping[Any, Any] | Iterable[tuple[Any, Any]] | None


class Headers(Mapping[str, str]):
    """The header fields of a response.

    Keys are lower-case. A field that came several times reads as one value joined by ", " (RFC 9110, 5.3),
    except Set-Cookie, which can't be joined: its first value is given, and `get_all` has them all.
    """

    __slots__ = ("_lists", "_pairs")

    def __init__(self, given: Given = None) -> None:
        """From a mapping (a list as value means several fields) or from (name, value) pairs, str or bytes."""
        self._pairs: Any = given if isinstance(given, Headers) else given or ()
        self._lists: dict[str, list[str]] | None = None
        if isinstance(self._pairs, Iterator):
            self._pairs = list(self._pairs)

    @classmethod
    def of_lines(cls, pairs: Iterable[tuple[str, str]]) -> Headers:
        """From (name, value) pairs in the order of the lines, whose names are lower-case already."""
        lists: dict[str, list[str]] = {}
        for name, value in pairs:
            values = lists.get(name)
            if values is None:
                lists[name] = [value]
            else:
                values.append(value)
        headers = cls()
        headers._lists = lists
        return headers

    def _by_name(self) -> dict[str, list[str]]:
        lists = self._lists
        if lists is None:
            lists = {}
            given = self._pairs
            for name, value in given.multi_items() if isinstance(given, Headers) else _pairs(given):
                lists.setdefault(name, []).append(value)
            self._lists = lists
        return lists

    def get_all(self, name: str) -> list[str]:
        """Every value of a field, in order; [] when there is none."""
        return list(self._by_name().get(name.lower(), ()))

    getlist = get_all

    def multi_items(self) -> list[tuple[str, str]]:
        """All (name, value) pairs; the fields of one name stand together."""
        return [(name, value) for name, values in self._by_name().items() for value in values]

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a field, as `headers[name]` gives it; `default` when there is none."""
        key = name.lower()
        values = self._by_name().get(key)
        if values is None:
            return default
        return values[0] if len(values) == 1 or key == "set-cookie" else ", ".join(values)

    def __getitem__(self, name: str) -> str:
        value: str | None = self.get(name)
        if value is None:
            raise KeyError(name)
        return value

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._by_name()

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name())

    def __len__(self) -> int:
        return len(self._by_name())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Mapping):
            theirs = other if isinstance(other, Headers) else Headers(other)
            return self._by_name() == theirs._by_name()
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Headers({dict(self)!r})"


def _pairs(given: Any) -> Iterator[tuple[str, str]]:
    for name, value in given.items() if isinstance(given, Mapping) else given:
        key = _as_str(name).lower()
        if isinstance(value, (list, tuple)):
            for one in value:
                yield key, _as_str(one)
        else:
            yield key, _as_str(value)


def _as_str(value: Any) -> str:
    """Field values are ASCII, and Latin-1 where they are not (RFC 9110, 5.5)."""
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
