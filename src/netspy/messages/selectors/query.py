"""Selectors made ready for an HTML5 tree, once for each text of a selector.

A `Query` answers with plain values (elements, strings, numbers); `html.py` dresses them as selectors. This
module is loaded with the first HTML page.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import cssselect
import turbohtml
from cssselect.xpath import ExpressionError

from netspy.messages.selectors import axes
from netspy.messages.selectors import native as natives
from netspy.messages.selectors.html5 import RAW_TEXT_ELEMENTS, for_html5, raw_text
from netspy.messages.selectors.xpath import (
    Binary,
    Call,
    Expr,
    Literal,
    Path,
    Step,
    XPathSyntaxError,
    parse,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from netspy.messages.selectors.html import Tree
    from netspy.messages.selectors.native import Native

_CACHED = 4096

_plain_name = re.compile(r"[a-zA-Z_][\w.\-]*", re.ASCII).fullmatch


class Query:
    """One selector: its native form where it has one, and its XPath.

    `raw` tells whether its strings are the content of scripts and the like: yes, no, or None, which means that each
    string is asked for its parent. Making one raises ValueError when the engine can't read the XPath.
    """

    __slots__ = ("_compiled", "_counts", "_path", "_round", "_sideways", "native", "raw", "source", "xpath")

    def __init__(
        self, source: str, xpath: str, native: Native | None, raw: bool | None, tree: Expr | None = None
    ) -> None:
        self.source = source
        self.xpath = xpath
        self.native = native
        self.raw = raw
        self._sideways = tree is not None and axes.worth_it(tree)
        self._round = tree is not None and axes.goes_round(tree)
        self._path = tree
        self._counts = native is not None and ":nth-" in native.css
        self._compiled: Any = None
        try:
            self._compiled = turbohtml.XPath(xpath, smart_strings=raw is None)
        except ValueError as error:
            if ":" not in xpath:  # a prefix may be explained when the query is asked
                raise ValueError(f"XPath error: {error} in {source}") from None

    def values(self, node: Any, tree: Tree) -> list[Any]:
        """Everything it finds from `node`, in document order."""
        native = self._native_for(tree)
        found = None if native is None else _elements(native, node, tree.document)
        if native is None or found is None:
            return self.ask(node, tree)
        if native.attribute is not None:
            name = native.attribute
            return [value for element in found if (value := element.attr(name)) is not None]
        if not native.text or not found:
            return found
        if native.text == "own" and tree.is_huge and node in tree.index().at:
            return axes.texts(found, tree.index())
        texts: Any = (_own_text if native.text == "own" else _all_text)[self.raw is None](node, n=found)
        return list(texts)

    def first(self, node: Any, tree: Tree) -> Any:
        """The first of `values`, or None."""
        native, document = self._native_for(tree), tree.document
        if native is None:
            return next(iter(self.ask(node, tree)), None)
        if native.scope == "document" or node is document.root:
            found = (node if native.scope == "below" else document).select_one(native.css)
        elif native.sideways and node.matches(native.sideways):
            return next(iter(self.ask(node, tree)), None)
        elif native.scope == "self" and native.itself and node.matches(native.itself):
            found = node
        else:
            found = node.select_one(native.inside)
        if found is None or not (native.text or native.attribute is not None):
            return found
        if native.text:
            child = next(iter(found), None)
            if child is not None and type(child) is turbohtml.Text:
                return child.data
        else:
            value = found.attr(native.attribute)
            if value is not None:
                return value
        # The first text is not the first thing in the first element, or it has no such attribute.
        return next(iter(self.values(node, tree)), None)

    def _native_for(self, tree: Tree) -> Native | None:
        """The native form, unless it has positions and the page is large: it would count anew for each parent."""
        return None if self._counts and tree.is_large else self.native

    def ask(self, node: Any, tree: Tree, variables: Mapping[str, Any] | None = None) -> list[Any]:
        """Everything its XPath gives from `node`. Raises as `evaluate` does."""
        # turbohtml sorts nodes of different depths in time that grows with the square: `//*/*` on a huge page.
        if self._path is not None and (self._sideways or tree.is_huge or (self._round and tree.is_large)):
            try:
                return axes.evaluate(self._path, node, tree.index(), variables or {})
            except axes.UnsupportedError:
                pass
            except (ValueError, TypeError) as error:
                raise ValueError(f"XPath error: {error} in {self.source}") from None
        return self.evaluate(node, None, variables)

    def evaluate(
        self,
        node: Any,
        namespaces: Mapping[str, str] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> list[Any]:
        """Everything its XPath gives from `node`; a single string, number or boolean in a list as well.

        Raises ValueError when the engine can't make sense of it.
        """
        try:
            if namespaces and ":" in self.xpath:
                found = node.xpath(
                    self.xpath,
                    namespaces=dict(namespaces),
                    smart_strings=self.raw is None,
                    **(variables or {}),
                )
            else:
                compiled = self._compiled or turbohtml.XPath(self.xpath, smart_strings=self.raw is None)
                found = compiled(node, **variables) if variables else compiled(node)
        except (ValueError, TypeError) as error:
            raise ValueError(f"XPath error: {error} in {self.source}") from None
        return found if isinstance(found, list) else [found]

    def is_raw(self, value: Any) -> bool:
        """Whether `value`, one of the strings it gave, is the content of a script or the like."""
        if self.raw is not None:
            return self.raw
        return _has_raw_parent(value)


def _has_raw_parent(value: Any) -> bool:
    parent = getattr(value, "getparent", None)
    return parent is not None and not value.is_attribute and parent().tag in RAW_TEXT_ELEMENTS


def _elements(native: Native, node: Any, document: Any) -> list[Any] | None:
    """The elements of a native selector; None when it can't be asked from this node."""
    found: list[Any]
    if native.scope == "document" or node is document.root:
        found = (node if native.scope == "below" else document).select(native.css)
    elif native.sideways and node.matches(native.sideways):
        return None
    else:
        found = node.select(native.inside)
        if native.scope == "self" and native.itself and node.matches(native.itself):
            found = [node, *found]
    return found


