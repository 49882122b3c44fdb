"""Selectors: parsel's interface and results, on the engine that SELECTOR_ENGINE names.

    base.py           Selector, SelectorList: the interface, and the choice of the engine
    html.py           HTML on turbohtml
    query.py          one selector made ready, kept in a cache
    html5.py          XPath meant for lxml's tree, made to fit an HTML5 tree
    native.py         which selectors turbohtml's CSS engine answers faster, and just the same
    xpath.py          XPath 1.0 as a tree
    parsel_engine.py  parsel: XML, JSON, and HTML by choice
    regex.py          re() and re_first()

Importing this loads none of the engines.
"""

from __future__ import annotations

from typing import Literal

from netspy.messages.selectors.base import Engine, Selector, SelectorList

__all__ = ["Engine", "Selector", "SelectorList", "make_selector", "parsed"]


def make_selector(
    text: str, engine: Engine = "turbohtml", kind: Literal["html", "xml", "json"] | None = "html"
) -> Selector:
    """The selector of a whole document. Raises ConfigError for an engine or kind that doesn't exist."""
    return Selector(text=text, type=kind, engine=engine)


def parsed(text: str, engine: Engine, kind: Literal["html", "xml", "json"]) -> Selector:
    """As `make_selector`, for a text that was decoded from bytes and so holds no lone surrogates."""
    if engine == "turbohtml" and kind == "html":
        from netspy.messages.selectors.html import HtmlSelector

        return HtmlSelector.on(text)
    return Selector(text=text, type=kind, engine=engine)
