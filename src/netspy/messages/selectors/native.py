"""Selectors that turbohtml's own CSS engine answers exactly as the translated XPath would, but much faster.

Compounds (`h1.title`, `a[href^="/item"]`, `tr:nth-child(2)`) with combinators, groups of them, and XPath that says the
same (`//h1[@class="x"]/a`). Values are always spelled `[class~="x" s]`, `[id="x" s]`: in CSS, classes and ids lose
their case on a page without doctype, and some attributes' values always do; in lxml and XPath they never do.

Positions and `~` matter most: the XPath they are translated to asks each element for all siblings before it.
"""

from __future__ import annotations

import re
from typing import Any, Literal, NamedTuple, TypeAlias

from netspy.messages.selectors.svg_names import ATTRIBUTES
from netspy.messages.selectors.xpath import Binary, Call, Expr, Path, Step
from netspy.messages.selectors.xpath import Literal as String

_element_name = re.compile(r"[a-z][a-z0-9-]*", re.ASCII).fullmatch
_attribute_name = re.compile(r"[a-z_][a-z0-9_-]*", re.ASCII).fullmatch
_plain_value = re.compile(r'[^"\\\x00-\x1f\x7f]*').fullmatch  # nothing that a CSS string would have to escape
_space = re.compile(r"\s").search


_TREE_PSEUDOS = frozenset(
    {"first-child", "last-child", "only-child", "first-of-type", "last-of-type", "only-of-type"}
)
_POSITIONS = frozenset({"nth-child", "nth-last-child", "nth-of-type", "nth-last-of-type"})
_MOST_CHAINS = 8

_Chain: TypeAlias = list[tuple[str, str]]
"""Compounds with the combinator before each; that of the first is ""."""


class Native(NamedTuple):
    """A selector for turbohtml and what is wanted of each element it finds."""

    css: str
    """As it is asked of a whole document."""
    inside: str
    """As it is asked of an element, where all the elements it names have to lie inside: `:scope` is that element."""
    itself: str
    """What the element itself may be; "" when it can't be among the answers."""
    sideways: str
    """If the element is this, what it is asked for may lie outside, beside it; "" for never."""
    scope: str
    """`document`: from the whole document; `self`: the context or below it; `below`: below the context."""
    text: Literal["", "own", "all"] = ""
    """The text nodes right under the elements, or all those in them."""
    attribute: str | None = None
    """The value of this attribute."""


def from_css(trees: list[Any], *, text: bool, attribute: str | None) -> Native | None:
    """The native form of a group of selectors that cssselect has parsed; None when it has none."""
    if attribute is not None and (attribute != attribute.lower() or attribute in ATTRIBUTES):
        return None
    chains: list[_Chain] = []
    under_any = set()
    for tree in trees:
        found = _chains(tree)
        if found is None or (text and found == [[("", "*")]]):
            return None  # `::text` alone is all text
        for chain in found:
            *start, last = chain
            # `p ::text` and `p ::attr(x)` ask p itself as well.
            whole = last == (" ", "*") and (text or attribute is not None)
            under_any.add(whole)
            chains += [chain] if not whole else [start] if text else [start, chain]
    return Native(
        ", ".join(_written(chain) for chain in chains),
        ", ".join(inner for chain in chains for inner in _inside(chain)),
        ", ".join(chain[0][1] for chain in chains if len(chain) == 1),
        ", ".join(chain[0][1] for chain in chains if len(chain) > 1 and chain[1][0] in "+~"),
        "self",
        ("all" if True in under_any else "own") if text else "",
        attribute,
    )


def _written(chain: _Chain) -> str:
    return "".join(f" {combinator} {compound}".replace("   ", " ") for combinator, compound in chain).strip()


def _inside(chain: _Chain) -> list[str]:
    """A chain whose first compound is an element in the context, or the context itself."""
    [(_, first), *others] = chain
    if not others:
        return [first]
    rest = f" {_written(others)}"
    below = f":scope {first}{rest}"
    return [below] if others[0][0] in "+~" else [below, f"{'' if first == '*' else first}:scope{rest}"]


