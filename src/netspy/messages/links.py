"""Links of a page: absolute, fetchable, each once."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from netspy.errors import InvalidUrlError, RequestError
from netspy.messages import urls

if TYPE_CHECKING:
    from netspy.messages.response import Response
    from netspy.messages.selectors import Selector

_LINKING = frozenset({"a", "area", "link"})
_XLINK = "{http://www.w3.org/1999/xlink}href"
_IN_XML = (  # where the elements of XHTML and SVG have namespaces
    "*[local-name()='a' or local-name()='area']"
    "[@href or @*[local-name()='href' and namespace-uri()='http://www.w3.org/1999/xlink']]"
)
_has_xlink = re.compile(r"xlink:href", re.IGNORECASE).search
_spaces = re.compile(r"\s+").sub


class Link(NamedTuple):
    """One link. `url` is absolute and without fragment; `text` is what the reader sees, white space collapsed."""

    url: str
    text: str = ""
    nofollow: bool = False


Patterns = str | re.Pattern[str] | Iterable[str | re.Pattern[str]] | None


def find_links(
    response: Response,
    *,
    allow: Patterns = None,
    deny: Patterns = None,
    same_host: bool = False,
    css: str | None = None,
) -> list[Link]:
    """The http(s) links of `<a href>`, `<area href>` and SVG's `<a xlink:href>`, in document order.

    Of two that lead to one page the first is given.

    `allow` and `deny` are regular expressions searched in the absolute URL: one of `allow` must match (when
    there are any), none of `deny` may. `same_host` keeps the links to the response's own host. `css` limits
    the search to the elements it finds and what is inside them. A link that is malformed, or can't be
    fetched (`mailto:`, `javascript:`), is left out; it never spoils the others.
    """
    allowed, denied = _compile(allow), _compile(deny)
    host = _host(response.url) if same_host else None
    base, encoding = response.base_url, response.link_encoding
    found: list[Link] = []
    seen: set[str] = set()
    for element in _anchors(response, css):
        attributes = element.attrib
        href = _href(element)
        if href is None:
            continue
        try:
            url = urls.join(base, href, encoding=encoding, fragment=False)
            if not url.startswith(("http://", "https://")):
                continue
            page = urls.canonical(url)
        except InvalidUrlError:
            continue
        if page in seen or (host is not None and _host(url) != host):
            continue
        if allowed and not any(pattern.search(url) for pattern in allowed):
            continue
        if any(pattern.search(url) for pattern in denied):
            continue
        seen.add(page)
        text = _spaces(" ", element.xpath("string()").get("")).strip()
        found.append(Link(url, text, "nofollow" in attributes.get("rel", "").lower().split()))
    return found


def href_of(target: Any) -> str | None:
    """The link in what `follow` is given: a string, a Link, or the selector of a link element or attribute.

    None for an `<a>`, `<area>` or `<link>` without href. Raises RequestError for what is no link at all.
    """
    if isinstance(target, str):
        return target
    if isinstance(target, Link):
        return target.url
    root = getattr(target, "root", None)
    if root is None:
        raise RequestError(
            f"follow({target!r:.80}): a URL, a Link or one selector is wanted; for several, use follow_all"
        )
    if isinstance(root, str):
        return str(root)
    tag = getattr(root, "tag", None)
    if isinstance(tag, str) and tag.rpartition("}")[2].lower() in _LINKING:
        return _href(target)
    raise RequestError(
        f"follow: {target.get()!r:.80} is no link; select an <a>, <area> or <link>, or its ::attr(href)"
    )


def _anchors(response: Response, css: str | None) -> Iterable[Selector]:
    if response.kind == "json":
        return []
    if response.kind == "xml":
        paths = [_IN_XML]
    else:
        paths = ["a[@href]", "area[@href]"]
        if _has_xlink(response.text):
            paths.append("a[not(@href)][@*[name()='xlink:href']][ancestor::svg]")
    if css is None:
        return response.xpath(" | ".join(f"//{path}" for path in paths))
    return response.css(css).xpath(" | ".join(f"descendant-or-self::{path}" for path in paths))


def _href(element: Selector) -> str | None:
    """The link of an element: `href`, else, of an SVG link, `xlink:href` (SVG 2, 16.1)."""
    attributes = element.attrib
    href: str | None = attributes.get("href", attributes.get(_XLINK))
    if href is None and "xlink:href" in attributes and element.xpath("self::a[ancestor::svg]"):
        href = attributes["xlink:href"]
    return href


def _compile(patterns: Patterns) -> list[re.Pattern[str]]:
    if patterns is None:
        return []
    if isinstance(patterns, (str, re.Pattern)):
        patterns = [patterns]
    return [re.compile(pattern) if isinstance(pattern, str) else pattern for pattern in patterns]


def _host(url: str) -> str:
    try:
        return urls.host_of(url)
    except InvalidUrlError:
        return ""
