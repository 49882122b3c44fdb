"""Selectors on HTML, answered by turbohtml (WHATWG tree builder). Loaded with the first HTML page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, SupportsIndex, overload

import turbohtml

from netspy.errors import ResponseError
from netspy.messages.selectors import regex as regexes
from netspy.messages.selectors import size
from netspy.messages.selectors.axes import Index
from netspy.messages.selectors.base import Engine, Selector, SelectorList, without_surrogates
from netspy.messages.selectors.query import Query, css_query, xpath_query
from netspy.messages.selectors.size import MAX_NODES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from re import Pattern

_new = object.__new__

_LARGE, _HUGE = 3_000, 30_000
"""Tags from which on a page's positions, and all its paths, are found in the way whose time grows with the page."""


class TooDeepError(ResponseError):
    """turbohtml's tree builder flattens what lies deeper than `DEEPEST` elements: texts end up elsewhere."""


class Tree:
    """One parsed page, shared by all selectors on it.

    Raises ResponseError for a page whose tree has more than `max_nodes` nodes (0: no limit), and TooDeepError.
    """

    __slots__ = ("_index", "document", "is_huge", "is_large", "namespaces", "root")

    def __init__(self, text: str, max_nodes: int = MAX_NODES) -> None:
        tags = text.count("<")
        self.document: Any = _parsed(text, tags, max_nodes)
        self.root: Any = self.document.root
        self.namespaces: dict[str, str] | None = None
        self.is_large, self.is_huge = tags > _LARGE, tags > _HUGE
        self._index: Index | None = None

    def index(self) -> Index:
        """Its nodes by their place."""
        if self._index is None:
            self._index = Index(self.document)
        return self._index

    def changed(self) -> None:
        """What was known of its nodes' places holds no more."""
        self._index = None


def _parsed(text: str, tags: int, max_nodes: int) -> Any:
    doubt = size.doubt(text, tags, max_nodes)
    if doubt is not None:
        if doubt.hopeless:
            raise _too_large(text, max_nodes)
        for end in doubt.try_first:
            _count(turbohtml.parse(text[:end]), text, max_nodes)
    # A shadow root would be out of reach: a template stays one, as in lxml.
    document = turbohtml.parse(text, allow_declarative_shadow_roots=False)
    if doubt is not None:
        _count(document, text, max_nodes)
    if document.select_one("template") is not None:
        for template in document.select("template"):
            for content in template:
                if isinstance(content, turbohtml.DocumentFragment):
                    template.extend(list(content))
                    content.extract()
    if tags > size.DEEPEST - 2 and all(reaches(document) for reaches in _depths):
        raise TooDeepError(f"the page nests more than {size.DEEPEST} elements in each other")
    return document


_all_nodes = turbohtml.XPath("count(//node())")
_depths = [turbohtml.XPath(f"boolean({'/*' * depth})") for depth in (32, 128, size.DEEPEST + 1)]
"""Whether elements lie so deep. Hardly a page gets past the first, and the last alone costs a third more."""


def _count(document: Any, text: str, max_nodes: int) -> None:
    nodes: Any = _all_nodes(document)
    if nodes > max_nodes:
        raise _too_large(text, max_nodes)


def _too_large(text: str, max_nodes: int) -> ResponseError:
    return ResponseError(
        f"a page of {len(text)} characters makes a tree of more than MAX_TREE_NODES={max_nodes} nodes, as a page does "
        "that never closes its <b> or <font>; raise MAX_TREE_NODES if such pages are wanted (200 bytes for each node)"
    )


