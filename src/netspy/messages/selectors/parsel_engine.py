"""Selectors answered by parsel: XML, JSON, and HTML where SELECTOR_ENGINE asks for lxml's tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

import parsel

from netspy.errors import ResponseError
from netspy.messages.selectors import regex as regexes
from netspy.messages.selectors.base import Engine, Selector, SelectorList, without_surrogates
from netspy.messages.selectors.html5 import RAW_TEXT_ELEMENTS
from netspy.messages.xml_text import with_good_references

if TYPE_CHECKING:
    from collections.abc import Iterable
    from re import Pattern

_T = TypeVar("_T", bound=parsel.Selector)

_DEEPEST = 2048
"""Elements in each other at which libxml2 stops reading."""


class ParselSelectorList(parsel.SelectorList[_T]):
    """parsel's own list."""

    def re_first(self, regex: str | Pattern[str], default: Any = None, replace_entities: bool = True) -> Any:
        """As SelectorList.re_first; stops at the first match."""
        for selector in self:
            found = selector.re_first(regex, None, replace_entities)
            if found is not None:
                return found
        return default


SelectorList.register(ParselSelectorList)


class ParselSelector(parsel.Selector, Selector):  # type: ignore[misc]  # its lists are registered as ours
    """parsel's own selector; only `re` differs: it leaves scripts and styles as they are."""

    __slots__ = ()

    selectorlist_cls = ParselSelectorList
    _lxml_smart_strings = True  # strings know their element, which tells whether they are a script's

    def __init__(
        self,
        text: str | None = None,
        type: str | None = None,  # noqa: A002  parsel's name
        engine: Engine = "parsel",
        **options: Any,
    ) -> None:
        """As parsel's, with lone surrogates in `text` replaced by U+FFFD (libxml2 takes UTF-8 only).

        Raises ResponseError where libxml2 has stopped at its limit of nesting and left out the rest of the page.
        """
        del engine
        if text is not None and type == "xml":
            text = with_good_references(text)
        super().__init__(text if text is None else without_surrogates(text), type, **options)
        if text is not None and self.type in ("html", "xml") and text.count("<") >= _DEEPEST:
            _refuse_if_cut(self.root)

    def re(self, regex: str | Pattern[str], replace_entities: bool = True) -> list[str]:
        """As Selector.re."""
        text, decode, markup = self._to_search(replace_entities)
        return regexes.find_all(regex, text, decode=decode, markup=markup)

    def re_first(self, regex: str | Pattern[str], default: Any = None, replace_entities: bool = True) -> Any:
        """As Selector.re_first."""
        text, decode, markup = self._to_search(replace_entities)
        found = regexes.find_first(regex, text, decode=decode, markup=markup)
        return default if found is None else found

    @property
    def attrib(self) -> dict[str, str]:
        """As Selector.attrib."""
        return super().attrib if hasattr(self.root, "attrib") else {}

    def _to_search(self, replace_entities: bool) -> tuple[str, bool, bool]:
        root = self.root
        if isinstance(root, str):
            return str(root), replace_entities and not _is_raw(root), False
        return str(self.get()), replace_entities, self.type == "html"


def _refuse_if_cut(root: Any) -> None:
    depth = 0
    while root is not None:
        depth += 1
        root = root[-1] if len(root) else None
    if depth >= _DEEPEST:
        raise ResponseError(
            f"the page nests more than {_DEEPEST - 1} elements in each other, where lxml stops reading; "
            "take what you need from its text, with response.re()"
        )


def _is_raw(value: str) -> bool:
    """Whether a string is the text of a script or the like; what follows an element belongs to its parent."""
    parent = getattr(value, "getparent", None)
    if parent is None or getattr(value, "is_attribute", False):
        return False
    element = parent()
    if element is not None and getattr(value, "is_tail", False):
        element = element.getparent()
    return element is not None and element.tag in RAW_TEXT_ELEMENTS


def json_selector(data: Any) -> ParselSelector:
    """A selector on JSON: its text, or what it has been parsed to. Text that isn't JSON counts as null."""
    return ParselSelector(data, "json") if isinstance(data, str) else ParselSelector(root=data, type="json")


def joined(selectors: Iterable[Selector]) -> SelectorList:
    """Selectors of this engine as one list."""
    return cast("SelectorList", ParselSelectorList(cast("Iterable[ParselSelector]", selectors)))