def _chains(tree: Any) -> list[_Chain] | None:
    """The chains that together are one selector; several where rows may lie in an implied tbody, or may not."""
    if type(tree).__name__ != "CombinedSelector":
        compound = _compound(tree)
        return None if compound is None else [[("", compound)]]
    before = _chains(tree.selector)
    right = _compound(tree.subselector)
    if before is None or right is None or tree.combinator not in (" ", ">", "+", "~"):
        return None
    if tree.combinator != ">" or not _is(right, "tr"):
        return [[*chain, (tree.combinator, right)] for chain in before]
    chains: list[_Chain] = []
    for chain in before:
        *start, (combinator, left) = chain
        if not _is(left, "table"):
            chains.append([*chain, (">", right)])
        if _is(left, "table") or not left[0].isalpha():
            table = left if _is(left, "table") else f"table{left.removeprefix('*')}"
            chains.append([*start, (combinator, table), (">", "tbody"), (">", right)])
    return chains if len(chains) <= _MOST_CHAINS else None


def _is(compound: str, name: str) -> bool:
    return compound == name or compound.startswith((f"{name}[", f"{name}:"))


def _compound(tree: Any) -> str | None:
    """One compound; the classes of cssselect's tree are told by their names, so it needn't be loaded here."""
    tests: list[str] = []
    while (kind := type(tree).__name__) != "Element":
        test: str | None = None
        if kind == "Class":
            test = _test("class", "~=", tree.class_name)
        elif kind == "Hash":
            test = _test("id", "=", tree.id)
        elif kind == "Attrib" and not tree.namespace and not getattr(tree, "flag", None):
            value = None if tree.value is None else tree.value.value
            test = _test(tree.attrib.lower(), tree.operator, value)
        elif kind == "Pseudo" and tree.ident in _TREE_PSEUDOS:
            test = f":{tree.ident}"
        elif kind == "Function" and tree.name in _POSITIONS:
            test = _position(tree)
        elif kind in ("Negation", "Matching", "SpecificityAdjustment"):
            test = _one_of(tree, "not" if kind == "Negation" else "is")
        elif kind == "Relation":
            test = _has(tree.arguments)
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


def _position(tree: Any) -> str:
    from cssselect.parser import parse_series

    step, first = parse_series(tree.arguments)
    return f":{tree.name}({step}n{first:+d})"


def _one_of(tree: Any, name: str) -> str | None:
    inner = [_compound(each) for each in getattr(tree, "selector_list", None) or [tree.subselector]]
    found = [each for each in inner if each is not None]
    return f":{name}({', '.join(found)})" if len(found) == len(inner) else None


def _has(arguments: Any) -> str | None:
    inner = []
    for combinator, selector in arguments:
        chains = _chains(selector.parsed_tree)
        sign = combinator.value or " "
        if chains is None or len(chains) > 1 or (sign == ">" and _is(chains[0][0][1], "tr")):
            return None
        inner.append(f"{sign} {_written(chains[0])}".strip())
    return f":has({', '.join(inner)})"


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
    itself = css if len(steps) == 1 else ""
    return Native(css, css, itself, "", scope, "own" if text else "", attribute)


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
        case Binary("=", Path() as path, String(value)) | Binary("=", String(value), Path() as path):
            name = _attribute(path)
            return None if name is None else _test(name, "=", value)
        case Call("contains", [Path() as path, String(value)]):
            name = _attribute(path)
            return None if name is None else _test(name, "*=", value)
        case Call("starts-with", [Path() as path, String(value)]):
            name = _attribute(path)
            return None if name is None else _test(name, "^=", value)
        case Call("contains", [Call("concat", [String(" "), padded, String(" ")]), String(value)]):
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
        case Call("normalize-space", [Call("translate", [Path() as path, String("\f"), String(" ")])]):
            pass
        case Call("normalize-space", [Path() as path]):
            pass
        case _:
            return None
    name = _attribute(path)
    if name is None or len(value) < 3 or value[0] != " " or value[-1] != " ":
        return None
    return _test(name, "~=", value[1:-1])