class HtmlSelector(Selector):
    """A node of an HTML page, or a string or number found in it. `root` is turbohtml's node, or the value."""

    __slots__ = ("_expr", "_raw", "_tree", "root")

    type = "html"

    def __init__(self, text: str, type: str | None = None, engine: Engine = "turbohtml") -> None:  # noqa: A002
        """Parse a page; lone surrogates in `text` become U+FFFD, so that what is selected can be stored."""
        del type, engine
        if not hasattr(self, "_tree"):
            self._tree = Tree(without_surrogates(text))
        self.root = self._tree.root
        self._expr: str | None = None
        self._raw = False

    @classmethod
    def on(cls, text: str, max_nodes: int = MAX_NODES) -> HtmlSelector:
        """The selector of a page whose text is known to have no lone surrogates. Raises as Tree does."""
        tree = Tree(text, max_nodes)
        return cls.wrap(tree.root, tree, None)

    def parse(self, text: str) -> None:
        """Parse a page ahead of `__init__`. Raises as Tree does."""
        self._tree = Tree(without_surrogates(text))

    @classmethod
    def wrap(cls, value: Any, tree: Tree, query: Query | None) -> HtmlSelector:
        """The selector of a value that `query` has found in `tree`."""
        made: HtmlSelector = _new(cls)
        made._tree = tree
        made._expr = None if query is None else query.source
        made._raw = False
        made.root = value
        if query is not None and isinstance(value, str):
            made._raw = query.is_raw(value)
            made.root = value if type(value) is str else str(value)
        return made

    def css(self, query: str) -> HtmlSelectorList:
        """As Selector.css."""
        asked = css_query(query)
        if isinstance(self.root, turbohtml.Node):
            return HtmlSelectorList(self._tree, asked, self.root)
        return HtmlSelectorList(self._tree, asked, None, [])

    def xpath(
        self, query: str, namespaces: Mapping[str, str] | None = None, **variables: Any
    ) -> HtmlSelectorList:
        """As Selector.xpath."""
        asked = xpath_query(query)
        node = self.root
        if not isinstance(node, turbohtml.Node):
            itself = [node] if query.strip() == "." else []
            return HtmlSelectorList(self._tree, asked, None, itself)
        known = self._tree.namespaces
        if not (namespaces or known or variables):
            return HtmlSelectorList(self._tree, asked, node)
        prefixes = {**(known or {}), **(namespaces or {})}
        found = (
            asked.evaluate(node, prefixes, variables) if prefixes else asked.ask(node, self._tree, variables)
        )
        return HtmlSelectorList(self._tree, asked, node, found)

    def jmespath(self, query: str, **options: Any) -> SelectorList:
        """As Selector.jmespath."""
        from netspy.messages.selectors.parsel_engine import json_selector

        node = self.root
        text = node if isinstance(node, str) else node.text if isinstance(node, turbohtml.Node) else ""
        return json_selector(text).jmespath(query, **options)  # type: ignore[return-value]  # registered as one

    def get(self) -> str:
        """As Selector.get."""
        return _as_text(self.root)

    def re(self, regex: str | Pattern[str], replace_entities: bool = True) -> list[str]:
        """As Selector.re."""
        text, decode, markup = self._to_search(replace_entities)
        return regexes.find_all(regex, text, decode=decode, markup=markup)

    def re_first(self, regex: str | Pattern[str], default: Any = None, replace_entities: bool = True) -> Any:
        """As Selector.re_first."""
        text, decode, markup = self._to_search(replace_entities)
        found = regexes.find_first(regex, text, decode=decode, markup=markup)
        return default if found is None else found

    def _to_search(self, replace_entities: bool) -> tuple[str, bool, bool]:
        """The text, whether references in it are decoded, and whether it is markup."""
        return _as_text(self.root), replace_entities and not self._raw, isinstance(self.root, turbohtml.Node)

    @property
    def attrib(self) -> dict[str, str]:
        """As Selector.attrib."""
        node = self.root
        if not isinstance(node, turbohtml.Element):
            return {}
        return {name: node.attr(name) or "" for name in node.attrs}

    def drop(self) -> None:
        """As Selector.drop. Raises ResponseError for a string, and for what has no parent."""
        node = self.root
        if not isinstance(node, turbohtml.Node):
            raise ResponseError(
                f"drop() of the string {_as_text(node)!r:.60}: a string can't be dropped; "
                "select 'li' rather than 'li::text'"
            )
        if node.parent is None:
            raise ResponseError("drop() of a node that has no parent: it is the document, or dropped already")
        node.extract()
        self._tree.changed()

    def remove_namespaces(self) -> None:
        """Nothing to do: plain names find HTML, SVG and MathML elements alike."""

    def register_namespace(self, prefix: str, uri: str) -> None:
        """As Selector.register_namespace."""
        self._tree.namespaces = {**(self._tree.namespaces or {}), prefix: uri}

    def __repr__(self) -> str:
        return f"<Selector query={self._expr!r} data={_short(self.get())!r}>"

    def __reduce__(self) -> str:
        raise TypeError("a Selector can't be pickled or copied; keep its get()")


