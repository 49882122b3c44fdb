"""XPath with the axes that look sideways or back, evaluated in time that grows with the page and not with its square.

turbohtml gathers `preceding-sibling::*` and the like anew for each node, and sorts what it has gathered: a table of
2,000 rows takes seconds, in which no other thread runs. Here a step is taken for all nodes at once, in numbers: a node
is its place in document order, and what precedes it, or stands beside it, is a slice of a sorted list. What doesn't
look sideways (tests of attributes, functions of strings) is still asked of turbohtml, for one node at a time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from math import isnan
from operator import eq, ge, gt, le, lt, ne
from typing import TYPE_CHECKING, Any

import turbohtml

from netspy.messages.selectors.xpath import Atom, Binary, Call, Expr, Literal, Path, Step, Unary, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

_SIDEWAYS = frozenset({"following", "following-sibling", "preceding", "preceding-sibling"})
_UPWARDS = frozenset({"ancestor", "ancestor-or-self", "preceding", "preceding-sibling"})
_DOWNWARDS = frozenset({"child", "descendant", "descendant-or-self"})
_KNOWN = _SIDEWAYS | _UPWARDS | {"child", "descendant", "descendant-or-self", "parent", "self"}
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": eq,
    "!=": ne,
    "<": lt,
    "<=": le,
    ">": gt,
    ">=": ge,
}
_ARITHMETIC = frozenset({"+", "-", "*", "div", "mod"})
_NUMBERS = frozenset(
    {"ceiling", "count", "floor", "last", "number", "position", "round", "string-length", "sum"}
)
_ITSELF = Path([Step("", "self", "node()")])


class UnsupportedError(Exception):
    """The expression, or the node it is asked of, is left to turbohtml."""


class Text(str):
    """A text node's data that knows its element, as turbohtml's own strings do."""

    __slots__ = ("parent",)
    is_attribute = False
    parent: Any

    def getparent(self) -> Any:
        """The element that the text is in."""
        return self.parent


class Index:
    """The nodes of a document by their place in it. Made once for a tree; void when the tree changes."""

    def __init__(self, document: Any) -> None:
        self.document = document
        below = (node for node in document.descendants if not isinstance(node, turbohtml.Doctype))
        self.nodes: list[Any] = [document, *below]
        self.at: dict[Any, int] = {node: place for place, node in enumerate(self.nodes)}
        self.parent: list[int] = [-1, *[self.at[node.parent] for node in self.nodes[1:]]]
        self.end: list[int] = list(range(1, len(self.nodes) + 1))
        for place in range(len(self.nodes) - 1, 0, -1):
            above = self.parent[place]
            self.end[above] = max(self.end[above], self.end[place])
        self._tested: dict[str, list[int]] = {}
        self._children: dict[str, dict[int, list[int]]] = {}

    def tested(self, test: str) -> list[int]:
        """All nodes that a node test takes."""
        found = self._tested.get(test)
        if found is None:
            found = self._tested[test] = self._test(test)
        return found

    def _test(self, test: str) -> list[int]:
        if test == "node()":
            return list(range(len(self.nodes)))
        if test == "text()":
            kinds = (turbohtml.Text, turbohtml.CData)
            return [place for place, node in enumerate(self.nodes) if isinstance(node, kinds)]
        if test.endswith(")") or ":" in test:
            raise UnsupportedError
        found: Any = turbohtml.XPath(f"//{test}")(self.document)
        return [self.at[node] for node in found]

    def children(self, test: str, parent: int) -> list[int]:
        """The children of a node that a node test takes."""
        families = self._children.get(test)
        if families is None:
            families = self._children[test] = {}
            for place in self.tested(test):
                families.setdefault(self.parent[place], []).append(place)
        return families.get(parent, [])

    def ancestors(self, place: int) -> Iterator[int]:
        """From the parent up to the document."""
        place = self.parent[place]
        while place >= 0:
            yield place
            place = self.parent[place]


@dataclass(frozen=True, slots=True)
class _Span:
    """Nodes along an axis, nearest first: a slice of a list in document order, without the `skipped`."""

    places: list[int]
    low: int
    high: int
    back: bool = False
    skipped: frozenset[int] = frozenset()

    def __iter__(self) -> Iterator[int]:
        order = range(self.high - 1, self.low - 1, -1) if self.back else range(self.low, self.high)
        return (place for at in order if (place := self.places[at]) not in self.skipped)

    def __len__(self) -> int:
        lost = sum(1 for place in self.skipped if _holds(self.places, place, self.low, self.high))
        return max(self.high - self.low, 0) - lost

    def pick(self, number: int) -> Iterable[int]:
        """The node of that number, from 1, if there is one."""
        if not self.skipped:
            at = self.high - number if self.back else self.low + number - 1
            return [self.places[at]] if number > 0 and self.low <= at < self.high else []
        return [place for count, place in zip(range(1, number + 1), self, strict=False) if count == number]


def _holds(places: list[int], place: int, low: int, high: int) -> bool:
    at = bisect_left(places, place)
    return low <= at < high and places[at] == place


def looks_sideways(tree: Expr) -> bool:
    """Whether an expression has one of the axes that turbohtml is slow with."""
    return _has_path(tree, lambda steps: any(step.axis in _SIDEWAYS for step in steps))


def goes_round(tree: Expr) -> bool:
    """Whether a path in it leads up and down again, as `../li` does: for each node all of its siblings are gathered."""
    return _has_path(tree, _leads_up_and_down)


def _leads_up_and_down(steps: list[Step]) -> bool:
    up = next((at for at, step in enumerate(steps) if step.axis == "parent" or step.axis in _UPWARDS), None)
    return up is not None and any(
        step.axis in _DOWNWARDS or step.separator == "//" for step in steps[up + 1 :]
    )


def _looks_round(tree: Expr) -> bool:
    return looks_sideways(tree) or goes_round(tree)


def _has_path(tree: Expr, wanted: Callable[[list[Step]], bool]) -> bool:
    match tree:
        case Binary(_, left, right):
            return _has_path(left, wanted) or _has_path(right, wanted)
        case Unary(operand):
            return _has_path(operand, wanted)
        case Call(_, args):
            return any(_has_path(arg, wanted) for arg in args)
        case Path(steps, _, start, predicates):
            return (
                wanted(steps)
                or any(_has_path(each, wanted) for step in steps for each in step.predicates)
                or any(_has_path(each, wanted) for each in predicates)
                or (start is not None and _has_path(start, wanted))
            )
    return False


def worth_it(tree: Expr) -> bool:
    """Whether an expression is better evaluated here than by turbohtml, which is quick with `following::x[1]`."""
    match tree:
        case Path([Step(_, axis, _, [Atom(source)]), *others], False, None) if axis in _SIDEWAYS:
            return not source.isdecimal() or looks_sideways(Path(others))
    return looks_sideways(tree)


def evaluate(tree: Expr, node: Any, index: Index, variables: Mapping[str, Any]) -> list[Any]:
    """What an expression gives from a node, as turbohtml would. Raises UnsupportedError, and ValueError."""
    place = index.at.get(node)
    if place is None:
        raise UnsupportedError
    return _Evaluation(index, variables).values(tree, place)


_Test = tuple[int, int, int]
"""A node, its position among the candidates, and their number."""


def _narrowed_to(path: Path, test: Callable[[Path], Expr]) -> Path | None:
    """The path whose last nodes pass a test of themselves, or of the attribute that the path ends with, as `a[@b = "x"]`.

    None for an attribute that is not a node's of this path (`@b`, `a//@b`).
    """
    *steps, last = path.steps
    what = _ITSELF
    if last.axis == "attribute":
        if not steps or last.separator == "//":
            return None
        what = Path([Step("", "attribute", last.test, last.predicates)])
        *steps, last = steps
    steps.append(Step(last.separator, last.axis, last.test, [*last.predicates, test(what)]))
    return Path(steps, path.absolute, path.start, path.predicates)


class _Evaluation:
    """One expression at one node; what its predicates found out is kept while it lasts."""

    def __init__(self, index: Index, variables: Mapping[str, Any]) -> None:
        self._index = index
        self._variables = variables
        self._filtered: dict[tuple[int, int], list[int]] = {}
        self._compiled: dict[int, Callable[[_Test], Any]] = {}
        self._tests: dict[int, Callable[[_Test], bool]] = {}
        self._known: dict[tuple[int, int], bool] = {}
        self._splits: dict[int, tuple[list[Expr], list[Expr]]] = {}
        self._joined: dict[int, Step] = {}
        self._kept: list[Expr] = []  # what ids are taken of

    # -- values

    def values(self, tree: Expr, place: int) -> list[Any]:
        """The answer as values; nodes in document order."""
        if (isinstance(tree, Binary) and tree.operator == "|") or isinstance(tree, Path):
            return [value for _, value in self._keyed(tree, place)]
        found = (self._function(tree) if looks_sideways(tree) else self._native(tree, whole=True))(
            (place, 1, 1)
        )
        return found if isinstance(found, list) else [found]

    def _keyed(self, tree: Expr, place: int) -> list[tuple[tuple[int, int], Any]]:
        """Values with where they stand: that of an attribute stands right behind its element."""
        if isinstance(tree, Binary) and tree.operator == "|":
            merged = dict(self._keyed(tree.left, place))
            merged.update(self._keyed(tree.right, place))
            return sorted(merged.items(), key=lambda item: item[0])
        if not isinstance(tree, Path):
            raise UnsupportedError
        steps = tree.steps
        if not steps or steps[-1].axis != "attribute":
            return [((found, 0), _dressed(self._index.nodes[found])) for found in self.nodes(tree, [place])]
        owners = self.nodes(Path(steps[:-1], tree.absolute, tree.start, tree.predicates), [place])
        last = steps[-1]
        if last.separator == "//":
            raise UnsupportedError
        ask = self._native(Path([Step("", "attribute", last.test, last.predicates)]))
        return [
            ((owner, number), value)
            for owner in owners
            if isinstance(self._index.nodes[owner], turbohtml.Element)
            for number, value in enumerate(ask((owner, 1, 1)), 1)
        ]

    # -- paths

    def nodes(self, path: Path, contexts: list[int]) -> list[int]:
        """The nodes a path leads to from any of `contexts`, in document order."""
        if path.start is not None:
            [place] = contexts
            contexts = self._narrowed(self._start(path.start, place), path.predicates)
            contexts = sorted(contexts)
        elif path.absolute:
            contexts = [0]
        for step in path.steps:
            if step.separator == "//":
                if step.axis == "child" and not any(self._positional(each) for each in step.predicates):
                    contexts = self._step(contexts, self._fused(step))
                    continue
                contexts = self._step(contexts, _EVERY)
            contexts = self._step(contexts, step)
        return contexts

    def _fused(self, step: Step) -> Step:
        """`//x` without positions, in one step."""
        found = self._joined.get(id(step))
        if found is None:
            self._kept.append(Path([step]))
            found = self._joined[id(step)] = Step("/", "descendant", step.test, step.predicates)
        return found

    def _start(self, start: Expr, place: int) -> list[int]:
        if isinstance(start, Path):
            return self.nodes(start, [place])
        if isinstance(start, Binary) and start.operator == "|":
            return sorted({*self._start(start.left, place), *self._start(start.right, place)})
        found = self._native(start)((place, 1, 1))
        if not isinstance(found, list) or not all(node in self._index.at for node in found):
            raise UnsupportedError
        return sorted(self._index.at[node] for node in found)

    def _step(self, contexts: list[int], step: Step) -> list[int]:
        if step.axis not in _KNOWN:
            raise UnsupportedError
        leading, rest = self._split(step)
        if rest:
            if step.axis == "child":
                contexts = [place for place in contexts if self._index.children(step.test, place)]
            return sorted({found for place in contexts for found in self._along(step, place)})
        found = self._together(contexts, step.axis, step.test)
        return [place for place in found if self._passes(place, leading)] if leading else found

    def _together(self, contexts: list[int], axis: str, test: str) -> list[int]:
        """The union of an axis of all contexts."""
        index = self._index
        if not contexts:
            return []
        tested = index.tested(test)
        if axis == "preceding":
            return sorted(self._span(tested, "preceding", contexts[-1]))
        if axis == "following":
            first = contexts[0]
            for place in contexts[1:]:
                if place >= index.end[first]:
                    break
                first = place
            return list(self._span(tested, "following", first))
        if axis in ("descendant", "descendant-or-self"):
            found, covered = [], 0
            for place in contexts:
                low = max(covered, place + (axis == "descendant"))
                covered = max(covered, index.end[place])
                found += tested[bisect_left(tested, low) : bisect_left(tested, index.end[place])]
            return found
        if axis in ("following-sibling", "preceding-sibling"):
            families: dict[int, int] = {}
            for place in contexts:
                if axis == "preceding-sibling" or index.parent[place] not in families:
                    families[index.parent[place]] = place
            return sorted(
                other
                for above, place in families.items()
                for other in self._span(index.children(test, above), axis, place)
            )
        reached: set[int] = set()
        if axis == "child":
            return sorted(other for place in contexts for other in index.children(test, place))
        if axis == "parent":
            reached = {index.parent[place] for place in contexts}
        elif axis == "self":
            reached = set(contexts)
        else:
            for place in contexts:
                for above in [place, *index.ancestors(place)][axis == "ancestor" :]:
                    if above in reached and above != place:
                        break
                    reached.add(above)
        return sorted(place for place in reached if place >= 0 and _holds(tested, place, 0, len(tested)))

    def _along(self, step: Step, place: int) -> Iterable[int]:
        """What one step finds from one node, nearest first."""
        _, rest = self._split(step)
        span = self._reach(step, place)
        number = _fixed_position(rest[0]) if rest else None
        if number is not None:
            return self._narrowed(span.pick(number), rest[1:])
        return self._narrowed(span, rest)

    def _reach(self, step: Step, place: int) -> _Span:
        """The nodes along a step's axis that pass the predicates before the first that asks for positions."""
        axis, index = step.axis, self._index
        leading, _ = self._split(step)
        if axis in ("following-sibling", "preceding-sibling", "child"):
            family = place if axis == "child" else index.parent[place]
            return self._span(self._sieved(step, family), axis, place)
        if axis in ("following", "preceding"):
            return self._span(self._sieved(step, -2), axis, place)
        if axis in ("descendant", "descendant-or-self"):
            tested = index.tested(step.test)
            low, high = place + (axis == "descendant"), index.end[place]
            near = tested[bisect_left(tested, low) : bisect_left(tested, high)]
        else:
            near = self._together([place], axis, step.test)
        near = [found for found in near if self._passes(found, leading)]
        return _Span(near, 0, len(near), back=axis in _UPWARDS)

    def _sieved(self, step: Step, family: int) -> list[int]:
        """The children of a node, or all nodes (-2), that pass a step's test and first predicates."""
        key = id(step), family
        found = self._filtered.get(key)
        if found is None:
            self._kept.append(Path([step]))
            index = self._index
            found = index.tested(step.test) if family == -2 else index.children(step.test, family)
            leading, _ = self._split(step)
            if leading:
                found = [place for place in found if self._passes(place, leading)]
            self._filtered[key] = found
        return found

    def _span(self, places: list[int], axis: str, place: int) -> _Span:
        if axis == "following":
            return _Span(places, bisect_left(places, self._index.end[place]), len(places))
        if axis == "following-sibling":
            return _Span(places, bisect_right(places, place), len(places))
        if axis == "child":
            return _Span(places, 0, len(places))
        skipped = frozenset(self._index.ancestors(place)) if axis == "preceding" else frozenset[int]()
        return _Span(places, 0, bisect_left(places, place), back=True, skipped=skipped)

    # -- predicates

    def _split(self, step: Step) -> tuple[list[Expr], list[Expr]]:
        """Predicates up to the first that asks for positions, and the others."""
        found = self._splits.get(id(step))
        if found is None:
            self._kept.append(Path([step]))
            positions = [at for at, each in enumerate(step.predicates) if self._positional(each)]
            cut = positions[0] if positions else len(step.predicates)
            found = self._splits[id(step)] = step.predicates[:cut], step.predicates[cut:]
        return found

    def _positional(self, tree: Expr) -> bool:
        match tree:
            case Atom(source):
                value = self._variables.get(source[1:]) if source[0] == "$" else 0
                return isinstance(value, (int, float)) and not isinstance(value, bool)
            case Call(name, _):
                return name in _NUMBERS or _asks_position(tree)
            case Unary():
                return True
            case Binary(operator, _, _):
                return operator in _ARITHMETIC or _asks_position(tree)
        return False

    def _passes(self, place: int, predicates: list[Expr]) -> bool:
        for predicate in predicates:
            key = id(predicate), place
            known = self._known.get(key)
            if known is None:
                known = self._known[key] = self._test_of(predicate)((place, 1, 1))
            if not known:
                return False
        return True

    def _narrowed(self, places: Iterable[int], predicates: list[Expr]) -> list[int]:
        """Those of the candidates, nearest first, that pass one predicate after the other."""
        left = list(places)
        for predicate in predicates:
            last = len(left)
            if not self._positional(predicate):
                passes = self._test_of(predicate)
                left = [place for at, place in enumerate(left, 1) if passes((place, at, last))]
                continue
            function, kept = self._function(predicate), []
            for position, place in enumerate(left, 1):
                value = function((place, position, last))
                number = isinstance(value, (int, float)) and not isinstance(value, bool)
                if value == position if number else _true(value):
                    kept.append(place)
            left = kept
        return left

    # -- expressions

    def _function(self, tree: Expr) -> Callable[[_Test], Any]:
        """What gives an expression's value at a node."""
        found = self._compiled.get(id(tree))
        if found is None:
            self._kept.append(tree)
            found = self._compiled[id(tree)] = self._compile(tree)
        return found

    def _compile(self, tree: Expr) -> Callable[[_Test], Any]:
        match tree:
            case Literal(value):
                return lambda _at: value
            case Atom(source) if source[0] != "$":
                number = float(source)
                return lambda _at: number
            case Call("position", []):
                return lambda at: float(at[1])
            case Call("last", []):
                return lambda at: float(at[2])
            case Call("not", [inner]):
                inside = self._truth(inner)
                return lambda at: not inside(at)
            case Call("boolean", [inner]):
                return self._truth(inner)
            case Call("count", [Path() as path]) if looks_sideways(path):
                return self._count(path)
            case Binary("and", left, right):
                first, second = self._truth(left), self._truth(right)
                return lambda at: first(at) and second(at)
            case Binary("or", left, right):
                first, second = self._truth(left), self._truth(right)
                return lambda at: first(at) or second(at)
            case Binary("|", left, right) if _looks_round(tree):
                return self._either(left, right)
            case Binary(operator, left, right) if operator in _COMPARISONS:
                return self._comparison(operator, left, right) or self._native(tree)
        return self._native(tree)

    def _either(self, left: Expr, right: Expr) -> Callable[[_Test], bool]:
        """Of a union of nodes in a condition: there is one in the one, or in the other."""
        first, second = self._truth(left), self._truth(right)
        return lambda at: first(at) or second(at)

    def _test_of(self, tree: Expr) -> Callable[[_Test], bool]:
        """What tells whether a predicate without positions holds."""
        found = self._tests.get(id(tree))
        if found is None:
            self._kept.append(tree)
            found = self._tests[id(tree)] = self._truth(tree)
        return found

    def _truth(self, tree: Expr) -> Callable[[_Test], bool]:
        if isinstance(tree, Path) and tree.steps and _looks_round(tree):
            path = tree if tree.steps[-1].axis != "attribute" else _narrowed_to(tree, lambda what: what)
            if path is not None:
                return lambda at: self._exists(path, at[0])
        function = self._function(tree)
        return lambda at: _true(function(at))

    def _comparison(self, operator: str, left: Expr, right: Expr) -> Callable[[_Test], bool] | None:
        if _is_number(left) and _is_number(right):
            compare, first, second = _COMPARISONS[operator], self._function(left), self._function(right)
            return lambda at: compare(first(at), second(at))
        for path, other, turned in ((left, right, False), (right, left, True)):
            if (
                isinstance(path, Binary)
                and path.operator == "|"
                and _is_constant(other)
                and _looks_round(path)
            ):
                parts = (
                    Binary(operator, *((other, one) if turned else (one, other)))
                    for one in (path.left, path.right)
                )
                return self._either(*parts)
            if operator == "=" and isinstance(path, Path) and path.steps:
                alike = self._alike(path, other)
                if alike is not None:
                    return alike
            if isinstance(path, Path) and path.steps and _looks_round(path) and _is_constant(other):
                # `path = "x"` is `path[. = "x"]`, and `path/@a = "x"` is `path[@a = "x"]`: found out once for each node.
                def test(what: Path, other: Expr = other, turned: bool = turned) -> Expr:
                    return Binary(operator, other, what) if turned else Binary(operator, what, other)

                narrowed = _narrowed_to(path, test)
                return None if narrowed is None else self._truth(narrowed)
        return None

    def _alike(self, path: Path, other: Expr) -> Callable[[_Test], bool] | None:
        """`other = path`, as in the idiom of taking each value once: `not(. = preceding::a)`."""
        step, *rest = path.steps
        plain = (
            path.start is None and not path.absolute and step.axis in _SIDEWAYS and not self._split(step)[1]
        )
        down = (
            Path([Step("", rest[0].axis, rest[0].test, rest[0].predicates), *rest[1:]]) if rest else _ITSELF
        )
        if not plain or not isinstance(other, Path) or looks_sideways(other) or looks_sideways(down):
            return None
        if rest and rest[0].separator == "//":
            return None
        theirs, mine, beside = self._native(down), self._native(other), step.axis.endswith("sibling")
        known: dict[int, dict[str, list[int]]] = {}

        def places_by_value(place: int) -> dict[str, list[int]]:
            family = self._index.parent[place] if beside else -2
            if family not in known:
                known[family] = {}
                for each in self._sieved(step, family):
                    for value in {_string(value) for value in theirs((each, 1, 1))}:
                        known[family].setdefault(value, []).append(each)
            return known[family]

        def holds(at: _Test) -> bool:
            there = places_by_value(at[0])
            return any(
                next(iter(self._span(there.get(_string(value), []), step.axis, at[0])), None) is not None
                for value in mine(at)
            )

        return holds

    def _exists(self, path: Path, place: int) -> bool:
        if path.start is not None or path.absolute:
            return bool(self.nodes(path, [place]))
        step, *others = path.steps
        if step.separator or step.axis not in _KNOWN:
            raise UnsupportedError
        if others:
            step = self._with_rest(path)
        if self._split(step)[1]:
            return any(True for _ in self._along(step, place))
        return next(iter(self._reach(step, place)), None) is not None

    def _with_rest(self, path: Path) -> Step:
        """The first step of `a/b/c`, as `a[b/c]`: there is one exactly when there is the other."""
        found = self._joined.get(id(path))
        if found is None:
            self._kept.append(path)
            first, second, *others = path.steps
            rest: list[Step] = [Step("", second.axis, second.test, second.predicates), *others]
            if second.separator == "//":
                rest = [Step("", "descendant-or-self", "node()"), *path.steps[1:]]
                rest[1] = Step("/", second.axis, second.test, second.predicates)
            found = Step("", first.axis, first.test, [*first.predicates, Call("boolean", [Path(rest)])])
            self._joined[id(path)] = found
        return found

    def _count(self, path: Path) -> Callable[[_Test], float]:
        def count(at: _Test) -> float:
            if len(path.steps) == 1 and path.start is None and not path.absolute:
                [step] = path.steps
                if step.axis in _SIDEWAYS and not self._split(step)[1]:
                    return float(len(self._reach(step, at[0])))
            return float(len(self.nodes(path, [at[0]])))

        return count

    def _native(self, tree: Expr, *, whole: bool = False) -> Callable[[_Test], Any]:
        """An expression for turbohtml, in which what looks sideways is a variable of ours; all paths if `whole`."""
        ours: dict[str, Callable[[_Test], Any]] = {}
        expression = turbohtml.XPath(write(self._outsourced(tree, ours, whole)), smart_strings=True)
        nodes, given = self._index.nodes, dict(self._variables)

        def ask(at: _Test) -> Any:
            if not ours and not given:
                return expression(nodes[at[0]])
            return expression(nodes[at[0]], **given, **{name: value(at) for name, value in ours.items()})

        return ask

    def _outsourced(self, tree: Expr, ours: dict[str, Callable[[_Test], Any]], whole: bool) -> Expr:
        match tree:
            case Call("position" | "last", []):
                return self._named(self._function(tree), ours)
            case Call("count", [Path() as path]) if whole or looks_sideways(path):
                return self._named(self._count(path), ours)
            case Call(name, args):
                return Call(name, [self._outsourced(arg, ours, whole) for arg in args])
            case Unary(operand):
                return Unary(self._outsourced(operand, ours, whole))
            case Binary("|", _, _) if looks_sideways(tree):
                raise UnsupportedError
            case Binary(operator, left, right):
                return Binary(
                    operator, self._outsourced(left, ours, whole), self._outsourced(right, ours, whole)
                )
            case Path(steps, _, _, _) if looks_sideways(tree) or (whole and steps):
                return self._path_as_variable(tree, ours, whole)
        return tree

    def _path_as_variable(self, path: Path, ours: dict[str, Callable[[_Test], Any]], whole: bool) -> Expr:
        """`$ours/rest`, where the rest looks nowhere but down or at attributes."""
        cut = len(path.steps)
        while cut and not looks_sideways(Path([path.steps[cut - 1]])):
            if whole and path.steps[cut - 1].axis != "attribute" and path.steps[cut - 1].test != "text()":
                break
            cut -= 1
        before = Path(path.steps[:cut], path.absolute, path.start, path.predicates)

        def found(at: _Test) -> list[Any]:
            nodes = [self._index.nodes[place] for place in self.nodes(before, [at[0]])]
            if not all(isinstance(node, turbohtml.Element) for node in nodes):
                raise UnsupportedError
            return nodes

        variable = self._named(found, ours)
        rest = path.steps[cut:]
        return Path(rest, start=variable) if rest else variable

    @staticmethod
    def _named(function: Callable[[_Test], Any], ours: dict[str, Callable[[_Test], Any]]) -> Atom:
        name = f"netspy{len(ours)}"
        ours[name] = function
        return Atom(f"${name}")


