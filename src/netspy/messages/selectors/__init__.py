"""Selectors: parsel's interface and results, on the engine that SELECTOR_ENGINE names.

    base.py           Selector, SelectorList: the interface, and the choice of the engine
    html.py           HTML on turbohtml
    size.py           which pages make too large a tree
    query.py          one selector made ready, kept in a cache
    html5.py          XPath meant for lxml's tree, made to fit an HTML5 tree
    native.py         which selectors turbohtml's CSS engine answers faster, and just the same
    axes.py           XPath's sideways axes, in time that grows with the page
    xpath.py          XPath 1.0 as a tree
    parsel_engine.py  parsel: XML, JSON, and HTML by choice
    regex.py          re() and re_first()

Importing this loads none of the engines.
"""

from __future__ import annotations

from typing import Literal

from netspy.messages.selectors.base import Engine, Selector, SelectorList
from netspy.messages.selectors.size import MAX_NODES

__all__ = ["Engine", "Selector", "SelectorList", "make_selector", "parsed"]


def make_selector(
    text: str, engine: Engine = "turbohtml", kind: Literal["html", "xml", "json"] | None = "html"
) -> Selector:
    """The selector of a whole document. Raises ConfigError for an engine or kind that doesn't exist."""
    return Selector(text=text, type=kind, engine=engine)


def parsed(
    text: str, engine: Engine, kind: Literal["html", "xml", "json"], max_nodes: int = MAX_NODES
) -> Selector:
    """As `make_selector`, for a text that was decoded from bytes and so holds no lone surrogates.

    A page whose tree has more than `max_nodes` nodes raises ResponseError; 0: no limit. Only turbohtml counts them,
    since lxml opens nothing again.
    """
    if engine == "turbohtml" and kind == "html":
        from netspy.messages.selectors.html import HtmlSelector, TooDeepError

        try:
            return HtmlSelector.on(text, max_nodes)
        except TooDeepError:
            engine = "parsel"
    return Selector(text=text, type=kind, engine=engine)