class HtmlSelectorList(SelectorList):
    """What a query has found. It is asked when the list is first used, and `get` only looks for the first."""

    __slots__ = ("_items", "_node", "_query", "_tree", "_values")

    def __init__(self, tree: Tree, query: Query, node: Any, values: list[Any] | None = None) -> None:
        """The answer of `query` at `node`; of several nodes, or of none, when `values` are given."""
        self._tree = tree
        self._query = query
        self._node = node
        self._values = values
        self._items: list[HtmlSelector] | None = None

    def values(self) -> list[Any]:
        """What has been found, as the engine gives it: its nodes, strings, numbers."""
        values = self._values
        if values is None:
            values = self._values = self._query.values(self._node, self._tree)
        return values

    def _selectors(self) -> list[HtmlSelector]:
        if self._items is None:
            query, tree = self._query, self._tree
            self._items = [HtmlSelector.wrap(value, tree, query) for value in self.values()]
        return self._items

    def css(self, query: str) -> HtmlSelectorList:
        """As Selector.css, of each."""
        asked = css_query(query)
        values = [
            value
            for node in self.values()
            if isinstance(node, turbohtml.Node)
            for value in asked.values(node, self._tree)
        ]
        return HtmlSelectorList(self._tree, asked, None, values)

    def xpath(
        self, query: str, namespaces: Mapping[str, str] | None = None, **variables: Any
    ) -> HtmlSelectorList:
        """As Selector.xpath, of each."""
        values: list[Any] = []
        for selector in self._selectors():
            found = selector.xpath(query, namespaces, **variables)
            values += found.values()
        return HtmlSelectorList(self._tree, xpath_query(query), None, values)

    def jmespath(self, query: str, **options: Any) -> SelectorList:
        """As Selector.jmespath, of each."""
        from netspy.messages.selectors.parsel_engine import joined

        return joined(
            [found for selector in self._selectors() for found in selector.jmespath(query, **options)]
        )

    def get(self, default: Any = None) -> Any:
        """As SelectorList.get."""
        values = self._values
        if values is None:
            value = self._query.first(self._node, self._tree)
            return default if value is None else _as_text(value)
        return _as_text(values[0]) if values else default

    extract_first = get

    def getall(self) -> list[str]:
        """As SelectorList.getall."""
        return [_as_text(value) for value in self.values()]

    extract = getall

    def re(self, regex: str | Pattern[str], replace_entities: bool = True) -> list[str]:
        """As Selector.re, of each."""
        return [match for selector in self._selectors() for match in selector.re(regex, replace_entities)]

    def re_first(self, regex: str | Pattern[str], default: Any = None, replace_entities: bool = True) -> Any:
        """As SelectorList.re_first."""
        for selector in self._selectors():
            found = selector.re_first(regex, None, replace_entities)
            if found is not None:
                return found
        return default

    @property
    def attrib(self) -> Mapping[str, str]:
        """As SelectorList.attrib."""
        value = self._query.first(self._node, self._tree) if self._values is None else None
        if value is not None:
            return HtmlSelector.wrap(value, self._tree, self._query).attrib
        return self._selectors()[0].attrib if self.values() else {}

    def drop(self) -> None:
        """As Selector.drop, of each."""
        for selector in self._selectors():
            selector.drop()

    @overload
    def __getitem__(self, index: SupportsIndex) -> HtmlSelector: ...
    @overload
    def __getitem__(self, index: slice) -> HtmlSelectorList: ...
    def __getitem__(self, index: SupportsIndex | slice) -> HtmlSelector | HtmlSelectorList:
        if isinstance(index, slice):
            part = HtmlSelectorList(self._tree, self._query, None, self.values()[index])
            part._items = self._selectors()[index]
            return part
        return self._selectors()[index]

    def __iter__(self) -> Iterator[HtmlSelector]:
        return iter(self._selectors())

    def __len__(self) -> int:
        return len(self.values())


def _as_text(value: Any) -> str:
    """The markup of a node, or a string; `1`, `0` for booleans and `3.0` for numbers, as in parsel."""
    if type(value) is str:
        return value
    if isinstance(value, turbohtml.Node):
        return value.html
    if isinstance(value, bool):
        return "1" if value else "0"
    return str(value)


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."
