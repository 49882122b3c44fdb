"""A response: what came back for a request, and everything that can be read from it.

Making one is cheap; decoding, parsing and header lookup happen when they are first asked for, and once. A
response is used by one thread at a time.
"""

from __future__ import annotations

import base64
import binascii
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from netspy.errors import InvalidUrlError, MissingExtraError, NotJsonError, RequestError, ResponseError
from netspy.messages import charset, urls
from netspy.messages.charset_labels import FALLBACK, python_codec
from netspy.messages.headers import Given, Headers
from netspy.messages.links import Link, Patterns, find_links, href_of
from netspy.messages.request import Request
from netspy.messages.selectors.size import MAX_NODES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from re import Pattern

    from netspy.messages.selectors import Engine, Selector, SelectorList

_has_base = re.compile(r"<(?:\w+:)?base\b", re.IGNORECASE).search
_BASE = "//base[@href][not(ancestor::svg or ancestor::math or ancestor::template)]/@href"
_XML_BASE = "//*[local-name()='base' and namespace-uri()='http://www.w3.org/1999/xhtml']/@href"


class Response:
    """The answer to one request: status, headers, body, and what is in it.

    `url` is where the body came from, after redirects; `history` holds the responses on the way there. `elapsed` is
    in seconds. `engine` names what answers `css` and `xpath` (SELECTOR_ENGINE), `max_tree_nodes` the largest tree
    (MAX_TREE_NODES); the runtime sets both.
    """

    __slots__ = (
        "__dict__",  # attributes of the user's own; made when the first is set
        "_base_url",
        "_cookies",
        "_encoding",
        "_headers",
        "_kind",
        "_selector",
        "_text",
        "_user_encoding",
        "content",
        "elapsed",
        "engine",
        "history",
        "max_tree_nodes",
        "request",
        "status_code",
        "url",
    )

    def __init__(
        self,
        *,
        url: str,
        status_code: int,
        content: bytes = b"",
        headers: Given = None,
        cookies: Mapping[str, str] | None = None,
        request: Request | None = None,
        encoding: str | None = None,
        elapsed: float | timedelta | None = None,
        history: list[Any] | None = None,
    ) -> None:
        """`encoding` wins over everything the response says of itself, and so does the request's; the rest
        is as described for the attributes of the same name.
        """
        self.url = url
        self.status_code = status_code
        self.content = content
        self.request = request
        self.elapsed = elapsed.total_seconds() if isinstance(elapsed, timedelta) else elapsed
        self.history = [] if history is None else history
        self.engine: Engine = "turbohtml"
        self.max_tree_nodes = MAX_NODES
        self._headers: Any = headers
        self._cookies: Any = cookies
        self._user_encoding = encoding
        self._encoding: str | None = None
        self._text: str | None = None
        self._kind: charset.Kind | None = None
        self._selector: Selector | None = None
        self._base_url: str | None = None

    # -- status, headers

    @property
    def status(self) -> int:
        """`status_code`, under the name that Scrapy uses."""
        return self.status_code

    @property
    def ok(self) -> bool:
        """Whether the status is below 400."""
        return self.status_code < 400

    @property
    def body(self) -> bytes:
        """`content`, under the name that Scrapy uses."""
        return self.content

    @property
    def headers(self) -> Headers:
        """The header fields; `headers["content-type"]`, `headers.get_all("set-cookie")`, in any case."""
        headers = self._headers
        if type(headers) is not Headers:
            headers = self._headers = Headers(headers)
        return headers

    @headers.setter
    def headers(self, value: Given) -> None:
        self._headers = value
        self._cookies = None
        self._forget()

    @property
    def cookies(self) -> dict[str, str]:
        """The cookies that this response sets, by name."""
        if type(self._cookies) is not dict:
            if self._cookies is None:
                self._cookies = dict(
                    _cookie(line) for line in self.headers.get_all("set-cookie") if "=" in line
                )
            else:
                self._cookies = dict(self._cookies)
        cookies: dict[str, str] = self._cookies
        return cookies

    # -- text

    @property
    def encoding(self) -> str:
        """The encoding of the body: what the user set, else what `netspy.messages.charset` finds.

        Setting it decodes and parses anew; a name that is none raises ResponseError.
        """
        if self._encoding is None:
            self._read()
        return self._encoding or FALLBACK

    @encoding.setter
    def encoding(self, name: str | None) -> None:
        if name is not None:
            charset.required(name)
        self._user_encoding = name
        self._forget()

    @property
    def text(self) -> str:
        """The body as text; bytes that are none in its encoding become U+FFFD."""
        if self._text is None:
            self._read()
        return self._text or ""

    def _read(self) -> None:
        self._encoding, self._text = charset.read(
            self.content, self.headers.get("content-type"), override=self._override()
        )

    def _override(self) -> str | None:
        if self._user_encoding is None and self.request is not None:
            return self.request.encoding
        return self._user_encoding

    def _forget(self) -> None:
        self._encoding = self._text = self._kind = self._selector = self._base_url = None

    @property
    def kind(self) -> charset.Kind:
        """What the body is read as: `html`, `xml` or `json`, by its Content-Type.

        A body that is called JSON but doesn't begin like it (an error page, say) is read as HTML; one
        without a usable Content-Type is XML when it begins with an XML declaration.
        """
        if self._kind is None:
            self._kind = charset.body_kind(self.headers.get("content-type"), self.text)
        return self._kind

    def json(self, **options: Any) -> Any:
        """The body as JSON: UTF-8 (RFC 8259) with or without a byte order mark, else in the response's encoding.

        `options` are those of `json.loads`. Raises NotJsonError, a ResponseError and a ValueError, when it isn't JSON.
        """
        import msgspec

        override = self._override()
        if override is None and not options:
            try:
                return msgspec.json.decode(self.content)
            except (msgspec.DecodeError, UnicodeDecodeError):
                pass  # a byte order mark, another encoding, NaN: what follows takes them
        import json

        content_type = self.headers.get("content-type")
        _, text = charset.read(self.content, content_type, override=override, kind="json")
        try:
            return json.loads(text, **options)
        except ValueError as error:
            raise NotJsonError(
                f"{self.url} is not JSON ({error}); the body begins with {self.content[:80]!r}"
            ) from None

    # -- selectors

    @property
    def selector(self) -> Selector:
        """The selector of the whole document, parsed once. Raises ResponseError for a tree that is too large."""
        if self._selector is None:
            from netspy.messages.selectors import parsed

            self._selector = parsed(self.text, self.engine, self.kind, self.max_tree_nodes)
        return self._selector

    def css(self, query: str) -> SelectorList:
        """As Selector.css, on the whole document. Raises ResponseError for JSON."""
        return self._markup().css(query)

    def xpath(
        self, query: str, namespaces: Mapping[str, str] | None = None, **variables: Any
    ) -> SelectorList:
        """As Selector.xpath, on the whole document. Raises ResponseError for JSON."""
        return self._markup().xpath(query, namespaces, **variables)

    def _markup(self) -> Selector:
        selector = self.selector if self._selector is None else self._selector
        if selector.type == "json":
            raise ResponseError(
                f"{self.url} is JSON: css() and xpath() have no tree there; use json() or jmespath()"
            )
        return selector

    def jmespath(self, query: str, **options: Any) -> SelectorList:
        """What a JMESPath query finds in the body as JSON. Raises ResponseError when it isn't JSON."""
        from netspy.messages.selectors.parsel_engine import joined, json_selector

        return joined(json_selector(self.json()).jmespath(query, **options))

    def re(self, regex: str | Pattern[str], replace_entities: bool = True) -> list[str]:
        """All matches in the text, by the rules of Selector.re."""
        from netspy.messages.selectors import regex as regexes

        return regexes.find_all(regex, self.text, decode=self._decodes(replace_entities), markup=True)

    def re_first(self, regex: str | Pattern[str], default: Any = None, replace_entities: bool = True) -> Any:
        """The first of what `re` gives, or `default`."""
        from netspy.messages.selectors import regex as regexes

        found = regexes.find_first(regex, self.text, decode=self._decodes(replace_entities), markup=True)
        return default if found is None else found

    def _decodes(self, replace_entities: bool) -> bool:
        return replace_entities and self.kind != "json"

    @property
    def bs4(self) -> Any:
        """The document as BeautifulSoup, parsed anew at every call. Raises MissingExtraError without bs4."""
        try:
            from bs4 import BeautifulSoup  # type: ignore[import-not-found,import-untyped,unused-ignore]
        except ImportError:
            raise MissingExtraError("response.bs4", "bs4") from None
        if self.kind != "xml":
            return BeautifulSoup(self.text, "lxml")
        from netspy.messages.xml_text import with_good_references

        return BeautifulSoup(with_good_references(self.text), "lxml-xml")

    # -- links

    @property
    def base_url(self) -> str:
        """What the page's links are relative to: the first `<base href>` of an HTML page, else `url`.

        As in browsers: a base that is no URL, or a data: or javascript: one, counts as none, and so do those behind it.
        """
        if self._base_url is None:
            self._base_url = self._find_base()
        return self._base_url

    def _find_base(self) -> str:
        if self.kind == "json" or not _has_base(self.text):
            return self.url
        href = self.xpath(_BASE if self.kind == "html" else _XML_BASE).get()
        if href is None:
            return self.url
        try:
            base = urls.join(self.url, href)
        except InvalidUrlError:
            return self.url
        return self.url if base.startswith(("data:", "javascript:")) else base

    @property
    def link_encoding(self) -> str:
        """The Python codec in which the queries of the page's links are sent (WHATWG URL, 4.4)."""
        return python_codec(self.encoding)

    def urljoin(self, url: str) -> str:
        """The absolute URL of a link on this page. Raises InvalidUrlError when it doesn't make one."""
        return urls.join(self.base_url, url, encoding=self.link_encoding)

    def follow(self, target: Any, callback: Any = None, **kw: Any) -> Request:
        """The request for a link: a URL, a Link, or the selector of a link element or attribute.

        A link that doesn't make a URL gives a request all the same, which is refused when it is yielded: so one bad
        link never ends a callback. Other keywords are those of Request. Raises RequestError when `target` is no link.
        """
        href = href_of(target)
        if href is None:
            raise RequestError(f"follow: this link element has no href: {target.get()!r:.80}")
        return Request(self._resolve_link(href), callback=callback, **kw)

    def _resolve_link(self, href: str) -> str:
        try:
            return self.urljoin(href)
        except InvalidUrlError:
            return href.strip()

    def follow_all(
        self,
        targets: Iterable[Any] | None = None,
        *,
        css: str | None = None,
        xpath: str | None = None,
        callback: Any = None,
        **kw: Any,
    ) -> Iterator[Request]:
        """A request for each link of `targets`, or of what `css` or `xpath` finds; elements without href
        are passed over. Raises RequestError as `follow` does.
        """
        if targets is None:
            if (css is None) == (xpath is None):
                raise ResponseError("follow_all() takes links, or css=…, or xpath=…: one of the three")
            targets = self.css(css) if css is not None else self.xpath(xpath or "")
        for target in targets:
            href = href_of(target)
            if href is not None:
                yield Request(self._resolve_link(href), callback=callback, **kw)

    def links(
        self,
        allow: Patterns = None,
        deny: Patterns = None,
        *,
        same_host: bool = False,
        css: str | None = None,
    ) -> list[Link]:
        """The fetchable links of the page, each once; see `netspy.messages.links.find_links`."""
        return find_links(self, allow=allow, deny=deny, same_host=same_host, css=css)

    # -- other forms

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; the body as base64 under `content_b64`, the request left out."""
        return {
            "url": self.url,
            "status_code": self.status_code,
            "headers": [list(pair) for pair in self.headers.multi_items()],
            "cookies": dict(self.cookies),
            "encoding": self._user_encoding,
            "elapsed": self.elapsed,
            "history": [one.to_dict() if isinstance(one, Response) else one for one in self.history],
            "content_b64": base64.b64encode(self.content).decode("ascii"),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], request: Request | None = None) -> Response:
        """The inverse of `to_dict`. Raises ResponseError for data that isn't a response's."""
        try:
            headers = data.get("headers") or ()
            return cls(
                url=data["url"],
                status_code=int(data["status_code"]),
                content=base64.b64decode(data.get("content_b64") or "", validate=True),
                headers=headers if hasattr(headers, "items") else [(name, value) for name, value in headers],
                cookies=data.get("cookies"),
                request=request,
                encoding=data.get("encoding"),
                elapsed=data.get("elapsed"),
                history=[
                    cls.from_dict(one) if isinstance(one, dict) else one for one in data.get("history") or ()
                ],
            )
        except (KeyError, TypeError, ValueError, AttributeError, binascii.Error) as error:
            raise ResponseError(f"not a response ({error!r:.100}): {data!r:.100}") from None

    def __repr__(self) -> str:
        return f"<{self.status_code} {self.url}>"


def _cookie(line: str) -> tuple[str, str]:
    """Name and value of a Set-Cookie field (RFC 6265, 5.2)."""
    name, _, value = line.partition(";")[0].partition("=")
    return name.strip(), value.strip().strip('"')
