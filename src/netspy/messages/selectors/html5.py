"""XPath written for lxml's tree, made to mean the same on an HTML5 tree.

An HTML5 parser adds the `tbody` that authors leave out, and spells SVG names as SVG does. Spiders that were
written against lxml, or against the page source, don't know that: `//table/tr`, `//lineargradient` would find
nothing. So steps are sent through the implied `tbody` (a parser never puts `tr` right under `table`: no row
that exists is missed), and SVG names match in both spellings. `has-class()` becomes plain XPath.
"""

from __future__ import annotations

from netspy.messages.selectors.svg_names import ATTRIBUTES, ELEMENTS
from netspy.messages.selectors.xpath import (
    Binary,
    Call,
    Expr,
    Literal,
    Path,
    Step,
    Unary,
    XPathSyntaxError,
)

#: Elements whose content is no markup: character references mean nothing there (HTML, "raw text").
RAW_TEXT_ELEMENTS = frozenset({"script", "style", "xmp", "iframe", "noembed", "noframes", "plaintext"})

_ANY = "*"  # the context may be any element
_NONE = ""  # the context is no element that could be a table
_MOST_VARIANTS = 16


def for_html5(tree: Expr) -> Expr:
    """The expression to ask an HTML5 tree. Raises XPathSyntaxError for a `has-class()` without class."""
    return _rewrite(tree, _ANY)


def raw_text(tree: Expr) -> bool | None:
    """Whether the strings it gives are content of raw text elements; None when only the tree can tell."""
    if isinstance(tree, Binary) and tree.operator == "|":
        left, right = raw_text(tree.left), raw_text(tree.right)
        return left if left == right else None
    if not isinstance(tree, Path):
        return any(name in RAW_TEXT_ELEMENTS for name in _names(tree))
    if not tree.steps:
        return None if tree.start is None else raw_text(tree.start)
    last = tree.steps[-1]
    if last.axis == "attribute":
        return False
    if last.test not in ("text()", "node()"):
        return False  # elements: their own tag tells
    if last.axis != "child" or last.separator != "/" or len(tree.steps) == 1:
        return None
    parent = tree.steps[-2].name
    return None if parent is None else parent in RAW_TEXT_ELEMENTS


def _names(tree: Expr) -> list[str]:
    """The names of all node tests in an expression, those in predicates left out."""
    if isinstance(tree, Binary):
        return _names(tree.left) + _names(tree.right)
    if isinstance(tree, Unary):
        return _names(tree.operand)
    if isinstance(tree, Call):
        return [name for arg in tree.args for name in _names(arg)]
    if isinstance(tree, Path):
        inner = _names(tree.start) if tree.start is not None else []
        return inner + [step.test for step in tree.steps]
    return []


def _rewrite(tree: Expr, context: str) -> Expr:
    if isinstance(tree, Binary):
        return Binary(tree.operator, _rewrite(tree.left, context), _rewrite(tree.right, context))
    if isinstance(tree, Unary):
        return Unary(_rewrite(tree.operand, context))
    if isinstance(tree, Call):
        args = [_rewrite(arg, context) for arg in tree.args]
        return _has_class(args) if tree.name == "has-class" else Call(tree.name, args)
    return _path(tree, context) if isinstance(tree, Path) else tree


def _path(path: Path, context: str) -> Expr:
    start = None if path.start is None else _rewrite(path.start, context)
    predicates = [_rewrite(predicate, _ANY) for predicate in path.predicates]
    at = _NONE if path.absolute else context if path.start is None else _last_name(path.start)
    variants: list[list[Step]] = [[]]
    for step in path.steps:
        after = _context_after(step, at)
        moved = _respell(
            Step(step.separator, step.axis, step.test, [_rewrite(p, after) for p in step.predicates])
        )
        direct = step.separator != "//"
        if direct and moved.axis == "child" and moved.test == "tr" and at in ("table", _ANY):
            below = Step("/", "child", "tr", moved.predicates)
            if at == "table":
                through = [Step(moved.separator, "child", "tbody"), below]
                variants = [[*steps, *through] for steps in variants]
            elif len(variants) < _MOST_VARIANTS:
                through = [Step(moved.separator, "self", "table"), Step("/", "child", "tbody"), below]
                variants = [[*steps, *more] for steps in variants for more in ([moved], through)]
            else:
                variants = [[*steps, moved] for steps in variants]
        elif direct and moved.axis == "parent" and moved.test == "table" and at == "tr":
            up = [
                Step(moved.separator, "parent", "tbody"),
                Step("/", "parent", "table", moved.predicates),
            ]
            variants = [[*steps, *up] for steps in variants]
        else:
            variants = [[*steps, moved] for steps in variants]
        at = after
    paths: list[Expr] = [Path(steps, path.absolute, start, predicates) for steps in variants]
    union = paths[0]
    for other in paths[1:]:
        union = Binary("|", union, other)
    return union


def _last_name(start: Expr) -> str:
    return (start.steps[-1].name or _ANY) if isinstance(start, Path) and start.steps else _ANY


def _context_after(step: Step, before: str) -> str:
    """What is known of the nodes that a step leads to: an element name, anything, or nothing of interest."""
    if step.axis in ("attribute", "namespace"):
        return _NONE
    if step.axis == "self" and step.test in ("node()", "*") and step.separator != "//":
        return before
    if step.test in ("*", "node()"):
        return _ANY
    return step.name or _NONE


def _respell(step: Step) -> Step:
    """A step that asks for an SVG name in lower case (lxml's spelling) takes SVG's spelling as well."""
    if step.axis == "attribute":
        proper = ATTRIBUTES.get(step.test)
        if proper is None:
            return step
        either: list[Expr] = [Binary("=", Call("name", []), Literal(name)) for name in (proper, step.test)]
    else:
        proper = ELEMENTS.get(step.test)
        if proper is None:
            return step
        either = [Path([Step("", "self", name)]) for name in (proper, step.test)]
    return Step(step.separator, step.axis, "*", [Binary("or", *either), *step.predicates])


def _has_class(classes: list[Expr]) -> Expr:
    """The `has-class('a', 'b')`: the class attribute of parsel: the class attribute has all, case counts."""
    if not classes:
        raise XPathSyntaxError("has-class() needs at least one class name")
    space = Literal(" ")
    value = Call("translate", [Path([Step("", "attribute", "class")]), Literal("\f"), space])
    padded = Call("concat", [space, Call("normalize-space", [value]), space])
    tests: list[Expr] = [
        Call(
            "contains",
            [
                padded,
                Literal(f" {c.value} ") if isinstance(c, Literal) else Call("concat", [space, c, space]),
            ],
        )
        for c in classes
    ]
    test = tests[0]
    for other in tests[1:]:
        test = Binary("and", test, other)
    return test
