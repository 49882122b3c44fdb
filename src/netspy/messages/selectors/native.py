"""Selectors that turbohtml's own CSS engine answers exactly as the translated XPath would, but much faster.

Plain compounds (`h1.title`, `a[href^="/item"]`) with combinators, and XPath that says the same
(`//h1[@class="x"]/a`). Values are always spelled `[class~="x" s]`, `[id="x" s]`: in CSS, classes and ids lose
their case on a page without doctype, and some attributes' values always do; in lxml and XPath they never do.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from netspy.messages.selectors.svg_names import ATTRIBUTES
from netspy.messages.selectors.xpath import Binary, Call, Expr, Literal, Path, Step

_element_name = re.compile(r"[a-z][a-z0-9-]*", re.ASCII).fullmatch
_attribute_name = re.compile(r"[a-z_][a-z0-9_-]*", re.ASCII).fullmatch
_plain_value = re.compile(r'[^"\\\x00-\x1f\x7f]*').fullmatch  # nothing that a CSS string would have to escape
_space = re.compile(r"\s").search


class Native(NamedTuple):
    """A selector for turbohtml and what is wanted of each element it finds."""

    css: str
    compounds: int
    """How many elements the selector names; with one, it can be asked from any element."""
    scope: str
    """`document`: from the whole document; `self`: the context or below it; `below`: below the context."""
    text: bool = False
    """The text nodes right under the elements."""
    attribute: str | None = None
    """The value of this attribute."""


def from_css(tree: Any, *, text: bool, attribute: str | None) -> Native | None:
    """The native form of a selector that cssselect has parsed; None when it has none."""
    found = _css(tree)
    if found is None or (attribute is not None and not _plain_attribute(attribute)):
        return None
    if found[0].rpartition(" ")[2] == "*" and (text or attribute is not None):
        return None  # `p ::text` is the text of p as well
    return Native(*found, "self", text, attribute)


def _css(tree: Any) -> tuple[str, int] | None:
    parts: list[str] = []
    while type(tree).__name__ == "CombinedSelector":
        right = _compound(tree.subselector)
        combinator = tree.combinator
        if right is None or combinator not in (" ", ">", "+", "~"):
            return None
        if combinator == ">" and (right == "tr" or right.startswith("tr[")):
            return None  # has to go through the implied tbody
        parts += [right, " " if combinator == " " else f" {combinator} "]
        tree = tree.selector
    leftmost = _compound(tree)
    if leftmost is None:
        return None
    parts.append(leftmost)
    return "".join(reversed(parts)), len(parts) // 2 + 1


def _compound(tree: Any) -> str | None:
    """One compound; the classes of cssselect's tree are told by their names, so it needn't be loaded here."""
    tests: list[str] = []
    while (kind := type(tree).__name__) != "Element":
        if kind == "Class":
            test = _test("class", "~=", tree.class_name)
        elif kind == "Hash":
            test = _test("id", "=", tree.id)
        elif kind == "Attrib" and not tree.namespace and not getattr(tree, "flag", None):
            value = None if tree.value is None else tree.value.value
            test = _test(tree.attrib.lower(), tree.operator, value)
        else:
            return None
        if test is None:
            return None
        tests.append(test)
        tree = tree.selector
    if tree.namespace:
        return None
    name = (tree.element or "*").lower()
    if name != "*" and not _element_name(name):
        return None
    return _join(name, tests[::-1])


def _join(name: str, tests: list[str]) -> str:
    return "".join(tests) if tests and name == "*" else name + "".join(tests)


def _test(name: str, operator: str, value: str | None) -> str | None:
    if not _plain_attribute(name):
        return None
    if operator == "exists":
        return f"[{name}]"
    if value is None or not _plain_value(value):
        return None
    if operator == "~=" and _space(value):
        return None
    if operator != "=" and not value:
        return None
    if operator not in ("=", "~=", "|=", "^=", "$=", "*="):
        return None
    return f'[{name}{operator}"{value}" s]'


def _plain_attribute(name: str) -> bool:
    return _attribute_name(name) is not None and name not in ATTRIBUTES


def from_xpath(tree: Expr) -> Native | None:
    """The native form of an XPath (`//…` from the document, `.//x` from the context); None: it has none."""
    if not isinstance(tree, Path) or tree.start is not None or not tree.steps:
        return None
    steps = tree.steps
    scope = "document"
    if not tree.absolute:
        if steps[0] != Step("", "self", "node()"):
            return None
        scope, steps = "below", steps[1:]
    text, attribute = False, None
    if steps and steps[-1].separator == "/" and not steps[-1].predicates:
        last = steps[-1]
        if last.axis == "attribute":
            attribute = last.test
        elif last.axis == "child" and last.test == "text()":
            text = True
        if text or attribute is not None:
            steps = steps[:-1]
    if attribute is not None and not _plain_attribute(attribute):
        return None
    if not steps or steps[0].separator != "//" or (scope == "below" and len(steps) > 1):
        return None
    css = ""
    for step in steps:
        compound = _step(step)
        if compound is None:
            return None
        css += compound if not css else f" > {compound}" if step.separator == "/" else f" {compound}"
    return Native(css, len(steps), scope, text, attribute)


def _step(step: Step) -> str | None:
    if step.axis != "child" or (step.test != "*" and not _element_name(step.test)):
        return None
    tests = []
    for predicate in step.predicates:
        test = _predicate(predicate)
        if test is None:
            return None
        tests.append(test)
    return _join(step.test, tests)


def _predicate(tree: Expr) -> str | None:
    """A predicate that asks about attributes only, as CSS."""
    match tree:
        case Binary("and", left, right):
            first, second = _predicate(left), _predicate(right)
            return None if first is None or second is None else first + second
        case Binary("=", Path() as path, Literal(value)) | Binary("=", Literal(value), Path() as path):
            name = _attribute(path)
            return None if name is None else _test(name, "=", value)
        case Call("contains", [Path() as path, Literal(value)]):
            name = _attribute(path)
            return None if name is None else _test(name, "*=", value)
        case Call("starts-with", [Path() as path, Literal(value)]):
            name = _attribute(path)
            return None if name is None else _test(name, "^=", value)
        case Call("contains", [Call("concat", [Literal(" "), padded, Literal(" ")]), Literal(value)]):
            return _class_test(padded, value)
        case Path() as path:
            name = _attribute(path)
            return None if name is None else _test(name, "exists", None)
    return None


def _attribute(path: Path) -> str | None:
    if path.absolute or path.start is not None or len(path.steps) != 1:
        return None
    [step] = path.steps
    return step.test if step.axis == "attribute" and not step.predicates else None


def _class_test(padded: Expr, value: str) -> str | None:
    """The idiom `contains(concat(' ', normalize-space(@class), ' '), ' x ')`: is it one of the words?"""
    match padded:
        case Call("normalize-space", [Call("translate", [Path() as path, Literal("\f"), Literal(" ")])]):
            pass
        case Call("normalize-space", [Path() as path]):
            pass
        case _:
            return None
    name = _attribute(path)
    if name is None or len(value) < 3 or value[0] != " " or value[-1] != " ":
        return None
    return _test(name, "~=", value[1:-1])