def texts(elements: list[Any], index: Index) -> list[Any]:
    """The text nodes right under elements that may lie in each other."""
    places = sorted(text for element in elements for text in index.children("text()", index.at[element]))
    return [_dressed(index.nodes[text]) for text in places]


def _dressed(node: Any) -> Any:
    if not isinstance(node, (turbohtml.Text, turbohtml.CData)):
        return node
    text = Text(node.data)
    text.parent = node.parent
    return text


_string_value = turbohtml.XPath("string(.)")
_EVERY = Step("/", "descendant-or-self", "node()")


def _asks_position(tree: Expr) -> bool:
    """Whether it asks for `position()` or `last()` of the node it is asked of: not in a predicate of its own."""
    match tree:
        case Call(name, args):
            return name in ("position", "last") or any(map(_asks_position, args))
        case Unary(operand):
            return _asks_position(operand)
        case Binary(_, left, right):
            return _asks_position(left) or _asks_position(right)
    return False


def _fixed_position(tree: Expr) -> int | None:
    """The 2 of `[2]` and `[position() = 2]`."""
    match tree:
        case Atom(source) | Binary("=", Call("position", []), Atom(source)) if source.isdecimal():
            return int(source)
    return None


def _is_number(tree: Expr) -> bool:
    match tree:
        case Atom(source):
            return source[0] != "$"
        case Call(name, _):
            return name in _NUMBERS
    return False


def _is_constant(tree: Expr) -> bool:
    return isinstance(tree, Literal) or (isinstance(tree, Atom) and tree.source[0] != "$")


def _string(value: Any) -> str:
    return str(value) if isinstance(value, str) else str(_string_value(value))


def _true(value: Any) -> bool:
    return bool(value) and not (isinstance(value, float) and isnan(value))
