"""What all selectors have in common: the interface of parsel, whatever engine answers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Self, SupportsIndex, cast, overload

from netspy.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from re import Pattern

Engine = Literal["turbohtml", "parsel"]


class Selector:
    """A node of a document, or a string or number that a selector has given; and what can be asked of it.

    `Selector(text=html)` parses; `type` is `"html"`, `"xml"` or `"json"` (by the look of the text when None),
    and `engine` is as the setting SELECTOR_ENGINE. XML and JSON are always answered by parsel, and so is HTML that
    nests more than 512 elements. Not to be used by two threads at a time. Raises ResponseError for a page that nests
    more than either engine's parser reads, or has more nodes than the default of MAX_TREE_NODES.
    """

    __slots__ = ()

    root: Any
    """The engine's own object: element, string, number, or the data of JSON."""
    type: str

    def __new__(
        cls,
        text: str | None = None,
        type: str | None = None,  # noqa: A002  parsel's name
        engine: Engine = "turbohtml",
        **_more: Any,
    ) -> Self:
        """An object of the engine's own class, when `Selector` itself is called."""
        if cls is not Selector:
            return super().__new__(cls)
        if not isinstance(text, str):
            raise TypeError(f"Selector(text=…) takes the text of a document, not {text!r:.60}")
        chosen: Any = class_for(text, type, engine)
        made: Any = object.__new__(chosen)
        if hasattr(chosen, "parse"):
            from netspy.messages.selectors.html import TooDeepError

            try:
                made.parse(text)
            except TooDeepError:
                made = object.__new__(class_for(text, "html", "parsel"))
        return cast("Self", made)

    def css(self, query: str) -> SelectorList:
        """The nodes that a CSS selector finds; `::text` and `::attr(name)` give strings.

        Raises cssselect's SelectorError for a selector that isn't one.
        """
        raise NotImplementedError

    def xpath(
        self, query: str, namespaces: Mapping[str, str] | None = None, **variables: Any
    ) -> SelectorList:
        """What an XPath 1.0 expression gives; `$name` in it takes its value from `variables`.

        Raises ValueError for an expression that isn't one.
        """
        raise NotImplementedError

    def jmespath(self, query: str, **options: Any) -> SelectorList:
        """What a JMESPath query finds in JSON: a JSON document, or the text of a node or string."""
        raise NotImplementedError

    def get(self) -> Any:
        """The markup of an element, or the string; numbers and booleans as parsel has them (`3.0`, `1`)."""
        raise NotImplementedError

    def re(self, regex: str | Pattern[str], replace_entities: bool = True) -> list[str]:
        """All matches: the group named `extract`, else all groups, else the whole match.

        Character references in a match are decoded (`&lt;` and `&amp;` excepted), but not in scripts and
        styles, where they mean nothing; `replace_entities=False` decodes none.
        """
        raise NotImplementedError

    def re_first(self, regex: str | Pattern[str], default: Any = None, replace_entities: bool = True) -> Any:
        """The first of what `re` gives, or `default`."""
        raise NotImplementedError

    @property
    def attrib(self) -> dict[str, str]:
        """The attributes of an element; empty for anything else."""
        raise NotImplementedError

    def drop(self) -> None:
        """Take the element out of its document. Selectors and lists made before may still show it."""
        raise NotImplementedError

    def remove_namespaces(self) -> None:
        """XML: strip namespaces off all names, so that plain selectors find them. Nothing to do in HTML."""
        raise NotImplementedError

    def register_namespace(self, prefix: str, uri: str) -> None:
        """Let XPath on this selector, and on what comes from it, use a prefix."""
        raise NotImplementedError

    def getall(self) -> list[Any]:
        """`get()`, in a list."""
        return [self.get()]

    def extract(self) -> Any:
        """The older name of `get`."""
        return self.get()

    def __bool__(self) -> bool:
        return bool(self.get())

    def __str__(self) -> str:
        return str(self.get())


class SelectorList(Sequence[Selector]):
    """Selectors in document order. Asking the list asks each of them and joins the answers."""

    __slots__ = ()

    @abstractmethod
    def css(self, query: str) -> SelectorList:
        """As Selector.css, of each."""

    @abstractmethod
    def xpath(
        self, query: str, namespaces: Mapping[str, str] | None = None, **variables: Any
    ) -> SelectorList:
        """As Selector.xpath, of each."""

    @abstractmethod
    def jmespath(self, query: str, **options: Any) -> SelectorList:
        """As Selector.jmespath, of each."""

    @abstractmethod
    def get(self, default: Any = None) -> Any:
        """What the first selector's `get` gives; `default` when the list is empty."""

    @abstractmethod
    def getall(self) -> list[Any]:
        """What each selector's `get` gives."""

    @abstractmethod
    def re(self, regex: str | Pattern[str], replace_entities: bool = True) -> list[str]:
        """As Selector.re, of each, in one flat list."""

    @abstractmethod
    def re_first(self, regex: str | Pattern[str], default: Any = None, replace_entities: bool = True) -> Any:
        """The first match in any of them, or `default`."""

    @property
    @abstractmethod
    def attrib(self) -> Mapping[str, str]:
        """The attributes of the first element; empty when the list is."""

    @abstractmethod
    def drop(self) -> None:
        """As Selector.drop, of each."""

    def extract(self) -> list[Any]:
        """The older name of `getall`."""
        return self.getall()

    def extract_first(self, default: Any = None) -> Any:
        """The older name of `get`."""
        return self.get(default)

    @overload
    def __getitem__(self, index: SupportsIndex) -> Selector: ...
    @overload
    def __getitem__(self, index: slice) -> SelectorList: ...
    @abstractmethod
    def __getitem__(self, index: SupportsIndex | slice) -> Selector | SelectorList:
        """One selector, or a list of several."""

    def __add__(self, other: Sequence[Selector]) -> list[Selector]:
        return [*self, *other]

    def __radd__(self, other: Sequence[Selector]) -> list[Selector]:
        return [*other, *self]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (list, SelectorList)):
            return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    @abstractmethod
    def __iter__(self) -> Iterator[Selector]:
        """The selectors, in order."""

    def __str__(self) -> str:
        return str(list(self))

    __repr__ = __str__


def class_for(text: str, kind: str | None, engine: str) -> type[Selector]:
    """The class that parses `text`. Raises ConfigError for an engine or a type that doesn't exist."""
    if engine not in ("turbohtml", "parsel"):
        raise ConfigError(f"SELECTOR_ENGINE={engine!r} doesn't exist; choose 'turbohtml' or 'parsel'")
    if kind not in (None, "html", "xml", "json", "text"):
        raise ConfigError(f"a selector of type {kind!r} doesn't exist; choose 'html', 'xml' or 'json'")
    if engine == "turbohtml" and (kind == "html" or (kind is None and looks_like(text) == "html")):
        from netspy.messages.selectors.html import HtmlSelector

        return HtmlSelector
    from netspy.messages.selectors.parsel_engine import ParselSelector

    return ParselSelector


def looks_like(text: str) -> str:
    """`json`, `xml` or `html`, by how a text begins; a text that only begins like JSON counts as HTML."""
    start = text[:256].lstrip("\ufeff \t\r\n\f")
    if start[:1] in ("{", "["):
        import json

        try:
            json.loads(text)
        except ValueError:
            return "html"
        return "json"
    return "xml" if start.startswith("<?xml") else "html"


def without_surrogates(text: str) -> str:
    """`text` with each lone surrogate, which no encoding can hold, replaced by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
