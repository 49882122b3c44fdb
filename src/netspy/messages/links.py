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
    """The http(s) links of `<a href>` and `<area href>` in document order; of two that lead to one page, the first.

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
        href = attributes.get("href")
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
        href: str | None = target.attrib.get("href")
        return href
    raise RequestError(
        f"follow: {target.get()!r:.80} is no link; select an <a>, <area> or <link>, or its ::attr(href)"
    )


def _anchors(response: Response, css: str | None) -> Iterable[Selector]:
    if response.kind == "json":
        return []
    if css is None:
        return response.xpath("//a[@href] | //area[@href]")
    return response.css(css).xpath("descendant-or-self::a[@href] | descendant-or-self::area[@href]")


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
