"""XML whose references libxml2 can't read, made readable before it is parsed.

libxml2 recovers from a bad reference in ways that cost more than a character: half of a surrogate pair makes its
strings invalid UTF-8, of `AT&T` it leaves `AT`, and `&nbsp;` is gone without a trace.
"""

from __future__ import annotations

import re
from html.entities import html5

_doubtful = re.compile("&(?!(?:amp|lt|gt|quot|apos);)").search
# Sections where "&" is a character like others are stepped over, and so are the five names that XML knows. Each
# alternative begins with a plain character, so that the search runs from one of these to the next.
_number = r"&#(?:[0-9]+|[xX][0-9a-fA-F]+);?"
_references = re.compile(
    r"<!\[CDATA\[.*?(?:\]\]>|\Z)|<!--.*?(?:-->|\Z)|<\?.*?(?:\?>|\Z)"
    rf"|{_number}(?:{_number})*"
    r"|&(?!(?:amp|lt|gt|quot|apos);)(?:(?P<name>[^\W\d][\w.:-]*);)?",
    re.DOTALL,
).sub
_numbers = re.compile(r"&#(?:([0-9]+)|[xX]([0-9a-fA-F]+))").findall
_forbidden = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]").sub
_LAST = 0x10FFFF


def with_good_references(text: str) -> str:
    """`text` with each reference that XML doesn't allow put right.

    Two halves of a surrogate pair are the character that they stand for, and any other number that is none of XML's
    characters is U+FFFD. `&nbsp;` and the other names of HTML mean what they mean there, unless the document
    declares entities of its own. A "&" that begins no reference is itself.
    """
    if not _doubtful(text):
        return text
    declares = "<!ENTITY" in text

    def repaired(match: re.Match[str]) -> str:
        whole, name = match[0], match["name"]
        if whole[0] == "<" or (name and declares):
            return whole
        if whole.startswith("&#"):
            return _by_numbers(whole)
        if name is None:
            return "&amp;"
        meant = html5.get(f"{name};")
        return f"&amp;{name};" if meant is None else _as_references(meant)

    return _references(repaired, text)


def _by_numbers(references: str) -> str:
    """Numeric references that follow each other, as those of allowed characters."""
    characters = "".join(_character(decimal, digits) for decimal, digits in _numbers(references))
    whole = characters.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return _as_references(_forbidden("\ufffd", whole))


def _character(decimal: str, hexadecimal: str) -> str:
    digits = (decimal or hexadecimal).lstrip("0")
    number = int(digits or "0", 10 if decimal else 16) if len(digits) < 9 else _LAST + 1
    return chr(number) if number <= _LAST else "\ufffd"


def _as_references(text: str) -> str:
    return "".join(f"&#{ord(character)};" for character in text)