# The text of elements that may lie in each other; the second of each knows of each text where it is from.
_own_text, _all_text = (
    [turbohtml.XPath(path, smart_strings=smart) for smart in (False, True)]
    for path in ("$n/text()", "$n/descendant::text()")
)


@lru_cache(maxsize=_CACHED)
def xpath_query(source: str) -> Query:
    """The query of an XPath expression. Raises ValueError for one that isn't."""
    try:
        tree = parse(source)
    except XPathSyntaxError:
        return Query(source, source, None, None)  # the engine knows a little more, or says what is wrong
    try:
        changed = for_html5(tree)
    except XPathSyntaxError as error:
        raise ValueError(f"XPath error: {error} in {source}") from None
    xpath = source if changed == tree else write(changed)
    return Query(source, xpath, natives.from_xpath(changed), raw_text(changed), changed)


@lru_cache(maxsize=_CACHED)
def css_query(source: str) -> Query:
    """The query of a CSS selector. Raises cssselect's SelectorError."""
    translator = cssselect.HTMLTranslator()
    union: Expr | None = None
    selectors = cssselect.parse(source)
    wanted = []
    for selector in selectors:
        text, attribute = _pseudo_element(selector.pseudo_element)
        wanted.append((text, attribute))
        tree = _with_pseudo_element(parse(translator.selector_to_xpath(selector)), text, attribute)
        union = tree if union is None else Binary("|", union, tree)
    if union is None:
        raise ValueError(f"the CSS selector {source!r} is empty")
    native: Native | None = None
    if len(set(wanted)) == 1:
        [(text, attribute)] = set(wanted)
        native = natives.from_css([each.parsed_tree for each in selectors], text=text, attribute=attribute)
    changed = for_html5(union)
    return Query(source, write(changed), native, raw_text(changed), changed)


def _pseudo_element(pseudo: Any) -> tuple[bool, str | None]:
    """What `::text` or `::attr(name)` asks for. Raises cssselect's ExpressionError for any other."""
    if pseudo is None:
        return False, None
    if isinstance(pseudo, str):
        if pseudo == "text":
            return True, None
        raise ExpressionError(f"The pseudo-element ::{pseudo} is unknown")
    if pseudo.name != "attr":
        raise ExpressionError(f"The functional pseudo-element ::{pseudo.name}() is unknown")
    if pseudo.argument_types() not in (["STRING"], ["IDENT"]):
        raise ExpressionError(f"Expected a single string or ident for ::attr(), got {pseudo.arguments!r}")
    return False, pseudo.arguments[0].value


def _with_pseudo_element(tree: Expr, text: bool, attribute: str | None) -> Expr:
    """The path to the text nodes or attribute of what `tree`, a translated selector, finds.

    Under a universal selector (`p ::text`), the context's own text or attribute counts as well, as in parsel.
    """
    if not isinstance(tree, Path) or not (text or attribute is not None):
        return tree
    steps = tree.steps
    under_any = _any_below(steps[-1]) or (
        len(steps) > 1 and _any_below(steps[-2]) and steps[-1] == Step("/", "child", "*")
    )
    if under_any and not _any_below(steps[-1]):
        steps = steps[:-1]
    if text:
        if under_any:
            steps = [*steps[:-1], Step(steps[-1].separator, "descendant-or-self", "text()")]
        else:
            steps = [*steps, Step("/", "child", "text()")]
    elif attribute is not None:
        steps = [*steps, _attribute_step(attribute)]
    return Path(steps, tree.absolute, tree.start, tree.predicates)


def _any_below(step: Step) -> bool:
    return step.axis == "descendant-or-self" and step.test == "*" and not step.predicates


def _attribute_step(name: str) -> Step:
    """The attribute of that very name: `xlink:href` or `@click` is no name of XPath, but one of HTML."""
    if _plain_name(name):
        return Step("/", "attribute", name)
    return Step("/", "attribute", "*", [Binary("=", Call("name", []), Literal(name))])
