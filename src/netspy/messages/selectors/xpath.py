"""XPath 1.0 as a tree: reading it, and writing it down again.

Only what `html5.py` and `native.py` need in order to look at an expression: the grammar of the recommendation
(XPath 1.0, sections 2 and 3), no evaluation. What this parser refuses is handed to the engine as it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

AXES = frozenset(
    {
        "ancestor",
        "ancestor-or-self",
        "attribute",
        "child",
        "descendant",
        "descendant-or-self",
        "following",
        "following-sibling",
        "namespace",
        "parent",
        "preceding",
        "preceding-sibling",
        "self",
    }
)
_NODE_TYPES = frozenset({"comment", "node", "processing-instruction", "text"})
_PRECEDENCE = {
    "or": 1,
    "and": 2,
    "=": 3,
    "!=": 3,
    "<": 4,
    "<=": 4,
    ">": 4,
    ">=": 4,
    "+": 5,
    "-": 5,
    "*": 6,
    "div": 6,
    "mod": 6,
    "|": 8,
}
_UNARY = 7

_NAME = r"[^\W\d][\w.\-]*"
_tokens = re.compile(
    rf"""\s*(?:
      (?P<literal>"[^"]*"|'[^']*')
    | (?P<number>\d+(?:\.\d*)?|\.\d+)
    | (?P<variable>\${_NAME}(?::{_NAME})?)
    | (?P<symbol>::|//|\.\.|!=|<=|>=|[/|.@\[\](),=<>+*\-])
    | (?P<name>{_NAME}(?::(?!:)(?:{_NAME}|\*))?)
    )\s*""",
    re.VERBOSE,
)


class XPathSyntaxError(ValueError):
    """The expression is not XPath 1.0, or not as this parser knows it."""


@dataclass(slots=True)
class Literal:
    """A string."""

    value: str


@dataclass(slots=True)
class Atom:
    """A number or a variable reference, as written."""

    source: str


@dataclass(slots=True)
class Call:
    """A function call."""

    name: str
    args: list[Expr]


@dataclass(slots=True)
class Unary:
    """A negation."""

    operand: Expr


@dataclass(slots=True)
class Binary:
    """An operator between two expressions; `|` is one of them."""

    operator: str
    left: Expr
    right: Expr


@dataclass(slots=True)
class Step:
    """One location step. `separator` is what stands before it: "", "/" or "//".

    `test` is a name, `*`, or a node type with its brackets (`text()`).
    """

    separator: str
    axis: str
    test: str
    predicates: list[Expr] = field(default_factory=list)

    @property
    def name(self) -> str | None:
        """The element or attribute name it asks for; None when it takes any."""
        return None if self.test.endswith((")", "*")) else self.test


@dataclass(slots=True)
class Path:
    """A location path; one that starts from an expression (`id('a')/b`) keeps it in `start`.

    `absolute` is true when it begins at the document: the first step's separator is then "/" or "//".
    """

    steps: list[Step]
    absolute: bool = False
    start: Expr | None = None
    predicates: list[Expr] = field(default_factory=list)  # those of `start`


Expr: TypeAlias = Literal | Atom | Call | Unary | Binary | Path


class _Token(NamedTuple):
    kind: str
    text: str


def parse(expression: str) -> Expr:
    """The tree of an XPath expression. Raises XPathSyntaxError."""
    tokens: list[_Token] = []
    at = 0
    while at < len(expression):
        found = _tokens.match(expression, at)
        if found is None or found.lastgroup is None:
            raise XPathSyntaxError(f"unexpected {expression[at : at + 20]!r}")
        tokens.append(_Token(found.lastgroup, found[found.lastgroup]))
        at = found.end()
    parser = _Parser(tokens)
    tree = parser.expression(0)
    if parser.here.kind != "end":
        raise XPathSyntaxError(f"unexpected {parser.here.text!r}")
    return tree


class _Parser:
    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = [*tokens, _Token("end", ""), _Token("end", "")]
        self._at = 0

    @property
    def here(self) -> _Token:
        return self._tokens[self._at]

    def _next_is(self, text: str) -> bool:
        after = self._tokens[self._at + 1]
        return after.kind == "symbol" and after.text == text

    def _take(self, text: str) -> bool:
        if self.here.kind == "symbol" and self.here.text == text:
            self._at += 1
            return True
        return False

    def _need(self, text: str) -> None:
        if not self._take(text):
            raise XPathSyntaxError(f"{text!r} expected before {self.here.text or 'the end'!r}")

    def expression(self, floor: int) -> Expr:
        """An expression whose operators bind tighter than `floor` (precedence climbing)."""
        left: Expr = Unary(self.expression(_UNARY)) if self._take("-") else self._path()
        # After an operand, `*` and the four names are operators (XPath 1.0, section 3.7).
        while self.here.kind in ("symbol", "name"):
            operator = self.here.text
            binds = _PRECEDENCE.get(operator, 0)
            if binds <= floor:
                break
            self._at += 1
            left = Binary(operator, left, self.expression(binds))
        return left

    def _path(self) -> Expr:
        primary = self._primary()
        if primary is None:
            return self._location()
        predicates = self._predicates()
        steps = self._steps() if self.here.text in ("/", "//") and self.here.kind == "symbol" else []
        return Path(steps, start=primary, predicates=predicates) if predicates or steps else primary

    def _primary(self) -> Expr | None:
        kind, text = self.here
        if kind == "literal":
            self._at += 1
            return Literal(text[1:-1])
        if kind in ("number", "variable"):
            self._at += 1
            return Atom(text)
        if kind == "name" and self._next_is("(") and text not in _NODE_TYPES:
            self._at += 2
            return Call(text, self._arguments())
        if self._take("("):
            inner = self.expression(0)
            self._need(")")
            return inner
        return None

    def _arguments(self) -> list[Expr]:
        if self._take(")"):
            return []
        args = [self.expression(0)]
        while self._take(","):
            args.append(self.expression(0))
        self._need(")")
        return args

    def _predicates(self) -> list[Expr]:
        found = []
        while self._take("["):
            found.append(self.expression(0))
            self._need("]")
        return found

    def _location(self) -> Path:
        if self.here.kind == "symbol" and self.here.text in ("/", "//"):
            after = self._tokens[self._at + 1]
            bare = after.kind != "name" and after.text not in ("*", "@", ".", "..")
            if self.here.text == "/" and bare:
                self._at += 1
                return Path([], absolute=True)
            return Path(self._steps(), absolute=True)
        return Path([self._step(""), *self._steps()])

    def _steps(self) -> list[Step]:
        steps = []
        while self.here.kind == "symbol" and self.here.text in ("/", "//"):
            separator = self.here.text
            self._at += 1
            steps.append(self._step(separator))
        return steps

    def _step(self, separator: str) -> Step:
        if self._take("."):
            return Step(separator, "self", "node()")
        if self._take(".."):
            return Step(separator, "parent", "node()")
        axis = "child"
        if self._take("@"):
            axis = "attribute"
        elif self.here.kind == "name" and self._next_is("::"):
            axis = self.here.text
            if axis not in AXES:
                raise XPathSyntaxError(f"{axis!r} is no axis")
            self._at += 2
        return Step(separator, axis, self._node_test(), self._predicates())

    def _node_test(self) -> str:
        kind, text = self.here
        if self._take("*"):
            return "*"
        if kind != "name":
            raise XPathSyntaxError(f"a node test expected before {text or 'the end'!r}")
        self._at += 1
        if text in _NODE_TYPES and self._take("("):
            target = f'"{self.here.text[1:-1]}"' if self.here.kind == "literal" else ""
            self._at += bool(target)
            self._need(")")
            return f"{text}({target})"
        return text


def write(tree: Expr, floor: int = 0) -> str:
    """The expression of a tree; in brackets where its outermost operator binds no tighter than `floor`."""
    match tree:
        case Literal(value):
            return quoted(value)
        case Atom(source):
            return source
        case Call(name, args):
            return f"{name}({', '.join([write(arg) for arg in args])})"
        case Unary(operand):
            text = f"-{write(operand, _UNARY - 1)}"
            return f"({text})" if floor >= _UNARY else text
        case Binary(operator, left, right):
            binds = _PRECEDENCE[operator]
            text = f"{write(left, binds - 1)} {operator} {write(right, binds)}"
            return f"({text})" if floor >= binds else text
        case Path(steps, absolute, start, predicates):
            head = "" if start is None else f"({write(start)})" + _write_predicates(predicates)
            if absolute and not steps:
                return "/"
            return head + "".join([_step(step) for step in steps])


def _step(step: Step) -> str:
    if step.test == "node()" and not step.predicates and step.axis in ("self", "parent"):
        return f"{step.separator}{'.' if step.axis == 'self' else '..'}"
    axis = {"child": "", "attribute": "@"}.get(step.axis, f"{step.axis}::")
    return f"{step.separator}{axis}{step.test}{_write_predicates(step.predicates)}"


def _write_predicates(predicates: list[Expr]) -> str:
    return "".join([f"[{write(predicate)}]" for predicate in predicates])


def quoted(value: str) -> str:
    """`value` as an XPath string; a value with both kinds of quotes becomes a concat()."""
    if '"' not in value:
        return f'"{value}"'
    if "'" not in value:
        return f"'{value}'"
    parts = ", '\"', ".join(f'"{part}"' for part in value.split('"'))
    return f"concat({parts})"
